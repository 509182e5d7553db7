//! A batch of writes reduced to few statements without losing what an observer of the tables would see.
//!
//! Polls, events and files are collected per batch, the last one of a key wins. Rows of clusters, infra-envs and hosts keep their
//! order, as runs of the same kind: whoever watches the tables sees each status that a host went through, and sees a
//! host's change before the cluster's that followed from it, even when both are in one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Cluster, Host};

use vlab_service::{ClusterRow, EventRow, HostRow, InfraEnvRow, Write};

/// Rows of one table to put or to delete; no key is in a step twice.
#[derive(Clone, Debug)]
pub(crate) enum RowStep {
    PutClusters(Vec<Arc<ClusterRow>>),
    DeleteClusters(Vec<Uuid>),
    PutInfraEnvs(Vec<Arc<InfraEnvRow>>),
    DeleteInfraEnvs(Vec<Uuid>),
    PutHosts(Vec<Arc<HostRow>>),
    /// (infra-env, host)
    DeleteHosts(Vec<(Uuid, Uuid)>),
}

/// What a batch comes to: the steps in order, then the rest in any order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folded {
    pub(crate) steps: Vec<RowStep>,
    /// (infra-env, host) to the new `checked_in_at`, and `timestamp` where it changes.
    pub(crate) heartbeats: BTreeMap<(Uuid, Uuid), (Timestamp, Option<i64>)>,
    pub(crate) events: Vec<EventRow>,
    /// `None`: removed.
    pub(crate) files: BTreeMap<String, Option<Arc<[u8]>>>,
}

/// Where the last write of a key is.
#[derive(Clone, Copy)]
enum Last {
    Put { step: usize, row: usize },
    Deleted { step: usize },
}

impl Last {
    fn step(self) -> usize {
        match self {
            Last::Put { step, .. } | Last::Deleted { step } => step,
        }
    }
}

/// Adds to the last step when it is of that kind and does not hold the key yet, else begins a new one. Gives its position and
/// that of the new row.
macro_rules! push {
    ($out:expr, $last:expr, $kind:ident, $item:expr) => {{
        let held = $last.is_some_and(|l: Last| l.step() + 1 == $out.steps.len());
        match $out.steps.last_mut() {
            Some(RowStep::$kind(rows)) if !held => rows.push($item),
            _ => $out.steps.push(RowStep::$kind(vec![$item])),
        }
        let step = $out.steps.len() - 1;
        let row = match &$out.steps[step] {
            RowStep::$kind(rows) => rows.len() - 1,
            _ => 0,
        };
        (step, row)
    }};
}

/// Replaces the row of an earlier put that an observer could not tell from this one.
macro_rules! replace {
    ($out:expr, $last:expr, $kind:ident, $item:expr, $same:expr) => {
        match $last {
            Some(Last::Put { step, row }) => match &mut $out.steps[step] {
                RowStep::$kind(rows) if $same(&rows[row], &$item) => {
                    rows[row] = $item.clone();
                    true
                }
                _ => false,
            },
            _ => false,
        }
    };
}

/// Reduces a batch.
pub(crate) fn fold(writes: Vec<Write>) -> Folded {
    let mut out = Folded::default();
    let mut clusters: BTreeMap<Uuid, Last> = BTreeMap::new();
    let mut infra_envs: BTreeMap<Uuid, Last> = BTreeMap::new();
    let mut hosts: BTreeMap<(Uuid, Uuid), Last> = BTreeMap::new();
    for write in writes {
        match write {
            Write::PutCluster(row) => {
                let id = row.view.cluster.id;
                let last = clusters.get(&id).copied();
                let same = |a: &Arc<ClusterRow>, b: &Arc<ClusterRow>| same_cluster(&a.view.cluster, &b.view.cluster);
                if !replace!(out, last, PutClusters, row, same) {
                    let (step, row) = push!(out, last, PutClusters, row);
                    clusters.insert(id, Last::Put { step, row });
                }
            }
            Write::DeleteCluster(id) => {
                let (step, _) = push!(out, clusters.get(&id).copied(), DeleteClusters, id);
                clusters.insert(id, Last::Deleted { step });
            }
            Write::PutInfraEnv(row) => {
                let id = row.infra_env.id;
                let last = infra_envs.get(&id).copied();
                if !replace!(out, last, PutInfraEnvs, row, |_: &Arc<InfraEnvRow>, _: &Arc<InfraEnvRow>| true) {
                    let (step, row) = push!(out, last, PutInfraEnvs, row);
                    infra_envs.insert(id, Last::Put { step, row });
                }
            }
            Write::DeleteInfraEnv(id) => {
                let (step, _) = push!(out, infra_envs.get(&id).copied(), DeleteInfraEnvs, id);
                infra_envs.insert(id, Last::Deleted { step });
            }
            Write::PutHost(row) => {
                let key = (row.infra_env_id(), row.view.host.id);
                // The row says all, an earlier poll included.
                out.heartbeats.remove(&key);
                let last = hosts.get(&key).copied();
                let same = |a: &Arc<HostRow>, b: &Arc<HostRow>| same_host(&a.view.host, &b.view.host);
                if !replace!(out, last, PutHosts, row, same) {
                    let (step, row) = push!(out, last, PutHosts, row);
                    hosts.insert(key, Last::Put { step, row });
                }
            }
            Write::DeleteHost { infra_env_id, host_id } => {
                let key = (infra_env_id, host_id);
                out.heartbeats.remove(&key);
                let (step, _) = push!(out, hosts.get(&key).copied(), DeleteHosts, key);
                hosts.insert(key, Last::Deleted { step });
            }
            Write::Heartbeat { infra_env_id, host_id, checked_in_at, timestamp } => {
                let key = (infra_env_id, host_id);
                // A host that this batch removed has no heart.
                if !matches!(hosts.get(&key), Some(Last::Deleted { .. })) {
                    let earlier = out.heartbeats.get(&key).and_then(|(_, t)| *t);
                    out.heartbeats.insert(key, (checked_in_at, timestamp.or(earlier)));
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

/// Would an observer of the tables miss nothing when `b` took the place of `a`?
fn same_host(a: &Host, b: &Host) -> bool {
    a.status == b.status
        && a.status_info == b.status_info
        && a.cluster_id == b.cluster_id
        && a.role == b.role
        && a.suggested_role == b.suggested_role
        && a.bootstrap == b.bootstrap
        && a.progress == b.progress
        && a.validations_info == b.validations_info
}

/// The same for clusters.
fn same_cluster(a: &Cluster, b: &Cluster) -> bool {
    a.status == b.status
        && a.status_info == b.status_info
        && a.progress == b.progress
        && a.monitored_operators == b.monitored_operators
        && a.validations_info == b.validations_info
}

#[cfg(test)]
mod tests {
    use super::*;
    use vlab_api::types::HostStatus;

    fn host(id: u128, status: HostStatus, hostname: &str) -> Write {
        let mut row = HostRow::default();
        row.view.host.id = Uuid::from_u128(id);
        row.view.host.infra_env_id = Some(Uuid::from_u128(9));
        row.view.host.status = status;
        row.view.host.requested_hostname = Some(hostname.into());
        Write::PutHost(Arc::new(row))
    }

    fn shape(folded: &Folded) -> Vec<String> {
        folded
            .steps
            .iter()
            .map(|s| match s {
                RowStep::PutHosts(rows) => rows
                    .iter()
                    .map(|r| {
                        let h = &r.view.host;
                        format!("{}={}/{}", h.id.as_u128(), h.status, h.requested_hostname.as_deref().unwrap_or(""))
                    })
                    .collect::<Vec<_>>()
                    .join(" "),
                RowStep::PutClusters(rows) => format!("{} clusters", rows.len()),
                RowStep::DeleteHosts(keys) => {
                    format!("-{}", keys.iter().map(|k| k.1.as_u128().to_string()).collect::<Vec<_>>().join(" -"))
                }
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn every_status_and_the_order_between_tables_survive() {
        use HostStatus::{Discovering, Insufficient, Known};
        let folded = fold(vec![
            host(1, Discovering, "a"),
            host(2, Discovering, "b"),
            host(1, Discovering, "renamed"),
            host(1, Insufficient, "renamed"),
            Write::PutCluster(Arc::default()),
            host(1, Known, "renamed"),
            host(2, Known, "b"),
        ]);
        assert_eq!(
            shape(&folded),
            [
                "1=discovering/renamed 2=discovering/b",
                "1=insufficient/renamed",
                "1 clusters",
                "1=known/renamed 2=known/b"
            ]
        );
    }

    #[test]
    fn a_host_that_comes_back_is_put_after_it_was_deleted() {
        use HostStatus::Discovering;
        let delete = Write::DeleteHost { infra_env_id: Uuid::from_u128(9), host_id: Uuid::from_u128(1) };
        let folded =
            fold(vec![host(1, Discovering, "a"), delete.clone(), host(1, Discovering, "a"), delete.clone(), delete]);
        assert_eq!(shape(&folded), ["1=discovering/a", "-1", "1=discovering/a", "-1", "-1"]);
    }
}
