//! Installs what is missing: says what and why, then does it, once. When nothing is missing it looks at a few files and
//! is done in milliseconds; whether things *work* is what `doctor` finds out.
//!
//! Two programs share it, `cargo xtask` and `vlab`. It depends on nothing, so that the first of them builds in seconds.

mod distribution;
pub mod installer;

pub use distribution::Distribution;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Prints a line of the program that this is a part of.
pub type Say = fn(&str);

/// Where this user's images are: `$VLAB_IMAGES`, else `$XDG_CACHE_HOME/vlab/images`, else `~/.cache/vlab/images`, else in the folder for
/// temporary files. Absolute: a program that is started elsewhere must find the same.
#[must_use]
pub fn images_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = set("VLAB_IMAGES") {
        return std::path::absolute(&named).unwrap_or(named);
    }
    let absolute = |name: &str| set(name).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    base.unwrap_or_else(std::env::temp_dir).join("vlab").join("images")
}

/// For whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Running scenarios with simulated hosts.
    Run,
    /// Virtual machines and the lab network (and running scenarios).
    Machines,
    /// The project's own tests, which do all of that.
    Test,
    /// Running the service in containers.
    Containers,
    /// Building the media of virtual machines.
    Images,
    /// Trying the first start on a fresh root file system.
    FreshMachine,
}

impl Purpose {
    /// Is what `of` needs needed for this purpose, too?
    fn includes(self, of: Self) -> bool {
        match (self, of) {
            (Self::Containers | Self::Images | Self::FreshMachine, _) => self == of,
            // An engine that already runs (or none) is the user's business: it is installed only when asked for.
            (Self::Test, _) => !matches!(of, Self::Containers | Self::FreshMachine),
            (Self::Run | Self::Machines, _) => of == Self::Run || self == of,
        }
    }
}

/// Where a tool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Packages of Debian and Ubuntu.
    Apt(&'static str),
    /// A crate with a binary.
    Cargo(&'static str),
    /// A component of the Rust toolchain.
    Rustup(&'static str),
}

impl Tool {
    /// Debian's package, if it comes from one.
    fn package(&self) -> Option<&'static str> {
        match self.source {
            Source::Apt(package) => Some(package),
            Source::Cargo(_) | Source::Rustup(_) => None,
        }
    }
}

struct Tool {
    name: &'static str,
    why: &'static str,
    purpose: Purpose,
    source: Source,
    there: fn(&Machine) -> bool,
}

/// The table.
const TOOLS: &[Tool] = &[
    Tool {
        name: "PostgreSQL server",
        why: "the service keeps its state in a real PostgreSQL",
        purpose: Purpose::Run,
        source: Source::Apt("postgresql"),
        there: |machine| machine.database_url || machine.postgres(),
    },
    Tool {
        name: "QEMU",
        why: "runs the virtual machines",
        purpose: Purpose::Machines,
        source: Source::Apt(QEMU_PACKAGE),
        there: |machine| machine.system_program("qemu-system-x86_64"),
    },
    Tool {
        name: "qemu-img",
        why: "makes the disks of virtual machines",
        purpose: Purpose::Machines,
        source: Source::Apt(QEMU_IMG_PACKAGE),
        there: |machine| machine.system_program("qemu-img"),
    },
    Tool {
        name: "libvirt with its QEMU driver",
        why: "defines and watches the virtual machines; its embedded driver needs no daemon",
        purpose: Purpose::Machines,
        source: Source::Apt("libvirt-daemon"),
        there: |machine| machine.library("libvirt/connection-driver/libvirt_driver_qemu.so"),
    },
    Tool {
        name: "libvirt's header and library",
        why: "`vlab-libvirt-helper`, which speaks with libvirt, is built against it",
        purpose: Purpose::Machines,
        source: Source::Apt("libvirt-dev"),
        there: |machine| machine.library("pkgconfig/libvirt.pc"),
    },
    Tool {
        name: "OVMF",
        why: "the firmware of virtual machines that boot by UEFI",
        purpose: Purpose::Machines,
        source: Source::Apt("ovmf"),
        there: |machine| {
            ["usr/share/OVMF/OVMF_CODE_4M.fd", "usr/share/OVMF/OVMF_CODE.fd", "usr/share/edk2/ovmf/OVMF_CODE.fd"]
                .iter()
                .any(|path| machine.root.join(path).is_file())
        },
    },
    Tool {
        name: "swtpm",
        why: "the TPM of virtual machines",
        purpose: Purpose::Machines,
        source: Source::Apt("swtpm"),
        there: |machine| machine.system_program("swtpm"),
    },
    Tool {
        name: "dnsmasq",
        why: "DHCP and DNS in the lab network",
        purpose: Purpose::Machines,
        source: Source::Apt("dnsmasq-base"),
        there: |machine| machine.system_program("dnsmasq"),
    },
    Tool {
        name: "ip and tc",
        why: "make the lab network",
        purpose: Purpose::Machines,
        source: Source::Apt("iproute2"),
        there: |machine| machine.system_program("ip") && machine.system_program("tc"),
    },
    Tool {
        name: "nft",
        why: "cuts and disturbs links of the lab network",
        purpose: Purpose::Machines,
        source: Source::Apt("nftables"),
        there: |machine| machine.system_program("nft"),
    },
    Tool {
        name: "ssh",
        why: "the way into virtual machines, with a key that `ssh-keygen` makes for each run",
        purpose: Purpose::Machines,
        source: Source::Apt("openssh-client"),
        there: |machine| machine.program("ssh") && machine.program("ssh-keygen"),
    },
    Tool {
        name: "chromium",
        why: "a test opens the report in a real browser",
        purpose: Purpose::Test,
        source: Source::Apt("chromium"),
        there: |machine| machine.browser_named || BROWSERS.iter().any(|name| machine.program(name)),
    },
    Tool {
        name: "etcd",
        why: "tests pivot a real one",
        purpose: Purpose::Test,
        source: Source::Apt(ETCD_PACKAGE),
        there: |machine| machine.program("etcd"),
    },
    Tool {
        name: "etcdctl",
        why: "tests save and restore what etcd keeps",
        purpose: Purpose::Test,
        source: Source::Apt("etcd-client"),
        there: |machine| machine.program("etcdctl"),
    },
    Tool {
        name: "Docker Engine",
        why: "runs the service and PostgreSQL as containers",
        purpose: Purpose::Containers,
        source: Source::Apt("docker.io"),
        there: Machine::engine,
    },
    Tool {
        name: "mmdebstrap",
        why: "makes the root file system of a fresh machine",
        purpose: Purpose::FreshMachine,
        source: Source::Apt("mmdebstrap"),
        there: |machine| machine.program("mmdebstrap"),
    },
    Tool {
        name: "mksquashfs",
        why: "makes the root file system of the lab OS",
        purpose: Purpose::Images,
        source: Source::Apt("squashfs-tools"),
        there: |machine| machine.system_program("mksquashfs"),
    },
    Tool {
        name: "xorriso",
        why: "makes ISO files",
        purpose: Purpose::Images,
        source: Source::Apt("xorriso"),
        there: |machine| machine.system_program("xorriso"),
    },
    Tool {
        name: "mcopy",
        why: "fills FAT file systems of boot loaders",
        purpose: Purpose::Images,
        source: Source::Apt("mtools"),
        there: |machine| machine.system_program("mcopy"),
    },
    Tool {
        name: "mkfs.vfat",
        why: "makes FAT file systems of boot loaders",
        purpose: Purpose::Images,
        source: Source::Apt("dosfstools"),
        there: |machine| machine.system_program("mkfs.vfat"),
    },
    Tool {
        name: "debugfs",
        why: "fills the file systems of the disk image",
        purpose: Purpose::Images,
        source: Source::Apt("e2fsprogs"),
        there: |machine| machine.system_program("debugfs"),
    },
    Tool {
        name: "sgdisk",
        why: "makes the partition table of the disk image",
        purpose: Purpose::Images,
        source: Source::Apt("gdisk"),
        there: |machine| machine.system_program("sgdisk"),
    },
    Tool {
        name: "grub-mkimage",
        why: "puts the boot loader together",
        purpose: Purpose::Images,
        source: Source::Apt("grub-common"),
        there: |machine| machine.system_program("grub-mkimage"),
    },
    Tool {
        name: "depmod",
        why: "makes the index of the kernel's modules",
        purpose: Purpose::Images,
        source: Source::Apt("kmod"),
        there: |machine| machine.system_program("depmod"),
    },
    Tool {
        name: "xz",
        why: "opens the kernel's modules",
        purpose: Purpose::Images,
        source: Source::Apt("xz-utils"),
        there: |machine| machine.system_program("xz"),
    },
    Tool {
        name: "OpenSSL's headers",
        why: "coreos-installer, which goes into the lab OS, is built with them",
        purpose: Purpose::Images,
        source: Source::Apt("libssl-dev"),
        there: |machine| machine.root.join("usr/include/openssl/ssl.h").is_file(),
    },
    Tool {
        name: "zstd's headers",
        why: "coreos-installer, which goes into the lab OS, is built with them",
        purpose: Purpose::Images,
        source: Source::Apt("libzstd-dev"),
        there: |machine| machine.root.join("usr/include/zstd.h").is_file(),
    },
    Tool {
        name: "lzma's headers",
        why: "coreos-installer, which goes into the lab OS, is built with them",
        purpose: Purpose::Images,
        source: Source::Apt("liblzma-dev"),
        there: |machine| machine.root.join("usr/include/lzma.h").is_file(),
    },
    Tool {
        name: "pkg-config",
        why: "the build of coreos-installer finds libraries with it",
        purpose: Purpose::Images,
        source: Source::Apt("pkg-config"),
        there: |machine| machine.program("pkg-config"),
    },
    Tool {
        name: "rustfmt",
        why: "checks the formatting",
        purpose: Purpose::Test,
        source: Source::Rustup("rustfmt"),
        there: |machine| machine.program("cargo-fmt"),
    },
    Tool {
        name: "clippy",
        why: "checks the code for mistakes",
        purpose: Purpose::Test,
        source: Source::Rustup("clippy"),
        there: |machine| machine.program("cargo-clippy"),
    },
    Tool {
        name: "cargo-nextest",
        why: "runs the tests, each in a process of its own",
        purpose: Purpose::Test,
        source: Source::Cargo("cargo-nextest"),
        there: |machine| machine.program("cargo-nextest"),
    },
];

const QEMU_PACKAGE: &str = "qemu-system-x86";
const ETCD_PACKAGE: &str = "etcd-server";
const QEMU_IMG_PACKAGE: &str = "qemu-utils";

/// Where to look: the parts of the environment that matter, so that tests can give others.
struct Machine {
    root: PathBuf,
    path: Vec<PathBuf>,
    pg_bin: Option<PathBuf>,
    database_url: bool,
    engine_named: bool,
    browser_named: bool,
}

/// Names of the browsers that can be used.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "headless_shell"];

/// With these a browser runs without a window, as root and in a container, too, and asks nothing of the network by itself.
pub const BROWSER_ARGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

/// The browser in which reports are tried out: the one that `VLAB_CHROMIUM` names, else one of `PATH`.
pub fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("VLAB_CHROMIUM").filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = |name: &str| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file());
    named.or_else(|| BROWSERS.iter().find_map(|name| in_path(name)))
}

impl Machine {
    fn this() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let mut path: Vec<PathBuf> = std::env::split_paths(&set("PATH").unwrap_or_default()).collect();
        // cargo finds its subcommands there even when PATH does not have it.
        let cargo_home =
            set("CARGO_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(set("HOME")?).join(".cargo")));
        path.extend(cargo_home.map(|home| home.join("bin")));
        Self {
            root: PathBuf::from("/"),
            path,
            pg_bin: set("VLAB_PG_BIN").map(PathBuf::from),
            database_url: set("DATABASE_URL").is_some(),
            engine_named: set("DOCKER_HOST").is_some(),
            browser_named: set("VLAB_CHROMIUM").is_some(),
        }
    }

    fn program(&self, name: &str) -> bool {
        self.path.iter().any(|dir| dir.join(name).is_file())
    }

    /// A file where libraries are: Debian has a folder for each architecture, others have not.
    fn library(&self, file: &str) -> bool {
        let architecture = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        [architecture.as_str(), "usr/lib64", "usr/lib"].iter().any(|dir| self.root.join(dir).join(file).is_file())
    }

    /// A program that may be where only administrators look.
    fn system_program(&self, name: &str) -> bool {
        self.program(name) || ["usr/sbin", "sbin"].iter().any(|dir| self.root.join(dir).join(name).is_file())
    }

    fn postgres(&self) -> bool {
        let server = |dir: &Path| dir.join("initdb").is_file() && dir.join("postgres").is_file();
        if let Some(named) = &self.pg_bin {
            return server(named);
        }
        let debian = fs::read_dir(self.root.join("usr/lib/postgresql")).into_iter().flatten().flatten();
        self.path.iter().any(|dir| server(dir)) || debian.into_iter().any(|entry| server(&entry.path().join("bin")))
    }

    /// One that can be started, or one that somebody has told us of.
    fn engine(&self) -> bool {
        let sbin = self.root.join("usr/sbin");
        self.engine_named || self.program("dockerd") || sbin.join("dockerd").is_file() || self.program("podman")
    }

    fn missing(&self, purpose: Purpose) -> Vec<&'static Tool> {
        self.missing_for(purpose, &[])
    }

    /// For both, each tool once.
    fn missing_for(&self, purpose: Purpose, later: &[Purpose]) -> Vec<&'static Tool> {
        let needed = |tool: &&Tool| purpose.includes(tool.purpose) || later.iter().any(|of| of.includes(tool.purpose));
        TOOLS.iter().filter(needed).filter(|tool| !(tool.there)(self)).collect()
    }
}

/// How to become root for `apt-get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    Already,
    Sudo,
    No,
}

impl Root {
    fn of(machine: &Machine) -> Self {
        match fs::metadata("/proc/self").map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)) {
            Ok(0) => Self::Already,
            _ if machine.program("sudo") => Self::Sudo,
            _ => Self::No,
        }
    }
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SetupCommand {
    argv: Vec<String>,
    /// The end of the set-up when it fails; otherwise a later step fails and says why.
    must: bool,
}

impl SetupCommand {
    /// The command as a shell takes it.
    fn shown(&self) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=:./,+@%".contains(c);
        let word = |word: &String| match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        };
        self.argv.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

/// Makes sure that everything for `purpose` is there.
///
/// # Errors
/// What is missing and why it was not installed.
pub fn ensure(purpose: Purpose, may_install: bool, say: Say) -> Result<Done, String> {
    ensure_before(purpose, &[], may_install, say)
}

/// The same where more is needed `later`. Where somebody has to do it by hand, all of it is told at once: nobody wants to ask an
/// administrator twice.
///
/// # Errors
/// What is missing and why it was not installed.
pub fn ensure_before(purpose: Purpose, later: &[Purpose], may_install: bool, say: Say) -> Result<Done, String> {
    let machine = Machine::this();
    let missing = machine.missing(purpose);
    if missing.is_empty() {
        return Ok(Done::WasThere);
    }
    let root = Root::of(&machine);
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
    // Why somebody has to do it by hand, if so.
    let by_hand = if !may_install {
        Some("--no-setup: nothing is installed")
    } else if missing.iter().all(|tool| tool.package().is_none()) {
        None
    } else if !machine.program("apt-get") {
        Some("there is no apt-get here")
    } else if root == Root::No {
        Some("not root, and there is no sudo")
    } else if root == Root::Sudo && !terminal && !sudo_without_password() {
        Some("`sudo` asks for a password, and there is no terminal")
    } else {
        None
    };
    let told = if by_hand.is_some() { machine.missing_for(purpose, later) } else { missing.clone() };
    for tool in &told {
        say(&format!("missing: {} ({})", tool.name, tool.why));
    }
    if let Some(named) = machine.pg_bin.as_deref().filter(|_| !machine.database_url && !machine.postgres()) {
        return Err(format!(
            "VLAB_PG_BIN is {}, where there is no `initdb` and `postgres`: correct or unset it",
            named.display()
        ));
    }
    let here = Distribution::this();
    if let Some(why) = by_hand {
        if !machine.program("apt-get") {
            let packages: Vec<&'static str> = told.iter().filter_map(|tool| tool.package()).collect();
            return Err(format!("{why}; install the above by hand ({})", here.advice(&packages)));
        }
        // Whoever types them can type a password, too.
        let typed = plan(&told, (root, true), here);
        let typed: String = typed.iter().map(|step| format!("\n    {}", step.shown())).collect();
        return Err(format!("{why}; by hand it is{typed}"));
    }
    let steps = plan(&missing, (root, terminal), here);
    let mut failed = Vec::new();
    for step in &steps {
        say(&format!("$ {}", step.shown()));
        match run(step) {
            Ok(status) if status.success() => {}
            Ok(status) if step.must => return Err(format!("`{}` ended with {status}", step.shown())),
            Ok(status) => {
                say(&format!("ended with {status}; continuing"));
                failed.push(format!("`{}` ended with {status}", step.shown()));
            }
            Err(error) => return Err(format!("`{}`: {error}", step.shown())),
        }
    }
    // Not what the commands say but what is there now.
    let still = Machine::this().missing(purpose);
    match still.is_empty() {
        true => Ok(Done::Installed),
        false => Err(still_missing(&still, &failed)),
    }
}

/// What is said when something is still missing after the set-up.
fn still_missing(still: &[&Tool], failed: &[String]) -> String {
    let names: Vec<&str> = still.iter().map(|tool| tool.name).collect();
    let names = names.join(", ");
    if failed.is_empty() {
        return format!("installed, and still not found: {names}");
    }
    let failed = failed.join("\n  ");
    format!(
        "not installed: {names}\n  {failed}\n\
         Its own words are above. Usual reasons: the package mirror cannot be reached (network, proxy), another program holds apt's \
         lock, the disk is full. The same command again goes on from here."
    )
}

/// Does the set-up for `purpose` need somebody at the terminal: for a password, or to be told what only an administrator can do?
#[must_use]
pub fn needs_somebody(purpose: Purpose) -> bool {
    let machine = Machine::this();
    let packages = machine.missing(purpose).iter().any(|tool| tool.package().is_some());
    packages
        && match Root::of(&machine) {
            Root::Already => false,
            Root::Sudo => !sudo_without_password(),
            Root::No => true,
        }
}

/// Does `sudo` do something without asking?
fn sudo_without_password() -> bool {
    let mut sudo = Command::new("sudo");
    let quiet = sudo.args(["-n", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Starts the machine's Docker Engine when none answers: by systemd where there is one, else by its start script. It goes on
/// running.
///
/// # Errors
/// It cannot be started, with the command that was tried.
pub fn start_engine(say: Say) -> Result<&'static str, String> {
    const SOCKET: &str = "/var/run/docker.sock";
    let answers = || {
        std::os::unix::net::UnixStream::connect(SOCKET).is_ok()
            || std::os::unix::net::UnixStream::connect("/run/podman/podman.sock").is_ok()
    };
    if std::env::var_os("DOCKER_HOST").is_some_and(|host| !host.is_empty()) {
        return Ok("DOCKER_HOST names the container engine; nothing is started");
    }
    if answers() {
        return Ok("a container engine runs");
    }
    // Start scripts want limits raised, which a machine with limits refuses; the engine itself can do without.
    const ITSELF: &str = "setsid dockerd >>/var/log/docker.log 2>&1 </dev/null &";
    let ways: &[&[&str]] = match Path::new("/run/systemd/system").exists() {
        true => &[&["systemctl", "start", "docker"]],
        false => &[&["/etc/init.d/docker", "start"], &["sh", "-c", ITSELF]],
    };
    let root = fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    let mut failed = Vec::new();
    let started = ways.iter().any(|argv| {
        let words = if root { &[][..] } else { &["sudo"][..] };
        let argv: Vec<String> = words.iter().chain(*argv).map(|word| (*word).to_owned()).collect();
        let step = SetupCommand { argv, must: true };
        let command = step.argv.join(" ");
        say(&format!("$ {command}"));
        match run(&step) {
            Ok(status) if status.success() => return true,
            Ok(status) => failed.push(format!("`{command}` ended with {status}")),
            Err(error) => failed.push(format!("`{command}`: {error}")),
        }
        false
    });
    if !started {
        return Err(failed.join("; "));
    }
    let begun = std::time::Instant::now();
    while !answers() {
        if begun.elapsed() > std::time::Duration::from_secs(30) {
            return Err(format!("the engine was started, but nothing listens at {SOCKET}; see /var/log/docker.log"));
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Ok("the container engine was started and keeps running")
}

/// What [`ensure`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// Nothing.
    WasThere,
    /// Something.
    Installed,
}

/// Tells Debian's packages not to make (and start) a server of their own. Only there while they are installed: what the
/// user installs later is the user's business.
const NO_MAIN_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/vlab.conf";

/// The package starts a server, now and at each boot; the tests only want the program. Where there is no systemd nothing started.
const NO_ETCD_SERVICE: &str = "systemctl disable --now etcd.service 2> /dev/null || true";

/// Seconds that apt waits for another one (updates that go on by themselves, for example) before it gives up.
const WAIT_FOR_LOCK: &str = "-oDPkg::Lock::Timeout=180";

fn plan(missing: &[&Tool], (root, terminal): (Root, bool), here: Distribution) -> Vec<SetupCommand> {
    let mut steps = Vec::new();
    let mut packages: Vec<&'static str> = missing.iter().filter_map(|tool| tool.package()).collect();
    // Where `qemu-utils` came from a newer release than the one that is installed from, apt removes it to install QEMU,
    // and refuses to install both at once. So QEMU first, and then what fits to it, even if it was there before.
    let qemu = packages.contains(&QEMU_PACKAGE);
    if qemu {
        packages.retain(|package| *package != QEMU_IMG_PACKAGE);
    }
    let as_root: &[&str] = match (root, terminal) {
        (Root::Already, _) => &[],
        (Root::Sudo | Root::No, true) => &["sudo"],
        // Nobody is there to type a password.
        (Root::Sudo | Root::No, false) => &["sudo", "-n"],
    };
    let mut step = |must: bool, before: &[&str], argv: &[&str]| {
        let argv = before.iter().chain(argv).map(|word| (*word).to_owned()).collect();
        steps.push(SetupCommand { argv, must });
    };
    if !packages.is_empty() {
        let database = packages.contains(&"postgresql");
        if database {
            let script = format!(
                "mkdir -p $(dirname {NO_MAIN_CLUSTER}) && echo 'create_main_cluster = false' > {NO_MAIN_CLUSTER}"
            );
            step(true, as_root, &["sh", "-c", &script]);
        }
        // Fails without a network; the lists may be fresh enough all the same.
        step(false, as_root, &["apt-get", "update", "-q"]);
        let install = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", WAIT_FOR_LOCK, "install", "-q", "-y"];
        let with = |packages: &[&'static str]| {
            let named = packages.iter().flat_map(|package| here.package(package).split(' '));
            install.iter().copied().chain(["--no-install-recommends"]).chain(named).collect::<Vec<_>>()
        };
        // Not `must`: the line after it is to be removed in any case. What is still missing is seen at the end.
        step(false, as_root, &with(&packages));
        if qemu {
            step(false, as_root, &with(&[QEMU_IMG_PACKAGE]));
        }
        if database {
            step(false, as_root, &["rm", "-f", NO_MAIN_CLUSTER]);
        }
        if packages.contains(&ETCD_PACKAGE) {
            step(false, as_root, &["sh", "-c", NO_ETCD_SERVICE]);
        }
    }
    for tool in missing {
        match tool.source {
            Source::Apt(_) => {}
            Source::Cargo(name) => step(true, &[], &["cargo", "install", "--locked", name]),
            Source::Rustup(name) => step(true, &[], &["rustup", "component", "add", name]),
        }
    }
    steps
}

fn run(step: &SetupCommand) -> std::io::Result<ExitStatus> {
    let (program, args) = step.argv.split_first().ok_or_else(|| std::io::Error::other("an empty command"))?;
    let mut command = match (program.as_str(), std::env::var_os("CARGO")) {
        // The cargo that runs us, even when PATH has another one or none.
        ("cargo", Some(cargo)) => Command::new(cargo),
        (program, _) => Command::new(OsStr::new(program)),
    };
    // Set for us by `cargo run`, and wrong for the build of another crate.
    command.env_remove("CARGO_TARGET_DIR").args(args).stdout(Stdio::from(std::io::stderr())).status()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(names: &[&str]) -> Vec<&'static Tool> {
        TOOLS.iter().filter(|tool| names.contains(&tool.name)).collect()
    }

    fn lines(steps: &[SetupCommand]) -> Vec<String> {
        steps.iter().map(|step| step.argv.join(" ")).collect()
    }

    #[test]
    fn the_database_is_installed_without_a_server_of_its_own() {
        let lines =
            lines(&plan(&tools(&["PostgreSQL server", "chromium"]), (Root::Already, true), Distribution::Debian));
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[0].contains("create_main_cluster = false"), "{lines:?}");
        assert_eq!(lines[1], "apt-get update -q");
        assert!(
            lines[2].ends_with(
                "apt-get -oDPkg::Lock::Timeout=180 install -q -y --no-install-recommends postgresql chromium"
            ),
            "{lines:?}"
        );
        assert_eq!(lines[3], format!("rm -f {NO_MAIN_CLUSTER}"));
    }

    #[test]
    fn etcd_is_installed_without_a_server_of_its_own() {
        let lines = lines(&plan(&tools(&["etcd", "etcdctl"]), (Root::Already, true), Distribution::Debian));
        assert!(lines[1].ends_with("etcd-server etcd-client"), "{lines:?}");
        assert_eq!(lines[2], format!("sh -c {NO_ETCD_SERVICE}"));
    }

    #[test]
    fn what_is_to_be_done_by_hand_can_be_pasted_into_a_shell() {
        for step in plan(&tools(&["PostgreSQL server", "etcd"]), (Root::Sudo, true), Distribution::Debian) {
            let words = format!("printf '%s\\n' {}", step.shown());
            let out = Command::new("sh").args(["-c", &words]).output().unwrap();
            assert_eq!(String::from_utf8(out.stdout).unwrap(), step.argv.join("\n") + "\n", "{}", step.shown());
        }
    }

    #[test]
    fn ubuntu_has_names_of_its_own() {
        let missing = tools(&["libvirt with its QEMU driver", "chromium"]);
        let lines = lines(&plan(&missing, (Root::Already, true), Distribution::Ubuntu));
        assert!(lines[1].ends_with("--no-install-recommends libvirt-daemon-driver-qemu chromium-browser"), "{lines:?}");
    }

    #[test]
    fn what_could_not_be_installed_says_what_was_tried() {
        let missing = tools(&["QEMU", "nft"]);
        assert_eq!(still_missing(&missing, &[]), "installed, and still not found: QEMU, nft");
        let text = still_missing(&missing, &["`apt-get install x` ended with exit status: 100".to_owned()]);
        for part in ["not installed: QEMU, nft", "`apt-get install x` ended with exit status: 100", "mirror", "lock"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn only_apt_needs_root() {
        let missing = tools(&["chromium", "cargo-nextest", "clippy"]);
        for (root, terminal, prefix) in [(Root::Sudo, true, "sudo apt-get"), (Root::Sudo, false, "sudo -n apt-get")] {
            let lines = lines(&plan(&missing, (root, terminal), Distribution::Debian));
            assert!(lines[0].starts_with(prefix), "{lines:?}");
            assert_eq!(lines[2..], ["rustup component add clippy", "cargo install --locked cargo-nextest"]);
        }
    }

    fn empty_machine(root: &Path) -> Machine {
        Machine {
            root: root.to_path_buf(),
            path: vec![root.join("bin")],
            pg_bin: None,
            database_url: false,
            engine_named: false,
            browser_named: false,
        }
    }

    fn names(tools: &[&Tool]) -> Vec<&'static str> {
        tools.iter().map(|tool| tool.name).collect()
    }

    #[test]
    fn qemu_comes_before_the_tools_that_fit_to_it() {
        let ends = |names: &[&str]| {
            let lines = lines(&plan(&tools(names), (Root::Already, true), Distribution::Debian));
            let last_words =
                |line: &String| line.split_once("--no-install-recommends ").map(|(_, rest)| rest.to_owned());
            lines.iter().filter_map(last_words).collect::<Vec<_>>()
        };
        assert_eq!(ends(&["QEMU", "qemu-img", "nft"]), ["qemu-system-x86 nftables", "qemu-utils"]);
        // It was there, and the installation of QEMU may have removed it.
        assert_eq!(ends(&["QEMU"]), ["qemu-system-x86", "qemu-utils"]);
        assert_eq!(ends(&["qemu-img"]), ["qemu-utils"]);
    }

    #[test]
    fn what_is_needed_later_is_told_once_and_in_one_list() {
        let machine = empty_machine(&std::env::temp_dir().join(format!("xtask-setup-none-{}", std::process::id())));
        let both = names(&machine.missing_for(Purpose::Run, &[Purpose::Machines, Purpose::Images]));
        assert_eq!(both.iter().filter(|name| **name == "PostgreSQL server").count(), 1, "{both:?}");
        for name in ["QEMU", "libvirt's header and library", "mksquashfs"] {
            assert!(both.contains(&name), "{name}: {both:?}");
        }
        assert_eq!(names(&machine.missing(Purpose::Run)), ["PostgreSQL server"]);
    }

    #[test]
    fn simulated_hosts_need_no_machines_and_machines_need_no_browser() {
        assert!(Purpose::Machines.includes(Purpose::Run) && Purpose::Test.includes(Purpose::Machines));
        assert!(!Purpose::Run.includes(Purpose::Machines) && !Purpose::Machines.includes(Purpose::Images));
        assert!(Purpose::Test.includes(Purpose::Images) && !Purpose::Images.includes(Purpose::Run));
        assert!(!Purpose::Test.includes(Purpose::Containers) && Purpose::Containers.includes(Purpose::Containers));
    }

    #[test]
    fn what_is_missing_depends_on_the_purpose() {
        let root = std::env::temp_dir().join(format!("xtask-setup-{}", std::process::id()));
        let machine = empty_machine(&root);
        assert_eq!(names(&machine.missing(Purpose::Run)), ["PostgreSQL server"]);
        assert_eq!(machine.missing(Purpose::Test).len(), TOOLS.len() - 2, "neither an engine nor a fresh machine");
        assert_eq!(names(&machine.missing(Purpose::Containers)), ["Docker Engine"]);
        let named = Machine { engine_named: true, ..empty_machine(&root) };
        assert_eq!(names(&named.missing(Purpose::Containers)), [] as [&str; 0]);
        assert_eq!(
            names(&Machine { database_url: true, ..empty_machine(&root) }.missing(Purpose::Run)),
            [] as [&str; 0]
        );

        let put = |path: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        put("usr/lib/postgresql/15/bin/postgres");
        assert_eq!(names(&machine.missing(Purpose::Run)), ["PostgreSQL server"], "half a server is none");
        put("usr/lib/postgresql/15/bin/initdb");
        assert_eq!(names(&machine.missing(Purpose::Run)), [] as [&str; 0]);
        let elsewhere = Machine { pg_bin: Some(root.join("nowhere")), ..empty_machine(&root) };
        assert_eq!(names(&elsewhere.missing(Purpose::Run)), ["PostgreSQL server"], "what is named is what counts");
        for name in [
            "google-chrome",
            "cargo-fmt",
            "cargo-clippy",
            "pkg-config",
            "mksquashfs",
            "xorriso",
            "mcopy",
            "xz",
            "etcd",
            "etcdctl",
        ] {
            put(&format!("bin/{name}"));
        }
        for name in ["mkfs.vfat", "debugfs", "sgdisk", "grub-mkimage", "depmod"] {
            put(&format!("usr/sbin/{name}"));
        }
        for name in ["openssl/ssl.h", "zstd.h", "lzma.h"] {
            assert!(!machine.missing(Purpose::Images).is_empty());
            put(&format!("usr/include/{name}"));
        }
        assert_eq!(names(&machine.missing(Purpose::Images)), [] as [&str; 0]);
        for name in ["qemu-system-x86_64", "qemu-img", "swtpm", "dnsmasq", "ip", "tc", "nft"] {
            put(&format!("usr/sbin/{name}"));
        }
        for name in ["ssh", "ssh-keygen"] {
            assert!(names(&machine.missing(Purpose::Machines)).contains(&"ssh"));
            put(&format!("bin/{name}"));
        }
        put("usr/share/OVMF/OVMF_CODE_4M.fd");
        assert_eq!(
            names(&machine.missing(Purpose::Machines)),
            ["libvirt with its QEMU driver", "libvirt's header and library"]
        );
        put("usr/lib64/libvirt/connection-driver/libvirt_driver_qemu.so");
        put("usr/lib64/pkgconfig/libvirt.pc");
        assert_eq!(names(&machine.missing(Purpose::Machines)), [] as [&str; 0]);
        assert_eq!(names(&machine.missing(Purpose::Test)), ["cargo-nextest"]);
        fs::remove_dir_all(&root).unwrap();
    }
}
