//! The clock of a lab network: the gateway answers NTP with this machine's time, so that hosts that know nobody else have
//! somebody to follow. It keeps no state and corrects nothing.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::net::UdpSocket;

/// Where NTP is spoken.
pub const PORT: u16 = 123;

/// NTP counts seconds from 1900.
const NTP_TO_UNIX: u64 = 2_208_988_800;

/// Length of a packet without extensions.
const PACKET: usize = 48;

/// Answers questions until it is dropped or the socket fails.
pub(super) async fn serve(socket: UdpSocket) -> io::Result<()> {
    let mut buffer = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if let Some(answer) = answer(&buffer[..length], now) {
            // Who has gone away needs no answer.
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

/// The answer of a synchronised clock of stratum 2 to a client's question at this time (RFC 4330); `None` when it is no
/// question.
fn answer(question: &[u8], now: Duration) -> Option<[u8; PACKET]> {
    const CLIENT: u8 = 3;
    const SERVER: u8 = 4;
    let question = question.get(..PACKET)?;
    let (version, mode) = (question[0] >> 3 & 7, question[0] & 7);
    if mode != CLIENT || !(1..=4).contains(&version) {
        return None;
    }
    let mut answer = [0; PACKET];
    answer[0] = version << 3 | SERVER;
    answer[1] = 2;
    answer[2] = question[2];
    // To a millionth of a second.
    answer[3] = (-20_i8).to_be_bytes()[0];
    // A reference that is there, as an address has to be: which one it is says nothing.
    answer[12..16].copy_from_slice(&[127, 127, 1, 1]);
    let seconds = u32::try_from((now.as_secs() + NTP_TO_UNIX) & u64::from(u32::MAX)).ok()?;
    let fraction = u32::try_from((u64::from(now.subsec_nanos()) << 32) / 1_000_000_000).ok()?;
    let mut stamp = [0; 8];
    stamp[..4].copy_from_slice(&seconds.to_be_bytes());
    stamp[4..].copy_from_slice(&fraction.to_be_bytes());
    // Reference, origin (what the client sent), received, sent.
    answer[16..24].copy_from_slice(&stamp);
    answer[24..32].copy_from_slice(&question[40..48]);
    answer[32..40].copy_from_slice(&stamp);
    answer[40..48].copy_from_slice(&stamp);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(first: u8) -> [u8; PACKET] {
        let mut question = [0; PACKET];
        question[0] = first;
        question[40..48].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        question
    }

    #[test]
    fn the_time_is_told_to_who_asks_for_it() {
        let told = answer(&question(0x23), Duration::from_millis(1_500)).unwrap();
        assert_eq!((told[0], told[1]), (0x24, 2), "version 4, server, no leap second; stratum 2");
        assert_eq!(told[24..32], [1, 2, 3, 4, 5, 6, 7, 8], "the client finds its own time again");
        let seconds = u32::from_be_bytes(told[40..44].try_into().unwrap());
        assert_eq!(u64::from(seconds) - NTP_TO_UNIX, 1);
        assert_eq!(u32::from_be_bytes(told[44..48].try_into().unwrap()), 1 << 31, "half a second");
    }

    #[test]
    fn what_is_no_question_is_not_answered() {
        for first in [0x24, 0x26, 0x03, 0x3b] {
            assert_eq!(answer(&question(first), Duration::ZERO), None, "{first:#x}");
        }
        assert_eq!(answer(&question(0x23)[..47], Duration::ZERO), None);
    }

    #[tokio::test]
    async fn it_answers_over_the_network() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let serving = tokio::spawn(serve(socket));
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.send_to(&question(0x23), address).await.unwrap();
        let mut buffer = [0; 64];
        let received = tokio::time::timeout(Duration::from_secs(10), client.recv(&mut buffer)).await.unwrap().unwrap();
        assert_eq!((received, buffer[0]), (PACKET, 0x24));
        serving.abort();
    }
}
