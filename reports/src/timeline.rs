//! Reads a history once and says what there is to draw: a lane for each host and cluster with the spans in which it had a
//! status or a stage, every transition, and the rows of the events table. No drawing here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{HostRole, HostStage, HostStatus};
use vlab_model::history::{FaultPhase, MachineMoment, Observation, Source, What};

/// All sources, in the order of their bits in [`Transition::sources`].
const SOURCES: [(Source, &str); 6] = [
    (Source::Database, "database"),
    (Source::Events, "events"),
    (Source::Poll, "poll"),
    (Source::Harness, "harness"),
    (Source::Hosts, "hosts"),
    (Source::Console, "console"),
];

fn bit(source: Source) -> u8 {
    SOURCES.iter().position(|(s, _)| *s == source).map_or(0, |i| 1 << i)
}

/// The words for a set of sources.
pub fn source_names(sources: u8) -> String {
    let names: Vec<&str> =
        SOURCES.iter().enumerate().filter(|(i, _)| sources & (1 << i) != 0).map(|(_, (_, name))| *name).collect();
    names.join(" ")
}

/// A time in which something had one value. Times are microseconds since the start of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// Begin.
    pub from: i64,
    /// End.
    pub to: i64,
    /// Value.
    pub value: &'a str,
    /// The service's words, or the progress text.
    pub info: &'a str,
}

/// Something that happened at one moment, microseconds after the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark<'a> {
    /// When.
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
    /// Who saw it, see [`source_names`].
    pub sources: u8,
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

/// Everything that there is to draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline<'a> {
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

impl<'a> Timeline<'a> {
    /// Reads `history`. With an empty history the timeline is empty and one microsecond long.
    pub fn read(history: &'a [Observation]) -> Self {
        let mut reader = Reader::new(history);
        for observation in history {
            reader.take(observation);
        }
        reader.finish()
    }

    /// Name of a host or cluster.
    pub fn name(&self, id: Uuid) -> Cow<'a, str> {
        name_of(&self.names, id)
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
fn when(observation: &Observation) -> Timestamp {
    const DAY: i64 = 86_400_000_000;
    let harness = observation.harness_time;
    match observation.service_time {
        Some(t) if t.is_set() && t.as_micros().saturating_sub(harness.as_micros()).abs() < DAY => t,
        _ => harness,
    }
}

struct Reader<'a> {
    timeline: Timeline<'a>,
    lanes: BTreeMap<Uuid, Lane<'a>>,
    /// The database saw changes of status or stage: then other sources only confirm.
    database: bool,
    /// (subject, kind, from, to) to transitions, for confirmations.
    index: BTreeMap<(Uuid, &'static str, &'a str, &'a str), Vec<usize>>,
}

impl<'a> Reader<'a> {
    fn new(history: &'a [Observation]) -> Self {
        let times = || history.iter().map(when).filter(|t| t.is_set());
        let start = times().min().unwrap_or_default();
        let end = times().max().unwrap_or_default();
        let database = history.iter().any(|o| {
            o.source == Source::Database
                && matches!(o.what, What::HostStatus { .. } | What::HostStage { .. } | What::ClusterStatus { .. })
        });
        let timeline =
            Timeline { start, length: end.as_micros().saturating_sub(start.as_micros()).max(1), ..Timeline::default() };
        Self { timeline, lanes: BTreeMap::new(), database, index: BTreeMap::new() }
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

    /// Notes a change. Is it new (and not only seen by one more source)?
    fn change(&mut self, transition: Transition<'a>, source: Source, current: &str) -> bool {
        let key = (transition.subject, transition.kind, transition.from, transition.to);
        let confirms = if self.database { source != Source::Database } else { current == transition.to };
        if confirms {
            let seen = self.index.get(&key).into_iter().flatten();
            let unconfirmed = seen.copied().find(|i| self.timeline.transitions[*i].sources & bit(source) == 0);
            if let Some(i) = unconfirmed {
                self.timeline.transitions[i].sources |= bit(source);
            }
            return false;
        }
        self.index.entry(key).or_default().push(self.timeline.transitions.len());
        self.timeline.transitions.push(transition);
        true
    }

    fn row(&mut self, row: Row<'a>) {
        self.timeline.rows.push(row);
    }

    fn take(&mut self, o: &'a Observation) {
        let at = self.timeline.offset(when(o));
        let sources = bit(o.source);
        let row = |kind, severity, subject, name: Cow<'a, str>, text: Cow<'a, str>| Row {
            at,
            kind,
            severity,
            subject,
            name,
            text,
        };
        match &o.what {
            What::RunStarted(info) => {
                self.row(row("run", "info", None, "run-started".into(), Cow::Borrowed(&info.scenario)))
            }
            What::RunFinished { how } => self.row(row("run", "info", None, "run-finished".into(), how.word())),
            What::ClusterNamed { cluster, name, .. } => {
                self.timeline.names.insert(*cluster, name);
            }
            What::HostNamed { host, name, .. } => {
                self.timeline.names.insert(*host, name);
                self.lane(*host, false);
            }
            What::HostStatus { host, from, to, info, .. } => {
                let from = from.map_or("", HostStatus::as_str);
                self.status(at, *host, false, from, to.as_str(), info, o.source);
            }
            What::ClusterStatus { cluster, from, to, info } => {
                let from = from.map_or("", |s| s.as_str());
                self.status(at, *cluster, true, from, to.as_str(), info, o.source);
            }
            What::HostStage { host, from, to, info, .. } => {
                let from = from.map_or("", HostStage::as_str);
                self.stage(at, *host, false, from, to.map_or("", HostStage::as_str), info, o.source);
            }
            What::ClusterFinalizingStage { cluster, stage } => {
                let from = self.lane(*cluster, true).stages.last().map_or("", |s| s.value);
                self.stage(at, *cluster, true, from, stage.as_str(), "", o.source);
            }
            What::HostRole { host, role, bootstrap } => {
                let lane = self.lane(*host, false);
                let before = (lane.role.map_or("", HostRole::as_str), lane.bootstrap);
                (lane.role, lane.bootstrap) = (Some(*role), *bootstrap);
                if before != (role.as_str(), *bootstrap) {
                    let info = if *bootstrap { "bootstrap" } else { "" };
                    let (from, to) = (before.0, role.as_str());
                    let t = Transition { at, subject: *host, kind: "role", which: "", from, to, info, sources };
                    self.timeline.transitions.push(t);
                }
            }
            What::HostDeleted { host } => {
                let lane = self.lane(*host, false);
                lane.ended = true;
                for span in lane.statuses.last_mut().into_iter().chain(lane.stages.last_mut()) {
                    span.to = at.max(span.from);
                }
                self.row(row("host", "info", Some(*host), "deleted".into(), Cow::Borrowed("")));
            }
            What::Validation { subject, id, from, to, message, .. } => {
                use vlab_model::validation::ValidationStatus as V;
                let word = |s: Option<V>| match s {
                    None => "",
                    Some(V::Success) => "success",
                    Some(V::Failure) => "failure",
                    Some(V::Pending) => "pending",
                    Some(V::Error) => "error",
                    Some(V::Disabled) => "disabled",
                };
                let (from, to) = (word(*from), word(*to));
                let (kind, which, info) = ("validation", id.as_str(), message.as_str());
                self.timeline.transitions.push(Transition {
                    at,
                    subject: *subject,
                    kind,
                    which,
                    from,
                    to,
                    info,
                    sources,
                });
            }
            What::Operator { cluster, name, status } => {
                let to = status.map_or("", |s| s.as_str());
                let (kind, which) = ("operator", name.as_str());
                let t = Transition { at, subject: *cluster, kind, which, from: "", to, info: "", sources };
                self.timeline.transitions.push(t);
            }
            What::Event { name, severity, message, cluster, host } => {
                self.row(row("event", severity.as_str(), host.or(*cluster), name.into(), Cow::Borrowed(message)));
            }
            What::HostDid { host, what } => {
                let bad = what.is_trouble();
                self.lane(*host, false).marks.push(Mark { at, text: what.word(), bad });
                self.row(row("host", if bad { "warning" } else { "info" }, Some(*host), what.word(), "".into()));
            }
            What::InCluster { cluster, host, what } => {
                let text = match host {
                    Some(host) => Cow::Owned(format!("{what} ({})", name_of(&self.timeline.names, *host))),
                    None => what.word(),
                };
                self.lane(*cluster, true).marks.push(Mark { at, text, bad: false });
                self.row(row("cluster", "info", host.or(Some(*cluster)), what.word(), "".into()));
            }
            What::UserAction { action, subject, status, reason } => {
                let bad = !(200..300).contains(status);
                let text = match (bad, *status) {
                    (false, code) => Cow::Owned(format!("HTTP {code}")),
                    (true, 0) => Cow::Owned(format!("no answer: {reason}")),
                    (true, code) => Cow::Owned(format!("HTTP {code}: {reason}")),
                };
                let label = if bad { Cow::Owned(format!("{action}: {text}")) } else { action.word() };
                self.timeline.user.push(Mark { at, text: label, bad });
                self.row(row("user", if bad { "warning" } else { "info" }, *subject, action.word(), text));
            }
            What::Fault { name, phase, inject, host, cluster, detail } => {
                let faults = &mut self.timeline.faults;
                let open = faults.iter_mut().rev().find(|f| f.name == name && f.to.is_none());
                match (phase, open) {
                    (FaultPhase::Effect, Some(fault)) => fault.effects.push(at),
                    (FaultPhase::End, Some(fault)) => fault.to = Some(at.max(fault.from)),
                    // A fault that hits several hosts tells of each.
                    (FaultPhase::Begin, Some(fault)) if fault.from == at => {}
                    (FaultPhase::Begin, _) | (_, None) => {
                        let effects = if *phase == FaultPhase::Effect { vec![at] } else { Vec::new() };
                        let to = (*phase == FaultPhase::End).then_some(at);
                        faults.push(FaultSpan { name, from: at, to, effects });
                    }
                }
                let words = [phase.as_str(), inject, detail];
                let words: Vec<&str> = words.into_iter().filter(|w| !w.is_empty()).collect();
                self.row(row("fault", "warning", host.or(*cluster), name.into(), Cow::Owned(words.join(": "))));
            }
            What::Note { text } => self.row(row("note", "info", None, "".into(), Cow::Borrowed(text))),
            What::Machine { machine, did, detail } => {
                let bad = matches!(detail.as_str(), "failed" | "crashed" | "panicked" | "ioerror")
                    || *did == MachineMoment::IoError;
                let text = if detail.is_empty() { did.to_string() } else { format!("{did}: {detail}") };
                self.row(row("machine", if bad { "warning" } else { "info" }, None, machine.into(), Cow::Owned(text)));
            }
            What::Console { machine, line, finding: Some(finding) } => {
                let text = Cow::Owned(format!("{finding}: {line}"));
                self.row(row("console", "warning", None, machine.into(), text));
            }
            // Too many for a page; they are in the history.
            What::Step { .. }
            | What::ClusterProgress { .. }
            | What::HostLogs { .. }
            | What::ClusterLogs { .. }
            | What::Console { finding: None, .. } => {}
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the members of one observation")]
    fn status(
        &mut self,
        at: i64,
        id: Uuid,
        is_cluster: bool,
        from: &'a str,
        to: &'a str,
        info: &'a str,
        source: Source,
    ) {
        let current = self.lane(id, is_cluster).last_status().to_owned();
        let (kind, which, sources) = ("status", "", bit(source));
        let t = Transition { at, subject: id, kind, which, from, to, info, sources };
        if !self.change(t, source, &current) {
            return;
        }
        let lane = self.lane(id, is_cluster);
        let at = end_last(&mut lane.statuses, at);
        lane.ended = false;
        lane.statuses.push(Span { from: at, to: i64::MAX, value: to, info });
    }

    #[expect(clippy::too_many_arguments, reason = "the members of one observation")]
    fn stage(
        &mut self,
        at: i64,
        id: Uuid,
        is_cluster: bool,
        from: &'a str,
        to: &'a str,
        info: &'a str,
        source: Source,
    ) {
        let lane = self.lane(id, is_cluster);
        let last = lane.stages.last_mut().filter(|s| s.to == i64::MAX);
        let current = last.as_ref().map_or("", |s| s.value).to_owned();
        if from == to {
            // Only the text of the stage changed.
            if let Some(last) = last
                && !info.is_empty()
            {
                last.info = info;
            }
            return;
        }
        let (kind, which, sources) = ("stage", "", bit(source));
        let t = Transition { at, subject: id, kind, which, from, to, info, sources };
        if !self.change(t, source, &current) {
            return;
        }
        let lane = self.lane(id, is_cluster);
        let at = end_last(&mut lane.stages, at);
        if !to.is_empty() {
            lane.stages.push(Span { from: at, to: i64::MAX, value: to, info });
        }
    }

    fn finish(self) -> Timeline<'a> {
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
        let timeline = Timeline::read(&history);
        let spans: Vec<_> = timeline.hosts[0].statuses.iter().map(|s| (s.from, s.to, s.value)).collect();
        assert_eq!(spans, [(0, 10_000, "discovering"), (10_000, 20_000, "insufficient"), (20_000, 40_000, "known")]);
        assert_eq!(timeline.transitions.len(), 3);
        assert_eq!(source_names(timeline.transitions[2].sources), "database events");
        assert_eq!(timeline.hosts[0].name, "00000000");
    }

    #[test]
    fn without_a_database_the_first_to_see_counts() {
        let history = [
            status(0, Source::Poll, 0, None, Discovering),
            status(1, Source::Events, 5, None, Discovering),
            status(2, Source::Poll, 10, Some(Discovering), Known),
        ];
        let timeline = Timeline::read(&history);
        assert_eq!(timeline.hosts[0].statuses.len(), 2);
        assert_eq!(source_names(timeline.transitions[0].sources), "events poll");
    }

    #[test]
    fn nonsense_times_do_not_stretch_the_axis() {
        let mut history =
            vec![status(0, Source::Database, 0, None, Discovering), status(1, Source::Database, 50, None, Known)];
        history[1].service_time = Some(Timestamp::UNSET);
        assert_eq!(Timeline::read(&history).length, 50_500);
        assert_eq!(Timeline::read(&[]).length, 1);
    }

    #[test]
    fn numbers_in_names_count() {
        let mut names = ["worker-10", "worker-9", "a", "worker-1"];
        names.sort_by_key(|n| natural(n));
        assert_eq!(names, ["a", "worker-1", "worker-9", "worker-10"]);
    }
}
