//! Expectations in words, for messages.

use super::*;

pub(super) fn steps_text<T: std::fmt::Display>(steps: &[T], optional: &BTreeSet<usize>) -> String {
    let words: Vec<String> = steps
        .iter()
        .enumerate()
        .map(|(i, s)| if optional.contains(&i) { format!("[{s}]") } else { s.to_string() })
        .collect();
    words.join(" → ")
}

pub(super) fn arrows<T: std::fmt::Display>(states: &[T]) -> String {
    if states.is_empty() {
        return "nothing".to_owned();
    }
    states.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → ")
}

pub(super) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => format!("{other:?}"),
    }
}
