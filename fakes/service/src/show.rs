//! How rows look in answers: what the API leaves out, fills in or computes.

use serde_json::Value;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Cluster, Host, HostProgressInfo, HostRole, HostStatus};
use vlab_model::view::HostView;
use vlab_model::{network, stages};

use crate::Core;
use crate::rows::{ClusterRow, HostRow};

/// Progress of a host that has none: the API writes its dates as "never".
pub(crate) fn no_progress() -> Option<HostProgressInfo> {
    Some(HostProgressInfo {
        stage_started_at: Some(Timestamp::UNSET),
        stage_updated_at: Some(Timestamp::UNSET),
        ..HostProgressInfo::default()
    })
}

/// A host as answers show it: `requested_hostname` is always filled (the installer matches nodes by it), `free_addresses` is
/// blanked, `progress_stages` are those of its role.
fn host(row: &HostRow, cluster: Option<&ClusterRow>, has_controllers: bool) -> Host {
    let view = &row.view;
    let mut host = view.host.clone();
    host.free_addresses = None;
    host.requested_hostname = Some(view.hostname().map_or_else(|| host.id.to_string(), str::to_owned));
    host.progress_stages = Some(match host.role {
        // A host that has no role yet has no stages either.
        Some(HostRole::AutoAssign) | None if host.bootstrap != Some(true) => Vec::new(),
        _ => stages::role_stages(view, cluster.map(|c| &c.view), has_controllers).to_vec(),
    });
    host.deleted_at = Some(Value::Null);
    host
}

impl Core {
    /// A host as answers show it.
    pub(crate) fn show_host(&self, row: &HostRow) -> Host {
        let cluster = row.host().cluster_id.and_then(|id| self.state.cluster(id));
        host(row, cluster.map(|c| &**c), self.has_controllers)
    }

    /// A cluster as answers show it; `None` when there is none.
    pub(crate) fn show_cluster(&self, id: Uuid, with_hosts: bool) -> Option<Cluster> {
        let row = self.state.cluster(id)?;
        let hosts = self.state.hosts_of_cluster(id);
        let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
        let mut cluster = row.view.cluster.clone();
        let count = |wanted: &dyn Fn(HostStatus) -> bool| {
            let n = hosts.iter().filter(|h| wanted(h.host().status)).count() as i64;
            (n > 0).then_some(n)
        };
        cluster.total_host_count = count(&|_| true);
        cluster.enabled_host_count = count(&|s| s != HostStatus::Disabled);
        cluster.ready_host_count = count(&|s| s == HostStatus::Known);
        // With fewer than two workers the masters have to take their load.
        let workers = hosts.iter().filter(|h| h.view.effective_role() == HostRole::Worker).count();
        cluster.schedulable_masters_forced_true = Some(workers < 2);
        cluster.host_networks = Some(network::host_networks(&views));
        cluster.hosts = Some(if with_hosts {
            hosts.iter().map(|h| host(h, Some(row), self.has_controllers)).collect()
        } else {
            Vec::new()
        });
        cluster.deleted_at = Some(Value::Null);
        Some(cluster)
    }
}
