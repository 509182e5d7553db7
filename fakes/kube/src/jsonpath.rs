//! JSONPath as definitions use it for columns and selectable fields: members, indices, `[*]`, and filters by equality.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Member(String),
    Index(i64),
    All,
    Filter(Vec<Step>, bool, Value),
}

/// The values at a path in an object.
pub(crate) fn find<'v>(path: &str, object: &'v Value) -> Vec<&'v Value> {
    let steps = parse(path.trim_start_matches('{').trim_end_matches('}').trim_start_matches('$'));
    walk(&steps, object)
}

/// The first of them.
pub(crate) fn first<'v>(path: &str, object: &'v Value) -> Option<&'v Value> {
    find(path, object).into_iter().next()
}

fn walk<'v>(steps: &[Step], value: &'v Value) -> Vec<&'v Value> {
    let mut found = vec![value];
    for step in steps {
        found = found.into_iter().flat_map(|value| one(step, value)).collect();
    }
    found
}

fn one<'v>(step: &Step, value: &'v Value) -> Vec<&'v Value> {
    match step {
        Step::Member(name) => value.get(name).into_iter().collect(),
        Step::Index(at) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let length = i64::try_from(items.len()).unwrap_or(0);
            let at = if *at < 0 { length + at } else { *at };
            usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
        }
        Step::All => match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => Vec::new(),
        },
        Step::Filter(path, equal, wanted) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            items.iter().filter(|item| walk(path, item).iter().any(|v| (*v == wanted) == *equal)).collect()
        }
    }
}

fn parse(path: &str) -> Vec<Step> {
    let (mut steps, mut rest) = (Vec::new(), path);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = closing(inner);
            steps.extend(bracket(&inner[..end]));
            rest = inner.get(end + 1..).unwrap_or_default();
            continue;
        }
        rest = rest.trim_start_matches('.');
        let (mut name, mut escaped, mut length) = (String::new(), false, 0);
        for c in rest.chars() {
            if !escaped && matches!(c, '.' | '[') {
                break;
            }
            length += c.len_utf8();
            if c == '\\' && !escaped {
                escaped = true;
                continue;
            }
            escaped = false;
            name.push(c);
        }
        if name == "*" {
            steps.push(Step::All);
        } else if !name.is_empty() {
            steps.push(Step::Member(name));
        }
        if length == 0 && !rest.starts_with('[') {
            break;
        }
        rest = &rest[length..];
    }
    steps
}

/// Where the bracket ends that is open; quotes may have brackets in them.
fn closing(inner: &str) -> usize {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in inner.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, ']') if depth == 0 => return at,
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    inner.len()
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Ok(at) = text.parse() {
        return Some(Step::Index(at));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        let (path, equal, value) = match filter.split_once("==") {
            Some((path, value)) => (path, true, value),
            None => filter.split_once("!=").map(|(path, value)| (path, false, value))?,
        };
        let value = value.trim();
        let unquoted = value.trim_matches(['"', '\'']);
        let wanted = if unquoted.len() < value.len() {
            Value::from(unquoted)
        } else {
            serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))
        };
        return Some(Step::Filter(parse(path.trim().trim_start_matches('@')), equal, wanted));
    }
    Some(Step::Member(text.trim_matches(['"', '\'']).to_owned()))
}

/// A value as text, as selectors and columns compare and show it.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(".spec.a", json!([1]))]
    #[case(".spec.list[0].x", json!(["y"]))]
    #[case(".spec.list[*].x", json!(["y", "z"]))]
    #[case(".spec.list[-1].x", json!(["z"]))]
    #[case(".status.conditions[?(@.type==\"Ready\")].status", json!(["True"]))]
    #[case(".status.conditions[?(@.type=='Ready')].status", json!(["True"]))]
    #[case(".metadata.labels.hive\\.openshift\\.io/x", json!(["v"]))]
    #[case(".metadata.labels['hive.openshift.io/x']", json!(["v"]))]
    #[case(".nothing.here", json!([]))]
    fn paths(#[case] path: &str, #[case] wanted: Value) {
        let object = json!({
            "metadata": { "labels": { "hive.openshift.io/x": "v" } },
            "spec": { "a": 1, "list": [{ "x": "y" }, { "x": "z" }] },
            "status": { "conditions": [{ "type": "Other", "status": "False" }, { "type": "Ready", "status": "True" }] },
        });
        assert_eq!(json!(find(path, &object)), wanted);
    }
}
