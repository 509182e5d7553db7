//! A socket of the run through which `testcontainers` reaches the engine, whichever it is.
//!
//! `testcontainers` speaks the newest version of the engine's language and only that; engines refuse what is newer than they
//! are (Docker 20.10 of Debian 12 does). And it looks for the engine in fewer places than [`vlab_container_engine::find`]. So it is
//! given this socket as `DOCKER_HOST`; here each request gets the version that the engine has and goes on to it.
//!
//! `DOCKER_HOST` must be in the environment when the process starts: setting it later is not safe in a process with
//! threads. [`enter`] starts the program anew with it.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;
use vlab_container_engine::{Address, Engine};

use crate::ledger::{Ledger, LedgerError, Resource, Token, registry};

/// What `DOCKER_HOST` was before [`enter`]; [`vlab_container_engine::find`] reads it.
const BEFORE: &str = vlab_container_engine::BEFORE;

/// The socket of this process.
fn socket() -> PathBuf {
    registry().join(format!("engine-{}.sock", std::process::id()))
}

/// Starts this very program anew, with the same arguments, in an environment in which `testcontainers` finds the relay of
/// this process. Returns at once when that was done before. Call it before anything was made.
///
/// # Errors
/// The program cannot be started.
pub fn enter() -> io::Result<()> {
    if entered() {
        return Ok(());
    }
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_else(|| OsString::from("vlab"));
    let error = Command::new(std::env::current_exe()?)
        .arg0(name)
        .args(args)
        .env(BEFORE, std::env::var_os("DOCKER_HOST").unwrap_or_default())
        // The number of the process stays the same.
        .env("DOCKER_HOST", format!("unix://{}", socket().display()))
        .exec();
    Err(error)
}

fn entered() -> bool {
    let host = std::env::var_os("DOCKER_HOST").unwrap_or_default();
    std::env::var_os(BEFORE).is_some() && host == OsString::from(format!("unix://{}", socket().display()))
}

/// The relay while it is open.
#[derive(Debug)]
pub(super) struct Relay {
    task: JoinHandle<()>,
    path: PathBuf,
    entry: Option<(Arc<Ledger>, Token)>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The process was not started for it.
    #[error("this process was not started for containers: DOCKER_HOST does not lead to its relay")]
    NotEntered,
    /// The socket.
    #[error("the socket {path}: {error}")]
    Socket {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Relay {
    pub(super) fn open(engine: &Engine, ledger: Option<&Arc<Ledger>>) -> Result<Self, RelayError> {
        if !entered() {
            return Err(RelayError::NotEntered);
        }
        let path = socket();
        let failed = |error| RelayError::Socket { path: path.clone(), error };
        if let Some(folder) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        let entry = match ledger {
            Some(ledger) => {
                let token = ledger.record(Resource::Socket { path: path.clone() })?;
                Some((Arc::clone(ledger), token))
            }
            None => None,
        };
        // Of a process with this number that died before it could remove it.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let task = tokio::spawn(serve(listener, engine.clone()));
        Ok(Self { task, path, entry })
    }

    pub(super) fn close(self) -> Result<(), LedgerError> {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
        match &self.entry {
            Some((ledger, token)) => ledger.release(*token),
            None => Ok(()),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
        if let Some((ledger, token)) = &self.entry {
            // Stays in the ledger when it cannot be written; removing what is gone harms nothing.
            let _ = ledger.release(*token);
        }
    }
}

async fn serve(listener: UnixListener, engine: Engine) {
    let engine = Arc::new(engine);
    while let Ok((stream, _)) = listener.accept().await {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let engine = Arc::clone(&engine);
                async move { Ok::<_, Infallible>(forward(request, &engine).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type Body = Either<Incoming, Full<Bytes>>;

async fn forward(request: Request<Incoming>, engine: &Engine) -> Response<Body> {
    match forward_once(request, engine).await {
        Ok(response) => response.map(Either::Left),
        Err(problem) => {
            let text = format!("{{\"message\":{}}}", serde_json::Value::from(format!("{engine}: {problem}")));
            let mut response = Response::new(Either::Right(Full::new(Bytes::from(text))));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}

async fn forward_once(mut request: Request<Incoming>, engine: &Engine) -> Result<Response<Incoming>, String> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = with_version(path, &engine.api).parse::<Uri>().map_err(|error| error.to_string())?;
    match &engine.address {
        Address::Unix(path) => send(request, UnixStream::connect(path).await.map_err(|e| e.to_string())?).await,
        Address::Tcp(place) => send(request, TcpStream::connect(place).await.map_err(|e| e.to_string())?).await,
    }
}

async fn send<S>(request: Request<Incoming>, stream: S) -> Result<Response<Incoming>, String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    tokio::spawn(connection);
    sender.send_request(request.map(|body| body.boxed())).await.map_err(|e| e.to_string())
}

/// A path with the version of the language that the engine speaks.
fn with_version(path: &str, api: &str) -> String {
    let after = path.strip_prefix("/v").and_then(|rest| {
        let (version, after) = rest.split_at(rest.find('/')?);
        version.chars().all(|c| c.is_ascii_digit() || c == '.').then_some(after)
    });
    match after {
        Some(after) => format!("/v{api}{after}"),
        None => path.to_owned(),
    }
}

/// Is this the socket of a relay?
#[must_use]
pub fn is_relay(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|n| n.starts_with("engine-") && n.ends_with(".sock"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/v1.53/containers/json?all=1", "/v1.41/containers/json?all=1")]
    #[case("/version", "/version")]
    #[case("/volumes/v1.0/x", "/volumes/v1.0/x")]
    #[case("/volumes", "/volumes")]
    fn only_the_version_of_the_language_is_changed(#[case] path: &str, #[case] expected: &str) {
        assert_eq!(with_version(path, "1.41"), expected);
    }

    #[tokio::test]
    async fn a_process_that_was_not_started_for_it_has_none() {
        let engine = Engine::at(Address::Unix("/nowhere".into()));
        assert!(matches!(Relay::open(&engine, None), Err(RelayError::NotEntered)));
    }
}
