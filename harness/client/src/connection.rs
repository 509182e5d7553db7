//! One HTTP/1.1 connection, as a host has one to its service: requests go out one after the other, a connection that the
//! other side closed is opened again, and what went wrong is told apart (nobody listens, lost, too slow).
//!
//! A pooled client would hide what a fleet costs a service: accepts, idle connections, stale keep-alive. So there is none.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use vlab_api::http::{Method, Request, Response, TransportError};

/// Read buffer of a connection may grow to this many bytes; a fleet of thousands has one each.
const MAX_BUFFER: usize = 64 * 1024;

/// Where a service listens. Resolved once, so that thousands of hosts do not ask the resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    address: SocketAddr,
    authority: String,
}

/// A service URL that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not of the form `http://host[:port]`.
    #[error("{0:?} is not a service URL: expected http://HOST[:PORT], for example http://127.0.0.1:8090")]
    Form(String),
    /// https is not built.
    #[error("{0:?}: https is not built yet; use the service's http listener")]
    Tls(String),
    /// The name has no address.
    #[error("cannot resolve {host:?}: {error}")]
    Resolve {
        /// Name that was looked up.
        host: String,
        /// The resolver's words.
        error: String,
    },
}

impl Endpoint {
    /// The service at that address.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, authority: address.to_string() }
    }

    /// Resolves `http://host[:port][/]`.
    ///
    /// # Errors
    /// [`EndpointError`] when the text is no such URL or the name does not resolve.
    pub async fn resolve(url: &str) -> Result<Self, EndpointError> {
        if url.starts_with("https://") {
            return Err(EndpointError::Tls(url.to_owned()));
        }
        let form = || EndpointError::Form(url.to_owned());
        let authority = url.strip_prefix("http://").ok_or_else(form)?.trim_end_matches('/');
        if authority.is_empty() || authority.contains(['/', '?', '#', '@', ' ']) {
            return Err(form());
        }
        if let Ok(address) = SocketAddr::from_str(authority) {
            return Ok(Self { address, authority: authority.to_owned() });
        }
        if let Ok(ip) = IpAddr::from_str(authority.trim_matches(['[', ']'])) {
            return Ok(Self { address: SocketAddr::new(ip, 80), authority: authority.to_owned() });
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| form())?),
            None => (authority, 80),
        };
        let mut found = tokio::net::lookup_host((host, port))
            .await
            .map_err(|e| EndpointError::Resolve { host: host.to_owned(), error: e.to_string() })?;
        let address = found.next().ok_or_else(|| EndpointError::Resolve {
            host: host.to_owned(),
            error: "the name has no address".to_owned(),
        })?;
        Ok(Self { address, authority: authority.to_owned() })
    }

    /// Address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

/// A connection to a service. Not open until the first request.
#[derive(Debug)]
pub struct HttpConnection {
    endpoint: Endpoint,
    source: Option<IpAddr>,
    sender: Option<SendRequest<Full<Bytes>>>,
    opened: u64,
}

impl HttpConnection {
    /// A connection to that service.
    pub fn new(endpoint: Endpoint) -> Self {
        Self::from_source(endpoint, None)
    }

    /// The same, opened from that address of this computer: one address has ports for some 28,000 connections to a service.
    pub fn from_source(endpoint: Endpoint, source: Option<IpAddr>) -> Self {
        Self { endpoint, source, sender: None, opened: 0 }
    }

    /// How often a TCP connection was opened.
    pub fn times_opened(&self) -> u64 {
        self.opened
    }

    /// Is it open, as far as is known on this side?
    pub fn is_open(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    /// Closes it. The next request opens a new one.
    pub fn close(&mut self) {
        self.sender = None;
    }

    /// Sends a request and waits for the whole answer, `budget` at most.
    ///
    /// A request that never left (the kept-alive connection turned out to be closed) is sent again once over a new
    /// connection; so is a GET whose answer did not begin. Anything else is the caller's to repeat.
    ///
    /// # Errors
    /// [`TransportError`]; the connection is then closed and the next request opens a new one.
    pub async fn send(&mut self, request: &Request, budget: Duration) -> Result<Response, TransportError> {
        match tokio::time::timeout(budget, self.send_unbounded(request)).await {
            Ok(result) => result,
            Err(_) => {
                self.sender = None;
                Err(TransportError::Timeout(budget))
            }
        }
    }

    async fn send_unbounded(&mut self, request: &Request) -> Result<Response, TransportError> {
        let reused = self.sender.is_some();
        match self.attempt(request).await {
            Ok(response) => Ok(response),
            Err(Attempt { error, not_sent }) => {
                self.sender = None;
                if reused && (not_sent || request.method == Method::Get) {
                    self.attempt(request).await.map_err(|second| {
                        self.sender = None;
                        second.error
                    })
                } else {
                    Err(error)
                }
            }
        }
    }

    async fn attempt(&mut self, request: &Request) -> Result<Response, Attempt> {
        if self.sender.as_ref().is_none_or(SendRequest::is_closed) {
            self.sender = Some(self.open().await.map_err(|error| Attempt { error, not_sent: true })?);
        }
        let Some(sender) = self.sender.as_mut() else {
            return Err(Attempt { error: TransportError::Connect("not open".into()), not_sent: true });
        };
        sender.ready().await.map_err(|e| Attempt { error: TransportError::Lost(e.to_string()), not_sent: true })?;
        let request = to_hyper(request, &self.endpoint.authority)
            .map_err(|e| Attempt { error: TransportError::Lost(e.to_string()), not_sent: true })?;
        let answer = sender
            .send_request(request)
            .await
            .map_err(|e| Attempt { not_sent: e.is_canceled(), error: TransportError::Lost(describe(&e)) })?;
        let (parts, body) = answer.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|e| Attempt { error: TransportError::Lost(describe(&e)), not_sent: false })?
            .to_bytes();
        Ok(Response {
            status: parts.status.as_u16(),
            headers: parts
                .headers
                .iter()
                .map(|(n, v)| (n.as_str().to_owned(), String::from_utf8_lossy(v.as_bytes()).into_owned()))
                .collect(),
            body: body.to_vec().into(),
        })
    }

    async fn open(&mut self) -> Result<SendRequest<Full<Bytes>>, TransportError> {
        let refused = |e: std::io::Error| TransportError::Connect(format!("{}: {e}", self.endpoint));
        let stream = match self.source {
            None => TcpStream::connect(self.endpoint.address).await.map_err(refused)?,
            Some(source) => {
                let socket =
                    if source.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(refused)?;
                socket.bind(SocketAddr::new(source, 0)).map_err(refused)?;
                socket.connect(self.endpoint.address).await.map_err(refused)?
            }
        };
        // A poll is one small segment: waiting for more to send would only add delay.
        let _ = stream.set_nodelay(true);
        let (sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| TransportError::Connect(format!("{}: {}", self.endpoint, describe(&e))))?;
        // The task ends when the sender is dropped or the other side closes; its error reaches us through the request.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        self.opened += 1;
        Ok(sender)
    }
}

/// Why a file could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The service.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// It answered something else.
    #[error("GET {path} answered {status}: {words}")]
    Refused {
        /// The path.
        path: String,
        /// HTTP status.
        status: u16,
        /// Beginning of the answer.
        words: String,
    },
    /// What is fetched cannot be kept.
    #[error("cannot write what is fetched: {0}")]
    Write(#[from] std::io::Error),
    /// The answer ended before its announced end.
    #[error("GET {path} ended after {got} of {wanted} bytes")]
    Short {
        /// The path.
        path: String,
        /// What came.
        got: u64,
        /// What was announced.
        wanted: u64,
    },
}

/// Fetches a file into `into`, piece by piece, however long it is; how long it was. Each piece may take `patience`.
///
/// # Errors
/// [`DownloadError`]; what came until then is in `into`.
pub async fn download(
    endpoint: &Endpoint,
    path: &str,
    into: &mut (impl AsyncWrite + Unpin),
    patience: Duration,
) -> Result<u64, DownloadError> {
    let late = |_| TransportError::Timeout(patience);
    let mut connection = HttpConnection::new(endpoint.clone());
    let mut sender = tokio::time::timeout(patience, connection.open()).await.map_err(late)??;
    let request = to_hyper(&Request::new(Method::Get, path), &endpoint.authority)
        .map_err(|e| TransportError::Lost(e.to_string()))?;
    let lost = |e: hyper::Error| TransportError::Lost(describe(&e));
    let answer = tokio::time::timeout(patience, sender.send_request(request)).await.map_err(late)?.map_err(lost)?;
    let (parts, mut body) = answer.into_parts();
    if !parts.status.is_success() {
        let told = tokio::time::timeout(patience, body.collect()).await.map_err(late)?.map_err(lost)?.to_bytes();
        let words = String::from_utf8_lossy(&told[..told.len().min(300)]).into_owned();
        return Err(DownloadError::Refused { path: path.to_owned(), status: parts.status.as_u16(), words });
    }
    let mut got = 0;
    while let Some(frame) = tokio::time::timeout(patience, body.frame()).await.map_err(late)? {
        if let Ok(piece) = frame.map_err(lost)?.into_data() {
            into.write_all(&piece).await?;
            got += piece.len() as u64;
        }
    }
    into.flush().await?;
    let announced = parts.headers.get("content-length").and_then(|v| v.to_str().ok()?.parse().ok());
    match announced {
        Some(wanted) if wanted != got => Err(DownloadError::Short { path: path.to_owned(), got, wanted }),
        _ => Ok(got),
    }
}

/// The lines of an answer that goes on, as a watch of a Kubernetes API server does.
#[derive(Debug)]
pub struct Lines {
    body: hyper::body::Incoming,
    /// What came of lines that are not whole yet.
    rest: Vec<u8>,
    /// The connection lives as long as this.
    _sender: SendRequest<Full<Bytes>>,
}

/// What a request for lines is answered with.
#[derive(Debug)]
pub enum Answered {
    /// They come.
    Lines(Lines),
    /// Another status than 200, and its body.
    Refused(Response),
}

/// Asks for an answer that goes on, over a connection of its own; its beginning may take `patience`.
///
/// # Errors
/// [`TransportError`].
pub async fn lines(endpoint: &Endpoint, request: &Request, patience: Duration) -> Result<Answered, TransportError> {
    let late = |_| TransportError::Timeout(patience);
    let mut connection = HttpConnection::new(endpoint.clone());
    let mut sender = tokio::time::timeout(patience, connection.open()).await.map_err(late)??;
    let request = to_hyper(request, &endpoint.authority).map_err(|e| TransportError::Lost(e.to_string()))?;
    let lost = |e: hyper::Error| TransportError::Lost(describe(&e));
    let answer = tokio::time::timeout(patience, sender.send_request(request)).await.map_err(late)?.map_err(lost)?;
    let (parts, body) = answer.into_parts();
    if parts.status.is_success() {
        return Ok(Answered::Lines(Lines { body, rest: Vec::new(), _sender: sender }));
    }
    let body = tokio::time::timeout(patience, body.collect()).await.map_err(late)?.map_err(lost)?.to_bytes();
    Ok(Answered::Refused(Response { status: parts.status.as_u16(), headers: Vec::new(), body: body.to_vec().into() }))
}

impl Lines {
    /// The next lines, as many as are there; nothing at the end. May be given up and asked again.
    ///
    /// # Errors
    /// [`TransportError::Lost`].
    pub async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|e| TransportError::Lost(describe(&e)))?;
            let Ok(piece) = frame.into_data() else { continue };
            self.rest.extend_from_slice(&piece);
            let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            let whole: Vec<u8> = self.rest.drain(..=end).collect();
            let all = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            return Ok(Some(all.map(<[u8]>::to_vec).collect()));
        }
    }
}

struct Attempt {
    error: TransportError,
    not_sent: bool,
}

fn to_hyper(request: &Request, authority: &str) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
    let mut builder =
        hyper::Request::builder().method(request.method.as_str()).uri(&request.path).header("host", authority);
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    builder.body(Full::new(Bytes::copy_from_slice(&request.body)))
}

/// hyper's own message with the cause behind it.
fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("http://127.0.0.1:8090", "127.0.0.1:8090")]
    #[case("http://127.0.0.1:8090/", "127.0.0.1:8090")]
    #[case("http://127.0.0.1", "127.0.0.1:80")]
    #[case("http://[::1]:9", "[::1]:9")]
    #[case("http://localhost:99", "localhost:99")]
    #[tokio::test]
    async fn urls_that_can_be_used(#[case] url: &str, #[case] expected: &str) {
        let endpoint = Endpoint::resolve(url).await.unwrap();
        if expected.starts_with("localhost") {
            assert!(endpoint.address().ip().is_loopback());
            assert_eq!(endpoint.to_string(), "http://localhost:99");
        } else {
            assert_eq!(endpoint.address().to_string(), expected);
        }
    }

    #[rstest]
    #[case("https://x", "https is not built")]
    #[case("127.0.0.1:80", "is not a service URL")]
    #[case("http://", "is not a service URL")]
    #[case("http://h/path", "is not a service URL")]
    #[case("http://h:port", "is not a service URL")]
    #[tokio::test]
    async fn urls_that_cannot(#[case] url: &str, #[case] expected: &str) {
        let error = Endpoint::resolve(url).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    /// Answers one request with these pieces, one after the other, and closes.
    async fn serve_once(pieces: &'static [&'static str]) -> Endpoint {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            for piece in pieces {
                stream.write_all(piece.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
            }
        });
        Endpoint::new(address)
    }

    #[tokio::test]
    async fn lines_come_whole_however_they_are_sent() {
        const PIECES: &[&str] = &["HTTP/1.1 200 OK\r\n\r\n", "on", "e\ntwo\nthr", "ee\n", "not whole"];
        let endpoint = serve_once(PIECES).await;
        let request = Request::new(Method::Get, "/x");
        let Answered::Lines(mut lines) = lines(&endpoint, &request, Duration::from_secs(10)).await.unwrap() else {
            panic!("they were refused");
        };
        let mut all = Vec::new();
        while let Some(more) = lines.next().await.unwrap() {
            all.extend(more.into_iter().map(|line| String::from_utf8(line).unwrap()));
        }
        assert_eq!(all, ["one", "two", "three"]);
    }

    #[tokio::test]
    async fn another_status_than_200_is_the_answer() {
        let endpoint = serve_once(&["HTTP/1.1 410 Gone\r\ncontent-length: 4\r\n\r\ngone"]).await;
        let request = Request::new(Method::Get, "/x");
        let answered = lines(&endpoint, &request, Duration::from_secs(10)).await.unwrap();
        let Answered::Refused(response) = answered else { panic!("there are no lines") };
        assert_eq!(response.status, 410);
        assert_eq!(response.body.to_vec(), b"gone");
    }
}
