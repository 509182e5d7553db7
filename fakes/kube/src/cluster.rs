//! What the API server of an installed cluster has beside what every API server has: kinds of OpenShift, as data without a schema, and
//! its pool of workers. Its own operators are not there.

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request};

use crate::auth::Caller;
use crate::core::{Core, Options};

/// Name, group, version, plural, and whether it is in a namespace.
const KINDS: &[(&str, &str, &str, &str, bool)] = &[
    ("MachineConfigPool", "machineconfiguration.openshift.io", "v1", "machineconfigpools", false),
    ("Machine", "machine.openshift.io", "v1beta1", "machines", true),
    ("MachineSet", "machine.openshift.io", "v1beta1", "machinesets", true),
    ("BareMetalHost", "metal3.io", "v1alpha1", "baremetalhosts", true),
    ("Role", "authorization.openshift.io", "v1", "roles", true),
    ("RoleBinding", "authorization.openshift.io", "v1", "rolebindings", true),
];

fn definition(&(kind, group, version, plural, namespaced): &(&str, &str, &str, &str, bool)) -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{ "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

impl Core {
    /// The API server of an installed cluster.
    pub fn of_cluster(options: Options, now: Timestamp) -> Self {
        let mut core = Self::new(options, now);
        let mut make = |path: &str, object: &Value| {
            core.handle(now, &Caller::admin(), &Request::new(Method::Post, path).json(object));
            while core.next_wake().is_some_and(|due| due <= now) {
                core.wake(now);
            }
        };
        for kind in KINDS {
            make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition(kind));
        }
        let pool = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": { "name": "worker" }, "spec": { "paused": false },
        });
        make("/apis/machineconfiguration.openshift.io/v1/machineconfigpools", &pool);
        core
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_kinds_are_served_at_once() {
        let now = Timestamp::from_secs(1_700_000_000);
        let mut core = Core::of_cluster(Options::default(), now);
        for (_, group, version, plural, _) in KINDS {
            let request = Request::new(Method::Get, format!("/apis/{group}/{version}/{plural}"));
            let crate::core::Reply::Done(response) = core.handle(now, &Caller::admin(), &request) else {
                panic!("{plural}")
            };
            assert_eq!(response.status, 200, "{plural}");
        }
    }
}
