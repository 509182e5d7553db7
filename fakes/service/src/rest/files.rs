//! Files of clusters over REST.

use vlab_api::http::Response;

use super::RestCall;
use super::answer::{RestResult, attachment};
use crate::commands::{clusters, files};
use crate::refusal::Refusal;

/// Values of `file_name`.
pub(super) const CLUSTER_FILES: &[&str] = &[
    "bootstrap.ign",
    "master.ign",
    "metadata.json",
    "worker.ign",
    "install-config.yaml",
    "custom_manifests.json",
    "custom_manifests.yaml",
    "arbiter.ign",
];

/// `GET …/downloads/files`
pub(super) fn download(call: &mut RestCall<'_>) -> RestResult {
    let name = call.query("file_name").unwrap_or("");
    Ok(attachment(name, &files::of_cluster(call.core, call.ids[0], name)?))
}

/// `GET …/downloads/credentials`
pub(super) fn credential_files(call: &mut RestCall<'_>) -> RestResult {
    let name = call.query("file_name").unwrap_or("");
    Ok(attachment(name, &files::credential_file(call.core, call.ids[0], name)?))
}

/// `GET …/credentials`
pub(super) fn credentials(call: &mut RestCall<'_>) -> RestResult {
    Ok(Response::json(200, &files::credentials(call.core, call.ids[0])?))
}

/// Presigned URLs of a cluster's files need an object store, which there is none of.
pub(super) fn presigned(call: &mut RestCall<'_>) -> RestResult {
    clusters::find(call.core, call.ids[0])?;
    Err(Refusal::invalid("Failed to generate presigned URL: invalid backend").into())
}

/// `GET …/install-config`
pub(super) fn install_config(call: &mut RestCall<'_>) -> RestResult {
    // The file is YAML, this answer has it as JSON.
    let config = files::install_config(call.core, call.now, call.ids[0])?;
    Ok(Response::json(200, &config.to_string()))
}

/// `PATCH …/install-config`
pub(super) fn update_install_config(call: &mut RestCall<'_>) -> RestResult {
    let text = call.text_body("install-config-params")?;
    files::override_install_config(call.core, call.now, call.ids[0], text)?;
    Ok(Response::empty(201))
}
