//! Removing what a schema does not know, and filling in what it gives a default.

use serde_json::Value;

use super::{At, Schema, Type, object};

/// Removes unknown members; `unknown` gets their paths.
pub(crate) fn prune(schema: &Schema, value: &mut Value, at: At<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let reserved = schema.embedded && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
            match schema.member(name) {
                Some(inner) => prune(inner, value, At::Member(&at, name), unknown),
                None if schema.preserve || schema.int_or_string || reserved => {}
                None => {
                    unknown.push(At::Member(&at, name).into());
                    return false;
                }
            }
            true
        }),
        Value::Array(items) => {
            if let Some(inner) = &schema.items {
                for (n, item) in items.iter_mut().enumerate() {
                    prune(inner, item, At::Item(&at, n), unknown);
                }
            }
        }
        _ => {}
    }
}

/// Drops nulls where null is not allowed and fills in defaults.
pub(crate) fn fill_defaults(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(_) => {
            let Some(map) = object(value) else { return };
            let dropped: Vec<String> = map
                .iter()
                .filter(|(name, value)| {
                    value.is_null() && schema.properties.get(*name).is_some_and(|inner| !inner.nullable && typed(inner))
                })
                .map(|(name, _)| name.clone())
                .collect();
            for name in dropped {
                map.shift_remove(&name);
            }
            for (name, inner) in &schema.properties {
                if let Some(default) = &inner.default
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, member) in map.iter_mut() {
                if let Some(inner) = schema.member(name) {
                    fill_defaults(inner, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &schema.items {
                for item in items {
                    fill_defaults(inner, item);
                }
            }
        }
        _ => {}
    }
}

/// Untyped members may be null.
fn typed(schema: &Schema) -> bool {
    schema.kind.is_some() || schema.int_or_string
}

/// Does this value have that type?
pub(super) fn fits(kind: Type, value: &Value) -> bool {
    match kind {
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Boolean => value.is_boolean(),
        Type::Number => value.is_number(),
        Type::Integer => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0),
    }
}
