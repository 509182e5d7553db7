//! User, simulated hosts and history together, without I/O. The real run and the simulated one drive the same conductor;
//! they differ in where requests go and where the clock comes from.

mod ending;
mod machines;
mod replay;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use uuid::Uuid;
use vlab_agents::profile::HostAddresses;
use vlab_agents::{Alteration, Boot, ClusterPlan, DnsView, Fleet, FleetConfig, HardwareProfile, HostPlan};
use vlab_api::Timestamp;
use vlab_api::actor::{Actor, Connection, Reply, Send};
use vlab_api::types::{ClusterStatus, HostStage, HostStatus};
use vlab_history::{Directory, Recorder};
use vlab_judge::moment::{Tracker, percentage};
use vlab_model::console;
use vlab_model::history::{Observation, RunEnd, RunInfo, Source, What};
use vlab_model::lease::Times;
use vlab_model::settings::HostTiming;
use vlab_scenario::{BootOrder, Cluster, FaultPhase, Host, LinkDirection, Moment, Scenario, Span};

use crate::addresses::{address_at, addresses, declared_hardware, host_id};
use crate::asked::{Asked, AskedFor, Keeps};
use crate::fault::effect::{Effect, Lookup, ServiceFault, effect};
use crate::fault::machine::{MachineFault, has_machines};
use crate::fault::{Engine, FaultOrder, Present, ResolvedTarget};
use crate::journal::{Entry, order_words, sent_words, task_words};
use crate::members::Members;
use crate::rest::Rest;
use crate::user::{KubeUser, Ready, User, UserConfig};
use machines::Armed;

/// Connections of the user come first; the fleet's follow.
const USER_CONNECTIONS: Connection = 2;

/// What a conductor must know besides the scenario.
#[derive(Clone, Debug)]
pub struct ConductorConfig {
    /// The scenario.
    pub scenario: Arc<Scenario>,
    /// What goes into the first line of the history.
    pub info: RunInfo,
    /// Hardware profiles by name.
    pub profiles: BTreeMap<String, Arc<HardwareProfile>>,
    /// How long things take on hosts.
    pub timing: HostTiming,
    /// How much faster than `real` the clockwork runs.
    pub clock_scale: f64,
    /// Image of the agent that the service expects.
    pub agent_version: String,
    /// Certificate that controllers upload.
    pub ingress_pem: String,
    /// Pull secret that the user gives.
    pub pull_secret: String,
    /// Where states come from: the database, or what the user sees when looking.
    pub state_source: Source,
    /// Wall time between two looks of the user at the same cluster.
    pub look_every: Duration,
    /// Put every step that was asked and answered into the history. Off for large fleets.
    pub record_steps: bool,
    /// Put every request into the history ([`What::Request`]).
    pub record_requests: bool,
    /// NTP source that the user names where the scenario names none: virtual machines know no other.
    pub ntp_source: Option<String>,
    /// Public ssh key of the run, which the user gives beside that of the scenario: the way into virtual machines.
    pub ssh_key: Option<String>,
    /// Hosts or clusters do something wrong. For tests of the checks; no scenario can ask for it.
    pub alteration: Option<Alteration>,
    /// The user asks over Kubernetes.
    pub kube: Option<KubeUser>,
    /// The run is to be frozen when that is seen.
    pub freeze_at: Option<Moment>,
}

/// What is to be done to virtual machines.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineOrder {
    /// They are switched on, with the discovery image of their infra-env.
    Boot {
        /// The infra-env.
        infra_env: Uuid,
        /// Their cluster.
        cluster: Option<Uuid>,
        /// Where the image is, as the service says.
        download_url: String,
        /// Positions of the hosts in the scenario, and when each is switched on.
        machines: Vec<(usize, Timestamp)>,
    },
    /// One that is on leaves what it runs and boots its discovery image, once.
    BootDiscovery {
        /// Position of the host in the scenario.
        machine: usize,
    },
    /// A host of the pool is bound to a cluster: what its console tells of a cluster is about that one.
    Bound {
        /// Position of the host in the scenario.
        machine: usize,
        /// The cluster.
        cluster: Uuid,
    },
    /// A fault begins, or ends.
    Fault {
        /// Its name.
        name: String,
        /// What it does.
        what: MachineFault,
        /// The machines, by name. Of a link the first ones; of what is done to a cluster its name.
        on: Vec<String>,
        /// Of a link the second ones.
        to: Vec<String>,
        /// It ends: what was done is to be undone.
        undo: bool,
    },
}

/// What a fault does outside of the conductor: to the service, its database, or the way there.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Do that.
    Do(Arc<str>, ServiceFault),
    /// The fault is over: undo what it did, if it did something that lasts.
    Undo(Arc<str>),
}

/// Why a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All that it waits for was seen.
    Complete,
    /// It took longer than the whole run may.
    OutOfTime {
        /// What was still missing.
        waiting_for: Vec<String>,
    },
    /// The user could not go on.
    Stuck(String),
    /// The console of a machine says that it does nothing any more.
    Dead(String),
}

/// The conductor.
pub struct Conductor {
    config: ConductorConfig,
    recorder: Recorder,
    directory: Directory,
    user: User,
    fleet: Fleet,
    asked: Asked,
    faults: Engine,
    tasks: Vec<Task>,
    /// What is there for faults to hit.
    present: Present,
    host_ids: Vec<Uuid>,
    /// Positions of hosts in the scenario, by their ids.
    host_index: HashMap<Uuid, usize>,
    members: Arc<Members>,
    until: Vec<Tracker>,
    ended_clusters: BTreeSet<Uuid>,
    /// Before this one no cluster was left when it was looked for last.
    left_from: usize,
    started: Option<Timestamp>,
    satisfied_at: Option<Timestamp>,
    /// What the console of a machine said that does nothing any more.
    dead: Option<String>,
    linger_until: Option<Timestamp>,
    fleet_cluster: BTreeMap<usize, usize>,
    machine_orders: Vec<MachineOrder>,
    /// The clusters to which machines of the pool are bound, as was told last.
    bound: BTreeMap<usize, Uuid>,
    /// What is to be done to machines once they have come so far.
    armed: Vec<Armed>,
    /// How much of its image each host has on its disk, of a hundred, as the service knows it.
    written: BTreeMap<Uuid, u32>,
    /// The stage in which a host is.
    stages: BTreeMap<Uuid, HostStage>,
    /// Infra-envs, for the hosts that come later.
    infra_envs: Vec<Ready>,
    /// Clusters that were opened for more hosts.
    were_opened: BTreeSet<Uuid>,
    /// Clusters that were opened for more hosts and whose hosts have not been switched on.
    opened: Vec<Uuid>,
    hosts_started: u32,
    closing: bool,
    /// Time as it was told last.
    now: Timestamp,
    /// Something was seen since `until` was looked at: with thousands of hosts looking is not cheap.
    look_at_until: bool,
    rest: Rest,
    /// What it was told and wanted, where the run may be frozen.
    journal: Option<Vec<Entry>>,
    /// Waits for the moment at which it is.
    freeze: Option<Tracker>,
}

impl Conductor {
    /// A conductor that has not started.
    pub fn new(config: ConductorConfig, recorder: Recorder) -> Self {
        let host_ids: Vec<Uuid> =
            config.scenario.hosts.iter().map(|h| host_id(config.info.seed, h.index as u64)).collect();
        let user = User::new(
            config.scenario.clone(),
            UserConfig {
                pull_secret: config.pull_secret.clone(),
                look_every: config.look_every,
                clock_scale: config.clock_scale,
                ntp_source: config.ntp_source.clone(),
                ssh_key: config.ssh_key.clone(),
                events_tell_states: config.state_source == Source::Poll,
                macs: macs(&config),
                kube: config.kube.clone(),
            },
            &host_ids,
        );
        let mut fleet = FleetConfig::new(config.info.seed, config.timing.clone(), config.agent_version.as_str());
        fleet.reply_cache = config.scenario.hosts_settings.reply_cache;
        fleet.alteration = config.alteration;
        fleet.ingress_pem = config.ingress_pem.as_str().into();
        Self {
            directory: Directory::new(config.state_source),
            until: config.scenario.until.seen.iter().cloned().map(Tracker::new).collect(),
            fleet: Fleet::new(fleet, Vec::new(), Vec::new()),
            // Longer than hosts wait for in any status, shorter than the service waits for them.
            asked: Asked::new(
                config.timing.next_instruction(150),
                Keeps { all_bad: config.record_steps, requests: config.record_requests },
            ),
            faults: Engine::new(&config.scenario.faults, config.info.seed, config.clock_scale),
            tasks: Vec::new(),
            present: Present::default(),
            members: user.members(),
            user,
            recorder,
            host_index: host_ids.iter().enumerate().map(|(position, id)| (*id, position)).collect(),
            host_ids,
            left_from: 0,
            ended_clusters: BTreeSet::new(),
            started: None,
            satisfied_at: None,
            dead: None,
            linger_until: None,
            fleet_cluster: BTreeMap::new(),
            machine_orders: Vec::new(),
            bound: BTreeMap::new(),
            armed: Vec::new(),
            written: BTreeMap::new(),
            stages: BTreeMap::new(),
            infra_envs: Vec::new(),
            were_opened: BTreeSet::new(),
            opened: Vec::new(),
            hosts_started: 0,
            closing: false,
            now: Timestamp::default(),
            look_at_until: true,
            rest: Rest::default(),
            journal: config.freeze_at.is_some().then(Vec::new),
            freeze: config.freeze_at.clone().map(Tracker::new),
            config,
        }
    }

    /// Begins: writes the first lines of the history.
    pub fn start(&mut self, now: Timestamp) {
        self.enter(|| Entry::Start { at: now.as_micros() });
        self.started = Some(now);
        self.faults.start(now);
        let info = self.config.info.clone();
        self.note(now, Source::Harness, None, What::RunStarted(info));
        for host in self.config.scenario.clone().hosts.iter() {
            let (id, kind) = (self.host_ids[host.index], host.kind.in_history());
            let what = What::HostNamed { host: id, name: host.name.clone(), kind };
            self.note(now, Source::Harness, None, what);
        }
        self.woken(now);
    }

    /// The history so far.
    pub fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }

    /// Who is who.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The hosts.
    pub fn fleet(&mut self) -> &mut Fleet {
        &mut self.fleet
    }

    /// A machine was answered its request with a status after a time. `host`: as far as the path tells. `bad`: what nobody should
    /// be answered, as in [`What::BadAnswer`]. What hosts are answered that are played is heard where they ask.
    pub fn machine_was_answered(
        &mut self,
        now: Timestamp,
        host: Option<Uuid>,
        (request, status, took): (String, u16, Duration),
        bad: bool,
    ) {
        self.enter(|| Entry::machine_answered(now, host, &request, status, took, bad));
        if host.is_some_and(|host| self.fleet.host_position(host).is_some()) {
            return;
        }
        let ids = || request.split('/').filter_map(|part| part.parse::<Uuid>().ok());
        let cluster = || ids().find(|id| self.directory.cluster_names.contains_key(id));
        let of_infra_env = || ids().find_map(|id| self.infra_envs.iter().find(|r| r.infra_env_id == id)?.cluster_id);
        let host = host.or_else(cluster).or_else(of_infra_env);
        let request = if host.is_none() { format!("{request}, asked by a machine") } else { request };
        if let Some(what) = self.asked.told(now, AskedFor { who: host, request, status, bad, took }) {
            self.seen(now, Source::Hosts, None, what);
        }
    }

    /// Time has come to `now`.
    pub fn wake(&mut self, now: Timestamp) {
        self.enter(|| Entry::Wake { at: now.as_micros() });
        self.woken(now);
    }

    fn woken(&mut self, now: Timestamp) {
        self.user.wake(now);
        if self.fleet.next_wake().is_some_and(|at| at <= now) {
            self.fleet.wake(now);
        }
        self.settle(now);
    }

    /// An answer arrived.
    pub fn deliver(&mut self, now: Timestamp, mut reply: Reply) {
        self.enter(|| Entry::answer(now, &reply));
        let who = reply.connection.checked_sub(USER_CONNECTIONS).and_then(|connection| self.fleet.who(connection));
        let sent = self.asked.when(&reply);
        if let Some(what) = self.asked.answered(now, &reply, who) {
            let source = if who.is_some() { Source::Hosts } else { Source::Harness };
            self.note(now, source, None, what);
        }
        for what in self.asked.contacts().take() {
            self.note(now, Source::Hosts, None, what);
        }
        if reply.connection < USER_CONNECTIONS {
            self.user.deliver(now, reply);
            // When that was asked, before what it shows.
            if let Some(at) = sent.filter(|_| !self.config.info.virtual_time && self.user.has_looked_up()) {
                self.note(now, Source::Poll, None, What::Asked { at });
            }
        } else {
            reply.connection -= USER_CONNECTIONS;
            self.fleet.deliver(now, reply);
        }
        self.settle(now);
    }

    /// Somebody else saw something: the database, a console, the harness.
    pub fn observe(&mut self, now: Timestamp, source: Source, service_time: Option<Timestamp>, what: What) {
        self.enter(|| Entry::seen(now, source, service_time, &what));
        self.seen(now, source, service_time, what);
    }

    fn seen(&mut self, now: Timestamp, source: Source, service_time: Option<Timestamp>, what: What) {
        self.note(now, source, service_time, what);
        self.settle(now);
    }

    /// What faults want to be done to the service, to its database, or to the way there, in this order.
    pub fn take_tasks(&mut self) -> Vec<Task> {
        let tasks = std::mem::take(&mut self.tasks);
        if !tasks.is_empty() {
            self.enter(|| Entry::Tasks { what: task_words(&tasks) });
        }
        tasks
    }

    /// A task had an effect: on this host, or on nobody in particular.
    pub fn task_effect(&mut self, now: Timestamp, fault: &str, host: Option<Uuid>, detail: impl Into<String>) {
        let what = What::Fault {
            name: fault.to_owned(),
            phase: FaultPhase::Effect,
            inject: String::new(),
            host,
            cluster: None,
            detail: detail.into(),
        };
        self.observe(now, Source::Harness, None, what);
    }

    /// A task that takes its time is done.
    pub fn task_done(&mut self, now: Timestamp, fault: &str, how: &str) {
        self.enter(|| Entry::Done { at: now.as_micros(), fault: fault.to_owned(), how: how.to_owned() });
        self.faults.done(fault, &self.directory, how);
        self.settle(now);
    }

    /// How many infra-envs, with their clusters, are still to be made before all hosts that do not come later have a plan.
    pub fn infra_envs_left(&self) -> usize {
        let scenario = &self.config.scenario;
        let pool = usize::from(scenario.hosts.iter().any(|host| host.cluster.is_none()));
        (scenario.clusters.len() + pool).saturating_sub(self.infra_envs.len())
    }

    /// The hosts without their user.
    pub fn into_fleet(self) -> Fleet {
        self.fleet
    }

    /// Requests to send; the user's connections come first.
    pub fn take_sends(&mut self) -> Vec<Send> {
        let mut sends = self.user.take_sends();
        sends.extend(self.fleet.take_sends().into_iter().map(|mut send| {
            send.connection += USER_CONNECTIONS;
            send
        }));
        for send in &sends {
            self.asked.sent(self.now, send);
        }
        if !sends.is_empty() {
            self.enter(|| Entry::Sent { what: sent_words(&sends) });
        }
        sends
    }

    /// What is to be done to virtual machines, since the last call.
    pub fn take_machine_orders(&mut self) -> Vec<MachineOrder> {
        let orders = std::mem::take(&mut self.machine_orders);
        if !orders.is_empty() {
            self.enter(|| Entry::Orders { what: order_words(&orders) });
        }
        orders
    }

    /// Is that a connection of the user (and not of a simulated host)?
    pub fn is_user(connection: Connection) -> bool {
        connection < USER_CONNECTIONS
    }

    /// When the conductor wants to be woken.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let end = match (self.linger_until, self.started) {
            // The end has come already: only the last look is still to be taken.
            _ if self.closing => None,
            (Some(at), _) => Some(at),
            (None, Some(started)) => {
                let total = self.deadline(started);
                let at = self.config.scenario.until.at.map(|span| started + span.under(self.config.clock_scale));
                let rest = self.rested_at(started).filter(|at| *at > self.now);
                [Some(total), at.filter(|_| self.satisfied_at.is_some()), rest].into_iter().flatten().min()
            }
            (None, None) => None,
        };
        let fault = self.faults.next_wake(self.now);
        [self.user.next_wake(), self.fleet.next_wake(), fault, end].into_iter().flatten().min()
    }

    /// One more look at everything before the history is closed. No journal has it.
    pub fn look_once_more(&mut self, now: Timestamp) {
        self.journal = None;
        self.closing = true;
        self.observe(now, Source::Harness, None, What::LastLook {});
        // The history says of every fault when it ended.
        self.faults.finish(&self.directory);
        self.settle(now);
        self.user.look_once_more(now);
        self.settle(now);
    }

    /// Has the last look been taken?
    pub fn has_looked(&self) -> bool {
        self.user.has_looked()
    }

    /// Writes the last line, which says how the run ended, and gives the history away.
    pub fn finish(mut self, now: Timestamp, how: RunEnd) -> Vec<Observation> {
        for what in self.asked.contacts().finish(now) {
            self.recorder.record(Source::Hosts, None, now, what);
        }
        self.recorder.record(Source::Harness, None, now, What::RunFinished { how });
        self.recorder.into_observations()
    }

    /// Does the user ask over Kubernetes?
    pub fn asks_over_kube(&self) -> bool {
        self.config.kube.is_some()
    }

    fn note(&mut self, now: Timestamp, source: Source, service_time: Option<Timestamp>, what: What) {
        if let What::Console { machine, line, finding: Some(id) } = &what
            && let Some(check) = console::CHECKS.iter().find(|check| check.id == *id && check.ends)
        {
            let said = || format!("{machine} has stopped working: {id} ({}): {line}", check.description);
            self.dead.get_or_insert_with(said);
        }
        if let What::ClusterStatus { cluster, to, .. } = &what
            && source.tells_states(self.config.state_source)
        {
            // Over Kubernetes an installed cluster takes more hosts at once, without being asked.
            let opened = *to == ClusterStatus::AddingHosts && self.config.kube.is_some();
            if opened || matches!(to, ClusterStatus::Installed | ClusterStatus::Error | ClusterStatus::Cancelled) {
                self.ended_clusters.insert(*cluster);
            } else {
                self.ended_clusters.remove(cluster);
            }
        }
        if self.config.scenario.until.rest.is_some() {
            self.rest.see(now, &what, source.tells_states(self.config.state_source));
        }
        let observation = self.recorder.record(source, service_time, now, what);
        self.directory.observe(observation);
        for tracker in &mut self.until {
            self.look_at_until |= tracker.observe(&self.directory, observation);
        }
        if let Some(tracker) = &mut self.freeze {
            tracker.observe(&self.directory, observation);
        }
        // Who has a role decides about some moments, and clusters end by their status.
        self.look_at_until |= matches!(
            observation.what,
            What::HostRole { .. } | What::ClusterStatus { .. } | What::ClusterNamed { .. } | What::RunStarted(_)
        );
        self.user.observe(now, &self.directory, observation);
        self.faults.observe(&self.directory, observation);
        match observation.what {
            What::HostStatus { host, cluster, to, .. } if source.tells_states(self.config.state_source) => {
                self.belongs(host, cluster);
                // Nobody runs pods in a simulated cluster: the one that the controllers want there is started from here.
                if let Some(position) = self.fleet.host_position(host).filter(|_| to == HostStatus::Reclaiming) {
                    self.fleet.reclaim(now, position);
                }
            }
            What::HostStage { host, to: Some(stage), ref info, .. }
                if source.tells_states(self.config.state_source) =>
            {
                if stage == HostStage::WritingImageToDisk {
                    self.written.insert(host, percentage(info).unwrap_or(0));
                }
                self.stages.insert(host, stage);
                self.came_so_far(host);
            }
            What::ClusterStatus { cluster, to: ClusterStatus::AddingHosts, .. } => self.opened.push(cluster),
            _ => {}
        }
    }

    /// A host of the pool belongs to another cluster, or to none: what it sees in the DNS is that cluster's.
    fn belongs(&mut self, host: Uuid, cluster: Option<Uuid>) {
        let planned = self.host_index.get(&host).map(|i| &self.config.scenario.hosts[*i]);
        let Some(planned) = planned.filter(|h| h.cluster.is_none() && !h.bound_to.is_empty()) else { return };
        if planned.is_machine() {
            return self.bind_machine(planned.index, cluster);
        }
        let named = cluster.and_then(|id| self.directory.cluster_names.get(&id));
        let index = named.and_then(|name| self.members.cluster(name));
        if let Some(position) = self.fleet.host_position(host) {
            self.fleet.assign_cluster(position, index.and_then(|i| self.fleet_cluster.get(&i)).copied());
        }
    }

    /// Takes in what user and hosts have to tell until nobody has anything more to tell.
    fn settle(&mut self, now: Timestamp) {
        self.now = now;
        loop {
            self.faults.wake(now, &self.directory, &self.present);
            let (faults, orders) = self.faults.take();
            let seen = self.user.take_seen();
            let ready = self.user.take_ready();
            let powered = self.user.take_powered();
            for host in self.user.take_boots() {
                match self.fleet.host_position(host) {
                    Some(position) => {
                        self.fleet.boot_discovery(now, position);
                    }
                    None => self.boot_machine(host),
                }
            }
            let did = self.fleet.take_observations();
            let nothing = seen.is_empty() && ready.is_empty() && did.is_empty() && faults.is_empty();
            if nothing && powered.is_empty() && orders.is_empty() && self.opened.is_empty() {
                return;
            }
            for what in faults {
                self.note(now, Source::Harness, None, what);
            }
            for order in orders {
                self.carry_out(now, order);
            }
            for s in seen {
                self.note(now, s.source, s.service_time, s.what);
            }
            for (at, what) in did {
                if self.config.record_steps || !matches!(what, What::Step { .. }) {
                    self.note(now, Source::Hosts, Some(at), what);
                }
            }
            for r in ready {
                self.make_cluster(&r);
                self.power_on(now, &r, |host| !host.day2 && !host.bare_metal_host);
                self.infra_envs.push(r);
            }
            for index in powered {
                let host = &self.config.scenario.hosts[index];
                let cluster = host.cluster.as_deref().and_then(|name| self.members.cluster(name));
                if let Some(ready) = self.infra_envs.iter().find(|r| r.cluster == cluster).cloned() {
                    self.power_on(now, &ready, |host| host.index == index);
                }
            }
            for cluster in std::mem::take(&mut self.opened) {
                // Seen by several sources, and once is enough.
                if self.were_opened.insert(cluster)
                    && let Some(ready) = self.infra_envs.iter().find(|r| r.cluster_id == Some(cluster)).cloned()
                {
                    self.power_on(now, &ready, |host| host.day2 && !host.bare_metal_host);
                }
            }
        }
    }

    /// The cluster exists: its inside can begin.
    fn make_cluster(&mut self, ready: &Ready) {
        let scenario = self.config.scenario.clone();
        // The inside of a cluster of machines is in these.
        if let (Some(index), Some(cluster_id)) = (ready.cluster, ready.cluster_id) {
            let cluster = &scenario.clusters[index];
            if has_machines(&scenario, &cluster.name) {
                self.present.clusters.insert(cluster.name.clone());
                return;
            }
            let first = self.members.ever(&cluster.name).first();
            let first = first.and_then(|index| self.address(*index)).map(|a| a.addr());
            let api = if cluster.api_vips.is_empty() { first.into_iter().collect() } else { cluster.api_vips.clone() };
            let ingress = if cluster.ingress_vips.is_empty() {
                first.into_iter().collect()
            } else {
                cluster.ingress_vips.clone()
            };
            let plan = ClusterPlan {
                cluster_id,
                name: cluster.name.clone(),
                base_domain: cluster.base_domain.clone(),
                control_plane_count: cluster.control_plane_count,
                api_vips: cluster.api_vips.clone(),
                ingress_vips: cluster.ingress_vips.clone(),
                dns: DnsView::for_cluster(&cluster.name, &cluster.base_domain, &api, &ingress),
            };
            let position = self.fleet.add_cluster(plan);
            self.present.clusters.insert(cluster.name.clone());
            self.fleet_cluster.insert(index, position);
        }
    }

    /// The infra-env exists: those of its hosts can boot. Those of day 2 do when the cluster is open for them, and who has a
    /// BareMetalHost when that is provisioned.
    fn power_on(&mut self, now: Timestamp, ready: &Ready, which: impl Fn(&Host) -> bool) {
        let scenario = self.config.scenario.clone();
        let name = ready.cluster.map(|index| scenario.clusters[index].name.as_str());
        let hosts = self.members.of(name).iter().map(|index| &scenario.hosts[*index]);
        let (machines, members): (Vec<_>, Vec<_>) = hosts.filter(|h| which(h)).partition(|h| h.is_machine());
        if !machines.is_empty() {
            self.present.hosts.extend(machines.iter().map(|host| host.name.clone()));
            self.machine_orders.push(MachineOrder::Boot {
                infra_env: ready.infra_env_id,
                cluster: ready.cluster_id,
                download_url: ready.download_url.clone(),
                machines: machines
                    .iter()
                    .map(|host| (host.index, now + host.register_after.under(self.config.clock_scale)))
                    .collect(),
            });
        }
        let mut plans = Vec::new();
        for host in members {
            let Some(profile) = self.profile(host.index) else { continue };
            let gap = scenario
                .load
                .as_ref()
                .and_then(|l| l.ramp_per_second)
                .map_or(0.0, |rate| f64::from(self.hosts_started) / rate / self.config.clock_scale);
            self.hosts_started += 1;
            let leased = addresses(self.address(host.index).into_iter().chain(host.second_address));
            let boot = ready.image.clone().map(|image| Boot {
                image,
                lab: leased.gateways().collect(),
                leased: if host.dhcp { leased.clone() } else { HostAddresses::default() },
            });
            self.present.hosts.insert(host.name.clone());
            plans.push(HostPlan {
                index: u32::try_from(host.index).unwrap_or(u32::MAX),
                name: host.name.clone(),
                host_id: self.host_ids[host.index],
                infra_env_id: ready.infra_env_id,
                cluster: ready.cluster.and_then(|c| self.fleet_cluster.get(&c).copied()),
                profile,
                // A static network is known only when the machine has booted.
                addresses: if boot.is_some() { HostAddresses::default() } else { leased },
                boot,
                medium_first: host.vm.boot_order == BootOrder::CdFirst,
                registry_on_medium: host.registry_on_medium,
                start_at: now
                    + host.register_after.under(self.config.clock_scale)
                    + Duration::from_secs_f64(gap.max(0.0)),
            });
        }
        if !plans.is_empty() {
            self.fleet.add_hosts(plans);
        }
    }

    /// Does to the hosts what the fault engine says.
    fn carry_out(&mut self, now: Timestamp, order: FaultOrder) {
        if let Some(order) = self.order_for_machines(&order) {
            return self.order_machines(order);
        }
        let (fault, hit) = match order {
            FaultOrder::Inject(fault, hit) => (fault, hit),
            FaultOrder::Undo(
                fault,
                ResolvedTarget::Service | ResolvedTarget::Postgres | ResolvedTarget::Gateway | ResolvedTarget::Kube,
            ) => return self.tasks.push(Task::Undo(fault.name.as_str().into())),
            // The run is over: simulated hosts need not be healed, and what they would do then is no part of it.
            FaultOrder::Undo(..) if self.closing => return,
            FaultOrder::Undo(fault, _) => return self.fleet.clear(now, &fault.name),
        };
        let cluster = match &hit {
            ResolvedTarget::Cluster(name) => self.config.scenario.clusters.iter().position(|c| c.name == *name),
            _ => None,
        };
        let name: Arc<str> = fault.name.as_str().into();
        let effect = match effect(&fault, &WhoIsWho { conductor: self, cluster }) {
            Ok(effect) => effect,
            Err(why) => {
                // It will be told to have had no effect.
                let text = format!("the fault {name} cannot be injected: {why}");
                return self.note(now, Source::Harness, None, What::Note { text });
            }
        };
        match (hit, effect) {
            (ResolvedTarget::Hosts(names), effect) => {
                for position in self.positions(&names) {
                    match &effect {
                        Effect::Host(fault) => self.fleet.inject(now, position, &name, fault.clone()),
                        Effect::Reboot => self.fleet.reboot(now, position, &name),
                        Effect::RestartAgent => self.fleet.restart_agent(now, position, &name),
                        Effect::Link(..) | Effect::Cluster(_) | Effect::Service(_) => false,
                    };
                }
            }
            (ResolvedTarget::Link { from, to }, Effect::Link(how, direction)) => {
                let (from, to) = (self.positions(&from), self.positions(&to));
                for &a in &from {
                    for &b in to.iter().filter(|b| **b != a) {
                        self.fleet.inject_link(a, b, &name, how);
                        if direction == LinkDirection::Both {
                            self.fleet.inject_link(b, a, &name, how);
                        }
                    }
                }
            }
            (ResolvedTarget::Cluster(_), Effect::Cluster(fault)) => {
                if let Some(position) = cluster.and_then(|c| self.fleet_cluster.get(&c)).copied() {
                    self.fleet.inject_cluster(now, position, &name, fault);
                }
            }
            (_, Effect::Service(what)) => self.tasks.push(Task::Do(name, what)),
            // The checker lets no fault hit what it cannot.
            _ => {}
        }
    }

    /// Positions of hosts in the fleet.
    fn positions(&self, names: &[String]) -> Vec<usize> {
        let ids = names.iter().filter_map(|n| self.members.host(n)).map(|index| self.host_ids[index]);
        ids.filter_map(|id| self.fleet.host_position(id)).collect()
    }

    fn address(&self, index: usize) -> Option<IpNet> {
        let host = &self.config.scenario.hosts[index];
        address_at(&self.config.scenario, host, self.members.place(host))
    }

    fn profile(&self, index: usize) -> Option<Arc<HardwareProfile>> {
        declared_hardware(&self.config.profiles, &self.config.scenario.hosts[index])
    }
}

/// The MAC from which each host boots: that of its first NIC.
fn macs(config: &ConductorConfig) -> Vec<String> {
    let mac = |host: &Host| {
        let index = u32::try_from(host.index).unwrap_or(u32::MAX);
        declared_hardware(&config.profiles, host).map_or_else(String::new, |profile| profile.mac(index, 0).to_string())
    };
    config.scenario.hosts.iter().map(mac).collect()
}

/// Answers what faults ask about the scenario's hosts and clusters.
struct WhoIsWho<'a> {
    conductor: &'a Conductor,
    cluster: Option<usize>,
}

impl Lookup for WhoIsWho<'_> {
    fn id(&self, name: &str) -> Option<Uuid> {
        self.conductor.host_ids.get(self.conductor.members.host(name)?).copied()
    }
    fn address(&self, name: &str) -> Option<IpAddr> {
        self.conductor.address(self.conductor.members.host(name)?).map(|net| net.addr())
    }
    fn cluster(&self) -> Option<&Cluster> {
        self.conductor.config.scenario.clusters.get(self.cluster?)
    }
    fn lease(&self) -> Times {
        Times::at(self.conductor.config.clock_scale)
    }

    fn span(&self, span: Span) -> Duration {
        span.under(self.conductor.config.clock_scale)
    }
}

#[cfg(test)]
mod tests;
