//! A simulated host: the machine, the agent on it, the installer that the agent starts, and the node that comes back.

mod agent;
mod faults;
mod installer;
mod logs;
mod machine;
mod nodes;
mod real;

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::{Request, TransportError};
use vlab_api::ops;
use vlab_api::types::*;
use vlab_model::history::What;
use vlab_model::settings::{HostTiming, Span};

use crate::alteration::Conduct;
use crate::archive::tar_gz;
use crate::boot::{self, ImageNetwork};
use crate::calls::{AGENT, Calls, HttpResult, INSTALLER, RetryDecision, RetryPolicy};
use crate::cluster::{LogReader, NodeRole, NodeState};
use crate::fault::{ActiveFaults, Garble, HostFault};
use crate::hands::{Ran, Work};
use crate::installer::{Asked, Condition, File, HostBrief, Installer, Job, ON_ITS_WAY, Task, Writing};
use crate::plan::HostPlan;
use crate::profile::HardwareProfile;
use crate::rng::{Dice, Stream};
use crate::steps::{self, Effect, STEPS, Site, StepAnswer};
use crate::world::{Timer, Who, World};

use logs::logs_cluster;

pub use agent::BACKOFF_FACTOR;

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
    /// It polls: from the discovery image, or from the installed system, to give the host back.
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
    /// That runs in the installed system, as a pod of its cluster: when it ends it is started again, and registers nowhere.
    reclaims: bool,
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
            reclaims: false,
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
            Timer::Reboot if w.does(Conduct::NoReboot) => {}
            Timer::Reboot => self.reboot(now, w),
            _ => {}
        }
    }

    pub(crate) fn on_reply(&mut self, now: Timestamp, w: &mut World, tag: u64, outcome: HttpResult) {
        if (tag >> 32) as u32 != self.epoch {
            return;
        }
        let outcome = match self.is_active(now, w, HostFault::takes_offline, "an answer did not reach it") {
            true => Err(TransportError::Lost("the host's network is down".into())),
            false => outcome,
        };
        self.answered(now, w, tag as u32, outcome);
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
        if self.cut_off || self.is_active(now, w, HostFault::takes_offline, "its request did not arrive") {
            let at = now + w.config.timing.request_timeout;
            w.at(at, self.me(), self.epoch, Timer::NoAnswer(call));
        } else {
            w.send(self.connection, u64::from(self.epoch) << 32 | u64::from(call), request);
        }
    }

    fn answered(&mut self, now: Timestamp, w: &mut World, call: u32, outcome: HttpResult) {
        match self.calls.answered(call, outcome, &w.config.timing, &mut self.delays) {
            RetryDecision::Stale => {}
            RetryDecision::Again(wait) => {
                self.nodes_were_told(w, true);
                w.at(now + wait, self.me(), self.epoch, Timer::Again(call));
            }
            RetryDecision::Final(purpose, outcome) => match purpose {
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
}
