//! What a run needs of this machine, as a table: what for, how to see that it *works* (not only that it is there), and how
//! to get it.
//!
//! The checks do the thing itself in small: the database is started and asked, a virtual machine boots a sector that says
//! that it ran, the browser draws a page. What only later runs need is looked at too, and says so.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use vlab_setup::Distribution;

use crate::ledger::Ledger;
use crate::machines::memory::available;
use crate::machines::{Accel, Firmware, MachineError, Machines, MachinesOptions, find_ovmf, probe};
use crate::network::{Form, NetworkError, namespace, permits};
use crate::postgres::{PgCluster, PgError, PgOptions};
use crate::ssh::{self, SshError};
use crate::try_out::{Tried, TryError, try_out};

/// Sockets of one simulated host when hosts and service run on this machine: both ends of its connection.
const FILES_PER_HOST: u64 = 2;

/// Open files of the harness itself, its database connections and its logs included.
const FILES_OF_HARNESS: u64 = 512;

/// Memory for one idle simulated host, with the service's part of it and the kernel's buffers for its connection.
const BYTES_PER_HOST: u64 = 200 * 1024;

/// Memory without any host: harness, service, PostgreSQL with its shared buffers.
const BYTES_OF_HARNESS: u64 = 768 << 20;

/// Room for a run's directory and for the database.
const DISK: u64 = 1 << 30;

/// For which run the machine is examined.
#[derive(Debug, Clone)]
pub struct Context {
    /// How many simulated hosts it shall carry.
    pub hosts: u32,
    /// Where runs are written; its nearest existing parent counts.
    pub run_dir: PathBuf,
}

/// For what something is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Needed {
    /// For every run: without it nothing starts.
    ToRun,
    /// Only for the project's own tests.
    ToTest,
    /// For some kinds of runs only, which say so when it is not there.
    ForSome,
    /// Only for virtual machines and their network.
    ForMachines,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    /// It is there and works.
    Found,
    /// It is not there.
    Missing,
    /// It is there and does not work, or there is too little of it.
    Unusable,
}

/// One line of the examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Short name.
    pub name: &'static str,
    /// What it is for.
    pub why: &'static str,
    /// For what it is needed.
    pub needed: Needed,
    /// What was found.
    pub state: FindingState,
    /// What was seen.
    pub detail: String,
    /// How to get it; only when it is not found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// The whole examination, in the order of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// One for each need.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// Can a run start?
    #[must_use]
    pub fn can_run(&self) -> bool {
        self.lacking(Needed::ToRun).next().is_none()
    }

    /// What is not found of what is needed for that.
    pub fn lacking(&self, needed: Needed) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.needed == needed && finding.state != FindingState::Found)
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let state = match finding.state {
                FindingState::Found => "found",
                FindingState::Missing => "MISSING",
                FindingState::Unusable => "UNUSABLE",
            };
            let later = match finding.needed {
                Needed::ForMachines => " (for virtual machines)",
                Needed::ForSome => " (for some runs)",
                Needed::ToRun | Needed::ToTest => "",
            };
            writeln!(f, "{state:<9} {:<16} {}{later}", finding.name, finding.detail)?;
            if let Some(fix) = &finding.fix {
                writeln!(f, "{:<26} for: {}", "", finding.why)?;
                writeln!(f, "{:<26} fix: {fix}", "")?;
            }
        }
        match (self.can_run(), self.lacking(Needed::ToTest).next().is_none()) {
            (true, true) => writeln!(f, "ready for runs and for the tests"),
            (true, false) => writeln!(f, "ready for runs; the project's own tests need more"),
            (false, _) => writeln!(f, "NOT ready: see above"),
        }
    }
}

type StateAndDetail = (FindingState, String);

#[derive(Clone, Copy)]
enum Procedure {
    Blocking(fn(&Context) -> StateAndDetail),
    Postgres,
    Machines,
}

struct Need {
    name: &'static str,
    why: &'static str,
    needed: Needed,
    check: Procedure,
    /// `{packages}` stands for what installs `packages`.
    fix: &'static str,
    /// Debian's names.
    packages: &'static [&'static str],
}

impl Need {
    /// How to get it, with the names that packages have there.
    fn fix_on(&self, here: Distribution) -> String {
        self.fix.replace("{packages}", &here.advice(self.packages))
    }
}

/// The table.
const NEEDS: &[Need] = &[
    Need {
        name: "postgresql",
        why: "the service keeps its state in a real PostgreSQL",
        needed: Needed::ToRun,
        check: Procedure::Postgres,
        fix: "`cargo xtask setup` ({packages}), or an existing server in DATABASE_URL",
        packages: &["postgresql"],
    },
    Need {
        name: "disk",
        why: "the run's history, logs and database",
        needed: Needed::ToRun,
        check: Procedure::Blocking(disk),
        fix: "free some space, or set TMPDIR and the run directory to another disk",
        packages: &[],
    },
    Need {
        name: "memory",
        why: "hosts, service and database side by side",
        needed: Needed::ToRun,
        check: Procedure::Blocking(memory),
        fix: "close other programs, or run fewer hosts",
        packages: &[],
    },
    Need {
        name: "open files",
        why: "each simulated host has a connection, with both ends on this machine",
        needed: Needed::ToRun,
        check: Procedure::Blocking(open_files),
        fix: "raise the hard limit (ulimit -Hn; LimitNOFILE= of the unit, nofile in limits.conf), or run fewer hosts",
        packages: &[],
    },
    Need {
        name: "loopback ports",
        why: "service and hosts talk over 127.0.0.1",
        needed: Needed::ToRun,
        check: Procedure::Blocking(ports),
        fix: "widen net.ipv4.ip_local_port_range, bring up the interface `lo`, or run fewer hosts",
        packages: &[],
    },
    Need {
        name: "cargo-nextest",
        why: "runs the project's tests",
        needed: Needed::ToTest,
        check: Procedure::Blocking(nextest),
        fix: "`cargo xtask setup` (cargo install --locked cargo-nextest)",
        packages: &[],
    },
    Need {
        name: "chromium",
        why: "a test opens the report in a real browser",
        needed: Needed::ToTest,
        check: Procedure::Blocking(chromium),
        fix: "`cargo xtask setup` ({packages})",
        packages: &["chromium"],
    },
    Need {
        name: "acceleration",
        why: "virtual machines run under KVM, or under TCG where KVM does not work",
        needed: Needed::ForMachines,
        check: Procedure::Blocking(acceleration),
        fix: "`vlab setup --machines` ({packages})",
        packages: &["qemu-system-x86"],
    },
    Need {
        name: "libvirt",
        why: "defines and watches the virtual machines",
        needed: Needed::ForMachines,
        check: Procedure::Machines,
        fix: "`vlab setup --machines` ({packages}), then \
              `cargo build -p vlab-libvirt-helper` where `vlab` was built",
        packages: &["libvirt-daemon", "libvirt-dev"],
    },
    Need {
        name: "qemu-img",
        why: "makes the disks of virtual machines",
        needed: Needed::ForMachines,
        check: Procedure::Blocking(qemu_img),
        fix: "`vlab setup --machines` ({packages})",
        packages: &["qemu-utils"],
    },
    Need {
        name: "ovmf",
        why: "the firmware of virtual machines that boot by UEFI",
        needed: Needed::ForMachines,
        check: Procedure::Blocking(ovmf),
        fix: "`vlab setup --machines` ({packages})",
        packages: &["ovmf"],
    },
    Need {
        name: "swtpm",
        why: "the TPM of virtual machines that have one",
        needed: Needed::ForMachines,
        check: Procedure::Blocking(swtpm),
        fix: "`vlab setup --machines` ({packages})",
        packages: &["swtpm"],
    },
    Need {
        name: "lab network",
        why: "bridge, taps, DHCP and DNS for virtual machines, in a network namespace",
        needed: Needed::ForMachines,
        check: Procedure::Blocking(lab_network),
        fix: "`vlab setup --machines` ({packages}); without root: sysctl \
              kernel.unprivileged_userns_clone=1 (and kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu)",
        packages: &["iproute2", "nftables", "dnsmasq-base"],
    },
    Need {
        name: "ssh",
        why: "the way into virtual machines: `ssh-keygen` makes the key of a run, `vlab ssh` uses it",
        needed: Needed::ForMachines,
        check: Procedure::Blocking(ssh),
        fix: "`vlab setup --machines` ({packages})",
        packages: &["openssh-client"],
    },
    Need {
        name: "container engine",
        why: "the service and PostgreSQL as containers (`--service container:IMAGE`); nothing else needs it",
        needed: Needed::ForSome,
        check: Procedure::Blocking(engine),
        fix: "`cargo xtask setup --containers` ({packages}, and start it), or Podman with its socket; \
              if this user may not use the engine: usermod -aG docker USER, and log in again",
        packages: &["docker.io"],
    },
];

/// Examines this machine. Takes a second or two: the checks do the real thing.
pub async fn examine(context: Context) -> Examination {
    let mut findings = Vec::new();
    for need in NEEDS {
        findings.push(look(need, &context).await);
    }
    Examination { findings }
}

/// Examines one need of the table, by its name. `None`: there is none of that name.
pub async fn examine_one(name: &str, context: Context) -> Option<Finding> {
    match NEEDS.iter().find(|need| need.name == name) {
        Some(need) => Some(look(need, &context).await),
        None => None,
    }
}

async fn look(need: &Need, context: &Context) -> Finding {
    let (state, detail) = match need.check {
        Procedure::Postgres => postgres().await,
        Procedure::Machines => libvirt().await,
        Procedure::Blocking(check) => {
            let context = context.clone();
            let checked = tokio::task::spawn_blocking(move || check(&context)).await;
            checked.unwrap_or_else(|panic| (FindingState::Unusable, format!("the check itself failed: {panic}")))
        }
    };
    let fix = (state != FindingState::Found).then(|| need.fix_on(Distribution::this()));
    Finding { name: need.name, why: need.why, needed: need.needed, state, detail, fix }
}

/// Raises the soft limit of open files to the hard one and returns it. Call it before any connection is made.
///
/// # Errors
/// The limit cannot be read or set.
pub fn raise_open_files() -> std::io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// How many simulated hosts this many open files carry, with both ends of each connection on this machine.
#[must_use]
pub fn hosts_for_open_files(files: u64) -> u64 {
    files.saturating_sub(FILES_OF_HARNESS) / FILES_PER_HOST
}

async fn postgres() -> StateAndDetail {
    let cluster = match PgCluster::start(PgOptions::from_env()).await {
        Ok(cluster) => cluster,
        Err(error @ PgError::NotFound { .. }) => return (FindingState::Missing, first_line(&error)),
        Err(error) => return (FindingState::Unusable, first_line(&error)),
    };
    let (version, times) = (cluster.version().to_owned(), cluster.start_times());
    let whose = if cluster.is_ours() { "private server" } else { "server of DATABASE_URL" };
    match cluster.stop().await {
        Ok(()) => {
            (FindingState::Found, format!("{version}: a {whose} answered a query in {} ms", times.total.as_millis()))
        }
        Err(error) => (FindingState::Unusable, first_line(&error)),
    }
}

fn first_line(error: &dyn fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

fn disk(context: &Context) -> StateAndDetail {
    let mut details = Vec::new();
    let mut state = FindingState::Found;
    for (what, dir) in [("runs", context.run_dir.clone()), ("temporary files", std::env::temp_dir())] {
        let dir = nearest_existing(&dir);
        let free = nix::sys::statvfs::statvfs(&dir).map(|fs| fs.blocks_available() * fs.fragment_size());
        // Free space is no right to write.
        let written = tempfile::tempfile_in(&dir).and_then(|file| file.set_len(4096));
        match (free, written) {
            (Ok(free), Ok(())) => {
                if free < DISK {
                    state = FindingState::Unusable;
                }
                details.push(format!("{} free for {what} in {}", bytes(free), dir.display()));
            }
            (Err(error), _) => {
                state = FindingState::Unusable;
                details.push(format!("{}: {error}", dir.display()));
            }
            (_, Err(error)) => {
                state = FindingState::Unusable;
                details.push(format!("cannot write into {}: {error}", dir.display()));
            }
        }
    }
    if state == FindingState::Unusable {
        details.push(format!("{} are needed", bytes(DISK)));
    }
    (state, details.join("; "))
}

fn nearest_existing(dir: &Path) -> PathBuf {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    absolute.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/")).to_path_buf()
}

fn memory(context: &Context) -> StateAndDetail {
    let needed = BYTES_OF_HARNESS + u64::from(context.hosts) * BYTES_PER_HOST;
    let Some(available) = available() else {
        return (FindingState::Unusable, "/proc/meminfo does not say what is available".to_owned());
    };
    let detail = format!("{} available, {} needed for {} hosts", bytes(available), bytes(needed), context.hosts);
    (if available >= needed { FindingState::Found } else { FindingState::Unusable }, detail)
}

fn open_files(context: &Context) -> StateAndDetail {
    let needed = FILES_OF_HARNESS + u64::from(context.hosts) * FILES_PER_HOST;
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) => {
            let most = hosts_for_open_files(hard);
            let detail = format!("{hard} allowed, {needed} needed for {} hosts (enough for {most})", context.hosts);
            (if hard >= needed { FindingState::Found } else { FindingState::Unusable }, detail)
        }
        Err(error) => (FindingState::Unusable, error.to_string()),
    }
}

fn ports(context: &Context) -> StateAndDetail {
    let spoken = || -> std::io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect_timeout(&listener.local_addr()?, Duration::from_secs(2))?;
        let (_, peer) = listener.accept()?;
        if peer == near.local_addr()? { Ok(()) } else { Err(std::io::Error::other("something else answered")) }
    };
    if let Err(error) = spoken() {
        return (FindingState::Unusable, format!("no connection over 127.0.0.1: {error}"));
    }
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let numbers: Vec<u64> = range.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [low, high] = numbers[..] else {
        return (FindingState::Unusable, "cannot read the range of local ports".to_owned());
    };
    let (count, needed) = ((high + 1).saturating_sub(low), u64::from(context.hosts) + 64);
    let detail = format!("{count} ports, {needed} needed for {} hosts", context.hosts);
    (if count >= needed { FindingState::Found } else { FindingState::Unusable }, detail)
}

fn nextest(_: &Context) -> StateAndDetail {
    try_it("cargo", ["nextest", "--version"], 20, |tried| match tried.status.success() {
        true => Ok(tried.stdout.lines().next().unwrap_or_default().to_owned()),
        false => Err((FindingState::Missing, "cargo has no subcommand `nextest`".to_owned())),
    })
}

fn chromium(_: &Context) -> StateAndDetail {
    let Some(browser) = vlab_setup::browser() else {
        return (FindingState::Missing, "neither chromium nor google-chrome is in PATH".to_owned());
    };
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => return (FindingState::Unusable, error.to_string()),
    };
    // The script must have run: its words are not in the page as written.
    let page = folder.path().join("page.html");
    if let Err(error) = fs::write(&page, "<body><script>document.body.innerText='drawn'.repeat(2)</script>") {
        return (FindingState::Unusable, error.to_string());
    }
    let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
    let page = format!("file://{}", page.display());
    let args = vlab_setup::BROWSER_ARGS.into_iter().chain([&*profile, "--dump-dom", &*page]);
    let browser = browser.display().to_string();
    try_it(&browser, args, 30, |tried| match tried.stdout.contains("drawndrawn") {
        true => Ok(format!("{browser} draws a page")),
        false => {
            Err((FindingState::Unusable, format!("{browser} draws nothing ({}): {}", tried.status, tried.last_words())))
        }
    })
}

/// Which one machines get, and why not the better one.
fn acceleration(_: &Context) -> StateAndDetail {
    match probe::probe() {
        Ok(found) => (FindingState::Found, found.why),
        Err(error) if probe::qemu().is_none() => (FindingState::Missing, error.to_string()),
        Err(error) => (FindingState::Unusable, error.to_string()),
    }
}

/// The helper connects to the embedded driver, which asks QEMU what it can do.
async fn libvirt() -> StateAndDetail {
    let (folder, id) = match (tempfile::tempdir(), format!("doctor-{}", std::process::id())) {
        (Ok(folder), id) => (folder, id),
        (Err(error), _) => return (FindingState::Unusable, error.to_string()),
    };
    let ledger = match Ledger::create(&folder.path().join("ledgers"), &id) {
        Ok(ledger) => Arc::new(ledger),
        Err(error) => return (FindingState::Unusable, error.to_string()),
    };
    let mut options = MachinesOptions::new(&ledger, Accel::Tcg, folder.path());
    options.scratch = folder.path().to_path_buf();
    let machines = match Machines::start(options).await {
        Ok(machines) => machines,
        Err(error @ (MachineError::NoHelper(_) | MachineError::NoLibvirt { .. })) => {
            return (FindingState::Missing, error.to_string());
        }
        Err(error) => return (FindingState::Unusable, error.to_string()),
    };
    let versions = machines.versions().clone();
    match machines.stop().await {
        Ok(()) => {
            (FindingState::Found, format!("libvirt {} (embedded driver) with QEMU {}", versions.libvirt, versions.qemu))
        }
        Err(error) => (FindingState::Unusable, error.to_string()),
    }
}

fn ovmf(_: &Context) -> StateAndDetail {
    match (find_ovmf(Firmware::Uefi), find_ovmf(Firmware::UefiSecure)) {
        (Some((code, _)), Some((secure, _))) => {
            (FindingState::Found, format!("{}; {} for secure boot", code.display(), secure.display()))
        }
        (Some((code, _)), None) => {
            (FindingState::Found, format!("{}; none for `firmware: uefi-secure`", code.display()))
        }
        (None, _) => (FindingState::Missing, "no OVMF_CODE_4M.fd in its usual places".to_owned()),
    }
}

fn swtpm(_: &Context) -> StateAndDetail {
    try_it("swtpm", ["socket", "--print-capabilities"], 5, |tried| match tried.status.success() {
        true => Ok("works".to_owned()),
        false => Err((FindingState::Unusable, tried.last_words())),
    })
}

/// Makes the network itself, in the form of this user; root is told about the other form, too.
fn lab_network(_: &Context) -> StateAndDetail {
    if let Err(error) = namespace::find("dnsmasq") {
        return (FindingState::Missing, error.to_string());
    }
    let (mine, helper) = (Form::of_this_user(), Path::new("/proc/self/exe"));
    let said = |form| match permits(form, helper) {
        Ok(()) => Ok(format!("{form}: works")),
        Err(error) => Err(error),
    };
    let other = match mine {
        // Only root can have it.
        Form::User => String::new(),
        Form::Named => said(Form::User).map_or_else(|error| format!("; {error}"), |works| format!("; {works}")),
    };
    match said(mine) {
        Ok(works) => (FindingState::Found, format!("{works}{other}")),
        Err(error @ NetworkError::Missing { .. }) => (FindingState::Missing, error.to_string()),
        Err(error) => (FindingState::Unusable, format!("{error}{other}")),
    }
}

/// Makes a key, and asks `ssh` for its version.
fn ssh(_: &Context) -> StateAndDetail {
    let dir = match tempfile::tempdir() {
        Ok(dir) => dir,
        Err(error) => return (FindingState::Unusable, error.to_string()),
    };
    match ssh::generate(&dir.path().join("key"), "doctor") {
        Ok(()) => {}
        Err(error @ SshError::Missing { .. }) => return (FindingState::Missing, error.to_string()),
        Err(error) => return (FindingState::Unusable, error.to_string()),
    }
    try_it("ssh", ["-V"], 5, |tried| match tried.status.success() {
        true => Ok(tried.last_words()),
        false => Err((FindingState::Unusable, tried.last_words())),
    })
}

fn qemu_img(_: &Context) -> StateAndDetail {
    let dir = match tempfile::tempdir() {
        Ok(dir) => dir,
        Err(error) => return (FindingState::Unusable, error.to_string()),
    };
    let disk = dir.path().join("disk.qcow2");
    let args = ["create".as_ref(), "-q".as_ref(), "-f".as_ref(), "qcow2".as_ref(), disk.as_os_str(), "1G".as_ref()];
    try_it::<&OsStr>("qemu-img", args, 5, |tried| match tried.status.success() && disk.is_file() {
        true => Ok("makes a qcow2 disk".to_owned()),
        false => Err((FindingState::Unusable, tried.last_words())),
    })
}

fn engine(_: &Context) -> StateAndDetail {
    match vlab_container_engine::find() {
        Ok(engine) => match engine.images() {
            Ok(images) => (FindingState::Found, format!("{engine}, {} images", images.len())),
            Err(error) => (FindingState::Unusable, first_line(&error)),
        },
        Err(none) => {
            let looked: Vec<String> = none.looked.iter().map(|(place, why)| format!("{place}: {why}")).collect();
            let state = if none.is_missing() { FindingState::Missing } else { FindingState::Unusable };
            (state, format!("{} ({})", none.cause(), looked.join(", ")))
        }
    }
}

/// Runs a program for at most `seconds` and lets `judge` read what came of it.
fn try_it<A: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = A>,
    seconds: u64,
    judge: impl Fn(&Tried) -> Result<String, StateAndDetail>,
) -> StateAndDetail {
    match try_out(program, args, Duration::from_secs(seconds)) {
        Ok(tried) => judge(&tried).map_or_else(|verdict| verdict, |detail| (FindingState::Found, detail)),
        Err(TryError::Missing(why)) => (FindingState::Missing, why),
        Err(TryError::Failed(why)) => (FindingState::Unusable, why),
    }
}

/// For people: `1.5 GiB`, `200 MiB`.
fn bytes(count: u64) -> String {
    let mib = count >> 20;
    if mib < 1024 { format!("{mib} MiB") } else { format!("{}.{} GiB", mib / 1024, mib % 1024 * 10 / 1024) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Instant;

    use super::*;

    fn context(hosts: u32) -> Context {
        Context { hosts, run_dir: PathBuf::from("target/not/there/yet") }
    }

    #[test]
    fn the_table_is_complete_and_without_doubles() {
        let names: BTreeSet<&str> = NEEDS.iter().map(|need| need.name).collect();
        assert_eq!(names.len(), NEEDS.len());
        for need in NEEDS {
            assert!(!need.why.is_empty() && !need.fix.is_empty(), "{}", need.name);
            assert_eq!(need.fix.contains("{packages}"), !need.packages.is_empty(), "{}", need.name);
        }
        let fix = |here| NEEDS.iter().find(|need| need.name == "ovmf").map(|need| need.fix_on(here)).unwrap();
        assert_eq!(fix(Distribution::Ubuntu), "`vlab setup --machines` (Ubuntu: apt-get install ovmf)");
        assert_eq!(fix(Distribution::Fedora), "`vlab setup --machines` (Fedora: dnf install edk2-ovmf)");
    }

    #[test]
    fn too_many_hosts_for_this_machine_are_unusable_and_say_how_many_fit() {
        assert_eq!(open_files(&context(1)).0, FindingState::Found);
        let (state, detail) = open_files(&context(u32::MAX));
        assert_eq!(state, FindingState::Unusable);
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(detail.contains(&format!("(enough for {})", hosts_for_open_files(hard))), "{detail}");
        assert_eq!(ports(&context(1)).0, FindingState::Found);
        assert_eq!(ports(&context(100_000)).0, FindingState::Unusable);
        assert_eq!(memory(&context(u32::MAX)).0, FindingState::Unusable);
    }

    #[test]
    fn programs_are_missing_broken_slow_or_found() {
        let judge = |tried: &Tried| match tried.status.success() {
            true => Ok(tried.stdout.trim().to_owned()),
            false => Err((FindingState::Unusable, tried.last_words())),
        };
        assert_eq!(try_it("no-such-program", ["x"], 5, judge).0, FindingState::Missing);
        assert_eq!(try_it("sh", ["-c", "echo fine"], 5, judge), (FindingState::Found, "fine".to_owned()));
        let broken = try_it("sh", ["-c", "echo why >&2; exit 3"], 5, judge);
        assert_eq!(broken, (FindingState::Unusable, "why".to_owned()));
        let started = Instant::now();
        let slow = try_it("sh", ["-c", "sleep 60 & wait"], 1, judge);
        assert_eq!(slow, (FindingState::Unusable, "`sh` does not end within 1 s".to_owned()));
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_is_lacking_decides_the_last_line() {
        let finding = |needed, state| Finding {
            name: "x",
            why: "y",
            needed,
            state,
            detail: "z".to_owned(),
            fix: (state != FindingState::Found).then(|| "do it".to_owned()),
        };
        let last = |findings: Vec<Finding>| {
            let text = Examination { findings }.to_string();
            text.lines().last().unwrap().to_owned()
        };
        assert_eq!(last(vec![finding(Needed::ToRun, FindingState::Found)]), "ready for runs and for the tests");
        assert_eq!(last(vec![finding(Needed::ForSome, FindingState::Missing)]), "ready for runs and for the tests");
        let tests = last(vec![finding(Needed::ToTest, FindingState::Unusable)]);
        assert_eq!(tests, "ready for runs; the project's own tests need more");
        assert_eq!(last(vec![finding(Needed::ToRun, FindingState::Unusable)]), "NOT ready: see above");
        let text = Examination { findings: vec![finding(Needed::ForSome, FindingState::Missing)] }.to_string();
        assert!(text.contains("MISSING   x                z (for some runs)\n"), "{text}");
        assert!(text.contains("fix: do it"), "{text}");
    }

    #[test]
    fn disk_is_looked_at_where_the_run_will_be() {
        let (state, detail) = disk(&context(1));
        assert!(detail.contains("free for runs in "), "{state:?} {detail}");
        assert_eq!(nearest_existing(Path::new("/no/such/dir")), Path::new("/"));
    }

    #[tokio::test]
    async fn every_need_is_examined_and_what_is_not_found_says_how_to_get_it() {
        let examination = examine(context(10)).await;
        assert_eq!(examination.findings.len(), NEEDS.len());
        for finding in &examination.findings {
            assert_eq!(finding.fix.is_some(), finding.state != FindingState::Found, "{finding:?}");
            assert!(!finding.detail.is_empty(), "{finding:?}");
        }
        println!("{examination}");
    }
}
