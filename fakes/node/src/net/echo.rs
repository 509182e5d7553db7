//! Echo requests ("ping"): how long answers take, how many get lost, and whether full packets pass unfragmented.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::Ipv6DontFrag};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// What came of a series of echo requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Echoes {
    /// Number of requests that were sent.
    pub sent: u32,
    /// Number of requests that were answered in time.
    pub answered: u32,
    /// Mean time until an answer, in milliseconds; 0 without any.
    pub mean_ms: f64,
}

impl Echoes {
    /// Share that got lost, in percent.
    pub fn loss_percent(&self) -> f64 {
        if self.sent == 0 { 100.0 } else { f64::from(self.sent - self.answered) * 100.0 / f64::from(self.sent) }
    }
}

/// The internet checksum (RFC 1071).
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// An echo request of so many bytes, header included.
fn request(v4: bool, id: u16, sequence: u16, length: usize) -> Vec<u8> {
    let mut message = vec![0xa5u8; length.max(8)];
    message[..8].copy_from_slice(&[if v4 { 8 } else { 128 }, 0, 0, 0, 0, 0, 0, 0]);
    message[4..6].copy_from_slice(&id.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    if v4 {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

/// The sequence number of an echo reply with our id. For IPv4 the kernel gives the whole packet.
pub fn reply(v4: bool, id: u16, packet: &[u8]) -> Option<u16> {
    let message = match v4 {
        true => packet.get(usize::from(packet.first()? & 0x0f) * 4..)?,
        false => packet,
    };
    let is_reply = message.len() >= 8 && message[0] == if v4 { 0 } else { 129 };
    (is_reply && message[4..6] == id.to_be_bytes()).then(|| u16::from_be_bytes([message[6], message[7]]))
}

/// An IPv4 packet that must not be fragmented. The kernel fills in lengths, identification, source and checksum.
fn unfragmented(to: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let mut packet = vec![0u8; 20];
    packet[0] = 0x45;
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = 1;
    packet[16..20].copy_from_slice(&to.octets());
    packet.extend_from_slice(message);
    packet
}

struct Pinger {
    socket: Socket,
    to: IpAddr,
    address: SockAddr,
    id: u16,
}

impl Pinger {
    fn new(interface: &str, to: IpAddr, id: u16) -> io::Result<Self> {
        let socket = match to {
            IpAddr::V4(_) => {
                let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
                socket.set_header_included_v4(true)?;
                socket
            }
            IpAddr::V6(_) => {
                let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
                setsockopt(&socket, Ipv6DontFrag, &true)?;
                socket
            }
        };
        socket.bind_device(Some(interface.as_bytes()))?;
        Ok(Self { socket, to, address: SockAddr::from(SocketAddr::new(to, 0)), id })
    }

    /// Bytes of the headers in front of the message's own.
    fn headers(&self) -> usize {
        if self.to.is_ipv4() { 20 } else { 40 }
    }

    fn send(&self, sequence: u16, length: usize) -> io::Result<()> {
        let message = request(self.to.is_ipv4(), self.id, sequence, length);
        match self.to {
            IpAddr::V4(v4) => self.socket.send_to(&unfragmented(v4, &message), &self.address)?,
            IpAddr::V6(_) => self.socket.send_to(&message, &self.address)?,
        };
        Ok(())
    }

    fn wait(&self, until: Instant) -> io::Result<Option<u16>> {
        let mut buffer = vec![0u8; 65_536];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            match (&self.socket).read(&mut buffer) {
                Ok(length) => {
                    if let Some(sequence) = reply(self.to.is_ipv4(), self.id, &buffer[..length]) {
                        return Ok(Some(sequence));
                    }
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Sends `count` echo requests through that interface, `apart` from each other, and waits for the last answers up to `patience`.
/// `id` tells parallel series apart.
///
/// # Errors
/// When no raw socket can be had. That nobody can be reached is a result.
pub fn ping(
    interface: &str,
    to: IpAddr,
    id: u16,
    count: u16,
    apart: Duration,
    patience: Duration,
) -> io::Result<Echoes> {
    let pinger = Pinger::new(interface, to, id)?;
    let mut sent_at: Vec<Instant> = Vec::new();
    let mut took: Vec<Option<Duration>> = vec![None; usize::from(count)];
    let note = |sequence: u16, sent_at: &[Instant], took: &mut [Option<Duration>]| {
        if let (Some(at), Some(entry)) = (sent_at.get(usize::from(sequence)), took.get_mut(usize::from(sequence))) {
            entry.get_or_insert(at.elapsed());
        }
    };
    for sequence in 0..count {
        sent_at.push(Instant::now());
        // No route, or nobody has the address: counts as lost.
        let _ = pinger.send(sequence, 64);
        let until = Instant::now() + apart;
        while let Some(answered) = pinger.wait(until)? {
            note(answered, &sent_at, &mut took);
        }
    }
    let until = Instant::now() + patience;
    while took.iter().any(Option::is_none) {
        let Some(answered) = pinger.wait(until)? else { break };
        note(answered, &sent_at, &mut took);
    }
    let times: Vec<f64> = took.iter().flatten().map(|d| d.as_secs_f64() * 1000.0).collect();
    let answered = u32::try_from(times.len()).unwrap_or(0);
    let mean_ms = if times.is_empty() { 0.0 } else { times.iter().sum::<f64>() / times.len() as f64 };
    Ok(Echoes { sent: u32::from(count), answered, mean_ms })
}

/// Does a packet of so many bytes, all headers included, pass unfragmented and come back?
///
/// # Errors
/// When no raw socket can be had.
pub fn passes(interface: &str, to: IpAddr, id: u16, mtu: usize, patience: Duration) -> io::Result<bool> {
    let pinger = Pinger::new(interface, to, id)?;
    for sequence in 0..3u16 {
        if pinger.send(sequence, mtu.saturating_sub(pinger.headers())).is_ok()
            && pinger.wait(Instant::now() + patience / 3)?.is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_over_itself_is_zero() {
        let message = request(true, 7, 3, 64);
        assert_eq!(message.len(), 64);
        assert_eq!(checksum(&message), 0);
        // RFC 1071's own example.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn replies_are_told_from_requests_and_from_those_of_others() {
        let mut message = request(true, 7, 3, 64);
        let packet = |m: &[u8]| unfragmented(Ipv4Addr::LOCALHOST, m);
        assert_eq!(reply(true, 7, &packet(&message)), None, "our own request on the loopback");
        message[0] = 0;
        assert_eq!(reply(true, 7, &packet(&message)), Some(3));
        assert_eq!(reply(true, 8, &packet(&message)), None);
        assert_eq!(reply(true, 7, &[0x45]), None);
        let mut six = request(false, 7, 4, 8);
        six[0] = 129;
        assert_eq!(reply(false, 7, &six), Some(4));
    }

    #[test]
    fn losses_are_percentages() {
        assert_eq!(Echoes { sent: 10, answered: 9, mean_ms: 1.0 }.loss_percent(), 10.0);
        assert_eq!(Echoes { sent: 0, answered: 0, mean_ms: 0.0 }.loss_percent(), 100.0);
    }
}
