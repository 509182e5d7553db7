//! The machine of a simulated host: its power, what it boots, the network that it gets.

use super::*;
use vlab_model::history::HostMoment;

impl Host {
    pub(super) fn me(&self) -> Who {
        Who::Host(self.position)
    }

    pub(super) fn after(&mut self, now: Timestamp, w: &mut World, span: fn(&HostTiming) -> Span, timer: Timer) {
        let at = now + span(&w.config.timing).at(self.durations.unit());
        w.at(at, self.me(), self.epoch, timer);
    }

    /// Power on, when it is off.
    pub(crate) fn switch_on(&mut self, now: Timestamp, w: &mut World) {
        if self.powered || self.is_active(now, w, |fault| *fault == HostFault::NoPower, "it could not be switched on") {
            return;
        }
        self.powered = true;
        w.host_did(now, self.own_id, HostMoment::PoweredOn);
        self.boot(now, w);
    }

    /// Power off at once.
    pub(crate) fn switch_off(&mut self, now: Timestamp, w: &mut World) {
        self.go_down(now, w);
        if std::mem::replace(&mut self.powered, false) {
            w.host_did(now, self.own_id, HostMoment::PoweredOff);
        }
    }

    /// Everything that runs on the machine ends.
    pub(super) fn go_down(&mut self, now: Timestamp, w: &mut World) {
        self.epoch = self.epoch.wrapping_add(1);
        self.agent = Agent::Down;
        self.runner = None;
        self.reclaims = false;
        self.calls.clear();
        self.steps = Vec::new();
        self.cache = Vec::new();
        self.installer = None;
        w.network.set_up(self.position as usize, false);
        if let Some((cluster, _)) = self.member_of {
            let position = self.position as usize;
            w.plane(now, cluster, |p| {
                p.machine_down(position);
                Vec::new()
            });
        }
    }

    /// Down and up again.
    pub(crate) fn reboot(&mut self, now: Timestamp, w: &mut World) {
        if w.has_real_hands() {
            w.host_did(now, self.plan.host_id, HostMoment::Rebooting);
            return self.work(w, Work::Reboot);
        }
        self.go_down(now, w);
        self.powered = true;
        self.stuck = None;
        w.host_did(now, self.own_id, HostMoment::Rebooting);
        self.boot(now, w);
    }

    pub(super) fn boots_disk(&self) -> bool {
        self.disk_boots && !self.plan.medium_first && !self.faults.has(|fault| *fault == HostFault::BootsDiscovery)
    }

    pub(super) fn boot(&mut self, now: Timestamp, w: &mut World) {
        if w.has_real_hands() {
            // This program runs: the machine is up.
            return w.at(now, self.me(), self.epoch, Timer::Booted);
        }
        let single = self.member_of.is_some_and(|(c, _)| w.clusters[c].plane.is_single_node());
        let span: fn(&HostTiming) -> Span = match (self.boots_disk(), single) {
            (false, _) => |t| t.boot_to_registration,
            (true, false) => |t| t.reboot,
            (true, true) => |t| t.reboot_single_node,
        };
        self.after(now, w, span, Timer::Booted);
    }

    /// Sets the machine's addresses as the system that it boots does: by the image's static networks, else by DHCP.
    pub(super) fn configure_network(&mut self, now: Timestamp, w: &mut World) {
        let Some(boot) = self.plan.boot.clone() else { return };
        let nics = &self.hardware.nics;
        let nics: Vec<_> =
            (0..nics.len()).map(|i| (nics[i].name.clone(), self.hardware.mac(self.plan.index, i))).collect();
        let found = match self.boots_disk() && !self.network_copied {
            true => ImageNetwork::Nothing,
            false => boot.image.network_of(&nics),
        };
        let (moment, network) = match found {
            ImageNetwork::Connections(connections) => {
                let made = boot::configured(&self.hardware, self.plan.index, &connections, &boot.leased);
                (HostMoment::StaticNetwork, Some(made))
            }
            ImageNetwork::Failed(_) => (HostMoment::StaticNetworkFailed, None),
            ImageNetwork::Nothing => (HostMoment::NoStaticNetwork, None),
        };
        w.host_did(now, self.own_id, moment);
        (self.plan.profile, self.plan.addresses) = match network {
            Some((profile, addresses)) => (Arc::new(profile), addresses),
            None => (Arc::clone(&self.hardware), boot.leased.clone()),
        };
        self.cut_off = !boot.lab.iter().any(|address| self.plan.addresses.is_on_link(*address));
        if self.cut_off {
            w.host_did(now, self.own_id, HostMoment::CutOff);
        }
        w.network.settle(self.position as usize, &self.plan);
    }

    pub(super) fn booted(&mut self, now: Timestamp, w: &mut World) {
        self.configure_network(now, w);
        w.network.set_up(self.position as usize, !self.faults.has(HostFault::cuts_uplink));
        self.is_active(now, w, |fault| *fault == HostFault::NoAddress, "it got no address");
        if self.boots_disk() {
            self.agent = Agent::Node;
            w.host_did(now, self.own_id, HostMoment::BootedInstalledOs);
            if !self.is_active(now, w, |fault| *fault == HostFault::NeverJoins, "the installed system hung") {
                self.become_node(now, w);
            }
        } else {
            if self.disk_boots {
                self.is_active(
                    now,
                    w,
                    |fault| *fault == HostFault::BootsDiscovery,
                    "it booted the discovery image again",
                );
            }
            w.host_did(now, self.own_id, HostMoment::BootedDiscovery);
            self.register(now, w);
        }
    }

    /// The installed system asks for its place in the cluster.
    pub(super) fn become_node(&mut self, now: Timestamp, w: &mut World) {
        if let Some((cluster, role)) = self.member_of {
            let position = self.position as usize;
            w.plane(now, cluster, |p| {
                p.node_booted(now, position, role);
                Vec::new()
            });
        }
    }

    pub(crate) fn wipe_disk(&mut self) {
        self.disk_boots = false;
    }
}
