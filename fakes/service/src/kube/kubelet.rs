//! What the nodes of an installed cluster do that simulated hosts cannot: where the harness has API servers for clusters
//! (`/clusters/NAME`), the Secret of an installed one names its own, and a host of day 2 that has rebooted joins it. It asks for a
//! client's certificate, is a node once that was approved, asks for a server's, and is ready once that was approved, too. It begins when the
//! harness says that its machine is up, by a Lease of the node's in the cluster ([`lease_of_node`]).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use vlab_api::http::{Method, Request};

use super::client::Kind;
use super::kubeconfig::kubeconfig;
use super::node_request::{NodeRequest, REQUESTS};
use super::object::{CLUSTER_OF_SECRET, INFRA_ENV_LABEL, is_deleted, label, namespace, reference, text};
use super::pass::{Pass, Stop, put};
use super::spoke::{NODES, Trouble, is_approved, is_ready, kubeconfig_of, look, node_name};

/// How often it looks whether its machine is up, and whether it was approved.
const AGAIN: Duration = Duration::from_secs(5);

/// Lets the Secret of an installed cluster name an API server that is there. One that was imported has the Secret of whoever imported it.
pub(super) fn cluster(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let (Some(base), Some(cd)) = (&pass.config.clusters, pass.get(Kind::ClusterDeployment, key)) else { return Ok(()) };
    if cd["spec"]["installed"] != true || is_deleted(&cd) {
        return Ok(());
    }
    let Ok((secret, server)) = kubeconfig_of(pass, key) else { return Ok(()) };
    let wanted = server_of_cluster(base, key);
    if label(&secret, CLUSTER_OF_SECRET).is_empty() || server == wanted {
        return Ok(());
    }
    let mut changed = (*secret).clone();
    changed["data"]["kubeconfig"] = json!(STANDARD.encode(kubeconfig(&wanted)));
    Err(put(changed))
}

pub(super) fn pass(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(agent) = pass.get(Kind::Agent, key) else { return Ok(()) };
    let progress = &agent["status"]["progress"];
    if may_be_given_back(pass, &agent) {
        return is_node(pass, &agent);
    }
    let rebooted = matches!(text(&progress["currentStage"]), "Rebooting" | "Joined");
    if is_deleted(&agent) || agent["status"]["kind"] != "AddToExistingClusterHost" || !rebooted {
        return Ok(());
    }
    let Some(server) = server(pass, &agent) else { return Ok(()) };
    match join(pass, &agent, &server) {
        Ok(true) => Ok(()),
        Err(Trouble::Stop(stop)) => Err(stop),
        _ => Err(Stop::Later(AGAIN)),
    }
}

/// Is it a host of the pool that was installed with its cluster? Who gives it back looks for its node.
fn may_be_given_back(pass: &Pass<'_>, agent: &Value) -> bool {
    let infra_env = format!("{}/{}", namespace(agent), label(agent, INFRA_ENV_LABEL));
    let of_pool = || pass.get(Kind::InfraEnv, &infra_env).is_some_and(|ie| ie["spec"]["clusterRef"]["name"].is_null());
    let status = &agent["status"];
    status["kind"] == "Host" && status["progress"]["currentStage"] == "Done" && !is_deleted(agent) && of_pool()
}

/// Makes it a node of its cluster, once the Secret of that names its API server.
fn is_node(pass: &Pass<'_>, agent: &Value) -> Result<(), Stop> {
    if reference(&agent["spec"]["clusterDeploymentName"], namespace(agent)).is_empty() {
        return Ok(());
    }
    let Some(server) = server(pass, agent) else { return Err(Stop::Later(AGAIN)) };
    let name = node_name(agent);
    let made = match look(pass, &server, format!("{NODES}/{name}")) {
        Ok(None) => write(pass, &server, Request::new(Method::Post, NODES).json(&node(&name))),
        other => other.map(drop),
    };
    match made {
        Ok(()) => Ok(()),
        Err(Trouble::Stop(stop)) => Err(stop),
        Err(_) => Err(Stop::Later(AGAIN)),
    }
}

fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}

/// The API server of its cluster, if it is one of those that the harness has.
fn server(pass: &Pass<'_>, agent: &Value) -> Option<String> {
    let cluster = reference(&agent["spec"]["clusterDeploymentName"], namespace(agent));
    let (_, server) = kubeconfig_of(pass, &cluster).ok()?;
    (server == server_of_cluster(pass.config.clusters.as_ref()?, &cluster)).then_some(server)
}

/// Where the harness has the API server of a ClusterDeployment's cluster (`namespace/name`), on a hub of that base URL.
pub fn server_of_cluster(base: &str, cluster: &str) -> String {
    format!("{base}/clusters/{}", cluster.replace('/', "."))
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// With what a harness tells the API server of a cluster that the machine of a host is up there: where it is made, and what.
pub fn lease_of_node(host: &str) -> (&'static str, Value) {
    let meta = json!({ "name": host, "namespace": "kube-node-lease" });
    (LEASES, json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {} }))
}

/// Does the next step of a node; is it ready?
fn join(pass: &Pass<'_>, agent: &Value, server: &str) -> Result<bool, Trouble> {
    let name = node_name(agent);
    let id = text(&agent["metadata"]["name"]);
    if look(pass, server, format!("{LEASES}/{id}"))?.is_none() {
        return Ok(false);
    }
    if !request(pass, server, &format!("{id}-client"), &NodeRequest::client(&name))? {
        return Ok(false);
    }
    let interfaces = agent["status"]["inventory"]["interfaces"].as_array().into_iter().flatten();
    let addresses: Vec<String> = interfaces
        .flat_map(|one| ["ipV4Addresses", "ipV6Addresses"].into_iter().flat_map(|kind| one[kind].as_array()))
        .flatten()
        .filter_map(|address| text(address).split('/').next().map(str::to_owned))
        .collect();
    let path = format!("{NODES}/{name}");
    let Some(mut node) = look(pass, server, path.clone())? else {
        write(pass, server, Request::new(Method::Post, NODES).json(&node(&name)))?;
        return Ok(false);
    };
    let wanted: Vec<Value> = [json!({ "type": "Hostname", "address": name })]
        .into_iter()
        .chain(addresses.iter().map(|address| json!({ "type": "InternalIP", "address": address })))
        .collect();
    if node["status"]["addresses"] != json!(wanted) {
        node["status"]["addresses"] = json!(wanted);
        write(pass, server, Request::new(Method::Put, format!("{path}/status")).json(&node))?;
        return Ok(false);
    }
    let names = [name.clone()].into_iter().chain(addresses).collect();
    if !request(pass, server, &format!("{id}-serving"), &NodeRequest::serving(&name, names))? {
        return Ok(false);
    }
    if !is_ready(&node) {
        node["status"]["conditions"] = json!([{ "type": "Ready", "status": "True", "reason": "KubeletReady" }]);
        write(pass, server, Request::new(Method::Put, format!("{path}/status")).json(&node))?;
    }
    Ok(true)
}

/// Asks for a certificate, once; was it approved?
fn request(pass: &Pass<'_>, server: &str, name: &str, request: &NodeRequest) -> Result<bool, Trouble> {
    if let Some(there) = look(pass, server, format!("{REQUESTS}/{name}"))? {
        return Ok(is_approved(&there));
    }
    write(pass, server, request.post(name).map_err(Trouble::Says)?)?;
    Ok(false)
}

fn write(pass: &Pass<'_>, server: &str, request: Request) -> Result<(), Trouble> {
    match pass.asked(server, request)? {
        Ok(response) if response.is_success() => Ok(()),
        Ok(response) => Err(Trouble::Says(format!("the answer is {}", response.status))),
        Err(why) => Err(Trouble::Says(why.clone())),
    }
}

/// The cluster of a Secret that the controllers made, whose API server it is to name.
pub(super) fn of_secret(secret: &Value) -> Option<String> {
    let of = label(secret, CLUSTER_OF_SECRET);
    (!of.is_empty()).then(|| format!("{}/{of}", namespace(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_of_the_controllers_names_its_cluster() {
        let mut secret = json!({ "metadata": { "name": "edge-admin-kubeconfig", "namespace": "edge" } });
        assert_eq!(of_secret(&secret), None);
        secret["metadata"]["labels"][CLUSTER_OF_SECRET] = json!("edge");
        assert_eq!(of_secret(&secret).as_deref(), Some("edge/edge"));
    }
}
