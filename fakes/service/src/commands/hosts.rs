//! What a user does to a host: changing, deleting, resetting a validation, arguments and ignition of its installation.

use std::collections::BTreeMap;

use vlab_api::Timestamp;
use vlab_api::labels::{wrong_with_name, wrong_with_value};
use vlab_api::spec::UnknownWord;
use vlab_api::types::{DiskRole, HostRole, HostStatus, HostUpdateParams, HostValidationId, Severity};
use vlab_model::disks;
use vlab_model::validation::{FORBIDDEN_HOSTNAMES, HOSTNAME_PATTERN};

use super::checks::check_ignition_text;
use super::register::{find, set_installation_disk};
use super::usage::{self, Usage};
use crate::Core;
use crate::alteration::Conduct;
use crate::monitor::in_installation;
use crate::refusal::Refusal;
use crate::rows::{ClusterRow, HostRow};
use crate::state::{HostKey, user_event};

/// Id and path of a disk.
type ChosenDisk = (String, String);

/// Changes a host.
pub(crate) fn update(core: &mut Core, now: Timestamp, key: HostKey, patch: &HostUpdateParams) -> Result<(), Refusal> {
    let row = find(core, key)?;
    let cluster = row.host().cluster_id.and_then(|id| core.state.cluster(id)).cloned();
    if let Some(name) = &patch.host_name {
        check_host_name(name)?;
    }
    let role: Option<HostRole> = match patch.host_role.as_deref() {
        Some(word) => Some(word.parse().map_err(|e: UnknownWord| Refusal::invalid(e.to_string()))?),
        None => None,
    };
    check_changeable(&row, patch, role)?;
    check_arbiter(core, cluster.as_deref(), role)?;
    check_fencing(core, key, patch)?;
    let disk = chosen_disk(&row, patch)?;
    for skip in patch.disks_skip_formatting.iter().flatten() {
        if !row.view.disks().iter().any(|d| disks::identifier(d) == skip.disk_id) {
            return Err(Refusal::invalid(format!("Disk identifier {} doesn't match any disk", skip.disk_id)));
        }
    }
    for label in patch.node_labels.iter().flatten() {
        let name = wrong_with_name(&label.key).into_iter().map(|why| (&label.key, why));
        let value = wrong_with_value(&label.value).into_iter().map(|why| (&label.value, why.to_owned()));
        if let Some((bad, why)) = name.chain(value).next() {
            return Err(Refusal::invalid(format!("node_labels: Invalid value: {bad:?}: {why}")));
        }
    }
    core.state.edit_host(key, now, |row| apply(row, patch, role, disk));
    if let (Some(_), Some(id)) = (&patch.host_name, row.host().cluster_id) {
        usage::note(core, now, Some(id), Usage::hostname);
    }
    match row.host().cluster_id {
        Some(id) => core.refresh_interactively(now, id),
        None => core.refresh_host(now, key),
    }
    Ok(())
}

fn check_host_name(name: &str) -> Result<(), Refusal> {
    let valid = regex::Regex::new(HOSTNAME_PATTERN).is_ok_and(|r| r.is_match(name));
    if !valid || name.split('.').next().is_some_and(|label| label.len() > 63) {
        return Err(Refusal::invalid(format!(
            "Hostname does not pass required regex validation: {HOSTNAME_PATTERN}. Hostname: {name}"
        )));
    }
    if FORBIDDEN_HOSTNAMES.contains(&name) {
        return Err(Refusal::invalid(format!("The host name {name} is forbidden")));
    }
    Ok(())
}

/// What shapes an installation cannot be changed once it runs. The reasons differ: so the real service answers.
fn check_changeable(row: &HostRow, patch: &HostUpdateParams, role: Option<HostRole>) -> Result<(), Refusal> {
    let status = row.host().status;
    if changeable(status) {
        return Ok(());
    }
    let refused = |what: &str| {
        format!(
            "Host is in {status} state, {what} can be set only in one of [discovering known disconnected insufficient pending-for-input] states"
        )
    };
    if role.is_some() {
        return Err(Refusal::internal(refused("host role")));
    }
    if patch.host_name.is_some() {
        return Err(Refusal::conflict(refused("host name")));
    }
    if patch.disks_selected_config.is_some() {
        return Err(Refusal::conflict(refused("installation disk")));
    }
    Ok(())
}

fn check_fencing(core: &Core, key: HostKey, patch: &HostUpdateParams) -> Result<(), Refusal> {
    if patch.fencing_credentials.is_some() && !core.config.settings.tnf_clusters_support {
        return Err(Refusal::invalid(format!(
            "TNF clusters support is disabled, cannot set fencing credentials to host {} in infra-env {}",
            key.1, key.0
        )));
    }
    Ok(())
}

fn check_arbiter(core: &Core, cluster: Option<&ClusterRow>, role: Option<HostRole>) -> Result<(), Refusal> {
    let fits = core.config.settings.tna_clusters_support && cluster.is_some_and(|c| c.view.control_plane_count() == 2);
    if role == Some(HostRole::Arbiter) && !fits {
        return Err(Refusal::invalid("the role arbiter needs a cluster with two control plane nodes and an arbiter"));
    }
    Ok(())
}

/// The disk that the user wants the host to be installed to.
fn chosen_disk(row: &HostRow, patch: &HostUpdateParams) -> Result<Option<ChosenDisk>, Refusal> {
    const NOT_VALID: &str = "Requested installation disk is not part of the host's valid disks";
    let Some(chosen) = &patch.disks_selected_config else { return Ok(None) };
    let mut install = chosen.iter().filter(|d| d.role == Some(DiskRole::Install));
    let first = install.next();
    if install.next().is_some() {
        return Err(Refusal::conflict("duplicate setting of installation path by the user"));
    }
    let Some(first) = first else {
        return if chosen.is_empty() { Ok(None) } else { Err(Refusal::conflict(NOT_VALID)) };
    };
    let found = row.view.disks().iter().find(|d| disks::identifier(d) == first.id);
    let found = found.ok_or_else(|| Refusal::conflict(NOT_VALID))?;
    if found.installation_eligibility.as_ref().is_some_and(|e| e.eligible == Some(false)) {
        return Err(Refusal::invalid(format!("Disk {} cannot be installed to", first.id)));
    }
    Ok(Some((first.id.clone(), disks::full_name(found))))
}

fn apply(row: &mut HostRow, patch: &HostUpdateParams, role: Option<HostRole>, disk: Option<ChosenDisk>) {
    if let Some(role) = role {
        // On day 2 the pool goes with the role, unless the user has named another one.
        let before = row.view.host.role.unwrap_or_default();
        let pool = row.view.host.machine_config_pool_name.as_deref().unwrap_or("");
        if row.view.is_day2() && role != before && (pool.is_empty() || pool == before.as_str()) {
            row.view.host.machine_config_pool_name = Some(role.to_string());
        }
        // A worker is no bootstrap.
        if role == HostRole::Worker && role != before {
            row.view.host.bootstrap = None;
        }
        row.view.host.role = Some(role);
        row.view.host.suggested_role = Some(role);
    }
    if let Some(name) = &patch.host_name {
        row.view.host.requested_hostname = Some(name.clone());
    }
    if let Some(skips) = &patch.disks_skip_formatting {
        let mut ids: Vec<String> = row.view.skip_formatting().map(str::to_owned).collect();
        for skip in skips {
            ids.retain(|i| i != &skip.disk_id);
            if skip.skip_formatting {
                ids.push(skip.disk_id.clone());
            }
        }
        row.view.host.skip_formatting_disks = (!ids.is_empty()).then(|| ids.join(","));
    }
    if patch.disks_selected_config.is_some() {
        set_installation_disk(row, disk);
    } else if patch.disks_skip_formatting.is_some() {
        let same = row.view.host.installation_disk_id.clone().zip(row.view.host.installation_disk_path.clone());
        set_installation_disk(row, same);
    }
    if let Some(pool) = &patch.machine_config_pool_name {
        row.view.host.machine_config_pool_name = Some(pool.clone());
    }
    if let Some(token) = &patch.ignition_endpoint_token {
        row.view.host.ignition_endpoint_token_set = (!token.is_empty()).then_some(true);
        row.private.ignition_endpoint_token = (!token.is_empty()).then(|| token.clone());
    }
    if let Some(headers) = &patch.ignition_endpoint_http_headers {
        row.private.ignition_endpoint_http_headers = serde_json::to_string(headers).ok();
    }
    if let Some(labels) = &patch.node_labels {
        let map: BTreeMap<&str, &str> = labels.iter().map(|l| (l.key.as_str(), l.value.as_str())).collect();
        row.view.host.node_labels = serde_json::to_string(&map).ok();
    }
    if let Some(credentials) = &patch.fencing_credentials {
        row.view.host.fencing_credentials = serde_json::to_string(credentials).ok();
    }
}

/// May the user still change what shapes the installation?
fn changeable(status: HostStatus) -> bool {
    !in_installation(status)
        && !matches!(
            status,
            HostStatus::Installed | HostStatus::AddedToExistingCluster | HostStatus::Error | HostStatus::Cancelled
        )
        || status == HostStatus::PreparingFailed
}

/// Removes a host.
pub(crate) fn delete(core: &mut Core, now: Timestamp, key: HostKey) -> Result<(), Refusal> {
    find(core, key)?;
    let text = format!("Host {}: deregistered", core.host_name(key));
    core.host_event(now, key, "host_deregistered", Severity::Info, text);
    if !core.does(Conduct::HostNotDeleted) {
        core.state.delete_host(key);
    }
    Ok(())
}

/// Forgets what a validation of the host was decided by, so that it is measured again.
pub(crate) fn reset_validation(core: &mut Core, now: Timestamp, key: HostKey, validation: &str) -> Result<(), Refusal> {
    let row = find(core, key)?;
    if !changeable(row.host().status) && row.host().status != HostStatus::PreparingFailed {
        return Err(Refusal::conflict(format!(
            "Cannot reset validation of host {} while it is {}",
            key.1,
            row.host().status
        )));
    }
    match validation {
        "sufficient-installation-disk-speed" => {
            core.state.edit_host(key, now, |row| row.view.set_disks_info(BTreeMap::new()));
        }
        "container-images-available" => {
            core.state.edit_host(key, now, |row| row.view.set_images_status(BTreeMap::new()));
        }
        other if other.parse::<HostValidationId>().is_ok() => {
            return Err(Refusal::invalid(format!("Validation \"{other}\" cannot be reset")));
        }
        other => return Err(Refusal::invalid(format!("Validation \"{other}\" does not exist"))),
    }
    Ok(())
}

/// Options of coreos-installer that a user may give.
const INSTALLER_OPTIONS: &[&str] = &[
    "--append-karg",
    "--delete-karg",
    "-n",
    "--copy-network",
    "--network-dir",
    "--save-partlabel",
    "--save-partindex",
    "--image-url",
    "--image-file",
    "--firstboot-args",
    "--platform",
    "--console",
    "--preserve-on-error",
    "--insecure",
    "--insecure-ignition",
    "--offline",
    "--secex-ignition",
    "--stream",
    "--architecture",
    "--ignition-url",
    "--ignition-hash",
    "--fetch-retries",
];

/// Sets what coreos-installer gets beside the service's own arguments.
pub(crate) fn set_installer_args(
    core: &mut Core,
    now: Timestamp,
    key: HostKey,
    args: &[String],
) -> Result<(), Refusal> {
    find(core, key)?;
    let unknown = |a: &&String| a.starts_with('-') && !INSTALLER_OPTIONS.contains(&a.split('=').next().unwrap_or(a));
    if let Some(bad) = args.iter().find(unknown) {
        return Err(Refusal::invalid(format!(
            "found unexpected flag {bad} for installer - allowed flags are {INSTALLER_OPTIONS:?}"
        )));
    }
    // Who takes them back has none, and not as many as nobody ever set.
    let text = serde_json::to_string(&args).ok();
    core.state.edit_host(key, now, |row| row.view.host.installer_args = text);
    let text = format!("Host {}: custom installer arguments were applied", core.host_name(key));
    core.host_event(now, key, "host_installer_args_applied", Severity::Info, text);
    Ok(())
}

/// Sets what is merged into the host's ignition; `None` takes it away.
pub(crate) fn set_ignition_override(
    core: &mut Core,
    now: Timestamp,
    key: HostKey,
    config: Option<String>,
) -> Result<(), Refusal> {
    let cluster = find(core, key)?.host().cluster_id;
    if let Some(config) = &config {
        check_ignition_text(config)?;
    }
    let used = config.as_ref().is_some_and(|c| !c.is_empty());
    usage::note(core, now, cluster, |usage| usage.ignition("host", used));
    core.state.edit_host(key, now, |row| row.view.host.ignition_config_overrides = config);
    let text = format!("Host {}: custom discovery ignition config was applied", core.host_name(key));
    // Its cluster's list does not tell of it.
    core.host_event_of(key, None, user_event(now, "host_discovery_ignition_config_applied", Severity::Info, text));
    Ok(())
}
