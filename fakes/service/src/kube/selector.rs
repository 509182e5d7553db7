//! Label selectors as resources have them (`metav1.LabelSelector`): labels that must be so, and expressions about them.

use serde_json::Value;

use super::spec::text_map;

/// What one expression asks of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
}

/// A selector. An empty one selects nothing here: whoever names no labels wants none, and not all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    rules: Vec<Rule>,
}

impl Selector {
    /// Reads one. What is wrong with it is told as the product's library does.
    pub(super) fn read(selector: &Value) -> Result<Self, String> {
        let labels = text_map(&selector["matchLabels"]);
        let mut rules: Vec<Rule> = labels.into_iter().map(|(name, value)| Rule::In(name, vec![value])).collect();
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            rules.push(rule(expression)?);
        }
        Ok(Self { rules })
    }

    /// Does it say nothing?
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Do these labels fulfil all that it says?
    pub(super) fn selects(&self, labels: &Value) -> bool {
        self.rules.iter().all(|rule| {
            let is = |name: &String| labels[name].as_str();
            let among = |name, values: &[String]| is(name).is_some_and(|is| values.iter().any(|value| value == is));
            match rule {
                Rule::In(name, values) => among(name, values),
                // A label that is not there has none of the values.
                Rule::NotIn(name, values) => !among(name, values),
                Rule::Exists(name) => is(name).is_some(),
                Rule::DoesNotExist(name) => is(name).is_none(),
            }
        })
    }
}

fn rule(expression: &Value) -> Result<Rule, String> {
    let key = expression["key"].as_str().unwrap_or_default().to_owned();
    let values: Vec<String> =
        expression["values"].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect();
    let operator = expression["operator"].as_str().unwrap_or_default();
    match (operator, values.is_empty()) {
        ("In" | "NotIn", true) => {
            Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".to_owned())
        }
        ("In", false) => Ok(Rule::In(key, values)),
        ("NotIn", false) => Ok(Rule::NotIn(key, values)),
        ("Exists" | "DoesNotExist", false) => {
            Err("values: Invalid value: values set must be empty for exists and does not exist".to_owned())
        }
        ("Exists", true) => Ok(Rule::Exists(key)),
        ("DoesNotExist", true) => Ok(Rule::DoesNotExist(key)),
        _ => Err(format!("{operator:?} is not a valid label selector operator")),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::labels(json!({"matchLabels": {"a": "1"}}), &[true, false, false])]
    #[case::one_of(json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}), &[true, true, false])]
    #[case::none_of(json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}), &[false, true, true])]
    #[case::there(json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), &[true, true, false])]
    #[case::not_there(json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), &[false, false, true])]
    #[case::both(
        json!({"matchLabels": {"a": "2"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}),
        &[false, true, false]
    )]
    fn what_a_selector_selects(#[case] selector: Value, #[case] expected: &[bool]) {
        let selector = Selector::read(&selector).unwrap();
        let labels = [json!({"a": "1"}), json!({"a": "2", "b": ""}), Value::Null];
        assert_eq!(labels.map(|labels| selector.selects(&labels)), expected);
        assert!(!selector.is_empty());
    }

    #[rstest]
    #[case(json!({"matchExpressions": [{"key": "a", "operator": "In"}]}), "can't be empty")]
    #[case(json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]}), "must be empty")]
    #[case(json!({"matchExpressions": [{"key": "a", "operator": "Is"}]}), "\"Is\" is not a valid label selector operator")]
    fn what_is_wrong_is_told(#[case] selector: Value, #[case] says: &str) {
        assert!(Selector::read(&selector).unwrap_err().contains(says));
    }

    #[test]
    fn nothing_is_an_empty_selector() {
        assert!(Selector::read(&Value::Null).unwrap().is_empty());
        assert!(Selector::read(&json!({"matchLabels": {}, "matchExpressions": []})).unwrap().is_empty());
    }
}
