//! Answers about a history: which statuses a host went through, when it was first seen in one, how long a stage took.
//!
//! Several sources may have seen the same change. The best source that saw *any* state is used for states: the database
//! if it was watched, else polls. The others only confirm.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, FinalizingStage, HostRole, HostStage, HostStatus};
use vlab_model::history::{Observation, Source, What};
use vlab_model::validation::ValidationStatus;

/// A step of something that goes from state to state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<T> {
    /// The state that was entered.
    pub to: T,
    /// When.
    pub at: Timestamp,
    /// Where in the history.
    pub seq: u64,
}

/// What one host went through.
#[derive(Clone, Debug, Default)]
pub struct HostLine {
    /// Statuses in order.
    pub statuses: Vec<Step<HostStatus>>,
    /// Stages in order, each once per time it was entered.
    pub stages: Vec<Step<HostStage>>,
    /// Roles with "is the bootstrap" in order.
    pub roles: Vec<Step<(HostRole, bool)>>,
    /// Values of each validation in order; `None`: not evaluated any more.
    pub validations: BTreeMap<String, Vec<Step<Option<ValidationStatus>>>>,
    /// Cluster it was last seen in.
    pub cluster: Option<Uuid>,
}

impl HostLine {
    /// Role and "is the bootstrap" as last seen.
    pub fn role(&self) -> Option<(HostRole, bool)> {
        self.roles.last().map(|s| s.to)
    }

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
    pub statuses: Vec<Step<ClusterStatus>>,
    /// Finalizing stages in order.
    pub finalizing: Vec<Step<FinalizingStage>>,
    /// Values of each validation in order.
    pub validations: BTreeMap<String, Vec<Step<Option<ValidationStatus>>>>,
}

/// An index over a history.
#[derive(Clone, Debug)]
pub struct Timeline<'h> {
    /// The history.
    pub observations: &'h [Observation],
    /// The source that states were taken from.
    pub state_source: Source,
    /// Hosts by id.
    pub hosts: BTreeMap<Uuid, HostLine>,
    /// Clusters by id.
    pub clusters: BTreeMap<Uuid, ClusterLine>,
    /// Host ids by their name in the scenario.
    pub host_ids: BTreeMap<String, Uuid>,
    /// Names by host id.
    pub host_names: BTreeMap<Uuid, String>,
    /// Cluster ids by their name in the scenario.
    pub cluster_ids: BTreeMap<String, Uuid>,
}

impl<'h> Timeline<'h> {
    /// Reads a history once.
    pub fn new(observations: &'h [Observation]) -> Self {
        let is_state = |w: &What| matches!(w, What::HostStatus { .. } | What::ClusterStatus { .. });
        let state_source = if observations.iter().any(|o| o.source == Source::Database && is_state(&o.what)) {
            Source::Database
        } else {
            Source::Poll
        };
        let mut line = Self {
            observations,
            state_source,
            hosts: BTreeMap::new(),
            clusters: BTreeMap::new(),
            host_ids: BTreeMap::new(),
            host_names: BTreeMap::new(),
            cluster_ids: BTreeMap::new(),
        };
        for observation in observations {
            line.add(observation);
        }
        line
    }

    fn add(&mut self, observation: &Observation) {
        let (at, seq) = (observation.at(), observation.seq);
        match &observation.what {
            What::HostNamed { host, name, .. } => {
                self.host_ids.insert(name.clone(), *host);
                self.host_names.insert(*host, name.clone());
                return;
            }
            What::ClusterNamed { cluster, name, .. } => {
                self.cluster_ids.insert(name.clone(), *cluster);
                return;
            }
            _ => {}
        }
        if !observation.source.tells_states(self.state_source) {
            return;
        }
        match &observation.what {
            What::HostStatus { host, cluster, to, .. } => {
                let line = self.hosts.entry(*host).or_default();
                line.statuses.push(Step { to: *to, at, seq });
                line.cluster = *cluster;
            }
            What::HostStage { host, from, to, .. } => {
                if let Some(stage) = to
                    && from != to
                {
                    self.hosts.entry(*host).or_default().stages.push(Step { to: *stage, at, seq });
                }
            }
            What::HostRole { host, role, bootstrap } => {
                self.hosts.entry(*host).or_default().roles.push(Step { to: (*role, *bootstrap), at, seq });
            }
            What::ClusterStatus { cluster, to, .. } => {
                self.clusters.entry(*cluster).or_default().statuses.push(Step { to: *to, at, seq });
            }
            What::ClusterFinalizingStage { cluster, stage } => {
                self.clusters.entry(*cluster).or_default().finalizing.push(Step { to: *stage, at, seq });
            }
            What::Validation { subject, is_cluster, id, to, .. } => {
                let validations = if *is_cluster {
                    &mut self.clusters.entry(*subject).or_default().validations
                } else {
                    &mut self.hosts.entry(*subject).or_default().validations
                };
                validations.entry(id.clone()).or_default().push(Step { to: *to, at, seq });
            }
            _ => {}
        }
    }

    /// Are states taken from that source? Where nobody watches the database, events tell what came and went between two
    /// looks.
    pub fn tells_states(&self, source: Source) -> bool {
        source.tells_states(self.state_source)
    }

    /// When the run started: the first observation.
    pub fn start(&self) -> Option<Timestamp> {
        self.observations.first().map(|o| o.harness_time)
    }

    /// The host's name in the scenario, else its id.
    pub fn host_name(&self, host: Uuid) -> String {
        self.host_names.get(&host).cloned().unwrap_or_else(|| host.to_string())
    }

    /// The last `n` things that a host did or that were done to it, oldest first, before position `until`.
    pub fn last_things(&self, host: Uuid, n: usize, until: Option<u64>) -> Vec<String> {
        let start = self.start().unwrap_or_default();
        let mut found: Vec<String> = self
            .observations
            .iter()
            .rev()
            .filter(|o| until.is_none_or(|u| o.seq <= u))
            .filter_map(|o| {
                let text = host_thing(&o.what, host)?;
                Some(format!("+{:.3}s {text}", o.at().since(start).as_secs_f64()))
            })
            .take(n)
            .collect();
        found.reverse();
        found
    }
}

/// In words, what an observation says about a host; `None` when it is about something else.
fn host_thing(what: &What, wanted: Uuid) -> Option<String> {
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
        assert_eq!(Timeline::new(&history[..1]).state_source, Source::Poll);
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
}
