//! What an installation leaves behind as files: ignition configs, kubeconfig, install-config, credentials, and the
//! ignition of the discovery image. Everything here is a function of its input: keys come out of the caller's seed, dates
//! out of the caller's clock, so the same input gives the same bytes.
//!
//! The real service lets `openshift-install` write most of these files; [`Installer`] is its part of the work. They are stand-ins of
//! the same names, formats and places: what reads them (coreos-installer, Ignition, a node, a client with the kubeconfig) finds valid configs,
//! certificates that verify and addresses that are the cluster's; what a real release image would put in them is not there.

mod discovery;
mod ignition;
mod install_config;
mod installer;
mod keys;
mod kubeconfig;
mod mirrors;
pub mod networks;
pub mod openshift_install;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Cluster, Host, HostRole};

use ignition::Builder;

pub use discovery::{DiscoveryInput, discovery_ignition};
pub use ignition::merge_override;
pub use installer::{BOOTSTRAP, BOOTSTRAP_IN_PLACE, Installer, openshift_cluster_id, seed_of};
pub use kubeconfig::{merge_ingress_cert, parse_ca};
pub use mirrors::{Mirrored, Mirrors, MirrorsError};

/// Home of the user root on a CoreOS host, which is where podman looks for its credentials.
const HOME: &str = "/root";

/// A file that the service keeps for a cluster and hands out again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Name within the cluster's folder, for example `bootstrap.ign`. No path separators.
    pub name: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// A host that is going to be installed.
#[derive(Clone, Copy, Debug)]
pub struct HostInput<'a> {
    /// The object; of it are used: `id`, `bootstrap`, `ignition_config_overrides`, `installation_disk_path`,
    /// `machine_config_pool_name`, `node_labels`.
    pub host: &'a Host,
    /// Effective role: `master`, `worker` or `arbiter`; where there is none yet, a worker's ignition (source: `sortHosts` of the
    /// service's ignition generator; the real one was seen to prepare such a host). `bootstrap` is [`ArtifactError::Role`].
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
    /// Mirrors of registries that only this cluster has.
    pub mirrors: Option<&'a Mirrors>,
    /// Certificates, PEM, that are trusted beside those of the mirrors: of the hosts' infra-envs.
    pub trusted: &'a [String],
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
        /// Id of the cluster in the service.
        cluster: Uuid,
        /// What is missing, in the API's words.
        missing: &'static str,
    },
    /// A host's role has no ignition.
    #[error("host {host}: no ignition exists for role {role}")]
    Role {
        /// Id of the host in the service.
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
    /// An install config cannot be used.
    #[error("install-config.yaml: {0}")]
    InstallConfig(String),
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
struct ClusterFacts<'a> {
    name: &'a str,
    base_domain: &'a str,
    single_node: bool,
    api_vips: Vec<String>,
    ingress_vips: Vec<String>,
}

impl<'a> ClusterFacts<'a> {
    fn new(input: &ArtifactInput<'a>) -> Result<Self, ArtifactError> {
        let cluster = input.cluster;
        let need = |value: &'a Option<String>, missing: &'static str| {
            value.as_deref().filter(|v| !v.is_empty()).ok_or(ArtifactError::Missing { cluster: cluster.id, missing })
        };
        let name = need(&cluster.name, "a name")?;
        let base_domain = need(&cluster.base_dns_domain, "a base_dns_domain")?;
        for host in input.hosts {
            if matches!(host.role, HostRole::Bootstrap) {
                return Err(ArtifactError::Role { host: host.host.id, role: host.role.to_string() });
            }
        }
        Ok(Self {
            name,
            base_domain,
            single_node: cluster.control_plane_count == Some(1)
                || (cluster.control_plane_count.is_none() && cluster.high_availability_mode.as_deref() == Some("None")),
            api_vips: cluster.api_vips.iter().flatten().filter_map(|v| v.ip.clone()).collect(),
            ingress_vips: cluster.ingress_vips.iter().flatten().filter_map(|v| v.ip.clone()).collect(),
        })
    }
}

/// The `infrastructureTopology` that the service sees to where there is exactly one worker: the installer would call that one
/// replica, and the control plane makes up for it.
fn spread_over_the_control_plane(manifests: &mut [Artifact]) -> Result<(), ArtifactError> {
    const INFRASTRUCTURE: &str = "manifests/cluster-infrastructure-02-config.yml";
    let bad = |e: serde_yaml::Error| ArtifactError::InstallConfig(format!("{INFRASTRUCTURE}: {e}"));
    for manifest in manifests.iter_mut().filter(|m| m.name == INFRASTRUCTURE) {
        let mut object: serde_json::Value = serde_yaml::from_slice(&manifest.bytes).map_err(bad)?;
        object["status"]["infrastructureTopology"] = "HighlyAvailable".into();
        manifest.bytes = serde_yaml::to_string(&object).map_err(bad)?.into_bytes();
    }
    Ok(())
}

/// Makes all files of a cluster that is being prepared: `bootstrap.ign`, `master.ign`, `worker.ign`, `arbiter.ign` (only with
/// arbiters), `<role>-<host id>.ign` for each host, `metadata.json`, `kubeconfig-noingress`, `kubeadmin-password`,
/// `install-config.yaml`; in this order.
///
/// # Errors
/// [`ArtifactError`]
pub fn generate(input: &ArtifactInput<'_>) -> Result<Vec<Artifact>, ArtifactError> {
    let facts = ClusterFacts::new(input)?;
    let install_config = serde_yaml::to_string(&install_config::render(input, &facts)?)
        .map_err(|e| ArtifactError::InstallConfigOverrides(e.to_string()))?;
    let version = input.cluster.openshift_version.as_deref().unwrap_or_default();
    let installer = Installer::read(&install_config, version, input.seed, input.now)?;
    let mut manifests = installer.manifests();
    let workers = input.hosts.iter().filter(|h| h.role == HostRole::Worker).count();
    if workers == 1 {
        spread_over_the_control_plane(&mut manifests)?;
    }
    for (path, content) in input.manifests {
        // One of the same path replaces what the installer wrote.
        manifests.retain(|m| m.name != *path);
        manifests.push(Artifact { name: path.clone(), bytes: content.clone() });
    }

    let mut artifacts = Vec::new();
    let mut add = |name: String, bytes: Vec<u8>| artifacts.push(Artifact { name, bytes });
    let (configs, others): (Vec<Artifact>, Vec<Artifact>) =
        installer.ignition_configs(&manifests)?.into_iter().partition(|made| made.name.ends_with(".ign"));
    for made in configs {
        let name = if made.name == BOOTSTRAP_IN_PLACE { BOOTSTRAP } else { &made.name };
        add(name.to_owned(), made.bytes);
    }
    for host in input.hosts {
        add(format!("{}-{}.ign", host.role, host.host.id), host_ignition(host, &installer)?);
    }
    for made in others {
        let name = match made.name.as_str() {
            "auth/kubeadmin-password" => "kubeadmin-password",
            // Another one follows when the cluster has told its ingress certificate.
            "auth/kubeconfig" => "kubeconfig-noingress",
            other => other,
        };
        add(name.to_owned(), made.bytes);
    }
    add("install-config.yaml".into(), install_config.into_bytes());
    Ok(artifacts)
}

fn host_ignition(host: &HostInput<'_>, installer: &Installer) -> Result<Vec<u8>, ArtifactError> {
    let pool = host.host.machine_config_pool_name.as_deref().filter(|p| !p.is_empty());
    let role = if host.role == HostRole::AutoAssign { HostRole::Worker } else { host.role };
    let bytes = installer.pointer(pool.unwrap_or(role.as_str())).file("/etc/hostname", 0o644, host.hostname).build();
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
    /// Further headers for it, with their values.
    pub endpoint_headers: &'a [(String, String)],
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
    let token = input.endpoint_token.filter(|t| !t.is_empty());
    let token = token.map(|token| ("Authorization", format!("Bearer {token}")));
    let others = input.endpoint_headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let headers: Vec<(&str, String)> = token.into_iter().chain(others).collect();
    let mut ignition = Builder::new(installer::IGNITION).merge_from(&source, &headers);
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
