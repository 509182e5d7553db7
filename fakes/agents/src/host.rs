//! A simulated host: the machine, the agent on it, the installer that the agent starts, and the node that comes back.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::{Request, TransportError};
use vlab_api::ops;
use vlab_api::types::*;
use vlab_model::history::What;
use vlab_model::settings::{HostTiming, Span};

use crate::archive::tar_gz;
use crate::boot::{self, Found};
use crate::calls::{AGENT, Calls, INSTALLER, Outcome, RetryPolicy, Verdict};
use crate::cluster::{LogReader, NodeRole, NodeState};
use crate::fault::{ActiveFaults, Garble, HostFault};
use crate::hands::{Ran, Work};
use crate::installer::{Asked, ClusterBrief, Condition, File, HostBrief, Installer, Job, ON_ITS_WAY, Task, Writing};
use crate::plan::HostPlan;
use crate::profile::HardwareProfile;
use crate::rng::{Purpose as Dice, Stream};
use crate::steps::{self, Answer, Effect, STEPS, Site};
use crate::world::{Timer, Who, World};

/// Answers to a registration after which the agent stops for good.
pub const REGISTRATION_FREEZES: &[u16] = &[401, 403, 404, 409];
/// A service that fails to make steps answers "poll again in 0 seconds". The real agent then asks as fast as it can; a
/// simulated one leaves at least this between two polls, so that a virtual clock moves.
pub const SHORTEST_POLL: Duration = Duration::from_millis(10);

/// What the agent on a host is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agent {
    /// Nothing: the machine is off or boots.
    Down,
    /// It registers, or waits until it may.
    Registering,
    /// It polls.
    Running,
    /// The service said that it is not wanted: it hangs for good.
    Frozen,
    /// The installer has told the machine to reboot: it polls no more.
    Leaving,
    /// The installed system runs, and no agent in it.
    Node,
}

/// What a request of a host is for.
#[derive(Debug)]
enum Purpose {
    Register,
    Poll,
    Answer { kind: Option<usize>, hash: u64, exit_code: i64, then_reboot: bool },
    Logs(LogsStage, LogsFor),
    Installer(Asked),
}

/// How far the sending of logs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogsStage {
    Requested,
    Upload,
    Completed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogsFor {
    Step(u32),
    Installer,
}

/// The loop that polls.
#[derive(Clone, Debug)]
struct Runner {
    infra_env: Uuid,
    host: Uuid,
    retry: Duration,
    failing_since: Option<Timestamp>,
    backoff: Duration,
}

/// A step that is being run.
#[derive(Debug)]
struct Running {
    serial: u32,
    kind: Option<usize>,
    step_type: Box<str>,
    step_id: Box<str>,
    args: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    kind: usize,
    hash: u64,
    until: Timestamp,
}

/// A simulated host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) plan: HostPlan,
    position: u32,
    connection: u32,
    /// Raised with each reboot: what was under way before is void.
    epoch: u32,
    agent: Agent,
    powered: bool,
    /// The disk holds an installed system.
    disk_boots: bool,
    /// That system got the network of the discovery image, too.
    network_copied: bool,
    /// Its own interfaces, without what a static network adds to them.
    hardware: Arc<HardwareProfile>,
    /// Its addresses do not reach the service.
    cut_off: bool,
    /// Its own id; the plan's is another one while a fault says so.
    own_id: Uuid,
    /// Its own first address while a fault gives it another one.
    own_address: Option<IpAddr>,
    faults: ActiveFaults<HostFault>,
    version: Arc<str>,
    runner: Option<Box<Runner>>,
    calls: Calls<Purpose>,
    steps: Vec<Running>,
    next_step: u32,
    cache: Vec<Cached>,
    installer: Option<Box<Installer>>,
    /// Cluster in whose installation this host takes part, and whether as a member of its control plane.
    member_of: Option<(usize, NodeRole)>,
    /// The installer hangs since it had this token.
    stuck: Option<u32>,
    delays: Stream,
    durations: Stream,
}

#[derive(Deserialize)]
struct Registered {
    next_step_runner_command: Option<RunnerCommand>,
}

#[derive(Deserialize)]
struct RunnerCommand {
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    retry_seconds: Option<i64>,
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Host {
    pub(crate) fn new(plan: HostPlan, position: u32, connection: u32, w: &mut World) -> Self {
        let (seed, index) = (w.config.seed, plan.index);
        w.at(plan.start_at, Who::Host(position), 0, Timer::SwitchOn);
        Self {
            position,
            connection,
            epoch: 0,
            agent: Agent::Down,
            powered: false,
            disk_boots: false,
            network_copied: false,
            hardware: Arc::clone(&plan.profile),
            cut_off: false,
            own_id: plan.host_id,
            own_address: None,
            faults: ActiveFaults::default(),
            version: Arc::clone(&w.config.agent_version),
            runner: None,
            calls: Calls::new(),
            steps: Vec::new(),
            next_step: 0,
            cache: Vec::new(),
            installer: None,
            member_of: None,
            stuck: None,
            delays: Stream::new(seed, index, Dice::Delays),
            durations: Stream::new(seed, index, Dice::Durations),
            plan,
        }
    }

    // --- for the fleet ---------------------------------------------------------------------------------------------

    pub(crate) fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Has it nothing to do any more, on its own?
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.agent, Agent::Frozen | Agent::Node)
            || (self.agent == Agent::Down && !self.powered && self.epoch > 0)
    }

    pub(crate) fn on_timer(&mut self, now: Timestamp, w: &mut World, timer: Timer) {
        match timer {
            Timer::SwitchOn => self.switch_on(now, w),
            Timer::Booted => self.booted(now, w),
            Timer::Register => self.register(now, w),
            Timer::Poll => self.poll(now, w),
            Timer::StepDone(serial) => self.step_done(now, w, serial),
            Timer::Again(call) => self.dispatch(now, w, call),
            Timer::NoAnswer(call) => {
                let limit = w.config.timing.request_timeout;
                self.answered(now, w, call, Err(TransportError::Timeout(limit)));
            }
            Timer::Installer(token) if self.installer.as_ref().is_some_and(|i| i.token == token && !i.dead) => {
                self.installer_goes_on(now, w);
            }
            Timer::Written(token) => self.written(now, w, token),
            Timer::Nodes => self.report_nodes_again(now, w),
            Timer::LogsGathered(token) => {
                if let Some(cluster) = self.installer.as_ref().filter(|i| i.token == token).map(|i| i.cluster_id) {
                    self.upload_logs(now, w, cluster, LogsFor::Installer);
                }
            }
            Timer::Reboot => self.reboot(now, w),
            _ => {}
        }
    }

    pub(crate) fn on_reply(&mut self, now: Timestamp, w: &mut World, tag: u64, outcome: Outcome) {
        if (tag >> 32) as u32 != self.epoch {
            return;
        }
        let outcome = match self.is_active(now, w, HostFault::takes_offline, "an answer did not reach it") {
            true => Err(TransportError::Lost("the host's network is down".into())),
            false => outcome,
        };
        self.answered(now, w, tag as u32, outcome);
    }

    // --- the machine -----------------------------------------------------------------------------------------------

    fn me(&self) -> Who {
        Who::Host(self.position)
    }

    fn after(&mut self, now: Timestamp, w: &mut World, span: fn(&HostTiming) -> Span, timer: Timer) {
        let at = now + span(&w.config.timing).at(self.durations.unit());
        w.at(at, self.me(), self.epoch, timer);
    }

    /// Power on, when it is off.
    pub(crate) fn switch_on(&mut self, now: Timestamp, w: &mut World) {
        if self.powered || self.is_active(now, w, |fault| *fault == HostFault::NoPower, "it could not be switched on") {
            return;
        }
        self.powered = true;
        w.host_did(now, self.own_id, "powered-on");
        self.boot(now, w);
    }

    /// Power off at once.
    pub(crate) fn switch_off(&mut self, now: Timestamp, w: &mut World) {
        self.go_down(now, w);
        if std::mem::replace(&mut self.powered, false) {
            w.host_did(now, self.own_id, "powered-off");
        }
    }

    /// Everything that runs on the machine ends.
    fn go_down(&mut self, now: Timestamp, w: &mut World) {
        self.epoch = self.epoch.wrapping_add(1);
        self.agent = Agent::Down;
        self.runner = None;
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
            w.host_did(now, self.plan.host_id, "rebooting");
            return self.work(w, Work::Reboot);
        }
        self.go_down(now, w);
        self.powered = true;
        self.stuck = None;
        w.host_did(now, self.own_id, "rebooting");
        self.boot(now, w);
    }

    fn boots_disk(&self) -> bool {
        self.disk_boots && !self.plan.medium_first && !self.faults.has(|fault| *fault == HostFault::BootsDiscovery)
    }

    fn boot(&mut self, now: Timestamp, w: &mut World) {
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
    fn configure_network(&mut self, now: Timestamp, w: &mut World) {
        let Some(boot) = self.plan.boot.clone() else { return };
        let nics = &self.hardware.nics;
        let nics: Vec<_> =
            (0..nics.len()).map(|i| (nics[i].name.clone(), self.hardware.mac(self.plan.index, i))).collect();
        let found = match self.boots_disk() && !self.network_copied {
            true => Found::Nothing,
            false => boot.image.network_of(&nics),
        };
        let (word, network) = match found {
            Found::Connections(connections) => {
                let made = boot::configured(&self.hardware, self.plan.index, &connections, &boot.leased);
                ("static-network", Some(made))
            }
            Found::Failed(_) => ("static-network-failed", None),
            Found::Nothing => ("no-static-network", None),
        };
        w.host_did(now, self.own_id, word);
        (self.plan.profile, self.plan.addresses) = match network {
            Some((profile, addresses)) => (Arc::new(profile), addresses),
            None => (Arc::clone(&self.hardware), boot.leased.clone()),
        };
        self.cut_off = !boot.lab.iter().any(|address| self.plan.addresses.is_on_link(*address));
        if self.cut_off {
            w.host_did(now, self.own_id, "cut-off");
        }
        w.network.settle(self.position as usize, &self.plan);
    }

    fn booted(&mut self, now: Timestamp, w: &mut World) {
        self.configure_network(now, w);
        w.network.set_up(self.position as usize, !self.faults.has(HostFault::cuts_uplink));
        self.is_active(now, w, |fault| *fault == HostFault::NoAddress, "it got no address");
        if self.boots_disk() {
            self.agent = Agent::Node;
            w.host_did(now, self.own_id, "booted-installed-os");
            if !self.is_active(now, w, |fault| *fault == HostFault::NeverJoins, "the installed system does not go on") {
                self.become_node(now, w);
            }
        } else {
            if self.disk_boots {
                self.is_active(
                    now,
                    w,
                    |fault| *fault == HostFault::BootsDiscovery,
                    "the discovery image was booted again",
                );
            }
            w.host_did(now, self.own_id, "booted-discovery");
            self.register(now, w);
        }
    }

    /// The installed system asks for its place in the cluster.
    fn become_node(&mut self, now: Timestamp, w: &mut World) {
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

    // --- faults ----------------------------------------------------------------------------------------------------

    /// The fault that is of that kind and hits now, noted as its effect.
    fn active<U>(
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

    fn is_active(
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
            HostFault::Offline => w.host_did(now, self.own_id, "network-lost"),
            HostFault::NoUplink => {
                w.network.set_up(position, false);
                w.host_did(now, self.own_id, "network-lost");
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
                        w.host_did(now, self.own_id, "network-back");
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
    fn hangs(&self) -> bool {
        self.stuck.is_some() && self.stuck == self.installer.as_ref().map(|i| i.token)
    }

    /// The cluster's other nodes reach this one, or do not.
    fn uplink(&mut self, now: Timestamp, w: &mut World, there: bool) {
        if let Some((cluster, _)) = self.member_of {
            let position = self.position as usize;
            w.plane(now, cluster, |p| p.uplink(now, position, there));
        }
    }

    fn certificate(&mut self, now: Timestamp, w: &mut World, withheld_by: Option<&Arc<str>>) {
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
            w.note_effect(now, fault, Some(self.own_id), None, "its agent was started again");
            w.host_did(now, self.own_id, "agent-exited");
            self.steps = Vec::new();
            self.cache = Vec::new();
            self.calls.forget(|p| matches!(p, Purpose::Register | Purpose::Poll | Purpose::Answer { .. }));
            let restart = w.config.timing.agent_restart.at(self.durations.unit());
            self.runner_ended(now, w, restart);
        }
    }

    // --- requests --------------------------------------------------------------------------------------------------

    fn call(
        &mut self,
        now: Timestamp,
        w: &mut World,
        purpose: Purpose,
        request: Request,
        policy: &'static RetryPolicy,
    ) {
        let mut request = request.header("x-secret-key", &*w.config.secret_key);
        // The agent names its version; the installer and the sender of logs are programs of their own.
        if matches!(purpose, Purpose::Register | Purpose::Poll | Purpose::Answer { .. }) {
            request = request.header("discovery_agent_version", &*self.version);
        }
        let call = self.calls.start(purpose, request, policy);
        self.dispatch(now, w, call);
    }

    fn dispatch(&mut self, now: Timestamp, w: &mut World, call: u32) {
        let Some(request) = self.calls.request(call) else { return };
        if self.cut_off || self.is_active(now, w, HostFault::takes_offline, "what it sent did not arrive") {
            let at = now + w.config.timing.request_timeout;
            w.at(at, self.me(), self.epoch, Timer::NoAnswer(call));
        } else {
            w.send(self.connection, u64::from(self.epoch) << 32 | u64::from(call), request);
        }
    }

    fn answered(&mut self, now: Timestamp, w: &mut World, call: u32, outcome: Outcome) {
        match self.calls.answered(call, outcome, &w.config.timing, &mut self.delays) {
            Verdict::Stale => {}
            Verdict::Again(wait) => {
                self.nodes_were_told(w, true);
                w.at(now + wait, self.me(), self.epoch, Timer::Again(call));
            }
            Verdict::Final(purpose, outcome) => match purpose {
                Purpose::Register => self.registered(now, w, outcome),
                Purpose::Poll => self.polled(now, w, outcome),
                Purpose::Answer { kind, hash, exit_code, then_reboot } => {
                    let accepted = outcome.is_ok_and(|r| r.is_success());
                    if let (true, 0, Some(kind)) = (accepted, exit_code, kind) {
                        self.remember(now, w, kind, hash);
                    }
                    if then_reboot {
                        self.reboot_into_discovery(now, w);
                    }
                }
                Purpose::Logs(stage, whose) => self.logs_went(now, w, stage, whose),
                Purpose::Installer(asked) => self.installer_heard(now, w, asked, outcome),
            },
        }
    }

    // --- registration ----------------------------------------------------------------------------------------------

    fn register(&mut self, now: Timestamp, w: &mut World) {
        if self.calls.any(|p| matches!(p, Purpose::Register)) {
            return;
        }
        self.agent = Agent::Registering;
        self.runner = None;
        self.is_active(now, w, |fault| matches!(fault, HostFault::IdOf(_)), "it registered under the other host's id");
        let params =
            HostCreateParams { host_id: self.plan.host_id, discovery_agent_version: Some(self.version.to_string()) };
        let request = ops::register_host(self.plan.infra_env_id, &params).request;
        self.call(now, w, Purpose::Register, request, &AGENT);
    }

    fn registered(&mut self, now: Timestamp, w: &mut World, outcome: Outcome) {
        let response = match outcome {
            Ok(response) if response.status == 201 => response,
            Ok(response) if REGISTRATION_FREEZES.contains(&response.status) => {
                w.host_did(now, self.own_id, format!("registration-refused:{}", response.status));
                return self.freeze(now, w);
            }
            _ => {
                let at = now + w.config.timing.registration_retry;
                return w.at(at, self.me(), self.epoch, Timer::Register);
            }
        };
        #[derive(Deserialize)]
        struct RunnerArgs {
            infra_env_id: Uuid,
            host_id: Uuid,
            #[serde(default)]
            agent_version: Option<String>,
        }
        let command = response.decode::<Registered>().ok().and_then(|r| r.next_step_runner_command);
        let args = command.as_ref().and_then(|c| c.args.as_ref()).and_then(|a| a.first());
        let args = args.and_then(|a| serde_json::from_str::<RunnerArgs>(a).ok());
        let (Some(command), Some(args)) = (command, args) else {
            w.host_did(now, self.own_id, "registered-without-command");
            let at = now + w.config.timing.runner_failure_wait;
            return w.at(at, self.me(), self.epoch, Timer::Register);
        };
        if let Some(version) = args.agent_version.filter(|v| !v.is_empty() && **v != *self.version) {
            self.version = version.into();
        }
        let seconds = u64::try_from(command.retry_seconds.unwrap_or(0)).unwrap_or(0);
        let retry = match seconds {
            0 => w.config.timing.runner_failure_wait,
            s => Duration::from_secs(s).div_f64(w.config.timing.retry_divisor),
        };
        self.runner = Some(Box::new(Runner {
            infra_env: args.infra_env_id,
            host: args.host_id,
            retry,
            failing_since: None,
            backoff: w.config.timing.backoff_initial,
        }));
        self.agent = Agent::Running;
        self.cache = Vec::new();
        w.host_did(now, self.own_id, "registered");
        self.poll(now, w);
    }

    fn freeze(&mut self, now: Timestamp, w: &mut World) {
        self.agent = Agent::Frozen;
        self.runner = None;
        w.host_did(now, self.own_id, "frozen");
    }

    /// The runner ended; the agent registers again after that time.
    fn runner_ended(&mut self, now: Timestamp, w: &mut World, wait: Duration) {
        self.agent = Agent::Registering;
        self.runner = None;
        w.at(now + wait, self.me(), self.epoch, Timer::Register);
    }

    // --- polling ---------------------------------------------------------------------------------------------------

    fn poll(&mut self, now: Timestamp, w: &mut World) {
        let Some(runner) = self.runner.as_ref().filter(|_| self.agent == Agent::Running) else { return };
        if self.calls.any(|p| matches!(p, Purpose::Poll)) {
            return;
        }
        let (infra_env, host) = (runner.infra_env, runner.host);
        if self.is_active(now, w, |fault| *fault == HostFault::SilentAgent, "it did not ask for instructions") {
            return;
        }
        let skew = |fault: &HostFault| if let HostFault::Clock(by) = fault { Some(*by) } else { None };
        let clock = now.as_secs() + self.active(now, w, skew, "it told the wrong time").unwrap_or(0);
        let request = ops::get_next_steps(infra_env, host, clock).request;
        self.call(now, w, Purpose::Poll, request, &AGENT);
    }

    fn polled(&mut self, now: Timestamp, w: &mut World, outcome: Outcome) {
        let Some(runner) = self.runner.as_mut().filter(|_| self.agent == Agent::Running) else { return };
        let steps = match outcome {
            Ok(response) if response.status == 404 => return self.freeze(now, w),
            Ok(response) if response.is_success() => response.decode::<Steps>().ok(),
            _ => None,
        };
        let Some(steps) = steps else {
            self.cache = Vec::new();
            let t = &w.config.timing;
            let since = *runner.failing_since.get_or_insert(now);
            if now.since(since) >= t.backoff_give_up {
                let wait = runner.retry;
                w.host_did(now, self.own_id, "gave-up-polling");
                return self.runner_ended(now, w, wait);
            }
            let wait = runner.backoff.min(t.backoff_max);
            runner.backoff = wait.mul_f64(BACKOFF_FACTOR).min(t.backoff_max);
            return w.at(now + wait, self.me(), self.epoch, Timer::Poll);
        };
        runner.failing_since = None;
        runner.backoff = w.config.timing.backoff_initial;
        let wait = w.config.timing.next_instruction(steps.next_instruction_seconds.unwrap_or(0)).max(SHORTEST_POLL);
        for step in steps.instructions.into_iter().flatten() {
            self.step_given(now, w, step);
        }
        if steps.post_step_action.as_deref() == Some("exit") {
            w.host_did(now, self.own_id, "agent-exited");
            let restart = w.config.timing.agent_restart.at(self.durations.unit());
            return self.runner_ended(now, w, restart);
        }
        let slow = |fault: &HostFault| {
            if let HostFault::SlowPolls(every) = fault { Some(*every).filter(|e| *e > wait) } else { None }
        };
        let wait = self.active(now, w, slow, "it waited longer before it asked again").unwrap_or(wait);
        w.at(now + wait, self.me(), self.epoch, Timer::Poll);
    }

    // --- steps -----------------------------------------------------------------------------------------------------

    fn saw_step(&self, now: Timestamp, w: &mut World, step: (&str, &str), answered: Option<i64>, cached: bool) {
        if w.config.observe_steps {
            let (step_type, step_id) = (step.0.to_owned(), step.1.to_owned());
            w.saw(now, What::Step { host: self.own_id, step_type, step_id, answered, cached });
        }
    }

    fn step_given(&mut self, now: Timestamp, w: &mut World, step: Step) {
        let step_type = step.step_type.unwrap_or_default();
        let step_id = step.step_id.unwrap_or_default();
        self.saw_step(now, w, (&step_type, &step_id), None, false);
        let kind = steps::find(&step_type);
        self.next_step = self.next_step.wrapping_add(1);
        let serial = self.next_step;
        let takes: fn(&HostTiming) -> Span = match kind {
            Some(kind) => STEPS[kind].takes,
            None => |t| t.step_unknown,
        };
        let running = Running {
            serial,
            kind,
            step_type: step_type.into(),
            step_id: step_id.into(),
            args: step.args.unwrap_or_default(),
        };
        let gathers = kind.is_some_and(|k| STEPS[k].effect == Effect::GatherLogs);
        if gathers && logs_cluster(&running).is_some() {
            self.logs_progress(now, w, LogsStage::Requested, LogsFor::Step(serial));
        }
        if w.has_real_hands() {
            let (step_type, args) = (running.step_type.to_string(), running.args.clone());
            self.steps.push(running);
            return self.work(w, Work::Step { serial, step_type, args });
        }
        self.steps.push(running);
        let at = now + takes(&w.config.timing).at(self.durations.unit());
        w.at(at, self.me(), self.epoch, Timer::StepDone(serial));
    }

    fn answer_of(&self, now: Timestamp, w: &mut World, running: &Running) -> Answer {
        if self.is_active(now, w, |fault| *fault == HostFault::NoMedia, "it cannot read the discovery medium") {
            return steps::media_disconnected();
        }
        let Some(kind) = running.kind else { return steps::unknown(&running.step_type) };
        let World { network, clusters, open_dns, config, .. } = w;
        let of = self.plan.cluster.and_then(|c| clusters.get(c));
        let dns = self.plan.names(of.map_or(&*open_dns, |c| &c.plan.dns));
        let healthy = ActiveFaults::default();
        let api_answers = |address| {
            let site = clusters.iter().find(|c| c.plan.api_vips.contains(&address));
            site.map(|c| c.plane.api_is_up())
        };
        let mut site = Site {
            seed: config.seed,
            position: self.position as usize,
            plan: &self.plan,
            dns: &dns,
            faults: &self.faults,
            dns_faults: of.map_or(&healthy, |c| &c.faults),
            effects: RefCell::default(),
            network,
            api_answers: &api_answers,
        };
        let mut answer = (STEPS[kind].answer)(&mut site, &running.args);
        if STEPS[kind].step_type == "inventory" {
            garble(&site, &mut answer);
        }
        for (fault, detail) in site.effects.into_inner() {
            w.note_effect(now, &fault, Some(self.own_id), None, detail);
        }
        answer
    }

    fn step_done(&mut self, now: Timestamp, w: &mut World, serial: u32) {
        let Some(at) = self.steps.iter().position(|s| s.serial == serial) else { return };
        let answer = self.answer_of(now, w, &self.steps[at]);
        let effect = self.steps[at].kind.map_or(Effect::None, |k| STEPS[k].effect);
        if effect == Effect::GatherLogs
            && answer.exit_code == 0
            && let Some(cluster) = logs_cluster(&self.steps[at])
        {
            // The step ends when the logs are there.
            return self.upload_logs(now, w, cluster, LogsFor::Step(serial));
        }
        let running = self.take_step(at);
        self.finish_step(now, w, running, answer, effect);
    }

    fn take_step(&mut self, at: usize) -> Running {
        let running = self.steps.remove(at);
        if self.steps.is_empty() {
            self.steps = Vec::new();
        }
        running
    }

    fn finish_step(&mut self, now: Timestamp, w: &mut World, running: Running, mut answer: Answer, effect: Effect) {
        let succeeded = answer.exit_code == 0;
        // With real hands the installer is a program of its own, and whoever ran the step started it.
        if effect == Effect::StartInstaller && succeeded && self.installer.is_none() && !w.has_real_hands() {
            match self.prepare_installer(w, &running) {
                Ok(installer) => self.take_up(installer),
                Err(problem) => {
                    answer = Answer { exit_code: steps::AGENT_FAILURE, output: String::new(), error: problem }
                }
            }
            if self.installer.is_some() {
                w.host_did(now, self.own_id, "installer-started");
                let token = self.installer_token();
                w.at(now, self.me(), self.epoch, Timer::Installer(token));
            }
        }
        if effect == Effect::StopInstaller && succeeded && self.installer.take().is_some() {
            self.calls.forget(|p| matches!(p, Purpose::Installer(_) | Purpose::Logs(_, LogsFor::Installer)));
            w.host_did(now, self.own_id, "installer-stopped");
        }
        let then_reboot = effect == Effect::RebootDiscovery && succeeded;
        let step = (&*running.step_type, &*running.step_id);
        let hash = hash_of(&answer.output);
        let known = succeeded
            && w.config.reply_cache
            && self.cache.iter().any(|c| Some(c.kind) == running.kind && c.hash == hash && c.until > now);
        self.saw_step(now, w, step, Some(answer.exit_code), known);
        let upgraded = (effect == Effect::RestartUpgraded && succeeded).then(|| upgraded_to(&answer.output)).flatten();
        if known {
            if then_reboot {
                self.reboot_into_discovery(now, w);
            }
        } else if let Some(runner) = &self.runner {
            // As in the real agent's JSON, a zero and an empty text are left out.
            let reply = StepReply {
                step_type: Some(running.step_type.into()),
                step_id: Some(running.step_id.into()),
                exit_code: Some(answer.exit_code).filter(|c| *c != 0),
                output: Some(answer.output),
                error: Some(answer.error).filter(|e| !e.is_empty()),
            };
            let request = ops::post_step_reply(runner.infra_env, runner.host, &reply).request;
            let purpose = Purpose::Answer { kind: running.kind, hash, exit_code: answer.exit_code, then_reboot };
            self.call(now, w, purpose, request, &AGENT);
        } else if then_reboot {
            // The poll that brought this step told the agent to exit: nobody is left to answer.
            self.reboot_into_discovery(now, w);
        }
        if let Some(image) = upgraded {
            self.version = image.into();
            w.host_did(now, self.own_id, "agent-upgraded");
            self.calls.forget(|p| matches!(p, Purpose::Poll));
            let restart = w.config.timing.agent_upgrade.at(self.durations.unit());
            self.runner_ended(now, w, restart);
        }
    }

    fn remember(&mut self, now: Timestamp, w: &World, kind: usize, hash: u64) {
        let until = now + w.config.timing.reply_cache_life;
        self.cache.retain(|c| c.kind != kind);
        if self.agent == Agent::Running && w.config.reply_cache {
            self.cache.push(Cached { kind, hash, until });
        }
    }

    fn reboot_into_discovery(&mut self, now: Timestamp, w: &mut World) {
        self.disk_boots = false;
        self.reboot(now, w);
    }

    // --- logs ------------------------------------------------------------------------------------------------------

    fn logs_progress(&mut self, now: Timestamp, w: &mut World, stage: LogsStage, whose: LogsFor) {
        let logs_state = if stage == LogsStage::Requested { LogsState::Requested } else { LogsState::Completed };
        let params = LogsProgressParams { logs_state };
        let request = ops::update_host_logs_progress(self.plan.infra_env_id, self.plan.host_id, &params).request;
        self.call(now, w, Purpose::Logs(stage, whose), request, &INSTALLER);
    }

    fn upload_logs(&mut self, now: Timestamp, w: &mut World, cluster: Uuid, whose: LogsFor) {
        if self.is_active(now, w, |fault| *fault == HostFault::NoLogs, "the logs that it announced were not sent") {
            // A step is never answered; the installer has other things to do.
            return if whose == LogsFor::Installer {
                self.installer_next_line(now, w)
            };
        }
        let text = format!("{now} {} {} agent={}\n", self.plan.name, self.plan.host_id, self.version);
        let archive = tar_gz(&[("agent.log", &text), ("installer.log", &self.installer_log(now))]);
        self.send_archive(now, w, cluster, whose, &archive);
    }

    fn send_archive(&mut self, now: Timestamp, w: &mut World, cluster: Uuid, whose: LogsFor, archive: &[u8]) {
        let request = ops::upload_logs(cluster, Some((self.plan.infra_env_id, self.plan.host_id)), archive).request;
        self.call(now, w, Purpose::Logs(LogsStage::Upload, whose), request, &INSTALLER);
    }

    fn installer_log(&self, now: Timestamp) -> String {
        match &self.installer {
            Some(i) => format!("{now} role={} line={}/{} failed={}\n", i.role, i.line, i.script.len(), i.dead),
            None => String::new(),
        }
    }

    /// Whatever the answer was: the sender of logs goes on, as it has nobody to complain to.
    fn logs_went(&mut self, now: Timestamp, w: &mut World, stage: LogsStage, whose: LogsFor) {
        match (stage, whose) {
            // The step itself waits for its own timer, the installer for the gathering.
            (LogsStage::Requested, LogsFor::Step(_)) => {}
            (LogsStage::Requested, LogsFor::Installer) => {
                if w.has_real_hands() {
                    return self.give_job(w, Job::GatherLogs);
                }
                let token = self.installer_token();
                self.after(now, w, |t| t.log_gather, Timer::LogsGathered(token));
            }
            (LogsStage::Upload, _) => self.logs_progress(now, w, LogsStage::Completed, whose),
            (LogsStage::Completed, LogsFor::Step(serial)) => {
                if let Some(at) = self.steps.iter().position(|s| s.serial == serial) {
                    let running = self.take_step(at);
                    self.finish_step(now, w, running, Answer::default(), Effect::None);
                }
            }
            (LogsStage::Completed, LogsFor::Installer) => self.installer_next_line(now, w),
        }
    }

    // --- the installer ---------------------------------------------------------------------------------------------

    fn prepare_installer(&self, w: &World, running: &Running) -> Result<Box<Installer>, String> {
        let text = running.args.first().map_or("", String::as_str);
        let request: InstallCmdRequest = serde_json::from_str(text).map_err(|e| format!("install: {e}"))?;
        self.installer_for(w, &request)
    }

    fn installer_for(&self, w: &World, request: &InstallCmdRequest) -> Result<Box<Installer>, String> {
        let cluster = w
            .cluster(request.cluster_id)
            .ok_or_else(|| format!("install: this lab has no cluster {}", request.cluster_id))?;
        let count = w.clusters[cluster].plan.control_plane_count;
        Ok(Box::new(Installer::new(cluster, count, self.plan.registry_on_medium, request)))
    }

    fn take_up(&mut self, installer: Box<Installer>) {
        self.network_copied = installer.copies_network;
        self.installer = Some(installer);
    }

    /// A new token: timers set before are void.
    fn installer_token(&mut self) -> u32 {
        self.installer.as_mut().map_or(0, |i| {
            i.token += 1;
            i.token
        })
    }

    fn installer_next_line(&mut self, now: Timestamp, w: &mut World) {
        if let Some(installer) = self.installer.as_mut().filter(|i| !i.dead) {
            installer.line += 1;
            self.installer_goes_on(now, w);
        }
    }

    fn ask(&mut self, now: Timestamp, w: &mut World, asked: Asked, request: Request) {
        self.call(now, w, Purpose::Installer(asked), request, &INSTALLER);
    }

    fn tell_stage(&mut self, now: Timestamp, w: &mut World, asked: Asked, stage: HostStage, info: &str) {
        let progress = HostProgress { current_stage: Some(stage), progress_info: Some(info.to_owned()) };
        let request = ops::update_host_progress(self.plan.infra_env_id, self.plan.host_id, &progress).request;
        self.ask(now, w, asked, request);
    }

    /// Does the present line, and the following ones until one has to wait.
    fn installer_goes_on(&mut self, now: Timestamp, w: &mut World) {
        loop {
            let Some(installer) = self.installer.as_ref().filter(|i| !i.dead) else { return };
            let (cluster, cluster_id) = (installer.cluster, installer.cluster_id);
            let Some(task) = installer.script.get(installer.line) else { return };
            match *task {
                Task::Report(stage, info) => {
                    let info = installer.info(info);
                    if stage == HostStage::StartingInstallation {
                        self.member_of = Some((cluster, NodeRole::from(installer.role)));
                        self.plan.cluster = Some(cluster);
                    }
                    return self.tell_stage(now, w, Asked::Step, stage, info);
                }
                Task::Work(job, span) => {
                    if let Some(i) = self.installer.as_mut() {
                        i.line += 1;
                    }
                    if w.has_real_hands() {
                        return self.give_job(w, job);
                    }
                    let token = self.installer_token();
                    return self.after(now, w, span, Timer::Installer(token));
                }
                Task::Download(file) => {
                    let request = match file {
                        File::BootstrapIgnition => ops::download_cluster_file(cluster_id, "bootstrap.ign").request,
                        File::HostIgnition => {
                            ops::download_host_ignition(self.plan.infra_env_id, self.plan.host_id).request
                        }
                    };
                    return self.ask(now, w, Asked::Needed(file), request);
                }
                Task::StartBootkube if w.has_real_hands() => {
                    if !w.clusters[cluster].plane.is_single_node() {
                        w.at(now + w.config.timing.mcs_log_poll, self.me(), self.epoch, Timer::Nodes);
                    }
                    if let Some(i) = self.installer.as_mut() {
                        i.line += 1;
                    }
                    return self.give_job(w, Job::StartBootkube);
                }
                Task::StartBootkube => {
                    let position = self.position as usize;
                    w.plane(now, cluster, |p| p.start_bootkube(now, position));
                    if !w.clusters[cluster].plane.is_single_node() {
                        w.at(now + w.config.timing.mcs_log_poll, self.me(), self.epoch, Timer::Nodes);
                    }
                }
                Task::WriteImage => return self.start_writing(now, w),
                Task::CopyRegistry => {
                    let takes = w.config.timing.copy_registry.at(self.durations.unit());
                    return self.start_telling(now, w, HostStage::CopyingRegistryDataToDisk, takes);
                }
                Task::WaitFor(condition) => {
                    if !self.holds(now, w, cluster, condition) {
                        return;
                    }
                }
                Task::RequestClusterLogs => {
                    let params = LogsProgressParams { logs_state: LogsState::Requested };
                    let request = ops::update_cluster_logs_progress(cluster_id, &params).request;
                    return self.ask(now, w, Asked::Step, request);
                }
                Task::SendLogs => return self.logs_progress(now, w, LogsStage::Requested, LogsFor::Installer),
                Task::Shutdown { delayed } => {
                    self.agent = Agent::Leaving;
                    self.runner = None;
                    self.calls.forget(|p| matches!(p, Purpose::Poll));
                    return match delayed {
                        true => self.after(now, w, |t| t.reboot_delay, Timer::Reboot),
                        false => w.at(now, self.me(), self.epoch, Timer::Reboot),
                    };
                }
            }
            if let Some(i) = self.installer.as_mut() {
                i.line += 1;
            }
        }
    }

    /// Is it so? If not, the question is asked again later.
    fn holds(&mut self, now: Timestamp, w: &mut World, cluster: usize, condition: Condition) -> bool {
        let plane = &w.clusters[cluster].plane;
        let holds = match condition {
            Condition::MastersDone => {
                self.ask_for_masters(now, w);
                return false;
            }
            _ if plane.leaves_too_early() => true,
            Condition::MastersReady => {
                let ready = plane.enough_joined();
                self.report_nodes(now, w);
                ready
            }
            Condition::Bootkube => plane.bootkube_is_done(),
            Condition::EtcdBootstrap => plane.etcd_bootstrap_is_done(),
            Condition::Controller => plane.controller_ready(),
        };
        if !holds {
            self.look_again(now, w);
        }
        holds
    }

    fn look_again(&mut self, now: Timestamp, w: &mut World) {
        let token = self.installer_token();
        w.at(now + w.config.timing.installer_poll, self.me(), self.epoch, Timer::Installer(token));
    }

    fn ask_for_masters(&mut self, now: Timestamp, w: &mut World) {
        let Some(installer) = &self.installer else { return };
        let (id, day2) = (installer.cluster_id, installer.day2);
        match day2 {
            None => self.ask(now, w, Asked::IsDay2, ops::get_cluster_without_hosts(id).request),
            Some(_) => {
                let mut request = ops::list_cluster_hosts(id).request;
                request.path.push_str("?role=master");
                self.ask(now, w, Asked::Masters, request);
            }
        }
    }

    fn installer_heard(&mut self, now: Timestamp, w: &mut World, asked: Asked, outcome: Outcome) {
        let Some(installer) = self.installer.as_mut().filter(|i| !i.dead) else { return };
        match asked {
            Asked::Told | Asked::Percentage => {
                if installer.writing.is_some_and(|writing| writing.done) && !self.percentage_is_out() {
                    self.finish_writing(now, w);
                }
            }
            Asked::Step => {
                // A report that was refused is noted and forgotten: the real installer goes on, too.
                if let Ok(response) = &outcome
                    && !response.is_success()
                {
                    let word = format!("report-refused:{}", response.status);
                    w.host_did(now, self.own_id, word);
                }
                let reported = match installer.script.get(installer.line) {
                    Some(Task::Report(stage, _)) => Some(*stage),
                    _ => None,
                };
                let fails = |fault: &HostFault| match fault {
                    HostFault::FailsAt(at, text) if Some(*at) == reported => Some(text.clone()),
                    _ => None,
                };
                if let Some(text) = self.active(now, w, fails, "its installer failed") {
                    return self.fail(now, w, &text);
                }
                let hangs = |fault: &HostFault| matches!(fault, HostFault::StuckAt(at) if Some(*at) == reported);
                if self.is_active(now, w, hangs, "its installer hangs") {
                    self.stuck = self.installer.as_ref().map(|i| i.token);
                    return;
                }
                self.installer_next_line(now, w);
            }
            Asked::Needed(file) => match outcome {
                Ok(response) if response.is_success() => {
                    if w.has_real_hands() {
                        self.work(w, Work::Got(file, response.body));
                    }
                    self.installer_next_line(now, w);
                }
                other => {
                    let why = match other {
                        Ok(response) => format!("the service answered {}", response.status),
                        Err(error) => error.to_string(),
                    };
                    self.fail(now, w, &format!("cannot download {file:?}: {why}"));
                }
            },
            Asked::IsDay2 => {
                if let Ok(cluster) = outcome.map_err(drop).and_then(|r| r.decode::<ClusterBrief>().map_err(drop)) {
                    let day2 = cluster.kind == "AddHostsCluster" || cluster.status == "adding-hosts";
                    installer.day2 = Some(day2);
                    match day2 {
                        true => self.installer_next_line(now, w),
                        false => self.ask_for_masters(now, w),
                    }
                } else {
                    self.look_again(now, w);
                }
            }
            Asked::Masters => {
                let hosts = outcome.map_err(drop).and_then(|r| r.decode::<Vec<HostBrief>>().map_err(drop));
                let done = hosts.unwrap_or_default().into_iter().filter(|h| {
                    matches!(h.role.as_deref(), Some("master" | "arbiter")) && h.stage() == Some(HostStage::Done)
                });
                let needed = w.clusters[installer.cluster].plan.control_plane_count.min(2) as usize;
                match done.count() >= needed {
                    true => self.installer_next_line(now, w),
                    false => self.look_again(now, w),
                }
            }
            Asked::Nodes => {
                let hosts = outcome.map_err(drop).and_then(|r| r.decode::<Vec<HostBrief>>().map_err(drop));
                self.tell_nodes(now, w, &hosts.unwrap_or_default());
            }
        }
        if matches!(asked, Asked::Nodes | Asked::Told) {
            self.nodes_were_told(w, false);
        }
    }

    fn fail(&mut self, now: Timestamp, w: &mut World, text: &str) {
        if let Some(installer) = self.installer.as_mut() {
            installer.dead = true;
            installer.token += 1;
        }
        w.host_did(now, self.own_id, "installer-failed");
        if w.has_real_hands() {
            self.work(w, Work::Failed(text.to_owned()));
        }
        self.tell_stage(now, w, Asked::Told, HostStage::Failed, text);
    }

    // --- writing the image -----------------------------------------------------------------------------------------

    fn start_writing(&mut self, now: Timestamp, w: &mut World) {
        self.disk_boots = false;
        if w.has_real_hands() {
            if let Some(i) = self.installer.as_mut() {
                let stage = HostStage::WritingImageToDisk;
                i.writing = Some(Writing { stage, began: now, takes: Duration::ZERO, done: false });
            }
            return self.give_job(w, Job::WriteImage);
        }
        if let Some((cluster, _)) = self.member_of {
            let position = self.position as usize;
            w.plane(now, cluster, |p| {
                p.forget(position);
                Vec::new()
            });
        }
        let takes = w.config.timing.write_image.at(self.durations.unit());
        self.start_telling(now, w, HostStage::WritingImageToDisk, takes);
    }

    /// Something is written to the disk for so long; its percentages are told.
    fn start_telling(&mut self, now: Timestamp, w: &mut World, stage: HostStage, takes: Duration) {
        if let Some(installer) = self.installer.as_mut() {
            installer.writing = Some(Writing { stage, began: now, takes, done: false });
        }
        self.next_percentage(now, w, 0);
    }

    /// Sets the timer of the next percentage after `percent`.
    fn next_percentage(&mut self, now: Timestamp, w: &mut World, percent: u32) {
        let step = u32::try_from(w.config.timing.write_image_report_step).unwrap_or(5).clamp(1, 100);
        let next = (percent + step).min(100);
        let Some(writing) = self.installer.as_ref().and_then(|i| i.writing) else { return };
        let at = writing.began + writing.takes * next / 100;
        w.at(at.max(now), self.me(), self.epoch, Timer::Written(next));
    }

    fn percentage_is_out(&self) -> bool {
        self.calls.any(|p| matches!(p, Purpose::Installer(Asked::Percentage)))
    }

    fn written(&mut self, now: Timestamp, w: &mut World, percent: u32) {
        let Some(Writing { stage, .. }) = self.installer.as_ref().filter(|i| !i.dead).and_then(|i| i.writing) else {
            return;
        };
        let broken = |fault: &HostFault| matches!(fault, HostFault::DiskFailsAt(at) if percent >= *at);
        if self.is_active(now, w, broken, "its disk failed") {
            let what = if stage == HostStage::WritingImageToDisk { "write image" } else { "copy registry data" };
            let text = format!("failed to {what} to disk: write error after {percent}%: Input/output error");
            return self.fail(now, w, &text);
        }
        if percent < 100 {
            // One report at a time: while one is on its way the writing goes on and the next one says more.
            if !self.percentage_is_out() {
                self.tell_stage(now, w, Asked::Percentage, stage, &format!("{percent}%"));
            }
            return self.next_percentage(now, w, percent);
        }
        if let Some(writing) = self.installer.as_mut().and_then(|i| i.writing.as_mut()) {
            writing.done = true;
        }
        self.disk_boots = true;
        if !self.percentage_is_out() {
            self.finish_writing(now, w);
        }
    }

    /// The last report; the next line is done when it is answered.
    fn finish_writing(&mut self, now: Timestamp, w: &mut World) {
        let Some(Writing { stage, .. }) = self.installer.as_mut().and_then(|i| i.writing.take()) else { return };
        self.tell_stage(now, w, Asked::Step, stage, "100%");
    }

    // --- real hands ------------------------------------------------------------------------------------------------

    fn work(&self, w: &mut World, work: Work) {
        w.work.push((self.position as usize, work));
    }

    /// A step was run by real hands; `false` when nobody waits for it any more.
    pub(crate) fn step_ran(&mut self, now: Timestamp, w: &mut World, serial: u32, ran: Ran) -> bool {
        let Some(at) = self.steps.iter().position(|s| s.serial == serial) else { return false };
        let effect = self.steps[at].kind.map_or(Effect::None, |k| STEPS[k].effect);
        if effect == Effect::GatherLogs
            && ran.answer.exit_code == 0
            && let Some(cluster) = logs_cluster(&self.steps[at])
        {
            self.send_archive(now, w, cluster, LogsFor::Step(serial), &ran.archive);
            return true;
        }
        let running = self.take_step(at);
        self.finish_step(now, w, running, ran.answer, effect);
        true
    }

    /// The installer starts, in whatever program this is.
    pub(crate) fn begin_install(
        &mut self,
        now: Timestamp,
        w: &mut World,
        request: &InstallCmdRequest,
    ) -> Result<(), String> {
        if self.installer.is_some() {
            return Err("the installer runs already".into());
        }
        self.take_up(self.installer_for(w, request)?);
        w.host_did(now, self.plan.host_id, "installer-started");
        self.installer_goes_on(now, w);
        Ok(())
    }

    fn give_job(&mut self, w: &mut World, job: Job) {
        let token = self.installer_token();
        if let Some(installer) = self.installer.as_mut() {
            installer.job = Some(job);
        }
        self.work(w, Work::Job { token, job });
    }

    fn has_token(&self, token: u32) -> bool {
        self.installer.as_ref().is_some_and(|i| i.token == token && !i.dead)
    }

    /// A job was done by real hands.
    pub(crate) fn job_done(&mut self, now: Timestamp, w: &mut World, token: u32, result: Result<Vec<u8>, String>) {
        if !self.has_token(token) {
            return;
        }
        let Some(installer) = self.installer.as_mut() else { return };
        let cluster = installer.cluster_id;
        match (result, installer.job.take()) {
            (_, None) => {}
            (Err(problem), _) => self.fail(now, w, &problem),
            (Ok(archive), Some(Job::GatherLogs)) => {
                self.send_archive(now, w, cluster, LogsFor::Installer, &archive);
            }
            (Ok(_), Some(Job::WriteImage)) => {
                if let Some(writing) = installer.writing.as_mut() {
                    writing.done = true;
                }
                self.disk_boots = true;
                if !self.percentage_is_out() {
                    self.finish_writing(now, w);
                }
            }
            (Ok(_), Some(_)) => self.installer_goes_on(now, w),
        }
    }

    /// So much of the image was written.
    pub(crate) fn job_progress(&mut self, now: Timestamp, w: &mut World, token: u32, percent: u32) {
        let writing = self.installer.as_ref().is_some_and(|i| i.writing.is_some());
        // One report at a time, and 100 % is told when the whole image is there.
        if self.has_token(token) && writing && percent < 100 && !self.percentage_is_out() {
            self.tell_stage(now, w, Asked::Percentage, HostStage::WritingImageToDisk, &format!("{percent}%"));
        }
    }

    // --- the bootstrap reports other hosts -------------------------------------------------------------------------

    fn report_nodes_again(&mut self, now: Timestamp, w: &mut World) {
        if self.installer.as_ref().is_some_and(|i| !i.dead) && self.agent != Agent::Leaving {
            self.report_nodes(now, w);
            let next = now + w.config.timing.mcs_log_poll;
            if let Some(cluster) = self.installer.as_ref().map(|i| i.cluster) {
                // Twice as long as it takes, for a machine that is busy.
                let until = next + w.config.timing.mcs_log_poll;
                w.clusters[cluster].plane.log_is_followed(LogReader::Installer, until);
            }
            w.at(next, self.me(), self.epoch, Timer::Nodes);
        }
    }

    /// What the log says of nodes was told: nothing of it is on its way any more, or the service does not listen.
    fn nodes_were_told(&self, w: &mut World, in_vain: bool) {
        let asking = self.calls.any(|p| matches!(p, Purpose::Installer(Asked::Nodes | Asked::Told)));
        let Some(installer) = self.installer.as_ref().filter(|_| asking == in_vain) else { return };
        let plane = &mut w.clusters[installer.cluster].plane;
        if plane.bootstrap() == Some(self.position as usize) {
            plane.log_was_told(LogReader::Installer);
        }
    }

    /// Nodes of which the service should hear: (position, fetched its ignition, is ready), each only what is new.
    fn unreported(&self, w: &World) -> Vec<(usize, bool, bool)> {
        let Some(installer) = &self.installer else { return Vec::new() };
        let nodes = w.clusters[installer.cluster].plane.nodes().iter();
        nodes
            .map(|(p, n)| {
                let fetched = n.ignition_fetched.is_some() && !installer.reported_ignition.contains(p);
                let ready =
                    n.state == NodeState::Ready && n.role != NodeRole::Worker && !installer.reported_joined.contains(p);
                (*p, fetched, ready)
            })
            .filter(|(_, fetched, ready)| *fetched || *ready)
            .collect()
    }

    fn report_nodes(&mut self, now: Timestamp, w: &mut World) {
        // Also while a report is on its way: one that is tried again must not come after a later one.
        let asking = self.calls.any(|p| matches!(p, Purpose::Installer(Asked::Nodes | Asked::Told)));
        let Some(installer) = self.installer.as_ref().filter(|_| !asking) else { return };
        let id = installer.cluster_id;
        w.clusters[installer.cluster].plane.log_is_read(LogReader::Installer);
        match self.unreported(w).is_empty() {
            true => self.nodes_were_told(w, false),
            false => self.ask(now, w, Asked::Nodes, ops::list_cluster_hosts(id).request),
        }
    }

    fn tell_nodes(&mut self, now: Timestamp, w: &mut World, hosts: &[HostBrief]) {
        for (position, fetched, ready) in self.unreported(w) {
            let Some(ids) = w.directory.get(position).copied() else { continue };
            let Some(host) = hosts.iter().find(|h| h.id == ids.host) else { continue };
            let Some(stage) = host.stage().filter(|s| ON_ITS_WAY.contains(s)) else { continue };
            let worker = host.role.as_deref() == Some("worker");
            let to = match (ready, fetched, worker) {
                (true, _, _) => HostStage::Joined,
                (_, true, true) if stage == HostStage::Rebooting => HostStage::WaitingForIgnition,
                (_, true, false) if stage == HostStage::Rebooting => HostStage::Configuring,
                _ => continue,
            };
            if let Some(installer) = self.installer.as_mut() {
                installer.reported_ignition.insert(position);
                if ready {
                    installer.reported_joined.insert(position);
                }
            }
            let infra_env = host.infra_env_id.unwrap_or(ids.infra_env);
            let progress = HostProgress { current_stage: Some(to), progress_info: Some(String::new()) };
            let request = ops::update_host_progress(infra_env, ids.host, &progress).request;
            self.ask(now, w, Asked::Told, request);
        }
    }
}

/// What is wrong with the way in which a host tells its inventory.
fn garble(site: &Site<'_>, answer: &mut Answer) {
    let garbled = site.active(
        |fault| if let HostFault::Inventory(how) = fault { Some(*how) } else { None },
        "it sent a wrong inventory",
    );
    match garbled {
        None => {}
        Some(Garble::Malformed) => answer.output = "inventory of the machine: not available".to_owned(),
        Some(Garble::Truncated) => {
            // Everything in it is ASCII; a cut inside of a character would be no text at all.
            let mut half = answer.output.len() / 2;
            while !answer.output.is_char_boundary(half) {
                half -= 1;
            }
            answer.output.truncate(half);
        }
        Some(Garble::Huge(bytes)) => {
            let Ok(mut inventory) = serde_json::from_str::<Inventory>(&answer.output) else { return };
            let missing = bytes.saturating_sub(answer.output.len());
            if let Some(cpu) = inventory.cpu.as_mut() {
                cpu.flags.get_or_insert_default().push("x".repeat(missing));
            }
            answer.output = serde_json::to_string(&inventory).unwrap_or_default();
        }
    }
}

/// Factor between two waits of the back-off.
pub const BACKOFF_FACTOR: f64 = 1.5;

/// The cluster that a `logs-gather` step speaks of.
fn logs_cluster(running: &Running) -> Option<Uuid> {
    let request: LogsGatherCmdRequest = serde_json::from_str(running.args.first()?).ok()?;
    Some(request.cluster_id)
}

/// The image of an upgrade that worked.
fn upgraded_to(output: &str) -> Option<String> {
    let response: UpgradeAgentResponse = serde_json::from_str(output).ok()?;
    response.agent_image.filter(|_| response.result.as_deref() == Some("success"))
}
