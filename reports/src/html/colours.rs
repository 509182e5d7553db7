//! Which colour a status or a stage has, and the legend that says so.

use std::collections::BTreeMap;

use maud::{Markup, html};
use vlab_api::types::{HostStage, HostStatus};

use super::Page;
use crate::timeline::{Lane, Span};

/// Colours in the order of the legend: the way of a host, then what can go wrong, then the stages.
const ORDER: [&str; 19] = [
    "k-wait", "k-need", "k-ready", "k-prep", "k-inst", "k-fin", "k-done", "k-user", "k-err", "k-gone", "k-other",
    "g-1", "g-2", "g-3", "g-4", "g-5", "g-6", "g-7", "g-8",
];

/// One of the two bars of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bar {
    /// The upper one.
    Statuses,
    /// The lower one.
    Stages,
}

impl Bar {
    /// Its spans.
    pub(super) fn of<'l, 'h>(self, lane: &'l Lane<'h>) -> &'l [Span<'h>] {
        match self {
            Bar::Statuses => &lane.statuses,
            Bar::Stages => &lane.stages,
        }
    }

    /// Everything that a host may have there, in the order of an installation.
    pub(super) fn values_of_hosts(self) -> &'static [&'static str] {
        match self {
            Bar::Statuses => HostStatus::NAMES,
            Bar::Stages => HostStage::NAMES,
        }
    }

    /// The class of the page's style for a value.
    pub(super) fn colour(self, value: &str) -> &'static str {
        match self {
            Bar::Statuses => status(value),
            Bar::Stages => stage(value),
        }
    }
}

/// Colour of a status. The colours tell apart for all common kinds of colour blindness, and the words stand in the spans.
fn status(status: &str) -> &'static str {
    match status {
        "discovering" | "discovering-unbound" | "unmonitored" => "k-wait",
        "known" | "known-unbound" | "ready" => "k-ready",
        "insufficient" | "insufficient-unbound" | "pending-for-input" => "k-need",
        "preparing-for-installation" | "preparing-successful" => "k-prep",
        "installing" | "installing-in-progress" => "k-inst",
        "finalizing" => "k-fin",
        "installing-pending-user-action" | "resetting-pending-user-action" | "unbinding-pending-user-action" => {
            "k-user"
        }
        "installed" | "added-to-existing-cluster" | "adding-hosts" => "k-done",
        "error" | "preparing-failed" => "k-err",
        "disconnected" | "disconnected-unbound" | "disabled" | "disabled-unbound" => "k-gone",
        _ => "k-other",
    }
}

fn stage(stage: &str) -> &'static str {
    match stage {
        "Starting installation" => "g-1",
        "Installing" => "g-2",
        "Writing image to disk" | "Copying registry data to disk" => "g-3",
        "Rebooting" => "g-5",
        "Configuring" => "g-6",
        "Joined" => "g-7",
        "Done" => "g-8",
        "Failed" => "k-err",
        // The waits, and the finalizing stages.
        stage if stage.starts_with("Waiting") => "g-4",
        _ => "g-6",
    }
}

/// Does a host stand out from a fleet?
pub(super) fn stands_out(lane: &Lane<'_>) -> bool {
    matches!(status(lane.last_status()), "k-err" | "k-gone" | "k-user")
        || lane.stages.last().is_some_and(|s| s.value == "Failed")
        || lane.marks.iter().any(|m| m.bad)
}

/// The colours that a drawing has, with the words that wear them.
#[derive(Default)]
pub(super) struct Legend(BTreeMap<&'static str, Vec<String>>);

impl Legend {
    /// Something with that colour is drawn.
    pub(super) fn note(&mut self, colour: &'static str, word: &str) {
        let words = self.0.entry(colour).or_default();
        if !words.iter().any(|w| w == word) {
            words.push(word.to_owned());
        }
    }

    pub(super) fn render(&self, page: &Page<'_>) -> Markup {
        html! {
            ul.legend {
                @for (colour, words) in ORDER.iter().filter_map(|colour| self.0.get(colour).map(|words| (colour, words))) {
                    li { span.chip.(colour) {} (page.short(&listed(words), 240)) }
                }
            }
        }
    }
}

/// Words of one colour; what several begin with ("Waiting for") is said once.
fn listed(words: &[String]) -> String {
    const WAITING: &str = "Waiting for ";
    let (waiting, others): (Vec<&String>, Vec<&String>) = words.iter().partition(|w| w.starts_with(WAITING));
    let waiting: Vec<&str> = waiting.iter().map(|w| w.trim_start_matches(WAITING)).collect();
    let mut parts: Vec<String> = others.into_iter().cloned().collect();
    if !waiting.is_empty() {
        parts.push(format!("{WAITING}{}", waiting.join(" / ")));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use vlab_api::types::{ClusterStatus, FinalizingStage};

    use super::*;

    #[test]
    fn every_status_and_stage_has_its_colour() {
        let others: Vec<&str> =
            HostStatus::NAMES.iter().chain(ClusterStatus::NAMES).copied().filter(|s| status(s) == "k-other").collect();
        assert_eq!(
            others,
            ["resetting", "cancelled", "binding", "unbinding", "reclaiming", "reclaiming-rebooting", "cancelled"]
        );
        assert!(HostStage::NAMES.iter().all(|s| stage(s) != "k-other"));
        assert!(FinalizingStage::NAMES.iter().all(|s| stage(s) != "k-other"));
    }

    #[test]
    fn the_legend_says_waiting_once() {
        let words = ["Waiting for control plane", "Rebooting", "Waiting for bootkube"].map(str::to_owned);
        assert_eq!(listed(&words), "Rebooting, Waiting for control plane / bootkube");
        assert_eq!(listed(&words[1..2]), "Rebooting");
        assert_eq!(listed(&[]), "");
    }
}
