//! Which containers there are: a note for each, with the process that it is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Where containers are noted. `VLAB_NODE_RUN` names another place.
const RUN: &str = "/run/vlab/containers";
/// How long a container that is stopped has until it is killed, when nobody says.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at a process that is to end.
const POLL: Duration = Duration::from_millis(20);

/// A container.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Container {
    pid: u32,
    /// When the process started, in the kernel's ticks: a number that was given again is not the same process.
    started: u64,
    image: String,
    /// Its name stays taken when it has ended, until somebody removes it.
    kept: bool,
}

impl Container {
    fn runs(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Sends a signal to all that it started: it leads a process group of its own.
    fn signal(&self, signal: Signal) -> io::Result<()> {
        let Ok(pid) = i32::try_from(self.pid) else { return Ok(()) };
        match killpg(Pid::from_raw(pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Asks it to end, and kills it when it has not ended in time.
    fn stop(&self, patience: Duration) -> io::Result<()> {
        if !self.runs() {
            return Ok(());
        }
        if !patience.is_zero() {
            self.signal(Signal::SIGTERM)?;
            if self.ends_within(patience) {
                return Ok(());
            }
        }
        self.signal(Signal::SIGKILL)?;
        self.ends_within(PATIENCE);
        Ok(())
    }

    /// Has it ended within that time?
    fn ends_within(&self, time: Duration) -> bool {
        let begin = Instant::now();
        while self.runs() {
            if begin.elapsed() >= time {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }
}

fn folder() -> PathBuf {
    std::env::var_os("VLAB_NODE_RUN").map_or_else(|| RUN.into(), PathBuf::from)
}

/// When the process with that number started; `None` when there is none.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // A zombie does nothing any more. Start time is the 22nd field, of which two are before the parenthesis.
    if state == "Z" { None } else { fields.nth(18)?.parse().ok() }
}

/// Notes are written and removed by whom holds this only: between a look at a note and what is done because of it, another
/// process may otherwise have put its own there.
fn lock(folder: &Path) -> io::Result<fs::File> {
    fs::create_dir_all(folder)?;
    let lock = fs::File::create(folder.join(".lock"))?;
    lock.lock()?;
    Ok(lock)
}

/// The container of that name, when it runs, or ended and is kept.
fn noted(folder: &Path, name: &str) -> Option<Container> {
    let container: Container = serde_json::from_slice(&fs::read(folder.join(name)).ok()?).ok()?;
    (container.kept || container.runs()).then_some(container)
}

/// Containers by name: those that run, and those that ended and are kept.
fn all(folder: &Path) -> BTreeMap<String, Container> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok());
    let names = names.filter(|name| !name.starts_with('.'));
    names.filter_map(|name| noted(folder, &name).map(|container| (name, container))).collect()
}

/// Names of containers: of those that run, or of all.
pub(super) fn names(ended_too: bool) -> Vec<String> {
    all(&folder()).into_iter().filter(|(_, c)| ended_too || c.runs()).map(|(name, _)| name).collect()
}

/// Takes a name for this process. Two that ask for it at the same moment do not both get it: the service asks for the installer
/// again and again until it has started. `false`: somebody has it.
pub(super) fn take_name(name: &str, image: &str) -> io::Result<bool> {
    take(&folder(), name, image)
}

fn take(folder: &Path, name: &str, image: &str) -> io::Result<bool> {
    let _lock = lock(folder)?;
    if noted(folder, name).is_some() {
        return Ok(false);
    }
    note(folder, name, image, std::process::id(), false)?;
    Ok(true)
}

/// The name is that process's from now on, and, when it is kept, stays so after its end.
pub(super) fn pass_name(name: &str, image: &str, pid: u32, kept: bool) -> io::Result<()> {
    pass(&folder(), name, image, pid, kept)
}

fn pass(folder: &Path, name: &str, image: &str, pid: u32, kept: bool) -> io::Result<()> {
    let _lock = lock(folder)?;
    note(folder, name, image, pid, kept)
}

fn note(folder: &Path, name: &str, image: &str, pid: u32, kept: bool) -> io::Result<()> {
    let container = Container { pid, started: started(pid).unwrap_or(0), image: image.to_owned(), kept };
    // Whole or not at all: who only looks does so without the lock.
    let beside = folder.join(format!(".{name}"));
    fs::write(&beside, serde_json::to_vec(&container).map_err(io::Error::other)?)?;
    fs::rename(beside, folder.join(name))
}

/// Stops a container: asks its process to end, and kills it when it has not ended in time. Fine when there is none.
///
/// # Errors
/// When the process is there and cannot be signalled.
pub(crate) fn stop(name: &str, patience: Duration) -> io::Result<()> {
    match noted(&folder(), name) {
        Some(container) => container.stop(patience),
        None => Ok(()),
    }
}

/// Sends a signal to the program of a container, and to what it started.
///
/// # Errors
/// No container of that name runs, or it cannot be signalled.
pub(super) fn signal(name: &str, signal: Signal) -> io::Result<()> {
    match noted(&folder(), name).filter(Container::runs) {
        Some(container) => container.signal(signal),
        None => Err(io::Error::other("no such container")),
    }
}

/// Stops a container and gives its name back.
///
/// # Errors
/// As [`stop`].
pub(super) fn remove(name: &str) -> io::Result<()> {
    give_back(&folder(), name)
}

fn give_back(folder: &Path, name: &str) -> io::Result<()> {
    let Some(container) = noted(folder, name) else { return Ok(()) };
    container.stop(PATIENCE)?;
    let _lock = lock(folder)?;
    // Its name may have been taken as soon as it had ended.
    match noted(folder, name) {
        Some(now) if now != container => Ok(()),
        _ => match fs::remove_file(folder.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_ended_is_no_container() {
        assert!(started(std::process::id()).is_some());
        assert_eq!(started(u32::MAX), None);
    }

    /// A shell that runs the script; it says a line when it has come so far that a signal finds it as it is meant to be.
    fn sleeper(script: &str) -> (Child, Container) {
        let mut command = Command::new("sh");
        let command = command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.process_group(0).spawn().unwrap();
        let pid = child.id();
        let container = Container { pid, started: started(pid).unwrap(), image: String::new(), kept: true };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        (child, container)
    }

    /// Who has a name passes it to the program that it started, and ends: who asks just then must not see the first and remove
    /// the note of the second.
    #[test]
    fn a_name_is_passed_while_nobody_else_asks_for_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path();
        let asking = lock(folder).unwrap();
        std::thread::scope(|threads| {
            let (tell, told) = std::sync::mpsc::channel();
            threads.spawn(move || tell.send(pass(folder, "installer", "", std::process::id(), false)));
            told.recv_timeout(Duration::from_millis(100)).unwrap_err();
            assert_eq!(noted(folder, "installer"), None);
            drop(asking);
            told.recv().unwrap().unwrap();
        });
        assert!(!take(folder, "installer", "").unwrap());
    }

    #[test]
    fn the_name_of_one_that_ended_can_be_taken_and_is_not_given_back_for_it() {
        let place = tempfile::tempdir().unwrap();
        let (mut first, container) = sleeper("echo ready; sleep 60");
        pass(place.path(), "installer", "", first.id(), false).unwrap();
        assert!(!take(place.path(), "installer", "").unwrap());
        container.stop(PATIENCE).unwrap();
        first.wait().unwrap();
        assert!(all(place.path()).is_empty());
        assert!(take(place.path(), "installer", "").unwrap());
        assert_eq!(all(place.path()).into_keys().collect::<Vec<_>>(), ["installer"]);
        let (mut second, _) = sleeper("echo ready; sleep 60");
        pass(place.path(), "other", "", second.id(), true).unwrap();
        give_back(place.path(), "other").unwrap();
        second.wait().unwrap();
        assert_eq!(all(place.path()).into_keys().collect::<Vec<_>>(), ["installer"]);
    }

    #[test]
    fn who_does_not_end_in_time_is_killed() {
        let (mut polite, container) = sleeper("echo ready; sleep 60");
        container.signal(Signal::SIGTERM).unwrap();
        assert!(container.ends_within(PATIENCE));
        polite.wait().unwrap();
        let (mut deaf, container) = sleeper("trap '' TERM; echo ready; while :; do sleep 1; done");
        container.signal(Signal::SIGTERM).unwrap();
        assert!(!container.ends_within(Duration::from_millis(100)));
        container.signal(Signal::SIGKILL).unwrap();
        assert!(container.ends_within(PATIENCE));
        deaf.wait().unwrap();
        container.signal(Signal::SIGKILL).unwrap();
    }
}
