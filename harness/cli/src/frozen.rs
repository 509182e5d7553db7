//! Labs that were frozen: `scenario --snapshot-at` makes one, `scenario --from` goes on from it, `snapshots` lists them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use vlab_drive::prepare::Choices;
use vlab_judge::result::{Verdict, exit};
use vlab_reports::console;
use vlab_run::hosts::vm::Ability;
use vlab_run::live::{Screen, Show};
use vlab_run::real;
use vlab_run::session::RunOrder;
use vlab_run::snapshot::{self, Snapshot, Wanted};
use vlab_scenario::{HostKind, named_moment};

use clap::ValueEnum as _;

use crate::args::{Hosts, LabArgs, Options};
use crate::error::{CliError, ExitResult};
use crate::scenario::real_node;
use crate::session::style;
use crate::tools::{Setup, ensure_set_up, print, tell};

/// How a lab is frozen, and how one goes on.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct FrozenArgs {
    /// Freeze the lab at that moment, and end: machines, disks, service and database are written down, and `--from` goes on there as often
    /// as you like. A moment is what happens (`bootkube done`), a stage (`Rebooting`), or `host` or `cluster` and a status (`cluster
    /// finalizing`); before it, with a colon, the host or cluster (`node-0: Joined`).
    #[arg(long, value_name = "MOMENT", conflicts_with_all =
        ["from", "repeat", "partition", "jobs", "retries", "keep", "pause_on_failure"])]
    snapshot_at: Option<String>,
    /// With `--snapshot-at`: name of the snapshot, or a folder that is not there yet. Without it, the scenario and the moment.
    #[arg(long, value_name = "NAME", requires = "snapshot_at")]
    snapshot: Option<String>,
    /// Go on from a snapshot: its name, or its folder. Another scenario may do otherwise from then on, but not before. Without a scenario, the one
    /// that was frozen. Seed, time profile and kind of hosts are those of the snapshot.
    #[arg(long, value_name = "SNAPSHOT")]
    from: Option<String>,
}

/// What is to be frozen, or goes on.
#[derive(Default)]
pub(crate) struct Freezing {
    /// The run is to be frozen.
    pub(crate) wanted: Option<ToFreeze>,
    /// The runs go on from that.
    pub(crate) from: Option<Arc<Snapshot>>,
}

/// A run that is to be frozen.
pub(crate) struct ToFreeze {
    at: String,
    name: Option<String>,
}

impl FrozenArgs {
    /// Reads what was named.
    pub(crate) fn read(&self, lab: &LabArgs) -> Result<Freezing, CliError> {
        let from = self.from.as_ref().map(|name| Snapshot::open(&snapshot::find(&lab.runs(), name))).transpose();
        Ok(Freezing {
            wanted: self.snapshot_at.clone().map(|at| ToFreeze { at, name: self.snapshot.clone() }),
            from: from.map_err(|why| CliError::usage(format!("--from: {why}")))?.map(Arc::new),
        })
    }
}

/// What was chosen for the run that was frozen is chosen again.
pub(crate) fn as_it_was(choices: &mut Choices, from: &Snapshot) -> Result<(), CliError> {
    let was = &from.manifest;
    choices.seed.get_or_insert(was.seed);
    choices.time_profile.get_or_insert_with(|| was.time_profile.clone());
    if choices.service.is_none() {
        let service = was.service.parse();
        choices.service = Some(service.map_err(|error| CliError::usage(format!("--from: {}: {error}", was.service)))?);
    }
    // What the environment wants of every run is not wanted of one whose hosts are there already. Another kind that is asked for by name is
    // refused later.
    let everywhere = std::env::var("VLAB_HOSTS").ok().and_then(|words| Hosts::from_str(&words, true).ok());
    if choices.hosts.is_none() || choices.hosts == everywhere.map(HostKind::from) {
        choices.hosts = hosts_of(&was.hosts);
    }
    if choices.real_node.is_none() {
        choices.real_node = real_node(was.real_node.as_deref())?;
    }
    Ok(())
}

/// What hosts were, as it was written down; `None`: some of each, as the scenario says.
pub(crate) fn hosts_of(words: &str) -> Option<HostKind> {
    match words {
        "vm" => Some(HostKind::Vm),
        "simulated" => Some(HostKind::Simulated),
        _ => None,
    }
}

/// Can those that are to go on from a snapshot do so? Tried out before anything is started.
pub(crate) fn can_go_on(orders: &[RunOrder]) -> Result<(), CliError> {
    for RunOrder { prepared, from, .. } in orders {
        let Some(from) = from else { continue };
        let tried = from.try_out(prepared);
        tried.map_err(|why| {
            CliError::usage(format!("{} cannot go on from {}: {why}", prepared.scenario.name, from.folder().display()))
        })?;
    }
    Ok(())
}

impl ToFreeze {
    /// Runs until the moment, and freezes the lab there.
    pub(crate) async fn freeze(
        self,
        mut orders: Vec<RunOrder>,
        options: &Options,
        ability: Option<Ability>,
        interrupted: CancellationToken,
    ) -> ExitResult {
        let (Some(order), true) = (orders.pop(), orders.is_empty()) else {
            return Err(CliError::usage("--snapshot-at is for one scenario"));
        };
        let RunOrder { prepared, text, .. } = order;
        let complain = |why: String| CliError::usage(format!("--snapshot-at: {why}"));
        let moment = named_moment(&prepared.scenario, &self.at).map_err(complain)?;
        snapshot::can_be_frozen(&prepared).map_err(complain)?;
        let folder = self.folder(&options.lab, &prepared.scenario.name);
        if folder.exists() {
            return Err(CliError::usage(format!(
                "{} is there already: give another name (--snapshot), or remove it (`vlab snapshots --remove`)",
                folder.display()
            )));
        }
        if prepared.target.needs_postgres_here() {
            ensure_set_up(Setup::Run, !options.lab.no_setup)?;
        }
        let looked_at = !options.quiet && std::io::IsTerminal::is_terminal(&std::io::stderr());
        let live = if looked_at { Show::Hosts(Screen::default()) } else { Show::Nothing };
        let mut lab = options.lab.options(text, interrupted, live);
        lab.ability = ability;
        lab.freeze = Some(Wanted { moment, words: self.at.clone(), folder: folder.clone() });
        let outcome = Box::pin(real::run(&prepared, lab)).await;
        let name = &prepared.scenario.name;
        if let Some(after) = outcome.frozen {
            print(&format!(
                "{name} is frozen at `{}`, {:.1} s after its start: {}\ngo on: vlab scenario {} --from {}\n",
                self.at,
                after.as_secs_f64(),
                folder.display(),
                prepared.called,
                called(&options.lab.runs(), &folder)
            ));
            return Ok(exit::PASSED);
        }
        print(&console::render(&outcome.result, style()));
        if let Some(dir) = &outcome.dir {
            print(&format!("report: {}\n", dir.join("report.html").display()));
        }
        // Whatever else was wrong is said already.
        if outcome.result.verdict == Verdict::Passed {
            return Err(CliError::inconclusive(format!(
                "inconclusive: `{}` was not seen until the end of the run: nothing was frozen",
                self.at
            )));
        }
        Ok(outcome.result.exit_code)
    }

    fn folder(&self, lab: &LabArgs, scenario: &str) -> PathBuf {
        match &self.name {
            Some(name) if name.contains('/') => PathBuf::from(name),
            Some(name) => snapshot::all(&lab.runs()).join(name),
            None => {
                let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
                let at: String = self.at.chars().map(plain).collect();
                snapshot::all(&lab.runs()).join(format!("{scenario}-{at}"))
            }
        }
    }
}

/// What to call a snapshot on the command line.
fn called(runs: &Path, folder: &Path) -> String {
    let name = folder.strip_prefix(snapshot::all(runs)).unwrap_or(folder);
    name.display().to_string()
}

#[derive(clap::Args)]
pub(crate) struct SnapshotsArgs {
    /// Remove these, by their names or folders.
    #[arg(long, value_name = "SNAPSHOT", num_args = 1..)]
    remove: Vec<String>,
    /// Folder of the runs.
    #[arg(long, env = "VLAB_RUNS")]
    output_dir: Option<PathBuf>,
}

/// Lists or removes snapshots.
pub(crate) fn snapshots(args: SnapshotsArgs) -> ExitResult {
    let runs = args.output_dir.unwrap_or_else(crate::args::runs_folder);
    if !args.remove.is_empty() {
        let folders: Vec<PathBuf> = args.remove.iter().map(|name| snapshot::find(&runs, name)).collect();
        // All are looked at before the first is removed; one of another version may be removed, too.
        if let Some(folder) = folders.iter().find(|folder| !snapshot::is_one(&runs, folder)) {
            return Err(CliError::usage(format!("{} is no snapshot; `vlab snapshots` lists them", folder.display())));
        }
        for folder in folders {
            std::fs::remove_dir_all(&folder)
                .map_err(|error| CliError::inconclusive(format!("{}: {error}", folder.display())))?;
            tell(&format!("removed {}\n", folder.display()));
        }
        return Ok(exit::PASSED);
    }
    let all = snapshot::list(&runs).map_err(|error| CliError::usage(format!("{}: {error}", runs.display())))?;
    if all.is_empty() {
        tell("there are no snapshots; `vlab scenario NAME --snapshot-at MOMENT` makes one\n");
    }
    for (folder, found) in all {
        let name = called(&runs, &folder);
        match found {
            Ok(Snapshot { manifest, .. }) => {
                let after = (manifest.frozen - manifest.began) as f64 / 1e6;
                print(&format!(
                    "{name}: {} at `{}`, {after:.1} s after its start; hosts: {}; service: {}; seed {}\n",
                    manifest.called, manifest.at, manifest.hosts, manifest.service, manifest.seed
                ));
            }
            Err(why) => print(&format!("{name}: {why}\n")),
        }
    }
    Ok(exit::PASSED)
}
