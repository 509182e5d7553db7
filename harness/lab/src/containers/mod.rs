//! Containers of a run: a network of their own, and containers in it; each of them, the network and the volumes are in the ledger
//! before they exist and have the run's labels. They are started with `testcontainers`, by a program of its own
//! (`vlab-container-helper`, see [`vlab_container_engine::helper`]), so that nobody builds it who needs no containers.
//!
//! Ports are published on 127.0.0.1 only. What containers write is followed into files of the run's folder. Ready is what
//! the caller asks for ([`Container::wait_ready`]: a query that works, a `/ready` that answers), never a line of a log.

mod helper;
mod labels;

use std::fs::OpenOptions;
use std::future::Future;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::resource::{Resource as Limit, getrlimit};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use vlab_container_engine::helper::{ContainerCall, Order};
use vlab_container_engine::{Engine, EngineError, EngineKind, ImageInfo, LABEL_OWNER, LABEL_RUN, NoEngine, Thing};

use crate::ledger::{Ledger, LedgerError, Resource, Token};
use crate::process::{ProcessError, last_lines};
use crate::wait::{self, ReadyError};

pub use helper::{HELPER, find_helper};
pub use labels::{Fate, Owner};
pub use vlab_container_engine::helper::{Content, CopiedFile};

use helper::Helper;

/// How long fetching an image may take.
const PULL: Duration = Duration::from_secs(600);
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
    /// It did not become ready.
    #[error(transparent)]
    NotReady(#[from] ReadyError),
    /// The program that starts containers is not there.
    #[error(
        "containers need the program `{HELPER}` beside `vlab`, and it is not at {0}: in a clone, `cargo xtask scenario … --service \
         container:…` builds it; elsewhere build it with `cargo build -p {HELPER}` or set VLAB_CONTAINER_HELPER"
    )]
    NoHelper(PathBuf),
    /// It does not work.
    #[error("the program that starts containers: {0}")]
    Helper(String),
    /// It cannot be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The log file.
    #[error("cannot write the log file {path}: {error}")]
    Log {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}

/// A container to start.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
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
    /// Files that are put into it before it starts.
    pub files: Vec<CopiedFile>,
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
    helper: Arc<Helper>,
}

/// What a pod is made for.
#[derive(Debug, Clone)]
pub struct PodOptions {
    /// Id of the run.
    pub run: String,
    /// Where everything is written down.
    pub ledger: Option<Arc<Ledger>>,
    /// The program that starts containers; found by [`find_helper`] when `None`.
    pub helper: Option<PathBuf>,
    /// Where what that program says goes.
    pub helper_log: PathBuf,
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
    /// Finds the engine, starts the helper and makes a network for the run.
    ///
    /// # Errors
    /// No engine, or one that refuses; no helper.
    pub async fn create(options: PodOptions) -> Result<Self, ContainerError> {
        let PodOptions { run, ledger, helper, helper_log } = options;
        let book = ledger.clone();
        let started = tokio::task::spawn_blocking(move || {
            let engine = vlab_container_engine::find()?;
            let helper = Helper::start(helper.as_deref(), &engine, &helper_log, book.as_ref())?;
            Ok::<_, ContainerError>((engine, helper))
        });
        let (engine, helper) = started.await.map_err(|panic| ContainerError::Helper(panic.to_string()))??;
        let owner = Owner::me().map(|owner| owner.to_string()).unwrap_or_default();
        let pod = Self {
            network: format!("vlab-{run}"),
            engine,
            run,
            owner,
            ledger,
            things: Mutex::new(Vec::new()),
            helper: Arc::new(helper),
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
        let problem =
            match tokio::time::timeout(PULL, self.helper.call(ContainerCall::Pull { image: image.to_owned() })).await {
                Ok(Ok(())) => match blocking("looking", &self.engine, look).await? {
                    Some(info) => return Ok(info),
                    None => "the engine says that it has fetched it, and does not have it".to_owned(),
                },
                Ok(Err(problem)) => problem,
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

    /// The address under which containers of the run reach this computer.
    ///
    /// # Errors
    /// The engine does not answer; `None`: it does not say.
    pub async fn gateway(&self) -> Result<Option<IpAddr>, ContainerError> {
        let network = self.network.clone();
        blocking("looking", &self.engine, move |engine| engine.gateway(&network)).await
    }

    /// Starts a container. Do not give up waiting for this in the middle (use a task): the engine would go on with it.
    ///
    /// # Errors
    /// See [`ContainerError`]; nothing of it is left then, or it is in the ledger.
    pub async fn start(&self, spec: ContainerSpec) -> Result<Container, ContainerError> {
        let ContainerSpec { what, image, env, args, port, host_port, volume, scratch, files, log_file } = spec;
        let name = format!("vlab-{}-{what}", self.run);
        let mut limits = Vec::new();
        if self.engine.kind == EngineKind::Podman {
            // It asks for more open files and processes than a machine with limits gives it, and is refused even as root.
            // Its own service runs with at most 32768 processes.
            for (name, limit, most) in
                [("nofile", Limit::RLIMIT_NOFILE, 1 << 20), ("nproc", Limit::RLIMIT_NPROC, 1 << 15)]
            {
                if let Ok((_, hard)) = getrlimit(limit) {
                    limits.push((name.to_owned(), i64::try_from(hard).unwrap_or(most).min(most)));
                }
            }
        }
        let volume = match volume {
            Some(place) => {
                let volume = format!("{name}-data");
                self.make(Thing::Volume, volume.clone()).await?;
                Some((volume, place))
            }
            None => None,
        };
        let labels = [(LABEL_RUN, &self.run), (LABEL_OWNER, &self.owner)];
        let order = Order {
            name: name.clone(),
            image: image.clone(),
            env,
            args,
            port,
            host_port,
            network: self.network.clone(),
            volume,
            scratch,
            files: files.into_iter().map(seen_by_the_helper).collect(),
            log_file: log_file.clone(),
            labels: labels.map(|(label, value)| (label.to_owned(), value.clone())).into(),
            limits,
        };
        if let Err(error) = OpenOptions::new().append(true).create(true).open(&log_file) {
            return Err(ContainerError::Log { path: log_file, error });
        }
        let token = self.record(Thing::Container, &name)?;
        let begun = std::time::Instant::now();
        if let Err(problem) = self.helper.call(ContainerCall::Start(Box::new(order))).await {
            // It may have been made before it could not be started; its log tells more than the engine.
            let gone = {
                let name = name.clone();
                blocking("removing", &self.engine, move |engine| engine.remove(Thing::Container, &name)).await
            };
            if let (Ok(_), Some(ledger), Some(token)) = (gone, &self.ledger, token) {
                ledger.release(token)?;
            }
            return Err(match host_port {
                Some(port) if port_taken(&problem) => ContainerError::PortTaken { port, problem },
                _ => ContainerError::Start { what, image, problem },
            });
        }
        let (keeper, ended) = look_after(self.engine.clone(), name.clone());
        let mut container = Container {
            keeper,
            ended,
            what,
            name: name.clone(),
            image,
            engine: self.engine.clone(),
            log_file,
            helper: Some(Arc::clone(&self.helper)),
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
    pub async fn remove(self) -> Result<(), ContainerError> {
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
        // The last one: whoever still has a container has the helper, too.
        if let Some(helper) = Arc::into_inner(self.helper) {
            helper.stop().await;
        }
        first.map_or(Ok(()), Err)
    }
}

/// The helper is another process: what this one calls `/proc/self` is another name there.
fn seen_by_the_helper(mut file: CopiedFile) -> CopiedFile {
    if let Content::Of(path) = &mut file.content
        && let Ok(below) = path.strip_prefix("/proc/self")
    {
        *path = PathBuf::from("/proc").join(std::process::id().to_string()).join(below);
    }
    file
}

fn port_taken(problem: &str) -> bool {
    ["port is already allocated", "address already in use"].iter().any(|text| problem.contains(text))
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

type ContainerExit = Option<Result<i64, String>>;

/// Looks after a container until it has ended.
fn look_after(engine: Engine, name: String) -> (JoinHandle<()>, watch::Receiver<ContainerExit>) {
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
    /// Until it is removed.
    helper: Option<Arc<Helper>>,
    keeper: JoinHandle<()>,
    ended: watch::Receiver<ContainerExit>,
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

    /// Its exit code when it has ended; `None` while it runs.
    ///
    /// # Errors
    /// It is gone, or the engine does not answer.
    pub async fn state(&self) -> Result<Option<i64>, String> {
        state_of(&self.engine, &self.name).await
    }

    /// Ends when the container has ended: its exit code, or what happened to it. May be given up and asked again at any time.
    ///
    /// # Errors
    /// The engine does not answer, or the container is gone.
    pub async fn ended(&self) -> Result<i64, String> {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(how) => how.clone().unwrap_or_else(|| Err("it is not known how".to_owned())),
            Err(_) => Err("it is no longer being watched".to_owned()),
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
                let end = format!("the container of {} ended with exit code {exit_code}", self.what);
                let (log_file, log) = (self.log_file.clone(), self.last_lines(50).join("\n"));
                Err(ReadyError::Ended { end, waited: what.to_owned(), log_file, log }.into())
            }
            Err(timeout) => {
                let (log_file, log) = (self.log_file.clone(), self.last_lines(50).join("\n"));
                Err(ReadyError::TimedOut { timeout, log_file, log }.into())
            }
        }
    }

    /// The log of a container that has ended is whole after this.
    async fn log_ended(&self) {
        if let Some(helper) = &self.helper {
            let _ =
                tokio::time::timeout(LOG_END, helper.call(ContainerCall::LogEnded { name: self.name.clone() })).await;
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
        if let Some(helper) = &self.helper {
            let grace = u32::try_from(grace.as_secs()).unwrap_or(u32::MAX);
            // One that has ended, or that somebody removed, cannot be stopped; removing says whether it is gone.
            let _ = helper.call(ContainerCall::Stop { name: self.name.clone(), grace }).await;
            if let Ok(Some(code)) = self.state().await {
                exit_code = code;
            }
            self.log_ended().await;
            let name = self.name.clone();
            if helper.call(ContainerCall::Remove { name: name.clone() }).await.is_err() {
                let again = move |engine: &Engine| engine.remove(Thing::Container, &name);
                blocking("removing", &self.engine, again).await?;
            }
        }
        self.helper = None;
        if let Some((ledger, token)) = self.entry.take() {
            ledger.release(token)?;
        }
        Ok(exit_code)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.keeper.abort();
        let kept = self.entry.as_ref().is_some_and(|(ledger, _)| ledger.is_kept());
        if let Some(helper) = self.helper.take().filter(|_| !kept) {
            helper.tell(ContainerCall::Remove { name: self.name.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("driver failed: Bind for 127.0.0.1:80 failed: port is already allocated", true)]
    #[case("rootlessport listen tcp 127.0.0.1:80: bind: address already in use", true)]
    #[case("exec: \"/x\": no such file", false)]
    fn a_taken_port_is_told_from_other_troubles(#[case] problem: &str, #[case] expected: bool) {
        assert_eq!(port_taken(problem), expected);
    }
}
