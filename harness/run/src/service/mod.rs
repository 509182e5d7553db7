//! The service under test, behind one interface: whatever it is, it is started by [`start`] and used as a [`RunningService`].
//!
//! * [`simulated`] is this program's own service, a process on PostgreSQL;
//! * [`process`] is a program (the real assisted-service) on PostgreSQL, with the [`environment`] that it needs;
//! * [`container`] is an image of either, with PostgreSQL in a container beside it;
//! * [`remote`] runs already: nothing is started, stopped or set, and states come from polls. Over Kubernetes its [`hub`] is there, too.
//!
//! The first two can be several programs behind one address ([`replicas`]).
//!
//! [`watch`] follows the tables of a service through a trigger.

pub mod container;
pub mod environment;
pub mod hub;
mod local;
pub mod process;
pub mod ready;
pub mod remote;
mod replicas;
pub mod scratch;
pub mod shift;
pub mod simulated;
pub mod watch;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use vlab_client::Endpoint;
use vlab_drive::fault::effect::Program;
use vlab_drive::journal::Shift;
use vlab_drive::prepare::Prepared;
use vlab_drive::target::Target;
use vlab_judge::result::Startup;
use vlab_lab::containers::ContainerError;
use vlab_lab::ledger::{Ledger, LedgerError};
use vlab_lab::process::{Child, ProcessError, Stopped};
use vlab_scenario::{Fault, WhichReplica};

use self::hub::{Hub, HubOrder};
use crate::error::LabError;

/// Work that is under way.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Name of the service's database.
pub const DATABASE: &str = "assisted";
/// How long a service may take to stop after it was asked to.
const STOP: Duration = Duration::from_secs(30);

/// Starts the service that the run is for, or finds the one that runs already, and returns when it is ready.
///
/// # Errors
/// [`LabError`]; nothing is left then, or what is left is in the ledger.
pub async fn start(order: &ServiceOrder<'_>) -> Result<Arc<dyn RunningService>, LabError> {
    let target = &order.prepared.target;
    let existing = order.prepared.hub.existing().is_some();
    if order.hub.is_some() && !existing && matches!(target, Target::Remote { .. }) {
        let error = format!(
            "only the controllers of a service that the run starts work on an API server of the run, not those of {target}"
        );
        return Err(LabError::new("service", error));
    }
    match target {
        Target::Simulated => Box::pin(local::start(order, simulated::KIND)).await,
        Target::Process { .. } => Box::pin(local::start(order, process::KIND)).await,
        Target::Container { image, postgres } => Box::pin(container::start(order, image, postgres.as_deref())).await,
        Target::Remote { url } => Box::pin(remote::start(order, url)).await,
    }
}

/// A service under test that is up.
pub trait RunningService: Send + Sync {
    /// What is known of it.
    fn about(&self) -> &About;

    /// Can that fault be done to it? What follows from the target alone was asked before the start ([`Target::can`]).
    ///
    /// # Errors
    /// Why not.
    fn can(&self, _: &Fault) -> Result<(), String> {
        Ok(())
    }

    /// Ends when one of its programs ends that nobody has stopped; never, when they are not ours.
    fn ended(&self) -> BoxFuture<'_, ProgramEnd>;

    /// Has one of its programs ended that nobody has stopped? For those whose end nobody tells.
    fn lost(&self) -> Option<ProgramEnd>;

    /// Did the service, which has ended, end because it had lost the lease of its controllers? A pod would be started again.
    fn has_lost_lease(&self) -> bool {
        false
    }

    /// Lets a program stand still (the replicas of it that are meant), or go on.
    ///
    /// # Errors
    /// It cannot be made to.
    fn pause(&self, which: Program, of: WhichReplica, still: bool) -> BoxFuture<'_, Result<(), String>>;

    /// Ends a program and starts it again where it was. From the moment of the call its end is no surprise.
    ///
    /// # Errors
    /// It cannot be stopped, or is not ready again.
    fn restart(self: Arc<Self>, order: Restart) -> BoxFuture<'static, Result<(), LabError>>;

    /// Ends the service, and nothing it stands on: from the moment of the call its end is no surprise. For [`RunningService::keep`].
    ///
    /// # Errors
    /// It cannot be frozen, or did not end well.
    fn rest(self: Arc<Self>) -> BoxFuture<'static, Result<(), LabError>> {
        Box::pin(async {
            Err(LabError::new("snapshot", "only a service that is a process of this computer can be frozen"))
        })
    }

    /// Writes down what it stands on, after [`RunningService::rest`].
    ///
    /// # Errors
    /// It cannot be written down.
    fn keep(self: Arc<Self>, _: PathBuf) -> BoxFuture<'static, Result<(), LabError>> {
        Box::pin(async {
            Err(LabError::new("snapshot", "only a service that is a process of this computer can be frozen"))
        })
    }

    /// The last lines of a program's log.
    fn last_lines(&self, which: Program, count: usize) -> Vec<String>;

    /// Resident memory of a program in KiB, where that can be measured.
    fn memory(&self, which: Program) -> Option<u64>;

    /// Stops the service and then what it stands on.
    fn stop(self: Arc<Self>) -> BoxFuture<'static, Down>;
}

/// How a service was stopped.
#[derive(Debug, Default)]
pub struct Down {
    /// What could not be stopped or removed.
    pub problems: Vec<LabError>,
    /// It did not end when it was asked to and had to be killed: what was waited for.
    pub killed: Option<String>,
}

/// What is wrong with how a program ended that was asked to.
fn not_ended_well(Stopped { status, killed }: Stopped) -> Option<String> {
    let crashed = match (status.signal(), status.code()) {
        (Some(signal), _) => CRASHES.contains(&signal),
        (None, code) => code.is_some_and(|code| is_crash(code.into())),
    };
    if killed { Some(not_ended()) } else { crashed.then(|| crashed_then(&status.to_string())) }
}

fn not_ended() -> String {
    format!("it did not end within {} s of SIGTERM and was killed", STOP.as_secs())
}

fn crashed_then(status: &str) -> String {
    format!("it crashed when it was asked to end ({status}); its log has its last words")
}

/// A program may end by SIGTERM or with a status for reasons of its own. But a panic of Go is 2, one of Rust 101, and a shell or a
/// container tells of a signal with 128 and its number.
fn is_crash(code: i64) -> bool {
    [2, 101].contains(&code) || CRASHES.iter().any(|signal| code == 128 + i64::from(*signal))
}

/// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
const CRASHES: [i32; 7] = [4, 5, 6, 7, 8, 11, 31];

/// A program that exited unexpectedly.
#[derive(Debug)]
pub enum ProgramEnd {
    /// The service or its PostgreSQL.
    Of {
        /// Which of them.
        which: Program,
        /// How, when that is known.
        how: Option<String>,
    },
    /// A program of the run's API server.
    OfHub(hub::HubProgramEnd),
}

/// What is known of a service that is up.
#[derive(Clone, Debug)]
pub struct About {
    /// Where it answers.
    pub endpoint: Endpoint,
    /// What it says that it is.
    pub version: String,
    /// What it stands on: `postgresql`, `container engine`.
    pub stands_on: BTreeMap<String, String>,
    /// Connection string of its database, where that is ours.
    pub conninfo: Option<String>,
    /// How long it took to be ready; `None` when it ran already.
    pub startup: Option<Startup>,
    /// The API server that its controllers work on, where they do, and its kubeconfig.
    pub hub: Option<(Endpoint, PathBuf)>,
}

/// How a program is to be restarted.
pub struct Restart {
    /// The service or its PostgreSQL.
    pub which: Program,
    /// Which of it, where there are several.
    pub of: WhichReplica,
    /// With SIGKILL?
    pub kill: bool,
    /// It is down so long before it is started.
    pub down: Duration,
    /// What ends while it is being started is started again, as a pod is: it may still lack what it ended for.
    pub again: bool,
    /// Once cancelled it is started at once.
    pub hurry: CancellationToken,
    /// Is told how it ended, and what was waited for when it had to be killed although it was only asked to end.
    pub stopped: Box<dyn Fn(String, Option<String>) + Send + Sync>,
}

impl Restart {
    /// It stays down.
    async fn stay_down(&self) {
        self.wait(self.down).await;
    }

    async fn wait(&self, span: Duration) {
        tokio::select! {
            () = tokio::time::sleep(span) => {}
            () = self.hurry.cancelled() => {}
        }
    }
}

/// What must not stand in logs and reports. Grows while services are started.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Arc<Mutex<Vec<String>>>);

impl Secrets {
    /// These, to begin with.
    pub fn new(words: Vec<String>) -> Self {
        Self(Arc::new(Mutex::new(words)))
    }

    /// One more.
    pub fn add(&self, word: String) {
        if !word.is_empty() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(word);
        }
    }

    /// All of them.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a service needs around it.
pub struct ServiceOrder<'a> {
    /// The run.
    pub prepared: &'a Prepared,
    /// Its id.
    pub run_id: &'a str,
    /// Its folder: logs are written there.
    pub folder: &'a Path,
    /// The `vlab` program.
    pub vlab: &'a Path,
    /// Where everything is written down.
    pub ledger: Option<Arc<Ledger>>,
    /// Programs that the real service calls are taken from where it runs instead of our stand-ins.
    pub real_tools: bool,
    /// How long it may take until it is ready, when not the usual time.
    pub ready_within: Option<Duration>,
    /// How machines see it, when hosts are machines.
    pub inside: Option<&'a Inside>,
    /// Is told what must not stand in logs.
    pub secrets: &'a Secrets,
    /// The API server that the service's controllers are to work on, where they are.
    pub hub: Option<&'a HubOrder>,
    /// What it goes on from, and by how much the times in it are moved.
    pub from: Option<(&'a Path, Shift)>,
    /// Cancelled when the user wants an end.
    pub interrupted: &'a CancellationToken,
}

impl ServiceOrder<'_> {
    /// Ends early when the user wants an end. Only for what may be given up in the middle.
    async fn or_end<T>(&self, work: impl Future<Output = Result<T, LabError>>) -> Result<T, LabError> {
        tokio::select! {
            done = work => done,
            () = self.interrupted.cancelled() => Err(LabError::interrupted()),
        }
    }
}

/// How machines see the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Where they reach it.
    pub base_url: String,
    /// Where they reach the image service.
    pub images_url: String,
    /// The live ISO that discovery images are made of.
    pub iso: PathBuf,
}

/// What a program of the service needs when it is started, for the first time or again.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The run.
    pub prepared: Arc<Prepared>,
    /// The `vlab` program.
    pub vlab: PathBuf,
    /// Its log.
    pub log_file: PathBuf,
    /// Where the simulated service tells its address.
    pub address_file: PathBuf,
    /// Where processes are written down.
    pub ledger: Option<Arc<Ledger>>,
    /// Its database by the quickest way.
    pub conninfo: String,
    /// Its database by TCP, for programs that know nothing else.
    pub tcp_conninfo: Option<String>,
    /// Its folder, see [`scratch::Scratch`].
    pub scratch: Option<PathBuf>,
    /// The real tools are used instead of the stand-ins.
    pub real_tools: bool,
    /// How long it may take until it is ready, when not the usual time.
    pub ready_within: Option<Duration>,
    /// How machines see it, when hosts are machines.
    pub inside: Option<Inside>,
    /// The API server that its controllers work on, where they do.
    pub hub: Option<Arc<Hub>>,
    /// Its place among several of them.
    pub one_of: Option<OneOf>,
}

/// One of several services on one database.
#[derive(Clone, Debug)]
pub struct OneOf {
    /// Its name, by which PostgreSQL and its lease know it.
    pub name: String,
    /// Where all of them are reached.
    pub front: SocketAddr,
    /// The API server on which real ones have their leases.
    pub leases: Option<Arc<Hub>>,
}

/// A program of the service that is up.
#[derive(Debug)]
pub struct Launched {
    /// Its process.
    pub child: Child,
    /// Where it answers.
    pub endpoint: Endpoint,
    /// What it says that it is.
    pub version: String,
    /// From its start to `/ready`.
    pub ready: Duration,
}

/// Starts a program of the service. The address is the one that it had before, when it is started again.
type Launcher = for<'a> fn(&'a Launch, Option<SocketAddr>) -> BoxFuture<'a, Result<Launched, StartError>>;

/// Why the service under test cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// There is no such program.
    #[error("there is no program {0:?}: give the path of an assisted-service binary")]
    NoProgram(PathBuf),
    /// Its folder.
    #[error("the service's folder {path}: {error}")]
    Scratch {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// What is copied into its container.
    #[error("the stand-ins for the service's container, with {path}: {error}")]
    StandIns {
        /// The program among them.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// No free port.
    #[error("no free port on 127.0.0.1: {0}")]
    Port(io::Error),
    /// The database cannot be told to the service.
    #[error("the database cannot be given to the service: {0}")]
    Database(String),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// No program of an API server.
    #[error("the API server for the service's controllers: {0}")]
    NoApiServer(String),
    /// The definitions of its kinds.
    #[error("the definitions of the service's kinds, {path}: {why}")]
    Definitions {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What the API server of the run did not take.
    #[error("the API server of the run refused {what}: {why}")]
    Hub {
        /// Which object.
        what: String,
        /// Its answer.
        why: String,
    },
    /// A hub that is there already, and on which the run cannot be done.
    #[error("the hub of {kubeconfig}: {why}")]
    ExistingHub {
        /// Its kubeconfig.
        kubeconfig: PathBuf,
        /// Why not.
        why: String,
    },
    /// Controllers always take this port.
    #[error(
        "port {0} is taken: the controllers of the real service always listen there for those who want their metrics. Two such \
         services cannot run beside each other; `ss -ltnp sport = :{0}` shows who has it"
    )]
    MetricsPort(u16),
    /// The API server of the run cannot be reached from the service's container.
    #[error(
        "the service's container cannot reach the API server of the run: {0}. The container engine must give its networks an address of this \
         computer, as Docker and Podman do where root runs them"
    )]
    NoWayToHub(String),
    /// It answers, but not as an assisted-service does.
    #[error("{0}")]
    Stranger(String),
    /// A container.
    #[error(transparent)]
    Container(Box<ContainerError>),
}

impl From<ContainerError> for StartError {
    fn from(error: ContainerError) -> Self {
        Self::Container(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use rstest::rstest;

    use super::*;

    /// Raw states as `wait` gives them: a signal, or a code in the second byte.
    #[rstest]
    #[case::well(0, false, None)]
    #[case::by_the_signal(15, false, None)]
    #[case::its_own_reasons(1 << 8, false, None)]
    #[case::not_at_all(9, true, Some("it did not end within 30 s"))]
    #[case::a_bad_pointer(11, false, Some("it crashed when it was asked to end (signal: 11"))]
    #[case::a_panic_of_go(2 << 8, false, Some("it crashed when it was asked to end (exit status: 2)"))]
    #[case::a_panic_of_rust(101 << 8, false, Some("it crashed"))]
    #[case::behind_a_shell((128 + 6) << 8, false, Some("it crashed"))]
    fn a_program_that_crashes_at_its_end_is_told(#[case] raw: i32, #[case] killed: bool, #[case] told: Option<&str>) {
        let found = not_ended_well(Stopped { status: ExitStatus::from_raw(raw), killed });
        assert_eq!(found.is_some(), told.is_some(), "{found:?}");
        assert!(found.unwrap_or_default().starts_with(told.unwrap_or_default()));
    }
}
