//! The inside of a cluster that is being installed: bootkube and its temporary control plane, nodes that fetch their ignition,
//! join and become ready, etcd's move away from the bootstrap, operators. A pure state machine: it is told what happens and
//! what time it is, and says what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vlab_api::Timestamp;
use vlab_api::types::HostRole;
use vlab_model::history::ClusterMoment;
use vlab_model::settings::{HostTiming, Span};

use crate::alteration::Alteration;
use crate::fault::{ActiveFaults, ClusterFault};
use crate::hands::Observed;
use crate::rng::{Dice, Stream};

/// Something that happened inside the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// bootkube was started on that host (position in the fleet), the bootstrap.
    BootkubeStarted(usize),
    /// The temporary control plane on the bootstrap answers: API and machine-config server.
    TemporaryControlPlaneUp,
    /// etcd was told of that host's member (position in the fleet), which has not started yet.
    EtcdMemberAdded(usize),
    /// That node (position in the fleet) is ready.
    NodeReady(usize),
    /// bootkube is through.
    BootkubeDone,
    /// etcd runs on the masters only.
    EtcdBootstrapDone,
    /// The controller told the cluster that it is ready.
    ControllerReady,
    /// An operator is available.
    OperatorAvailable(String),
    /// The service took the controller's word that the installation is complete.
    InstallationCompleted,
    /// bootkube failed and is started again.
    BootkubeFailed,
    /// etcd has fewer members up than it needs; the member that is missing.
    EtcdQuorumLost(usize),
    /// And enough again.
    EtcdQuorumBack,
}

impl Happening {
    /// Its word in a history.
    pub fn moment(&self) -> ClusterMoment {
        match self {
            Happening::BootkubeStarted(_) => ClusterMoment::BootkubeStarted,
            Happening::TemporaryControlPlaneUp => ClusterMoment::TemporaryControlPlaneUp,
            Happening::EtcdMemberAdded(_) => ClusterMoment::EtcdMemberAdded,
            Happening::NodeReady(_) => ClusterMoment::NodeReady,
            Happening::BootkubeDone => ClusterMoment::BootkubeDone,
            Happening::EtcdBootstrapDone => ClusterMoment::EtcdBootstrapDone,
            Happening::ControllerReady => ClusterMoment::ControllerReady,
            Happening::OperatorAvailable(name) => ClusterMoment::OperatorAvailable(name.clone()),
            Happening::InstallationCompleted => ClusterMoment::InstallationCompleted,
            Happening::BootkubeFailed => ClusterMoment::BootkubeFailed,
            Happening::EtcdQuorumLost(_) => ClusterMoment::EtcdQuorumLost,
            Happening::EtcdQuorumBack => ClusterMoment::EtcdQuorumBack,
        }
    }

    /// Position of the host that it is about, where it is one's.
    pub fn host(&self) -> Option<usize> {
        match self {
            Happening::BootkubeStarted(p)
            | Happening::EtcdMemberAdded(p)
            | Happening::NodeReady(p)
            | Happening::EtcdQuorumLost(p) => Some(*p),
            _ => None,
        }
    }
}

/// How far a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// The installed system has booted and asks for its ignition.
    WantsIgnition,
    /// It has its ignition and configures itself.
    Configuring,
    /// It is in the cluster and not ready.
    Joined,
    /// It is ready.
    Ready,
    /// It was ready or on its way, and its machine is off.
    Lost,
}

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeRole {
    /// A member of the control plane.
    Master,
    /// Only a member of etcd.
    Arbiter,
    /// Neither.
    Worker,
}

impl From<HostRole> for NodeRole {
    fn from(role: HostRole) -> Self {
        match role {
            HostRole::Bootstrap | HostRole::Master => NodeRole::Master,
            HostRole::Arbiter => NodeRole::Arbiter,
            HostRole::Worker | HostRole::AutoAssign => NodeRole::Worker,
        }
    }
}

/// A node as the cluster knows it.
#[derive(Clone, Debug)]
pub struct Node {
    /// How far it is.
    pub state: NodeState,
    /// What it is for.
    pub role: NodeRole,
    /// When it fetched its ignition from the machine-config server; `None` on a single node, which brings its own.
    pub ignition_fetched: Option<Timestamp>,
    /// It was in the cluster once: after a power cut it needs no ignition and no joining.
    was_member: bool,
    /// It has a member of etcd, which comes up with the machine.
    etcd_member: bool,
    /// Whoever tells the service that it has its ignition has done so, or could not.
    told: bool,
    due: Option<Timestamp>,
}

/// Who reads in the machine-config server's log which nodes fetched their ignition, and tells the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogReader {
    /// The installer on the bootstrap. Of workers it tells that they wait for their ignition, and nothing more.
    Installer,
    /// The controller.
    Controller,
}

/// How far a reader is.
#[derive(Debug, Default)]
struct Reading {
    /// Until then he surely goes on.
    until: Timestamp,
    /// Nodes that the log spoke of when he read it.
    of: BTreeSet<usize>,
}

/// How far the control plane is; one step after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Nothing was started.
    Idle,
    /// bootkube runs and nothing answers yet.
    Starting,
    /// The temporary control plane answers.
    Temporary,
    /// bootkube is done, etcd's bootstrap member is still there.
    Bootstrapped,
    /// The masters are on their own.
    Pivoted,
}

/// The inside of one cluster.
#[derive(Debug)]
pub struct ControlPlane {
    timing: HostTiming,
    control_plane_count: u32,
    dice: Stream,
    phase: Phase,
    /// When the present phase is over, once that is known.
    phase_due: Option<Timestamp>,
    bootstrap: Option<usize>,
    bootstrap_lost: bool,
    nodes: BTreeMap<usize, Node>,
    readings: BTreeMap<LogReader, Reading>,
    controller_due: Option<Timestamp>,
    controller_runs: bool,
    controller_ready: bool,
    console_due: Option<Timestamp>,
    router_ca: Option<Timestamp>,
    olm_due: BTreeMap<String, Timestamp>,
    available: BTreeSet<String>,
    /// etcd's quorum as it was told last.
    quorum_told: bool,
    /// It does something wrong, so that the checks can be tested.
    alteration: Option<Alteration>,
    /// It is a real cluster that is looked at: nothing here happens by itself but OLM operators.
    observed: bool,
    wrong: Wrong,
}

/// What faults do to the inside of a cluster. It outlives an installation.
#[derive(Debug, Default)]
struct Wrong {
    faults: ActiveFaults<ClusterFault>,
    /// Nodes that nobody reaches.
    cut: BTreeSet<usize>,
    /// Nodes whose certificate nobody approves, and the faults that say so.
    withheld: BTreeMap<usize, Arc<str>>,
    /// What had an effect and was not told yet: fault, node, and what it did.
    effects: Vec<(Arc<str>, Option<usize>, &'static str)>,
}

impl Wrong {
    /// Is something of that kind wrong? If so, it has had an effect.
    fn is_active(&mut self, test: impl Fn(&ClusterFault) -> bool, detail: &'static str) -> bool {
        let found = self.faults.find(|fault| test(fault).then_some(()));
        let active = found.is_some();
        self.effects.extend(found.map(|(fault, ())| (fault, None, detail)));
        active
    }
}

impl ControlPlane {
    /// A cluster of which nothing exists yet. `index` is its number in the run and decides its dice.
    pub fn new(seed: u64, index: u32, control_plane_count: u32, timing: &HostTiming) -> Self {
        Self {
            timing: timing.clone(),
            control_plane_count,
            dice: Stream::new(seed, index, Dice::Cluster),
            phase: Phase::Idle,
            phase_due: None,
            bootstrap: None,
            bootstrap_lost: false,
            nodes: BTreeMap::new(),
            readings: BTreeMap::new(),
            controller_due: None,
            controller_runs: false,
            controller_ready: false,
            console_due: None,
            router_ca: None,
            olm_due: BTreeMap::new(),
            available: BTreeSet::new(),
            wrong: Wrong::default(),
            quorum_told: true,
            alteration: None,
            observed: false,
        }
    }

    /// Lets it do something wrong from here on.
    pub(crate) fn alter(&mut self, alteration: Option<Alteration>) {
        self.alteration = alteration;
    }

    // --- what a fault can do ---------------------------------------------------------------------------------------

    /// Puts something wrong on the cluster.
    pub(crate) fn inject(&mut self, name: &Arc<str>, fault: ClusterFault) {
        self.wrong.faults.add(name, fault);
    }

    /// Takes off what the fault put on; what waited for that goes on.
    pub(crate) fn clear(&mut self, now: Timestamp, fault: &str) -> Vec<Happening> {
        self.wrong.faults.remove(fault);
        self.advance(now)
    }

    /// The node at that position is reached by the others, or is not.
    pub(crate) fn uplink(&mut self, now: Timestamp, position: usize, there: bool) -> Vec<Happening> {
        match there {
            true => self.wrong.cut.remove(&position),
            false => self.wrong.cut.insert(position),
        };
        self.advance(now)
    }

    /// Nobody approves the certificate of the node at that position, by that fault; with none, somebody does.
    pub(crate) fn withhold_certificate(&mut self, now: Timestamp, position: usize, by: Option<&Arc<str>>) {
        match by {
            Some(fault) => {
                self.wrong.withheld.insert(position, Arc::clone(fault));
            }
            None => {
                self.wrong.withheld.remove(&position);
                if let Some(node) = self.nodes.get_mut(&position).filter(|n| n.state == NodeState::Configuring) {
                    node.due = node.due.map(|_| now);
                }
            }
        }
    }

    /// What had an effect since the last call: fault, node, and what it did.
    pub(crate) fn take_effects(&mut self) -> Vec<(Arc<str>, Option<usize>, &'static str)> {
        std::mem::take(&mut self.wrong.effects)
    }

    fn has(&self, test: impl Fn(&ClusterFault) -> bool) -> bool {
        self.wrong.faults.has(test)
    }

    fn draw(&mut self, span: Span) -> std::time::Duration {
        span.at(self.dice.unit())
    }

    /// The host on which bootkube was started.
    pub(crate) fn bootstrap(&self) -> Option<usize> {
        self.bootstrap
    }

    /// Is it a cluster of one node?
    pub fn is_single_node(&self) -> bool {
        self.control_plane_count == 1
    }

    /// Masters other than the bootstrap that bootkube waits for.
    pub fn masters_needed(&self) -> usize {
        self.control_plane_count.saturating_sub(1).min(2) as usize
    }

    /// Arbiters that bootkube waits for: two masters have one.
    pub fn arbiters_needed(&self) -> usize {
        usize::from(self.control_plane_count == 2)
    }

    /// Are as many nodes ready as bootkube and the installer on the bootstrap wait for?
    pub fn enough_joined(&self) -> bool {
        self.ready_masters() >= self.masters_needed() && self.ready(NodeRole::Arbiter) >= self.arbiters_needed()
    }

    /// Does the bootstrap leave without waiting for anything but its first companion?
    pub(crate) fn leaves_too_early(&self) -> bool {
        self.alteration == Some(Alteration::RebootsTooEarly) && self.ready_masters() > 0
    }

    /// Does an API server (and with it the machine-config server) answer? The temporary one lives on the bootstrap and ends
    /// with its reboot; the permanent one needs a ready master and etcd away from the bootstrap.
    pub fn api_is_up(&self) -> bool {
        self.api_could_be_up() && !self.has(|fault| *fault == ClusterFault::NoApi)
    }

    /// Can something be written into the cluster? A real one that is looked at says so itself.
    pub(crate) fn takes_events(&mut self) -> bool {
        let is_cut_off = |fault: &ClusterFault| *fault == ClusterFault::NoApi;
        self.observed
            || (self.api_could_be_up() && !self.wrong.is_active(is_cut_off, "its controller could not reach its API"))
    }

    fn api_could_be_up(&self) -> bool {
        match self.phase {
            Phase::Idle | Phase::Starting => false,
            Phase::Temporary | Phase::Bootstrapped => {
                !self.bootstrap_lost && self.bootstrap.is_none_or(|p| !self.wrong.cut.contains(&p))
            }
            Phase::Pivoted if self.has(|fault| *fault == ClusterFault::QuorumLost) => false,
            Phase::Pivoted if self.is_single_node() => self.ready_masters() > 0,
            Phase::Pivoted => self.missing_for_quorum().is_none(),
        }
    }

    /// A member of etcd without which there is no quorum.
    fn missing_for_quorum(&self) -> Option<usize> {
        if self.observed {
            return None;
        }
        let members = || self.nodes.iter().filter(|(_, n)| n.etcd_member);
        if self.alteration == Some(Alteration::LosesQuorum) && !self.bootstrap.is_some_and(|b| self.is_ready(b)) {
            return members().next_back().map(|(p, _)| *p);
        }
        // A machine that is up again runs its member before it is a ready node.
        let up = |p: &usize, n: &Node| {
            matches!(n.state, NodeState::Joined | NodeState::Ready) && !self.wrong.cut.contains(p)
        };
        let all = members().count();
        let there = members().filter(|(p, n)| up(p, n)).count();
        if there * 2 > all { None } else { members().find(|(p, n)| !up(p, n)).map(|(p, _)| *p) }
    }

    fn is_ready(&self, position: usize) -> bool {
        self.nodes.get(&position).is_some_and(|n| n.state == NodeState::Ready)
    }

    /// Notes that etcd lost its quorum, or has it again.
    fn watch_quorum(&mut self, happened: &mut Vec<Happening>) -> bool {
        if self.phase < Phase::Pivoted {
            return false;
        }
        let by_fault = self.wrong.is_active(|fault| *fault == ClusterFault::QuorumLost, "etcd lost its quorum");
        let missing = self.missing_for_quorum().or_else(|| {
            let mut members = self.nodes.iter().filter(|(_, n)| n.etcd_member);
            members.next_back().filter(|_| by_fault).map(|(p, _)| *p)
        });
        if self.quorum_told == missing.is_none() {
            return false;
        }
        self.quorum_told = missing.is_none();
        happened.push(missing.map_or(Happening::EtcdQuorumBack, Happening::EtcdQuorumLost));
        true
    }

    /// Is bootkube through?
    pub fn bootkube_is_done(&self) -> bool {
        self.phase >= Phase::Bootstrapped
    }

    /// Is etcd away from the bootstrap?
    pub fn etcd_bootstrap_is_done(&self) -> bool {
        self.phase >= Phase::Pivoted
    }

    /// Has the controller been started by the cluster?
    pub fn controller_runs(&self) -> bool {
        self.controller_runs
    }

    /// Nodes by the position of their hosts in the fleet.
    pub fn nodes(&self) -> &BTreeMap<usize, Node> {
        &self.nodes
    }

    /// Ready members of the control plane.
    pub fn ready_masters(&self) -> usize {
        self.ready(NodeRole::Master)
    }

    fn ready(&self, role: NodeRole) -> usize {
        let there = |p: &usize| !self.wrong.cut.contains(p);
        self.nodes.iter().filter(|(p, n)| n.role == role && n.state == NodeState::Ready && there(p)).count()
    }

    /// Is that operator available?
    pub fn operator_is_available(&self, name: &str) -> bool {
        self.available.contains(name)
    }

    /// Has the router a certificate?
    pub fn router_ca_is_there(&self, now: Timestamp) -> bool {
        self.router_ca.is_some_and(|at| at <= now)
    }

    /// bootkube is started on the host at that position. Whatever there was before is gone: this is a new installation. Only
    /// nodes that are up already and wait for their ignition belong to it.
    pub fn start_bootkube(&mut self, now: Timestamp, bootstrap: usize) -> Vec<Happening> {
        let dice = self.dice.clone();
        let wrong = std::mem::take(&mut self.wrong);
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.retain(|_, n| n.state == NodeState::WantsIgnition);
        let alteration = self.alteration;
        *self = Self { dice, nodes, wrong, alteration, ..Self::new(0, 0, self.control_plane_count, &self.timing) };
        self.bootstrap = Some(bootstrap);
        self.phase = Phase::Starting;
        self.phase_due = Some(now + self.draw(self.timing.bootkube_temporary_control_plane));
        vec![Happening::BootkubeStarted(bootstrap)]
    }

    /// The installed system of the host at that position is up.
    pub fn node_booted(&mut self, now: Timestamp, position: usize, role: NodeRole) {
        if let Some(node) = self.nodes.get_mut(&position).filter(|n| n.was_member) {
            node.state = NodeState::Joined;
            let wait = self.draw(self.timing.joined_to_ready);
            if let Some(node) = self.nodes.get_mut(&position) {
                node.due = Some(now + wait);
            }
            return;
        }
        let mut node = Node {
            state: NodeState::WantsIgnition,
            role,
            ignition_fetched: None,
            was_member: false,
            etcd_member: false,
            told: false,
            due: None,
        };
        if self.is_single_node() {
            node.state = NodeState::Configuring;
            node.due = Some(now + self.draw(self.timing.configuring_to_joined));
        }
        self.nodes.insert(position, node);
    }

    /// The machine at that position went down: switched off, crashed or rebooting.
    pub fn machine_down(&mut self, position: usize) {
        if self.bootstrap == Some(position) && self.phase < Phase::Pivoted {
            // On a single node that is the plan: its control plane comes up again from the disk.
            self.bootstrap_lost = true;
            if self.phase < Phase::Bootstrapped {
                self.phase_due = None;
            }
        }
        if let Some(node) = self.nodes.get_mut(&position) {
            node.state = NodeState::Lost;
            node.due = None;
        }
    }

    /// The disk of that machine is being overwritten: the node that was on it is no more.
    pub fn forget(&mut self, position: usize) {
        self.nodes.remove(&position);
    }

    /// Somebody reads the machine-config server's log, to tell the service what is new.
    pub(crate) fn log_is_read(&mut self, reader: LogReader) {
        let fetched = |(p, n): (&usize, &Node)| n.ignition_fetched.map(|_| *p);
        let of = self.nodes.iter().filter_map(fetched).collect();
        self.readings.entry(reader).or_default().of = of;
    }

    /// He has told it, or could not.
    pub(crate) fn log_was_told(&mut self, reader: LogReader) {
        let Some(reading) = self.readings.get_mut(&reader) else { return };
        for position in std::mem::take(&mut reading.of) {
            if let Some(node) = self.nodes.get_mut(&position) {
                node.told |= reader == LogReader::Controller || node.role != NodeRole::Worker;
            }
        }
    }

    /// He surely reads on until then.
    pub(crate) fn log_is_followed(&mut self, reader: LogReader, until: Timestamp) {
        let reading = self.readings.entry(reader).or_default();
        reading.until = reading.until.max(until);
    }

    /// Is somebody about to tell the service that this node has its ignition? On real hardware a node needs minutes to join,
    /// and the log is read every half a minute. Where the minutes are shorter than an answer of a busy service, the node waits
    /// for the report, so that no stage is missed that real clusters show.
    fn is_about_to_be_told(&self, node: &Node) -> bool {
        let follows = |reader| self.readings.get(&reader).is_some_and(|r| node.due.is_some_and(|due| r.until >= due));
        let installer = node.role != NodeRole::Worker && follows(LogReader::Installer);
        node.state == NodeState::Configuring && !node.told && (installer || follows(LogReader::Controller))
    }

    /// The controller told the cluster that it is ready. Of a real cluster whoever looks at it says so, before anybody there can
    /// know.
    pub fn controller_is_ready(&mut self) -> Vec<Happening> {
        match std::mem::replace(&mut self.controller_ready, true) {
            false if !self.observed => vec![Happening::ControllerReady],
            _ => Vec::new(),
        }
    }

    /// Has the controller told so?
    pub fn controller_ready(&self) -> bool {
        self.controller_ready
    }

    /// What somebody who looks at a real cluster saw: takes the place of what was known.
    pub fn observe(&mut self, now: Timestamp, seen: &Observed) -> Vec<Happening> {
        self.observed = true;
        self.phase = match (seen.bootkube_done, seen.etcd_bootstrap_done) {
            (_, true) => Phase::Pivoted,
            (true, false) => Phase::Bootstrapped,
            (false, false) => Phase::Temporary,
        };
        self.nodes = seen
            .nodes
            .iter()
            .map(|n| {
                let node = Node {
                    state: n.state,
                    role: if n.is_master { NodeRole::Master } else { NodeRole::Worker },
                    ignition_fetched: n.ignition_fetched,
                    was_member: false,
                    etcd_member: false,
                    told: false,
                    due: None,
                };
                (n.position, node)
            })
            .collect();
        self.controller_runs = seen.controller_runs;
        self.controller_ready |= seen.controller_ready;
        self.available.extend(seen.operators.iter().cloned());
        if seen.router_ca {
            self.router_ca.get_or_insert(now);
        }
        Vec::new()
    }

    /// An OLM operator's manifests were applied.
    pub fn apply_olm(&mut self, now: Timestamp, name: &str) {
        if !self.olm_due.contains_key(name) && !self.available.contains(name) {
            let at = now + self.draw(self.timing.olm_operator_available);
            self.olm_due.insert(name.to_owned(), at);
        }
    }

    /// When something is due next.
    pub fn next_due(&self) -> Option<Timestamp> {
        let nodes = self.nodes.values().filter_map(|n| n.due);
        let own = [self.phase_due, self.controller_due, self.console_due];
        nodes.chain(own.into_iter().flatten()).chain(self.olm_due.values().copied()).min()
    }

    /// Does everything that is due at `now`, in the order in which it was due.
    pub fn advance(&mut self, now: Timestamp) -> Vec<Happening> {
        let mut happened = Vec::new();
        while self.step(now, &mut happened) {}
        happened
    }

    /// One thing that is due; `false` when there is none.
    fn step(&mut self, now: Timestamp, happened: &mut Vec<Happening>) -> bool {
        if self.observed {
            return self.step_rest(now, happened);
        }
        self.watch_quorum(happened)
            || self.release_waiting(now)
            || self.step_phase(now, happened)
            || self.step_nodes(now, happened)
            || self.step_rest(now, happened)
    }

    /// What waits for a condition and not for a time.
    fn release_waiting(&mut self, now: Timestamp) -> bool {
        // Nodes that want an ignition get it as soon as the machine-config server answers.
        let waiting = |(p, n): &(&usize, &Node)| n.state == NodeState::WantsIgnition && !self.wrong.cut.contains(p);
        let waiting = self.nodes.iter().find(waiting).map(|(p, _)| *p);
        if self.api_could_be_up()
            && let Some(position) = waiting
            && !self.wrong.is_active(|fault| *fault == ClusterFault::NoApi, "a node did not reach the API")
            && !self
                .wrong
                .is_active(|fault| *fault == ClusterFault::NoMachineConfigServer, "a node did not get its ignition")
        {
            let wait = self.draw(self.timing.configuring_to_joined);
            if let Some(node) = self.nodes.get_mut(&position) {
                node.state = NodeState::Configuring;
                node.ignition_fetched = Some(now);
                node.due = Some(now + wait);
            }
            return true;
        }
        // bootkube ends some time after the last master that it needs.
        if self.phase == Phase::Temporary && self.phase_due.is_none() && !self.bootstrap_lost && self.enough_joined() {
            self.phase_due = Some(now + self.draw(self.timing.bootkube_done));
            return true;
        }
        let control_plane_is_up = if self.is_single_node() {
            self.phase == Phase::Pivoted
        } else {
            self.phase >= Phase::Bootstrapped && self.ready_masters() > 0
        };
        if control_plane_is_up && !self.controller_runs && self.controller_due.is_none() {
            self.controller_due = Some(now + self.draw(self.timing.controller_ready));
            return true;
        }
        if control_plane_is_up && self.console_due.is_none() && !self.available.contains("console") {
            let span = match self.is_single_node() {
                true => self.timing.operators_available_single_node,
                false => self.timing.operators_available,
            };
            self.console_due = Some(now + self.draw(span));
            return true;
        }
        false
    }

    fn step_phase(&mut self, now: Timestamp, happened: &mut Vec<Happening>) -> bool {
        if self.phase_due.is_none_or(|due| due > now) {
            return false;
        }
        if self.phase == Phase::Temporary {
            // bootkube is done, but for the faults.
            if self.wrong.is_active(|fault| *fault == ClusterFault::BootkubeFails, "bootkube failed") {
                self.phase_due = Some(now + self.draw(self.timing.bootkube_done));
                happened.push(Happening::BootkubeFailed);
                return true;
            }
            if self.wrong.is_active(|fault| *fault == ClusterFault::BootkubeHangs, "bootkube hangs") {
                self.phase_due = Some(now + self.timing.installer_poll);
                return true;
            }
        }
        if self.phase == Phase::Bootstrapped
            && self.wrong.is_active(|fault| *fault == ClusterFault::EtcdStays, "etcd did not leave the bootstrap")
        {
            self.phase_due = Some(now + self.timing.installer_poll);
            return true;
        }
        self.phase_due = None;
        match self.phase {
            Phase::Starting => {
                self.phase = Phase::Temporary;
                happened.push(Happening::TemporaryControlPlaneUp);
            }
            Phase::Temporary if self.alteration == Some(Alteration::SkipsBootkube) => {
                self.phase = Phase::Pivoted;
                happened.push(Happening::EtcdBootstrapDone);
            }
            Phase::Temporary => {
                self.phase = Phase::Bootstrapped;
                happened.push(Happening::BootkubeDone);
                if !self.is_single_node() {
                    self.phase_due = Some(now + self.draw(self.timing.etcd_bootstrap_done));
                }
            }
            Phase::Bootstrapped => {
                self.phase = Phase::Pivoted;
                happened.push(Happening::EtcdBootstrapDone);
            }
            Phase::Idle | Phase::Pivoted => {}
        }
        true
    }

    fn step_nodes(&mut self, now: Timestamp, happened: &mut Vec<Happening>) -> bool {
        let due = self.nodes.iter().filter(|(_, n)| n.due.is_some_and(|d| d <= now)).min_by_key(|(p, n)| (n.due, **p));
        let Some((position, state)) = due.map(|(p, n)| (*p, n.state)) else { return false };
        let single = self.is_single_node();
        if !single && self.nodes.get(&position).is_some_and(|node| self.is_about_to_be_told(node)) {
            let later = now + self.timing.mcs_log_poll;
            if let Some(node) = self.nodes.get_mut(&position) {
                node.due = Some(later);
            }
            return true;
        }
        let withheld = self.wrong.withheld.get(&position).filter(|_| state == NodeState::Configuring).cloned();
        if !single && self.api_could_be_up() {
            self.wrong.is_active(|fault| *fault == ClusterFault::NoApi, "a node did not reach the API");
        }
        self.wrong
            .effects
            .extend(withheld.iter().map(|by| (by.clone(), Some(position), "nobody approved its certificate")));
        // A node joins through the API; on a single node it is the API, and of those that are back etcd and the API come up first.
        let back = state == NodeState::Joined && self.nodes.get(&position).is_some_and(|n| n.etcd_member);
        let slow = self.leaves_too_early() && state == NodeState::Joined && !self.bootstrap_lost;
        if slow || (!single && !back && !self.api_is_up()) || withheld.is_some() || self.wrong.cut.contains(&position) {
            let later = now + self.timing.installer_poll;
            if let Some(node) = self.nodes.get_mut(&position) {
                node.due = Some(later);
            }
            return true;
        }
        let (next, wait) = match state {
            NodeState::Configuring => {
                let span = if single { self.timing.joined_to_ready_single_node } else { self.timing.joined_to_ready };
                (NodeState::Joined, Some(self.draw(span)))
            }
            _ => (NodeState::Ready, None),
        };
        if let Some(node) = self.nodes.get_mut(&position) {
            if next == NodeState::Joined && !single && node.role != NodeRole::Worker && !node.etcd_member {
                happened.push(Happening::EtcdMemberAdded(position));
            }
            node.state = next;
            node.was_member = true;
            node.etcd_member |= next == NodeState::Ready && node.role != NodeRole::Worker;
            node.due = wait.map(|w| now + w);
        }
        if next == NodeState::Ready {
            if single && self.phase < Phase::Pivoted {
                // Its own etcd member is the permanent one from here on.
                self.phase = Phase::Pivoted;
                happened.push(Happening::EtcdBootstrapDone);
            }
            happened.push(Happening::NodeReady(position));
        }
        true
    }

    fn step_rest(&mut self, now: Timestamp, happened: &mut Vec<Happening>) -> bool {
        if self.controller_due.is_some_and(|d| d <= now) {
            if !self.takes_events() {
                self.controller_due = Some(now + self.timing.installer_poll);
                return true;
            }
            self.controller_due = None;
            self.controller_runs = true;
            return true;
        }
        if self.console_due.is_some_and(|d| d <= now) {
            // The console needs the whole control plane: look again until it is there.
            let could = self.ready_masters() >= self.control_plane_count as usize && self.api_is_up();
            let console =
                |fault: &ClusterFault| matches!(fault, ClusterFault::OperatorDegraded(name) if name == "console");
            if !could || self.wrong.is_active(console, "the operator did not become available") {
                self.console_due = Some(now + self.timing.installer_poll);
                return true;
            }
            self.console_due = None;
            for name in ["console", "cvo"] {
                self.available.insert(name.to_owned());
                happened.push(Happening::OperatorAvailable(name.to_owned()));
            }
            self.router_ca = Some(now + self.draw(self.timing.router_ca_available));
            return true;
        }
        let olm = self.olm_due.iter().find(|(_, at)| **at <= now).map(|(name, _)| name.clone());
        if let Some(name) = olm {
            let this = |fault: &ClusterFault| matches!(fault, ClusterFault::OperatorDegraded(of) if *of == name);
            if self.wrong.is_active(this, "the operator did not become available") {
                let later = now + self.timing.installer_poll;
                self.olm_due.insert(name, later);
                return true;
            }
            self.olm_due.remove(&name);
            self.available.insert(name.clone());
            happened.push(Happening::OperatorAvailable(name));
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests;
