//! The verbs for people who look into virtual machines: spawn, console, ssh, machines.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;
use vlab_judge::result::exit;
use vlab_lab::ledger::{self, Ledger};
use vlab_lab::machines::{
    BootOrder, Bus, DiskSpec, Firmware, KnownMachine, MachineSpec, Machines, MachinesOptions, NicSpec, Plug, known,
    probe,
};
use vlab_lab::process::last_lines;
use vlab_lab::supervisor::Supervisor;
use vlab_model::console::{Classifier, plain};
use vlab_scenario::suggestion;

use crate::error::{CliError, ExitResult, OrExit as _};
use crate::say;
use crate::tools::{Setup, ensure_set_up, print};

#[derive(clap::Args)]
pub(crate) struct SpawnArgs {
    /// A bootable medium for the CD drive.
    #[arg(long, value_name = "FILE")]
    iso: Option<PathBuf>,
    /// A disk image (raw or qcow2). It is only read; what the machine writes is discarded.
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,
    /// Size of the disk in GiB. Without `--disk` it is empty. It takes only the space that is written to.
    #[arg(long, value_name = "GIB")]
    disk_size: Option<u64>,
    /// Memory in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    memory: u64,
    /// Processors.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    cpus: u32,
    /// `bios`, `uefi` or `uefi-secure`.
    #[arg(long, default_value = "bios")]
    firmware: Firmware,
    /// Give the machine a TPM 2.0.
    #[arg(long)]
    tpm: bool,
    /// Try the CD before the disk.
    #[arg(long)]
    cd_first: bool,
    /// Name of the machine.
    #[arg(long, default_value = "spawned")]
    name: String,
    /// Console checks to leave out, by id.
    #[arg(long, value_name = "CHECK")]
    without_check: Vec<String>,
    /// Do not install anything.
    #[arg(long)]
    no_setup: bool,
}

pub(crate) async fn spawn(args: SpawnArgs) -> ExitResult {
    if args.iso.is_none() && args.disk.is_none() {
        return Err(CliError::usage("nothing to boot: give --iso, --disk, or both"));
    }
    for file in args.iso.iter().chain(&args.disk) {
        std::fs::File::open(file).map_err(|error| CliError::usage(format!("{}: {error}", file.display())))?;
    }
    let classifier = Classifier::without(&args.without_check).or_usage()?;
    ensure_set_up(Setup::Machines, !args.no_setup)?;
    run(args, &classifier).await.or_inconclusive()?;
    Ok(exit::PASSED)
}

type Fault = Box<dyn std::error::Error>;

async fn run(args: SpawnArgs, classifier: &Classifier) -> Result<(), Fault> {
    let id = format!("spawn-{}", std::process::id());
    let folder = crate::args::runs_folder().join(&id);
    std::fs::create_dir_all(&folder)?;
    let ledger = Arc::new(Ledger::create(&ledger::registry(), &id)?);
    let supervisor = Supervisor::spawn(&ledger, &folder.join("supervisor.log"))?;
    let shown = show(args, classifier, &ledger, &folder).await;
    let left = ledger.close()?;
    if left.is_empty() {
        supervisor.dismiss()?;
    }
    shown
}

async fn show(
    args: SpawnArgs,
    classifier: &Classifier,
    ledger: &Arc<Ledger>,
    folder: &std::path::Path,
) -> Result<(), Fault> {
    let found = tokio::task::spawn_blocking(probe::probe).await??;
    say(&found.why);
    let machines = Machines::start(MachinesOptions::new(ledger, found.accel, folder)).await?;
    let shown = watch(args, classifier, &machines).await;
    machines.stop().await?;
    shown
}

async fn watch(args: SpawnArgs, classifier: &Classifier, machines: &Machines) -> Result<(), Fault> {
    let mut events = machines.events();
    let machine = machines.create(spec(args)?).await?;
    say(&format!("the console is also in {}", machine.console_log().display()));
    say(&format!("`vlab console {}` is its keyboard; Ctrl-C switches it off", machine.name()));
    let mut console = machine.console()?;
    let show = |line: &str| {
        print(&format!("{}\n", plain(line)));
        if let Some(check) = classifier.classify(line) {
            say(&format!("console check `{}`: {}", check.id, check.description));
        }
    };
    loop {
        tokio::select! {
            line = console.next_line() => show(&line?),
            event = events.recv() => {
                let Ok(event) = event else { continue };
                let (did, why) = event.words();
                say(&format!("{} {did} {why}", event.machine));
                if did == "stopped" {
                    console.drain()?.iter().for_each(|line| show(line));
                    return Ok(());
                }
            }
            status = machines.failed() => return Err(format!("the program that runs the machine has ended: {status}").into()),
            _ = tokio::signal::ctrl_c() => {
                say("switching it off");
                return Ok(());
            }
        }
    }
}

fn spec(args: SpawnArgs) -> Result<MachineSpec, Fault> {
    // Looks at a machine are not repeated: its id may be as good as random.
    let id = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
    let disk = DiskSpec {
        size_bytes: args.disk_size.or(args.disk.is_none().then_some(120)).map(|gib| gib << 30),
        base: args.disk,
        ..DiskSpec::new("vda", Bus::Virtio, 0, "LABD000001")
    };
    let mac = "52:54:00:76:6c:01".to_owned();
    Ok(MachineSpec {
        cpus: args.cpus,
        firmware: args.firmware,
        tpm: args.tpm,
        boot: if args.cd_first { BootOrder::CdFirst } else { BootOrder::DiskFirst },
        cdrom: args.iso.map(std::path::absolute).transpose()?,
        disks: vec![disk],
        nics: vec![NicSpec { mac, plug: Plug::User }],
        ..MachineSpec::new(&args.name, Uuid::from_u128(id), args.memory)
    })
}

/// The machine of that name, in that run where one is named; else why there is none.
fn choose(host: &str, run: Option<&str>) -> Result<KnownMachine, String> {
    let all = known(&ledger::registry());
    if all.is_empty() {
        return Err(format!("there is no virtual machine `{host}`: none is running"));
    }
    let runs = || all.iter().map(|known| known.run.as_str());
    if let Some(run) = run.filter(|run| runs().all(|other| other != *run)) {
        return Err(format!("there is no run `{run}` with virtual machines; {}", suggestion(run, runs())));
    }
    let of_run = || all.iter().filter(|known| run.is_none_or(|run| run == known.run));
    let found: Vec<&KnownMachine> = of_run().filter(|known| known.name == host).collect();
    match found[..] {
        [machine] => Ok(machine.clone()),
        [] => {
            let near = suggestion(host, of_run().map(|known| known.name.as_str()));
            Err(format!("there is no virtual machine `{host}`: {near} (`vlab machines` lists all)"))
        }
        _ => {
            let runs: Vec<&str> = found.iter().map(|known| known.run.as_str()).collect();
            Err(format!("several runs have a `{host}`: choose one with --run: {}", runs.join(", ")))
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct SshArgs {
    /// Name of the host.
    host: String,
    /// Id of its run, when several have a host of that name.
    #[arg(long)]
    run: Option<String>,
    /// Give the command a terminal. A shell always has one.
    #[arg(long, short)]
    tty: bool,
    /// The command to run there, as user `core`; without one, a shell. `vlab` ends with its exit code.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Exit code of `ssh` when it, and not the command, has failed.
const SSH_FAILED: i32 = 255;

/// Before any thread starts: only such a process can enter a user namespace.
pub(crate) fn ssh(args: &SshArgs) -> ExitResult {
    let machine = choose(&args.host, args.run.as_deref()).or_usage()?;
    let console = format!("`vlab console {}`", machine.name);
    let Some(access) = &machine.access else {
        let name = &machine.name;
        let why = format!("vlab has no key for `{name}`: only machines of a scenario have one. {console} works");
        return Err(CliError::usage(why));
    };
    let status = access.ssh(&machine.name, args.tty, &args.command).or_inconclusive()?;
    if status.code() == Some(SSH_FAILED) {
        say(&format!(
            "if the machine cannot be reached: while it boots there is no ssh yet; {console} shows what it does"
        ));
    }
    // As shells tell of signals.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

#[derive(clap::Args)]
pub(crate) struct ConsoleArgs {
    /// Name of the host.
    host: String,
    /// Id of its run, when several have a host of that name.
    #[arg(long)]
    run: Option<String>,
}

pub(crate) async fn console(args: ConsoleArgs) -> ExitResult {
    let machine = choose(&args.host, args.run.as_deref()).or_usage()?;
    for line in last_lines(&machine.console_log, 20) {
        print(&format!("{}\n", plain(&line)));
    }
    let gone = |error| CliError::inconclusive(format!("{}: {error}", machine.console_socket.display()));
    attach(&machine).await.map_err(gone)?;
    Ok(exit::PASSED)
}

/// The key that leaves, as `virsh console` and telnet have it: Ctrl-].
const LEAVE: u8 = 0x1d;

async fn attach(machine: &KnownMachine) -> std::io::Result<()> {
    let stream = tokio::net::UnixStream::connect(&machine.console_socket).await?;
    let (mut from_guest, mut to_guest) = stream.into_split();
    let _raw = Raw::enter();
    if std::io::stdin().is_terminal() {
        say("connected; Ctrl-] leaves\r");
    }
    let (sender, mut keys) = tokio::sync::mpsc::channel::<Vec<u8>>(16);
    // A thread: reading a terminal cannot be given up, and the end of this program ends it.
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while let Ok(count @ 1..) = std::io::stdin().read(&mut buffer) {
            if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    let mut buffer = [0; 4096];
    let mut listening = true;
    loop {
        tokio::select! {
            count = from_guest.read(&mut buffer) => match count? {
                0 => return Ok(()),
                count => {
                    let mut stdout = std::io::stdout();
                    stdout.write_all(&buffer[..count])?;
                    stdout.flush()?;
                }
            },
            typed = keys.recv(), if listening => match typed {
                Some(typed) if typed.contains(&LEAVE) => return Ok(()),
                Some(typed) => to_guest.write_all(&typed).await?,
                None => listening = false,
            },
        }
    }
}

/// The terminal passes every key on. Put back as it was at the end.
struct Raw(Termios);

impl Raw {
    fn enter() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(std::io::stdin(), SetArg::TCSANOW, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, &self.0);
    }
}

#[derive(clap::Args)]
pub(crate) struct MachinesArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn list(args: &MachinesArgs) -> ExitResult {
    let all = known(&ledger::registry());
    if args.json {
        let rows: Vec<_> = all
            .iter()
            .map(|m| serde_json::json!({"run": m.run, "name": m.name, "console_log": m.console_log, "console_socket": m.console_socket}))
            .collect();
        print(&format!("{}\n", serde_json::to_string_pretty(&rows).unwrap_or_default()));
        return Ok(exit::PASSED);
    }
    for machine in &all {
        print(&format!("{}  run {}  {}\n", machine.name, machine.run, machine.console_log.display()));
    }
    if all.is_empty() {
        say("no virtual machine is running");
    }
    Ok(exit::PASSED)
}
