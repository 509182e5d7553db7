//! Clusters: who is in them, their platform and their networks.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use vlab_api::types::{HostRole, PlatformType};

use super::addresses::Vips;
use super::api::CLUSTER;
use super::{Checker, Place};
use crate::file::ClusterFile;
use crate::spanned::At;
use crate::types::{Cluster, ClusterNetwork, Host};
use crate::words::{InstallMode, Topology};

/// A cluster while it is checked: where the file says what.
#[derive(Clone)]
pub(super) struct ClusterPlaces {
    pub(super) place: Place,
    pub(super) machine: Vec<Place>,
    pub(super) machine_is_default: bool,
}

/// Who is in a cluster.
struct Members<'m> {
    total: usize,
    masters: usize,
    workers: usize,
    arbiters: usize,
    autos: usize,
    hosts: &'m [&'m Host],
    group_places: &'m BTreeMap<String, Place>,
}

impl<'m> Members<'m> {
    fn new(hosts: &'m [&'m Host], group_places: &'m BTreeMap<String, Place>) -> Self {
        let of_role = |role: HostRole| hosts.iter().filter(|h| h.role == role).count();
        Self {
            total: hosts.len(),
            masters: of_role(HostRole::Master),
            workers: of_role(HostRole::Worker),
            arbiters: of_role(HostRole::Arbiter),
            autos: of_role(HostRole::AutoAssign),
            hosts,
            group_places,
        }
    }

    /// Where the first group of that role is.
    fn group_of(&self, role: HostRole) -> Option<Place> {
        self.hosts.iter().find(|h| h.role == role).and_then(|h| self.group_places.get(&h.group)).cloned()
    }
}

/// The form of a cluster, as the file says it or as its groups make it, and where.
struct Shape {
    name: String,
    topology: Topology,
    /// The topology that the file asks for.
    asked: Option<Topology>,
    asked_place: Option<Place>,
    /// Number of masters.
    count: usize,
    count_place: Option<Place>,
    minor: (u64, u64),
    version_place: Option<Place>,
    place: Place,
}

impl Shape {
    fn is_sno(&self) -> bool {
        self.topology == Topology::Sno
    }

    /// Where the number of masters or the topology is, else the cluster.
    fn count_or_cluster(&self) -> Place {
        self.count_place.clone().or(self.asked_place.clone()).unwrap_or(self.place.clone())
    }

    /// Where the number of masters is, else the group of the masters, else the cluster.
    fn count_or_masters(&self, members: &Members<'_>) -> Place {
        let masters = || members.group_of(HostRole::Master);
        self.count_place.clone().or_else(masters).unwrap_or_else(|| self.place.clone())
    }
}

/// The networks of a cluster.
#[derive(Default)]
struct Networks {
    machine: Vec<IpNet>,
    machine_places: Vec<Place>,
    cluster: Vec<ClusterNetwork>,
    service: Vec<IpNet>,
    /// All of them, with their places and with words for messages.
    all: Vec<(IpNet, Place, &'static str)>,
}

impl Checker<'_> {
    pub(super) fn cluster(
        &mut self,
        file: &At<ClusterFile>,
        name: &str,
        members: &[&Host],
        group_places: &BTreeMap<String, Place>,
        vips_later: bool,
    ) -> (Cluster, ClusterPlaces) {
        let place = name_place(file);
        let members = Members::new(members, group_places);
        let shape = self.shape(file, name, &members, place.clone());
        let sno = shape.is_sno();
        if members.total == 0 {
            self.refuse(
                &place,
                format!("the cluster `{name}` has no hosts"),
                "this cluster",
                "add a group of hosts, or leave the cluster out",
            );
        } else if sno {
            self.single_node(&shape, &members);
        } else {
            self.several_nodes(&shape, &members);
            self.number_of_masters(&shape, &members);
            self.enough_masters(&shape, &members);
        }
        let (platform, unmanaged) = self.platform(file, sno);
        let networks = self.networks(file, &place, sno, members.total);
        let vips = Vips::read(self, file);
        let vip_dhcp = file.vip_dhcp_allocation.as_ref().filter(|said| ***said).map(|said| said.span.clone());
        if let Some(said) = &vip_dhcp {
            self.leased_vips(said, file, unmanaged);
        }
        if unmanaged {
            self.no_vips(&vips, sno);
        } else {
            let later = vips_later || vip_dhcp.is_some();
            self.vips(&place, &vips, &networks.machine, &networks.machine_places, later);
        }
        let base_domain = self.base_domain(file);
        let install = self.read_option(&file.install).unwrap_or(InstallMode::Auto);
        let cluster = Cluster {
            name: name.to_owned(),
            topology: shape.topology,
            control_plane_count: u32::try_from(shape.count).unwrap_or(0),
            openshift_version: file.openshift_version.as_ref().map_or("4.18", |v| v.text.as_str()).to_owned(),
            base_domain,
            machine_networks: networks.machine,
            cluster_networks: networks.cluster,
            service_networks: networks.service,
            api_vips: vips.api.into_iter().map(|(a, _)| a).collect(),
            ingress_vips: vips.ingress.into_iter().map(|(a, _)| a).collect(),
            vip_dhcp_allocation: vip_dhcp.is_some(),
            platform,
            user_managed_networking: unmanaged,
            ssh_public_key: file.ssh_public_key.clone(),
            additional_ntp_source: file.additional_ntp_source.clone(),
            params: self.params(&file.params, &CLUSTER),
            install,
            line: self.line(&file.span),
        };
        let machine_is_default = file.machine_networks.as_ref().is_none_or(Vec::is_empty);
        (cluster, ClusterPlaces { place, machine: networks.machine_places, machine_is_default })
    }

    /// The topology and the number of masters: the file's, or what the groups make of it.
    fn shape(&mut self, file: &ClusterFile, name: &str, members: &Members<'_>, place: Place) -> Shape {
        let version = file.openshift_version.as_ref().map(|v| (self.read(v), v.span.clone()));
        let minor = match &version {
            Some((Some(v), _)) => v.minor,
            _ => (4, 18),
        };
        let asked = self.read_option(&file.topology);
        let given = file.control_plane_count.as_ref();
        let Members { masters, workers, autos, .. } = *members;
        let count = match (given, asked) {
            (Some(n), _) => {
                self.number(n, "the number of masters", 1, 5).and_then(|n| usize::try_from(n).ok()).unwrap_or(3)
            }
            (None, Some(Topology::Sno)) => 1,
            (None, _) if masters > 0 => masters + if masters == 1 && autos >= 2 { 2 } else { 0 },
            (None, _) if autos == 1 && workers == 0 => 1,
            (None, _) => 3,
        };
        let topology = asked.unwrap_or(match (count, workers + autos.saturating_sub(count.saturating_sub(masters))) {
            (1, _) => Topology::Sno,
            (_, 0) => Topology::Compact,
            _ => Topology::Ha,
        });
        Shape {
            name: name.to_owned(),
            topology,
            asked,
            asked_place: file.topology.as_ref().map(|t| t.span.clone()),
            count,
            count_place: given.map(|n| n.span.clone()),
            minor,
            version_place: version.map(|(_, place)| place),
            place,
        }
    }

    fn single_node(&mut self, shape: &Shape, members: &Members<'_>) {
        let (name, count) = (&shape.name, shape.count);
        if count != 1 {
            self.refuse(
                &shape.count_or_cluster(),
                format!("a single node has one master, not {count}"),
                "must be 1",
                "write `control_plane_count: 1`, or another `topology`",
            );
        }
        if members.total > 1 {
            let at = members.group_of(HostRole::Worker).unwrap_or_else(|| shape.count_or_cluster());
            let what = if members.workers > 0 {
                format!("a single node has no workers, and the cluster `{name}` has {}", members.workers)
            } else {
                format!("a single node is one host, and the cluster `{name}` has {}", members.total)
            };
            self.refuse(&at, what, "one too many", "remove the other hosts, or give the cluster three masters");
        } else if members.masters + members.autos != 1 {
            self.refuse(
                &shape.count_or_cluster(),
                "a single node must be a master",
                "this cluster",
                "give its host `role: master` or `role: auto`",
            );
        }
    }

    /// Workers, as the topology has them or not.
    fn several_nodes(&mut self, shape: &Shape, members: &Members<'_>) {
        let (name, workers) = (&shape.name, members.workers);
        if shape.topology == Topology::Compact && workers > 0 {
            let at = members.group_of(HostRole::Worker).unwrap_or_else(|| shape.place.clone());
            self.refuse(
                &at,
                format!("a compact cluster has no workers, and the cluster `{name}` has {workers}"),
                "these",
                "write `topology: ha`, or remove them",
            );
        }
        if shape.asked == Some(Topology::Ha) && workers == 0 && members.masters + members.autos <= shape.count {
            let at = shape.asked_place.clone().unwrap_or_else(|| shape.place.clone());
            self.refuse(
                &at,
                format!("the topology `ha` needs workers, and the cluster `{name}` has none"),
                "`ha` means masters and workers",
                "add a group with `role: worker`, or write `topology: compact`",
            );
        }
    }

    /// How many masters there can be.
    fn number_of_masters(&mut self, shape: &Shape, members: &Members<'_>) {
        let version_place = || shape.version_place.clone().unwrap_or_else(|| shape.count_or_cluster());
        let count = shape.count;
        match count {
            1 => self.refuse(
                &shape.count_or_cluster(),
                "a cluster of several nodes has three masters or more",
                "one master",
                "write `topology: sno` for a single node",
            ),
            2 if members.arbiters == 0 => self.refuse(
                &shape.count_or_masters(members),
                "a cluster with 2 masters cannot be installed",
                "2 masters",
                "use 1 (a single node) or 3 masters; 2 are possible with an arbiter (a group with `role: arbiter`)",
            ),
            2 if shape.minor < (4, 19) => self.refuse(
                &version_place(),
                "2 masters with an arbiter need OpenShift 4.19 or later",
                "too old",
                "write `openshift_version: 4.19` or later",
            ),
            4 | 5 if shape.minor < (4, 18) => self.refuse(
                &version_place(),
                format!("{count} masters need OpenShift 4.18 or later"),
                "too old",
                "write `openshift_version: 4.18` or later, or use 3 masters",
            ),
            6.. => self.refuse(
                &shape.count_or_masters(members),
                format!("a cluster has at most 5 masters, not {count}"),
                "too many",
                "use 3, 4 or 5 masters; more hosts can be workers",
            ),
            _ => {}
        }
        if count != 2 && members.arbiters > 0 {
            let at = members.group_of(HostRole::Arbiter).unwrap_or_else(|| shape.place.clone());
            self.refuse(
                &at,
                "only a cluster with 2 masters has an arbiter",
                "an arbiter",
                "remove it, or use 2 masters",
            );
        }
    }

    /// The groups must have as many masters as the cluster.
    fn enough_masters(&mut self, shape: &Shape, members: &Members<'_>) {
        let (name, count) = (&shape.name, shape.count);
        let Members { masters, autos, arbiters, .. } = *members;
        if masters > count {
            let at = members.group_of(HostRole::Master).unwrap_or_else(|| shape.place.clone());
            self.refuse(
                &at,
                format!("the groups have {masters} masters, and the cluster `{name}` has {count}"),
                "too many masters",
                "make `control_plane_count` and the groups agree",
            );
            self.also(&shape.count_or_cluster(), format!("{count} masters"));
        } else if masters + autos < count
            && (masters > 0 || autos > 0 || shape.count_place.is_some())
            && !(count == 2 && arbiters == 0)
        {
            self.refuse(
                &shape.count_or_masters(members),
                format!("the cluster `{name}` needs {count} masters, and the groups provide {}", masters + autos),
                format!("needs {count}"),
                "add hosts with `role: master` or `role: auto`, or change `control_plane_count`",
            );
        } else if masters + autos < count {
            self.refuse(
                &shape.place,
                format!("the cluster `{name}` needs {count} masters and has none"),
                "this cluster",
                "add a group with `role: master` and `count: 3`",
            );
        }
    }

    /// The platform, and whether the user cares for load balancers and DNS.
    fn platform(&mut self, file: &ClusterFile, sno: bool) -> (PlatformType, bool) {
        let said = file.user_managed_networking.as_ref();
        let platform = self.read_option(&file.platform);
        let without = |p: PlatformType| matches!(p, PlatformType::None | PlatformType::External);
        let unmanaged = sno || said.is_some_and(|u| **u) || platform.is_some_and(without);
        if let Some(said) = said.filter(|u| !***u) {
            if sno {
                self.refuse(
                    &said.span,
                    "a single node has user-managed networking",
                    "cannot be false",
                    "remove it, or write `true`",
                );
            } else if platform.is_some_and(without) {
                self.refuse(
                    &said.span,
                    "platforms `none` and `external` have user-managed networking",
                    "cannot be false",
                    "remove it, or choose `platform: baremetal`",
                );
            }
        }
        if let (Some(platform), Some(text)) = (platform, &file.platform)
            && unmanaged
            && matches!(platform, PlatformType::Baremetal | PlatformType::Nutanix)
        {
            let why = if sno { "a single node" } else { "user-managed networking" };
            self.refuse(
                &text.span,
                format!("platform `{platform}` does not go with {why}"),
                "not possible here",
                "write `platform: none`, or leave it out",
            );
        }
        (platform.unwrap_or(if unmanaged { PlatformType::None } else { PlatformType::Baremetal }), unmanaged)
    }

    fn networks(&mut self, file: &ClusterFile, place: &Place, sno: bool, members: usize) -> Networks {
        let mut networks = Networks::default();
        self.machine_networks(file, place, sno, &mut networks);
        let wanted = if sno { 1 } else { members.max(4) };
        self.cluster_networks(file, place, wanted, &mut networks);
        for text in file.service_networks.iter().flatten() {
            if let Some(network) = self.read(text) {
                networks.service.push(network);
                networks.all.push((network, text.span.clone(), "service network"));
            }
        }
        if file.service_networks.is_none() {
            let network = ipv4_net([172, 30, 0, 0], 16);
            networks.service.push(network);
            let what = "service network (the default)";
            networks.all.push((network, place.clone(), what));
        }
        self.overlaps(place, &networks.all);
        networks
    }

    fn machine_networks(&mut self, file: &ClusterFile, place: &Place, sno: bool, networks: &mut Networks) {
        for text in file.machine_networks.iter().flatten() {
            let Some(network) = self.read(text) else {
                // It cannot be told what is inside of it: everything is, so that one mistake is told once.
                let everything = [ipv4_net([0, 0, 0, 0], 0), IpNet::new_assert(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)];
                networks.machine.extend(everything);
                continue;
            };
            networks.machine.push(network);
            networks.machine_places.push(text.span.clone());
            networks.all.push((network, text.span.clone(), "machine network"));
            let smallest = if sno { 1 } else { 4 };
            if network.max_prefix_len() - network.prefix_len() < smallest {
                self.refuse(
                    &text.span,
                    format!("the machine network `{network}` is too small"),
                    "too few addresses",
                    format!("its prefix must be /{} or shorter", network.max_prefix_len() - smallest),
                );
            }
        }
        if file.machine_networks.as_ref().is_none_or(Vec::is_empty) {
            let network = ipv4_net([192, 168, 126, 0], 24);
            networks.machine.push(network);
            let what = "machine network (the default)";
            networks.all.push((network, place.clone(), what));
        }
    }

    /// Networks of the pods, each with room for so many hosts.
    fn cluster_networks(&mut self, file: &ClusterFile, place: &Place, wanted: usize, networks: &mut Networks) {
        for item in file.cluster_networks.iter().flatten() {
            let Some(cidr) = self.read(&item.cidr) else { continue };
            let default = if matches!(cidr, IpNet::V4(_)) { 23 } else { 64 };
            let bits = i64::from(cidr.max_prefix_len());
            let prefix = item
                .host_prefix
                .as_ref()
                .map_or(Some(default), |p| self.number(p, "the host prefix", i64::from(cidr.prefix_len()), bits - 7));
            if let Some(prefix) = prefix.and_then(|p| u8::try_from(p).ok()) {
                let room_bits = u32::from(prefix.saturating_sub(cidr.prefix_len()));
                if prefix < cidr.prefix_len() || 1u128.checked_shl(room_bits).unwrap_or(u128::MAX) < wanted as u128 {
                    let at = item.host_prefix.as_ref().map_or(item.cidr.span.clone(), |p| p.span.clone());
                    self.refuse(
                        &at,
                        format!(
                            "the cluster network `{cidr}` has no room for {wanted} hosts with host prefix {prefix}"
                        ),
                        "too small",
                        "use a bigger network, or a longer host prefix",
                    );
                }
                networks.cluster.push(ClusterNetwork { cidr, host_prefix: prefix });
            }
            networks.all.push((cidr, item.cidr.span.clone(), "cluster network"));
        }
        if file.cluster_networks.is_none() {
            let network = ipv4_net([10, 128, 0, 0], 14);
            networks.cluster.push(ClusterNetwork { cidr: network, host_prefix: 23 });
            let what = "cluster network (the default)";
            networks.all.push((network, place.clone(), what));
        }
    }

    fn overlaps(&mut self, place: &Place, all: &[(IpNet, Place, &'static str)]) {
        for (i, (network, span, what)) in all.iter().enumerate() {
            for (other, other_span, other_what) in &all[..i] {
                if !network.contains(&other.network()) && !other.contains(&network.network()) {
                    continue;
                }
                // Point at the one that the file says.
                let (at, there) = if span == place { (other_span, span) } else { (span, other_span) };
                self.refuse(
                    at,
                    format!("{what} `{network}` and {other_what} `{other}` overlap"),
                    "overlaps",
                    "choose networks that do not overlap",
                );
                if there != at {
                    self.also(there, "with this");
                }
            }
        }
    }

    fn base_domain(&mut self, file: &ClusterFile) -> String {
        let Some(text) = &file.base_domain else { return "lab.example".to_owned() };
        let good = text.text.len() <= 181
            && text.text.contains('.')
            && text.text.split('.').all(|part| part.len() <= 63 && super::is_label(part));
        if !good {
            self.refuse(
                &text.span,
                format!("`{}` is not a DNS domain", text.text),
                "not a domain",
                "write lower-case names separated by dots, for example `lab.example`",
            );
        }
        text.text.clone()
    }
}

/// Where a cluster has its name, else where it is.
pub(super) fn name_place(file: &At<ClusterFile>) -> Place {
    file.name.as_ref().map_or(file.span.clone(), |n| n.span.clone())
}

fn ipv4_net(octets: [u8; 4], prefix: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::from(octets)), prefix)
}
