//! Clocks: what chrony says of its sources, and, where there is no chrony, one question to each source (SNTP, RFC 4330).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vlab_api::types::{NtpSource, SourceState};

use super::dns::Resolver;

/// A clock that is off by more than this is no clock to follow.
const FALSE_TICKER: Duration = Duration::from_secs(600);

/// State of each source in the output of `chronyc -n -c sources`: mode, state, name and more, with commas between.
pub fn chrony_sources(output: &str) -> Vec<NtpSource> {
    let source = |line: &str| {
        let mut words = line.split(',');
        let (_mode, state, name) = (words.next()?, words.next()?, words.next()?);
        let state = match state {
            "*" => SourceState::Synced,
            "+" => SourceState::Combined,
            "-" => SourceState::NotCombined,
            "?" => SourceState::Unreachable,
            "x" => SourceState::Error,
            "~" => SourceState::Variable,
            _ => return None,
        };
        Some(NtpSource { source_name: Some(name.to_owned()), source_state: Some(state) })
    };
    output.lines().filter_map(source).collect()
}

/// Tells chrony of the sources and asks what it thinks of all it has. `None`: no chrony runs here.
pub fn ask_chrony(program: &std::path::Path, sources: &[&str]) -> Option<Vec<NtpSource>> {
    let run = |args: &[&str]| Command::new(program).args(args).output().ok().filter(|o| o.status.success());
    let listed = |output: std::process::Output| chrony_sources(&String::from_utf8_lossy(&output.stdout));
    let known = listed(run(&["-n", "-c", "sources"])?);
    for source in sources.iter().filter(|s| !known.iter().any(|k| k.source_name.as_deref() == Some(s))) {
        // A source that is there under another name is refused: it is there.
        let _ = run(&["add", "server", source, "iburst"]);
    }
    run(&["-n", "-c", "sources"]).map(listed)
}

const NTP_TO_UNIX: u64 = 2_208_988_800;

/// Seconds since 1970 in an SNTP answer; `None` when it is none, or of a server that is not synchronised.
pub fn sntp_time(packet: &[u8]) -> Option<f64> {
    let packet = packet.get(..48)?;
    let (leap, mode, stratum) = (packet[0] >> 6, packet[0] & 7, packet[1]);
    if mode != 4 || leap == 3 || !(1..=15).contains(&stratum) {
        return None;
    }
    let part = |at: usize| u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    let seconds = u64::from(part(40)).checked_sub(NTP_TO_UNIX)?;
    Some(seconds as f64 + f64::from(part(44)) / 4_294_967_296.0)
}

/// Asks a source for the time: how far this machine's clock is from it, in seconds.
///
/// # Errors
/// When nobody answers, or somebody who is no clock.
pub fn ask(resolver: &Resolver, source: &str) -> io::Result<f64> {
    let found = resolver.lookup(source)?;
    let address = found.addresses.first().ok_or_else(|| io::Error::other("the name has no address"))?;
    let server = SocketAddr::new(*address, 123);
    let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.connect(server)?;
    let mut question = [0u8; 48];
    // Version 4, mode client.
    question[0] = 0x23;
    socket.send(&question)?;
    let mut answer = [0u8; 96];
    let length = socket.recv(&mut answer)?;
    let theirs =
        sntp_time(&answer[..length]).ok_or_else(|| io::Error::other("the answer is none of a synchronised clock"))?;
    let ours = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    Ok(ours - theirs)
}

/// States of sources of which each was asked once: the first good one is the one to follow.
pub fn states(asked: &[(&str, io::Result<f64>)]) -> Vec<NtpSource> {
    let mut followed = false;
    asked
        .iter()
        .map(|(name, result)| {
            let state = match result {
                Err(_) => SourceState::Unreachable,
                Ok(offset) if offset.abs() > FALSE_TICKER.as_secs_f64() => SourceState::Error,
                Ok(_) if followed => SourceState::Combined,
                Ok(_) => SourceState::Synced,
            };
            followed |= state == SourceState::Synced;
            NtpSource { source_name: Some((*name).to_owned()), source_state: Some(state) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chrony_as_it_writes_for_programs() {
        let output = "^,*,192.0.2.1,2,6,377,33,0.000012,0.000011,0.000211\n^,?,192.0.2.9,0,8,0,4294967295,0.0,0.0,0.0\n^,x,2001:db8::1,3,6,17,5,9.1,9.1,0.1\n";
        let states: Vec<_> =
            chrony_sources(output).into_iter().map(|s| (s.source_name.unwrap(), s.source_state.unwrap())).collect();
        assert_eq!(
            states,
            [
                ("192.0.2.1".into(), SourceState::Synced),
                ("192.0.2.9".into(), SourceState::Unreachable),
                ("2001:db8::1".into(), SourceState::Error)
            ]
        );
        assert_eq!(chrony_sources("506 Cannot talk to daemon\n"), []);
    }

    #[test]
    fn a_clock_tells_the_time_and_an_unsynchronised_one_does_not() {
        let mut packet = [0u8; 48];
        packet[0] = 0x24;
        packet[1] = 3;
        packet[40..44].copy_from_slice(&((NTP_TO_UNIX + 1_000) as u32).to_be_bytes());
        packet[44..48].copy_from_slice(&(1u32 << 31).to_be_bytes());
        assert_eq!(sntp_time(&packet), Some(1000.5));
        packet[0] = 0xe4;
        assert_eq!(sntp_time(&packet), None);
        assert_eq!(sntp_time(&packet[..47]), None);
    }

    #[test]
    fn one_source_is_followed() {
        let asked = [("a", Err(io::Error::other("x"))), ("b", Ok(0.1)), ("c", Ok(-0.2)), ("d", Ok(4000.0))];
        let states: Vec<_> = states(&asked).into_iter().map(|s| s.source_state.unwrap()).collect();
        assert_eq!(states, [SourceState::Unreachable, SourceState::Synced, SourceState::Combined, SourceState::Error]);
    }
}
