//! Requests that a state machine decides about: the model says what follows, the core carries it out.

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_model::cluster::{self, ClusterEvent, ClusterWrong};
use vlab_model::host::{self, EventArgs, HostEvent, HostWrong};
use vlab_model::view::{HostView, Scope};

use crate::Core;
use crate::alteration::Alteration;
use crate::commands::clusters::find_to_change;
use crate::refusal::Refusal;
use crate::state::HostKey;

/// What the real service says when a machine has no row for a request.
pub(crate) const NO_TRANSITION: &str = "no condition found to run transition";

impl Core {
    /// What is wrong on purpose with the machines of hosts.
    pub(crate) fn hosts_wrong(&self) -> Option<HostWrong> {
        match self.config.alteration {
            Some(Alteration::Hosts(wrong)) => Some(wrong),
            _ => None,
        }
    }

    /// The same of clusters.
    pub(crate) fn clusters_wrong(&self) -> Option<ClusterWrong> {
        match self.config.alteration {
            Some(Alteration::Clusters(wrong)) => Some(wrong),
            _ => None,
        }
    }

    /// Lets something happen to a host by its machine; nothing when no row fits. Returns whether a row fitted.
    pub(crate) fn host_machine(&mut self, now: Timestamp, key: HostKey, event: HostEvent, reason: &str) -> bool {
        let Some(row) = self.state.host(key).cloned() else { return false };
        let Some(infra_env) = self.state.infra_env(key.0).cloned() else { return false };
        let (cluster, hosts) = self.neighbours(&row);
        let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
        let scope =
            Scope { infra_env: &infra_env.infra_env, cluster: cluster.as_ref().map(|c| &c.view), hosts: &views };
        let args = EventArgs { reason, wrong: self.hosts_wrong(), ..EventArgs::default() };
        match host::on_event(event, &row.view, &scope, &self.config.settings, now, &args) {
            Ok(decision) => {
                self.apply_host(now, key, &decision);
                true
            }
            Err(_) => false,
        }
    }

    /// The same for a cluster; where no row fits, that is a refusal.
    pub(crate) fn cluster_machine(&mut self, now: Timestamp, id: Uuid, event: ClusterEvent) -> Result<(), Refusal> {
        let row = find_to_change(self, id)?;
        let hosts = self.state.hosts_of_cluster(id);
        let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
        let args = cluster::EventArgs { wrong: self.clusters_wrong(), ..cluster::EventArgs::default() };
        let decision = cluster::on_event(event, &row.view, &views, &self.config.settings, now, &args)
            .map_err(|_| Refusal::conflict(NO_TRANSITION))?;
        self.apply_cluster(now, id, &decision);
        Ok(())
    }
}
