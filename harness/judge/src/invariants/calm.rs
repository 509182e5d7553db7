//! Who is left alone: what simulated hosts and controllers do wrong without a fault is their own doing.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vlab_history::Timeline;
use vlab_model::history::{FaultPhase, HostsKind, What};

/// Faults of a cluster that leave its controller as it is, and give it longer to do.
const ONLY_LATE: &[&str] = &["operator-degraded", "finalizing-stuck"];

/// Simulated hosts, and clusters of such, to which nothing is done.
pub(super) struct Calm {
    hosts: BTreeSet<Uuid>,
    clusters: BTreeSet<Uuid>,
}

impl Calm {
    pub(super) fn new(timeline: &Timeline<'_>) -> Self {
        let cluster_of = |host: &Uuid| timeline.directory.cluster_of.get(host).copied();
        let mut calm = Self { hosts: BTreeSet::new(), clusters: BTreeSet::new() };
        for o in timeline.observations {
            if let What::HostNamed { host, kind: HostsKind::Simulated, .. } = o.what {
                calm.hosts.insert(host);
                calm.clusters.extend(cluster_of(&host));
            }
        }
        // Only the beginning of a fault says of which kind it is.
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        for o in timeline.observations {
            let What::Fault { name, phase: phase @ (FaultPhase::Begin | FaultPhase::Effect), .. } = &o.what else {
                continue;
            };
            let What::Fault { inject, host, cluster, .. } = &o.what else { continue };
            if *phase == FaultPhase::Begin {
                kinds.insert(name, inject);
            }
            // Hosts do not ask a hub's API server.
            if kinds.get(name.as_str()).is_some_and(|kind| kind.starts_with("kube-")) {
                continue;
            }
            match (host, cluster) {
                // Of the service or of the way to it: whoever asks is hit.
                (None, None) => {
                    calm.hosts.clear();
                    calm.clusters.clear();
                }
                (None, Some(cluster)) => {
                    calm.hosts.retain(|host| cluster_of(host) != Some(*cluster));
                    if !kinds.get(name.as_str()).is_some_and(|kind| ONLY_LATE.contains(kind)) {
                        calm.clusters.remove(cluster);
                    }
                }
                (Some(host), cluster) => {
                    calm.hosts.remove(host);
                    for cluster in cluster.iter().copied().chain(cluster_of(host)) {
                        calm.clusters.remove(&cluster);
                    }
                }
            }
        }
        calm
    }

    /// It is simulated, and nothing was done to it or to its cluster as a whole.
    pub(super) fn host(&self, host: Uuid) -> bool {
        self.hosts.contains(&host)
    }

    /// Its hosts are simulated, and nothing was done to them or to it, but that it has longer to wait.
    pub(super) fn cluster(&self, cluster: Uuid) -> bool {
        self.clusters.contains(&cluster)
    }

    /// Why nothing was judged.
    pub(super) fn reason(&self, needs: &str) -> String {
        match self.hosts.is_empty() {
            true => "not checked: there are no simulated hosts without a fault".to_owned(),
            false => format!("the history does not show {needs}"),
        }
    }
}
