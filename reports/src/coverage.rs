//! What runs have reached, as text, as JSON and as tables of a document. Its page is [`crate::html::coverage`].

use std::fmt::Write as _;

use vlab_judge::coverage::{Count, Coverage, Item, Reached};

/// Columns of a table: how many of all, per cent of all, and of what can be reached.
pub(crate) fn cell(count: Count) -> String {
    format!("{:>4} of {:<4} {:>5.1}% ({:>5.1}%)", count.reached, count.all, count.of_all(), count.of_reachable())
}

fn in_words(count: Count) -> String {
    format!("{} of {}, {:.1}% of what can be reached", count.reached, count.all, count.of_reachable())
}

/// What was read, and what the figures of each section are.
pub(crate) fn read(coverage: &Coverage) -> String {
    let runs = |n: usize| if n == 1 { "1 run".to_owned() } else { format!("{n} runs") };
    format!(
        "{} on the built-in service, {} on another service. In brackets: of what can be reached.",
        runs(coverage.simulated_runs),
        runs(coverage.real_runs)
    )
}

/// For the terminal. `all`: every item; else those that were not reached.
pub fn text(coverage: &Coverage, all: bool) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", read(coverage));
    let width = coverage.sections.iter().map(|s| s.title.chars().count()).max().unwrap_or(0);
    let _ = writeln!(text, "{:width$}  {:^22}  {:^22}  cannot be reached", "", "built-in service", "another service");
    for section in &coverage.sections {
        let _ = writeln!(
            text,
            "{:width$}  {}  {}  {:>5}",
            section.title,
            cell(section.count(false)),
            cell(section.count(true)),
            section.count(false).unreachable
        );
    }
    for section in &coverage.sections {
        let shown: Vec<&Item> = section.items.iter().filter(|i| all || i.simulated.runs == 0).collect();
        if shown.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{}{}", section.title, if all { "" } else { ", not reached on the built-in service" });
        for item in shown {
            let about = if item.about.is_empty() { String::new() } else { format!("  {}", item.about) };
            let _ = writeln!(text, "  {} {}{about}", sign(item), item.id);
            if let Some(reason) = &item.reason {
                let _ = writeln!(text, "      cannot be reached: {reason}");
            }
        }
    }
    text
}

/// Its JSON text.
pub fn json(coverage: &Coverage) -> String {
    let mut text = serde_json::to_string_pretty(coverage).unwrap_or_default();
    text.push('\n');
    text
}

/// Tables for a document: for each thing a scenario that reaches it. They name no number of runs, so that one more run of
/// the same scenario changes nothing in them.
pub fn markdown(coverage: &Coverage) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "| | built-in service | another service | cannot be reached |\n| --- | --- | --- | --- |");
    for section in &coverage.sections {
        let (simulated, real) = (section.count(false), section.count(true));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            section.title,
            in_words(simulated),
            in_words(real),
            simulated.unreachable
        );
    }
    let example = |reached: &Reached| reached.first.as_ref().map_or("–".to_owned(), |first| format!("`{first}`"));
    for section in &coverage.sections {
        let _ = writeln!(text, "\n## {}\n\n| | | built-in | another | why not |", section.title);
        let _ = writeln!(text, "| --- | --- | --- | --- | --- |");
        for item in &section.items {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                item.id,
                item.about,
                example(&item.simulated),
                example(&item.real),
                item.reason.as_deref().unwrap_or_default()
            );
        }
    }
    text
}

fn sign(item: &Item) -> &'static str {
    match (item.simulated.runs > 0 || item.real.runs > 0, item.simulated.possible || item.real.possible, &item.reason) {
        (true, ..) => "+",
        (false, true, _) => "?",
        (false, false, Some(_)) => "–",
        (false, false, None) => "✗",
    }
}

#[cfg(test)]
mod tests {
    use vlab_judge::coverage::{COVERAGE_VERSION, Section};

    use super::*;
    use crate::html::coverage::page;

    fn item(id: &str, simulated: usize, real: usize, reason: Option<&str>) -> Item {
        let reached = |runs: usize| Reached {
            runs,
            first: (runs > 0).then(|| "sno".to_owned()),
            possible: runs == 0 && id == "c",
        };
        Item {
            id: id.into(),
            about: "a <thing>".into(),
            simulated: reached(simulated),
            real: reached(real),
            reason: reason.map(str::to_owned),
        }
    }

    #[test]
    fn what_was_reached_is_counted_and_shown() {
        let items =
            vec![item("a", 2, 1, None), item("b", 0, 0, Some("never")), item("c", 0, 0, None), item("d", 1, 0, None)];
        let section = Section { id: "s".into(), title: "Things".into(), items };
        let coverage = Coverage { version: COVERAGE_VERSION, simulated_runs: 2, real_runs: 1, sections: vec![section] };
        let count = coverage.count(&["s"], false);
        assert_eq!((count.reached, count.all, count.unreachable), (2, 4, 1));
        assert!((count.of_all() - 50.0).abs() < 1e-9 && (count.of_reachable() - 66.666_666).abs() < 1e-3);
        assert_eq!(coverage.count(&["s"], true).reached, 1);
        let few = text(&coverage, false);
        assert!(few.contains("? c") && few.contains("– b") && !few.contains("+ a"), "{few}");
        assert!(few.contains("cannot be reached: never"), "{few}");
        assert!(text(&coverage, true).contains("+ a"));
        let tables = markdown(&coverage);
        assert!(tables.contains("| Things | 2 of 4, 66.7% of what can be reached | 1 of 4, "), "{tables}");
        assert!(tables.contains("| a | a <thing> | `sno` | `sno` |  |"), "{tables}");
        assert!(tables.contains("| b | a <thing> | – | – | never |"), "{tables}");
        assert!(page(&coverage).contains("a &lt;thing&gt;") && !page(&coverage).contains("<thing>"));
        assert_eq!(serde_json::from_str::<Coverage>(&json(&coverage)).unwrap(), coverage);
    }
}
