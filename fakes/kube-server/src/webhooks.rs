//! Calls of admission webhooks: one HTTPS request each, by a connection of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use vlab_kube::{Answer, Call};

/// Where services of the cluster are reached: `name.namespace` to `host:port`.
pub(crate) type Services = BTreeMap<String, String>;

/// The parts of a URL.
struct Place {
    tls: bool,
    host: String,
    port: u16,
    path: String,
}

fn place(url: &str) -> Option<Place> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = match rest.find('/') {
        Some(at) => (&rest[..at], &rest[at..]),
        None => (rest, "/"),
    };
    let tls = scheme == "https";
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, if tls { 443 } else { 80 }),
    };
    Some(Place { tls, host: host.trim_matches(['[', ']']).to_owned(), port, path: path.to_owned() })
}

/// Makes the call.
pub(crate) async fn answer(call: &Call, services: &Services) -> Answer {
    if call.lost {
        return Answer::Failed("context deadline exceeded".into());
    }
    match tokio::time::timeout(call.timeout, post(call, services)).await {
        Ok(Ok(review)) => Answer::Review(review),
        Ok(Err(why)) => Answer::Failed(format!("Post {:?}: {why}", call.url)),
        Err(_) => Answer::Failed(format!("Post {:?}: context deadline exceeded", call.url)),
    }
}

async fn post(call: &Call, services: &Services) -> Result<serde_json::Value, String> {
    let place = place(&call.url).ok_or("no URL")?;
    let target = match place.host.strip_suffix(".svc") {
        Some(service) => services.get(service).cloned().ok_or_else(|| {
            format!(
                "dial tcp: lookup {}: no such host (give its address with --service {service}=HOST:PORT)",
                place.host
            )
        })?,
        None => format!("{}:{}", place.host, place.port),
    };
    let stream = TcpStream::connect(&target).await.map_err(|e| format!("dial tcp {target}: {e}"))?;
    if !place.tls {
        return exchange(stream, &place, call).await;
    }
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&call.ca) {
        roots.add(certificate.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    }
    if roots.is_empty() {
        return Err("tls: caBundle has no certificate; the system's are not used here".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(place.host.clone()).map_err(|e| e.to_string())?;
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    exchange(stream.map_err(|e| format!("tls: {e}"))?, &place, call).await
}

async fn exchange<S>(stream: S, place: &Place, call: &Call) -> Result<serde_json::Value, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let task = tokio::spawn(connection);
    let body = serde_json::to_vec(&call.review).map_err(|e| e.to_string())?;
    let request = hyper::Request::post(&place.path)
        .header("host", format!("{}:{}", place.host, place.port))
        .header("content-type", "application/json")
        .header("accept", "application/json, */*")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| e.to_string())?;
    let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let status = response.status();
    let bytes = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
    task.abort();
    if !status.is_success() {
        return Err(format!(
            "an error on the server ({:?}) has prevented the request from succeeding",
            String::from_utf8_lossy(&bytes)
        ));
    }
    serde_json::from_slice(&bytes).map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://a.b.svc:8443/x/y", true, "a.b.svc", 8443, "/x/y")]
    #[case("https://127.0.0.1", true, "127.0.0.1", 443, "/")]
    #[case("http://[::1]:80/", false, "::1", 80, "/")]
    fn urls(#[case] url: &str, #[case] tls: bool, #[case] host: &str, #[case] port: u16, #[case] path: &str) {
        let found = place(url).unwrap();
        assert_eq!((found.tls, found.host.as_str(), found.port, found.path.as_str()), (tls, host, port, path));
    }
}
