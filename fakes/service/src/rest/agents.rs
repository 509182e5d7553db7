//! What agents say over REST: registration, polls, answers to steps, progress.

use serde_json::{Value, json};
use vlab_api::http::Response;
use vlab_api::types::{ClusterFinalizingProgress, HostCreateParams, HostProgress, StepReply};

use super::RestCall;
use super::answer::RestResult;
use crate::commands::register::Registered;
use crate::commands::steps::{self, Poll};
use crate::commands::{progress, register, replies};
use crate::refusal::Refusal;

/// `POST /v2/infra-envs/{i}/hosts`
pub(super) fn register(call: &mut RestCall<'_>) -> RestResult {
    let params: HostCreateParams = call.body("new-host-params")?;
    let infra_env = call.ids[0];
    let Registered { host, initial, agent } = register::register(call.core, call.now, infra_env, &params)?;
    let shown = serde_json::to_value(call.core.show_host(&host));
    let mut answer = shown.map_err(|e| Refusal::internal(e.to_string()))?;
    as_first_shown(&mut answer, initial);
    let runner = json!({"agent_version": agent, "host_id": params.host_id, "infra_env_id": infra_env}).to_string();
    answer["next_step_runner_command"] = json!({ "args": [runner] });
    Ok(Response::json(201, &answer))
}

/// The answer to a registration is not the host as it is stored, but as the agent has told it: times of the record are not set,
/// and of a host that was there before it has no status.
fn as_first_shown(answer: &mut Value, initial: bool) {
    const UNSET: &str = "0001-01-01T00:00:00Z";
    answer["created_at"] = json!(UNSET);
    answer["updated_at"] = json!(UNSET);
    if let Some(members) = answer.as_object_mut() {
        members.remove("progress");
    }
    if !initial {
        answer["status"] = Value::Null;
        answer["status_info"] = Value::Null;
        answer["status_updated_at"] = json!("0001-01-01T00:00:00.000Z");
        if let Some(members) = answer.as_object_mut() {
            for name in ["inventory", "connectivity", "validations_info"] {
                members.remove(name);
            }
        }
    }
}

/// `GET …/instructions`
pub(super) fn instructions(call: &mut RestCall<'_>) -> RestResult {
    let timestamp = call.query("timestamp").and_then(|t| t.parse::<i64>().ok()).filter(|t| *t != 0);
    let agent = call.request.get_header("discovery_agent_version").filter(|v| !v.is_empty());
    let steps = steps::poll(call.core, call.now, call.host, Poll { timestamp, agent })?;
    Ok(Response::object(200, steps))
}

/// `POST …/instructions`
pub(super) fn reply(call: &mut RestCall<'_>) -> RestResult {
    // The body is optional in the schema; without one there is nothing to store.
    let reply: StepReply = if call.request.body.is_empty() { StepReply::default() } else { call.report("reply")? };
    replies::store(call.core, call.now, call.host, &reply)?;
    Ok(Response::empty(204))
}

/// `PUT …/hosts/{h}/progress`
pub(super) fn host_progress(call: &mut RestCall<'_>) -> RestResult {
    let report: HostProgress = call.report("host-progress")?;
    progress::report_host(call.core, call.now, call.host, report)?;
    Ok(Response::empty(200))
}

/// `PUT /v2/clusters/{c}/progress`
pub(super) fn finalizing_progress(call: &mut RestCall<'_>) -> RestResult {
    let params: ClusterFinalizingProgress = call.body("finalizing-progress")?;
    progress::report_finalizing(call.core, call.now, call.ids[0], params.finalizing_stage)?;
    Ok(Response::empty(200))
}
