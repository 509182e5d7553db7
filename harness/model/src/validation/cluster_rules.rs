//! What each cluster validation says.

use std::net::IpAddr;

use ipnet::IpNet;
use vlab_api::types::{ClusterValidationId, HostRole, HostStatus, VipVerification};

use super::{Evaluation, NOT_EVALUATED, error, fail, hidden, ok, pending};
use crate::disks::version_at_least;
use crate::network;
use crate::roles;
use crate::settings::Settings;
use crate::view::{ClusterView, HostView, filled};

/// All that the rules look at, with what several of them need worked out once.
pub(super) struct Subject<'a> {
    cluster: &'a ClusterView,
    hosts: &'a [&'a HostView],
    settings: &'a Settings,
    machine: Networks,
    clusters: Networks,
    services: Networks,
    discovered: bool,
}

/// Networks of one kind: those that parse, and how many were given.
struct Networks {
    nets: Vec<IpNet>,
    given: usize,
}

impl Networks {
    fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut networks = Self { nets: Vec::new(), given: 0 };
        for text in texts {
            networks.given += 1;
            networks.nets.extend(text.parse::<IpNet>().ok());
        }
        networks
    }

    fn families(&self) -> (bool, bool) {
        (self.nets.iter().any(|n| !network::is_ipv6(n)), self.nets.iter().any(network::is_ipv6))
    }
}

const UNDEFINED: &str = "At least one of the CIDRs (Machine Network, Cluster Network, Service Network) is undefined.";
const NOT_DISCOVERED: &str = "Hosts have not been discovered yet";

/// Network plug-ins that come with OpenShift.
const OWN_NETWORK_TYPES: [&str; 2] = ["OVNKubernetes", "OpenShiftSDN"];
/// Those of third parties, which need manifests of the user's own.
const THIRD_PARTY_NETWORK_TYPES: [&str; 4] = ["Cilium", "Calico", "CiscoACI", "None"];

impl<'a> Subject<'a> {
    pub(super) fn new(cluster: &'a ClusterView, hosts: &'a [&'a HostView], settings: &'a Settings) -> Self {
        Self {
            cluster,
            hosts,
            settings,
            machine: Networks::new(cluster.machine_network_texts()),
            clusters: Networks::new(cluster.cluster_networks().iter().filter_map(|n| filled(&n.cidr))),
            services: Networks::new(cluster.service_networks().iter().filter_map(|n| filled(&n.cidr))),
            discovered: hosts.iter().any(|h| h.inventory.is_some()),
        }
    }

    fn unmanaged_multi_node(&self) -> bool {
        self.cluster.user_managed_networking() && !self.cluster.is_sno()
    }

    fn third_party_network(&self) -> bool {
        THIRD_PARTY_NETWORK_TYPES.contains(&self.cluster.cluster.network_type.as_deref().unwrap_or(""))
    }

    pub(super) fn answer(&self, id: ClusterValidationId) -> Evaluation {
        use ClusterValidationId as V;
        let cluster = self.cluster;
        match id {
            V::MachineCidrDefined => self.machine_cidr_defined(),
            V::ClusterCidrDefined => match self.clusters.given {
                0 => fail("The Cluster Network CIDR is undefined."),
                _ => ok("The Cluster Network CIDR is defined."),
            },
            V::ServiceCidrDefined => match self.services.given {
                0 => fail("The Service Network CIDR is undefined."),
                _ => ok("The Service Network CIDR is defined."),
            },
            V::DnsDomainDefined => match filled(&cluster.cluster.base_dns_domain) {
                None => fail("The base domain is undefined and must be provided."),
                Some(_) => ok("The base domain is defined."),
            },
            V::PullSecretSet => match cluster.has_pull_secret {
                false => fail("The pull secret is not set."),
                true => ok("The pull secret is set."),
            },
            V::ApiVipsDefined => self.vips_defined("API", &cluster.api_vips()),
            V::IngressVipsDefined => self.vips_defined("Ingress", &cluster.ingress_vips()),
            V::ApiVipsValid => self.vips_valid("API", "api", &cluster.api_vips()),
            V::IngressVipsValid => self.vips_valid("Ingress", "ingress", &cluster.ingress_vips()),
            V::MachineCidrEqualsToCalculatedCidr => self.calculated_cidr(),
            V::AllHostsAreReadyToInstall => self.hosts_ready(),
            V::SufficientMastersCount => self.masters(),
            V::NetworkPrefixValid => self.prefix(),
            V::NoCidrsOverlapping => self.overlapping(),
            V::NetworksSameAddressFamilies => self.same_families(),
            V::NtpServerConfigured => self.clocks(),
            V::NetworkTypeValid => self.network_type(),
            V::CustomManifestsRequirementsSatisfied => match self.third_party_network() {
                false => ok("No custom manifests are required"),
                true if cluster.has_custom_manifests => ok("Custom manifests were uploaded"),
                true => fail("Custom manifests of the network plug-in are required, none were uploaded"),
            },
            V::PlatformRequirementsSatisfied => match cluster.external_platform_name() {
                Some("oci") if !cluster.has_custom_manifests => fail(
                    "The custom manifest required for Oracle Cloud Infrastructure platform integration has not been added",
                ),
                _ => ok("Platform requirements satisfied"),
            },
            V::OcsRequirementsSatisfied => hidden(),
            // Part of openshift-ai; without that it is not shown.
            V::OpenshiftAiGpuRequirementsSatisfied if !cluster.has_operator("openshift-ai") => hidden(),
            V::OpenshiftAiGpuRequirementsSatisfied => self.operator("openshift-ai", "openshift-ai-gpu"),
            _ => {
                let name = super::operator_name(id.as_str());
                self.operator(name, name)
            }
        }
    }

    fn machine_cidr_defined(&self) -> Evaluation {
        if self.unmanaged_multi_node() {
            return ok("No Machine Network CIDR needed: User Managed Networking");
        }
        match (self.machine.given > 0, self.discovered) {
            (true, _) => ok("The Machine Network CIDR is defined."),
            (false, false) => pending(NOT_DISCOVERED),
            (false, true) if self.cluster.is_sno() => {
                fail("The Machine Network CIDR is undefined; choose one of the host's networks.")
            }
            (false, true) => fail(
                "The Machine Network CIDR is undefined; the Machine Network CIDR can be defined by setting either the API or Ingress virtual IPs.",
            ),
        }
    }

    /// Why the cluster needs no VIPs, if it does not.
    fn no_vips_needed(&self) -> Option<&'static str> {
        match (self.cluster.user_managed_networking(), self.cluster.is_sno()) {
            (true, _) => Some("User Managed Networking"),
            (_, true) => Some("SNO"),
            _ => None,
        }
    }

    fn vips_defined(&self, kind: &str, vips: &[(IpAddr, VipVerification)]) -> Evaluation {
        if let Some(why) = self.no_vips_needed() {
            return ok(format!("{kind} virtual IPs are not required: {why}"));
        }
        match vips.is_empty() {
            false => ok(format!("{kind} virtual IPs are defined.")),
            true if self.cluster.vip_dhcp_allocation() && self.machine.given == 0 => pending(format!(
                "{kind} virtual IPs are undefined; they are leased once the Machine Network CIDR is defined."
            )),
            true => fail(format!("{kind} virtual IPs are undefined and must be provided.")),
        }
    }

    fn vips_valid(&self, kind: &str, lower: &str, vips: &[(IpAddr, VipVerification)]) -> Evaluation {
        if let Some(why) = self.no_vips_needed() {
            return ok(format!("{kind} virtual IPs are not required: {why}"));
        }
        if vips.is_empty() {
            return pending(format!("{kind} virtual IPs are undefined."));
        }
        if !self.discovered || self.machine.given == 0 {
            return pending(NOT_DISCOVERED);
        }
        let list = || vips.iter().map(|(vip, _)| vip.to_string()).collect::<Vec<_>>().join(", ");
        if self.cluster.user_managed_load_balancer() {
            // They are the load balancer's: it answers for them, and they may lie anywhere.
            return ok(format!("{lower} vips {} are the user's load balancer's", list()));
        }
        for (vip, checked) in vips {
            if !self.machine.nets.iter().any(|n| n.contains(vip)) {
                return fail(format!("{lower} vip <{vip}> does not belong to a machine network"));
            }
            match network::effective_verification(vip, *checked, self.hosts) {
                VipVerification::Succeeded => {}
                VipVerification::Failed => return fail(format!("{lower} vip <{vip}> is already in use")),
                VipVerification::Unverified => {
                    return fail(format!("{lower} vip <{vip}> was not verified to be free yet"));
                }
            }
        }
        ok(format!("{lower} vips {} belongs to the Machine CIDR and is not in use.", list()))
    }

    fn calculated_cidr(&self) -> Evaluation {
        let cluster = self.cluster;
        if cluster.user_managed_networking() {
            return ok("The Cluster Machine CIDR is not required: User Managed Networking");
        }
        if cluster.user_managed_load_balancer() {
            return ok("The Cluster Machine CIDR is not required: User Managed Load Balancer");
        }
        if cluster.api_vips().is_empty() && cluster.ingress_vips().is_empty() {
            return pending("The Machine Network CIDR, API virtual IPs, or Ingress virtual IPs are undefined.");
        }
        if !self.discovered {
            return pending(NOT_DISCOVERED);
        }
        // VIP by VIP: a machine network in which no VIP is may be there beside these, and as long as none is set, none differs.
        let right = |(i, (vip, _)): (usize, &(IpAddr, VipVerification))| {
            let calculated = network::network_of_vip(vip, self.hosts);
            let given = self.machine.nets.get(i).map(IpNet::trunc);
            calculated.is_some() && (self.machine.given == 0 || given == calculated)
        };
        match cluster.api_vips().iter().enumerate().all(right) {
            true => ok("The Cluster Machine CIDR is equivalent to the calculated CIDR."),
            false => fail("The Cluster Machine CIDR is different than the calculated CIDR."),
        }
    }

    fn hosts_ready(&self) -> Evaluation {
        let ready = |h: &&HostView| {
            let ready = [HostStatus::Known, HostStatus::PreparingForInstallation, HostStatus::PreparingSuccessful];
            ready.contains(&h.host.status)
        };
        match self.hosts.iter().all(ready) {
            true => ok("All hosts in the cluster are ready to install."),
            false => fail("The cluster has hosts that are not ready to install."),
        }
    }

    fn masters(&self) -> Evaluation {
        if roles::sufficient_masters(self.cluster, self.hosts, self.settings) {
            return ok("The cluster has the exact amount of dedicated control plane nodes.");
        }
        let counts = roles::counts(self.cluster, self.hosts, self.settings);
        match self.cluster.control_plane_count() {
            1 => fail("Single-node clusters must have a single control plane node and no workers."),
            2 => fail(format!(
                "Clusters with two control plane nodes must have exactly two of them (found {}) and an arbiter or fencing credentials.",
                counts.masters
            )),
            wanted => fail(format!(
                "The cluster must have exactly {wanted} dedicated control plane nodes (found {}). Add or remove hosts, or change their roles configurations to meet the requirement.",
                counts.masters
            )),
        }
    }

    fn prefix(&self) -> Evaluation {
        if self.clusters.given == 0 {
            return pending("The Cluster Network CIDR is undefined.");
        }
        for network in self.cluster.cluster_networks() {
            let Some(cidr) = filled(&network.cidr).and_then(|c| c.parse::<IpNet>().ok()) else {
                return fail("The Cluster Network CIDR cannot be read.");
            };
            if self.third_party_network() {
                continue;
            }
            let host_prefix = network.host_prefix.unwrap_or(0);
            let single = self.cluster.is_sno();
            if let Some(problem) = network::host_prefix_problem(&cidr, host_prefix, self.hosts.len(), single) {
                return fail(problem);
            }
        }
        ok("The Cluster Network prefix is valid.")
    }

    /// Is a network that the rules about all networks need not defined?
    fn undefined(&self) -> bool {
        let machine_needed = !self.unmanaged_multi_node();
        self.clusters.given == 0 || self.services.given == 0 || (machine_needed && self.machine.given == 0)
    }

    fn unreadable(&self) -> bool {
        [&self.machine, &self.clusters, &self.services].iter().any(|n| n.nets.len() != n.given)
    }

    fn overlapping(&self) -> Evaluation {
        if self.undefined() {
            return pending(UNDEFINED);
        }
        let (machine, clusters, services) = (&self.machine.nets, &self.clusters.nets, &self.services.nets);
        let lengths = clusters.len() == services.len() && (machine.is_empty() || machine.len() >= clusters.len());
        if self.unreadable() || !lengths {
            return error("The lists of Machine, Cluster and Service Networks do not fit together.");
        }
        let kinds = [("Machine", machine), ("Cluster", clusters), ("Service", services)];
        for (i, (kind, nets)) in kinds.iter().enumerate() {
            for (other_kind, others) in &kinds[i + 1..] {
                let pairs = || nets.iter().flat_map(|a| others.iter().map(move |b| (a, b)));
                if let Some((a, b)) = pairs().find(|(a, b)| network::overlap(a, b)) {
                    return fail(format!("CIDRS are overlapping: {kind} Network {a} and {other_kind} Network {b}."));
                }
            }
        }
        ok("No CIDRS are overlapping.")
    }

    fn same_families(&self) -> Evaluation {
        if self.undefined() {
            return pending(UNDEFINED);
        }
        if self.unreadable() {
            return error("Bad CIDR(s) appears in one of the networks");
        }
        let families = self.clusters.families();
        let machine_fits = self.unmanaged_multi_node() || self.machine.families() == families;
        match self.services.families() == families && machine_fits {
            true => ok("Same address families for all networks."),
            false => fail(
                "Address families of networks (MachineNetworks, ClusterNetworks, ServiceNetworks) are not the same.",
            ),
        }
    }

    fn clocks(&self) -> Evaluation {
        let counts = |h: &&&HostView| {
            let without = [HostStatus::Disconnected, HostStatus::Discovering, HostStatus::ResettingPendingUserAction];
            !without.contains(&h.host.status)
        };
        let times = || self.hosts.iter().filter(counts).filter_map(|h| h.host.timestamp.filter(|t| *t > 0));
        let gap = match (times().min(), times().max()) {
            (Some(first), Some(last)) => last.saturating_sub(first),
            _ => 0,
        };
        // Whole minutes count: one that has begun does not.
        let minutes = self.settings.constants.hosts_clock_skew_minutes;
        match gap / 60 <= minutes {
            true => ok("No ntp problems found"),
            false => fail(format!(
                "Please configure an NTP server via DHCP or set clocks manually: clocks of hosts differ by {gap} seconds, {minutes} minutes are allowed."
            )),
        }
    }

    fn network_type(&self) -> Evaluation {
        let cluster = self.cluster;
        let kind = match filled(&cluster.cluster.network_type) {
            Some(kind) => kind,
            None => return ok("The cluster has a valid network type"),
        };
        let ipv6 = [&self.machine, &self.clusters, &self.services].iter().any(|n| n.families().1);
        if !OWN_NETWORK_TYPES.contains(&kind) && !THIRD_PARTY_NETWORK_TYPES.contains(&kind) {
            return fail(format!("The network type {kind} is not supported"));
        }
        match kind {
            "OpenShiftSDN" if ipv6 => fail("The network type OpenShiftSDN is not valid with IPv6"),
            "OpenShiftSDN" if cluster.is_sno() => fail("The network type OpenShiftSDN is not valid for a single node"),
            "OVNKubernetes" if cluster.vip_dhcp_allocation() => {
                fail("The network type OVNKubernetes is not valid with VIPs that DHCP leases")
            }
            _ => ok("The cluster has a valid network type"),
        }
    }

    fn operator(&self, name: &'static str, shown: &'static str) -> Evaluation {
        if !self.cluster.has_operator(name) {
            return super::operator_off(shown);
        }
        match shown {
            "lso" | "cnv" | "mce" | "mtv" => ok(format!("{shown} has no requirements of a cluster that can be made")),
            "lvm" => {
                let version = self.cluster.openshift_version();
                match (version_at_least(version, 4, 11), self.cluster.is_sno() || version_at_least(version, 4, 15)) {
                    (true, true) => ok("lvm requirements are satisfied"),
                    (false, _) => fail("lvm: OpenShift 4.11 or later is needed"),
                    (true, false) => fail("lvm: OpenShift 4.15 or later is needed for several nodes"),
                }
            }
            "openshift-ai" => {
                let fits = |h: &&&HostView| {
                    h.effective_role() == HostRole::Worker
                        && h.inventory.as_ref().is_some_and(|i| {
                            roles::cpu_count(i) >= 8 && roles::memory_suffices(roles::memory_bytes(i), 32 * 1024)
                        })
                };
                match self.hosts.iter().filter(fits).count() {
                    0 | 1 => {
                        fail("openshift-ai: at least two workers with 8 CPU cores and 32 GiB of memory are needed")
                    }
                    _ => ok("openshift-ai requirements are satisfied"),
                }
            }
            "odf" if self.hosts.len() < 3 => fail("odf: at least three hosts are needed"),
            _ => fail(format!("{shown}: {NOT_EVALUATED}")),
        }
    }
}
