//! Reads a history once and says what there is to draw: a lane for each host and cluster with the spans in which it had a
//! status or a stage, every transition, and the rows of the events table. No drawing here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStage, HostStatus};
use vlab_history::timeline::{Change, HostOrCluster, Sources};
use vlab_model::history::{FaultPhase, MachineMoment, Observation, ResourceState, What};
use vlab_model::validation::ValidationStatus;

/// A time in which something had one value. Times are microseconds since the start of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// Microseconds since the start.
    pub from: i64,
    /// Microseconds since the start.
    pub to: i64,
    /// Value.
    pub value: &'a str,
    /// The service's words, or the progress text.
    pub info: &'a str,
}

/// Something that happened at one moment, microseconds after the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark<'a> {
    /// Microseconds since the start.
    pub at: i64,
    /// What.
    pub text: Cow<'a, str>,
    /// It went wrong.
    pub bad: bool,
}

/// A host or a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane<'a> {
    /// Id in the service.
    pub id: Uuid,
    /// Name in the scenario, else the beginning of the id.
    pub name: Cow<'a, str>,
    /// A cluster?
    pub is_cluster: bool,
    /// Role of a host.
    pub role: Option<HostRole>,
    /// Bootstrap?
    pub bootstrap: bool,
    /// Statuses, without gaps from the first to the end or the deletion.
    pub statuses: Vec<Span<'a>>,
    /// Installation stages of a host, finalizing stages of a cluster.
    pub stages: Vec<Span<'a>>,
    /// What happened on the host, or in the cluster.
    pub marks: Vec<Mark<'a>>,
    ended: bool,
}

impl Lane<'_> {
    /// Last status.
    pub fn last_status(&self) -> &str {
        self.statuses.last().map_or("", |s| s.value)
    }
}

/// A fault from its begin to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSpan<'a> {
    /// Name in the scenario.
    pub name: &'a str,
    /// Begin, microseconds after the start.
    pub from: i64,
    /// End, if it ended.
    pub to: Option<i64>,
    /// When an effect of it was seen.
    pub effects: Vec<i64>,
}

/// A change of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition<'a> {
    /// When, microseconds after the start.
    pub at: i64,
    /// Host or cluster.
    pub subject: Uuid,
    /// `status`, `stage`, `role`, `validation`, `operator`.
    pub kind: &'static str,
    /// For validations and operators: which.
    pub which: &'a str,
    /// Before; empty at the first time.
    pub from: &'a str,
    /// After.
    pub to: &'a str,
    /// The service's words.
    pub info: &'a str,
    /// Who saw it.
    pub sources: Sources,
}

/// A row of the events table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// When, microseconds after the start.
    pub at: i64,
    /// `event`, `user`, `fault`, `host`, `cluster`, `note`, `run`.
    pub kind: &'static str,
    /// `info`, `warning`, `error`, `critical`.
    pub severity: &'static str,
    /// Host or cluster.
    pub subject: Option<Uuid>,
    /// Name.
    pub name: Cow<'a, str>,
    /// Text.
    pub text: Cow<'a, str>,
}

impl Row<'_> {
    fn new(at: i64, kind: &'static str) -> Self {
        Self { at, kind, severity: "info", subject: None, name: Cow::Borrowed(""), text: Cow::Borrowed("") }
    }

    fn warning(self, is_one: bool) -> Self {
        Self { severity: if is_one { "warning" } else { self.severity }, ..self }
    }
}

/// Everything that there is to draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lanes<'a> {
    /// Where it begins.
    pub start: Timestamp,
    /// Length in microseconds, at least 1.
    pub length: i64,
    /// Clusters, by name.
    pub clusters: Vec<Lane<'a>>,
    /// Hosts, by role and name.
    pub hosts: Vec<Lane<'a>>,
    /// What the user did.
    pub user: Vec<Mark<'a>>,
    /// Faults, in the order in which they began.
    pub faults: Vec<FaultSpan<'a>>,
    /// Every change, in order of time.
    pub transitions: Vec<Transition<'a>>,
    /// Everything else that is worth a line, in order of time.
    pub rows: Vec<Row<'a>>,
    names: BTreeMap<Uuid, &'a str>,
}

impl<'a> Lanes<'a> {
    /// Reads `history`. With an empty history the timeline is empty and one microsecond long.
    pub fn read(history: &'a [Observation]) -> Self {
        let mut reader = Reader::new(history);
        for (observation, change) in vlab_history::Timeline::new(history).walk() {
            let at = reader.timeline.offset(when(observation));
            match change {
                Some(change) => reader.change(at, change),
                None => reader.take(at, observation),
            }
        }
        reader.finish()
    }

    /// Name of a host or cluster.
    pub fn name(&self, id: Uuid) -> Cow<'a, str> {
        name_of(&self.names, id)
    }

    /// When the installation started: the first moment at which a cluster, or a host where there is none, began to prepare it.
    pub fn installation(&self) -> Option<i64> {
        let begins = |lane: &Lane<'_>| {
            let is_begin = |s: &&Span<'_>| matches!(s.value, "preparing-for-installation" | "installing");
            lane.statuses.iter().find(is_begin).map(|span| span.from)
        };
        let first = |lanes: &[Lane<'_>]| lanes.iter().filter_map(begins).min();
        first(&self.clusters).or_else(|| first(&self.hosts))
    }

    /// Microseconds from the start to `at`.
    pub fn offset(&self, at: Timestamp) -> i64 {
        at.as_micros().saturating_sub(self.start.as_micros())
    }
}

fn name_of<'a>(names: &BTreeMap<Uuid, &'a str>, id: Uuid) -> Cow<'a, str> {
    match names.get(&id) {
        Some(name) => Cow::Borrowed(*name),
        None => Cow::Owned(id.to_string()[..8].to_owned()),
    }
}

/// When it happened. A service time that is not set, or a day away from the harness's, says nothing.
pub(crate) fn when(observation: &Observation) -> Timestamp {
    const DAY: i64 = 86_400_000_000;
    let harness = observation.harness_time;
    match observation.service_time {
        Some(t) if t.is_set() && t.as_micros().saturating_sub(harness.as_micros()).abs() < DAY => t,
        _ => harness,
    }
}

struct Reader<'a> {
    timeline: Lanes<'a>,
    lanes: BTreeMap<Uuid, Lane<'a>>,
}

impl<'a> Reader<'a> {
    fn new(history: &'a [Observation]) -> Self {
        let times = || history.iter().map(when).filter(|t| t.is_set());
        let start = times().min().unwrap_or_default();
        let end = times().max().unwrap_or_default();
        let timeline =
            Lanes { start, length: end.as_micros().saturating_sub(start.as_micros()).max(1), ..Lanes::default() };
        Self { timeline, lanes: BTreeMap::new() }
    }

    fn lane(&mut self, id: Uuid, is_cluster: bool) -> &mut Lane<'a> {
        self.lanes.entry(id).or_insert_with(|| Lane {
            id,
            name: Cow::Borrowed(""),
            is_cluster,
            role: None,
            bootstrap: false,
            statuses: Vec::new(),
            stages: Vec::new(),
            marks: Vec::new(),
            ended: false,
        })
    }

    fn row(&mut self, row: Row<'a>) {
        self.timeline.rows.push(row);
    }

    /// A state changed.
    fn change(&mut self, at: i64, change: Change<'a>) {
        let (HostOrCluster::Host(id) | HostOrCluster::Cluster(id)) = change.subject;
        let mut transition =
            Transition { at, subject: id, kind: "", which: "", from: "", to: "", info: "", sources: change.sources };
        match &change.observation.what {
            What::HostStatus { from, to, info, .. } => {
                (transition.from, transition.to) = (from.map_or("", HostStatus::as_str), to.as_str());
                self.status(Transition { kind: "status", info, ..transition }, false);
            }
            What::ClusterStatus { from, to, info, .. } => {
                (transition.from, transition.to) = (from.map_or("", ClusterStatus::as_str), to.as_str());
                self.status(Transition { kind: "status", info, ..transition }, true);
            }
            What::HostStage { from, to, info, .. } => {
                (transition.from, transition.to) =
                    (from.map_or("", HostStage::as_str), to.map_or("", HostStage::as_str));
                self.stage(Transition { kind: "stage", info, ..transition }, false);
            }
            What::ClusterFinalizingStage { stage, .. } => {
                transition.from = self.lane(id, true).stages.last().map_or("", |s| s.value);
                self.stage(Transition { kind: "stage", to: stage.as_str(), ..transition }, true);
            }
            What::HostRole { role, bootstrap, .. } => {
                let lane = self.lane(id, false);
                let before = (lane.role.map_or("", HostRole::as_str), lane.bootstrap);
                (lane.role, lane.bootstrap) = (Some(*role), *bootstrap);
                if before != (role.as_str(), *bootstrap) {
                    let info = if *bootstrap { "bootstrap" } else { "" };
                    let (from, to) = (before.0, role.as_str());
                    self.timeline.transitions.push(Transition { kind: "role", from, to, info, ..transition });
                }
            }
            What::HostDeleted { .. } => {
                let lane = self.lane(id, false);
                lane.ended = true;
                for span in lane.statuses.last_mut().into_iter().chain(lane.stages.last_mut()) {
                    span.to = at.max(span.from);
                }
                self.row(Row { subject: Some(id), name: "deleted".into(), ..Row::new(at, "host") });
            }
            What::Validation { id: which, from, to, message, .. } => {
                let word = |status: Option<ValidationStatus>| status.map_or("", ValidationStatus::as_str);
                (transition.from, transition.to) = (word(*from), word(*to));
                let t = Transition { kind: "validation", which, info: message, ..transition };
                self.timeline.transitions.push(t);
            }
            What::Operator { name, status, .. } => {
                let to = status.map_or("", |s| s.as_str());
                self.timeline.transitions.push(Transition { kind: "operator", which: name, to, ..transition });
            }
            // Too many for a page; they are in the history.
            _ => {}
        }
    }

    /// Something happened that is no change of a state.
    fn take(&mut self, at: i64, o: &'a Observation) {
        let row = |kind| Row::new(at, kind);
        match &o.what {
            What::RunStarted(info) => {
                self.row(Row { name: "run-started".into(), text: Cow::Borrowed(&info.scenario), ..row("run") });
            }
            What::RunFinished { how } => {
                self.row(Row { name: "run-finished".into(), text: how.word(), ..row("run") });
            }
            What::ClusterNamed { cluster, name, .. } => {
                self.timeline.names.insert(*cluster, name);
            }
            What::HostNamed { host, name, .. } => {
                self.timeline.names.insert(*host, name);
                self.lane(*host, false);
            }
            What::Event { name, severity, message, cluster, host } => {
                let (severity, subject) = (severity.as_str(), host.or(*cluster));
                self.row(Row { severity, subject, name: name.into(), text: message.into(), ..row("event") });
            }
            What::HostDid { host, what } => {
                let bad = what.is_trouble();
                self.lane(*host, false).marks.push(Mark { at, text: what.word(), bad });
                self.row(Row { subject: Some(*host), name: what.word(), ..row("host").warning(bad) });
            }
            What::InCluster { cluster, host, what } => {
                let text = match host {
                    Some(host) => Cow::Owned(format!("{what} ({})", name_of(&self.timeline.names, *host))),
                    None => what.word(),
                };
                self.lane(*cluster, true).marks.push(Mark { at, text, bad: false });
                self.row(Row { subject: host.or(Some(*cluster)), name: what.word(), ..row("cluster") });
            }
            What::UserAction { action, subject, status, reason, .. } => {
                let bad = !(200..300).contains(status);
                let text = match (bad, *status) {
                    (false, code) => format!("HTTP {code}"),
                    (true, 0) => format!("no answer: {reason}"),
                    (true, code) => format!("HTTP {code}: {reason}"),
                };
                let label = if bad { Cow::Owned(format!("{action}: {text}")) } else { action.word() };
                self.timeline.user.push(Mark { at, text: label, bad });
                let (subject, name, text) = (*subject, action.word(), text.into());
                self.row(Row { subject, name, text, ..row("user").warning(bad) });
            }
            What::Fault { name, phase, inject, host, cluster, detail } => {
                self.fault(at, name, *phase);
                let words: Vec<&str> = [phase.as_str(), inject, detail].into_iter().filter(|w| !w.is_empty()).collect();
                let (subject, name, text) = (host.or(*cluster), name.into(), words.join(": ").into());
                self.row(Row { subject, name, text, ..row("fault").warning(true) });
            }
            What::BadAnswer { host, request, status, .. } => {
                let text = match status {
                    0 => format!("connection refused: {request}"),
                    status => format!("HTTP {status}: {request}"),
                };
                self.row(Row {
                    subject: *host,
                    name: "bad-answer".into(),
                    text: text.into(),
                    ..row("service").warning(true)
                });
            }
            What::Killed { program, detail } => {
                self.row(Row { name: program.into(), text: detail.into(), ..row("service").warning(true) });
            }
            What::Unreadable { subject, of, error } => {
                let text = format!("{of} cannot be understood: {error}").into();
                self.row(Row { subject: *subject, name: "unreadable".into(), text, ..row("service").warning(true) });
            }
            What::Incomplete { part, machine, why } => {
                let of = machine.as_deref().map(|machine| format!(" of {machine}")).unwrap_or_default();
                let text = format!("{part}{of}: {why}").into();
                self.row(Row { name: "incomplete".into(), text, ..row("note").warning(true) });
            }
            What::Starved { program, waited_ms, within_ms } => {
                let text = format!("{program} waited {waited_ms} of {within_ms} ms for a processor").into();
                self.row(Row { name: "starved".into(), text, ..row("note").warning(true) });
            }
            What::DatabaseAway { for_ms, why } => {
                let text = format!("PostgreSQL was away for {for_ms} ms: {why}").into();
                self.row(Row { name: "away".into(), text, ..row("note").warning(true) });
            }
            What::Resource { .. } => self.resource(at, &o.what),
            What::Note { text } => self.row(Row { text: text.into(), ..row("note") }),
            What::Machine { machine, did, detail } => {
                let bad = matches!(detail.as_str(), "failed" | "crashed" | "panicked" | "ioerror")
                    || *did == MachineMoment::IoError;
                let text = if detail.is_empty() { did.word() } else { format!("{did}: {detail}").into() };
                self.row(Row { name: machine.into(), text, ..row("machine").warning(bad) });
            }
            What::Console { machine, line, finding: Some(finding) } => {
                let text = format!("{finding}: {line}").into();
                self.row(Row { name: machine.into(), text, ..row("console").warning(true) });
            }
            // What another source saw of a change stands with the change. The rest is too much for a page.
            _ => {}
        }
    }

    /// A resource was made, deleted, or has other conditions. What else changes of it is in the history.
    fn resource(&mut self, at: i64, what: &'a What) {
        let What::Resource { kind, namespace, name, version, is, conditions, .. } = what else { return };
        let mut words: Vec<String> = Vec::new();
        if *is != ResourceState::Changed {
            words.push(is.to_string());
        }
        words.extend(conditions.iter().map(|(condition, to)| match to {
            Some(to) => format!("{condition}={} {}", to.status, to.reason).trim_end().to_owned(),
            None => format!("no {condition} any more"),
        }));
        if !words.is_empty() {
            let whole = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
            let text = format!("{whole}: {} (version {version})", words.join(", ")).into();
            let row = Row::new(at, "resource");
            self.row(Row { subject: name.parse().ok(), name: kind.into(), text, ..row });
        }
    }

    fn fault(&mut self, at: i64, name: &'a str, phase: FaultPhase) {
        let faults = &mut self.timeline.faults;
        let open = faults.iter_mut().rev().find(|f| f.name == name && f.to.is_none());
        match (phase, open) {
            (FaultPhase::Effect, Some(fault)) => fault.effects.push(at),
            (FaultPhase::End, Some(fault)) => fault.to = Some(at.max(fault.from)),
            // A fault that hits several hosts tells of each.
            (FaultPhase::Begin, Some(fault)) if fault.from == at => {}
            (phase, _) => {
                let effects = if phase == FaultPhase::Effect { vec![at] } else { Vec::new() };
                faults.push(FaultSpan { name, from: at, to: (phase == FaultPhase::End).then_some(at), effects });
            }
        }
    }

    fn status(&mut self, t: Transition<'a>, is_cluster: bool) {
        self.timeline.transitions.push(t);
        let lane = self.lane(t.subject, is_cluster);
        let at = end_last(&mut lane.statuses, t.at);
        lane.ended = false;
        lane.statuses.push(Span { from: at, to: i64::MAX, value: t.to, info: t.info });
    }

    fn stage(&mut self, t: Transition<'a>, is_cluster: bool) {
        let lane = self.lane(t.subject, is_cluster);
        if t.from == t.to {
            // Only the text of the stage changed.
            if let Some(last) = lane.stages.last_mut().filter(|s| s.to == i64::MAX)
                && !t.info.is_empty()
            {
                last.info = t.info;
            }
            return;
        }
        let at = end_last(&mut lane.stages, t.at);
        if !t.to.is_empty() {
            lane.stages.push(Span { from: at, to: i64::MAX, value: t.to, info: t.info });
        }
        self.timeline.transitions.push(t);
    }

    fn finish(self) -> Lanes<'a> {
        let mut timeline = self.timeline;
        for (id, mut lane) in self.lanes {
            lane.name = name_of(&timeline.names, id);
            for span in lane.statuses.iter_mut().chain(&mut lane.stages) {
                span.to = span.to.min(timeline.length);
            }
            lane.marks.sort_by_key(|m| m.at);
            if lane.is_cluster { timeline.clusters.push(lane) } else { timeline.hosts.push(lane) }
        }
        timeline.clusters.sort_by(|a, b| natural(&a.name).cmp(&natural(&b.name)));
        timeline.hosts.sort_by_cached_key(|h| {
            let role = match h.role {
                Some(HostRole::Bootstrap | HostRole::Master) => 0,
                Some(HostRole::Arbiter) => 1,
                Some(HostRole::Worker) => 2,
                Some(HostRole::AutoAssign) | None => 3,
            };
            let (stem, number) = natural(&h.name);
            (role, stem.to_owned(), number, h.id)
        });
        timeline.transitions.sort_by_key(|t| t.at);
        timeline.rows.sort_by_key(|r| r.at);
        timeline.user.sort_by_key(|m| m.at);
        timeline
    }
}

/// Ends the last span at `at`, or where it began if that is later, and says where the next one begins.
fn end_last(spans: &mut [Span<'_>], at: i64) -> i64 {
    match spans.last_mut() {
        Some(last) => {
            let at = at.max(last.from);
            last.to = last.to.min(at);
            at
        }
        None => at,
    }
}

/// A name without its number, and the number: `master-10` comes after `master-9`.
pub fn natural(name: &str) -> (&str, u64) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use vlab_model::history::Source;

    use super::*;

    fn status(seq: u64, source: Source, ms: i64, from: Option<HostStatus>, to: HostStatus) -> Observation {
        let host = Uuid::from_u128(1);
        Observation {
            v: 1,
            seq,
            source,
            service_time: Some(Timestamp::from_micros(ms * 1000)),
            harness_time: Timestamp::from_micros(ms * 1000 + 500),
            what: What::HostStatus { host, cluster: None, from, to, info: String::new() },
        }
    }

    use HostStatus::{Discovering, Insufficient, Known};

    #[test]
    fn the_database_is_the_truth_and_others_confirm() {
        let history = [
            status(0, Source::Database, 0, None, Discovering),
            status(1, Source::Database, 10, Some(Discovering), Insufficient),
            status(2, Source::Database, 20, Some(Insufficient), Known),
            // The poll was slow, and missed one.
            status(3, Source::Poll, 30, Some(Discovering), Known),
            status(4, Source::Events, 40, Some(Insufficient), Known),
        ];
        let timeline = Lanes::read(&history);
        let spans: Vec<_> = timeline.hosts[0].statuses.iter().map(|s| (s.from, s.to, s.value)).collect();
        assert_eq!(spans, [(0, 10_000, "discovering"), (10_000, 20_000, "insufficient"), (20_000, 40_000, "known")]);
        assert_eq!(timeline.transitions.len(), 3);
        assert_eq!(timeline.transitions[2].sources.to_string(), "database events");
        assert_eq!(timeline.hosts[0].name, "00000000");
    }

    #[test]
    fn without_a_database_the_first_to_see_counts() {
        let history = [
            status(0, Source::Poll, 0, None, Discovering),
            status(1, Source::Events, 5, None, Discovering),
            status(2, Source::Poll, 10, Some(Discovering), Known),
        ];
        let timeline = Lanes::read(&history);
        assert_eq!(timeline.hosts[0].statuses.len(), 2);
        assert_eq!(timeline.transitions[0].sources.to_string(), "events poll");
    }

    #[test]
    fn nonsense_times_do_not_stretch_the_axis() {
        let mut history =
            vec![status(0, Source::Database, 0, None, Discovering), status(1, Source::Database, 50, None, Known)];
        history[1].service_time = Some(Timestamp::UNSET);
        assert_eq!(Lanes::read(&history).length, 50_500);
        assert_eq!(Lanes::read(&[]).length, 1);
    }

    #[test]
    fn numbers_in_names_count() {
        let mut names = ["worker-10", "worker-9", "a", "worker-1"];
        names.sort_by_key(|n| natural(n));
        assert_eq!(names, ["a", "worker-1", "worker-9", "worker-10"]);
    }
}
