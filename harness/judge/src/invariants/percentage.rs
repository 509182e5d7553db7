//! A cluster's percentage: it never goes back within an installation.

use vlab_api::types::ClusterStatus;

use super::Id;
use super::reader::{IN_FLIGHT, Moment, Reader};

impl Reader<'_> {
    /// A cluster's percentage was told.
    pub(super) fn percentage(&mut self, cluster: usize, total: i64, moment: Moment) {
        let before = self.clusters[cluster].total;
        self.clusters[cluster].total = total;
        if self.clusters[cluster].status == Some(ClusterStatus::AddingHosts) {
            // The cluster is installed. A host of day 2 begins at nothing, and its percentage counts.
            return;
        }
        // The real service writes what it computed from two reports at once in any order: the lower one last, for
        // some milliseconds.
        if let Some((high, _, then)) = self.clusters[cluster].went_back
            && total >= high
            && moment.at.since(then.at) <= IN_FLIGHT
        {
            self.clusters[cluster].went_back = None;
        }
        self.percentage_went_back(cluster);
        if total < before {
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
}
