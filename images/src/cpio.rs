//! cpio archives in the form that the kernel unpacks (`newc`): the same bytes for the same entries, whoever writes them.
//!
//! The kernel takes several archives one behind the other, so an archive may be made of parts. Numbers of inodes count from 1
//! in each archive, times are 0, everything belongs to root.

use std::io::{self, Read, Write};

use crate::ImageError;
use crate::rootfs::{FileKind, Rootfs};

/// Length of an entry's header.
const HEADER: u64 = 110;

/// Where the content of an archive's first entry begins, when that entry has this name. Programs that do not want to unpack
/// an archive rely on it.
#[must_use]
pub fn first_content(name: &str) -> u64 {
    round(HEADER + name.len() as u64 + 1)
}

/// Contents and names end at a multiple of four bytes.
#[must_use]
pub fn round(size: u64) -> u64 {
    size.next_multiple_of(4)
}

/// Writes an archive.
#[derive(Debug)]
pub struct Writer<W> {
    into: W,
    inode: u32,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Into this.
    pub fn new(into: W) -> Self {
        Self { into, inode: 0, written: 0 }
    }

    /// How many bytes the archive has until now.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Adds an entry whose content is `size` bytes of `content`. `mode` has the kind of the entry in it (`0o100000` a file).
    ///
    /// # Errors
    /// Not readable, not writable, too large for this form (4 GiB), or the content is shorter than `size`.
    pub fn entry(&mut self, name: &str, mode: u32, size: u64, content: impl Read) -> io::Result<()> {
        self.inode += 1;
        self.raw(name, mode, self.inode, size, content)
    }

    fn raw(&mut self, name: &str, mode: u32, inode: u32, size: u64, content: impl Read) -> io::Result<()> {
        let size32 = u32::try_from(size).map_err(|_| io::Error::other(format!("{name} is too large for cpio")))?;
        let links = if mode & 0o170_000 == 0o040_000 { 2 } else { 1 };
        let length = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        let fields = [inode, mode, 0, 0, links, 0, size32, 0, 0, 0, 0, length, 0];
        let mut header = String::from("070701");
        for field in fields {
            header += &format!("{field:08X}");
        }
        self.into.write_all(header.as_bytes())?;
        self.into.write_all(name.as_bytes())?;
        self.into.write_all(&[0])?;
        self.written += HEADER + u64::from(length);
        self.pad()?;
        let copied = io::copy(&mut content.take(size), &mut self.into)?;
        if copied != size {
            return Err(io::Error::other(format!("{name} has {copied} bytes and should have {size}")));
        }
        self.written += size;
        self.pad()
    }

    fn pad(&mut self) -> io::Result<()> {
        let missing = round(self.written) - self.written;
        self.written += missing;
        self.into.write_all(&[0; 4][..usize::try_from(missing).unwrap_or(0)])
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// Not writable.
    pub fn finish(mut self) -> io::Result<W> {
        self.raw("TRAILER!!!", 0, 0, 0, io::empty())?;
        self.into.flush()?;
        Ok(self.into)
    }
}

/// A tree as an archive. Owners are not kept: everything belongs to root.
///
/// # Errors
/// A device (an initrd has none: the kernel makes them), or something that cannot be read or written.
pub fn write(tree: &Rootfs, into: impl Write) -> Result<(), ImageError> {
    let mut writer = Writer::new(into);
    for (path, node) in tree.iter() {
        let failed = |error| ImageError::Io { path: path.into(), error };
        match &node.kind {
            FileKind::Directory => writer.entry(path, 0o040_000 | node.mode, 0, io::empty()),
            FileKind::File(content) => writer.entry(path, 0o100_000 | node.mode, content.len(), content.reader()?),
            FileKind::Symlink(to) => writer.entry(path, 0o120_777, to.len() as u64, to.as_bytes()),
            FileKind::CharDevice(..) | FileKind::BlockDevice(..) => {
                return Err(ImageError::Tree(format!("{path} is a device: not in an initrd")));
            }
        }
        .map_err(failed)?;
    }
    writer.finish().map(|_| ()).map_err(|error| ImageError::Io { path: "cpio".into(), error })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn tree() -> Rootfs {
        let mut tree = Rootfs::new();
        tree.file("bin/busybox", 0o755, "program");
        tree.symlink("bin/sh", "busybox");
        tree.file("etc/empty", 0o600, "");
        tree
    }

    #[test]
    fn the_first_content_is_where_it_is_said_to_be() {
        for name in ["root.squashfs", "a", "ab", "abc", "abcd"] {
            let mut writer = Writer::new(Vec::new());
            writer.entry(name, 0o100_644, 4, &b"hsqs"[..]).unwrap();
            let bytes = writer.finish().unwrap();
            let at = usize::try_from(first_content(name)).unwrap();
            assert_eq!(&bytes[at..at + 4], b"hsqs", "{name}");
            assert_eq!(bytes.len() % 4, 0);
        }
        assert_eq!(first_content("root.squashfs"), 124, "CoreOS relies on it");
    }

    #[test]
    fn a_shorter_content_is_an_error() {
        let mut writer = Writer::new(Vec::new());
        assert!(writer.entry("a", 0o100_644, 5, &b"four"[..]).is_err());
    }

    #[test]
    fn the_cpio_program_reads_it() {
        let mut bytes = Vec::new();
        write(&tree(), &mut bytes).unwrap();
        let cpio = Command::new("cpio").args(["-itv", "--quiet"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut cpio) = cpio else {
            vlab_skip::skip!("there is no cpio here");
            return;
        };
        cpio.stdin.take().unwrap().write_all(&bytes).unwrap();
        let out = String::from_utf8(cpio.wait_with_output().unwrap().stdout).unwrap();
        let names: Vec<&str> = out.lines().filter_map(|line| line.split_once("1970 ").map(|(_, name)| name)).collect();
        assert_eq!(names, ["bin", "bin/busybox", "bin/sh -> busybox", "etc", "etc/empty"], "{out}");
        assert!(
            out.lines().nth(1).is_some_and(|line| line.starts_with("-rwxr-xr-x") && line.contains("root")),
            "{out}"
        );
    }

    #[test]
    fn a_device_is_refused() {
        let mut tree = tree();
        let node = crate::rootfs::Node { mode: 0o600, uid: 0, gid: 0, kind: FileKind::CharDevice(5, 1) };
        tree.put("dev/console", node);
        assert!(write(&tree, Vec::new()).unwrap_err().to_string().contains("dev/console"));
    }
}
