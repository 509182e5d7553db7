//! Installation stages: which ones each role has, in which order, and which reports of them the service accepts.

use vlab_api::types::{HostRole, HostStage};

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
pub const fn stages_of(role: StageRole) -> &'static [HostStage] {
    use HostStage::*;
    match role {
        StageRole::Bootstrap => &[
            StartingInstallation,
            Installing,
            WritingImageToDisk,
            CopyingRegistryDataToDisk,
            WaitingForControlPlane,
            WaitingForBootkube,
            WaitingForController,
            Rebooting,
            Configuring,
            Joined,
            Done,
        ],
        StageRole::Master => &[
            StartingInstallation,
            Installing,
            WritingImageToDisk,
            CopyingRegistryDataToDisk,
            Rebooting,
            Configuring,
            Joined,
            Done,
        ],
        StageRole::Worker => &[
            StartingInstallation,
            Installing,
            WritingImageToDisk,
            WaitingForControlPlane,
            Rebooting,
            WaitingForIgnition,
            Configuring,
            Joined,
            Done,
        ],
        StageRole::SingleNode => &[
            StartingInstallation,
            Installing,
            WaitingForBootkube,
            WritingImageToDisk,
            CopyingRegistryDataToDisk,
            Rebooting,
            Joined,
            Done,
        ],
    }
}

/// Which list that host has.
pub fn role_of(host: &HostView, cluster: Option<&ClusterView>) -> StageRole {
    if host.is_day2() {
        return StageRole::Worker;
    }
    if cluster.is_some_and(ClusterView::is_sno) {
        return StageRole::SingleNode;
    }
    role_of_kind(host.effective_role(), host.is_bootstrap())
}

/// The list of a host of a multi-node cluster.
pub const fn role_of_kind(role: HostRole, bootstrap: bool) -> StageRole {
    match role {
        _ if bootstrap => StageRole::Bootstrap,
        HostRole::Bootstrap => StageRole::Bootstrap,
        HostRole::Master | HostRole::Arbiter => StageRole::Master,
        HostRole::Worker | HostRole::AutoAssign => StageRole::Worker,
    }
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
pub fn percentage(role: StageRole, stage: HostStage) -> i64 {
    match index(role, stage) {
        Some(index) => ((index + 1) * 100 / stages_of(role).len()) as i64,
        None => 0,
    }
}

/// What the service makes of a report of `stage` with the text `info`, when the host has reported `current` last.
///
/// The first report of a host is not checked at all: a stage that its role does not have is taken and counts for 0 %.
/// `Failed` is taken at any time.
pub fn judge(role: StageRole, current: Option<(HostStage, &str)>, stage: HostStage, info: &str) -> Report {
    if stage == HostStage::Failed {
        return Report::Failed;
    }
    let Some((present, present_info)) = current else {
        return Report::Accepted { percentage: percentage(role, stage) };
    };
    if stage == present {
        return if info == present_info { Report::Same } else { Report::InfoOnly };
    }
    match (index(role, present), index(role, stage)) {
        (_, None) => Report::NotOfRole { role },
        (Some(had), Some(new)) if new < had => Report::Lower { current: present },
        (_, Some(_)) => Report::Accepted { percentage: percentage(role, stage) },
    }
}

/// The stage that is stored for a report: in an adding-hosts cluster a host that reboots is done, unless the service runs
/// under Kubernetes.
pub fn stored_stage(stage: HostStage, day2: bool, kube_api: bool) -> HostStage {
    if day2 && !kube_api && stage == HostStage::Rebooting { HostStage::Done } else { stage }
}
