//! A batch of writes reduced to its effect: one entry per key, so that a store needs one statement per table whatever the
//! batch holds, and the order of the statements does not matter.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;

use crate::core::{ClusterRow, EventRow, HostRow, InfraEnvRow, Write};

/// What a batch does to one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostWrite {
    /// `Some(Some)`: replaced; `Some(None)`: removed; `None`: only polled.
    pub(crate) row: Option<Option<Arc<HostRow>>>,
    /// Polled after that: new `checked_in_at`, and `timestamp` where it changes.
    pub(crate) heartbeat: Option<(Timestamp, Option<i64>)>,
}

/// The effect of a batch. `None` as a value: removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folded {
    pub(crate) clusters: BTreeMap<Uuid, Option<Arc<ClusterRow>>>,
    pub(crate) infra_envs: BTreeMap<Uuid, Option<Arc<InfraEnvRow>>>,
    /// By (infra-env, host).
    pub(crate) hosts: BTreeMap<(Uuid, Uuid), HostWrite>,
    pub(crate) events: Vec<EventRow>,
    pub(crate) files: BTreeMap<String, Option<Arc<[u8]>>>,
}

/// Reduces a batch to its effect.
pub(crate) fn fold(writes: Vec<Write>) -> Folded {
    let mut out = Folded::default();
    for write in writes {
        match write {
            Write::PutCluster(row) => {
                out.clusters.insert(row.view.cluster.id, Some(row));
            }
            Write::DeleteCluster(id) => {
                out.clusters.insert(id, None);
            }
            Write::PutInfraEnv(row) => {
                out.infra_envs.insert(row.infra_env.id, Some(row));
            }
            Write::DeleteInfraEnv(id) => {
                out.infra_envs.insert(id, None);
            }
            Write::PutHost(row) => {
                let key = (row.infra_env_id(), row.view.host.id);
                out.hosts.insert(key, HostWrite { row: Some(Some(row)), heartbeat: None });
            }
            Write::DeleteHost { infra_env_id, host_id } => {
                out.hosts.insert((infra_env_id, host_id), HostWrite { row: Some(None), heartbeat: None });
            }
            Write::Heartbeat { infra_env_id, host_id, checked_in_at, timestamp } => {
                let entry = out.hosts.entry((infra_env_id, host_id)).or_default();
                // A host that this batch removed has no heart.
                if !matches!(entry.row, Some(None)) {
                    let earlier = entry.heartbeat.and_then(|(_, t)| t);
                    entry.heartbeat = Some((checked_in_at, timestamp.or(earlier)));
                }
            }
            Write::AppendEvent(row) => out.events.push(row),
            Write::PutFile(row) => {
                out.files.insert(row.key, Some(row.bytes));
            }
            Write::DeleteFile(key) => {
                out.files.insert(key, None);
            }
        }
    }
    out
}
