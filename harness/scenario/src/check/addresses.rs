//! Addresses: those of the API and the ingress, and one for each host.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use ipnet::IpNet;

use super::cluster::ClusterPlaces;
use super::{Checker, Place};
use crate::diagnostic::quoted;
use crate::file::{AddressesFile, ClusterFile, ScenarioFile};
use crate::spanned::{Scalar, Version};
use crate::types::{Cluster, Host};

/// The virtual addresses of a cluster, each with its place.
pub(super) struct Vips {
    pub(super) api: Vec<(IpAddr, Place)>,
    pub(super) ingress: Vec<(IpAddr, Place)>,
}

impl Vips {
    pub(super) fn read(checker: &mut Checker<'_>, file: &ClusterFile) -> Self {
        Self {
            api: file.api_vips.iter().filter_map(|t| Some((checker.read(t)?, t.span.clone()))).collect(),
            ingress: file.ingress_vips.iter().filter_map(|t| Some((checker.read(t)?, t.span.clone()))).collect(),
        }
    }
}

/// Who has which address already, in words.
type Taken = BTreeMap<IpAddr, String>;

/// The first address of a group, where that is said, and the networks in which all of its addresses must be.
struct GroupStart {
    first: IpAddr,
    place: Place,
    inside: Vec<IpNet>,
    /// The group names its network.
    names_network: bool,
}

impl Checker<'_> {
    /// Addresses of the API and the ingress that the service has leased by DHCP; `said` is where the file wants it.
    /// What cannot be read has been told already.
    pub(super) fn leased_vips(&mut self, said: &Place, file: &ClusterFile, unmanaged: bool) {
        let no = "cannot be true";
        if unmanaged {
            let why = "a single node, or a cluster with user-managed networking, has no API or ingress VIPs to lease";
            self.refuse(said, why, no, "remove it");
        }
        if let Some(text) = file.api_vips.first().or(file.ingress_vips.first()) {
            self.refuse(
                &text.span,
                "the VIPs of this cluster are leased by DHCP",
                "not used here",
                "remove `api_vips` and `ingress_vips`, or `vip_dhcp_allocation`",
            );
            self.also(said, "this asks for leased VIPs");
        }
        if file.openshift_version.as_ref().is_none_or(|v| Version::read(&v.text).is_ok_and(|v| v.minor >= (4, 15))) {
            let at = file.openshift_version.as_ref().map_or(said, |v| &v.span);
            self.refuse(
                at,
                "the service does not lease VIPs by DHCP for OpenShift 4.15 and later",
                "needs an older version",
                "write `openshift_version: 4.14`, and add that release to the service's setting RELEASE_IMAGES",
            );
        }
        let networks = file.machine_networks.iter().flatten();
        if networks.filter_map(|t| IpNet::read(&t.text).ok()).any(|network| matches!(network, IpNet::V6(_))) {
            self.refuse(said, "VIPs cannot be leased by DHCP in an IPv6 machine network", no, "remove it");
        }
    }

    /// The cluster's networking is the user's, who brings these addresses.
    pub(super) fn no_vips(&mut self, vips: &Vips, sno: bool) {
        let Some((_, span)) = vips.api.first().or(vips.ingress.first()) else { return };
        let why = if sno { "a single node" } else { "a cluster with user-managed networking" };
        self.refuse(
            span,
            format!("{why} has no API or ingress VIPs"),
            "not used here",
            "remove `api_vips` and `ingress_vips`",
        );
    }

    /// `later`: they need not be there at the beginning.
    pub(super) fn vips(
        &mut self,
        cluster: &Place,
        vips: &Vips,
        machine: &[IpNet],
        machine_places: &[Place],
        later: bool,
    ) {
        let Vips { api, ingress } = vips;
        for (vips, key) in [(api, "api_vips"), (ingress, "ingress_vips")] {
            if vips.is_empty() && !later {
                self.refuse(
                    cluster,
                    format!("a cluster of several nodes needs `{key}`"),
                    "this cluster",
                    format!(
                        "add `{key}: [<address in the machine network>]`, or write `user_managed_networking: true`"
                    ),
                );
            }
            self.address_families(vips, key);
            for (vip, span) in vips {
                self.vip_inside(*vip, span, key, machine, machine_places);
            }
        }
        for (vip, span) in ingress {
            if let Some((_, there)) = api.iter().find(|(a, _)| a == vip) {
                self.refuse(
                    span,
                    format!("`{vip}` is both an API VIP and an ingress VIP"),
                    "the same address",
                    "choose another address for one of them",
                );
                self.also(there, "also here");
            }
        }
        if api.len() == 1 && ingress.len() == 2 || api.len() == 2 && ingress.len() == 1 {
            let span = &ingress[0].1;
            self.refuse(
                span,
                format!("the cluster has {} API VIPs and {} ingress VIPs", api.len(), ingress.len()),
                "the numbers differ",
                "give both one address of each family",
            );
        }
    }

    fn address_families(&mut self, vips: &[(IpAddr, Place)], key: &str) {
        if let Some((_, span)) = vips.get(2) {
            self.refuse(
                span,
                format!("`{key}` has more than two addresses"),
                "the third",
                "at most one of IPv4 and one of IPv6",
            );
        } else if let [(a, _), (b, span)] = vips
            && a.is_ipv4() == b.is_ipv4()
        {
            self.refuse(
                span,
                format!("both addresses of `{key}` are of the same family"),
                "the second",
                "at most one of IPv4 and one of IPv6",
            );
        }
    }

    fn vip_inside(&mut self, vip: IpAddr, span: &Place, key: &str, machine: &[IpNet], machine_places: &[Place]) {
        let Some(network) = machine.iter().find(|n| n.contains(&vip)) else {
            self.refuse(
                span,
                format!("the address `{vip}` of `{key}` is outside the machine network {}", quoted_networks(machine)),
                "outside",
                "choose an address inside it",
            );
            if let Some(there) = machine_places.first() {
                self.also(there, "the machine network");
            }
            return;
        };
        if let IpNet::V4(v4) = network
            && (IpAddr::V4(v4.network()) == vip || IpAddr::V4(v4.broadcast()) == vip)
        {
            self.refuse(
                span,
                format!("`{vip}` is the network address or the broadcast address"),
                "cannot be a VIP",
                "choose another address",
            );
        }
    }

    /// Gives every host its address and compares them all.
    pub(super) fn addresses(
        &mut self,
        file: &ScenarioFile,
        clusters: &[Cluster],
        places: &[ClusterPlaces],
        hosts: &mut [Host],
    ) {
        let mut taken = Taken::new();
        for cluster in clusters {
            for vip in cluster.api_vips.iter().chain(&cluster.ingress_vips) {
                taken.insert(*vip, format!("a VIP of the cluster `{}`", cluster.name));
            }
        }
        // First what the file says, so that what is chosen keeps clear of it.
        for group in file.hosts.iter() {
            let Some(addresses) = &group.addresses else { continue };
            let range = group_range(hosts, &group.name.text);
            let Some(first_host) = hosts[range.clone()].first() else { continue };
            let cluster = cluster_of(first_host, clusters);
            let of = cluster.map(|i| (&clusters[i], &places[i]));
            if let Some(start) = self.group_start(addresses, of) {
                self.group_addresses(&start, of.map(|(_, places)| places), &mut hosts[range], &mut taken);
            }
        }
        // Then the rest, from the tenth address on.
        for group in file.hosts.iter().filter(|g| g.addresses.is_none()) {
            let range = group_range(hosts, &group.name.text);
            self.free_addresses(clusters, places, &mut hosts[range], &mut taken);
        }
        self.second_addresses(clusters, places, hosts, &mut taken);
    }

    /// Where the addresses of a group begin; `None` when a problem was noted.
    fn group_start(
        &mut self,
        addresses: &crate::spanned::At<AddressesFile>,
        of: Option<(&Cluster, &ClusterPlaces)>,
    ) -> Option<GroupStart> {
        let network = self.read_option(&addresses.network);
        let first = self.read_option(&addresses.first);
        let (start, place) = match (first, network) {
            (Some(first), _) => (first, addresses.first.as_ref().map_or(addresses.span.clone(), |t| t.span.clone())),
            (None, Some(network)) => {
                let tenth = offset_address(network.network(), 10)?;
                (tenth, addresses.network.as_ref().map_or(addresses.span.clone(), |t| t.span.clone()))
            }
            (None, None) => {
                if addresses.first.is_none() && addresses.network.is_none() {
                    self.refuse(
                        &addresses.span,
                        "`addresses` is empty",
                        "nothing here",
                        "write `first: <address>`, `network: <network>`, or both",
                    );
                }
                return None;
            }
        };
        let inside: Vec<IpNet> = match (network, of) {
            (Some(network), _) => vec![network],
            (None, Some((cluster, _))) => cluster.machine_networks.clone(),
            (None, None) => vec![match start {
                IpAddr::V4(_) => IpNet::new_assert(start, 24).trunc(),
                IpAddr::V6(_) => IpNet::new_assert(start, 64).trunc(),
            }],
        };
        if let (Some(network), Some((cluster, places))) = (network, of) {
            let foreign = !cluster.machine_networks.iter().any(|m| m.contains(&network));
            // With user-managed networking the nodes may be anywhere, as long as nobody said where.
            if foreign && !(cluster.user_managed_networking && places.machine_is_default) {
                let at = addresses.network.as_ref().map_or(addresses.span.clone(), |t| t.span.clone());
                self.refuse(
                    &at,
                    format!(
                        "the network `{network}` is not part of the machine network of the cluster `{}`",
                        cluster.name
                    ),
                    "outside",
                    "hosts of a cluster must be in its machine network",
                );
                self.also(places.machine.first().unwrap_or(&places.place), "the machine network");
                return None;
            }
        }
        Some(GroupStart { first: start, place, inside, names_network: addresses.network.is_some() })
    }

    /// The hosts of a group get one address after the other.
    fn group_addresses(
        &mut self,
        start: &GroupStart,
        places: Option<&ClusterPlaces>,
        hosts: &mut [Host],
        taken: &mut Taken,
    ) {
        let GroupStart { first, place, inside, names_network } = start;
        for (number, host) in hosts.iter_mut().enumerate() {
            let address = offset_address(*first, number as u128);
            let network = address.and_then(|a| inside.iter().find(|n| usable(n, a)));
            let (Some(address), Some(network)) = (address, network) else {
                let shown = address.map_or("beyond the last address".to_owned(), |a| format!("`{a}`"));
                self.refuse(
                    place,
                    format!(
                        "the address of host `{}` is {shown}, outside the network {}",
                        host.name,
                        quoted_networks(inside)
                    ),
                    if number == 0 { "outside" } else { "runs out of the network" },
                    "choose a first address that leaves room for all hosts of the group",
                );
                if let Some(there) = places.filter(|_| !names_network).and_then(|places| places.machine.first()) {
                    self.also(there, "the machine network");
                }
                break;
            };
            if let Some(other) = taken.insert(address, format!("the address of host `{}`", host.name)) {
                self.refuse(
                    place,
                    format!("`{address}` is the address of host `{}` and {other}", host.name),
                    "already taken",
                    "choose a first address that leaves room for the others",
                );
                break;
            }
            host.address = IpNet::new(address, network.prefix_len()).ok();
        }
    }

    /// Hosts whose group says nothing get free addresses of their cluster's machine network.
    fn free_addresses(
        &mut self,
        clusters: &[Cluster],
        places: &[ClusterPlaces],
        hosts: &mut [Host],
        taken: &mut Taken,
    ) {
        let mut next: BTreeMap<IpNet, u128> = BTreeMap::new();
        for host in hosts {
            let Some(i) = cluster_of(host, clusters) else { continue };
            let network = clusters[i].machine_networks[0];
            let from = next.entry(network).or_insert(10);
            let mut found = None;
            while let Some(address) = offset_address(network.network(), *from).filter(|a| usable(&network, *a)) {
                *from += 1;
                if !taken.contains_key(&address) {
                    found = Some(address);
                    break;
                }
            }
            let Some(address) = found else {
                return self.no_address_left(&places[i], &network, &host.name);
            };
            taken.insert(address, format!("the address of host `{}`", host.name));
            host.address = IpNet::new(address, network.prefix_len()).ok();
        }
    }

    fn no_address_left(&mut self, places: &ClusterPlaces, network: &IpNet, host: &str) {
        let at = places.machine.first().unwrap_or(&places.place).clone();
        self.refuse(
            &at,
            format!("the machine network `{network}` has no address left for host `{host}`"),
            "full",
            "use a bigger machine network",
        );
    }

    /// Hosts of dual-stack clusters have an address of the other family, too: the next free one, from the tenth on.
    fn second_addresses(
        &mut self,
        clusters: &[Cluster],
        places: &[ClusterPlaces],
        hosts: &mut [Host],
        taken: &mut Taken,
    ) {
        for host in hosts {
            let Some(i) = cluster_of(host, clusters).filter(|i| clusters[*i].is_dual_stack()) else { continue };
            let Some(first) = host.address else { continue };
            let other = |n: &&IpNet| matches!(n, IpNet::V4(_)) != matches!(first, IpNet::V4(_));
            let Some(network) = clusters[i].machine_networks.iter().find(other) else { continue };
            let mut free =
                (10..).map_while(|n| offset_address(network.network(), n)).take_while(|a| usable(network, *a));
            let Some(address) = free.find(|a| !taken.contains_key(a)) else {
                self.no_address_left(&places[i], network, &host.name);
                return;
            };
            taken.insert(address, format!("the address of host `{}`", host.name));
            host.second_address = IpNet::new(address, network.prefix_len()).ok();
        }
    }
}

/// The cluster that the host is in, or to which it is bound last.
fn cluster_of(host: &Host, clusters: &[Cluster]) -> Option<usize> {
    let name = host.cluster.as_ref().or(host.bound_to.last())?;
    clusters.iter().position(|c| c.name == *name)
}

pub(super) fn quoted_networks(networks: &[IpNet]) -> String {
    let list: Vec<String> = networks.iter().map(IpNet::to_string).collect();
    quoted(&list.iter().map(String::as_str).collect::<Vec<_>>(), "and")
}

fn offset_address(address: IpAddr, by: u128) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => {
            let sum = u128::from(u32::from(v4)).checked_add(by)?;
            Some(IpAddr::V4(Ipv4Addr::from(u32::try_from(sum).ok()?)))
        }
        IpAddr::V6(v6) => Some(IpAddr::V6(Ipv6Addr::from(u128::from(v6).checked_add(by)?))),
    }
}

/// In the network, and neither its own nor its broadcast address.
fn usable(network: &IpNet, address: IpAddr) -> bool {
    network.contains(&address)
        && (network.max_prefix_len() - network.prefix_len() < 2
            || (address != network.network() && (address.is_ipv6() || address != network.broadcast())))
}

fn group_range(hosts: &[Host], group: &str) -> Range<usize> {
    let start = hosts.iter().position(|h| h.group == group).unwrap_or(hosts.len());
    let len = hosts[start..].iter().take_while(|h| h.group == group).count();
    start..start + len
}
