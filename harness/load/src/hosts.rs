//! The hosts of a plan: small, because there are many of them. They say what an agent says, and know only what that takes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use vlab_agents::profile::HostAddresses;
use vlab_agents::registration::Registered;
use vlab_agents::steps::{self, StepAnswer};
use vlab_agents::{Fleet, FleetConfig, HardwareProfile, HostPlan};
use vlab_api::Timestamp;
use vlab_api::http::{Request, Response};
use vlab_api::ops;
use vlab_api::types::{HostCreateParams, Step, StepReply};
use vlab_model::settings::HostTiming;
use vlab_scenario::ReplyCache;

use crate::schedule::Seat;

/// The step that all hosts are asked.
const INVENTORY: &str = "inventory";
/// The step by which a service replaces agents that are not the one it wants.
const UPGRADE: &str = "upgrade-agent";
/// An agent answers the same again after so long at the latest.
const CACHE_LIFE: Duration = Duration::from_secs(10 * 60);

/// A host.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadHost {
    /// Raised each time it goes away or begins anew: what was under way is void.
    pub(crate) epoch: u32,
    /// It asks for instructions.
    pub(crate) polls: bool,
    /// Requests of it that are under way.
    pub(crate) waiting: u32,
    /// What it has answered last to steps of each kind. There are many hosts, and most of them are asked for one thing only.
    answered: Vec<Answered>,
}

/// An answer that a host remembers.
#[derive(Clone, Copy, Debug)]
struct Answered {
    /// Position of the type of the step in the agents' table.
    kind: u8,
    hash: u64,
    at: Duration,
}

/// A host of each of these profiles, in their order.
pub(crate) fn alike(seed: u64, profiles: &[Arc<HardwareProfile>]) -> Fleet {
    let plan = |(index, profile): (u32, &Arc<HardwareProfile>)| HostPlan {
        index,
        name: format!("load-{index}"),
        host_id: Uuid::nil(),
        infra_env_id: Uuid::nil(),
        cluster: None,
        profile: profile.clone(),
        addresses: HostAddresses::default(),
        boot: None,
        medium_first: false,
        registry_on_medium: false,
        start_at: Timestamp::default(),
    };
    let hosts = (0..).zip(profiles).map(plan).collect();
    let mut fleet = Fleet::new(FleetConfig::new(seed, HostTiming::default(), ""), Vec::new(), hosts);
    fleet.stand_by();
    fleet
}

/// What a host does after a poll.
#[derive(Default)]
pub(crate) struct Answers {
    /// To be sent.
    pub(crate) requests: Vec<Request>,
    /// Its agent was replaced, and the new one registers.
    pub(crate) agent_is_new: bool,
}

/// What all hosts share.
pub(crate) struct Population {
    pub(crate) seed: u64,
    pub(crate) infra_envs: Vec<Uuid>,
    pub(crate) profiles: Vec<Arc<HardwareProfile>>,
    pub(crate) reply_cache: ReplyCache,
    /// The agent that this service wants, which is that of the discovery images that hosts boot; empty until it has said so.
    pub(crate) agent: String,
    /// So many hosts belong to no cluster; they come first.
    pub(crate) unbound: u32,
    /// One host of each profile, which answers for all unbound ones what does not depend on who they are.
    pub(crate) alike: Fleet,
    /// Where the others are.
    pub(crate) seats: Vec<Seat>,
    /// Those who answer for them, by the number of the settlement.
    pub(crate) fleets: BTreeMap<u32, Fleet>,
}

impl Population {
    /// The plan of a host that belongs to a cluster.
    fn of_cluster(&self, host: u32) -> Option<&HostPlan> {
        let seat = self.seats.get(host.checked_sub(self.unbound)? as usize)?;
        self.fleets.get(&seat.settlement)?.host(seat.position as usize)
    }

    pub(crate) fn id(&self, host: u32) -> Uuid {
        if let Some(plan) = self.of_cluster(host) {
            return plan.host_id;
        }
        uuid::Builder::from_random_bytes((u128::from(self.seed) << 64 | u128::from(host) << 1 | 1).to_be_bytes())
            .into_uuid()
    }

    fn infra_env(&self, host: u32) -> Uuid {
        if let Some(plan) = self.of_cluster(host) {
            return plan.infra_env_id;
        }
        self.infra_envs[host as usize % self.infra_envs.len().max(1)]
    }

    pub(crate) fn register(&self, host: u32) -> Request {
        let params = HostCreateParams {
            host_id: self.id(host),
            discovery_agent_version: Some(self.agent.clone()).filter(|agent| !agent.is_empty()),
        };
        ops::register_host(self.infra_env(host), &params).request
    }

    pub(crate) fn poll(&self, host: u32, clock: i64) -> Request {
        ops::get_next_steps(self.infra_env(host), self.id(host), clock).request
    }

    /// Takes in which agent the service wants, from its answer to a registration.
    pub(crate) fn registered(&mut self, answer: &Response) {
        if self.agent.is_empty() {
            let runner = answer.decode::<Registered>().ok().and_then(|registered| registered.runner());
            self.agent = runner.and_then(|runner| runner.agent_version).unwrap_or_default();
        }
    }

    /// Its hardware, as an agent tells it.
    fn inventory(&self, host: u32) -> String {
        let profile = &self.profiles[host as usize % self.profiles.len().max(1)];
        let [a, b, c, d] = (0x0a40_000a_u32.wrapping_add(host)).to_be_bytes();
        let address = format!("{a}.{b}.{c}.{d}/10").parse().ok();
        let addresses = address.map_or_else(HostAddresses::default, |address| HostAddresses::single(address, None));
        let inventory = profile.instantiate(host, &format!("load-{host}"), &addresses);
        serde_json::to_string(&inventory).unwrap_or_default()
    }

    /// What the host answers to a step; `None`: that is none of what these hosts answer.
    fn answer(&mut self, host: u32, step: &str, args: Vec<String>) -> Option<StepAnswer> {
        let Some(seat) = host.checked_sub(self.unbound).and_then(|n| self.seats.get(n as usize)) else {
            if step == INVENTORY {
                return Some(StepAnswer { output: self.inventory(host), ..StepAnswer::default() });
            }
            let position = host as usize % self.profiles.len().max(1);
            return self.alike.answer(Timestamp::now(), position, step, args);
        };
        let fleet = self.fleets.get_mut(&seat.settlement)?;
        fleet.answer(Timestamp::now(), seat.position as usize, step, args)
    }

    /// What the host answers to the steps that it is given; those that it does not know are counted.
    pub(crate) fn answers(
        &mut self,
        (index, host): (u32, &mut LoadHost),
        now: Duration,
        steps: Vec<Step>,
        left: &mut BTreeMap<String, u64>,
    ) -> Answers {
        let mut answers = Answers::default();
        for step in steps {
            let name = step.step_type.unwrap_or_default();
            let kind = steps::find(&name).and_then(|kind| u8::try_from(kind).ok());
            let remembered = |host: &LoadHost| host.answered.iter().position(|a| Some(a.kind) == kind);
            let fresh = |at: usize, host: &LoadHost| now.saturating_sub(host.answered[at].at) < CACHE_LIFE;
            let cached = self.reply_cache == ReplyCache::Real;
            // Nobody changes its hardware: what it would tell needs not be made to know that it is the same.
            if cached && name == INVENTORY && remembered(host).is_some_and(|at| fresh(at, host)) {
                continue;
            }
            let answer = self.answer(index, &name, step.args.unwrap_or_default());
            let (Some(answer), Some(kind)) = (answer, kind) else {
                *left.entry(name).or_default() += 1;
                continue;
            };
            if name == UPGRADE
                && let Some(image) = steps::upgraded_to(&answer.output)
            {
                self.agent = image;
                answers.agent_is_new = true;
            }
            let mut hasher = DefaultHasher::new();
            answer.output.hash(&mut hasher);
            let own = Answered { kind, hash: hasher.finish(), at: now };
            match remembered(host) {
                Some(at) => {
                    let same = host.answered[at].hash == own.hash && fresh(at, host);
                    if cached && same && answer.exit_code == 0 {
                        continue;
                    }
                    host.answered[at] = own;
                }
                None => {
                    host.answered.reserve_exact(1);
                    host.answered.push(own);
                }
            }
            let reply = StepReply {
                step_type: Some(name),
                step_id: step.step_id,
                exit_code: Some(answer.exit_code).filter(|code| *code != 0),
                output: Some(answer.output),
                error: Some(answer.error).filter(|error| !error.is_empty()),
            };
            answers.requests.push(ops::post_step_reply(self.infra_env(index), self.id(index), &reply).request);
        }
        answers
    }
}

impl LoadHost {
    /// It is away, or begins anew.
    pub(crate) fn begin_anew(&mut self, polls: bool) {
        *self = Self { epoch: self.epoch.wrapping_add(1), polls, ..Self::default() };
    }
}
