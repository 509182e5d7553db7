//! What a service answers to a registration: the program that asks for steps, and what that is to be started with.

use serde::Deserialize;
use uuid::Uuid;

/// The answer to `v2RegisterHost`, as far as an agent reads it.
#[derive(Clone, Debug, Deserialize)]
pub struct Registered {
    next_step_runner_command: Option<RunnerCommand>,
}

#[derive(Clone, Debug, Deserialize)]
struct RunnerCommand {
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    retry_seconds: Option<i64>,
}

/// The program that asks for steps.
#[derive(Clone, Debug, Deserialize)]
pub struct Runner {
    /// Infra-env that it asks for.
    pub infra_env_id: Uuid,
    /// Host that it asks for.
    pub host_id: Uuid,
    /// Image of the agent that the service wants, if it says so.
    #[serde(default)]
    pub agent_version: Option<String>,
    /// Seconds until the agent registers again when the program ends; 0: as it likes.
    #[serde(skip)]
    pub retry_seconds: u64,
}

impl Registered {
    /// The program; `None`: the service named none, or not what it is to be started with.
    pub fn runner(&self) -> Option<Runner> {
        let command = self.next_step_runner_command.as_ref()?;
        let mut runner: Runner = serde_json::from_str(command.args.as_ref()?.first()?).ok()?;
        runner.agent_version = runner.agent_version.filter(|version| !version.is_empty());
        runner.retry_seconds = u64::try_from(command.retry_seconds.unwrap_or(0)).unwrap_or(0);
        Some(runner)
    }
}
