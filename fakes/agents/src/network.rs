//! The network between the hosts of a fleet: who has which address, who reaches whom and how well.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::Ipv4Net;
use uuid::Uuid;
use vlab_api::types::FreeNetworkAddresses;

use crate::plan::HostPlan;
use crate::profile::Mac;
use crate::rng;

/// Most addresses of a network that an agent lists as free.
const MAX_FREE: usize = 8000;

/// How well one host reaches another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reachability {
    /// As in a good machine room: under a millisecond, no loss.
    Good,
    /// Not at all.
    Cut,
    /// With these figures.
    Poor {
        /// Average round-trip time in milliseconds.
        rtt_ms: f64,
        /// Lost packets in percent, 0 to 100.
        loss_percent: f64,
        /// Largest packet that gets through in bytes.
        mtu: i64,
    },
}

/// What one host measures towards another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Path {
    pub(crate) mac: Mac,
    pub(crate) rtt_ms: f64,
    pub(crate) loss_percent: f64,
    pub(crate) mtu: i64,
}

/// One layer-2 network: the hosts of one cluster, or all unbound hosts.
type Segment = u32;

fn segment(plan: &HostPlan) -> Segment {
    plan.cluster.and_then(|c| u32::try_from(c).ok()).unwrap_or(Segment::MAX)
}

#[derive(Debug)]
struct Station {
    host_id: Uuid,
    index: u32,
    segment: Segment,
    up: bool,
}

#[derive(Debug)]
struct Link {
    fault: Arc<str>,
    from: usize,
    to: usize,
    how: Reachability,
}

#[derive(Debug, Default)]
pub(crate) struct Network {
    seed: u64,
    stations: Vec<Station>,
    owners: BTreeMap<(Segment, IpAddr, u32), Mac>,
    gateways: BTreeSet<(Segment, IpAddr)>,
    /// What faults did to links, one direction each; the last one counts.
    links: Vec<Link>,
    /// Addresses that somebody who is no host has, and the faults that say so.
    taken: BTreeMap<(Segment, IpAddr), Arc<str>>,
    free: BTreeMap<(Segment, Ipv4Net), Arc<str>>,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// One more machine, at the next position; not up yet.
    pub(crate) fn add(&mut self, plan: &HostPlan) {
        let position = self.stations.len();
        self.stations.push(Station { host_id: plan.host_id, index: plan.index, segment: segment(plan), up: false });
        self.give_addresses(position, plan);
    }

    /// The machine there has the addresses of that plan from now on, and no others.
    pub(crate) fn settle(&mut self, position: usize, plan: &HostPlan) {
        if let Some(segment) = self.stations.get(position).map(|s| s.segment) {
            let whole =
                (segment, IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)..=(segment, IpAddr::from([u8::MAX; 16]), u32::MAX);
            let own = self.owners.range(whole).map(|(key, _)| *key).filter(|(_, _, owner)| *owner as usize == position);
            for key in own.collect::<Vec<_>>() {
                self.owners.remove(&key);
            }
        }
        self.give_addresses(position, plan);
    }

    fn give_addresses(&mut self, position: usize, plan: &HostPlan) {
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        let segment = segment(plan);
        for (i, nic) in plan.addresses.nics.iter().enumerate() {
            let mac = nic.mac.unwrap_or_else(|| plan.profile.mac(plan.index, i));
            let v4 = nic.ipv4.iter().map(|a| IpAddr::V4(a.addr()));
            let v6 = nic.ipv6.iter().map(|a| IpAddr::V6(a.addr()));
            for address in v4.chain(v6) {
                self.owners.insert((segment, address, position), mac);
            }
        }
        let gateways =
            plan.addresses.gateway_v4.map(IpAddr::V4).into_iter().chain(plan.addresses.gateway_v6.map(IpAddr::V6));
        self.gateways.extend(gateways.map(|g| (segment, g)));
        self.forget_free(segment);
    }

    /// What is free in the networks of that segment has changed; other segments are others.
    fn forget_free(&mut self, segment: Segment) {
        let first = (segment, Ipv4Net::default());
        let of_segment = self.free.range(first..).map(|(key, _)| *key).take_while(|(of, _)| *of == segment);
        for key in of_segment.collect::<Vec<_>>() {
            self.free.remove(&key);
        }
    }

    pub(crate) fn set_up(&mut self, position: usize, up: bool) {
        if let Some(station) = self.stations.get_mut(position) {
            station.up = up;
        }
    }

    /// How `from` reaches `to` while the fault lasts.
    pub(crate) fn inject_link(&mut self, from: usize, to: usize, fault: &Arc<str>, how: Reachability) {
        self.links.push(Link { fault: Arc::clone(fault), from, to, how });
    }

    /// Somebody else has that address in the network of that cluster.
    pub(crate) fn take_address(&mut self, cluster: usize, address: IpAddr, fault: &Arc<str>) {
        let segment = u32::try_from(cluster).unwrap_or(Segment::MAX);
        self.taken.insert((segment, address), Arc::clone(fault));
        self.forget_free(segment);
    }

    pub(crate) fn clear(&mut self, fault: &str) {
        self.links.retain(|link| *link.fault != *fault);
        let before = self.taken.len();
        self.taken.retain(|_, by| **by != *fault);
        if self.taken.len() != before {
            self.free.clear();
        }
    }

    /// A machine has another address from now on.
    pub(crate) fn move_address(&mut self, position: usize, from: IpAddr, to: IpAddr, mac: Mac) {
        let Some(segment) = self.stations.get(position).map(|s| s.segment) else { return };
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        self.owners.remove(&(segment, from, position));
        self.owners.insert((segment, to, position), mac);
        self.forget_free(segment);
    }

    /// Everybody who answers at that address when the host at position `from` asks, with the id of each; and the faults that
    /// made a difference.
    pub(crate) fn paths(&self, from: usize, address: IpAddr) -> (Vec<(Uuid, Path)>, Vec<Arc<str>>) {
        let mut effects = Vec::new();
        let Some(me) = self.stations.get(from) else { return (Vec::new(), effects) };
        let owners = self.owners.range((me.segment, address, 0)..=(me.segment, address, u32::MAX));
        let mut paths = Vec::new();
        for (&(_, _, position), &mac) in owners {
            let Some(other) = self.stations.get(position as usize).filter(|s| s.up && me.up) else { continue };
            let (low, high) = (me.index.min(other.index), me.index.max(other.index));
            let good_rtt = 0.1 + 0.5 * rng::fixed(self.seed, low, u64::from(high) + 1);
            let to = position as usize;
            let link = self.links.iter().rev().find(|link| link.from == from && link.to == to);
            effects.extend(link.map(|link| Arc::clone(&link.fault)));
            let (rtt_ms, loss_percent, mtu) = match link.map_or(&Reachability::Good, |link| &link.how) {
                Reachability::Good => ((good_rtt * 1000.0).round() / 1000.0, 0.0, i64::MAX),
                Reachability::Cut => continue,
                Reachability::Poor { rtt_ms, loss_percent, mtu } => (*rtt_ms, *loss_percent, *mtu),
            };
            paths.push((other.host_id, Path { mac, rtt_ms, loss_percent, mtu }));
        }
        (paths, effects)
    }

    /// Does a machine other than the one at `from` have that address in its network?
    pub(crate) fn is_taken(&self, from: usize, address: IpAddr) -> bool {
        let Some(me) = self.stations.get(from) else { return false };
        self.gateways.contains(&(me.segment, address))
            || self.taken.contains_key(&(me.segment, address))
            || self.owners.range((me.segment, address, 0)..=(me.segment, address, u32::MAX)).next().is_some()
    }

    /// The fault by which that address is taken.
    pub(crate) fn taken_by(&self, from: usize, address: IpAddr) -> Option<Arc<str>> {
        let me = self.stations.get(from)?;
        self.taken.get(&(me.segment, address)).cloned()
    }

    /// The free addresses of that network as the agent writes them. All hosts of a network see the same ones, so the text is
    /// made once.
    pub(crate) fn free_addresses(&mut self, from: usize, network: Ipv4Net) -> Arc<str> {
        let Some(segment) = self.stations.get(from).map(|s| s.segment) else { return "{}".into() };
        let network = network.trunc();
        if let Some(text) = self.free.get(&(segment, network)) {
            return Arc::clone(text);
        }
        let low = (segment, IpAddr::V4(network.network()), 0);
        let high = (segment, IpAddr::V4(network.broadcast()), u32::MAX);
        let taken: BTreeSet<Ipv4Addr> = self
            .owners
            .range(low..=high)
            .map(|((_, a, _), _)| *a)
            .chain(self.gateways.iter().filter(|(s, _)| *s == segment).map(|(_, a)| *a))
            .chain(self.taken.keys().filter(|(s, _)| *s == segment).map(|(_, a)| *a))
            .filter_map(|a| match a {
                IpAddr::V4(a) => Some(a),
                IpAddr::V6(_) => None,
            })
            .collect();
        let free = network.hosts().filter(|a| !taken.contains(a)).take(MAX_FREE).map(|a| a.to_string()).collect();
        let entry = FreeNetworkAddresses { network: Some(network.to_string()), free_addresses: Some(free) };
        let text: Arc<str> = serde_json::to_string(&entry).unwrap_or_default().into();
        self.free.insert((segment, network), Arc::clone(&text));
        text
    }
}
