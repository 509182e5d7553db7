//! Ends a server of which only the data directory is known. Works without a runtime and without the server's help.

use std::fs;
use std::path::Path;
use std::time::Instant;

use nix::sys::signal::{self, Signal};

use crate::proc::{self, ProcessId, Stat};
use crate::process::nix_pid;
use crate::wait;

/// Kills all processes of the server in `data_dir` and removes its shared memory segment. Returns what was done; `None`
/// when nothing was there.
pub(crate) fn remove(data_dir: &Path, end: Instant) -> Result<Option<String>, String> {
    // Read before the processes die: a postmaster that ends in good order removes the file.
    let segment = shared_memory(data_dir);
    let killed = kill(data_dir, end)?;
    let segment = segment.is_some_and(remove_segment);
    Ok(match (killed, segment) {
        (0, false) => None,
        (count, false) => Some(format!("killed {count} processes")),
        (count, true) => Some(format!("killed {count} processes and removed its shared memory segment")),
    })
}

/// SIGKILL to all processes of the server in `data_dir`; returns when they are gone, and how many there were.
///
/// They are found by their working directory: every process of a server stays in its data directory. The numbers in
/// `postmaster.pid` may be somebody else's by now, and the children are not in the postmaster's process group.
pub(crate) fn kill(data_dir: &Path, end: Instant) -> Result<usize, String> {
    let servers = || processes(data_dir);
    let mut killed: Vec<ProcessId> = Vec::new();
    let gone = wait::until_blocking(end, || {
        let alive = servers();
        for process in &alive {
            // Found alive a moment ago; the kernel does not hand out the number again so soon.
            let _ = signal::kill(nix_pid(process.pid), Signal::SIGKILL);
            if !killed.contains(process) {
                killed.push(*process);
            }
        }
        alive.is_empty()
    });
    if gone {
        Ok(killed.len())
    } else {
        Err(format!("{} of its processes are still there after SIGKILL", servers().len()))
    }
}

/// Lets all processes of the server in `data_dir` stand still (returns when they do), or go on; how many there are.
pub(crate) fn pause(data_dir: &Path, still: bool, end: Instant) -> Result<usize, String> {
    let signal = if still { Signal::SIGSTOP } else { Signal::SIGCONT };
    let mut count = 0;
    // The postmaster may just be making another one.
    let done = wait::until_blocking(end, || {
        let all = processes(data_dir);
        count = all.len();
        let moving = |p: &&ProcessId| Stat::read(p.pid).is_some_and(|stat| (stat.state == 'T') != still);
        let left: Vec<&ProcessId> = all.iter().filter(moving).collect();
        for process in &left {
            let _ = signal::kill(nix_pid(process.pid), signal);
        }
        left.is_empty()
    });
    match (done, count) {
        (true, 1..) => Ok(count),
        (true, 0) => Err("it has no processes".to_owned()),
        (false, _) => Err(format!("not all of its processes could be {}", if still { "stopped" } else { "continued" })),
    }
}

/// The living processes of the server in `data_dir`. A shell that somebody opened in there is not ours to signal.
fn processes(data_dir: &Path) -> Vec<ProcessId> {
    let mut found = proc::working_in(data_dir);
    found.retain(|process| Stat::read(process.pid).is_some_and(|stat| stat.comm == "postgres"));
    found
}

/// Key and id of the System V segment by which a server guards its data directory: line 7 of `postmaster.pid`.
fn shared_memory(data_dir: &Path) -> Option<(i64, i32)> {
    let text = fs::read_to_string(data_dir.join("postmaster.pid")).ok()?;
    let (key, id) = text.lines().nth(6)?.trim().split_once(char::is_whitespace)?;
    Some((key.parse().ok()?, id.trim().parse().ok()?))
}

/// A killed server leaves its segment behind until the machine restarts. It is removed when it is still the one with that
/// key and nobody is attached.
fn remove_segment((key, id): (i64, i32)) -> bool {
    #[expect(unsafe_code, reason = "no safe wrapper of shmctl in the dependencies")]
    // SAFETY: IPC_STAT fills the structure that it is given, which is valid for writes and as large as the kernel
    // expects (libc's own type); an all-zero value of this C structure is valid. IPC_RMID takes no structure.
    unsafe {
        let mut about: nix::libc::shmid_ds = std::mem::zeroed();
        if nix::libc::shmctl(id, nix::libc::IPC_STAT, &raw mut about) != 0 {
            return false;
        }
        // The key in the file is the unsigned form of what the kernel keeps as a signed number.
        let same = (i64::from(about.shm_perm.__key) & 0xffff_ffff) == (key & 0xffff_ffff);
        same && about.shm_nattch == 0 && nix::libc::shmctl(id, nix::libc::IPC_RMID, std::ptr::null_mut()) == 0
    }
}
