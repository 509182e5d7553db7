//! OpenAPI v3 documents, one for each group and version: for `kubectl explain`, client-side validation and apply.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use vlab_api::http::{Request, Response};

use crate::builtin::messages::{Field, MESSAGES, Of};
use crate::failure::Failure;
use crate::resource::{Registry, Resource, Version};
use crate::schema::ListType;

/// Documents that were made for one state of the registry.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    generation: u64,
    made: BTreeMap<String, Vec<u8>>,
}

const META: &str = "meta.ObjectMeta";

/// The name of a component.
fn component(message: &str) -> String {
    match message.split_once('.') {
        Some(("meta", name)) => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}"),
        Some((package, name)) => format!("io.k8s.api.{package}.v1.{name}"),
        None => message.to_owned(),
    }
}

fn reference(message: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{}", component(message)) })
}

/// The name of a kind that a definition made: the group backwards.
fn custom(resource: &Resource, version: &str) -> String {
    let group: Vec<&str> = resource.group.split('.').rev().collect();
    format!("{}.{version}.{}", group.join("."), resource.kind)
}

fn field(field: &Field) -> Value {
    let one = match &field.of {
        Of::Text => json!({ "type": "string" }),
        Of::Bytes => json!({ "type": "string", "format": "byte" }),
        Of::Int => json!({ "type": "integer", "format": "int64" }),
        Of::Bool => json!({ "type": "boolean" }),
        Of::Double => json!({ "type": "number", "format": "double" }),
        Of::Time | Of::MicroTime => json!({ "type": "string", "format": "date-time" }),
        Of::Duration => json!({ "type": "string" }),
        Of::Quantity => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
        Of::IntOrString => json!({ "oneOf": [{ "type": "integer" }, { "type": "string" }], "format": "int-or-string" }),
        Of::Raw | Of::FieldSet => json!({ "type": "object" }),
        Of::Message(message) => json!({ "allOf": [reference(message)], "default": {} }),
    };
    let mut whole = if field.list {
        json!({ "type": "array", "items": one })
    } else if field.map {
        json!({ "type": "object", "additionalProperties": one })
    } else {
        one
    };
    match &field.merging {
        ListType::Map(keys) => {
            whole["x-kubernetes-list-type"] = json!("map");
            whole["x-kubernetes-list-map-keys"] = json!(keys);
        }
        ListType::Set => whole["x-kubernetes-list-type"] = json!("set"),
        ListType::Atomic if field.list => whole["x-kubernetes-list-type"] = json!("atomic"),
        ListType::Atomic => {}
    }
    if let Some(merge) = &field.strategic {
        if !merge.key.is_empty() {
            whole["x-kubernetes-patch-merge-key"] = json!(merge.key);
        }
        whole["x-kubernetes-patch-strategy"] = json!(merge.strategy);
    }
    whole
}

fn properties(fields: &[Field], properties: &mut Map<String, Value>, required: &mut Vec<String>) {
    for f in fields {
        if let (true, Of::Message(inner)) = (f.inline, &f.of) {
            let inner = MESSAGES.get(inner.as_str()).map(Vec::as_slice).unwrap_or_default();
            self::properties(inner, properties, required);
            continue;
        }
        properties.insert(f.name.clone(), field(f));
        if f.required && f.name != "spec" && f.name != "status" {
            required.push(f.name.clone());
        }
    }
}

/// The component of a message, and the messages that it names.
fn message(name: &str) -> Value {
    let Some(fields) = MESSAGES.get(name) else {
        return json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    };
    if let [only] = fields.as_slice()
        && only.inline
        && only.list
    {
        return field(only);
    }
    let (mut map, mut required) = (Map::new(), Vec::new());
    properties(fields, &mut map, &mut required);
    let mut schema = json!({ "type": "object", "properties": map });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn reach(name: &str, seen: &mut BTreeSet<String>) {
    if !seen.insert(name.to_owned()) {
        return;
    }
    for field in MESSAGES.get(name).map(Vec::as_slice).unwrap_or_default() {
        if let Of::Message(inner) = &field.of {
            reach(inner, seen);
        }
    }
}

/// `apiVersion`, `kind` and `metadata`, which every object has.
fn rooted(mut schema: Value, resource: &Resource, version: &str) -> Value {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    let text = |description: &str| json!({ "type": "string", "description": description });
    schema["properties"]["apiVersion"] =
        text("APIVersion defines the versioned schema of this representation of an object.");
    schema["properties"]["kind"] =
        text("Kind is a string value representing the REST resource this object represents.");
    schema["properties"]["metadata"] =
        json!({ "allOf": [reference(META)], "default": {}, "description": "Standard object's metadata." });
    schema["x-kubernetes-group-version-kind"] =
        json!([{ "group": resource.group, "kind": resource.kind, "version": version }]);
    schema
}

fn operation(action: &str, resource: &Resource, version: &Version, schema: &str, patch: bool) -> Value {
    let query = |name: &str, kind: &str| json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } });
    let mut operation = json!({
        "operationId": format!("{action}{}{}", version.name, resource.kind),
        "parameters": [query("dryRun", "string"), query("fieldManager", "string"), query("fieldValidation", "string"), query("force", "boolean")],
        "responses": { "200": { "description": "OK", "content": { "application/json": { "schema": { "$ref": schema } } } } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": { "group": resource.group, "kind": resource.kind, "version": version.name },
    });
    if patch {
        let mut content = json!({});
        let mut types =
            vec!["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
        if !resource.custom {
            types.push("application/strategic-merge-patch+json");
        }
        for media in types {
            content[media] = json!({ "schema": { "type": "object" } });
        }
        operation["requestBody"] = json!({ "content": content });
    }
    operation
}

fn paths(resource: &Resource, version: &Version, schema: &str, all: &mut Map<String, Value>) {
    let root = if resource.group.is_empty() {
        format!("/api/{}", version.name)
    } else {
        format!("/apis/{}/{}", resource.group, version.name)
    };
    let base = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{root}/{}", resource.plural)
    };
    let act = |action: &str, patch: bool| operation(action, resource, version, schema, patch);
    all.insert(
        base.clone(),
        if resource.review {
            json!({ "post": act("post", false) })
        } else {
            json!({ "get": act("list", false), "post": act("post", false) })
        },
    );
    if !resource.review {
        let one = json!({ "get": act("get", false), "put": act("put", false), "patch": act("patch", true), "delete": act("delete", false) });
        all.insert(format!("{base}/{{name}}"), one);
    }
}

fn document(registry: &Registry, group: &str, version: &str) -> Option<Vec<u8>> {
    let (mut schemas, mut all) = (Map::new(), Map::new());
    let mut reached = BTreeSet::new();
    reach(META, &mut reached);
    for resource in registry.all().filter(|r| r.group == group) {
        let Some(found) = resource.version(version) else { continue };
        let name = if resource.custom {
            custom(resource, version)
        } else if resource.message.is_empty() {
            format!("io.k8s.{group}.{version}.{}", resource.kind)
        } else {
            reach(resource.message, &mut reached);
            component(resource.message)
        };
        let schema = if resource.custom {
            serde_json::from_str(&found.published).unwrap_or_default()
        } else {
            message(resource.message)
        };
        paths(resource, found, &format!("#/components/schemas/{name}"), &mut all);
        schemas.insert(name, rooted(schema, resource, version));
    }
    if all.is_empty() {
        return None;
    }
    for name in reached {
        schemas.entry(component(&name)).or_insert_with(|| message(&name));
    }
    let document = json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": format!("v1.{}.0", crate::discovery::MINOR) },
        "paths": all, "components": { "schemas": schemas },
    });
    serde_json::to_vec(&document).ok()
}

fn split(path: &str) -> Option<(&str, &str)> {
    match path.strip_prefix("apis/") {
        Some(rest) => rest.split_once('/'),
        None => path.strip_prefix("api/").map(|version| ("", version)),
    }
}

impl Documents {
    fn fresh(&mut self, registry: &Registry) {
        if self.generation != registry.generation {
            self.generation = registry.generation;
            self.made.clear();
        }
    }

    /// `/openapi/v3`.
    pub(crate) fn index(&mut self, registry: &Registry) -> Response {
        self.fresh(registry);
        let mut found = BTreeSet::new();
        for resource in registry.all() {
            for version in resource.versions.iter().filter(|v| v.served) {
                let path = if resource.group.is_empty() {
                    format!("api/{}", version.name)
                } else {
                    format!("apis/{}/{}", resource.group, version.name)
                };
                found.insert(path);
            }
        }
        let mut paths = Map::new();
        for path in found {
            let digest = Sha256::digest(format!("{path} {}", registry.generation));
            let hash: String = digest.iter().map(|b| format!("{b:02X}")).collect();
            paths.insert(path.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}") }));
        }
        Response::json(200, &json!({ "paths": paths }))
    }

    /// `/openapi/v3/apis/GROUP/VERSION`.
    pub(crate) fn group(&mut self, registry: &Registry, path: &str) -> Option<Response> {
        self.fresh(registry);
        if !self.made.contains_key(path) {
            let (group, version) = split(path)?;
            let document = document(registry, group, version)?;
            self.made.insert(path.to_owned(), document);
        }
        let body = self.made.get(path)?.clone();
        Some(Response {
            status: 200,
            headers: vec![("content-type".into(), "application/json".into())],
            body: body.into(),
        })
    }
}

/// `/openapi/v2`: the older document is not made; clients go on without it.
///
/// # Errors
/// Always 404.
pub(crate) fn v2(_: &Registry, _: &Request) -> Result<Response, Failure> {
    Err(Failure::no_such_path())
}
