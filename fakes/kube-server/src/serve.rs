//! Sockets, TLS and the clock around the core.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};
use vlab_kube::{Answer, Caller, Core, Failure, Line, Options, Reply, Ticket, WatchId, member};

use crate::control;
use crate::keys::Keys;
use crate::webhooks::{self, Services};

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Its keys; without them it speaks plain HTTP, and everybody is the administrator.
    pub keys: Option<Keys>,
    /// One that speaks plain HTTP listens there with TLS, too, for clients that speak nothing else. They are administrators as well.
    pub also: Option<(SocketAddr, Keys)>,
    /// How it is to be.
    pub core: Options,
    /// Where services of the cluster are reached that webhooks name: `name.namespace` to `host:port`.
    pub services: BTreeMap<String, String>,
}

/// What all connections share.
struct Shared {
    core: Mutex<Core>,
    /// Who is to be woken when a watch has news.
    watches: Mutex<BTreeMap<WatchId, Waker>>,
    waiting: Mutex<BTreeMap<Ticket, oneshot::Sender<Reply>>>,
    timer: Notify,
    /// When the core wants to be woken, as the timer knows it.
    due: Mutex<Option<Timestamp>>,
    services: Services,
    /// How often the server has restarted, as its connections are told.
    restarts: watch::Sender<u64>,
    open: bool,
    /// The API servers of other clusters below `/clusters`, by name.
    members: Mutex<BTreeMap<String, Member>>,
}

impl Shared {
    fn new(core: Core, services: Services, open: bool) -> Self {
        Self {
            core: Mutex::new(core),
            watches: Mutex::default(),
            waiting: Mutex::default(),
            timer: Notify::new(),
            due: Mutex::default(),
            services,
            restarts: watch::Sender::new(0),
            open,
            members: Mutex::default(),
        }
    }
}

/// The API server of another cluster behind the same door.
struct Member {
    shared: Arc<Shared>,
    ticking: JoinHandle<()>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.ticking.abort();
    }
}

/// The API server of that cluster, which is made when it is first asked.
fn member_of(shared: &Shared, name: &str) -> Arc<Shared> {
    let options = held(&shared.core).options_of_member(name);
    let mut members = held(&shared.members);
    let member = members.entry(name.to_owned()).or_insert_with(|| {
        let core = Core::of_cluster(options, Timestamp::now());
        let own = Arc::new(Shared::new(core, shared.services.clone(), shared.open));
        Member { ticking: tokio::spawn(tick(Arc::clone(&own))), shared: own }
    });
    Arc::clone(&member.shared)
}

/// A server that runs; it ends when this is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    also: Option<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        held(&self.shared.members).clear();
    }
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens with TLS beside plain HTTP.
    pub fn also(&self) -> Option<SocketAddr> {
        self.also
    }

    /// Its URL.
    pub fn url(&self) -> String {
        let scheme = if self.shared.open { "http" } else { "https" };
        format!("{scheme}://{}", self.address)
    }

    /// Looks at the core, or changes what goes wrong in it. Watches that have news of it are told.
    pub fn with_core<T>(&self, look: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = held(&self.shared.core);
        let found = look(&mut core);
        pump(&self.shared, &mut core);
        found
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked has changed nothing half: the core stores at the end of a request.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks for a certificate and takes any at first, as the real server does: with one that is not good, requests are answered with 401,
/// and no connection breaks off without a word.
#[derive(Debug)]
struct Lenient(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// How connections are taken, and how their certificates are checked.
#[derive(Clone)]
struct Tls {
    acceptor: TlsAcceptor,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// What the certificate of a connection says.
#[derive(Clone, Debug)]
enum Certificate {
    /// There is none.
    Absent,
    /// The user and the groups.
    Of(String, Vec<String>),
    /// It is expired, of another authority, or names nobody.
    Refused,
}

impl Tls {
    fn certificate(&self, chain: Option<&[CertificateDer<'static>]>) -> Certificate {
        let Some([first, rest @ ..]) = chain else { return Certificate::Absent };
        if self.verifier.verify_client_cert(first, rest, UnixTime::now()).is_err() {
            return Certificate::Refused;
        }
        subject(first).map_or(Certificate::Refused, |(name, groups)| Certificate::Of(name, groups))
    }
}

fn secured(keys: &Keys) -> io::Result<Tls> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let certificates = |pem: &str| -> io::Result<Vec<CertificateDer<'static>>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(io::Error::other)
    };
    for certificate in certificates(&keys.ca.cert)? {
        roots.add(certificate).map_err(io::Error::other)?;
    }
    // Without a certificate one comes with a token, or as nobody.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(keys.server.key.as_bytes()).map_err(io::Error::other)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_client_cert_verifier(Arc::new(Lenient(Arc::clone(&verifier))))
        .with_single_cert(certificates(&keys.server.cert)?, key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), verifier })
}

/// Starts a server.
///
/// # Errors
/// When nobody can listen there, or the keys cannot be used.
pub async fn serve(options: ServeOptions) -> io::Result<Server> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", options.listen));
    let listener = TcpListener::bind(options.listen).await.map_err(at)?;
    let address = listener.local_addr()?;
    let tls = match &options.keys {
        Some(keys) => Some(secured(keys)?),
        None => None,
    };
    let second = match &options.also {
        Some((listen, keys)) => {
            let at = |e: io::Error| io::Error::new(e.kind(), format!("{listen}: {e}"));
            Some((TcpListener::bind(listen).await.map_err(at)?, secured(keys)?))
        }
        None => None,
    };
    let also = second.as_ref().map(|(listener, _)| listener.local_addr()).transpose()?;
    let core = Core::new(options.core, Timestamp::now());
    let shared = Arc::new(Shared::new(core, options.services, tls.is_none()));
    let mut tasks =
        vec![tokio::spawn(accept(listener, tls, Arc::clone(&shared))), tokio::spawn(tick(Arc::clone(&shared)))];
    if let Some((listener, tls)) = second {
        tasks.push(tokio::spawn(accept(listener, Some(tls), Arc::clone(&shared))));
    }
    Ok(Server { shared, address, also, tasks })
}

async fn accept(listener: TcpListener, tls: Option<Tls>, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of files, for a moment.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let Some(tls) = tls else {
                return connection(stream, Certificate::Absent, shared).await;
            };
            // Who does not speak TLS is no client.
            let handshake = tokio::time::timeout(Duration::from_secs(10), tls.acceptor.accept(stream)).await;
            let Ok(Ok(stream)) = handshake else { return };
            let certificate = tls.certificate(stream.get_ref().1.peer_certificates());
            connection(stream, certificate, shared).await;
        });
    }
}

/// Common name and organisations of a certificate: the user and his groups.
fn subject(der: &[u8]) -> Option<(String, Vec<String>)> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|a| a.as_str().ok().map(str::to_owned)).collect();
    Some((name, groups))
}

async fn connection<S>(stream: S, certificate: Certificate, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut restarts = shared.restarts.subscribe();
    let service = service_fn(move |incoming| answer(incoming, certificate.clone(), Arc::clone(&shared)));
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    loop {
        tokio::select! {
            // A client that goes away in the middle is no error of ours.
            _ = serving.as_mut() => return,
            // What is being answered is answered, as a real server does that is asked to end; a watch has ended.
            Ok(()) = restarts.changed() => serving.as_mut().graceful_shutdown(),
        }
    }
}

/// The body of an answer: whole, or the lines of a watch.
enum Sent {
    Whole(Option<Bytes>),
    Watch(Watching),
}

/// A watch of a client: its connection asks the core for lines as fast as they can be sent.
struct Watching {
    shared: Arc<Shared>,
    id: WatchId,
    over: bool,
}

impl Watching {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        if self.over {
            return Poll::Ready(None);
        }
        let told = {
            let mut core = held(&self.shared.core);
            let told = core.poll_watch(Timestamp::now(), self.id);
            remind(&self.shared, &core);
            // Still under the core's lock: nothing can happen between the look and the wish to be woken.
            if told.lines.is_empty() && !told.over {
                held(&self.shared.watches).insert(self.id, cx.waker().clone());
            }
            told
        };
        self.over = told.over;
        match told.lines.as_slice() {
            [] if told.over => Poll::Ready(None),
            [] => Poll::Pending,
            [one] => Poll::Ready(Some(one.bytes())),
            many => Poll::Ready(Some(many.iter().map(Line::bytes).collect::<Vec<_>>().concat().into())),
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        held(&self.shared.core).close_watch(self.id);
        held(&self.shared.watches).remove(&self.id);
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Sent::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Sent::Watch(watch) => watch.poll(cx).map(|b| b.map(|b| Ok(Frame::data(b)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Sent::Whole(None))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Sent::Whole(bytes) => hyper::body::SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Sent::Watch(_) => hyper::body::SizeHint::default(),
        }
    }
}

async fn answer(
    incoming: hyper::Request<Incoming>,
    certificate: Certificate,
    shared: Arc<Shared>,
) -> Result<hyper::Response<Sent>, hyper::Error> {
    let (parts, body) = incoming.into_parts();
    let mut request = Request::new(
        Method::from_name(parts.method.as_str()),
        parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
    );
    for (name, value) in &parts.headers {
        if let Ok(value) = value.to_str() {
            request.headers.push((name.as_str().to_owned(), value.to_owned()));
        }
    }
    request.body = body.collect().await?.to_bytes().to_vec().into();
    if shared.open && control::is_about(&request) {
        let mut core = held(&shared.core);
        let response = control::answer(&mut core, Timestamp::now(), &request);
        pump(&shared, &mut core);
        return Ok(written(response));
    }
    let caller = caller(&shared, &request, certificate);
    let mut shared = shared;
    if let Some((name, path)) = member(&request.path) {
        shared = member_of(&shared, name);
        request.path = path.to_owned();
    }
    let reply = match caller {
        Ok(caller) => ask(&shared, &caller, &request).await,
        Err(response) => Reply::Done(response),
    };
    Ok(match reply {
        Reply::Watch(id) => {
            if shared.open && request.get_header(control::FAITHFUL).is_some() {
                held(&shared.core).make_faithful(id);
            }
            watching(&shared, id)
        }
        Reply::Done(response) => written(response),
        Reply::Pending(_) => written(Response::empty(500)),
    })
}

fn caller(shared: &Shared, request: &Request, certificate: Certificate) -> Result<Caller, Response> {
    let subject = match certificate {
        Certificate::Absent => None,
        Certificate::Of(name, groups) => Some((name, groups)),
        // A token may still say who it is.
        Certificate::Refused if request.get_header("authorization").is_some() => None,
        Certificate::Refused => return Err(Failure::unauthorized().response()),
    };
    let core = held(&shared.core);
    let caller = if shared.open && request.get_header("authorization").is_none() {
        Ok(Caller::admin())
    } else {
        core.authenticate(request, subject)
    };
    caller.and_then(|caller| core.impersonated(request, &caller)).map_err(|failure| failure.response())
}

async fn ask(shared: &Arc<Shared>, caller: &Caller, request: &Request) -> Reply {
    let (waiting, late) = {
        let mut core = held(&shared.core);
        let reply = core.handle(Timestamp::now(), caller, request);
        let late = core.faults.take_late();
        let waiting = if let Reply::Pending(ticket) = reply {
            let (send, receive) = oneshot::channel();
            held(&shared.waiting).insert(ticket, send);
            Ok(receive)
        } else {
            Err(reply)
        };
        pump(shared, &mut core);
        (waiting, late)
    };
    let reply = match waiting {
        Err(reply) => reply,
        Ok(receive) => receive.await.unwrap_or_else(|_| Reply::Done(Response::empty(503))),
    };
    if !late.is_zero() {
        // That is the fault.
        tokio::time::sleep(late).await;
    }
    reply
}

/// Wakes watches that have news, and makes the calls that are due.
fn pump(shared: &Arc<Shared>, core: &mut Core) {
    let mut watches = held(&shared.watches);
    for id in core.take_woken() {
        if let Some(waker) = watches.remove(&id) {
            waker.wake();
        }
    }
    drop(watches);
    for ticket in core.take_lost() {
        // Who waits for it is told by that.
        drop(held(&shared.waiting).remove(&ticket));
    }
    if core.take_restarted() {
        shared.restarts.send_modify(|times| *times += 1);
    }
    for call in core.take_calls() {
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            let answer: Answer = webhooks::answer(&call, &shared.services).await;
            let mut core = held(&shared.core);
            let Some((ticket, reply)) = core.answered(Timestamp::now(), call.id, answer) else { return };
            if !matches!(reply, Reply::Pending(_))
                && let Some(send) = held(&shared.waiting).remove(&ticket)
            {
                // Whoever asked may have gone.
                let _ = send.send(reply);
            }
            pump(&shared, &mut core);
        });
    }
    remind(shared, core);
}

/// Tells the timer when the core wants to be woken.
fn remind(shared: &Shared, core: &Core) {
    let next = core.next_wake();
    let known = std::mem::replace(&mut *held(&shared.due), next);
    if next != known {
        shared.timer.notify_one();
    }
}

/// Wakes the core when it asked for it.
async fn tick(shared: Arc<Shared>) {
    loop {
        let next = *held(&shared.due);
        let wait = next.map_or(Duration::from_secs(3600), |due| due.since(Timestamp::now()));
        tokio::select! {
            () = tokio::time::sleep(wait) => {
                let mut core = held(&shared.core);
                core.wake(Timestamp::now());
                pump(&shared, &mut core);
            }
            () = shared.timer.notified() => {}
        }
    }
}

fn watching(shared: &Arc<Shared>, id: WatchId) -> hyper::Response<Sent> {
    let watching = Watching { shared: Arc::clone(shared), id, over: false };
    let mut response = hyper::Response::new(Sent::Watch(watching));
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    response
}

fn written(response: Response) -> hyper::Response<Sent> {
    let mut sent =
        hyper::Response::new(Sent::Whole(Some(Bytes::copy_from_slice(&response.body)).filter(|b| !b.is_empty())));
    *sent.status_mut() =
        hyper::StatusCode::from_u16(response.status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &response.headers {
        if let (Ok(name), Ok(value)) =
            (hyper::header::HeaderName::from_bytes(name.as_bytes()), hyper::header::HeaderValue::from_str(value))
        {
            sent.headers_mut().append(name, value);
        }
    }
    sent
}
