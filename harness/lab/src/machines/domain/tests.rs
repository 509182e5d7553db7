use rstest::rstest;

use super::*;

fn placement(accel: Accel) -> Placement {
    Placement {
        movable: false,
        frozen: false,
        again: false,
        domain: "run1-master-0".into(),
        accel,
        directory: "/run/lab/master-0".into(),
        console_log: "/runs/one/consoles/master-0.log".into(),
        emulator: "/usr/bin/qemu-system-x86_64".into(),
        ovmf_code: Some("/usr/share/OVMF/OVMF_CODE_4M.fd".into()),
        env: vec![("VLAB_LEDGER_MARK".into(), "run1:7".into())],
    }
}

fn full() -> MachineSpec {
    let uuid = Uuid::from_u128(0x1234_5678_9abc_4def_8000_0000_0000_0001);
    MachineSpec {
        vendor: Vendor { manufacturer: "A & B".into(), product: "<R650>".into(), serial: "O'Neil\"1".into() },
        cpus: 4,
        firmware: Firmware::Uefi,
        tpm: true,
        cdrom: Some("/images/discovery one.iso".into()),
        disks: vec![
            DiskSpec::new("vda", Bus::Virtio, 120 << 30, "LABD000001"),
            DiskSpec {
                size_bytes: None,
                base: Some("/images/base.qcow2".into()),
                ..DiskSpec::new("sda", Bus::Sata, 0, "")
            },
        ],
        nics: vec![
            NicSpec { mac: "52:54:00:AA:00:11".into(), plug: Plug::Tap("tap0".into()) },
            NicSpec { mac: "52:54:00:aa:00:12".into(), plug: Plug::User },
        ],
        ..MachineSpec::new("master-0", uuid, 1024)
    }
}

#[test]
fn everything_at_once() {
    insta::assert_snapshot!(domain_xml(&full(), &placement(Accel::Tcg)).unwrap());
}

#[test]
fn as_little_as_possible_under_kvm() {
    let spec = MachineSpec::new("tiny", Uuid::nil(), 32);
    insta::assert_snapshot!(domain_xml(&spec, &Placement { env: vec![], ..placement(Accel::Kvm) }).unwrap());
}

#[test]
fn disks_of_every_bus() {
    let spec = MachineSpec {
        disks: vec![
            DiskSpec {
                wwn: 0x5000_c500_0000_0001,
                ssd: true,
                leftover: Some(Leftover::Partitions),
                ..DiskSpec::new("sda", Bus::Sata, 120 << 30, "LABD000001")
            },
            DiskSpec { wwn: 0x5000_c500_0000_0002, ..DiskSpec::new("sdb", Bus::Scsi, 120 << 30, "LABD000002") },
            DiskSpec { removable: true, ..DiskSpec::new("sdc", Bus::Scsi, 16 << 30, "STICK") },
            DiskSpec { wwn: 0x5000_c500_0000_0003, ..DiskSpec::new("nvme0", Bus::Nvme, 120 << 30, "LABD000003") },
        ],
        nics: vec![],
        firmware: Firmware::Bios,
        tpm: false,
        ..full()
    };
    insta::assert_snapshot!(domain_xml(&spec, &placement(Accel::Tcg)).unwrap());
}

#[rstest]
#[case(BootOrder::DiskFirst, ["<boot order=\"1\"/>", "<boot order=\"2\"/>", "<boot order=\"3\"/>"])]
#[case(BootOrder::CdFirst, ["<boot order=\"2\"/>", "<boot order=\"3\"/>", "<boot order=\"1\"/>"])]
fn disks_come_before_the_cd_unless_the_order_is_wrong(#[case] boot: BootOrder, #[case] expected: [&str; 3]) {
    assert_eq!(orders(boot, false), expected);
}

fn orders(boot: BootOrder, again: bool) -> Vec<String> {
    let placement = Placement { again, ..placement(Accel::Tcg) };
    let xml = domain_xml(&MachineSpec { boot, ..full() }, &placement).unwrap();
    xml.lines().map(str::trim).filter(|line| line.starts_with("<boot order")).map(str::to_owned).collect()
}

/// A new machine has nothing to remember.
#[test]
fn the_firmware_is_told_once_what_it_is_to_remember_later() {
    assert_eq!(orders(BootOrder::Firmware, false), ["<boot order=\"1\"/>"]);
    assert_eq!(orders(BootOrder::Firmware, true), Vec::<String>::new());
    assert_eq!(orders(BootOrder::DiskFirst, true).len(), 3);
}

/// Only then the firmware, and nobody else, can write the keys.
#[test]
fn secure_boot_has_its_own_mode_of_the_processor() {
    let xml = domain_xml(&MachineSpec { firmware: Firmware::UefiSecure, ..full() }, &placement(Accel::Tcg)).unwrap();
    assert!(xml.contains(" secure=\"yes\">") && xml.contains("<smm state=\"on\"/>"), "{xml}");
    let xml = domain_xml(&full(), &placement(Accel::Tcg)).unwrap();
    assert!(!xml.contains("secure") && !xml.contains("smm"), "{xml}");
}

#[test]
fn one_that_goes_on_waits_for_what_was_written_down() {
    let frozen = Placement { frozen: true, ..placement(Accel::Tcg) };
    let has =
        |placement: &Placement| domain_xml(&full(), placement).unwrap().contains("<qemu:arg value=\"-incoming\"/>");
    assert!(has(&frozen) && !has(&placement(Accel::Tcg)));
}

#[rstest]
#[case::no_name(MachineSpec { name: String::new(), ..full() })]
#[case::path(MachineSpec { name: "../x".into(), ..full() })]
#[case::quote(MachineSpec { name: "a'b".into(), ..full() })]
#[case::no_cpu(MachineSpec { cpus: 0, ..full() })]
#[case::no_memory(MachineSpec { memory_mib: 8, ..full() })]
#[case::same_disk(MachineSpec { disks: vec![full().disks[0].clone(), full().disks[0].clone()], ..full() })]
#[case::no_size(MachineSpec { disks: vec![DiskSpec { size_bytes: None, ..full().disks[0].clone() }], ..full() })]
#[case::virtio_with_a_name(MachineSpec { disks: vec![DiskSpec { wwn: 1, ..full().disks[0].clone() }], ..full() })]
#[case::virtio_stick(MachineSpec { disks: vec![DiskSpec { removable: true, ..full().disks[0].clone() }], ..full() })]
#[case::nvme_that_turns(MachineSpec { disks: vec![DiskSpec { ssd: true, ..DiskSpec::new("nvme0", Bus::Nvme, 1 << 30, "") }], ..full() })]
#[case::no_room(MachineSpec {
    disks: vec![DiskSpec { leftover: Some(Leftover::Partitions), ..DiskSpec::new("vda", Bus::Virtio, 1 << 20, "") }], ..full() })]
#[case::same_mac(MachineSpec { nics: vec![full().nics[0].clone(), full().nics[0].clone()], ..full() })]
#[case::multicast(MachineSpec { nics: vec![NicSpec { mac: "01:00:5e:00:00:01".into(), plug: Plug::User }], ..full() })]
#[case::no_mac(MachineSpec { nics: vec![NicSpec { mac: "52:54:00:aa:00".into(), plug: Plug::User }], ..full() })]
fn what_cannot_be_is_refused(#[case] spec: MachineSpec) {
    assert!(domain_xml(&spec, &placement(Accel::Tcg)).is_err());
}

#[test]
fn uefi_without_ovmf_says_which_package() {
    let error = domain_xml(&full(), &Placement { ovmf_code: None, ..placement(Accel::Tcg) }).unwrap_err();
    assert!(error.to_string().contains("apt-get install ovmf"), "{error}");
    let spec = MachineSpec { firmware: Firmware::UefiSecure, ..full() };
    let error = domain_xml(&spec, &Placement { ovmf_code: None, ..placement(Accel::Tcg) }).unwrap_err().to_string();
    assert!(error.contains("secure boot") && error.contains("apt-get install ovmf"), "{error}");
}
