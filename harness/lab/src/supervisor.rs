//! The supervisor: a small process beside the harness that outlives it and removes what it leaves, even after `kill -9`.
//!
//! It is the same binary with a hidden first argument ([`VERB`]), in a session of its own so that Ctrl-C in the terminal
//! does not reach it. It sleeps in `read` on a pipe whose other end only the harness holds: whatever way the harness ends,
//! the kernel closes that end. Then all that is open in the ledger goes, last made first, within [`BUDGET`].

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use serde::{Deserialize, Serialize};

use crate::cleanup::{self, RemovalOutcome};
use crate::ledger::Ledger;
use crate::proc::ProcessId;
use crate::spawn::{self, Birth};
use crate::wait;

/// First argument of the binary when it is to be the supervisor; [`supervise_main`] takes what follows.
pub const VERB: &str = "__supervise";

/// How long cleaning may take.
pub const BUDGET: Duration = Duration::from_secs(5);

/// How long a harness may take to die after it closed its end of the pipe, or after a signal that ends everything.
const DEATH: Duration = Duration::from_secs(5);

/// The last word of a harness that has left nothing.
const DONE: &str = "done\n";

/// The last word of a harness whose lab is to stay.
const KEEP: &str = "keep\n";

/// Exit code when something could not be removed (design: 6 is a leak).
const LEAK: u8 = 6;

/// Beginning of a line that says what is to be taken out of which logs when the harness dies before it has done so.
const REDACT: &str = "redact ";

/// Takes these words out of these logs.
pub type Redact = fn(&[String], &[PathBuf]);

/// What is to be taken out of which logs.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Logs {
    secrets: Vec<String>,
    logs: Vec<PathBuf>,
}

/// The harness's end of a supervisor. Keep it until everything of the run is gone, then [`Supervisor::dismiss`] it.
#[derive(Debug)]
pub struct Supervisor {
    child: Child,
}

impl Supervisor {
    /// Starts one for this process; when this returns, it watches. What it does is appended to `log`.
    ///
    /// # Errors
    /// It does not start or does not say that it watches.
    pub fn spawn(ledger: &Ledger, log: &Path) -> io::Result<Self> {
        // Not the path of the binary: that may have been rebuilt or removed since.
        Self::spawn_as(Path::new("/proc/self/exe"), ledger, log)
    }

    /// The same with another binary that calls [`supervise_main`] (for tests, whose own binary does not).
    ///
    /// # Errors
    /// As [`Supervisor::spawn`].
    pub fn spawn_as(executable: &Path, ledger: &Ledger, log: &Path) -> io::Result<Self> {
        let mut command = Command::new(executable);
        command
            .arg(VERB)
            .arg(ledger.path())
            .arg(std::process::id().to_string())
            .arg(log)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(OpenOptions::new().append(true).create(true).open(log)?)
            .current_dir("/");
        let mut child =
            spawn::spawn(command, Birth { new_session: true, death_signal: None, entry: None, expendable: false })?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            // Ends with its first line, or with its end.
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line.trim() == "watching" {
            return Ok(Self { child });
        }
        drop(child.stdin.take());
        let status = child.wait()?;
        Err(io::Error::other(format!("the supervisor does not watch: {status}; see {}", log.display())))
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From now on these words are to be taken out of these logs, should the harness die before it has done so itself. What was
    /// said before stays. They go through the pipe, which nobody else reads.
    ///
    /// # Errors
    /// The supervisor has ended.
    pub fn will_redact(&mut self, secrets: Vec<String>, logs: Vec<PathBuf>) -> io::Result<()> {
        let line = serde_json::to_string(&Logs { secrets, logs })?;
        let stdin = self.child.stdin.as_mut().ok_or_else(|| io::Error::other("the supervisor has ended"))?;
        stdin.write_all(format!("{REDACT}{line}\n").as_bytes())
    }

    /// The run is over and what it made stays: the supervisor ends and removes nothing.
    ///
    /// # Errors
    /// As [`Supervisor::dismiss`].
    pub fn keep(self) -> io::Result<()> {
        self.say(KEEP)
    }

    /// The run is over and the ledger closed: the supervisor ends.
    ///
    /// # Errors
    /// It does not end within a second, or ended before.
    pub fn dismiss(self) -> io::Result<()> {
        self.say(DONE)
    }

    fn say(mut self, word: &str) -> io::Result<()> {
        if let Some(mut stdin) = self.child.stdin.take() {
            stdin.write_all(word.as_bytes())?;
        }
        let child = &mut self.child;
        let mut status = None;
        wait::until_blocking(Instant::now() + Duration::from_secs(1), || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        });
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(io::Error::other(format!("the supervisor ended with {status}"))),
            None => Err(io::Error::other("the supervisor does not end")),
        }
    }
}

enum Event {
    /// The pipe is at its end; what came through it before.
    HarnessGone { last_words: String },
    /// A signal to us.
    Signal,
}

/// What the binary does after `__supervise`: `<ledger> <pid of the harness> <log>`. Call it before any runtime or thread
/// is started. `redact` is called for the logs of a harness that has died.
#[must_use]
pub fn supervise_main(args: &[OsString], redact: Redact) -> ExitCode {
    let [ledger, harness, log] = args else {
        eprintln!("{VERB} is for vlab itself: {VERB} <ledger> <pid> <log>");
        return ExitCode::from(2);
    };
    match supervise(Path::new(ledger), harness, Path::new(log), redact) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(LEAK),
        Err(error) => {
            eprintln!("supervisor: {error}");
            ExitCode::from(70)
        }
    }
}

/// `true`: nothing is left.
fn supervise(ledger: &Path, harness: &OsStr, log: &Path, redact: Redact) -> io::Result<bool> {
    let pid: u32 = harness
        .to_str()
        .and_then(|pid| pid.parse().ok())
        .ok_or_else(|| io::Error::other(format!("{} is not a process", harness.display())))?;
    // `None`: killed before this program was loaded. What it has written down until then goes all the same.
    let harness = ProcessId::of(pid);
    // Blocked here, in all threads to come, and waited for in one of them.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let (sender, events) = mpsc::channel();
    let from_pipe = sender.clone();
    std::thread::spawn(move || {
        let mut last_words = String::new();
        // An error is the end as well.
        let _ = io::stdin().lock().read_to_string(&mut last_words);
        let _ = from_pipe.send(Event::HarnessGone { last_words });
    });
    std::thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            // Ctrl-C is for the harness. SIGTERM is for us.
            if signal == Signal::SIGTERM && sender.send(Event::Signal).is_err() {
                break;
            }
        }
    });
    {
        // A harness that was killed a moment ago does not listen any more. That is no reason to end: the end of stdin says it, too.
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(b"watching\n").and_then(|()| stdout.flush());
    }

    let dead = || wait::until_blocking(Instant::now() + DEATH, || harness.as_ref().is_none_or(|h| !h.is_alive()));
    let note = Note { path: log.to_path_buf() };
    let mut to_redact = Logs::default();
    match events.recv() {
        Ok(Event::HarnessGone { last_words }) if last_words.ends_with(KEEP) => {
            note.write("the run is over and its lab is kept; `vlab gc` removes it");
            return Ok(true);
        }
        Ok(Event::HarnessGone { last_words }) if last_words.ends_with(DONE) && !ledger.exists() => return Ok(true),
        // A harness that says it is done and has left something: it is about to end.
        told @ (Ok(Event::HarnessGone { .. }) | Err(_)) => {
            if let Ok(Event::HarnessGone { last_words }) = told {
                to_redact = said_to_redact(&last_words);
            }
            if !dead() {
                note.write("the harness has closed its pipe to the supervisor and still runs: nothing is removed");
                return Ok(!ledger.exists());
            }
        }
        // Most likely the machine or the session ends, and the harness got the same signal. What a living harness
        // uses is not taken away from it.
        Ok(Event::Signal) => {
            if !dead() {
                note.write("SIGTERM while the harness lives: nothing is removed; `vlab gc` can do it later");
                return Ok(!ledger.exists());
            }
        }
    }
    if !ledger.exists() {
        redact(&to_redact.secrets, &to_redact.logs);
        return Ok(true);
    }
    note.write(&format!("harness {pid} is gone, removing what it left"));
    let settled = match cleanup::settle_all(ledger, "supervisor", BUDGET) {
        Ok(settled) => settled,
        Err(error) => {
            note.write(&error.to_string());
            redact(&to_redact.secrets, &to_redact.logs);
            return Ok(false);
        }
    };
    for entry in &settled {
        note.write(&entry.to_string());
    }
    // Nobody writes to them any more.
    redact(&to_redact.secrets, &to_redact.logs);
    let kept = settled.iter().filter(|entry| matches!(entry.outcome, RemovalOutcome::Kept(_))).count();
    note.write(&match kept {
        0 => "nothing is left".to_owned(),
        kept => format!("{kept} entries could not be removed; they are in {}", ledger.display()),
    });
    Ok(kept == 0)
}

/// What a harness has said that is to be taken out of its logs. Its last line may be torn.
fn said_to_redact(words: &str) -> Logs {
    let lines = words.lines().filter_map(|line| serde_json::from_str::<Logs>(line.strip_prefix(REDACT)?).ok());
    lines.fold(Logs::default(), |mut all, mut one| {
        all.secrets.append(&mut one.secrets);
        all.logs.append(&mut one.logs);
        all
    })
}

/// The log. It may lie in a directory that is being removed: then nobody reads it, and it must not come back.
struct Note {
    path: PathBuf,
}

impl Note {
    fn write(&self, text: &str) {
        let line = format!("supervisor: {text}\n");
        let _ = OpenOptions::new().append(true).open(&self.path).and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
