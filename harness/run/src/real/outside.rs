//! What faults do to the programs of a run in real time: to the service, its PostgreSQL, and the way between it and hosts. What was
//! done is undone when the fault ends, and at the end of the run however that came.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::net::{Ipv4Addr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vlab_client::Endpoint;
use vlab_drive::conductor::Task;
use vlab_drive::fault::effect::{Program, ServiceFault};
use vlab_drive::prepare::Prepared;
use vlab_drive::requests::Side;
use vlab_gateway::{Answered, FaultEffect, Gateway, News};
use vlab_scenario::{FaultTarget, Host, WhichReplica};

use super::hub::HubFaults;
use crate::error::{LabError, lab};
use crate::service::{Restart, RunningService, watch};

/// How long what is still being done may take at the end of a run.
const LAST: Duration = Duration::from_secs(60);
/// How often it is looked whether a slow query was there, or one that waits for a lock.
const LOOK: Duration = Duration::from_millis(50);

/// Something happened.
pub(super) enum Report {
    /// A fault had an effect.
    Effect { fault: Arc<str>, host: Option<Uuid>, what: String },
    /// A program runs again that a fault had stopped.
    Done { fault: Arc<str>, who: Program },
    /// The service runs again, which had ended by itself.
    Up,
    /// A program did not end when it was asked to.
    Killed(Program, String),
    /// A machine was answered what nobody should be.
    Answered(Answered),
    /// For the history.
    Note(String),
    /// The lab cannot do what it should.
    Broken(LabError),
}

type Work = Pin<Box<dyn Future<Output = Report> + Send>>;

/// What faults do outside of the conductor.
pub(super) struct Outside {
    service: Arc<dyn RunningService>,
    /// Where a fault is about the way to the service, or machines are on that way, whose answers nobody else hears.
    gateway: Option<(Gateway, mpsc::UnboundedReceiver<News>)>,
    /// The gateway tells what hosts are answered, because the conductor does not hear it.
    listens: bool,
    /// Only where the run has an API server.
    hub: Option<HubFaults>,
    /// Where hosts find the service.
    pub(super) hosts: Endpoint,
    /// Where the user finds it.
    pub(super) user: Endpoint,
    work: Vec<Work>,
    /// The service is down because a fault wants it.
    service_down: bool,
    /// What is to be done to the service once another fault has let it run again.
    later: VecDeque<(Arc<str>, WhichReplica, bool, Duration)>,
    tell: mpsc::UnboundedSender<Report>,
    told: mpsc::UnboundedReceiver<Report>,
    paused: BTreeMap<Arc<str>, Program>,
    /// What is done in the service's database, and what ends it.
    in_database: BTreeMap<Arc<str>, (CancellationToken, JoinHandle<()>)>,
    slowed: u32,
    /// The run ends: nothing is waited for any more.
    hurry: CancellationToken,
}

impl Outside {
    /// Nothing is done yet. A gateway is made only when a fault of the scenario needs it, or for machines.
    pub(super) fn new(prepared: &Prepared, service: &Arc<dyn RunningService>) -> Result<Self, LabError> {
        let faults = &prepared.scenario.faults;
        if let Some((fault, why)) = faults.iter().find_map(|fault| Some((fault, service.can(fault).err()?))) {
            return Err(LabError::new("faults", format!("{}: {why}", fault.name)));
        }
        let endpoint = &service.about().endpoint;
        let (mut hosts, mut user) = (endpoint.clone(), endpoint.clone());
        let mut gateway = None;
        let listens = prepared.scenario.hosts.iter().any(Host::is_machine);
        let goes_wrong = faults.iter().any(|f| f.target == FaultTarget::Gateway);
        if goes_wrong || listens {
            let (mut ours, effects) = Gateway::new(endpoint.address(), prepared.seed);
            for (side, endpoint) in [(Side::Hosts, &mut hosts), (Side::User, &mut user)] {
                if side == Side::User && !goes_wrong {
                    continue;
                }
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(lab("gateway"))?;
                *endpoint = Endpoint::new(ours.listen(listener, side).map_err(lab("gateway"))?);
            }
            gateway = Some((ours, effects));
        }
        let (tell, told) = mpsc::unbounded_channel();
        let hub = service.about().hub.as_ref().map(|(endpoint, _)| HubFaults::new(endpoint.clone(), tell.clone()));
        Ok(Self {
            service: Arc::clone(service),
            gateway,
            listens,
            hub,
            hosts,
            user,
            work: Vec::new(),
            service_down: false,
            later: VecDeque::new(),
            tell,
            told,
            paused: BTreeMap::new(),
            in_database: BTreeMap::new(),
            slowed: 0,
            hurry: CancellationToken::new(),
        })
    }

    /// Does what a fault wants.
    pub(super) async fn carry_out(&mut self, task: Task) {
        match task {
            Task::Do(fault, ServiceFault::Restart { who: Program::Service, of, kill, down }) => {
                if self.service_down {
                    self.later.push_back((fault, of, kill, down));
                } else {
                    self.service_down = true;
                    self.restart((Program::Service, of), Some(fault), kill, down);
                }
            }
            Task::Do(fault, ServiceFault::Restart { who: Program::Postgres, of, kill, down }) => {
                self.restart((Program::Postgres, of), Some(fault), kill, down);
            }
            Task::Do(fault, ServiceFault::Pause(who, of)) => match pause(&*self.service, (who, of), true).await {
                Ok(()) => {
                    self.paused.insert(fault.clone(), who);
                    self.effect(fault, format!("{} was paused", who.words()));
                }
                Err(error) => self.broken(error),
            },
            Task::Do(fault, ServiceFault::SlowQueries(by)) => {
                let Some(conninfo) = self.conninfo() else { return };
                let over = CancellationToken::new();
                let slow = Slow { name: format!("vlab_slow_{}", self.slowed), conninfo, by };
                self.slowed += 1;
                let task = tokio::spawn(slow.run(fault.clone(), over.clone(), self.tell.clone()));
                self.in_database.insert(fault, (over, task));
            }
            Task::Do(fault, ServiceFault::Lock(table)) => {
                let Some(conninfo) = self.conninfo() else { return };
                let over = CancellationToken::new();
                let lock = Lock { table: table.as_str(), conninfo };
                let task = tokio::spawn(lock.run(fault.clone(), over.clone(), self.tell.clone()));
                self.in_database.insert(fault, (over, task));
            }
            Task::Do(fault, ServiceFault::Hub(order)) => {
                let ordered = match &mut self.hub {
                    Some(hub) => hub.order(fault.clone(), &order).await,
                    // No scenario with such a fault comes this far.
                    None => Err("this run has no API server".to_owned()),
                };
                if let Err(error) = ordered {
                    self.broken(format!("the fault {fault} cannot be injected: {error}"));
                }
            }
            Task::Do(_, ServiceFault::Requests(rule)) => {
                if let Some((gateway, _)) = &self.gateway {
                    gateway.inject(rule);
                }
            }
            Task::Undo(fault) => self.undo(&fault).await,
        }
    }

    /// The service's database, where that is ours.
    fn conninfo(&self) -> Option<String> {
        let conninfo = self.service.about().conninfo.clone();
        if conninfo.is_none() {
            self.broken("the service's database is not ours".to_owned());
        }
        conninfo
    }

    /// Does what had to wait for the service.
    pub(super) fn catch_up(&mut self) {
        if !self.service_down
            && let Some((fault, of, kill, down)) = self.later.pop_front()
        {
            self.service_down = true;
            self.restart((Program::Service, of), Some(fault), kill, down);
        }
    }

    /// The service has ended by itself, and is started again as a pod would be.
    pub(super) fn start_again(&mut self, down: Duration) {
        self.service_down = true;
        self.restart((Program::Service, WhichReplica::All), None, false, down);
    }

    /// Without a fault it has ended by itself.
    fn restart(&mut self, (which, of): (Program, WhichReplica), fault: Option<Arc<str>>, kill: bool, down: Duration) {
        let (tell, name) = (self.tell.clone(), fault.clone());
        let stopped = move |what: String, killed: Option<String>| {
            if let Some(how) = killed {
                let _ = tell.send(Report::Killed(which, how));
            }
            if let Some(fault) = name.clone() {
                let _ = tell.send(Report::Effect { fault, host: None, what });
            }
        };
        let order = Restart {
            which,
            of,
            kill,
            down,
            again: fault.is_none(),
            hurry: self.hurry.clone(),
            stopped: Box::new(stopped),
        };
        let restarted = Arc::clone(&self.service).restart(order);
        self.work.push(Box::pin(async move {
            match (restarted.await, fault) {
                (Ok(()), Some(fault)) => Report::Done { fault, who: which },
                (Ok(()), None) => Report::Up,
                (Err(error), _) => Report::Broken(error),
            }
        }));
    }

    async fn undo(&mut self, fault: &str) {
        if let Some(count) = self.gateway.as_ref().and_then(|(gateway, _)| gateway.clear(fault)) {
            let _ = self.tell.send(Report::Note(format!("the fault {fault} hit {count} requests")));
        }
        if let Some((over, _)) = self.in_database.get(fault) {
            over.cancel();
        }
        if let Some(hub) = &self.hub
            && let Err(error) = hub.cancel(fault).await
        {
            self.broken(format!("the fault {fault} cannot be ended: {error}"));
        }
        if let Some(who) = self.paused.remove(fault)
            && !self.paused.values().any(|other| *other == who)
            && let Err(error) = pause(&*self.service, (who, WhichReplica::All), false).await
        {
            self.broken(error);
        }
    }

    fn effect(&self, fault: Arc<str>, what: String) {
        let _ = self.tell.send(Report::Effect { fault, host: None, what });
    }

    fn broken(&self, error: String) {
        let _ = self.tell.send(Report::Broken(LabError::new("faults", error)));
    }

    /// What happens next; may be given up and asked again.
    pub(super) async fn next(&mut self) -> Report {
        let Self { gateway, listens, work, told, service_down, .. } = self;
        let requests = async {
            let Some((_, news)) = gateway else { return std::future::pending().await };
            while let Some(news) = news.recv().await {
                match news {
                    News::Effect(FaultEffect { fault, host, what }) => return Report::Effect { fault, host, what },
                    News::Answered(answered) if *listens => return Report::Answered(answered),
                    News::Answered(_) => {}
                }
            }
            std::future::pending().await
        };
        let works = poll_fn(|cx| {
            for at in 0..work.len() {
                if let Poll::Ready(report) = work[at].as_mut().poll(cx) {
                    // The order of the others does not matter.
                    drop(work.swap_remove(at));
                    return Poll::Ready(report);
                }
            }
            Poll::Pending
        });
        let report = tokio::select! {
            biased;
            Some(report) = told.recv() => report,
            report = requests => report,
            report = works => report,
        };
        if matches!(report, Report::Done { who: Program::Service, .. } | Report::Up) {
            *service_down = false;
        }
        report
    }

    /// Undoes all that is not undone yet, waits for what is on its way, and tells what the gateway has counted.
    pub(super) async fn finish(&mut self) -> Vec<Report> {
        self.hurry.cancel();
        for fault in self.paused.keys().cloned().collect::<Vec<_>>() {
            self.undo(&fault).await;
        }
        for (fault, (over, task)) in std::mem::take(&mut self.in_database) {
            over.cancel();
            if tokio::time::timeout(LAST, task).await.is_err() {
                self.broken(format!("what the fault {fault} does in the database cannot be ended"));
            }
        }
        if let Some(hub) = &mut self.hub {
            hub.finish().await;
        }
        let mut last = Vec::new();
        let end = tokio::time::Instant::now() + LAST;
        while !self.work.is_empty() {
            match tokio::time::timeout_at(end, self.next()).await {
                Ok(report) => last.push(report),
                Err(_) => {
                    self.broken("a program that a fault stopped did not come back".to_owned());
                    self.work.clear();
                }
            }
        }
        while let Ok(report) = self.told.try_recv() {
            last.push(report);
        }
        last.extend(self.gateway.as_ref().map(|(gateway, _)| Report::Note(through(gateway))));
        last
    }
}

/// What went through the gateway, in a line.
fn through(gateway: &Gateway) -> String {
    let counts = gateway.counts();
    let all: u64 = counts.values().map(|c| c.requests).sum();
    let each: Vec<String> = counts
        .iter()
        .map(|((operation, status), c)| {
            let status = if *status == 0 { "unanswered".to_owned() } else { status.to_string() };
            format!("{operation} {status}: {} (at most {} ms)", c.requests, c.longest.as_millis())
        })
        .collect();
    format!("{all} requests went through the gateway; {}", each.join(", "))
}

async fn pause(service: &dyn RunningService, (who, of): (Program, WhichReplica), still: bool) -> Result<(), String> {
    let what = if still { "paused" } else { "resumed" };
    let paused = service.pause(who, of, still).await;
    paused.map_err(|error| format!("{} cannot be {what}: {error}", who.words()))
}

/// Holds a lock on a table of the service's: reading goes on, and whoever writes there (or locks rows) waits until it is let go.
struct Lock {
    table: &'static str,
    conninfo: String,
}

impl Lock {
    async fn run(self, fault: Arc<str>, over: CancellationToken, tell: mpsc::UnboundedSender<Report>) {
        // Given up, the connection ends, and the lock with it.
        let held = tokio::select! {
            held = self.hold(&fault, &tell) => held,
            () = over.cancelled() => Ok(()),
        };
        if let Err(error) = held {
            let error =
                format!("the fault {fault} cannot lock {}: {}", self.table, vlab_lab::postgres::explain(&error));
            let _ = tell.send(Report::Broken(LabError::new("faults", error)));
        }
    }

    /// Takes the lock, tells when the first one waits for it, and holds it for ever.
    async fn hold(&self, fault: &Arc<str>, tell: &mpsc::UnboundedSender<Report>) -> Result<(), tokio_postgres::Error> {
        let client = watch::connect(&self.conninfo).await?;
        client.batch_execute(&format!("BEGIN; LOCK TABLE {} IN EXCLUSIVE MODE", self.table)).await?;
        // Who waits is seen from another connection, too, but this one need not ask for anything else.
        let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = $1::text::regclass AND NOT granted)";
        while !client.query_one(waits, &[&self.table]).await?.get::<_, bool>(0) {
            tokio::time::sleep(LOOK).await;
        }
        let what = format!("a transaction waited for the table {}", self.table);
        let _ = tell.send(Report::Effect { fault: fault.clone(), host: None, what });
        std::future::pending().await
    }
}

/// Makes transactions that write into the service's tables slow: a trigger waits before the first write of each. Before it,
/// so that no transaction waits while it holds a number of the history's, see [`watch`].
struct Slow {
    /// Name of the schema, which has all that it needs.
    name: String,
    conninfo: String,
    by: Duration,
}

impl Slow {
    async fn run(self, fault: Arc<str>, over: CancellationToken, tell: mpsc::UnboundedSender<Report>) {
        let broken = |error: tokio_postgres::Error| {
            let error = format!("the fault {fault} cannot make queries slow: {}", vlab_lab::postgres::explain(&error));
            Report::Broken(LabError::new("faults", error))
        };
        let ended = tokio::select! {
            ended = self.slow_down(&fault, &tell) => ended,
            () = over.cancelled() => Ok(()),
        };
        // The database may have been restarted meanwhile: a connection of its own.
        if let Err(error) = ended.and(self.clear().await) {
            let _ = tell.send(broken(error));
        }
    }

    /// Puts the triggers there and waits until one has waited; then waits for ever.
    async fn slow_down(
        &self,
        fault: &Arc<str>,
        tell: &mpsc::UnboundedSender<Report>,
    ) -> Result<(), tokio_postgres::Error> {
        let client = watch::connect(&self.conninfo).await?;
        let (name, seconds) = (&self.name, self.by.as_secs_f64());
        client
            .batch_execute(&format!(
                "CREATE SCHEMA {name};
                 CREATE SEQUENCE {name}.struck;
                 CREATE FUNCTION {name}.wait() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN
                     IF current_setting('{name}.last', true) IS DISTINCT FROM txid_current()::text THEN
                         PERFORM set_config('{name}.last', txid_current()::text, true);
                         PERFORM nextval('{name}.struck');
                         PERFORM pg_sleep({seconds});
                     END IF;
                     RETURN NULL;
                 END $$"
            ))
            .await?;
        // One by one: whoever locks several tables at once can be in the service's way for ever.
        for table in self.tables(&client).await? {
            client
                .batch_execute(&format!(
                    "CREATE TRIGGER {name} BEFORE INSERT OR UPDATE OR DELETE ON {table}
                     FOR EACH STATEMENT EXECUTE FUNCTION {name}.wait()"
                ))
                .await?;
        }
        loop {
            let row = client.query_one(&format!("SELECT is_called FROM {name}.struck"), &[]).await?;
            if row.get(0) {
                let what = format!("a transaction that writes waited {} ms", self.by.as_millis());
                let _ = tell.send(Report::Effect { fault: fault.clone(), host: None, what });
                return std::future::pending().await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn clear(&self) -> Result<(), tokio_postgres::Error> {
        let client = watch::connect(&self.conninfo).await?;
        let name = &self.name;
        for table in self.tables(&client).await? {
            client.batch_execute(&format!("DROP TRIGGER IF EXISTS {name} ON {table}")).await?;
        }
        client.batch_execute(&format!("DROP SCHEMA IF EXISTS {name} CASCADE")).await
    }

    /// The service's tables.
    async fn tables(&self, client: &tokio_postgres::Client) -> Result<Vec<String>, tokio_postgres::Error> {
        let rows = client
            .query(
                "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
                 WHERE schemaname = ANY (current_schemas(false)) ORDER BY 1",
                &[],
            )
            .await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}
