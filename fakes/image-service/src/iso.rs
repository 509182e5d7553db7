//! Reads ISO 9660: volume descriptor, directories, El Torito catalogue. Each file has two names, the plain one (upper case, at
//! most eight characters and three) and the Rock Ridge one; coreos-installer reads only the former, the image service the
//! latter, and a minimal image must have both. That, and the place of each file in the image, is why this is no crate.
//!
//! Facts: ECMA-119, IEEE P1281 and P1282 (SUSP and Rock Ridge), the El Torito specification.

use std::collections::BTreeSet;
use std::io;

use crate::layout::ReadAt;

/// Bytes of a sector.
pub const SECTOR: u64 = 2048;
/// Sector of the first volume descriptor.
pub const DESCRIPTORS: u64 = 16;
/// A directory with more bytes is none that a live image has.
const MAX_DIRECTORY: u64 = 4 << 20;
/// So many files and folders at most.
const MAX_NODES: usize = 20_000;
const MAX_DEPTH: usize = 32;

/// Why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum IsoError {
    /// The file itself.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Something else than an ISO 9660 image.
    #[error("is not an ISO 9660 image: there is no volume descriptor CD001 at byte 32768")]
    NotIso,
    /// Shorter than it says. coreos-installer refuses it, too.
    #[error("is cut off: it has {has} of {says} bytes")]
    Truncated {
        /// Bytes that the volume descriptor says.
        says: u64,
        /// Bytes that there are.
        has: u64,
    },
    /// Contradicts itself.
    #[error("is damaged: {0}")]
    Damaged(String),
}

/// A file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsoNode {
    /// The identifier as the image has it, for example `KARGS.JSO;1`.
    pub id: Vec<u8>,
    /// Its Rock Ridge name, for example `kargs.json`; without Rock Ridge the plain name.
    pub name: String,
    /// Its date, as directory records have it.
    pub date: [u8; 7],
    /// What it is.
    pub kind: NodeKind,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A folder.
    Dir(Vec<IsoNode>),
    /// A file: where it begins in the image, and its length.
    File {
        /// Byte in the image.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A symbolic link or device (Rock Ridge).
    Other,
}

/// An entry of the El Torito catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootEntry {
    /// 0: BIOS, 0xEF: EFI.
    pub platform: u8,
    /// Emulation; 0 is none.
    pub media: u8,
    /// Sectors of 512 bytes that the firmware loads.
    pub sectors: u16,
    /// First sector (of 2048 bytes) of the boot image.
    pub lba: u32,
}

/// What makes an image start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Sector of the catalogue.
    pub catalog: u32,
    /// Its bootable entries.
    pub entries: Vec<BootEntry>,
}

/// A file's place: byte in the image and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First byte in the image.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The contents of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iso {
    /// Label, without the padding.
    pub volume_id: String,
    /// The root's files and folders.
    pub root: Vec<IsoNode>,
    /// Date of the root.
    pub date: [u8; 7],
    /// Are there Rock Ridge names?
    pub rock_ridge: bool,
    /// El Torito, when there is one.
    pub boot: Option<Boot>,
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

impl Iso {
    /// Reads the structure of an image.
    ///
    /// # Errors
    /// [`IsoError`].
    pub fn read(image: &(impl ReadAt + ?Sized)) -> Result<Self, IsoError> {
        let mut primary = None;
        let mut catalog = None;
        for sector in DESCRIPTORS..DESCRIPTORS + 64 {
            let descriptor = match image.bytes_at(sector * SECTOR, SECTOR as usize) {
                Ok(descriptor) => descriptor,
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(e) => return Err(e.into()),
            };
            if &descriptor[1..6] != b"CD001" {
                break;
            }
            match descriptor[0] {
                0 if descriptor[7..].starts_with(b"EL TORITO SPECIFICATION") => catalog = Some(le32(&descriptor, 71)),
                1 if primary.is_none() => primary = Some(descriptor),
                255 => break,
                _ => {}
            }
        }
        let primary = primary.ok_or(IsoError::NotIso)?;
        if u64::from(le16(&primary, 128)) != SECTOR {
            return Err(IsoError::Damaged(format!("logical blocks of {} bytes instead of 2048", le16(&primary, 128))));
        }
        let says = u64::from(le32(&primary, 80)) * SECTOR;
        if says > image.size() {
            return Err(IsoError::Truncated { says, has: image.size() });
        }
        let volume_id = String::from_utf8_lossy(&primary[40..72]).trim_matches([' ', '\0']).to_owned();
        let root = &primary[156..190];
        let mut reader = Reader { image, skip: None, rock_ridge: false, nodes: 0, folders: BTreeSet::new() };
        let date = root[18..25].try_into().unwrap_or_default();
        let (lba, len) = (le32(root, 2), le32(root, 10));
        let root = reader.folder(lba, len, 0)?;
        let rock_ridge = reader.rock_ridge;
        let boot = catalog.map(|sector| read_catalog(image, sector)).transpose()?;
        Ok(Self { volume_id, root, date, rock_ridge, boot })
    }

    /// The file or folder with that path, by the names that the image service reads: Rock Ridge, or the plain ones of an image
    /// that has no others.
    pub fn find(&self, path: &str) -> Option<&IsoNode> {
        if self.rock_ridge { walk(&self.root, path, |node, part| node.name == part) } else { self.find_plain(path) }
    }

    /// The same by plain names, as coreos-installer reads them: `coreos/kargs.json` is `COREOS/KARGS.JSO`.
    pub fn find_plain(&self, path: &str) -> Option<&IsoNode> {
        walk(&self.root, path, |node, part| plain(&node.id) == eight_three(part).as_bytes())
    }

    /// Place of the file with that path ([`Iso::find`]).
    pub fn place(&self, path: &str) -> Option<Place> {
        self.find(path)?.place()
    }

    /// The contents of a small file. `None`: there is none with that path.
    ///
    /// # Errors
    /// When it cannot be read or has more than `limit` bytes.
    pub fn contents(
        &self,
        image: &(impl ReadAt + ?Sized),
        path: &str,
        limit: u64,
    ) -> Result<Option<Vec<u8>>, IsoError> {
        let Some(place) = self.place(path) else { return Ok(None) };
        if place.len > limit {
            return Err(IsoError::Damaged(format!("{path} has {} bytes, more than {limit}", place.len)));
        }
        // Not more than the limit.
        Ok(Some(image.bytes_at(place.offset, place.len as usize)?))
    }
}

impl IsoNode {
    /// Where a file is.
    pub fn place(&self) -> Option<Place> {
        match self.kind {
            NodeKind::File { offset, len } => Some(Place { offset, len }),
            NodeKind::Dir(_) | NodeKind::Other => None,
        }
    }
}

fn walk<'a>(root: &'a [IsoNode], path: &str, same: impl Fn(&IsoNode, &str) -> bool) -> Option<&'a IsoNode> {
    let mut parts = path.split('/').filter(|p| !p.is_empty()).peekable();
    let mut folder = root;
    while let Some(part) = parts.next() {
        let node = folder.iter().find(|node| same(node, part))?;
        if parts.peek().is_none() {
            return Some(node);
        }
        let NodeKind::Dir(below) = &node.kind else { return None };
        folder = below;
    }
    None
}

/// An identifier without its version and the full stop of a name without an ending.
fn plain(id: &[u8]) -> &[u8] {
    let id = id.split(|b| *b == b';').next().unwrap_or(id);
    id.strip_suffix(b".").unwrap_or(id)
}

/// A name as level 1 of the standard has it: upper case, eight characters, three after the full stop.
pub fn eight_three(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    let (stem, ending) = name.rsplit_once('.').unwrap_or((&name, ""));
    let cut = |text: &str, n: usize| -> String { text.chars().take(n).collect() };
    if ending.is_empty() { cut(stem, 8) } else { format!("{}.{}", cut(stem, 8), cut(ending, 3)) }
}

struct Reader<'a, I: ?Sized> {
    image: &'a I,
    /// Bytes of the system use area that are not SUSP's; `None` until the root said that there is SUSP.
    skip: Option<usize>,
    rock_ridge: bool,
    nodes: usize,
    /// Sectors of folders that were read: each once.
    folders: BTreeSet<u32>,
}

/// What Rock Ridge says about a node.
#[derive(Default)]
struct Ridge {
    name: Vec<u8>,
    named: bool,
    other: bool,
    /// A folder that was moved elsewhere because it is too deep.
    moved: bool,
}

impl<I: ReadAt + ?Sized> Reader<'_, I> {
    fn folder(&mut self, lba: u32, len: u32, depth: usize) -> Result<Vec<IsoNode>, IsoError> {
        if depth > MAX_DEPTH || u64::from(len) > MAX_DIRECTORY || !self.folders.insert(lba) {
            return Err(IsoError::Damaged(format!(
                "the folder at sector {lba} is too deep, too large or contains itself"
            )));
        }
        let bytes = self.image.bytes_at(u64::from(lba) * SECTOR, len as usize).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                IsoError::Damaged(format!("the folder at sector {lba} lies behind its end"))
            }
            _ => e.into(),
        })?;
        let mut nodes: Vec<IsoNode> = Vec::new();
        // A file of 4 GiB or more has several records.
        let mut unfinished = false;
        let mut at = 0;
        while at < bytes.len() {
            let size = usize::from(bytes[at]);
            if size == 0 {
                // Records do not cross sectors: the rest of this one is padding.
                at = (at + 1).next_multiple_of(SECTOR as usize);
                continue;
            }
            let bad = || IsoError::Damaged(format!("a record in the folder at sector {lba} is too short or too long"));
            let record = bytes.get(at..at + size).ok_or_else(bad)?;
            at += size;
            let id_len = usize::from(*record.get(32).ok_or_else(bad)?);
            let id = record.get(33..33 + id_len).ok_or_else(bad)?;
            let system_use = record.get((33 + id_len).next_multiple_of(2)..).unwrap_or(&[]);
            if id == [0] {
                if depth == 0 {
                    self.root_record(system_use);
                }
                continue;
            }
            if id == [1] {
                continue;
            }
            self.nodes += 1;
            if self.nodes > MAX_NODES {
                return Err(IsoError::Damaged(format!("it has more than {MAX_NODES} files")));
            }
            let (start, len, flags) = (le32(record, 2), le32(record, 10), record[25]);
            let place = Place { offset: u64::from(start) * SECTOR, len: u64::from(len) };
            if unfinished {
                unfinished = flags & 0x80 != 0;
                if let Some(IsoNode { kind: NodeKind::File { offset, len }, .. }) = nodes.last_mut() {
                    if *offset + *len != place.offset {
                        return Err(IsoError::Damaged(format!("the file at byte {offset} has a gap")));
                    }
                    *len += place.len;
                }
                continue;
            }
            unfinished = flags & 0x80 != 0;
            let ridge = self.ridge(system_use)?;
            let name = if ridge.named {
                String::from_utf8_lossy(&ridge.name).into_owned()
            } else {
                String::from_utf8_lossy(plain(id)).into_owned()
            };
            let date = record[18..25].try_into().unwrap_or_default();
            let kind = if ridge.other || ridge.moved {
                NodeKind::Other
            } else if flags & 2 != 0 {
                NodeKind::Dir(self.folder(start, len, depth + 1)?)
            } else {
                NodeKind::File { offset: place.offset, len: place.len }
            };
            nodes.push(IsoNode { id: id.to_vec(), name, date, kind });
        }
        Ok(nodes)
    }

    /// The root's own record says whether there is SUSP.
    fn root_record(&mut self, system_use: &[u8]) {
        if system_use.len() >= 7 && system_use.starts_with(b"SP\x07\x01\xBE\xEF") {
            self.skip = Some(usize::from(system_use[6]));
        }
    }

    fn ridge(&mut self, system_use: &[u8]) -> Result<Ridge, IsoError> {
        let mut ridge = Ridge::default();
        let Some(skip) = self.skip else { return Ok(ridge) };
        let mut area = system_use.get(skip..).unwrap_or(&[]).to_vec();
        // Continuations of continuations are a loop sooner or later.
        for _ in 0..8 {
            let mut next = None;
            let mut rest = area.as_slice();
            while let [a, b, size, _, ..] = *rest {
                let size = usize::from(size);
                if size < 4 || size > rest.len() {
                    break;
                }
                let (entry, after) = rest.split_at(size);
                rest = after;
                match (&[a, b], entry.get(4..).unwrap_or(&[])) {
                    // Flags 2 and 4 are "." and "..", which records of other names do not have.
                    (b"NM", [flags, name @ ..]) if flags & 6 == 0 => {
                        ridge.name.extend_from_slice(name);
                        ridge.named = true;
                        self.rock_ridge = true;
                    }
                    (b"SL" | b"PN", _) => ridge.other = true,
                    (b"CL" | b"RE", _) => ridge.moved = true,
                    (b"CE", data) if data.len() >= 24 => {
                        next = Some((le32(data, 0), le32(data, 8), le32(data, 16)));
                    }
                    (b"ST", _) => break,
                    _ => {}
                }
            }
            let Some((lba, offset, len)) = next else { return Ok(ridge) };
            if u64::from(len) > SECTOR {
                return Err(IsoError::Damaged("a continuation of Rock Ridge entries is longer than a sector".into()));
            }
            area =
                self.image.bytes_at(u64::from(lba) * SECTOR + u64::from(offset), len as usize).map_err(|e| match e
                    .kind()
                {
                    io::ErrorKind::UnexpectedEof => {
                        IsoError::Damaged("a continuation of Rock Ridge entries lies behind its end".into())
                    }
                    _ => e.into(),
                })?;
        }
        Err(IsoError::Damaged("continuations of Rock Ridge entries do not end".into()))
    }
}

/// The bootable entries of a catalogue.
fn read_catalog(image: &(impl ReadAt + ?Sized), sector: u32) -> Result<Boot, IsoError> {
    let bad = || IsoError::Damaged(format!("there is no boot catalogue at sector {sector}"));
    let catalog = image.bytes_at(u64::from(sector) * SECTOR, SECTOR as usize).map_err(|_| bad())?;
    if catalog[0] != 1 || catalog[30..32] != [0x55, 0xAA] {
        return Err(bad());
    }
    let mut entries = Vec::new();
    let mut platform = catalog[1];
    let mut take = |platform: u8, e: &[u8]| {
        if e[0] == 0x88 {
            entries.push(BootEntry { platform, media: e[1] & 0x0F, sectors: le16(e, 6), lba: le32(e, 8) });
        }
    };
    take(platform, &catalog[32..64]);
    let mut left = 0u16;
    for entry in catalog[64..].chunks_exact(32) {
        match (left, entry[0]) {
            (0, 0x90 | 0x91) => {
                platform = entry[1];
                left = le16(entry, 2);
            }
            (0, _) => break,
            // An extension of the entry before it.
            (_, 0x44) => {}
            _ => {
                take(platform, entry);
                left -= 1;
            }
        }
    }
    Ok(Boot { catalog: sector, entries })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("kargs.json", "KARGS.JSO")]
    #[case("grub.cfg", "GRUB.CFG")]
    #[case("redhat", "REDHAT")]
    #[case("assisted_installer_custom.img", "ASSISTED.IMG")]
    #[case("boot.tar.gz", "BOOT.TAR.GZ")]
    fn plain_names(#[case] name: &str, #[case] expected: &str) {
        assert_eq!(eight_three(name), expected);
    }

    #[rstest]
    #[case(&b"KARGS.JSO;1"[..], &b"KARGS.JSO"[..])]
    #[case(b"README.;1", b"README")]
    #[case(b"EFI", b"EFI")]
    fn identifiers(#[case] id: &[u8], #[case] expected: &[u8]) {
        assert_eq!(plain(id), expected);
    }

    #[rstest]
    #[case(0, "is not an ISO 9660 image: there is no volume descriptor CD001 at byte 32768")]
    #[case(32768, "is not an ISO 9660 image: there is no volume descriptor CD001 at byte 32768")]
    #[case(1 << 20, "is not an ISO 9660 image: there is no volume descriptor CD001 at byte 32768")]
    fn something_else(#[case] len: usize, #[case] expected: &str) {
        assert_eq!(Iso::read(vec![0u8; len].as_slice()).unwrap_err().to_string(), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        /// Whatever the bytes of the system use area are, reading them ends.
        #[test]
        fn any_system_use_area_is_survived(area in proptest::collection::vec(any::<u8>(), 0..220), skip in 0..8usize) {
            let image = vec![0x43u8; 4096];
            let mut reader =
                Reader { image: image.as_slice(), skip: Some(skip), rock_ridge: false, nodes: 0, folders: BTreeSet::new() };
            let _ = reader.ridge(&area);
        }
    }
}
