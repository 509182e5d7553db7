//! As much of ELF as is needed to know which libraries a program wants (64 bits, little endian).

/// Names of the libraries; none for what is not such a program.
pub(super) fn needed(file: &[u8]) -> Vec<String> {
    read(file).unwrap_or_default()
}

/// The loader that the program wants; `None` for one that needs none.
pub(super) fn interpreter(file: &[u8]) -> Option<String> {
    const INTERPRETER: usize = 3;
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(file, 32, 8)?, number(file, 54, 2)?, number(file, 56, 2)?);
    let headers = (0..count).filter_map(|index| table.checked_add(index.checked_mul(size)?));
    let header = { headers }.find(|at| number(file, *at, 4) == Some(INTERPRETER))?;
    let (start, length) = (number(file, header.checked_add(8)?, 8)?, number(file, header.checked_add(32)?, 8)?);
    let text = file.get(start..start.checked_add(length)?)?;
    Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
}

fn number(file: &[u8], at: usize, size: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(file.get(at..at.checked_add(size)?)?);
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

/// What the dynamic part of a program says.
struct Dynamic {
    /// Tag and value of each entry.
    entries: Vec<(usize, usize)>,
    /// Address, length and place in the file of what is loaded.
    segments: Vec<(usize, usize, usize)>,
}

impl Dynamic {
    fn read(file: &[u8]) -> Option<Self> {
        const LOAD: usize = 1;
        const DYNAMIC: usize = 2;
        if !file.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (table, size, count) = (number(file, 32, 8)?, number(file, 54, 2)?, number(file, 56, 2)?);
        let (mut segments, mut dynamic) = (Vec::new(), None);
        for header in (0..count).filter_map(|index| table.checked_add(index.checked_mul(size)?)) {
            let part = |at: usize| number(file, header.checked_add(at)?, 8);
            let (offset, address, length) = (part(8)?, part(16)?, part(32)?);
            match number(file, header, 4)? {
                LOAD => segments.push((address, length, offset)),
                DYNAMIC => dynamic = Some((offset, length)),
                _ => {}
            }
        }
        let (start, length) = dynamic?;
        let places = (start..start.checked_add(length)?).step_by(16);
        let entry = |at: usize| Some((number(file, at, 8)?, number(file, at.checked_add(8)?, 8)?));
        Some(Self { entries: places.map(entry).collect::<Option<_>>()?, segments })
    }

    fn values(&self, tag: usize) -> impl Iterator<Item = usize> {
        self.entries.iter().filter(move |(of, _)| *of == tag).map(|(_, value)| *value)
    }

    /// Where in the file an address is.
    fn place(&self, address: usize) -> Option<usize> {
        let (start, _, offset) = self
            .segments
            .iter()
            .find(|(start, length, _)| address.checked_sub(*start).is_some_and(|at| at < *length))?;
        (address - start).checked_add(*offset)
    }

    /// The string of that number.
    fn text(&self, file: &[u8], number: usize) -> Option<String> {
        const STRINGS: usize = 5;
        let text = file.get(self.place(self.values(STRINGS).next()?)?.checked_add(number)?..)?;
        let end = text.iter().position(|byte| *byte == 0)?;
        String::from_utf8(text[..end].to_vec()).ok()
    }
}

fn read(file: &[u8]) -> Option<Vec<String>> {
    const NEEDED: usize = 1;
    let dynamic = Dynamic::read(file)?;
    dynamic.values(NEEDED).map(|name| dynamic.text(file, name)).collect()
}

/// Versions of symbols that the program wants of its libraries, such as `GLIBC_2.34`.
pub(super) fn versions(file: &[u8]) -> Vec<String> {
    wanted(file).unwrap_or_default()
}

fn wanted(file: &[u8]) -> Option<Vec<String>> {
    const VERSIONS: usize = 0x6fff_fffe;
    let dynamic = Dynamic::read(file)?;
    let mut all = Vec::new();
    let mut library = dynamic.place(dynamic.values(VERSIONS).next()?)?;
    // For each library: how many versions, the first of them, the next library; both counted from here.
    loop {
        let (first, next) = (number(file, library.checked_add(8)?, 4)?, number(file, library.checked_add(12)?, 4)?);
        let mut version = library.checked_add(first)?;
        for _ in 0..number(file, library.checked_add(2)?, 2)? {
            all.push(dynamic.text(file, number(file, version.checked_add(8)?, 4)?)?);
            version = version.checked_add(number(file, version.checked_add(12)?, 4)?)?;
        }
        if next == 0 {
            return Some(all);
        }
        library = library.checked_add(next)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_this_program() {
        let me = std::fs::read("/proc/self/exe").unwrap();
        assert!(needed(&me).iter().any(|name| name == "libc.so.6"), "{:?}", needed(&me));
        assert!(versions(&me).iter().any(|name| name.starts_with("GLIBC_2.")), "{:?}", versions(&me));
        assert!(interpreter(&me).unwrap().starts_with("/lib"), "{:?}", interpreter(&me));
    }

    #[test]
    fn what_is_no_program_needs_nothing() {
        let me = std::fs::read("/proc/self/exe").unwrap();
        for file in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x02\x01", &me[..100]] {
            assert!(needed(file).is_empty());
            assert_eq!((interpreter(file), versions(file).len()), (None, 0));
        }
    }
}
