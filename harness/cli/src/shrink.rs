//! The verb `shrink`: the smallest scenario that fails as a run did.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use vlab_drive::explore::reduce::{How, reduce};
use vlab_judge::result::{CheckVerdict, exit};
use vlab_run::rundir;

use crate::again::open;
use crate::error::{CliError, ExitResult};
use crate::tools::{catalogue, print, tell};

#[derive(clap::Args)]
pub(crate) struct ShrinkArgs {
    /// A run that failed: its folder, its id, or `latest`.
    #[arg(default_value = rundir::LATEST)]
    run: String,
    /// Name of the failed check to keep. Without it: the one that went wrong first.
    #[arg(long, value_name = "NAME")]
    check: Option<String>,
    /// At most so many runs.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    runs: u64,
    /// File for the scenario. Without it, `shrunk.yaml` in the run's folder.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Folder of the runs.
    #[arg(long, env = "VLAB_RUNS")]
    output_dir: Option<PathBuf>,
}

pub(crate) fn shrink(args: &ShrinkArgs) -> ExitResult {
    let run = open(&args.run, &args.output_dir)?;
    let result = run.judged_again();
    let failed: Vec<_> = result.checks.iter().filter(|check| check.verdict == CheckVerdict::Failed).collect();
    let first = failed.iter().find(|check| !check.follows).or(failed.first());
    let check = match (&args.check, first) {
        (Some(name), _) => name.clone(),
        (None, Some(first)) => first.name.clone(),
        (None, None) => {
            return Err(CliError::nothing_selected("nothing failed in that run: there is nothing to shrink"));
        }
    };
    let source = run.dir.scenario().map_err(CliError::usage)?;
    let how = How { seed: run.prepared.seed, time_profile: run.prepared.time_profile.clone(), most: args.runs };
    let terminal = std::io::stderr().is_terminal();
    let mut shown = Instant::now();
    let mut progress = |runs: u64, lines: usize| {
        if shown.elapsed() >= Duration::from_secs(2) {
            shown = Instant::now();
            let line = format!("shrinking: {runs} runs, {lines} lines");
            tell(&if terminal { format!("\r\x1b[2K{line}") } else { format!("{line}\n") });
        }
    };
    let began = Instant::now();
    let reduced = reduce(&source, &catalogue()?, &check, &how, &mut progress).map_err(CliError::inconclusive)?;
    if terminal {
        tell("\r\x1b[2K");
    }
    let file = args.output.clone().unwrap_or_else(|| run.dir.file("shrunk.yaml"));
    std::fs::write(&file, &reduced.source.bytes)
        .map_err(|e| CliError::inconclusive(format!("{}: {e}", file.display())))?;
    print(&format!(
        "{}: fails {:?} with the seed {} ({} lines, before {}; {} runs, {:.1} s{})\n  {}\n",
        file.display(),
        reduced.check,
        how.seed,
        String::from_utf8_lossy(&reduced.source.bytes).lines().count(),
        String::from_utf8_lossy(&source.bytes).lines().count(),
        reduced.runs,
        began.elapsed().as_secs_f64(),
        if reduced.is_minimal { "" } else { ", and not to the end" },
        reduced.message.lines().next().unwrap_or_default()
    ));
    Ok(exit::PASSED)
}
