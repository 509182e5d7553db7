//! Looks at the machine, and not only at the ledger, for what a run has left: processes that bear its mark, folders with its
//! name, and what the container engine has with its label.
//!
//! The ledger knows what the harness made. A program under test makes things, too: a child in a session of its own is in no
//! process group that is ended, and yet has the environment of the program that started it. One that has thrown its environment
//! away is known by its parent: each program adopts the orphans among those that it has started, so that all of them are below it
//! until it is ended, and are noted then ([`Ledger::strays`](crate::ledger::Ledger::strays)).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use vlab_container_engine::Engine;

use crate::ledger::{self, MARK, Resource, Snapshot};
use crate::postgres::{OWNER_FILE, PREFIX};
use crate::proc::{self, ProcessId, Stat};
use crate::process::nix_pid;
use crate::{gc, wait};

/// Processes that were killed a moment ago may still be there; what is there after this was left.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Living processes that bear the mark of any entry of the run's ledger, but for this one.
#[must_use]
pub fn processes(run: &str) -> Vec<ProcessId> {
    let mut found = proc::with_environment_prefix(MARK, &format!("{run}:"));
    found.retain(|process| process.pid != std::process::id());
    found
}

/// Ends whatever still bears the run's mark, or is one of `strays`, once everything of it should be gone, `patience` ago; what was
/// found, in words.
pub fn end_processes(run: &str, strays: &BTreeSet<ProcessId>, patience: Duration) -> Vec<String> {
    let processes = || {
        let mut found = processes(run);
        found.extend(strays.iter().copied().filter(|process| process.is_alive()));
        found
    };
    wait::until_blocking(Instant::now() + patience, || processes().is_empty());
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    // Again and again: what is ended may have started something meanwhile.
    let gone = wait::until_blocking(Instant::now() + PATIENCE, || {
        let left = processes();
        for process in &left {
            if names.insert(*process) {
                let name = Stat::read(process.pid).map_or_else(|| "unknown".to_owned(), |stat| stat.comm);
                found.push(format!("process {} ({name})", process.pid));
            }
            let _ = signal::kill(nix_pid(process.pid), Signal::SIGKILL);
        }
        left.is_empty()
    });
    if !gone {
        found.push("a process that does not die".to_owned());
    }
    found
}

/// Folders and files of the run in `temporary` (see [`gc::temporary_folders`]) that no ledger in `registry` knows: those with its
/// name, and directories of PostgreSQL that this process made.
#[must_use]
pub fn folders(run: &str, registry: &Path, temporary: &[PathBuf]) -> Vec<PathBuf> {
    // Other runs of this process have directories, too; they are written down before they exist.
    let known = known_folders(registry);
    let of_run = |name: &str, path: &Path| name.contains(run) || (name.starts_with(PREFIX) && is_mine(path));
    let mut found = Vec::new();
    for folder in temporary {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().to_str().is_some_and(|name| of_run(name, &path)) && !known.contains(&path) {
                found.push(path);
            }
        }
    }
    // One that was made meanwhile was written down before.
    let known = known_folders(registry);
    found.retain(|path| !known.contains(path) && path.exists());
    found.sort();
    found
}

fn known_folders(registry: &Path) -> BTreeSet<PathBuf> {
    let ledgers = gc::ledgers(registry).unwrap_or_default();
    let open = ledgers.iter().filter_map(|path| Snapshot::read(path).ok()).flat_map(|snapshot| snapshot.open);
    let folder = |(_, resource)| match resource {
        Resource::Directory { path } | Resource::File { path } | Resource::Socket { path } => Some(path),
        _ => None,
    };
    open.filter_map(folder).collect()
}

/// Is it a directory of PostgreSQL that this process made?
fn is_mine(path: &Path) -> bool {
    ledger::check_is_ours(path).is_ok()
        && gc::owner_of(&path.join(OWNER_FILE)).is_some_and(|owner| ProcessId::me().is_ok_and(|me| me == owner))
}

/// Containers, networks and volumes with the run's label, in the order in which they can be removed.
///
/// # Errors
/// The engine does not answer.
pub fn labelled(run: &str, engine: &Engine) -> Result<Vec<String>, String> {
    let found = engine.labelled().map_err(|error| error.to_string())?;
    Ok(found
        .into_iter()
        .filter(|thing| thing.run == run)
        .map(|thing| format!("{} {}", thing.thing, thing.name))
        .collect())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::ledger::Ledger;

    /// A service that puts a child of its own out of reach: another session, another group, another parent.
    #[test]
    fn a_child_in_a_session_of_its_own_is_found_and_ended() {
        let run = format!("leaks-{}", std::process::id());
        let script = "setsid sh -c 'sleep 600 & exec sleep 601' </dev/null >/dev/null 2>&1 & exit 0";
        let mut service = Command::new("sh").args(["-c", script]).env(MARK, format!("{run}:7")).spawn().unwrap();
        service.wait().unwrap();
        let soon = Instant::now() + Duration::from_secs(10);
        let is_asleep = |process: &ProcessId| Stat::read(process.pid).is_some_and(|stat| stat.comm == "sleep");
        let both = || processes(&run).iter().filter(|process| is_asleep(process)).count() == 2;
        assert!(wait::until_blocking(soon, both), "{:?}", processes(&run));
        assert_eq!(processes(&format!("{run}0")), []);
        let found = end_processes(&run, &BTreeSet::new(), Duration::ZERO);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|what| what.starts_with("process ") && what.ends_with("(sleep)")), "{found:?}");
        assert_eq!(processes(&run), []);
        assert_eq!(end_processes(&run, &BTreeSet::new(), PATIENCE), [] as [&str; 0]);
    }

    #[test]
    fn folders_of_the_run_that_no_ledger_knows_are_found() {
        let parent = tempfile::tempdir().unwrap();
        let (registry, temporary) = (parent.path().join("ledgers"), parent.path().join("tmp"));
        fs::create_dir(&temporary).unwrap();
        let at = |name: &str| temporary.join(name);
        for name in
            ["vlab-service-the-run-1", "known-the-run-1", "other", &format!("{PREFIX}mine"), &format!("{PREFIX}x")]
        {
            fs::create_dir(at(name)).unwrap();
        }
        let owner = |process: ProcessId| serde_json::json!({ "owner": process, "boot": proc::boot_id() }).to_string();
        let me = ProcessId::me().unwrap();
        fs::write(at(&format!("{PREFIX}mine")).join(OWNER_FILE), owner(me)).unwrap();
        let another = ProcessId { pid: 1, start_time: 1 };
        fs::write(at(&format!("{PREFIX}x")).join(OWNER_FILE), owner(another)).unwrap();
        let ledger = Ledger::create(&registry, "another-run").unwrap();
        ledger.record(Resource::Directory { path: at("known-the-run-1") }).unwrap();
        let found = folders("the-run-1", &registry, std::slice::from_ref(&temporary));
        assert_eq!(found, [at(&format!("{PREFIX}mine")), at("vlab-service-the-run-1")]);
    }
}
