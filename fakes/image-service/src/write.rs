//! Writes ISO 9660 with Rock Ridge and El Torito, as a [`Layout`]: descriptors and folders in memory, contents of files as
//! ranges of the base image. So a new image over the files of another one takes milliseconds and no disk. The same input
//! gives the same bytes: every date is that of the base image.
//!
//! Facts: ECMA-119, IEEE P1281 and P1282, El Torito; the boot information table of isolinux.

use std::io;

use crate::iso::{DESCRIPTORS, SECTOR};
use crate::layout::{Laid, Layout, ReadAt};
use std::sync::Arc;

/// Bits of a Rock Ridge mode.
const DIR_MODE: u32 = 0o040_555;
const FILE_MODE: u32 = 0o100_444;
/// Length of a Rock Ridge `PX` entry, first form.
const PX: usize = 36;
const ER_ID: &[u8] = b"RRIP_1991A";
const ER_TEXT: &[u8] = b"THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS";

/// Why an image cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The base image.
    #[error("the base image cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A limit of the format.
    #[error("{0}")]
    Limit(String),
}

/// A file or folder to write.
#[derive(Clone, Debug)]
pub(crate) struct TreeEntry {
    /// Plain identifier, for example `KARGS.JSO;1`.
    pub(crate) id: Vec<u8>,
    /// Rock Ridge name.
    pub(crate) name: String,
    /// Date of the record.
    pub(crate) date: [u8; 7],
    /// What it is.
    pub(crate) what: EntryContent,
}

/// Contents of a [`TreeEntry`].
#[derive(Clone, Debug)]
pub(crate) enum EntryContent {
    /// A folder.
    Dir(Vec<TreeEntry>),
    /// A file.
    File(Layout),
}

/// A boot image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BootFile {
    /// Path of the file, by Rock Ridge names.
    pub(crate) path: String,
    /// 0: BIOS, 0xEF: EFI.
    pub(crate) platform: u8,
    /// Sectors of 512 bytes to load.
    pub(crate) sectors: u16,
    /// Sector at which the base image has it: tables in the boot image name it.
    pub(crate) old_lba: u32,
}

/// Everything about an image.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// The base image's primary volume descriptor: label, names and dates are taken from it.
    pub(crate) descriptor: Vec<u8>,
    /// Date of the root.
    pub(crate) date: [u8; 7],
    /// The root's files and folders.
    pub(crate) root: Vec<TreeEntry>,
    /// Boot images; empty: the image does not boot.
    pub(crate) boot: Vec<BootFile>,
    /// Path of the file that is the boot catalogue, when it is a file.
    pub(crate) catalog: Option<String>,
}

/// A folder with its place.
struct Folder {
    parent: usize,
    id: Vec<u8>,
    date: [u8; 7],
    rows: Vec<Row>,
    lba: u32,
    sectors: u32,
}

/// A record in a folder.
struct Row {
    id: Vec<u8>,
    name: String,
    date: [u8; 7],
    to: Target,
}

#[derive(Clone, Copy)]
enum Target {
    Folder(usize),
    File(usize),
}

struct Placed {
    path: String,
    content: Layout,
    lba: u32,
}

fn both16(n: u16) -> [u8; 4] {
    let (le, be) = (n.to_le_bytes(), n.to_be_bytes());
    [le[0], le[1], be[0], be[1]]
}

fn both32(n: u32) -> [u8; 8] {
    let (le, be) = (n.to_le_bytes(), n.to_be_bytes());
    [le[0], le[1], le[2], le[3], be[0], be[1], be[2], be[3]]
}

/// Rock Ridge: mode, links, owner.
fn px(mode: u32, links: u32) -> Vec<u8> {
    let mut out = vec![b'P', b'X', PX as u8, 1];
    for n in [mode, links, 0, 0] {
        out.extend_from_slice(&both32(n));
    }
    out
}

fn nm(name: &str) -> Vec<u8> {
    let mut out = vec![b'N', b'M', name.len() as u8 + 5, 1, 0];
    out.extend_from_slice(name.as_bytes());
    out
}

/// What the root's own record says: there is SUSP, and it is Rock Ridge's.
fn announcement() -> Vec<u8> {
    let mut out = b"SP\x07\x01\xBE\xEF\x00".to_vec();
    out.extend_from_slice(&px(DIR_MODE, 2));
    out.extend_from_slice(&[b'E', b'R', (8 + ER_ID.len() + ER_TEXT.len()) as u8, 1]);
    out.extend_from_slice(&[ER_ID.len() as u8, ER_TEXT.len() as u8, 0, 1]);
    out.extend_from_slice(ER_ID);
    out.extend_from_slice(ER_TEXT);
    out
}

/// A directory record.
fn record(
    id: &[u8],
    lba: u32,
    len: u32,
    date: [u8; 7],
    folder: bool,
    system_use: &[u8],
) -> Result<Vec<u8>, WriteError> {
    let mut out = vec![0, 0];
    out.extend_from_slice(&both32(lba));
    out.extend_from_slice(&both32(len));
    out.extend_from_slice(&date);
    out.extend_from_slice(&[if folder { 2 } else { 0 }, 0, 0]);
    out.extend_from_slice(&both16(1));
    out.push(id.len() as u8);
    out.extend_from_slice(id);
    out.resize(out.len().next_multiple_of(2), 0);
    out.extend_from_slice(system_use);
    out.resize(out.len().next_multiple_of(2), 0);
    out[0] = u8::try_from(out.len()).map_err(|_| {
        WriteError::Limit(format!("the name of {} is too long for a minimal image", String::from_utf8_lossy(id)))
    })?;
    Ok(out)
}

/// Appends a record; records do not cross sectors.
fn append(bytes: &mut Vec<u8>, record: &[u8]) {
    let sector = SECTOR as usize;
    if bytes.len() % sector + record.len() > sector {
        bytes.resize(bytes.len().next_multiple_of(sector), 0);
    }
    bytes.extend_from_slice(record);
}

/// Sorts the tree into folders, breadth first (the order of the path table), and files.
fn flatten(tree: Tree) -> (Vec<Folder>, Vec<Placed>) {
    let mut folders = vec![Folder { parent: 0, id: vec![0], date: tree.date, rows: Vec::new(), lba: 0, sectors: 0 }];
    let mut files = Vec::new();
    let mut next = vec![(0, String::new(), tree.root)];
    while !next.is_empty() {
        for (folder, path, mut entries) in std::mem::take(&mut next) {
            entries.sort_by(|a, b| a.id.cmp(&b.id));
            for entry in entries {
                let path = format!("{path}/{}", entry.name);
                let to = match entry.what {
                    EntryContent::File(content) => {
                        files.push(Placed { path, content, lba: 0 });
                        Target::File(files.len() - 1)
                    }
                    EntryContent::Dir(entries) => {
                        let (id, date) = (entry.id.clone(), entry.date);
                        folders.push(Folder { parent: folder, id, date, rows: Vec::new(), lba: 0, sectors: 0 });
                        next.push((folders.len() - 1, path, entries));
                        Target::Folder(folders.len() - 1)
                    }
                };
                folders[folder].rows.push(Row { id: entry.id, name: entry.name, date: entry.date, to });
            }
        }
    }
    (folders, files)
}

/// The records of a folder, with the places as they are known so far.
fn folder_bytes(folders: &[Folder], files: &[Placed], at: usize) -> Result<Vec<u8>, WriteError> {
    let own = &folders[at];
    let parent = &folders[own.parent];
    let size = |f: &Folder| f.sectors * SECTOR as u32;
    let mut out = Vec::new();
    let dot = if at == 0 { announcement() } else { px(DIR_MODE, 2) };
    append(&mut out, &record(&[0], own.lba, size(own), own.date, true, &dot)?);
    append(&mut out, &record(&[1], parent.lba, size(parent), parent.date, true, &px(DIR_MODE, 2))?);
    for row in &own.rows {
        if row.name.len() > 200 {
            return Err(WriteError::Limit(format!("the name {} is too long for a minimal image", row.name)));
        }
        let (lba, len, folder, mode) = match row.to {
            Target::Folder(i) => (folders[i].lba, size(&folders[i]), true, DIR_MODE),
            Target::File(i) => (files[i].lba, length(&files[i])?, false, FILE_MODE),
        };
        let system_use = [px(mode, if folder { 2 } else { 1 }), nm(&row.name)].concat();
        append(&mut out, &record(&row.id, lba, len, row.date, folder, &system_use)?);
    }
    out.resize(out.len().next_multiple_of(SECTOR as usize), 0);
    Ok(out)
}

fn length(file: &Placed) -> Result<u32, WriteError> {
    u32::try_from(file.content.len())
        .map_err(|_| WriteError::Limit(format!("{} has 4 GiB or more, too much for a minimal image", file.path)))
}

/// The path table; `big` chooses its byte order.
fn path_table(folders: &[Folder], big: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for folder in folders {
        out.extend_from_slice(&[folder.id.len() as u8, 0]);
        let (lba, parent) = (folder.lba, folder.parent as u16 + 1);
        out.extend_from_slice(&if big { lba.to_be_bytes() } else { lba.to_le_bytes() });
        out.extend_from_slice(&if big { parent.to_be_bytes() } else { parent.to_le_bytes() });
        out.extend_from_slice(&folder.id);
        out.resize(out.len().next_multiple_of(2), 0);
    }
    out
}

/// The boot catalogue: a validation entry, the first image, and a section for every other one.
fn catalog(boot: &[(u8, u16, u32)]) -> Vec<u8> {
    let mut out = vec![0u8; SECTOR as usize];
    out[0] = 1;
    out[1] = boot.first().map_or(0, |b| b.0);
    out[30..32].copy_from_slice(&[0x55, 0xAA]);
    let sum = out[..32].chunks(2).fold(0u16, |sum, w| sum.wrapping_add(u16::from_le_bytes([w[0], w[1]])));
    out[28..30].copy_from_slice(&0u16.wrapping_sub(sum).to_le_bytes());
    let image = |entry: &mut [u8], sectors: u16, lba: u32| {
        entry[0] = 0x88;
        entry[6..8].copy_from_slice(&sectors.to_le_bytes());
        entry[8..12].copy_from_slice(&lba.to_le_bytes());
    };
    for (i, (platform, sectors, lba)) in boot.iter().enumerate() {
        if i == 0 {
            image(&mut out[32..64], *sectors, *lba);
            continue;
        }
        let at = 64 * i;
        out[at] = if i + 1 == boot.len() { 0x91 } else { 0x90 };
        out[at + 1] = *platform;
        out[at + 2] = 1;
        image(&mut out[at + 32..at + 64], *sectors, *lba);
    }
    out
}

/// Tables in a boot image that say where it is: isolinux' boot information table (byte 8: sector of the descriptor, sector of
/// the file, its length, sum of its words from byte 64 on) and GRUB's (byte 2548: its sector of 512 bytes, and 5 more).
/// Those that name the old place are made to name the new one.
fn relocate(base: &Arc<impl ReadAt>, file: &Placed, old_lba: u32) -> Result<Option<Layout>, WriteError> {
    let len = length(file)?;
    // A table is in a loader of some dozens of KiB, not in a file system image.
    if !(64..=1 << 20).contains(&len) {
        return Ok(None);
    }
    let laid = Laid { layout: file.content.clone(), base: base.clone() };
    let mut bytes = laid.bytes_at(0, len as usize)?;
    let mut changed = false;
    if let Some(table) = bytes.get_mut(2548..2556)
        && table == (u64::from(old_lba) * 4 + 5).to_le_bytes()
    {
        table.copy_from_slice(&(u64::from(file.lba) * 4 + 5).to_le_bytes());
        changed = true;
    }
    let expected = [(DESCRIPTORS as u32).to_le_bytes(), old_lba.to_le_bytes(), len.to_le_bytes()].concat();
    if bytes[8..20] == expected {
        bytes[12..16].copy_from_slice(&file.lba.to_le_bytes());
        let sum = bytes[64..].chunks(4).fold(0u32, |sum, word| {
            let mut whole = [0; 4];
            whole[..word.len()].copy_from_slice(word);
            sum.wrapping_add(u32::from_le_bytes(whole))
        });
        bytes[20..24].copy_from_slice(&sum.to_le_bytes());
        changed = true;
    }
    let mut out = Layout::default();
    out.push_bytes(bytes);
    Ok(changed.then_some(out))
}

/// The image.
///
/// # Errors
/// [`WriteError`].
pub(crate) fn compose(base: &Arc<impl ReadAt>, tree: Tree) -> Result<Layout, WriteError> {
    let (descriptor, boot, catalog_path) = (tree.descriptor.clone(), tree.boot.clone(), tree.catalog.clone());
    let (mut folders, mut files) = flatten(tree);
    if folders.len() > usize::from(u16::MAX) || boot.len() > 16 {
        return Err(WriteError::Limit("there are too many folders or boot images".into()));
    }
    let sectors = |bytes: u64| {
        u32::try_from(bytes.div_ceil(SECTOR)).map_err(|_| WriteError::Limit("the image would be too large".into()))
    };

    // Places: descriptors, path tables, folders, files.
    let table_len = path_table(&folders, false).len() as u32;
    let table_sectors = sectors(u64::from(table_len))?;
    let mut lba = DESCRIPTORS as u32 + if boot.is_empty() { 2 } else { 3 };
    let tables = (lba, lba + table_sectors);
    lba += 2 * table_sectors;
    for i in 0..folders.len() {
        folders[i].sectors = sectors(folder_bytes(&folders, &files, i)?.len() as u64)?;
        folders[i].lba = lba;
        lba += folders[i].sectors;
    }
    let catalog_file = catalog_path.and_then(|path| files.iter().position(|f| f.path == path));
    if let Some(i) = catalog_file {
        // Its bytes come when the places are known; its length is known.
        files[i].content = Layout::default();
        files[i].content.push_zeros(SECTOR);
    }
    let hidden_catalog = lba;
    if !boot.is_empty() && catalog_file.is_none() {
        lba += 1;
    }
    for file in &mut files {
        file.lba = lba;
        lba = lba
            .checked_add(sectors(file.content.len())?)
            .ok_or_else(|| WriteError::Limit("the image would be too large".into()))?;
    }
    let end = lba;

    // Contents that name places.
    let mut entries = Vec::new();
    for image in &boot {
        let Some(i) = files.iter().position(|f| f.path == image.path) else {
            return Err(WriteError::Limit(format!("the boot image {} is not there", image.path)));
        };
        entries.push((image.platform, image.sectors, files[i].lba));
        if let Some(content) = relocate(base, &files[i], image.old_lba)? {
            files[i].content = content;
        }
    }
    let catalog_bytes = catalog(&entries);
    let catalog_lba = catalog_file.map_or(hidden_catalog, |i| files[i].lba);
    if let Some(i) = catalog_file {
        files[i].content = Layout::default();
        files[i].content.push_bytes(catalog_bytes.clone());
    }

    let mut head = descriptor;
    head.resize(SECTOR as usize, 0);
    head[80..88].copy_from_slice(&both32(end));
    head[132..140].copy_from_slice(&both32(table_len));
    head[140..148].copy_from_slice(&[tables.0.to_le_bytes(), [0; 4]].concat());
    head[148..156].copy_from_slice(&[tables.1.to_be_bytes(), [0; 4]].concat());
    let root = record(&[0], folders[0].lba, folders[0].sectors * SECTOR as u32, folders[0].date, true, &[])?;
    head[156..190].copy_from_slice(&root);
    // What the base image's builder left for itself, such as a checksum of it.
    head[883..1395].fill(0);
    if !boot.is_empty() {
        let mut record = vec![0u8; SECTOR as usize];
        record[1..7].copy_from_slice(b"CD001\x01");
        record[7..30].copy_from_slice(b"EL TORITO SPECIFICATION");
        record[71..75].copy_from_slice(&catalog_lba.to_le_bytes());
        head.extend_from_slice(&record);
    }
    let mut last = vec![0u8; SECTOR as usize];
    last[..7].copy_from_slice(b"\xFFCD001\x01");
    head.extend_from_slice(&last);
    for big in [false, true] {
        head.extend_from_slice(&path_table(&folders, big));
        head.resize(head.len().next_multiple_of(SECTOR as usize), 0);
    }
    for i in 0..folders.len() {
        head.extend_from_slice(&folder_bytes(&folders, &files, i)?);
    }
    if !boot.is_empty() && catalog_file.is_none() {
        head.extend_from_slice(&catalog_bytes);
    }

    let mut out = Layout::default();
    out.push_zeros(DESCRIPTORS * SECTOR);
    out.push_bytes(head);
    for file in &files {
        out.push(&file.content);
        out.push_zeros(file.content.len().next_multiple_of(SECTOR) - file.content.len());
    }
    Ok(out)
}
