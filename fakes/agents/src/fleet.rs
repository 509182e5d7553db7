//! Many simulated hosts, and the controllers of their clusters, as one [`Actor`].

use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::actor::{Actor, Connection, Reply, Send};
use vlab_api::types::InstallCmdRequest;
use vlab_model::history::What;

use crate::cluster::ControlPlane;
use crate::controller::{Controller, ControllerState};
use crate::fault::{ClusterFault, HostFault};
use crate::hands::{Observed, Ran, Work};
use crate::host::{Agent, Host};
use crate::network::Reachability;
use crate::plan::{ClusterPlan, DnsView, FleetConfig, HostPlan};
use crate::steps::{self, Effect, STEPS, StepAnswer};
use crate::world::{Who, World};

/// Who uses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionUse {
    /// The host at that position of the fleet.
    Host(usize),
    /// The controller inside the cluster at that position.
    Controller(usize),
}

/// Many simulated hosts. Connection i is that of host i as given to [`Fleet::new`]; the controllers of the clusters follow;
/// what is added later gets the next free numbers ([`Fleet::connection_use`] tells).
#[derive(Debug)]
pub struct Fleet {
    world: World,
    hosts: Vec<Host>,
    controllers: Vec<Controller>,
    connections: Vec<ConnectionUse>,
}

impl Fleet {
    /// A fleet; nothing happens before the first `wake`.
    pub fn new(config: FleetConfig, clusters: Vec<ClusterPlan>, hosts: Vec<HostPlan>) -> Self {
        let mut fleet =
            Self { world: World::new(config), hosts: Vec::new(), controllers: Vec::new(), connections: Vec::new() };
        for plan in hosts {
            fleet.push_host(plan);
        }
        for plan in clusters {
            fleet.add_cluster(plan);
        }
        fleet
    }

    fn connect(&mut self, by: ConnectionUse) -> Connection {
        self.connections.push(by);
        Connection::try_from(self.connections.len() - 1).unwrap_or(Connection::MAX)
    }

    fn push_host(&mut self, plan: HostPlan) {
        let position = self.hosts.len();
        let connection = self.connect(ConnectionUse::Host(position));
        self.world.add_host(&plan);
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        self.hosts.push(Host::new(plan, position, connection, &mut self.world));
    }

    /// One more cluster; its position for [`HostPlan::cluster`].
    pub fn add_cluster(&mut self, plan: ClusterPlan) -> usize {
        let position = self.world.add_cluster(plan);
        let connection = self.connect(ConnectionUse::Controller(position));
        let cluster = u32::try_from(position).unwrap_or(u32::MAX);
        self.controllers.push(Controller::new(cluster, connection, self.world.config.seed));
        position
    }

    /// More hosts; the position of the first of them. Those whose start lies in the past start with the next `wake`.
    pub fn add_hosts(&mut self, hosts: Vec<HostPlan>) -> usize {
        let first = self.hosts.len();
        for plan in hosts {
            self.push_host(plan);
        }
        first
    }

    /// How many connections the fleet uses: 0 up to (not including) this.
    pub fn connection_count(&self) -> u32 {
        u32::try_from(self.connections.len()).unwrap_or(u32::MAX)
    }

    /// Who uses that connection.
    pub fn connection_use(&self, connection: Connection) -> Option<ConnectionUse> {
        self.connections.get(connection as usize).copied()
    }

    /// Host that uses that connection, or the cluster whose controller does.
    pub fn who(&self, connection: Connection) -> Option<Uuid> {
        match self.connection_use(connection)? {
            ConnectionUse::Host(position) => self.hosts.get(position).map(|host| host.plan.host_id),
            ConnectionUse::Controller(cluster) => self.world.clusters.get(cluster).map(|c| c.plan.cluster_id),
        }
    }

    /// Position of the host with that id.
    pub fn host_position(&self, host_id: Uuid) -> Option<usize> {
        self.world.positions.get(&host_id).copied()
    }

    /// How many hosts there are.
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// The plan of the host at that position.
    pub fn host(&self, position: usize) -> Option<&HostPlan> {
        self.hosts.get(position).map(|h| &h.plan)
    }

    /// What the agent of the host at that position is doing.
    pub fn agent(&self, position: usize) -> Option<&Agent> {
        self.hosts.get(position).map(Host::agent)
    }

    /// The inside of the cluster at that position.
    pub fn control_plane(&self, cluster: usize) -> Option<&ControlPlane> {
        self.world.clusters.get(cluster).map(|c| &c.plane)
    }

    /// How far the controller of the cluster at that position is.
    pub fn controller_state(&self, cluster: usize) -> Option<ControllerState> {
        self.controllers.get(cluster).map(Controller::state)
    }

    /// What hosts of that cluster see when they look up names; `None` for an unknown cluster.
    pub fn dns_mut(&mut self, cluster: usize) -> Option<&mut DnsView> {
        self.world.clusters.get_mut(cluster).map(|c| &mut c.plan.dns)
    }

    /// What the hosts saw and did since the last call: steps given, answered and not sent again, what happened on hosts and
    /// inside clusters.
    pub fn take_observations(&mut self) -> Vec<(Timestamp, What)> {
        std::mem::take(&mut self.world.seen)
    }

    // --- hosts that somebody else plays ----------------------------------------------------------------------------

    /// All machines are on, and stay as they are: whoever asks for them answers for them, too, with [`Fleet::answer`].
    pub fn stand_by(&mut self) {
        for position in 0..self.hosts.len() {
            self.world.network.set_up(position, true);
        }
    }

    /// What the host at that position answers to a step. `None`: no agent knows it, or it is something to do and not only to
    /// answer, such as an installation. That its agent is replaced is up to whoever plays it ([`steps::upgraded_to`]).
    pub fn answer(
        &mut self,
        now: Timestamp,
        position: usize,
        step_type: &str,
        args: Vec<String>,
    ) -> Option<StepAnswer> {
        let answers = |kind: &usize| matches!(STEPS[*kind].effect, Effect::None | Effect::RestartUpgraded);
        let kind = steps::find(step_type).filter(answers)?;
        let host = self.hosts.get(position)?;
        Some(host.answer_at_once(now, &mut self.world, kind, args))
    }

    // --- real hands ------------------------------------------------------------------------------------------------

    /// What is to be done on the machines since the last call, with the position of each host. Empty without
    /// [`crate::Hands::Real`].
    pub fn take_work(&mut self) -> Vec<(usize, Work)> {
        std::mem::take(&mut self.world.work)
    }

    /// A step ran. `false`: that host has no such step (any more).
    pub fn step_ran(&mut self, now: Timestamp, position: usize, serial: u32, ran: Ran) -> bool {
        let mut known = false;
        self.with_host(position, |h, w| known = h.step_ran(now, w, serial, ran));
        self.run_due(now);
        known
    }

    /// Starts the installer of a host, as the `install` step does on a simulated one. `Err` says why not.
    pub fn install(&mut self, now: Timestamp, position: usize, request: &InstallCmdRequest) -> Result<(), String> {
        let mut result = Err(format!("there is no host {position}"));
        self.with_host(position, |h, w| result = h.begin_install(now, w, request));
        self.run_due(now);
        result
    }

    /// A job of the installer is done, with the gathered logs where it was that job; or it failed, with words for the
    /// service.
    pub fn job_done(&mut self, now: Timestamp, position: usize, token: u32, result: Result<Vec<u8>, String>) -> bool {
        let known = self.with_host(position, |h, w| h.job_done(now, w, token, result));
        self.run_due(now);
        known
    }

    /// The installer of a host ends before it is through, with these words for the service.
    pub fn installer_ends(&mut self, now: Timestamp, position: usize, why: &str) -> bool {
        let known = self.with_host(position, |h, w| h.installer_ends(now, w, why));
        self.run_due(now);
        known
    }

    /// So much of the image was written, in percent.
    pub fn job_progress(&mut self, now: Timestamp, position: usize, token: u32, percent: u32) -> bool {
        let known = self.with_host(position, |h, w| h.job_progress(now, w, token, percent));
        self.run_due(now);
        known
    }

    /// What was seen of the real cluster at that position.
    pub fn observe(&mut self, now: Timestamp, cluster: usize, seen: &Observed) {
        self.world.plane(now, cluster, |plane| plane.observe(now, seen));
        self.run_due(now);
    }

    // --- what a fault can do ---------------------------------------------------------------------------------------

    fn with_host(&mut self, position: usize, act: impl FnOnce(&mut Host, &mut World)) -> bool {
        match self.hosts.get_mut(position) {
            Some(host) => {
                act(host, &mut self.world);
                true
            }
            None => false,
        }
    }

    /// Puts something wrong on a host. All these are `false` when there is no such host or cluster.
    pub fn inject(&mut self, now: Timestamp, position: usize, name: &Arc<str>, fault: HostFault) -> bool {
        self.with_host(position, |h, w| h.inject(now, w, name, fault))
    }

    /// How well `from` reaches `to`, as its connectivity checks find it, while the fault lasts.
    pub fn inject_link(&mut self, from: usize, to: usize, fault: &Arc<str>, how: Reachability) {
        self.world.network.inject_link(from, to, fault, how);
    }

    /// Puts something wrong on a cluster.
    pub fn inject_cluster(&mut self, now: Timestamp, cluster: usize, name: &Arc<str>, fault: ClusterFault) -> bool {
        let Some(site) = self.world.clusters.get_mut(cluster) else { return false };
        if let ClusterFault::AddressTaken(address) = fault {
            self.world.network.take_address(cluster, address, name);
        }
        site.faults.add(name, fault.clone());
        self.world.plane(now, cluster, |plane| {
            plane.inject(name, fault);
            Vec::new()
        });
        true
    }

    /// Takes off everything that the fault put on, from hosts, links and clusters.
    pub fn clear(&mut self, now: Timestamp, fault: &str) {
        self.world.network.clear(fault);
        for host in &mut self.hosts {
            host.clear(now, &mut self.world, fault);
        }
        for cluster in 0..self.world.clusters.len() {
            if !self.world.clusters[cluster].faults.remove(fault).is_empty() {
                self.world.plane(now, cluster, |plane| plane.clear(now, fault));
            }
        }
    }

    /// The host crashes and starts again: from its disk when a system is on it, else from the discovery image.
    pub fn reboot(&mut self, now: Timestamp, position: usize, fault: &Arc<str>) -> bool {
        self.with_host(position, |h, w| h.crash(now, w, fault))
    }

    /// The agent on the host ends and is started again.
    pub fn restart_agent(&mut self, now: Timestamp, position: usize, fault: &Arc<str>) -> bool {
        self.with_host(position, |h, w| h.restart_agent(now, w, fault))
    }

    /// The user boots the host into the discovery image, whatever is on its disk.
    pub fn boot_discovery(&mut self, now: Timestamp, position: usize) -> bool {
        self.with_host(position, |h, w| {
            h.wipe_disk();
            h.reboot(now, w);
        })
    }

    /// The service's controllers have an agent started on a host that is installed, as a pod of its cluster.
    pub fn reclaim(&mut self, now: Timestamp, position: usize) -> bool {
        self.with_host(position, |h, w| h.reclaim(now, w))
    }

    /// The host belongs to that cluster from now on: what it sees in the DNS is that cluster's.
    pub fn assign_cluster(&mut self, position: usize, cluster: Option<usize>) -> bool {
        self.with_host(position, |h, _| h.plan.cluster = cluster)
    }

    fn run_due(&mut self, now: Timestamp) {
        while let Some(due) = self.world.pop_due(now) {
            match due.who {
                Who::Host(position) => {
                    if let Some(host) = self.hosts.get_mut(position as usize).filter(|h| h.epoch() == due.epoch) {
                        host.on_timer(now, &mut self.world, due.timer);
                    }
                }
                Who::Controller(cluster) => {
                    if let Some(controller) = self.controllers.get_mut(cluster as usize) {
                        controller.on_timer(now, &mut self.world, due.timer, due.epoch);
                    }
                }
                Who::Plane(cluster) => self.world.plane(now, cluster as usize, |_| Vec::new()),
            }
        }
    }
}

impl Actor for Fleet {
    fn wake(&mut self, now: Timestamp) {
        self.run_due(now);
    }

    fn deliver(&mut self, now: Timestamp, reply: Reply) {
        match self.connection_use(reply.connection) {
            Some(ConnectionUse::Host(position)) => {
                if let Some(host) = self.hosts.get_mut(position) {
                    host.on_reply(now, &mut self.world, reply.tag, reply.result);
                }
            }
            Some(ConnectionUse::Controller(cluster)) => {
                if let Some(controller) = self.controllers.get_mut(cluster) {
                    controller.on_reply(now, &mut self.world, reply.tag, reply.result);
                }
            }
            None => {}
        }
        self.run_due(now);
    }

    fn take_sends(&mut self) -> Vec<Send> {
        std::mem::take(&mut self.world.sends)
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.world.next_wake()
    }

    fn is_finished(&self) -> bool {
        // A controller that was not started may still be: something is due inside its cluster.
        let quiet =
            self.world.clusters.iter().zip(&self.controllers).all(|(site, controller)| match controller.state() {
                ControllerState::NotStarted => site.plane.next_due().is_none(),
                state => state == ControllerState::Ended,
            });
        quiet && self.hosts.iter().all(Host::is_settled)
    }
}
