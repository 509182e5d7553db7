//! Manifests that the user adds to a cluster. Kept as files under `manifests/user/`.

use base64::Engine as _;
use uuid::Uuid;
use vlab_api::http::Response;
use vlab_api::types::{CreateManifestParams, Manifest, UpdateManifestParams};

use crate::Core;
use crate::answer::{Answer, Fail, attachment};
use crate::router::Call;

const DEFAULT_FOLDER: &str = "manifests";

fn key(id: Uuid, folder: &str, name: &str) -> String {
    format!("{id}/manifests/user/{folder}/{name}")
}

/// Manifests are taken in every state, also when it is too late for them to matter.
fn check_cluster(core: &Core, id: Uuid) -> Result<(), Fail> {
    let missing = || Fail::not_found(format!("Object Not Found: cluster {id} was not found"));
    core.state.cluster(id).map(|_| ()).ok_or_else(missing)
}

fn check_name(id: Uuid, name: &str) -> Result<(), Fail> {
    let patch = name.split_once(".yaml.patch_").or_else(|| name.split_once(".yml.patch_")).is_some();
    let known = [".json", ".yaml", ".yml"].iter().any(|e| name.ends_with(e)) || patch;
    if name.contains(' ') {
        return Err(Fail::Error(
            422,
            format!("Cluster manifest {name} for cluster {id} should not include a space in its name."),
        ));
    }
    if name.contains('/') || name.starts_with('.') || name.is_empty() {
        return Err(Fail::bad_request(format!(
            "Cluster manifest {name}: the file name must be a single component without spaces"
        )));
    }
    if !known {
        return Err(Fail::bad_request(format!(
            "Unsupported manifest extension {name}: it must be json, yaml, yml or a patch"
        )));
    }
    Ok(())
}

fn check_content(name: &str, encoded: &str) -> Result<Vec<u8>, Fail> {
    const LIMIT: usize = 1024 * 1024;
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .map_err(|_| Fail::bad_request(format!("failed to base64-decode cluster manifest content of {name}")))?;
    if bytes.is_empty() {
        return Err(Fail::bad_request(format!("Manifest content of file {name} is empty")));
    }
    if bytes.len() > LIMIT {
        return Err(Fail::bad_request(format!(
            "Manifest content of file {name} exceeds the maximum file size of 1MiB"
        )));
    }
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Fail::bad_request(format!("Manifest content of file {name} is not text")))?;
    let valid = if name.ends_with(".json") {
        serde_json::from_str::<serde_json::Value>(text).is_ok()
    } else {
        use serde::Deserialize as _;
        serde_yaml::Deserializer::from_str(text).all(|d| serde_yaml::Value::deserialize(d).is_ok())
    };
    if !valid {
        let kind = if name.ends_with(".json") { "JSON" } else { "YAML" };
        return Err(Fail::bad_request(format!("Manifest content of file {name} has an invalid {kind} format")));
    }
    Ok(bytes)
}

fn note_custom_manifests(call: &mut Call<'_>, id: Uuid) {
    let any = call.core.state.files_under(&format!("{id}/manifests/user/")).next().is_some();
    call.core.state.edit_cluster(id, call.now, |row| row.view.has_custom_manifests = any);
}

fn manifest(folder: &str, name: &str) -> Manifest {
    Manifest { folder: Some(folder.into()), file_name: Some(name.into()), manifest_source: Some("user".into()) }
}

/// `GET …/manifests`; there are none of the system's, so asking for them changes nothing.
pub(crate) fn list(call: &mut Call<'_>) -> Answer {
    let id = call.ids[0];
    check_cluster(call.core, id)?;
    let prefix = format!("{id}/manifests/user/");
    let keys = call.core.state.files_under(&prefix).filter_map(|(k, _)| k[prefix.len()..].split_once('/'));
    let list: Vec<Manifest> = keys.map(|(folder, name)| manifest(folder, name)).collect();
    Ok(Response::json(200, &list))
}

/// `POST …/manifests`
pub(crate) fn create(call: &mut Call<'_>) -> Answer {
    let p: CreateManifestParams = call.body("CreateManifestParams")?;
    let id = call.ids[0];
    check_cluster(call.core, id)?;
    check_name(id, &p.file_name)?;
    let bytes = check_content(&p.file_name, &p.content)?;
    let folder = p.folder.unwrap_or_else(|| DEFAULT_FOLDER.to_owned());
    call.core.state.put_file(key(id, &folder, &p.file_name), bytes);
    note_custom_manifests(call, id);
    Ok(Response::json(201, &manifest(&folder, &p.file_name)))
}

/// `PATCH …/manifests`
pub(crate) fn update(call: &mut Call<'_>) -> Answer {
    let p: UpdateManifestParams = call.body("UpdateManifestParams")?;
    let id = call.ids[0];
    check_cluster(call.core, id)?;
    let old = key(id, &p.folder, &p.file_name);
    let Some(current) = call.core.state.file(&old).map(|b| b.to_vec()) else {
        return Err(Fail::not_found(format!(
            "Manifest {} was not found in folder {} of cluster {id}",
            p.file_name, p.folder
        )));
    };
    let folder = p.updated_folder.unwrap_or_else(|| p.folder.clone());
    let name = p.updated_file_name.unwrap_or_else(|| p.file_name.clone());
    check_name(id, &name)?;
    let new = key(id, &folder, &name);
    if new != old && call.core.state.file(&new).is_some() {
        return Err(Fail::conflict(format!("Manifest {name} exists already in folder {folder} of cluster {id}")));
    }
    let bytes = match &p.updated_content {
        Some(content) => check_content(&name, content)?,
        None => current,
    };
    call.core.state.delete_file(&old);
    call.core.state.put_file(new, bytes);
    Ok(Response::json(200, &manifest(&folder, &name)))
}

/// `DELETE …/manifests`
pub(crate) fn delete(call: &mut Call<'_>) -> Answer {
    let id = call.ids[0];
    check_cluster(call.core, id)?;
    let folder = call.query("folder").filter(|f| !f.is_empty()).unwrap_or(DEFAULT_FOLDER).to_owned();
    let name = call.query("file_name").unwrap_or("").to_owned();
    call.core.state.delete_file(&key(id, &folder, &name));
    note_custom_manifests(call, id);
    Ok(Response::empty(200))
}

/// `GET …/manifests/files`
pub(crate) fn download(call: &mut Call<'_>) -> Answer {
    let id = call.ids[0];
    check_cluster(call.core, id)?;
    let folder = call.query("folder").filter(|f| !f.is_empty()).unwrap_or(DEFAULT_FOLDER);
    let name = call.query("file_name").unwrap_or("");
    let bytes = call.core.state.file(&key(id, folder, name)).ok_or_else(|| {
        Fail::not_found(format!("Cluster manifest {name} was not found in folder {folder} of cluster {id}"))
    })?;
    Ok(attachment(name, bytes))
}
