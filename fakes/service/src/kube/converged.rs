//! BareMetalHost in the converged flow: metal3 boots the host from its PreprovisioningImage and, once the service wants it, starts the
//! service's agent there. The contract is `customDeploy` and annotations.

use serde_json::{Value, json};

use super::altered::Beside;
use super::bare_metal::{
    BY_US, DETACHED, FINALIZER, HARDWARE, PAUSED, agent_of, pause, restored, unmark, waits_for_boot,
};
use super::object::{annotation, is_deleted, text};
use super::pass::{Pass, Stop, delete, put};
use super::spoke::MADE_THERE;
use super::{drain, preprovisioning};

/// How metal3 calls what it is to do with a host.
pub(super) const METHOD: &str = "start_assisted_install";
/// With the BareMetalHost its Agent and its node go.
const TAKES_AGENT: &str = "bmac.agent-install.openshift.io/remove-agent-and-node-on-delete";
/// Metal3 may go on to manage a host that is installed.
const STAYS_MANAGED: &str = "bmac.agent-install.openshift.io/allow-provisioned-host-management";
/// That it is detached, where it is not to be gone from metal3 before it was cleaned.
const DELETED_LATER: &str = r#"{"deleteAction":"delay"}"#;
/// Metal3 has nothing to do for a host that is to go any more.
const DELETING: &str = "deleting";
/// So often it is looked whether metal3 is done.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(10);

fn has(bmh: &Value, name: &str) -> bool {
    bmh["metadata"]["annotations"].get(name).is_some()
}

/// Writes what is to be otherwise, if anything is.
fn change(bmh: &Value, changed: Value) -> Result<(), Stop> {
    if changed == *bmh { Ok(()) } else { Err(put(changed)) }
}

/// Goes its Agent with that BareMetalHost?
pub(super) fn takes_agent(pass: &Pass<'_>, bmh: &Value) -> bool {
    pass.converged && has(bmh, TAKES_AGENT)
}

/// Lets metal3 have the host, or keeps it away; is the host's Agent the BareMetalHost's to tell?
pub(super) fn share(pass: &Pass<'_>, bmh: &Value, agent: Option<&Value>) -> Result<bool, Stop> {
    let waits = agent.is_some_and(waits_for_boot);
    if waits && !boots_again(bmh)? {
        return Ok(false);
    }
    hands_off(pass, bmh, waits)?;
    restored(bmh)?;
    if has(bmh, DETACHED) || bmh["spec"]["customDeploy"]["method"] == METHOD {
        return Ok(true);
    }
    // Before that metal3 would boot the host from an image of its own.
    if !preprovisioning::of_host(pass, bmh).is_some_and(|image| preprovisioning::is_ready(&image)) {
        return Ok(false);
    }
    let mut changed = bmh.clone();
    changed["spec"]["customDeploy"] = json!({ "method": METHOD });
    Err(put(changed))
}

/// The host has left its cluster: metal3 is to take back what it did and do it anew; is it through with the first?
fn boots_again(bmh: &Value) -> Result<bool, Stop> {
    let state = text(&bmh["status"]["provisioning"]["state"]);
    let mut changed = bmh.clone();
    unmark(&mut changed, &[HARDWARE, MADE_THERE]);
    if has(bmh, DETACHED) {
        unmark(&mut changed, &[DETACHED, PAUSED]);
    }
    if state == "provisioned"
        && let Some(spec) = changed["spec"].as_object_mut()
    {
        spec.remove("customDeploy");
    }
    change(bmh, changed)?;
    Ok(!matches!(state, "provisioned" | "deprovisioning"))
}

/// A host that is provisioned is nothing that metal3 should switch off.
fn hands_off(pass: &Pass<'_>, bmh: &Value, waits: bool) -> Result<(), Stop> {
    if has(bmh, STAYS_MANAGED) && !has(bmh, TAKES_AGENT) {
        let mut changed = bmh.clone();
        unmark(&mut changed, &[DETACHED, PAUSED]);
        return change(bmh, changed);
    }
    if bmh["status"]["provisioning"]["state"] != "provisioned" || pass.is_wrong(Beside::NotDetached) {
        return Ok(());
    }
    let wanted = if has(bmh, TAKES_AGENT) { DELETED_LATER } else { BY_US };
    if !waits && annotation(bmh, DETACHED) != wanted {
        let mut changed = bmh.clone();
        changed["metadata"]["annotations"][DETACHED] = json!(wanted);
        return Err(put(changed));
    }
    pause(bmh)
}

/// It is deleted, and its Agent goes with it: first the node is emptied, then metal3 cleans the host.
pub(super) fn remove(pass: &Pass<'_>, bmh: &Value) -> Result<(), Stop> {
    let mut attached = bmh.clone();
    unmark(&mut attached, &[DETACHED, PAUSED]);
    let held = bmh["metadata"]["finalizers"].as_array().into_iter().flatten().any(|finalizer| finalizer == FINALIZER);
    let Some(agent) = agent_of(pass, bmh).filter(|_| held) else {
        change(bmh, attached)?;
        return pass.drop_finalizer(bmh, FINALIZER);
    };
    if agent["spec"]["clusterDeploymentName"].is_object() {
        if !drain::node(pass, bmh, &agent)? {
            return Ok(());
        }
        attached["spec"]["automatedCleaningMode"] = json!("metadata");
        change(bmh, attached)?;
        if bmh["status"]["provisioning"]["state"] != DELETING {
            return Err(Stop::Later(AGAIN));
        }
    }
    if is_deleted(&agent) { Ok(()) } else { Err(delete(&agent)) }
}
