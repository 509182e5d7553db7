//! What can be wrong with a simulated machine, with the network between machines and with the inside of a cluster. A fault is
//! injected under a name and cleared by it; what it really did is told as an observation ([`What::Fault`], phase `effect`),
//! once for each thing that it hit.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::types::{FinalizingStage, HostStage};

/// Something that is wrong with one machine.
#[derive(Clone, Debug, PartialEq)]
pub enum HostFault {
    /// It has no power.
    NoPower,
    /// What it sends to the service does not arrive, and no answer reaches it. Its neighbours still do.
    Offline,
    /// Its cable is cut: neither the service nor any neighbour is reached.
    NoUplink,
    /// No address was given to it: like a cut cable, and its inventory would show no address.
    NoAddress,
    /// It asks for instructions at most this often.
    SlowPolls(Duration),
    /// Its agent hangs: it does not ask for instructions. The installer, a program of its own, continues.
    SilentAgent,
    /// It has the id of that other machine.
    IdOf(Uuid),
    /// Its clock is wrong by so many seconds.
    Clock(i64),
    /// No NTP source answers it.
    NoNtp,
    /// So many processor cores are found.
    Cores(u32),
    /// So many bytes of memory are found.
    MemoryBytes(u64),
    /// Every disk has so many bytes.
    DiskBytes(u64),
    /// What the disk speed check measures, in milliseconds.
    FsyncMs(u32),
    /// The disk fails when so many percent of the image are written; at 0 already when its speed is measured.
    DiskFailsAt(u32),
    /// Images that it cannot pull or fetch (any part of the name or address).
    NoImage(String),
    /// It calls itself this.
    Hostname(String),
    /// After the installation the firmware boots the discovery image again instead of the disk.
    BootsDiscovery,
    /// The installer hangs once it has reported this stage.
    StuckAt(HostStage),
    /// The installer fails once it has reported this stage, with this text.
    FailsAt(HostStage, String),
    /// Its logs are announced and never come.
    NoLogs,
    /// What it answers when asked for its inventory.
    Inventory(Garble),
    /// The discovery medium is gone: every step answers 256.
    NoMedia,
    /// It has that other address on its first interface.
    Address(IpAddr),
    /// The installed system boots and never asks for its ignition.
    NeverJoins,
    /// It has its ignition, and nobody approves its certificate.
    NoCertificate,
}

impl HostFault {
    /// Does it keep the host from reaching the service?
    pub(crate) fn takes_offline(&self) -> bool {
        matches!(self, HostFault::Offline | HostFault::NoUplink | HostFault::NoAddress)
    }

    /// Does it keep the host from reaching anybody?
    pub(crate) fn cuts_uplink(&self) -> bool {
        matches!(self, HostFault::NoUplink | HostFault::NoAddress)
    }
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garble {
    /// It is not JSON.
    Malformed,
    /// It ends in the middle.
    Truncated,
    /// It has at least so many bytes, and is right.
    Huge(usize),
}

/// Something that is wrong with the inside of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterFault {
    /// bootkube does not come to an end.
    BootkubeHangs,
    /// bootkube fails and is started again, over and over.
    BootkubeFails,
    /// etcd does not leave the bootstrap.
    EtcdStays,
    /// etcd has left the bootstrap, and has too few members up.
    QuorumLost,
    /// Neither API nor machine-config server answers.
    NoApi,
    /// The API answers, and the machine-config server does not.
    NoMachineConfigServer,
    /// That operator does not become available.
    OperatorDegraded(String),
    /// The controller hangs in this stage of finalizing.
    FinalizingStuck(FinalizingStage),
    /// Somebody who is not of the lab has that address.
    AddressTaken(IpAddr),
    /// Names below the cluster's domain that the DNS answers otherwise. No address: it does not know the name.
    Dns(String, Option<IpAddr>),
}

/// What is wrong with one thing, by the name of the fault. A healthy thing (most of them) costs an empty list.
#[derive(Clone, Debug)]
pub(crate) struct ActiveFaults<T>(Vec<(Arc<str>, T)>);

impl<T> Default for ActiveFaults<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ActiveFaults<T> {
    pub(crate) fn add(&mut self, name: &Arc<str>, fault: T) {
        self.0.push((Arc::clone(name), fault));
    }

    /// Removes everything that the fault of that name injected.
    pub(crate) fn remove(&mut self, name: &str) -> Vec<T> {
        let mut removed = Vec::new();
        let mut i = 0;
        while i < self.0.len() {
            if *self.0[i].0 == *name {
                removed.push(self.0.remove(i).1);
            } else {
                i += 1;
            }
        }
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
        removed
    }

    /// The last one that is of the kind, and whose it is.
    pub(crate) fn find<U>(&self, pick: impl Fn(&T) -> Option<U>) -> Option<(Arc<str>, U)> {
        self.0.iter().rev().find_map(|(name, fault)| pick(fault).map(|found| (Arc::clone(name), found)))
    }

    pub(crate) fn has(&self, test: impl Fn(&T) -> bool) -> bool {
        self.0.iter().any(|(_, fault)| test(fault))
    }
}

/// Which effects were told already: each fault's, once for each host or cluster.
#[derive(Debug, Default)]
pub(crate) struct Told(BTreeMap<Arc<str>, Vec<Option<Uuid>>>);

impl Told {
    /// Is it new?
    pub(crate) fn first(&mut self, fault: &Arc<str>, of: Option<Uuid>) -> bool {
        let hit = self.0.entry(Arc::clone(fault)).or_default();
        let new = !hit.contains(&of);
        if new {
            hit.push(of);
        }
        new
    }
}
