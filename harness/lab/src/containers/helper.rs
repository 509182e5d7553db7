//! The program that starts containers for us, and the socket through which it reaches the engine.

use std::io::{BufRead as _, BufReader, PipeReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vlab_container_engine::Engine;
use vlab_container_engine::helper::{ContainerCall, Line, PROTOCOL, Request};

use super::ContainerError;
use crate::helper::{self, Requests, Started, Waiting};
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
    helper::find(HELPER, "VLAB_CONTAINER_HELPER").map_err(ContainerError::NoHelper)
}

/// The helper while it runs. When it is dropped, the program ends and leaves its containers as they are.
#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    requests: Requests<()>,
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
        let program = Program::new("container-helper", &executable, log)
            .args(["serve".as_ref(), socket.path.as_os_str()])
            .args([engine.address.to_string(), engine.api.clone()])
            .env("DOCKER_HOST", format!("unix://{}", socket.path.display()))
            .ledger(ledger.cloned());
        let Started { child, hello, lines, requests } = helper::start(program, HELLO)?;
        match hello.as_deref().map(serde_json::from_str) {
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
        let requests = Requests::new(requests);
        let waiting = requests.waiting();
        let reader =
            std::thread::Builder::new().name("containers-reader".to_owned()).spawn(move || read(lines, &waiting));
        reader.map_err(|error| ContainerError::Helper(format!("{}: {error}", executable.display())))?;
        Ok(Self { child, requests, socket })
    }

    /// Asks for something and does not wait for it.
    pub(super) fn tell(&self, call: ContainerCall) {
        drop(self.requests.ask(|id| Request { id, call }));
    }

    /// Asks for something and waits until it is done.
    pub(super) async fn call(&self, call: ContainerCall) -> Result<(), String> {
        let gone = || format!("the program that starts containers has ended; {}", self.last_words());
        match self.requests.ask(|id| Request { id, call }) {
            Some(answer) => answer.await.unwrap_or_else(|_| Err(gone())),
            None => Err(gone()),
        }
    }

    fn last_words(&self) -> String {
        format!("the end of its log {}: {}", self.child.log_file().display(), self.child.last_lines(3).join(" "))
    }

    /// Ends the program.
    pub(super) async fn stop(self) {
        self.requests.close();
        self.child.stop(GOODBYE).await;
        drop(self.socket);
    }
}

fn read(lines: BufReader<PipeReader>, waiting: &Waiting<()>) {
    for line in lines.lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Line::Answer { id, result }) => waiting.answer(id, result),
            _ => tracing::warn!(line, "cannot understand a line of the container helper"),
        }
    }
    waiting.end();
}
