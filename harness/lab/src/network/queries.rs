//! Names that machines asked the lab's DNS for and that are not the lab's: whoever asks for one wants to go to the internet, which
//! a lab does not have. Read from dnsmasq's log, by a pure function.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::config::NetworkSpec;

/// Somebody asked for a name outside of the lab, and was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignQuery {
    /// Who: a host's name, or an address that no host has.
    pub from: String,
    /// What for.
    pub name: String,
    /// How often.
    pub times: usize,
}

/// The queries for foreign names in dnsmasq's log, by who asked and what for. `leases` are addresses that DHCP chose and who has them.
pub(super) fn foreign_queries(log: &str, spec: &NetworkSpec, leases: &[(String, IpAddr, String)]) -> Vec<ForeignQuery> {
    let mut asked: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (name, from) in log.lines().filter_map(query) {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if is_foreign(&name, spec) {
            let host = spec.hosts.iter().find(|host| host.addresses.contains(&from)).map(|host| host.name.clone());
            let leased = || leases.iter().find(|(_, address, _)| *address == from).map(|(.., name)| name.clone());
            let who = host.or_else(leased).unwrap_or_else(|| from.to_string());
            *asked.entry((who, name)).or_default() += 1;
        }
    }
    asked.into_iter().map(|((from, name), times)| ForeignQuery { from, name, times }).collect()
}

/// The name and who asks, of a line that tells a query: `dnsmasq: query[A] quay.io from 192.0.2.10`.
fn query(line: &str) -> Option<(&str, IpAddr)> {
    let (_, query) = line.split_once("query[")?;
    let (_, rest) = query.split_once("] ")?;
    let (name, from) = rest.split_once(" from ")?;
    Some((name, from.trim().parse().ok()?))
}

/// Is it a name of the world outside? Names of one word, and those that addresses are asked for by, are nobody's.
fn is_foreign(name: &str, spec: &NetworkSpec) -> bool {
    let below = |zone: &str| {
        let zone = zone.to_ascii_lowercase();
        name == zone || name.strip_suffix(zone.as_str()).is_some_and(|rest| rest.ends_with('.'))
    };
    let is_known =
        || spec.names.iter().any(|known| below(&known.name)) || spec.domains.iter().any(|domain| below(domain));
    name.contains('.') && !name.ends_with(".arpa") && !is_known()
}

#[cfg(test)]
mod tests {
    use super::super::config::{DnsName, NetworkHost, Segment};
    use super::*;

    #[test]
    fn names_outside_of_the_lab_are_told_with_who_asked() {
        let host = |name: &str, address: &str| NetworkHost {
            name: name.into(),
            domain: None,
            segment: 0,
            mac: "52:54:00:00:00:01".into(),
            more_macs: vec![],
            addresses: vec![address.parse().unwrap()],
            dhcp: true,
        };
        let spec = NetworkSpec {
            domains: vec!["ha.lab.example".into()],
            segments: vec![Segment { gateways: vec!["192.0.2.1/24".parse().unwrap()] }],
            hosts: vec![host("m-0", "192.0.2.10"), host("m-1", "2001:db8::11")],
            names: vec![DnsName { name: "registry.other.example".into(), wildcard: false, addresses: vec![] }],
            elsewhere: vec![],
            dhcp: true,
        };
        let leases = [("52:54:00:00:00:09".to_owned(), "192.0.2.200".parse().unwrap(), "m-2".to_owned())];
        let log = "dnsmasq: started, version 2.89 cachesize 150\n\
            dnsmasq: query[A] api-int.ha.lab.example from 192.0.2.10\n\
            dnsmasq: config api-int.ha.lab.example is 192.0.2.100\n\
            dnsmasq: query[A] Builds.CoreOS.example.org from 192.0.2.10\n\
            dnsmasq: config error is REFUSED (EDE: not ready)\n\
            dnsmasq: query[AAAA] builds.coreos.example.org from 192.0.2.10\n\
            dnsmasq: query[A] builds.coreos.example.org from 2001:db8::11\n\
            dnsmasq: query[A] quay.io from 192.0.2.200\n\
            dnsmasq: query[A] quay.io from 192.0.2.77\n\
            dnsmasq: query[A] notha.lab.example from 192.0.2.10\n\
            dnsmasq: query[A] registry.other.example from 192.0.2.10\n\
            dnsmasq: query[PTR] 1.2.0.192.in-addr.arpa from 192.0.2.10\n\
            dnsmasq: query[A] wpad from 192.0.2.10\n\
            dnsmasq-dhcp: 1 client provides name: query.me\n";
        let told: Vec<String> = foreign_queries(log, &spec, &leases)
            .into_iter()
            .map(|query| format!("{} {} {}", query.from, query.name, query.times))
            .collect();
        assert_eq!(
            told,
            [
                "192.0.2.77 quay.io 1",
                "m-0 builds.coreos.example.org 2",
                "m-0 notha.lab.example 1",
                "m-1 builds.coreos.example.org 1",
                "m-2 quay.io 1",
            ]
        );
    }
}
