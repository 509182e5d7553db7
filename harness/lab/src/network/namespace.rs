//! A network namespace of a run's own. Two forms, the same for everybody who uses them:
//!
//! * **named** (root): made by `ip netns add`, so that people can look into it with `ip netns exec`. It has a file under
//!   `/run/netns`, which the ledger knows.
//! * **user** (everybody else): inside a user namespace in which we have all rights over the network, held by a small
//!   process that sleeps. It has no name; it is gone with its last process, and the ledger knows the process.
//!
//! Programs are started in it by [`crate::process::Program::namespace`]. Sockets that are opened in it ([`Namespace::listen`])
//! stay in it, whoever uses them: so the harness itself never leaves the host's network.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use crate::ledger::{Ledger, LedgerError, Resource, Snapshot, Token};
use crate::proc::ProcessId;
use crate::process::{Child, ProcessError, Program};
use crate::spawn::NamespaceEntry;
use crate::try_out::{TryError, in_path, try_out_in};

/// First argument of the binary when it is to do something inside of a namespace; [`in_namespace_main`] takes what follows.
pub const VERB: &str = "__in-namespace";

/// How long a tool that changes the network may take.
const TOOL_BUDGET: Duration = Duration::from_secs(10);

/// Where `ip netns` keeps its files.
const NAMED: &str = "/run/netns";

/// What the process that holds a namespace is called in the ledger.
const HOLDER: &str = "lab network";

/// How a namespace is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// With a name; needs root.
    Named,
    /// In a user namespace; for everybody, where the system permits it.
    User,
}

impl Form {
    /// What this user would take.
    #[must_use]
    pub fn of_this_user() -> Self {
        if nix::unistd::geteuid().is_root() { Self::Named } else { Self::User }
    }
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Named => "named network namespace (root)",
            Self::User => "network namespace in a user namespace (no root)",
        })
    }
}

/// Why there is no lab network, or a change of it did not happen.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A program is not installed.
    #[error("the lab network needs `{program}` (Debian: apt-get install {package})")]
    Missing {
        /// The program.
        program: String,
        /// The package.
        package: &'static str,
    },
    /// The system does not let us.
    #[error("a {form} is not permitted here: {why}")]
    NotPermitted {
        /// Which form.
        form: Form,
        /// What the kernel said, and what helps.
        why: String,
    },
    /// A tool refused.
    #[error("{what}: {why}")]
    Tool {
        /// What was being done.
        what: String,
        /// What the tool said.
        why: String,
    },
    /// What is asked for cannot be.
    #[error("{0}")]
    Spec(String),
    /// A socket in the namespace.
    #[error("cannot listen on {address} in the lab network: {error}")]
    Listen {
        /// The address of the socket.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// A file.
    #[error("{path}: {error}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A program of the network.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    form: Form,
    user: Option<OwnedFd>,
    net: OwnedFd,
    /// The binary that does things inside.
    helper: PathBuf,
    /// What holds it, in the user form. It ends when its stdin does.
    holder: Option<(Child, OwnedFd)>,
    entry: Option<(Arc<Ledger>, Token)>,
}

/// The namespace of a run, for another process of the same user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It has this name.
    Named(String),
    /// This process holds it, and a user namespace around it.
    Held(ProcessId),
}

impl Place {
    /// That of the run with this ledger, where it has one.
    #[must_use]
    pub fn of_run(run: &Snapshot) -> Option<Self> {
        run.open.iter().find_map(|(_, resource)| match resource {
            Resource::NetworkNamespace { name } => Some(Self::Named(name.clone())),
            Resource::Process { what, process: Some(holder), .. } if what == HOLDER => Some(Self::Held(*holder)),
            _ => None,
        })
    }

    /// This process enters it, with all that it starts from now on. Where a process holds it, this one must have no other thread.
    ///
    /// # Errors
    /// It is gone, or somebody else's.
    pub fn enter(&self) -> io::Result<()> {
        let open = |path: PathBuf| {
            File::open(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        };
        match self {
            Self::Named(name) => setns(open(Path::new(NAMED).join(name))?, CloneFlags::CLONE_NEWNET)?,
            Self::Held(holder) => {
                let of = |which: &str| open(PathBuf::from(format!("/proc/{}/ns/{which}", holder.pid)));
                let (user, net) = (of("user")?, of("net")?);
                // Its number may have gone to another process before the files were opened.
                if !holder.is_alive() {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "the process that held it has ended"));
                }
                setns(user, CloneFlags::CLONE_NEWUSER)?;
                setns(net, CloneFlags::CLONE_NEWNET)?;
            }
        }
        Ok(())
    }
}

/// A socket that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// A TCP listener.
    Tcp(SocketAddr),
    /// A UDP socket at this address.
    Udp(SocketAddr),
    /// Whole frames of an interface.
    Packets(String),
}

impl Wanted {
    /// As words of a command line; [`Self::of_words`] reads them.
    fn words(&self) -> [String; 2] {
        match self {
            Self::Tcp(address) => ["tcp".to_owned(), address.to_string()],
            Self::Udp(address) => ["udp".to_owned(), address.to_string()],
            Self::Packets(interface) => ["packets".to_owned(), interface.clone()],
        }
    }

    fn of_words(kind: &str, which: &str) -> Result<Self, String> {
        let address = || which.parse().map_err(|error| format!("{which:?}: {error}"));
        match kind {
            "tcp" => address().map(Self::Tcp),
            "udp" => address().map(Self::Udp),
            "packets" => Ok(Self::Packets(which.to_owned())),
            _ => Err(format!("there is no socket of the kind {kind:?}")),
        }
    }

    fn open(&self) -> io::Result<OwnedFd> {
        Ok(match self {
            Self::Tcp(address) => TcpListener::bind(address)?.into(),
            Self::Udp(address) => UdpSocket::bind(address)?.into(),
            Self::Packets(interface) => super::delay::packet_socket(interface)?,
        })
    }
}

impl Namespace {
    /// Makes one. `name` names it in the named form and the log file in `folder` in the other; `helper` is a binary that
    /// calls [`in_namespace_main`] for [`VERB`].
    ///
    /// # Errors
    /// Not permitted, or a tool is missing.
    pub fn create(
        name: &str,
        form: Form,
        folder: &Path,
        helper: &Path,
        ledger: Option<&Arc<Ledger>>,
    ) -> Result<Arc<Self>, NetworkError> {
        let made = match form {
            Form::Named => Self::create_named(name, helper, ledger),
            Form::User => Self::create_user(name, folder, helper, ledger),
        }?;
        // A namespace is born with its loopback interface down.
        made.ip("bring up loopback", "link set lo up\n")?;
        Ok(Arc::new(made))
    }

    fn create_named(name: &str, helper: &Path, ledger: Option<&Arc<Ledger>>) -> Result<Self, NetworkError> {
        let form = Form::Named;
        let resource = Resource::NetworkNamespace { name: name.to_owned() };
        let token =
            ledger.map(|ledger| ledger.record(resource).map(|token| (Arc::clone(ledger), token))).transpose()?;
        let added = tool(None, "ip", &["netns", "add", name], "", "add a network namespace");
        let net = added.and_then(|()| {
            File::open(Path::new(NAMED).join(name))
                .map(OwnedFd::from)
                .map_err(|error| NetworkError::NotPermitted { form, why: error.to_string() })
        });
        match net {
            Ok(net) => Ok(Self {
                name: name.to_owned(),
                form,
                user: None,
                net,
                helper: helper.to_path_buf(),
                holder: None,
                entry: token,
            }),
            Err(error) => {
                let _ = remove_named(name);
                if let Some((ledger, token)) = token {
                    ledger.release(token)?;
                }
                Err(match error {
                    NetworkError::Tool { why, .. } => NetworkError::NotPermitted { form, why },
                    other => other,
                })
            }
        }
    }

    fn create_user(
        name: &str,
        folder: &Path,
        helper: &Path,
        ledger: Option<&Arc<Ledger>>,
    ) -> Result<Self, NetworkError> {
        let log = folder.join("namespace.log");
        let io_error = |error: io::Error| NetworkError::Io { path: log.clone(), error };
        let (mut ours, theirs) = UnixStream::pair().map_err(io_error)?;
        let mut program = Program::new(HOLDER, helper, &log).args([VERB, "hold"]).ledger(ledger.cloned());
        program.stdin = Some(OwnedFd::from(theirs));
        let holder = Child::spawn(program)?;
        // One byte says that it is made; the end says that it is not.
        ours.set_read_timeout(Some(TOOL_BUDGET)).map_err(io_error)?;
        let mut ready = [0];
        let said = ours.read(&mut ready).map_err(io_error)?;
        if said == 0 {
            let why = holder.last_lines(3).join(" ");
            return Err(NetworkError::NotPermitted { form: Form::User, why });
        }
        let open = |which: &str| {
            let path = PathBuf::from(format!("/proc/{}/ns/{which}", holder.pid()));
            File::open(&path).map(OwnedFd::from).map_err(|error| NetworkError::Io { path, error })
        };
        let (user, net) = (open("user")?, open("net")?);
        let (name, helper) = (name.to_owned(), helper.to_path_buf());
        Ok(Self {
            name,
            form: Form::User,
            user: Some(user),
            net,
            helper,
            holder: Some((holder, ours.into())),
            entry: None,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it was made.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// A command with which people can run something in it.
    #[must_use]
    pub fn how_to_enter(&self) -> String {
        match &self.holder {
            None => format!("ip netns exec {}", self.name),
            Some((holder, _)) => format!("nsenter --target {} --user --net --preserve-credentials", holder.pid()),
        }
    }

    pub(crate) fn entry(&self) -> NamespaceEntry {
        NamespaceEntry { user: self.user.as_ref().map(|user| user.as_raw_fd()), net: self.net.as_raw_fd() }
    }

    /// Runs `ip -batch` in it.
    pub(crate) fn ip(&self, what: &str, batch: &str) -> Result<(), NetworkError> {
        tool(Some(self.entry()), "ip", &["-batch", "-"], batch, what)
    }

    /// Runs a tool in it that ends at once; its complaint is the error.
    pub(crate) fn tool(&self, program: &str, args: &[&str], input: &str, what: &str) -> Result<(), NetworkError> {
        tool(Some(self.entry()), program, args, input, what)
    }

    /// A TCP listener in it. It stays in it, whoever accepts.
    ///
    /// # Errors
    /// The address is not one of the namespace, or is taken.
    pub fn listen(&self, address: SocketAddr) -> Result<TcpListener, NetworkError> {
        self.socket(Wanted::Tcp(address))
            .map(TcpListener::from)
            .map_err(|error| NetworkError::Listen { address, error })
    }

    /// A UDP socket in it.
    ///
    /// # Errors
    /// The address is not one of the namespace, or is taken.
    pub fn udp(&self, address: SocketAddr) -> Result<UdpSocket, NetworkError> {
        self.socket(Wanted::Udp(address)).map(UdpSocket::from).map_err(|error| NetworkError::Listen { address, error })
    }

    /// A packet socket on one of its interfaces, with virtio's header before each frame.
    pub(super) fn packets(&self, interface: &str) -> io::Result<OwnedFd> {
        self.socket(Wanted::Packets(interface.to_owned()))
    }

    fn socket(&self, wanted: Wanted) -> io::Result<OwnedFd> {
        match self.form {
            // A thread can be in another network than its process.
            Form::Named => {
                let net = self.net.try_clone()?;
                let opened = std::thread::spawn(move || {
                    setns(net, CloneFlags::CLONE_NEWNET)?;
                    wanted.open()
                });
                opened.join().map_err(|_| io::Error::other("the thread that opens it has failed"))?
            }
            // But not in another user namespace: a process does it and passes the socket on.
            Form::User => self.socket_by_process(&wanted),
        }
    }

    fn socket_by_process(&self, wanted: &Wanted) -> io::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        let [kind, which] = wanted.words();
        let mut command = std::process::Command::new(&self.helper);
        command.args([VERB, &kind, &which]).stdin(OwnedFd::from(theirs)).stderr(std::process::Stdio::piped());
        let birth = crate::spawn::Birth {
            new_session: false,
            death_signal: None,
            entry: Some(self.entry()),
            expendable: false,
        };
        let mut child = crate::spawn::spawn(command, birth)?;
        let mut said = String::new();
        // Ends when the process does.
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_string(&mut said)?;
        }
        child.wait()?;
        receive(&ours)?.ok_or_else(|| io::Error::other(said.trim().to_owned()))
    }

    /// Takes it away. What still runs in it keeps its network until it ends.
    ///
    /// # Errors
    /// It cannot be removed; it stays in the ledger.
    pub fn remove(&self) -> Result<(), NetworkError> {
        if self.form == Form::Named {
            remove_named(&self.name)
                .map_err(|why| NetworkError::Tool { what: format!("remove {}", self.name), why })?;
        }
        if let Some((ledger, token)) = &self.entry {
            ledger.release(*token)?;
        }
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(%error, "a network namespace stays behind");
        }
    }
}

/// Removes a named namespace; `None` when it is not there.
pub(crate) fn remove_named(name: &str) -> Result<Option<String>, String> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(format!("`{name}` is not a valid name for a network namespace"));
    }
    let path = Path::new(NAMED).join(name);
    if !path.exists() {
        return Ok(None);
    }
    match umount2(&path, MntFlags::MNT_DETACH) {
        // Not a mount: `ip` was killed between making the file and mounting.
        Ok(()) | Err(nix::errno::Errno::EINVAL) => {}
        Err(error) => return Err(error.to_string()),
    }
    fs::remove_file(&path).map(|()| Some(String::new())).map_err(|error| error.to_string())
}

fn tool(
    entry: Option<NamespaceEntry>,
    program: &str,
    args: &[&str],
    input: &str,
    what: &str,
) -> Result<(), NetworkError> {
    match try_out_in(program, args, input, entry, TOOL_BUDGET) {
        Ok(tried) if tried.status.success() => Ok(()),
        Ok(tried) => {
            let why = format!("{program}: {}", tried.stderr.trim().replace('\n', "; "));
            Err(NetworkError::Tool { what: what.to_owned(), why })
        }
        Err(TryError::Missing(_)) => {
            Err(NetworkError::Missing { program: program.to_owned(), package: package_of(program) })
        }
        Err(TryError::Failed(why)) => Err(NetworkError::Tool { what: what.to_owned(), why }),
    }
}

/// Debian's package of a program.
pub(crate) fn package_of(program: &str) -> &'static str {
    match program {
        "ip" | "tc" => "iproute2",
        "nft" => "nftables",
        "dnsmasq" => "dnsmasq-base",
        "ssh" | "ssh-keygen" => "openssh-client",
        _ => "(unknown)",
    }
}

/// Is this program there?
pub(crate) fn find(program: &str) -> Result<PathBuf, NetworkError> {
    in_path(program).ok_or_else(|| NetworkError::Missing { program: program.to_owned(), package: package_of(program) })
}

/// What a binary does whose first argument is [`VERB`]: `hold` makes a user and a network namespace and sleeps until stdin
/// ends; `tcp <address>`, `udp <address>` and `packets <interface>` open a socket and pass it on over stdin.
#[must_use]
pub fn in_namespace_main(args: &[OsString]) -> ExitCode {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let done = match words[..] {
        ["hold"] => hold().map_err(|error| error.to_string()),
        [kind, which] => {
            Wanted::of_words(kind, which).and_then(|wanted| pass_on(&wanted).map_err(|error| error.to_string()))
        }
        _ => Err("wrong words behind the verb".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn hold() -> io::Result<()> {
    const HELP: &str = "user namespaces may be switched off: sysctl kernel.unprivileged_userns_clone=1, and on Ubuntu \
                        kernel.apparmor_restrict_unprivileged_userns=0";
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(|error| io::Error::other(format!("{error}; {HELP}")))?;
    // Ourselves only; without this step an ordinary user may not map a group.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    // stdin is a socket, both ways.
    let mut stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    stdin.write_all(b"+")?;
    stdin.read_to_end(&mut Vec::new())?;
    Ok(())
}

fn pass_on(wanted: &Wanted) -> io::Result<()> {
    let socket = wanted.open()?;
    let sockets = [socket.as_raw_fd()];
    let message = [ControlMessage::ScmRights(&sockets)];
    sendmsg::<()>(io::stdin().as_raw_fd(), &[IoSlice::new(b"+")], &message, MsgFlags::empty(), None)?;
    Ok(())
}

fn receive(from: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 1]);
    let message = recvmsg::<()>(from.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(sockets) = part
            && let Some(socket) = sockets.first()
        {
            #[expect(unsafe_code, reason = "a number that the kernel has just made for us")]
            // SAFETY: received this moment, and nobody else knows it.
            return Ok(Some(unsafe { OwnedFd::from_raw_fd(*socket) }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_survives_a_command_line() {
        let address = || "[fd00::1]:8090".parse().unwrap();
        for wanted in [Wanted::Tcp(address()), Wanted::Udp(address()), Wanted::Packets("tap0".into())] {
            let [kind, which] = wanted.words();
            assert_eq!(Wanted::of_words(&kind, &which), Ok(wanted));
        }
        assert!(Wanted::of_words("tcp", "nowhere").unwrap_err().contains("nowhere"));
        assert!(Wanted::of_words("raw", "tap0").is_err());
    }

    #[test]
    fn only_names_are_removed() {
        for name in ["", "../x", "a/b", ".", ".."] {
            assert!(remove_named(name).is_err(), "{name}");
        }
        assert_eq!(remove_named("vlab-no-such-namespace"), Ok(None));
    }
}
