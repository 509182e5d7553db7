//! When everything has come to rest: nobody is in a status that must be left again, and nobody's status or stage changed for a while.

use std::collections::BTreeMap;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostStatus};
use vlab_history::Directory;
use vlab_model::history::What;

/// Must a host leave that status again, whatever the user does?
pub(crate) const fn host_moves(status: HostStatus) -> bool {
    use HostStatus::*;
    matches!(
        status,
        PreparingForInstallation
            | PreparingFailed
            | PreparingSuccessful
            | Installing
            | InstallingInProgress
            | Resetting
            | Binding
            | Unbinding
            | Reclaiming
            | ReclaimingRebooting
    )
}

/// Must a cluster leave that status again, whatever the user does?
pub(crate) const fn cluster_moves(status: ClusterStatus) -> bool {
    use ClusterStatus::*;
    matches!(status, PreparingForInstallation | Installing | Finalizing)
}

/// Who moves, and when somebody did last.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    moving: BTreeMap<Uuid, &'static str>,
    since: Option<Timestamp>,
}

impl Rest {
    /// Something was observed; `tells`: its source is the one that states are taken from.
    pub(crate) fn see(&mut self, now: Timestamp, what: &What, tells: bool) {
        let (id, moves) = match what {
            What::HostStatus { host, to, .. } if tells => (*host, host_moves(*to).then(|| to.as_str())),
            What::ClusterStatus { cluster, to, .. } if tells => (*cluster, cluster_moves(*to).then(|| to.as_str())),
            What::HostDeleted { host } => (*host, None),
            What::HostStage { .. }
            | What::ClusterFinalizingStage { .. }
            | What::UserAction { .. }
            | What::Fault { .. } => {
                self.since = Some(now);
                return;
            }
            _ => return,
        };
        self.since = Some(now);
        match moves {
            Some(status) => self.moving.insert(id, status),
            None => self.moving.remove(&id),
        };
    }

    /// Is nobody in a status that must be left again?
    pub(crate) fn is_still(&self) -> bool {
        self.moving.is_empty()
    }

    /// When something changed last.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        self.since
    }

    /// Who moves, in words.
    pub(crate) fn moving(&self, directory: &Directory) -> Vec<String> {
        let mut all: Vec<String> = self
            .moving
            .iter()
            .map(|(id, status)| {
                let name = directory.cluster_names.get(id).cloned().unwrap_or_else(|| directory.name(*id));
                format!("{name} to leave {status}")
            })
            .collect();
        if all.is_empty() {
            all.push("a time without a change".to_owned());
        }
        all
    }
}
