//! TLS servers: what the API and the machine-config server have in common.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use vlab_api::Timestamp;

use super::api::{Api, ApiRequest, User};
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
    builder.with_single_cert(certificates(&own.cert)?, key(&own.key)?).map_err(io::Error::other)
}

/// A request as it came in, and an answer: status, content type, body.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Method, path, query, `Accept`, body, and whom the certificate names.
    pub request: ApiRequest,
    /// Header `Authorization`.
    pub authorization: String,
    /// Header `User-Agent`.
    pub user_agent: String,
    /// From where.
    pub peer: SocketAddr,
}

/// An answer: status, content type, body.
pub type Outgoing = (u16, &'static str, Vec<u8>);

/// Listens with TLS and answers until the task is ended.
///
/// # Errors
/// When nobody can listen there.
pub async fn serve<F, R>(
    address: SocketAddr,
    config: ServerConfig,
    answer: F,
) -> io::Result<(SocketAddr, JoinHandle<()>)>
where
    F: Fn(Incoming) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Outgoing> + Send + 'static,
{
    let at = |e: io::Error| io::Error::new(e.kind(), format!("{address}: {e}"));
    let listener = TcpListener::bind(address).await.map_err(at)?;
    let bound = listener.local_addr()?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let task = tokio::spawn(async move {
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                // Out of files, for a moment.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            // A socket of both families shows IPv4 clients as IPv6 ones.
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            tokio::spawn(async move {
                // Who does not speak TLS is no client.
                let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(10), acceptor.accept(stream)).await
                else {
                    return;
                };
                let names = stream.get_ref().1.peer_certificates().and_then(|c| c.first()).and_then(|c| subject(c));
                let service = service_fn(move |incoming: hyper::Request<hyper::body::Incoming>| {
                    let user = names.clone().map_or(User::Nobody, |(name, _)| User::Somebody(name));
                    respond(incoming, user, peer, answer.clone())
                });
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok((bound, task))
}

async fn respond<F, R>(
    incoming: hyper::Request<hyper::body::Incoming>,
    user: User,
    peer: SocketAddr,
    answer: F,
) -> Result<hyper::Response<Full<Bytes>>, hyper::Error>
where
    F: Fn(Incoming) -> R,
    R: Future<Output = Outgoing>,
{
    let (parts, body) = incoming.into_parts();
    let header = |name: &str| parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let body = body.collect().await?.to_bytes().to_vec();
    let request = ApiRequest {
        method: parts.method.as_str().to_owned(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        accept: header("accept"),
        body,
        user,
    };
    let (authorization, user_agent) = (header("authorization"), header("user-agent"));
    let (status, kind, body) = answer(Incoming { request, authorization, user_agent, peer }).await;
    let mut response = hyper::Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(kind));
    Ok(response)
}

/// Serves the API.
///
/// # Errors
/// When nobody can listen there, or the keys cannot be used.
pub async fn serve_api(
    address: SocketAddr,
    own: &Pair,
    api: Arc<Api>,
    bootstrap_token: String,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let config = tls(own, Some(&api.pki.ca.cert))?;
    serve(address, config, move |incoming| {
        let (api, token) = (Arc::clone(&api), bootstrap_token.clone());
        async move {
            let mut request = incoming.request;
            let shown = incoming.authorization.strip_prefix("Bearer ").unwrap_or_default();
            if request.user == User::Nobody && !token.is_empty() && shown == token {
                request.user = User::Newcomer;
            }
            let (status, body) = api.handle(&request, Timestamp::now()).await;
            let bytes = match body {
                serde_json::Value::String(text) => text.into_bytes(),
                body => body.to_string().into_bytes(),
            };
            (status, "application/json", bytes)
        }
    })
    .await
}
