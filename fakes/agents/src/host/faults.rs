//! What faults do to a host at once, and what is undone when they end.

use super::*;
use vlab_model::history::HostMoment;

impl Host {
    /// The fault that is of that kind and hits now, noted as its effect.
    pub(super) fn active<U>(
        &self,
        now: Timestamp,
        w: &mut World,
        pick: impl Fn(&HostFault) -> Option<U>,
        detail: &'static str,
    ) -> Option<U> {
        let (fault, found) = self.faults.find(pick)?;
        w.note_effect(now, &fault, Some(self.own_id), None, detail);
        Some(found)
    }

    pub(super) fn is_active(
        &self,
        now: Timestamp,
        w: &mut World,
        test: impl Fn(&HostFault) -> bool,
        detail: &'static str,
    ) -> bool {
        self.active(now, w, |fault| test(fault).then_some(()), detail).is_some()
    }

    /// Puts a fault on. What shows at once is done at once; the rest when it comes to it.
    pub(crate) fn inject(&mut self, now: Timestamp, w: &mut World, name: &Arc<str>, fault: HostFault) {
        self.faults.add(name, fault.clone());
        let position = self.position as usize;
        match &fault {
            HostFault::NoPower if self.powered => {
                self.switch_off(now, w);
                w.note_effect(now, name, Some(self.own_id), None, "its power was cut");
            }
            HostFault::Offline => w.host_did(now, self.own_id, HostMoment::NetworkLost),
            HostFault::NoUplink => {
                w.network.set_up(position, false);
                w.host_did(now, self.own_id, HostMoment::NetworkLost);
                w.note_effect(now, name, Some(self.own_id), None, "its cable was cut");
                self.uplink(now, w, false);
            }
            HostFault::IdOf(other) => self.plan.host_id = *other,
            HostFault::Address(address) => {
                let before = self.plan.change_address(&mut w.network, position, *address);
                self.own_address = self.own_address.or(before);
            }
            HostFault::NoCertificate => self.certificate(now, w, Some(name)),
            _ => {}
        }
    }

    /// Takes off what the fault put on.
    pub(crate) fn clear(&mut self, now: Timestamp, w: &mut World, name: &str) {
        for fault in self.faults.remove(name) {
            let position = self.position as usize;
            match fault {
                HostFault::NoPower if self.plan.start_at <= now => self.switch_on(now, w),
                HostFault::NoPower => w.at(self.plan.start_at, self.me(), self.epoch, Timer::SwitchOn),
                HostFault::Offline | HostFault::NoUplink | HostFault::NoAddress => {
                    if !self.faults.has(HostFault::cuts_uplink) {
                        w.network.set_up(position, self.agent != Agent::Down);
                        self.uplink(now, w, true);
                    }
                    if !self.faults.has(HostFault::takes_offline) {
                        w.host_did(now, self.own_id, HostMoment::NetworkBack);
                    }
                }
                HostFault::SilentAgent => w.at(now, self.me(), self.epoch, Timer::Poll),
                HostFault::IdOf(_) => self.plan.host_id = self.own_id,
                // Somebody puts the boot order right and restarts the machine, if it has come up wrong.
                HostFault::BootsDiscovery if self.disk_boots && !matches!(self.agent, Agent::Down | Agent::Node) => {
                    self.reboot(now, w);
                }
                HostFault::StuckAt(_) if self.hangs() => {
                    self.stuck = None;
                    self.installer_next_line(now, w);
                }
                HostFault::NeverJoins if self.agent == Agent::Node => self.become_node(now, w),
                HostFault::NoCertificate => self.certificate(now, w, None),
                HostFault::Address(_) => {
                    if let Some(own) = self.own_address.take() {
                        self.plan.change_address(&mut w.network, position, own);
                    }
                }
                _ => {}
            }
        }
    }

    /// Does its installer hang, and is it still the same one?
    pub(super) fn hangs(&self) -> bool {
        self.stuck.is_some() && self.stuck == self.installer.as_ref().map(|i| i.token)
    }

    /// The cluster's other nodes reach this one, or do not.
    pub(super) fn uplink(&mut self, now: Timestamp, w: &mut World, there: bool) {
        if let Some((cluster, _)) = self.member_of {
            let position = self.position as usize;
            w.plane(now, cluster, |p| p.uplink(now, position, there));
        }
    }

    pub(super) fn certificate(&mut self, now: Timestamp, w: &mut World, withheld_by: Option<&Arc<str>>) {
        // Asked for in every cluster: in which one it will be a node is known only when it is installed.
        for cluster in 0..w.clusters.len() {
            let position = self.position as usize;
            w.plane(now, cluster, |p| {
                p.withhold_certificate(now, position, withheld_by);
                Vec::new()
            });
        }
    }

    /// Down and up again, by the fault.
    pub(crate) fn crash(&mut self, now: Timestamp, w: &mut World, fault: &Arc<str>) {
        if self.powered {
            w.note_effect(now, fault, Some(self.own_id), None, "it was restarted");
            self.reboot(now, w);
        }
    }

    /// The agent ends and is started again. Its installer is a program of its own and goes on.
    pub(crate) fn restart_agent(&mut self, now: Timestamp, w: &mut World, fault: &Arc<str>) {
        if matches!(self.agent, Agent::Registering | Agent::Running | Agent::Frozen) {
            w.note_effect(now, fault, Some(self.own_id), None, "its agent was restarted");
            w.host_did(now, self.own_id, HostMoment::AgentExited);
            self.steps = Vec::new();
            self.cache = Vec::new();
            self.calls.forget(|p| matches!(p, Purpose::Register | Purpose::Poll | Purpose::Answer { .. }));
            let restart = w.config.timing.agent_restart.at(self.durations.unit());
            self.runner_ended(now, w, restart);
        }
    }
}
