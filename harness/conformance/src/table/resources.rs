//! Steps over Kubernetes: what a user does with resources, and what they come to say.
//!
//! A resource is named as `Kind`, `Kind/name` or `Kind/namespace/name`; without a name it is the one that the check's world has of that
//! kind, and all of that world are in the namespace `<name>`.
//!
//! ```yaml
//! - apply: agent-cluster-install                     # a resource of the world, changed
//!   change: {spec: {holdInstallation: true}}
//! - patch: AgentClusterInstall                       # a merge patch
//!   with: {spec: {holdInstallation: false}}
//! - see: AgentClusterInstall                         # it comes to be so
//!   conditions: {SpecSynced: True SyncOK, Validated: {status: 'False', message: {$has: vips}}}
//!   is: {status: {debugInfo: {state: insufficient}}}
//!   save: {before: status.stateInfo}                 # `<before>` is what was there
//!   id: second                                       # `<second>` is the id of the service's cluster
//! - delete: ClusterDeployment
//! - gone: AgentClusterInstall
//! ```
//!
//! A subject that begins with `spoke:` is in the API server of the check's cluster, which the Secret `admin-kubeconfig` names. What the node
//! of a host does there:
//!
//! ```yaml
//! - request: client                                  # it asks for a certificate; serving: the other one
//!   host: a
//!   as: {user: somebody}                             # what is not as it should be: user, groups, common_name, organization, names, usages
//! - node: a                                          # it is a node there
//!   ready: true
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use vlab_service::kube::Kind;

use super::Refusal;

/// Resources of a world that can be applied by their name: a body that a check changes.
pub const RESOURCES: &[&str] = &[
    "pull-secret",
    "image-set",
    "cluster-deployment",
    "agent-cluster-install",
    "infra-env",
    "nmstate-config",
    "manifests",
    "mirrors",
    "ignition-ca",
    "bare-metal-host",
    "classification",
    "admin-kubeconfig",
];

/// A subject in the API server of the check's cluster begins so.
pub const SPOKE: &str = "spoke:";

/// Kinds of an installed cluster: name, group and version, plural, and whether it is in a namespace.
pub const SPOKE_KINDS: &[(&str, &str, &str, bool)] = &[
    ("Node", "v1", "nodes", false),
    ("CertificateSigningRequest", "certificates.k8s.io/v1", "certificatesigningrequests", false),
    ("MachineConfigPool", "machineconfiguration.openshift.io/v1", "machineconfigpools", false),
    ("Machine", "machine.openshift.io/v1beta1", "machines", true),
    ("MachineSet", "machine.openshift.io/v1beta1", "machinesets", true),
    ("BareMetalHost", "metal3.io/v1alpha1", "baremetalhosts", true),
    ("Pod", "v1", "pods", true),
    ("Namespace", "v1", "namespaces", false),
    ("ServiceAccount", "v1", "serviceaccounts", true),
    ("Secret", "v1", "secrets", true),
    ("DaemonSet", "apps/v1", "daemonsets", true),
    ("Role", "authorization.openshift.io/v1", "roles", true),
    ("RoleBinding", "authorization.openshift.io/v1", "rolebindings", true),
];

/// The node of a host asks its cluster for a certificate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestStep {
    /// `client` or `serving`.
    pub request: String,
    /// Which host.
    pub host: String,
    /// Name of the request; default: `client` or `serving`.
    #[serde(default)]
    pub name: Option<String>,
    /// What is not as it should be.
    #[serde(default, rename = "as")]
    pub change: RequestChange,
}

/// What of a request is not as it should be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestChange {
    /// Who asks.
    pub user: Option<String>,
    /// The groups he is in.
    pub groups: Option<Vec<String>>,
    /// Whose certificate it is to be.
    pub common_name: Option<String>,
    /// And of which organization.
    pub organization: Option<String>,
    /// Its names and addresses.
    pub names: Option<Vec<String>>,
    /// What it is to be used for.
    pub usages: Option<Vec<String>>,
}

/// A host is a node of its cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeStep {
    /// Which host.
    pub node: String,
    /// Is it ready?
    #[serde(default)]
    pub ready: bool,
    /// Its annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// A resource is applied, by server-side apply.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// The name of a resource of the world, or a whole object.
    pub apply: Value,
    /// Changes to it. A member with the value `$remove` is taken out.
    #[serde(default)]
    pub change: Value,
    /// The API server refuses it.
    #[serde(default)]
    pub refused: Option<Refusal>,
}

/// A resource is changed by a merge patch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// Which one.
    pub patch: String,
    /// The patch.
    pub with: Value,
    /// The API server refuses it.
    #[serde(default)]
    pub refused: Option<Refusal>,
}

/// A resource is deleted, and may stay for its finalizers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// Which one.
    pub delete: String,
}

/// What a resource is, or comes to be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IsSo {
    /// What its conditions match, by type: `True Reason`, or an object with `status`, `reason` and `message`.
    #[serde(default)]
    pub conditions: BTreeMap<String, Value>,
    /// What all of it matches.
    #[serde(default)]
    pub is: Value,
    /// Variables, and the path of each in what was found.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// Variable for the id of what the service has for it, which its status tells.
    #[serde(default)]
    pub id: Option<String>,
}

/// A step over Kubernetes.
#[derive(Clone, Debug)]
pub enum ResourceStep {
    /// A resource is applied.
    Apply(Apply),
    /// A resource is patched.
    Patch(Patch),
    /// A resource is deleted.
    Delete(Delete),
    /// A resource comes to be so.
    See(String, IsSo),
    /// A resource is so, and stays so while the controllers could have changed it.
    Holds(String, IsSo),
    /// A resource comes to be gone.
    Gone(String),
    /// The node of a host asks for a certificate.
    Request(RequestStep),
    /// A host is a node.
    Node(NodeStep),
}

impl ResourceStep {
    /// A step that begins with one of these verbs; nothing where it is no step over Kubernetes.
    pub(super) fn read(step: &Map<String, Value>) -> Option<Result<Self, serde_json::Error>> {
        fn whole<T: serde::de::DeserializeOwned>(step: &Map<String, Value>) -> Result<T, serde_json::Error> {
            serde_json::from_value(Value::Object(step.clone()))
        }
        let verbs = ["apply", "patch", "delete", "see", "holds", "gone", "request", "node"];
        let verb = verbs.into_iter().find(|verb| step.contains_key(*verb))?;
        Some(match verb {
            "apply" => whole(step).map(Self::Apply),
            "patch" => whole(step).map(Self::Patch),
            "delete" => whole(step).map(Self::Delete),
            "request" => whole(step).map(Self::Request),
            "node" => whole(step).map(Self::Node),
            "gone" => serde_json::from_value(step[verb].clone()).map(Self::Gone),
            _ => {
                let mut rest = step.clone();
                let subject = rest.remove(verb).unwrap_or_default();
                let read = || Ok((serde_json::from_value(subject)?, whole(&rest)?));
                let make = if verb == "see" { Self::See } else { Self::Holds };
                read().map(|(subject, so)| make(subject, so))
            }
        })
    }

    /// What it expects.
    pub(super) fn expectations(&self) -> Vec<&Value> {
        match self {
            Self::See(_, so) | Self::Holds(_, so) => so.conditions.values().chain([&so.is]).collect(),
            Self::Apply(Apply { refused: Some(refused), .. }) | Self::Patch(Patch { refused: Some(refused), .. }) => {
                vec![&refused.says]
            }
            _ => Vec::new(),
        }
    }

    /// What is wrong with it before anything is asked.
    pub(super) fn problems(&self, out: &mut Vec<String>) {
        let subject = match self {
            Self::Apply(apply) => {
                match &apply.apply {
                    Value::String(name) if !RESOURCES.contains(&name.as_str()) => {
                        out.push(format!("{name} is no resource of a world: {}", RESOURCES.join(", ")));
                    }
                    Value::Object(object) if !is_kind(object["kind"].as_str().unwrap_or_default()) => {
                        out.push(format!("the kind of an object is none that is known: {}", kinds()));
                    }
                    _ => {}
                }
                return;
            }
            Self::Patch(Patch { patch: subject, .. }) | Self::Delete(Delete { delete: subject }) => subject,
            Self::See(subject, so) | Self::Holds(subject, so) => {
                if so.conditions.is_empty() && so.is.is_null() && so.id.is_none() {
                    out.push(format!("{subject}: nothing is expected of it"));
                }
                subject
            }
            Self::Gone(subject) => subject,
            Self::Request(request) => {
                if !matches!(request.request.as_str(), "client" | "serving") {
                    out.push(format!("a node asks for client or serving, not {}", request.request));
                }
                return;
            }
            Self::Node(_) => return,
        };
        let kind = subject.split('/').next().unwrap_or_default();
        if !is_kind(kind) {
            out.push(format!("{kind} is none of the kinds {}", kinds()));
        }
    }

    /// A step in few words.
    pub fn title(&self) -> String {
        match self {
            Self::Apply(apply) => match &apply.apply {
                Value::String(name) => format!("apply {name}"),
                object => format!("apply {}", object["kind"].as_str().unwrap_or("an object")),
            },
            Self::Patch(patch) => format!("patch {}", patch.patch),
            Self::Delete(delete) => format!("delete {}", delete.delete),
            Self::See(subject, _) => format!("see {subject}"),
            Self::Holds(subject, _) => format!("{subject} stays"),
            Self::Gone(subject) => format!("{subject} goes"),
            Self::Request(request) => format!("the node of {} asks for {}", request.host, request.request),
            Self::Node(node) => format!("{} is a node", node.node),
        }
    }
}

fn is_kind(name: &str) -> bool {
    match name.strip_prefix(SPOKE) {
        Some(name) => SPOKE_KINDS.iter().any(|kind| kind.0 == name),
        None => Kind::of(name).is_some(),
    }
}

fn kinds() -> String {
    let of_spoke = SPOKE_KINDS.iter().map(|kind| format!("{SPOKE}{}", kind.0));
    Kind::all().map(|kind| kind.name().to_owned()).chain(of_spoke).collect::<Vec<_>>().join(", ")
}

/// What a condition must match: `True Reason` is a short form.
pub(crate) fn condition(wanted: &Value) -> Value {
    match wanted {
        Value::String(text) => match text.split_once(' ') {
            Some((status, reason)) => json!({ "status": status, "reason": reason }),
            None => json!({ "status": text }),
        },
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("True SyncOK", json!({"status": "True", "reason": "SyncOK"}))]
    #[case("Unknown", json!({"status": "Unknown"}))]
    #[case("True The last preparation failed", json!({"status": "True", "reason": "The last preparation failed"}))]
    fn a_condition_has_a_short_form(#[case] text: &str, #[case] expected: Value) {
        assert_eq!(condition(&json!(text)), expected);
        assert_eq!(condition(&expected), expected);
    }

    #[rstest]
    #[case("{see: Agents, is: {a: 1}}", "Agents is none of the kinds Secret, ")]
    #[case("{see: Agent}", "nothing is expected of it")]
    #[case("{apply: cluster}", "cluster is no resource of a world: pull-secret, ")]
    #[case("{apply: {kind: Pod}}", "the kind of an object is none that is known: ")]
    fn mistakes_are_found(#[case] step: &str, #[case] says: &str) {
        let step: Map<String, Value> = serde_yaml::from_str(step).unwrap();
        let mut out = Vec::new();
        ResourceStep::read(&step).unwrap().unwrap().problems(&mut out);
        assert!(out.iter().any(|line| line.contains(says)), "{out:?}");
    }

    #[test]
    fn what_is_no_step_over_kubernetes_is_left_to_others() {
        let step: Map<String, Value> = serde_yaml::from_str("{reach: ready}").unwrap();
        assert!(ResourceStep::read(&step).is_none());
        let step: Map<String, Value> = serde_yaml::from_str("{delete: Agent, now: true}").unwrap();
        assert!(ResourceStep::read(&step).unwrap().is_err());
    }
}
