//! Disks of virtual machines in scenarios.

use rstest::rstest;
use vlab_scenario::{Catalogue, DiskBus, Leftover, LoadError, Scenario, SourceFile, VmDisk};

fn read(disks: &str, more: &str) -> Result<Scenario, LoadError> {
    let text = format!(
        "version: 1\nname: test\ncluster: {{topology: sno}}\nhosts:\n  - name: node\n    kind: vm\n    vm: {{{disks}}}\n{more}"
    );
    vlab_scenario::load(&SourceFile::new("test.yaml", text), &Catalogue::embedded())
}

#[test]
fn a_machine_has_the_disks_of_the_list() {
    let scenario = read(
        "disks: [{bus: sata, size_gb: 120, serial: A-1, wwn: \"0x5000c50012345678\", leftover: raid}, \
         {bus: scsi, size_gb: 16, removable: true, leftover: partitions}, {bus: scsi, size_gb: 200, ssd: true, leftover: raid}, \
         {bus: nvme, size_gb: 100, leftover: lvm}, {bus: virtio, size_gb: 90}]",
        "",
    )
    .unwrap_or_else(|e| panic!("{e}"));
    let plain = VmDisk {
        bus: DiskBus::Virtio,
        size_gb: 90,
        serial: None,
        wwn: None,
        ssd: false,
        removable: false,
        leftover: None,
    };
    let expected = [
        VmDisk {
            bus: DiskBus::Sata,
            size_gb: 120,
            serial: Some("A-1".into()),
            wwn: Some(0x5000_c500_1234_5678),
            leftover: Some(Leftover::Raid),
            ..plain.clone()
        },
        VmDisk {
            bus: DiskBus::Scsi,
            size_gb: 16,
            removable: true,
            leftover: Some(Leftover::Partitions),
            ..plain.clone()
        },
        VmDisk { bus: DiskBus::Scsi, size_gb: 200, ssd: true, leftover: Some(Leftover::Raid), ..plain.clone() },
        VmDisk { bus: DiskBus::Nvme, size_gb: 100, ssd: true, leftover: Some(Leftover::Lvm), ..plain.clone() },
        plain,
    ];
    assert_eq!(scenario.hosts[0].vm.disks, expected);
    assert!(scenario.not_built.is_empty());
}

#[rstest]
#[case("disk_gb: 20, disks: [{bus: sata, size_gb: 120}]", "`disk_gb` is the size of the only disk")]
#[case("disks: []", "a machine without a disk cannot be installed")]
#[case("disks: [{bus: ide, size_gb: 120}]", "`ide` is not a bus of a disk")]
#[case("disks: [{bus: sata, size_gb: 0}]", "the size of the disk in GB is 0")]
#[case("disks: [{bus: sata, size_gb: 1, serial: \"a b\"}]", "`a b` is not a serial number")]
#[case("disks: [{bus: sata, size_gb: 1, wwn: 12}]", "`12` is not a world-wide name")]
#[case("disks: [{bus: virtio, size_gb: 1, wwn: \"5000c50012345678\"}]", "virtio disks have no world-wide name")]
#[case("disks: [{bus: nvme, size_gb: 1, ssd: false}]", "`ssd` has no meaning for `nvme`")]
#[case("disks: [{bus: sata, size_gb: 1, removable: true}]", "a disk with `bus: sata` cannot be taken out")]
#[case("disks: [{bus: sata, size_gb: 1, leftover: lvm2}]", "`lvm2` is not a leftover")]
#[case("disks: [{bus: sata, size_gb: 1, leftover: raid}]", "a mirror of one disk")]
#[case("disks: [{bus: sata, size_gb: 1, serial: A}, {bus: scsi, size_gb: 1, serial: A}]", "two disks are named `A`")]
#[case(
    "disks: [{bus: sata, size_gb: 1}, {bus: sata, size_gb: 1}, {bus: sata, size_gb: 1}, {bus: sata, size_gb: 1}, \
     {bus: sata, size_gb: 1}, {bus: sata, size_gb: 1}, {bus: sata, size_gb: 1}]",
    "a machine cannot have 7 disks, 7 of them SATA"
)]
#[case("disks: [{bus: virtio, size_gb: 120}, {bus: iscsi, size_gb: 1, ssd: true}]", "`ssd` has no meaning for `iscsi`")]
#[case("disks: [{bus: virtio, size_gb: 120}, {bus: iscsi, size_gb: 1, leftover: lvm}]", "nothing is left on disks")]
#[case(
    "disks: [{bus: virtio, size_gb: 120}, {bus: multipath, size_gb: 1}, {bus: iscsi, size_gb: 1}]",
    "3 paths to disks on the network, and a machine's firmware tells of 2"
)]
fn disks_that_cannot_be_are_refused(#[case] disks: &str, #[case] expected: &str) {
    let error = read(disks, "").unwrap_err().to_string();
    assert!(error.contains(expected) && error.contains("test.yaml:7"), "{error}");
}

#[rstest]
#[case("usb", "the kernel of the lab OS has no USB")]
#[case("iscsi", "booting from iSCSI, which the service would choose here")]
#[case("multipath", "booting from iSCSI, which the service would choose here")]
fn what_is_not_built_is_said_with_its_line(#[case] bus: &str, #[case] expected: &str) {
    let scenario = read(&format!("disks: [{{bus: {bus}, size_gb: 120}}]"), "").unwrap_or_else(|e| panic!("{e}"));
    let [only] = &scenario.not_built[..] else { panic!("{:?}", scenario.not_built) };
    assert!(only.what.contains(expected) && only.line == 7, "{only:?}");
}

/// The service takes disks that turn before those on the network, and those before SSDs.
#[rstest]
#[case("{bus: virtio, size_gb: 120}, {bus: iscsi, size_gb: 120}, {bus: iscsi, size_gb: 10}", 0)]
#[case("{bus: multipath, size_gb: 120}, {bus: sata, size_gb: 100}", 0)]
#[case("{bus: virtio, size_gb: 99}, {bus: iscsi, size_gb: 120}", 1)]
#[case("{bus: sata, size_gb: 120, ssd: true}, {bus: multipath, size_gb: 120}", 1)]
fn a_machine_with_disks_on_the_network_has_one_that_is_chosen_before(#[case] disks: &str, #[case] refused: usize) {
    let scenario = read(&format!("disks: [{disks}]"), "").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.not_built.len(), refused, "{:?}", scenario.not_built);
}

#[test]
fn firmware_that_cannot_do_it_is_refused_with_its_line() {
    for uefi in ["uefi", "uefi-secure"] {
        let scenario = read(&format!("firmware: {uefi}, boot_order: nvram"), "").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(scenario.not_built, []);
    }
    for bios in ["boot_order: nvram", "firmware: bios, boot_order: nvram"] {
        let error = read(bios, "").unwrap_err().to_string();
        assert!(error.contains("a BIOS remembers no order") && error.contains(":7:"), "{error}");
    }
}

#[test]
fn only_a_disk_that_is_there_can_be_looked_for() {
    let expect = |serial: &str| {
        let expect = format!("expect: [{{eventually: {{host: node-0, did: \"installing-to:{serial}\"}}}}]\n");
        read("disks: [{bus: sata, size_gb: 120, serial: SYSTEM}]", &expect)
    };
    expect("SYSTEM").unwrap_or_else(|e| panic!("{e}"));
    let error = expect("SYSTEN").unwrap_err().to_string();
    assert!(error.contains("there is no disk with the serial number `SYSTEN`") && error.contains("SYSTEM"), "{error}");
}
