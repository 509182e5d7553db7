//! What a cluster of the lab has from the start, as every OpenShift cluster does: definitions of OpenShift's own kinds, and roles of
//! those who come before anybody could give them one.

use std::io;
use std::sync::LazyLock;

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_kube::{Core, Options};

/// A kind that OpenShift adds: group, version, plural, kind, in namespaces?, short name, columns.
type Definition = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    bool,
    &'static str,
    &'static [(&'static str, &'static str)],
);

const NO: &[(&str, &str)] = &[];
const AVAILABLE: (&str, &str) = ("Available", ".status.conditions[?(@.type==\"Available\")].status");
const PROGRESSING: (&str, &str) = ("Progressing", ".status.conditions[?(@.type==\"Progressing\")].status");
const OPERATOR: &[(&str, &str)] = &[
    ("Version", ".status.versions[?(@.name==\"operator\")].version"),
    AVAILABLE,
    PROGRESSING,
    ("Degraded", ".status.conditions[?(@.type==\"Degraded\")].status"),
];
const VERSION: &[(&str, &str)] =
    &[("Version", ".status.history[?(@.state==\"Completed\")].version"), AVAILABLE, PROGRESSING];

/// The kinds that installer and controller read or write, and those that the bootstrap's manifests are of.
const DEFINITIONS: &[Definition] = &[
    ("config.openshift.io", "v1", "clusteroperators", "ClusterOperator", false, "co", OPERATOR),
    ("config.openshift.io", "v1", "clusterversions", "ClusterVersion", false, "", VERSION),
    ("config.openshift.io", "v1", "dnses", "DNS", false, "", NO),
    ("config.openshift.io", "v1", "infrastructures", "Infrastructure", false, "", NO),
    ("config.openshift.io", "v1", "ingresses", "Ingress", false, "", NO),
    ("config.openshift.io", "v1", "networks", "Network", false, "", NO),
    ("config.openshift.io", "v1", "proxies", "Proxy", false, "", NO),
    ("config.openshift.io", "v1", "schedulers", "Scheduler", false, "", NO),
    ("machine.openshift.io", "v1beta1", "machines", "Machine", true, "", NO),
    ("machineconfiguration.openshift.io", "v1", "machineconfigpools", "MachineConfigPool", false, "mcp", NO),
    ("machineconfiguration.openshift.io", "v1", "machineconfigs", "MachineConfig", false, "mc", NO),
    ("metal3.io", "v1alpha1", "baremetalhosts", "BareMetalHost", true, "bmh", NO),
    ("metal3.io", "v1alpha1", "provisionings", "Provisioning", false, "", NO),
    ("operators.coreos.com", "v1alpha1", "clusterserviceversions", "ClusterServiceVersion", true, "csv", NO),
    ("operators.coreos.com", "v1alpha1", "installplans", "InstallPlan", true, "ip", NO),
    ("operators.coreos.com", "v1alpha1", "subscriptions", "Subscription", true, "sub", NO),
    ("route.openshift.io", "v1", "routes", "Route", true, "", NO),
];

/// Namespaces that a cluster has before anybody works in it.
pub const NAMESPACES: &[&str] = &[
    "assisted-installer",
    "openshift-config",
    "openshift-config-managed",
    "openshift-dns",
    "openshift-machine-api",
    "openshift-machine-config-operator",
    "openshift-marketplace",
];

/// Who shows the bootstrap's token: a machine that wants to become a node.
pub const NEWCOMERS: &str = "system:bootstrappers";
/// Who shows a node's certificate.
pub const NODES: &str = "system:nodes";

fn definition((group, version, plural, kind, namespaced, short, columns): &Definition) -> Value {
    let columns: Vec<Value> =
        columns.iter().map(|(name, path)| json!({ "name": name, "type": "string", "jsonPath": path })).collect();
    // The real schemas are the product's; here everything is kept as it is written.
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let mut names = json!({ "plural": plural, "kind": kind });
    if !short.is_empty() {
        names["shortNames"] = json!([short]);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": { "group": group, "names": names, "scope": if *namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{ "name": version, "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema }, "additionalPrinterColumns": columns }] },
    })
}

fn role(name: &str, group: &str, rules: &Value) -> [(&'static str, Value); 2] {
    let version = "rbac.authorization.k8s.io/v1";
    let role = json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules });
    let binding = json!({ "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group }] });
    [
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", role),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
    ]
}

/// Everything that is there from the start: paths, and the objects to be made there.
pub fn from_the_start() -> Vec<(&'static str, Value)> {
    let requests = json!({ "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
        "verbs": ["create", "get", "list", "watch"] });
    // A kubelet of the lab is its master's servant, too: it takes part in leases and says what it sees.
    let everything_of_a_node = json!([requests, { "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"] },
        { "apiGroups": [""], "resources": ["nodes", "nodes/status", "pods", "pods/status", "events"],
          "verbs": ["create", "update", "patch"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "update", "patch"] }]);
    let definitions =
        DEFINITIONS.iter().map(|d| ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(d)));
    definitions
        .chain(role("system:node-bootstrapper", NEWCOMERS, &json!([requests])))
        .chain(role("system:node", NODES, &everything_of_a_node))
        .collect()
}

/// Where an object is in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path of the objects of its kind, in its namespace.
    pub collection: String,
    /// Its own path.
    pub own: String,
}

/// Where an object belongs.
///
/// # Errors
/// When it names a kind that a cluster of the lab does not have.
pub fn place(object: &Value) -> io::Result<Place> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let (plural, namespaced) = plural(group, version, &kind)
        .ok_or_else(|| io::Error::other(format!("{kind} of {api_version}: the lab's clusters have no such kind")))?;
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let namespace = Some(text(&object["metadata"]["namespace"])).filter(|n| !n.is_empty());
    let collection = match namespace.unwrap_or_else(|| "default".to_owned()) {
        // Manifests of a release name a namespace for objects that have none, too.
        namespace if namespaced => format!("{root}/namespaces/{namespace}/{plural}"),
        _ => format!("{root}/{plural}"),
    };
    Ok(Place { own: format!("{collection}/{}", text(&object["metadata"]["name"])), collection })
}

/// Name in paths of a kind, and whether it is in namespaces.
fn plural(group: &str, version: &str, kind: &str) -> Option<(String, bool)> {
    let ours = DEFINITIONS.iter().find(|d| d.0 == group && d.1 == version && d.3 == kind);
    if let Some(ours) = ours {
        return Some((ours.2.to_owned(), ours.4));
    }
    static BUILTIN: LazyLock<Core> = LazyLock::new(|| Core::new(Options::default(), Timestamp::default()));
    let found = BUILTIN.kind_named(group, kind).filter(|found| found.version(version).is_some())?;
    Some((found.plural.clone(), found.namespaced))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("v1", "ConfigMap", Some("kube-system"), "/api/v1/namespaces/kube-system/configmaps/x")]
    #[case("v1", "Namespace", None, "/api/v1/namespaces/x")]
    #[case("config.openshift.io/v1", "ClusterVersion", Some("x"), "/apis/config.openshift.io/v1/clusterversions/x")]
    #[case(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        Some("a"),
        "/apis/networking.k8s.io/v1/namespaces/a/networkpolicies/x"
    )]
    #[case("metal3.io/v1alpha1", "Provisioning", None, "/apis/metal3.io/v1alpha1/provisionings/x")]
    fn paths(#[case] version: &str, #[case] kind: &str, #[case] namespace: Option<&str>, #[case] expected: &str) {
        let object =
            json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "x", "namespace": namespace } });
        assert_eq!(place(&object).unwrap().own, expected);
    }

    #[rstest]
    #[case("config.openshift.io/v2", "ClusterVersion")]
    #[case("v1", "Unheard")]
    fn what_nobody_knows_is_refused(#[case] version: &str, #[case] kind: &str) {
        let error = place(&json!({ "apiVersion": version, "kind": kind })).unwrap_err().to_string();
        assert!(error.contains(kind) && error.contains("no such kind"), "{error}");
    }
}
