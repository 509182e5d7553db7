//! The verb `simulate`: a scenario in virtual time.

use std::path::PathBuf;

use vlab_drive::prepare::{Choices, Prepared, wants_machines};
use vlab_drive::simulate::{self as virtual_time, as_lines};
use vlab_drive::target::Target;
use vlab_judge::result::exit;
use vlab_reports::{Redactor, write_all};
use vlab_run::rundir::{self, RunDir};
use vlab_scenario::{Catalogue, FrontDoor, HostKind, Need};

use crate::again::show;
use crate::args::{SeriesArgs, runs_folder};
use crate::error::{CliError, ExitResult};
use crate::scenario::read;
use crate::tools::{catalogue, print};

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
    /// How the user asks the service, instead of what the scenario says: `rest`, or `kube`, by resources on a Kubernetes API
    /// server on which the service's controllers act.
    #[arg(long, value_name = "API", value_parser = ["rest", "kube"])]
    api: Option<String>,
    /// Folder in which the run gets a folder of its own.
    #[arg(long, env = "VLAB_RUNS")]
    output_dir: Option<PathBuf>,
    /// Print the history to stdout and write no folder.
    #[arg(long, conflicts_with = "repeat")]
    history: bool,
    /// Run it this many times, with consecutive seeds from `--seed` (or 1) on, and show the median and spread of its
    /// durations and of each stage of the pivot. Writes no folder.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    repeat: Option<u64>,
    #[command(flatten)]
    series: SeriesArgs,
}

pub(crate) fn simulate(args: SimulateArgs) -> ExitResult {
    let catalogue = catalogue()?;
    match args.repeat {
        Some(times) => simulate_again(&args, times, &catalogue),
        None => simulate_once(args, &catalogue),
    }
}

/// Runs a scenario in virtual time with one seed after the other.
fn simulate_again(args: &SimulateArgs, times: u64, catalogue: &Catalogue) -> ExitResult {
    let earlier = args.series.earlier()?;
    let first = args.seed.unwrap_or(1);
    let mut results = Vec::new();
    for seed in first..first.saturating_add(times) {
        let choices = Choices {
            seed: Some(seed),
            time_profile: Some(args.time_profile.clone()),
            service: Some(Target::Simulated),
            hosts: Some(HostKind::Simulated),
            api: args.api.as_deref().and_then(FrontDoor::from_word),
            ..Choices::default()
        };
        let (prepared, _) = read(catalogue, &args.scenario, &choices)?;
        can_be_virtual(&prepared)?;
        let (result, _) = virtual_time::run(&prepared);
        if result.exit_code != exit::PASSED {
            show(&result, None);
        }
        results.push(result);
    }
    let codes: Vec<u8> = results.iter().map(|r| r.exit_code).collect();
    let shown = args.series.show(&results, earlier.as_ref());
    let passed = codes.iter().filter(|c| **c == exit::PASSED).count();
    print(&format!("{passed} of {times} runs passed\n"));
    shown.map(|()| exit::most_telling(&codes))
}

/// A scenario that needs real time, or machines, is skipped (3), however often it was to be run.
fn can_be_virtual(prepared: &Prepared) -> Result<(), CliError> {
    if let Some(why) = wants_machines(&prepared.scenario) {
        return Err(CliError::inconclusive(format!("skipped: {}: {why}", prepared.scenario.name)));
    }
    if !prepared.scenario.needs.contains(&Need::RealTime) {
        return Ok(());
    }
    let name = &prepared.scenario.name;
    let reals = prepared.scenario.faults.iter().filter(|f| f.row().needs_real_time());
    let kinds: Vec<String> = reals.map(|f| format!("{} ({})", f.name, f.word())).collect();
    let why = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
    Err(CliError::inconclusive(format!(
        "skipped: {name} needs real time, and this is virtual time{why}; run `vlab scenario {name}`"
    )))
}

fn simulate_once(args: SimulateArgs, catalogue: &Catalogue) -> ExitResult {
    let choices = Choices {
        seed: args.seed,
        time_profile: Some(args.time_profile.clone()),
        service: Some(Target::Simulated),
        hosts: Some(HostKind::Simulated),
        api: args.api.as_deref().and_then(FrontDoor::from_word),
        ..Choices::default()
    };
    let (prepared, text) = read(catalogue, &args.scenario, &choices)?;
    can_be_virtual(&prepared)?;
    let (mut result, history) = virtual_time::run(&prepared);
    let redactor = Redactor::new(prepared.secrets());
    if args.history {
        print(&redactor.redact(&as_lines(&history)));
        return Ok(result.exit_code);
    }
    let runs = args.output_dir.unwrap_or_else(runs_folder);
    let started = rundir::Started::of(&prepared, &result.run.run_id, vlab_api::Timestamp::now());
    let resources = &prepared.scenario.infra_env.resources;
    let written = RunDir::create(&runs, &started, &text, resources, &redactor).and_then(|dir| {
        let mut file = dir.redacted_file(rundir::HISTORY, &redactor)?;
        std::io::Write::write_all(&mut file, as_lines(&history).as_bytes())?;
        std::io::Write::flush(&mut file)?;
        write_all(dir.path(), &result, &history, &redactor)?;
        Ok(dir)
    });
    match written {
        Ok(dir) => {
            show(&result, Some(dir.path()));
            Ok(result.exit_code)
        }
        Err(error) => {
            // The verdict is known all the same; that nothing is left of it must not look like a pass.
            result.cut_short(exit::INCONCLUSIVE, format!("the run's folder: {error}"));
            show(&result, None);
            Ok(result.exit_code)
        }
    }
}
