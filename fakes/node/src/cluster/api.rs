//! The API of a Kubernetes cluster as far as an installation needs it: objects of a table of kinds, discovery, tables for `kubectl
//! get`, health, and the signing of approved certificate requests. Requests in, answers out; where objects are is the [`Store`]'s.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use uuid::Uuid;
use vlab_api::Timestamp;

use super::pki::Pki;
use super::store::{Store, merge, object};

/// A kind of object.
#[derive(Debug)]
pub struct ResourceKind {
    /// API group; empty for the core.
    pub group: &'static str,
    /// Version within the group, such as `v1`.
    pub version: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Name in objects.
    pub kind: &'static str,
    /// Short names that kubectl takes.
    pub short: &'static [&'static str],
    /// In namespaces?
    pub namespaced: bool,
}

macro_rules! kinds {
    ($($group:literal $version:literal $plural:literal $kind:literal $namespaced:literal $short:expr;)*) => {
        &[$(ResourceKind { group: $group, version: $version, plural: $plural, kind: $kind, short: $short, namespaced: $namespaced }),*]
    };
}

/// Every kind that there is.
pub const KINDS: &[ResourceKind] = kinds! {
    "" "v1" "nodes" "Node" false &["no"];
    "" "v1" "namespaces" "Namespace" false &["ns"];
    "" "v1" "configmaps" "ConfigMap" true &["cm"];
    "" "v1" "secrets" "Secret" true &[];
    "" "v1" "events" "Event" true &["ev"];
    "" "v1" "pods" "Pod" true &["po"];
    "certificates.k8s.io" "v1" "certificatesigningrequests" "CertificateSigningRequest" false &["csr"];
    "coordination.k8s.io" "v1" "leases" "Lease" true &[];
    "config.openshift.io" "v1" "clusterversions" "ClusterVersion" false &[];
    "config.openshift.io" "v1" "clusteroperators" "ClusterOperator" false &["co"];
    "config.openshift.io" "v1" "infrastructures" "Infrastructure" false &[];
    "config.openshift.io" "v1" "networks" "Network" false &[];
    "config.openshift.io" "v1" "dnses" "DNS" false &[];
    "config.openshift.io" "v1" "ingresses" "Ingress" false &[];
};

/// The kind with that group and name.
pub fn kind_of(api_version: &str, kind: &str) -> Option<&'static ResourceKind> {
    KINDS.iter().find(|k| k.kind == kind && k.api_version() == api_version)
}

impl ResourceKind {
    /// `v1` or `group/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    fn prefix(&self, namespace: Option<&str>) -> String {
        let group = if self.group.is_empty() { "core" } else { self.group };
        match namespace {
            Some(namespace) => format!("/registry/{group}/{}/{namespace}/", self.plural),
            None => format!("/registry/{group}/{}/", self.plural),
        }
    }

    /// Key of an object in etcd.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        self.prefix(self.namespaced.then_some(namespace)) + name
    }
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum User {
    /// Nobody known: may look whether the API lives.
    #[default]
    Nobody,
    /// A machine that wants to become a node: may ask for a certificate, and look what became of it.
    Newcomer,
    /// Somebody with a certificate: may do everything.
    Somebody(String),
}

/// A request.
#[derive(Clone, Debug, Default)]
pub struct ApiRequest {
    /// HTTP method.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Query without the question mark.
    pub query: String,
    /// Header `Accept`.
    pub accept: String,
    /// Body of the request.
    pub body: Vec<u8>,
    /// Who asks.
    pub user: User,
}

/// An answer: status and JSON.
pub type ApiAnswer = (u16, Value);

fn status(code: u16, reason: &str, message: &str) -> ApiAnswer {
    let status = if code < 300 { "Success" } else { "Failure" };
    let body = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status, "reason": reason, "message": message,
        "code": code });
    (code, body)
}

/// A resource that a path names.
struct Target {
    kind: &'static ResourceKind,
    namespace: Option<String>,
    name: Option<String>,
    sub: Option<String>,
}

fn target(path: &str) -> Option<Target> {
    let words: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match words[..] {
        ["api", version, ref rest @ ..] => ("", version, rest),
        ["apis", group, version, ref rest @ ..] => (group, version, rest),
        _ => return None,
    };
    let find = |plural: &str| KINDS.iter().find(|k| k.group == group && k.version == version && k.plural == plural);
    let text = |word: Option<&&str>| word.map(|w| (*w).to_owned());
    match rest {
        ["namespaces", namespace, plural, more @ ..] if find(plural).is_some_and(|k| k.namespaced) => Some(Target {
            kind: find(plural)?,
            namespace: Some((*namespace).to_owned()),
            name: text(more.first()),
            sub: text(more.get(1)),
        }),
        [plural, more @ ..] => {
            Some(Target { kind: find(plural)?, namespace: None, name: text(more.first()), sub: text(more.get(1)) })
        }
        [] => None,
    }
}

/// The API over a store.
#[derive(Debug)]
pub struct Api {
    /// The objects that the server has.
    pub store: Store,
    /// Signs certificates.
    pub pki: Pki,
}

impl Api {
    /// Answers a request. `now` is the clock for the times in objects.
    pub async fn handle(&self, request: &ApiRequest, now: Timestamp) -> ApiAnswer {
        match self.answer(request, now).await {
            Ok(answer) => answer,
            Err(e) => status(500, "InternalError", &format!("etcd: {e}")),
        }
    }

    async fn answer(&self, request: &ApiRequest, now: Timestamp) -> io::Result<ApiAnswer> {
        if ["/healthz", "/readyz", "/livez"].contains(&request.path.as_str()) {
            // Alive is who reaches etcd's leader.
            self.store.get("vlab/alive").await?;
            return Ok((200, json!("ok")));
        }
        if request.path == "/version" {
            return Ok((
                200,
                json!({ "major": "1", "minor": "29", "gitVersion": "v1.29.0+vlab", "platform": "linux/amd64" }),
            ));
        }
        let target = target(&request.path);
        let allowed = match (&request.user, &target) {
            (User::Somebody(_), _) => true,
            (User::Newcomer, Some(t)) => {
                t.kind.plural == "certificatesigningrequests" && t.sub.is_none() && request.method != "DELETE"
            }
            _ => false,
        };
        if !allowed {
            let (code, reason) = if request.user == User::Nobody { (401, "Unauthorized") } else { (403, "Forbidden") };
            return Ok(status(
                code,
                reason,
                &format!("{} {} is not allowed without a certificate", request.method, request.path),
            ));
        }
        let Some(target) = target else { return Ok(discovery(&request.path)) };
        if request.query.split('&').any(|p| p == "watch=true" || p == "watch=1") {
            return Ok(status(501, "NotImplemented", "this small API server has no watches: ask again instead"));
        }
        let body = || serde_json::from_slice::<Value>(&request.body);
        match (request.method.as_str(), &target.name) {
            ("GET", None) => self.list(&target, request).await,
            ("GET", Some(name)) => self.get(&target, name, request).await,
            ("POST", None) => match body() {
                Ok(object) => self.create(&target, object, request, now).await,
                Err(e) => Ok(status(400, "BadRequest", &e.to_string())),
            },
            ("PUT" | "PATCH", Some(name)) => match body() {
                Ok(change) => self.change(&target, name, &change, request.method == "PATCH").await,
                Err(e) => Ok(status(400, "BadRequest", &format!("{e} (patches are JSON, merged)"))),
            },
            ("DELETE", Some(name)) => {
                let key = target.kind.key(target.namespace.as_deref().unwrap_or_default(), name);
                match self.store.get(&key).await? {
                    None => Ok(not_found(&target, name)),
                    Some(_) => {
                        self.store.write(&key, None, None).await?;
                        Ok(status(200, "", ""))
                    }
                }
            }
            _ => Ok(status(405, "MethodNotAllowed", &format!("{} {}", request.method, request.path))),
        }
    }

    async fn list(&self, target: &Target, request: &ApiRequest) -> io::Result<ApiAnswer> {
        let entries = self.store.list(&target.kind.prefix(target.namespace.as_deref())).await?;
        let objects: Vec<Value> = entries.iter().map(object).collect();
        if wants_table(request) {
            return Ok((200, table(target.kind, &objects)));
        }
        let kind = format!("{}List", target.kind.kind);
        Ok((
            200,
            json!({ "kind": kind, "apiVersion": target.kind.api_version(), "metadata": { "resourceVersion": "0" }, "items": objects }),
        ))
    }

    async fn get(&self, target: &Target, name: &str, request: &ApiRequest) -> io::Result<ApiAnswer> {
        let key = target.kind.key(target.namespace.as_deref().unwrap_or_default(), name);
        Ok(match self.store.get(&key).await? {
            None => not_found(target, name),
            Some(entry) if wants_table(request) => (200, table(target.kind, &[object(&entry)])),
            Some(entry) => (200, object(&entry)),
        })
    }

    async fn create(
        &self,
        target: &Target,
        mut new: Value,
        request: &ApiRequest,
        now: Timestamp,
    ) -> io::Result<ApiAnswer> {
        let metadata = &new["metadata"];
        let text = |name: &str| metadata.get(name).and_then(Value::as_str).map(str::to_owned);
        let id = Uuid::new_v5_like(&request.body, now);
        let name = text("name").or_else(|| text("generateName").map(|g| format!("{g}{}", &id.to_string()[..5])));
        let Some(name) = name.filter(|n| !n.is_empty() && !n.contains('/')) else {
            return Ok(status(422, "Invalid", "metadata.name is missing"));
        };
        new["kind"] = json!(target.kind.kind);
        new["apiVersion"] = json!(target.kind.api_version());
        new["metadata"]["name"] = json!(name);
        new["metadata"]["uid"] = json!(id.to_string());
        new["metadata"]["creationTimestamp"] = json!(seconds(now));
        let namespace = target.namespace.clone().unwrap_or_default();
        if target.kind.namespaced {
            new["metadata"]["namespace"] = json!(namespace);
        }
        let bytes = new.to_string().into_bytes();
        match self.store.write(&target.kind.key(&namespace, &name), Some(&bytes), Some(0)).await? {
            Some(revision) => {
                new["metadata"]["resourceVersion"] = json!(revision.to_string());
                Ok((201, new))
            }
            None => Ok(status(409, "AlreadyExists", &format!("{} \"{name}\" already exists", target.kind.plural))),
        }
    }

    async fn change(&self, target: &Target, name: &str, change: &Value, patch: bool) -> io::Result<ApiAnswer> {
        let key = target.kind.key(target.namespace.as_deref().unwrap_or_default(), name);
        for _ in 0..8 {
            let Some(entry) = self.store.get(&key).await? else { return Ok(not_found(target, name)) };
            let before = object(&entry);
            let asked = change.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            if asked.is_some_and(|v| v != entry.revision.to_string()) {
                return Ok(conflict(target, name));
            }
            let mut after = before.clone();
            match (patch, target.sub.is_some()) {
                (true, _) => merge(&mut after, change),
                // A subresource only changes the status.
                (false, true) => after["status"] = change["status"].clone(),
                (false, false) => {
                    after = change.clone();
                    for kept in ["uid", "creationTimestamp", "name", "namespace"] {
                        if let Some(value) = before["metadata"].get(kept) {
                            after["metadata"][kept] = value.clone();
                        }
                    }
                    // The status is not changed on the way.
                    if after.get("status").is_none() && before.get("status").is_some() {
                        after["status"] = before["status"].clone();
                    }
                }
            }
            if target.kind.plural == "certificatesigningrequests" {
                self.sign(&mut after);
            }
            if let Some(metadata) = after["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            if let Some(revision) =
                self.store.write(&key, Some(after.to_string().as_bytes()), Some(entry.revision)).await?
            {
                after["metadata"]["resourceVersion"] = json!(revision.to_string());
                return Ok((200, after));
            }
        }
        Ok(conflict(target, name))
    }

    /// Gives an approved request its certificate. One that cannot be signed says why in a condition.
    fn sign(&self, csr: &mut Value) {
        let approved =
            csr["status"]["conditions"].as_array().is_some_and(|c| c.iter().any(|c| c["type"] == "Approved"));
        if !approved || csr["status"].get("certificate").is_some() {
            return;
        }
        let request =
            csr["spec"]["request"].as_str().and_then(|r| BASE64.decode(r).ok()).and_then(|r| String::from_utf8(r).ok());
        match request
            .ok_or_else(|| io::Error::other("spec.request is not base64 of PEM"))
            .and_then(|r| self.pki.sign(&r))
        {
            Ok(pem) => csr["status"]["certificate"] = json!(BASE64.encode(pem)),
            Err(e) => {
                if let Some(conditions) = csr["status"]["conditions"].as_array_mut() {
                    conditions.push(json!({ "type": "Failed", "status": "True", "reason": "SigningFailed", "message": e.to_string() }));
                }
            }
        }
    }
}

/// An id made from what is created and when: the API needs them to differ, nothing else.
trait FromContent {
    fn new_v5_like(bytes: &[u8], now: Timestamp) -> Uuid;
}

impl FromContent for Uuid {
    fn new_v5_like(bytes: &[u8], now: Timestamp) -> Uuid {
        use sha2::Digest;
        let mut hash = sha2::Sha256::new();
        hash.update(bytes);
        hash.update(now.to_string());
        let mut id = [0; 16];
        id.copy_from_slice(&hash.finalize()[..16]);
        uuid::Builder::from_sha1_bytes(id).into_uuid()
    }
}

/// A time as objects have it, in whole seconds.
fn seconds(now: Timestamp) -> String {
    let text = now.to_string();
    match text.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => text,
    }
}

fn not_found(target: &Target, name: &str) -> ApiAnswer {
    status(404, "NotFound", &format!("{} \"{name}\" not found", target.kind.plural))
}

fn conflict(target: &Target, name: &str) -> ApiAnswer {
    status(409, "Conflict", &format!("{} \"{name}\" was changed by another client", target.kind.plural))
}

/// What exists here.
fn discovery(path: &str) -> ApiAnswer {
    let groups = || {
        let mut groups: Vec<&str> = KINDS.iter().map(|k| k.group).filter(|g| !g.is_empty()).collect();
        groups.dedup();
        groups
    };
    let group = |name: &str| {
        let version = json!({ "groupVersion": format!("{name}/v1"), "version": "v1" });
        json!({ "name": name, "versions": [version], "preferredVersion": version })
    };
    let words: Vec<&str> = path.trim_matches('/').split('/').collect();
    match words[..] {
        ["api"] => (200, json!({ "kind": "APIVersions", "versions": ["v1"] })),
        ["apis"] => {
            let all: Vec<Value> = groups().into_iter().map(group).collect();
            (200, json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": all }))
        }
        ["api", "v1"] => (200, resources("", "v1")),
        ["apis", name, "v1"] if groups().contains(&name) => (200, resources(name, &format!("{name}/v1"))),
        _ => status(404, "NotFound", &format!("this small API server has no {path}")),
    }
}

fn resources(group: &str, group_version: &str) -> Value {
    let all: Vec<Value> = KINDS
        .iter()
        .filter(|k| k.group == group)
        .map(|k| {
            json!({ "name": k.plural, "singularName": k.kind.to_lowercase(), "namespaced": k.namespaced, "kind": k.kind,
                "shortNames": k.short, "verbs": ["create", "delete", "get", "list", "patch", "update"] })
        })
        .collect();
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": all })
}

fn wants_table(request: &ApiRequest) -> bool {
    request.accept.contains("as=Table")
}

/// A column of a table: heading, and what an object shows there.
type Column = (&'static str, fn(&Value) -> String);

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Status of a condition of an object.
pub fn condition(object: &Value, kind: &str) -> String {
    let all = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    all.filter(|c| c["type"] == kind).map(|c| text(c, "/status")).next().unwrap_or_default()
}

const NODES: &[Column] = &[
    ("Status", |o| if condition(o, "Ready") == "True" { "Ready" } else { "NotReady" }.to_owned()),
    ("Roles", |o| {
        let labels = o.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
        let roles = labels.filter_map(|(l, _)| l.strip_prefix("node-role.kubernetes.io/"));
        roles.collect::<Vec<_>>().join(",")
    }),
    ("Version", |o| text(o, "/status/nodeInfo/kubeletVersion")),
];

const REQUESTS: &[Column] = &[
    ("Requestor", |o| text(o, "/spec/username")),
    ("Condition", |o| {
        let words = match (condition(o, "Approved") == "True", o.pointer("/status/certificate").is_some()) {
            (true, true) => "Approved,Issued",
            (true, false) => "Approved",
            _ => "Pending",
        };
        words.to_owned()
    }),
];

const OPERATORS: &[Column] = &[
    ("Available", |o| condition(o, "Available")),
    ("Progressing", |o| condition(o, "Progressing")),
    ("Degraded", |o| condition(o, "Degraded")),
];

const VERSIONS: &[Column] =
    &[("Version", |o| text(o, "/status/desired/version")), ("Available", |o| condition(o, "Available"))];

const EVENTS: &[Column] = &[("Reason", |o| text(o, "/reason")), ("Message", |o| text(o, "/message"))];

fn columns(kind: &ResourceKind) -> &'static [Column] {
    match kind.plural {
        "nodes" => NODES,
        "certificatesigningrequests" => REQUESTS,
        "clusteroperators" => OPERATORS,
        "clusterversions" => VERSIONS,
        "events" => EVENTS,
        _ => &[],
    }
}

/// Objects as `kubectl get` shows them.
fn table(kind: &ResourceKind, objects: &[Value]) -> Value {
    let columns = columns(kind);
    let heading =
        |name: &str| json!({ "name": name, "type": "string", "format": "", "description": "", "priority": 0 });
    let headings: Vec<Value> = std::iter::once("Name")
        .chain(columns.iter().map(|(n, _)| *n))
        .chain(std::iter::once("Created At"))
        .map(heading)
        .collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|o| {
            let cells: Vec<String> = std::iter::once(text(o, "/metadata/name"))
                .chain(columns.iter().map(|(_, show)| show(o)))
                .chain(std::iter::once(text(o, "/metadata/creationTimestamp")))
                .collect();
            let part =
                json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"] });
            json!({ "cells": cells, "object": part })
        })
        .collect();
    json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": { "resourceVersion": "0" }, "columnDefinitions": headings, "rows": rows })
}

#[cfg(test)]
mod tests;
