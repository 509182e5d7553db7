//! The one place that forks. It holds this crate's only code that runs between fork and exec, where only
//! async-signal-safe calls are allowed.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc;

use nix::errno::Errno;
use nix::fcntl::{self, OFlag};
use nix::libc;
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd;

/// What the child does with itself before it becomes the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Birth {
    /// A session (and process group) of its own, without a terminal; otherwise only a process group of its own.
    pub(crate) new_session: bool,
    /// The signal that the kernel sends it when this process dies.
    pub(crate) death_signal: Option<Signal>,
    /// The namespaces that it enters.
    pub(crate) entry: Option<NamespaceEntry>,
    /// Where memory ends, the kernel ends it before others of the run.
    pub(crate) expendable: bool,
}

/// What is added to the kernel's score of an expendable program, in thousandths of all memory (`oom_score_adj` of proc(5)).
const EXPENDABLE: i32 = 500;

/// Namespaces to enter. The numbers must stay open until the program has started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamespaceEntry {
    /// A user namespace of ours: it is entered first, and all rights in it are kept when the program starts.
    pub(crate) user: Option<RawFd>,
    /// A network namespace.
    pub(crate) net: RawFd,
}

type Job = (Command, Birth, mpsc::Sender<io::Result<Child>>);

/// Starts the program. The kernel ties "the parent died" to the *thread* that forked, and threads of an async runtime
/// come and go; so all forks are done by one thread that lives as long as this process.
pub(crate) fn spawn(command: Command, birth: Birth) -> io::Result<Child> {
    static FORKER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let forker = match FORKER.get() {
        Some(forker) => forker,
        None => {
            let (sender, jobs) = mpsc::channel::<Job>();
            std::thread::Builder::new().name("vlab-forker".into()).spawn(move || {
                while let Ok((command, birth, answer)) = jobs.recv() {
                    // A caller that has gone away has no use for the child; dropping it here does not kill it, the
                    // ledger's supervisor does.
                    let _ = answer.send(fork_exec(command, birth));
                }
            })?;
            FORKER.get_or_init(|| sender)
        }
    };
    let (answer, result) = mpsc::channel();
    let gone = |_| io::Error::other("the thread that starts programs has ended");
    forker.send((command, birth, answer)).map_err(|_| gone(mpsc::RecvError))?;
    result.recv().map_err(gone)?
}

fn fork_exec(mut command: Command, birth: Birth) -> io::Result<Child> {
    let parent = unistd::getpid();
    let score = birth.expendable.then(expendable);
    if !birth.new_session {
        command.process_group(0);
    }
    #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
    // SAFETY: the closure only makes the system calls setsid, setns, capget, capset, prctl, getppid, open, write and close, all
    // async-signal-safe; it allocates nothing (paths are shorter than what nix copies to the heap) and takes no lock. std runs it after the change of user, which would have reset the death signal.
    unsafe {
        command.pre_exec(move || {
            if birth.new_session {
                unistd::setsid()?;
            }
            // Whatever it starts stays below it, whoever of them ends first. Where the kernel cannot, all is as it was.
            let _ = prctl::set_child_subreaper(true);
            if let Some((score, len)) = score {
                // Who may not is not worse off than before.
                if let Ok(file) = fcntl::open("/proc/self/oom_score_adj", OFlag::O_WRONLY, Mode::empty()) {
                    let _ = unistd::write(&file, score.get(..len).unwrap_or_default());
                }
            }
            if let Some(entry) = birth.entry {
                enter(entry)?;
            }
            // After the change of namespace, which resets it.
            if let Some(signal) = birth.death_signal {
                prctl::set_pdeathsig(signal)?;
                // The parent may have died before the line above: then nobody will ever send the signal.
                if unistd::getppid() != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
            }
            Ok(())
        });
    }
    command.spawn()
}

/// The text to be written, made before the fork: at least what this process has, which one without rights cannot go below.
fn expendable() -> ([u8; 8], usize) {
    let ours = std::fs::read_to_string("/proc/self/oom_score_adj").ok().and_then(|text| text.trim().parse().ok());
    let text = ours.unwrap_or(0).max(EXPENDABLE).to_string();
    let mut score = [0; 8];
    let len = text.len().min(score.len());
    score.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    (score, len)
}

/// Runs between fork and exec: system calls only.
fn enter(entry: NamespaceEntry) -> io::Result<()> {
    #[expect(unsafe_code, reason = "numbers and not owners, because nothing may be allocated or dropped here")]
    // SAFETY: `NamespaceEntry` promises that they are open; this process is a copy of the one that has them open.
    let (user, net) =
        unsafe { (entry.user.map(|user| BorrowedFd::borrow_raw(user)), BorrowedFd::borrow_raw(entry.net)) };
    if let Some(user) = user {
        setns(user, CloneFlags::CLONE_NEWUSER)?;
    }
    setns(net, CloneFlags::CLONE_NEWNET)?;
    if user.is_some() {
        keep_rights()?;
    }
    Ok(())
}

/// Who enters a user namespace has all rights in it, and an ordinary user loses them at exec. Ambient rights stay, for this
/// program and for those that it starts.
pub(crate) fn keep_rights() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Rights {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    // _LINUX_CAPABILITY_VERSION_3; 0 is this process.
    let mut header = Header { version: 0x2008_0522, pid: 0 };
    let mut rights = [Rights { effective: 0, permitted: 0, inheritable: 0 }; 2];
    #[expect(unsafe_code, reason = "capget, capset and ambient rights have no wrapper in libc or nix")]
    // SAFETY: both structures have the layout that version 3 of the call has, two of the second one; they live on the
    // stack for the time of the calls. prctl takes numbers only.
    unsafe {
        Errno::result(libc::syscall(libc::SYS_capget, &raw mut header, rights.as_mut_ptr()))?;
        for part in &mut rights {
            part.inheritable = part.permitted;
        }
        Errno::result(libc::syscall(libc::SYS_capset, &raw mut header, rights.as_ptr()))?;
        for right in 0..64_u32 {
            if rights[(right / 32) as usize].permitted & (1 << (right % 32)) != 0 {
                let raise = libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong;
                Errno::result(libc::prctl(libc::PR_CAP_AMBIENT, raise, libc::c_ulong::from(right), 0, 0))?;
            }
        }
    }
    Ok(())
}
