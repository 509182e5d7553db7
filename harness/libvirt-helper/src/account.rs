//! As root, libvirt looks up the account `libvirt-qemu` before it reads any configuration, and does not open without it;
//! which account it then uses is configured. The account comes with the package of libvirt's system daemon, which the
//! embedded driver does not need. Where it is missing, this process and what it starts see files of accounts that have
//! it: in a mount namespace of its own, so that nothing of the machine changes.

use std::fs;
use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Group, Uid, User, geteuid};

const NAME: &str = "libvirt-qemu";

/// The number that Debian has reserved for it.
const ID: u32 = 64055;

/// Must be called before the first thread is started. `folder` gets the changed files.
pub(crate) fn ensure(folder: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let user_there = User::from_name(NAME)?.is_some();
    let group_there = Group::from_name(NAME)?.is_some();
    if user_there && group_there {
        return Ok(());
    }
    if User::from_uid(Uid::from_raw(ID))?.is_some() {
        return Err(io::Error::other(format!("no account {NAME}, and its number {ID} is another's")));
    }
    unshare(CloneFlags::CLONE_NEWNS)?;
    // What is mounted here must not be seen outside; what is unmounted outside must go here, too.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_SLAVE | MsFlags::MS_REC, None::<&str>)?;
    let lines = [
        ("/etc/passwd", user_there, format!("{NAME}:x:{ID}:{ID}::/nonexistent:/usr/sbin/nologin\n")),
        ("/etc/group", group_there, format!("{NAME}:x:{ID}:\n")),
    ];
    for (file, there, line) in lines {
        if there {
            continue;
        }
        let path = Path::new(file);
        let copy = folder.join(path.file_name().unwrap_or_default());
        let mut text = fs::read_to_string(path)?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&line);
        fs::write(&copy, text)?;
        mount(Some(&copy), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    }
    Ok(())
}
