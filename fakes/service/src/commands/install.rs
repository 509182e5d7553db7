//! Installing, cancelling, resetting, and letting a cluster take more hosts.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStatus, Severity};
use vlab_model::cluster::{self, ClusterEvent, WORDS_OF_ADDING_HOSTS};
use vlab_model::host::{self, EventArgs, HostEvent};
use vlab_model::roles;
use vlab_model::view::{HostView, Scope};

use super::clusters::find_to_change;
use super::register::find;
use super::usage;
use crate::Core;
use crate::alteration::Conduct;
use crate::machines::NO_TRANSITION;
use crate::refusal::Refusal;
use crate::rows::{ClusterRow, HostRow};
use crate::state::HostKey;

/// So long after the host monitor's decision it is written, where its lock is missing on purpose.
const NO_LOCK_FOR: Duration = Duration::from_secs(5);

/// Has nobody said yet what the host is to be?
fn is_open(row: &HostRow) -> bool {
    row.host().role.is_none_or(|r| r == HostRole::AutoAssign)
}

/// Begins an installation: roles and the bootstrap are decided, the files follow in the background.
pub(crate) fn install(core: &mut Core, now: Timestamp, id: Uuid) -> Result<(), Refusal> {
    find_to_change(core, id)?;
    let hosts = core.state.hosts_of_cluster(id);
    check_memories(&hosts)?;
    // Roles that are given now can change what holds. Where the user has given them all, what the monitors saw last counts.
    if hosts.iter().any(|h| is_open(h)) && hosts.iter().all(|h| h.view.inventory.is_some()) {
        check_open_hosts(core, &hosts)?;
        core.derive_machine_networks(now, id);
        core.refresh_interactively(now, id);
    }
    let row = find_to_change(core, id)?;
    if row.cluster().status != ClusterStatus::Ready && !core.does(Conduct::InstallsUnready) {
        return Err(Refusal::conflict(format!(
            "cluster {id} is not ready to be installed: it is {} ({})",
            row.cluster().status,
            row.cluster().status_info
        )));
    }
    let hosts = core.state.hosts_of_cluster(id);
    let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
    let mut assigned = roles::final_roles(&row.view, &views, &core.config.settings).unwrap_or_default();
    if core.does(Conduct::RolesNotSettled) {
        assigned.clear();
    }
    let has_open = hosts.iter().any(|h| is_open(h));
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
    let bootstrap =
        if core.does(Conduct::LastIsBootstrap) { hosts.last().map_or(bootstrap, |h| h.host().id) } else { bootstrap };
    let other = hosts.iter().map(|h| h.host().id).find(|id| *id != bootstrap);
    let second = other.filter(|_| core.does(Conduct::TwoBootstraps));
    for host in &hosts {
        let key: HostKey = (host.infra_env_id(), host.host().id);
        let chosen = (key.1 == bootstrap || Some(key.1) == second) && !core.does(Conduct::NoBootstrap);
        core.state.edit_host(key, now, |row| row.view.host.bootstrap = chosen.then_some(true));
        // The only node is the bootstrap from the beginning: nothing to tell.
        if chosen && !host.view.is_bootstrap() {
            let text = format!("Host {}: set as bootstrap", core.host_name(key));
            core.host_event(now, key, "host_bootstrap_set", Severity::Info, text);
        }
    }
    let ignores =
        row.cluster().ignored_host_validations.is_some() || row.cluster().ignored_cluster_validations.is_some();
    usage::note(core, now, Some(id), |usage| {
        if ignores {
            usage.set("Validations have been ignored for this cluster", true);
        }
        usage.set("auto assign role", has_open && hosts.len() > 3);
    });
    if ignores {
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
    let Some(host) = hosts.iter().find(|h| h.host().status != HostStatus::Known && !h.view.is_day2()) else {
        return Ok(());
    };
    let name = core.host_name((host.infra_env_id(), host.host().id));
    Err(Refusal::invalid(format!("Host {name} is in status {} and not ready for install", host.host().status)))
}

/// Ends an installation. All or nothing: where one host cannot be cancelled, nothing is, though the events tell what was tried.
pub(crate) fn cancel(core: &mut Core, now: Timestamp, id: Uuid) -> Result<(), Refusal> {
    let row = find_to_change(core, id)?;
    let hosts = core.state.hosts_of_cluster(id);
    let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
    let event = ClusterEvent::CancelInstallation;
    let args = cluster::EventArgs { wrong: core.clusters_wrong(), ..cluster::EventArgs::default() };
    if cluster::on_event(event, &row.view, &views, &core.config.settings, now, &args).is_err() {
        let text = format!("Failed to cancel installation: {NO_TRANSITION}");
        core.cluster_event(now, id, "cancel_installation_failed", Severity::Error, text);
        return Err(Refusal::conflict(NO_TRANSITION));
    }
    let stays = hosts.iter().find(|h| !can(core, now, h, (&row, &views), HostEvent::CancelInstallation));
    if stays.is_none() {
        core.cluster_machine(now, id, event)?;
        if !core.does(Conduct::CancelKeepsPreparing) {
            core.state.edit_cluster(id, now, |row| row.private.preparation_due = None);
        }
    }
    let text = "Cancelled cluster installation".to_owned();
    core.cluster_event(now, id, "cluster_installation_canceled", Severity::Info, text);
    let spared = match () {
        () if core.does(Conduct::CancelSparesAHost) => 1,
        () if core.does(Conduct::CancelSparesHosts) => usize::MAX,
        () => 0,
    };
    for host in hosts.iter().skip(spared) {
        let key: HostKey = (host.infra_env_id(), host.host().id);
        if stays.is_some_and(|h| h.host().id == key.1) {
            let text = format!("Failed to cancel installation of host {}: {NO_TRANSITION}", core.host_name(key));
            core.host_event(now, key, "host_cancel_installation_failed", Severity::Error, text);
            return Err(Refusal::conflict(NO_TRANSITION));
        }
        if stays.is_none() {
            core.host_machine(now, key, HostEvent::CancelInstallation, "");
            if let Some((at, status)) = core.monitored.get(&key).copied()
                && now <= at + NO_LOCK_FOR
            {
                core.state.edit_host(key, now, |row| row.view.host.status = status);
            }
        }
        let text = format!("Installation cancelled for host {}", core.host_name(key));
        core.host_event(now, key, "host_installation_cancelled", Severity::Info, text);
    }
    Ok(())
}

/// Has the host's machine a row for that event?
fn can(core: &Core, now: Timestamp, host: &HostRow, of: (&ClusterRow, &[&HostView]), event: HostEvent) -> bool {
    let Some(infra_env) = core.state.infra_env(host.infra_env_id()) else { return true };
    let scope = Scope { infra_env: &infra_env.infra_env, cluster: Some(&of.0.view), hosts: of.1 };
    let args = EventArgs { wrong: core.hosts_wrong(), ..EventArgs::default() };
    host::on_event(event, &host.view, &scope, &core.config.settings, now, &args).is_ok()
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
    if hosts.iter().any(|h| !can(core, now, h, (&row, &views), HostEvent::ResettingPendingUserAction)) {
        return refused(core);
    }
    if core.cluster_machine(now, id, ClusterEvent::ResetCluster).is_err() {
        return refused(core);
    }
    core.cluster_event(now, id, "cluster_installation_reset", Severity::Info, "Reset cluster installation".into());
    let spared = match () {
        () if core.does(Conduct::ResetSparesAHost) => 1,
        () if core.does(Conduct::ResetSparesHosts) => usize::MAX,
        () => 0,
    };
    for host_row in hosts.iter().skip(spared) {
        let key: HostKey = (host_row.infra_env_id(), host_row.host().id);
        core.host_machine(now, key, HostEvent::ResettingPendingUserAction, "");
        let text = format!("Installation reset for host {}", core.host_name(key));
        core.host_event(now, key, "host_installation_reset", Severity::Info, text);
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
    let stays = core.does(Conduct::NotAddingHosts);
    core.state.edit_cluster(id, now, |row| {
        let c = &mut row.view.cluster;
        c.kind = "AddHostsCluster".into();
        c.status = if stays { c.status } else { ClusterStatus::AddingHosts };
        c.status_info = WORDS_OF_ADDING_HOSTS.into();
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
    Ok(())
}

/// What is told when a controller has begun it. Who begins it over REST is told nothing, as by the real service.
pub(crate) fn tell_started(core: &mut Core, now: Timestamp, key: HostKey) {
    let text = format!("Host {}: installation started", core.host_name(key));
    core.host_event(now, key, "host_installation_started", Severity::Info, text);
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
