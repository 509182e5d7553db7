//! Agents register; hosts are bound to clusters and unbound from them.

use serde_json::{Value, json};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::Response;
use vlab_api::types::{BindHostParams, Host, HostCreateParams, HostRole, HostStatus, ImageType, Severity};
use vlab_model::host::{EventArgs, HostEvent};
use vlab_model::view::{HostView, Scope};
use vlab_model::{disks, host};

use crate::Core;
use crate::answer::{Answer, Fail};
use crate::monitor::in_installation;
use crate::router::Call;
use crate::rows::{HostPrivate, HostRow};
use crate::show::no_progress;
use crate::state::{HostKey, accepts_hosts, user_event};

/// `POST /v2/infra-envs/{i}/hosts`
pub(crate) fn register(call: &mut Call<'_>) -> Answer {
    let params: HostCreateParams = call.body("new-host-params")?;
    let now = call.now;
    let key: HostKey = (call.ids[0], params.host_id);
    let core = &mut *call.core;
    let infra_env = core.state.infra_env(key.0).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    if infra_env.infra_env.type_ == ImageType::DisconnectedIso {
        return Err(Fail::bad_request("hosts of an infra-env with a disconnected ISO do not register"));
    }
    let refused = |core: &mut Core, fail: Fail| {
        let event = user_event(
            now,
            "host_registration_failed",
            Severity::Error,
            format!("Host {}: registration failed: {}", key.1, fail.reason()),
        );
        core.state.append_event(vlab_api::types::Event {
            infra_env_id: Some(key.0),
            host_id: Some(key.1),
            cluster_id: infra_env.infra_env.cluster_id,
            ..event
        });
        Err(fail)
    };
    let existing = core.state.host(key).cloned();
    let initial = existing.is_none();
    // A host that is known keeps its cluster (it may have been bound by hand); a new one gets its infra-env's.
    let cluster_id = match &existing {
        Some(row) => row.host().cluster_id,
        None => infra_env.infra_env.cluster_id,
    };
    let cluster = cluster_id.and_then(|id| core.state.cluster(id)).cloned();
    if let (true, Some(cluster)) = (initial, &cluster)
        && !accepts_hosts(cluster.cluster().status)
    {
        let reason = format!(
            "Host can register only in one of the following states: [insufficient ready pending-for-input adding-hosts]; cluster {} is {}",
            cluster.cluster().id,
            cluster.cluster().status
        );
        return refused(core, Fail::conflict(reason));
    }
    let row = match existing {
        Some(row) => (*row).clone(),
        None => {
            let day2 = cluster.as_ref().is_some_and(|c| c.view.is_day2());
            let sno = cluster.as_ref().is_some_and(|c| c.view.is_sno()) && !day2;
            let role = match (day2, sno) {
                (true, _) => HostRole::Worker,
                (_, true) => HostRole::Master,
                _ => HostRole::AutoAssign,
            };
            let host = Host {
                kind: if day2 { "AddToExistingClusterHost" } else { "Host" }.into(),
                id: key.1,
                href: format!("/api/assisted-install/v2/infra-envs/{}/hosts/{}", key.0, key.1),
                cluster_id: cluster.as_ref().map(|c| c.cluster().id),
                infra_env_id: Some(key.0),
                role: Some(role),
                suggested_role: Some(role),
                bootstrap: sno.then_some(true),
                machine_config_pool_name: day2.then(|| "worker".to_owned()),
                progress: no_progress(),
                stage_started_at: Some(Timestamp::UNSET),
                stage_updated_at: Some(Timestamp::UNSET),
                logs_collected_at: Some(Timestamp::UNSET),
                logs_started_at: Some(Timestamp::UNSET),
                created_at: Some(now),
                updated_at: Some(now),
                status_updated_at: Some(now),
                user_name: Some("admin".into()),
                ..Host::default()
            };
            HostRow {
                view: HostView::new(host),
                private: HostPrivate { ordinal: core.state.new_ordinal(), ..HostPrivate::default() },
            }
        }
    };
    let hosts = cluster_id.map(|id| core.state.hosts_of_cluster(id)).unwrap_or_default();
    let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
    let scope = Scope { infra_env: &infra_env.infra_env, cluster: cluster.as_ref().map(|c| &c.view), hosts: &views };
    let args = EventArgs { initial, ..EventArgs::default() };
    let decision = match host::on_event(HostEvent::RegisterHost, &row.view, &scope, &core.config.settings, now, &args) {
        Ok(decision) => decision,
        Err(error) => return refused(core, Fail::bad_request(error.to_string())),
    };
    core.note_fired(decision.rule);
    if let Some(status) = decision.refused {
        let reason = format!("Host {} cannot register while it is {}", key.1, row.host().status);
        return refused(core, Fail::Error(status, reason));
    }
    if initial {
        let mut row = row;
        row.view.host.status = decision.to;
        row.view.host.status_info.clone_from(&decision.status_info);
        core.state.insert_host(row);
    } else {
        core.apply_host(now, key, &decision);
    }
    core.state.edit_host(key, now, |row| {
        let h = &mut row.view.host;
        h.registered_at = Some(now);
        h.checked_in_at = Some(now);
        if params.discovery_agent_version.is_some() {
            h.discovery_agent_version.clone_from(&params.discovery_agent_version);
        }
    });
    if initial {
        // A host that registers again is told of by its change of status, if that.
        let message = format!("Host {}: Successfully registered", core.host_name(key));
        core.host_event(now, key, "host_registration_succeeded", Severity::Info, message);
    }
    let row = core.state.host(key).cloned().ok_or_else(|| Fail::internal("the host vanished"))?;
    let mut answer = serde_json::to_value(core.show_host(&row)).map_err(|e| Fail::internal(e.to_string()))?;
    as_first_shown(&mut answer, initial);
    let agent = &core.config.settings.agent_docker_image;
    let version = match (core.config.settings.enable_upgrade_agent, &params.discovery_agent_version) {
        (false, Some(own)) => own,
        _ => agent,
    };
    let runner = json!({"agent_version": version, "host_id": key.1, "infra_env_id": key.0}).to_string();
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

/// A host of the path, or 404 in the words of the real service.
pub(crate) fn find(core: &Core, key: HostKey) -> Result<std::sync::Arc<HostRow>, Fail> {
    core.state.host(key).cloned().ok_or_else(|| {
        Fail::not_found(format!("failed to get host {} in infra_env {}: record not found", key.1, key.0))
    })
}

/// `POST …/actions/bind`
pub(crate) fn bind(call: &mut Call<'_>) -> Answer {
    let params: BindHostParams = call.body("bind-host-params")?;
    let key: HostKey = (call.ids[0], call.ids[1]);
    match try_bind(call.core, call.now, key, params.cluster_id) {
        Ok(response) => Ok(response),
        Err(fail) => {
            if call.core.state.host(key).is_some() {
                let text = format!("Host {}: cannot be bound: {}", call.core.host_name(key), fail.reason());
                call.core.host_event(call.now, key, "host_bind_failed", Severity::Error, text);
            }
            Err(fail)
        }
    }
}

fn try_bind(core: &mut Core, now: Timestamp, key: HostKey, cluster_id: Uuid) -> Answer {
    let row = find(core, key)?;
    if let Some(bound) = row.host().cluster_id {
        return Err(Fail::conflict(format!("Host {} is already bound to cluster {bound}", key.1)));
    }
    let Some(cluster) = core.state.cluster(cluster_id).cloned() else {
        return Err(Fail::bad_request(format!("Failed to find cluster {cluster_id}")));
    };
    let arch = cluster.cluster().cpu_architecture.as_deref().unwrap_or("");
    let own = row.view.inventory.as_ref().and_then(|i| i.cpu.as_ref()).and_then(|c| c.architecture.as_deref());
    if let Some(own) = own
        && !arch.is_empty()
        && arch != "multi"
        && own != arch
    {
        return Err(Fail::bad_request(format!(
            "Host {} has CPU architecture {own}, cluster {cluster_id} has {arch}",
            key.1
        )));
    }
    if row.host().role == Some(HostRole::Arbiter) && cluster.view.control_plane_count() != 2 {
        return Err(Fail::bad_request(format!("Cluster {cluster_id} takes no arbiter")));
    }
    if row.host().fencing_credentials.is_some() && cluster.view.control_plane_count() != 2 {
        return Err(Fail::bad_request(format!("Cluster {cluster_id} takes no host with fencing credentials")));
    }
    if !accepts_hosts(cluster.cluster().status) {
        return Err(Fail::conflict(format!(
            "Cluster {cluster_id} takes no hosts while it is {}",
            cluster.cluster().status
        )));
    }
    let infra_env = core.state.infra_env(key.0).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    let scope = Scope { infra_env: &infra_env.infra_env, cluster: None, hosts: &[] };
    let decision =
        host::on_event(HostEvent::BindHost, &row.view, &scope, &core.config.settings, now, &EventArgs::default())
            .map_err(|e| Fail::internal(e.to_string()))?;
    core.apply_host(now, key, &decision);
    let day2 = cluster.view.is_day2();
    let sno = cluster.view.is_sno() && !day2;
    core.state.edit_host(key, now, |row| {
        let h = &mut row.view.host;
        h.cluster_id = Some(cluster_id);
        if day2 {
            h.kind = "AddToExistingClusterHost".into();
            h.role = Some(HostRole::Worker);
            h.suggested_role = Some(HostRole::Worker);
            h.machine_config_pool_name = Some("worker".into());
        } else if sno {
            h.role = Some(HostRole::Master);
            h.suggested_role = Some(HostRole::Master);
            h.bootstrap = Some(true);
        }
    });
    let text =
        format!("Host {}: bound to cluster {}", core.host_name(key), cluster.cluster().name.as_deref().unwrap_or(""));
    core.host_event(now, key, "host_bind_succeeded", Severity::Info, text);
    let row = find(core, key)?;
    Ok(Response::json(200, &core.show_host(&row)))
}

/// `POST …/actions/unbind`
pub(crate) fn unbind(call: &mut Call<'_>) -> Answer {
    let key: HostKey = (call.ids[0], call.ids[1]);
    try_unbind(call.core, call.now, key)
}

fn try_unbind(core: &mut Core, now: Timestamp, key: HostKey) -> Answer {
    let row = find(core, key)?;
    let infra_env = core.state.infra_env(key.0).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    if let Some(cluster) = infra_env.infra_env.cluster_id {
        return Err(Fail::conflict(format!(
            "Cannot unbind Host {}. InfraEnv {} is bound to Cluster {cluster}",
            key.1, key.0
        )));
    }
    if row.host().cluster_id.is_none() {
        return Err(Fail::conflict(format!("Host {} is already unbound", key.1)));
    }
    if in_installation(row.host().status) {
        return Err(Fail::conflict(format!("Host {} cannot be unbound while it is {}", key.1, row.host().status)));
    }
    let (cluster, hosts) = core.neighbours(&row);
    let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
    let scope = Scope { infra_env: &infra_env.infra_env, cluster: cluster.as_ref().map(|c| &c.view), hosts: &views };
    let decision =
        host::on_event(HostEvent::UnbindHost, &row.view, &scope, &core.config.settings, now, &EventArgs::default())
            .map_err(|e| Fail::internal(e.to_string()))?;
    core.apply_host(now, key, &decision);
    let text = format!("Host {}: unbound from its cluster", core.host_name(key));
    core.host_event(now, key, "host_unbind_succeeded", Severity::Info, text);
    let row = find(core, key)?;
    Ok(Response::json(200, &core.show_host(&row)))
}

/// The status in which a host's inventory is taken; in others a reply is refused.
pub(crate) fn takes_inventory(status: HostStatus) -> bool {
    matches!(
        status,
        HostStatus::Discovering
            | HostStatus::Known
            | HostStatus::Disconnected
            | HostStatus::Insufficient
            | HostStatus::PendingForInput
            | HostStatus::Binding
            | HostStatus::InstallingInProgress
            | HostStatus::DiscoveringUnbound
            | HostStatus::KnownUnbound
            | HostStatus::DisconnectedUnbound
            | HostStatus::InsufficientUnbound
    )
}

/// Notes which disk the host is installed to; `None` when no disk will do.
pub(crate) fn set_installation_disk(row: &mut HostRow, disk: Option<(String, String)>) {
    let h = &mut row.view.host;
    match disk {
        Some((id, path)) => {
            h.installation_disk_id = Some(id);
            h.installation_disk_path = Some(path);
        }
        None => {
            h.installation_disk_id = None;
            h.installation_disk_path = None;
        }
    }
    let format = disks::disks_to_format(&row.view).join(",");
    row.view.host.disks_to_be_formatted = (!format.is_empty()).then_some(format);
}
