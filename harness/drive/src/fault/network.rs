//! Faults of the network between hosts: what they do to simulated hosts and clusters, and to machines and the network of the lab.

use std::net::IpAddr;

use vlab_agents::{ClusterFault, HostFault, Reachability};
use vlab_model::disturbance::{ClusterName, Frames, WrongName};
use vlab_scenario::{Cluster, DnsName, LinkDirection, NetworkInjection, VipName};

use super::effect::{Effect, Lookup};
use super::machine::{InsideFault, MachineFault};

/// Round-trip time of a good link, as the simulated network has them.
const GOOD_RTT_MS: f64 = 0.4;

/// What it does to simulated hosts, the way between them, or their cluster.
pub(super) fn effect(injection: &NetworkInjection, who: &dyn Lookup) -> Result<Effect, String> {
    let poor = |rtt_ms: f64, loss_percent: f64, mtu: i64| Reachability::Poor { rtt_ms, loss_percent, mtu };
    Ok(match injection {
        NetworkInjection::UplinkCut => Effect::Host(HostFault::NoUplink),
        NetworkInjection::NoAddress => Effect::Host(HostFault::NoAddress),
        NetworkInjection::DuplicateAddress { of } => {
            let address = who.address(of).ok_or_else(|| format!("the host {} has no address", of.0))?;
            Effect::Host(HostFault::Address(address))
        }
        NetworkInjection::Partition { direction } => Effect::Link(Reachability::Cut, *direction),
        NetworkInjection::Latency { rtt_ms, direction } => {
            Effect::Link(poor(f64::from(*rtt_ms), 0.0, i64::MAX), *direction)
        }
        NetworkInjection::PacketLoss { percent, direction } => {
            Effect::Link(poor(GOOD_RTT_MS, f64::from(*percent), i64::MAX), *direction)
        }
        NetworkInjection::MtuBlackHole { bytes, direction } => {
            Effect::Link(poor(GOOD_RTT_MS, 0.0, i64::from(*bytes)), *direction)
        }
        NetworkInjection::VipTaken { vip } => Effect::Cluster(ClusterFault::AddressTaken(address(hit(who)?, *vip)?)),
        NetworkInjection::DnsMissing { name } => Effect::Cluster(ClusterFault::Dns(full_name(hit(who)?, *name), None)),
        NetworkInjection::DnsWrong { name, address } => {
            Effect::Cluster(ClusterFault::Dns(full_name(hit(who)?, *name), Some(*address)))
        }
        NetworkInjection::DnsWildcard { address } => {
            let every_name = format!("*.{}", domain(hit(who)?));
            Effect::Cluster(ClusterFault::Dns(every_name, Some(*address)))
        }
    })
}

/// What it does to each machine, or to the lab's network. `cluster` is the one that is hit, if its machines are in that network;
/// `None`: machines cannot have it.
pub(super) fn on_machines(
    injection: &NetworkInjection,
    cluster: Result<&Cluster, String>,
) -> Result<Option<MachineFault>, String> {
    let loss = |frames: Frames, percent: u32, direction: LinkDirection| MachineFault::Loss {
        frames,
        percent: u8::try_from(percent).unwrap_or(100),
        one_way: direction == LinkDirection::OneWay,
    };
    let wrong = |name: ClusterName, answer: Option<IpAddr>| MachineFault::WrongName(WrongName { name, answer });
    Ok(Some(match injection {
        NetworkInjection::UplinkCut => MachineFault::CableOut,
        NetworkInjection::NoAddress => MachineFault::Unheard(Frames::Dhcp),
        NetworkInjection::DuplicateAddress { of } => MachineFault::Inside(InsideFault::AddressOf(of.0.clone())),
        NetworkInjection::Partition { direction } => loss(Frames::All, 100, *direction),
        NetworkInjection::Latency { rtt_ms, direction } => {
            MachineFault::Delay { rtt_ms: *rtt_ms, one_way: *direction == LinkDirection::OneWay }
        }
        NetworkInjection::PacketLoss { percent, direction } => loss(Frames::All, *percent, *direction),
        NetworkInjection::MtuBlackHole { bytes, direction } => loss(Frames::LongerThan(*bytes), 100, *direction),
        NetworkInjection::VipTaken { vip } => MachineFault::TakeAddress(address(cluster?, *vip)?),
        NetworkInjection::DnsMissing { name } => {
            cluster?;
            wrong(cluster_name(*name), None)
        }
        NetworkInjection::DnsWrong { name, address } => {
            cluster?;
            wrong(cluster_name(*name), Some(*address))
        }
        NetworkInjection::DnsWildcard { address } => {
            cluster?;
            wrong(ClusterName::Unknown, Some(*address))
        }
    }))
}

fn hit(who: &dyn Lookup) -> Result<&Cluster, String> {
    who.cluster().ok_or_else(|| "there is no such cluster".to_owned())
}

fn domain(cluster: &Cluster) -> String {
    format!("{}.{}", cluster.name, cluster.base_domain).to_ascii_lowercase()
}

/// The name of a cluster that a word means. The service asks for several below `apps`.
fn full_name(cluster: &Cluster, name: DnsName) -> String {
    let domain = domain(cluster);
    match name {
        DnsName::Apps => format!("console-openshift-console.apps.{domain}"),
        DnsName::Api | DnsName::ApiInt => format!("{name}.{domain}"),
    }
}

fn cluster_name(name: DnsName) -> ClusterName {
    match name {
        DnsName::Api => ClusterName::Api,
        DnsName::ApiInt => ClusterName::ApiInt,
        DnsName::Apps => ClusterName::Apps,
    }
}

fn address(cluster: &Cluster, vip: VipName) -> Result<IpAddr, String> {
    let (vips, what) = match vip {
        VipName::Ingress => (&cluster.ingress_vips, "ingress"),
        VipName::Api => (&cluster.api_vips, "API"),
    };
    vips.first().copied().ok_or_else(|| format!("the cluster {} has no {what} address", cluster.name))
}
