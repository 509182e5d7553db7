//! `metadata.managedFields` before and after a write.

use serde_json::{Value, json};

use super::fields::{Difference, FieldSet, Step, owned};
use super::merge::{merge, remove};
use crate::failure::Failure;
use crate::schema::Schema;

/// Who owns what was there before anybody applied anything.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes, how, and through which door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manager<'m> {
    /// `kubectl-client-side-apply` and the like.
    pub name: &'m str,
    /// The version in which the object was written.
    pub api_version: &'m str,
    /// `status`, or empty.
    pub subresource: &'m str,
    /// The time, as objects write it.
    pub time: &'m str,
    /// Is it a built-in kind?
    pub typed: bool,
}

/// An entry of the list.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    manager: String,
    applied: bool,
    api_version: String,
    time: String,
    subresource: String,
    fields: FieldSet,
}

fn read(list: &[Value]) -> Vec<Entry> {
    let text = |e: &Value, name: &str| e[name].as_str().unwrap_or_default().to_owned();
    list.iter()
        .map(|e| Entry {
            manager: text(e, "manager"),
            applied: e["operation"] == "Apply",
            api_version: text(e, "apiVersion"),
            time: text(e, "time"),
            subresource: text(e, "subresource"),
            fields: FieldSet::read_root(&e["fieldsV1"]),
        })
        .collect()
}

fn write(object: &mut Value, entries: &[Entry]) {
    let mut entries: Vec<&Entry> = entries.iter().filter(|e| !e.fields.is_empty()).collect();
    // As the real server sorts them: those who apply first, then by time and name.
    entries.sort_by(|a, b| {
        let key = |e: &Entry| (!e.applied, e.time.clone(), e.manager.clone(), e.subresource.clone());
        key(a).cmp(&key(b))
    });
    let list: Vec<Value> = entries
        .into_iter()
        .map(|e| {
            let mut entry = json!({
                "apiVersion": e.api_version, "fieldsType": "FieldsV1", "fieldsV1": e.fields.write(),
                "manager": e.manager, "operation": if e.applied { "Apply" } else { "Update" }, "time": e.time,
            });
            if !e.subresource.is_empty() {
                entry["subresource"] = json!(e.subresource);
            }
            entry
        })
        .collect();
    let meta = crate::meta::of(object);
    if list.is_empty() {
        meta.shift_remove("managedFields");
    } else {
        meta.insert("managedFields".into(), Value::Array(list));
    }
}

/// Sets the owners of an object's fields after somebody wrote it. An object that is the same keeps the old ones.
pub(crate) fn after_update(schema: &Schema, old: Option<&Value>, new: &mut Value, manager: Manager<'_>) {
    let given = &new["metadata"]["managedFields"];
    // A list that was emptied on purpose stays empty.
    let cleared = given.as_array().is_some_and(|l| l.is_empty() || l.len() == 1 && l[0] == json!({}));
    // Who sends the list himself (`kubectl` does when it changes the way it applies) means it.
    let sent = given.as_array().is_some_and(|l| !l.is_empty());
    let given = crate::meta::of(new).get_mut("managedFields").map(Value::take);
    let list = match (cleared, sent, old) {
        (true, ..) | (_, false, None) => None,
        (_, true, _) => given,
        (_, false, Some(old)) => Some(old["metadata"]["managedFields"].clone()),
    };
    let mut list = match list {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    // An object whose owners are not known gets none until somebody applies it. Source: NewProbabilisticSkipNonAppliedManager.
    if old.is_some() && list.is_empty() {
        write(new, &[]);
        return;
    }
    let difference = Difference::between(schema, old, new);
    if difference.is_empty() || cleared {
        write(new, &read(&list));
        return;
    }
    let mut changed = difference.modified.union(&difference.added);
    // `metadata` is nobody's; `spec` and `status` of built-in kinds are always there in Go's types.
    for (step, set) in &mut changed.below {
        let part = |name: &str| *step == Step::Member(name.to_owned());
        if part("metadata") || manager.typed && (part("spec") || part("status")) {
            set.own = false;
        }
    }
    if difference.removed.is_empty() && stamp(&mut list, &changed, manager) {
        crate::meta::of(new).insert("managedFields".into(), Value::Array(list));
        return;
    }
    write(new, &shared_out(&list, &changed, &difference.removed, manager));
}

/// Who owns what, after a writer changed and removed these fields: what he changed is his.
fn shared_out(list: &[Value], changed: &FieldSet, removed: &FieldSet, manager: Manager<'_>) -> Vec<Entry> {
    let mut entries = read(list);
    let own = |e: &Entry| !e.applied && e.manager == manager.name && e.subresource == manager.subresource;
    for entry in entries.iter_mut().filter(|e| !own(e)) {
        entry.fields = entry.fields.minus(changed).minus(removed);
    }
    let at = entries.iter().position(own).unwrap_or_else(|| {
        entries.push(Entry {
            manager: manager.name.to_owned(),
            applied: false,
            api_version: String::new(),
            time: String::new(),
            subresource: manager.subresource.to_owned(),
            fields: FieldSet::default(),
        });
        entries.len() - 1
    });
    let entry = &mut entries[at];
    entry.fields = entry.fields.minus(removed).union(changed);
    manager.time.clone_into(&mut entry.time);
    manager.api_version.clone_into(&mut entry.api_version);
    entries
}

/// Writes the time of a write into the list when that is all it changes there: who wrote owns what he changed already, and nobody else
/// does. Controllers write the same fields again and again, and to read and write all sets of fields would be most of such a write.
fn stamp(list: &mut [Value], changed: &FieldSet, manager: Manager<'_>) -> bool {
    let own = |e: &Value| {
        e["operation"] != "Apply"
            && e["manager"] == manager.name
            && e["subresource"].as_str().unwrap_or_default() == manager.subresource
    };
    let Some(at) = list.iter().position(own) else { return false };
    let others = list.iter().enumerate().filter(|(n, _)| *n != at);
    if !changed.is_within(&list[at]["fieldsV1"]) || others.into_iter().any(|(_, e)| changed.meets(&e["fieldsV1"])) {
        return false;
    }
    list[at]["time"] = json!(manager.time);
    list[at]["apiVersion"] = json!(manager.api_version);
    let text = |e: &Value, name: &str| e[name].as_str().unwrap_or_default().to_owned();
    list.sort_by_cached_key(|e| {
        (e["operation"] != "Apply", text(e, "time"), text(e, "manager"), text(e, "subresource"))
    });
    true
}

/// What an apply makes of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Applied {
    /// The object, owners included.
    pub object: Value,
    /// Is it another one than before?
    pub changed: bool,
}

/// Applies a configuration.
///
/// # Errors
/// 409 with the fields that others own, unless `force`.
pub(crate) fn after_apply(
    schema: &Schema,
    live: Option<&Value>,
    config: &Value,
    manager: Manager<'_>,
    force: bool,
) -> Result<Applied, Failure> {
    let list = live.and_then(|live| live["metadata"]["managedFields"].as_array());
    let mut entries = list.map(|list| read(list)).unwrap_or_default();
    if let (Some(live), true) = (live, entries.is_empty()) {
        entries.push(Entry {
            manager: BEFORE_FIRST_APPLY.to_owned(),
            applied: false,
            api_version: manager.api_version.to_owned(),
            time: manager.time.to_owned(),
            subresource: String::new(),
            fields: FieldSet::of(Some(schema), &owned(live)),
        });
    }
    let own = |e: &Entry| e.applied && e.manager == manager.name && e.subresource == manager.subresource;
    let last = entries.iter().find(|e| own(e)).map(|e| e.fields.clone());
    let stated = FieldSet::of(Some(schema), &owned(config));
    let mut plain = config.clone();
    if let Some(meta) = plain.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.shift_remove("managedFields");
    }
    let base = live.cloned().unwrap_or_else(|| json!({}));
    let mut object = merge(Some(schema), &base, &plain);
    if let Some(last) = &last {
        let mut kept = stated.with_parents();
        for entry in entries.iter().filter(|e| !own(e)) {
            kept = kept.union(&entry.fields.with_parents());
        }
        remove(Some(schema), &mut object, &last.with_parents().minus(&kept));
    }
    let difference = Difference::between(schema, Some(&base), &object);
    let changed = difference.modified.union(&difference.added);
    let mut conflicts = Vec::new();
    for entry in entries.iter_mut().filter(|e| !own(e)) {
        let both = entry.fields.both(&changed);
        if !both.is_empty() && live.is_some() {
            let how = if entry.applied { "" } else { " using " };
            let using = if entry.applied { String::new() } else { format!("{how}{}", entry.api_version) };
            let subresource = if entry.subresource.is_empty() {
                String::new()
            } else {
                format!(" with subresource {:?}", entry.subresource)
            };
            conflicts.extend(both.paths().into_iter().map(|p| (format!("{:?}{subresource}{using}", entry.manager), p)));
        }
        entry.fields = entry.fields.minus(&both).minus(&difference.removed);
    }
    if !conflicts.is_empty() && !force {
        return Err(conflict(&conflicts));
    }
    let same = last.as_ref() == Some(&stated) && difference.is_empty();
    if !same {
        entries.retain(|e| !own(e));
        entries.push(Entry {
            manager: manager.name.to_owned(),
            applied: true,
            api_version: manager.api_version.to_owned(),
            time: manager.time.to_owned(),
            subresource: manager.subresource.to_owned(),
            fields: stated,
        });
    }
    write(&mut object, &entries);
    Ok(Applied { object, changed: !same })
}

fn conflict(conflicts: &[(String, String)]) -> Failure {
    let mut managers: Vec<&String> = Vec::new();
    for (manager, _) in conflicts {
        if !managers.contains(&manager) {
            managers.push(manager);
        }
    }
    let message = if let [(manager, path)] = conflicts {
        format!("Apply failed with 1 conflict: conflict with {manager}: {path}")
    } else {
        let mut text = format!("Apply failed with {} conflicts:", conflicts.len());
        if let [manager] = managers.as_slice() {
            text.push_str(&format!(" conflicts with {manager}:"));
            for (_, path) in conflicts {
                text.push_str(&format!("\n- {path}"));
            }
        } else {
            for manager in managers {
                let paths: Vec<&String> = conflicts.iter().filter(|(m, _)| m == manager).map(|(_, p)| p).collect();
                if let [path] = paths.as_slice() {
                    text.push_str(&format!("\nconflict with {manager}: {path}"));
                } else {
                    text.push_str(&format!("\nconflicts with {manager}:"));
                    for path in paths {
                        text.push_str(&format!("\n- {path}"));
                    }
                }
            }
        }
        text
    };
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|(manager, path)| {
            json!({ "reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": path })
        })
        .collect();
    Failure { details: json!({ "causes": causes }), ..Failure::new(409, "Conflict", message) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: Manager<'static> =
        Manager { name: "a", api_version: "v1", subresource: "", time: "2026-01-01T00:00:00Z", typed: false };
    const B: Manager<'static> = Manager { name: "b", ..A };

    fn schema() -> Schema {
        Schema::read(&json!({ "type": "object", "properties": {
            "data": { "type": "object", "additionalProperties": { "type": "string" } },
            "ports": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["p"], "items": { "type": "object", "properties": { "p": { "type": "integer" }, "n": { "type": "string" } } } },
            "list": { "type": "array", "items": { "type": "string" } },
        } }))
        .unwrap()
    }

    fn applied(live: Option<&Value>, config: Value, manager: Manager<'_>, force: bool) -> Result<Value, Failure> {
        after_apply(&schema(), live, &config, manager, force).map(|a| a.object)
    }

    #[test]
    fn what_is_no_longer_stated_goes_and_what_others_state_stays() {
        let first =
            applied(None, json!({ "metadata": { "name": "x" }, "data": { "a": "1", "b": "2" } }), A, false).unwrap();
        let second = applied(Some(&first), json!({ "data": { "c": "3" } }), B, false).unwrap();
        let third = applied(Some(&second), json!({ "data": { "a": "1" } }), A, false).unwrap();
        assert_eq!(third["data"], json!({ "a": "1", "c": "3" }));
        let owners = third["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(owners.len(), 2);
        assert_eq!(owners[0]["fieldsV1"], json!({ "f:data": { "f:a": {} } }));
    }

    proptest! {
        /// Where only a time is written into the list, it is the list that comes of reading and sharing out all fields.
        #[test]
        fn a_stamp_is_what_sharing_out_gives(writes in proptest::collection::vec((0..3_u8, 0..3_u8, 0..2_u8), 1..12)) {
            let mut stamped = 0;
            let mut now = json!({ "metadata": {}, "data": { "a": "0" } });
            after_update(&schema(), None, &mut now, A);
            let first = std::iter::once((0, 0, 1));
            for (n, (who, field, value)) in first.chain(writes).enumerate() {
                let (name, time) = (["a", "b", "c"][usize::from(who)], format!("2026-01-01T00:{n:02}:00Z"));
                let manager = Manager { name, time: &time, ..A };
                let mut new = now.clone();
                match field {
                    0 => new["data"]["a"] = json!(value.to_string()),
                    1 => new["list"] = json!([value.to_string()]),
                    _ => new["ports"] = json!([{ "p": 1, "n": value.to_string() }]),
                }
                let list = now["metadata"]["managedFields"].as_array().unwrap().clone();
                let difference = Difference::between(&schema(), Some(&now), &new);
                let changed = difference.modified.union(&difference.added);
                let mut quick = list.clone();
                if !changed.is_empty() && stamp(&mut quick, &changed, manager) {
                    stamped += 1;
                    let mut slow = new.clone();
                    write(&mut slow, &shared_out(&list, &changed, &difference.removed, manager));
                    prop_assert_eq!(&slow["metadata"]["managedFields"], &json!(quick));
                }
                after_update(&schema(), Some(&now), &mut new, manager);
                now = new;
            }
            prop_assert!(stamped > 0);
        }
    }

    #[test]
    fn conflicts_name_the_field_and_its_owner() {
        let first = applied(None, json!({ "data": { "a": "1" } }), A, false).unwrap();
        let failure = applied(Some(&first), json!({ "data": { "a": "2" } }), B, false).unwrap_err();
        assert_eq!(failure.message, "Apply failed with 1 conflict: conflict with \"a\": .data.a");
        assert_eq!(failure.code, 409);
        let forced = applied(Some(&first), json!({ "data": { "a": "2" } }), B, true).unwrap();
        assert_eq!(forced["data"]["a"], "2");
        let owners = forced["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(owners.len(), 1, "the other one owns nothing any more: {owners:?}");
        let same = applied(Some(&first), json!({ "data": { "a": "1" } }), B, false).unwrap();
        assert_eq!(same["metadata"]["managedFields"].as_array().unwrap().len(), 2, "both may state the same value");
    }

    #[test]
    fn updates_take_fields_over() {
        let first = applied(None, json!({ "data": { "a": "1" }, "ports": [{ "p": 1, "n": "x" }] }), A, false).unwrap();
        let mut new = first.clone();
        new["data"]["a"] = json!("9");
        new["ports"][0]["n"] = json!("y");
        after_update(&schema(), Some(&first), &mut new, B);
        let owners = new["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(owners[1]["operation"], "Update");
        assert_eq!(
            owners[1]["fieldsV1"],
            json!({ "f:data": { "f:a": {} }, "f:ports": { "k:{\"p\":1}": { "f:n": {} } } })
        );
        let failure = applied(Some(&new), json!({ "data": { "a": "1" }, "ports": [{ "p": 1, "n": "y" }] }), A, false)
            .unwrap_err();
        assert_eq!(failure.message, "Apply failed with 1 conflict: conflict with \"b\" using v1: .data.a");
    }

    #[test]
    fn who_makes_an_object_owns_all_of_it() {
        let mut new = json!({ "metadata": { "labels": { "k": "v" } }, "data": { "a": "1" } });
        after_update(&schema(), None, &mut new, A);
        let fields = &new["metadata"]["managedFields"][0]["fieldsV1"];
        assert_eq!(
            *fields,
            json!({ "f:data": { ".": {}, "f:a": {} }, "f:metadata": { "f:labels": { ".": {}, "f:k": {} } } })
        );
    }

    #[test]
    fn lists_are_merged_by_key_or_replaced_whole() {
        let first = applied(None, json!({ "ports": [{ "p": 1 }, { "p": 2 }], "list": ["x"] }), A, false).unwrap();
        let second = applied(Some(&first), json!({ "ports": [{ "p": 3 }] }), B, false).unwrap();
        assert_eq!(second["ports"], json!([{ "p": 1 }, { "p": 2 }, { "p": 3 }]));
        let third = applied(Some(&second), json!({ "ports": [{ "p": 2 }], "list": ["y"] }), A, false).unwrap();
        assert_eq!(third["ports"], json!([{ "p": 2 }, { "p": 3 }]));
        assert_eq!(third["list"], json!(["y"]));
    }

    #[test]
    fn the_same_again_changes_nothing() {
        let config = json!({ "data": { "a": "1" } });
        let first = applied(None, config.clone(), A, false).unwrap();
        let again = after_apply(&schema(), Some(&first), &config, Manager { time: "2027-01-01T00:00:00Z", ..A }, false)
            .unwrap();
        assert!(!again.changed);
        assert_eq!(again.object, first);
    }
}
