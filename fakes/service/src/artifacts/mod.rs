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

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Cluster, Host, HostRole};

pub use discovery::{DiscoveryInput, discovery_ignition};
pub use ignition::merge_override;
pub use kubeconfig::{merge_ingress_cert, parse_ca};

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
}

/// Makes all files of a cluster that is being prepared: `bootstrap.ign`, `master.ign`, `worker.ign`, `arbiter.ign` (only with
/// arbiters), `<role>-<host id>.ign` for each host, `metadata.json`, `install-config.yaml`, `kubeadmin-password`,
/// `kubeconfig-noingress`; in this order.
///
/// # Errors
/// [`ArtifactError`]
pub fn generate(input: &ArtifactInput<'_>) -> Result<Vec<Artifact>, ArtifactError> {
    let _ = input;
    unimplemented!("artifacts::generate")
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
    /// The host's `ignition_config_overrides`.
    pub overrides: Option<&'a str>,
}

/// The pointer ignition of a host that is added to a running cluster.
///
/// # Errors
/// When the override is not an Ignition config.
pub fn day2_ignition(input: &Day2Input<'_>) -> Result<Vec<u8>, ArtifactError> {
    let _ = input;
    unimplemented!("artifacts::day2_ignition")
}
