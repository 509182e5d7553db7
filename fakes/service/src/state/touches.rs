//! When clusters and hosts of the pool were last touched: what the real service keeps as `trigger_monitor_timestamp`, and its monitors ask
//! for. What hosts found out (inventories, whom they reach, times) touches nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;

use crate::rows::{ClusterRow, HostRow};

/// The moments; kept only where somebody wants to know.
#[derive(Debug, Default)]
pub(crate) struct Touches(Option<BTreeMap<Uuid, Timestamp>>);

impl Touches {
    /// From now on they are kept.
    pub(crate) fn begin(&mut self) {
        self.0 = Some(BTreeMap::new());
    }

    /// Of the cluster with that id, or of hosts of the infra-env with that id that are in no cluster.
    pub(crate) fn of(&self, id: Uuid) -> Option<Timestamp> {
        self.0.as_ref()?.get(&id).copied()
    }

    pub(super) fn of_cluster(&mut self, old: Option<&Arc<ClusterRow>>, new: &ClusterRow, now: Timestamp) {
        if let Some(touches) = &mut self.0
            && old.is_none_or(|old| cluster_is_touched(old, new))
        {
            touches.insert(new.view.cluster.id, now);
        }
    }

    pub(super) fn of_host(&mut self, old: Option<&Arc<HostRow>>, new: &HostRow, now: Timestamp) {
        if let Some(touches) = &mut self.0
            && old.is_none_or(|old| host_is_touched(old, new))
        {
            touches.insert(new.host().cluster_id.unwrap_or(new.infra_env_id()), now);
        }
    }
}

fn cluster_is_touched(old: &ClusterRow, new: &ClusterRow) -> bool {
    let (old, new) = (&old.view.cluster, &new.view.cluster);
    old.status != new.status
        || old.name != new.name
        || old.api_vips != new.api_vips
        || old.ingress_vips != new.ingress_vips
        || old.machine_networks != new.machine_networks
        || old.progress != new.progress
}

fn host_is_touched(old: &HostRow, new: &HostRow) -> bool {
    let (old, new) = (old.host(), new.host());
    old.status != new.status
        || old.cluster_id != new.cluster_id
        || old.role != new.role
        || old.requested_hostname != new.requested_hostname
        || old.installation_disk_id != new.installation_disk_id
        || old.domain_name_resolutions != new.domain_name_resolutions
}
