//! Machines without an operating system: boot sectors made here, byte by byte, that say something on the serial port and
//! then do one thing. They prove in a second what a real system would need half a minute for: that a machine runs, that
//! its console is read, that a disk error reaches the guest.

/// What the guest does after it has said its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Nothing, for ever, without using the processor.
    Stay,
    /// Switches the machine off (q35 and pc under SeaBIOS: ACPI's power management port is at 0x604).
    PowerOff,
    /// Writes [`DEBUG_EXIT`] to port 0xf4, where `isa-debug-exit` ends QEMU with [`DEBUG_EXIT_STATUS`].
    DebugExit,
    /// Reads the first sector of its disk again and again, 18 times a second at most: `r` on the serial port for each read
    /// that worked, `E` for each that did not.
    ReadForever,
    /// Writes its disk from the first sector on, 32 KiB at a time: `w` on the serial port for each write that worked, `E` for
    /// each that did not.
    WriteForever,
    /// Sends back every byte that comes in on the serial port.
    Echo,
}

/// What [`Then::DebugExit`] writes.
pub const DEBUG_EXIT: u8 = 0x21;

/// QEMU's exit status then: `(value << 1) | 1`.
pub const DEBUG_EXIT_STATUS: i32 = ((DEBUG_EXIT as i32) << 1) | 1;

/// Where the text begins in the sector, and where the parameters of the disk read are.
const TEXT: usize = 0x100;
const PACKET: usize = 0x1e0;

/// Longest text in bytes.
pub const TEXT_MAX: usize = PACKET - TEXT - 1;

/// 16-bit code, loaded by the BIOS at 0x7c00. The jump at [`AFTER`] goes to the part that [`Then`] names.
#[rustfmt::skip]
const CODE: [u8; 0x94] = [
    // 00: cli; ax = ds = es = ss = 0; sp = 0x7c00
    0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c,
    // 0c: keep the number of the boot drive at 0x7df0; si = text
    0x88, 0x16, 0xf0, 0x7d, 0xbe, 0x00, 0x7d,
    // 13: next byte of the text; none: go on (patched); say it; again
    0xac, 0x84, 0xc0, 0x74, 0x00, 0xe8, 0x02, 0x00, 0xeb, 0xf6,
    // 1d: say al: wait until the port is ready (0x3fd bit 5), out 0x3f8
    0x88, 0xc3, 0xba, 0xfd, 0x03, 0xec, 0xa8, 0x20, 0x74, 0xfb, 0x88, 0xd8, 0xba, 0xf8, 0x03, 0xee, 0xc3,
    // 2e stay: sti; hlt; again
    0xfb, 0xf4, 0xeb, 0xfd,
    // 32 power off: out 0x604, 0x2000; hlt; again
    0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, 0xf4, 0xeb, 0xfd,
    // 3c debug exit: out 0xf4, DEBUG_EXIT; cli; hlt
    0xb0, DEBUG_EXIT, 0xe6, 0xf4, 0xfa, 0xf4,
    // 42 read for ever: sti; int 13h, ah = 42h with the packet at 0x7de0, whose count (which an error sets to 0) is set
    // to 1 each time; say `r` or `E`; wait for an interrupt; again
    0xfb, 0xb4, 0x42, 0x8a, 0x16, 0xf0, 0x7d, 0xbe, 0xe0, 0x7d, 0xc7, 0x06, 0xe2, 0x7d, 0x01, 0x00, 0xcd, 0x13,
    0xb0, b'r', 0x73, 0x02, 0xb0, b'E', 0xe8, 0xc0, 0xff, 0xf4, 0xeb, 0xe3,
    // 60 echo: wait for a byte (0x3fd bit 0), take it, say it, again
    0xba, 0xfd, 0x03, 0xec, 0xa8, 0x01, 0x74, 0xf8, 0xba, 0xf8, 0x03, 0xec, 0xe8, 0xae, 0xff, 0xeb, 0xef,
    // 71 write for ever: sti; int 13h, ax = 4300h with the same packet, count 64; say `w` or `E`; 64 sectors on; again
    0xfb, 0xb8, 0x00, 0x43, 0x8a, 0x16, 0xf0, 0x7d, 0xbe, 0xe0, 0x7d, 0xc7, 0x06, 0xe2, 0x7d, 0x40, 0x00, 0xcd, 0x13,
    0xb0, b'w', 0x73, 0x02, 0xb0, b'E', 0x83, 0x06, 0xe8, 0x7d, 0x40, 0xe8, 0x8b, 0xff, 0xeb, 0xdd,
];

/// The displacement of the jump that is taken at the end of the text, and the place that it counts from.
const AFTER: usize = 0x17;

/// Parameters of reads and writes: 16 bytes, one sector, to 0000:8000, sector 0.
const READ: [u8; 16] = [16, 0, 1, 0, 0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A boot sector that says `text` (at most [`TEXT_MAX`] bytes are said) on the first serial port.
#[must_use]
pub fn boot_sector(text: &str, then: Then) -> [u8; 512] {
    let mut sector = [0; 512];
    sector[..CODE.len()].copy_from_slice(&CODE);
    sector[AFTER] = match then {
        Then::Stay => 0x2e,
        Then::PowerOff => 0x32,
        Then::DebugExit => 0x3c,
        Then::ReadForever => 0x42,
        Then::Echo => 0x60,
        Then::WriteForever => 0x71,
    } - (AFTER as u8 + 1);
    for (place, byte) in sector[TEXT..TEXT + TEXT_MAX].iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    sector[PACKET..PACKET + READ.len()].copy_from_slice(&READ);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// 64-bit code, wherever it is loaded, with its text behind it: says the text on the first serial port, and then does nothing for ever.
#[rustfmt::skip]
const EFI_CODE: [u8; 0x23] = [
    // 00: rsi = text
    0x48, 0x8d, 0x35, 0x1c, 0x00, 0x00, 0x00,
    // 07: next byte of the text; none: go to 20; bl = al
    0xac, 0x84, 0xc0, 0x74, 0x14, 0x88, 0xc3,
    // 0e: wait until the port is ready (0x3fd bit 5), out 0x3f8; again
    0x66, 0xba, 0xfd, 0x03, 0xec, 0xa8, 0x20, 0x74, 0xfb, 0x88, 0xd8, 0x66, 0xba, 0xf8, 0x03, 0xee, 0xeb, 0xe7,
    // 20: hlt; again
    0xf4, 0xeb, 0xfd,
];

/// A disk for UEFI: a FAT file system with one program in the place where the firmware looks, which says `text` (at most 400 bytes). Nobody
/// has signed it.
#[must_use]
pub fn efi_disk(text: &str) -> Vec<u8> {
    const SECTOR: usize = 512;
    // The boot sector, one table, one sector of the root folder; then what is counted from 2.
    const DATA: usize = 3;
    let mut disk = vec![0; 64 * SECTOR];
    let mut put = |at: usize, bytes: &[u8]| disk[at..at + bytes.len()].copy_from_slice(bytes);
    // A jump and a name; 512 bytes in a sector, one sector in a cluster, one sector before the table, one table, 16 names in the root
    // folder, 64 sectors, a hard disk, one sector in the table.
    put(0, &[0xeb, 0x3c, 0x90]);
    put(3, b"VLAB    ");
    put(11, &[0x00, 0x02, 0x01, 0x01, 0x00, 0x01, 0x10, 0x00, 0x40, 0x00, 0xf8, 0x01, 0x00]);
    put(38, &[0x29]);
    put(43, b"VLAB       FAT12   ");
    put(510, &[0x55, 0xaa]);
    // 12 bits for each cluster: 2 and 3 are folders, the program begins in 4 and ends in 5.
    put(SECTOR, &[0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0x05, 0xf0, 0xff]);
    let program = efi_program(text);
    let entry = |name: &[u8; 11], kind: u8, cluster: u8, size: usize| {
        let mut entry = [0; 32];
        entry[..11].copy_from_slice(name);
        (entry[11], entry[26]) = (kind, cluster);
        entry[28..].copy_from_slice(&u32::try_from(size).unwrap_or(0).to_le_bytes());
        entry
    };
    let (folder, file) = (0x10, 0x20);
    put(2 * SECTOR, &entry(b"EFI        ", folder, 2, 0));
    for (cluster, above) in [(2, 0), (3, 2)] {
        let at = (DATA + usize::from(cluster) - 2) * SECTOR;
        put(at, &entry(b".          ", folder, cluster, 0));
        put(at + 32, &entry(b"..         ", folder, above, 0));
    }
    put(DATA * SECTOR + 64, &entry(b"BOOT       ", folder, 3, 0));
    put((DATA + 1) * SECTOR + 64, &entry(b"BOOTX64 EFI", file, 4, program.len()));
    put((DATA + 2) * SECTOR, &program);
    disk
}

/// A program for UEFI: its head in the first half, its only section in the second.
fn efi_program(text: &str) -> [u8; 1024] {
    const HALF: u32 = 512;
    let mut program = [0; 1024];
    let mut put = |at: usize, bytes: &[u8]| program[at..at + bytes.len()].copy_from_slice(bytes);
    let number = |value: u32| value.to_le_bytes();
    put(0, b"MZ");
    put(0x3c, &number(0x40));
    // x86-64, one section, 240 bytes of optional header; a program of 64 bits, which may lie anywhere.
    put(0x40, b"PE\0\0\x64\x86\x01\0");
    put(0x54, &[240, 0, 0x22, 0]);
    put(0x58, &[0x0b, 0x02]);
    // Size of code, entry, begin of code; sections lie in memory as in the file.
    for (at, value) in
        [(0x5c, HALF), (0x68, HALF), (0x6c, HALF), (0x78, HALF), (0x7c, HALF), (0x90, 2 * HALF), (0x94, HALF)]
    {
        put(at, &number(value));
    }
    // An application of UEFI; 16 directories, all of them empty.
    put(0x9c, &[10]);
    put(0xc4, &[16]);
    put(0x148, b".text");
    for (at, value) in [(0x150, HALF), (0x154, HALF), (0x158, HALF), (0x15c, HALF), (0x16c, 0x6000_0020)] {
        put(at, &number(value));
    }
    put(HALF as usize, &EFI_CODE);
    // A zero stays behind it.
    for (place, byte) in program[HALF as usize + EFI_CODE.len()..].iter_mut().take(400).zip(text.bytes()) {
        *place = byte;
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_begins_where_the_jump_goes() {
        for (then, first) in [
            (Then::Stay, 0xfb),
            (Then::PowerOff, 0xba),
            (Then::DebugExit, 0xb0),
            (Then::ReadForever, 0xfb),
            (Then::Echo, 0xba),
            (Then::WriteForever, 0xfb),
        ] {
            let sector = boot_sector("", then);
            let target = AFTER + 1 + usize::from(sector[AFTER]);
            assert_eq!(sector[target], first, "{then:?}");
            // What stands before a part never runs into it: a jump, a return or a halt.
            assert!([0xfd, 0xc3, 0xf4, 0xe3, 0xef].contains(&sector[target - 1]), "{then:?}");
        }
    }

    #[test]
    fn the_program_for_uefi_finds_its_text() {
        let program = efi_program("text");
        let text = 512 + 7 + usize::from(EFI_CODE[3]);
        assert_eq!(&program[text..text + 5], b"text\0");
        assert_eq!(EFI_CODE[0x0c + usize::from(EFI_CODE[0x0b])], 0xf4, "what is done at its end");
        assert_eq!(efi_program(&"x".repeat(1000))[1023], 0);
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_and_ends() {
        let sector = boot_sector(&"x".repeat(1000), Then::Stay);
        assert_eq!(sector[TEXT..].iter().position(|byte| *byte == 0), Some(TEXT_MAX));
        assert_eq!(sector[510..], [0x55, 0xaa]);
    }
}
