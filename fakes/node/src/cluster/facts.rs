//! What the machines of a cluster know about it, as files that bootkube and Ignition put there.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

/// Where a node's facts and keys are.
pub const FOLDER: &str = "/etc/vlab/cluster";

/// The cluster, as its machines know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFacts {
    /// URL of the service.
    pub url: String,
    /// The service's id of the cluster.
    pub cluster_id: Uuid,
    /// Infra-env of the bootstrap host.
    pub infra_env_id: Uuid,
    /// Hosts of the control plane.
    pub control_plane_count: i64,
    /// Version to be installed.
    #[serde(default)]
    pub openshift_version: Option<String>,
    /// What the service wants in `X-Secret-Key`.
    #[serde(default)]
    pub token: String,
    /// `<name>.<base domain>`.
    #[serde(default)]
    pub domain: String,
    /// Virtual addresses of the API.
    #[serde(default)]
    pub api_vips: Vec<IpAddr>,
    /// Virtual addresses of the ingress.
    #[serde(default)]
    pub ingress_vips: Vec<IpAddr>,
    /// `master` or `worker`; empty on the bootstrap.
    #[serde(default)]
    pub pool: String,
    /// Where the API answers, in order of trying: `https://host:6443`.
    #[serde(default)]
    pub api_servers: Vec<String>,
    /// Clients' URLs of etcd's members.
    #[serde(default)]
    pub etcd: Vec<String>,
    /// What a new node shows to ask for its certificate.
    #[serde(default)]
    pub bootstrap_token: String,
    /// Address of the machine that was the bootstrap.
    #[serde(default)]
    pub bootstrap: Option<IpAddr>,
    /// Who may log in on every node (`passwd.users` of an Ignition config): `core` with the keys that the user gave.
    #[serde(default)]
    pub users: Vec<Value>,
}

impl ClusterFacts {
    /// Reads them from a file.
    ///
    /// # Errors
    /// When the file is not there, or is something else; the path is in the message.
    pub fn read(path: &Path) -> io::Result<Self> {
        let at = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let text = std::fs::read(path).map_err(at)?;
        serde_json::from_slice(&text).map_err(|e| at(io::Error::other(e)))
    }

    /// What the manifests of the bootstrap say of the cluster: those of the product's installer, and the install-config. A wrong value
    /// in one of them shows in the cluster, as it would in a real one.
    ///
    /// # Errors
    /// When a manifest that has to be there is missing or says something that cannot be: its name is in the message.
    pub fn of_manifests(folder: &Path) -> io::Result<Self> {
        let objects = manifests(folder)?;
        let wrong = |what: String| io::Error::other(format!("{}: {what}", folder.display()));
        let find = |kind: &str, name: &str| {
            let found = objects.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
            found.ok_or_else(|| wrong(format!("no {kind} {name} is among the manifests")))
        };
        let controller = find("ConfigMap", "assisted-installer-controller-config")?;
        let secret = find("Secret", "assisted-installer-controller-secret")?;
        let config = find("ConfigMap", "cluster-config-v1")?["data"]["install-config"].as_str().unwrap_or_default();
        let config: Value = serde_yaml::from_str(config).map_err(|e| wrong(format!("install-config: {e}")))?;
        let job = find("Job", "assisted-installer-controller").ok();
        let version = job.and_then(|job| variable(job, "OPENSHIFT_VERSION")).filter(|v| !v.is_empty());
        let said = |name: &str| controller["data"][name].as_str().unwrap_or_default().to_owned();
        let id = said("cluster-id");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let addresses = |name: &str| -> Vec<IpAddr> {
            let all = config["platform"]["baremetal"][name].as_array().into_iter().flatten();
            all.filter_map(|a| a.as_str()?.parse().ok()).collect()
        };
        let key = text(&config["sshKey"]);
        let keys: Vec<&str> = key.lines().filter(|line| !line.trim().is_empty()).collect();
        let users = if keys.is_empty() { vec![] } else { vec![json!({ "name": "core", "sshAuthorizedKeys": keys })] };
        let count = said("control-plane-count").parse().ok().or_else(|| config["controlPlane"]["replicas"].as_i64());
        Ok(Self {
            url: said("inventory-url"),
            cluster_id: id
                .parse()
                .map_err(|e| wrong(format!("cluster-id {id:?} of the controller's ConfigMap: {e}")))?,
            infra_env_id: Uuid::nil(),
            control_plane_count: count
                .ok_or_else(|| wrong("nothing says how many hosts the control plane has".into()))?,
            openshift_version: version,
            token: text(&secret["stringData"]["pull-secret-token"]),
            domain: format!("{}.{}", text(&config["metadata"]["name"]), text(&config["baseDomain"])),
            api_vips: addresses("apiVIPs"),
            ingress_vips: addresses("ingressVIPs"),
            pool: String::new(),
            api_servers: Vec::new(),
            etcd: Vec::new(),
            bootstrap_token: String::new(),
            bootstrap: None,
            users,
        })
    }

    /// Is it a cluster of one node?
    pub fn is_single_node(&self) -> bool {
        self.control_plane_count == 1
    }

    /// Masters other than the bootstrap that must be there before it may leave.
    pub fn masters_needed(&self) -> usize {
        usize::try_from(self.control_plane_count.saturating_sub(1).clamp(0, 2)).unwrap_or(0)
    }
}

/// The objects of a folder's YAML files; what is none is left out.
fn manifests(folder: &Path) -> io::Result<Vec<Value>> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", folder.display()));
    let files = std::fs::read_dir(folder).map_err(at)?.flatten().map(|entry| entry.path());
    let texts = files.filter_map(|path| std::fs::read_to_string(path).ok());
    Ok(texts.filter_map(|text| manifest(&text).ok()).filter(Value::is_object).collect())
}

/// A manifest as Go reads it: a whole number that begins with a zero is octal, as the modes of files in the product's Job are. The
/// newer YAML that our reader knows takes it for a text.
///
/// # Errors
/// When it is no YAML.
pub fn manifest(text: &str) -> Result<Value, serde_yaml::Error> {
    let octal = |line: &str| -> Option<String> {
        let (name, value) = line.split_once(": ")?;
        let digits = value.trim().strip_prefix('0')?;
        let number = i64::from_str_radix(digits, 8).ok()?;
        Some(format!("{name}: {number}"))
    };
    let lines: Vec<String> = text.lines().map(|line| octal(line).unwrap_or_else(|| line.to_owned())).collect();
    serde_yaml::from_str(&lines.join("\n"))
}

/// The plain value of a variable of a Job's container.
fn variable(job: &Value, name: &str) -> Option<String> {
    let all = job.pointer("/spec/template/spec/containers/0/env")?.as_array()?;
    all.iter().find(|v| v["name"] == name)?["value"].as_str().map(str::to_owned)
}

/// Places of a node's files, below a folder of one's own in tests.
#[derive(Clone, Debug)]
pub struct Places {
    /// Facts and keys: [`FOLDER`].
    pub cluster: PathBuf,
    /// etcd's data.
    pub etcd: PathBuf,
    /// Logs of programs that are started.
    pub logs: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Self { cluster: FOLDER.into(), etcd: "/var/lib/etcd".into(), logs: crate::steps::LOG_FOLDER.into() }
    }
}

/// Between two looks for an address, and how long it is waited for.
const LOOK: Duration = Duration::from_millis(500);
const ADDRESS_BUDGET: Duration = Duration::from_secs(180);

/// The same as [`own_address`], waited for: units start when the network should be there, on slow machines it is not yet.
///
/// # Errors
/// When there is none in the end.
pub async fn wait_for_address(given: Option<IpAddr>) -> io::Result<IpAddr> {
    let until = Instant::now() + ADDRESS_BUDGET;
    loop {
        match own_address(given) {
            Err(e) if Instant::now() >= until => {
                return Err(io::Error::new(e.kind(), format!("{e}, after {ADDRESS_BUDGET:?}")));
            }
            Err(_) => tokio::time::sleep(LOOK).await,
            found => return found,
        }
    }
}

/// Where servers of a node listen: on every address, for the virtual ones come and go, of both families. On the given one only where
/// it was given: there several nodes may share a machine.
pub fn listening(given: Option<IpAddr>) -> IpAddr {
    given.unwrap_or(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED))
}

/// This machine's address: the given one, else the first that is no loopback and no link-local one, IPv4 before IPv6.
///
/// # Errors
/// When there is none.
pub fn own_address(given: Option<IpAddr>) -> io::Result<IpAddr> {
    if let Some(given) = given {
        return Ok(given);
    }
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        // One that is still looked for elsewhere (RFC 4862, 5.4) is nobody's yet: etcd would die of it.
        IpAddr::V6(v6) => {
            !v6.is_loopback() && !v6.is_unicast_link_local() && std::net::TcpListener::bind((*v6, 0)).is_ok()
        }
    };
    // An address that is a network by itself is a virtual one, which may move away.
    let alone = |net: &ipnet::IpNet| net.prefix_len() == net.max_prefix_len();
    let nets = crate::net::link::addresses()?;
    let mut all: Vec<IpAddr> = nets.iter().filter(|a| !alone(&a.net)).map(|a| a.net.addr()).filter(usable).collect();
    all.sort_by_key(|ip| ip.is_ipv6());
    all.first().copied().ok_or_else(|| io::Error::other("this machine has no address"))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    const CONFIG: &str = "kind: ConfigMap\nmetadata: {name: cluster-config-v1}\ndata:\n  install-config: |\n    baseDomain: example.org\n    \
        metadata: {name: lab}\n    controlPlane: {replicas: 3}\n    platform: {baremetal: {apiVIPs: [192.0.2.5], ingressVIPs: [192.0.2.6]}}\n    \
        sshKey: ssh-ed25519 AAAA lab\n";

    fn folder_with(id: &str, job: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.yaml", CONFIG);
        let data =
            format!("data: {{cluster-id: {id}, inventory-url: 'http://192.0.2.1:8090', control-plane-count: '3'}}");
        write(
            "b.yaml",
            &format!("kind: ConfigMap\nmetadata: {{name: assisted-installer-controller-config}}\n{data}\n"),
        );
        write(
            "c.yaml",
            "kind: Secret\nmetadata: {name: assisted-installer-controller-secret}\nstringData: {pull-secret-token: secret}\n",
        );
        write("d.yaml", job);
        write("notes.txt", "not: [an object");
        folder
    }

    #[test]
    fn the_product_s_manifests_say_what_the_cluster_is() {
        let job = "kind: Job\nmetadata: {name: assisted-installer-controller}\nspec: {template: {spec: {containers: [{env: [{name: OPENSHIFT_VERSION, value: 4.20.0}]}]}}}\n";
        let folder = folder_with("7b0058b0-8035-411b-9f02-7e3f51cd0607", job);
        let facts = ClusterFacts::of_manifests(folder.path()).unwrap();
        assert_eq!((facts.domain.as_str(), facts.url.as_str()), ("lab.example.org", "http://192.0.2.1:8090"));
        assert_eq!((facts.control_plane_count, facts.token.as_str()), (3, "secret"));
        assert_eq!(facts.openshift_version.as_deref(), Some("4.20.0"));
        assert_eq!(facts.api_vips, ["192.0.2.5".parse::<IpAddr>().unwrap()]);
        assert_eq!(facts.users[0]["sshAuthorizedKeys"][0], "ssh-ed25519 AAAA lab");
    }

    #[test]
    fn modes_of_files_are_octal() {
        let read = manifest("a:\n  - mode: 0400\n    other: \"0400\"\n    zero: 0\n    text: 09\n").unwrap();
        assert_eq!(read["a"][0], json!({ "mode": 256, "other": "0400", "zero": 0, "text": "09" }));
    }

    #[test]
    fn manifests_that_are_wrong_are_named() {
        let folder = folder_with("none", "");
        let error = ClusterFacts::of_manifests(folder.path()).unwrap_err().to_string();
        assert!(error.contains("cluster-id \"none\""), "{error}");
        std::fs::remove_file(folder.path().join("c.yaml")).unwrap();
        let error = ClusterFacts::of_manifests(folder.path()).unwrap_err().to_string();
        assert!(error.contains("no Secret assisted-installer-controller-secret"), "{error}");
    }

    #[test]
    fn a_machine_answers_under_its_virtual_addresses_and_says_who_asked() {
        // 127.0.0.2 stands for an address that keepalived brings later.
        let listener = TcpListener::bind(SocketAddr::new(listening(None), 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let _client = TcpStream::connect(("127.0.0.2", port)).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert!(peer.ip().to_canonical().is_ipv4(), "{peer}");
        let given: IpAddr = "127.0.0.3".parse().unwrap();
        assert_eq!(listening(Some(given)), given);
    }
}
