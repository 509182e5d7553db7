//! Whether a service answers, and what answers there.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use vlab_api::http::{Method, Request, Response, TransportError};
use vlab_api::ops;
use vlab_client::{Endpoint, HttpConnection};

/// How long a real service may take from its start until it is ready: it makes its tables first.
pub(super) const BUDGET: Duration = Duration::from_secs(60);
/// What a real service is waited for.
pub(super) const READY: &str = "the service to be ready (GET /ready)";
/// How long a service may take to tell what it is.
const ANSWER: Duration = Duration::from_secs(10);

pub(super) async fn is_ready(endpoint: Endpoint) -> Result<Option<Endpoint>, String> {
    let mut connection = HttpConnection::new(endpoint.clone());
    match connection.send(&Request::new(Method::Get, "/ready"), Duration::from_secs(1)).await {
        Ok(response) if response.status == 200 => Ok(Some(endpoint)),
        Ok(response) => Err(format!("GET /ready answered {}", response.status)),
        Err(error) => Err(format!("GET /ready: {error}")),
    }
}

/// A port of 127.0.0.1 that was free a moment ago: the real service takes a number and cannot be told to take any.
pub(super) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Asks what answers there for its versions: only an assisted-service can tell them.
pub(super) async fn who_is(endpoint: &Endpoint) -> Result<String, String> {
    let call = ops::list_component_versions();
    let mut connection = HttpConnection::new(endpoint.clone());
    match connection.send(&call.request, ANSWER).await {
        Ok(response) => versions_of(&response),
        Err(error @ TransportError::Connect(_)) => {
            Err(format!("no service answers at {endpoint}: {error}; is it running, and is this its address?"))
        }
        Err(error @ TransportError::Timeout(_)) => Err(format!(
            "somebody takes connections at {endpoint} and does not answer: {error}; is the service still starting, or is \
             something else there?"
        )),
        Err(error @ TransportError::Lost(_)) => {
            Err(format!("what listens at {endpoint} does not speak HTTP: {error}; {NO_TLS}, and is this its address?"))
        }
    }
}

const NO_TLS: &str = "https is not built yet: use the service's http listener";

/// The version that an answer to "component versions" tells, or why it is none.
fn versions_of(response: &Response) -> Result<String, String> {
    match response.status {
        200 => {}
        401 | 403 => {
            return Err(format!(
                "the service asks for credentials (HTTP {}); only services with AUTH_TYPE=none can be used so far",
                response.status
            ));
        }
        // How servers written in Go refuse plain requests.
        400 if String::from_utf8_lossy(&response.body).contains("HTTPS server") => {
            return Err(format!("it speaks https; {NO_TLS}"));
        }
        status => {
            return Err(format!("it is not an assisted-service: asked for its versions it answers HTTP {status}"));
        }
    }
    let value: serde_json::Value = serde_json::from_slice(&response.body)
        .map_err(|e| format!("it is not an assisted-service: asked for its versions it answers no JSON ({e})"))?;
    let text = |v: &serde_json::Value| v.as_str().filter(|s| !s.is_empty()).map(str::to_owned);
    match value.get("versions").and_then(serde_json::Value::as_object) {
        Some(versions) => Ok(value
            .get("release_tag")
            .and_then(text)
            .or_else(|| versions.get("assisted-installer-service").and_then(text))
            .unwrap_or_else(|| "of an unknown version".to_owned())),
        None => Err("it is not an assisted-service: it answers JSON without `versions`".to_owned()),
    }
}
