//! The mode `installs`: many clusters at once, each with a user and hosts of its own that do what a scenario says.
//!
//! Each installation is a task: a conductor of `vlab-drive`, which is the same that plays a scenario in a run, and a connection for
//! each of its hosts. When installations begin is the plan's; what they ask and when follows from the answers, as it does with real
//! hosts. A request's moment is when its sender wanted it made. Nothing is judged: what comes of the clusters is counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::actor::{Reply, Send};
use vlab_api::http::TransportError;
use vlab_api::ops::operation_of;
use vlab_api::types::ClusterStatus;
use vlab_client::Endpoint;
use vlab_drive::conductor::{Conductor, ConductorConfig, Ending};
use vlab_drive::prepare::{Choices, Nowhere, Prepared, prepare};
use vlab_drive::target::Target;
use vlab_history::Recorder;
use vlab_model::history::{Observation, What};
use vlab_scenario::{Catalogue, FaultTarget, FrontDoor, HostKind, LoadMode, LoadPlan};

use crate::generate::{Carried, LoadError, Setting, gives_up, look, phase_at};
use crate::lines::{Done, Job, Line, Meter, line};
use crate::record::{Came, Record, histogram_of_spans, micros_of_span};
use crate::result::{Installs, Values};
use crate::schedule::beginnings;
use crate::usage;

/// So many requests may wait on a connection: installer and agent of a host ask one thing after the other, so that it is never full.
const WAITING: usize = 1024;

/// What the plan's clusters play, ready to begin.
pub(crate) struct Ready {
    /// For each of the plan's kinds of clusters.
    pub(crate) kinds: Vec<Prepared>,
}

/// Makes sure that everything in the plan can be carried out against a service at that address.
///
/// # Errors
/// [`LoadError::Scenario`] for a scenario that cannot be played as a load.
pub fn check(plan: &LoadPlan, catalogue: &Catalogue, url: &str) -> Result<(), LoadError> {
    ready(plan, catalogue, url).map(drop)
}

pub(crate) fn ready(plan: &LoadPlan, catalogue: &Catalogue, url: &str) -> Result<Ready, LoadError> {
    let mut kinds = Vec::new();
    for clusters in &plan.clusters {
        let mut scenario = (*clusters.scenario).clone();
        let name = scenario.name.clone();
        let unfit = |why: String| LoadError::Scenario { name: name.clone(), why };
        if scenario.api == FrontDoor::Kube {
            return Err(unfit("its user asks over Kubernetes, and a load goes to the REST API".to_owned()));
        }
        if plan.mode != LoadMode::Installs {
            // Their user makes the clusters, and that is all that happens there.
            if let Some(host) = scenario.hosts.iter().find(|host| host.day2 || host.bare_metal_host) {
                return Err(unfit(format!(
                    "its host {} comes when its cluster is installed, and with the mode `{}` nobody installs it",
                    host.name,
                    plan.mode.as_str()
                )));
            }
            if !scenario.infra_env.static_networks.is_empty() || scenario.infra_env.refused.is_some() {
                return Err(unfit(
                    "what its discovery image is about (static networks, or that the service refuses it) comes with a boot, and with \
                     this mode nobody boots"
                        .to_owned(),
                ));
            }
            scenario.actions.clear();
            scenario.faults.clear();
        }
        if let Some(fault) = scenario.faults.iter().find(|fault| fault.target == FaultTarget::Gateway) {
            return Err(unfit(format!(
                "line {}: the fault {} is on the way to the service, and nothing stands in that way while load is measured",
                fault.line, fault.name
            )));
        }
        let choices = Choices {
            seed: Some(plan.seed),
            time_profile: plan.time_profile.clone(),
            service: Some(Target::Remote { url: url.trim_end_matches('/').to_owned() }),
            hosts: Some(HostKind::Simulated),
            ..Choices::default()
        };
        kinds.push(prepare(scenario, catalogue, &choices, &Nowhere).map_err(|error| unfit(error.to_string()))?);
    }
    Ok(Ready { kinds })
}

/// How many installations are at which point, while it goes on.
#[derive(Clone, Copy, Debug, Default)]
struct Going {
    begun: u32,
    ended: u32,
    installed: u32,
}

/// What all installations share.
struct Shared {
    plan: LoadPlan,
    endpoint: Endpoint,
    ingress_pem: String,
    start: Instant,
    /// The wall clock at the start: hosts and service must have one time.
    clock: Timestamp,
    meter: Meter,
    counted: Mutex<Counts>,
}

struct Counts {
    record: Record,
    going: Going,
    installs: Installs,
    took: hdrhistogram::Histogram<u64>,
}

impl Counts {
    fn new() -> Self {
        Self {
            record: Record::default(),
            going: Going::default(),
            installs: Installs::default(),
            took: histogram_of_spans(),
        }
    }
}

/// Begins them at their times and follows them to their ends, or to that of the plan.
pub(crate) async fn carry_out(plan: &LoadPlan, ready: Ready, endpoint: Endpoint, setting: &Setting<'_>) -> Carried {
    let options = setting.options;
    let ingress_pem = vlab_agents::ingress::make_ingress_pem();
    let start = Instant::now();
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        endpoint,
        ingress_pem: ingress_pem.unwrap_or_else(|_| vlab_agents::ingress::LAB_INGRESS_PEM.to_owned()),
        start,
        clock: Timestamp::now(),
        meter: Meter::new(start),
        counted: Mutex::new(Counts::new()),
    });
    let kinds: Vec<Arc<Prepared>> = ready.kinds.into_iter().map(Arc::new).collect();
    let mut slots = JoinSet::new();
    for beginning in beginnings(plan, options.part) {
        let (shared, kind) = (shared.clone(), kinds[beginning.kind].clone());
        slots.spawn(slot(shared, kind, beginning.slot, beginning.at));
    }
    let over = plan.takes();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before = (usage::of(std::process::id()), options.watch.and_then(usage::of));
    let cut_short = loop {
        tokio::select! {
            biased;
            () = options.stop.cancelled() => break "it was interrupted".to_owned(),
            () = tokio::time::sleep_until(shared.start + over) => break String::new(),
            ended = slots.join_next() => match ended {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    let mut counts = shared.lock();
                    counts.going.ended += 1;
                    counts.installs.ended_as(&format!("a defect of the generator: {error}"));
                }
                // All have come to their end, and there is nothing left to wait for.
                None => break String::new(),
            },
            _ = tick.tick() => {
                let now = shared.now();
                let mut counts = shared.lock();
                let Going { begun, ended, installed } = counts.going;
                let who = format!("{begun} begun, {installed} installed, {} ended otherwise", ended - installed);
                let fleet = [
                    ("under way", u64::from(begun - ended)),
                    ("installed", u64::from(installed)),
                    ("ended otherwise", u64::from(ended - installed)),
                ];
                before = look(&mut counts.record, (plan, now), (&who, &fleet), setting, before);
                if let Some(why) = gives_up(&counts.record, plan, now) {
                    break why;
                }
            }
        }
    };
    let took = shared.now();
    slots.shutdown().await;
    let counts = std::mem::replace(&mut *shared.lock(), Counts::new());
    let Counts { record, mut installs, took: of_installs, going } = counts;
    let opened = shared.meter.opened();
    installs.took = Values::from(of_installs);
    let left = u64::from(going.begun - going.ended);
    if left > 0 {
        installs.ended_otherwise.insert("under way when the plan was over".to_owned(), left);
    }
    Carried { record, opened, installs: Some(installs), cut_short, took, ..Carried::default() }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        // A count that was made while somebody panicked is still a count.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn timestamp(&self, at: Duration) -> Timestamp {
        self.clock + at
    }
}

/// One installation, and with `back_to_back` one after the other.
async fn slot(shared: Arc<Shared>, kind: Arc<Prepared>, slot: u32, at: Duration) {
    let (mut at, mut round) = (at, 0_u64);
    loop {
        tokio::time::sleep_until(shared.start + at).await;
        {
            let mut counts = shared.lock();
            counts.going.begun += 1;
            counts.installs.begun += 1;
        }
        let seed = seed_of(shared.plan.seed, slot, round);
        let outcome = Installation::new(&shared, &kind, seed, slot).go_on(at).await;
        let mut counts = shared.lock();
        counts.going.ended += 1;
        match outcome {
            Outcome::Installed(after) => {
                counts.going.installed += 1;
                counts.installs.installed += 1;
                counts.took.saturating_record(micros_of_span(after));
            }
            Outcome::Otherwise(how) => counts.installs.ended_as(&how),
        }
        if !shared.plan.back_to_back {
            return;
        }
        drop(counts);
        (at, round) = (shared.now(), round + 1);
    }
}

/// The seed of an installation: a million of them in a slot, each with ids of its own.
pub(crate) fn seed_of(plan: u64, slot: u32, round: u64) -> u64 {
    plan.wrapping_add(u64::from(slot) << 20).wrapping_add(round)
}

/// How an installation ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of its clusters are installed, so long after it was to begin.
    Installed(Duration),
    /// As that says.
    Otherwise(String),
}

impl Outcome {
    /// Of an installation that was to begin then.
    pub(crate) fn of(ending: Ending, history: &[Observation], begins: Timestamp) -> Self {
        match (ending, installed_at(history)) {
            (Ending::Complete, Ok(at)) => Self::Installed(at.since(begins)),
            (Ending::Complete, Err(how)) => Self::Otherwise(how),
            (Ending::OutOfTime { .. }, _) => Self::Otherwise("out of the time that its scenario gives it".to_owned()),
            (Ending::Stuck(why) | Ending::Dead(why), _) => Self::Otherwise(why),
        }
    }
}

/// What plays one installation.
pub(crate) fn conductor(
    plan: &LoadPlan,
    kind: &Prepared,
    seed: u64,
    simulated: bool,
    ingress_pem: String,
) -> Conductor {
    let mut info = kind.info(&format!("load-{seed}"), simulated, BTreeMap::new());
    info.seed = seed;
    let config = ConductorConfig {
        look_every: plan.look,
        record_steps: false,
        record_requests: false,
        ..kind.conductor_config(info, ingress_pem)
    };
    Conductor::new(config, Recorder::new(None))
}

struct Installation<'a> {
    shared: &'a Shared,
    conductor: Conductor,
    slot: u32,
    lines: BTreeMap<u32, Line<Key>>,
    replies: mpsc::Sender<Done<Key>>,
    received: mpsc::Receiver<Done<Key>>,
}

/// No installation has more connections to the service than that, as far as source addresses are concerned.
const CONNECTIONS: u32 = 16;

/// Which request of an actor an answer belongs to: its connection and tag.
type Key = (u32, u64);

impl<'a> Installation<'a> {
    fn new(shared: &'a Shared, kind: &Prepared, seed: u64, slot: u32) -> Self {
        let (replies, received) = mpsc::channel(4096);
        let conductor = conductor(&shared.plan, kind, seed, false, shared.ingress_pem.clone());
        Self { shared, conductor, slot, lines: BTreeMap::new(), replies, received }
    }

    async fn go_on(mut self, begins: Duration) -> Outcome {
        self.conductor.start(self.shared.timestamp(self.shared.now()));
        self.send(begins);
        let ending = loop {
            let now = self.shared.timestamp(self.shared.now());
            if let Some(ending) = self.conductor.ending(now) {
                break ending;
            }
            let due = self.conductor.next_wake().map(|at| at.since(self.shared.clock));
            let sleep = async {
                match due {
                    Some(due) => tokio::time::sleep_until(self.shared.start + due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(done) = self.received.recv() => self.take(done),
                () = sleep => {
                    self.conductor.wake(self.shared.timestamp(self.shared.now()));
                    self.send(due.unwrap_or_default());
                }
            }
        };
        Outcome::of(ending, self.conductor.recorder().observations(), self.shared.timestamp(begins))
    }

    /// Sends what was to be sent at that moment.
    fn send(&mut self, intended: Duration) {
        let mut lost = Vec::new();
        for Send { connection, tag, request } in self.conductor.take_sends() {
            let phase = phase_at(&self.shared.plan, intended);
            let operation = operation_of(request.method, &request.path).unwrap_or("other");
            let now = self.shared.now();
            self.shared.lock().record.offer(phase, operation, intended, now.saturating_sub(intended));
            let (endpoint, replies, meter) = (&self.shared.endpoint, &self.replies, &self.shared.meter);
            let number = self.slot.wrapping_mul(CONNECTIONS).wrapping_add(connection);
            let open = || line((endpoint, number), WAITING, replies.clone(), meter);
            let line = self.lines.entry(connection).or_insert_with(open);
            let job = Job { request, key: (connection, tag), operation, phase, intended };
            if !line.send(job) {
                self.shared.lock().record.came(phase, operation, now, now.saturating_sub(intended), Came::NotSent);
                lost.push((connection, tag));
            }
        }
        for (connection, tag) in lost {
            let result = Err(TransportError::Lost("too many requests wait on the connection".to_owned()));
            self.conductor.deliver(self.shared.timestamp(self.shared.now()), Reply { connection, tag, result });
        }
    }

    fn take(&mut self, done: Done<Key>) {
        let Done { job: Job { key: (connection, tag), operation, phase, intended, .. }, at, result } = done;
        self.shared.lock().record.came(phase, operation, at, at.saturating_sub(intended), Came::of(&result));
        let now = self.shared.now();
        self.conductor.deliver(self.shared.timestamp(now), Reply { connection, tag, result });
        self.send(now);
    }
}

/// When the last cluster of that history was installed; or how it ended, if one was not.
fn installed_at(history: &[Observation]) -> Result<Timestamp, String> {
    let mut last: BTreeMap<Uuid, (Timestamp, ClusterStatus)> = BTreeMap::new();
    for observation in history {
        if let What::ClusterStatus { cluster, to, .. } = &observation.what {
            let installed = |status| matches!(status, ClusterStatus::Installed | ClusterStatus::AddingHosts);
            let known = last.get(cluster).filter(|(_, known)| installed(*known) && installed(*to));
            // It may be opened for more hosts afterwards.
            let at = known.map_or(observation.at(), |(at, _)| *at);
            last.insert(*cluster, (at, *to));
        }
    }
    let other = last.values().map(|(_, status)| *status);
    let mut other = other.filter(|status| !matches!(status, ClusterStatus::Installed | ClusterStatus::AddingHosts));
    match (other.next(), last.values().map(|(at, _)| *at).max()) {
        (Some(status), _) => Err(format!("a cluster is {status}")),
        (None, Some(at)) => Ok(at),
        (None, None) => Err("no cluster was seen".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use vlab_model::history::Source;

    use super::*;

    fn of(statuses: &[(i64, u128, ClusterStatus)]) -> Vec<Observation> {
        let mut recorder = Recorder::new(None);
        for (at, cluster, to) in statuses {
            let what =
                What::ClusterStatus { cluster: Uuid::from_u128(*cluster), from: None, to: *to, info: String::new() };
            recorder.record(Source::Poll, None, Timestamp::from_secs(*at), what);
        }
        recorder.into_observations()
    }

    #[rstest::rstest]
    #[case::nothing(&[], Err("no cluster was seen"))]
    #[case::one(&[(1, 1, ClusterStatus::Installing), (9, 1, ClusterStatus::Installed)], Ok(9))]
    #[case::opened_for_more(&[(9, 1, ClusterStatus::Installed), (12, 1, ClusterStatus::AddingHosts)], Ok(9))]
    #[case::the_last_counts(&[(9, 1, ClusterStatus::Installed), (7, 2, ClusterStatus::Installed)], Ok(9))]
    #[case::one_failed(&[(9, 1, ClusterStatus::Installed), (7, 2, ClusterStatus::Error)], Err("a cluster is error"))]
    fn all_clusters_must_be_installed(
        #[case] statuses: &[(i64, u128, ClusterStatus)],
        #[case] wanted: Result<i64, &str>,
    ) {
        let wanted = wanted.map(Timestamp::from_secs).map_err(str::to_owned);
        assert_eq!(installed_at(&of(statuses)), wanted);
    }
}
