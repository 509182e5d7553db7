//! What a fault can pick out: frames on the network of hosts, names that its DNS answers, and what harness and machines agree on for
//! faults inside of a cluster of machines.

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

/// Operators that a cluster of machines has; the lab plays them.
pub const OPERATORS: [&str; 4] = ["authentication", "console", "etcd", "ingress"];

/// While this file is there, the lab's bootkube does not come to its end on that machine.
pub const BOOTKUBE_HANGS: &str = "/run/vlab/bootkube-hangs";

/// What `vlab-node fault` is told where nobody's approval of a node's certificate is to be taken.
pub const CSR_NOT_APPROVED: &str = "csr-not-approved";

/// What it is told where an operator is to be degraded.
pub const OPERATOR_DEGRADED: &str = "operator-degraded";

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
