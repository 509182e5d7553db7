//! What the machines of a cluster know about it, as files that bootkube and Ignition put there.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
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

    /// Is it a cluster of one node?
    pub fn is_single_node(&self) -> bool {
        self.control_plane_count == 1
    }

    /// Masters other than the bootstrap that must be there before it may leave.
    pub fn masters_needed(&self) -> usize {
        usize::try_from(self.control_plane_count.saturating_sub(1).clamp(0, 2)).unwrap_or(0)
    }
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
