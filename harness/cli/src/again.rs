//! The verbs that take up a run that is over, from its folder: `report` and `check`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use vlab_drive::prepare::{Choices, Prepared};
use vlab_judge::result::{RESULT_VERSION, RunResult, Verdict, exit};
use vlab_judge::verdict;
use vlab_reports::console;
use vlab_reports::session::Session;
use vlab_reports::{Redactor, write_all};
use vlab_run::prepare::prepare;
use vlab_run::real::find_run;
use vlab_run::rundir::{self, RunDir};
use vlab_run::traffic::quantiles;
use vlab_scenario::HostKind;

use crate::args::runs_folder;
use crate::conformance;
use crate::error::{CliError, Ended, OrExit as _};
use crate::session;
use crate::tools::{catalogue, print};

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

pub(crate) fn show(result: &RunResult, dir: Option<&Path>) {
    print(&console::render(result, session::style()));
    if let Some(dir) = dir {
        print(&format!("report: {}\n", dir.join("report.html").display()));
    }
}

pub(crate) fn judge_into(result: &mut RunResult, prepared: &Prepared, history: &[vlab_model::history::Observation]) {
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

pub(crate) fn open(run: &str, output_dir: &Option<PathBuf>) -> Result<Old, CliError> {
    let runs = output_dir.clone().unwrap_or_else(runs_folder);
    let (dir, started) = RunDir::open(&find_run(&runs, run)).or_usage()?;
    let catalogue = catalogue()?;
    let source = dir.scenario().or_usage()?;
    let scenario = vlab_scenario::load(&source, &catalogue).or_usage()?;
    // Runs of before there was a choice have none in their marker: the scenario's own counts.
    let service = match started.service.as_str() {
        "" => None,
        text => {
            Some(text.parse().map_err(|e| CliError::usage(format!("{}: {e}", dir.file(rundir::STARTED).display())))?)
        }
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
    let prepared = prepare(scenario, &catalogue, &choices).or_usage()?;
    let history = vlab_history::read(&dir.file(rundir::HISTORY)).or_usage()?;
    let result = match std::fs::read(dir.file(rundir::RESULT)) {
        Ok(bytes) => Some(
            serde_json::from_slice(&bytes)
                .map_err(|e| CliError::usage(format!("{}: {e}", dir.file(rundir::RESULT).display())))?,
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
fn report_session(session: &Session, folder: &Path) -> Ended {
    print(&session.table(std::io::stdout().is_terminal() && session::style().color));
    session.write(folder).or_inconclusive()?;
    Ok(exit::PASSED)
}

pub(crate) fn report(args: &ReportArgs) -> Ended {
    let runs = args.output_dir.clone().unwrap_or_else(runs_folder);
    if let Ok(session) = Session::read(&find_run(&runs, &args.run)) {
        return report_session(&session, &find_run(&runs, &args.run));
    }
    if conformance::is_suite(&find_run(&runs, &args.run)) {
        return Err(CliError::usage("that is a run of the conformance suite: its reports are in its folder"));
    }
    let old = open(&args.run, &args.output_dir)?;
    // The verdict of the run stays what it was; `check` judges anew.
    let result = old.result.clone().unwrap_or_else(|| judged_again(&old));
    let redactor = Redactor::new(old.prepared.secrets());
    let written = write_all(old.dir.path(), &result, &old.history, &redactor).or_inconclusive()?;
    print(&format!("{}\n{}\n{}\n", written.html.display(), written.junit.display(), written.result.display()));
    Ok(exit::PASSED)
}

pub(crate) fn check(args: &CheckArgs) -> Ended {
    let runs = args.output_dir.clone().unwrap_or_else(runs_folder);
    if conformance::is_suite(&find_run(&runs, &args.run)) {
        return Err(CliError::usage(
            "that is a run of the conformance suite, which is judged while it asks; run `vlab conformance` again",
        ));
    }
    let old = open(&args.run, &args.output_dir)?;
    let result = judged_again(&old);
    show(&result, None);
    Ok(result.exit_code)
}
