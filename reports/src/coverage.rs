//! What of a list of things runs have reached: rules, stages, steps, validations, events, faults. As text, JSON and a page.
//!
//! Nothing here knows what the things are. Each is a word in a section, reached on the built-in service, on the real one, or
//! on neither; and where it cannot be reached, there is a reason.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// Version of the form. Raised when the meaning of a member changes; new optional members do not raise it.
pub const COVERAGE_VERSION: u32 = 1;

/// What runs have reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// [`COVERAGE_VERSION`] of the writer.
    pub version: u32,
    /// How many runs on the built-in service were read.
    pub simulated_runs: usize,
    /// How many runs on another one.
    pub real_runs: usize,
    /// The lists.
    pub sections: Vec<Section>,
}

/// A list of things.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Its id, for example `host-rules`.
    pub id: String,
    /// For people.
    pub title: String,
    /// The things.
    pub items: Vec<Item>,
}

/// A thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its word, unique in the section.
    pub id: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// On the built-in service.
    pub simulated: Reached,
    /// On another service.
    pub real: Reached,
    /// Why it cannot be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How something was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// In how many runs.
    pub runs: usize,
    /// Scenario of the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// Where it was not: a run has something that may have been it, and may have been another one of the list.
    #[serde(default)]
    pub possible: bool,
}

/// How many of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Reached.
    pub reached: usize,
    /// In the list.
    pub all: usize,
    /// Not reached, with a reason why it cannot be.
    pub unreachable: usize,
}

impl Count {
    /// Per cent of all.
    pub fn of_all(self) -> f64 {
        100.0 * self.reached as f64 / self.all.max(1) as f64
    }

    /// Per cent of what can be reached.
    pub fn of_reachable(self) -> f64 {
        100.0 * self.reached as f64 / (self.all - self.unreachable).max(1) as f64
    }

    /// Columns of a table: how many of all, per cent of all, and of what can be reached.
    pub(crate) fn cell(self) -> String {
        format!("{:>4} of {:<4} {:>5.1}% ({:>5.1}%)", self.reached, self.all, self.of_all(), self.of_reachable())
    }

    fn in_words(self) -> String {
        format!("{} of {}, {:.1}% of what can be reached", self.reached, self.all, self.of_reachable())
    }

    fn add(self, other: Self) -> Self {
        Self {
            reached: self.reached + other.reached,
            all: self.all + other.all,
            unreachable: self.unreachable + other.unreachable,
        }
    }
}

impl Section {
    /// How many were reached. `real`: on another service than the built-in one.
    pub fn count(&self, real: bool) -> Count {
        let reached = |i: &Item| if real { i.real.runs > 0 } else { i.simulated.runs > 0 };
        Count {
            reached: self.items.iter().filter(|i| reached(i)).count(),
            all: self.items.len(),
            unreachable: self.items.iter().filter(|i| !reached(i) && i.reason.is_some()).count(),
        }
    }
}

impl Coverage {
    /// A section.
    pub fn section(&self, id: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.id == id)
    }

    /// How many of several sections were reached.
    pub fn count(&self, sections: &[&str], real: bool) -> Count {
        sections
            .iter()
            .filter_map(|id| self.section(id))
            .fold(Count::default(), |sum, section| sum.add(section.count(real)))
    }

    /// What was read, and what the figures of each section are.
    pub(crate) fn read(&self) -> String {
        let runs = |n: usize| if n == 1 { "1 run".to_owned() } else { format!("{n} runs") };
        format!(
            "{} on the built-in service, {} on another service. In brackets: of what can be reached.",
            runs(self.simulated_runs),
            runs(self.real_runs)
        )
    }

    /// For the terminal. `all`: every item; else those that were not reached.
    pub fn text(&self, all: bool) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "{}", self.read());
        let width = self.sections.iter().map(|s| s.title.chars().count()).max().unwrap_or(0);
        let _ =
            writeln!(text, "{:width$}  {:^22}  {:^22}  cannot be reached", "", "built-in service", "another service");
        for section in &self.sections {
            let _ = writeln!(
                text,
                "{:width$}  {}  {}  {:>5}",
                section.title,
                section.count(false).cell(),
                section.count(true).cell(),
                section.count(false).unreachable
            );
        }
        for section in &self.sections {
            let shown: Vec<&Item> = section.items.iter().filter(|i| all || i.simulated.runs == 0).collect();
            if shown.is_empty() {
                continue;
            }
            let _ =
                writeln!(text, "\n{}{}", section.title, if all { "" } else { ", not reached on the built-in service" });
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
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Tables for a document: for each thing a scenario that reaches it. They name no number of runs, so that one more run of
    /// the same scenario changes nothing in them.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let _ =
            writeln!(text, "| | built-in service | another service | cannot be reached |\n| --- | --- | --- | --- |");
        for section in &self.sections {
            let (simulated, real) = (section.count(false), section.count(true));
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} |",
                section.title,
                simulated.in_words(),
                real.in_words(),
                simulated.unreachable
            );
        }
        let example = |reached: &Reached| reached.first.as_ref().map_or("–".to_owned(), |first| format!("`{first}`"));
        for section in &self.sections {
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
    use super::*;

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
        let text = coverage.text(false);
        assert!(text.contains("? c") && text.contains("– b") && !text.contains("+ a"), "{text}");
        assert!(text.contains("cannot be reached: never"), "{text}");
        assert!(coverage.text(true).contains("+ a"));
        let markdown = coverage.markdown();
        assert!(markdown.contains("| Things | 2 of 4, 66.7% of what can be reached | 1 of 4, "), "{markdown}");
        assert!(markdown.contains("| a | a <thing> | `sno` | `sno` |  |"), "{markdown}");
        assert!(markdown.contains("| b | a <thing> | – | – | never |"), "{markdown}");
        assert!(coverage.html().contains("a &lt;thing&gt;") && !coverage.html().contains("<thing>"));
        assert_eq!(serde_json::from_str::<Coverage>(&coverage.json()).unwrap(), coverage);
    }
}
