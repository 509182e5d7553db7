//! What an installation leaves behind as files: ignition configs, kubeconfig, install-config, credentials, and the
//! ignition of the discovery image. Everything here is a function of its input: keys come out of the caller's seed, dates
//! out of the caller's clock, so the same input gives the same bytes.
//!
//! The real service lets `openshift-install` write most of these files. Here they are stand-ins of the same names, formats and
//! places: what reads them (coreos-installer, Ignition, a node, a client with the kubeconfig) finds valid configs,
//! certificates that verify and addresses that are the cluster's; what a real release image would put in them is not there.

mod discovery;
mod ignition;
mod install_config;
mod keys;
mod kubeconfig;
pub(crate) mod networks;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Cluster, Host, HostRole};

use ignition::Builder;

pub use discovery::{DiscoveryInput, discovery_ignition};
pub use ignition::merge_override;
pub use kubeconfig::{merge_ingress_cert, parse_ca};
pub use networks::host_makes_connections;

/// Home of the user root on a CoreOS host, which is where podman looks for its credentials.
const HOME: &str = "/root";

/// A file that the service keeps for a cluster and hands out again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Name within the cluster's folder, for example `bootstrap.ign`. No path separators.
    pub name: String,
    /// Content.
    pub bytes: Vec<u8>,
}

/// A host that is going to be installed.
#[derive(Clone, Copy, Debug)]
pub struct HostInput<'a> {
    /// The object; of it are used: `id`, `bootstrap`, `ignition_config_overrides`, `installation_disk_path`,
    /// `machine_config_pool_name`, `node_labels`.
    pub host: &'a Host,
    /// Effective role: `master`, `worker` or `arbiter`. Anything else is [`ArtifactError::Role`].
    pub role: HostRole,
    /// Name that the node gets.
    pub hostname: &'a str,
}

/// What [`generate`] needs.
#[derive(Clone, Copy, Debug)]
pub struct ArtifactInput<'a> {
    /// The object; name, base domain, networks, VIPs, proxy and so on come from it. `control_plane_count` 1 (or
    /// `high_availability_mode` `None`) makes it a single-node cluster with the bootstrap-in-place layout.
    pub cluster: &'a Cluster,
    /// Hosts that take part, in order of registration.
    pub hosts: &'a [HostInput<'a>],
    /// Pull secret as it was given. It ends up in `install-config.yaml` and in the bootstrap ignition.
    pub pull_secret: &'a str,
    /// Manifests of the user and of the service: path below the cluster's folder (`openshift/50-x.yaml`,
    /// `manifests/y.yaml`) and content. They are laid out for the bootstrap host.
    pub manifests: &'a [(String, Vec<u8>)],
    /// Where the CA's key, the client key and the password come from: equal seeds give equal bytes, so this must be
    /// random per cluster where somebody could reach it.
    pub seed: [u8; 32],
    /// Certificates are valid from one day before this instant, for ten years.
    pub now: Timestamp,
}

/// Why there are no artifacts.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The cluster lacks something that a file must contain.
    #[error("cluster {cluster} cannot be installed without {missing}")]
    Missing {
        /// Cluster.
        cluster: Uuid,
        /// What is missing, in the API's words.
        missing: &'static str,
    },
    /// A host's role has no ignition.
    #[error("host {host}: no ignition exists for role {role}")]
    Role {
        /// Host.
        host: Uuid,
        /// Its role.
        role: String,
    },
    /// Text that must be an Ignition config is not.
    #[error("{what} is not a valid Ignition config: {reason}")]
    Ignition {
        /// Which text.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `install_config_overrides` is not a JSON object.
    #[error("install_config_overrides: {0}")]
    InstallConfigOverrides(String),
    /// The kubeconfig cannot be read.
    #[error("kubeconfig: {0}")]
    Kubeconfig(String),
    /// A certificate cannot be read.
    #[error("certificate: {0}")]
    Certificate(String),
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Signing(String),
    /// A static network cannot be made.
    #[error("{0}")]
    StaticNetwork(String),
}

/// What several files need, checked once.
struct Facts<'a> {
    name: &'a str,
    base_domain: &'a str,
    /// `<name>.<base domain>`
    domain: String,
    single_node: bool,
    api_vips: Vec<String>,
    ingress_vips: Vec<String>,
    infra_id: String,
    has_arbiters: bool,
}

impl<'a> Facts<'a> {
    fn new(input: &ArtifactInput<'a>) -> Result<Self, ArtifactError> {
        let cluster = input.cluster;
        let need = |value: &'a Option<String>, missing: &'static str| {
            value.as_deref().filter(|v| !v.is_empty()).ok_or(ArtifactError::Missing { cluster: cluster.id, missing })
        };
        let name = need(&cluster.name, "a name")?;
        let base_domain = need(&cluster.base_dns_domain, "a base_dns_domain")?;
        for host in input.hosts {
            if !matches!(host.role, HostRole::Master | HostRole::Worker | HostRole::Arbiter) {
                return Err(ArtifactError::Role { host: host.host.id, role: host.role.to_string() });
            }
        }
        // The installer cuts the name to 21 characters and adds five of its own; ambiguous characters are left out.
        let stem: String = name.chars().take(21).collect();
        let infra_id = format!(
            "{}-{}",
            stem.trim_end_matches(['-', '.']),
            keys::derive_text(&input.seed, "infra id", b"bcdfghjklmnpqrstvwxz2456789", 5)
        );
        Ok(Self {
            name,
            base_domain,
            domain: format!("{name}.{base_domain}"),
            single_node: cluster.control_plane_count == Some(1)
                || (cluster.control_plane_count.is_none() && cluster.high_availability_mode.as_deref() == Some("None")),
            api_vips: cluster.api_vips.iter().flatten().filter_map(|v| v.ip.clone()).collect(),
            ingress_vips: cluster.ingress_vips.iter().flatten().filter_map(|v| v.ip.clone()).collect(),
            infra_id,
            has_arbiters: input.hosts.iter().any(|h| h.role == HostRole::Arbiter),
        })
    }
}

/// Id that the new cluster calls itself (`openshift_cluster_id`): it comes out of the seed, and `metadata.json` and the
/// bootstrap ignition carry it.
pub fn openshift_cluster_id(seed: &[u8; 32]) -> Uuid {
    let bytes = keys::derive(seed, "openshift cluster id");
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[..16]);
    uuid_v4(id)
}

fn uuid_v4(mut bytes: [u8; 16]) -> Uuid {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid::from_bytes(bytes)
}

/// Version of the ignition configs of an installation.
const IGNITION: &str = "3.2.0";

/// Makes all files of a cluster that is being prepared: `bootstrap.ign`, `master.ign`, `worker.ign`, `arbiter.ign` (only with
/// arbiters), `<role>-<host id>.ign` for each host, `metadata.json`, `install-config.yaml`, `kubeadmin-password`,
/// `kubeconfig-noingress`; in this order.
///
/// # Errors
/// [`ArtifactError`]
pub fn generate(input: &ArtifactInput<'_>) -> Result<Vec<Artifact>, ArtifactError> {
    let facts = Facts::new(input)?;
    let install_config = serde_yaml::to_string(&install_config::render(input, &facts)?)
        .map_err(|e| ArtifactError::InstallConfigOverrides(e.to_string()))?;
    let tls = Tls::new(input, &facts)?;
    // Four groups of five, without characters that look alike.
    let alphabet = b"23456789ABCDEFGHIJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let letters = keys::derive_text(&input.seed, "kubeadmin password", alphabet, 20);
    let password = [&letters[..5], &letters[5..10], &letters[10..15], &letters[15..]].join("-");
    let server = format!("https://api.{}:6443", facts.domain);
    let kubeconfig = kubeconfig::admin(facts.name, &server, &tls.root.pair.cert, &tls.admin)?;

    let mut artifacts = Vec::new();
    let mut add = |name: String, bytes: Vec<u8>| artifacts.push(Artifact { name, bytes });
    add("bootstrap.ign".into(), bootstrap(input, &facts, &tls, &kubeconfig, &password, &install_config));
    let roles: &[HostRole] = if facts.has_arbiters {
        &[HostRole::Master, HostRole::Worker, HostRole::Arbiter]
    } else {
        &[HostRole::Master, HostRole::Worker]
    };
    for role in roles {
        add(format!("{role}.ign"), pointer(&facts, &tls, role.as_str()).build());
    }
    for host in input.hosts {
        add(format!("{}-{}.ign", host.role, host.host.id), host_ignition(host, &facts, &tls)?);
    }
    let metadata = json!({
        "clusterName": facts.name,
        "clusterID": openshift_cluster_id(&input.seed),
        "infraID": facts.infra_id,
    });
    add("metadata.json".into(), metadata.to_string().into_bytes());
    add("install-config.yaml".into(), install_config.into_bytes());
    add("kubeadmin-password".into(), password.into_bytes());
    add("kubeconfig-noingress".into(), kubeconfig);
    Ok(artifacts)
}

/// The cluster's authority and what it signed.
struct Tls {
    root: keys::Authority,
    machine_config_server: keys::Pair,
    api_server: keys::Pair,
    admin: keys::Pair,
}

impl Tls {
    fn new(input: &ArtifactInput<'_>, facts: &Facts<'_>) -> Result<Self, ArtifactError> {
        let root = keys::Authority::new(&input.seed, input.now, "root-ca")?;
        let mut internal = vec![format!("api-int.{}", facts.domain)];
        internal.extend(facts.api_vips.iter().cloned());
        let mut api = vec![format!("api.{}", facts.domain)];
        api.extend(internal.iter().cloned());
        api.extend(["kubernetes.default.svc".to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()]);
        Ok(Self {
            machine_config_server: root.issue("machine-config-server", &keys::Usage::Server(&internal))?,
            api_server: root.issue("kube-apiserver", &keys::Usage::Server(&api))?,
            admin: root.issue("system:admin", &keys::Usage::Client("system:masters"))?,
            root,
        })
    }
}

/// What a node of that role (or machine config pool) boots with: where the rest of its config is. A single node has nobody
/// to ask, so its config is empty here and is completed from the bootstrap's files.
fn pointer(facts: &Facts<'_>, tls: &Tls, pool: &str) -> Builder {
    let builder = Builder::new(IGNITION);
    if facts.single_node {
        return builder;
    }
    builder
        .merge_from(&format!("https://api-int.{}:22623/config/{pool}", facts.domain), &[])
        .trust(tls.root.pair.cert.as_bytes())
}

fn host_ignition(host: &HostInput<'_>, facts: &Facts<'_>, tls: &Tls) -> Result<Vec<u8>, ArtifactError> {
    let pool = host.host.machine_config_pool_name.as_deref().filter(|p| !p.is_empty());
    let bytes =
        pointer(facts, tls, pool.unwrap_or(host.role.as_str())).file("/etc/hostname", 0o644, host.hostname).build();
    with_override(bytes, host.host.ignition_config_overrides.as_deref(), || {
        format!("ignition_config_overrides of host {}", host.host.id)
    })
}

fn with_override(bytes: Vec<u8>, text: Option<&str>, what: impl Fn() -> String) -> Result<Vec<u8>, ArtifactError> {
    match text.filter(|t| !t.is_empty()) {
        Some(text) => merge_override(&bytes, text, &what()),
        None => Ok(bytes),
    }
}

/// Where the bootstrap's files lie.
const ASSETS: &str = "/opt/openshift";

/// Starts the temporary control plane. The program is part of the lab's node image; on a machine without it the unit fails and
/// says so, because nothing else here could bring up a cluster.
const BOOTKUBE_SCRIPT: &str = "\
#!/bin/bash
set -euo pipefail
assets=/opt/openshift
done_file=$assets/.bootkube.done
if [ -e \"$done_file\" ]; then
    echo 'bootkube: the control plane was brought up before, nothing to do'
    exit 0
fi
bootstrap=/usr/local/bin/vlab-bootstrap
if [ ! -x \"$bootstrap\" ]; then
    echo \"bootkube: $bootstrap is missing: this is not a lab node image\" >&2
    exit 1
fi
\"$bootstrap\" --assets \"$assets\"
touch \"$done_file\"
echo 'bootkube.service complete'
";

const BOOTKUBE_UNIT: &str = "\
[Unit]
Description=Bring up the temporary control plane
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
WorkingDirectory=/opt/openshift
ExecStart=/usr/local/bin/bootkube.sh
Restart=on-failure
RestartSec=5s

[Install]
WantedBy=multi-user.target
";

fn bootstrap(
    input: &ArtifactInput<'_>,
    facts: &Facts<'_>,
    tls: &Tls,
    kubeconfig: &[u8],
    password: &str,
    install_config: &str,
) -> Vec<u8> {
    let cluster = input.cluster;
    let manifest = |kind: &str, api: &str, name: &str, namespace: Option<&str>, body: serde_json::Value| {
        let mut metadata = json!({ "name": name });
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        let mut object = json!({ "apiVersion": api, "kind": kind, "metadata": metadata });
        if let (Some(object), serde_json::Value::Object(body)) = (object.as_object_mut(), body) {
            object.extend(body);
        }
        // A value of plain JSON always has a YAML form.
        serde_yaml::to_string(&object).unwrap_or_default()
    };
    let networks = |list: Vec<serde_json::Value>| serde_json::Value::Array(list);
    let manifests = [
        (
            "manifests/cvo-overrides.yaml",
            manifest(
                "ClusterVersion",
                "config.openshift.io/v1",
                "version",
                Some("openshift-cluster-version"),
                json!({ "spec": { "channel": channel(cluster), "clusterID": openshift_cluster_id(&input.seed) } }),
            ),
        ),
        (
            "manifests/cluster-config.yaml",
            manifest(
                "ConfigMap",
                "v1",
                "cluster-config-v1",
                Some("kube-system"),
                json!({ "data": { "install-config": without_secret(install_config) } }),
            ),
        ),
        (
            "manifests/cluster-infrastructure-02-config.yml",
            manifest(
                "Infrastructure",
                "config.openshift.io/v1",
                "cluster",
                None,
                json!({ "status": {
                    "apiServerInternalURI": format!("https://api-int.{}:6443", facts.domain),
                    "apiServerURL": format!("https://api.{}:6443", facts.domain),
                    "controlPlaneTopology": if facts.single_node { "SingleReplica" } else { "HighlyAvailable" },
                    "infrastructureName": facts.infra_id,
                }}),
            ),
        ),
        (
            "manifests/cluster-network-02-config.yml",
            manifest(
                "Network",
                "config.openshift.io/v1",
                "cluster",
                None,
                json!({ "spec": {
                    "clusterNetwork": networks(cluster.cluster_networks.iter().flatten()
                        .map(|n| json!({ "cidr": n.cidr, "hostPrefix": n.host_prefix })).collect()),
                    "serviceNetwork": networks(cluster.service_networks.iter().flatten()
                        .map(|n| json!(n.cidr)).collect()),
                    "networkType": cluster.network_type.as_deref().unwrap_or("OVNKubernetes"),
                }}),
            ),
        ),
        (
            "manifests/cluster-dns-02-config.yml",
            manifest(
                "DNS",
                "config.openshift.io/v1",
                "cluster",
                None,
                json!({ "spec": { "baseDomain": facts.domain } }),
            ),
        ),
        (
            "manifests/cluster-ingress-02-config.yml",
            manifest(
                "Ingress",
                "config.openshift.io/v1",
                "cluster",
                None,
                json!({ "spec": { "domain": format!("apps.{}", facts.domain) } }),
            ),
        ),
    ];

    let mut ignition = Builder::new(IGNITION)
        .core_user(cluster.ssh_public_key.as_deref())
        .file(&format!("{HOME}/.docker/config.json"), 0o600, input.pull_secret)
        .file(
            "/etc/motd",
            0o644,
            "This is the bootstrap of a cluster that is being installed.\nIts log:  journalctl -u bootkube.service\n",
        )
        .file("/usr/local/bin/bootkube.sh", 0o755, BOOTKUBE_SCRIPT);
    for (path, content) in &manifests {
        ignition = ignition.file(&format!("{ASSETS}/{path}"), 0o644, content);
    }
    for (path, content) in input.manifests {
        ignition = ignition.file(&format!("{ASSETS}/{path}"), 0o644, content);
    }
    let secrets = [
        ("tls/root-ca.crt", &tls.root.pair.cert),
        ("tls/root-ca.key", &tls.root.pair.key),
        ("tls/machine-config-server.crt", &tls.machine_config_server.cert),
        ("tls/machine-config-server.key", &tls.machine_config_server.key),
        ("tls/kube-apiserver.crt", &tls.api_server.cert),
        ("tls/kube-apiserver.key", &tls.api_server.key),
        ("tls/admin.crt", &tls.admin.cert),
        ("tls/admin.key", &tls.admin.key),
    ];
    for (path, content) in secrets {
        ignition = ignition.file(&format!("{ASSETS}/{path}"), 0o600, content);
    }
    ignition = ignition.file(&format!("{ASSETS}/auth/kubeconfig"), 0o600, kubeconfig).file(
        &format!("{ASSETS}/auth/kubeadmin-password"),
        0o600,
        password,
    );
    if facts.single_node {
        // In place: the one node is its own bootstrap, and what it will boot with afterwards lies beside the assets.
        let node = Builder::new(IGNITION)
            .core_user(cluster.ssh_public_key.as_deref())
            .file("/etc/kubernetes/ca.crt", 0o644, &tls.root.pair.cert)
            .file("/etc/kubernetes/kubeconfig", 0o600, kubeconfig)
            .build();
        ignition = ignition.file(&format!("{ASSETS}/master.ign"), 0o644, node);
    }
    ignition.unit("bootkube.service", true, BOOTKUBE_UNIT).build()
}

/// `stable-<major>.<minor>` of the cluster's version.
fn channel(cluster: &Cluster) -> String {
    let version = cluster.openshift_version.as_deref().unwrap_or_default();
    let mut parts = version.split(['.', '-']);
    format!("stable-{}.{}", parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// The install config as the cluster keeps it for reading: everybody in the cluster may, so no pull secret.
fn without_secret(install_config: &str) -> String {
    let mut value: serde_json::Value = serde_yaml::from_str(install_config).unwrap_or_default();
    if let Some(secret) = value.get_mut("pullSecret") {
        *secret = json!("");
    }
    serde_yaml::to_string(&value).unwrap_or_default()
}

/// What [`day2_ignition`] needs.
#[derive(Clone, Copy, Debug)]
pub struct Day2Input<'a> {
    /// Host name or address under which the cluster's API is reached.
    pub api_host: &'a str,
    /// `cluster.ignition_endpoint.url` when the user gave one; it replaces `http://<api_host>:22624/config`.
    pub endpoint_url: Option<&'a str>,
    /// `cluster.ignition_endpoint.ca_certificate`: base64 of a PEM bundle.
    pub endpoint_ca: Option<&'a str>,
    /// The host's bearer token for the endpoint.
    pub endpoint_token: Option<&'a str>,
    /// Machine config pool; `worker` when the host has none.
    pub pool: &'a str,
    /// Name that the node gets; `None` leaves it to the network.
    pub hostname: Option<&'a str>,
    /// The host's `ignition_config_overrides`.
    pub overrides: Option<&'a str>,
}

/// The pointer ignition of a host that is added to a running cluster.
///
/// # Errors
/// When the override is not an Ignition config, or the CA is not base64 of a PEM bundle.
pub fn day2_ignition(input: &Day2Input<'_>) -> Result<Vec<u8>, ArtifactError> {
    let source = match input.endpoint_url.filter(|u| !u.is_empty()) {
        Some(url) => format!("{}/{}", url.trim_end_matches('/'), input.pool),
        None => format!("http://{}:22624/config/{}", input.api_host, input.pool),
    };
    let headers: Vec<(&str, String)> = input
        .endpoint_token
        .filter(|t| !t.is_empty())
        .map(|token| ("Authorization", format!("Bearer {token}")))
        .into_iter()
        .collect();
    let mut ignition = Builder::new(IGNITION).merge_from(&source, &headers);
    if let Some(ca) = input.endpoint_ca.filter(|c| !c.is_empty()) {
        let pem = BASE64.decode(ca).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
            ArtifactError::Certificate("ignition_endpoint.ca_certificate is not base64 of PEM".into())
        })?;
        parse_ca(&pem)?;
        ignition = ignition.trust(pem.as_bytes());
    }
    if let Some(hostname) = input.hostname {
        ignition = ignition.file("/etc/hostname", 0o644, hostname);
    }
    with_override(ignition.build(), input.overrides, || "ignition_config_overrides of the host".to_owned())
}

#[cfg(test)]
mod tests;
