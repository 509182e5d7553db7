//! What each host validation says.

use std::net::IpAddr;

use ipnet::IpNet;
use vlab_api::Timestamp;
use vlab_api::types::{
    Disk, DomainResolutionResponseResolutions, DriveType, HostRole, HostValidationId, Inventory, PlatformType,
};

use super::{Evaluation, NOT_EVALUATED, connection_deadline, error, fail, hidden, ok, pending};
use crate::disks::{self, Need};
use crate::network;
use crate::roles::{self, Requirement};
use crate::settings::Settings;
use crate::view::{ClusterView, HostView, Scope, filled};

/// All that the rules look at, with what several of them need worked out once.
pub(super) struct Subject<'a> {
    host: &'a HostView,
    inventory: Option<&'a Inventory>,
    scope: &'a Scope<'a>,
    cluster: Option<&'a ClusterView>,
    settings: &'a Settings,
    now: Timestamp,
    role: HostRole,
    /// What its role needs; `None` when the settings have no row that fits.
    needs: Option<Requirement>,
    /// The less demanding of master and worker: cores, MiB.
    least: Option<(i64, i64)>,
    machine_networks: Vec<IpNet>,
    has_machine_network: bool,
}

const NO_INVENTORY: &str = "Missing inventory";
const NO_REQUIREMENTS: &str = "The service has no hardware requirements for the version of this cluster";
const NO_NETWORK: &str = "Missing inventory or machine network CIDR";

/// Evaluates to the inventory, or answers that it is missing.
macro_rules! inventory {
    ($subject:expr) => {
        match $subject.inventory {
            Some(inventory) => inventory,
            None => return pending(NO_INVENTORY),
        }
    };
}

/// Evaluates to the cluster, or gives the answer for an unbound host.
macro_rules! cluster {
    ($subject:expr, $else:expr) => {
        match $subject.cluster {
            Some(cluster) => cluster,
            None => return $else,
        }
    };
}

impl<'a> Subject<'a> {
    pub(super) fn new(host: &'a HostView, scope: &'a Scope<'a>, settings: &'a Settings, now: Timestamp) -> Self {
        let cluster = scope.cluster;
        let version = cluster.map_or("", |c| c.openshift_version());
        let role = host.effective_role();
        let of = |profile| roles::requirement(settings, version, profile);
        let least = match (of(roles::Profile::Master), of(roles::Profile::Worker)) {
            (Some(m), Some(w)) => Some((m.cpu_cores.min(w.cpu_cores), m.ram_mib.min(w.ram_mib))),
            _ => None,
        };
        Self {
            host,
            inventory: host.inventory.as_deref(),
            scope,
            cluster,
            settings,
            now,
            role,
            needs: roles::host_requirement(host, role, cluster, settings),
            least,
            machine_networks: cluster.map(|c| c.machine_networks()).unwrap_or_default(),
            has_machine_network: cluster.is_some_and(|c| c.has_machine_network()),
        }
    }

    /// Is its cluster one that hosts are added to? Those that it was installed with are no hosts of day 2, but some validations are
    /// not asked for any more.
    fn day2(&self) -> bool {
        self.host.is_day2() || self.cluster.is_some_and(|c| c.is_day2())
    }

    /// Networking that the user brings, with more than one node.
    fn unmanaged_multi_node(&self) -> bool {
        self.cluster.is_some_and(|c| c.user_managed_networking() && !c.is_sno())
    }

    pub(super) fn answer(&self, id: HostValidationId) -> Evaluation {
        use HostValidationId as V;
        match id {
            V::Connected => self.connected(),
            V::MediaConnected => self.media_connected(),
            V::HasInventory => match self.inventory {
                Some(_) => ok("Valid inventory exists for the host"),
                None => fail("Inventory has not been received for the host"),
            },
            V::InventoryNotPartiallyTruncated => self.not_truncated("partial"),
            V::InventoryNotFullyTruncated => self.not_truncated("full"),
            V::HasMinCpuCores => self.min_cpu(),
            V::HasMinMemory => self.min_memory(),
            V::HasMinValidDisks => self.min_disks(),
            V::HasCpuCoresForRole => self.cpu_for_role(),
            V::HasMemoryForRole => self.memory_for_role(),
            V::HostnameUnique => self.hostname_unique(),
            V::HostnameValid => self.hostname_valid(),
            V::SufficientInstallationDiskSpeed => self.disk_speed(),
            V::CompatibleWithClusterPlatform => self.platform(),
            V::DiskEncryptionRequirementsSatisfied => self.disk_encryption(),
            V::VsphereDiskUuidEnabled => self.vsphere_disk_uuid(),
            V::CompatibleAgent => self.compatible_agent(),
            V::NoSkipInstallationDisk => self.no_skip_installation_disk(),
            V::NoSkipMissingDisk => self.no_skip_missing_disk(),
            V::MachineCidrDefined => self.machine_cidr_defined(),
            V::BelongsToMachineCidr => self.belongs_to_machine_cidr(),
            V::IgnitionDownloadable => self.ignition_downloadable(),
            V::BelongsToMajorityGroup => self.majority_group(),
            V::MtuValid => self.mtu(),
            V::ValidPlatformNetworkSettings => self.platform_network(),
            V::NtpSynced => self.ntp_synced(),
            V::TimeSyncedBetweenHostAndService => self.time_synced(),
            V::ContainerImagesAvailable => self.images(),
            V::SufficientNetworkLatencyRequirementForRole => self.latency(),
            V::SufficientPacketLossRequirementForRole => self.packet_loss(),
            V::HasDefaultRoute => {
                let routes = inventory!(self).routes.as_deref().unwrap_or(&[]);
                match routes.iter().any(network::is_default_route) {
                    true => ok("Host has been configured with at least one default route."),
                    false => fail("Host has not yet been configured with a default route."),
                }
            }
            V::ApiDomainNameResolvedCorrectly => self.resolves("api", "api"),
            V::ApiIntDomainNameResolvedCorrectly => self.resolves("api-int", "api-int"),
            V::AppsDomainNameResolvedCorrectly => self.resolves("console-openshift-console.apps", "*.apps"),
            V::DnsWildcardNotConfigured => self.no_wildcard(),
            V::NonOverlappingSubnets => self.subnets(),
            V::NoIpCollisionsInNetwork => self.ip_collisions(),
            V::NoIscsiNicBelongsToMachineCidr => self.iscsi_nic(),
            // Never emitted; see the table.
            V::ReleaseDomainNameResolvedCorrectly | V::OcsRequirementsSatisfied => hidden(),
            _ => self.operator(super::operator_name(id.as_str())),
        }
    }

    // --- connection ---

    fn connected(&self) -> Evaluation {
        match connection_deadline(self.host, self.settings) {
            Some(deadline) if self.now >= deadline => fail("Host is disconnected"),
            _ => ok("Host is connected"),
        }
    }

    fn media_connected(&self) -> Evaluation {
        match self.host.host.media_status.as_deref() {
            Some("disconnected") => fail("Media device is disconnected"),
            _ => ok("Media device is connected"),
        }
    }

    // --- hardware ---

    fn not_truncated(&self, how: &str) -> Evaluation {
        let truncation = inventory!(self).truncation.as_ref();
        match truncation.filter(|t| t.type_ == how) {
            None => ok("Inventory is not truncated"),
            Some(t) => {
                let reasons = t.reasons.as_deref().unwrap_or(&[]).join(", ");
                fail(format!("Inventory is truncated ({how}): {reasons}"))
            }
        }
    }

    fn min_cpu(&self) -> Evaluation {
        let count = roles::cpu_count(inventory!(self));
        match self.least {
            None => error(NO_REQUIREMENTS),
            Some((cpu, _)) if count >= cpu => ok("Sufficient CPU cores"),
            Some((cpu, _)) => fail(format!(
                "The host is not eligible to participate in Openshift Cluster because the minimum required CPU cores for any role is {cpu}, found only {count}"
            )),
        }
    }

    fn min_memory(&self) -> Evaluation {
        let inventory = inventory!(self);
        let bytes = roles::memory_bytes(inventory);
        // The kernel's own figure leaves out what it keeps for itself.
        let meminfo = inventory.memory.as_ref().and_then(|m| m.physical_bytes_method.as_deref()) == Some("meminfo");
        let counted = if meminfo { bytes.saturating_add(bytes / 50) } else { bytes };
        match self.least {
            None => error(NO_REQUIREMENTS),
            Some((_, mib)) if roles::memory_suffices(counted, mib) => ok("Sufficient minimum RAM"),
            Some((_, mib)) => fail(format!(
                "The host is not eligible to participate in Openshift Cluster because the minimum required RAM for any role is {mib} MiB, found only {} MiB",
                bytes >> 20
            )),
        }
    }

    fn min_disks(&self) -> Evaluation {
        let inventory = inventory!(self);
        let all = inventory.disks.as_deref().unwrap_or(&[]);
        let Some(needs) = &self.needs else { return error(NO_REQUIREMENTS) };
        if all.is_empty() {
            return error("Failed to detected disks");
        }
        let need = Need::new(needs.disk_size_gb, self.cluster.map_or("", |c| c.openshift_version()), inventory);
        match all.iter().any(|d| disks::is_eligible(d, all, &need)) {
            true => ok("Sufficient disk capacity"),
            false => fail("No eligible disks were found, please check specific disks to see why they are not eligible"),
        }
    }

    fn cpu_for_role(&self) -> Evaluation {
        let (count, role) = (roles::cpu_count(inventory!(self)), self.role);
        match &self.needs {
            None => error(NO_REQUIREMENTS),
            Some(n) if count >= n.cpu_cores => ok(format!("Sufficient CPU cores for role {role}")),
            Some(n) => fail(format!("Require at least {} CPU cores for {role} role, found only {count}", n.cpu_cores)),
        }
    }

    fn memory_for_role(&self) -> Evaluation {
        let (bytes, role) = (roles::memory_bytes(inventory!(self)), self.role);
        match &self.needs {
            None => error(NO_REQUIREMENTS),
            Some(n) if roles::memory_suffices(bytes, n.ram_mib) => ok(format!("Sufficient RAM for role {role}")),
            Some(n) => {
                let (least, found) = (in_words(n.ram_mib << 20), in_words(bytes));
                fail(format!("Require at least {least} RAM for role {role}, found only {found}"))
            }
        }
    }

    fn hostname_unique(&self) -> Evaluation {
        let _ = inventory!(self);
        let name = self.host.hostname().unwrap_or("");
        let same =
            |h: &&&HostView| h.inventory.is_some() && h.host.id != self.host.host.id && h.hostname() == Some(name);
        match self.scope.hosts.iter().find(same) {
            None => ok(format!("Hostname {name} is unique in cluster")),
            Some(_) => fail(format!("Hostname {name} is not unique in cluster")),
        }
    }

    fn hostname_valid(&self) -> Evaluation {
        let name = self.host.hostname().filter(|_| self.inventory.is_some()).unwrap_or("");
        match valid_hostname(name) {
            true => ok(format!("Hostname {name} is allowed")),
            false => fail(format!("Hostname {name:?} is forbidden, hostname should match pattern {HOSTNAME_PATTERN}")),
        }
    }

    fn disk_speed(&self) -> Evaluation {
        // Without an inventory, too, where others are pending.
        if self.host.disks().is_empty() {
            return error("Validation error");
        }
        let id = filled(&self.host.host.installation_disk_id).unwrap_or("");
        let speed = self.host.disks_info.get(id).and_then(|d| d.disk_speed.as_ref());
        match speed.filter(|s| s.tested == Some(true)) {
            None => ok("Speed of installation disk has not yet been measured"),
            Some(s) if s.exit_code.unwrap_or(0) == 0 => ok("Speed of installation disk is sufficient"),
            Some(s) => fail(format!(
                "While preparing the previous installation the installation disk speed measurement failed or was found to be insufficient (exit code {})",
                s.exit_code.unwrap_or(0)
            )),
        }
    }

    fn manufacturer(&self) -> Option<&str> {
        filled(&self.inventory?.system_vendor.as_ref()?.manufacturer)
    }

    fn platform(&self) -> Evaluation {
        let cluster = cluster!(self, hidden());
        let _ = inventory!(self);
        let platform = cluster.platform();
        let wanted = match platform {
            PlatformType::Nutanix => Some("Nutanix"),
            PlatformType::Vsphere => Some("VMware, Inc."),
            PlatformType::External if cluster.external_platform_name() == Some("oci") => Some("OracleCloud.com"),
            PlatformType::External | PlatformType::Baremetal | PlatformType::None => None,
        };
        match wanted {
            Some(vendor) if self.manufacturer() != Some(vendor) => fail(format!(
                "Host is not compatible with cluster platform {platform}; it must be a machine of vendor {vendor}"
            )),
            _ => ok(format!("Host is compatible with cluster platform {platform}")),
        }
    }

    fn disk_encryption(&self) -> Evaluation {
        let cluster = cluster!(self, hidden());
        let encryption = cluster.cluster.disk_encryption.as_ref();
        let on = encryption.and_then(|e| e.enable_on.as_deref()).unwrap_or("none");
        match on {
            "none" | "" => return hidden(),
            _ if roles::is_encrypted(on, self.role) => {}
            _ if self.role == HostRole::AutoAssign => return pending("Missing role assignment"),
            _ => return hidden(),
        }
        if encryption.and_then(|e| e.mode.as_deref()) == Some("tang") {
            return match self.host.tang_connectivity.as_ref() {
                Some(reply) if reply.is_success == Some(true) => ok("Tang servers are reachable"),
                Some(_) => fail("Could not validate that all Tang servers are reachable and working"),
                None if filled(&self.host.host.tang_connectivity).is_some() => {
                    fail("The check of the Tang servers failed on the host")
                }
                None => pending("Tang connectivity was not checked yet"),
            };
        }
        match inventory!(self).tpm_version.as_deref() {
            Some("2.0") => ok("Installation disk can be encrypted using tpmv2"),
            Some("none") | None => fail("TPM version could not be found, make sure TPM is enabled in host's BIOS"),
            Some(_) => fail("The host's TPM version is not supported, expected-version: 2.0"),
        }
    }

    fn vsphere_disk_uuid(&self) -> Evaluation {
        let Some(inventory) = self.inventory else { return hidden() };
        if self.manufacturer() != Some("VMware, Inc.") {
            return hidden();
        }
        let Some(needs) = &self.needs else { return error(NO_REQUIREMENTS) };
        let all = inventory.disks.as_deref().unwrap_or(&[]);
        let need = Need::new(needs.disk_size_gb, self.cluster.map_or("", |c| c.openshift_version()), inventory);
        let lacks = |d: &&Disk| disks::is_eligible(d, all, &need) && d.has_uuid != Some(true);
        match all.iter().find(lacks) {
            None => ok("VSphere disk.EnableUUID is enabled for this virtual machine"),
            Some(_) => fail(
                "VSphere disk.EnableUUID isn't enabled for this virtual machine, it's necessary for disks to be mounted properly",
            ),
        }
    }

    fn compatible_agent(&self) -> Evaluation {
        if !self.settings.enable_upgrade_agent {
            return ok("Host agent compatibility checking is disabled");
        }
        match self.host.host.discovery_agent_version.as_deref() == Some(&self.settings.agent_docker_image) {
            true => ok("Host agent is compatible with the service"),
            false => fail("This host's agent is in the process of being upgraded to a compatible version"),
        }
    }

    fn no_skip_installation_disk(&self) -> Evaluation {
        // A host without an inventory has no installation disk, and no request about it.
        let id = filled(&self.host.host.installation_disk_id);
        match self.host.skip_formatting().any(|skipped| Some(skipped) == id) {
            false => ok("No request to skip formatting of the installation disk"),
            true => fail(
                "Requesting to skip the formatting of the installation disk is not allowed. Please choose a different installation disk or do not skip the formatting of it",
            ),
        }
    }

    fn no_skip_missing_disk(&self) -> Evaluation {
        let _ = inventory!(self);
        let exists = |id: &&str| self.host.disks().iter().any(|d| disks::identifier(d) == *id);
        let missing: Vec<&str> = self.host.skip_formatting().filter(|id| !exists(id)).collect();
        match missing.is_empty() {
            true => ok("All disks that have skipped formatting are present in the host inventory"),
            false => fail(format!(
                "Formatting of these disks is to be skipped, but the host inventory has no such disks: {}",
                missing.join(", ")
            )),
        }
    }

    // --- networks ---

    fn machine_cidr_defined(&self) -> Evaluation {
        let cluster = cluster!(self, hidden());
        if cluster.user_managed_networking() {
            return ok("No Machine Network CIDR needed: User Managed Networking");
        }
        if self.day2() {
            return ok("No Machine Network CIDR needed: Day2 cluster");
        }
        match (self.has_machine_network, cluster.vip_dhcp_allocation()) {
            (true, _) => ok("Machine Network CIDR is defined"),
            (false, true) => fail("Machine Network CIDR is undefined"),
            (false, false) => fail(
                "Machine Network CIDR is undefined; the Machine Network CIDR can be defined by setting either the API or Ingress virtual IPs",
            ),
        }
    }

    fn belongs_to_machine_cidr(&self) -> Evaluation {
        let cluster = cluster!(self, ok("No machine network CIDR validation needed: the host is not bound"));
        let judged = self.host.is_bootstrap() && self.has_machine_network;
        if self.unmanaged_multi_node() && !judged {
            return ok("No machine network CIDR validation needed: User Managed Networking");
        }
        if self.day2() {
            return ok("No machine network CIDR validation needed: Day2 cluster");
        }
        let (Some(inventory), true) = (self.inventory, self.has_machine_network) else { return pending(NO_NETWORK) };
        let inside = |n: &IpNet| network::has_address_in(inventory, n);
        let complete = self.machine_networks.len() == cluster.machine_network_texts().count();
        if cluster.user_managed_load_balancer() {
            return match self.machine_networks.iter().any(inside) {
                true => ok("Host belongs to at least one machine network CIDR"),
                false => fail(
                    "Host does not belong to any machine network CIDR. Verify that the host belongs to a listed machine network CIDR",
                ),
            };
        }
        match complete && self.machine_networks.iter().all(inside) {
            true => ok("Host belongs to all machine network CIDRs"),
            false => fail(
                "Host does not belong to machine network CIDRs. Verify that the host belongs to every CIDR listed under machine networks",
            ),
        }
    }

    fn ignition_downloadable(&self) -> Evaluation {
        if !self.host.is_day2() || self.cluster.is_none() {
            return hidden();
        }
        match &self.host.api_vip_connectivity {
            Some(reply) if reply.is_success == Some(true) => ok("Ignition is downloadable"),
            Some(reply) => {
                let why = filled(&reply.download_error).unwrap_or("the host gave no reason");
                fail(format!("This host has failed to download the ignition file: {why}"))
            }
            None if filled(&self.host.host.api_vip_connectivity).is_some() => {
                error("Internal error - failed to parse agent API connectivity response")
            }
            None => pending("Ignition is not ready, pending API connectivity"),
        }
    }

    fn majority_group(&self) -> Evaluation {
        const MISSING: &str = "Machine Network CIDR or Connectivity Majority Groups missing";
        const FINE: &str = "Host has connectivity to the majority of hosts in the cluster";
        let cluster = cluster!(self, ok("No connectivity validation needed: the host is not bound"));
        if self.host.is_day2() {
            return ok("Day2 cluster is not validated for connectivity");
        }
        if cluster.is_sno() {
            return ok(FINE);
        }
        let Some(groups) = &cluster.majority_groups else { return pending(MISSING) };
        let id = self.host.host.id;
        // Groups that were computed when there were more hosts hold on: once it is being installed nobody computes them again.
        let too_few = self.scope.hosts.len() < network::min_group(cluster, self.scope.hosts);
        let bad = || match too_few {
            true => pending("Not enough hosts in cluster to calculate connectivity groups"),
            false => fail("No connectivity to the majority of hosts in the cluster"),
        };
        if cluster.user_managed_networking() || cluster.user_managed_load_balancer() {
            let addresses = cluster.l3_connected_addresses.get(&id).map_or(&[][..], Vec::as_slice);
            let has = |v6: bool| addresses.iter().any(|a| a.contains(':') == v6);
            let (v4, v6) = families(cluster);
            return if (!v4 || has(false)) && (!v6 || has(true)) { ok(FINE) } else { bad() };
        }
        if !self.has_machine_network {
            return pending(MISSING);
        }
        for text in cluster.machine_network_texts() {
            match groups.get(text) {
                None => return pending(MISSING),
                Some(members) if !members.contains(&id) => return bad(),
                Some(_) => {}
            }
        }
        ok(FINE)
    }

    fn mtu(&self) -> Evaluation {
        let cluster = cluster!(self, hidden());
        if cluster.is_sno() {
            return hidden();
        }
        if self.host.is_day2() {
            return ok("MTU is not checked on day 2");
        }
        let Some(connectivity) = &self.host.connectivity else { return pending("Missing MTU report information") };
        let counts = |address: &Option<String>| {
            let address = filled(address).and_then(|a| a.parse::<IpAddr>().ok());
            cluster.user_managed_networking()
                || address.is_some_and(|a| self.machine_networks.iter().any(|n| n.contains(&a)))
        };
        let reports = connectivity.remote_hosts.iter().flatten().flat_map(|r| r.mtu_report.iter().flatten());
        // The service leaves `false` out when it writes the report, so what is absent is a failure.
        match reports.filter(|r| counts(&r.remote_ip_address)).find(|r| r.mtu_successful != Some(true)) {
            None => ok("MTU is ok"),
            Some(r) => fail(format!(
                "Host cannot send full-size packets from {} to {}: check the MTU of the network",
                r.outgoing_nic.as_deref().unwrap_or("?"),
                r.remote_ip_address.as_deref().unwrap_or("?")
            )),
        }
    }

    fn platform_network(&self) -> Evaluation {
        let Some(vendor) = &inventory!(self).system_vendor else {
            return error("Cannot determine platform: the inventory has no system vendor");
        };
        let product = vendor.product_name.as_deref().unwrap_or("");
        let unmanaged = self.cluster.is_some_and(|c| c.user_managed_networking());
        match product == "OpenStack Compute" && !unmanaged {
            false => ok(format!("Platform {product} is allowed")),
            true => {
                fail(format!("Platform {product} is allowed only for Single Node OpenShift or user-managed networking"))
            }
        }
    }

    fn ntp_synced(&self) -> Evaluation {
        let env = self.scope.infra_env;
        if self.cluster.is_none() && filled(&env.additional_ntp_sources).is_none() && filled(&env.ntp_sources).is_none()
        {
            return hidden();
        }
        let synced = Some(vlab_api::types::SourceState::Synced);
        match self.host.ntp_sources.iter().flat_map(|all| all.iter()).any(|s| s.source_state == synced) {
            true => ok("Host NTP is synced"),
            false => fail("Host couldn't synchronize with any NTP server"),
        }
    }

    fn time_synced(&self) -> Evaluation {
        let Some(sent) = self.host.host.timestamp.filter(|t| *t > 0) else {
            return pending("Host has not yet sent its time");
        };
        let constants = &self.settings.constants;
        let behind = self.now.as_secs().saturating_sub(sent);
        if behind > constants.service_ahead_minutes.saturating_mul(60) {
            fail("Host clock is not synchronized with service, host clock is behind")
        } else if behind.saturating_neg() > constants.host_ahead_minutes.saturating_mul(60) {
            fail("Host clock is not synchronized with service, host clock is ahead")
        } else {
            ok("Host clock is synchronized with service")
        }
    }

    fn images(&self) -> Evaluation {
        let status = &self.host.images_status;
        let text = filled(&self.host.host.images_status);
        if status.is_empty() && text.is_some_and(|t| !matches!(t.trim(), "{}" | "null")) {
            return error("Failed to read the status of container images");
        }
        let mut bad = status.iter().filter(|(_, i)| image_failed(i)).map(|(name, _)| name.as_str()).peekable();
        match bad.peek() {
            None => {
                ok("All required container images were either pulled successfully or no attempt was made to pull them")
            }
            Some(_) => fail(format!(
                "Failed to fetch container images needed for installation from {}",
                bad.collect::<Vec<_>>().join(",")
            )),
        }
    }

    /// The answer about reaching peers where nothing has to be measured, or nothing was.
    fn peers_not_judged(&self, fine: &'static str, limit: Option<f64>) -> Result<f64, Evaluation> {
        let trivial = self.cluster.is_none()
            || self.host.is_day2()
            || self.scope.hosts.len() <= 1
            || self.role == HostRole::AutoAssign;
        match limit {
            Some(limit) if !trivial => match (self.inventory, &self.host.connectivity) {
                (Some(_), Some(_)) => Ok(limit),
                (None, _) => Err(pending(NO_INVENTORY)),
                (_, None) => Err(pending("Missing network connectivity information")),
            },
            _ => Err(ok(fine)),
        }
    }

    /// The first measurement that is too bad: with a host that has the same role, or with one that the cluster no longer has.
    fn exceeds(
        &self,
        too_bad: impl Fn(&vlab_api::types::L3Connectivity) -> bool,
    ) -> Option<(Option<&'a HostView>, &'a vlab_api::types::L3Connectivity)> {
        let remotes = self.host.connectivity.iter().flat_map(|c| c.remote_hosts.iter().flatten());
        remotes
            .filter_map(|remote| Some((remote.host_id?, remote)))
            .flat_map(|(id, remote)| remote.l3_connectivity.iter().flatten().map(move |l3| (id, l3)))
            .filter(|(_, l3)| too_bad(l3))
            .find_map(|(id, l3)| match self.scope.hosts.iter().find(|h| h.host.id == id) {
                None => Some((None, l3)),
                Some(peer) => (peer.effective_role() == self.role).then_some((Some(*peer), l3)),
            })
    }

    fn latency(&self) -> Evaluation {
        const FINE: &str = "Network latency requirement has been satisfied.";
        let limit = match self.peers_not_judged(FINE, self.needs.and_then(|n| n.latency_ms)) {
            Ok(limit) => limit,
            Err(answer) => return answer,
        };
        match self.exceeds(|l3| l3.average_rtt_ms.unwrap_or(0.0) > limit) {
            None => ok(FINE),
            Some((None, _)) => fail("The slowest answers come from a host that is no longer in the cluster".to_owned()),
            Some((Some(peer), l3)) => fail(format!(
                "Network latency to {} is {:.2} ms, more than the {limit:.2} ms that role {} allows",
                peer.hostname().unwrap_or("another host"),
                l3.average_rtt_ms.unwrap_or(0.0),
                self.role
            )),
        }
    }

    fn packet_loss(&self) -> Evaluation {
        const FINE: &str = "Packet loss requirement has been satisfied.";
        let limit = match self.peers_not_judged(FINE, self.needs.and_then(|n| n.loss_percent)) {
            Ok(limit) => limit,
            Err(answer) => return answer,
        };
        match self.exceeds(|l3| l3.packet_loss_percentage.unwrap_or(0.0) > limit) {
            None => ok(FINE),
            Some((None, _)) => {
                fail("Packets are lost on the way to a host that is no longer in the cluster".to_owned())
            }
            Some((Some(peer), l3)) => fail(format!(
                "Packet loss to {} is {:.2} %, more than the {limit:.2} % that role {} allows",
                peer.hostname().unwrap_or("another host"),
                l3.packet_loss_percentage.unwrap_or(0.0),
                self.role
            )),
        }
    }

    // --- names ---

    fn resolution(&self, name: &str) -> Option<&DomainResolutionResponseResolutions> {
        self.host.domain_name_resolutions.as_ref()?.resolutions.iter().find(|r| r.domain_name == name)
    }

    fn resolves(&self, prefix: &str, shown: &str) -> Evaluation {
        let cluster = cluster!(self, hidden());
        let name = cluster.cluster.name.as_deref().unwrap_or("");
        let base = cluster.cluster.base_dns_domain.as_deref().unwrap_or("");
        let fine = || {
            ok(format!("Domain name resolution for the {shown}.{name}.{base} domain was successful or not required"))
        };
        let own_names = cluster.is_sno() && !self.day2() && self.settings.enable_single_node_dnsmasq;
        if !cluster.user_managed_networking() || own_names {
            return fine();
        }
        if base.is_empty() || self.host.domain_name_resolutions.is_none() {
            return error("Error while evaluating DNS resolution on this host");
        }
        match self.resolution(&format!("{prefix}.{name}.{base}")) {
            Some(r) if has_answer(r) => fine(),
            _ => fail(format!(
                "Couldn't resolve domain name {shown}.{name}.{base} on the host. To continue installation, create the necessary DNS entries to resolve this domain name to your load balancer"
            )),
        }
    }

    fn no_wildcard(&self) -> Evaluation {
        let cluster = cluster!(self, ok("DNS wildcard check is not required for an unbound host"));
        if self.host.is_day2() {
            return ok("DNS wildcard check is not required for day2");
        }
        if self.host.domain_name_resolutions.is_none() {
            return match filled(&self.host.host.domain_name_resolutions) {
                None => pending(
                    "DNS wildcard check cannot be performed yet because the host has not yet performed DNS resolution",
                ),
                Some(_) => error("Error while evaluating DNS resolution on this host"),
            };
        }
        let name = cluster.cluster.name.as_deref().unwrap_or("");
        let base = cluster.cluster.base_dns_domain.as_deref().unwrap_or("");
        let bare = format!("validateNoWildcardDNS.{name}.{base}");
        match (self.resolution(&format!("{bare}.")), self.resolution(&bare)) {
            (Some(a), Some(b)) if !has_answer(a) && !has_answer(b) => ok("DNS wildcard check was successful"),
            (Some(_), Some(_)) => fail(format!(
                "DNS wildcard configuration was detected for domain *.{name}.{base} - the installation will not be able to complete while the entry exists"
            )),
            _ => error(format!("DNS wildcard check failed: the host's reply lacks {bare}")),
        }
    }

    fn subnets(&self) -> Evaluation {
        let cluster = cluster!(self, hidden());
        let inventory = inventory!(self);
        let (v4, v6) = families(cluster);
        let mut seen: Vec<(usize, IpNet)> = Vec::new();
        for (i, interface) in inventory.interfaces.iter().flatten().enumerate() {
            for network in network::interface_addresses(interface).map(|a| a.trunc()) {
                let counts = if network::is_ipv6(&network) { v6 && !network::is_link_local(&network) } else { v4 };
                if !counts {
                    continue;
                }
                if let Some((_, other)) = seen.iter().find(|(j, n)| *j != i && network::overlap(n, &network)) {
                    return fail(format!(
                        "Address networks are overlapping in the following interfaces: {other} and {network}"
                    ));
                }
                seen.push((i, network));
            }
        }
        ok("Host subnets are not overlapping")
    }

    fn ip_collisions(&self) -> Evaluation {
        let cluster = cluster!(self, ok("IP collisions are not evaluated for an unbound host"));
        if self.day2() {
            return ok("IP collisions are not evaluated on day 2");
        }
        let Some(text) = filled(&cluster.cluster.ip_collisions) else {
            return ok("IP collisions have not yet been evaluated");
        };
        if cluster.ip_collisions.is_empty() && !matches!(text.trim(), "{}" | "null") {
            return error("Unable to read the IP collisions of the cluster");
        }
        let own = self.inventory.into_iter().flat_map(network::addresses);
        let hit = |a: IpNet| cluster.ip_collisions.get_key_value(a.addr().to_string().as_str());
        let found = if cluster.ip_collisions.is_empty() { None } else { own.filter_map(hit).next() };
        match found {
            None => ok(format!("No IP collisions were detected by host {}", self.host.host.id)),
            Some((address, macs)) => fail(format!(
                "Collisions detected for host {}: address {address} is answered for by {}",
                self.host.host.id,
                macs.join(", ")
            )),
        }
    }

    fn iscsi_nic(&self) -> Evaluation {
        if self.cluster.is_none() || self.day2() || self.unmanaged_multi_node() {
            return hidden();
        }
        // Without a disk there is nothing to say, not even that something is missing.
        let Some(disk) = self.host.installation_disk() else { return hidden() };
        let (Some(inventory), true) = (self.inventory, self.has_machine_network) else { return pending(NO_NETWORK) };
        if disk.drive_type != Some(DriveType::ISCSI) {
            return hidden();
        }
        let Some(address) =
            disk.iscsi.as_ref().and_then(|i| filled(&i.host_ip_address)).and_then(|a| a.parse::<IpAddr>().ok())
        else {
            return error("Cannot find the host's address on the network of the iSCSI installation disk");
        };
        let nic = network::addresses(inventory).find(|a| a.addr() == address);
        let inside = |n: &IpNet| n.contains(&address) || nic.is_some_and(|nic| network::overlap(n, &nic.trunc()));
        match self.machine_networks.iter().any(inside) {
            true => fail(format!(
                "Network interface connected to iSCSI disk cannot belong to machine network CIDRs; its address is {address}"
            )),
            false => ok("Network interface connected to iSCSI disk does not belong to machine network CIDRs"),
        }
    }

    // --- operators ---

    fn operator(&self, name: &'static str) -> Evaluation {
        let cluster = cluster!(self, hidden());
        if !cluster.has_operator(name) {
            return super::operator_off(name);
        }
        if self.day2() {
            return ok(format!("{name} is not evaluated on day 2"));
        }
        let inventory = inventory!(self);
        let short = |why: String| fail(format!("{name}: {why}"));
        match name {
            "lso" => ok("lso has no requirements of a host"),
            // Their cores and memory are part of what the role needs.
            "mtv" | "osc" => match self.role_fits(inventory) {
                true => ok(format!("{name} requirements are satisfied")),
                false => short("not enough cores or memory beside what the role needs".to_owned()),
            },
            "lvm" => {
                let all = inventory.disks.as_deref().unwrap_or(&[]);
                let need = Need::new(0, cluster.openshift_version(), inventory);
                let boot = filled(&self.host.host.installation_disk_id);
                let spare = |d: &&Disk| {
                    Some(disks::identifier(d)) != boot && d.size_bytes != Some(0) && disks::is_eligible(d, all, &need)
                };
                match (all.iter().any(|d| spare(&d)), self.role_fits(inventory)) {
                    (true, true) => ok("lvm requirements are satisfied"),
                    (false, _) => short("a disk beside the installation disk is needed".to_owned()),
                    (_, false) => short("not enough cores or memory beside what the role needs".to_owned()),
                }
            }
            "cnv" => {
                let flags = inventory.cpu.as_ref().and_then(|c| c.flags.as_deref()).unwrap_or(&[]);
                match (flags.iter().any(|f| f == "vmx" || f == "svm"), self.role_fits(inventory)) {
                    (true, true) => ok("cnv requirements are satisfied"),
                    (false, _) => short("CPU does not have virtualization support".to_owned()),
                    (_, false) => short("not enough cores or memory beside what the role needs".to_owned()),
                }
            }
            "mce" => {
                let (cpu, gib) = if cluster.is_sno() { (8, 32) } else { (4, 16) };
                let usable = inventory.memory.as_ref().and_then(|m| m.usable_bytes).unwrap_or(0);
                match roles::cpu_count(inventory) >= cpu && usable >= gib << 30 {
                    true => ok("mce requirements are satisfied"),
                    false => short(format!("{cpu} CPU cores and {gib} GiB of usable memory are needed")),
                }
            }
            _ => short(NOT_EVALUATED.to_owned()),
        }
    }

    fn role_fits(&self, inventory: &Inventory) -> bool {
        self.needs.is_some_and(|n| {
            roles::cpu_count(inventory) >= n.cpu_cores
                && roles::memory_suffices(roles::memory_bytes(inventory), n.ram_mib)
        })
    }

    /// Is the answer of that validation a success that is not shown, because of the stage that the host is in?
    pub(super) fn hidden_by_stage(&self, stages: &[vlab_api::types::HostStage]) -> bool {
        self.host.stage().is_some_and(|s| stages.contains(&s))
    }
}

/// Did pulling the image fail, or was it too slow to be of use?
fn image_failed(image: &vlab_api::types::ContainerImageAvailability) -> bool {
    let slow = image.size_bytes.unwrap_or(0.0) > 0.0 && image.download_rate.unwrap_or(0.0) < MIN_DOWNLOAD_RATE;
    image.result.as_deref() == Some("failure") || slow
}

/// Images that come in more slowly count as not available (the unit is the agent's: megabytes a second).
const MIN_DOWNLOAD_RATE: f64 = 0.001;

fn has_answer(r: &DomainResolutionResponseResolutions) -> bool {
    let any = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|l| !l.is_empty());
    any(&r.ipv4_addresses) || any(&r.ipv6_addresses) || any(&r.cnames)
}

/// IP versions of the cluster's networks: IPv4, IPv6. A cluster that names no network counts as IPv4.
fn families(cluster: &ClusterView) -> (bool, bool) {
    let mut found = (false, false);
    let networks = cluster.cluster_networks().iter().filter_map(|n| filled(&n.cidr));
    let services = cluster.service_networks().iter().filter_map(|n| filled(&n.cidr));
    for text in networks.chain(services).chain(cluster.machine_network_texts()) {
        match text.contains(':') {
            true => found.1 = true,
            false => found.0 = true,
        }
    }
    if found == (false, false) { (true, false) } else { found }
}

/// The form of a host name, as the messages show it.
pub const HOSTNAME_PATTERN: &str = "^[a-z0-9][a-z0-9-]{0,62}(?:[.][a-z0-9-]{1,63})*$";

/// Names that every machine has.
pub const FORBIDDEN_HOSTNAMES: &[&str] = &[
    "localhost",
    "localhost.localdomain",
    "localhost4",
    "localhost4.localdomain4",
    "localhost6",
    "localhost6.localdomain6",
];

/// Is it a name that a host may have: of the form [`HOSTNAME_PATTERN`] and not one of [`FORBIDDEN_HOSTNAMES`]?
pub fn valid_hostname(name: &str) -> bool {
    let label =
        |l: &str| (1..=63).contains(&l.len()) && l.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    !name.starts_with('-') && name.split('.').all(label) && !FORBIDDEN_HOSTNAMES.contains(&name)
}

/// An amount of memory as the service writes it: GiB with two digits behind the point, below that whole numbers.
fn in_words(bytes: i64) -> String {
    match bytes {
        b if b >= 1 << 40 => format!("{:.2} TiB", b as f64 / (1_i64 << 40) as f64),
        b if b >= 1 << 30 => format!("{:.2} GiB", b as f64 / (1_i64 << 30) as f64),
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} bytes"),
    }
}
