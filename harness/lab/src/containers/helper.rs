//! The program that starts containers for us, and the socket through which it reaches the engine.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use tokio::sync::oneshot;
use vlab_container_engine::Engine;
use vlab_container_engine::helper::{Call, Line, PROTOCOL, Request};

use super::ContainerError;
use crate::ledger::{Ledger, Resource, Token, registry};
use crate::process::{Child, Program};

/// Name of the helper's program. It lies beside `vlab`; `VLAB_CONTAINER_HELPER` names another place.
pub const HELPER: &str = "vlab-container-helper";

/// How long the helper may take to say its first line.
const HELLO: Duration = Duration::from_secs(20);
/// How long it may take to end.
const GOODBYE: Duration = Duration::from_secs(3);

/// Where the helper is: `VLAB_CONTAINER_HELPER`, or beside this program.
///
/// # Errors
/// It is not there.
pub fn find_helper() -> Result<PathBuf, ContainerError> {
    let named = std::env::var_os("VLAB_CONTAINER_HELPER").filter(|path| !path.is_empty()).map(PathBuf::from);
    let beside = || std::env::current_exe().unwrap_or_default().with_file_name(HELPER);
    let path = named.unwrap_or_else(beside);
    if path.is_file() { Ok(path) } else { Err(ContainerError::NoHelper(path)) }
}

/// Who waits for an answer, by the number of the request; `None` when the helper has ended.
type Waiting = Mutex<Option<BTreeMap<u64, oneshot::Sender<Result<(), String>>>>>;

/// The helper while it runs. When it is dropped, the program ends and leaves its containers as they are.
#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    requests: Mutex<Option<mpsc::Sender<String>>>,
    waiting: Arc<Waiting>,
    next: AtomicU64,
    socket: Socket,
}

/// The socket, and what the ledger has of it.
#[derive(Debug)]
struct Socket {
    path: PathBuf,
    entry: Option<(Arc<Ledger>, Token)>,
}

impl Socket {
    /// A name that no other pod has, written down.
    fn new(ledger: Option<&Arc<Ledger>>) -> Result<Self, ContainerError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("engine-{}-{}.sock", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = registry().join(name);
        if let Some(folder) = path.parent() {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| ContainerError::Helper(format!("{}: {error}", folder.display())))?;
        }
        let entry = match ledger {
            Some(ledger) => Some((Arc::clone(ledger), ledger.record(Resource::Socket { path: path.clone() })?)),
            None => None,
        };
        Ok(Self { path, entry })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        if let Some((ledger, token)) = &self.entry {
            // Stays in the ledger when it cannot be written; removing what is gone harms nothing.
            let _ = ledger.release(*token);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helper {
    /// Starts the program and waits until it is ready. Blocks.
    pub(super) fn start(
        executable: Option<&Path>,
        engine: &Engine,
        log: &Path,
        ledger: Option<&Arc<Ledger>>,
    ) -> Result<Self, ContainerError> {
        let executable = executable.map_or_else(find_helper, |path| Ok(path.to_owned()))?;
        let socket = Socket::new(ledger)?;
        let no_pipe = |error: io::Error| ContainerError::Helper(format!("{}: {error}", executable.display()));
        let ((stdin, to_helper), (from_helper, stdout)) = (io::pipe().map_err(no_pipe)?, io::pipe().map_err(no_pipe)?);
        let mut program = Program::new("container-helper", &executable, log)
            .args(["serve".as_ref(), socket.path.as_os_str()])
            .args([engine.address.to_string(), engine.api.clone()])
            .env("DOCKER_HOST", format!("unix://{}", socket.path.display()))
            .ledger(ledger.cloned());
        program.stdin = Some(stdin.into());
        program.stdout = Some(stdout.into());
        let child = Child::spawn(program)?;
        let mut lines = BufReader::new(from_helper);
        match first_line(&mut lines, &child).as_deref().map(serde_json::from_str) {
            Some(Ok(Line::Hello { protocol: PROTOCOL })) => {}
            Some(Ok(Line::Hello { protocol })) => {
                return Err(ContainerError::Helper(format!(
                    "`{HELPER}` speaks version {protocol} of its protocol and vlab {PROTOCOL}: build both from the same sources"
                )));
            }
            Some(Ok(Line::Refused { why })) => return Err(ContainerError::Helper(why)),
            _ => {
                let last = child.last_lines(2).join(" ");
                return Err(ContainerError::Helper(format!("`{}` does not start: {last}", executable.display())));
            }
        }
        let waiting = Arc::new(Waiting::new(Some(BTreeMap::new())));
        let (requests, from_us) = mpsc::channel();
        let theirs = Arc::clone(&waiting);
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        thread("containers-writer").spawn(move || write(from_us, to_helper)).map_err(no_pipe)?;
        thread("containers-reader").spawn(move || read(lines, &theirs)).map_err(no_pipe)?;
        Ok(Self { child, requests: Mutex::new(Some(requests)), waiting, next: AtomicU64::new(1), socket })
    }

    /// Asks for something and does not wait for it.
    pub(super) fn tell(&self, call: Call) {
        drop(self.ask(call));
    }

    /// Asks for something and waits until it is done.
    pub(super) async fn call(&self, call: Call) -> Result<(), String> {
        let gone = || format!("the program that starts containers has ended; {}", self.last_words());
        match self.ask(call) {
            Some(answer) => answer.await.unwrap_or_else(|_| Err(gone())),
            None => Err(gone()),
        }
    }

    fn ask(&self, call: Call) -> Option<oneshot::Receiver<Result<(), String>>> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let line = serde_json::to_string(&Request { id, call }).ok()? + "\n";
        let (answered, answer) = oneshot::channel();
        lock(&self.waiting).as_mut()?.insert(id, answered);
        lock(&self.requests).as_ref()?.send(line).ok()?;
        Some(answer)
    }

    fn last_words(&self) -> String {
        format!("the end of its log {}: {}", self.child.log_file().display(), self.child.last_lines(3).join(" "))
    }

    /// Ends the program.
    pub(super) async fn stop(self) {
        lock(&self.requests).take();
        self.child.stop(GOODBYE).await;
        drop(self.socket);
    }
}

/// The helper's first line; `None` when it ended without one or says nothing for [`HELLO`]. A reader cannot be told to give
/// up, so in that case the helper is killed, which ends its output.
fn first_line(lines: &mut BufReader<PipeReader>, helper: &Child) -> Option<String> {
    std::thread::scope(|scope| {
        let (done, waiter) = mpsc::channel::<()>();
        scope.spawn(move || {
            if waiter.recv_timeout(HELLO) == Err(mpsc::RecvTimeoutError::Timeout) {
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

fn read(lines: BufReader<PipeReader>, waiting: &Waiting) {
    for line in lines.lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Line::Answer { id, result }) => {
                let waiter = lock(waiting).as_mut().and_then(|waiting| waiting.remove(&id));
                // Whoever asked may have given up.
                let _ = waiter.map(|waiter| waiter.send(result));
            }
            _ => tracing::warn!(line, "the container helper says something else"),
        }
    }
    // Those who wait are told by the end of their channel.
    lock(waiting).take();
}
