//! The wire types are those of the API's schema: every member, its kind, whether it must be there, its words and limits.
//! `VLAB_SWAGGER` names a copy of the schema; without it these tests are skipped and say so.

#![expect(clippy::disallowed_methods, reason = "a test looks where its facts are")]
#![expect(clippy::unwrap_used, reason = "tests: a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use vlab_api::registry::{ENUMS, OBJECTS};
use vlab_api::spec::{Check, FieldSpec, Kind, StructSpec};

/// Definitions that are no type of ours, and why.
const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "a list, or a map, of another definition: `Vec<T>` and `BTreeMap<String, T>` here",
        &[
            "cluster-host-requirements-list",
            "cluster-list",
            "connectivity-check-params",
            "event-list",
            "free-addresses-list",
            "free_networks_addresses",
            "host-list",
            "infra-env-list",
            "kernel_arguments",
            "list-managed-domains",
            "list-manifests",
            "mac_interface_map",
            "monitored-operators-list",
            "openshift-versions",
            "operator-properties",
            "os-images",
            "release-images",
            "release-sources",
            "support-levels",
            "versions",
            "verify_vips_request",
            "verify_vips_response",
        ],
    ),
    ("plain text: `String` here", &["ingress-cert-params", "ip", "subnet"]),
    (
        "words that occur inside one other definition only, where they are checked as its member",
        &["container_image_availability_result", "memory_method", "secure-boot-state", "upgrade_agent_result"],
    ),
    (
        "one member inline, or no request of a lab: hosts answer step by step",
        &["steps-reply", "free_addresses_request"],
    ),
    (
        "feature support, bundles, operator catalogues, managed domains, usage and release mirrors: no lab asks for them",
        &[
            "architecture-support-level-id",
            "bundle",
            "feature",
            "feature-support-level-id",
            "incompatibility-reason",
            "managed-domain",
            "operator",
            "operator-property",
            "release-channel",
            "release-source",
            "support-level",
            "upgrade-channel",
            "usage",
        ],
    ),
    (
        "of the first version of the API, which had other operations",
        &["host-role-update-params", "image-create-params"],
    ),
];

/// Our names for what the schema writes inside another definition: name, then where it is.
const INLINE: &[(&str, &[&str])] = &[
    ("cluster.status", &["cluster", "properties", "status"]),
    ("event.severity", &["event", "properties", "severity"]),
    ("host.status", &["host", "properties", "status"]),
    ("disk-installation_eligibility", &["disk", "properties", "installation_eligibility"]),
    ("domain_resolution_response-resolutions", &["domain_resolution_response", "properties", "resolutions", "items"]),
    ("inventory-truncation", &["inventory", "properties", "truncation"]),
    ("mac_interface_map-item", &["mac_interface_map", "items"]),
    (
        "host_registration_response-next_step_runner_command",
        &["host_registration_response", "allOf", "1", "properties", "next_step_runner_command"],
    ),
    (
        "tang_connectivity_response-tang_server_response",
        &["tang_connectivity_response", "properties", "tang_server_response", "items"],
    ),
    (
        "tang_connectivity_response-tang_server_response-signatures",
        &[
            "tang_connectivity_response",
            "properties",
            "tang_server_response",
            "items",
            "properties",
            "signatures",
            "items",
        ],
    ),
];

/// Members whose kind is not the schema's, and why.
const OTHER_KIND: &[(&str, &str, &str)] = &[];

fn definitions() -> Option<BTreeMap<String, Value>> {
    let Some(path) = std::env::var_os("VLAB_SWAGGER") else {
        vlab_skip::skip!("VLAB_SWAGGER is not set (it names a copy of the API's swagger.yaml)");
        return None;
    };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("VLAB_SWAGGER={}: {e}", path.display()));
    let whole: Value = serde_yaml::from_str(&text).unwrap();
    Some(serde_json::from_value(whole["definitions"].clone()).unwrap())
}

/// What a member holds, in words that both sides can be written in.
#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Scalar(&'static str),
    Words(Vec<String>),
    Object(String),
    Array(Box<Shape>),
    Map(Box<Shape>),
}

fn words(of: &Value) -> Option<Vec<String>> {
    Some(of.get("enum")?.as_array()?.iter().map(|w| w.as_str().unwrap_or_default().to_owned()).collect())
}

/// Shape of a schema. `at` is where it stands, to give inline objects their names.
fn shape(all: &BTreeMap<String, Value>, schema: &Value, at: &[String]) -> Shape {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.trim_start_matches("#/definitions/").to_owned();
        let target = all.get(&name).unwrap_or_else(|| panic!("no definition {name}"));
        return shape(all, target, &[name]);
    }
    let deeper =
        |more: &[&str]| -> Vec<String> { at.iter().cloned().chain(more.iter().map(|s| (*s).to_owned())).collect() };
    if let Some(words) = words(schema) {
        return Shape::Words(words);
    }
    match (schema.get("type").and_then(Value::as_str), schema.get("format").and_then(Value::as_str)) {
        (Some("array"), _) => Shape::Array(Box::new(shape(all, &schema["items"], &deeper(&["items"])))),
        (Some("string"), Some("uuid")) => Shape::Scalar("uuid"),
        (Some("string"), Some("date-time")) => Shape::Scalar("date-time"),
        (Some("string"), _) => Shape::Scalar("string"),
        (Some("integer"), _) => Shape::Scalar("integer"),
        (Some("number"), _) => Shape::Scalar("number"),
        (Some("boolean"), _) => Shape::Scalar("boolean"),
        (Some("object") | None, _) if schema.get("properties").is_some() || schema.get("allOf").is_some() => {
            if let [name] = at {
                return Shape::Object(name.clone());
            }
            let inline = INLINE.iter().find(|(_, path)| path.iter().copied().eq(at.iter().map(String::as_str)));
            Shape::Object(inline.unwrap_or_else(|| panic!("an inline object without a name: {at:?}")).0.to_owned())
        }
        (Some("object"), _) => match schema.get("additionalProperties") {
            Some(Value::Object(items)) if !items.is_empty() => {
                Shape::Map(Box::new(shape(all, &Value::Object(items.clone()), &deeper(&["additionalProperties"]))))
            }
            Some(_) => Shape::Map(Box::new(Shape::Scalar("any"))),
            None => Shape::Scalar("any"),
        },
        (None, None) => Shape::Scalar("any"),
        other => panic!("{at:?}: a schema of a kind that this test does not know: {other:?}"),
    }
}

fn shape_of_kind(kind: &Kind) -> Shape {
    match kind {
        Kind::String => Shape::Scalar("string"),
        Kind::Uuid => Shape::Scalar("uuid"),
        Kind::DateTime => Shape::Scalar("date-time"),
        Kind::Integer => Shape::Scalar("integer"),
        Kind::Number => Shape::Scalar("number"),
        Kind::Bool => Shape::Scalar("boolean"),
        Kind::Any => Shape::Scalar("any"),
        Kind::Enum(words) => Shape::Words(words.iter().map(|w| (*w).to_owned()).collect()),
        Kind::Object(spec) => Shape::Object(spec.name.to_owned()),
        Kind::Array(items) => Shape::Array(Box::new(shape_of_kind(items))),
        Kind::Map(items) => Shape::Map(Box::new(shape_of_kind(items))),
    }
}

/// What our member holds: text with a list of words is words.
fn shape_of_field(field: &FieldSpec) -> Shape {
    let words = field.checks.iter().find_map(|c| match c {
        Check::OneOf(words) => Some(words.iter().map(|w| (*w).to_owned()).collect()),
        _ => None,
    });
    match (field.kind, words) {
        (Kind::String, Some(words)) => Shape::Words(words),
        (kind, _) => shape_of_kind(&kind),
    }
}

/// A definition's members (of all its parts), each with whether it must be there and where it stands.
fn members(all: &BTreeMap<String, Value>, schema: &Value, at: &[String]) -> Vec<(String, Value, bool, Vec<String>)> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.trim_start_matches("#/definitions/").to_owned();
        return members(all, &all[&name], &[name]);
    }
    let mut found = Vec::new();
    for (i, part) in schema.get("allOf").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let mut at = at.to_vec();
        at.extend(["allOf".to_owned(), i.to_string()]);
        found.extend(members(all, part, &at));
    }
    let required: BTreeSet<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, member) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let mut at = at.to_vec();
        at.extend(["properties".to_owned(), name.clone()]);
        found.push((name.clone(), member.clone(), required.contains(name.as_str()), at));
    }
    found
}

/// The schema of one of our types, and where it stands.
fn find(all: &BTreeMap<String, Value>, name: &str) -> Option<(Value, Vec<String>)> {
    if let Some(schema) = all.get(name) {
        return Some((schema.clone(), vec![name.to_owned()]));
    }
    let (_, path) = INLINE.iter().find(|(n, _)| *n == name)?;
    let mut value = all.get(path[0])?;
    for step in &path[1..] {
        value = match step.parse::<usize>() {
            Ok(i) => value.get(i)?,
            Err(_) => value.get(*step)?,
        };
    }
    Some((value.clone(), path.iter().map(|s| (*s).to_owned()).collect()))
}

fn limits(schema: &Value) -> Vec<Check> {
    let size = |name: &str| schema.get(name).and_then(Value::as_u64).map(|n| n as usize);
    let number = |name: &str| schema.get(name).and_then(Value::as_f64).map(|n| n as i64);
    [
        size("maxLength").map(Check::MaxLength),
        size("minLength").map(Check::MinLength),
        number("minimum").map(Check::Minimum),
        number("maximum").map(Check::Maximum),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn compare(all: &BTreeMap<String, Value>, spec: &StructSpec, faults: &mut Vec<String>) {
    let Some((schema, at)) = find(all, spec.name) else {
        faults.push(format!("{}: no such definition", spec.name));
        return;
    };
    let theirs = members(all, &schema, &at);
    for field in spec.fields {
        if !theirs.iter().any(|(name, ..)| name == field.name) {
            faults.push(format!("{}.{}: the schema has no such member", spec.name, field.name));
        }
    }
    for (name, member, required, at) in theirs {
        let place = format!("{}.{name}", spec.name);
        let Some(field) = spec.field(&name) else {
            faults.push(format!("{place}: missing here"));
            continue;
        };
        if field.required != required {
            faults.push(format!("{place}: required is {required} in the schema and {} here", field.required));
        }
        let (theirs, ours) = (shape(all, &member, &at), shape_of_field(field));
        let excused = OTHER_KIND.iter().any(|(t, m, _)| *t == spec.name && *m == name);
        if (theirs == ours) == excused {
            faults.push(format!("{place}: {theirs:?} in the schema and {ours:?} here (excused: {excused})"));
        }
        let mut ours: Vec<Check> = field.checks.iter().copied().filter(|c| !matches!(c, Check::OneOf(_))).collect();
        let mut theirs = limits(&member);
        let order = |c: &Check| format!("{c:?}");
        ours.sort_by_key(order);
        theirs.sort_by_key(order);
        if theirs != ours {
            faults.push(format!("{place}: limits are {theirs:?} in the schema and {ours:?} here"));
        }
    }
}

#[test]
fn every_object_is_the_schemas() {
    let Some(all) = definitions() else { return };
    let mut faults = Vec::new();
    for entry in OBJECTS {
        compare(&all, entry.spec, &mut faults);
    }
    assert!(faults.is_empty(), "{} differences:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_list_of_words_is_the_schemas() {
    let Some(all) = definitions() else { return };
    for entry in ENUMS {
        let (schema, _) = find(&all, entry.name).unwrap_or_else(|| panic!("no definition {}", entry.name));
        assert_eq!(words(&schema).unwrap_or_default(), entry.words, "{}", entry.name);
    }
}

#[test]
fn every_definition_is_a_type_or_is_left_out_for_a_reason() {
    let Some(all) = definitions() else { return };
    let ours: BTreeSet<&str> = OBJECTS.iter().map(|e| e.spec.name).chain(ENUMS.iter().map(|e| e.name)).collect();
    let left_out: Vec<&str> = LEFT_OUT.iter().flat_map(|(_, names)| *names).copied().collect();
    let theirs: BTreeSet<&str> = all.keys().map(String::as_str).collect();
    let mut accounted: BTreeSet<&str> = ours.iter().filter(|n| !INLINE.iter().any(|(i, _)| i == *n)).copied().collect();
    for name in &left_out {
        assert!(accounted.insert(name), "{name} is both left out and a type, or listed twice");
    }
    assert_eq!(theirs.difference(&accounted).collect::<Vec<_>>(), Vec::<&&str>::new(), "neither a type nor left out");
    assert_eq!(accounted.difference(&theirs).collect::<Vec<_>>(), Vec::<&&str>::new(), "not in the schema");
}

/// Needs no schema: the list is complete when it has a type for each `wire!` and `wire_enum!` of the source.
#[test]
fn the_registry_is_complete() {
    let source = include_str!("../src/types.rs");
    let defined = |keyword: &str| -> BTreeSet<String> {
        let keyword = format!("\n{keyword} {{\n");
        let after = source.split(&keyword).skip(1);
        after.filter_map(|t| t.lines().find(|l| l.contains(" = \""))?.split('"').nth(1).map(str::to_owned)).collect()
    };
    let objects: BTreeSet<String> = OBJECTS.iter().map(|e| e.spec.name.to_owned()).collect();
    let enums: BTreeSet<String> = ENUMS.iter().map(|e| e.name.to_owned()).collect();
    assert_eq!(defined("wire!"), objects);
    assert_eq!(defined("wire_enum!"), enums);
    assert_eq!((objects.len(), enums.len()), (OBJECTS.len(), ENUMS.len()), "listed twice");
    assert!(objects.len() > 100 && enums.len() > 15);
}
