//! From a prepared run to the machines and the network that it needs. Pure: nothing is made.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use uuid::Uuid;
use vlab_agents::HardwareProfile;
use vlab_drive::addresses::{
    address_of, declared_hardware, gateway, gateway_of, host_id, networks_of_host, serial_of_disk, wwn_of_disk,
};
use vlab_drive::prepare::Prepared;
use vlab_drive::target::{Target, host_and_port};
use vlab_lab::iscsi::ibft::Known;
use vlab_lab::iscsi::{self, LunSpec};
use vlab_lab::machines::{BootOrder, Bus, DiskSpec, Firmware, Leftover, MachineSpec, NicSpec, Plug, Vendor};
use vlab_lab::network::{DnsName, NetworkHost, NetworkSpec, Segment, config};
use vlab_node_config::machine::{NodeConfig, Overlay};
use vlab_scenario::{Cluster, DiskBus, Host, Scenario, VmDisk};

use super::programs::{self, Page};

/// Port on which machines reach the service, on the gateway's address. In the lab's own network nobody else can have it.
pub const PORT: u16 = 8090;

/// Port on which machines reach the image service, where it is another program than the service.
pub const IMAGES_PORT: u16 = 8888;
/// Where targets of iSCSI answer on the gateway: each port is a way of its own to the same disks.
pub const ISCSI_PORTS: [u16; 2] = [iscsi::PORT, iscsi::PORT + 1];

/// Port on which machines fetch programs that the run gives them.
pub const PROGRAMS_PORT: u16 = 8091;

/// Where a machine finds its configuration; see `vlab_node_config::machine::CONFIG_FILE`.
const NODE_CONFIG: &str = "opt/vlab/node.json";

/// The machines of a run and their network.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The network.
    pub network: NetworkSpec,
    /// The machines, in the order of the scenario.
    pub machines: Vec<PlannedMachine>,
    /// Where they reach the service.
    pub service: Reached,
    /// The clusters that have or get some of them, by name.
    pub clusters: BTreeMap<String, PlannedCluster>,
}

/// Where machines reach the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// As its images say it.
    pub base_url: String,
    /// Where the gateway listens for it.
    pub listen: Vec<SocketAddr>,
    /// It is not the run's: nothing of it can be set, and it has an image service of its own.
    pub is_foreign: bool,
}

/// A cluster of machines, in the lab network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCluster {
    /// Domain of its names: `<cluster>.<base domain>`.
    pub domain: String,
    /// Names of its machines, those that are bound to it included.
    pub machines: Vec<String>,
}

/// A machine of a run, without its medium.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedMachine {
    /// Position of the host in the scenario.
    pub index: usize,
    /// The machine.
    pub spec: MachineSpec,
    /// Its disks on the network; the files are names in a folder of the run.
    pub luns: Vec<LunSpec>,
    /// What the run gives it in the place of the lab's: pages, and what is on them.
    pub given: Vec<(String, Page)>,
    /// What it is, for people.
    pub is: String,
    /// What is declared and not there, for people; empty: nothing.
    pub declared: Vec<String>,
}

impl PlannedMachine {
    /// Its MAC.
    pub fn mac(&self) -> &str {
        self.spec.nics.first().map_or("", |nic| nic.mac.as_str())
    }
}

/// A scenario whose machines cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host {host}: {why}")]
pub struct PlanError {
    host: String,
    why: String,
}

/// Where machines reach the service.
pub fn base_url(gateway: IpAddr) -> String {
    format!("http://{}", SocketAddr::new(gateway, PORT))
}

/// Where machines reach an image service beside the service.
pub fn images_url(gateway: IpAddr) -> String {
    format!("http://{}", SocketAddr::new(gateway, IMAGES_PORT))
}

/// The machines of a run.
///
/// # Errors
/// A host without hardware, an address or a disk.
pub fn plan(prepared: &Prepared) -> Result<Plan, PlanError> {
    let scenario = &prepared.scenario;
    let hosts: Vec<&Host> = scenario.hosts.iter().filter(|host| host.is_machine()).collect();
    let mut machines = Vec::new();
    let mut in_network: Vec<NetworkHost> = Vec::new();
    let mut network =
        NetworkSpec { domains: vec![], segments: vec![], hosts: vec![], names: vec![], elsewhere: vec![], dhcp: true };
    for (place, host) in hosts.iter().enumerate() {
        let wrong = |why: &str| PlanError { host: host.name.clone(), why: why.to_owned() };
        let hardware =
            declared_hardware(&prepared.profiles, host).ok_or_else(|| wrong("there is no such hardware profile"))?;
        let mut machine = machine(prepared, host, &hardware, place).ok_or_else(|| wrong("its profile has no disk"))?;
        let address = address_of(scenario, host.index).ok_or_else(|| wrong("it has no address"))?;
        let taken: Vec<IpAddr> = in_network.iter().flat_map(|other| other.addresses.clone()).collect();
        let mut addresses = static_addresses(scenario, host);
        addresses.retain(|address| !taken.contains(address));
        if addresses.is_empty() {
            addresses.push(address.addr());
        }
        let segment = network.add_segment(&networks_of_host(scenario, host));
        machine.spec.known = known_disks(host, &machine, &network.segments[segment], &addresses);
        in_network.push(NetworkHost {
            name: host.name.clone(),
            domain: Some(domain_of_host(scenario, host)),
            segment,
            mac: machine.mac().to_owned(),
            more_macs: machine.spec.nics.iter().skip(1).map(|nic| nic.mac.clone()).collect(),
            addresses,
            dhcp: host.dhcp,
        });
        machines.push(machine);
    }
    let mut clusters = BTreeMap::new();
    for cluster in &scenario.clusters {
        let of_cluster: Vec<&Host> = scenario.hosts_ever_of(&cluster.name).filter(|host| host.is_machine()).collect();
        if of_cluster.is_empty() {
            continue;
        }
        let names: Vec<String> = of_cluster.iter().map(|host| host.name.clone()).collect();
        // A single node is its own API and ingress.
        let node = in_network.iter().find(|place| of_cluster.iter().any(|host| !host.day2 && host.name == place.name));
        let or_node = |vips: &[IpAddr]| match vips {
            [] => node.map(|place| place.addresses.clone()).unwrap_or_default(),
            vips => vips.to_vec(),
        };
        let domain = domain_of(cluster);
        network.add_cluster(&domain, &or_node(&cluster.api_vips), &or_node(&cluster.ingress_vips));
        clusters.insert(cluster.name.clone(), PlannedCluster { domain, machines: names });
    }
    if network.domains.is_empty() {
        network.domains.push(POOL_DOMAIN.to_owned());
    }
    network.hosts = in_network;
    let service = reached(prepared, &mut network).map_err(|why| PlanError { host: "service".to_owned(), why })?;
    Ok(Plan { network, machines, service, clusters })
}

/// Where machines reach the service. One that runs already is at the address that its images say: the gateway has that, too, or DNS
/// says that the gateway is meant.
fn reached(prepared: &Prepared, network: &mut NetworkSpec) -> Result<Reached, String> {
    let gateways: Vec<IpAddr> = network.gateways().map(IpNet::addr).collect();
    let on_gateway = |port: u16| gateways.iter().map(|gateway| SocketAddr::new(*gateway, port)).collect::<Vec<_>>();
    let Target::Remote { url } = &prepared.target else {
        let gateway = gateway_of(&prepared.scenario).ok_or("the machines' network has no gateway")?;
        return Ok(Reached { base_url: base_url(gateway), listen: on_gateway(PORT), is_foreign: false });
    };
    let (host, port) = host_and_port(url).ok_or_else(|| format!("{url} names no host and port"))?;
    let listen = match host.parse::<IpAddr>() {
        Ok(address) => {
            network.elsewhere.push(address);
            vec![SocketAddr::new(address, port)]
        }
        Err(_) => {
            network.names.push(DnsName { name: host, wildcard: false, addresses: gateways.clone() });
            on_gateway(port)
        }
    };
    Ok(Reached { base_url: url.trim_end_matches('/').to_owned(), listen, is_foreign: true })
}

/// Domain of machines of which nobody knows in which cluster they will be.
const POOL_DOMAIN: &str = "pool.lab.example";

fn domain_of(cluster: &Cluster) -> String {
    format!("{}.{}", cluster.name, cluster.base_domain)
}

/// The domain of a machine: that of its cluster, also of the one to which it will be bound, if there is only one.
fn domain_of_host(scenario: &Scenario, host: &Host) -> String {
    let mut clusters: Vec<&str> = host.clusters().collect();
    clusters.dedup();
    match clusters[..] {
        [one] => scenario.cluster(one).map_or_else(|| POOL_DOMAIN.to_owned(), domain_of),
        _ => POOL_DOMAIN.to_owned(),
    }
}

fn machine(prepared: &Prepared, host: &Host, hardware: &HardwareProfile, place: usize) -> Option<PlannedMachine> {
    const GB: u64 = 1_000_000_000;
    let vm = &host.vm;
    let declared_disk = hardware.disks.first()?;
    let disks = disks(prepared, host, hardware);
    let disk = disks.first()?.size_bytes?;
    let index = u32::try_from(host.index).ok()?;
    let declared_mib = hardware.memory.physical_bytes >> 20;
    let mut overlay = Overlay::default();
    let mut declared = Vec::new();
    // The lab's agent declares. A given one tells the service what is there.
    let declares = vm.agent.is_none();
    if declares && hardware.cpu.count > vm.cpus {
        overlay.cpus = Some(i64::from(hardware.cpu.count));
        declared.push(format!("{} cores, {} there", hardware.cpu.count, vm.cpus));
    }
    if declares && declared_mib > vm.memory_mib {
        overlay.memory_mib = i64::try_from(declared_mib).ok();
        declared.push(format!("{declared_mib} MiB of memory, {} there", vm.memory_mib));
    }
    if declares && declared_disk.size_bytes > disk {
        let gb = declared_disk.size_bytes.div_ceil(GB);
        overlay.disk_gb = i64::try_from(gb).ok();
        declared.push(format!("a disk of {gb} GB, {} there", disk / GB));
    }
    let gateway = gateway_of(&prepared.scenario);
    let url = |what: &str| Some(program_url(gateway?, &host.name, what));
    let config = NodeConfig {
        timing: prepared.timing.clone(),
        overlay,
        agent: vm.agent.as_ref().and_then(|_| url("agent")),
        installer: vm.installer.as_ref().and_then(|_| url("installer")),
        controller: vm.controller.as_ref().and_then(|_| url("controller")),
        deploy: vm.installer.as_ref().and_then(|_| url(DEPLOY)),
        seed: prepared.seed,
        ..NodeConfig::default()
    };
    let firmware = match vm.firmware {
        vlab_scenario::Firmware::Bios => Firmware::Bios,
        vlab_scenario::Firmware::Uefi => Firmware::Uefi,
        vlab_scenario::Firmware::UefiSecure => Firmware::UefiSecure,
    };
    let spec = MachineSpec {
        vendor: Vendor {
            manufacturer: hardware.vendor.manufacturer.clone(),
            product: hardware.vendor.product_name.clone(),
            serial: hardware.serial(index),
        },
        cpus: vm.cpus,
        firmware,
        tpm: vm.tpm,
        boot: match vm.boot_order {
            vlab_scenario::BootOrder::DiskFirst => BootOrder::DiskFirst,
            vlab_scenario::BootOrder::Nvram => BootOrder::Firmware,
            vlab_scenario::BootOrder::CdFirst => BootOrder::CdFirst,
        },
        disks,
        nics: interfaces(&prepared.scenario, hardware, index)
            .into_iter()
            .enumerate()
            .map(|(interface, mac)| NicSpec { mac, plug: Plug::Tap(config::tap(place, interface)) })
            .collect(),
        // Times and a few numbers: it can always be written.
        firmware_files: vec![(NODE_CONFIG.to_owned(), serde_json::to_vec_pretty(&config).ok()?)],
        ..MachineSpec::new(&host.name, machine_id(prepared, host), vm.memory_mib)
    };
    let is = format!(
        "{} core{}, {} MiB, {}, {}{}",
        vm.cpus,
        if vm.cpus == 1 { "" } else { "s" },
        vm.memory_mib,
        match &vm.disks[..] {
            [] => format!("{} GB", disk / GB),
            several => several.iter().map(shown).collect::<Vec<_>>().join(" + "),
        },
        match firmware {
            Firmware::Bios => "BIOS",
            Firmware::Uefi => "UEFI",
            Firmware::UefiSecure => "UEFI with secure boot",
        },
        if vm.tpm { ", TPM 2.0" } else { "" },
    );
    let is = vm.programs().fold(is, |is, (key, file)| format!("{is}, {key} {}", file.display()));
    let page = |key: &str, file: &PathBuf| (program_page(&host.name, key), Page::File(file.clone()));
    let mut given: Vec<(String, Page)> = vm.programs().map(|(key, file)| page(key, file)).collect();
    // It was there when the run was prepared.
    let deploy = vm.installer.as_ref().and_then(|installer| programs::deploy_folder(installer).ok());
    given.extend(deploy.map(|folder| (program_page(&host.name, DEPLOY), Page::Archive(folder))));
    Some(PlannedMachine { index: host.index, spec, luns: luns(host), given, is, declared })
}

/// The disks that a machine has on the network.
fn luns(host: &Host) -> Vec<LunSpec> {
    let on_network = host.vm.disks.iter().zip(0u64..).filter(|(disk, _)| disk.bus.network_paths() > 0);
    on_network
        .map(|(disk, place)| LunSpec {
            target: format!("iqn.2026-01.example.lab:{}.{place}", host.name),
            file: format!("{}.{place}.img", host.name).into(),
            size_bytes: disk.size_gb * 1_000_000_000,
            serial: serial_of_disk(host, disk, place),
            wwn: wwn_of_disk(host, disk, place),
        })
        .collect()
}

/// What its firmware tells of them: each way to one is another port of the gateway.
fn known_disks(host: &Host, machine: &PlannedMachine, segment: &Segment, addresses: &[IpAddr]) -> Option<Known> {
    let gateway = segment.gateways.first()?;
    let address = *addresses.iter().find(|address| gateway.contains(*address))?;
    let of_network = host.vm.disks.iter().map(|disk| disk.bus.network_paths()).filter(|paths| *paths > 0);
    let targets: Vec<(SocketAddr, String)> = of_network
        .zip(&machine.luns)
        .flat_map(|(paths, lun)| ISCSI_PORTS.iter().take(paths.into()).map(|port| (*port, lun.target.clone())))
        .map(|(port, target)| (SocketAddr::new(gateway.addr(), port), target))
        .collect();
    let mut mac = [0; 6];
    for (byte, text) in mac.iter_mut().zip(machine.mac().split(':')) {
        *byte = u8::from_str_radix(text, 16).ok()?;
    }
    let initiator = format!("iqn.2026-01.example.lab:{}", host.name);
    (!targets.is_empty()).then_some(Known { initiator, mac, address: (address, gateway.prefix_len()), targets })
}

/// A disk, for people.
fn shown(disk: &VmDisk) -> String {
    let leftover = disk.leftover.map(|leftover| format!(" with old {leftover}")).unwrap_or_default();
    let removable = if disk.removable { "removable " } else { "" };
    format!("{} GB {removable}{}{leftover}", disk.size_gb, disk.bus)
}

/// The disks of a machine: those that the scenario names, else one.
fn disks(prepared: &Prepared, host: &Host, hardware: &HardwareProfile) -> Vec<DiskSpec> {
    const GB: u64 = 1_000_000_000;
    if host.vm.disks.is_empty() {
        let declared = hardware.disks.first().map_or(0, |disk| disk.size_bytes);
        let size = host.vm.disk_gb.map_or(declared, |gb| gb * GB);
        return vec![DiskSpec::new("vda", Bus::Virtio, size, &format!("LABD{:06}", host.index))];
    }
    let of_raid = || host.vm.disks.iter().filter(|disk| disk.leftover == Some(vlab_scenario::Leftover::Raid));
    let smallest = of_raid().map(|disk| disk.size_gb * GB).min().unwrap_or(0);
    let members = u16::try_from(of_raid().count()).unwrap_or(u16::MAX);
    let array = Uuid::from_u128(machine_id(prepared, host).as_u128().rotate_left(64));
    let mut member = 0..members;
    // Those on the network come last in the profile.
    let pairs = host.vm.disks.iter().filter(|disk| disk.bus.network_paths() == 0).zip(&hardware.disks);
    pairs
        .map(|(disk, seen)| {
            let (bus, name) = match disk.bus {
                DiskBus::Sata => (Bus::Sata, seen.name.as_str()),
                DiskBus::Scsi => (Bus::Scsi, seen.name.as_str()),
                DiskBus::Nvme => (Bus::Nvme, seen.name.trim_end_matches("n1")),
                // What is not built was refused when the scenario was loaded.
                _ => (Bus::Virtio, seen.name.as_str()),
            };
            let wwn = seen.wwn.as_deref().map(|wwn| wwn.trim_start_matches("eui.").trim_start_matches("0x"));
            DiskSpec {
                wwn: wwn.and_then(|wwn| u64::from_str_radix(wwn, 16).ok()).unwrap_or(0),
                ssd: disk.ssd && bus != Bus::Nvme,
                removable: disk.removable,
                leftover: disk.leftover.map(|leftover| match leftover {
                    vlab_scenario::Leftover::Partitions => Leftover::Partitions,
                    vlab_scenario::Leftover::Lvm => Leftover::Lvm { group: format!("old_{name}") },
                    vlab_scenario::Leftover::Raid => {
                        Leftover::Raid { array, member: member.next().unwrap_or(0), members, smallest }
                    }
                }),
                ..DiskSpec::new(name, bus, disk.size_gb * GB, seen.serial.as_deref().unwrap_or_default())
            }
        })
        .collect()
}

/// The page with the manifests that lie beside the installer.
const DEPLOY: &str = "deploy.tar.gz";

/// Path of the page with something that a host is given.
fn program_page(host: &str, what: &str) -> String {
    format!("/{host}/{what}")
}

fn program_url(gateway: IpAddr, host: &str, what: &str) -> String {
    format!("http://{}{}", SocketAddr::new(gateway, PROGRAMS_PORT), program_page(host, what))
}

/// MACs of the interfaces that the machine has of those of its hardware: the first, and those that static networks speak of.
fn interfaces(scenario: &Scenario, hardware: &HardwareProfile, index: u32) -> Vec<String> {
    let named: Vec<&String> = scenario
        .infra_env
        .static_networks
        .iter()
        .flat_map(|n| n.mac_interface_map.iter().map(|(mac, _)| mac))
        .collect();
    let all = (0..hardware.nics.len()).map(|nic| hardware.mac(index, nic).to_string()).enumerate();
    all.filter(|(nic, mac)| *nic == 0 || named.iter().any(|named| named.eq_ignore_ascii_case(mac)))
        .map(|(_, mac)| mac)
        .collect()
}

/// Addresses that static networks give to a host without DHCP, as far as the lab's networks have them: the lab's DNS knows it by them.
/// A machine that finds no name for its address is called `localhost`, which no service takes.
fn static_addresses(scenario: &Scenario, host: &Host) -> Vec<IpAddr> {
    let networks = networks_of_host(scenario, host);
    let in_lab = |address: &IpAddr| {
        networks.iter().any(|net| net.contains(address) && gateway(net).is_none_or(|gateway| gateway != *address))
    };
    let mut found: Vec<IpAddr> = Vec::new();
    let of_host = scenario.infra_env.static_networks.iter().filter(|network| network.hosts.contains(&host.name));
    for network in of_host.filter(|_| !host.dhcp) {
        for address in network.addresses().iter().map(IpNet::addr).filter(in_lab) {
            if !found.contains(&address) {
                found.push(address);
            }
        }
    }
    found
}

/// Id of the machine, which its agent takes for that of the host.
fn machine_id(prepared: &Prepared, host: &Host) -> Uuid {
    host_id(prepared.seed, host.index as u64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use rstest::rstest;
    use vlab_scenario::{Catalogue, SourceFile};

    use super::*;
    use crate::prepare::prepare;
    use vlab_drive::prepare::Choices;

    fn prepared(hosts: &str) -> Prepared {
        let text = format!("version: 1\nname: t\ncluster: {{topology: sno}}\nhosts:\n  - {hosts}\n");
        let catalogue = Catalogue::embedded();
        let scenario =
            vlab_scenario::load(&SourceFile::new("t.yaml", text), &catalogue).unwrap_or_else(|e| panic!("{e}"));
        prepare(scenario, &catalogue, &Choices { seed: Some(7), ..Choices::default() }).unwrap()
    }

    /// A program that can run on a machine.
    fn program(folder: &Path, name: &str) -> PathBuf {
        let file = folder.join(name);
        std::fs::write(&file, programs::tests::static_program()).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn what_the_profile_has_more_than_the_machine_is_declared() {
        let plan = plan(&prepared("{name: node, kind: vm, profile: minimal-sno}")).unwrap();
        let node = &plan.machines[0];
        assert_eq!(node.is, "1 core, 1024 MiB, 128 GB, BIOS");
        assert_eq!(node.declared, ["8 cores, 1 there", "16384 MiB of memory, 1024 there"]);
        let (name, content) = &node.spec.firmware_files[0];
        let config: NodeConfig = serde_json::from_slice(content).unwrap();
        assert_eq!(name, "opt/vlab/node.json");
        assert_eq!(config.overlay, Overlay { cpus: Some(8), memory_mib: Some(16384), ..Overlay::default() });
        assert_eq!(node.spec.vendor.serial, "LAB-SNO-000000");
        assert_eq!(node.mac(), "52:54:00:00:00:00");
        let place = &plan.network.hosts[0];
        assert_eq!(
            (place.mac.as_str(), place.addresses[0].to_string()),
            ("52:54:00:00:00:00", "192.168.126.10".into())
        );
        plan.network.check().unwrap();
    }

    #[test]
    fn a_given_agent_tells_what_is_there() {
        let plan = plan(&prepared("{name: node, kind: vm, profile: minimal-sno, vm: {agent: /bin/true}}")).unwrap();
        let node = &plan.machines[0];
        assert!(node.declared.is_empty(), "{:?}", node.declared);
        let config: NodeConfig = serde_json::from_slice(&node.spec.firmware_files[0].1).unwrap();
        assert_eq!(config.overlay, Overlay::default());
        assert!(config.agent.is_some());
    }

    #[test]
    fn a_machine_that_has_what_is_declared_declares_nothing() {
        let vm = "vm: {cpus: 8, memory_mib: 16384, disk_gb: 10, firmware: uefi, tpm: true}";
        let plan = plan(&prepared(&format!("{{name: node, kind: vm, profile: minimal-sno, {vm}}}"))).unwrap();
        assert_eq!(plan.machines[0].is, "8 cores, 16384 MiB, 10 GB, UEFI, TPM 2.0");
        assert_eq!(plan.machines[0].declared, ["a disk of 129 GB, 10 there"]);
    }

    #[test]
    fn a_machine_has_the_disks_that_the_scenario_names() {
        let disks = "{bus: sata, size_gb: 150, serial: ARRAY, leftover: raid}, {bus: scsi, size_gb: 120, leftover: raid}, \
                     {bus: scsi, size_gb: 16, serial: STICK, removable: true, leftover: partitions}, \
                     {bus: nvme, size_gb: 100, wwn: \"5000c50012345678\", leftover: lvm}";
        let node =
            plan(&prepared(&format!("{{name: node, kind: vm, vm: {{disks: [{disks}]}}}}"))).unwrap().machines.remove(0);
        assert_eq!(
            node.is,
            "1 core, 1024 MiB, 150 GB sata with old raid + 120 GB scsi with old raid + 16 GB removable scsi with old partitions + \
             100 GB nvme with old lvm, BIOS"
        );
        assert!(!node.declared.iter().any(|declared| declared.contains("disk")), "{:?}", node.declared);
        let config: NodeConfig = serde_json::from_slice(&node.spec.firmware_files[0].1).unwrap();
        assert_eq!(config.overlay.disk_gb, None, "disks are what they are");
        insta::assert_debug_snapshot!(node.spec.disks);
    }

    #[test]
    fn a_machine_knows_each_way_to_its_disks_on_the_network() {
        let disks = "{bus: iscsi, size_gb: 1}, {bus: virtio, size_gb: 120}, {bus: iscsi, size_gb: 2, wwn: \"5000c50012345678\"}";
        let node =
            plan(&prepared(&format!("{{name: node, kind: vm, vm: {{disks: [{disks}]}}}}"))).unwrap().machines.remove(0);
        assert_eq!(node.spec.disks.len(), 1, "{:?}", node.spec.disks);
        assert_eq!(
            node.luns.iter().map(|lun| lun.wwn).collect::<Vec<_>>(),
            [0x3000_0000_0000_0000, 0x5000_c500_1234_5678]
        );
        let ports = |known: Option<Known>| -> Vec<String> {
            known
                .map(|known| known.targets.iter().map(|(at, name)| format!("{at} {name}")).collect())
                .unwrap_or_default()
        };
        let name = "iqn.2026-01.example.lab:node-0";
        let one_port = [format!("192.168.126.1:3260 {name}.0"), format!("192.168.126.1:3260 {name}.2")];
        assert_eq!(ports(node.spec.known), one_port);
        let disks = "{bus: virtio, size_gb: 120}, {bus: multipath, size_gb: 1}";
        let node =
            plan(&prepared(&format!("{{name: node, kind: vm, vm: {{disks: [{disks}]}}}}"))).unwrap().machines.remove(0);
        let two_ports = [3260, 3261].map(|port| format!("192.168.126.1:{port} {name}.1"));
        assert_eq!(ports(node.spec.known), two_ports);
        let plain = plan(&prepared("{name: node, kind: vm}")).unwrap().machines.remove(0);
        assert_eq!((plain.spec.known, plain.luns.len()), (None, 0));
    }

    #[test]
    fn a_host_without_dhcp_is_told_nothing_by_it() {
        let plan = plan(&prepared("{name: node, kind: vm, dhcp: false, addresses: {first: 192.168.126.30}}")).unwrap();
        assert!(!plan.network.hosts[0].dhcp, "{:?}", plan.network.hosts);
        assert_eq!(plan.network.hosts[0].addresses, ["192.168.126.30".parse::<IpAddr>().unwrap()]);
    }

    #[rstest]
    #[case::by_its_image("dhcp: false, addresses: {first: 192.168.126.10}", "192.168.126.30", &["192.168.126.30"])]
    #[case::elsewhere("dhcp: false, addresses: {first: 192.168.126.10}", "198.51.100.30", &["192.168.126.10"])]
    #[case::the_gateway("dhcp: false, addresses: {first: 192.168.126.10}", "192.168.126.1", &["192.168.126.10"])]
    #[case::nonsense("dhcp: false, addresses: {first: 192.168.126.10}", "[]", &["192.168.126.10"])]
    #[case::dhcp("addresses: {first: 192.168.126.10}", "192.168.126.30", &["192.168.126.10"])]
    fn the_dns_knows_a_machine_without_dhcp_by_its_static_address(
        #[case] host: &str,
        #[case] ip: &str,
        #[case] known: &[&str],
    ) {
        let text = format!(
            "version: 1\nname: t\ncluster: {{topology: sno, openshift_version: \"4.16\", machine_networks: [192.168.126.0/24]}}\n\
             hosts: [{{name: node, kind: vm, {host}}}]\n\
             infra_env:\n  static_network_config:\n    - network_yaml: |\n        interfaces:\n        \
             - {{name: p1, type: ethernet, state: up, ipv4: {{enabled: true, address: [{{ip: {ip}, prefix-length: 24}}]}}}}\n      \
             mac_interface_map:\n        - {{mac_address: \"52:54:00:00:00:00\", logical_nic_name: p1}}\n"
        );
        let catalogue = Catalogue::embedded();
        let scenario =
            vlab_scenario::load(&SourceFile::new("t.yaml", text), &catalogue).unwrap_or_else(|e| panic!("{e}"));
        let prepared = prepare(scenario, &catalogue, &Choices { seed: Some(7), ..Choices::default() }).unwrap();
        let network = plan(&prepared).unwrap().network;
        network.check().unwrap();
        let addresses: Vec<String> = network.hosts[0].addresses.iter().map(IpAddr::to_string).collect();
        assert_eq!(addresses, known);
        // A single node is its own API.
        assert!(network.names.iter().all(|name| name.addresses == network.hosts[0].addresses), "{:?}", network.names);
    }

    #[test]
    fn a_machine_has_the_interfaces_that_static_networks_speak_of() {
        let text = "version: 1\nname: t\ncluster: {topology: sno, openshift_version: \"4.16\"}\n\
                    hosts: [{name: node, kind: vm, profile: dell-poweredge-r650, addresses: {first: 192.168.126.30}}]\n";
        let network = "infra_env:\n  static_network_config:\n    - network_yaml: |\n        interfaces:\n        \
                       - {name: p1, type: ethernet, state: up}\n      mac_interface_map:\n        \
                       - {nic: node-0/eno12409np1, logical_nic_name: p1}\n";
        let interfaces = |text: String| {
            let catalogue = Catalogue::embedded();
            let scenario =
                vlab_scenario::load(&SourceFile::new("t.yaml", text), &catalogue).unwrap_or_else(|e| panic!("{e}"));
            let prepared = prepare(scenario, &catalogue, &Choices { seed: Some(7), ..Choices::default() }).unwrap();
            let plan = plan(&prepared).unwrap();
            plan.network.check().unwrap();
            let nics = plan.machines[0].spec.nics.iter().map(|nic| (nic.mac.clone(), nic.plug.clone()));
            let macs: Vec<String> = plan.network.hosts[0].macs().map(str::to_owned).collect();
            let nics: Vec<_> = nics.collect();
            assert_eq!(nics.iter().map(|(mac, _)| mac.clone()).collect::<Vec<_>>(), macs);
            nics.into_iter().map(|(_, plug)| plug).collect::<Vec<_>>()
        };
        let tap = |name: &str| Plug::Tap(name.to_owned());
        assert_eq!(interfaces(text.to_owned()), [tap("tap0")]);
        assert_eq!(interfaces(format!("{text}{network}")), [tap("tap0"), tap("tap0-1")]);
    }

    #[test]
    fn a_machine_knows_where_its_agent_is() {
        let folder = tempfile::tempdir().unwrap();
        let agent = program(folder.path(), "agent");
        let plan = plan(&prepared(&format!("{{name: node, kind: vm, vm: {{agent: {}}}}}", agent.display()))).unwrap();
        let node = &plan.machines[0];
        assert_eq!(node.given, [("/node-0/agent".to_owned(), Page::File(agent.clone()))]);
        assert!(node.is.ends_with(&format!(", agent {}", agent.display())), "{}", node.is);
        let config: NodeConfig = serde_json::from_slice(&node.spec.firmware_files[0].1).unwrap();
        assert_eq!(config.agent.as_deref(), Some("http://192.168.126.1:8091/node-0/agent"));
        assert_eq!((config.installer, config.controller, config.deploy), (None, None, None));
    }

    #[test]
    fn a_machine_knows_where_the_product_s_programs_are() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["installer", "controller"] {
            program(folder.path(), name);
        }
        let vm =
            format!("{{installer: {}, controller: {}}}", file("installer").display(), file("controller").display());
        let host = format!("{{name: node, kind: vm, vm: {vm}}}");
        std::fs::create_dir(file("deploy")).unwrap();
        std::fs::write(file("deploy/assisted-installer-controller-cm.yaml.template"), "").unwrap();
        let prepared = prepared(&host);
        assert!(!prepared.settings.enable_skip_mco_reboot, "nothing could be fetched for it");
        let plan = plan(&prepared).unwrap();
        let node = &plan.machines[0];
        assert_eq!(
            node.given,
            [
                ("/node-0/installer".to_owned(), Page::File(file("installer"))),
                ("/node-0/controller".to_owned(), Page::File(file("controller"))),
                ("/node-0/deploy.tar.gz".to_owned(), Page::Archive(file("deploy"))),
            ]
        );
        let config: NodeConfig = serde_json::from_slice(&node.spec.firmware_files[0].1).unwrap();
        assert_eq!(config.agent, None);
        assert_eq!(config.installer.as_deref(), Some("http://192.168.126.1:8091/node-0/installer"));
        assert_eq!(config.controller.as_deref(), Some("http://192.168.126.1:8091/node-0/controller"));
        assert_eq!(config.deploy.as_deref(), Some("http://192.168.126.1:8091/node-0/deploy.tar.gz"));
        assert!(config.overlay != Overlay::default(), "the lab's agent declares");
        assert!(node.is.contains(", installer ") && node.is.contains(", controller "), "{}", node.is);
    }

    #[test]
    fn clusters_share_a_network_or_have_one_of_their_own() {
        let text = "version: 1\nname: t\nclusters:\n\
                    - {name: a, topology: sno, machine_networks: [192.168.126.0/24]}\n\
                    - {name: b, topology: sno, machine_networks: [192.168.126.0/24], base_domain: b.example}\n\
                    - {name: c, topology: sno, machine_networks: [10.1.0.0/24]}\n\
                    - {name: d, topology: sno, machine_networks: [192.168.126.0/24]}\n\
                    - {name: e, topology: sno, machine_networks: [10.1.0.0/24]}\n\
                    - {name: f, topology: sno, machine_networks: [10.1.0.0/24]}\n\
                    hosts:\n- {name: a, cluster: a, kind: vm}\n- {name: b, cluster: b, kind: vm}\n- {name: c, cluster: c, kind: vm}\n\
                    - {name: late, cluster: none, kind: vm}\n- {name: twice, cluster: none, kind: vm}\n- {name: spare, cluster: none, kind: vm}\n\
                    - {name: more, cluster: a, kind: vm, day2: true}\n\
                    actions:\n- {do: allow-add-hosts, cluster: a, after: {cluster: a, status: installed}}\n\
                    - {do: bind, host: late-0, cluster: d, at: 1h}\n- {do: bind, host: twice-0, cluster: e, at: 1h}\n\
                    - {do: bind, host: twice-0, cluster: f, at: 2h}\n";
        let catalogue = Catalogue::embedded();
        let source = SourceFile::new("t.yaml", text.to_owned());
        let scenario = vlab_scenario::load(&source, &catalogue).unwrap_or_else(|e| panic!("{e}"));
        let prepared = prepare(scenario, &catalogue, &Choices { seed: Some(7), ..Choices::default() }).unwrap();
        let plan = plan(&prepared).unwrap();
        plan.network.check().unwrap();
        let addresses = |all: &[IpAddr]| all.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ");
        let hosts = plan.network.hosts.iter().map(|host| {
            let domain = host.domain.as_deref().unwrap_or_default();
            format!("{}.{domain} in {}: {}", host.name, host.segment, addresses(&host.addresses))
        });
        let names = plan.network.names.iter().map(|name| format!("{}: {}", name.name, addresses(&name.addresses)));
        let gateways: Vec<String> = plan.network.gateways().map(IpNet::to_string).collect();
        assert_eq!(gateways, ["192.168.126.1/24", "10.1.0.1/24", "10.64.0.1/16"]);
        let clusters = plan.clusters.iter().map(|(name, c)| format!("{name}: {} {}", c.domain, c.machines.join(" ")));
        insta::assert_snapshot!(hosts.chain(names).chain(clusters).collect::<Vec<_>>().join("\n"));
        assert_eq!(base_url(gateway_of(&prepared.scenario).unwrap()), "http://192.168.126.1:8090");
    }

    #[rstest]
    #[case::an_address("http://203.0.113.7:8090/", &["203.0.113.7:8090"], "203.0.113.7")]
    #[case::usual_port("http://203.0.113.7", &["203.0.113.7:80"], "203.0.113.7")]
    #[case::a_name("http://assisted.example:8090", &["192.168.126.1:8090"], "")]
    fn a_service_that_runs_already_is_reached_where_its_images_say(
        #[case] url: &str,
        #[case] listen: &[&str],
        #[case] elsewhere: &str,
    ) {
        let of_run = plan(&prepared("{name: node, kind: vm}")).unwrap().service;
        let expected = vec!["192.168.126.1:8090".parse().unwrap()];
        assert_eq!((of_run.listen, of_run.is_foreign), (expected, false));
        let prepared =
            Prepared { target: Target::Remote { url: url.to_owned() }, ..prepared("{name: node, kind: vm}") };
        let plan = plan(&prepared).unwrap();
        plan.network.check().unwrap();
        assert_eq!((plan.service.base_url.as_str(), plan.service.is_foreign), (url.trim_end_matches('/'), true));
        assert_eq!(plan.service.listen.iter().map(SocketAddr::to_string).collect::<Vec<_>>(), listen);
        assert_eq!(plan.network.elsewhere.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" "), elsewhere);
        let name = plan.network.names.iter().find(|name| name.name == "assisted.example");
        assert_eq!(name.is_some(), elsewhere.is_empty());
    }

    #[test]
    fn a_single_node_is_its_own_api() {
        let prepared = prepared("{name: node, kind: vm, addresses: {first: 192.168.126.30}}");
        let plan = plan(&prepared).unwrap();
        let names: Vec<_> = plan.network.names.iter().map(|n| (n.name.as_str(), n.addresses[0].to_string())).collect();
        let node = "192.168.126.30".to_owned();
        assert_eq!(
            names,
            [
                ("api.t.lab.example", node.clone()),
                ("api-int.t.lab.example", node.clone()),
                ("apps.t.lab.example", node)
            ]
        );
        assert_eq!(base_url(gateway_of(&prepared.scenario).unwrap()), "http://192.168.126.1:8090");
    }
}
