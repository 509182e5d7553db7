//! The service in real time: sockets, the clock and the store around the core.
//!
//! Connections turn HTTP into [`vlab_api::http::Request`]s and hand them to one task, the engine, which owns the core and the
//! store. The engine takes whatever is waiting, lets the core answer all of it, stores all changes in one transaction, and
//! only then answers: thousands of polls a second are a few dozen commits.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use vlab_api::Timestamp;

use crate::engine::{Engine, Job, Logic, Served, ServedConfig, Ways};
use crate::hub::{self, HubOptions};
use crate::images::Images;
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};
use crate::{connection, port};
use vlab_image_service::catalog::OsImage;
use vlab_image_service::service::{ImageService, OpenError};
use vlab_model::lease::{LOST, NAME, NAMESPACE};
use vlab_service::CoreConfig;

/// Where to listen.
#[derive(Debug)]
pub enum Listen {
    /// Bind this address; port 0 takes a free one.
    Address(SocketAddr),
    /// A listener that the caller bound already, and whose port it therefore knows.
    Bound(StdListener),
}

/// What the HTTP side allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest body of a request in bytes; a larger one is answered 413.
    pub body_bytes: usize,
    /// The same of requests that bring files or what a host has found: logs, manifests, replies to steps.
    pub upload_bytes: usize,
    /// Bytes of bodies that are in memory at a time, of all connections; what does not fit is answered 503.
    pub buffered_bytes: usize,
    /// Connections at a time; more wait until one ends.
    pub connections: usize,
    /// How long a client may take from the first byte of a request to the end of its headers. The real service's
    /// ReadHeaderTimeout. An idle connection between requests is not bound by it.
    pub header_timeout: Duration,
    /// How long a client may pause within a body.
    pub body_pause: Duration,
    /// How long a body may take from its first byte to its last.
    pub body_time: Duration,
    /// The same of requests that bring files.
    pub upload_time: Duration,
    /// How long a client may take nothing of an answer.
    pub write_pause: Duration,
    /// How long requests that are under way may take when the service stops.
    pub grace: Duration,
    /// Requests that may wait for the engine; more wait in their connections.
    pub queue: usize,
    /// Requests that are handled in one batch at most.
    pub batch: usize,
    /// A request that has waited for longer than this, while as many as a batch has room for wait, is answered 429 without being
    /// looked at. The real service has no such limit.
    pub max_wait: Duration,
    /// `/health` answers 500 when the monitors were due but did not run for this long. `LIVENESS_VALIDATION_TIMEOUT`.
    pub liveness: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1024 * 1024,
            upload_bytes: 100 * 1024 * 1024,
            buffered_bytes: 512 * 1024 * 1024,
            connections: 65_536,
            header_timeout: Duration::from_secs(3),
            body_pause: Duration::from_secs(30),
            body_time: Duration::from_secs(60),
            upload_time: Duration::from_secs(600),
            write_pause: Duration::from_secs(60),
            grace: Duration::from_secs(5),
            queue: 4096,
            batch: 1024,
            max_wait: Duration::from_secs(10),
            liveness: Duration::from_secs(300),
        }
    }
}

/// How to run the service.
#[derive(Debug)]
pub struct ServeOptions<S> {
    /// Where to listen.
    pub listen: Listen,
    /// Where the state is kept.
    pub store: S,
    /// The core's configuration. An empty `base_url` becomes the URL of the address that was bound.
    pub core: CoreConfig,
    /// Base images of the image service, which is served on the same address. None: its paths are answered with what to
    /// configure.
    pub images: Vec<OsImage>,
    /// The API server that the service's controllers work on; none: it has no Kubernetes door.
    pub hub: Option<HubOptions>,
    /// Limits of the HTTP side.
    pub limits: Limits,
    /// Told the address once the service listens and its state is loaded: a caller that waits for it need not poll.
    pub ready: Option<oneshot::Sender<SocketAddr>>,
}

impl<S> ServeOptions<S> {
    /// The defaults over a store; what the core's settings say about the HTTP side counts there.
    pub fn new(listen: Listen, store: S, core: CoreConfig) -> Self {
        let limits = Limits { liveness: core.settings.liveness_validation_timeout, ..Limits::default() };
        Self { listen, store, core, images: Vec::new(), hub: None, limits, ready: None }
    }
}

/// Why the service does not run (any more).
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else listens there.
    #[error("port {port} of {address} is taken{}. Stop that program or choose another port", by(.holder))]
    PortTaken {
        /// Local address to listen on.
        address: std::net::IpAddr,
        /// Port.
        port: u16,
        /// Process that listens there, when `/proc` tells.
        holder: Option<Holder>,
    },
    /// The address cannot be listened on for another reason.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The state cannot be loaded.
    #[error("cannot load the service's state: {0}")]
    Store(#[from] StoreError),
    /// A base image cannot be used.
    #[error("{0}")]
    Image(#[from] OpenError),
    /// It was the one whose controllers worked, and is not any more.
    #[error("{LOST}: the lease {NAME} in the namespace {NAMESPACE} could not be renewed in time")]
    LeaseLost,
    /// A task of the service ended in a panic; this is a defect of the service.
    #[error("internal error: {0}")]
    Internal(String),
}

/// A process that holds a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its pid.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

fn by(holder: &Option<Holder>) -> String {
    holder.as_ref().map(|h| format!(" by process {} ({})", h.pid, h.name)).unwrap_or_default()
}

/// Runs the service until `shutdown` is cancelled: stops accepting, lets requests that are under way finish within
/// [`Limits::grace`], and returns.
///
/// # Errors
/// [`ServeError`]; a lost database is not an error but is waited for (requests are answered 500 meanwhile), unless it comes back
/// as one that this program cannot use.
pub async fn serve<S: Store>(options: ServeOptions<S>, shutdown: CancellationToken) -> Result<(), ServeError> {
    let ServeOptions { listen, store, mut core, images, hub, limits, ready } = options;
    let (listener, address) = bind(listen)?;
    // An InfraEnv is not done without the URL of its image, whether or not somebody will fetch it.
    settle_urls(&mut core, address, !images.is_empty() || hub.is_some());
    let images = ImageService::open(&images, &core.image_service_url)?;
    let config = ServedConfig { core, door: hub.as_ref().map(HubOptions::door) };
    let front = Front { listener, address, images, hub, limits, ready, from: Timestamp::now() };
    serve_logic::<Served, S>(front, store, config, shutdown).await
}

/// Where nobody said where the service, and its images, are reached: where it listens.
pub(crate) fn settle_urls(core: &mut CoreConfig, address: SocketAddr, has_images: bool) {
    if core.base_url.is_empty() {
        core.base_url = format!("http://{address}");
    }
    if has_images && core.image_service_url.is_empty() {
        // Machines reach it where they reach the service.
        let seen = core.settings.service_base_url.as_str();
        core.image_service_url = if seen.is_empty() { core.base_url.clone() } else { seen.to_owned() };
    }
}

/// What a service needs beside its logic and its store.
pub(crate) struct Front {
    pub(crate) listener: TcpListener,
    /// Where that listens.
    pub(crate) address: SocketAddr,
    pub(crate) images: ImageService,
    /// The API server of its controllers.
    pub(crate) hub: Option<HubOptions>,
    pub(crate) limits: Limits,
    pub(crate) ready: Option<oneshot::Sender<SocketAddr>>,
    /// Before this it only answers: its monitors do nothing.
    pub(crate) from: Timestamp,
}

pub(crate) async fn serve_logic<L: Logic, S: Store>(
    front: Front,
    mut store: S,
    config: L::Config,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let Front { listener, address, images, hub, limits, ready, from } = front;
    let snapshot = store.load().await?;
    let limits = Arc::new(limits);
    let metrics = Arc::new(Metrics::new());
    let (jobs, queue) = mpsc::channel(limits.queue.max(1));
    let (asks, asked) = mpsc::unbounded_channel();
    let ways = Ways { queue, asks: hub.is_some().then_some(asks) };
    let engine = Engine::<L, S>::new(config, store, snapshot, ways, limits.clone(), metrics.clone()).acting_from(from);
    // The engine ends when the last sender of jobs is gone, which is after the last connection.
    let mut engine = tokio::spawn(engine.run());
    // Both end when the engine is gone, and do not keep it.
    let mut lease = match hub.clone() {
        Some(hub) => {
            let jobs = jobs.downgrade();
            let leads = move || async move {
                if let Some(jobs) = jobs.upgrade() {
                    // Its receiver ends with the service.
                    let _ = jobs.send(Job::Leads).await;
                }
            };
            AbortOnDropHandle::new(tokio::spawn(hub::keep_lease(hub, leads)))
        }
        None => AbortOnDropHandle::new(tokio::spawn(std::future::pending())),
    };
    let controllers = hub.map(|hub| {
        let jobs = jobs.downgrade();
        let tell = move |door, said| {
            let jobs = jobs.upgrade();
            async move {
                match jobs {
                    Some(jobs) => jobs.send(Job::Said(door, said)).await.is_ok(),
                    None => false,
                }
            }
        };
        AbortOnDropHandle::new(tokio::spawn(hub::ask_all(hub.endpoint, asked, tell)))
    });
    tracing::info!(%address, "the service listens");
    if let Some(ready) = ready {
        // Nobody needs to wait for it.
        let _ = ready.send(address);
    }

    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let context = Arc::new(connection::Context {
        jobs,
        images: Images::new(images),
        limits: limits.clone(),
        buffers: Arc::new(Semaphore::new(connection::units(limits.buffered_bytes))),
        metrics,
        shutdown: shutdown.clone(),
        cut: cut.clone(),
    });
    let mut lease_lost = false;
    let ended = tokio::select! {
        () = accept(&listener, &connections, &context) => None,
        () = shutdown.cancelled() => None,
        ended = &mut engine => Some(ended),
        _ = &mut lease => {
            lease_lost = true;
            None
        }
    };
    drop(listener);
    shutdown.cancel();
    drop(controllers);
    drop(lease);
    drop(context);
    connections.close();
    if tokio::time::timeout(limits.grace, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "requests did not finish in time and were cut off");
        cut.cancel();
        connections.wait().await;
    }
    let result = match ended {
        Some(ended) => ended,
        None => match tokio::time::timeout(limits.grace, &mut engine).await {
            Ok(ended) => ended,
            Err(_) => {
                engine.abort();
                return if lease_lost { Err(ServeError::LeaseLost) } else { Ok(()) };
            }
        },
    };
    match result {
        Ok(Ok(())) if lease_lost => Err(ServeError::LeaseLost),
        Ok(result) => result.map_err(ServeError::from),
        Err(panic) => Err(ServeError::Internal(format!("the engine ended: {panic}"))),
    }
}

pub(crate) fn bind(listen: Listen) -> Result<(TcpListener, SocketAddr), ServeError> {
    let (listener, address) = match listen {
        Listen::Bound(listener) => {
            let address = listener.local_addr().unwrap_or_else(|_| ([0; 4], 0).into());
            (listener, address)
        }
        // The standard library sets SO_REUSEADDR, so a port whose last owner just died is free.
        Listen::Address(address) => match StdListener::bind(address) {
            Ok(listener) => (listener, address),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                return Err(ServeError::PortTaken {
                    address: address.ip(),
                    port: address.port(),
                    holder: port::holder(address.port()),
                });
            }
            Err(source) => return Err(ServeError::Bind { address, source }),
        },
    };
    // The standard library has the kernel keep 128 connections that were not accepted yet. A fleet that connects all at once would
    // wait for its handshakes to be tried again, or be reset. The kernel takes its own limit where that is smaller (somaxconn, 4096).
    socket2::SockRef::from(&listener).listen(i32::MAX).map_err(|source| ServeError::Bind { address, source })?;
    listener.set_nonblocking(true).map_err(|source| ServeError::Bind { address, source })?;
    let bound = TcpListener::from_std(listener).and_then(|l| l.local_addr().map(|address| (l, address)));
    bound.map_err(|source| ServeError::Bind { address, source })
}

/// Accepts for ever.
async fn accept(listener: &TcpListener, connections: &TaskTracker, context: &Arc<connection::Context>) {
    let mut pause = Duration::from_millis(5);
    let places = Arc::new(Semaphore::new(context.limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
    loop {
        if places.available_permits() == 0 {
            tracing::warn!(connections = context.limits.connections, "no more connections are accepted until one ends");
        }
        // It is never closed. Who waits does so in the kernel's queue.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                pause = Duration::from_millis(5);
                let served = connection::run(stream, peer, context.clone());
                connections.spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Err(error) => {
                context.metrics.accept_error();
                // A client that was gone before we looked costs nothing. Everything else (no file descriptors, no memory) would
                // come back at once: wait until connections have ended.
                if !matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
                ) {
                    tracing::warn!(%error, ?pause, "cannot accept a connection, waiting");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
            }
        }
    }
}

#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod tests;
