//! Agents register.

use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Event, Host, HostCreateParams, HostRole, HostStatus, ImageType, Severity};
use vlab_model::host::{EventArgs, HostEvent};
use vlab_model::view::{HostView, Scope};
use vlab_model::{disks, host};

use super::infra_envs;
use crate::Core;
use crate::alteration::Conduct;
use crate::refusal::Refusal;
use crate::rows::{ClusterRow, HostPrivate, HostRow, InfraEnvRow};
use crate::show::no_progress;
use crate::state::{HostKey, is_open, user_event};

/// What a registration came to.
pub(crate) struct Registered {
    pub(crate) host: Arc<HostRow>,
    /// The service did not know the host.
    pub(crate) initial: bool,
    /// The agent that the host is to run.
    pub(crate) agent: String,
}

/// An agent registers its host. A refusal is an event, too, once the infra-env is known to take hosts.
pub(crate) fn register(
    core: &mut Core,
    now: Timestamp,
    infra_env_id: Uuid,
    params: &HostCreateParams,
) -> Result<Registered, Refusal> {
    let key: HostKey = (infra_env_id, params.host_id);
    let infra_env = infra_envs::find(core, infra_env_id)?;
    if infra_env.infra_env.type_ == ImageType::DisconnectedIso {
        return Err(Refusal::invalid("hosts of an infra-env with a disconnected ISO do not register"));
    }
    let initial = core.state.host(key).is_none();
    take(core, now, key, &infra_env).inspect_err(|refusal| {
        let text = format!("Host {}: registration failed: {}", key.1, refusal.text);
        let event = user_event(now, "host_registration_failed", Severity::Error, text);
        core.state.append_event(Event {
            infra_env_id: Some(key.0),
            host_id: Some(key.1),
            cluster_id: infra_env.infra_env.cluster_id,
            ..event
        });
    })?;
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
    let host = core.state.host(key).cloned().ok_or_else(|| Refusal::internal("the host no longer exists"))?;
    let settings = &core.config.settings;
    let agent = match (settings.enable_upgrade_agent, &params.discovery_agent_version) {
        (false, Some(own)) => own.clone(),
        _ => settings.agent_docker_image.clone(),
    };
    Ok(Registered { host, initial, agent })
}

/// Lets the machine of hosts decide about a registration, and carries that out.
fn take(core: &mut Core, now: Timestamp, key: HostKey, infra_env: &InfraEnvRow) -> Result<(), Refusal> {
    let existing = core.state.host(key).cloned();
    let initial = existing.is_none();
    // A host that is known keeps its cluster (it may have been bound by hand); a new one gets its infra-env's.
    let cluster_id = match &existing {
        Some(row) => row.host().cluster_id,
        None => infra_env.infra_env.cluster_id,
    };
    let cluster = cluster_id.and_then(|id| core.state.cluster(id)).cloned();
    if let (true, Some(cluster)) = (initial, &cluster)
        && !is_open(cluster.cluster().status)
        && !core.does(Conduct::HostsTakenAlways)
    {
        return Err(Refusal::conflict(format!(
            "Host can register only in one of the following states: [insufficient ready pending-for-input adding-hosts]; cluster {} is {}",
            cluster.cluster().id,
            cluster.cluster().status
        )));
    }
    let row = match existing {
        Some(row) => (*row).clone(),
        None => blank(core, now, key, cluster.as_deref()),
    };
    let hosts = cluster_id.map(|id| core.state.hosts_of_cluster(id)).unwrap_or_default();
    let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
    let scope = Scope { infra_env: &infra_env.infra_env, cluster: cluster.as_ref().map(|c| &c.view), hosts: &views };
    let args = EventArgs { initial, wrong: core.hosts_wrong(), ..EventArgs::default() };
    let decision = host::on_event(HostEvent::RegisterHost, &row.view, &scope, &core.config.settings, now, &args)
        .map_err(|error| Refusal::invalid(error.to_string()))?;
    core.note_fired(decision.rule);
    if let Some(status) = decision.refused {
        let text = format!("Host {} cannot register while it is {}", key.1, row.host().status);
        return Err(if status == 409 { Refusal::conflict(text) } else { Refusal::invalid(text) });
    }
    if initial {
        let mut row = row;
        row.view.host.status = decision.to;
        row.view.host.status_info.clone_from(&decision.status_info);
        core.state.insert_host(row);
    } else {
        core.apply_host(now, key, &decision);
    }
    Ok(())
}

/// A host as it is before its first registration is decided about.
fn blank(core: &mut Core, now: Timestamp, key: HostKey, cluster: Option<&ClusterRow>) -> HostRow {
    let day2 = cluster.is_some_and(|c| c.view.is_day2());
    let sno = cluster.is_some_and(|c| c.view.is_sno()) && !day2;
    let role = match (day2, sno) {
        (true, _) => HostRole::Worker,
        (_, true) => HostRole::Master,
        _ => HostRole::AutoAssign,
    };
    let host = Host {
        kind: if day2 { "AddToExistingClusterHost" } else { "Host" }.into(),
        id: key.1,
        href: format!("/api/assisted-install/v2/infra-envs/{}/hosts/{}", key.0, key.1),
        cluster_id: cluster.map(|c| c.cluster().id),
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

/// Makes a host again that was lost, from what its resource has kept of it.
pub(crate) fn restore(
    core: &mut Core,
    now: Timestamp,
    key: HostKey,
    cluster: Option<Uuid>,
    said: impl Fn(&str) -> String,
) {
    let cluster = cluster.and_then(|id| core.state.cluster(id)).cloned();
    let mut row = blank(core, now, key, cluster.as_deref());
    let filled = |name: &str| Some(said(name)).filter(|text| !text.is_empty());
    let mut host = row.view.host.clone();
    let role = filled("role").and_then(|role| role.parse().ok());
    host.role = role.or(host.role);
    host.suggested_role = host.role;
    host.bootstrap = None;
    let otherwise = if cluster.is_some() { HostStatus::Known } else { HostStatus::KnownUnbound };
    host.status = filled("state").and_then(|state| state.parse().ok()).unwrap_or(otherwise);
    host.inventory = filled("inventory").map(Into::into);
    host.validations_info = filled("validations-info").map(Into::into);
    host.registered_at = Some(now);
    host.checked_in_at = Some(now);
    row.view = HostView::new(host);
    core.state.insert_host(row);
}

/// A host, or the refusal in the words of the real service.
pub(crate) fn find(core: &Core, key: HostKey) -> Result<Arc<HostRow>, Refusal> {
    core.state.host(key).cloned().ok_or_else(|| {
        Refusal::not_found(format!("failed to get host {} in infra_env {}: record not found", key.1, key.0))
    })
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
