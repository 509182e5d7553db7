//! The verbs that take up a run that is over, from its folder: `report` and `check`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use vlab_judge::result::{RunResult, exit};
use vlab_reports::console;
use vlab_reports::html::{self, beside::Run};
use vlab_reports::logs;
use vlab_reports::session::Session;
use vlab_reports::{Redactor, write_all};
use vlab_run::again::OldRun;
use vlab_run::loads::is_load;
use vlab_run::real::find_run;
use vlab_run::rundir;

use crate::args::runs_folder;
use crate::conformance;
use crate::error::{CliError, ExitResult, OrExit as _};
use crate::session;
use crate::tools::{catalogue, print};

#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// A run: its folder, its id, or `latest`; or a session: `sessions/latest`, `sessions/<id>`.
    #[arg(default_value = rundir::LATEST)]
    run: String,
    /// Write only a page with this run and another one over one axis of time, aligned where their installations start:
    /// `beside-<other run>.html` in the folder of the first.
    #[arg(long, value_name = "RUN")]
    beside: Option<String>,
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
    /// Show the checks that follow from what went wrong first, too.
    #[arg(long)]
    all: bool,
}

pub(crate) fn show(result: &RunResult, dir: Option<&Path>) {
    print(&console::render(result, session::style()));
    if let Some(dir) = dir {
        print(&format!("report: {}\n", dir.join("report.html").display()));
    }
}

/// The run of that name, read back from its folder.
pub(crate) fn open(run: &str, output_dir: &Option<PathBuf>) -> Result<OldRun, CliError> {
    let runs = output_dir.clone().unwrap_or_else(runs_folder);
    OldRun::open(&find_run(&runs, run), &catalogue()?).or_usage()
}

/// Shows a session again. Of one that was killed, what had not come to its end is `not run`.
fn report_session(session: &Session, folder: &Path) -> ExitResult {
    print(&session.table(std::io::stdout().is_terminal() && session::style().color));
    session.write(folder).or_inconclusive()?;
    Ok(exit::PASSED)
}

/// What a run came to: what was written then, else what its history says.
fn result_of(old: &OldRun) -> RunResult {
    // The verdict of the run stays what it was; `check` judges anew.
    old.result.clone().unwrap_or_else(|| old.judged_again())
}

/// The page of two runs.
fn beside(args: &ReportArgs, other: &str) -> ExitResult {
    let old = [open(&args.run, &args.output_dir)?, open(other, &args.output_dir)?];
    let results = [result_of(&old[0]), result_of(&old[1])];
    let redactors = [0, 1].map(|n| Redactor::new(old[n].prepared.secrets()));
    let mut logs = Vec::new();
    for (old, result) in old.iter().zip(&results) {
        logs.push(logs::read(old.dir.path(), result.started_at).or_inconclusive()?);
    }
    let runs =
        [0, 1].map(|n| Run { result: &results[n], history: &old[n].history, logs: &logs[n], redactor: &redactors[n] });
    let name: String =
        results[1].run.run_id.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
    let file = old[0].dir.file(&format!("beside-{name}.html"));
    std::fs::write(&file, html::beside::render(runs))
        .map_err(|e| CliError::inconclusive(format!("cannot write {}: {e}", file.display())))?;
    print(&format!("{}\n", file.display()));
    Ok(exit::PASSED)
}

pub(crate) fn report(args: &ReportArgs) -> ExitResult {
    if let Some(other) = &args.beside {
        return beside(args, other);
    }
    let runs = args.output_dir.clone().unwrap_or_else(runs_folder);
    if let Ok(session) = Session::read(&find_run(&runs, &args.run)) {
        return report_session(&session, &find_run(&runs, &args.run));
    }
    if conformance::is_suite(&find_run(&runs, &args.run)) {
        return Err(CliError::usage("that is a run of the conformance suite: its reports are in its folder"));
    }
    if is_load(&find_run(&runs, &args.run)) {
        return Err(CliError::usage("that is a load: its page is `report.html` in its folder"));
    }
    let old = open(&args.run, &args.output_dir)?;
    let result = result_of(&old);
    let redactor = Redactor::new(old.prepared.secrets());
    let written = write_all(old.dir.path(), &result, &old.history, &redactor).or_inconclusive()?;
    print(&format!("{}\n{}\n{}\n", written.html.display(), written.junit.display(), written.result.display()));
    Ok(exit::PASSED)
}

pub(crate) fn check(args: &CheckArgs) -> ExitResult {
    let runs = args.output_dir.clone().unwrap_or_else(runs_folder);
    if conformance::is_suite(&find_run(&runs, &args.run)) {
        return Err(CliError::usage(
            "that is a run of the conformance suite, which is judged while it asks; run `vlab conformance` again",
        ));
    }
    if is_load(&find_run(&runs, &args.run)) {
        return Err(CliError::usage(
            "that is a load, which is measured and not judged; `vlab load compare` compares two",
        ));
    }
    let old = open(&args.run, &args.output_dir)?;
    let result = old.judged_again();
    match args.all {
        true => print(&console::render_all(&result, session::style())),
        false => show(&result, None),
    }
    Ok(result.exit_code)
}
