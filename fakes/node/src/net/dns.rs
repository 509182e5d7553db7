//! Names: a resolver that asks the servers of `/etc/resolv.conf` over UDP. The C library's own cannot be linked statically with all
//! that it does, and the check for wildcard records needs to know exactly which name was asked.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::machine::Root;

/// What resolv.conf and hosts say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Servers, in order.
    pub servers: Vec<SocketAddr>,
    /// Domains that are tried for names that are not absolute.
    pub search: Vec<String>,
    /// Names with this many dots are tried as they are first.
    pub dots: usize,
    /// Names of the hosts file.
    pub hosts: Vec<(String, IpAddr)>,
    /// Wait for one server's answer.
    pub patience: Duration,
}

/// What a name resolved to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsAnswer {
    /// IPv4 and IPv6 addresses.
    pub addresses: Vec<IpAddr>,
    /// The canonical name, when it is another one.
    pub canonical: Option<String>,
}

impl Resolver {
    /// The resolver of that machine.
    pub fn of(root: &Root) -> Self {
        let conf = root.text("/etc/resolv.conf").unwrap_or_default();
        let mut resolver = Self { dots: 1, patience: Duration::from_millis(1500), ..Self::default() };
        for line in conf.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    resolver
                        .servers
                        .extend(words.next().and_then(|w| w.parse().ok()).map(|ip: IpAddr| SocketAddr::new(ip, 53)));
                }
                Some("search" | "domain") => {
                    resolver.search = words.map(|w| w.trim_end_matches('.').to_owned()).collect()
                }
                Some("options") => {
                    for option in words {
                        if let Some(n) = option.strip_prefix("ndots:").and_then(|n| n.parse().ok()) {
                            resolver.dots = n;
                        }
                    }
                }
                _ => {}
            }
        }
        for line in root.text("/etc/hosts").unwrap_or_default().lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            if let Some(address) = words.next().and_then(|w| w.parse().ok()) {
                resolver.hosts.extend(words.map(|name| (name.to_ascii_lowercase(), address)));
            }
        }
        resolver
    }

    /// The absolute names that are tried for a name, in order.
    pub fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let searched = self.search.iter().map(|domain| format!("{name}.{domain}"));
        match name.matches('.').count() >= self.dots {
            true => std::iter::once(name.to_owned()).chain(searched).collect(),
            false => searched.chain(std::iter::once(name.to_owned())).collect(),
        }
    }

    /// Addresses of a name, both families. A name that does not exist has none.
    ///
    /// # Errors
    /// When no server answers.
    pub fn lookup(&self, name: &str) -> io::Result<DnsAnswer> {
        let plain = name.trim_end_matches('.').to_ascii_lowercase();
        if let Ok(address) = plain.parse() {
            return Ok(DnsAnswer { addresses: vec![address], canonical: None });
        }
        let from_hosts: Vec<IpAddr> = self.hosts.iter().filter(|(n, _)| *n == plain).map(|(_, a)| *a).collect();
        if !from_hosts.is_empty() {
            return Ok(DnsAnswer { addresses: from_hosts, canonical: None });
        }
        for candidate in self.candidates(name) {
            // A server that knows one family may refuse the question for the other: only two failures are one.
            let found = match (self.ask(&candidate, TYPE_A), self.ask(&candidate, TYPE_AAAA)) {
                (Ok(mut four), Ok(six)) => {
                    four.addresses.extend(six.addresses);
                    four.canonical = four.canonical.or(six.canonical);
                    four
                }
                (Ok(found), Err(_)) | (Err(_), Ok(found)) => found,
                (Err(problem), Err(_)) => return Err(problem),
            };
            if !found.addresses.is_empty() || found.canonical.is_some() {
                return Ok(found);
            }
        }
        Ok(DnsAnswer::default())
    }

    fn ask(&self, name: &str, kind: u16) -> io::Result<DnsAnswer> {
        let mut problem = io::Error::other("no name server is configured");
        for round in 0..2u16 {
            for (at, server) in (0u16..).zip(&self.servers) {
                let id = 0x5a00 ^ (round << 8) ^ (at << 4) ^ kind ^ (name.len() as u16);
                match self.ask_server(*server, &query(id, name, kind), id) {
                    Ok(found) => return Ok(found),
                    Err(e) => problem = io::Error::new(e.kind(), format!("name server {server}: {e}")),
                }
            }
        }
        Err(problem)
    }

    fn ask_server(&self, server: SocketAddr, query: &[u8], id: u16) -> io::Result<DnsAnswer> {
        let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any)?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(self.patience))?;
        socket.send(query)?;
        let mut buffer = [0u8; 4096];
        let length = socket.recv(&mut buffer)?;
        read(&buffer[..length], id)
            .ok_or_else(|| io::Error::other("the answer cannot be read"))?
            .map_err(|code| io::Error::other(format!("the server answers with error {code}")))
    }
}

const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_AAAA: u16 = 28;

/// A question for one name and type.
pub fn query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    // Recursion desired; one question.
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.').filter(|l| !l.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        bytes.push(label.len() as u8);
        bytes.extend(label);
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

/// Reads an answer: `Some(Ok)` with what was found (a name that does not exist has nothing), `Some(Err)` with the server's code,
/// `None` when it is no answer to that question.
pub fn read(bytes: &[u8], id: u16) -> Option<Result<DnsAnswer, u8>> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    if word(0)? != id || bytes.get(2)? & 0x80 == 0 {
        return None;
    }
    match bytes[3] & 0x0f {
        0 => {}
        // The name does not exist.
        3 => return Some(Ok(DnsAnswer::default())),
        code => return Some(Err(code)),
    }
    let mut at = 12;
    for _ in 0..word(4)? {
        at = skip_name(bytes, at)? + 4;
    }
    let mut found = DnsAnswer::default();
    for _ in 0..word(6)? {
        at = skip_name(bytes, at)?;
        let (kind, length) = (word(at)?, usize::from(word(at + 8)?));
        let data = bytes.get(at + 10..at + 10 + length)?;
        match (kind, length) {
            (TYPE_A, 4) => found.addresses.push(IpAddr::from(<[u8; 4]>::try_from(data).ok()?)),
            (TYPE_AAAA, 16) => found.addresses.push(IpAddr::from(<[u8; 16]>::try_from(data).ok()?)),
            (TYPE_CNAME, _) => found.canonical = Some(name_at(bytes, at + 10)?),
            _ => {}
        }
        at += 10 + length;
    }
    Some(Ok(found))
}

fn skip_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length if length & 0xc0 == 0xc0 => return Some(at + 2),
            length => at += usize::from(length) + 1,
        }
    }
}

fn name_at(bytes: &[u8], mut at: usize) -> Option<String> {
    let mut labels = Vec::new();
    // A name has at most 127 labels: more means that pointers go in a circle.
    for _ in 0..128 {
        match *bytes.get(at)? {
            0 => return Some(labels.join(".")),
            length if length & 0xc0 == 0xc0 => {
                at = usize::from(u16::from_be_bytes([length & 0x3f, *bytes.get(at + 1)?]));
            }
            length => {
                labels.push(String::from_utf8_lossy(bytes.get(at + 1..at + 1 + usize::from(length))?).into_owned());
                at += usize::from(length) + 1;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// An answer as a server sends it: an alias and its address, names compressed.
    fn answer(id: u16) -> Vec<u8> {
        let mut bytes = query(id, "www.lab.test", TYPE_A);
        bytes[2] |= 0x80;
        bytes[7] = 2;
        // www.lab.test is an alias of web.lab.test: label "web", then a pointer to "lab.test" at 16.
        bytes.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 6, 3, b'w', b'e', b'b', 0xc0, 16]);
        let alias = (bytes.len() - 6) as u8;
        bytes.extend([0xc0, alias, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 80]);
        bytes
    }

    #[test]
    fn an_alias_and_its_address() {
        let found = read(&answer(7), 7).unwrap().unwrap();
        assert_eq!(
            found,
            DnsAnswer { addresses: vec![[192, 0, 2, 80].into()], canonical: Some("web.lab.test".into()) }
        );
        assert_eq!(read(&answer(7), 8), None, "somebody else's answer");
    }

    #[test]
    fn a_name_that_does_not_exist_is_no_error_and_a_failing_server_is() {
        let mut bytes = answer(7);
        bytes[3] = 3;
        assert_eq!(read(&bytes, 7), Some(Ok(DnsAnswer::default())));
        bytes[3] = 2;
        assert_eq!(read(&bytes, 7), Some(Err(2)));
    }

    /// dnsmasq without a server behind it answers so for a name of which it knows the IPv4 address only.
    #[test]
    fn a_refused_question_for_the_other_family_is_no_failure() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = socket.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            for _ in 0..2 {
                let mut asked = [0; 512];
                let (length, from) = socket.recv_from(&mut asked).unwrap();
                let id = u16::from_be_bytes([asked[0], asked[1]]);
                let mut said = answer(id);
                if asked[length - 3] == TYPE_AAAA as u8 {
                    said = query(id, "www.lab.test", TYPE_AAAA);
                    said[2] |= 0x80;
                    said[3] = 5;
                }
                socket.send_to(&said, from).unwrap();
            }
        });
        let resolver =
            Resolver { servers: vec![server], dots: 1, patience: Duration::from_secs(20), ..Resolver::default() };
        let found = resolver.lookup("www.lab.test.").unwrap();
        assert_eq!(found.addresses, [IpAddr::from([192, 0, 2, 80])]);
        answering.join().unwrap();
    }

    #[rstest]
    #[case::absolute("a.lab.test.", &["a.lab.test"])]
    #[case::with_dots("a.lab.test", &["a.lab.test", "a.lab.test.x.test"])]
    #[case::single("host", &["host.x.test", "host"])]
    fn names_that_are_tried(#[case] name: &str, #[case] expected: &[&str]) {
        let resolver = Resolver { search: vec!["x.test".into()], dots: 1, ..Resolver::default() };
        assert_eq!(resolver.candidates(name), expected);
    }

    #[test]
    fn files_of_a_machine() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        let conf = "# made by hand\nsearch lab.test. x.test\nnameserver 192.0.2.1\nnameserver fd00::1\noptions timeout:1 ndots:2\n";
        std::fs::write(folder.path().join("etc/resolv.conf"), conf).unwrap();
        std::fs::write(folder.path().join("etc/hosts"), "127.0.0.1 localhost me # here\n").unwrap();
        let resolver = Resolver::of(&Root::at(folder.path()));
        assert_eq!(resolver.servers, ["192.0.2.1:53".parse().unwrap(), "[fd00::1]:53".parse().unwrap()]);
        assert_eq!((resolver.search, resolver.dots), (vec!["lab.test".to_owned(), "x.test".to_owned()], 2));
        assert_eq!(resolver.hosts[1], ("me".into(), [127, 0, 0, 1].into()));
    }

    proptest! {
        #[test]
        fn nothing_that_arrives_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut bytes = bytes;
            if bytes.len() > 3 {
                bytes[0] = 0;
                bytes[1] = 7;
                bytes[2] |= 0x80;
                bytes[3] &= 0xf0;
            }
            let _ = read(&bytes, 7);
        }
    }
}
