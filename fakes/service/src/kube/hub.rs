//! What others do on a hub. Hive says on a ClusterDeployment what became of its installation; metal3 provisions BareMetalHosts. A hub that
//! has them does without these.

use serde_json::{Value, json};

use super::bare_metal::{DETACHED, PAUSED, STATUS};
use super::client::Kind;
use super::conditions::{Condition, merged};
use super::object::{annotation, filled, install_of, is_deleted, text, time};
use super::pass::{Pass, Stop, put};

/// Conditions of an AgentClusterInstall, and what they are called on its ClusterDeployment.
const COPIED: &[(&str, &str)] = &[
    ("Failed", "ClusterInstallFailed"),
    ("Completed", "ClusterInstallCompleted"),
    ("Stopped", "ClusterInstallStopped"),
    ("RequirementsMet", "ClusterInstallRequirementsMet"),
];

/// Hive's part.
pub(super) fn hive(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(cd) = pass.get(Kind::ClusterDeployment, key) else { return Ok(()) };
    let Some(aci) = pass.get(Kind::AgentClusterInstall, &install_of(&cd)) else { return Ok(()) };
    if is_deleted(&cd) || is_deleted(&aci) {
        return Ok(());
    }
    let metadata = &aci["spec"]["clusterMetadata"];
    let told = ["infraID", "clusterID"].iter().all(|member| filled(&metadata[*member]).is_some())
        && ["adminKubeconfigSecretRef", "adminPasswordSecretRef"].iter().all(|member| metadata[*member].is_object());
    if told && cd["spec"]["clusterMetadata"] != *metadata {
        let mut changed = (*cd).clone();
        changed["spec"]["clusterMetadata"] = metadata.clone();
        return Err(put(changed));
    }
    let conditions = aci["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|c| c["type"] == kind).cloned().unwrap_or_default();
    let completed = find("Completed")["status"] == "True";
    if completed && told && cd["spec"]["installed"] != true {
        let mut changed = (*cd).clone();
        changed["spec"]["installed"] = json!(true);
        return Err(put(changed));
    }
    let mut wanted = Vec::new();
    for (from, to) in COPIED {
        let is = match text(&find(from)["status"]) {
            "True" => "True",
            "False" => "False",
            _ => "Unknown",
        };
        let reason = filled(&find(from)["reason"]).unwrap_or_else(|| "NotAvailable".to_owned());
        wanted.push(Condition::new(to, is, reason, text(&find(from)["message"])));
    }
    let done = if completed { "True" } else { "False" };
    wanted.push(Condition::new("Provisioned", done, if completed { "Provisioned" } else { "Provisioning" }, ""));
    let mut status = cd["status"].clone();
    status["conditions"] = merged(&cd["status"]["conditions"], &wanted, pass.now, true);
    if status["installStartedTimestamp"].is_null() && find("RequirementsMet")["status"] == "True" {
        status["installStartedTimestamp"] = time(pass.now);
    }
    if status["installedTimestamp"].is_null() && completed {
        status["installedTimestamp"] = time(pass.now);
    }
    pass.status(&cd, status)
}

/// metal3's part: a host that is described gets available, and one that has an image is provisioned with it.
pub(super) fn metal3(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(bmh) = pass.get(Kind::BareMetalHost, key) else { return Ok(()) };
    if is_deleted(&bmh) || !annotation(&bmh, PAUSED).is_empty() {
        return Ok(());
    }
    // One that comes from another hub is as it was there.
    if bmh["status"]["provisioning"].is_null()
        && let Ok(kept) = serde_json::from_str::<Value>(annotation(&bmh, STATUS))
    {
        return pass.status(&bmh, kept);
    }
    // What it has never looked at has no status that could be changed: the kind wants all of it.
    if !bmh["status"]["provisioning"].is_null() && !annotation(&bmh, DETACHED).is_empty() {
        let mut status = bmh["status"].clone();
        status["operationalStatus"] = json!("detached");
        return pass.status(&bmh, status);
    }
    let image = text(&bmh["spec"]["image"]["url"]);
    let online = bmh["spec"]["online"] == true;
    let mut status = bmh["status"].clone();
    let state = if image.is_empty() { "available" } else { "provisioned" };
    status["provisioning"] = json!({ "state": state, "ID": bmh["metadata"]["uid"], "image": bmh["spec"]["image"] });
    status["operationalStatus"] = json!("OK");
    // The kind wants it, though nobody reads it any more.
    status["hardwareProfile"] = json!("unknown");
    status["poweredOn"] = json!(online && !image.is_empty());
    status["errorMessage"] = json!("");
    status["errorCount"] = json!(0);
    pass.status(&bmh, status)
}
