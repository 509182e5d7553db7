//! The cluster that is installed. It has an API server of its own, which the kubeconfig in its Secret names. There the controllers follow
//! hosts of day 2 after their reboot (`/status/csrStatus` of their Agents), pause its pool of workers, and clean up after hosts that leave.

use std::sync::Arc;

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};
use vlab_api::types::{HostProgress, HostStage, HostStatus};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer as _;

use super::altered::{Beside, Demand, WrongController};
use super::client::Kind;
use super::kubeconfig::server_in;
use super::node_request::{BOOTSTRAPPER, BOOTSTRAPPERS, NODE_GROUP, NODE_PREFIX, REQUESTS};
use super::object::{
    BMH_LABEL, INFRA_ENV_LABEL, annotation, decoded, filled, install_of, is_deleted, key_of, label, namespace,
    reference, text, texts, time,
};
use super::pass::{Pass, Stop};
use super::spec;
use crate::commands::progress;
use crate::rows::HostRow;
use crate::state::HostKey;

/// On an Agent: what its node left in its cluster is left there.
const SKIPS_CLEAN_UP: &str = "agent.agent-install.openshift.io/skip-spoke-cleanup";
/// On a BareMetalHost: its like and its Machine were made in the cluster.
pub(super) const MADE_THERE: &str = "bmac.agent-install.openshift.io/spoke-bmh-machine-created";
pub(super) const NODES: &str = "/api/v1/nodes";
const MACHINES: &str = "/apis/machine.openshift.io/v1beta1/namespaces";
const WORKERS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/worker";

/// Why a cluster cannot be asked.
#[derive(Debug)]
pub(super) enum Trouble {
    Stop(Stop),
    /// It has no Secret: it was never installed, or is gone.
    Unknown(String),
    Says(String),
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// The name of the Secret with the kubeconfig of a cluster.
fn secret_of(cd: Option<&Value>, key: &str) -> String {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let named = cd.and_then(|cd| filled(&cd["spec"]["clusterMetadata"]["adminKubeconfigSecretRef"]["name"]));
    format!("{namespace}/{}", named.unwrap_or_else(|| format!("{name}-admin-kubeconfig")))
}

/// The Secret with the kubeconfig of a ClusterDeployment's cluster, and the URL of the API server in it; empty: it names none. `Err`: the
/// key of the Secret that is not there.
pub(super) fn kubeconfig_of(pass: &Pass<'_>, cluster: &str) -> Result<(Arc<Value>, String), String> {
    let key = secret_of(pass.get(Kind::ClusterDeployment, cluster).as_deref(), cluster);
    let secret = pass.get(Kind::Secret, &key).ok_or(key)?;
    let kubeconfig = decoded(text(&secret["data"]["kubeconfig"]));
    Ok((secret, server_in(&kubeconfig).unwrap_or_default().to_owned()))
}

/// Where the API server of a ClusterDeployment's cluster is.
pub(super) fn server(pass: &Pass<'_>, cluster: &str) -> Result<String, Trouble> {
    let missing = |key| Trouble::Unknown(format!("failed to get kubeconfig secret {key}: Secret not found"));
    let (secret, server) = kubeconfig_of(pass, cluster).map_err(missing)?;
    pass.mark_as_used(&secret)?;
    if server.is_empty() {
        return Err(Trouble::Says(format!("the kubeconfig in secret {} names no server", key_of(&secret))));
    }
    if !server.starts_with("http://") {
        return Err(Trouble::Says(format!("{server} cannot be reached: only plain HTTP is spoken here")));
    }
    Ok(server)
}

/// Asks it; a status that is no success is an error, but for 404 of something that is looked for.
pub(super) fn ask<'p>(pass: &'p Pass<'_>, server: &str, request: Request) -> Result<Option<&'p Response>, Trouble> {
    let what = format!("{} {}", request.method, request.path);
    match pass.asked(server, request)? {
        Ok(response) if response.is_success() => Ok(Some(response)),
        Ok(response) if response.status == 404 => Ok(None),
        Ok(response) => Err(Trouble::Says(format!("{what} is answered with {}", response.status))),
        Err(why) => Err(Trouble::Says(format!("{what}: {why}"))),
    }
}

pub(super) fn look(pass: &Pass<'_>, server: &str, path: String) -> Result<Option<Value>, Trouble> {
    let response = ask(pass, server, Request::new(Method::Get, path))?;
    Ok(response.and_then(|response| response.decode().ok()))
}

pub(super) fn merge(pass: &Pass<'_>, server: &str, path: String, patch: &Value) -> Result<(), Trouble> {
    let mut request = Request::new(Method::Patch, path);
    request.body = patch.to_string().into_bytes().into();
    ask(pass, server, request.header("content-type", "application/merge-patch+json")).map(drop)
}

fn remove(pass: &Pass<'_>, server: &str, path: String) -> Result<(), Trouble> {
    ask(pass, server, Request::new(Method::Delete, path)).map(drop)
}

/// The name of the node that a host is.
pub(super) fn node_name(agent: &Value) -> String {
    filled(&agent["spec"]["hostname"]).or_else(|| filled(&agent["status"]["inventory"]["hostname"])).unwrap_or_default()
}

pub(super) fn is_ready(node: &Value) -> bool {
    node["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

pub(super) fn is_approved(request: &Value) -> bool {
    request["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "Approved")
}

/// What a cluster says of a host that joins it.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// Its stage, where the cluster says more than the host.
    pub(super) stage: Option<HostStage>,
    /// When the cluster is asked again.
    pub(super) again: Option<Timestamp>,
    /// It is tried again, later and later.
    pub(super) failed: bool,
}

/// Asks the cluster about a host of day 2 that has rebooted: approves the requests of its node, and notes how far that is.
pub(super) fn follow(pass: &mut Pass<'_>, agent: &Value, row: &HostRow, host: HostKey) -> Result<Followed, Stop> {
    let Some(stage) = row.view.stage().filter(|_| row.view.is_day2()) else { return Ok(Followed::default()) };
    let cluster = reference(&agent["spec"]["clusterDeploymentName"], namespace(agent));
    let status = row.host().status;
    let waits = status == HostStatus::InstallingPendingUserAction;
    let rebooted = matches!(stage, HostStage::Rebooting | HostStage::Joined | HostStage::Configuring);
    if cluster.is_empty() || !(rebooted || waits || status == HostStatus::Installed && stage != HostStage::Done) {
        return Ok(Followed::default());
    }
    let key = format!("{}/{}", namespace(agent), text(&agent["metadata"]["name"]));
    // What its answer changes wakes this pass again: it is not asked for that.
    if pass.answers.all.is_empty()
        && let Some((at, then)) = pass.index.looked.get(&key)
        && *then == Some(stage)
    {
        let due = *at + pass.core.config.settings.approve_csrs_requeue_duration;
        if pass.now < due {
            let shown = text(&agent["status"]["progress"]["currentStage"]).parse().ok();
            return Ok(Followed { stage: shown, again: Some(due), ..Followed::default() });
        }
    }
    match join(pass, agent, row, host, (&cluster, stage)) {
        Ok(followed) => {
            let is = pass.core.state.host(host).and_then(|row| row.view.stage());
            pass.index.looked.insert(key, (pass.now, is));
            Ok(followed)
        }
        Err(Trouble::Stop(stop)) => Err(stop),
        Err(Trouble::Unknown(_) | Trouble::Says(_)) => Ok(Followed { failed: true, ..Followed::default() }),
    }
}

fn join(
    pass: &mut Pass<'_>,
    agent: &Value,
    row: &HostRow,
    host: HostKey,
    (cluster, stage): (&str, HostStage),
) -> Result<Followed, Trouble> {
    let server = server(pass, cluster)?;
    let name = node_name(agent);
    let node = look(pass, &server, format!("{NODES}/{name}"))?;
    let status = row.host().status;
    let approves = approves(pass, agent, cluster)
        && (matches!(stage, HostStage::Rebooting | HostStage::Joined)
            || status == HostStatus::InstallingPendingUserAction);
    let again = pass.now + pass.core.config.settings.approve_csrs_requeue_duration;
    let mut followed = Followed { again: Some(again), ..Followed::default() };
    let mut requests = agent["status"]["csrStatus"].clone();
    if approves {
        // Noted before anything follows from it.
        requests = approve(pass, agent, &server, node.as_ref())?;
        let mut noted = agent["status"].clone();
        noted["csrStatus"] = requests.clone();
        pass.status(agent, noted)?;
    }
    let Some(node) = node else { return Ok(followed) };
    if is_ready(&node) && !pass.is_wrong(Beside::NodeLabelsMissing) {
        let labels = spec::text_map(&agent["spec"]["nodeLabels"]);
        let is = spec::text_map(&node["metadata"]["labels"]);
        if labels.iter().any(|(name, value)| is.get(name) != Some(value)) {
            merge(pass, &server, format!("{NODES}/{name}"), &json!({ "metadata": { "labels": labels } }))?;
        }
    }
    let has = |kind: &str| requests["approvedCSRs"].as_array().into_iter().flatten().any(|one| one["type"] == kind);
    let both = || has("client") && has("serving");
    let done = is_ready(&node) && (!approves || both());
    let stage = if done { HostStage::Done } else { HostStage::Joined };
    let late = status == HostStatus::InstallingPendingUserAction;
    if status != HostStatus::Installed {
        let info = (done && late).then(|| format!("its node joined the cluster although it is {status}"));
        let report = HostProgress { current_stage: Some(stage), progress_info: info };
        progress::report_host(pass.core, pass.now, host, report).map_err(|refusal| Trouble::Says(refusal.text))?;
    }
    followed.stage = Some(stage);
    if done {
        followed.again = None;
    }
    Ok(followed)
}

/// Is it for the service to approve what the node asks for? Where a BareMetalHost stands for it, the cluster's own operators do that.
fn approves(pass: &Pass<'_>, agent: &Value, cluster: &str) -> bool {
    let host = label(agent, BMH_LABEL);
    if host.is_empty() || pass.get(Kind::BareMetalHost, &format!("{}/{host}", namespace(agent))).is_none() {
        return true;
    }
    let cd = pass.get(Kind::ClusterDeployment, cluster).unwrap_or_default();
    let aci = pass.get(Kind::AgentClusterInstall, &install_of(&cd)).unwrap_or_default();
    text(&aci["spec"]["platformType"]) == "None" || aci["spec"]["networking"]["userManagedNetworking"] == true
}

/// Approves what the node of this Agent asks for: as a client always, as a server once it is there. Gives the Agent's `csrStatus`.
fn approve(pass: &Pass<'_>, agent: &Value, server: &str, node: Option<&Value>) -> Result<Value, Trouble> {
    let mut status = agent["status"]["csrStatus"].clone();
    let list = match look(pass, server, REQUESTS.to_owned()) {
        Ok(list) => list.unwrap_or_default(),
        Err(Trouble::Stop(stop)) => return Err(stop.into()),
        // Who cannot see them approves none; he tries again.
        Err(_) => return Ok(status),
    };
    let mut approved = status["approvedCSRs"].as_array().cloned().unwrap_or_default();
    for kind in ["client", "serving"] {
        let node = match (kind, node) {
            ("client", _) => None,
            (_, Some(node)) => Some(node),
            _ => continue,
        };
        for request in list["items"].as_array().into_iter().flatten() {
            let name = text(&request["metadata"]["name"]);
            let is_approved = is_approved(request);
            let is_noted = approved.iter().any(|one| one["name"] == name);
            // The list may be older than what was approved since.
            if is_noted || !is_good(request, &node_name(agent), node, pass.wrong) {
                continue;
            }
            let mut at = time(pass.answers.since.unwrap_or(pass.now));
            if is_approved {
                let of = request["status"]["conditions"].as_array().into_iter().flatten();
                at = of.clone().find(|c| c["type"] == "Approved").map(|c| c["lastUpdateTime"].clone()).unwrap_or(at);
            } else {
                let mut changed = request.clone();
                changed["apiVersion"] = json!("certificates.k8s.io/v1");
                changed["kind"] = json!("CertificateSigningRequest");
                let condition = json!({
                    "type": "Approved", "status": "True", "reason": "NodeCSRApprove", "lastUpdateTime": at,
                    "message": "approved for a host that is being added",
                });
                let mut conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.push(condition);
                changed["status"]["conditions"] = Value::Array(conditions);
                let put = Request::new(Method::Put, format!("{REQUESTS}/{name}/approval")).json(&changed);
                match ask(pass, server, put) {
                    Ok(Some(_)) => {}
                    Err(Trouble::Stop(stop)) => return Err(stop.into()),
                    _ => continue,
                }
            }
            approved.push(json!({ "name": name, "type": kind, "approvedAt": at }));
        }
    }
    status["approvedCSRs"] = Value::Array(approved);
    status["lastApprovalAttempt"] = time(pass.answers.since.unwrap_or(pass.now));
    Ok(status)
}

/// Whom a request for a certificate is about, and what it wants to be called.
#[derive(Debug, Default)]
struct Wanted {
    common_name: String,
    organizations: Vec<String>,
    names: Vec<String>,
    addresses: Vec<String>,
    mail: bool,
}

fn wanted(request: &Value) -> Option<Wanted> {
    let pem = decoded(text(&request["spec"]["request"]));
    let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
    let (_, csr) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let subject = &csr.certification_request_info.subject;
    let mut wanted = Wanted {
        common_name: subject.iter_common_name().next()?.as_str().ok()?.to_owned(),
        organizations: subject.iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned)).collect(),
        ..Wanted::default()
    };
    for extension in csr.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => wanted.names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => wanted.addresses.extend(address(bytes)),
                GeneralName::RFC822Name(_) => wanted.mail = true,
                _ => {}
            }
        }
    }
    Some(wanted)
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|four| std::net::IpAddr::from(four).to_string());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|all| std::net::IpAddr::from(all).to_string())).ok()
}

/// Does the node of that name ask for what it may have: without a node as a client, with it as a server?
fn is_good(request: &Value, name: &str, node: Option<&Value>, wrong: Option<WrongController>) -> bool {
    let Some(wanted) = wanted(request) else { return false };
    let all = |demand| wrong == Some(WrongController::NotDemanded(demand));
    if !wanted.common_name.eq_ignore_ascii_case(&format!("{NODE_PREFIX}{name}")) && !all(Demand::Name) {
        return false;
    }
    let sorted = |mut list: Vec<String>| {
        list.sort_unstable();
        list
    };
    let usages = sorted(texts(&request["spec"]["usages"]));
    let exactly = |usage: &str| {
        [vec!["digital signature", usage], vec!["digital signature", usage, "key encipherment"]]
            .into_iter()
            .any(|list| sorted(list.into_iter().map(str::to_owned).collect()) == usages)
    };
    let (user, groups) = (text(&request["spec"]["username"]), texts(&request["spec"]["groups"]));
    let Some(node) = node else {
        let theirs = sorted(BOOTSTRAPPERS.map(str::to_owned).to_vec());
        let nameless = wanted.names.is_empty() && wanted.addresses.is_empty() && !wanted.mail;
        return (wanted.organizations == [NODE_GROUP] || all(Demand::Organization))
            && (nameless || all(Demand::Names))
            && (exactly("client auth") || all(Demand::Usages))
            && (user == BOOTSTRAPPER || all(Demand::User))
            && (sorted(groups) == theirs || all(Demand::Groups));
    };
    let of = node["status"]["addresses"].as_array().into_iter().flatten();
    let addresses: Vec<&str> = of.map(|one| text(&one["address"])).chain([text(&node["metadata"]["name"])]).collect();
    let is_node = user.strip_prefix(NODE_PREFIX).is_some_and(|node| !node.is_empty()) && wanted.common_name == user;
    let is_in = groups.len() >= 2 && groups.iter().any(|group| group == "system:authenticated");
    let mut names = wanted.names.iter().chain(&wanted.addresses);
    (is_node || all(Demand::User))
        && (is_in || all(Demand::Groups))
        && (exactly("server auth") || all(Demand::Usages))
        && (wanted.organizations.iter().any(|of| of == NODE_GROUP) || all(Demand::Organization))
        && (names.all(|one| addresses.contains(&one.as_str())) || all(Demand::Names))
}

/// Pauses the cluster's pool of workers while hosts are installed that get labels and a pool, and lets it go on after that.
pub(super) fn pause_workers(pass: &Pass<'_>, cluster: &str, agents: &[Arc<Value>]) -> Result<(), Trouble> {
    let state = |agent: &Value| text(&agent["status"]["debugInfo"]["state"]).to_owned();
    let theirs = |agent: &&Arc<Value>| {
        !spec::text_map(&agent["spec"]["nodeLabels"]).is_empty()
            && filled(&agent["spec"]["machineConfigPool"]).is_some()
            && state(agent) != "installed"
    };
    let mut agents = agents.iter().filter(theirs).peekable();
    if agents.peek().is_none() {
        return Ok(());
    }
    let paused = agents.any(|agent| {
        text(&agent["status"]["progress"]["currentStage"]) != "Done"
            && matches!(state(agent).as_str(), "installing" | "installing-in-progress")
    });
    let server = server(pass, cluster)?;
    let Some(pool) = look(pass, &server, WORKERS.to_owned())? else {
        return Err(Trouble::Says("the cluster has no MachineConfigPool worker".to_owned()));
    };
    if (pool["spec"]["paused"] == true) == paused || pass.is_wrong(Beside::PoolRuns) {
        return Ok(());
    }
    merge(pass, &server, WORKERS.to_owned(), &json!({ "spec": { "paused": paused } }))
}

/// What is to be cleaned up once a host has left its cluster: the Agent's `deprovision_info`.
pub(super) fn to_clean(agent: &Value, cluster: &str) -> Value {
    let (namespace, name) = cluster.split_once('/').unwrap_or(("", cluster));
    json!({
        "cluster_name": name, "cluster_namespace": namespace, "node_name": node_name(agent),
        "message": "its node is removed once the host has left the cluster",
    })
}

/// Removes what is left in a cluster that the host has left; `Ok(Some)`: it did not succeed yet, and why.
pub(super) fn clean(pass: &Pass<'_>, agent: &Value) -> Result<Option<String>, Stop> {
    let info = &agent["status"]["deprovision_info"];
    if agent["metadata"]["annotations"].get(SKIPS_CLEAN_UP).is_some() {
        return Ok(None);
    }
    let cluster = format!("{}/{}", text(&info["cluster_namespace"]), text(&info["cluster_name"]));
    match server(pass, &cluster).and_then(|server| remove_node(pass, &server, text(&info["node_name"]))) {
        Ok(()) | Err(Trouble::Unknown(_)) => Ok(None),
        Err(Trouble::Says(why)) => Ok(Some(why)),
        Err(Trouble::Stop(stop)) => Err(stop),
    }
}

/// Removes what the node of a deleted Agent left in its cluster, where the cluster stays; `Ok(Some)`: it did not succeed, and why.
pub(super) fn clean_deleted(pass: &Pass<'_>, agent: &Value) -> Result<Option<String>, Stop> {
    let cluster = reference(&agent["spec"]["clusterDeploymentName"], namespace(agent));
    if cluster.is_empty() || agent["metadata"]["annotations"].get(SKIPS_CLEAN_UP).is_some() {
        return Ok(None);
    }
    let bmh = pass.get(Kind::BareMetalHost, &format!("{}/{}", namespace(agent), label(agent, BMH_LABEL)));
    let there = agent["status"]["progress"]["currentStage"] == "Done"
        || bmh.is_some_and(|bmh| !annotation(&bmh, MADE_THERE).is_empty())
        || agent["status"]["csrStatus"]["approvedCSRs"].as_array().is_some_and(|list| !list.is_empty());
    let stays = |object: Option<Arc<Value>>| object.filter(|object| !is_deleted(object));
    let infra_env = format!("{}/{}", namespace(agent), label(agent, INFRA_ENV_LABEL));
    let Some(cd) = stays(pass.get(Kind::ClusterDeployment, &cluster)).filter(|_| there) else { return Ok(None) };
    if stays(pass.get(Kind::AgentClusterInstall, &install_of(&cd))).is_none()
        || stays(pass.get(Kind::InfraEnv, &infra_env)).is_none()
    {
        return Ok(None);
    }
    match server(pass, &cluster).and_then(|server| remove_node(pass, &server, &node_name(agent))) {
        Ok(()) => Ok(None),
        Err(Trouble::Unknown(why) | Trouble::Says(why)) => Ok(Some(why)),
        Err(Trouble::Stop(stop)) => Err(stop),
    }
}

fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once('/').filter(|(_, name)| !name.contains('/'))
}

/// Removes a node from its cluster: by its Machine where it has one, and that by its BareMetalHost where a set of Machines follows those.
fn remove_node(pass: &Pass<'_>, server: &str, name: &str) -> Result<(), Trouble> {
    if pass.is_wrong(Beside::NodeStays) {
        return Ok(());
    }
    let path = format!("{NODES}/{name}");
    let Some(node) = look(pass, server, path.clone())? else { return Ok(()) };
    let Some((of, machine)) = split(annotation(&node, "machine.openshift.io/machine")) else {
        return remove(pass, server, path);
    };
    let at = format!("{MACHINES}/{of}/machines/{machine}");
    let Some(machine) = look(pass, server, at.clone())? else { return remove(pass, server, path) };
    let marks = json!({
        "machine.openshift.io/delete-machine": "true", "machine.openshift.io/exclude-node-draining": "true",
    });
    merge(pass, server, at.clone(), &json!({ "metadata": { "annotations": marks } }))?;
    let host = split(annotation(&machine, "metal3.io/BareMetalHost"));
    let host = host.map(|(of, name)| format!("{}/{name}", Kind::BareMetalHost.path_in(of)));
    let set = label(&machine, "machine.openshift.io/cluster-api-machineset");
    let set = format!("{MACHINES}/{of}/machinesets/{set}");
    let follows = !set.ends_with('/') && look(pass, server, set.clone())?.is_some();
    if follows {
        merge(
            pass,
            server,
            set,
            &json!({ "metadata": { "annotations": { "metal3.io/autoscale-to-hosts": "true" } } }),
        )?;
    }
    if let Some(host) = host
        && look(pass, server, host.clone())?.is_some()
    {
        remove(pass, server, host)?;
    }
    if follows { Ok(()) } else { remove(pass, server, at) }
}

/// When a cluster was asked last, and at which stage the host was.
pub(super) type Looked = (Timestamp, Option<HostStage>);
