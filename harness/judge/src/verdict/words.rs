//! Expectations in words, for messages.

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
