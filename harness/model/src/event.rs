//! Events: how serious the service takes each.

use vlab_api::types::{HostStatus, Severity};

/// Name and severity of events, as the real service's own list of events has them (`docs/events.yaml`). That of `host_status_updated`
/// is [another one for each status](of_status).
pub const SEVERITIES: &[(&str, Severity)] = {
    use Severity::*;
    &[
        ("api_ingress_vip_timed_out", Warning),
        ("api_ingress_vip_updated", Info),
        ("cancel_installation_failed", Error),
        ("cluster_deregistered", Info),
        ("cluster_finalizing_stage_updated", Info),
        ("cluster_installation_canceled", Info),
        ("cluster_installation_completed", Info),
        ("cluster_installation_failed", Critical),
        ("cluster_installation_reset", Info),
        ("cluster_logs_uploaded", Info),
        ("cluster_operator_report", Info),
        ("cluster_operator_status", Info),
        ("cluster_prepare_installation_started", Info),
        ("cluster_registration_succeeded", Info),
        ("cluster_status_updated", Info),
        ("cluster_validation_failed", Warning),
        ("cluster_validation_fixed", Info),
        ("disk_speed_slower_than_supported", Warning),
        ("finalizing_stage_timed_out", Warning),
        ("host_bind_failed", Error),
        ("host_bind_succeeded", Info),
        ("host_bootstrap_set", Info),
        ("host_cancel_installation_failed", Error),
        ("host_deregistered", Info),
        ("host_discovery_ignition_config_applied", Info),
        ("host_install_progress_updated", Info),
        ("host_installation_cancelled", Info),
        ("host_installation_reset", Info),
        ("host_installation_started", Info),
        ("host_installer_args_applied", Info),
        ("host_logs_uploaded", Info),
        ("host_media_disconnected", Error),
        ("host_registration_failed", Error),
        ("host_registration_succeeded", Info),
        ("host_role_updated", Info),
        ("host_stage_timed_out", Warning),
        ("host_unbind_failed", Error),
        ("host_unbind_succeeded", Info),
        ("host_validation_failed", Warning),
        ("host_validation_fixed", Info),
        ("image_info_updated", Info),
        ("image_status_updated", Info),
        ("infra_env_deregister_failed", Error),
        ("infra_env_deregistered", Info),
        ("infra_env_registered", Info),
        ("infra_env_registration_failed", Error),
        ("install_config_applied", Info),
        ("installation_preparing_timed_out", Warning),
        ("prepare_installation_failed", Warning),
        ("proxy_settings_changed", Info),
        ("quick_disk_format_performed", Info),
        ("quick_disk_format_skipped", Info),
        ("reset_installation_failed", Error),
        ("upgrade_agent_failed", Error),
        ("upgrade_agent_finished", Info),
        ("upgrade_agent_started", Info),
        ("user_required_complete_installation_reset", Info),
        ("validations_ignored", Info),
        (OF_OTHERS, Info),
    ]
};

/// The event of a host's new status.
const HOST_STATUS: &str = "host_status_updated";

/// An event that the controller sends and the service only keeps.
const OF_OTHERS: &str = "reboots_for_node";

/// An event of the list that the service never writes: only a host that is `resetting` would cause it, and no host comes to that.
const NEVER_WRITTEN: &str = "user_required_complete_installation_reset";

/// Names of the events that the service writes by itself.
pub fn written() -> impl Iterator<Item = &'static str> {
    let names = SEVERITIES.iter().map(|(name, _)| *name).filter(|name| ![OF_OTHERS, NEVER_WRITTEN].contains(name));
    names.chain([HOST_STATUS])
}

/// Severity of an event of that name; `None` for one that the list does not have.
pub fn severity(name: &str) -> Option<Severity> {
    SEVERITIES.iter().find(|(known, _)| *known == name).map(|(_, severity)| *severity)
}

/// Severity of `host_status_updated` for the new status.
pub fn of_status(status: HostStatus) -> Severity {
    match status {
        HostStatus::Disconnected | HostStatus::Insufficient | HostStatus::InstallingPendingUserAction => {
            Severity::Warning
        }
        HostStatus::Error => Severity::Error,
        _ => Severity::Info,
    }
}
