//! What the in-cluster controller reports: operators, the ingress certificate, the end.

use vlab_api::http::Response;
use vlab_api::types::{ClusterStatus, CompletionParams, MonitoredOperator, OperatorMonitorReport, Severity};
use vlab_model::progress;

use crate::answer::{Answer, Fail};
use crate::router::Call;
use vlab_installer as artifacts;

/// `GET /v2/clusters/{c}/monitored-operators`
pub(crate) fn list(call: &mut Call<'_>) -> Answer {
    // A cluster that is not there has none, as the real service answers.
    let row = call.core.state.cluster(call.ids[0]);
    let all = row.and_then(|row| row.cluster().monitored_operators.clone()).unwrap_or_default();
    match call.query("operator_name").filter(|n| !n.is_empty()) {
        None => Ok(Response::json(200, &all)),
        Some(name) => {
            let found: Vec<MonitoredOperator> = all.into_iter().filter(|o| o.name.as_deref() == Some(name)).collect();
            if found.is_empty() {
                return Err(Fail::not_found("record not found"));
            }
            Ok(Response::json(200, &found))
        }
    }
}

/// `PUT /v2/clusters/{c}/monitored-operators`
pub(crate) fn report(call: &mut Call<'_>) -> Answer {
    let params: OperatorMonitorReport = call.body("report-params")?;
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    let row = core.state.cluster(id).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    let name = params.name.clone().unwrap_or_default();
    let Some(old) = row.cluster().monitored_operators.iter().flatten().find(|o| o.name.as_deref() == Some(&name))
    else {
        return Err(if name.is_empty() {
            Fail::bad_request("empty operator name is not allowed")
        } else {
            Fail::not_found("record not found")
        });
    };
    let same = old.status == params.status
        && old.status_info.as_deref().unwrap_or("") == params.status_info.as_deref().unwrap_or("")
        && (params.version.is_none() || old.version == params.version);
    if same {
        return Ok(Response::empty(200));
    }
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
        progress::set_percentages(c.progress.get_or_insert_default(), None, None, Some(done));
    });
    let status = params.status.map_or("", |s| s.as_str());
    let text = format!("Operator {name} status: {status} message: {}", params.status_info.unwrap_or_default());
    core.cluster_event(now, id, "cluster_operator_status", Severity::Info, text);
    Ok(Response::empty(200))
}

/// `POST /v2/clusters/{c}/uploads/ingress-cert`
pub(crate) fn ingress_cert(call: &mut Call<'_>) -> Answer {
    let pem = call.text_body("ingress-cert-params")?;
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    let row = core.state.cluster(id).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    let status = row.cluster().status;
    if !matches!(status, ClusterStatus::Finalizing | ClusterStatus::Installed) {
        return Err(Fail::bad_request(format!(
            "Cluster {id} is in {status} state, upload ingress ca can be done only in finalizing or installed state"
        )));
    }
    let key = format!("{id}/kubeconfig");
    if core.state.file(&key).is_some() {
        return Ok(Response::empty(201));
    }
    let Some(base) = core.state.file(&format!("{id}/kubeconfig-noingress")).cloned() else {
        return Err(Fail::conflict("kubeconfig-noingress was not found"));
    };
    let merged = artifacts::merge_ingress_cert(&base, &pem).map_err(|e| Fail::internal(e.to_string()))?;
    core.state.put_file(key, merged);
    core.state.edit_cluster(id, now, |row| row.view.kubeconfig_uploaded = true);
    Ok(Response::empty(201))
}

/// `POST /v2/clusters/{c}/actions/complete-installation`: the service decides on its own when an installation is complete;
/// only a report about a failed one leaves a trace.
pub(crate) fn complete(call: &mut Call<'_>) -> Answer {
    let params: CompletionParams = call.body("completion-params")?;
    let (id, now) = (call.ids[0], call.now);
    if call.core.state.cluster(id).is_none() {
        return Err(Fail::not_found("record not found"));
    }
    if !params.is_success
        && let Some(report) = params.data.as_ref().and_then(|d| d.get("CLUSTER_OPERATORS_REPORT"))
    {
        let text = format!("Cluster operators report: {report}");
        call.core.cluster_event(now, id, "cluster_operator_report", Severity::Info, text);
    }
    let shown = call.core.show_cluster(id, true).ok_or_else(|| Fail::not_found("record not found"))?;
    Ok(Response::json(202, &shown))
}
