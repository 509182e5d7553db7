//! The verbs that run scenarios and judge them: scenario, test, simulate, report, check.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;
use vlab_drive::conductor::Ending;
use vlab_drive::prepare::{Choices, PrepareError, Prepared};
use vlab_drive::simulate::{self as virtual_time, as_lines};
use vlab_drive::target::Target;
use vlab_history::Recorder;
use vlab_judge::result::{RESULT_VERSION, RunResult, Verdict, exit};
use vlab_judge::verdict;
use vlab_reports::console;
use vlab_reports::session::Session;
use vlab_reports::spread::Series;
use vlab_reports::{Redactor, write_all};
use vlab_run::live::Show;
use vlab_run::prepare::prepare;
use vlab_run::real::{self, RealOptions, find_run};
use vlab_run::rundir::{self, RunDir};
use vlab_run::traffic::quantiles;
use vlab_run::vm::Ability;
use vlab_scenario::{Catalogue, HostKind, Need, Scenario, fault_row};
use vlab_service_server::program::stop_on_signals;

use crate::session::{self, How, Order, Partition};
use crate::tools::{Setup, catalogue, ensure_set_up, load, print, tagged};
use crate::{conformance, say};

const TARGETS: &str = "\
Against the real service:
  vlab scenario sno --service process:/usr/local/bin/assisted-service
      starts PostgreSQL and the program, on a free port of 127.0.0.1, and stops both. The time profile becomes
      its settings (HOST_MONITOR_INTERVAL ...); all other variables of your environment reach it, too.
  vlab scenario sno --service remote:http://127.0.0.1:8090 --time-profile real
      uses a service that runs already (AUTH_TYPE=none, http). Nothing of it is started, stopped or set; clusters of
      the run stay there. States come from looking every second: shorter ones are missed, and what cannot be judged
      for that reason is inconclusive. Give the time profile whose intervals it was started with.
  vlab scenario sno --service container:quay.io/edge-infrastructure/assisted-service:latest
      starts PostgreSQL and the service as containers on a network of their own, with the environment that `process`
      has, and removes both. `container:vlab-service` is the simulated one (`cargo xtask images` builds it). Docker
      and Podman: `vlab doctor` says which is used.
In a scenario: `service: {kind: process, program: ...}`, `service: {kind: container, image: ...}` or
`service: {kind: remote, url: ...}`.
Not built yet: https, services with authentication.";

#[derive(clap::Args)]
#[command(after_help = TARGETS)]
pub(crate) struct ScenarioArgs {
    /// Names of scenarios, or paths of their files.
    scenarios: Vec<String>,
    /// Run all scenarios with this tag; `!tag`: without it. Of several all must hold.
    #[arg(long)]
    tag: Vec<String>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
pub(crate) struct TestArgs {
    /// Only scenarios with this tag; `!tag`: only those without.
    #[arg(long)]
    tag: Vec<String>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    options: Options,
}

/// What is run how often.
#[derive(clap::Args, Clone)]
struct SessionArgs {
    /// Seed of all random choices, instead of the scenario's.
    #[arg(long)]
    seed: Option<u64>,
    /// Time profile, instead of the scenario's.
    #[arg(long)]
    time_profile: Option<String>,
    /// Run each so many times, and show median and spread of what it takes: each stage of the pivot, and the durations of the
    /// run. Without `--seed` each time has another seed, unless the scenario fixes one.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
    #[command(flatten)]
    series: SeriesArgs,
    /// Only part I of N of the scenarios, chosen by their names alone: for several machines that share the work.
    #[arg(long, value_name = "I/N")]
    partition: Option<Partition>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    target: TargetArgs,
}

/// What is under test.
#[derive(clap::Args, Clone)]
struct TargetArgs {
    /// Service under test, instead of the scenario's: `simulated`, `process:<program>` (a real assisted-service that is
    /// started for the run, with a PostgreSQL of its own), `container:<image>` (the same in containers) or `remote:<url>` (one that
    /// runs already; it is not touched)
    #[arg(long, value_name = "TARGET")]
    service: Option<Target>,
    /// What hosts are, instead of what the scenario says: `vm` (virtual machines that boot the discovery image) or `sim`
    /// (simulated, in seconds). Hosts of `kind: auto` are virtual machines where this machine can run some.
    #[arg(long, env = "VLAB_HOSTS", value_name = "KIND")]
    hosts: Option<Hosts>,
}

/// How this machine is used for it.
#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) lab: LabArgs,
    /// No progress on the terminal.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// `--hosts`.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Hosts {
    /// Simulated.
    Sim,
    /// Virtual machines.
    Vm,
}

impl From<Hosts> for HostKind {
    fn from(hosts: Hosts) -> Self {
        match hosts {
            Hosts::Sim => Self::Simulated,
            Hosts::Vm => Self::Vm,
        }
    }
}

/// How the lab is made, whatever is done in it.
#[derive(clap::Args, Clone)]
pub(crate) struct LabArgs {
    /// With `process` and `container`: let the service find `oc` in PATH, instead of a stand-in that answers without a registry.
    #[arg(long)]
    pub(crate) real_tools: bool,
    /// With `container`: PostgreSQL's image. Without it `vlab-postgres` when it is on the machine, else `postgres:16` of
    /// Docker's registry.
    #[arg(long, env = "VLAB_POSTGRES_IMAGE", value_name = "IMAGE")]
    pub(crate) postgres_image: Option<String>,
    /// How many seconds PostgreSQL's container and the service may take until they are ready, on a slow machine.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) ready_within: Option<u64>,
    /// Folder in which the folder of each run is made.
    #[arg(long, env = "VLAB_RUNS")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Install nothing that is missing.
    #[arg(long)]
    pub(crate) no_setup: bool,
}

impl LabArgs {
    /// PostgreSQL's image, when one was named: an empty variable of the environment names none.
    pub(crate) fn postgres_image(&self) -> Option<String> {
        self.postgres_image.clone().filter(|image| !image.is_empty())
    }

    /// Folder of the runs.
    pub(crate) fn runs(&self) -> PathBuf {
        self.output_dir.clone().unwrap_or_else(runs_folder)
    }

    /// The options of one run.
    pub(crate) fn options(&self, scenario_text: Vec<u8>, interrupted: CancellationToken, live: Show) -> RealOptions {
        RealOptions {
            // What is started later is this program, also when it was built anew while it runs.
            vlab: PathBuf::from("/proc/self/exe"),
            runs: self.runs(),
            scenario_text,
            interrupted,
            live,
            keep: false,
            pause_on_failure: false,
            real_tools: self.real_tools,
            ready_within: self.ready_within.map(std::time::Duration::from_secs),
            ability: None,
            tell: say,
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct SimulateArgs {
    /// Name of a scenario, or path of its file.
    scenario: String,
    /// Seed of all random choices, instead of the scenario's.
    #[arg(long)]
    seed: Option<u64>,
    /// Time profile. In virtual time an hour costs nothing.
    #[arg(long, default_value = "real")]
    time_profile: String,
    /// Folder in which the folder of the run is made.
    #[arg(long, env = "VLAB_RUNS")]
    output_dir: Option<PathBuf>,
    /// Print the history to stdout and write no folder.
    #[arg(long, conflicts_with = "repeat")]
    history: bool,
    /// Run it so many times, with the seeds from `--seed` (1 without it) on, and show median and spread of what it takes: each
    /// stage of the pivot, and the durations of the run. Writes no folder.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    repeat: Option<u64>,
    #[command(flatten)]
    series: SeriesArgs,
}

/// What is done with the figures of several runs.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct SeriesArgs {
    /// With `--repeat`: write the figures to this file.
    #[arg(long, value_name = "FILE", requires = "repeat")]
    save_series: Option<PathBuf>,
    /// With `--repeat`: compare with the figures in this file. A change of a median by less than 5 % is noise.
    #[arg(long, value_name = "FILE", requires = "repeat")]
    compare: Option<PathBuf>,
}

impl SeriesArgs {
    /// The series to compare with, before anything is run.
    pub(crate) fn earlier(&self) -> Result<Option<Series>, u8> {
        let Some(file) = &self.compare else { return Ok(None) };
        let complain = |problem: String| {
            say(&format!("{}: {problem}", file.display()));
            exit::USAGE
        };
        let text = std::fs::read(file).map_err(|e| complain(e.to_string()))?;
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| complain(format!("no series of runs ({e}); `--save-series` writes one")))
    }

    /// The same for a command that can run several scenarios: a file has the figures of one.
    fn of_one_scenario(&self, scenarios: usize) -> Result<Option<Series>, u8> {
        if scenarios > 1 && (self.save_series.is_some() || self.compare.is_some()) {
            say(&format!("--save-series and --compare are for one scenario, and {scenarios} are selected"));
            return Err(exit::USAGE);
        }
        self.earlier()
    }

    /// Shows what the runs of each scenario took that was run more than once.
    pub(crate) fn show_each(&self, results: &[RunResult], earlier: Option<&Series>) -> Result<(), u8> {
        let mut scenarios: Vec<&str> = Vec::new();
        for result in results {
            if !scenarios.contains(&result.run.scenario.as_str()) {
                scenarios.push(&result.run.scenario);
            }
        }
        let several = scenarios.len() > 1;
        for scenario in scenarios {
            let of_it: Vec<RunResult> = results.iter().filter(|r| r.run.scenario == scenario).cloned().collect();
            // One run has no spread; but who asked for a file or a comparison gets it.
            if of_it.len() > 1 || self.save_series.is_some() || earlier.is_some() {
                print(&if several { format!("\n{scenario}\n") } else { "\n".to_owned() });
                self.show(&of_it, earlier)?;
            }
        }
        Ok(())
    }

    /// Shows what the runs took, against the earlier series, and writes it where it was asked for.
    pub(crate) fn show(&self, results: &[RunResult], earlier: Option<&Series>) -> Result<(), u8> {
        let series = Series::of(results);
        if let Some(why) = earlier.and_then(|e| series.differs_from(e)) {
            say(&format!("the series cannot be compared: {why}"));
            return Err(exit::USAGE);
        }
        print(&series.table(earlier));
        let Some(file) = &self.save_series else { return Ok(()) };
        let text = serde_json::to_string_pretty(&series).unwrap_or_default();
        std::fs::write(file, text + "\n").map_err(|e| {
            say(&format!("{}: {e}", file.display()));
            exit::INCONCLUSIVE
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// A run: its folder, its id, or `latest`; or a session: `sessions/latest`, `sessions/<id>`.
    #[arg(default_value = rundir::LATEST)]
    run: String,
    /// Folder of the runs.
    #[arg(long, env = "VLAB_RUNS")]
    output_dir: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// A run: its folder, its id, or `latest`.
    #[arg(default_value = rundir::LATEST)]
    run: String,
    /// Folder of the runs.
    #[arg(long, env = "VLAB_RUNS")]
    output_dir: Option<PathBuf>,
}

/// The folder of all runs when nothing else is said.
pub(crate) fn runs_folder() -> PathBuf {
    std::env::var_os("VLAB_RUNS").map_or_else(real::default_runs, PathBuf::from)
}

pub(crate) async fn scenario(args: ScenarioArgs) -> u8 {
    let catalogue = match catalogue() {
        Ok(catalogue) => catalogue,
        Err(code) => return code,
    };
    let mut names = args.scenarios;
    if !args.tag.is_empty() {
        names.extend(catalogue.list().into_iter().filter(|e| tagged(&e.tags, &args.tag)).map(|e| e.name));
    }
    if names.is_empty() {
        say("no scenario selected; `vlab list` shows all");
        return exit::NOTHING_SELECTED;
    }
    args.session.run(&catalogue, names, &args.options).await
}

pub(crate) async fn test(args: TestArgs) -> u8 {
    let catalogue = match catalogue() {
        Ok(catalogue) => catalogue,
        Err(code) => return code,
    };
    let names: Vec<String> =
        catalogue.list().into_iter().filter(|e| tagged(&e.tags, &args.tag)).map(|e| e.name).collect();
    args.session.run(&catalogue, names, &args.options).await
}

impl SessionArgs {
    async fn run(self, catalogue: &Catalogue, mut names: Vec<String>, options: &Options) -> u8 {
        if let Some(part) = self.partition {
            names.retain(|name| part.has(name));
        }
        if names.is_empty() {
            say("no scenario matches");
            return exit::NOTHING_SELECTED;
        }
        let mut choices = Choices {
            seed: self.seed,
            time_profile: self.time_profile,
            service: self.target.service,
            postgres_image: options.lab.postgres_image(),
            hosts: self.target.hosts.map(HostKind::from),
            real_tools: options.lab.real_tools,
            auto: None,
        };
        // All are read before the first one starts: a mistake in the last must not cost the time of the others.
        let mut loaded = Vec::new();
        for name in names {
            match load(catalogue, &name) {
                Ok(scenario) => loaded.push(scenario),
                Err(text) => {
                    eprintln!("{text}");
                    return exit::USAGE;
                }
            }
        }
        let compared = match self.series.of_one_scenario(loaded.len()) {
            Ok(earlier) => earlier,
            Err(code) => return code,
        };
        let interrupted = interrupted();
        let (ability, auto) = match machines(&loaded, &choices, &options.lab, &interrupted).await {
            Ok(decided) => decided,
            Err(code) => return code,
        };
        choices.auto = auto;
        let mut orders = Vec::new();
        for repetition in 1..=u32::from(self.repeat) {
            for (scenario, text) in &loaded {
                match prepare_hosts(scenario.clone(), catalogue, &choices) {
                    Ok(prepared) => orders.push(Order { prepared, text: text.clone(), repetition }),
                    Err(error) => {
                        eprintln!("{error}");
                        return exit::USAGE;
                    }
                }
            }
        }
        let ended = session::run_orders(catalogue, orders, options, &self.how, ability, interrupted).await;
        match self.series.show_each(&ended.results, compared.as_ref()) {
            Ok(()) => ended.code,
            Err(code) => code,
        }
    }
}

/// What hosts of `kind: auto` become here, and why.
pub(crate) type Auto = Option<(HostKind, String)>;

/// Finds out about virtual machines, where scenarios ask for some: what this place can do, and what hosts of `kind: auto` become.
/// Where nothing but virtual machines will do, the run itself says why there are none.
pub(crate) async fn machines(
    loaded: &[(Scenario, Vec<u8>)],
    choices: &Choices,
    lab: &LabArgs,
    interrupted: &CancellationToken,
) -> Result<(Option<Ability>, Auto), u8> {
    let any = |kind: HostKind| loaded.iter().any(|(scenario, _)| scenario.hosts.iter().any(|host| host.kind == kind));
    let (must, may) = match choices.hosts {
        Some(HostKind::Simulated) => (false, false),
        Some(HostKind::Vm) => (true, false),
        Some(HostKind::Auto) | None => (any(HostKind::Vm), any(HostKind::Auto)),
    };
    if !must && !may {
        return Ok((None, None));
    }
    let simulated = |why: String| Ok((None, Some((HostKind::Simulated, why))));
    if !must && choices.service.as_ref().is_some_and(|service| *service != Target::Simulated) {
        return simulated(
            "the service is another one than the built-in one; with --hosts vm they are machines there, too".to_owned(),
        );
    }
    match ensure_set_up(Setup::Machines, !lab.no_setup) {
        Err(code) if must => return Err(code),
        Err(_) => return simulated("what virtual machines need is not installed (see above)".to_owned()),
        Ok(_) => {}
    }
    let runs = lab.runs();
    let found = tokio::select! {
        found = vlab_run::vm::ability(&runs) => found,
        () = interrupted.cancelled() => return Err(exit::INCONCLUSIVE),
    };
    match found {
        Ok(ability) => {
            // Where it is left open, media that cannot be built are a reason, too; else the run says so itself.
            if !must && let Err(why) = lab_images(loaded, interrupted).await? {
                return simulated(format!("the lab's images cannot be built: {why}"));
            }
            let why = format!("this machine can run them with {}", ability.acceleration.why);
            Ok((Some(ability), Some((HostKind::Vm, why))))
        }
        Err(why) => simulated(format!("this machine cannot run virtual machines: {why}")),
    }
}

/// Builds the medium that virtual machines boot, unless the scenarios bring their own.
async fn lab_images(loaded: &[(Scenario, Vec<u8>)], interrupted: &CancellationToken) -> Result<Result<(), String>, u8> {
    if loaded.iter().all(|(scenario, _)| scenario.infra_env.iso.is_some()) {
        return Ok(Ok(()));
    }
    tokio::select! {
        built = vlab_run::vm::lab_iso(say) => Ok(built.map(drop)),
        () = interrupted.cancelled() => Err(exit::INCONCLUSIVE),
    }
}

/// Prepares a scenario whose hosts may be virtual machines. One that leaves it open and has what cannot be done to machines is
/// simulated.
pub(crate) fn prepare_hosts(
    scenario: Scenario,
    catalogue: &Catalogue,
    choices: &Choices,
) -> Result<Prepared, PrepareError> {
    let open = choices.hosts.is_none() && scenario.hosts.iter().any(|host| host.kind == HostKind::Auto);
    match prepare(scenario.clone(), catalogue, choices) {
        Err(PrepareError::Unfit { why, .. }) if open => {
            let choices = Choices { auto: Some((HostKind::Simulated, why)), ..choices.clone() };
            prepare(scenario, catalogue, &choices)
        }
        other => other,
    }
}

/// Containers need a program that was started for them: starts this one anew when one of the targets is in a container. Call
/// it before anything was made.
pub(crate) fn enter_for_containers<'t>(targets: impl IntoIterator<Item = &'t Target>) -> Result<(), u8> {
    if targets.into_iter().any(|target| matches!(target, Target::Container { .. }))
        && let Err(error) = vlab_lab::containers::enter()
    {
        say(&format!("cannot start myself anew for containers: {error}"));
        return Err(exit::INTERNAL);
    }
    Ok(())
}

/// Reads a scenario and makes it ready to run.
pub(crate) fn read(catalogue: &Catalogue, name: &str, choices: &Choices) -> Result<(Prepared, Vec<u8>), String> {
    let (scenario, text) = load(catalogue, name)?;
    let prepared = prepare(scenario, catalogue, choices).map_err(|e| e.to_string())?;
    Ok((prepared, text))
}

/// Ctrl-C once asks to stop, twice stops at once; what is left then is the supervisor's.
pub(crate) fn interrupted() -> CancellationToken {
    let token = CancellationToken::new();
    let ours = token.clone();
    stop_on_signals(i32::from(exit::INTERRUPTED), move || {
        say("stopping; once more stops at once");
        ours.cancel();
    });
    token
}

fn show(result: &RunResult, dir: Option<&Path>) {
    print(&console::render(result, session::style()));
    if let Some(dir) = dir {
        print(&format!("report: {}\n", dir.join("report.html").display()));
    }
}

pub(crate) fn simulate(args: SimulateArgs) -> u8 {
    let catalogue = match catalogue() {
        Ok(catalogue) => catalogue,
        Err(code) => return code,
    };
    match args.repeat {
        Some(times) => simulate_again(&args, times, &catalogue),
        None => simulate_once(args, &catalogue),
    }
}

/// Runs a scenario in virtual time with one seed after the other.
fn simulate_again(args: &SimulateArgs, times: u64, catalogue: &Catalogue) -> u8 {
    let earlier = match args.series.earlier() {
        Ok(earlier) => earlier,
        Err(code) => return code,
    };
    let first = args.seed.unwrap_or(1);
    let mut results = Vec::new();
    for seed in first..first.saturating_add(times) {
        let choices = Choices {
            seed: Some(seed),
            time_profile: Some(args.time_profile.clone()),
            service: Some(Target::Simulated),
            hosts: Some(HostKind::Simulated),
            ..Choices::default()
        };
        let (prepared, _) = match read(catalogue, &args.scenario, &choices) {
            Ok(read) => read,
            Err(text) => {
                eprintln!("{text}");
                return exit::USAGE;
            }
        };
        let (result, _) = in_virtual_time(&prepared);
        if result.exit_code != exit::PASSED {
            show(&result, None);
        }
        results.push(result);
    }
    let codes: Vec<u8> = results.iter().map(|r| r.exit_code).collect();
    let shown = args.series.show(&results, earlier.as_ref());
    let passed = codes.iter().filter(|c| **c == exit::PASSED).count();
    print(&format!("{passed} of {times} runs passed\n"));
    match shown {
        Ok(()) => exit::most_telling(&codes),
        Err(code) => code,
    }
}

fn simulate_once(args: SimulateArgs, catalogue: &Catalogue) -> u8 {
    let choices = Choices {
        seed: args.seed,
        time_profile: Some(args.time_profile.clone()),
        service: Some(Target::Simulated),
        hosts: Some(HostKind::Simulated),
        ..Choices::default()
    };
    let (prepared, text) = match read(catalogue, &args.scenario, &choices) {
        Ok(read) => read,
        Err(text) => {
            eprintln!("{text}");
            return exit::USAGE;
        }
    };
    if prepared.scenario.needs.contains(&Need::RealTime) {
        let name = &prepared.scenario.name;
        let reals = prepared.scenario.faults.iter().filter(|f| fault_row(f.kind).needs_real_time());
        let kinds: Vec<String> = reals.map(|f| format!("{} ({})", f.name, f.kind)).collect();
        let why = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
        say(&format!("skipped: {name} needs real time, and this is virtual time{why}; run `vlab scenario {name}`"));
        return exit::INCONCLUSIVE;
    }
    let (mut result, history) = in_virtual_time(&prepared);
    let redactor = Redactor::new(prepared.secrets());
    if args.history {
        print(&redactor.redact(&as_lines(&history)));
        return result.exit_code;
    }
    let runs = args.output_dir.unwrap_or_else(runs_folder);
    let started = rundir::Started::of(&prepared, &result.run.run_id, vlab_api::Timestamp::now());
    let written = RunDir::create(&runs, &started, &text, &prepared.scenario.infra_env.resources).and_then(|dir| {
        let mut file = dir.redacted_file(rundir::HISTORY, &redactor)?;
        std::io::Write::write_all(&mut file, as_lines(&history).as_bytes())?;
        std::io::Write::flush(&mut file)?;
        write_all(dir.path(), &result, &history, &redactor)?;
        Ok(dir)
    });
    match written {
        Ok(dir) => {
            show(&result, Some(dir.path()));
            result.exit_code
        }
        Err(error) => {
            // The verdict is known all the same; that nothing is left of it must not look like a pass.
            result.cut_short(exit::INCONCLUSIVE, format!("the run's folder: {error}"));
            show(&result, None);
            result.exit_code
        }
    }
}

/// One run in virtual time: its result and its history.
fn in_virtual_time(prepared: &Prepared) -> (RunResult, Vec<vlab_model::history::Observation>) {
    let run_id = format!("simulated-{}-{}", prepared.scenario.name, prepared.seed);
    let mut versions = BTreeMap::new();
    versions.insert("service".to_owned(), format!("simulated {}", vlab_drive::prepare::VERSION));
    let info = prepared.info(&run_id, true, versions);
    let started_at = virtual_time::BEGINNING;
    let score = prepared.score(info.clone(), vlab_agents::ingress::LAB_INGRESS_PEM.to_owned());
    let simulated = virtual_time::simulate(score, prepared.core_config("http://127.0.0.1:8090"), Recorder::new(None));
    let ending = simulated.ending.clone();
    let history =
        simulated.conductor.finish(simulated.now, if ending == Ending::Complete { "ended" } else { "cut short" });
    let mut result = RunResult {
        version: RESULT_VERSION,
        run: info,
        started_at,
        finished_at: simulated.now,
        how_to_repeat: prepared.how_to_repeat("simulate"),
        ..RunResult::default()
    };
    virtual_time::ending_check(&mut result, &ending);
    let found = std::mem::take(&mut result.checks);
    judge_into(&mut result, prepared, &history);
    result.checks = verdict::in_order(std::mem::take(&mut result.checks), found);
    result.conclude();
    (result, history)
}

fn judge_into(result: &mut RunResult, prepared: &Prepared, history: &[vlab_model::history::Observation]) {
    let judgement = verdict::judge(&prepared.scenario, prepared.clock_scale, history);
    result.durations = judgement.durations;
    result.pivots = judgement.pivots;
    result.checks = judgement.checks;
    result.detection_latency_ms = quantiles(&verdict::detection_latencies(history));
}

/// A run read back from its folder.
pub(crate) struct Old {
    pub(crate) dir: RunDir,
    pub(crate) prepared: Prepared,
    pub(crate) history: Vec<vlab_model::history::Observation>,
    /// What was written then; `None`: the run was killed before its end.
    pub(crate) result: Option<RunResult>,
}

pub(crate) fn open(run: &str, output_dir: &Option<PathBuf>) -> Result<Old, u8> {
    let runs = output_dir.clone().unwrap_or_else(runs_folder);
    let complain = |text: String| {
        say(&text);
        exit::USAGE
    };
    let (dir, started) = RunDir::open(&find_run(&runs, run)).map_err(|e| complain(e.to_string()))?;
    let catalogue = catalogue()?;
    let source = dir.scenario().map_err(complain)?;
    let scenario = vlab_scenario::load(&source, &catalogue).map_err(|e| complain(e.to_string()))?;
    // Runs of before there was a choice have none in their marker: the scenario's own counts.
    let service = match started.service.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|e| complain(format!("{}: {e}", dir.file(rundir::STARTED).display())))?),
    };
    let hosts = match started.hosts.as_str() {
        "simulated" => Some(HostKind::Simulated),
        "vm" => Some(HostKind::Vm),
        _ => None,
    };
    let choices = Choices {
        seed: Some(started.seed),
        time_profile: Some(started.time_profile),
        service,
        hosts,
        ..Choices::default()
    };
    let prepared = prepare(scenario, &catalogue, &choices).map_err(|e| complain(e.to_string()))?;
    let history = vlab_history::read(&dir.file(rundir::HISTORY)).map_err(|e| complain(e.to_string()))?;
    let result = match std::fs::read(dir.file(rundir::RESULT)) {
        Ok(bytes) => Some(
            serde_json::from_slice(&bytes)
                .map_err(|e| complain(format!("{}: {e}", dir.file(rundir::RESULT).display())))?,
        ),
        Err(_) => None,
    };
    Ok(Old { dir, prepared, history, result })
}

/// The result of an old run judged again: what was measured then stays, what follows from the history is made anew.
fn judged_again(old: &Old) -> RunResult {
    use vlab_judge::result::CheckKind;
    use vlab_model::history::What;

    let mut result = old.result.clone().unwrap_or_default();
    let kept: Vec<_> = result
        .checks
        .iter()
        .filter(|c| {
            matches!(c.kind, CheckKind::Leak | CheckKind::Lab)
                || c.name.starts_with("load: ")
                || verdict::MADE_WHILE_RUNNING.contains(&c.name.as_str())
        })
        .cloned()
        .collect();
    if let Some(What::RunStarted(info)) = old.history.first().map(|o| &o.what) {
        let versions = std::mem::take(&mut result.run.versions);
        result.run = info.clone();
        result.run.versions.extend(versions);
    }
    result.version = RESULT_VERSION;
    judge_into(&mut result, &old.prepared, &old.history);
    result.checks = verdict::in_order(std::mem::take(&mut result.checks), kept);
    let cut_short = old
        .result
        .as_ref()
        .is_some_and(|r| r.verdict == Verdict::Inconclusive && r.reason.as_deref() == Some("interrupted by the user"));
    if old.result.is_none() {
        result.started_at = old.history.first().map(|o| o.harness_time).unwrap_or_default();
        result.finished_at = old.history.last().map(|o| o.harness_time).unwrap_or_default();
        result.how_to_repeat = old.prepared.how_to_repeat("scenario");
        result.cut_short(exit::INCONCLUSIVE, "the run was killed before its end: it has no result");
    } else if cut_short {
        result.cut_short(exit::INCONCLUSIVE, "interrupted by the user");
    } else {
        result.reason = None;
        result.conclude();
    }
    result
}

/// Shows a session again. Of one that was killed, what had not come to its end is `not run`.
fn report_session(session: &Session, folder: &Path) -> u8 {
    print(&session.table(std::io::stdout().is_terminal() && session::style().color));
    match session.write(folder) {
        Ok(()) => exit::PASSED,
        Err(error) => {
            say(&error.to_string());
            exit::INCONCLUSIVE
        }
    }
}

pub(crate) fn report(args: &ReportArgs) -> u8 {
    let runs = args.output_dir.clone().unwrap_or_else(runs_folder);
    if let Ok(session) = Session::read(&find_run(&runs, &args.run)) {
        return report_session(&session, &find_run(&runs, &args.run));
    }
    if conformance::is_suite(&find_run(&runs, &args.run)) {
        say("that is a run of the conformance suite: its reports are in its folder");
        return exit::USAGE;
    }
    let old = match open(&args.run, &args.output_dir) {
        Ok(old) => old,
        Err(code) => return code,
    };
    // The verdict of the run stays what it was; `check` judges anew.
    let result = old.result.clone().unwrap_or_else(|| judged_again(&old));
    let redactor = Redactor::new(old.prepared.secrets());
    match write_all(old.dir.path(), &result, &old.history, &redactor) {
        Ok(written) => {
            print(&format!("{}\n{}\n{}\n", written.html.display(), written.junit.display(), written.result.display()));
            exit::PASSED
        }
        Err(error) => {
            say(&error.to_string());
            exit::INCONCLUSIVE
        }
    }
}

pub(crate) fn check(args: &CheckArgs) -> u8 {
    let runs = args.output_dir.clone().unwrap_or_else(runs_folder);
    if conformance::is_suite(&find_run(&runs, &args.run)) {
        say("that is a run of the conformance suite: it is judged while it asks; run `vlab conformance` again");
        return exit::USAGE;
    }
    match open(&args.run, &args.output_dir) {
        Ok(old) => {
            let result = judged_again(&old);
            show(&result, None);
            result.exit_code
        }
        Err(code) => code,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[derive(clap::Parser)]
    struct Parsed {
        #[command(flatten)]
        args: ScenarioArgs,
    }

    #[rstest]
    #[case(&["sno"], None)]
    #[case(&["sno", "--service", "simulated"], Some(Target::Simulated))]
    #[case(&["sno", "--service", "process:/p"], Some(Target::Process { program: "/p".into() }))]
    #[case(&["sno", "--service", "container:a/b:c"], Some(Target::Container { image: "a/b:c".into(), postgres: None }))]
    fn the_service_can_be_chosen(#[case] args: &[&str], #[case] expected: Option<Target>) {
        use clap::Parser as _;
        let parsed = Parsed::try_parse_from(["vlab"].iter().chain(args)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(parsed.args.session.target.service, expected);
        assert!(!parsed.args.options.lab.real_tools);
    }

    #[rstest]
    #[case("container", "container needs an image")]
    #[case("process", "process needs a program")]
    #[case("docker:x", "write simulated, process:<program>, container:<image> or remote:<url>")]
    fn a_service_that_cannot_be_had_is_a_mistake_of_usage(#[case] service: &str, #[case] expected: &str) {
        use clap::Parser as _;
        let error = Parsed::try_parse_from(["vlab", "sno", "--service", service]).err().unwrap();
        assert!(error.use_stderr() && error.to_string().contains(expected), "{error}");
    }
}
