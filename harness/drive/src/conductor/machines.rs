//! What faults are to do to virtual machines: the orders for whoever made them, at once or when a machine has come so far.

use uuid::Uuid;
use vlab_api::types::{HostRole, HostStage};

use vlab_scenario::Cluster;

use super::{Conductor, MachineOrder};
use crate::fault::machine::{InsideFault, MachineFault, has_machines, machine_fault};
use crate::fault::{FaultOrder, ResolvedTarget};

/// What is done to a machine once it has come so far.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Armed {
    fault: String,
    what: MachineFault,
    host: String,
    when: Reached,
}

/// How far a machine has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reached {
    /// So much of its image is written, of a hundred.
    Written(u32),
    /// It is in that stage.
    Stage(HostStage),
}

impl Reached {
    /// What that fault waits for; `None`: for nothing.
    fn by(fault: &MachineFault) -> Option<Self> {
        match fault {
            MachineFault::DiskFails { percent } => Some(Self::Written(*percent)),
            MachineFault::Inside(InsideFault::InstallerStands(stage) | InsideFault::InstallerEnds(stage)) => {
                Some(Self::Stage(*stage))
            }
            _ => None,
        }
    }
}

impl Conductor {
    /// The same for virtual machines; `None` when simulated hosts are meant. What cannot be done to machines was refused when
    /// the run was prepared.
    pub(super) fn order_for_machines(&self, order: &FaultOrder) -> Option<MachineOrder> {
        let (fault, hit, undo) = match order {
            FaultOrder::Inject(fault, hit) => (fault, hit, false),
            FaultOrder::Undo(fault, hit) => (fault, hit, true),
        };
        let scenario = &self.config.scenario;
        let (on, mut to) = match hit {
            ResolvedTarget::Hosts(names) => (names.clone(), Vec::new()),
            ResolvedTarget::Link { from, to } => (from.clone(), to.clone()),
            ResolvedTarget::Cluster(name) => (vec![name.clone()], Vec::new()),
            _ => return None,
        };
        let is_machine = |name: &String| match hit {
            ResolvedTarget::Cluster(_) => has_machines(scenario, name),
            _ => self.members.host(name).is_some_and(|index| scenario.hosts[index].is_machine()),
        };
        on.iter().any(is_machine).then(|| machine_fault(fault, scenario).ok()).flatten().map(|what| {
            if let MachineFault::Inside(inside) = &what
                && (inside.is_of_a_cluster() || inside.is_told_to_the_cluster())
            {
                to = on.iter().flat_map(|name| self.control_plane_of(name)).collect();
                to.dedup();
            }
            MachineOrder::Fault { name: fault.name.clone(), what, on, to, undo }
        })
    }

    /// Machines that are, or may become, the control plane of a cluster, or of that of a host.
    fn control_plane_of(&self, name: &str) -> Vec<String> {
        let scenario = &self.config.scenario;
        let cluster = match scenario.cluster(name) {
            Some(cluster) => Some(cluster),
            None => self.members.host(name).and_then(|index| self.cluster_of(index)),
        };
        let hosts = cluster.into_iter().flat_map(|cluster| self.members.ever(&cluster.name));
        let hosts = hosts.map(|index| &scenario.hosts[*index]).filter(|host| host.is_machine());
        hosts.filter(|host| host.role != HostRole::Worker).map(|host| host.name.clone()).collect()
    }

    /// The cluster that a host is in: its own, that to which it is bound, or will be first.
    fn cluster_of(&self, index: usize) -> Option<&Cluster> {
        let scenario = &self.config.scenario;
        let bound = self.bound.get(&index).and_then(|id| self.directory.cluster_names.get(id));
        let name = bound.map(String::as_str).or_else(|| scenario.hosts[index].clusters().next());
        scenario.cluster(name?)
    }

    /// A machine of the pool is bound to a cluster. When it is taken out of one, it still runs what was installed for that.
    pub(super) fn bind_machine(&mut self, machine: usize, cluster: Option<Uuid>) {
        if let Some(cluster) = cluster
            && self.bound.insert(machine, cluster) != Some(cluster)
        {
            self.machine_orders.push(MachineOrder::Bound { machine, cluster });
        }
    }

    /// The user boots a machine from the discovery image: how far it came before means nothing any more.
    pub(super) fn boot_machine(&mut self, host: Uuid) {
        let Some(machine) = self.host_index.get(&host).copied() else { return };
        // It may not be there yet, and then it boots that image anyway.
        if self.present.hosts.contains(&self.config.scenario.hosts[machine].name) {
            self.bound.remove(&machine);
            self.written.remove(&host);
            self.stages.remove(&host);
            self.machine_orders.push(MachineOrder::BootDiscovery { machine });
        }
    }

    /// Passes an order on, but for what waits until a machine has come so far: [`Conductor::came_so_far`].
    pub(super) fn order_machines(&mut self, mut order: MachineOrder) {
        if let MachineOrder::Fault { name, what, on, undo, .. } = &mut order
            && let Some(when) = Reached::by(what)
        {
            if *undo {
                // What has not been done yet will not be, and needs no help.
                on.retain(|host| !self.armed.iter().any(|armed| armed.fault == *name && armed.host == *host));
                self.armed.retain(|armed| armed.fault != *name);
            } else {
                let id = |host: &String| Some(self.host_ids[self.members.host(host)?]);
                let there = |host: &String| id(host).is_some_and(|id| self.has_reached(id, when));
                let (now, later): (Vec<_>, Vec<_>) = on.drain(..).partition(there);
                *on = now;
                let armed = |host| Armed { fault: name.clone(), what: what.clone(), host, when };
                self.armed.extend(later.into_iter().map(armed));
            }
            if on.is_empty() {
                return;
            }
        }
        self.machine_orders.push(order);
    }

    fn has_reached(&self, host: Uuid, when: Reached) -> bool {
        match when {
            Reached::Written(percent) => self.written.get(&host).copied().unwrap_or(0) >= percent,
            Reached::Stage(stage) => self.stages.get(&host) == Some(&stage),
        }
    }

    /// A host has come further: does something wait for that?
    pub(super) fn came_so_far(&mut self, host: Uuid) {
        if self.armed.is_empty() {
            return;
        }
        let Some(name) = self.host_index.get(&host).map(|i| &self.config.scenario.hosts[*i].name) else { return };
        let armed = std::mem::take(&mut self.armed);
        let (due, waiting): (Vec<Armed>, Vec<Armed>) =
            armed.into_iter().partition(|a| a.host == *name && self.has_reached(host, a.when));
        self.armed = waiting;
        self.machine_orders.extend(due.into_iter().map(|armed| MachineOrder::Fault {
            name: armed.fault,
            what: armed.what,
            on: vec![armed.host],
            to: Vec::new(),
            undo: false,
        }));
    }
}
