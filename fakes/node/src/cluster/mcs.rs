//! The machine-config server: what a new node's Ignition fetches. One config for each pool, made from the cluster's facts and keys
//! at the moment of asking, so that a late node learns of the members that are there then.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use vlab_api::Timestamp;

use super::facts::{FOLDER, Facts};
use super::pki::Pki;
use super::serve::{Outgoing, serve, tls};
use super::store::Store;
use super::{api::Api, pki::Pair};
use crate::{ignition, say};

/// Port of the machine-config server.
pub const PORT: u16 = 22623;

/// Starts the node's part of the cluster at each boot.
pub const NODE_UNIT: &str = "\
[Unit]
Description=This machine's part in the cluster
Wants=network-online.target
After=network-online.target

[Service]
Type=simple
ExecStart=/usr/local/bin/vlab-node node
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
";

/// The config of a pool: facts for all, the cluster's keys for masters only.
pub fn config(pool: &str, facts: &Facts, pki: &Pki, more: Vec<Value>) -> Value {
    let facts = Facts { pool: pool.to_owned(), ..facts.clone() };
    let text = serde_json::to_string_pretty(&facts).unwrap_or_default();
    let mut files = vec![
        ignition::file(&format!("{FOLDER}/cluster.json"), 0o600, text.as_bytes()),
        ignition::file(&format!("{FOLDER}/ca.crt"), 0o644, pki.ca.cert.as_bytes()),
        ignition::file("/etc/kubernetes/ca.crt", 0o644, pki.ca.cert.as_bytes()),
    ];
    if pool != "worker" {
        let pairs = [
            ("root-ca", &pki.ca),
            ("kube-apiserver", &pki.api),
            ("machine-config-server", &pki.mcs),
            ("admin", &pki.admin),
        ];
        for (name, pair) in pairs {
            files.push(ignition::file(&format!("{FOLDER}/tls/{name}.crt"), 0o600, pair.cert.as_bytes()));
            files.push(ignition::file(&format!("{FOLDER}/tls/{name}.key"), 0o600, pair.key.as_bytes()));
        }
    }
    files.extend(more);
    json!({ "ignition": { "version": "3.2.0" }, "storage": { "files": files },
        "systemd": { "units": [ignition::unit("vlab-node.service", NODE_UNIT)] } })
}

/// Pools that have a config.
const POOLS: [&str; 3] = ["master", "worker", "arbiter"];

/// Serves configs, and notes every fetch in `log`, one JSON object a line.
///
/// # Errors
/// When nobody can listen there, or the keys cannot be used.
pub async fn serve_configs(
    address: SocketAddr,
    own: &Pair,
    api: Arc<Api>,
    facts: Facts,
    log: PathBuf,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    serve(address, tls(own, None)?, move |incoming| {
        let (api, facts, log) = (Arc::clone(&api), facts.clone(), log.clone());
        async move {
            let path = incoming.request.path;
            if path == "/healthz" {
                return (200, "text/plain", b"ok".to_vec());
            }
            let Some(pool) = path.strip_prefix("/config/").filter(|p| POOLS.contains(p)) else {
                return (404, "text/plain", format!("there is no config {path}\n").into_bytes());
            };
            let address = incoming.peer.ip().to_string();
            say::moment(
                "pivot",
                "config-fetched",
                &json!({ "pool": pool, "address": address, "by": incoming.user_agent }),
            );
            note(&log, pool, &address);
            answer(pool, &api, facts).await
        }
    })
    .await
}

async fn answer(pool: &str, api: &Api, mut facts: Facts) -> Outgoing {
    if let Store::Etcd(etcd) = &api.store {
        match etcd.members().await {
            Ok(members) => {
                let started = members.iter().filter(|m| m.started());
                facts.etcd = started.flat_map(|m| m.clients.clone()).collect();
            }
            // Ignition tries again.
            Err(e) => return (503, "text/plain", format!("etcd: {e}\n").into_bytes()),
        }
    }
    let config = config(pool, &facts, &api.pki, Vec::new());
    (200, "application/vnd.coreos.ignition+json; version=3.2.0", config.to_string().into_bytes())
}

fn note(log: &std::path::Path, pool: &str, address: &str) {
    use std::io::Write;
    let line = json!({ "at": Timestamp::now(), "pool": pool, "address": address });
    let written = fs::OpenOptions::new().create(true).append(true).open(log).and_then(|mut f| writeln!(f, "{line}"));
    if let Err(e) = written {
        say::note("pivot", &format!("{}: {e}", log.display()));
    }
}

/// Fetches that a log tells of: address and time, the first of each address.
pub fn fetches(log: &str) -> Vec<(String, Timestamp)> {
    let mut all: Vec<(String, Timestamp)> = Vec::new();
    for line in log.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()) {
        let at = serde_json::from_value(line["at"].clone()).ok();
        if let (Some(address), Some(at)) = (line["address"].as_str(), at)
            && !all.iter().any(|(a, _)| a == address)
        {
            all.push((address.to_owned(), at));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        serde_json::from_value(
            json!({ "url": "http://s", "cluster_id": uuid::Uuid::nil(), "infra_env_id": uuid::Uuid::nil(),
            "control_plane_count": 3, "bootstrap_token": "t" }),
        )
        .unwrap()
    }

    #[test]
    fn workers_get_no_keys() {
        let pki = Pki::make(&["localhost".into()]).unwrap();
        let paths = |pool: &str| -> Vec<String> {
            let config = config(pool, &facts(), &pki, vec![]).to_string();
            ignition::layout(config.as_bytes()).unwrap().files.into_iter().map(|f| f.path).collect()
        };
        assert!(paths("master").contains(&"/etc/vlab/cluster/tls/root-ca.key".to_owned()));
        assert!(!paths("worker").iter().any(|p| p.ends_with(".key")));
        let config = config("worker", &facts(), &pki, vec![]).to_string();
        let layout = ignition::layout(config.as_bytes()).unwrap();
        let read: Facts = serde_json::from_slice(&layout.files[0].bytes).unwrap();
        assert_eq!(read.pool, "worker");
        assert_eq!(layout.units[0].name, "vlab-node.service");
    }

    #[test]
    fn the_first_fetch_of_an_address_counts() {
        let line = |at: i64, address: &str| {
            json!({ "at": Timestamp::from_secs(at), "pool": "master", "address": address }).to_string()
        };
        let log = [line(10, "a"), "cut {".into(), line(11, "b"), line(12, "a")].join("\n");
        assert_eq!(fetches(&log), [("a".into(), Timestamp::from_secs(10)), ("b".into(), Timestamp::from_secs(11))]);
    }
}
