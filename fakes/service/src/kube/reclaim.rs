//! What the controllers make in an installed cluster to get a host back from it: an agent that runs on the host's node, with all that it needs.

use serde_json::{Value, json};
use vlab_api::http::{Method, Request};

use super::pass::Pass;
use super::spoke::{NODES, Trouble, ask, look, node_name};
use crate::state::HostKey;

/// Namespace in the cluster.
const NAMESPACE: &str = "assisted-installer";
/// Name of what lets the agent be privileged.
const RIGHTS: &str = "node-reclaim";
/// Where the agent sees the host's files.
const HOST_FILES: &str = "/host";

/// Makes all of it that is not there yet. The agent itself comes last: it is the node's, and goes with it.
pub(super) fn begin(pass: &Pass<'_>, agent: &Value, server: &str, host: HostKey) -> Result<(), Trouble> {
    let core = format!("/api/v1/namespaces/{NAMESPACE}");
    let rights = format!("/apis/authorization.openshift.io/v1/namespaces/{NAMESPACE}");
    let meta = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
    let token = format!("reclaim-{}-token", host.0);
    make(pass, server, "/api/v1/namespaces", NAMESPACE, || {
        // Newer clusters let no privileged pod run without that.
        let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE, "labels": labels } })
    })?;
    make(
        pass,
        server,
        &format!("{core}/serviceaccounts"),
        RIGHTS,
        || json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(RIGHTS) }),
    )?;
    make(pass, server, &format!("{rights}/roles"), RIGHTS, || {
        let rule = json!({ "apiGroups": ["security.openshift.io"], "resources": ["securitycontextconstraints"],
                           "resourceNames": ["privileged"], "verbs": ["use"] });
        json!({ "apiVersion": "authorization.openshift.io/v1", "kind": "Role", "metadata": meta(RIGHTS), "rules": [rule] })
    })?;
    make(pass, server, &format!("{rights}/rolebindings"), RIGHTS, || {
        let of = |kind: &str| json!({ "kind": kind, "name": RIGHTS, "namespace": NAMESPACE });
        json!({ "apiVersion": "authorization.openshift.io/v1", "kind": "RoleBinding", "metadata": meta(RIGHTS),
                "roleRef": of("Role"), "subjects": [of("ServiceAccount")] })
    })?;
    make(
        pass,
        server,
        &format!("{core}/secrets"),
        &token,
        || json!({ "apiVersion": "v1", "kind": "Secret", "metadata": meta(&token), "type": "Opaque", "data": { "auth-token": "" } }),
    )?;
    let name = node_name(agent);
    let Some(node) = look(pass, server, format!("{NODES}/{name}"))? else {
        return Err(Trouble::Says(format!("the cluster has no node {name}")));
    };
    let set = format!("{}-reclaim", name.replace('.', "-"));
    make(pass, server, &format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"), &set, || {
        daemon_set(pass, &set, &node, (&token, host))
    })
}

/// Makes an object that is not there.
fn make(pass: &Pass<'_>, server: &str, at: &str, name: &str, object: impl FnOnce() -> Value) -> Result<(), Trouble> {
    if look(pass, server, format!("{at}/{name}"))?.is_some() {
        return Ok(());
    }
    let made = Request::new(Method::Post, at).json(&object());
    match ask(pass, server, made)? {
        Some(_) => Ok(()),
        None => Err(Trouble::Says(format!("the cluster has no place for {at}/{name}"))),
    }
}

fn daemon_set(pass: &Pass<'_>, name: &str, node: &Value, (token, host): (&str, HostKey)) -> Value {
    let settings = &pass.core.config.settings;
    let labels = json!({ "name": name });
    let meta = &node["metadata"];
    let image = &settings.agent_docker_image;
    let args = [
        format!("-url={}", pass.core.base_url()),
        format!("-infra-env-id={}", host.0),
        format!("-host-id={}", host.1),
        format!("-agent-version={image}"),
        format!("-insecure={}", settings.skip_cert_verification),
        "-with-journal-logging=false".to_owned(),
        "-with-stdout-logging=true".to_owned(),
    ];
    let secret = json!({ "secretKeyRef": { "key": "auth-token", "name": token } });
    let container = json!({
        "name": name, "image": image, "command": ["next_step_runner"], "args": args,
        "securityContext": { "privileged": true }, "volumeMounts": [{ "name": "host", "mountPath": HOST_FILES }],
        "env": [{ "name": "PULL_SECRET_TOKEN", "valueFrom": secret }],
    });
    let pod = json!({
        "nodeSelector": { "kubernetes.io/hostname": meta["name"] }, "tolerations": [{ "operator": "Exists" }],
        "priorityClassName": "system-node-critical", "hostPID": true, "serviceAccountName": RIGHTS,
        "volumes": [{ "name": "host", "hostPath": { "path": "/" } }], "containers": [container],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"] }],
        },
        "spec": {
            "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    })
}
