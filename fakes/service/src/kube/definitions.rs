//! The kinds as CustomResourceDefinitions: structural schemas that are made from a table, `definitions.txt`.

use serde_json::{Map, Value, json};

const TABLE: &str = include_str!("definitions.txt");

/// The kinds of this door, ready to be applied to an API server.
pub fn definitions() -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix("kind ") {
            all.push(kind(head));
        } else if let Some(definition) = all.last_mut() {
            let version = &mut definition["spec"]["versions"][0];
            if let Some(rest) = line.strip_prefix("col ") {
                let column = column(rest);
                match version["additionalPrinterColumns"].as_array_mut() {
                    Some(columns) => columns.push(column),
                    None => version["additionalPrinterColumns"] = json!([column]),
                }
            } else {
                member(&mut version["schema"]["openAPIV3Schema"], line);
            }
        }
    }
    for definition in &mut all {
        let age = json!({ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" });
        if let Some(columns) = definition["spec"]["versions"][0]["additionalPrinterColumns"].as_array_mut() {
            columns.push(age);
        }
    }
    all
}

/// Members of a kind below `spec` or `status`, in the order of the table; a list is one member, whatever is in it.
pub(super) fn members(of: &str, below: &str) -> Vec<&'static str> {
    let mut own = false;
    let mut all: Vec<&'static str> = Vec::new();
    for line in TABLE.lines().map(str::trim) {
        if let Some(head) = line.strip_prefix("kind ") {
            own = head.split_whitespace().next() == Some(of);
        } else if let Some(path) = line.split_whitespace().next().filter(|_| own) {
            let path = path.split("[]").next().unwrap_or(path);
            if path.split_once('.').is_some_and(|(root, _)| root == below) && !all.contains(&path) {
                all.push(path);
            }
        }
    }
    all
}

fn kind(head: &str) -> Value {
    let words: Vec<&str> = head.split_whitespace().collect();
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let (kind, plural, scope) = (word(0), word(1), word(3));
    let (group, version) = word(2).split_once('/').unwrap_or((word(2), "v1"));
    let mut names = json!({
        "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase(),
    });
    if !word(4).is_empty() {
        names["shortNames"] = json!(word(4).split(',').collect::<Vec<_>>());
    }
    let text = json!({ "type": "string" });
    let time = json!({ "type": "string", "format": "date-time" });
    let condition = json!({
        "type": "object", "required": ["type", "status"],
        "properties": { "type": text, "status": text, "reason": text, "message": text,
                        "lastTransitionTime": time, "lastProbeTime": time,
                        "observedGeneration": { "type": "integer", "format": "int64" } },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": scope, "names": names,
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "apiVersion": text, "kind": text, "metadata": { "type": "object" },
                        "spec": { "type": "object", "properties": {} },
                        "status": { "type": "object", "properties": {
                            "conditions": { "type": "array", "items": condition } } },
                    },
                } },
            }],
        },
    })
}

fn column(rest: &str) -> Value {
    let parts: Vec<&str> = rest.split('|').map(str::trim).collect();
    let part = |at: usize| parts.get(at).copied().unwrap_or_default();
    let priority = i64::from(part(3) == "wide");
    json!({ "name": part(0), "type": part(1), "jsonPath": part(2), "priority": priority })
}

/// Puts a member into a schema, with the objects and lists that it is in.
fn member(schema: &mut Value, line: &str) {
    let mut words = line.split_whitespace();
    let path = words.next().unwrap_or_default();
    let kind = words.next().unwrap_or("any");
    let (mut default, mut required, mut least, mut most) = (None, false, None, None);
    for word in words {
        match word.split_at(1) {
            ("!", _) => required = true,
            ("=", text) => default = Some(text),
            (">", text) => least = text.trim_start_matches('=').parse::<i64>().ok(),
            ("<", text) => most = text.trim_start_matches('=').parse::<i64>().ok(),
            _ => {}
        }
    }
    let mut at = schema;
    let parts: Vec<&str> = path.split('.').collect();
    for (place, part) in parts.iter().enumerate() {
        let (name, is_list) = part.strip_suffix("[]").map_or((*part, false), |name| (name, true));
        let last = place + 1 == parts.len();
        if last && required {
            match at["required"].as_array_mut() {
                Some(list) => list.push(json!(name)),
                None => at["required"] = json!([name]),
            }
        }
        if !at["properties"].is_object() {
            at["properties"] = Value::Object(Map::new());
        }
        at = &mut at["properties"][name];
        if is_list {
            if at.is_null() {
                *at = json!({ "type": "array", "items": Value::Null });
            }
            if let (true, Some(most)) = (last, most) {
                at["maxItems"] = json!(most);
            }
            at = &mut at["items"];
        }
        if at.is_null() {
            *at = if last { leaf(kind) } else { json!({ "type": "object", "properties": {} }) };
        }
    }
    if let Some(least) = least {
        at["minimum"] = json!(least);
    }
    if let Some(text) = default {
        at["default"] = match kind {
            "bool" => json!(text == "true"),
            "int" => json!(text.parse::<i64>().unwrap_or(0)),
            _ => json!(text),
        };
    }
}

fn leaf(kind: &str) -> Value {
    match kind {
        "string" => json!({ "type": "string" }),
        "int" => json!({ "type": "integer", "format": "int64" }),
        "bool" => json!({ "type": "boolean" }),
        "time" => json!({ "type": "string", "format": "date-time" }),
        "map" => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        "mac" => json!({ "type": "string", "pattern": "^([0-9A-Fa-f]{2}[:]){5}([0-9A-Fa-f]{2})$" }),
        "storage" => json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "resources": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }),
        _ => match kind.strip_prefix("enum(").and_then(|rest| rest.strip_suffix(')')) {
            Some(words) => json!({ "type": "string", "enum": words.split('|').collect::<Vec<_>>() }),
            None => json!({ "x-kubernetes-preserve-unknown-fields": true }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::Kind;

    #[test]
    fn every_kind_of_the_door_that_no_cluster_has_is_defined() {
        let all = definitions();
        for kind in Kind::all().filter(|kind| kind.api_version() != "v1") {
            let one = all.iter().find(|d| d["spec"]["names"]["kind"] == kind.name()).unwrap();
            let spec = &one["spec"];
            let version =
                format!("{}/{}", spec["group"].as_str().unwrap(), spec["versions"][0]["name"].as_str().unwrap());
            assert_eq!((version.as_str(), &spec["names"]["plural"]), (kind.api_version(), &json!(kind.plural())));
            assert_eq!(spec["scope"] == "Namespaced", kind.is_namespaced());
        }
    }

    #[test]
    fn members_are_those_of_the_table() {
        assert_eq!(members("NMStateConfig", "spec"), ["spec.config", "spec.interfaces"]);
        assert_eq!(members("AgentClassification", "status"), ["status.matchedCount", "status.errorCount"]);
        assert!(members("AgentClusterInstall", "spec").contains(&"spec.networking.clusterNetwork"));
    }

    #[test]
    fn a_member_has_its_place() {
        let all = definitions();
        let aci = all.iter().find(|d| d["spec"]["names"]["kind"] == "AgentClusterInstall").unwrap();
        let spec = &aci["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        assert_eq!(spec["properties"]["apiVIPs"], json!({"type": "array", "items": {"type": "string"}, "maxItems": 2}));
        let item = &spec["properties"]["compute"]["items"]["properties"]["hyperthreading"];
        assert_eq!(*item, json!({"type": "string", "enum": ["Enabled", "Disabled"], "default": "Enabled"}));
        assert_eq!(spec["properties"]["provisionRequirements"]["required"], json!(["controlPlaneAgents"]));
    }
}
