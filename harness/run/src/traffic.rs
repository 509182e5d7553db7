//! The real transport of an actor: one task and one TCP connection for each of its connections, and a count of what went
//! over them. What an interleaving does to requests on their way (later, lost, twice) is done here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::mpsc;
use vlab_api::actor::{Reply, Send};
use vlab_api::http::{Method, Request, Response, TransportError, is_for_hub};
use vlab_api::ops::operation_of;
use vlab_client::{Endpoint, HttpConnection};
use vlab_drive::conductor::Conductor;
use vlab_drive::interleave::{Dice, Way};
use vlab_judge::result::{OperationLatency, Quantiles};
use vlab_model::history::What;

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
    way: Way,
    /// How much longer the request takes, and the answer.
    late: [Duration; 2],
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
    dice: Dice,
    /// How many were sent and not answered yet.
    under_way: usize,
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
    /// No connection is open yet; user and hosts may find the service at different places. Answers arrive at the receiver. The dice decide
    /// what becomes of requests and answers on their way.
    pub fn new(
        user: Endpoint,
        hosts: Endpoint,
        hub: Option<Endpoint>,
        dice: Dice,
    ) -> (Self, mpsc::UnboundedReceiver<TimedReply>) {
        let (answers, receiver) = mpsc::unbounded_channel();
        let (to_hub, lines, tally, under_way) = (None, Vec::new(), Tally::default(), 0);
        (Self { user, hosts, hub, to_hub, lines, answers, tally, dice, under_way }, receiver)
    }

    /// Sends a request over its connection, after those that wait there already. What the interleaving does with it is given back, for the
    /// history.
    pub fn send(&mut self, send: Send) -> Option<What> {
        let operation = operation_of(send.request.method, &send.request.path).unwrap_or("other");
        let by_user = Conductor::is_user(send.connection);
        self.under_way += 1;
        if !by_user {
            self.tally.offered += 1;
        }
        let way = if by_user { Way::Through } else { self.dice.way() };
        let told = way.told(send.request.method, &send.request.path);
        let index = send.connection as usize;
        if self.lines.len() <= index {
            self.lines.resize_with(index + 1, || None);
        }
        let late = [self.dice.latency(), self.dice.latency()];
        let job = Job { send, operation, asked: Instant::now(), way, late };
        if let Some(hub) = self.hub.as_ref().filter(|_| is_for_hub(&job.send.request.path)) {
            let line = self.to_hub.get_or_insert_with(|| line(hub.clone(), self.answers.clone()));
            let _ = line.send(job);
            return told;
        }
        let endpoint = if by_user { &self.user } else { &self.hosts };
        let line = self.lines[index].get_or_insert_with(|| line(endpoint.clone(), self.answers.clone()));
        // The task lives as long as its sender: this cannot fail before the run is over.
        let _ = line.send(job);
        told
    }

    /// Counts an answer and gives it to the actor. Latency counts from when the actor asked, so that a service that makes
    /// hosts queue does not look fast.
    pub fn count(&mut self, answer: TimedReply) -> Reply {
        self.under_way -= 1;
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

    /// How many requests are not answered yet.
    pub fn under_way(&self) -> usize {
        self.under_way
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
        while let Some(Job { send, operation, asked, way, late: [before, after] }) = jobs.recv().await {
            pause(before).await;
            let result = ask(&mut connection, &send.request, way).await;
            pause(after).await;
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

/// Not even a tick of the timer where nothing is to be waited for.
async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

async fn ask(connection: &mut HttpConnection, request: &Request, way: Way) -> Result<Response, TransportError> {
    if way == Way::Through {
        return connection.send(request, REQUEST_BUDGET).await;
    }
    // As every HTTP client does with a GET that a kept-alive connection lost.
    let again = request.method == Method::Get && connection.is_open();
    if way != Way::RequestLost {
        connection.send(request, REQUEST_BUDGET).await?;
    }
    if way == Way::Twice || again {
        return connection.send(request, REQUEST_BUDGET).await;
    }
    connection.close();
    Err(TransportError::Lost("the connection was closed before the answer".to_owned()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_scenario::Interleaving;
    use wiremock::{Mock, MockServer, ResponseTemplate};

    use super::*;

    const REQUESTS: u64 = 60;

    /// So many requests of a host over one connection: how many were answered, what was told, and how many the service has seen.
    async fn sent(how: Interleaving, method: Method, connection: u32) -> (usize, usize, usize) {
        let service = MockServer::start().await;
        Mock::given(wiremock::matchers::any()).respond_with(ResponseTemplate::new(200)).mount(&service).await;
        let endpoint = Endpoint::new(*service.address());
        let dice = Dice::new(&how, 1.0);
        let (mut traffic, mut answers) = Traffic::new(endpoint.clone(), endpoint, None, dice);
        let (mut answered, mut told) = (0, 0);
        for tag in 0..REQUESTS {
            let request = Request::new(method, "/api/assisted-install/v2/infra-envs/i/hosts".to_owned());
            let what = traffic.send(Send { connection, tag, request });
            told += usize::from(matches!(what, Some(What::Interleaved { .. })));
            let answer = traffic.count(answers.recv().await.unwrap());
            assert_eq!(answer.tag, tag);
            answered += usize::from(answer.result.is_ok());
        }
        (answered, told, service.received_requests().await.unwrap().len())
    }

    #[rstest]
    #[case::plain(Interleaving::default(), Method::Post, 60, 0, 60..=60)]
    #[case::lost(Interleaving { lost: 1000, ..Interleaving::default() }, Method::Post, 0, 60, 10..=50)]
    #[case::twice(Interleaving { twice: 1000, ..Interleaving::default() }, Method::Post, 60, 60, 120..=120)]
    // What only reads is asked again by every client, but for the first request of a connection.
    #[case::reading(Interleaving { lost: 100, ..Interleaving::default() }, Method::Get, 60, 0, 60..=75)]
    #[tokio::test]
    async fn an_interleaving_is_done_to_requests_on_their_way(
        #[case] how: Interleaving,
        #[case] method: Method,
        #[case] answered: usize,
        #[case] told: usize,
        #[case] seen: std::ops::RangeInclusive<usize>,
    ) {
        let found = sent(how, method, 100).await;
        assert_eq!((found.0, found.1), (answered, told));
        assert!(seen.contains(&found.2), "the service has seen {}", found.2);
    }

    #[tokio::test]
    async fn what_the_user_asks_is_not_lost() {
        assert_eq!(sent(Interleaving { lost: 1000, ..Interleaving::default() }, Method::Post, 0).await, (60, 0, 60));
    }
}
