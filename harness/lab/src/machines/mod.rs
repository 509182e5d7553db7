//! Virtual machines, through libvirt.
//!
//! `vlab` does not link libvirt. It starts the helper `vlab-libvirt-helper`, which does, and speaks JSON lines with it
//! ([`protocol`]). The default is libvirt's embedded driver ([`Uri::Embedded`]): no daemon, machines in the network namespace
//! of the lab, everything under one private folder. `qemu:///system` and `qemu:///session` go by URI.
//!
//! # For those who build on this
//!
//! ```text
//! probe::probe()                     which accelerator, and why (say it in the report)
//! Machines::start(options)           helper, connection
//!   .reserve(&specs)                 memory for the whole plan, or a refusal with numbers: call it before anything starts
//!   .create(spec)    -> Machine      disks, firmware variables, TPM, domain; started
//!   .events()                        what happens to machines, pushed (broadcast); see [`MachineEvent::words`]
//!   .failed()                        the helper has died: the run is inconclusive
//!   .stop()                          everything gone
//! Machine: power_off, power_on, shutdown, reset, pause, resume, set_link, eject, fail_disk, heal_disk, limit_writes,
//!          screenshot, usage, console (lines as they come), console_log, console_socket
//! ```
//!
//! A [`MachineSpec`] has what a scenario says of a host; [`domain::domain_xml`] makes it a domain, purely. Console lines are
//! judged by [`vlab_model::console::Classifier`]; [`Machine::console`] gives the lines.
//!
//! # Clean-up
//!
//! In the ledger before it exists: the folder with disks and sockets, the helper, each machine, each swtpm, the reserved
//! memory. QEMU is nobody's child; it carries the ledger's mark in its environment, by which the supervisor finds and kills it
//! even when nobody has seen it start.

pub mod console;
pub mod domain;
pub mod memory;
pub mod probe;
pub mod protocol;
pub mod tiny;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tokio::sync::{broadcast, oneshot};

use crate::cleanup;
use crate::ledger::{Ledger, LedgerError, MARK, Resource, Snapshot, Token};
use crate::network::Namespace;
use crate::proc::{self, ProcessId, Stat};
use crate::process::{Child, ProcessError, Program};
use crate::ssh::Access;
use crate::try_out::{TryError, in_path, try_out};
use crate::wait;

pub use domain::{Accel, BootOrder, Bus, DiskSpec, Firmware, MachineSpec, NicSpec, Placement, Plug, SpecError, Vendor};
pub use memory::{MemoryError, Reservation};
pub use protocol::{DomainEvent, DomainUsage};

use protocol::{Call, Done, Line, PROTOCOL, Request};

/// Name of the helper's program. It lies beside `vlab`; `VLAB_LIBVIRT_HELPER` names another place.
pub const HELPER: &str = "vlab-libvirt-helper";

/// How long the helper may take to open its connection: the first time, libvirt asks QEMU what it can do.
const OPEN: Duration = Duration::from_secs(60);

/// How long a request may take. libvirt itself waits 30 s for a machine that is busy.
const CALL: Duration = Duration::from_secs(120);

/// How long the helper may take to destroy all machines and end.
const GOODBYE: Duration = Duration::from_secs(3);

/// The connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uri {
    /// libvirt's embedded driver in a private folder.
    Embedded,
    /// Any other: `qemu:///system`, `qemu:///session`. Machines are then in that daemon's network and not in the lab's.
    Of(String),
}

/// How machines are run.
#[derive(Debug, Clone)]
pub struct MachinesOptions {
    /// Id of the run; part of the domains' names.
    pub run: String,
    /// The connection.
    pub uri: Uri,
    /// What runs guests; see [`probe::probe`].
    pub accel: Accel,
    /// The helper; found by [`find_helper`] when `None`.
    pub helper: Option<PathBuf>,
    /// The network that machines are in.
    pub namespace: Option<Arc<Namespace>>,
    /// Where disks go: a private folder is made in it, and removed. Sockets lie there, so its path must be short.
    pub scratch: PathBuf,
    /// Where consoles are kept: a folder of the run.
    pub consoles: PathBuf,
    /// Where everything is written down.
    pub ledger: Arc<Ledger>,
}

impl MachinesOptions {
    /// Embedded, disks in the folder for temporary files.
    #[must_use]
    pub fn new(ledger: &Arc<Ledger>, accel: Accel, consoles: &Path) -> Self {
        Self {
            run: ledger.run().to_owned(),
            uri: Uri::Embedded,
            accel,
            helper: None,
            namespace: None,
            scratch: std::env::temp_dir(),
            consoles: consoles.to_path_buf(),
            ledger: Arc::clone(ledger),
        }
    }
}

/// What can go wrong with machines.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The helper is not there.
    #[error(
        "virtual machines need the program `{HELPER}` beside `vlab`, and it is not at {0}: in a clone, `cargo xtask` builds it; \
         elsewhere build it with `cargo build -p {HELPER}` (Debian: apt-get install libvirt-dev) or set VLAB_LIBVIRT_HELPER"
    )]
    NoHelper(PathBuf),
    /// The helper does not start: most likely its libraries are missing.
    #[error("libvirt is missing or broken: {why} (Debian: apt-get install libvirt-daemon libvirt0)")]
    NoLibvirt {
        /// The helper's last words.
        why: String,
    },
    /// libvirt does not connect.
    #[error("libvirt refuses {uri}: {why}")]
    Refused {
        /// To what.
        uri: String,
        /// libvirt's words.
        why: String,
    },
    /// The helper is of another build.
    #[error("`{HELPER}` speaks version {theirs} of its protocol and vlab {PROTOCOL}: build both from the same sources")]
    Protocol {
        /// Its version.
        theirs: u32,
    },
    /// The helper died.
    #[error("the program that runs the machines has ended; the end of its log:\n{log}")]
    HelperGone {
        /// The last lines of its log.
        log: String,
    },
    /// libvirt or QEMU said no.
    #[error("machine {machine}: {what}: {why}")]
    Call {
        /// Which.
        machine: String,
        /// What was asked for.
        what: String,
        /// Their words.
        why: String,
    },
    /// libvirt does not answer: it hangs, or this machine is far too busy.
    #[error("machine {machine}: {what}: libvirt does not answer within {} s", CALL.as_secs())]
    NoAnswer {
        /// Which.
        machine: String,
        /// What was asked for.
        what: String,
    },
    /// The spec is impossible.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// It does not fit.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A program that is not installed.
    #[error("machines need `{program}` (Debian: apt-get install {package})")]
    Missing {
        /// The program.
        program: &'static str,
        /// Its package.
        package: &'static str,
    },
    /// A file.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A program.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Where the helper is: `VLAB_LIBVIRT_HELPER`, or beside this program.
///
/// # Errors
/// It is not there.
pub fn find_helper() -> Result<PathBuf, MachineError> {
    let named = std::env::var_os("VLAB_LIBVIRT_HELPER").filter(|path| !path.is_empty()).map(PathBuf::from);
    let beside = || std::env::current_exe().unwrap_or_default().with_file_name(HELPER);
    let path = named.unwrap_or_else(beside);
    if path.is_file() { Ok(path) } else { Err(MachineError::NoHelper(path)) }
}

/// Something happened to a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineEvent {
    /// Name of the host.
    pub machine: String,
    /// When libvirt told.
    pub at: SystemTime,
    /// What.
    pub event: DomainEvent,
}

impl MachineEvent {
    /// What happened and why, as the history has it (`vlab_model::history::What::Machine`).
    #[must_use]
    pub fn words(&self) -> (&'static str, String) {
        match &self.event {
            DomainEvent::Started { reason } => ("started", reason.clone()),
            DomainEvent::Suspended { reason } => ("suspended", reason.clone()),
            DomainEvent::Resumed { reason } => ("resumed", reason.clone()),
            DomainEvent::ShutDown { reason } => ("shut-down", reason.clone()),
            DomainEvent::Stopped { reason } => ("stopped", reason.clone()),
            DomainEvent::Crashed { reason } => ("crashed", reason.clone()),
            DomainEvent::Rebooted => ("rebooted", String::new()),
            DomainEvent::IoError { device, action, reason } => {
                let words = [device, action, reason].into_iter().filter(|word| !word.is_empty());
                ("io-error", words.cloned().collect::<Vec<_>>().join(" "))
            }
            DomainEvent::Other { event, detail } => ("other", format!("{event} {detail}")),
        }
    }

    /// Could a disk not be written because the disk of this computer is full? The machine stands still then.
    #[must_use]
    pub fn is_out_of_space(&self) -> bool {
        matches!(&self.event, DomainEvent::IoError { reason, .. } if reason == protocol::NO_SPACE)
    }

    /// Does the machine not run any more although nobody asked for it? Its QEMU crashed or was killed.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        matches!(&self.event, DomainEvent::Stopped { reason } if reason == "failed" || reason == "crashed")
    }
}

/// What the helper said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// As libvirt reports it.
    pub uri: String,
    /// Version of libvirt.
    pub libvirt: String,
    /// Version of QEMU.
    pub qemu: String,
}

/// The machines of a run. Dropping the last of it (and of its [`Machine`]s) removes everything; [`Machines::stop`] does it
/// without blocking.
#[derive(Debug, Clone)]
pub struct Machines {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: MachinesOptions,
    versions: Versions,
    /// The private folder.
    folder: PathBuf,
    folder_entry: Token,
    helper: Child,
    requests: Mutex<Option<mpsc::Sender<String>>>,
    shared: Arc<Shared>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    machines: BTreeMap<String, Entry>,
    /// For machines that are still to come, by name.
    reserved: BTreeMap<String, Arc<Reservation>>,
}

#[derive(Debug)]
struct Entry {
    token: Token,
    process: Option<ProcessId>,
    tpm: Option<Child>,
    /// Kept as long as the machine exists, running or not.
    _memory: Arc<Reservation>,
}

/// Who waits for an answer.
type Waiter = oneshot::Sender<Result<Done, String>>;

/// What the thread that reads the helper's lines shares with the others.
#[derive(Debug)]
struct Shared {
    /// By the id of their request; `None` when the helper has ended.
    waiting: Mutex<Option<BTreeMap<u64, Waiter>>>,
    /// Name of the domain to name of the host.
    names: Mutex<BTreeMap<String, String>>,
    events: broadcast::Sender<MachineEvent>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> MachineError + '_ {
    move |error| MachineError::Io { path: path.to_path_buf(), error }
}

impl Machines {
    /// Starts the helper and connects.
    ///
    /// # Errors
    /// No helper, no libvirt, no connection.
    pub async fn start(options: MachinesOptions) -> Result<Self, MachineError> {
        blocking(move || Self::start_blocking(options)).await
    }

    fn start_blocking(options: MachinesOptions) -> Result<Self, MachineError> {
        let executable = match &options.helper {
            Some(helper) => helper.clone(),
            None => find_helper()?,
        };
        fs::create_dir_all(&options.consoles).map_err(io_at(&options.consoles))?;
        let (folder, folder_entry) = make_folder(&options)?;
        let give_up = |error: MachineError| {
            let _ = fs::remove_dir_all(&folder);
            if let Err(error) = options.ledger.release(folder_entry) {
                tracing::warn!(%error, "the folder of the machines stays in the ledger");
            }
            error
        };
        let connected = connect(&options, &executable, &folder).map_err(give_up)?;
        let (helper, versions, requests, lines) = connected;
        let shared = Arc::new(Shared {
            waiting: Mutex::new(Some(BTreeMap::new())),
            names: Mutex::default(),
            events: broadcast::channel(1024).0,
        });
        let theirs = Arc::clone(&shared);
        let reader = std::thread::Builder::new().name("machines-reader".into()).spawn(move || theirs.read(lines));
        reader.map_err(|error| MachineError::Io { path: executable, error })?;
        Ok(Self {
            inner: Arc::new(Inner {
                options,
                versions,
                folder,
                folder_entry,
                helper,
                requests: Mutex::new(Some(requests)),
                shared,
                state: Mutex::default(),
            }),
        })
    }

    /// What runs here.
    #[must_use]
    pub fn versions(&self) -> &Versions {
        &self.inner.versions
    }

    /// The private folder with the disks.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.inner.folder
    }

    /// What happens to machines from now on. A receiver that falls behind by more than a thousand events is told so.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<MachineEvent> {
        self.inner.shared.events.subscribe()
    }

    /// Waits until the helper has ended, which it only does when something is wrong (or at [`Machines::stop`]).
    pub async fn failed(&self) -> ExitStatus {
        self.inner.helper.wait().await
    }

    /// The helper, for the fault engine and for tests.
    #[must_use]
    pub fn helper(&self) -> &Child {
        &self.inner.helper
    }

    /// Reserves memory for all machines of a plan, before the first one starts. [`Machines::create`] does it for a machine
    /// that was not in the plan.
    ///
    /// # Errors
    /// They do not fit; nothing is reserved.
    pub fn reserve(&self, specs: &[MachineSpec]) -> Result<(), MemoryError> {
        let options = &self.inner.options;
        let needs: Vec<u64> = specs.iter().map(|spec| memory::need(spec, options.accel)).collect();
        let all = Arc::new(memory::reserve(&options.ledger, needs.iter().sum())?);
        let mut state = lock(&self.inner.state);
        for spec in specs {
            state.reserved.insert(spec.name.clone(), Arc::clone(&all));
        }
        Ok(())
    }

    /// Makes what a machine needs (disks, firmware, TPM) and starts it.
    ///
    /// # Errors
    /// The spec is impossible, it does not fit, or libvirt refuses.
    pub async fn create(&self, spec: MachineSpec) -> Result<Machine, MachineError> {
        let inner = Arc::clone(&self.inner);
        let machine = blocking(move || inner.prepare(spec)).await?;
        match machine.power_on().await {
            Ok(()) => Ok(machine),
            // Nobody knows what is still being started: it stays in the books until the helper is gone.
            Err(error @ (MachineError::NoAnswer { .. } | MachineError::HelperGone { .. })) => Err(error),
            Err(error) => {
                let inner = Arc::clone(&self.inner);
                blocking(move || inner.forget(&machine.spec.name, &machine.placement)).await?;
                Err(error)
            }
        }
    }

    /// Powers all machines off and removes everything that is not theirs to keep (consoles stay).
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub async fn stop(self) -> Result<(), MachineError> {
        blocking(move || self.inner.tear_down()).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MachineError> + Send + 'static,
) -> Result<T, MachineError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(MachineError::Io { path: PathBuf::from(HELPER), error: io::Error::other(error) }),
    }
}

/// A private folder that is in the ledger before it exists.
fn make_folder(options: &MachinesOptions) -> Result<(PathBuf, Token), MachineError> {
    let scratch = std::path::absolute(&options.scratch).map_err(io_at(&options.scratch))?;
    let unique = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let folder = scratch.join(format!("vlab-m-{}-{:x}", std::process::id(), unique));
    let token = options.ledger.record(Resource::Directory { path: folder.clone() })?;
    let mode = match options.uri {
        Uri::Embedded => 0o700,
        // A daemon's machines have another user, who must find its disks.
        Uri::Of(_) => 0o711,
    };
    use std::os::unix::fs::DirBuilderExt as _;
    if let Err(error) = fs::DirBuilder::new().mode(mode).create(&folder) {
        options.ledger.release(token)?;
        return Err(MachineError::Io { path: folder, error });
    }
    Ok((folder, token))
}

/// libvirt's configuration for the embedded driver: no other user, no security driver, no cgroups, no namespaces, no
/// helper daemons. With the defaults libvirt asks QEMU for its abilities again and again where `/dev/kvm` is root's (10 s a
/// machine), and wants a daemon for logs.
fn qemu_conf(root: bool) -> String {
    // An ordinary user cannot change owners, and must not be told to.
    let user = if root { "user = \"root\"\ngroup = \"root\"\n" } else { "" };
    format!(
        "{user}dynamic_ownership = 0\nremember_owner = 0\nsecurity_driver = \"none\"\nstdio_handler = \"file\"\n\
         cgroup_controllers = []\nnamespaces = []\n"
    )
}

type Connected = (Child, Versions, mpsc::Sender<String>, BufReader<PipeReader>);

fn connect(options: &MachinesOptions, executable: &Path, folder: &Path) -> Result<Connected, MachineError> {
    let uri = match &options.uri {
        Uri::Embedded => {
            let root = folder.join("libvirt");
            let etc = root.join("etc");
            fs::create_dir_all(&etc).map_err(io_at(&etc))?;
            let conf = etc.join("qemu.conf");
            fs::write(&conf, qemu_conf(nix::unistd::geteuid().is_root())).map_err(io_at(&conf))?;
            abilities(&root, Direction::In);
            format!("qemu:///embed?root={}", root.display())
        }
        Uri::Of(uri) => uri.clone(),
    };
    let pipe = || io::pipe().map_err(io_at(executable));
    let ((stdin, to_helper), (from_helper, stdout)) = (pipe()?, pipe()?);
    let log = options.consoles.join("machines.log");
    let mut program =
        Program::new("machines", executable, &log).args(["serve", &uri]).ledger(Some(options.ledger.clone()));
    program.namespace.clone_from(&options.namespace);
    program.stdin = Some(stdin.into());
    program.stdout = Some(stdout.into());
    // libvirt makes its files in places that follow from these when they are set; QEMU gets a clean environment anyway.
    program.env_remove = ["LIBVIRT_DEFAULT_URI", "LIBVIRT_DEBUG"].map(Into::into).to_vec();
    let helper = Child::spawn(program)?;
    let mut lines = BufReader::new(from_helper);
    let hello = first_line(&mut lines, &helper);
    let versions = match hello.as_deref().map(serde_json::from_str) {
        Some(Ok(Line::Hello { protocol: PROTOCOL, uri, libvirt, qemu })) => Versions { uri, libvirt, qemu },
        Some(Ok(Line::Hello { protocol, .. })) => return Err(MachineError::Protocol { theirs: protocol }),
        Some(Ok(Line::Refused { why })) => return Err(MachineError::Refused { uri, why }),
        _ => {
            let why = helper.last_lines(2).join(" ");
            let why = if why.is_empty() { format!("`{}` says nothing", executable.display()) } else { why };
            return Err(MachineError::NoLibvirt { why });
        }
    };
    if options.uri == Uri::Embedded {
        abilities(&folder.join("libvirt"), Direction::Out);
    }
    let (requests, from_us) = mpsc::channel();
    let writer = std::thread::Builder::new().name("machines-writer".into()).spawn(move || write(from_us, to_helper));
    writer.map_err(io_at(executable))?;
    Ok((helper, versions, requests, lines))
}

/// The helper's first line; `None` when it ended without one or says nothing for [`OPEN`]. A reader cannot be told to give
/// up, so in that case the helper is killed, which ends its output.
fn first_line(lines: &mut BufReader<PipeReader>, helper: &Child) -> Option<String> {
    std::thread::scope(|scope| {
        let (done, waiter) = mpsc::channel::<()>();
        scope.spawn(move || {
            if waiter.recv_timeout(OPEN) == Err(mpsc::RecvTimeoutError::Timeout) {
                helper.signal_group(nix::sys::signal::Signal::SIGKILL);
            }
        });
        let mut line = String::new();
        let read = lines.read_line(&mut line);
        drop(done);
        read.ok().filter(|count| *count > 0).map(|_| line)
    })
}

fn write(requests: mpsc::Receiver<String>, mut to_helper: PipeWriter) {
    for line in requests {
        if to_helper.write_all(line.as_bytes()).is_err() {
            break;
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

/// What libvirt has found out about QEMU takes it a second to find out again. It checks itself whether it still holds (time
/// stamps and versions of QEMU, libvirt and kernel), so its files are kept between runs. Without them everything works.
fn abilities(root: &Path, direction: Direction) {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let Some(cache) = cache.filter(|cache| cache.is_absolute()) else { return };
    let (kept, used) = (cache.join("vlab/libvirt-capabilities"), root.join("cache/qemu/capabilities"));
    let (from, to) = if direction == Direction::In { (kept, used) } else { (used, kept) };
    let entries = fs::read_dir(&from).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ending| ending == "xml"))
    {
        let Some(name) = path.file_name() else { continue };
        let target = to.join(name);
        if fs::read(&path).ok() == fs::read(&target).ok() || fs::create_dir_all(&to).is_err() {
            continue;
        }
        // Two runs may do this at the same time: whole files only.
        let half = to.join(format!(".{}-{}", std::process::id(), name.to_string_lossy()));
        let _ = fs::copy(&path, &half).and_then(|_| fs::rename(&half, &target));
        let _ = fs::remove_file(&half);
    }
}

impl Shared {
    fn read(&self, lines: BufReader<PipeReader>) {
        for line in lines.lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Line::Answer { id, result }) => {
                    let waiting = lock(&self.waiting).as_mut().and_then(|waiting| waiting.remove(&id));
                    if let Some(waiting) = waiting {
                        let _ = waiting.send(result);
                    }
                }
                Ok(Line::Event { at_ms, domain, event }) => {
                    let machine = lock(&self.names).get(&domain).cloned().unwrap_or(domain);
                    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms);
                    // Nobody listens: nobody needs to know.
                    let _ = self.events.send(MachineEvent { machine, at, event });
                }
                Ok(Line::Hello { .. } | Line::Refused { .. }) => {}
                Err(error) => tracing::warn!(%error, line, "a line of the helper that is not understood"),
            }
        }
        // Dropping the senders tells everybody who waits, and nobody waits after that.
        *lock(&self.waiting) = None;
    }
}

impl Inner {
    async fn call(&self, machine: &str, what: &str, call: Call) -> Result<Done, MachineError> {
        let failed = |why: String| MachineError::Call { machine: machine.to_owned(), what: what.to_owned(), why };
        let gone = || MachineError::HelperGone { log: self.helper.last_lines(20).join("\n") };
        let id = {
            let mut state = lock(&self.state);
            state.next += 1;
            state.next
        };
        let (sender, answer) = oneshot::channel();
        match lock(&self.shared.waiting).as_mut() {
            Some(waiting) => waiting.insert(id, sender),
            None => return Err(gone()),
        };
        let mut line = serde_json::to_string(&Request { id, call }).map_err(|error| failed(error.to_string()))?;
        line.push('\n');
        let sent = lock(&self.requests).as_ref().is_some_and(|requests| requests.send(line).is_ok());
        if !sent {
            return Err(gone());
        }
        match tokio::time::timeout(CALL, answer).await {
            Ok(Ok(result)) => result.map_err(failed),
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(MachineError::NoAnswer { machine: machine.to_owned(), what: what.to_owned() }),
        }
    }

    /// Everything but starting it.
    fn prepare(self: Arc<Self>, spec: MachineSpec) -> Result<Machine, MachineError> {
        domain::check(&spec)?;
        if lock(&self.state).machines.contains_key(&spec.name) {
            let (machine, what) = (spec.name, "make it".to_owned());
            return Err(MachineError::Call {
                machine,
                what,
                why: "there is a machine of this name already".to_owned(),
            });
        }
        let options = &self.options;
        let emulator =
            probe::qemu().ok_or(MachineError::Missing { program: probe::QEMU, package: "qemu-system-x86" })?;
        let ovmf = (spec.firmware == Firmware::Uefi).then(find_ovmf).flatten();
        let memory = match lock(&self.state).reserved.remove(&spec.name) {
            Some(reserved) => reserved,
            None => Arc::new(memory::reserve(&options.ledger, memory::need(&spec, options.accel))?),
        };
        let directory = self.folder.join(&spec.name);
        let console_log = options.consoles.join(format!("{}.console.log", spec.name));
        let token = options.ledger.record(Resource::Machine {
            name: spec.name.clone(),
            directory: directory.clone(),
            console: console_log.clone(),
            process: None,
            pgid: None,
        })?;
        let placement = Placement {
            domain: format!("{}-{}", options.run, spec.name),
            accel: options.accel,
            directory: directory.clone(),
            console_log,
            emulator,
            ovmf_code: ovmf.as_ref().map(|(code, _)| code.clone()),
            env: vec![(MARK.to_owned(), options.ledger.mark(token))],
        };
        let made = domain::domain_xml(&spec, &placement).map_err(MachineError::from).and_then(|xml| {
            fs::create_dir(&directory).map_err(io_at(&directory))?;
            for disk in &spec.disks {
                make_disk(disk, &placement.disk(disk))?;
            }
            for (place, (_, content)) in spec.firmware_files.iter().enumerate() {
                let file = placement.firmware_file(place);
                fs::write(&file, content).map_err(io_at(&file))?;
            }
            if let Some((_, variables)) = &ovmf {
                fs::copy(variables, placement.nvram()).map_err(io_at(variables))?;
            }
            // There before anybody follows it. A machine of this name that was here before has its lines above.
            File::options()
                .append(true)
                .create(true)
                .open(&placement.console_log)
                .map_err(io_at(&placement.console_log))?;
            Ok(xml)
        });
        let xml = match made {
            Ok(xml) => xml,
            Err(error) => {
                let _ = fs::remove_dir_all(&directory);
                options.ledger.release(token)?;
                return Err(error);
            }
        };
        lock(&self.shared.names).insert(placement.domain.clone(), spec.name.clone());
        lock(&self.state)
            .machines
            .insert(spec.name.clone(), Entry { token, process: None, tpm: None, _memory: memory });
        Ok(Machine { inner: self, spec, placement, xml })
    }

    /// What a machine that does not start leaves.
    fn forget(&self, name: &str, placement: &Placement) -> Result<(), MachineError> {
        lock(&self.shared.names).remove(&placement.domain);
        let Some(entry) = lock(&self.state).machines.remove(name) else { return Ok(()) };
        // libvirt said no, and has ended its QEMU; if not, it must not outlive its line in the ledger.
        let mark = self.options.ledger.mark(entry.token);
        if let Err(why) = cleanup::kill(entry.process, None, &mark, Instant::now() + GOODBYE) {
            return Err(MachineError::Call { machine: name.to_owned(), what: "end its QEMU".to_owned(), why });
        }
        drop(entry.tpm);
        fs::remove_dir_all(&placement.directory).map_err(io_at(&placement.directory))?;
        Ok(self.options.ledger.release(entry.token)?)
    }

    /// Ends the helper and all machines, and removes what is ours. Twice is once.
    fn tear_down(&self) -> Result<(), MachineError> {
        if lock(&self.requests).take().is_none() {
            return Ok(());
        }
        // Its stdin ends: it destroys all machines and ends itself.
        if !wait::until_blocking(Instant::now() + GOODBYE, || self.helper.ended().is_some()) {
            self.helper.signal_group(nix::sys::signal::Signal::SIGKILL);
            wait::until_blocking(Instant::now() + GOODBYE, || self.helper.ended().is_some());
        }
        self.helper.cross_out()?;
        let state = std::mem::take(&mut *lock(&self.state));
        let ledger = &self.options.ledger;
        for (name, entry) in state.machines {
            // A helper that was killed has not destroyed them.
            let end = Instant::now() + GOODBYE;
            if let Err(why) = cleanup::kill(entry.process, None, &ledger.mark(entry.token), end) {
                tracing::warn!(machine = name, why, "a machine is still there");
                continue;
            }
            drop(entry.tpm);
            ledger.release(entry.token)?;
        }
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_at(&self.folder)(error)),
            _ => ledger.release(self.folder_entry)?,
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.tear_down() {
            tracing::warn!(%error, "something of the machines stays behind");
        }
    }
}

/// A machine of a living run, as its ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Id of the run.
    pub run: String,
    /// Name of the host.
    pub name: String,
    /// What its console has said.
    pub console_log: PathBuf,
    /// Its console.
    pub console_socket: PathBuf,
    /// The way in by ssh; machines that were spawned have none.
    pub access: Option<Access>,
}

/// The machines of all living runs whose ledgers lie in `registry` (see [`crate::ledger::registry`]), by run and name.
#[must_use]
pub fn known(registry: &Path) -> Vec<Known> {
    let entries = fs::read_dir(registry).into_iter().flatten().flatten();
    let paths =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ending| ending == "ledger"));
    let runs = paths.filter_map(|path| Snapshot::read(&path).ok()).filter(|run| run.header.is_alive());
    let mut known: Vec<Known> = runs
        .flat_map(|run| {
            let access = Access::of_run(&run);
            let id = run.header.run;
            run.open.into_iter().filter_map(move |(_, resource)| match resource {
                Resource::Machine { name, directory, console, .. } => Some(Known {
                    run: id.clone(),
                    name,
                    console_log: console,
                    console_socket: domain::console_socket(&directory),
                    access: access.clone(),
                }),
                _ => None,
            })
        })
        .collect();
    known.sort_by(|a, b| (&a.run, &a.name).cmp(&(&b.run, &b.name)));
    known
}

/// OVMF's code and the template of its variables, in the places of Debian, Ubuntu and Fedora.
#[must_use]
pub fn find_ovmf() -> Option<(PathBuf, PathBuf)> {
    const PLACES: [(&str, &str); 3] = [
        ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
        ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
        ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ];
    let places = PLACES.into_iter().map(|(code, variables)| (PathBuf::from(code), PathBuf::from(variables)));
    places.into_iter().find(|(code, variables)| code.is_file() && variables.is_file())
}

fn make_disk(disk: &DiskSpec, path: &Path) -> Result<(), MachineError> {
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
    match try_out("qemu-img", &args, Duration::from_secs(20)) {
        Ok(tried) if tried.status.success() => Ok(()),
        Ok(tried) => Err(io_at(path)(io::Error::other(tried.last_words()))),
        Err(TryError::Missing(_)) => Err(MachineError::Missing { program: "qemu-img", package: "qemu-utils" }),
        Err(TryError::Failed(why)) => Err(io_at(path)(io::Error::other(why))),
    }
}

/// Which requests of a disk fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// Reads.
    Reads,
    /// Writes and flushes.
    Writes,
    /// All.
    All,
}

/// A machine. It goes on when this is dropped; [`Machines`] ends it.
#[derive(Debug)]
pub struct Machine {
    inner: Arc<Inner>,
    spec: MachineSpec,
    placement: Placement,
    xml: String,
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
        console::Follow::open(&self.placement.console_log)
    }

    /// Switches it on: after [`Machine::power_off`], or after it has switched itself off.
    ///
    /// # Errors
    /// It is on, or libvirt refuses.
    pub async fn power_on(&self) -> Result<(), MachineError> {
        if self.spec.tpm {
            self.start_tpm().await?;
        }
        let done = self.call("start", Call::Create { xml: self.xml.clone() }).await?;
        if let Done::Started { took_us } = done {
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
        self.call("power off", Call::Destroy { domain }).await.map(drop)
    }

    /// Presses the power button once; the guest does with it what it likes.
    ///
    /// # Errors
    /// It is off.
    pub async fn shutdown(&self) -> Result<(), MachineError> {
        let domain = self.domain();
        self.call("press the power button", Call::Shutdown { domain }).await.map(drop)
    }

    /// Presses the reset button.
    ///
    /// # Errors
    /// It is off.
    pub async fn reset(&self) -> Result<(), MachineError> {
        let domain = self.domain();
        self.call("reset", Call::Reset { domain }).await.map(drop)
    }

    /// Its processors stand still; time goes on outside.
    ///
    /// # Errors
    /// It is off.
    pub async fn pause(&self) -> Result<(), MachineError> {
        let domain = self.domain();
        self.call("pause", Call::Pause { domain }).await.map(drop)
    }

    /// Its processors go on.
    ///
    /// # Errors
    /// It is off.
    pub async fn resume(&self) -> Result<(), MachineError> {
        let domain = self.domain();
        self.call("resume", Call::Resume { domain }).await.map(drop)
    }

    /// The cable of a NIC, as the guest sees it: out or in.
    ///
    /// # Errors
    /// It is off or has no such NIC.
    pub async fn set_link(&self, mac: &str, up: bool) -> Result<(), MachineError> {
        let nic = self.spec.nics.iter().find(|nic| nic.mac.eq_ignore_ascii_case(mac));
        let nic = nic.ok_or_else(|| self.wrong("change a link", format!("it has no NIC {mac}")))?;
        let (domain, xml) = (self.domain(), domain::nic_xml(nic, up));
        self.call("change a link", Call::UpdateDevice { domain, xml, force: false }).await.map(drop)
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
        self.call("change the medium", Call::UpdateDevice { domain, xml, force: true }).await.map(drop)
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
            Bus::Sata => format!("/machine/peripheral/{alias}"),
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
        match self.call("ask what it uses", Call::Usage { domain }).await? {
            Done::Usage(usage) => Ok(usage),
            other => Err(self.wrong("ask what it uses", format!("a strange answer: {other:?}"))),
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
        let done = self.call(command, Call::Monitor { domain, command: line }).await?;
        let Done::Monitor { mut answer } = done else {
            return Err(self.wrong(command, format!("a strange answer: {done:?}")));
        };
        match answer.get("error").and_then(|error| error["desc"].as_str()) {
            Some(why) => Err(self.wrong(command, why.to_owned())),
            None => Ok(answer["return"].take()),
        }
    }

    fn domain(&self) -> String {
        self.placement.domain.clone()
    }

    fn wrong(&self, what: &str, why: String) -> MachineError {
        MachineError::Call { machine: self.spec.name.clone(), what: what.to_owned(), why }
    }

    async fn call(&self, what: &str, call: Call) -> Result<Done, MachineError> {
        self.inner.call(&self.spec.name, what, call).await
    }
}

fn fault_node(disk: &str) -> String {
    format!("vlab-fault-{disk}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_names_a_user_for_qemu() {
        assert!(qemu_conf(true).starts_with("user = \"root\"\n"));
        assert!(!qemu_conf(false).contains("user"));
        assert!(qemu_conf(false).contains("stdio_handler = \"file\"\n"));
    }

    #[test]
    fn events_have_words_for_the_history() {
        let event = |event| MachineEvent { machine: "m".into(), at: SystemTime::UNIX_EPOCH, event };
        let killed = event(DomainEvent::Stopped { reason: "failed".into() });
        assert_eq!(killed.words(), ("stopped", "failed".to_owned()));
        assert!(killed.is_loss());
        assert!(!event(DomainEvent::Stopped { reason: "shutdown".into() }).is_loss());
        let error = |action: &str, reason: &str| {
            event(DomainEvent::IoError { device: String::new(), action: action.into(), reason: reason.into() })
        };
        assert_eq!(error("report", "").words(), ("io-error", "report".to_owned()));
        assert!(!error("report", "").is_out_of_space());
        assert!(error("pause", "enospc").is_out_of_space());
    }

    #[tokio::test]
    async fn without_the_helper_the_error_says_how_to_get_it() {
        let world = tempfile::tempdir().unwrap();
        let ledger = Arc::new(Ledger::create(&world.path().join("r"), "no-helper").unwrap());
        let mut options = MachinesOptions::new(&ledger, Accel::Tcg, world.path());
        options.scratch = world.path().to_path_buf();
        options.helper = Some("/nowhere/vlab-libvirt-helper".into());
        let error = Machines::start(options.clone()).await.unwrap_err();
        assert!(matches!(error, MachineError::Process(_)), "{error}");
        // A helper whose libraries are missing says so on stderr and ends.
        let broken = world.path().join("broken");
        let words =
            "#!/bin/sh\necho 'error while loading shared libraries: libvirt.so.0: no such file' >&2\nexit 127\n";
        fs::write(&broken, words).unwrap();
        fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        options.helper = Some(broken);
        let error = Machines::start(options).await.unwrap_err().to_string();
        assert!(error.contains("libvirt is missing or broken") && error.contains("libvirt.so.0"), "{error}");
        assert!(error.contains("apt-get install libvirt-daemon"), "{error}");
        assert_eq!(ledger.open_entries(), [], "nothing is left of it");
    }
}
