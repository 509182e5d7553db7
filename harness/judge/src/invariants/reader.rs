//! What all invariants ask of a history while it is read: hosts and clusters as they are at that place.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStage, HostStatus, LogsState, OperatorStatus, OperatorType};
use vlab_history::{Timeline, watched_until};
use vlab_model::history::{ActionKind, FaultPhase, Observation, Source, UserVerb, What};

use super::completion::Ends;
use super::events::{self, Ledger};
use super::limits::Limits;
use super::told::{LateAnswers, one_between, outages};
use super::{INVARIANTS, Id, InvariantResult, InvariantVerdict};

/// A violation's text is kept for so many of them; the rest is counted.
pub(super) const KEPT_DETAILS: usize = 20;

/// How many invariants there are.
const COUNT: usize = INVARIANTS.len();

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

/// Something that must not be so, and may yet have been on its way to be made good.
pub(super) struct Suspect {
    id: Id,
    since: Moment,
    text: String,
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
    /// When it was last asked for something, and when before that.
    pub(super) asked_at: Option<Timestamp>,
    pub(super) asked_before: Option<Timestamp>,
    pub(super) installer_running: bool,
    pub(super) deleted: bool,
    /// When it got to the stages that the pivot is about, in the present installation.
    pub(super) reached: Vec<(HostStage, Moment)>,
    pub(super) ledger: Ledger,
    /// What the service knows about its logs.
    pub(super) logs: Option<LogsState>,
    /// Since when it has failed or is cancelled.
    pub(super) ended: Option<Moment>,
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
    /// The database held a status of it.
    pub(super) seen: bool,
    pub(super) ledger: Ledger,
    pub(super) suspects: Vec<Suspect>,
    /// Its monitored operators, as the database has them.
    pub(super) operators: Vec<(String, Option<OperatorType>, Option<OperatorStatus>)>,
    /// Hosts came or left since its percentage was told last.
    pub(super) has_other_members: bool,
    /// When something changed last that its percentage is made of.
    pub(super) moved: Option<Moment>,
    /// How many installations of it have begun.
    pub(super) installations: usize,
    /// Those that are installed by the present installation, and not added to it on day 2.
    pub(super) installed_together: Vec<usize>,
    /// The user took the bootstrap away in the present installation.
    pub(super) bootstrap_was_taken: bool,
    pub(super) ends: Ends,
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
    pub(super) timeline: &'h Timeline<'h>,
    tallies: [Tally; COUNT],
    pub(super) limits: Limits,
    /// Until when events are known; `None` when there is none in the whole history.
    pub(super) events_until: Option<Timestamp>,
    /// When the service was stopped, or its database.
    outages: Vec<(Timestamp, Timestamp)>,
    /// The user ended an installation, or took hosts or clusters away.
    pub(super) user_ends: bool,
    /// When the history ends.
    end: Timestamp,
    pub(super) hosts: Vec<HostLine>,
    host_index: HashMap<Uuid, usize>,
    pub(super) clusters: Vec<ClusterLine>,
    cluster_index: HashMap<Uuid, usize>,
    pub(super) last_state: Option<Moment>,
    /// Hosts that the user deleted or took out of their cluster.
    taken: HashSet<Uuid>,
    /// Machines shared an id: what one of them reports is told of a host that the other is, too.
    pub(super) ids_are_shared: bool,
    pub(super) late_answers: LateAnswers,
}

impl<'h> Reader<'h> {
    /// Was the service stopped, or its database, at some moment between these?
    pub(super) fn was_away_between(&self, from: Timestamp, to: Timestamp) -> bool {
        one_between(&self.outages, from, to)
    }

    /// One that knows who is who, and what held at any time. Who is in which cluster must be known before the first stage is
    /// judged: a single node has stages of its own. What clusters there are must be known before a host is in one.
    pub(super) fn new(timeline: &'h Timeline<'h>) -> Self {
        let history = timeline.observations;
        let mut reader = Self {
            timeline,
            tallies: std::array::from_fn(|_| Tally::default()),
            limits: Limits::new(timeline.run),
            events_until: events::known_until(history),
            outages: outages(history),
            user_ends: history.iter().any(ends_by_user),
            end: watched_until(history),
            hosts: Vec::new(),
            host_index: HashMap::new(),
            clusters: Vec::new(),
            cluster_index: HashMap::new(),
            last_state: None,
            taken: history.iter().filter_map(taken_by_user).collect(),
            ids_are_shared: history.iter().any(shares_an_id),
            late_answers: LateAnswers::new(history),
        };
        for change in &timeline.changes {
            match &change.observation.what {
                What::HostStatus { host, cluster, .. } => {
                    let host = reader.host(*host);
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
                What::ClusterStatus { cluster, .. } => {
                    let cluster = reader.cluster(*cluster);
                    reader.clusters[cluster].seen = true;
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

    /// The hosts that are in a cluster now. Where states were polled, what tells of a host may come after what tells of its
    /// stage: there everyone counts who is ever in it.
    pub(super) fn present(&self, cluster: usize) -> impl Iterator<Item = usize> + '_ {
        let polled = !self.is_complete();
        let is_in = move |host: &usize| {
            let line = &self.hosts[*host];
            !line.deleted && (polled || line.cluster == Some(cluster))
        };
        self.clusters[cluster].members.iter().copied().filter(is_in)
    }

    /// Something must be so; `problem` says why it is not. What was on its way at the same time may yet make it good.
    pub(super) fn must(&mut self, id: Id, cluster: usize, moment: Moment, problem: Option<String>) {
        let suspected = self.clusters[cluster].suspects.iter().any(|suspect| suspect.id == id);
        match problem {
            Some(text) if !suspected => {
                self.clusters[cluster].suspects.push(Suspect { id, since: moment, text });
            }
            Some(_) => {}
            None if suspected => self.settle(id, cluster, moment.at),
            None => self.check(id, moment.seq, true, |_| String::new()),
        }
    }

    /// Did the user delete it, or take it out of its cluster?
    pub(super) fn is_taken(&self, host: Uuid) -> bool {
        self.taken.contains(&host)
    }

    /// What had to be so need not be any more, or is: was it made good in time?
    pub(super) fn settle(&mut self, id: Id, cluster: usize, now: Timestamp) {
        let suspects = &mut self.clusters[cluster].suspects;
        let Some(at) = suspects.iter().position(|suspect| suspect.id == id) else { return };
        let Suspect { since, text, .. } = suspects.remove(at);
        let in_time = now.since(since.at) <= self.limits.in_flight();
        self.check(id, since.seq, in_time, |_| text);
    }

    /// Reads an observation; `is_change`: it is a change of a state, and not only what another source saw of one.
    pub(super) fn see(&mut self, observation: &Observation, is_change: bool) {
        let moment = Moment { at: observation.at(), seq: observation.seq };
        if is_change {
            return self.see_change(&observation.what, moment);
        }
        match &observation.what {
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
            What::Event { name, message, host: Some(host), .. } if name == "host_status_updated" => {
                let host = self.host(*host);
                self.host_status_told(host, message, moment);
            }
            What::Event { name, message, cluster: Some(cluster), .. } if name == "cluster_status_updated" => {
                let cluster = self.cluster(*cluster);
                self.cluster_status_told(cluster, message, moment);
            }
            What::Event { name, cluster: Some(cluster), host: None, .. } => {
                let cluster = self.cluster(*cluster);
                self.clusters[cluster].ends.told(name, moment.seq);
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
            What::HostStage { host, from, to, percentage, .. } => {
                let host = self.host(*host);
                self.host_stage(host, *from, *to, moment);
                if let Some(stage) = to {
                    self.host_worth(host, *stage, *percentage, moment);
                }
            }
            What::HostRole { host, role, bootstrap } => {
                let host = self.host(*host);
                self.host_role(host, *role, *bootstrap, moment);
            }
            What::HostDeleted { host } => {
                let host = self.host(*host);
                if let Some(cluster) = self.hosts[host].cluster {
                    self.members_changed(cluster, moment);
                    self.leaves(host, cluster);
                }
                let line = &mut self.hosts[host];
                (line.deleted, line.bootstrap, line.stage, line.ended) = (true, false, None, None);
                if let Some(cluster) = line.cluster {
                    self.one_bootstrap(cluster, moment);
                }
            }
            What::HostLogs { host, state } => {
                let host = self.host(*host);
                self.hosts[host].logs = Some(*state);
            }
            What::Operator { cluster, name, status, kind } if self.is_complete() => {
                let cluster = self.cluster(*cluster);
                self.operator(cluster, name, (*kind, *status), moment);
            }
            What::ClusterProgress { cluster, total } => {
                let cluster = self.cluster(*cluster);
                self.cluster_worth(cluster, moment, false);
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
        let owed = self.is_complete() && self.has_event(moment);
        self.logs_of_end(host, moment);
        let before = self.hosts[host].cluster;
        let moved = before != cluster || self.hosts[host].deleted;
        for cluster in [before, cluster].into_iter().flatten().filter(|_| moved) {
            self.members_changed(cluster, moment);
        }
        if let Some(before) = before.filter(|_| moved) {
            self.leaves(host, before);
        }
        let line = &mut self.hosts[host];
        match from {
            Some(from) => line.ledger.changed(Some(from as u32), to as u32, owed, moment.seq),
            None => line.ledger.began(to as u32, moment.seq),
        }
        line.status = Some(to);
        line.cluster = cluster;
        line.deleted = false;
        line.cancelled_at = (to == HostStatus::Cancelled).then_some(moment.at);
        if matches!(to, HostStatus::Discovering | HostStatus::ResettingPendingUserAction | HostStatus::Known) {
            // Registered again, reset, or taken back before its installation: the next installation begins anew.
            line.reached.clear();
            line.logs = None;
        }
        line.ended = matches!(to, HostStatus::Error | HostStatus::Cancelled).then_some(moment);
        self.last_state = Some(moment);
        self.role_kept(host, moment);
        for cluster in [before, cluster].into_iter().flatten().filter(|_| moved) {
            self.one_bootstrap(cluster, moment);
        }
        if let Some(cluster) = cluster {
            self.too_few(cluster, moment);
            if self.clusters[cluster].suspects.iter().any(|suspect| suspect.id == Id::HostsFirst) {
                self.hosts_first(cluster, moment);
            }
        }
    }

    fn cluster_status(&mut self, cluster: usize, (from, to): (Option<ClusterStatus>, ClusterStatus), moment: Moment) {
        let owed = self.is_complete() && self.has_event(moment);
        self.cluster_worth(cluster, moment, true);
        let line = &mut self.clusters[cluster];
        match from {
            // A cluster that takes more hosts is told by its kind, not by an event.
            _ if to == ClusterStatus::AddingHosts => {}
            Some(_) => line.ledger.changed(None, to as u32, owed, moment.seq),
            None => line.ledger.began(to as u32, moment.seq),
        }
        line.status = Some(to);
        self.last_state = Some(moment);
        match to {
            ClusterStatus::PreparingForInstallation => {
                // A new installation: what happened in the last one says nothing about it.
                self.pivot(cluster);
                self.clusters[cluster].total = 0;
                self.clusters[cluster].installations += 1;
                self.clusters[cluster].bootstrap_was_taken = false;
                self.clusters[cluster].inside.clear();
                for member in self.clusters[cluster].members.clone() {
                    self.hosts[member].reached.clear();
                }
            }
            ClusterStatus::Insufficient | ClusterStatus::Ready => self.clusters[cluster].total = 0,
            ClusterStatus::Installing if from == Some(ClusterStatus::PreparingForInstallation) => {
                let there = self.present(cluster).filter(|member| self.hosts[*member].status.is_some());
                self.clusters[cluster].installed_together = there.collect();
            }
            ClusterStatus::Finalizing => self.hosts_first(cluster, moment),
            ClusterStatus::Installed => {
                self.all_installed(cluster, moment);
                self.operators_first(cluster, moment);
            }
            _ => {}
        }
        if to != ClusterStatus::Finalizing {
            self.settle(Id::HostsFirst, cluster, moment.at);
        }
        if to != ClusterStatus::Installed {
            self.settle(Id::OperatorsFirst, cluster, moment.at);
        }
        if from.is_some() {
            self.ended(cluster, to, moment);
        }
        self.hundred_when_installed(cluster, moment);
        self.one_bootstrap(cluster, moment);
        self.too_few(cluster, moment);
    }

    /// Judges what only the end shows, and gives the results in the order of [`INVARIANTS`].
    pub(super) fn finish(mut self) -> Vec<InvariantResult> {
        let end = Moment { at: self.end, seq: u64::MAX };
        for cluster in 0..self.clusters.len() {
            self.pivot(cluster);
            self.percentage_went_back(cluster);
            self.too_few_to_the_end(cluster);
            self.ends_told(cluster);
            self.cluster_worth(cluster, end, false);
            // What began just before the end may have been about to be made good.
            let in_flight = self.limits.in_flight();
            for Suspect { id, since, text } in std::mem::take(&mut self.clusters[cluster].suspects) {
                if end.at.since(since.at) > in_flight {
                    self.check(id, since.seq, false, |_| text);
                }
            }
        }
        for host in 0..self.hosts.len() {
            self.logs_of_end(host, end);
            self.done_when_installed(host);
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
    fn reasons(&self) -> [String; COUNT] {
        let mut reasons: [String; COUNT] =
            std::array::from_fn(|i| format!("the history does not show {}", INVARIANTS[i].needs));
        if !self.is_complete() {
            reasons[Id::OneEventEach as usize] = "states were polled, so changes may have been missed".to_owned();
        }
        reasons
    }
}

/// The host that the user deletes or takes out of its cluster there.
fn taken_by_user(o: &Observation) -> Option<Uuid> {
    match o.what {
        What::UserAction {
            action: UserVerb::Action(ActionKind::DeleteHost | ActionKind::Unbind),
            subject,
            status: 200..300,
            ..
        } => subject,
        _ => None,
    }
}

/// A machine has the id of another one from now on.
fn shares_an_id(observation: &Observation) -> bool {
    matches!(&observation.what, What::Fault { inject, phase: FaultPhase::Begin, .. } if inject == "duplicate-id")
}

/// Does the user end an installation there, or take away what is installed?
fn ends_by_user(o: &Observation) -> bool {
    use ActionKind::{Annotate, ApplyResource, Cancel, DeleteHost, DeleteResource, PatchResource, Reset, Unbind};
    matches!(
        o.what,
        What::UserAction {
            action: UserVerb::Action(
                Cancel | Reset | DeleteHost | Unbind | DeleteResource | PatchResource | ApplyResource | Annotate
            ),
            status: 200..300,
            ..
        }
    )
}
