//! What of a list of things runs have reached: rules, stages, steps, validations, events, faults.
//!
//! Nothing here knows what the things are. Each is a word in a section, reached on the built-in service, on the real one, or
//! on neither; and where it cannot be reached, there is a reason.

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
    /// Number of entries that were reached.
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
}
