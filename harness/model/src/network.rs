//! Addresses: networks of hosts, machine networks from VIPs, who reaches whom, collisions, sizes and defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vlab_api::types::{
    ClusterNetwork, ConnectivityRemoteHost, HostNetwork, Inventory, Route, ServiceNetwork, VipVerification,
};

use crate::view::{ClusterView, HostView};

/// Key of the layer-3 group of IPv4 addresses.
pub const L3_IPV4: &str = "IPv4";
/// Key of the layer-3 group of IPv6 addresses.
pub const L3_IPV6: &str = "IPv6";

/// Address of the family's default route.
const DEFAULT_ROUTES: [(i64, &str); 2] = [(2, "0.0.0.0"), (10, "::")];

/// Smallest cluster and service network: so many addresses (as a power of two).
pub const MIN_CLUSTER_NETWORK_BITS: u8 = 7;

/// Prefix that leaves the number of addresses a machine network must have at least: 16 in general, 4 when the user brings
/// the load balancer, 2 for a single node.
pub fn longest_machine_prefix(cluster: &ClusterView, network: &IpNet) -> u8 {
    let host_bits = if cluster.is_sno() {
        1
    } else if cluster.user_managed_load_balancer() {
        2
    } else {
        4
    };
    network.max_prefix_len() - host_bits
}

/// What the service writes into `cluster.connectivity_majority_groups`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MajorityGroups {
    /// Machine network CIDR, or [`L3_IPV4`] / [`L3_IPV6`], to the members of its majority group (sorted; empty: none).
    pub majority_groups: BTreeMap<String, Vec<Uuid>>,
    /// Host to those of its addresses that all others reach.
    #[serde(default)]
    pub l3_connected_addresses: BTreeMap<Uuid, Vec<String>>,
}
