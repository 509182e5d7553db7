//! A run in real time: PostgreSQL, the service as a process of its own, hosts over HTTP, the database watched; and at the
//! end a verdict, whatever happened.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_client::Endpoint;
use vlab_drive::conductor::gateway_of;
use vlab_drive::conductor::{Conductor, Ending, Score};
use vlab_drive::prepare::Prepared;
use vlab_drive::simulate::{ending_check, simulate};
use vlab_drive::target::Target;
use vlab_history::Recorder;
use vlab_judge::result::{
    CheckKind, CheckResult, CheckVerdict, FileRef, LoadReport, Overhead, RESULT_VERSION, RunResult, Startup, Verdict,
    exit,
};
use vlab_judge::verdict;
use vlab_lab::ledger::{self, Ledger};
use vlab_lab::postgres::{PgCluster, PgOptions, Tcp};
use vlab_lab::proc::Usage;
use vlab_lab::process::Child;
use vlab_lab::supervisor::Supervisor;
use vlab_model::history::{Observation, RunEnd, Source, What};
use vlab_reports::{Redactor, write_all};
use vlab_scenario::{Fault, FaultTarget, HostKind, Need};

use crate::container::{self, Containers, Order};
use crate::live::{Live, Show};
use crate::rundir::{self, RunDir, Started};
use crate::service::watch::{self, Change};
use crate::target::{self, Ground, Inside, Running, Scratch};
use crate::traffic::Traffic;
use crate::vm::plan::{PlannedMachine, base_url, images_url, plan};
use crate::vm::{self, News, VirtualLab, VmError};

mod outside;

use outside::{Outside, Report};

/// Name of the check for leaks.
const LEAKS: &str = "nothing is left behind";
/// Name of the service's database.
const DATABASE: &str = "assisted";
/// How long the service may take to stop after it was asked to.
const SERVICE_STOP: Duration = Duration::from_secs(10);
/// How long the last look at everything may take.
const LAST_LOOK: Duration = Duration::from_secs(10);
/// Time between two of these looks at a service that writes its events later than what they are about.
const EVENTS_SETTLE: Duration = Duration::from_millis(300);
/// How often buffers are written out, memory is looked at and the terminal is drawn.
const HOUSEKEEPING: Duration = Duration::from_millis(250);
/// A wall clock that moves by more than this against the monotonic one has jumped.
const CLOCK_JUMP: Duration = Duration::from_secs(2);
/// The harness may add so much to what the service's own intervals force, or this share of it, whichever is more.
const OVERHEAD_LIMIT: (f64, f64) = (200.0, 0.01);
/// Up to so many hosts the forced time is found by simulating the same run.
const SIMULATE_UP_TO: usize = 50;

/// What a real run needs beside the scenario.
pub struct RealOptions {
    /// The `vlab` program, which is also the service.
    pub vlab: PathBuf,
    /// Folder of all runs.
    pub runs: PathBuf,
    /// The scenario's text, for the copy in the run's folder.
    pub scenario_text: Vec<u8>,
    /// Cancelled when the user presses Ctrl-C.
    pub interrupted: CancellationToken,
    /// What is shown of it on the terminal.
    pub live: Show,
    /// The lab stays when the run is over: nothing is stopped or removed.
    pub keep: bool,
    /// A run that does not pass waits for the Enter key before it takes the lab down.
    pub pause_on_failure: bool,
    /// Programs that the real service calls (`oc`) are taken from `PATH` instead of our stand-ins.
    pub real_tools: bool,
    /// How long the service may take until it is ready, when not the usual time.
    pub ready_within: Option<Duration>,
    /// What is known already of this place's virtual machines; else it is found out when they are wanted.
    pub ability: Option<vm::Ability>,
    /// Is told what takes long before the run begins.
    pub tell: fn(&str),
}

/// What a real run gives.
#[derive(Debug)]
pub struct Outcome {
    /// Its folder; `None` when not even that could be made.
    pub dir: Option<PathBuf>,
    /// Its result.
    pub result: RunResult,
    /// How to get into the lab, when it was kept.
    pub kept: Vec<String>,
}

/// The lab cannot be had: not the product's fault.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}")]
struct LabError {
    what: &'static str,
    error: String,
}

impl From<VmError> for LabError {
    fn from(VmError { what, error }: VmError) -> Self {
        Self { what, error }
    }
}

fn lab(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> LabError {
    move |error| LabError { what, error: error.to_string() }
}

/// A clock that never goes back, in the harness's own time.
#[derive(Clone, Copy)]
struct Clock {
    started: Instant,
    wall: Timestamp,
}

impl Clock {
    fn start() -> Self {
        Self { started: Instant::now(), wall: Timestamp::now() }
    }
    fn now(&self) -> Timestamp {
        self.wall + self.started.elapsed()
    }
    /// How far the machine's wall clock has moved against the monotonic one.
    fn jump(&self) -> Duration {
        let (real, own) = (Timestamp::now(), self.now());
        real.since(own).max(own.since(real))
    }
}

/// A run that has a folder and nothing else yet.
struct Opened {
    clock: Clock,
    result: RunResult,
    dir: RunDir,
}

/// Starts the clock of a run and makes its folder; what it comes to without one is the error.
fn open(prepared: &Prepared, options: &RealOptions) -> Result<Opened, Box<Outcome>> {
    let clock = Clock::start();
    let started_at = clock.now();
    let run_id = rundir::new_run_id(started_at, &prepared.scenario.name);
    let mut result = RunResult {
        version: RESULT_VERSION,
        run: prepared.info(&run_id, false, BTreeMap::new()),
        started_at,
        environment: environment(),
        ..RunResult::default()
    };
    if let Some(why) = &prepared.hosts_why {
        result.environment.insert("hosts".to_owned(), format!("{}: {why}", prepared.hosts_kind()));
    }
    let started = Started::of(prepared, &run_id, started_at);
    match RunDir::create(&options.runs, &started, &options.scenario_text, &prepared.scenario.infra_env.resources) {
        Ok(dir) => Ok(Opened { clock, result, dir }),
        Err(error) => {
            result.finished_at = clock.now();
            result.cut_short(exit::INCONCLUSIVE, format!("the run's folder: {error}"));
            Err(Box::new(Outcome { dir: None, result, kept: Vec::new() }))
        }
    }
}

/// Runs a scenario in real time. Always gives a result: what goes wrong in the lab makes it inconclusive.
pub async fn run(prepared: &Prepared, options: RealOptions) -> Outcome {
    let Opened { clock, mut result, dir } = match open(prepared, &options) {
        Ok(opened) => opened,
        Err(outcome) => return *outcome,
    };
    result.how_to_repeat = prepared.how_to_repeat("scenario");
    let redactor = Redactor::new(prepared.secrets());
    // A service that runs already has its PostgreSQL, one in a container gets it in another one.
    let mut needs = prepared.scenario.needs.clone();
    needs.retain(|need| prepared.target.needs_postgres_here() || *need != Need::Postgres);
    if let Some(reason) = crate::needs::unmet(&needs, &options.runs).await {
        let mut check = CheckResult::new(CheckKind::Lab, "needs", CheckVerdict::Skipped { reason: reason.clone() });
        check.expected = "the place of the run offers what the scenario needs".to_owned();
        result.checks.push(check);
        result.finished_at = clock.now();
        result.cut_short(exit::INCONCLUSIVE, format!("skipped: {reason}"));
        result.files = files(&dir, prepared);
        if let Err(error) = write_all(dir.path(), &result, &[], &redactor) {
            result.cut_short(exit::INCONCLUSIVE, format!("the reports could not be written: {error}"));
        }
        return Outcome { dir: Some(dir.path().to_owned()), result, kept: Vec::new() };
    }
    let mut bench = Bench {
        prepared,
        options: &options,
        dir: &dir,
        clock,
        redactor: redactor.clone(),
        ledger: None,
        secrets: prepared.secrets(),
        inside: None,
        kept: Vec::new(),
    };
    let history = Box::pin(bench.run(&mut result)).await;
    bench.clean_up(&mut result).await;
    let redactor = Redactor::new(std::mem::take(&mut bench.secrets));
    let interrupted = options.interrupted.is_cancelled();
    result.finished_at = clock.now();
    verdict::put_together(&mut result, &prepared.scenario, prepared.clock_scale, &history);
    if interrupted {
        result.cut_short(exit::INCONCLUSIVE, "interrupted by the user");
    }
    redact_logs(&dir, prepared, &redactor, &mut result);
    result.files = files(&dir, prepared);
    if let Err(error) = write_all(dir.path(), &result, &history, &redactor) {
        // The verdict is known all the same; that the reports are not there must not look like a pass.
        result.cut_short(exit::INCONCLUSIVE, format!("the reports could not be written: {error}"));
    }
    Outcome { dir: Some(dir.path().to_owned()), result, kept: bench.kept }
}

/// A service under test that is up.
#[derive(Debug)]
pub struct Hosted {
    /// Where it answers.
    pub endpoint: Endpoint,
    /// What it says that it is.
    pub version: String,
}

/// Starts the service of a run (or finds the one that runs already), lets `work` use it, and takes everything down again. The
/// folder, the ledger and the clean-up are those of a scenario's run; what is done with the service is the caller's.
///
/// The result has what was found about the lab and about leaks; `None`: the service was not to be had, or the user interrupted.
pub async fn with_service<T, W>(prepared: &Prepared, options: &RealOptions, work: W) -> (Outcome, Option<T>)
where
    W: AsyncFnOnce(Hosted) -> T,
{
    let Opened { clock, mut result, dir } = match open(prepared, options) {
        Ok(opened) => opened,
        Err(outcome) => return (*outcome, None),
    };
    let mut bench = Bench {
        prepared,
        options,
        dir: &dir,
        clock,
        redactor: Redactor::new(prepared.secrets()),
        ledger: None,
        secrets: prepared.secrets(),
        inside: None,
        kept: Vec::new(),
    };
    let mut done = None;
    match bench.set_up(&mut result).await {
        Err(error) => lab_check(&mut result, error.what, &error.error),
        Ok(mut lab) => {
            result.run.versions.insert("service".to_owned(), lab.version.clone());
            let hosted = Hosted { endpoint: lab.endpoint.clone(), version: lab.version.clone() };
            tokio::select! {
                biased;
                end = lab.ended() => match end {
                    End::Service(how) => {
                        let mut check = CheckResult::new(CheckKind::Expectation, verdict::STAYS_UP, CheckVerdict::Failed);
                        check.message = format!("the service under test ended by itself: {how}");
                        check.last_things = lab.service_log(50);
                        result.checks.push(check);
                    }
                    End::Postgres(how) => {
                        let problem = format!("PostgreSQL ended by itself during the run: {how}");
                        lab_check(&mut result, "postgresql", &problem);
                    }
                },
                worked = work(hosted) => done = Some(worked),
            }
            stop_service(&mut lab, &mut result).await;
            bench.stop_the_rest(lab, &mut result).await;
        }
    }
    bench.clean_up(&mut result).await;
    let redactor = Redactor::new(std::mem::take(&mut bench.secrets));
    redact_logs(&dir, prepared, &redactor, &mut result);
    result.finished_at = clock.now();
    result.files = files(&dir, prepared);
    (Outcome { dir: Some(dir.path().to_owned()), result, kept: Vec::new() }, done)
}

/// Something was wrong with the lab: with it the run proves nothing.
///
/// The first line says what; lines after it are details or the end of a log.
fn lab_check(result: &mut RunResult, name: &str, problem: &str) {
    let mut check = CheckResult::new(CheckKind::Lab, name, CheckVerdict::Failed);
    let (first, rest) = problem.split_once('\n').unwrap_or((problem, ""));
    check.message = first.to_owned();
    check.seen = first.to_owned();
    check.last_things = rest.lines().map(str::to_owned).collect();
    result.checks.push(check);
}

fn environment() -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.map(|v| v.trim().to_owned()).filter(|v| !v.is_empty()) {
            environment.insert(name.to_owned(), value);
        }
    };
    let line = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|l| l.starts_with(key))?;
        Some(line[key.len()..].trim_start_matches([' ', '\t', ':', '=']).trim_matches('"').to_owned())
    };
    add("kernel", std::fs::read_to_string("/proc/sys/kernel/osrelease").ok());
    add("os", line("/etc/os-release", "PRETTY_NAME"));
    add("cpu", line("/proc/cpuinfo", "model name"));
    add("memory", line("/proc/meminfo", "MemTotal"));
    add("cores", std::thread::available_parallelism().ok().map(|n| n.to_string()));
    environment
}

/// Logs of other programs are redacted once these have ended.
fn redact_logs(dir: &RunDir, prepared: &Prepared, redactor: &Redactor, result: &mut RunResult) {
    let consoles = machines_of(prepared).map(vm::console_file);
    let logs = ["service.log", "postgresql.log", "supervisor.log", "machines.log"].map(str::to_owned);
    for log in logs.into_iter().chain(consoles) {
        if let Err(error) = dir.redact_log(&log, redactor) {
            lab_check(result, "logs", &error.to_string());
        }
    }
}

/// Names of the hosts that are virtual machines.
fn machines_of(prepared: &Prepared) -> impl Iterator<Item = &str> {
    prepared.scenario.hosts.iter().filter(|host| host.kind == HostKind::Vm).map(|host| host.name.as_str())
}

fn files(dir: &RunDir, prepared: &Prepared) -> Vec<FileRef> {
    let mut all: Vec<(String, String)> = [
        (rundir::STARTED, "start marker"),
        (rundir::SCENARIO, "the scenario as it was run"),
        (rundir::RESOURCES, "files that the scenario names"),
        (rundir::HISTORY, "everything that was observed, one observation a line"),
    ]
    .map(|(name, what)| (name.to_owned(), what.to_owned()))
    .to_vec();
    for host in machines_of(prepared) {
        all.push((vm::console_file(host), format!("console of {host}")));
        all.push((vm::screenshot_file(host), format!("screen of {host} at the end")));
    }
    let logs = [
        ("service.log", "log of the service under test"),
        ("postgresql.log", "log of PostgreSQL"),
        ("machines.log", "log of the program that runs the machines"),
        ("network/dnsmasq.log", "DHCP and DNS of the lab network"),
        ("supervisor.log", "what the supervisor did"),
        ("report.html", "this run as a page"),
        (rundir::RESULT, "the verdict in full"),
    ];
    all.extend(logs.map(|(name, what)| (name.to_owned(), what.to_owned())));
    let there = |name: &str| {
        matches!(name, "report.html" | rundir::RESULT) || std::fs::metadata(dir.file(name)).is_ok_and(|m| m.len() > 0)
    };
    all.into_iter().filter(|(name, _)| there(name)).map(|(path, what)| FileRef { path, what }).collect()
}

struct Bench<'a> {
    prepared: &'a Prepared,
    options: &'a RealOptions,
    dir: &'a RunDir,
    clock: Clock,
    redactor: Redactor,
    ledger: Option<(Arc<Ledger>, Supervisor)>,
    /// What must not stand in logs.
    secrets: Vec<String>,
    /// How machines see the service, when there are some.
    inside: Option<Inside>,
    /// How to get into the lab, once it is decided that it stays.
    kept: Vec<String>,
}

/// The parts of the lab that are up.
struct Lab {
    /// `None` when the service is not ours, or its database in a container.
    postgres: Option<Arc<Store>>,
    /// `None` when the service is not ours, no process, or stopped by a fault.
    service: Option<Child>,
    /// The service and its database, when they are containers.
    containers: Option<Box<Containers>>,
    endpoint: Endpoint,
    scratch: Option<Arc<Scratch>>,
    version: String,
    /// Virtual machines and what they tell, when some hosts are such.
    machines: Option<(Box<VirtualLab>, mpsc::UnboundedReceiver<News>)>,
}

/// The service's database.
struct Store {
    cluster: PgCluster,
    conninfo: String,
}

impl Lab {
    /// Ends when the service or its database does; never, when they are not ours.
    async fn ended(&self) -> End {
        match (&self.service, &self.containers) {
            (Some(child), _) => End::Service(child.wait().await.to_string()),
            (None, Some(containers)) => match containers.ended().await {
                (true, how) => End::Service(how),
                (false, how) => End::Postgres(how),
            },
            (None, None) => std::future::pending().await,
        }
    }

    /// Connection string of the service's database, where it is ours.
    fn conninfo(&self) -> Option<&str> {
        match (&self.postgres, &self.containers) {
            (Some(postgres), _) => Some(&postgres.conninfo),
            (None, Some(containers)) => Some(&containers.conninfo),
            (None, None) => None,
        }
    }

    /// The last lines of the service's log.
    fn service_log(&self, count: usize) -> Vec<String> {
        match (&self.service, &self.containers) {
            (Some(child), _) => child.last_lines(count),
            (None, Some(containers)) => containers.last_lines(true, count),
            (None, None) => Vec::new(),
        }
    }

    /// The last lines of the database's log.
    fn postgres_log(&self, count: usize) -> Vec<String> {
        match (&self.postgres, &self.containers) {
            (Some(postgres), _) => postgres.cluster.last_log_lines(count),
            (None, Some(containers)) => containers.last_lines(false, count),
            (None, None) => Vec::new(),
        }
    }
}

/// A part of the lab ended by itself; how.
enum End {
    Service(String),
    Postgres(String),
}

impl Bench<'_> {
    /// Sets everything up, runs, takes everything down. What goes wrong with the lab is put into the result.
    async fn run(&mut self, result: &mut RunResult) -> Vec<Observation> {
        let begun = Instant::now();
        let lab = match Box::pin(self.set_up(result)).await {
            Ok(lab) => lab,
            Err(error) => {
                lab_check(result, error.what, &error.error);
                return Vec::new();
            }
        };
        if let Some(postgres) = &lab.postgres {
            result.run.versions.insert("postgresql".to_owned(), postgres.cluster.version().to_owned());
        }
        if let Some(containers) = &lab.containers {
            result.run.versions.insert("postgresql".to_owned(), containers.postgres_version.clone());
            result.run.versions.insert("container engine".to_owned(), containers.engine());
        }
        result.run.versions.insert("service".to_owned(), lab.version.clone());
        let set_up = begun.elapsed();
        tracing::info!(?set_up, "the lab is up");
        let (history, kept) = Box::pin(self.perform(lab, result, set_up)).await;
        self.kept = kept;
        history
    }

    async fn set_up(&mut self, result: &mut RunResult) -> Result<Lab, LabError> {
        let run_id = result.run.run_id.clone();
        let ledger = Ledger::create(&ledger::registry(), &run_id).map_err(|e| lab("ledger")(&e))?;
        if self.options.keep {
            ledger.keep();
        }
        let ledger = Arc::new(ledger);
        let supervisor = Supervisor::spawn_as(&self.options.vlab, &ledger, &self.dir.file("supervisor.log"));
        let supervisor = supervisor.map_err(|e| {
            // Nothing is in it yet, and there is nobody to remove it.
            let _ = ledger.close();
            lab("supervisor")(&e)
        })?;
        self.ledger = Some((ledger.clone(), supervisor));
        if self.prepared.has(HostKind::Vm) {
            return Box::pin(self.set_up_with_machines(result, &run_id, &ledger)).await;
        }
        self.set_up_services(result, &run_id, &ledger, None).await
    }

    /// The machines' part of the lab, and then the rest. What cannot be had is found out before anything is made, as far as
    /// that is possible.
    async fn set_up_with_machines(
        &mut self,
        result: &mut RunResult,
        run_id: &str,
        ledger: &Arc<Ledger>,
    ) -> Result<Lab, LabError> {
        let tell = self.options.tell;
        let scenario = &self.prepared.scenario;
        let ability = match self.options.ability.clone() {
            Some(ability) => ability,
            None => vm::ability(&self.options.runs).await.map_err(|why| lab("virtual machines")(&why))?,
        };
        let plan = plan(self.prepared).map_err(|e| lab("virtual machines")(&e))?;
        result.environment.extend(about_machines(&plan.machines, &ability));
        vm::fits(ledger, &plan, ability.acceleration.accel)?;
        tell(&format!("virtual machines: {}", ability.acceleration.why));
        let iso = match &scenario.infra_env.iso {
            Some(iso) => std::path::absolute(iso).map_err(|e| lab("infra_env.iso")(&e))?,
            None => tokio::select! {
                built = vm::lab_iso(tell) => built.map_err(|why| lab("lab images")(&why))?,
                () = self.options.interrupted.cancelled() => {
                    return Err(LabError { what: "set-up", error: "interrupted".into() });
                }
            },
        };
        let gateway =
            gateway_of(scenario).ok_or_else(|| lab("lab network")(&"the machines' network has no gateway"))?;
        let images_url = match self.prepared.target {
            // It has its own.
            Target::Simulated => base_url(gateway),
            _ => images_url(gateway),
        };
        let inside = Inside { base_url: base_url(gateway), images_url, iso };
        let ground = vm::Ground {
            prepared: self.prepared,
            dir: self.dir.path(),
            vlab: &self.options.vlab,
            ledger,
            ability: &ability,
        };
        let (machines, news) = VirtualLab::start(&ground, plan).await?;
        result.run.versions.extend(machines.versions().map(|(name, version)| (name.to_owned(), version)));
        match Box::pin(self.set_up_services(result, run_id, ledger, Some(inside))).await {
            Ok(lab) => Ok(Lab { machines: Some((Box::new(machines), news)), ..lab }),
            Err(error) => {
                for problem in machines.stop().await {
                    lab_check(result, problem.what, &problem.error);
                }
                Err(error)
            }
        }
    }

    /// The service under test with its database.
    async fn set_up_services(
        &mut self,
        result: &mut RunResult,
        run_id: &str,
        ledger: &Arc<Ledger>,
        inside: Option<Inside>,
    ) -> Result<Lab, LabError> {
        self.inside = inside;
        if !self.prepared.target.is_owned() {
            let running = self.start_service(None, None, None).await?;
            return Ok(Lab {
                postgres: None,
                service: running.child,
                containers: None,
                endpoint: running.endpoint,
                scratch: None,
                version: running.version,
                machines: None,
            });
        }
        if let Target::Container { image, postgres } = &self.prepared.target {
            return self.set_up_containers(result, run_id, ledger, image, postgres.as_deref()).await;
        }
        let as_process = matches!(self.prepared.target, Target::Process { .. });
        let postgres = PgCluster::start(PgOptions {
            log_file: Some(self.dir.file("postgresql.log")),
            ledger: Some(ledger.clone()),
            // The real service knows no unix sockets.
            tcp: if as_process { Tcp::AnyPort } else { Tcp::Off },
            ..PgOptions::from_env()
        });
        // Not given up in the middle when the user interrupts: its directory would be left. It takes a moment only.
        let postgres = postgres.await.map_err(|e| lab("postgresql")(&e))?;
        if self.options.interrupted.is_cancelled() {
            let _ = postgres.stop().await;
            return Err(LabError { what: "set-up", error: "interrupted".into() });
        }
        let mut scratch = None;
        match self.set_up_service(run_id, ledger, &postgres, as_process, &mut scratch).await {
            Ok((conninfo, running)) => {
                result.startup = running.ready.map(|ready| Startup {
                    service_ready_ms: ready.as_secs_f64() * 1e3,
                    postgres_ready_ms: Some(postgres.start_times().total.as_secs_f64() * 1e3),
                });
                Ok(Lab {
                    postgres: Some(Arc::new(Store { cluster: postgres, conninfo })),
                    service: running.child,
                    containers: None,
                    endpoint: running.endpoint,
                    scratch: scratch.map(Arc::new),
                    version: running.version,
                    machines: None,
                })
            }
            Err(error) => {
                if let Some(scratch) = scratch {
                    // What cannot be removed stays in the ledger and is told as a leak.
                    let _ = scratch.remove();
                }
                let _ = postgres.stop().await;
                Err(error)
            }
        }
    }

    async fn set_up_containers(
        &mut self,
        result: &mut RunResult,
        run_id: &str,
        ledger: &Arc<Ledger>,
        image: &str,
        postgres_image: Option<&str>,
    ) -> Result<Lab, LabError> {
        let order = Order {
            prepared: self.prepared,
            run_id,
            image,
            postgres_image,
            database: DATABASE,
            service_log: self.dir.file("service.log"),
            postgres_log: self.dir.file("postgresql.log"),
            ledger: Some(ledger.clone()),
            real_tools: self.options.real_tools,
            ready_within: self.options.ready_within,
            vlab: &self.options.vlab,
            inside: self.inside.as_ref(),
            interrupted: &self.options.interrupted,
        };
        let containers = match Box::pin(Containers::start(&order)).await {
            Ok(containers) => containers,
            Err(container::Problem::Interrupted) => {
                return Err(LabError { what: "set-up", error: "interrupted".into() });
            }
            Err(problem) => return Err(self::lab("containers")(&problem)),
        };
        // The service may write it into its log.
        self.secrets.push(containers.password.clone());
        result.startup = Some(Startup {
            service_ready_ms: containers.service_ready.as_secs_f64() * 1e3,
            postgres_ready_ms: Some(containers.postgres_ready.as_secs_f64() * 1e3),
        });
        Ok(Lab {
            postgres: None,
            service: None,
            endpoint: containers.endpoint.clone(),
            scratch: None,
            version: containers.version.clone(),
            machines: None,
            containers: Some(Box::new(containers)),
        })
    }

    async fn set_up_service(
        &mut self,
        run_id: &str,
        ledger: &Arc<Ledger>,
        postgres: &PgCluster,
        as_process: bool,
        scratch: &mut Option<Scratch>,
    ) -> Result<(String, Running), LabError> {
        let conninfo = postgres.create_database(DATABASE).await.map_err(|e| lab("postgresql")(&e))?;
        if as_process {
            let tools = !self.options.real_tools;
            *scratch = Some(Scratch::create(run_id, Some(ledger.clone()), tools).map_err(|e| lab("service")(&e))?);
            // The service may write it into its log.
            self.secrets.extend(
                postgres
                    .tcp_conninfo_for(DATABASE)
                    .and_then(|conninfo| target::Database::read(&conninfo).ok())
                    .map(|database| database.password)
                    .filter(|password| !password.is_empty()),
            );
        }
        let running = self.start_service(Some((postgres, &conninfo)), scratch.as_ref(), None).await?;
        Ok((conninfo, running))
    }

    /// Starts the service, or finds the one that runs already, and waits until it is ready. `again`: where it was before.
    async fn start_service(
        &self,
        postgres: Option<(&PgCluster, &str)>,
        scratch: Option<&Scratch>,
        again: Option<SocketAddr>,
    ) -> Result<Running, LabError> {
        let ground = Ground {
            prepared: self.prepared,
            vlab: &self.options.vlab,
            log_file: self.dir.file("service.log"),
            address_file: self.dir.file("service.address"),
            ledger: self.ledger.as_ref().map(|(ledger, _)| ledger.clone()),
            conninfo: postgres.map(|(_, conninfo)| conninfo.to_owned()).unwrap_or_default(),
            tcp_conninfo: postgres.and_then(|(postgres, _)| postgres.tcp_conninfo_for(DATABASE)),
            scratch,
            real_tools: self.options.real_tools,
            ready_within: self.options.ready_within,
            inside: self.inside.as_ref(),
        };
        tokio::select! {
            running = target::start(&self.prepared.target, &ground, again) => running.map_err(|e| lab("service")(&e)),
            () = self.options.interrupted.cancelled() => Err(LabError { what: "set-up", error: "interrupted".into() }),
        }
    }

    /// The run itself: its history, and how to get into the lab when that stays.
    async fn perform(&self, mut lab: Lab, result: &mut RunResult, set_up: Duration) -> (Vec<Observation>, Vec<String>) {
        let (watcher_tx, mut changes) = mpsc::unbounded_channel();
        // Where the database is not ours, the user's looks are all that is seen.
        let mut watcher = None;
        let (over, watch_until) = oneshot::channel();
        if let Some(conninfo) = lab.conninfo().map(str::to_owned) {
            match watch::connect(&conninfo).await {
                Ok(client) => {
                    if let Err(error) = watch::install(&client).await {
                        lab_check(result, "history", &error.to_string());
                    }
                }
                Err(error) => lab_check(result, "history", &error.to_string()),
            }
            watcher = Some(tokio::spawn(watch::watch(conninfo, watcher_tx, watch_until)));
        }
        let sink = match self.dir.redacted_file(rundir::HISTORY, &self.redactor) {
            Ok(file) => Some(Box::new(file) as Box<dyn std::io::Write + Send>),
            Err(error) => {
                lab_check(result, "history", &error.to_string());
                None
            }
        };
        let ingress_pem = match vlab_agents::ingress::make_ingress_pem() {
            Ok(pem) => pem,
            Err(error) => {
                lab_check(result, "certificates", &error.to_string());
                vlab_agents::ingress::LAB_INGRESS_PEM.to_owned()
            }
        };
        let score = Score {
            ssh_key: lab.machines.as_ref().map(|(machines, _)| machines.ssh_key().to_owned()),
            ..self.prepared.score(result.run.clone(), ingress_pem)
        };
        let mut conductor = Conductor::new(score, Recorder::new(sink));
        let mut outside = match Outside::new(self, &lab) {
            Ok(outside) => outside,
            Err(error) => {
                lab_check(result, error.what, &error.error);
                stop_service(&mut lab, result).await;
                self.stop_the_rest(lab, result).await;
                return (Vec::new(), Vec::new());
            }
        };
        let (mut traffic, mut answers) = Traffic::new(outside.user.clone(), outside.hosts.clone());
        let mut live = Live::new(&self.options.live, &self.prepared.scenario, self.prepared.target.state_source());
        let mut memory = Memory::default();
        // Without machines nobody has any.
        let (silent, nothing) = mpsc::unbounded_channel();
        let (mut machines, mut news) = match lab.machines.take() {
            Some((machines, news)) => (Some(machines), news),
            None => (None, nothing),
        };

        let begun = self.clock.now();
        conductor.start(begun);
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut idle_since = None;
        // Machines reach the service as simulated hosts do: through the gateway, where a fault needs one.
        let connected = match (&mut machines, &self.inside) {
            (Some(machines), Some(inside)) => machines.connect(outside.hosts.address(), &lab.endpoint, inside),
            _ => Ok(()),
        };
        let mut problem = connected.err().map(|VmError { what, error }| (what, error));
        let ending = loop {
            if problem.is_some() {
                break None;
            }
            for send in conductor.take_sends() {
                traffic.send(send);
            }
            // Before the end is looked for: a fault that begins with the last thing that is waited for happens, too.
            outside.catch_up(&mut lab);
            for task in conductor.take_tasks() {
                outside.carry_out(&mut lab, task).await;
            }
            let now = self.clock.now();
            if let Some(ending) = conductor.ending(now) {
                break Some(ending);
            }
            if idle_since.is_none() && conductor.lingering_since().is_some() {
                // A load report is about the idle fleet, not about the storm of its registration.
                idle_since = Some(now);
                traffic.restart_count();
                memory.settle();
            }
            for order in conductor.take_machine_orders() {
                if let Some(machines) = &mut machines {
                    machines.carry_out(order, now);
                }
            }
            let pause = conductor.next_wake().map(|at| at.since(now)).unwrap_or(Duration::from_secs(3600));
            tokio::select! {
                biased;
                () = self.options.interrupted.cancelled() => break None,
                Some(answer) = answers.recv() => {
                    let reply = traffic.count(answer);
                    conductor.deliver(self.clock.now(), reply);
                    // What has arrived already needs no further turn of the loop.
                    for _ in 0..256 {
                        let Ok(answer) = answers.try_recv() else { break };
                        let reply = traffic.count(answer);
                        conductor.deliver(self.clock.now(), reply);
                    }
                    if conductor.next_wake().is_some_and(|at| at <= self.clock.now()) {
                        conductor.wake(self.clock.now());
                    }
                    while let Ok((at, found)) = changes.try_recv() {
                        observe(&mut conductor, at, found);
                    }
                    if housekeeping_due(&mut housekeeping).await
                        && let Some(p) = self.housekeeping(&mut conductor, &mut memory, &lab, &mut live, &outside)
                    {
                        problem = Some(p);
                        break None;
                    }
                }
                report = outside.next() => {
                    if let Some(p) = self.take_in(&mut conductor, &mut lab, report) {
                        problem = Some(p);
                        break None;
                    }
                }
                Some((at, found)) = changes.recv() => observe(&mut conductor, at, found),
                Some(item) = news.recv() => {
                    let now = self.clock.now();
                    match item {
                        News::Seen(source, what) => conductor.observe(now, source, None, what),
                        News::Lost { machine, how, advice } => {
                            let after = now.since(begun).as_secs_f64();
                            let end = if advice.is_empty() { String::new() } else { format!("; {advice}") };
                            let when = format!("{after:.1} s after the start of the run");
                            problem = Some(("machines", format!("{machine}: {how}, {when}{end}")));
                            break None;
                        }
                        News::Broken(VmError { what, error }) => {
                            problem = Some((what, error));
                            break None;
                        }
                    }
                }
                broken = ended_by_itself(machines.as_deref()) => {
                    problem = Some((broken.what, broken.error));
                    break None;
                }
                end = lab.ended() => {
                    let how = match end {
                        End::Service(how) => how,
                        End::Postgres(how) => {
                            problem = Some(("postgresql", format!("PostgreSQL ended by itself during the run: {how}")));
                            break None;
                        }
                    };
                    let text = format!("the service under test ended by itself: {how}");
                    conductor.observe(self.clock.now(), Source::Harness, None, What::Note { text: text.clone() });
                    let mut check = CheckResult::new(CheckKind::Expectation, verdict::STAYS_UP, CheckVerdict::Failed);
                    check.message = text;
                    check.expected = "the service runs until the harness stops it".to_owned();
                    check.seen = how;
                    check.last_things = lab.service_log(50);
                    result.checks.push(check);
                    break None;
                }
                () = tokio::time::sleep(pause) => conductor.wake(self.clock.now()),
                _ = housekeeping.tick() => {
                    if let Some(p) = self.housekeeping(&mut conductor, &mut memory, &lab, &mut live, &outside) {
                        problem = Some(p);
                        break None;
                    }
                }
            }
        };
        let ended = self.clock.now();
        live.finish();
        // Whatever the end was: nothing stands still and nothing is broken when the last look is taken.
        for report in outside.finish(&mut lab).await {
            if let Some(p) = self.take_in(&mut conductor, &mut lab, report) {
                problem.get_or_insert(p);
            }
        }
        if let Some(ending) = &ending {
            ending_check(result, ending);
        }
        if let Some((what, error)) = &problem {
            lab_check(result, what, error);
            if *what == "postgresql"
                && let Some(check) = result.checks.last_mut()
            {
                check.last_things = lab.postgres_log(20);
            }
        }
        if let Some(machines) = &machines
            && (problem.is_some() || !self.holds(ending.as_ref(), conductor.recorder().observations()))
        {
            machines.screenshots(self.dir.path()).await;
        }
        if problem.is_none() {
            self.last_look(&mut conductor, &mut traffic, &mut answers, &mut changes).await;
        }
        // What the last look has shown was in the database before.
        drop(over);
        if let Some(watcher) = watcher {
            let deadline = tokio::time::Instant::now() + LAST_LOOK;
            while let Ok(Some((at, found))) = tokio::time::timeout_at(deadline, changes.recv()).await {
                observe(&mut conductor, at, found);
            }
            watcher.abort();
        }
        if self.prepared.scenario.load.as_ref().is_some_and(|l| l.measure) {
            let since = idle_since.unwrap_or(begun);
            self.load(result, &traffic, &memory, ended.since(since));
        }
        self.overhead(result, conductor.recorder().observations(), begun, ended, set_up, ending.as_ref());

        if self.options.pause_on_failure {
            self.pause(result, conductor.recorder().observations(), &lab).await;
        }
        let kept = if self.options.keep { self.entrance(&lab) } else { Vec::new() };

        // The order matters: nobody may write to what is already gone.
        if let Some(machines) = machines {
            for VmError { what, error } in machines.stop().await {
                lab_check(result, what, &error);
            }
            // What they said until their power was off.
            drop(silent);
            while let Ok(item) = news.try_recv() {
                if let News::Seen(source, what) = item {
                    conductor.observe(self.clock.now(), source, None, what);
                }
            }
        }
        drop(traffic);
        drop(answers);
        drop(outside);
        if kept.is_empty() {
            stop_service(&mut lab, result).await;
            self.stop_the_rest(lab, result).await;
        }
        if let Some(error) = conductor.recorder().broken() {
            lab_check(
                result,
                "history",
                &format!("cannot write {}: {error}", self.dir.file(rundir::HISTORY).display()),
            );
        }
        (conductor.finish(self.clock.now(), if ending.is_some() { RunEnd::Ended } else { RunEnd::CutShort }), kept)
    }

    /// Did everything go well so far?
    fn holds(&self, ending: Option<&Ending>, history: &[Observation]) -> bool {
        let judgement = verdict::judge(&self.prepared.scenario, self.prepared.clock_scale, history);
        ending == Some(&Ending::Complete) && judgement.checks.iter().all(|c| c.verdict != CheckVerdict::Failed)
    }

    /// How to get into a lab that is up, for people.
    fn entrance(&self, lab: &Lab) -> Vec<String> {
        let mut lines = vec![format!("service:  http://{}", lab.endpoint.address())];
        lines.extend(lab.conninfo().map(|conninfo| format!("database: psql '{conninfo}'")));
        lines.push(format!("logs:     {}", self.dir.path().display()));
        lines
    }

    /// Waits for the Enter key when the run has not passed so far. Hosts and user rest meanwhile; service and database go on.
    async fn pause(&self, result: &RunResult, history: &[Observation], lab: &Lab) {
        let mut so_far = result.clone();
        so_far.finished_at = self.clock.now();
        verdict::put_together(&mut so_far, &self.prepared.scenario, self.prepared.clock_scale, history);
        if so_far.verdict == Verdict::Passed || self.options.interrupted.is_cancelled() {
            return;
        }
        let reason = so_far.reason.as_deref().unwrap_or("no reason was given");
        eprintln!("{} {}: {reason}", self.prepared.scenario.name, so_far.verdict);
        for line in self.entrance(lab) {
            eprintln!("  {line}");
        }
        if let Some(host) = self.prepared.scenario.hosts.iter().find(|host| host.kind == HostKind::Vm) {
            eprintln!("  machines: vlab ssh {0}, vlab console {0} (they run)", host.name);
        }
        eprintln!("The hosts rest, the service and its database are up. Enter takes the lab down.");
        let enter = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        tokio::select! {
            _ = enter => {}
            () = self.options.interrupted.cancelled() => {}
        }
    }

    /// Stops what is under the service, once that is gone.
    async fn stop_the_rest(&self, mut lab: Lab, result: &mut RunResult) {
        if let Some(postgres) = &lab.postgres
            && let Err(error) = postgres.cluster.stop().await
        {
            lab_check(result, "postgresql", &error.to_string());
        }
        if let Some(containers) = lab.containers.take()
            && let Err(error) = containers.remove().await
        {
            lab_check(result, "containers", &error.to_string());
        }
        // Nobody else has it any more: what restarts the service has ended before.
        if let Some(scratch) = lab.scratch.take().and_then(Arc::into_inner)
            && let Err(error) = scratch.remove()
        {
            lab_check(result, "service", &error.to_string());
        }
        let _ = std::fs::remove_file(self.dir.file("service.address"));
    }

    fn housekeeping(
        &self,
        conductor: &mut Conductor,
        memory: &mut Memory,
        lab: &Lab,
        live: &mut Live,
        outside: &Outside<'_>,
    ) -> Option<(&'static str, String)> {
        let gone = |store: &Arc<Store>| store.cluster.postmaster().is_some_and(|postmaster| !postmaster.is_alive());
        if !outside.postgres_is_down() && lab.postgres.as_ref().is_some_and(gone) {
            // The service waits for it and every host with it: without this the run would go on to its total budget.
            return Some(("postgresql", "PostgreSQL ended by itself during the run".to_owned()));
        }
        conductor.recorder().flush();
        memory.look(lab, conductor.recorder().observations());
        live.draw(conductor.recorder().observations());
        if self.clock.jump() > CLOCK_JUMP {
            return Some(("clock", format!("the machine's clock jumped by {:?} during the run", self.clock.jump())));
        }
        if let Some(error) = conductor.recorder().broken() {
            let path = self.dir.file(rundir::HISTORY);
            return Some(("history", format!("cannot write {}: {error}", path.display())));
        }
        None
    }

    /// Takes in what happened to the programs of the run; what is wrong with the lab, if that is it.
    fn take_in(&self, conductor: &mut Conductor, lab: &mut Lab, report: Report) -> Option<(&'static str, String)> {
        let now = self.clock.now();
        match report {
            Report::Effect { fault, host, what } => conductor.task_effect(now, &fault, host, what),
            Report::Up { fault, child } => {
                lab.service = child;
                conductor.task_done(now, &fault, "the service is up again");
            }
            Report::Done { fault, who } => {
                conductor.task_done(now, &fault, &format!("{} is up again", who.words()));
            }
            Report::Note(text) => conductor.observe(now, Source::Harness, None, What::Note { text }),
            Report::Broken(error) => return Some((error.what, error.error)),
        }
        None
    }

    /// What the events and the service's own view say at the end.
    ///
    /// The simulated service writes an event together with the change that it is about. The real one writes it a little later
    /// (a cluster is `installed` some milliseconds before its event says so), so that one is looked at until a look
    /// brings no event that was not there at the look before.
    async fn last_look(
        &self,
        conductor: &mut Conductor,
        traffic: &mut Traffic,
        answers: &mut mpsc::UnboundedReceiver<crate::traffic::Answer>,
        changes: &mut mpsc::UnboundedReceiver<(Timestamp, Vec<Change>)>,
    ) {
        let deadline = tokio::time::Instant::now() + LAST_LOOK;
        let events = |conductor: &mut Conductor| {
            conductor.recorder().observations().iter().filter(|o| o.source == Source::Events).count()
        };
        let mut before = None;
        loop {
            if !self.look_once(conductor, traffic, answers, changes, deadline).await {
                return;
            }
            let now = events(conductor);
            if self.prepared.target == Target::Simulated || before == Some(now) {
                return;
            }
            before = Some(now);
            let again = tokio::time::Instant::now() + EVENTS_SETTLE;
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(again.min(deadline)) => break,
                    Some((at, found)) = changes.recv() => observe(conductor, at, found),
                }
            }
        }
    }

    /// One look at everything; `false` when it took too long.
    async fn look_once(
        &self,
        conductor: &mut Conductor,
        traffic: &mut Traffic,
        answers: &mut mpsc::UnboundedReceiver<crate::traffic::Answer>,
        changes: &mut mpsc::UnboundedReceiver<(Timestamp, Vec<Change>)>,
        deadline: tokio::time::Instant,
    ) -> bool {
        conductor.look_once_more(self.clock.now());
        while !conductor.has_looked() {
            for send in conductor.take_sends() {
                // The hosts are through; only the user still asks.
                if Conductor::is_user(send.connection) {
                    traffic.send(send);
                }
            }
            let now = self.clock.now();
            let pause = conductor.next_wake().map(|at| at.since(now)).unwrap_or(LAST_LOOK);
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return false,
                Some(answer) = answers.recv() => {
                    let reply = traffic.count(answer);
                    if Conductor::is_user(reply.connection) {
                        conductor.deliver(self.clock.now(), reply);
                    }
                }
                Some((at, found)) = changes.recv() => observe(conductor, at, found),
                () = tokio::time::sleep(pause.max(Duration::from_millis(1))) => conductor.wake(self.clock.now()),
            }
        }
        true
    }

    fn load(&self, result: &mut RunResult, traffic: &Traffic, memory: &Memory, measured: Duration) {
        let Some(load) = &self.prepared.scenario.load else { return };
        let tally = traffic.tally();
        let seconds = measured.as_secs_f64().max(1e-6);
        let report = LoadReport {
            hosts: self.prepared.scenario.hosts.len() as u64,
            measured_s: seconds,
            offered_rps: tally.offered as f64 / seconds,
            achieved_rps: tally.answered as f64 / seconds,
            requests: tally.offered,
            errors: tally.errors.clone(),
            latency: tally.latencies(),
            agents_rss_kib: memory.harness,
            service_rss_kib: memory.service,
            postgres_rss_kib: memory.postgres,
            per_host_kib_slope: memory.slope(),
        };
        if let Some(limit) = load.max_errors {
            let failed = tally.failed();
            let verdict = if failed > limit { CheckVerdict::Failed } else { CheckVerdict::Passed };
            let mut check = CheckResult::new(CheckKind::Expectation, "load: failed requests", verdict);
            check.expected = format!("at most {limit}");
            check.seen = format!("{failed} of {}: {:?}", tally.offered, tally.errors);
            check.message = check.seen.clone();
            result.checks.push(check);
        }
        if let Some(limit) = load.latency_p99_at_most {
            let limit = limit.under(self.prepared.clock_scale).as_secs_f64() * 1e3;
            let worst =
                report.latency.iter().map(|l| (l.latency_ms.p99, &l.operation)).max_by(|a, b| a.0.total_cmp(&b.0));
            let verdict = match worst {
                Some((p99, _)) if p99 <= limit => CheckVerdict::Passed,
                Some(_) => CheckVerdict::Failed,
                None => CheckVerdict::Inconclusive { reason: "no request was measured".to_owned() },
            };
            let mut check = CheckResult::new(CheckKind::Budget, "load: 99th percentile of latency", verdict);
            check.expected = format!("at most {limit:.1} ms");
            check.seen = worst.map(|(p99, op)| format!("{p99:.1} ms ({op})")).unwrap_or_default();
            check.message = check.seen.clone();
            result.checks.push(check);
        }
        result.load = Some(report);
    }

    /// What the harness added to what the service's own intervals force: the same run in virtual time, where requests cost
    /// nothing, says what is forced.
    fn overhead(
        &self,
        result: &mut RunResult,
        history: &[Observation],
        begun: Timestamp,
        ended: Timestamp,
        set_up: Duration,
        ending: Option<&Ending>,
    ) {
        let hosts = self.prepared.scenario.hosts.len();
        // What the simulated service's intervals force says nothing about another one.
        if ending != Some(&Ending::Complete)
            || hosts > SIMULATE_UP_TO
            || self.prepared.scenario.faults.iter().any(is_outside)
            || self.prepared.target != Target::Simulated
            || self.prepared.has(HostKind::Vm)
        {
            return;
        }
        let info = self.prepared.info("forced-time", true, BTreeMap::new());
        let score: Score = self.prepared.score(info, vlab_agents::ingress::LAB_INGRESS_PEM.to_owned());
        let forced = simulate(score, self.prepared.core_config("http://127.0.0.1:8090"), Recorder::new(None));
        if forced.ending != Ending::Complete {
            return;
        }
        let wall_ms = ended.since(begun).as_secs_f64() * 1e3;
        let forced_ms = forced.ended_at.since(vlab_drive::simulate::BEGINNING).as_secs_f64() * 1e3;
        let first_host = history.iter().find_map(|o| match &o.what {
            What::HostStatus { from: None, .. } => Some(o.at()),
            _ => None,
        });
        result.overhead = Some(Overhead {
            wall_ms,
            forced_ms,
            overhead_ms: wall_ms - forced_ms,
            limit_ms: Some(OVERHEAD_LIMIT.0.max(forced_ms * OVERHEAD_LIMIT.1)),
            first_host_ms: first_host.map(|at| (at.since(begun) + set_up).as_secs_f64() * 1e3),
        });
    }

    /// Closes the ledger: what is still open in it was left behind. The supervisor removes it, and the run says so.
    async fn clean_up(&mut self, result: &mut RunResult) {
        let Some((ledger, supervisor)) = self.ledger.take() else { return };
        if !self.kept.is_empty() {
            if let Err(error) = supervisor.keep() {
                tracing::warn!(%error, "supervisor");
            }
            let reason = "the lab is kept".to_owned();
            result.checks.push(CheckResult::new(CheckKind::Leak, LEAKS, CheckVerdict::Skipped { reason }));
            return;
        }
        let mut check = CheckResult::new(CheckKind::Leak, LEAKS, CheckVerdict::Passed);
        match ledger.close() {
            Ok(left) if left.is_empty() => {
                check.seen = "every process, container, folder and socket of the run is gone".to_owned();
                if let Err(error) = supervisor.dismiss() {
                    tracing::warn!(%error, "supervisor");
                }
            }
            Ok(left) => {
                check.verdict = CheckVerdict::Failed;
                check.message = format!("{} things are left: {left:?}", left.len());
                check.seen = check.message.clone();
                // Letting go of the supervisor without a word makes it clean up.
                drop(supervisor);
            }
            Err(error) => {
                check.verdict = CheckVerdict::Failed;
                check.message = error.to_string();
                drop(supervisor);
            }
        }
        result.checks.push(check);
        let _ = std::io::stderr().flush();
    }
}

/// What is known of the machines before they are there.
fn about_machines(machines: &[PlannedMachine], ability: &vm::Ability) -> BTreeMap<String, String> {
    let of = |words: &dyn Fn(&PlannedMachine) -> String| {
        let words: Vec<String> = machines
            .iter()
            .map(|machine| (machine, words(machine)))
            .filter(|(_, words)| !words.is_empty())
            .map(|(machine, words)| format!("{}: {words}", machine.spec.name))
            .collect();
        words.join("; ")
    };
    let mut about = BTreeMap::from([
        ("acceleration".to_owned(), ability.acceleration.why.clone()),
        ("machines".to_owned(), of(&|machine| machine.is.clone())),
    ]);
    let declared = of(&|machine| machine.declared.join(", "));
    if !declared.is_empty() {
        about.insert("declared, not there".to_owned(), declared);
    }
    about
}

/// Ends when what machines need does; never, without machines.
async fn ended_by_itself(machines: Option<&VirtualLab>) -> VmError {
    match machines {
        Some(machines) => machines.ended().await,
        None => std::future::pending().await,
    }
}

/// Does it happen to the programs of the run? Its length is then that of the wall clock, too.
fn is_outside(fault: &Fault) -> bool {
    matches!(fault.target, FaultTarget::Service | FaultTarget::Postgres | FaultTarget::Gateway)
}

async fn stop_service(lab: &mut Lab, result: &mut RunResult) {
    if let Some(service) = &lab.service {
        let status = service.stop(SERVICE_STOP).await;
        if !status.success() && result.checks.iter().all(|c| c.name != verdict::STAYS_UP) {
            tracing::warn!(%status, "the service did not end cleanly");
        }
    }
    if let Some(containers) = &mut lab.containers
        && let Err(error) = containers.remove_service().await
    {
        lab_check(result, "containers", &error.to_string());
    }
}

fn observe(conductor: &mut Conductor, at: Timestamp, changes: Vec<Change>) {
    for change in changes {
        conductor.observe(at, Source::Database, Some(change.at), change.what);
    }
}

/// Is the interval's tick due now? A loop that is always busy with answers would otherwise starve it.
async fn housekeeping_due(interval: &mut tokio::time::Interval) -> bool {
    tokio::time::timeout(Duration::ZERO, interval.tick()).await.is_ok()
}

/// Number of hosts from which the memory of one more host is measured: with fewer, what every process needs would count.
const SLOPE_FROM: u64 = 100;

/// Largest resident memory seen, in KiB.
#[derive(Default)]
struct Memory {
    harness: Option<u64>,
    service: Option<u64>,
    postgres: Option<u64>,
    /// Hosts that have registered, and how much of the history was counted for that.
    registered: u64,
    counted: usize,
    /// Hosts and memory of the harness when there were [`SLOPE_FROM`] hosts for the first time.
    few: Option<(u64, u64)>,
}

impl Memory {
    fn look(&mut self, lab: &Lab, history: &[Observation]) {
        let rss = |pid: u32| Usage::of(pid).ok().map(|u| u.rss_bytes / 1024);
        let harness = rss(std::process::id());
        self.harness = self.harness.max(harness);
        self.service = self.service.max(lab.service.as_ref().and_then(|s| rss(s.pid())));
        self.postgres =
            self.postgres.max(lab.postgres.as_ref().and_then(|p| p.cluster.postmaster()).and_then(|p| rss(p.pid)));
        let new =
            |o: &&Observation| matches!(o.what, What::HostStatus { from: None, .. }) && o.source == Source::Database;
        self.registered += history[self.counted..].iter().filter(new).count() as u64;
        self.counted = history.len();
        if self.few.is_none()
            && self.registered >= SLOPE_FROM
            && let Some(kib) = harness
        {
            self.few = Some((self.registered, kib));
        }
    }

    /// Forgets the largest values: from now on those of the idle fleet count.
    fn settle(&mut self) {
        (self.harness, self.service, self.postgres) = (None, None, None);
    }

    /// KiB for one more host of the fleet, its part of the history included.
    fn slope(&self) -> Option<f64> {
        let (hosts, kib) = self.few?;
        let more = self.registered.checked_sub(hosts).filter(|n| *n >= SLOPE_FROM)?;
        Some((self.harness? as f64 - kib as f64) / more as f64)
    }
}

/// Where runs are kept when nothing else is said: `target/vlab/runs` of the project, else of the working directory.
pub fn default_runs() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from("target"), PathBuf::from)
        .join("vlab")
        .join("runs")
}

/// A path of a run or of the runs' folder, as people give it: a folder, an id, or `latest`.
pub fn find_run(runs: &Path, name: &str) -> PathBuf {
    let direct = PathBuf::from(name);
    if direct.join(rundir::STARTED).exists() { direct } else { runs.join(name) }
}
