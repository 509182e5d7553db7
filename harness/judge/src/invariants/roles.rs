//! What a host is to be in its cluster: settled before the installation begins, and then so until its end.

use vlab_api::types::{ClusterStatus, HostRole, HostStatus};

use super::Id;
use super::reader::{Moment, Reader};

/// In these a cluster's roles are settled.
const SETTLED: &[ClusterStatus] = &[
    ClusterStatus::Installing,
    ClusterStatus::InstallingPendingUserAction,
    ClusterStatus::Finalizing,
    ClusterStatus::Installed,
];

/// In these a host is being installed, or is.
const INSTALLS: &[HostStatus] = &[
    HostStatus::Installing,
    HostStatus::InstallingInProgress,
    HostStatus::InstallingPendingUserAction,
    HostStatus::Installed,
];

impl Reader<'_> {
    fn is_settled(&self, host: usize) -> bool {
        let line = &self.hosts[host];
        let cluster = line.cluster.and_then(|cluster| self.clusters[cluster].status);
        cluster.is_some_and(|status| SETTLED.contains(&status)) && line.status.is_some_and(|s| INSTALLS.contains(&s))
    }

    /// A host's role is told, and is not yet taken.
    pub(super) fn role_told(&mut self, host: usize, role: HostRole, bootstrap: bool, moment: Moment) {
        let line = &self.hosts[host];
        let before = (line.role, line.bootstrap);
        let Some(old) = before.0.filter(|_| self.is_complete() && self.is_settled(host)) else { return };
        let holds = before == (Some(role), bootstrap);
        let words =
            |role: HostRole, bootstrap: bool| format!("{role}{}", if bootstrap { " and bootstrap" } else { "" });
        self.check(Id::RolesStay, moment.seq, holds, |c| {
            let (name, old, new) = (c.host_name(host), words(old, before.1), words(role, bootstrap));
            format!("{name} is {new} and was {old} when its installation began")
        });
    }

    /// A host goes from status to status of an installation: it has a role.
    pub(super) fn role_kept(&mut self, host: usize, moment: Moment) {
        if self.is_complete() && self.is_settled(host) && self.hosts[host].status != Some(HostStatus::Installing) {
            let role = self.hosts[host].role;
            let holds = role.is_some_and(|role| role != HostRole::AutoAssign);
            self.check(Id::RolesStay, moment.seq, holds, |c| format!("{} installs without a role", c.host_name(host)));
        }
    }
}
