//! The connections of a load: one task each, with a short queue of what is to be sent over it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
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

/// A connection. It is closed when this is dropped.
pub(crate) struct Line<K> {
    pub(crate) sender: mpsc::Sender<Job<K>>,
    task: JoinHandle<()>,
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
    let (sender, mut jobs) = mpsc::channel::<Job<K>>(waiting);
    let meter = meter.clone();
    let task = tokio::spawn(async move {
        while let Some(job) = jobs.recv().await {
            let before = connection.times_opened();
            let result = connection.send(&job.request, BUDGET).await;
            meter.opened.fetch_add(connection.times_opened() - before, Ordering::Relaxed);
            if replies.send(Done { job, at: meter.start.elapsed(), result }).await.is_err() {
                return;
            }
        }
    });
    Line { sender, task }
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

    #[test]
    fn many_connections_come_from_many_addresses() {
        let local = Endpoint::new(([127, 0, 0, 1], 80).into());
        assert_eq!(source_of(&local, 19_999), None);
        let of = |number| source_of(&local, number).unwrap();
        assert!(of(20_000) != of(40_000) && of(20_000) == of(39_999) && of(20_000).is_loopback());
        assert_eq!(source_of(&Endpoint::new(([10, 0, 0, 1], 80).into()), 50_000), None);
    }
}
