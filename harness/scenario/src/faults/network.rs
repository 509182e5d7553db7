//! Faults of the network between hosts: links, addresses, names.

use std::net::IpAddr;

use super::family;
use super::params::{HostName, Param};
use crate::words::{DnsName, LinkDirection, VipName};

family! {
    /// What goes wrong in the network.
    NetworkInjection in Network {
        /// the host's cable is cut: it cannot reach anything, and nothing can reach it
        UplinkCut = "uplink-cut" hits [Hosts], Time, Any;
        /// DHCP has no address left for the host
        NoAddress = "no-address" hits [Hosts], Time, Any;
        /// the host has the address of another host
        DuplicateAddress = "duplicate-address" hits [Hosts], Time, Any {
            /// the host whose address it has
            of: HostName = Param::needed(),
        };
        /// hosts cannot reach each other; all of them still reach the service
        Partition = "partition" hits [Link], Time, Any {
            /// `one-way`: only what the first sends to the second is lost
            direction: LinkDirection = Param::needed().or("both"),
        };
        /// packets between hosts are delayed
        Latency = "latency" hits [Link], Time, Any {
            /// round-trip time in milliseconds
            rtt_ms: u32 = Param::number(1, 600_000).or("1500"),
            /// `one-way`: only what the first sends to the second is delayed
            direction: LinkDirection = Param::needed().or("both"),
        };
        /// packets between hosts are lost
        PacketLoss = "packet-loss" hits [Link], Time, Any {
            /// share of the packets
            percent: u32 = Param::number(1, 100).or("20"),
            /// `one-way`: only what the first sends to the second is lost
            direction: LinkDirection = Param::needed().or("both"),
        };
        /// large packets between hosts are lost silently
        MtuBlackHole = "mtu-black-hole" hits [Link], Time, Any {
            /// the largest packet that gets through
            bytes: u16 = Param::number(68, 65_535).or("1400"),
            /// `one-way`: only what the first sends to the second is lost
            direction: LinkDirection = Param::needed().or("both"),
        };
        /// somebody else has one of the cluster's virtual addresses
        VipTaken = "vip-taken" hits [Cluster], Time, Any {
            /// which address
            vip: VipName = Param::needed().or("api"),
        };
        /// DNS does not know a name of the cluster
        DnsMissing = "dns-missing" hits [Cluster], Time, Any {
            /// which name; `apps` stands for the names of all routes
            name: DnsName = Param::needed().or("api"),
        };
        /// DNS gives a wrong address for a name of the cluster
        DnsWrong = "dns-wrong" hits [Cluster], Time, Any {
            /// which name; `apps` stands for the names of all routes
            name: DnsName = Param::needed().or("api"),
            /// what it answers
            address: IpAddr = Param::needed().or("198.51.100.66"),
        };
        /// DNS answers for every name below the cluster's domain
        DnsWildcard = "dns-wildcard" hits [Cluster], Time, Any {
            /// what it answers
            address: IpAddr = Param::needed().or("198.51.100.66"),
        };
    }
}
