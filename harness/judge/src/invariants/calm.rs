//! Who is left alone: what simulated hosts and clusters do wrong without a fault is their own doing.

use std::collections::BTreeSet;

use uuid::Uuid;
use vlab_history::Timeline;
use vlab_model::history::{FaultPhase, HostsKind, What};

/// Simulated hosts, and their clusters, to which nothing is done.
pub(super) struct Calm {
    hosts: BTreeSet<Uuid>,
    clusters: BTreeSet<Uuid>,
}

impl Calm {
    pub(super) fn new(timeline: &Timeline<'_>) -> Self {
        let mut calm = Self { hosts: BTreeSet::new(), clusters: timeline.clusters.keys().copied().collect() };
        for o in timeline.observations {
            match o.what {
                What::HostNamed { host, kind: HostsKind::Simulated, .. } => _ = calm.hosts.insert(host),
                What::Fault { phase: FaultPhase::Begin | FaultPhase::Effect, host, cluster, .. } => {
                    let of = cluster.or_else(|| host.and_then(|h| timeline.directory.cluster_of.get(&h).copied()));
                    match (host, of) {
                        // Of the service or of the way to it: whoever asks is hit.
                        (None, None) => {
                            calm.hosts.clear();
                            calm.clusters.clear();
                            return calm;
                        }
                        (None, Some(cluster)) => calm.disturbed(timeline, cluster),
                        (Some(host), of) => {
                            calm.hosts.remove(&host);
                            of.iter().for_each(|cluster| _ = calm.clusters.remove(cluster));
                        }
                    }
                }
                _ => {}
            }
        }
        let is_simulated =
            |id: &Uuid| timeline.directory.cluster_of.iter().any(|(h, c)| c == id && calm.hosts.contains(h));
        calm.clusters.retain(is_simulated);
        calm
    }

    fn disturbed(&mut self, timeline: &Timeline<'_>, cluster: Uuid) {
        self.clusters.remove(&cluster);
        self.hosts.retain(|host| timeline.directory.cluster_of.get(host) != Some(&cluster));
    }

    /// It is simulated, and nothing was done to it or to its cluster as a whole.
    pub(super) fn host(&self, host: Uuid) -> bool {
        self.hosts.contains(&host)
    }

    /// Nothing was done to it or to any of its hosts, which are simulated.
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
