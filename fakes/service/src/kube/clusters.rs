//! ClusterDeployment and AgentClusterInstall: one cluster of the service. All work on both is done in the pass of the ClusterDeployment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use uuid::Uuid;
use vlab_api::types::{
    ClusterCreateParams, ClusterStatus, CreateManifestParams, HostRole, HostStatus, IgnitionEndpoint,
    IgnoredValidations, ImportClusterParams,
};

use super::altered::Beside;
use super::client::Kind;
use super::conditions::{self, Condition, OfCluster};
use super::object::{
    CLUSTER_OF_SECRET, annotation, decoded, filled, install_of, is_deleted, is_owned_by, key_of, name, namespace,
    owner, parsed, reference, text,
};
use super::pass::{Halt, Pass, Problem, Stop, delete, merge, post, put, told};
use super::spec::Release;
use super::spoke::{self, Trouble};
use super::{Command, Who, mirrors, spec};
use crate::commands::checks::check_pull_secret;
use crate::commands::{clusters, files, install, manifests};
use crate::rows::{ClusterRow, HostRow};
use crate::state::is_open;

const CD_FINALIZER: &str = "clusterdeployments.agent-install.openshift.io/ai-deprovision";
const ACI_FINALIZER: &str = "agentclusterinstall.agent-install.openshift.io/ai-deprovision";
/// After an error of the backend it is tried again.
const BACKEND_AGAIN: Duration = Duration::from_secs(10);
/// After an error in the user's manifests: who writes them is to have the time to mend them.
const MANIFESTS_AGAIN: Duration = Duration::from_secs(60);

pub(super) fn pass(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(cd) = pass.get(Kind::ClusterDeployment, key) else { return orphans(pass, key) };
    let install = &cd["spec"]["clusterInstallRef"];
    let ours =
        text(&install["kind"]) == "AgentClusterInstall" && text(&install["group"]) == "extensions.hive.openshift.io";
    let aci = if ours { pass.get(Kind::AgentClusterInstall, &install_of(&cd)) } else { None };
    if is_deleted(&cd) {
        return match aci {
            Some(aci) if is_deleted(&aci) => end(pass, &cd, &aci),
            Some(aci) => Err(delete(&aci)),
            None => pass.drop_finalizer(&cd, CD_FINALIZER),
        };
    }
    let Some(aci) = aci else { return Ok(()) };
    if is_deleted(&aci) {
        return end(pass, &cd, &aci);
    }
    pass.finalizer(&aci, ACI_FINALIZER)?;
    pass.finalizer(&cd, CD_FINALIZER)?;
    if !is_owned_by(&aci, &cd["metadata"]["uid"]) {
        let mut changed = (*aci).clone();
        let mut owners = changed["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.push(owner(&cd, false));
        changed["metadata"]["ownerReferences"] = Value::Array(owners);
        return Err(put(changed));
    }
    if pass.is_wrong(Beside::SpecWritten) && aci["spec"]["holdInstallation"].is_null() && is_under_way(&aci) {
        let mut changed = (*aci).clone();
        changed["spec"]["holdInstallation"] = json!(true);
        return Err(put(changed));
    }
    let mut outcome = told(sync(pass, key, &cd, &aci))?;
    let mut later = BACKEND_AGAIN;
    if let (Some(id), Ok(())) = (pass.cluster(key), &outcome) {
        outcome = told(user_manifests(pass, &aci, id))?;
        later = MANIFESTS_AGAIN;
    }
    // What is not as the resources say is not installed.
    if let (Some(id), Ok(())) = (pass.cluster(key), &outcome) {
        // A cluster that becomes ready now is ready for a moment, whoever looks.
        pass.core.state.end_unit();
        begin(pass, &cd, &aci, id);
        pass.core.state.end_unit();
        let outcome = told(credentials(pass, &cd, &aci, id).and_then(|()| workers(pass, key, id)))?;
        write_status(pass, &aci, Some(id), &outcome)?;
        return again(&outcome, BACKEND_AGAIN);
    }
    write_status(pass, &aci, pass.cluster(key), &outcome)?;
    again(&outcome, later)
}

/// Does it say that it is being installed?
fn is_under_way(aci: &Value) -> bool {
    let conditions = aci["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["reason"] == "InstallationInProgress")
}

fn again(outcome: &Result<(), Problem>, later: Duration) -> Result<(), Stop> {
    match outcome {
        Err(Problem::Backend(_)) => Err(Stop::Later(later)),
        _ => Ok(()),
    }
}

/// There is no such ClusterDeployment (any more): AgentClusterInstalls that name it say so.
fn orphans(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let all: Vec<Arc<Value>> = pass.client.all_of(Kind::AgentClusterInstall, key).map(|(_, aci)| aci.clone()).collect();
    for aci in all {
        let name = key.split_once('/').map_or(key, |(_, name)| name);
        let missing = format!("ClusterDeployment.hive.openshift.io \"{name}\" not found");
        let mut wanted = vec![conditions::synced(&Err(Problem::Input(missing)), "")];
        wanted.extend(conditions::not_available(conditions::OF_CLUSTERS, "The cluster is not available"));
        let mut status = aci["status"].clone();
        status["conditions"] = conditions::merged(&aci["status"]["conditions"], &wanted, pass.now, true);
        status["debugInfo"] = json!({});
        pass.status(&aci, status)?;
    }
    Ok(())
}

/// The AgentClusterInstall is deleted: the cluster goes, and what it still has.
fn end(pass: &mut Pass<'_>, cd: &Value, aci: &Value) -> Result<(), Stop> {
    let key = key_of(cd);
    if let Some(id) = pass.cluster(&key) {
        use ClusterStatus::{Error, Finalizing, Installing, InstallingPendingUserAction, PreparingForInstallation};
        let status = pass.core.state.cluster(id).map(|row| row.cluster().status).unwrap_or_default();
        let running = [PreparingForInstallation, Installing, InstallingPendingUserAction, Finalizing, Error];
        if running.contains(&status) {
            // What cannot be cancelled goes all the same.
            let _ = pass.give(Command::Cancel, id, |core, now| install::cancel(core, now, id));
        }
        release_agents(pass, cd, id)?;
        clusters::delete(pass.core, pass.now, id).map_err(|_| Stop::Failed)?;
        pass.index.clusters.remove(&key);
        pass.index.cluster_keys.remove(&id);
    }
    pass.drop_finalizer(aci, ACI_FINALIZER)
}

/// Agents that came with the cluster are deleted with it; those of the pool are unbound. If the cluster itself is to be preserved, those
/// are deleted, too: in the pool their hosts would be installed anew.
fn release_agents(pass: &mut Pass<'_>, cd: &Value, id: Uuid) -> Result<(), Stop> {
    let key = key_of(cd);
    let preserved = cd["spec"]["preserveOnDelete"] == true;
    let mut waits = false;
    for host in pass.core.state.hosts_of_cluster(id) {
        let Some(of) = pass.index.infra_env_keys.get(&host.infra_env_id()) else { continue };
        let (ns, _) = of.split_once('/').unwrap_or(("", of));
        let Some(agent) = pass.get(Kind::Agent, &format!("{ns}/{}", host.host().id)) else { continue };
        let infra_env = pass.get(Kind::InfraEnv, of);
        let goes = infra_env.is_some_and(|ie| {
            let of = reference(&ie["spec"]["clusterRef"], ns);
            of == key || (of.is_empty() && preserved)
        });
        if goes && pass.is_wrong(Beside::AgentsStay) {
            continue;
        }
        waits = true;
        if goes {
            if !is_deleted(&agent) {
                return Err(delete(&agent));
            }
        } else if !agent["spec"]["clusterDeploymentName"].is_null() {
            return Err(merge(&agent, "", &json!({ "spec": { "clusterDeploymentName": null } })));
        }
        pass.wanted.push((Who::Agent, key_of(&agent)));
    }
    if waits { Err(Stop::Later(Duration::from_secs(1))) } else { Ok(()) }
}

/// Lets the cluster of the service be what the resources say.
fn sync(pass: &mut Pass<'_>, key: &str, cd: &Value, aci: &Value) -> Result<(), Halt> {
    let row = pass.cluster(key).and_then(|id| pass.core.state.cluster(id)).cloned();
    if row.is_none() && is_installed(cd, aci) {
        return import(pass, key, cd, aci);
    }
    let secret = pull_secret(pass, namespace(cd), &cd["spec"]["pullSecretRef"])?;
    let set = image_set(pass, cd, aci)?;
    let mirrors = mirrors::named(pass, &aci["spec"]["mirrorRegistryRef"], namespace(aci), Problem::Input)?;
    let release = match &row {
        Some(row) => release_of(row),
        None => release(pass, &set)?,
    };
    let endpoint = ignition_endpoint(pass, aci)?;
    let wanted = spec::cluster(cd, aci, secret, release, endpoint);
    let id = match row {
        None => {
            let id = clusters::create(pass.core, pass.now, wanted.clone())?;
            let said = serde_json::to_string(&wanted).ok();
            pass.core.state.edit_cluster(id, pass.now, |row| {
                row.private.kube_key = Some(key.to_owned());
                row.private.kube_spec = said;
                row.private.mirrors = mirrors;
            });
            pass.index.put_cluster(key.to_owned(), id);
            let waiting = pass.client.all_of(Kind::InfraEnv, key);
            pass.wanted.extend(waiting.map(|(key, _)| (Who::InfraEnv, key.clone())));
            id
        }
        Some(row) => {
            update(pass, &row, &wanted)?;
            let id = row.cluster().id;
            // The real one takes them with another change only.
            if is_open(row.cluster().status) && !row.view.is_day2() && row.private.mirrors != mirrors {
                pass.core.state.edit_cluster(id, pass.now, |row| row.private.mirrors = mirrors);
            }
            id
        }
    };
    overrides(pass, aci, id)
}

fn update(pass: &mut Pass<'_>, row: &ClusterRow, wanted: &ClusterCreateParams) -> Result<(), Halt> {
    if !is_open(row.cluster().status) || row.view.is_day2() {
        return Ok(());
    }
    let said = serde_json::to_string(wanted).ok();
    if said == row.private.kube_spec {
        return Ok(());
    }
    let before: ClusterCreateParams =
        row.private.kube_spec.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let Some(change) = spec::cluster_change(&before, wanted) else { return Ok(()) };
    let id = row.cluster().id;
    clusters::update(pass.core, pass.now, id, &change)?;
    pass.core.state.edit_cluster(id, pass.now, |row| row.private.kube_spec = said);
    Ok(())
}

/// The pull secret that a resource refers to.
pub(super) fn pull_secret(pass: &Pass<'_>, namespace: &str, at: &Value) -> Result<String, Halt> {
    let key = reference(at, namespace);
    if key.is_empty() {
        return Err(Problem::Input("missing reference to pull secret".into()).into());
    }
    let name = text(&at["name"]);
    // The real service takes both for troubles of its own: the secret may come yet.
    let missing = format!("failed to find secret {name}: Secret {name:?} not found");
    let without = format!("secret {name} did not contain key .dockerconfigjson");
    let secret = decoded(&pass.of_secret(&key, ".dockerconfigjson", missing, without)?);
    // The real one writes the secret itself into its message.
    check_pull_secret(&secret, "the resource")
        .map_err(|refusal| Problem::Backend(format!("invalid pull secret data in secret {name}: {}", refusal.text)))?;
    Ok(secret)
}

/// The ClusterImageSet that the AgentClusterInstall names; only an installed cluster needs none. That it is not there is taken for a
/// trouble of the service's, as the real one does: it may come yet.
fn image_set(pass: &Pass<'_>, cd: &Value, aci: &Value) -> Result<Arc<Value>, Halt> {
    if aci["spec"]["imageSetRef"].is_null() {
        if is_installed(cd, aci) {
            return Ok(Arc::default());
        }
        let text = "ClusterImageSet must be named in spec.imageSetRef of a cluster that is not installed";
        return Err(Problem::Input(text.into()).into());
    }
    let name = text(&aci["spec"]["imageSetRef"]["name"]);
    let missing =
        || Problem::Backend(format!("failed to get cluster image set {name}: ClusterImageSet {name:?} not found"));
    Ok(pass.get(Kind::ClusterImageSet, name).ok_or_else(missing)?)
}

/// The release with which a cluster was registered: no ClusterImageSet changes it later.
fn release_of(row: &ClusterRow) -> Release {
    let c = row.cluster();
    Release {
        version: c.openshift_version.clone().unwrap_or_default(),
        image: c.ocp_release_image.clone().unwrap_or_default(),
        architecture: c.cpu_architecture.clone(),
    }
}

/// The release that the ClusterImageSet names.
fn release(pass: &Pass<'_>, set: &Value) -> Result<Release, Halt> {
    let image = text(&set["spec"]["releaseImage"]);
    let known = pass.core.config.settings.release_images.iter().find(|release| release.url == image);
    let unknown = || Problem::Backend(format!("failed to get release image {image}: unknown release image"));
    let release = known.ok_or_else(unknown)?;
    let architecture = Some(release.cpu_architecture.clone()).filter(|name| !name.is_empty());
    Ok(Release { version: release.version.clone(), image: image.to_owned(), architecture })
}

/// Where hosts get their ignition, with the certificate of that place.
fn ignition_endpoint(pass: &Pass<'_>, aci: &Value) -> Result<Option<IgnitionEndpoint>, Halt> {
    let endpoint = &aci["spec"]["ignitionEndpoint"];
    let Some(url) = filled(&endpoint["url"]) else { return Ok(None) };
    let key = reference(&endpoint["caCertificateReference"], namespace(aci));
    if key.is_empty() {
        return Ok(Some(IgnitionEndpoint { url: Some(url), ca_certificate: None }));
    }
    let (_, name) = key.split_once('/').unwrap_or(("", &key));
    let missing = format!("Failed to get and parse ignition ca certificate: Secret {name:?} not found");
    let without = "Failed to get and parse ignition ca certificate: CA Secret is missing tls.crt key".to_owned();
    // As it stands there, which is how the service keeps it.
    let certificate = pass.of_secret(&key, "tls.crt", missing, without)?;
    Ok(Some(IgnitionEndpoint { url: Some(url), ca_certificate: Some(certificate) }))
}

/// A cluster that runs already is taken in, to add hosts to it.
fn import(pass: &mut Pass<'_>, key: &str, cd: &Value, aci: &Value) -> Result<(), Halt> {
    let of = &cd["spec"];
    let (name, domain) = (text(&of["clusterName"]), text(&of["baseDomain"]));
    let params = ImportClusterParams {
        name: name.to_owned(),
        api_vip_dnsname: format!("api.{name}.{domain}"),
        ..ImportClusterParams::default()
    };
    // Only the AgentClusterInstall tells it; who does not know it has none.
    let told = text(&aci["spec"]["clusterMetadata"]["clusterID"]).parse().ok();
    let id = clusters::import(pass.core, pass.now, params);
    let (base, key) = (filled(&of["baseDomain"]), key.to_owned());
    pass.index.put_cluster(key.clone(), id);
    pass.core.state.edit_cluster(id, pass.now, |row| {
        row.private.kube_key = Some(key);
        row.view.cluster.base_dns_domain = base;
        row.view.cluster.openshift_cluster_id = told;
        // A single node has more time to reboot.
        row.view.cluster.control_plane_count = aci["spec"]["provisionRequirements"]["controlPlaneAgents"].as_i64();
    });
    Ok(())
}

/// What annotations change of the installation.
fn overrides(pass: &mut Pass<'_>, aci: &Value, id: Uuid) -> Result<(), Halt> {
    let Some(row) = pass.core.state.cluster(id).cloned() else { return Ok(()) };
    if !is_open(row.cluster().status) || row.view.is_day2() {
        return Ok(());
    }
    let config = annotation(aci, "agent-install.openshift.io/install-config-overrides");
    if config != row.cluster().install_config_overrides.as_deref().unwrap_or("") {
        files::override_install_config(pass.core, pass.now, id, config.to_owned())?;
    }
    let hosts = spec::words(annotation(aci, "agent-install.openshift.io/ignored-host-validations"));
    let of_cluster = spec::words(annotation(aci, "agent-install.openshift.io/ignored-cluster-validations"));
    if hosts != row.view.ignored_host_validations || of_cluster != row.view.ignored_cluster_validations {
        let text = |words: &[String]| serde_json::to_string(words).ok();
        let params =
            IgnoredValidations { host_validation_ids: text(&hosts), cluster_validation_ids: text(&of_cluster) };
        clusters::set_ignored_validations(pass.core, pass.now, id, &params)?;
    }
    Ok(())
}

/// Manifests of the ConfigMaps that the AgentClusterInstall names; those of ConfigMaps that it does not name any more go. What is wrong
/// with them is taken for a trouble of the service's, as the real one does; then all of them go.
fn user_manifests(pass: &mut Pass<'_>, aci: &Value, id: Uuid) -> Result<(), Halt> {
    let status = pass.core.state.cluster(id).map(|row| row.cluster().status).unwrap_or_default();
    if !is_open(status) || status == ClusterStatus::AddingHosts {
        return Ok(());
    }
    let there = manifests::list(pass.core, id, false)?;
    let there: Vec<String> = there.iter().filter_map(|m| m.file_name.clone()).collect();
    let folder = Some("openshift");
    let wanted = match told(wanted_manifests(pass, aci)) {
        Ok(Ok(wanted)) => wanted,
        Ok(Err(problem)) => {
            for file in &there {
                manifests::delete(pass.core, pass.now, id, (folder, file))?;
            }
            return Err(problem.into());
        }
        Err(stop) => return Err(stop.into()),
    };
    let stay = pass.is_wrong(Beside::ManifestsStay);
    for gone in there.iter().filter(|file| !stay && !wanted.contains_key(*file)) {
        manifests::delete(pass.core, pass.now, id, (folder, gone))?;
    }
    for (file, content) in wanted {
        let same = manifests::content(pass.core, id, folder, &file).is_ok_and(|bytes| *bytes == *content.as_bytes());
        if !same {
            let params = CreateManifestParams {
                file_name: file,
                content: STANDARD.encode(content),
                folder: folder.map(str::to_owned),
            };
            manifests::create(pass.core, pass.now, id, &params)?;
        }
    }
    Ok(())
}

fn wanted_manifests(pass: &Pass<'_>, aci: &Value) -> Result<BTreeMap<String, String>, Halt> {
    // The older member counts only where the other is not there.
    let names: Vec<String> = match aci["spec"]["manifestsConfigMapRefs"].as_array() {
        Some(refs) => refs.iter().filter_map(|r| filled(&r["name"])).collect(),
        None => filled(&aci["spec"]["manifestsConfigMapRef"]["name"]).into_iter().collect(),
    };
    let mut wanted: BTreeMap<String, String> = BTreeMap::new();
    for config in names {
        let missing = || Problem::Backend(format!("failed to get configMap {config}: ConfigMap {config:?} not found"));
        let map = pass.get(Kind::ConfigMap, &format!("{}/{config}", namespace(aci))).ok_or_else(missing)?;
        pass.mark_as_used(&map)?;
        for (file, content) in spec::text_map(&map["data"]) {
            if wanted.insert(file.clone(), content).is_some() {
                let text = format!("Conflict in manifest names ('{file}' is not unique)");
                return Err(Problem::Backend(text).into());
            }
        }
    }
    Ok(wanted)
}

/// Is it to wait although it is ready?
fn is_held(cd: &Value, aci: &Value) -> bool {
    aci["spec"]["holdInstallation"] == true || annotation(cd, "hive.openshift.io/reconcile-pause") == "true"
}

/// Why a cluster that is ready is not installed all the same.
fn waits(pass: &Pass<'_>, aci: &Value, id: Uuid) -> Option<(&'static str, String)> {
    let hosts = pass.core.state.hosts_of_cluster(id);
    let known: Vec<&Arc<HostRow>> = hosts.iter().filter(|h| h.host().status == HostStatus::Known).collect();
    let (masters, workers, arbiters) = spec::expected(aci);
    let of = |role: HostRole| known.iter().filter(|h| h.view.effective_role() == role).count() as i64;
    let here = (of(HostRole::Master), of(HostRole::Worker), of(HostRole::Arbiter));
    let all_here = here == (masters, workers, arbiters) && known.len() == hosts.len();
    if !all_here && !pass.is_wrong(Beside::CountsNotAsked) {
        let text = format!(
            "The cluster currently requires exactly {masters} master agents, {workers} worker agents and {arbiters} arbiter agents but currently registered {} master agents, {} worker agents and {} arbiter agents",
            here.0, here.1, here.2
        );
        return Some(("InsufficientAgents", text));
    }
    let agent = |host: &HostRow| {
        let of = pass.index.infra_env_keys.get(&host.infra_env_id())?;
        let (ns, _) = of.split_once('/')?;
        pass.get(Kind::Agent, &format!("{ns}/{}", host.host().id))
    };
    let unsynced = known.iter().filter(|h| agent(h).is_some_and(|a| condition_is(&a, "SpecSynced", "False"))).count();
    if unsynced > 0 {
        return Some(("UnsyncedAgents", format!("The cluster has {unsynced} agents whose spec is not synced")));
    }
    let unapproved = known.iter().filter(|h| !h.private.approved).count();
    (unapproved > 0 && !pass.is_wrong(Beside::ApprovalNotAsked))
        .then(|| ("UnapprovedAgents", format!("The installation is pending on the approval of {unapproved} agents")))
}

/// Is that condition of the resource so?
pub(super) fn condition_is(object: &Value, kind: &str, is: &str) -> bool {
    object["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == kind && c["status"] == is)
}

/// Do the resources say that the cluster is installed? Who has no Hive says so nowhere but in the AgentClusterInstall.
fn is_installed(cd: &Value, aci: &Value) -> bool {
    let mut said = aci["status"]["conditions"].as_array().into_iter().flatten();
    cd["spec"]["installed"] == true || said.any(|c| c["type"] == "Completed" && c["reason"] == "InstallationCompleted")
}

/// Begins what is ready: the installation, adding hosts, the installation of hosts that are added.
fn begin(pass: &mut Pass<'_>, cd: &Value, aci: &Value, id: Uuid) {
    let Some(row) = pass.core.state.cluster(id).cloned() else { return };
    match row.cluster().status {
        ClusterStatus::Ready
            if (!is_held(cd, aci) || pass.is_wrong(Beside::HoldNotSeen)) && waits(pass, aci, id).is_none() =>
        {
            // What is refused now is tried again with the next change; the row says why.
            let _ = pass.give(Command::Install, id, |core, now| install::install(core, now, id));
        }
        ClusterStatus::Installed if is_installed(cd, aci) => {
            let _ = pass.give(Command::AllowAddHosts, id, |core, now| install::allow_add_hosts(core, now, id));
        }
        ClusterStatus::AddingHosts => {
            for host in pass.core.state.hosts_of_cluster(id) {
                if host.host().status == HostStatus::Known && host.private.approved {
                    let key = (host.infra_env_id(), host.host().id);
                    let _ = pass.give(Command::InstallHost, key.1, |core, now| {
                        install::install_host(core, now, key).map(|()| install::tell_started(core, now, key))
                    });
                }
            }
        }
        _ => {}
    }
}

/// The Secrets with which one logs in, and the AgentClusterInstall's word for where they are.
fn credentials(pass: &mut Pass<'_>, cd: &Value, aci: &Value, id: Uuid) -> Result<(), Halt> {
    use ClusterStatus::{AddingHosts, Finalizing, Installed, Installing};
    let Some(row) = pass.core.state.cluster(id).cloned() else { return Ok(()) };
    let status = row.cluster().status;
    if row.cluster().imported == Some(true) || ![Installing, Finalizing, Installed, AddingHosts].contains(&status) {
        return Ok(());
    }
    let done = matches!(status, Installed | AddingHosts);
    // What is told once stays as somebody may have changed it.
    let told = &aci["spec"]["clusterMetadata"];
    if told.is_object() && (!done || told["adminPasswordSecretRef"].is_object()) {
        return Ok(());
    }
    let file = |name: &str| pass.core.state.file(&format!("{id}/{name}")).cloned();
    let kubeconfig = file("kubeconfig").filter(|_| done).or_else(|| file("kubeconfig-noingress"));
    let Some(kubeconfig) = kubeconfig else { return Ok(()) };
    let config_name = format!("{}-admin-kubeconfig", name(cd));
    secret(pass, cd, &config_name, "kubeconfig", &json!({ "kubeconfig": STANDARD.encode(&*kubeconfig) }))?;
    let password_name = format!("{}-admin-password", name(cd));
    if let Some(password) = file("kubeadmin-password").filter(|_| done) {
        let data = json!({ "username": STANDARD.encode("kubeadmin"), "password": STANDARD.encode(&*password) });
        secret(pass, cd, &password_name, "kubeadmincreds", &data)?;
    }
    let mut metadata = json!({
        "clusterID": row.cluster().openshift_cluster_id.map(|id| id.to_string()).unwrap_or_default(),
        "infraID": id.to_string(),
        "adminKubeconfigSecretRef": { "name": config_name },
    });
    if done {
        metadata["adminPasswordSecretRef"] = json!({ "name": password_name });
    }
    if aci["spec"]["clusterMetadata"] != metadata && !pass.is_wrong(Beside::NoMetadata) {
        let mut changed = aci.clone();
        changed["spec"]["clusterMetadata"] = metadata;
        return Err(put(changed).into());
    }
    Ok(())
}

/// The pool of workers of an installed cluster stands still while hosts are added that get labels.
fn workers(pass: &Pass<'_>, key: &str, id: Uuid) -> Result<(), Halt> {
    let adds = pass.core.state.cluster(id).is_some_and(|row| row.cluster().status == ClusterStatus::AddingHosts);
    if !adds {
        return Ok(());
    }
    let agent = |host: Arc<HostRow>| {
        let (namespace, _) = pass.index.infra_env_keys.get(&host.infra_env_id())?.split_once('/')?;
        pass.get(Kind::Agent, &format!("{namespace}/{}", host.host().id))
    };
    let agents: Vec<Arc<Value>> = pass.core.state.hosts_of_cluster(id).into_iter().filter_map(agent).collect();
    match spoke::pause_workers(pass, key, &agents) {
        Ok(()) => Ok(()),
        Err(Trouble::Stop(stop)) => Err(stop.into()),
        Err(Trouble::Unknown(why) | Trouble::Says(why)) => Err(Problem::Backend(why).into()),
    }
}

fn secret(pass: &Pass<'_>, cd: &Value, secret: &str, kind: &str, data: &Value) -> Result<(), Halt> {
    let Some(old) = pass.get(Kind::Secret, &format!("{}/{secret}", namespace(cd))) else {
        let wrong = if kind == "kubeconfig" { Beside::NoKubeconfig } else { Beside::NoPassword };
        if pass.is_wrong(wrong) {
            return Ok(());
        }
        let labels = json!({ CLUSTER_OF_SECRET: name(cd), "hive.openshift.io/secret-type": kind });
        let owners = if pass.is_wrong(Beside::NoOwner) { json!([]) } else { json!([owner(cd, true)]) };
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
            "metadata": { "name": secret, "namespace": namespace(cd), "labels": labels,
                          "ownerReferences": owners },
        });
        return Err(post(Kind::Secret, namespace(cd), object).into());
    };
    if old["data"] != *data && !pass.is_wrong(Beside::KubeconfigStays) {
        let mut changed = (*old).clone();
        changed["data"] = data.clone();
        return Err(put(changed).into());
    }
    Ok(())
}

/// Writes what the service knows of the cluster.
fn write_status(pass: &mut Pass<'_>, aci: &Value, id: Option<Uuid>, outcome: &Result<(), Problem>) -> Result<(), Stop> {
    let row = id.and_then(|id| pass.core.state.cluster(id)).cloned();
    let mut status = aci["status"].clone();
    let mut wanted: Vec<Condition> = vec![conditions::synced(outcome, "SyncOK")];
    match row {
        None => {
            wanted.extend(conditions::not_available(conditions::OF_CLUSTERS, "The cluster is not available"));
            status["debugInfo"] = json!({});
        }
        Some(row) => {
            let cd = pass.get(Kind::ClusterDeployment, row.private.kube_key.as_deref().unwrap_or(""));
            let c = row.cluster();
            let validations = parsed(c.validations_info.as_deref());
            let of = OfCluster {
                info: &c.status_info,
                validations: &validations,
                held: cd.is_some_and(|cd| is_held(&cd, aci)),
                waits: if c.status == ClusterStatus::Ready { waits(pass, aci, c.id) } else { None },
                preparation: c.last_installation_preparation.as_ref(),
            };
            wanted.extend(conditions::of_cluster(c.status, &of));
            row_status(pass, &row, &mut status);
            status["validationsInfo"] = validations;
        }
    }
    status["conditions"] = conditions::merged(&aci["status"]["conditions"], &wanted, pass.now, true);
    pass.status(aci, status)
}

fn row_status(pass: &Pass<'_>, row: &ClusterRow, status: &mut Value) {
    let c = row.cluster();
    let base = format!("{}/api/assisted-install/v2", pass.core.base_url());
    let is_set = |at: Option<vlab_api::Timestamp>| at.is_some_and(|at| at != vlab_api::Timestamp::UNSET);
    let logs = is_set(c.controller_logs_collected_at)
        || pass.core.state.hosts_of_cluster(c.id).iter().any(|host| is_set(host.host().logs_collected_at));
    status["debugInfo"] = json!({
        "state": c.status, "stateInfo": c.status_info, "eventsURL": format!("{base}/events?cluster_id={}", c.id),
        "logsURL": logs.then(|| format!("{base}/clusters/{}/logs", c.id)),
    });
    let total = c.progress.as_ref().and_then(|p| p.total_percentage).unwrap_or(0);
    status["progress"] = json!({ "totalPercentage": total });
    let api: Vec<&str> = c.api_vips.iter().flatten().filter_map(|v| v.ip.as_deref()).collect();
    let ingress: Vec<&str> = c.ingress_vips.iter().flatten().filter_map(|v| v.ip.as_deref()).collect();
    status["apiVIP"] = json!(api.first());
    status["ingressVIP"] = json!(ingress.first());
    status["apiVIPs"] = if api.is_empty() { Value::Null } else { json!(api) };
    status["ingressVIPs"] = if ingress.is_empty() { Value::Null } else { json!(ingress) };
    let networks: Vec<Value> = row.view.machine_network_texts().map(|cidr| json!({ "cidr": cidr })).collect();
    status["connectivityMajorityGroups"] = json!(c.connectivity_majority_groups.as_deref().filter(|g| !g.is_empty()));
    status["machineNetwork"] = if networks.is_empty() { Value::Null } else { json!(networks) };
    status["userManagedNetworking"] = json!(c.user_managed_networking);
    status["platformType"] = json!(spec::platform_word(row.view.platform()));
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Hive says it in one place, and who has none in another.
    #[rstest]
    #[case::hive(true, "ClusterInstallationInProgress", true)]
    #[case::no_hive(false, "InstallationCompleted", true)]
    #[case::not_yet(false, "InstallationInProgress", false)]
    fn a_cluster_is_installed(#[case] installed: bool, #[case] reason: &str, #[case] is: bool) {
        let cd = json!({ "spec": { "installed": installed } });
        let aci = json!({ "status": { "conditions": [{ "type": "Completed", "reason": reason }] } });
        assert_eq!(is_installed(&cd, &aci), is);
    }
}
