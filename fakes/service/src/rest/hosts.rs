//! Hosts over REST, as users see and change them.

use vlab_api::http::Response;
use vlab_api::types::{BindHostParams, Host, HostIgnitionParams, HostUpdateParams, InstallerArgsParams};

use super::RestCall;
use super::answer::{RestResult, attachment};
use crate::commands::register::find;
use crate::commands::{binding, clusters, files, hosts, install};
use crate::refusal::Refusal;

/// The host of the path.
fn shown(call: &RestCall<'_>, status: u16) -> RestResult {
    let row = find(call.core, call.host)?;
    Ok(Response::json(status, &call.core.show_host(&row)))
}

/// `GET /v2/infra-envs/{i}/hosts`
pub(super) fn list(call: &mut RestCall<'_>) -> RestResult {
    let rows = call.core.state.hosts_of_infra_env(call.ids[0]);
    let hosts: Vec<Host> = rows.into_iter().map(|r| call.core.show_host(r)).collect();
    Ok(Response::json(200, &hosts))
}

/// `GET /v2/infra-envs/{i}/hosts/{h}`
pub(super) fn get(call: &mut RestCall<'_>) -> RestResult {
    shown(call, 200)
}

/// `GET /v2/clusters/{c}/hosts`
pub(super) fn of_cluster(call: &mut RestCall<'_>) -> RestResult {
    let id = call.ids[0];
    clusters::find(call.core, id)?;
    let role = call.query("role").filter(|r| !r.is_empty());
    let status = call.query("status").filter(|s| !s.is_empty());
    let (inventory, connectivity) = (call.query_flag("with-inventory"), call.query_flag("with-connectivity"));
    let mut hosts = Vec::new();
    for row in call.core.state.hosts_of_cluster(id) {
        let effective = row.view.effective_role();
        if role.is_some_and(|r| r != effective.as_str()) || status.is_some_and(|s| s != row.host().status.as_str()) {
            continue;
        }
        let mut host = call.core.show_host(&row);
        if !inventory {
            host.inventory = None;
        }
        if !connectivity {
            host.connectivity = None;
        }
        hosts.push(host);
    }
    Ok(Response::object(200, hosts))
}

/// `PATCH /v2/infra-envs/{i}/hosts/{h}`
pub(super) fn update(call: &mut RestCall<'_>) -> RestResult {
    let patch: HostUpdateParams = call.body("host-update-params")?;
    hosts::update(call.core, call.now, call.host, &patch)?;
    shown(call, 201)
}

/// `DELETE /v2/infra-envs/{i}/hosts/{h}`. One that is not there is an error of the service, as in the real one.
pub(super) fn delete(call: &mut RestCall<'_>) -> RestResult {
    let found = find(call.core, call.host).map_err(|missing| Refusal::internal(missing.text))?;
    let cluster = found.host().cluster_id;
    hosts::delete(call.core, call.now, call.host)?;
    // Whoever deletes by hand sees at once what the cluster lacks.
    if let Some(id) = cluster {
        call.core.refresh_cluster(call.now, id);
    }
    Ok(Response::empty(204))
}

/// `POST …/actions/bind`
pub(super) fn bind(call: &mut RestCall<'_>) -> RestResult {
    let params: BindHostParams = call.body("bind-host-params")?;
    binding::bind(call.core, call.now, call.host, params.cluster_id).inspect_err(|refusal| {
        binding::tell_refused(call.core, call.now, call.host, Some(params.cluster_id), refusal);
    })?;
    binding::tell(call.core, call.now, call.host, true);
    shown(call, 200)
}

/// `POST …/actions/unbind`
pub(super) fn unbind(call: &mut RestCall<'_>) -> RestResult {
    binding::unbind(call.core, call.now, call.host)?;
    binding::tell(call.core, call.now, call.host, false);
    shown(call, 200)
}

/// `POST …/actions/install`
pub(super) fn install(call: &mut RestCall<'_>) -> RestResult {
    install::install_host(call.core, call.now, call.host)?;
    shown(call, 202)
}

/// `POST …/actions/reset`
pub(super) fn reset(call: &mut RestCall<'_>) -> RestResult {
    install::reset_host(call.core, call.now, call.host)?;
    shown(call, 200)
}

/// `PATCH …/actions/reset-validation/{validation_id}`
pub(super) fn reset_validation(call: &mut RestCall<'_>) -> RestResult {
    hosts::reset_validation(call.core, call.now, call.host, &call.word)?;
    // The API's own description promises the host here, the real service sends nothing.
    Ok(Response::empty(200))
}

/// `PATCH …/installer-args`
pub(super) fn installer_args(call: &mut RestCall<'_>) -> RestResult {
    let params: InstallerArgsParams = call.body("installer-args-params")?;
    hosts::set_installer_args(call.core, call.now, call.host, &params.args.unwrap_or_default())?;
    shown(call, 201)
}

/// `GET …/hosts/{h}/ignition`
pub(super) fn ignition(call: &mut RestCall<'_>) -> RestResult {
    let (_, bytes) = files::host_ignition(call.core, call.host)?;
    Ok(Response::json(200, &HostIgnitionParams { config: Some(String::from_utf8_lossy(&bytes).into_owned()) }))
}

/// `PATCH …/ignition`
pub(super) fn ignition_override(call: &mut RestCall<'_>) -> RestResult {
    let params: HostIgnitionParams = call.body("host-ignition-params")?;
    let config = params.config.filter(|c| !c.is_empty());
    hosts::set_ignition_override(call.core, call.now, call.host, config)?;
    Ok(Response::empty(201))
}

/// `GET /v2/infra-env/{i}/hosts/{h}/downloads/ignition`
pub(super) fn download_ignition(call: &mut RestCall<'_>) -> RestResult {
    let (name, bytes) = files::host_ignition(call.core, call.host)?;
    Ok(attachment(&name, &bytes))
}
