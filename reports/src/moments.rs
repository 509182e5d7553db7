//! Everything that a history tells, as columns from which the state of every host and cluster at any moment can be made: when,
//! whom it is about, and what it says. What is said often stands there once.
//!
//! [`Moments::read`] reads a history, [`columns`] writes it for the page.

pub mod columns;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;
use vlab_api::types::{HostRole, HostStage};
use vlab_history::timeline::{Change, HostOrCluster};
use vlab_model::history::{FaultPhase, Observation, ResourceState, What};
use vlab_model::validation::ValidationStatus;

use crate::logs::LogLine;
use crate::timeline::{Lanes, when};

/// What kind of thing is said. The order is that of [`MomentKind::ALL`]; the page knows the kinds by these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the words say it")]
pub enum MomentKind {
    Status,
    Stage,
    Percent,
    Role,
    Words,
    Validation,
    Operator,
    Logs,
    Machine,
    Fault,
    Step,
    Deleted,
    Event,
    User,
    Did,
    Resource,
    Console,
    Note,
    Request,
    Log,
    Warning,
}

impl MomentKind {
    /// All, in their order.
    pub const ALL: [Self; 21] = [
        Self::Status,
        Self::Stage,
        Self::Percent,
        Self::Role,
        Self::Words,
        Self::Validation,
        Self::Operator,
        Self::Logs,
        Self::Machine,
        Self::Fault,
        Self::Step,
        Self::Deleted,
        Self::Event,
        Self::User,
        Self::Did,
        Self::Resource,
        Self::Console,
        Self::Note,
        Self::Request,
        Self::Log,
        Self::Warning,
    ];

    /// The word that the page knows.
    pub fn word(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Stage => "stage",
            Self::Percent => "percent",
            Self::Role => "role",
            Self::Words => "words",
            Self::Validation => "validation",
            Self::Operator => "operator",
            Self::Logs => "logs",
            Self::Machine => "machine",
            Self::Fault => "fault",
            Self::Step => "step",
            Self::Deleted => "deleted",
            Self::Event => "event",
            Self::User => "user",
            Self::Did => "did",
            Self::Resource => "resource",
            Self::Console => "console",
            Self::Note => "note",
            Self::Request => "request",
            Self::Log => "log",
            Self::Warning => "warning",
        }
    }

    /// What of this kind is called where it is left out.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Status => "statuses",
            Self::Stage => "stages",
            Self::Percent => "percentages",
            Self::Role => "roles",
            Self::Words => "words of the service",
            Self::Validation => "validations",
            Self::Operator => "operators",
            Self::Logs => "states of logs",
            Self::Machine => "events of machines",
            Self::Fault => "faults",
            Self::Step => "steps",
            Self::Deleted => "deletions",
            Self::Event => "events of the service",
            Self::User => "actions of the user",
            Self::Did => "moments of hosts",
            Self::Resource => "changes of resources",
            Self::Console => "lines of consoles",
            Self::Note => "notes",
            Self::Request => "requests",
            Self::Log => "lines of logs",
            Self::Warning => "warnings and errors in logs",
        }
    }
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The run itself: what is about no host and no cluster.
    Run,
    /// A cluster.
    Cluster,
    /// A host, or a machine that is not a host yet.
    Host,
}

/// Somebody of whom something is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// What it is.
    pub sort: Sort,
}

/// Something that is said, maybe often.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fact<'a> {
    /// What kind of thing.
    pub kind: MomentKind,
    /// Which one of that kind: a validation, an operator, a fault, a resource and its condition.
    pub key: Cow<'a, str>,
    /// What it is now; empty: nothing any more.
    pub value: Cow<'a, str>,
    /// More words.
    pub info: Cow<'a, str>,
}

impl<'a> Fact<'a> {
    fn new(kind: MomentKind, key: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) -> Self {
        Self { kind, key: key.into(), value: value.into(), info: Cow::Borrowed("") }
    }

    fn info(self, info: impl Into<Cow<'a, str>>) -> Self {
        Self { info: info.into(), ..self }
    }
}

/// Something is said of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Microseconds since the start.
    pub at: i64,
    /// Of whom: a place in [`Moments::who`].
    pub who: u32,
    /// What: a place in [`Moments::facts`].
    pub fact: u32,
}

/// A history as columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moments<'a> {
    /// Of whom something is said: the run, clusters by name, hosts by role and name.
    pub who: Vec<Who<'a>>,
    /// What is said.
    pub facts: Vec<Fact<'a>>,
    /// Everything, in order of time.
    pub items: Vec<Moment>,
}

impl<'a> Moments<'a> {
    /// Reads a history, whose timeline is known, and what programs logged meanwhile.
    pub fn read(history: &'a [Observation], timeline: &Lanes<'a>, logs: &'a [LogLine]) -> Self {
        let mut reader = Reader::new(history, timeline);
        for (observation, change) in vlab_history::Timeline::new(history).walk() {
            let at = timeline.offset(when(observation)).clamp(0, timeline.length);
            match change {
                Some(change) => reader.change(at, change),
                None => reader.take(at, &observation.what),
            }
        }
        for line in logs {
            reader.log(timeline.offset(line.at).clamp(0, timeline.length), line);
        }
        let mut moments = reader.moments;
        moments.items.sort_by_key(|item| item.at);
        moments
    }
}

/// The ids in a text.
fn ids(text: &str) -> impl Iterator<Item = Uuid> {
    /// Characters of an id.
    const ID: usize = 36;
    let words = text.split(|c: char| !c.is_ascii_hexdigit() && c != '-');
    words.filter(|word| word.len() == ID).filter_map(|word| word.parse().ok())
}

struct Reader<'a> {
    moments: Moments<'a>,
    known: HashMap<Fact<'a>, u32>,
    ids: HashMap<Uuid, u32>,
    /// Hosts by their names: what happens to machines is told by name.
    names: HashMap<Cow<'a, str>, u32>,
    /// Clusters by their names: their resources are called like them.
    clusters: HashMap<Cow<'a, str>, u32>,
    percent: HashMap<u32, i64>,
    /// Whom the open faults hit.
    open: BTreeMap<&'a str, Vec<u32>>,
}

const RUN: u32 = 0;

impl<'a> Reader<'a> {
    fn new(history: &'a [Observation], timeline: &Lanes<'a>) -> Self {
        let mut reader = Self {
            moments: Moments::default(),
            known: HashMap::new(),
            ids: HashMap::new(),
            names: HashMap::new(),
            clusters: HashMap::new(),
            percent: HashMap::new(),
            open: BTreeMap::new(),
        };
        reader.moments.items.reserve(history.len());
        reader.moments.who.push(Who { name: "the run".into(), sort: Sort::Run });
        for lane in timeline.clusters.iter().chain(&timeline.hosts) {
            let sort = if lane.is_cluster { Sort::Cluster } else { Sort::Host };
            let place = reader.place(lane.name.clone(), sort);
            reader.ids.insert(lane.id, place);
            let names = if lane.is_cluster { &mut reader.clusters } else { &mut reader.names };
            names.insert(lane.name.clone(), place);
        }
        reader
    }

    fn place(&mut self, name: Cow<'a, str>, sort: Sort) -> u32 {
        self.moments.who.push(Who { name, sort });
        self.moments.who.len() as u32 - 1
    }

    /// Who has that id. What is never named and has no state belongs to the run.
    fn who(&self, id: Option<Uuid>) -> u32 {
        id.and_then(|id| self.ids.get(&id).copied()).unwrap_or(RUN)
    }

    fn machine(&mut self, name: &'a str) -> u32 {
        if let Some(place) = self.names.get(name) {
            return *place;
        }
        let place = self.place(name.into(), Sort::Host);
        self.names.insert(name.into(), place);
        place
    }

    fn say(&mut self, at: i64, who: u32, fact: Fact<'a>) {
        let next = self.moments.facts.len() as u32;
        let place = match self.known.get(&fact) {
            Some(place) => *place,
            None => {
                self.moments.facts.push(fact.clone());
                self.known.insert(fact, next);
                next
            }
        };
        self.moments.items.push(Moment { at, who, fact: place });
    }

    fn percent(&mut self, at: i64, who: u32, percent: i64) {
        if self.percent.insert(who, percent).unwrap_or(0) != percent {
            self.say(at, who, Fact::new(MomentKind::Percent, "", percent.to_string()));
        }
    }

    /// A state changed.
    fn change(&mut self, at: i64, change: Change<'a>) {
        let (HostOrCluster::Host(id) | HostOrCluster::Cluster(id)) = change.subject;
        let who = self.who(Some(id));
        let fact = match &change.observation.what {
            What::HostStatus { to, info, .. } => Fact::new(MomentKind::Status, "", to.as_str()).info(info),
            What::ClusterStatus { to, info, .. } => Fact::new(MomentKind::Status, "", to.as_str()).info(info),
            What::HostStage { to, info, percentage, .. } => {
                self.percent(at, who, *percentage);
                Fact::new(MomentKind::Stage, "", to.map_or("", HostStage::as_str)).info(info)
            }
            What::ClusterFinalizingStage { stage, .. } => Fact::new(MomentKind::Stage, "", stage.as_str()),
            What::ClusterProgress { total, .. } => return self.percent(at, who, *total),
            What::HostRole { role, bootstrap, .. } => {
                let more = if *bootstrap { "bootstrap" } else { "" };
                Fact::new(MomentKind::Role, "", HostRole::as_str(*role)).info(more)
            }
            What::HostDeleted { .. } => Fact::new(MomentKind::Deleted, "", "deleted"),
            What::StatusInfo { info, .. } => Fact::new(MomentKind::Words, "", info),
            What::HostLogs { state, .. } | What::ClusterLogs { state, .. } => {
                Fact::new(MomentKind::Logs, "", state.as_str())
            }
            What::Validation { id, to, message, .. } => {
                Fact::new(MomentKind::Validation, id, to.map_or("", ValidationStatus::as_str)).info(message)
            }
            What::Operator { name, status, .. } => {
                Fact::new(MomentKind::Operator, name, status.map_or("", |status| status.as_str()))
            }
            _ => return,
        };
        self.say(at, who, fact);
    }

    /// Something happened that is no change of a state.
    fn take(&mut self, at: i64, what: &'a What) {
        let (who, fact) = match what {
            What::RunStarted(info) => (RUN, Fact::new(MomentKind::Note, "", "the run starts").info(&info.scenario)),
            What::RunFinished { how } => (RUN, Fact::new(MomentKind::Note, "", "the run ends").info(how.word())),
            What::Event { name, severity, message, cluster, host } => {
                (self.who(host.or(*cluster)), Fact::new(MomentKind::Event, severity.as_str(), name).info(message))
            }
            What::Step { host, step_type, answered, cached, .. } => {
                let how = match (answered, cached) {
                    (None, _) => "asked".into(),
                    (Some(0), true) => "answered as before".into(),
                    (Some(0), false) => "answered".into(),
                    (Some(code), _) => Cow::Owned(format!("answered with exit code {code}")),
                };
                (self.who(Some(*host)), Fact::new(MomentKind::Step, "", step_type).info(how))
            }
            What::HostDid { host, what } => (self.who(Some(*host)), Fact::new(MomentKind::Did, "", what.word())),
            What::InCluster { cluster, host, what } => {
                (self.who(host.or(Some(*cluster))), Fact::new(MomentKind::Did, "", what.word()).info("in the cluster"))
            }
            What::UserAction { action, subject, status, reason, .. } => {
                let answer = match status {
                    0 => format!("no answer: {reason}"),
                    status if reason.is_empty() => format!("HTTP {status}"),
                    status => format!("HTTP {status}: {reason}"),
                };
                (self.who(*subject), Fact::new(MomentKind::User, "", action.word()).info(answer))
            }
            What::Fault { .. } => return self.fault(at, what),
            What::BadAnswer { host, request, status, .. } => {
                let answer = if *status == 0 { "connection refused".into() } else { format!("HTTP {status}") };
                (self.who(*host), Fact::new(MomentKind::Note, "", answer).info(request))
            }
            What::Request { host, request, status, took_ms } => {
                let answer = if *status == 0 { "no answer".into() } else { format!("HTTP {status}") };
                (
                    self.who(*host),
                    Fact::new(MomentKind::Request, "", request).info(format!("{answer} after {took_ms} ms")),
                )
            }
            What::Killed { program, detail } => {
                (RUN, Fact::new(MomentKind::Note, "", format!("{program} was killed")).info(detail))
            }
            What::Unreadable { subject, of, error } => {
                (self.who(*subject), Fact::new(MomentKind::Note, "", format!("{of} cannot be understood")).info(error))
            }
            What::Incomplete { part, machine, why } => {
                let of = machine.as_deref().map(|machine| format!(" of {machine}")).unwrap_or_default();
                (RUN, Fact::new(MomentKind::Note, "", format!("incomplete: {part}{of}")).info(why))
            }
            What::Starved { program, waited_ms, within_ms } => {
                let text = format!("{program} waited {waited_ms} of {within_ms} ms for a processor");
                (RUN, Fact::new(MomentKind::Note, "", text))
            }
            What::DatabaseAway { for_ms, why } => {
                (RUN, Fact::new(MomentKind::Note, "", format!("PostgreSQL was away for {for_ms} ms")).info(why))
            }
            What::Resource { .. } => return self.resource(at, what),
            What::Note { text } => (RUN, Fact::new(MomentKind::Note, "", text)),
            What::Machine { machine, did, detail } => {
                (self.machine(machine), Fact::new(MomentKind::Machine, "", did.word()).info(detail))
            }
            What::Console { machine, line, finding } => {
                (self.machine(machine), Fact::new(MomentKind::Console, finding.as_deref().unwrap_or(""), line))
            }
            // Names are known already; what another source saw of a change stands with the change.
            _ => return,
        };
        self.say(at, who, fact);
    }

    /// A line of a log is of the host whose id is in it, or of the cluster.
    fn log(&mut self, at: i64, line: &'a LogLine) {
        let mut who = RUN;
        for id in ids(&line.text) {
            match self.ids.get(&id) {
                Some(place) if self.moments.who[*place as usize].sort == Sort::Host => {
                    who = *place;
                    break;
                }
                Some(place) => who = *place,
                None => {}
            }
        }
        let kind = if line.level.is_empty() { MomentKind::Log } else { MomentKind::Warning };
        self.say(at, who, Fact::new(kind, line.level, line.program).info(&line.text));
    }

    /// A resource is of the host or the cluster that it is called like; each of its conditions is a state of its own.
    fn resource(&mut self, at: i64, what: &'a What) {
        let What::Resource { kind, namespace, name, version, is, conditions, .. } = what else { return };
        let of_host = name.parse().ok().map(|id| self.who(Some(id))).filter(|who| *who != RUN);
        let who = of_host.or(self.clusters.get(name.as_str()).copied()).unwrap_or(RUN);
        let key: Cow<'a, str> = match who {
            RUN if namespace.is_empty() => format!("{kind} {name}").into(),
            RUN => format!("{kind} {namespace}/{name}").into(),
            _ => kind.into(),
        };
        if *is != ResourceState::Changed {
            let info = format!("version {version}");
            self.say(at, who, Fact::new(MomentKind::Resource, key.clone(), is.as_str()).info(info));
        }
        for (condition, to) in conditions {
            let key = format!("{key} {condition}");
            let fact = match to {
                Some(to) => Fact::new(MomentKind::Resource, key, to.status.as_str()).info(&to.reason),
                None => Fact::new(MomentKind::Resource, key, ""),
            };
            self.say(at, who, fact);
        }
    }

    /// A fault is a state of whom it hits, from its begin to its end; the end may name nobody.
    fn fault(&mut self, at: i64, what: &'a What) {
        let What::Fault { name, phase, inject, host, cluster, detail } = what else { return };
        let who = self.who(host.or(*cluster));
        let words: Vec<&str> = [phase.as_str(), inject, detail].into_iter().filter(|word| !word.is_empty()).collect();
        let info = words.join(": ");
        match phase {
            FaultPhase::Begin => self.open.entry(name).or_default().push(who),
            FaultPhase::End => {
                let hit = self.open.remove(name.as_str()).unwrap_or_else(|| vec![who]);
                for who in hit {
                    self.say(at, who, Fact::new(MomentKind::Fault, name, "").info(info.clone()));
                }
                return;
            }
            // Without a begin there is no state to which the effect belongs.
            FaultPhase::Effect if !self.open.contains_key(name.as_str()) => {
                return self.say(at, who, Fact::new(MomentKind::Note, "", name).info(info));
            }
            FaultPhase::Effect => {}
        }
        self.say(at, who, Fact::new(MomentKind::Fault, name, "active").info(info));
    }
}

#[cfg(test)]
mod tests {
    use vlab_api::Timestamp;
    use vlab_api::types::HostStatus;
    use vlab_model::history::{HostsKind, MachineMoment, Source};

    use super::*;

    fn history(all: Vec<What>) -> Vec<Observation> {
        let number = |(i, what): (usize, What)| Observation {
            v: 1,
            seq: i as u64,
            source: Source::Database,
            service_time: None,
            harness_time: Timestamp::from_micros(1_000_000 + i as i64 * 1000),
            what,
        };
        all.into_iter().enumerate().map(number).collect()
    }

    /// Each item in words: when in milliseconds, whom, what.
    fn told(all: Vec<What>) -> Vec<String> {
        let history = history(all);
        let moments = Moments::read(&history, &Lanes::read(&history), &[]);
        let words = |item: &Moment| {
            let fact = &moments.facts[item.fact as usize];
            let who = &moments.who[item.who as usize].name;
            let words = [fact.kind.word(), &fact.key, &fact.value, &fact.info];
            let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
            format!("{} {who}: {}", item.at / 1000, words.join(" "))
        };
        moments.items.iter().map(words).collect()
    }

    fn fault(phase: FaultPhase, host: Option<Uuid>) -> What {
        What::Fault { name: "cut".into(), phase, inject: String::new(), host, cluster: None, detail: String::new() }
    }

    #[test]
    fn a_fault_is_a_state_of_all_whom_it_hits_until_its_end() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let named = |host, name: &str| What::HostNamed { host, name: name.into(), kind: HostsKind::Simulated };
        let all = vec![
            named(a, "a"),
            named(b, "b"),
            fault(FaultPhase::Effect, Some(a)),
            fault(FaultPhase::Begin, Some(a)),
            fault(FaultPhase::Begin, Some(b)),
            fault(FaultPhase::End, None),
        ];
        assert_eq!(
            told(all),
            [
                "2 a: note cut effect",
                "3 a: fault cut active begin",
                "4 b: fault cut active begin",
                "5 a: fault cut end",
                "5 b: fault cut end",
            ]
        );
    }

    #[test]
    fn machines_are_their_hosts_also_before_these_have_an_id() {
        let host = Uuid::from_u128(1);
        let machine = |name: &str| What::Machine {
            machine: name.into(),
            did: MachineMoment::of("started"),
            detail: String::new(),
        };
        let all = vec![
            machine("a"),
            machine("never-a-host"),
            What::HostNamed { host, name: "a".into(), kind: HostsKind::Vm },
            What::Console { machine: "a".into(), line: "login:".into(), finding: None },
        ];
        assert_eq!(told(all), ["0 a: machine started", "1 never-a-host: machine started", "3 a: console login:"]);
    }

    #[test]
    fn what_is_said_often_stands_there_once() {
        let host = Uuid::from_u128(1);
        let status = |to| What::HostStatus { host, cluster: None, from: None, to, info: "why".into() };
        let all = [HostStatus::Known, HostStatus::Disconnected].into_iter().cycle().take(10).map(status).collect();
        let history = history(all);
        let moments = Moments::read(&history, &Lanes::read(&history), &[]);
        assert_eq!((moments.items.len(), moments.facts.len()), (10, 2));
    }
}
