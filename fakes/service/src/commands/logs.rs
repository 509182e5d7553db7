//! Logs: their progress, their upload and their download.

use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{LogsState, Severity};

use super::register::find;
use super::{clusters, events, manifests};
use crate::Core;
use crate::alteration::Conduct;
use crate::refusal::Refusal;
use crate::state::HostKey;

/// How far a host's logs are.
pub(crate) fn host_progress(core: &mut Core, now: Timestamp, key: HostKey, state: LogsState) -> Result<(), Refusal> {
    find(core, key)?;
    core.state.edit_host(key, now, |row| {
        let h = &mut row.view.host;
        h.logs_info = Some(state);
        if state == LogsState::Requested {
            h.logs_started_at = Some(now);
        }
    });
    Ok(())
}

/// How far the controller's logs are.
pub(crate) fn cluster_progress(core: &mut Core, now: Timestamp, id: Uuid, state: LogsState) -> Result<(), Refusal> {
    clusters::find(core, id)?;
    core.state.edit_cluster(id, now, |row| {
        let c = &mut row.view.cluster;
        c.logs_info = Some(state);
        if state == LogsState::Requested {
            c.controller_logs_started_at = Some(now);
        }
    });
    Ok(())
}

/// Keeps the logs of a host; without an infra-env the host is looked for everywhere.
pub(crate) fn upload_host(
    core: &mut Core,
    now: Timestamp,
    id: Uuid,
    (infra_env, host_id): (Option<Uuid>, Option<Uuid>),
    file: Vec<u8>,
) -> Result<(), Refusal> {
    clusters::find(core, id)?;
    let Some(host_id) = host_id else {
        return Err(Refusal::invalid("host_id is required for logs of type host"));
    };
    let found = || core.state.find_host(host_id).map(|h| h.infra_env_id()).unwrap_or_default();
    let key = (infra_env.unwrap_or_else(found), host_id);
    find(core, key)?;
    if !core.does(Conduct::LogsLost) {
        core.state.put_file(format!("{id}/logs/{host_id}/logs.tar.gz"), file);
    }
    core.state.edit_host(key, now, |row| {
        let h = &mut row.view.host;
        h.logs_collected_at = Some(now);
        if h.logs_info != Some(LogsState::Completed) {
            h.logs_info = Some(LogsState::Collecting);
        }
    });
    let text = format!("Uploaded logs for host {} cluster {id}", core.host_name(key));
    core.host_event(now, key, "host_logs_uploaded", Severity::Info, text);
    Ok(())
}

/// Keeps the logs of the controller.
pub(crate) fn upload_controller(core: &mut Core, now: Timestamp, id: Uuid, file: Vec<u8>) -> Result<(), Refusal> {
    let row = clusters::find(core, id)?;
    let first = !row.cluster().controller_logs_collected_at.is_some_and(|t| t.is_set());
    if !core.does(Conduct::LogsLost) {
        core.state.put_file(format!("{id}/logs/controller/logs.tar.gz"), file);
    }
    core.state.edit_cluster(id, now, |row| {
        let c = &mut row.view.cluster;
        c.controller_logs_collected_at = Some(now);
        if c.logs_info != Some(LogsState::Completed) {
            c.logs_info = Some(LogsState::Collecting);
        }
    });
    if first {
        let text = "Uploaded logs for the cluster".to_owned();
        core.cluster_event(now, id, "cluster_logs_uploaded", Severity::Info, text);
    }
    Ok(())
}

/// A file and the name under which it is handed out.
pub(crate) type NamedFile = (String, Arc<[u8]>);

/// The logs of a host.
pub(crate) fn of_host(core: &Core, id: Uuid, host: Option<Uuid>) -> Result<NamedFile, Refusal> {
    let row = clusters::find(core, id)?;
    let Some(host) = host else {
        return Err(Refusal::invalid("Host ID must be provided for downloading host logs"));
    };
    if !core.state.host_keys_of_cluster(id).iter().any(|k| k.1 == host) {
        return Err(Refusal::not_found(format!("failed to get host {host} in cluster {id}: record not found")));
    }
    let bytes = core
        .state
        .file(&format!("{id}/logs/{host}/logs.tar.gz"))
        .ok_or_else(|| Refusal::conflict(format!("Logs for host {host} were not found")))?;
    let name = row.cluster().name.as_deref().unwrap_or_default();
    Ok((format!("{name}_{}_{host}.tar.gz", host_label(core, host)), bytes.clone()))
}

/// The logs of the controller.
pub(crate) fn of_controller(core: &Core, id: Uuid) -> Result<NamedFile, Refusal> {
    let row = clusters::find(core, id)?;
    let bytes = core
        .state
        .file(&format!("{id}/logs/controller/logs.tar.gz"))
        .ok_or_else(|| Refusal::conflict(format!("Controller Logs for cluster {id} were not found")))?;
    let name = row.cluster().name.as_deref().unwrap_or_default();
    Ok((format!("{name}_controller_logs.tar.gz"), bytes.clone()))
}

/// All logs of a cluster in one archive, with its description, its events and its manifests: they are there without any log, too.
pub(crate) fn of_cluster(core: &Core, now: Timestamp, id: Uuid) -> Result<NamedFile, Refusal> {
    let row = clusters::find(core, id)?;
    let name = row.cluster().name.as_deref().unwrap_or_default();
    let mut files = vec![
        ("cluster_metadata.json".to_owned(), described(core, id)?.into()),
        ("cluster_events.json".to_owned(), events(core, id)?.into()),
    ];
    for (manifest, bytes) in manifests::all(core, id) {
        let [source, folder, file] = [&manifest.manifest_source, &manifest.folder, &manifest.file_name]
            .map(|t| t.as_deref().unwrap_or_default());
        files.push((format!("cluster_manifest_{source}_{folder}_{file}"), bytes));
    }
    let prefix = format!("{id}/logs/");
    for (key, bytes) in core.state.files_under(&prefix) {
        let whose = key[prefix.len()..].split('/').next().unwrap_or_default();
        files.push(match whose.parse().ok().and_then(|host| core.state.find_host(host)) {
            Some(host) => {
                let hostname = host.view.hostname().map_or_else(|| whose.to_owned(), str::to_owned);
                let of = format!("{name}_{}_{hostname}", host_label(core, host.host().id));
                (format!("{of}.tar"), tar([(format!("{of}.tar.gz"), bytes.clone())], now)?.into())
            }
            None => (format!("{whose}_logs.tar.gz"), bytes.clone()),
        });
    }
    Ok((format!("{name}_{id}.tar"), tar(files, now)?.into()))
}

/// What the service knows of a cluster, without its pull secret.
fn described(core: &Core, id: Uuid) -> Result<Vec<u8>, Refusal> {
    let cluster = core.show_cluster(id, true).ok_or_else(Refusal::no_record)?;
    let bad = |e: serde_json::Error| Refusal::internal(e.to_string());
    let mut described = serde_json::to_value(&cluster).map_err(bad)?;
    described["pull_secret"] = "SECRET".into();
    serde_json::to_vec(&described).map_err(bad)
}

fn events(core: &Core, id: Uuid) -> Result<Vec<u8>, Refusal> {
    let filter = events::EventFilter {
        cluster: Some(id),
        categories: vec!["user".to_owned()],
        ..events::EventFilter::default()
    };
    serde_json::to_vec(&events::find(core, &filter).events).map_err(|e| Refusal::internal(e.to_string()))
}

/// A tar archive of files with these names.
pub(crate) fn tar(
    files: impl IntoIterator<Item = (String, impl AsRef<[u8]>)>,
    now: Timestamp,
) -> Result<Vec<u8>, Refusal> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let bytes = bytes.as_ref();
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(u64::try_from(now.as_secs()).unwrap_or(0));
        // Whole paths, as static networks have them, are kept; only a long name needs more than the header.
        let appended = match header.as_old_mut().name.get_mut(..name.len()) {
            Some(place) => {
                place.copy_from_slice(name.as_bytes());
                header.set_cksum();
                builder.append(&header, bytes)
            }
            None => builder.append_data(&mut header, name, bytes),
        };
        appended.map_err(|e| Refusal::internal(e.to_string()))?;
    }
    builder.into_inner().map_err(|e| Refusal::internal(e.to_string()))
}

fn host_label(core: &Core, host: Uuid) -> String {
    let row = core.state.find_host(host);
    row.map_or("host".to_owned(), |r| {
        if r.view.is_bootstrap() { "bootstrap".into() } else { r.view.effective_role().to_string() }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn an_archive_has_its_files_under_their_names() {
        let long = format!("{}.yaml", "a".repeat(120));
        let files = [("/etc/network/eth0".to_owned(), "one"), (long.clone(), "two")];
        let archive = tar(files, Timestamp::from_secs(5)).unwrap();
        let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (String::from_utf8(entry.path_bytes().into_owned()).unwrap(), entry.header().mtime().unwrap(), text)
        };
        let all: Vec<_> = tar::Archive::new(&archive[..]).entries().unwrap().map(read).collect();
        assert_eq!(all, [("/etc/network/eth0".to_owned(), 5, "one".to_owned()), (long, 5, "two".to_owned())]);
    }
}
