//! Roles: what each role needs of a host, which are suggested and assigned, who is the bootstrap, how many masters are enough.

use uuid::Uuid;
use vlab_api::types::{
    ClusterHostRequirementsDetails, HostRole, HostStatus, Inventory, VersionedClusterHostRequirementsDetails,
    VersionedHostRequirements,
};

use crate::settings::Settings;
use crate::view::{ClusterView, HostView, filled};

/// What a role needs of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requirement {
    /// CPU cores.
    pub cpu_cores: i64,
    /// Memory in MiB.
    pub ram_mib: i64,
    /// Size of the installation disk in units of 10^9 bytes.
    pub disk_size_gb: i64,
    /// Slowest write that the installation disk may show, in milliseconds. The service only warns about it.
    pub disk_speed_ms: Option<i64>,
    /// Longest round trip to hosts of the same role, in milliseconds.
    pub latency_ms: Option<f64>,
    /// Highest packet loss to hosts of the same role, in percent.
    pub loss_percent: Option<f64>,
}

impl Requirement {
    fn overlay(&mut self, over: &VersionedClusterHostRequirementsDetails) {
        self.cpu_cores = over.cpu_cores.unwrap_or(self.cpu_cores);
        self.ram_mib = over.ram_mib.unwrap_or(self.ram_mib);
        self.disk_size_gb = over.disk_size_gb.unwrap_or(self.disk_size_gb);
        self.disk_speed_ms = over.installation_disk_speed_threshold_ms.or(self.disk_speed_ms);
        self.latency_ms = over.network_latency_threshold_ms.or(self.latency_ms);
        self.loss_percent = over.packet_loss_percentage.or(self.loss_percent);
    }

    /// As the API shows it.
    pub fn details(&self) -> ClusterHostRequirementsDetails {
        ClusterHostRequirementsDetails {
            cpu_cores: Some(self.cpu_cores),
            ram_mib: Some(self.ram_mib),
            disk_size_gb: Some(self.disk_size_gb),
            installation_disk_speed_threshold_ms: self.disk_speed_ms,
            network_latency_threshold_ms: self.latency_ms,
            packet_loss_percentage: self.loss_percent,
            tpm_enabled_in_bios: None,
        }
    }
}

/// What a host is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// A master of a multi-node cluster.
    Master,
    /// An arbiter.
    Arbiter,
    /// A worker.
    Worker,
    /// The only node of a cluster.
    SingleNode,
    /// A worker on an aarch64 accelerator card.
    EdgeWorker,
}

fn column(entry: &VersionedHostRequirements, profile: Profile) -> Option<&VersionedClusterHostRequirementsDetails> {
    match profile {
        Profile::Master => entry.master.as_ref(),
        Profile::Arbiter => entry.arbiter.as_ref(),
        Profile::Worker => entry.worker.as_ref(),
        Profile::SingleNode => entry.sno.as_ref(),
        Profile::EdgeWorker => entry.edge_worker.as_ref(),
    }
}

fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(['.', '-']).map(|p| p.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Are the disks of hosts of that role encrypted, where the cluster says so of these roles (`enable_on`)?
pub fn is_encrypted(enable_on: &str, role: HostRole) -> bool {
    let word = match role {
        HostRole::Master | HostRole::Bootstrap => "masters",
        HostRole::Arbiter => "arbiters",
        HostRole::Worker => "workers",
        HostRole::AutoAssign => return enable_on == "all",
    };
    enable_on == "all" || enable_on.split(',').any(|of| of == word)
}

/// What the settings ask of that profile in that version: the row of exactly this version (or of its `major.minor`), else the
/// row `default`; rows `min_version` that the version has reached change what they name. `None` when no row fits: the real
/// service cannot refresh such a host at all.
pub fn requirement(settings: &Settings, version: &str, profile: Profile) -> Option<Requirement> {
    let rows = &settings.hw_validator_requirements;
    let at_least = |row: &&VersionedHostRequirements| row.match_type.as_deref() == Some("min_version");
    let exact = |row: &&VersionedHostRequirements, name: &str| !at_least(row) && row.version.as_deref() == Some(name);
    let same_minor = |row: &&VersionedHostRequirements| {
        let row_version = row.version.as_deref().unwrap_or("");
        !at_least(row) && row_version.split('.').count() == 2 && major_minor(row_version) == major_minor(version)
    };
    let base = rows
        .iter()
        .find(|r| !version.is_empty() && exact(r, version))
        .or_else(|| rows.iter().find(|r| major_minor(version).is_some() && same_minor(r)))
        .or_else(|| rows.iter().find(|r| exact(r, "default")))?;
    let mut requirement = Requirement::default();
    requirement.overlay(column(base, profile)?);
    let mut reached: Vec<_> = rows
        .iter()
        .filter(at_least)
        .filter_map(|r| Some((major_minor(r.version.as_deref()?)?, column(r, profile)?)))
        .filter(|(from, _)| major_minor(version).is_some_and(|v| v >= *from))
        .collect();
    reached.sort_by_key(|(from, _)| *from);
    reached.into_iter().for_each(|(_, over)| requirement.overlay(over));
    Some(requirement)
}

/// Is it an accelerator card that counts as an edge worker?
fn is_edge_worker(inventory: Option<&Inventory>, settings: &Settings) -> bool {
    let Some(inventory) = inventory else { return false };
    let aarch64 = inventory.cpu.as_ref().is_some_and(|c| c.architecture.as_deref() == Some("aarch64"));
    // Firmware does not agree on how the name is written.
    let plain = |name: &str| name.replace(' ', "").to_lowercase();
    let product = inventory.system_vendor.as_ref().and_then(|v| filled(&v.product_name)).map(plain);
    aarch64 && product.is_some_and(|p| settings.edge_workers_product_names.iter().any(|e| plain(e) == p))
}

/// What the host is measured by in that role. Without a role it is measured as a worker, the weakest; the only node of a
/// cluster always as such.
pub fn profile(host: &HostView, role: HostRole, cluster: Option<&ClusterView>, settings: &Settings) -> Profile {
    let single = cluster.is_some_and(|c| c.is_sno() && !c.is_day2());
    match role {
        _ if single => Profile::SingleNode,
        HostRole::Master | HostRole::Bootstrap => Profile::Master,
        HostRole::Arbiter => Profile::Arbiter,
        HostRole::Worker | HostRole::AutoAssign if is_edge_worker(host.inventory.as_deref(), settings) => {
            Profile::EdgeWorker
        }
        HostRole::Worker | HostRole::AutoAssign => Profile::Worker,
    }
}

/// What selected operators add for a host: cores and MiB. Only those operators are counted whose need does not depend on the
/// host's disks.
pub fn operator_extras(cluster: &ClusterView, profile: Profile) -> (i64, i64) {
    let version = cluster.openshift_version();
    let control = matches!(profile, Profile::Master | Profile::Arbiter);
    let single = profile == Profile::SingleNode;
    let mut extra = (0, 0);
    for name in cluster.cluster.monitored_operators.iter().flatten().filter_map(|o| filled(&o.name)) {
        let (cpu, mib) = match name {
            "lvm" if crate::disks::version_at_least(version, 4, 16) => (1, 100),
            "lvm" if crate::disks::version_at_least(version, 4, 13) => (1, 400),
            "lvm" => (1, 1200),
            "cnv" if single => (6, 510),
            "cnv" if control => (4, 150),
            "cnv" => (2, 360),
            "mce" if single => (8, 32 * 1024),
            "mce" => (4, 16 * 1024),
            "mtv" | "osc" => (1, 1024),
            _ => (0, 0),
        };
        extra = (extra.0 + cpu, extra.1 + mib);
    }
    extra
}

/// What the host needs in that role, operators included.
pub fn host_requirement(
    host: &HostView,
    role: HostRole,
    cluster: Option<&ClusterView>,
    settings: &Settings,
) -> Option<Requirement> {
    let profile = profile(host, role, cluster, settings);
    let mut needed = requirement(settings, cluster.map_or("", |c| c.openshift_version()), profile)?;
    if let Some(cluster) = cluster {
        let (cpu, mib) = operator_extras(cluster, profile);
        needed.cpu_cores += cpu;
        needed.ram_mib += mib;
    }
    Some(needed)
}

/// Memory may fall short of the requirement by this: firmware keeps some for itself.
pub const MEMORY_TOLERANCE_MIB: i64 = 100;

const MIB: i64 = 1 << 20;

/// Memory as the rules count it, in bytes.
pub fn memory_bytes(inventory: &Inventory) -> i64 {
    inventory.memory.as_ref().and_then(|m| m.physical_bytes).unwrap_or(0)
}

/// Cores as the rules count them.
pub fn cpu_count(inventory: &Inventory) -> i64 {
    inventory.cpu.as_ref().and_then(|c| c.count).unwrap_or(0)
}

/// Are that many bytes enough for `mib`, with the usual tolerance?
pub fn memory_suffices(bytes: i64, mib: i64) -> bool {
    bytes >= mib.saturating_sub(MEMORY_TOLERANCE_MIB).saturating_mul(MIB)
}

/// Has the host the cores and the memory for the role? A host without inventory has not.
pub fn fits(host: &HostView, role: HostRole, cluster: &ClusterView, settings: &Settings) -> bool {
    let Some(inventory) = &host.inventory else { return false };
    host_requirement(host, role, Some(cluster), settings)
        .is_some_and(|r| cpu_count(inventory) >= r.cpu_cores && memory_suffices(memory_bytes(inventory), r.ram_mib))
}

/// How much machine a host is: the weakest become masters first. Whole GiB of usable memory and of all disks that can be
/// installed to count. No role is suggested before every host has an inventory, so one without has none.
pub fn weight(host: &HostView) -> f64 {
    let gib = |bytes: i64| (bytes >> 30) as f64;
    let Some(inventory) = &host.inventory else { return 0.0 };
    let memory = inventory.memory.as_ref().and_then(|m| m.usable_bytes).unwrap_or(0);
    let eligible =
        host.disks().iter().filter(|d| d.installation_eligibility.as_ref().is_some_and(|e| e.eligible == Some(true)));
    let disks: f64 = eligible.map(|d| gib(d.size_bytes.unwrap_or(0))).sum();
    (cpu_count(inventory) - 4) as f64 + (gib(memory) - 16.0) * 0.1 + (disks - 100.0) * 0.004
}

fn has_gpu(host: &HostView) -> bool {
    host.inventory.as_ref().is_some_and(|i| i.gpus.as_ref().is_some_and(|g| !g.is_empty()))
}

/// The role that each host of the cluster would have, in the order given: hosts with a role keep it; of the others the weakest
/// become masters until there are as many as wanted, then (with two masters) one becomes the arbiter, the rest are workers.
/// `None` while some host has no inventory, or where roles are not chosen automatically.
pub fn suggested_roles(cluster: &ClusterView, hosts: &[&HostView], settings: &Settings) -> Option<Vec<HostRole>> {
    if !settings.enable_auto_assign || hosts.iter().any(|h| h.inventory.is_none()) {
        return None;
    }
    let given = |h: &HostView| h.host.role.filter(|r| *r != HostRole::AutoAssign);
    let mut roles: Vec<HostRole> = hosts.iter().map(|h| given(h).unwrap_or(HostRole::AutoAssign)).collect();
    let mut order: Vec<usize> = (0..hosts.len()).filter(|i| roles[*i] == HostRole::AutoAssign).collect();
    order.sort_by(|a, b| {
        has_gpu(hosts[*a])
            .cmp(&has_gpu(hosts[*b]))
            .then(weight(hosts[*a]).total_cmp(&weight(hosts[*b])))
            .then(hosts[*a].host.id.cmp(&hosts[*b].host.id))
    });
    let wanted = usize::try_from(cluster.control_plane_count()).unwrap_or(0);
    let mut masters = roles.iter().filter(|r| is_master(**r)).count();
    let mut arbiters = roles.iter().filter(|r| **r == HostRole::Arbiter).count();
    for at in order {
        let host = hosts[at];
        roles[at] = if cluster.is_day2() {
            HostRole::Worker
        } else if masters < wanted && fits(host, HostRole::Master, cluster, settings) {
            masters += 1;
            HostRole::Master
        } else if wanted == 2 && arbiters == 0 && fits(host, HostRole::Arbiter, cluster, settings) {
            arbiters += 1;
            HostRole::Arbiter
        } else {
            HostRole::Worker
        };
    }
    Some(roles)
}

/// Roles for good, at the start of the installation: what auto-assigned hosts become. Hosts with a role are not in the list.
/// `None` as for [`suggested_roles`].
pub fn final_roles(cluster: &ClusterView, hosts: &[&HostView], settings: &Settings) -> Option<Vec<(Uuid, HostRole)>> {
    let roles = suggested_roles(cluster, hosts, settings)?;
    let open = |h: &HostView| h.host.role.is_none_or(|r| r == HostRole::AutoAssign);
    Some(hosts.iter().zip(roles).filter(|(h, _)| open(h)).map(|(h, role)| (h.host.id, role)).collect())
}

fn is_master(role: HostRole) -> bool {
    matches!(role, HostRole::Master | HostRole::Bootstrap)
}

/// Who is the bootstrap: the master that `BOOTSTRAP_HOST_MAC` names, else the last known master in the order given. For a
/// single node it was decided at registration.
pub fn choose_bootstrap(hosts: &[&HostView], settings: &Settings) -> Option<Uuid> {
    let masters = || hosts.iter().filter(|h| is_master(h.effective_role()) && h.host.status == HostStatus::Known);
    let wanted = settings.bootstrap_host_mac.as_str();
    let has_mac = |h: &HostView| {
        let interfaces = h.inventory.iter().flat_map(|i| i.interfaces.iter().flatten());
        interfaces.filter_map(|i| filled(&i.mac_address)).any(|m| m.eq_ignore_ascii_case(wanted))
    };
    let named = masters().find(|h| !wanted.is_empty() && has_mac(h));
    named.or_else(|| masters().next_back()).map(|h| h.host.id)
}

/// Who plays which part in a cluster, as far as it is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of masters.
    pub masters: usize,
    /// Number of arbiters.
    pub arbiters: usize,
    /// Number of workers.
    pub workers: usize,
    /// Hosts without a role that have what a master needs.
    pub could_be_master: usize,
    /// Other hosts without a role.
    pub open: usize,
}

/// Counts the hosts by their effective role.
pub fn counts(cluster: &ClusterView, hosts: &[&HostView], settings: &Settings) -> Counts {
    let mut counts = Counts::default();
    for host in hosts {
        match host.effective_role() {
            HostRole::Master | HostRole::Bootstrap => counts.masters += 1,
            HostRole::Arbiter => counts.arbiters += 1,
            HostRole::Worker => counts.workers += 1,
            HostRole::AutoAssign if fits(host, HostRole::Master, cluster, settings) => counts.could_be_master += 1,
            HostRole::AutoAssign => counts.open += 1,
        }
    }
    counts
}

/// Does the cluster have exactly the masters that it wants, counting hosts that can still become one? A single node has no
/// workers beside it; two masters need an arbiter or fencing credentials.
pub fn sufficient_masters(cluster: &ClusterView, hosts: &[&HostView], settings: &Settings) -> bool {
    let wanted = usize::try_from(cluster.control_plane_count()).unwrap_or(0);
    let counts = counts(cluster, hosts, settings);
    let missing = wanted.saturating_sub(counts.masters);
    if counts.masters > wanted || missing > counts.could_be_master {
        return false;
    }
    let left = counts.could_be_master - missing + counts.open;
    match wanted {
        1 => counts.workers == 0 && counts.arbiters == 0 && left == 0,
        2 => counts.arbiters > 0 || left > 0 || crate::network::has_fencing(cluster, hosts),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn host(i: usize, role: HostRole, cores: i64, gib: i64) -> HostView {
        let mut host = HostView::default();
        host.host.id = Uuid::from_u128(i as u128 + 1);
        host.host.role = Some(role);
        host.host.status = HostStatus::Known;
        host.set_inventory(
            serde_json::from_value::<Inventory>(json!({
                "cpu": {"count": cores, "architecture": "x86_64"}, "memory": {"physical_bytes": gib << 30},
                "interfaces": [{"name": "eth0", "mac_address": format!("52:54:00:00:00:0{i}")}]
            }))
            .unwrap(),
        );
        host
    }

    fn cluster(masters: i64) -> ClusterView {
        let mut cluster = ClusterView::default();
        cluster.cluster.control_plane_count = Some(masters);
        cluster.cluster.openshift_version = Some("4.19.1".to_owned());
        cluster
    }

    use HostRole::{Arbiter, AutoAssign, Master, Worker};

    /// Usable memory and disks that can be installed to, in whole GiB each.
    #[rstest]
    #[case::all_of_it(json!({"memory": {"usable_bytes": 32_i64 << 30}, "disks": [disk(200 << 30, true), disk(100 << 30, true)]}), 2.4)]
    #[case::not_physical(json!({"memory": {"physical_bytes": 64_i64 << 30, "usable_bytes": 16_i64 << 30}, "disks": [disk(100 << 30, true)]}), 0.0)]
    #[case::not_ineligible(json!({"memory": {"usable_bytes": 16_i64 << 30}, "disks": [disk(100 << 30, true), disk(500 << 30, false)]}), 0.0)]
    #[case::whole(json!({"memory": {"usable_bytes": (17_i64 << 30) - 1}, "disks": [disk((101 << 30) - 1, true)]}), 0.0)]
    fn how_much_machine_a_host_is(#[case] mut inventory: serde_json::Value, #[case] expected: f64) {
        inventory["cpu"] = json!({"count": 4, "architecture": "x86_64"});
        let mut host = HostView::default();
        host.set_inventory(serde_json::from_value::<Inventory>(inventory).unwrap());
        assert!((weight(&host) - expected).abs() < 1e-9, "{}", weight(&host));
    }

    fn disk(bytes: i64, eligible: bool) -> serde_json::Value {
        json!({"id": "d", "size_bytes": bytes, "installation_eligibility": {"eligible": eligible}})
    }

    #[rstest]
    #[case::weakest_first(3, vec![(AutoAssign, 16, 64), (AutoAssign, 8, 32), (AutoAssign, 8, 16), (AutoAssign, 4, 16)], vec![Worker, Master, Master, Master])]
    #[case::too_weak_for_a_master(3, vec![(AutoAssign, 2, 16), (AutoAssign, 8, 32), (AutoAssign, 8, 16), (AutoAssign, 4, 16)], vec![Worker, Master, Master, Master])]
    #[case::given_roles_stay(3, vec![(Worker, 4, 16), (Master, 64, 512), (AutoAssign, 8, 16), (AutoAssign, 8, 17)], vec![Worker, Master, Master, Master])]
    #[case::arbiter(2, vec![(AutoAssign, 8, 32), (AutoAssign, 4, 16), (AutoAssign, 2, 8)], vec![Master, Master, Arbiter])]
    #[case::single(1, vec![(AutoAssign, 8, 32)], vec![Master])]
    fn suggestions(#[case] masters: i64, #[case] given: Vec<(HostRole, i64, i64)>, #[case] expected: Vec<HostRole>) {
        let hosts: Vec<HostView> = given.iter().enumerate().map(|(i, (r, c, g))| host(i, *r, *c, *g)).collect();
        let refs: Vec<&HostView> = hosts.iter().collect();
        let settings = Settings::default();
        let cluster = cluster(masters);
        assert_eq!(suggested_roles(&cluster, &refs, &settings), Some(expected.clone()));
        let open = hosts.iter().zip(&expected).filter(|(h, _)| h.host.role == Some(AutoAssign));
        let open: Vec<_> = open.map(|(h, r)| (h.host.id, *r)).collect();
        assert_eq!(final_roles(&cluster, &refs, &settings), Some(open));
    }

    #[test]
    fn no_suggestion_before_all_are_known() {
        let mut hosts = [host(0, AutoAssign, 8, 32), host(1, AutoAssign, 8, 32)];
        let mut settings = Settings::default();
        let suggest =
            |hosts: &[HostView], s: &Settings| suggested_roles(&cluster(3), &hosts.iter().collect::<Vec<_>>(), s);
        assert!(suggest(&hosts, &settings).is_some());
        settings.enable_auto_assign = false;
        assert_eq!(suggest(&hosts, &settings), None);
        settings.enable_auto_assign = true;
        hosts[1].set_inventory(None);
        assert_eq!(suggest(&hosts, &settings), None);
    }

    #[test]
    fn the_bootstrap_is_the_last_known_master_or_the_named_one() {
        let mut hosts: Vec<HostView> = (0..4).map(|i| host(i, if i < 3 { Master } else { Worker }, 8, 32)).collect();
        let mut settings = Settings::default();
        let choose = |hosts: &[HostView], s: &Settings| choose_bootstrap(&hosts.iter().collect::<Vec<_>>(), s);
        assert_eq!(choose(&hosts, &settings), Some(hosts[2].host.id));
        hosts[2].host.status = HostStatus::Insufficient;
        assert_eq!(choose(&hosts, &settings), Some(hosts[1].host.id));
        settings.bootstrap_host_mac = "52:54:00:00:00:00".to_owned();
        assert_eq!(choose(&hosts, &settings), Some(hosts[0].host.id));
        assert_eq!(choose(&hosts[3..], &settings), None);
    }

    #[rstest]
    #[case("4.16.68", Profile::SingleNode, 8)]
    #[case("4.22.1", Profile::SingleNode, 4)]
    #[case("4.22.1", Profile::Master, 4)]
    #[case("", Profile::Worker, 2)]
    #[case("4.17.3", Profile::Worker, 7)]
    fn requirements_by_version(#[case] version: &str, #[case] profile: Profile, #[case] cores: i64) {
        let mut settings = Settings::default();
        let rows: Vec<VersionedHostRequirements> = serde_json::from_value(json!([
            {"version": "default", "master": {"cpu_cores": 4}, "worker": {"cpu_cores": 2}, "sno": {"cpu_cores": 8}},
            {"version": "4.17", "master": {"cpu_cores": 4}, "worker": {"cpu_cores": 7}, "sno": {"cpu_cores": 8}},
            {"version": "4.22", "match_type": "min_version", "sno": {"cpu_cores": 4}}
        ]))
        .unwrap();
        settings.hw_validator_requirements = rows;
        assert_eq!(requirement(&settings, version, profile).map(|r| r.cpu_cores), Some(cores));
        settings.hw_validator_requirements.clear();
        assert_eq!(requirement(&settings, version, profile), None);
    }
}
