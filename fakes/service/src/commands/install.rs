//! Installing, cancelling, resetting, and letting a cluster take more hosts.

use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStatus, Severity};
use vlab_model::cluster::ClusterEvent;
use vlab_model::host::{self, EventArgs, HostEvent};
use vlab_model::roles;
use vlab_model::validation::HIDING_STAGES;
use vlab_model::view::{HostView, Scope};

use super::clusters::find_to_change;
use super::register::find;
use crate::Core;
use crate::machines::NO_TRANSITION;
use crate::refusal::Refusal;
use crate::rows::HostRow;
use crate::state::HostKey;

/// Has nobody said yet what the host is to be?
fn is_open(row: &HostRow) -> bool {
    row.host().role.is_none_or(|r| r == HostRole::AutoAssign)
}

/// Begins an installation: roles and the bootstrap are decided, the files follow in the background.
pub(crate) fn install(core: &mut Core, now: Timestamp, id: Uuid) -> Result<(), Refusal> {
    find_to_change(core, id)?;
    check_memories(&core.state.hosts_of_cluster(id))?;
    core.derive_machine_networks(now, id);
    core.refresh_interactively(now, id);
    let row = find_to_change(core, id)?;
    check_open_hosts(core, &core.state.hosts_of_cluster(id))?;
    if row.cluster().status != ClusterStatus::Ready {
        return Err(Refusal::conflict(format!(
            "cluster {id} is not ready to be installed: it is {} ({})",
            row.cluster().status,
            row.cluster().status_info
        )));
    }
    let hosts = core.state.hosts_of_cluster(id);
    let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
    let assigned = roles::final_roles(&row.view, &views, &core.config.settings).unwrap_or_default();
    for (host_id, role) in assigned {
        let Some(host) = hosts.iter().find(|h| h.host().id == host_id) else { continue };
        core.state.edit_host((host.infra_env_id(), host_id), now, |row| {
            row.view.host.role = Some(role);
            row.view.host.suggested_role = Some(role);
        });
    }
    let hosts = core.state.hosts_of_cluster(id);
    let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
    let Some(bootstrap) = roles::choose_bootstrap(&views, &core.config.settings) else {
        return Err(Refusal::internal(format!("Cluster {id} has no master that could be the bootstrap")));
    };
    core.cluster_machine(now, id, ClusterEvent::PrepareForInstallation)?;
    for host in &hosts {
        let key: HostKey = (host.infra_env_id(), host.host().id);
        let chosen = key.1 == bootstrap;
        core.state.edit_host(key, now, |row| row.view.host.bootstrap = chosen.then_some(true));
        // The only node is the bootstrap from the beginning: nothing to tell.
        if chosen && !host.view.is_bootstrap() {
            let text = format!("Host {}: set as bootstrap", core.host_name(key));
            core.host_event(now, key, "host_bootstrap_set", Severity::Info, text);
        }
    }
    if row.cluster().ignored_host_validations.is_some() || row.cluster().ignored_cluster_validations.is_some() {
        let text = "Some validations are ignored in this installation".to_owned();
        core.cluster_event(now, id, "validations_ignored", Severity::Info, text);
    }
    let seed = core.state.new_seed();
    core.state.edit_cluster(id, now, |row| {
        row.private.preparation_due = Some(now);
        row.private.artifact_seed = seed;
    });
    Ok(())
}

/// The real service looks for masters among the open hosts first, and stumbles over one whose memory it does not know.
fn check_memories(hosts: &[Arc<HostRow>]) -> Result<(), Refusal> {
    for row in hosts {
        let memory = row.view.inventory.as_ref().and_then(|i| i.memory.as_ref());
        if is_open(row) && memory.is_none() {
            return Err(Refusal::internal(format!(
                "error occurred while checking if host: {} is a valid master candidate: Inventory is not valid, Memory not detected",
                row.host().id
            )));
        }
    }
    Ok(())
}

/// Hosts that are given a role now are looked at one by one before the cluster is; a host is an invalid request, the cluster a
/// conflict.
fn check_open_hosts(core: &Core, hosts: &[Arc<HostRow>]) -> Result<(), Refusal> {
    if !hosts.iter().any(|h| is_open(h)) || hosts.iter().any(|h| h.view.inventory.is_none()) {
        return Ok(());
    }
    let Some(host) = hosts.iter().find(|h| h.host().status != HostStatus::Known && !h.view.is_day2()) else {
        return Ok(());
    };
    let name = core.host_name((host.infra_env_id(), host.host().id));
    Err(Refusal::invalid(format!("Host {name} is in status {} and not ready for install", host.host().status)))
}

/// Ends an installation.
pub(crate) fn cancel(core: &mut Core, now: Timestamp, id: Uuid) -> Result<(), Refusal> {
    find_to_change(core, id)?;
    if let Err(refusal) = core.cluster_machine(now, id, ClusterEvent::CancelInstallation) {
        let text = format!("Failed to cancel installation: {}", refusal.text);
        core.cluster_event(now, id, "cancel_installation_failed", Severity::Error, text);
        return Err(refusal);
    }
    core.state.edit_cluster(id, now, |row| row.private.preparation_due = None);
    core.cluster_event(
        now,
        id,
        "cluster_installation_canceled",
        Severity::Info,
        "Cancelled cluster installation".into(),
    );
    for key in core.state.host_keys_of_cluster(id) {
        if core.host_machine(now, key, HostEvent::CancelInstallation, "") {
            let text = format!("Installation cancelled for host {}", core.host_name(key));
            core.host_event(now, key, "host_installation_cancelled", Severity::Info, text);
        } else {
            let text = format!("Failed to cancel installation of host {}: {NO_TRANSITION}", core.host_name(key));
            core.host_event(now, key, "host_cancel_installation_failed", Severity::Error, text);
        }
    }
    Ok(())
}

/// Brings a cluster back to where it was before its installation.
pub(crate) fn reset(core: &mut Core, now: Timestamp, id: Uuid) -> Result<(), Refusal> {
    let row = find_to_change(core, id)?;
    let hosts = core.state.hosts_of_cluster(id);
    let refused = |core: &mut Core| {
        let text = format!("Failed to reset installation. Error: {NO_TRANSITION}");
        core.cluster_event(now, id, "reset_installation_failed", Severity::Error, text);
        Err(Refusal::conflict(NO_TRANSITION))
    };
    let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
    // All or nothing: a host that cannot be reset stops the whole.
    for host_row in &hosts {
        let Some(infra_env) = core.state.infra_env(host_row.infra_env_id()).cloned() else { continue };
        let scope = Scope { infra_env: &infra_env.infra_env, cluster: Some(&row.view), hosts: &views };
        let args = EventArgs::default();
        let event = HostEvent::ResettingPendingUserAction;
        if host::on_event(event, &host_row.view, &scope, &core.config.settings, now, &args).is_err() {
            return refused(core);
        }
    }
    if core.cluster_machine(now, id, ClusterEvent::ResetCluster).is_err() {
        return refused(core);
    }
    core.cluster_event(now, id, "cluster_installation_reset", Severity::Info, "Reset cluster installation".into());
    for host_row in &hosts {
        let key: HostKey = (host_row.infra_env_id(), host_row.host().id);
        let rebooted = host_row.view.stage().is_some_and(|s| HIDING_STAGES.contains(&s));
        core.host_machine(now, key, HostEvent::ResettingPendingUserAction, "");
        let text = format!("Installation reset for host {}", core.host_name(key));
        core.host_event(now, key, "host_installation_reset", Severity::Info, text);
        if rebooted {
            let text = format!("Host {}: boot it from its discovery image to complete the reset", core.host_name(key));
            core.host_event(now, key, "user_required_complete_installation_reset", Severity::Info, text);
        }
    }
    Ok(())
}

/// Lets an installed cluster take more hosts.
pub(crate) fn allow_add_hosts(core: &mut Core, now: Timestamp, id: Uuid) -> Result<(), Refusal> {
    let row = find_to_change(core, id)?;
    if row.cluster().status != ClusterStatus::Installed || row.cluster().kind != "Cluster" {
        return Err(Refusal::invalid(format!(
            "Cluster {id} is of kind {} and in {} state; only an installed cluster can take more hosts",
            row.cluster().kind,
            row.cluster().status
        )));
    }
    core.state.edit_cluster(id, now, |row| {
        let c = &mut row.view.cluster;
        c.kind = "AddHostsCluster".into();
        c.status = ClusterStatus::AddingHosts;
        c.status_info = "The cluster takes more hosts".into();
        c.status_updated_at = Some(now);
        if c.api_vip_dns_name.as_deref().unwrap_or("").is_empty() {
            let (name, base) = (c.name.as_deref().unwrap_or(""), c.base_dns_domain.as_deref().unwrap_or(""));
            c.api_vip_dns_name = Some(format!("api.{name}.{base}"));
        }
    });
    // No event: the real service has none for this change.
    Ok(())
}

/// Installs a host of an adding-hosts cluster.
pub(crate) fn install_host(core: &mut Core, now: Timestamp, key: HostKey) -> Result<(), Refusal> {
    let row = find(core, key)?;
    if !row.view.is_day2() {
        return Err(Refusal::conflict(format!("Host {} is not of an adding-hosts cluster", key.1)));
    }
    if !core.host_machine(now, key, HostEvent::InstallHost, "") {
        return Err(Refusal::conflict(format!(
            "Cannot install host {}: it is {} ({})",
            key.1,
            row.host().status,
            row.host().status_info
        )));
    }
    let text = format!("Host {}: installation started", core.host_name(key));
    core.host_event(now, key, "host_installation_started", Severity::Info, text);
    Ok(())
}

/// Resets a host of an adding-hosts cluster.
pub(crate) fn reset_host(core: &mut Core, now: Timestamp, key: HostKey) -> Result<(), Refusal> {
    let row = find(core, key)?;
    if row.host().cluster_id.is_none() || !row.view.is_day2() {
        return Err(Refusal::conflict(format!("ResetHost for host {} is forbidden: not a day-2 host", key.1)));
    }
    if !core.host_machine(now, key, HostEvent::ResettingPendingUserAction, "") {
        return Err(Refusal::conflict(NO_TRANSITION));
    }
    let text = format!("Installation reset for host {}", core.host_name(key));
    core.host_event(now, key, "host_installation_reset", Severity::Info, text);
    Ok(())
}
