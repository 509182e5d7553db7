//! One HTTP connection: bytes to requests, answers to bytes, and what a bad client may not do.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as Poller, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};

use crate::Limits;
use crate::body::ImageBody;
use crate::engine::{Asked, Job, error};
use crate::images::{Images, PermittedResponse};
use crate::metrics::Metrics;
use vlab_image_service::routes;
use vlab_image_service::service::AssistedService;
use vlab_service::takes_files;

/// How long the engine may take to say how it is.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// What all connections share.
pub(crate) struct Context {
    pub(crate) jobs: mpsc::Sender<Job>,
    /// Answers for the paths of the image service.
    pub(crate) images: Images,
    pub(crate) limits: Arc<Limits>,
    /// Room for bodies, in [`units`].
    pub(crate) buffers: Arc<Semaphore>,
    pub(crate) metrics: Arc<Metrics>,
    /// Finish what is under way, then close.
    pub(crate) shutdown: CancellationToken,
    /// Close now.
    pub(crate) cut: CancellationToken,
}

/// Bytes of the unit in which room for bodies is counted.
const UNIT: usize = 16 * 1024;

/// So many units hold that many bytes.
pub(crate) fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT).clamp(1, Semaphore::MAX_PERMITS)
}

impl AssistedService for Context {
    /// Lets the engine answer.
    async fn ask(&self, request: Request) -> Response {
        let (reply, response) = oneshot::channel();
        if self.jobs.send(Job::Request(Asked::new(request, reply))).await.is_err() {
            return error(503, "the service is stopping");
        }
        response.await.unwrap_or_else(|_| error(503, "the service is stopping"))
    }
}

/// Serves a connection to its end.
pub(crate) async fn run(stream: TcpStream, peer: SocketAddr, context: Arc<Context>) {
    // Answers are small and somebody waits for them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot switch off Nagle's algorithm");
    }
    context.metrics.connected();
    let served = Arc::new(Progress::default());
    let io = TokioIo::new(Guarded::new(stream, &context.limits, served.clone()));
    let service = service_fn(|request| {
        let (context, served) = (context.clone(), served.clone());
        async move {
            served.begin();
            let answer = answer(&context, request).await;
            served.end();
            answer
        }
    });
    let mut builder = http1::Builder::new();
    // The timeout of the library also runs between requests; `Guarded` has one that does not.
    builder.header_read_timeout(None).half_close(true);
    let connection = builder.serve_connection(io, service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = context.shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                result = connection.as_mut() => result,
                () = context.cut.cancelled() => Ok(()),
            }
        }
    };
    context.metrics.disconnected();
    if let Err(error) = result {
        // Clients that vanish, are slow or do not speak HTTP: their business.
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}

/// How far the requests of a connection are: odd while one is being answered.
#[derive(Default)]
struct Progress(AtomicU64);

impl Progress {
    fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stream whose reader fails when a request's headers have begun to arrive and do not end in time, and whose writer fails when
/// the client takes nothing for too long.
struct Guarded {
    io: TcpStream,
    limit: Duration,
    progress: Arc<Progress>,
    /// Value of `progress` when the deadline was set.
    armed: Option<u64>,
    deadline: Pin<Box<Sleep>>,
    write_pause: Duration,
    /// Runs while the client takes nothing.
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl Guarded {
    fn new(io: TcpStream, limits: &Limits, progress: Arc<Progress>) -> Self {
        let (limit, write_pause) = (limits.header_timeout, limits.write_pause);
        let deadline = Box::pin(sleep(limit));
        Self { io, limit, progress, armed: None, deadline, write_pause, write_deadline: None }
    }

    /// Passes on how a write went, unless it waits for too long.
    fn in_time<T>(&mut self, cx: &mut Poller<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.write_deadline = None;
            return wrote;
        }
        let pause = self.write_pause;
        let deadline = self.write_deadline.get_or_insert_with(|| Box::pin(sleep(pause)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not take the answer")))
    }
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Poller<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let progress = this.progress.0.load(Ordering::Relaxed);
        if this.armed.is_some_and(|at| at != progress) {
            this.armed = None;
        }
        if progress % 2 == 1 {
            // Within a request: the body's reader has its own patience.
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        if this.armed.is_some() && this.deadline.as_mut().poll(cx).is_ready() {
            let why = "the request's headers did not end in time";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        let before = buf.filled().len();
        let result = ready!(Pin::new(&mut this.io).poll_read(cx, buf));
        if result.is_ok() && buf.filled().len() > before && this.armed.is_none() {
            this.armed = Some(progress);
            this.deadline.as_mut().reset(tokio::time::Instant::now() + this.limit);
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Poller<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write(cx, buf);
        self.in_time(cx, wrote)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.in_time(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Poller<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.in_time(cx, wrote)
    }
}

/// Why a request's body could not be read.
enum BadBody {
    /// Larger than that many bytes.
    TooLarge(usize),
    /// It paused for that long.
    TooSlow(Duration),
    /// It took longer than that in all.
    TooLong(Duration),
    /// Others fill the memory that bodies may have.
    NoRoom,
    Gone(hyper::Error),
}

impl BadBody {
    fn answer(self) -> Result<Response, hyper::Error> {
        Ok(match self {
            Self::TooLarge(allowed) => {
                error(413, format!("the body is larger than the {allowed} bytes that are allowed"))
            }
            Self::TooSlow(pause) => {
                error(408, format!("the body paused for more than {pause:?}")).header("connection", "close")
            }
            Self::TooLong(time) => {
                error(408, format!("the body took longer than {time:?}")).header("connection", "close")
            }
            Self::NoRoom => error(503, "too much is being uploaded at the moment").header("retry-after", "1"),
            Self::Gone(gone) => return Err(gone),
        })
    }
}

/// Most answers are in memory; images are read while they are sent.
pub(crate) type OutBody = Either<Full<Bytes>, ImageBody>;

async fn answer(
    context: &Context,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<OutBody>, hyper::Error> {
    let start = Instant::now();
    let method = Method::from_name(request.method().as_str());
    let path = request.uri().path_and_query().map_or_else(|| "/".to_owned(), |p| p.as_str().to_owned());
    let (head, body) = request.into_parts();
    let mut reader = BodyReader::new(context, takes_files(method, &path));
    let response = match reader.read(body, &head.headers).await {
        Ok(body) => {
            let request = plain(&head, body);
            if let Some((name, wanted)) = routes::route(&request) {
                let answer = context.images.answer(&request, wanted, context).await;
                let (status, took) = (answer.answer.reply.status, start.elapsed());
                // The path may have a token in it.
                context.metrics.request(method, name, status, took);
                tracing::debug!(%method, path = name, status, ?took, "request for an image");
                return Ok(image_to_hyper(method, answer));
            }
            dispatch(context, request).await
        }
        Err(bad) => bad.answer()?,
    };
    drop(reader);
    let took = start.elapsed();
    context.metrics.request(method, &path, response.status, took);
    tracing::debug!(%method, path, status = response.status, ?took, "request");
    Ok(to_hyper(response))
}

/// The service's own pages, and everything else to the engine.
async fn dispatch(context: &Context, request: Request) -> Response {
    match (request.method, request.split_path().0) {
        (Method::Get | Method::Head, "/health") => health(context).await,
        (Method::Get | Method::Head, "/ready") => Response::empty(200),
        (Method::Get | Method::Head, "/metrics") => {
            let (reply, stats) = oneshot::channel();
            let stats = timeout(HEALTH_TIMEOUT, async {
                context.jobs.send(Job::Stats(reply)).await.ok()?;
                stats.await.ok()
            })
            .await
            .unwrap_or(None);
            let page = context.metrics.page(stats.as_ref());
            let mut response = Response::empty(200).header("content-type", "text/plain; version=0.0.4; charset=utf-8");
            response.body = page.into();
            response
        }
        _ => context.ask(request).await,
    }
}

/// A request as plain data.
pub(crate) fn plain(head: &Parts, body: Vec<u8>) -> Request {
    let headers = head
        .headers
        .iter()
        .filter(|(name, _)| ![HOST, CONTENT_LENGTH, CONNECTION, TRANSFER_ENCODING, EXPECT].contains(name))
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let path = head.uri.path_and_query().map_or_else(|| "/".to_owned(), |p| p.as_str().to_owned());
    Request { method: Method::from_name(head.method.as_str()), path, headers, body: body.into() }
}

/// 200 without a body, as the real service; 500 with the reason.
async fn health(context: &Context) -> Response {
    let overdue = context.metrics.monitors_overdue(Timestamp::now());
    if overdue > context.limits.liveness {
        return error(500, format!("the monitors should have run {overdue:?} ago"));
    }
    let (reply, health) = oneshot::channel();
    let asked = timeout(HEALTH_TIMEOUT, async {
        if context.jobs.send(Job::Health(reply)).await.is_err() {
            return Err("the service is stopping".to_owned());
        }
        health.await.unwrap_or_else(|_| Err("the service is stopping".to_owned()))
    });
    match asked.await {
        Ok(Ok(())) => Response::empty(200),
        Ok(Err(reason)) => error(500, reason),
        Err(_) => error(500, format!("the service did not report its health within {HEALTH_TIMEOUT:?}")),
    }
}

/// Reads a body, and holds the room that it takes.
struct BodyReader<'a> {
    buffers: &'a Arc<Semaphore>,
    limits: &'a Limits,
    /// Largest body in bytes.
    allowed: usize,
    /// How long it may take.
    time: Duration,
    room: Option<OwnedSemaphorePermit>,
}

impl<'a> BodyReader<'a> {
    fn new(context: &'a Context, files: bool) -> Self {
        let limits = &*context.limits;
        let (allowed, time) = match files {
            true => (limits.upload_bytes, limits.upload_time),
            false => (limits.body_bytes, limits.body_time),
        };
        Self { buffers: &context.buffers, limits, allowed, time, room: None }
    }

    async fn read(&mut self, body: Incoming, headers: &hyper::HeaderMap) -> Result<Vec<u8>, BadBody> {
        let time = self.time;
        timeout(time, self.read_on(body, headers)).await.unwrap_or(Err(BadBody::TooLong(time)))
    }

    async fn read_on(&mut self, mut body: Incoming, headers: &hyper::HeaderMap) -> Result<Vec<u8>, BadBody> {
        let announced = body.size_hint().exact();
        let too_large = || Some(BadBody::TooLarge(self.allowed));
        let mut bad = if announced.is_some_and(|n| n > self.allowed as u64) { too_large() } else { None };
        if bad.is_some() && headers.contains_key(EXPECT) {
            // The client waits for our word before it sends anything.
            return Err(BadBody::TooLarge(self.allowed));
        }
        let mut content = Vec::new();
        let mut received: usize = 0;
        loop {
            let frame = match timeout(self.limits.body_pause, body.frame()).await {
                Err(_) => return Err(BadBody::TooSlow(self.limits.body_pause)),
                Ok(None) => break,
                Ok(Some(Err(gone))) => return Err(BadBody::Gone(gone)),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            received += data.len();
            if received > self.allowed {
                bad = Some(BadBody::TooLarge(self.allowed));
            } else if bad.is_none() && !self.has_room(received) {
                bad = Some(BadBody::NoRoom);
            }
            if bad.is_none() {
                content.extend_from_slice(&data);
                continue;
            }
            // A client that is still sending would not see an answer: read on and forget, within reason.
            content = Vec::new();
            self.room = None;
            if received > self.allowed.saturating_mul(4).saturating_add(1 << 20) {
                break;
            }
        }
        bad.map_or(Ok(content), Err)
    }

    /// Takes the room for so many bytes in all, if that is to be had.
    fn has_room(&mut self, bytes: usize) -> bool {
        let held = self.room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(more) = units(bytes).checked_sub(held).filter(|more| *more > 0) else { return true };
        let Ok(more) = u32::try_from(more) else { return false };
        let Ok(more) = self.buffers.clone().try_acquire_many_owned(more) else { return false };
        match &mut self.room {
            Some(room) => room.merge(more),
            none => *none = Some(more),
        }
        true
    }
}

pub(crate) fn to_hyper(response: Response) -> hyper::Response<OutBody> {
    let body = Either::Left(Full::new(Bytes::from(response.body.into_vec())));
    with_head(body, response.status, response.headers)
}

pub(crate) fn image_to_hyper(method: Method, image: PermittedResponse) -> hyper::Response<OutBody> {
    let PermittedResponse { mut answer, permit } = image;
    let (status, headers) = (answer.reply.status, std::mem::take(&mut answer.reply.headers));
    let len = answer.reply.body.len();
    if method == Method::Head {
        answer.reply.body = vlab_image_service::layout::Layout::default();
    }
    let mut out = with_head(Either::Right(ImageBody::new(answer, permit)), status, headers);
    if method == Method::Head {
        // What it would be: that is what the client wants to know.
        out.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    out
}

fn with_head(body: OutBody, status: u16, headers: Vec<(String, String)>) -> hyper::Response<OutBody> {
    let mut out = hyper::Response::new(body);
    // The core only uses codes that exist; anything else is its defect.
    *out.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes())) {
            (Ok(name), _) if name == CONTENT_LENGTH => {}
            (Ok(name), Ok(value)) => {
                out.headers_mut().append(name, value);
            }
            _ => tracing::warn!(name, "a header of an answer cannot be sent and was left out"),
        }
    }
    out
}
