//! What Hive does on a hub: it says on a ClusterDeployment what became of its installation. A hub that has it does without this.

use serde_json::json;

use super::client::Kind;
use super::conditions::{Condition, merged};
use super::object::{filled, install_of, is_deleted, text, time};
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
