//! What a virtual machine has: the form of `vm` in a scenario file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::spanned::{At, Plain, Text};
use crate::words::{BootOrder, DiskBus, Firmware, Leftover};

/// What a virtual machine really has, beside what its hardware profile declares.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Vm")]
pub(crate) struct VmFile {
    /// Processors.
    #[schemars(extend("default" = 1))]
    pub(crate) cpus: Option<At<i64>>,
    /// Memory in MiB.
    #[schemars(extend("default" = 1024))]
    pub(crate) memory_mib: Option<At<i64>>,
    /// Size of its disk in GB (10^9 bytes). By default that of the profile's first disk. Only what is written takes up space.
    pub(crate) disk_gb: Option<At<i64>>,
    /// Its disks, where it has others than the one of `disk_gb`. Simulated hosts report the same ones.
    pub(crate) disks: Option<At<Vec<At<DiskFile>>>>,
    /// Firmware.
    #[schemars(extend("default" = "bios"))]
    pub(crate) firmware: Option<Text<Firmware>>,
    /// Does it have a TPM 2.0?
    #[schemars(extend("default" = false))]
    pub(crate) tpm: Option<bool>,
    /// `disk-first`; `cd-first`, with which an installed host boots the discovery image again; or, with UEFI, `nvram`: what the
    /// firmware remembers, which is what the installer has told it.
    #[schemars(extend("default" = "disk-first"))]
    pub(crate) boot_order: Option<Text<BootOrder>>,
    /// File with the real agent (openshift/assisted-installer-agent, a program for x86_64), which runs instead of the lab's.
    pub(crate) agent: Option<Text<Plain>>,
    /// File with the real installer (openshift/assisted-installer), likewise. Its folder `deploy` lies beside it.
    pub(crate) installer: Option<Text<Plain>>,
    /// File with the real controller (assisted-installer-controller of the same repository), likewise.
    pub(crate) controller: Option<Text<Plain>>,
    /// Console checks that do not count, by id: `kernel-panic`, `unit-failed` and so on.
    #[serde(default)]
    pub(crate) ignore_console: Vec<Text<Plain>>,
}

/// A disk of a machine.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "VmDisk")]
pub(crate) struct DiskFile {
    /// How it is attached.
    pub(crate) bus: Text<DiskBus>,
    /// Size in GB (10^9 bytes). Only what is written takes up space.
    pub(crate) size_gb: At<i64>,
    /// Serial number: at most 20 letters, digits and `-`. By default one that no other disk has.
    pub(crate) serial: Option<Text<Plain>>,
    /// World-wide name: 16 hexadecimal digits (of NVMe the EUI-64). By default one that no other disk has; virtio has none.
    pub(crate) wwn: Option<Text<Plain>>,
    /// Is it an SSD? Only of SATA and SCSI disks; NVMe ones always are, virtio ones never.
    #[schemars(extend("default" = false))]
    pub(crate) ssd: Option<At<bool>>,
    /// Can it be taken out? This is what a system sees of a memory stick. SCSI only.
    #[schemars(extend("default" = false))]
    pub(crate) removable: Option<At<bool>>,
    /// What somebody left on it. By default it is empty.
    pub(crate) leftover: Option<Text<Leftover>>,
}
