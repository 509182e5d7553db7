//! Label and field selectors.

use std::collections::BTreeMap;

use vlab_api::labels::Rule;

use crate::failure::Failure;

/// A label selector; empty takes everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(Vec<Rule>);

impl Labels {
    /// Reads `a=b,c!=d,e in (f,g),h,!i`.
    ///
    /// # Errors
    /// 400 with what cannot be read.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut rules = Vec::new();
        for part in split(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            rules.push(rule(part).ok_or_else(|| {
                Failure::bad_request(format!(
                    "unable to parse requirement: found {part:?}, expected: !, identifier, or 'end of string'"
                ))
            })?);
        }
        Ok(Self(rules))
    }

    /// Takes it everything?
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Do these labels fit?
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|rule| rule.fits(|name| labels.get(name).map(String::as_str)))
    }
}

/// At commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn rule(part: &str) -> Option<Rule> {
    let name = |s: &str| {
        let s = s.trim();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        (!s.is_empty() && s.chars().all(fits)).then(|| s.to_owned())
    };
    let set = |s: &str| {
        let inner = s.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(|v| v.trim().to_owned()).collect::<Vec<_>>())
    };
    if let Some((key, value)) = part.split_once("!=") {
        return Some(Rule::NotIn(name(key)?, vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(Rule::In(name(key)?, vec![value.trim().to_owned()]));
    }
    if let Some((key, values)) =
        part.split_once(" notin ").or_else(|| part.split_once(" notin(").map(|_| cut(part, "notin")))
    {
        return Some(Rule::NotIn(name(key)?, set(values)?));
    }
    if let Some((key, values)) = part.split_once(" in ").or_else(|| part.split_once(" in(").map(|_| cut(part, "in"))) {
        return Some(Rule::In(name(key)?, set(values)?));
    }
    if let Some((key, value)) = part.split_once('>') {
        return Some(Rule::Greater(name(key)?, value.trim().parse().ok()?));
    }
    if let Some((key, value)) = part.split_once('<') {
        return Some(Rule::Less(name(key)?, value.trim().parse().ok()?));
    }
    if let Some(key) = part.strip_prefix('!') {
        return Some(Rule::DoesNotExist(name(key)?));
    }
    Some(Rule::Exists(name(part)?))
}

fn cut<'t>(part: &'t str, word: &str) -> (&'t str, &'t str) {
    let at = part.find(&format!(" {word}(")).unwrap_or(0);
    (&part[..at], &part[at + 1 + word.len()..])
}

/// A field selector: field, value, and whether it must be equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub Vec<(String, String, bool)>);

impl Fields {
    /// Reads `metadata.name=x,spec.nodeName!=y`.
    ///
    /// # Errors
    /// 400 with what cannot be read.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut all = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value, equal) = if let Some((name, value)) = part.split_once("!=") {
                (name, value, false)
            } else if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (name, value, true)
            } else {
                return Err(Failure::bad_request(format!("invalid selector: '{part}'; can't understand '{part}'")));
            };
            all.push((name.to_owned(), value.to_owned(), equal));
        }
        Ok(Self(all))
    }

    /// Takes it everything?
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Does an object fit whose fields have these values?
    pub(crate) fn matches<'v>(&self, field: impl Fn(&str) -> std::borrow::Cow<'v, str>) -> bool {
        self.0.iter().all(|(name, value, equal)| (field(name) == *value) == *equal)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a=b", true)]
    #[case("a==b,c", true)]
    #[case("a!=b", false)]
    #[case("x!=b", true)]
    #[case("a in (b,z),!x", true)]
    #[case("a in(z)", false)]
    #[case("a notin (z)", true)]
    #[case("x", false)]
    #[case("n>3", true)]
    #[case("n<3", false)]
    #[case("", true)]
    fn labels(#[case] selector: &str, #[case] fits: bool) {
        let labels = [("a", "b"), ("c", "d"), ("n", "5")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        assert_eq!(Labels::parse(selector).unwrap().matches(&labels), fits);
    }

    #[rstest]
    #[case("a b")]
    #[case("a in b")]
    fn what_is_no_selector(#[case] selector: &str) {
        assert_eq!(Labels::parse(selector).unwrap_err().code, 400);
    }

    #[test]
    fn fields() {
        let fields = Fields::parse("metadata.name=x,spec.nodeName!=y").unwrap();
        assert!(fields.matches(|f| if f == "metadata.name" { "x".into() } else { "".into() }));
        assert!(!fields.matches(|_| "y".into()));
        assert!(Fields::parse("nothing").is_err());
    }
}
