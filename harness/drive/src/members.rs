//! Who belongs to whom in a scenario. A run asks for it with every change of a host, and a scenario may have a hundred thousand of
//! them: it is looked up and not searched for.

use std::collections::HashMap;

use vlab_scenario::{Host, Scenario};

/// Positions of a scenario's hosts and clusters, by names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    /// Hosts of each cluster, by the cluster's name, in the scenario's order.
    of: HashMap<String, Vec<usize>>,
    /// Hosts of each cluster, and those that are bound to it at some time.
    ever: HashMap<String, Vec<usize>>,
    /// Hosts of no cluster.
    pool: Vec<usize>,
    /// Which of its cluster's hosts, or of the pool's, each host is.
    places: Vec<usize>,
    hosts: HashMap<String, usize>,
    clusters: HashMap<String, usize>,
}

impl Members {
    /// Reads a scenario once.
    pub(crate) fn of_scenario(scenario: &Scenario) -> Self {
        let mut members = Self::default();
        for (position, cluster) in scenario.clusters.iter().enumerate() {
            members.clusters.entry(cluster.name.clone()).or_insert(position);
        }
        for host in &scenario.hosts {
            let group = match &host.cluster {
                Some(name) => members.of.entry(name.clone()).or_default(),
                None => &mut members.pool,
            };
            members.places.push(group.len());
            group.push(host.index);
            let mut clusters: Vec<&String> = host.cluster.iter().chain(&host.bound_to).collect();
            clusters.sort_unstable();
            clusters.dedup();
            for name in clusters {
                members.ever.entry(name.clone()).or_default().push(host.index);
            }
            members.hosts.entry(host.name.clone()).or_insert(host.index);
        }
        members
    }

    /// Hosts of a cluster, or of none.
    pub(crate) fn of(&self, cluster: Option<&str>) -> &[usize] {
        match cluster {
            Some(name) => self.of.get(name).map_or(&[], Vec::as_slice),
            None => &self.pool,
        }
    }

    /// Hosts that are in that cluster from the beginning or are bound to it.
    pub(crate) fn ever(&self, cluster: &str) -> &[usize] {
        self.ever.get(cluster).map_or(&[], Vec::as_slice)
    }

    /// Which of its cluster's hosts, or of the pool's, it is, from 0.
    pub(crate) fn place(&self, host: &Host) -> usize {
        self.places.get(host.index).copied().unwrap_or_default()
    }

    /// Position of the host with that name.
    pub(crate) fn host(&self, name: &str) -> Option<usize> {
        self.hosts.get(name).copied()
    }

    /// Position of the cluster with that name.
    pub(crate) fn cluster(&self, name: &str) -> Option<usize> {
        self.clusters.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use vlab_scenario::Catalogue;

    use super::*;

    #[test]
    fn what_is_looked_up_is_what_would_be_found() {
        let catalogue = Catalogue::embedded();
        for entry in catalogue.list() {
            let scenario = vlab_scenario::load(&catalogue.find(&entry.name).unwrap(), &catalogue).unwrap();
            let members = Members::of_scenario(&scenario);
            let names = scenario.clusters.iter().map(|c| Some(c.name.as_str())).chain([None]);
            for name in names {
                let found: Vec<usize> = scenario.hosts_of(name).map(|h| h.index).collect();
                assert_eq!(members.of(name), found, "{} {name:?}", entry.name);
                let Some(name) = name else { continue };
                let is_in = |h: &&Host| h.cluster.as_deref() == Some(name) || h.bound_to.iter().any(|b| b == name);
                let found: Vec<usize> = scenario.hosts.iter().filter(is_in).map(|h| h.index).collect();
                assert_eq!(members.ever(name), found, "{} {name}", entry.name);
                assert_eq!(members.cluster(name), scenario.clusters.iter().position(|c| c.name == name));
            }
            for host in &scenario.hosts {
                let found = scenario.hosts_of(host.cluster.as_deref()).position(|h| h.index == host.index);
                assert_eq!(Some(members.place(host)), found, "{} {}", entry.name, host.name);
                assert_eq!(members.host(&host.name), scenario.host(&host.name).map(|h| h.index));
            }
        }
    }
}
