//! The older three kinds of patches: JSON patches, merge patches, strategic merge patches.

use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::schema::Schema;

fn rejected() -> Failure {
    Failure {
        details: serde_json::json!({}),
        ..Failure::new(422, "Invalid", "the server rejected our request due to an error in our request")
    }
}

/// A JSON patch (RFC 6902).
///
/// # Errors
/// 400 when it is none, 422 when it cannot be applied.
pub(crate) fn json(object: &mut Value, patch: &Value) -> Result<(), Failure> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|e| Failure::bad_request(format!("error decoding patch: {e}")))?;
    let mut changed = object.clone();
    for step in &patch.0 {
        if !is_test_of_nothing(&changed, step) {
            json_patch::patch(&mut changed, std::slice::from_ref(step)).map_err(|_| rejected())?;
        }
    }
    *object = changed;
    Ok(())
}

/// Is it a test that a member is null which is not there? That is met, as the library of the real server has it, and clients rely on it:
/// so they ask whether an object has no finalizers yet.
fn is_test_of_nothing(object: &Value, step: &json_patch::PatchOperation) -> bool {
    let json_patch::PatchOperation::Test(test) = step else { return false };
    let path = test.path.as_str();
    let parent = path.rsplit_once('/').and_then(|(parent, _)| object.pointer(parent));
    test.value.is_null() && parent.is_some_and(Value::is_object) && object.pointer(path).is_none()
}

/// A JSON patch of a webhook: `replace` of a member that is not there adds it, as the library of the real server does.
///
/// # Errors
/// What cannot be applied.
pub(crate) fn lenient(object: &mut Value, patch: &Value) -> Result<(), String> {
    let mut patch = patch.clone();
    for step in patch.as_array_mut().into_iter().flatten() {
        let path = step["path"].as_str().unwrap_or_default();
        if step["op"] == "replace" && object.pointer(path).is_none() {
            step["op"] = "add".into();
        }
    }
    let patch: json_patch::Patch = serde_json::from_value(patch).map_err(|e| e.to_string())?;
    json_patch::patch(object, &patch).map_err(|e| e.to_string())
}

/// A value as Go writes its maps and lists in messages.
pub(crate) fn as_go(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut members: Vec<(&String, &Value)> = map.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            let members: Vec<String> =
                members.into_iter().map(|(name, value)| format!("{name}:{}", as_go(value))).collect();
            format!("map[{}]", members.join(" "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(as_go).collect::<Vec<_>>().join(" ")),
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// A merge patch (RFC 7386).
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    json_patch::merge(object, patch);
}

/// A strategic merge patch: lists are merged as the kind's messages say, and members that begin with `$` are orders.
///
/// # Errors
/// 400 for orders that cannot be understood.
pub(crate) fn strategic(schema: Option<&Schema>, object: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return Ok(());
    };
    if let Some(order) = patch.get("$patch").and_then(Value::as_str) {
        match order {
            "replace" => {
                let mut whole = patch.clone();
                whole.shift_remove("$patch");
                *object = Value::Object(whole);
                return Ok(());
            }
            "delete" => {
                *object = Value::Object(Map::new());
                return Ok(());
            }
            "merge" => {}
            other => return Err(Failure::bad_request(format!("unknown patch type found: {other}"))),
        }
    }
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Some(map) = object.as_object_mut() else { return Ok(()) };
    if let Some(keys) = patch.get("$retainKeys").and_then(Value::as_array) {
        map.retain(|name, _| keys.iter().any(|k| k == name));
    }
    let before = lists_in(map);
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(Value::Array(items)) = map.get_mut(list) {
                items.retain(|item| !gone.contains(item));
            }
        } else if name.starts_with('$') {
        } else if value.is_null() {
            map.shift_remove(name);
        } else {
            member(schema.and_then(|s| s.part(name)), map, name, value)?;
        }
    }
    for (list, before) in &before {
        let Some(Value::Array(items)) = map.get_mut(list.as_str()) else { continue };
        let said = patch.get(&format!("$setElementOrder/{list}")).or_else(|| patch.get(list));
        let merge = schema.and_then(|s| s.part(list)).and_then(|s| s.merge.as_ref());
        if let (Some(Value::Array(order)), Some(merge)) = (said, merge) {
            *items = arranged(std::mem::take(items), before, order, &merge.key);
        }
    }
    Ok(())
}

fn member(schema: Option<&Schema>, map: &mut Map<String, Value>, name: &str, value: &Value) -> Result<(), Failure> {
    match value {
        Value::Object(_) => {
            let inner = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
            strategic(schema, inner, value)
        }
        Value::Array(items) => {
            let Some(merge) = schema.and_then(|s| s.merge.as_ref()) else {
                map.insert(name.to_owned(), value.clone());
                return Ok(());
            };
            let inner = schema.and_then(|s| s.items.as_deref());
            let list = map.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            let Some(list) = list.as_array_mut() else { return Ok(()) };
            merge_list(inner, list, items, &merge.key)
        }
        _ => {
            map.insert(name.to_owned(), value.clone());
            Ok(())
        }
    }
}

fn merge_list(inner: Option<&Schema>, list: &mut Vec<Value>, items: &[Value], key: &str) -> Result<(), Failure> {
    if items.iter().any(|i| i["$patch"] == "replace" && i.as_object().is_some_and(|o| o.len() == 1)) {
        list.clear();
    }
    for item in items {
        if key.is_empty() {
            if !list.contains(item) {
                list.push(item.clone());
            }
            continue;
        }
        let order = item["$patch"].as_str();
        if order == Some("replace") {
            continue;
        }
        let Some(named) = item.get(key) else {
            return Err(Failure::bad_request(format!("map: {item} does not contain declared merge key: {key}")));
        };
        let at = list.iter().position(|i| i.get(key) == Some(named));
        match (order, at) {
            (Some("delete"), at) => {
                if let Some(at) = at {
                    list.remove(at);
                }
            }
            (_, Some(at)) => strategic(inner, &mut list[at], item)?,
            (_, None) => {
                let mut new = Value::Object(Map::new());
                strategic(inner, &mut new, item)?;
                list.push(new);
            }
        }
    }
    Ok(())
}

/// The lists among the members, as they were.
fn lists_in(map: &Map<String, Value>) -> Vec<(String, Vec<Value>)> {
    map.iter().filter_map(|(name, value)| Some((name.clone(), value.as_array()?.clone()))).collect()
}

/// Items in the order of the real server: those of the patch in its order, the others in the order that they had; between both that order
/// counts, too, and what is new comes first. Source: mergeSortedSlice.
fn arranged(items: Vec<Value>, before: &[Value], order: &[Value], key: &str) -> Vec<Value> {
    let same = |a: &Value, b: &Value| if key.is_empty() { a == b } else { a.get(key) == b.get(key) };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut ours, theirs): (Vec<Value>, Vec<Value>) = items.into_iter().partition(|item| place(order, item).is_some());
    ours.sort_by_key(|item| place(order, item));
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    let mut out = Vec::new();
    loop {
        let first = match (ours.peek(), theirs.peek()) {
            (Some(a), Some(b)) => match (place(before, a), place(before, b)) {
                (Some(a), Some(b)) => a < b,
                _ => true,
            },
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return out,
        };
        out.extend(if first { ours.next() } else { theirs.next() });
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::builtin::messages::Schemas;

    #[rstest]
    #[case(json!({ "containers": [{ "name": "a", "image": "2" }] }), json!({ "containers": [{ "name": "a", "image": "2", "command": ["x"] }, { "name": "b" }] }))]
    #[case(json!({ "containers": [{ "name": "b", "$patch": "delete" }] }), json!({ "containers": [{ "name": "a", "image": "1", "command": ["x"] }] }))]
    #[case(json!({ "containers": [{ "$patch": "replace" }, { "name": "c" }] }), json!({ "containers": [{ "name": "c" }] }))]
    #[case(json!({ "containers": [{ "name": "a", "command": ["y"] }], "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }] }), json!({ "containers": [{ "name": "b" }, { "name": "a", "image": "1", "command": ["y"] }] }))]
    #[case(json!({ "containers": null, "nodeName": "n" }), json!({ "nodeName": "n" }))]
    fn strategic_merge(#[case] patch: Value, #[case] wanted: Value) {
        let schema = Schemas::default().of("core.Pod");
        let mut pod =
            json!({ "spec": { "containers": [{ "name": "a", "image": "1", "command": ["x"] }, { "name": "b" }] } });
        strategic(Some(&schema), &mut pod, &json!({ "spec": patch })).unwrap();
        assert_eq!(pod, json!({ "spec": wanted }));
    }

    #[test]
    fn finalizers_are_a_list_of_values() {
        let schema = Schemas::default().of("core.ConfigMap");
        let mut object = json!({ "metadata": { "finalizers": ["a/x"] } });
        strategic(Some(&schema), &mut object, &json!({ "metadata": { "finalizers": ["a/y"] } })).unwrap();
        assert_eq!(object["metadata"]["finalizers"], json!(["a/y", "a/x"]));
        strategic(
            Some(&schema),
            &mut object,
            &json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a/x"] } }),
        )
        .unwrap();
        assert_eq!(object["metadata"]["finalizers"], json!(["a/y"]));
    }

    /// As the library of the real server has it, and as clients ask whether there are no finalizers yet.
    #[rstest]
    #[case::not_there(json!({ "metadata": {} }), true)]
    #[case::null(json!({ "metadata": { "finalizers": null } }), true)]
    #[case::there(json!({ "metadata": { "finalizers": ["a/x"] } }), false)]
    #[case::no_parent(json!({}), false)]
    fn a_test_for_null_is_met_by_what_is_not_there(#[case] before: Value, #[case] met: bool) {
        let patch = json!([
            { "op": "test", "path": "/metadata/finalizers", "value": null },
            { "op": "add", "path": "/metadata/finalizers", "value": ["a/y"] },
        ]);
        let mut object = before.clone();
        assert_eq!(json(&mut object, &patch).is_ok(), met);
        let after = json!({ "metadata": { "finalizers": ["a/y"] } });
        assert_eq!(object, if met { after } else { before });
    }

    #[test]
    fn json_patches() {
        let mut object = json!({ "a": 1 });
        json(
            &mut object,
            &json!([{ "op": "test", "path": "/a", "value": 1 }, { "op": "add", "path": "/b", "value": 2 }]),
        )
        .unwrap();
        assert_eq!(object, json!({ "a": 1, "b": 2 }));
        assert_eq!(json(&mut object, &json!([{ "op": "test", "path": "/a", "value": 5 }])).unwrap_err().code, 422);
        assert_eq!(json(&mut object, &json!({ "op": "x" })).unwrap_err().code, 400);
        assert!(json(&mut object, &json!([{ "op": "replace", "path": "/c", "value": 5 }])).is_err());
        lenient(&mut object, &json!([{ "op": "replace", "path": "/c", "value": 5 }])).unwrap();
        assert_eq!(object["c"], 5);
    }
}
