//! What there is: groups, versions, kinds; the older way by single documents, and the aggregated one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use vlab_api::http::{Request, Response};

use crate::failure::Failure;
use crate::resource::{Registry, Resource, Version};

/// The version of Kubernetes whose behaviour is followed.
pub(crate) const MINOR: u32 = 36;

/// `/version`.
pub(crate) fn server_version() -> Value {
    json!({
        "major": "1", "minor": MINOR.to_string(), "gitVersion": format!("v1.{MINOR}.0+vlab"), "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// Kinds by group and version.
type Kinds = BTreeMap<(String, String), Vec<(Arc<Resource>, Arc<Version>)>>;

fn by_version(registry: &Registry) -> Kinds {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for resource in registry.all() {
        for version in resource.versions.iter().filter(|v| v.served) {
            all.entry((resource.group.clone(), version.name.clone()))
                .or_default()
                .push((Arc::clone(resource), version.clone()));
        }
    }
    all
}

/// The groups beside the core, each with its versions, the preferred one first.
fn group_versions(registry: &Registry) -> Vec<(String, Vec<String>)> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for resource in registry.all().filter(|r| !r.group.is_empty()) {
        let versions = all.entry(resource.group.clone()).or_default();
        for version in resource.versions.iter().filter(|v| v.served) {
            if !versions.contains(&version.name) {
                versions.push(version.name.clone());
            }
        }
    }
    let mut all: Vec<_> = all.into_iter().filter(|(_, v)| !v.is_empty()).collect();
    // The groups of Kubernetes itself come first.
    all.sort_by_key(|(group, _)| (group.contains('.') && !group.ends_with("k8s.io"), group.clone()));
    all
}

fn aggregated(request: &Request) -> bool {
    let accept = request.get_header("accept").unwrap_or_default();
    accept
        .split(',')
        .any(|item| item.contains("as=APIGroupDiscoveryList") && item.contains("v=v2") && !item.contains("v=v2beta1"))
}

/// `/api`.
pub(crate) fn legacy(registry: &Registry, request: &Request) -> Response {
    if aggregated(request) {
        return aggregate(registry, &[(String::new(), vec!["v1".into()])]);
    }
    Response::json(
        200,
        &json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1" }],
        }),
    )
}

/// `/apis`.
pub(crate) fn groups(registry: &Registry, request: &Request) -> Response {
    let groups = group_versions(registry);
    if aggregated(request) {
        return aggregate(registry, &groups);
    }
    let groups: Vec<Value> = groups.iter().map(|(group, versions)| one_group(group, versions)).collect();
    Response::json(200, &json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
}

fn one_group(group: &str, versions: &[String]) -> Value {
    let one = |v: &String| json!({ "groupVersion": format!("{group}/{v}"), "version": v });
    let all: Vec<Value> = versions.iter().map(one).collect();
    json!({ "name": group, "versions": all, "preferredVersion": all[0] })
}

/// `/apis/GROUP`.
///
/// # Errors
/// 404.
pub(crate) fn group(registry: &Registry, group: &str) -> Result<Response, Failure> {
    let groups = group_versions(registry);
    let (_, versions) = groups.iter().find(|(name, _)| name == group).ok_or_else(Failure::no_such_page)?;
    let mut found = one_group(group, versions);
    found["kind"] = json!("APIGroup");
    found["apiVersion"] = json!("v1");
    Ok(Response::json(200, &found))
}

/// The subresources of a kind: name, kind, verbs.
fn subresources(resource: &Resource, version: &Version) -> Vec<(String, &'static str, Value, Vec<&'static str>)> {
    let own = |group: &str, v: &str| json!({ "group": group, "version": v });
    let mut all = Vec::new();
    let mut names: Vec<&str> = resource.subresources.to_vec();
    if version.status && !names.contains(&"status") {
        names.push("status");
    }
    if version.scale.is_some() && !names.contains(&"scale") {
        names.push("scale");
    }
    if !resource.custom {
        names.sort_unstable();
    }
    for name in names {
        let (kind, at, verbs) = match name {
            "scale" => ("Scale", own("autoscaling", "v1"), vec!["get", "patch", "update"]),
            "token" => ("TokenRequest", own("authentication.k8s.io", "v1"), vec!["create"]),
            "eviction" => ("Eviction", own("policy", "v1"), vec!["create"]),
            "log" => ("", Value::Null, vec!["get"]),
            "finalize" => ("", Value::Null, vec!["update"]),
            _ => ("", Value::Null, vec!["get", "patch", "update"]),
        };
        all.push((name.to_owned(), kind, at, verbs));
    }
    all
}

/// `/apis/GROUP/VERSION`.
///
/// # Errors
/// 404.
pub(crate) fn version(registry: &Registry, group: &str, version: &str) -> Result<Response, Failure> {
    let all = by_version(registry);
    let kinds = all.get(&(group.to_owned(), version.to_owned())).ok_or_else(|| registry.none_at(group))?;
    let mut resources = Vec::new();
    for (resource, found) in kinds {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced, "kind": resource.kind,
            "verbs": resource.verbs(),
        });
        if !resource.short.is_empty() {
            entry["shortNames"] = json!(resource.short);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        resources.push(entry);
        for (name, kind, at, verbs) in subresources(resource, found) {
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": if kind.is_empty() { &resource.kind } else { kind }, "verbs": verbs,
            });
            if let Value::Object(at) = at {
                entry["group"] = at["group"].clone();
                entry["version"] = at["version"].clone();
            }
            resources.push(entry);
        }
    }
    let at = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(Response::json(
        200,
        &json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": at, "resources": resources }),
    ))
}

fn aggregate(registry: &Registry, groups: &[(String, Vec<String>)]) -> Response {
    let all = by_version(registry);
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let kinds = all.get(&(group.clone(), version.clone())).map(Vec::as_slice).unwrap_or_default();
                    let resources: Vec<Value> = kinds.iter().map(|(r, v)| aggregated_kind(r, v)).collect();
                    json!({ "version": version, "resources": resources, "freshness": "Current" })
                })
                .collect();
            let mut meta = json!({ "creationTimestamp": null });
            if !group.is_empty() {
                meta["name"] = json!(group);
            }
            json!({ "metadata": meta, "versions": versions })
        })
        .collect();
    let list = json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items });
    Response::json(200, &list)
        .header("content-type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
        .only_last_content_type()
}

fn aggregated_kind(resource: &Resource, version: &Version) -> Value {
    let own = json!({ "group": resource.group, "version": version.name, "kind": resource.kind });
    let mut entry = json!({
        "resource": resource.plural, "responseKind": own, "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs(),
    });
    if !resource.short.is_empty() {
        entry["shortNames"] = json!(resource.short);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subresources: Vec<Value> = subresources(resource, version)
        .into_iter()
        .map(|(name, kind, at, verbs)| {
            let response = if kind.is_empty() {
                own.clone()
            } else {
                json!({ "group": at["group"], "version": at["version"], "kind": kind })
            };
            json!({ "subresource": name, "responseKind": response, "verbs": verbs })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}

trait OneType {
    fn only_last_content_type(self) -> Self;
}

impl OneType for Response {
    fn only_last_content_type(mut self) -> Self {
        let last = self.headers.iter().rposition(|(name, _)| name == "content-type");
        let mut at = 0;
        self.headers.retain(|(name, _)| {
            at += 1;
            name != "content-type" || Some(at - 1) == last
        });
        self
    }
}

/// `/`.
pub(crate) fn paths(registry: &Registry) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".into(), "/apis".into()];
    for (group, versions) in group_versions(registry) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|v| format!("/apis/{group}/{v}")));
    }
    paths.extend(["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
    json!({ "paths": paths })
}
