//! The wire types are those of the API's schema: every member, its kind, whether it must be there, its words and limits.
//! The schema's facts are a table of our own; where `VLAB_REFERENCE` names the schema itself, the table is compared with it.

#![expect(clippy::unwrap_used, reason = "tests: a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use vlab_api::registry::{ENUMS, OBJECTS};
use vlab_api::spec::{FieldKind, FieldLimit, FieldSpec, StructSpec};

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

const TABLE: &str = "api-schema.yaml";
const HEADING: &str = "The definitions of the real service's API, reduced from its schema: a section each. A member's row is what it holds\n\
                       (a scalar, another definition, [a list of it], {map: of it} or {words: [...]}), or `{is: that, ...}` with what else is known.";

/// A definition of the schema.
#[derive(Clone, Debug, PartialEq)]
enum Definition {
    Words(Vec<String>),
    Object(BTreeMap<String, Member>),
    /// Neither: a list, a map, plain text.
    Other,
}

#[derive(Clone, Debug, PartialEq)]
struct Member {
    shape: Shape,
    required: bool,
    limits: Vec<FieldLimit>,
}

type Definitions = BTreeMap<String, Definition>;

/// The table of facts.
fn definitions() -> Definitions {
    let facts = vlab_facts::table(TABLE);
    let definition = |value: &Value| match value {
        Value::Object(members)
            if members.contains_key("words") && members["words"].is_array() && members.len() == 1 =>
        {
            Definition::Words(texts(&members["words"]))
        }
        Value::Object(members) => {
            Definition::Object(members.iter().map(|(name, value)| (name.clone(), Member::read(value))).collect())
        }
        _ => Definition::Other,
    };
    facts.as_object().unwrap().iter().map(|(name, value)| (name.clone(), definition(value))).collect()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|w| w.as_str().unwrap().to_owned()).collect()
}

const SCALARS: [&str; 7] = ["string", "uuid", "date-time", "integer", "number", "boolean", "any"];

impl Member {
    fn read(value: &Value) -> Self {
        let (is, more) = match value.get("is") {
            Some(is) => (is, value),
            None => (value, &Value::Null),
        };
        let limit = |name: &str| more[name].as_i64();
        let limits = [
            limit("max_length").map(|n| FieldLimit::MaxLength(n as usize)),
            limit("min_length").map(|n| FieldLimit::MinLength(n as usize)),
            limit("minimum").map(FieldLimit::Minimum),
            limit("maximum").map(FieldLimit::Maximum),
        ];
        Self {
            shape: Shape::read(is),
            required: more["required"] == true,
            limits: limits.into_iter().flatten().collect(),
        }
    }

    fn row(&self) -> Value {
        let is = self.shape.row();
        let mut row = serde_json::Map::new();
        if self.required {
            row.insert("required".into(), true.into());
        }
        for limit in &self.limits {
            let (name, value) = match limit {
                FieldLimit::MaxLength(n) => ("max_length", Value::from(*n)),
                FieldLimit::MinLength(n) => ("min_length", Value::from(*n)),
                FieldLimit::Minimum(n) => ("minimum", Value::from(*n)),
                FieldLimit::Maximum(n) => ("maximum", Value::from(*n)),
                other => panic!("a limit that the table has no word for: {other:?}"),
            };
            row.insert(name.into(), value);
        }
        if row.is_empty() {
            return is;
        }
        row.insert("is".into(), is);
        row.into()
    }
}

impl Shape {
    fn read(value: &Value) -> Self {
        match value {
            Value::String(word) => match SCALARS.iter().find(|s| *s == word) {
                Some(scalar) => Shape::Scalar(scalar),
                None => Shape::Object(word.clone()),
            },
            Value::Array(items) => Shape::Array(Box::new(Shape::read(&items[0]))),
            other => match (other.get("words"), other.get("map")) {
                (Some(words), _) => Shape::Words(texts(words)),
                (None, Some(items)) => Shape::Map(Box::new(Shape::read(items))),
                (None, None) => panic!("no shape: {other}"),
            },
        }
    }

    fn row(&self) -> Value {
        match self {
            Shape::Scalar(word) => (*word).into(),
            Shape::Object(name) => name.as_str().into(),
            Shape::Words(words) => serde_json::json!({ "words": words }),
            Shape::Array(items) => serde_json::json!([items.row()]),
            Shape::Map(items) => serde_json::json!({ "map": items.row() }),
        }
    }
}

/// Reduces the schema to the table.
fn reduced(all: &BTreeMap<String, Value>) -> Value {
    let inline = INLINE.iter().map(|(name, _)| (*name).to_owned());
    let row = |name: String| {
        let (schema, at) = find(all, &name).unwrap_or_else(|| panic!("no definition {name}"));
        let members = members(all, &schema, &at);
        let row = match words(&schema) {
            Some(words) => serde_json::json!({ "words": words }),
            None if members.is_empty() => "other".into(),
            None => members
                .into_iter()
                .map(|(name, member, required, at)| {
                    let member = Member { shape: shape(all, &member, &at), required, limits: limits(&member) };
                    (name, member.row())
                })
                .collect::<serde_json::Map<_, _>>()
                .into(),
        };
        (name, row)
    };
    Value::Object(all.keys().cloned().chain(inline).map(row).collect())
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

fn shape_of_kind(kind: &FieldKind) -> Shape {
    match kind {
        FieldKind::String => Shape::Scalar("string"),
        FieldKind::Uuid => Shape::Scalar("uuid"),
        FieldKind::DateTime => Shape::Scalar("date-time"),
        FieldKind::Integer => Shape::Scalar("integer"),
        FieldKind::Number => Shape::Scalar("number"),
        FieldKind::Bool => Shape::Scalar("boolean"),
        FieldKind::Any => Shape::Scalar("any"),
        FieldKind::Enum(words) => Shape::Words(words.iter().map(|w| (*w).to_owned()).collect()),
        FieldKind::Object(spec) => Shape::Object(spec.name.to_owned()),
        FieldKind::Array(items) => Shape::Array(Box::new(shape_of_kind(items))),
        FieldKind::Map(items) => Shape::Map(Box::new(shape_of_kind(items))),
    }
}

/// What our member holds: text with a list of words is words.
fn shape_of_field(field: &FieldSpec) -> Shape {
    let words = field.checks.iter().find_map(|c| match c {
        FieldLimit::OneOf(words) => Some(words.iter().map(|w| (*w).to_owned()).collect()),
        _ => None,
    });
    match (field.kind, words) {
        (FieldKind::String, Some(words)) => Shape::Words(words),
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

fn limits(schema: &Value) -> Vec<FieldLimit> {
    let size = |name: &str| schema.get(name).and_then(Value::as_u64).map(|n| n as usize);
    let number = |name: &str| schema.get(name).and_then(Value::as_f64).map(|n| n as i64);
    [
        size("maxLength").map(FieldLimit::MaxLength),
        size("minLength").map(FieldLimit::MinLength),
        number("minimum").map(FieldLimit::Minimum),
        number("maximum").map(FieldLimit::Maximum),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn compare(all: &Definitions, spec: &StructSpec, faults: &mut Vec<String>) {
    let Some(Definition::Object(theirs)) = all.get(spec.name) else {
        faults.push(format!("{}: no such definition", spec.name));
        return;
    };
    for field in spec.fields {
        if !theirs.contains_key(field.name) {
            faults.push(format!("{}.{}: the schema has no such member", spec.name, field.name));
        }
    }
    for (name, member) in theirs {
        let place = format!("{}.{name}", spec.name);
        let Some(field) = spec.field(name) else {
            faults.push(format!("{place}: missing here"));
            continue;
        };
        if field.required != member.required {
            let (theirs, ours) = (member.required, field.required);
            faults.push(format!("{place}: required is {theirs} in the schema and {ours} here"));
        }
        let (theirs, ours) = (&member.shape, shape_of_field(field));
        let excused = OTHER_KIND.iter().any(|(t, m, _)| *t == spec.name && *m == name);
        if (*theirs == ours) == excused {
            faults.push(format!("{place}: {theirs:?} in the schema and {ours:?} here (excused: {excused})"));
        }
        let mut ours: Vec<FieldLimit> =
            field.checks.iter().copied().filter(|c| !matches!(c, FieldLimit::OneOf(_))).collect();
        let mut theirs = member.limits.clone();
        let order = |c: &FieldLimit| format!("{c:?}");
        ours.sort_by_key(order);
        theirs.sort_by_key(order);
        if theirs != ours {
            faults.push(format!("{place}: limits are {theirs:?} in the schema and {ours:?} here"));
        }
    }
}

#[test]
fn every_object_is_the_schemas() {
    let all = definitions();
    let mut faults = Vec::new();
    for entry in OBJECTS {
        compare(&all, entry.spec, &mut faults);
    }
    assert!(faults.is_empty(), "{} differences:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_list_of_words_is_the_schemas() {
    let all = definitions();
    for entry in ENUMS {
        let words = entry.words.iter().map(|w| (*w).to_owned()).collect();
        assert_eq!(all.get(entry.name), Some(&Definition::Words(words)), "{}", entry.name);
    }
}

#[test]
fn every_definition_is_a_type_or_is_left_out_for_a_reason() {
    let all = definitions();
    let inline = |name: &str| INLINE.iter().any(|(i, _)| *i == name);
    let ours: BTreeSet<&str> = OBJECTS.iter().map(|e| e.spec.name).chain(ENUMS.iter().map(|e| e.name)).collect();
    let left_out: Vec<&str> = LEFT_OUT.iter().flat_map(|(_, names)| *names).copied().collect();
    let theirs: BTreeSet<&str> = all.keys().map(String::as_str).filter(|name| !inline(name)).collect();
    let mut accounted: BTreeSet<&str> = ours.iter().filter(|n| !inline(n)).copied().collect();
    for name in &left_out {
        assert!(accounted.insert(name), "{name} is both left out and a type, or listed twice");
    }
    assert_eq!(theirs.difference(&accounted).collect::<Vec<_>>(), Vec::<&&str>::new(), "neither a type nor left out");
    assert_eq!(accounted.difference(&theirs).collect::<Vec<_>>(), Vec::<&&str>::new(), "not in the schema");
}

#[test]
fn the_table_of_facts_is_the_schemas() {
    let Some(text) = vlab_facts::source("swagger.yaml") else { return };
    let whole: Value = serde_yaml::from_str(&text).unwrap();
    let all: BTreeMap<String, Value> = serde_json::from_value(whole["definitions"].clone()).unwrap();
    vlab_facts::agrees(TABLE, HEADING, &reduced(&all));
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
