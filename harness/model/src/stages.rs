//! Installation stages: which ones each role has, in which order, and which reports of them the service accepts.

use vlab_api::types::HostStage;

use crate::view::{ClusterView, HostView};

/// Which list of stages a host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StageRole {
    /// The bootstrap of a multi-node cluster.
    Bootstrap,
    /// Any other master, and arbiters.
    Master,
    /// Workers, and every host of an adding-hosts cluster.
    Worker,
    /// The only node of a single-node cluster.
    SingleNode,
}

/// What the service makes of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A new stage. `percentage` is the host's installation percentage from now on.
    Accepted {
        /// Installation percentage, 0 when the stage is not in the role's list.
        percentage: i64,
    },
    /// The stage is the present one and the text differs: only the text and the stage timer change.
    InfoOnly,
    /// Nothing new: 200, nothing is written.
    Same,
    /// `Failed`: the host goes to `error`, its progress stays.
    Failed,
    /// A stage before the present one: 409.
    Lower {
        /// Present stage.
        current: HostStage,
    },
    /// A stage that the host's role does not have: 409.
    NotOfRole {
        /// The host's list.
        role: StageRole,
    },
}

/// Stages of that role, in order.
pub fn stages_of(_role: StageRole) -> &'static [HostStage] {
    unimplemented!("stage lists")
}

/// Which list that host has.
pub fn role_of(_host: &HostView, _cluster: Option<&ClusterView>) -> StageRole {
    unimplemented!("stage role")
}

/// Stages of that host, in order.
pub fn role_stages(host: &HostView, cluster: Option<&ClusterView>) -> &'static [HostStage] {
    stages_of(role_of(host, cluster))
}

/// Position of a stage in its role's list.
pub fn index(role: StageRole, stage: HostStage) -> Option<usize> {
    stages_of(role).iter().position(|s| *s == stage)
}

/// Installation percentage of a host in that stage; 0 when the role does not have it.
pub fn percentage(_role: StageRole, _stage: HostStage) -> i64 {
    unimplemented!("percentage")
}

/// What the service makes of a report of `stage` with the text `info`, when the host has reported `current` last.
pub fn judge(_role: StageRole, _current: Option<(HostStage, &str)>, _stage: HostStage, _info: &str) -> Report {
    unimplemented!("legality of a report")
}

/// The stage that is stored for a report: in an adding-hosts cluster a host that reboots is done, unless the service runs
/// under Kubernetes.
pub fn stored_stage(stage: HostStage, day2: bool, kube_api: bool) -> HostStage {
    if day2 && !kube_api && stage == HostStage::Rebooting { HostStage::Done } else { stage }
}
