//! A service that is a process of this computer, with PostgreSQL beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;
use vlab_drive::fault::effect::Program;
use vlab_judge::result::Startup;
use vlab_lab::postgres::{PgCluster, PgOptions, Tcp};
use vlab_lab::proc::Usage;
use vlab_lab::process::{Child, ProcessError};
use vlab_lab::tree::copy_tree;
use vlab_lab::wait::ReadyError;
use vlab_model::lease::LOST;
use vlab_scenario::{Fault, FaultTarget, Injection, ServiceInjection};

use super::environment::Database;
use super::hub::{Hub, HubOrder};
use super::scratch::{self, Scratch};
use super::{
    About, BoxFuture, DATABASE, Down, Launch, Launcher, ProgramEnd, Restart, RunningService, STOP, ServiceOrder,
    StartError, not_ended_well, shift,
};
use crate::error::{LabError, lab};

/// What is different between services that are processes.
pub(super) struct ProcessKind {
    /// Starts its program.
    pub(super) launcher: Launcher,
    /// Does it reach its database by TCP?
    pub(super) tcp: bool,
    /// Does it work in a folder of its own?
    pub(super) scratch: bool,
    /// Are its controllers those of a real service? They always take the same port, and leave to Hive and metal3 what is theirs.
    pub(super) real: bool,
}

struct Local {
    about: About,
    launch: Launch,
    launcher: Launcher,
    postgres: PgCluster,
    /// How many faults have PostgreSQL down.
    postgres_down: AtomicU32,
    /// `None` while a fault has it stopped.
    child: Mutex<Option<Arc<Child>>>,
    /// Has the service exited unexpectedly?
    surprised: AtomicBool,
    scratch: Mutex<Option<Scratch>>,
    /// Does Hive's and metal3's part on the hub of a service that has controllers of its own.
    others: Option<AbortOnDropHandle<()>>,
}

/// Starts PostgreSQL and the service on it.
pub(super) async fn start(order: &ServiceOrder<'_>, kind: ProcessKind) -> Result<Arc<dyn RunningService>, LabError> {
    let postgres = PgCluster::start(PgOptions {
        log_file: Some(order.folder.join("postgresql.log")),
        ledger: order.ledger.clone(),
        tcp: if kind.tcp { Tcp::AnyPort } else { Tcp::Off },
        content: order.from.map(|(from, _)| from.join(POSTGRES)),
        ..PgOptions::from_env()
    });
    // Not given up in the middle when the user interrupts: its directory would be left. It takes a moment only.
    let postgres = postgres.await.map_err(lab("postgresql"))?;
    if order.interrupted.is_cancelled() {
        let _ = postgres.stop().await;
        return Err(LabError::interrupted());
    }
    let mut scratch = None;
    match start_on(order, &kind, &postgres, &mut scratch).await {
        Ok((launch, launched)) => {
            let startup = Startup {
                service_ready_ms: launched.ready.as_secs_f64() * 1e3,
                postgres_ready_ms: Some(postgres.start_times().total.as_secs_f64() * 1e3),
            };
            let about = About {
                endpoint: launched.endpoint,
                version: launched.version,
                stands_on: BTreeMap::from([("postgresql".to_owned(), postgres.version().to_owned())]),
                conninfo: Some(launch.conninfo.clone()),
                startup: Some(startup),
                hub: launch.hub.as_ref().map(|hub| (hub.endpoint().clone(), hub.kubeconfig().to_owned())),
            };
            let others = launch
                .hub
                .as_ref()
                .filter(|_| kind.real)
                .map(|hub| hub.others(hub.endpoint().clone(), order.prepared.clock_scale));
            Ok(Arc::new(Local {
                about,
                launch,
                launcher: kind.launcher,
                postgres,
                postgres_down: AtomicU32::new(0),
                child: Mutex::new(Some(Arc::new(launched.child))),
                surprised: AtomicBool::new(false),
                scratch: Mutex::new(scratch),
                others,
            }))
        }
        Err(error) => {
            if let Some(scratch) = scratch {
                // What cannot be removed stays in the ledger and is told as a leak.
                let _ = scratch.remove();
            }
            let _ = postgres.stop().await;
            Err(error)
        }
    }
}

async fn start_on(
    order: &ServiceOrder<'_>,
    kind: &ProcessKind,
    postgres: &PgCluster,
    scratch: &mut Option<Scratch>,
) -> Result<(Launch, super::Launched), LabError> {
    let conninfo = match order.from {
        None => postgres.create_database(DATABASE).await.map_err(lab("postgresql"))?,
        Some((_, by)) => {
            let conninfo = postgres.conninfo_for(DATABASE);
            shift::shift(&conninfo, &by).await.map_err(lab("snapshot"))?;
            conninfo
        }
    };
    let tcp_conninfo = postgres.tcp_conninfo_for(DATABASE);
    if kind.scratch {
        let made = Scratch::create(order.run_id, order.ledger.clone(), !order.real_tools);
        let made = made.map_err(lab("service"))?;
        if let Some((from, _)) = order.from {
            copy_tree(&from.join(WORK), &scratch::work(made.path()), None).map_err(lab("snapshot"))?;
        }
        *scratch = Some(made);
        // The service may write it into its log.
        let database = tcp_conninfo.as_ref().and_then(|conninfo| Database::read(conninfo).ok());
        order.secrets.add(database.map(|database| database.password).unwrap_or_default());
    }
    let hub = match order.hub {
        Some(wanted) => Some(Arc::new(start_hub(order, wanted, kind).await?)),
        None => None,
    };
    let launch = Launch {
        prepared: Arc::new(order.prepared.clone()),
        vlab: order.vlab.to_owned(),
        log_file: order.folder.join("service.log"),
        address_file: order.folder.join("service.address"),
        ledger: order.ledger.clone(),
        conninfo,
        tcp_conninfo,
        scratch: scratch.as_ref().map(|scratch| scratch.path().to_owned()),
        real_tools: order.real_tools,
        ready_within: order.ready_within,
        inside: order.inside.cloned(),
        hub,
    };
    let launched = order.or_end(async { (kind.launcher)(&launch, None).await.map_err(lab("service")) }).await;
    if let (Err(_), Some(hub)) = (&launched, &launch.hub) {
        hub.stop().await;
    }
    Ok((launch, launched?))
}

/// The API server for the service's controllers.
async fn start_hub(order: &ServiceOrder<'_>, wanted: &HubOrder, kind: &ProcessKind) -> Result<Hub, LabError> {
    if kind.real {
        // Before anything is started: nobody can choose another port.
        Hub::metrics_port().map_err(lab("service"))?;
    }
    hub_of(order, wanted).await
}

/// The API server of a run, whatever the service stands on.
pub(super) async fn hub_of(order: &ServiceOrder<'_>, wanted: &HubOrder) -> Result<Hub, LabError> {
    let assets = order.prepared.hub.assets();
    let wanted = &HubOrder { bare_metal: order.prepared.scenario.baremetal_operator.clone(), ..wanted.clone() };
    let start =
        async { Hub::start(wanted, assets, order.folder, order.ledger.clone()).await.map_err(lab("API server")) };
    // A real one is two programs with data on disk: it is not given up in the middle.
    if assets.is_some() { start.await } else { order.or_end(start).await }
}

/// Folder of PostgreSQL's data in that of a snapshot.
const POSTGRES: &str = "postgres";
/// Folder there of the service's own files.
const WORK: &str = "work";

/// A service that ends again and again is started after at most this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Did a program end before it was ready?
fn ended_at_start(error: &StartError) -> bool {
    matches!(error, StartError::Process(ProcessError::NotReady(ReadyError::Ended { .. })))
}

impl Local {
    fn child(&self) -> Option<Arc<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take_child(&self) -> Option<Arc<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn restart_service(self: Arc<Self>, child: Option<Arc<Child>>, order: Restart) -> Result<(), LabError> {
        let Some(child) = child else { return Err(LabError::new("faults", "the service does not run")) };
        let (status, killed) = if order.kill {
            (child.kill9().await, None)
        } else {
            let stopped = child.stop(STOP).await;
            (stopped.status, not_ended_well(stopped))
        };
        drop(child);
        (order.stopped)(format!("the service ended: {status}"), killed);
        order.stay_down().await;
        let again = Some(self.about.endpoint.address());
        let mut pause = order.down;
        let launched = loop {
            match (self.launcher)(&self.launch, again).await {
                Ok(launched) => break launched,
                Err(error) if order.again && ended_at_start(&error) && !order.hurry.is_cancelled() => {
                    tracing::info!(%error, ?pause, "the service ended again");
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    order.wait(pause).await;
                }
                Err(error) => return Err(lab("service")(error)),
            }
        };
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(launched.child));
        Ok(())
    }

    async fn restart_postgres(self: Arc<Self>, order: Restart) -> Result<(), LabError> {
        let restarted = async {
            if order.kill {
                self.postgres.kill9().await?;
            } else {
                self.postgres.halt().await?;
            }
            let what = if order.kill { "PostgreSQL was killed" } else { "PostgreSQL was stopped" };
            (order.stopped)(what.to_owned(), None);
            order.stay_down().await;
            self.postgres.restart().await
        };
        if let Err(error) = restarted.await {
            let log = self.last_lines(Program::Postgres, 20);
            return Err(LabError::new("postgresql", error.to_string()).with_log(log));
        }
        self.postgres_down.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

impl RunningService for Local {
    fn about(&self) -> &About {
        &self.about
    }

    fn can(&self, fault: &Fault) -> Result<(), String> {
        let by_asking = matches!(
            fault.injection,
            Injection::Service(ServiceInjection::SlowQueries { .. } | ServiceInjection::PostgresLocked { .. })
        );
        let stops_postgres = fault.target == FaultTarget::Postgres && !by_asking;
        if stops_postgres && !self.postgres.is_ours() {
            return Err("the PostgreSQL of DATABASE_URL is not the run's, and is left alone".to_owned());
        }
        Ok(())
    }

    fn ended(&self) -> BoxFuture<'_, ProgramEnd> {
        let child = self.child();
        let service = async move {
            let Some(child) = child else { return std::future::pending().await };
            let how = child.wait().await.to_string();
            self.surprised.store(true, Ordering::Relaxed);
            ProgramEnd::Of { which: Program::Service, how: Some(how) }
        };
        let hub = async {
            match &self.launch.hub {
                Some(hub) => ProgramEnd::OfHub(hub.ended().await),
                None => std::future::pending().await,
            }
        };
        Box::pin(async move {
            tokio::select! {
                // A service that has lost its API server may end of that.
                biased;
                ended = hub => ended,
                ended = service => ended,
            }
        })
    }

    fn has_lost_lease(&self) -> bool {
        self.launch.hub.is_some() && self.last_lines(Program::Service, 20).iter().any(|line| line.contains(LOST))
    }

    fn lost(&self) -> Option<ProgramEnd> {
        let gone = self.postgres.postmaster().is_some_and(|postmaster| !postmaster.is_alive());
        let surprising = self.postgres_down.load(Ordering::Relaxed) == 0;
        (gone && surprising).then_some(ProgramEnd::Of { which: Program::Postgres, how: None })
    }

    fn pause(&self, which: Program, still: bool) -> BoxFuture<'_, Result<(), String>> {
        let child = self.child();
        Box::pin(async move {
            match (which, child) {
                (Program::Postgres, _) => self.postgres.pause(still).await.map_err(|error| error.to_string()),
                (Program::Service, Some(child)) if child.pause(still).await => Ok(()),
                (Program::Service, Some(_)) => Err("has it ended?".to_owned()),
                // It was killed meanwhile, and nothing of it stands still.
                (Program::Service, None) if !still => Ok(()),
                (Program::Service, None) => Err("it does not run".to_owned()),
            }
        })
    }

    fn restart(self: Arc<Self>, order: Restart) -> BoxFuture<'static, Result<(), LabError>> {
        match order.which {
            Program::Service => {
                // Now, so that its end surprises nobody.
                let child = self.take_child();
                Box::pin(self.restart_service(child, order))
            }
            Program::Postgres => {
                self.postgres_down.fetch_add(1, Ordering::Relaxed);
                Box::pin(self.restart_postgres(order))
            }
        }
    }

    fn rest(self: Arc<Self>) -> BoxFuture<'static, Result<(), LabError>> {
        let child = self.take_child();
        Box::pin(async move {
            let Some(child) = child else { return Err(LabError::new("snapshot", "the service does not run")) };
            let ended = not_ended_well(child.stop(STOP).await);
            ended.map_or(Ok(()), |how| Err(LabError::new("snapshot", format!("the service: {how}"))))
        })
    }

    fn keep(self: Arc<Self>, into: PathBuf) -> BoxFuture<'static, Result<(), LabError>> {
        // It is stopped, which surprises nobody.
        self.postgres_down.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            self.postgres.keep(&into.join(POSTGRES)).await.map_err(lab("snapshot"))?;
            let work = self.launch.scratch.as_ref().map(|folder| scratch::work(folder));
            let Some(work) = work else { return Ok(()) };
            let kept = into.join(WORK);
            std::fs::create_dir(&kept).and_then(|()| copy_tree(&work, &kept, None)).map_err(lab("snapshot"))
        })
    }

    fn last_lines(&self, which: Program, count: usize) -> Vec<String> {
        match which {
            Program::Service => self.child().map(|child| child.last_lines(count)).unwrap_or_default(),
            Program::Postgres => self.postgres.last_log_lines(count),
        }
    }

    fn memory(&self, which: Program) -> Option<u64> {
        let pid = match which {
            Program::Service => self.child()?.pid(),
            Program::Postgres => self.postgres.postmaster()?.pid,
        };
        Usage::of(pid).ok().map(|usage| usage.rss_bytes / 1024)
    }

    fn stop(self: Arc<Self>) -> BoxFuture<'static, Down> {
        Box::pin(async move {
            let Down { mut problems, mut killed } = Down::default();
            if let Some(child) = self.take_child() {
                let stopped = child.stop(STOP).await;
                if !self.surprised.load(Ordering::Relaxed) {
                    killed = not_ended_well(stopped);
                }
            }
            if let Some(others) = &self.others {
                others.abort();
            }
            if let Some(hub) = &self.launch.hub {
                hub.stop().await;
            }
            if let Err(error) = self.postgres.stop().await {
                problems.push(lab("postgresql")(error));
            }
            let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(Err(error)) = scratch.map(Scratch::remove) {
                problems.push(lab("service")(error));
            }
            let _ = std::fs::remove_file(&self.launch.address_file);
            Down { problems, killed }
        })
    }
}
