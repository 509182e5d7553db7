//! The user's part, played through the API only: create clusters and infra-envs, give hosts their roles, press "install",
//! and whatever the scenario says beyond that.
//!
//! The user acts when something was seen in the history (by whatever source), and looks at the service now and then; what
//! those looks show goes into the history too, as polls and as events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use vlab_agents::DiscoveryImage;
use vlab_agents::boot::ImageError;
use vlab_api::Timestamp;
use vlab_api::actor::{Actor, Connection, Reply, Send};
use vlab_api::ops::{self, ApiCall, EventsQuery, Failure};
use vlab_api::types::{
    ApiVip, BindHostParams, Cluster, ClusterCreateParams, ClusterNetwork, ClusterStatus, Event, FinalizingStage,
    HostRole, HostStage, HostStaticNetworkConfig, HostStatus, HostUpdateParams, ImageType, InfraEnvCreateParams,
    IngressVip, KernelArgument, MacInterfaceMapItem, MachineNetwork, OperatorStatus, Platform, ServiceNetwork,
    V2ClusterUpdateParams,
};
use vlab_history::Directory;
use vlab_history::facts::{ClusterFacts, HostFacts, diff_cluster, diff_host};
use vlab_history::merge::{Merged, MergedChange, ToldByEvent, told};
use vlab_judge::moment::Tracker;
use vlab_model::history::{ClusterMoment, HistoryPart, HostMoment, Observation, ResourceState, Source, UserVerb, What};
use vlab_scenario::{ActionKind, ActionTime, InstallMode, Scenario};

use crate::members::Members;

mod events;
mod kube;
mod lists;
mod looks;
mod requests;

use self::events::{EventList, LAST_PAGES};
use self::kube::Apply;
pub use self::kube::{KubeUser, POOL};
use self::lists::LastLists;
use self::looks::Look;

/// Connection on which the user acts.
const ACT: Connection = 0;
/// Connection on which the user looks.
const LOOK: Connection = 1;

/// Whose infra-env.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// That of the hosts that belong to no cluster.
    Pool,
    /// That of a cluster, by its position in the scenario.
    Cluster(usize),
}

/// Shortest time between two looks, whatever the number of clusters.
const LOOK_AT_LEAST: Duration = Duration::from_millis(20);

/// How the user behaves.
#[derive(Clone, Debug)]
pub struct UserConfig {
    /// Pull secret to give.
    pub pull_secret: String,
    /// Time between two looks at the same cluster, in wall time.
    pub look_every: Duration,
    /// How much faster than `real` the clockwork of the service runs.
    pub clock_scale: f64,
    /// NTP source to name where the scenario names none.
    pub ntp_source: Option<String>,
    /// Public ssh key to give beside that of the scenario.
    pub ssh_key: Option<String>,
    /// States are known from looks and events alone: what events tell of the time between two looks becomes states, too.
    pub events_tell_states: bool,
    /// The MAC from which each host boots, in the scenario's order: BareMetalHosts say it.
    pub macs: Vec<String>,
    /// The service is asked over Kubernetes.
    pub kube: Option<KubeUser>,
}

/// Something that the user found out or did, for the history.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Who saw it.
    pub source: Source,
    /// When it happened by the service's clock, where that is known.
    pub service_time: Option<Timestamp>,
    /// What was seen.
    pub what: What,
}

/// An infra-env that hosts can now boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Position of the cluster in the scenario; `None`: the pool.
    pub cluster: Option<usize>,
    /// The cluster's id.
    pub cluster_id: Option<Uuid>,
    /// The infra-env's id.
    pub infra_env_id: Uuid,
    /// Where its discovery image is, as the service says; empty: there is none.
    pub download_url: String,
    /// What is in its image, where it has static networks.
    pub image: Option<Arc<DiscoveryImage>>,
}

#[derive(Clone, Debug, PartialEq)]
enum UserTask {
    CreateCluster(usize),
    CreateInfraEnv(Whose),
    FetchImage(Whose),
    SetRole {
        host: usize,
    },
    Install(usize),
    Action(usize, Option<usize>),
    /// Over Kubernetes: make a namespace.
    Namespace(String),
    /// Over Kubernetes: apply a resource.
    Apply(Box<Apply>),
    /// Over Kubernetes: look whether the service has the cluster.
    AwaitCluster(Whose),
    /// Over Kubernetes: look whether there is an image.
    AwaitInfraEnv(Whose),
    /// Over Kubernetes: look whether a host has been provisioned with its image.
    LookAtBareMetalHost {
        host: usize,
    },
    /// Over Kubernetes: approve a host, with its role.
    Approve {
        host: usize,
    },
    /// Over Kubernetes: the node of a host of day 2 is up; its cluster's API server is told so.
    NodeIsUp {
        host: usize,
    },
}

#[derive(Debug, Default)]
struct ClusterState {
    id: Option<Uuid>,
    infra_env: Option<Uuid>,
    download_url: String,
    status: ClusterStatus,
    asked_to_install: bool,
    /// The request to install was sent, and its answer lost.
    unanswered: bool,
    /// The user has deleted it from the hub.
    gone: bool,
    /// At so many looks in a row its resource, or that of its InfraEnv, said that something is wrong with it.
    wrong: u32,
    facts: Option<ClusterFacts>,
    events: EventList,
    states: ClusterStates,
}

/// A cluster's states, as looks and events tell them.
#[derive(Debug)]
struct ClusterStates {
    status: Merged<ClusterStatus>,
    finalizing: Merged<Option<FinalizingStage>>,
}

impl Default for ClusterStates {
    fn default() -> Self {
        Self { status: Merged::default(), finalizing: Merged::beginning(None) }
    }
}

/// A host's states, as looks and events tell them.
#[derive(Debug)]
struct HostStates {
    status: Merged<HostStatus>,
    stage: Merged<Option<HostStage>>,
}

impl Default for HostStates {
    fn default() -> Self {
        Self { status: Merged::default(), stage: Merged::beginning(None) }
    }
}

#[derive(Debug, Default)]
struct HostState {
    id: Uuid,
    registered: bool,
    known: bool,
    /// It has a BareMetalHost, which has been switched on.
    powered: bool,
    role_set: bool,
    /// The cluster that it belongs to now.
    cluster: Option<Uuid>,
    facts: Option<HostFacts>,
    states: HostStates,
}

struct PendingAction {
    index: usize,
    trigger: Option<Tracker>,
    due: Option<Timestamp>,
    done: bool,
}

/// The user.
pub struct User {
    scenario: Arc<Scenario>,
    members: Arc<Members>,
    config: UserConfig,
    clusters: Vec<ClusterState>,
    pool: ClusterState,
    hosts: Vec<HostState>,
    host_index: BTreeMap<Uuid, usize>,
    cluster_index: BTreeMap<Uuid, usize>,
    actions: Vec<PendingAction>,
    todo: VecDeque<UserTask>,
    acting: Option<UserTask>,
    looking: Option<Look>,
    look_queue: VecDeque<Look>,
    next_look: Option<Timestamp>,
    retry: Option<(Timestamp, UserTask)>,
    /// Tasks that wait for something: over Kubernetes one looks again and again.
    later: Vec<(Timestamp, UserTask)>,
    started: Option<Timestamp>,
    sends: Vec<Send>,
    seen: Vec<Seen>,
    ready: Vec<Ready>,
    boots: Vec<Uuid>,
    powered: Vec<usize>,
    fatal: Option<String>,
    final_look: bool,
    /// What the last look at lists is compared with.
    lists: LastLists,
    /// Answers to looks that could not be understood; each is told once.
    unreadable: BTreeSet<String>,
    operators: BTreeMap<(Uuid, String), Option<OperatorStatus>>,
}

impl User {
    /// A user of that scenario. `host_ids[i]` is the id of `scenario.hosts[i]`.
    pub fn new(scenario: Arc<Scenario>, config: UserConfig, host_ids: &[Uuid]) -> Self {
        let members = Arc::new(Members::of_scenario(&scenario));
        let mut todo = VecDeque::new();
        for index in 0..scenario.clusters.len() {
            todo.push_back(UserTask::CreateCluster(index));
            todo.push_back(UserTask::CreateInfraEnv(Whose::Cluster(index)));
        }
        if scenario.hosts.iter().any(|h| h.cluster.is_none()) {
            todo.push_back(UserTask::CreateInfraEnv(Whose::Pool));
        }
        let hosts: Vec<HostState> = host_ids.iter().map(|id| HostState { id: *id, ..HostState::default() }).collect();
        let actions = scenario
            .actions
            .iter()
            .enumerate()
            .map(|(index, action)| PendingAction {
                index,
                trigger: match &action.when {
                    ActionTime::At(_) => None,
                    ActionTime::After { moment, .. } => Some(Tracker::new(moment.clone())),
                },
                due: None,
                done: false,
            })
            .collect();
        let mut user = Self {
            clusters: scenario.clusters.iter().map(|_| ClusterState::default()).collect(),
            pool: ClusterState::default(),
            host_index: host_ids.iter().enumerate().map(|(i, id)| (*id, i)).collect(),
            cluster_index: BTreeMap::new(),
            hosts,
            scenario,
            members,
            config,
            actions,
            todo,
            acting: None,
            looking: None,
            look_queue: VecDeque::new(),
            next_look: None,
            retry: None,
            later: Vec::new(),
            started: None,
            sends: Vec::new(),
            seen: Vec::new(),
            ready: Vec::new(),
            boots: Vec::new(),
            powered: Vec::new(),
            fatal: None,
            final_look: false,
            lists: LastLists::default(),
            unreadable: BTreeSet::new(),
            operators: BTreeMap::new(),
        };
        if user.is_kube() {
            user.todo = user.kube_todo();
        }
        user
    }

    /// Who belongs to whom in the scenario.
    pub(crate) fn members(&self) -> Arc<Members> {
        self.members.clone()
    }

    /// What the user found out and did since the last call.
    pub fn take_seen(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }

    /// Did the last answer show something of the service's state that was not known?
    pub(crate) fn has_looked_up(&self) -> bool {
        self.seen.iter().any(|seen| seen.source == Source::Poll)
    }

    /// Infra-envs that hosts can boot, since the last call.
    pub fn take_ready(&mut self) -> Vec<Ready> {
        std::mem::take(&mut self.ready)
    }

    /// Hosts that were provisioned with their image, by position in the scenario, since the last call.
    pub fn take_powered(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.powered)
    }

    /// Hosts that the user boots from the discovery image, since the last call.
    pub fn take_boots(&mut self) -> Vec<Uuid> {
        std::mem::take(&mut self.boots)
    }

    /// Why the user cannot go on, if so: the service refused something without which there is no run.
    pub fn fatal(&self) -> Option<&str> {
        self.fatal.as_deref()
    }

    /// Has the user something to do now, or at a time that is known?
    pub fn has_plans(&self) -> bool {
        let due = self.actions.iter().any(|action| !action.done && action.due.is_some());
        due || self.acting.is_some() || self.retry.is_some() || !self.todo.is_empty()
    }

    /// One more look at everything, at the end of a run.
    pub fn look_once_more(&mut self, now: Timestamp) {
        self.final_look = true;
        self.look_queue.clear();
        self.queue_looks();
        self.next_look = Some(now);
        self.act(now);
    }

    /// Has the last look been taken?
    pub fn has_looked(&self) -> bool {
        self.final_look && self.looking.is_none() && self.look_queue.is_empty()
    }

    /// Takes in what was observed by anybody. The directory must have taken it in first.
    pub fn observe(&mut self, now: Timestamp, directory: &Directory, observation: &Observation) {
        match &observation.what {
            What::HostDid { host, what: HostMoment::Registered } => {
                if let Some(&index) = self.host_index.get(host) {
                    self.hosts[index].registered = true;
                    self.want_role(index);
                }
            }
            What::HostStatus { host, cluster, to, .. } => {
                if let Some(&index) = self.host_index.get(host) {
                    let state = &mut self.hosts[index];
                    state.registered = true;
                    state.known = matches!(to, HostStatus::Known);
                    if std::mem::replace(&mut state.cluster, *cluster) != *cluster && self.config.kube.is_none() {
                        // The service forgets the role of a host that it unbinds.
                        state.role_set = false;
                    }
                    self.want_role(index);
                    if let Some(&c) = cluster.as_ref().and_then(|id| self.cluster_index.get(id)) {
                        self.want_install(c);
                    }
                }
            }
            What::ClusterStatus { cluster, to, .. } => {
                if let Some(&index) = self.cluster_index.get(cluster) {
                    let before = std::mem::replace(&mut self.clusters[index].status, *to);
                    if self.is_kube() && *to == ClusterStatus::AddingHosts && before != *to {
                        self.describe_more(index);
                    }
                    self.want_install(index);
                }
            }
            What::Resource { kind, name, is: ResourceState::Deleting | ResourceState::Gone, .. }
                if kind == vlab_service::kube::Kind::AgentClusterInstall.name() =>
            {
                if let Some(index) = self.scenario.clusters.iter().position(|cluster| cluster.name == *name) {
                    self.clusters[index].gone = true;
                }
            }
            What::Resource { kind, name, is: ResourceState::Changed, .. }
                if kind == vlab_service::kube::Kind::BareMetalHost.name() =>
            {
                self.bare_metal_host_changed(name);
            }
            What::InCluster { host: Some(host), what: ClusterMoment::NodeReady, .. } => self.node_is_up(*host),
            _ => {}
        }
        for pending in &mut self.actions {
            if let (Some(trigger), None) = (&mut pending.trigger, pending.due) {
                trigger.observe(directory, observation);
                if let Some(at) = trigger.complete(directory) {
                    let ActionTime::After { then, .. } = &self.scenario.actions[pending.index].when else { continue };
                    pending.due = Some((at.time + then.under(self.config.clock_scale)).max(now));
                }
            }
        }
        self.act(now);
    }

    /// A host that the scenario gives a role is told it as soon as it is there.
    fn want_role(&mut self, index: usize) {
        if self.is_kube() {
            return self.want_approval(index);
        }
        let planned = &self.scenario.hosts[index];
        let wanted = planned.role;
        let host = &mut self.hosts[index];
        // A host of the pool is in a cluster when the service says so, others are from the beginning.
        let cluster = match planned.cluster.as_deref() {
            Some(name) => self.members.cluster(name).map(|c| &self.scenario.clusters[c]),
            None => host.cluster.and_then(|c| self.cluster_index.get(&c)).map(|c| &self.scenario.clusters[*c]),
        };
        // A single node is a master whether one asks for it or not, a host of day 2 a worker, and one of the pool nothing.
        let single = planned.day2 || cluster.is_none_or(|c| c.control_plane_count == 1);
        if wanted == HostRole::AutoAssign || single || host.role_set || !host.registered {
            return;
        }
        host.role_set = true;
        self.todo.push_back(UserTask::SetRole { host: index });
    }

    /// Installs a cluster that is ready and of which all hosts are known: a user waits for all hosts, not for enough.
    fn want_install(&mut self, index: usize) {
        let cluster = &self.scenario.clusters[index];
        // Over Kubernetes the controllers install what is approved.
        if self.is_kube()
            || cluster.install != InstallMode::Auto
            || self.clusters[index].asked_to_install
            || self.clusters[index].status != ClusterStatus::Ready
        {
            return;
        }
        let members = self.members.ever(&cluster.name).iter().map(|h| &self.scenario.hosts[*h]);
        let all_known = members
            .filter(|h| !h.day2)
            .all(|h| self.hosts[h.index].known && self.hosts[h.index].cluster == self.clusters[index].id);
        if all_known {
            self.clusters[index].asked_to_install = true;
            self.todo.push_back(UserTask::Install(index));
        }
    }

    /// Does what is due, as far as the connections are free.
    fn act(&mut self, now: Timestamp) {
        let Some(started) = self.started else { return };
        for n in 0..self.actions.len() {
            let pending = &mut self.actions[n];
            if let (ActionTime::At(span), None) = (&self.scenario.actions[pending.index].when, pending.due) {
                pending.due = Some(started + span.under(self.config.clock_scale));
            }
            if !pending.done && pending.due.is_some_and(|due| due <= now) {
                pending.done = true;
                let index = pending.index;
                let hosts = self.scenario.actions[index].hosts.clone();
                if hosts.is_empty() {
                    self.todo.push_back(UserTask::Action(index, None));
                } else {
                    for name in hosts {
                        if let Some(host) = self.members.host(&name) {
                            self.todo.push_back(UserTask::Action(index, Some(host)));
                        }
                    }
                }
            }
        }
        if let Some((at, _)) = &self.retry
            && *at <= now
            && let Some((_, task)) = self.retry.take()
        {
            self.todo.push_front(task);
        }
        if let Some(place) = self.later.iter().position(|(at, _)| *at <= now) {
            let (_, task) = self.later.remove(place);
            self.todo.push_back(task);
        }
        while self.acting.is_none()
            && let Some(task) = self.todo.pop_front()
        {
            self.perform(task);
        }
        if self.looking.is_none() && self.next_look.is_some_and(|at| at <= now) {
            if self.look_queue.is_empty() && !self.final_look {
                self.queue_looks();
            }
            if let Some(look) = self.look_queue.pop_front() {
                self.look(look);
            } else if !self.final_look {
                self.next_look = Some(now + self.config.look_every);
            }
        }
    }

    fn perform(&mut self, task: UserTask) {
        let scenario = self.scenario.clone();
        if let UserTask::Action(index, Some(host)) = &task
            && scenario.actions[*index].kind == ActionKind::BootDiscovery
        {
            // Done to the machine: nobody is asked.
            let host = self.hosts[*host].id;
            self.boots.push(host);
            let action = UserVerb::Action(ActionKind::BootDiscovery);
            let (subject, reason, planned) = (Some(host), String::new(), Some(*index));
            let what = What::UserAction { action, subject, status: 200, reason, planned };
            self.seen.push(Seen { source: Source::Harness, service_time: None, what });
            return;
        }
        let over_kube = if self.is_kube() { self.kube_request(&task) } else { None };
        let request = match &task {
            _ if over_kube.is_some() => over_kube,
            UserTask::CreateCluster(index) => Some(self.create_cluster(*index)),
            UserTask::CreateInfraEnv(whose) => Some(self.create_infra_env(*whose)),
            UserTask::FetchImage(whose) => self.state(*whose).infra_env.map(|id| match scenario.infra_env.image_type {
                ImageType::FullIso => ops::download_infra_env_file(id, "discovery.ign").request,
                _ => ops::download_minimal_initrd(id).request,
            }),
            UserTask::SetRole { host } => self.host_address(*host).map(|(infra_env, id)| {
                let params = HostUpdateParams {
                    host_role: Some(scenario.hosts[*host].role.as_str().to_owned()),
                    ..HostUpdateParams::default()
                };
                ops::update_host(infra_env, id, &params).request
            }),
            UserTask::Install(index) => self.clusters[*index].id.map(|id| ops::install_cluster(id).request),
            UserTask::Action(index, host) => self.action_request(*index, *host),
            UserTask::Namespace(_)
            | UserTask::Apply(_)
            | UserTask::AwaitCluster(_)
            | UserTask::AwaitInfraEnv(_)
            | UserTask::LookAtBareMetalHost { .. }
            | UserTask::NodeIsUp { .. }
            | UserTask::Approve { .. } => None,
        };
        match request {
            Some(request) => {
                self.acting = Some(task);
                self.sends.push(Send { connection: ACT, tag: 0, request });
            }
            None => {
                let (action, subject, _) = self.describe(&task);
                self.seen.push(Seen {
                    source: Source::Harness,
                    service_time: None,
                    what: What::UserAction {
                        action,
                        subject,
                        status: 0,
                        reason: "its target does not exist yet".to_owned(),
                        planned: planned(&task),
                    },
                });
            }
        }
    }

    /// Name of the task in the history, what it is done to, and the status with which it may be refused.
    fn describe(&self, task: &UserTask) -> (UserVerb, Option<Uuid>, Option<u16>) {
        match task {
            UserTask::CreateCluster(index) => (UserVerb::CreateCluster, self.clusters[*index].id, None),
            UserTask::CreateInfraEnv(whose) => {
                (UserVerb::CreateInfraEnv, self.state(*whose).id, self.scenario.infra_env.refused)
            }
            UserTask::FetchImage(whose) => (UserVerb::FetchImage, self.state(*whose).id, None),
            UserTask::SetRole { host } => (UserVerb::SetRole, Some(self.hosts[*host].id), None),
            UserTask::Install(index) => (UserVerb::Action(ActionKind::Install), self.clusters[*index].id, None),
            UserTask::AwaitCluster(whose) => (UserVerb::CreateCluster, self.state(*whose).id, None),
            UserTask::AwaitInfraEnv(whose) => (UserVerb::CreateInfraEnv, self.state(*whose).id, None),
            UserTask::LookAtBareMetalHost { host } | UserTask::Approve { host } | UserTask::NodeIsUp { host } => {
                (UserVerb::SetRole, Some(self.hosts[*host].id), None)
            }
            UserTask::Namespace(_) | UserTask::Apply(_) => (UserVerb::CreateCluster, None, None),
            UserTask::Action(index, host) => {
                let action = &self.scenario.actions[*index];
                let cluster = action
                    .cluster
                    .as_deref()
                    .and_then(|name| self.members.cluster(name))
                    .and_then(|c| self.clusters[c].id);
                let subject = host.map(|h| self.hosts[h].id).or(cluster);
                (UserVerb::Action(action.kind), subject, action.refused)
            }
        }
    }

    fn acted(&mut self, now: Timestamp, task: UserTask, reply: Reply) {
        let Some((task, reply)) = self.kube_acted(now, task, reply) else { return };
        let mut outcome: Result<(), Failure> = match &task {
            UserTask::CreateCluster(index) => {
                read(ops::create_cluster(&ClusterCreateParams::default()), reply).map(|cluster| {
                    let of_scenario = &self.scenario.clusters[*index];
                    let (name, vip_dhcp) = (of_scenario.name.clone(), of_scenario.vip_dhcp_allocation);
                    self.clusters[*index].id = Some(cluster.id);
                    self.cluster_index.insert(cluster.id, *index);
                    self.seen.push(Seen {
                        source: Source::Harness,
                        service_time: None,
                        what: What::ClusterNamed { cluster: cluster.id, name, vip_dhcp },
                    });
                    self.saw_cluster(*index, &cluster);
                })
            }
            UserTask::CreateInfraEnv(whose) => {
                read(ops::create_infra_env(&InfraEnvCreateParams::default()), reply).map(|infra_env| {
                    let state = self.state_mut(*whose);
                    state.infra_env = Some(infra_env.id);
                    state.download_url = infra_env.download_url.unwrap_or_default();
                    // Who gives hosts static networks boots them from an image that has these. Without them all images
                    // are alike, and nobody needs to look into one.
                    if self.networks(*whose).is_empty() {
                        self.bootable(*whose, None);
                    } else {
                        self.todo.push_front(UserTask::FetchImage(*whose));
                    }
                })
            }
            UserTask::FetchImage(whose) => {
                self.image_of(reply).map(|image| self.bootable(*whose, Some(Arc::new(image))))
            }
            _ => match reply.result {
                Ok(response) if response.is_success() => Ok(()),
                Ok(response) => {
                    Err(Failure::Refused { operation: "", status: response.status, reason: ops::reason(&response) })
                }
                Err(error) => Err(Failure::NoAnswer { operation: "", error }),
            },
        };
        let (action, subject, may_be_refused) = self.describe(&task);
        let (mut status, mut reason) = match &outcome {
            Ok(()) => (OK, String::new()),
            Err(Failure::Refused { status, reason, .. }) => (*status, reason.clone()),
            Err(other) => (other.status().unwrap_or(0), other.to_string()),
        };
        if let UserTask::Install(index) = task {
            let cluster = &mut self.clusters[index];
            if cluster.unanswered && took_effect(status, cluster.status) {
                reason = format!("the answer was lost; asked again, the service said {status}: {reason}");
                (outcome, status) = (Ok(()), OK);
            }
            // An error of the service says nothing about the request before.
            cluster.unanswered = status == 0 || (cluster.unanswered && status >= 500);
        }
        let transient = outcome.is_err() && (status == 0 || status >= 500) && may_be_refused != Some(status);
        if transient && is_safe_to_repeat(&task) {
            // The service is away for a while (it restarts, its database restarts): a user tries again.
            self.seen.push(Seen {
                source: Source::Harness,
                service_time: None,
                what: What::Note { text: format!("{action}: {reason}; the user tries again") },
            });
            self.retry = Some((now + Duration::from_millis(500), task));
            return;
        }
        if let (Err(failure), UserTask::CreateCluster(_) | UserTask::CreateInfraEnv(_) | UserTask::FetchImage(_)) =
            (&outcome, &task)
            && may_be_refused != Some(status)
        {
            self.fatal.get_or_insert_with(|| format!("{action}: {failure}"));
        }
        if let (Ok(()), UserTask::Action(index, None)) = (&outcome, &task)
            && self.scenario.actions[*index].kind == ActionKind::Reset
            && let Some(cluster) = self.scenario.actions[*index].cluster.as_deref()
            && let Some(position) = self.members.cluster(cluster)
        {
            // Who resets a cluster wants it installed after all.
            self.clusters[position].asked_to_install = false;
        }
        if let (Err(_), UserTask::Install(index)) = (&outcome, &task)
            && status == 409
        {
            // Something changed between the look and the task; the next change of the cluster is the next occasion.
            self.clusters[*index].asked_to_install = false;
        }
        let planned = planned(&task);
        self.seen.push(Seen {
            source: Source::Harness,
            service_time: None,
            what: What::UserAction { action, subject, status, reason, planned },
        });
    }

    /// Hosts of that cluster, or of the pool, can boot.
    fn bootable(&mut self, whose: Whose, image: Option<Arc<DiscoveryImage>>) {
        let state = self.state(whose);
        let (cluster_id, download_url) = (state.id, state.download_url.clone());
        let Some(infra_env_id) = state.infra_env else { return };
        let cluster = match whose {
            Whose::Pool => None,
            Whose::Cluster(index) => Some(index),
        };
        self.ready.push(Ready { cluster, cluster_id, infra_env_id, download_url, image });
    }

    /// What hosts find in the image of which this is the part that the infra-env makes.
    fn image_of(&self, reply: Reply) -> Result<DiscoveryImage, Failure> {
        let id = Uuid::nil();
        let unreadable = |operation: &'static str| {
            move |e: ImageError| Failure::Unreadable { operation, status: 200, error: e.to_string() }
        };
        if self.scenario.infra_env.image_type == ImageType::FullIso {
            let bytes = read(ops::download_infra_env_file(id, "discovery.ign"), reply)?;
            DiscoveryImage::from_ignition(&bytes).map_err(unreadable("v2DownloadInfraEnvFiles"))
        } else {
            let bytes = read(ops::download_minimal_initrd(id), reply)?;
            DiscoveryImage::from_ram_disk(&bytes).map_err(unreadable("DownloadMinimalInitrd"))
        }
    }
}

/// What the history has for a request that was carried out, whichever of the 2xx the service answers.
const OK: u16 = 200;

/// A request to install was sent again because its answer was lost. Does the service refuse it because the first one took effect?
fn took_effect(status: u16, cluster: ClusterStatus) -> bool {
    use ClusterStatus::{Finalizing, Installed, Installing, InstallingPendingUserAction, PreparingForInstallation};
    let begun = [PreparingForInstallation, Installing, InstallingPendingUserAction, Finalizing, Installed];
    status == 409 && begun.contains(&cluster)
}

/// Position of the action in the scenario, when it is one of those.
fn planned(task: &UserTask) -> Option<usize> {
    match task {
        UserTask::Action(index, _) => Some(*index),
        _ => None,
    }
}

/// Creating twice makes two; everything else the user does is the same when it is done again.
fn is_safe_to_repeat(task: &UserTask) -> bool {
    matches!(task, UserTask::SetRole { .. } | UserTask::Install(_))
}

fn read<T>(call: ApiCall<T>, reply: Reply) -> Result<T, Failure> {
    match reply.result {
        Ok(response) => call.read(response),
        Err(error) => Err(Failure::NoAnswer { operation: call.operation, error }),
    }
}

fn saw_event(event: Event) -> Seen {
    Seen {
        source: Source::Events,
        service_time: Some(event.event_time),
        what: What::Event {
            name: event.name.unwrap_or_default(),
            severity: event.severity,
            message: event.message,
            cluster: event.cluster_id,
            host: event.host_id,
        },
    }
}

/// Public ssh keys in the form of the API: one a line.
fn keys(all: [Option<&str>; 2]) -> Option<String> {
    let all: Vec<&str> = all.into_iter().flatten().map(str::trim).filter(|key| !key.is_empty()).collect();
    (!all.is_empty()).then(|| all.join("\n"))
}

fn api_vip(ip: String) -> ApiVip {
    ApiVip { ip: Some(ip), ..ApiVip::default() }
}

fn ingress_vip(ip: String) -> IngressVip {
    IngressVip { ip: Some(ip), ..IngressVip::default() }
}

impl Actor for User {
    fn wake(&mut self, now: Timestamp) {
        if self.started.is_none() {
            self.started = Some(now);
            self.next_look = Some(now + self.config.look_every);
        }
        self.act(now);
    }

    fn deliver(&mut self, now: Timestamp, reply: Reply) {
        match reply.connection {
            ACT => {
                if let Some(task) = self.acting.take() {
                    self.acted(now, task, reply);
                }
            }
            _ => {
                if let Some(look) = self.looking.take() {
                    self.looked(look, reply);
                    let share = u32::try_from(self.look_queue.len().max(1)).unwrap_or(u32::MAX);
                    let pause = if self.look_queue.is_empty() {
                        self.config.look_every
                    } else {
                        (self.config.look_every / share).min(LOOK_AT_LEAST)
                    };
                    self.next_look = Some(if self.final_look { now } else { now + pause });
                }
            }
        }
        self.act(now);
    }

    fn take_sends(&mut self) -> Vec<Send> {
        std::mem::take(&mut self.sends)
    }

    fn next_wake(&self) -> Option<Timestamp> {
        let look = if self.looking.is_none() { self.next_look } else { None };
        let look = if self.final_look && self.look_queue.is_empty() { None } else { look };
        let retry = self.retry.as_ref().map(|(at, _)| *at);
        let action = self.actions.iter().filter(|a| !a.done).filter_map(|a| a.due).min();
        let later = self.later.iter().map(|(at, _)| *at).min();
        [look, retry, action, later].into_iter().flatten().min()
    }

    fn is_finished(&self) -> bool {
        self.has_looked()
    }
}

#[cfg(test)]
mod kube_tests;
#[cfg(test)]
mod look_tests;

/// A user who looks once a second, over REST, at a service with the real clockwork.
#[cfg(test)]
fn plain_config() -> UserConfig {
    UserConfig {
        pull_secret: String::new(),
        look_every: Duration::from_secs(1),
        clock_scale: 1.0,
        ntp_source: None,
        ssh_key: None,
        events_tell_states: false,
        macs: Vec::new(),
        kube: None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_scenario::{Catalogue, SourceFile};

    use super::*;

    #[rstest]
    #[case::as_before(409, ClusterStatus::Ready, false)]
    #[case::something_else_is_wrong(409, ClusterStatus::Insufficient, false)]
    #[case::it_prepares(409, ClusterStatus::PreparingForInstallation, true)]
    #[case::it_installs(409, ClusterStatus::Installing, true)]
    #[case::another_refusal(400, ClusterStatus::Installing, false)]
    fn a_lost_answer_may_have_been_a_yes(#[case] status: u16, #[case] cluster: ClusterStatus, #[case] yes: bool) {
        assert_eq!(took_effect(status, cluster), yes);
    }

    #[rstest]
    #[case::simulated("", None, None, None)]
    #[case::the_scenario_s_own(", ssh_public_key: 'ssh-rsa A a'", None, Some("ssh-rsa A a"), None)]
    #[case::machines("", Some("ssh-ed25519 B b"), Some("ssh-ed25519 B b"), Some("ssh-ed25519 B b"))]
    #[case::both(
        ", ssh_public_key: 'ssh-rsa A a'",
        Some("ssh-ed25519 B b"),
        Some("ssh-rsa A a\nssh-ed25519 B b"),
        Some("ssh-ed25519 B b")
    )]
    fn the_run_s_key_stands_beside_the_scenario_s(
        #[case] own: &str,
        #[case] of_run: Option<&str>,
        #[case] cluster: Option<&str>,
        #[case] infra_env: Option<&str>,
    ) {
        let text = format!("version: 1\nname: t\ncluster: {{topology: sno{own}}}\nhosts: [{{name: node}}]\n");
        let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded());
        let config = UserConfig { ssh_key: of_run.map(str::to_owned), ..plain_config() };
        let user = User::new(Arc::new(scenario.unwrap_or_else(|e| panic!("{e}"))), config, &[Uuid::nil()]);
        assert_eq!(user.cluster_params(0).ssh_public_key.as_deref(), cluster);
        assert_eq!(user.infra_env_params(Whose::Cluster(0)).ssh_authorized_key.as_deref(), infra_env);
    }
}
