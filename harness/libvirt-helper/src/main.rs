//! `vlab-libvirt-helper`: the one program of the project that links libvirt. `vlab` starts it and speaks JSON lines with it (see
//! [`vlab_lab::machines::protocol`]), so that `vlab` itself builds and runs where there is no libvirt.
//!
//! `vlab-libvirt-helper serve <uri>` is two processes. The inner one has the connection. The outer one is the parent of
//! everything that libvirt leaves without a parent: QEMU makes itself a daemon, and an embedded libvirt that ends one
//! waits until its zombie is reaped. Where process 1 is slow or does not reap at all, that takes seconds. The outer one
//! waits for children and does nothing else; the inner one must not, because libvirt waits for its own.
//!
//! When stdin ends, all domains that were made here are destroyed, and the program ends.

mod account;
mod events;
mod server;

use std::ffi::OsStr;
use std::process::{Command, ExitCode};

use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::Pid;

const USAGE: &str = "usage: vlab-libvirt-helper serve <uri>

vlab starts this program; people use `vlab machines`, `vlab spawn` and `vlab console`.";

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let args: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    match words[..] {
        ["serve", uri] => reap_for(uri),
        ["__serve-inner", uri] => server::serve(uri),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The outer process.
fn reap_for(uri: &str) -> ExitCode {
    let adopted = nix::sys::prctl::set_child_subreaper(true).map_err(std::io::Error::from);
    let started = adopted.and_then(|()| Command::new("/proc/self/exe").args(["__serve-inner", uri]).spawn());
    let inner = match started {
        Ok(inner) => inner,
        Err(error) => {
            eprintln!("vlab-libvirt-helper: cannot start its inner process: {error}");
            return ExitCode::from(70);
        }
    };
    let inner = Pid::from_raw(inner.id().cast_signed());
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid == inner => {
                return ExitCode::from(u8::try_from(code).unwrap_or(70));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == inner => {
                eprintln!("vlab-libvirt-helper: its inner process ended with {signal}");
                return ExitCode::from(70);
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => {
                eprintln!("vlab-libvirt-helper: cannot wait for its inner process: {error}");
                return ExitCode::from(70);
            }
        }
    }
}
