//! The ledger: everything that a run makes on this machine is written here **before** it exists and crossed out after it
//! is gone. What is not crossed out when the harness is dead is removed by the [supervisor](crate::supervisor) or by
//! [`gc`](crate::gc).
//!
//! A file of JSON lines, only ever appended to, one `write` a line: a harness that is killed in the middle leaves at worst
//! one torn last line, which readers skip. Nothing secret is written to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::proc::{self, ProcessId};

/// Version of the form of the file.
const FORM: u32 = 1;

/// The environment variable by which a program that we start says which ledger entry it belongs to: `<run>:<entry>`.
/// It finds the processes that were born but whose number was not yet written down when the harness died.
pub const MARK: &str = "VLAB_LEDGER_MARK";

/// Something that exists on the machine because of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resource {
    /// A program with its process group. Who it is follows by [`Ledger::identify`] once it is born.
    Process {
        /// For people: `service`, `postgres` …
        what: String,
        /// Who it is; `None` until it is born.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<ProcessId>,
        /// Its process group; `None` until it is born.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pgid: Option<u32>,
    },
    /// A directory with all that is in it.
    Directory {
        /// Absolute path.
        path: PathBuf,
    },
    /// A file.
    File {
        /// Absolute path.
        path: PathBuf,
    },
    /// A unix socket.
    Socket {
        /// Absolute path.
        path: PathBuf,
    },
    /// A PostgreSQL server: its processes and its shared memory (the directory is an entry of its own).
    PostgresCluster {
        /// Absolute path of the data directory.
        data_dir: PathBuf,
    },
    /// A database of ours on a server that is not. The server is the one that `DATABASE_URL` names for whoever removes
    /// it: passwords are not written down.
    Database {
        /// `host:port` of the server, to be sure that it is the same one.
        server: String,
        /// Name of the database.
        name: String,
    },
    /// A container, network or volume of a container engine.
    Engine {
        /// Address of the engine, in the form of `DOCKER_HOST`.
        engine: String,
        /// `container`, `network` or `volume`.
        thing: String,
        /// Its name.
        name: String,
    },
    /// A virtual machine: its QEMU, which is nobody's child. Who it is follows by [`Ledger::identify`]; until then, and
    /// after a reset, it is found by its [`MARK`].
    Machine {
        /// Name of the host.
        name: String,
        /// Its folder: sockets, disks. An entry of its own, or inside of one.
        directory: PathBuf,
        /// What its console has said; stays.
        console: PathBuf,
        /// Its QEMU; `None` until it is born.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<ProcessId>,
        /// Its process group; `None` until it is born.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pgid: Option<u32>,
    },
    /// A network namespace with a name (`ip netns`). What is in it (bridge, taps, rules) goes with it.
    NetworkNamespace {
        /// Its name.
        name: String,
    },
    /// Objects on a hub that is somebody's: namespaces and image sets with the run's label.
    OnHub {
        /// Absolute path of its kubeconfig.
        kubeconfig: PathBuf,
        /// Value of the label, see [`crate::hub`].
        label: String,
    },
    /// Memory that is promised to machines; nothing to remove, but others must not count on it.
    Memory {
        /// How much.
        bytes: u64,
    },
    /// Written by another version of this program: kept as it is, reported, not touched.
    #[serde(untagged)]
    Unknown(serde_json::Value),
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process { what, process: Some(id), .. } => write!(f, "process {} ({what})", id.pid),
            Self::Process { what, process: None, .. } => write!(f, "process of {what}"),
            Self::Directory { path } => write!(f, "directory {}", path.display()),
            Self::File { path } => write!(f, "file {}", path.display()),
            Self::Socket { path } => write!(f, "socket {}", path.display()),
            Self::PostgresCluster { data_dir } => write!(f, "PostgreSQL server in {}", data_dir.display()),
            Self::Database { server, name } => write!(f, "database {name} on {server}"),
            Self::Engine { engine, thing, name } => write!(f, "{thing} {name} of {engine}"),
            Self::Machine { name, process: Some(id), .. } => write!(f, "machine {name} (QEMU {})", id.pid),
            Self::Machine { name, process: None, .. } => write!(f, "machine {name}"),
            Self::NetworkNamespace { name } => write!(f, "network namespace {name}"),
            Self::OnHub { kubeconfig, label } => {
                write!(f, "what has the label {}={label} on the hub of {}", crate::hub::LABEL, kubeconfig.display())
            }
            Self::Memory { bytes } => write!(f, "{} MiB of memory for machines", bytes >> 20),
            Self::Unknown(value) => match value.get("kind").and_then(serde_json::Value::as_str) {
                Some(kind) => write!(f, "`{kind}` of another version"),
                None => write!(f, "entry of another version"),
            },
        }
    }
}

/// Number of an entry in its ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Token(u64);

/// First line of a ledger: whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the form.
    pub vlab_ledger: u32,
    /// Id of the run.
    pub run: String,
    /// The harness.
    pub harness: ProcessId,
    /// Boot of the machine on which it runs.
    pub boot: String,
    /// Unix time in milliseconds at which the ledger was made.
    pub at_ms: u64,
}

impl Header {
    fn of_this_process(run: &str) -> io::Result<Self> {
        let at_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis());
        Ok(Self {
            vlab_ledger: FORM,
            run: run.to_owned(),
            harness: ProcessId::me()?,
            boot: proc::boot_id(),
            at_ms: u64::try_from(at_ms).unwrap_or(u64::MAX),
        })
    }

    /// Does the harness still run?
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.boot == proc::boot_id() && self.harness.is_alive()
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Record { token: Token, resource: Resource },
    Identify { token: Token, process: ProcessId, pgid: u32 },
    Release { token: Token },
    Removed { token: Token, by: String, what: String },
    Kept { token: Token, by: String, why: String },
}

/// What can go wrong with a ledger.
#[derive(Debug, thiserror::Error)]
#[error("ledger {path}: {problem}")]
pub struct LedgerError {
    /// The file or its folder.
    pub path: PathBuf,
    /// What happened.
    pub problem: String,
}

impl LedgerError {
    pub(crate) fn new(path: &Path, problem: impl ToString) -> Self {
        Self { path: path.to_path_buf(), problem: problem.to_string() }
    }
}

/// The folder in which the ledgers of this user lie: `$XDG_RUNTIME_DIR/vlab`, else `/tmp/vlab-<uid>`.
#[must_use]
pub fn registry() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_dir()) {
        Some(dir) => PathBuf::from(dir).join("vlab"),
        None => PathBuf::from(format!("/tmp/vlab-{}", nix::unistd::geteuid())),
    }
}

/// The ledger of a living run; belongs to its harness.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    header: Header,
    state: Mutex<LedgerState>,
    kept: AtomicBool,
    strays: Mutex<BTreeSet<ProcessId>>,
}

#[derive(Debug)]
struct LedgerState {
    file: File,
    next: u64,
    open: BTreeMap<Token, Resource>,
}

impl Ledger {
    /// Makes the ledger of run `run` in folder `dir` (see [`registry`]), which is made when missing, for this user only.
    ///
    /// # Errors
    /// A folder of somebody else, no space, or a run of that name that already has a ledger.
    pub fn create(dir: &Path, run: &str) -> Result<Self, LedgerError> {
        let path = dir.join(format!("{run}.ledger"));
        let fail = |problem: &dyn std::fmt::Display| LedgerError::new(&path, problem);
        if run.is_empty() || run.contains(['/', '\0', ':']) || run.starts_with('.') {
            return Err(fail(&format_args!("`{run}` is not a valid id for a run")));
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| fail(&error))?;
        check_is_ours(dir).map_err(|problem| LedgerError::new(dir, problem))?;
        let header = Header::of_this_process(run).map_err(|error| fail(&error))?;
        let mut file =
            OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path).map_err(|error| fail(&error))?;
        write_line(&mut file, &header).map_err(|error| fail(&error))?;
        Ok(Self {
            path,
            header,
            state: Mutex::new(LedgerState { file, next: 1, open: BTreeMap::new() }),
            kept: AtomicBool::new(false),
            strays: Mutex::default(),
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Id of the run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.header.run
    }

    /// What is made from now on is to outlive this process: programs are not killed when their owner drops them or dies. Say
    /// so before anything is made. Whoever ends without telling the supervisor to keep it still has it removed.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Is what it lists to outlive this process?
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Processes that a program of the run had started and that are in no group which ends with it. They are to be gone when the
    /// run ends, and are known even where they have not kept the environment with our mark.
    pub(crate) fn note_strays(&self, strays: impl IntoIterator<Item = ProcessId>) {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner).extend(strays);
    }

    /// Processes that programs of the run had started outside of their groups, as they were when each program was ended: what still lives
    /// of them is for [`leaks::end_processes`](crate::leaks::end_processes).
    pub fn strays(&self) -> BTreeSet<ProcessId> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes down what is about to be made. When this fails, do not make it.
    ///
    /// # Errors
    /// The line could not be written (no space).
    pub fn record(&self, resource: Resource) -> Result<Token, LedgerError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let token = Token(state.next);
        let line = Line::Record { token, resource };
        self.append(&mut state, &line)?;
        state.next += 1;
        let Line::Record { resource, .. } = line else { unreachable!("made above") };
        state.open.insert(token, resource);
        Ok(token)
    }

    /// Who the process of this entry is, now that it is born.
    ///
    /// # Errors
    /// The line could not be written.
    pub fn identify(&self, token: Token, process: ProcessId, pgid: u32) -> Result<(), LedgerError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.append(&mut state, &Line::Identify { token, process, pgid })?;
        identify(&mut state.open, token, process, pgid);
        Ok(())
    }

    /// Crosses out what is gone. Twice is once.
    ///
    /// # Errors
    /// The line could not be written; the entry then stays open, and removing what is gone harms nothing.
    pub fn release(&self, token: Token) -> Result<(), LedgerError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.open.contains_key(&token) {
            self.append(&mut state, &Line::Release { token })?;
            state.open.remove(&token);
        }
        Ok(())
    }

    /// What exists now, in the order in which it was made.
    #[must_use]
    pub fn open_entries(&self) -> Vec<(Token, Resource)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.open.iter().map(|(token, resource)| (*token, resource.clone())).collect()
    }

    /// The value of [`MARK`] for the process of this entry.
    #[must_use]
    pub fn mark(&self, token: Token) -> String {
        mark(&self.header.run, token)
    }

    /// The end of a run: removes the ledger when nothing is open, else says what leaked (and leaves the file for `gc`).
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn close(&self) -> Result<Vec<Resource>, LedgerError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.open.is_empty() {
            match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(LedgerError::new(&self.path, error));
                }
                _ => {}
            }
        }
        Ok(state.open.values().cloned().collect())
    }

    fn append(&self, state: &mut LedgerState, line: &Line) -> Result<(), LedgerError> {
        write_line(&mut state.file, line).map_err(|error| LedgerError::new(&self.path, error))
    }
}

fn mark(run: &str, token: Token) -> String {
    format!("{run}:{}", token.0)
}

fn identify(open: &mut BTreeMap<Token, Resource>, token: Token, id: ProcessId, group: u32) {
    if let Some(Resource::Process { process, pgid, .. } | Resource::Machine { process, pgid, .. }) =
        open.get_mut(&token)
    {
        *process = Some(id);
        *pgid = Some(group);
    }
}

/// One line, one `write`: lines of two writers do not mix, and a line is there or it is not.
fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)
}

/// In a world-writable parent (`/tmp`) somebody else could have made the folder first and put ledgers into it that name
/// our files: such a folder is not used, neither for writing nor for removing.
pub(crate) fn check_is_ours(dir: &Path) -> Result<(), String> {
    let meta = fs::symlink_metadata(dir).map_err(|error| error.to_string())?;
    let me = nix::unistd::geteuid().as_raw();
    if !meta.is_dir() {
        return Err("is not a directory".into());
    }
    if meta.uid() != me || meta.mode() & 0o022 != 0 {
        return Err(format!(
            "belongs to uid {} with mode {:o}: it must belong to uid {me} and be writable by nobody else; remove it or \
             set XDG_RUNTIME_DIR",
            meta.uid(),
            meta.mode() & 0o777
        ));
    }
    Ok(())
}

/// A ledger as somebody else reads it: the supervisor, `gc`.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The file.
    pub path: PathBuf,
    /// Whose it is.
    pub header: Header,
    /// What is not crossed out, in the order in which it was made.
    pub open: Vec<(Token, Resource)>,
    /// Lines that could not be understood (a torn last line is not counted).
    pub strange_lines: usize,
}

impl Snapshot {
    /// Reads a ledger.
    ///
    /// # Errors
    /// Not readable, or without a first line that says whose it is.
    pub fn read(path: &Path) -> Result<Self, LedgerError> {
        let bytes = fs::read(path).map_err(|error| LedgerError::new(path, error))?;
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let header: Header = lines
            .next()
            .and_then(|line| serde_json::from_slice(line).ok())
            .ok_or_else(|| LedgerError::new(path, "the first line does not say whose ledger it is"))?;
        let (mut open, mut strange_lines) = (BTreeMap::new(), 0);
        for line in lines {
            match serde_json::from_slice::<Line>(line) {
                Ok(Line::Record { token, resource }) => {
                    open.insert(token, resource);
                }
                Ok(Line::Identify { token, process, pgid }) => identify(&mut open, token, process, pgid),
                Ok(Line::Release { token } | Line::Removed { token, .. }) => {
                    open.remove(&token);
                }
                Ok(Line::Kept { .. }) => {}
                Err(_) if !line.ends_with(b"\n") => {}
                Err(_) => strange_lines += 1,
            }
        }
        Ok(Self { path: path.to_path_buf(), header, open: open.into_iter().collect(), strange_lines })
    }

    /// The value of [`MARK`] for the process of this entry.
    #[must_use]
    pub fn mark(&self, token: Token) -> String {
        mark(&self.header.run, token)
    }

    /// Writes down that `by` removed an entry (`Ok`: what was done) or had to keep it (`Err`: why).
    ///
    /// # Errors
    /// The line could not be written.
    pub(crate) fn settle(&self, token: Token, by: &str, outcome: Result<&str, &str>) -> Result<(), LedgerError> {
        let by = by.to_owned();
        let line = match outcome {
            Ok(what) => Line::Removed { token, by, what: what.to_owned() },
            Err(why) => Line::Kept { token, by, why: why.to_owned() },
        };
        OpenOptions::new()
            .append(true)
            .open(&self.path)
            .and_then(|mut file| write_line(&mut file, &line))
            .map_err(|error| LedgerError::new(&self.path, error))
    }
}
