//! AgentClassification: Agents get a label by what their hosts have.
//!
//! Its queries are jq's. Of that language this understands what such queries are mostly made of: paths of members, comparisons with texts and
//! numbers, `and`, `or`, `not`; everything else is a query error that says so.

use serde_json::{Value, json};

use super::client::Kind;
use super::conditions::{Condition, merged};
use super::object::{is_deleted, label, text};
use super::pass::{Pass, Stop, merge};

const FINALIZER: &str = "agentclassification.agent-install.openshift.io";

pub(super) fn pass(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(class) = pass.get(Kind::AgentClassification, key) else { return Ok(()) };
    let spec = &class["spec"];
    let label_name = format!("agentclassification.agent-install.openshift.io/{}", text(&spec["labelKey"]));
    let value = text(&spec["labelValue"]);
    let wrong = format!("QUERYERROR-{value}");
    let (namespace, _) = key.split_once('/').unwrap_or(("", key));
    let agents: Vec<_> = pass.client.all_in(Kind::Agent, namespace).map(|(_, agent)| agent.clone()).collect();
    let deleted = is_deleted(&class);
    if !deleted {
        pass.finalizer(&class, FINALIZER)?;
    }
    let (mut matched, mut errors, mut why) = (0, 0, String::new());
    for agent in agents.iter().filter(|agent| !is_deleted(agent)) {
        let inventory = &agent["status"]["inventory"];
        let wanted = match matches(text(&spec["query"]), inventory) {
            _ if deleted || inventory.is_null() => None,
            Ok(true) => Some(value.to_owned()),
            Ok(false) => None,
            Err(error) => {
                why = error;
                Some(wrong.clone())
            }
        };
        let is = label(agent, &label_name);
        let ours = is == value || is == wrong;
        match &wanted {
            Some(wanted) if is != wanted => {
                return Err(merge(agent, "", &json!({ "metadata": { "labels": { label_name: wanted } } })));
            }
            None if ours && !is.is_empty() => {
                return Err(merge(agent, "", &json!({ "metadata": { "labels": { label_name: null } } })));
            }
            _ => {}
        }
        matched += i64::from(wanted.as_deref() == Some(value));
        errors += i64::from(wanted.as_deref() == Some(&wrong));
    }
    if deleted {
        return pass.drop_finalizer(&class, FINALIZER);
    }
    let condition = if errors > 0 {
        Condition::new("QueryErrors", "True", "HasQueryErrors", format!("{errors} Agents: {why}"))
    } else {
        Condition::new("QueryErrors", "False", "NoQueryErrors", "No errors encountered when applying the query")
    };
    let status = json!({
        "matchedCount": matched, "errorCount": errors,
        "conditions": merged(&class["status"]["conditions"], &[condition], pass.now, false),
    });
    pass.status(&class, status)
}

/// Does the query say yes to that?
fn matches(query: &str, inventory: &Value) -> Result<bool, String> {
    let mut words = Words { rest: query.trim(), of: inventory };
    let answer = words.either()?;
    if !words.rest.is_empty() {
        return Err(format!("the query is not understood from here on: {}", words.rest));
    }
    answer.as_bool().ok_or_else(|| "the query does not give a boolean".to_owned())
}

struct Words<'a> {
    rest: &'a str,
    of: &'a Value,
}

impl<'a> Words<'a> {
    fn take(&mut self, word: &str) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn either(&mut self) -> Result<Value, String> {
        let mut left = self.both()?;
        while self.take("or ") {
            let right = self.both()?;
            left = json!(truth(&left) || truth(&right));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Value, String> {
        let mut left = self.compared()?;
        while self.take("and ") {
            let right = self.compared()?;
            left = json!(truth(&left) && truth(&right));
        }
        Ok(left)
    }

    fn compared(&mut self) -> Result<Value, String> {
        let left = self.value()?;
        for word in ["==", "!=", ">=", "<=", ">", "<"] {
            if self.take(word) {
                let right = self.value()?;
                let order = left.as_f64().partial_cmp(&right.as_f64());
                return Ok(json!(match word {
                    "==" => is_same(&left, &right),
                    "!=" => !is_same(&left, &right),
                    ">=" => order.is_some_and(|o| o.is_ge()),
                    "<=" => order.is_some_and(|o| o.is_le()),
                    ">" => order.is_some_and(|o| o.is_gt()),
                    _ => order.is_some_and(|o| o.is_lt()),
                }));
            }
        }
        Ok(left)
    }

    fn value(&mut self) -> Result<Value, String> {
        let value = self.plain()?;
        if self.take("|") {
            if self.take("not") {
                return Ok(json!(!truth(&value)));
            }
            return Err(format!("only `| not` is understood, not: | {}", self.rest));
        }
        Ok(value)
    }

    fn plain(&mut self) -> Result<Value, String> {
        if self.take("(") {
            let value = self.either()?;
            return if self.take(")") { Ok(value) } else { Err("a bracket is not closed".to_owned()) };
        }
        if let Some(rest) = self.rest.strip_prefix('"') {
            let (text, rest) = rest.split_once('"').ok_or("a text is not closed")?;
            self.rest = rest.trim_start();
            return Ok(json!(text));
        }
        let path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let end = self.rest.find(|c| !path(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        if let Some(members) = word.strip_prefix('.') {
            let parts = members.split('.').filter(|part| !part.is_empty());
            return Ok(parts.fold(self.of, |at, part| &at[part]).clone());
        }
        match word {
            "true" => Ok(json!(true)),
            "false" => Ok(json!(false)),
            "null" => Ok(Value::Null),
            number => number.parse::<f64>().map(|n| json!(n)).map_err(|_| {
                format!("the query is not understood: {}{}", word, if rest.is_empty() { "" } else { rest })
            }),
        }
    }
}

/// Numbers are the same whether they are written with a point or without.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

fn truth(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(r#".cpu.count == 8"#, Ok(true))]
    #[case(r#".cpu.count == 8.0 and .cpu.count != 9"#, Ok(true))]
    #[case(r#".cpu.count >= 8 and .memory.physicalBytes > 100"#, Ok(true))]
    #[case(r#".cpu.architecture == "arm64" or (.cpu.count < 4)"#, Ok(false))]
    #[case(r#".systemVendor.virtual | not"#, Ok(true))]
    #[case(r#".cpu.count"#, Err(()))]
    #[case(r#"[.disks[] | .sizeBytes] | max > 5"#, Err(()))]
    fn queries(#[case] query: &str, #[case] answer: Result<bool, ()>) {
        let inventory = json!({"cpu": {"count": 8, "architecture": "x86_64"}, "memory": {"physicalBytes": 200},
                               "systemVendor": {"virtual": false}});
        assert_eq!(matches(query, &inventory).map_err(|_| ()), answer);
    }
}
