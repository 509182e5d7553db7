//! What a table of checks expects of an answer, compared with what was found.
//!
//! An expected object names the members that must be there; others may be there, too. A list is compared member by member and
//! must have the same length. Everything else must be equal. An object whose members begin with `$` is a question instead:
//!
//! | question | holds when the found value |
//! | --- | --- |
//! | `$re: text` | is a string that the regular expression matches |
//! | `$has: x` | is a list with a member that matches `x`, a string that contains `x`, or an object with a member named `x` |
//! | `$lacks: x` | is there and is none of that |
//! | `$len: n` | is a list, string or object of that length |
//! | `$ge: n`, `$le: n` | is a number of at least, at most `n` |
//! | `$not: x` | is there and does not match `x` |
//! | `$any: [x, y]` | matches one of them |
//! | `$each: x` | is a list that is not empty, and each member matches `x` |
//! | `$json: x` | is a string with JSON in it that matches `x` |
//! | `$absent: true` | is not there, or is `null` |
//! | `$present: true` | is there, and is neither `null` nor empty |

use regex::Regex;
use serde_json::Value;

/// Longest part of a found value that is shown.
const SHOWN: usize = 300;

/// Compares; each difference is one line that begins with the path of what differs. Empty: it matches.
pub fn differences(expected: &Value, found: Option<&Value>) -> Vec<String> {
    let mut out = Vec::new();
    compare(expected, found, "", &mut out);
    out
}

/// Does it match?
pub fn matches(expected: &Value, found: Option<&Value>) -> bool {
    differences(expected, found).is_empty()
}

/// A value in few words.
pub fn shown(value: Option<&Value>) -> String {
    let text = match value {
        None => return "nothing".to_owned(),
        Some(value) => value.to_string(),
    };
    shortened(&text)
}

/// The beginning of a text, with a mark when something is left out.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The member at a path of names and numbers with dots between them; the empty path is the value itself. In a list a name is that of
/// the element with this `type`: of a condition.
pub fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').filter(|part| !part.is_empty()).try_fold(value, |value, part| match value {
        Value::Array(list) => match part.parse::<usize>() {
            Ok(number) => list.get(number),
            Err(_) => list.iter().find(|element| element["type"] == part),
        },
        Value::Object(map) => map.get(part),
        _ => None,
    })
}

fn compare(expected: &Value, found: Option<&Value>, path: &str, out: &mut Vec<String>) {
    let place = if path.is_empty() { "the answer" } else { path };
    let mut differs = |wanted: String| out.push(format!("{place}: expected {wanted}, found {}", shown(found)));
    match expected {
        Value::Object(questions) if !questions.is_empty() && questions.keys().all(|k| k.starts_with('$')) => {
            for (question, argument) in questions {
                ask(question, argument, found, path, out);
            }
        }
        Value::Object(members) => match found {
            Some(Value::Object(map)) => {
                for (name, value) in members {
                    compare(value, map.get(name), &below(path, name), out);
                }
            }
            _ => differs("an object".to_owned()),
        },
        Value::Array(list) => match found {
            Some(Value::Array(items)) if items.len() == list.len() => {
                for (n, (value, item)) in list.iter().zip(items).enumerate() {
                    compare(value, Some(item), &below(path, &n.to_string()), out);
                }
            }
            _ => differs(format!("the list {}", shown(Some(expected)))),
        },
        Value::Null if found.is_none_or(Value::is_null) => {}
        Value::Number(wanted) => {
            // 1 and 1.0 are the same number on the wire.
            if found.and_then(Value::as_f64) != wanted.as_f64() {
                differs(expected.to_string());
            }
        }
        _ if Some(expected) == found => {}
        _ => differs(shown(Some(expected))),
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn ask(question: &str, argument: &Value, found: Option<&Value>, path: &str, out: &mut Vec<String>) {
    let holds = match question {
        "$re" => match argument.as_str().map(Regex::new) {
            Some(Ok(pattern)) => found.and_then(Value::as_str).is_some_and(|text| pattern.is_match(text)),
            _ => false,
        },
        "$has" => found.is_some_and(|value| has(argument, value)),
        "$lacks" => found.is_some_and(|value| !has(argument, value)),
        "$len" => found.and_then(length) == argument.as_u64(),
        "$ge" => both(found, argument).is_some_and(|(a, b)| a >= b),
        "$le" => both(found, argument).is_some_and(|(a, b)| a <= b),
        "$not" => found.is_some() && !matches(argument, found),
        "$any" => argument.as_array().is_some_and(|list| list.iter().any(|one| matches(one, found))),
        "$each" => found
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty() && list.iter().all(|item| matches(argument, Some(item)))),
        "$json" => {
            let inner = found.and_then(Value::as_str).and_then(|text| serde_json::from_str::<Value>(text).ok());
            match inner {
                Some(inner) => {
                    compare(argument, Some(&inner), &format!("{path} (as JSON)"), out);
                    true
                }
                None => false,
            }
        }
        "$absent" => found.is_none_or(Value::is_null),
        "$present" => found.is_some_and(|value| !value.is_null() && length(value) != Some(0)),
        _ => false,
    };
    if !holds {
        let place = if path.is_empty() { "the answer" } else { path };
        out.push(format!("{place}: expected {question} {argument}, found {}", shown(found)));
    }
}

fn has(argument: &Value, value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(|item| matches(argument, Some(item))),
        Value::String(text) => argument.as_str().is_some_and(|part| text.contains(part)),
        Value::Object(map) => argument.as_str().is_some_and(|name| map.contains_key(name)),
        _ => false,
    }
}

fn length(value: &Value) -> Option<u64> {
    match value {
        Value::Array(list) => Some(list.len() as u64),
        Value::String(text) => Some(text.chars().count() as u64),
        Value::Object(map) => Some(map.len() as u64),
        _ => None,
    }
}

fn both(found: Option<&Value>, argument: &Value) -> Option<(f64, f64)> {
    Some((found?.as_f64()?, argument.as_f64()?))
}

/// Words that begin with `$` and are no question: a mistake in a table, which would otherwise be a check that never passes.
pub fn unknown_questions(expected: &Value, out: &mut Vec<String>) {
    const KNOWN: &[&str] =
        &["$re", "$has", "$lacks", "$len", "$ge", "$le", "$not", "$any", "$each", "$json", "$absent", "$present"];
    match expected {
        Value::Object(map) => {
            for (name, value) in map {
                if name.starts_with('$') && !KNOWN.contains(&name.as_str()) {
                    out.push(format!("{name} is not a question"));
                }
                if name == "$re"
                    && let Some(Err(error)) = value.as_str().map(Regex::new)
                {
                    out.push(format!("{value}: {error}"));
                }
                unknown_questions(value, out);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| unknown_questions(value, out)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("", Some(json!({"list": [{"type": "A", "v": 1}, {"type": "B", "v": 2}]})))]
    #[case("list.1.v", Some(json!(2)))]
    #[case("list.A.v", Some(json!(1)))]
    #[case("list.C.v", None)]
    #[case("list.2", None)]
    #[case("other", None)]
    fn a_member_is_found_by_its_path(#[case] path: &str, #[case] found: Option<Value>) {
        let value = json!({"list": [{"type": "A", "v": 1}, {"type": "B", "v": 2}]});
        assert_eq!(at(&value, path), found.as_ref());
    }

    #[rstest]
    #[case(json!({"a": 1}), json!({"a": 1.0, "b": 2}), true)]
    #[case(json!({"a": 1}), json!({"a": "1"}), false)]
    #[case(json!({"a": 1}), json!([]), false)]
    #[case(json!([1, 2]), json!([1, 2]), true)]
    #[case(json!([1, 2]), json!([1, 2, 3]), false)]
    #[case(json!({"a": null}), json!({}), true)]
    #[case(json!({"a": null}), json!({"a": 0}), false)]
    #[case(json!({"$re": "^a+$"}), json!("aa"), true)]
    #[case(json!({"$re": "^a+$"}), json!("ab"), false)]
    #[case(json!({"$has": {"x": 1}}), json!([{"x": 0}, {"x": 1}]), true)]
    #[case(json!({"$has": {"x": 2}}), json!([{"x": 0}, {"x": 1}]), false)]
    #[case(json!({"$has": "ell"}), json!("hello"), true)]
    #[case(json!({"$lacks": "ell"}), json!("hello"), false)]
    #[case(json!({"$lacks": "x"}), json!({"y": 1}), true)]
    #[case(json!({"$len": 2}), json!([1, 2]), true)]
    #[case(json!({"$len": 2}), json!([1]), false)]
    #[case(json!({"$ge": 2, "$le": 3}), json!(2.5), true)]
    #[case(json!({"$ge": 2, "$le": 3}), json!(4), false)]
    #[case(json!({"$not": "a"}), json!("b"), true)]
    #[case(json!({"$not": "a"}), json!("a"), false)]
    #[case(json!({"$any": ["a", "b"]}), json!("b"), true)]
    #[case(json!({"$any": ["a", "b"]}), json!("c"), false)]
    #[case(json!({"$each": {"a": 1}}), json!([{"a": 1}]), true)]
    #[case(json!({"$each": {"a": 1}}), json!([]), false)]
    #[case(json!({"$json": {"a": [1]}}), json!("{\"a\":[1]}"), true)]
    #[case(json!({"$json": {"a": [1]}}), json!("{\"a\":[2]}"), false)]
    #[case(json!({"$json": {}}), json!("no"), false)]
    #[case(json!({"a": {"$absent": true}}), json!({"a": null}), true)]
    #[case(json!({"a": {"$absent": true}}), json!({"a": ""}), false)]
    #[case(json!({"a": {"$present": true}}), json!({"a": ""}), false)]
    #[case(json!({"a": {"$present": true}}), json!({"a": "x"}), true)]
    fn expectations(#[case] expected: Value, #[case] found: Value, #[case] holds: bool) {
        assert_eq!(matches(&expected, Some(&found)), holds, "{:?}", differences(&expected, Some(&found)));
    }

    #[test]
    fn a_difference_names_its_place() {
        let found = json!({"hosts": [{"status": "known"}]});
        let lines = differences(&json!({"hosts": [{"status": "error"}]}), Some(&found));
        assert_eq!(lines, ["hosts.0.status: expected \"error\", found \"known\""]);
        assert_eq!(at(&found, "hosts.0.status"), Some(&json!("known")));
        assert_eq!(at(&found, "hosts.1.status"), None);
    }

    #[test]
    fn a_question_that_nobody_knows_is_found() {
        let mut out = Vec::new();
        unknown_questions(&json!({"a": [{"$hass": 1}], "b": {"$re": "("}}), &mut out);
        assert_eq!(out.len(), 2, "{out:?}");
    }
}
