//! The verb `coverage`: what runs have exercised, read out of their folders, or of the whole catalogue in virtual time.

use std::path::{Path, PathBuf};

use vlab_drive::coverage::{Gatherer, RULES, Run, rehearse_catalogue};
use vlab_drive::prepare::Prepared;
use vlab_drive::target::Target;
use vlab_judge::coverage::Coverage;
use vlab_judge::result::exit;
use vlab_model::settings::Settings;
use vlab_reports::coverage::{json, markdown, text};
use vlab_reports::html::coverage::page;
use vlab_reports::session::{SESSION, Session};
use vlab_run::again::OldRun;
use vlab_run::real::find_run;
use vlab_run::rundir::STARTED;
use vlab_run::session::find_session;

use crate::again::open;
use crate::args::runs_folder;
use crate::error::{CliError, ExitResult, OrExit as _};
use crate::say;
use crate::tools::{catalogue, print};

#[derive(clap::Args)]
pub(crate) struct CoverageArgs {
    /// Runs (a folder, an id, `latest`), sessions (`sessions/latest`, `sessions/<id>`), or folders of runs. Without any:
    /// the latest session.
    runs: Vec<String>,
    /// Also simulate the whole catalogue in virtual time.
    #[arg(long)]
    simulate: bool,
    /// Also show what was reached.
    #[arg(long)]
    all: bool,
    /// Print JSON.
    #[arg(long, conflicts_with_all = ["markdown", "all"])]
    json: bool,
    /// Print Markdown tables.
    #[arg(long, conflicts_with = "all")]
    markdown: bool,
    /// Also write an HTML page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exit with code 1 if runs reached less than this percentage of the reachable rules on the built-in service.
    #[arg(long, value_name = "PERCENT")]
    at_least: Option<f64>,
    /// Folder of the runs.
    #[arg(long, env = "VLAB_RUNS")]
    output_dir: Option<PathBuf>,
}

pub(crate) fn coverage(args: &CoverageArgs) -> ExitResult {
    let runs = args.output_dir.clone().unwrap_or_else(runs_folder);
    let mut gatherer = Gatherer::new();
    let mut count = 0;
    if args.simulate {
        count += simulate_all(&mut gatherer)?;
    }
    let latest = ["sessions/latest".to_owned()];
    let named: &[String] = if args.runs.is_empty() && !args.simulate { &latest } else { &args.runs };
    for name in named {
        for folder in folders(&runs, name).or_usage()? {
            match open(&folder.display().to_string(), &None) {
                Ok(old) => {
                    add(&mut gatherer, &old);
                    count += 1;
                }
                // A run of an older catalogue may have a scenario that cannot be read any more.
                Err(error) => error.print(),
            }
        }
    }
    if count == 0 {
        return Err(CliError::nothing_selected("no run was found whose history could be read"));
    }
    show(&gatherer.finish(), args)
}

fn show(coverage: &Coverage, args: &CoverageArgs) -> ExitResult {
    print(&match (args.json, args.markdown) {
        (true, _) => json(coverage),
        (_, true) => markdown(coverage),
        _ => text(coverage, args.all),
    });
    if let Some(path) = &args.html {
        std::fs::write(path, page(coverage))
            .map_err(|error| CliError::inconclusive(format!("cannot write {}: {error}", path.display())))?;
    }
    let rules = coverage.count(&RULES, false);
    match args.at_least {
        Some(least) if rules.of_reachable() < least => {
            say(&format!("{:.1} % of the rules that can be reached, and not {least} %", rules.of_reachable()));
            Ok(exit::FAILED)
        }
        _ => Ok(exit::PASSED),
    }
}

/// The folders of runs that a word names.
fn folders(runs: &Path, name: &str) -> Result<Vec<PathBuf>, String> {
    let direct = find_run(runs, name);
    if direct.join(STARTED).exists() {
        return Ok(vec![direct]);
    }
    let session = name.strip_prefix("sessions/").map(|id| find_session(runs, id)).unwrap_or_else(|| direct.clone());
    if session.join(SESSION).exists() {
        let session = Session::read(&session).map_err(|e| e.to_string())?;
        let ids = session.items.iter().flat_map(|i| &i.attempts).map(|a| &a.run_id).filter(|id| !id.is_empty());
        return Ok(ids.map(|id| runs.join(id)).collect());
    }
    let folder = if Path::new(name).is_dir() { PathBuf::from(name) } else { direct };
    let mut found: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(|e| format!("{name} is not a run, a session or a folder of runs: {}: {e}", folder.display()))?
        .flatten()
        .map(|entry| entry.path())
        // The link to the newest run is one of the others.
        .filter(|path| !path.is_symlink() && path.join(STARTED).exists())
        .collect();
    found.sort();
    Ok(found)
}

fn add(gatherer: &mut Gatherer, old: &OldRun) {
    let service = old.result.as_ref().and_then(|r| r.run.versions.get("service"));
    // A container may have the built-in service in it.
    let built_in = old.prepared.target == Target::Simulated || service.is_some_and(|v| v.starts_with("simulated"));
    let settings = settings(&old.prepared, !built_in);
    let scenario = &old.prepared.scenario.name;
    gatherer.add(&Run { scenario, history: &old.history, settings: &settings, real: !built_in });
}

/// The settings of a run's service. What the real one has compiled in no time profile scales.
fn settings(prepared: &Prepared, real: bool) -> Settings {
    let mut settings = prepared.settings.clone();
    if real {
        settings.constants = Settings::default().constants;
    }
    settings
}

fn simulate_all(gatherer: &mut Gatherer) -> Result<usize, CliError> {
    let catalogue = catalogue()?;
    rehearse_catalogue(&catalogue, |prepared, history, _| {
        let scenario = &prepared.scenario.name;
        gatherer.add(&Run { scenario, history, settings: &prepared.settings, real: false });
    })
    .map_err(CliError::rendered)
}
