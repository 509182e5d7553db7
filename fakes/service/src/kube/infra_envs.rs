//! InfraEnv, with the NMStateConfigs that it selects.

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;
use vlab_api::labels::Selector;
use vlab_api::types::{HostStaticNetworkConfig, InfraEnvCreateParams, ReleaseImage, Severity};

use super::client::Kind;
use super::clusters::pull_secret;
use super::conditions::{Condition, merged};
use super::object::{INFRA_ENV_LABEL, is_deleted, name, namespace, reference, text, time};
use super::pass::{Halt, Pass, Problem, Stop, told};
use super::{mirrors, spec};
use crate::commands::infra_envs;

const FINALIZER: &str = "infraenv.agent-install.openshift.io/ai-deprovision";
/// A cluster that is not registered yet is waited for that long; an error of the backend, too.
const AGAIN: Duration = Duration::from_secs(10);

/// What a pass came to.
enum Came {
    /// It is there.
    There,
    /// There is no ClusterDeployment of that name; `true`: there is, but no cluster of the service yet.
    NoCluster(bool),
}

pub(super) fn pass(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(object) = pass.get(Kind::InfraEnv, key) else { return Ok(()) };
    if is_deleted(&object) {
        if let Some(id) = pass.infra_env(key) {
            // Its hosts go with their Agents, which are collected after it.
            let text = format!("Deregistered infra env {id}");
            pass.core.infra_env_event(pass.now, id, "infra_env_deregistered", Severity::Info, text);
            pass.core.state.delete_infra_env(id);
        }
        return pass.drop_finalizer(&object, FINALIZER);
    }
    pass.finalizer(&object, FINALIZER)?;
    let outcome = told(sync(pass, key, &object))?;
    let id = pass.infra_env(key);
    let (condition, again) = match &outcome {
        Ok(Came::There) => {
            let text = "Image has been created";
            (Condition::new("ImageCreated", "True", "InfraEnvAvailable", text), None)
        }
        Ok(Came::NoCluster(there)) => {
            let why = if *there {
                "it has no cluster yet; the conditions of its AgentClusterInstall say why"
            } else {
                "it was not found"
            };
            let text = format!("ClusterDeployment is missing: {why}");
            let again = there.then_some(AGAIN);
            (Condition::new("ImageCreated", "Unknown", "MissingClusterDeployment", text), again)
        }
        Err(Problem::Input(text)) => (error(text), None),
        Err(Problem::Backend(text)) => (error(text), Some(AGAIN)),
    };
    let mut status = object["status"].clone();
    status["conditions"] = merged(&object["status"]["conditions"], &[condition], pass.now, false);
    match (&outcome, id) {
        (Ok(Came::There), Some(id)) => row_status(pass, &object, id, &mut status),
        (Err(_), _) => {
            status["isoDownloadURL"] = Value::Null;
            status["createdTime"] = Value::Null;
        }
        _ => {}
    }
    pass.status(&object, status)?;
    again.map_or(Ok(()), |span| Err(Stop::Later(span)))
}

fn error(text: &str) -> Condition {
    Condition::new("ImageCreated", "False", "ImageCreationError", format!("Failed to create image: {text}"))
}

fn sync(pass: &mut Pass<'_>, key: &str, object: &Value) -> Result<Came, Halt> {
    let cluster_key = reference(&object["spec"]["clusterRef"], namespace(object));
    let mut cluster = None;
    if !cluster_key.is_empty() {
        cluster = pass.cluster(&cluster_key);
        if cluster.is_none() {
            return Ok(Came::NoCluster(pass.get(Kind::ClusterDeployment, &cluster_key).is_some()));
        }
    }
    let secret = pull_secret(pass, namespace(object), &object["spec"]["pullSecretRef"])?;
    let networks = static_networks(pass, object)?;
    let mirrors = mirrors::named(pass, &object["spec"]["mirrorRegistryRef"], namespace(object), Problem::Backend)?;
    let version =
        cluster.and_then(|id| pass.core.state.cluster(id)).and_then(|row| row.cluster().openshift_version.clone());
    let wanted = spec::infra_env(object, secret, networks, version);
    let said = serde_json::to_string(&wanted).ok();
    match pass.infra_env(key) {
        None => {
            has_image(pass, &wanted)?;
            let mut params = wanted.clone();
            params.cluster_id = cluster;
            let id = infra_envs::create(pass.core, pass.now, params)?;
            let namespace = namespace(object).to_owned();
            pass.core.state.edit_infra_env(id, pass.now, |row| {
                row.kube_namespace = Some(namespace);
                row.kube_spec = said;
                row.mirrors = mirrors;
            });
            pass.index.put_infra_env(key.to_owned(), id);
        }
        Some(id) => {
            let row = infra_envs::find(pass.core, id)?;
            let before: Option<InfraEnvCreateParams> =
                row.kube_spec.as_deref().and_then(|text| serde_json::from_str(text).ok());
            if before.as_ref() != Some(&wanted) {
                infra_envs::update(pass.core, pass.now, id, &spec::infra_env_change(&wanted))?;
                pass.core.state.edit_infra_env(id, pass.now, |row| row.kube_spec = said);
            }
            // The real one stores them only when the infra-env is made.
            if row.mirrors != mirrors {
                infra_envs::set_mirrors(pass.core, pass.now, id, mirrors)?;
            }
        }
    }
    Ok(Came::There)
}

/// Is there an image for its architecture at all? Who serves no images is not asked.
fn has_image(pass: &Pass<'_>, wanted: &InfraEnvCreateParams) -> Result<(), Problem> {
    let Some(architecture) = wanted.cpu_architecture.as_deref() else { return Ok(()) };
    let config = &pass.core.config;
    let has = |release: &ReleaseImage| {
        release.cpu_architecture == architecture
            || release.cpu_architectures.iter().flatten().any(|other| other == architecture)
    };
    if config.image_service_url.is_empty() || config.settings.release_images.iter().any(has) {
        return Ok(());
    }
    Err(Problem::Input(format!("there is no image of an operating system for the architecture {architecture}")))
}

/// The static networks of the NMStateConfigs that the selector takes. Whoever names no labels wants none, and not all.
fn static_networks(pass: &Pass<'_>, object: &Value) -> Result<Vec<HostStaticNetworkConfig>, Problem> {
    let selector = Selector::read(&object["spec"]["nmStateConfigLabelSelector"])
        .map_err(|why| Problem::Backend(format!("invalid label selector for InfraEnv {}: {why}", name(object))))?;
    if selector.is_empty() {
        return Ok(Vec::new());
    }
    let configs = pass.client.all(Kind::NMStateConfig).map(|(_, config)| pass.seen(Kind::NMStateConfig, config));
    let theirs = configs.filter(|config| !is_deleted(config) && selector.fits(config));
    Ok(theirs.map(|config| spec::static_network(&config)).collect())
}

fn row_status(pass: &Pass<'_>, object: &Value, id: Uuid, status: &mut Value) {
    let Some(row) = pass.core.state.infra_env(id) else { return };
    let base = format!("{}/api/assisted-install/v2", pass.core.base_url());
    let own = format!("{base}/infra-envs/{id}");
    let url = row.infra_env.download_url.clone().unwrap_or_default();
    if text(&status["isoDownloadURL"]) != url || status["createdTime"].is_null() || changed(pass, id, object) {
        status["createdTime"] = time(row.infra_env.updated_at);
    }
    status["isoDownloadURL"] = if url.is_empty() { Value::Null } else { json!(url) };
    status["agentLabelSelector"] = json!({ "matchLabels": { INFRA_ENV_LABEL: name(object) } });
    let file = |name: &str| format!("{own}/downloads/files?file_name={name}");
    let ordered = object["spec"]["ipxeScriptType"] == "BootOrderControl";
    let script = file(if ordered { "ipxe-script&ipxe_script_type=boot-order-control" } else { "ipxe-script" });
    status["bootArtifacts"] = json!({
        "ipxeScript": script, "discoveryIgnitionURL": file("discovery.ign"),
        "kernel": artifact(&url, "kernel"), "initrd": artifact(&url, "pxe-initrd"), "rootfs": artifact(&url, "rootfs"),
    });
    status["debugInfo"] = json!({
        "eventsURL": format!("{base}/events?infra_env_id={id}"),
        "staticNetworkDownloadURL":
            row.infra_env.static_network_config.is_some().then(|| file("static-network-config")),
    });
}

/// Is the image newer than the status says?
fn changed(pass: &Pass<'_>, id: Uuid, object: &Value) -> bool {
    let row = pass.core.state.infra_env(id);
    row.is_some_and(|row| object["status"]["createdTime"] != time(row.infra_env.updated_at))
}

/// Where the image service has a part of an image; empty without one.
fn artifact(image: &str, part: &str) -> Value {
    match image.split_once("/byid/") {
        Some((base, rest)) => {
            let mut parts = rest.split('/').skip(1);
            let (version, arch) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
            json!(format!("{base}/boot-artifacts/{part}?arch={arch}&version={version}"))
        }
        None => Value::Null,
    }
}
