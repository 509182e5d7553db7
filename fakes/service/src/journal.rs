//! Writing events.

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, Event, Host, HostStatus, Severity};

use crate::Core;
use crate::state::{HostKey, user_event};

/// The events that the service writes by itself.
pub(crate) const EVENTS: &[&str] = &[
    "api_ingress_vip_timed_out",
    "api_ingress_vip_updated",
    "cancel_installation_failed",
    "cluster_deregistered",
    "cluster_finalizing_stage_updated",
    "cluster_installation_canceled",
    "cluster_installation_completed",
    "cluster_installation_failed",
    "cluster_installation_reset",
    "cluster_logs_uploaded",
    "cluster_operator_report",
    "cluster_operator_status",
    "cluster_prepare_installation_started",
    "cluster_registration_succeeded",
    "cluster_status_updated",
    "cluster_validation_failed",
    "cluster_validation_fixed",
    "disk_speed_slower_than_supported",
    "finalizing_stage_timed_out",
    "host_bind_failed",
    "host_bind_succeeded",
    "host_bootstrap_set",
    "host_cancel_installation_failed",
    "host_deregistered",
    "host_discovery_ignition_config_applied",
    "host_install_progress_updated",
    "host_installation_cancelled",
    "host_installation_reset",
    "host_installation_started",
    "host_installer_args_applied",
    "host_logs_uploaded",
    "host_media_disconnected",
    "host_registration_failed",
    "host_registration_succeeded",
    "host_role_updated",
    "host_stage_timed_out",
    "host_status_updated",
    "host_unbind_succeeded",
    "host_validation_failed",
    "host_validation_fixed",
    "image_info_updated",
    "image_status_updated",
    "infra_env_deregister_failed",
    "infra_env_deregistered",
    "infra_env_registered",
    "infra_env_registration_failed",
    "install_config_applied",
    "installation_preparing_timed_out",
    "prepare_installation_failed",
    "proxy_settings_changed",
    "quick_disk_format_performed",
    "quick_disk_format_skipped",
    "reset_installation_failed",
    "upgrade_agent_failed",
    "upgrade_agent_finished",
    "upgrade_agent_started",
    "user_required_complete_installation_reset",
    "validations_ignored",
];

impl Core {
    /// Writes an event about a cluster.
    pub(crate) fn cluster_event(&mut self, now: Timestamp, id: Uuid, name: &str, severity: Severity, message: String) {
        let event = user_event(now, name, severity, message);
        self.state.append_event(Event { cluster_id: Some(id), ..event });
    }

    /// Writes an event about an infra-env.
    pub(crate) fn infra_env_event(
        &mut self,
        now: Timestamp,
        id: Uuid,
        name: &str,
        severity: Severity,
        message: String,
    ) {
        // Also when it is bound to a cluster: the cluster's list does not tell of it.
        let event = user_event(now, name, severity, message);
        self.state.append_event(Event { infra_env_id: Some(id), ..event });
    }

    /// Writes an event about a host.
    pub(crate) fn host_event(&mut self, now: Timestamp, key: HostKey, name: &str, severity: Severity, message: String) {
        let cluster_id = self.state.host(key).and_then(|r| r.host().cluster_id);
        let event = user_event(now, name, severity, message);
        self.state.append_event(Event { infra_env_id: Some(key.0), host_id: Some(key.1), cluster_id, ..event });
    }

    /// Name of a host in events.
    pub(crate) fn host_name(&self, key: HostKey) -> String {
        self.state.host(key).and_then(|r| r.view.hostname().map(str::to_owned)).unwrap_or_else(|| key.1.to_string())
    }

    /// `host_status_updated`
    pub(crate) fn host_status_event(&mut self, now: Timestamp, key: HostKey, from: HostStatus, to: &Host) {
        let message =
            format!("Host {}: updated status from {from} to {} ({})", self.host_name(key), to.status, to.status_info);
        let severity = vlab_model::event::of_status(to.status);
        self.host_event(now, key, "host_status_updated", severity, message);
    }

    /// `cluster_status_updated`
    pub(crate) fn cluster_status_event(&mut self, now: Timestamp, id: Uuid, to: ClusterStatus, info: &str) {
        let message = format!("Updated status of the cluster to {to} ({info})");
        self.cluster_event(now, id, "cluster_status_updated", Severity::Info, message);
    }
}
