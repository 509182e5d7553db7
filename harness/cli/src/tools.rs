//! The verbs around running: list, validate, schema, doctor, setup, gc.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use vlab_judge::result::exit;
use vlab_lab::doctor::{Context, FindingState, Needed, examine};
use vlab_lab::{gc as leftovers, ledger};
use vlab_scenario::{Catalogue, CatalogueError};
use vlab_setup as setup;

use crate::args::runs_folder;
use crate::error::{CliError, ExitResult, OrExit as _};
use crate::say;

#[derive(clap::Args)]
pub(crate) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Only scenarios with this tag, or with `!tag` only those without it.
    #[arg(long)]
    tag: Vec<String>,
}

/// The catalogue.
pub(crate) fn catalogue() -> Result<Catalogue, CliError> {
    Catalogue::discover().or_usage()
}

/// Does a scenario with these tags match all selectors?
pub(crate) fn tagged(tags: &[String], selectors: &[String]) -> bool {
    selectors.iter().all(|s| match s.strip_prefix('!') {
        Some(not) => !tags.iter().any(|t| t == not),
        None => tags.iter().any(|t| t == s),
    })
}

/// Are diagnostics coloured?
fn colour() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Prints to stdout; a reader that went away (`| head`) is no error.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Prints to stderr; a terminal that was closed is no error, and no reason to leave a run without its report.
pub(crate) fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

pub(crate) fn list(args: &ListArgs) -> ExitResult {
    let entries: Vec<_> = catalogue()?.list().into_iter().filter(|e| tagged(&e.tags, &args.tag)).collect();
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&entries).unwrap_or_default()));
    } else {
        let width = entries.iter().map(|e| e.name.len()).max().unwrap_or(0);
        for entry in &entries {
            let first = first_sentence(&entry.description);
            let tags = if entry.tags.is_empty() { String::new() } else { format!("  [{}]", entry.tags.join(", ")) };
            let broken = if entry.broken.is_some() { "  (cannot be read: see `vlab validate`)" } else { "" };
            print(&format!("{:width$}  {first}{tags}{broken}\n", entry.name));
        }
    }
    if entries.is_empty() {
        return Err(CliError::nothing_selected("no scenario matches"));
    }
    Ok(exit::PASSED)
}

/// The first sentence of a text whose lines are broken anywhere.
fn first_sentence(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let end = words.iter().position(|w| w.ends_with(['.', '!', '?'])).map_or(words.len(), |i| i + 1);
    words[..end].join(" ")
}

#[derive(clap::Args)]
pub(crate) struct ValidateArgs {
    /// Names or files; none: the whole catalogue.
    scenarios: Vec<String>,
}

pub(crate) fn validate(args: &ValidateArgs) -> ExitResult {
    let catalogue = catalogue()?;
    let names: Vec<String> =
        if args.scenarios.is_empty() { catalogue.scenario_names() } else { args.scenarios.clone() };
    if names.is_empty() {
        return Err(CliError::nothing_selected("the catalogue has no scenario"));
    }
    let mut code = exit::PASSED;
    for name in names {
        match load(&catalogue, &name) {
            Ok((scenario, _)) => {
                // What is not built is about machines.
                let may_be = scenario.hosts.iter().any(|host| host.kind != vlab_scenario::HostKind::Simulated);
                let not_built: &[vlab_scenario::NotBuilt] = if may_be { &scenario.not_built } else { &[] };
                for part in not_built {
                    tell(&format!("{}\n", part.diagnostic));
                    code = exit::USAGE;
                }
                if not_built.is_empty() {
                    print(&format!("{}: valid\n", scenario.name));
                }
            }
            Err(error) => {
                error.print();
                code = error.code;
            }
        }
    }
    Ok(code)
}

/// Reads a scenario by name or path.
pub(crate) fn load(catalogue: &Catalogue, name: &str) -> Result<(vlab_scenario::Scenario, Vec<u8>), CliError> {
    let source = catalogue.find(name).map_err(|error| match error {
        CatalogueError::NotFound(missing) => CliError::usage(missing),
        CatalogueError::Unreadable(unreadable) => CliError::rendered(unreadable.render(colour())),
    })?;
    let scenario =
        vlab_scenario::load(&source, catalogue).map_err(|error| CliError::rendered(error.render(colour())))?;
    Ok((scenario, source.bytes))
}

pub(crate) fn schema() -> ExitResult {
    print(&format!("{}\n", serde_json::to_string_pretty(&vlab_scenario::schema()).unwrap_or_default()));
    Ok(exit::PASSED)
}

#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Number of simulated hosts that this machine should be able to run.
    #[arg(long, default_value_t = 2000)]
    hosts: u32,
}

pub(crate) async fn doctor(args: DoctorArgs) -> ExitResult {
    let examination = examine(Context { hosts: args.hosts, run_dir: runs_folder() }).await;
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&examination).unwrap_or_default()));
    } else {
        let width = examination.findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
        for f in &examination.findings {
            let state = match f.state {
                FindingState::Found => "found",
                FindingState::Missing => "missing",
                FindingState::Unusable => "unusable",
            };
            let later = match f.needed {
                Needed::ToRun => "",
                Needed::ToTest => " (tests only)",
                Needed::ForSome => " (some runs)",
                Needed::ForMachines => " (virtual machines)",
            };
            print(&format!("{:width$}  {state:8}{later}  {}: {}\n", f.name, f.why, f.detail));
            if let Some(fix) = &f.fix {
                print(&format!("{:width$}            → {fix}\n", ""));
            }
        }
    }
    if examination.can_run() {
        if !args.json {
            print("runs with simulated hosts can start on this machine\n");
            print(match examination.lacking(Needed::ForMachines).next() {
                None => "virtual machines can start on this machine\n",
                Some(_) => "virtual machines cannot all start on this machine: see above\n",
            });
        }
        Ok(exit::PASSED)
    } else {
        Ok(exit::INCONCLUSIVE)
    }
}

#[derive(clap::Args)]
pub(crate) struct SetupArgs {
    /// Do not install anything; only say what is missing.
    #[arg(long)]
    no_setup: bool,
    /// Install Docker Engine and start it.
    #[arg(long)]
    containers: bool,
    /// Also install what virtual machines and the lab network need.
    #[arg(long, conflicts_with = "containers")]
    machines: bool,
}

pub(crate) fn set_up(args: &SetupArgs) -> ExitResult {
    let done = if args.containers {
        let there = setup::ensure(setup::Purpose::Containers, !args.no_setup, say);
        there.and_then(|_| setup::start_engine(say)).or_inconclusive()?
    } else {
        ensure_set_up(if args.machines { Setup::Machines } else { Setup::Run }, !args.no_setup)?
    };
    say(done);
    Ok(exit::PASSED)
}

/// For what something is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    /// Runs with simulated hosts.
    Run,
    /// Virtual machines, too.
    Machines,
}

/// What a run needs is there afterwards.
pub(crate) fn ensure_set_up(purpose: Setup, may_install: bool) -> Result<&'static str, CliError> {
    let purpose = match purpose {
        Setup::Run => setup::Purpose::Run,
        Setup::Machines => setup::Purpose::Machines,
    };
    match setup::ensure(purpose, may_install, say).or_inconclusive()? {
        setup::Done::WasThere => Ok("everything is there"),
        setup::Done::Installed => Ok("set up"),
    }
}

#[derive(clap::Args)]
pub(crate) struct GcArgs {
    /// Only show what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn gc(args: &GcArgs) -> ExitResult {
    let temporary: Vec<PathBuf> = leftovers::temporary_folders();
    let registry = ledger::registry();
    let mut plan = leftovers::find_leftovers(&registry, &temporary)
        .map_err(|error| CliError::inconclusive(format!("cannot look for leftovers: {error}")))?;
    // Without an engine there are no containers.
    if let Ok(engine) = vlab_container_engine::find() {
        leftovers::find_labelled(&mut plan, &registry, &engine)
            .map_err(|error| CliError::inconclusive(format!("cannot look for containers: {error}")))?;
    }
    if args.json && args.dry_run {
        print(&format!("{}\n", serde_json::to_string_pretty(&plan).unwrap_or_default()));
        return Ok(exit::PASSED);
    }
    if !args.json {
        print(&format!("{plan}"));
    }
    if args.dry_run || plan.is_empty() {
        if args.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&leftovers::Removal::default()).unwrap_or_default()));
        }
        return Ok(exit::PASSED);
    }
    let removal = leftovers::remove(&plan);
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&removal).unwrap_or_default()));
    } else {
        print(&format!("{removal}"));
    }
    Ok(if removal.kept() == 0 && removal.failed.is_empty() { exit::PASSED } else { exit::LEAK })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("One thing\nhappens. Then more.", "One thing happens.")]
    #[case("no end", "no end")]
    #[case("", "")]
    fn a_list_shows_first_sentences(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(first_sentence(text), expected);
    }

    #[rstest]
    #[case(&[], true)]
    #[case(&["fast"], true)]
    #[case(&["fast", "!load"], true)]
    #[case(&["!fast"], false)]
    #[case(&["load"], false)]
    fn tags_select(#[case] selectors: &[&str], #[case] expected: bool) {
        let selectors: Vec<String> = selectors.iter().map(|s| (*s).to_owned()).collect();
        assert_eq!(tagged(&["fast".to_owned(), "sno".to_owned()], &selectors), expected);
    }
}
