//! MAC addresses of simulated machines: they follow from the hardware profile and the number of the machine, so that whoever
//! writes a scenario can name them.

/// Most NICs that a profile can have: the low four bits of a MAC are the NIC's number.
pub const MAX_NICS: usize = 16;
/// Host indexes from here on repeat MAC addresses: 24 bits are free behind a vendor's prefix, four of them number the NIC.
pub const MAX_HOSTS: u32 = 1 << 20;

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Mac {
    /// MAC of NIC number `nic` of host number `index`: unique for indexes below [`MAX_HOSTS`] and NICs below [`MAX_NICS`].
    ///
    /// With a vendor's prefix the multicast bit of the first octet is cleared (a station's address must not have it);
    /// without one the prefix `52:54:00` is used, which has the locally-administered bit.
    pub fn of(prefix: Option<[u8; 3]>, index: u32, nic: usize) -> Self {
        let [a, b, c] = prefix.unwrap_or([0x52, 0x54, 0x00]);
        let nic = u32::try_from(nic % MAX_NICS).unwrap_or(0);
        let [_, d, e, f] = (((index % MAX_HOSTS) << 4) | nic).to_be_bytes();
        Mac([a & 0xfe, b, c, d, e, f])
    }
}

/// A vendor's prefix: `b4:96:91` as octets.
pub fn parse_prefix(text: &str) -> Option<[u8; 3]> {
    let mut parts = text.split(':');
    let mut octet = || parts.next().filter(|p| p.len() == 2).and_then(|p| u8::from_str_radix(p, 16).ok());
    let prefix = [octet()?, octet()?, octet()?];
    parts.next().is_none().then_some(prefix)
}

impl std::str::FromStr for Mac {
    type Err = ();

    /// Six pairs of hexadecimal digits with colons between them, as the API writes MACs.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit())).ok_or(())?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| ())?;
        }
        if parts.next().is_some() { Err(()) } else { Ok(Mac(octets)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_is_read_as_it_is_written() {
        for (prefix, text) in [(None, "52:54:00:00:00:21"), (parse_prefix("b4:96:91"), "b4:96:91:00:00:21")] {
            assert_eq!(Mac::of(prefix, 2, 1).to_string(), text);
            assert_eq!(text.to_uppercase().parse(), Ok(Mac::of(prefix, 2, 1)));
        }
        for text in [
            "",
            "52:54:00:00:00",
            "52:54:00:00:00:21:00",
            "5:254:00:00:00:21",
            "52-54-00-00-00-21",
            "5z:54:00:00:00:21",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(()), "{text}");
        }
    }
}
