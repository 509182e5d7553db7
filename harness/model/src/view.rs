//! What the rules look at: the API objects, with the JSON texts inside them parsed once when they change.

use std::collections::BTreeMap;

use uuid::Uuid;
use vlab_api::types::{
    ApiVipConnectivityResponse, Cluster, ConnectivityReport, ContainerImageAvailability, DiskInfo,
    DomainResolutionResponse, FreeNetworkAddresses, Host, InfraEnv, Inventory, NtpSource, TangConnectivityResponse,
};

/// A host: the API object is the truth, the rest is what its JSON texts say (`None`: absent or not parsable).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostView {
    /// The object as the API shows it.
    pub host: Host,
    /// `host.inventory`
    pub inventory: Option<Inventory>,
    /// `host.connectivity`
    pub connectivity: Option<ConnectivityReport>,
    /// `host.ntp_sources`
    pub ntp_sources: Option<Vec<NtpSource>>,
    /// `host.domain_name_resolutions`
    pub domain_name_resolutions: Option<DomainResolutionResponse>,
    /// `host.disks_info`: disk id to what was measured on it
    pub disks_info: BTreeMap<String, DiskInfo>,
    /// `host.images_status`: image name to what pulling it gave
    pub images_status: BTreeMap<String, ContainerImageAvailability>,
    /// `host.free_addresses`
    pub free_addresses: Option<Vec<FreeNetworkAddresses>>,
    /// `host.api_vip_connectivity`
    pub api_vip_connectivity: Option<ApiVipConnectivityResponse>,
    /// `host.tang_connectivity`
    pub tang_connectivity: Option<TangConnectivityResponse>,
}

/// A cluster without its hosts: the API object plus what the API does not show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterView {
    /// The object as the API shows it; `hosts` is `None` here.
    pub cluster: Cluster,
    /// A pull secret was given (the secret itself is the service's).
    pub has_pull_secret: bool,
    /// The ingress certificate was uploaded, that is, the final kubeconfig exists.
    pub kubeconfig_uploaded: bool,
    /// `cluster.connectivity_majority_groups`: machine network CIDR (or `IPv4` / `IPv6` for layer 3) to the members of its
    /// majority group. `None`: not computed yet.
    pub majority_groups: Option<BTreeMap<String, Vec<Uuid>>>,
    /// `cluster.ip_collisions`: address to the MACs that answer for it.
    pub ip_collisions: BTreeMap<String, Vec<String>>,
    /// The user uploaded manifests of their own.
    pub has_custom_manifests: bool,
}

/// All that decides about one host.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The host's infra-env.
    pub infra_env: &'a InfraEnv,
    /// Its cluster, when it is bound.
    pub cluster: Option<&'a ClusterView>,
    /// All hosts of that cluster, the host itself included, in order of registration. Empty for an unbound host.
    pub hosts: &'a [&'a HostView],
}
