//! The last look at lists, and at hosts one by one: what they show is what a look at the cluster shows, and nobody is left out.

use vlab_api::types::Host;

use super::*;

/// So many hosts are looked at in lists, and so many one by one: with thousands it would only take time.
const LISTED: usize = 200;
const ONE_BY_ONE: usize = 20;

/// What the last look at clusters showed, with which lists are compared.
#[derive(Debug, Default)]
pub(super) struct LastLists {
    /// Hosts that a cluster had.
    hosts: BTreeSet<Uuid>,
    /// Of what it was asked again because something was missing: it may have come or gone in between.
    again: BTreeSet<String>,
}

impl LastLists {
    /// A cluster has these hosts.
    pub(super) fn saw(&mut self, hosts: impl Iterator<Item = Uuid>) {
        self.hosts.extend(hosts);
    }
}

impl User {
    /// Lists come last: they are compared with what was shown before.
    pub(super) fn queue_lists(&mut self) {
        // Where states are known from looks alone there is nothing with which to compare.
        if self.config.events_tell_states || self.hosts.len() > LISTED {
            return;
        }
        if self.clusters.iter().any(|cluster| cluster.id.is_some()) {
            self.look_queue.push_back(Look::Clusters);
        }
        for whose in (0..self.clusters.len()).map(Whose::Cluster).chain([Whose::Pool]) {
            if self.state(whose).infra_env.is_some() && !self.state(whose).gone {
                self.look_queue.push_back(Look::Hosts(whose));
            }
        }
    }

    /// The list of clusters. Others may have some at the same service.
    pub(super) fn saw_clusters(&mut self, listed: &[Cluster]) {
        for cluster in listed {
            if let Some(&index) = self.cluster_index.get(&cluster.id) {
                self.saw_cluster_itself(index, cluster);
            }
        }
        let left_out = self.clusters.iter().filter(|cluster| !cluster.gone && cluster.facts.is_some());
        let left_out = left_out.filter_map(|cluster| cluster.id).filter(|id| listed.iter().all(|c| c.id != *id));
        for id in left_out.collect::<Vec<_>>() {
            self.left_out("v2ListClusters", "cluster", id);
        }
    }

    /// The list of an infra-env's hosts.
    pub(super) fn saw_hosts(&mut self, whose: Whose, listed: &[Host]) {
        let seen: BTreeSet<usize> = listed.iter().filter_map(|host| self.saw_host(host)).collect();
        let of_it: Vec<usize> = self.members_of(whose).map(|host| host.index).collect();
        let shown = |index: &usize| self.lists.hosts.contains(&self.hosts[*index].id);
        let lacking: Vec<usize> = of_it.iter().copied().filter(|index| shown(index) && !seen.contains(index)).collect();
        if !lacking.is_empty() {
            return self.lacks("v2ListHosts", Look::Hosts(whose), &lacking);
        }
        if self.hosts.len() <= ONE_BY_ONE {
            self.look_queue.extend(of_it.into_iter().filter(|index| seen.contains(index)).map(Look::Host));
        }
    }

    /// An answer lacks hosts that were shown a moment ago. They may have been taken away since: their cluster is looked at once more.
    pub(super) fn lacks(&mut self, of: &str, look: Look, hosts: &[usize]) {
        if self.lists.again.insert(format!("{look:?}")) {
            for index in hosts {
                let id = self.hosts[*index].id;
                self.lists.hosts.remove(&id);
                let cluster = self.hosts[*index].facts.as_ref().and_then(|facts| facts.cluster_id);
                if let Some(cluster) = cluster.and_then(|id| self.cluster_index.get(&id)) {
                    self.look_queue.push_back(Look::Cluster(*cluster));
                }
            }
            self.look_queue.push_back(look);
            return;
        }
        for index in hosts {
            let id = self.hosts[*index].id;
            if self.lists.hosts.contains(&id) {
                self.left_out(of, "host", id);
            }
        }
    }

    fn left_out(&mut self, of: &str, what: &str, subject: Uuid) {
        let error = format!("it lacks this {what}, which v2GetCluster shows");
        let what = What::Unreadable { subject: Some(subject), of: format!("the answer of {of}"), error };
        self.seen.push(Seen { source: Source::Poll, service_time: None, what });
    }
}
