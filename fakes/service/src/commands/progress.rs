//! Reports of progress: installation stages of hosts, finalizing stages of clusters.

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, FinalizingStage, HostProgress, HostStage, HostStatus, Severity};
use vlab_model::host::{EventArgs, HostEvent};
use vlab_model::stages::{self, Report};
use vlab_model::view::{HostView, Scope};
use vlab_model::{host as machine, progress as percentages};

use super::{clusters, infra_envs};
use crate::Core;
use crate::alteration::Conduct;
use crate::refusal::Refusal;
use crate::state::HostKey;

/// A host reports a stage of its installation.
pub(crate) fn report_host(core: &mut Core, now: Timestamp, key: HostKey, report: HostProgress) -> Result<(), Refusal> {
    let row = core.state.host(key).cloned().ok_or_else(|| Refusal::not_found(format!("host {} not found", key.1)))?;
    let Some(cluster_id) = row.host().cluster_id else {
        return Err(Refusal::invalid(format!("host {} is not bound to any cluster, can't update its progress", key.1)));
    };
    let Some(reported) = report.current_stage else {
        // No stage is the stage of a host that has none yet: nothing to do.
        return Ok(());
    };
    let info = report.progress_info.unwrap_or_default();
    let progress = row.host().progress.clone().unwrap_or_default();
    let current = progress.current_stage.map(|s| (s, progress.progress_info.as_deref().unwrap_or("")));
    let cluster = core.state.cluster(cluster_id).cloned();
    let role = stages::role_of(&row.view, cluster.as_ref().map(|c| &c.view), core.has_controllers);
    // A host of day 2 that reboots is done: whatever its stage is, that is its last one. Over Kubernetes controllers follow it.
    let stage = stages::stored_stage(reported, row.view.is_day2(), core.has_controllers);
    let judged = match stage == reported {
        true => stages::judge(role, current, reported, &info),
        false => Report::Accepted { percentage: 100 },
    };
    let judged = match judged {
        Report::Lower { .. } if core.does(Conduct::LowerStageTaken) => Report::Accepted { percentage: 1 },
        Report::NotOfRole { .. } if core.does(Conduct::StageOfAnotherRoleTaken) => Report::Accepted { percentage: 1 },
        Report::Failed if core.does(Conduct::FailureNotNoticed) => Report::InfoOnly,
        Report::Accepted { percentage } if core.does(Conduct::HostPercentage) => {
            Report::Accepted { percentage: percentage - 1 }
        }
        Report::Accepted { .. } if core.does(Conduct::StageNotNoted) => Report::Same,
        judged => judged,
    };
    let status = row.host().status;
    let installs = matches!(
        status,
        HostStatus::Installing | HostStatus::InstallingInProgress | HostStatus::InstallingPendingUserAction
    );
    let percentage = match judged {
        // The stage that it has already is taken whatever its status, and changes nothing but the words.
        Report::Same => return Ok(()),
        Report::InfoOnly => {
            note_info(core, now, key, reported, &info);
            return Ok(());
        }
        _ if !installs => {
            return Err(Refusal::conflict(format!("Can't set progress <{reported}> to host in status <{status}>")));
        }
        Report::Lower { current } => {
            return Err(Refusal::conflict(format!(
                "Can't assign lower stage \"{reported}\" after host has been in stage \"{current}\""
            )));
        }
        Report::NotOfRole { .. } => {
            return Err(Refusal::conflict(format!(
                "Stages {reported} isn't available for host role {} bootstrap {}",
                row.view.effective_role(),
                row.view.is_bootstrap()
            )));
        }
        Report::Failed => {
            if let Some(decision) = machine::installation_failed(&row.view, &info) {
                core.apply_host(now, key, &decision);
            }
            // The stage stays what it was, but the report is told.
            tell(core, now, key, reported, &info);
            core.update_installing_percentage(now, cluster_id);
            return Ok(());
        }
        Report::Accepted { percentage } => percentage,
    };
    let infra_env = infra_envs::find(core, key.0)?;
    let (cluster, hosts) = core.neighbours(&row);
    let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
    let scope = Scope { infra_env: &infra_env.infra_env, cluster: cluster.as_ref().map(|c| &c.view), hosts: &views };
    let args = EventArgs {
        stage: Some(stage),
        kube_api: core.has_controllers,
        wrong: core.hosts_wrong(),
        ..EventArgs::default()
    };
    let decision =
        machine::on_event(HostEvent::HostProgressChanged, &row.view, &scope, &core.config.settings, now, &args)
            .map_err(|e| Refusal::conflict(e.to_string()))?;
    core.state.edit_host(key, now, |row| {
        let p = row.view.host.progress.get_or_insert_default();
        p.progress_info = (!info.is_empty()).then(|| info.clone());
        p.stage_updated_at = Some(now);
        p.stage_timed_out = None;
        p.current_stage = Some(stage);
        p.stage_started_at = Some(now);
        p.installation_percentage = (percentage != 0).then_some(percentage);
    });
    core.apply_host(now, key, &decision);
    tell(core, now, key, reported, &info);
    core.update_installing_percentage(now, cluster_id);
    Ok(())
}

/// New words beside a stage that the host has already.
fn note_info(core: &mut Core, now: Timestamp, key: HostKey, stage: HostStage, info: &str) {
    core.state.edit_host(key, now, |row| {
        let p = row.view.host.progress.get_or_insert_default();
        p.progress_info = (!info.is_empty()).then(|| info.to_owned());
        p.stage_updated_at = Some(now);
    });
    tell(core, now, key, stage, info);
}

/// Every report that changed something is an event: each percentage of the image too, not only a new stage.
fn tell(core: &mut Core, now: Timestamp, key: HostKey, stage: HostStage, info: &str) {
    let text = progress_text(&core.host_name(key), stage, info);
    core.host_event(now, key, "host_install_progress_updated", Severity::Info, text);
}

/// What the event about a report of progress says.
fn progress_text(name: &str, stage: HostStage, info: &str) -> String {
    match info {
        "" => format!("Host: {name}, reached installation stage {stage}"),
        info => format!("Host: {name}, reached installation stage {stage}: {info}"),
    }
}

impl Core {
    /// Stages that the cluster's hosts reached, of all that they have. A cluster that only takes more hosts has no progress.
    fn update_installing_percentage(&mut self, now: Timestamp, id: Uuid) {
        let Some(cluster) = self.state.cluster(id).cloned() else { return };
        if cluster.cluster().kind == "AddHostsCluster" {
            return;
        }
        let hosts = self.state.hosts_of_cluster(id);
        let reached = hosts
            .iter()
            .map(|h| (stages::role_stages(&h.view, Some(&cluster.view), self.has_controllers), h.view.stage()));
        let percentage = match percentages::installing_percentage(reached) {
            _ if self.does(Conduct::InstallingPercentageStands) => return,
            more if more > 50 && self.does(Conduct::InstallingPercentageGoesBack) => 100 - more,
            percentage => percentage,
        };
        self.state.edit_cluster(id, now, |row| {
            percentages::set_percentages(
                row.view.cluster.progress.get_or_insert_default(),
                None,
                Some(percentage),
                None,
            );
        });
    }
}

/// The controller reports a stage of the cluster's completion.
pub(crate) fn report_finalizing(
    core: &mut Core,
    now: Timestamp,
    id: Uuid,
    stage: Option<FinalizingStage>,
) -> Result<(), Refusal> {
    let row = clusters::find(core, id)?;
    let status = row.cluster().status;
    if !matches!(
        status,
        ClusterStatus::Installing | ClusterStatus::Finalizing | ClusterStatus::InstallingPendingUserAction
    ) {
        return Err(Refusal::invalid(format!(
            "cluster is {status}, not in one of allowed statuses: [installing finalizing installing-pending-user-action]"
        )));
    }
    let Some(stage) = stage else {
        return Err(Refusal::invalid("finalizing_stage is missing"));
    };
    if row.cluster().progress.as_ref().and_then(|p| p.finalizing_stage) == Some(stage) {
        return Ok(());
    }
    if core.does(Conduct::FinalizingStageNotNoted) {
        return Ok(());
    }
    core.state.edit_cluster(id, now, |row| {
        let p = row.view.cluster.progress.get_or_insert_default();
        p.finalizing_stage = Some(stage);
        p.finalizing_stage_started_at = Some(now);
        p.finalizing_stage_timed_out = None;
    });
    let text = format!("Updated finalizing stage of the cluster to '{stage}'");
    core.cluster_event(now, id, "cluster_finalizing_stage_updated", Severity::Info, text);
    Ok(())
}
