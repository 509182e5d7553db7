//! `kubectl proxy`: the way to an API server that speaks TLS and wants to know who asks. What a kubeconfig can say (certificates, tokens,
//! programs that fetch one) is kubectl's to understand; `vlab` itself is built without TLS.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use vlab_api::http::{Method, Request};
use vlab_client::Endpoint;
use vlab_lab::ledger::Ledger;
use vlab_lab::process::{Child, Program};

use super::ask;
use crate::service::{STOP, StartError};

/// What the proxy says once it listens, before its address.
const SAYS: &str = "Starting to serve on ";
/// How long it may take until the API server has answered through it.
const BUDGET: Duration = Duration::from_secs(30);

/// A proxy that runs.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) child: Child,
    /// Where it answers, by plain HTTP.
    pub(super) endpoint: Endpoint,
}

/// Where the proxy listens, once it has said so.
fn address_in(log: &str) -> Option<SocketAddr> {
    log.lines().rev().find_map(|line| line.strip_prefix(SAYS)?.trim().parse().ok())
}

impl Proxy {
    /// Starts it for the current context of a kubeconfig, and returns once the API server has answered.
    ///
    /// # Errors
    /// The API server is not reached, or does not know us: its own words.
    pub(super) async fn start(
        kubectl: &Path,
        kubeconfig: &Path,
        folder: &Path,
        ledger: Option<Arc<Ledger>>,
    ) -> Result<Self, StartError> {
        let log = folder.join("kubectl-proxy.log");
        let _ = fs::remove_file(&log);
        let program = Program::new("kubectl proxy", kubectl, log.clone())
            .args(["proxy", "--address=127.0.0.1", "--port=0", "--kubeconfig"])
            .args([kubeconfig])
            .ledger(ledger);
        let child = Child::spawn(program)?;
        let what = format!("the API server of {} to answer (GET /version)", kubeconfig.display());
        let ready = child.wait_ready(&what, BUDGET, Duration::from_millis(20), || {
            let log = log.clone();
            async move {
                let Some(address) = address_in(&fs::read_to_string(&log).unwrap_or_default()) else { return Ok(None) };
                let endpoint = Endpoint::new(address);
                let response = ask(&endpoint, &Request::new(Method::Get, "/version"), Duration::from_secs(5)).await?;
                match response.status {
                    200 => Ok(Some(endpoint)),
                    status => {
                        let body = String::from_utf8_lossy(&response.body);
                        Err(format!("GET /version answered {status}: {}", body.trim()))
                    }
                }
            }
        });
        match ready.await {
            Ok(endpoint) => Ok(Self { child, endpoint }),
            Err(error) => {
                child.stop(STOP).await;
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_of_what_the_proxy_says() {
        assert_eq!(address_in(""), None);
        assert_eq!(address_in("Starting to serve on "), None);
        let log = "W1 warning\nStarting to serve on 127.0.0.1:4711\n";
        assert_eq!(address_in(log), Some(SocketAddr::from(([127, 0, 0, 1], 4711))));
    }
}
