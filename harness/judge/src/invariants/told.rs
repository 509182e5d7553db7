//! The events API tells what happened, when it happened, once, and as seriously as the service's list of events takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStage, HostStatus, LogsState, Severity};
use vlab_history::merge::{self, ToldByEvent};
use vlab_history::{Timeline, watched_until};
use vlab_model::history::{ActionKind, FaultPhase, Interleaved, Observation, Source, UserVerb, What};
use vlab_model::validation::ValidationStatus;
use vlab_model::{cluster, event, host};

use super::calm::Calm;
use super::events::known_until;
use super::found::Found;
use super::limits::Limits;
use super::{Invariant, InvariantResult};

/// The invariant.
pub(super) const TOLD: Invariant = Invariant {
    id: "events-tell",
    number: "I22",
    title: "what happens has its event at that time, once, and of the severity that the service's list of events has",
    needs: "events; more than severities and stages is judged with the built-in service in virtual time, and up to 100 hosts",
};

/// With more hosts a history says nothing new about events.
const UP_TO_HOSTS: usize = 100;

/// An event and what it is about have the same time, but for that of a request on its way.
const NEAR: Duration = Duration::from_secs(2);

/// Two reports of one host that came so close to each other may be told in any order.
const NEAR_STAGES: Duration = Duration::from_millis(50);

/// An agent says what was lost on the way again until it arrives.
const SAID_AGAIN: Duration = Duration::from_secs(60);

/// An answer may be kept from who asked by a fault of the way for so long.
const ANSWERED: Duration = Duration::from_secs(20);

/// What happened and what event tells of it.
struct Cause {
    event: &'static str,
    /// Host or cluster of the event.
    subject: Uuid,
    at: Timestamp,
    /// When it was seen.
    seen: Timestamp,
    seq: u64,
    /// So long before it the event may have been: it is known only from an answer.
    late: Duration,
    /// And so long after it: who told the service may have had to say it again.
    again: Duration,
}

/// The service does what a request asks for within this.
const SAME_REQUEST: Duration = Duration::from_millis(10);

/// What happens while the service is asked for the last events may be told too late for that.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// Events that are told of nothing but what a history shows as a change of a state: none is without one.
const NEVER_ALONE: &[&str] = &[
    "host_status_updated",
    "cluster_status_updated",
    "cluster_finalizing_stage_updated",
    "cluster_installation_completed",
    "cluster_installation_failed",
    "host_install_progress_updated",
    "host_validation_failed",
    "host_validation_fixed",
    "cluster_validation_failed",
    "cluster_validation_fixed",
    "host_bootstrap_set",
];

#[derive(Default)]
struct Teller {
    /// What hosts are, as far as it matters which event follows.
    statuses: BTreeMap<Uuid, HostStatus>,
    bootstraps: BTreeSet<Uuid>,
    /// Told once per host or cluster and no more.
    once: BTreeSet<(&'static str, Uuid)>,
    causes: Vec<Cause>,
    /// Somebody asks by resources. What controllers bind and unbind is not told as what users do over REST.
    over_kube: bool,
}

impl Teller {
    fn add(&mut self, event: &'static str, subject: Uuid, o: &Observation) {
        self.cause(event, subject, o, (Duration::ZERO, NEAR));
    }

    fn add_answered(&mut self, event: &'static str, subject: Uuid, o: &Observation) {
        self.cause(event, subject, o, (ANSWERED, NEAR));
    }

    fn cause(&mut self, event: &'static str, subject: Uuid, o: &Observation, (late, again): (Duration, Duration)) {
        self.causes.push(Cause { event, subject, at: o.at(), seen: o.harness_time, seq: o.seq, late, again });
    }

    /// The first of its kind.
    fn add_once(&mut self, event: &'static str, subject: Uuid, o: &Observation) {
        if self.once.insert((event, subject)) {
            self.add(event, subject, o);
        }
    }

    /// A change of a state.
    fn changed(&mut self, o: &Observation) {
        match &o.what {
            What::HostStatus { host, from, to, info, .. } => self.host(*host, (*from, *to), info, o),
            What::HostStage { host, to: Some(_), .. } => self.add("host_install_progress_updated", *host, o),
            What::HostRole { host, role: HostRole::Master, bootstrap: true } => self.bootstrap(*host, o),
            What::HostRole { host, bootstrap: false, .. } => _ = self.bootstraps.remove(host),
            What::HostLogs { host, state: LogsState::Collecting } => self.add("host_logs_uploaded", *host, o),
            What::ClusterLogs { cluster, state: LogsState::Collecting } => {
                self.add_once("cluster_logs_uploaded", *cluster, o);
            }
            What::ClusterStatus { cluster, from, to, info } => self.cluster(*cluster, (*from, *to), info, o),
            What::ClusterFinalizingStage { cluster, .. } => self.add("cluster_finalizing_stage_updated", *cluster, o),
            What::Validation { subject, is_cluster, from: Some(from), to: Some(to), .. } => {
                use ValidationStatus::{Failure, Success};
                let event = match (from, to, is_cluster) {
                    (Failure, Success, true) => "cluster_validation_fixed",
                    (Failure, Success, false) => "host_validation_fixed",
                    (Failure, ..) => return,
                    (_, Failure, true) => "cluster_validation_failed",
                    (_, Failure, false) => "host_validation_failed",
                    _ => return,
                };
                self.add(event, *subject, o);
            }
            _ => {}
        }
    }

    /// The only node is the bootstrap from the beginning, and nothing is told of it.
    fn bootstrap(&mut self, id: Uuid, o: &Observation) {
        if self.bootstraps.insert(id) && self.statuses.get(&id) == Some(&HostStatus::Known) {
            self.add("host_bootstrap_set", id, o);
        }
    }

    fn host(&mut self, id: Uuid, (from, to): (Option<HostStatus>, HostStatus), info: &str, o: &Observation) {
        self.statuses.insert(id, to);
        let Some(from) = from else { return self.add("host_registration_succeeded", id, o) };
        self.add("host_status_updated", id, o);
        if info == host::WORDS_OF_LOST_MEDIUM {
            self.add("host_media_disconnected", id, o);
        }
        let event = match to {
            // An installer that gave up reported that as a stage, which the row does not keep.
            HostStatus::Error if info.starts_with(HostStage::Failed.as_str()) => "host_install_progress_updated",
            HostStatus::Cancelled => "host_installation_cancelled",
            HostStatus::ResettingPendingUserAction => "host_installation_reset",
            HostStatus::Binding if !self.over_kube => "host_bind_succeeded",
            HostStatus::Unbinding | HostStatus::UnbindingPendingUserAction if !self.over_kube => {
                "host_unbind_succeeded"
            }
            HostStatus::Installing if from == HostStatus::Known && self.over_kube => "host_installation_started",
            _ => return,
        };
        self.add(event, id, o);
    }

    fn cluster(&mut self, id: Uuid, (from, to): (Option<ClusterStatus>, ClusterStatus), info: &str, o: &Observation) {
        let Some(from) = from else { return self.add("cluster_registration_succeeded", id, o) };
        // A cluster that takes more hosts is told by its kind, not by an event.
        if to == ClusterStatus::AddingHosts {
            return;
        }
        self.add("cluster_status_updated", id, o);
        let event = match (from, to) {
            (_, ClusterStatus::Cancelled) => "cluster_installation_canceled",
            (_, ClusterStatus::Error) => "cluster_installation_failed",
            (_, ClusterStatus::Installed) => "cluster_installation_completed",
            (ClusterStatus::PreparingForInstallation, ClusterStatus::Installing) => {
                // Told when what is prepared beside the hosts is there: some time between.
                let begun = self.causes.iter().rfind(|c| c.event == "cluster_status_updated" && c.subject == id);
                let late = begun.map_or(ANSWERED, |_| Duration::from_secs(86_400));
                return self.cause("cluster_prepare_installation_started", id, o, (late, NEAR));
            }
            (ClusterStatus::PreparingForInstallation, ClusterStatus::Ready)
                if info == cluster::WORDS_OF_LATE_PREPARATION =>
            {
                "installation_preparing_timed_out"
            }
            _ => return,
        };
        self.add(event, id, o);
    }

    /// Something else that was seen.
    fn seen(&mut self, o: &Observation) {
        match &o.what {
            What::Operator { cluster, status: Some(_), .. } => self.add("cluster_operator_status", *cluster, o),
            What::Resource { .. } => self.over_kube = true,
            What::UserAction {
                action: UserVerb::Action(ActionKind::Reset),
                subject: Some(cluster),
                status: 200..300,
                ..
            } => {
                self.add_answered("cluster_installation_reset", *cluster, o);
            }
            What::Step { host, step_type, answered: Some(0), cached: false, .. }
                if step_type == "container-image-availability" && self.once.insert(("image_status_updated", *host)) =>
            {
                self.cause("image_status_updated", *host, o, (Duration::ZERO, SAID_AGAIN));
            }
            _ => {}
        }
    }
}

/// Judges it.
pub(super) fn events_tell(timeline: &Timeline<'_>) -> InvariantResult {
    let mut found = Found::default();
    let mut events: BTreeMap<(&str, Uuid), Vec<&Observation>> = BTreeMap::new();
    for o in timeline.observations {
        let What::Event { name, cluster, host, severity, message } = &o.what else { continue };
        events.entry((name, host.or(*cluster).unwrap_or_default())).or_default().push(o);
        if let Some(expected) = event::severity(name) {
            found.check(o.seq, *severity == expected, || wrong_severity(name, *severity, expected));
        }
        if let Some(ToldByEvent::HostStatus(_, to, _)) = merge::told(name, message) {
            let expected = event::of_status(to);
            found.check(o.seq, *severity == expected, || {
                format!("{} of a host that is {to}", wrong_severity(name, *severity, expected))
            });
        }
    }
    stages_told(timeline, &events, &mut found);
    told_twice(timeline, &events, &mut found);
    let told = timeline.run.is_some_and(|run| run.virtual_time && run.settings.is_some());
    if told && timeline.truth == Source::Database && timeline.hosts.len() <= UP_TO_HOSTS && !events.is_empty() {
        compare(timeline, &events, &mut found);
    }
    found.result((&TOLD).into(), || format!("the history does not show {}", TOLD.needs))
}

/// In real time, where nobody knows when an event must be there: each stage that a host reached is told at some time.
fn stages_told(timeline: &Timeline<'_>, events: &BTreeMap<(&str, Uuid), Vec<&Observation>>, found: &mut Found) {
    let history = timeline.observations;
    let limits = Limits::new(timeline.run);
    let virtual_time = timeline.run.is_none_or(|run| run.virtual_time);
    // A service that dies between the two has written the stage and not the event.
    let away = hindered(history);
    let Some(until) = known_until(history).filter(|_| !virtual_time) else { return };
    if timeline.truth != Source::Database || timeline.hosts.len() > UP_TO_HOSTS {
        return;
    }
    for change in &timeline.changes {
        let o = change.observation;
        let What::HostStage { host, to: Some(stage), .. } = &o.what else { continue };
        let told = events.get(&("host_install_progress_updated", *host)).into_iter().flatten();
        // Who tells of something later has told of this.
        let is_over =
            o.at() + limits.event_follows() <= until || told.clone().any(|event| event.at() > o.at() + NEAR_STAGES);
        let was_away = one_between(&away, o.at(), o.at() + limits.event_follows());
        // A host of day 2 reports its reboot and is done.
        if *stage == HostStage::Done || !is_over || was_away {
            continue;
        }
        let is_it = |event: &Observation| {
            let What::Event { name, message, .. } = &event.what else { return false };
            matches!(merge::told(name, message), Some(ToldByEvent::HostStage(told, _)) if told == *stage)
        };
        found.check(o.seq, told.copied().any(is_it), || {
            format!("{}: no event host_install_progress_updated tells of its stage {stage}", name(timeline, *host))
        });
    }
}

fn wrong_severity(name: &str, severity: Severity, expected: Severity) -> String {
    format!("an event {name} has severity {severity} and not {expected}")
}

fn name(timeline: &Timeline<'_>, id: Uuid) -> String {
    match timeline.hosts.contains_key(&id) {
        true => format!("host {}", timeline.host_name(id)),
        false => format!("cluster {}", timeline.cluster_name(id)),
    }
}

/// Events of a name.
#[derive(Default)]
struct Doubles<'h> {
    /// How many different ones there were.
    once: usize,
    /// Those that were there already, and of whom they are.
    again: Vec<(&'h Observation, Uuid)>,
}

/// Two events with the same words about the same thing at the same instant are one too many, whatever the service and its clock.
fn told_twice(timeline: &Timeline<'_>, events: &BTreeMap<(&str, Uuid), Vec<&Observation>>, found: &mut Found) {
    // Who is asked twice has something to tell twice. The service's clock is coarser than the run's.
    let asked_twice: Vec<Timestamp> =
        timeline.observations.iter().filter(|o| was_asked_twice(o)).map(|o| o.harness_time).collect();
    let is_again = |at: Timestamp| asked_twice.iter().any(|then| then.since(at).max(at.since(*then)) <= SAME_REQUEST);
    let virtual_time = timeline.run.is_none_or(|run| run.virtual_time);
    let mut by_name: BTreeMap<&str, Doubles<'_>> = BTreeMap::new();
    for ((event, subject), all) in events {
        let mut told = BTreeSet::new();
        let Doubles { once, again } = by_name.entry(event).or_default();
        for o in all {
            let What::Event { message, .. } = &o.what else { continue };
            if told.insert((o.at(), message.as_str())) {
                *once += 1;
            } else if !is_again(o.at()) {
                again.push((*o, *subject));
            }
        }
    }
    for (event, Doubles { once, again }) in by_name {
        // The real service compares a validation with what is stored, tells, and stores, without a lock: its monitor and a
        // request that look at one moment tell the same. That is rare; who tells everything twice is another matter.
        let two_looks = !virtual_time && is_of_a_validation(event) && 2 * again.len() <= once;
        found.right(once);
        for (o, subject) in again {
            found.check(o.seq, two_looks, || format!("{}: an event {event} is told twice", name(timeline, subject)));
        }
    }
}

fn is_of_a_validation(event: &str) -> bool {
    event.ends_with("_validation_failed") || event.ends_with("_validation_fixed")
}

fn was_asked_twice(o: &Observation) -> bool {
    matches!(o.what, What::Interleaved { did: Interleaved::Twice, .. })
}

/// Compares what happened with the events, where times are exact.
fn compare(timeline: &Timeline<'_>, events: &BTreeMap<(&str, Uuid), Vec<&Observation>>, found: &mut Found) {
    let mut teller = Teller::default();
    for (o, change) in timeline.walk() {
        match change {
            Some(_) => teller.changed(o),
            None => teller.seen(o),
        }
        // What an operator says is a state, too.
        if matches!(o.what, What::Operator { .. }) && change.is_some() {
            teller.seen(o);
        }
    }
    let name = |id: Uuid| name(timeline, id);
    let end = watched_until(timeline.observations);
    let near = |a: Timestamp, b: Timestamp| if a < b { b.since(a) <= NEAR } else { a.since(b) <= NEAR };
    let mut explained: BTreeMap<(&str, Uuid), Vec<Timestamp>> = BTreeMap::new();
    let hindered = hindered(timeline.observations);
    // Several clusters are asked about one after the other, and a service that has just come back answers late.
    let last_look = match (hindered.is_empty(), timeline.clusters.len()) {
        (false, _) => ANSWERED,
        (true, 2..) => NEAR,
        (true, _) => LAST_LOOK,
    };
    let calm = Calm::new(timeline);
    let deleted: BTreeMap<Uuid, Timestamp> = timeline
        .observations
        .iter()
        .filter_map(|o| if let What::HostDeleted { host } = o.what { Some((host, o.harness_time)) } else { None })
        .collect();
    let made = |o: &Observation| match &o.what {
        What::HostStatus { host, from: None, .. } => Some((*host, o.harness_time)),
        _ => None,
    };
    // The last time counts: a host that was deleted may register again.
    let made: BTreeMap<Uuid, Timestamp> = timeline.observations.iter().filter_map(made).collect();
    for cause in &teller.causes {
        let Cause { event, subject, at, seen, seq, late, again } = *cause;
        explained.entry((event, subject)).or_default().push(at);
        // Who is kept from saying it again may come to say it much later, or never.
        if again > NEAR && !calm.host(subject) {
            continue;
        }
        // Of a host that was just deleted, or is meanwhile, nothing need be told.
        let apart = |gone: Timestamp| if gone < seen { seen.since(gone) } else { gone.since(seen) };
        // Nor is anything told of one that says something when it has been gone for long.
        let is_gone = |gone: Timestamp| gone < seen && made.get(&subject).is_none_or(|made| *made < gone);
        if deleted.get(&subject).is_some_and(|gone| apart(*gone) <= again || is_gone(*gone)) {
            continue;
        }
        // What happened at the very end may be told after it; a service that is killed may not come to tell it.
        if end.since(seen) < last_look.max(again.saturating_sub(NEAR))
            || hindered.iter().any(|(from, to)| *from <= at && at <= *to)
        {
            continue;
        }
        let of = events.get(&(event, subject)).into_iter().flatten();
        let mut times = of.map(|o| o.at());
        let holds = times.any(|t| near(t, at) || if t < at { at.since(t) <= late } else { t.since(at) <= again });
        found.check(seq, holds, || format!("{}: there is no event {event} of that time", name(subject)));
    }
    for ((event, subject), all) in events {
        let known = explained.get(&(*event, *subject));
        for o in all {
            if NEVER_ALONE.contains(event) {
                let holds = known.is_some_and(|times| times.iter().any(|t| near(*t, o.at())));
                found.check(o.seq, holds, || {
                    format!("{}: nothing of that time explains an event {event}", name(*subject))
                });
            }
        }
    }
}

/// The times of faults of the service, its database and the way to them: then things are told late, or never.
pub(super) fn hindered(history: &[Observation]) -> Vec<(Timestamp, Timestamp)> {
    // Neither hosts nor whoever reads events ask a hub's API server.
    times_of(history, |inject| !inject.starts_with("kube-"))
}

/// The times in which answers come late on purpose. What a host is told then is what was right when it asked.
#[derive(Clone, Debug, Default)]
pub(super) struct LateAnswers(Vec<(Timestamp, Timestamp)>);

impl LateAnswers {
    pub(super) fn new(history: &[Observation]) -> Self {
        Self(times_of(history, |inject| inject == "slow-answer"))
    }

    /// Are there none?
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// May what a host was told at that time be the answer to a question of long before? `last`: when it was told something before
    /// that. Who waits for an answer asks nothing else, so that after such a time one answer at most is late.
    pub(super) fn may_be_late(&self, last: Option<Timestamp>, at: Timestamp) -> bool {
        self.0.iter().any(|(begin, end)| *begin <= at && (at <= *end || last.is_none_or(|last| last <= *end)))
    }
}

/// When the service was stopped, or what it cannot do without.
pub(super) fn outages(history: &[Observation]) -> Vec<(Timestamp, Timestamp)> {
    const OF_SERVICE: [&str; 3] = ["service-", "postgres-", "slow-queries"];
    let mut times = times_of(history, |inject| OF_SERVICE.iter().any(|of| inject.starts_with(of)));
    // What an interleaving kills comes back by itself.
    let killed = |o: &Observation| matches!(o.what, What::Interleaved { did: Interleaved::Killed, .. });
    times.extend(history.iter().filter(|o| killed(o)).map(|o| (o.at(), o.at() + NEAR)));
    times
}

/// Is one of these times between the two?
pub(super) fn one_between(times: &[(Timestamp, Timestamp)], from: Timestamp, to: Timestamp) -> bool {
    times.iter().any(|(begin, end)| *begin <= to && from <= *end)
}

/// The times of faults of some kind that hit neither hosts nor clusters, until what they held up may have been made good.
fn times_of(history: &[Observation], kind: impl Fn(&str) -> bool) -> Vec<(Timestamp, Timestamp)> {
    let mut begun: BTreeMap<&str, Timestamp> = BTreeMap::new();
    let mut times = Vec::new();
    let end = history.last().map(Observation::at).unwrap_or_default();
    for o in history {
        let What::Fault { name, phase, inject, host, cluster, .. } = &o.what else { continue };
        match phase {
            FaultPhase::Begin if !kind(inject) => {}
            FaultPhase::Begin if host.is_none() && cluster.is_none() => _ = begun.insert(name, o.at()),
            FaultPhase::End => times.extend(begun.remove(name.as_str()).map(|begin| (begin, o.at() + NEAR))),
            _ => {}
        }
    }
    times.extend(begun.into_values().map(|begin| (begin, end)));
    times
}
