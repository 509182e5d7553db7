//! A comparison in words, on one screen.

use std::collections::BTreeMap;

use super::{Comparison, Difference, EntityKind, Side};

/// Places that are shown when not all are asked for.
const PLACES: usize = 8;
/// Words of a continuation that are shown.
const WORDS: usize = 6;
/// Names that are shown of those who differ in the same way.
const NAMES: usize = 4;

/// The comparison as text. `all`: every place and every word, however long.
pub fn show(comparison: &Comparison, all: bool) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&side("A", &comparison.a));
    line(&side("B", &comparison.b));
    for (name, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        if side.polled {
            line(&format!("   {name} only looked now and then: a state that it lacks is not counted"));
        }
    }
    let compared = format!("{} strands of {} hosts and clusters", comparison.strands, comparison.entities);
    let explained = match comparison.explained.len() {
        0 => String::new(),
        n => format!(", {n} explained"),
    };
    match comparison.differences.len() {
        0 => line(&format!("same: {compared}{explained}")),
        1 => line(&format!("1 difference in {compared}{explained}")),
        n => line(&format!("{n} differences in {compared}{explained}")),
    }
    let places = together(&comparison.differences);
    let shown = if all { places.len() } else { PLACES };
    for (difference, who) in places.iter().take(shown) {
        line("");
        line(&format!("{}: {}", names(difference.kind, who, all), difference.strand));
        if !difference.common.is_empty() {
            line(&format!("     … {}", difference.common.join(", ")));
        }
        line(&format!("  A: {}", words(&difference.a, all)));
        line(&format!("  B: {}", words(&difference.b, all)));
    }
    if places.len() > shown {
        line("");
        line(&format!("… and {} more places (--all shows them)", places.len() - shown));
    }
    if !comparison.explained.is_empty() {
        let mut reasons: BTreeMap<usize, (usize, &str, String)> = BTreeMap::new();
        for e in &comparison.explained {
            let entry = reasons.entry(e.explanation).or_insert((0, &e.why, e.difference.strand.to_string()));
            entry.0 += 1;
        }
        line("");
        line("explained:");
        for (count, why, strand) in reasons.values() {
            let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
            line(&format!("  {strand} ({count}): {}", if all { why } else { cut(&why, 120) }));
        }
    }
    out
}

fn side(name: &str, side: &Side) -> String {
    let Side { run_id, scenario, service, seed, time_profile, whole, .. } = side;
    let cut = if *whole { "" } else { ", cut short" };
    format!("{name}  {run_id}  {scenario}, service {service}, seed {seed}, profile {time_profile}{cut}")
}

/// Differences that several hosts have alike, shown once. In the order in which they are first met.
fn together(differences: &[Difference]) -> Vec<(&Difference, Vec<&Difference>)> {
    let mut places: Vec<(&Difference, Vec<&Difference>)> = Vec::new();
    for d in differences {
        let alike =
            |o: &Difference| (o.kind, &o.strand, &o.common, &o.a, &o.b) == (d.kind, &d.strand, &d.common, &d.a, &d.b);
        match places.iter_mut().find(|(first, _)| alike(first)) {
            Some((_, who)) => who.push(d),
            None => places.push((d, vec![d])),
        }
    }
    places
}

fn names(kind: EntityKind, who: &[&Difference], all: bool) -> String {
    let shown = if all { who.len() } else { NAMES };
    let mut names: Vec<String> = who
        .iter()
        .take(shown)
        .map(|d| if d.role.is_empty() { d.name.clone() } else { format!("{} ({})", d.name, d.role) })
        .collect();
    if who.len() > shown {
        names.push(format!("{} more", who.len() - shown));
    }
    match kind {
        EntityKind::Run => "the run".to_owned(),
        kind => format!("{} {}", kind.as_str(), names.join(", ")),
    }
}

fn words(words: &[String], all: bool) -> String {
    if words.is_empty() {
        return "(nothing more)".to_owned();
    }
    let shown = if all { words.len() } else { WORDS };
    let more = if words.len() > shown { format!(", … {} more", words.len() - shown) } else { String::new() };
    format!("{}{more}", words.iter().take(shown).cloned().collect::<Vec<_>>().join(", "))
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
