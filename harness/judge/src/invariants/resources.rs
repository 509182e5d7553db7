//! Resources on a hub, where the service is asked over Kubernetes: their versions, what their conditions say of the service's rows, that what
//! is deleted goes, and that controllers come to rest. Which status is which condition: the service's own documentation of its
//! conditions.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostStatus};
use vlab_history::{Timeline, watched_until};
use vlab_model::history::{ConditionStatus, FaultPhase, Interleaved, Oddity, ResourceState, Source, What};
use vlab_model::lease;

use super::found::Found;
use super::repeats::repeats_agree;
use super::rest::news;
use super::{Invariant, InvariantResult};

pub(super) const VERSIONS: Invariant = Invariant {
    id: "versions-grow",
    number: "I29",
    title: "a resource's version grows with each change, and its generation never goes back",
    needs: "changes of resources on a hub",
};

pub(super) const CONDITIONS: Invariant = Invariant {
    id: "conditions-agree",
    number: "I30",
    title: "the status of a resource says what the service's row says, as soon as that is settled, and its conditions have words for people",
    needs: "the database's changes, and resources of hosts or clusters on a hub",
};

pub(super) const GO: Invariant = Invariant {
    id: "deleted-goes",
    number: "I31",
    title: "a resource that is deleted goes, and with it those that belong to it",
    needs: "a resource that was deleted, watched for a minute from then on",
};

pub(super) const REST: Invariant = Invariant {
    id: "resources-rest",
    number: "I32",
    title: "without news from outside no resource is written again and again",
    needs: "changes of resources on a hub",
};

/// Service time after which controllers have taken notice of a change of a row.
const SETTLED: Duration = Duration::from_secs(30);

/// Service time after which what is deleted is gone.
const GONE: Duration = Duration::from_secs(60);

/// A resource may change so often between two news: timers of the service and what follows from them.
const WRITES: usize = 25;

/// A host that waits in its stage while others stand still is written so often, to say so. Source: the service's refresh of the stage's
/// time, which is done in a round of its monitor once a minute is over.
const STAGE_IS_REFRESHED: Duration = Duration::from_secs(55);

/// A resource: kind, namespace, name.
pub(super) type Key<'h> = (&'h str, &'h str, &'h str);

/// A change of a resource.
struct Change<'h> {
    at: Timestamp,
    seq: u64,
    version: u64,
    generation: Option<i64>,
    is: ResourceState,
    conditions: Vec<(&'h str, Option<ConditionStatus>)>,
    finalizers: &'h [String],
}

fn resources<'h>(timeline: &'h Timeline<'h>) -> BTreeMap<Key<'h>, Vec<Change<'h>>> {
    let mut all: BTreeMap<Key<'h>, Vec<Change<'h>>> = BTreeMap::new();
    for o in timeline.observations {
        if let What::Resource { kind, namespace, name, version, generation, is, conditions, finalizers, .. } = &o.what {
            let conditions = conditions.iter().map(|(kind, c)| (kind.as_str(), c.as_ref().map(|c| c.status)));
            all.entry((kind, namespace, name)).or_default().push(Change {
                at: o.harness_time,
                seq: o.seq,
                version: *version,
                generation: *generation,
                is: *is,
                conditions: conditions.collect(),
                finalizers,
            });
        }
    }
    all
}

pub(super) fn called((kind, namespace, name): Key<'_>, timeline: &Timeline<'_>) -> String {
    match name.parse::<Uuid>() {
        Ok(host) if kind == "Agent" => format!("Agent of {}", timeline.host_name(host)),
        _ => format!("{kind} {namespace}{}{name}", if namespace.is_empty() { "" } else { "/" }),
    }
}

pub(super) const NO_HUB: &str = "the history has no resource of a hub";

/// Judges [`VERSIONS`].
pub(super) fn versions_grow(timeline: &Timeline<'_>) -> InvariantResult {
    let mut found = Found::default();
    for (key, changes) in resources(timeline) {
        for pair in changes.windows(2) {
            let [before, now] = pair else { continue };
            found.check(now.seq, now.version > before.version, || {
                format!("{}: version {} came after {}", called(key, timeline), now.version, before.version)
            });
            if before.is != ResourceState::Gone {
                found.check(now.seq, now.generation >= before.generation, || {
                    let (now, before) = (now.generation.unwrap_or(0), before.generation.unwrap_or(0));
                    format!("{}: generation {now} came after {before}", called(key, timeline))
                });
            }
        }
    }
    found.result((&VERSIONS).into(), || NO_HUB.to_owned())
}

/// What the lab's API server says when it has restarted and is asked again.
pub const SERVER_IS_BACK: &str = "the server is back";

/// Is something wrong as long as the fault is there, and not only each time that it does something?
fn is_lasting(inject: &str) -> bool {
    matches!(inject, "kube-down" | "kube-event-late" | "kube-slow" | "kube-lease-lost" | "kube-lease-slow")
        || inject.starts_with("service-")
}

/// Times in which something was wrong that controllers cannot be blamed for.
pub(super) struct Disturbed {
    times: Vec<(Timestamp, Option<Timestamp>)>,
    /// What disturbs may have cost the service the lease of its controllers, which it must then get again.
    regained: Duration,
}

impl Disturbed {
    pub(super) fn new(timeline: &Timeline<'_>) -> Self {
        let mut times: Vec<(Timestamp, Option<Timestamp>)> = Vec::new();
        let mut open: HashMap<&str, usize> = HashMap::new();
        let mut kinds: HashMap<&str, &str> = HashMap::new();
        for o in timeline.observations {
            let at = o.harness_time;
            match &o.what {
                What::Fault { name, phase: FaultPhase::Begin, inject, .. } => {
                    kinds.insert(name, inject);
                    if is_lasting(inject) {
                        open.insert(name, times.len());
                        times.push((at, None));
                    }
                }
                What::Fault { name, phase: FaultPhase::Effect, detail, .. } => match kinds.get(name.as_str()) {
                    // Who was not told of a change learns of it with the next one, whenever that is.
                    Some(&("kube-event-lost" | "kube-stale")) => times.push((at, None)),
                    // It is away until it is told to be back.
                    Some(&"kube-restart") if detail == SERVER_IS_BACK => {
                        if let Some(n) = open.remove(name.as_str()) {
                            times[n].1 = Some(at);
                        }
                    }
                    Some(&"kube-restart") => {
                        open.entry(name).or_insert_with(|| {
                            times.push((at, None));
                            times.len() - 1
                        });
                    }
                    Some(kind) if kind.starts_with("kube-") => times.push((at, Some(at))),
                    _ => {}
                },
                What::Fault { name, phase: FaultPhase::End, .. } => {
                    // A server that is away stays so.
                    let is_away = kinds.get(name.as_str()) == Some(&"kube-restart");
                    if !is_away && let Some(n) = open.remove(name.as_str()) {
                        times[n].1 = Some(at);
                    }
                }
                // An interleaving kills the service by itself.
                What::Interleaved { did: Interleaved::Killed, .. } => times.push((at, Some(at))),
                _ => {}
            }
        }
        let scale = timeline.run.and_then(|run| run.clock_scale).unwrap_or(1.0);
        Self { times, regained: lease::Times::at(scale).regained() }
    }

    /// Was something wrong between these, or shortly before?
    pub(super) fn within(&self, from: Timestamp, to: Timestamp, shortly: Duration) -> bool {
        let after = shortly + self.regained;
        self.times.iter().any(|(begin, end)| *begin <= to && end.is_none_or(|end| end + after >= from))
    }
}

/// So long by the run's clock.
fn scaled(timeline: &Timeline<'_>, span: Duration) -> Duration {
    // However fast the service's clock runs, controllers and API server take their own time.
    span.div_f64(clock_scale(timeline)).max(Duration::from_secs(2))
}

fn clock_scale(timeline: &Timeline<'_>) -> f64 {
    let scale = timeline.run.and_then(|run| run.clock_scale).filter(|scale| scale.is_finite() && *scale > 0.0);
    scale.unwrap_or(1.0)
}

/// What a condition must be while a row has a status; `None`: nothing is said about it.
fn of_cluster(status: ClusterStatus) -> [(&'static str, Option<bool>); 4] {
    use ClusterStatus::{AddingHosts, Cancelled, Error, Installed, Insufficient, PendingForInput};
    let done = matches!(status, Installed | AddingHosts);
    [
        ("Completed", Some(done)),
        ("Failed", Some(status == Error)),
        ("Stopped", Some(done || matches!(status, Error | Cancelled))),
        ("Validated", matches!(status, Insufficient | PendingForInput).then_some(false)),
    ]
}

fn of_host(status: HostStatus) -> [(&'static str, Option<bool>); 3] {
    use HostStatus::{
        AddedToExistingCluster, Binding, Disconnected, DisconnectedUnbound, DiscoveringUnbound, Installed,
        InsufficientUnbound, KnownUnbound, Unbinding, UnbindingPendingUserAction,
    };
    let free = matches!(
        status,
        Binding
            | Unbinding
            | UnbindingPendingUserAction
            | KnownUnbound
            | DiscoveringUnbound
            | InsufficientUnbound
            | DisconnectedUnbound
    );
    [
        ("Connected", Some(!matches!(status, Disconnected | DisconnectedUnbound))),
        ("Installed", Some(matches!(status, Installed | AddedToExistingCluster))),
        ("Bound", Some(!free)),
    ]
}

/// What a condition must be; nothing where a status leaves it open.
type Wanted = Vec<(&'static str, Option<bool>)>;

/// A status of a row: since when, when that was seen, what its conditions must be, and its word.
type Status = ((Timestamp, Timestamp), Option<(Wanted, &'static str)>);

/// The row that a resource is about: the host that an Agent is called like, or the cluster that has that name in the scenario.
pub(super) fn row_of(names: &HashMap<Uuid, &str>, kind: &str, name: &str) -> Option<Uuid> {
    match kind {
        "Agent" => name.parse().ok(),
        "AgentClusterInstall" => names.iter().find(|(_, named)| **named == name).map(|(id, _)| *id),
        _ => None,
    }
}

/// Judges [`CONDITIONS`].
pub(super) fn conditions_agree(timeline: &Timeline<'_>) -> InvariantResult {
    let mut found = Found::default();
    let all = resources(timeline);
    if timeline.truth != Source::Database || all.is_empty() {
        return found.result((&CONDITIONS).into(), || NO_HUB.to_owned());
    }
    let mut names: HashMap<Uuid, &str> = HashMap::new();
    let mut rows: BTreeMap<Uuid, Vec<Status>> = BTreeMap::new();
    for o in timeline.observations {
        // A condition that says the next status may be seen sooner than the row that has it.
        let at = (o.at().min(o.harness_time), o.harness_time);
        match &o.what {
            What::ClusterNamed { cluster, name, .. } => _ = names.insert(*cluster, name),
            What::ClusterStatus { cluster, to, .. } if o.source == Source::Database => {
                rows.entry(*cluster).or_default().push((at, Some((of_cluster(*to).to_vec(), to.as_str()))));
            }
            What::HostStatus { host, to, .. } if o.source == Source::Database => {
                rows.entry(*host).or_default().push((at, Some((of_host(*to).to_vec(), to.as_str()))));
            }
            What::HostDeleted { host } => rows.entry(*host).or_default().push((at, None)),
            _ => {}
        }
    }
    let disturbed = Disturbed::new(timeline);
    let end = watched_until(timeline.observations);
    let settled = scaled(timeline, SETTLED);
    for ((kind, namespace, name), changes) in all {
        let Some(statuses) = row_of(&names, kind, name).and_then(|id| rows.get(&id)) else { continue };
        for (n, (since, what)) in statuses.iter().enumerate() {
            let until = statuses.get(n + 1).map_or(end, |next| next.0.0);
            let Some((wanted, status)) = what else { continue };
            if until.since(since.1) < settled || disturbed.within(since.1, until, settled) {
                continue;
            }
            let Some((seq, now)) = conditions_before(&changes, until) else { continue };
            for (condition, is) in wanted {
                let (Some(is), Some(told)) = (is, now.get(condition)) else { continue };
                found.check(seq, (*told == ConditionStatus::True) == *is, || {
                    let whose = called((kind, namespace, name), timeline);
                    format!("{whose}: {condition} is {told} while the row says {status}")
                });
            }
        }
    }
    repeats_agree(timeline, &names, (&disturbed, settled), &mut found);
    for o in timeline.observations {
        let What::Resource { kind, namespace, name, odd, .. } = &o.what else { continue };
        for silent in odd.iter().filter(|odd| odd.is == Oddity::Silent) {
            found.check(o.seq, false, || {
                let whose = called((kind, namespace, name), timeline);
                format!("{whose}: {} has no message", silent.condition)
            });
        }
    }
    found.result((&CONDITIONS).into(), || "no status stayed long enough to be told".to_owned())
}

/// The conditions of a resource just before that time, and the change that was last; `None` when it is not there then, or is to go.
fn conditions_before<'h>(changes: &[Change<'h>], until: Timestamp) -> Option<(u64, HashMap<&'h str, ConditionStatus>)> {
    let mut now = HashMap::new();
    let mut last = None;
    for change in changes.iter().take_while(|change| change.at < until) {
        last = Some(change);
        for (kind, status) in &change.conditions {
            match status {
                Some(status) => _ = now.insert(*kind, *status),
                None => _ = now.remove(kind),
            }
        }
        if change.is == ResourceState::Gone {
            now.clear();
        }
    }
    let last = last.filter(|last| !matches!(last.is, ResourceState::Gone | ResourceState::Deleting))?;
    Some((last.seq, now))
}

/// Judges [`GO`].
pub(super) fn deleted_goes(timeline: &Timeline<'_>) -> InvariantResult {
    let mut found = Found::default();
    let all = resources(timeline);
    let disturbed = Disturbed::new(timeline);
    let (end, patience) = (watched_until(timeline.observations), scaled(timeline, GONE));
    for (key, changes) in &all {
        let Some(last) = changes.last() else { continue };
        if last.is == ResourceState::Deleting {
            let since = changes.iter().rev().take_while(|c| c.is == ResourceState::Deleting).last().unwrap_or(last);
            if end.since(since.at) >= patience && !disturbed.within(since.at, end, patience) {
                found.check(since.seq, false, || {
                    format!("{} is not gone; it is held by {}", called(*key, timeline), last.finalizers.join(", "))
                });
            }
        } else if last.is == ResourceState::Gone {
            found.check(last.seq, true, String::new);
            if end.since(last.at) < patience || disturbed.within(last.at, end, patience) {
                continue;
            }
            for left in belonging(*key, &all) {
                found.check(last.seq, false, || {
                    format!("{} is still there without its {}", called(left, timeline), called(*key, timeline))
                });
            }
        }
    }
    found.result((&GO).into(), || "no resource was deleted".to_owned())
}

/// What is left of that which belongs to a resource: the installation of a cluster, the hosts of an image.
fn belonging<'h>(of: Key<'h>, all: &BTreeMap<Key<'h>, Vec<Change<'h>>>) -> Vec<Key<'h>> {
    let there = |changes: &[Change<'_>]| changes.last().is_some_and(|last| last.is != ResourceState::Gone);
    let belongs = |key: &Key<'_>| match of.0 {
        "ClusterDeployment" => key.0 == "AgentClusterInstall" && key.1 == of.1 && key.2 == of.2,
        "InfraEnv" => key.0 == "Agent" && key.1 == of.1,
        _ => false,
    };
    all.iter().filter(|(key, changes)| belongs(key) && there(changes)).map(|(key, _)| *key).collect()
}

/// Judges [`REST`].
pub(super) fn resources_rest(timeline: &Timeline<'_>) -> InvariantResult {
    let mut found = Found::default();
    let all = resources(timeline);
    let mut news = news(timeline);
    news.sort_unstable();
    // While others of its cluster stand still, the service says of a host once in a while that it is still in its stage.
    let refreshed = STAGE_IS_REFRESHED.div_f64(clock_scale(timeline));
    for (key, changes) in all {
        let (mut next, mut writes) = (0, 0);
        let mut last: Option<Timestamp> = None;
        for change in &changes {
            let before = next;
            let since = last.replace(change.at).map(|last| change.at.since(last));
            if key.0 == "Agent" && since.is_some_and(|since| since >= refreshed) {
                writes = 0;
            }
            while news.get(next).is_some_and(|at| *at <= change.at) {
                next += 1;
            }
            writes = if next == before { writes + 1 } else { 1 };
            // Each time once.
            found.check(change.seq, writes != WRITES + 1, || {
                format!("{}: written {WRITES} times, and nobody told anything new", called(key, timeline))
            });
        }
    }
    found.result((&REST).into(), || NO_HUB.to_owned())
}
