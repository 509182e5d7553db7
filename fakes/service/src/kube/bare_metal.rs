//! BareMetalHost, without Ironic's part: a host gets the image of its InfraEnv, and its Agent what the annotations say. The contract is
//! `image`, `online` and annotations.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use vlab_api::Timestamp;

use super::client::Kind;
use super::object::{BMH_LABEL, INFRA_ENV_LABEL, annotation, is_deleted, label, name, namespace, text};
use super::pass::{Pass, Stop, merge, put};

const FINALIZER: &str = "bmac.agent-install.openshift.io/deprovision";
const DETACHED: &str = "baremetalhost.metal3.io/detached";
const INSPECT: &str = "inspect.metal3.io";
/// So long an image must not have changed before hosts get it.
const COOLS_DOWN: Duration = Duration::from_secs(60);

pub(super) fn pass(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(bmh) = pass.get(Kind::BareMetalHost, key) else { return Ok(()) };
    if is_deleted(&bmh) {
        return pass.drop_finalizer(&bmh, FINALIZER);
    }
    let of = label(&bmh, INFRA_ENV_LABEL);
    if of.is_empty() {
        return Ok(());
    }
    pass.finalizer(&bmh, FINALIZER)?;
    let Some(infra_env) = pass.get(Kind::InfraEnv, &format!("{}/{of}", namespace(&bmh))) else { return Ok(()) };
    let agent = agent_of(pass, &bmh);
    if let Some(agent) = &agent {
        tell_agent(&bmh, agent)?;
        detach(&bmh, agent)?;
    }
    attach(pass, &bmh, &infra_env)
}

/// Gives the host the image, once that has settled.
fn attach(pass: &Pass<'_>, bmh: &Value, infra_env: &Value) -> Result<(), Stop> {
    let url = text(&infra_env["status"]["isoDownloadURL"]);
    let created: Option<Timestamp> = text(&infra_env["status"]["createdTime"]).parse().ok();
    let Some(created) = created.filter(|_| !url.is_empty()) else { return Ok(()) };
    if !annotation(bmh, DETACHED).is_empty() {
        return Ok(());
    }
    let state = text(&bmh["status"]["provisioning"]["state"]);
    let mut changed = bmh.clone();
    changed["metadata"]["annotations"][INSPECT] = json!("disabled");
    changed["spec"]["automatedCleaningMode"] = json!("disabled");
    if changed != *bmh {
        return Err(put(&changed));
    }
    let cool = created + COOLS_DOWN.div_f64(pass.config.pace.max(0.001));
    if cool > pass.now {
        let left = cool.since(pass.now);
        return Err(Stop::Later(left.mul_f64(pass.config.pace)));
    }
    if !matches!(state, "ready" | "available" | "provisioned" | "provisioning")
        || text(&bmh["spec"]["image"]["url"]) == url
    {
        return Ok(());
    }
    if matches!(state, "provisioned" | "provisioning") {
        // It has booted from the other one; nothing is done to it under its feet.
        return Ok(());
    }
    changed["spec"]["image"] = json!({ "url": url, "format": "live-iso" });
    changed["spec"]["online"] = json!(true);
    Err(put(&changed))
}

/// The newest Agent of the InfraEnv that has the host's MAC.
fn agent_of(pass: &Pass<'_>, bmh: &Value) -> Option<Arc<Value>> {
    let mac = text(&bmh["spec"]["bootMACAddress"]).to_lowercase();
    let has = |agent: &Value| {
        let interfaces = agent["status"]["inventory"]["interfaces"].as_array();
        interfaces.into_iter().flatten().any(|i| text(&i["macAddress"]).to_lowercase() == mac)
    };
    pass.client
        .all_in(Kind::Agent, namespace(bmh))
        .filter(|(_, agent)| !is_deleted(agent) && label(agent, INFRA_ENV_LABEL) == label(bmh, INFRA_ENV_LABEL))
        .filter(|(_, agent)| has(agent))
        .max_by_key(|(_, agent)| text(&agent["metadata"]["creationTimestamp"]).to_owned())
        .map(|(_, agent)| agent.clone())
}

/// What annotations of the BareMetalHost say about the Agent: annotation, and member of the Agent's spec.
const COPIED: &[(&str, &str)] = &[
    ("bmac.agent-install.openshift.io/role", "role"),
    ("bmac.agent-install.openshift.io/hostname", "hostname"),
    ("bmac.agent-install.openshift.io/machine-config-pool", "machineConfigPool"),
    ("bmac.agent-install.openshift.io/installer-args", "installerArgs"),
    ("bmac.agent-install.openshift.io/ignition-config-overrides", "ignitionConfigOverrides"),
];

/// Approves the Agent and tells it what the BareMetalHost says, in one write.
fn tell_agent(bmh: &Value, agent: &Value) -> Result<(), Stop> {
    let mut spec = Map::new();
    let mut labels = Map::new();
    if agent["spec"]["approved"] != true {
        spec.insert("approved".into(), json!(true));
    }
    for (from, to) in COPIED {
        let said = annotation(bmh, from);
        if !said.is_empty() && text(&agent["spec"][*to]) != said {
            spec.insert((*to).to_owned(), json!(said));
        }
    }
    if let Some(said) = bmh["metadata"]["annotations"]["bmac.agent-install.openshift.io/cluster-reference"].as_str() {
        let wanted = match said.split_once('/') {
            Some((namespace, name)) => json!({ "namespace": namespace, "name": name }),
            None => Value::Null,
        };
        if agent["spec"]["clusterDeploymentName"] != wanted {
            spec.insert("clusterDeploymentName".into(), wanted);
        }
    }
    if label(agent, BMH_LABEL) != name(bmh) {
        labels.insert(BMH_LABEL.into(), json!(name(bmh)));
    }
    const AGENT_LABELS: &str = "bmac.agent-install.openshift.io.agent-label.";
    const NODE_LABELS: &str = "bmac.agent-install.openshift.io.node-label.";
    let mut node_labels = Map::new();
    for (key, value) in bmh["metadata"]["annotations"].as_object().into_iter().flatten() {
        if let Some(name) = key.strip_prefix(AGENT_LABELS)
            && agent["metadata"]["labels"][name] != *value
        {
            labels.insert(name.to_owned(), value.clone());
        }
        if let Some(name) = key.strip_prefix(NODE_LABELS)
            && agent["spec"]["nodeLabels"][name] != *value
        {
            node_labels.insert(name.to_owned(), value.clone());
        }
    }
    if !node_labels.is_empty() {
        spec.insert("nodeLabels".into(), Value::Object(node_labels));
    }
    if spec.is_empty() && labels.is_empty() {
        return Ok(());
    }
    let version = &agent["metadata"]["resourceVersion"];
    let patch = json!({ "metadata": { "labels": labels, "resourceVersion": version }, "spec": spec });
    Err(merge(agent, "", &patch))
}

/// A host that is being installed, or is, is nothing that metal3 should switch off.
fn detach(bmh: &Value, agent: &Value) -> Result<(), Stop> {
    let stage = text(&agent["status"]["progress"]["currentStage"]);
    let waits = text(&agent["status"]["debugInfo"]["state"]) == "unbinding-pending-user-action";
    let wanted = !waits && matches!(stage, "Failed" | "Rebooting" | "Joined" | "Done");
    let is = !annotation(bmh, DETACHED).is_empty();
    if wanted && !is {
        let mut changed = bmh.clone();
        changed["metadata"]["annotations"][DETACHED] = json!("assisted-service-controller");
        return Err(put(&changed));
    }
    if waits && is {
        // It is to boot from its image again.
        let patch = json!({ "metadata": { "annotations": { DETACHED: null } }, "spec": { "image": null } });
        return Err(merge(bmh, "", &patch));
    }
    Ok(())
}
