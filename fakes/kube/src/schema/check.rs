//! Does a value fulfil its schema? The texts are Kubernetes' own, because people and clients know them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

use regex::Regex;
use serde_json::{Map, Value};

use super::prune::fits;
use super::{At, ListType, Schema, format, read};
use crate::failure::Cause;

/// What a value must fulfil beside its type.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    options: Vec<Value>,
    pattern: Option<(String, Arc<Regex>)>,
    format: Option<String>,
    minimum: Option<(f64, bool)>,
    maximum: Option<(f64, bool)>,
    multiple_of: Option<f64>,
    length: (Option<u64>, Option<u64>),
    items: (Option<u64>, Option<u64>),
    members: (Option<u64>, Option<u64>),
    unique: bool,
    all_of: Vec<Arc<Schema>>,
    any_of: Vec<Arc<Schema>>,
    one_of: Vec<Arc<Schema>>,
    not: Option<Arc<Schema>>,
    /// `x-kubernetes-validations`.
    pub rules: Vec<Rule>,
}

/// A rule in CEL.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The expression over `self` and `oldSelf`.
    pub rule: String,
    /// What is said when it is false.
    pub message: String,
    /// An expression for the message.
    pub message_expression: String,
    /// `FieldValueInvalid`, `FieldValueForbidden`, …
    pub reason: String,
    /// The field that is blamed, relative to this one.
    pub field: String,
    /// The expression, compiled by who needs it first; why it cannot be.
    pub program: Arc<OnceLock<Result<cel::Program, String>>>,
}

const NAMES: [&str; 22] = [
    "enum",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "uniqueItems",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "x-kubernetes-validations",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
];

/// A compiled pattern; definitions repeat the same few (a quantity, a time) dozens of times, and one takes up to 100 kB.
fn regex(text: &str) -> Result<Arc<Regex>, regex::Error> {
    static COMPILED: LazyLock<Mutex<HashMap<String, Weak<Regex>>>> = LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = compiled.get(text).and_then(Weak::upgrade) {
        return Ok(known);
    }
    let made = Arc::new(Regex::new(text)?);
    compiled.insert(text.to_owned(), Arc::downgrade(&made));
    Ok(made)
}

impl Checks {
    pub(super) fn read(object: &Map<String, Value>, path: &str, depth: usize) -> Result<Option<Self>, String> {
        if !NAMES.iter().any(|name| object.contains_key(*name)) {
            return Ok(None);
        }
        let whole = |name: &str| object.get(name).and_then(Value::as_u64);
        let number = |name: &str| object.get(name).and_then(Value::as_f64);
        let flag = |name: &str| object.get(name).and_then(Value::as_bool).unwrap_or(false);
        let list = |name: &str| object.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let all = |name: &str| -> Result<Vec<Arc<Schema>>, String> {
            list(name).iter().map(|s| read(s, &format!("{path}.{name}"), depth + 1).map(Arc::new)).collect()
        };
        let pattern = match object.get("pattern").and_then(Value::as_str) {
            Some(text) => Some((text.to_owned(), regex(text).map_err(|e| format!("{path}.pattern: {e}"))?)),
            None => None,
        };
        let word = |rule: &Value, name: &str| rule[name].as_str().unwrap_or_default().to_owned();
        let rules = list("x-kubernetes-validations")
            .iter()
            .map(|rule| Rule {
                rule: word(rule, "rule"),
                message: word(rule, "message"),
                message_expression: word(rule, "messageExpression"),
                reason: word(rule, "reason"),
                field: word(rule, "fieldPath"),
                program: Arc::default(),
            })
            .collect();
        Ok(Some(Self {
            options: list("enum").to_vec(),
            pattern,
            format: object.get("format").and_then(Value::as_str).map(str::to_owned),
            minimum: number("minimum").map(|n| (n, flag("exclusiveMinimum"))),
            maximum: number("maximum").map(|n| (n, flag("exclusiveMaximum"))),
            multiple_of: number("multipleOf"),
            length: (whole("minLength"), whole("maxLength")),
            items: (whole("minItems"), whole("maxItems")),
            members: (whole("minProperties"), whole("maxProperties")),
            unique: flag("uniqueItems"),
            all_of: all("allOf")?,
            any_of: all("anyOf")?,
            one_of: all("oneOf")?,
            not: object.get("not").map(|s| read(s, path, depth + 1).map(Arc::new)).transpose()?,
            rules,
        }))
    }
}

/// What JSON calls the type of a value.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Looks through a value; `causes` gets what is wrong.
pub(crate) fn check(schema: &Schema, value: &Value, at: At<'_>, causes: &mut Vec<Cause>) {
    if value.is_null() && (schema.nullable || schema.kind.is_none()) {
        return;
    }
    if !types(schema, value, at, causes) {
        if let Some(checks) = &schema.checks {
            options(checks, value, at, causes);
        }
        return;
    }
    match value {
        Value::Object(map) => {
            for name in &schema.required {
                if !map.contains_key(name) {
                    causes.push(Cause::required(At::Member(&at, name), ""));
                }
            }
            for (name, member) in map {
                if let Some(inner) = schema.member(name) {
                    check(inner, member, At::Member(&at, name), causes);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &schema.items {
                for (n, item) in items.iter().enumerate() {
                    check(inner, item, At::Item(&at, n), causes);
                }
            }
            unique(schema, items, at, causes);
        }
        _ => {}
    }
    if let Some(checks) = &schema.checks {
        limits(checks, value, at, causes);
        combined(checks, value, at, causes);
    }
}

/// Is the type right?
fn types(schema: &Schema, value: &Value, at: At<'_>, causes: &mut Vec<Cause>) -> bool {
    let wanted = if schema.int_or_string {
        if value.is_i64() || value.is_u64() || value.is_string() {
            return true;
        }
        "integer,string"
    } else {
        match schema.kind {
            Some(kind) if !fits(kind, value) => kind.as_str(),
            _ => return true,
        }
    };
    let found = Value::from(kind_of(value));
    causes.push(Cause::mistyped(at, &found, &format!("{at} in body must be of type {wanted}: {found}")));
    false
}

/// Items of sets and maps must differ.
fn unique(schema: &Schema, items: &[Value], at: At<'_>, causes: &mut Vec<Cause>) {
    match &schema.list {
        ListType::Atomic => {}
        ListType::Set => {
            for (n, item) in items.iter().enumerate() {
                if items[..n].contains(item) {
                    causes.push(Cause::duplicate(At::Item(&at, n), item));
                }
            }
        }
        ListType::Map(keys) => {
            let named = |item: &Value| -> Map<String, Value> {
                keys.iter().filter_map(|k| item.get(k).map(|v| (k.clone(), v.clone()))).collect()
            };
            let names: Vec<_> = items.iter().map(named).collect();
            for (n, name) in names.iter().enumerate() {
                if names[..n].contains(name) {
                    causes.push(Cause::duplicate(At::Item(&at, n), &Value::Object(name.clone())));
                }
            }
        }
    }
}

fn number(n: f64) -> String {
    if n.fract() == 0.0 { format!("{n:.0}") } else { n.to_string() }
}

fn limits(checks: &Checks, value: &Value, at: At<'_>, causes: &mut Vec<Cause>) {
    let mut invalid = |detail: String| causes.push(Cause::invalid(at, value, &format!("{at} in body {detail}")));
    if let Some(n) = value.as_f64() {
        match checks.maximum {
            Some((most, false)) if n > most => invalid(format!("should be less than or equal to {}", number(most))),
            Some((most, true)) if n >= most => invalid(format!("should be less than {}", number(most))),
            _ => {}
        }
        match checks.minimum {
            Some((least, false)) if n < least => {
                invalid(format!("should be greater than or equal to {}", number(least)))
            }
            Some((least, true)) if n <= least => invalid(format!("should be greater than {}", number(least))),
            _ => {}
        }
        if let Some(step) = checks.multiple_of
            && (n / step).fract() != 0.0
        {
            invalid(format!("should be a multiple of {}", number(step)));
        }
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        let long = checks.length.1.filter(|most| length > *most);
        let short = checks.length.0.filter(|least| length < *least);
        if let Some(least) = short {
            invalid(format!("should be at least {least} chars long"));
        }
        // A text of the wrong length is looked at no further.
        if let (None, None, Some((pattern, regex))) = (long, short, &checks.pattern)
            && !regex.is_match(text)
        {
            invalid(format!("should match '{pattern}'"));
        }
        if let Some(wanted) = &checks.format
            && !format::fits(wanted, text)
        {
            let detail = format!("{at} in body must be of type {wanted}: {value}");
            causes.push(Cause::mistyped(at, value, &detail));
        }
        if let Some(most) = long {
            causes.push(Cause::too_long(at, most));
        }
    }
    sizes(checks, value, at, causes);
    options(checks, value, at, causes);
}

fn options(checks: &Checks, value: &Value, at: At<'_>, causes: &mut Vec<Cause>) {
    if !checks.options.is_empty() && !checks.options.contains(value) {
        let allowed: Vec<String> =
            checks.options.iter().map(|o| o.as_str().map_or_else(|| o.to_string(), str::to_owned)).collect();
        causes.push(Cause::unsupported(at, value, &allowed));
    }
}

fn sizes(checks: &Checks, value: &Value, at: At<'_>, causes: &mut Vec<Cause>) {
    let (count, (least, most), what) = match value {
        Value::Array(items) => (items.len(), checks.items, "items"),
        Value::Object(map) => (map.len(), checks.members, "properties"),
        _ => return,
    };
    if let Some(least) = least.filter(|least| (count as u64) < *least) {
        causes.push(Cause::invalid(
            at,
            &Value::from(count),
            &format!("{at} in body should have at least {least} {what}"),
        ));
    }
    if let Some(most) = most.filter(|most| count as u64 > *most) {
        causes.push(Cause::too_many(at, count, most));
    }
    if let (true, Value::Array(items)) = (checks.unique, value)
        && items.iter().enumerate().any(|(n, item)| items[..n].contains(item))
    {
        causes.push(Cause::invalid(at, value, &format!("{at} in body shouldn't contain duplicates")));
    }
}

fn combined(checks: &Checks, value: &Value, at: At<'_>, causes: &mut Vec<Cause>) {
    let fulfils = |schema: &Schema| {
        let mut inner = Vec::new();
        check(schema, value, at, &mut inner);
        inner
    };
    for schema in &checks.all_of {
        causes.extend(fulfils(schema));
    }
    let shown = |text: &str| Cause::invalid(at, &Value::from(""), &format!("{:?} {text}", at.to_string()));
    if !checks.any_of.is_empty() && !checks.any_of.iter().any(|s| fulfils(s).is_empty()) {
        causes.push(shown("must validate at least one schema (anyOf)"));
        causes.extend(checks.any_of.iter().map(|s| fulfils(s)).min_by_key(Vec::len).unwrap_or_default());
    }
    if !checks.one_of.is_empty() {
        let valid = checks.one_of.iter().filter(|s| fulfils(s).is_empty()).count();
        if valid != 1 {
            let found = if valid == 0 { "none".to_owned() } else { valid.to_string() };
            causes.push(shown(&format!("must validate one and only one schema (oneOf). Found {found} valid")));
        }
    }
    if let Some(not) = &checks.not
        && fulfils(not).is_empty()
    {
        causes.push(shown("must not validate the schema (not)"));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::schema::{fill_defaults, prune};

    fn schema() -> Schema {
        Schema::read(&json!({ "type": "object", "properties": { "spec": { "type": "object", "required": ["name"], "properties": {
            "name": { "type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]*$" },
            "count": { "type": "integer", "minimum": 0, "maximum": 5, "default": 1 },
            "mode": { "type": "string", "enum": ["a", "b"] },
            "ports": { "type": "array", "maxItems": 2, "items": { "type": "object", "properties": { "port": { "type": "integer" } } },
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"] },
            "size": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
            "since": { "type": "string", "format": "date-time", "nullable": true },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "words": { "type": "object", "additionalProperties": { "type": "string" } },
        } } } }))
        .unwrap()
    }

    #[rstest]
    #[case(json!({}), "spec.name: Required value")]
    #[case(json!({ "name": "abc", "count": 9 }), "spec.count: Invalid value: 9: spec.count in body should be less than or equal to 5")]
    #[case(json!({ "name": "abc", "count": -1 }), "spec.count: Invalid value: -1: spec.count in body should be greater than or equal to 0")]
    #[case(json!({ "name": "a" }), "spec.name: Invalid value: \"a\": spec.name in body should be at least 2 chars long")]
    #[case(json!({ "name": "abcde" }), "spec.name: Too long: may not be more than 4 bytes")]
    #[case(json!({ "name": "A2" }), "spec.name: Invalid value: \"A2\": spec.name in body should match '^[a-z]*$'")]
    #[case(json!({ "name": 5 }), "spec.name: Invalid value: \"integer\": spec.name in body must be of type string: \"integer\"")]
    #[case(json!({ "name": "abc", "mode": "c" }), "spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\"")]
    #[case(json!({ "name": "abc", "ports": [{}, { "port": 1 }, { "port": 2 }] }), "spec.ports: Too many: 3: must have at most 2 items")]
    #[case(json!({ "name": "abc", "ports": [{ "port": 1 }, { "port": 1 }] }), "spec.ports[1]: Duplicate value: {\"port\":1}")]
    #[case(json!({ "name": "abc", "size": true }), "spec.size: Invalid value: \"boolean\": spec.size in body must be of type integer,string: \"boolean\"")]
    #[case(json!({ "name": "abc", "since": "x" }), "spec.since: Invalid value: \"x\": spec.since in body must be of type date-time: \"x\"")]
    fn what_is_wrong(#[case] spec: Value, #[case] text: &str) {
        let mut causes = Vec::new();
        check(&schema(), &json!({ "spec": spec }), At::Root(""), &mut causes);
        let texts: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        assert_eq!(texts, [text]);
    }

    #[test]
    fn pruning_and_defaults() {
        let mut value = json!({ "spec": { "name": null, "more": 1, "since": null, "free": { "x": 1 }, "words": { "a": "b" }, "ports": [{ "port": 1, "q": 2 }] } });
        let mut unknown = Vec::new();
        prune(&schema(), &mut value, At::Root(""), &mut unknown);
        fill_defaults(&schema(), &mut value);
        assert_eq!(unknown, ["spec.more", "spec.ports[0].q"]);
        assert_eq!(
            value,
            json!({ "spec": { "since": null, "free": { "x": 1 }, "words": { "a": "b" }, "ports": [{ "port": 1 }], "count": 1 } })
        );
    }
}
