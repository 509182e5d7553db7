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
    /// Workers, and every host of an adding-hosts cluster that controllers follow.
    Worker,
    /// A host of an adding-hosts cluster where no controllers follow it: a worker up to its reboot.
    Added,
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
        StageRole::Added => &[StartingInstallation, Installing, WritingImageToDisk, WaitingForControlPlane, Rebooting],
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
/// `followed`: controllers follow hosts that are added beyond their reboot.
pub fn role_of(host: &HostView, cluster: Option<&ClusterView>, followed: bool) -> StageRole {
    if host.is_day2() {
        return if followed { StageRole::Worker } else { StageRole::Added };
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
pub fn role_stages(host: &HostView, cluster: Option<&ClusterView>, followed: bool) -> &'static [HostStage] {
    stages_of(role_of(host, cluster, followed))
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const ROLES: [StageRole; 5] =
        [StageRole::Bootstrap, StageRole::Master, StageRole::Worker, StageRole::Added, StageRole::SingleNode];

    #[rstest]
    #[case::first(StageRole::Master, None, HostStage::StartingInstallation, "master", Report::Accepted { percentage: 12 })]
    #[case::next(StageRole::Master, Some(HostStage::Installing), HostStage::WritingImageToDisk, "", Report::Accepted { percentage: 37 })]
    #[case::skips(StageRole::Master, Some(HostStage::StartingInstallation), HostStage::Done, "", Report::Accepted { percentage: 100 })]
    #[case::percent(
        StageRole::Master,
        Some(HostStage::WritingImageToDisk),
        HostStage::WritingImageToDisk,
        "42%",
        Report::InfoOnly
    )]
    #[case::again(
        StageRole::Master,
        Some(HostStage::WritingImageToDisk),
        HostStage::WritingImageToDisk,
        "",
        Report::Same
    )]
    #[case::back(StageRole::Worker, Some(HostStage::Rebooting), HostStage::Installing, "", Report::Lower { current: HostStage::Rebooting })]
    #[case::order_of_a_single_node(StageRole::SingleNode, Some(HostStage::WritingImageToDisk), HostStage::WaitingForBootkube, "", Report::Lower { current: HostStage::WritingImageToDisk })]
    #[case::single_node_has_no_configuring(StageRole::SingleNode, Some(HostStage::Rebooting), HostStage::Configuring, "", Report::NotOfRole { role: StageRole::SingleNode })]
    #[case::worker_has_no_bootkube(StageRole::Worker, Some(HostStage::Installing), HostStage::WaitingForBootkube, "", Report::NotOfRole { role: StageRole::Worker })]
    // The trap: the very first report is not checked.
    #[case::anything_first(StageRole::Worker, None, HostStage::WaitingForBootkube, "", Report::Accepted { percentage: 0 })]
    #[case::on_from_there(StageRole::Worker, Some(HostStage::WaitingForBootkube), HostStage::Installing, "", Report::Accepted { percentage: 22 })]
    #[case::added(StageRole::Added, Some(HostStage::StartingInstallation), HostStage::Installing, "", Report::Accepted { percentage: 40 })]
    #[case::added_ends_with_its_reboot(StageRole::Added, Some(HostStage::Installing), HostStage::Configuring, "", Report::NotOfRole { role: StageRole::Added })]
    #[case::failed_first(StageRole::Worker, None, HostStage::Failed, "disk", Report::Failed)]
    #[case::failed_late(StageRole::Worker, Some(HostStage::Joined), HostStage::Failed, "disk", Report::Failed)]
    fn reports(
        #[case] role: StageRole,
        #[case] current: Option<HostStage>,
        #[case] stage: HostStage,
        #[case] info: &str,
        #[case] expected: Report,
    ) {
        assert_eq!(judge(role, current.map(|c| (c, "")), stage, info), expected);
    }

    #[rstest]
    #[case("Host", HostRole::Master, true, 3, StageRole::Bootstrap)]
    #[case("Host", HostRole::Master, false, 3, StageRole::Master)]
    #[case("Host", HostRole::Arbiter, false, 2, StageRole::Master)]
    #[case("Host", HostRole::Worker, false, 3, StageRole::Worker)]
    #[case("Host", HostRole::Master, true, 1, StageRole::SingleNode)]
    #[case("AddToExistingClusterHost", HostRole::Master, false, 1, StageRole::Worker)]
    fn lists(
        #[case] kind: &str,
        #[case] role: HostRole,
        #[case] bootstrap: bool,
        #[case] count: i64,
        #[case] expected: StageRole,
    ) {
        let mut host = HostView::default();
        host.host.kind = kind.to_owned();
        host.host.role = Some(role);
        host.host.bootstrap = Some(bootstrap);
        let mut cluster = ClusterView::default();
        cluster.cluster.control_plane_count = Some(count);
        assert_eq!(role_of(&host, Some(&cluster), true), expected);
    }

    #[test]
    fn a_day_2_host_that_reboots_is_done_outside_of_kubernetes() {
        assert_eq!(stored_stage(HostStage::Rebooting, true, false), HostStage::Done);
        assert_eq!(stored_stage(HostStage::Rebooting, true, true), HostStage::Rebooting);
        assert_eq!(stored_stage(HostStage::Rebooting, false, false), HostStage::Rebooting);
        assert_eq!(stored_stage(HostStage::Joined, true, false), HostStage::Joined);
    }

    proptest! {
        /// Whatever a host reports after a stage of its role: what is accepted never goes back, and neither does the percentage.
        #[test]
        fn accepted_stages_are_monotonic(
            role in prop::sample::select(&ROLES[..]),
            reports in prop::collection::vec(prop::sample::select(HostStage::ALL), 1..40),
        ) {
            let mut current = HostStage::StartingInstallation;
            let mut had = percentage(role, current);
            for stage in reports {
                if let Report::Accepted { percentage } = judge(role, Some((current, "")), stage, "") {
                    prop_assert!(index(role, stage) > index(role, current));
                    prop_assert!(percentage > had && percentage <= 100);
                    (current, had) = (stage, percentage);
                }
            }
        }
    }
}
