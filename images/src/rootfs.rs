//! A tree of files that is assembled in memory and never unpacked: owners, modes and devices need no root this way. What
//! packages bring stays in the cache and is only pointed to; a tree of a gigabyte costs some megabytes of memory.
//!
//! Paths have no slash at their beginning. `/bin`, `/sbin`, `/lib*` are links into `/usr`, as on every Debian of today
//! (packages still name both; what they put into the one is found in the other).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ImageError;

/// Directories that are links into `/usr`.
const MERGED: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// So many links are followed on the way to a file.
const LINKS: usize = 16;

/// One entry of a tree.
#[derive(Debug, Clone)]
pub struct Node {
    /// Permissions, with set-uid and the like (`0o7777`).
    pub mode: u32,
    /// Number of the user that owns it.
    pub uid: u64,
    /// Number of the group that owns it.
    pub gid: u64,
    /// What it is.
    pub kind: FileKind,
}

/// What an entry is.
#[derive(Debug, Clone)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A file.
    File(Content),
    /// A symbolic link to this.
    Symlink(String),
    /// A character device.
    CharDevice(u32, u32),
    /// A block device.
    BlockDevice(u32, u32),
}

/// What is in a file.
#[derive(Debug, Clone)]
pub enum Content {
    /// Bytes in memory.
    Bytes(Arc<[u8]>),
    /// A part of another file.
    Slice {
        /// That file.
        file: Arc<PathBuf>,
        /// Where the part begins.
        offset: u64,
        /// Its length.
        len: u64,
    },
}

impl Content {
    /// Its size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Slice { len, .. } => *len,
        }
    }

    /// Is there nothing in it?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Opens it for reading.
    ///
    /// # Errors
    /// The file that it is a part of cannot be read.
    pub fn reader(&self) -> Result<Box<dyn Read + '_>, ImageError> {
        match self {
            Self::Bytes(bytes) => Ok(Box::new(Cursor::new(&bytes[..]))),
            Self::Slice { file, offset, len } => {
                let mut open = File::open(&**file).map_err(ImageError::io(&**file))?;
                open.seek(SeekFrom::Start(*offset)).map_err(ImageError::io(&**file))?;
                Ok(Box::new(open.take(*len)))
            }
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// As [`Content::reader`].
    pub fn bytes(&self) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        let path = match self {
            Self::Bytes(_) => PathBuf::new(),
            Self::Slice { file, .. } => file.to_path_buf(),
        };
        self.reader()?.read_to_end(&mut bytes).map_err(ImageError::io(path))?;
        Ok(bytes)
    }
}

/// A tree of files, in the order of their paths.
#[derive(Debug, Clone, Default)]
pub struct Rootfs {
    nodes: BTreeMap<String, Node>,
    merged: bool,
}

impl Rootfs {
    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A tree with a `/usr` and `/bin`, `/sbin`, `/lib` and `/lib64` as links into it. Use it for anything that packages of
    /// Debian go into.
    #[must_use]
    pub fn merged_usr() -> Self {
        let mut tree = Self { merged: true, ..Self::default() };
        for name in ["bin", "lib", "lib64", "sbin"] {
            tree.directory(&format!("usr/{name}"), 0o755);
            let link = Node { mode: 0o777, uid: 0, gid: 0, kind: FileKind::Symlink(format!("usr/{name}")) };
            tree.nodes.insert(name.to_owned(), link);
        }
        tree
    }

    /// Where a path really lies in this tree: without `./` and `/` before it, and inside `/usr` when it belongs there.
    fn place(&self, path: &str) -> String {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let path = parts.join("/");
        match parts.first() {
            Some(first) if self.merged && parts.len() > 1 && MERGED.contains(first) => format!("usr/{path}"),
            _ => path,
        }
    }

    /// Puts an entry there, in the place of what was there; directories above it that are missing are made (0755, root).
    pub fn put(&mut self, path: &str, node: Node) {
        let path = self.place(path);
        if path.is_empty() {
            return;
        }
        let mut above = path.as_str();
        while let Some((parent, _)) = above.rsplit_once('/') {
            if self.nodes.contains_key(parent) {
                break;
            }
            let directory = Node { mode: 0o755, uid: 0, gid: 0, kind: FileKind::Directory };
            self.nodes.insert(parent.to_owned(), directory);
            above = parent;
        }
        self.nodes.insert(path, node);
    }

    /// Puts a directory of root there.
    pub fn directory(&mut self, path: &str, mode: u32) {
        self.put(path, Node { mode, uid: 0, gid: 0, kind: FileKind::Directory });
    }

    /// Puts a file of root there.
    pub fn file(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) {
        let content = Content::Bytes(bytes.into().into());
        self.put(path, Node { mode, uid: 0, gid: 0, kind: FileKind::File(content) });
    }

    /// Puts a file of this machine there (read when it is needed, so it must stay).
    ///
    /// # Errors
    /// It cannot be read.
    pub fn file_from(&mut self, path: &str, mode: u32, source: &Path) -> Result<(), ImageError> {
        let len = std::fs::metadata(source).map_err(ImageError::io(source))?.len();
        let content = Content::Slice { file: Arc::new(source.to_owned()), offset: 0, len };
        self.put(path, Node { mode, uid: 0, gid: 0, kind: FileKind::File(content) });
        Ok(())
    }

    /// Puts a symbolic link there.
    pub fn symlink(&mut self, path: &str, to: &str) {
        self.put(path, Node { mode: 0o777, uid: 0, gid: 0, kind: FileKind::Symlink(to.to_owned()) });
    }

    /// Gives what is there to somebody else.
    ///
    /// # Errors
    /// There is nothing.
    pub fn chown(&mut self, path: &str, uid: u64, gid: u64) -> Result<(), ImageError> {
        let place = self.place(path);
        let node = self.nodes.get_mut(&place).ok_or_else(|| ImageError::Tree(format!("there is no /{place}")))?;
        (node.uid, node.gid) = (uid, gid);
        Ok(())
    }

    /// Removes what is there, with all that is below it. Returns how many entries that were.
    pub fn remove(&mut self, path: &str) -> usize {
        let place = self.place(path);
        let below = format!("{place}/");
        let before = self.nodes.len();
        self.nodes.retain(|path, _| *path != place && !path.starts_with(&below));
        before - self.nodes.len()
    }

    /// Adds what a plain tar archive holds (the [`contents`](crate::packages::contents) of a package). The archive must stay
    /// where it is for as long as the tree is used.
    ///
    /// # Errors
    /// Not readable, a kind of entry that trees do not have, or a hard link to nothing.
    pub fn add_tar(&mut self, tar: &Path) -> Result<(), ImageError> {
        let failed = |error| ImageError::Io { path: tar.to_owned(), error };
        let file = Arc::new(tar.to_owned());
        let mut archive = tar::Archive::new(io::BufReader::new(File::open(tar).map_err(failed)?));
        for entry in archive.entries().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let link = entry.link_name_bytes().map(|name| String::from_utf8_lossy(&name).into_owned());
            let header = entry.header();
            let device = || -> io::Result<(u32, u32)> {
                Ok((header.device_major()?.unwrap_or_default(), header.device_minor()?.unwrap_or_default()))
            };
            let kind = match (header.entry_type(), link) {
                (tar::EntryType::Directory, _) => FileKind::Directory,
                (tar::EntryType::Regular | tar::EntryType::Continuous, _) => FileKind::File(Content::Slice {
                    file: Arc::clone(&file),
                    offset: entry.raw_file_position(),
                    len: entry.size(),
                }),
                (tar::EntryType::Symlink, Some(to)) => FileKind::Symlink(to),
                (tar::EntryType::Link, Some(to)) => match self.nodes.get(&self.place(&to)) {
                    Some(Node { kind: kind @ FileKind::File(_), .. }) => kind.clone(),
                    _ => return Err(ImageError::Tree(format!("{}: {path} is a hard link to nothing", tar.display()))),
                },
                (tar::EntryType::Char, _) => {
                    device().map(|(major, minor)| FileKind::CharDevice(major, minor)).map_err(failed)?
                }
                (tar::EntryType::Block, _) => {
                    device().map(|(major, minor)| FileKind::BlockDevice(major, minor)).map_err(failed)?
                }
                (other, _) => {
                    return Err(ImageError::Tree(format!(
                        "{}: {path} is of an unknown kind: {other:?}",
                        tar.display()
                    )));
                }
            };
            let place = self.place(&path);
            if let (Some(Node { kind: there, .. }), FileKind::Directory) = (self.nodes.get(&place), &kind)
                && matches!(there, FileKind::Symlink(_))
            {
                // A package that still ships `/bin` as a directory.
                continue;
            }
            let (mode, uid, gid) =
                (header.mode().map_err(failed)? & 0o7777, header.uid().map_err(failed)?, header.gid().map_err(failed)?);
            self.put(&path, Node { mode, uid, gid, kind });
        }
        Ok(())
    }

    /// The entry of a path, links on the way to it followed. `None`: there is none.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<&Node> {
        let mut path = path.to_owned();
        for _ in 0..LINKS {
            let place = self.place(&path);
            let node = self.nodes.get(&place)?;
            let FileKind::Symlink(to) = &node.kind else { return Some(node) };
            path = match (to.strip_prefix('/'), place.rsplit_once('/')) {
                (Some(absolute), _) => absolute.to_owned(),
                (None, Some((folder, _))) => without_dots(&format!("{folder}/{to}")),
                (None, None) => without_dots(to),
            };
        }
        None
    }

    /// All entries, in the order of their paths: a directory comes before what is in it.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// How many bytes all files have.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.nodes.values().map(|node| if let FileKind::File(content) = &node.kind { content.len() } else { 0 }).sum()
    }
}

fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::archive;

    fn text(tree: &Rootfs, path: &str) -> Option<String> {
        match &tree.find(path)?.kind {
            FileKind::File(content) => Some(String::from_utf8(content.bytes().unwrap()).unwrap()),
            _ => None,
        }
    }

    #[rstest]
    #[case("bin/sh", true)]
    #[case("/usr/bin/sh", true)]
    #[case("./bin/dash", true)]
    #[case("etc/alternatives/sh", true)]
    #[case("bin/bash", false)]
    fn what_packages_put_into_bin_is_in_usr(#[case] path: &str, #[case] found: bool) {
        let mut tree = Rootfs::merged_usr();
        tree.file("./bin/dash", 0o755, "shell");
        tree.symlink("bin/sh", "dash");
        tree.symlink("etc/alternatives/sh", "/bin/sh");
        assert_eq!(text(&tree, path).as_deref(), found.then_some("shell"), "{path}");
        assert!(tree.iter().all(|(path, _)| !path.starts_with("bin/")));
    }

    #[test]
    fn links_in_a_circle_lead_nowhere() {
        let mut tree = Rootfs::new();
        tree.symlink("a", "b");
        tree.symlink("b", "a");
        assert!(tree.find("a").is_none());
    }

    #[test]
    fn a_tree_goes_through_an_archive_unchanged() {
        let mut tree = Rootfs::merged_usr();
        tree.file("etc/motd", 0o644, "hello");
        tree.file("usr/bin/su", 0o4755, "su");
        tree.directory("var/lib/x", 0o700);
        tree.chown("var/lib/x", 999, 998).unwrap();
        tree.symlink("etc/link", "../usr/bin/su");
        tree.put("dev/null", Node { mode: 0o666, uid: 0, gid: 0, kind: FileKind::CharDevice(1, 3) });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tree.tar");
        archive::write(&tree, File::create(&path).unwrap()).unwrap();
        let mut again = Rootfs::merged_usr();
        again.add_tar(&path).unwrap();
        let shown = |tree: &Rootfs| -> Vec<String> {
            tree.iter()
                .map(|(path, node)| {
                    let what = match &node.kind {
                        FileKind::File(content) => String::from_utf8(content.bytes().unwrap()).unwrap(),
                        other => format!("{other:?}"),
                    };
                    format!("{path} {:o} {}:{} {what}", node.mode, node.uid, node.gid)
                })
                .collect()
        };
        assert_eq!(shown(&again), shown(&tree));
        assert_eq!(tree.size(), 7);
        assert_eq!(tree.remove("/usr/bin"), 2);
        assert!(tree.chown("usr/bin/su", 0, 0).is_err());
    }
}
