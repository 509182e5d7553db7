//! Finds and removes what dead runs have left when their supervisor died with them (or the machine was switched off).
//! Runs whose harness lives are not touched.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vlab_container_engine::Engine;

use crate::cleanup::{self, RemovalOutcome, Settled};
use crate::containers::{self, Fate};
use crate::ledger::{Resource, Snapshot, check_is_ours};
use crate::postgres::{OWNER_FILE, PREFIX, remains};
use crate::proc::{self, ProcessId};

/// A dead run with something left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Id of the run.
    pub run: String,
    /// Its ledger.
    pub ledger: PathBuf,
    /// What is open in it, in the order in which it would be removed.
    pub entries: Vec<String>,
}

/// A run whose harness lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alive {
    /// Id of the run.
    pub run: String,
    /// Its harness.
    pub harness: ProcessId,
    /// How much it has at the moment.
    pub entries: usize,
}

/// A thing of a container engine that has the labels of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabelledLeftover {
    /// Address of the engine.
    pub engine: String,
    /// `container`, `network` or `volume`.
    pub thing: String,
    /// Its name.
    pub name: String,
    /// Id of the run.
    pub run: String,
}

impl fmt::Display for LabelledLeftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of run {} at {}", self.thing, self.name, self.run, self.engine)
    }
}

/// What there is, and what would be removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Dead runs.
    pub leftovers: Vec<Leftover>,
    /// Private directories of PostgreSQL that are in no ledger and whose owner is dead.
    pub strays: Vec<PathBuf>,
    /// Containers, networks and volumes with the labels of dead runs that no ledger knows, in the order of removal.
    pub labelled: Vec<LabelledLeftover>,
    /// Those of which nobody here can know whether their run lives (made on another machine, or in another container).
    pub unknown: Vec<LabelledLeftover>,
    /// Living runs, not touched.
    pub alive: Vec<Alive>,
    /// Ledgers that cannot be read, and why; not touched.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// Entry by entry.
    pub settled: Vec<Settled>,
    /// Ledgers that could not be worked on, and why.
    pub failed: Vec<String>,
}

impl Plan {
    /// Is there nothing that would be removed?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leftovers.is_empty() && self.strays.is_empty() && self.labelled.is_empty()
    }
}

impl Removal {
    /// How many things are still there.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.settled.iter().filter(|entry| matches!(entry.outcome, RemovalOutcome::Kept(_))).count() + self.failed.len()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in &self.leftovers {
            writeln!(f, "run {} is dead and left:", run.run)?;
            for entry in &run.entries {
                writeln!(f, "  {entry}")?;
            }
            if run.entries.is_empty() {
                writeln!(f, "  its empty ledger {}", run.ledger.display())?;
            }
        }
        for stray in &self.strays {
            writeln!(f, "of no run: PostgreSQL directory {}", stray.display())?;
        }
        for thing in &self.labelled {
            writeln!(f, "in no ledger, its run is dead: {thing}")?;
        }
        for thing in &self.unknown {
            writeln!(f, "not touched, it cannot be told from here whether its run is still alive: {thing}")?;
        }
        for (path, why) in &self.unreadable {
            writeln!(f, "not touched, not readable: {} ({why})", path.display())?;
        }
        for run in &self.alive {
            writeln!(f, "not touched, alive: run {} (harness {}, {} entries)", run.run, run.harness.pid, run.entries)?;
        }
        if self.is_empty() {
            writeln!(f, "nothing to remove")?;
        }
        Ok(())
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.settled {
            writeln!(f, "{entry}")?;
        }
        for failed in &self.failed {
            writeln!(f, "NOT removed: {failed}")?;
        }
        match (self.settled.is_empty() && self.failed.is_empty(), self.kept()) {
            (true, _) => writeln!(f, "nothing to remove"),
            (false, 0) => writeln!(f, "nothing is left"),
            (false, kept) => writeln!(f, "{kept} could not be removed"),
        }
    }
}

/// Where private directories may lie.
#[must_use]
pub fn temporary_folders() -> Vec<PathBuf> {
    let folders: BTreeSet<PathBuf> = [std::env::temp_dir(), PathBuf::from("/tmp")].into();
    folders.into_iter().collect()
}

/// Looks through the ledgers in `registry` (see [`crate::ledger::registry`]) and the private directories in `temporary` (see
/// [`temporary_folders`]). Changes nothing.
///
/// # Errors
/// The registry cannot be read or belongs to somebody else; one that is not there is empty.
pub fn find_leftovers(registry: &Path, temporary: &[PathBuf]) -> io::Result<Plan> {
    let mut plan = Plan::default();
    // What any ledger knows is that ledger's business.
    let mut known = BTreeSet::new();
    for path in ledgers(registry)? {
        let snapshot = match Snapshot::read(&path) {
            Ok(snapshot) => snapshot,
            // Closed in this moment.
            Err(_) if !path.exists() => continue,
            Err(error) => {
                plan.unreadable.push((path, error.problem));
                continue;
            }
        };
        known.extend(snapshot.open.iter().filter_map(|(_, resource)| match resource {
            Resource::Directory { path } => Some(path.clone()),
            _ => None,
        }));
        let run = snapshot.header.run.clone();
        if snapshot.header.is_alive() {
            plan.alive.push(Alive { run, harness: snapshot.header.harness, entries: snapshot.open.len() });
        } else {
            let entries = snapshot.open.iter().rev().map(|(_, resource)| resource.to_string()).collect();
            plan.leftovers.push(Leftover { run, ledger: path, entries });
        }
    }
    let mut strays = BTreeSet::new();
    for folder in temporary {
        // A folder that cannot be read has nothing of ours.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
            if ours && !known.contains(&path) && is_stray(&path) {
                strays.insert(path);
            }
        }
    }
    plan.strays = strays.into_iter().collect();
    Ok(plan)
}

/// Adds to a plan what the container engine has with the labels of runs and what is in no ledger of `registry`. Without an
/// engine there is nothing; one that does not answer is told as a problem.
///
/// # Errors
/// The engine found does not answer.
pub fn find_labelled(plan: &mut Plan, registry: &Path, engine: &Engine) -> Result<(), String> {
    // What any ledger knows is that ledger's business.
    let mut known = BTreeSet::new();
    for path in ledgers(registry).map_err(|error| error.to_string())? {
        let Ok(snapshot) = Snapshot::read(&path) else { continue };
        known.extend(snapshot.open.into_iter().filter_map(|(_, resource)| match resource {
            Resource::Engine { name, .. } => Some(name),
            _ => None,
        }));
    }
    // An engine behind a socket runs on this machine.
    let local = matches!(engine.address, vlab_container_engine::Address::Unix(_));
    for found in engine.labelled().map_err(|error| error.to_string())? {
        if known.contains(&found.name) {
            continue;
        }
        let fate = containers::Owner::read(&found.owner).map_or(Fate::Unknown, |owner| owner.fate(local));
        let thing = LabelledLeftover {
            engine: engine.address.to_string(),
            thing: found.thing.to_string(),
            name: found.name,
            run: found.run,
        };
        match fate {
            Fate::Alive => {}
            Fate::Dead => plan.labelled.push(thing),
            Fate::Unknown => plan.unknown.push(thing),
        }
    }
    Ok(())
}

/// Does what the plan says, as far as it is still so.
#[must_use]
pub fn remove(plan: &Plan) -> Removal {
    const EACH: Duration = Duration::from_secs(5);
    let mut removal = Removal::default();
    for run in &plan.leftovers {
        // It may have been another run's ledger under the same name since: look again.
        match Snapshot::read(&run.ledger) {
            Ok(snapshot) if snapshot.header.is_alive() => {
                removal.failed.push(format!("run {}: is alive again", run.run));
                continue;
            }
            _ => {}
        }
        match cleanup::settle_all(&run.ledger, "gc", EACH) {
            Ok(settled) if settled.is_empty() => {
                let what = format!("ledger {}", run.ledger.display());
                removal.settled.push(Settled { what, outcome: RemovalOutcome::Removed(String::new()) });
            }
            Ok(settled) => removal.settled.extend(settled),
            Err(error) => removal.failed.push(error.to_string()),
        }
    }
    for thing in &plan.labelled {
        let outcome = cleanup::remove_labelled(&thing.engine, &thing.thing, &thing.name);
        removal.settled.push(Settled { what: thing.to_string(), outcome });
    }
    for stray in &plan.strays {
        let what = format!("PostgreSQL directory {}", stray.display());
        let outcome = if is_stray(stray) { remove_stray(stray, Instant::now() + EACH) } else { RemovalOutcome::Gone };
        removal.settled.push(Settled { what, outcome });
    }
    removal
}

fn remove_stray(stray: &Path, end: Instant) -> RemovalOutcome {
    match remains::remove(&stray.join("data"), end) {
        Err(why) => RemovalOutcome::Kept(why),
        Ok(server) => match fs::remove_dir_all(stray) {
            Ok(()) => RemovalOutcome::Removed(server.unwrap_or_default()),
            Err(error) => RemovalOutcome::Kept(error.to_string()),
        },
    }
}

pub(crate) fn ledgers(registry: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(registry) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", registry.display()))),
    };
    check_is_ours(registry).map_err(|why| io::Error::other(format!("{}: {why}", registry.display())))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ledger") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[derive(Deserialize)]
struct Owner {
    owner: ProcessId,
    boot: String,
}

/// Who made a private directory, by the file in it, when that was in this boot.
pub(crate) fn owner_of(file: &Path) -> Option<ProcessId> {
    let owner: Owner = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    (owner.boot == proc::boot_id()).then_some(owner.owner)
}

/// A directory of ours whose owner is dead. Without an owner it is a stray only when it is empty and not just being made.
fn is_stray(path: &Path) -> bool {
    if check_is_ours(path).is_err() {
        return false;
    }
    match fs::read(path.join(OWNER_FILE)).map(|bytes| serde_json::from_slice::<Owner>(&bytes)) {
        Ok(Ok(owner)) => owner.boot != proc::boot_id() || !owner.owner.is_alive(),
        Ok(Err(_)) | Err(_) => {
            let others =
                fs::read_dir(path).into_iter().flatten().flatten().any(|entry| entry.file_name() != OWNER_FILE);
            let age = fs::metadata(path).and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
            !others && age.is_some_and(|age| age > Duration::from_secs(60))
        }
    }
}
