//! What Linux says about processes (`/proc`): who a process is, what it uses, and whose child it is.
//!
//! A number is not a name: pids are reused. Everywhere in this room a process is its pid **and** its start time
//! ([`ProcessId`]), so that nothing is ever signalled that only happens to have the number of something we started.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// The number.
    pub pid: u32,
    /// Clock ticks after boot at which it started (field 22 of `/proc/<pid>/stat`).
    pub start_time: u64,
}

impl ProcessId {
    /// The process that has this number now; `None` when there is none.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start_time: Stat::read(pid)?.start_time })
    }

    /// This very process.
    ///
    /// # Errors
    /// When `/proc` is not there or not readable.
    pub fn me() -> io::Result<Self> {
        Self::of(std::process::id())
            .ok_or_else(|| io::Error::other("/proc/self/stat is not readable: is /proc mounted?"))
    }

    /// Does it still run? A zombie does not: it is dead and only waits for its parent to look.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.start_time == self.start_time && !stat.is_dead())
    }
}

/// The fields of `/proc/<pid>/stat` that are used here. See proc_pid_stat(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The number of the process.
    pub pid: u32,
    /// Name of the program, at most 15 bytes.
    pub comm: String,
    /// One letter: `R` running, `S` sleeping, `Z` zombie, `X` dead …
    pub state: char,
    /// Number of the parent process.
    pub ppid: u32,
    /// Process group.
    pub pgid: u32,
    /// User-mode CPU time in clock ticks.
    pub user_ticks: u64,
    /// Kernel-mode CPU time in clock ticks.
    pub system_ticks: u64,
    /// Number of threads.
    pub threads: u64,
    /// Clock ticks after boot at which it started.
    pub start_time: u64,
    /// Resident pages.
    pub rss_pages: u64,
}

impl Stat {
    /// Reads it; `None` when there is no such process.
    #[must_use]
    pub fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses one line. The name of the program may hold spaces and parentheses: fields are counted from the last `)`.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (pid, rest) = line.split_once(" (")?;
        let (comm, rest) = rest.rsplit_once(')')?;
        // The first of these is field 3 of the manual page.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            comm: comm.to_owned(),
            state: fields.first()?.chars().next()?,
            ppid: u32::try_from(number(4)?).ok()?,
            pgid: u32::try_from(number(5)?).ok()?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            threads: number(20)?,
            start_time: number(22)?,
            rss_pages: number(24)?,
        })
    }

    /// Dead, or a zombie that nobody has waited for yet.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// All process numbers of this machine (of this pid namespace), ascending.
#[must_use]
pub fn all_pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut pids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok())).collect();
    pids.sort_unstable();
    pids
}

/// Living processes whose working directory is `directory`. Needs the right to look at them (same user, or root).
#[must_use]
pub fn working_in(directory: &Path) -> Vec<ProcessId> {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf());
    all_pids()
        .into_iter()
        .filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == directory))
        .filter_map(ProcessId::of)
        .filter(|process| process.is_alive())
        .collect()
}

/// Living processes of a process group.
#[must_use]
pub fn in_group(pgid: u32) -> Vec<ProcessId> {
    all_pids()
        .into_iter()
        .filter_map(Stat::read)
        .filter(|stat| stat.pgid == pgid && !stat.is_dead())
        .map(|stat| ProcessId { pid: stat.pid, start_time: stat.start_time })
        .collect()
}

/// A process, and all that it and its children started and that still live.
#[must_use]
pub fn with_descendants(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        next += 1;
        for thread in threads(pid) {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).unwrap_or_default();
            all.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    all
}

/// Numbers of a process's threads.
fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// How long each thread of a process could have run and had no processor since it is there, by its number (`schedstat` of proc(5)).
/// Empty where the kernel does not say.
#[must_use]
pub fn run_queue_waits(pid: u32) -> Vec<(u32, Duration)> {
    let waited = |thread: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
        let nanoseconds = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some((thread, Duration::from_nanos(nanoseconds)))
    };
    threads(pid).into_iter().filter_map(waited).collect()
}

/// Living processes whose environment at their start had `NAME=value`.
#[must_use]
pub fn with_environment(name: &str, value: &str) -> Vec<ProcessId> {
    let wanted = format!("{name}={value}").into_bytes();
    with_environ(|entry| entry == wanted)
}

/// Living processes whose environment at their start had `NAME=` with a value that begins so.
#[must_use]
pub fn with_environment_prefix(name: &str, beginning: &str) -> Vec<ProcessId> {
    let wanted = format!("{name}={beginning}").into_bytes();
    with_environ(|entry| entry.starts_with(&wanted))
}

fn with_environ(is_wanted: impl Fn(&[u8]) -> bool) -> Vec<ProcessId> {
    all_pids()
        .into_iter()
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(&is_wanted))
        })
        .filter_map(ProcessId::of)
        .filter(|process| process.is_alive())
        .collect()
}

/// Identifies this boot of the machine. Start times of another boot mean nothing.
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// What a process uses at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Resident memory now, in bytes.
    pub rss_bytes: u64,
    /// The most it has ever been (`VmHWM`), in bytes.
    pub peak_rss_bytes: u64,
    /// CPU time used since its start, all threads, user and kernel.
    pub cpu: Duration,
    /// Threads now.
    pub threads: u64,
    /// Open files now; `None` when they may not be counted (another user's process).
    pub open_files: Option<u64>,
}

impl Usage {
    /// Reads it from `/proc`.
    ///
    /// # Errors
    /// When there is no such process (or only its zombie).
    pub fn of(pid: u32) -> io::Result<Self> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, format!("process {pid} does not run"));
        let stat = Stat::read(pid).filter(|stat| !stat.is_dead()).ok_or_else(gone)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| gone())?;
        let ticks = stat.user_ticks + stat.system_ticks;
        Ok(Self {
            // The counter of `stat` may lag behind (it is kept per thread); `status` is what `ps` users expect.
            rss_bytes: status_bytes(&status, "VmRSS:").unwrap_or(stat.rss_pages * 4096),
            peak_rss_bytes: status_bytes(&status, "VmHWM:").unwrap_or(0),
            cpu: Duration::from_micros(ticks.saturating_mul(1_000_000) / ticks_per_second()),
            threads: stat.threads,
            open_files: fs::read_dir(format!("/proc/{pid}/fd"))
                .ok()
                .map(|entries| u64::try_from(entries.count()).unwrap_or(u64::MAX)),
        })
    }
}

/// A `VmXXX:   123 kB` line of `/proc/<pid>/status`, in bytes.
fn status_bytes(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Clock ticks in a second, as `/proc` counts them.
fn ticks_per_second() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|ticks| u64::try_from(ticks).ok())
        .filter(|ticks| *ticks > 0)
        .unwrap_or(100)
}

/// The program a process runs, for messages.
#[must_use]
pub fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line = "4711 (a) b (c) S 1 4711 4711 0 -1 4194560 1 2 3 4 50 60 0 0 20 0 7 0 8765 1000 250 0 0\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.pid, stat.comm.as_str(), stat.state), (4711, "a) b (c", 'S'));
        assert_eq!((stat.ppid, stat.pgid, stat.user_ticks, stat.system_ticks), (1, 4711, 50, 60));
        assert_eq!((stat.threads, stat.start_time, stat.rss_pages), (7, 8765, 250));
    }

    #[test]
    fn a_short_line_is_no_process() {
        assert_eq!(Stat::parse("4711 (x) S 1 2"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn another_start_time_is_another_process() {
        let me = ProcessId::me().unwrap();
        assert!(me.is_alive());
        assert!(!ProcessId { start_time: me.start_time + 1, ..me }.is_alive());
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while Stat::read(id.pid).is_some_and(|stat| !stat.is_dead()) {
            assert!(std::time::Instant::now() < end, "`true` does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!id.is_alive());
        assert!(Usage::of(id.pid).is_err());
        child.wait().unwrap();
    }

    #[test]
    fn usage_of_this_process_grows_with_what_it_takes() {
        let before = Usage::of(std::process::id()).unwrap();
        let block = vec![1_u8; 64 << 20];
        let after = Usage::of(std::process::id()).unwrap();
        assert!(block.iter().map(|byte| u64::from(*byte)).sum::<u64>() == 64 << 20);
        assert!(after.rss_bytes >= before.rss_bytes + (48 << 20), "{before:?} -> {after:?}");
        assert!(after.peak_rss_bytes >= after.rss_bytes / 2);
        assert!(after.threads >= 1 && after.open_files.is_some_and(|files| files >= 3));
    }

    #[test]
    fn processes_are_found_by_environment_and_by_working_directory() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env("VLAB_PROC_TEST", "this one")
            .current_dir(directory.path())
            .spawn()
            .unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        // The kernel shows the new program's environment a moment after `spawn` has returned.
        let end = std::time::Instant::now() + Duration::from_secs(10);
        assert!(crate::wait::until_blocking(end, || with_environment("VLAB_PROC_TEST", "this one") == [id]));
        assert_eq!(with_environment("VLAB_PROC_TEST", "this"), []);
        assert_eq!(working_in(directory.path()), [id]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(working_in(directory.path()), []);
    }
}
