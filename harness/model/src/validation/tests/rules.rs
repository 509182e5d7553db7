//! Every rule from both sides, the tables, and laws.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::*;

use crate::network::MajorityGroups;
use crate::settings::Settings;
use crate::validation::ValidationStatus::{self, *};
use crate::validation::*;
use crate::view::{ClusterView, HostView, Scope};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// A cluster with its hosts, and what the service is set to. The first host is the one that is judged.
struct World {
    cluster: Option<ClusterView>,
    hosts: Vec<HostView>,
    infra_env: InfraEnv,
    settings: Settings,
}

fn inventory(i: usize) -> Inventory {
    serde_json::from_value(json!({
        "hostname": format!("host-{i}"), "cpu": {"count": 8, "architecture": "x86_64", "flags": ["vmx"]},
        "memory": {"physical_bytes": 34359738368i64, "usable_bytes": 34359738368i64},
        "disks": [{"id": "/dev/disk/by-id/wwn-0x1", "name": "sda", "path": "/dev/sda", "drive_type": "SSD", "size_bytes": 128849018880i64}],
        "interfaces": [
            {"name": "eth0", "type": "physical", "mac_address": format!("52:54:00:00:00:{i:02x}"),
             "ipv4_addresses": [format!("192.168.126.{}/24", 10 + i)], "ipv6_addresses": []},
            {"name": "eth1", "type": "physical", "mac_address": format!("52:54:00:00:01:{i:02x}"),
             "ipv4_addresses": [format!("10.7.0.{}/24", 10 + i)], "ipv6_addresses": []}],
        "routes": [{"destination": "0.0.0.0", "gateway": "192.168.126.1", "interface": "eth0", "family": 2}],
        "system_vendor": {"manufacturer": "Fake", "product_name": "Box"}, "tpm_version": "none"
    }))
    .unwrap()
}

fn id(i: usize) -> Uuid {
    Uuid::from_u128(0x1000 + i as u128)
}

fn connectivity(from: usize, n: usize) -> ConnectivityReport {
    let remote = |to: usize| {
        let ip = format!("192.168.126.{}", 10 + to);
        json!({"host_id": id(to),
            "l2_connectivity": [{"outgoing_nic": "eth0", "remote_ip_address": ip, "remote_mac": format!("52:54:00:00:00:{to:02x}"), "successful": true}],
            "l3_connectivity": [{"outgoing_nic": "eth0", "remote_ip_address": ip, "successful": true, "average_rtt_ms": 0.5, "packet_loss_percentage": 0.0}],
            "mtu_report": [{"outgoing_nic": "eth0", "remote_ip_address": ip, "mtu_successful": true}]})
    };
    let remotes: Vec<_> = (0..n).filter(|to| *to != from).map(remote).collect();
    serde_json::from_value(json!({"remote_hosts": remotes})).unwrap()
}

fn resolutions(cluster: &str) -> DomainResolutionResponse {
    let found = |name: &str| json!({"domain_name": format!("{name}.{cluster}"), "ipv4_addresses": ["192.168.126.2"]});
    let none =
        |dot: &str| json!({"domain_name": format!("validateNoWildcardDNS.{cluster}{dot}"), "ipv4_addresses": []});
    serde_json::from_value(json!({"resolutions": [
        found("api"), found("api-int"), found("console-openshift-console.apps"), none("."), none("")
    ]}))
    .unwrap()
}

/// Three masters and two workers with which everything is right.
fn ha() -> World {
    world(5, |c| {
        c.api_vips = Some(vec![ApiVip {
            ip: Some("192.168.126.100".into()),
            verification: Some(VipVerification::Succeeded),
            ..Default::default()
        }]);
        c.ingress_vips = Some(vec![IngressVip {
            ip: Some("192.168.126.101".into()),
            verification: Some(VipVerification::Succeeded),
            ..Default::default()
        }]);
        c.control_plane_count = Some(3);
    })
}

fn sno() -> World {
    world(1, |c| {
        c.control_plane_count = Some(1);
        c.user_managed_networking = Some(true);
        c.platform = Some(Platform { type_: PlatformType::None, external: None });
    })
}

fn unbound() -> World {
    let mut w = world(1, |_| {});
    w.cluster = None;
    w.hosts[0].host.cluster_id = None;
    w.hosts[0].host.role = Some(HostRole::AutoAssign);
    w
}

fn world(n: usize, change: impl FnOnce(&mut Cluster)) -> World {
    let settings = Settings::default();
    let mut cluster = Cluster {
        kind: "Cluster".into(),
        id: Uuid::from_u128(1),
        name: Some("lab".into()),
        base_dns_domain: Some("example.com".into()),
        openshift_version: Some("4.16.68".into()),
        platform: Some(Platform { type_: PlatformType::Baremetal, external: None }),
        machine_networks: Some(vec![MachineNetwork { cidr: Some("192.168.126.0/24".into()), ..Default::default() }]),
        cluster_networks: Some(vec![ClusterNetwork {
            cidr: Some("10.128.0.0/14".into()),
            host_prefix: Some(23),
            ..Default::default()
        }]),
        service_networks: Some(vec![ServiceNetwork { cidr: Some("172.30.0.0/16".into()), ..Default::default() }]),
        network_type: Some("OVNKubernetes".into()),
        pull_secret_set: Some(true),
        ..Default::default()
    };
    change(&mut cluster);
    let mut cluster = ClusterView::new(cluster);
    let hosts: Vec<HostView> = (0..n)
        .map(|i| {
            let mut h = HostView::new(Host {
                kind: "Host".into(),
                id: id(i),
                cluster_id: Some(Uuid::from_u128(1)),
                status: HostStatus::Known,
                role: Some(if i < 3 { HostRole::Master } else { HostRole::Worker }),
                checked_in_at: Some(NOW),
                timestamp: Some(NOW.as_secs()),
                discovery_agent_version: Some(settings.agent_docker_image.clone()),
                installation_disk_id: Some("/dev/disk/by-id/wwn-0x1".into()),
                ..Default::default()
            });
            h.set_inventory(inventory(i));
            h.set_connectivity(connectivity(i, n));
            h.set_domain_name_resolutions(resolutions("lab.example.com"));
            h.set_ntp_sources(vec![NtpSource {
                source_name: Some("clock".into()),
                source_state: Some(SourceState::Synced),
            }]);
            h
        })
        .collect();
    let refs: Vec<&HostView> = hosts.iter().collect();
    let groups = crate::network::majority_groups(&cluster, &refs);
    cluster.set_majority_groups(groups);
    cluster.set_ip_collisions(crate::network::ip_collisions(&refs));
    World { cluster: Some(cluster), hosts, infra_env: InfraEnv::default(), settings }
}

impl World {
    fn host(&self) -> HostValidations {
        let refs: Vec<&HostView> = self.hosts.iter().collect();
        let hosts = if self.cluster.is_some() { refs.as_slice() } else { &[] };
        let scope = Scope { infra_env: &self.infra_env, cluster: self.cluster.as_ref(), hosts };
        evaluate_host(refs[0], &scope, &self.settings, NOW)
    }

    fn cluster(&self) -> ClusterValidations {
        let refs: Vec<&HostView> = self.hosts.iter().collect();
        evaluate_cluster(self.cluster.as_ref().unwrap(), &refs, &self.settings, NOW)
    }

    fn inv(&mut self, change: impl FnOnce(&mut Inventory)) {
        let mut inventory = self.hosts[0].inventory.as_deref().unwrap().clone();
        change(&mut inventory);
        self.hosts[0].set_inventory(inventory);
    }

    fn conn(&mut self, change: impl Fn(&mut ConnectivityRemoteHost)) {
        let mut c = self.hosts[0].connectivity.as_deref().unwrap().clone();
        c.remote_hosts.iter_mut().flatten().for_each(change);
        self.hosts[0].set_connectivity(c);
    }

    fn h(&mut self) -> &mut Host {
        &mut self.hosts[0].host
    }

    fn c(&mut self) -> &mut Cluster {
        &mut self.cluster.as_mut().unwrap().cluster
    }

    fn view(&mut self) -> &mut ClusterView {
        self.cluster.as_mut().unwrap()
    }
}

/// What must come out: a status, or an entry that is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Is(ValidationStatus),
    Hidden,
}
use Want::{Hidden, Is};

type Row<I> = (I, &'static str, fn() -> World, fn(&mut World), Want);

const MIB: i64 = 1 << 20;

fn ram(w: &mut World, bytes: i64) {
    w.inv(|i| i.memory.as_mut().unwrap().physical_bytes = Some(bytes));
}

fn cores(w: &mut World, n: i64) {
    w.inv(|i| i.cpu.as_mut().unwrap().count = Some(n));
}

fn disk(w: &mut World, change: fn(&mut Disk)) {
    w.inv(|i| change(&mut i.disks.as_mut().unwrap()[0]));
}

fn named(w: &mut World, name: &str) {
    w.h().requested_hostname = Some(name.into());
}

fn resolve(w: &mut World, change: fn(&mut DomainResolutionResponseResolutions)) {
    let mut r = DomainResolutionResponse::clone(w.hosts[0].domain_name_resolutions.as_ref().unwrap());
    r.resolutions.iter_mut().for_each(change);
    w.hosts[0].set_domain_name_resolutions(r);
}

fn image(w: &mut World, result: &str, size: f64, rate: f64) {
    let image = ContainerImageAvailability {
        result: Some(result.into()),
        size_bytes: Some(size),
        download_rate: Some(rate),
        ..Default::default()
    };
    w.hosts[0].set_images_status(BTreeMap::from([("image".to_owned(), image)]));
}

fn speed(w: &mut World, exit_code: i64) {
    let info = DiskInfo {
        disk_speed: Some(DiskSpeed { tested: Some(true), exit_code: Some(exit_code), speed_ms: Some(500) }),
        ..Default::default()
    };
    w.hosts[0].set_disks_info(BTreeMap::from([("/dev/disk/by-id/wwn-0x1".to_owned(), info)]));
}

fn vendor(w: &mut World, manufacturer: &str) {
    w.inv(|i| i.system_vendor.as_mut().unwrap().manufacturer = Some(manufacturer.into()));
}

fn encrypt(w: &mut World, on: &str, mode: &str) {
    w.c().disk_encryption =
        Some(DiskEncryption { enable_on: Some(on.into()), mode: Some(mode.into()), tang_servers: None });
}

fn tang(w: &mut World, is_success: bool) {
    w.hosts[0].set_tang_connectivity(TangConnectivityResponse { is_success: Some(is_success), ..Default::default() });
}

fn day2(w: &mut World) {
    w.c().kind = "AddHostsCluster".into();
    w.h().kind = "AddToExistingClusterHost".into();
}

/// The cluster is installed, and hosts are added to it: those that are there are what they were.
fn others_are_added(w: &mut World) {
    w.c().kind = "AddHostsCluster".into();
}

fn unmanaged(w: &mut World) {
    w.c().user_managed_networking = Some(true);
}

fn forget_inventory(w: &mut World) {
    w.hosts[0].set_inventory(None);
}

fn no_machine_network(w: &mut World) {
    w.c().machine_networks = None;
}

fn user_load_balancer(w: &mut World) {
    w.c().load_balancer = Some(LoadBalancer { type_: Some("user-managed".into()) });
}

fn stage(w: &mut World, stage: HostStage) {
    w.h().progress = Some(HostProgressInfo { current_stage: Some(stage), ..Default::default() });
}

fn iscsi(w: &mut World, address: &str) {
    w.inv(|i| {
        let disk = &mut i.disks.as_mut().unwrap()[0];
        disk.drive_type = Some(DriveType::ISCSI);
        disk.iscsi = Some(Iscsi { host_ip_address: Some(address.into()) });
    });
}

fn operator(w: &mut World, name: &str) {
    let operator =
        MonitoredOperator { name: Some(name.into()), operator_type: Some(OperatorType::Olm), ..Default::default() };
    w.c().monitored_operators = Some(vec![operator]);
}

fn silent(w: &mut World, micros_short_of: i64) {
    let limit = w.settings.max_disconnection(w.hosts[0].is_bootstrap());
    w.h().checked_in_at = Some(
        NOW - limit + std::time::Duration::from_micros(2)
            - std::time::Duration::from_micros((2 - micros_short_of) as u64),
    );
}

#[rustfmt::skip]
#[expect(clippy::too_many_lines, reason = "a table: a row for each validation and its limits")]
fn host_rows() -> Vec<Row<HostValidationId>> {
    use HostValidationId as V;
    vec![
        (V::Connected, "silent for just the limit", ha, |w| silent(w, 0), Is(Success)),
        (V::Connected, "a microsecond more", ha, |w| silent(w, -1), Is(Failure)),
        (V::Connected, "the bootstrap may be silent for longer", ha, |w| { silent(w, -1); w.h().bootstrap = Some(true); }, Is(Success)),
        (V::Connected, "after the reboot nobody expects it", ha, |w| { silent(w, -1); stage(w, HostStage::Rebooting); }, Hidden),
        (V::Connected, "before the reboot it counts", ha, |w| { silent(w, -1); stage(w, HostStage::WritingImageToDisk); }, Is(Failure)),
        (V::MediaConnected, "", ha, |w| w.h().media_status = Some("disconnected".into()), Is(Failure)),
        (V::HasInventory, "", ha, forget_inventory, Is(Failure)),
        (V::InventoryNotPartiallyTruncated, "", ha, |w| w.inv(|i| i.truncation = Some(InventoryTruncation { type_: "partial".into(), reasons: None })), Is(Failure)),
        (V::InventoryNotFullyTruncated, "part is not all", ha, |w| w.inv(|i| i.truncation = Some(InventoryTruncation { type_: "partial".into(), reasons: None })), Is(Success)),
        (V::InventoryNotFullyTruncated, "", ha, |w| w.inv(|i| i.truncation = Some(InventoryTruncation { type_: "full".into(), reasons: None })), Is(Failure)),
        (V::HasMinCpuCores, "2", ha, |w| cores(w, 2), Is(Success)),
        (V::HasMinCpuCores, "1", ha, |w| cores(w, 1), Is(Failure)),
        (V::HasMinCpuCores, "", ha, forget_inventory, Is(Pending)),
        (V::HasMinCpuCores, "no requirements", ha, |w| w.settings.hw_validator_requirements.clear(), Is(Error)),
        (V::HasMinMemory, "the tolerance", ha, |w| ram(w, 8092 * MIB), Is(Success)),
        (V::HasMinMemory, "below it", ha, |w| ram(w, 8092 * MIB - 1), Is(Failure)),
        (V::HasMinMemory, "2 % more for the kernel's figure", ha, |w| { ram(w, 8092 * MIB - 100 * MIB); w.inv(|i| i.memory.as_mut().unwrap().physical_bytes_method = Some("meminfo".into())) }, Is(Success)),
        (V::HasMinValidDisks, "100 GB", ha, |w| disk(w, |d| d.size_bytes = Some(100_000_000_000)), Is(Success)),
        (V::HasMinValidDisks, "a byte less", ha, |w| disk(w, |d| d.size_bytes = Some(99_999_999_999)), Is(Failure)),
        (V::HasMinValidDisks, "no disks", ha, |w| w.inv(|i| i.disks = None), Is(Error)),
        (V::HasCpuCoresForRole, "a master's 4", ha, |w| cores(w, 4), Is(Success)),
        (V::HasCpuCoresForRole, "3", ha, |w| cores(w, 3), Is(Failure)),
        (V::HasCpuCoresForRole, "3 are enough for a worker", ha, |w| { cores(w, 3); w.h().role = Some(HostRole::Worker) }, Is(Success)),
        (V::HasCpuCoresForRole, "and for one without a role", ha, |w| { cores(w, 3); w.h().role = Some(HostRole::AutoAssign) }, Is(Success)),
        (V::HasCpuCoresForRole, "8 for a single node", sno, |w| cores(w, 8), Is(Success)),
        (V::HasCpuCoresForRole, "7 for a single node", sno, |w| cores(w, 7), Is(Failure)),
        (V::HasMemoryForRole, "a master's 16 GiB less the tolerance", ha, |w| ram(w, 16284 * MIB), Is(Success)),
        (V::HasMemoryForRole, "below it", ha, |w| ram(w, 16284 * MIB - 1), Is(Failure)),
        (V::HostnameUnique, "", ha, |w| named(w, "host-1"), Is(Failure)),
        (V::HostnameUnique, "the other has no inventory", ha, |w| { named(w, "host-1"); w.hosts[1].set_inventory(None) }, Is(Success)),
        (V::HostnameValid, "", ha, |w| named(w, "localhost"), Is(Failure)),
        (V::HostnameValid, "no inventory", ha, forget_inventory, Is(Failure)),
        (V::SufficientInstallationDiskSpeed, "slow but done", ha, |w| speed(w, 0), Is(Success)),
        (V::SufficientInstallationDiskSpeed, "", ha, |w| speed(w, 1), Is(Failure)),
        (V::SufficientInstallationDiskSpeed, "no inventory", ha, forget_inventory, Is(Error)),
        (V::NoSkipInstallationDisk, "no inventory", ha, forget_inventory, Is(Success)),
        (V::NoIscsiNicBelongsToMachineCidr, "no inventory", ha, forget_inventory, Hidden),
        (V::CompatibleWithClusterPlatform, "", ha, |w| w.c().platform.as_mut().unwrap().type_ = PlatformType::Nutanix, Is(Failure)),
        (V::CompatibleWithClusterPlatform, "its vendor", ha, |w| { w.c().platform.as_mut().unwrap().type_ = PlatformType::Nutanix; vendor(w, "Nutanix") }, Is(Success)),
        (V::DiskEncryptionRequirementsSatisfied, "off", ha, |_| (), Hidden),
        (V::DiskEncryptionRequirementsSatisfied, "another role", ha, |w| encrypt(w, "workers", "tpmv2"), Hidden),
        (V::DiskEncryptionRequirementsSatisfied, "no TPM", ha, |w| encrypt(w, "masters", "tpmv2"), Is(Failure)),
        (V::DiskEncryptionRequirementsSatisfied, "old TPM", ha, |w| { encrypt(w, "all", "tpmv2"); w.inv(|i| i.tpm_version = Some("1.2".into())) }, Is(Failure)),
        (V::DiskEncryptionRequirementsSatisfied, "TPM", ha, |w| { encrypt(w, "all", "tpmv2"); w.inv(|i| i.tpm_version = Some("2.0".into())) }, Is(Success)),
        (V::DiskEncryptionRequirementsSatisfied, "tang not asked", ha, |w| encrypt(w, "all", "tang"), Is(Pending)),
        (V::DiskEncryptionRequirementsSatisfied, "tang", ha, |w| { encrypt(w, "all", "tang"); tang(w, true) }, Is(Success)),
        (V::DiskEncryptionRequirementsSatisfied, "no tang", ha, |w| { encrypt(w, "all", "tang"); tang(w, false) }, Is(Failure)),
        (V::VsphereDiskUuidEnabled, "not VMware", ha, |_| (), Hidden),
        (V::VsphereDiskUuidEnabled, "", ha, |w| vendor(w, "VMware, Inc."), Is(Failure)),
        (V::VsphereDiskUuidEnabled, "", ha, |w| { vendor(w, "VMware, Inc."); disk(w, |d| d.has_uuid = Some(true)) }, Is(Success)),
        (V::CompatibleAgent, "", ha, |w| w.h().discovery_agent_version = Some("other".into()), Is(Failure)),
        (V::CompatibleAgent, "no upgrades", ha, |w| { w.h().discovery_agent_version = None; w.settings.enable_upgrade_agent = false }, Is(Success)),
        (V::CompatibleAgent, "in a stage", ha, |w| { w.h().discovery_agent_version = None; stage(w, HostStage::Installing) }, Hidden),
        (V::NoSkipInstallationDisk, "", ha, |w| w.h().skip_formatting_disks = Some("/dev/disk/by-id/wwn-0x1".into()), Is(Failure)),
        (V::NoSkipMissingDisk, "", ha, |w| w.h().skip_formatting_disks = Some("/dev/disk/by-id/wwn-0x1,/dev/none".into()), Is(Failure)),
        (V::NoSkipMissingDisk, "it is there", ha, |w| w.h().skip_formatting_disks = Some("/dev/disk/by-id/wwn-0x1".into()), Is(Success)),
        (V::MachineCidrDefined, "", ha, no_machine_network, Is(Failure)),
        (V::MachineCidrDefined, "user-managed", ha, |w| { no_machine_network(w); unmanaged(w) }, Is(Success)),
        (V::MachineCidrDefined, "unbound", unbound, |_| (), Hidden),
        (V::BelongsToMachineCidr, "", ha, no_machine_network, Is(Pending)),
        (V::BelongsToMachineCidr, "", ha, |w| w.inv(|i| { i.interfaces.as_mut().unwrap().remove(0); }), Is(Failure)),
        (V::BelongsToMachineCidr, "user-managed", ha, |w| { unmanaged(w); w.inv(|i| i.interfaces = None) }, Is(Success)),
        (V::BelongsToMachineCidr, "user-managed, but the bootstrap", ha, |w| { unmanaged(w); w.h().bootstrap = Some(true); w.inv(|i| i.interfaces = None) }, Is(Failure)),
        (V::BelongsToMachineCidr, "one of two", ha, |w| w.c().machine_networks.as_mut().unwrap().push(MachineNetwork { cidr: Some("10.9.0.0/24".into()), ..Default::default() }), Is(Failure)),
        (V::BelongsToMachineCidr, "one of two is enough", ha, |w| { user_load_balancer(w); w.c().machine_networks.as_mut().unwrap().push(MachineNetwork { cidr: Some("10.9.0.0/24".into()), ..Default::default() }) }, Is(Success)),
        (V::IgnitionDownloadable, "day 1", ha, |_| (), Hidden),
        (V::IgnitionDownloadable, "", ha, day2, Is(Pending)),
        (V::IgnitionDownloadable, "a host of the cluster to which others are added", ha, others_are_added, Hidden),
        (V::IgnitionDownloadable, "", ha, |w| { day2(w); w.hosts[0].set_api_vip_connectivity(ApiVipConnectivityResponse { is_success: Some(true), ..Default::default() }) }, Is(Success)),
        (V::IgnitionDownloadable, "", ha, |w| { day2(w); w.hosts[0].set_api_vip_connectivity(ApiVipConnectivityResponse { is_success: Some(false), ..Default::default() }) }, Is(Failure)),
        (V::BelongsToMajorityGroup, "", ha, |w| w.view().set_majority_groups(None), Is(Pending)),
        (V::BelongsToMajorityGroup, "two hosts", ha, |w| { w.hosts.truncate(2); w.view().set_majority_groups(MajorityGroups::default()) }, Is(Pending)),
        (V::BelongsToMajorityGroup, "two that are left of a group", ha, |w| w.hosts.truncate(2), Is(Success)),
        (V::BelongsToMajorityGroup, "three hosts", ha, |w| w.hosts.truncate(3), Is(Success)),
        (V::BelongsToMajorityGroup, "not a member", ha, |w| w.h().id = Uuid::from_u128(9), Is(Failure)),
        (V::BelongsToMajorityGroup, "user-managed: by layer 3", ha, unmanaged, Is(Success)),
        (V::BelongsToMajorityGroup, "user-managed: not reached", ha, |w| { unmanaged(w); w.view().l3_connected_addresses.clear() }, Is(Failure)),
        (V::BelongsToMajorityGroup, "single node", sno, |_| (), Is(Success)),
        (V::MtuValid, "", ha, |w| w.hosts[0].set_connectivity(None), Is(Pending)),
        (V::MtuValid, "", ha, |w| w.conn(|r| r.mtu_report.as_mut().unwrap()[0].mtu_successful = Some(false)), Is(Failure)),
        (V::MtuValid, "false is left out on the wire", ha, |w| w.conn(|r| r.mtu_report.as_mut().unwrap()[0].mtu_successful = None), Is(Failure)),
        (V::MtuValid, "another network", ha, |w| w.conn(|r| r.mtu_report = Some(vec![MtuReport { remote_ip_address: Some("10.7.0.11".into()), mtu_successful: Some(false), outgoing_nic: None }])), Is(Success)),
        (V::MtuValid, "single node", sno, |_| (), Hidden),
        (V::ValidPlatformNetworkSettings, "", ha, |w| w.inv(|i| i.system_vendor.as_mut().unwrap().product_name = Some("OpenStack Compute".into())), Is(Failure)),
        (V::ValidPlatformNetworkSettings, "user-managed", ha, |w| { unmanaged(w); w.inv(|i| i.system_vendor.as_mut().unwrap().product_name = Some("OpenStack Compute".into())) }, Is(Success)),
        (V::ValidPlatformNetworkSettings, "no vendor", ha, |w| w.inv(|i| i.system_vendor = None), Is(Error)),
        (V::NtpSynced, "", ha, |w| w.hosts[0].set_ntp_sources(None), Is(Failure)),
        (V::NtpSynced, "seen but not synced", ha, |w| w.hosts[0].set_ntp_sources(vec![NtpSource { source_name: None, source_state: Some(SourceState::Combined) }]), Is(Failure)),
        (V::NtpSynced, "unbound", unbound, |_| (), Hidden),
        (V::TimeSyncedBetweenHostAndService, "", ha, |w| w.h().timestamp = None, Is(Pending)),
        (V::TimeSyncedBetweenHostAndService, "20 min behind", ha, |w| w.h().timestamp = Some(NOW.as_secs() - 1200), Is(Success)),
        (V::TimeSyncedBetweenHostAndService, "a second more", ha, |w| w.h().timestamp = Some(NOW.as_secs() - 1201), Is(Failure)),
        (V::TimeSyncedBetweenHostAndService, "60 min ahead", ha, |w| w.h().timestamp = Some(NOW.as_secs() + 3600), Is(Success)),
        (V::TimeSyncedBetweenHostAndService, "a second more", ha, |w| w.h().timestamp = Some(NOW.as_secs() + 3601), Is(Failure)),
        (V::ContainerImagesAvailable, "", ha, |w| image(w, "success", 100.0, 0.001), Is(Success)),
        (V::ContainerImagesAvailable, "too slow", ha, |w| image(w, "success", 100.0, 0.0009), Is(Failure)),
        (V::ContainerImagesAvailable, "was there already", ha, |w| image(w, "success", 0.0, 0.0), Is(Success)),
        (V::ContainerImagesAvailable, "", ha, |w| image(w, "failure", 0.0, 0.0), Is(Failure)),
        (V::ContainerImagesAvailable, "not readable", ha, |w| w.h().images_status = Some("x".into()), Is(Error)),
        (V::SufficientNetworkLatencyRequirementForRole, "at the limit", ha, |w| w.conn(|r| r.l3_connectivity.as_mut().unwrap()[0].average_rtt_ms = Some(100.0)), Is(Success)),
        (V::SufficientNetworkLatencyRequirementForRole, "above it", ha, |w| w.conn(|r| r.l3_connectivity.as_mut().unwrap()[0].average_rtt_ms = Some(100.1)), Is(Failure)),
        (V::SufficientNetworkLatencyRequirementForRole, "workers may be slower", ha, |w| { w.h().role = Some(HostRole::Worker); w.conn(|r| r.l3_connectivity.as_mut().unwrap()[0].average_rtt_ms = Some(1000.0)) }, Is(Success)),
        (V::SufficientNetworkLatencyRequirementForRole, "only its own role counts", ha, |w| w.conn(|r| if r.host_id > Some(id(2)) { r.l3_connectivity.as_mut().unwrap()[0].average_rtt_ms = Some(5000.0) }), Is(Success)),
        (V::SufficientNetworkLatencyRequirementForRole, "a host that has left", ha, |w| w.conn(|r| { r.host_id = Some(id(99)); r.l3_connectivity.as_mut().unwrap()[0].average_rtt_ms = Some(100.1) }), Is(Failure)),
        (V::SufficientNetworkLatencyRequirementForRole, "quick to a host that has left", ha, |w| w.conn(|r| r.host_id = Some(id(99))), Is(Success)),
        (V::SufficientPacketLossRequirementForRole, "a host that has left", ha, |w| w.conn(|r| { r.host_id = Some(id(99)); r.l3_connectivity.as_mut().unwrap()[0].packet_loss_percentage = Some(90.0) }), Is(Failure)),
        (V::SufficientNetworkLatencyRequirementForRole, "", ha, |w| w.hosts[0].set_connectivity(None), Is(Pending)),
        (V::SufficientPacketLossRequirementForRole, "", ha, |w| w.conn(|r| r.l3_connectivity.as_mut().unwrap()[0].packet_loss_percentage = Some(0.1)), Is(Failure)),
        (V::SufficientPacketLossRequirementForRole, "workers may lose 10 %", ha, |w| { w.h().role = Some(HostRole::Worker); w.conn(|r| r.l3_connectivity.as_mut().unwrap()[0].packet_loss_percentage = Some(10.0)) }, Is(Success)),
        (V::SufficientPacketLossRequirementForRole, "but not more", ha, |w| { w.h().role = Some(HostRole::Worker); w.conn(|r| r.l3_connectivity.as_mut().unwrap()[0].packet_loss_percentage = Some(10.1)) }, Is(Failure)),
        (V::HasDefaultRoute, "", ha, forget_inventory, Is(Pending)),
        (V::HasDefaultRoute, "no gateway", ha, |w| w.inv(|i| i.routes.as_mut().unwrap()[0].gateway = None), Is(Failure)),
        (V::HasDefaultRoute, "IPv6", ha, |w| w.inv(|i| { let r = &mut i.routes.as_mut().unwrap()[0]; r.destination = Some("::".into()); r.gateway = Some("fe80::1".into()) }), Is(Success)),
        (V::ApiDomainNameResolvedCorrectly, "managed", ha, |w| w.hosts[0].set_domain_name_resolutions(None), Is(Success)),
        (V::ApiDomainNameResolvedCorrectly, "", sno, |w| w.hosts[0].set_domain_name_resolutions(None), Is(Error)),
        (V::ApiDomainNameResolvedCorrectly, "", sno, |w| resolve(w, |r| r.ipv4_addresses = None), Is(Failure)),
        (V::ApiDomainNameResolvedCorrectly, "dnsmasq", sno, |w| { w.settings.enable_single_node_dnsmasq = true; resolve(w, |r| r.ipv4_addresses = None) }, Is(Success)),
        (V::ApiDomainNameResolvedCorrectly, "unbound", unbound, |_| (), Hidden),
        (V::ApiIntDomainNameResolvedCorrectly, "", sno, |w| resolve(w, |r| r.ipv4_addresses = None), Is(Failure)),
        (V::ApiIntDomainNameResolvedCorrectly, "", sno, |_| (), Is(Success)),
        (V::AppsDomainNameResolvedCorrectly, "", sno, |w| resolve(w, |r| r.ipv4_addresses = None), Is(Failure)),
        (V::AppsDomainNameResolvedCorrectly, "a cname is enough", sno, |w| resolve(w, |r| { r.ipv4_addresses = None; r.cnames = Some(vec!["x".into()]) }), Is(Success)),
        (V::DnsWildcardNotConfigured, "", ha, |w| w.hosts[0].set_domain_name_resolutions(None), Is(Pending)),
        (V::DnsWildcardNotConfigured, "", ha, |w| resolve(w, |r| r.ipv4_addresses = Some(vec!["1.2.3.4".into()])), Is(Failure)),
        (V::DnsWildcardNotConfigured, "a name is missing", ha, |w| w.hosts[0].set_domain_name_resolutions(DomainResolutionResponse::default()), Is(Error)),
        (V::DnsWildcardNotConfigured, "day 2", ha, |w| { day2(w); w.hosts[0].set_domain_name_resolutions(None) }, Is(Success)),
        (V::NonOverlappingSubnets, "", ha, |w| w.inv(|i| i.interfaces.as_mut().unwrap()[1].ipv4_addresses = Some(vec!["192.168.126.200/25".into()])), Is(Failure)),
        (V::NonOverlappingSubnets, "twice on one interface", ha, |w| w.inv(|i| i.interfaces.as_mut().unwrap()[1].ipv4_addresses = Some(vec!["10.7.0.1/24".into(), "10.7.0.2/24".into()])), Is(Success)),
        (V::NoIpCollisionsInNetwork, "", ha, |w| w.view().set_ip_collisions(BTreeMap::from([("192.168.126.10".to_owned(), vec!["a".to_owned(), "b".to_owned()])])), Is(Failure)),
        (V::NoIpCollisionsInNetwork, "another's address", ha, |w| w.view().set_ip_collisions(BTreeMap::from([("192.168.126.11".to_owned(), vec!["a".to_owned(), "b".to_owned()])])), Is(Success)),
        (V::NoIscsiNicBelongsToMachineCidr, "", ha, no_machine_network, Is(Pending)),
        (V::NoIscsiNicBelongsToMachineCidr, "another disk", ha, |_| (), Hidden),
        (V::NoIscsiNicBelongsToMachineCidr, "", ha, |w| iscsi(w, "192.168.126.10"), Is(Failure)),
        (V::NoIscsiNicBelongsToMachineCidr, "", ha, |w| iscsi(w, "10.7.0.10"), Is(Success)),
        (V::LsoRequirementsSatisfied, "unbound", unbound, |_| (), Hidden),
        (V::LsoRequirementsSatisfied, "selected", ha, |w| operator(w, "lso"), Is(Success)),
        (V::LvmRequirementsSatisfied, "one disk", ha, |w| operator(w, "lvm"), Is(Failure)),
        (V::LvmRequirementsSatisfied, "two disks", ha, |w| { operator(w, "lvm"); w.inv(|i| { let mut d = i.disks.as_ref().unwrap()[0].clone(); d.id = Some("b".into()); i.disks.as_mut().unwrap().push(d) }) }, Is(Success)),
        (V::CnvRequirementsSatisfied, "", ha, |w| operator(w, "cnv"), Is(Success)),
        (V::CnvRequirementsSatisfied, "no virtualisation", ha, |w| { operator(w, "cnv"); w.inv(|i| i.cpu.as_mut().unwrap().flags = None) }, Is(Failure)),
        (V::MceRequirementsSatisfied, "", ha, |w| operator(w, "mce"), Is(Success)),
        (V::MceRequirementsSatisfied, "3 cores", ha, |w| { operator(w, "mce"); cores(w, 3) }, Is(Failure)),
        (V::MtvRequirementsSatisfied, "a master's 4 and its own", ha, |w| { operator(w, "mtv"); cores(w, 5) }, Is(Success)),
        (V::MtvRequirementsSatisfied, "only the master's 4", ha, |w| { operator(w, "mtv"); cores(w, 4) }, Is(Failure)),
        (V::OscRequirementsSatisfied, "", ha, |w| { operator(w, "osc"); cores(w, 4) }, Is(Failure)),
        (V::OdfRequirementsSatisfied, "not built", ha, |w| operator(w, "odf"), Is(Failure)),
    ]
}

fn vip(w: &mut World, ip: &str, verification: VipVerification) {
    w.c().api_vips = Some(vec![ApiVip { ip: Some(ip.into()), verification: Some(verification), ..Default::default() }]);
    w.c().ingress_vips =
        Some(vec![IngressVip { ip: Some(ip.into()), verification: Some(verification), ..Default::default() }]);
}

fn free(w: &mut World, addresses: &[&str]) {
    let list = FreeNetworkAddresses {
        network: Some("192.168.126.0/24".into()),
        free_addresses: Some(addresses.iter().map(|a| (*a).to_owned()).collect()),
    };
    w.hosts[1].set_free_addresses(vec![list]);
}

fn machine_network(w: &mut World, cidr: &str) {
    w.c().machine_networks = Some(vec![MachineNetwork { cidr: Some(cidr.into()), ..Default::default() }]);
}

fn second_machine_network(w: &mut World, cidr: &str) {
    let second = MachineNetwork { cidr: Some(cidr.into()), ..Default::default() };
    w.c().machine_networks.as_mut().unwrap().push(second);
}

fn forget_inventories(w: &mut World) {
    w.hosts.iter_mut().for_each(|h| h.set_inventory(None));
}

#[rustfmt::skip]
fn cluster_rows() -> Vec<Row<ClusterValidationId>> {
    use ClusterValidationId as V;
    use VipVerification::*;
    vec![
        (V::MachineCidrDefined, "", ha, no_machine_network, Is(Failure)),
        (V::MachineCidrDefined, "", ha, |w| { no_machine_network(w); forget_inventories(w) }, Is(Pending)),
        (V::MachineCidrDefined, "user-managed", ha, |w| { no_machine_network(w); unmanaged(w) }, Is(Success)),
        (V::MachineCidrDefined, "single node", sno, no_machine_network, Is(Failure)),
        (V::ClusterCidrDefined, "", ha, |w| w.c().cluster_networks = None, Is(Failure)),
        (V::ServiceCidrDefined, "", ha, |w| w.c().service_networks = None, Is(Failure)),
        (V::DnsDomainDefined, "", ha, |w| w.c().base_dns_domain = None, Is(Failure)),
        (V::PullSecretSet, "", ha, |w| w.view().has_pull_secret = false, Is(Failure)),
        (V::ApiVipsDefined, "", ha, |w| w.c().api_vips = None, Is(Failure)),
        (V::ApiVipsDefined, "user-managed", ha, |w| { w.c().api_vips = None; unmanaged(w) }, Is(Success)),
        (V::ApiVipsDefined, "DHCP waits for the network", ha, |w| { w.c().api_vips = None; no_machine_network(w); w.c().vip_dhcp_allocation = Some(true) }, Is(Pending)),
        (V::IngressVipsDefined, "", ha, |w| w.c().ingress_vips = None, Is(Failure)),
        (V::MachineCidrEqualsToCalculatedCidr, "", ha, |w| machine_network(w, "10.7.0.0/24"), Is(Failure)),
        (V::MachineCidrEqualsToCalculatedCidr, "another one beside it", ha, |w| second_machine_network(w, "fd2e:6f44:5dd8::/64"), Is(Success)),
        (V::MachineCidrEqualsToCalculatedCidr, "a VIP that is in no network", ha, |w| vip(w, "10.1.1.1", Succeeded), Is(Failure)),
        (V::MachineCidrEqualsToCalculatedCidr, "no VIPs", ha, |w| { w.c().api_vips = None; w.c().ingress_vips = None }, Is(Pending)),
        (V::MachineCidrEqualsToCalculatedCidr, "no inventory", ha, forget_inventories, Is(Pending)),
        (V::MachineCidrEqualsToCalculatedCidr, "user-managed", ha, |w| { machine_network(w, "10.7.0.0/24"); unmanaged(w) }, Is(Success)),
        (V::ApiVipsValid, "outside", ha, |w| vip(w, "10.1.1.1", Succeeded), Is(Failure)),
        (V::ApiVipsValid, "in use", ha, |w| vip(w, "192.168.126.100", Failed), Is(Failure)),
        (V::ApiVipsValid, "not checked", ha, |w| vip(w, "192.168.126.100", Unverified), Is(Failure)),
        (V::ApiVipsValid, "not checked, but free", ha, |w| { vip(w, "192.168.126.100", Unverified); free(w, &["192.168.126.100"]) }, Is(Success)),
        (V::ApiVipsValid, "not checked, not free", ha, |w| { vip(w, "192.168.126.100", Unverified); free(w, &["192.168.126.99"]) }, Is(Failure)),
        (V::ApiVipsValid, "none", ha, |w| w.c().api_vips = None, Is(Pending)),
        (V::ApiVipsValid, "no network", ha, no_machine_network, Is(Pending)),
        (V::ApiVipsValid, "user-managed", ha, |w| { vip(w, "10.1.1.1", Failed); unmanaged(w) }, Is(Success)),
        (V::IngressVipsValid, "outside", ha, |w| vip(w, "10.1.1.1", Succeeded), Is(Failure)),
        (V::IngressVipsValid, "no inventory", ha, forget_inventories, Is(Pending)),
        (V::AllHostsAreReadyToInstall, "", ha, |w| w.h().status = HostStatus::Insufficient, Is(Failure)),
        (V::AllHostsAreReadyToInstall, "preparing", ha, |w| w.h().status = HostStatus::PreparingSuccessful, Is(Success)),
        (V::SufficientMastersCount, "two", ha, |w| w.h().role = Some(HostRole::Worker), Is(Failure)),
        (V::SufficientMastersCount, "four", ha, |w| w.hosts[4].host.role = Some(HostRole::Master), Is(Failure)),
        (V::SufficientMastersCount, "two and one that can be", ha, |w| w.h().role = Some(HostRole::AutoAssign), Is(Success)),
        (V::SufficientMastersCount, "two and one that cannot", ha, |w| { w.h().role = Some(HostRole::AutoAssign); cores(w, 3) }, Is(Failure)),
        (V::SufficientMastersCount, "two and an arbiter", ha, |w| { w.c().control_plane_count = Some(2); w.h().role = Some(HostRole::Arbiter) }, Is(Success)),
        (V::SufficientMastersCount, "two and no arbiter", ha, |w| { w.c().control_plane_count = Some(2); w.h().role = Some(HostRole::Worker) }, Is(Failure)),
        (V::SufficientMastersCount, "single node", sno, |_| (), Is(Success)),
        (V::SufficientMastersCount, "single node and a worker", sno, |w| { let mut h = w.hosts[0].clone(); h.host.role = Some(HostRole::Worker); w.hosts.push(h) }, Is(Failure)),
        (V::NetworkPrefixValid, "", ha, |w| w.c().cluster_networks.as_mut().unwrap()[0].host_prefix = Some(25), Is(Success)),
        (V::NetworkPrefixValid, "too long", ha, |w| w.c().cluster_networks.as_mut().unwrap()[0].host_prefix = Some(26), Is(Failure)),
        (V::NetworkPrefixValid, "room for 8", ha, |w| w.c().cluster_networks.as_mut().unwrap()[0].host_prefix = Some(17), Is(Success)),
        (V::NetworkPrefixValid, "room for 4 of 5", ha, |w| w.c().cluster_networks.as_mut().unwrap()[0].host_prefix = Some(16), Is(Failure)),
        (V::NetworkPrefixValid, "room for the single node", sno, |w| w.c().cluster_networks.as_mut().unwrap()[0].host_prefix = Some(14), Is(Success)),
        (V::NetworkPrefixValid, "", ha, |w| w.c().cluster_networks = None, Is(Pending)),
        (V::NetworkPrefixValid, "a third party's plug-in", ha, |w| { w.c().network_type = Some("Calico".into()); w.c().cluster_networks.as_mut().unwrap()[0].host_prefix = None }, Is(Success)),
        (V::NoCidrsOverlapping, "", ha, |w| machine_network(w, "10.128.1.0/24"), Is(Failure)),
        (V::NoCidrsOverlapping, "", ha, no_machine_network, Is(Pending)),
        (V::NoCidrsOverlapping, "not needed", ha, |w| { no_machine_network(w); unmanaged(w) }, Is(Success)),
        (V::NoCidrsOverlapping, "lists of other lengths", ha, |w| w.c().service_networks.as_mut().unwrap().push(ServiceNetwork { cidr: Some("fd02::/112".into()), ..Default::default() }), Is(Error)),
        (V::NetworksSameAddressFamilies, "", ha, |w| w.c().service_networks.as_mut().unwrap()[0].cidr = Some("fd02::/112".into()), Is(Failure)),
        (V::NetworksSameAddressFamilies, "", ha, |w| w.c().service_networks = None, Is(Pending)),
        (V::NtpServerConfigured, "4 min and a bit", ha, |w| w.h().timestamp = Some(NOW.as_secs() - 299), Is(Success)),
        (V::NtpServerConfigured, "a second more", ha, |w| w.h().timestamp = Some(NOW.as_secs() - 300), Is(Failure)),
        (V::NtpServerConfigured, "disconnected hosts do not count", ha, |w| { w.h().timestamp = Some(1); w.h().status = HostStatus::Disconnected }, Is(Success)),
        (V::NetworkTypeValid, "", ha, |w| w.c().network_type = Some("Kuryr".into()), Is(Failure)),
        (V::NetworkTypeValid, "", ha, |w| w.c().network_type = Some("OpenShiftSDN".into()), Is(Success)),
        (V::NetworkTypeValid, "SDN on a single node", sno, |w| w.c().network_type = Some("OpenShiftSDN".into()), Is(Failure)),
        (V::NetworkTypeValid, "SDN with IPv6", ha, |w| { w.c().network_type = Some("OpenShiftSDN".into()); machine_network(w, "fd00::/64") }, Is(Failure)),
        (V::NetworkTypeValid, "OVN with leased VIPs", ha, |w| w.c().vip_dhcp_allocation = Some(true), Is(Failure)),
        (V::CustomManifestsRequirementsSatisfied, "", ha, |w| w.c().network_type = Some("Cilium".into()), Is(Failure)),
        (V::CustomManifestsRequirementsSatisfied, "", ha, |w| { w.c().network_type = Some("Cilium".into()); w.view().has_custom_manifests = true }, Is(Success)),
        (V::PlatformRequirementsSatisfied, "", ha, |w| w.c().platform = Some(Platform { type_: PlatformType::External, external: Some(PlatformExternal { platform_name: Some("oci".into()), cloud_controller_manager: None }) }), Is(Failure)),
        (V::LvmRequirementsSatisfied, "several nodes", ha, |w| { operator(w, "lvm"); w.c().openshift_version = Some("4.15".into()) }, Is(Success)),
        (V::LvmRequirementsSatisfied, "several nodes of an older version", ha, |w| { operator(w, "lvm"); w.c().openshift_version = Some("4.14".into()) }, Is(Failure)),
        (V::LvmRequirementsSatisfied, "one node of an older version", sno, |w| { operator(w, "lvm"); w.c().openshift_version = Some("4.14".into()) }, Is(Success)),
        (V::LvmRequirementsSatisfied, "one node before there was one", sno, |w| { operator(w, "lvm"); w.c().openshift_version = Some("4.10".into()) }, Is(Failure)),
        (V::CnvRequirementsSatisfied, "", ha, |w| operator(w, "cnv"), Is(Success)),
        (V::LsoRequirementsSatisfied, "selected", ha, |w| operator(w, "lso"), Is(Success)),
        (V::OdfRequirementsSatisfied, "two hosts", ha, |w| { operator(w, "odf"); w.hosts.truncate(2) }, Is(Failure)),
        (V::OdfRequirementsSatisfied, "not built", ha, |w| operator(w, "odf"), Is(Failure)),
        (V::OpenshiftAiRequirementsSatisfied, "two workers", ha, |w| operator(w, "openshift-ai"), Is(Success)),
        (V::OpenshiftAiRequirementsSatisfied, "one worker", ha, |w| { operator(w, "openshift-ai"); w.hosts.pop(); }, Is(Failure)),
        (V::OpenshiftAiGpuRequirementsSatisfied, "not built", ha, |w| operator(w, "openshift-ai"), Is(Failure)),
    ]
}

fn got(v: Option<&Validation>) -> Want {
    match v {
        Some(v) if v.hidden => Hidden,
        Some(v) => Is(v.status),
        None => panic!("not evaluated"),
    }
}

/// Ids outside the operators that no row drives away from the good state would be untested.
fn untested<I: Copy + Ord + std::fmt::Display>(all: impl Iterator<Item = I>, rows: &[Row<I>]) -> Vec<String> {
    let driven: BTreeSet<I> = rows.iter().filter(|r| !matches!(r.4, Is(Success) | Hidden)).map(|r| r.0).collect();
    all.filter(|id| !driven.contains(id)).map(|id| id.to_string()).collect()
}

#[test]
fn host_rules_from_both_sides() {
    let rows = host_rows();
    let mut wrong = Vec::new();
    for (id, what, world, change, want) in &rows {
        let mut w = world();
        change(&mut w);
        let all = w.host();
        if got(all.get(*id)) != *want {
            wrong.push(format!("{id} ({what}): wanted {want:?}, got {:?}", all.get(*id)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let emitted = HOST.iter().filter(|s| s.never.is_none() && s.category != "operators").map(|s| s.id);
    assert_eq!(untested(emitted, &rows), Vec::<String>::new());
}

#[test]
fn cluster_rules_from_both_sides() {
    let rows = cluster_rows();
    let mut wrong = Vec::new();
    for (id, what, world, change, want) in &rows {
        let mut w = world();
        change(&mut w);
        let all = w.cluster();
        if got(all.get(*id)) != *want {
            wrong.push(format!("{id} ({what}): wanted {want:?}, got {:?}", all.get(*id)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let emitted = CLUSTER.iter().filter(|s| s.never.is_none() && s.category != "operators").map(|s| s.id);
    assert_eq!(untested(emitted, &rows), Vec::<String>::new());
}

#[rstest::rstest]
#[case::multi_node(ha())]
#[case::single_node(sno())]
fn a_good_cluster_has_nothing_but_successes(#[case] world: World) {
    let bad =
        |all: &[Validation]| all.iter().filter(|v| v.status != Success).map(|v| format!("{v:?}")).collect::<Vec<_>>();
    assert_eq!(bad(&world.host().0), Vec::<String>::new());
    assert_eq!(bad(&world.cluster().0), Vec::<String>::new());
    for gate in [
        HostGate::Connection,
        HostGate::Inventory,
        HostGate::MinimumHardware,
        HostGate::BeforeInput,
        HostGate::PendingInput,
        HostGate::Sufficient,
    ] {
        assert!(world.host().gate(gate), "{gate:?}");
    }
}

#[test]
fn a_known_unbound_host_is_not_asked_about_a_cluster() {
    let all = unbound().host();
    for id in [
        HostValidationId::HasMinCpuCores,
        HostValidationId::HasMinMemory,
        HostValidationId::HasMinValidDisks,
        HostValidationId::HostnameValid,
    ] {
        assert_eq!(all.status(id), Some(Success), "{id}");
    }
    assert!(all.0.iter().filter(|v| v.category == "operators").all(|v| v.hidden));
}

#[test]
fn every_id_of_the_api_is_in_its_table_once() {
    let mut host: Vec<_> = HOST.iter().map(|s| s.id).collect();
    host.sort();
    assert_eq!(host, HostValidationId::ALL);
    let mut cluster: Vec<_> = CLUSTER.iter().map(|s| s.id).collect();
    cluster.sort();
    assert_eq!(cluster, ClusterValidationId::ALL);
    assert!(HOST.iter().all(|s| !s.needs.is_empty()) && CLUSTER.iter().all(|s| !s.needs.is_empty()));
}

#[test]
fn switched_off_and_ignored() {
    use HostValidationId::{HasInventory, MediaConnected, NtpSynced};
    let mut w = ha();
    w.h().media_status = Some("disconnected".into());
    w.hosts[0].set_ntp_sources(None);
    w.hosts[0].set_inventory(None);
    w.settings.disabled_host_validations = vec!["ntp-synced".into()];
    assert_eq!(w.host().status(NtpSynced), Some(Disabled));
    assert!(w.host().satisfied(NtpSynced) && !w.host().satisfied(MediaConnected));
    // A list of the cluster's own switches the service's off; the status that is shown stays.
    w.view().set_ignored_host_validations(vec!["all".into()]);
    assert_eq!(w.host().status(NtpSynced), Some(Failure));
    assert_eq!(w.host().status(MediaConnected), Some(Failure));
    assert!(w.host().satisfied(MediaConnected));
    assert!(!w.host().satisfied(HasInventory), "it may not be ignored");
    w.c().base_dns_domain = None;
    w.c().api_vips = None;
    w.view().set_ignored_cluster_validations(vec!["dns-domain-defined".into(), "api-vips-defined".into()]);
    assert!(w.cluster().satisfied(ClusterValidationId::DnsDomainDefined));
    assert!(!w.cluster().satisfied(ClusterValidationId::ApiVipsDefined), "it may not be ignored");
}

#[test]
fn text_and_back() {
    let shown = |all: Vec<Validation>| {
        all.into_iter().filter(|v| !v.hidden).map(|v| (v.category, v.id, v.status, v.message)).collect::<BTreeSet<_>>()
    };
    let all = sno().host();
    let text = all.to_json_text();
    assert!(text.starts_with("{\"hardware\":[{\"id\":\"has-inventory\",\"status\":\"success\",\"message\":\"Valid inventory exists for the host\"},"), "{text}");
    assert_eq!(shown(HostValidations::parse(&text).unwrap().0), shown(all.0));
    let all = sno().cluster();
    assert_eq!(shown(ClusterValidations::parse(&all.to_json_text()).unwrap().0), shown(all.0));
    let error =
        HostValidations::parse("{\"network\":[{\"id\":\"x\",\"status\":\"success\",\"message\":\"\"}]}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "validations_info speaks of \"x\" in category \"network\", which the API does not have"
    );
    assert!(!HostValidations::default().satisfied(HostValidationId::Connected), "nothing was evaluated");
}

#[test]
fn deadlines_are_the_first_instant_of_failure() {
    let micro = std::time::Duration::from_micros(1);
    let w = ha();
    let refs: Vec<&HostView> = w.hosts.iter().collect();
    let scope = Scope { infra_env: &w.infra_env, cluster: w.cluster.as_ref(), hosts: &refs };
    for (id, deadline) in [
        (HostValidationId::Connected, connection_deadline(refs[0], &w.settings).unwrap()),
        (HostValidationId::TimeSyncedBetweenHostAndService, time_sync_deadline(refs[0], &w.settings).unwrap()),
    ] {
        let at = |now| evaluate_host(refs[0], &scope, &w.settings, now).status(id);
        assert_eq!((at(deadline - micro), at(deadline)), (Some(Success), Some(Failure)), "{id}");
    }
}

proptest! {
    #[test]
    fn hostnames_are_what_the_pattern_says(name in "[a-z0-9.A_-]{0,70}") {
        let pattern = regex::Regex::new(HOSTNAME_PATTERN).unwrap();
        prop_assert_eq!(valid_hostname(&name), pattern.is_match(&name) && !FORBIDDEN_HOSTNAMES.contains(&name.as_str()));
    }

    /// Whatever a host or a user says, there is an answer to every question.
    #[test]
    fn evaluators_never_panic(
        cut in proptest::collection::vec(0usize..60, 0..8),
        cidrs in proptest::collection::vec("[0-9a-f:./]{0,14}", 3),
        number in any::<i64>(),
        single in any::<bool>(),
        now in any::<i64>(),
    ) {
        let mut w = if single { sno() } else { ha() };
        let mut inventory = serde_json::to_value(w.hosts[0].inventory.as_deref().unwrap()).unwrap();
        for at in cut {
            break_one(&mut inventory, at, number);
        }
        if let Ok(broken) = serde_json::from_value::<Inventory>(inventory) {
            w.hosts[0].set_inventory(broken);
        }
        w.h().timestamp = Some(number);
        w.h().checked_in_at = Some(Timestamp::from_micros(number));
        machine_network(&mut w, &cidrs[0]);
        let networks = w.c().cluster_networks.as_mut().unwrap();
        networks[0].cidr = Some(cidrs[1].clone());
        networks[0].host_prefix = Some(number);
        vip(&mut w, &cidrs[2], VipVerification::Unverified);
        w.c().control_plane_count = Some(number);
        let refs: Vec<&HostView> = w.hosts.iter().collect();
        let scope = Scope { infra_env: &w.infra_env, cluster: w.cluster.as_ref(), hosts: &refs };
        let now = Timestamp::from_micros(now);
        let cluster = w.cluster.as_ref().unwrap();
        let emitted = HOST.iter().filter(|s| s.never.is_none()).count();
        prop_assert_eq!(evaluate_host(refs[0], &scope, &w.settings, now).0.len(), emitted);
        let emitted = CLUSTER.iter().filter(|s| s.never.is_none()).count();
        prop_assert_eq!(evaluate_cluster(cluster, &refs, &w.settings, now).0.len(), emitted);
    }
}

/// Takes the member out that a walk over the value meets as number `at`, or puts a number in the place of one.
fn break_one(value: &mut serde_json::Value, mut at: usize, number: i64) {
    fn walk(value: &mut serde_json::Value, at: &mut usize, number: i64) -> bool {
        match value {
            serde_json::Value::Object(members) => {
                let keys: Vec<String> = members.keys().cloned().collect();
                for key in keys {
                    if *at == 0 {
                        if members[&key].is_number() {
                            members.insert(key, number.into())
                        } else {
                            members.remove(&key)
                        };
                        return true;
                    }
                    *at -= 1;
                    if walk(&mut members[&key], at, number) {
                        return true;
                    }
                }
                false
            }
            serde_json::Value::Array(items) => items.iter_mut().any(|i| walk(i, at, number)),
            _ => false,
        }
    }
    walk(value, &mut at, number);
}
