//! Files that are never written: a sequence of pieces, each a range of the base file, bytes in memory, or zeros. Everything
//! the image service serves is one of these, so that a range of it costs what the range costs and an image for a new
//! infra-env costs no disk.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;

/// Something that can be read anywhere.
pub trait ReadAt {
    /// Length in bytes.
    fn size(&self) -> u64;
    /// Fills `buffer` with what is at `offset`.
    ///
    /// # Errors
    /// When the file cannot be read, or ends before the buffer is full.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// `len` bytes at `offset`. The caller knows that `len` is sane.
    ///
    /// # Errors
    /// As [`ReadAt::read_exact_at`].
    fn bytes_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; len];
        self.read_exact_at(offset, &mut buffer)?;
        Ok(buffer)
    }
}

impl ReadAt for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|from| self.get(from..)?.get(..buffer.len()));
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.as_slice().size()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_exact_at(offset, buffer)
    }
}

/// An open file and the length that it had when it was opened.
#[derive(Debug)]
pub struct BaseFile {
    file: File,
    len: u64,
}

impl BaseFile {
    /// Opens a file.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &std::path::Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other("this is not a file"));
        }
        Ok(Self { file, len: meta.len() })
    }

    /// When the file was changed last, in seconds since 1970; 0 when the system does not know.
    pub fn modified_secs(&self) -> i64 {
        self.file.metadata().map_or(0, |meta| std::os::unix::fs::MetadataExt::mtime(&meta))
    }
}

impl ReadAt for BaseFile {
    fn size(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// Where the bytes of a piece come from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// The base file, from this offset.
    Base(u64),
    /// Bytes in memory.
    Bytes(Bytes),
    /// Zeros, which are stored nowhere.
    Zeros,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// Offset of the piece in the whole.
    start: u64,
    len: u64,
    source: Source,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// A replaced range does not lie within the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {offset} to {end} are not within the {len} bytes of the image", end = .offset + .count)]
pub struct OutOfRange {
    offset: u64,
    count: u64,
    len: u64,
}

/// The whole: pieces in order, without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pieces: Vec<Piece>,
    len: u64,
}

impl Layout {
    /// The base file as it is.
    pub fn of_base(len: u64) -> Self {
        let mut layout = Self::default();
        layout.push_base(0, len);
        layout
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Nothing in it?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that it holds in memory.
    pub fn in_memory(&self) -> u64 {
        let held = |p: &Piece| if matches!(p.source, Source::Bytes(_)) { p.len } else { 0 };
        self.pieces.iter().map(held).sum()
    }

    fn add(&mut self, len: u64, source: Source) {
        if len == 0 {
            return;
        }
        // Neighbours in the base file are one piece.
        if let (Some(last), Source::Base(from)) = (self.pieces.last_mut(), &source)
            && let Source::Base(before) = last.source
            && before + last.len == *from
        {
            last.len += len;
        } else {
            self.pieces.push(Piece { start: self.len, len, source });
        }
        self.len += len;
    }

    /// Appends a range of the base file.
    pub fn push_base(&mut self, offset: u64, len: u64) {
        self.add(len, Source::Base(offset));
    }

    /// Appends bytes.
    pub fn push_bytes(&mut self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        self.add(bytes.len() as u64, Source::Bytes(bytes));
    }

    /// Appends zeros.
    pub fn push_zeros(&mut self, len: u64) {
        self.add(len, Source::Zeros);
    }

    /// Appends another one over the same base file.
    pub fn push(&mut self, other: &Layout) {
        for piece in &other.pieces {
            self.add(piece.len, piece.source.clone());
        }
    }

    /// A part of it; what lies behind the end is not there.
    pub fn slice(&self, range: Range<u64>) -> Layout {
        let mut part = Layout::default();
        let first = self.pieces.partition_point(|p| p.end() <= range.start);
        for piece in self.pieces[first..].iter().take_while(|p| p.start < range.end) {
            let skip = range.start.saturating_sub(piece.start);
            let len = piece.end().min(range.end) - piece.start - skip;
            let source = match &piece.source {
                Source::Base(from) => Source::Base(from + skip),
                // A piece in memory is not longer than the memory.
                Source::Bytes(bytes) => Source::Bytes(bytes.slice(skip as usize..(skip + len) as usize)),
                Source::Zeros => Source::Zeros,
            };
            part.add(len, source);
        }
        part
    }

    /// The same with other bytes at `offset`. The length stays.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn replace(&self, offset: u64, with: &Layout) -> Result<Layout, OutOfRange> {
        let end = offset.checked_add(with.len).filter(|end| *end <= self.len);
        let end = end.ok_or(OutOfRange { offset, count: with.len, len: self.len })?;
        let mut out = self.slice(0..offset);
        out.push(with);
        out.push(&self.slice(end..self.len));
        Ok(out)
    }

    /// Fills `buffer` from `offset`, with the base file at hand.
    ///
    /// # Errors
    /// As [`ReadAt::read_exact_at`].
    pub fn read_exact_at(&self, base: &(impl ReadAt + ?Sized), offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        let first = self.pieces.partition_point(|p| p.end() <= offset);
        for piece in &self.pieces[first..] {
            if filled == buffer.len() {
                break;
            }
            let skip = (offset + filled as u64) - piece.start;
            // Not more than the buffer holds.
            let count = (piece.len - skip).min((buffer.len() - filled) as u64) as usize;
            let part = &mut buffer[filled..filled + count];
            match &piece.source {
                Source::Base(from) => base.read_exact_at(from + skip, part)?,
                Source::Bytes(bytes) => part.copy_from_slice(&bytes[skip as usize..skip as usize + count]),
                Source::Zeros => part.fill(0),
            }
            filled += count;
        }
        if filled == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// A layout together with its base file: something that can be read.
#[derive(Clone, Debug)]
pub struct Laid<B: ?Sized> {
    /// What is where.
    pub layout: Layout,
    /// The base file.
    pub base: Arc<B>,
}

impl<B: ReadAt + ?Sized> ReadAt for Laid<B> {
    fn size(&self) -> u64 {
        self.layout.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.layout.read_exact_at(&*self.base, offset, buffer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn base() -> Vec<u8> {
        (0..200u8).collect()
    }

    fn all(layout: &Layout) -> Vec<u8> {
        let mut out = vec![0xEE; layout.len() as usize];
        layout.read_exact_at(base().as_slice(), 0, &mut out).unwrap();
        out
    }

    fn bytes(bytes: &[u8]) -> Layout {
        let mut layout = Layout::default();
        layout.push_bytes(bytes.to_vec());
        layout
    }

    #[test]
    fn neighbours_in_the_base_file_are_one_piece() {
        let mut layout = Layout::default();
        layout.push_base(10, 5);
        layout.push_base(15, 5);
        layout.push_zeros(0);
        assert_eq!(layout.pieces.len(), 1);
        layout.push_base(30, 2);
        layout.push_zeros(3);
        assert_eq!(all(&layout), [&base()[10..20], &[30, 31, 0, 0, 0]].concat());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let whole = Layout::of_base(200);
        let error = whole.replace(199, &bytes(b"ab")).unwrap_err();
        assert_eq!(error.to_string(), "bytes 199 to 201 are not within the 200 bytes of the image");
        assert!(whole.replace(u64::MAX, &bytes(b"a")).is_err());
        assert_eq!(whole.replace(198, &bytes(b"ab")).unwrap().len(), 200);
        let mut buffer = [0; 4];
        assert!(whole.read_exact_at(base().as_slice(), 197, &mut buffer).is_err());
        assert!(whole.read_exact_at(base().as_slice(), 500, &mut buffer).is_err());
    }

    /// Any sequence of replacements, and the same done to a plain vector.
    fn replaced() -> impl Strategy<Value = (Layout, Vec<u8>)> {
        let change = (0..200u64, proptest::collection::vec(any::<u8>(), 0..40), any::<bool>());
        proptest::collection::vec(change, 0..6).prop_map(|changes| {
            let mut layout = Layout::of_base(200);
            let mut plain = base();
            for (at, with, zeros) in changes {
                let at = at.min(200 - with.len() as u64);
                let mut over = Layout::default();
                if zeros {
                    over.push_zeros(with.len() as u64);
                } else {
                    over.push_bytes(with.clone());
                }
                layout = layout.replace(at, &over).unwrap();
                for (i, byte) in with.iter().enumerate() {
                    plain[at as usize + i] = if zeros { 0 } else { *byte };
                }
            }
            (layout, plain)
        })
    }

    proptest! {
        #[test]
        fn replacing_is_what_it_is_on_a_plain_file((layout, plain) in replaced()) {
            prop_assert_eq!(all(&layout), plain);
        }

        #[test]
        fn a_part_equals_the_part_of_the_whole((layout, plain) in replaced(), a in 0..220u64, b in 0..220u64) {
            let (from, to) = (a.min(b), a.max(b));
            let expected = &plain[(from as usize).min(200)..(to as usize).min(200)];
            let part = layout.slice(from..to);
            prop_assert_eq!(part.len(), expected.len() as u64);
            prop_assert_eq!(all(&part), expected.to_vec());
            // Read in place, it is the same.
            let mut buffer = vec![0; expected.len()];
            layout.read_exact_at(base().as_slice(), from, &mut buffer).unwrap();
            prop_assert_eq!(buffer, expected.to_vec());
        }
    }
}
