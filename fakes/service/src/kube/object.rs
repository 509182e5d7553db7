//! Reading resources, and the names that are agreed on in them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use vlab_api::Timestamp;

/// On Agents and BareMetalHosts: the InfraEnv that they belong to.
pub const INFRA_ENV_LABEL: &str = "infraenvs.agent-install.openshift.io";
/// On Agents: their BareMetalHost.
pub(super) const BMH_LABEL: &str = "agent-install.openshift.io/bmh";
/// On Agents: the namespace of their ClusterDeployment.
pub(super) const CLUSTER_LABEL: &str = "agent-install.openshift.io/clusterdeployment-namespace";
/// On Secrets that the controllers make: their ClusterDeployment.
pub(super) const CLUSTER_OF_SECRET: &str = "hive.openshift.io/cluster-deployment-name";
/// On Secrets and ConfigMaps that the service uses.
pub(super) const WATCH_LABEL: &str = "agent-install.openshift.io/watch";
/// On the same, for backups.
pub(super) const BACKUP_LABEL: &str = "cluster.open-cluster-management.io/backup";

/// `namespace/name`, or the name.
pub(super) fn key_of(object: &Value) -> String {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    match meta["namespace"].as_str() {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}

pub(super) fn version_of(object: &Value) -> u64 {
    text(&object["metadata"]["resourceVersion"]).parse().unwrap_or(0)
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A text that is there and not empty.
pub(super) fn filled(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

pub(super) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(super) fn namespace(object: &Value) -> &str {
    text(&object["metadata"]["namespace"])
}

pub(super) fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

pub(super) fn label<'v>(object: &'v Value, name: &str) -> &'v str {
    text(&object["metadata"]["labels"][name])
}

pub(super) fn annotation<'v>(object: &'v Value, name: &str) -> &'v str {
    text(&object["metadata"]["annotations"][name])
}

pub(super) fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Key of what a reference names; empty when it names nothing.
pub(super) fn reference(reference: &Value, own_namespace: &str) -> String {
    let name = text(&reference["name"]);
    if name.is_empty() {
        return String::new();
    }
    let namespace = reference["namespace"].as_str().filter(|n| !n.is_empty()).unwrap_or(own_namespace);
    format!("{namespace}/{name}")
}

/// Key of the AgentClusterInstall of a ClusterDeployment.
pub(super) fn install_of(cd: &Value) -> String {
    reference(&json!({ "name": cd["spec"]["clusterInstallRef"]["name"] }), namespace(cd))
}

/// Removes members that are null: an object that has them and one that does not are the same.
pub(super) fn bare(value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|_, value| {
            bare(value);
            !value.is_null()
        }),
        Value::Array(items) => items.iter_mut().for_each(bare),
        _ => {}
    }
}

/// Are the two the same but for members that are null?
pub(super) fn alike(a: &Value, b: &Value) -> bool {
    let there = |map: &Map<String, Value>| map.values().filter(|v| !v.is_null()).count();
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            there(a) == there(b)
                && a.iter().filter(|(_, v)| !v.is_null()).all(|(name, v)| b.get(name).is_some_and(|w| alike(v, w)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        _ => a == b,
    }
}

/// An object without these members.
pub(super) fn without(object: &Value, names: &[&str]) -> Value {
    let kept = object.as_object().into_iter().flatten().filter(|(name, _)| !names.contains(&name.as_str()));
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// A text of JSON; null when there is none, or when it is none.
pub(super) fn parsed(text: Option<&str>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// A time as resources have it: whole seconds.
pub(super) fn time(at: Timestamp) -> Value {
    let whole = Timestamp::from_secs(at.as_secs()).to_string();
    json!(whole.replace(".000Z", "Z"))
}

/// Who is owned by that.
pub(super) fn owner(of: &Value, blocks: bool) -> Value {
    let mut owner = json!({
        "apiVersion": of["apiVersion"], "kind": of["kind"], "name": of["metadata"]["name"], "uid": of["metadata"]["uid"],
    });
    if blocks {
        owner["blockOwnerDeletion"] = json!(true);
    }
    owner
}

pub(super) fn is_owned_by(object: &Value, uid: &Value) -> bool {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten().any(|owner| owner["uid"] == *uid)
}

/// The text that base64 of a Secret stands for; what is no base64, which no API server takes, stands for nothing.
pub(super) fn decoded(base64: &str) -> String {
    String::from_utf8_lossy(&STANDARD.decode(base64).unwrap_or_default()).into_owned()
}
