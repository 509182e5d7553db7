//! A run in real time: PostgreSQL, the service as a process of its own, hosts over HTTP, the database watched; and at the
//! end a verdict, whatever happened.

mod clock;
mod files;
mod freeze;
mod hub;
mod lab;
mod look;
mod measure;
mod outside;
mod perform;
mod starved;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use vlab_client::Endpoint;
use vlab_drive::fault::effect::Program;
use vlab_drive::prepare::{HubChoice, Prepared, wants_machines};
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, RESULT_VERSION, RunResult, exit};
use vlab_judge::verdict;
use vlab_lab::ledger::Ledger;
use vlab_lab::supervisor::Supervisor;
use vlab_model::history::Observation;
use vlab_reports::{Redactor, write_all};
use vlab_scenario::{Host, Need, Scenario};

use self::clock::Clock;
use self::files::{environment, files, redact_logs};
use self::freeze::From;
use self::perform::Performed;
use crate::error::LabError;
use crate::hosts::vm;
use crate::live::Show;
use crate::rundir::{self, RunDir, Started};
use crate::service::hub::{HubOrder, HubProgramEnd};
use crate::service::{self, ProgramEnd, RunningService, Secrets};
use crate::snapshot::{Snapshot, Wanted};

/// How long it may take until the end of a service is told that does not listen any more.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// Name of what is wrong with the API server of a run.
const API_SERVER: &str = "API server";

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
    /// The API server that the service's controllers are to work on, where they are.
    pub hub: Option<HubOrder>,
    /// How long the service may take until it is ready, when not the usual time.
    pub ready_within: Option<Duration>,
    /// What is known already of this place's virtual machines; else it is found out when they are wanted.
    pub ability: Option<vm::Ability>,
    /// Is told what takes long before the run begins.
    pub tell: fn(&str),
    /// The run is to be frozen, and ends with that.
    pub freeze: Option<Wanted>,
    /// The run goes on from that.
    pub from: Option<Arc<Snapshot>>,
}

/// What a real run gives.
#[derive(Debug)]
pub struct RunOutcome {
    /// Its folder; `None` when not even that could be made.
    pub dir: Option<PathBuf>,
    /// Its result.
    pub result: RunResult,
    /// How to get into the lab, when it was kept.
    pub kept: Vec<String>,
    /// It was frozen, so long after its start.
    pub frozen: Option<Duration>,
}

/// A run that has a folder and nothing else yet.
struct Opened {
    clock: Clock,
    result: RunResult,
    dir: RunDir,
}

/// Starts the clock of a run and makes its folder; what it comes to without one is the error.
fn open(prepared: &Prepared, options: &RealOptions) -> Result<Opened, Box<RunOutcome>> {
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
    let (redactor, resources) = (Redactor::new(prepared.secrets()), &prepared.scenario.infra_env.resources);
    match RunDir::create(&options.runs, &started, &options.scenario_text, resources, &redactor) {
        Ok(dir) => Ok(Opened { clock, result, dir }),
        Err(error) => {
            result.finished_at = clock.now();
            result.cut_short(exit::INCONCLUSIVE, format!("the run's folder: {error}"));
            Err(Box::new(RunOutcome { dir: None, result, kept: Vec::new(), frozen: None }))
        }
    }
}

/// A run in real time, as it goes on.
struct RealRun<'a> {
    prepared: &'a Prepared,
    options: &'a RealOptions,
    dir: &'a RunDir,
    clock: Clock,
    /// Of what is written while it goes on.
    redactor: Redactor,
    ledger: Option<(Arc<Ledger>, Supervisor)>,
    /// What must not stand in logs.
    secrets: Secrets,
    /// How to get into the lab, once it is decided that it stays.
    kept: Vec<String>,
    /// What it goes on from, once it does.
    from: Option<From>,
    /// So long after its start it was frozen.
    frozen: Option<Duration>,
}

impl<'a> RealRun<'a> {
    fn new(prepared: &'a Prepared, options: &'a RealOptions, dir: &'a RunDir, clock: Clock) -> Self {
        Self {
            prepared,
            options,
            dir,
            clock,
            redactor: Redactor::new(prepared.secrets()),
            ledger: None,
            secrets: Secrets::new(prepared.secrets()),
            kept: Vec::new(),
            from: None,
            frozen: None,
        }
    }

    /// Sets everything up, runs, takes everything down. What goes wrong with the lab is put into the result.
    async fn history(&mut self, result: &mut RunResult) -> Vec<Observation> {
        let begun = Instant::now();
        let lab = match Box::pin(self.set_up(result)).await {
            Ok(lab) => lab,
            Err(error) => {
                lab_check(result, error);
                return Vec::new();
            }
        };
        let set_up = begun.elapsed();
        tracing::info!(?set_up, "the lab is up");
        let Performed { history, kept, frozen } = Box::pin(self.perform(lab, result, set_up)).await;
        (self.kept, self.frozen) = (kept, frozen);
        history
    }
}

/// Why its `interleaving` cannot be had in real time: only what is done to requests of simulated hosts on their way can.
fn cannot_be_interleaved(scenario: &Scenario) -> Option<String> {
    let keys: Vec<String> = scenario.interleaving.only_virtual().into_iter().map(|key| format!("`{key}`")).collect();
    if !keys.is_empty() {
        return Some(format!(
            "{} of its `interleaving` is for virtual time (`vlab simulate`); in real time that comes as it comes",
            keys.join(", ")
        ));
    }
    let has_machines = scenario.hosts.iter().any(Host::is_machine);
    (has_machines && !scenario.interleaving.is_plain()).then(|| {
        "its `interleaving` is for simulated hosts (`--hosts sim`); what machines say can be disturbed by `faults`"
            .to_owned()
    })
}

/// Runs a scenario in real time. Always gives a result: what goes wrong in the lab makes it inconclusive.
pub async fn run(prepared: &Prepared, options: RealOptions) -> RunOutcome {
    let Opened { clock, mut result, dir } = match open(prepared, &options) {
        Ok(opened) => opened,
        Err(outcome) => return *outcome,
    };
    result.how_to_repeat = prepared.how_to_repeat("scenario");
    if let Some(folder) = options.hub.as_ref().and_then(|hub| hub.definitions.as_ref()) {
        result.how_to_repeat += &format!(" --definitions {}", folder.display());
    }
    if let Some(from) = &options.from {
        result.how_to_repeat += &format!(" --from {}", from.folder().display());
    }
    // A service that runs already has its PostgreSQL, one in a container gets it in another one.
    let mut needs = prepared.scenario.needs.clone();
    needs.retain(|need| prepared.target.needs_postgres_here() || *need != Need::Postgres);
    needs.retain(|need| {
        !matches!(prepared.target, vlab_drive::target::Target::Simulated) || *need != Need::SimulatedService
    });
    let unmet = if let Some(why) = cannot_be_interleaved(&prepared.scenario) {
        Some(why)
    } else if let Some(why) = no_hub(prepared, &options).or_else(|| wants_machines(&prepared.scenario)) {
        Some(why)
    } else {
        crate::needs::unmet(&needs, &options.runs).await
    };
    if let Some(reason) = unmet {
        skip(prepared, &dir, clock, &mut result, &reason);
        return RunOutcome { dir: Some(dir.path().to_owned()), result, kept: Vec::new(), frozen: None };
    }
    let mut run = RealRun::new(prepared, &options, &dir, clock);
    let history = Box::pin(run.history(&mut result)).await;
    // Before the supervisor is let go: it would do it for a harness that dies here.
    let redactor = Redactor::new(run.secrets.all());
    redact_logs(&dir, prepared, &redactor, &mut result);
    run.clean_up(&mut result).await;
    let interrupted = options.interrupted.is_cancelled();
    result.finished_at = clock.now();
    verdict::put_together(&mut result, &prepared.scenario, prepared.clock_scale, &history);
    if interrupted {
        result.cut_short(exit::INCONCLUSIVE, "interrupted by the user");
    } else if let (Some(after), Some(wanted)) = (run.frozen, &options.freeze) {
        let reason =
            format!("frozen at `{}`, {:.1} s after its start; nothing was judged", wanted.words, after.as_secs_f64());
        result.cut_short(exit::INCONCLUSIVE, reason);
    }
    result.files = files(&dir, prepared);
    if let Err(error) = write_all(dir.path(), &result, &history, &redactor) {
        // The verdict is known all the same; that the reports are not there must not look like a pass.
        result.cut_short(exit::INCONCLUSIVE, format!("the reports could not be written: {error}"));
    }
    let kept = std::mem::take(&mut run.kept);
    RunOutcome { dir: Some(dir.path().to_owned()), result, kept, frozen: run.frozen }
}

/// Why a run that asks over Kubernetes cannot have its API server here.
fn no_hub(prepared: &Prepared, options: &RealOptions) -> Option<String> {
    let named = options.hub.as_ref().is_some_and(|hub| hub.program.is_some());
    match &prepared.hub {
        _ if !prepared.kube => None,
        HubChoice::Assets(folder) => service::hub::assets::check(folder).err(),
        HubChoice::Existing(kubeconfig) => service::hub::existing::check(kubeconfig).err(),
        HubChoice::Ours if named => None,
        HubChoice::Ours => service::hub::program().err(),
    }
}

/// The place of the run lacks something: that is the result.
fn skip(prepared: &Prepared, dir: &RunDir, clock: Clock, result: &mut RunResult, reason: &str) {
    let skipped = CheckVerdict::Skipped { reason: reason.to_owned() };
    let mut check = CheckResult::new(CheckKind::Lab, "needs", skipped);
    check.expected = "this machine offers what the scenario needs".to_owned();
    result.checks.push(check);
    result.finished_at = clock.now();
    result.cut_short(exit::INCONCLUSIVE, format!("skipped: {reason}"));
    result.files = files(dir, prepared);
    if let Err(error) = write_all(dir.path(), result, &[], &Redactor::new(prepared.secrets())) {
        result.cut_short(exit::INCONCLUSIVE, format!("the reports could not be written: {error}"));
    }
}

/// A service under test that is up.
#[derive(Debug)]
pub struct Hosted {
    /// Where it answers.
    pub endpoint: Endpoint,
    /// What it says that it is.
    pub version: String,
    /// The API server on which its controllers work, where the run has one.
    pub hub: Option<Endpoint>,
}

/// Starts the service of a run (or finds the one that runs already), lets `work` use it, and takes everything down again. The
/// folder, the ledger and the clean-up are those of a scenario's run; what is done with the service is the caller's.
///
/// The result has what was found about the lab and about leaks; `None`: the service was not to be had, or the user interrupted.
pub async fn with_service<T, W>(prepared: &Prepared, options: &RealOptions, work: W) -> (RunOutcome, Option<T>)
where
    W: AsyncFnOnce(Hosted) -> T,
{
    let Opened { clock, mut result, dir } = match open(prepared, options) {
        Ok(opened) => opened,
        Err(outcome) => return (*outcome, None),
    };
    let mut run = RealRun::new(prepared, options, &dir, clock);
    let mut done = None;
    match Box::pin(run.set_up(&mut result)).await {
        Err(error) => lab_check(&mut result, error),
        Ok(lab) => {
            let about = lab.service.about();
            let hub = about.hub.as_ref().map(|(endpoint, _)| endpoint.clone());
            let hosted = Hosted { endpoint: about.endpoint.clone(), version: about.version.clone(), hub };
            let ended = tokio::select! {
                biased;
                ended = lab.service.ended() => Some(ended),
                worked = work(hosted) => {
                    done = Some(worked);
                    just_ended(&*lab.service).await
                }
            };
            match ended.map(|ended| surprise(&*lab.service, ended)) {
                Some(Surprise::Product(check)) => result.checks.push(*check),
                Some(Surprise::Lab(error)) => lab_check(&mut result, error),
                None => {}
            }
            lab.take_down(&mut result).await;
        }
    }
    let redactor = Redactor::new(run.secrets.all());
    redact_logs(&dir, prepared, &redactor, &mut result);
    run.clean_up(&mut result).await;
    result.finished_at = clock.now();
    result.files = files(&dir, prepared);
    (RunOutcome { dir: Some(dir.path().to_owned()), result, kept: Vec::new(), frozen: None }, done)
}

/// The end of a service that nobody has stopped and that does not listen any more: who asked it may see that before the system tells that
/// it has ended.
async fn just_ended(service: &dyn RunningService) -> Option<ProgramEnd> {
    if TcpStream::connect(service.about().endpoint.address()).await.is_ok() {
        return None;
    }
    tokio::time::timeout(TOLD_WITHIN, service.ended()).await.ok()
}

/// What it means that a program has exited unexpectedly.
enum Surprise {
    /// The product is wrong.
    Product(Box<CheckResult>),
    /// The lab is.
    Lab(LabError),
}

fn surprise(service: &dyn RunningService, ended: ProgramEnd) -> Surprise {
    match ended {
        ProgramEnd::OfHub(HubProgramEnd { program, how, log }) => {
            let error = format!("{program} exited unexpectedly during the run: {how}");
            Surprise::Lab(LabError::new(API_SERVER, error).with_log(log))
        }
        ProgramEnd::Of { which: Program::Service, how } => {
            let how = how.unwrap_or_else(|| "it is not known how".to_owned());
            let mut check = CheckResult::new(CheckKind::Expectation, verdict::STAYS_UP, CheckVerdict::Failed);
            check.message = format!("the service under test exited unexpectedly: {how}");
            check.expected = "the service runs until the harness stops it".to_owned();
            check.seen = how;
            check.last_things = service.last_lines(Program::Service, 50);
            Surprise::Product(Box::new(check))
        }
        ProgramEnd::Of { which: Program::Postgres, how } => {
            let how = how.map(|how| format!(": {how}")).unwrap_or_default();
            let error = LabError::new("postgresql", format!("PostgreSQL exited unexpectedly during the run{how}"));
            Surprise::Lab(error.with_log(service.last_lines(Program::Postgres, 20)))
        }
    }
}

/// Something was wrong with the lab: with it the run proves nothing.
///
/// The first line says what; lines after it are details, and then the end of a log.
fn lab_check(result: &mut RunResult, problem: LabError) {
    let mut check = CheckResult::new(CheckKind::Lab, problem.what, CheckVerdict::Failed);
    let (first, rest) = problem.error.split_once('\n').unwrap_or((&problem.error, ""));
    check.message = first.to_owned();
    check.seen = first.to_owned();
    check.last_things = rest.lines().map(str::to_owned).chain(problem.log).collect();
    result.checks.push(check);
}

/// Where runs are kept when nothing else is said: in the folder that CI keeps, where Prow names one, else in `target/vlab/runs` of the
/// project, or of the working directory.
pub fn default_runs() -> PathBuf {
    if let Some(kept) = std::env::var_os("ARTIFACT_DIR").filter(|kept| !kept.is_empty()) {
        return PathBuf::from(kept).join("runs");
    }
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
