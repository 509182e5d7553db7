//! Agent: a host. The service makes it when a host registers with an InfraEnv that has a resource.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use uuid::Uuid;
use vlab_api::types::{
    Disk, DiskConfigParams, DiskRole, Event, HostRole, HostStatus, HostUpdateParams, IgnitionEndpointHttpHeadersParams,
    NodeLabelParams, Severity,
};
use vlab_model::disks;
use vlab_model::host::HostEvent;

use super::altered::Beside;
use super::client::Kind;
use super::conditions;
use super::object::{
    BMH_LABEL, CLUSTER_LABEL, INFRA_ENV_LABEL, annotation, decoded, filled, is_deleted, is_owned_by, label, namespace,
    owner, parsed, reference, text, without,
};
use super::pass::{Halt, Pass, Problem, Stop, merge, post, put, told};
use super::{Command, Who, fencing, reclaim, spec, spoke};
use crate::commands::{binding, hosts, register};
use crate::monitor::in_installation;
use crate::rows::HostRow;
use crate::state::HostKey;

const FINALIZER: &str = "agent.agent-install.openshift.io/ai-deprovision";
/// On an InfraEnv: which of its labels the nodes of its hosts get.
const INHERITS: &str = "infraenv.agent-install.openshift.io/propagate-node-labels";
/// On an Agent: which labels of its node it has from there.
const INHERITED: &str = "agent.agent-install.openshift.io/inherited-node-labels";
/// After an error of the backend it is tried again.
const BACKEND_AGAIN: Duration = Duration::from_secs(10);

/// Makes the Agent of a host that has none.
pub(super) fn make(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    pass.wanted.push((Who::Agent, key.to_owned()));
    let Some(&host) = pass.index.hosts.get(key) else { return Ok(()) };
    let Some(row) = pass.core.state.host(host).cloned() else { return Ok(()) };
    let Some(of) = pass.index.infra_env_keys.get(&host.0).cloned() else { return Ok(()) };
    let Some(infra_env) = pass.get(Kind::InfraEnv, &of) else { return Ok(()) };
    if is_deleted(&infra_env) {
        return Ok(());
    }
    let (namespace, name) = of.split_once('/').unwrap_or(("", &of));
    let there = pass.get(Kind::Agent, key);
    // Where its host is known there, too, it came from another InfraEnv.
    let of_before = |agent: &Value| {
        let before = pass.infra_env(&format!("{namespace}/{}", label(agent, INFRA_ENV_LABEL)))?;
        Some((before, host.1)).filter(|before| *before != host && pass.core.state.host(*before).is_some())
    };
    let before = there.as_deref().and_then(of_before);
    if there.is_some() && before.is_none() {
        return Ok(());
    }
    let mut labels: Map<String, Value> = infra_env["spec"]["agentLabels"].as_object().cloned().unwrap_or_default();
    labels.insert(INFRA_ENV_LABEL.into(), json!(name));
    let mut spec = json!({ "approved": false, "role": "" });
    if let Some(cluster) = row.host().cluster_id.and_then(|id| pass.index.cluster_keys.get(&id)) {
        spec["clusterDeploymentName"] = cluster_name(cluster);
    }
    let inherited = inherited_labels(&infra_env);
    let names: Vec<&str> = inherited.keys().map(String::as_str).collect();
    let names = names.join(",");
    if !inherited.is_empty() {
        spec["nodeLabels"] = json!(inherited);
    }
    if let (Some(agent), Some(before)) = (there, before) {
        // There it is no more, and what was said of it is said of it no more.
        pass.core.state.delete_host(before);
        let mut changed = (*agent).clone();
        changed["spec"] = spec;
        changed["metadata"]["labels"] = Value::Object(labels);
        changed["metadata"]["ownerReferences"] = json!([owner(&infra_env, false)]);
        let annotations = &mut changed["metadata"]["annotations"];
        match names.is_empty() {
            true => _ = annotations.as_object_mut().map(|all| all.remove(INHERITED)),
            false => annotations[INHERITED] = json!(names),
        }
        return Err(put(changed));
    }
    let mut agent = json!({
        "apiVersion": Kind::Agent.api_version(), "kind": "Agent", "spec": spec,
        "metadata": { "name": host.1.to_string(), "namespace": namespace, "labels": labels,
                      "ownerReferences": [owner(&infra_env, false)] },
    });
    if !names.is_empty() {
        agent["metadata"]["annotations"] = json!({ INHERITED: names });
    }
    Err(post(Kind::Agent, namespace, agent))
}

/// The labels of an InfraEnv that it gives to the nodes of its hosts.
fn inherited_labels(infra_env: &Value) -> BTreeMap<String, String> {
    let names = spec::words(annotation(infra_env, INHERITS));
    let labels = spec::text_map(&infra_env["metadata"]["labels"]);
    labels.into_iter().filter(|(name, _)| names.contains(name)).collect()
}

fn cluster_name(key: &str) -> Value {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    json!({ "name": name, "namespace": namespace })
}

pub(super) fn pass(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(agent) = pass.get(Kind::Agent, key) else { return Ok(()) };
    let host = pass.index.hosts.get(key).copied().filter(|host| pass.core.state.host(*host).is_some());
    if is_deleted(&agent) {
        if let Some(why) = spoke::clean_deleted(pass, &agent)? {
            let wanted = [conditions::Condition::new("Cleanup", "False", "CleanupFailed", why)];
            let mut status = agent["status"].clone();
            status["conditions"] = conditions::merged(&agent["status"]["conditions"], &wanted, pass.now, false);
            pass.status(&agent, status)?;
            return Err(Stop::Failed);
        }
        if let Some(host) = host {
            let outcome = pass.give(Command::DeleteHost, host.1, |core, now| hosts::delete(core, now, host));
            outcome.map_err(|_| Stop::Failed)?;
            pass.index.hosts.remove(key);
        }
        pass.index.looked.remove(key);
        return pass.drop_finalizer(&agent, FINALIZER);
    }
    let Some(host) = host else { return lost(pass, key, &agent) };
    pass.finalizer(&agent, FINALIZER)?;
    clean_up(pass, &agent, host)?;
    membership(pass, &agent, host)?;
    let outcome = told(sync(pass, &agent, host))?;
    let Some(row) = pass.core.state.host(host).cloned() else { return Ok(()) };
    let followed = spoke::follow(pass, &agent, &row, host)?;
    let Some(row) = pass.core.state.host(host).cloned() else { return Ok(()) };
    annotations(&agent, &row)?;
    inventory_labels(&agent, &row)?;
    write_status(pass, &agent, &row, (&outcome, &followed))?;
    match (outcome, followed.again) {
        _ if followed.failed => Err(Stop::Failed),
        (Err(Problem::Backend(_)), _) => Err(Stop::Later(BACKEND_AGAIN)),
        (_, Some(again)) => Err(Stop::Until(again)),
        _ => Ok(()),
    }
}

/// Removes what a host left in a cluster, once it has left that.
fn clean_up(pass: &Pass<'_>, agent: &Value, host: HostKey) -> Result<(), Stop> {
    let info = &agent["status"]["deprovision_info"];
    let Some(row) = pass.core.state.host(host).filter(|_| info.is_object()) else { return Ok(()) };
    let left = format!("{}/{}", text(&info["cluster_namespace"]), text(&info["cluster_name"]));
    let is_there = row.host().cluster_id.is_some_and(|id| pass.index.cluster_keys.get(&id) == Some(&left));
    if is_there || is_leaving(row.host().status) {
        return Ok(());
    }
    let mut status = agent["status"].clone();
    let failed = match spoke::clean(pass, agent)? {
        None => {
            status["deprovision_info"] = Value::Null;
            false
        }
        Some(why) => {
            status["deprovision_info"]["message"] = json!(why);
            true
        }
    };
    pass.status(agent, status)?;
    if failed { Err(Stop::Failed) } else { Ok(()) }
}

/// The service does not know the host (any more): where its infra-env is there it is made again.
fn lost(pass: &mut Pass<'_>, key: &str, agent: &Value) -> Result<(), Stop> {
    let of = format!("{}/{}", namespace(agent), label(agent, INFRA_ENV_LABEL));
    let id = text(&agent["metadata"]["name"]).parse::<Uuid>();
    let (Some(infra_env), Ok(id)) = (pass.infra_env(&of), id) else { return gone(pass, agent) };
    if pass.is_wrong(Beside::NotRestored) {
        return Ok(());
    }
    let named = reference(&agent["spec"]["clusterDeploymentName"], namespace(agent));
    let cluster = pass.cluster(&named);
    if !named.is_empty() && cluster.is_none() {
        return Err(Stop::Later(BACKEND_AGAIN));
    }
    let said = |name: &str| annotation(agent, &format!("agent.agent-install.openshift.io/{name}")).to_owned();
    // It has been there since its Agent was made, as far as anybody knows.
    let made = text(&agent["metadata"]["creationTimestamp"]).parse().unwrap_or(pass.now);
    register::restore(pass.core, made, (infra_env, id), cluster, said);
    pass.index.hosts.insert(key.to_owned(), (infra_env, id));
    pass.wanted.push((Who::Agent, key.to_owned()));
    Ok(())
}

/// Nobody knows where the host belongs.
fn gone(pass: &Pass<'_>, agent: &Value) -> Result<(), Stop> {
    let mut wanted = vec![conditions::synced(&Err(Problem::Input("the host was not found".into())), "")];
    wanted.extend(conditions::not_available(conditions::OF_HOSTS, "The agent's host is not available"));
    let mut status = agent["status"].clone();
    status["conditions"] = conditions::merged(&agent["status"]["conditions"], &wanted, pass.now, false);
    pass.status(agent, status)
}

/// The labels and the owner that say where it belongs.
fn membership(pass: &Pass<'_>, agent: &Value, host: HostKey) -> Result<(), Stop> {
    let Some(of) = pass.index.infra_env_keys.get(&host.0) else { return Ok(()) };
    let Some(infra_env) = pass.get(Kind::InfraEnv, of) else { return Ok(()) };
    let (_, name) = of.split_once('/').unwrap_or(("", of));
    let cluster = text(&agent["spec"]["clusterDeploymentName"]["namespace"]);
    let mut labels = Map::new();
    if label(agent, INFRA_ENV_LABEL) != name {
        labels.insert(INFRA_ENV_LABEL.into(), json!(name));
    }
    if label(agent, CLUSTER_LABEL) != cluster {
        labels.insert(CLUSTER_LABEL.into(), if cluster.is_empty() { Value::Null } else { json!(cluster) });
    }
    let owned = is_owned_by(agent, &infra_env["metadata"]["uid"]);
    if labels.is_empty() && owned {
        return Ok(());
    }
    let mut meta = json!({ "labels": labels });
    if !owned {
        meta["ownerReferences"] = json!([owner(&infra_env, false)]);
    }
    Err(merge(agent, "", &json!({ "metadata": meta })))
}

/// What a host that was lost is made again from.
fn annotations(agent: &Value, row: &HostRow) -> Result<(), Stop> {
    let h = row.host();
    let owned = |text: String| Cow::Owned(text);
    let wanted = [
        ("agent.agent-install.openshift.io/state", owned(h.status.to_string())),
        ("agent.agent-install.openshift.io/inventory", h.inventory.as_deref().unwrap_or_default().into()),
        ("agent.agent-install.openshift.io/validations-info", h.validations_info.as_deref().unwrap_or_default().into()),
        ("agent.agent-install.openshift.io/role", owned(h.role.map(|r| r.to_string()).unwrap_or_default())),
        (
            "agent.agent-install.openshift.io/current-stage",
            owned(row.view.stage().map(|s| s.to_string()).unwrap_or_default()),
        ),
    ];
    let differs = |(name, value): &(&str, Cow<'_, str>)| annotation(agent, name) != *value;
    let mut wanted = wanted.into_iter().filter(differs).peekable();
    if wanted.peek().is_none() {
        return Ok(());
    }
    let mut changed = agent.clone();
    for (name, value) in wanted {
        changed["metadata"]["annotations"][name] = json!(value);
    }
    Err(put(changed))
}

/// Labels to select Agents by their hardware.
fn inventory_labels(agent: &Value, row: &HostRow) -> Result<(), Stop> {
    let Some(inventory) = &row.view.inventory else { return Ok(()) };
    let yes = |is: bool| Cow::Borrowed(if is { "true" } else { "false" });
    let (vendor, cpu) = (inventory.system_vendor.as_ref(), inventory.cpu.as_ref());
    let spinning = |d: &vlab_api::types::Disk| d.drive_type == Some(vlab_api::types::DriveType::HDD);
    let mut flags = cpu.and_then(|cpu| cpu.flags.as_ref()).into_iter().flatten();
    let architecture = cpu.and_then(|cpu| cpu.architecture.as_deref()).unwrap_or_default();
    let maker = vendor.and_then(|vendor| vendor.manufacturer.as_deref()).unwrap_or_default();
    let product = vendor.and_then(|vendor| vendor.product_name.as_deref()).unwrap_or_default();
    let wanted = [
        (
            "inventory.agent-install.openshift.io/storage-hasnonrotationaldisk",
            yes(row.view.disks().iter().any(|d| !spinning(d))),
        ),
        ("inventory.agent-install.openshift.io/cpu-architecture", architecture.into()),
        ("inventory.agent-install.openshift.io/cpu-virtenabled", yes(flags.any(|f| f == "vmx" || f == "svm"))),
        ("inventory.agent-install.openshift.io/host-manufacturer", Cow::Owned(label_value(maker))),
        ("inventory.agent-install.openshift.io/host-productname", Cow::Owned(label_value(product))),
        (
            "inventory.agent-install.openshift.io/host-isvirtual",
            yes(vendor.is_some_and(|vendor| vendor.virtual_ == Some(true))),
        ),
    ];
    let version = "inventory.agent-install.openshift.io/version";
    let mut wanted = wanted.into_iter().filter(|(name, value)| label(agent, name) != *value).peekable();
    if wanted.peek().is_none() && annotation(agent, version) == "0.1" {
        return Ok(());
    }
    let mut changed = agent.clone();
    for (name, value) in wanted {
        changed["metadata"]["labels"][name] = json!(value);
    }
    changed["metadata"]["annotations"][version] = json!("0.1");
    Err(put(changed))
}

/// A text as the value of a label: what labels cannot have is left out.
fn label_value(text: &str) -> String {
    let kept: String =
        text.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).take(63).collect();
    kept.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// Lets the host of the service be what the Agent says.
fn sync(pass: &mut Pass<'_>, agent: &Value, host: HostKey) -> Result<(), Halt> {
    bound(pass, agent, host)?;
    approved(pass, agent, host)?;
    update(pass, agent, host)
}

/// Binds the host to the cluster that the Agent names, or takes it out of the one that it does not name any more.
fn bound(pass: &mut Pass<'_>, agent: &Value, host: HostKey) -> Result<(), Halt> {
    let Some(row) = pass.core.state.host(host).cloned() else { return Ok(()) };
    let wanted = reference(&agent["spec"]["clusterDeploymentName"], namespace(agent));
    let is = row.host().cluster_id;
    if wanted.is_empty() {
        return match is {
            None => Ok(()),
            // Only a host that is being added may be taken away in the middle.
            Some(_) if in_installation(row.host().status) && !row.view.is_day2() => {
                Err(Problem::Input(format!("the host {} is being installed and cannot leave its cluster", host.1))
                    .into())
            }
            Some(_) => unbind(pass, agent, &row, host),
        };
    }
    let missing = || Problem::Backend(format!("failed to find the cluster of ClusterDeployment {wanted}"));
    let cluster = pass.cluster(&wanted).ok_or_else(missing)?;
    match is {
        Some(bound) if bound == cluster => Ok(()),
        // First out of the other one; a later pass binds.
        Some(_) => unbind(pass, agent, &row, host),
        // It is bound again when it is back in the pool.
        None if is_leaving(row.host().status) => Ok(()),
        None => Ok(pass.give(Command::Bind, host.1, |core, now| binding::bind(core, now, host, cluster))?),
    }
}

/// Is the host on its way back to the pool?
fn is_leaving(status: HostStatus) -> bool {
    use HostStatus::{Reclaiming, ReclaimingRebooting, Unbinding, UnbindingPendingUserAction};
    matches!(status, Unbinding | UnbindingPendingUserAction | Reclaiming | ReclaimingRebooting)
}

fn unbind(pass: &mut Pass<'_>, agent: &Value, row: &HostRow, host: HostKey) -> Result<(), Halt> {
    use HostStatus::{AddedToExistingCluster, Installed};
    let cluster = row.host().cluster_id.and_then(|id| pass.index.cluster_keys.get(&id)).cloned();
    if let Some(cluster) = &cluster {
        let wanted = spoke::to_clean(agent, cluster);
        let mut status = agent["status"].clone();
        status["deprovision_info"] = wanted;
        status["csrStatus"] = Value::Null;
        pass.status(agent, status)?;
    }
    let reclaims = matches!(row.host().status, Installed | AddedToExistingCluster)
        && label(agent, BMH_LABEL).is_empty()
        && pass.core.state.infra_env(host.0).is_some_and(|row| row.infra_env.cluster_id.is_none());
    // Where its cluster cannot be asked for it, somebody has to boot it.
    if reclaims && is_asked_for(pass, agent, cluster.as_deref(), host)? {
        let name = pass.core.host_name(host);
        if pass.core.host_machine(pass.now, host, HostEvent::ReclaimHost, "") {
            let cluster = pass.core.state.host(host).and_then(|row| row.host().cluster_id);
            tell(pass, host, cluster, "host_reclaimed", format!("Host {name}: is to be reclaimed from its cluster"));
            return Ok(pass.give(Command::Unbind, host.1, |_, _| Ok(()))?);
        }
    }
    Ok(pass.give(Command::Unbind, host.1, |core, now| binding::take_out(core, now, host))?)
}

/// Does an agent on its node in the cluster get the host back?
fn is_asked_for(pass: &Pass<'_>, agent: &Value, cluster: Option<&str>, host: HostKey) -> Result<bool, Stop> {
    let Some(cluster) = cluster else { return Ok(false) };
    match spoke::server(pass, cluster).and_then(|server| reclaim::begin(pass, agent, &server, host)) {
        Ok(()) => Ok(true),
        Err(spoke::Trouble::Stop(stop)) => Err(stop),
        Err(spoke::Trouble::Unknown(_) | spoke::Trouble::Says(_)) => Ok(false),
    }
}

/// A host is installed only when somebody approved it.
fn approved(pass: &mut Pass<'_>, agent: &Value, host: HostKey) -> Result<(), Halt> {
    let Some(of) = pass.index.infra_env_keys.get(&host.0).cloned() else { return Ok(()) };
    let automatic = pass
        .get(Kind::InfraEnv, &of)
        .is_some_and(|ie| ie["spec"]["agentApproval"]["autoApprove"] == true && !is_deleted(&ie));
    let wanted = agent["spec"]["approved"] == true;
    if automatic && !wanted {
        let mut changed = agent.clone();
        changed["spec"]["approved"] = json!(true);
        return Err(put(changed).into());
    }
    let is = pass.core.state.host(host).is_some_and(|row| row.private.approved);
    if is != wanted {
        pass.core.state.edit_host(host, pass.now, |row| row.private.approved = wanted);
        let text = format!("Host {}: updated approved to {wanted}", pass.core.host_name(host));
        // It does not say of which cluster the host is, so that it is not in the list of the cluster's.
        tell(pass, host, None, "host_approved_updated", text);
    }
    Ok(())
}

/// An event that only this door has: it is not in the list of those that every run can show.
fn tell(pass: &mut Pass<'_>, host: HostKey, cluster_id: Option<Uuid>, name: &str, message: String) {
    pass.core.state.append_event(Event {
        name: Some(name.to_owned()),
        severity: Severity::Info,
        category: Some("user".to_owned()),
        message,
        event_time: pass.now,
        cluster_id,
        infra_env_id: Some(host.0),
        host_id: Some(host.1),
        ..Event::default()
    });
}

fn update(pass: &mut Pass<'_>, agent: &Value, host: HostKey) -> Result<(), Halt> {
    let Some(row) = pass.core.state.host(host).cloned() else { return Ok(()) };
    let spec = &agent["spec"];
    let h = row.host();
    let mut params = HostUpdateParams::default();
    let role = filled(&spec["role"]).and_then(|role| role.parse::<HostRole>().ok());
    // A single node is a master and a host of day 2 a worker, whatever one asks for; where nobody asks, the service decides.
    if let Some(role) = role.filter(|role| h.role != Some(*role) && !row.view.is_day2()) {
        params.host_role = Some(role.to_string());
    }
    if let Some(hostname) = filled(&spec["hostname"]).filter(|name| h.requested_hostname.as_ref() != Some(name)) {
        params.host_name = Some(hostname);
    }
    if let Some(pool) = filled(&spec["machineConfigPool"]).filter(|p| h.machine_config_pool_name.as_ref() != Some(p)) {
        params.machine_config_pool_name = Some(pool);
    }
    let labels = spec::text_map(&spec["nodeLabels"]);
    let before: BTreeMap<String, String> =
        h.node_labels.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    if labels != before {
        params.node_labels = Some(labels.into_iter().map(|(key, value)| NodeLabelParams { key, value }).collect());
    }
    let path = filled(&spec["installation_disk_path"])
        .and_then(|path| row.view.disks().iter().find(|d| is_at(d, &path)).map(disks::identifier))
        .map(str::to_owned);
    if let Some(id) = filled(&spec["installation_disk_id"]).or(path)
        && h.installation_disk_id.as_ref() != Some(&id)
        && row.view.inventory.is_some()
    {
        params.disks_selected_config = Some(vec![DiskConfigParams { id, role: Some(DiskRole::Install) }]);
    }
    let token = ignition_token(pass, agent)?;
    if token != row.private.ignition_endpoint_token {
        params.ignition_endpoint_token = Some(token.unwrap_or_default());
    }
    let headers: Vec<IgnitionEndpointHttpHeadersParams> = spec::text_map(&spec["ignitionEndpointHTTPHeaders"])
        .into_iter()
        .map(|(key, value)| IgnitionEndpointHttpHeadersParams { key, value })
        .collect();
    let said = serde_json::to_string(&headers).unwrap_or_default();
    if said != row.private.ignition_endpoint_http_headers.as_deref().unwrap_or("[]") {
        params.ignition_endpoint_http_headers = Some(headers);
    }
    params.fencing_credentials = fencing::of_agent(pass, agent, &row)?;
    if params != HostUpdateParams::default() {
        hosts::update(pass.core, pass.now, host, &params)?;
    }
    arguments(pass, spec, &row, host)
}

/// Has the disk that path, or another name that is as good?
fn is_at(disk: &Disk, path: &str) -> bool {
    let is = |name: &Option<String>| name.as_deref() == Some(path);
    disks::full_name(disk) == path || is(&disk.path) || is(&disk.id) || is(&disk.by_path)
}

/// The token with which the host fetches its ignition, from the Secret that the Agent names.
fn ignition_token(pass: &Pass<'_>, agent: &Value) -> Result<Option<String>, Halt> {
    let key = reference(&agent["spec"]["ignitionEndpointTokenReference"], namespace(agent));
    if key.is_empty() {
        return Ok(None);
    }
    let (_, name) = key.split_once('/').unwrap_or(("", &key));
    let missing = format!("Failed to get user-data secret: Secret {name:?} not found");
    let without = format!("secret {key} did not contain key ignition-token");
    Ok(Some(decoded(&pass.of_secret(&key, "ignition-token", missing, without)?)))
}

/// Arguments and ignition of the installation: JSON in a text.
fn arguments(pass: &mut Pass<'_>, spec: &Value, row: &HostRow, host: HostKey) -> Result<(), Halt> {
    let h = row.host();
    let args = text(&spec["installerArgs"]);
    if args != h.installer_args.as_deref().unwrap_or("") && !(args == "[]" && h.installer_args.is_none()) {
        let list: Vec<String> = if args.is_empty() {
            Vec::new()
        } else {
            let (id, of) = (host.1, host.0);
            let wrong =
                |e| Problem::Input(format!("Fail to unmarshal installer args for host {id} in infraEnv {of}: {e}"));
            serde_json::from_str(args).map_err(wrong)?
        };
        let same: Option<Vec<String>> = h.installer_args.as_deref().and_then(|text| serde_json::from_str(text).ok());
        if same.unwrap_or_default() != list {
            hosts::set_installer_args(pass.core, pass.now, host, &list)?;
        }
    }
    let config = filled(&spec["ignitionConfigOverrides"]);
    if config != h.ignition_config_overrides {
        hosts::set_ignition_override(pass.core, pass.now, host, config)?;
    }
    Ok(())
}

fn write_status(
    pass: &mut Pass<'_>,
    agent: &Value,
    row: &HostRow,
    (outcome, followed): (&Result<(), Problem>, &spoke::Followed),
) -> Result<(), Stop> {
    let shown = pass.core.show_host(row);
    let h = row.host();
    // These it gets anew.
    let anew = ["conditions", "validationsInfo", "inventory", "ntpSources", "progress", "debugInfo"];
    let mut status = without(&agent["status"], &anew);
    let mut wanted = vec![conditions::synced(outcome, "The Spec has been successfully applied")];
    let validations = parsed(h.validations_info.as_deref());
    wanted.extend(conditions::of_host(h.status, &h.status_info, &validations, row.private.approved));
    status["conditions"] = conditions::merged(&agent["status"]["conditions"], &wanted, pass.now, false);
    // What the service suggests, where nobody has chosen.
    let suggested = h.suggested_role.filter(|_| shown.role == Some(HostRole::AutoAssign));
    status["role"] = json!(suggested.or(shown.role));
    status["kind"] = json!(h.kind);
    status["bootstrap"] = json!(h.bootstrap == Some(true));
    status["installation_disk_id"] = json!(h.installation_disk_id);
    status["validationsInfo"] = validations;
    // What the host had stays there when it has to say it anew: by that its BareMetalHost finds it.
    let or_before = |member: &str, now: Value| if now.is_null() { agent["status"][member].clone() } else { now };
    status["inventory"] = or_before("inventory", inventory(row));
    let ntp_sources = h.ntp_sources.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok()).map_or(
        Value::Null,
        |list| {
            let one = |s: &Value| json!({ "sourceName": s["source_name"], "sourceState": s["source_state"] });
            json!(list.as_array().into_iter().flatten().map(one).collect::<Vec<_>>())
        },
    );
    status["ntpSources"] = or_before("ntpSources", ntp_sources);
    let progress = h.progress.clone().unwrap_or_default();
    status["progress"] = json!({
        "currentStage": followed.stage.or(progress.current_stage), "progressInfo": progress.progress_info,
        "installationPercentage": progress.installation_percentage,
        "stageStartTime": progress.stage_started_at, "stageUpdateTime": progress.stage_updated_at,
        "progressStages": shown.progress_stages,
    });
    if progress.current_stage.is_none() {
        status["progress"] = json!({});
    }
    let base = format!("{}/api/assisted-install/v2", pass.core.base_url());
    let logs = h.logs_collected_at.is_some_and(|at| at != vlab_api::Timestamp::UNSET);
    status["debugInfo"] = json!({
        "state": h.status, "stateInfo": h.status_info,
        // Told with the first cluster, and not taken back.
        "eventsURL": match &agent["status"]["debugInfo"]["eventsURL"] {
            Value::Null if h.cluster_id.is_some() => json!(format!("{base}/events?host_id={}", h.id)),
            told => told.clone(),
        },
        "logsURL": (logs && h.cluster_id.is_some()).then(|| {
            format!("{base}/clusters/{}/logs?host_id={}", h.cluster_id.unwrap_or_default(), h.id)
        }),
    });
    pass.status(agent, status)
}

/// What the host has, as resources say it.
fn inventory(row: &HostRow) -> Value {
    let Some(i) = &row.view.inventory else { return Value::Null };
    let interface = |n: &vlab_api::types::Interface| {
        json!({
            "name": n.name, "macAddress": n.mac_address, "hasCarrier": n.has_carrier, "speedMbps": n.speed_mbps,
            "product": n.product, "vendor": n.vendor, "flags": n.flags.clone().unwrap_or_default(),
            "ipV4Addresses": n.ipv4_addresses.clone().unwrap_or_default(),
            "ipV6Addresses": n.ipv6_addresses.clone().unwrap_or_default(),
        })
    };
    let disk = |d: &vlab_api::types::Disk| {
        json!({
            "id": disks::identifier(d), "name": d.name, "path": d.path, "byPath": d.by_path, "byID": d.by_id,
            "driveType": d.drive_type, "model": d.model, "vendor": d.vendor, "serial": d.serial, "wwn": d.wwn,
            "hctl": d.hctl, "sizeBytes": d.size_bytes, "bootable": d.bootable,
            "installationEligibility": {
                "eligible": d.installation_eligibility.as_ref().and_then(|e| e.eligible),
                "notEligibleReasons":
                    d.installation_eligibility.as_ref().and_then(|e| e.not_eligible_reasons.clone()).unwrap_or_default(),
            },
        })
    };
    json!({
        "hostname": i.hostname, "bmcAddress": i.bmc_address, "bmcV6Address": i.bmc_v6address,
        "memory": i.memory.as_ref().map(|m| json!({ "physicalBytes": m.physical_bytes, "usableBytes": m.usable_bytes })),
        "cpu": i.cpu.as_ref().map(|c| json!({
            "architecture": c.architecture, "count": c.count, "modelName": c.model_name, "flags": c.flags,
            "clockMegahertz": c.frequency.map(|f| f.round() as i64),
        })),
        "interfaces": i.interfaces.iter().flatten().map(interface).collect::<Vec<_>>(),
        "disks": i.disks.iter().flatten().map(disk).collect::<Vec<_>>(),
        "boot": i.boot.as_ref().map(|b| json!({
            "currentBootMode": b.current_boot_mode, "pxeInterface": b.pxe_interface,
        })),
        "systemVendor": i.system_vendor.as_ref().map(|v| json!({
            "manufacturer": v.manufacturer, "productName": v.product_name, "serialNumber": v.serial_number,
            "virtual": v.virtual_,
        })),
    })
}
