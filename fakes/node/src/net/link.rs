//! The links of this machine: its interfaces with their addresses, and who answers on them (ARP for IPv4, neighbour solicitation
//! for IPv6).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, IoSliceMut, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recvmsg, sendto, setsockopt,
    socket, sockopt::ReceiveTimeout,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::inventory::Address;

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An interface that can send.
#[derive(Clone, Debug)]
pub struct Link {
    /// Name of the interface, such as `eth0`.
    pub name: String,
    /// Number in the kernel.
    pub index: u32,
    /// Hardware address.
    pub mac: Mac,
    /// Addresses, link-local ones included.
    pub nets: Vec<IpNet>,
    address: LinkAddr,
}

impl Link {
    /// The address of this link in the network that holds `other`.
    pub fn on_link(&self, other: IpAddr) -> Option<IpAddr> {
        self.nets.iter().find(|n| n.contains(&other)).map(IpNet::addr)
    }
}

/// Addresses of all interfaces.
///
/// # Errors
/// When the kernel does not tell.
pub fn addresses() -> io::Result<Vec<Address>> {
    let mut all: Vec<Address> = getifaddrs()?
        .filter_map(|a| {
            let net = net_of(a.address.as_ref()?, a.netmask.as_ref()?)?;
            Some(Address { interface: a.interface_name, net })
        })
        .collect();
    all.sort_by(|a, b| (&a.interface, a.net).cmp(&(&b.interface, b.net)));
    Ok(all)
}

fn net_of(address: &SockaddrStorage, mask: &SockaddrStorage) -> Option<IpNet> {
    if let (Some(a), Some(m)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
        return IpNet::with_netmask(a.ip().into(), m.ip().into()).ok();
    }
    match (address.as_sockaddr_in6(), mask.as_sockaddr_in6()) {
        (Some(a), Some(m)) => IpNet::with_netmask(a.ip().into(), m.ip().into()).ok(),
        _ => None,
    }
}

/// Ethernet interfaces that are up.
///
/// # Errors
/// When the kernel does not tell.
pub fn links() -> io::Result<Vec<Link>> {
    let nets = addresses()?;
    let mut links = Vec::new();
    for a in getifaddrs()? {
        let Some(address) = a.address.as_ref().and_then(|s| s.as_link_addr()) else { continue };
        let Some(mac) = address.addr().filter(|m| *m != [0; 6]) else { continue };
        if !a.flags.contains(InterfaceFlags::IFF_UP) || a.flags.contains(InterfaceFlags::IFF_LOOPBACK) {
            continue;
        }
        links.push(Link {
            index: u32::try_from(address.ifindex()).unwrap_or(0),
            mac: Mac(mac),
            nets: nets.iter().filter(|n| n.interface == a.interface_name).map(|n| n.net).collect(),
            name: a.interface_name,
            address: *address,
        });
    }
    links.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(links)
}

/// Who answered for each address: two hardware addresses for one are a collision.
pub type Answers<A> = BTreeMap<A, BTreeSet<Mac>>;

const BROADCAST: [u8; 6] = [0xff; 6];

/// An ARP request in its Ethernet frame.
pub fn arp_request(mac: Mac, own: Ipv4Addr, target: Ipv4Addr) -> [u8; 42] {
    let mut frame = [0u8; 42];
    frame[..6].copy_from_slice(&BROADCAST);
    frame[6..12].copy_from_slice(&mac.0);
    // Ethernet type ARP; hardware Ethernet, protocol IPv4, lengths 6 and 4, operation request.
    frame[12..22].copy_from_slice(&[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1]);
    frame[22..28].copy_from_slice(&mac.0);
    frame[28..32].copy_from_slice(&own.octets());
    frame[38..42].copy_from_slice(&target.octets());
    frame
}

/// Address and hardware address of whoever sent this frame, if it is an ARP reply.
pub fn arp_reply(frame: &[u8]) -> Option<(Ipv4Addr, Mac)> {
    let frame = frame.get(..42)?;
    if frame[12..22] != [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2] {
        return None;
    }
    let mac = frame[22..28].try_into().ok()?;
    Some((Ipv4Addr::new(frame[28], frame[29], frame[30], frame[31]), Mac(mac)))
}

/// Asks who has these addresses, in several rounds, and listens for `patience` after the last one. Needs the right to open packet
/// sockets. Without an own address in the network the question comes from 0.0.0.0, as a probe.
///
/// # Errors
/// When no packet socket can be had, or nothing can be sent.
pub fn arp(link: &Link, targets: &[Ipv4Addr], patience: Duration) -> io::Result<Answers<Ipv4Addr>> {
    const ROUNDS: u32 = 2;
    let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    setsockopt(&fd, ReceiveTimeout, &TimeVal::milliseconds(20))?;
    let mut answers = Answers::new();
    for round in 0..ROUNDS {
        for (sent, target) in
            targets.iter().filter(|t| !answers.contains_key(*t)).copied().collect::<Vec<_>>().iter().enumerate()
        {
            let own = match link.on_link(IpAddr::V4(*target)) {
                Some(IpAddr::V4(own)) => own,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            sendto(fd.as_raw_fd(), &arp_request(link.mac, own, *target), &link.address, MsgFlags::empty())?;
            // A whole network at once would overrun the switch's and our own queues.
            if sent % 64 == 63 {
                listen(fd.as_raw_fd(), link, Duration::from_millis(20), &mut answers)?;
            }
        }
        let wait = if round + 1 == ROUNDS { patience } else { patience / 2 };
        let all_there = |answers: &Answers<Ipv4Addr>| targets.iter().all(|t| answers.contains_key(t));
        let until = Instant::now() + wait;
        while Instant::now() < until {
            listen(fd.as_raw_fd(), link, Duration::from_millis(40), &mut answers)?;
            if all_there(&answers) {
                break;
            }
        }
    }
    // Once more for those that answered: a second machine with the same address may be slower.
    listen(fd.as_raw_fd(), link, Duration::from_millis(40), &mut answers)?;
    answers.retain(|address, _| targets.contains(address));
    Ok(answers)
}

fn listen(fd: i32, link: &Link, lasting: Duration, answers: &mut Answers<Ipv4Addr>) -> io::Result<()> {
    let until = Instant::now() + lasting;
    let mut buffer = [0u8; 128];
    while Instant::now() < until {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let (length, from) = match recvmsg::<LinkAddr>(fd, &mut parts, None, MsgFlags::empty()) {
            Ok(message) => (message.bytes, message.address),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
            Err(e) => return Err(e.into()),
        };
        if from.is_some_and(|f| f.ifindex() == link.index as usize)
            && let Some((address, mac)) = arp_reply(&buffer[..length])
        {
            answers.entry(address).or_default().insert(mac);
        }
    }
    Ok(())
}

/// A neighbour solicitation (ICMPv6 without its checksum, which the kernel fills in).
pub fn solicitation(mac: Mac, target: Ipv6Addr) -> [u8; 32] {
    let mut message = [0u8; 32];
    message[0] = 135;
    message[8..24].copy_from_slice(&target.octets());
    message[24] = 1;
    message[25] = 1;
    message[26..32].copy_from_slice(&mac.0);
    message
}

/// Target and hardware address of a neighbour advertisement.
pub fn advertisement(message: &[u8]) -> Option<(Ipv6Addr, Mac)> {
    if message.len() < 32 || message[0] != 136 {
        return None;
    }
    let target = Ipv6Addr::from(<[u8; 16]>::try_from(&message[8..24]).ok()?);
    let mut options = &message[24..];
    while options.len() >= 8 {
        let length = usize::from(options[1]) * 8;
        if options[0] == 2 && length >= 8 {
            return Some((target, Mac(options[2..8].try_into().ok()?)));
        }
        options = options.get(length.max(8)..)?;
    }
    None
}

/// Asks who has these IPv6 addresses. Needs the right to open raw sockets.
///
/// # Errors
/// When no raw socket can be had, or nothing can be sent.
pub fn neighbours(link: &Link, targets: &[Ipv6Addr], patience: Duration) -> io::Result<Answers<Ipv6Addr>> {
    use socket2::{Domain, Protocol, SockAddr, Socket, Type};
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.bind_device(Some(link.name.as_bytes()))?;
    socket.set_multicast_hops_v6(255)?;
    socket.set_unicast_hops_v6(255)?;
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    let mut answers = Answers::new();
    let until = Instant::now() + patience;
    let mut ask_at = Instant::now();
    let mut buffer = [0u8; 256];
    while Instant::now() < until && !targets.iter().all(|t| answers.contains_key(t)) {
        if Instant::now() >= ask_at {
            ask_at += patience / 3;
            for target in targets {
                let low = target.octets();
                let group = Ipv6Addr::new(
                    0xff02,
                    0,
                    0,
                    0,
                    0,
                    1,
                    0xff00 | u16::from(low[13]),
                    u16::from_be_bytes([low[14], low[15]]),
                );
                let to = SockAddr::from(SocketAddrV6::new(group, 0, 0, link.index));
                socket.send_to(&solicitation(link.mac, *target), &to)?;
            }
        }
        match (&socket).read(&mut buffer) {
            Ok(length) => {
                if let Some((address, mac)) = advertisement(&buffer[..length]) {
                    answers.entry(address).or_default().insert(mac);
                }
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
    answers.retain(|address, _| targets.contains(address));
    Ok(answers)
}

/// Who answers for that address on that link, whatever its family.
///
/// # Errors
/// As [`arp`] and [`neighbours`].
pub fn who_has(link: &Link, target: IpAddr, patience: Duration) -> io::Result<BTreeSet<Mac>> {
    match target {
        IpAddr::V4(v4) => Ok(arp(link, &[v4], patience)?.remove(&v4).unwrap_or_default()),
        IpAddr::V6(v6) => Ok(neighbours(link, &[v6], patience)?.remove(&v6).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 1, 2, 3]);

    #[test]
    fn an_arp_request_is_no_reply_and_a_reply_is_read() {
        let own = Ipv4Addr::new(192, 0, 2, 1);
        let mut frame = arp_request(MAC, own, Ipv4Addr::new(192, 0, 2, 9));
        assert_eq!(arp_reply(&frame), None);
        frame[21] = 2;
        assert_eq!(arp_reply(&frame), Some((own, MAC)));
        assert_eq!(arp_reply(&frame[..41]), None);
    }

    #[test]
    fn an_advertisement_is_read_past_other_options() {
        let target: Ipv6Addr = "2001:db8::9".parse().unwrap();
        let mut message = solicitation(MAC, target).to_vec();
        assert_eq!(advertisement(&message), None);
        message[0] = 136;
        assert_eq!(advertisement(&message), None, "the option is that of a source");
        message[24] = 2;
        assert_eq!(advertisement(&message), Some((target, MAC)));
        let own_option: Vec<u8> = message.splice(24.., [14, 1, 0, 0, 0, 0, 0, 0]).collect();
        message.extend(own_option);
        assert_eq!(advertisement(&message), Some((target, MAC)));
    }

    #[test]
    fn an_option_without_a_length_does_not_hang() {
        let mut message = vec![0u8; 64];
        message[0] = 136;
        assert_eq!(advertisement(&message), None);
    }
}
