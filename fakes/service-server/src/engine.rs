//! The one task that owns the core and the store.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::{Request, Response};
use vlab_api::types::ErrorBody;

use crate::Limits;
use crate::metrics::Metrics;
use crate::store::{PoolState, Store, StoreError};
use vlab_service::kube::{Ask, Door, DoorConfig};
use vlab_service::{Core, CoreConfig, Snapshot, Stats, Write};

use crate::hub::Said;

/// What the engine drives: the core, or a stand-in in the shell's own tests.
pub(crate) trait Logic: Send + 'static {
    type Config: Clone + Send + 'static;
    fn new(config: Self::Config, snapshot: Snapshot) -> Self;
    fn handle(&mut self, now: Timestamp, request: &Request) -> Response;
    fn wake(&mut self, now: Timestamp);
    fn next_wake(&self) -> Option<Timestamp>;
    fn take_writes(&mut self) -> Vec<Write>;
    fn confirm(&mut self);
    fn rollback(&mut self);
    fn stats(&self) -> Stats;
    /// Are there controllers that work on an API server? The rest is about them.
    fn has_door(&self) -> bool {
        false
    }
    /// When they have something to do.
    fn door_due(&self) -> Option<Timestamp> {
        None
    }
    /// They do what is due, after they heard this.
    fn door(&mut self, _: Timestamp, _: Option<Said>) {}
    /// They hear what was stored.
    fn door_stored(&mut self, _: Timestamp, _: &[Write]) {}
    /// They begin anew: what they had decided was undone.
    fn door_anew(&mut self) {}
    /// What they want to ask the API server.
    fn take_asks(&mut self) -> Vec<Ask> {
        Vec::new()
    }
}

/// The service and, where it has an API server to work on, its controllers.
pub(crate) struct Served {
    core: Core,
    door: Option<Door>,
    config: ServedConfig,
}

/// How a [`Served`] is to be.
#[derive(Clone, Debug)]
pub(crate) struct ServedConfig {
    pub(crate) core: CoreConfig,
    pub(crate) door: Option<DoorConfig>,
}

impl Logic for Served {
    type Config = ServedConfig;
    fn new(config: ServedConfig, snapshot: Snapshot) -> Self {
        let mut core = Core::new(config.core.clone(), snapshot);
        if config.door.is_some() {
            core = core.with_controllers();
        }
        Self { core, door: config.door.clone().map(Door::new), config }
    }
    fn handle(&mut self, now: Timestamp, request: &Request) -> Response {
        self.core.handle(now, request)
    }
    fn wake(&mut self, now: Timestamp) {
        self.core.wake(now);
    }
    fn next_wake(&self) -> Option<Timestamp> {
        self.core.next_wake()
    }
    fn take_writes(&mut self) -> Vec<Write> {
        self.core.take_writes()
    }
    fn confirm(&mut self) {
        self.core.confirm();
    }
    fn rollback(&mut self) {
        self.core.rollback();
    }
    fn stats(&self) -> Stats {
        self.core.stats()
    }
    fn has_door(&self) -> bool {
        self.door.is_some()
    }
    fn door_due(&self) -> Option<Timestamp> {
        self.door.as_ref()?.next_wake()
    }
    fn door(&mut self, now: Timestamp, said: Option<Said>) {
        let Some(door) = &mut self.door else { return };
        match said {
            None => door.wake(&mut self.core, now),
            Some(Said::Answer(tag, answer)) => door.answered(&mut self.core, now, tag, answer),
            Some(Said::News { tag, events, over }) => door.told(&mut self.core, now, tag, events, over),
        }
    }
    fn door_stored(&mut self, now: Timestamp, writes: &[Write]) {
        if let Some(door) = &mut self.door {
            door.rows_changed(now, writes);
        }
    }
    fn door_anew(&mut self) {
        self.door = self.config.door.clone().map(Door::new);
    }
    fn take_asks(&mut self) -> Vec<Ask> {
        self.door.as_mut().map(Door::take_asks).unwrap_or_default()
    }
}

/// Something for the engine to do. Nobody waits for an answer whose receiver is gone; the work is done all the same.
pub(crate) enum Job {
    Request(Asked),
    Health(oneshot::Sender<Result<(), String>>),
    /// The controllers have their lease: they may begin.
    Leads,
    /// The API server said something to controllers of that number.
    Said(u64, Said),
    Stats(oneshot::Sender<(Stats, PoolState)>),
}

/// A request with the way back.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) reply: oneshot::Sender<Response>,
    /// When it was there.
    pub(crate) since: Instant,
}

impl Asked {
    pub(crate) fn new(request: Request, reply: oneshot::Sender<Response>) -> Self {
        Self { request, reply, since: Instant::now() }
    }

    fn answer(self, response: Response) {
        // The client may be gone.
        drop(self.reply.send(response));
    }
}

/// An error body as the API writes it.
pub(crate) fn error(status: u16, reason: impl Into<String>) -> Response {
    let body = ErrorBody {
        kind: "Error".into(),
        id: i64::from(status),
        href: String::new(),
        code: status.to_string(),
        reason: reason.into(),
    };
    Response::json(status, &body)
}

/// How an attempt to handle a batch ended, when it is not done.
enum Unfinished {
    /// One request made the core panic and was answered; the others are as they were.
    Again(Vec<Asked>),
    /// The store refused the changes of the batch.
    Refused(Vec<Asked>, String),
    /// The store is lost, everybody was answered.
    Lost(String),
}

/// When a host asked last is stored so long after it asked, at the latest. Polls are by far the most frequent requests, and mostly change
/// nothing else: one statement stores the moments of hundreds.
const HEARTBEATS_EVERY: Duration = Duration::from_millis(50);
/// After a monitor run that could not be finished, the next one waits this long.
const MONITOR_RETRY: Duration = Duration::from_secs(1);

/// What comes to the engine, and what it asks others.
pub(crate) struct Ways {
    pub(crate) queue: mpsc::Receiver<Job>,
    /// What the controllers ask goes there, with the number of these controllers.
    pub(crate) asks: Option<mpsc::UnboundedSender<(u64, Ask)>>,
}

pub(crate) struct Engine<L: Logic, S> {
    config: L::Config,
    core: L,
    store: S,
    queue: mpsc::Receiver<Job>,
    limits: Arc<Limits>,
    metrics: Arc<Metrics>,
    /// The clock never runs backwards for the core.
    last_now: Timestamp,
    /// The first of the monitor runs in a row that could not be finished: since then they are due, however often they are
    /// tried again.
    failing_since: Option<Timestamp>,
    not_before: Timestamp,
    asks: Option<mpsc::UnboundedSender<(u64, Ask)>>,
    /// Controllers that began anew do not hear what those before them asked.
    doors: u64,
    /// They have their lease.
    leads: bool,
    door_not_before: Timestamp,
    heartbeats: Heartbeats,
}

/// Polls that were answered and whose moments are still to be stored.
#[derive(Default)]
struct Heartbeats {
    /// By infra-env and host.
    of_hosts: BTreeMap<(Uuid, Uuid), (Timestamp, Option<i64>)>,
    /// When they are to be stored.
    due: Option<Instant>,
    /// Requests that they are of.
    requests: usize,
}

impl Heartbeats {
    /// Takes in what is to be written, if nothing but heartbeats is.
    fn take(&mut self, requests: usize, writes: &[Write]) -> bool {
        if !writes.iter().all(|write| matches!(write, Write::Heartbeat { .. })) {
            return false;
        }
        for write in writes {
            if let Write::Heartbeat { infra_env_id, host_id, checked_in_at, timestamp } = write {
                let known = self.of_hosts.entry((*infra_env_id, *host_id)).or_default();
                *known = (*checked_in_at, timestamp.or(known.1));
            }
        }
        self.due.get_or_insert_with(|| Instant::now() + HEARTBEATS_EVERY);
        self.requests += requests;
        true
    }

    /// What they are as writes, older than all that is decided now.
    fn writes(&self) -> impl Iterator<Item = Write> + '_ {
        self.of_hosts.iter().map(|((infra_env_id, host_id), (checked_in_at, timestamp))| Write::Heartbeat {
            infra_env_id: *infra_env_id,
            host_id: *host_id,
            checked_in_at: *checked_in_at,
            timestamp: *timestamp,
        })
    }
}

impl<L: Logic, S: Store> Engine<L, S> {
    pub(crate) fn new(
        config: L::Config,
        store: S,
        snapshot: Snapshot,
        ways: Ways,
        limits: Arc<Limits>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let Ways { queue, asks } = ways;
        let core = L::new(config.clone(), snapshot);
        // What fell due while no service ran is due now, not overdue.
        let not_before = Timestamp::now();
        Self {
            config,
            core,
            store,
            queue,
            limits,
            metrics,
            last_now: Timestamp::UNSET,
            failing_since: None,
            not_before,
            asks,
            doors: 0,
            leads: false,
            door_not_before: not_before,
            heartbeats: Heartbeats::default(),
        }
    }

    /// Until then it only answers.
    pub(crate) fn acting_from(mut self, from: Timestamp) -> Self {
        self.not_before = self.not_before.max(from);
        self
    }

    /// Runs until all senders of jobs are gone.
    pub(crate) async fn run(mut self) -> Result<(), StoreError> {
        let mut waiting = Vec::new();
        // A core that was never told the time has nothing to do: what is due may be so before anybody asks anything.
        let mut begins = Some(self.not_before);
        loop {
            let due = self.core.next_wake().map(|at| at.max(self.not_before)).or(begins);
            self.metrics.monitors_due(self.failing_since.or(due));
            let door_due = self.core.door_due().filter(|_| self.leads).map(|at| at.max(self.door_not_before));
            let next = [due, door_due].into_iter().flatten().min();
            let pause = next.map(|at| at.since(self.now()));
            let stored = self.heartbeats.due.map(|at| at.saturating_duration_since(Instant::now()));
            tokio::select! {
                count = self.queue.recv_many(&mut waiting, self.limits.batch.max(1)) => {
                    if count == 0 {
                        return self.store_heartbeats().await;
                    }
                }
                () = sleep([pause, stored].into_iter().flatten().min()) => {}
            }
            if self.heartbeats.due.is_some_and(|at| at <= Instant::now()) {
                self.store_heartbeats().await?;
            }
            if due.is_some_and(|at| at <= self.now()) {
                begins = None;
                self.monitors().await?;
            }
            if door_due.is_some_and(|at| at <= self.now()) {
                self.controllers(None).await?;
            }
            let mut asked = Vec::with_capacity(waiting.len());
            let mut others = Vec::new();
            // Who has waited long behind few was kept waiting by this computer, and waits no longer now.
            let crowded = waiting.len() >= self.limits.batch;
            for job in waiting.drain(..) {
                match job {
                    Job::Request(one) if crowded && one.since.elapsed() > self.limits.max_wait => self.turn_away(one),
                    Job::Request(one) => asked.push(one),
                    other => others.push(other),
                }
            }
            if !asked.is_empty() {
                self.requests(asked).await?;
            }
            for job in others {
                match job {
                    Job::Health(reply) => {
                        let health = self.store.health().await.map_err(|e| e.to_string());
                        drop(reply.send(health));
                    }
                    Job::Stats(reply) => drop(reply.send((self.core.stats(), self.store.pool()))),
                    Job::Leads => self.leads = true,
                    Job::Said(door, said) if door == self.doors => self.controllers(Some(said)).await?,
                    Job::Said(..) | Job::Request(_) => {}
                }
            }
        }
    }

    /// More come than can be served. Whoever waited so long has given up soon, if not yet, and what is done for those that are gone is
    /// lost for the others: it is told to come again, as long after this as it has waited.
    fn turn_away(&self, one: Asked) {
        self.metrics.turned_away();
        let waited = one.since.elapsed();
        let after = waited.as_secs().max(1).to_string();
        let reason = format!("too many requests: this one has waited for {:.1} s", waited.as_secs_f64());
        one.answer(error(429, reason).header("retry-after", after));
    }

    /// Milliseconds are all that the wire and the stored rows keep: finer ones would not survive a restart.
    fn now(&mut self) -> Timestamp {
        let micros = Timestamp::now().as_micros();
        self.last_now = self.last_now.max(Timestamp::from_micros(micros - micros.rem_euclid(1000)));
        self.last_now
    }

    /// The controllers hear something, or do what is due.
    async fn controllers(&mut self, said: Option<Said>) -> Result<(), StoreError> {
        let now = self.now();
        let core = &mut self.core;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| core.door(now, said))) {
            self.panicked("the controllers", &panic_text(&*panic));
            self.controllers_anew(now);
            return Ok(());
        }
        let writes = self.core.take_writes();
        match self.commit(0, writes).await {
            Ok(()) => {
                for ask in self.core.take_asks() {
                    if let Some(asks) = &self.asks {
                        // Its receiver lives as long as the service.
                        let _ = asks.send((self.doors, ask));
                    }
                }
                Ok(())
            }
            Err(StoreError::Rejected(reason)) => {
                self.core.rollback();
                self.controllers_anew(now);
                tracing::error!(%reason, "what the controllers decided could not be stored");
                Ok(())
            }
            Err(lost) => {
                self.core.rollback();
                self.recover(lost.to_string()).await
            }
        }
    }

    fn controllers_anew(&mut self, now: Timestamp) {
        self.core.door_anew();
        self.doors += 1;
        self.door_not_before = now + MONITOR_RETRY;
    }

    async fn monitors(&mut self) -> Result<(), StoreError> {
        let now = self.now();
        let start = Instant::now();
        let core = &mut self.core;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| core.wake(now))) {
            self.panicked("the monitors", &panic_text(&*panic));
            self.monitors_failed(now);
            return Ok(());
        }
        let decided = start.elapsed();
        let writes = self.core.take_writes();
        match self.commit(0, writes).await {
            Ok(()) => {
                self.failing_since = None;
                self.metrics.monitor_run(decided);
                Ok(())
            }
            Err(StoreError::Rejected(reason)) => {
                self.core.rollback();
                self.monitors_failed(now);
                tracing::error!(%reason, "what the monitors decided could not be stored");
                Ok(())
            }
            Err(lost) => {
                self.core.rollback();
                self.recover(lost.to_string()).await
            }
        }
    }

    fn monitors_failed(&mut self, now: Timestamp) {
        self.failing_since.get_or_insert(now);
        self.not_before = now + MONITOR_RETRY;
    }

    async fn requests(&mut self, asked: Vec<Asked>) -> Result<(), StoreError> {
        let mut batches = vec![asked];
        while let Some(batch) = batches.pop() {
            match self.attempt(batch).await {
                Ok(()) => {}
                Err(Unfinished::Again(rest)) => batches.push(rest),
                Err(Unfinished::Refused(mut batch, reason)) => {
                    if batch.len() == 1 {
                        tracing::warn!(%reason, "the changes of a request could not be stored");
                        batch.drain(..).for_each(|one| one.answer(error(500, &reason)));
                    } else {
                        // One of them is to blame, the others must not suffer: each by itself.
                        batches.extend(batch.into_iter().rev().map(|one| vec![one]));
                    }
                }
                Err(Unfinished::Lost(reason)) => {
                    let why = format!("the database was lost: {reason}");
                    batches.drain(..).flatten().for_each(|one| one.answer(error(500, &why)));
                    self.recover(reason).await?;
                }
            }
        }
        Ok(())
    }

    async fn attempt(&mut self, mut asked: Vec<Asked>) -> Result<(), Unfinished> {
        let now = self.now();
        let mut responses = Vec::with_capacity(asked.len());
        let mut writes = Vec::new();
        // From here on answers rest on changes that are not stored yet.
        let mut first_change = asked.len();
        for position in 0..asked.len() {
            let (core, request) = (&mut self.core, &asked[position].request);
            match catch_unwind(AssertUnwindSafe(|| core.handle(now, request))) {
                Ok(response) => responses.push(response),
                Err(panic) => {
                    let what = format!("{} {}", request.method, request.path);
                    self.panicked(&what, &panic_text(&*panic));
                    asked.remove(position).answer(error(500, "internal error"));
                    return if asked.is_empty() { Ok(()) } else { Err(Unfinished::Again(asked)) };
                }
            }
            let new = self.core.take_writes();
            if !new.is_empty() {
                first_change = first_change.min(position);
                writes.extend(new);
            }
        }
        match self.commit(asked.len(), writes).await {
            Ok(()) => {
                asked.into_iter().zip(responses).for_each(|(one, response)| one.answer(response));
                Ok(())
            }
            Err(StoreError::Rejected(reason)) => {
                self.core.rollback();
                Err(Unfinished::Refused(asked, reason))
            }
            Err(lost) => {
                self.core.rollback();
                let why = lost.to_string();
                for (position, (one, response)) in asked.into_iter().zip(responses).enumerate() {
                    one.answer(if position < first_change { response } else { error(500, &why) });
                }
                Err(Unfinished::Lost(why))
            }
        }
    }

    /// Stores when hosts asked last, where nothing else has brought that along.
    async fn store_heartbeats(&mut self) -> Result<(), StoreError> {
        if self.heartbeats.due.is_none() {
            return Ok(());
        }
        match self.commit_all(0, Vec::new()).await {
            Ok(()) => Ok(()),
            Err(StoreError::Rejected(reason)) => {
                self.heartbeats = Heartbeats::default();
                tracing::error!(%reason, "when hosts asked last could not be stored");
                Ok(())
            }
            Err(lost) => {
                self.core.rollback();
                self.recover(lost.to_string()).await
            }
        }
    }

    /// Stores what the core decided, and tells it and its controllers so.
    async fn commit(&mut self, requests: usize, writes: Vec<Write>) -> Result<(), StoreError> {
        // Controllers are told what was stored, and want to know it at once.
        if writes.is_empty() || !self.core.has_door() && self.heartbeats.take(requests, &writes) {
            self.core.confirm();
            return Ok(());
        }
        self.commit_all(requests, writes).await
    }

    async fn commit_all(&mut self, requests: usize, writes: Vec<Write>) -> Result<(), StoreError> {
        let requests = requests + self.heartbeats.requests;
        let writes: Vec<Write> = self.heartbeats.writes().chain(writes).collect();
        let count = writes.len();
        let for_door = if self.core.has_door() { writes.clone() } else { Vec::new() };
        let events: Vec<_> = if tracing::enabled!(tracing::Level::INFO) {
            writes
                .iter()
                .filter_map(|w| match w {
                    Write::AppendEvent(row) => Some(row.event.clone()),
                    _ => None,
                })
                .collect()
        } else {
            Vec::new()
        };
        let start = Instant::now();
        self.store.commit(writes).await?;
        self.heartbeats = Heartbeats::default();
        self.core.confirm();
        if !for_door.is_empty() {
            let now = self.now();
            self.core.door_stored(now, &for_door);
        }
        self.metrics.commit(requests, count, start.elapsed());
        for event in events {
            let name = event.name.as_deref().unwrap_or_default();
            tracing::info!(name, severity = event.severity.as_str(), "{}", event.message);
        }
        Ok(())
    }

    fn panicked(&mut self, what: &str, panic: &str) {
        self.metrics.panic();
        tracing::error!(what, panic, "a defect of the service: the request was undone");
        self.core.rollback();
    }

    /// Waits until the store is back and starts over from what it has. Whoever asks meanwhile is told.
    async fn recover(&mut self, reason: String) -> Result<(), StoreError> {
        tracing::warn!(%reason, "the database is lost, connecting again");
        self.metrics.store_lost();
        let since = Instant::now();
        let Self { store, queue, leads, .. } = self;
        let mut why = format!("the database was lost: {reason}");
        let mut pause = Duration::from_millis(10);
        let snapshot = loop {
            let wait = pause;
            let loading = async {
                tokio::time::sleep(wait).await;
                store.load().await
            };
            tokio::pin!(loading);
            let outcome = loop {
                tokio::select! {
                    outcome = &mut loading => break outcome,
                    job = queue.recv() => match job {
                        Some(Job::Request(one)) => one.answer(error(500, &why)),
                        Some(Job::Health(reply)) => drop(reply.send(Err(why.clone()))),
                        Some(Job::Stats(reply)) => drop(reply.send((Stats::default(), PoolState::default()))),
                        Some(Job::Leads) => *leads = true,
                        // The controllers begin anew, too.
                        Some(Job::Said(..)) => {}
                        // Nobody is left to serve.
                        None => return Ok(()),
                    },
                }
            };
            match outcome {
                Ok(snapshot) => break snapshot,
                // The lock can be held by our own last connection, whose end the server has not seen yet.
                Err(error) if error.is_transient() || matches!(error, StoreError::InUse { .. }) => {
                    tracing::warn!(%error, "the database is still away");
                    why = error.to_string();
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                Err(fatal) => return Err(fatal),
            }
        };
        self.core = L::new(self.config.clone(), snapshot);
        self.heartbeats = Heartbeats::default();
        self.doors += 1;
        self.metrics.store_back();
        tracing::info!(away = ?since.elapsed(), "the database is back");
        Ok(())
    }
}

async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(host: u128, seconds: i64, timestamp: Option<i64>) -> Write {
        let (infra_env_id, host_id) = (Uuid::nil(), Uuid::from_u128(host));
        Write::Heartbeat { infra_env_id, host_id, checked_in_at: Timestamp::from_secs(seconds), timestamp }
    }

    #[test]
    fn of_each_host_the_last_poll_counts_and_the_last_clock_that_it_told() {
        let mut beats = Heartbeats::default();
        assert!(beats.take(2, &[beat(1, 10, Some(7)), beat(2, 11, None)]));
        assert!(beats.take(1, &[beat(1, 12, None)]));
        assert_eq!(beats.writes().collect::<Vec<_>>(), [beat(1, 12, Some(7)), beat(2, 11, None)]);
        assert!(beats.due.is_some() && beats.requests == 3);
    }

    #[test]
    fn what_changes_more_is_stored_before_it_is_answered() {
        let mut beats = Heartbeats::default();
        assert!(!beats.take(2, &[beat(1, 10, None), Write::DeleteCluster(Uuid::nil())]));
        assert!(beats.due.is_none() && beats.writes().next().is_none());
    }
}
