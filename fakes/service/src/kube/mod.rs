//! The service over Kubernetes: controllers that turn resources into commands and rows into conditions. What is decided is decided in
//! `commands`, as for REST; here resources are read, and what came of them is written into their status.
//!
//! [`Door`] is a client of a Kubernetes API server as plain data. It says what it wants to ask ([`Door::take_asks`]); a shell
//! asks, and brings back answers ([`Door::answered`]) and what watches tell ([`Door::told`]).
//!
//! * `client` keeps lists and watches of the kinds, and what is known of them.
//! * A *pass* looks at one resource and does the first thing that is missing. A write ends it: when its answer is there, the resource is
//!   looked at again from the beginning, until nothing is missing. So a restart between two writes, a conflict, or a copy that is old
//!   are nothing special: the next pass sees what is there.
//! * `clusters`, `infra_envs`, `agents`, `bare_metal`, `classification` are the passes of the kinds. `conditions` has the tables of
//!   conditions.
//! * `spoke` is about the cluster that is installed: its own API server, which the Secret with its kubeconfig names.
//! * Of a hub with OpenShift `operator` asks whether service and metal3 share hosts. Where they do, `converged` is what becomes of a
//!   BareMetalHost, `preprovisioning` and `ironic` give metal3 its image, and `drain` empties the node of a host that is taken away.
//!   `fencing` makes the credentials of a host known to its cluster.
//! * `hub` plays what Hive does for clusters that are installed, `metal3` what that does for bare-metal hosts; `kubelet` plays the nodes
//!   that join an installed cluster, and [`NodeRequest`] is what they ask for. `service_config` is the operator's.
//! * `lease` says which process has the controllers; where that is asked, [`Elector`] stands beside [`Door`].
//! * `mirrors` reads the ConfigMaps with mirrors of registries.
//! * `definitions` are the kinds as definitions for an API server.

mod agents;
mod altered;
mod bare_metal;
mod classification;
mod client;
mod clusters;
mod conditions;
mod converged;
mod definitions;
mod drain;
mod fencing;
mod hub;
mod infra_envs;
mod ironic;
mod kubeconfig;
mod kubelet;
mod lease;
mod metal3;
mod mirrors;
mod node_request;
mod object;
mod operator;
mod pass;
mod preprovisioning;
mod reclaim;
mod service_config;
mod spec;
mod spoke;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::Response;

pub use self::altered::{WrongController, wrong_controllers};
pub use self::client::{Ask, Kind};
pub use self::definitions::definitions;
pub use self::kubeconfig::{kubeconfig, server_in};
pub use self::kubelet::{lease_of_node, server_of_cluster};
pub use self::lease::Elector;
pub use self::node_request::NodeRequest;
pub use self::object::INFRA_ENV_LABEL;
pub use self::operator::{is_converged, operator};

use self::altered::{Beside, Memory};
use self::client::{Change, Client};
use self::object::{BMH_LABEL, CLUSTER_OF_SECRET, label, reference, text};
use self::pass::{Answers, Pass, Stop};
use self::spoke::Looked;
use crate::Core;
use crate::rows::{ClusterRow, HostRow, InfraEnvRow, Write};
use crate::state::HostKey;

/// How the controllers are to be.
#[derive(Clone, Debug)]
pub struct DoorConfig {
    /// How many times faster than the real ones they wait.
    pub pace: f64,
    /// Do they do the service's own part? Without it only what others do on a hub.
    pub service: bool,
    /// Do they also do Hive's part: say on a ClusterDeployment that it is installed?
    pub hive: bool,
    /// Do they also do metal3's part: provision a BareMetalHost that has an image?
    pub metal3: bool,
    /// Where the API servers of clusters are, if nodes that join them are played, too: the base URL, `/clusters/NAME` follows.
    pub clusters: Option<String>,
}

/// Whose pass it is. The order is that in which passes that are due at one time are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// InfraEnvs.
    InfraEnv,
    /// ClusterDeployments with their AgentClusterInstalls.
    Cluster,
    /// Makes the Agent of a host.
    Host,
    /// Agents.
    Agent,
    /// BareMetalHosts.
    Bmh,
    /// PreprovisioningImages.
    Image,
    /// AgentClassifications.
    Classification,
    /// The AgentServiceConfig.
    ServiceConfig,
    /// Hive's part.
    Hive,
    /// The part of metal3.
    Metal3,
    /// Lets an installed cluster have an API server.
    Spoke,
    /// A node that joins it.
    Kubelet,
}

impl Who {
    /// Is it a pass of the service's own controllers? The others are played.
    fn is_the_service_s(self) -> bool {
        !matches!(self, Self::Hive | Self::Metal3 | Self::Spoke | Self::Kubelet)
    }
}

/// A resource that is to be looked at: whose pass, and `namespace/name`.
type Item = (Who, String);

/// First wait after a failure; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(5);
/// Longest wait after failures.
const LONGEST_WAIT: Duration = Duration::from_secs(1000);
/// So many writes in one go are a pass that does not come to rest.
const MOST_WRITES: u32 = 100;

/// What is to be looked at, and when.
#[derive(Debug, Default)]
struct Queue {
    by_time: BTreeSet<(Timestamp, Item)>,
    due: BTreeMap<Item, Timestamp>,
    failures: BTreeMap<Item, u32>,
}

impl Queue {
    fn add(&mut self, item: Item, at: Timestamp) {
        match self.due.get(&item) {
            Some(old) if *old <= at => return,
            Some(old) => {
                self.by_time.remove(&(*old, item.clone()));
            }
            None => {}
        }
        self.due.insert(item.clone(), at);
        self.by_time.insert((at, item));
    }

    fn pop(&mut self, now: Timestamp) -> Option<Item> {
        let (at, _) = self.by_time.first()?;
        if *at > now {
            return None;
        }
        let (_, item) = self.by_time.pop_first()?;
        self.due.remove(&item);
        Some(item)
    }

    fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

/// Which rows belong to which resources.
#[derive(Debug, Default)]
pub(crate) struct Index {
    clusters: BTreeMap<String, Uuid>,
    cluster_keys: BTreeMap<Uuid, String>,
    infra_envs: BTreeMap<String, Uuid>,
    infra_env_keys: BTreeMap<Uuid, String>,
    /// Hosts by their Agent's key.
    hosts: BTreeMap<String, HostKey>,
    /// When the cluster of an Agent was asked last about its node, and at which stage that was.
    looked: BTreeMap<String, Looked>,
    /// What an alteration has to remember.
    memory: Memory,
}

impl Index {
    fn put_cluster(&mut self, key: String, id: Uuid) {
        self.clusters.insert(key.clone(), id);
        self.cluster_keys.insert(id, key);
    }

    fn put_infra_env(&mut self, key: String, id: Uuid) {
        self.infra_envs.insert(key.clone(), id);
        self.infra_env_keys.insert(id, key);
    }
}

/// A command that the controllers gave the service, as a user over REST would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A cluster was installed.
    Install,
    /// Its installation was cancelled.
    Cancel,
    /// It was opened for more hosts.
    AllowAddHosts,
    /// A host was installed into such a cluster.
    InstallHost,
    /// A host was bound.
    Bind,
    /// A host was unbound.
    Unbind,
    /// A host was deleted.
    DeleteHost,
}

impl Command {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Install,
        Self::Cancel,
        Self::AllowAddHosts,
        Self::InstallHost,
        Self::Bind,
        Self::Unbind,
        Self::DeleteHost,
    ];
}

/// What the controllers have done, for people and for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorStats {
    /// Passes.
    pub passes: u64,
    /// Writes that were sent.
    pub writes: u64,
    /// Of these, refused.
    pub refused: u64,
}

/// A resource that is being looked at, over several passes.
#[derive(Debug)]
struct Turn {
    item: Item,
    /// How many writes and questions it has sent.
    writes: u32,
    answers: Answers,
}

impl Turn {
    fn new(item: Item) -> Self {
        Self { item, writes: 0, answers: Answers::default() }
    }
}

/// A question that an API server of a cluster was asked.
type Question = (String, &'static str, String);

/// The controllers.
#[derive(Debug)]
pub struct Door {
    config: DoorConfig,
    client: Client,
    queue: Queue,
    index: Index,
    /// The one whose write is on its way, and its tag.
    busy: Option<(u64, Turn)>,
    /// The one that is looked at again, because its write was answered.
    current: Option<Turn>,
    /// Those that wait for a cluster's API server. Others go on meanwhile.
    waiting: BTreeMap<u64, (Question, Turn)>,
    /// Those of them whose answer has come.
    resumed: VecDeque<Turn>,
    commands: Vec<(Command, Uuid)>,
    stats: DoorStats,
    begun: bool,
    /// Whether service and metal3 share hosts.
    flow: Flow,
    /// What is wrong on purpose with the service's controllers.
    altered: Option<WrongController>,
}

/// Do service and metal3 share hosts (the converged flow)? That is decided once, before the first pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// The hub was not asked yet.
    Unknown,
    /// It was asked, with that tag.
    Asked(u64),
    /// Has the hub an operator that shares hosts?
    Known(bool),
}

impl Door {
    /// Controllers that have not begun.
    pub fn new(config: DoorConfig) -> Self {
        Self {
            config,
            client: Client::default(),
            queue: Queue::default(),
            index: Index::default(),
            busy: None,
            current: None,
            waiting: BTreeMap::new(),
            resumed: VecDeque::new(),
            commands: Vec::new(),
            stats: DoorStats::default(),
            begun: false,
            flow: Flow::Unknown,
            altered: None,
        }
    }

    /// What is to be asked, since the last call. Requests are answered with [`Door::answered`]; watches go on with [`Door::told`].
    pub fn take_asks(&mut self) -> Vec<Ask> {
        self.client.take_asks()
    }

    /// Commands that the service carried out, and the cluster or host, since the last call.
    pub fn take_commands(&mut self) -> Vec<(Command, Uuid)> {
        std::mem::take(&mut self.commands)
    }

    /// What was done so far.
    pub fn stats(&self) -> DoorStats {
        self.stats
    }

    /// When [`Door::wake`] has something to do.
    pub fn next_wake(&self) -> Option<Timestamp> {
        if !self.begun {
            return Some(Timestamp::UNSET);
        }
        let pass = if self.busy.is_none() && self.is_ready() { self.queue.next() } else { None };
        [pass, self.client.next_wake()].into_iter().flatten().min()
    }

    /// Is all known that passes need?
    fn is_ready(&self) -> bool {
        matches!(self.flow, Flow::Known(_)) && self.client.is_complete()
    }

    /// Does what is due.
    pub fn wake(&mut self, core: &mut Core, now: Timestamp) {
        if !std::mem::replace(&mut self.begun, true) {
            self.altered = core.wrong_controller();
            self.flow = Flow::Asked(self.client.ask(operator::question()));
            let rows = core.state.snapshot();
            rows.clusters.into_iter().for_each(|row| self.cluster_row(now, &row));
            rows.infra_envs.into_iter().for_each(|row| self.infra_env_row(now, &row));
            rows.hosts.into_iter().for_each(|row| self.host_row(now, &row));
        }
        self.client.wake(now);
        self.go_on(core, now);
    }

    /// An answer is there; `Err`: there was none, and why.
    pub fn answered(&mut self, core: &mut Core, now: Timestamp, tag: u64, answer: Result<Response, String>) {
        if self.flow == Flow::Asked(tag) {
            self.flow = Flow::Known(operator::says_converged(answer.as_ref()));
        } else if let Some((_, turn)) = self.busy.take_if(|(of, _)| *of == tag) {
            self.wrote(now, turn, answer);
        } else if let Some((question, turn)) = self.waiting.remove(&tag) {
            self.heard(now, question, turn, answer);
        } else {
            let pause = self.paced(Duration::from_secs(1));
            let changes = self.client.answered(now + pause, tag, answer);
            self.objects_changed(now, &changes);
        }
        self.wake(core, now);
    }

    /// A watch told something, or is over.
    pub fn told(&mut self, core: &mut Core, now: Timestamp, tag: u64, events: Vec<(String, Arc<Value>)>, over: bool) {
        let changes = self.client.told(now, tag, events, over);
        self.objects_changed(now, &changes);
        self.wake(core, now);
    }

    /// The API server was restarted: what was asked gets no answer, and watches are over.
    pub fn lost(&mut self, core: &mut Core, now: Timestamp) {
        if let Flow::Asked(_) = self.flow {
            self.flow = Flow::Known(false);
        }
        if let Some((_, turn)) = self.busy.take() {
            self.wrote(now, turn, Err("the connection was lost".to_owned()));
        }
        for (question, turn) in std::mem::take(&mut self.waiting).into_values() {
            self.heard(now, question, turn, Err("the connection was lost".to_owned()));
        }
        let pause = self.paced(Duration::from_secs(1));
        self.client.lost(now + pause);
        self.wake(core, now);
    }

    /// What is wrong on purpose with those passes; with others' controllers nothing is.
    fn wrong(&self, who: Who) -> Option<WrongController> {
        self.altered.filter(|_| who.is_the_service_s())
    }

    fn paced(&self, span: Duration) -> Duration {
        span.div_f64(self.config.pace.max(0.001))
    }

    /// An API server of a cluster answered.
    fn heard(&mut self, now: Timestamp, question: Question, mut turn: Turn, answer: Result<Response, String>) {
        turn.answers.since.get_or_insert(now);
        turn.answers.all.insert(question, answer);
        self.resumed.push_back(turn);
    }

    /// A write was answered.
    fn wrote(&mut self, now: Timestamp, turn: Turn, answer: Result<Response, String>) {
        match answer {
            Ok(response) if response.is_success() => {
                let changes: Vec<Change> =
                    client::object(&response).and_then(|object| self.client.wrote(object)).into_iter().collect();
                self.objects_changed(now, &changes);
                self.current = Some(turn);
            }
            _ => {
                self.stats.refused += 1;
                self.fail(now, turn.item);
            }
        }
    }

    fn fail(&mut self, now: Timestamp, item: Item) {
        if self.wrong(item.0) == Some(WrongController::Beside(Beside::NotAgain)) {
            return;
        }
        let failures = self.queue.failures.entry(item.clone()).or_default();
        let wait = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(*failures)).min(LONGEST_WAIT);
        *failures += 1;
        let at = now + self.paced(wait).max(Duration::from_millis(1));
        self.queue.add(item, at);
    }

    /// Makes passes until one writes, or none is due.
    fn go_on(&mut self, core: &mut Core, now: Timestamp) {
        while self.busy.is_none() && self.is_ready() {
            let next = self.current.take().or_else(|| self.resumed.pop_front());
            let Some(mut turn) = next.or_else(|| self.queue.pop(now).map(Turn::new)) else {
                return;
            };
            if self.waiting.values().any(|(_, waiting)| waiting.item == turn.item) {
                // It is looked at from the beginning when its answer is there.
                continue;
            }
            self.stats.passes += 1;
            let outcome = self.pass(core, now, &turn);
            match outcome {
                Ok(()) => {
                    self.queue.failures.remove(&turn.item);
                }
                Err(Stop::Write(_) | Stop::Ask(..)) if turn.writes >= MOST_WRITES => self.fail(now, turn.item),
                Err(Stop::Write(request)) => {
                    let request = match self.wrong(turn.item.0) {
                        Some(wrong) => wrong.sent(request, &self.client, &self.index.memory),
                        None => request,
                    };
                    self.stats.writes += 1;
                    turn.writes += 1;
                    let tag = self.client.ask(request);
                    self.busy = Some((tag, turn));
                }
                Err(Stop::Ask(server, request)) => {
                    turn.writes += 1;
                    let question = (server.clone(), request.method.as_str(), request.path.clone());
                    let tag = self.client.ask_cluster(server, request);
                    self.waiting.insert(tag, (question, turn));
                }
                Err(Stop::Later(span)) => {
                    self.queue.failures.remove(&turn.item);
                    if self.wrong(turn.item.0) == Some(WrongController::Beside(Beside::NotLater)) {
                        continue;
                    }
                    let at = now + self.paced(span).max(Duration::from_millis(1));
                    self.queue.add(turn.item, at);
                }
                Err(Stop::Until(at)) => {
                    self.queue.failures.remove(&turn.item);
                    self.queue.add(turn.item, at.max(now + Duration::from_millis(1)));
                }
                Err(Stop::Failed) => self.fail(now, turn.item),
            }
        }
    }

    fn pass(&mut self, core: &mut Core, now: Timestamp, turn: &Turn) -> Result<(), Stop> {
        let item = &turn.item;
        let now = core.begin(now);
        let mut wanted = Vec::new();
        let shares = self.flow == Flow::Known(true);
        let mut pass = Pass {
            wrong: self.wrong(item.0),
            // The others do not ask whether the service may.
            converged: shares && (!item.0.is_the_service_s() || core.config.settings.allow_converged_flow),
            core,
            client: &self.client,
            index: &mut self.index,
            config: &self.config,
            now,
            wanted: &mut wanted,
            commands: &mut self.commands,
            answers: &turn.answers,
        };
        let key = item.1.as_str();
        let outcome = match item.0 {
            Who::Hive => hub::hive(&mut pass, key),
            Who::Metal3 => metal3::pass(&mut pass, key),
            Who::Spoke => kubelet::cluster(&mut pass, key),
            Who::Kubelet => kubelet::pass(&mut pass, key),
            // Another service does it.
            _ if !self.config.service => Ok(()),
            Who::InfraEnv => infra_envs::pass(&mut pass, key),
            Who::Cluster => clusters::pass(&mut pass, key),
            Who::Host => agents::make(&mut pass, key),
            Who::Agent => agents::pass(&mut pass, key),
            Who::Bmh => bare_metal::pass(&mut pass, key),
            Who::Image => preprovisioning::pass(&mut pass, key),
            Who::Classification => classification::pass(&mut pass, key),
            Who::ServiceConfig => service_config::pass(&mut pass, key),
        };
        core.state.end_unit();
        wanted.into_iter().for_each(|item| self.queue.add(item, now));
        outcome
    }

    /// The service stored that. Whose resource it is is looked at.
    pub fn rows_changed(&mut self, now: Timestamp, writes: &[Write]) {
        for write in writes {
            match write {
                Write::PutCluster(row) => self.cluster_row(now, row),
                Write::DeleteCluster(id) => {
                    if let Some(key) = self.index.cluster_keys.remove(id) {
                        self.index.clusters.retain(|_, other| other != id);
                        self.queue.add((Who::Cluster, key), now);
                    }
                }
                Write::PutInfraEnv(row) => self.infra_env_row(now, row),
                Write::DeleteInfraEnv(id) => {
                    if let Some(key) = self.index.infra_env_keys.remove(id) {
                        self.index.infra_envs.retain(|_, other| other != id);
                        self.queue.add((Who::InfraEnv, key), now);
                    }
                }
                Write::PutHost(row) => self.host_row(now, row),
                Write::DeleteHost { infra_env_id, host_id } => {
                    let gone = (*infra_env_id, *host_id);
                    let keys: Vec<String> = self
                        .index
                        .hosts
                        .iter()
                        .filter(|(_, host)| **host == gone)
                        .map(|(key, _)| key.clone())
                        .collect();
                    for key in keys {
                        self.index.hosts.remove(&key);
                        self.queue.add((Who::Agent, key), now);
                    }
                }
                _ => {}
            }
        }
    }

    fn cluster_row(&mut self, now: Timestamp, row: &ClusterRow) {
        let Some(key) = row.private.kube_key.clone() else { return };
        self.index.put_cluster(key.clone(), row.cluster().id);
        self.queue.add((Who::Cluster, key), now);
    }

    fn infra_env_row(&mut self, now: Timestamp, row: &InfraEnvRow) {
        let Some(namespace) = &row.kube_namespace else { return };
        let key = format!("{namespace}/{}", row.infra_env.name);
        self.index.put_infra_env(key.clone(), row.infra_env.id);
        self.queue.add((Who::InfraEnv, key), now);
    }

    fn host_row(&mut self, now: Timestamp, row: &HostRow) {
        let Some(of) = self.index.infra_env_keys.get(&row.infra_env_id()) else { return };
        let Some((namespace, _)) = of.split_once('/') else { return };
        let key = format!("{namespace}/{}", row.host().id);
        // One that registers with another infra-env is as good as new.
        let host = (row.infra_env_id(), row.host().id);
        let new = self.index.hosts.insert(key.clone(), host) != Some(host);
        let who = if new || self.client.get(Kind::Agent, &key).is_none() { Who::Host } else { Who::Agent };
        self.queue.add((who, key), now);
        if let Some(cluster) = row.host().cluster_id.and_then(|id| self.index.cluster_keys.get(&id)) {
            self.queue.add((Who::Cluster, cluster.clone()), now);
        }
    }

    /// Resources changed: whose pass that concerns is due.
    fn objects_changed(&mut self, now: Timestamp, changes: &[Change]) {
        for change in changes {
            let Some(object) = change.new.as_ref().or(change.old.as_ref()) else { continue };
            let wrong = self.altered;
            let sleeps = |who| wrong == Some(WrongController::NotWoken(change.kind, who));
            for item in concerned(&self.client, &self.config, change.kind, &change.key, object) {
                if !sleeps(item.0) {
                    self.queue.add(item, now);
                }
            }
            // Its cluster may have waited for nothing else. The real controllers mean to look then, and do not.
            if change.kind == Kind::Agent && is_synced(change.old.as_deref()) != is_synced(change.new.as_deref()) {
                let cluster = reference(&object["spec"]["clusterDeploymentName"], "");
                if !cluster.is_empty() && !sleeps(Who::Cluster) {
                    self.queue.add((Who::Cluster, cluster), now);
                }
            }
        }
    }
}

/// Does an Agent say that its spec is what its host is?
fn is_synced(agent: Option<&Value>) -> bool {
    let conditions = agent.and_then(|agent| agent["status"]["conditions"].as_array());
    conditions.into_iter().flatten().any(|c| c["type"] == "SpecSynced" && c["status"] == "True")
}

/// The AgentServiceConfig, where something of its namespace changed: it may name that.
fn service_config(client: &Client, namespace: &str) -> Option<Item> {
    let named = namespace == vlab_model::lease::NAMESPACE && client.get(Kind::AgentServiceConfig, "agent").is_some();
    named.then(|| (Who::ServiceConfig, "agent".to_owned()))
}

/// A BareMetalHost and its PreprovisioningImage are called the same, and who looks at one looks at the other.
fn of_bare_metal(client: &Client, config: &DoorConfig, key: &str) -> Vec<Item> {
    let mut items = vec![(Who::Bmh, key.to_owned())];
    if client.get(Kind::PreprovisioningImage, key).is_some() {
        items.push((Who::Image, key.to_owned()));
    }
    if config.metal3 {
        items.push((Who::Metal3, key.to_owned()));
    }
    items
}

/// Whose passes look at that Secret.
fn of_secret(client: &Client, config: &DoorConfig, key: &str, object: &Value) -> Vec<Item> {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let named = |of: &Value| of["spec"]["pullSecretRef"]["name"] == name;
    // Those that the controllers make themselves belong to the cluster whose label they have.
    let of = label(object, CLUSTER_OF_SECRET);
    let clusters = client.all_in(Kind::ClusterDeployment, namespace);
    let infra_envs = client.all_in(Kind::InfraEnv, namespace);
    let named_by = |(key, cd): &(&String, &Arc<Value>)| {
        named(cd) || !of.is_empty() && key.split_once('/').is_some_and(|(_, name)| name == of)
    };
    let clusters = clusters.filter(named_by).map(|(key, _)| (Who::Cluster, key.clone()));
    let infra_envs = infra_envs.filter(|(_, ie)| named(ie)).map(|(key, _)| (Who::InfraEnv, key.clone()));
    let token = |agent: &Value| reference(&agent["spec"]["ignitionEndpointTokenReference"], namespace) == key;
    let agents = client.all_in(Kind::Agent, namespace).filter(|(_, agent)| token(agent));
    let agents = agents.map(|(key, _)| (Who::Agent, key.clone()));
    let installed = kubelet::of_secret(object).filter(|_| config.clusters.is_some());
    let installed = installed.map(|cluster| (Who::Spoke, cluster));
    clusters.chain(infra_envs).chain(agents).chain(service_config(client, namespace)).chain(installed).collect()
}

/// Whose passes look at that resource.
fn concerned(client: &Client, config: &DoorConfig, kind: Kind, key: &str, object: &Value) -> Vec<Item> {
    let own = |who: Who| vec![(who, key.to_owned())];
    let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
    match kind {
        Kind::ClusterDeployment => {
            let mut items = own(Who::Cluster);
            if config.clusters.is_some() {
                items.extend(own(Who::Spoke));
            }
            items.extend(client.all_of(Kind::InfraEnv, key).map(|(key, _)| (Who::InfraEnv, key.clone())));
            items
        }
        Kind::AgentClusterInstall => {
            let of = reference(&object["spec"]["clusterDeploymentRef"], namespace);
            let mut items = vec![(Who::Cluster, of.clone())];
            if config.hive {
                items.push((Who::Hive, of));
            }
            items
        }
        Kind::InfraEnv => {
            let mut items = own(Who::InfraEnv);
            items.extend(client.all_of(Kind::BareMetalHost, key).map(|(key, _)| (Who::Bmh, key.clone())));
            items.extend(client.all_of(Kind::PreprovisioningImage, key).map(|(key, _)| (Who::Image, key.clone())));
            items
        }
        Kind::NMStateConfig => {
            client.all_in(Kind::InfraEnv, namespace).map(|(key, _)| (Who::InfraEnv, key.clone())).collect()
        }
        Kind::Agent => {
            let mut items = own(Who::Agent);
            if config.clusters.is_some() {
                items.extend(own(Who::Kubelet));
            }
            let host = label(object, BMH_LABEL);
            if !host.is_empty() {
                items.push((Who::Bmh, format!("{namespace}/{host}")));
                // Where it shares hosts it sees by them how far they are.
                if config.metal3 && client.get(Kind::PreprovisioningImage, &format!("{namespace}/{host}")).is_some() {
                    items.push((Who::Metal3, format!("{namespace}/{host}")));
                }
            } else {
                let of = format!("{namespace}/{}", label(object, INFRA_ENV_LABEL));
                items.extend(client.all_of(Kind::BareMetalHost, &of).map(|(key, _)| (Who::Bmh, key.clone())));
            }
            let classes = client.all_in(Kind::AgentClassification, namespace);
            items.extend(classes.map(|(key, _)| (Who::Classification, key.clone())));
            items
        }
        Kind::Secret => of_secret(client, config, key, object),
        Kind::ConfigMap | Kind::ClusterImageSet => {
            // What waits for one of these says so in its status and is looked at again.
            let mut items: Vec<Item> = Vec::new();
            let clusters: Vec<&String> = if namespace.is_empty() {
                client.all(Kind::ClusterDeployment).map(|(key, _)| key).collect()
            } else {
                client.all_in(Kind::ClusterDeployment, namespace).map(|(key, _)| key).collect()
            };
            items.extend(clusters.into_iter().map(|key| (Who::Cluster, key.clone())));
            if kind == Kind::ConfigMap {
                let mirrors = |of: &Value| reference(&of["spec"]["mirrorRegistryRef"], "") == key;
                let infra_envs = client.all(Kind::InfraEnv).filter(|(_, infra_env)| mirrors(infra_env));
                items.extend(infra_envs.map(|(key, _)| (Who::InfraEnv, key.clone())));
                let installs = client.all(Kind::AgentClusterInstall).filter(|(_, aci)| mirrors(aci));
                let of =
                    |aci: &Value| reference(&aci["spec"]["clusterDeploymentRef"], text(&aci["metadata"]["namespace"]));
                items.extend(installs.map(|(_, aci)| (Who::Cluster, of(aci))));
            }
            items.extend(service_config(client, namespace));
            items
        }
        Kind::BareMetalHost | Kind::PreprovisioningImage => of_bare_metal(client, config, key),
        Kind::AgentClassification => own(Who::Classification),
        Kind::AgentServiceConfig => own(Who::ServiceConfig),
    }
}
