//! Files of clusters and hosts: when they can be downloaded, and what is said when they cannot.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{
    ClusterStatus, Credentials, HostRole, IgnitionEndpointHttpHeadersParams, OperatorStatus, Severity,
};
use vlab_installer::{Day2Input, day2_ignition};

use super::clusters;
use super::register::find;
use super::steps::api_host;
use super::usage;
use crate::alteration::Conduct;
use crate::refusal::Refusal;
use crate::state::HostKey;
use crate::{Core, go};

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

fn check_status(core: &Core, id: Uuid, allowed: &[ClusterStatus]) -> Result<(), Refusal> {
    let status = clusters::find(core, id)?.cluster().status;
    if allowed.contains(&status) || core.does(Conduct::FilesInAnyStatus) {
        return Ok(());
    }
    let words: Vec<&str> = allowed.iter().map(|s| s.as_str()).collect();
    Err(Refusal::conflict(format!(
        "cluster {id} is in {status} state, files can be downloaded only when status is one of: [{}]",
        words.join(" ")
    )))
}

fn file(core: &Core, id: Uuid, name: &str) -> Result<Arc<[u8]>, Refusal> {
    core.state
        .file(&format!("{id}/{name}"))
        .cloned()
        .ok_or_else(|| Refusal::conflict(format!("File '{name}' is not available for cluster {id}")))
}

/// A file of the cluster's installation.
pub(crate) fn of_cluster(core: &Core, id: Uuid, name: &str) -> Result<Arc<[u8]>, Refusal> {
    check_status(core, id, WITH_FILES)?;
    file(core, id, name)
}

/// A file with which one logs in.
pub(crate) fn credential_file(core: &Core, id: Uuid, name: &str) -> Result<Arc<[u8]>, Refusal> {
    check_status(core, id, WITH_FILES)?;
    // Until the ingress certificate has come, the kubeconfig without it is given out under its name.
    if name == "kubeconfig" && core.state.file(&format!("{id}/kubeconfig")).is_none() {
        let other = core.state.file(&format!("{id}/kubeconfig-noingress"));
        return other
            .cloned()
            .ok_or_else(|| Refusal::conflict(format!("File '{name}' is not available for cluster {id}")));
    }
    file(core, id, name)
}

/// How one logs in to the console.
pub(crate) fn credentials(core: &Core, id: Uuid) -> Result<Credentials, Refusal> {
    let row = clusters::find(core, id)?;
    let console = row.cluster().monitored_operators.iter().flatten().find(|o| o.name.as_deref() == Some("console"));
    if console.is_none_or(|o| o.status != Some(OperatorStatus::Available)) {
        return Err(Refusal::conflict(
            "console-url isn't available yet, it will be once console operator is ready as part of cluster finalizing stage",
        ));
    }
    let password = core
        .state
        .file(&format!("{id}/kubeadmin-password"))
        .ok_or_else(|| Refusal::conflict("File 'kubeadmin-password' is not available"))?;
    let c = row.cluster();
    let (name, base) = (c.name.as_deref().unwrap_or(""), c.base_dns_domain.as_deref().unwrap_or(""));
    Ok(Credentials {
        username: Some("kubeadmin".into()),
        password: Some(String::from_utf8_lossy(password).into_owned()),
        console_url: Some(format!("https://console-openshift-console.apps.{name}.{base}")),
    })
}

/// The install config: the one that was used, else the one that would be made now.
pub(crate) fn install_config(core: &Core, now: Timestamp, id: Uuid) -> Result<Value, Refusal> {
    let row = clusters::find(core, id)?;
    let text = match core.state.file(&format!("{id}/install-config.yaml")) {
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        None => core.preview_install_config(now, &row).map_err(Refusal::internal)?,
    };
    serde_yaml::from_str(&text).map_err(|e| Refusal::internal(e.to_string()))
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

/// Sets what is merged into the install config; an empty text takes it away.
pub(crate) fn override_install_config(core: &mut Core, now: Timestamp, id: Uuid, text: String) -> Result<(), Refusal> {
    clusters::find(core, id)?;
    if !text.is_empty() {
        let value = go::parse_json(text.as_bytes()).map_err(Refusal::invalid)?;
        let Value::Object(members) = value else {
            return Err(Refusal::invalid("install config overrides must be a JSON object"));
        };
        if let Some(unknown) = members.keys().find(|k| !INSTALL_CONFIG.contains(&k.as_str())) {
            return Err(Refusal::invalid(format!("json: unknown field {}", go::quote(unknown))));
        }
        usage::note(core, now, Some(id), |usage| usage.overrides(&members));
    }
    core.state.edit_cluster(id, now, |row| {
        row.view.cluster.install_config_overrides = Some(text).filter(|t| !t.is_empty());
    });
    let text = "Custom install config was applied to the cluster".to_owned();
    core.cluster_event(now, id, "install_config_applied", Severity::Info, text);
    Ok(())
}

/// The ignition of a host, and the name under which it is handed out.
pub(crate) fn host_ignition(core: &Core, key: HostKey) -> Result<(String, Vec<u8>), Refusal> {
    let row = find(core, key)?;
    let Some(id) = row.host().cluster_id else {
        return Err(Refusal::not_found(format!("host {} is not bound to a cluster", key.1)));
    };
    let cluster = clusters::find(core, id)?;
    check_status(core, id, WITH_FILES)?;
    let role = match row.view.effective_role() {
        HostRole::Bootstrap => HostRole::Master,
        role => role,
    };
    let name = format!("{role}-{}.ign", key.1);
    if row.view.is_day2() {
        let host = api_host(&cluster.view);
        let endpoint = cluster.cluster().ignition_endpoint.as_ref();
        let hostname = row.view.hostname().map_or_else(|| key.1.to_string(), str::to_owned);
        let headers: Vec<IgnitionEndpointHttpHeadersParams> = row
            .private
            .ignition_endpoint_http_headers
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let headers: Vec<(String, String)> = headers.into_iter().map(|header| (header.key, header.value)).collect();
        let input = Day2Input {
            hostname: Some(&hostname),
            api_host: &host,
            endpoint_url: endpoint.and_then(|e| e.url.as_deref()).filter(|u| !u.is_empty()),
            endpoint_ca: endpoint.and_then(|e| e.ca_certificate.as_deref()).filter(|c| !c.is_empty()),
            endpoint_token: row.private.ignition_endpoint_token.as_deref(),
            endpoint_headers: &headers,
            pool: row.host().machine_config_pool_name.as_deref().unwrap_or("worker"),
            overrides: row.host().ignition_config_overrides.as_deref(),
        };
        let bytes = day2_ignition(&input).map_err(|e| Refusal::internal(e.to_string()))?;
        return Ok((name, bytes));
    }
    let bytes = file(core, id, &name)?.to_vec();
    Ok((name, bytes))
}
