//! What a simulated machine is made of: a hardware profile (YAML) plus an index gives one machine, down to its MAC
//! addresses and serial numbers, in the form in which an agent reports it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use vlab_api::types::{
    Boot, Cpu, Disk, DiskInstallationEligibility, DriveType, Interface, Inventory, IoPerf, Iscsi, Memory, Route,
    SystemVendor,
};
use vlab_model::mac::parse_prefix;
pub use vlab_model::mac::{MAX_HOSTS, MAX_NICS, Mac};

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not YAML, an unknown key, a wrong type.
    #[error("hardware profile is not readable: {0}")]
    Yaml(#[from] serde_yaml::Error),
    /// Readable but senseless.
    #[error("hardware profile {profile:?}: {field}: {why}")]
    Invalid {
        /// Name of the profile.
        profile: String,
        /// Which member.
        field: String,
        /// What is wrong with it.
        why: String,
    },
}

/// The hardware of one model of machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardwareProfile {
    /// Name by which scenarios call it.
    pub name: String,
    /// One line for people.
    #[serde(default)]
    pub description: String,
    /// Who made it.
    pub vendor: VendorProfile,
    /// Processors.
    pub cpu: CpuProfile,
    /// Main memory.
    pub memory: MemoryProfile,
    /// Disks, in the order in which the kernel finds them.
    pub disks: Vec<DiskProfile>,
    /// Network interfaces, likewise.
    pub nics: Vec<NicProfile>,
    /// Firmware.
    #[serde(default)]
    pub boot: BootProfile,
    /// `none`, `1.2` or `2.0`.
    #[serde(default = "no_tpm")]
    pub tpm: String,
}

fn no_tpm() -> String {
    "none".into()
}

/// Maker, product and serial number. In every pattern of a profile a run of `#` becomes the host's index with leading
/// zeroes (decimal in serial numbers, hexadecimal in world-wide names).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VendorProfile {
    /// As the firmware spells it.
    pub manufacturer: String,
    /// As the firmware spells it.
    pub product_name: String,
    /// Pattern of the serial number.
    pub serial: String,
    /// A virtual machine.
    #[serde(default)]
    pub r#virtual: bool,
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuProfile {
    /// Logical processors.
    pub count: u32,
    /// `x86_64`, `aarch64`, ...
    pub architecture: String,
    /// Model.
    pub model_name: String,
    /// Highest frequency in MHz.
    #[serde(default)]
    pub frequency_mhz: Option<f64>,
    /// Flags as in `/proc/cpuinfo`.
    #[serde(default)]
    pub flags: Vec<String>,
}

/// Main memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryProfile {
    /// What is plugged in.
    pub physical_bytes: u64,
    /// What the kernel has of it.
    pub usable_bytes: u64,
    /// How the agent finds out: `dmidecode`, `ghw` or `meminfo`.
    #[serde(default = "dmidecode")]
    pub method: String,
}

fn dmidecode() -> String {
    "dmidecode".into()
}

/// What a person writes must be a kind that there is; what agents report may be a newer one.
fn known_drive<'de, D: serde::Deserializer<'de>>(from: D) -> Result<DriveType, D::Error> {
    let word = String::deserialize(from)?;
    word.parse().map_err(serde::de::Error::custom)
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskProfile {
    /// Kernel name, for example `sda`.
    pub name: String,
    /// `HDD`, `SSD`, `ODD`, ...
    #[serde(deserialize_with = "known_drive")]
    pub drive_type: DriveType,
    /// Maker.
    #[serde(default)]
    pub vendor: Option<String>,
    /// Model.
    #[serde(default)]
    pub model: Option<String>,
    /// Pattern of the serial number.
    #[serde(default)]
    pub serial: Option<String>,
    /// Pattern of the world-wide name; `eui.` at its start makes it an NVMe name.
    #[serde(default)]
    pub wwn: Option<String>,
    /// Host, channel, target, LUN.
    #[serde(default)]
    pub hctl: Option<String>,
    /// Last part of its name under `/dev/disk/by-path`.
    #[serde(default)]
    pub by_path: Option<String>,
    /// Devices that are made of it, with commas between them.
    #[serde(default)]
    pub holders: Option<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Has a boot record already.
    #[serde(default)]
    pub bootable: bool,
    /// Can be taken out.
    #[serde(default)]
    pub removable: bool,
    /// The discovery image is on it.
    #[serde(default)]
    pub installation_media: bool,
    /// 99th percentile of a synchronous write in milliseconds, as the disk speed check measures it.
    #[serde(default = "one_ms")]
    pub fsync_ms: u32,
}

fn one_ms() -> u32 {
    1
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicProfile {
    /// Kernel name.
    pub name: String,
    /// `physical`, `vlan`, `bond`, ...
    #[serde(default = "physical", rename = "type")]
    pub kind: String,
    /// First three octets of the MAC, for example `b4:96:91`; a locally administered prefix when absent.
    #[serde(default)]
    pub mac_prefix: Option<String>,
    /// PCI vendor id.
    #[serde(default)]
    pub vendor: Option<String>,
    /// PCI product id.
    #[serde(default)]
    pub product: Option<String>,
    /// Speed in Mb/s; -1 when unknown.
    #[serde(default = "unknown_speed")]
    pub speed_mbps: i64,
    /// Largest packet.
    #[serde(default = "ethernet_mtu")]
    pub mtu: i64,
    /// A cable is plugged in.
    #[serde(default = "yes")]
    pub has_carrier: bool,
}

fn physical() -> String {
    "physical".into()
}
fn unknown_speed() -> i64 {
    -1
}
fn ethernet_mtu() -> i64 {
    1500
}
fn yes() -> bool {
    true
}

/// Firmware.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootProfile {
    /// `uefi` or `bios`.
    pub mode: String,
    /// `Unknown`, `NotSupported`, `Enabled`, `Disabled`.
    #[serde(default)]
    pub secure_boot: Option<String>,
}

impl Default for BootProfile {
    fn default() -> Self {
        Self { mode: "bios".into(), secure_boot: None }
    }
}

/// Addresses of a machine, as DHCP or its static network configuration gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    /// By position: the first belongs to the profile's first NIC. NICs without an entry have no address.
    pub nics: Vec<NicAddresses>,
    /// IPv4 default gateway.
    pub gateway_v4: Option<Ipv4Addr>,
    /// IPv6 default gateway.
    pub gateway_v6: Option<Ipv6Addr>,
    /// Routes beside those to the default gateways and to the networks of the addresses.
    pub routes: Vec<StaticRoute>,
    /// Name servers; `None`: DHCP's.
    pub dns: Option<Vec<IpAddr>>,
}

impl HostAddresses {
    /// The first address, of IPv4 if there is one.
    fn first(&self) -> Option<IpAddr> {
        let v4 = self.nics.iter().find_map(|nic| nic.ipv4.first()).map(|net| net.addr().into());
        v4.or_else(|| self.nics.iter().find_map(|nic| nic.ipv6.first()).map(|net| net.addr().into()))
    }
}

/// A route that somebody set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticRoute {
    /// Name of the interface that it goes through.
    pub interface: String,
    /// Where it leads.
    pub destination: IpNet,
    /// The next hop; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Among several routes the lowest one is taken.
    pub metric: i64,
}

/// Addresses of a NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicAddresses {
    /// A MAC of its own instead of the one that the profile and the index give.
    pub mac: Option<Mac>,
    /// IPv4 addresses with their prefix lengths.
    pub ipv4: Vec<Ipv4Net>,
    /// IPv6 addresses with their prefix lengths.
    pub ipv6: Vec<Ipv6Net>,
}

impl HostAddresses {
    /// One address on the first NIC and a default gateway of the same family.
    pub fn single(address: IpNet, gateway: Option<IpAddr>) -> Self {
        let mut nic = NicAddresses::default();
        match address {
            IpNet::V4(a) => nic.ipv4.push(a),
            IpNet::V6(a) => nic.ipv6.push(a),
        }
        let (gateway_v4, gateway_v6) = match gateway {
            Some(IpAddr::V4(g)) => (Some(g), None),
            Some(IpAddr::V6(g)) => (None, Some(g)),
            None => (None, None),
        };
        Self { nics: vec![nic], gateway_v4, gateway_v6, ..Self::default() }
    }

    /// Sets a default gateway; one that is there stays, unless `first`.
    pub(crate) fn default_gateway(&mut self, gateway: Option<IpAddr>, first: bool) {
        match gateway {
            Some(IpAddr::V4(g)) if first || self.gateway_v4.is_none() => self.gateway_v4 = Some(g),
            Some(IpAddr::V6(g)) if first || self.gateway_v6.is_none() => self.gateway_v6 = Some(g),
            _ => {}
        }
    }

    /// Is that address in one of its networks?
    pub fn is_on_link(&self, address: IpAddr) -> bool {
        self.all().any(|net| net.contains(&address))
    }

    /// Does a packet to an address outside of its networks leave through one of these gateways?
    pub(crate) fn has_way_out(&self, gateways: &[IpAddr]) -> bool {
        self.gateways().any(|g| gateways.contains(&g) && self.is_on_link(g))
    }

    /// The default gateways.
    pub fn gateways(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.gateway_v4.map(IpAddr::V4).into_iter().chain(self.gateway_v6.map(IpAddr::V6))
    }

    /// All addresses, IPv4 before IPv6 on each NIC.
    pub fn all(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.nics.iter().flat_map(|n| n.ipv4.iter().map(|a| IpNet::V4(*a)).chain(n.ipv6.iter().map(|a| IpNet::V6(*a))))
    }
}

/// Replaces the pattern's runs of `#` by digits of `number`, most significant first, zero-padded.
fn fill(pattern: &str, mut number: u64, radix: u64) -> String {
    let mut out: Vec<char> = pattern.chars().collect();
    for place in out.iter_mut().rev().filter(|c| **c == '#') {
        let digit = u32::try_from(number % radix).unwrap_or(0);
        *place = char::from_digit(digit, 16).unwrap_or('0');
        number /= radix;
    }
    out.into_iter().collect()
}

/// The profiles that ship with the catalogue, by name.
pub const BUILTIN: &[(&str, &str)] = &[
    ("dell-poweredge-r650", include_str!("../../../scenarios/profiles/hardware/dell-poweredge-r650.yaml")),
    ("hpe-proliant-dl360-gen10", include_str!("../../../scenarios/profiles/hardware/hpe-proliant-dl360-gen10.yaml")),
    ("minimal-sno", include_str!("../../../scenarios/profiles/hardware/minimal-sno.yaml")),
    ("small", include_str!("../../../scenarios/profiles/hardware/small.yaml")),
    ("standard", include_str!("../../../scenarios/profiles/hardware/standard.yaml")),
];

/// Names of the profiles that ship with the catalogue.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

/// The shipped profile with that name; `None` when there is none.
///
/// # Errors
/// Never for the profiles as shipped (a test reads them all).
pub fn builtin(name: &str) -> Result<Option<Arc<HardwareProfile>>, ProfileError> {
    match BUILTIN.iter().find(|(n, _)| *n == name) {
        Some((_, text)) => HardwareProfile::from_yaml(text).map(|p| Some(Arc::new(p))),
        None => Ok(None),
    }
}

impl HardwareProfile {
    /// Reads and checks a profile.
    ///
    /// # Errors
    /// When the text is no YAML of this shape or the machine makes no sense.
    pub fn from_yaml(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = serde_yaml::from_str(text)?;
        profile.check()?;
        Ok(profile)
    }

    /// Does the machine make sense?
    ///
    /// # Errors
    /// The first member that does not.
    pub fn check(&self) -> Result<(), ProfileError> {
        let bad = |field: String, why: &str| {
            Err(ProfileError::Invalid { profile: self.name.clone(), field, why: why.to_owned() })
        };
        if self.name.is_empty() {
            return bad("name".into(), "must not be empty");
        }
        if self.cpu.count == 0 {
            return bad("cpu.count".into(), "a machine has at least one processor");
        }
        if self.memory.usable_bytes > self.memory.physical_bytes {
            return bad("memory.usable_bytes".into(), "is more than physical_bytes");
        }
        if !["dmidecode", "ghw", "meminfo"].contains(&self.memory.method.as_str()) {
            return bad("memory.method".into(), "must be dmidecode, ghw or meminfo");
        }
        if !["none", "1.2", "2.0"].contains(&self.tpm.as_str()) {
            return bad("tpm".into(), "must be none, 1.2 or 2.0 (in quotes)");
        }
        if !["bios", "uefi"].contains(&self.boot.mode.as_str()) {
            return bad("boot.mode".into(), "must be bios or uefi");
        }
        if let Some(state) = &self.boot.secure_boot
            && !["Unknown", "NotSupported", "Enabled", "Disabled"].contains(&state.as_str())
        {
            return bad("boot.secure_boot".into(), "must be Unknown, NotSupported, Enabled or Disabled");
        }
        if self.nics.is_empty() || self.nics.len() > MAX_NICS {
            return bad("nics".into(), "a machine has 1 to 16 NICs");
        }
        let mut names = BTreeSet::new();
        for (i, nic) in self.nics.iter().enumerate() {
            if !names.insert(&nic.name) {
                return bad(format!("nics[{i}].name"), "is used twice");
            }
            if let Some(prefix) = &nic.mac_prefix
                && parse_prefix(prefix).is_none()
            {
                return bad(format!("nics[{i}].mac_prefix"), "must be three octets, for example b4:96:91");
            }
        }
        let mut names = BTreeSet::new();
        for (i, disk) in self.disks.iter().enumerate() {
            if !names.insert(&disk.name) {
                return bad(format!("disks[{i}].name"), "is used twice");
            }
            let patterns = [("serial", &disk.serial), ("wwn", &disk.wwn)];
            for (field, pattern) in patterns {
                if let Some(pattern) = pattern
                    && pattern.matches('#').count() < 4
                {
                    return bad(format!("disks[{i}].{field}"), "needs four '#' or more, or hosts would share it");
                }
            }
        }
        if self.vendor.serial.matches('#').count() < 4 {
            return bad("vendor.serial".into(), "needs four '#' or more, or hosts would share it");
        }
        Ok(())
    }

    /// MAC of NIC number `nic` of host number `index`.
    pub fn mac(&self, index: u32, nic: usize) -> Mac {
        let prefix = self.nics.get(nic).and_then(|n| n.mac_prefix.as_deref()).and_then(parse_prefix);
        Mac::of(prefix, index, nic)
    }

    /// Serial number of host number `index`.
    pub fn serial(&self, index: u32) -> String {
        fill(&self.vendor.serial, u64::from(index), 10)
    }

    /// The machine with that index, as an agent on it reports it.
    pub fn instantiate(&self, index: u32, hostname: &str, addresses: &HostAddresses) -> Inventory {
        Inventory {
            hostname: Some(hostname.to_owned()),
            bmc_address: Some("0.0.0.0".into()),
            bmc_v6address: Some("::/0".into()),
            interfaces: Some(
                self.nics.iter().enumerate().map(|(i, n)| self.interface(index, i, n, addresses)).collect(),
            ),
            disks: Some(self.disks.iter().map(|d| d.instantiate(index, addresses.first())).collect()),
            boot: Some(Boot {
                current_boot_mode: Some(self.boot.mode.clone()),
                secure_boot_state: self.boot.secure_boot.clone(),
                device_type: Some("ephemeral".into()),
                ..Boot::default()
            }),
            system_vendor: Some(SystemVendor {
                serial_number: Some(self.serial(index)),
                product_name: Some(self.vendor.product_name.clone()),
                manufacturer: Some(self.vendor.manufacturer.clone()),
                virtual_: Some(self.vendor.r#virtual),
            }),
            memory: Some(Memory {
                physical_bytes: i64::try_from(self.memory.physical_bytes).ok(),
                usable_bytes: i64::try_from(self.memory.usable_bytes).ok(),
                physical_bytes_method: Some(self.memory.method.clone()),
            }),
            cpu: Some(Cpu {
                count: Some(i64::from(self.cpu.count)),
                frequency: self.cpu.frequency_mhz,
                flags: Some(self.cpu.flags.clone()),
                model_name: Some(self.cpu.model_name.clone()),
                architecture: Some(self.cpu.architecture.clone()),
            }),
            gpus: Some(Vec::new()),
            routes: Some(self.routes(addresses)),
            tpm_version: Some(self.tpm.clone()),
            truncation: None,
        }
    }

    fn interface(&self, index: u32, i: usize, nic: &NicProfile, addresses: &HostAddresses) -> Interface {
        let own = addresses.nics.get(i);
        let mac = own.and_then(|n| n.mac).unwrap_or_else(|| self.mac(index, i));
        let mut flags = vec!["up".to_owned(), "broadcast".into(), "multicast".into()];
        if nic.has_carrier {
            flags.push("running".into());
        }
        Interface {
            ipv4_addresses: Some(own.map_or_else(Vec::new, |n| n.ipv4.iter().map(ToString::to_string).collect())),
            ipv6_addresses: Some(own.map_or_else(Vec::new, |n| n.ipv6.iter().map(ToString::to_string).collect())),
            vendor: nic.vendor.clone(),
            product: nic.product.clone(),
            name: Some(nic.name.clone()),
            has_carrier: Some(nic.has_carrier),
            mtu: Some(nic.mtu),
            mac_address: Some(mac.to_string()),
            flags: Some(flags),
            speed_mbps: Some(nic.speed_mbps),
            type_: Some(nic.kind.clone()),
            biosdevname: None,
            client_id: None,
        }
    }

    /// A default route through the NIC that reaches the gateway, and one route for each network.
    fn routes(&self, addresses: &HostAddresses) -> Vec<Route> {
        const FAMILY_V4: i64 = 2;
        const FAMILY_V6: i64 = 10;
        let mut routes = Vec::new();
        let nics = || self.nics.iter().zip(&addresses.nics);
        let mut default = |gateway: IpAddr, destination: &str, family: i64| {
            let through = nics().find(|(_, a)| match gateway {
                IpAddr::V4(g) => a.ipv4.iter().any(|n| n.contains(&g)),
                IpAddr::V6(g) => a.ipv6.iter().any(|n| n.contains(&g)),
            });
            // A gateway outside of all networks: NetworkManager takes it for one on the link of the connection that names it.
            let addressed = || nics().find(|(_, a)| !a.ipv4.is_empty() || !a.ipv6.is_empty());
            if let Some((nic, _)) = through.or_else(addressed).or_else(|| nics().next()) {
                routes.push(Route {
                    interface: Some(nic.name.clone()),
                    gateway: Some(gateway.to_string()),
                    destination: Some(destination.to_owned()),
                    family: Some(family),
                    metric: Some(100),
                });
            }
        };
        if let Some(gateway) = addresses.gateway_v4 {
            default(IpAddr::V4(gateway), "0.0.0.0", FAMILY_V4);
        }
        if let Some(gateway) = addresses.gateway_v6 {
            default(IpAddr::V6(gateway), "::", FAMILY_V6);
        }
        for (nic, own) in nics() {
            let v4 = own.ipv4.iter().map(|n| (n.network().to_string(), FAMILY_V4));
            let v6 = own.ipv6.iter().map(|n| (n.network().to_string(), FAMILY_V6));
            for (destination, family) in v4.chain(v6) {
                routes.push(Route {
                    interface: Some(nic.name.clone()),
                    gateway: None,
                    destination: Some(destination),
                    family: Some(family),
                    metric: Some(100),
                });
            }
        }
        for route in &addresses.routes {
            let family = if route.destination.addr().is_ipv4() { FAMILY_V4 } else { FAMILY_V6 };
            routes.push(Route {
                interface: Some(route.interface.clone()),
                gateway: route.gateway.map(|g| g.to_string()),
                destination: Some(route.destination.network().to_string()),
                family: Some(family),
                metric: Some(route.metric),
            });
        }
        routes
    }
}

impl DiskProfile {
    /// All names under which the disk of host number `index` is found: the best one first.
    pub fn device_names(&self, index: u32) -> Vec<String> {
        // Of several ways to a disk and what is made of them, that has the name.
        let named = self.wwn.as_ref().filter(|_| self.holders.is_none());
        let wwn = named.map(|w| fill(w, u64::from(index), 16));
        let by_id = wwn.map(|w| match w.starts_with("eui.") {
            true => format!("/dev/disk/by-id/nvme-{w}"),
            false => format!("/dev/disk/by-id/wwn-{w}"),
        });
        let by_path = self.by_path.as_ref().map(|p| format!("/dev/disk/by-path/{p}"));
        by_id.into_iter().chain(by_path).chain([format!("/dev/{}", self.name)]).collect()
    }

    /// Serial number of the disk of host number `index`.
    pub(crate) fn serial_of(&self, index: u32) -> Option<String> {
        self.serial.as_ref().map(|serial| fill(serial, u64::from(index), 10))
    }

    /// The host has that address on its way to disks on the network.
    fn instantiate(&self, index: u32, address: Option<IpAddr>) -> Disk {
        let names = self.device_names(index);
        let starting = |prefix: &str| names.iter().find(|n| n.starts_with(prefix)).cloned();
        let mut reasons = Vec::new();
        if self.installation_media {
            reasons.push("Disk is an installation media".to_owned());
        }
        Disk {
            id: names.first().cloned(),
            drive_type: Some(self.drive_type),
            has_uuid: Some(self.wwn.is_some()),
            vendor: self.vendor.clone(),
            name: Some(self.name.clone()),
            path: Some(format!("/dev/{}", self.name)),
            hctl: self.hctl.clone(),
            by_path: starting("/dev/disk/by-path/"),
            by_id: starting("/dev/disk/by-id/"),
            model: self.model.clone(),
            wwn: self.wwn.as_ref().map(|w| fill(w, u64::from(index), 16)),
            serial: self.serial_of(index),
            size_bytes: i64::try_from(self.size_bytes).ok(),
            bootable: Some(self.bootable),
            removable: Some(self.removable),
            is_installation_media: Some(self.installation_media),
            installation_eligibility: Some(DiskInstallationEligibility {
                eligible: Some(reasons.is_empty()),
                not_eligible_reasons: Some(reasons),
            }),
            iscsi: (self.drive_type == DriveType::ISCSI)
                .then(|| Iscsi { host_ip_address: address.map(|address| address.to_string()) }),
            holders: self.holders.clone(),
            io_perf: Some(IoPerf::default()),
            ..Disk::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[test]
    fn every_shipped_profile_reads_and_carries_its_own_name() {
        for (name, text) in BUILTIN {
            let profile = HardwareProfile::from_yaml(text).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(profile.name, *name);
            assert!(!profile.description.is_empty(), "{name} says nothing about itself");
        }
    }

    #[test]
    fn ten_thousand_hosts_share_nothing() {
        for (name, _) in BUILTIN {
            let profile = builtin(name).unwrap().unwrap();
            let mut macs = BTreeSet::new();
            let mut serials = BTreeSet::new();
            let mut disks = BTreeSet::new();
            for index in 0..10_000 {
                for nic in 0..profile.nics.len() {
                    assert!(
                        macs.insert(profile.mac(index, nic)),
                        "{name}: MAC of host {index}, NIC {nic} is not unique"
                    );
                }
                assert!(serials.insert(profile.serial(index)), "{name}: serial of host {index} is not unique");
                for disk in profile.disks.iter().filter(|d| d.wwn.is_some()) {
                    assert!(
                        disks.insert(disk.device_names(index).remove(0)),
                        "{name}: disk of host {index} is not unique"
                    );
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_mac_is_a_station_address_and_unique(
            prefix in proptest::option::of(any::<[u8; 3]>()),
            a in (0..MAX_HOSTS, 0..MAX_NICS),
            b in (0..MAX_HOSTS, 0..MAX_NICS),
        ) {
            let of = |(index, nic)| Mac::of(prefix, index, nic);
            prop_assert_eq!(of(a).0[0] & 1, 0, "multicast bit");
            prop_assert_eq!(of(a) == of(b), a == b);
            if prefix.is_none() {
                prop_assert_eq!(of(a).0[0] & 2, 2, "locally administered bit");
            }
            prop_assert_eq!(of(a).to_string().len(), 17);
        }

        #[test]
        fn a_pattern_keeps_its_length_and_numbers_differ(a in 0u64..10_000, b in 0u64..10_000) {
            let (x, y) = (fill("AB####-C", a, 10), fill("AB####-C", b, 10));
            prop_assert_eq!(x.len(), 8);
            prop_assert_eq!(x == y, a == b);
        }
    }

    #[rstest]
    #[case::unknown_key("colour: red\n", "unknown field")]
    #[case::no_cpu("REPLACE count: 8|count: 0", "at least one processor")]
    #[case::bad_prefix("REPLACE   - name: enp1s0|  - name: enp1s0\n    mac_prefix: 'b4:96'", "three octets")]
    #[case::shared_serial("REPLACE LAB-STD-######|LAB-STD-1", "hosts would share it")]
    #[case::unknown_drive("REPLACE drive_type: SSD|drive_type: TAPE", "TAPE")]
    #[case::bad_tpm("REPLACE tpm: \"2.0\"|tpm: \"3\"", "must be none, 1.2 or 2.0")]
    fn a_senseless_profile_is_refused(#[case] edit: &str, #[case] expected: &str) {
        let (_, good) = BUILTIN[4];
        let text = match edit.strip_prefix("REPLACE ").and_then(|e| e.split_once('|')) {
            Some((from, to)) => {
                assert!(good.contains(from), "the profile has no {from:?}");
                good.replace(from, to)
            }
            None => format!("{good}{edit}"),
        };
        let error = HardwareProfile::from_yaml(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn the_default_route_goes_through_the_nic_of_the_gateway() {
        let profile = builtin("dell-poweredge-r650").unwrap().unwrap();
        let addresses = HostAddresses {
            nics: vec![
                NicAddresses { ipv4: vec!["10.0.0.5/24".parse().unwrap()], ..NicAddresses::default() },
                NicAddresses { ipv4: vec!["192.168.126.10/24".parse().unwrap()], ..NicAddresses::default() },
            ],
            gateway_v4: Some("192.168.126.1".parse().unwrap()),
            ..HostAddresses::default()
        };
        let inventory = profile.instantiate(3, "master-0", &addresses);
        let routes = inventory.routes.unwrap();
        assert_eq!(routes[0].interface.as_deref(), Some("eno12409np1"));
        assert_eq!(routes[0].destination.as_deref(), Some("0.0.0.0"));
        assert_eq!(routes.len(), 3);
        let interfaces = inventory.interfaces.unwrap();
        assert_eq!(interfaces[1].ipv4_addresses.as_deref(), Some(&["192.168.126.10/24".to_owned()][..]));
        assert_eq!(interfaces[2].ipv4_addresses.as_deref(), Some(&[][..]));
    }
}
