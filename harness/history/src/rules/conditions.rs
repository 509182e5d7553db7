//! What a history says about the conditions of guards: that they hold, that they do not, or nothing.

use super::*;

impl Reader<'_> {
    pub(super) fn host_condition(&self, condition: HostCond, change: &HostChange<'_>) -> Option<bool> {
        let HostChange { before, now, place: Place { at, .. }, .. } = *change;
        let cluster = now.cluster.or(before.cluster).and_then(|c| self.clusters.get(&c));
        let cluster_is = |wanted: &[ClusterStatus]| match cluster {
            Some(c) => c.status.map(|status| wanted.contains(&status)),
            None => Some(false),
        };
        let over = |since: Timestamp, limit: Duration| Some(at.since(since) >= limit);
        let seen = &now.validations;
        let satisfied = |id: HostValidationId| match seen.get(id) {
            Some(status) => Some(holds(status)),
            None if seen.is_empty() => None,
            // What is hidden does not apply.
            None => Some(true),
        };
        let gate = |gate: HostGate| {
            let of_gate = |id: &&HostValidationId| host_spec(**id).gate == gate && host_spec(**id).never.is_none();
            every(HostValidationId::ALL.iter().filter(of_gate).map(|id| satisfied(*id)))
        };
        let failed = |id: HostValidationId| seen.get(id) == Some(ValidationStatus::Failure);
        let stage = before.stage;
        match condition {
            HostCond::Connected => satisfied(HostValidationId::Connected),
            HostCond::MediaConnected => satisfied(HostValidationId::MediaConnected),
            HostCond::HasInventory => gate(HostGate::Inventory),
            HostCond::MinimumHardware => gate(HostGate::MinimumHardware),
            HostCond::InputsGiven => gate(HostGate::PendingInput),
            HostCond::SufficientForInstall => gate(HostGate::Sufficient),
            HostCond::DiskUuids => gate(HostGate::BeforeInput),
            HostCond::InventoryCut => match satisfied(HostValidationId::InventoryNotFullyTruncated) {
                Some(whole) => Some(!whole && satisfied(HostValidationId::HasInventory)?),
                None => None,
            },
            HostCond::PoolMinimum => every(host::POOL_MINIMUM.iter().map(|id| satisfied(*id))),
            HostCond::RoleCanInstall => {
                now.role.map(|r| matches!(r, HostRole::Master | HostRole::Arbiter | HostRole::Worker))
            }
            HostCond::Day2Host => Some(now.day2),
            HostCond::KubeApi => Some(self.kube),
            HostCond::ReportsRebooting => Some(now.stage == Some(HostStage::Rebooting)),
            HostCond::ReportsDone => Some(now.stage == Some(HostStage::Done)),
            HostCond::ClusterPreparing => cluster_is(&[ClusterStatus::PreparingForInstallation]),
            HostCond::ClusterInstalling => cluster_is(&[ClusterStatus::Installing]),
            HostCond::ClusterInError => cluster_is(&[ClusterStatus::Error]),
            HostCond::ClusterPendingUserAction => cluster_is(&[ClusterStatus::InstallingPendingUserAction]),
            HostCond::ClusterInstalledOrAddingHosts => {
                cluster_is(&[ClusterStatus::Installed, ClusterStatus::AddingHosts])
            }
            HostCond::DiskSpeedFailed => Some(failed(HostValidationId::SufficientInstallationDiskSpeed)),
            HostCond::DiskSpeedChecked | HostCond::DiskSpeedUnknown => {
                failed(HostValidationId::SufficientInstallationDiskSpeed).then_some(false)
            }
            HostCond::ImagesFailed => Some(failed(HostValidationId::ContainerImagesAvailable)),
            HostCond::ImagesAvailable | HostCond::ImagesUnknown => {
                failed(HostValidationId::ContainerImagesAvailable).then_some(false)
            }
            HostCond::PreparationTimedOut => over(before.since, self.settings.host_prepare_timeout()),
            HostCond::InstallingTimedOut => over(before.since, self.settings.constants.installing_without_progress),
            HostCond::ReclaimTimedOut => over(before.since, self.settings.constants.reclaim_timeout),
            HostCond::PendingUserActionTimedOut => {
                over(before.since, self.settings.host_installing_pending_user_action_timeout)
            }
            HostCond::StageTimedOut => {
                // A single node has more time. It is one, whoever is added to it later.
                let installed = now.cluster.map(|c| self.hosts_of(c).filter(|host| !host.day2).count());
                // What a host waits for does not count while its cluster waits for the user.
                let paused = stage.is_some_and(|s| host::MAY_WAIT_FOR_USER.contains(&s));
                let resumed = cluster.filter(|_| paused).and_then(|c| c.resumed).unwrap_or(before.stage_since);
                let since = before.stage_since.max(resumed);
                let is_over =
                    |single| stage.map_or(Some(false), |s| over(since, self.settings.stage_timeout(s, single)));
                match installed {
                    Some(1) => is_over(true),
                    // What an imported cluster was installed of is not known.
                    Some(0) if is_over(true) != is_over(false) => None,
                    _ => is_over(false),
                }
            }
            HostCond::SoftTimeouts => Some(self.soft()),
            HostCond::ConnectionTimeoutNoted => Some(before.silence_noted),
            HostCond::StageMayWaitForUser => Some(stage.is_some_and(|s| host::MAY_WAIT_FOR_USER.contains(&s))),
            HostCond::StageIsWritingImage => Some(stage == Some(HostStage::WritingImageToDisk)),
            HostCond::StageIsCopyingRegistryData => Some(stage == Some(HostStage::CopyingRegistryDataToDisk)),
            HostCond::StageIsRebooting => Some(stage == Some(HostStage::Rebooting)),
            HostCond::StageIsDone => Some(stage == Some(HostStage::Done)),
            // Both are events or changes of their own: read where they are told.
            HostCond::LogsTimedOut => Some(false),
            HostCond::StageTimeoutNoted => Some(true),
            HostCond::QuorumWithoutHost => None,
        }
    }

    pub(super) fn hosts_of(&self, cluster: Uuid) -> impl Iterator<Item = &HostNow> {
        self.hosts.values().filter(move |h| h.cluster == Some(cluster))
    }

    pub(super) fn cluster_condition(&self, condition: ClusterCond, change: &ClusterChange<'_>) -> Option<bool> {
        let ClusterChange { id, now, since, at } = *change;
        let over = |since: Timestamp, limit: Duration| Some(at.since(since) >= limit);
        let gate = |gate: ClusterGate| {
            let seen = &now.validations;
            let of_gate = |id: &&ClusterValidationId| cluster_spec(**id).gate == gate;
            if seen.is_empty() {
                return None;
            }
            let mut all = ClusterValidationId::ALL.iter().filter(of_gate);
            Some(all.all(|id| seen.get(*id).is_none_or(holds)))
        };
        let some = |wanted: &[HostStatus]| self.hosts_of(id).any(|h| h.status.is_some_and(|s| wanted.contains(&s)));
        let every = |wanted: &[HostStatus]| self.hosts_of(id).all(|h| h.status.is_some_and(|s| wanted.contains(&s)));
        let quorum = |wanted: &[HostStatus]| {
            let role = |h: &HostNow| h.role.unwrap_or(HostRole::AutoAssign);
            let masters = self.hosts_of(id).filter(|h| role(h) == HostRole::Master).count();
            let mut view = ClusterView::default();
            // Those that were deleted since are missed.
            view.cluster.control_plane_count = i64::try_from(masters.max(now.most_masters)).ok();
            // A history does not say who can be fenced.
            let member = |h: &HostNow| {
                Some(cluster::Member { role: role(h), effective: role(h), status: h.status?, fenced: false })
            };
            cluster::quorum_of(&view, self.hosts_of(id).filter_map(member), wanted)
        };
        let soft = self.soft();
        match condition {
            ClusterCond::PendingInputsGiven => gate(ClusterGate::PendingInput),
            ClusterCond::VipsDefined => gate(ClusterGate::Vips),
            ClusterCond::SufficientForInstall => gate(ClusterGate::Sufficient),
            ClusterCond::VipDhcp => Some(self.vip_dhcp.contains(&id)),
            ClusterCond::PreparationTimedOut => over(since, self.settings.cluster_prepare_timeout()),
            ClusterCond::PreparationSucceeded | ClusterCond::PreparationFailed => None,
            ClusterCond::AllHostsPrepared => Some(every(&[HostStatus::PreparingSuccessful])),
            ClusterCond::SomeHostPreparingFailed => Some(some(&[HostStatus::PreparingFailed])),
            ClusterCond::SomeHostLeftPreparation => Some(!every(&[
                HostStatus::PreparingForInstallation,
                HostStatus::PreparingSuccessful,
                HostStatus::PreparingFailed,
                HostStatus::Known,
            ])),
            ClusterCond::SomeHostPendingUserAction => Some(some(&[HostStatus::InstallingPendingUserAction])),
            ClusterCond::QuorumAlive => Some(quorum(cluster::IN_INSTALLATION)),
            ClusterCond::QuorumInstalled => Some(quorum(&[HostStatus::Installed])),
            ClusterCond::InstallationTimedOut => {
                now.install_started.map_or(Some(false), |t| over(t, self.settings.installation_timeout))
            }
            ClusterCond::FinalizingTimedOut => over(since, self.settings.finalizing_timeout),
            ClusterCond::FinalizingStageTimedOut => now.finalizing.map_or(Some(false), |stage| {
                over(now.finalizing_since, self.settings.finalizing_stage_timeout(stage, soft, Duration::ZERO))
            }),
            ClusterCond::FinalizingStageNeverFails => {
                Some(now.finalizing.is_some_and(|s| cluster::NEVER_FAIL.contains(&s)))
            }
            ClusterCond::FinalizingStageTimeoutNoted => None,
            ClusterCond::SoftTimeouts => Some(soft),
            ClusterCond::ConsoleUrlToPush => Some(false),
            ClusterCond::AllHostsFinished => Some(every(&[HostStatus::Installed, HostStatus::Error])),
            ClusterCond::KubeconfigUploaded | ClusterCond::OperatorsDone => None,
            ClusterCond::LogsTimedOut => Some(false),
        }
    }
}
