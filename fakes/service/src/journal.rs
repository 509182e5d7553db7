//! Writing events.

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, Event, Host, HostStatus, Severity};

use crate::Core;
use crate::alteration::Conduct;
use crate::state::{HostKey, user_event};

impl Core {
    /// Writes an event about a cluster.
    pub(crate) fn cluster_event(&mut self, now: Timestamp, id: Uuid, name: &str, severity: Severity, message: String) {
        let event = user_event(now, name, severity, message);
        self.state.append_event(Event { cluster_id: Some(id), ..event });
    }

    /// Writes an event about an infra-env.
    pub(crate) fn infra_env_event(
        &mut self,
        now: Timestamp,
        id: Uuid,
        name: &str,
        severity: Severity,
        message: String,
    ) {
        // Also when it is bound to a cluster: the cluster's list does not tell of it.
        let event = user_event(now, name, severity, message);
        self.state.append_event(Event { infra_env_id: Some(id), ..event });
    }

    /// Writes an event about a host.
    pub(crate) fn host_event(&mut self, now: Timestamp, key: HostKey, name: &str, severity: Severity, message: String) {
        let cluster_id = self.state.host(key).and_then(|r| r.host().cluster_id);
        self.host_event_of(key, cluster_id, user_event(now, name, severity, message));
    }

    /// Writes an event about a host that is in the list of this cluster, or of none, whether the host is in it or not.
    pub(crate) fn host_event_of(&mut self, key: HostKey, cluster_id: Option<Uuid>, event: Event) {
        let cluster_id = cluster_id.filter(|_| !self.does(Conduct::EventsWithoutCluster));
        let host_id = Some(key.1).filter(|_| !self.does(Conduct::EventsWithoutHost));
        self.state.append_event(Event { infra_env_id: Some(key.0), host_id, cluster_id, ..event });
    }

    /// Name of a host in events.
    pub(crate) fn host_name(&self, key: HostKey) -> String {
        self.state.host(key).and_then(|r| r.view.hostname().map(str::to_owned)).unwrap_or_else(|| key.1.to_string())
    }

    /// `host_status_updated`
    pub(crate) fn host_status_event(&mut self, now: Timestamp, key: HostKey, from: HostStatus, to: &Host) {
        let message =
            format!("Host {}: updated status from {from} to {} ({})", self.host_name(key), to.status, to.status_info);
        let severity = vlab_model::event::of_status(to.status);
        self.host_event(now, key, "host_status_updated", severity, message);
    }

    /// `cluster_status_updated`
    pub(crate) fn cluster_status_event(&mut self, now: Timestamp, id: Uuid, to: ClusterStatus, info: &str) {
        let message = format!("Updated status of the cluster to {to} ({info})");
        self.cluster_event(now, id, "cluster_status_updated", Severity::Info, message);
    }
}
