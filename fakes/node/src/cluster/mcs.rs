//! The machine-config server: what a new node's Ignition fetches. One config for each pool, made from the cluster's facts and keys
//! at the moment of asking, so that a late node learns of the members that are there then.

use std::borrow::Borrow;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};
use vlab_kube::Caller;

use super::api::{Answer, Api, micro};
use super::facts::{ClusterFacts, FOLDER};
use super::pki::{Pair, Pki};
use super::serve::{Incoming, serve, tls};
use super::store::Store;
use crate::machine::{self, config_path};
use crate::{ignition, say};

/// Ports of the machine-config server: with TLS, and without it for day-2 hosts whose pointer config has no authority in it. Source:
/// pkg/server/api.go of the machine-config operator.
pub const PORT: u16 = 22623;
const INSECURE_PORT: u16 = 22624;

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
    let mut config = json!({ "ignition": { "version": USUAL_VERSION }, "storage": { "files": files },
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
/// The container whose log it would be.
pub const CONTAINER: &str = "machine-config-server";
/// Namespace of machine-config servers.
pub const NAMESPACE: &str = "openshift-machine-config-operator";

/// What a request wants of the machine-config server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted<'r> {
    /// A sign of life.
    Health,
    /// The config of a pool, in that version of Ignition's specification.
    Config { pool: &'r str, version: &'static str },
    /// Nothing that there is: the code of the refusal.
    Refused(u16),
}

/// What there is for a request: `GET` and `HEAD` alone, 404 without a word for other pools and paths, 400 for a version that no config
/// has. Source: pkg/server/api.go of the machine-config operator. It was read in a revision that takes the version from the name of the
/// client; later ones ask `Accept`, which their log shows and the product's installer sends.
fn wanted(request: &Request) -> Wanted<'_> {
    if !matches!(request.method, Method::Get | Method::Head) {
        return Wanted::Refused(405);
    }
    let path = request.split_path().0;
    if path == "/healthz" {
        return Wanted::Health;
    }
    let Some(pool) = path.strip_prefix("/config/").filter(|p| POOLS.contains(p)) else { return Wanted::Refused(404) };
    match version_for(request.get_header("accept").unwrap_or_default()) {
        Some(version) => Wanted::Config { pool, version },
        None => Wanted::Refused(400),
    }
}

/// Versions that a config of the lab may be called, the newest first: it needs nothing that came after the first of them.
const VERSIONS: [&str; 4] = ["3.4.0", "3.3.0", "3.2.0", "3.1.0"];
/// For who asks for none.
const USUAL_VERSION: &str = "3.2.0";

/// The version of Ignition's specification that a client wants: the newest that it takes. One that names no type of Ignition gets the
/// usual one; the real server answers him in the old version 2.2, which nothing in the lab reads.
fn version_for(accept: &str) -> Option<&'static str> {
    let asked = accept.split(',').filter_map(|part| {
        let (kind, rest) = part.trim().split_once(';')?;
        (kind.trim() == "application/vnd.coreos.ignition+json").then_some(())?;
        let version = rest.split(';').find_map(|word| word.trim().strip_prefix("version="))?;
        let numbers: Vec<u32> = version.split('.').map_while(|n| n.parse().ok()).collect();
        (numbers.len() == 3).then(|| [numbers[0], numbers[1], numbers[2]])
    });
    let Some(newest) = asked.max() else { return Some(USUAL_VERSION) };
    let of = |text: &str| -> Vec<u32> { text.split('.').filter_map(|n| n.parse().ok()).collect() };
    VERSIONS.into_iter().find(|version| newest[0] == 3 && of(version) <= newest.to_vec())
}

/// A machine-config server: what it serves from, and where it notes who fetched what besides in the cluster: on the bootstrap, which
/// has no pods, in a file.
#[derive(Clone)]
pub struct Configs {
    /// The cluster's API.
    pub api: Arc<Api>,
    /// The cluster.
    pub facts: ClusterFacts,
    /// The file.
    pub log: Option<PathBuf>,
}

impl Configs {
    /// Serves configs at that address, on both ports, until the tasks are ended.
    ///
    /// # Errors
    /// When nobody can listen there, or the keys cannot be used.
    pub async fn serve(self, at: IpAddr, own: &Pair) -> io::Result<[JoinHandle<()>; 2]> {
        let [with_tls, without] = [(PORT, Some(tls(own, None)?)), (INSECURE_PORT, None)].map(|(port, config)| {
            let this = self.clone();
            serve(SocketAddr::new(at, port), config, move |incoming| {
                let this = this.clone();
                async move { this.answer(&incoming).await }
            })
        });
        Ok([with_tls.await?.1, without.await?.1])
    }

    async fn answer(&self, incoming: &Incoming) -> Answer {
        let (pool, version) = match wanted(&incoming.request) {
            Wanted::Health => return Answer::Done(Response::empty(200)),
            Wanted::Refused(code) => return Answer::Done(Response::empty(code)),
            Wanted::Config { pool, version } => (pool, version),
        };
        let header = |name: &str| incoming.request.get_header(name).unwrap_or_default();
        let by = header("user-agent");
        // The installer reads a config, too, and is no new machine.
        if by.starts_with("Ignition/") {
            let fetch = Fetch { pool, from: incoming.peer, by, accept: header("accept"), at: Timestamp::now() };
            let told = json!({ "pool": pool, "address": incoming.peer.ip(), "by": by });
            say::moment("pivot", "config-fetched", &told);
            // Ignition tries again.
            if let Err(problem) = fetch.note(&self.api, self.log.as_deref()).await {
                return plain(503, format!("{problem}\n"));
            }
        }
        answer(pool, version, &self.api, self.facts.clone()).await
    }
}

fn plain(status: u16, text: String) -> Answer {
    let mut response = Response::empty(status);
    response.headers.push(("content-type".into(), "text/plain".into()));
    response.body = text.into_bytes().into();
    Answer::Done(response)
}

async fn answer(pool: &str, version: &str, api: &Api, mut facts: ClusterFacts) -> Answer {
    if let Store::Etcd(etcd) = &api.store {
        match etcd.members().await {
            Ok(members) => {
                let started = members.iter().filter(|m| m.started());
                facts.etcd = started.flat_map(|m| m.clients.clone()).collect();
            }
            // Ignition tries again.
            Err(e) => return plain(503, format!("etcd: {e}\n")),
        }
    }
    let mut config = config(pool, &facts, &api.pki, own_config());
    config["ignition"]["version"] = json!(version);
    // Its type is JSON, whatever was asked for.
    Answer::Done(Response::json(200, &config))
}

/// What the lab told this machine, for the machine that comes: its installer may be one that knows nothing of the lab.
pub fn own_config() -> Vec<Value> {
    let own = std::fs::read(config_path()).ok();
    own.map(|own| ignition::file(machine::CONFIG_FILE, 0o644, &own)).into_iter().collect()
}

/// The pod by which readers of its log find the machine-config server of a master.
pub fn pod(node: &str) -> Value {
    json!({ "metadata": { "name": format!("{CONTAINER}-{node}"), "labels": { "k8s-app": CONTAINER } },
        "spec": { "nodeName": node, "hostNetwork": true, "containers": [{ "name": CONTAINER, "image": "vlab/lab" }] } })
}

/// Somebody fetched a config.
struct Fetch<'f> {
    pool: &'f str,
    from: SocketAddr,
    by: &'f str,
    accept: &'f str,
    at: Timestamp,
}

impl Fetch<'_> {
    /// As the server of a release writes it. Source: the machine-config operator's log, as the installer's expression reads it.
    fn line(&self) -> String {
        format!(
            "Pool {} requested by address:\"{}\" User-Agent:\"{}\" Accept-Header: \"{}\"",
            self.pool, self.from, self.by, self.accept
        )
    }

    /// The first fetch of an address stays.
    async fn note(&self, api: &Arc<Api>, log: Option<&Path>) -> Result<(), String> {
        let address = self.from.ip().to_string();
        if let Some(log) = log {
            let line = format!("{} stderr F I0101 00:00:00.000000       1 api.go:109] {}\n", self.at, self.line());
            append(log, &line).map_err(|e| format!("{}: {e}", log.display()))?;
        }
        let event = json!({ "metadata": { "name": format!("config-for-{}", address.replace([':', '.'], "-")) },
            "type": "Normal", "reason": FETCHED, "message": self.line(), "eventTime": micro(self.at),
            "involvedObject": { "kind": "Pod", "namespace": NAMESPACE, "name": CONTAINER },
            "source": { "component": CONTAINER, "host": address }, "action": "Fetched", "reportingComponent": CONTAINER,
            "reportingInstance": address });
        let request = Request::new(Method::Post, FETCHES).json(&event);
        match api.handle(&Caller::admin(), &request, self.at).await {
            Ok(Answer::Done(response)) if [201, 409].contains(&response.status) => Ok(()),
            Ok(Answer::Done(response)) => {
                let text = String::from_utf8_lossy(&response.body).into_owned();
                Err(format!("the fetch by {address} cannot be noted: {} {text}", response.status))
            }
            Ok(Answer::Watch(_)) => Ok(()),
            Err(e) => Err(format!("etcd: {e}")),
        }
    }
}

fn append(log: &Path, line: &str) -> io::Result<()> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::OpenOptions::new().create(true).append(true).open(log)?.write_all(line.as_bytes())
}

fn at_of(event: &Value) -> Option<Timestamp> {
    serde_json::from_value(event["eventTime"].clone()).ok()
}

/// Fetches that events tell of: address and time.
pub fn fetches(events: &[Value]) -> Vec<(String, Timestamp)> {
    let told = events.iter().filter(|event| event["reason"] == FETCHED);
    told.filter_map(|event| Some((event["source"]["host"].as_str()?.to_owned(), at_of(event)?))).collect()
}

/// What a master's machine-config server would have in its log of the last `seconds`, with the fetches from all of them.
pub fn log_of(events: &[impl Borrow<Value>], now: Timestamp, seconds: Option<u64>) -> String {
    let told = events.iter().map(Borrow::borrow).filter(|event: &&Value| event["reason"] == FETCHED);
    let recent = told.filter(|event| {
        let age = at_of(event).map_or(Duration::MAX, |at| now.since(at));
        seconds.is_none_or(|s| age <= Duration::from_secs(s))
    });
    recent
        .filter_map(|event| event["message"].as_str())
        .map(|line| format!("I0101 00:00:00.000000       1 api.go:109] {line}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn facts() -> ClusterFacts {
        serde_json::from_value(
            json!({ "url": "http://s", "cluster_id": uuid::Uuid::nil(), "infra_env_id": uuid::Uuid::nil(),
            "control_plane_count": 3, "bootstrap_token": "t" }),
        )
        .unwrap()
    }

    #[rstest]
    #[case(Method::Get, "/config/master", "*/*", Wanted::Config { pool: "master", version: "3.2.0" })]
    #[case(Method::Head, "/config/worker", "", Wanted::Config { pool: "worker", version: "3.2.0" })]
    #[case(Method::Get, "/config/worker", "application/vnd.coreos.ignition+json;version=3.3.0, */*;q=0.1",
        Wanted::Config { pool: "worker", version: "3.3.0" })]
    #[case(Method::Get, "/config/worker", "application/vnd.coreos.ignition+json; version=3.9.0",
        Wanted::Config { pool: "worker", version: "3.4.0" })]
    #[case(Method::Get, "/config/worker", "application/vnd.coreos.ignition+json; version=2.2.0", Wanted::Refused(400))]
    #[case(Method::Get, "/healthz", "", Wanted::Health)]
    #[case(Method::Get, "/config/infra", "", Wanted::Refused(404))]
    #[case(Method::Get, "/", "", Wanted::Refused(404))]
    #[case(Method::Post, "/config/master", "", Wanted::Refused(405))]
    #[case(Method::Delete, "/healthz", "", Wanted::Refused(405))]
    fn what_there_is(
        #[case] method: Method,
        #[case] path: &str,
        #[case] accept: &str,
        #[case] expected: Wanted<'static>,
    ) {
        assert_eq!(wanted(&Request::new(method, path).header("accept", accept)), expected);
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
        let api = Arc::new(Api::new(Store::in_memory(), Pki::make(&["localhost".into()]).unwrap()));
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        let make = Request::new(Method::Post, "/api/v1/namespaces").json(&namespace);
        api.handle(&Caller::admin(), &make, Timestamp::from_secs(1)).await.unwrap();
        let log = tempfile::tempdir().unwrap();
        let log = log.path().join("containers/mcs.log");
        for (at, from) in [(10, "192.0.2.1:40548"), (11, "[2001:db8::1]:1"), (12, "192.0.2.1:40550")] {
            let at = Timestamp::from_secs(at);
            let fetch = Fetch { pool: "master", from: from.parse().unwrap(), by: "Ignition/2.14.0", accept: "*/*", at };
            fetch.note(&api, Some(&log)).await.unwrap();
        }
        let answer = api.handle(&Caller::admin(), &Request::new(Method::Get, FETCHES), Timestamp::from_secs(20)).await;
        let Answer::Done(response) = answer.unwrap() else { panic!("a list") };
        let list: Value = serde_json::from_slice(&response.body).unwrap();
        let events = list["items"].as_array().unwrap();
        let mut seen = fetches(events);
        seen.sort();
        let expected = [("192.0.2.1", 10), ("2001:db8::1", 11)];
        assert_eq!(seen, expected.map(|(address, at)| (address.to_owned(), Timestamp::from_secs(at))));
        let line = "Pool master requested by address:\"192.0.2.1:40548\" User-Agent:\"Ignition/2.14.0\"";
        let recent = log_of(events, Timestamp::from_secs(20), Some(9));
        assert!(recent.contains("[2001:db8::1]:1") && !recent.contains(line), "{recent}");
        assert!(log_of(events, Timestamp::from_secs(20), None).contains(line));
        let written = fs::read_to_string(&log).unwrap();
        assert_eq!(written.lines().count(), 3);
        assert!(
            written
                .lines()
                .next()
                .unwrap()
                .contains(&format!(" stderr F I0101 00:00:00.000000       1 api.go:109] {line}"))
        );
    }
}
