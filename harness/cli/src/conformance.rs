//! `vlab conformance`: the suite of `vlab-conformance` against a service that is started for it, or one that runs already.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use vlab_api::Timestamp;
use vlab_conformance::suite::{self, Count};
use vlab_conformance::wire::{HttpWire, Wire};
use vlab_conformance::{
    CheckOutcome, ConformanceCheck, ConformanceVerdict, Need, Pace, SETTINGS, Target, report, table,
};
use vlab_drive::prepare::{Choices, HubChoice, Prepared};
use vlab_drive::target::Target as Service;
use vlab_history::Recorder;
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, RunResult, exit};
use vlab_model::history::{Source, What};
use vlab_reports::{Redactor, write_all};
use vlab_run::live::Show;
use vlab_run::prepare::prepare;
use vlab_run::real::{self, Hosted, RealOptions, RunOutcome as Run};
use vlab_run::rundir;
use vlab_run::service::hub;
use vlab_scenario::SourceFile;
use vlab_service_server::hub::is_converged;

use crate::args::{LabArgs, interrupted};
use crate::error::{CliError, ExitResult, OrExit as _};
use crate::say;
use crate::tools::{Setup, catalogue, ensure_set_up, print, tell};

/// The suite's name where a scenario's would stand.
pub(crate) const NAME: &str = "conformance";
/// What came out, in full.
pub(crate) const FILE: &str = "conformance.json";

const EXAMPLES: &str = "\
Which service:
  vlab conformance
      the built-in simulated one, on a PostgreSQL of its own
  vlab conformance --service process:/usr/local/bin/assisted-service
      the real one: PostgreSQL and the program are started for the run and stopped
  vlab conformance --service remote:http://127.0.0.1:8090 --time-profile fast
      one that is already running. The suite makes clusters, infra-envs and hosts whose names begin with `vc-` and removes them;
      it touches nothing else and sets nothing. Name the time profile whose intervals the service was started with; without
      it they are taken to be the service's defaults, and checks that wait for its monitors are skipped, with the reason.
  vlab conformance --api kube
      by resources on a Kubernetes API server of the run, on which the service's controllers act; a real service takes
      `--definitions FOLDER` for the kinds, `--hub-assets FOLDER` a real API server
Which checks:
  vlab conformance --list
  vlab conformance --filter register --filter '!disconnected'
      a part of the id; with `*`, the whole id; with `!` in front, all but those";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConformanceArgs {
    /// Service under test: `simulated`, `process:<program>`, `container:<image>` or `remote:<url>`
    #[arg(long, value_name = "TARGET", default_value = "simulated")]
    service: Service,
    /// How the checks ask the service: `rest`, or `kube`, by resources on a Kubernetes API server on which its controllers act. Each
    /// has checks of its own.
    #[arg(long, value_name = "API", value_parser = ["rest", "kube"], default_value = "rest")]
    api: String,
    /// Only checks whose id contains this; with `*` it must match the whole id, and `!` in front excludes. May be given
    /// several times.
    #[arg(long, short, value_name = "PATTERN")]
    filter: Vec<String>,
    /// List the checks instead of running them.
    #[arg(long)]
    list: bool,
    /// With `--list`: print JSON.
    #[arg(long, requires = "list")]
    json: bool,
    /// Use the checks in these files instead of the built-in ones.
    #[arg(long, value_name = "FILE")]
    checks: Vec<PathBuf>,
    /// How many checks run at the same time; by default 24, over Kubernetes 8.
    #[arg(long, short, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Time profile: the intervals of a service that is started (by default `fast`), or those that a remote one was started
    /// with (by default `real`).
    #[arg(long)]
    time_profile: Option<String>,
    /// Over Kubernetes: the hub has an operator for bare metal of this version; from 4.12 on the service and metal3 share hosts (the
    /// converged flow), and checks of the other flow are skipped.
    #[arg(long, value_name = "VERSION")]
    baremetal_operator: Option<String>,
    /// OpenShift version of the clusters that are made, instead of the service's default.
    #[arg(long, value_name = "VERSION")]
    openshift_version: Option<String>,
    #[command(flatten)]
    lab: LabArgs,
    /// Do not list checks that pass or are skipped.
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) async fn conformance(args: ConformanceArgs) -> ExitResult {
    let all = match args.checks.as_slice() {
        [] if args.over_kube() => table::over_kubernetes().or_usage()?,
        [] => table::built_in().or_usage()?,
        files => table::from_files(files).or_usage()?,
    };
    if let Some(check) = all.iter().find(|check| check.over_kube != args.over_kube()) {
        let asks = if check.over_kube { "asks over Kubernetes: add `--api kube`" } else { "asks over REST" };
        return Err(CliError::usage(format!("{} {asks}", check.id)));
    }
    let checks: Vec<ConformanceCheck> =
        all.into_iter().filter(|check| suite::selected(&check.id, &args.filter)).collect();
    if checks.is_empty() {
        return Err(CliError::nothing_selected("no check selected; `vlab conformance --list` shows all"));
    }
    if args.list {
        let text = if args.json { format!("{:#}\n", report::list_json(&checks)) } else { report::list(&checks) };
        print(&text);
        return Ok(exit::PASSED);
    }
    let (prepared, text) = prepared(&args)?;
    if args.over_kube() {
        needs_of_the_hub(&args, &prepared)?;
    }
    if prepared.target.needs_postgres_here() {
        ensure_set_up(Setup::Run, !args.lab.no_setup)?;
    }
    let _ = vlab_lab::doctor::raise_open_files();
    let options = args.lab.options(text.into_bytes(), interrupted(), Show::Nothing);
    if !prepared.target.is_owned() {
        say("only what the checks make themselves is changed and removed: clusters, infra-envs and hosts named vc-…");
    }
    let (begun, through) = (Instant::now(), Mutex::new(Vec::new()));
    let work = async |hosted: Hosted| Box::pin(ask(hosted, checks.clone(), &args, &prepared, &options, &through)).await;
    let (run, asked) = Box::pin(real::with_service(&prepared, &options, work)).await;
    let through = through.into_inner().unwrap_or_else(PoisonError::into_inner);
    let asked = asked.unwrap_or_else(|| Asked::cut_short(&checks, through, millis(begun)));
    Ok(conclude(run, asked, &prepared, &options))
}

impl ConformanceArgs {
    fn over_kube(&self) -> bool {
        self.api == "kube"
    }

    /// How many checks run at the same time. Controllers do one thing after the other, and the real ones ask their API server twenty
    /// times a second at most.
    fn jobs(&self) -> usize {
        usize::from(self.jobs.unwrap_or(if self.over_kube() { 8 } else { 24 }))
    }
}

/// Can there be an API server with the kinds that the service's controllers want?
fn needs_of_the_hub(args: &ConformanceArgs, prepared: &Prepared) -> Result<(), CliError> {
    if matches!(args.service, Service::Process { .. }) && args.lab.definitions.is_none() {
        return Err(CliError::usage(
            "over Kubernetes a real service wants the definitions of its kinds: add `--definitions FOLDER`",
        ));
    }
    match (&prepared.hub, hub::program()) {
        (HubChoice::Ours, Err(why)) => Err(CliError::usage(why)),
        _ => Ok(()),
    }
}

/// A run needs a scenario; this one only says what the service is.
fn prepared(args: &ConformanceArgs) -> Result<(Prepared, String), CliError> {
    let catalogue = catalogue()?;
    // Of a service that is not ours the slowest is assumed: a wait that cannot succeed would look like its fault.
    let profile = args.time_profile.as_deref().unwrap_or(if args.service.is_owned() { "fast" } else { "real" });
    let mut text = format!(
        "version: 1\nname: {NAME}\ndescription: The conformance suite; its checks are in {FILE}.\napi: {}\n\
         service:\n  kind: simulated\n  time_profile: {profile}\n",
        args.api
    );
    if args.service.is_owned() {
        text.push_str("  settings:\n");
        for (name, value) in SETTINGS {
            text.push_str(&format!("    {name}: {value} wall\n"));
        }
    }
    text.push_str("cluster: {topology: sno}\nhosts: [{name: nobody, profile: standard}]\n");
    text.push_str("expect: [{eventually: {hosts: all, status: known}}]\n");
    if let Some(version) = &args.baremetal_operator {
        if !args.over_kube() {
            return Err(CliError::usage(
                "only a hub has operators: add `--api kube`, or leave `--baremetal-operator` out",
            ));
        }
        text.push_str(&format!("hub: {{baremetal_operator: {version:?}}}\n"));
    }
    let source = SourceFile::new(NAME, text.as_str());
    let scenario = vlab_scenario::load(&source, &catalogue).or_usage()?;
    let choices = Choices {
        seed: None,
        time_profile: Some(profile.to_owned()),
        service: Some(args.service.clone()),
        postgres_image: args.lab.postgres_image(),
        hub: args.lab.hub_of_the_run()?,
        ..Choices::default()
    };
    let prepared = prepare(scenario, &catalogue, &choices).or_usage()?;
    Ok((prepared, text))
}

/// What came of asking.
struct Asked {
    outcomes: Vec<CheckOutcome>,
    took_ms: u64,
    /// The service could not even be examined.
    problem: Option<String>,
}

impl Asked {
    /// The service was gone before all of these `checks` were through: what is known of those that were, and that nothing is of the
    /// others.
    fn cut_short(checks: &[ConformanceCheck], mut through: Vec<CheckOutcome>, took_ms: u64) -> Self {
        // Before the first answer there was no service: that is told once, not for each check.
        if !through.is_empty() {
            let is_through: BTreeSet<String> = through.iter().map(|outcome| outcome.id.clone()).collect();
            let others = checks.iter().filter(|check| !is_through.contains(&check.id));
            through.extend(others.map(|check| CheckOutcome::unknown(check, "the service ended before it was through")));
        }
        Self { outcomes: through, took_ms, problem: None }
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

async fn ask(
    hosted: Hosted,
    checks: Vec<ConformanceCheck>,
    args: &ConformanceArgs,
    prepared: &Prepared,
    options: &RealOptions,
    through: &Mutex<Vec<CheckOutcome>>,
) -> Asked {
    let settings = &prepared.settings;
    let pace = Pace {
        host_monitor: settings.host_monitor_interval,
        cluster_monitor: settings.cluster_monitor_interval,
        disconnection: settings.host_max_disconnection_time,
        scaled: prepared.clock_scale > 1.0,
    };
    let releases = settings.release_images.iter();
    let wanted = |version: &String| releases.clone().find(|r| r.openshift_version == *version);
    let default = || releases.clone().find(|r| r.default == Some(true)).or_else(|| releases.clone().next());
    let release = args.openshift_version.as_ref().map_or_else(default, wanted);
    let version = args
        .openshift_version
        .clone()
        .or_else(|| prepared.target.is_owned().then(|| release.map(|r| r.openshift_version.clone())).flatten());
    let release_image = release.map(|release| release.url.clone()).unwrap_or_default();
    let mut wire = HttpWire::new(hosted.endpoint.clone(), Vec::new()).with_hub(hosted.hub.clone());
    let own = prepared.target.is_owned();
    let probed = Target::probe(&mut wire, pace, own, version.as_deref(), &prepared.pull_secret, prepared.seed).await;
    let mut target = match probed {
        // What controllers ask of their API server comes one after the other.
        Ok(target) if args.over_kube() => Target { release_image, patience: target.patience * 2, ..target },
        Ok(target) => Target { release_image, ..target },
        Err(error) => return Asked { outcomes: Vec::new(), took_ms: 0, problem: Some(error.to_string()) },
    };
    if matches!(prepared.hub, HubChoice::Assets(_)) {
        let why = "beside the API server of --hub-assets there is no controller manager".to_owned();
        target.unmet.insert(Need::GarbageCollection, why);
    }
    if !matches!(prepared.hub, HubChoice::Ours) {
        let why = "the API server of --hub-assets and of --kubeconfig is a hub's alone".to_owned();
        target.unmet.insert(Need::Clusters, why);
    }
    if !matches!(prepared.target, Service::Simulated) {
        target.unmet.insert(Need::Operator, "the operator is a program of its own, which is not there".to_owned());
    }
    if matches!(prepared.target, Service::Simulated) && prepared.clock_scale > 1.0 {
        target.unmet.insert(Need::LongWaits, "its time profile makes them shorter".to_owned());
    }
    if args.over_kube() {
        let version = args.baremetal_operator.as_deref();
        let (need, why) = match version.is_some_and(is_converged) {
            true => (Need::NoConvergedFlow, "its operator for bare metal shares hosts with the service"),
            false => (Need::ConvergedFlow, "it has no operator for bare metal that shares hosts with the service"),
        };
        target.unmet.insert(need, why.to_owned());
    }
    let begun = Instant::now();
    let mut progress = Progress::new(checks.len(), args.quiet);
    let endpoint = hosted.endpoint;
    let wire = |_: &ConformanceCheck| {
        Box::new(HttpWire::new(endpoint.clone(), Vec::new()).with_hub(hosted.hub.clone())) as Box<dyn Wire>
    };
    let jobs = args.jobs();
    let told = |outcome: &CheckOutcome| {
        progress.tell(outcome);
        through.lock().unwrap_or_else(PoisonError::into_inner).push(outcome.clone());
    };
    let outcomes = suite::run(checks, Arc::new(target), jobs, wire, options.interrupted.clone(), told).await;
    progress.end();
    Asked { outcomes, took_ms: millis(begun), problem: None }
}

/// One line for each check, or on a terminal one line that moves; what did not pass is always a line of its own.
struct Progress {
    all: usize,
    through: usize,
    moving: bool,
    quiet: bool,
}

impl Progress {
    fn new(all: usize, quiet: bool) -> Self {
        Self { all, through: 0, moving: std::io::stderr().is_terminal() && !quiet, quiet }
    }

    fn tell(&mut self, outcome: &CheckOutcome) {
        self.through += 1;
        let line = report::line(outcome);
        let good = matches!(outcome.verdict, ConformanceVerdict::Passed | ConformanceVerdict::Skipped { .. });
        if self.moving {
            tell("\r\x1b[K");
            if !good {
                tell(&format!("{line}\n"));
            }
            tell(&format!("{}/{} {}", self.through, self.all, outcome.id));
        } else if !good || !self.quiet {
            tell(&format!("[{}/{}] {line}\n", self.through, self.all));
        }
    }

    fn end(&self) {
        if self.moving {
            tell("\r\x1b[K");
        }
    }
}

/// Puts the checks into the run's result, writes all files and tells the end.
fn conclude(run: Run, mut asked: Asked, prepared: &Prepared, options: &RealOptions) -> u8 {
    let Run { dir, mut result, .. } = run;
    // A service that runs elsewhere keeps its log to itself.
    if let Some(log) = dir.as_ref().and_then(|dir| std::fs::read_to_string(dir.join("service.log")).ok()) {
        report::add_service_log(&mut asked.outcomes, log.lines());
    }
    if let Some(problem) = &asked.problem {
        let mut check = CheckResult::new(CheckKind::Lab, "service", CheckVerdict::Failed);
        check.message.clone_from(problem);
        result.checks.push(check);
    }
    let mut checks: Vec<CheckResult> = asked.outcomes.iter().map(as_check).collect();
    checks.append(&mut result.checks);
    result.checks = checks;
    leftovers(&asked.outcomes, prepared, &mut result);
    result.how_to_repeat =
        format!("vlab conformance --service {} --time-profile {}", prepared.target, prepared.time_profile);
    if prepared.kube {
        result.how_to_repeat += " --api kube";
        result.how_to_repeat += &prepared.hub.option();
        if let Some(folder) = options.hub.as_ref().and_then(|hub| hub.definitions.as_ref()) {
            result.how_to_repeat += &format!(" --definitions {}", folder.display());
        }
    }
    result.conclude();
    if options.interrupted.is_cancelled() {
        result.cut_short(exit::INCONCLUSIVE, "interrupted by the user");
    }
    let suite = report::SuiteResult {
        version: report::VERSION,
        run_id: result.run.run_id.clone(),
        service: result.run.versions.get("service").cloned().unwrap_or_else(|| prepared.target.to_string()),
        took_ms: asked.took_ms,
        count: Count::of(&asked.outcomes),
        inconclusive: not_known(&result),
        checks: asked.outcomes,
    };
    if let Some(dir) = &dir
        && let Err(error) = write(dir, &suite, &result, prepared)
    {
        result.cut_short(exit::INCONCLUSIVE, format!("the reports could not be written: {error}"));
    }
    let redactor = Redactor::new(prepared.secrets());
    print(&redactor.redact(&report::summary(&suite)));
    for check in result.checks.iter().filter(|c| c.kind == CheckKind::Leak && c.verdict == CheckVerdict::Failed) {
        print(&format!("left behind: {}\n", check.message));
    }
    if let Some(dir) = &dir {
        print(&format!("report: {}\n", dir.join("report.html").display()));
    }
    result.exit_code
}

/// Why nothing is known, when the lab or the user was the reason.
fn not_known(result: &RunResult) -> Option<String> {
    (result.exit_code == exit::INCONCLUSIVE).then(|| {
        let lab = result.checks.iter().find(|c| c.kind == CheckKind::Lab && c.verdict == CheckVerdict::Failed);
        match lab {
            Some(check) => {
                let more = check.last_things.iter().map(|line| format!("\n  {line}"));
                format!("{}: {}{}", check.name, check.message, more.collect::<String>())
            }
            None => result.reason.clone().unwrap_or_default(),
        }
    })
}

/// What a service that is not ours still has of the suite is a leak; our own goes with its database.
fn leftovers(outcomes: &[CheckOutcome], prepared: &Prepared, result: &mut RunResult) {
    let left: Vec<&str> = outcomes.iter().flat_map(|o| o.left.iter().map(String::as_str)).collect();
    if prepared.target.is_owned() {
        return;
    }
    let name = "nothing of the suite is left in the service";
    let mut check = CheckResult::new(CheckKind::Leak, name, CheckVerdict::Passed);
    if !left.is_empty() {
        check.verdict = CheckVerdict::Failed;
        check.message = left.join("; ");
    }
    result.checks.push(check);
}

fn as_check(outcome: &CheckOutcome) -> CheckResult {
    let (verdict, message) = match &outcome.verdict {
        ConformanceVerdict::Passed => (CheckVerdict::Passed, String::new()),
        ConformanceVerdict::Failed { message } => (CheckVerdict::Failed, message.clone()),
        ConformanceVerdict::Skipped { reason } => (CheckVerdict::Skipped { reason: reason.clone() }, String::new()),
        ConformanceVerdict::Inconclusive { reason } => {
            (CheckVerdict::Inconclusive { reason: reason.clone() }, String::new())
        }
    };
    let mut check = CheckResult::new(CheckKind::Expectation, outcome.id.clone(), verdict);
    check.expected = format!("{} ({})", outcome.purpose, outcome.source);
    check.seen.clone_from(&message);
    check.message = message;
    check.last_things.clone_from(&outcome.trace);
    check
}

fn write(dir: &Path, suite: &report::SuiteResult, result: &RunResult, prepared: &Prepared) -> std::io::Result<()> {
    let redactor = Redactor::new(prepared.secrets());
    let named = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, redactor.redact(text).as_bytes())
            .map_err(|e| std::io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display())))
    };
    // The history is only its beginning: what was asked and answered is in the checks.
    let mut history = Recorder::new(None);
    history.record(Source::Harness, None, Timestamp::now(), What::RunStarted(result.run.clone()));
    let history = history.into_observations();
    named(rundir::HISTORY, &vlab_drive::simulate::as_lines(&history))?;
    named(FILE, &format!("{}\n", serde_json::to_string_pretty(suite)?))?;
    let written = write_all(dir, result, &history, &redactor).map_err(std::io::Error::other)?;
    // Grouped by area instead of one group of expectations.
    let junit = written.junit.file_name().and_then(|n| n.to_str()).unwrap_or("junit_conformance.xml").to_owned();
    named(&junit, &report::junit(suite))
}

/// The line that `report` and `check` say about a run of the suite.
pub(crate) fn is_suite(dir: &Path) -> bool {
    dir.join(FILE).exists()
}
