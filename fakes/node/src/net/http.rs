//! HTTP requests, with or without TLS: over a connection of their own for what is asked rarely (ignition endpoints, tang), over one
//! that stays open for what is asked again and again (etcd, the cluster's API).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{HeaderName, HeaderValue};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Whom to believe, and who we are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Certificates (PEM) that vouch for servers; `None`: any certificate will do.
    pub ca: Option<String>,
    /// Our own certificate and key (PEM).
    pub own: Option<(String, String)>,
}

/// A request.
#[derive(Clone, Debug)]
pub struct HttpQuestion<'a> {
    /// `GET`, `POST`, ...
    pub method: &'a str,
    /// Where to.
    pub url: &'a str,
    /// Headers but for the host's.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body that is sent; empty: none.
    pub body: Vec<u8>,
}

impl<'a> HttpQuestion<'a> {
    /// A `GET` without anything more.
    pub fn get(url: &'a str) -> Self {
        Self { method: "GET", url, headers: &[], body: Vec::new() }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// Body, whole and as it came.
    pub body: Vec<u8>,
}

impl HttpAnswer {
    /// Is it one of the successes?
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A URL in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// `https`?
    pub tls: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port, the scheme's own where the URL names none.
    pub port: u16,
    /// Path and query.
    pub path: String,
}

impl Url {
    /// Reads `http[s]://host[:port][/path]`.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match authority.strip_prefix('[') {
            Some(six) => {
                let (host, port) = six.split_once(']')?;
                (host, port.strip_prefix(':'))
            }
            None => authority.split_once(':').map_or((authority, None), |(h, p)| (h, Some(p))),
        };
        let port = match port {
            Some(port) => port.parse().ok()?,
            None if tls => 443,
            None => 80,
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        (!host.is_empty()).then(|| Self { tls, host: host.to_owned(), port, path })
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }
}

type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

/// Connections that stay open between requests, one to each server: a TLS handshake costs an emulated processor more than all the
/// rest of a request. For one set of credentials.
#[derive(Clone, Debug, Default)]
pub struct Kept(Arc<Mutex<BTreeMap<String, Sender>>>);

impl Kept {
    fn open(&self) -> MutexGuard<'_, BTreeMap<String, Sender>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for the whole answer, `budget` at most.
    ///
    /// # Errors
    /// With words for people: what was asked, and what went wrong.
    pub async fn send(
        &self,
        question: HttpQuestion<'_>,
        credentials: &Credentials,
        budget: Duration,
    ) -> io::Result<HttpAnswer> {
        let HttpQuestion { method, url, headers, body } = question;
        let problem = |e: io::Error| io::Error::new(e.kind(), format!("{method} {url}: {e}"));
        let parts = Url::parse(url).ok_or_else(|| problem(io::Error::other("this is not an http or https URL")))?;
        let body = Bytes::from(body);
        let work = async {
            let place = format!("{}{}", if parts.tls { "https://" } else { "http://" }, parts.authority());
            // Nobody else has it while it is used.
            let before = self.open().remove(&place);
            if let Some(mut sender) = before
                && sender.ready().await.is_ok()
            {
                match exchange(&mut sender, method, &parts, headers, body.clone()).await {
                    Ok(answer) => {
                        self.open().insert(place, sender);
                        return Ok(answer);
                    }
                    // The server closed it in the meantime: that says nothing about the server. What it may have got already
                    // is not sent again unless twice is the same as once.
                    Err(e) if e.is_canceled() => {}
                    Err(e) if method != "POST" && (e.is_closed() || e.is_incomplete_message()) => {}
                    Err(e) => return Err(io::Error::other(e)),
                }
            }
            let mut sender = connected(&parts, credentials).await?;
            let answer = exchange(&mut sender, method, &parts, headers, body).await.map_err(io::Error::other)?;
            self.open().insert(place, sender);
            Ok(answer)
        };
        match tokio::time::timeout(budget, work).await {
            Ok(result) => result.map_err(problem),
            Err(_) => Err(problem(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {budget:?}")))),
        }
    }
}

/// Sends one request over a connection of its own: see [`Kept::send`].
///
/// # Errors
/// As there.
pub async fn send(question: HttpQuestion<'_>, credentials: &Credentials, budget: Duration) -> io::Result<HttpAnswer> {
    Kept::default().send(question, credentials, budget).await
}

/// The simplest case.
///
/// # Errors
/// As [`send`].
pub async fn get(url: &str, credentials: &Credentials, budget: Duration) -> io::Result<HttpAnswer> {
    send(HttpQuestion::get(url), credentials, budget).await
}

async fn connect(url: &Url) -> io::Result<TcpStream> {
    let host = url.host.clone();
    // The resolver of this crate, so that a name means the same here as in the answers of steps.
    let found = tokio::task::spawn_blocking(move || {
        super::dns::Resolver::of(&crate::machine::Root::of_this_machine()).lookup(&host)
    });
    let found = found.await.map_err(io::Error::other)??;
    let mut problem = io::Error::other(format!("{} has no address", url.host));
    for address in found.addresses {
        match TcpStream::connect(SocketAddr::new(address, url.port)).await {
            Ok(stream) => return Ok(stream),
            Err(e) => problem = e,
        }
    }
    Err(problem)
}

/// A new connection; it ends when nobody sends over it any more.
async fn connected(url: &Url, credentials: &Credentials) -> io::Result<Sender> {
    let stream = connect(url).await?;
    if !url.tls {
        return handshake(stream).await;
    }
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client_config(credentials)?));
    let name = ServerName::try_from(url.host.clone()).map_err(io::Error::other)?;
    handshake(connector.connect(name, stream).await?).await
}

async fn handshake<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> io::Result<Sender> {
    let (sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn exchange(
    sender: &mut Sender,
    method: &str,
    url: &Url,
    headers: &[(&str, &str)],
    body: Bytes,
) -> hyper::Result<HttpAnswer> {
    let mut request = hyper::Request::new(Full::new(body));
    // What cannot be a method, a path or a header of ours would be a mistake in this crate, and the server says so.
    *request.method_mut() = method.parse().unwrap_or_default();
    *request.uri_mut() = url.path.parse().unwrap_or_default();
    let host = url.authority();
    for (name, value) in headers.iter().copied().chain([("host", host.as_str())]) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            request.headers_mut().append(name, value);
        }
    }
    let answer = sender.send_request(request).await?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await?.to_bytes().to_vec();
    Ok(HttpAnswer { status, body })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Certificates of a PEM text.
///
/// # Errors
/// When one cannot be read, or there is none.
pub fn certificates(pem: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let all: Vec<_> =
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(io::Error::other)?;
    if all.is_empty() {
        return Err(io::Error::other("there is no certificate in it"));
    }
    Ok(all)
}

/// The private key of a PEM text.
///
/// # Errors
/// When there is none.
pub fn key(pem: &str) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(io::Error::other)
}

fn client_config(credentials: &Credentials) -> io::Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = match &credentials.ca {
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(pem)? {
                roots.add(certificate).map_err(io::Error::other)?;
            }
            builder.with_root_certificates(roots)
        }
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider()))),
    };
    match &credentials.own {
        Some((certificate, private)) => {
            builder.with_client_auth_cert(certificates(certificate)?, key(private)?).map_err(io::Error::other)
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

/// Believes every certificate, as clients do that were told not to verify.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("http://192.0.2.1:8090/a?b", Some((false, "192.0.2.1", 8090, "/a?b")))]
    #[case("https://api-int.x.test:22623/config/master", Some((true, "api-int.x.test", 22623, "/config/master")))]
    #[case("https://[fd00::1]", Some((true, "fd00::1", 443, "/")))]
    #[case("http://h?q", Some((false, "h", 80, "/?q")))]
    #[case("ftp://h", None)]
    #[case("http://:80", None)]
    #[case("http://h:x/", None)]
    fn urls(#[case] text: &str, #[case] expected: Option<(bool, &str, u16, &str)>) {
        let url = Url::parse(text);
        assert_eq!(url.as_ref().map(|u| (u.tls, u.host.as_str(), u.port, u.path.as_str())), expected);
    }
}
