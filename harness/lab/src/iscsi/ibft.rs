//! The iSCSI Boot Firmware Table: what a machine's firmware says of the disks on the network that it knows. A system that boots finds it among
//! the tables of ACPI, and logs in as the firmware would.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// So many targets fit in.
pub const MAX_TARGETS: usize = 2;

/// What the table says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Name of the machine for targets: `iqn.2026-01.example.lab:node-0`.
    pub initiator: String,
    /// MAC address of the interface through which it reaches them.
    pub mac: [u8; 6],
    /// Its address there, with the length of the network's prefix.
    pub address: (IpAddr, u8),
    /// Where targets are, and their names; not more than [`MAX_TARGETS`].
    pub targets: Vec<(SocketAddr, String)>,
}

/// Signature of the table.
pub const SIGNATURE: &str = "iBFT";

/// The head of every table of ACPI, which QEMU writes.
const HEAD: usize = 36;

/// The table behind the head of ACPI's tables. Places in it are counted from the beginning of that head.
#[must_use]
pub fn table(known: &Known) -> Vec<u8> {
    // The rest of a head of 48 bytes, and the list of the blocks.
    const CONTROL: usize = 48;
    const LIST: usize = 18;
    const INITIATOR: usize = 74;
    const NIC: usize = 102;
    const TARGET: usize = 54;
    let begin_of = |from: usize| from.next_multiple_of(8);
    let initiator = begin_of(CONTROL + LIST);
    let nic = begin_of(initiator + INITIATOR);
    let targets: Vec<usize> =
        (0..known.targets.len().min(MAX_TARGETS)).map(|at| begin_of(nic + NIC) + at * begin_of(TARGET)).collect();
    let texts = begin_of(targets.last().map_or(nic + NIC, |last| last + TARGET));
    let mut table = Table { bytes: vec![0; texts] };

    let at = |place: usize| place.to_le_bytes();
    table.block(CONTROL, 1, LIST, 0, 0);
    // Behind a number for extensions, of which there are none: initiator, NIC 0, target 0, NIC 1 (there is none), target 1.
    let second = targets.get(1).copied().unwrap_or(0);
    let first = targets.first().copied().unwrap_or(0);
    for (number, place) in [initiator, nic, first, 0, second].into_iter().enumerate() {
        table.put(CONTROL + 8 + number * 2, &at(place)[..2]);
    }
    table.block(initiator, 2, INITIATOR, 0, VALID | SELECTED);
    table.text(initiator + 70, &known.initiator);
    table.block(nic, 3, NIC, 0, VALID | SELECTED);
    table.put(nic + 6, &address(known.address.0));
    table.put(nic + 22, &[known.address.1]);
    // By DHCP.
    table.put(nic + 23, &[3]);
    table.put(nic + 90, &known.mac);
    // A device that there is not: the interface is found by its MAC address, and not by its place on the bus, where virtio's device is not
    // the interface itself.
    table.put(nic + 96, &[0xff, 0xff]);
    for (index, (place, (portal, name))) in (0u8..).zip(targets.iter().zip(&known.targets)) {
        table.block(*place, 4, TARGET, index, VALID | SELECTED);
        table.put(place + 6, &address(portal.ip()));
        table.put(place + 22, &portal.port().to_le_bytes());
        table.text(place + 34, name);
    }
    table.bytes.split_off(HEAD)
}

const VALID: u8 = 1;
const SELECTED: u8 = 2;

struct Table {
    bytes: Vec<u8>,
}

impl Table {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The head of a block: its kind, the version of its form, its length, its number among those of its kind, flags.
    fn block(&mut self, at: usize, kind: u8, length: usize, index: u8, flags: u8) {
        let length = length.to_le_bytes();
        self.put(at, &[kind, 1, length[0], length[1], index, flags]);
    }

    /// A text, which lies at the end: its length and its place.
    fn text(&mut self, at: usize, text: &str) {
        let place = self.bytes.len();
        self.put(at, &text.len().to_le_bytes()[..2]);
        self.put(at + 2, &place.to_le_bytes()[..2]);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
    }
}

/// 16 bytes, also for IPv4.
fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => Ipv6Addr::octets(&v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_are_where_the_list_says() {
        let portal = |port| SocketAddr::new("192.0.2.1".parse().unwrap(), port);
        let known = Known {
            initiator: "iqn.2026-01.example.lab:node-0".into(),
            mac: [0x52, 0x54, 0, 0, 0, 7],
            address: ("192.0.2.10".parse().unwrap(), 24),
            targets: vec![(portal(3260), "iqn.a".into()), (portal(3261), "iqn.b".into())],
        };
        let table = [vec![0; HEAD], table(&known)].concat();
        let number = |at: usize| usize::from(table[at]) | usize::from(table[at + 1]) << 8;
        let text =
            |at: usize| String::from_utf8_lossy(&table[number(at + 2)..number(at + 2) + number(at)]).into_owned();
        let [initiator, nic, first, other, second] = [56, 58, 60, 62, 64].map(number);
        assert_eq!([48, initiator, nic, first, second].map(|at| table[at]), [1, 2, 3, 4, 4]);
        assert_eq!(other, 0);
        assert_eq!(text(initiator + 70), known.initiator);
        assert_eq!(table[nic + 90..nic + 96], known.mac);
        assert_eq!((text(first + 34), number(first + 22)), ("iqn.a".to_owned(), 3260));
        assert_eq!((text(second + 34), number(second + 22)), ("iqn.b".to_owned(), 3261));
        assert_eq!(table[second + 16..second + 22], [0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!((table[second + 4], table[second + 5], table[second + 33]), (1, 3, 0));
    }
}
