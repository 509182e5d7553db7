//! What somebody left on a disk before it came into this machine: an old partition table, a volume group of LVM, a member of a
//! RAID. Pure: bytes and where they lie. They are written into the disk's image before the machine starts, so nothing has to be
//! mounted and nobody has to be root.

use uuid::Uuid;

/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Where data begins, in all three formats.
const DATA: u64 = 1 << 20;
/// The smallest disk that has room for what is left.
pub const SMALLEST: u64 = 64 << 20;
/// When it was made: 2020-09-13.
const MADE: u64 = 1_600_000_000;

/// What was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leftover {
    /// A partition table (GPT) with two partitions. Its first sector looks bootable and hands the BIOS on to what it tries next.
    Partitions,
    /// The whole disk is a physical volume of LVM, with a volume group and a logical volume `data` in it.
    Lvm {
        /// Name of the volume group.
        group: String,
    },
    /// The whole disk is a member of a mirror (md, metadata 1.2).
    Raid {
        /// Which array.
        array: Uuid,
        /// Which member of it, from 0.
        member: u16,
        /// How many it has.
        members: u16,
        /// Bytes that every member has at least.
        smallest: u64,
    },
}

/// Bytes at a place of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins.
    pub offset: u64,
    /// What is there.
    pub bytes: Vec<u8>,
}

/// What is on a disk of so many bytes; `disk` tells it from all others.
#[must_use]
pub fn extents(leftover: &Leftover, size: u64, disk: Uuid) -> Vec<Extent> {
    match leftover {
        Leftover::Partitions => partitions(size / SECTOR, disk),
        Leftover::Lvm { group } => lvm(size, disk, group),
        Leftover::Raid { array, member, members, smallest } => {
            vec![raid(*array, disk, *member, *members, (size.min(*smallest) - DATA) / SECTOR)]
        }
    }
}

/// Writes one field behind the other, in little-endian order.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Zeros up to a length.
    fn up_to(mut self, length: usize) -> Self {
        self.0.resize(length, 0);
        self
    }
}

/// The sum of CRC-32, without what is done before and after it.
fn crc(begin: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(begin, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}

fn crc32(bytes: &[u8]) -> u32 {
    !crc(!0, bytes)
}

/// Something else than `disk` that is of it.
fn part_of(disk: Uuid, part: u128) -> Uuid {
    Uuid::from_u128(disk.as_u128() ^ (part << 64))
}

// --- partitions --------------------------------------------------------------------------------------------------------------

/// Entries of a table, and sectors that they take.
const ENTRIES: u32 = 128;
const TABLE: u64 = 32;

/// `int 18h`: the BIOS tries what comes after the disks.
const NOT_FROM_HERE: [u8; 2] = [0xcd, 0x18];

fn partitions(sectors: u64, disk: Uuid) -> Vec<Extent> {
    // Types: EFI system partition, Linux file system.
    let kinds = [
        (Uuid::from_u128(0xC12A7328_F81F_11D2_BA4B_00A0C93EC93B), "old-efi"),
        (Uuid::from_u128(0x0FC63DAF_8483_4772_8E79_3D69D8477DE4), "old-data"),
    ];
    let last_usable = sectors - TABLE - 2;
    let middle = DATA / SECTOR + (16 << 20) / SECTOR;
    let places = [(DATA / SECTOR, middle - 1), (middle, last_usable)];
    let mut entries = Fields::default();
    for (part, ((kind, name), (first, last))) in (1..).zip(kinds.into_iter().zip(places)) {
        let end = entries.0.len() + 128;
        let head =
            entries.bytes(&kind.to_bytes_le()).bytes(&part_of(disk, part).to_bytes_le()).u64(first).u64(last).u64(0);
        entries = name.encode_utf16().fold(head, Fields::u16).up_to(end);
    }
    let entries = entries.up_to(ENTRIES as usize * 128).0;
    let header = |own: u64, other: u64, table: u64| {
        let header = |sum: u32| {
            Fields::default()
                .bytes(b"EFI PART")
                .u32(0x0001_0000)
                .u32(92)
                .u32(sum)
                .u32(0)
                .u64(own)
                .u64(other)
                .u64(2 + TABLE)
                .u64(last_usable)
                .bytes(&disk.to_bytes_le())
                .u64(table)
                .u32(ENTRIES)
                .u32(128)
                .u32(crc32(&entries))
        };
        header(crc32(&header(0).0)).0
    };
    let last = sectors - 1;
    let protective = Fields::default()
        .bytes(&NOT_FROM_HERE)
        .up_to(446)
        .bytes(&[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff])
        .u32(1)
        .u32(u32::try_from(last).unwrap_or(u32::MAX))
        .up_to(510)
        .bytes(&[0x55, 0xaa]);
    let at = |sector: u64, bytes: Vec<u8>| Extent { offset: sector * SECTOR, bytes };
    vec![
        at(0, protective.0),
        at(1, header(1, last, 2)),
        at(2, entries.clone()),
        at(last - TABLE, entries.clone()),
        at(last, header(last, 1, last - TABLE)),
    ]
}

// --- LVM ---------------------------------------------------------------------------------------------------------------------

/// What LVM's sums begin with.
const LVM_SUM: u32 = 0xf597_a6cf;
/// Where its metadata lies, and how much room it has.
const METADATA: u64 = 4096;
const METADATA_ROOM: u64 = DATA - METADATA;
/// Sectors of an extent: 4 MiB.
const LVM_EXTENT: u64 = 8192;

/// An id of LVM: 32 letters and digits, in groups where `dashes`.
fn lvm_id(id: Uuid, dashes: bool) -> String {
    let all = id.simple().to_string();
    if !dashes {
        return all;
    }
    let ends = [6, 10, 14, 18, 22, 26];
    all.char_indices().fold(String::new(), |mut text, (at, letter)| {
        if ends.contains(&at) {
            text.push('-');
        }
        text.push(letter);
        text
    })
}

fn lvm(size: u64, disk: Uuid, group: &str) -> Vec<Extent> {
    let label = Fields::default()
        .u32(32)
        .bytes(b"LVM2 001")
        .bytes(lvm_id(disk, false).as_bytes())
        .u64(size)
        // Where data is (to the end), where metadata is; each list ends with zeros.
        .u64(DATA)
        .u64(0)
        .bytes(&[0; 16])
        .u64(METADATA)
        .u64(METADATA_ROOM)
        .bytes(&[0; 16])
        // The extension: its version, and that the volume is in use.
        .u32(2)
        .u32(1)
        .up_to(512 - 20)
        .0;
    let label = Fields::default().bytes(b"LABELONE").u64(1).u32(crc(LVM_SUM, &label)).bytes(&label);
    let mut text = lvm_text(size, disk, group).into_bytes();
    text.push(0);
    let header = Fields::default()
        .bytes(b" LVM2 x[5A%r0N*>")
        .u32(1)
        .u64(METADATA)
        .u64(METADATA_ROOM)
        // The text lies behind this header.
        .u64(SECTOR)
        .u64(text.len() as u64)
        .u32(crc(LVM_SUM, &text))
        .u32(0)
        .up_to(512 - 4)
        .0;
    let header = Fields::default().u32(crc(LVM_SUM, &header)).bytes(&header);
    let at = |offset: u64, bytes: Vec<u8>| Extent { offset, bytes };
    vec![at(SECTOR, label.0), at(METADATA, header.0), at(METADATA + SECTOR, text)]
}

/// The metadata of a volume group with one logical volume.
fn lvm_text(size: u64, disk: Uuid, group: &str) -> String {
    let (sectors, begin) = (size / SECTOR, DATA / SECTOR);
    let count = (sectors - begin) / LVM_EXTENT;
    let (own, of_group, volume) = (lvm_id(disk, true), lvm_id(part_of(disk, 1), true), lvm_id(part_of(disk, 2), true));
    format!(
        r#"{group} {{
id = "{of_group}"
seqno = 2
format = "lvm2"
status = ["RESIZEABLE", "READ", "WRITE"]
flags = []
extent_size = {LVM_EXTENT}
max_lv = 0
max_pv = 0
metadata_copies = 0

physical_volumes {{

pv0 {{
id = "{own}"
device = "/dev/sda"

status = ["ALLOCATABLE"]
flags = []
dev_size = {sectors}
pe_start = {begin}
pe_count = {count}
}}
}}

logical_volumes {{

data {{
id = "{volume}"
status = ["READ", "WRITE", "VISIBLE"]
flags = []
creation_time = {MADE}
creation_host = "former"
segment_count = 1

segment1 {{
start_extent = 0
extent_count = {}

type = "striped"
stripe_count = 1

stripes = [
"pv0", 0
]
}}
}}
}}

}}
# Generated by the lab

contents = "Text Format Volume Group"
version = 1

description = "what somebody left"

creation_host = "former"
creation_time = {MADE}

"#,
        count.min(4)
    )
}

// --- RAID --------------------------------------------------------------------------------------------------------------------

/// A superblock of md, version 1.2, of a clean mirror.
fn raid(array: Uuid, disk: Uuid, member: u16, members: u16, sectors: u64) -> Extent {
    const PLACE: u64 = 4096;
    const ROLES: u32 = 128;
    /// Not a member.
    const SPARE: u16 = 0xffff;
    let mut bytes = Fields::default()
        .u32(0xa92b_4efc)
        .u32(1)
        .bytes(&[0; 8])
        .bytes(array.as_bytes())
        .bytes(b"former:0")
        .up_to(64)
        .u64(MADE)
        // A mirror.
        .u32(1)
        .u32(0)
        .u64(sectors)
        .u32(0)
        .u32(members.into())
        .up_to(128)
        .u64(DATA / SECTOR)
        .u64(sectors)
        .u64(PLACE / SECTOR)
        .u64(0)
        .u32(member.into())
        .u32(0)
        .bytes(disk.as_bytes())
        .up_to(192)
        .u64(MADE)
        // As many events on each member; in sync to the end.
        .u64(17)
        .u64(u64::MAX)
        .u32(0)
        .u32(ROLES)
        .up_to(256)
        .0;
    for place in 0..ROLES {
        let role = u16::try_from(place).ok().filter(|place| *place < members).unwrap_or(SPARE);
        bytes.extend_from_slice(&role.to_le_bytes());
    }
    let sum: u64 =
        bytes.chunks_exact(4).map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))).sum();
    let sum = u32::try_from((sum & 0xffff_ffff) + (sum >> 32)).unwrap_or(u32::MAX);
    bytes[216..220].copy_from_slice(&sum.to_le_bytes());
    Extent { offset: PLACE, bytes }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom, Write as _};
    use std::process::Command;

    use super::*;

    const DISK: Uuid = Uuid::from_u128(0x1234_5678_9abc_4def_8000_0000_0000_0001);
    const SIZE: u64 = 120_000_000_000;

    fn word(extents: &[Extent], place: u64) -> u32 {
        let extent = extents.iter().find(|e| (e.offset..e.offset + e.bytes.len() as u64).contains(&place)).unwrap();
        let at = usize::try_from(place - extent.offset).unwrap();
        u32::from_le_bytes(extent.bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn the_sum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    /// The partition table of another program's making, read by yet another one.
    #[test]
    fn a_partition_table_is_whole_at_both_ends() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(SIZE).unwrap();
        for extent in extents(&Leftover::Partitions, SIZE, DISK) {
            file.seek(SeekFrom::Start(extent.offset)).unwrap();
            file.write_all(&extent.bytes).unwrap();
        }
        let told = Command::new("sgdisk").arg("--verify").arg("--print").arg(file.path()).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(told.contains("No problems found"), "{told}");
        assert!(told.contains("old-efi") && told.contains("old-data"), "{told}");
    }

    #[test]
    fn a_physical_volume_says_where_its_group_is() {
        let all = extents(&Leftover::Lvm { group: "old".into() }, SIZE, DISK);
        assert_eq!(&all[0].bytes[..8], b"LABELONE");
        assert_eq!(word(&all, 512 + 16), crc(LVM_SUM, &all[0].bytes[20..]));
        assert_eq!((all[0].bytes.len(), all[1].bytes.len()), (512, 512));
        assert_eq!(word(&all, METADATA), crc(LVM_SUM, &all[1].bytes[4..]));
        let text = &all[2].bytes;
        assert_eq!(word(&all, METADATA + 40 + 8), u32::try_from(text.len()).unwrap());
        assert_eq!(word(&all, METADATA + 40 + 16), crc(LVM_SUM, text));
        insta::assert_snapshot!(String::from_utf8(text[..text.len() - 1].to_vec()).unwrap());
    }

    #[test]
    fn members_of_an_array_differ_in_their_numbers_alone() {
        let of = |member: u16| Leftover::Raid { array: DISK, member, members: 2, smallest: SIZE };
        let [one, two] = [0, 1].map(|member| extents(&of(member), SIZE, DISK).remove(0));
        assert_eq!((one.offset, one.bytes.len()), (4096, 512));
        let differ: Vec<usize> = (0..512).filter(|at| one.bytes[*at] != two.bytes[*at]).collect();
        assert_eq!(differ, [160, 216]);
        let mut summed = one.bytes.clone();
        summed[216..220].fill(0);
        let sum: u64 = summed.chunks_exact(4).map(|w| u64::from(u32::from_le_bytes(w.try_into().unwrap()))).sum();
        assert_eq!(u64::from(word(&[one], 4096 + 216)), (sum & 0xffff_ffff) + (sum >> 32));
    }
}
