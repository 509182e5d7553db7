//! `kubectl proxy`: the way to an API server that speaks TLS and wants to know who asks. What a kubeconfig can say (certificates, tokens,
//! programs that fetch one) is kubectl's to understand; `vlab` itself is built without TLS.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use vlab_api::http::{Method, Request};
use vlab_api::ops;
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

/// Is it no use to ask again? A server that starts, or has too much to do, answers later; so may one that took too long.
fn is_final(status: u16, why: &str) -> bool {
    let later = matches!(status, 429 | 502..=504) || why.contains("timeout") || why.contains("deadline exceeded");
    !later
}

/// What somebody does about it.
fn advice(status: u16) -> &'static str {
    match status {
        401 => {
            "The API server does not know who asks: the token or the certificate of the kubeconfig is wrong or expired; log in again"
        }
        403 => "The API server knows who asks and does not allow it: give the user the rights, or name another context",
        _ => "Is it running there, and is the address in the kubeconfig the right one?",
    }
}

/// Which server is asked, and as whom, in the kubeconfig's words.
fn asked(kubectl: &Path, kubeconfig: &Path) -> String {
    let view = Command::new(kubectl)
        .args(["config", "view", "--minify", "-o", "json", "--kubeconfig"])
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .output();
    let config: Value = view.ok().and_then(|out| serde_json::from_slice(&out.stdout).ok()).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("(none)").to_owned();
    let (server, user) =
        (text(&config["clusters"][0]["cluster"]["server"]), text(&config["contexts"][0]["context"]["user"]));
    format!("the API server {server}, asked as the user {user}")
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
                if response.status == 200 {
                    return Ok(Some(Ok(endpoint)));
                }
                let why = format!("GET /version answered {}: {}", response.status, ops::reason(&response));
                // Who is refused once is refused again.
                if is_final(response.status, &why) { Ok(Some(Err((response.status, why)))) } else { Err(why) }
            }
        });
        match ready.await {
            Ok(Ok(endpoint)) => Ok(Self { child, endpoint }),
            Ok(Err((status, why))) => {
                child.stop(STOP).await;
                let why = format!("{}: {why}. {}", asked(kubectl, kubeconfig), advice(status));
                Err(StartError::ExistingHub { kubeconfig: kubeconfig.to_owned(), why })
            }
            Err(error) => {
                child.stop(STOP).await;
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_a_wrong_token(401, "Unauthorized", true)]
    #[case::without_rights(403, "forbidden: User \"x\" cannot get path \"/version\"", true)]
    #[case::nobody_there(500, "dial tcp 127.0.0.1:1: connect: connection refused", true)]
    #[case::of_another_authority(500, "tls: failed to verify certificate: x509: unknown authority", true)]
    #[case::starting(503, "the server is currently unable to handle the request", false)]
    #[case::too_slow(500, "dial tcp 192.0.2.1:6443: i/o timeout", false)]
    fn who_is_refused_once_is_not_asked_again(#[case] status: u16, #[case] why: &str, #[case] expected: bool) {
        assert_eq!(is_final(status, why), expected);
    }

    #[test]
    fn the_address_is_read_of_what_the_proxy_says() {
        assert_eq!(address_in(""), None);
        assert_eq!(address_in("Starting to serve on "), None);
        let log = "W1 warning\nStarting to serve on 127.0.0.1:4711\n";
        assert_eq!(address_in(log), Some(SocketAddr::from(([127, 0, 0, 1], 4711))));
    }
}
