//! What a host is told to do: the steps of its status, and the answer to its poll.

mod args;

use serde_json::json;
use vlab_api::Timestamp;
use vlab_api::types::{HostStatus, Severity, Step, StepType, Steps};
use vlab_model::host::plan::{self, Pace, UPGRADES};

use args::Subject;
pub(crate) use args::api_host;

use super::register::find;
use crate::Core;
use crate::alteration::{Alteration, Conduct, Planted, WrongPlan};
use crate::refusal::Refusal;
use crate::state::HostKey;

use StepType::*;

/// A host asks what to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Poll<'a> {
    /// The host's clock, in seconds since 1970.
    pub(crate) timestamp: Option<i64>,
    /// The agent that asks.
    pub(crate) agent: Option<&'a str>,
}

/// Notes that a host polled, and says what it is to do.
pub(crate) fn poll(core: &mut Core, now: Timestamp, key: HostKey, poll: Poll<'_>) -> Result<Steps, Refusal> {
    find(core, key)?;
    if !core.does(Conduct::PollsNotNoted) {
        core.state.heartbeat(key, now, poll.timestamp.filter(|_| !core.does(Conduct::ClocksNotNoted)));
    }
    if let Some(version) = poll.agent
        && core.state.host(key).is_some_and(|r| r.host().discovery_agent_version.as_deref() != Some(version))
    {
        core.state.edit_host(key, now, |row| row.view.host.discovery_agent_version = Some(version.to_owned()));
    }
    let row = find(core, key)?;
    let is_now = row.host().status;
    let status = match core.is_planted(Planted::StaleSteps) {
        true => core.at_last_poll.insert(key, is_now).unwrap_or(is_now),
        false => is_now,
    };
    let mut table = plan::plan(status, row.view.is_day2());
    let wrong = core.wrong_plan(row.view.is_day2(), row.host().status);
    match wrong {
        Some(WrongPlan::OtherPace) => {
            table.pace = if matches!(table.pace, Pace::BackedOff) { Pace::Normal } else { Pace::BackedOff };
        }
        Some(WrongPlan::OtherEnd) => table.exit = !table.exit,
        _ => {}
    }
    let constants = &core.config.settings.constants;
    let seconds = table.pace.seconds(constants);
    let agent = core.config.settings.agent_docker_image.clone();
    let upgrade = core.config.settings.enable_upgrade_agent
        && UPGRADES.contains(&row.host().status)
        && row.host().discovery_agent_version.as_deref() != Some(agent.as_str());
    let mut instructions = Vec::new();
    if upgrade {
        instructions.push(core.step(UpgradeAgent, vec![json!({"agent_image": agent}).to_string()]));
        let what = format!("is told to upgrade its agent to {agent}");
        core.upgrade_event(now, key, "upgrade_agent_started", Severity::Info, what);
    } else {
        let cluster = row.host().cluster_id.and_then(|id| core.state.cluster(id)).cloned();
        let subject = Subject { now, key, row: &row, cluster: cluster.as_deref() };
        let added = match wrong {
            Some(WrongPlan::Adds(step)) => Some(step),
            _ => None,
        };
        for step in table.steps.iter().chain(&added) {
            if wrong == Some(WrongPlan::Lacks(*step)) {
                continue;
            }
            if core.config.settings.disabled_steps.iter().any(|s| s == step.as_str()) {
                continue;
            }
            if let Some(args) = core.step_args(*step, &subject) {
                instructions.push(core.step(*step, args));
            }
        }
    }
    let exit = table.exit && !upgrade;
    Ok(Steps {
        next_instruction_seconds: Some(seconds),
        post_step_action: Some(if exit { "exit" } else { "continue" }.into()),
        instructions: Some(instructions),
    })
}

impl Core {
    /// What is wrong on purpose with what that status asks of a host.
    fn wrong_plan(&self, is_day2: bool, status: HostStatus) -> Option<WrongPlan> {
        // Where the table of day 2 is silent, its hosts have the row of the other one, and what is wrong with it.
        let is_own = plan::is_own(status, is_day2);
        match self.config.alteration {
            Some(Alteration::Plan(of_day2, of, how)) if (of_day2, of) == (is_own, status) => Some(how),
            _ => None,
        }
    }

    fn step(&mut self, kind: StepType, args: Vec<String>) -> Step {
        let id = format!("{kind}-{:08x}", self.state.new_u32());
        let args = self.config.alteration.iter().fold(args, |args, alteration| alteration.arguments(kind, args));
        Step { step_type: Some(kind.as_str().into()), step_id: Some(id), args: Some(args) }
    }

    /// Events about agent upgrades come at most once an hour for each host and name.
    pub(crate) fn upgrade_event(&mut self, now: Timestamp, key: HostKey, name: &str, severity: Severity, what: String) {
        const HOUR_SECS: u64 = 3600;
        let last = self.state.host(key).and_then(|r| r.private.last_upgrade_events.get(name).copied());
        if last.is_some_and(|l| now.since(l).as_secs() < HOUR_SECS) {
            return;
        }
        self.state.edit_host(key, now, |row| {
            row.private.last_upgrade_events.insert(name.to_owned(), now);
        });
        let text = format!("Host {}: {what}", self.host_name(key));
        self.host_event(now, key, name, severity, text);
    }
}
