//! What a machine is, and the libvirt domain that makes it so: a pure function from one to the other.
//!
//! Choices that are the same for all machines, with their reasons: disks are virtio with `cache=unsafe` (a machine of a test
//! lives for minutes, and flushing costs more than everything else); NICs have no boot ROM (`rom enabled='no'`: network
//! boot would be tried for seconds before the disk); the translation cache is 128 MiB under TCG (see [`TB_CACHE_MIB`]); the console is a
//! unix socket for people and at the same time a log file that never depends on a reader.

use std::path::{Path, PathBuf};

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::leftover::{self, Leftover};
use crate::iscsi::ibft::{self, Known};

/// Translation cache under TCG, in MiB. A boot of the lab OS translates 230 MB; with 64 everything is thrown away six times and
/// translated again. With 256 a whole installation takes no less of the processor (66 s to 85 s, with 128 it was 74 s to 82 s, two runs
/// each), a machine takes as much more memory, and a reboot, which must find what is no longer true of it, took 5 s to 14 s from the
/// reset to the initrd, with 128 it took 5.5 s to 6.6 s.
pub const TB_CACHE_MIB: u64 = 128;

/// Features of a processor that TCG has, and that make a guest slower under it: kernels copy and clear memory byte by byte with
/// `erms` and `fsrm`, `smap` doubles the translations of what touches a program's memory, and `la57` makes every walk of the page
/// tables longer. Measured together only: reading the discovery medium took 0.9 s under `max`, 0.3 s under `qemu64`, which has
/// none of them; writing 115 MiB to a disk 3 to 4 s, and 1.5 s.
const SLOW_UNDER_TCG: [&str; 4] = ["erms", "fsrm", "smap", "la57"];

/// A machine as a scenario describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSpec {
    /// Name of the host; letters, digits, `-` and `.`.
    pub name: String,
    /// SMBIOS system UUID: the id under which the agent registers.
    pub uuid: Uuid,
    /// SMBIOS system manufacturer, product and serial number.
    pub vendor: Vendor,
    /// Number of processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// BIOS or UEFI, with secure boot or without.
    pub firmware: Firmware,
    /// With a TPM 2.0 (swtpm).
    pub tpm: bool,
    /// What is tried first.
    pub boot: BootOrder,
    /// The medium in the CD drive. Without one there is no drive.
    pub cdrom: Option<PathBuf>,
    /// Disks, in the order in which they are tried at boot.
    pub disks: Vec<DiskSpec>,
    /// Network interfaces.
    pub nics: Vec<NicSpec>,
    /// Disks on the network that its firmware tells of.
    pub known: Option<Known>,
    /// Files that its firmware hands to the guest (QEMU's `fw_cfg`): name, such as `opt/vlab/node.json`, and content.
    pub firmware_files: Vec<(String, Vec<u8>)>,
}

impl MachineSpec {
    /// One processor, BIOS, no disk, no network.
    #[must_use]
    pub fn new(name: &str, uuid: Uuid, memory_mib: u64) -> Self {
        Self {
            name: name.to_owned(),
            uuid,
            vendor: Vendor::default(),
            cpus: 1,
            memory_mib,
            firmware: Firmware::Bios,
            tpm: false,
            boot: BootOrder::DiskFirst,
            cdrom: None,
            disks: Vec::new(),
            nics: Vec::new(),
            known: None,
            firmware_files: Vec::new(),
        }
    }
}

/// Who made the machine, as the guest reads it from SMBIOS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vendor {
    /// Manufacturer in the SMBIOS tables.
    pub manufacturer: String,
    /// Product name.
    pub product: String,
    /// Serial number.
    pub serial: String,
}

impl Default for Vendor {
    fn default() -> Self {
        Self { manufacturer: "Lab".to_owned(), product: "Lab machine".to_owned(), serial: String::new() }
    }
}

/// The firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Firmware {
    /// SeaBIOS.
    Bios,
    /// OVMF, without secure boot.
    Uefi,
    /// OVMF, which starts only what Microsoft's keys have signed, or what that lets pass.
    #[serde(rename = "uefi-secure")]
    UefiSecure,
}

impl Firmware {
    /// Not a BIOS.
    #[must_use]
    pub fn is_uefi(self) -> bool {
        self != Self::Bios
    }
}

impl std::str::FromStr for Firmware {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "bios" => Ok(Self::Bios),
            "uefi" => Ok(Self::Uefi),
            "uefi-secure" => Ok(Self::UefiSecure),
            _ => Err(format!("`{word}` is not a firmware: expected bios, uefi or uefi-secure")),
        }
    }
}

/// What is tried first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootOrder {
    /// The disk, then the CD: an empty disk falls through to the CD, and after the installation the disk boots.
    DiskFirst,
    /// The CD, then the disk: the wrong order, with which an installed host boots the discovery image again.
    CdFirst,
    /// What the firmware remembers. With UEFI only; a BIOS remembers nothing. A machine that is new has nothing to remember: the first time it
    /// boots the CD, as from a boot menu, and from then on QEMU says nothing.
    Firmware,
}

/// How a disk is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    /// `vda`, …
    Virtio,
    /// `sda`, … through AHCI.
    Sata,
    /// `sda`, … through the controller (virtio-scsi) of the CD drive.
    Scsi,
    /// `nvme0n1`, …: a controller with one namespace.
    Nvme,
}

/// A disk. Its file is made in the machine's folder, as sparse as it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpec {
    /// Name of its file; libvirt wants it to begin like the guest's names on that bus: `vda`, `sdb`.
    pub name: String,
    /// How it is attached.
    pub bus: Bus,
    /// Size in bytes that the guest sees; `None`: that of `base`.
    pub size_bytes: Option<u64>,
    /// Serial number; at most 20 characters are seen through virtio.
    pub serial: String,
    /// World-wide name, not through virtio: 0 is none. NVMe calls it EUI-64.
    pub wwn: u64,
    /// It does not turn. Only SATA and SCSI disks are asked.
    pub ssd: bool,
    /// It can be taken out, as a memory stick. SCSI only.
    pub removable: bool,
    /// What somebody left on it.
    pub leftover: Option<Leftover>,
    /// An image under it that is only read (raw or qcow2); what the guest writes goes above it.
    pub base: Option<PathBuf>,
}

impl DiskSpec {
    /// An empty one.
    #[must_use]
    pub fn new(name: &str, bus: Bus, size_bytes: u64, serial: &str) -> Self {
        Self {
            name: name.to_owned(),
            bus,
            size_bytes: Some(size_bytes),
            serial: serial.to_owned(),
            wwn: 0,
            ssd: false,
            removable: false,
            leftover: None,
            base: None,
        }
    }
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicSpec {
    /// MAC address, `52:54:00:…`.
    pub mac: String,
    /// What it is plugged into.
    pub plug: Plug,
}

/// What a NIC is plugged into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plug {
    /// A tap that is already there, in the network namespace in which the machine is started.
    Tap(String),
    /// QEMU's own user-mode network: the guest reaches this machine as 10.0.2.2. For single machines that people look at.
    User,
}

/// What runs the guest's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// Hardware.
    Kvm,
    /// QEMU's translation.
    Tcg,
}

/// What the lab adds to a [`MachineSpec`] to place it on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Name of the domain in libvirt.
    pub domain: String,
    /// What runs it.
    pub accel: Accel,
    /// The machine's folder: disks, sockets, firmware variables.
    pub directory: PathBuf,
    /// All that the first serial port says.
    pub console_log: PathBuf,
    /// The program that emulates the machine.
    pub emulator: PathBuf,
    /// OVMF's code; needed for UEFI.
    pub ovmf_code: Option<PathBuf>,
    /// Environment of QEMU: how the ledger finds it.
    pub env: Vec<(String, String)>,
    /// It may be frozen later: its processor has only what can be written down.
    pub movable: bool,
    /// It does not boot: it goes on from what was written down.
    pub frozen: bool,
    /// It was on before: its firmware remembers what to boot.
    pub again: bool,
}

impl Placement {
    /// The file of a disk.
    #[must_use]
    pub fn disk(&self, disk: &DiskSpec) -> PathBuf {
        self.directory.join(format!("{}.qcow2", disk.name))
    }

    /// The first serial port, for one person at a time.
    #[must_use]
    pub fn console_socket(&self) -> PathBuf {
        console_socket(&self.directory)
    }

    /// The TPM's socket.
    #[must_use]
    pub fn tpm_socket(&self) -> PathBuf {
        self.directory.join("tpm.sock")
    }

    /// The file that holds the content of one of [`MachineSpec::firmware_files`], by its place there.
    #[must_use]
    pub fn firmware_file(&self, place: usize) -> PathBuf {
        self.directory.join(format!("fw-cfg-{place}"))
    }

    /// What [`MachineSpec::known`] says, as a table of ACPI without its head.
    #[must_use]
    pub fn known(&self) -> PathBuf {
        self.directory.join("ibft")
    }

    /// The variables of the UEFI firmware.
    #[must_use]
    pub fn nvram(&self) -> PathBuf {
        self.directory.join("nvram.fd")
    }
}

/// In a machine's folder.
#[must_use]
pub fn console_socket(directory: &Path) -> PathBuf {
    directory.join("console.sock")
}

/// What cannot be made into a domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A name that libvirt, a path or QEMU would not take.
    #[error("machine `{0}`: a name has letters, digits, `-` and `.` only")]
    Name(String),
    /// UEFI without firmware.
    #[error("machine `{0}` boots by UEFI, and OVMF is not installed (Debian: apt-get install ovmf)")]
    NoOvmf(String),
    /// Secure boot without its firmware.
    #[error(
        "machine `{0}` boots by UEFI with secure boot, and there is no OVMF that can do it with Microsoft's keys (Debian: apt-get \
         install ovmf)"
    )]
    NoSecureOvmf(String),
    /// No processors or no memory.
    #[error("machine `{name}`: {what}")]
    Size {
        /// Name in the spec.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// A disk that there is not.
    #[error("machine `{name}`: disk `{disk}` {what}")]
    Disk {
        /// Name in the spec.
        name: String,
        /// Name of the disk.
        disk: String,
        /// What is wrong.
        what: &'static str,
    },
    /// Two devices with the same name or address.
    #[error("machine `{name}`: two of {what}")]
    Twice {
        /// Name in the spec.
        name: String,
        /// Of what.
        what: String,
    },
    /// Not a MAC address of one interface.
    #[error("machine `{name}`: `{mac}` is not the MAC address of a single interface")]
    Mac {
        /// Name in the spec.
        name: String,
        /// As given.
        mac: String,
    },
}

/// Is what is asked for possible at all?
///
/// # Errors
/// What is not.
pub fn check(spec: &MachineSpec) -> Result<(), SpecError> {
    let name = || spec.name.clone();
    let plain = |text: &str| {
        !text.is_empty()
            && !text.starts_with(['-', '.'])
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    };
    if !plain(&spec.name) || spec.name.len() > 63 {
        return Err(SpecError::Name(name()));
    }
    if spec.cpus == 0 || spec.memory_mib < 16 {
        let what = format!("{} processors and {} MiB of memory are too little", spec.cpus, spec.memory_mib);
        return Err(SpecError::Size { name: name(), what });
    }
    for (place, disk) in spec.disks.iter().enumerate() {
        if !plain(&disk.name) || spec.disks[..place].iter().any(|other| other.name == disk.name) {
            return Err(SpecError::Twice {
                name: name(),
                what: format!("disk `{}`, or its name is not valid", disk.name),
            });
        }
        if disk.size_bytes.is_none() && disk.base.is_none() {
            let what = format!("disk `{}` has neither a size nor an image", disk.name);
            return Err(SpecError::Size { name: name(), what });
        }
        if let Some(what) = impossible(disk) {
            return Err(SpecError::Disk { name: name(), disk: disk.name.clone(), what });
        }
    }
    for (place, (file, _)) in spec.firmware_files.iter().enumerate() {
        // What QEMU leaves to its users; it takes 55 characters.
        if !file.starts_with("opt/") || file.len() > 55 || spec.firmware_files[..place].iter().any(|(f, _)| f == file) {
            return Err(SpecError::Twice {
                name: name(),
                what: format!("firmware file `{file}`, or its name is not valid"),
            });
        }
    }
    for (place, nic) in spec.nics.iter().enumerate() {
        let bytes: Vec<Option<u8>> = nic.mac.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        // The lowest bit of the first byte means "many".
        let one = bytes.len() == 6 && bytes.iter().all(Option::is_some) && bytes[0].is_some_and(|first| first & 1 == 0);
        if !one || nic.mac.len() != 17 {
            return Err(SpecError::Mac { name: name(), mac: nic.mac.clone() });
        }
        if spec.nics[..place].iter().any(|other| other.mac.eq_ignore_ascii_case(&nic.mac)) {
            return Err(SpecError::Twice { name: name(), what: format!("MAC {}", nic.mac) });
        }
    }
    Ok(())
}

/// What a disk cannot be.
fn impossible(disk: &DiskSpec) -> Option<&'static str> {
    let small = disk.size_bytes.is_none_or(|size| size < leftover::SMALLEST);
    match disk.bus {
        _ if disk.leftover.is_some() && (disk.base.is_some() || small) => {
            Some("is too small for what is left on it, or has an image already")
        }
        Bus::Virtio if disk.wwn != 0 => Some("has a world-wide name, which virtio cannot tell"),
        Bus::Virtio | Bus::Nvme if disk.ssd => Some("cannot be asked whether it turns"),
        Bus::Scsi => None,
        _ => disk.removable.then_some("cannot be taken out: only a SCSI disk can"),
    }
}

/// The domain.
///
/// # Errors
/// See [`check`]; and UEFI without OVMF.
pub fn domain_xml(spec: &MachineSpec, placement: &Placement) -> Result<String, SpecError> {
    check(spec)?;
    let mut xml = Xml::new();
    let kind = match placement.accel {
        Accel::Kvm => "kvm",
        Accel::Tcg => "qemu",
    };
    xml.open("domain", &[("type", kind), ("xmlns:qemu", "http://libvirt.org/schemas/domain/qemu/1.0")]);
    xml.text("name", &[], &placement.domain);
    xml.text("uuid", &[], &spec.uuid.to_string());
    xml.text("memory", &[("unit", "MiB")], &spec.memory_mib.to_string());
    xml.text("vcpu", &[], &spec.cpus.to_string());
    sysinfo(&mut xml, spec, placement);
    xml.open("os", &[]);
    xml.text("type", &[("arch", "x86_64"), ("machine", "q35")], "hvm");
    let secure = spec.firmware == Firmware::UefiSecure;
    if spec.firmware.is_uefi() {
        let code = placement.ovmf_code.as_ref().ok_or_else(|| match secure {
            true => SpecError::NoSecureOvmf(spec.name.clone()),
            false => SpecError::NoOvmf(spec.name.clone()),
        })?;
        let loader = [("readonly", "yes"), ("type", "pflash"), ("secure", "yes")];
        xml.text("loader", &loader[..if secure { 3 } else { 2 }], &code.to_string_lossy());
        xml.text("nvram", &[], &placement.nvram().to_string_lossy());
    }
    xml.empty("smbios", &[("mode", "sysinfo")]);
    xml.close("os");
    processor(&mut xml, spec.firmware, placement);
    xml.empty("clock", &[("offset", "utc")]);
    xml.text("on_poweroff", &[], "destroy");
    xml.text("on_reboot", &[], "restart");
    xml.text("on_crash", &[], "destroy");
    devices(&mut xml, spec, placement);
    command_line(&mut xml, spec, placement);
    // With it libvirt asks QEMU for each of four hundred features of the processor, one by one; without it for all at once.
    xml.open("qemu:capabilities", &[]);
    xml.empty("qemu:del", &[("capability", "cpu-unavailable-features")]);
    xml.close("qemu:capabilities");
    xml.close("domain");
    Ok(xml.done())
}

/// What the firmware says of the machine, and files that it hands to the guest.
fn sysinfo(xml: &mut Xml, spec: &MachineSpec, placement: &Placement) {
    xml.open("sysinfo", &[("type", "smbios")]);
    xml.open("system", &[]);
    let vendor = &spec.vendor;
    let entries = [("manufacturer", &vendor.manufacturer), ("product", &vendor.product), ("serial", &vendor.serial)];
    for (entry, value) in entries.into_iter().filter(|(_, value)| !value.is_empty()) {
        xml.text("entry", &[("name", entry)], value);
    }
    xml.text("entry", &[("name", "uuid")], &spec.uuid.to_string());
    xml.close("system");
    xml.close("sysinfo");
    if !spec.firmware_files.is_empty() {
        xml.open("sysinfo", &[("type", "fwcfg")]);
        for (place, (name, _)) in spec.firmware_files.iter().enumerate() {
            let file = placement.firmware_file(place);
            xml.empty("entry", &[("name", name), ("file", &file.to_string_lossy())]);
        }
        xml.close("sysinfo");
    }
}

fn processor(xml: &mut Xml, firmware: Firmware, placement: &Placement) {
    let (accel, movable) = (placement.accel, placement.movable);
    xml.open("features", &[]);
    xml.empty("acpi", &[]);
    xml.empty("apic", &[]);
    if firmware == Firmware::UefiSecure {
        // The firmware's variables, keys among them, are written from there only: an operating system cannot change what is trusted.
        xml.empty("smm", &[("state", "on")]);
    }
    if accel == Accel::Tcg {
        xml.open("tcg", &[]);
        xml.text("tb-cache", &[("unit", "MiB")], &TB_CACHE_MIB.to_string());
        xml.close("tcg");
    }
    xml.close("features");
    match accel {
        Accel::Kvm if movable => xml.empty("cpu", &[("mode", "host-passthrough"), ("migratable", "on")]),
        Accel::Kvm => xml.empty("cpu", &[("mode", "host-passthrough"), ("migratable", "off")]),
        Accel::Tcg => {
            xml.open("cpu", &[("mode", "maximum")]);
            for feature in SLOW_UNDER_TCG {
                xml.empty("feature", &[("policy", "disable"), ("name", feature)]);
            }
            xml.close("cpu");
        }
    }
}

/// What libvirt has no words for.
fn command_line(xml: &mut Xml, spec: &MachineSpec, placement: &Placement) {
    // The chipset's SATA controller is there whether libvirt is asked for one or not, and takes every kernel a while.
    let no_sata = !spec.disks.iter().any(|disk| disk.bus == Bus::Sata);
    let mut nvme = spec.disks.iter().enumerate().filter(|(_, disk)| disk.bus == Bus::Nvme).peekable();
    if !no_sata
        && !spec.tpm
        && placement.env.is_empty()
        && nvme.peek().is_none()
        && !placement.frozen
        && spec.known.is_none()
    {
        return;
    }
    xml.open("qemu:commandline", &[]);
    if placement.frozen {
        for argument in ["-incoming", "defer"] {
            xml.empty("qemu:arg", &[("value", argument)]);
        }
    }
    if no_sata {
        for argument in ["-machine", "sata=off"] {
            xml.empty("qemu:arg", &[("value", argument)]);
        }
    }
    if spec.tpm {
        // Not libvirt's <tpm>: it would start a swtpm of its own, which no ledger knows.
        let chardev = format!("socket,id=chrtpm,path={}", placement.tpm_socket().display());
        for argument in
            ["-chardev", &chardev, "-tpmdev", "emulator,id=tpm0,chardev=chrtpm", "-device", "tpm-crb,tpmdev=tpm0"]
        {
            xml.empty("qemu:arg", &[("value", argument)]);
        }
    }
    if spec.known.is_some() {
        let file = placement.known().display().to_string().replace(',', ",,");
        let table = format!("sig={},rev=1,oem_id=VLAB,oem_table_id=LAB,data={file}", ibft::SIGNATURE);
        for argument in ["-acpitable", &table] {
            xml.empty("qemu:arg", &[("value", argument)]);
        }
    }
    for (place, disk) in nvme {
        // libvirt counts places on the bus from 1, and does not see this one.
        let slot = 8 + place;
        for (option, value) in nvme_disk(disk, &placement.disk(disk), slot, order_of_disk(spec, place)) {
            xml.empty("qemu:arg", &[("value", option)]);
            xml.empty("qemu:arg", &[("value", &value)]);
        }
    }
    for (name, value) in &placement.env {
        xml.empty("qemu:env", &[("name", name), ("value", value)]);
    }
    xml.close("qemu:commandline");
    // libvirt knows removable disks on USB only, and names of disks not on SATA.
    let properties = |disk: &DiskSpec| {
        let removable = disk.removable.then(|| ("removable", "bool", "true".to_owned()));
        let name = (disk.bus == Bus::Sata && disk.wwn != 0).then(|| ("wwn", "unsigned", disk.wwn.to_string()));
        [removable, name].into_iter().flatten().collect::<Vec<_>>()
    };
    if spec.disks.iter().all(|disk| properties(disk).is_empty()) {
        return;
    }
    xml.open("qemu:override", &[]);
    for disk in spec.disks.iter().filter(|disk| !properties(disk).is_empty()) {
        xml.open("qemu:device", &[("alias", &disk_alias(&disk.name))]);
        xml.open("qemu:frontend", &[]);
        for (name, kind, value) in properties(disk) {
            xml.empty("qemu:property", &[("name", name), ("type", kind), ("value", &value)]);
        }
        xml.close("qemu:frontend");
        xml.close("qemu:device");
    }
    xml.close("qemu:override");
}

/// A controller with one namespace, which libvirt cannot emulate. All errors are the guest's to see: it cannot stop the machine
/// when this computer's disk is full.
fn nvme_disk(disk: &DiskSpec, file: &Path, slot: usize, order: Option<usize>) -> [(&'static str, String); 4] {
    let (alias, file) = (disk_alias(&disk.name), file.display().to_string().replace(',', ",,"));
    let node = format!("{alias}-image");
    let order = order.map(|order| format!(",bootindex={order}")).unwrap_or_default();
    let name = match disk.wwn {
        0 => String::new(),
        wwn => format!(",eui64={wwn:#x}"),
    };
    [
        ("-blockdev", format!("driver=file,node-name={node}-file,filename={file},cache.no-flush=on,discard=unmap")),
        ("-blockdev", format!("driver=qcow2,node-name={node},file={node}-file,cache.no-flush=on,discard=unmap")),
        ("-device", format!("nvme,id={alias}-controller,bus=pcie.0,addr={slot:#x},serial={}", disk.serial)),
        ("-device", format!("nvme-ns,id={alias},bus={alias}-controller,drive={node},nsid=1{order}{name}")),
    ]
}

/// When the firmware tries a disk, counted from 1; `None`: it is to remember that itself.
fn order_of_disk(spec: &MachineSpec, place: usize) -> Option<usize> {
    match spec.boot {
        BootOrder::DiskFirst => Some(1 + place),
        BootOrder::CdFirst => Some(1 + usize::from(spec.cdrom.is_some()) + place),
        BootOrder::Firmware => None,
    }
}

fn devices(xml: &mut Xml, spec: &MachineSpec, placement: &Placement) {
    xml.open("devices", &[]);
    xml.text("emulator", &[], &placement.emulator.to_string_lossy());
    let cd_order = cd_order(spec);
    for (place, disk) in spec.disks.iter().enumerate().filter(|(_, disk)| disk.bus != Bus::Nvme) {
        xml.open("disk", &[("type", "file"), ("device", "disk")]);
        // Errors are the guest's to see, as they are with a real disk; libvirt's default would stop the machine. But that this
        // computer's disk is full is none of the guest's errors: the machine stands still then, and QEMU says why.
        let errors = [("error_policy", "enospace"), ("rerror_policy", "report")];
        let driver = [("name", "qemu"), ("type", "qcow2"), ("cache", "unsafe"), ("discard", "unmap")];
        xml.empty("driver", &[&driver[..], &errors].concat());
        xml.empty("source", &[("file", &placement.disk(disk).to_string_lossy())]);
        let bus = match disk.bus {
            Bus::Sata => "sata",
            Bus::Scsi => "scsi",
            Bus::Virtio | Bus::Nvme => "virtio",
        };
        let target = [("dev", disk.name.as_str()), ("bus", bus)];
        // One turn a minute is the standard's word for none.
        let turns = [("rotation_rate", "1")];
        xml.empty("target", &[&target[..], if disk.ssd { &turns } else { &[] }].concat());
        if !disk.serial.is_empty() {
            xml.text("serial", &[], &disk.serial);
        }
        if disk.wwn != 0 && disk.bus == Bus::Scsi {
            xml.text("wwn", &[], &format!("{:016x}", disk.wwn));
        }
        if let Some(order) = order_of_disk(spec, place) {
            xml.empty("boot", &[("order", &order.to_string())]);
        }
        xml.empty("alias", &[("name", &disk_alias(&disk.name))]);
        if disk.bus == Bus::Scsi {
            // Target 0 is the CD drive's.
            let target = (place + 1).to_string();
            let address = [("type", "drive"), ("controller", "0"), ("bus", "0"), ("target", &target), ("unit", "0")];
            xml.empty("address", &address);
        }
        xml.close("disk");
    }
    if spec.cdrom.is_some() || spec.disks.iter().any(|disk| disk.bus == Bus::Scsi) {
        xml.empty("controller", &[("type", "scsi"), ("index", "0"), ("model", "virtio-scsi")]);
    }
    if let Some(medium) = &spec.cdrom {
        let first = (spec.boot == BootOrder::Firmware && !placement.again).then_some(1);
        cdrom(xml, Some(medium), cd_order.or(first));
    }
    // Without it libvirt adds a controller, which firmware and kernel then look behind.
    xml.empty("controller", &[("type", "usb"), ("model", "none")]);
    for nic in &spec.nics {
        interface(xml, nic, true);
    }
    xml.open("serial", &[("type", "unix")]);
    xml.empty("source", &[("mode", "bind"), ("path", &placement.console_socket().to_string_lossy())]);
    xml.empty("log", &[("file", &placement.console_log.to_string_lossy()), ("append", "on")]);
    xml.empty("target", &[("port", "0")]);
    xml.close("serial");
    // For screenshots, and because boot loaders want a screen.
    xml.open("video", &[]);
    xml.empty("model", &[("type", "vga"), ("vram", "8192")]);
    xml.close("video");
    xml.open("rng", &[("model", "virtio")]);
    xml.text("backend", &[("model", "random")], "/dev/urandom");
    xml.close("rng");
    xml.empty("memballoon", &[("model", "none")]);
    xml.close("devices");
}

/// When the firmware tries the CD drive, counted from 1; `None`: it is to remember that itself.
pub(crate) fn cd_order(spec: &MachineSpec) -> Option<usize> {
    match spec.boot {
        BootOrder::DiskFirst => Some(spec.disks.len() + 1),
        BootOrder::CdFirst => Some(1),
        BootOrder::Firmware => None,
    }
}

/// Under which name QEMU knows the CD drive.
pub(crate) const CD_ALIAS: &str = "ua-cdrom";

/// Under which name QEMU knows a disk.
#[must_use]
pub fn disk_alias(disk: &str) -> String {
    format!("ua-{disk}")
}

/// The CD drive with a medium, or empty.
pub(crate) fn cdrom_xml(medium: Option<&Path>, order: Option<usize>) -> String {
    let mut xml = Xml::new();
    cdrom(&mut xml, medium, order);
    xml.done()
}

/// On virtio-scsi: Linux waits half a second for what is connected to a SATA port.
fn cdrom(xml: &mut Xml, medium: Option<&Path>, order: Option<usize>) {
    xml.open("disk", &[("type", "file"), ("device", "cdrom")]);
    xml.empty("driver", &[("name", "qemu"), ("type", "raw")]);
    if let Some(medium) = medium {
        xml.empty("source", &[("file", &medium.to_string_lossy())]);
    }
    xml.empty("target", &[("dev", "sdz"), ("bus", "scsi")]);
    xml.empty("readonly", &[]);
    if let Some(order) = order {
        xml.empty("boot", &[("order", &order.to_string())]);
    }
    xml.empty("alias", &[("name", CD_ALIAS)]);
    xml.empty("address", &[("type", "drive"), ("controller", "0"), ("bus", "0"), ("target", "0"), ("unit", "0")]);
    xml.close("disk");
}

/// A NIC with its cable in or out.
pub(crate) fn nic_xml(nic: &NicSpec, up: bool) -> String {
    let mut xml = Xml::new();
    interface(&mut xml, nic, up);
    xml.done()
}

fn interface(xml: &mut Xml, nic: &NicSpec, up: bool) {
    match &nic.plug {
        Plug::Tap(tap) => {
            xml.open("interface", &[("type", "ethernet")]);
            xml.empty("target", &[("dev", tap), ("managed", "no")]);
        }
        Plug::User => xml.open("interface", &[("type", "user")]),
    }
    xml.empty("mac", &[("address", &nic.mac.to_lowercase())]);
    xml.empty("model", &[("type", "virtio")]);
    xml.empty("rom", &[("enabled", "no")]);
    xml.empty("link", &[("state", if up { "up" } else { "down" })]);
    xml.close("interface");
}

/// Elements one after the other, in memory. What XML cannot hold at all becomes a blank.
struct Xml(Writer<Vec<u8>>);

/// Names and values.
type Attributes<'a> = &'a [(&'a str, &'a str)];

impl Xml {
    fn new() -> Self {
        Self(Writer::new_with_indent(Vec::new(), b' ', 2))
    }

    fn write(&mut self, event: Event<'_>) {
        // Memory takes everything.
        let _ = self.0.write_event(event);
    }

    fn tag<'a>(name: &'a str, attributes: Attributes<'_>) -> BytesStart<'a> {
        let mut tag = BytesStart::new(name);
        for (name, value) in attributes {
            tag.push_attribute((*name, without_controls(value).as_str()));
        }
        tag
    }

    fn open(&mut self, name: &str, attributes: Attributes<'_>) {
        self.write(Event::Start(Self::tag(name, attributes)));
    }

    fn close(&mut self, name: &str) {
        self.write(Event::End(BytesEnd::new(name)));
    }

    fn empty(&mut self, name: &str, attributes: Attributes<'_>) {
        self.write(Event::Empty(Self::tag(name, attributes)));
    }

    fn text(&mut self, name: &str, attributes: Attributes<'_>, text: &str) {
        self.open(name, attributes);
        self.write(Event::Text(BytesText::new(&without_controls(text))));
        self.close(name);
    }

    fn done(self) -> String {
        String::from_utf8(self.0.into_inner()).unwrap_or_default()
    }
}

fn without_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
