//! States of a service whose database is not ours: what looking shows, and what events tell of the time between two looks.
//!
//! A look sees the state of that moment only. Each change of a status or stage is an event, too, so that the events that are read
//! after a look tell the way there. [`Merged`] puts the two together, for one thing that has states: every change once, in its
//! order, from the event when there is one and from the look when there is none (a host's first status has no event).
//!
//! The real service writes an event some milliseconds after the change. What a look showed therefore waits for one more
//! round of events before it is believed by itself.

use std::sync::LazyLock;

use regex::Regex;
use vlab_api::types::{ClusterStatus, FinalizingStage, HostStage, HostStatus};
use vlab_model::history::Source;

/// Rounds of events that a look waits for.
const PATIENCE: u8 = 1;

/// A change, and who told of it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedChange<S> {
    /// Before; `None`: not known, or the first.
    pub from: Option<S>,
    /// The state that was entered.
    pub to: S,
    /// [`Source::Events`] or [`Source::Poll`].
    pub source: Source,
}

/// The states of one thing.
#[derive(Clone, Debug)]
pub struct Merged<S> {
    now: Option<S>,
    /// What looks showed and nobody has told of yet, with the rounds that it has waited.
    looked: Vec<(S, u8)>,
    /// What events told since the last round's end.
    told: Vec<S>,
    /// What looks told because no event did: one that comes late says nothing new.
    unconfirmed: Vec<S>,
}

impl<S> Default for Merged<S> {
    fn default() -> Self {
        Self { now: None, looked: Vec::new(), told: Vec::new(), unconfirmed: Vec::new() }
    }
}

impl<S: Copy + PartialEq> Merged<S> {
    /// One that begins in a state that nobody tells of.
    pub fn beginning(state: S) -> Self {
        Self { now: Some(state), ..Self::default() }
    }

    /// The last state that was told.
    pub fn now(&self) -> Option<S> {
        self.now
    }

    /// A look shows this state.
    pub fn look(&mut self, state: S) {
        if self.looked.last().map(|(last, _)| *last).or(self.now) != Some(state) {
            self.looked.push((state, 0));
        }
    }

    /// An event tells of a change. `from` where it names it. Gives what is new.
    pub fn event(&mut self, from: Option<S>, to: S) -> Vec<MergedChange<S>> {
        if let Some(at) = self.unconfirmed.iter().position(|s| *s == to) {
            // ToldByEvent already by a look; so is what should have been told before it.
            self.unconfirmed.drain(..=at);
            return Vec::new();
        }
        if !self.unconfirmed.is_empty() && from.is_some_and(|from| self.now != Some(from)) {
            // It comes so late that a look has told already of what came after it.
            return Vec::new();
        }
        self.unconfirmed.clear();
        let mut changes = Vec::new();
        if self.now.is_none() {
            // Where it began: the event says it, or the first look, which came before.
            match from {
                Some(first) => changes.push(self.go(first, Source::Events)),
                None if self.looked.first().is_some_and(|(first, _)| *first != to) => {
                    let (first, _) = self.looked.remove(0);
                    changes.push(self.go(first, Source::Poll));
                }
                None => {}
            }
        }
        if self.now != Some(to) {
            changes.push(self.go(to, Source::Events));
        }
        self.told.push(to);
        changes
    }

    /// All events up to now were read. Gives what only looks have shown; `last`: there is no next round to wait for.
    pub fn round(&mut self, last: bool) -> Vec<MergedChange<S>> {
        let told = std::mem::take(&mut self.told);
        let mut changes = Vec::new();
        let mut waiting = std::mem::take(&mut self.looked).into_iter();
        while let Some((state, waited)) = waiting.next() {
            if self.now == Some(state) || told.contains(&state) {
                continue;
            }
            if !last && waited < PATIENCE {
                // Those behind it wait with it, or their order would be lost.
                self.looked = std::iter::once((state, waited + 1)).chain(waiting).collect();
                return changes;
            }
            changes.push(self.go(state, Source::Poll));
            self.unconfirmed.push(state);
        }
        changes
    }

    fn go(&mut self, to: S, source: Source) -> MergedChange<S> {
        MergedChange { from: self.now.replace(to), to, source }
    }
}

/// What the text of an event says about states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToldByEvent {
    /// Of a host's status, with the service's words.
    HostStatus(HostStatus, HostStatus, String),
    /// Of a host's stage, with the text about it.
    HostStage(HostStage, String),
    /// Of a cluster's status.
    ClusterStatus(ClusterStatus),
    /// Of the stage of a cluster's finalizing.
    Finalizing(FinalizingStage),
}

static HOST_STATUS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?s)updated status from (\S+) to (\S+)(.*)$").ok());
static HOST_STAGE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?s)reached installation stage ([^:]+)(?::(.*))?$").ok());
static CLUSTER_STATUS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^Updated status of the cluster to (\S+)").ok());
static FINALIZING: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^Updated finalizing stage of the cluster to '([^']+)'").ok());

/// Reads an event; `None` when it says nothing about a state, or in words that are not known.
pub fn told(name: &str, message: &str) -> Option<ToldByEvent> {
    let read = |pattern: &LazyLock<Option<Regex>>| {
        let found = pattern.as_ref()?.captures(message)?;
        let part = |n: usize| found.get(n).map_or("", |m| m.as_str().trim()).to_owned();
        Some([part(1), part(2), part(3)])
    };
    match name {
        "host_status_updated" => {
            let [from, to, info] = read(&HOST_STATUS)?;
            let info = info.strip_prefix('(').and_then(|i| i.strip_suffix(')')).map_or(info.clone(), str::to_owned);
            Some(ToldByEvent::HostStatus(from.parse().ok()?, to.parse().ok()?, info))
        }
        "host_install_progress_updated" => {
            let [stage, info, _] = read(&HOST_STAGE)?;
            Some(ToldByEvent::HostStage(stage.parse().ok()?, info))
        }
        "cluster_status_updated" => Some(ToldByEvent::ClusterStatus(read(&CLUSTER_STATUS)?[0].parse().ok()?)),
        "cluster_finalizing_stage_updated" => Some(ToldByEvent::Finalizing(read(&FINALIZING)?[0].parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// Feeds a merger: `l` a look, `e` an event with the state before, `c` one without, `.` the end of a round, `!` the last.
    fn merged(script: &str) -> String {
        let mut merged: Merged<char> = Merged::default();
        let mut out = Vec::new();
        for word in script.split_whitespace() {
            let mut letters = word.chars();
            let (kind, a, b) = (letters.next().unwrap(), letters.next(), letters.next());
            let changes = match (kind, a, b) {
                ('l', Some(state), _) => {
                    merged.look(state);
                    vec![]
                }
                ('e', Some(from), Some(to)) => merged.event(Some(from), to),
                ('c', Some(to), _) => merged.event(None, to),
                ('.', ..) => merged.round(false),
                _ => merged.round(true),
            };
            out.extend(changes.into_iter().map(|c| {
                let source = if c.source == Source::Events { 'e' } else { 'p' };
                format!("{source}{}{}", c.from.unwrap_or('-'), c.to)
            }));
        }
        out.join(" ")
    }

    #[rstest]
    #[case::a_state_between_two_looks("lA . . lC eAB eBC .", "p-A eAB eBC")]
    #[case::the_first_status_has_no_event("lA . .", "p-A")]
    #[case::the_first_look_comes_late("lC eAB eBC .", "e-A eAB eBC")]
    #[case::events_are_ahead_of_the_look("lA . . lB eAB eBC . lC .", "p-A eAB eBC")]
    #[case::the_event_comes_a_round_later("lA . . lB . eAB .", "p-A eAB")]
    #[case::no_event_comes("lA . . lB . .", "p-A pAB")]
    #[case::no_event_comes_until_the_end("lA lB !", "p-A pAB")]
    #[case::it_comes_later_still("lA . . lB . . eAB . eBC lC .", "p-A pAB eBC")]
    #[case::late_events_of_two_steps("lA . . lC . . eAB . eBC . eCD", "p-A pAC eCD")]
    #[case::clusters_name_no_state_before("lA cB cC lC .", "p-A eAB eBC")]
    #[case::there_and_back("lA . . eAB eBA lA .", "p-A eAB eBA")]
    #[case::the_same_event_again("lA . . eAB eAB .", "p-A eAB")]
    #[case::two_looks_wait_together("lA . . lB lC . eAB eBC .", "p-A eAB eBC")]
    fn looks_and_events_make_one_line(#[case] script: &str, #[case] expected: &str) {
        assert_eq!(merged(script), expected);
    }

    proptest! {
        /// Whatever is looked at, and however late events are within their round: each change once, in order.
        #[test]
        fn complete_events_give_the_whole_line(
            path in prop::collection::vec(0u8..6, 2..20),
            cuts in prop::collection::vec(any::<bool>(), 20),
            late in any::<bool>(),
        ) {
            let mut path = path;
            path.dedup();
            let mut merged: Merged<u8> = Merged::default();
            let mut line = Vec::new();
            let mut held: Vec<(u8, u8)> = Vec::new();
            for (n, pair) in path.windows(2).enumerate() {
                held.push((pair[0], pair[1]));
                if cuts[n] {
                    merged.look(pair[1]);
                    // The last event of the round is not there yet.
                    let keep = usize::from(late && held.len() > 1);
                    for (from, to) in held.drain(..held.len() - keep) {
                        line.extend(merged.event(Some(from), to));
                    }
                    line.extend(merged.round(false));
                }
            }
            for (from, to) in held {
                line.extend(merged.event(Some(from), to));
            }
            line.extend(merged.round(true));
            let told: Vec<u8> = line.iter().map(|c| c.to).collect();
            if path.len() > 1 {
                prop_assert_eq!(told, path);
            }
            prop_assert!(line.windows(2).all(|w| w[1].from == Some(w[0].to)));
        }
    }

    #[rstest]
    #[case("host_status_updated", "Host m: updated status from known to installing (Going on)", Some(ToldByEvent::HostStatus(HostStatus::Known, HostStatus::Installing, "Going on".into())))]
    #[case("host_status_updated", "Host m: updated status from known to insufficient (a (b)\nc)", Some(ToldByEvent::HostStatus(HostStatus::Known, HostStatus::Insufficient, "a (b)\nc".into())))]
    #[case("host_status_updated", "Host m: updated status from known to nowhere (x)", None)]
    #[case("host_install_progress_updated", "Host: m, reached installation stage Writing image to disk: 42%", Some(ToldByEvent::HostStage(HostStage::WritingImageToDisk, "42%".into())))]
    #[case(
        "host_install_progress_updated",
        "Host: m, reached installation stage Rebooting",
        Some(ToldByEvent::HostStage(HostStage::Rebooting, String::new()))
    )]
    #[case(
        "cluster_status_updated",
        "Updated status of the cluster to ready",
        Some(ToldByEvent::ClusterStatus(ClusterStatus::Ready))
    )]
    #[case(
        "cluster_status_updated",
        "Updated status of the cluster to ready (all is well)",
        Some(ToldByEvent::ClusterStatus(ClusterStatus::Ready))
    )]
    #[case(
        "cluster_finalizing_stage_updated",
        "Updated finalizing stage of the cluster to 'Adding router ca'",
        Some(ToldByEvent::Finalizing(FinalizingStage::AddingRouterCa))
    )]
    #[case("host_bootstrap_set", "Host m: set as bootstrap", None)]
    fn events_tell_states(#[case] name: &str, #[case] message: &str, #[case] expected: Option<ToldByEvent>) {
        assert_eq!(told(name, message), expected);
    }
}
