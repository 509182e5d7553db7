//! Clusters over REST.

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::Response;
use vlab_api::types::{
    Cluster, ClusterCreateParams, DisconnectedClusterCreateParams, IgnoredValidations, ImportClusterParams,
    V2ClusterUpdateParams,
};

use super::RestCall;
use super::answer::RestResult;
use crate::Core;
use crate::commands::clusters;
use crate::refusal::Refusal;

/// A cluster with its hosts.
pub(super) fn shown(core: &Core, id: Uuid, status: u16) -> RestResult {
    let cluster = core.show_cluster(id, true).ok_or_else(Refusal::no_record)?;
    Ok(Response::object(status, cluster))
}

/// `POST /v2/clusters`
pub(super) fn create(call: &mut RestCall<'_>) -> RestResult {
    let params: ClusterCreateParams = call.body("new-cluster-params")?;
    let id = clusters::create(call.core, call.now, params)?;
    let mut cluster = call.core.show_cluster(id, true).ok_or_else(|| clusters::missing(id))?;
    // The date comes with storing; the first answer does not have it yet.
    cluster.image_info.created_at = Some(Timestamp::UNSET);
    Ok(Response::json(201, &cluster))
}

/// `GET /v2/clusters`
pub(super) fn list(call: &mut RestCall<'_>) -> RestResult {
    let with_hosts = call.query_flag("with_hosts");
    let openshift = call.query_id("openshift_cluster_id");
    let owner = call.query("owner").filter(|o| !o.is_empty());
    let ids: Vec<Uuid> = call
        .core
        .state
        .clusters()
        .iter()
        .filter(|r| openshift.is_none_or(|o| r.cluster().openshift_cluster_id == Some(o)))
        .filter(|r| owner.is_none_or(|o| r.cluster().user_name.as_deref() == Some(o)))
        .map(|r| r.cluster().id)
        .collect();
    let clusters: Vec<Cluster> = ids.into_iter().filter_map(|id| call.core.show_cluster(id, with_hosts)).collect();
    Ok(Response::json(200, &clusters))
}

/// `GET /v2/clusters/{c}`
pub(super) fn get(call: &mut RestCall<'_>) -> RestResult {
    let with_hosts = !call.query_flag("exclude-hosts");
    let cluster = call.core.show_cluster(call.ids[0], with_hosts).ok_or_else(Refusal::no_record)?;
    Ok(Response::object(200, cluster))
}

/// `DELETE /v2/clusters/{c}`
pub(super) fn delete(call: &mut RestCall<'_>) -> RestResult {
    clusters::delete(call.core, call.now, call.ids[0])?;
    Ok(Response::empty(204))
}

/// `PATCH /v2/clusters/{c}`
pub(super) fn update(call: &mut RestCall<'_>) -> RestResult {
    let patch: V2ClusterUpdateParams = call.body("cluster-update-params")?;
    clusters::update(call.core, call.now, call.ids[0], &patch)?;
    shown(call.core, call.ids[0], 201)
}

/// `POST /v2/clusters/import`
pub(super) fn import(call: &mut RestCall<'_>) -> RestResult {
    let params: ImportClusterParams = call.body("new-import-cluster-params")?;
    let id = clusters::import(call.core, call.now, params);
    shown(call.core, id, 201)
}

/// `POST /v2/clusters/disconnected`
pub(super) fn disconnected(call: &mut RestCall<'_>) -> RestResult {
    let params: DisconnectedClusterCreateParams = call.body("new-cluster-params")?;
    let id = clusters::create_disconnected(call.core, call.now, params);
    shown(call.core, id, 201)
}

fn show_ignored_validations(call: &RestCall<'_>, status: u16) -> RestResult {
    let row = clusters::find(call.core, call.ids[0])?;
    let ignored = IgnoredValidations {
        cluster_validation_ids: row.cluster().ignored_cluster_validations.clone(),
        host_validation_ids: row.cluster().ignored_host_validations.clone(),
    };
    Ok(Response::json(status, &ignored))
}

/// `GET …/ignored-validations`
pub(super) fn ignored_validations(call: &mut RestCall<'_>) -> RestResult {
    show_ignored_validations(call, 200)
}

/// `PUT …/ignored-validations`
pub(super) fn set_ignored_validations(call: &mut RestCall<'_>) -> RestResult {
    let params: IgnoredValidations = call.body("ignored_validations")?;
    clusters::set_ignored_validations(call.core, call.now, call.ids[0], &params)?;
    show_ignored_validations(call, 201)
}

/// `GET …/ui-settings`
pub(super) fn ui_settings(call: &mut RestCall<'_>) -> RestResult {
    let row = clusters::find(call.core, call.ids[0])?;
    Ok(Response::json(200, &row.private.ui_settings))
}

/// `PUT …/ui-settings`
pub(super) fn set_ui_settings(call: &mut RestCall<'_>) -> RestResult {
    let text = call.text_body("ui-settings")?;
    clusters::set_ui_settings(call.core, call.now, call.ids[0], &text)?;
    Ok(Response::json(200, &text))
}
