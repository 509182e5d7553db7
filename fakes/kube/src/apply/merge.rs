//! Merging what somebody applies into an object, and taking out what he no longer states.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::{FieldSet, Step, step_of};
use crate::schema::{ListType, Schema};

/// The object with the applied fields in it.
pub(super) fn merge(schema: Option<&Schema>, live: &Value, applied: &Value) -> Value {
    match (live, applied) {
        (Value::Object(old), Value::Object(new)) if !schema.is_some_and(|s| s.atomic) => {
            let mut map = old.clone();
            for (name, value) in new {
                let inner = schema.and_then(|s| s.member(name));
                let merged = match old.get(name) {
                    Some(old) => merge(inner, old, value),
                    None => value.clone(),
                };
                map.insert(name.clone(), merged);
            }
            Value::Object(map)
        }
        (Value::Array(old), Value::Array(new)) => match schema {
            Some(schema) if schema.list != ListType::Atomic => Value::Array(merge_lists(schema, old, new)),
            _ => applied.clone(),
        },
        _ => applied.clone(),
    }
}

/// Items of both: the applied ones in their order, the others where they stood in relation to them.
fn merge_lists(schema: &Schema, old: &[Value], new: &[Value]) -> Vec<Value> {
    let inner = schema.items.as_deref();
    let step = |item: &Value| step_of(&schema.list, inner, item);
    let theirs: BTreeMap<Step, &Value> = old.iter().map(|i| (step(i), i)).collect();
    let stated: Vec<Step> = new.iter().map(step).collect();
    let mut out = Vec::new();
    let mut rest = old.iter().filter(|i| !stated.contains(&step(i))).peekable();
    let place = |item: &Value| old.iter().position(|o| std::ptr::eq(o, item));
    for (item, name) in new.iter().zip(&stated) {
        if let Some(known) = theirs.get(name) {
            let at = place(known);
            while let Some(other) = rest.next_if(|other| place(other) < at) {
                out.push(other.clone());
            }
            out.push(merge(inner, known, item));
        } else {
            out.push(item.clone());
        }
    }
    out.extend(rest.cloned());
    out
}

/// Takes those fields out, each with what is below it.
pub(super) fn remove(schema: Option<&Schema>, value: &mut Value, gone: &FieldSet) {
    match value {
        Value::Object(map) => remove_members(schema, map, gone),
        Value::Array(items) => {
            let Some(schema) = schema.filter(|s| s.list != ListType::Atomic) else { return };
            let inner = schema.items.as_deref();
            let name = |item: &Value| gone.below.get(&step_of(&schema.list, inner, item));
            items.retain(|item| !name(item).is_some_and(|g| g.own));
            for item in items.iter_mut() {
                if let Some(gone) = gone.below.get(&step_of(&schema.list, inner, item)) {
                    remove(inner, item, gone);
                }
            }
        }
        _ => {}
    }
}

fn remove_members(schema: Option<&Schema>, map: &mut Map<String, Value>, gone: &FieldSet) {
    for (step, gone) in &gone.below {
        let Step::Member(name) = step else { continue };
        if gone.own {
            map.shift_remove(name);
        } else if let Some(member) = map.get_mut(name) {
            remove(schema.and_then(|s| s.member(name)), member, gone);
        }
    }
}
