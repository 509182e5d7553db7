//! The connections of a load: one task each, with a short queue of what is to be sent over it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use vlab_api::http::{Request, Response, TransportError};
use vlab_client::{Endpoint, HttpConnection};

/// A request without an answer is given up after this, as the real agent does.
pub(crate) const BUDGET: Duration = Duration::from_secs(30);
/// One source address has ports for fewer connections than that to one service.
const CONNECTIONS_OF_ADDRESS: u32 = 20_000;

/// A request, whose it is, and what it counts as.
pub(crate) struct Job<K> {
    pub(crate) request: Request,
    pub(crate) key: K,
    pub(crate) operation: &'static str,
    pub(crate) phase: usize,
    pub(crate) intended: Duration,
}

/// What became of it.
pub(crate) struct Done<K> {
    pub(crate) job: Job<K>,
    pub(crate) at: Duration,
    pub(crate) result: Result<Response, TransportError>,
}

/// What waits for a connection. There are as many of these as hosts, and most of the time nothing waits: a channel of tokio has room for
/// 32 in one piece, all of which it comes to use one after the other.
struct Queue<K> {
    jobs: Mutex<VecDeque<Job<K>>>,
    most: usize,
    filled: Notify,
}

impl<K> Queue<K> {
    fn new(most: usize) -> Self {
        Self { jobs: Mutex::new(VecDeque::new()), most, filled: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Job<K>>> {
        // Nothing panics while it is held.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is there room for it?
    fn push(&self, job: Job<K>) -> bool {
        let mut jobs = self.lock();
        let has_room = jobs.len() < self.most;
        if has_room {
            jobs.push_back(job);
            self.filled.notify_one();
        }
        has_room
    }

    async fn pop(&self) -> Job<K> {
        loop {
            let job = {
                let mut jobs = self.lock();
                let job = jobs.pop_front();
                // Nothing waits: give the memory back.
                if job.is_some() && jobs.is_empty() {
                    *jobs = VecDeque::new();
                }
                job
            };
            match job {
                Some(job) => return job,
                None => self.filled.notified().await,
            }
        }
    }
}

/// A connection. It is closed when this is dropped.
pub(crate) struct Line<K> {
    queue: Arc<Queue<K>>,
    task: JoinHandle<()>,
}

impl<K> Line<K> {
    /// Sends it when it is its turn; `false`: too many wait already, and it is dropped.
    pub(crate) fn send(&self, job: Job<K>) -> bool {
        self.queue.push(job)
    }
}

impl<K> Drop for Line<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What lines have in common: their time, and how many connections were opened.
#[derive(Clone)]
pub(crate) struct Meter {
    start: Instant,
    opened: Arc<AtomicU64>,
}

impl Meter {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, opened: Arc::default() }
    }

    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

/// The connection of that number. Answers go to `replies`.
pub(crate) fn line<K: Send + 'static>(
    (endpoint, number): (&Endpoint, u32),
    waiting: usize,
    replies: mpsc::Sender<Done<K>>,
    meter: &Meter,
) -> Line<K> {
    let mut connection = HttpConnection::from_source(endpoint.clone(), source_of(endpoint, number));
    let queue = Arc::new(Queue::new(waiting));
    let jobs = queue.clone();
    let meter = meter.clone();
    let task = tokio::spawn(async move {
        loop {
            let job = jobs.pop().await;
            let before = connection.times_opened();
            let result = connection.send(&job.request, BUDGET).await;
            meter.opened.fetch_add(connection.times_opened() - before, Ordering::Relaxed);
            if replies.send(Done { job, at: meter.start.elapsed(), result }).await.is_err() {
                return;
            }
        }
    });
    Line { queue, task }
}

/// From where a connection is opened: on this computer, from as many addresses as it takes.
fn source_of(endpoint: &Endpoint, number: u32) -> Option<IpAddr> {
    let group = number / CONNECTIONS_OF_ADDRESS;
    if group == 0 || endpoint.address().ip() != IpAddr::V4(Ipv4Addr::LOCALHOST) {
        return None;
    }
    let [_, b, c, _] = group.to_be_bytes();
    Some(IpAddr::V4(Ipv4Addr::new(127, 1_u8.wrapping_add(b), c, u8::try_from(group % 250 + 2).unwrap_or(2))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(phase: usize) -> Job<()> {
        let request = Request::new(vlab_api::http::Method::Get, "/");
        Job { request, key: (), operation: "", phase, intended: Duration::ZERO }
    }

    #[tokio::test]
    async fn what_waits_is_in_order_and_no_more_than_fits() {
        let queue = Queue::new(4);
        let sent: Vec<bool> = (0..6).map(|n| queue.push(job(n))).collect();
        assert_eq!(sent, [true, true, true, true, false, false]);
        for n in 0..4 {
            assert_eq!(queue.pop().await.phase, n);
        }
        let waits = tokio::time::timeout(Duration::from_millis(20), queue.pop()).await;
        assert!(waits.is_err(), "there is nothing");
    }

    /// Who was asked often needs no more than who was asked once.
    #[tokio::test]
    async fn where_nothing_waits_nothing_is_kept() {
        let queue = Arc::new(Queue::new(4));
        for n in 0..1000 {
            let taken = tokio::spawn({
                let queue = queue.clone();
                async move { queue.pop().await.phase }
            });
            assert!(queue.push(job(n)));
            assert_eq!(taken.await.unwrap(), n, "who waits is woken");
            assert_eq!(queue.lock().capacity(), 0, "nothing waits");
        }
    }

    #[test]
    fn many_connections_come_from_many_addresses() {
        let local = Endpoint::new(([127, 0, 0, 1], 80).into());
        assert_eq!(source_of(&local, 19_999), None);
        let of = |number| source_of(&local, number).unwrap();
        assert!(of(20_000) != of(40_000) && of(20_000) == of(39_999) && of(20_000).is_loopback());
        assert_eq!(source_of(&Endpoint::new(([10, 0, 0, 1], 80).into()), 50_000), None);
    }
}
