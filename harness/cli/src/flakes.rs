//! `vlab flakes`: how often each scenario passes, since when it does not, and what it fails of.

use std::path::PathBuf;

use vlab_judge::result::exit;
use vlab_reports::record;

use crate::args::runs_folder;
use crate::error::{CliError, ExitResult, OrExit as _};
use crate::say;
use crate::tools::print;

#[derive(clap::Args)]
pub(crate) struct FlakesArgs {
    /// Names of scenarios; none: all that sometimes pass and sometimes do not.
    scenarios: Vec<String>,
    /// All scenarios, also those that always pass or never.
    #[arg(long)]
    all: bool,
    /// Count only the newest N runs of each scenario.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Folder of the runs, whose `runs.jsonl` is read.
    #[arg(long, env = "VLAB_RUNS")]
    output_dir: Option<PathBuf>,
}

pub(crate) fn flakes(args: &FlakesArgs) -> ExitResult {
    let folder = args.output_dir.clone().unwrap_or_else(runs_folder);
    let (runs, lost) = record::read(&folder).or_usage()?;
    if lost > 0 {
        say(&format!("{lost} lines of {} could not be read and do not count", folder.join(record::RECORD).display()));
    }
    if runs.is_empty() {
        let why = format!("no run is recorded in {}; runs write it", folder.join(record::RECORD).display());
        return Err(CliError::nothing_selected(why));
    }
    let mut all = record::statistics(&runs, args.last.map(|last| last as usize));
    if !args.scenarios.is_empty() {
        all.retain(|statistics| args.scenarios.contains(&statistics.scenario));
        if all.is_empty() {
            return Err(CliError::nothing_selected("no run of these scenarios is recorded"));
        }
    } else if !args.all {
        all.retain(record::Statistics::is_flaky);
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&all).unwrap_or_default()));
    } else if all.is_empty() {
        print(&format!(
            "none of {} recorded runs is of a scenario that sometimes passes and sometimes does not; `--all` shows all\n",
            runs.len()
        ));
    } else {
        print(&record::table(&all));
    }
    Ok(exit::PASSED)
}
