//! What selects by labels, as resources of Kubernetes write it (`metav1.LabelSelector`): labels that must be so, and expressions
//! about them. Source: `k8s.io/apimachinery`, `pkg/labels` and `pkg/apis/meta/v1`.

use serde_json::Value;

/// What a DNS subdomain is, in the words of Kubernetes.
pub const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const WORD_TEXT: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
/// Longest name and value of a label, in bytes.
const MOST: usize = 63;

/// Is it a DNS subdomain: lower case words with dashes inside, and points between them? Its length is not looked at.
pub fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.chars().all(fits)
    };
    text.split('.').all(part)
}

fn is_word(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    edge(text.chars().next()) && edge(text.chars().last()) && text.chars().all(fits)
}

/// What is wrong with the name of a label, annotation or finalizer, in the words of Kubernetes; nothing: it is one.
/// Source: `k8s.io/apimachinery`, `pkg/util/validation`, `IsQualifiedName`.
pub fn wrong_with_name(name: &str) -> Vec<String> {
    let (prefix, word) = match name.split_once('/') {
        Some((prefix, word)) => (Some(prefix), word),
        None => (None, name),
    };
    if word.contains('/') {
        let form = WORD_TEXT.trim_start_matches("name part");
        return vec![format!(
            "a valid label key{form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )];
    }
    let mut wrong = Vec::new();
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".to_owned()),
        Some(prefix) if !is_subdomain(prefix) => wrong.push(format!("prefix part {SUBDOMAIN_TEXT}")),
        _ => {}
    }
    if word.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if word.len() > MOST {
        wrong.push(format!("name part must be no more than {MOST} bytes"));
    }
    if !is_word(word) {
        wrong.push(WORD_TEXT.to_owned());
    }
    wrong
}

/// The same of the value of a label. Source: there, `IsValidLabelValue`.
pub fn wrong_with_value(value: &str) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    if value.len() > MOST {
        wrong.push("must be no more than 63 bytes");
    }
    if !value.is_empty() && !is_word(value) {
        wrong.push(VALUE_TEXT);
    }
    wrong
}

/// What is asked of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It is there and has one of these values.
    In(String, Vec<String>),
    /// It has none of these values; one that is not there has none.
    NotIn(String, Vec<String>),
    /// It is there.
    Exists(String),
    /// It is not there.
    DoesNotExist(String),
    /// It is a whole number above this one. Only requests ask for it, no `LabelSelector` does.
    Greater(String, i64),
    /// It is a whole number below this one. Likewise.
    Less(String, i64),
}

impl Rule {
    /// Do labels fit? `label` gives the value of one, where it is there.
    pub fn fits<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        let among = |name: &String, values: &[String]| label(name).is_some_and(|is| values.iter().any(|v| v == is));
        let number = |name: &String| label(name).and_then(|is| is.parse::<i64>().ok());
        match self {
            Self::In(name, values) => among(name, values),
            Self::NotIn(name, values) => !among(name, values),
            Self::Exists(name) => label(name).is_some(),
            Self::DoesNotExist(name) => label(name).is_none(),
            Self::Greater(name, than) => number(name).is_some_and(|is| is > *than),
            Self::Less(name, than) => number(name).is_some_and(|is| is < *than),
        }
    }
}

/// A `LabelSelector`. An empty one fits everything; who means nothing by it asks [`Selector::is_empty`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    rules: Vec<Rule>,
}

impl Selector {
    /// Reads one; of what is no mapping, an empty one.
    ///
    /// # Errors
    /// What is wrong with one of its expressions.
    pub fn read(selector: &Value) -> Result<Self, String> {
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        let labels = labels.filter_map(|(name, value)| Some((name.clone(), vec![value.as_str()?.to_owned()])));
        let mut rules: Vec<Rule> = labels.map(|(name, values)| Rule::In(name, values)).collect();
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            rules.push(rule(expression)?);
        }
        Ok(Self { rules })
    }

    /// Does it say nothing?
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Do the labels of an object fit?
    pub fn fits(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.rules.iter().all(|rule| rule.fits(|name| labels[name].as_str()))
    }
}

fn rule(expression: &Value) -> Result<Rule, String> {
    let key = expression["key"].as_str().unwrap_or_default().to_owned();
    let values = expression["values"].as_array().into_iter().flatten();
    let values: Vec<String> = values.filter_map(|value| value.as_str().map(str::to_owned)).collect();
    let operator = expression["operator"].as_str().unwrap_or_default();
    match (operator, values.is_empty()) {
        ("In" | "NotIn", true) => Err(format!("{operator} of the label {key:?} needs values")),
        ("In", false) => Ok(Rule::In(key, values)),
        ("NotIn", false) => Ok(Rule::NotIn(key, values)),
        ("Exists" | "DoesNotExist", false) => Err(format!("{operator} of the label {key:?} takes no values")),
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
    #[case::nothing(json!({}), &[true, true, true])]
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
        assert_eq!(labels.map(|labels| selector.fits(&json!({"metadata": {"labels": labels}}))), expected);
    }

    #[rstest]
    #[case(json!({"matchExpressions": [{"key": "a", "operator": "In"}]}), "In of the label \"a\" needs values")]
    #[case(
        json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]}),
        "Exists of the label \"a\" takes no values"
    )]
    #[case(json!({"matchExpressions": [{"key": "a", "operator": "Is"}]}), "\"Is\" is not a valid label selector operator")]
    fn what_is_wrong_is_told(#[case] selector: Value, #[case] says: &str) {
        assert_eq!(Selector::read(&selector).unwrap_err(), says);
    }

    #[test]
    fn nothing_is_an_empty_selector() {
        assert!(Selector::read(&Value::Null).unwrap().is_empty());
        assert!(Selector::read(&json!({"matchLabels": {}, "matchExpressions": []})).unwrap().is_empty());
        assert!(!Selector::read(&json!({"matchLabels": {"a": "b"}})).unwrap().is_empty());
    }
}
