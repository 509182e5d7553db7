//! The tables of the state machines: what happened is what a rule does, and what a rule does happened.

use vlab_history::Timeline;
use vlab_history::rules::explained;
use vlab_model::history::{Source, What};

use super::reader::KEPT_DETAILS;
use super::{Invariant, InvariantResult, InvariantVerdict};

/// The invariant.
pub(super) const EXPLAINED: Invariant = Invariant {
    id: "explained-by-rules",
    number: "I16",
    title: "every status and what is said of it is explained by a rule that could fire, and every rule that must fire does",
    needs: "a history of the built-in service in virtual time, with its settings, of at most 100 hosts",
};

/// With more hosts a history says nothing new about rules, and takes long to compare with them.
const UP_TO_HOSTS: usize = 100;

/// Compares the history with the tables, where its service is the built-in one and its settings are known.
pub(super) fn explained_by_rules(timeline: &Timeline<'_>) -> InvariantResult {
    let result = |verdict, checked| InvariantResult { id: EXPLAINED.id, title: EXPLAINED.title, verdict, checked };
    let settings = timeline.observations.iter().find_map(|o| match &o.what {
        // On a clock on the wall a round of a monitor may be late, and nobody knows by how much.
        What::RunStarted(info) => info.settings.as_deref().filter(|_| info.virtual_time),
        _ => None,
    });
    let settings = settings.filter(|_| timeline.truth == Source::Database && timeline.hosts.len() <= UP_TO_HOSTS);
    let found = settings.map(|settings| explained(timeline, settings)).unwrap_or_default();
    if found.checked == 0 {
        let reason = format!("the history does not show {}", EXPLAINED.needs);
        return result(InvariantVerdict::NotApplicable { reason }, 0);
    }
    let Some(first_seq) = found.problems.iter().map(|(seq, ..)| *seq).min() else {
        return result(InvariantVerdict::Held, found.checked);
    };
    let name = |id| match timeline.hosts.contains_key(&id) {
        true => format!("host {}", timeline.host_name(id)),
        false => format!("cluster {}", timeline.cluster_name(id)),
    };
    let kept = found.problems.iter().take(KEPT_DETAILS);
    let mut details: Vec<String> = kept.map(|(_, id, problem)| format!("{}: {problem}", name(*id))).collect();
    if found.problems.len() > details.len() {
        details.push(format!("and {} more", found.problems.len() - details.len()));
    }
    result(InvariantVerdict::Violated { details, first_seq }, found.checked)
}
