//! In which order and how late things come: what stands under `interleaving`, read.

use serde::Serialize;

use crate::time::Span;

/// In which order and how late things come. The default is the plain way: in virtual time every message takes as long, what is
/// due at the same instant comes in the same order, nothing is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interleaving {
    /// Seed of its dice.
    pub seed: u64,
    /// Every request and every answer takes up to so much longer.
    pub latency: Span,
    /// What is due at the same instant comes in any order.
    pub any_order: bool,
    /// So much later than at the multiples of its interval the host monitor looks.
    pub host_monitor: Span,
    /// The same for the cluster monitor.
    pub cluster_monitor: Span,
    /// So many of a thousand requests of hosts are lost.
    pub lost: u32,
    /// So many of a thousand requests of hosts reach the service twice.
    pub twice: u32,
    /// The service is killed before it stores these writes, counted from 1.
    pub killed_before_writes: Vec<u64>,
    /// The service is killed when it has stored these writes.
    pub killed_after_writes: Vec<u64>,
}

impl Interleaving {
    /// Is it the plain way?
    pub fn is_plain(&self) -> bool {
        Self { seed: 0, ..self.clone() } == Self::default()
    }

    /// Its keys that only virtual time has.
    pub fn only_virtual(&self) -> Vec<&'static str> {
        let keys = [
            ("any_order", self.any_order),
            ("host_monitor", self.host_monitor != Span::ZERO),
            ("cluster_monitor", self.cluster_monitor != Span::ZERO),
            ("killed_before_writes", !self.killed_before_writes.is_empty()),
            ("killed_after_writes", !self.killed_after_writes.is_empty()),
        ];
        keys.into_iter().filter(|(_, is_there)| *is_there).map(|(key, _)| key).collect()
    }
}
