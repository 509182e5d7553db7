//! Drives a fleet of `vlab-agents` in real time: its requests go over sockets, its work is done by whoever gave the shell its
//! hands, and what is seen in a cluster is told to it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::mpsc;
use vlab_agents::{Fleet, Observed, Ran, Work};
use vlab_api::Timestamp;
use vlab_api::actor::{Actor, Reply};
use vlab_api::http::Request;
use vlab_client::{Endpoint, EndpointError, HttpConnection};
use vlab_model::history::What;

use crate::say;

/// Something that the fleet is told.
#[derive(Debug)]
pub enum Event {
    /// An answer of the service.
    Reply(Reply),
    /// A step ran: position of the host, number of the step, what came of it.
    Ran(usize, u32, Ran),
    /// A job of the installer: position of the host, number of the job, gathered logs or what went wrong.
    Done(usize, u32, Result<Vec<u8>, String>),
    /// Percent of the image that was written.
    Progress(usize, u32, u32),
    /// The installer of that host is to end, for this reason.
    End(usize, &'static str),
    /// What was seen of the real cluster at that position.
    Observed(usize, Observed),
    /// The work is over.
    Stop,
}

/// The time as this program counts it: that of the clock at its start, and what has gone by since. A clock that is set, as faults
/// and time servers do, moves no timer of ours, as it moves none of the product's programs.
pub fn steady_now() -> Timestamp {
    static START: OnceLock<(Timestamp, Instant)> = OnceLock::new();
    let (at, since) = START.get_or_init(|| (Timestamp::now(), Instant::now()));
    *at + since.elapsed()
}

/// Where events come in.
pub type Events = mpsc::UnboundedSender<Event>;

/// No answer within this is none, whatever faster time says.
const SHORTEST_REQUEST_BUDGET: Duration = Duration::from_secs(30);
/// Between two tries to find the service's address.
const RESOLVE_AGAIN: Duration = Duration::from_secs(2);

/// Finds the service, and keeps trying while the network comes up. A URL that never will do is an error.
///
/// # Errors
/// When the URL itself cannot be used.
pub async fn find_service(part: &str, url: &str) -> Result<Endpoint, EndpointError> {
    loop {
        match Endpoint::resolve(url).await {
            Err(problem @ EndpointError::Resolve { .. }) => {
                say::note(part, &format!("{problem}; trying again in {RESOLVE_AGAIN:?}"));
                tokio::time::sleep(RESOLVE_AGAIN).await;
            }
            other => return other,
        }
    }
}

/// What a fleet is driven with.
#[derive(Debug)]
pub struct Shell {
    /// The program, as it calls itself in what it says.
    pub part: &'static str,
    /// The service that requests go to.
    pub service: Endpoint,
    /// For whoever has something to tell.
    pub events: Events,
    /// Where it arrives.
    pub incoming: mpsc::UnboundedReceiver<Event>,
    /// How long an answer may take.
    pub request_timeout: Duration,
}

/// Runs the fleet until it is told to stop. `work` is called for everything that is to be done; results come back as events.
pub async fn drive(shell: Shell, mut fleet: Fleet, mut work: impl FnMut(usize, Work, &Events)) {
    let Shell { part, service, events, mut incoming, request_timeout } = shell;
    let budget = request_timeout.max(SHORTEST_REQUEST_BUDGET);
    let mut connections: BTreeMap<u32, mpsc::UnboundedSender<(u64, Request)>> = BTreeMap::new();
    loop {
        fleet.wake(steady_now());
        for send in fleet.take_sends() {
            let out = connections.entry(send.connection).or_insert_with(|| {
                let (out, requests) = mpsc::unbounded_channel();
                tokio::spawn(carry(
                    send.connection,
                    HttpConnection::new(service.clone()),
                    requests,
                    events.clone(),
                    budget,
                ));
                out
            });
            // The task ends only with the shell.
            let _ = out.send((send.tag, send.request));
        }
        for (position, job) in fleet.take_work() {
            work(position, job, &events);
        }
        for (_, what) in fleet.take_observations() {
            tell(part, what);
        }
        let next = fleet.next_wake().map_or(Duration::from_secs(3600), |at| at.since(steady_now()));
        let event = tokio::select! {
            event = incoming.recv() => event,
            () = tokio::time::sleep(next.min(Duration::from_secs(3600))) => continue,
        };
        let now = steady_now();
        match event {
            Some(Event::Reply(reply)) => fleet.deliver(now, reply),
            Some(Event::Ran(position, serial, ran)) => {
                fleet.step_ran(now, position, serial, ran);
            }
            Some(Event::Done(position, token, result)) => {
                fleet.job_done(now, position, token, result);
            }
            Some(Event::Progress(position, token, percent)) => {
                fleet.job_progress(now, position, token, percent);
            }
            Some(Event::End(position, why)) => {
                fleet.installer_ends(now, position, why);
            }
            Some(Event::Observed(cluster, seen)) => fleet.observe(now, cluster, &seen),
            Some(Event::Stop) | None => return,
        }
    }
}

/// One connection: requests one after the other.
async fn carry(
    connection: u32,
    mut http: HttpConnection,
    mut requests: mpsc::UnboundedReceiver<(u64, Request)>,
    events: Events,
    budget: Duration,
) {
    while let Some((tag, request)) = requests.recv().await {
        let result = http.send(&request, budget).await;
        if events.send(Event::Reply(Reply { connection, tag, result })).is_err() {
            return;
        }
    }
}

/// What the core saw, as a line.
fn tell(part: &str, what: What) {
    match what {
        What::HostDid { what, .. } => say::moment(part, &what.word(), &json!({})),
        What::Step { step_type, step_id, answered, cached, .. } => match answered {
            None => say::note(part, &format!("step {step_type} {step_id}")),
            Some(code) => say::note(
                part,
                &format!("step {step_type} {step_id} exit {code}{}", if cached { ", as before" } else { "" }),
            ),
        },
        What::InCluster { what, .. } => say::moment(part, &what.word(), &json!({})),
        What::Unreadable { of, error, .. } => say::moment(part, say::UNREADABLE, &json!({ "of": of, "error": error })),
        _ => {}
    }
}

/// Runs blocking work in a thread of its own and tells the result as an event.
pub fn in_background(events: &Events, job: impl FnOnce() -> Event + Send + 'static) {
    let events = events.clone();
    tokio::task::spawn_blocking(move || {
        let _ = events.send(job());
    });
}

/// The same for asynchronous work.
pub fn in_task(events: &Events, job: impl Future<Output = Event> + Send + 'static) {
    let events = events.clone();
    tokio::spawn(async move {
        let _ = events.send(job.await);
    });
}
