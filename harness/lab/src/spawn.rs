//! The one place that forks. It holds this crate's only code that runs between fork and exec, where only
//! async-signal-safe calls are allowed.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd;

/// What the child does with itself before it becomes the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Birth {
    /// A session (and process group) of its own, without a terminal; otherwise only a process group of its own.
    pub(crate) new_session: bool,
    /// The signal that the kernel sends it when this process dies.
    pub(crate) death_signal: Option<Signal>,
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
    if !birth.new_session {
        command.process_group(0);
    }
    #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
    // SAFETY: the closure only makes the system calls setsid, prctl and getppid, all async-signal-safe; it allocates
    // nothing and takes no lock. std runs it after the change of user, which would have reset the death signal.
    unsafe {
        command.pre_exec(move || {
            if birth.new_session {
                unistd::setsid()?;
            }
            if let Some(signal) = birth.death_signal {
                prctl::set_pdeathsig(signal)?;
                // The parent may have died before the line above: then nobody will ever send the signal.
                if unistd::getppid() != parent {
                    return Err(io::Error::from_raw_os_error(nix::libc::ESRCH));
                }
            }
            Ok(())
        });
    }
    command.spawn()
}
