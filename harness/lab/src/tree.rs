//! Copies of files and of whole folders.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::Path;

/// The same file under another name, or a copy where that is on another file system: of a file that nobody writes any more.
///
/// # Errors
/// Those of the file system.
pub fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop))
}

/// Copies what is in `from` into the existing directory `to`, with the modes of files, and gives it to `user`. Directories are for their owner
/// only.
///
/// # Errors
/// Those of the file system; there is something that is neither a file nor a directory.
pub fn copy_tree(from: &Path, to: &Path, user: Option<(u32, u32)>) -> io::Result<()> {
    let give = |path: &Path| match user {
        Some((uid, gid)) => chown(path, Some(uid), Some(gid)),
        None => Ok(()),
    };
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::DirBuilder::new().mode(0o700).create(&target)?;
            copy_tree(&source, &target, user)?;
        } else if kind.is_file() {
            fs::copy(&source, &target)?;
        } else {
            return Err(io::Error::other(format!("{} is neither a file nor a directory", source.display())));
        }
        give(&target)?;
    }
    Ok(())
}
