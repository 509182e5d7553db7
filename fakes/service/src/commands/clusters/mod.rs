//! Clusters: creating, changing, deleting, and the rules of their platform and networks.

mod create;
mod networks;
mod olm;
mod platform;
mod update;

use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, ClusterValidationId, HostValidationId, IgnoredValidations, Severity};
use vlab_model::validation;

pub(crate) use create::{create, create_disconnected, import};
pub(crate) use olm::{built as built_operators, manifests as operator_manifests, names as operator_names};
pub(crate) use platform::{check_vip_allocation, is_oci};
pub(crate) use update::update;

use super::binding;
use crate::Core;
use crate::refusal::Refusal;
use crate::rows::ClusterRow;

/// A cluster, or the refusal of what only asks about it.
pub(crate) fn find(core: &Core, id: Uuid) -> Result<Arc<ClusterRow>, Refusal> {
    core.state.cluster(id).cloned().ok_or_else(Refusal::no_record)
}

/// There is no such cluster, for what changes it.
pub(crate) fn missing(id: Uuid) -> Refusal {
    Refusal::not_found(format!("Failed to get cluster {id}: record not found"))
}

/// A cluster, or the refusal of what changes it.
pub(crate) fn find_to_change(core: &Core, id: Uuid) -> Result<Arc<ClusterRow>, Refusal> {
    core.state.cluster(id).cloned().ok_or_else(|| missing(id))
}

/// Removes a cluster with its files and the hosts of its infra-envs. Hosts of the pool go back there.
pub(crate) fn delete(core: &mut Core, now: Timestamp, id: Uuid) -> Result<(), Refusal> {
    let row = find_to_change(core, id)?;
    if row.cluster().status == ClusterStatus::Installing {
        return Err(Refusal::conflict(format!(
            "cluster {id} can not be removed while being installed, wait for the installation to timeout or reset the installation"
        )));
    }
    for key in core.state.host_keys_of_cluster(id) {
        let is_own = core.state.infra_env(key.0).is_none_or(|row| row.infra_env.cluster_id == Some(id));
        if !is_own {
            binding::take_out(core, now, key).map_err(|refusal| Refusal::internal(refusal.text))?;
            continue;
        }
        let text = format!("Host {}: deregistered", core.host_name(key));
        core.host_event(now, key, "host_deregistered", Severity::Info, text);
        core.state.delete_host(key);
    }
    let bound: Vec<Uuid> =
        core.state.infra_envs().iter().filter(|r| r.infra_env.cluster_id == Some(id)).map(|r| r.infra_env.id).collect();
    for infra_env in bound {
        // One with the cluster's own id lives and dies with it; others lose the binding.
        if infra_env == id {
            core.state.delete_infra_env(infra_env);
        } else {
            core.state.edit_infra_env(infra_env, now, |row| row.infra_env.cluster_id = None);
        }
    }
    let keys: Vec<String> = core.state.files_under(&format!("{id}/")).map(|(k, _)| k.clone()).collect();
    for key in keys {
        core.state.delete_file(&key);
    }
    core.cluster_event(now, id, "cluster_deregistered", Severity::Info, "Deregistered cluster".into());
    core.state.delete_cluster(id);
    Ok(())
}

/// Sets which validations are not to stop an installation.
pub(crate) fn set_ignored_validations(
    core: &mut Core,
    now: Timestamp,
    id: Uuid,
    params: &IgnoredValidations,
) -> Result<(), Refusal> {
    find(core, id)?;
    let parse = |text: &Option<String>| -> Result<Vec<String>, Refusal> {
        let Some(text) = text.as_deref().filter(|t| !t.is_empty()) else { return Ok(Vec::new()) };
        serde_json::from_str(text)
            .map_err(|e| Refusal::invalid(format!("Unable to unmarshal the ignored validations: {e}")))
    };
    let hosts = parse(&params.host_validation_ids)?;
    let clusters = parse(&params.cluster_validation_ids)?;
    for word in hosts.iter().filter(|w| *w != "all") {
        let known: HostValidationId =
            word.parse().map_err(|_| Refusal::invalid(format!("{word} is not a known host validation")))?;
        if !validation::host_spec(known).ignorable {
            return Err(Refusal::invalid(format!("unable to ignore the following host validations ({word})")));
        }
    }
    for word in clusters.iter().filter(|w| *w != "all") {
        let known: ClusterValidationId =
            word.parse().map_err(|_| Refusal::invalid(format!("{word} is not a known cluster validation")))?;
        if !validation::cluster_spec(known).ignorable {
            return Err(Refusal::invalid(format!("unable to ignore the following cluster validations ({word})")));
        }
    }
    core.state.edit_cluster(id, now, |row| {
        row.view.set_ignored_host_validations(hosts);
        row.view.set_ignored_cluster_validations(clusters);
    });
    Ok(())
}

/// Keeps a text for the user interface.
pub(crate) fn set_ui_settings(core: &mut Core, now: Timestamp, id: Uuid, text: &str) -> Result<(), Refusal> {
    find(core, id)?;
    core.state.edit_cluster(id, now, |row| row.private.ui_settings = text.to_owned());
    Ok(())
}
