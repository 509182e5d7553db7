//! Trees as tar archives: the same bytes for the same tree, whoever writes it, wherever and whenever.
//!
//! Entries come in the order of their paths, all with the same time ([`TIME`]) and with numbers instead of names of owners.

use std::io::{self, Write};

use tar::{Builder, EntryType, Header};

use crate::ImageError;
use crate::rootfs::{FileKind, Rootfs};

/// The time of everything in images: 2023-06-10, the day on which the Debian release that they are made of came out.
pub const TIME: u64 = 1_686_355_200;

/// Writes a tree.
///
/// # Errors
/// It cannot be written, or a file of the tree cannot be read.
pub fn write(tree: &Rootfs, into: impl Write) -> Result<(), ImageError> {
    let mut builder = Builder::new(into);
    for (path, node) in tree.iter() {
        let failed = |error| ImageError::Io { path: path.into(), error };
        let mut header = header(node.mode);
        header.set_uid(node.uid);
        header.set_gid(node.gid);
        let done = match &node.kind {
            FileKind::Directory => {
                header.set_entry_type(EntryType::Directory);
                builder.append_data(&mut header, format!("{path}/"), io::empty())
            }
            FileKind::File(content) => {
                header.set_size(content.len());
                let reader = content.reader()?;
                builder.append_data(&mut header, path, reader)
            }
            FileKind::Symlink(to) => {
                header.set_entry_type(EntryType::Symlink);
                builder.append_link(&mut header, path, to)
            }
            FileKind::CharDevice(major, minor) | FileKind::BlockDevice(major, minor) => {
                let block = matches!(node.kind, FileKind::BlockDevice(..));
                header.set_entry_type(if block { EntryType::Block } else { EntryType::Char });
                header
                    .set_device_major(*major)
                    .and_then(|()| header.set_device_minor(*minor))
                    .and_then(|()| builder.append_data(&mut header, path, io::empty()))
            }
        };
        done.map_err(failed)?;
    }
    builder.into_inner().and_then(|mut into| into.flush()).map_err(|error| ImageError::Io { path: "tar".into(), error })
}

/// The header of an entry of ours: a file of root at [`TIME`].
pub(crate) fn header(mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(mode);
    header.set_mtime(TIME);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(tree: &Rootfs) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(tree, &mut bytes).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn the_order_in_which_a_tree_is_made_does_not_show(
            names in prop::collection::btree_set("[a-d]{1,3}(/[a-d]{1,150}){0,3}", 1..8),
            seed in any::<u64>(),
        ) {
            let names: Vec<String> = names.into_iter().collect();
            // A file cannot be the directory of another one.
            prop_assume!(!names.iter().any(|a| names.iter().any(|b| b.starts_with(&format!("{a}/")))));
            let mut shuffled = names.clone();
            shuffled.sort_by_key(|name| crate::cache::sha256(format!("{seed}{name}").as_bytes()));
            let make = |names: &[String]| {
                let mut tree = Rootfs::new();
                for name in names {
                    tree.file(name, 0o644, name.as_bytes());
                }
                bytes(&tree)
            };
            prop_assert_eq!(make(&names), make(&shuffled));
        }
    }

    #[test]
    fn another_mode_is_another_archive() {
        let tree = |mode| {
            let mut tree = Rootfs::new();
            tree.file("a", mode, "x");
            bytes(&tree)
        };
        assert_eq!(tree(0o644), tree(0o644));
        assert_ne!(tree(0o644), tree(0o755));
    }
}
