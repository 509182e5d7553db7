//! Log archives: a gzipped tar file, the same bytes for the same content.

use std::io::Write;

/// A `tar.gz` with these files.
pub fn tar_gz(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, content) in files {
        tar.extend_from_slice(&header(name, content.len()));
        tar.extend_from_slice(content.as_bytes());
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    // Two empty blocks end an archive.
    tar.resize(tar.len() + 1024, 0);
    let mut gz = flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::fast());
    // Writing into memory does not fail.
    let _ = gz.write_all(&tar);
    gz.finish().unwrap_or_default()
}

/// A header in the `ustar` form.
fn header(name: &str, size: usize) -> [u8; 512] {
    let mut block = [0u8; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name.as_bytes()[..name.len().min(99)]);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn an_archive_unpacks_and_repeats() {
        let made = tar_gz(&[("journal.log", "line\n"), ("b/c.txt", "")]);
        assert_eq!(made, tar_gz(&[("journal.log", "line\n"), ("b/c.txt", "")]));
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(&made[..]).read_to_end(&mut tar).unwrap();
        assert_eq!(tar.len() % 512, 0);
        assert_eq!(&tar[..11], b"journal.log");
        assert_eq!(&tar[512..517], b"line\n");
        assert_eq!(&tar[1024..1031], b"b/c.txt");
        // The sum is that of the block with blanks in the sum's own place.
        let stored = u32::from_str_radix(std::str::from_utf8(&tar[148..154]).unwrap(), 8).unwrap();
        let sum: u32 =
            tar[..512].iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u32::from(*b) }).sum();
        assert_eq!(stored, sum);
    }
}
