//! Percentages: what a stage is worth, that a cluster's never goes back, and that it is 100 exactly when the cluster is installed.

use vlab_api::types::{ClusterStatus, HostStage, OperatorStatus, OperatorType};
use vlab_model::progress::{installing_percentage, total_percentage};
use vlab_model::stages::{self, stages_of};

use super::Id;
use super::reader::{Moment, Reader};

/// In these a cluster's percentage follows its hosts and operators.
const FOLLOWS: &[ClusterStatus] =
    &[ClusterStatus::Installing, ClusterStatus::InstallingPendingUserAction, ClusterStatus::Finalizing];

impl Reader<'_> {
    /// A cluster's percentage was told.
    pub(super) fn percentage(&mut self, cluster: usize, total: i64, moment: Moment) {
        let before = self.clusters[cluster].total;
        self.clusters[cluster].total = total;
        self.hundred_when_installed(cluster, moment);
        if self.clusters[cluster].status == Some(ClusterStatus::AddingHosts) {
            // The cluster is installed. A host of day 2 begins at nothing, and its percentage counts.
            return;
        }
        // The real service writes what it computed from two reports at once in any order: the lower one last, for
        // some milliseconds.
        if let Some((high, _, then)) = self.clusters[cluster].went_back
            && total >= high
            && moment.at.since(then.at) <= self.limits.in_flight()
        {
            self.clusters[cluster].went_back = None;
        }
        self.percentage_went_back(cluster);
        let is_counted_anew = std::mem::take(&mut self.clusters[cluster].has_other_members);
        if total < before && !is_counted_anew {
            self.clusters[cluster].went_back = Some((before, total, moment));
        } else {
            self.check(Id::PercentageForward, moment.seq, true, |_| String::new());
        }
    }

    /// It did, and was not made good.
    pub(super) fn percentage_went_back(&mut self, cluster: usize) {
        if let Some((from, to, moment)) = self.clusters[cluster].went_back.take() {
            self.check(Id::PercentageForward, moment.seq, false, |c| {
                format!("cluster {} went back from {from} % to {to} %", c.cluster_name(cluster))
            });
        }
    }

    /// A cluster's status or percentage changed: is it installed and done, or neither?
    pub(super) fn hundred_when_installed(&mut self, cluster: usize, moment: Moment) {
        let line = &self.clusters[cluster];
        let (Some(status), total) = (line.status, line.total) else { return };
        if !self.is_complete() || status == ClusterStatus::AddingHosts {
            return self.settle(Id::Percentages, cluster, moment.at);
        }
        if (status == ClusterStatus::Installed) != (total == 100) {
            let name = self.cluster_name(cluster);
            self.must(Id::Percentages, cluster, moment, Some(format!("cluster {name} is {status} and at {total} %")));
        } else if status == ClusterStatus::Installed {
            self.must(Id::Percentages, cluster, moment, None);
        } else {
            self.settle(Id::Percentages, cluster, moment.at);
        }
    }

    /// A host is in a stage and has that percentage.
    pub(super) fn host_worth(&mut self, host: usize, stage: HostStage, percentage: i64, moment: Moment) {
        // Events tell stages, and not what they are worth. A host of day 2 is done with what its reboot is worth.
        let cluster = self.hosts[host].cluster.and_then(|cluster| self.clusters[cluster].status);
        let judged = self.is_complete() && cluster != Some(ClusterStatus::AddingHosts);
        let Some(role) = self.stage_role(host).filter(|_| judged) else { return };
        let worth = stages::percentage(role, stage);
        self.check(Id::Percentages, moment.seq, percentage == worth, |c| {
            format!("{} is in stage {stage} and at {percentage} %, not {worth} %", c.host_name(host))
        });
    }

    /// A host came to a cluster or left it: the service counts anew when the next of them reports.
    pub(super) fn members_changed(&mut self, cluster: usize, moment: Moment) {
        self.cluster_worth(cluster, moment, true);
        let line = &mut self.clusters[cluster];
        line.moved = None;
        line.has_other_members = true;
    }

    /// Something changed that a cluster's percentage is made of, or something else of it: was the percentage right until now?
    pub(super) fn cluster_worth(&mut self, cluster: usize, moment: Moment, is_part: bool) {
        let settles = self.limits.settles();
        let line = &mut self.clusters[cluster];
        let due = line.moved.take_if(|since| moment.at.since(since.at) > settles);
        if is_part {
            line.moved = Some(moment);
        }
        let follows = line.status.is_some_and(|status| FOLLOWS.contains(&status));
        let Some(since) = due.filter(|_| follows && self.is_complete()) else { return };
        let members: Vec<usize> = self.present(cluster).collect();
        let mut reached = Vec::new();
        for host in members {
            let Some(role) = self.stage_role(host) else { return };
            reached.push((stages_of(role), self.hosts[host].stage));
        }
        if reached.is_empty() {
            return;
        }
        let line = &self.clusters[cluster];
        let installing = installing_percentage(reached.into_iter());
        let is_done = |(_, kind, status): &&(String, Option<OperatorType>, Option<OperatorStatus>)| match status {
            Some(OperatorStatus::Available) => true,
            Some(OperatorStatus::Failed) => *kind == Some(OperatorType::Olm),
            _ => false,
        };
        let done = line.operators.iter().filter(is_done).count() as i64;
        let finalizing = done * 100 / (line.operators.len() as i64).max(1);
        let most = total_percentage(100, installing, finalizing);
        // What operators of an earlier installation were worth counts when the next of them is reported.
        let least = total_percentage(100, installing, if line.installations > 1 { 0 } else { finalizing });
        // The real service may write what it computed from two reports at once in any order, the lower one last, and cuts each
        // part for itself.
        let total = line.total;
        let holds = total <= most + 1 && (!self.limits.built_in || total >= least - 1);
        self.check(Id::Percentages, since.seq, holds, |c| {
            format!(
                "cluster {} is at {total} %, and its hosts and operators are worth {most} %",
                c.cluster_name(cluster)
            )
        });
    }
}
