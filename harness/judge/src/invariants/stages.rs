//! Installation stages: they never go back, and each is one of the host's role.

use vlab_api::types::{ClusterStatus, HostStage};
use vlab_model::stages::{self, StageRole};

use super::Id;
use super::reader::{Moment, Reader};

impl Reader<'_> {
    /// Which list of stages that host has; `None` while its role is not known.
    pub(super) fn stage_role(&self, host: usize) -> Option<StageRole> {
        let line = &self.hosts[host];
        let number = line.cluster?;
        let cluster = &self.clusters[number];
        if cluster.status == Some(ClusterStatus::AddingHosts) {
            return Some(StageRole::Worker);
        }
        if cluster.members.len() == 1 || self.present(number).nth(1).is_none() {
            return Some(StageRole::SingleNode);
        }
        Some(stages::role_of_kind(line.role?, line.bootstrap))
    }

    pub(super) fn host_stage(&mut self, host: usize, from: Option<HostStage>, to: Option<HostStage>, moment: Moment) {
        let Some(stage) = to else {
            // Progress was cleared: reset, or registered again.
            self.hosts[host].stage = None;
            self.hosts[host].reached.clear();
            return;
        };
        let before = self.hosts[host].stage.or(from);
        if before == Some(stage) {
            return;
        }
        if let Some(cluster) = self.hosts[host].cluster {
            self.cluster_worth(cluster, moment, true);
        }
        self.hosts[host].stage = Some(stage);
        let role = self.stage_role(host);
        // The service takes any first stage, see `stages::judge`.
        if let (Some(role), Some(before)) = (role, before) {
            let (had, has) = (stages::index(role, before), stages::index(role, stage));
            let holds = has.is_some() && has > had;
            self.check(Id::StagesForward, moment.seq, holds, |c| {
                let name = c.host_name(host);
                match has {
                    None => format!("{name} is in stage {stage}, which its role does not have"),
                    Some(_) => format!("{name} went back from stage {before} to {stage}"),
                }
            });
        } else if role.is_some() {
            self.check(Id::StagesForward, moment.seq, true, |_| String::new());
        }
        self.hosts[host].reached.push((stage, moment));
        if stage == HostStage::Rebooting && role == Some(StageRole::Worker) {
            self.worker_reboots(host, moment);
        }
    }
}
