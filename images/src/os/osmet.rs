//! The form in which a live system offers its disk image to coreos-installer (`osmet`): the parts of the image that the live
//! system has as files anyway are only pointed to, the rest is compressed.
//!
//! Layout (coreos-installer's, version 1, numbers of variable length): `OSMET`, three zero bytes, version, version of the
//! writer, sector size, description, architecture; then partitions (start, end, parts), checksum and size of the image; then
//! the rest of the image as xz. A part is a place in a file, a place in the partition, a length, and the name of the file
//! (32 bytes): that file is `/sysroot/ostree/repo/objects/NN/NNN….file`.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::Path;
use std::process::Stdio;

use sha2::{Digest as _, Sha256};

use crate::{ImageError, tools};

/// Bytes of a partition of the image that are in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Where they begin in the file.
    pub(super) in_file: u64,
    /// Where they begin in the partition.
    pub(super) in_partition: u64,
    /// How many they are.
    pub(super) length: u64,
}

/// A disk image, of which a partition has parts that are in one file.
#[derive(Debug)]
pub(super) struct Image<'a> {
    /// The image.
    pub(super) path: &'a Path,
    /// First byte of the partition.
    pub(super) start: u64,
    /// The byte behind it.
    pub(super) end: u64,
    /// The parts, in the order of the partition.
    pub(super) parts: &'a [Part],
    /// The name of the file.
    pub(super) object: [u8; 32],
    /// For people.
    pub(super) description: &'a str,
}

/// A number of variable length: small ones are a byte.
fn number(into: &mut Vec<u8>, value: u64) {
    if let Ok(byte @ 0..=250) = u8::try_from(value) {
        into.push(byte);
    } else if let Ok(value) = u16::try_from(value) {
        into.push(251);
        into.extend(value.to_le_bytes());
    } else if let Ok(value) = u32::try_from(value) {
        into.push(252);
        into.extend(value.to_le_bytes());
    } else {
        into.push(253);
        into.extend(value.to_le_bytes());
    }
}

fn text(into: &mut Vec<u8>, value: &str) {
    number(into, value.len() as u64);
    into.extend(value.as_bytes());
}

impl Image<'_> {
    fn head(&self, checksum: [u8; 32], size: u64) -> Vec<u8> {
        const SECTOR: u64 = 512;
        let mut head = b"OSMET\0\0\0".to_vec();
        number(&mut head, 1);
        text(&mut head, env!("CARGO_PKG_VERSION"));
        number(&mut head, SECTOR);
        text(&mut head, self.description);
        text(&mut head, "x86_64");
        number(&mut head, 1);
        number(&mut head, self.start);
        number(&mut head, self.end);
        number(&mut head, self.parts.len() as u64);
        for part in self.parts {
            number(&mut head, part.in_file);
            number(&mut head, part.in_partition);
            number(&mut head, part.length);
            head.extend(self.object);
        }
        head.extend(checksum);
        number(&mut head, size);
        head
    }

    /// Writes it.
    pub(super) fn write(&self, into: &Path) -> Result<(), ImageError> {
        let at_image = |error| ImageError::Io { path: self.path.to_owned(), error };
        let size = std::fs::metadata(self.path).map_err(at_image)?.len();
        let mut image = File::open(self.path).map_err(at_image)?;
        let mut digest = Sha256::new();
        io::copy(&mut image, &mut digest).map_err(at_image)?;
        let checksum: [u8; 32] = digest.finalize().into();

        let failed = |error| ImageError::Io { path: into.to_owned(), error };
        let mut out = File::create(into).map_err(failed)?;
        out.write_all(&self.head(checksum, size)).map_err(failed)?;
        // What remains hardly compresses (kernel, initrd) or is zeros: the quickest level does, but it has to look back far enough to see
        // that the boot loaders of UEFI are there twice. CRC32 is what a small machine checks quickest; the image as a whole has its
        // SHA-256.
        let mut command = tools::command("xz")?;
        command
            .args(["--lzma2=preset=0,dict=8MiB,mf=hc4", "--check=crc32", "-T1", "-c"])
            .stdin(Stdio::piped())
            .stdout(out);
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            let mut at = 0;
            for part in self.parts {
                let begin = self.start + part.in_partition;
                copy(&mut image, at, begin, &mut stdin).map_err(failed)?;
                at = begin + part.length;
            }
            copy(&mut image, at, size, &mut stdin).map_err(failed)?;
        }
        let status = child.wait().map_err(failed)?;
        match status.success() {
            true => Ok(()),
            false => Err(ImageError::Program { program: "xz".to_owned(), problem: status.to_string() }),
        }
    }
}

/// Bytes from `begin` to `end`.
fn copy(image: &mut File, begin: u64, end: u64, into: &mut impl Write) -> io::Result<()> {
    image.seek(SeekFrom::Start(begin))?;
    let length = end.checked_sub(begin).ok_or_else(|| io::Error::other("parts that overlap"))?;
    let copied = io::copy(&mut image.take(length), into)?;
    if copied != length {
        return Err(io::Error::other("the image ends before its parts"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, &[0])]
    #[case(250, &[250])]
    #[case(251, &[251, 251, 0])]
    #[case(512, &[251, 0, 2])]
    #[case(65_536, &[252, 0, 0, 1, 0])]
    #[case(1 << 32, &[253, 0, 0, 0, 0, 1, 0, 0, 0])]
    fn numbers(#[case] value: u64, #[case] bytes: &[u8]) {
        let mut into = Vec::new();
        number(&mut into, value);
        assert_eq!(into, bytes);
    }

    #[test]
    fn what_is_in_the_file_is_not_in_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, b"....AAAAbbbbCCCC....").unwrap();
        let parts = [Part { in_file: 0, in_partition: 0, length: 4 }, Part { in_file: 4, in_partition: 8, length: 4 }];
        let image = Image { path: &path, start: 4, end: 16, parts: &parts, object: [7; 32], description: "test" };
        let into = folder.path().join("osmet");
        image.write(&into).unwrap();
        let bytes = std::fs::read(&into).unwrap();
        let head = image.head(Sha256::digest(b"....AAAAbbbbCCCC....").into(), 20);
        assert_eq!(bytes[..head.len()], head);
        let rest = folder.path().join("rest.xz");
        std::fs::write(&rest, &bytes[head.len()..]).unwrap();
        let mut command = tools::command("xz").unwrap();
        command.arg("-dc").arg(&rest);
        assert_eq!(tools::run(command).unwrap(), b"....bbbb....");
    }
}
