//! Servers of the control plane: what the API and the machine-config server have in common.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};
use vlab_kube::Failure;

use super::api::{Answer, Api};
use super::pki::{Pair, subject};
use crate::net::http::{certificates, key};

/// How a server knows itself and others.
///
/// # Errors
/// When a certificate or key cannot be used.
pub fn tls(own: &Pair, clients_of: Option<&str>) -> io::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?;
    let builder = match clients_of {
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(ca)? {
                roots.add(certificate).map_err(io::Error::other)?;
            }
            // Without a certificate one may still look whether the server lives.
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).allow_unauthenticated().build();
            builder.with_client_cert_verifier(verifier.map_err(io::Error::other)?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(certificates(&own.cert)?, key(&own.key)?).map_err(io::Error::other)?;
    // Go's clients notice over HTTP/2 alone that an address has moved away under a connection: they ask for signs of life.
    config.alpn_protocols = [H2, b"http/1.1"].map(<[u8]>::to_vec).into();
    Ok(config)
}

/// HTTP/2, as TLS calls it.
const H2: &[u8] = b"h2";

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// What is asked.
    pub request: Request,
    /// Whom the client's certificate names, and the groups of that user.
    pub certificate: Option<(String, Vec<String>)>,
    /// From where.
    pub peer: SocketAddr,
}

/// The body of an answer: whole, or the lines of a watch as they come.
enum Sent {
    Whole(Option<Bytes>),
    Watch(mpsc::Receiver<Bytes>),
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Sent::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Sent::Watch(lines) => lines.poll_recv(cx).map(|line| line.map(|l| Ok(Frame::data(l)))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Sent::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Sent::Watch(_) => SizeHint::default(),
        }
    }
}

/// Listens with TLS (`None`: without it) and answers until the task is ended, which closes all connections.
///
/// # Errors
/// When nobody can listen there.
pub async fn serve<F, R>(
    address: SocketAddr,
    config: Option<ServerConfig>,
    answer: F,
) -> io::Result<(SocketAddr, JoinHandle<()>)>
where
    F: Fn(Incoming) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let at = |e: io::Error| io::Error::new(e.kind(), format!("{address}: {e}"));
    let listener = TcpListener::bind(address).await.map_err(at)?;
    let bound = listener.local_addr()?;
    let acceptor = config.map(|config| TlsAcceptor::from(Arc::new(config)));
    let task = tokio::spawn(async move {
        let mut open = JoinSet::new();
        loop {
            while open.try_join_next().is_some() {}
            let Ok((stream, peer)) = listener.accept().await else {
                // Out of files, for a moment.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            // A socket of both families shows IPv4 clients as IPv6 ones.
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            open.spawn(async move {
                let Some(acceptor) = acceptor else { return talk(stream, false, None, peer, answer).await };
                // Who does not speak TLS is no client.
                let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(10), acceptor.accept(stream)).await
                else {
                    return;
                };
                let session = stream.get_ref().1;
                let names = session.peer_certificates().and_then(|c| c.first()).and_then(|c| subject(c));
                let is_http2 = session.alpn_protocol() == Some(H2);
                talk(stream, is_http2, names, peer, answer).await;
            });
        }
    });
    Ok((bound, task))
}

/// Answers what comes over one connection, of HTTP/2 or HTTP/1.1.
async fn talk<S, F, R>(stream: S, is_http2: bool, names: Option<(String, Vec<String>)>, peer: SocketAddr, answer: F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Incoming) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let service = service_fn(move |incoming: hyper::Request<hyper::body::Incoming>| {
        respond(incoming, names.clone(), peer, answer.clone())
    });
    let stream = TokioIo::new(stream);
    // A client that breaks off has its own reasons.
    let _ = match is_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
        false => http1::Builder::new().serve_connection(stream, service).await,
    };
}

async fn respond<F, R>(
    incoming: hyper::Request<hyper::body::Incoming>,
    certificate: Option<(String, Vec<String>)>,
    peer: SocketAddr,
    answer: F,
) -> Result<hyper::Response<Sent>, hyper::Error>
where
    F: Fn(Incoming) -> R,
    R: Future<Output = Answer>,
{
    let (parts, body) = incoming.into_parts();
    let path = parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    let mut request = Request::new(Method::from_name(parts.method.as_str()), path);
    for (name, value) in &parts.headers {
        if let Ok(value) = value.to_str() {
            request.headers.push((name.as_str().to_owned(), value.to_owned()));
        }
    }
    request.body = body.collect().await?.to_bytes().to_vec().into();
    Ok(match answer(Incoming { request, certificate, peer }).await {
        Answer::Done(response) => written(response),
        Answer::Watch(lines) => {
            let mut response = hyper::Response::new(Sent::Watch(lines));
            response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
            response
        }
    })
}

fn written(response: Response) -> hyper::Response<Sent> {
    let body = Bytes::copy_from_slice(&response.body);
    let mut sent = hyper::Response::new(Sent::Whole(Some(body).filter(|b| !b.is_empty())));
    *sent.status_mut() = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &response.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            sent.headers_mut().append(name, value);
        }
    }
    sent
}

/// Serves the API.
///
/// # Errors
/// When nobody can listen there, or the keys cannot be used.
pub async fn serve_api(address: SocketAddr, own: &Pair, api: Arc<Api>) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let config = tls(own, Some(&api.pki.ca.cert))?;
    serve(address, Some(config), move |incoming| {
        let api = Arc::clone(&api);
        async move {
            // A client that goes away does not stop what it began: a write is done whole or not at all.
            let work =
                tokio::spawn(async move { api.serve(incoming.certificate, &incoming.request, Timestamp::now()).await });
            let problem = match work.await {
                Ok(Ok(answer)) => return answer,
                Ok(Err(e)) => format!("etcd: {e}"),
                Err(e) => e.to_string(),
            };
            Answer::Done(Failure::new(500, "InternalError", problem).response())
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_server_that_ends_closes_what_is_open() {
        let answer = |_| async { Answer::Done(Response::empty(200)) };
        let (address, task) = serve(([127, 0, 0, 1], 0).into(), None, answer).await.unwrap();
        let mut open = TcpStream::connect(address).await.unwrap();
        open.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut some = [0; 16];
        open.read_exact(&mut some).await.unwrap();
        assert_eq!(&some[..12], b"HTTP/1.1 200");
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(10), open.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the connection stays open");
    }
}
