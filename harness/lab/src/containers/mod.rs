//! Containers of a run: a network of their own, and containers in it, started through `testcontainers`; each of them, the
//! network and the volumes are in the ledger before they exist and have the run's labels.
//!
//! Ports are published on 127.0.0.1 only. What containers write is followed into files of the run's folder. Ready is what
//! the caller asks for ([`Container::wait_ready`]: a query that works, a `/ready` that answers), never a line of a log.

mod labels;
mod relay;

use std::fs::OpenOptions;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use nix::sys::resource::{Resource as Limit, getrlimit};
use testcontainers::bollard::models::{HostConfig, PortBinding};
use testcontainers::bollard::query_parameters::LogsOptionsBuilder;
use testcontainers::core::client::docker_client_instance;
use testcontainers::core::{IntoContainerPort as _, Mount};
use testcontainers::runners::AsyncRunner as _;
use testcontainers::{ContainerAsync, ContainerRequest, CopyTargetOptions, GenericImage, ImageExt as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use vlab_container_engine::{Engine, EngineError, ImageInfo, Kind, LABEL_OWNER, LABEL_RUN, NoEngine, Thing};

use crate::ledger::{Ledger, LedgerError, Resource, Token};
use crate::process::last_lines;
use crate::wait::{self, Timeout};

pub use labels::{Fate, Owner};
pub use relay::{RelayError, enter, is_relay};

/// How long fetching an image may take.
const PULL: Duration = Duration::from_secs(600);
/// How long the engine may take to make and start one container.
const START: Duration = Duration::from_secs(60);
/// How long the rest of a log may take after the end of its container.
const LOG_END: Duration = Duration::from_secs(5);
/// So many names are shown when an image is not there.
const NEAREST: usize = 5;

/// What can go wrong with containers.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// No engine.
    #[error(transparent)]
    NoEngine(#[from] NoEngine),
    /// The engine refused something.
    #[error("the container engine refused: {0}")]
    Refused(#[from] EngineError),
    /// The image is not there and cannot be fetched.
    #[error(
        "there is no image {image} on this machine, and it cannot be fetched: {problem}\n  images here: {}\n  fix: check \
         the name; `cargo xtask images` builds vlab-service and vlab-postgres; `docker load -i FILE` loads an archive",
        if .near.is_empty() { "none".to_owned() } else { .near.join(", ") }
    )]
    NoImage {
        /// Its name.
        image: String,
        /// Why it cannot be fetched.
        problem: String,
        /// Images of this machine, the most similar names first.
        near: Vec<String>,
    },
    /// The port of this machine is taken.
    #[error("port {port} of 127.0.0.1 is taken: {problem}\n  fix: end what listens there (ss -ltnp 'sport = :{port}')")]
    PortTaken {
        /// The port.
        port: u16,
        /// What the engine says.
        problem: String,
    },
    /// It cannot be made or started.
    #[error("the container of {what} (image {image}) cannot be started: {problem}")]
    Start {
        /// What it is for.
        what: String,
        /// Its image.
        image: String,
        /// What the engine says.
        problem: String,
    },
    /// It ended while somebody waited for it to become ready.
    #[error(
        "the container of {what} ended with exit code {exit_code} before {waited}; the end of its log {log_file}:\n{log}"
    )]
    Ended {
        /// What it is for.
        what: String,
        /// Its exit code.
        exit_code: i64,
        /// What it should have done.
        waited: String,
        /// Its log file.
        log_file: PathBuf,
        /// The last lines of it.
        log: String,
    },
    /// It did not become ready in time.
    #[error("{timeout}; the end of its log {log_file}:\n{log}")]
    NotReady {
        /// What was waited for, how long, and what was seen.
        timeout: Timeout,
        /// Its log file.
        log_file: PathBuf,
        /// The last lines of it.
        log: String,
    },
    /// The way to the engine.
    #[error("the way to the container engine: {0}")]
    Relay(#[from] RelayError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The log file.
    #[error("cannot write the log file {path}: {error}")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// A container to start.
#[derive(Debug, Clone)]
pub struct Spec {
    /// For people, and the end of its name: `service`, `postgres`.
    pub what: String,
    /// Its image.
    pub image: String,
    /// Its environment on top of the image's.
    pub env: Vec<(String, String)>,
    /// Arguments for the image's program.
    pub args: Vec<String>,
    /// The port that it listens on.
    pub port: u16,
    /// The port of 127.0.0.1 that leads there; `None`: a free one.
    pub host_port: Option<u16>,
    /// Where a volume of its own is mounted.
    pub volume: Option<String>,
    /// Where a folder in memory is mounted that everybody may write into.
    pub scratch: Option<String>,
    /// Files that are put into it before it starts: path, mode, contents.
    pub files: Vec<(String, u32, Vec<u8>)>,
    /// What it writes goes here.
    pub log_file: PathBuf,
}

/// The containers of a run with their network.
#[derive(Debug)]
pub struct Pod {
    engine: Engine,
    run: String,
    owner: String,
    network: String,
    ledger: Option<Arc<Ledger>>,
    /// Tokens of things that are not containers, in the order in which they were made.
    things: Mutex<Vec<(Thing, String, Option<Token>)>>,
    relay: Option<relay::Relay>,
}

/// Runs something that waits for the engine where it disturbs nobody.
async fn blocking<T: Send + 'static>(
    what: &str,
    engine: &Engine,
    ask: impl FnOnce(&Engine) -> Result<T, EngineError> + Send + 'static,
) -> Result<T, ContainerError> {
    let asked = engine.clone();
    match tokio::task::spawn_blocking(move || ask(&asked)).await {
        Ok(answer) => Ok(answer?),
        Err(panic) => Err(ContainerError::Refused(EngineError {
            address: engine.address.clone(),
            what: what.to_owned(),
            problem: panic.to_string(),
            status: 0,
        })),
    }
}

impl Pod {
    /// Finds the engine and makes a network for the run.
    ///
    /// # Errors
    /// No engine, or one that refuses.
    pub async fn create(run: &str, ledger: Option<Arc<Ledger>>) -> Result<Self, ContainerError> {
        let found = tokio::task::spawn_blocking(vlab_container_engine::find).await;
        let engine = found.unwrap_or_else(|_| Err(NoEngine { looked: Vec::new(), installed: false }))?;
        let relay = relay::Relay::open(&engine, ledger.as_ref())?;
        let owner = Owner::me().map(|owner| owner.to_string()).unwrap_or_default();
        let pod = Self {
            network: format!("vlab-{run}"),
            engine,
            run: run.to_owned(),
            owner,
            ledger,
            things: Mutex::new(Vec::new()),
            relay: Some(relay),
        };
        if let Err(error) = pod.make(Thing::Network, pod.network.clone()).await {
            let _ = pod.remove().await;
            return Err(error);
        }
        Ok(pod)
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    fn record(&self, thing: Thing, name: &str) -> Result<Option<Token>, ContainerError> {
        let engine = self.engine.address.to_string();
        let resource = Resource::Engine { engine, thing: thing.to_string(), name: name.to_owned() };
        Ok(self.ledger.as_ref().map(|ledger| ledger.record(resource)).transpose()?)
    }

    async fn make(&self, thing: Thing, name: String) -> Result<(), ContainerError> {
        let token = self.record(thing, &name)?;
        self.things.lock().unwrap_or_else(PoisonError::into_inner).push((thing, name.clone(), token));
        let (run, owner) = (self.run.clone(), self.owner.clone());
        blocking("making", &self.engine, move |engine| {
            let labels = [(LABEL_RUN, run.as_str()), (LABEL_OWNER, owner.as_str())];
            match thing {
                Thing::Volume => engine.create_volume(&name, &labels),
                _ => engine.create_network(&name, &labels),
            }
        })
        .await
    }

    /// What the engine has of an image; fetches it when it is not there.
    ///
    /// # Errors
    /// It is not there and cannot be fetched.
    pub async fn image(&self, image: &str) -> Result<ImageInfo, ContainerError> {
        let name = image.to_owned();
        let look = move |engine: &Engine| engine.image(&name);
        if let Some(info) = blocking("looking", &self.engine, look.clone()).await? {
            return Ok(info);
        }
        let problem = match tokio::time::timeout(PULL, generic(image).pull_image()).await {
            Ok(Ok(_)) => match blocking("looking", &self.engine, look).await? {
                Some(info) => return Ok(info),
                None => "the engine says that it has fetched it, and does not have it".to_owned(),
            },
            Ok(Err(error)) => root_cause(&error),
            Err(_) => format!("not within {PULL:?}"),
        };
        let mut near = blocking("listing", &self.engine, Engine::images).await.unwrap_or_default();
        near.sort_by(|a, b| strsim::jaro_winkler(b, image).total_cmp(&strsim::jaro_winkler(a, image)));
        near.truncate(NEAREST);
        Err(ContainerError::NoImage { image: image.to_owned(), problem, near })
    }

    /// Is the image on this machine?
    ///
    /// # Errors
    /// The engine does not answer.
    pub async fn has_image(&self, image: &str) -> Result<bool, ContainerError> {
        let image = image.to_owned();
        Ok(blocking("looking", &self.engine, move |engine| engine.image(&image)).await?.is_some())
    }

    /// Starts a container. Do not give up waiting for this in the middle (use a task): the engine would go on with it.
    ///
    /// # Errors
    /// See [`ContainerError`]; nothing of it is left then, or it is in the ledger.
    pub async fn start(&self, spec: Spec) -> Result<Container, ContainerError> {
        let Spec { what, image, env, args, port, host_port, volume, scratch, files, log_file } = spec;
        let name = format!("vlab-{}-{what}", self.run);
        let mut request: ContainerRequest<GenericImage> = generic(&image);
        for (name, value) in env {
            request = request.with_env_var(name, value);
        }
        if !args.is_empty() {
            request = request.with_cmd(args);
        }
        for (path, mode, bytes) in files {
            request = request.with_copy_to(CopyTargetOptions::new(path).with_mode(mode), bytes);
        }
        if self.engine.kind == Kind::Podman {
            // It asks for more open files and processes than a machine with limits gives it, and is refused even as root.
            // Its own service runs with at most 32768 processes.
            let limits = [("nofile", Limit::RLIMIT_NOFILE, 1 << 20), ("nproc", Limit::RLIMIT_NPROC, 1 << 15)];
            for (name, limit, most) in limits {
                if let Ok((_, hard)) = getrlimit(limit) {
                    let hard = i64::try_from(hard).unwrap_or(most).min(most);
                    request = request.with_ulimit(name, hard, Some(hard));
                }
            }
        }
        if let Some(place) = volume {
            let volume = format!("{name}-data");
            self.make(Thing::Volume, volume.clone()).await?;
            request = request.with_mount(Mount::volume_mount(volume, place));
        }
        let request = request
            .with_container_name(&name)
            .with_network(&self.network)
            .with_labels([(LABEL_RUN, self.run.as_str()), (LABEL_OWNER, self.owner.as_str())])
            .with_startup_timeout(START)
            // Also for an image that does not say that it listens there; the address follows below.
            .with_mapped_port(host_port.unwrap_or(0), port.tcp())
            .with_host_config_modifier(move |config: &mut HostConfig| {
                // 127.0.0.1 only, and only this port, whatever else the image exposes.
                config.publish_all_ports = Some(false);
                let binding = PortBinding {
                    host_ip: Some("127.0.0.1".to_owned()),
                    host_port: Some(host_port.unwrap_or(0).to_string()),
                };
                config.port_bindings = Some([(format!("{port}/tcp"), Some(vec![binding]))].into());
                if let Some(place) = &scratch {
                    config.tmpfs = Some([(place.clone(), "rw,exec,mode=1777".to_owned())].into());
                }
            });
        if let Err(error) = OpenOptions::new().append(true).create(true).open(&log_file) {
            return Err(ContainerError::Log { path: log_file, error });
        }
        let token = self.record(Thing::Container, &name)?;
        let begun = std::time::Instant::now();
        let started = request.start().await;
        let container = match started {
            Ok(container) => container,
            Err(error) => {
                // It may have been made before it could not be started; its log tells more than the engine.
                let gone = {
                    let name = name.clone();
                    blocking("removing", &self.engine, move |engine| engine.remove(Thing::Container, &name)).await
                };
                if let (Ok(_), Some(ledger), Some(token)) = (gone, &self.ledger, token) {
                    ledger.release(token)?;
                }
                let problem = root_cause(&error);
                return Err(match host_port {
                    Some(port) if port_taken(&problem) => ContainerError::PortTaken { port, problem },
                    _ => ContainerError::Start { what, image, problem },
                });
            }
        };
        let log = follow(container.id(), &log_file).await;
        let (keeper, ended) = look_after(self.engine.clone(), name.clone());
        let mut container = Container {
            keeper,
            ended,
            what,
            name: name.clone(),
            image,
            engine: self.engine.clone(),
            log_file,
            inner: Some(container),
            log,
            entry: self.ledger.clone().zip(token),
            address: String::new(),
            host_port: 0,
            begun,
        };
        // An engine that gave it no address or no port has not really started it: the wait for it will tell.
        let looked = blocking("looking", &self.engine, move |engine| engine.inspect(&name)).await;
        if let Ok(Some(state)) = looked {
            container.address = state
                .addresses
                .iter()
                .find(|(network, _)| *network == self.network)
                .map(|(_, address)| address.clone())
                .unwrap_or_default();
            let own = format!("{port}/tcp");
            container.host_port = state.ports.iter().find(|(p, _)| *p == own).map_or(0, |(_, port)| *port);
        }
        Ok(container)
    }

    /// Removes what is left of the run in the engine: volumes and the network. Containers go before, each by itself.
    ///
    /// # Errors
    /// The engine refuses; what is left stays in the ledger.
    pub async fn remove(mut self) -> Result<(), ContainerError> {
        let mut things = std::mem::take(&mut *self.things.lock().unwrap_or_else(PoisonError::into_inner));
        let mut first = None;
        while let Some((thing, name, token)) = things.pop() {
            match blocking("removing", &self.engine, move |engine| engine.remove(thing, &name)).await {
                Ok(_) => {
                    if let (Some(ledger), Some(token)) = (&self.ledger, token) {
                        ledger.release(token)?;
                    }
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        if let Some(relay) = self.relay.take() {
            relay.close()?;
        }
        first.map_or(Ok(()), Err)
    }
}

fn generic(image: &str) -> ContainerRequest<GenericImage> {
    let (name, tag) = split_name(image);
    GenericImage::new(name, tag).into()
}

/// Name and tag. A digest is cut at its own colon, which gives the same name when both are put together again.
fn split_name(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

/// The innermost cause says it best; the outer ones only say that there is one.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    let (outer, inner) = (error.to_string(), inner.to_string());
    if outer.contains(&inner) || inner.is_empty() { outer } else { format!("{outer}: {inner}") }
}

fn port_taken(problem: &str) -> bool {
    ["port is already allocated", "address already in use"].iter().any(|text| problem.contains(text))
}

/// Copies what a container writes into a file until it has ended, both of its outputs in the order in which it wrote.
async fn follow(id: &str, log_file: &Path) -> Option<JoinHandle<()>> {
    let path = log_file.to_owned();
    // The readers that `testcontainers` has are one for each output; which line came first would be lost.
    let client = docker_client_instance().await.ok()?;
    let options = LogsOptionsBuilder::new().follow(true).stdout(true).stderr(true).build();
    let mut stream = client.logs(id, Some(options));
    Some(tokio::spawn(async move {
        let Ok(mut file) = OpenOptions::new().append(true).create(true).open(&path) else { return };
        while let Some(Ok(output)) = stream.next().await {
            // A full disk is told by what else the run writes.
            let _ = file.write_all(&output.into_bytes());
        }
    }))
}

/// How often is looked whether a container still runs.
const LOOK: Duration = Duration::from_millis(500);

/// Its exit code when it has ended; `None` while it runs.
async fn state_of(engine: &Engine, name: &str) -> Result<Option<i64>, String> {
    let asked = name.to_owned();
    match blocking("looking", engine, move |engine| engine.inspect(&asked)).await {
        Ok(Some(state)) if state.running => Ok(None),
        Ok(Some(state)) => Ok(Some(state.exit_code)),
        Ok(None) => Err(format!("the container {name} is gone")),
        Err(error) => Err(error.to_string()),
    }
}

type Ended = Option<Result<i64, String>>;

/// Looks after a container until it has ended.
fn look_after(engine: Engine, name: String) -> (JoinHandle<()>, watch::Receiver<Ended>) {
    let (announce, ended) = watch::channel(None);
    let task = tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK).await;
            let how = match state_of(&engine, &name).await {
                Ok(None) => continue,
                Ok(Some(code)) => Ok(code),
                Err(problem) => Err(problem),
            };
            let _ = announce.send(Some(how));
            return;
        }
    });
    (task, ended)
}

/// A running container. Remove it with [`Container::remove`]; when it is dropped it is removed as well, as a last resort.
pub struct Container {
    what: String,
    name: String,
    image: String,
    engine: Engine,
    log_file: PathBuf,
    inner: Option<ContainerAsync<GenericImage>>,
    log: Option<JoinHandle<()>>,
    keeper: JoinHandle<()>,
    ended: watch::Receiver<Ended>,
    entry: Option<(Arc<Ledger>, Token)>,
    address: String,
    host_port: u16,
    begun: std::time::Instant,
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Container").field("name", &self.name).field("image", &self.image).finish_non_exhaustive()
    }
}

impl Container {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address in the run's network.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The port of 127.0.0.1 that leads to its port; 0 when the engine gave it none.
    #[must_use]
    pub fn host_port(&self) -> u16 {
        self.host_port
    }

    /// When the engine was asked to make it.
    #[must_use]
    pub fn begun(&self) -> std::time::Instant {
        self.begun
    }

    /// The last lines of its log.
    #[must_use]
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        last_lines(&self.log_file, count)
    }

    async fn state(&self) -> Result<Option<i64>, String> {
        state_of(&self.engine, &self.name).await
    }

    /// Ends when the container has ended: its exit code, or what happened to it. May be given up and asked again at any time.
    ///
    /// # Errors
    /// The engine does not answer, or the container is gone.
    pub async fn ended(&self) -> Result<i64, String> {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(how) => how.clone().unwrap_or_else(|| Err("nobody knows".to_owned())),
            Err(_) => Err("nobody looks after it any more".to_owned()),
        }
    }

    /// Waits for the container to become ready, and no longer than it lives. The error holds what was seen last and the last
    /// 50 lines of the log.
    ///
    /// # Errors
    /// It ended, or the budget is spent.
    pub async fn wait_ready<T, Check, Look>(
        &mut self,
        what: &str,
        budget: Duration,
        interval: Duration,
        mut check: Check,
    ) -> Result<T, ContainerError>
    where
        Check: FnMut() -> Look,
        Look: Future<Output = Result<Option<T>, String>>,
    {
        let mut looks = 0_u32;
        let this = &*self;
        let looking = wait::until(what, budget, interval, || {
            let look = check();
            looks += 1;
            // Asking the engine costs more than asking the program.
            let ask = looks.is_multiple_of(5);
            async move {
                let seen = match look.await {
                    Ok(Some(value)) => return Ok(Some(Ok(value))),
                    Ok(None) => None,
                    Err(seen) => Some(seen),
                };
                if ask && let Ok(Some(code)) = this.state().await {
                    return Ok(Some(Err(code)));
                }
                seen.map_or(Ok(None), Err)
            }
        });
        match looking.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(exit_code)) => {
                self.log_ended().await;
                Err(ContainerError::Ended {
                    what: self.what.clone(),
                    exit_code,
                    waited: what.to_owned(),
                    log_file: self.log_file.clone(),
                    log: self.last_lines(50).join("\n"),
                })
            }
            Err(timeout) => Err(ContainerError::NotReady {
                timeout,
                log_file: self.log_file.clone(),
                log: self.last_lines(50).join("\n"),
            }),
        }
    }

    /// The log of a container that has ended is whole after this.
    async fn log_ended(&mut self) {
        if let Some(log) = self.log.take() {
            let _ = tokio::time::timeout(LOG_END, log).await;
        }
    }

    /// Lets all of its processes stand still, or go on.
    ///
    /// # Errors
    /// The engine refuses.
    pub async fn pause(&self, still: bool) -> Result<(), ContainerError> {
        let name = self.name.clone();
        blocking("pausing", &self.engine, move |engine| engine.pause(&name, still)).await
    }

    /// Asks it to stop, after `grace` without a choice, and removes it; returns its exit code.
    ///
    /// # Errors
    /// The engine refuses; it stays in the ledger then.
    pub async fn remove(mut self, grace: Duration) -> Result<i64, ContainerError> {
        let mut exit_code = -1;
        self.keeper.abort();
        if let Some(inner) = self.inner.take() {
            let seconds = i32::try_from(grace.as_secs()).unwrap_or(i32::MAX);
            // One that has ended, or that somebody removed, cannot be stopped; removing says whether it is gone.
            let _ = inner.stop_with_timeout(Some(seconds)).await;
            if let Ok(Some(code)) = self.state().await {
                exit_code = code;
            }
            self.log_ended().await;
            let removed = inner.rm().await;
            let name = self.name.clone();
            let again = move |engine: &Engine| engine.remove(Thing::Container, &name);
            if removed.is_err() {
                blocking("removing", &self.engine, again).await?;
            }
        }
        if let Some((ledger, token)) = self.entry.take() {
            ledger.release(token)?;
        }
        Ok(exit_code)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("postgres", ("postgres", "latest"))]
    #[case("postgres:16", ("postgres", "16"))]
    #[case("localhost:5000/x/y", ("localhost:5000/x/y", "latest"))]
    #[case("localhost:5000/x/y:z", ("localhost:5000/x/y", "z"))]
    #[case("quay.io/a/b@sha256:12ab", ("quay.io/a/b@sha256", "12ab"))]
    fn names_of_images_are_taken_apart(#[case] image: &str, #[case] expected: (&str, &str)) {
        assert_eq!(split_name(image), expected);
    }

    #[rstest]
    #[case("driver failed: Bind for 127.0.0.1:80 failed: port is already allocated", true)]
    #[case("rootlessport listen tcp 127.0.0.1:80: bind: address already in use", true)]
    #[case("exec: \"/x\": no such file", false)]
    fn a_taken_port_is_told_from_other_troubles(#[case] problem: &str, #[case] expected: bool) {
        assert_eq!(port_taken(problem), expected);
    }
}
