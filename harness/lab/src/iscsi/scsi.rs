//! The commands of SCSI that a disk must know.

use std::io;
use std::os::unix::fs::FileExt as _;

use super::Lun;

/// A command moves no more blocks than that (32 MiB): what it moves is in memory at once.
const MOST_BLOCKS: u64 = 65_536;

/// Bytes of a block.
pub(super) const BLOCK: u64 = 512;

/// What a command asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is done, and these bytes are the answer.
    Data(Vec<u8>),
    /// The initiator sends so many bytes for this place, see [`Lun::write`].
    Take { at: u64, length: usize },
    /// It cannot be done: sense key, and additional sense code with its qualifier.
    Refused(Sense),
}

/// Why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sense {
    key: u8,
    code: u8,
}

const NO_SUCH_COMMAND: Sense = Sense { key: 5, code: 0x20 };
const OUT_OF_RANGE: Sense = Sense { key: 5, code: 0x21 };
const NO_SUCH_FIELD: Sense = Sense { key: 5, code: 0x24 };
/// There is nothing under that number.
pub(super) const NO_SUCH_LUN: Sense = Sense { key: 5, code: 0x25 };
/// This computer cannot read or write the file.
pub(super) const UNREADABLE: Sense = Sense { key: 3, code: 0x11 };
pub(super) const UNWRITABLE: Sense = Sense { key: 3, code: 0x0c };

impl Sense {
    /// In the fixed form.
    pub(super) fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; 18];
        (bytes[0], bytes[2], bytes[7], bytes[12]) = (0x70, self.key, 10, self.code);
        bytes
    }
}

/// `length` bytes, as many as the initiator has room for.
fn cut(mut bytes: Vec<u8>, length: usize) -> Answer {
    bytes.truncate(length);
    Answer::Data(bytes)
}

fn number(cdb: &[u8; 16], at: usize, length: usize) -> u64 {
    cdb[at..at + length].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn length(cdb: &[u8; 16], at: usize, bytes: usize) -> usize {
    usize::try_from(number(cdb, at, bytes)).unwrap_or(usize::MAX)
}

/// Does a command.
pub(super) fn command(lun: &Lun, cdb: &[u8; 16]) -> Answer {
    let nothing = || Answer::Data(Vec::new());
    match cdb[0] {
        // Ready? Start, verify, flush the cache: nothing to be done, the file is this computer's.
        0x00 | 0x1b | 0x2f | 0x35 | 0x91 => nothing(),
        0x03 => cut(Sense { key: 0, code: 0 }.bytes(), length(cdb, 4, 1)),
        0x12 => inquiry(lun, cdb),
        // No pages of modes, and no protection against writing.
        0x1a => cut(vec![3, 0, 0, 0], length(cdb, 4, 1)),
        0x5a => cut(vec![0, 6, 0, 0, 0, 0, 0, 0], length(cdb, 7, 2)),
        0x25 => {
            let last = u32::try_from(lun.blocks() - 1).unwrap_or(u32::MAX);
            Answer::Data([last.to_be_bytes(), (BLOCK as u32).to_be_bytes()].concat())
        }
        0x9e if cdb[1] & 0x1f == 0x10 => {
            let mut bytes = vec![0; 32];
            bytes[..8].copy_from_slice(&(lun.blocks() - 1).to_be_bytes());
            bytes[8..12].copy_from_slice(&(BLOCK as u32).to_be_bytes());
            cut(bytes, length(cdb, 10, 4))
        }
        0xa0 => cut(vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], length(cdb, 6, 4)),
        0x28 => lun.read(number(cdb, 2, 4), number(cdb, 7, 2)),
        0x88 => lun.read(number(cdb, 2, 8), number(cdb, 10, 4)),
        0x2a => lun.place(number(cdb, 2, 4), number(cdb, 7, 2)),
        0x8a => lun.place(number(cdb, 2, 8), number(cdb, 10, 4)),
        _ => Answer::Refused(NO_SUCH_COMMAND),
    }
}

fn inquiry(lun: &Lun, cdb: &[u8; 16]) -> Answer {
    let page = |number: u8, content: &[u8]| {
        let size = u16::try_from(content.len()).unwrap_or(0).to_be_bytes();
        cut([&[0, number, size[0], size[1]], content].concat(), length(cdb, 3, 2))
    };
    match (cdb[1] & 1, cdb[2]) {
        (0, 0) => {
            // A disk, of SPC-4, with queues of commands.
            let mut bytes = vec![0, 0, 6, 2, 31, 0, 0, 2];
            bytes.extend_from_slice(b"VLAB    iSCSI disk      1   ");
            cut(bytes, length(cdb, 3, 2))
        }
        (1, 0x00) => page(0x00, &[0x00, 0x80, 0x83, 0xb0, 0xb1]),
        (1, 0x80) => page(0x80, lun.serial.as_bytes()),
        // In binary, of the disk itself, by NAA.
        (1, 0x83) => page(0x83, &[&[1, 3, 0, 8][..], &lun.wwn.to_be_bytes()].concat()),
        // How much a command may move.
        (1, 0xb0) => {
            let mut bytes = vec![0; 60];
            bytes[4..8].copy_from_slice(&(MOST_BLOCKS as u32).to_be_bytes());
            page(0xb0, &bytes)
        }
        // It turns: 7,200 times a minute.
        (1, 0xb1) => {
            let mut bytes = vec![0; 60];
            bytes[..2].copy_from_slice(&7200u16.to_be_bytes());
            page(0xb1, &bytes)
        }
        _ => Answer::Refused(NO_SUCH_FIELD),
    }
}

impl Lun {
    fn blocks(&self) -> u64 {
        self.size_bytes / BLOCK
    }

    /// So many blocks from this one on: their place and length in bytes.
    fn bytes(&self, first: u64, count: u64) -> Result<(u64, usize), Sense> {
        if count > MOST_BLOCKS {
            return Err(NO_SUCH_FIELD);
        }
        let inside = first.checked_add(count).is_some_and(|end| end <= self.blocks());
        let length = usize::try_from(count * BLOCK).ok().filter(|_| inside);
        length.map(|length| (first * BLOCK, length)).ok_or(OUT_OF_RANGE)
    }

    fn read(&self, first: u64, count: u64) -> Answer {
        let (at, length) = match self.bytes(first, count) {
            Ok(place) => place,
            Err(sense) => return Answer::Refused(sense),
        };
        let mut bytes = vec![0; length];
        match self.file.read_exact_at(&mut bytes, at) {
            Ok(()) => Answer::Data(bytes),
            Err(_) => Answer::Refused(UNREADABLE),
        }
    }

    fn place(&self, first: u64, count: u64) -> Answer {
        match self.bytes(first, count) {
            Ok((at, length)) => Answer::Take { at, length },
            Err(sense) => Answer::Refused(sense),
        }
    }

    /// Writes what the initiator has sent.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }
}
