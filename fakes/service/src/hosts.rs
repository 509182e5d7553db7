//! Hosts as the user sees them: reading, changing, deleting.

use std::collections::BTreeMap;

use serde_json::Value;
use vlab_api::http::Response;
use vlab_api::types::{
    DiskRole, Host, HostIgnitionParams, HostRole, HostStatus, HostUpdateParams, InstallerArgsParams, Severity,
};
use vlab_model::disks;

use crate::answer::{Answer, Fail};
use crate::monitor::in_installation;
use crate::register::{find, set_installation_disk};
use crate::router::Call;
use crate::state::HostKey;

/// What a host's name must look like.
const HOSTNAME: &str = "^[a-z0-9][a-z0-9-]{0,62}(?:[.][a-z0-9-]{1,63})*$";
/// Names that no host may have.
pub(crate) const FORBIDDEN_HOSTNAMES: &[&str] = &[
    "localhost",
    "localhost.localdomain",
    "localhost4",
    "localhost4.localdomain4",
    "localhost6",
    "localhost6.localdomain6",
];

fn key(call: &Call<'_>) -> HostKey {
    (call.ids[0], call.ids[1])
}

/// `GET /v2/infra-envs/{i}/hosts`
pub(crate) fn list(call: &mut Call<'_>) -> Answer {
    let rows = call.core.state.hosts_of_infra_env(call.ids[0]);
    let hosts: Vec<Host> = rows.into_iter().map(|r| call.core.show_host(r)).collect();
    Ok(Response::json(200, &hosts))
}

/// `GET /v2/infra-envs/{i}/hosts/{h}`
pub(crate) fn get(call: &mut Call<'_>) -> Answer {
    let row = find(call.core, key(call))?;
    Ok(Response::json(200, &call.core.show_host(&row)))
}

/// `GET /v2/clusters/{c}/hosts`
pub(crate) fn of_cluster(call: &mut Call<'_>) -> Answer {
    let id = call.ids[0];
    if call.core.state.cluster(id).is_none() {
        return Err(Fail::not_found("record not found"));
    }
    let role = call.query("role").filter(|r| !r.is_empty());
    let status = call.query("status").filter(|s| !s.is_empty());
    let (inventory, connectivity) = (call.query_flag("with-inventory"), call.query_flag("with-connectivity"));
    let mut hosts = Vec::new();
    for row in call.core.state.hosts_of_cluster(id) {
        let effective = row.view.effective_role();
        if role.is_some_and(|r| r != effective.as_str()) || status.is_some_and(|s| s != row.host().status.as_str()) {
            continue;
        }
        let mut host = call.core.show_host(&row);
        if !inventory {
            host.inventory = None;
        }
        if !connectivity {
            host.connectivity = None;
        }
        hosts.push(host);
    }
    Ok(Response::json(200, &hosts))
}

/// `PATCH /v2/infra-envs/{i}/hosts/{h}`
pub(crate) fn update(call: &mut Call<'_>) -> Answer {
    let params: HostUpdateParams = call.body("host-update-params")?;
    let (key, now) = (key(call), call.now);
    let row = find(call.core, key)?;
    let cluster = row.host().cluster_id.and_then(|id| call.core.state.cluster(id)).cloned();
    if let Some(name) = &params.host_name {
        let valid = regex::Regex::new(HOSTNAME).is_ok_and(|r| r.is_match(name));
        if !valid || name.split('.').next().is_some_and(|label| label.len() > 63) {
            return Err(Fail::bad_request(format!(
                "Hostname does not pass required regex validation: {HOSTNAME}. Hostname: {name}"
            )));
        }
        if FORBIDDEN_HOSTNAMES.contains(&name.as_str()) {
            return Err(Fail::bad_request(format!("The host name {name} is forbidden")));
        }
    }
    let role: Option<HostRole> = match params.host_role.as_deref() {
        Some(word) => Some(word.parse().map_err(|e: vlab_api::spec::UnknownWord| Fail::bad_request(e.to_string()))?),
        None => None,
    };
    // What shapes an installation cannot be changed once it runs. The codes differ: so the real service answers.
    if !changeable(row.host().status) {
        let refused = |what: &str| {
            format!(
                "Host is in {} state, {what} can be set only in one of [discovering known disconnected insufficient pending-for-input] states",
                row.host().status
            )
        };
        if role.is_some() {
            return Err(Fail::internal(refused("host role")));
        }
        if params.host_name.is_some() {
            return Err(Fail::conflict(refused("host name")));
        }
        if params.disks_selected_config.is_some() {
            return Err(Fail::conflict(refused("installation disk")));
        }
    }
    if role == Some(HostRole::Arbiter)
        && !(call.core.config.settings.tna_clusters_support
            && cluster.as_ref().is_some_and(|c| c.view.control_plane_count() == 2))
    {
        return Err(Fail::bad_request("the role arbiter needs a cluster with two control plane nodes and an arbiter"));
    }
    let mut disk = None;
    if let Some(chosen) = &params.disks_selected_config {
        let mut install = chosen.iter().filter(|d| d.role == Some(DiskRole::Install));
        let first = install.next();
        if install.next().is_some() {
            return Err(Fail::conflict("duplicate setting of installation path by the user"));
        }
        if first.is_none() && !chosen.is_empty() {
            return Err(Fail::conflict("Requested installation disk is not part of the host's valid disks"));
        }
        if let Some(first) = first {
            let found = row.view.disks().iter().find(|d| disks::identifier(d) == first.id);
            let Some(found) = found else {
                return Err(Fail::conflict("Requested installation disk is not part of the host's valid disks"));
            };
            if found.installation_eligibility.as_ref().is_some_and(|e| e.eligible == Some(false)) {
                return Err(Fail::bad_request(format!("Disk {} cannot be installed to", first.id)));
            }
            disk = Some((first.id.clone(), found.path.clone().unwrap_or_default()));
        }
    }
    if let Some(skips) = &params.disks_skip_formatting {
        for skip in skips {
            if !row.view.disks().iter().any(|d| disks::identifier(d) == skip.disk_id) {
                return Err(Fail::bad_request(format!("Disk identifier {} doesn't match any disk", skip.disk_id)));
            }
        }
    }
    if let Some(bad) = params.node_labels.iter().flatten().find(|l| !is_label_name(&l.key)) {
        return Err(Fail::bad_request(format!(
            "node_labels: Invalid value: {:?}: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            bad.key
        )));
    }
    call.core.state.edit_host(key, now, |row| {
        if let Some(role) = role {
            row.view.host.role = Some(role);
            row.view.host.suggested_role = Some(role);
        }
        if let Some(name) = &params.host_name {
            row.view.host.requested_hostname = Some(name.clone());
        }
        if let Some(skips) = &params.disks_skip_formatting {
            let mut ids: Vec<String> = row.view.skip_formatting().map(str::to_owned).collect();
            for skip in skips {
                ids.retain(|i| i != &skip.disk_id);
                if skip.skip_formatting {
                    ids.push(skip.disk_id.clone());
                }
            }
            row.view.host.skip_formatting_disks = (!ids.is_empty()).then(|| ids.join(","));
        }
        if params.disks_selected_config.is_some() {
            set_installation_disk(row, disk.clone());
        } else if params.disks_skip_formatting.is_some() {
            let same = row.view.host.installation_disk_id.clone().zip(row.view.host.installation_disk_path.clone());
            set_installation_disk(row, same);
        }
        if let Some(pool) = &params.machine_config_pool_name {
            row.view.host.machine_config_pool_name = Some(pool.clone());
        }
        if let Some(token) = &params.ignition_endpoint_token {
            row.view.host.ignition_endpoint_token_set = (!token.is_empty()).then_some(true);
            row.private.ignition_endpoint_token = (!token.is_empty()).then(|| token.clone());
        }
        if let Some(headers) = &params.ignition_endpoint_http_headers {
            row.private.ignition_endpoint_http_headers = serde_json::to_string(headers).ok();
        }
        if let Some(labels) = &params.node_labels {
            let map: BTreeMap<&str, &str> = labels.iter().map(|l| (l.key.as_str(), l.value.as_str())).collect();
            row.view.host.node_labels = serde_json::to_string(&map).ok();
        }
        if let Some(credentials) = &params.fencing_credentials {
            row.view.host.fencing_credentials = serde_json::to_string(credentials).ok();
        }
    });
    match row.host().cluster_id {
        Some(id) => call.core.refresh_interactively(now, id),
        None => call.core.refresh_host(now, key),
    }
    let row = find(call.core, key)?;
    Ok(Response::json(201, &call.core.show_host(&row)))
}

/// Name of a node's label: a word, perhaps after a domain and a slash.
fn is_label_name(key: &str) -> bool {
    let word = key.rsplit('/').next().unwrap_or(key);
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    word.len() <= 63
        && edge(word.chars().next())
        && edge(word.chars().last())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
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

/// `DELETE /v2/infra-envs/{i}/hosts/{h}`
pub(crate) fn delete(call: &mut Call<'_>) -> Answer {
    let key = key(call);
    find(call.core, key)?;
    let text = format!("Host {}: deregistered", call.core.host_name(key));
    call.core.host_event(call.now, key, "host_deregistered", Severity::Info, text);
    call.core.state.delete_host(key);
    Ok(Response::empty(204))
}

/// `PATCH …/actions/reset-validation/{validation_id}`
pub(crate) fn reset_validation(call: &mut Call<'_>) -> Answer {
    let (key, now) = (key(call), call.now);
    let row = find(call.core, key)?;
    if !changeable(row.host().status) && row.host().status != HostStatus::PreparingFailed {
        return Err(Fail::conflict(format!(
            "Cannot reset validation of host {} while it is {}",
            key.1,
            row.host().status
        )));
    }
    match call.word.as_str() {
        "sufficient-installation-disk-speed" => {
            call.core.state.edit_host(key, now, |row| row.view.set_disks_info(BTreeMap::new()));
        }
        "container-images-available" => {
            call.core.state.edit_host(key, now, |row| row.view.set_images_status(BTreeMap::new()));
        }
        other if other.parse::<vlab_api::types::HostValidationId>().is_ok() => {
            return Err(Fail::bad_request(format!("Validation \"{other}\" cannot be reset")));
        }
        other => return Err(Fail::bad_request(format!("Validation \"{other}\" does not exist"))),
    }
    let row = find(call.core, key)?;
    Ok(Response::json(200, &call.core.show_host(&row)))
}

/// `PATCH …/installer-args`
pub(crate) fn installer_args(call: &mut Call<'_>) -> Answer {
    let params: InstallerArgsParams = call.body("installer-args-params")?;
    let (key, now) = (key(call), call.now);
    find(call.core, key)?;
    let args = params.args.unwrap_or_default();
    const KNOWN: &[&str] = &[
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
    if let Some(bad) = args.iter().find(|a| a.starts_with('-') && !KNOWN.contains(&a.split('=').next().unwrap_or(a))) {
        return Err(Fail::bad_request(format!(
            "found unexpected flag {bad} for installer - allowed flags are {KNOWN:?}"
        )));
    }
    let text = serde_json::to_string(&args).ok().filter(|_| !args.is_empty());
    call.core.state.edit_host(key, now, |row| row.view.host.installer_args = text);
    let text = format!("Host {}: custom installer arguments were applied", call.core.host_name(key));
    call.core.host_event(now, key, "host_installer_args_applied", Severity::Info, text);
    let row = find(call.core, key)?;
    Ok(Response::json(201, &call.core.show_host(&row)))
}

/// `PATCH …/ignition`
pub(crate) fn ignition_override(call: &mut Call<'_>) -> Answer {
    let params: HostIgnitionParams = call.body("host-ignition-params")?;
    let (key, now) = (key(call), call.now);
    find(call.core, key)?;
    let config = params.config.filter(|c| !c.is_empty());
    if let Some(config) = &config {
        let parsed: Value =
            crate::check::parse_text(config).map_err(|e| Fail::bad_request(format!("error parsing ignition: {e}")))?;
        let version = parsed.pointer("/ignition/version").and_then(Value::as_str);
        if !version.is_some_and(|v| v.starts_with("3.")) {
            return Err(Fail::bad_request("error parsing ignition: unsupported config version, error report: "));
        }
    }
    call.core.state.edit_host(key, now, |row| row.view.host.ignition_config_overrides = config);
    let text = format!("Host {}: custom discovery ignition config was applied", call.core.host_name(key));
    call.core.host_event(now, key, "host_discovery_ignition_config_applied", Severity::Info, text);
    Ok(Response::empty(201))
}
