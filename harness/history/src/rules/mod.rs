//! Which rules of the state machines a history shows.
//!
//! A service does not tell which of its rules fired. What it shows is what they did: a status that changed, a stage, a
//! validation, an event; and what the user and the hosts did just before. From that [`shown`] reads the rules, by the tables
//! and nothing else: of the rules that lead from one status to the other, those are left whose event happened and whose guard
//! is not known to be false. One that is left alone is *certain*; of several each is *possible*, and nothing more is claimed.
//!
//! A rule that leaves a status as it is shows itself by time: a subject that stays in a status for two rounds of its monitor,
//! while nothing that the rules ask about changes, was looked at.

mod answers;
mod conditions;
mod effects;
mod evidence;
mod explained;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{
    ClusterStatus, ClusterValidationId, FinalizingStage, HostRole, HostStage, HostStatus, HostValidationId, LogsState,
};
use vlab_model::cluster::{self, ClusterCond, ClusterEffect, ClusterEvent, ClusterRule, ClusterWords};
use vlab_model::history::{ActionKind, HostMoment, Observation, Source, UserVerb, What};
use vlab_model::host::{self, HostCond, HostEffect, HostEvent, HostRule, HostState, HostWords};
use vlab_model::machine::{Guard, Rule};
use vlab_model::settings::Settings;
use vlab_model::validation::{ClusterGate, HostGate, ValidationStatus, cluster_spec, host_spec};
use vlab_model::view::ClusterView;

use crate::timeline::{Change, HostOrCluster, Timeline};

use self::answers::{ClusterAnswers, HostAnswers};
use self::effects::{Traces, stopped};
use self::evidence::{Clue, Evidence};
pub use self::explained::{Explained, explained};

/// One of the three machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Machine {
    /// Hosts that are bound to a cluster.
    Host,
    /// Hosts that are not.
    Pool,
    /// Clusters.
    Cluster,
}

impl Machine {
    /// Its name, as in the real service's dumps.
    pub const fn as_str(self) -> &'static str {
        match self {
            Machine::Host => "host",
            Machine::Pool => "unbound-host",
            Machine::Cluster => "cluster",
        }
    }
}

/// A rule: its machine, and its position in that machine's table and in the real service's dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId {
    /// The state machine that it is of.
    pub machine: Machine,
    /// Position, from 0.
    pub index: usize,
}

impl RuleId {
    /// All rules of all machines, in order.
    pub fn all() -> impl Iterator<Item = RuleId> {
        let of = |machine, count| (0..count).map(move |index| RuleId { machine, index });
        of(Machine::Host, host::RULES.len())
            .chain(of(Machine::Pool, host::POOL_RULES.len()))
            .chain(of(Machine::Cluster, cluster::RULES.len()))
    }

    /// The id of a row of one of the hosts' tables.
    pub fn of_host_rule(rule: &'static HostRule) -> Option<Self> {
        let of = |machine, table: &'static [HostRule]| {
            table.iter().position(|r| r == rule).map(|index| RuleId { machine, index })
        };
        of(Machine::Host, host::RULES).or_else(|| of(Machine::Pool, host::POOL_RULES))
    }

    /// The id of a row of the clusters' table.
    pub fn of_cluster_rule(rule: &'static ClusterRule) -> Option<Self> {
        let index = cluster::RULES.iter().position(|r| r == rule)?;
        Some(RuleId { machine: Machine::Cluster, index })
    }

    /// Its event, its source statuses, its destination and its name.
    pub fn describe(self) -> (&'static str, Vec<&'static str>, &'static str, &'static str) {
        let of_host = |rule: &'static HostRule| {
            let from = rule.from.iter().map(|s| s.as_str()).collect();
            (rule.event.as_str(), from, rule.to.as_str(), rule.name)
        };
        match self.machine {
            Machine::Host => of_host(&host::RULES[self.index]),
            Machine::Pool => of_host(&host::POOL_RULES[self.index]),
            Machine::Cluster => {
                let rule = &cluster::RULES[self.index];
                (rule.event.as_str(), rule.from.iter().map(|s| s.as_str()).collect(), rule.to.as_str(), rule.name)
            }
        }
    }
}

impl std::fmt::Display for RuleId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}#{}", self.machine.as_str(), self.index)
    }
}

/// What a history shows of the rules, each with the first observation (`seq`) that shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// They fired.
    pub certain: BTreeMap<RuleId, u64>,
    /// They, or others that would have looked the same.
    pub possible: BTreeMap<RuleId, u64>,
}

/// An answer of a request comes at most so long before what it did was seen, by the two clocks.
const BEFORE: Duration = Duration::from_millis(100);
/// And at most so long after it.
const AFTER: Duration = Duration::from_secs(2);

/// Statuses of clusters whose monitor the real service stops.
const LEFT_ALONE: &[ClusterStatus] =
    &[ClusterStatus::Installed, ClusterStatus::AddingHosts, ClusterStatus::Unmonitored];

/// Reads the rules out of a history. `settings`: those of its service. `real`: it is not the built-in service, so it need not
/// write a status together with the validations that it follows from, and leaves what is over alone.
pub fn shown(history: &[Observation], settings: &Settings, real: bool) -> Shown {
    let timeline = Timeline::new(history);
    let mut reader = Reader::new(&timeline, settings, real);
    reader.read(&timeline, history);
    let certain = reader.certain;
    let possible = reader.possible.into_iter().filter(|(id, _)| !certain.contains_key(id)).collect();
    Shown { certain, possible }
}

/// A guard of which not all is known.
fn judge<C: Copy>(guard: &Guard<C>, condition: &dyn Fn(C) -> Option<bool>) -> Option<bool> {
    match guard {
        Guard::Always => Some(true),
        Guard::Is(c) => condition(*c),
        Guard::Not(inner) => judge(inner, condition).map(|holds| !holds),
        Guard::All(all) => every(all.iter().map(|g| judge(g, condition))),
        Guard::Any(any) => every(any.iter().map(|g| judge(g, condition).map(|holds| !holds))).map(|none| !none),
    }
}

/// Do all of them hold? One that does not is enough to know.
fn every(parts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut all = Some(true);
    for part in parts {
        match part {
            Some(true) => {}
            Some(false) => return Some(false),
            None => all = None,
        }
    }
    all
}

/// The rows that may have fired for one event: up to the first that certainly holds.
fn candidates<E: Copy + PartialEq, S: Copy + PartialEq, C: Copy, W, F>(
    table: &'static [Rule<E, S, C, W, F>],
    event: E,
    from: S,
    to: S,
    condition: &dyn Fn(C) -> Option<bool>,
) -> Vec<usize> {
    let mut found = Vec::new();
    for (index, rule) in table.iter().enumerate() {
        if rule.event != event || !rule.from.contains(&from) {
            continue;
        }
        if rule.to != to {
            // One that always holds leads elsewhere: nobody asks those that stand behind it.
            match rule.guard {
                Guard::Always => break,
                _ => continue,
            }
        }
        match judge(&rule.guard, condition) {
            Some(false) => {}
            Some(true) => {
                found.push(index);
                break;
            }
            None => found.push(index),
        }
    }
    found
}

#[derive(Default)]
struct HostNow {
    status: Option<HostStatus>,
    since: Timestamp,
    cluster: Option<Uuid>,
    stage: Option<HostStage>,
    stage_since: Timestamp,
    role: Option<HostRole>,
    /// It joined a cluster that was there already.
    day2: bool,
    validations: HostAnswers,
    /// It was noted that it does not answer (soft timeouts only).
    silence_noted: bool,
    /// State of its logs, and since when.
    logs: Option<LogsState>,
    logs_since: Timestamp,
    /// Nothing that its rules ask about changed since.
    quiet_since: Timestamp,
    /// It was looked at since.
    looked: bool,
    /// When it was in which cluster, status and stage, for what is told later.
    past: Vec<Past>,
}

/// What a host was from a time on.
#[derive(Clone, Copy)]
struct Past {
    at: Timestamp,
    cluster: Option<Uuid>,
    status: Option<HostStatus>,
    stage: Option<HostStage>,
}

impl HostNow {
    /// What it is until something is told of it. Its past is not copied.
    fn next(&self, at: Timestamp) -> Self {
        Self {
            status: self.status,
            since: self.since,
            cluster: self.cluster,
            stage: self.stage,
            stage_since: self.stage_since,
            role: self.role,
            day2: self.day2,
            validations: self.validations.clone(),
            silence_noted: self.silence_noted,
            logs: self.logs,
            logs_since: self.logs_since,
            quiet_since: at,
            looked: false,
            past: Vec::new(),
        }
    }
}

/// When something changed, and where in the history that stands.
#[derive(Clone, Copy)]
struct Place {
    at: Timestamp,
    seq: u64,
}

/// A host before and after something was told of it.
#[derive(Clone, Copy)]
struct HostChange<'a> {
    id: Uuid,
    before: &'a HostNow,
    now: &'a HostNow,
    place: Place,
}

/// A cluster after something was told of it, and since when it had been in its status before.
#[derive(Clone, Copy)]
struct ClusterChange<'a> {
    id: Uuid,
    now: &'a ClusterNow,
    since: Timestamp,
    at: Timestamp,
}

/// What was told of a host at one time.
#[derive(Default)]
struct Told<'h> {
    moved: Option<(Option<HostStatus>, HostStatus)>,
    /// The service's words.
    said: Option<&'h str>,
    cluster: Option<Option<Uuid>>,
    /// A report of its installer: a stage, and not only more of the same one.
    reported: bool,
    stages: Vec<(Option<HostStage>, Option<HostStage>)>,
    role: Option<HostRole>,
    evaluated: bool,
    validations: Vec<(&'h str, Option<ValidationStatus>)>,
    logs: Option<LogsState>,
    deleted: bool,
}

impl<'h> Told<'h> {
    fn of(batch: &[&Change<'h>]) -> Self {
        let mut told = Self::default();
        for change in batch {
            match &change.observation.what {
                What::StatusInfo { info, .. } => told.said = Some(info),
                What::HostStatus { from, to, cluster, info, .. } => {
                    told.said = Some(info);
                    told.moved = Some((*from, *to));
                    told.cluster = Some(*cluster);
                }
                What::HostStage { from, to, .. } => {
                    // More of the same stage is noted down, and the machine is not asked.
                    told.reported |= to.is_some() && from != to;
                    told.stages.push((*from, *to));
                }
                What::HostRole { role, .. } => told.role = Some(*role),
                What::Validation { id, to, .. } => {
                    told.evaluated = true;
                    told.validations.push((id, *to));
                }
                What::HostLogs { state, .. } => told.logs = Some(*state),
                What::HostDeleted { .. } => told.deleted = true,
                _ => {}
            }
        }
        told
    }

    fn apply(&self, now: &mut HostNow, at: Timestamp) {
        if let Some((_, to)) = self.moved {
            (now.status, now.since) = (Some(to), at);
        }
        if let Some(cluster) = self.cluster {
            now.cluster = cluster;
        }
        for (from, to) in &self.stages {
            now.stage_since = at;
            if from != to {
                now.stage = *to;
            }
        }
        now.role = self.role.or(now.role);
        if let Some(logs) = self.logs {
            (now.logs, now.logs_since) = (Some(logs), at);
        }
        for (id, to) in &self.validations {
            now.validations.set(id, *to);
        }
    }
}

#[derive(Default)]
struct ClusterNow {
    status: Option<ClusterStatus>,
    since: Timestamp,
    finalizing: Option<FinalizingStage>,
    finalizing_since: Timestamp,
    install_started: Option<Timestamp>,
    /// When it last went on after it had waited for its user.
    resumed: Option<Timestamp>,
    /// State of its controller's logs, and since when.
    logs: Option<LogsState>,
    logs_since: Timestamp,
    validations: ClusterAnswers,
    quiet_since: Timestamp,
    looked: bool,
    /// The most masters that it had in the present installation: so many its control plane was to have.
    most_masters: usize,
}

struct Reader<'a> {
    settings: &'a Settings,
    real: bool,
    /// Was the service asked over Kubernetes? The history has resources then.
    kube: bool,
    hosts: BTreeMap<Uuid, HostNow>,
    clusters: BTreeMap<Uuid, ClusterNow>,
    evidence: Evidence,
    traces: Traces,
    /// Clusters whose VIPs are leased by DHCP.
    vip_dhcp: BTreeSet<Uuid>,
    /// When a fault kept the service, or its database, from working: its monitors looked at nothing.
    stopped: Vec<(Timestamp, Timestamp)>,
    certain: BTreeMap<RuleId, u64>,
    possible: BTreeMap<RuleId, u64>,
    /// Filled where it is asked for.
    explained: Option<Explained>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, timeline: &Timeline<'_>, history: &[Observation]) {
        // Percentages, operators and members are nothing that rules ask about, but for the time at which something happened.
        let asked = |c: &&Change<'_>| {
            !matches!(c.observation.what, What::ClusterProgress { .. } | What::Operator { .. } | What::Member { .. })
        };
        let changes: Vec<&Change<'_>> = timeline.changes.iter().filter(asked).collect();
        for batch in changes.chunk_by(|a, b| a.subject == b.subject && a.observation.at() == b.observation.at()) {
            self.take(batch);
        }
        let end = history.last().map(Observation::at).unwrap_or_default();
        let last = history.last().map_or(0, |o| o.seq);
        self.look_at_all(Place { at: end, seq: last });
        self.read_events(history);
        self.followed();
    }

    fn new(timeline: &Timeline<'_>, settings: &'a Settings, real: bool) -> Self {
        Self {
            settings,
            real,
            kube: timeline.observations.iter().any(|o| matches!(o.what, What::Resource { .. })),
            hosts: BTreeMap::new(),
            clusters: BTreeMap::new(),
            evidence: Evidence::of(timeline.observations),
            traces: Traces::of(timeline.observations),
            vip_dhcp: timeline.clusters.iter().filter(|(_, line)| line.vip_dhcp).map(|(id, _)| *id).collect(),
            stopped: stopped(timeline.observations),
            certain: BTreeMap::new(),
            possible: BTreeMap::new(),
            explained: None,
        }
    }

    fn note(&mut self, machine: Machine, found: &[usize], seq: u64) {
        let into = if found.len() == 1 { &mut self.certain } else { &mut self.possible };
        for index in found {
            into.entry(RuleId { machine, index: *index }).or_insert(seq);
        }
    }

    /// Takes in what changed of one host, or of one cluster, at one time.
    fn take(&mut self, batch: &[&Change<'_>]) {
        let Some(first) = batch.first() else { return };
        let place = Place { at: first.observation.at(), seq: first.observation.seq };
        match first.subject {
            HostOrCluster::Cluster(id) => self.take_cluster(id, batch, place),
            HostOrCluster::Host(id) => self.take_host(id, batch, place),
        }
    }

    fn take_cluster(&mut self, id: Uuid, batch: &[&Change<'_>], place: Place) {
        let members: Vec<Uuid> =
            self.hosts.iter().filter(|(_, h)| h.cluster == Some(id)).map(|(host, _)| *host).collect();
        let status_changes = batch.iter().any(|c| matches!(c.observation.what, What::ClusterStatus { .. }));
        self.look_at_cluster(id, place);
        if status_changes {
            for host in &members {
                self.look_at_host(*host, place);
            }
        }
        self.cluster_changes(id, batch, place);
        if status_changes {
            for host in &members {
                self.disturb_host(*host, place.at);
            }
        }
    }

    fn take_host(&mut self, id: Uuid, batch: &[&Change<'_>], place: Place) {
        let status_changes = batch.iter().any(|c| matches!(c.observation.what, What::HostStatus { .. }));
        self.look_at_host(id, place);
        let cluster = self.hosts.get(&id).and_then(|h| h.cluster);
        if let (Some(cluster), true) = (cluster, status_changes) {
            self.look_at_cluster(cluster, place);
        }
        self.host_changes(id, batch, place);
        let now = self.hosts.get(&id).and_then(|h| h.cluster);
        for cluster in [cluster, now].into_iter().flatten() {
            let masters = self.hosts_of(cluster).filter(|h| h.role == Some(HostRole::Master)).count();
            if let Some(c) = self.clusters.get_mut(&cluster) {
                c.most_masters = c.most_masters.max(masters);
            }
        }
        // One host fewer is as much to a cluster as another status of one.
        let gone = batch.iter().any(|c| matches!(c.observation.what, What::HostDeleted { .. }));
        if status_changes || gone {
            for cluster in [cluster, now].into_iter().flatten() {
                if let Some(c) = self.clusters.get_mut(&cluster) {
                    (c.quiet_since, c.looked) = (place.at, false);
                }
            }
        }
    }

    fn disturb_host(&mut self, id: Uuid, at: Timestamp) {
        if let Some(h) = self.hosts.get_mut(&id) {
            (h.quiet_since, h.looked) = (at, false);
        }
    }

    fn look_at_all(&mut self, place: Place) {
        for id in self.hosts.keys().copied().collect::<Vec<_>>() {
            self.look_at_host(id, place);
        }
        for id in self.clusters.keys().copied().collect::<Vec<_>>() {
            self.look_at_cluster(id, place);
        }
    }

    // ---- hosts ----

    fn host_changes(&mut self, id: Uuid, batch: &[&Change<'_>], place: Place) {
        let at = place.at;
        let mut before = self.hosts.remove(&id).unwrap_or_default();
        let mut now = before.next(at);
        let told = Told::of(batch);
        if told.deleted {
            return;
        }
        told.apply(&mut now, at);
        now.past = std::mem::take(&mut before.past);
        now.past.push(Past { at, cluster: now.cluster, status: now.status, stage: now.stage });
        match told.moved {
            // Back in the pool a host is like a new one, and what it is bound to next makes it what it is.
            Some((None, _) | (_, HostStatus::Binding)) => {
                let joined = now.cluster.and_then(|c| self.clusters.get(&c)).and_then(|c| c.status);
                now.day2 = now.cluster.is_some() && joined == Some(ClusterStatus::AddingHosts);
            }
            _ if now.cluster.is_none() => now.day2 = false,
            _ => {}
        }
        if let (Some(info), Some(status)) = (told.said, now.status) {
            self.host_words(id, status, info, place.seq);
        }
        let change = HostChange { id, before: &before, now: &now, place };
        if let Some((from, to)) = told.moved {
            self.host_moved(&change, from, to, told.reported);
        } else if told.reported
            && let Some(status) = now.status
        {
            let found = self.of_host(HostEvent::HostProgressChanged, &change, status, status);
            self.note(Machine::Host, &found, place.seq);
        } else if told.evaluated && !self.real {
            // Validations are evaluated by a refresh alone: it was just looked at.
            self.hosts.insert(id, now);
            self.refreshed_host(id, place);
            return;
        }
        if told.logs == Some(LogsState::Timeout)
            && let Some(status) = now.status
        {
            self.logs_timed_out(status, place.seq);
        }
        self.hosts.insert(id, now);
    }

    fn logs_timed_out(&mut self, status: HostStatus, seq: u64) {
        let found: Vec<usize> = host::RULES
            .iter()
            .enumerate()
            .filter(|(_, r)| r.to == HostState::At(status) && matches!(r.guard, Guard::Is(HostCond::LogsTimedOut)))
            .map(|(index, _)| index)
            .collect();
        self.note(Machine::Host, &found, seq);
    }

    fn host_moved(&mut self, change: &HostChange<'_>, from: Option<HostStatus>, to: HostStatus, reported: bool) {
        let HostChange { id, before, now, place: Place { at, seq } } = *change;
        let unbound = if from.is_none() { now.cluster.is_none() } else { before.cluster.is_none() };
        let source = from.map_or(HostState::Initial, HostState::At);
        // One that is given back is discovered again by registering, and by nothing else.
        let back = to == HostStatus::DiscoveringUnbound;
        let event = if back { HostEvent::RegisterHost } else { HostEvent::RefreshHost };
        let (machine, table) = machine_of(unbound, event, source);
        let by_user = |clue: Clue| {
            let near = |subject: Uuid| self.evidence.near(subject, clue, at, BEFORE, AFTER);
            near(id) || before.cluster.is_some_and(near)
        };
        let mut happened: Vec<HostEvent> = Vec::new();
        let mut add = |event, did: bool| {
            if did {
                happened.push(event);
            }
        };
        add(HostEvent::HostProgressChanged, reported);
        add(HostEvent::RegisterHost, from.is_none() || self.evidence.near(id, Clue::Register, at, BEFORE, AFTER));
        add(HostEvent::CancelInstallation, by_user(Clue::Cancel));
        add(HostEvent::ResettingPendingUserAction, by_user(Clue::Reset));
        add(HostEvent::UnbindHost, by_user(Clue::Unbind));
        // The service's controllers reclaim only what is installed; whoever else leaves is unbound.
        add(HostEvent::ReclaimHost, to == HostStatus::Reclaiming && by_user(Clue::Unbind));
        add(HostEvent::RebootingForReclaim, self.evidence.near(id, Clue::Fetched, at, AFTER, BEFORE));
        add(HostEvent::ReclaimHostFailed, self.evidence.near(id, Clue::FetchFailed, at, AFTER, BEFORE));
        add(HostEvent::BindHost, by_user(Clue::Bind));
        add(HostEvent::InstallHost, by_user(Clue::InstallHost));
        add(HostEvent::MediaDisconnect, self.evidence.near(id, Clue::Media, at, BEFORE, AFTER));
        // The host says so first, then the service hears it.
        add(HostEvent::HostInstallationFailed, self.evidence.near(id, Clue::InstallFailed, at, AFTER, BEFORE));
        let condition = |c: HostCond| self.host_condition(c, change);
        let mut found = BTreeSet::new();
        for event in happened {
            found.extend(candidates(table, event, source, HostState::At(to), &condition));
        }
        if found.is_empty() {
            found.extend(candidates(table, HostEvent::RefreshHost, source, HostState::At(to), &condition));
        }
        let all: Vec<usize> = found.iter().copied().collect();
        let asked = from.is_none()
            || table.iter().any(|r| {
                r.from.contains(&source) && r.to == HostState::At(to) && self.may_be_asked(r.event, change, reported)
            });
        self.host_explained((id, seq), (source, to), !all.is_empty() || asked);
        if let [only] = all.as_slice() {
            self.host_effects(change, &table[*only]);
        }
        if found.is_empty() {
            // What was done is not in the history, or its answer came late: whatever leads there.
            let leads = |r: &&'static HostRule| {
                r.event != HostEvent::RefreshHost && r.from.contains(&source) && r.to == HostState::At(to)
            };
            let all: Vec<usize> = table.iter().enumerate().filter(|(_, r)| leads(r)).map(|(index, _)| index).collect();
            let outside =
                from.is_some_and(|from| host::OUTSIDE_THE_MACHINE.iter().any(|(f, t, _)| *f == from && *t == to));
            for index in &all {
                // Several, or the machine itself may have had no part in it.
                let into = if all.len() == 1 && !outside { &mut self.certain } else { &mut self.possible };
                into.entry(RuleId { machine, index: *index }).or_insert(seq);
            }
            return;
        }
        self.note(machine, &all, seq);
    }

    fn of_host(&self, event: HostEvent, change: &HostChange<'_>, from: HostStatus, to: HostStatus) -> Vec<usize> {
        let (_, table) = machine_of(change.now.cluster.is_none(), event, HostState::At(from));
        let condition = |c: HostCond| self.host_condition(c, change);
        candidates(table, event, HostState::At(from), HostState::At(to), &condition)
    }

    /// How long nothing has happened, as far as the service was able to look.
    fn quiet(&self, since: Timestamp, at: Timestamp) -> Duration {
        let hindered = self.stopped.iter().filter(|(begin, end)| *begin <= at && *end >= since);
        let from = hindered.map(|(_, end)| *end).fold(since, Timestamp::max);
        if from < at { at.since(from) } else { Duration::ZERO }
    }

    /// A host that nothing has happened to for two rounds of its monitor was looked at.
    fn look_at_host(&mut self, id: Uuid, place: Place) {
        self.host_may_stay(id, place);
        self.logs_may_wait(id, place);
        let Some(h) = self.hosts.get(&id) else { return };
        if h.looked || self.quiet(h.quiet_since, place.at) < self.settings.host_monitor_interval * 2 {
            return;
        }
        self.refreshed_host(id, place);
    }

    fn refreshed_host(&mut self, id: Uuid, place: Place) {
        let Some(h) = self.hosts.get(&id) else { return };
        let Some(status) = h.status.filter(|status| !host::NOT_MONITORED.contains(status)) else { return };
        let (machine, _) = machine_of(h.cluster.is_none(), HostEvent::RefreshHost, HostState::At(status));
        // What a monitor makes of it while time goes by is what it makes of it now.
        let change = HostChange { id, before: h, now: h, place };
        let found = self.of_host(HostEvent::RefreshHost, &change, status, status);
        let connected = self.host_condition(HostCond::Connected, &change);
        let soft = self.soft();
        self.note(machine, &found, place.seq);
        self.silence_is_noted(id, status, connected, place);
        if let Some(h) = self.hosts.get_mut(&id) {
            h.looked = true;
            let installing = matches!(status, HostStatus::Installing | HostStatus::InstallingInProgress);
            if soft && installing {
                match connected {
                    // The note changes what the next round finds.
                    Some(false) if !h.silence_noted => (h.silence_noted, h.looked) = (true, false),
                    Some(true) if h.silence_noted => (h.silence_noted, h.looked) = (false, false),
                    _ => {}
                }
            }
        }
    }

    /// Are soft timeouts on? Clusters of a service without organisations always want them.
    fn soft(&self) -> bool {
        self.settings.enable_soft_timeouts
    }

    // ---- clusters ----

    fn cluster_changes(&mut self, id: Uuid, batch: &[&Change<'_>], place: Place) {
        let Place { at, seq } = place;
        let mut now = self.clusters.remove(&id).unwrap_or_default();
        let (before, since) = (now.status, now.since);
        let (mut moved, mut evaluated, mut logs, mut said) = (None, false, None, None);
        for change in batch {
            match &change.observation.what {
                What::StatusInfo { info, .. } => said = now.status.map(|status| (status, info.as_str())),
                What::ClusterStatus { from, to, info, .. } => {
                    said = Some((*to, info.as_str()));
                    moved = Some((*from, *to));
                    (now.status, now.since) = (Some(*to), at);
                    if *from == Some(ClusterStatus::InstallingPendingUserAction) {
                        // The stage of finalizing has its whole time again, too.
                        (now.resumed, now.finalizing_since) = (Some(at), at);
                    }
                    if *to == ClusterStatus::PreparingForInstallation {
                        now.install_started = Some(at);
                        now.most_masters = 0;
                    }
                }
                What::ClusterFinalizingStage { stage, .. } => {
                    (now.finalizing, now.finalizing_since) = (Some(*stage), at);
                }
                What::Validation { id, to, .. } => {
                    evaluated = true;
                    now.validations.set(id, *to);
                }
                What::ClusterLogs { state, .. } => {
                    logs = Some(*state);
                    (now.logs, now.logs_since) = (logs, at);
                }
                _ => {}
            }
        }
        (now.quiet_since, now.looked) = (at, false);
        let found = match moved {
            Some((Some(from), to)) => self.cluster_moved(&ClusterChange { id, now: &now, since, at }, from, to),
            Some((None, _)) => Vec::new(),
            None if evaluated && !self.real => self.refreshed_cluster(id, &now, at),
            None => Vec::new(),
        };
        if let Some((Some(from), to)) = moved {
            self.cluster_explained((id, seq), (from, to), &found);
            if let [only] = found.as_slice() {
                self.cluster_effects(id, &now, &cluster::RULES[*only], place);
            }
        }
        if let (Some((status, info)), true) = (said, self.explained.is_some()) {
            self.cluster_words(id, status, info, seq);
        }
        self.note(Machine::Cluster, &found, seq);
        if logs == Some(LogsState::Timeout) {
            let timed_out =
                |r: &ClusterRule| Some(r.to) == before && matches!(r.guard, Guard::Is(ClusterCond::LogsTimedOut));
            let found: Vec<usize> =
                cluster::RULES.iter().enumerate().filter(|(_, r)| timed_out(r)).map(|(index, _)| index).collect();
            self.note(Machine::Cluster, &found, seq);
        }
        self.clusters.insert(id, now);
    }

    fn cluster_moved(&self, change: &ClusterChange<'_>, from: ClusterStatus, to: ClusterStatus) -> Vec<usize> {
        let ClusterChange { id, at, .. } = *change;
        let condition = |c: ClusterCond| self.cluster_condition(c, change);
        let of = |event| candidates(cluster::RULES, event, from, to, &condition);
        let by_user = |clue: Clue| self.evidence.near(id, clue, at, BEFORE, AFTER);
        if by_user(Clue::Cancel) && !of(ClusterEvent::CancelInstallation).is_empty() {
            return of(ClusterEvent::CancelInstallation);
        }
        if by_user(Clue::Reset) && !of(ClusterEvent::ResetCluster).is_empty() {
            return of(ClusterEvent::ResetCluster);
        }
        let found = of(ClusterEvent::RefreshStatus);
        if !found.is_empty() {
            return found;
        }
        [ClusterEvent::PrepareForInstallation, ClusterEvent::CancelInstallation, ClusterEvent::ResetCluster]
            .into_iter()
            .filter(|event| self.explained.is_none() || self.cluster_may_be_asked(*event, id, at))
            .flat_map(of)
            .collect()
    }

    fn look_at_cluster(&mut self, id: Uuid, place: Place) {
        let Place { at, seq } = place;
        self.cluster_may_stay(id, place);
        self.logs_may_wait(id, place);
        let Some(c) = self.clusters.get(&id) else { return };
        let left_alone = self.real && c.status.is_some_and(|status| LEFT_ALONE.contains(&status));
        let quiet = self.quiet(c.quiet_since, at) >= self.settings.cluster_monitor_interval * 2;
        if c.looked || left_alone || !quiet {
            return;
        }
        let found = self.refreshed_cluster(id, c, at);
        self.note(Machine::Cluster, &found, seq);
        if let Some(c) = self.clusters.get_mut(&id) {
            c.looked = true;
        }
    }

    fn refreshed_cluster(&self, id: Uuid, now: &ClusterNow, at: Timestamp) -> Vec<usize> {
        let Some(status) = now.status else { return Vec::new() };
        let change = ClusterChange { id, now, since: now.since, at };
        let condition = |c: ClusterCond| match c {
            // Told by an event of its own.
            ClusterCond::FinalizingStageTimeoutNoted => Some(true),
            other => self.cluster_condition(other, &change),
        };
        candidates(cluster::RULES, ClusterEvent::RefreshStatus, status, status, &condition)
    }

    // ---- what events alone tell ----

    fn read_events(&mut self, history: &[Observation]) {
        for o in history {
            match &o.what {
                What::Event { name, host: Some(host), .. } if name == "host_stage_timed_out" => {
                    self.stage_timed_out(*host, o.at(), o.seq);
                }
                What::Event { name, host: None, .. } if name == "finalizing_stage_timed_out" => {
                    let warns = |r: &ClusterRule| {
                        r.to == ClusterStatus::Finalizing && r.guard.asks(ClusterCond::FinalizingStageTimedOut)
                    };
                    let found: Vec<usize> =
                        cluster::RULES.iter().enumerate().filter(|(_, r)| warns(r)).map(|(i, _)| i).collect();
                    self.note(Machine::Cluster, &found, o.seq);
                }
                What::HostDid { host, what: HostMoment::Registered | HostMoment::RegistrationRefused(_) } => {
                    self.in_place(*host, HostEvent::RegisterHost, o);
                }
                What::UserAction {
                    action: UserVerb::Action(ActionKind::Cancel),
                    subject: Some(cluster),
                    status,
                    ..
                } if (200..300).contains(status) => {
                    for host in self.hosts.keys().copied().collect::<Vec<_>>() {
                        if self.past(host, o.at()).is_some_and(|p| p.cluster == Some(*cluster)) {
                            self.in_place(host, HostEvent::CancelInstallation, o);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn stage_timed_out(&mut self, host: Uuid, at: Timestamp, seq: u64) {
        let Some(h) = self.hosts.get(&host) else { return };
        let stage = h.past.iter().rfind(|p| p.at <= at).and_then(|p| p.stage);
        let condition = |c: HostCond| match c {
            HostCond::SoftTimeouts | HostCond::StageTimedOut => Some(true),
            HostCond::StageTimeoutNoted => Some(false),
            HostCond::StageIsWritingImage => Some(stage == Some(HostStage::WritingImageToDisk)),
            HostCond::StageIsCopyingRegistryData => Some(stage == Some(HostStage::CopyingRegistryDataToDisk)),
            HostCond::StageIsRebooting => Some(stage == Some(HostStage::Rebooting)),
            _ => Some(false),
        };
        let state = HostState::At(HostStatus::InstallingInProgress);
        let notes = |r: &HostRule| {
            r.event == HostEvent::RefreshHost
                && r.to == state
                && r.from.contains(&state)
                && r.guard.asks(HostCond::StageTimedOut)
        };
        let found: Vec<usize> = host::RULES
            .iter()
            .enumerate()
            .filter(|(_, r)| notes(r) && judge(&r.guard, &condition) == Some(true))
            .map(|(index, _)| index)
            .collect();
        self.note(Machine::Host, &found, seq);
    }

    /// What a host was when an answer came, if it was the same since long before: then the answered request left it so.
    fn past(&self, host: Uuid, at: Timestamp) -> Option<Past> {
        let past = &self.hosts.get(&host)?.past;
        let now = past.iter().rfind(|p| p.at <= at + BEFORE)?;
        let entered = past.iter().rfind(|p| p.at <= now.at && (p.status, p.cluster) != (now.status, now.cluster));
        let since = past.iter().find(|p| entered.is_none_or(|e| p.at > e.at))?.at;
        (at.since(since) > AFTER && since < at).then_some(*now)
    }

    /// A request that leaves a status as it is shows itself in nothing but the request.
    fn in_place(&mut self, host: Uuid, event: HostEvent, o: &Observation) {
        let Some(past) = self.past(host, o.at()) else { return };
        let Some(status) = past.status else { return };
        let (machine, table) = machine_of(past.cluster.is_none(), event, HostState::At(status));
        let condition = |c: HostCond| match c {
            HostCond::StageIsRebooting => Some(past.stage == Some(HostStage::Rebooting)),
            HostCond::StageIsDone => Some(past.stage == Some(HostStage::Done)),
            _ => None,
        };
        let state = HostState::At(status);
        let found = candidates(table, event, state, state, &condition);
        self.note(machine, &found, o.seq);
    }
}

fn machine_of(unbound: bool, event: HostEvent, state: HostState) -> (Machine, &'static [HostRule]) {
    match unbound && host::is_of_the_pool(event, state) {
        true => (Machine::Pool, host::POOL_RULES),
        false => (Machine::Host, host::RULES),
    }
}

fn holds(status: ValidationStatus) -> bool {
    matches!(status, ValidationStatus::Success | ValidationStatus::Disabled)
}
