//! The bootstrap tells the service of other hosts, which it finds in the log of the machine-config server.

use super::*;

impl Host {
    pub(super) fn report_nodes_again(&mut self, now: Timestamp, w: &mut World) {
        if self.installer.as_ref().is_some_and(|i| !i.dead) && self.agent != Agent::Leaving {
            self.report_nodes(now, w);
            let next = now + w.config.timing.mcs_log_poll;
            if let Some(cluster) = self.installer.as_ref().map(|i| i.cluster) {
                // Twice as long as it takes, for a machine that is busy.
                let until = next + w.config.timing.mcs_log_poll;
                w.clusters[cluster].plane.log_is_followed(LogReader::Installer, until);
            }
            w.at(next, self.me(), self.epoch, Timer::Nodes);
        }
    }

    /// What the log says of nodes was told: nothing of it is on its way any more, or the service does not listen.
    pub(super) fn nodes_were_told(&self, w: &mut World, in_vain: bool) {
        let asking = self.calls.any(|p| matches!(p, Purpose::Installer(Asked::Nodes | Asked::Told)));
        let Some(installer) = self.installer.as_ref().filter(|_| asking == in_vain) else { return };
        let plane = &mut w.clusters[installer.cluster].plane;
        if plane.bootstrap() == Some(self.position as usize) {
            plane.log_was_told(LogReader::Installer);
        }
    }

    /// Nodes of which the service should hear: (position, fetched its ignition, is ready), each only what is new.
    pub(super) fn unreported(&self, w: &World) -> Vec<(usize, bool, bool)> {
        let Some(installer) = &self.installer else { return Vec::new() };
        let nodes = w.clusters[installer.cluster].plane.nodes().iter();
        nodes
            .map(|(p, n)| {
                let fetched = n.ignition_fetched.is_some() && !installer.reported_ignition.contains(p);
                let ready =
                    n.state == NodeState::Ready && n.role != NodeRole::Worker && !installer.reported_joined.contains(p);
                (*p, fetched, ready)
            })
            .filter(|(_, fetched, ready)| *fetched || *ready)
            .collect()
    }

    pub(super) fn report_nodes(&mut self, now: Timestamp, w: &mut World) {
        // Also while a report is on its way: one that is tried again must not come after a later one.
        let asking = self.calls.any(|p| matches!(p, Purpose::Installer(Asked::Nodes | Asked::Told)));
        let Some(installer) = self.installer.as_ref().filter(|_| !asking) else { return };
        let id = installer.cluster_id;
        w.clusters[installer.cluster].plane.log_is_read(LogReader::Installer);
        match self.unreported(w).is_empty() {
            true => self.nodes_were_told(w, false),
            false => self.ask(now, w, Asked::Nodes, ops::list_cluster_hosts(id).request),
        }
    }

    pub(super) fn tell_nodes(&mut self, now: Timestamp, w: &mut World, hosts: &[HostBrief]) {
        for (position, fetched, ready) in self.unreported(w) {
            let Some(ids) = w.directory.get(position).copied() else { continue };
            let Some(host) = hosts.iter().find(|h| h.id == ids.host) else { continue };
            let Some(stage) = host.stage().filter(|s| ON_ITS_WAY.contains(s)) else { continue };
            let worker = host.role.as_deref() == Some("worker");
            let to = match (ready, fetched, worker) {
                (true, _, _) => HostStage::Joined,
                (_, true, true) if stage == HostStage::Rebooting => HostStage::WaitingForIgnition,
                (_, true, false) if stage == HostStage::Rebooting => HostStage::Configuring,
                _ => continue,
            };
            if let Some(installer) = self.installer.as_mut() {
                installer.reported_ignition.insert(position);
                if ready {
                    installer.reported_joined.insert(position);
                }
            }
            let infra_env = host.infra_env_id.unwrap_or(ids.infra_env);
            let progress = HostProgress { current_stage: Some(to), progress_info: Some(String::new()) };
            let request = ops::update_host_progress(infra_env, ids.host, &progress).request;
            self.ask(now, w, Asked::Told, request);
        }
    }
}
