//! What a lab network is, and the texts that make it so: pure functions from a [`NetworkSpec`] to the input of `ip`,
//! dnsmasq and nftables.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use vlab_model::disturbance::{ClusterName, Frames, WrongName};

use super::namespace::NetworkError;

/// Name of the bridge of a segment, counted from 0, inside of the namespace.
#[must_use]
pub fn bridge(segment: usize) -> String {
    format!("lab{segment}")
}

/// A lab network as a run wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSpec {
    /// The lab's own domains: `<cluster>.<base domain>`. Hosts that do not say theirs are in the first one.
    pub domains: Vec<String>,
    /// The segments. Hosts of different ones have only the gateway in common, which is in all of them.
    pub segments: Vec<Segment>,
    /// The hosts, one [`tap`] for each interface.
    pub hosts: Vec<NetworkHost>,
    /// Names beside those of the hosts.
    pub names: Vec<DnsName>,
    /// Addresses that the gateway has besides, in none of the lab's networks: of services elsewhere that hosts reach through it.
    pub elsewhere: Vec<IpAddr>,
    /// Do hosts get their addresses by DHCP? Without it they must know them (static configuration); DNS answers all the
    /// same.
    pub dhcp: bool,
}

/// A part of the network in which everybody hears everybody: a [`bridge`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Addresses of the gateway with the networks that they are in: one for IPv4, one for IPv6, or both.
    pub gateways: Vec<IpNet>,
}

/// A host's place in the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkHost {
    /// Name of the host.
    pub name: String,
    /// Its domain; none: the first one of the network.
    pub domain: Option<String>,
    /// Which segment it is in, counted from 0.
    pub segment: usize,
    /// MAC address of its first interface in this network.
    pub mac: String,
    /// Those of its further interfaces in it, each with a tap of its own.
    pub more_macs: Vec<String>,
    /// Its addresses, at most one of each family; none: DHCP chooses.
    pub addresses: Vec<IpAddr>,
    /// Does DHCP answer it? Otherwise it has to know its addresses; names mean them all the same.
    pub dhcp: bool,
}

/// A name that DNS answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsName {
    /// The whole name, without a dot at its end.
    pub name: String,
    /// All names below it, too (`*.apps`).
    pub wildcard: bool,
    /// What it means.
    pub addresses: Vec<IpAddr>,
}

impl NetworkSpec {
    /// The network of a cluster: `api`, `api-int` and `*.apps` mean its VIPs, or the node itself when there are none. The
    /// gateway is the first address of each network, DHCP is on.
    #[must_use]
    pub fn for_cluster(
        cluster: &str,
        base_domain: &str,
        networks: &[IpNet],
        api: &[IpAddr],
        ingress: &[IpAddr],
        hosts: Vec<NetworkHost>,
    ) -> Self {
        let mut spec = Self { domains: vec![], segments: vec![], hosts, names: vec![], elsewhere: vec![], dhcp: true };
        spec.add_segment(networks);
        spec.add_cluster(&format!("{cluster}.{base_domain}"), api, ingress);
        spec
    }

    /// One more segment with these networks, of which the first address is the gateway's; its place. Where one has the same
    /// networks already, that one.
    pub fn add_segment(&mut self, networks: &[IpNet]) -> usize {
        let gateways: Vec<IpNet> = networks
            .iter()
            .filter_map(|network| {
                // `hosts()` of an IPv6 network begins with its zeroth address, which belongs to all routers.
                let first = network.hosts().find(|address| *address != network.network())?;
                IpNet::new(first, network.prefix_len()).ok()
            })
            .collect();
        let same = |segment: &Segment| {
            segment.gateways.len() == gateways.len() && gateways.iter().all(|g| segment.gateways.contains(g))
        };
        self.segments.iter().position(same).unwrap_or_else(|| {
            self.segments.push(Segment { gateways });
            self.segments.len() - 1
        })
    }

    /// One more cluster with this domain: what its `api`, `api-int` and `*.apps` mean.
    pub fn add_cluster(&mut self, domain: &str, api: &[IpAddr], ingress: &[IpAddr]) {
        let name = |short: &str, wildcard: bool, addresses: &[IpAddr]| DnsName {
            name: format!("{short}.{domain}"),
            wildcard,
            addresses: addresses.to_vec(),
        };
        self.names.extend([name("api", false, api), name("api-int", false, api), name("apps", true, ingress)]);
        if !self.domains.iter().any(|known| known == domain) {
            self.domains.push(domain.to_owned());
        }
    }

    /// Addresses of the gateway in all segments.
    pub fn gateways(&self) -> impl Iterator<Item = &IpNet> {
        self.segments.iter().flat_map(|segment| &segment.gateways)
    }

    /// The domain of a host.
    #[must_use]
    pub fn domain_of<'a>(&'a self, host: &'a NetworkHost) -> &'a str {
        host.domain.as_deref().or(self.domains.first().map(String::as_str)).unwrap_or_default()
    }

    /// The same with some names wrong, each of the cluster with that domain. Of two that are wrong in the same way the later
    /// counts.
    #[must_use]
    pub fn with_wrong_names(&self, wrong: &[(String, WrongName)]) -> Self {
        let mut spec = self.clone();
        for (domain, WrongName { name, answer }) in wrong {
            let (name, wildcard) = match name {
                ClusterName::Api => (format!("api.{domain}"), false),
                ClusterName::ApiInt => (format!("api-int.{domain}"), false),
                ClusterName::Apps => (format!("apps.{domain}"), true),
                ClusterName::Unknown => (domain.clone(), true),
            };
            spec.names.retain(|known| known.name != name);
            if let Some(answer) = answer {
                spec.names.push(DnsName { name, wildcard, addresses: vec![*answer] });
            }
        }
        spec
    }

    /// Is it possible?
    ///
    /// # Errors
    /// What is not.
    pub fn check(&self) -> Result<(), NetworkError> {
        let wrong = |why: String| Err(NetworkError::Spec(why));
        let word = |text: &str| {
            !text.is_empty()
                && text.split('.').all(|part| !part.is_empty())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
        };
        if self.domains.is_empty() {
            return wrong("a lab network needs a domain".into());
        }
        if self.segments.is_empty() || self.segments.iter().any(|segment| segment.gateways.is_empty()) {
            return wrong("each segment of a lab network needs an address for its gateway".into());
        }
        for (place, segment) in self.segments.iter().enumerate() {
            for (number, gateway) in segment.gateways.iter().enumerate() {
                let of_family = |other: &&IpNet| other.addr().is_ipv4() == gateway.addr().is_ipv4();
                if segment.gateways[..number].iter().any(|other| of_family(&other)) {
                    return wrong(format!("{gateway}: a segment of a lab network has one network of each family"));
                }
                let mut before = self.segments[..place].iter().flat_map(|segment| &segment.gateways).filter(of_family);
                let within = |other: &IpNet| other.contains(&gateway.addr()) || gateway.contains(&other.addr());
                if let Some(other) = before.find(|other| within(other)) {
                    return wrong(format!("{gateway} is in the network of {other}, which is another segment"));
                }
            }
        }
        for name in self
            .names
            .iter()
            .map(|name| &name.name)
            .chain(self.hosts.iter().map(|host| &host.name))
            .chain(&self.domains)
            .chain(self.hosts.iter().filter_map(|host| host.domain.as_ref()))
        {
            if !word(name) {
                return wrong(format!("`{name}` is not a valid DNS name"));
            }
        }
        let own =
            |address: &&IpAddr| self.gateways().any(|gateway| gateway.contains(*address)) || address.is_loopback();
        if let Some(address) = self.elsewhere.iter().find(own) {
            return wrong(format!(
                "{address} is not elsewhere: it is in one of the lab's networks, or that of each machine"
            ));
        }
        let mut macs = BTreeSet::new();
        for (place, host) in self.hosts.iter().enumerate() {
            for mac in host.macs() {
                let right = mac.len() == 17
                    && mac.split(':').all(|byte| byte.len() == 2 && u8::from_str_radix(byte, 16).is_ok());
                if !right {
                    return wrong(format!("host {}: `{mac}` is not a MAC address", host.name));
                }
                if !macs.insert(mac.to_ascii_lowercase()) || self.hosts[..place].iter().any(|o| o.name == host.name) {
                    return wrong(format!("host {} or its MAC {mac} is there twice", host.name));
                }
            }
            let Some(segment) = self.segments.get(host.segment) else {
                return wrong(format!("host {}: there is no segment {}", host.name, host.segment));
            };
            for address in &host.addresses {
                if !segment.gateways.iter().any(|gateway| gateway.contains(address)) {
                    return wrong(format!("host {}: {address} is in none of its segment's networks", host.name));
                }
                if self.gateways().any(|gateway| gateway.addr() == *address) {
                    return wrong(format!("host {}: {address} is the gateway's", host.name));
                }
                if self.hosts[..place].iter().any(|other| other.addresses.contains(address)) {
                    return wrong(format!("host {}: {address} is another host's", host.name));
                }
            }
        }
        Ok(())
    }
}

impl NetworkHost {
    /// The MACs of all its interfaces, the first one's first.
    pub fn macs(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.mac).chain(&self.more_macs).map(String::as_str)
    }
}

/// The tap of an interface, counted from 0, of the host with this place in [`NetworkSpec::hosts`].
#[must_use]
pub fn tap(place: usize, interface: usize) -> String {
    match interface {
        0 => format!("tap{place}"),
        further => format!("tap{place}-{further}"),
    }
}

/// All taps of that host.
#[must_use]
pub fn taps(spec: &NetworkSpec, place: usize) -> Vec<String> {
    let interfaces = spec.hosts.get(place).map_or(1, |host| host.macs().count());
    (0..interfaces).map(|interface| tap(place, interface)).collect()
}

/// Input of `ip -batch`: bridge, addresses, taps. `owner` is the user who may open the taps without rights over the
/// network.
#[must_use]
pub fn ip_batch(spec: &NetworkSpec, owner: u32) -> String {
    let mut text = String::new();
    for (place, segment) in segments(spec) {
        let bridge = bridge(place);
        // Without spanning tree a port forwards at once. Its own address is always the same: machines that were frozen know it.
        let _ = writeln!(
            text,
            "link add {bridge} address 02:76:6c:61:62:{place:02x} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        );
        for gateway in &segment.gateways {
            // An IPv6 address that is still being looked for elsewhere cannot be listened on.
            let nodad = if gateway.addr().is_ipv6() { " nodad" } else { "" };
            let _ = writeln!(text, "address add {gateway} dev {bridge}{nodad}");
        }
        let _ = writeln!(text, "link set {bridge} up");
    }
    for address in &spec.elsewhere {
        let _ = writeln!(text, "{}", foreign_address(spec, *address, true));
    }
    for (place, host) in spec.hosts.iter().enumerate() {
        for tap in taps(spec, place) {
            let _ = writeln!(text, "tuntap add dev {tap} mode tap user {owner}");
            let _ = writeln!(text, "link set dev {tap} master {} up", bridge(host.segment));
        }
    }
    text
}

fn segments(spec: &NetworkSpec) -> impl Iterator<Item = (usize, &Segment)> {
    spec.segments.iter().enumerate()
}

/// Arguments of `ip`: somebody who is no host has this address, or has it no longer. He is in the segment that has it in one of its
/// networks, or else in the first.
#[must_use]
pub fn foreign_address(spec: &NetworkSpec, address: IpAddr, on: bool) -> String {
    let has = |(_, segment): &(usize, &Segment)| segment.gateways.iter().any(|gateway| gateway.contains(&address));
    let bridge = bridge(segments(spec).find(has).map_or(0, |(place, _)| place));
    match (address, on) {
        (IpAddr::V4(_), true) => format!("address add {address}/32 dev {bridge}"),
        // Not looked for elsewhere: it is meant to be there twice. And nothing that the gateway says begins with it.
        (IpAddr::V6(_), true) => format!("address add {address}/128 dev {bridge} preferred_lft 0 nodad"),
        (_, false) => format!("address del {address}/{} dev {bridge}", if address.is_ipv4() { 32 } else { 128 }),
    }
}

/// dnsmasq's configuration. It answers DNS and DHCP on the bridge and asks nobody else. It logs queries: who asks for names outside
/// of the lab is told from its log.
#[must_use]
pub fn dnsmasq_conf(spec: &NetworkSpec, directory: &Path, user: &str) -> String {
    let mut text = String::new();
    let file = |name: &str| directory.join(name).display().to_string();
    for line in
        ["keep-in-foreground", "log-facility=-", "log-queries", "no-resolv", "no-hosts", "no-poll", "bind-interfaces"]
    {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "user={user}");
    for (place, _) in segments(spec) {
        let _ = writeln!(text, "interface={}", bridge(place));
    }
    let _ = writeln!(text, "pid-file={}", file("dnsmasq.pid"));
    if let Some(domain) = spec.domains.first() {
        let _ = writeln!(text, "domain={domain}");
    }
    let elsewhere = |host: &&NetworkHost| Some(spec.domain_of(host)) != spec.domains.first().map(String::as_str);
    for host in spec.hosts.iter().filter(elsewhere) {
        for address in &host.addresses {
            let _ = writeln!(text, "domain={},{address}", spec.domain_of(host));
        }
    }
    // Names of these domains that nobody has are unknown, and not somebody else's to know.
    let mut own: Vec<&str> = spec.domains.iter().map(String::as_str).collect();
    for host in &spec.hosts {
        if !own.contains(&spec.domain_of(host)) {
            own.push(spec.domain_of(host));
        }
    }
    for domain in own {
        let _ = writeln!(text, "local=/{domain}/");
    }
    // First: of several names with one address (a single node is its own API) the first is its name, which a host without DHCP
    // asks for.
    for host in spec.hosts.iter().filter(|host| !host.addresses.is_empty()) {
        let addresses: Vec<String> = host.addresses.iter().map(IpAddr::to_string).collect();
        let _ = writeln!(text, "host-record={}.{},{}", host.name, spec.domain_of(host), addresses.join(","));
    }
    for name in &spec.names {
        for address in &name.addresses {
            let _ = match name.wildcard {
                true => writeln!(text, "address=/{}/{address}", name.name),
                false => writeln!(text, "host-record={},{address}", name.name),
            };
        }
    }
    if !spec.dhcp {
        return text;
    }
    let _ = writeln!(text, "log-dhcp");
    let _ = writeln!(text, "dhcp-leasefile={}", file("leases"));
    let _ = writeln!(text, "dhcp-authoritative");
    // Nobody else is there who could have an address already; looking for one takes seconds.
    let _ = writeln!(text, "no-ping");
    for (place, segment) in segments(spec) {
        let bridge = bridge(place);
        // Whoever asks has the name of the interface on which he asks as a tag.
        let tag = if spec.segments.len() > 1 { format!("tag:{bridge},") } else { String::new() };
        for gateway in &segment.gateways {
            let address = gateway.addr();
            match gateway {
                IpNet::V4(net) => {
                    let (low, high) = free_range(net);
                    let _ = writeln!(text, "dhcp-range={low},{high},{},12h", net.netmask());
                    let _ = writeln!(text, "dhcp-option={tag}option:router,{address}");
                    let _ = writeln!(text, "dhcp-option={tag}option:dns-server,{address}");
                    let _ = writeln!(text, "dhcp-option={tag}option:ntp-server,{address}");
                }
                IpNet::V6(net) => {
                    // Addresses by DHCPv6; the route comes by router advertisement, as IPv6 wants it, and with it another address
                    // for those that have no DHCPv6 (`slaac`), as an initrd may.
                    let base = u128::from(net.network());
                    let low = std::net::Ipv6Addr::from(base | 0x1000);
                    let high = std::net::Ipv6Addr::from(base | 0x1fff);
                    let _ = writeln!(text, "enable-ra");
                    let _ = writeln!(text, "ra-param={bridge},10,600");
                    let _ = writeln!(text, "dhcp-range={low},{high},slaac,{},12h", net.prefix_len());
                    let _ = writeln!(text, "dhcp-option={tag}option6:dns-server,[{address}]");
                    let _ = writeln!(text, "dhcp-option={tag}option6:ntp-server,[{address}]");
                }
            }
        }
    }
    for host in &spec.hosts {
        if !host.dhcp {
            for mac in host.macs() {
                let _ = writeln!(text, "dhcp-host={},ignore", mac.to_lowercase());
            }
            continue;
        }
        let addresses = host.addresses.iter().map(|address| match address {
            IpAddr::V4(address) => format!(",{address}"),
            IpAddr::V6(address) => format!(",[{address}]"),
        });
        let _ = writeln!(text, "dhcp-host={}{},{}", host.mac.to_lowercase(), addresses.collect::<String>(), host.name);
    }
    text
}

/// Addresses that DHCP may give to whom it does not know: the upper half of the network, less its very end.
fn free_range(net: &ipnet::Ipv4Net) -> (std::net::Ipv4Addr, std::net::Ipv4Addr) {
    let (first, last) = (u32::from(net.network()), u32::from(net.broadcast()));
    let low = first + (last - first) / 2 + 1;
    (low.into(), last.saturating_sub(2).max(low).into())
}

/// Between whom frames are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// The host with this place in [`NetworkSpec::hosts`].
    Host(usize),
    /// The gateway: DHCP, DNS, the service.
    Gateway,
    /// Everybody in the network, the gateway included.
    Everybody,
}

/// Frames that are lost in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Who sends the frames.
    pub from: Peer,
    /// Who they are for.
    pub to: Peer,
    /// The frames that the rule is about.
    pub frames: Frames,
    /// How many of a hundred; 100 is a cut.
    pub percent: u8,
}

/// Input of `nft -f`: replaces all rules at once, so that there is no moment with half of them. What goes from the first to the
/// second of each of `slow` is not the bridge's to carry.
#[must_use]
pub fn nft_rules(spec: &NetworkSpec, losses: &[Loss], slow: &[(usize, usize)]) -> String {
    let mut text = String::from("table bridge vlab\ndelete table bridge vlab\ntable bridge vlab {\n");
    // To the gateway is `input`, from it `output`, between hosts `forward`.
    let passes = |loss: &Loss, chain: &str| {
        let of_host = |peer: Peer| !matches!(peer, Peer::Gateway);
        let of_gateway = |peer: Peer| !matches!(peer, Peer::Host(_));
        match chain {
            "forward" => of_host(loss.from) && of_host(loss.to),
            "input" => of_host(loss.from) && of_gateway(loss.to),
            _ => of_gateway(loss.from) && of_host(loss.to),
        }
    };
    let names = |place: usize| match &taps(spec, place)[..] {
        [only] => format!("\"{only}\""),
        several => format!("{{ \"{}\" }}", several.join("\", \"")),
    };
    for chain in ["forward", "input", "output"] {
        let _ = writeln!(text, "  chain lab-{chain} {{\n    type filter hook {chain} priority 0; policy accept;");
        for loss in losses.iter().filter(|loss| passes(loss, chain) && loss.percent > 0) {
            let mut rule = String::new();
            if let Peer::Host(place) = loss.from {
                let _ = write!(rule, "iifname {} ", names(place));
            }
            if let Peer::Host(place) = loss.to {
                let _ = write!(rule, "oifname {} ", names(place));
            }
            match loss.frames {
                Frames::All => {}
                Frames::Dhcp => rule.push_str("udp dport { 67, 547 } "),
                Frames::Ntp => rule.push_str("udp dport 123 "),
                Frames::LongerThan(bytes) => {
                    let _ = write!(rule, "meta length > {bytes} ");
                }
                Frames::Tcp(ports) => {
                    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                    let _ = write!(rule, "tcp dport {{ {} }} ", ports.join(", "));
                }
            }
            if loss.percent < 100 {
                let _ = write!(rule, "numgen random mod 100 < {} ", loss.percent);
            }
            let _ = writeln!(text, "    {rule}counter drop");
        }
        for (from, to) in slow.iter().filter(|_| chain == "forward") {
            let _ = writeln!(text, "    iifname {} oifname {} counter drop", names(*from), names(*to));
        }
        text.push_str("  }\n");
    }
    text.push_str("}\n");
    text
}

/// The six bytes of a hardware address.
#[must_use]
pub fn mac_bytes(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn host(name: &str, mac: u8, addresses: &[&str]) -> NetworkHost {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        NetworkHost {
            name: name.into(),
            domain: None,
            segment: 0,
            mac: format!("52:54:00:AA:00:{mac:02x}"),
            more_macs: vec![],
            addresses,
            dhcp: true,
        }
    }

    fn dual() -> NetworkSpec {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        NetworkSpec::for_cluster(
            "demo",
            "lab.example",
            &[net("192.168.126.0/24"), net("fd2e:6f44:5dd8::/64")],
            &["192.168.126.5".parse().unwrap(), "fd2e:6f44:5dd8::5".parse().unwrap()],
            &["192.168.126.6".parse().unwrap()],
            vec![host("master-0", 0x11, &["192.168.126.11", "fd2e:6f44:5dd8::11"]), host("worker-0", 0x12, &[])],
        )
    }

    #[test]
    fn the_texts_of_a_dual_stack_network() {
        let spec = dual();
        spec.check().unwrap();
        insta::assert_snapshot!("ip_batch", ip_batch(&spec, 1000));
        insta::assert_snapshot!("dnsmasq_conf", dnsmasq_conf(&spec, Path::new("/run/lab"), "root"));
    }

    fn segment(gateways: &[&str]) -> Segment {
        Segment { gateways: gateways.iter().map(|text| text.parse().unwrap()).collect() }
    }

    /// The network of the cluster `demo`, another cluster in it, and a third one elsewhere.
    fn three_clusters() -> NetworkSpec {
        let mut spec = dual();
        spec.add_cluster("near.lab.example", &["192.168.126.7".parse().unwrap()], &[]);
        spec.add_cluster("far.lab.example", &["10.1.0.9".parse().unwrap()], &["10.1.0.9".parse().unwrap()]);
        let same = spec.add_segment(&["fd2e:6f44:5dd8::/64".parse().unwrap(), "192.168.126.0/24".parse().unwrap()]);
        let far = spec.add_segment(&["10.1.0.0/24".parse().unwrap()]);
        assert_eq!((same, far), (0, 1));
        let of = |domain: &str, segment, host| NetworkHost { domain: Some(domain.into()), segment, ..host };
        spec.hosts.push(of("near.lab.example", 0, host("near-0", 0x13, &["192.168.126.12"])));
        spec.hosts.push(of("far.lab.example", 1, host("far-0", 0x14, &["10.1.0.9"])));
        spec.elsewhere.push("203.0.113.7".parse().unwrap());
        spec
    }

    #[test]
    fn the_texts_of_a_network_of_three_clusters() {
        let spec = three_clusters();
        spec.check().unwrap();
        insta::assert_snapshot!("ip_batch_of_three_clusters", ip_batch(&spec, 1000));
        insta::assert_snapshot!("dnsmasq_conf_of_three_clusters", dnsmasq_conf(&spec, Path::new("/run/lab"), "root"));
        let there = |address: &str| foreign_address(&spec, address.parse().unwrap(), true);
        assert_eq!(there("10.1.0.66"), "address add 10.1.0.66/32 dev lab1");
        assert_eq!(there("192.168.126.66"), "address add 192.168.126.66/32 dev lab0");
        assert_eq!(there("198.51.100.66"), "address add 198.51.100.66/32 dev lab0", "of none of them");
    }

    #[test]
    fn a_wrong_name_is_that_of_one_cluster() {
        let wrong = WrongName { name: ClusterName::Api, answer: None };
        let spec = three_clusters().with_wrong_names(&[("near.lab.example".to_owned(), wrong)]);
        let api: Vec<&str> = spec.names.iter().map(|n| n.name.as_str()).filter(|n| n.starts_with("api.")).collect();
        assert_eq!(api, ["api.demo.lab.example", "api.far.lab.example"]);
    }

    #[test]
    fn a_hardware_address_is_six_bytes() {
        assert_eq!(mac_bytes("52:54:00:aB:00:0f"), Some([0x52, 0x54, 0, 0xab, 0, 0x0f]));
        assert_eq!(mac_bytes("52:54:00:ab:00"), None);
        assert_eq!(mac_bytes("52:54:00:ab:00:xx"), None);
    }

    #[test]
    fn without_dhcp_there_is_only_dns() {
        let conf = dnsmasq_conf(&NetworkSpec { dhcp: false, ..dual() }, Path::new("/run/lab"), "root");
        assert!(!conf.contains("dhcp") && conf.contains("host-record=api.demo.lab.example,192.168.126.5"), "{conf}");
    }

    #[test]
    fn each_interface_of_a_host_has_its_tap() {
        let mut spec = dual();
        spec.hosts[0].more_macs = vec!["52:54:00:AA:00:21".into()];
        spec.check().unwrap();
        assert_eq!(taps(&spec, 0), ["tap0", "tap0-1"]);
        assert_eq!(taps(&spec, 1), ["tap1"]);
        let batch = ip_batch(&spec, 0);
        for tap in ["tap0", "tap0-1", "tap1"] {
            assert!(batch.contains(&format!("link set dev {tap} master lab0 up\n")), "{batch}");
        }
        let loss = Loss { from: Peer::Host(0), to: Peer::Host(1), frames: Frames::All, percent: 100 };
        let rules = nft_rules(&spec, &[loss], &[]);
        assert!(rules.contains("iifname { \"tap0\", \"tap0-1\" } oifname \"tap1\" counter drop"), "{rules}");
        spec.hosts[1].more_macs = vec!["52:54:00:aa:00:21".into()];
        assert!(spec.check().unwrap_err().to_string().contains("is there twice"));
    }

    #[test]
    fn a_host_without_dhcp_has_a_name_and_is_not_answered() {
        let mut spec = dual();
        spec.hosts[0].dhcp = false;
        let conf = dnsmasq_conf(&spec, Path::new("/run/lab"), "root");
        let of_host = |line: &&str| line.contains("master-0") || line.contains("aa:00:11");
        let name = "host-record=master-0.demo.lab.example,192.168.126.11,fd2e:6f44:5dd8::11";
        assert_eq!(conf.lines().filter(of_host).collect::<Vec<_>>(), [name, "dhcp-host=52:54:00:aa:00:11,ignore"]);
    }

    #[rstest]
    #[case::missing(&[(ClusterName::Api, None)], &["api-int 192.168.126.5 fd2e:6f44:5dd8::5", "*.apps 192.168.126.6"])]
    #[case::no_routes(&[(ClusterName::Apps, None)],
        &["api 192.168.126.5 fd2e:6f44:5dd8::5", "api-int 192.168.126.5 fd2e:6f44:5dd8::5"])]
    #[case::wrong(&[(ClusterName::ApiInt, Some("198.51.100.66"))],
        &["api 192.168.126.5 fd2e:6f44:5dd8::5", "*.apps 192.168.126.6", "api-int 198.51.100.66"])]
    #[case::wrong_routes(&[(ClusterName::Apps, Some("198.51.100.66")), (ClusterName::Api, None)],
        &["api-int 192.168.126.5 fd2e:6f44:5dd8::5", "*.apps 198.51.100.66"])]
    #[case::wildcard(&[(ClusterName::Unknown, Some("198.51.100.66"))],
        &["api 192.168.126.5 fd2e:6f44:5dd8::5", "api-int 192.168.126.5 fd2e:6f44:5dd8::5", "*.apps 192.168.126.6",
          "* 198.51.100.66"])]
    fn names_can_be_wrong(#[case] wrong: &[(ClusterName, Option<&str>)], #[case] expected: &[&str]) {
        let wrong: Vec<(String, WrongName)> = wrong
            .iter()
            .map(|(name, answer)| WrongName { name: *name, answer: answer.map(|text| text.parse().unwrap()) })
            .map(|wrong| ("demo.lab.example".to_owned(), wrong))
            .collect();
        let spec = dual().with_wrong_names(&wrong);
        let short = |name: &DnsName| {
            let star = if name.wildcard { "*." } else { "" };
            let rest = name.name.strip_suffix("demo.lab.example").unwrap();
            let addresses: Vec<String> = name.addresses.iter().map(IpAddr::to_string).collect();
            format!("{} {}", format!("{star}{rest}").trim_end_matches('.'), addresses.join(" "))
        };
        assert_eq!(spec.names.iter().map(short).collect::<Vec<_>>(), expected);
        assert_eq!(NetworkSpec { names: dual().names, ..spec }, dual(), "nothing else changes");
    }

    #[test]
    fn frames_of_everybody_are_lost_wherever_they_pass() {
        let all =
            Loss { from: Peer::Everybody, to: Peer::Everybody, frames: Frames::Tcp(&[6443, 22623]), percent: 100 };
        let rules = nft_rules(&dual(), &[all], &[]);
        let lost: Vec<&str> = rules.lines().map(str::trim).filter(|line| line.ends_with("drop")).collect();
        assert_eq!(lost, ["tcp dport { 6443, 22623 } counter drop"; 3], "{rules}");
        let to_one = nft_rules(&dual(), &[Loss { to: Peer::Host(1), ..all }], &[]);
        let lost: Vec<&str> = to_one.lines().map(str::trim).filter(|line| line.ends_with("drop")).collect();
        assert_eq!(lost, ["oifname \"tap1\" tcp dport { 6443, 22623 } counter drop"; 2], "{to_one}");
    }

    #[test]
    fn faults_are_rules_between_ports() {
        let cut = |from, to, percent| Loss { from, to, frames: Frames::All, percent };
        let of = |frames| Loss { from: Peer::Host(1), to: Peer::Gateway, frames, percent: 100 };
        insta::assert_snapshot!(nft_rules(
            &dual(),
            &[
                cut(Peer::Host(0), Peer::Host(1), 100),
                cut(Peer::Host(1), Peer::Gateway, 30),
                cut(Peer::Gateway, Peer::Host(1), 100),
                cut(Peer::Host(2), Peer::Host(0), 0),
                of(Frames::Dhcp),
                of(Frames::Ntp),
                of(Frames::LongerThan(1400)),
            ],
            &[(0, 1)],
        ));
    }

    #[rstest]
    #[case::no_segment(NetworkSpec { segments: vec![], hosts: vec![], ..dual() })]
    #[case::no_gateway(NetworkSpec { segments: vec![segment(&[])], ..dual() })]
    #[case::two_of_a_family(NetworkSpec { segments: vec![segment(&["10.0.0.1/24", "10.0.1.1/24"])], hosts: vec![], ..dual() })]
    #[case::one_in_the_other(NetworkSpec { segments: vec![segment(&["10.0.0.1/16"]), segment(&["10.0.1.1/24"])], hosts: vec![], ..dual() })]
    #[case::no_such_segment(NetworkSpec { hosts: vec![NetworkHost { segment: 1, ..host("a", 1, &[]) }], ..dual() })]
    #[case::strange_domain(NetworkSpec { hosts: vec![NetworkHost { domain: Some("a/b".into()), ..host("a", 1, &[]) }], ..dual() })]
    #[case::not_elsewhere(NetworkSpec { elsewhere: vec!["192.168.126.77".parse().unwrap()], ..dual() })]
    #[case::in_each_machine(NetworkSpec { elsewhere: vec!["127.0.0.1".parse().unwrap()], ..dual() })]
    #[case::no_domain(NetworkSpec { domains: vec![], ..dual() })]
    #[case::strange_name(NetworkSpec { names: vec![DnsName { name: "a/b".into(), wildcard: true, addresses: vec![] }], ..dual() })]
    #[case::line_break(NetworkSpec { domains: vec!["a\nb".into()], ..dual() })]
    #[case::no_mac(NetworkSpec { hosts: vec![NetworkHost { mac: "x".into(), ..host("a", 1, &[]) }], ..dual() })]
    #[case::same_mac(NetworkSpec { hosts: vec![host("a", 1, &[]), host("b", 1, &[])], ..dual() })]
    #[case::foreign(NetworkSpec { hosts: vec![host("a", 1, &["10.9.9.9"])], ..dual() })]
    #[case::gateways_own(NetworkSpec { hosts: vec![host("a", 1, &["192.168.126.1"])], ..dual() })]
    #[case::same_address(NetworkSpec { hosts: vec![host("a", 1, &["192.168.126.9"]), host("b", 2, &["192.168.126.9"])], ..dual() })]
    fn what_cannot_be_is_refused(#[case] spec: NetworkSpec) {
        assert!(spec.check().is_err(), "{spec:?}");
    }

    proptest! {
        #[test]
        fn dhcp_gives_out_addresses_of_the_network_and_never_the_gateway(a: u32, prefix in 20_u8..=29) {
            let net = ipnet::Ipv4Net::new(a.into(), prefix).unwrap().trunc();
            let (low, high) = free_range(&net);
            prop_assert!(net.contains(&low) && net.contains(&high) && low <= high);
            prop_assert!(high < net.broadcast() && low > net.hosts().next().unwrap());
        }
    }
}
