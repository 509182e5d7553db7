//! The verbs that compare runs: `diff` two that were made, `differential` makes them first.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use vlab_drive::prepare::{Choices, Prepared};
use vlab_drive::target::Target;
use vlab_history::compare::{Comparison, Difference, Explanations, Options, compare, same_parts, show};
use vlab_judge::result::{RunResult, Verdict, exit};
use vlab_model::history::{Observation, RunInfo, What};
use vlab_run::live::{Screen, Show};
use vlab_run::real::{self, find_run};
use vlab_run::rundir;
use vlab_scenario::{Catalogue, FrontDoor};

use crate::args::{LabArgs, interrupted, runs_folder};
use crate::error::{CliError, ExitResult, OrExit as _};
use crate::say;
use crate::scenario::read;
use crate::tools::{Setup, catalogue, ensure_set_up, print};

/// Two rounds of a monitor under the `real` profile: what is not further apart than this has no order.
const TOGETHER: Duration = Duration::from_secs(20);
/// And never less than this in real time: on a busy machine rounds come late.
const TOGETHER_WALL: Duration = Duration::from_secs(1);

/// How often the other service is run again until the hosts that faults hit play the same parts.
const AGAIN: u32 = 8;

const CODES: &str = "Exit codes: 0 the same (or explained), 1 different, 2 wrong usage, 3 inconclusive: a history that cannot \
be read or has no end, runs of different scenarios.";

#[derive(clap::Args)]
#[command(after_help = CODES)]
pub(crate) struct DiffArgs {
    /// A run (its folder, its id, or `latest`) or a history.jsonl.
    a: String,
    /// Another one.
    b: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Show all differences in full, even if they fill more than one screen.
    #[arg(long)]
    all: bool,
    /// Compare even runs of different scenarios and runs that were cut short.
    #[arg(long)]
    force: bool,
    /// Folder of the runs.
    #[arg(long, env = "VLAB_RUNS")]
    output_dir: Option<PathBuf>,
}

const DIFFERENTIAL: &str = "\
  vlab differential sno ha-3-2 --against process:/usr/local/bin/assisted-service
      runs each scenario on the simulated service and on the real one with the same seed, and compares the histories.
Explained differences (docs/fidelity.md) do not count. An explanation that no longer explains anything does count.
Exit codes: 0 the same (or explained), 1 different, 2 wrong usage, 3 inconclusive: a run that did not come to its end.";

#[derive(clap::Args)]
#[command(after_help = DIFFERENTIAL)]
pub(crate) struct DifferentialArgs {
    /// Names of scenarios, or paths of their files.
    #[arg(required = true)]
    scenarios: Vec<String>,
    /// The other service: `process:<program>`, `remote:<url>` ... (`simulated`: how much two equal runs differ)
    #[arg(long, value_name = "TARGET")]
    against: Target,
    /// How many pairs of runs to make for each scenario, each with the next seed.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Seed of the first pair, instead of the scenario's.
    #[arg(long)]
    seed: Option<u64>,
    /// Time profile, instead of the scenario's.
    #[arg(long)]
    time_profile: Option<String>,
    /// How the user asks both services, instead of what the scenario says: `rest`, or `kube`; then the conditions of resources are
    /// compared, too.
    #[arg(long, value_name = "API", value_parser = ["rest", "kube"])]
    api: Option<String>,
    /// Print JSON, one comparison per line.
    #[arg(long)]
    json: bool,
    /// Show all differences in full, even if they fill more than one screen.
    #[arg(long)]
    all: bool,
    /// Write into this table of explained differences (harness/history/explained.yaml) that there was one more session, and
    /// which of its rows were used. The session must have compared every scenario of the table.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    lab: LabArgs,
}

/// What the runs of a comparison have in common.
struct Running {
    lab: LabArgs,
    /// Cancelled by Ctrl-C.
    interrupted: CancellationToken,
}

/// A history, from a run or from a file.
fn history(runs: &Path, name: &str) -> Result<Vec<Observation>, CliError> {
    let direct = PathBuf::from(name);
    let file = if direct.is_file() { direct } else { find_run(runs, name).join(rundir::HISTORY) };
    let history = vlab_history::read(&file).or_inconclusive()?;
    if info(&history).is_none() {
        let why = format!("{name}: the history is empty, or does not begin with the start of a run");
        return Err(CliError::inconclusive(why));
    }
    Ok(history)
}

fn info(history: &[Observation]) -> Option<&RunInfo> {
    history.iter().find_map(|o| match &o.what {
        What::RunStarted(info) => Some(info),
        _ => None,
    })
}

/// What in a run's own time is no order. An unknown profile (of another machine) counts as `real`.
fn together(catalogue: &Catalogue, history: &[Observation]) -> Duration {
    let profile = info(history).and_then(|info| catalogue.time_profile(&info.time_profile).ok());
    let rounds = TOGETHER.div_f64(profile.map_or(1.0, |p| p.clock_scale).max(f64::MIN_POSITIVE));
    match info(history) {
        Some(info) if info.virtual_time => rounds,
        _ => rounds.max(TOGETHER_WALL),
    }
}

pub(crate) fn diff(args: &DiffArgs) -> ExitResult {
    let catalogue = catalogue()?;
    let runs = args.output_dir.clone().unwrap_or_else(runs_folder);
    let (a, b) = (&history(&runs, &args.a)?, &history(&runs, &args.b)?);
    let options = Options { together_a: together(&catalogue, a), together_b: together(&catalogue, b) };
    let mut comparison = compare(a, b, &options);
    if let Some(problem) = incomparable(&comparison).filter(|_| !args.force) {
        return Err(CliError::inconclusive(format!("{problem}; --force compares them anyway")));
    }
    comparison.explain(&Explanations::built_in().map_err(CliError::internal)?);
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&comparison).unwrap_or_default()));
    } else {
        print(&show(&comparison, args.all));
    }
    Ok(if comparison.is_same() { exit::PASSED } else { exit::FAILED })
}

/// Why a comparison would say nothing.
fn incomparable(comparison: &Comparison) -> Option<String> {
    let Comparison { a, b, .. } = comparison;
    if a.scenario != b.scenario {
        return Some(format!("{} is a run of {}, {} one of {}", a.run_id, a.scenario, b.run_id, b.scenario));
    }
    let cut = [a, b].into_iter().find(|side| !side.whole)?;
    Some(format!("the history of {} has no end: the run was killed, or still runs", cut.run_id))
}

/// One pair of runs and what came of it.
struct Pair {
    comparison: Comparison,
    /// The two verdicts when they are not the same: a difference of its own.
    verdicts: Option<String>,
}

type Loaded = (Prepared, Vec<u8>);

/// Reads each scenario for both services, `repeat` times with one seed after the other.
fn pairs_to_run(args: &DifferentialArgs, catalogue: &Catalogue) -> Result<Vec<(Loaded, Loaded)>, CliError> {
    // All are read before the first one starts: a mistake in the last must not cost the time of the others.
    let (mut ready, hub) = (Vec::new(), args.lab.hub_of_the_run()?);
    for name in &args.scenarios {
        let mut seed = args.seed;
        for _ in 0..args.repeat {
            let choices = |service: &Target, seed| Choices {
                seed,
                time_profile: args.time_profile.clone(),
                service: Some(service.clone()),
                postgres_image: args.lab.postgres_image(),
                real_tools: args.lab.real_tools,
                hub: hub.clone(),
                api: args.api.as_deref().and_then(FrontDoor::from_word),
                ..Choices::default()
            };
            let ours = read(catalogue, name, &choices(&Target::Simulated, seed))?;
            // The seed that the first one drew is the other one's, too.
            let theirs = read(catalogue, name, &choices(&args.against, Some(ours.0.seed)))?;
            seed = Some(ours.0.seed.wrapping_add(1));
            ready.push((ours, theirs));
        }
    }
    Ok(ready)
}

pub(crate) async fn differential(args: DifferentialArgs) -> ExitResult {
    let catalogue = catalogue()?;
    let table = Explanations::built_in().map_err(CliError::internal)?;
    let ready = pairs_to_run(&args, &catalogue)?;
    ensure_set_up(Setup::Run, !args.lab.no_setup)?;
    let running = Running { lab: args.lab.clone(), interrupted: interrupted() };
    let mut pairs: Vec<Pair> = Vec::new();
    let mut lost = 0;
    for (ours, theirs) in ready {
        match Box::pin(one_pair(&catalogue, &table, ours, theirs, &running)).await {
            Ok(pair) => {
                report(&pair, &args);
                pairs.push(pair);
            }
            Err(problem) => {
                say(&problem);
                lost += 1;
            }
        }
    }
    let comparisons: Vec<Comparison> = pairs.iter().map(|p| p.comparison.clone()).collect();
    let stale = table.stale(&comparisons);
    for row in &stale {
        say(&format!(
            "the explanation of {} `{}` ({}) no longer explains anything: remove it from explained.yaml",
            row.of.as_str(),
            row.strand,
            row.scenarios.join(", ")
        ));
    }
    if !args.json {
        summary(&pairs, args.repeat);
    }
    if let Some(file) = &args.record {
        record(file, &comparisons)?;
    }
    let different = pairs.iter().any(|p| !p.comparison.is_same() || p.verdicts.is_some());
    Ok(match (different || !stale.is_empty(), lost) {
        (true, _) => exit::FAILED,
        (false, 0) => exit::PASSED,
        (false, _) => exit::INCONCLUSIVE,
    })
}

/// Notes the session in the table of explained differences.
fn record(file: &Path, comparisons: &[Comparison]) -> Result<(), CliError> {
    let problem = |e: std::io::Error| CliError::usage(format!("{}: {e}", file.display()));
    let text = std::fs::read_to_string(file).map_err(problem)?;
    let text = Explanations::recorded(&text, comparisons).or_usage()?;
    std::fs::write(file, text).map_err(problem)
}

/// Runs a scenario and gives its result and history.
async fn one_run((prepared, text): Loaded, running: &Running) -> Result<(RunResult, Vec<Observation>), String> {
    let name = prepared.scenario.name.clone();
    if running.interrupted.is_cancelled() {
        return Err(format!("{name}: not run"));
    }
    let target = prepared.target.to_string();
    let live = if std::io::stderr().is_terminal() { Show::Hosts(Screen::default()) } else { Show::Nothing };
    let options = running.lab.options(text, running.interrupted.clone(), live);
    let outcome = Box::pin(real::run(&prepared, options)).await;
    let result = outcome.result;
    let dir = outcome.dir.ok_or_else(|| format!("{name} on {target}: no folder for the run"))?;
    say(&format!("{name} on {target}: {} ({})", result.verdict, dir.display()));
    if result.verdict == Verdict::Inconclusive && (running.interrupted.is_cancelled() || !lab_held(&result)) {
        let why = result.reason.clone().or_else(|| first_problem(&result)).unwrap_or_default();
        return Err(format!("{name} on {target} is inconclusive: {why}"));
    }
    let history = vlab_history::read(&dir.join(rundir::HISTORY)).map_err(|e| e.to_string())?;
    Ok((result, history))
}

async fn one_pair(
    catalogue: &Catalogue,
    table: &Explanations,
    ours: Loaded,
    theirs: Loaded,
    running: &Running,
) -> Result<Pair, String> {
    let a = one_run(ours, running).await?;
    let mut b = one_run(theirs.clone(), running).await?;
    for _ in 0..AGAIN {
        if same_parts(&a.1, &b.1) {
            break;
        }
        say("the service chose another bootstrap, which gives a host that a fault hits another role; trying again");
        b = one_run(theirs.clone(), running).await?;
    }
    if !same_parts(&a.1, &b.1) {
        return Err(format!(
            "{}: the hosts that faults hit never have the same roles in both runs",
            theirs.0.scenario.name
        ));
    }
    let (a, b) = (&a, &b);
    let options = Options { together_a: together(catalogue, &a.1), together_b: together(catalogue, &b.1) };
    let mut comparison = compare(&a.1, &b.1, &options);
    if let Some(problem) = incomparable(&comparison) {
        return Err(problem);
    }
    comparison.explain(table);
    let polled = comparison.a.polled || comparison.b.polled;
    let verdicts = (a.0.verdict != b.0.verdict && !polled)
        .then(|| format!("A {}, B {}: {}", a.0.verdict, b.0.verdict, broken(&a.0, &b.0).join("; ")));
    Ok(Pair { comparison, verdicts })
}

/// Did the lab do its part, so that the history is whole? What only polls could not tell does not matter here.
fn lab_held(result: &RunResult) -> bool {
    use vlab_judge::result::{CheckKind, CheckVerdict};
    let bad = |c: &&vlab_judge::result::CheckResult| c.kind == CheckKind::Lab && c.verdict != CheckVerdict::Passed;
    !result.checks.is_empty() && !result.checks.iter().any(|c| bad(&c))
}

fn first_problem(result: &RunResult) -> Option<String> {
    use vlab_judge::result::CheckVerdict;
    let check = result.checks.iter().find(|c| !matches!(c.verdict, CheckVerdict::Passed))?;
    Some(format!("{}: {}", check.name, check.message))
}

/// Names of the checks that hold on one side only.
fn broken(a: &RunResult, b: &RunResult) -> Vec<String> {
    use vlab_judge::result::CheckVerdict;
    let verdict_of = |r: &RunResult, name: &str| {
        r.checks.iter().find(|c| c.name == name).map(|c| matches!(c.verdict, CheckVerdict::Failed))
    };
    let names = a.checks.iter().chain(&b.checks).map(|c| c.name.clone());
    let mut found: Vec<String> = names.filter(|n| verdict_of(a, n) != verdict_of(b, n)).collect();
    found.sort();
    found.dedup();
    found
}

fn report(pair: &Pair, args: &DifferentialArgs) {
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&pair.comparison).unwrap_or_default()));
        return;
    }
    print(&show(&pair.comparison, args.all));
    if let Some(verdicts) = &pair.verdicts {
        print(&format!("the verdicts differ: {verdicts}\n"));
    }
    print("\n");
}

/// One line for each scenario, and with several pairs how steady each difference is.
fn summary(pairs: &[Pair], repeat: u32) {
    let mut names: Vec<&str> = Vec::new();
    for pair in pairs {
        if !names.contains(&pair.comparison.a.scenario.as_str()) {
            names.push(&pair.comparison.a.scenario);
        }
    }
    for name in names {
        let of: Vec<&Pair> = pairs.iter().filter(|p| p.comparison.a.scenario == name).collect();
        let same = of.iter().filter(|p| p.comparison.is_same() && p.verdicts.is_none()).count();
        let explained = of.iter().map(|p| p.comparison.explained.len()).max().unwrap_or(0);
        let different = of.iter().map(|p| p.comparison.differences.len()).max().unwrap_or(0);
        print(&format!(
            "{name}: {same} of {} pairs the same, at most {different} differences, {explained} explained\n",
            of.len()
        ));
        if repeat < 2 {
            continue;
        }
        let mut counted: Vec<(&Difference, usize)> = Vec::new();
        for d in of.iter().flat_map(|p| &p.comparison.differences) {
            match counted.iter_mut().find(|(known, _)| *known == d) {
                Some((_, n)) => *n += 1,
                None => counted.push((d, 1)),
            }
        }
        for (d, n) in counted {
            print(&format!("  {n}/{} {} {}: {}\n", of.len(), d.kind.as_str(), d.name, d.strand));
        }
    }
}
