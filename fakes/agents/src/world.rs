//! What all actors of a fleet share while they act: the network, the insides of the clusters, timers, and what goes out.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::actor::{Connection, Send};
use vlab_api::http::{Request, Response};
use vlab_api::types::{Cluster, Host};
use vlab_model::history::{FaultPhase, HostMoment, What};

use crate::alteration::{Alteration, Conduct};
use crate::cluster::{ControlPlane, Happening};
use crate::fault::{ActiveFaults, ClusterFault, Told};
use crate::hands::{Hands, Work};
use crate::installer::{ClusterBrief, HostBrief};
use crate::network::Network;
use crate::plan::{ClusterPlan, DnsView, FleetConfig, HostPlan};
use crate::steps::StepAnswer;

/// Who is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Host(u32),
    Controller(u32),
    Plane(u32),
}

/// What for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The machine is switched on.
    SwitchOn,
    /// The machine is up.
    Booted,
    /// The agent registers.
    Register,
    /// The agent asks for instructions.
    Poll,
    /// A step is through.
    StepDone(u32),
    /// A request is tried again.
    Again(u32),
    /// A request that went nowhere is given up.
    NoAnswer(u32),
    /// The installer goes on; the number makes older ones void.
    Installer(u32),
    /// A percentage of the image was written.
    Written(u32),
    /// The bootstrap looks for nodes to report.
    Nodes,
    /// Logs are gathered.
    LogsGathered(u32),
    /// The machine goes down to reboot.
    Reboot,
    /// The controller is started, or stopped because the cluster is installed anew.
    ControllerStart,
    ControllerStop,
    /// Loops of the controller.
    ReadyLoop,
    NodesLoop,
    FinalizingLoop,
    LogsLoop,
    WatchLoop,
    /// The controller's final logs are packed.
    FinalLogs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) at: Timestamp,
    /// Order of creation: timers of the same instant go off in this order.
    serial: u64,
    pub(crate) who: Who,
    /// The life of whoever set it: void after a reboot.
    pub(crate) epoch: u32,
    pub(crate) timer: Timer,
}

#[derive(Debug)]
pub(crate) struct ClusterSite {
    pub(crate) plan: ClusterPlan,
    pub(crate) plane: ControlPlane,
    /// What is wrong with its names and addresses and with its controller. The plane has its own.
    pub(crate) faults: ActiveFaults<ClusterFault>,
    scheduled: Option<Timestamp>,
    controller_told: bool,
}

/// Ids of a host, for whoever reports about another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids {
    pub(crate) host: Uuid,
    pub(crate) infra_env: Uuid,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: FleetConfig,
    pub(crate) network: Network,
    pub(crate) clusters: Vec<ClusterSite>,
    pub(crate) directory: Vec<Ids>,
    /// Positions of hosts by their ids.
    pub(crate) positions: HashMap<Uuid, usize>,
    pub(crate) names: Vec<Box<str>>,
    /// What unbound hosts see.
    pub(crate) open_dns: DnsView,
    timers: BinaryHeap<Reverse<Due>>,
    serial: u64,
    pub(crate) sends: Vec<Send>,
    pub(crate) seen: Vec<(Timestamp, What)>,
    /// Whose answers to what could not be understood.
    unreadable: BTreeSet<(Uuid, &'static str)>,
    told: Told,
    /// What agents answered first, where an alteration needs it: by host and kind of step.
    pub(crate) first_answers: BTreeMap<(u32, usize), StepAnswer>,
    /// What real hands are to do: position of the host, and what.
    pub(crate) work: Vec<(usize, Work)>,
}

impl World {
    pub(crate) fn new(config: FleetConfig) -> Self {
        let network = Network::new(config.seed);
        Self {
            config,
            network,
            clusters: Vec::new(),
            directory: Vec::new(),
            positions: HashMap::new(),
            names: Vec::new(),
            open_dns: DnsView { elsewhere: Some([198, 51, 100, 10].into()), ..DnsView::default() },
            timers: BinaryHeap::new(),
            serial: 0,
            sends: Vec::new(),
            seen: Vec::new(),
            unreadable: BTreeSet::new(),
            told: Told::default(),
            first_answers: BTreeMap::new(),
            work: Vec::new(),
        }
    }

    pub(crate) fn add_cluster(&mut self, plan: ClusterPlan) -> usize {
        let index = u32::try_from(self.clusters.len()).unwrap_or(u32::MAX);
        let mut plane = ControlPlane::new(self.config.seed, index, plan.control_plane_count, &self.config.timing);
        plane.alter(self.config.alteration);
        self.clusters.push(ClusterSite {
            plan,
            plane,
            faults: ActiveFaults::default(),
            scheduled: None,
            controller_told: false,
        });
        self.clusters.len() - 1
    }

    pub(crate) fn add_host(&mut self, plan: &HostPlan) {
        self.network.add(plan);
        self.names.push(plan.name.as_str().into());
        self.positions.entry(plan.host_id).or_insert(self.directory.len());
        self.directory.push(Ids { host: plan.host_id, infra_env: plan.infra_env_id });
    }

    pub(crate) fn at(&mut self, at: Timestamp, who: Who, epoch: u32, timer: Timer) {
        self.serial += 1;
        self.timers.push(Reverse(Due { at, serial: self.serial, who, epoch, timer }));
    }

    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.timers.peek().map(|Reverse(due)| due.at)
    }

    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Due> {
        if self.timers.peek().is_some_and(|Reverse(due)| due.at <= now) {
            return self.timers.pop().map(|Reverse(due)| due);
        }
        None
    }

    pub(crate) fn send(&mut self, connection: Connection, tag: u64, request: Request) {
        self.sends.push(Send { connection, tag, request });
    }

    pub(crate) fn saw(&mut self, now: Timestamp, what: What) {
        self.seen.push((now, what));
    }

    /// What an answer holds. A success with a body of another shape is told, once for each that asks; to whoever asked it is as
    /// good as no answer.
    pub(crate) fn read<T: DeserializeOwned + Clone + Any + std::marker::Send + Sync>(
        &mut self,
        now: Timestamp,
        subject: Uuid,
        of: &'static str,
        response: Response,
    ) -> Option<T> {
        let is_success = response.is_success();
        match response.body.read() {
            Ok(body) => Some(body),
            Err(error) => {
                if is_success && self.unreadable.insert((subject, of)) {
                    let (of, error) = (of.to_owned(), error.to_string());
                    self.saw(now, What::Unreadable { subject: Some(subject), of, error });
                }
                None
            }
        }
    }

    /// The little of a cluster that is looked at.
    pub(crate) fn brief(&mut self, now: Timestamp, subject: Uuid, response: Response) -> Option<ClusterBrief> {
        match response.body.as_object::<Cluster>() {
            Some(cluster) => Some(cluster.into()),
            None => self.read(now, subject, "v2GetCluster", response),
        }
    }

    /// The little of a cluster's hosts.
    pub(crate) fn host_briefs(&mut self, now: Timestamp, subject: Uuid, response: Response) -> Option<Vec<HostBrief>> {
        match response.body.as_object::<Vec<Host>>() {
            Some(hosts) => Some(hosts.iter().map(HostBrief::from).collect()),
            None => self.read(now, subject, "ListClusterHosts", response),
        }
    }

    pub(crate) fn has_real_hands(&self) -> bool {
        self.config.hands == Hands::Real
    }

    /// Is something wrong on purpose in that place?
    pub(crate) fn does(&self, conduct: Conduct) -> bool {
        self.config.alteration == Some(Alteration::Conduct(conduct))
    }

    pub(crate) fn host_did(&mut self, now: Timestamp, host: Uuid, what: HostMoment) {
        self.saw(now, What::HostDid { host, what });
    }

    /// A fault did something to that host, or to that cluster.
    pub(crate) fn note_effect(
        &mut self,
        now: Timestamp,
        fault: &Arc<str>,
        host: Option<Uuid>,
        cluster: Option<Uuid>,
        detail: impl Into<String>,
    ) {
        if self.told.first(fault, host.or(cluster)) {
            let (name, phase, inject) = (fault.to_string(), FaultPhase::Effect, String::new());
            self.saw(now, What::Fault { name, phase, inject, host, cluster, detail: detail.into() });
        }
    }

    /// Position of the cluster with that id.
    pub(crate) fn cluster(&self, id: Uuid) -> Option<usize> {
        self.clusters.iter().position(|c| c.plan.cluster_id == id)
    }

    /// Tells the inside of a cluster something, lets it go on, and notes what came of it.
    pub(crate) fn plane(
        &mut self,
        now: Timestamp,
        cluster: usize,
        tell: impl FnOnce(&mut ControlPlane) -> Vec<Happening>,
    ) {
        let Some(site) = self.clusters.get_mut(cluster) else { return };
        let mut happened = tell(&mut site.plane);
        happened.extend(site.plane.advance(now));
        let cluster_id = site.plan.cluster_id;
        let effects = site.plane.take_effects();
        let position = u32::try_from(cluster).unwrap_or(u32::MAX);
        let runs = site.plane.controller_runs();
        let told = std::mem::replace(&mut site.controller_told, runs);
        let due = site.plane.next_due();
        let schedule = due.filter(|due| site.scheduled.is_none_or(|at| at <= now || *due < at));
        if schedule.is_some() {
            site.scheduled = schedule;
        }
        if let Some(at) = schedule {
            self.at(at, Who::Plane(position), 0, Timer::Booted);
        }
        match (told, runs) {
            (false, true) => self.at(now, Who::Controller(position), 0, Timer::ControllerStart),
            (true, false) => self.at(now, Who::Controller(position), 0, Timer::ControllerStop),
            _ => {}
        }
        for (fault, node, detail) in effects {
            let host = node.and_then(|p| self.directory.get(p)).map(|ids| ids.host);
            self.note_effect(now, &fault, host, host.is_none().then_some(cluster_id), detail);
        }
        for happening in happened {
            let host = happening.host().and_then(|p| self.directory.get(p)).map(|ids| ids.host);
            self.saw(now, What::InCluster { cluster: cluster_id, host, what: happening.moment() });
        }
    }
}
