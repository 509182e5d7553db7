//! Statuses: each change is an edge of the machine, a host belongs to a cluster as its status says, and the API shows nothing
//! that was not so.

use std::sync::LazyLock;

use vlab_api::types::{ClusterStatus, HostStatus};
use vlab_model::machine::Rule;
use vlab_model::{cluster, host};

use super::Id;
use super::reader::{Moment, Reader};

/// Reachable states as bits, by the state's own number.
struct Edges {
    /// One step.
    direct: [u32; 32],
    /// Any number of steps, none included.
    path: [u32; 32],
}

impl Edges {
    fn new(pairs: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut direct = [0_u32; 32];
        for (from, to) in pairs {
            direct[from] |= 1 << to;
        }
        let mut path = direct;
        for (state, reachable) in path.iter_mut().enumerate() {
            *reachable |= 1 << state;
        }
        for middle in 0..32 {
            for from in 0..32 {
                if path[from] & (1 << middle) != 0 {
                    path[from] |= path[middle];
                }
            }
        }
        Self { direct, path }
    }

    fn allows(&self, from: usize, to: usize, single_step: bool) -> bool {
        (if single_step { self.direct } else { self.path })[from] & (1 << to) != 0
    }
}

/// All edges of both machines of hosts: binding and unbinding lead from one into the other.
static HOST_EDGES: LazyLock<Edges> = LazyLock::new(|| {
    let of_rule = |rule: &'static host::HostRule| {
        let to = match rule.to {
            host::HostState::At(to) => Some(to as usize),
            host::HostState::Initial => None,
        };
        rule.from.iter().filter_map(move |from| match from {
            host::HostState::At(from) => Some((*from as usize, to?)),
            host::HostState::Initial => None,
        })
    };
    let outside = host::OUTSIDE_THE_MACHINE.iter().map(|(from, to, _)| (*from as usize, *to as usize));
    Edges::new(host::RULES.iter().chain(host::POOL_RULES).flat_map(of_rule).chain(outside))
});

static CLUSTER_EDGES: LazyLock<Edges> = LazyLock::new(|| {
    let of_rule =
        |Rule { from, to, .. }: &'static cluster::ClusterRule| from.iter().map(|f| (*f as usize, *to as usize));
    let outside = cluster::OUTSIDE_THE_MACHINE.iter().map(|(from, to, _)| (*from as usize, *to as usize));
    Edges::new(cluster::RULES.iter().flat_map(of_rule).chain(outside))
});

const UNBOUND: &[HostStatus] = &[
    HostStatus::DiscoveringUnbound,
    HostStatus::InsufficientUnbound,
    HostStatus::KnownUnbound,
    HostStatus::DisconnectedUnbound,
    HostStatus::DisabledUnbound,
    HostStatus::Unbinding,
    HostStatus::UnbindingPendingUserAction,
];

/// In these a host is between a cluster and the pool.
const BETWEEN: &[HostStatus] = &[HostStatus::Reclaiming, HostStatus::ReclaimingRebooting];

impl Reader<'_> {
    /// A host's status changed.
    pub(super) fn host_edge(&mut self, host: usize, from: Option<HostStatus>, to: HostStatus, moment: Moment) {
        let single_step = self.is_complete();
        match from {
            Some(from) => {
                let allowed = HOST_EDGES.allows(from as usize, to as usize, single_step);
                self.check(Id::StatusEdges, moment.seq, allowed, |c| {
                    format!("{} went from {from} to {to}, for which the machine has no rule", c.host_name(host))
                });
            }
            None if single_step => {
                let initial = matches!(to, HostStatus::Discovering | HostStatus::DiscoveringUnbound);
                self.check(Id::StatusEdges, moment.seq, initial, |c| format!("{} started in {to}", c.host_name(host)));
            }
            None => {}
        }
    }

    /// A host with that status belongs to that cluster.
    pub(super) fn host_belongs(&mut self, host: usize, cluster: Option<usize>, to: HostStatus, moment: Moment) {
        if BETWEEN.contains(&to) {
            return;
        }
        let unbound = UNBOUND.contains(&to);
        let exists = cluster.is_none_or(|c| self.clusters[c].seen || self.clusters.iter().all(|c| !c.seen));
        self.check(Id::BoundOrNot, moment.seq, unbound == cluster.is_none() && exists, |c| match cluster {
            Some(cluster) if unbound => {
                format!("{} is in {to} and belongs to cluster {}", c.host_name(host), c.cluster_name(cluster))
            }
            Some(cluster) => {
                let id = c.clusters[cluster].id;
                format!("{} is in {to} and belongs to cluster {id}, which was never seen", c.host_name(host))
            }
            None => format!("{} is in {to} and belongs to no cluster", c.host_name(host)),
        });
    }

    /// A cluster's status changed.
    pub(super) fn cluster_edge(
        &mut self,
        cluster: usize,
        from: Option<ClusterStatus>,
        to: ClusterStatus,
        moment: Moment,
    ) {
        let single_step = self.is_complete();
        match from {
            Some(from) => {
                let allowed = CLUSTER_EDGES.allows(from as usize, to as usize, single_step);
                self.check(Id::StatusEdges, moment.seq, allowed, |c| {
                    format!(
                        "cluster {} went from {from} to {to}, for which the machine has no rule",
                        c.cluster_name(cluster)
                    )
                });
            }
            None if single_step => {
                let initial = cluster::INITIAL.contains(&to);
                self.check(Id::StatusEdges, moment.seq, initial, |c| {
                    format!("cluster {} started in {to}", c.cluster_name(cluster))
                });
            }
            None => {}
        }
    }
}
