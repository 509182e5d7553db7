//! The one projection of a history: who is who, what each host and cluster went through, and every change of a state once.
//!
//! Several sources may have seen the same change. [`truth`] says which of them is believed; the others only confirm. Verdicts,
//! invariants, coverage, comparison and the report's page read the changes from here and nowhere else, so that they cannot
//! disagree about what happened.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, FinalizingStage, HostRole, HostStage, HostStatus};
use vlab_model::history::{Observation, RunInfo, Source, What};
use vlab_model::validation::ValidationStatus;

use crate::directory::Directory;

/// The source from which states are taken. The run's information says it where it is not the database; histories of before
/// that have none of the database's states where nobody watched it.
pub fn truth(history: &[Observation]) -> Source {
    let told = history.iter().find_map(|o| match &o.what {
        What::RunStarted(info) => info.states_from,
        _ => None,
    });
    let is_state = |what: &What| matches!(what, What::HostStatus { .. } | What::ClusterStatus { .. });
    let watched = || history.iter().any(|o| o.source == Source::Database && is_state(&o.what));
    told.unwrap_or_else(|| if watched() { Source::Database } else { Source::Poll })
}

/// Who has seen a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources(u8);

impl Sources {
    fn only(source: Source) -> Self {
        Self(1 << source as u8)
    }

    fn add(&mut self, source: Source) {
        self.0 |= 1 << source as u8;
    }

    /// Is that source one of them?
    pub fn contains(self, source: Source) -> bool {
        self.0 & (1 << source as u8) != 0
    }
}

impl std::fmt::Display for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [
            (Source::Database, "database"),
            (Source::Events, "events"),
            (Source::Poll, "poll"),
            (Source::Harness, "harness"),
            (Source::Hosts, "hosts"),
            (Source::Console, "console"),
        ];
        let names: Vec<&str> = names.iter().filter(|(s, _)| self.contains(*s)).map(|(_, name)| *name).collect();
        f.pad(&names.join(" "))
    }
}

/// A host or a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostOrCluster {
    /// A host.
    Host(Uuid),
    /// A cluster.
    Cluster(Uuid),
}

impl HostOrCluster {
    /// Whose state an observation tells; `None` where it tells none.
    pub fn of(what: &What) -> Option<Self> {
        match what {
            What::HostStatus { host, .. }
            | What::HostStage { host, .. }
            | What::HostRole { host, .. }
            | What::HostDeleted { host }
            | What::HostLogs { host, .. } => Some(HostOrCluster::Host(*host)),
            What::ClusterStatus { cluster, .. }
            | What::ClusterProgress { cluster, .. }
            | What::ClusterFinalizingStage { cluster, .. }
            | What::Operator { cluster, .. }
            | What::ClusterLogs { cluster, .. } => Some(HostOrCluster::Cluster(*cluster)),
            What::StatusInfo { subject, is_cluster: true, .. } | What::Member { subject, is_cluster: true, .. } => {
                Some(HostOrCluster::Cluster(*subject))
            }
            What::StatusInfo { subject, is_cluster: false, .. } | What::Member { subject, is_cluster: false, .. } => {
                Some(HostOrCluster::Host(*subject))
            }
            What::Validation { subject, is_cluster: true, .. } => Some(HostOrCluster::Cluster(*subject)),
            What::Validation { subject, is_cluster: false, .. } => Some(HostOrCluster::Host(*subject)),
            _ => None,
        }
    }
}

/// A change of a state, told by the source that is believed.
#[derive(Clone, Copy, Debug)]
pub struct Change<'h> {
    /// The host or cluster that changed.
    pub subject: HostOrCluster,
    /// The observation that tells the change.
    pub observation: &'h Observation,
    /// Who has seen it: the one that is believed, and those that confirm it.
    pub sources: Sources,
}

/// A change of a status or a stage in a form in which what other sources saw can be found again.
type Key = (HostOrCluster, &'static str, &'static str, &'static str);

fn key(subject: HostOrCluster, what: &What) -> Option<Key> {
    Some(match what {
        What::HostStatus { from, to, .. } => (subject, "status", from.map_or("", HostStatus::as_str), to.as_str()),
        What::ClusterStatus { from, to, .. } => {
            (subject, "status", from.map_or("", ClusterStatus::as_str), to.as_str())
        }
        What::HostStage { from, to, .. } if from != to => {
            (subject, "stage", from.map_or("", HostStage::as_str), to.map_or("", HostStage::as_str))
        }
        What::ClusterFinalizingStage { stage, .. } => (subject, "stage", "", stage.as_str()),
        _ => return None,
    })
}

/// A step of something that goes from state to state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange<T> {
    /// The state that was entered.
    pub to: T,
    /// When it was entered, by the clock of whoever told it.
    pub at: Timestamp,
    /// Where in the history.
    pub seq: u64,
}

/// What one host went through.
#[derive(Clone, Debug, Default)]
pub struct HostLine {
    /// Statuses in order.
    pub statuses: Vec<StateChange<HostStatus>>,
    /// Stages in order, each once per time it was entered.
    pub stages: Vec<StateChange<HostStage>>,
    /// Roles with "is the bootstrap" in order.
    pub roles: Vec<StateChange<(HostRole, bool)>>,
    /// Values of each validation in order; `None`: not evaluated any more.
    pub validations: BTreeMap<String, Vec<StateChange<Option<ValidationStatus>>>>,
}

impl HostLine {
    /// When a stage was entered first and how long it lasted (until the next stage or, for the last one, the host's next
    /// status). `None` for the duration when nothing came after it.
    pub fn stage_duration(&self, stage: HostStage) -> Option<(Timestamp, Option<Duration>)> {
        let at = self.stages.iter().position(|s| s.to == stage)?;
        let start = self.stages[at].at;
        let end =
            self.stages.get(at + 1).map(|s| s.at).or_else(|| self.statuses.iter().find(|s| s.at > start).map(|s| s.at));
        Some((start, end.map(|e| e.since(start))))
    }
}

/// What one cluster went through.
#[derive(Clone, Debug, Default)]
pub struct ClusterLine {
    /// Statuses in order.
    pub statuses: Vec<StateChange<ClusterStatus>>,
    /// Finalizing stages in order.
    pub finalizing: Vec<StateChange<FinalizingStage>>,
    /// Values of each validation in order.
    pub validations: BTreeMap<String, Vec<StateChange<Option<ValidationStatus>>>>,
    /// Its VIPs are leased by DHCP.
    pub vip_dhcp: bool,
}

/// An index over a history.
#[derive(Clone, Debug)]
pub struct Timeline<'h> {
    /// The history.
    pub observations: &'h [Observation],
    /// What the run was, when the history has its beginning.
    pub run: Option<&'h RunInfo>,
    /// The source that states are taken from.
    pub truth: Source,
    /// Every change of a state once, in the order of the history.
    pub changes: Vec<Change<'h>>,
    /// Hosts by id.
    pub hosts: BTreeMap<Uuid, HostLine>,
    /// Clusters by id.
    pub clusters: BTreeMap<Uuid, ClusterLine>,
    /// Who is who at the end of the history.
    pub directory: Directory,
    /// Changes that another source may still confirm.
    unconfirmed: BTreeMap<Key, Vec<usize>>,
}

/// Until when a run was watched: up to its last look. From then on the lab is taken down, which takes a busy computer a while, and
/// nobody does anything any more.
pub fn watched_until(observations: &[Observation]) -> Timestamp {
    let look = observations.iter().rev().find(|o| matches!(o.what, What::LastLook {}));
    look.or(observations.last()).map(|o| o.harness_time).unwrap_or_default()
}

impl<'h> Timeline<'h> {
    /// Reads a history once.
    pub fn new(observations: &'h [Observation]) -> Self {
        let truth = truth(observations);
        let mut timeline = Self {
            observations,
            run: None,
            truth,
            changes: Vec::new(),
            hosts: BTreeMap::new(),
            clusters: BTreeMap::new(),
            directory: Directory::new(truth),
            unconfirmed: BTreeMap::new(),
        };
        for observation in observations {
            timeline.directory.observe(observation);
            match &observation.what {
                What::RunStarted(info) => timeline.run = timeline.run.or(Some(info)),
                What::ClusterNamed { cluster, vip_dhcp: true, .. } => {
                    timeline.clusters.entry(*cluster).or_default().vip_dhcp = true;
                }
                what => {
                    if let Some(subject) = HostOrCluster::of(what) {
                        timeline.take(subject, observation);
                    }
                }
            }
        }
        timeline
    }

    /// A state was told: something new, or something that is known.
    fn take(&mut self, subject: HostOrCluster, observation: &'h Observation) {
        let source = observation.source;
        let key = key(subject, &observation.what);
        if !source.tells_states(self.truth) || self.is_known(&observation.what) {
            let seen = key.and_then(|key| self.unconfirmed.get(&key)).into_iter().flatten();
            if let Some(index) = seen.copied().find(|i| !self.changes[*i].sources.contains(source)) {
                self.changes[index].sources.add(source);
            }
            return;
        }
        if let Some(key) = key {
            self.unconfirmed.entry(key).or_default().push(self.changes.len());
        }
        self.changes.push(Change { subject, observation, sources: Sources::only(source) });
        self.apply(observation);
    }

    /// Looks and events both tell states where nobody watches the database: the second to tell one says nothing new.
    fn is_known(&self, what: &What) -> bool {
        self.truth != Source::Database
            && match what {
                What::HostStatus { host, to, .. } => {
                    self.hosts.get(host).and_then(|line| line.statuses.last()).is_some_and(|last| last.to == *to)
                }
                What::ClusterStatus { cluster, to, .. } => {
                    self.clusters.get(cluster).and_then(|line| line.statuses.last()).is_some_and(|last| last.to == *to)
                }
                _ => false,
            }
    }

    fn apply(&mut self, observation: &Observation) {
        let (at, seq) = (observation.at(), observation.seq);
        match &observation.what {
            What::HostStatus { host, to, .. } => {
                self.hosts.entry(*host).or_default().statuses.push(StateChange { to: *to, at, seq });
            }
            What::HostStage { host, from, to: Some(stage), .. } if *from != Some(*stage) => {
                self.hosts.entry(*host).or_default().stages.push(StateChange { to: *stage, at, seq });
            }
            What::HostRole { host, role, bootstrap } => {
                self.hosts.entry(*host).or_default().roles.push(StateChange { to: (*role, *bootstrap), at, seq });
            }
            What::ClusterStatus { cluster, to, .. } => {
                self.clusters.entry(*cluster).or_default().statuses.push(StateChange { to: *to, at, seq });
            }
            What::ClusterFinalizingStage { cluster, stage } => {
                self.clusters.entry(*cluster).or_default().finalizing.push(StateChange { to: *stage, at, seq });
            }
            What::Validation { subject, is_cluster, id, to, .. } => {
                let validations = if *is_cluster {
                    &mut self.clusters.entry(*subject).or_default().validations
                } else {
                    &mut self.hosts.entry(*subject).or_default().validations
                };
                let change = StateChange { to: *to, at, seq };
                match validations.get_mut(id) {
                    Some(line) => line.push(change),
                    None => {
                        validations.insert(id.clone(), vec![change]);
                    }
                }
            }
            _ => {}
        }
    }

    /// All observations in order, each with the change that it is, if it is one.
    pub fn walk(&self) -> impl Iterator<Item = (&'h Observation, Option<Change<'h>>)> + '_ {
        let mut changes = self.changes.iter().peekable();
        let change = move |o: &Observation| changes.next_if(|c| std::ptr::eq(c.observation, o)).copied();
        self.observations.iter().scan(change, |change, o| Some((o, change(o))))
    }

    /// When the run started: the first observation.
    pub fn start(&self) -> Option<Timestamp> {
        self.observations.first().map(|o| o.harness_time)
    }

    /// The host's name in the scenario, else its id.
    pub fn host_name(&self, host: Uuid) -> String {
        self.directory.host_names.get(&host).cloned().unwrap_or_else(|| host.to_string())
    }

    /// The cluster's name in the scenario, else its id.
    pub fn cluster_name(&self, cluster: Uuid) -> String {
        self.directory.cluster_names.get(&cluster).cloned().unwrap_or_else(|| cluster.to_string())
    }

    /// The last `n` things that a host did or that were done to it, oldest first, up to position `until` of the history. They are
    /// in the order of the times that are shown: the history is in the order in which the harness learned of them.
    pub fn last_things(&self, host: Uuid, n: usize, until: Option<u64>) -> Vec<String> {
        let start = self.start().unwrap_or_default();
        let mut found: Vec<(Timestamp, String)> = self
            .observations
            .iter()
            .filter(|o| until.is_none_or(|u| o.seq <= u))
            .filter_map(|o| Some((o.at(), host_thing(&o.what, host)?)))
            .collect();
        found.sort_by_key(|(at, _)| *at);
        let last = found.split_off(found.len().saturating_sub(n));
        last.into_iter().map(|(at, text)| format!("+{:.3}s {text}", at.since(start).as_secs_f64())).collect()
    }
}

/// In words, what an observation says about a host; `None` when it is about something else.
pub fn host_thing(what: &What, wanted: Uuid) -> Option<String> {
    let (host, text) = match what {
        What::HostStatus { host, from, to, info, .. } => (
            host,
            match from {
                Some(from) => format!("status {from} → {to} ({info})"),
                None => format!("status {to} ({info})"),
            },
        ),
        What::HostStage { host, to: Some(stage), info, .. } => {
            (host, if info.is_empty() { format!("stage {stage}") } else { format!("stage {stage}: {info}") })
        }
        What::HostRole { host, role, bootstrap } => {
            (host, format!("role {role}{}", if *bootstrap { ", bootstrap" } else { "" }))
        }
        What::HostDeleted { host } => (host, "removed from the service".to_owned()),
        What::Validation { subject, is_cluster: false, id, to: Some(to), message, .. }
            if *to != ValidationStatus::Success =>
        {
            (subject, format!("validation {id}: {} ({message})", serde_word(to)))
        }
        What::Event { host: Some(host), name, message, .. } => (host, format!("event {name}: {message}")),
        What::Step { host, step_type, answered: None, .. } => (host, format!("was asked for {step_type}")),
        What::Step { host, step_type, answered: Some(code), cached, .. } => (
            host,
            format!(
                "answered {step_type} with exit code {code}{}",
                if *cached { " (same as before, not sent)" } else { "" }
            ),
        ),
        What::HostDid { host, what } => (host, what.to_string()),
        What::InCluster { host: Some(host), what, .. } => (host, format!("in the cluster: {what}")),
        _ => return None,
    };
    (*host == wanted).then_some(text)
}

fn serde_word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use vlab_model::history::HostMoment;

    use super::*;
    use crate::Recorder;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1000)
    }

    fn status(host: Uuid, from: Option<HostStatus>, to: HostStatus) -> What {
        What::HostStatus { host, cluster: None, from, to, info: "why".into() }
    }

    fn stage(host: Uuid, from: Option<HostStage>, to: HostStage, info: &str) -> What {
        What::HostStage { host, from, to: Some(to), info: info.into(), percentage: 0 }
    }

    #[test]
    fn the_database_is_believed_before_polls() {
        let host = Uuid::from_u128(1);
        let mut r = Recorder::new(None);
        r.record(Source::Poll, None, at(1), status(host, None, HostStatus::Known));
        r.record(Source::Database, Some(at(0)), at(2), status(host, None, HostStatus::Discovering));
        r.record(Source::Database, Some(at(3)), at(4), status(host, Some(HostStatus::Discovering), HostStatus::Known));
        let history = r.into_observations();
        let line = Timeline::new(&history);
        let seen: Vec<_> = line.hosts[&host].statuses.iter().map(|s| s.to).collect();
        assert_eq!(seen, [HostStatus::Discovering, HostStatus::Known]);
        assert_eq!(line.truth, Source::Database);
        assert_eq!(Timeline::new(&history[..1]).truth, Source::Poll);
    }

    #[test]
    fn a_stage_lasts_until_the_next_one_and_progress_texts_do_not_end_it() {
        let host = Uuid::from_u128(1);
        let mut r = Recorder::new(None);
        r.record(Source::Database, None, at(0), status(host, None, HostStatus::InstallingInProgress));
        r.record(Source::Database, None, at(10), stage(host, None, HostStage::WritingImageToDisk, ""));
        r.record(
            Source::Database,
            None,
            at(20),
            stage(host, Some(HostStage::WritingImageToDisk), HostStage::WritingImageToDisk, "5%"),
        );
        r.record(
            Source::Database,
            None,
            at(40),
            stage(host, Some(HostStage::WritingImageToDisk), HostStage::Rebooting, ""),
        );
        let history = r.into_observations();
        let line = Timeline::new(&history);
        let host_line = &line.hosts[&host];
        assert_eq!(
            host_line.stage_duration(HostStage::WritingImageToDisk),
            Some((at(10), Some(Duration::from_millis(30))))
        );
        assert_eq!(host_line.stage_duration(HostStage::Rebooting), Some((at(40), None)));
        assert_eq!(host_line.stage_duration(HostStage::Done), None);
    }

    #[test]
    fn the_last_things_of_a_host_are_in_order_and_only_its_own() {
        let (host, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut r = Recorder::new(None);
        for n in 0..20 {
            r.record(Source::Hosts, None, at(n), What::HostDid { host, what: HostMoment::Other(format!("thing {n}")) });
            r.record(Source::Hosts, None, at(n), What::HostDid { host: other, what: HostMoment::Registered });
        }
        let history = r.into_observations();
        let things = Timeline::new(&history).last_things(host, 10, None);
        assert_eq!(things.len(), 10);
        assert_eq!(things[0], "+0.010s thing 10");
        assert_eq!(things[9], "+0.019s thing 19");
    }
    /// The service's clock is its own: what it told late is shown where it happened.
    #[test]
    fn the_last_things_of_a_host_are_in_the_order_of_their_times() {
        let host = Uuid::from_u128(1);
        let mut r = Recorder::new(None);
        r.record(Source::Hosts, None, at(30), What::HostDid { host, what: HostMoment::Registered });
        r.record(Source::Hosts, None, at(40), What::HostDid { host, what: HostMoment::Rebooting });
        r.record(Source::Database, Some(at(35)), at(50), status(host, None, HostStatus::Discovering));
        let history = r.into_observations();
        let timeline = Timeline::new(&history);
        let (all, two) = (timeline.last_things(host, 10, None), timeline.last_things(host, 2, None));
        assert_eq!(all, ["+0.000s registered", "+0.005s status discovering (why)", "+0.010s rebooting"]);
        assert_eq!(two, all[1..]);
        assert_eq!(timeline.last_things(host, 10, Some(1)).len(), 2, "what was learned later was not known then");
    }
}
