//! One HTTP request over a connection of its own, with or without TLS. For what is asked rarely: ignition endpoints, tang, etcd on
//! the same machine, the cluster's API.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
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

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
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
    /// Port.
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

/// Sends a request and waits for the whole answer, `budget` at most.
///
/// # Errors
/// With words for people: what was asked, and what went wrong.
pub async fn send(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
    credentials: &Credentials,
    budget: Duration,
) -> io::Result<Answer> {
    let problem = |e: io::Error| io::Error::new(e.kind(), format!("{method} {url}: {e}"));
    let parts = Url::parse(url).ok_or_else(|| problem(io::Error::other("this is no http or https URL")))?;
    let work = async {
        let stream = connect(&parts).await?;
        match parts.tls {
            false => exchange(stream, method, &parts, headers, body).await,
            true => {
                let connector = tokio_rustls::TlsConnector::from(Arc::new(client_config(credentials)?));
                let name = ServerName::try_from(parts.host.clone()).map_err(io::Error::other)?;
                exchange(connector.connect(name, stream).await?, method, &parts, headers, body).await
            }
        }
    };
    match tokio::time::timeout(budget, work).await {
        Ok(result) => result.map_err(problem),
        Err(_) => Err(problem(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {budget:?}")))),
    }
}

/// The simplest case.
///
/// # Errors
/// As [`send`].
pub async fn get(url: &str, credentials: &Credentials, budget: Duration) -> io::Result<Answer> {
    send("GET", url, &[], Vec::new(), credentials, budget).await
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

async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    method: &str,
    url: &Url,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> io::Result<Answer> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driver = tokio::spawn(connection);
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(&url.path)
        .header("host", url.authority())
        .header("connection", "close");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(io::Error::other)?;
    let answer = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.map_err(io::Error::other)?.to_bytes().to_vec();
    driver.abort();
    Ok(Answer { status, body })
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
