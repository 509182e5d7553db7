//! Carries a plan out.
//!
//! One task knows when what is to be done and does it at its time, whatever became of what was done before: the offered rate is the
//! plan's. Each connection is a task of its own with a short queue; what finds the queue full is counted as not sent.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use vlab_agents::HardwareProfile;
use vlab_agents::profile;
use vlab_api::http::{Method, Request};
use vlab_api::ops::{self, Failure};
use vlab_api::types::{InfraEnvCreateParams, Steps};
use vlab_client::{Client, Endpoint, EndpointError, HttpConnection};
use vlab_scenario::{Catalogue, LoadMode, LoadPlan};

use crate::database::{DatabaseError, DatabaseSecond, Watched};
use crate::hosts::{LoadHost, Population, alike};
use crate::installs;
use crate::lines::{BUDGET, Done, Job, Line, Meter, line};
use crate::metrics::{Fleet, page};
use crate::record::{Came, Record};
use crate::result::{Installs, LoadResult, Target, VERSION, seconds};
use crate::schedule::{HostAction, Part, actions, seats};
use crate::{standing, usage};

/// From its registration a host waits so long before it asks first.
const FIRST_POLL: Duration = Duration::from_secs(1);
/// So long the page of the service's metrics may take.
const SCRAPE: Duration = Duration::from_secs(5);
/// And when the run was interrupted.
const INTERRUPTED_SCRAPE: Duration = Duration::from_secs(1);
/// So many requests may wait on the connection of a host: a poll, and answers to all that it was asked.
const WAITING_OF_HOST: usize = 16;
/// And on a shared one.
const WAITING_OF_POOL: usize = 4096;
/// A pull secret of the right form.
const PULL_SECRET: &str = r#"{"auths":{"registry.lab.test":{"auth":"bGFiOmxhYg==","email":"lab@lab.test"}}}"#;

const REGISTER: &str = "v2RegisterHost";
const POLL: &str = "v2GetNextSteps";
const ANSWER: &str = "v2PostStepReply";

/// Is told how it goes.
pub type Tell = Box<dyn Fn(&str) + Send>;

/// How a plan is carried out.
pub struct Options {
    /// URL of the service.
    pub url: String,
    /// Which part of the plan.
    pub part: Part,
    /// When it begins; `None`: at once. Parts that begin together are one load.
    pub start_at: Option<SystemTime>,
    /// Process of the service, whose processor time and memory are noted.
    pub watch: Option<u32>,
    /// PostgreSQL of the service, whose own figures are noted: a connection string or URL.
    pub database: Option<String>,
    /// Ends it early; what was seen until then is the result.
    pub stop: CancellationToken,
    /// Is told a line each second.
    pub live: Option<Tell>,
    /// Is told each second how it goes, as a piece of a page.
    pub so_far: Option<Tell>,
    /// Gets a page of figures for Prometheus each second ([`crate::metrics::serve`]).
    pub metrics: Option<watch::Sender<String>>,
}

/// How a plan is carried out, and what the database says meanwhile.
pub(crate) struct Setting<'a> {
    pub(crate) options: &'a Options,
    database: Option<watch::Receiver<Option<DatabaseSecond>>>,
}

/// Why a plan cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The address is none.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The service did not make an infra-env.
    #[error("the service at {url} did not make an infra-env for the hosts: {failure}")]
    InfraEnv {
        /// URL of the service.
        url: String,
        /// What it said.
        failure: Failure,
    },
    /// The service did not make a cluster.
    #[error("the service at {url} did not make the clusters of the scenario {scenario}: {why}")]
    Cluster {
        /// URL of the service.
        url: String,
        /// Name of the scenario.
        scenario: String,
        /// What was said.
        why: String,
    },
    /// A scenario cannot be played as a load.
    #[error("the scenario {name} cannot be played as a load: {why}")]
    Scenario {
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
    /// Only installations are played in virtual time.
    #[error(
        "the plan {plan} has `mode: {mode}`; in virtual time installations are played (`mode: installs`), and nothing else"
    )]
    NotVirtual {
        /// Its name.
        plan: String,
        /// Its mode.
        mode: &'static str,
    },
    /// What only answers has no clusters.
    #[error("a stub only answers, and has no clusters: give the `--url` of a service")]
    StubHasNoClusters,
    /// The database does not tell its figures.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A hardware profile cannot be read.
    #[error("the hardware profile {0} is not built into this program")]
    Profile(String),
}

/// Whose a request is: a host, and how often it had begun anew then.
#[derive(Clone, Copy)]
struct Of {
    host: u32,
    epoch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Act(HostAction),
    Poll { epoch: u32 },
}

struct Generator<'a> {
    plan: &'a LoadPlan,
    population: Population,
    endpoint: Endpoint,
    start: Instant,
    /// Seconds since the epoch at the start.
    clock: i64,
    due: BinaryHeap<Reverse<(Duration, u32, What)>>,
    hosts: BTreeMap<u32, LoadHost>,
    lines: BTreeMap<u32, Line<Of>>,
    replies: mpsc::Sender<Done<Of>>,
    meter: Meter,
    record: Record,
    in_flight: u64,
    steps_left: BTreeMap<String, u64>,
}

/// Carries a part of a plan out.
///
/// # Errors
/// [`LoadError`] when it cannot begin. What goes wrong later is a part of the result.
pub async fn generate(plan: &LoadPlan, catalogue: &Catalogue, options: Options) -> Result<LoadResult, LoadError> {
    let endpoint = Endpoint::resolve(&options.url).await?;
    // A service that says nothing must not keep whoever wants to end this.
    let before = options.stop.run_until_cancelled(scrape(&endpoint)).await.flatten();
    let target = target_of(before.as_deref());
    if !plan.clusters.is_empty() && target == Target::Stub {
        return Err(LoadError::StubHasNoClusters);
    }
    let work = if plan.mode == LoadMode::Installs {
        Work::Installs(installs::ready(plan, catalogue, &options.url)?)
    } else {
        let populated = populate(plan, options.part, catalogue, (&endpoint, &options.url));
        match options.stop.run_until_cancelled(populated).await {
            Some(population) => Work::Hosts(Box::new(population?)),
            None => Work::Nothing,
        }
    };
    let database = match &options.database {
        Some(url) => Some(Arc::new(Watched::begin(url).await?)),
        None => None,
    };
    let (tell_database, database_now) = watch::channel(None);
    let looking = database
        .clone()
        .map(|database| AbortOnDropHandle::new(tokio::spawn(async move { database.go_on(tell_database).await })));
    let setting = Setting { options: &options, database: looking.as_ref().map(|_| database_now) };
    let began_late = options.start_at.and_then(|at| SystemTime::now().duration_since(at).ok()).unwrap_or_default();
    if let Some(at) = options.start_at
        && let Ok(wait) = at.duration_since(SystemTime::now())
    {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = options.stop.cancelled() => {}
        }
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(0));
    let carried = match work {
        Work::Installs(ready) => installs::carry_out(plan, ready, endpoint.clone(), &setting).await,
        Work::Hosts(population) => carry_out(plan, *population, endpoint.clone(), (&setting, clock)).await,
        Work::Nothing => Carried { cut_short: "it was interrupted before it began".to_owned(), ..Carried::default() },
    };
    // Who ends this waits only a moment for the service's figures.
    let patience = if options.stop.is_cancelled() { INTERRUPTED_SCRAPE } else { SCRAPE };
    let after = tokio::time::timeout(patience, scrape(&endpoint)).await.ok().flatten();
    drop(looking);
    let statements = match &database {
        Some(database) => {
            tokio::time::timeout(patience, database.end()).await.unwrap_or_else(|_| Err("no answer".to_owned()))
        }
        None => Ok(Vec::new()),
    };
    let (counted, late, seconds_of) = carried.record.finish();
    let line = |(phase, operation, counted): (usize, &str, _)| crate::result::Line {
        phase,
        operation: operation.to_owned(),
        counted,
    };
    let mut result = LoadResult {
        version: VERSION,
        plan: plan.name.clone(),
        target,
        url: options.url,
        seed: plan.seed,
        hosts: plan.hosts,
        parts: (options.part.of, 1),
        started_at: clock,
        phases: plan.phases.clone(),
        took_s: seconds(carried.took),
        began_late_s: seconds(began_late),
        cut_short: carried.cut_short,
        lines: counted.into_iter().map(line).collect(),
        late: late.into(),
        seconds: seconds_of,
        without_statements: statements.as_ref().err().cloned().unwrap_or_default(),
        statements: statements.unwrap_or_default(),
        connections_opened: carried.opened,
        steps_left: carried.steps_left,
        installs: carried.installs,
        service_metrics: difference(before.as_deref().unwrap_or_default(), after.as_deref().unwrap_or_default()),
        processors: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)),
        ..LoadResult::default()
    };
    result.judge(&plan.thresholds);
    Ok(result)
}

/// What is to be done.
enum Work {
    Hosts(Box<Population>),
    Installs(installs::Ready),
    /// It was interrupted before it began.
    Nothing,
}

/// What came of it.
#[derive(Default)]
pub(crate) struct Carried {
    pub(crate) record: Record,
    pub(crate) opened: u64,
    pub(crate) steps_left: BTreeMap<String, u64>,
    pub(crate) installs: Option<Installs>,
    pub(crate) cut_short: String,
    pub(crate) took: Duration,
}

/// Hosts that do what the plan says, whatever the service answers.
async fn carry_out(
    plan: &LoadPlan,
    population: Population,
    endpoint: Endpoint,
    (setting, clock): (&Setting<'_>, i64),
) -> Carried {
    let (replies, mut received) = mpsc::channel(65_536);
    let due =
        actions(plan, setting.options.part).into_iter().map(|e| Reverse((e.at, e.host, What::Act(e.action)))).collect();
    let start = Instant::now();
    let mut generator = Generator {
        plan,
        population,
        endpoint,
        start,
        clock,
        due,
        hosts: BTreeMap::new(),
        lines: BTreeMap::new(),
        replies,
        meter: Meter::new(start),
        record: Record::default(),
        in_flight: 0,
        steps_left: BTreeMap::new(),
    };
    let cut_short = generator.go_on(setting, &mut received).await;
    let took = generator.start.elapsed();
    generator.finish(&mut received, !cut_short.is_empty()).await;
    let Generator { record, meter, steps_left, .. } = generator;
    Carried { record, opened: meter.opened(), steps_left, installs: None, cut_short, took }
}

/// The position of the phase at that time.
pub(crate) fn phase_at(plan: &LoadPlan, at: Duration) -> usize {
    plan.timetable().take_while(|(begins, _)| *begins <= at).count().saturating_sub(1)
}

/// What the generator and the service use.
type Uses = (Option<usage::Usage>, Option<usage::Usage>);

/// Notes what the processes use, and tells how it goes: `who` is there, and how the last second was.
pub(crate) fn look(
    record: &mut Record,
    (plan, now): (&LoadPlan, Duration),
    (who, fleet): (&str, Fleet<'_>),
    setting: &Setting<'_>,
    before: Uses,
) -> Uses {
    let options = setting.options;
    let uses = (usage::of(std::process::id()), options.watch.and_then(usage::of));
    let cpu = |a: Option<usage::Usage>, b: Option<usage::Usage>| {
        let used = b?.cpu.saturating_sub(a?.cpu);
        u64::try_from(used.as_millis()).ok()
    };
    record.note(now, |second| {
        second.generator_cpu_ms = cpu(before.0, uses.0).unwrap_or(0);
        second.generator_kib = uses.0.map_or(0, |u| u.resident_kib);
        second.service_cpu_ms = cpu(before.1, uses.1);
        second.service_kib = uses.1.map(|u| u.resident_kib);
        second.database = setting.database.as_ref().and_then(|now| *now.borrow());
    });
    if let Some(tell) = &options.live
        && let Some((second, p50, p99)) = record.last_second(now)
    {
        let phase = plan.phases.get(phase_at(plan, now)).map_or("", |phase| phase.kind.as_str());
        tell(&format!(
            "{:>5} s  {phase:<5}  {who}  offered {}/s  answered {}/s  failed {}/s  p50 {:.1} ms  p99 {:.1} ms  late {:.1} ms",
            now.as_secs(),
            second.offered,
            second.answered,
            second.failed,
            p50 as f64 / 1000.0,
            p99 as f64 / 1000.0,
            second.late_us as f64 / 1000.0
        ));
    }
    if let Some(tell) = &options.so_far {
        tell(&crate::html::so_far(plan, now, who, &record.seconds(now)));
    }
    if let Some(metrics) = &options.metrics {
        metrics.send_replace(page(record, now, &plan.name, fleet));
    }
    uses
}

/// Why the plan is to end before its time, if it is.
pub(crate) fn gives_up(record: &Record, plan: &LoadPlan, now: Duration) -> Option<String> {
    let limit = plan.stop.errors_percent?;
    let (answered, failed) = record.lately(now, 10);
    let share = failed as f64 * 100.0 / (answered + failed).max(1) as f64;
    (failed >= 10 && share > limit).then(|| {
        format!("{share:.1} % of the requests failed in the last ten seconds, and the plan stops at {limit} %")
    })
}

async fn populate(
    plan: &LoadPlan,
    part: Part,
    catalogue: &Catalogue,
    (endpoint, url): (&Endpoint, &str),
) -> Result<Population, LoadError> {
    let read = |name: &String| -> Result<Arc<HardwareProfile>, LoadError> {
        profile::builtin(name).ok().flatten().ok_or_else(|| LoadError::Profile(name.clone()))
    };
    let profiles: Vec<_> = plan.profiles.iter().map(read).collect::<Result<_, _>>()?;
    let client = Client::new(endpoint.clone(), BUDGET);
    let mut infra_envs = Vec::new();
    let wanted = if plan.unbound > 0 { plan.infra_envs } else { 0 };
    for n in 0..wanted {
        let params = InfraEnvCreateParams {
            name: format!("{}-{}-{n}", plan.name, plan.seed),
            pull_secret: PULL_SECRET.to_owned(),
            ..InfraEnvCreateParams::default()
        };
        let made = client.call(ops::create_infra_env(&params)).await;
        let made = made.map_err(|failure| LoadError::InfraEnv { url: url.to_owned(), failure })?;
        infra_envs.push(made.id);
    }
    let fleets = standing::settle(plan, part, catalogue, (endpoint, url)).await?;
    let (seats, reply_cache) = (seats(plan), plan.reply_cache);
    let alike = alike(plan.seed, &profiles);
    Ok(Population {
        seed: plan.seed,
        infra_envs,
        profiles,
        reply_cache,
        agent: String::new(),
        unbound: plan.unbound,
        alike,
        seats,
        fleets,
    })
}

impl Generator<'_> {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Goes on until the plan is over; why it ended before that.
    async fn go_on(&mut self, setting: &Setting<'_>, received: &mut mpsc::Receiver<Done<Of>>) -> String {
        let options = setting.options;
        let over = self.plan.takes();
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut before = (usage::of(std::process::id()), options.watch.and_then(usage::of));
        loop {
            let now = self.now();
            // What was due before the end is done, however late it is.
            while let Some(Reverse((at, host, what))) = self.due.peek().copied()
                && at <= now
                && at < over
            {
                self.due.pop();
                self.act(at, host, what);
            }
            if now >= over {
                return String::new();
            }
            let next = self.due.peek().map_or(over, |Reverse((at, ..))| (*at).min(over));
            tokio::select! {
                biased;
                () = options.stop.cancelled() => return "it was interrupted".to_owned(),
                Some(done) = received.recv() => {
                    self.take(done);
                    while let Ok(done) = received.try_recv() {
                        self.take(done);
                    }
                }
                () = tokio::time::sleep_until(self.start + next) => {}
                _ = tick.tick() => {
                    let now = self.now();
                    let polling = self.hosts.values().filter(|host| host.polls).count();
                    let fleet = [("polling", polling as u64), ("not polling", (self.hosts.len() - polling) as u64)];
                    let who = format!("{polling} hosts");
                    before = look(&mut self.record, (self.plan, now), (&who, &fleet), setting, before);
                    if let Some(why) = gives_up(&self.record, self.plan, now) {
                        return why;
                    }
                }
            }
        }
    }

    fn act(&mut self, at: Duration, host: u32, what: What) {
        let entry = self.hosts.entry(host).or_default();
        match what {
            What::Act(HostAction::Register | HostAction::Reboot) => {
                entry.begin_anew(false);
                let epoch = entry.epoch;
                let request = self.population.register(host);
                self.send(at, host, epoch, REGISTER, request);
                self.due.push(Reverse((at + FIRST_POLL.min(self.plan.cadence), host, What::Poll { epoch })));
            }
            What::Act(HostAction::Reconnect) => {
                entry.begin_anew(true);
                let epoch = entry.epoch;
                self.act(at, host, What::Poll { epoch });
            }
            What::Act(HostAction::GoAway | HostAction::Stop) => {
                let waiting = u64::from(entry.waiting);
                entry.begin_anew(false);
                // What was under way is lost with the connection: nobody waits for it any more.
                if self.plan.pool.is_none() && self.lines.remove(&host).is_some() {
                    self.in_flight = self.in_flight.saturating_sub(waiting);
                }
            }
            What::Poll { epoch } if epoch == entry.epoch => {
                // Who is not known asks to be registered, as an agent does again and again.
                let (operation, request) = match entry.polls {
                    true => {
                        let clock = self.clock + i64::try_from(at.as_secs()).unwrap_or(0);
                        (POLL, self.population.poll(host, clock))
                    }
                    false => (REGISTER, self.population.register(host)),
                };
                self.send(at, host, epoch, operation, request);
                self.due.push(Reverse((at + self.plan.cadence, host, What::Poll { epoch })));
            }
            What::Poll { .. } => {}
        }
    }

    fn send(&mut self, intended: Duration, host: u32, epoch: u32, operation: &'static str, request: Request) {
        let phase = phase_at(self.plan, intended);
        let now = self.now();
        self.record.offer(phase, operation, intended, now.saturating_sub(intended));
        let key = self.plan.pool.map_or(host, |pool| host % pool);
        let waiting = if self.plan.pool.is_some() { WAITING_OF_POOL } else { WAITING_OF_HOST };
        let (endpoint, replies, meter) = (&self.endpoint, &self.replies, &self.meter);
        let line = self.lines.entry(key).or_insert_with(|| line((endpoint, key), waiting, replies.clone(), meter));
        let job = Job { request, key: Of { host, epoch }, operation, phase, intended };
        if line.send(job) {
            self.in_flight += 1;
            self.hosts.entry(host).or_default().waiting += 1;
        } else {
            self.record.came(phase, operation, now, now.saturating_sub(intended), Came::NotSent);
        }
    }

    fn take(&mut self, done: Done<Of>) {
        let Done { job: Job { key: Of { host, epoch }, operation, phase, intended, .. }, at, result } = done;
        self.in_flight = self.in_flight.saturating_sub(1);
        self.record.came(phase, operation, at, at.saturating_sub(intended), Came::of(&result));
        let Some(entry) = self.hosts.get_mut(&host).filter(|entry| entry.epoch == epoch) else { return };
        entry.waiting = entry.waiting.saturating_sub(1);
        let Ok(response) = result else { return };
        match (operation, response.status) {
            (REGISTER, 201) => {
                entry.polls = true;
                self.population.registered(&response);
            }
            (POLL, 404) => entry.polls = false,
            (POLL, 200) => {
                let steps = response.body.read::<Steps>().ok().and_then(|steps| steps.instructions).unwrap_or_default();
                let answers = self.population.answers((host, entry), at, steps, &mut self.steps_left);
                if answers.agent_is_new {
                    // A new agent begins like the first one.
                    let request = self.population.register(host);
                    self.send(at, host, epoch, REGISTER, request);
                }
                for request in answers.requests {
                    self.send(at, host, epoch, ANSWER, request);
                }
            }
            _ => {}
        }
    }

    /// Waits for answers that are still to come: for as long as a request may take, or a moment when it was interrupted.
    async fn finish(&mut self, received: &mut mpsc::Receiver<Done<Of>>, interrupted: bool) {
        let patience = if interrupted { Duration::from_secs(1) } else { BUDGET + Duration::from_secs(1) };
        let until = Instant::now() + patience;
        while self.in_flight > 0 {
            match tokio::time::timeout_at(until, received.recv()).await {
                Ok(Some(Done { job, at, result })) => {
                    self.in_flight -= 1;
                    let took = at.saturating_sub(job.intended);
                    self.record.came(job.phase, job.operation, at, took, Came::of(&result));
                }
                Ok(None) | Err(_) => break,
            }
        }
        self.lines.clear();
    }
}

/// The page of the service's metrics, if it has one.
async fn scrape(endpoint: &Endpoint) -> Option<String> {
    let mut connection = HttpConnection::new(endpoint.clone());
    let response = connection.send(&Request::new(Method::Get, "/metrics"), SCRAPE).await.ok()?;
    response.is_success().then(|| String::from_utf8_lossy(&response.body).into_owned())
}

/// What that is whose metrics these are.
fn target_of(page: Option<&str>) -> Target {
    match page {
        Some(page) if page.contains(crate::stub::METRIC) => Target::Stub,
        Some(page) if page.contains("vlab_service_") => Target::Simulated,
        _ => Target::Real,
    }
}

/// Numbers by name, all labels together; without the buckets of histograms.
fn numbers(page: &str) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let name = name.split('{').next().unwrap_or(name);
        if name.ends_with("_bucket") {
            continue;
        }
        if let Ok(value) = value.parse::<f64>() {
            *all.entry(name.to_owned()).or_default() += value;
        }
    }
    all
}

/// What changed of the service's own figures.
///
/// The real service registers its metrics without a namespace, in the subsystem `service` (assisted-service,
/// `internal/metrics/metricsManager.go`): what its source calls `assisted_installer_cluster_creations` is
/// `service_assisted_installer_cluster_creations` on the page.
fn difference(before: &str, after: &str) -> BTreeMap<String, f64> {
    let before = numbers(before);
    let prefixes = ["service_assisted_installer_", "process_", "vlab_service_"];
    let ours = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let changed = numbers(after).into_iter().filter(|(name, _)| ours(name));
    changed
        .map(|(name, value)| {
            let change = value - before.get(&name).copied().unwrap_or(0.0);
            (name, change)
        })
        .filter(|(_, change)| *change != 0.0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_own_figures_are_added_up_over_labels() {
        let before = "# HELP x y\nprocess_cpu_seconds_total 1\nservice_assisted_installer_a_count{code=\"200\"} 2\n";
        let after = "process_cpu_seconds_total 3.5\nservice_assisted_installer_a_count{code=\"200\"} 4\nservice_assisted_installer_a_count{code=\"500\"} 1\nservice_assisted_installer_a_bucket{le=\"1\"} 9\ngo_threads 7\n";
        let changed = difference(before, after);
        assert_eq!(
            changed.into_iter().collect::<Vec<_>>(),
            [("process_cpu_seconds_total".to_owned(), 2.5), ("service_assisted_installer_a_count".to_owned(), 3.0)]
        );
    }

    #[test]
    fn targets_are_told_apart() {
        assert_eq!(target_of(None), Target::Real);
        assert_eq!(target_of(Some("vlab_service_uptime_seconds 1")), Target::Simulated);
        assert_eq!(target_of(Some(&format!("{} 1", crate::stub::METRIC))), Target::Stub);
    }
}
