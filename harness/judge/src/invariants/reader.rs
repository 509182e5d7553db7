//! What all invariants ask of a history while it is read: hosts and clusters as they are at that place.

use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStage, HostStatus};
use vlab_history::Timeline;
use vlab_model::history::{Observation, Source, What};

use super::{INVARIANTS, Id, InvariantResult, InvariantVerdict};

/// A violation's text is kept for so many of them; the rest is counted.
pub(super) const KEPT_DETAILS: usize = 20;

/// Two things that were on their way at the same time may be seen in any order within this.
pub(super) const IN_FLIGHT: Duration = Duration::from_millis(500);

/// What is found about one invariant while a history is read.
#[derive(Clone, Debug, Default)]
struct Tally {
    checked: usize,
    violations: usize,
    details: Vec<String>,
    first_seq: Option<u64>,
}

/// When something happened, for comparing what different sources saw: the place in the history is the order in which the
/// harness learned of things, which for things seen by different sources need not be the order in which they happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at: Timestamp,
    pub(super) seq: u64,
}

impl Moment {
    /// Was `self` not after `other`? Either order saying so is enough.
    pub(super) fn not_after(self, other: Moment) -> bool {
        self.seq < other.seq || self.at <= other.at
    }
}

/// Changes of a status and the events about them.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    /// Changes that must have an event.
    pub(super) changes: usize,
    /// Changes that may have one.
    pub(super) spare: usize,
    pub(super) events: usize,
}

#[derive(Default)]
pub(super) struct HostLine {
    pub(super) id: Uuid,
    pub(super) status: Option<HostStatus>,
    pub(super) cluster: Option<usize>,
    pub(super) role: Option<HostRole>,
    pub(super) bootstrap: bool,
    pub(super) stage: Option<HostStage>,
    pub(super) cancelled_at: Option<Timestamp>,
    pub(super) installer_running: bool,
    pub(super) deleted: bool,
    /// When it got to the stages that the pivot is about, in the present installation.
    pub(super) reached: Vec<(HostStage, Moment)>,
    /// Bits of the statuses that the database held.
    pub(super) held: u32,
    pub(super) counts: Counts,
    pub(super) last_seq: u64,
}

#[derive(Default)]
pub(super) struct ClusterLine {
    pub(super) id: Uuid,
    pub(super) status: Option<ClusterStatus>,
    pub(super) members: Vec<usize>,
    pub(super) total: i64,
    /// Its percentage went back, from what: forgiven when it is as high again at once.
    pub(super) went_back: Option<(i64, i64, Moment)>,
    /// What happened inside it in the present installation: the first time of each, by host.
    pub(super) inside: Vec<(Inside, Option<usize>, Moment)>,
    /// Since when it has too few hosts.
    pub(super) too_few_since: Option<Moment>,
    pub(super) held: u32,
    pub(super) counts: Counts,
    pub(super) last_seq: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    NodeReady,
    BootkubeDone,
    EtcdBootstrapDone,
    ControllerReady,
}

/// Reads a history. Hosts and clusters have numbers, because a fleet has thousands.
pub(super) struct Reader<'h> {
    timeline: &'h Timeline<'h>,
    tallies: [Tally; 16],
    /// Instant of the last event that was read; `None` when there is none in the whole history.
    pub(super) last_event: Option<Timestamp>,
    pub(super) hosts: Vec<HostLine>,
    host_index: HashMap<Uuid, usize>,
    pub(super) clusters: Vec<ClusterLine>,
    cluster_index: HashMap<Uuid, usize>,
    pub(super) last_state: Option<Moment>,
}

impl<'h> Reader<'h> {
    /// One that knows who is who, and what held at any time. Who is in which cluster must be known before the first stage is
    /// judged: a single node has stages of its own. What the database held must be known before a poll is judged: the two are
    /// recorded one after the other.
    pub(super) fn new(timeline: &'h Timeline<'h>) -> Self {
        let events = timeline.observations.iter().filter(|o| matches!(o.what, What::Event { .. }));
        let mut reader = Self {
            timeline,
            tallies: Default::default(),
            last_event: events.map(Observation::at).max(),
            hosts: Vec::new(),
            host_index: HashMap::new(),
            clusters: Vec::new(),
            cluster_index: HashMap::new(),
            last_state: None,
        };
        for change in &timeline.changes {
            match &change.observation.what {
                What::HostStatus { host, cluster, to, .. } => {
                    let host = reader.host(*host);
                    reader.hosts[host].held |= 1 << *to as u32;
                    if let Some(cluster) = cluster {
                        let cluster = reader.cluster(*cluster);
                        // Most changes leave a host in its cluster: no need to look for it among thousands.
                        if reader.hosts[host].cluster != Some(cluster) {
                            reader.hosts[host].cluster = Some(cluster);
                            if !reader.clusters[cluster].members.contains(&host) {
                                reader.clusters[cluster].members.push(host);
                            }
                        }
                    }
                }
                What::ClusterStatus { cluster, to, .. } => {
                    let cluster = reader.cluster(*cluster);
                    reader.clusters[cluster].held |= 1 << *to as u32;
                }
                _ => {}
            }
        }
        for line in &mut reader.hosts {
            line.cluster = None;
        }
        reader
    }

    fn host(&mut self, id: Uuid) -> usize {
        *self.host_index.entry(id).or_insert_with(|| {
            self.hosts.push(HostLine { id, ..HostLine::default() });
            self.hosts.len() - 1
        })
    }

    fn cluster(&mut self, id: Uuid) -> usize {
        *self.cluster_index.entry(id).or_insert_with(|| {
            self.clusters.push(ClusterLine { id, ..ClusterLine::default() });
            self.clusters.len() - 1
        })
    }

    pub(super) fn host_name(&self, host: usize) -> String {
        self.timeline.host_name(self.hosts[host].id)
    }

    pub(super) fn cluster_name(&self, cluster: usize) -> String {
        self.timeline.cluster_name(self.clusters[cluster].id)
    }

    /// Does the history hold every change, as the database tells them, and not only what looking showed?
    pub(super) fn is_complete(&self) -> bool {
        self.timeline.truth == Source::Database
    }

    /// One check was made; it holds, or `violation` says why not.
    pub(super) fn check(&mut self, id: Id, seq: u64, holds: bool, violation: impl FnOnce(&Self) -> String) {
        self.tallies[id as usize].checked += 1;
        if holds {
            return;
        }
        let text = if self.tallies[id as usize].details.len() < KEPT_DETAILS { Some(violation(self)) } else { None };
        let tally = &mut self.tallies[id as usize];
        tally.violations += 1;
        tally.details.extend(text);
        tally.first_seq = Some(tally.first_seq.map_or(seq, |first| first.min(seq)));
    }

    /// Reads an observation; `is_change`: it is a change of a state, and not only what another source saw of one.
    pub(super) fn see(&mut self, observation: &Observation, is_change: bool) {
        let moment = Moment { at: observation.at(), seq: observation.seq };
        if is_change {
            return self.see_change(&observation.what, moment);
        }
        let shown = self.is_complete() && observation.source == Source::Poll;
        match &observation.what {
            What::HostStatus { host, to, .. } if shown => {
                let host = self.host(*host);
                self.host_shown(host, *to, moment);
            }
            What::ClusterStatus { cluster, to, .. } if shown => {
                let cluster = self.cluster(*cluster);
                self.cluster_shown(cluster, *to, moment);
            }
            // A row or an answer that nobody can understand is no state that a rule leads to.
            What::Unreadable { subject, of, error } => {
                let whose = subject.map(|id| format!(" ({})", self.timeline.directory.name(id))).unwrap_or_default();
                self.check(Id::StatusEdges, moment.seq, false, |_| {
                    format!("{of}{whose} cannot be understood: {error}")
                });
            }
            What::InCluster { cluster, host, what } => {
                let (cluster, host) = (self.cluster(*cluster), host.map(|h| self.host(h)));
                self.inside(cluster, host, what, moment);
            }
            What::HostDid { host, what } => {
                let host = self.host(*host);
                self.host_did(host, what, moment);
            }
            What::Step { host, step_type, answered: None, cached: false, .. } => {
                let host = self.host(*host);
                self.asked(host, step_type, moment);
            }
            What::Event { name, host: Some(host), .. } if name == "host_status_updated" => {
                let host = self.host(*host);
                self.hosts[host].counts.events += 1;
            }
            What::Event { name, cluster: Some(cluster), .. } if name == "cluster_status_updated" => {
                let cluster = self.cluster(*cluster);
                self.clusters[cluster].counts.events += 1;
            }
            _ => {}
        }
    }

    fn see_change(&mut self, what: &What, moment: Moment) {
        match what {
            What::HostStatus { host, cluster, from, to, .. } => {
                let (host, cluster) = (self.host(*host), cluster.map(|c| self.cluster(c)));
                self.host_edge(host, *from, *to, moment);
                self.host_belongs(host, cluster, *to, moment);
                self.host_status(host, cluster, (*from, *to), moment);
            }
            What::ClusterStatus { cluster, from, to, .. } => {
                let cluster = self.cluster(*cluster);
                self.cluster_edge(cluster, *from, *to, moment);
                self.cluster_status(cluster, (*from, *to), moment);
            }
            What::HostStage { host, from, to, .. } => {
                let host = self.host(*host);
                self.host_stage(host, *from, *to, moment);
            }
            What::HostRole { host, role, bootstrap } => {
                let host = self.host(*host);
                self.host_role(host, *role, *bootstrap, moment);
            }
            What::HostDeleted { host } => {
                let host = self.host(*host);
                let line = &mut self.hosts[host];
                (line.deleted, line.bootstrap, line.stage) = (true, false, None);
            }
            What::ClusterProgress { cluster, total } => {
                let cluster = self.cluster(*cluster);
                self.percentage(cluster, *total, moment);
            }
            _ => {}
        }
    }

    fn host_status(
        &mut self,
        host: usize,
        cluster: Option<usize>,
        (from, to): (Option<HostStatus>, HostStatus),
        moment: Moment,
    ) {
        let counts = self.count_change(self.hosts[host].counts, from.is_none(), moment);
        let line = &mut self.hosts[host];
        line.counts = counts;
        line.last_seq = moment.seq;
        line.status = Some(to);
        line.cluster = cluster;
        line.deleted = false;
        line.cancelled_at = (to == HostStatus::Cancelled).then_some(moment.at);
        if matches!(to, HostStatus::Discovering | HostStatus::ResettingPendingUserAction | HostStatus::Known) {
            // Registered again, reset, or taken back before its installation: the next installation begins anew.
            line.reached.clear();
        }
        self.last_state = Some(moment);
        if let Some(cluster) = cluster {
            self.too_few(cluster, moment);
        }
    }

    fn cluster_status(&mut self, cluster: usize, (from, to): (Option<ClusterStatus>, ClusterStatus), moment: Moment) {
        // A cluster that takes more hosts is told by its kind, not by an event.
        if to != ClusterStatus::AddingHosts {
            self.clusters[cluster].counts = self.count_change(self.clusters[cluster].counts, from.is_none(), moment);
        }
        let line = &mut self.clusters[cluster];
        line.last_seq = moment.seq;
        line.status = Some(to);
        self.last_state = Some(moment);
        match to {
            ClusterStatus::PreparingForInstallation => {
                // A new installation: what happened in the last one says nothing about it.
                self.pivot(cluster);
                self.clusters[cluster].total = 0;
                self.clusters[cluster].inside.clear();
                for member in self.clusters[cluster].members.clone() {
                    self.hosts[member].reached.clear();
                }
            }
            ClusterStatus::Insufficient | ClusterStatus::Ready => self.clusters[cluster].total = 0,
            ClusterStatus::Installed => self.all_installed(cluster, moment),
            _ => {}
        }
        self.one_bootstrap(cluster, moment);
        self.too_few(cluster, moment);
    }

    /// Judges what only the end shows, and gives the results in the order of [`INVARIANTS`].
    pub(super) fn finish(mut self) -> Vec<InvariantResult> {
        for cluster in 0..self.clusters.len() {
            self.pivot(cluster);
            self.percentage_went_back(cluster);
            self.too_few_to_the_end(cluster);
        }
        self.one_event_each();
        let reasons = self.reasons();
        let results = INVARIANTS.iter().zip(self.tallies).zip(reasons);
        results
            .map(|((invariant, tally), reason)| {
                let verdict = match tally.first_seq {
                    Some(first_seq) => {
                        let mut details = tally.details;
                        if tally.violations > details.len() {
                            details.push(format!("and {} more", tally.violations - details.len()));
                        }
                        InvariantVerdict::Violated { details, first_seq }
                    }
                    None if tally.checked > 0 => InvariantVerdict::Held,
                    None => InvariantVerdict::NotApplicable { reason },
                };
                InvariantResult { id: invariant.id, title: invariant.title, verdict, checked: tally.checked }
            })
            .collect()
    }

    /// Why each invariant is not applicable, if it is not.
    fn reasons(&self) -> [String; 16] {
        let mut reasons: [String; 16] =
            std::array::from_fn(|i| format!("the history does not show {}", INVARIANTS[i].needs));
        if !self.is_complete() {
            reasons[Id::OneEventEach as usize] = "states were polled, so changes may have been missed".to_owned();
        }
        reasons[Id::SilenceDisconnects as usize] =
            "a history does not say when hosts asked for instructions".to_owned();
        reasons[Id::ValidationsAgree as usize] =
            "a history does not hold the inventories that the service accepted".to_owned();
        reasons[Id::OneServiceDecides as usize] =
            "a history does not say which of several services made a change".to_owned();
        reasons
    }
}
