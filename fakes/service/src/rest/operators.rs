//! What the in-cluster controller says over REST.

use vlab_api::http::Response;
use vlab_api::types::{CompletionParams, MonitoredOperator, OperatorMonitorReport};

use super::RestCall;
use super::answer::RestResult;
use super::clusters::shown;
use crate::commands::operators;
use crate::refusal::Refusal;

/// `GET /v2/clusters/{c}/monitored-operators`
pub(super) fn list(call: &mut RestCall<'_>) -> RestResult {
    // A cluster that is not there has none, as the real service answers.
    let row = call.core.state.cluster(call.ids[0]);
    let all = row.and_then(|row| row.cluster().monitored_operators.clone()).unwrap_or_default();
    match call.query("operator_name").filter(|n| !n.is_empty()) {
        None => Ok(Response::json(200, &all)),
        Some(name) => {
            let found: Vec<MonitoredOperator> = all.into_iter().filter(|o| o.name.as_deref() == Some(name)).collect();
            if found.is_empty() {
                return Err(Refusal::no_record().into());
            }
            Ok(Response::json(200, &found))
        }
    }
}

/// `PUT /v2/clusters/{c}/monitored-operators`
pub(super) fn report(call: &mut RestCall<'_>) -> RestResult {
    let params: OperatorMonitorReport = call.body("report-params")?;
    operators::report(call.core, call.now, call.ids[0], &params)?;
    Ok(Response::empty(200))
}

/// `POST /v2/clusters/{c}/uploads/ingress-cert`
pub(super) fn ingress_cert(call: &mut RestCall<'_>) -> RestResult {
    let pem = call.text_body("ingress-cert-params")?;
    operators::take_ingress_cert(call.core, call.now, call.ids[0], &pem)?;
    Ok(Response::empty(201))
}

/// `POST /v2/clusters/{c}/actions/complete-installation`
pub(super) fn complete(call: &mut RestCall<'_>) -> RestResult {
    let params: CompletionParams = call.body("completion-params")?;
    operators::complete(call.core, call.now, call.ids[0], &params)?;
    shown(call.core, call.ids[0], 202)
}
