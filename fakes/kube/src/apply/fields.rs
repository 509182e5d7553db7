//! Sets of fields, as `metadata.managedFields` writes them (`FieldsV1`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value, json};

use crate::schema::{ListType, Schema};

/// Members of an object that are the server's, or that are looked at by themselves.
const SERVERS: &[&str] = &["apiVersion", "kind", "metadata"];

/// Members of `metadata` that the server sets itself: nobody owns them.
const NOBODYS: &[&str] = &[
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "generation",
    "managedFields",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
];

/// `metadata` as far as fields are owned; nothing when there is nothing of that kind in it.
fn owned_metadata(object: &Value) -> Option<Value> {
    match object.get("metadata")? {
        Value::Object(meta) => {
            let kept = meta.iter().filter(|(name, _)| !NOBODYS.contains(&name.as_str()));
            let kept: Map<String, Value> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        other => Some(other.clone()),
    }
}

/// The object as far as fields are owned: without what the server sets itself.
pub(super) fn owned(object: &Value) -> Value {
    let Some(map) = object.as_object() else { return object.clone() };
    let rest = map.iter().filter(|(name, _)| !SERVERS.contains(&name.as_str()));
    let mut owned: Map<String, Value> = rest.map(|(name, value)| (name.clone(), value.clone())).collect();
    owned.extend(owned_metadata(object).map(|meta| ("metadata".to_owned(), meta)));
    Value::Object(owned)
}

/// One step of the path of a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A member.
    Member(String),
    /// An item of a list that has keys: their names and values as JSON, sorted.
    Item(String),
    /// An item of a set: its value as JSON.
    Value(String),
}

impl Step {
    fn written(&self) -> String {
        match self {
            Step::Member(name) => format!("f:{name}"),
            Step::Item(keys) => format!("k:{keys}"),
            Step::Value(value) => format!("v:{value}"),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Step::Member(rest.to_owned())),
            "k" => Some(Step::Item(rest.to_owned())),
            "v" => Some(Step::Value(rest.to_owned())),
            _ => None,
        }
    }
}

/// `.spec`, `[name="x"]`, `["x"]`, as conflicts name fields.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Member(name) => write!(f, ".{name}"),
            Step::Value(value) => write!(f, "[={value}]"),
            Step::Item(keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let all: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "[{}]", all.join(","))
            }
        }
    }
}

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// Is the field itself in it, beside what is below?
    pub own: bool,
    /// What is below.
    pub below: BTreeMap<Step, FieldSet>,
}

impl FieldSet {
    /// Nothing in it?
    pub(crate) fn is_empty(&self) -> bool {
        !self.own && self.below.values().all(FieldSet::is_empty)
    }

    /// Adds the field at that path.
    pub(crate) fn insert(&mut self, path: &[Step]) {
        let mut at = self;
        for step in path {
            at = at.below.entry(step.clone()).or_default();
        }
        at.own = true;
    }

    /// In one of them.
    pub(crate) fn union(&self, other: &FieldSet) -> FieldSet {
        let mut all = self.clone();
        all.own |= other.own;
        for (step, theirs) in &other.below {
            let merged = match all.below.get(step) {
                Some(ours) => ours.union(theirs),
                None => theirs.clone(),
            };
            all.below.insert(step.clone(), merged);
        }
        all
    }

    /// In this one and not in the other.
    pub(crate) fn minus(&self, other: &FieldSet) -> FieldSet {
        self.combine(other, |own, theirs| own && !theirs, true)
    }

    /// In both.
    pub(crate) fn both(&self, other: &FieldSet) -> FieldSet {
        self.combine(other, |own, theirs| own && theirs, false)
    }

    fn combine(&self, other: &FieldSet, own: impl Fn(bool, bool) -> bool + Copy, keep: bool) -> FieldSet {
        let below = self.below.iter().filter_map(|(step, ours)| {
            let left = match other.below.get(step) {
                Some(theirs) => ours.combine(theirs, own, keep),
                None if keep => ours.clone(),
                None => return None,
            };
            (!left.is_empty()).then(|| (step.clone(), left))
        });
        FieldSet { own: own(self.own, other.own), below: below.collect() }
    }

    /// Is all of it in that set, given as `fieldsV1`?
    pub(crate) fn is_within(&self, written: &Value) -> bool {
        let Some(map) = written.as_object() else { return false };
        (!self.own || map.is_empty() || map.contains_key("."))
            && self
                .below
                .iter()
                .filter(|(_, set)| !set.is_empty())
                .all(|(step, set)| map.get(&step.written()).is_some_and(|inner| set.is_within(inner)))
    }

    /// Is anything of it in that set, given as `fieldsV1`?
    pub(crate) fn meets(&self, written: &Value) -> bool {
        let Some(map) = written.as_object() else { return false };
        (self.own && (map.is_empty() || map.contains_key(".")))
            || self.below.iter().any(|(step, set)| map.get(&step.written()).is_some_and(|inner| set.meets(inner)))
    }

    /// The same with every member on the way to something in it.
    pub(crate) fn with_parents(&self) -> FieldSet {
        let mut below: BTreeMap<Step, FieldSet> = BTreeMap::new();
        for (step, set) in &self.below {
            let mut set = set.with_parents();
            set.own |= matches!(step, Step::Member(_)) && !set.below.is_empty();
            below.insert(step.clone(), set);
        }
        FieldSet { own: self.own, below }
    }

    /// The paths of all fields in it.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.collect(&mut String::new(), &mut all);
        all
    }

    fn collect(&self, path: &mut String, all: &mut Vec<String>) {
        if self.own {
            all.push(path.clone());
        }
        for (step, set) in &self.below {
            let length = path.len();
            path.push_str(&step.to_string());
            set.collect(path, all);
            path.truncate(length);
        }
    }

    /// As `fieldsV1`.
    pub(crate) fn write(&self) -> Value {
        let mut map = Map::new();
        if self.own && !self.below.is_empty() {
            map.insert(".".into(), json!({}));
        }
        for (step, set) in &self.below {
            if !set.is_empty() {
                map.insert(step.written(), set.write());
            }
        }
        Value::Object(map)
    }

    /// From `fieldsV1`.
    pub(crate) fn read(value: &Value) -> FieldSet {
        let Some(map) = value.as_object() else { return FieldSet::default() };
        let mut set = FieldSet { own: map.is_empty() || map.contains_key("."), below: BTreeMap::new() };
        for (text, inner) in map {
            if let Some(step) = Step::read(text) {
                set.below.insert(step, FieldSet::read(inner));
            }
        }
        set
    }

    /// The root of `fieldsV1`: `{}` is empty, not a field without a name.
    pub(crate) fn read_root(value: &Value) -> FieldSet {
        FieldSet { own: false, ..FieldSet::read(value) }
    }

    /// A value and every field below it: what somebody owns who put it where nothing was.
    pub(crate) fn everything(schema: Option<&Schema>, value: &Value) -> FieldSet {
        let mut set = FieldSet::of(schema, value);
        set.own_all();
        set
    }

    fn own_all(&mut self) {
        self.own = true;
        for set in self.below.values_mut() {
            set.own_all();
        }
    }

    /// The fields of a value: what somebody who states it owns.
    pub(crate) fn of(schema: Option<&Schema>, value: &Value) -> FieldSet {
        let mut set = FieldSet::default();
        match value {
            Value::Object(map) if !schema.is_some_and(|s| s.atomic) => {
                for (name, member) in map {
                    let inner = schema.and_then(|s| s.part(name));
                    let mut below = FieldSet::of(inner, member);
                    let metadata = schema.is_some_and(|s| s.embedded) && name == "metadata";
                    let declared = metadata || schema.is_some_and(|s| s.properties.contains_key(name));
                    below.own |= !declared || member.is_null() || member.as_object().is_some_and(Map::is_empty);
                    set.below.insert(Step::Member(name.clone()), below);
                }
            }
            Value::Array(items) => match schema.map(|s| &s.list) {
                Some(list @ (ListType::Set | ListType::Map(_))) => {
                    let inner = schema.and_then(|s| s.items.as_deref());
                    for item in items {
                        let mut below = FieldSet::of(inner, item);
                        below.own = true;
                        set.below.insert(step_of(list, inner, item), below);
                    }
                }
                _ => set.own = true,
            },
            _ => set.own = true,
        }
        set
    }
}

/// How an item of a list that is merged is named.
pub(super) fn step_of(list: &ListType, inner: Option<&Schema>, item: &Value) -> Step {
    match list {
        ListType::Map(keys) => {
            let mut named: BTreeMap<&str, Value> = BTreeMap::new();
            for key in keys {
                let default = || inner.and_then(|s| s.member(key)).and_then(|s| s.default.clone());
                if let Some(value) = item.get(key).cloned().or_else(default) {
                    named.insert(key, value);
                }
            }
            Step::Item(json!(named).to_string())
        }
        _ => Step::Value(item.to_string()),
    }
}

/// What differs between two states of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Fields that were not there.
    pub added: FieldSet,
    /// Fields with another value.
    pub modified: FieldSet,
    /// Fields that are gone.
    pub removed: FieldSet,
}

impl Difference {
    /// Between two states of an object, as far as fields are owned.
    pub(crate) fn between(schema: &Schema, old: Option<&Value>, new: &Value) -> Difference {
        let mut difference = Difference::default();
        let (a, b) = (old.and_then(Value::as_object), new.as_object());
        let names =
            |map: Option<&'_ Map<String, Value>>| map.into_iter().flat_map(Map::keys).cloned().collect::<Vec<_>>();
        let mut all: BTreeSet<String> = names(a).into_iter().chain(names(b)).collect();
        all.retain(|name| !SERVERS.contains(&name.as_str()));
        for name in all {
            let sides_of = (a.and_then(|map| map.get(&name)), b.and_then(|map| map.get(&name)));
            sides(schema.part(&name), sides_of, &mut vec![Step::Member(name)], &mut difference);
        }
        let (before, after) = (old.and_then(owned_metadata), owned_metadata(new));
        let mut path = vec![Step::Member("metadata".to_owned())];
        sides(schema.part("metadata"), (before.as_ref(), after.as_ref()), &mut path, &mut difference);
        difference
    }

    /// None at all?
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }
}

fn graft(target: &mut FieldSet, path: &[Step], set: &FieldSet) {
    let mut at = target;
    for step in path {
        at = at.below.entry(step.clone()).or_default();
    }
    *at = at.union(set);
}

fn compare(schema: Option<&Schema>, old: &Value, new: &Value, path: &mut Vec<Step>, difference: &mut Difference) {
    if old == new {
        return;
    }
    match (old, new) {
        (Value::Object(a), Value::Object(b)) if !schema.is_some_and(|s| s.atomic) => {
            for name in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                let inner = schema.and_then(|s| s.part(name));
                path.push(Step::Member(name.clone()));
                sides(inner, (a.get(name), b.get(name)), path, difference);
                path.pop();
            }
        }
        (Value::Array(a), Value::Array(b)) if schema.is_some_and(|s| s.list != ListType::Atomic) => {
            let Some(schema) = schema else { return };
            let inner = schema.items.as_deref();
            let named = |items: &[Value]| -> BTreeMap<Step, Value> {
                items.iter().map(|i| (step_of(&schema.list, inner, i), i.clone())).collect()
            };
            let (a, b) = (named(a), named(b));
            for step in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                path.push(step.clone());
                sides(inner, (a.get(step), b.get(step)), path, difference);
                path.pop();
            }
        }
        _ => difference.modified.insert(path),
    }
}

fn sides(
    schema: Option<&Schema>,
    (old, new): (Option<&Value>, Option<&Value>),
    path: &mut Vec<Step>,
    difference: &mut Difference,
) {
    match (old, new) {
        (Some(old), Some(new)) => compare(schema, old, new, path, difference),
        (Some(old), None) => graft(&mut difference.removed, path, &FieldSet::everything(schema, old)),
        (None, Some(new)) => graft(&mut difference.added, path, &FieldSet::everything(schema, new)),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read() {
        let schema = crate::builtin::messages::Schemas::default().of("core.Pod");
        let value = json!({ "metadata": { "labels": { "a": "b" }, "finalizers": ["x/y"] }, "spec": { "containers": [{ "name": "c", "image": "i", "command": ["z"] }] } });
        let set = FieldSet::of(Some(&schema), &value);
        let written = set.write();
        assert_eq!(
            written,
            json!({
                "f:metadata": { "f:finalizers": { "v:\"x/y\"": {} }, "f:labels": { "f:a": {} } },
                "f:spec": { "f:containers": { "k:{\"name\":\"c\"}": { ".": {}, "f:command": {}, "f:image": {}, "f:name": {} } } }
            })
        );
        assert_eq!(FieldSet::read_root(&written), set);
        assert!(set.minus(&set).is_empty());
        assert_eq!(set.both(&set), set);
    }

    #[test]
    fn differences() {
        let old = json!({ "data": { "a": "1", "b": "2" } });
        let new = json!({ "data": { "a": "9", "c": "3" } });
        let found = Difference::between(&Schema::default(), Some(&old), &new);
        assert_eq!(found.modified.paths(), [".data.a"]);
        assert_eq!(found.added.paths(), [".data.c"]);
        assert_eq!(found.removed.paths(), [".data.b"]);
    }
}
