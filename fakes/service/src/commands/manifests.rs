//! Manifests of a cluster: those that the user adds, kept as files under `manifests/user/`, and those that the service makes when it
//! prepares an installation, under `manifests/system/`. Of the latter there are the sources of time alone.

use std::sync::Arc;

use base64::Engine as _;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, CreateManifestParams, HostRole, Manifest, NtpSource, UpdateManifestParams};

use super::usage::Usage;
use crate::Core;
use crate::refusal::Refusal;

const DEFAULT_FOLDER: &str = "manifests";
const USER: &str = "user";

fn key(id: Uuid, folder: &str, name: &str) -> String {
    format!("{id}/manifests/user/{folder}/{name}")
}

/// New manifests are taken in every state, also when it is too late for them to matter.
fn check_cluster(core: &Core, id: Uuid) -> Result<(), Refusal> {
    let missing = || Refusal::not_found(format!("Object Not Found: cluster {id} was not found"));
    core.state.cluster(id).map(|_| ()).ok_or_else(missing)
}

/// What is there is changed and removed only before an installation begins.
fn check_changeable(core: &Core, id: Uuid) -> Result<(), Refusal> {
    use ClusterStatus::{Insufficient, PendingForInput, Ready};
    check_cluster(core, id)?;
    match core.state.cluster(id).map(|row| row.cluster().status) {
        Some(PendingForInput | Insufficient | Ready) => Ok(()),
        _ => Err(Refusal::invalid(format!(
            "cluster {id} is not in pre-installation states, can't modify manifests after installation has been started"
        ))),
    }
}

fn check_name(id: Uuid, name: &str) -> Result<(), Refusal> {
    let patch = name.split_once(".yaml.patch_").or_else(|| name.split_once(".yml.patch_")).is_some();
    let known = [".json", ".yaml", ".yml"].iter().any(|e| name.ends_with(e)) || patch;
    if name.contains(' ') {
        return Err(Refusal::unprocessable(format!(
            "Cluster manifest {name} for cluster {id} should not include a space in its name."
        )));
    }
    if name.starts_with('.') || name.is_empty() {
        let why = format!("Cluster manifest {name} for cluster {id} has an invalid filename.");
        return Err(Refusal::unprocessable(why));
    }
    if name.contains('/') {
        let why = format!("Cluster manifest {name} for cluster {id} should not include a directory in it's name.");
        return Err(Refusal::unprocessable(why));
    }
    if !known {
        return Err(Refusal::invalid(format!(
            "Unsupported manifest extension {name}: it must be json, yaml, yml or a patch"
        )));
    }
    Ok(())
}

fn check_content(name: &str, encoded: &str) -> Result<Vec<u8>, Refusal> {
    const LIMIT: usize = 1024 * 1024;
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .map_err(|_| Refusal::invalid(format!("failed to base64-decode cluster manifest content of {name}")))?;
    if bytes.is_empty() {
        return Err(Refusal::invalid(format!("Manifest content of file {name} is empty")));
    }
    if bytes.len() > LIMIT {
        return Err(Refusal::invalid(format!("Manifest content of file {name} exceeds the maximum file size of 1MiB")));
    }
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Refusal::invalid(format!("Manifest content of file {name} is not text")))?;
    let valid = if name.ends_with(".json") {
        serde_json::from_str::<serde_json::Value>(text).is_ok()
    } else {
        use serde::Deserialize as _;
        serde_yaml::Deserializer::from_str(text).all(|d| serde_yaml::Value::deserialize(d).is_ok())
    };
    if !valid {
        let kind = if name.ends_with(".json") { "JSON" } else { "YAML" };
        return Err(Refusal::invalid(format!("Manifest content of file {name} has an invalid {kind} format")));
    }
    Ok(bytes)
}

fn note_custom_manifests(core: &mut Core, now: Timestamp, id: Uuid) {
    let any = core.state.files_under(&format!("{id}/manifests/user/")).next().is_some();
    core.state.edit_cluster(id, now, |row| {
        row.view.has_custom_manifests = any;
        let mut usage = Usage::of(&row.view.cluster);
        usage.set("Custom manifest", any);
        usage.write(&mut row.view.cluster);
    });
}

/// A name is in one of the two folders only.
fn check_distinct(core: &Core, id: Uuid, folder: &str, name: &str) -> Result<(), Refusal> {
    let other = if folder == DEFAULT_FOLDER { "openshift" } else { DEFAULT_FOLDER };
    match core.state.file(&key(id, other, name)) {
        None => Ok(()),
        Some(_) => Err(Refusal::invalid(format!(
            "manifest file {name} for cluster ID {id} in folder {folder} cannot be uploaded as it is not distinct between {{manifest, openshift}} folders"
        ))),
    }
}

fn manifest(source: &str, folder: &str, name: &str) -> Manifest {
    Manifest { folder: Some(folder.into()), file_name: Some(name.into()), manifest_source: Some(source.into()) }
}

/// All manifests, with their texts.
pub(crate) fn all(core: &Core, id: Uuid) -> Vec<(Manifest, Arc<[u8]>)> {
    let prefix = format!("{id}/manifests/");
    let read = |key: &str| {
        let (source, rest) = key[prefix.len()..].split_once('/')?;
        let (folder, name) = rest.split_once('/')?;
        Some(manifest(source, folder, name))
    };
    core.state.files_under(&prefix).filter_map(|(key, bytes)| Some((read(key)?, bytes.clone()))).collect()
}

/// The user's manifests, or those of the service as well.
pub(crate) fn list(core: &Core, id: Uuid, with_systems: bool) -> Result<Vec<Manifest>, Refusal> {
    check_cluster(core, id)?;
    let wanted = |manifest: &Manifest| with_systems || manifest.manifest_source.as_deref() == Some(USER);
    Ok(all(core, id).into_iter().map(|(manifest, _)| manifest).filter(wanted).collect())
}

/// The manifests that set the sources of time of the nodes: those that the hosts have, and those that they are told.
pub(crate) fn of_time(core: &Core, id: Uuid) -> Vec<(String, Vec<u8>)> {
    let Some(cluster) = core.state.cluster(id) else { return Vec::new() };
    let hosts = core.state.hosts_of_cluster(id);
    let mut sources: Vec<String> = Vec::new();
    for host in &hosts {
        let own: Vec<NtpSource> =
            host.host().ntp_sources.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let told = core.sources_of_time(host.infra_env_id(), Some(cluster));
        let names = own.into_iter().filter_map(|source| source.source_name);
        for name in names.chain(told.split(',').map(str::to_owned)).filter(|name| !name.is_empty()) {
            if !sources.contains(&name) {
                sources.push(name);
            }
        }
    }
    // Who names sources for the cluster wants no others.
    let exclusive = cluster.cluster().ntp_sources.as_deref().is_some_and(|sources| !sources.is_empty());
    let pool = if exclusive { "" } else { "pool 0.rhel.pool.ntp.org iburst\n" };
    let mut config = format!("{pool}driftfile /var/lib/chrony/drift\nmakestep 1.0 3\nrtcsync\nlogdir /var/log/chrony");
    for source in &sources {
        config.push_str(&format!("\nserver {source} iburst"));
    }
    let encoded = base64::engine::general_purpose::STANDARD.encode(&config);
    let arbiter = hosts.iter().any(|host| host.view.effective_role() == HostRole::Arbiter);
    let roles = ["master", "worker"].into_iter().chain(arbiter.then_some("arbiter"));
    roles
        .map(|role| {
            let name = format!("50-{role}s-chrony-configuration");
            let text = format!(
                "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  labels:\n    \
                 machineconfiguration.openshift.io/role: {role}\n  name: {name}\nspec:\n  config:\n    ignition:\n      \
                 version: 3.1.0\n    storage:\n      files:\n      - contents:\n          \
                 source: data:text/plain;charset=utf-8;base64,{encoded}\n        mode: 420\n        \
                 path: /etc/chrony.conf\n        overwrite: true\n"
            );
            (format!("{id}/manifests/system/openshift/{name}.yaml"), text.into_bytes())
        })
        .collect()
}

/// Adds a manifest, or replaces it.
pub(crate) fn create(core: &mut Core, now: Timestamp, id: Uuid, p: &CreateManifestParams) -> Result<Manifest, Refusal> {
    check_cluster(core, id)?;
    check_name(id, &p.file_name)?;
    let bytes = check_content(&p.file_name, &p.content)?;
    let folder = p.folder.as_deref().unwrap_or(DEFAULT_FOLDER);
    check_distinct(core, id, folder, &p.file_name)?;
    core.state.put_file(key(id, folder, &p.file_name), bytes);
    note_custom_manifests(core, now, id);
    Ok(manifest(USER, folder, &p.file_name))
}

/// Changes a manifest: its content, its name, its folder.
pub(crate) fn update(core: &mut Core, id: Uuid, p: &UpdateManifestParams) -> Result<Manifest, Refusal> {
    check_changeable(core, id)?;
    let old = key(id, &p.folder, &p.file_name);
    let Some(current) = core.state.file(&old).map(|b| b.to_vec()) else {
        return Err(Refusal::not_found(format!(
            "Manifest {} was not found in folder {} of cluster {id}",
            p.file_name, p.folder
        )));
    };
    let folder = p.updated_folder.clone().unwrap_or_else(|| p.folder.clone());
    let name = p.updated_file_name.clone().unwrap_or_else(|| p.file_name.clone());
    check_name(id, &name)?;
    let new = key(id, &folder, &name);
    // What has the name in the same folder is written over, as the real service does it.
    if name != p.file_name {
        check_distinct(core, id, &folder, &name)?;
    }
    let bytes = match &p.updated_content {
        Some(content) => check_content(&name, content)?,
        None => current,
    };
    core.state.delete_file(&old);
    core.state.put_file(new, bytes);
    Ok(manifest(USER, &folder, &name))
}

/// Removes a manifest, if it is there.
pub(crate) fn delete(
    core: &mut Core,
    now: Timestamp,
    id: Uuid,
    (folder, name): (Option<&str>, &str),
) -> Result<(), Refusal> {
    check_changeable(core, id)?;
    core.state.delete_file(&key(id, folder.unwrap_or(DEFAULT_FOLDER), name));
    note_custom_manifests(core, now, id);
    Ok(())
}

/// The text of a manifest.
pub(crate) fn content(core: &Core, id: Uuid, folder: Option<&str>, name: &str) -> Result<Arc<[u8]>, Refusal> {
    check_cluster(core, id)?;
    let folder = folder.unwrap_or(DEFAULT_FOLDER);
    let systems = || core.state.file(&format!("{id}/manifests/system/{folder}/{name}"));
    core.state.file(&key(id, folder, name)).or_else(systems).cloned().ok_or_else(|| {
        Refusal::not_found(format!("Cluster manifest {name} was not found in folder {folder} of cluster {id}"))
    })
}
