//! The controller inside the cluster: it tells the service which hosts became nodes and which operators are up, uploads the
//! ingress certificate and the cluster's logs, and completes the installation. Its loops run side by side.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::Request;
use vlab_api::ops;
use vlab_api::types::*;

use crate::alteration::{Alteration, Conduct};
use crate::archive::tar_gz;
use crate::calls::{CONTROLLER, Calls, HttpResult, RetryDecision};
use crate::cluster::{Happening, LogReader, NodeState};
use crate::fault::ClusterFault;
use crate::installer::{ClusterBrief, HostBrief, ON_ITS_WAY};
use crate::rng::{Dice, Stream};
use crate::world::{Timer, Who, World};

/// So many refusals of its token in a row end the controller.
const UNAUTHORIZED_LIMIT: u32 = 3;

/// What happens once the cluster is finalizing, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PostInstall {
    /// The operators that every cluster has.
    BuiltinOperators,
    /// The router's certificate.
    RouterCa,
    /// Are there OLM operators?
    OlmOperators,
    /// Their manifests.
    OlmManifests,
    /// Until they are up.
    OlmReady,
    /// The last finalizing stage.
    Done,
    /// The service is told that the installation is complete.
    Complete,
}

/// The finalizing stage that each step reports when it begins.
pub const POST_INSTALL: &[(PostInstall, Option<FinalizingStage>)] = &[
    (PostInstall::BuiltinOperators, Some(FinalizingStage::WaitingForClusterOperators)),
    (PostInstall::RouterCa, Some(FinalizingStage::AddingRouterCa)),
    (PostInstall::OlmOperators, Some(FinalizingStage::WaitingForOlmOperatorsCsvInitialization)),
    (PostInstall::OlmManifests, Some(FinalizingStage::ApplyingOlmManifests)),
    (PostInstall::OlmReady, Some(FinalizingStage::WaitingForOlmOperatorsCsv)),
    (PostInstall::Done, Some(FinalizingStage::Done)),
    (PostInstall::Complete, None),
];

/// How far the controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerState {
    /// The cluster has not started it.
    NotStarted,
    /// It waits for the service.
    Starting,
    /// Its loops run.
    Running,
    /// It sends its last logs.
    Leaving,
    /// It has ended.
    Ended,
}

#[derive(Debug)]
enum Purpose {
    Ready,
    Hosts,
    /// A stage of a host; what is to be told of it next, once this one was answered.
    HostTold(Option<Next>),
    Reboots,
    Watch,
    IsFinalizing,
    Stage,
    Operators,
    /// Name, and whether that is the last that is to be said of it.
    OperatorTold(String, bool),
    Ingress,
    TimedOut,
    Manifests {
        last: bool,
    },
    Complete,
    Logs,
    LastLogs(LogsState),
}

/// The report of Done that follows the one of Joined.
#[derive(Clone, Copy, Debug)]
struct Next {
    position: usize,
    host: Uuid,
    infra_env: Uuid,
}

/// The controller of one cluster.
#[derive(Debug)]
pub(crate) struct Controller {
    cluster: u32,
    connection: u32,
    epoch: u32,
    state: ControllerState,
    calls: Calls<Purpose>,
    dice: Stream,
    nodes_done: bool,
    /// Position in [`POST_INSTALL`]; `None` before the cluster is finalizing.
    step: Option<usize>,
    unauthorized: u32,
    /// Hosts whose number of reboots was told.
    reboots_told: BTreeSet<u32>,
    /// Operators, and whether the service knows the last that is to be said of each.
    told: BTreeMap<String, bool>,
    failed: bool,
    work_ended: bool,
}

impl Controller {
    pub(crate) fn new(cluster: u32, connection: u32, seed: u64) -> Self {
        Self {
            cluster,
            connection,
            epoch: 0,
            state: ControllerState::NotStarted,
            calls: Calls::new(),
            dice: Stream::new(seed, cluster, Dice::Controller),
            nodes_done: false,
            step: None,
            unauthorized: 0,
            reboots_told: BTreeSet::new(),
            told: BTreeMap::new(),
            failed: false,
            work_ended: false,
        }
    }

    pub(crate) fn state(&self) -> ControllerState {
        self.state
    }

    fn me(&self) -> Who {
        Who::Controller(self.cluster)
    }

    fn id(&self, w: &World) -> Uuid {
        w.clusters[self.cluster as usize].plan.cluster_id
    }

    fn call(&mut self, w: &mut World, purpose: Purpose, request: Request) {
        let request = request.header("x-secret-key", &*w.config.secret_key);
        let call = self.calls.start(purpose, request, &CONTROLLER);
        self.dispatch(w, call);
    }

    fn dispatch(&mut self, w: &mut World, call: u32) {
        if let Some(request) = self.calls.request(call) {
            w.send(self.connection, u64::from(self.epoch) << 32 | u64::from(call), request);
        }
    }

    fn again(&self, now: Timestamp, w: &mut World, wait: std::time::Duration, timer: Timer) {
        w.at(now + wait, self.me(), self.epoch, timer);
    }

    pub(crate) fn on_timer(&mut self, now: Timestamp, w: &mut World, timer: Timer, epoch: u32) {
        match timer {
            Timer::ControllerStop => {
                *self = Self {
                    epoch: self.epoch.wrapping_add(1),
                    dice: self.dice.clone(),
                    ..Self::new(self.cluster, self.connection, 0)
                };
                return;
            }
            Timer::ControllerStart => {
                if self.state == ControllerState::NotStarted {
                    self.epoch = self.epoch.wrapping_add(1);
                    self.state = ControllerState::Starting;
                    self.ask_ready(w);
                }
                return;
            }
            _ => {}
        }
        if epoch != self.epoch {
            return;
        }
        let id = self.id(w);
        match (timer, self.state) {
            (Timer::Again(call), _) => self.dispatch(w, call),
            (Timer::ReadyLoop, ControllerState::Starting) => self.ask_ready(w),
            (Timer::NodesLoop, ControllerState::Running) => {
                let plane = &mut w.clusters[self.cluster as usize].plane;
                plane.log_is_read(LogReader::Controller);
                plane.log_is_followed(LogReader::Controller, now + w.config.timing.request_timeout);
                self.call(w, Purpose::Hosts, ops::get_cluster(id).request);
            }
            (Timer::FinalizingLoop, ControllerState::Running) => self.post_install(now, w),
            (Timer::WatchLoop, ControllerState::Running) => {
                self.call(w, Purpose::Watch, ops::get_cluster_without_hosts(id).request);
            }
            (Timer::LogsLoop, ControllerState::Running) if w.does(Conduct::NoControllerLogs) => {}
            (Timer::LogsLoop, ControllerState::Running) => self.upload_logs(now, w, Purpose::Logs),
            (Timer::FinalLogs, ControllerState::Leaving) => {
                self.upload_logs(now, w, Purpose::LastLogs(LogsState::Collecting));
            }
            _ => {}
        }
    }

    pub(crate) fn on_reply(&mut self, now: Timestamp, w: &mut World, tag: u64, outcome: HttpResult) {
        if (tag >> 32) as u32 != self.epoch {
            return;
        }
        match self.calls.answered(tag as u32, outcome, &w.config.timing, &mut self.dice) {
            RetryDecision::Stale => {}
            RetryDecision::Again(wait) => {
                // The service does not listen.
                w.clusters[self.cluster as usize].plane.log_was_told(LogReader::Controller);
                self.again(now, w, wait, Timer::Again(tag as u32));
            }
            RetryDecision::Final(purpose, outcome) => self.heard(now, w, purpose, outcome),
        }
    }

    fn heard(&mut self, now: Timestamp, w: &mut World, purpose: Purpose, outcome: HttpResult) {
        let status = outcome.as_ref().map_or(0, |r| r.status);
        let ok = (200..300).contains(&status);
        let cluster = self.id(w);
        let answer = outcome.as_ref().ok().filter(|_| ok);
        let brief = |w: &mut World| answer.and_then(|r| w.brief(now, cluster, r.clone()));
        let t = w.config.timing.clone();
        match purpose {
            // It tells the cluster, by an event there.
            Purpose::Ready if ok && w.clusters[self.cluster as usize].plane.takes_events() => self.ready(now, w),
            Purpose::Ready => self.again(now, w, t.controller_ready_poll, Timer::ReadyLoop),
            Purpose::Hosts => {
                match brief(w) {
                    Some(cluster) => self.hosts_seen(now, w, cluster.hosts.as_deref().unwrap_or_default()),
                    None => self.nodes_round_ends(now, w),
                }
                self.leave_when_done(now, w);
            }
            Purpose::HostTold(next) => {
                if let Some(next) = next {
                    self.tell_done(now, w, next);
                }
                self.nodes_round_ends(now, w);
            }
            Purpose::Reboots => {}
            // It goes on when the service has taken the stage, or will not.
            Purpose::Stage => self.post_install(now, w),
            Purpose::Watch => {
                let brief = brief(w);
                self.watched(now, w, status, brief);
            }
            Purpose::IsFinalizing => match brief(w) {
                Some(cluster) if cluster.status == "finalizing" && w.does(Conduct::CompletesTooEarly) => {
                    self.jump(now, w, PostInstall::Complete);
                }
                Some(cluster) if cluster.status == "finalizing" => self.next_step(now, w),
                _ => self.again(now, w, t.controller_loop, Timer::FinalizingLoop),
            },
            Purpose::Operators => {
                let of = "V2ListOfClusterOperators";
                let operators = answer.and_then(|r| w.read::<Vec<MonitoredOperator>>(now, cluster, of, r.clone()));
                self.operators_seen(now, w, operators);
            }
            Purpose::OperatorTold(name, last) => {
                self.told.insert(name, ok && last);
                if !self.calls.any(|p| matches!(p, Purpose::OperatorTold(..))) {
                    self.operators_round_ends(now, w);
                }
            }
            Purpose::Ingress if ok => self.next_step(now, w),
            Purpose::Ingress => self.again(now, w, t.controller_router_ca_poll, Timer::FinalizingLoop),
            Purpose::TimedOut => {
                let stage = FinalizingStage::WaitingForOlmOperatorsCsv.as_str();
                let timed_out = brief(w).and_then(|c| c.progress).is_some_and(|p| {
                    p.finalizing_stage_timed_out == Some(true) && p.finalizing_stage.as_deref() == Some(stage)
                });
                self.failed |= timed_out;
                self.call(w, Purpose::Operators, ops::list_monitored_operators(self.id(w)).request);
            }
            Purpose::Manifests { last: false } => {}
            Purpose::Manifests { last: true } if ok => self.next_step(now, w),
            Purpose::Manifests { last: true } => self.again(now, w, t.controller_olm_poll, Timer::FinalizingLoop),
            Purpose::Complete if ok => {
                w.plane(now, self.cluster as usize, |_| vec![Happening::InstallationCompleted]);
                self.work_ended = true;
                self.leave_when_done(now, w);
            }
            Purpose::Complete => self.again(now, w, t.controller_complete_poll, Timer::FinalizingLoop),
            Purpose::Logs => self.again(now, w, t.controller_log_upload, Timer::LogsLoop),
            Purpose::LastLogs(LogsState::Requested) => {
                let wait = t.controller_log_gather.at(self.dice.unit());
                self.again(now, w, wait, Timer::FinalLogs);
            }
            Purpose::LastLogs(LogsState::Collecting) => self.logs_state(w, LogsState::Completed),
            Purpose::LastLogs(_) => self.state = ControllerState::Ended,
        }
    }

    // --- start -----------------------------------------------------------------------------------------------------

    fn ask_ready(&mut self, w: &mut World) {
        self.call(w, Purpose::Ready, ops::get_cluster_without_hosts(self.id(w)).request);
    }

    fn ready(&mut self, now: Timestamp, w: &mut World) {
        self.state = ControllerState::Running;
        w.plane(now, self.cluster as usize, |p| p.controller_is_ready());
        let t = w.config.timing.clone();
        self.again(now, w, std::time::Duration::ZERO, Timer::NodesLoop);
        self.again(now, w, t.controller_loop, Timer::FinalizingLoop);
        self.again(now, w, t.controller_status_watch, Timer::WatchLoop);
        self.again(now, w, t.controller_log_upload, Timer::LogsLoop);
    }

    // --- nodes -----------------------------------------------------------------------------------------------------

    fn hosts_seen(&mut self, now: Timestamp, w: &mut World, hosts: &[HostBrief]) {
        let open: Vec<_> =
            hosts.iter().filter(|h| !["installed", "added-to-existing-cluster"].contains(&&*h.status)).collect();
        if !hosts.is_empty() && open.iter().all(|h| h.status == "error") {
            self.nodes_done = true;
            return;
        }
        for host in open {
            self.host_seen(now, w, host);
        }
        self.nodes_round_ends(now, w);
    }

    /// Says of one host what the cluster knows and the service does not.
    fn host_seen(&mut self, now: Timestamp, w: &mut World, host: &HostBrief) {
        let Some(position) = w.positions.get(&host.id).copied() else { return };
        let Some(node) = w.clusters[self.cluster as usize].plane.nodes().get(&position).cloned() else { return };
        let Some(stage) = host.stage() else { return };
        let infra_env = host.infra_env_id.unwrap_or(w.directory[position].infra_env);
        let next = Next { position, host: host.id, infra_env };
        let on_its_way = ON_ITS_WAY.contains(&stage);
        let joined = matches!(node.state, NodeState::Joined | NodeState::Ready);
        let is_ready = node.state == NodeState::Ready || (joined && w.does(Conduct::DoneTooEarly));
        if joined && on_its_way && w.does(Conduct::JoinedNotTold) {
            if is_ready {
                self.tell_done(now, w, next);
            }
            return;
        }
        match node.state {
            NodeState::Configuring if w.does(Conduct::ConfiguringNotTold) => {}
            // One report after the other: a Joined that is tried again must not come after Done.
            NodeState::Joined | NodeState::Ready if on_its_way => {
                self.tell_stage(w, next, HostStage::Joined, is_ready.then_some(next));
            }
            _ if is_ready && stage == HostStage::Joined => self.tell_done(now, w, next),
            NodeState::Configuring
                if node.ignition_fetched.is_some()
                    && matches!(stage, HostStage::Rebooting | HostStage::WaitingForIgnition) =>
            {
                self.tell_stage(w, next, HostStage::Configuring, None);
            }
            _ => {}
        }
    }

    fn tell_stage(&mut self, w: &mut World, of: Next, stage: HostStage, next: Option<Next>) {
        let progress = HostProgress { current_stage: Some(stage), progress_info: Some(String::new()) };
        let request = ops::update_host_progress(of.infra_env, of.host, &progress).request;
        self.call(w, Purpose::HostTold(next), request);
    }

    fn tell_done(&mut self, now: Timestamp, w: &mut World, of: Next) {
        self.tell_stage(w, of, HostStage::Done, None);
        self.tell_reboots(now, w, of);
    }

    fn tell_reboots(&mut self, now: Timestamp, w: &mut World, of: Next) {
        let Some(number) = u32::try_from(of.position).ok().filter(|_| !w.does(Conduct::RebootsNotTold)) else { return };
        if !self.reboots_told.insert(number) {
            return;
        }
        let name = w.names.get(of.position).cloned().unwrap_or_default();
        let event = Event {
            name: Some("reboots_for_node".into()),
            cluster_id: Some(self.id(w)),
            host_id: Some(of.host),
            infra_env_id: Some(of.infra_env),
            severity: Severity::Info,
            category: Some("user".into()),
            message: format!("{name} rebooted once before it was ready"),
            event_time: now,
            request_id: None,
            props: Some(json!({ "node_name": &*name, "reboots": 1 }).to_string()),
        };
        self.call(w, Purpose::Reboots, ops::trigger_event(&event).request);
    }

    /// The next round begins some time after the last report of this one was answered.
    fn nodes_round_ends(&mut self, now: Timestamp, w: &mut World) {
        if !self.nodes_done && !self.calls.any(|p| matches!(p, Purpose::HostTold(_))) {
            let wait = w.config.timing.controller_loop;
            let plane = &mut w.clusters[self.cluster as usize].plane;
            plane.log_was_told(LogReader::Controller);
            plane.log_is_followed(LogReader::Controller, now + wait * 2);
            self.again(now, w, wait, Timer::NodesLoop);
        }
    }

    // --- watch -----------------------------------------------------------------------------------------------------

    fn watched(&mut self, now: Timestamp, w: &mut World, status: u16, cluster: Option<ClusterBrief>) {
        self.unauthorized = if status == 401 { self.unauthorized + 1 } else { 0 };
        if status == 404 || self.unauthorized >= UNAUTHORIZED_LIMIT {
            // The cluster is gone, or it is not ours any more: nobody wants logs either.
            self.calls.clear();
            self.state = ControllerState::Ended;
            return;
        }
        match cluster.map(|c| c.status).as_deref() {
            Some("error" | "cancelled") if !w.does(Conduct::ControllerStays) => {
                self.failed = true;
                self.leave(now, w);
            }
            Some("installed" | "adding-hosts") => {
                self.nodes_done = true;
                self.leave_when_done(now, w);
            }
            _ => {
                let wait = w.config.timing.controller_status_watch;
                self.again(now, w, wait, Timer::WatchLoop);
            }
        }
    }

    // --- after the installation ------------------------------------------------------------------------------------

    /// One look at whatever the present step waits for.
    fn post_install(&mut self, now: Timestamp, w: &mut World) {
        let id = self.id(w);
        let Some((step, _)) = self.step.and_then(|s| POST_INSTALL.get(s)) else {
            return self.call(w, Purpose::IsFinalizing, ops::get_cluster_without_hosts(id).request);
        };
        let stage = POST_INSTALL.iter().find(|(s, _)| s == step).and_then(|(_, stage)| *stage);
        let stuck = |fault: &ClusterFault| {
            matches!(fault, ClusterFault::FinalizingStuck(at) if Some(*at) == stage).then_some(())
        };
        if let Some((fault, ())) = w.clusters[self.cluster as usize].faults.find(stuck) {
            w.note_effect(now, &fault, None, Some(id), "the controller hangs");
            let wait = w.config.timing.controller_loop;
            return self.again(now, w, wait, Timer::FinalizingLoop);
        }
        match step {
            PostInstall::BuiltinOperators | PostInstall::OlmOperators => {
                self.call(w, Purpose::Operators, ops::list_monitored_operators(id).request);
            }
            PostInstall::RouterCa => {
                if w.clusters[self.cluster as usize].plane.router_ca_is_there(now) {
                    let pem = w.config.ingress_pem.to_string();
                    self.call(w, Purpose::Ingress, ops::upload_ingress_cert(id, &pem).request);
                } else {
                    let wait = w.config.timing.controller_router_ca_poll;
                    self.again(now, w, wait, Timer::FinalizingLoop);
                }
            }
            PostInstall::OlmManifests => {
                let manifests = ops::download_cluster_file(id, "custom_manifests.json").request;
                self.call(w, Purpose::Manifests { last: false }, manifests);
                let kubeconfig = ops::download_credentials(id, "kubeconfig-noingress").request;
                self.call(w, Purpose::Manifests { last: true }, kubeconfig);
            }
            PostInstall::OlmReady => self.call(w, Purpose::TimedOut, ops::get_cluster_without_hosts(id).request),
            PostInstall::Done => self.next_step(now, w),
            PostInstall::Complete => {
                let operators: Vec<_> = self
                    .told
                    .keys()
                    .map(|name| {
                        let status = if self.is_up(w, name) { "available" } else { "failed" };
                        json!({ "name": name, "status": status, "status_info": "" })
                    })
                    .collect();
                let params = CompletionParams {
                    is_success: !self.failed,
                    error_info: Some(if self.failed { "OLM operators did not become available" } else { "" }.into()),
                    data: Some(BTreeMap::from([("CLUSTER_OPERATORS_REPORT".to_owned(), json!(operators))])),
                };
                self.call(w, Purpose::Complete, ops::complete_installation(id, &params).request);
            }
        }
    }

    /// Begins a step: tells its finalizing stage and looks for the first time.
    fn begin(&mut self, now: Timestamp, w: &mut World, step: usize) {
        self.step = Some(step);
        if let Some((_, Some(stage))) = POST_INSTALL.get(step) {
            let params = ClusterFinalizingProgress { finalizing_stage: Some(*stage) };
            return self.call(w, Purpose::Stage, ops::update_finalizing_stage(self.id(w), &params).request);
        }
        self.post_install(now, w);
    }

    fn next_step(&mut self, now: Timestamp, w: &mut World) {
        self.go_to(now, w, self.step.map_or(0, |s| s + 1));
    }

    fn jump(&mut self, now: Timestamp, w: &mut World, to: PostInstall) {
        if let Some(step) = POST_INSTALL.iter().position(|(s, _)| *s == to) {
            self.go_to(now, w, step);
        }
    }

    /// Begins that step, or the one behind it where it is left out.
    fn go_to(&mut self, now: Timestamp, w: &mut World, step: usize) {
        let mut next = step;
        while let (Some(Alteration::Skips(skipped)), Some((step, _))) = (w.config.alteration, POST_INSTALL.get(next))
            && skipped == *step
        {
            next += 1;
        }
        if next == POST_INSTALL.len() {
            let wait = w.config.timing.controller_complete_poll;
            return self.again(now, w, wait, Timer::FinalizingLoop);
        }
        self.begin(now, w, next);
    }

    fn is_up(&self, w: &World, name: &str) -> bool {
        w.clusters[self.cluster as usize].plane.operator_is_available(name)
    }

    fn current(&self) -> Option<PostInstall> {
        self.step.and_then(|s| POST_INSTALL.get(s)).map(|(step, _)| *step)
    }

    fn operators_seen(&mut self, now: Timestamp, w: &mut World, operators: Option<Vec<MonitoredOperator>>) {
        let Some(operators) = operators else { return self.operators_again(now, w) };
        let wanted = match self.current() {
            Some(PostInstall::BuiltinOperators) => OperatorType::Builtin,
            _ => OperatorType::Olm,
        };
        let mine: Vec<_> = operators.into_iter().filter(|o| o.operator_type == Some(wanted)).collect();
        if self.current() == Some(PostInstall::OlmOperators) {
            return match mine.is_empty() {
                true => self.jump(now, w, PostInstall::Done),
                false => {
                    let names: Vec<_> = mine.into_iter().filter_map(|o| o.name).collect();
                    w.plane(now, self.cluster as usize, |p| {
                        names.iter().for_each(|name| p.apply_olm(now, name));
                        Vec::new()
                    });
                    self.next_step(now, w)
                }
            };
        }
        self.told.clear();
        for operator in mine {
            let Some(name) = operator.name else { continue };
            if operator.status == Some(OperatorStatus::Available) {
                self.told.insert(name, true);
                continue;
            }
            // Whatever else every cluster has is up when its console is.
            let up = self.is_up(w, &name) || (wanted == OperatorType::Builtin && self.is_up(w, "console"));
            let up = (up || w.does(Conduct::OperatorsTooEarly)) && !w.does(Conduct::OperatorsNotTold);
            let status = match up {
                true => OperatorStatus::Available,
                false if self.failed => OperatorStatus::Failed,
                false => OperatorStatus::Progressing,
            };
            self.told.insert(name.clone(), false);
            if operator.status == Some(status) {
                continue;
            }
            let report = OperatorMonitorReport {
                name: Some(name.clone()),
                version: operator.version,
                status: Some(status),
                status_info: Some(format!("{name} is {status}")),
            };
            let id = self.id(w);
            let last = status != OperatorStatus::Progressing;
            self.call(w, Purpose::OperatorTold(name, last), ops::report_monitored_operator(id, &report).request);
        }
        if !self.calls.any(|p| matches!(p, Purpose::OperatorTold(..))) {
            self.operators_round_ends(now, w);
        }
    }

    fn operators_round_ends(&mut self, now: Timestamp, w: &mut World) {
        match self.told.values().all(|settled| *settled) {
            true => self.next_step(now, w),
            false => self.operators_again(now, w),
        }
    }

    fn operators_again(&mut self, now: Timestamp, w: &mut World) {
        let t = &w.config.timing;
        let wait = match self.current() {
            Some(PostInstall::BuiltinOperators) => t.controller_operators_poll,
            _ => t.controller_olm_poll,
        };
        self.again(now, w, wait, Timer::FinalizingLoop);
    }

    // --- end -------------------------------------------------------------------------------------------------------

    fn leave_when_done(&mut self, now: Timestamp, w: &mut World) {
        if self.work_ended && self.nodes_done {
            self.leave(now, w);
        }
    }

    fn leave(&mut self, _now: Timestamp, w: &mut World) {
        if self.state == ControllerState::Running {
            self.state = ControllerState::Leaving;
            self.calls.clear();
            self.logs_state(w, LogsState::Requested);
        }
    }

    fn logs_state(&mut self, w: &mut World, logs_state: LogsState) {
        let request = ops::update_cluster_logs_progress(self.id(w), &LogsProgressParams { logs_state }).request;
        self.call(w, Purpose::LastLogs(logs_state), request);
    }

    fn upload_logs(&mut self, now: Timestamp, w: &mut World, purpose: Purpose) {
        let id = self.id(w);
        let text = format!("{now} cluster={id} step={:?} nodes_done={}\n", self.current(), self.nodes_done);
        let archive = tar_gz(&[("assisted-installer-controller.log", &text)]);
        self.call(w, purpose, ops::upload_logs(id, None, &archive).request);
    }
}
