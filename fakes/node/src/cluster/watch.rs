//! Looks at a cluster through its API, for those who decide: the installer on the bootstrap, the controller.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;
use vlab_agents::cluster::NodeState;
use vlab_agents::{Observed, ObservedNode};
use vlab_api::Timestamp;
use vlab_api::types::Host;

use super::api::condition;
use super::bootkube::client_of;
use super::facts::own_address;
use super::mcs;
use crate::install::ASSETS;
use crate::machine::Root;
use crate::net::http::{Credentials, HttpAnswer, HttpQuestion, Kept};
use crate::say;
use crate::shell::{Event, Events};

/// A client of the cluster's API: asks the first server that answers.
#[derive(Clone, Debug)]
pub struct Client {
    /// `https://host:6443`, in order of trying.
    pub servers: Vec<String>,
    /// Whom to believe, and who we are.
    pub credentials: Credentials,
    /// A token instead of a certificate.
    pub token: Option<String>,
    /// Its connections.
    pub kept: Kept,
}

const PATIENCE: Duration = Duration::from_secs(10);

impl Client {
    /// The same client, which asks these servers after the first of its own.
    #[must_use]
    pub fn also_at(mut self, servers: &[String]) -> Self {
        let after = self.servers.len().min(1);
        self.servers.splice(after..after, servers.iter().cloned());
        self
    }

    /// Sends a request to the first server that answers at all.
    ///
    /// # Errors
    /// When none does.
    pub async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<HttpAnswer> {
        let bearer = self.token.as_deref().map(|t| format!("Bearer {t}"));
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let mut headers = vec![("content-type", kind), ("accept", "application/json")];
        headers.extend(bearer.as_deref().map(|b| ("authorization", b)));
        let mut problem = io::Error::other("no API server is known");
        for server in &self.servers {
            let bytes = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
            let url = format!("{server}{path}");
            match self
                .kept
                .send(HttpQuestion { method, url: &url, headers: &headers, body: bytes }, &self.credentials, PATIENCE)
                .await
            {
                // A server whose etcd is gone is as good as none.
                Ok(answer) if answer.status >= 500 => {
                    problem = io::Error::other(format!("{server}{path}: {}", answer.text()))
                }
                Ok(answer) => return Ok(answer),
                Err(e) => problem = e,
            }
        }
        Err(problem)
    }

    /// An object or a list.
    ///
    /// # Errors
    /// When no server answers with it.
    pub async fn get(&self, path: &str) -> io::Result<Value> {
        let answer = self.send("GET", path, None).await?;
        if !answer.is_success() {
            return Err(io::Error::other(format!("GET {path}: {} {}", answer.status, answer.text())));
        }
        serde_json::from_slice(&answer.body).map_err(io::Error::other)
    }

    /// Creates an object; `false`: there is one already.
    ///
    /// # Errors
    /// When it is refused, or no server answers.
    pub async fn create(&self, path: &str, object: &Value) -> io::Result<bool> {
        let answer = self.send("POST", path, Some(object)).await?;
        match answer.status {
            201 => Ok(true),
            // A conflict of writers has the same number, and nothing was made.
            409 if reason(&answer.body) == "AlreadyExists" => Ok(false),
            status => Err(io::Error::other(format!("POST {path}: {status} {}", answer.text()))),
        }
    }

    /// Merges into an object (or its status: the path says so).
    ///
    /// # Errors
    /// When it is refused, or no server answers.
    pub async fn patch(&self, path: &str, change: &Value) -> io::Result<()> {
        let answer = self.send("PATCH", path, Some(change)).await?;
        if answer.is_success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("PATCH {path}: {} {}", answer.status, answer.text())))
        }
    }
}

/// The reason of a refusal.
fn reason(body: &[u8]) -> String {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    status["reason"].as_str().unwrap_or_default().to_owned()
}

/// Items of a list.
pub fn items(list: &Value) -> &[Value] {
    list.get("items").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Addresses of a node.
pub fn addresses(node: &Value) -> Vec<IpAddr> {
    let all = node.pointer("/status/addresses").and_then(Value::as_array).into_iter().flatten();
    all.filter(|a| a["type"] == "InternalIP").filter_map(|a| a["address"].as_str()?.parse().ok()).collect()
}

/// Does the node carry the control plane?
pub fn is_master(node: &Value) -> bool {
    node.pointer("/metadata/labels/node-role.kubernetes.io~1master").is_some()
}

/// Name and addresses of a host, as the service knows them.
fn known_as(host: &Host) -> (String, Vec<IpAddr>) {
    let inventory: Value = host.inventory.as_deref().and_then(|i| serde_json::from_str(i).ok()).unwrap_or_default();
    let name = host.requested_hostname.clone().or_else(|| inventory["hostname"].as_str().map(str::to_owned));
    let nics = inventory["interfaces"].as_array().cloned().unwrap_or_default();
    let texts = nics
        .iter()
        .flat_map(|n| ["ipv4_addresses", "ipv6_addresses"].map(|f| n[f].as_array().cloned().unwrap_or_default()));
    let addresses = texts.flatten().filter_map(|t| t.as_str()?.split('/').next()?.parse().ok()).collect();
    (name.unwrap_or_default().to_lowercase(), addresses)
}

/// Which nodes there are, by the position of their hosts: by name, else by address. `fetched` is who fetched a config, and when.
pub fn match_nodes(hosts: &[Host], nodes: &[Value], fetched: &[(String, Timestamp)]) -> Vec<ObservedNode> {
    let mut all = Vec::new();
    for (position, host) in hosts.iter().enumerate() {
        let (name, own) = known_as(host);
        let by_name = nodes.iter().find(|n| n["metadata"]["name"].as_str().is_some_and(|t| t.to_lowercase() == name));
        let node = by_name.or_else(|| nodes.iter().find(|n| addresses(n).iter().any(|a| own.contains(a))));
        let ignition =
            fetched.iter().find(|(a, _)| a.parse().is_ok_and(|a: IpAddr| own.contains(&a))).map(|(_, at)| *at);
        let state = match node {
            Some(node) if condition(node, "Ready") == "True" => NodeState::Ready,
            Some(_) => NodeState::Joined,
            None if ignition.is_some() => NodeState::Configuring,
            None => continue,
        };
        let is_master = match node {
            Some(node) => is_master(node),
            None => host.role.is_some_and(|r| r.as_str() == "master"),
        };
        all.push(ObservedNode { position, state, is_master, ignition_fetched: ignition });
    }
    all
}

/// Tells the installer on the bootstrap what it waits for, as long as it runs. `hosts` is in the order of its fleet.
pub async fn for_installer(root: Root, hosts: Vec<Host>, every: Duration, events: Events) {
    let mut servers: Vec<String> = Vec::new();
    let kept = Kept::default();
    loop {
        tokio::time::sleep(every.max(Duration::from_secs(1))).await;
        let has = |file: &str| root.has(&format!("{ASSETS}/{file}"));
        let mut seen = Observed {
            bootkube_done: has(".bootkube.done"),
            etcd_bootstrap_done: has(".etcd-pivot.done"),
            ..Observed::default()
        };
        let found = own_address(None).and_then(|own| client_of(&root.path(ASSETS), own));
        if let Ok(client) = found {
            let client = Client { kept: kept.clone(), ..client.also_at(&servers) };
            if let Ok(nodes) = client.get("/api/v1/nodes").await {
                // When bootkube is through, the masters carry the API. They may have come after the last look that their API at
                // the bootstrap answered: then it is found under the cluster's names.
                servers = items(&nodes).iter().filter(|n| is_master(n)).flat_map(addresses).map(server).collect();
                let fetches = client.get(mcs::FETCHES).await.unwrap_or_default();
                seen.nodes = match_nodes(&hosts, items(&nodes), &mcs::fetches(items(&fetches)));
            }
            if let Ok(all) = client.get("/api/v1/namespaces/assisted-installer/events").await {
                seen.controller_ready = items(&all).iter().any(|e| e["reason"] == CONTROLLER_READY);
            }
        }
        if events.send(Event::Observed(0, seen)).is_err() {
            say::note("installer", "nothing is listening any more");
            return;
        }
    }
}

/// Reason of the event by which the controller says that it is ready.
pub const CONTROLLER_READY: &str = "AssistedControllerIsReady";

/// Port of the API.
pub const API_PORT: u16 = 6443;

/// The API on that address.
pub fn server(ip: IpAddr) -> String {
    let host = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    format!("https://{host}:{API_PORT}")
}

#[cfg(test)]
pub(crate) mod tests {
    use rstest::rstest;
    use serde_json::json;
    use uuid::Uuid;
    use vlab_api::http::Response;

    use super::super::api::Answer;
    use super::super::pki::Pki;
    use super::super::serve::tls;
    use super::*;

    fn host(number: u128, name: &str, ip: &str) -> Host {
        let inventory =
            json!({ "hostname": name, "interfaces": [{ "ipv4_addresses": [format!("{ip}/24")] }] }).to_string();
        serde_json::from_value(
            json!({ "id": Uuid::from_u128(number), "kind": "Host", "href": "", "status": "installing-in-progress",
            "status_info": "", "role": "master", "inventory": inventory }),
        )
        .unwrap()
    }

    #[test]
    fn nodes_are_matched_by_name_and_by_address() {
        let hosts = [
            host(1, "A", "192.0.2.1"),
            host(2, "b", "192.0.2.2"),
            host(3, "c", "192.0.2.3"),
            host(4, "d", "192.0.2.4"),
        ];
        let node = |name: &str, ip: &str, ready: &str| {
            json!({ "metadata": { "name": name, "labels": { "node-role.kubernetes.io/master": "" } }, "status": {
                "addresses": [{ "type": "InternalIP", "address": ip }], "conditions": [{ "type": "Ready", "status": ready }] } })
        };
        let nodes = [node("a", "10.0.0.1", "True"), node("other", "192.0.2.2", "False")];
        let at = Timestamp::from_secs(5);
        let seen = match_nodes(&hosts, &nodes, &[("192.0.2.3".into(), at)]);
        let states: Vec<_> = seen.iter().map(|n| (n.position, n.state, n.ignition_fetched)).collect();
        assert_eq!(
            states,
            [(0, NodeState::Ready, None), (1, NodeState::Joined, None), (2, NodeState::Configuring, Some(at))]
        );
    }
    /// A client, and the server that gives it these answers one after the other.
    pub(crate) async fn answered(answers: Vec<Response>) -> (Client, tokio::task::JoinHandle<()>) {
        let pki = Pki::make(&["localhost".into()]).unwrap();
        let pair = pki.server("api", &["127.0.0.1".into()]).unwrap();
        let left = std::sync::Arc::new(std::sync::Mutex::new(answers));
        let serving =
            super::super::serve::serve(([127, 0, 0, 1], 0).into(), Some(tls(&pair, None).unwrap()), move |_| {
                let next = left.lock().unwrap().remove(0);
                async move { Answer::Done(next) }
            });
        let (address, task) = serving.await.unwrap();
        let servers = vec![format!("https://{address}")];
        (Client { servers, credentials: Credentials::default(), token: None, kept: Kept::default() }, task)
    }

    #[rstest]
    #[case(201, "", Some(true))]
    #[case(409, "AlreadyExists", Some(false))]
    #[case(409, "Conflict", None)]
    #[case(429, "TooManyRequests", None)]
    #[tokio::test]
    async fn only_what_is_there_already_is_there(
        #[case] status: u16,
        #[case] reason: &str,
        #[case] made: Option<bool>,
    ) {
        let (client, task) = answered(vec![Response::json(status, &json!({ "reason": reason }))]).await;
        assert_eq!(client.create("/api/v1/nodes", &json!({})).await.ok(), made);
        task.abort();
    }
}
