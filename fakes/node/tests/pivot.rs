//! The control plane with a real etcd, on addresses of the loopback: a temporary member, two masters that join, quorum without the
//! bootstrap, its member removed, its machine back as the third master. Needs `etcd` and `etcdctl` (variables `VLAB_ETCD` and
//! `VLAB_ETCDCTL`, else `PATH`); without them it is skipped.

#![expect(clippy::unwrap_used, reason = "helpers of tests: whatever fails ends the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uuid::Uuid;
use vlab_node::cluster::etcd::{Etcd, Member, client_url};
use vlab_node::cluster::pki::Pki;
use vlab_node::cluster::watch::{Client, items, server};
use vlab_node::machine::Root;
use vlab_node::net::http::{self, Credentials, Kept};
use vlab_node::{ignition, say};

/// Real programs on a busy machine.
const BUDGET: Duration = Duration::from_secs(100);

fn program(variable: &str, name: &str) -> Option<PathBuf> {
    let given = std::env::var_os(variable).map(PathBuf::from);
    let paths = std::env::var("PATH").unwrap_or_default();
    given.into_iter().chain(paths.split(':').map(|p| Path::new(p).join(name))).find(|p| p.is_file())
}

/// Machines of one cluster: folders, addresses of the loopback, processes.
struct Lab {
    folder: tempfile::TempDir,
    programs: Vec<Child>,
    config: PathBuf,
    /// The second and third byte of its addresses.
    net: (u8, u8),
}

impl Drop for Lab {
    fn drop(&mut self) {
        for child in &mut self.programs {
            // Its own children first: a killed node cannot end its etcd.
            let own = child.id().to_string();
            let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
            let _ = child.kill();
            let _ = child.wait();
            for pid in children.split_whitespace().filter_map(|p| p.parse().ok()) {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
            }
        }
    }
}

impl Lab {
    fn new(number: u8) -> Option<Self> {
        let (Some(etcd), Some(etcdctl)) = (program("VLAB_ETCD", "etcd"), program("VLAB_ETCDCTL", "etcdctl")) else {
            vlab_skip::skip!(
                "etcd and etcdctl are not here: `cargo xtask setup` installs them (packages etcd-server and etcd-client), \
                 VLAB_ETCD and VLAB_ETCDCTL name others"
            );
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("node.json");
        fs::write(&config, json!({ "programs": { "etcd": etcd, "etcdctl": etcdctl } }).to_string()).unwrap();
        let pid = std::process::id();
        Some(Self { folder, programs: vec![], config, net: (100 + number, (pid % 250) as u8) })
    }

    fn ip(&self, host: u8) -> String {
        format!("127.{}.{}.{host}", self.net.0, self.net.1)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spawn(&mut self, name: &str, args: &[&str]) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path(&format!("{name}.log"))).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_vlab-node"))
            .args(args)
            .env("VLAB_NODE_CONFIG", &self.config)
            .env("VLAB_NODE_CONSOLE", "no")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.programs.push(child);
    }

    /// Moments that a program said.
    fn said(&self, name: &str) -> Vec<String> {
        let log = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
        let moments = log.lines().filter_map(say::read).filter(|(_, what, _)| *what != "note");
        moments.map(|(_, what, _)| what.to_owned()).collect()
    }

    fn wait(&self, name: &str, moment: &str) {
        let until = Instant::now() + BUDGET;
        while !self.said(name).iter().any(|m| m == moment) {
            let log = || fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
            assert!(Instant::now() < until, "{name} never said {moment}:\n{}", log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn bootkube(&mut self, control_plane_count: u8) -> PathBuf {
        let assets = self.path("assets");
        fs::create_dir_all(assets.join("manifests")).unwrap();
        let service = json!({ "url": "http://127.0.0.1:1", "cluster_id": Uuid::nil(), "infra_env_id": Uuid::nil(),
            "control_plane_count": control_plane_count, "domain": "net.lab.test" });
        fs::write(assets.join("vlab-service.json"), service.to_string()).unwrap();
        let version = "kind: ClusterVersion\napiVersion: config.openshift.io/v1\nmetadata:\n  name: version\nspec:\n  channel: stable-4.16\n";
        fs::write(assets.join("manifests/cvo.yaml"), version).unwrap();
        let (assets_text, data, ip) =
            (assets.display().to_string(), self.path("etcd-bootstrap").display().to_string(), self.ip(1));
        self.spawn("bootkube", &["bootkube", "--assets", &assets_text, "--ip", &ip, "--data", &data]);
        assets
    }

    /// Does what Ignition does on a new machine with that config.
    fn ignite(&self, name: &str, config: &[u8]) {
        let layout = ignition::layout(config).unwrap();
        ignition::lay_out(&layout, &Root::at(self.path(name))).unwrap();
    }

    fn node(&mut self, name: &str, host: u8) {
        let (root, ip) = (self.path(name), self.ip(host));
        let text = |p: PathBuf| p.display().to_string();
        let (cluster, data, logs) =
            (text(root.join("etc/vlab/cluster")), text(root.join("etcd")), text(root.join("log")));
        let args = [
            "node",
            "--cluster",
            &cluster,
            "--data",
            &data,
            "--logs",
            &logs,
            "--ip",
            &ip,
            "--name",
            name,
            "--no-controller",
        ];
        self.spawn(name, &args);
    }
}

async fn fetch(url: &str, ca: &str) -> Vec<u8> {
    let credentials = Credentials { ca: Some(ca.to_owned()), own: None };
    let answer = http::get(url, &credentials, Duration::from_secs(20)).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.body
}

async fn members(etcd: &Etcd) -> Vec<Member> {
    etcd.members().await.unwrap()
}

#[tokio::test]
async fn heavy_two_masters_join_the_bootstrap_leaves_and_comes_back() {
    let Some(mut lab) = Lab::new(0) else { return };
    let assets = lab.bootkube(3);
    lab.wait("bootkube", "machine-config-server-up");
    let pki = Pki::read(&assets.join("tls")).unwrap();
    let url = |host: u8, lab: &Lab| format!("https://{}:22623/config/master", lab.ip(host));
    for (name, host) in [("master-1", 2), ("master-2", 3)] {
        let config = fetch(&url(1, &lab), &pki.ca.cert).await;
        lab.ignite(name, &config);
        lab.node(name, host);
    }
    lab.wait("bootkube", "bootkube-done");
    assert_eq!(lab.programs[0].wait().unwrap().code(), Some(0));
    let said = lab.said("bootkube");
    let order: Vec<&str> = said
        .iter()
        .map(String::as_str)
        .filter(|m| !["csr-approved", "masters-ready", "config-fetched", "etcd-member"].contains(m))
        .collect();
    assert_eq!(
        order,
        [
            "bootkube-started",
            "etcd-bootstrap-started",
            "temporary-api-up",
            "manifests-applied",
            "machine-config-server-up",
            "etcd-quorum",
            "etcd-bootstrap-removed",
            "bootkube-done"
        ]
    );
    assert!(assets.join(".bootkube.done").exists() && assets.join(".etcd-pivot.done").exists());

    // The masters carry the cluster, and what was written before they came is there.
    let etcd = Etcd::new(vec![client_url(lab.ip(2).parse().unwrap()), client_url(lab.ip(3).parse().unwrap())]);
    let mut names: Vec<String> = members(&etcd).await.into_iter().map(|m| m.name).collect();
    names.sort();
    assert_eq!(names, ["etcd-master-1", "etcd-master-2"]);
    let client = |lab: &Lab| Client {
        servers: [2, 3].map(|h| server(lab.ip(h).parse().unwrap())).to_vec(),
        credentials: pki.admin_credentials(),
        token: None,
        kept: Kept::default(),
    };
    let version = client(&lab).get("/apis/config.openshift.io/v1/clusterversions/version").await.unwrap();
    assert_eq!(version["spec"]["channel"], "stable-4.16");

    // The bootstrap's machine comes back as a master: its config is from a master, with the members that are there now.
    let config = fetch(&url(2, &lab), &pki.ca.cert).await;
    lab.ignite("master-0", &config);
    lab.node("master-0", 1);
    lab.wait("master-0", "ready");
    let members = members(&etcd).await;
    assert_eq!(members.iter().filter(|m| m.started()).count(), 3, "{members:?}");
    // A node says that it is ready, and registers then.
    let until = Instant::now() + BUDGET;
    loop {
        let nodes = client(&lab).get("/api/v1/nodes").await.unwrap();
        let mut names: Vec<&str> = items(&nodes).iter().filter_map(|n| n["metadata"]["name"].as_str()).collect();
        names.sort_unstable();
        if names == ["master-0", "master-1", "master-2"] {
            break;
        }
        assert!(Instant::now() < until, "the nodes of the cluster are {names:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    // One master dies: the other two still decide.
    let mut died = lab.programs.remove(1);
    let own = died.id().to_string();
    let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    died.kill().unwrap();
    died.wait().unwrap();
    for pid in children.split_whitespace().filter_map(|p| p.parse().ok()) {
        // It may have gone with its parent.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
    let others = Client { servers: [3, 1].map(|h| server(lab.ip(h).parse().unwrap())).to_vec(), ..client(&lab) };
    let until = Instant::now() + BUDGET;
    let object = json!({ "metadata": { "name": "after" }, "data": { "x": "1" } });
    while let Err(e) = others.create("/api/v1/namespaces/default/configmaps", &object).await {
        assert!(Instant::now() < until, "{e}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    kubectl(&lab, &pki);
}

/// Real kubectl, where there is one.
fn kubectl(lab: &Lab, pki: &Pki) {
    let Some(kubectl) = program("VLAB_KUBECTL", "kubectl") else {
        vlab_skip::skip!("in part: kubectl is not here");
        return;
    };
    use base64::Engine as _;
    let b64 = |t: &str| base64::engine::general_purpose::STANDARD.encode(t);
    let kubeconfig = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": server(lab.ip(3).parse().unwrap()), "certificate-authority-data": b64(&pki.ca.cert) } }],
        "users": [{ "name": "u", "user": { "client-certificate-data": b64(&pki.admin.cert), "client-key-data": b64(&pki.admin.key) } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }] });
    let path = lab.path("kubeconfig");
    fs::write(&path, kubeconfig.to_string()).unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(&kubectl)
            .arg("--kubeconfig")
            .arg(&path)
            .args(args)
            .env("HOME", lab.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let nodes = run(&["get", "nodes", "--no-headers"]);
    assert_eq!(nodes.lines().filter(|l| l.contains(" Ready ")).count(), 3, "{nodes}");
    assert!(run(&["get", "csr", "--no-headers"]).contains("Approved,Issued"));
    assert!(run(&["get", "clusterversions", "--no-headers"]).starts_with("version"));
    assert_eq!(run(&["get", "configmaps", "-n", "default", "-o", "jsonpath={.items[0].data.x}"]), "1");
}

#[tokio::test]
async fn heavy_a_single_node_keeps_its_etcd_data() {
    let Some(mut lab) = Lab::new(1) else { return };
    let assets = lab.bootkube(1);
    lab.wait("bootkube", "bootstrap-in-place-ready");
    assert_eq!(lab.programs[0].wait().unwrap().code(), Some(0));
    let config = fs::read(assets.join("master.ign")).unwrap();
    lab.ignite("node", &config);
    // As on the installed system: the package of etcd brings the folder.
    fs::create_dir_all(lab.path("node").join("etcd")).unwrap();
    lab.node("node", 1);
    lab.wait("node", "ready");
    let said = lab.said("node");
    let at = |moment: &str| said.iter().position(|m| m == moment).unwrap_or_else(|| panic!("{moment}: {said:?}"));
    assert!(at("etcd-snapshot-restored") < at("etcd-member-back") && at("etcd-member-back") < at("api-up"));
    let pki = Pki::read(&assets.join("tls")).unwrap();
    let client = Client {
        servers: vec![server(lab.ip(1).parse().unwrap())],
        credentials: pki.admin_credentials(),
        token: None,
        kept: Kept::default(),
    };
    let version = client.get("/apis/config.openshift.io/v1/clusterversions/version").await.unwrap();
    assert_eq!(version["spec"]["channel"], "stable-4.16", "what the bootstrap wrote is there");
    let nodes: Value = client.get("/api/v1/nodes").await.unwrap();
    assert_eq!(items(&nodes).len(), 1);
}
