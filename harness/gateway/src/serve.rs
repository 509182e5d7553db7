//! The gateway's sockets: one task and one connection to the service for each connection of a client. Bodies are passed on as
//! they come, so that an image of a gigabyte costs no memory.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;
use vlab_api::http::Method;
use vlab_api::ops;
use vlab_drive::requests::{Applied, LostAt, RequestFacts, RequestFault, Rule, Rules, Side, answer, words};

/// A read buffer may grow to this many bytes; thousands of hosts have one each, and another one to the service.
const MAX_BUFFER: usize = 64 * 1024;
/// How long what a client sends is still read from a connection that is closed under it.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// A fault hit its first request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultEffect {
    /// Name of the fault.
    pub fault: Arc<str>,
    /// The host whose request it was, as far as the path tells.
    pub host: Option<Uuid>,
    /// What happened, in words.
    pub what: String,
}

/// What a gateway has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A fault hit its first request.
    Effect(FaultEffect),
    /// A host was answered, or was not.
    Answered(Answered),
}

/// How a host's request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The host whose request it was, as far as the path tells.
    pub host: Option<Uuid>,
    /// Method and path, without the query.
    pub request: String,
    /// 0: there was no answer.
    pub status: u16,
    /// An answer of 500 or more that is the service's own, or none because it took no connection: what nobody should get.
    pub bad: bool,
    /// Time until the head of the answer.
    pub took: Duration,
}

/// What went through, for one operation and one status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of requests.
    pub requests: u64,
    /// Time to the head of the answer, of all together.
    pub total: Duration,
    /// The longest one.
    pub longest: Duration,
}

/// Operation (its id, else the method) and status; 0 where there was no answer.
pub type Counts = BTreeMap<(&'static str, u16), Count>;

struct Shared {
    upstream: SocketAddr,
    rules: Mutex<Rules>,
    counts: Mutex<Counts>,
    news: mpsc::UnboundedSender<News>,
}

impl Shared {
    fn apply(&self, facts: &RequestFacts<'_>) -> Option<Applied> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if rules.is_empty() {
            return None;
        }
        let applied = rules.apply(facts)?;
        if applied.first {
            let what = words(&applied.wrong, facts.method, facts.path);
            // Nobody listens any more when the run is over.
            let effect = FaultEffect { fault: applied.fault.clone(), host: facts.host(), what };
            let _ = self.news.send(News::Effect(effect));
        }
        Some(applied)
    }

    fn count(&self, facts: &RequestFacts<'_>, status: u16, took: Duration) {
        let operation = ops::operation_of(facts.method, facts.path).unwrap_or(facts.method.as_str());
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry((operation, status)).or_default();
        count.requests += 1;
        count.total += took;
        count.longest = count.longest.max(took);
    }
}

/// A gateway to one service.
pub struct Gateway {
    shared: Arc<Shared>,
    listeners: JoinSet<()>,
}

impl Gateway {
    /// A gateway to the service at that address. Which fault hit something is told at the receiver, once for each, and each bad answer
    /// to a host.
    pub fn new(upstream: SocketAddr, seed: u64) -> (Self, mpsc::UnboundedReceiver<News>) {
        let (news, receiver) = mpsc::unbounded_channel();
        let (rules, counts) = (Mutex::new(Rules::new(seed)), Mutex::default());
        (Self { shared: Arc::new(Shared { upstream, rules, counts, news }), listeners: JoinSet::new() }, receiver)
    }

    /// Takes connections of that side; returns the listener's address. The listener may be in another network namespace than
    /// the process: only the connections to the service are opened here.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub fn listen(&mut self, listener: std::net::TcpListener, side: Side) -> io::Result<SocketAddr> {
        let address = listener.local_addr()?;
        // All hosts may connect at once: as many may wait as the kernel lets (the standard library says 128).
        socket2::SockRef::from(&listener).listen(i32::MAX)?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let shared = self.shared.clone();
        self.listeners.spawn(async move {
            // Ends with the listener's task: nobody's connection outlives the gateway.
            let mut connections = JoinSet::new();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        connections.spawn(connection(stream, side, shared.clone()));
                        while connections.try_join_next().is_some() {}
                    }
                    Err(error) => {
                        // Too many open files, for example: told, and tried again when some may have been closed.
                        tracing::warn!(%error, "the gateway cannot take a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        });
        Ok(address)
    }

    /// A fault begins.
    pub fn inject(&self, rule: Rule) {
        self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner).inject(rule);
    }

    /// It ends; how many requests it hit.
    pub fn clear(&self, fault: &str) -> Option<u64> {
        self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner).clear(fault)
    }

    /// What went through so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why a client gets no answer: its connection ends.
#[derive(Debug)]
enum NoAnswer {
    /// A fault.
    Fault,
    /// The service gave none.
    Service(String),
    /// The service took no connection.
    Unreachable(String),
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoAnswer::Fault => f.write_str("a fault of the scenario"),
            NoAnswer::Service(why) | NoAnswer::Unreachable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for NoAnswer {}

type Body = BoxBody<Bytes, hyper::Error>;

/// A client's connection and the one to the service that goes with it.
struct Line {
    side: Side,
    shared: Arc<Shared>,
    /// Requests on a connection come one after the other; this is never waited for.
    service: tokio::sync::Mutex<Option<SendRequest<Incoming>>>,
    requests: AtomicBool,
    reset: AtomicBool,
}

async fn connection(stream: TcpStream, side: Side, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let line = Arc::new(Line {
        side,
        shared,
        service: tokio::sync::Mutex::new(None),
        requests: AtomicBool::new(false),
        reset: AtomicBool::new(false),
    });
    let theirs = line.clone();
    let serve = service_fn(move |request| {
        let line = theirs.clone();
        // hyper gives a connection back only when it can be moved about.
        Box::pin(async move { line.handle(request).await })
    });
    let mut connection = hyper::server::conn::http1::Builder::new()
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), serve);
    if let Err(error) = poll_fn(|cx| connection.poll_without_shutdown(cx)).await {
        tracing::debug!(%error, "a connection through the gateway ended");
    }
    let stream = connection.into_parts().io.into_inner();
    if line.reset.load(Ordering::Relaxed) {
        // Closing it now sends RST instead of FIN.
        let _ = stream.set_zero_linger();
    }
}

impl Line {
    async fn handle(&self, request: hyper::Request<Incoming>) -> Result<hyper::Response<Body>, NoAnswer> {
        let begun = Instant::now();
        let path = request.uri().path_and_query().map_or_else(String::new, |p| p.as_str().to_owned());
        let facts = RequestFacts {
            side: self.side,
            method: Method::from_name(request.method().as_str()),
            path: &path,
            first_on_connection: !self.requests.swap(true, Ordering::Relaxed),
        };
        let (result, of_service) = match self.shared.apply(&facts) {
            None => (self.forward(request).await, true),
            Some(applied) => (self.go_wrong(applied.wrong, request).await, false),
        };
        let status = result.as_ref().map_or(0, |response| response.status().as_u16());
        let bad = of_service && (status >= 500 || matches!(result, Err(NoAnswer::Unreachable(_))));
        self.tell(&facts, status, bad, begun.elapsed());
        self.shared.count(&facts, status, begun.elapsed());
        result
    }

    /// Tells what a host was answered. The user hears that by itself.
    fn tell(&self, facts: &RequestFacts<'_>, status: u16, bad: bool, took: Duration) {
        if self.side == Side::Hosts {
            let request = format!("{} {}", facts.method, facts.path.split('?').next().unwrap_or_default());
            let answered = Answered { host: facts.host(), request, status, bad, took };
            // Nobody listens any more when the run is over.
            let _ = self.shared.news.send(News::Answered(answered));
        }
    }

    async fn go_wrong(
        &self,
        wrong: RequestFault,
        request: hyper::Request<Incoming>,
    ) -> Result<hyper::Response<Body>, NoAnswer> {
        let point = match wrong {
            RequestFault::Status { status, retry_after } => {
                read_out(request.into_body()).await;
                let answer = answer(status, retry_after);
                let mut response = hyper::Response::builder().status(answer.status);
                for (name, value) in &answer.headers {
                    response = response.header(name, value);
                }
                let body = Full::new(Bytes::from(answer.body.into_vec())).map_err(|never| match never {}).boxed();
                return response.body(body).map_err(|error| NoAnswer::Service(error.to_string()));
            }
            RequestFault::Late(by) => {
                let response = self.forward(request).await;
                tokio::time::sleep(by).await;
                return response;
            }
            RequestFault::Dropped(point) => point,
            RequestFault::Reset(point) => {
                self.reset.store(true, Ordering::Relaxed);
                point
            }
            RequestFault::StaleKeepAlive => LostAt::Request,
        };
        match point {
            // What is still unread when a socket is closed makes the kernel send RST, and this one is to be closed quietly.
            LostAt::Request => read_out(request.into_body()).await,
            LostAt::Answer => read_out(self.forward(request).await?.into_body()).await,
        }
        Err(NoAnswer::Fault)
    }

    async fn forward(&self, request: hyper::Request<Incoming>) -> Result<hyper::Response<Body>, NoAnswer> {
        let lost = |error: hyper::Error| NoAnswer::Service(format!("the service gave no answer: {error}"));
        let mut service = self.service.lock().await;
        let reused = service.as_ref().is_some_and(|sender| !sender.is_closed());
        let sender = match service.as_mut().filter(|_| reused) {
            Some(sender) => sender,
            None => service.insert(self.open().await?),
        };
        sender.ready().await.map_err(lost)?;
        let response = match sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut failed) => {
                *service = None;
                // It never left: the service closed the connection while nobody used it. Once more over a new one.
                let again = failed.take_message().filter(|_| reused);
                match again {
                    Some(request) => {
                        let sender = service.insert(self.open().await?);
                        sender.send_request(request).await.map_err(lost)?
                    }
                    None => return Err(lost(failed.into_error())),
                }
            }
        };
        Ok(response.map(|body| body.boxed()))
    }

    async fn open(&self) -> Result<SendRequest<Incoming>, NoAnswer> {
        let unreachable = |error: String| NoAnswer::Unreachable(format!("the service is not reached: {error}"));
        let stream = TcpStream::connect(self.shared.upstream).await.map_err(|e| unreachable(e.to_string()))?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| unreachable(e.to_string()))?;
        // Ends when the sender is dropped or the service closes; its error is the request's.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }
}

/// Reads a body and forgets it.
async fn read_out<B: hyper::body::Body + Unpin>(mut body: B) {
    let all = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(LAST_BYTES, all).await;
}

#[cfg(test)]
mod tests;
