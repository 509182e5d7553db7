//! Logs: their progress, their upload and their download.

use uuid::Uuid;
use vlab_api::http::Response;
use vlab_api::types::{LogsProgressParams, LogsState, Severity};

use crate::answer::{Answer, Fail, attachment};
use crate::register::find;
use crate::router::Call;
use crate::state::HostKey;

/// Values of the query parameter `logs_type`.
pub(crate) const KINDS: &[&str] = &["host", "controller", "all", ""];

/// `PUT …/hosts/{h}/logs-progress`
pub(crate) fn host_progress(call: &mut Call<'_>) -> Answer {
    let params: LogsProgressParams = call.body("logs-progress-params")?;
    let (key, now): (HostKey, _) = ((call.ids[0], call.ids[1]), call.now);
    find(call.core, key)?;
    call.core.state.edit_host(key, now, |row| {
        let h = &mut row.view.host;
        h.logs_info = Some(params.logs_state);
        if params.logs_state == LogsState::Requested {
            h.logs_started_at = Some(now);
        }
    });
    Ok(Response::empty(204))
}

/// `PUT /v2/clusters/{c}/logs-progress`
pub(crate) fn cluster_progress(call: &mut Call<'_>) -> Answer {
    let params: LogsProgressParams = call.body("logs-progress-params")?;
    let (id, now) = (call.ids[0], call.now);
    if call.core.state.cluster(id).is_none() {
        return Err(Fail::not_found("record not found"));
    }
    call.core.state.edit_cluster(id, now, |row| {
        let c = &mut row.view.cluster;
        c.logs_info = Some(params.logs_state);
        if params.logs_state == LogsState::Requested {
            c.controller_logs_started_at = Some(now);
        }
    });
    Ok(Response::empty(204))
}

/// `POST /v2/clusters/{c}/logs`
pub(crate) fn upload(call: &mut Call<'_>) -> Answer {
    let (id, now) = (call.ids[0], call.now);
    let kind = call.request.get_header("content-type").unwrap_or("").to_owned();
    let file = upfile(&kind, &call.request.body)?;
    let row = call.core.state.cluster(id).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    if call.query("logs_type") == Some("host") {
        let Some(host_id) = call.query_id("host_id") else {
            return Err(Fail::bad_request("host_id is required for logs of type host"));
        };
        let key = match call.query_id("infra_env_id") {
            Some(infra_env) => (infra_env, host_id),
            None => {
                let host = call.core.state.find_host(host_id);
                (host.map(|h| h.infra_env_id()).unwrap_or_default(), host_id)
            }
        };
        find(call.core, key)?;
        call.core.state.put_file(format!("{id}/logs/{host_id}/logs.tar.gz"), file);
        call.core.state.edit_host(key, now, |row| {
            let h = &mut row.view.host;
            h.logs_collected_at = Some(now);
            if h.logs_info != Some(LogsState::Completed) {
                h.logs_info = Some(LogsState::Collecting);
            }
        });
        let text = format!("Uploaded logs for host {} cluster {id}", call.core.host_name(key));
        call.core.host_event(now, key, "host_logs_uploaded", Severity::Info, text);
    } else {
        let first = !row.cluster().controller_logs_collected_at.is_some_and(|t| t.is_set());
        call.core.state.put_file(format!("{id}/logs/controller/logs.tar.gz"), file);
        call.core.state.edit_cluster(id, now, |row| {
            let c = &mut row.view.cluster;
            c.controller_logs_collected_at = Some(now);
            if c.logs_info != Some(LogsState::Completed) {
                c.logs_info = Some(LogsState::Collecting);
            }
        });
        if first {
            let text = "Uploaded logs for the cluster".to_owned();
            call.core.cluster_event(now, id, "cluster_logs_uploaded", Severity::Info, text);
        }
    }
    Ok(Response::empty(204))
}

/// The part `upfile` of a multipart form.
fn upfile(content_type: &str, body: &[u8]) -> Result<Vec<u8>, Fail> {
    let bad = |why: &str| Fail::Infra(400, format!("parsing upfile formData from \"\" failed, because {why}"));
    if !content_type.starts_with("multipart/form-data") {
        return Err(bad("request Content-Type isn't multipart/form-data"));
    }
    let boundary = content_type
        .split(';')
        .filter_map(|p| p.trim().strip_prefix("boundary="))
        .map(|b| b.trim_matches('"'))
        .find(|b| !b.is_empty())
        .ok_or_else(|| bad("no multipart boundary param in Content-Type"))?;
    let mark = format!("--{boundary}");
    let mut rest = body;
    while let Some(at) = find_bytes(rest, mark.as_bytes()) {
        rest = &rest[at + mark.len()..];
        if rest.starts_with(b"--") {
            break;
        }
        let Some(head_end) = find_bytes(rest, b"\r\n\r\n") else { break };
        let head = String::from_utf8_lossy(&rest[..head_end]).to_lowercase();
        let content = &rest[head_end + 4..];
        let end =
            find_bytes(content, format!("\r\n{mark}").as_bytes()).ok_or_else(|| bad("multipart: NextPart: EOF"))?;
        if head.contains("name=\"upfile\"") || head.contains("name=upfile") {
            return Ok(content[..end].to_vec());
        }
        rest = &content[end..];
    }
    Err(bad("http: no such file"))
}

fn find_bytes(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

/// `GET /v2/clusters/{c}/logs`
pub(crate) fn download(call: &mut Call<'_>) -> Answer {
    let id = call.ids[0];
    let row = call.core.state.cluster(id).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    let name = row.cluster().name.clone().unwrap_or_default();
    let none = || Fail::conflict(format!("No log files were found for cluster {id}"));
    match call.query("logs_type").unwrap_or("") {
        "host" => {
            let Some(host) = call.query_id("host_id") else {
                return Err(Fail::bad_request("Host ID must be provided for downloading host logs"));
            };
            if !call.core.state.host_keys_of_cluster(id).iter().any(|k| k.1 == host) {
                return Err(Fail::not_found(format!("failed to get host {host} in cluster {id}: record not found")));
            }
            let bytes = call
                .core
                .state
                .file(&format!("{id}/logs/{host}/logs.tar.gz"))
                .ok_or_else(|| Fail::conflict(format!("Logs for host {host} were not found")))?;
            Ok(attachment(&format!("{name}_{}_{host}.tar.gz", host_label(call, host)), bytes))
        }
        "controller" => {
            let bytes = call
                .core
                .state
                .file(&format!("{id}/logs/controller/logs.tar.gz"))
                .ok_or_else(|| Fail::conflict(format!("Controller Logs for cluster {id} were not found")))?;
            Ok(attachment(&format!("{name}_controller_logs.tar.gz"), bytes))
        }
        _ => {
            let prefix = format!("{id}/logs/");
            let mut tar = Vec::new();
            for (key, bytes) in call.core.state.files_under(&prefix) {
                let inner = key[prefix.len()..].replace('/', "_");
                append_tar(&mut tar, &format!("{name}_{inner}"), bytes, call.now.as_secs())
                    .map_err(|e| Fail::internal(e.to_string()))?;
            }
            if tar.is_empty() {
                return Err(none());
            }
            tar.extend_from_slice(&[0; 1024]);
            Ok(attachment(&format!("{name}_{id}.tar"), &tar))
        }
    }
}

fn host_label(call: &Call<'_>, host: Uuid) -> String {
    let row = call.core.state.find_host(host);
    row.map_or("host".to_owned(), |r| {
        if r.view.is_bootstrap() { "bootstrap".into() } else { r.view.effective_role().to_string() }
    })
}

/// Appends a file to a tar archive (ustar).
///
/// # Errors
/// The name does not fit the format (more than 100 bytes).
pub(crate) fn append_tar(tar: &mut Vec<u8>, name: &str, bytes: &[u8], mtime: i64) -> std::io::Result<()> {
    let mut header = [0u8; 512];
    let mut field = |at: usize, len: usize, text: &str| -> std::io::Result<()> {
        if text.len() > len {
            return Err(std::io::Error::other(format!("{text:?} is too long for a tar header")));
        }
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
        Ok(())
    };
    field(0, 100, name)?;
    field(100, 8, "0000644\0")?;
    field(108, 8, "0000000\0")?;
    field(116, 8, "0000000\0")?;
    field(124, 12, &format!("{:011o}\0", bytes.len()))?;
    field(136, 12, &format!("{:011o}\0", mtime.max(0)))?;
    field(148, 8, "        ")?;
    field(156, 1, "0")?;
    field(257, 8, "ustar\x0000")?;
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(&header);
    tar.extend_from_slice(bytes);
    tar.resize(tar.len().next_multiple_of(512), 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uploaded_file_is_found_among_other_parts() {
        let body = b"--X\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nno\r\n--X\r\nContent-Disposition: form-data; name=\"upfile\"; filename=\"logs.tar.gz\"\r\nContent-Type: application/gzip\r\n\r\na\r\n\0b\r\n--X--\r\n";
        assert_eq!(upfile("multipart/form-data; boundary=X", body).unwrap(), b"a\r\n\0b");
        assert!(upfile("multipart/form-data; boundary=Y", body).is_err());
        assert!(upfile("multipart/form-data", body).is_err());
        assert!(upfile("application/json", body).is_err());
    }
}
