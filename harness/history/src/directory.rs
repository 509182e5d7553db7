//! Who is who in a history, as far as it has been read. The one fold of names, clusters and roles: what follows a run while it
//! goes on feeds it one observation after the other, and a [`crate::timeline::Timeline`] all of them.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vlab_api::types::HostRole;
use vlab_model::history::{Observation, Source, What};

/// Ids of the scenario's hosts and clusters, and the clusters and roles that hosts have.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Where states are taken from.
    pub state_source: Option<Source>,
    /// Host ids by name.
    pub hosts: BTreeMap<String, Uuid>,
    /// Names by host id.
    pub host_names: BTreeMap<Uuid, String>,
    /// Cluster ids by name.
    pub clusters: BTreeMap<String, Uuid>,
    /// Names by cluster id.
    pub cluster_names: BTreeMap<Uuid, String>,
    /// Role of each host, and whether it is the bootstrap, as last seen.
    pub roles: BTreeMap<Uuid, (HostRole, bool)>,
    /// Cluster of each host, as last seen.
    pub cluster_of: BTreeMap<Uuid, Uuid>,
}

impl Directory {
    /// Knows nobody yet; takes states from that source.
    pub fn new(state_source: Source) -> Self {
        Self { state_source: Some(state_source), ..Self::default() }
    }

    /// Takes in who is who.
    pub fn observe(&mut self, observation: &Observation) {
        match &observation.what {
            What::HostNamed { host, name, .. } => {
                self.hosts.insert(name.clone(), *host);
                self.host_names.insert(*host, name.clone());
            }
            What::ClusterNamed { cluster, name, .. } => {
                self.clusters.insert(name.clone(), *cluster);
                self.cluster_names.insert(*cluster, name.clone());
            }
            What::HostRole { host, role, bootstrap } if self.counts(observation.source) => {
                self.roles.insert(*host, (*role, *bootstrap));
            }
            What::HostStatus { host, cluster, .. } if self.counts(observation.source) => match cluster {
                Some(cluster) => {
                    self.cluster_of.insert(*host, *cluster);
                }
                None => {
                    self.cluster_of.remove(host);
                }
            },
            _ => {}
        }
    }

    /// Is that the source that states are taken from?
    pub fn counts(&self, source: Source) -> bool {
        self.state_source.is_some_and(|truth| source.tells_states(truth))
    }

    /// The hosts of that cluster whose role (with "is the bootstrap") is one of those.
    pub fn hosts_with_role(&self, cluster: Uuid, wanted: impl Fn(HostRole, bool) -> bool) -> BTreeSet<Uuid> {
        let of_cluster = |host: &Uuid| self.cluster_of.get(host) == Some(&cluster);
        self.roles
            .iter()
            .filter(|(host, (role, bootstrap))| of_cluster(host) && wanted(*role, *bootstrap))
            .map(|(host, _)| *host)
            .collect()
    }

    /// Its name in the scenario, else its id.
    pub fn name(&self, id: Uuid) -> String {
        self.host_names.get(&id).or_else(|| self.cluster_names.get(&id)).cloned().unwrap_or_else(|| id.to_string())
    }
}
