//! Archives that a kernel unpacks as an initial RAM disk: the "newc" form of cpio, headers filled in as the real services do
//! (`reference/coreos-iso.md` §4 and §8).

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Mode of a folder.
const FOLDER: u32 = 0o040_755;
/// Mode bits of the kind of a node, and those of a regular file.
const KIND: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

/// An archive that is being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    /// Number of the last member; members are counted from 1.
    inode: u32,
}

impl Archive {
    /// Appends a member. `mode` has the kind of the node in it; the content of a symbolic link is its target.
    pub fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        let links = u32::from(mode & KIND == REGULAR);
        self.member(self.inode, mode, links, name, content);
    }

    /// Appends a file and, before it, every folder above it, whether it is there already or not.
    pub fn add_with_folders(&mut self, path: &str, mode: u32, content: &[u8]) {
        for (end, _) in path.match_indices('/').filter(|(end, _)| *end > 0) {
            self.add(&path[..end], FOLDER, &[]);
        }
        self.add(path, mode, content);
    }

    fn member(&mut self, inode: u32, mode: u32, links: u32, name: &str, content: &[u8]) {
        // Sizes are those of configuration files.
        let numbers = [inode, mode, 0, 0, links, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes.extend_from_slice(format!("{number:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The archive with its last member.
    pub fn finish(mut self) -> Vec<u8> {
        self.member(0, 0, 1, "TRAILER!!!", &[]);
        self.bytes
    }
}

/// Compresses.
///
/// # Errors
/// Never in memory; the encoder's signature has one.
pub fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// What goes into the ignition area: the config as `config.ign` in a compressed archive, padded to a multiple of 4. An empty
/// config is an empty archive.
///
/// # Errors
/// As [`gzip`].
pub fn ignition_archive(config: &[u8]) -> io::Result<Vec<u8>> {
    let mut archive = Archive::default();
    if !config.is_empty() {
        archive.add("config.ign", 0o100_644, config);
    }
    let mut packed = gzip(&archive.finish())?;
    packed.resize(packed.len().next_multiple_of(4), 0);
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn header(inode: u32, mode: u32, links: u32, size: u32, name: &str) -> String {
        let name_size = name.len() + 1;
        format!(
            "070701{inode:08X}{mode:08X}{z}{z}{links:08X}{z}{size:08X}{z}{z}{z}{z}{name_size:08X}{z}{name}\0",
            z = "00000000"
        )
    }

    #[test]
    fn the_ignition_archive_is_byte_for_byte_what_it_is_said_to_be() {
        let packed = ignition_archive(b"{\"a\":1}").unwrap();
        assert_eq!(packed.len() % 4, 0);
        assert_eq!(packed[..2], [0x1F, 0x8B]);
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
        let mut expected = header(1, 0o100_644, 1, 7, "config.ign").into_bytes();
        expected.resize(expected.len().next_multiple_of(4), 0);
        expected.extend_from_slice(b"{\"a\":1}\0");
        expected.extend_from_slice(header(0, 0, 1, 0, "TRAILER!!!").as_bytes());
        expected.resize(expected.len().next_multiple_of(4), 0);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn folders_come_before_each_file_and_are_repeated() {
        let mut archive = Archive::default();
        archive.add_with_folders("/etc/a/one", 0o100_600, b"1");
        archive.add_with_folders("/etc/two", 0o120_777, b"/etc/a/one");
        let text = String::from_utf8(archive.finish()).unwrap();
        let at = |what: String| text.find(&what).unwrap_or_else(|| panic!("{what} is missing"));
        let order = [
            at(header(1, 0o040_755, 0, 0, "/etc")),
            at(header(2, 0o040_755, 0, 0, "/etc/a")),
            at(header(3, 0o100_600, 1, 1, "/etc/a/one")),
            at(header(4, 0o040_755, 0, 0, "/etc")),
            at(header(5, 0o120_777, 0, 10, "/etc/two")),
        ];
        assert!(order.is_sorted(), "{order:?}");
    }
}
