//! The real transport of an actor: one task and one TCP connection for each of its connections, and a count of what went
//! over them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::mpsc;
use vlab_api::actor::{Reply, Send};
use vlab_api::http::{TransportError, is_for_hub};
use vlab_api::ops::operation_of;
use vlab_client::{Endpoint, HttpConnection};
use vlab_drive::conductor::Conductor;
use vlab_judge::result::{OperationLatency, Quantiles};

/// A request without an answer is given up after this, whatever the actor thinks: as the real agent's HTTP client does.
const REQUEST_BUDGET: Duration = Duration::from_secs(30);

/// An answer with what it took.
#[derive(Debug)]
pub struct TimedReply {
    /// The answer.
    pub reply: Reply,
    operation: &'static str,
    by_user: bool,
    took: Duration,
}

struct Job {
    send: Send,
    operation: &'static str,
    asked: Instant,
}

/// All connections of a conductor.
pub struct Traffic {
    user: Endpoint,
    hosts: Endpoint,
    /// The API server, for what the user asks over Kubernetes.
    hub: Option<Endpoint>,
    to_hub: Option<mpsc::UnboundedSender<Job>>,
    lines: Vec<Option<mpsc::UnboundedSender<Job>>>,
    answers: mpsc::UnboundedSender<TimedReply>,
    tally: Tally,
}

/// Counts of the hosts' requests (not of the user's).
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests asked for.
    pub offered: u64,
    /// Requests that were answered, whatever the status.
    pub answered: u64,
    /// Kind of error to how many.
    pub errors: BTreeMap<String, u64>,
    latency: BTreeMap<&'static str, Option<Histogram<u64>>>,
}

impl Traffic {
    /// No connection is open yet; user and hosts may find the service at different places. Answers arrive at the receiver.
    pub fn new(user: Endpoint, hosts: Endpoint, hub: Option<Endpoint>) -> (Self, mpsc::UnboundedReceiver<TimedReply>) {
        let (answers, receiver) = mpsc::unbounded_channel();
        let (to_hub, lines, tally) = (None, Vec::new(), Tally::default());
        (Self { user, hosts, hub, to_hub, lines, answers, tally }, receiver)
    }

    /// Sends a request over its connection, after those that wait there already.
    pub fn send(&mut self, send: Send) {
        let operation = operation_of(send.request.method, &send.request.path).unwrap_or("other");
        if !Conductor::is_user(send.connection) {
            self.tally.offered += 1;
        }
        let index = send.connection as usize;
        if self.lines.len() <= index {
            self.lines.resize_with(index + 1, || None);
        }
        let job = Job { send, operation, asked: Instant::now() };
        if let Some(hub) = self.hub.as_ref().filter(|_| is_for_hub(&job.send.request.path)) {
            let line = self.to_hub.get_or_insert_with(|| line(hub.clone(), self.answers.clone()));
            let _ = line.send(job);
            return;
        }
        let endpoint = if Conductor::is_user(job.send.connection) { &self.user } else { &self.hosts };
        let line = self.lines[index].get_or_insert_with(|| line(endpoint.clone(), self.answers.clone()));
        // The task lives as long as its sender: this cannot fail before the run is over.
        let _ = line.send(job);
    }

    /// Counts an answer and gives it to the actor. Latency counts from when the actor asked, so that a service that makes
    /// hosts queue does not look fast.
    pub fn count(&mut self, answer: TimedReply) -> Reply {
        if !answer.by_user {
            match &answer.reply.result {
                Ok(response) => {
                    self.tally.answered += 1;
                    if response.status >= 500 {
                        *self.tally.errors.entry(format!("HTTP {}", response.status)).or_default() += 1;
                    }
                }
                Err(error) => {
                    let kind = match error {
                        TransportError::Connect(_) => "cannot connect",
                        TransportError::Lost(_) => "connection lost",
                        TransportError::Timeout(_) => "no answer in time",
                    };
                    *self.tally.errors.entry(kind.to_owned()).or_default() += 1;
                }
            }
            let slot = self.tally.latency.entry(answer.operation).or_insert_with(|| {
                // One microsecond to two minutes, three digits: the bounds are constants and valid.
                Histogram::new_with_bounds(1, 120_000_000, 3).ok()
            });
            if let Some(histogram) = slot {
                histogram.saturating_record(u64::try_from(answer.took.as_micros()).unwrap_or(u64::MAX));
            }
        }
        answer.reply
    }

    /// What was counted so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Begins counting anew.
    pub fn restart_count(&mut self) {
        self.tally = Tally::default();
    }
}

impl Tally {
    /// Quantiles of each operation's latency.
    pub fn latencies(&self) -> Vec<OperationLatency> {
        self.latency
            .iter()
            .filter_map(|(operation, histogram)| {
                let h = histogram.as_ref()?;
                let at = |q: f64| h.value_at_quantile(q) as f64 / 1000.0;
                Some(OperationLatency {
                    operation: (*operation).to_owned(),
                    latency_ms: Quantiles {
                        count: h.len(),
                        p50: at(0.5),
                        p90: at(0.9),
                        p99: at(0.99),
                        p999: at(0.999),
                        max: h.max() as f64 / 1000.0,
                    },
                })
            })
            .collect()
    }

    /// How many failed.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

fn line(endpoint: Endpoint, answers: mpsc::UnboundedSender<TimedReply>) -> mpsc::UnboundedSender<Job> {
    let (sender, mut jobs) = mpsc::unbounded_channel::<Job>();
    tokio::spawn(async move {
        let mut connection = HttpConnection::new(endpoint);
        while let Some(Job { send, operation, asked }) = jobs.recv().await {
            let result = connection.send(&send.request, REQUEST_BUDGET).await;
            let answer = TimedReply {
                reply: Reply { connection: send.connection, tag: send.tag, result },
                operation,
                by_user: Conductor::is_user(send.connection),
                took: asked.elapsed(),
            };
            if answers.send(answer).is_err() {
                return;
            }
        }
    });
    sender
}
