//! Programs of a run (the service, PostgreSQL): started in a process group of their own, logged to a file, ended with
//! all that they started, and in the ledger all the while.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::future::Future;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use tokio::sync::watch;

use crate::ledger::{Ledger, LedgerError, MARK, Resource, Token};
use crate::network::namespace::Namespace;
use crate::proc::{self, ProcessId, Stat};
use crate::spawn::{self, Birth};
use crate::wait::{self, ReadyError};

/// A program to start.
#[derive(Debug)]
pub struct Program {
    /// For people and for the ledger: `service`, `postgres` …
    pub what: String,
    /// The executable.
    pub executable: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables on top of ours.
    pub env: Vec<(OsString, OsString)>,
    /// Environment variables of ours that it must not see.
    pub env_remove: Vec<OsString>,
    /// Its working directory; ours when `None`.
    pub directory: Option<PathBuf>,
    /// User and group to run as (needs root); ours when `None`.
    pub user: Option<(u32, u32)>,
    /// stdout and stderr are appended here.
    pub log_file: PathBuf,
    /// What the kernel sends it when the harness dies without a word. `None` for programs that must outlive it.
    pub death_signal: Option<Signal>,
    /// Where to write it down.
    pub ledger: Option<Arc<Ledger>>,
    /// The network namespace that it runs in; ours when `None`.
    pub namespace: Option<Arc<Namespace>>,
    /// Where memory ends, the kernel ends it, and what it starts, before the others of the run: the harness and the service under
    /// test are not the ones to go when a machine takes more than there is.
    pub expendable: bool,
    /// Its stdin; nothing when `None`.
    pub stdin: Option<OwnedFd>,
    /// Its stdout; the log file when `None`.
    pub stdout: Option<OwnedFd>,
}

impl Program {
    /// A program without arguments that dies with the harness.
    #[must_use]
    pub fn new(what: &str, executable: impl Into<PathBuf>, log_file: impl Into<PathBuf>) -> Self {
        Self {
            what: what.to_owned(),
            executable: executable.into(),
            args: Vec::new(),
            env: Vec::new(),
            env_remove: Vec::new(),
            directory: None,
            user: None,
            log_file: log_file.into(),
            death_signal: Some(Signal::SIGKILL),
            ledger: None,
            namespace: None,
            expendable: false,
            stdin: None,
            stdout: None,
        }
    }

    /// With these arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = A>, A: Into<OsString>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// With this environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// In this network namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: Option<Arc<Namespace>>) -> Self {
        self.namespace = namespace;
        self
    }

    /// Written down in this ledger.
    #[must_use]
    pub fn ledger(mut self, ledger: Option<Arc<Ledger>>) -> Self {
        self.ledger = ledger;
        self
    }
}

/// What can go wrong with a program.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Its log file.
    #[error("{what}: cannot write its log file {path}: {error}")]
    Log {
        /// Which program.
        what: String,
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It cannot be started at all.
    #[error("{what}: cannot start {executable}: {error}")]
    Start {
        /// Which program.
        what: String,
        /// The executable.
        executable: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It did not become ready.
    #[error(transparent)]
    NotReady(#[from] ReadyError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// A running program. When the last owner drops it, it is killed with its process group, unless its ledger is to be kept.
#[derive(Debug)]
pub struct Child {
    what: String,
    log_file: PathBuf,
    id: ProcessId,
    state: Arc<Mutex<ProcessState>>,
    ended: watch::Receiver<Option<ExitStatus>>,
    entry: Option<(Arc<Ledger>, Token)>,
}

/// How a program ended that was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Its exit status.
    pub status: ExitStatus,
    /// It did not end by itself in its time.
    pub killed: bool,
}

#[derive(Debug)]
struct ProcessState {
    /// Until this is set the number is ours even if the process is dead: nobody has waited for it yet, so signals to it
    /// cannot hit anybody else.
    status: Option<ExitStatus>,
}

impl Child {
    /// Starts it: first the ledger, then the log file, then the program.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub fn spawn(program: Program) -> Result<Self, ProcessError> {
        let Program { what, executable, args, env, env_remove, directory, user, .. } = program;
        let Program { log_file, death_signal, ledger, namespace, expendable, stdin, stdout, .. } = program;
        let log_error = |error| ProcessError::Log { what: what.clone(), path: log_file.clone(), error };
        let log = OpenOptions::new().append(true).create(true).open(&log_file).map_err(log_error)?;
        let log_twin = log.try_clone().map_err(log_error)?;

        let mut command = Command::new(&executable);
        command.args(&args).stderr(log_twin);
        command
            .stdin(stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(stdout.map_or_else(|| log.into(), Stdio::from));
        for name in &env_remove {
            command.env_remove(name);
        }
        command.envs(env);
        if let Some(directory) = &directory {
            command.current_dir(directory);
        }
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        let entry = match ledger {
            Some(ledger) => {
                let token = ledger.record(Resource::Process { what: what.clone(), process: None, pgid: None })?;
                command.env(MARK, ledger.mark(token));
                Some((ledger, token))
            }
            None => None,
        };
        let death_signal = death_signal.filter(|_| !entry.as_ref().is_some_and(|(ledger, _)| ledger.is_kept()));
        let entry_point = namespace.as_ref().map(|namespace| namespace.entry());
        let birth = Birth { new_session: false, death_signal, entry: entry_point, expendable };
        let spawned = spawn::spawn(command, birth);
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                if let Some((ledger, token)) = entry {
                    ledger.release(token)?;
                }
                return Err(ProcessError::Start { what, executable, error });
            }
        };
        let pid = child.id();
        // It is our child and nobody has waited for it: its entry in /proc is there even if it is already dead.
        let id = ProcessId::of(pid).unwrap_or(ProcessId { pid, start_time: 0 });

        let state = Arc::new(Mutex::new(ProcessState { status: None }));
        let (announce, ended) = watch::channel(None);
        let theirs = Arc::clone(&state);
        let waiter = std::thread::Builder::new().name(format!("wait-{what}")).spawn(move || {
            // First only look (the number stays taken), then end the rest of its group, and only then let go of the
            // number: a group whose leader is gone could otherwise be somebody else's.
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            while waitid(Id::Pid(nix_pid(pid)), flags) == Err(nix::errno::Errno::EINTR) {}
            // A process dies a moment after its SIGKILL: whoever learns that the program has ended finds nobody of its
            // group. What hangs in the kernel is not waited for without end.
            wait::until_blocking(Instant::now() + Duration::from_secs(2), || {
                let _ = signal::killpg(nix_pid(pid), Signal::SIGKILL);
                proc::in_group(pid).is_empty()
            });
            let mut state = theirs.lock().unwrap_or_else(PoisonError::into_inner);
            let status = child.wait().unwrap_or_default();
            state.status = Some(status);
            drop(state);
            let _ = announce.send(Some(status));
        });
        let this = Self { what, log_file, id, state, ended, entry };
        if let Err(error) = waiter {
            let _ = signal::killpg(nix_pid(pid), Signal::SIGKILL);
            return Err(ProcessError::Start { what: this.what.clone(), executable, error });
        }
        if let Some((ledger, token)) = &this.entry {
            // Dropping `this` on failure kills what cannot be written down.
            ledger.identify(*token, id, pid)?;
        }
        Ok(this)
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.id.pid
    }

    /// Who it is.
    #[must_use]
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Its log file.
    #[must_use]
    pub fn log_file(&self) -> &Path {
        &self.log_file
    }

    /// How it ended; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).status
    }

    /// Notes what it has started outside of its group, which nobody finds once it has ended.
    fn note_strays(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((ledger, _)) = self.entry.as_ref().filter(|_| state.status.is_none()) else { return };
        let below = proc::with_descendants(self.id.pid).into_iter().filter_map(Stat::read);
        let outside = below.filter(|stat| stat.pid != self.id.pid && stat.pgid != self.id.pid && !stat.is_dead());
        ledger.note_strays(outside.map(|stat| ProcessId { pid: stat.pid, start_time: stat.start_time }));
    }

    /// Sends a signal to the program (not to its group). `false` when it has already ended.
    pub fn signal(&self, signal: Signal) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.status.is_none() && signal::kill(nix_pid(self.id.pid), signal).is_ok()
    }

    /// Sends a signal to the program and to all of its process group. `false` when it has already ended.
    pub fn signal_group(&self, signal: Signal) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.status.is_none() && signal::killpg(nix_pid(self.id.pid), signal).is_ok()
    }

    /// Lets it and its process group stand still (SIGSTOP, until it is seen to stand), or go on (SIGCONT). `false` when it has
    /// ended, or does not stand still within a moment.
    pub async fn pause(&self, still: bool) -> bool {
        let sent = self.signal_group(if still { Signal::SIGSTOP } else { Signal::SIGCONT });
        if !still || !sent {
            return sent;
        }
        let (pid, end) = (self.pid(), Instant::now() + Duration::from_secs(2));
        let stands = move || wait::until_blocking(end, || Stat::read(pid).is_some_and(|stat| stat.state == 'T'));
        tokio::task::spawn_blocking(stands).await.unwrap_or(false)
    }

    /// What it is, for messages.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Waits until it has ended.
    pub async fn wait(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(status) => status.unwrap_or_default(),
            Err(_) => self.ended().unwrap_or_default(),
        }
    }

    /// SIGTERM, and after `grace` SIGKILL to the whole group; returns when it has ended.
    pub async fn stop(&self, grace: Duration) -> Stopped {
        self.note_strays();
        self.signal(Signal::SIGTERM);
        match tokio::time::timeout(grace, self.wait()).await {
            Ok(status) => Stopped { status, killed: false },
            Err(_) => Stopped { status: self.kill9().await, killed: true },
        }
    }

    /// SIGKILL to the program and its group; returns when it has ended.
    pub async fn kill9(&self) -> ExitStatus {
        self.note_strays();
        self.signal_group(Signal::SIGKILL);
        self.wait().await
    }

    /// Waits with [`wait::until`] for the program to become ready, and no longer than it lives. The error holds what was
    /// seen last and the last 50 lines of the log.
    ///
    /// # Errors
    /// It ended, or the budget is spent.
    pub async fn wait_ready<T, Check, Look>(
        &self,
        what: &str,
        budget: Duration,
        interval: Duration,
        mut check: Check,
    ) -> Result<T, ProcessError>
    where
        Check: FnMut() -> Look,
        Look: Future<Output = Result<Option<T>, String>>,
    {
        let looking = wait::until(what, budget, interval, || {
            let look = check();
            async move {
                match self.ended() {
                    Some(status) => Ok(Some(Err(status))),
                    None => look.await.map(|found| found.map(Ok)),
                }
            }
        });
        let (log_file, log) = (self.log_file.clone(), || self.last_lines(50).join("\n"));
        match looking.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(status)) => {
                let (end, waited) = (format!("{} ended ({status})", self.what), what.to_owned());
                Err(ReadyError::Ended { end, waited, log_file, log: log() }.into())
            }
            Err(timeout) => Err(ReadyError::TimedOut { timeout, log_file, log: log() }.into()),
        }
    }

    /// Crosses it out of the ledger if it has ended, without waiting for its last owner.
    pub(crate) fn cross_out(&self) -> Result<(), LedgerError> {
        match &self.entry {
            Some((ledger, token)) if self.ended().is_some() => ledger.release(*token),
            _ => Ok(()),
        }
    }

    /// The last lines of its log.
    #[must_use]
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        last_lines(&self.log_file, count)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.entry.as_ref().is_some_and(|(ledger, _)| ledger.is_kept()) {
            return;
        }
        self.note_strays();
        self.signal_group(Signal::SIGKILL);
        // SIGKILL needs no cooperation; what takes longer hangs in the kernel and stays in the ledger.
        let gone = wait::until_blocking(Instant::now() + Duration::from_secs(2), || self.ended().is_some());
        if gone
            && let Some((ledger, token)) = &self.entry
            && let Err(error) = ledger.release(*token)
        {
            tracing::warn!(%error, what = %self.what, "the program is gone but stays in the ledger");
        }
    }
}

/// Process numbers are positive and fit: Linux goes to 2^22.
pub(crate) fn nix_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}

/// The last `count` lines of a file, reading at most its last 64 KiB. A file that is not there has none.
#[must_use]
pub fn last_lines(path: &Path, count: usize) -> Vec<String> {
    let tail = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = fs::metadata(path)?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(64 * 1024)))?;
        let mut bytes = Vec::new();
        file.take(64 * 1024).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = tail().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}
