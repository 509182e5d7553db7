//! Addresses: networks of hosts, machine networks from VIPs, who reaches whom, collisions, sizes and defaults.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vlab_api::types::{
    ClusterNetwork, ConnectivityRemoteHost, FreeNetworkAddresses, HostNetwork, Interface, Inventory, MachineNetwork,
    Route, ServiceNetwork, VipVerification,
};

use crate::settings::Settings;
use crate::view::{ClusterView, HostView, filled};

/// Key of the layer-3 group of IPv4 addresses.
pub const L3_IPV4: &str = "IPv4";
/// Key of the layer-3 group of IPv6 addresses.
pub const L3_IPV6: &str = "IPv6";

/// A cluster or service network has at least 2 to the power of this addresses.
pub const MIN_NETWORK_BITS: u8 = 7;

/// Cluster networks hold the subnets of at least so many hosts, unless there is only one host.
pub const MIN_HOST_SUBNETS: u32 = 4;

/// The longest prefix that a machine network may have: it must hold 16 addresses in general, 4 when the user brings the
/// load balancer, 2 for a single node.
pub fn longest_machine_prefix(cluster: &ClusterView, network: &IpNet) -> u8 {
    let host_bits = match (cluster.is_sno(), cluster.user_managed_load_balancer()) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 4,
    };
    network.max_prefix_len() - host_bits
}

/// Why a machine network is too small for the cluster; `None` when it is not.
pub fn machine_network_too_small(cluster: &ClusterView, network: &IpNet) -> Option<String> {
    let longest = longest_machine_prefix(cluster, network);
    (network.prefix_len() > longest)
        .then(|| format!("machine network {network} is too small: its prefix may be /{longest} at most"))
}

/// Why a cluster or service network is too small; `None` when it is not.
pub fn network_too_small(network: &IpNet) -> Option<String> {
    let longest = network.max_prefix_len() - MIN_NETWORK_BITS;
    (network.prefix_len() > longest)
        .then(|| format!("network {network} is too small: its prefix may be /{longest} at most"))
}

/// Why a cluster network has no room for the hosts with that host prefix; `None` when it has. A `single` host needs one
/// subnet; otherwise there must be at least [`MIN_HOST_SUBNETS`].
pub fn host_prefix_problem(network: &IpNet, host_prefix: i64, hosts: usize, single: bool) -> Option<String> {
    let longest = i64::from(network.max_prefix_len() - MIN_NETWORK_BITS);
    if host_prefix <= 0 || host_prefix > longest {
        return Some(format!(
            "host prefix {host_prefix} of cluster network {network} must lie between 1 and {longest}"
        ));
    }
    let room = host_prefix - i64::from(network.prefix_len());
    let needed = if single { 1 } else { hosts.max(MIN_HOST_SUBNETS as usize) };
    let subnets = if room < 0 { 0 } else { 1u128.checked_shl(u32::try_from(room).unwrap_or(127)).unwrap_or(u128::MAX) };
    (subnets < needed as u128).then(|| {
        format!(
            "cluster network {network} with host prefix {host_prefix} holds {subnets} host subnets, {needed} are needed"
        )
    })
}

/// Do the networks share an address?
pub fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// IP version as a Boolean, to compare families.
pub fn is_ipv6(network: &IpNet) -> bool {
    matches!(network, IpNet::V6(_))
}

/// Addresses of an interface, with the prefix of their network. What does not parse is left out.
pub fn interface_addresses(interface: &Interface) -> impl Iterator<Item = IpNet> + '_ {
    let v4 = interface.ipv4_addresses.iter().flatten();
    v4.chain(interface.ipv6_addresses.iter().flatten()).filter_map(|a| a.parse().ok())
}

/// Addresses of a host, with the prefix of their network.
pub fn addresses(inventory: &Inventory) -> impl Iterator<Item = IpNet> + '_ {
    inventory.interfaces.iter().flatten().flat_map(interface_addresses)
}

/// Has the host an address inside the network?
pub fn has_address_in(inventory: &Inventory, network: &IpNet) -> bool {
    addresses(inventory).any(|a| network.contains(&a.addr()))
}

/// Networks of a host, each once, in the order of its interfaces.
pub fn inventory_networks(inventory: &Inventory) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for network in addresses(inventory).map(|a| a.trunc()) {
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    networks
}

/// `cluster.host_networks`: networks of all hosts, and who is in them.
pub fn host_networks(hosts: &[&HostView]) -> Vec<HostNetwork> {
    let mut networks: Vec<(IpNet, Vec<Uuid>)> = Vec::new();
    let mut index: HashMap<IpNet, usize> = HashMap::new();
    for host in hosts {
        let Some(inventory) = &host.inventory else { continue };
        for network in inventory_networks(inventory) {
            let at = *index.entry(network).or_insert_with(|| {
                networks.push((network, Vec::new()));
                networks.len() - 1
            });
            networks[at].1.push(host.host.id);
        }
    }
    networks
        .into_iter()
        .map(|(network, ids)| HostNetwork { cidr: Some(network.to_string()), host_ids: Some(ids) })
        .collect()
}

/// Is it a default route that can be used: to everywhere, through a gateway?
pub fn is_default_route(route: &Route) -> bool {
    let everywhere =
        filled(&route.destination).and_then(|d| d.parse::<IpAddr>().ok()).is_some_and(|d| d.is_unspecified());
    everywhere && filled(&route.gateway).is_some()
}

/// The network of some host in which the VIP lies.
pub fn network_of_vip(vip: &IpAddr, hosts: &[&HostView]) -> Option<IpNet> {
    let inventories = hosts.iter().filter_map(|h| h.inventory.as_deref());
    inventories.flat_map(addresses).map(|a| a.trunc()).find(|n| n.contains(vip))
}

/// Machine networks that follow from the VIPs: one for each API VIP (ingress VIP where there is no API VIP) that lies in a
/// network of some host, each once; none when the first one does not.
pub fn calculated_machine_networks(cluster: &ClusterView, hosts: &[&HostView]) -> Vec<IpNet> {
    let api = cluster.api_vips();
    let vips = if api.is_empty() { cluster.ingress_vips() } else { api };
    let mut networks = Vec::new();
    let mut found = vips.iter().map(|(vip, _)| network_of_vip(vip, hosts)).peekable();
    if found.peek().is_none_or(Option::is_none) {
        return networks;
    }
    for network in found.flatten() {
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    networks
}

/// Is any host in the network of that VIP?
pub fn any_host_reaches(vip: &str, hosts: &[&HostView]) -> bool {
    vip.parse().is_ok_and(|vip| network_of_vip(&vip, hosts).is_some())
}

/// Machine networks of a single node: in each family the only network of the host, else the one of its default route. Empty
/// while that is not clear.
pub fn sno_machine_networks(host: &HostView) -> Vec<IpNet> {
    let Some(inventory) = &host.inventory else { return Vec::new() };
    let all = inventory_networks(inventory);
    let mut chosen = Vec::new();
    for v6 in [false, true] {
        // Link-local networks are on every interface and route nowhere.
        let usable = |n: &IpNet| is_ipv6(n) == v6 && !is_link_local(n);
        let mut family = all.iter().filter(|n| usable(n));
        match (family.next(), family.next()) {
            (Some(only), None) => chosen.push(*only),
            (Some(_), Some(_)) => chosen.extend(default_route_network(inventory, v6, &usable)),
            (None, _) => {}
        }
    }
    chosen
}

pub(crate) fn is_link_local(network: &IpNet) -> bool {
    match network {
        IpNet::V4(n) => n.addr().is_link_local(),
        IpNet::V6(n) => n.addr().is_unicast_link_local(),
    }
}

/// The network of the interface that the best default route of the family leaves through.
fn default_route_network(inventory: &Inventory, v6: bool, usable: &dyn Fn(&IpNet) -> bool) -> Option<IpNet> {
    let family = |route: &&Route| {
        let destination = filled(&route.destination).and_then(|d| d.parse::<IpAddr>().ok());
        destination.is_some_and(|d| d.is_ipv6() == v6)
    };
    let routes = inventory.routes.iter().flatten().filter(|r| is_default_route(r)).filter(family);
    let best = routes.min_by_key(|r| r.metric.unwrap_or(0))?;
    let interface = inventory.interfaces.iter().flatten().find(|i| i.name == best.interface)?;
    interface_addresses(interface).map(|a| a.trunc()).find(usable)
}

/// As the API shows them.
pub fn to_machine_networks(cluster: Uuid, networks: &[IpNet]) -> Vec<MachineNetwork> {
    let one = |n: &IpNet| MachineNetwork { cluster_id: Some(cluster), cidr: Some(n.to_string()) };
    networks.iter().map(one).collect()
}

/// Cluster networks of a cluster that names none, for the families that its hosts are in (`ipv4` where it is unknown).
pub fn default_cluster_networks(cluster: Uuid, ipv4: bool, ipv6: bool, settings: &Settings) -> Vec<ClusterNetwork> {
    let one = |cidr: &String, prefix| ClusterNetwork {
        cluster_id: Some(cluster),
        cidr: Some(cidr.clone()),
        host_prefix: Some(prefix),
    };
    let v4 = ipv4.then(|| one(&settings.cluster_network_cidr, settings.cluster_network_host_prefix));
    let v6 = ipv6.then(|| one(&settings.cluster_network_cidr_ipv6, settings.cluster_network_host_prefix_ipv6));
    v4.into_iter().chain(v6).collect()
}

/// Service networks of a cluster that names none.
pub fn default_service_networks(cluster: Uuid, ipv4: bool, ipv6: bool, settings: &Settings) -> Vec<ServiceNetwork> {
    let one = |cidr: &String| ServiceNetwork { cluster_id: Some(cluster), cidr: Some(cidr.clone()) };
    let v4 = ipv4.then(|| one(&settings.service_network_cidr));
    let v6 = ipv6.then(|| one(&settings.service_network_cidr_ipv6));
    v4.into_iter().chain(v6).collect()
}

// --- who reaches whom ---------------------------------------------------------------------------------------------

/// What the service writes into `cluster.connectivity_majority_groups`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MajorityGroups {
    /// Machine network CIDR, or [`L3_IPV4`] / [`L3_IPV6`], to the members of its majority group (sorted; empty: none).
    pub majority_groups: BTreeMap<String, Vec<Uuid>>,
    /// Host to those of its addresses that all others reach.
    #[serde(default)]
    pub l3_connected_addresses: BTreeMap<Uuid, Vec<String>>,
}

/// Does the cluster run two masters with fencing (every master has fencing credentials)?
pub fn has_fencing(cluster: &ClusterView, hosts: &[&HostView]) -> bool {
    let mut masters = hosts.iter().filter(|h| h.effective_role() == vlab_api::types::HostRole::Master).peekable();
    cluster.control_plane_count() == 2
        && masters.peek().is_some()
        && masters.all(|h| filled(&h.host.fencing_credentials).is_some())
}

/// How many hosts make a majority group at least.
pub fn min_group(cluster: &ClusterView, hosts: &[&HostView]) -> usize {
    if has_fencing(cluster, hosts) { 2 } else { 3 }
}

/// Mutual reachability as a matrix of bits.
struct Graph {
    words: usize,
    rows: Vec<u64>,
}

impl Graph {
    fn new(n: usize) -> Self {
        let words = n.div_ceil(64);
        Self { words, rows: vec![0; n * words] }
    }

    fn len(&self) -> usize {
        self.rows.len().checked_div(self.words).unwrap_or(0)
    }

    fn set(&mut self, from: usize, to: usize) {
        if from != to {
            self.rows[from * self.words + to / 64] |= 1 << (to % 64);
        }
    }

    fn has(&self, from: usize, to: usize) -> bool {
        self.rows[from * self.words + to / 64] >> (to % 64) & 1 == 1
    }

    fn row(&self, i: usize) -> &[u64] {
        &self.rows[i * self.words..(i + 1) * self.words]
    }

    /// Keeps only what holds in both directions.
    fn mutual(mut self) -> Self {
        for i in 0..self.len() {
            for j in 0..i {
                let both = self.has(i, j) && self.has(j, i);
                if !both {
                    self.rows[i * self.words + j / 64] &= !(1 << (j % 64));
                    self.rows[j * self.words + i / 64] &= !(1 << (i % 64));
                }
            }
        }
        self
    }
}

fn bits(set: &[u64]) -> impl Iterator<Item = usize> + '_ {
    set.iter().enumerate().flat_map(|(w, word)| {
        let mut rest = *word;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                w * 64 + bit
            })
        })
    })
}

fn count(set: &[u64]) -> usize {
    set.iter().map(|w| w.count_ones() as usize).sum()
}

fn count_both(a: &[u64], b: &[u64]) -> usize {
    a.iter().zip(b).map(|(x, y)| (x & y).count_ones() as usize).sum()
}

fn and(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(x, y)| x & y).collect()
}

/// Steps that the search for the largest group among `n` hosts may take. Networks of a lab are whole or split into a few
/// parts and need about as many steps as there are hosts; the limit keeps a hostile report from holding up the service, which
/// then gets the best group found so far. A step costs more the more hosts there are.
fn search_steps(n: usize) -> usize {
    (200_000_000 / (n * n).max(4096)).max(2 * n)
}

/// The largest set of vertices that are all neighbours of each other; the first one in order among equals.
fn largest_mesh(graph: &Graph) -> Vec<usize> {
    fn grow(
        graph: &Graph,
        group: &mut Vec<usize>,
        mut candidates: Vec<u64>,
        mut done: Vec<u64>,
        best: &mut Vec<usize>,
        steps: &mut usize,
    ) {
        if *steps == 0 {
            return;
        }
        *steps -= 1;
        let open = count(&candidates);
        if open == 0 {
            if group.len() > best.len() {
                best.clone_from(group);
            }
            return;
        }
        if group.len() + open <= best.len() {
            return;
        }
        // Only neighbours that the pivot does not cover need a branch of their own.
        let pivot = bits(&candidates)
            .chain(bits(&done))
            .max_by_key(|v| (count_both(&candidates, graph.row(*v)), usize::MAX - v))
            .unwrap_or(0);
        let branches: Vec<usize> = bits(&candidates).filter(|v| !graph.has(pivot, *v)).collect();
        for v in branches {
            group.push(v);
            grow(graph, group, and(&candidates, graph.row(v)), and(&done, graph.row(v)), best, steps);
            group.pop();
            candidates[v / 64] &= !(1 << (v % 64));
            done[v / 64] |= 1 << (v % 64);
        }
    }

    let n = graph.len();
    // The usual case, and the one in which fleets are large: everybody reaches everybody.
    if (0..n).all(|i| count(graph.row(i)) + 1 == n) {
        return (0..n).collect();
    }
    let mut all = vec![0u64; graph.words];
    (0..n).for_each(|i| all[i / 64] |= 1 << (i % 64));
    let mut best = Vec::new();
    let mut steps = search_steps(n);
    grow(graph, &mut Vec::new(), all, vec![0; graph.words], &mut best, &mut steps);
    best.sort_unstable();
    best
}

/// Who can talk to whom. In each machine network the largest group whose members all reach each other in both directions: by
/// layer 2 for IPv4, by layer 3 for IPv6; and the same by layer 3 for each IP version. A group with fewer than
/// [`min_group`] members is empty. Members are sorted by id.
pub fn majority_groups(cluster: &ClusterView, hosts: &[&HostView]) -> MajorityGroups {
    let mut sorted: Vec<&HostView> = hosts.iter().copied().filter(|h| h.inventory.is_some()).collect();
    sorted.sort_by_key(|h| h.host.id);
    let min = min_group(cluster, hosts);
    let index: HashMap<Uuid, usize> = sorted.iter().enumerate().map(|(i, h)| (h.host.id, i)).collect();

    let group = |reaches: &dyn Fn(&ConnectivityRemoteHost) -> bool| -> Vec<Uuid> {
        if sorted.len() < min {
            return Vec::new();
        }
        let mut graph = Graph::new(sorted.len());
        for (i, host) in sorted.iter().enumerate() {
            for remote in host.connectivity.iter().flat_map(|c| c.remote_hosts.iter().flatten()) {
                let to = remote.host_id.and_then(|id| index.get(&id));
                if let Some(to) = to.filter(|_| reaches(remote)) {
                    graph.set(i, *to);
                }
            }
        }
        let members = largest_mesh(&graph.mutual());
        if members.len() < min { Vec::new() } else { members.into_iter().map(|i| sorted[i].host.id).collect() }
    };

    let mut groups = MajorityGroups::default();
    for text in cluster.machine_network_texts() {
        let members = match text.parse::<IpNet>() {
            Ok(network) if !is_ipv6(&network) => group(&|r| l2_reaches(r, &|a| network.contains(a))),
            Ok(network) => group(&|r| l3_reaches(r, &|a| network.contains(a))),
            Err(_) => Vec::new(),
        };
        groups.majority_groups.insert(text.to_owned(), members);
    }
    groups.majority_groups.insert(L3_IPV4.to_owned(), group(&|r| l3_reaches(r, &IpAddr::is_ipv4)));
    groups.majority_groups.insert(L3_IPV6.to_owned(), group(&|r| l3_reaches(r, &IpAddr::is_ipv6)));
    if sorted.len() >= min {
        groups.l3_connected_addresses = l3_connected_addresses(&sorted, &index);
    }
    groups
}

fn address(text: &Option<String>) -> Option<IpAddr> {
    filled(text)?.parse().ok()
}

fn l2_reaches(remote: &ConnectivityRemoteHost, wanted: &dyn Fn(&IpAddr) -> bool) -> bool {
    let mut entries = remote.l2_connectivity.iter().flatten();
    entries.any(|e| e.successful == Some(true) && address(&e.remote_ip_address).is_some_and(|a| wanted(&a)))
}

fn l3_reaches(remote: &ConnectivityRemoteHost, wanted: &dyn Fn(&IpAddr) -> bool) -> bool {
    let mut entries = remote.l3_connectivity.iter().flatten();
    entries.any(|e| e.successful == Some(true) && address(&e.remote_ip_address).is_some_and(|a| wanted(&a)))
}

/// Addresses of each host that every other host reported as reachable.
fn l3_connected_addresses(hosts: &[&HostView], index: &HashMap<Uuid, usize>) -> BTreeMap<Uuid, Vec<String>> {
    // host -> address -> who reached it; reporters are counted once each.
    let mut reached: Vec<BTreeMap<&str, BTreeSet<usize>>> = vec![BTreeMap::new(); hosts.len()];
    for (from, host) in hosts.iter().enumerate() {
        for remote in host.connectivity.iter().flat_map(|c| c.remote_hosts.iter().flatten()) {
            let Some(to) = remote.host_id.and_then(|id| index.get(&id)).filter(|to| **to != from) else { continue };
            for entry in remote.l3_connectivity.iter().flatten().filter(|e| e.successful == Some(true)) {
                if let Some(address) = filled(&entry.remote_ip_address) {
                    reached[*to].entry(address).or_default().insert(from);
                }
            }
        }
    }
    let mut connected = BTreeMap::new();
    for (host, by_address) in hosts.iter().zip(reached) {
        let all: Vec<String> =
            by_address.iter().filter(|(_, by)| by.len() + 1 == hosts.len()).map(|(a, _)| (*a).to_owned()).collect();
        if !all.is_empty() {
            connected.insert(host.host.id, all);
        }
    }
    connected
}

/// Addresses that more than one MAC answered for, as the hosts' layer-2 checks saw it.
pub fn ip_collisions(hosts: &[&HostView]) -> BTreeMap<String, Vec<String>> {
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let remotes = hosts.iter().flat_map(|h| h.connectivity.iter()).flat_map(|c| c.remote_hosts.iter().flatten());
    for entry in remotes.flat_map(|r| r.l2_connectivity.iter().flatten()) {
        if let (Some(address), Some(mac)) = (filled(&entry.remote_ip_address), filled(&entry.remote_mac)) {
            seen.entry(address).or_default().insert(mac);
        }
    }
    let several = seen.into_iter().filter(|(_, macs)| macs.len() > 1);
    several.map(|(a, macs)| (a.to_owned(), macs.into_iter().map(str::to_owned).collect())).collect()
}

/// Is the VIP free, as far as the hosts' lists of free addresses say? What all lists that cover it have in common counts: it is
/// unverified when that is nothing, and failed when the VIP is not among it.
pub fn verification_from_free_addresses(vip: &IpAddr, hosts: &[&HostView]) -> VipVerification {
    let covers = |list: &&FreeNetworkAddresses| {
        filled(&list.network).and_then(|n| n.parse::<IpNet>().ok()).is_some_and(|network| network.contains(vip))
    };
    let lists = hosts.iter().flat_map(|h| h.free_addresses.iter().flat_map(|all| all.iter())).filter(covers);
    let sets = lists.map(|list| {
        let addresses = list.free_addresses.iter().flatten();
        addresses.filter_map(|a| a.parse::<IpAddr>().ok()).collect::<BTreeSet<_>>()
    });
    match sets.reduce(|common, list| common.intersection(&list).copied().collect()) {
        None => VipVerification::Unverified,
        Some(common) if common.is_empty() => VipVerification::Unverified,
        Some(common) if common.contains(vip) => VipVerification::Succeeded,
        Some(_) => VipVerification::Failed,
    }
}

/// What is known of the VIP: what the hosts' own check said, else what their lists of free addresses say.
pub fn effective_verification(vip: &IpAddr, checked: VipVerification, hosts: &[&HostView]) -> VipVerification {
    match checked {
        VipVerification::Unverified => verification_from_free_addresses(vip, hosts),
        decided => decided,
    }
}

/// Does a host of that version of OpenShift make the connections of its static network itself, with `nmstatectl`?
/// `first_on_host`: the first version that does (`MIN_VERSION_FOR_NMSTATE_SERVICE`). Without a version the service makes them.
pub fn host_makes_connections(openshift_version: Option<&str>, first_on_host: &str) -> bool {
    let version = openshift_version.filter(|version| !version.is_empty());
    version.is_some_and(|version| precedence(version) >= precedence(first_on_host))
}

/// What orders versions: numbers first, and a version without a suffix after those with one.
fn precedence(version: &str) -> ([u64; 3], bool) {
    let (numbers, suffix) = version.split_once('-').map_or((version, None), |(n, s)| (n, Some(s)));
    let mut parts = numbers.split('.').map(|p| p.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    ([next(), next(), next()], suffix.is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn id(i: usize) -> Uuid {
        Uuid::from_u128(i as u128 + 1)
    }

    /// Hosts that reach each other (by layers 2 and 3) as the pairs say.
    fn hosts(n: usize, reaches: &dyn Fn(usize, usize) -> bool) -> Vec<HostView> {
        (0..n)
            .map(|i| {
                let remote = |j: usize| {
                    let ip = format!("10.0.0.{}", j + 1);
                    json!({"host_id": id(j),
                        "l2_connectivity": [{"remote_ip_address": ip, "remote_mac": format!("m{j}"), "successful": true}],
                        "l3_connectivity": [{"remote_ip_address": ip, "successful": true}]})
                };
                let remotes: Vec<_> = (0..n).filter(|j| *j != i && reaches(i, *j)).map(remote).collect();
                let mut host = HostView::default();
                host.host.id = id(i);
                host.set_connectivity(
                    serde_json::from_value::<vlab_api::types::ConnectivityReport>(json!({"remote_hosts": remotes})).unwrap(),
                );
                host.set_inventory(
                    serde_json::from_value::<Inventory>(
                        json!({"interfaces": [{"name": "eth0", "ipv4_addresses": [format!("10.0.0.{}/24", i + 1)]}]}),
                    )
                    .unwrap(),
                );
                host
            })
            .collect()
    }

    fn cluster() -> ClusterView {
        let mut cluster = ClusterView::default();
        cluster.cluster.control_plane_count = Some(3);
        cluster.cluster.machine_networks =
            Some(vec![MachineNetwork { cidr: Some("10.0.0.0/24".to_owned()), cluster_id: None }]);
        cluster
    }

    fn group(hosts: &[HostView]) -> Vec<usize> {
        let refs: Vec<&HostView> = hosts.iter().collect();
        let groups = majority_groups(&cluster(), &refs);
        assert_eq!(groups.majority_groups["10.0.0.0/24"], groups.majority_groups[L3_IPV4]);
        assert!(groups.majority_groups[L3_IPV6].is_empty());
        let members = &groups.majority_groups["10.0.0.0/24"];
        (0..hosts.len()).filter(|i| members.contains(&id(*i))).collect()
    }

    #[rstest]
    #[case::all(5, &|_, _| true, vec![0, 1, 2, 3, 4])]
    #[case::two_are_no_majority(2, &|_, _| true, vec![])]
    #[case::one_is_cut_off(5, &|i, j| i != 4 && j != 4, vec![0, 1, 2, 3])]
    #[case::one_direction_is_not_enough(4, &|i, _| i != 3, vec![0, 1, 2])]
    #[case::the_larger_part(7, &|i, j| (i < 3) == (j < 3), vec![3, 4, 5, 6])]
    #[case::a_ring_is_no_mesh(6, &|i, j| (i + 1) % 6 == j || (j + 1) % 6 == i, vec![])]
    fn groups(#[case] n: usize, #[case] reaches: &dyn Fn(usize, usize) -> bool, #[case] expected: Vec<usize>) {
        assert_eq!(group(&hosts(n, reaches)), expected);
    }

    #[test]
    fn a_fleet_with_one_host_cut_off_is_no_trouble() {
        // As many as the fixture's network has addresses for.
        let n = 250;
        assert_eq!(group(&hosts(n, &|i, j| i != 7 && j != 7)).len(), n - 1);
    }

    #[test]
    fn an_address_counts_when_all_others_reach_it() {
        let hosts = hosts(4, &|i, j| (i, j) != (0, 3));
        let refs: Vec<&HostView> = hosts.iter().collect();
        let connected = majority_groups(&cluster(), &refs).l3_connected_addresses;
        assert_eq!(connected.keys().copied().collect::<Vec<_>>(), [id(0), id(1), id(2)]);
        assert_eq!(connected[&id(0)], ["10.0.0.1"]);
    }

    #[test]
    fn collisions() {
        let mut hosts = hosts(3, &|_, _| true);
        let refs: Vec<&HostView> = hosts.iter().collect();
        assert!(ip_collisions(&refs).is_empty());
        let mut report = hosts[0].connectivity.as_deref().unwrap().clone();
        let remotes = report.remote_hosts.as_mut().unwrap();
        remotes[0].l2_connectivity.as_mut().unwrap()[0].remote_mac = Some("other".to_owned());
        hosts[0].set_connectivity(report);
        let refs: Vec<&HostView> = hosts.iter().collect();
        let expected = BTreeMap::from([("10.0.0.2".to_owned(), vec!["m1".to_owned(), "other".to_owned()])]);
        assert_eq!(ip_collisions(&refs), expected);
    }

    #[rstest]
    #[case::no_list(&[], VipVerification::Unverified)]
    #[case::free(&[&["10.0.0.7"][..]], VipVerification::Succeeded)]
    #[case::not_free(&[&["10.0.0.8"][..]], VipVerification::Failed)]
    #[case::an_empty_list(&[&[][..]], VipVerification::Unverified)]
    #[case::not_free_for_one(&[&["10.0.0.7", "10.0.0.8"][..], &["10.0.0.8"][..]], VipVerification::Failed)]
    #[case::nothing_in_common(&[&["10.0.0.7"][..], &["10.0.0.8"][..]], VipVerification::Unverified)]
    fn free_is_what_all_hosts_found_free(#[case] lists: &[&[&str]], #[case] expected: VipVerification) {
        let mut hosts = hosts(lists.len(), &|_, _| true);
        for (host, list) in hosts.iter_mut().zip(lists) {
            host.set_free_addresses(vec![FreeNetworkAddresses {
                network: Some("10.0.0.0/24".to_owned()),
                free_addresses: Some(list.iter().map(|a| (*a).to_owned()).collect()),
            }]);
        }
        let refs: Vec<&HostView> = hosts.iter().collect();
        assert_eq!(verification_from_free_addresses(&"10.0.0.7".parse().unwrap(), &refs), expected);
    }

    #[rstest]
    #[case("10.0.0.0/14", 23, 5, false, true)]
    #[case("10.0.0.0/24", 25, 1, true, true)]
    #[case("10.0.0.0/24", 25, 1, false, false)]
    #[case("10.0.0.0/24", 26, 1, true, false)]
    #[case("10.0.0.0/24", 20, 1, true, false)]
    #[case("fd01::/48", 64, 2000, false, true)]
    #[case("fd01::/0", 121, usize::MAX, false, true)]
    #[case("10.0.0.0/14", i64::MIN, 1, true, false)]
    fn host_prefixes(
        #[case] net: &str,
        #[case] prefix: i64,
        #[case] hosts: usize,
        #[case] single: bool,
        #[case] fine: bool,
    ) {
        let problem = host_prefix_problem(&net.parse().unwrap(), prefix, hosts, single);
        assert_eq!(problem.is_none(), fine, "{problem:?}");
    }

    #[rstest]
    #[case(3, false, "10.0.0.0/28", true)]
    #[case(3, false, "10.0.0.0/29", false)]
    #[case(3, true, "10.0.0.0/30", true)]
    #[case(3, true, "10.0.0.0/31", false)]
    #[case(1, false, "10.0.0.0/31", true)]
    #[case(1, false, "10.0.0.0/32", false)]
    fn machine_network_sizes(#[case] masters: i64, #[case] own_balancer: bool, #[case] net: &str, #[case] fine: bool) {
        let mut cluster = cluster();
        cluster.cluster.control_plane_count = Some(masters);
        let kind = if own_balancer { "user-managed" } else { "cluster-managed" };
        cluster.cluster.load_balancer = Some(vlab_api::types::LoadBalancer { type_: Some(kind.to_owned()) });
        assert_eq!(machine_network_too_small(&cluster, &net.parse().unwrap()).is_none(), fine);
    }

    #[rstest]
    #[case::only_one(&["10.0.0.5/24"], &[], &["10.0.0.0/24"])]
    #[case::not_clear(&["10.0.0.5/24", "10.1.0.5/24"], &[], &[])]
    #[case::default_route(&["10.0.0.5/24", "10.1.0.5/24"], &["10.1.0.1"], &["10.1.0.0/24"])]
    #[case::both_families(&["10.0.0.5/24", "fd00::5/64", "fe80::1/64"], &[], &["10.0.0.0/24", "fd00::/64"])]
    fn single_node(#[case] addresses: &[&str], #[case] gateways: &[&str], #[case] expected: &[&str]) {
        let interfaces: Vec<_> = addresses
            .iter()
            .enumerate()
            .map(|(i, a)| match a.contains(':') {
                true => json!({"name": format!("e{i}"), "ipv6_addresses": [a]}),
                false => json!({"name": format!("e{i}"), "ipv4_addresses": [a]}),
            })
            .collect();
        let routes: Vec<_> =
            gateways.iter().map(|g| json!({"destination": "0.0.0.0", "gateway": g, "interface": "e1"})).collect();
        let mut host = HostView::default();
        host.set_inventory(
            serde_json::from_value::<Inventory>(json!({"interfaces": interfaces, "routes": routes})).unwrap(),
        );
        let found: Vec<String> = sno_machine_networks(&host).iter().map(IpNet::to_string).collect();
        assert_eq!(found, expected);
    }

    proptest! {
        /// The group does not depend on the order in which the hosts come, is a mesh, and no host outside fits into it.
        #[test]
        fn the_group_is_symmetric(n in 3usize..9, edges in any::<u64>(), turn in 0usize..8) {
            let reaches = |i: usize, j: usize| edges >> ((i * 8 + j) % 64) & 1 == 1;
            let all = hosts(n, &reaches);
            let found = group(&all);
            let mut turned = all.clone();
            turned.rotate_left(turn % n);
            let members = majority_groups(&cluster(), &turned.iter().collect::<Vec<_>>()).majority_groups["10.0.0.0/24"].clone();
            prop_assert_eq!(members, found.iter().map(|i| id(*i)).collect::<Vec<_>>());
            let both = |i: usize, j: usize| reaches(i, j) && reaches(j, i);
            prop_assert!(found.iter().all(|i| found.iter().all(|j| i == j || both(*i, *j))));
            prop_assert!(found.is_empty() || found.len() >= 3);
            let fits = |k: usize| !found.contains(&k) && found.iter().all(|i| both(*i, k));
            prop_assert!(found.is_empty() || !(0..n).any(fits));
        }

        #[test]
        fn overlap_is_symmetric(a in any::<u32>(), b in any::<u32>(), pa in 0u8..=32, pb in 0u8..=32) {
            let net = |bits: u32, p| IpNet::new(IpAddr::V4(bits.into()), p).unwrap().trunc();
            let (a, b) = (net(a, pa), net(b, pb));
            prop_assert_eq!(overlap(&a, &b), overlap(&b, &a));
            prop_assert!(overlap(&a, &a));
        }
    }
}
