//! Removes what a dead run left, entry by entry. Used by the [supervisor](crate::supervisor) at once and by
//! [`gc`](crate::gc) later; knows nothing but the ledger.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt as _};
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use serde::Serialize;
use vlab_container_engine::{Engine, Thing};

use crate::hub;
use crate::leaks;
use crate::ledger::{LedgerError, MARK, Resource, Snapshot};
use crate::network::namespace;
use crate::postgres::{drop_left_behind, remains};
use crate::proc::{self, ProcessId};
use crate::process::nix_pid;
use crate::wait;

/// What became of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "snake_case")]
pub enum RemovalOutcome {
    /// It was there and is gone now; what was done.
    Removed(String),
    /// It was gone already.
    Gone,
    /// It is still there; why.
    Kept(String),
}

/// One entry and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settled {
    /// What it is, for people.
    pub what: String,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: RemovalOutcome,
}

impl std::fmt::Display for Settled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.outcome {
            RemovalOutcome::Removed(how) if how.is_empty() => write!(f, "removed {}", self.what),
            RemovalOutcome::Removed(how) => write!(f, "removed {}: {how}", self.what),
            RemovalOutcome::Gone => write!(f, "already gone: {}", self.what),
            RemovalOutcome::Kept(why) => write!(f, "NOT removed: {}: {why}", self.what),
        }
    }
}

/// Removes all that is open in a ledger, last made first, and then the ledger when nothing had to be kept. Only for a
/// ledger whose harness is dead; a second cleaner of the same ledger waits for the first.
pub(crate) fn settle_all(ledger: &Path, by: &str, budget: Duration) -> Result<Vec<Settled>, LedgerError> {
    let end = Instant::now() + budget;
    let lock = match fs::File::open(ledger) {
        Ok(file) => file,
        // The harness (or another cleaner) has finished.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LedgerError::new(ledger, error)),
    };
    if !wait::until_blocking(end, || lock.try_lock().is_ok()) {
        return Err(LedgerError::new(ledger, "another clean-up of this run is under way"));
    }
    if !ledger.exists() {
        return Ok(Vec::new());
    }
    let snapshot = Snapshot::read(ledger)?;
    let same_boot = snapshot.header.boot == proc::boot_id();
    let mut settled = Vec::new();
    for (token, resource) in snapshot.open.iter().rev() {
        let outcome = remove(resource, &snapshot.mark(*token), same_boot, end);
        let note = match &outcome {
            RemovalOutcome::Removed(how) => Ok(how.as_str()),
            RemovalOutcome::Gone => Ok("already gone"),
            RemovalOutcome::Kept(why) => Err(why.as_str()),
        };
        // A full disk must not stop the removing of what fills it; and removing twice harms nothing.
        let _ = snapshot.settle(*token, by, note);
        settled.push(Settled { what: resource.to_string(), outcome });
    }
    // What the programs of the run have started in sessions of their own: no entry is about it.
    if same_boot {
        for what in leaks::end_processes(&snapshot.header.run, &BTreeSet::new(), Duration::ZERO) {
            let outcome = match what.starts_with("process ") {
                true => RemovalOutcome::Removed("killed; it was in no entry of the ledger".to_owned()),
                false => RemovalOutcome::Kept("does not die".to_owned()),
            };
            settled.push(Settled { what, outcome });
        }
    }
    if snapshot.strange_lines > 0 {
        let why = format!("{} lines of it were written by another version of vlab", snapshot.strange_lines);
        settled.push(Settled { what: format!("ledger {}", ledger.display()), outcome: RemovalOutcome::Kept(why) });
    }
    if !settled.iter().any(|entry| matches!(entry.outcome, RemovalOutcome::Kept(_))) {
        fs::remove_file(ledger).map_err(|error| LedgerError::new(ledger, error))?;
    }
    Ok(settled)
}

fn remove(resource: &Resource, mark: &str, same_boot: bool, end: Instant) -> RemovalOutcome {
    let result = match resource {
        Resource::Process { .. }
        | Resource::Machine { .. }
        | Resource::NetworkNamespace { .. }
        | Resource::PostgresCluster { .. }
            if !same_boot =>
        {
            Ok(None)
        }
        Resource::Process { process, pgid, .. } | Resource::Machine { process, pgid, .. } => {
            kill(*process, *pgid, mark, end)
        }
        Resource::NetworkNamespace { name } => namespace::remove_named(name),
        Resource::OnHub { kubeconfig, label } => hub::remove(kubeconfig, label, end),
        Resource::Memory { .. } => Ok(None),
        Resource::PostgresCluster { data_dir } => remains::remove(data_dir, end),
        Resource::Directory { path } => remove_directory(path),
        Resource::File { path } => remove_if(path, |kind| kind.is_file() || kind.is_symlink(), "a file"),
        Resource::Socket { path } => remove_if(path, FileTypeExt::is_socket, "a socket"),
        Resource::Database { server, name } => match std::env::var("DATABASE_URL") {
            Ok(url) => drop_left_behind(&url, server, name).map(|()| Some("dropped".to_owned())),
            Err(_) => Err(format!("set DATABASE_URL to a connection to {server}, then `vlab gc` drops it")),
        },
        Resource::Engine { engine, thing, name } => remove_from_engine(engine, thing, name),
        Resource::Unknown(_) => Err("written by another version of vlab; use that one's `vlab gc`".to_owned()),
    };
    match result {
        Ok(Some(how)) => RemovalOutcome::Removed(how),
        Ok(None) => RemovalOutcome::Gone,
        Err(why) => RemovalOutcome::Kept(why),
    }
}

/// Whoever is killed while the engine makes something for it leaves a request that the engine may still finish: what is not
/// there is looked for a little longer.
const LATE: Duration = Duration::from_millis(700);

/// Removes a thing that only its labels told of.
pub(crate) fn remove_labelled(address: &str, thing: &str, name: &str) -> RemovalOutcome {
    match remove_from_engine(address, thing, name) {
        Ok(Some(how)) => RemovalOutcome::Removed(how),
        Ok(None) => RemovalOutcome::Gone,
        Err(why) => RemovalOutcome::Kept(why),
    }
}

fn remove_from_engine(address: &str, thing: &str, name: &str) -> Result<Option<String>, String> {
    let engine = Engine::at(address.parse()?);
    let things = [Thing::Container, Thing::Network, Thing::Volume];
    let thing = things.into_iter().find(|t| t.to_string() == thing).ok_or("of another version of vlab")?;
    let late = Instant::now() + LATE;
    loop {
        match engine.remove(thing, name) {
            Ok(true) => return Ok(Some(String::new())),
            Ok(false) if Instant::now() >= late => return Ok(None),
            Ok(false) => std::thread::sleep(Duration::from_millis(100)),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Ends a process, its group, and whatever bears its mark. A process with the right number and another start time is
/// somebody else and is left alone.
pub(crate) fn kill(
    process: Option<ProcessId>,
    pgid: Option<u32>,
    mark: &str,
    end: Instant,
) -> Result<Option<String>, String> {
    let mut killed: Vec<ProcessId> = Vec::new();
    if let Some(process) = process.filter(|process| process.is_alive()) {
        // While the leader is there the number of its group cannot be another's.
        if pgid == Some(process.pid) {
            let _ = signal::killpg(nix_pid(process.pid), Signal::SIGKILL);
        }
        killed.push(process);
    }
    let gone = wait::until_blocking(end, || {
        let mut alive = proc::with_environment(MARK, mark);
        alive.extend(process.filter(|process| process.is_alive() && !alive.contains(process)));
        // The mark is inherited: this process must not end itself when a run is cleaned from within a run.
        alive.retain(|process| process.pid != std::process::id());
        for process in &alive {
            let _ = signal::kill(nix_pid(process.pid), Signal::SIGKILL);
            if !killed.contains(process) {
                killed.push(*process);
            }
        }
        alive.is_empty()
    });
    match (gone, killed.len()) {
        (false, _) => Err("does not die".to_owned()),
        (true, 0) => Ok(None),
        (true, 1) => Ok(Some("killed".to_owned())),
        (true, count) => Ok(Some(format!("killed {count} processes"))),
    }
}

fn remove_if(path: &Path, is_that: fn(&fs::FileType) -> bool, that: &str) -> Result<Option<String>, String> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !path.is_absolute() || !is_that(&meta.file_type()) {
        return Err(format!("is no longer {that}"));
    }
    fs::remove_file(path).map(|()| Some(String::new())).map_err(|error| error.to_string())
}

fn remove_directory(path: &Path) -> Result<Option<String>, String> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    refuse_precious(path)?;
    if !meta.is_dir() {
        return Err("is no longer a directory".to_owned());
    }
    let me = nix::unistd::geteuid();
    if !me.is_root() && meta.uid() != me.as_raw() {
        return Err(format!("belongs to uid {}", meta.uid()));
    }
    fs::remove_dir_all(path).map(|()| Some(String::new())).map_err(|error| error.to_string())
}

/// No run makes these. A ledger that names one is broken, and removing it would be worse than any leak.
fn refuse_precious(path: &Path) -> Result<(), String> {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain || path.components().count() < 3 {
        return Err("is not a path that a run makes".to_owned());
    }
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let precious = [home, std::env::current_dir().ok(), std::env::current_exe().ok()];
    match precious.into_iter().flatten().find(|precious| precious.starts_with(path)) {
        Some(precious) => Err(format!("holds {}: not a path that a run makes", precious.display())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rstest::rstest;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[rstest]
    #[case("/")]
    #[case("/tmp")]
    #[case("tmp/x")]
    #[case("/tmp/x/../../etc")]
    fn precious_paths_are_refused(#[case] path: &str) {
        assert!(refuse_precious(Path::new(path)).is_err(), "{path}");
    }

    #[test]
    fn the_working_directory_and_what_holds_it_are_refused() {
        let here = std::env::current_dir().unwrap();
        assert!(refuse_precious(&here).is_err());
        assert!(refuse_precious(here.parent().unwrap()).is_err());
        assert_eq!(refuse_precious(&here.join("target-of-a-run")), Ok(()));
    }

    /// The number has been handed out again: the ledger's process is dead, the one that has its number is a stranger.
    #[test]
    fn a_reused_number_is_not_killed() {
        let mut stranger = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let stranger_id = ProcessId::of(stranger.id()).unwrap();
        let ledgers = ProcessId { start_time: stranger_id.start_time - 1, ..stranger_id };
        assert_eq!(kill(Some(ledgers), Some(ledgers.pid), "no-such-run:1", soon()), Ok(None));
        assert!(stranger_id.is_alive());
        // The same entry with the right start time does end it, so the line above could have failed.
        assert_eq!(kill(Some(stranger_id), None, "no-such-run:1", soon()), Ok(Some("killed".to_owned())));
        stranger.wait().unwrap();
    }

    /// Killed between birth and "who it is" in the ledger: found by its mark, with what it has started itself.
    #[test]
    fn a_process_that_was_never_identified_is_found_by_its_mark() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & wait"]).env(MARK, "marked-run:7").spawn().unwrap();
        assert!(wait::until_blocking(soon(), || proc::with_environment(MARK, "marked-run:7").len() == 2));
        assert_eq!(kill(None, None, "marked-run:7", soon()), Ok(Some("killed 2 processes".to_owned())));
        assert_eq!(proc::with_environment(MARK, "marked-run:7"), []);
        child.wait().unwrap();
    }

    #[test]
    fn only_what_is_still_of_its_kind_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let remove = |resource: &Resource| remove(resource, "no-such-run:1", true, soon());
        assert_eq!(remove(&Resource::Socket { path: path.clone() }), RemovalOutcome::Gone);
        fs::write(&path, "not a socket").unwrap();
        assert!(matches!(remove(&Resource::Socket { path: path.clone() }), RemovalOutcome::Kept(_)));
        assert!(matches!(remove(&Resource::Directory { path: path.clone() }), RemovalOutcome::Kept(_)));
        assert!(path.exists());
        assert!(matches!(remove(&Resource::File { path: path.clone() }), RemovalOutcome::Removed(_)));
        // A link instead of the directory: what it points to is not touched.
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(matches!(remove(&Resource::Directory { path: path.clone() }), RemovalOutcome::Kept(_)));
        assert!(target.exists());
    }
}
