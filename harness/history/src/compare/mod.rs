//! Two histories side by side: where do they part?
//!
//! [`project`](fn@project) reads off a history what is compared, [`compare`] finds the hosts and clusters that belong together and the
//! first word at which each of their strands differs, [`Explanations`] sets apart what is decided, and [`show`] prints it.
//! Nothing here does I/O.
//!
//! Repeats do not count: a state that is told twice is one state. Time does not count either, and neither does the order
//! between hosts and clusters. Within a host or cluster each strand has its order; two events of different strands are in another
//! order only when one comes clearly before the other in one history, and clearly after it in the other.
//!
//! Monitors look at validations, and at the statuses that follow from them, in rounds. What held for less than two rounds may be
//! missed by one service and met by the other; it does not count. What was told of a validation is compared with what it went
//! through in the same history. How far a host gets in the moment before it is stopped (cancelled, or failed with its cluster) does
//! not count either, nor whether the last logs came before a run was over. Percentages are compared with the stages of hosts and at
//! the end of an installed cluster, because on the way it depends on who reports first. What was told of logs is compared with what is
//! known about them in the same history. Conditions of resources are compared by status and reason; one that held for less than
//! two rounds may be missed as well, because a controller writes what it finds when it looks.

mod explain;
mod project;
mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use vlab_model::history::{Observation, RunInfo, TargetKind};

pub use explain::{Alternative, Explanation, Explanations, ExplanationsError};
pub use project::{Entity, EntityKind, Line, Projection, Span, Strand, Word, project};
pub use show::show;

/// What goes before the place where two lines part, at most.
const COMMON_TAIL: usize = 3;

/// How a comparison is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What is not further apart than this in A has no order, and what does not hold for longer may as well be missed.
    pub together_a: Duration,
    /// The same for B.
    pub together_b: Duration,
}

impl Default for Options {
    /// Two rounds of a monitor of the real service with its own intervals.
    fn default() -> Self {
        let rounds = Duration::from_secs(20);
        Self { together_a: rounds, together_b: rounds }
    }
}

/// A place where two histories part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// Host or cluster.
    pub kind: EntityKind,
    /// Its name in the scenario; two, when the hosts that play the same part have different names.
    pub name: String,
    /// Its role.
    pub role: String,
    /// What of it.
    pub strand: Strand,
    /// The last words that both have.
    pub common: Vec<String>,
    /// How A goes on.
    pub a: Vec<String>,
    /// How B goes on.
    pub b: Vec<String>,
}

/// A difference that is decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedDifference {
    /// The difference.
    #[serde(flatten)]
    pub difference: Difference,
    /// Position of the explanation in its table, from 0.
    pub explanation: usize,
    /// Why it is as it is.
    pub why: String,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Id of the run.
    pub run_id: String,
    /// Name of its scenario.
    pub scenario: String,
    /// Which service was tested.
    pub service: TargetKind,
    /// Seed of its random choices.
    pub seed: u64,
    /// Time profile.
    pub time_profile: String,
    /// States were only looked at now and then, so that a state may be missing.
    pub polled: bool,
    /// The history has its end.
    pub whole: bool,
}

impl Side {
    fn new(projection: &Projection) -> Self {
        let RunInfo { run_id, scenario, service, seed, time_profile, .. } = projection.run.clone();
        let Projection { polled, whole, .. } = *projection;
        Self { run_id, scenario, service, seed, time_profile, polled, whole }
    }
}

/// What two histories differ in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this form.
    pub version: u32,
    /// The first.
    pub a: Side,
    /// The second.
    pub b: Side,
    /// Hosts and clusters that were compared.
    pub entities: usize,
    /// Strands that were compared.
    pub strands: usize,
    /// What differs and nobody has explained.
    pub differences: Vec<Difference>,
    /// What differs and is decided.
    pub explained: Vec<ExplainedDifference>,
}

/// Compares two histories.
pub fn compare(a: &[Observation], b: &[Observation], options: &Options) -> Comparison {
    let (a, b) = (project(a), project(b));
    compare_projections(&a, &b, options)
}

/// Compares what was read off two histories.
pub fn compare_projections(a: &Projection, b: &Projection, options: &Options) -> Comparison {
    let sides = (Side::new(a), Side::new(b));
    let (pairs, left) = matched(a, b);
    let mut differences: Vec<Difference> = Vec::new();
    for (entity, is_a) in left {
        let words = vec!["there".to_owned()];
        let (a, b) = if is_a { (words, Vec::new()) } else { (Vec::new(), words) };
        differences.push(Difference {
            kind: entity.kind,
            name: entity.name.clone(),
            role: entity.role_text(),
            strand: Strand::Presence,
            common: Vec::new(),
            a,
            b,
        });
    }
    let mut strands = 0;
    for (one, other) in &pairs {
        let all: BTreeSet<&Strand> = one.strands.keys().chain(other.strands.keys()).collect();
        strands += all.len();
        let nothing = Line::default();
        let mut parted = Vec::new();
        for strand in all {
            let lines = [one, other].map(|e| e.strands.get(strand).unwrap_or(&nothing));
            let [x, y] = lines.map(Line::texts);
            let lenient = match strand {
                // Which of several forms an event has depends on the moment; that it is missing is told where it is missing.
                Strand::Form(_) => x.is_empty() || y.is_empty() || is_part(&x, &y) || is_part(&y, &x),
                Strand::Event(_) | Strand::User => strand.is_of_validation() && (sides.0.polled || sides.1.polled),
                _ => (sides.0.polled && is_part(&x, &y)) || (sides.1.polled && is_part(&y, &x)),
            };
            if x == y || lenient || same_but_for_moments(strand, [one, other], lines, options) {
                continue;
            }
            let same = x.iter().zip(&y).take_while(|(x, y)| x == y).count();
            parted.push(Difference {
                strand: strand.clone(),
                common: x[same.saturating_sub(COMMON_TAIL)..same].to_vec(),
                a: x[same..].to_vec(),
                b: y[same..].to_vec(),
                ..blank(one, other)
            });
        }
        parted.extend(other_order(one, other, options));
        differences.extend(parted);
    }
    differences.sort();
    let entities = pairs.len();
    let (a, b) = sides;
    Comparison { version: 1, a, b, entities, strands, differences, explained: Vec::new() }
}

fn blank(one: &Entity, other: &Entity) -> Difference {
    let both = |x: &str, y: &str, joiner: &str| {
        // In the order of the alphabet, so that it does not matter who comes first.
        let (x, y) = if x <= y { (x, y) } else { (y, x) };
        if x == y { x.to_owned() } else { format!("{x}{joiner}{y}") }
    };
    Difference {
        kind: one.kind,
        name: both(&one.name, &other.name, " = "),
        role: both(&one.role_text(), &other.role_text(), " / "),
        strand: Strand::Presence,
        common: Vec::new(),
        a: Vec::new(),
        b: Vec::new(),
    }
}

/// Is `short` what is left of `long` when some words are taken out?
fn is_part(short: &[String], long: &[String]) -> bool {
    let mut rest = long.iter();
    short.iter().all(|word| rest.any(|w| w == word))
}

/// Are two lines the same when words are left out that held for a moment only, of those that a monitor may as well miss?
fn same_but_for_moments(strand: &Strand, of: [&Entity; 2], [x, y]: [&Line; 2], options: &Options) -> bool {
    let skips = |entity: &Entity, line: &Line, short: Duration| -> Vec<bool> {
        (line.words.iter().enumerate())
            .map(|(at, word)| {
                // It takes a round until the cluster follows a host, and one until the other hosts follow the cluster.
                let cut = entity.stopped.is_some_and(|stopped| word.since + short * 2 >= stopped);
                // Beside the last report of the installation.
                let late = strand.runs_beside(&word.text) && word.since + short * 2 >= entity.ended;
                (strand.may_miss(&word.text) && line.is_brief(at, short))
                    || (strand.may_be_cut(&word.text) && cut)
                    || late
            })
            .collect()
    };
    let skips = [skips(of[0], x, options.together_a), skips(of[1], y, options.together_b)];
    // How far both were read, and the last word that is kept: places from which a way to the end is looked for.
    let beginning = matches!(strand, Strand::Validation(_)).then_some(project::NOT_EVALUATED);
    let mut open = vec![(0, 0, beginning)];
    let mut seen = BTreeSet::new();
    while let Some((i, j, last)) = open.pop() {
        if !seen.insert((i, j, last)) {
            continue;
        }
        let (next_x, next_y) = (x.words.get(i).map(|w| w.text.as_str()), y.words.get(j).map(|w| w.text.as_str()));
        match (next_x, next_y) {
            (None, None) => return true,
            (Some(word), Some(other)) if word == other => open.push((i + 1, j + 1, Some(word))),
            _ => {}
        }
        // A word that is the kept one again, once those between are left out, is no step.
        if next_x.is_some_and(|word| skips[0][i] || last == Some(word)) {
            open.push((i + 1, j, last));
        }
        if next_y.is_some_and(|word| skips[1][j] || last == Some(word)) {
            open.push((i, j + 1, last));
        }
    }
    false
}

/// Events that are clearly in the one order here and clearly in the other there.
fn other_order(one: &Entity, other: &Entity, options: &Options) -> Vec<Difference> {
    let both: Vec<_> =
        one.moments.iter().filter_map(|(key, x)| other.moments.get(key).map(|y| (key, *x, *y))).collect();
    let mut found = Vec::new();
    for (i, (first, a1, b1)) in both.iter().enumerate() {
        for (second, a2, b2) in &both[i + 1..] {
            let before = |x: &Span, y: &Span, gap: Duration| x.last + gap < y.first;
            let text = |(x, y): (&(String, String), &(String, String))| {
                let words = |(kind, word): &(String, String)| match word.as_str() {
                    "seen" => kind.clone(),
                    word => format!("{kind} ({word})"),
                };
                vec![words(x), words(y)]
            };
            let (forth, back) = (text((first, second)), text((second, first)));
            let (ga, gb) = (options.together_a, options.together_b);
            let (a, b) = if before(a1, a2, ga) && before(b2, b1, gb) {
                (forth, back)
            } else if before(a2, a1, ga) && before(b1, b2, gb) {
                (back, forth)
            } else {
                continue;
            };
            found.push(Difference { strand: Strand::Order, a, b, ..blank(one, other) });
        }
    }
    found
}

type Left<'p> = Vec<(&'p Entity, bool)>;

/// Hosts and clusters that belong together, and those that have no other (`true`: of A).
///
/// Clusters go by their name in the scenario. So do hosts, unless they play different parts: which of some equal hosts
/// becomes the bootstrap is the service's choice. Then the hosts that play the same part belong together, in the order of their
/// names.
fn matched<'p>(a: &'p Projection, b: &'p Projection) -> (Vec<(&'p Entity, &'p Entity)>, Left<'p>) {
    let (mut one, mut other): (Vec<&Entity>, Vec<&Entity>) = (Vec::new(), Vec::new());
    let mut pairs = Vec::new();
    let mut left: Left<'p> = Vec::new();
    for (key, entity) in &a.entities {
        match (key.0, b.entities.get(key)) {
            (EntityKind::Host, _) => one.push(entity),
            (_, Some(twin)) => pairs.push((entity, twin)),
            (_, None) => left.push((entity, true)),
        }
    }
    for (key, entity) in &b.entities {
        match (key.0, a.entities.get(key)) {
            (EntityKind::Host, _) => other.push(entity),
            (_, None) => left.push((entity, false)),
            _ => {}
        }
    }
    fn group(name: &str) -> &str {
        name.rsplit_once('-').map_or(name, |(group, _)| group)
    }
    /// What must be equal so that two hosts belong together; from the strictest to "the n-th host is the n-th host".
    type Key = fn(&Entity) -> (String, String);
    let keys: [Key; 5] = [
        |e| (e.name.clone(), e.role_text()),
        |e| (group(&e.name).to_owned(), e.role_text()),
        |e| (String::new(), e.role_text()),
        |e| (e.name.clone(), String::new()),
        |_| (String::new(), String::new()),
    ];
    // A host that a fault hits is itself.
    let hit: BTreeSet<&str> = one.iter().chain(&other).filter(|e| e.hit).map(|e| e.name.as_str()).collect();
    one.retain(|host| match other.iter().position(|o| hit.contains(&*host.name) && o.name == host.name) {
        Some(at) => {
            pairs.push((*host, other.remove(at)));
            false
        }
        None => true,
    });
    for key in keys {
        let mut waiting: BTreeMap<(String, String), Vec<&Entity>> = BTreeMap::new();
        for host in other.drain(..) {
            waiting.entry(key(host)).or_default().push(host);
        }
        one.retain(|host| match waiting.get_mut(&key(host)).filter(|hosts| !hosts.is_empty()) {
            Some(hosts) => {
                pairs.push((*host, hosts.remove(0)));
                false
            }
            None => true,
        });
        other = waiting.into_values().flatten().collect();
        other.sort_by(|x, y| x.name.cmp(&y.name));
    }
    left.extend(one.into_iter().map(|e| (e, true)));
    left.extend(other.into_iter().map(|e| (e, false)));
    (pairs, left)
}

/// Do the hosts that faults hit play the same parts in both? Which master becomes the bootstrap is the service's choice, and a
/// bootstrap that fails is another story than another master that does.
pub fn same_parts(a: &[Observation], b: &[Observation]) -> bool {
    let parts = |history| -> BTreeMap<String, String> {
        let hosts = project(history).entities.into_values().filter(|e| e.hit);
        hosts.map(|e| (e.name.clone(), e.role_text())).collect()
    };
    parts(a) == parts(b)
}

impl Comparison {
    /// Sets apart what the table explains. Explanations are about the simulated service on one side and another one on the
    /// other; between two services of the same sort nothing is explained.
    pub fn explain(&mut self, explanations: &Explanations) {
        let simulated =
            |side: &Side| matches!(&side.service, TargetKind::Simulated) || side.service == TargetKind::default();
        let simulated_is_a = match (simulated(&self.a), simulated(&self.b)) {
            (true, false) => true,
            (false, true) => false,
            _ => return,
        };
        let scenario = self.a.scenario.clone();
        let mut used: BTreeMap<usize, usize> = BTreeMap::new();
        for difference in std::mem::take(&mut self.differences) {
            match explanations.find(&scenario, &difference, simulated_is_a, &used) {
                Some((explanation, why)) => {
                    *used.entry(explanation).or_default() += 1;
                    let why = why.to_owned();
                    self.explained.push(ExplainedDifference { difference, explanation, why });
                }
                None => self.differences.push(difference),
            }
        }
    }

    /// Nothing differs that is not explained.
    pub fn is_same(&self) -> bool {
        self.differences.is_empty()
    }
}

#[cfg(test)]
mod tests;
