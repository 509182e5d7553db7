//! Machines made of files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rstest::rstest;
use serde_json::json;

use super::*;

struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> Root {
        Root::at(self.0.path())
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn link(&self, path: &str, to: &str) -> &Self {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(Path::new(to), path).unwrap();
        self
    }

    /// A virtual machine that booted a discovery image: a virtio disk, the CD that it booted from, one interface.
    fn lab() -> Self {
        let machine = Self::new();
        let mut boot_sector = [0u8; 512];
        boot_sector[510..].copy_from_slice(&[0x55, 0xaa]);
        machine
            .file("/proc/sys/kernel/hostname", "master-0\n")
            .file("/proc/cpuinfo", "processor\t: 0\nmodel name\t: QEMU Virtual CPU\ncpu MHz\t\t: 2400.125\nflags\t\t: fpu sse2 hypervisor\n\nprocessor\t: 1\nmodel name\t: QEMU Virtual CPU\ncpu MHz\t\t: 2400.125\nflags\t\t: fpu sse2 hypervisor\n")
            .file("/proc/meminfo", "MemTotal:         620000 kB\nMemFree:          1 kB\n")
            .file("/proc/cmdline", "BOOT_IMAGE=/images/vmlinuz coreos.liveiso=vlab ignition.platform.id=metal BOOTIF=01-52-54-00-00-00-01\n")
            .file("/proc/1/mounts", "/dev/loop0 /sysroot squashfs ro 0 0\n/dev/sr0 /run/media/iso iso9660 ro 0 0\nproc /proc proc rw 0 0\n")
            .file("/sys/block/vda/size", "8388608\n")
            .file("/sys/block/vda/queue/rotational", "1\n")
            .file("/sys/block/vda/removable", "0\n")
            .file("/sys/block/vda/serial", "vlab-disk-0")
            .file("/dev/vda", boot_sector)
            .link("/dev/disk/by-path/virtio-pci-0000:00:04.0", "../../vda")
            .link("/dev/disk/by-path/pci-0000:00:04.0", "../../vda")
            .link("/dev/disk/by-id/virtio-vlab-disk-0", "../../vda")
            .file("/sys/block/sr0/size", "160000\n")
            .file("/sys/block/sr0/removable", "1\n")
            .file("/sys/block/sr0/device/vendor", "QEMU    \n")
            .file("/sys/block/loop0/size", "1\n")
            .file("/sys/class/net/lo/address", "00:00:00:00:00:00\n")
            .file("/sys/class/net/enp0s3/address", "52:54:00:00:00:01\n")
            .file("/sys/class/net/enp0s3/mtu", "1500\n")
            .file("/sys/class/net/enp0s3/flags", "0x1003\n")
            .file("/sys/class/net/enp0s3/carrier", "1\n")
            .file("/sys/class/net/enp0s3/speed", "-1\n")
            .file("/sys/class/net/enp0s3/device/vendor", "0x1af4\n")
            .file("/sys/class/net/enp0s3/device/device", "0x0001\n")
            .file("/proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\nenp0s3\t00000000\t017EA8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\nenp0s3\t007EA8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n")
            .file("/proc/net/ipv6_route", "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000064 00000001 00000000 00000001   enp0s3\n00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003   enp0s3\n00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001       lo\nff000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000003 00000000 00000001   enp0s3\n")
            .file("/sys/class/dmi/id/sys_vendor", "QEMU\n")
            .file("/sys/class/dmi/id/product_name", "Standard PC (Q35 + ICH9, 2009)\n")
            .file("/sys/class/dmi/id/product_serial", "vlab-0\n")
            .file("/sys/class/dmi/id/product_uuid", "6F1B0A5C-0000-4000-8000-000000000001\n")
            .file("/sys/firmware/dmi/tables/DMI", smbios(640));
        machine
    }
}

/// A table with one memory device of that size, between structures that are none.
fn smbios(mib: u16) -> Vec<u8> {
    let mut table = vec![1, 4, 0, 1];
    table.extend(b"QEMU\0PC\0\0");
    let mut device = vec![17u8, 0x15, 0, 17];
    device.resize(0x15, 0);
    device[0x0c..0x0e].copy_from_slice(&mib.to_le_bytes());
    table.extend(device);
    table.extend(b"\0\0");
    table.extend([127, 4, 0, 127, 0, 0]);
    table
}

fn lab_addresses() -> Vec<Address> {
    ["192.168.126.10/24", "fd00::10/64", "fe80::5054:ff:fe00:1/64", "169.254.1.1/16"]
        .map(|net| Address { interface: "enp0s3".into(), net: net.parse().unwrap() })
        .to_vec()
}

#[test]
fn a_lab_machine() {
    let taken = take(&Machine::lab().root(), &lab_addresses());
    insta::assert_snapshot!(serde_json::to_string_pretty(&taken).unwrap());
}

#[test]
fn a_machine_without_anything_has_an_inventory_too() {
    let taken = take(&Machine::new().root(), &[]);
    assert_eq!(taken.hostname, None);
    assert_eq!(taken.disks, Some(vec![]));
    assert_eq!(taken.memory.unwrap().physical_bytes, None);
    assert_eq!(taken.tpm_version.as_deref(), Some("none"));
}

#[rstest]
#[case::scsi("sda", &[("queue/rotational", "0")], DriveType::SSD, &[])]
#[case::unknown("foo0", &[("queue/rotational", "1")], DriveType::HDD, &["Disk has unknown storage controller"])]
#[case::lvm("dm-0", &[("dm/uuid", "LVM-abc")], DriveType::LVM, &["Disk is an LVM logical volume"])]
#[case::multipath("dm-1", &[("dm/uuid", "mpath-abc")], DriveType::Multipath, &[])]
fn kinds_of_disks(
    #[case] name: &str,
    #[case] files: &[(&str, &str)],
    #[case] kind: DriveType,
    #[case] reasons: &[&str],
) {
    let machine = Machine::new();
    machine.file(&format!("/sys/block/{name}/size"), "2048");
    for (file, content) in files {
        machine.file(&format!("/sys/block/{name}/{file}"), content);
    }
    let disks = disks(&machine.root());
    assert_eq!(disks.len(), 1);
    assert_eq!(disks[0].drive_type, Some(kind));
    assert_eq!(disks[0].size_bytes, Some(1 << 20));
    let eligibility = disks[0].installation_eligibility.as_ref().unwrap();
    assert_eq!(eligibility.not_eligible_reasons.as_deref().unwrap(), reasons);
    assert_eq!(eligibility.eligible, Some(reasons.is_empty()));
}

#[test]
fn names_of_disks_are_udev_s() {
    let machine = Machine::new();
    machine
        .file("/sys/block/vda/dev", "254:0\n")
        .file("/sys/block/sda/dev", "8:0\n")
        .file("/sys/block/sda/device/vpd_pg80", b"\0\x80\0\x08SYSTEM  ")
        .file("/sys/block/sda/device/wwid", "naa.3000000000000002\n")
        .file("/sys/block/sda/device/scsi_device/0:0:3:0/uevent", "")
        .link("/dev/disk/by-id/scsi-SQEMU_SYSTEM", "../../sda")
        .link("/dev/disk/by-id/wwn-0x3000000000000002", "../../sda")
        .link("/dev/disk/by-path/pci-0000:02:00.0-scsi-0:0:3:0", "../../sda")
        .link("/dev/disk/by-path/virtio-pci-0000:02:00.0-scsi-0:0:3:0", "../../sda");
    assert_eq!(unknown_to_udev(&machine.root()), ["sda"], "of virtio nothing is waited for");
    machine.file("/run/udev/data/b8:0", "E:ID_PATH=pci-0000:02:00.0-scsi-0:0:3:0\nE:ID_WWN=0x3000000000000002\n");
    assert_eq!(unknown_to_udev(&machine.root()), [""; 0]);
    let disk = disks(&machine.root()).remove(0);
    assert_eq!(disk.id.as_deref(), Some("/dev/disk/by-id/wwn-0x3000000000000002"));
    assert_eq!(disk.by_path.as_deref(), Some("/dev/disk/by-path/pci-0000:02:00.0-scsi-0:0:3:0"));
    assert_eq!((disk.wwn.as_deref(), disk.serial.as_deref()), (Some("0x3000000000000002"), Some("SYSTEM")));
    assert_eq!(disk.hctl.as_deref(), Some("0:0:3:0"));
}

/// Two ways to one disk, which multipathd makes one device of.
#[test]
fn disks_on_the_network_are_waited_for() {
    let machine = Machine::new();
    for session in ["session1", "session2"] {
        machine.file(&format!("/sys/class/iscsi_session/{session}/state"), "LOGGED_IN\n");
    }
    assert_eq!(unknown_to_udev(&machine.root()), ["session1", "session2"], "there are no disks yet");
    for (name, host) in [("sda", 1), ("sdb", 2)] {
        machine
            .file(&format!("/sys/block/{name}/dev"), format!("8:{host}\n"))
            .file(&format!("/sys/block/{name}/queue/rotational"), "1\n")
            .file(&format!("/sys/block/{name}/device/scsi_device/{host}:0:0:0/uevent"), "")
            .file(&format!("/sys/class/iscsi_host/host{host}/ipaddress"), "192.0.2.10\n");
    }
    assert_eq!(unknown_to_udev(&machine.root()), ["sda", "sdb"]);
    let disk = disks(&machine.root()).remove(0);
    assert_eq!(disk.drive_type, Some(DriveType::ISCSI), "before udev says so");
    assert_eq!(disk.iscsi.unwrap().host_ip_address.as_deref(), Some("192.0.2.10"));
    for host in 1..=2 {
        machine.file(&format!("/run/udev/data/b8:{host}"), "E:DM_MULTIPATH_DEVICE_PATH=1\n");
    }
    assert_eq!(unknown_to_udev(&machine.root()), ["sda", "sdb"], "nothing is made of them yet");
    machine.file("/sys/block/dm-0/dm/uuid", "mpath-33000000000000001\n");
    for name in ["sda", "sdb"] {
        machine.file(&format!("/sys/block/{name}/holders/dm-0/uevent"), "");
    }
    assert_eq!(unknown_to_udev(&machine.root()), [""; 0]);
    let told: Vec<_> = disks(&machine.root()).into_iter().map(|disk| (disk.drive_type, disk.holders)).collect();
    let path = || (Some(DriveType::ISCSI), Some("dm-0".to_owned()));
    assert_eq!(told, [(Some(DriveType::Multipath), None), path(), path()]);
}

#[rstest]
#[case::partition("/dev/vda1 /var ext4 rw 0 0\n", "Disk has partition 'vda1' mounted on '/var'")]
#[case::other_disk("/dev/vdab1 /var ext4 rw 0 0\n", "")]
#[case::nvme_part("/dev/vdap1 /x ext4 rw 0 0\n", "Disk has partition 'vdap1' mounted on '/x'")]
fn a_mounted_disk_is_not_eligible(#[case] mounts: &str, #[case] expected: &str) {
    let machine = Machine::new();
    machine.file("/sys/block/vda/size", "2048").file("/proc/mounts", mounts);
    let disks = disks(&machine.root());
    let reasons = disks[0].installation_eligibility.clone().unwrap().not_eligible_reasons.unwrap();
    assert_eq!(reasons.join(""), expected);
}

#[rstest]
#[case::bond(&[("bonding/slaves", "")], "bond")]
#[case::bridge(&[("bridge/bridge_id", "")], "bridge")]
#[case::vlan(&[("uevent", "DEVTYPE=vlan\nINTERFACE=x\n")], "vlan")]
#[case::veth(&[("ifindex", "4"), ("iflink", "9")], "veth")]
#[case::physical(&[("device/vendor", "0x8086")], "physical")]
fn kinds_of_interfaces(#[case] files: &[(&str, &str)], #[case] expected: &str) {
    let machine = Machine::new();
    for (file, content) in files {
        machine.file(&format!("/sys/class/net/x0/{file}"), content);
    }
    assert_eq!(kind_of(&machine.root(), "x0"), expected);
}

#[rstest]
#[case::mib(640, Some(640 << 20))]
#[case::kib(0x8000 | 512, Some(512 << 10))]
#[case::empty_slot(0, None)]
#[case::unknown(0xffff, None)]
fn memory_of_the_firmware(#[case] size: u16, #[case] expected: Option<i64>) {
    assert_eq!(smbios_memory(&smbios(size)), expected);
}

#[test]
fn a_large_memory_device_has_its_size_in_another_field() {
    let mut device = vec![17u8, 0x22, 0, 17];
    device.resize(0x22, 0);
    device[0x0c..0x0e].copy_from_slice(&0x7fffu16.to_le_bytes());
    device[0x1c..0x20].copy_from_slice(&65_536u32.to_le_bytes());
    device.extend([0, 0]);
    assert_eq!(smbios_memory(&device), Some(64 << 30));
    assert_eq!(smbios_memory(&device[..20]), None, "a table that was cut");
}

#[test]
fn memory_without_a_table_is_that_of_the_blocks_and_then_that_of_the_kernel() {
    let machine = Machine::new();
    machine.file("/proc/meminfo", "MemTotal: 1000 kB\n");
    assert_eq!(memory(&machine.root()).physical_bytes_method.as_deref(), Some("meminfo"));
    machine
        .file("/sys/devices/system/memory/block_size_bytes", "8000000\n")
        .file("/sys/devices/system/memory/memory0/state", "online\n")
        .file("/sys/devices/system/memory/memory1/state", "online\n")
        .file("/sys/devices/system/memory/memory2/state", "offline\n");
    let memory = memory(&machine.root());
    assert_eq!((memory.physical_bytes, memory.physical_bytes_method.as_deref()), (Some(256 << 20), Some("ghw")));
}

#[rstest]
#[case::board(&[("board_serial", "ABC")], *id_of(b"ABC").as_bytes())]
#[case::no_serial(&[("board_serial", "None"), ("product_uuid", "6F1B0A5C-0000-4000-8000-000000000001")],
    *"6f1b0a5c-0000-4000-8000-000000000001".parse::<Uuid>().unwrap().as_bytes())]
#[case::shared_id(&[("product_uuid", "03000200-0400-0500-0006-000700080009")], *id_of(b"52:54:00:00:00:01").as_bytes())]
fn who_a_machine_is(#[case] files: &[(&str, &str)], #[case] expected: [u8; 16]) {
    let machine = Machine::new();
    machine.file("/sys/class/net/b/address", "52:54:00:00:00:02").file("/sys/class/net/a/address", "52:54:00:00:00:01");
    for (file, content) in files {
        machine.file(&format!("/sys/class/dmi/id/{file}"), content);
    }
    assert_eq!(host_id(&machine.root()).as_bytes(), &expected);
}

#[test]
fn a_machine_that_is_nobody() {
    assert_eq!(host_id(&Machine::new().root()), NO_ID);
}

#[test]
fn an_overlay_changes_what_is_less_and_says_what() {
    let mut taken = take(&Machine::lab().root(), &lab_addresses());
    let overlay = Overlay { cpus: Some(8), memory_mib: Some(16384), disk_gb: Some(120), physical_nics: vec![] };
    let changed = lay_over(&mut taken, &overlay);
    assert_eq!(
        changed,
        [
            "cpu.count: 2 declared as 8",
            "memory.physical_bytes: 671088640 declared as 17179869184",
            "memory.usable_bytes: 634880000 declared as 17179869184",
            "disks.vda.size_bytes: 4294967296 declared as 120000000000",
        ]
    );
    let sizes: Vec<_> = taken.disks.as_ref().unwrap().iter().map(|d| d.size_bytes.unwrap()).collect();
    assert_eq!(sizes, [160_000 * 512, 120_000_000_000], "the medium stays what it is");
    assert_eq!(lay_over(&mut taken, &overlay), Vec::<String>::new(), "nothing is left to change");
    assert_eq!(lay_over(&mut taken, &Overlay::default()), Vec::<String>::new());
    let _ = json!(taken);
}

/// Digests of RFC 1321.
#[rstest]
#[case("", "d41d8cd9-8f00-b204-e980-0998ecf8427e")]
#[case("abc", "90015098-3cd2-4fb0-d696-3f7d28e17f72")]
fn ids_are_digests(#[case] text: &str, #[case] expected: Uuid) {
    assert_eq!(id_of(text.as_bytes()), expected);
}
