//! Stands in for `logs_sender` of the agent's image, which the product's installer runs before it reboots: our own archive of what
//! the machine has to say. A given agent has the real one.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::ops;
use vlab_client::{Client, Endpoint};

use crate::machine::{NodeConfig, Root};
use crate::say;
use crate::steps::{Site, collect_logs};

/// Switches, which have their value behind `=` or none.
const SWITCHES: &[&str] = &[
    "bootstrap",
    "dont-clean",
    "insecure",
    "with-installer-gather-logging",
    "with-journal-logging",
    "with-text-logging",
];
/// Options with a value. Certificates are believed as they are: the lab's service has none.
const VALUED: &[&str] =
    &["cacert", "cluster-id", "host-id", "infra-env-id", "masters-ips", "pull-secret-token", "since", "url"];

/// Whose logs go where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Order {
    url: String,
    cluster: Uuid,
    infra_env: Uuid,
    host: Uuid,
    token: String,
}

impl Order {
    /// Reads a command line as Go's programs write them: one dash or two, a value behind `=` or in the next word.
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut said: BTreeMap<&str, &str> = BTreeMap::new();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let option = word.trim_start_matches('-');
            let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
            let value = match value {
                Some(value) => value,
                None if VALUED.contains(&name) => {
                    words.next().ok_or_else(|| format!("logs_sender: {word} needs a value"))?
                }
                None => "true",
            };
            if !word.starts_with('-') || !(VALUED.contains(&name) || SWITCHES.contains(&name)) {
                return Err(format!("logs_sender: the lab's stand-in does not know {word}"));
            }
            said.insert(name, value);
        }
        let text = |name: &str| said.get(name).copied().unwrap_or_default();
        let id =
            |name: &str| Uuid::parse_str(text(name)).map_err(|e| format!("logs_sender: -{name} {}: {e}", text(name)));
        Ok(Self {
            url: text("url").to_owned(),
            cluster: id("cluster-id")?,
            infra_env: id("infra-env-id")?,
            host: id("host-id")?,
            token: text("pull-secret-token").to_owned(),
        })
    }
}

/// Collects and uploads.
///
/// # Errors
/// The command line cannot be understood, or the service does not take the logs.
pub(crate) fn logs_sender(words: &[String]) -> Result<String, String> {
    let order = Order::parse(words)?;
    let config = NodeConfig::load().map_err(|e| e.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let site = Site {
        root: Root::of_this_machine(),
        config,
        service: order.url.clone(),
        agent_version: String::new(),
        runtime: runtime.handle().clone(),
    };
    let archive = collect_logs(&site);
    runtime.block_on(upload(&order, &archive))?;
    say::note("logs_sender", &format!("{} bytes of logs were uploaded, by the lab's stand-in", archive.len()));
    Ok(String::new())
}

async fn upload(order: &Order, archive: &[u8]) -> Result<(), String> {
    let endpoint = Endpoint::resolve(&order.url).await.map_err(|e| format!("logs_sender: {e}"))?;
    let call = ops::upload_logs(order.cluster, Some((order.infra_env, order.host)), archive);
    let call = call.header("x-secret-key", &order.token);
    let client = Client::new(endpoint, Duration::from_secs(60));
    client.call(call).await.map_err(|e| format!("logs_sender: {}: {e}", order.url))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ID: &str = "00000000-0000-0000-0000-000000000001";

    fn words(text: &str) -> Vec<String> {
        text.replace("ID", ID).split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_installer_s_command_line_is_understood() {
        let line = "-cluster-id ID -url http://192.0.2.1:8090 -host-id ID -infra-env-id ID -pull-secret-token secret \
                    -insecure=false -bootstrap=true -cacert=/etc/ca.pem";
        let order = Order::parse(&words(line)).unwrap();
        let id = Uuid::from_u128(1);
        let url = "http://192.0.2.1:8090".to_owned();
        assert_eq!(order, Order { url, cluster: id, infra_env: id, host: id, token: "secret".into() });
    }

    #[rstest]
    #[case("-cluster-id", "-cluster-id needs a value")]
    #[case("-url=x -cluster-id ID -host-id ID", "-infra-env-id : ")]
    #[case("-frobnicate", "does not know -frobnicate")]
    #[case("more", "does not know more")]
    fn what_cannot_be_understood_is_refused(#[case] line: &str, #[case] why: &str) {
        let error = Order::parse(&words(line)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}
