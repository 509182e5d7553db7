//! How installations end: together, or with an error in time.

use vlab_api::types::{ClusterStatus, HostRole, HostStatus};

use super::Id;
use super::reader::{HostLine, Moment, Reader};

/// A cluster that has too few hosts left must fail within so many rounds of its monitor: the one that sees it may be late.
const CLUSTER_FAILS_WITHIN: u32 = 6;

impl Reader<'_> {
    /// A cluster became installed.
    pub(super) fn all_installed(&mut self, cluster: usize, moment: Moment) {
        let present: Vec<usize> = self.present(cluster).filter(|m| self.hosts[*m].cluster == Some(cluster)).collect();
        for member in present {
            let line = &self.hosts[member];
            let (status, role) = (line.status, line.role);
            let good = match status {
                Some(HostStatus::Installed | HostStatus::AddedToExistingCluster) => true,
                Some(HostStatus::Error) => role == Some(HostRole::Worker),
                _ => false,
            };
            self.check(Id::AllInstalled, moment.seq, good, |c| {
                let status = status.map_or("no status", HostStatus::as_str);
                format!("cluster {} is installed and {} is in {status}", c.cluster_name(cluster), c.host_name(member))
            });
        }
    }

    /// Keeps track of whether the cluster can still be installed.
    pub(super) fn too_few(&mut self, cluster: usize, moment: Moment) {
        let line = &self.clusters[cluster];
        let installing =
            matches!(line.status, Some(ClusterStatus::Installing | ClusterStatus::InstallingPendingUserAction));
        if !installing && line.too_few_since.is_none() {
            return;
        }
        let status = line.status;
        let members: Vec<&HostLine> = self.present(cluster).map(|m| &self.hosts[m]).collect();
        let failed = |h: &&HostLine| h.status == Some(HostStatus::Error);
        let masters_failed = members.iter().copied().filter(failed).any(|h| h.role == Some(HostRole::Master));
        let workers = members.iter().filter(|h| h.role == Some(HostRole::Worker));
        let (all, left) = workers.fold((0, 0), |(all, left), h| (all + 1, left + usize::from(!failed(h))));
        let too_few = installing && (masters_failed || (all >= 2 && left < 2));
        match (line.too_few_since, too_few) {
            (None, true) => self.clusters[cluster].too_few_since = Some(moment),
            (Some(since), false) => {
                self.clusters[cluster].too_few_since = None;
                let took = moment.at.since(since.at);
                let in_time = self.was_away_between(since.at, moment.at)
                    || took <= self.limits.next_cluster_round(CLUSTER_FAILS_WITHIN);
                self.check(Id::TooFewHostsFail, since.seq, in_time, |c| {
                    let (name, took) = (c.cluster_name(cluster), took.as_secs_f64());
                    format!("cluster {name} had too few hosts for {took:.0} s before it left the installation")
                });
                // The user may end it in another way, and takes it back to where it began with that, or its hosts.
                let ends = match status {
                    Some(ClusterStatus::Error) => true,
                    Some(ClusterStatus::Finalizing | ClusterStatus::Installed) => false,
                    // It has enough of them again: one that had failed was taken away.
                    Some(ClusterStatus::Installing | ClusterStatus::InstallingPendingUserAction) => true,
                    _ => self.user_ends,
                };
                self.check(Id::TooFewHostsFail, moment.seq, ends, |c| {
                    let status = status.map_or("", ClusterStatus::as_str);
                    format!("cluster {} had too few hosts and went to {status}", c.cluster_name(cluster))
                });
            }
            _ => {}
        }
    }

    /// Too few hosts to the end: a violation once the history shows that the service had its time. A service that was dead from
    /// then on would have changed nothing else either.
    pub(super) fn too_few_to_the_end(&mut self, cluster: usize) {
        // A service that was away in that time has had less of it.
        if let (Some(since), Some(last)) = (self.clusters[cluster].too_few_since, self.last_state)
            && !self.was_away_between(since.at, last.at)
            && last.at.since(since.at) > self.limits.next_cluster_round(CLUSTER_FAILS_WITHIN)
        {
            self.check(Id::TooFewHostsFail, since.seq, false, |c| {
                format!("cluster {} had too few hosts and never went to error", c.cluster_name(cluster))
            });
        }
    }
}
