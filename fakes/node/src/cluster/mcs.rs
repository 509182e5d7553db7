//! The machine-config server: what a new node's Ignition fetches. One config for each pool, made from the cluster's facts and keys
//! at the moment of asking, so that a late node learns of the members that are there then.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use vlab_api::Timestamp;

use super::api::{Api, ApiRequest, User};
use super::facts::{ClusterFacts, FOLDER};
use super::pki::{Pair, Pki};
use super::serve::{Outgoing, serve, tls};
use super::store::Store;
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

/// The config of a pool: facts and users for all, the cluster's keys for masters only.
pub fn config(pool: &str, facts: &ClusterFacts, pki: &Pki, more: Vec<Value>) -> Value {
    let facts = ClusterFacts { pool: pool.to_owned(), ..facts.clone() };
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
    let mut config = json!({ "ignition": { "version": "3.2.0" }, "storage": { "files": files },
        "systemd": { "units": [ignition::unit("vlab-node.service", NODE_UNIT)] } });
    if !facts.users.is_empty() {
        config["passwd"] = json!({ "users": facts.users });
    }
    config
}

/// Pools that have a config.
const POOLS: [&str; 3] = ["master", "worker", "arbiter"];

/// Where it is noted who fetched a config. A real machine-config server writes it to its log, which the installer and the controller
/// read through the API; this way a fetch from one master is known to all.
pub const FETCHES: &str = "/api/v1/namespaces/openshift-machine-config-operator/events";
const FETCHED: &str = "ConfigFetched";

/// Serves configs, and notes every fetch as an event of the cluster.
///
/// # Errors
/// When nobody can listen there, or the keys cannot be used.
pub async fn serve_configs(
    address: SocketAddr,
    own: &Pair,
    api: Arc<Api>,
    facts: ClusterFacts,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    serve(address, tls(own, None)?, move |incoming| {
        let (api, facts) = (Arc::clone(&api), facts.clone());
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
            // Ignition tries again.
            if let Err(problem) = note(&api, pool, &address, Timestamp::now()).await {
                return (503, "text/plain", format!("{problem}\n").into_bytes());
            }
            answer(pool, &api, facts).await
        }
    })
    .await
}

async fn answer(pool: &str, api: &Api, mut facts: ClusterFacts) -> Outgoing {
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

/// The first fetch of an address stays.
async fn note(api: &Api, pool: &str, address: &str, now: Timestamp) -> Result<(), String> {
    let event = json!({ "metadata": { "name": format!("config-for-{}", address.replace([':', '.'], "-")) }, "type": "Normal",
        "reason": FETCHED, "message": format!("{address} fetched the config of the pool {pool}"), "eventTime": now,
        "source": { "component": "machine-config-server", "host": address } });
    let request = ApiRequest {
        method: "POST".into(),
        path: FETCHES.into(),
        body: event.to_string().into_bytes(),
        user: User::Somebody("machine-config-server".into()),
        ..ApiRequest::default()
    };
    match api.handle(&request, now).await {
        (201 | 409, _) => Ok(()),
        (status, body) => Err(format!("the fetch by {address} cannot be noted: {status} {body}")),
    }
}

/// Fetches that events tell of: address and time.
pub fn fetches(events: &[Value]) -> Vec<(String, Timestamp)> {
    let told = events.iter().filter(|event| event["reason"] == FETCHED);
    told.filter_map(|event| {
        let at = serde_json::from_value(event["eventTime"].clone()).ok()?;
        Some((event["source"]["host"].as_str()?.to_owned(), at))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ClusterFacts {
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
        let read: ClusterFacts = serde_json::from_slice(&layout.files[0].bytes).unwrap();
        assert_eq!(read.pool, "worker");
        assert_eq!(layout.units[0].name, "vlab-node.service");
    }

    #[test]
    fn whoever_may_log_in_may_do_it_on_every_node() {
        let pki = Pki::make(&["localhost".into()]).unwrap();
        let users = vec![json!({ "name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA"] })];
        for pool in POOLS {
            assert!(config(pool, &facts(), &pki, vec![]).get("passwd").is_none(), "nobody was named");
            let facts = ClusterFacts { users: users.clone(), ..facts() };
            assert_eq!(config(pool, &facts, &pki, vec![])["passwd"]["users"], json!(users));
        }
    }

    #[tokio::test]
    async fn the_first_fetch_of_an_address_counts() {
        let api = Api { store: Store::in_memory(), pki: Pki::make(&["localhost".into()]).unwrap() };
        for (at, address) in [(10, "192.0.2.1"), (11, "2001:db8::1"), (12, "192.0.2.1")] {
            note(&api, "master", address, Timestamp::from_secs(at)).await.unwrap();
        }
        let request = ApiRequest {
            method: "GET".into(),
            path: FETCHES.into(),
            user: User::Somebody("admin".into()),
            ..ApiRequest::default()
        };
        let (status, list) = api.handle(&request, Timestamp::from_secs(20)).await;
        assert_eq!(status, 200);
        let mut seen = fetches(list["items"].as_array().unwrap());
        seen.sort();
        let expected = [("192.0.2.1", 10), ("2001:db8::1", 11)];
        assert_eq!(seen, expected.map(|(address, at)| (address.to_owned(), Timestamp::from_secs(at))));
    }
}
