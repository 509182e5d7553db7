//! CustomResourceDefinitions: from the object that somebody applies to a kind of this server.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::builtin::kinds::root;
use crate::failure::Cause;
use crate::resource::{Column, Resource, ResourceId, Scale, Version};
use crate::schema::Schema;

/// The finalizer that keeps a definition until its objects are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// Fills in what a definition may leave out.
pub(crate) fn fill_defaults(crd: &mut Value) {
    let spec = &mut crd["spec"];
    let kind = text(&spec["names"], "kind").to_owned();
    if let Some(names) = spec["names"].as_object_mut() {
        names.entry("singular").or_insert_with(|| json!(kind.to_lowercase()));
        names.entry("listKind").or_insert_with(|| json!(format!("{kind}List")));
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.entry("conversion").or_insert_with(|| json!({ "strategy": "None" }));
        if spec.get("preserveUnknownFields") == Some(&json!(false)) {
            spec.shift_remove("preserveUnknownFields");
        }
    }
}

/// What is wrong with a definition.
pub(crate) fn check(crd: &Value) -> Vec<Cause> {
    let (name, spec) = (text(&crd["metadata"], "name"), &crd["spec"]);
    let (group, plural, kind) = (text(spec, "group"), text(&spec["names"], "plural"), text(&spec["names"], "kind"));
    let mut causes = Vec::new();
    if name != format!("{plural}.{group}") {
        causes.push(Cause::invalid("metadata.name", &json!(name), "must be spec.names.plural+\".\"+spec.group"));
    }
    for (field, value) in [("spec.group", group), ("spec.names.plural", plural), ("spec.names.kind", kind)] {
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    let scope = text(spec, "scope");
    if !["Cluster", "Namespaced"].contains(&scope) {
        causes.push(Cause::unsupported("spec.scope", &json!(scope), &["Cluster".into(), "Namespaced".into()]));
    }
    let none = Vec::new();
    let versions = spec["versions"].as_array().unwrap_or(&none);
    let stored = versions.iter().filter(|v| v["storage"] == true).count();
    if stored != 1 {
        causes.push(Cause::invalid(
            "spec.versions",
            &spec["versions"],
            "must have exactly one version marked as storage version",
        ));
    }
    for (at, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{at}].schema.openAPIV3Schema");
        match &version["schema"]["openAPIV3Schema"] {
            Value::Null => causes.push(Cause::required(path, "")),
            schema => {
                if let Err(what) = Schema::read(schema) {
                    causes.push(Cause::invalid(path, &json!(""), &what));
                } else if text(schema, "type") != "object" {
                    causes.push(Cause::invalid(format!("{path}.type"), &schema["type"], "must be object at the root"));
                }
            }
        }
    }
    if !["", "None", "Webhook"].contains(&text(&spec["conversion"], "strategy")) {
        causes.push(Cause::unsupported(
            "spec.conversion.strategy",
            &spec["conversion"]["strategy"],
            &["None".into(), "Webhook".into()],
        ));
    }
    causes
}

fn list(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn column(value: &Value) -> Column {
    Column {
        name: text(value, "name").to_owned(),
        kind: text(value, "type").to_owned(),
        format: text(value, "format").to_owned(),
        description: match text(value, "description") {
            "" => format!("Custom resource definition column (in JSONPath format): {}", text(value, "jsonPath")),
            text => text.to_owned(),
        },
        priority: value["priority"].as_i64().unwrap_or(0),
        path: text(value, "jsonPath").to_owned(),
    }
}

fn version(group: &str, kind: &str, value: &Value) -> Version {
    let published = &value["schema"]["openAPIV3Schema"];
    // Checked before it was stored.
    let schema = Schema::read(published).unwrap_or_else(|_| Schema::any());
    let age = || Column {
        name: "Age".into(),
        kind: "date".into(),
        path: ".metadata.creationTimestamp".into(),
        ..Column::default()
    };
    let columns = match value["additionalPrinterColumns"].as_array() {
        Some(columns) if !columns.is_empty() => columns.iter().map(column).collect(),
        _ => vec![age()],
    };
    let name = text(value, "name").to_owned();
    let scale = value["subresources"]["scale"].as_object().map(|_| {
        let scale = &value["subresources"]["scale"];
        Scale {
            wanted: text(scale, "specReplicasPath").to_owned(),
            found: text(scale, "statusReplicasPath").to_owned(),
            selector: text(scale, "labelSelectorPath").to_owned(),
        }
    });
    let fields = value["selectableFields"].as_array().into_iter().flatten().map(|f| text(f, "jsonPath"));
    let deprecated = (value["deprecated"] == true).then(|| match value["deprecationWarning"].as_str() {
        Some(text) => text.to_owned(),
        None => format!("{group}/{name} {kind} is deprecated"),
    });
    Version {
        served: value["served"] == true,
        schema: Arc::new(root(schema)),
        published: published.to_string().into(),
        status: value["subresources"]["status"].is_object(),
        scale,
        columns,
        fields: fields.map(|path| (path.trim_start_matches('.').to_owned(), path.to_owned())).collect(),
        deprecated,
        name,
    }
}

/// How new a version is: `v1` before `v1beta1` before `v1alpha1`, the rest last.
fn rank(name: &str) -> (u8, i64, i64) {
    let Some(rest) = name.strip_prefix('v') else { return (3, 0, 0) };
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    let Ok(major) = rest[..digits].parse::<i64>() else { return (3, 0, 0) };
    let tail = &rest[digits..];
    let number = |word: &str| tail.strip_prefix(word).and_then(|n| n.parse::<i64>().ok());
    match (tail, number("beta"), number("alpha")) {
        ("", ..) => (0, -major, 0),
        (_, Some(n), _) => (1, -major, -n),
        (_, _, Some(n)) => (2, -major, -n),
        _ => (3, 0, 0),
    }
}

/// The kind that a definition makes.
pub(crate) fn resource(crd: &Value) -> Resource {
    let (spec, names) = (&crd["spec"], &crd["spec"]["names"]);
    let (group, kind) = (text(spec, "group"), text(names, "kind"));
    let mut versions: Vec<Arc<Version>> =
        spec["versions"].as_array().into_iter().flatten().map(|v| Arc::new(version(group, kind, v))).collect();
    versions.sort_by_key(|v| rank(&v.name));
    let storage = spec["versions"].as_array().into_iter().flatten().find(|v| v["storage"] == true);
    Resource {
        id: ResourceId(0),
        group: group.to_owned(),
        plural: text(names, "plural").to_owned(),
        singular: text(names, "singular").to_owned(),
        kind: kind.to_owned(),
        list_kind: text(names, "listKind").to_owned(),
        short: list(&names["shortNames"]),
        categories: list(&names["categories"]),
        namespaced: text(spec, "scope") == "Namespaced",
        custom: true,
        review: false,
        subresources: &[],
        message: "",
        storage: storage.map(|v| text(v, "name")).unwrap_or_default().to_owned(),
        versions,
    }
}

/// The status of a definition that is in force.
pub(crate) fn establish(crd: &mut Value, time: &str) {
    let since = json!(time);
    let condition = |kind: &str, reason: &str, message: &str| json!({ "lastTransitionTime": since, "message": message, "reason": reason, "status": "True", "type": kind });
    let before = crd["status"]["conditions"].as_array().cloned();
    let names = crd["spec"]["names"].clone();
    let storage = crd["spec"]["versions"].as_array().into_iter().flatten().find(|v| v["storage"] == true);
    let storage = storage.map(|v| text(v, "name").to_owned()).unwrap_or_default();
    let mut stored = list(&crd["status"]["storedVersions"]);
    if !stored.contains(&storage) {
        stored.push(storage);
    }
    let conditions = before.filter(|c| !c.is_empty()).unwrap_or_else(|| {
        vec![
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]
    });
    crd["status"] = json!({ "acceptedNames": names, "conditions": conditions, "storedVersions": stored });
}

/// The status of a definition that is being deleted.
pub(crate) fn terminating(crd: &mut Value, time: &str) {
    let condition = json!({
        "lastTransitionTime": time, "message": "CustomResource deletion is in progress", "reason": "InstanceDeletionInProgress",
        "status": "True", "type": "Terminating",
    });
    if let Some(conditions) = crd["status"]["conditions"].as_array_mut() {
        conditions.retain(|c| c["type"] != "Terminating");
        conditions.push(condition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut names = vec!["v1alpha1", "foo", "v2", "v1beta2", "v1", "v1beta10"];
        names.sort_by_key(|n| rank(n));
        assert_eq!(names, ["v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]);
    }
}
