//! A program that believes to be in a pod: it finds the namespace of its service account in a file where pods have it, and a bundle of
//! authorities, which may be empty, where images of its distribution have it: without that file the real controllers talk to no cluster.
//!
//! The files are in a mount namespace of the program's own, so the computer does not get it, two runs do not disturb each other, and
//! nothing has to be removed afterwards. Without root the mount namespace is in a user namespace in which the user stays who they are.
//!
//! It is the same binary with a hidden first argument ([`VERB`]), which changes where it is and becomes the program: the process,
//! its signals and its exit code are the program's.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::unistd;

/// First argument of the binary when it is to become a program in a pod; [`in_pod_main`] takes what follows: [`HOST`] and [`ACCOUNT`] where
/// they are wanted, the namespace of the service account, the program, and its arguments.
pub const VERB: &str = "__in-pod";

/// What follows is the name that the program's host is to have.
pub const HOST: &str = "--host";

/// What follows is a folder with more files of the service account: `token` and `ca.crt`.
pub const ACCOUNT: &str = "--account";

/// Where programs in pods look for the namespace of their service account.
pub const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Where programs of the distribution of the service's image look for the authorities of the system.
pub const AUTHORITIES_FILE: &str = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";

/// What a binary does whose first argument is [`VERB`]. It must have no other thread.
#[must_use]
pub fn in_pod_main(args: &[OsString]) -> ExitCode {
    let mut args = args;
    let (mut host, mut account) = (None, None);
    while let [option, value, rest @ ..] = args
        && let Some(wanted) = [(HOST, &mut host), (ACCOUNT, &mut account)].into_iter().find(|(name, _)| option == name)
    {
        *wanted.1 = Some(value);
        args = rest;
    }
    let [namespace, program, args @ ..] = args else {
        eprintln!(
            "{VERB} is for vlab itself: {VERB} [{HOST} <name>] [{ACCOUNT} <folder>] <namespace> <program> [argument…]"
        );
        return ExitCode::FAILURE;
    };
    let why = match enter(namespace, host.map(OsString::as_os_str), account.map(Path::new)) {
        Ok(()) => Command::new(program).args(args).exec().to_string(),
        Err(why) => why,
    };
    eprintln!("vlab: {} cannot be started as in a pod: {why}", program.display());
    ExitCode::FAILURE
}

fn enter(namespace: &OsStr, host: Option<&OsStr>, account: Option<&Path>) -> Result<(), String> {
    let parent = unistd::getppid();
    let signal = prctl::get_pdeathsig().map_err(|error| error.to_string())?;
    // Before this computer's own files are covered.
    let read = |name: &str| account.map(|folder| fs::read(folder.join(name))).transpose();
    let wrong = |why: io::Error| format!("its service account: {why}");
    let (token, authority) = (read("token").map_err(wrong)?, read("ca.crt").map_err(wrong)?);
    own_mounts().map_err(|why| {
        format!(
            "no mount namespace of its own: {why}; user namespaces may be switched off: sysctl \
             kernel.unprivileged_userns_clone=1, and on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0"
        )
    })?;
    let place = |file: &Path, text: &[u8]| place(file, text).map_err(|why| format!("{}: {why}", file.display()));
    let file = Path::new(NAMESPACE_FILE);
    place(file, namespace.as_encoded_bytes())?;
    for (name, content) in [("token", token), ("ca.crt", authority)] {
        if let Some(content) = content {
            place(&file.with_file_name(name), &content)?;
        }
    }
    let file = Path::new(AUTHORITIES_FILE);
    if !file.exists() {
        place(file, b"")?;
    }
    if let Some(host) = host {
        let named = unshare(CloneFlags::CLONE_NEWUTS).and_then(|()| unistd::sethostname(host));
        named.map_err(|why| format!("a host name of its own: {why}"))?;
    }
    // A change of user namespace takes it away.
    prctl::set_pdeathsig(signal).map_err(|error| error.to_string())?;
    if unistd::getppid() == parent { Ok(()) } else { Err("whoever started it has ended".to_owned()) }
}

fn own_mounts() -> io::Result<()> {
    let (uid, gid) = (unistd::geteuid(), unistd::getegid());
    // Root in a container may lack the right, and gets it in a user namespace.
    if !uid.is_root() || unshare(CloneFlags::CLONE_NEWNS).is_err() {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        // Ourselves only; without the first step an ordinary user may not map a group.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    }
    // What is mounted from now on stays here.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    Ok(())
}

/// Lays a file where nobody but this process and its children sees it.
fn place(file: &Path, text: &[u8]) -> io::Result<()> {
    let name = file.file_name().unwrap_or_default();
    let folder = real(file.parent().unwrap_or(Path::new("/")))?;
    let there = folder.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    if there == Path::new("/") {
        return Err(io::Error::other("no folder above it is there"));
    }
    lay_over(there)?;
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), text)
}

/// The folder without symbolic links, as far as it is there: `/var/run` is `/run` on most systems.
fn real(folder: &Path) -> io::Result<PathBuf> {
    for there in folder.ancestors() {
        if let Ok(found) = there.canonicalize() {
            let rest = folder.strip_prefix(there).unwrap_or(Path::new(""));
            return Ok(if rest.as_os_str().is_empty() { found } else { found.join(rest) });
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}

/// Puts an empty folder over this one, with everything in it that was there before.
fn lay_over(folder: &Path) -> io::Result<()> {
    let before = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(folder)?;
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let kinds = entries.iter().map(fs::DirEntry::file_type).collect::<io::Result<Vec<_>>>()?;
    mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=0755"))?;
    let old = PathBuf::from(format!("/proc/self/fd/{}", before.as_raw_fd()));
    for (entry, kind) in entries.iter().zip(kinds) {
        let (from, to) = (old.join(entry.file_name()), folder.join(entry.file_name()));
        let bind = || mount(Some(&from), &to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>);
        let done = if kind.is_symlink() {
            fs::read_link(&from).and_then(|target| std::os::unix::fs::symlink(target, &to))
        } else if kind.is_dir() {
            fs::create_dir(&to).and_then(|()| Ok(bind()?))
        } else {
            File::create(&to).and_then(|_| Ok(bind()?))
        };
        if let Err(error) = done {
            // It goes into the program's log. Something that has just gone, or that this user may not see anyway.
            eprintln!("vlab: the program does not see {}: {error}", to.display());
        }
    }
    Ok(())
}
