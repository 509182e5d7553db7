//! One machine: what can be done to it, and what it has to show.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use uuid::Uuid;

use super::domain::{self, BootOrder, Bus, DiskSpec, Firmware, MachineSpec, Placement};
use super::leftover::{self, Leftover};
use super::protocol::{DomainEvent, DomainUsage, HelperAnswer, HelperCall};
use super::{Inner, MachineError, MachineEvent, console, io_at, lock};
use crate::ledger::MARK;
use crate::proc::{self, ProcessId, Stat};
use crate::process::{Child, Program};
use crate::try_out::{TryError, in_path, try_out};

/// OVMF's code and the template of its variables, in the places of Debian, Ubuntu and Fedora. The variables of the one with secure boot
/// have Microsoft's keys in them.
#[must_use]
pub fn find_ovmf(firmware: Firmware) -> Option<(PathBuf, PathBuf)> {
    let places: &[(&str, &str)] = match firmware {
        Firmware::Bios => &[],
        Firmware::Uefi => &[
            ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
            ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
            ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
        ],
        Firmware::UefiSecure => &[
            ("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.ms.fd"),
            ("/usr/share/OVMF/OVMF_CODE.secboot.fd", "/usr/share/OVMF/OVMF_VARS.ms.fd"),
            ("/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd", "/usr/share/edk2/ovmf/OVMF_VARS.secboot.fd"),
        ],
    };
    let places = places.iter().map(|(code, variables)| (PathBuf::from(code), PathBuf::from(variables)));
    { places }.find(|(code, variables)| code.is_file() && variables.is_file())
}

/// Makes the image of a disk of the machine with that id.
pub(super) fn make_disk(disk: &DiskSpec, path: &Path, machine: Uuid) -> Result<(), MachineError> {
    if let (Some(leftover), Some(size)) = (&disk.leftover, disk.size_bytes) {
        return make_used_disk(leftover, size, disk_id(machine, &disk.name), path);
    }
    let mut args: Vec<std::ffi::OsString> = ["create", "-q", "-f", "qcow2"].map(Into::into).to_vec();
    if let Some(base) = &disk.base {
        let base = fs::canonicalize(base).map_err(io_at(base))?;
        let mut magic = [0; 4];
        let format = match File::open(&base).and_then(|mut file| file.read_exact(&mut magic)) {
            Ok(()) if magic == *b"QFI\xfb" => "qcow2",
            Ok(()) => "raw",
            Err(error) => return Err(MachineError::Io { path: base, error }),
        };
        args.extend(["-F", format, "-b"].map(Into::into));
        args.push(base.into());
    }
    args.push(path.into());
    args.extend(disk.size_bytes.map(|size| size.to_string().into()));
    qemu_img(&args, path)
}

/// Of a disk that has something on it: a file with holes, of which QEMU's program keeps what is no hole.
fn make_used_disk(leftover: &Leftover, size: u64, id: Uuid, path: &Path) -> Result<(), MachineError> {
    let raw = path.with_extension("raw");
    let write = || {
        let file = File::create(&raw)?;
        file.set_len(size)?;
        for extent in leftover::extents(leftover, size, id) {
            file.write_all_at(&extent.bytes, extent.offset)?;
        }
        Ok(())
    };
    write().map_err(io_at(&raw))?;
    let mut args: Vec<std::ffi::OsString> = ["convert", "-q", "-f", "raw", "-O", "qcow2"].map(Into::into).to_vec();
    args.extend([raw.clone().into(), path.into()]);
    let made = qemu_img(&args, path);
    fs::remove_file(&raw).map_err(io_at(&raw))?;
    made
}

/// An id for a disk, the same whenever the machine is made.
fn disk_id(machine: Uuid, disk: &str) -> Uuid {
    let sum = disk.bytes().fold(1u128, |sum, byte| sum.wrapping_mul(257).wrapping_add(byte.into()));
    Uuid::from_u128(machine.as_u128() ^ sum)
}

fn qemu_img(args: &[std::ffi::OsString], path: &Path) -> Result<(), MachineError> {
    match try_out("qemu-img", args, Duration::from_secs(20)) {
        Ok(tried) if tried.status.success() => Ok(()),
        Ok(tried) => Err(io_at(path)(io::Error::other(tried.last_words()))),
        Err(TryError::Missing(_)) => Err(MachineError::Missing { program: "qemu-img", package: "qemu-utils" }),
        Err(TryError::Failed(why)) => Err(io_at(path)(io::Error::other(why))),
    }
}

/// Before everything that libvirt numbers, from 1.
const FIRST: usize = 0;
/// How long a reset may take to happen.
const RESET: Duration = Duration::from_secs(60);

/// Which requests of a disk fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// Reads fail, writes do not.
    Reads,
    /// Writes and flushes.
    Writes,
    /// Reads and writes fail.
    All,
}

/// A machine. It goes on when this is dropped; [`Machines`] ends it.
#[derive(Debug)]
pub struct Machine {
    pub(super) inner: Arc<Inner>,
    pub(super) spec: MachineSpec,
    pub(super) placement: Placement,
    pub(super) xml: String,
}

impl Machine {
    /// Name of the host.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// What it was made from.
    #[must_use]
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// Its QEMU; `None` while it is off, or when it is not ours to see.
    #[must_use]
    pub fn process(&self) -> Option<ProcessId> {
        let process = lock(&self.inner.state).machines.get(&self.spec.name).and_then(|entry| entry.process);
        process.filter(|process| process.is_alive())
    }

    /// All that its first serial port has said, in all its lives.
    #[must_use]
    pub fn console_log(&self) -> PathBuf {
        self.placement.console_log.clone()
    }

    /// Its first serial port, for one person at a time, while it is on.
    #[must_use]
    pub fn console_socket(&self) -> PathBuf {
        self.placement.console_socket()
    }

    /// Its console from the beginning, line by line as it grows.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn console(&self) -> io::Result<console::Follow> {
        console::Follow::open(&self.placement.console_log, 0)
    }

    /// Its console from that byte on.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn console_from(&self, byte: u64) -> io::Result<console::Follow> {
        console::Follow::open(&self.placement.console_log, byte)
    }

    /// Switches it on: after [`Machine::power_off`], or after it has switched itself off.
    ///
    /// # Errors
    /// It is on, or libvirt refuses.
    pub async fn power_on(&self) -> Result<(), MachineError> {
        // What it goes on from was used up: another time it boots.
        let placement = Placement { frozen: false, again: true, ..self.placement.clone() };
        self.start(domain::domain_xml(&self.spec, &placement)?, false).await
    }

    /// Switches it on for the first time.
    pub(super) async fn start_anew(&self) -> Result<(), MachineError> {
        self.start(self.xml.clone(), false).await?;
        if self.spec.boot == BootOrder::Firmware && self.spec.cdrom.is_some() {
            // QEMU has told the firmware; at the next reset it tells nothing.
            self.order_of_drive(None).await?;
        }
        Ok(())
    }

    pub(super) async fn start(&self, xml: String, paused: bool) -> Result<(), MachineError> {
        if self.spec.tpm {
            self.start_tpm().await?;
        }
        let done = self.call("start", HelperCall::Create { xml, paused }).await?;
        if let HelperAnswer::Started { took_us } = done {
            tracing::debug!(machine = self.name(), took_us, "started");
        }
        self.identify()
    }

    /// Writes down which QEMU it is. The ledger finds it without this, too.
    fn identify(&self) -> Result<(), MachineError> {
        let ledger = &self.inner.options.ledger;
        let mut state = lock(&self.inner.state);
        let Some(entry) = state.machines.get_mut(&self.spec.name) else { return Ok(()) };
        let noted = self.inner.folder.join("libvirt/run/qemu").join(format!("{}.pid", self.placement.domain));
        let noted = fs::read_to_string(noted).ok().and_then(|pid| pid.trim().parse().ok()).and_then(ProcessId::of);
        let process = noted.or_else(|| proc::with_environment(MARK, &ledger.mark(entry.token)).first().copied());
        // A machine that has switched itself off at once is no error.
        if let Some(process) = process {
            entry.process = Some(process);
            let pgid = Stat::read(process.pid).map_or(process.pid, |stat| stat.pgid);
            ledger.identify(entry.token, process, pgid)?;
        }
        Ok(())
    }

    async fn start_tpm(&self) -> Result<(), MachineError> {
        let swtpm = in_path("swtpm").ok_or(MachineError::Missing { program: "swtpm", package: "swtpm" })?;
        let name = &self.spec.name;
        if lock(&self.inner.state)
            .machines
            .get(name)
            .and_then(|entry| entry.tpm.as_ref())
            .is_some_and(|tpm| tpm.ended().is_none())
        {
            return Ok(());
        }
        let (state, socket) = (self.placement.directory.join("tpm"), self.placement.tpm_socket());
        fs::create_dir_all(&state).map_err(io_at(&state))?;
        let log = self.inner.options.consoles.join(format!("{name}.tpm.log"));
        let args = ["socket".to_owned(), "--tpm2".to_owned(), "--tpmstate".to_owned()];
        let program = Program::new("swtpm", swtpm, log)
            .args(args)
            .args([
                format!("dir={}", state.display()),
                "--ctrl".into(),
                format!("type=unixio,path={}", socket.display()),
            ])
            .ledger(Some(self.inner.options.ledger.clone()));
        let tpm = Child::spawn(program)?;
        let there = || std::future::ready(Ok(socket.exists().then_some(())));
        tpm.wait_ready("its socket is there", Duration::from_secs(10), Duration::from_millis(2), there).await?;
        if let Some(entry) = lock(&self.inner.state).machines.get_mut(name) {
            entry.tpm = Some(tpm);
        }
        Ok(())
    }

    /// Pulls the plug.
    ///
    /// # Errors
    /// It is off.
    pub async fn power_off(&self) -> Result<(), MachineError> {
        let domain = self.domain();
        self.call("power off", HelperCall::Destroy { domain }).await.map(drop)
    }

    /// Presses the power button once; the guest does with it what it likes.
    ///
    /// # Errors
    /// It is off.
    pub async fn shutdown(&self) -> Result<(), MachineError> {
        let domain = self.domain();
        self.call("press the power button", HelperCall::Shutdown { domain }).await.map(drop)
    }

    /// Presses the reset button.
    ///
    /// # Errors
    /// It is off.
    pub async fn reset(&self) -> Result<(), MachineError> {
        let domain = self.domain();
        self.call("reset", HelperCall::Reset { domain }).await.map(drop)
    }

    /// Its processors stand still; time goes on outside.
    ///
    /// # Errors
    /// It is off.
    pub async fn pause(&self) -> Result<(), MachineError> {
        let domain = self.domain();
        self.call("pause", HelperCall::Pause { domain }).await.map(drop)
    }

    /// Its processors go on.
    ///
    /// # Errors
    /// It is off.
    pub async fn resume(&self) -> Result<(), MachineError> {
        let domain = self.domain();
        self.call("resume", HelperCall::Resume { domain }).await.map(drop)
    }

    /// The cable of a NIC, as the guest sees it: out or in.
    ///
    /// # Errors
    /// It is off or has no such NIC.
    pub async fn set_link(&self, mac: &str, up: bool) -> Result<(), MachineError> {
        let nic = self.spec.nics.iter().find(|nic| nic.mac.eq_ignore_ascii_case(mac));
        let nic = nic.ok_or_else(|| self.wrong("change a link", format!("it has no NIC {mac}")))?;
        let (domain, xml) = (self.domain(), domain::nic_xml(nic, up));
        self.call("change a link", HelperCall::UpdateDevice { domain, xml, force: false }).await.map(drop)
    }

    /// Takes the medium out of the CD drive, whether the guest has locked it or not.
    ///
    /// # Errors
    /// It is off or has no drive.
    pub async fn eject(&self) -> Result<(), MachineError> {
        self.set_medium(None).await
    }

    /// Puts a medium into the CD drive, or takes it out.
    ///
    /// # Errors
    /// It is off or has no drive.
    pub async fn set_medium(&self, medium: Option<&Path>) -> Result<(), MachineError> {
        if self.spec.cdrom.is_none() {
            return Err(self.wrong("change the medium", "it has no CD drive".to_owned()));
        }
        let (domain, xml) = (self.domain(), domain::cdrom_xml(medium, None));
        self.call("change the medium", HelperCall::UpdateDevice { domain, xml, force: true }).await.map(drop)
    }

    /// Boots it from a medium once, whatever it runs now, as the boot menu of a server does: the medium is put into the drive, the
    /// reset button is pressed, and the firmware tries the drive first. At the next reset the order is the usual one again. One
    /// that is off is switched on.
    ///
    /// # Errors
    /// It has no drive, or libvirt or QEMU refuses.
    pub async fn boot_medium(&self, medium: &Path) -> Result<(), MachineError> {
        if self.process().is_none() {
            self.power_on().await?;
        }
        self.set_medium(Some(medium)).await?;
        if self.spec.boot == BootOrder::CdFirst {
            return self.reset().await;
        }
        let mut events = self.inner.shared.events.subscribe();
        self.order_of_drive(Some(FIRST)).await?;
        let mine = |event: &MachineEvent| event.machine == self.spec.name && event.event == DomainEvent::Rebooted;
        let pressed = async {
            self.reset().await?;
            loop {
                match events.recv().await {
                    Ok(event) if mine(&event) => return Ok(()),
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err(self.wrong("reset", "the helper has ended".to_owned())),
                }
            }
        };
        // QEMU reads the order at the reset: from then on the usual one can be there again.
        let done = tokio::time::timeout(RESET, pressed).await;
        self.order_of_drive(domain::cd_order(&self.spec)).await?;
        done.unwrap_or_else(|_| Err(self.wrong("reset", format!("it was not done in {RESET:?}"))))
    }

    /// When the firmware tries the CD drive, from the next reset on.
    async fn order_of_drive(&self, order: Option<usize>) -> Result<(), MachineError> {
        let path = format!("/machine/peripheral/{}", domain::CD_ALIAS);
        // -1: QEMU says nothing about it.
        let order = order.map_or(-1, |order| i64::try_from(order).unwrap_or(i64::MAX));
        let value = json!({"path": path, "property": "bootindex", "value": order});
        self.monitor("qom-set", value).await.map(drop)
    }

    /// From now on requests of a disk end with an I/O error, which the guest sees. Works while it runs, by putting QEMU's
    /// `blkdebug` between the device and its image.
    ///
    /// # Errors
    /// It is off, has no such disk, or the disk is failing already.
    pub async fn fail_disk(&self, disk: &str, fault: DiskFault) -> Result<(), MachineError> {
        let (device, image) = self.disk_node(disk).await?;
        let kinds: &[&str] = match fault {
            DiskFault::Reads => &["read"],
            DiskFault::Writes => &["write", "write-zeroes", "flush"],
            DiskFault::All => &["read", "write", "write-zeroes", "discard", "flush"],
        };
        const EIO: i32 = 5;
        let rules: Vec<Value> =
            kinds.iter().map(|kind| json!({"event": "none", "iotype": kind, "errno": EIO, "once": false})).collect();
        let node = fault_node(disk);
        let add = json!({"driver": "blkdebug", "node-name": node, "image": image, "inject-error": rules});
        self.monitor("blockdev-add", add).await?;
        self.monitor("qom-set", json!({"path": device, "property": "drive", "value": node})).await.map(drop)
    }

    /// Ends [`Machine::fail_disk`].
    ///
    /// # Errors
    /// It is off, or the disk is not failing.
    pub async fn heal_disk(&self, disk: &str) -> Result<(), MachineError> {
        let (device, image) = self.disk_node(disk).await?;
        self.monitor("qom-set", json!({"path": device, "property": "drive", "value": image})).await?;
        self.monitor("blockdev-del", json!({"node-name": fault_node(disk)})).await.map(drop)
    }

    /// From now on a disk takes so many writes a second and no more; `None` takes the limit away. A write that is waited for
    /// takes that long then, which is how a slow disk looks to the guest.
    ///
    /// # Errors
    /// It is off, or has no such disk.
    pub async fn limit_writes(&self, disk: &str, a_second: Option<u32>) -> Result<(), MachineError> {
        let (device, _) = self.disk_node(disk).await?;
        let limits = json!({
            "id": device, "bps": 0, "bps_rd": 0, "bps_wr": 0, "iops": 0, "iops_rd": 0, "iops_wr": a_second.unwrap_or(0),
        });
        self.monitor("block_set_io_throttle", limits).await.map(drop)
    }

    /// QEMU's path of a disk's device, and the name of the node with its image.
    async fn disk_node(&self, disk: &str) -> Result<(String, String), MachineError> {
        let what = "find the disk";
        let place = self.spec.disks.iter().find(|known| known.name == disk);
        let place = place.ok_or_else(|| self.wrong(what, format!("it has no disk {disk}")))?;
        let file = self.placement.disk(place).display().to_string();
        let nodes = self.monitor("query-named-block-nodes", Value::Null).await?;
        let is_image = |node: &&Value| node["file"] == file && node["drv"] == "qcow2";
        let image = nodes.as_array().into_iter().flatten().find(is_image).and_then(|node| node["node-name"].as_str());
        let image = image.ok_or_else(|| self.wrong(what, format!("QEMU has no image {file}")))?.to_owned();
        let alias = domain::disk_alias(disk);
        let device = match place.bus {
            Bus::Virtio => format!("/machine/peripheral/{alias}/virtio-backend"),
            Bus::Sata | Bus::Scsi | Bus::Nvme => format!("/machine/peripheral/{alias}"),
        };
        Ok((device, image))
    }

    /// What its screen shows, as a PNG file at `path`, which QEMU must be able to write.
    ///
    /// # Errors
    /// It is off.
    pub async fn screenshot(&self, path: &Path) -> Result<(), MachineError> {
        let path = std::path::absolute(path).map_err(io_at(path))?;
        self.monitor("screendump", json!({"filename": path.display().to_string(), "format": "png"})).await.map(drop)
    }

    /// What it has and has used.
    ///
    /// # Errors
    /// It is off.
    pub async fn usage(&self) -> Result<DomainUsage, MachineError> {
        let domain = self.domain();
        match self.call("ask what it uses", HelperCall::Usage { domain }).await? {
            HelperAnswer::Usage(usage) => Ok(usage),
            other => Err(self.wrong("ask what it uses", format!("an unexpected answer: {other:?}"))),
        }
    }

    /// A command of QEMU's own monitor.
    ///
    /// # Errors
    /// It is off, or QEMU refuses.
    pub async fn monitor(&self, command: &str, arguments: Value) -> Result<Value, MachineError> {
        let mut line = json!({"execute": command});
        if !arguments.is_null() {
            line["arguments"] = arguments;
        }
        let domain = self.domain();
        let done = self.call(command, HelperCall::Monitor { domain, command: line }).await?;
        let HelperAnswer::Monitor { mut answer } = done else {
            return Err(self.wrong(command, format!("an unexpected answer: {done:?}")));
        };
        match answer.get("error").and_then(|error| error["desc"].as_str()) {
            Some(why) => Err(self.wrong(command, why.to_owned())),
            None => Ok(answer["return"].take()),
        }
    }

    fn domain(&self) -> String {
        self.placement.domain.clone()
    }

    pub(super) fn wrong(&self, what: &str, why: String) -> MachineError {
        MachineError::Call { machine: self.spec.name.clone(), what: what.to_owned(), why }
    }

    async fn call(&self, what: &str, call: HelperCall) -> Result<HelperAnswer, MachineError> {
        self.inner.call(&self.spec.name, what, call).await
    }
}

fn fault_node(disk: &str) -> String {
    format!("vlab-fault-{disk}")
}
