//! Who is left alone: what simulated hosts and controllers do wrong without a fault is their own doing.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vlab_history::Timeline;
use vlab_model::history::{FaultPhase, HostsKind, Interleaved, What};

/// Faults of a cluster that leave its controller as it is, and give it longer to do.
const ONLY_LATE: &[&str] = &["operator-degraded", "finalizing-stuck"];

/// Simulated hosts, and clusters of such, to which nothing is done.
pub(super) struct Calm {
    hosts: BTreeSet<Uuid>,
    clusters: BTreeSet<Uuid>,
    /// Clusters whose controller was given longer to do.
    late: BTreeSet<Uuid>,
}

impl Calm {
    pub(super) fn new(timeline: &Timeline<'_>) -> Self {
        let cluster_of = |host: &Uuid| timeline.directory.cluster_of.get(host).copied();
        let mut calm = Self { hosts: BTreeSet::new(), clusters: BTreeSet::new(), late: BTreeSet::new() };
        for o in timeline.observations {
            if let What::HostNamed { host, kind: HostsKind::Simulated, .. } = o.what {
                calm.hosts.insert(host);
                calm.clusters.extend(cluster_of(&host));
            }
        }
        // Only the beginning of a fault says of which kind it is.
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        for o in timeline.observations {
            if let What::Interleaved { did, detail } = &o.what {
                calm.interleaved(*did, detail, cluster_of);
            }
            let What::Fault { name, phase: phase @ (FaultPhase::Begin | FaultPhase::Effect), .. } = &o.what else {
                continue;
            };
            let What::Fault { inject, host, cluster, .. } = &o.what else { continue };
            if *phase == FaultPhase::Begin {
                kinds.insert(name, inject);
            }
            // Whoever has the id is two hosts then.
            let of_all = kinds.get(name.as_str()) == Some(&"duplicate-id");
            // Hosts do not ask a hub's API server.
            if kinds.get(name.as_str()).is_some_and(|kind| kind.starts_with("kube-")) {
                continue;
            }
            match (host, cluster) {
                _ if of_all => calm.nobody(),
                // Of the service or of the way to it: whoever asks is hit.
                (None, None) => calm.nobody(),
                (None, Some(cluster)) => {
                    calm.hosts.retain(|host| cluster_of(host) != Some(*cluster));
                    match kinds.get(name.as_str()).is_some_and(|kind| ONLY_LATE.contains(kind)) {
                        true => _ = calm.late.insert(*cluster),
                        false => _ = calm.clusters.remove(cluster),
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

    fn nobody(&mut self) {
        self.hosts.clear();
        self.clusters.clear();
    }

    /// Whose request was lost or came twice has to say it again, or has said it twice.
    fn interleaved(&mut self, did: Interleaved, request: &str, cluster_of: impl Fn(&Uuid) -> Option<Uuid>) {
        if did == Interleaved::Killed {
            return self.nobody();
        }
        let ids = request.split(['/', '?']).filter_map(|part| part.parse::<Uuid>().ok());
        for id in ids {
            self.clusters.remove(&id);
            if self.hosts.remove(&id)
                && let Some(cluster) = cluster_of(&id)
            {
                self.clusters.remove(&cluster);
            }
        }
    }

    /// It is simulated, and nothing was done to it or to its cluster as a whole.
    pub(super) fn host(&self, host: Uuid) -> bool {
        self.hosts.contains(&host)
    }

    /// Its hosts are simulated, and nothing was done to them or to it, but that it has longer to wait.
    pub(super) fn cluster(&self, cluster: Uuid) -> bool {
        self.clusters.contains(&cluster)
    }

    /// Was its controller given longer to do?
    pub(super) fn is_late(&self, cluster: Uuid) -> bool {
        self.late.contains(&cluster)
    }

    /// Why nothing was judged.
    pub(super) fn reason(&self, needs: &str) -> String {
        match self.hosts.is_empty() {
            true => "not checked: there are no simulated hosts without a fault".to_owned(),
            false => format!("the history does not show {needs}"),
        }
    }
}
