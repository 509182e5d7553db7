//! Manifests over REST.

use vlab_api::http::Response;
use vlab_api::types::{CreateManifestParams, UpdateManifestParams};

use super::RestCall;
use super::answer::{RestResult, attachment};
use crate::commands::manifests;

/// `GET …/manifests`
pub(super) fn list(call: &mut RestCall<'_>) -> RestResult {
    let with_systems = call.query("include_system_generated") == Some("true");
    Ok(Response::json(200, &manifests::list(call.core, call.ids[0], with_systems)?))
}

/// `POST …/manifests`
pub(super) fn create(call: &mut RestCall<'_>) -> RestResult {
    let params: CreateManifestParams = call.body("CreateManifestParams")?;
    Ok(Response::json(201, &manifests::create(call.core, call.now, call.ids[0], &params)?))
}

/// `PATCH …/manifests`
pub(super) fn update(call: &mut RestCall<'_>) -> RestResult {
    let params: UpdateManifestParams = call.body("UpdateManifestParams")?;
    Ok(Response::json(200, &manifests::update(call.core, call.ids[0], &params)?))
}

/// `DELETE …/manifests`
pub(super) fn delete(call: &mut RestCall<'_>) -> RestResult {
    let folder = call.query("folder").filter(|f| !f.is_empty()).map(str::to_owned);
    let name = call.query("file_name").unwrap_or("").to_owned();
    manifests::delete(call.core, call.now, call.ids[0], (folder.as_deref(), &name))?;
    Ok(Response::empty(200))
}

/// `GET …/manifests/files`
pub(super) fn download(call: &mut RestCall<'_>) -> RestResult {
    let folder = call.query("folder").filter(|f| !f.is_empty());
    let name = call.query("file_name").unwrap_or("");
    Ok(attachment(name, &manifests::content(call.core, call.ids[0], folder, name)?))
}
