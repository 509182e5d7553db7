//! The bootstrap: there is one, and it reboots only when the others can go on without it; workers wait for masters.

use vlab_api::types::{ClusterStatus, HostRole, HostStage};
use vlab_model::history::ClusterMoment;

use super::Id;
use super::reader::{Inside, Moment, Reader};

/// In these an installation is going on or has ended well.
const WITH_BOOTSTRAP: &[ClusterStatus] = &[
    ClusterStatus::Installing,
    ClusterStatus::InstallingPendingUserAction,
    ClusterStatus::Finalizing,
    ClusterStatus::Installed,
];

impl Reader<'_> {
    /// A host's role was told.
    pub(super) fn host_role(&mut self, host: usize, role: HostRole, bootstrap: bool, moment: Moment) {
        self.role_told(host, role, bootstrap, moment);
        let line = &mut self.hosts[host];
        (line.role, line.bootstrap) = (Some(role), bootstrap);
        if let Some(cluster) = line.cluster {
            self.one_bootstrap(cluster, moment);
        }
    }

    /// A host leaves its cluster: a bootstrap that the user takes away is nobody else's doing.
    pub(super) fn leaves(&mut self, host: usize, cluster: usize) {
        let line = &self.hosts[host];
        if line.bootstrap && self.is_taken(line.id) {
            self.clusters[cluster].bootstrap_was_taken = true;
        }
    }

    /// Something happened inside a cluster.
    pub(super) fn inside(&mut self, cluster: usize, host: Option<usize>, what: &ClusterMoment, moment: Moment) {
        let inside = match what {
            ClusterMoment::NodeReady => Inside::NodeReady,
            ClusterMoment::BootkubeDone => Inside::BootkubeDone,
            ClusterMoment::EtcdBootstrapDone => Inside::EtcdBootstrapDone,
            ClusterMoment::ControllerReady => Inside::ControllerReady,
            _ => return,
        };
        let line = &mut self.clusters[cluster];
        if !line.inside.iter().any(|(i, h, _)| *i == inside && *h == host) {
            line.inside.push((inside, host, moment));
        }
    }

    /// Counts the bootstrap hosts of a cluster whose installation is going on or has ended well: whenever it, one of its hosts or a
    /// role changes.
    pub(super) fn one_bootstrap(&mut self, cluster: usize, moment: Moment) {
        let line = &self.clusters[cluster];
        if line.bootstrap_was_taken || !line.status.is_some_and(|s| WITH_BOOTSTRAP.contains(&s)) {
            return self.settle(Id::OneBootstrap, cluster, moment.at);
        }
        let members = self.present(cluster).map(|host| &self.hosts[host]);
        let (known, bootstraps) = members.fold((false, 0), |(known, bootstraps), host| {
            (known || host.role.is_some(), bootstraps + usize::from(host.bootstrap))
        });
        if !known {
            return;
        }
        let problem = (bootstraps != 1)
            .then(|| format!("cluster {} has {bootstraps} bootstrap hosts", self.cluster_name(cluster)));
        self.must(Id::OneBootstrap, cluster, moment, problem);
    }

    /// A worker reboots.
    pub(super) fn worker_reboots(&mut self, host: usize, moment: Moment) {
        let Some(cluster) = self.hosts[host].cluster else { return };
        if self.ids_are_shared || self.clusters[cluster].status == Some(ClusterStatus::AddingHosts) {
            return;
        }
        let members = &self.clusters[cluster].members;
        let controls =
            members.iter().filter(|m| matches!(self.hosts[**m].role, Some(HostRole::Master | HostRole::Arbiter)));
        let done = controls.filter(|m| self.hosts[**m].stage == Some(HostStage::Done)).count();
        self.check(Id::WorkersWait, moment.seq, done >= 2, |c| {
            format!("{} reboots when {done} masters and arbiters are done", c.host_name(host))
        });
    }

    /// Judges the bootstrap's stages of the installation that ends here. Only now is all known that happened inside the
    /// cluster, which may be recorded later than the stages that it allowed.
    pub(super) fn pivot(&mut self, cluster: usize) {
        let mut members = self.clusters[cluster].members.clone();
        // A host that came on day 2 may have been made a master since.
        let together = &self.clusters[cluster].installed_together;
        members.retain(|member| together.is_empty() || together.contains(member));
        // Whose stage is it, where two machines report as one host?
        if self.ids_are_shared || self.clusters[cluster].inside.is_empty() {
            return;
        }
        let Some(bootstrap) = members.iter().copied().find(|m| self.hosts[*m].bootstrap) else { return };
        let others = |role| {
            members
                .iter()
                .filter(|m| **m != bootstrap && self.hosts[**m].role == Some(role))
                .copied()
                .collect::<Vec<_>>()
        };
        let (masters, arbiters) = (others(HostRole::Master), others(HostRole::Arbiter));
        // The only node of a control plane waits for nobody; workers of day 2 may be there by now.
        if masters.is_empty() && arbiters.is_empty() {
            return;
        }
        let needed_masters = masters.len().min(2);
        let needed_arbiters = arbiters.len().min(1);
        let inside = self.clusters[cluster].inside.clone();
        let ready = |of: &[usize], by: Moment| {
            let of_them = |h: &Option<usize>| h.is_some_and(|h| of.contains(&h));
            inside.iter().filter(|(i, h, m)| *i == Inside::NodeReady && of_them(h) && m.not_after(by)).count()
        };
        let happened = |what, by: Moment| inside.iter().any(|(i, _, m)| *i == what && m.not_after(by));
        for (stage, at) in self.hosts[bootstrap].reached.clone() {
            let rank = match stage {
                HostStage::WaitingForBootkube => 1,
                HostStage::WaitingForController => 2,
                HostStage::Rebooting => 3,
                _ => continue,
            };
            let mut missing = Vec::new();
            if ready(&masters, at) < needed_masters {
                missing.push(format!("{needed_masters} other masters are ready"));
            }
            if ready(&arbiters, at) < needed_arbiters {
                missing.push("an arbiter is ready".to_owned());
            }
            if rank >= 2 && !happened(Inside::BootkubeDone, at) {
                missing.push("bootkube is done".to_owned());
            }
            if rank >= 2 && !happened(Inside::EtcdBootstrapDone, at) {
                missing.push("the bootstrap has left etcd".to_owned());
            }
            if rank >= 3 && !happened(Inside::ControllerReady, at) {
                missing.push("the controller is ready".to_owned());
            }
            self.check(Id::PivotOrder, at.seq, missing.is_empty(), |c| {
                format!("{} is in stage {stage} before {}", c.host_name(bootstrap), missing.join(" and "))
            });
        }
    }
}
