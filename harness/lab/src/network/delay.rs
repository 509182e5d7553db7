//! Frames between two hosts that take their time. Few kernels come with `netem`, and none delays what one host sends to one other
//! only, so the harness carries such frames itself: a packet socket on the sender's tap sees each frame before the bridge drops
//! it (see [`super::config::nft_rules`]), and when its time has come a packet socket on the receiver's tap sends it. The namespace
//! stays as it is, and so do frames to everybody else.
//!
//! Both sockets pass the header on that virtio puts before a frame, so that large ones that are still to be cut, and checksums
//! that are still to be made, get through. A VLAN tag does not: the kernel has taken it off, and the frame would lose it.

use std::collections::BTreeMap;
use std::io;
use std::io::IoSliceMut;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvmsg, send, setsockopt, socket,
};
use nix::{setsockopt_impl, sockopt_impl};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use vlab_model::disturbance::Frames;

use super::config::{Loss, Peer};

sockopt_impl!(
    /// Before each frame stands what virtio knows of it.
    VnetHeader,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_VNET_HDR,
    bool
);

/// Bytes of virtio's header.
const VNET: usize = 10;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// A large frame that is still to be cut, and both headers.
const LARGEST: usize = 65_536 + ETHERNET + VNET;
/// How many frames are taken from one socket before the others have their turn.
const AT_ONCE: usize = 64;
/// How many bytes may be under way; what comes then is lost, as in a real line.
const UNDER_WAY: usize = 64 << 20;
/// The kernel's word for a frame that leaves by the interface, and does not come in.
const OUTGOING: u8 = 4;

/// A host's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plug {
    /// Its tap.
    pub(super) tap: String,
    /// Place of its host.
    pub(super) place: usize,
    /// Its hardware address.
    pub(super) mac: [u8; 6],
}

/// One direction between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    /// Place of the sender.
    pub(super) from: usize,
    /// Place of the receiver.
    pub(super) to: usize,
    /// How long a frame takes.
    pub(super) delay: Duration,
}

/// A packet socket on an interface of the network that this thread is in.
pub(super) fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let of_interface = |found: nix::ifaddrs::InterfaceAddress| {
        let address = *found.address.as_ref()?.as_link_addr()?;
        (found.interface_name == interface).then_some(address)
    };
    let address: LinkAddr = getifaddrs()?
        .find_map(of_interface)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no interface {interface}")))?;
    let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    bind(fd.as_raw_fd(), &address)?;
    setsockopt(&fd, VnetHeader, &true)?;
    Ok(fd)
}

/// Where a frame of that host goes that takes its time: plugs, and how long it takes. Everything else is the bridge's.
fn onward<'a>(
    frame: &'a [u8],
    from: usize,
    plugs: &'a [Plug],
    ways: &'a [Way],
) -> impl Iterator<Item = (usize, &'a Way)> {
    let to: Option<[u8; 6]> = frame.first_chunk().copied();
    let to_all = to.is_some_and(|mac| mac[0] & 1 == 1);
    ways.iter().filter(move |way| way.from == from).flat_map(move |way| {
        let reached = move |plug: &Plug| plug.place == way.to && (to_all || to == Some(plug.mac));
        plugs.iter().enumerate().filter(move |(_, plug)| reached(plug)).map(move |(index, _)| (index, way))
    })
}

/// Is it lost on its way? The bridge's rules do not see these frames. `dice` throws a number below 100.
fn lost(frame: &[u8], way: &Way, losses: &[Loss], mut dice: impl FnMut() -> u8) -> bool {
    let is = |peer: Peer, place: usize| peer == Peer::Host(place) || peer == Peer::Everybody;
    losses.iter().filter(|loss| is(loss.from, way.from) && is(loss.to, way.to)).any(|loss| {
        let hit = match loss.frames {
            Frames::All => true,
            Frames::LongerThan(bytes) => frame.len().saturating_sub(ETHERNET) > usize::from(bytes),
            Frames::Tcp(ports) => port(frame, 6).is_some_and(|port| ports.contains(&port)),
            Frames::Dhcp => port(frame, 17).is_some_and(|port| matches!(port, 67 | 547)),
            Frames::Ntp => port(frame, 17) == Some(123),
        };
        hit && dice() < loss.percent
    })
}

/// The port that a packet of that protocol (6: TCP, 17: UDP) goes to.
fn port(frame: &[u8], protocol: u8) -> Option<u16> {
    let packet = frame.get(ETHERNET..)?;
    let (found, header) = match frame.get(12..14)? {
        [0x08, 0x00] => (*packet.get(9)?, usize::from(packet.first()? & 0x0f) * 4),
        // Without extension headers, which neither has here.
        [0x86, 0xdd] => (*packet.get(6)?, 40),
        _ => return None,
    };
    let port = packet.get(header + 2..header + 4)?;
    (found == protocol).then(|| u16::from_be_bytes([port[0], port[1]]))
}

/// Frames under way, by when they arrive; of those that arrive together the first is first.
#[derive(Debug, Default)]
struct UnderWay {
    frames: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    bytes: usize,
    count: u64,
}

impl UnderWay {
    fn put(&mut self, arrives: Instant, plug: usize, frame: &[u8]) {
        if self.bytes + frame.len() <= UNDER_WAY {
            self.bytes += frame.len();
            self.count += 1;
            self.frames.insert((arrives, self.count), (plug, frame.to_vec()));
        }
    }

    fn next(&self) -> Option<Instant> {
        self.frames.first_key_value().map(|(key, _)| key.0)
    }

    /// What has arrived by then, in its order.
    fn arrived(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        let first = self.frames.first_entry().filter(|entry| entry.key().0 <= now)?;
        let (plug, frame) = first.remove();
        self.bytes -= frame.len();
        Some((plug, frame))
    }
}

/// Carries frames until it is dropped; those that are under way arrive then at once.
#[derive(Debug)]
pub(super) struct Relay {
    // Closed first, which the thread sees.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// `open` opens a packet socket in the network; `losses` are what the bridge's rules are made of.
    pub(super) fn start(
        plugs: Vec<Plug>,
        ways: Vec<Way>,
        losses: Arc<Mutex<Vec<Loss>>>,
        open: impl Fn(&str) -> io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        let taken = |plug: &Plug| ways.iter().any(|way| way.from == plug.place || way.to == plug.place);
        let plugs: Vec<Plug> = plugs.into_iter().filter(taken).collect();
        let sockets = plugs.iter().map(|plug| open(&plug.tap)).collect::<io::Result<Vec<OwnedFd>>>()?;
        let (stop, stopped) = UnixStream::pair()?;
        let carrier = Carrier { plugs, ways, losses, sockets, stopped, under_way: UnderWay::default() };
        let thread = std::thread::Builder::new().name("lab-delay".into()).spawn(move || carrier.carry())?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Carrier {
    plugs: Vec<Plug>,
    ways: Vec<Way>,
    losses: Arc<Mutex<Vec<Loss>>>,
    sockets: Vec<OwnedFd>,
    stopped: UnixStream,
    under_way: UnderWay,
}

impl Carrier {
    fn carry(mut self) {
        let mut dice = ChaCha8Rng::seed_from_u64(0);
        let mut buffer = vec![0; LARGEST];
        loop {
            let ready = match self.wait() {
                Ok(Some(ready)) => ready,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "delayed frames of the lab network are no longer forwarded");
                    break;
                }
            };
            for socket in ready {
                self.take(socket, &mut buffer, &mut dice);
            }
            self.deliver(Instant::now());
        }
        while let Some((plug, frame)) = self.under_way.frames.pop_first().map(|(_, frame)| frame) {
            self.send(plug, &frame);
        }
    }

    /// The sockets with frames, at the latest when one arrives; `None`: it is over.
    fn wait(&self) -> nix::Result<Option<Vec<usize>>> {
        let mut all = vec![PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN)];
        all.extend(self.sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        let timeout = match self.under_way.next() {
            // Rounded up: a millisecond late rather than a millisecond of asking again and again.
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        match poll(&mut all, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        let awake = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        if awake(&all[0]) {
            return Ok(None);
        }
        Ok(Some(all[1..].iter().enumerate().filter(|(_, fd)| awake(fd)).map(|(index, _)| index).collect()))
    }

    fn take(&mut self, socket: usize, buffer: &mut [u8], dice: &mut ChaCha8Rng) {
        for _ in 0..AT_ONCE {
            let mut parts = [IoSliceMut::new(buffer)];
            let fd = self.sockets[socket].as_raw_fd();
            let (length, outgoing) = match recvmsg::<LinkAddr>(fd, &mut parts, None, MsgFlags::MSG_DONTWAIT) {
                Ok(message) => (message.bytes, message.address.is_some_and(|from| from.pkttype() == OUTGOING)),
                // Nothing more, or the interface is down for a while.
                Err(_) => return,
            };
            let Some(frame) = buffer.get(VNET..length).filter(|_| !outgoing) else { continue };
            let now = Instant::now();
            let losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
            for (plug, way) in onward(frame, self.plugs[socket].place, &self.plugs, &self.ways) {
                if !lost(frame, way, &losses, || (dice.next_u32() % 100) as u8) {
                    self.under_way.put(now + way.delay, plug, &buffer[..length]);
                }
            }
        }
    }

    fn deliver(&mut self, now: Instant) {
        while let Some((plug, frame)) = self.under_way.arrived(now) {
            self.send(plug, &frame);
        }
    }

    fn send(&self, plug: usize, frame: &[u8]) {
        if let Err(error) = send(self.sockets[plug].as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
            // As on a line whose other end is not there.
            tracing::debug!(%error, tap = self.plugs[plug].tap, "a delayed frame is lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

    fn plugs() -> Vec<Plug> {
        (0..3).map(|place| Plug { tap: format!("tap{place}"), place, mac: MACS[place] }).collect()
    }

    fn way(from: usize, to: usize) -> Way {
        Way { from, to, delay: Duration::from_millis(5) }
    }

    /// An Ethernet frame to that address: IPv4, TCP to that port, with so many bytes of data.
    fn frame(to: [u8; 6], tcp_port: u16, data: usize) -> Vec<u8> {
        let mut frame = [&to[..], &[2, 9, 9, 9, 9, 9], &[0x08, 0x00]].concat();
        let mut packet = vec![0; 40 + data];
        (packet[0], packet[9]) = (0x45, 6);
        packet[22..24].copy_from_slice(&tcp_port.to_be_bytes());
        frame.extend(packet);
        frame
    }

    #[rstest]
    #[case::to_one(MACS[1], 0, &[1])]
    #[case::to_one_that_is_near(MACS[2], 0, &[])]
    #[case::of_another(MACS[1], 2, &[])]
    #[case::to_all([0xff; 6], 0, &[1])]
    #[case::to_a_group([0x33, 0x33, 0, 0, 0, 1], 0, &[1])]
    #[case::to_nobody([2, 7, 7, 7, 7, 7], 0, &[])]
    fn frames_go_to_whom_they_are_for(#[case] to: [u8; 6], #[case] from: usize, #[case] expected: &[usize]) {
        let (plugs, ways) = (plugs(), [way(0, 1), way(1, 0)]);
        let sent = frame(to, 80, 0);
        let found: Vec<usize> = onward(&sent, from, &plugs, &ways).map(|(plug, _)| plug).collect();
        assert_eq!(found, expected);
        assert_eq!(onward(&[1, 2], from, &plugs, &ways).count(), 0, "too short for an address");
    }

    #[rstest]
    #[case::all(Frames::All, 50, 49, true)]
    #[case::not_this_time(Frames::All, 50, 50, false)]
    #[case::long(Frames::LongerThan(139), 100, 99, true)]
    #[case::not_long(Frames::LongerThan(140), 100, 0, false)]
    #[case::port(Frames::Tcp(&[443, 6443]), 100, 99, true)]
    #[case::another_port(Frames::Tcp(&[443]), 100, 0, false)]
    #[case::no_question_for_the_time(Frames::Ntp, 100, 0, false)]
    fn what_is_delayed_can_be_lost_too(
        #[case] frames: Frames,
        #[case] percent: u8,
        #[case] thrown: u8,
        #[case] expected: bool,
    ) {
        let sent = frame(MACS[1], 6443, 100);
        let loss = |from, to| [Loss { from, to, frames, percent }];
        let is = |losses: [Loss; 1]| lost(&sent, &way(0, 1), &losses, || thrown);
        assert_eq!(is(loss(Peer::Host(0), Peer::Host(1))), expected);
        assert_eq!(is(loss(Peer::Everybody, Peer::Everybody)), expected);
        assert!(!is(loss(Peer::Host(1), Peer::Host(0))), "the other direction");
        assert!(!is(loss(Peer::Host(0), Peer::Gateway)));
    }

    #[test]
    fn frames_arrive_in_their_order_and_not_before_their_time() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut under_way = UnderWay::default();
        for (ms, plug) in [(20, 0), (10, 1), (10, 2)] {
            under_way.put(at(ms), plug, &[0; 100]);
        }
        assert_eq!(under_way.next(), Some(at(10)));
        assert_eq!(under_way.arrived(at(9)), None);
        let plugs: Vec<usize> = std::iter::from_fn(|| under_way.arrived(at(10))).map(|(plug, _)| plug).collect();
        assert_eq!(plugs, [1, 2]);
        assert_eq!(under_way.bytes, 100);
        under_way.put(at(20), 3, &vec![0; UNDER_WAY]);
        assert_eq!(under_way.frames.len(), 1, "more than a line holds");
    }
}
