//! Files of clusters and hosts: when they can be downloaded, and what is said when they cannot.

use serde_json::Value;
use uuid::Uuid;
use vlab_api::http::Response;
use vlab_api::types::{ClusterStatus, Credentials, HostIgnitionParams, HostRole, OperatorStatus, Severity};

use crate::Core;
use crate::answer::{Answer, Fail, attachment};
use crate::register::find;
use crate::router::Call;
use crate::steps::api_host;
use vlab_installer::{self as artifacts, Day2Input};

/// Values of `file_name`.
pub(crate) const CLUSTER_FILES: &[&str] = &[
    "bootstrap.ign",
    "master.ign",
    "metadata.json",
    "worker.ign",
    "install-config.yaml",
    "custom_manifests.json",
    "custom_manifests.yaml",
    "arbiter.ign",
];

/// Statuses in which a cluster's files exist, in the order in which the real service lists them.
const WITH_FILES: &[ClusterStatus] = &[
    ClusterStatus::Installing,
    ClusterStatus::Finalizing,
    ClusterStatus::Installed,
    ClusterStatus::Error,
    ClusterStatus::AddingHosts,
    ClusterStatus::Cancelled,
    ClusterStatus::InstallingPendingUserAction,
];

fn status_of(core: &Core, id: Uuid) -> Result<ClusterStatus, Fail> {
    core.state.cluster(id).map(|r| r.cluster().status).ok_or_else(|| Fail::not_found("record not found"))
}

fn check_status(id: Uuid, status: ClusterStatus, allowed: &[ClusterStatus]) -> Result<(), Fail> {
    if allowed.contains(&status) {
        return Ok(());
    }
    let words: Vec<&str> = allowed.iter().map(|s| s.as_str()).collect();
    Err(Fail::conflict(format!(
        "cluster {id} is in {status} state, files can be downloaded only when status is one of: [{}]",
        words.join(" ")
    )))
}

fn file(core: &Core, id: Uuid, name: &str) -> Answer {
    let bytes = core
        .state
        .file(&format!("{id}/{name}"))
        .ok_or_else(|| Fail::conflict(format!("File '{name}' is not available for cluster {id}")))?;
    Ok(attachment(name, bytes))
}

/// `GET …/downloads/files`
pub(crate) fn files(call: &mut Call<'_>) -> Answer {
    let id = call.ids[0];
    check_status(id, status_of(call.core, id)?, WITH_FILES)?;
    file(call.core, id, call.query("file_name").unwrap_or(""))
}

/// `GET …/downloads/credentials`
pub(crate) fn credential_files(call: &mut Call<'_>) -> Answer {
    let id = call.ids[0];
    check_status(id, status_of(call.core, id)?, WITH_FILES)?;
    let name = call.query("file_name").unwrap_or("");
    // Until the ingress certificate has come, the kubeconfig without it is given out under its name.
    if name == "kubeconfig" && call.core.state.file(&format!("{id}/kubeconfig")).is_none() {
        let bytes = call
            .core
            .state
            .file(&format!("{id}/kubeconfig-noingress"))
            .ok_or_else(|| Fail::conflict(format!("File '{name}' is not available for cluster {id}")))?;
        return Ok(attachment(name, bytes));
    }
    file(call.core, id, name)
}

/// `GET …/credentials`
pub(crate) fn credentials(call: &mut Call<'_>) -> Answer {
    let id = call.ids[0];
    let row = call.core.state.cluster(id).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    let console = row.cluster().monitored_operators.iter().flatten().find(|o| o.name.as_deref() == Some("console"));
    if console.is_none_or(|o| o.status != Some(OperatorStatus::Available)) {
        return Err(Fail::conflict(
            "console-url isn't available yet, it will be once console operator is ready as part of cluster finalizing stage",
        ));
    }
    let password = call
        .core
        .state
        .file(&format!("{id}/kubeadmin-password"))
        .ok_or_else(|| Fail::conflict("File 'kubeadmin-password' is not available"))?;
    let c = row.cluster();
    let (name, base) = (c.name.as_deref().unwrap_or(""), c.base_dns_domain.as_deref().unwrap_or(""));
    Ok(Response::json(
        200,
        &Credentials {
            username: Some("kubeadmin".into()),
            password: Some(String::from_utf8_lossy(password).into_owned()),
            console_url: Some(format!("https://console-openshift-console.apps.{name}.{base}")),
        },
    ))
}

/// Presigned URLs of a cluster's files need an object store, which there is none of.
pub(crate) fn presigned(call: &mut Call<'_>) -> Answer {
    status_of(call.core, call.ids[0])?;
    Err(Fail::bad_request("Failed to generate presigned URL: invalid backend"))
}

/// `GET …/install-config`
pub(crate) fn install_config(call: &mut Call<'_>) -> Answer {
    let id = call.ids[0];
    let row = call.core.state.cluster(id).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    let text = match call.core.state.file(&format!("{id}/install-config.yaml")) {
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        None => call.core.preview_install_config(call.now, &row).map_err(Fail::internal)?,
    };
    // The file is YAML, this answer has it as JSON.
    let config: Value = serde_yaml::from_str(&text).map_err(|e| Fail::internal(e.to_string()))?;
    Ok(Response::json(200, &config.to_string()))
}

/// Members of an install config that can be overridden; others are refused.
const INSTALL_CONFIG: &[&str] = &[
    "additionalTrustBundle",
    "additionalTrustBundlePolicy",
    "apiVersion",
    "arbiter",
    "baseDomain",
    "bootstrapInPlace",
    "capabilities",
    "compute",
    "controlPlane",
    "cpuPartitioningMode",
    "credentialsMode",
    "featureGates",
    "featureSet",
    "fips",
    "imageContentSources",
    "imageDigestSources",
    "metadata",
    "networking",
    "platform",
    "proxy",
    "publish",
    "pullSecret",
    "sshKey",
];

/// `PATCH …/install-config`
pub(crate) fn update_install_config(call: &mut Call<'_>) -> Answer {
    let text = call.text_body("install-config-params")?;
    let (id, now) = (call.ids[0], call.now);
    status_of(call.core, id)?;
    // An empty text takes the overrides away.
    if !text.is_empty() {
        let value = crate::check::parse_json(text.as_bytes()).map_err(Fail::bad_request)?;
        let Value::Object(members) = value else {
            return Err(Fail::bad_request("install config overrides must be a JSON object"));
        };
        if let Some(unknown) = members.keys().find(|k| !INSTALL_CONFIG.contains(&k.as_str())) {
            return Err(Fail::bad_request(format!("json: unknown field {}", crate::check::go_quote(unknown))));
        }
    }
    call.core.state.edit_cluster(id, now, |row| {
        row.view.cluster.install_config_overrides = Some(text).filter(|t| !t.is_empty());
    });
    let text = "Custom install config was applied to the cluster".to_owned();
    call.core.cluster_event(now, id, "install_config_applied", Severity::Info, text);
    Ok(Response::empty(201))
}

/// `GET …/hosts/{h}/ignition`
pub(crate) fn host_ignition_params(call: &mut Call<'_>) -> Answer {
    let bytes = ignition(call)?.1;
    Ok(Response::json(200, &HostIgnitionParams { config: Some(String::from_utf8_lossy(&bytes).into_owned()) }))
}

/// `GET /v2/infra-env/{i}/hosts/{h}/downloads/ignition`
pub(crate) fn host_ignition(call: &mut Call<'_>) -> Answer {
    let (name, bytes) = ignition(call)?;
    Ok(attachment(&name, &bytes))
}

fn ignition(call: &mut Call<'_>) -> Result<(String, Vec<u8>), Fail> {
    let key = (call.ids[0], call.ids[1]);
    let row = find(call.core, key)?;
    let Some(id) = row.host().cluster_id else {
        return Err(Fail::not_found(format!("host {} is not bound to a cluster", key.1)));
    };
    let cluster = call.core.state.cluster(id).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    check_status(id, cluster.cluster().status, WITH_FILES)?;
    let role = match row.view.effective_role() {
        HostRole::Bootstrap => HostRole::Master,
        role => role,
    };
    let name = format!("{role}-{}.ign", key.1);
    if row.view.is_day2() {
        let host = api_host(&cluster.view);
        let endpoint = cluster.cluster().ignition_endpoint.as_ref();
        let hostname = row.view.hostname().map_or_else(|| key.1.to_string(), str::to_owned);
        let input = Day2Input {
            hostname: Some(&hostname),
            api_host: &host,
            endpoint_url: endpoint.and_then(|e| e.url.as_deref()).filter(|u| !u.is_empty()),
            endpoint_ca: endpoint.and_then(|e| e.ca_certificate.as_deref()).filter(|c| !c.is_empty()),
            endpoint_token: row.private.ignition_endpoint_token.as_deref(),
            pool: row.host().machine_config_pool_name.as_deref().unwrap_or("worker"),
            overrides: row.host().ignition_config_overrides.as_deref(),
        };
        let bytes = artifacts::day2_ignition(&input).map_err(|e| Fail::internal(e.to_string()))?;
        return Ok((name, bytes));
    }
    let bytes = call
        .core
        .state
        .file(&format!("{id}/{name}"))
        .ok_or_else(|| Fail::conflict(format!("File '{name}' is not available for cluster {id}")))?;
    Ok((name, bytes.to_vec()))
}
