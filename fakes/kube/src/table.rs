//! Tables for `kubectl get`.

use base64::Engine as _;
use serde_json::{Value, json};
use vlab_api::Timestamp;

use crate::jsonpath;
use crate::meta;
use crate::resource::{Column, Version};

/// What a row carries of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// The table; without its columns where a watch has sent them already.
pub(crate) fn table(version: &Version, rows: Vec<Value>, meta: &Value, heading: bool) -> Value {
    let name = Column {
        name: "Name".into(),
        kind: "string".into(),
        format: "name".into(),
        description: "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names".into(),
        ..Column::default()
    };
    let written = |c: &Column| json!({ "name": c.name, "type": c.kind, "format": c.format, "description": c.description, "priority": c.priority });
    let columns: Vec<Value> =
        if heading { std::iter::once(&name).chain(&version.columns).map(written).collect() } else { Vec::new() };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": columns, "rows": rows,
    })
}

/// The row of an object.
pub(crate) fn row(version: &Version, object: &Value, now: Timestamp, include: Include) -> Value {
    let mut cells = vec![object["metadata"]["name"].clone()];
    cells.extend(version.columns.iter().map(|column| cell(column, object, now)));
    let mut row = json!({ "cells": cells });
    match include {
        Include::Nothing => {}
        Include::Metadata => row["object"] = crate::view::metadata(object),
        Include::Object => row["object"] = object.clone(),
    }
    row
}

fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    if let Some(what) = column.path.strip_prefix('@') {
        return computed(what, object, now);
    }
    let found = jsonpath::find(&column.path, object);
    let Some(first) = found.first() else { return Value::Null };
    match column.kind.as_str() {
        "date" => first.as_str().map_or(Value::Null, |then| json!(meta::age(then, now))),
        "integer" if first.is_i64() || first.is_u64() => (*first).clone(),
        "number" if first.is_number() => (*first).clone(),
        "boolean" if first.is_boolean() => (*first).clone(),
        "integer" | "number" | "boolean" => Value::Null,
        _ if found.len() > 1 => json!(found.iter().map(|v| jsonpath::plain(v)).collect::<Vec<_>>().join(",")),
        _ => json!(jsonpath::plain(first)),
    }
}

fn conditions(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| (c["type"].as_str().unwrap_or_default(), c["status"].as_str().unwrap_or_default()))
}

fn computed(what: &str, object: &Value, now: Timestamp) -> Value {
    let text = |path: &str| jsonpath::first(path, object).map(jsonpath::plain).unwrap_or_default();
    let or_none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    let statuses = || object["status"]["containerStatuses"].as_array().into_iter().flatten();
    json!(match what {
        "age" => meta::age(&text(".metadata.creationTimestamp"), now),
        "data" => {
            let count = |part: &str| object[part].as_object().map_or(0, serde_json::Map::len);
            return json!(count("data") + count("binaryData"));
        }
        "webhooks" => return json!(object["webhooks"].as_array().map_or(0, Vec::len)),
        "last-seen" => {
            let seen = [".series.lastObservedTime", ".lastTimestamp", ".eventTime", ".metadata.creationTimestamp"];
            let seen = seen.iter().map(|p| text(p)).find(|t| !t.is_empty()).unwrap_or_default();
            meta::age(&seen, now)
        }
        "involved" => {
            format!("{}/{}", text(".involvedObject.kind").to_lowercase(), text(".involvedObject.name"))
        }
        "role-ref" => format!("{}/{}", text(".roleRef.kind"), text(".roleRef.name")),
        "ready" => format!("{}/{}", or_zero(&text(".status.readyReplicas")), or_zero(&text(".spec.replicas"))),
        "duration" =>
            or_none(text(".spec.expirationSeconds").parse::<u64>().map(|s| format!("{s}s")).unwrap_or_default()),
        "csr" => csr(object),
        "node-status" => node_status(object),
        "node-roles" => or_none(roles(object)),
        "node-ip" => or_none(text(".status.addresses[?(@.type=='InternalIP')].address")),
        "pod-ready" => {
            let ready = statuses().filter(|s| s["ready"] == true).count();
            let all = object["spec"]["containers"].as_array().map_or(0, Vec::len);
            format!("{ready}/{all}")
        }
        "pod-status" => {
            if object["metadata"]["deletionTimestamp"].is_string() {
                "Terminating".to_owned()
            } else {
                text(".status.phase")
            }
        }
        "pod-restarts" => statuses().filter_map(|s| s["restartCount"].as_u64()).sum::<u64>().to_string(),
        _ => String::new(),
    })
}

fn or_zero(text: &str) -> &str {
    if text.is_empty() { "0" } else { text }
}

fn csr(object: &Value) -> String {
    let mut words: Vec<&str> = conditions(object).map(|(kind, _)| kind).collect();
    if words.is_empty() {
        words.push("Pending");
    }
    if object["status"]["certificate"]
        .as_str()
        .is_some_and(|c| base64::engine::general_purpose::STANDARD.decode(c).is_ok_and(|b| !b.is_empty()))
    {
        words.push("Issued");
    }
    words.join(",")
}

fn node_status(object: &Value) -> String {
    let ready = conditions(object).find(|(kind, _)| *kind == "Ready");
    let mut text = match ready {
        Some((_, "True")) => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object["spec"]["unschedulable"] == true {
        text.push_str(",SchedulingDisabled");
    }
    text
}

fn roles(object: &Value) -> String {
    let labels = object["metadata"]["labels"].as_object();
    let mut roles: Vec<&str> =
        labels.into_iter().flatten().filter_map(|(name, _)| name.strip_prefix("node-role.kubernetes.io/")).collect();
    roles.sort_unstable();
    roles.join(",")
}
