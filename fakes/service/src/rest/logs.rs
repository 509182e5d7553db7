//! Logs over REST.

use vlab_api::http::Response;
use vlab_api::types::LogsProgressParams;

use super::RestCall;
use super::answer::{Fail, RestResult, attachment};
use crate::commands::logs;

/// Values of the query parameter `logs_type`.
pub(super) const KINDS: &[&str] = &["host", "controller", "all", ""];

/// `PUT …/hosts/{h}/logs-progress`
pub(super) fn host_progress(call: &mut RestCall<'_>) -> RestResult {
    let params: LogsProgressParams = call.body("logs-progress-params")?;
    logs::host_progress(call.core, call.now, call.host, params.logs_state)?;
    Ok(Response::empty(204))
}

/// `PUT /v2/clusters/{c}/logs-progress`
pub(super) fn cluster_progress(call: &mut RestCall<'_>) -> RestResult {
    let params: LogsProgressParams = call.body("logs-progress-params")?;
    logs::cluster_progress(call.core, call.now, call.ids[0], params.logs_state)?;
    Ok(Response::empty(204))
}

/// `POST /v2/clusters/{c}/logs`
pub(super) fn upload(call: &mut RestCall<'_>) -> RestResult {
    let kind = call.request.get_header("content-type").unwrap_or("");
    let file = upfile(kind, &call.request.body)?;
    let (id, now) = (call.ids[0], call.now);
    if call.query("logs_type") == Some("host") {
        let host = (call.query_id("infra_env_id"), call.query_id("host_id"));
        logs::upload_host(call.core, now, id, host, file)?;
    } else {
        logs::upload_controller(call.core, now, id, file)?;
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
pub(super) fn download(call: &mut RestCall<'_>) -> RestResult {
    let id = call.ids[0];
    let (name, bytes) = match call.query("logs_type").unwrap_or("") {
        "host" => logs::of_host(call.core, id, call.query_id("host_id"))?,
        "controller" => logs::of_controller(call.core, id)?,
        _ => logs::of_cluster(call.core, call.now, id)?,
    };
    Ok(attachment(&name, &bytes))
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
