//! Hosts are bound to clusters and unbound from them.

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{HostRole, Severity};
use vlab_model::host::{self, EventArgs, HostEvent};
use vlab_model::view::{HostView, Scope};

use super::infra_envs;
use super::register::find;
use crate::Core;
use crate::alteration::Conduct;
use crate::monitor::in_installation;
use crate::refusal::Refusal;
use crate::state::{HostKey, is_open, user_event};

/// Binds a host of the pool to a cluster.
pub(crate) fn bind(core: &mut Core, now: Timestamp, key: HostKey, cluster_id: Uuid) -> Result<(), Refusal> {
    let row = find(core, key)?;
    if let Some(bound) = row.host().cluster_id {
        return Err(Refusal::conflict(format!("Host {} is already bound to cluster {bound}", key.1)));
    }
    let Some(cluster) = core.state.cluster(cluster_id).cloned() else {
        return Err(Refusal::invalid(format!("Failed to find cluster {cluster_id}")));
    };
    let arch = cluster.cluster().cpu_architecture.as_deref().unwrap_or("");
    let infra_env = infra_envs::find(core, key.0)?;
    let own = infra_env.infra_env.cpu_architecture.as_deref().unwrap_or("");
    if !arch.is_empty() && arch != "multi" && own != arch {
        return Err(Refusal::invalid(format!(
            "InfraEnv's CPU architecture ({own}) doesn't match the cluster ({arch})"
        )));
    }
    if row.host().role == Some(HostRole::Arbiter) && cluster.view.control_plane_count() != 2 {
        return Err(Refusal::invalid(format!("Cluster {cluster_id} does not take an arbiter")));
    }
    if row.host().fencing_credentials.is_some() && cluster.view.control_plane_count() != 2 {
        return Err(Refusal::invalid(format!("Cluster {cluster_id} does not take hosts with fencing credentials")));
    }
    if !is_open(cluster.cluster().status) {
        return Err(Refusal::conflict(format!(
            "Cluster {cluster_id} does not take hosts while it is {}",
            cluster.cluster().status
        )));
    }
    let scope = Scope { infra_env: &infra_env.infra_env, cluster: None, hosts: &[] };
    let args = EventArgs { wrong: core.hosts_wrong(), ..EventArgs::default() };
    let decision = host::on_event(HostEvent::BindHost, &row.view, &scope, &core.config.settings, now, &args)
        .map_err(|e| Refusal::internal(e.to_string()))?;
    core.apply_host(now, key, &decision);
    let day2 = cluster.view.is_day2();
    let sno = cluster.view.is_sno() && !day2;
    let bound_to = Some(cluster_id).filter(|_| !core.does(Conduct::NotBound));
    core.state.edit_host(key, now, |row| {
        let h = &mut row.view.host;
        h.cluster_id = bound_to;
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
    Ok(())
}

/// What a user who asked over REST is told by an event: the controllers bind and unbind without a word.
pub(crate) fn tell(core: &mut Core, now: Timestamp, key: HostKey, is_bound: bool) {
    let name = core.host_name(key);
    let (event, text) = if is_bound {
        let cluster = core.state.host(key).and_then(|row| row.host().cluster_id).and_then(|id| core.state.cluster(id));
        let cluster = cluster.and_then(|row| row.cluster().name.clone()).unwrap_or_default();
        ("host_bind_succeeded", format!("Host {name}: bound to cluster {cluster}"))
    } else {
        ("host_unbind_succeeded", format!("Host {name}: unbound from its cluster"))
    };
    core.host_event(now, key, event, Severity::Info, text);
}

/// And what they are told when it was refused, of a host that is not there, too, and in the list of the cluster that it was to be bound to.
pub(crate) fn tell_refused(core: &mut Core, now: Timestamp, key: HostKey, to: Option<Uuid>, refusal: &Refusal) {
    let (event, what) = match to {
        Some(_) => ("host_bind_failed", "bound"),
        None => ("host_unbind_failed", "unbound"),
    };
    let text = format!("Host {}: cannot be {what}: {}", core.host_name(key), refusal.text);
    core.host_event_of(key, to, user_event(now, event, Severity::Error, text));
}

/// Takes a host out of its cluster, back to the pool. What is refused is told, but for who may not be taken out of an installation.
pub(crate) fn unbind(core: &mut Core, now: Timestamp, key: HostKey) -> Result<(), Refusal> {
    let status = find(core, key)?.host().status;
    if in_installation(status) {
        return Err(Refusal::conflict(format!("Host {} cannot be unbound while it is {status}", key.1)));
    }
    take_out(core, now, key).inspect_err(|refusal| tell_refused(core, now, key, None, refusal))
}

/// The same for the controllers, who do it in the middle of an installation, too.
pub(crate) fn take_out(core: &mut Core, now: Timestamp, key: HostKey) -> Result<(), Refusal> {
    let row = find(core, key)?;
    if row.host().cluster_id.is_none() {
        return Err(Refusal::conflict(format!("Host {} is already unbound", key.1)));
    }
    let infra_env = infra_envs::find(core, key.0)?;
    if let Some(cluster) = infra_env.infra_env.cluster_id {
        return Err(Refusal::conflict(format!(
            "Cannot unbind Host {}. InfraEnv {} is bound to Cluster {cluster}",
            key.1, key.0
        )));
    }
    let (cluster, hosts) = core.neighbours(&row);
    let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
    let scope = Scope { infra_env: &infra_env.infra_env, cluster: cluster.as_ref().map(|c| &c.view), hosts: &views };
    let args = EventArgs { wrong: core.hosts_wrong(), ..EventArgs::default() };
    let decision = host::on_event(HostEvent::UnbindHost, &row.view, &scope, &core.config.settings, now, &args)
        .map_err(|e| Refusal::internal(e.to_string()))?;
    core.apply_host(now, key, &decision);
    if core.does(Conduct::StaysBound) {
        core.state.edit_host(key, now, |to| to.view.host.cluster_id = row.host().cluster_id);
    }
    Ok(())
}
