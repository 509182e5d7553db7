//! A service that is a process of this computer, with PostgreSQL beside it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use vlab_client::Endpoint;
use vlab_drive::fault::effect::Program;
use vlab_judge::result::Startup;
use vlab_lab::postgres::{PgCluster, PgOptions, Tcp};
use vlab_lab::proc::Usage;
use vlab_lab::process::{Child, ProcessError};
use vlab_lab::tree::copy_tree;
use vlab_lab::wait::ReadyError;
use vlab_model::lease::LOST;
use vlab_scenario::{Fault, FaultTarget, Injection, ServiceInjection, WhichReplica};

use super::environment::Database;
use super::hub::{Hub, HubOrder};
use super::replicas::{self, Balancer, Leases};
use super::scratch::{self, Scratch};
use super::{
    About, BoxFuture, DATABASE, Down, Launch, Launched, Launcher, OneOf, ProgramEnd, Restart, RunningService, STOP,
    ServiceOrder, StartError, not_ended_well, shift,
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
    launcher: Launcher,
    conninfo: String,
    postgres: PgCluster,
    /// How many faults have PostgreSQL down.
    postgres_down: AtomicU32,
    /// The programs that are the service, mostly one.
    replicas: Vec<Replica>,
    /// In front of several.
    balancer: Option<Balancer>,
    /// The API server on which several real ones have their leases.
    leases: Option<Arc<Hub>>,
    /// The API server that the controllers work on.
    hub: Option<Arc<Hub>>,
    /// Has the service exited unexpectedly?
    surprised: AtomicBool,
    scratch: Mutex<Option<Scratch>>,
    /// Does Hive's and metal3's part on the hub of a service that has controllers of its own.
    others: Option<AbortOnDropHandle<()>>,
}

/// A program that is the service, or one of several.
struct Replica {
    launch: Launch,
    /// Where it answers, after it was restarted, too.
    address: SocketAddr,
    /// `None` while a fault has it stopped.
    child: Mutex<Option<Arc<Child>>>,
    /// It stands still.
    still: AtomicBool,
}

impl Replica {
    fn child(&self) -> Option<Arc<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take_child(&self) -> Option<Arc<Child>> {
        self.still.store(false, Ordering::Relaxed);
        self.child.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Is it the one that is running?
    fn runs(&self, child: &Arc<Child>) -> bool {
        self.child().is_some_and(|running| Arc::ptr_eq(&running, child))
    }
}

/// What was started of a service.
struct Started {
    replicas: Vec<(Launch, Launched)>,
    balancer: Option<Balancer>,
    leases: Option<Arc<Hub>>,
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
        Ok((conninfo, hub, started)) => {
            let Started { replicas, balancer, leases } = started;
            // All of them.
            let ready = replicas.iter().map(|(_, launched)| launched.ready).max().unwrap_or_default();
            let startup = Startup {
                service_ready_ms: ready.as_secs_f64() * 1e3,
                postgres_ready_ms: Some(postgres.start_times().total.as_secs_f64() * 1e3),
            };
            // There is one at least.
            let first = replicas.first().map(|(_, launched)| (launched.endpoint.clone(), launched.version.clone()));
            let (first, mut version) = first.unwrap_or_else(|| (Endpoint::new(([0; 4], 0).into()), String::new()));
            if replicas.len() > 1 {
                version = format!("{} of {version}", replicas.len());
            }
            let about = About {
                endpoint: balancer.as_ref().map_or(first, |balancer| Endpoint::new(balancer.address())),
                version,
                stands_on: BTreeMap::from([("postgresql".to_owned(), postgres.version().to_owned())]),
                conninfo: Some(conninfo.clone()),
                startup: Some(startup),
                hub: hub.as_ref().map(|hub| (hub.endpoint().clone(), hub.kubeconfig().to_owned())),
            };
            let others = hub
                .as_ref()
                .filter(|_| kind.real)
                .map(|hub| hub.others(hub.endpoint().clone(), order.prepared.clock_scale));
            let replicas = replicas.into_iter().map(|(launch, launched)| Replica {
                launch,
                address: launched.endpoint.address(),
                child: Mutex::new(Some(Arc::new(launched.child))),
                still: AtomicBool::new(false),
            });
            Ok(Arc::new(Local {
                about,
                launcher: kind.launcher,
                conninfo,
                postgres,
                postgres_down: AtomicU32::new(0),
                replicas: replicas.collect(),
                balancer,
                leases,
                hub,
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
) -> Result<(String, Option<Arc<Hub>>, Started), LabError> {
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
        conninfo: conninfo.clone(),
        tcp_conninfo,
        scratch: scratch.as_ref().map(|scratch| scratch.path().to_owned()),
        real_tools: order.real_tools,
        ready_within: order.ready_within,
        inside: order.inside.cloned(),
        hub: hub.clone(),
        one_of: None,
    };
    let started = order.or_end(start_all(order, kind, launch)).await;
    if let (Err(_), Some(hub)) = (&started, &hub) {
        hub.stop().await;
    }
    Ok((conninfo, hub, started?))
}

/// Starts as many programs of the service as the scenario wants.
async fn start_all(order: &ServiceOrder<'_>, kind: &ProcessKind, launch: Launch) -> Result<Started, LabError> {
    let count = usize::try_from(order.prepared.scenario.service.replicas).unwrap_or(1);
    if count < 2 {
        let launched = (kind.launcher)(&launch, None).await.map_err(lab("service"))?;
        return Ok(Started { replicas: vec![(launch, launched)], balancer: None, leases: None });
    }
    let balancer = Balancer::start(count).await.map_err(lab("service"))?;
    // It ends with its last owner, whatever happens here.
    let leases = match &launch.scratch {
        // In a folder that is removed: there are keys in it.
        Some(scratch) if kind.real => {
            let hub = Hub::for_leases(&scratch.join("leases"), order.folder, order.ledger.clone()).await;
            Some(Arc::new(hub.map_err(lab("API server"))?))
        }
        _ => None,
    };
    // All at once, as the pods of a deployment are. Those that are up end with this when one does not get up.
    let mut starting = JoinSet::new();
    for number in 0..count {
        let name = replicas::name(number);
        let mut launch = launch.clone();
        if number > 0 {
            launch.log_file = order.folder.join(format!("{name}.log"));
            launch.address_file = order.folder.join(format!("{name}.address"));
        }
        launch.one_of = Some(OneOf { name, front: balancer.address(), leases: leases.clone() });
        let launcher = kind.launcher;
        starting.spawn(async move { launcher(&launch, None).await.map(|launched| (number, launch, launched)) });
    }
    let mut started = BTreeMap::new();
    while let Some(one) = starting.join_next().await {
        let (number, launch, launched) = one.map_err(lab("service"))?.map_err(lab("service"))?;
        balancer.set(number, Some(launched.endpoint.address()));
        started.insert(number, (launch, launched));
    }
    Ok(Started { replicas: started.into_values().collect(), balancer: Some(balancer), leases })
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
    /// The numbers of the replicas that are meant.
    async fn those(&self, which: WhichReplica) -> Result<Vec<usize>, LabError> {
        let all = 0..self.replicas.len();
        if self.replicas.len() == 1 || which == WhichReplica::All {
            return Ok(all.collect());
        }
        let leases = match &self.leases {
            Some(hub) => Leases::Hub(hub),
            None => Leases::Database(&self.conninfo),
        };
        let leader = replicas::leader(leases).await.map_err(lab("faults"))?;
        Ok(match which {
            WhichReplica::Leader => vec![leader],
            _ => all.filter(|number| *number != leader).take(1).collect(),
        })
    }

    /// Connections come to that one from now on, or do not any more.
    fn in_front(&self, number: usize, ready: bool) {
        if let Some(balancer) = &self.balancer {
            balancer.set(number, ready.then_some(self.replicas[number].address));
        }
    }

    /// For messages.
    fn words(&self, number: usize) -> String {
        match self.replicas.len() {
            1 => "the service".to_owned(),
            _ => format!("the service's replica {}", replicas::name(number)),
        }
    }

    async fn restart_service(self: Arc<Self>, order: Restart) -> Result<(), LabError> {
        let those = self.those(order.of).await?;
        let mut taken = Vec::new();
        for number in those {
            let Some(child) = self.replicas[number].take_child() else {
                return Err(LabError::new("faults", format!("{} does not run", self.words(number))));
            };
            self.in_front(number, false);
            taken.push((number, child));
        }
        for (number, child) in &taken {
            let (status, killed) = if order.kill {
                (child.kill9().await, None)
            } else {
                let stopped = child.stop(STOP).await;
                (stopped.status, not_ended_well(stopped))
            };
            (order.stopped)(format!("{} ended: {status}", self.words(*number)), killed);
        }
        let those: Vec<usize> = taken.into_iter().map(|(number, _)| number).collect();
        order.stay_down().await;
        for number in those {
            self.start_again(number, &order).await?;
        }
        Ok(())
    }

    async fn start_again(&self, number: usize, order: &Restart) -> Result<(), LabError> {
        let replica = &self.replicas[number];
        let mut pause = order.down;
        let launched = loop {
            match (self.launcher)(&replica.launch, Some(replica.address)).await {
                Ok(launched) => break launched,
                Err(error) if order.again && ended_at_start(&error) && !order.hurry.is_cancelled() => {
                    tracing::info!(%error, ?pause, "the service ended again");
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    order.wait(pause).await;
                }
                Err(error) => return Err(lab("service")(error)),
            }
        };
        *replica.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(launched.child));
        self.in_front(number, true);
        Ok(())
    }

    /// Lets the replicas that are meant stand still, or all that do go on.
    async fn pause_service(&self, which: WhichReplica, still: bool) -> Result<(), String> {
        let those = match still {
            true => self.those(which).await.map_err(|error| error.to_string())?,
            false => {
                let all = 0..self.replicas.len();
                all.filter(|number| self.replicas[*number].still.load(Ordering::Relaxed)).collect()
            }
        };
        for number in those {
            match self.replicas[number].child() {
                Some(child) if child.pause(still).await => {}
                Some(_) => return Err("has it ended?".to_owned()),
                None => return Err("it does not run".to_owned()),
            }
            self.replicas[number].still.store(still, Ordering::Relaxed);
            self.in_front(number, !still);
        }
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
        let running = self.replicas.iter().enumerate().filter_map(|(number, replica)| Some((number, replica.child()?)));
        let running: Vec<_> = running.collect();
        let service = async move {
            let mut ends: Vec<_> = running
                .into_iter()
                .map(|(number, child)| {
                    Box::pin(async move {
                        let how = child.wait().await;
                        // One that was taken away meanwhile was ended by us.
                        match self.replicas[number].runs(&child) {
                            true if self.replicas.len() > 1 => format!("{how} ({})", replicas::name(number)),
                            true => how.to_string(),
                            false => std::future::pending().await,
                        }
                    })
                })
                .collect();
            let how = poll_fn(|cx| {
                let ended = ends.iter_mut().find_map(|end| match end.as_mut().poll(cx) {
                    Poll::Ready(how) => Some(how),
                    Poll::Pending => None,
                });
                ended.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            self.surprised.store(true, Ordering::Relaxed);
            ProgramEnd::Of { which: Program::Service, how: Some(how) }
        };
        let hub = async {
            match self.hub.as_ref().or(self.leases.as_ref()) {
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
        self.hub.is_some() && self.last_lines(Program::Service, 20).iter().any(|line| line.contains(LOST))
    }

    fn lost(&self) -> Option<ProgramEnd> {
        let gone = self.postgres.postmaster().is_some_and(|postmaster| !postmaster.is_alive());
        let surprising = self.postgres_down.load(Ordering::Relaxed) == 0;
        (gone && surprising).then_some(ProgramEnd::Of { which: Program::Postgres, how: None })
    }

    fn pause(&self, which: Program, of: WhichReplica, still: bool) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            match which {
                Program::Postgres => self.postgres.pause(still).await.map_err(|error| error.to_string()),
                Program::Service => self.pause_service(of, still).await,
            }
        })
    }

    fn restart(self: Arc<Self>, order: Restart) -> BoxFuture<'static, Result<(), LabError>> {
        match order.which {
            Program::Service => Box::pin(self.restart_service(order)),
            Program::Postgres => {
                self.postgres_down.fetch_add(1, Ordering::Relaxed);
                Box::pin(self.restart_postgres(order))
            }
        }
    }

    fn rest(self: Arc<Self>) -> BoxFuture<'static, Result<(), LabError>> {
        // Only a service that is one program is frozen.
        let child = self.replicas.first().and_then(Replica::take_child);
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
            let scratch = self.replicas.first().and_then(|replica| replica.launch.scratch.as_ref());
            let work = scratch.map(|folder| scratch::work(folder));
            let Some(work) = work else { return Ok(()) };
            let kept = into.join(WORK);
            std::fs::create_dir(&kept).and_then(|()| copy_tree(&work, &kept, None)).map_err(lab("snapshot"))
        })
    }

    fn last_lines(&self, which: Program, count: usize) -> Vec<String> {
        match which {
            Program::Service => {
                let children = self.replicas.iter().filter_map(Replica::child);
                children.flat_map(|child| child.last_lines(count)).collect()
            }
            Program::Postgres => self.postgres.last_log_lines(count),
        }
    }

    fn memory(&self, which: Program) -> Option<u64> {
        let pids: Vec<u32> = match which {
            Program::Service => self.replicas.iter().filter_map(|replica| Some(replica.child()?.pid())).collect(),
            Program::Postgres => self.postgres.postmaster().map(|postmaster| postmaster.pid).into_iter().collect(),
        };
        let bytes = pids.into_iter().map(|pid| Usage::of(pid).ok().map(|usage| usage.rss_bytes));
        bytes.collect::<Option<Vec<u64>>>().filter(|all| !all.is_empty()).map(|all| all.iter().sum::<u64>() / 1024)
    }

    fn stop(self: Arc<Self>) -> BoxFuture<'static, Down> {
        Box::pin(async move {
            let Down { mut problems, mut killed } = Down::default();
            let mut ending: JoinSet<_> = self
                .replicas
                .iter()
                .filter_map(Replica::take_child)
                .map(|child| async move { child.stop(STOP).await })
                .collect();
            while let Some(stopped) = ending.join_next().await {
                if let (Ok(stopped), false) = (stopped, self.surprised.load(Ordering::Relaxed)) {
                    killed = killed.or(not_ended_well(stopped));
                }
            }
            if let Some(others) = &self.others {
                others.abort();
            }
            for hub in self.hub.iter().chain(&self.leases) {
                hub.stop().await;
            }
            if let Err(error) = self.postgres.stop().await {
                problems.push(lab("postgresql")(error));
            }
            let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(Err(error)) = scratch.map(Scratch::remove) {
                problems.push(lab("service")(error));
            }
            for replica in &self.replicas {
                let _ = std::fs::remove_file(&replica.launch.address_file);
            }
            Down { problems, killed }
        })
    }
}
