//! Installing, cancelling, resetting; and the preparation in the background.

use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::Response;
use vlab_api::types::{
    ApiVip, ClusterStatus, HostRole, HostStatus, IngressVip, LastInstallationPreparation, Severity, VipVerification,
};
use vlab_model::cluster::{self as cluster_machine, ClusterEvent};
use vlab_model::host::{EventArgs, HostEvent};
use vlab_model::view::{HostView, Scope};
use vlab_model::{host, network, roles};

use crate::Core;
use crate::answer::{Answer, Fail};
use crate::register::find;
use crate::router::Call;
use crate::rows::{ClusterRow, HostRow};
use crate::state::HostKey;
use vlab_installer::{self as artifacts, ArtifactInput, HostInput};

/// What the real service says when a machine has no row for a request.
const NO_TRANSITION: &str = "no condition found to run transition";

fn cluster_of(core: &Core, id: Uuid) -> Result<Arc<ClusterRow>, Fail> {
    core.state
        .cluster(id)
        .cloned()
        .ok_or_else(|| Fail::not_found(format!("Failed to get cluster {id}: record not found")))
}

fn shown(core: &Core, id: Uuid) -> Answer {
    let cluster = core.show_cluster(id, true).ok_or_else(|| Fail::not_found("record not found"))?;
    Ok(Response::json(202, &cluster))
}

impl Core {
    fn cluster_machine(&mut self, now: Timestamp, id: Uuid, event: ClusterEvent) -> Result<(), Fail> {
        let row = cluster_of(self, id)?;
        let hosts = self.state.hosts_of_cluster(id);
        let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
        let args = cluster_machine::EventArgs::default();
        let decision = cluster_machine::on_event(event, &row.view, &views, &self.config.settings, now, &args)
            .map_err(|_| Fail::conflict(NO_TRANSITION))?;
        self.apply_cluster(now, id, &decision);
        Ok(())
    }
}

/// `POST /v2/clusters/{c}/actions/install`
pub(crate) fn install(call: &mut Call<'_>) -> Answer {
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    cluster_of(core, id)?;
    // The real service looks for masters among the open hosts first, and stumbles over one whose memory it does not know.
    for row in core.state.hosts_of_cluster(id) {
        let open = row.host().role.is_none_or(|r| r == HostRole::AutoAssign);
        let memory = row.view.inventory.as_ref().and_then(|i| i.memory.as_ref());
        if open && memory.is_none() {
            return Err(Fail::internal(format!(
                "error occurred while checking if host: {} is a valid master candidate: Inventory is not valid, Memory not detected",
                row.host().id
            )));
        }
    }
    core.derive_machine_networks(now, id);
    core.refresh_interactively(now, id);
    let row = cluster_of(core, id)?;
    // Hosts that are given a role now are looked at one by one before the cluster is; a host is a bad request, the cluster a
    // conflict.
    let hosts = core.state.hosts_of_cluster(id);
    let open = |row: &HostRow| row.host().role.is_none_or(|r| r == HostRole::AutoAssign);
    if hosts.iter().any(|h| open(h)) && hosts.iter().all(|h| h.view.inventory.is_some()) {
        let waiting = hosts.iter().find(|h| h.host().status != HostStatus::Known && !h.view.is_day2());
        if let Some(host) = waiting {
            let name = core.host_name((host.infra_env_id(), host.host().id));
            let status = host.host().status;
            return Err(Fail::bad_request(format!("Host {name} is in status {status} and not ready for install")));
        }
    }
    if row.cluster().status != ClusterStatus::Ready {
        return Err(Fail::conflict(format!(
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
        return Err(Fail::internal(format!("Cluster {id} has no master that could be the bootstrap")));
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
    shown(core, id)
}

impl Core {
    /// The part of an installation's preparation that the service does itself: all files of the cluster.
    pub(crate) fn prepare(&mut self, now: Timestamp, id: Uuid) {
        let Some(row) = self.state.cluster(id).cloned() else { return };
        if row.cluster().status != ClusterStatus::PreparingForInstallation {
            self.state.edit_cluster(id, now, |row| row.private.preparation_due = None);
            self.state.end_unit();
            return;
        }
        let hosts = self.state.hosts_of_cluster(id);
        // The node of a single-node cluster is its own API and ingress.
        if row.view.is_sno()
            && let Some(address) = hosts.first().and_then(|h| node_address(h, &row))
        {
            self.state.edit_cluster(id, now, |row| {
                let c = &mut row.view.cluster;
                let verification: Option<VipVerification> = None;
                c.api_vips = Some(vec![ApiVip { cluster_id: Some(id), ip: Some(address.clone()), verification }]);
                c.ingress_vips = Some(vec![IngressVip { cluster_id: Some(id), ip: Some(address), verification }]);
            });
        }
        let openshift_id = self.state.new_id();
        let result = self.generate(now, id, &hosts);
        match result {
            Ok(files) => {
                let metadata = files.iter().find(|(n, _)| n == "metadata.json").map(|(_, b)| b.as_slice());
                let generated = metadata
                    .and_then(|b| serde_json::from_slice::<serde_json::Value>(b).ok())
                    .and_then(|m| crate::check::parse_uuid(m.get("clusterID")?.as_str()?));
                for (name, bytes) in files {
                    self.state.put_file(format!("{id}/{name}"), bytes);
                }
                self.state.edit_cluster(id, now, |row| {
                    row.private.preparation_due = None;
                    let c = &mut row.view.cluster;
                    c.openshift_cluster_id = Some(generated.unwrap_or(openshift_id));
                    c.last_installation_preparation = Some(LastInstallationPreparation {
                        status: Some("success".into()),
                        reason: Some("Installation preparation successful".into()),
                    });
                });
                let text = "Cluster starting to prepare for installation".to_owned();
                self.cluster_event(now, id, "cluster_prepare_installation_started", Severity::Info, text);
            }
            Err(reason) => {
                self.state.edit_cluster(id, now, |row| {
                    row.private.preparation_due = None;
                    row.view.cluster.last_installation_preparation = Some(LastInstallationPreparation {
                        status: Some("failed".into()),
                        reason: Some(reason.clone()),
                    });
                });
                let text = format!("Failed to prepare the installation due to an unexpected error: {reason}");
                self.cluster_event(now, id, "prepare_installation_failed", Severity::Warning, text);
            }
        }
        self.state.end_unit();
    }

    /// The install config as it would be made now.
    pub(crate) fn preview_install_config(&self, now: Timestamp, row: &ClusterRow) -> Result<String, String> {
        let hosts = self.state.hosts_of_cluster(row.cluster().id);
        let files = self.generate(now, row.cluster().id, &hosts)?;
        let config = files.iter().find(|(name, _)| name == "install-config.yaml");
        config
            .map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned())
            .ok_or_else(|| "no install config was made".to_owned())
    }

    fn generate(&self, now: Timestamp, id: Uuid, hosts: &[Arc<HostRow>]) -> Result<Vec<(String, Vec<u8>)>, String> {
        let row = self.state.cluster(id).ok_or("the cluster vanished")?;
        let names: Vec<String> =
            hosts.iter().map(|h| h.view.hostname().map_or_else(|| h.host().id.to_string(), str::to_owned)).collect();
        let inputs: Vec<HostInput<'_>> = hosts
            .iter()
            .zip(&names)
            .map(|(h, name)| HostInput { host: h.host(), role: h.view.effective_role(), hostname: name })
            .collect();
        let prefix = format!("{id}/manifests/");
        let manifests: Vec<(String, Vec<u8>)> = self
            .state
            .files_under(&prefix)
            .filter_map(|(key, bytes)| Some((key[prefix.len()..].split_once('/')?.1.to_owned(), bytes.to_vec())))
            .collect();
        let input = ArtifactInput {
            cluster: row.cluster(),
            hosts: &inputs,
            pull_secret: &row.private.pull_secret,
            manifests: &manifests,
            seed: row.private.artifact_seed,
            now,
        };
        let files = artifacts::generate(&input).map_err(|e| e.to_string())?;
        let mut files: Vec<(String, Vec<u8>)> = files.into_iter().map(|f| (f.name, f.bytes)).collect();
        // No operator is built in that would bring manifests of its own.
        files.push(("custom_manifests.json".to_owned(), b"[]".to_vec()));
        files.push(("custom_manifests.yaml".to_owned(), Vec::new()));
        Ok(files)
    }
}

/// The address of a single node in its machine network.
fn node_address(host: &HostRow, cluster: &ClusterRow) -> Option<String> {
    let inventory = host.view.inventory.as_ref()?;
    let machine = cluster.view.machine_networks();
    network::addresses(inventory)
        .map(|a| a.addr())
        .find(|a| machine.iter().any(|n| n.contains(a)))
        .map(|a| a.to_string())
}

/// `POST /v2/clusters/{c}/actions/cancel`
pub(crate) fn cancel(call: &mut Call<'_>) -> Answer {
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    cluster_of(core, id)?;
    if let Err(fail) = core.cluster_machine(now, id, ClusterEvent::CancelInstallation) {
        let text = format!("Failed to cancel installation: {}", fail.reason());
        core.cluster_event(now, id, "cancel_installation_failed", Severity::Error, text);
        return Err(fail);
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
    shown(core, id)
}

/// `POST /v2/clusters/{c}/actions/reset`
pub(crate) fn reset(call: &mut Call<'_>) -> Answer {
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    let row = cluster_of(core, id)?;
    let hosts = core.state.hosts_of_cluster(id);
    let refused = |core: &mut Core| {
        let text = format!("Failed to reset installation. Error: {NO_TRANSITION}");
        core.cluster_event(now, id, "reset_installation_failed", Severity::Error, text);
        Err(Fail::conflict(NO_TRANSITION))
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
        let rebooted = host_row.view.stage().is_some_and(|s| vlab_model::validation::HIDING_STAGES.contains(&s));
        core.host_machine(now, key, HostEvent::ResettingPendingUserAction, "");
        let text = format!("Installation reset for host {}", core.host_name(key));
        core.host_event(now, key, "host_installation_reset", Severity::Info, text);
        if rebooted {
            let text = format!("Host {}: boot it from its discovery image to complete the reset", core.host_name(key));
            core.host_event(now, key, "user_required_complete_installation_reset", Severity::Info, text);
        }
    }
    shown(core, id)
}

/// `POST /v2/clusters/{c}/actions/allow-add-hosts`
pub(crate) fn allow_add_hosts(call: &mut Call<'_>) -> Answer {
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    let row = cluster_of(core, id)?;
    if row.cluster().status != ClusterStatus::Installed || row.cluster().kind != "Cluster" {
        return Err(Fail::bad_request(format!(
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
    shown(core, id)
}

/// `POST …/hosts/{h}/actions/install` (hosts of an adding-hosts cluster)
pub(crate) fn install_host(call: &mut Call<'_>) -> Answer {
    let (key, now): (HostKey, _) = ((call.ids[0], call.ids[1]), call.now);
    let core = &mut *call.core;
    let row = find(core, key)?;
    if !row.view.is_day2() {
        return Err(Fail::conflict(format!("Host {} is not of an adding-hosts cluster", key.1)));
    }
    if !core.host_machine(now, key, HostEvent::InstallHost, "") {
        return Err(Fail::conflict(format!(
            "Cannot install host {}: it is {} ({})",
            key.1,
            row.host().status,
            row.host().status_info
        )));
    }
    let text = format!("Host {}: installation started", core.host_name(key));
    core.host_event(now, key, "host_installation_started", Severity::Info, text);
    let row = find(core, key)?;
    Ok(Response::json(202, &core.show_host(&row)))
}

/// `POST …/hosts/{h}/actions/reset` (hosts of an adding-hosts cluster)
pub(crate) fn reset_host(call: &mut Call<'_>) -> Answer {
    let (key, now): (HostKey, _) = ((call.ids[0], call.ids[1]), call.now);
    let core = &mut *call.core;
    let row = find(core, key)?;
    if row.host().cluster_id.is_none() || !row.view.is_day2() {
        return Err(Fail::conflict(format!("ResetHost for host {} is forbidden: not a day-2 host", key.1)));
    }
    if !core.host_machine(now, key, HostEvent::ResettingPendingUserAction, "") {
        return Err(Fail::conflict(NO_TRANSITION));
    }
    let text = format!("Installation reset for host {}", core.host_name(key));
    core.host_event(now, key, "host_installation_reset", Severity::Info, text);
    let row = find(core, key)?;
    Ok(Response::json(200, &core.show_host(&row)))
}
