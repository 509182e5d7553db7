//! Infra-envs over REST, and what is downloaded of them.

use std::time::{Duration, UNIX_EPOCH};

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::Response;
use vlab_api::types::{InfraEnv, InfraEnvCreateParams, InfraEnvUpdateParams, PresignedUrl};

use super::RestCall;
use super::answer::{RestResult, attachment};
use crate::Core;
use crate::commands::discovery::{self, BootOrder};
use crate::commands::infra_envs;

fn shown(core: &Core, id: Uuid, status: u16) -> RestResult {
    Ok(Response::json(status, &infra_envs::find(core, id)?.infra_env))
}

/// `POST /v2/infra-envs`
pub(super) fn create(call: &mut RestCall<'_>) -> RestResult {
    let params: InfraEnvCreateParams = call.body("infraenv-create-params")?;
    let id = infra_envs::create(call.core, call.now, params)?;
    shown(call.core, id, 201)
}

/// `GET /v2/infra-envs`
pub(super) fn list(call: &mut RestCall<'_>) -> RestResult {
    let cluster = call.query_id("cluster_id");
    let owner = call.query("owner").filter(|o| !o.is_empty());
    let rows = call.core.state.infra_envs();
    let list: Vec<&InfraEnv> = rows
        .iter()
        .map(|r| &r.infra_env)
        .filter(|i| cluster.is_none_or(|c| i.cluster_id == Some(c)))
        .filter(|i| owner.is_none_or(|o| i.user_name.as_deref() == Some(o)))
        .collect();
    Ok(Response::json(200, &list))
}

/// `GET /v2/infra-envs/{i}`
pub(super) fn get(call: &mut RestCall<'_>) -> RestResult {
    shown(call.core, call.ids[0], 200)
}

/// `PATCH /v2/infra-envs/{i}`
pub(super) fn update(call: &mut RestCall<'_>) -> RestResult {
    let patch: InfraEnvUpdateParams = call.body("infra-env-update-params")?;
    infra_envs::update(call.core, call.now, call.ids[0], &patch)?;
    shown(call.core, call.ids[0], 201)
}

/// `DELETE /v2/infra-envs/{i}`
pub(super) fn delete(call: &mut RestCall<'_>) -> RestResult {
    infra_envs::delete(call.core, call.now, call.ids[0])?;
    Ok(Response::empty(204))
}

/// `GET …/downloads/image-url`
pub(super) fn image_url(call: &mut RestCall<'_>) -> RestResult {
    let url = infra_envs::image_url(call.core, call.ids[0])?;
    Ok(Response::json(200, &PresignedUrl { url, expires_at: Some(Timestamp::UNSET) }))
}

/// `POST …/regenerate-signing-key`
pub(super) fn regenerate_key(call: &mut RestCall<'_>) -> RestResult {
    infra_envs::regenerate_signing_key(call.core, call.now, call.ids[0])?;
    Ok(Response::empty(204))
}

/// `GET …/downloads/files-presigned`
pub(super) fn files_presigned(call: &mut RestCall<'_>) -> RestResult {
    let id = call.ids[0];
    infra_envs::find(call.core, id)?;
    let name = call.query("file_name").unwrap_or("");
    let mut url =
        format!("{}/api/assisted-install/v2/infra-envs/{id}/downloads/files?file_name={name}", call.core.base_url());
    if let Some(kind) = call.query("ipxe_script_type") {
        url.push_str(&format!("&ipxe_script_type={kind}"));
    }
    Ok(Response::json(200, &PresignedUrl { url, expires_at: Some(Timestamp::UNSET) }))
}

/// `GET …/downloads/files`
pub(super) fn files(call: &mut RestCall<'_>) -> RestResult {
    let id = call.ids[0];
    let changed_at = infra_envs::find(call.core, id)?.infra_env.updated_at;
    let (name, bytes) = match call.query("file_name").unwrap_or("") {
        "discovery.ign" => {
            let image_type = call.query("discovery_iso_type").and_then(|t| t.parse().ok());
            ("discovery.ign", discovery::ignition(call.core, id, image_type)?)
        }
        "ipxe-script" => {
            let order = match call.query("ipxe_script_type") {
                Some("boot-order-control") => BootOrder::OfHost(call.query("mac").filter(|m| !m.is_empty())),
                _ => BootOrder::DiscoveryImageAlways,
            };
            ("ipxe-script", discovery::ipxe_script(call.core, id, order)?.into_bytes())
        }
        // Without static networks the file is empty.
        _ => ("static-network-config", discovery::static_networks(call.core, call.now, id)?),
    };
    Ok(attachment(name, &bytes).header("last-modified", http_date(changed_at)))
}

/// `GET …/downloads/minimal-initrd`; 204 when a minimal image needs to know nothing.
pub(super) fn minimal_initrd(call: &mut RestCall<'_>) -> RestResult {
    Ok(match discovery::minimal_initrd(call.core, call.ids[0])? {
        Some(packed) => attachment("minimal-initrd.img", &packed),
        None => Response::empty(204),
    })
}

/// A date as HTTP headers have it.
fn http_date(at: Timestamp) -> String {
    let since = Duration::from_secs(u64::try_from(at.as_secs()).unwrap_or(0));
    httpdate::fmt_http_date(UNIX_EPOCH + since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers() {
        let at: Timestamp = "2026-11-20T12:50:08.954Z".parse().unwrap();
        assert_eq!(http_date(at), "Fri, 20 Nov 2026 12:50:08 GMT");
    }
}
