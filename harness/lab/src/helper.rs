//! What the programs that work for `vlab` because it does not link something (libvirt, `testcontainers`) have in common: where they
//! lie, how they are started until their first line, and who waits for which answer. They speak JSON, one object a line.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::oneshot;

use crate::process::{Child, ProcessError, Program};

/// Where a helper is: the file that the environment variable names, or beside this program. `Err` has the place where it is not.
pub(crate) fn find(name: &str, variable: &str) -> Result<PathBuf, PathBuf> {
    let named = std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let beside = || std::env::current_exe().unwrap_or_default().with_file_name(name);
    let path = named.unwrap_or_else(beside);
    if path.is_file() { Ok(path) } else { Err(path) }
}

/// A helper that was started, and what it said first.
pub(crate) struct Started {
    pub(crate) child: Child,
    /// Its first line; `None` when it ended without one or was silent for too long (it is killed then).
    pub(crate) hello: Option<String>,
    /// Its further lines.
    pub(crate) lines: BufReader<PipeReader>,
    /// Lines for it. When the last sender is gone, its stdin ends.
    pub(crate) requests: mpsc::Sender<String>,
}

/// Starts it and waits so long for its first line. Blocks.
pub(crate) fn start(mut program: Program, patience: Duration) -> Result<Started, ProcessError> {
    let (what, executable) = (program.what.clone(), program.executable.clone());
    let no_pipe = |error: io::Error| ProcessError::Start { what: what.clone(), executable: executable.clone(), error };
    let ((stdin, to_helper), (from_helper, stdout)) = (io::pipe().map_err(no_pipe)?, io::pipe().map_err(no_pipe)?);
    program.stdin = Some(stdin.into());
    program.stdout = Some(stdout.into());
    let child = Child::spawn(program)?;
    let mut lines = BufReader::new(from_helper);
    let hello = first_line(&mut lines, &child, patience);
    let (requests, from_us) = mpsc::channel();
    let writer = std::thread::Builder::new().name(format!("{what}-writer"));
    writer.spawn(move || write(from_us, to_helper)).map_err(no_pipe)?;
    Ok(Started { child, hello, lines, requests })
}

/// A reader cannot be told to give up, so a helper that says nothing is killed, which ends its output.
fn first_line(lines: &mut BufReader<PipeReader>, helper: &Child, patience: Duration) -> Option<String> {
    std::thread::scope(|scope| {
        let (done, waiter) = mpsc::channel::<()>();
        scope.spawn(move || {
            if waiter.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
                helper.signal_group(nix::sys::signal::Signal::SIGKILL);
            }
        });
        let mut line = String::new();
        let read = lines.read_line(&mut line);
        drop(done);
        read.ok().filter(|count| *count > 0).map(|_| line)
    })
}

fn write(requests: mpsc::Receiver<String>, mut to_helper: PipeWriter) {
    for line in requests {
        if to_helper.write_all(line.as_bytes()).is_err() {
            break;
        }
    }
}

type Answered<A> = oneshot::Sender<Result<A, String>>;

/// Who waits for an answer, by the number of the request; `None` when the helper has ended.
#[derive(Debug)]
pub(crate) struct Waiting<A>(Mutex<Option<BTreeMap<u64, Answered<A>>>>);

impl<A> Waiting<A> {
    fn lock(&self) -> MutexGuard<'_, Option<BTreeMap<u64, Answered<A>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The helper has answered. Whoever asked may have given up.
    pub(crate) fn answer(&self, id: u64, result: Result<A, String>) {
        let waiter = self.lock().as_mut().and_then(|waiting| waiting.remove(&id));
        let _ = waiter.map(|waiter| waiter.send(result));
    }

    /// The helper has ended. Those who wait are told by the end of their channel, and nobody waits after that.
    pub(crate) fn end(&self) {
        self.lock().take();
    }
}

/// The way to a helper.
#[derive(Debug)]
pub(crate) struct Requests<A> {
    lines: Mutex<Option<mpsc::Sender<String>>>,
    waiting: Arc<Waiting<A>>,
    next: AtomicU64,
}

impl<A> Requests<A> {
    /// Through these lines.
    pub(crate) fn new(lines: mpsc::Sender<String>) -> Self {
        let waiting = Arc::new(Waiting(Mutex::new(Some(BTreeMap::new()))));
        Self { lines: Mutex::new(Some(lines)), waiting, next: AtomicU64::new(1) }
    }

    /// For the thread that reads what the helper says.
    pub(crate) fn waiting(&self) -> Arc<Waiting<A>> {
        Arc::clone(&self.waiting)
    }

    /// Sends what `request` makes of the request's number. The answer, or `None` when the helper has ended.
    pub(crate) fn ask<R: Serialize>(
        &self,
        request: impl FnOnce(u64) -> R,
    ) -> Option<oneshot::Receiver<Result<A, String>>> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let line = serde_json::to_string(&request(id)).ok()? + "\n";
        let (answered, answer) = oneshot::channel();
        self.waiting.lock().as_mut()?.insert(id, answered);
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.send(line).ok()?;
        Some(answer)
    }

    /// Ends the helper's stdin, which ends the helper; `false` when that was done before.
    pub(crate) fn close(&self) -> bool {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_find_who_asked_and_the_end_tells_everybody() {
        let (lines, sent) = mpsc::channel();
        let requests = Requests::<u8>::new(lines);
        let (first, second) = (requests.ask(|id| id).unwrap(), requests.ask(|id| id).unwrap());
        assert_eq!([sent.recv().unwrap(), sent.recv().unwrap()], ["1\n", "2\n"]);
        requests.waiting().answer(2, Ok(20));
        assert_eq!(second.await.unwrap(), Ok(20));
        requests.waiting().answer(9, Ok(90));
        requests.waiting().end();
        assert!(first.await.is_err(), "nobody answers any more");
        assert!(requests.ask(|id| id).is_none());
        assert!(requests.close() && !requests.close());
        assert!(sent.recv().is_err(), "its stdin has ended");
    }

    #[test]
    fn a_helper_that_is_silent_is_killed_and_one_that_ends_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let shell =
            |name: &str, script: &str| Program::new(name, "/bin/sh", dir.path().join(name)).args(["-c", script]);
        let silent = start(shell("silent", "exec sleep 1000"), Duration::from_millis(50)).unwrap();
        assert_eq!(silent.hello, None);
        let gone = start(shell("gone", "exit 3"), Duration::from_secs(60)).unwrap();
        assert_eq!(gone.hello, None);
        let polite = start(shell("polite", "echo hello; read line; echo \"$line\""), Duration::from_secs(60)).unwrap();
        assert_eq!(polite.hello.as_deref(), Some("hello\n"));
        polite.requests.send("and back\n".to_owned()).unwrap();
        assert_eq!(polite.lines.lines().next().unwrap().unwrap(), "and back");
    }
}
