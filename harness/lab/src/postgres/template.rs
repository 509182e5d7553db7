//! What `initdb` makes is the same every time and takes most of the time of a start: it is made once for each version and
//! copied from then on.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::binaries::Binaries;
use super::error::PgError;
use crate::ledger::check_is_ours;
use crate::tree::copy_tree;

/// Name of the superuser in all clusters.
pub(super) const SUPERUSER: &str = "vlab";

/// To be counted up when the options of `initdb` below change.
const EDITION: u32 = 1;

/// Fills the empty directory `data` (which belongs to `user`) with a fresh cluster. `true`: it came from the cache.
pub(super) fn fill(
    binaries: &Binaries,
    data: &Path,
    user: Option<(u32, u32)>,
    cache: Option<&Path>,
) -> Result<bool, PgError> {
    let template = cache.map(|cache| cache.join(key(&binaries.version)));
    if let Some(template) = &template
        && usable(template)
    {
        copy_tree(template, data, user).map_err(|error| PgError::Io { what: "copy", path: template.clone(), error })?;
        return Ok(true);
    }
    initdb(binaries, data, user)?;
    // Without a cache the next start is slower and nothing else.
    if let Some(template) = &template
        && let Err(error) = keep(data, template)
    {
        tracing::info!(%error, template = %template.display(), "the result of initdb is not kept");
    }
    Ok(false)
}

/// Fills the empty directory `data` with what was kept of another server of the same major version.
pub(super) fn take_over(
    binaries: &Binaries,
    kept: &Path,
    data: &Path,
    user: Option<(u32, u32)>,
) -> Result<(), PgError> {
    let fail = |error| PgError::Io { what: "copy", path: kept.to_owned(), error };
    let of = fs::read_to_string(kept.join("PG_VERSION")).map_err(fail)?;
    let ours = binaries.version.split(['.', ' ']).next().unwrap_or_default();
    if of.trim() != ours {
        let error = format!("it is of PostgreSQL {}, and here is {}", of.trim(), binaries.version);
        return Err(fail(io::Error::other(error)));
    }
    copy_tree(kept, data, user).map_err(fail)
}

/// Copies the data of a server that does not run into a new folder, for its owner only.
pub(super) fn copy_out(data: &Path, into: &Path) -> Result<(), PgError> {
    let copied = fs::DirBuilder::new().mode(0o700).create(into).and_then(|()| copy_tree(data, into, None));
    copied.map_err(|error| PgError::Io { what: "copy", path: data.to_owned(), error })
}

/// Where templates and what was found out about this machine lie: `$XDG_CACHE_HOME/vlab`, else `~/.cache/vlab`; `None` without a home.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    Some(absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?.join("vlab"))
}

fn key(version: &str) -> String {
    let clean: String =
        version.chars().map(|c| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '_' }).collect();
    format!("pg-template-{EDITION}-{clean}")
}

/// A template of somebody else would run as our database: only our own is used.
fn usable(template: &Path) -> bool {
    check_is_ours(template).is_ok()
        && template.join("PG_VERSION").is_file()
        && template.join("global/pg_control").is_file()
}

fn initdb(binaries: &Binaries, data: &Path, user: Option<(u32, u32)>) -> Result<(), PgError> {
    let mut command = Command::new(binaries.program("initdb"));
    command
        .arg("--pgdata")
        .arg(data)
        // The socket lies in a directory that only its owner (and root) can enter; TCP asks for a password.
        .args(["--username", SUPERUSER, "--auth-local=trust", "--auth-host=scram-sha-256"])
        .args(["--encoding=UTF8", "--locale=C", "--no-sync"])
        // Four times less to copy than with the default of 16 MB.
        .arg("--wal-segsize=4")
        .current_dir(data);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    let path = binaries.program("initdb");
    let output = command.output().map_err(|error| PgError::Io { what: "run", path, error })?;
    if output.status.success() {
        return Ok(());
    }
    let mut words = String::from_utf8_lossy(&output.stdout).into_owned();
    words.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(PgError::Initdb { status: output.status.to_string(), output: words.trim().to_owned() })
}

/// Copies beside its place and renames: a template is there as a whole or not at all, whoever else does the same.
fn keep(data: &Path, template: &Path) -> io::Result<()> {
    let parent = template.parent().ok_or_else(|| io::Error::other("no parent"))?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    let beside = tempfile::Builder::new().prefix(".pg-template-").tempdir_in(parent)?;
    let copy = beside.path().join("data");
    fs::DirBuilder::new().mode(0o700).create(&copy)?;
    copy_tree(data, &copy, None)?;
    match fs::rename(&copy, template) {
        // Somebody was faster, or an unusable one lies there.
        Err(_) if usable(template) => Ok(()),
        Err(_) => {
            fs::remove_dir_all(template)?;
            fs::rename(&copy, template)
        }
        Ok(()) => Ok(()),
    }
}
