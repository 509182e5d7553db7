//! What a fault can pick out on the network of hosts: frames, and names that its DNS answers.

use std::net::IpAddr;

/// Which names of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterName {
    /// `api`.
    Api,
    /// `api-int`.
    ApiInt,
    /// Everything below `apps`.
    Apps,
    /// Everything below the cluster's domain that nobody has.
    Unknown,
}

/// A name that DNS does not answer as the network says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongName {
    /// The name that is answered wrongly.
    pub name: ClusterName,
    /// What is answered; `None`: that there is no such name.
    pub answer: Option<IpAddr>,
}

/// Which frames are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frames {
    /// All.
    All,
    /// Questions to a DHCP server, of either family.
    Dhcp,
    /// Questions to an NTP server.
    Ntp,
    /// Those whose packet (what is behind the Ethernet header) has more bytes than that.
    LongerThan(u16),
    /// Those to these TCP ports.
    Tcp(&'static [u16]),
}
