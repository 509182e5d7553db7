//! BareMetalHost, without Ironic's part: a host gets the image of its InfraEnv, and its Agent what the annotations say. The contract is
//! `image`, `online` and annotations; in the converged flow it is that of `converged`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use vlab_api::Timestamp;

use super::altered::Beside;
use super::client::Kind;
use super::object::{
    BACKUP_LABEL, BMH_LABEL, INFRA_ENV_LABEL, alike, annotation, is_deleted, label, name, namespace, text,
};
use super::pass::{Pass, Stop, merge, put};
use super::spoke::MADE_THERE;
use super::{converged, fencing};

pub(super) const FINALIZER: &str = "bmac.agent-install.openshift.io/deprovision";
/// metal3 leaves a machine alone whose BareMetalHost has it.
pub(super) const DETACHED: &str = "baremetalhost.metal3.io/detached";
/// metal3 does nothing to a BareMetalHost that has it.
pub(super) const PAUSED: &str = "baremetalhost.metal3.io/paused";
/// Its status, for the metal3 of another hub.
pub(super) const STATUS: &str = "baremetalhost.metal3.io/status";
pub(super) const BY_US: &str = "assisted-service-controller";
const INSPECT: &str = "inspect.metal3.io";
/// What the host has, in metal3's words.
pub(super) const HARDWARE: &str = "inspect.metal3.io/hardwaredetails";
/// So long an image must not have changed before hosts get it.
const COOLS_DOWN: Duration = Duration::from_secs(60);

pub(super) fn pass(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(bmh) = pass.get(Kind::BareMetalHost, key) else { return Ok(()) };
    let of = label(&bmh, INFRA_ENV_LABEL);
    if of.is_empty() {
        return pass.drop_finalizer(&bmh, FINALIZER);
    }
    if is_deleted(&bmh) {
        return if converged::takes_agent(pass, &bmh) { converged::remove(pass, &bmh) } else { let_go(pass, &bmh) };
    }
    pass.finalizer(&bmh, FINALIZER)?;
    let infra_env = pass.get(Kind::InfraEnv, &format!("{}/{of}", namespace(&bmh)));
    if infra_env.is_some() && label(&bmh, BACKUP_LABEL) != "true" {
        return Err(merge(&bmh, "", &json!({ "metadata": { "labels": { BACKUP_LABEL: "true" } } })));
    }
    let agent = agent_of(pass, &bmh);
    if pass.converged {
        // What the host has, metal3's own agent says.
        return match (converged::share(pass, &bmh, agent.as_deref())?, &agent, &infra_env) {
            (true, Some(agent), Some(infra_env)) => {
                tell_agent(&bmh, agent, infra_env)?;
                fencing::credentials(pass, &bmh, agent)
            }
            _ => Ok(()),
        };
    }
    let Some(infra_env) = infra_env else { return Ok(()) };
    if let Some(agent) = agent.as_ref().filter(|_| !pass.is_wrong(Beside::NotDetached)) {
        detach(&bmh, agent)?;
    }
    restored(&bmh)?;
    // The Agent of a host that has booted from something else is none of its business.
    if attach(pass, &bmh, &infra_env)?
        && let Some(agent) = &agent
    {
        tell_agent(&bmh, agent, &infra_env)?;
        fencing::credentials(pass, &bmh, agent)?;
        tell_metal3(&bmh, agent)?;
    }
    Ok(())
}

/// If it came from another hub, metal3 is to take its status from the annotation.
pub(super) fn restored(bmh: &Value) -> Result<(), Stop> {
    let kept = [PAUSED, STATUS].iter().all(|name| !annotation(bmh, name).is_empty());
    if text(&bmh["status"]["provisioning"]["state"]).is_empty() && kept {
        return Err(merge(bmh, "", &json!({ "metadata": { "annotations": { PAUSED: null } } })));
    }
    Ok(())
}

/// Is the image of that InfraEnv old enough? `Err`: when it will be.
pub(super) fn cools_down(pass: &Pass<'_>, infra_env: &Value) -> Result<(), Stop> {
    let created: Option<Timestamp> = text(&infra_env["status"]["createdTime"]).parse().ok();
    let cool = created.unwrap_or_default() + COOLS_DOWN.div_f64(pass.config.pace.max(0.001));
    if cool <= pass.now || pass.is_wrong(Beside::ImageUnderFeet) {
        return Ok(());
    }
    Err(Stop::Later(cool.since(pass.now).mul_f64(pass.config.pace)))
}

/// In the resource as it is to be, takes annotations away.
pub(super) fn unmark(bmh: &mut Value, names: &[&str]) {
    if let Some(annotations) = bmh["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|name, _| !names.contains(&name.as_str()));
    }
}

/// It is deleted: metal3 is to look at it again, and the service holds it no more. Its Agent stays.
fn let_go(pass: &Pass<'_>, bmh: &Value) -> Result<(), Stop> {
    let mut changed = bmh.clone();
    unmark(&mut changed, &[PAUSED]);
    if let Some(finalizers) = changed["metadata"]["finalizers"].as_array_mut()
        && !pass.keeps_finalizer(bmh)
    {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    if changed == *bmh { Ok(()) } else { Err(put(changed)) }
}

/// Gives the host the image, once that has settled; does it have it?
fn attach(pass: &Pass<'_>, bmh: &Value, infra_env: &Value) -> Result<bool, Stop> {
    let url = text(&infra_env["status"]["isoDownloadURL"]);
    let has_image = !url.is_empty() && !text(&infra_env["status"]["createdTime"]).is_empty();
    if !annotation(bmh, DETACHED).is_empty() {
        return Ok(true);
    }
    let state = text(&bmh["status"]["provisioning"]["state"]);
    let mut changed = bmh.clone();
    changed["metadata"]["annotations"][INSPECT] = json!("disabled");
    changed["spec"]["automatedCleaningMode"] = json!("disabled");
    if changed != *bmh {
        return Err(put(changed));
    }
    if !has_image {
        return Ok(false);
    }
    if text(&bmh["spec"]["image"]["url"]) == url {
        return Ok(true);
    }
    cools_down(pass, infra_env)?;
    // One that has booted from another one: nothing is done to it under its feet.
    if !matches!(state, "ready" | "available") && !pass.is_wrong(Beside::ImageUnderFeet) {
        return Ok(false);
    }
    changed["spec"]["image"] = json!({ "url": url, "format": "live-iso" });
    changed["spec"]["online"] = json!(true);
    Err(put(changed))
}

/// The newest Agent of the InfraEnv that has the host's MAC.
pub(super) fn agent_of(pass: &Pass<'_>, bmh: &Value) -> Option<Arc<Value>> {
    let mac = text(&bmh["spec"]["bootMACAddress"]).to_lowercase();
    let has = |agent: &Value| {
        let interfaces = agent["status"]["inventory"]["interfaces"].as_array();
        interfaces.into_iter().flatten().any(|i| text(&i["macAddress"]).to_lowercase() == mac)
    };
    pass.client
        .all_of(Kind::Agent, &format!("{}/{}", namespace(bmh), label(bmh, INFRA_ENV_LABEL)))
        .filter(|(_, agent)| !is_deleted(agent))
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
fn tell_agent(bmh: &Value, agent: &Value, infra_env: &Value) -> Result<(), Stop> {
    let mut spec = Map::new();
    let mut labels = Map::new();
    if agent["spec"]["approved"] != true {
        spec.insert("approved".into(), json!(true));
    }
    for (from, to) in COPIED {
        // One that says nothing empties what was said before.
        let said = bmh["metadata"]["annotations"][*from].as_str();
        if let Some(said) = said.filter(|said| text(&agent["spec"][*to]) != *said) {
            spec.insert((*to).to_owned(), json!(said));
        }
    }
    let said = bmh["metadata"]["annotations"]["bmac.agent-install.openshift.io/cluster-reference"].as_str();
    // Agents of an InfraEnv that is a cluster's are that cluster's.
    if let Some(said) = said.filter(|_| infra_env["spec"]["clusterRef"].is_null()) {
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
    // In a patch, null takes a label away.
    let mut node_labels: Map<String, Value> = agent["spec"]["nodeLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| (name.clone(), Value::Null))
        .collect();
    for (key, value) in bmh["metadata"]["annotations"].as_object().into_iter().flatten() {
        if let Some(name) = key.strip_prefix(AGENT_LABELS)
            && agent["metadata"]["labels"][name] != *value
        {
            labels.insert(name.to_owned(), value.clone());
        }
        if let Some(name) = key.strip_prefix(NODE_LABELS) {
            node_labels.insert(name.to_owned(), value.clone());
        }
    }
    node_labels.retain(|name, value| agent["spec"]["nodeLabels"][name.as_str()] != *value);
    if let Some(disk) = chosen_disk(bmh, agent)
        && text(&agent["spec"]["installation_disk_id"]) != disk
    {
        spec.insert("installation_disk_id".into(), json!(disk));
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

/// The disk that the hints for the root device choose, of those that can be installed to. Where none meets them it is one that no host
/// has: any other would be a disk that the user did not mean.
fn chosen_disk(bmh: &Value, agent: &Value) -> Option<String> {
    const NO_DISK: &str = "/dev/not-found-by-hints";
    let hints = bmh["spec"]["rootDeviceHints"].as_object()?;
    let disks = agent["status"]["inventory"]["disks"].as_array()?;
    let meets = |disk: &Value| {
        disk["installationEligibility"]["eligible"] == true
            && hints.iter().all(|(hint, wanted)| match hint.as_str() {
                "deviceName" => disk["path"] == *wanted || disk["byPath"] == *wanted,
                "hctl" | "wwn" => disk[hint.as_str()] == *wanted,
                "serialNumber" => disk["serial"] == *wanted,
                "model" | "vendor" => text(&disk[hint.as_str()]).contains(text(wanted)),
                "minSizeGigabytes" => disk["sizeBytes"].as_i64() >= wanted.as_i64().map(|size| size * 1_000_000_000),
                "rotational" => (text(&disk["driveType"]) == "HDD") == (*wanted == true),
                // The real service does not look at the others either.
                _ => true,
            })
    };
    let of_those = || disks.iter().filter(|disk| meets(disk));
    // The paths of a multipath device have its names, too.
    let multipath = of_those().find(|disk| text(&disk["driveType"]).eq_ignore_ascii_case("multipath"));
    Some(multipath.or_else(|| of_those().next()).map_or(NO_DISK, |disk| text(&disk["id"])).to_owned())
}

/// What the host has, in the words of metal3, once.
fn tell_metal3(bmh: &Value, agent: &Value) -> Result<(), Stop> {
    let inventory = &agent["status"]["inventory"];
    let interfaces = inventory["interfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    if interfaces.is_empty() || !annotation(bmh, HARDWARE).is_empty() {
        return Ok(());
    }
    let nic = |interface: &Value, address: &Value| {
        let (ip, _) = text(address).split_once('/').unwrap_or((text(address), ""));
        json!({ "name": interface["name"], "mac": interface["macAddress"], "model": interface["vendor"], "ip": ip,
                "speedGbps": interface["speedMbps"].as_i64().unwrap_or(0) / 1024 })
    };
    let nics: Vec<Value> = interfaces
        .iter()
        .flat_map(|interface| {
            let of = |family: &str| interface[family].as_array().cloned().unwrap_or_default();
            let addresses = of("ipV6Addresses").into_iter().chain(of("ipV4Addresses"));
            addresses.map(|address| nic(interface, &address)).collect::<Vec<_>>()
        })
        .collect();
    let disk = |disk: &Value| {
        let by_path = text(&disk["byPath"]);
        json!({ "name": if by_path.is_empty() { text(&disk["path"]) } else { by_path }, "sizeBytes": disk["sizeBytes"],
                "rotational": text(&disk["driveType"]) == "HDD", "serialNumber": disk["serial"], "vendor": disk["vendor"],
                "model": disk["model"], "wwn": disk["wwn"], "hctl": disk["hctl"] })
    };
    let cpu = &inventory["cpu"];
    let vendor = &inventory["systemVendor"];
    let asked = text(&agent["spec"]["hostname"]);
    let hardware = json!({
        "hostname": if asked.is_empty() { text(&inventory["hostname"]) } else { asked },
        "ramMebibytes": inventory["memory"]["physicalBytes"].as_i64().unwrap_or(0) >> 20,
        "cpu": { "arch": cpu["architecture"], "count": cpu["count"], "model": cpu["modelName"], "flags": cpu["flags"],
                 "clockMegahertz": cpu["clockMegahertz"] },
        "nics": nics,
        "storage": inventory["disks"].as_array().into_iter().flatten().map(disk).collect::<Vec<_>>(),
        "systemVendor": { "manufacturer": vendor["manufacturer"], "productName": vendor["productName"],
                          "serialNumber": vendor["serialNumber"] },
    });
    let said = json!({ "metadata": { "annotations": { HARDWARE: hardware.to_string() } } });
    Err(merge(bmh, "", &said))
}

/// Keeps the status in an annotation and metal3 away, so that the BareMetalHost can be moved to another hub as it is. Not before it is
/// detached: that is to be kept, too.
pub(super) fn pause(bmh: &Value) -> Result<(), Stop> {
    if bmh["status"]["operationalStatus"] != "detached" {
        return Ok(());
    }
    let kept: Option<Value> = serde_json::from_str(annotation(bmh, STATUS)).ok();
    let same = kept.is_some_and(|kept| alike(&kept, &bmh["status"]));
    if same && annotation(bmh, PAUSED) == BY_US {
        return Ok(());
    }
    let mut changed = bmh.clone();
    changed["metadata"]["annotations"][STATUS] = json!(bmh["status"].to_string());
    changed["metadata"]["annotations"][PAUSED] = json!(BY_US);
    Err(put(changed))
}

/// Has the host left its cluster, and must boot from the discovery image?
pub(super) fn waits_for_boot(agent: &Value) -> bool {
    text(&agent["status"]["debugInfo"]["state"]) == "unbinding-pending-user-action"
}

/// A host that is being installed, or is, is nothing that metal3 should switch off.
fn detach(bmh: &Value, agent: &Value) -> Result<(), Stop> {
    let stage = text(&agent["status"]["progress"]["currentStage"]);
    let waits = waits_for_boot(agent);
    let wanted = !waits && matches!(stage, "Failed" | "Rebooting" | "Joined" | "Done");
    let is = !annotation(bmh, DETACHED).is_empty();
    if wanted && !is {
        let mut changed = bmh.clone();
        changed["metadata"]["annotations"][DETACHED] = json!(BY_US);
        return Err(put(changed));
    }
    if wanted {
        pause(bmh)?;
    }
    if waits && is {
        // It is to boot from its image again.
        let patch = json!({ "metadata": { "annotations": { DETACHED: null, PAUSED: null, HARDWARE: null, MADE_THERE: null } },
                            "spec": { "image": null } });
        return Err(merge(bmh, "", &patch));
    }
    Ok(())
}
