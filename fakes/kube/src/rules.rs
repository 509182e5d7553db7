//! `x-kubernetes-validations`: rules in CEL.

use std::sync::LazyLock;

use cel::{Context, Program, Value as Cel};
use serde_json::Value;

use crate::failure::Cause;
use crate::schema::{At, ListType, Rule, Schema};

/// What takes anything.
static ANY: LazyLock<Schema> = LazyLock::new(Schema::default);

/// Words of CEL that cannot be names of members.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A member's name as rules write it.
fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}

/// A value for CEL: members that the schema declares have escaped names, keys of maps are as they are.
fn value(schema: &Schema, json: &Value) -> Cel {
    match json {
        Value::Object(map) => {
            let members = map.iter().map(|(name, member)| {
                let declared = schema.properties.get(name);
                let inner = schema.member(name).unwrap_or(&ANY);
                (if declared.is_some() { escaped(name) } else { name.clone() }, value(inner, member))
            });
            members.collect::<std::collections::HashMap<String, Cel>>().into()
        }
        Value::Array(items) => {
            let inner = schema.items.as_deref().unwrap_or(&ANY);
            items.iter().map(|item| value(inner, item)).collect::<Vec<Cel>>().into()
        }
        Value::Number(n) => match n.as_i64() {
            Some(whole) => Cel::Int(whole),
            None => Cel::Float(n.as_f64().unwrap_or_default()),
        },
        Value::Bool(b) => Cel::Bool(*b),
        Value::String(text) => text.clone().into(),
        Value::Null => Cel::Null,
    }
}

/// Looks whether every rule holds; `old` is the value before an update.
pub(crate) fn check(schema: &Schema, new: &Value, old: Option<&Value>, at: At<'_>, causes: &mut Vec<Cause>) {
    if !schema.ruled {
        return;
    }
    for rule in schema.checks.iter().flat_map(|c| &c.rules) {
        let transition = rule.rule.contains("oldSelf");
        if transition && old.is_none() {
            continue;
        }
        if let Some(cause) = broken(schema, rule, new, old, at) {
            causes.push(cause);
        }
    }
    match new {
        Value::Object(map) => {
            for (name, member) in map {
                if let Some(inner) = schema.member(name) {
                    check(inner, member, old.and_then(|o| o.get(name)), At::Member(&at, name), causes);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = &schema.items else { return };
            for (n, item) in items.iter().enumerate() {
                check(inner, item, before(schema, item, old), At::Item(&at, n), causes);
            }
        }
        _ => {}
    }
}

/// The item of the old list that this one was: only lists with keys know.
fn before<'o>(schema: &Schema, item: &Value, old: Option<&'o Value>) -> Option<&'o Value> {
    let ListType::Map(keys) = &schema.list else { return None };
    old?.as_array()?.iter().find(|o| keys.iter().all(|k| o.get(k) == item.get(k)))
}

fn broken(schema: &Schema, rule: &Rule, new: &Value, old: Option<&Value>, at: At<'_>) -> Option<Cause> {
    let (reason, word) = match rule.reason.as_str() {
        "FieldValueForbidden" => ("FieldValueForbidden", "Forbidden"),
        "FieldValueRequired" => ("FieldValueRequired", "Required value"),
        "FieldValueDuplicate" => ("FieldValueDuplicate", "Duplicate value"),
        _ => ("FieldValueInvalid", "Invalid value"),
    };
    let cause = |detail: &str| {
        let shown = match new {
            Value::Object(_) | Value::Array(_) => String::new(),
            value if reason == "FieldValueInvalid" || reason == "FieldValueDuplicate" => format!(": {value}"),
            _ => String::new(),
        };
        let field = format!("{at}{}", rule.field);
        Some(Cause { reason, field, message: format!("{word}{shown}: {detail}") })
    };
    let compiled = rule.program.get_or_init(|| Program::compile(&rule.rule).map_err(|e| e.to_string()));
    let program = match compiled {
        Ok(program) => program,
        Err(e) => return cause(&format!("rule cannot be compiled: {}: {e}", rule.rule)),
    };
    let mut context = Context::default();
    context.add_variable_from_value("self", value(schema, new));
    if let Some(old) = old {
        context.add_variable_from_value("oldSelf", value(schema, old));
    }
    match program.execute(&context) {
        Ok(Cel::Bool(true)) => None,
        Ok(Cel::Bool(false)) => {
            let computed = Program::compile(&rule.message_expression).ok().and_then(|p| p.execute(&context).ok());
            match computed {
                Some(Cel::String(text)) if !rule.message_expression.is_empty() => cause(&text),
                _ if rule.message.is_empty() => cause(&format!("failed rule: {}", rule.rule)),
                _ => cause(&rule.message),
            }
        }
        Ok(other) => cause(&format!("rule gave {other:?} and not true or false: {}", rule.rule)),
        Err(e) => cause(&format!("rule cannot be evaluated: {}: {e}", rule.rule)),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        Schema::read(&json!({ "type": "object", "properties": { "platform": {
            "type": "string", "x-kubernetes-validations": [{ "rule": "self == oldSelf || oldSelf == 'Unknown'", "message": "is frozen" }]
        }, "range": { "type": "object", "properties": { "min": { "type": "integer" }, "max": { "type": "integer" } },
            "x-kubernetes-validations": [{ "rule": "!has(self.min) || !has(self.max) || self.min <= self.max" }] } } }))
        .unwrap()
    }

    #[rstest]
    #[case(json!({ "platform": "b" }), Some(json!({ "platform": "a" })), "platform: Invalid value: \"b\": is frozen")]
    #[case(json!({ "platform": "b" }), Some(json!({ "platform": "Unknown" })), "")]
    #[case(json!({ "platform": "b" }), None, "")]
    #[case(json!({ "range": { "min": 3, "max": 2 } }), None, "range: Invalid value: failed rule: !has(self.min) || !has(self.max) || self.min <= self.max")]
    #[case(json!({ "range": { "min": 3 } }), None, "")]
    fn rules(#[case] new: Value, #[case] old: Option<Value>, #[case] wanted: &str) {
        let mut causes = Vec::new();
        check(&schema(), &new, old.as_ref(), At::Root(""), &mut causes);
        let texts: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        assert_eq!(texts.join("; "), wanted);
    }
}
