//! Disks of virtual machines, and the firmware that boots from them.

use std::collections::BTreeMap;

use super::{Checker, Place};
use crate::file::{DiskFile, VmFile};
use crate::spanned::{At, Plain, Text};
use crate::types::{Vm, VmDisk};
use crate::words::{BootOrder, DiskBus, Firmware, Leftover};

/// As many as a SATA controller has ports, and as many as have a letter.
const MAX_SATA: usize = 6;
const MAX_DISKS: usize = 16;

/// As many targets as a firmware's table of iSCSI has.
const MAX_PATHS: usize = 2;

/// In GB: from this size on the service takes a disk for any role.
const LARGE_ENOUGH: i64 = 100;

impl Checker<'_> {
    /// The disks of a machine.
    pub(super) fn disks(&mut self, file: &At<Vec<At<DiskFile>>>, single: Option<&At<i64>>) -> Vec<VmDisk> {
        if let Some(single) = single {
            self.refuse(
                &single.span,
                "`disk_gb` is the size of the only disk, and `disks` has others",
                "not used here",
                "remove it, and write `size_gb` at each of `disks`",
            );
        }
        let span = &file.span;
        if file.is_empty() {
            self.refuse(span, "a machine without a disk cannot be installed", "this list is empty", "add a disk");
        }
        let sata = file.iter().filter(|disk| disk.bus.text == DiskBus::Sata.as_str()).count();
        if file.len() > MAX_DISKS || sata > MAX_SATA {
            let what = format!("{} disks, {sata} of them SATA", file.len());
            let help = format!("leave at most {MAX_DISKS}, and at most {MAX_SATA} with `bus: sata`");
            self.refuse(span, format!("a machine cannot have {what}"), "too many", help);
        }
        self.network_disks(file);
        let mut seen = BTreeMap::new();
        let disks: Vec<VmDisk> = file.iter().filter_map(|disk| self.disk(disk, &mut seen)).collect();
        if disks.iter().filter(|disk| disk.leftover == Some(Leftover::Raid)).count() == 1
            && let Some(only) =
                file.iter().filter_map(|d| d.leftover.as_ref()).find(|l| l.text == Leftover::Raid.as_str())
        {
            self.refuse(
                &only.span,
                "a mirror of one disk",
                "the only one with `leftover: raid`",
                "give another disk of the machine `leftover: raid`, too: together they are one array",
            );
        }
        disks
    }

    fn disk<'f>(&mut self, file: &'f At<DiskFile>, seen: &mut BTreeMap<&'f str, &'f Place>) -> Option<VmDisk> {
        let bus = self.read(&file.bus);
        let size = self.number(&file.size_gb, "the size of the disk in GB", 1, 1 << 20);
        let leftover = self.read_option(&file.leftover);
        let serial = file.serial.as_ref().and_then(|text| self.serial(text));
        let wwn = file.wwn.as_ref().and_then(|text| self.wwn(text));
        for name in [&file.serial, &file.wwn].into_iter().flatten() {
            if let Some(first) = seen.insert(&name.text, &name.span) {
                let what = format!("two disks are named `{}`", name.text);
                self.refuse(&name.span, what, "the second one", "give each disk a number of its own");
                self.also(first, "the first one");
            }
        }
        let bus = bus?;
        self.bus_is_built(bus, &file.bus.span);
        let is = |flag: &Option<At<bool>>| flag.as_ref().is_some_and(|flag| **flag);
        if let Some(place) = file.ssd.as_ref().filter(|_| !matches!(bus, DiskBus::Sata | DiskBus::Scsi)) {
            let help = "remove it: NVMe disks are SSDs, and virtio disks are none; or write `bus: sata` or `bus: scsi`";
            self.refuse(&place.span, format!("`ssd` has no meaning for `{bus}`"), "not used here", help);
        }
        if let Some(place) = file.removable.as_ref().filter(|_| bus != DiskBus::Scsi) {
            let help = "remove it, or write `bus: scsi`, as systems see a memory stick";
            self.refuse(&place.span, format!("a disk with `bus: {bus}` cannot be taken out"), "not used here", help);
        }
        if let Some(place) = file.wwn.as_ref().filter(|_| bus == DiskBus::Virtio) {
            let help = "remove it, or choose another bus";
            self.refuse(&place.span, "virtio disks have no world-wide name", "not used here", help);
        }
        Some(VmDisk {
            bus,
            size_gb: size?.unsigned_abs(),
            serial,
            wwn,
            ssd: is(&file.ssd) || bus == DiskBus::Nvme,
            removable: is(&file.removable),
            leftover,
        })
    }

    /// What is known, and cannot be run.
    fn bus_is_built(&mut self, bus: DiskBus, place: &Place) {
        let (what, help) = match bus {
            DiskBus::Virtio | DiskBus::Sata | DiskBus::Scsi | DiskBus::Nvme | DiskBus::Iscsi | DiskBus::Multipath => {
                return;
            }
            DiskBus::Usb => (
                "disks on USB: the kernel of the lab OS has no USB",
                "write `bus: scsi` with `removable: true`, as a system sees a memory stick",
            ),
        };
        self.not_built(place, what, help);
    }

    /// Disks on the network: as many paths as a firmware's table can tell of, and beside them a disk that the service chooses.
    fn network_disks(&mut self, file: &At<Vec<At<DiskFile>>>) {
        let is = |disk: &DiskFile, buses: &[DiskBus]| buses.iter().any(|bus| disk.bus.text == bus.as_str());
        let paths = |disk: &DiskFile| match () {
            () if is(disk, &[DiskBus::Iscsi]) => 1,
            () if is(disk, &[DiskBus::Multipath]) => 2,
            () => 0,
        };
        let all: usize = file.iter().map(|disk| paths(disk)).sum();
        let Some(first) = file.iter().find(|disk| paths(disk) > 0) else { return };
        if all > MAX_PATHS {
            let what = format!("{all} paths to disks on the network, and a machine's firmware tells of {MAX_PATHS}");
            let help = "leave one disk with `bus: multipath`, or at most two with `bus: iscsi`";
            self.refuse(&file.span, what, "too many", help);
        }
        if let Some(leftover) = file.iter().filter(|disk| paths(disk) > 0).find_map(|disk| disk.leftover.as_ref()) {
            let help = "remove it, or choose another bus";
            self.refuse(&leftover.span, "nothing is left on disks on the network", "not used here", help);
        }
        // By the service's rules nothing comes before it but what looks bootable, which is a local disk, too.
        let local = [DiskBus::Virtio, DiskBus::Sata, DiskBus::Scsi];
        let chosen = |disk: &&At<DiskFile>| {
            is(disk, &local) && *disk.size_gb >= LARGE_ENOUGH && !disk.ssd.as_ref().is_some_and(|ssd| **ssd)
        };
        if !file.iter().any(|disk| chosen(&disk)) {
            let what = format!(
                "booting from iSCSI, which the service would choose here: the initrd of the lab OS does not log in to targets, and no \
                 boot ROM does (`bus: {}`)",
                first.bus.text
            );
            let help = "add a disk of 100 GB or more that turns, such as `{bus: virtio, size_gb: 120}`: it is chosen before those on \
                        the network";
            self.not_built(&first.bus.span, &what, help);
        }
    }

    /// What this firmware cannot do.
    pub(super) fn firmware_can(&mut self, vm: &Vm, file: &VmFile) {
        if let Some(order) = file.boot_order.as_ref().filter(|_| vm.boot_order == BootOrder::Nvram)
            && vm.firmware == Firmware::Bios
        {
            let what = "a BIOS remembers no order".to_owned();
            self.refuse(&order.span, what, "`nvram` is for UEFI", "write `firmware: uefi`, or another order");
        }
    }

    fn serial(&mut self, text: &Text<Plain>) -> Option<String> {
        let plain = text.text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if plain && (1..=20).contains(&text.text.len()) {
            return Some(text.text.clone());
        }
        self.refuse(
            &text.span,
            format!("`{}` is not a serial number", text.text),
            "expected 1 to 20 letters, digits and `-`",
            "write one such as `SYSTEM-1`",
        );
        None
    }

    fn wwn(&mut self, text: &Text<Plain>) -> Option<u64> {
        let digits = text.text.strip_prefix("0x").unwrap_or(&text.text);
        let number = (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten().filter(|n| *n != 0);
        if number.is_none() {
            self.refuse(
                &text.span,
                format!("`{}` is not a world-wide name", text.text),
                "expected 16 hexadecimal digits",
                "write one such as `5000c50012345678`, in quotes",
            );
        }
        number
    }
}
