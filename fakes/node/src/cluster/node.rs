//! An installed machine's part in the cluster. A master: its member of etcd, the API and the machine-config server over it, virtual
//! addresses, and, on one of them, the controller. Every machine: a certificate, a node object, and signs of life.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use vlab_api::Timestamp;

use super::api::Api;
use super::etcd::{self, Begin, Etcd, client_url, peer_url};
use super::facts::{ClusterFacts, FOLDER, Places, listening, own_address, wait_for_address};
use super::pki::{Pki, node_request};
use super::serve::serve_api;
use super::store::Store;
use super::watch::{API_PORT, Client, addresses, is_master, items, server};
use super::{bootkube, controller, mcs, vip};
use crate::install::{self, WAS_BOOTSTRAP};
use crate::machine::{NodeConfig, Root};
use crate::net::http::{Credentials, Kept};
use crate::say;

/// Command line of a node.
#[derive(Clone, Debug, clap::Args)]
pub struct NodeArgs {
    /// Folder with the cluster's facts and keys
    #[arg(long, default_value = FOLDER)]
    pub cluster: PathBuf,
    /// Where etcd keeps its data
    #[arg(long, default_value = "/var/lib/etcd")]
    pub data: PathBuf,
    /// Where programs that are started write
    #[arg(long, default_value = crate::steps::LOG_FOLDER)]
    pub logs: PathBuf,
    /// This machine's address; default: the first that it has
    #[arg(long)]
    pub ip: Option<IpAddr>,
    /// Name of the node; default: the machine's
    #[arg(long)]
    pub name: Option<String>,
    /// Let the controller run elsewhere
    #[arg(long)]
    pub no_controller: bool,
}

/// Between two tries of anything.
const AGAIN: Duration = Duration::from_secs(1);
/// Between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(5);
const ETCD_BUDGET: Duration = Duration::from_secs(120);

struct Node {
    config: NodeConfig,
    facts: ClusterFacts,
    places: Places,
    own: IpAddr,
    listening: IpAddr,
    name: String,
}

/// Runs until the machine goes down.
///
/// # Errors
/// Words for people.
pub async fn node(args: NodeArgs) -> Result<(), String> {
    run(args).await.map_err(|e| e.to_string())
}

async fn run(args: NodeArgs) -> io::Result<()> {
    let config = NodeConfig::load().map_err(io::Error::other)?;
    install::say_where_this_is(&Root::of_this_machine());
    let own = wait_for_address(args.ip).await?;
    let host_name = || Root::of_this_machine().some_text("/proc/sys/kernel/hostname");
    let name = args.name.clone().or_else(host_name).unwrap_or_else(|| own.to_string()).to_lowercase();
    let facts = ClusterFacts::read(&args.cluster.join("cluster.json"))?;
    let places = Places { cluster: args.cluster, etcd: args.data, logs: args.logs };
    fs::create_dir_all(&places.logs)?;
    let node = Node { config, facts, places, own, listening: listening(args.ip), name };
    say::moment("node", "started", &json!({ "name": node.name, "pool": node.facts.pool, "address": own }));
    let mut parts = Vec::new();
    if node.facts.pool == "master" {
        let pki = Pki::read(&node.places.cluster.join("tls"))?;
        let mut etcd_process = node.start_etcd().await?;
        let api = Arc::new(Api::new(Store::Etcd(Etcd::new(vec![client_url(own)])), pki.clone()));
        parts.extend(node.serve(&pki, &api).await?);
        // The product's controller approves by itself, and nobody does it for it.
        parts.push(tokio::spawn(look_after(Arc::clone(&api), node.config.controller.is_none())));
        let client = Client {
            servers: vec![server(own)],
            credentials: pki.admin_credentials(),
            token: None,
            kept: Kept::default(),
        };
        if !args.no_controller {
            let here = controller::Here {
                facts: node.facts.clone(),
                name: node.name.clone(),
                own,
                config: node.config.clone(),
                client: client.clone(),
                pki: pki.clone(),
                logs: node.places.logs.clone(),
            };
            parts.push(tokio::spawn(controller::when_it_is_our_turn(here)));
        }
        let vips = node.virtual_addresses(&client).await;
        let result = tokio::select! {
            result = node.live() => result,
            // Without etcd a master is none: the unit starts it again.
            ended = wait_for(&mut etcd_process) => Err(io::Error::other(format!("etcd ended: {ended}"))),
        };
        drop(vips);
        parts.iter().for_each(tokio::task::JoinHandle::abort);
        let _ = etcd_process.kill();
        let _ = etcd_process.wait();
        return result;
    }
    node.live().await
}

/// Waits until a child has ended, without taking a thread for it.
async fn wait_for(child: &mut Child) -> String {
    loop {
        match child.try_wait() {
            Ok(None) => tokio::time::sleep(Duration::from_millis(300)).await,
            Ok(Some(status)) => return status.to_string(),
            Err(e) => return e.to_string(),
        }
    }
}

/// Approves what waits for it, where that is nobody else's part, and tells when etcd has no quorum any more.
async fn look_after(api: Arc<Api>, approves: bool) {
    let mut quorum = Quorum::default();
    loop {
        tokio::time::sleep(AGAIN).await;
        // Without a leader of etcd nothing can be approved: the next round may.
        let answers = match approves {
            true => bootkube::approve(&api).await.map(drop),
            false => bootkube::requests(&api).await.map(drop),
        };
        if let Some(word) = quorum.seen(answers.is_ok(), Instant::now()) {
            say::moment("pivot", word, &json!({}));
        }
    }
}

/// Whether etcd has a quorum, as this master sees it.
#[derive(Debug, Default)]
struct Quorum {
    silent_since: Option<Instant>,
    lost: bool,
}

impl Quorum {
    /// How long etcd must not have answered. It has no leader for a moment at each change of its members, and emulated machines are slow.
    const LOST: Duration = Duration::from_secs(60);

    /// It answered, or did not: what there is to tell about it.
    fn seen(&mut self, answers: bool, now: Instant) -> Option<&'static str> {
        if answers {
            self.silent_since = None;
            return std::mem::take(&mut self.lost).then_some("etcd-quorum-back");
        }
        let since = *self.silent_since.get_or_insert(now);
        let over = now.saturating_duration_since(since) >= Self::LOST;
        (over && !std::mem::replace(&mut self.lost, over)).then_some("etcd-quorum-lost")
    }
}

/// Programs that end with us.
struct Programs(Vec<Child>);

impl Drop for Programs {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(vip::end);
    }
}

impl Node {
    fn member_name(&self) -> String {
        format!("etcd-{}", self.name)
    }

    /// Starts this master's member: with its data when it has some, from the snapshot of a single node's bootstrap, or as a new member
    /// of the cluster that is there.
    async fn start_etcd(&self) -> io::Result<Child> {
        let snapshot = self.places.cluster.join("etcd-snapshot.db");
        let begin = if self.places.etcd.join("member").exists() {
            Begin::Again
        } else if self.facts.is_single_node() && snapshot.exists() {
            self.restore(&snapshot)?;
            Begin::Again
        } else {
            Begin::Join(self.join().await?)
        };
        let args =
            etcd::arguments(&self.member_name(), self.own, &self.places.etcd, &begin, self.facts.is_single_node());
        let mut child = etcd::start(&self.config, &args, &self.places.logs.join("etcd.log"))?;
        let own = Etcd::new(vec![client_url(self.own)]);
        if let Err(e) = own.wait(ETCD_BUDGET).await {
            let _ = child.kill();
            let _ = child.wait();
            return Err(e);
        }
        let members = own.members().await.map_or(0, |m| m.len());
        let bootstrap_was_here = Root::of_this_machine().has(WAS_BOOTSTRAP) || self.facts.bootstrap == Some(self.own);
        let word = match begin {
            Begin::Join(_) if bootstrap_was_here => "bootstrap-rejoined",
            Begin::Join(_) => "etcd-member-joined",
            Begin::New | Begin::Again => "etcd-member-back",
        };
        say::moment("pivot", word, &json!({ "name": self.member_name(), "members": members }));
        Ok(child)
    }

    fn restore(&self, snapshot: &std::path::Path) -> io::Result<()> {
        let name = self.member_name();
        let program = self.config.program("etcdctl");
        // etcdctl makes its folder itself and takes none that is there, empty or half filled by a try before.
        let fresh = self.places.etcd.join("restored");
        match fs::remove_dir_all(&fresh) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => fs::create_dir_all(&self.places.etcd)?,
        }
        let output = Command::new(&program)
            .env("ETCDCTL_API", "3")
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .arg(format!("--name={name}"))
            .arg(format!("--data-dir={}", fresh.display()))
            .arg(format!("--initial-cluster={name}={}", peer_url(self.own)))
            .arg(format!("--initial-advertise-peer-urls={}", peer_url(self.own)))
            .stdin(Stdio::null())
            .output()
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", program.display())))?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("etcdctl snapshot restore: {}: {}", output.status, error.trim())));
        }
        fs::rename(fresh.join("member"), self.places.etcd.join("member"))?;
        fs::remove_dir_all(&fresh)?;
        say::moment("pivot", "etcd-snapshot-restored", &json!({ "name": name }));
        Ok(())
    }

    /// Announces this member and tells who the others are. etcd refuses while it is not healthy enough for one more: then again.
    async fn join(&self) -> io::Result<Vec<(String, String)>> {
        let etcd = Etcd::new(self.facts.etcd.clone());
        let own = peer_url(self.own);
        let mut last: Option<Instant> = None;
        loop {
            let announced = async {
                let members = etcd.members().await?;
                // It may have been announced before a restart.
                match members.iter().any(|m| m.peers.contains(&own)) {
                    true => Ok(members),
                    false => etcd.add_member(&own).await,
                }
            };
            match announced.await {
                Ok(members) => {
                    say::moment(
                        "pivot",
                        "etcd-member-added",
                        &json!({ "name": self.member_name(), "members": members.len() }),
                    );
                    let named = |m: &etcd::Member| {
                        let name = if m.peers.contains(&own) { self.member_name() } else { m.name.clone() };
                        m.peers.iter().map(move |p| (name.clone(), p.clone())).collect::<Vec<_>>()
                    };
                    return Ok(members.iter().flat_map(named).collect());
                }
                Err(e) => {
                    if last.is_none_or(|at| at.elapsed() > Duration::from_secs(15)) {
                        last = Some(Instant::now());
                        say::note("pivot", &format!("cannot join etcd yet: {e}"));
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// The API and the machine-config server of this master.
    async fn serve(&self, pki: &Pki, api: &Arc<Api>) -> io::Result<Vec<tokio::task::JoinHandle<()>>> {
        let mut names = vec![format!("api.{}", self.facts.domain), format!("api-int.{}", self.facts.domain)];
        names.extend(["localhost".to_owned(), self.own.to_string(), "127.0.0.1".to_owned()]);
        names.extend(self.facts.api_vips.iter().map(ToString::to_string));
        let pair = pki.server("kube-apiserver", &names)?;
        let (_, api_task) = serve_api(SocketAddr::new(self.listening, API_PORT), &pair, Arc::clone(api)).await?;
        say::moment("pivot", "api-up", &json!({ "name": self.name, "url": server(self.own) }));
        let pair = pki.server("machine-config-server", &names)?;
        let configs = mcs::Configs { api: Arc::clone(api), facts: self.facts.clone(), log: None };
        let mut tasks = vec![api_task];
        tasks.extend(configs.serve(self.listening, &pair).await?);
        Ok(tasks)
    }

    /// Starts keepalived and haproxy where there are virtual addresses, with the masters that are known now.
    async fn virtual_addresses(&self, client: &Client) -> Programs {
        let mut programs = Programs(Vec::new());
        // A single node has its own address only, under all names.
        let none = self.facts.api_vips.is_empty() && self.facts.ingress_vips.is_empty();
        if none || self.facts.is_single_node() {
            return programs;
        }
        let nodes = client.get("/api/v1/nodes").await.unwrap_or_default();
        let mut masters: Vec<IpAddr> = items(&nodes).iter().filter(|n| is_master(n)).flat_map(addresses).collect();
        if !masters.contains(&self.own) {
            masters.push(self.own);
        }
        // The bootstrap weighs more while it is there.
        match vip::hold(&self.config, self.own, &vip::of(&self.facts.api_vips, &self.facts.ingress_vips, 40)) {
            Ok(child) => programs.0.extend(child),
            Err(e) => say::note("node", &e.to_string()),
        }
        let file = "/etc/haproxy/haproxy.cfg".as_ref();
        match vip::start(&self.config, "haproxy", file, &vip::haproxy(&masters), &["-W", "-db", "-f"]) {
            Ok(child) => programs.0.extend(child),
            Err(e) => say::note("node", &e.to_string()),
        }
        programs
    }

    fn servers(&self) -> Vec<String> {
        // A master asks itself first, others whom they were told of.
        let own = (self.facts.pool == "master").then(|| server(self.own));
        own.into_iter().chain(self.facts.api_servers.iter().cloned()).collect()
    }

    /// The kubelet's part: a certificate, a node object, signs of life.
    async fn live(&self) -> io::Result<()> {
        let ca = fs::read_to_string(self.places.cluster.join("ca.crt"))?;
        let own = self.certificate(&ca).await?;
        let client = Client {
            servers: self.servers(),
            credentials: Credentials { ca: Some(ca), own: Some(own) },
            token: None,
            kept: Kept::default(),
        };
        let mut said_ready = false;
        let mut registered = false;
        loop {
            let result = match registered {
                false => self.register(&client, &mut said_ready).await,
                true => self.heartbeat(&client).await,
            };
            match result {
                Ok(()) => registered = true,
                Err(e) => say::note("node", &e.to_string()),
            }
            tokio::time::sleep(if registered { HEARTBEAT } else { AGAIN }).await;
        }
    }

    /// The node's certificate: that of the disk, or a new one that somebody approved.
    async fn certificate(&self, ca: &str) -> io::Result<(String, String)> {
        let (cert, key) = (self.places.cluster.join("node.crt"), self.places.cluster.join("node.key"));
        if let (Ok(cert), Ok(key)) = (fs::read_to_string(&cert), fs::read_to_string(&key)) {
            return Ok((cert, key));
        }
        let (private, request) = node_request(&self.name)?;
        let client = Client {
            servers: self.servers(),
            credentials: Credentials { ca: Some(ca.to_owned()), own: None },
            token: Some(self.facts.bootstrap_token.clone()),
            kept: Kept::default(),
        };
        let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        // A name of its own for each try: an older one belongs to another key.
        let name = format!("csr-{}-{}", self.name, Timestamp::now().as_secs());
        let csr = json!({ "metadata": { "name": name }, "spec": { "request": BASE64.encode(&request),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"] } });
        let mut asked = false;
        loop {
            let result = match asked {
                false => client.create(path, &csr).await.map(|_| Value::Null),
                true => client.get(&format!("{path}/{name}")).await,
            };
            match result {
                Ok(found) => {
                    if !asked {
                        asked = true;
                        say::moment("node", "certificate-requested", &json!({ "name": name }));
                    }
                    if let Some(pem) = found.pointer("/status/certificate").and_then(Value::as_str) {
                        let pem = BASE64.decode(pem).ok().and_then(|b| String::from_utf8(b).ok());
                        let pem = pem.ok_or_else(|| io::Error::other("the certificate is not base64 of PEM"))?;
                        fs::write(&key, &private)?;
                        fs::write(&cert, &pem)?;
                        return Ok((pem, private));
                    }
                }
                Err(e) => say::note("node", &e.to_string()),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn status(&self) -> Value {
        let now = Timestamp::now();
        json!({
            "addresses": [{ "type": "InternalIP", "address": self.own }, { "type": "Hostname", "address": self.name }],
            "conditions": [{ "type": "Ready", "status": "True", "reason": "VlabNodeReady", "lastHeartbeatTime": now }],
            "nodeInfo": { "kubeletVersion": format!("v1.29.0+vlab-{}", env!("CARGO_PKG_VERSION")), "osImage": "vlab lab OS",
                "architecture": "amd64", "operatingSystem": "linux" },
        })
    }

    async fn register(&self, client: &Client, said_ready: &mut bool) -> io::Result<()> {
        let mut labels = json!({ "kubernetes.io/hostname": self.name });
        let role = if self.facts.pool.is_empty() { "worker" } else { &self.facts.pool };
        labels[format!("node-role.kubernetes.io/{role}")] = json!("");
        if role == "master" {
            labels["node-role.kubernetes.io/control-plane"] = json!("");
        }
        let node = json!({ "metadata": { "name": self.name, "labels": labels, "annotations": self.annotations(role) },
            "status": self.status() });
        // Said when the API answers and before it knows: a slow machine may be seen by others before it comes to say so, and
        // what they then do must not look as if it came before.
        client.get("/api/v1/nodes").await?;
        if !std::mem::replace(said_ready, true) {
            say::moment("node", "ready", &json!({ "name": self.name }));
        }
        if !client.create("/api/v1/nodes", &node).await? {
            let annotations = json!({ "metadata": { "annotations": self.annotations(role) } });
            client.patch(&format!("/api/v1/nodes/{}", self.name), &annotations).await?;
            self.heartbeat(client).await?;
        }
        if role == "master" {
            client.create(&format!("/api/v1/namespaces/{}/pods", mcs::NAMESPACE), &mcs::pod(&self.name)).await?;
        }
        Ok(())
    }

    /// What the daemon of machine configs says of a node that is as it should be, and how often this machine has booted.
    fn annotations(&self, role: &str) -> Value {
        let rendered = bootkube::rendered_config(role);
        json!({ "machineconfiguration.openshift.io/currentConfig": rendered,
            "machineconfiguration.openshift.io/desiredConfig": rendered,
            "machineconfiguration.openshift.io/state": "Done", BOOTS: boots().to_string() })
    }

    async fn heartbeat(&self, client: &Client) -> io::Result<()> {
        client.patch(&format!("/api/v1/nodes/{}/status", self.name), &json!({ "status": self.status() })).await
    }
}

/// The annotation that says how often a machine has booted since it was installed.
pub const BOOTS: &str = "vlab/boots";

/// How often this machine has booted from its disk: each boot leaves its number in a file.
fn boots() -> usize {
    const FILE: &str = "/var/lib/vlab/boots";
    let now = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let before = fs::read_to_string(FILE).unwrap_or_default();
    let mut all: Vec<&str> = before.lines().collect();
    if !all.contains(&now.trim()) {
        all.push(now.trim());
        let kept = fs::create_dir_all("/var/lib/vlab").and_then(|()| fs::write(FILE, all.join("\n")));
        if let Err(e) = kept {
            say::note("node", &format!("{FILE}: {e}"));
        }
    }
    all.len()
}

/// Does this machine's own API live? For keepalived.
///
/// # Errors
/// When it does not.
pub async fn alive() -> Result<(), String> {
    let own = own_address(None).map_err(|e| e.to_string())?;
    let client =
        Client { servers: vec![server(own)], credentials: Credentials::default(), token: None, kept: Kept::default() };
    match client.send("GET", "/readyz", None).await {
        Ok(answer) if answer.is_success() => Ok(()),
        Ok(answer) => Err(answer.text()),
        Err(e) => Err(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_is_lost_when_etcd_is_silent_for_long() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut quorum = Quorum::default();
        let looks =
            [(true, 0), (false, 10), (false, 69), (true, 70), (false, 80), (false, 140), (false, 150), (true, 160)];
        let told: Vec<_> = looks.iter().filter_map(|(ok, s)| Some((*s, quorum.seen(*ok, at(*s))?))).collect();
        assert_eq!(told, [(140, "etcd-quorum-lost"), (160, "etcd-quorum-back")]);
    }
}
