//! Addresses, networks, hardware and ids that a scenario's hosts have in a run.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;
use vlab_agents::HardwareProfile;
use vlab_agents::profile::{BootProfile, DiskProfile, HostAddresses};
use vlab_api::types::DriveType;
use vlab_scenario::{DiskBus, Firmware, Host, Leftover, Scenario, VmDisk};

/// The host's address: the scenario's, else one of its cluster's network (the lab's DHCP, so to speak).
pub fn address_of(scenario: &Scenario, index: usize) -> Option<IpNet> {
    let host = &scenario.hosts[index];
    if host.address.is_some() {
        return host.address;
    }
    let place = scenario.hosts_of(host.cluster.as_deref()).position(|h| h.index == index)?;
    address_at(scenario, host, place)
}

/// The same for the host that is at that place among its cluster's.
pub(crate) fn address_at(scenario: &Scenario, host: &Host, place: usize) -> Option<IpNet> {
    if host.address.is_some() {
        return host.address;
    }
    nth_address(&network_of(scenario, host.cluster.as_deref())?, place as u128 + 10)
}

/// Address of the gateway in the network of the scenario's first machine: NTP source, and where the service is. Machines in other
/// networks reach it, too, because their gateway is the same computer.
pub fn gateway_of(scenario: &Scenario) -> Option<IpAddr> {
    let host = scenario.hosts.iter().find(|host| host.is_machine())?;
    gateway(networks_of_host(scenario, host).first()?)
}

/// The networks in which a machine is: those of its cluster, or of the clusters to which it is bound, or that of the pool.
pub fn networks_of_host(scenario: &Scenario, host: &Host) -> Vec<IpNet> {
    match host.clusters().find_map(|name| scenario.cluster(name)) {
        Some(cluster) => cluster.machine_networks.clone(),
        None => network_of(scenario, None).into_iter().collect(),
    }
}

/// The first network of a cluster, or that of the pool.
pub fn network_of(scenario: &Scenario, cluster: Option<&str>) -> Option<IpNet> {
    match cluster.and_then(|name| scenario.cluster(name)) {
        Some(cluster) => cluster.machine_networks.first().copied(),
        // In a network of 16 bits the addresses end at 65,534.
        None if scenario.hosts.len() > 65_000 => Some(IpNet::from(LARGE_POOL_NETWORK)),
        None => Some(IpNet::from(POOL_NETWORK)),
    }
}

/// What the host's hardware profile and what differs from it say together.
pub fn declared_hardware(
    profiles: &BTreeMap<String, Arc<HardwareProfile>>,
    host: &Host,
) -> Option<Arc<HardwareProfile>> {
    let profile = profiles.get(&host.profile)?;
    let overrides = &host.overrides;
    let secure = host.vm.firmware == Firmware::UefiSecure;
    if *overrides == vlab_scenario::Overrides::default() && host.vm.disks.is_empty() && !secure {
        return Some(profile.clone());
    }
    let mut profile = HardwareProfile::clone(profile);
    if secure {
        profile.boot = BootProfile { mode: "uefi".into(), secure_boot: Some("Enabled".into()) };
    }
    if !host.vm.disks.is_empty() {
        profile.disks = disks(host);
    }
    if let Some(cores) = overrides.cpu_cores {
        profile.cpu.count = cores;
    }
    if let Some(mib) = overrides.memory_mib {
        profile.memory.physical_bytes = mib << 20;
        profile.memory.usable_bytes = mib << 20;
    }
    if let Some(gb) = overrides.disk_gb {
        for disk in &mut profile.disks {
            disk.size_bytes = gb * 1_000_000_000;
        }
    }
    Some(Arc::new(profile))
}

/// The disks that the scenario gives a host, as its system sees them: its own, in their order, and then those on the network. That of a
/// simulated host leaves volumes and arrays that are left on them alone.
fn disks(host: &Host) -> Vec<DiskProfile> {
    let (mut letters, mut others, mut targets) = (BTreeMap::new(), 0u32, 0u32);
    let mut letter = |start: &'static str| {
        let next = letters.entry(start).or_insert(b'a');
        *next += 1;
        format!("{start}{}", char::from(*next - 1))
    };
    let (own, network): (Vec<_>, Vec<_>) =
        host.vm.disks.iter().zip(0u64..).partition(|(disk, _)| disk.bus.network_paths() == 0);
    let mut all: Vec<DiskProfile> = Vec::new();
    for (disk, place) in own {
        let name = match disk.bus {
            DiskBus::Sata | DiskBus::Scsi => letter("sd"),
            DiskBus::Nvme => {
                others += 1;
                format!("nvme{}n1", others - 1)
            }
            _ => letter("vd"),
        };
        all.push(DiskProfile {
            wwn: (disk.bus != DiskBus::Virtio).then(|| match disk.bus {
                DiskBus::Nvme => format!("eui.{:016x}", wwn_of_disk(host, disk, place)),
                _ => format!("{:#018x}", wwn_of_disk(host, disk, place)),
            }),
            hctl: (disk.bus == DiskBus::Scsi).then(|| format!("0:0:{}:0", place + 1)),
            bootable: disk.leftover == Some(Leftover::Partitions),
            ..disk_profile(host, disk, place, name)
        });
    }
    for (disk, place) in network {
        let device = (disk.bus == DiskBus::Multipath).then(|| "dm-0".to_owned());
        let wwn = wwn_of_disk(host, disk, place);
        for _ in 0..disk.bus.network_paths() {
            targets += 1;
            all.push(DiskProfile {
                drive_type: DriveType::ISCSI,
                wwn: Some(format!("{wwn:#018x}")),
                hctl: Some(format!("{targets}:0:0:0")),
                holders: device.clone(),
                ..disk_profile(host, disk, place, letter("sd"))
            });
        }
        all.extend(device.map(|name| DiskProfile {
            drive_type: DriveType::Multipath,
            wwn: Some(format!("{wwn:#018x}")),
            serial: None,
            ..disk_profile(host, disk, place, name)
        }));
    }
    all
}

fn disk_profile(host: &Host, disk: &VmDisk, place: u64, name: String) -> DiskProfile {
    DiskProfile {
        name,
        drive_type: if disk.ssd { DriveType::SSD } else { DriveType::HDD },
        vendor: None,
        model: None,
        serial: Some(serial_of_disk(host, disk, place)),
        wwn: None,
        hctl: None,
        by_path: None,
        holders: None,
        size_bytes: disk.size_gb * 1_000_000_000,
        bootable: false,
        removable: disk.removable,
        installation_media: false,
        fsync_ms: 1,
    }
}

/// The serial number of a disk that the scenario gives a host, by its place among them.
pub fn serial_of_disk(host: &Host, disk: &VmDisk, place: u64) -> String {
    disk.serial.clone().unwrap_or_else(|| match place {
        0 => format!("LABD{:06}", host.index),
        place => format!("LABD{:06}-{place}", host.index),
    })
}

/// Its world-wide name.
pub fn wwn_of_disk(host: &Host, disk: &VmDisk, place: u64) -> u64 {
    // Of no maker: locally assigned.
    disk.wwn.unwrap_or(0x3000_0000_0000_0000 | (host.index as u64) << 8 | place)
}

/// Network of hosts that belong to no cluster. Simulated hosts have no network of their own: the addresses only appear in
/// what they report.
const POOL_NETWORK: ipnet::Ipv4Net = match ipnet::Ipv4Net::new(std::net::Ipv4Addr::new(10, 64, 0, 0), 16) {
    Ok(net) => net,
    Err(_) => panic!("a valid prefix length"),
};

/// The same for pools of up to four million hosts.
const LARGE_POOL_NETWORK: ipnet::Ipv4Net = match ipnet::Ipv4Net::new(std::net::Ipv4Addr::new(10, 64, 0, 0), 10) {
    Ok(net) => net,
    Err(_) => panic!("a valid prefix length"),
};

/// The n-th address of a network, with the network's prefix length.
fn nth_address(net: &IpNet, n: u128) -> Option<IpNet> {
    let address: IpAddr = match net.network() {
        IpAddr::V4(a) => IpAddr::V4((u32::from(a).checked_add(u32::try_from(n).ok()?)?).into()),
        IpAddr::V6(a) => IpAddr::V6((u128::from(a).checked_add(n)?).into()),
    };
    (net.contains(&address)).then(|| IpNet::new(address, net.prefix_len()).ok()).flatten()
}

/// The first address of the host's network.
pub fn gateway(net: &IpNet) -> Option<IpAddr> {
    nth_address(&net.trunc(), 1).map(|n| n.addr())
}

/// These addresses on the first NIC, each family with its default gateway.
pub(crate) fn addresses(all: impl Iterator<Item = IpNet>) -> HostAddresses {
    all.fold(HostAddresses::default(), |mut own, net| {
        let one = HostAddresses::single(net, gateway(&net));
        own.gateway_v4 = own.gateway_v4.or(one.gateway_v4);
        own.gateway_v6 = own.gateway_v6.or(one.gateway_v6);
        match (own.nics.first_mut(), one.nics.first()) {
            (Some(nic), Some(more)) => {
                nic.ipv4.extend(&more.ipv4);
                nic.ipv6.extend(&more.ipv6);
            }
            (None, _) => own.nics = one.nics,
            (Some(_), None) => {}
        }
        own
    })
}

/// Id of a host: the same for the same seed.
pub fn host_id(seed: u64, index: u64) -> Uuid {
    // Streams of the hosts' own dice use the same seed with smaller stream numbers; this one is far above them.
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(1 << 62 | index);
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use vlab_scenario::Catalogue;

    use super::*;

    #[test]
    fn a_disk_with_two_ways_is_three_devices() {
        let catalogue = Catalogue::embedded();
        let scenario = vlab_scenario::load(&catalogue.find("disks-on-the-network").unwrap(), &catalogue).unwrap();
        let disks = disks(&scenario.hosts[0]);
        let told: Vec<_> = disks.iter().map(|d| (d.name.as_str(), d.drive_type, d.holders.as_deref())).collect();
        let path = |name| (name, DriveType::ISCSI, Some("dm-0"));
        let expected = [("vda", DriveType::HDD, None), path("sda"), path("sdb"), ("dm-0", DriveType::Multipath, None)];
        assert_eq!(told, expected);
        let ids: std::collections::BTreeSet<String> =
            disks.iter().flat_map(|disk| disk.device_names(0).into_iter().next()).collect();
        assert_eq!(ids.len(), 4, "{ids:?}");
    }

    #[test]
    fn addresses_stay_inside_their_network() {
        let net: IpNet = "192.168.126.0/24".parse().unwrap();
        assert_eq!(nth_address(&net, 10).unwrap().to_string(), "192.168.126.10/24");
        assert_eq!(nth_address(&net, 300), None);
        assert_eq!(gateway(&"192.168.126.77/24".parse().unwrap()).unwrap().to_string(), "192.168.126.1");
        let six: IpNet = "fd00:1::/64".parse().unwrap();
        assert_eq!(nth_address(&six, 10).unwrap().to_string(), "fd00:1::a/64");
    }

    #[test]
    fn host_ids_repeat_with_the_seed_and_differ_between_hosts() {
        assert_eq!(host_id(1, 0), host_id(1, 0));
        assert_ne!(host_id(1, 0), host_id(1, 1));
        assert_ne!(host_id(1, 0), host_id(2, 0));
        assert_eq!(host_id(1, 0).get_version_num(), 4);
    }
}
