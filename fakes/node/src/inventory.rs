//! The inventory of a machine, read from `/sys`, `/proc` and `/dev`. Addresses come from the kernel through
//! [`crate::net::link::addresses`]; everything else from files below a [`Root`], so that a machine in a test is a folder.

use ipnet::IpNet;
use md5::{Digest, Md5};
use uuid::Uuid;
use vlab_api::types::*;

use crate::machine::{Overlay, Root};

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name of the interface, such as `eth0`.
    pub interface: String,
    /// Address and length of its network's prefix.
    pub net: IpNet,
}

/// The whole inventory, without any overlay.
pub fn take(root: &Root, addresses: &[Address]) -> Inventory {
    let hostname = root.some_text("/proc/sys/kernel/hostname").or_else(|| root.some_text("/etc/hostname"));
    Inventory {
        hostname,
        // A lab machine has no management controller, and the real agent writes the unspecified addresses then.
        bmc_address: Some("0.0.0.0".into()),
        bmc_v6address: Some("::/0".into()),
        interfaces: Some(interfaces(root, addresses)),
        disks: Some(disks(root)),
        boot: Some(boot(root)),
        system_vendor: Some(vendor(root)),
        memory: Some(memory(root)),
        cpu: Some(cpu(root)),
        // The emulated VGA adapter is none that anybody computes with.
        gpus: Some(Vec::new()),
        routes: Some(routes(root)),
        tpm_version: Some(tpm(root).into()),
        truncation: None,
    }
}

// --- processor, memory ---------------------------------------------------------------------------------------------

fn cpu(root: &Root) -> Cpu {
    let text = root.text("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        text.lines().find_map(|l| {
            let (name, value) = l.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    let count = text.lines().filter(|l| l.split(':').next().is_some_and(|k| k.trim() == "processor")).count();
    let hertz = root.number("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").map(|khz| khz as f64 / 1000.0);
    Cpu {
        count: i64::try_from(count).ok(),
        frequency: hertz.or_else(|| value("cpu MHz").and_then(|v| v.parse().ok())),
        flags: Some(value("flags").unwrap_or_default().split_whitespace().map(str::to_owned).collect()),
        model_name: value("model name"),
        architecture: Some(std::env::consts::ARCH.into()),
    }
}

/// Bytes of all memory devices in a table of the firmware (SMBIOS structures of type 17).
pub fn smbios_memory(table: &[u8]) -> Option<i64> {
    let mut total = 0i64;
    let mut at = 0;
    while at + 4 <= table.len() {
        let (kind, length) = (table[at], usize::from(table[at + 1]));
        let structure = table.get(at..at + length.max(4))?;
        if kind == 127 {
            break;
        }
        if kind == 17 && structure.len() >= 0x0e {
            let size = u16::from_le_bytes([structure[0x0c], structure[0x0d]]);
            total += match size {
                0 | 0xffff => 0,
                // 32 GiB and more is in a longer field, in MiB.
                0x7fff if structure.len() >= 0x20 => {
                    let mib = u32::from_le_bytes([structure[0x1c], structure[0x1d], structure[0x1e], structure[0x1f]]);
                    i64::from(mib & 0x7fff_ffff) << 20
                }
                kib if kib & 0x8000 != 0 => i64::from(kib & 0x7fff) << 10,
                mib => i64::from(mib) << 20,
            };
        }
        // Strings follow, each ended by a zero, the last one by two.
        at += length.max(4);
        while at + 1 < table.len() && (table[at] != 0 || table[at + 1] != 0) {
            at += 1;
        }
        at += 2;
    }
    (total > 0).then_some(total)
}

fn memory(root: &Root) -> Memory {
    let usable = root.text("/proc/meminfo").and_then(|t| {
        let line = t.lines().find_map(|l| l.strip_prefix("MemTotal:").map(str::to_owned))?;
        line.split_whitespace().next()?.parse::<i64>().ok().map(|kib| kib << 10)
    });
    let table = std::fs::read(root.path("/sys/firmware/dmi/tables/DMI")).ok().and_then(|t| smbios_memory(&t));
    let blocks = || {
        let folder = "/sys/devices/system/memory";
        let size = i64::from_str_radix(&root.some_text(&format!("{folder}/block_size_bytes"))?, 16).ok()?;
        let online = root.names(folder).into_iter().filter(|n| {
            n.strip_prefix("memory").is_some_and(|d| d.parse::<u32>().is_ok())
                && root.text(&format!("{folder}/{n}/state")).as_deref() == Some("online")
        });
        Some(size * i64::try_from(online.count()).ok()?).filter(|b| *b > 0)
    };
    let (physical, method) = match (table, usable) {
        (Some(bytes), _) => (Some(bytes), Some("dmidecode")),
        (None, usable) => match blocks() {
            Some(bytes) => (Some(bytes), Some("ghw")),
            None => (usable, usable.map(|_| "meminfo")),
        },
    };
    Memory { physical_bytes: physical, usable_bytes: usable, physical_bytes_method: method.map(Into::into) }
}

// --- disks ---------------------------------------------------------------------------------------------------------

/// Kinds of block devices that are no disks: beginning of the name.
const NO_DISKS: &[&str] = &["loop", "ram", "zram"];
/// Beginnings of names of devices with a known controller.
const CONTROLLERS: &[&str] = &["sd", "vd", "nvme", "xvd", "hd", "mmcblk", "sr", "fd", "dasd", "md"];

fn disks(root: &Root) -> Vec<Disk> {
    // World-wide names only, as the real agent: what is made of a serial number is not always the disk's own.
    let is_world_wide = |(_, link): &(String, String)| {
        let name = link.rsplit('/').next().unwrap_or_default();
        name.starts_with("wwn-") || name.starts_with("nvme-eui")
    };
    let by_id: Vec<_> = links(root, "/dev/disk/by-id").into_iter().filter(is_world_wide).collect();
    let by_path = links(root, "/dev/disk/by-path");
    let mounts = root.mounts();
    root.names("/sys/block")
        .iter()
        .filter(|n| is_disk(root, n))
        .map(|n| disk(root, n, &by_id, &by_path, &mounts))
        .collect()
}

fn is_disk(root: &Root, name: &str) -> bool {
    if NO_DISKS.iter().any(|p| name.starts_with(p)) {
        return false;
    }
    if name.starts_with("dm-") {
        let uuid = root.text(&format!("/sys/block/{name}/dm/uuid")).unwrap_or_default();
        return uuid.starts_with("mpath-") || uuid.starts_with("LVM-");
    }
    root.text(&format!("/sys/block/{name}/hidden")).as_deref() != Some("1")
}

/// Links of a folder below `/dev/disk`: (name of the device, path of the link).
fn links(root: &Root, folder: &str) -> Vec<(String, String)> {
    let names = root.names(folder).into_iter();
    names.filter_map(|n| Some((root.link_name(&format!("{folder}/{n}"))?, format!("{folder}/{n}")))).collect()
}

fn disk(
    root: &Root,
    name: &str,
    by_id: &[(String, String)],
    by_path: &[(String, String)],
    mounts: &[(String, String)],
) -> Disk {
    let sys = format!("/sys/block/{name}");
    let text = |file: &str| root.some_text(&format!("{sys}/{file}"));
    let is_set = |file: &str| text(file).as_deref() == Some("1");
    let path = format!("/dev/{name}");
    // Of several links the last by name.
    let link = |of: &[(String, String)]| of.iter().rfind(|(device, _)| device == name).map(|(_, link)| link.clone());
    let udev = udev(root, &sys);
    let known = |key: &str| udev.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone());
    // The path that udev calls the device's own; there may be links by older rules, too.
    let own = known("ID_PATH").map(|path| format!("/dev/disk/by-path/{path}"));
    let own = own.filter(|own| by_path.iter().any(|(device, link)| device == name && link == own));
    let (by_id, by_path) = (link(by_id), own.or_else(|| link(by_path)));
    let device_mapper = text("dm/uuid").unwrap_or_default();
    let hctl = root.names(&format!("{sys}/device/scsi_device")).into_iter().next();
    let iscsi_host = iscsi_host(root, hctl.as_deref());
    let drive_type = match name {
        n if n.starts_with("sr") => DriveType::ODD,
        n if n.starts_with("fd") => DriveType::FDD,
        n if n.starts_with("md") => DriveType::RAID,
        _ if device_mapper.starts_with("mpath-") => DriveType::Multipath,
        _ if device_mapper.starts_with("LVM-") => DriveType::LVM,
        // The kernel knows it before udev, which takes its time: who took it for the machine's own disk would install to it.
        _ if iscsi_host.is_some() || by_path.as_deref().is_some_and(|p| p.contains("-iscsi-")) => DriveType::ISCSI,
        _ if by_path.as_deref().is_some_and(|p| p.contains("-fc-")) => DriveType::FC,
        _ if is_set("queue/rotational") => DriveType::HDD,
        _ => DriveType::SSD,
    };
    let wwn = known("ID_WWN_WITH_EXTENSION").or_else(|| known("ID_WWN")).or_else(|| wwn(root, &sys));
    let serial = serial(root, &sys);
    let known = CONTROLLERS.iter().any(|p| name.starts_with(p)) || !device_mapper.is_empty();
    let (reasons, is_media) = not_eligible(name, known, drive_type, mounts);
    let holders = root.names(&format!("{sys}/holders"));
    Disk {
        id: by_id.clone().or_else(|| by_path.clone()).or_else(|| Some(path.clone())),
        has_uuid: Some(wwn.is_some() || root.has(&format!("{sys}/device/vpd_pg83"))),
        bootable: Some(has_boot_record(root, &path)),
        drive_type: Some(drive_type),
        vendor: text("device/vendor"),
        name: Some(name.to_owned()),
        path: Some(path),
        by_path,
        by_id,
        model: text("device/model"),
        wwn,
        serial,
        size_bytes: root.number(&format!("{sys}/size")).map(|sectors| sectors * 512),
        removable: Some(is_set("removable")),
        is_installation_media: Some(is_media),
        installation_eligibility: Some(DiskInstallationEligibility {
            eligible: Some(reasons.is_empty()),
            not_eligible_reasons: Some(reasons),
        }),
        holders: (!holders.is_empty()).then(|| holders.join(",")),
        iscsi: (drive_type == DriveType::ISCSI).then_some(Iscsi { host_ip_address: iscsi_host }),
        hctl,
        ..Disk::default()
    }
}

/// Our own address on the way to the target of an iSCSI disk with that place on SCSI.
fn iscsi_host(root: &Root, hctl: Option<&str>) -> Option<String> {
    let (host, _) = hctl?.split_once(':')?;
    root.some_text(&format!("/sys/class/iscsi_host/host{host}/ipaddress"))
}

/// Disks on SCSI and NVMe of which udev has not said anything yet: their lasting names are still to come, and so is what is made
/// of volumes and arrays on them. And what is not even a disk yet, or not yet a part of what udev knows it to be a path of.
pub fn unknown_to_udev(root: &Root) -> Vec<String> {
    let mut disks = root.names("/sys/block");
    disks.retain(|name| ["sd", "nvme"].iter().any(|start| name.starts_with(start)));
    let hctl = |name: &String| root.names(&format!("/sys/block/{name}/device/scsi_device")).into_iter().next();
    let of_session = |name: &&String| iscsi_host(root, hctl(name).as_deref()).is_some();
    let found = disks.iter().filter(of_session).count();
    let logged_in = root.names("/sys/class/iscsi_session");
    disks.retain(|name| {
        let sys = format!("/sys/block/{name}");
        let number = root.some_text(&format!("{sys}/dev"));
        let waits = || {
            let is_path = ("DM_MULTIPATH_DEVICE_PATH".to_owned(), "1".to_owned());
            udev(root, &sys).contains(&is_path) && root.names(&format!("{sys}/holders")).is_empty()
        };
        number.is_some_and(|number| !root.has(&format!("/run/udev/data/b{number}")) || waits())
    });
    disks.extend(logged_in.into_iter().skip(found));
    disks
}

/// What udev has found out about a block device.
fn udev(root: &Root, sys: &str) -> Vec<(String, String)> {
    let number = root.text(&format!("{sys}/dev")).unwrap_or_default();
    let text = root.text(&format!("/run/udev/data/b{number}")).unwrap_or_default();
    let entries = text.lines().filter_map(|line| line.strip_prefix("E:")?.split_once('='));
    entries.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn wwn(root: &Root, sys: &str) -> Option<String> {
    ["wwid", "device/wwid", "device/wwn"].iter().find_map(|file| root.some_text(&format!("{sys}/{file}")))
}

fn serial(root: &Root, sys: &str) -> Option<String> {
    let mut names = ["serial", "device/serial"].iter();
    names.find_map(|file| root.some_text(&format!("{sys}/{file}"))).or_else(|| page_80(root, sys))
}

/// What tells a disk (`sda`) from all others, on whichever system it is looked at: its serial number, else its world-wide name.
pub(crate) fn identity(root: &Root, name: &str) -> Option<String> {
    let sys = format!("/sys/block/{name}");
    serial(root, &sys).or_else(|| wwn(root, &sys))
}

/// Devices that are made of a disk or of its partitions.
pub(crate) fn holders(root: &Root, name: &str) -> Vec<String> {
    let sys = format!("/sys/block/{name}");
    let parts = root.names(&sys).into_iter().filter(|part| part.starts_with(name));
    let places = std::iter::once(sys.clone()).chain(parts.map(|part| format!("{sys}/{part}")));
    places.flat_map(|place| root.names(&format!("{place}/holders"))).collect()
}

/// The serial number in a SCSI disk's vital product data (page 0x80): four bytes, then text.
fn page_80(root: &Root, sys: &str) -> Option<String> {
    let page = std::fs::read(root.path(&format!("{sys}/device/vpd_pg80"))).ok()?;
    let text = String::from_utf8_lossy(page.get(4..)?).trim_matches([' ', '\0']).to_owned();
    (!text.is_empty()).then_some(text)
}

/// Why nothing can be installed there; and whether the machine booted from it.
fn not_eligible(name: &str, known: bool, kind: DriveType, mounts: &[(String, String)]) -> (Vec<String>, bool) {
    let mut reasons = Vec::new();
    if !known {
        reasons.push("Disk has unknown storage controller".to_owned());
    }
    if kind == DriveType::LVM {
        reasons.push("Disk is an LVM logical volume".to_owned());
    }
    let of_this = |device: &str| {
        device.strip_prefix(name).is_some_and(|rest| {
            let number = rest.strip_prefix('p').unwrap_or(rest);
            number.is_empty() && rest.is_empty() || (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        })
    };
    let mut media = false;
    for (device, place) in mounts.iter().filter(|(device, _)| of_this(device)) {
        if place.ends_with("iso") {
            let reason = "Disk appears to be an ISO installation media (has partition with mountpoint suffix iso)";
            reasons.push(reason.to_owned());
            media = true;
        }
        if !media {
            reasons.push(format!("Disk has partition '{device}' mounted on '{place}'"));
        }
    }
    (reasons, media)
}

fn has_boot_record(root: &Root, path: &str) -> bool {
    use std::io::Read;
    let mut sector = [0u8; 512];
    std::fs::File::open(root.path(path)).and_then(|mut f| f.read_exact(&mut sector)).is_ok()
        && sector[510..] == [0x55, 0xaa]
}

// --- network -------------------------------------------------------------------------------------------------------

/// Flags of an interface, in the order in which agents write them.
const FLAGS: &[(u32, &str)] = &[
    (0x1, "up"),
    (0x2, "broadcast"),
    (0x8, "loopback"),
    (0x10, "pointtopoint"),
    (0x1000, "multicast"),
    (0x40, "running"),
];

fn interfaces(root: &Root, addresses: &[Address]) -> Vec<Interface> {
    let names = root.names("/sys/class/net").into_iter();
    names.filter(|n| n != "lo" && n != "bonding_masters").map(|n| interface(root, &n, addresses)).collect()
}

fn interface(root: &Root, name: &str, addresses: &[Address]) -> Interface {
    let sys = format!("/sys/class/net/{name}");
    let text = |file: &str| root.some_text(&format!("{sys}/{file}"));
    let own = |v4: bool| {
        addresses
            .iter()
            .filter(|a| a.interface == name && a.net.addr().is_ipv4() == v4 && !is_link_local(a.net))
            .map(|a| a.net.to_string())
            .collect::<Vec<_>>()
    };
    let bits = text("flags").and_then(|f| u32::from_str_radix(f.trim_start_matches("0x"), 16).ok()).unwrap_or(0);
    let carrier = text("carrier").as_deref() == Some("1");
    // Whether it runs is not among the flags that the file shows.
    let bits = if carrier && bits & 1 != 0 { bits | 0x40 } else { bits };
    Interface {
        ipv6_addresses: Some(own(false)),
        ipv4_addresses: Some(own(true)),
        vendor: text("device/vendor"),
        product: text("device/device"),
        name: Some(name.to_owned()),
        has_carrier: Some(carrier),
        mtu: root.number(&format!("{sys}/mtu")),
        biosdevname: None,
        client_id: None,
        // Members of a bond show the bond's address; their own is elsewhere.
        mac_address: text("bonding_slave/perm_hwaddr").or_else(|| text("address")),
        flags: Some(FLAGS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, n)| (*n).to_owned()).collect()),
        // Interfaces without a speed fail to say it, or say -1.
        speed_mbps: Some(root.number(&format!("{sys}/speed")).filter(|s| *s > 0).unwrap_or(0)),
        type_: Some(kind_of(root, name).into()),
    }
}

fn kind_of(root: &Root, name: &str) -> &'static str {
    let sys = format!("/sys/class/net/{name}");
    let has = |file: &str| root.has(&format!("{sys}/{file}"));
    let device_type = root.text(&format!("{sys}/uevent")).unwrap_or_default();
    match () {
        () if has("bonding") => "bond",
        () if has("bridge") => "bridge",
        () if device_type.lines().any(|l| l == "DEVTYPE=vlan") => "vlan",
        () if has("tun_flags") => "tuntap",
        () if has("device") => "physical",
        () if root.text(&format!("{sys}/ifindex")) != root.text(&format!("{sys}/iflink")) => "veth",
        () => "device",
    }
}

fn is_link_local(net: IpNet) -> bool {
    match net {
        IpNet::V4(v4) => v4.addr().is_link_local(),
        IpNet::V6(v6) => v6.addr().is_unicast_link_local(),
    }
}

/// Routes of the main table.
fn routes(root: &Root) -> Vec<Route> {
    let v4 = root.text("/proc/net/route").unwrap_or_default();
    let v6 = root.text("/proc/net/ipv6_route").unwrap_or_default();
    v4.lines().skip(1).filter_map(route_v4).chain(v6.lines().filter_map(route_v6)).collect()
}

/// A line of `/proc/net/route`: addresses are in the machine's own byte order.
fn route_v4(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [interface, destination, gateway, _, _, _, metric, mask, ..] = words[..] else { return None };
    let address = |hex: &str| Some(std::net::Ipv4Addr::from(u32::from_str_radix(hex, 16).ok()?.to_le_bytes()));
    let (destination, gateway, mask) = (address(destination)?, address(gateway)?, address(mask)?);
    let length = u32::from(mask).leading_ones();
    Some(Route {
        interface: Some(interface.to_owned()),
        gateway: (!gateway.is_unspecified()).then(|| gateway.to_string()),
        destination: Some(if length == 0 { destination.to_string() } else { format!("{destination}/{length}") }),
        family: Some(2),
        metric: metric.parse().ok(),
    })
}

/// A line of `/proc/net/ipv6_route`; `None` for local, multicast and loopback ones.
fn route_v6(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [destination, length, _, _, gateway, metric, _, _, flags, interface] = words[..] else { return None };
    let address = |hex: &str| Some(std::net::Ipv6Addr::from(u128::from_str_radix(hex, 16).ok()?));
    let (destination, gateway) = (address(destination)?, address(gateway)?);
    let length = u32::from_str_radix(length, 16).ok()?;
    let flags = u32::from_str_radix(flags, 16).ok()?;
    const LOCAL: u32 = 0x8000_0000;
    const REJECT: u32 = 0x0200;
    if interface == "lo" || flags & (LOCAL | REJECT) != 0 || destination.is_multicast() {
        return None;
    }
    Some(Route {
        interface: Some(interface.to_owned()),
        gateway: (!gateway.is_unspecified()).then(|| gateway.to_string()),
        destination: Some(if length == 0 { destination.to_string() } else { format!("{destination}/{length}") }),
        family: Some(10),
        metric: i64::from_str_radix(metric, 16).ok(),
    })
}

// --- the rest ------------------------------------------------------------------------------------------------------

fn vendor(root: &Root) -> SystemVendor {
    let dmi = |file: &str| root.some_text(&format!("/sys/class/dmi/id/{file}"));
    let flags = root.text("/proc/cpuinfo").unwrap_or_default();
    SystemVendor {
        serial_number: dmi("product_serial"),
        product_name: dmi("product_name"),
        manufacturer: dmi("sys_vendor"),
        virtual_: Some(
            flags.lines().any(|l| l.starts_with("flags") && l.split_whitespace().any(|f| f == "hypervisor")),
        ),
    }
}

/// Whether the firmware started only what is signed.
pub(crate) fn secure_boot(root: &Root) -> &'static str {
    let variable = root.path("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c");
    match std::fs::read(variable).as_deref() {
        Err(_) => "NotSupported",
        // Four bytes of attributes, then the value.
        Ok([_, _, _, _, 1, ..]) => "Enabled",
        Ok([_, _, _, _, 0, ..]) => "Disabled",
        Ok(_) => "Unknown",
    }
}

fn boot(root: &Root) -> Boot {
    let command_line = root.text("/proc/cmdline").unwrap_or_default();
    let words = || command_line.split_whitespace();
    Boot {
        current_boot_mode: Some(if root.has("/sys/firmware/efi") { "uefi" } else { "bios" }.into()),
        pxe_interface: words().find_map(|w| w.strip_prefix("BOOTIF=").map(str::to_owned)),
        secure_boot_state: Some(secure_boot(root).into()),
        device_type: device_type(root, &command_line).map(Into::into),
        command_line: Some(command_line.clone()),
    }
}

/// What the running system is on: a live system's root is a loop device over a file in memory. `None`: neither is known.
fn device_type(root: &Root, command_line: &str) -> Option<&'static str> {
    match root.mounts().iter().find(|(_, place)| place == "/sysroot") {
        Some((device, _)) if device.starts_with("loop") => Some("ephemeral"),
        Some(_) => Some("persistent"),
        None => command_line.split_whitespace().any(is_live).then_some("ephemeral"),
    }
}

/// Does that word of the kernel's command line say that the system is a live one?
fn is_live(word: &str) -> bool {
    ["coreos.live", "rootfs_url", "live_url", "root=live:"].iter().any(|l| word.contains(l))
}

fn tpm(root: &Root) -> &'static str {
    match root.text("/sys/class/tpm/tpm0/tpm_version_major").as_deref() {
        Some("2") => "2.0",
        Some(_) => "1.2",
        None if root.has("/sys/class/tpm/tpm0/caps") => "1.2",
        None => "none",
    }
}

// --- the overlay ---------------------------------------------------------------------------------------------------

/// Puts declared hardware into an inventory. What was changed, for the log: an overlay is never silent.
pub fn lay_over(inventory: &mut Inventory, overlay: &Overlay) -> Vec<String> {
    let mut changed = Vec::new();
    let mut set = |what: &str, member: &mut Option<i64>, value: i64| {
        if *member != Some(value) {
            changed.push(format!("{what}: {} declared as {value}", member.map_or("nothing".into(), |v| v.to_string())));
            *member = Some(value);
        }
    };
    if let (Some(cpus), Some(cpu)) = (overlay.cpus, inventory.cpu.as_mut()) {
        set("cpu.count", &mut cpu.count, cpus);
    }
    if let (Some(mib), Some(memory)) = (overlay.memory_mib, inventory.memory.as_mut()) {
        set("memory.physical_bytes", &mut memory.physical_bytes, mib << 20);
        set("memory.usable_bytes", &mut memory.usable_bytes, mib << 20);
    }
    if let Some(gb) = overlay.disk_gb {
        let bytes = gb * 1_000_000_000;
        for disk in inventory.disks.iter_mut().flatten() {
            let is_disk = disk.removable != Some(true) && disk.is_installation_media != Some(true);
            if is_disk && disk.size_bytes.is_some_and(|b| b < bytes) {
                let name = disk.name.clone().unwrap_or_default();
                set(&format!("disks.{name}.size_bytes"), &mut disk.size_bytes, bytes);
            }
        }
    }
    for nic in inventory.interfaces.iter_mut().flatten() {
        if nic.name.as_ref().is_some_and(|n| overlay.physical_nics.contains(n))
            && nic.type_.as_deref() != Some("physical")
        {
            let name = nic.name.clone().unwrap_or_default();
            changed
                .push(format!("interfaces.{name}.type: {} declared as physical", nic.type_.take().unwrap_or_default()));
            nic.type_ = Some("physical".into());
        }
    }
    changed
}

// --- who this is ---------------------------------------------------------------------------------------------------

/// Serial numbers that are none, in lower case.
const NO_SERIALS: &[&str] = &[
    "",
    "unknown",
    "none",
    "(none)",
    "-",
    "unspecified base board serial number",
    "unspecified system serial number",
    "default string",
    "not specified",
    "pca_number.acc",
];
/// Ids that several machines have.
const NO_UUIDS: &[&str] =
    &["", "unknown", "00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009"];
/// The id of a machine that has nothing to derive one from.
pub const NO_ID: Uuid = Uuid::from_u128(0xdeaddead_dead_dead_dead_deaddeaddead);

/// The id that is derived from something about the machine: its MD5 digest, as real agents derive it.
pub fn id_of(bytes: &[u8]) -> Uuid {
    Uuid::from_bytes(Md5::digest(bytes).into())
}

/// The id under which this machine registers: from the board's serial number, else the system's own id, else the lowest MAC.
pub fn host_id(root: &Root) -> Uuid {
    let dmi = |file: &str| root.text(&format!("/sys/class/dmi/id/{file}")).unwrap_or_default();
    let serial = dmi("board_serial");
    if !NO_SERIALS.contains(&serial.to_lowercase().as_str()) {
        return id_of(serial.as_bytes());
    }
    let own = dmi("product_uuid").to_lowercase();
    if !NO_UUIDS.contains(&own.as_str())
        && let Ok(id) = own.parse()
    {
        return id;
    }
    let mut macs: Vec<String> = root
        .names("/sys/class/net")
        .iter()
        .filter(|n| *n != "lo")
        .filter_map(|n| root.some_text(&format!("/sys/class/net/{n}/address")))
        .collect();
    macs.sort();
    macs.first().map_or(NO_ID, |mac| id_of(mac.as_bytes()))
}

#[cfg(test)]
mod tests;
