//! What the in-cluster controller reports: operators, the ingress certificate, the end.

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, CompletionParams, OperatorMonitorReport, OperatorStatus, Severity};
use vlab_installer::merge_ingress_cert;
use vlab_model::progress;

use super::clusters;
use crate::Core;
use crate::alteration::Conduct;
use crate::refusal::Refusal;

/// The state of an operator of the cluster.
pub(crate) fn report(core: &mut Core, now: Timestamp, id: Uuid, params: &OperatorMonitorReport) -> Result<(), Refusal> {
    let row = clusters::find(core, id)?;
    let name = params.name.clone().unwrap_or_default();
    let Some(old) = row.cluster().monitored_operators.iter().flatten().find(|o| o.name.as_deref() == Some(&name))
    else {
        return Err(if name.is_empty() {
            Refusal::invalid("empty operator name is not allowed")
        } else {
            Refusal::no_record()
        });
    };
    let same = old.status == params.status
        && old.status_info.as_deref().unwrap_or("") == params.status_info.as_deref().unwrap_or("")
        && (params.version.is_none() || old.version == params.version);
    if same || core.does(Conduct::OperatorsNotNoted) {
        return Ok(());
    }
    let worth_nothing = core.does(Conduct::FinalizingPercentage);
    core.state.edit_cluster(id, now, |row| {
        let c = &mut row.view.cluster;
        for operator in c.monitored_operators.iter_mut().flatten().filter(|o| o.name.as_deref() == Some(&name)) {
            operator.status = params.status;
            operator.status_info.clone_from(&params.status_info);
            operator.status_updated_at = Some(now);
            if params.version.is_some() {
                operator.version.clone_from(&params.version);
            }
        }
        let done = progress::finalizing_percentage(c.monitored_operators.as_deref().unwrap_or(&[]));
        let done = (!worth_nothing).then_some(done);
        let shown = c.progress.get_or_insert_default();
        let mut now = shown.clone();
        progress::set_percentages(&mut now, None, None, done);
        // An operator that is not available any more takes nothing back.
        if now.total_percentage >= shown.total_percentage {
            *shown = now;
        }
    });
    let status = params.status.map_or("", |s| s.as_str());
    let text =
        format!("Operator {name} status: {status} message: {}", params.status_info.as_deref().unwrap_or_default());
    core.cluster_event(now, id, "cluster_operator_status", Severity::Info, text);
    Ok(())
}

/// The certificate of the cluster's ingress, which goes into the kubeconfig.
pub(crate) fn take_ingress_cert(core: &mut Core, now: Timestamp, id: Uuid, pem: &str) -> Result<(), Refusal> {
    let row = clusters::find(core, id)?;
    let status = row.cluster().status;
    if !matches!(status, ClusterStatus::Finalizing | ClusterStatus::Installed) {
        return Err(Refusal::invalid(format!(
            "Cluster {id} is in {status} state, upload ingress ca can be done only in finalizing or installed state"
        )));
    }
    let key = format!("{id}/kubeconfig");
    if core.state.file(&key).is_some() || core.does(Conduct::KubeconfigNotCompleted) {
        return Ok(());
    }
    let Some(base) = core.state.file(&format!("{id}/kubeconfig-noingress")).cloned() else {
        return Err(Refusal::conflict("kubeconfig-noingress was not found"));
    };
    let merged = merge_ingress_cert(&base, pem).map_err(|e| Refusal::internal(e.to_string()))?;
    core.state.put_file(key, merged);
    core.state.edit_cluster(id, now, |row| row.view.kubeconfig_uploaded = true);
    Ok(())
}

/// The controller is through. The service decides on its own when an installation is complete; only a report about a failed
/// one leaves a trace.
pub(crate) fn complete(core: &mut Core, now: Timestamp, id: Uuid, params: &CompletionParams) -> Result<(), Refusal> {
    clusters::find(core, id)?;
    if !params.is_success
        && let Some(report) = params.data.as_ref().and_then(|d| d.get("CLUSTER_OPERATORS_REPORT"))
        // A report of another form is ignored.
        && let Ok(operators) = serde_json::from_value::<Vec<OperatorMonitorReport>>(report.clone())
    {
        let failed = operators.into_iter().filter(|operator| operator.status == Some(OperatorStatus::Failed));
        let names: Vec<String> = failed.filter_map(|operator| operator.name).collect();
        let text = format!("The following operators are experiencing issues: {}", names.join(", "));
        core.cluster_event(now, id, "cluster_operator_report", Severity::Info, text);
    }
    Ok(())
}
