//! As much of ELF as is needed to know which libraries a program wants, and to hide a section (64 bits, little endian).

/// Names of the libraries; none for what is not such a program.
pub(super) fn needed(file: &[u8]) -> Vec<String> {
    read(file).unwrap_or_default()
}

fn number(file: &[u8], at: usize, size: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(file.get(at..at.checked_add(size)?)?);
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

/// Takes the name from a section, so that nobody finds it; false when there is none of that name.
pub(super) fn hide_section(file: &mut [u8], name: &str) -> bool {
    let header = section(file, name);
    if let Some(header) = header.and_then(|at| file.get_mut(at..at + 4)) {
        // The first string of the table is the empty one.
        header.fill(0);
    }
    header.is_some()
}

/// Where the header of this section is.
fn section(file: &[u8], name: &str) -> Option<usize> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(file, 40, 8)?, number(file, 58, 2)?, number(file, 60, 2)?);
    let header = |index: usize| table.checked_add(index.checked_mul(size)?);
    let names = number(file, header(number(file, 62, 2)?)?.checked_add(24)?, 8)?;
    let mut headers = (0..count).filter_map(header);
    headers.find(|at| {
        let text = number(file, *at, 4).and_then(|name| file.get(names.checked_add(name)?..));
        text.and_then(|text| text.strip_prefix(name.as_bytes())).is_some_and(|rest| rest.starts_with(b"\0"))
    })
}

fn read(file: &[u8]) -> Option<Vec<String>> {
    const LOAD: usize = 1;
    const DYNAMIC: usize = 2;
    const NEEDED: usize = 1;
    const STRINGS: usize = 5;
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(file, 32, 8)?, number(file, 54, 2)?, number(file, 56, 2)?);
    let (mut segments, mut dynamic) = (Vec::new(), None);
    for header in (0..count).map(|index| table + index * size) {
        let (offset, address, length) =
            (number(file, header + 8, 8)?, number(file, header + 16, 8)?, number(file, header + 32, 8)?);
        match number(file, header, 4)? {
            LOAD => segments.push((address, length, offset)),
            DYNAMIC => dynamic = Some((offset, length)),
            _ => {}
        }
    }
    let (start, length) = dynamic?;
    let (mut names, mut strings) = (Vec::new(), None);
    for entry in (start..start + length).step_by(16) {
        let value = number(file, entry + 8, 8)?;
        match number(file, entry, 8)? {
            NEEDED => names.push(value),
            STRINGS => strings = Some(value),
            _ => {}
        }
    }
    let strings = strings?;
    let (address, _, offset) = *segments.iter().find(|(a, length, _)| (*a..a + length).contains(&strings))?;
    let table = strings - address + offset;
    names
        .into_iter()
        .map(|name| {
            let text = file.get(table + name..)?;
            let end = text.iter().position(|byte| *byte == 0)?;
            String::from_utf8(text[..end].to_vec()).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_this_program() {
        let me = std::fs::read("/proc/self/exe").unwrap();
        assert!(needed(&me).iter().any(|name| name == "libc.so.6"), "{:?}", needed(&me));
    }

    #[test]
    fn a_section_is_hidden() {
        let mut me = std::fs::read("/proc/self/exe").unwrap();
        assert!(!hide_section(&mut me, ".tex"), "a part of a name is none");
        let before = section(&me, ".data").unwrap();
        assert!(hide_section(&mut me, ".text"));
        assert!(!hide_section(&mut me, ".text"));
        assert_eq!(section(&me, ".data"), Some(before), "the others stay");
        for file in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x02\x01", &me[..100]] {
            assert!(!hide_section(&mut file.to_vec(), ".data"));
        }
    }

    #[test]
    fn what_is_no_program_needs_nothing() {
        let me = std::fs::read("/proc/self/exe").unwrap();
        for file in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x02\x01", &me[..100]] {
            assert!(needed(file).is_empty());
        }
    }
}
