//! Merging what somebody applies into an object, and taking out what he no longer states.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::{FieldSet, Step, step_of};
use crate::schema::{ListType, Schema};

/// The object with the applied fields in it.
pub(super) fn merge(schema: Option<&Schema>, live: &Value, applied: &Value) -> Value {
    match (live, applied) {
        (Value::Object(old), Value::Object(new)) if !schema.is_some_and(|s| s.atomic) => {
            let mut map = old.clone();
            for (name, value) in new {
                let inner = schema.and_then(|s| s.part(name));
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

/// Items of both in the order of the real server: those that were there keep their places, what is applied keeps its own order.
/// Source: structured-merge-diff, merge of lists.
fn merge_lists(schema: &Schema, old: &[Value], new: &[Value]) -> Vec<Value> {
    let inner = schema.items.as_deref();
    let steps = |items: &[Value]| items.iter().map(|item| step_of(&schema.list, inner, item)).collect::<Vec<Step>>();
    let (theirs, stated) = (steps(old), steps(new));
    let known: BTreeMap<&Step, &Value> = theirs.iter().zip(old).collect();
    let (mut l, mut r, mut done) = (0, 0, BTreeSet::new());
    let mut out = Vec::new();
    while l < old.len() || r < new.len() {
        if l < old.len() && !stated.contains(&theirs[l]) {
            out.push(old[l].clone());
            l += 1;
        } else if l < old.len() && done.contains(&theirs[l]) {
            l += 1;
        } else if let Some(item) = new.get(r) {
            out.push(known.get(&stated[r]).map_or_else(|| item.clone(), |old| merge(inner, old, item)));
            done.insert(&stated[r]);
            r += 1;
        } else {
            l += 1;
        }
    }
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
            remove(schema.and_then(|s| s.part(name)), member, gone);
        }
    }
}
