//! Real machines in a real network, both tiny: what starts, what is told, and what is left.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod network;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uuid::Uuid;
use vlab_lab::gc;
use vlab_lab::ledger::{Ledger, MARK, Resource};
use vlab_lab::machines::tiny::{Then, boot_sector, efi_disk};
use vlab_lab::machines::{
    Accel, BootOrder, Bus, DiskFault, DiskSpec, DomainEvent, Firmware, Leftover, Machine, MachineError, MachineEvent,
    MachineSpec, Machines, MachinesOptions, NicSpec, Plug, console, find_ovmf, probe,
};
use vlab_lab::network::{Form, Network, NetworkError, NetworkHost, NetworkOptions, NetworkSpec, Peer, permits};
use vlab_lab::proc::{self, ProcessId};
use vlab_lab::process::{Child, Program};
use vlab_model::console::Classifier;
use vlab_model::disturbance::{ClusterName, Frames, WrongName};

const SOON: Duration = Duration::from_secs(60);

const HELPER: &str = env!("CARGO_BIN_EXE_vlab-libvirt-helper");
const MINI: &str = env!("CARGO_BIN_EXE_mini-lab");

fn mini() -> PathBuf {
    PathBuf::from(MINI)
}

/// Says why a test proves nothing on this machine, or `None` when it can.
fn no_machines() -> bool {
    let missing = ["qemu-system-x86_64", "qemu-img"].into_iter().find(|program| !in_path(program));
    if let Some(program) = missing {
        vlab_skip::skip!("there is no {program}; `cargo xtask setup` installs it");
    }
    missing.is_some()
}

fn no_network() -> bool {
    let refused = permits(Form::of_this_user(), &mini()).err();
    if let Some(why) = &refused {
        vlab_skip::skip!("{why}");
    }
    refused.is_some()
}

fn in_path(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(program).is_file())
}

fn within(budget: Duration, what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + budget;
    while !check() {
        assert!(Instant::now() < end, "not within {budget:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct World {
    folder: tempfile::TempDir,
    ledger: Arc<Ledger>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("vlab-t-").tempdir_in("/tmp").unwrap();
        let run = format!("test-{}", std::process::id());
        let ledger = Arc::new(Ledger::create(&folder.path().join("r"), &run).unwrap());
        Self { folder, ledger }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn options(&self) -> MachinesOptions {
        let mut options = MachinesOptions::new(&self.ledger, Accel::Tcg, &self.path().join("consoles"));
        options.scratch = self.path().to_path_buf();
        options.helper = Some(HELPER.into());
        options
    }

    async fn machines(&self) -> Machines {
        Machines::start(self.options()).await.unwrap()
    }

    /// A machine that says something and then does something.
    fn tiny(&self, name: &str, text: &str, then: Then) -> MachineSpec {
        let image = self.path().join(format!("{name}.img"));
        fs::write(&image, boot_sector(text, then)).unwrap();
        let disk = DiskSpec { base: Some(image), ..DiskSpec::new("vda", Bus::Virtio, 120 << 30, "LABD000001") };
        // libvirt knows machines by this number, too: one of its own for each.
        let number = name.bytes().fold(u128::from(std::process::id()), |number, byte| number << 8 | u128::from(byte));
        MachineSpec { disks: vec![disk], ..MachineSpec::new(name, Uuid::from_u128(number), 32) }
    }

    async fn network(&self, hosts: &[(&str, &str)]) -> Network {
        let folder = self.path().join("net");
        fs::create_dir(&folder).unwrap();
        let hosts = hosts.iter().enumerate().map(|(number, (name, address))| NetworkHost {
            name: (*name).to_owned(),
            domain: None,
            segment: 0,
            mac: format!("52:54:00:00:00:{number:02x}"),
            more_macs: vec![],
            addresses: address.parse().into_iter().collect(),
            dhcp: true,
        });
        let spec = NetworkSpec::for_cluster(
            "demo",
            "lab.example",
            &["192.168.126.0/24".parse().unwrap(), "fd2e:6f44:5dd8::/64".parse().unwrap()],
            &["192.168.126.5".parse().unwrap()],
            &["192.168.126.6".parse().unwrap()],
            hosts.collect(),
        );
        let mut options = NetworkOptions::new(self.ledger.run(), &folder);
        options.helper = mini();
        options.ledger = Some(Arc::clone(&self.ledger));
        Network::start(spec, options).await.unwrap()
    }

    /// Nothing is open in the ledger, and nothing bears its mark.
    fn assert_nothing_is_left(&self) {
        assert_eq!(self.ledger.open_entries(), []);
        for number in 1..100 {
            assert_eq!(proc::with_environment(MARK, &format!("{}:{number}", self.ledger.run())), []);
        }
    }
}

async fn line(console: &mut console::Follow, wanted: &str) -> String {
    let look = async {
        loop {
            let line = console.next_line().await.unwrap();
            if line.contains(wanted) {
                return line;
            }
        }
    };
    tokio::time::timeout(SOON, look).await.unwrap_or_else(|_| panic!("`{wanted}` is not on the console"))
}

async fn event(events: &mut tokio::sync::broadcast::Receiver<MachineEvent>, did: &str) -> MachineEvent {
    let look = async {
        loop {
            let event = events.recv().await.unwrap();
            if event.words().0 == did {
                return event;
            }
        }
    };
    tokio::time::timeout(SOON, look).await.unwrap_or_else(|_| panic!("no event `{did}`"))
}

/// A life: power on, console, pause, reset, power off and on again, screenshot; each told by an event.
#[tokio::test(flavor = "multi_thread")]
async fn lab_a_machine_lives_and_every_change_is_told() {
    if no_machines() {
        return;
    }
    let world = World::new();
    let machines = world.machines().await;
    println!("{:?}", machines.versions());
    let mut events = machines.events();
    let mut spec = world.tiny("m0", "tiny: hello\r\n", Then::Echo);
    spec.nics = vec![NicSpec { mac: "52:54:00:00:00:01".into(), plug: Plug::User }];
    spec.cdrom = Some(world.path().join("m0.img"));
    let machine = machines.create(spec).await.unwrap();
    assert_eq!(event(&mut events, "started").await.machine, "m0");
    let mut console = machine.console().unwrap();
    line(&mut console, "tiny: hello").await;

    machine.pause().await.unwrap();
    assert_eq!(event(&mut events, "suspended").await.words().1, "paused");
    machine.resume().await.unwrap();
    event(&mut events, "resumed").await;
    machine.reset().await.unwrap();
    event(&mut events, "rebooted").await;
    line(&mut console, "tiny: hello").await;

    machine.set_link("52:54:00:00:00:01", false).await.unwrap();
    machine.set_link("52:54:00:00:00:01", true).await.unwrap();
    assert!(machine.set_link("52:54:00:00:00:99", true).await.unwrap_err().to_string().contains("has no NIC"));
    // From the drive once, and the disk's turn comes first again at the next reset.
    machine.boot_medium(&world.path().join("m0.img")).await.unwrap();
    event(&mut events, "rebooted").await;
    line(&mut console, "tiny: hello").await;
    let place = serde_json::json!({"path": "/machine/peripheral/ua-cdrom", "property": "bootindex"});
    assert_eq!(machine.monitor("qom-get", place).await.unwrap(), 2);
    machine.eject().await.unwrap();
    let drives = machine.monitor("query-block", serde_json::Value::Null).await.unwrap();
    let cdrom = drives.as_array().unwrap().iter().find(|drive| drive["qdev"] == "ua-cdrom").unwrap();
    assert!(cdrom.get("inserted").is_none(), "{cdrom}");

    let shot = world.path().join("shot.png");
    machine.screenshot(&shot).await.unwrap();
    assert_eq!(fs::read(&shot).unwrap()[..8], *b"\x89PNG\r\n\x1a\n");
    let usage = machine.usage().await.unwrap();
    assert_eq!((usage.memory_kib, usage.cpus), (32 * 1024, 1));
    // The disk is as big as the guest wants it and takes next to nothing here.
    let disk =
        fs::read_dir(world.path()).unwrap().flatten().find(|e| e.file_name().to_string_lossy().starts_with("vlab-m-"));
    let disk = fs::metadata(disk.unwrap().path().join("m0/vda.qcow2")).unwrap().len();
    assert!(disk < 1 << 20, "{disk} bytes");

    // Somebody types: the console is a socket for people and a file for the harness, at the same time.
    let mut keyboard = UnixStream::connect(machine.console_socket()).unwrap();
    keyboard.write_all(b"typed\n").unwrap();
    line(&mut console, "typed").await;
    let mut screen = [0; 5];
    keyboard.read_exact(&mut screen).unwrap();
    assert_eq!(&screen, b"typed");

    machine.power_off().await.unwrap();
    assert_eq!(event(&mut events, "stopped").await.words().1, "destroyed");
    assert_eq!(machine.process(), None);
    machine.power_on().await.unwrap();
    event(&mut events, "started").await;
    line(&mut console, "tiny: hello").await;
    let before = machine.process().unwrap();
    machines.stop().await.unwrap();
    assert!(!before.is_alive());
    world.assert_nothing_is_left();
}

/// Five at once, with their memory reserved together. Prints the figures (`--no-capture`): a quiet machine needs 300 ms for
/// one and a second for five; what a busy one needs says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn lab_machines_start_quickly_and_switch_themselves_off() {
    if no_machines() {
        return;
    }
    let world = World::new();
    let machines = world.machines().await;
    let mut events = machines.events();
    let specs: Vec<MachineSpec> =
        (0..5).map(|n| world.tiny(&format!("m{n}"), "tiny: bye\r\n", Then::PowerOff)).collect();
    machines.reserve(&specs).unwrap();
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for spec in specs {
        let machines = machines.clone();
        tasks.spawn(async move {
            let started = Instant::now();
            let machine = machines.create(spec).await.unwrap();
            (machine, started.elapsed())
        });
    }
    let made: Vec<(Machine, Duration)> = tasks.join_all().await;
    println!("five machines in {:?}, each {:?}", started.elapsed(), made.iter().map(|made| made.1).collect::<Vec<_>>());
    // They mix: all that is told until the last one has stopped.
    let mut told = Vec::new();
    while told.iter().filter(|words| **words == ("stopped", "shutdown".to_owned())).count() < made.len() {
        let next = tokio::time::timeout(SOON, events.recv()).await;
        told.push(next.unwrap_or_else(|_| panic!("not all stop: {told:?}")).unwrap().words());
    }
    let by_the_guest = told.iter().filter(|words| **words == ("shut-down", "guest".to_owned())).count();
    assert_eq!(by_the_guest, made.len(), "{told:?}");
    for (machine, _) in &made {
        let mut console = machine.console().unwrap();
        line(&mut console, "tiny: bye").await;
    }
    drop(made);
    machines.stop().await.unwrap();
    world.assert_nothing_is_left();
}

/// A disk that fails while it is used, and recovers; a console that says what no console should.
#[tokio::test(flavor = "multi_thread")]
async fn lab_a_disk_fails_on_demand_and_a_panic_is_recognised() {
    if no_machines() {
        return;
    }
    let world = World::new();
    let machines = world.machines().await;
    let mut events = machines.events();
    let reader = machines.create(world.tiny("reader", "reading\n", Then::ReadForever)).await.unwrap();
    let said = |machine: &Machine| fs::read_to_string(machine.console_log()).unwrap();
    within(SOON, "it reads", || said(&reader).ends_with("rrr"));
    reader.fail_disk("vda", DiskFault::Reads).await.unwrap();
    event(&mut events, "io-error").await;
    within(SOON, "reads fail", || said(&reader).ends_with("EEE"));
    assert!(reader.fail_disk("vda", DiskFault::Reads).await.is_err(), "it fails already");
    reader.heal_disk("vda").await.unwrap();
    within(SOON, "reads work again", || said(&reader).ends_with("rrr"));
    // A limit for writes leaves reads alone; what QEMU has made of it is asked of QEMU.
    let limit = async || {
        let nodes = reader.monitor("query-block", serde_json::Value::Null).await.unwrap();
        let found = nodes.as_array().unwrap().iter().find(|node| node["qdev"].as_str().unwrap().contains("ua-vda"));
        found.unwrap()["inserted"]["iops_wr"].as_u64().unwrap()
    };
    reader.limit_writes("vda", Some(25)).await.unwrap();
    assert_eq!(limit().await, 25);
    reader.limit_writes("vda", None).await.unwrap();
    assert_eq!(limit().await, 0);
    let error = reader.fail_disk("vdz", DiskFault::All).await.unwrap_err();
    assert!(error.to_string().contains("it has no disk vdz"), "{error}");

    let panics = world.tiny("panics", "\u{1b}[31m[ 1.0] Kernel panic - not syncing: tiny\u{1b}[0m\r\n", Then::Stay);
    let panics = machines.create(panics).await.unwrap();
    let text = line(&mut panics.console().unwrap(), "panic").await;
    assert_eq!(Classifier::default().classify(&text).map(|check| check.id), Some("kernel-panic"));
    machines.stop().await.unwrap();
    world.assert_nothing_is_left();
}

/// A machine boots from a disk on each bus, with a disk beside it on which somebody left a partition table; the first one fails and
/// recovers.
#[tokio::test(flavor = "multi_thread")]
async fn lab_disks_of_every_bus_boot_and_fail() {
    if no_machines() {
        return;
    }
    let world = World::new();
    let machines = world.machines().await;
    for (machine, bus, name) in
        [("on-sata", Bus::Sata, "sdb"), ("on-scsi", Bus::Scsi, "sdb"), ("on-nvme", Bus::Nvme, "nvme0")]
    {
        let mut spec = world.tiny(machine, "reading\n", Then::ReadForever);
        let image = spec.disks[0].base.take();
        let used = DiskSpec::new("sda", Bus::Scsi, 1 << 30, "USED");
        spec.disks = vec![
            DiskSpec { base: image, wwn: 0x5000_c500_0000_0001, ..DiskSpec::new(name, bus, 1 << 30, "READER") },
            DiskSpec { leftover: Some(Leftover::Partitions), removable: true, ..used },
        ];
        let reader = machines.create(spec).await.unwrap();
        let said = || fs::read_to_string(reader.console_log()).unwrap();
        within(SOON, "it reads", || said().ends_with("rrr"));
        reader.fail_disk(name, DiskFault::Reads).await.unwrap();
        within(SOON, "reads fail", || said().ends_with("EEE"));
        reader.heal_disk(name).await.unwrap();
        within(SOON, "reads work again", || said().ends_with("rrr"));
        reader.limit_writes(name, Some(25)).await.unwrap();
        reader.power_off().await.unwrap();
    }
    machines.stop().await.unwrap();
    world.assert_nothing_is_left();
}

/// A small folder in memory, unmounted when it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, and why, where this user may mount nothing.
    fn new(folder: &Path, size: &str) -> Option<Self> {
        fs::create_dir(folder).unwrap();
        let options = format!("size={size}");
        match nix::mount::mount(
            Some("vlab"),
            folder,
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            Some(options.as_str()),
        ) {
            Ok(()) => Some(Self(folder.to_path_buf())),
            Err(error) => {
                vlab_skip::skip!("a small disk cannot be made here: {error}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

/// The disk of this computer is full: that is told as what it is, and the guest, which could do nothing about it, is told
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn lab_a_full_disk_of_this_computer_is_told_as_that() {
    let world = World::new();
    if no_machines() {
        return;
    }
    let Some(scratch) = SmallDisk::new(&world.path().join("small"), "6m") else { return };
    let mut options = world.options();
    options.scratch = scratch.0.clone();
    let machines = Machines::start(options).await.unwrap();
    let mut events = machines.events();
    let writer = machines.create(world.tiny("writer", "writing\n", Then::WriteForever)).await.unwrap();
    let full = event(&mut events, "io-error").await;
    assert!(full.is_out_of_space() && full.machine == "writer", "{full:?}");
    assert_eq!(event(&mut events, "suspended").await.words().1, "ioerror");
    assert!(machines.folder().starts_with(&scratch.0));
    let said = fs::read_to_string(writer.console_log()).unwrap();
    assert!(said.contains("ww") && !said.contains('E'), "{said}");
    machines.stop().await.unwrap();
    drop(scratch);
    world.assert_nothing_is_left();
}

/// QEMU is killed: the event names the machine and the moment. The helper is killed: everybody who waits is told, and the
/// machines are still removed.
#[tokio::test(flavor = "multi_thread")]
async fn lab_a_killed_qemu_and_a_killed_helper_are_noticed() {
    if no_machines() {
        return;
    }
    let world = World::new();
    let machines = world.machines().await;
    let mut events = machines.events();
    let victim = machines.create(world.tiny("victim", "up\r\n", Then::Stay)).await.unwrap();
    let other = machines.create(world.tiny("other", "up\r\n", Then::Stay)).await.unwrap();
    let pid = victim.process().unwrap().pid;
    let before = std::time::SystemTime::now();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    let lost = event(&mut events, "stopped").await;
    assert_eq!((lost.machine.as_str(), lost.is_loss()), ("victim", true), "{lost:?}");
    let late = lost.at.duration_since(before - Duration::from_millis(1)).unwrap();
    assert!(late < SOON, "{late:?}");

    let survivor = other.process().unwrap();
    machines.helper().kill9().await;
    assert!(tokio::time::timeout(SOON, machines.failed()).await.is_ok());
    let error = other.pause().await.unwrap_err();
    assert!(matches!(error, MachineError::HelperGone { .. }), "{error}");
    drop((victim, other));
    machines.stop().await.unwrap();
    assert!(!survivor.is_alive(), "its QEMU was nobody's and is gone all the same");
    world.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn lab_what_does_not_fit_is_refused_before_anything_starts() {
    if no_machines() {
        return;
    }
    let world = World::new();
    let machines = world.machines().await;
    let huge = MachineSpec { memory_mib: 1 << 30, ..world.tiny("huge", "", Then::Stay) };
    let error = machines.reserve(&[world.tiny("small", "", Then::Stay), huge.clone()]).unwrap_err().to_string();
    assert!(error.contains("the machines need 107") && error.contains(" available, less 512 MiB"), "{error}");
    let error = machines.create(huge).await.unwrap_err();
    assert!(matches!(error, MachineError::Memory(_)), "{error}");
    // An image that is not there: libvirt is not even asked, and nothing stays.
    let mut broken = world.tiny("broken", "", Then::Stay);
    broken.disks[0].base = Some("/nowhere.img".into());
    let error = machines.create(broken).await.unwrap_err().to_string();
    assert!(error.starts_with("/nowhere.img: "), "{error}");
    // A CD that is not there: libvirt refuses, and its words are in the error.
    let mut broken = world.tiny("broken-cd", "", Then::Stay);
    broken.cdrom = Some("/nowhere.iso".into());
    let error = machines.create(broken.clone()).await.unwrap_err().to_string();
    assert!(error.starts_with("machine broken-cd: start: ") && error.contains("/nowhere.iso"), "{error}");
    // A second try begins anew.
    let started = machines.create(MachineSpec { cdrom: None, ..broken }).await.unwrap();
    assert!(started.process().is_some());
    let error = machines.create(started.spec().clone()).await.unwrap_err().to_string();
    assert!(error.contains("there is a machine of this name"), "{error}");
    drop(started);
    machines.stop().await.unwrap();
    world.assert_nothing_is_left();
}

/// The wrong boot order boots the CD although the disk could be booted. UEFI starts a program that nobody has signed, unless it is to
/// look at signatures.
#[tokio::test(flavor = "multi_thread")]
async fn lab_firmware_tpm_and_boot_order() {
    if no_machines() {
        return;
    }
    let world = World::new();
    let machines = world.machines().await;
    let right = world.tiny("right", "from the disk\r\n", Then::Stay);
    let right = machines.create(MachineSpec { boot: BootOrder::CdFirst, ..right }).await.unwrap();
    line(&mut right.console().unwrap(), "from the disk").await;
    if find_ovmf(Firmware::UefiSecure).is_some() && in_path("swtpm") {
        let unsigned = world.path().join("unsigned.img");
        fs::write(&unsigned, efi_disk("nobody has signed this\r\n")).unwrap();
        let uefi = |firmware: Firmware, name: &str| {
            let mut spec = world.tiny(name, "", Then::Stay);
            spec.disks[0].base = Some(unsigned.clone());
            MachineSpec { firmware, tpm: firmware == Firmware::Uefi, memory_mib: 128, ..spec }
        };
        let open = machines.create(uefi(Firmware::Uefi, "open")).await.unwrap();
        let secure = machines.create(uefi(Firmware::UefiSecure, "secure")).await.unwrap();
        let tpm = open.monitor("query-tpm", serde_json::Value::Null).await.unwrap();
        assert_eq!(tpm[0]["model"], "tpm-crb", "{tpm}");
        let usage = open.usage().await.unwrap();
        assert_eq!(usage.memory_kib, 128 * 1024);
        line(&mut open.console().unwrap(), "nobody has signed this").await;
        line(&mut secure.console().unwrap(), "Access Denied").await;
        let said = fs::read_to_string(secure.console_log()).unwrap();
        assert!(!said.contains("nobody has signed this"), "{said}");
    } else {
        vlab_skip::skip!("in part: ovmf (with secure boot) or swtpm is missing; `cargo xtask setup` installs them");
    }
    drop(right);
    machines.stop().await.unwrap();
    world.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn lab_libvirt_that_refuses_says_why() {
    if no_machines() {
        return;
    }
    let world = World::new();
    let mut options = world.options();
    options.uri = vlab_lab::machines::Uri::Of("qemu:///no-such-path".into());
    let error = Machines::start(options).await.unwrap_err();
    assert!(matches!(&error, MachineError::Refused { uri, .. } if uri == "qemu:///no-such-path"), "{error}");
    world.assert_nothing_is_left();
}

struct MiniLab {
    world: tempfile::TempDir,
    child: std::process::Child,
    stdout: BufReader<std::process::ChildStdout>,
    lines: Vec<String>,
}

impl MiniLab {
    fn start(machines: usize, user: Option<u32>) -> Self {
        use std::os::unix::fs::{PermissionsExt as _, chown};
        use std::os::unix::process::CommandExt as _;
        let world = tempfile::Builder::new().prefix("vlab-t-").tempdir_in("/tmp").unwrap();
        let path = world.path();
        let mut executable = mini();
        if let Some(uid) = user {
            // The build directory may be closed to others. The helper lies beside it.
            executable = path.join("mini-lab");
            fs::copy(MINI, &executable).unwrap();
            fs::copy(HELPER, path.join("vlab-libvirt-helper")).unwrap();
            chown(path, Some(uid), Some(uid)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let mut command = Command::new(executable);
        command
            .args(["run".as_ref(), path.join("r").as_os_str(), path.as_os_str(), machines.to_string().as_ref()])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(uid) = user {
            command.uid(uid).gid(uid).env("HOME", path).env("XDG_CACHE_HOME", path.join("cache"));
        }
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "the small lab does not start: {lines:?}");
            if line.trim() == "ready" {
                break;
            }
            lines.push(line.trim().to_owned());
        }
        Self { world, child, stdout, lines }
    }

    fn pids(&self, what: &str) -> Vec<ProcessId> {
        let of = |line: &String| line.strip_prefix(what)?.trim().parse().ok().and_then(ProcessId::of);
        self.lines.iter().filter_map(of).collect()
    }

    /// Everything with the run's mark; QEMU, dnsmasq, helper, holder.
    fn marked(&self) -> Vec<ProcessId> {
        let run = format!("mini-{}", self.child.id());
        (1..40).flat_map(|number| proc::with_environment(MARK, &format!("{run}:{number}"))).collect()
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(self.marked(), []);
        let name = self.lines.iter().find_map(|line| line.strip_prefix("namespace ")).unwrap();
        assert!(!Path::new("/run/netns").join(name).exists(), "{name}");
        let mut left: Vec<_> = fs::read_dir(self.world.path())
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        left.retain(|name| {
            !["cache", "consoles", "mini-lab", "r", "supervisor.log", "vlab-libvirt-helper"].contains(&name.as_str())
        });
        assert_eq!(left, [] as [&str; 0]);
        let mut ledgers: Vec<_> =
            fs::read_dir(self.world.path().join("r")).unwrap().flatten().map(|entry| entry.file_name()).collect();
        ledgers.retain(|name| name != "memory.lock");
        assert_eq!(ledgers, [] as [&str; 0]);
    }
}

fn kill_9(user: Option<u32>, machines: usize) -> Duration {
    let mut lab = MiniLab::start(machines, user);
    let qemu = lab.pids("machine");
    assert_eq!(qemu.len(), machines, "{:?}", lab.lines);
    let supervisor = lab.pids("supervisor")[0];
    assert!(lab.marked().len() > machines, "QEMU bears the mark, too");
    lab.child.kill().unwrap();
    lab.child.wait().unwrap();
    let started = Instant::now();
    within(SOON, "the supervisor has finished", || !supervisor.is_alive());
    let took = started.elapsed();
    println!("after kill -9, everything was gone in {took:?}");
    lab.assert_nothing_is_left();
    let log = fs::read_to_string(lab.world.path().join("supervisor.log")).unwrap();
    for words in ["machine m0 (QEMU", "(dnsmasq)", "(machines)", "directory ", "nothing is left"] {
        assert!(log.contains(words), "`{words}` is not in:\n{log}");
    }
    took
}

#[test]
fn lab_kill_9_of_the_harness_leaves_nothing() {
    if no_machines() || no_network() {
        return;
    }
    // More for those who want to be sure: VLAB_KILLS=100.
    let kills = std::env::var("VLAB_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(1);
    let mut longest = Duration::ZERO;
    for _ in 0..kills {
        longest = longest.max(kill_9(None, 2));
    }
    println!("{kills} times; the longest took {longest:?}");
}

/// The same for a user without any rights: everything happens in a user namespace.
#[test]
fn lab_kill_9_without_root_leaves_nothing() {
    // Taps of an ordinary user need a device that is open to all, as udev makes it; in containers it often is not.
    let mode = fs::metadata("/dev/net/tun").map(|m| std::os::unix::fs::PermissionsExt::mode(&m.permissions()));
    if !mode.as_ref().is_ok_and(|mode| mode & 0o006 == 0o006) {
        vlab_skip::skip!("/dev/net/tun is not open to ordinary users here: {mode:?}");
        return;
    }
    if no_machines() || no_network() {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        vlab_skip::skip!("the test before this one did it without root");
        return;
    }
    if let Err(why) = permits(Form::User, &mini()) {
        vlab_skip::skip!("{why}");
        return;
    }
    kill_9(Some(12345), 1);
}

/// The orderly end, and what `gc` finds while the lab lives: nothing to remove.
#[test]
fn lab_an_orderly_end_leaves_nothing() {
    if no_machines() || no_network() {
        return;
    }
    let mut lab = MiniLab::start(1, None);
    let plan = gc::find_leftovers(&lab.world.path().join("r"), &[]).unwrap();
    assert!(plan.is_empty() && plan.alive.len() == 1, "{plan}");
    drop(lab.child.stdin.take());
    let mut rest = String::new();
    lab.stdout.read_to_string(&mut rest).unwrap();
    assert!(lab.child.wait().unwrap().success());
    assert_eq!(rest.trim(), "leaked 0");
    lab.assert_nothing_is_left();
}

/// All who would tidy up die together: `gc` finds everything by the ledger and the marks.
#[test]
fn lab_gc_removes_what_both_have_left() {
    if no_machines() || no_network() {
        return;
    }
    let mut lab = MiniLab::start(1, None);
    let (qemu, supervisor) = (lab.pids("machine"), lab.pids("supervisor"));
    let send = |pid: u32, signal| kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
    // Nobody may be quicker than the next one is killed: the harness stands still first, and the helper would destroy the machines when
    // it hears no more of the harness.
    send(lab.child.id(), Signal::SIGSTOP);
    let is_inner = |process: &ProcessId| {
        let words = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        words.windows(13).any(|word| word == b"__serve-inner")
    };
    let helper = lab.marked().into_iter().find(is_inner).expect("the helper's process that talks to libvirt");
    send(helper.pid, Signal::SIGKILL);
    send(supervisor[0].pid, Signal::SIGKILL);
    lab.child.kill().unwrap();
    lab.child.wait().unwrap();
    assert!(qemu[0].is_alive(), "nobody has ended it yet");
    let registry = lab.world.path().join("r");
    let plan = gc::find_leftovers(&registry, &[]).unwrap();
    assert!(plan.to_string().contains("machine m0 (QEMU "), "{plan}");
    let removal = gc::remove(&plan);
    assert_eq!(removal.kept(), 0, "{removal}");
    lab.assert_nothing_is_left();
}

/// What the probe says is what machines get: a machine under it runs.
#[tokio::test(flavor = "multi_thread")]
async fn lab_the_probed_accelerator_runs_machines() {
    if no_machines() {
        return;
    }
    let found = probe::probe().unwrap();
    println!("{}", found.why);
    let world = World::new();
    let mut options = world.options();
    options.accel = found.accel;
    let machines = Machines::start(options).await.unwrap();
    let machine = machines.create(world.tiny("m0", "runs\r\n", Then::Stay)).await.unwrap();
    line(&mut machine.console().unwrap(), "runs").await;
    machines.stop().await.unwrap();
    world.assert_nothing_is_left();
}

#[test]
fn lab_events_that_nobody_expects_are_kept() {
    let event = DomainEvent::Other { event: 7, detail: 1 };
    let event = MachineEvent { machine: "m".into(), at: std::time::SystemTime::UNIX_EPOCH, event };
    assert_eq!(event.words(), ("other", "7 1".to_owned()));
    assert!(matches!(Resource::Memory { bytes: 1 << 20 }.to_string().as_str(), "1 MiB of memory for machines"));
}
