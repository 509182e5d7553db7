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
//!   .thaw(spec, folder) -> Machine   the same from what Machine::freeze has written; it stands still until .resume()
//!   .events()                        what happens to machines, pushed (broadcast); see [`MachineEvent::words`]
//!   .failed()                        the helper has died: the run is inconclusive
//!   .stop()                          everything gone
//! Machine: power_off, power_on, shutdown, reset, pause, resume, set_link, eject, fail_disk, heal_disk, limit_writes,
//!          freeze, screenshot, usage, console (lines as they come), console_log, console_socket
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
mod freeze;
mod helper;
pub mod leftover;
mod machine;
pub mod memory;
pub mod probe;
pub mod protocol;
pub mod tiny;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::broadcast;

use crate::cleanup;
use crate::helper::Requests;
use crate::iscsi::ibft;
use crate::ledger::{Ledger, LedgerError, MARK, Resource, Snapshot, Token};
use crate::network::Namespace;
use crate::proc::ProcessId;
use crate::process::{Child, ProcessError};
use crate::ssh::Access;
use crate::wait;

pub use domain::{Accel, BootOrder, Bus, DiskSpec, Firmware, MachineSpec, NicSpec, Placement, Plug, SpecError, Vendor};
pub use helper::{HELPER, Versions, find_helper};
pub use leftover::Leftover;
pub use machine::{DiskFault, Machine, find_ovmf};
pub use memory::{MemoryError, Reservation};
pub use protocol::{DomainEvent, DomainUsage};

use helper::Shared;
use protocol::{HelperAnswer, HelperCall, HelperRequest, PROTOCOL};

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
    /// They may be frozen: [`Machine::freeze`].
    pub movable: bool,
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
            movable: false,
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
    #[error("the helper that runs the machines has exited; the end of its log:\n{log}")]
    HelperGone {
        /// The last lines of its log.
        log: String,
    },
    /// libvirt or QEMU said no.
    #[error("machine {machine}: {what}: {why}")]
    Call {
        /// Name of the machine.
        machine: String,
        /// What was asked for.
        what: String,
        /// Their words.
        why: String,
    },
    /// libvirt does not answer: it hangs, or this machine is far too busy.
    #[error("machine {machine}: {what}: libvirt did not answer within {} s", CALL.as_secs())]
    NoAnswer {
        /// Name of the machine.
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
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A program.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Something happened to a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineEvent {
    /// Name of the host.
    pub machine: String,
    /// When libvirt told.
    pub at: SystemTime,
    /// What happened to it.
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
    requests: Requests<HelperAnswer>,
    shared: Arc<Shared>,
    state: Mutex<MachinesState>,
}

#[derive(Debug, Default)]
struct MachinesState {
    machines: BTreeMap<String, MachineEntry>,
    /// For machines that are still to come, by name.
    reserved: BTreeMap<String, Arc<Reservation>>,
}

#[derive(Debug)]
struct MachineEntry {
    token: Token,
    process: Option<ProcessId>,
    tpm: Option<Child>,
    /// Kept as long as the machine exists, running or not.
    _memory: Arc<Reservation>,
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
        let connected = helper::connect(&options, &executable, &folder).map_err(give_up)?;
        let (helper, versions, requests, lines) = connected;
        let shared = Arc::new(Shared {
            waiting: requests.waiting(),
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
                requests,
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
        self.make(spec, None).await
    }

    /// Makes a machine that goes on from what [`Machine::freeze`] has written into that folder. Its processors stand still until
    /// [`Machine::resume`]. The folder stays as it is; the machine's disks are layers over those in it.
    ///
    /// # Errors
    /// As [`Machines::create`]; what was written down is not there, or is not of this machine and this QEMU.
    pub async fn thaw(&self, spec: MachineSpec, from: &Path) -> Result<Machine, MachineError> {
        self.make(spec, Some(from)).await
    }

    async fn make(&self, spec: MachineSpec, from: Option<&Path>) -> Result<Machine, MachineError> {
        let inner = Arc::clone(&self.inner);
        let kept = from.map(Path::to_owned);
        let machine = blocking(move || inner.prepare(spec, kept.as_deref())).await?;
        let started = match from {
            None => machine.start_anew().await,
            Some(from) => machine.load(from).await,
        };
        match started {
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

impl Inner {
    async fn call(&self, machine: &str, what: &str, call: HelperCall) -> Result<HelperAnswer, MachineError> {
        let failed = |why: String| MachineError::Call { machine: machine.to_owned(), what: what.to_owned(), why };
        let gone = || MachineError::HelperGone { log: self.helper.last_lines(20).join("\n") };
        let Some(answer) = self.requests.ask(|id| HelperRequest { id, call }) else { return Err(gone()) };
        match tokio::time::timeout(CALL, answer).await {
            Ok(Ok(result)) => result.map_err(failed),
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(MachineError::NoAnswer { machine: machine.to_owned(), what: what.to_owned() }),
        }
    }

    /// Everything but starting it.
    fn prepare(self: Arc<Self>, mut spec: MachineSpec, kept: Option<&Path>) -> Result<Machine, MachineError> {
        if let Some(kept) = kept {
            freeze::over(&mut spec, kept);
        }
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
        let ovmf = find_ovmf(spec.firmware);
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
            movable: options.movable,
            frozen: kept.is_some(),
            again: kept.is_some(),
        };
        let made = domain::domain_xml(&spec, &placement).map_err(MachineError::from).and_then(|xml| {
            fs::create_dir(&directory).map_err(io_at(&directory))?;
            for disk in &spec.disks {
                machine::make_disk(disk, &placement.disk(disk), spec.uuid)?;
            }
            for (place, (_, content)) in spec.firmware_files.iter().enumerate() {
                let file = placement.firmware_file(place);
                fs::write(&file, content).map_err(io_at(&file))?;
            }
            if let Some(known) = &spec.known {
                let file = placement.known();
                fs::write(&file, ibft::table(known)).map_err(io_at(&file))?;
            }
            if let Some((_, variables)) = &ovmf {
                let variables = kept.map_or_else(|| variables.clone(), freeze::variables);
                fs::copy(&variables, placement.nvram()).map_err(io_at(&variables))?;
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
            .insert(spec.name.clone(), MachineEntry { token, process: None, tpm: None, _memory: memory });
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
        if !self.requests.close() {
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
pub struct KnownMachine {
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
pub fn known(registry: &Path) -> Vec<KnownMachine> {
    let entries = fs::read_dir(registry).into_iter().flatten().flatten();
    let paths =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ending| ending == "ledger"));
    let runs = paths.filter_map(|path| Snapshot::read(&path).ok()).filter(|run| run.header.is_alive());
    let mut known: Vec<KnownMachine> = runs
        .flat_map(|run| {
            let access = Access::of_run(&run);
            let id = run.header.run;
            run.open.into_iter().filter_map(move |(_, resource)| match resource {
                Resource::Machine { name, directory, console, .. } => Some(KnownMachine {
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

#[cfg(test)]
mod tests {
    use super::*;

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
