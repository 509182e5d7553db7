//! How installations end: together, or with an error in time.

use std::time::Duration;

use vlab_api::types::{ClusterStatus, HostRole, HostStatus};

use super::Id;
use super::reader::{HostLine, Moment, Reader};

/// A cluster that has too few hosts left must fail within this: six periods of the real service's cluster monitor. Profiles
/// that let the service run faster only make the check more lenient.
const CLUSTER_FAILS_WITHIN: Duration = Duration::from_secs(60);

impl Reader<'_> {
    /// A cluster became installed.
    pub(super) fn all_installed(&mut self, cluster: usize, moment: Moment) {
        for member in self.clusters[cluster].members.clone() {
            let line = &self.hosts[member];
            if line.deleted || line.cluster != Some(cluster) {
                continue;
            }
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
        let members = line.members.iter().map(|m| &self.hosts[*m]).filter(|h| h.cluster == Some(cluster) && !h.deleted);
        let failed = |h: &&HostLine| h.status == Some(HostStatus::Error);
        let masters_failed = members.clone().filter(failed).any(|h| h.role == Some(HostRole::Master));
        let workers = members.filter(|h| h.role == Some(HostRole::Worker));
        let (all, left) = workers.fold((0, 0), |(all, left), h| (all + 1, left + usize::from(!failed(&h))));
        let too_few = installing && (masters_failed || (all >= 2 && left < 2));
        match (line.too_few_since, too_few) {
            (None, true) => self.clusters[cluster].too_few_since = Some(moment),
            (Some(since), false) => {
                self.clusters[cluster].too_few_since = None;
                let in_time = moment.at.since(since.at) <= CLUSTER_FAILS_WITHIN;
                self.check(Id::TooFewHostsFail, since.seq, in_time, |c| {
                    format!(
                        "cluster {} had too few hosts for {:.0} s before it left the installation",
                        c.cluster_name(cluster),
                        moment.at.since(since.at).as_secs_f64(),
                    )
                });
            }
            _ => {}
        }
    }

    /// Too few hosts to the end: a violation once the history shows that the service had its time. A service that was dead from
    /// then on would have changed nothing else either.
    pub(super) fn too_few_to_the_end(&mut self, cluster: usize) {
        if let (Some(since), Some(last)) = (self.clusters[cluster].too_few_since, self.last_state)
            && last.at.since(since.at) > CLUSTER_FAILS_WITHIN
        {
            self.check(Id::TooFewHostsFail, since.seq, false, |c| {
                format!("cluster {} had too few hosts and never went to error", c.cluster_name(cluster))
            });
        }
    }
}
