//! The hosts of a plan: small, because there are many of them. They say what an agent says, and know only what that takes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use vlab_agents::HardwareProfile;
use vlab_agents::profile::HostAddresses;
use vlab_api::http::Request;
use vlab_api::ops;
use vlab_api::types::{HostCreateParams, Step, StepReply};
use vlab_scenario::ReplyCache;

/// An agent answers the same again after so long at the latest.
const CACHE_LIFE: Duration = Duration::from_secs(10 * 60);

/// A host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadHost {
    /// Raised each time it goes away or begins anew: what was under way is void.
    pub(crate) epoch: u32,
    /// It asks for instructions.
    pub(crate) polls: bool,
    /// Requests of it that are under way.
    pub(crate) waiting: u32,
    /// When its inventory was accepted last, and which one it was.
    inventory: Option<(u64, Duration)>,
}

/// What all hosts share.
pub(crate) struct Population {
    pub(crate) seed: u64,
    pub(crate) infra_envs: Vec<Uuid>,
    pub(crate) profiles: Vec<Arc<HardwareProfile>>,
    pub(crate) reply_cache: ReplyCache,
}

impl Population {
    pub(crate) fn id(&self, host: u32) -> Uuid {
        uuid::Builder::from_random_bytes((u128::from(self.seed) << 64 | u128::from(host) << 1 | 1).to_be_bytes())
            .into_uuid()
    }

    fn infra_env(&self, host: u32) -> Uuid {
        self.infra_envs[host as usize % self.infra_envs.len().max(1)]
    }

    pub(crate) fn register(&self, host: u32) -> Request {
        let params = HostCreateParams { host_id: self.id(host), discovery_agent_version: Some("vlab-load".to_owned()) };
        ops::register_host(self.infra_env(host), &params).request
    }

    pub(crate) fn poll(&self, host: u32, clock: i64) -> Request {
        ops::get_next_steps(self.infra_env(host), self.id(host), clock).request
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

    /// What the host answers to the steps that it is given; those that it does not know are counted.
    pub(crate) fn answers(
        &self,
        (index, host): (u32, &mut LoadHost),
        now: Duration,
        steps: Vec<Step>,
        left: &mut BTreeMap<String, u64>,
    ) -> Vec<Request> {
        let mut answers = Vec::new();
        for step in steps {
            let kind = step.step_type.unwrap_or_default();
            if kind != "inventory" {
                *left.entry(kind).or_default() += 1;
                continue;
            }
            let output = self.inventory(index);
            let mut hasher = DefaultHasher::new();
            output.hash(&mut hasher);
            let hash = hasher.finish();
            let known = host.inventory.is_some_and(|(known, at)| known == hash && now.saturating_sub(at) < CACHE_LIFE);
            if known && self.reply_cache == ReplyCache::Real {
                continue;
            }
            host.inventory = Some((hash, now));
            let reply = StepReply {
                step_type: Some(kind),
                step_id: step.step_id,
                exit_code: None,
                output: Some(output),
                error: None,
            };
            answers.push(ops::post_step_reply(self.infra_env(index), self.id(index), &reply).request);
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
