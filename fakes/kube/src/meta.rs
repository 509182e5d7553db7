//! `metadata`: what is set, and what may be in it.

use std::sync::LazyLock;
use std::time::Duration;

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use regex::Regex;
use serde_json::{Map, Value, json};
use vlab_api::Timestamp;
use vlab_api::labels::{SUBDOMAIN_TEXT, is_subdomain, wrong_with_name, wrong_with_value};

use crate::failure::Cause;
use crate::resource::Resource;

/// An instant to the second, as objects write it.
pub(crate) fn stamp(now: Timestamp) -> String {
    let mut text = now.to_string();
    text.truncate(19);
    text + "Z"
}

/// An instant that somebody wrote.
pub(crate) fn instant(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// How long ago, as `kubectl get` shows it.
pub(crate) fn age(then: &str, now: Timestamp) -> String {
    let Some(then) = instant(then) else { return "<unknown>".into() };
    human(now.since(then))
}

fn human(span: Duration) -> String {
    let seconds = span.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: u64, a: &str, small: u64, b: &str| {
        if small == 0 { format!("{large}{a}") } else { format!("{large}{a}{small}{b}") }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ => two(days / 365, "y", days % 365, "d"),
    }
}

/// A new uid from the dice of the request.
pub(crate) fn uid(dice: &mut ChaCha8Rng) -> String {
    let mut b: [u8; 16] = [0; 16];
    dice.fill_bytes(&mut b);
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    let hex: String = b.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The end of a generated name.
pub(crate) fn suffix(dice: &mut ChaCha8Rng) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(LETTERS[dice.next_u32() as usize % LETTERS.len()])).collect()
}

/// `metadata` as a map; made when it is not there.
pub(crate) fn of(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    match &mut object["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("it was just made one"),
    }
}

/// A text of the metadata; empty when it is not there.
pub(crate) fn text<'o>(object: &'o Value, name: &str) -> &'o str {
    object["metadata"][name].as_str().unwrap_or_default()
}

#[expect(clippy::unwrap_used, reason = "constants, compiled by the first test that needs one")]
fn regex(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

static LABEL: LazyLock<Regex> = LazyLock::new(|| regex("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));

const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// What is wrong with the name of a label, annotation or finalizer.
fn qualified(path: &str, name: &str, causes: &mut Vec<Cause>) {
    causes.extend(wrong_with_name(name).iter().map(|detail| Cause::invalid(path, &json!(name), detail)));
}

/// What is wrong with labels at that path.
pub(crate) fn check_labels(path: &str, labels: &Value, causes: &mut Vec<Cause>) {
    for (name, value) in labels.as_object().into_iter().flatten() {
        qualified(path, name, causes);
        let wrong = wrong_with_value(value.as_str().unwrap_or_default());
        causes.extend(wrong.into_iter().map(|detail| Cause::invalid(path, value, detail)));
    }
}

/// What is wrong with the metadata of an object of that kind.
pub(crate) fn check(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let name = text(object, "name");
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if resource.group.starts_with("rbac.") || resource.plural == "events" {
        // Roles and events are only kept from names that no path can have. Source: rest.BeforeCreate, ValidateRBACName.
        let within = ['/', '%'].into_iter().find(|c| name.contains(*c));
        if [".", ".."].contains(&name) {
            causes.push(Cause::invalid("metadata.name", &json!(name), &format!("may not be '{name}'")));
        } else if let Some(within) = within {
            causes.push(Cause::invalid("metadata.name", &json!(name), &format!("may not contain '{within}'")));
        }
    } else {
        let label = matches!(resource.plural.as_str(), "namespaces" | "services") && resource.group.is_empty();
        let (fits, rule, most) =
            if label { (LABEL.is_match(name), LABEL_TEXT, 63) } else { (is_subdomain(name), SUBDOMAIN_TEXT, 253) };
        if !fits {
            causes.push(Cause::invalid("metadata.name", &json!(name), rule));
        }
        if name.len() > most {
            causes.push(Cause::invalid("metadata.name", &json!(name), &format!("must be no more than {most} bytes")));
        }
    }
    let meta = &object["metadata"];
    check_labels("metadata.labels", &meta["labels"], causes);
    let mut size = 0;
    for (name, value) in meta["annotations"].as_object().into_iter().flatten() {
        qualified("metadata.annotations", &name.to_lowercase(), causes);
        size += name.len() + value.as_str().map_or(0, str::len);
    }
    if size > 256 * 1024 {
        causes.push(Cause::too_long("metadata.annotations", 256 * 1024));
    }
    for (at, finalizer) in meta["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).enumerate() {
        qualified("metadata.finalizers", finalizer, causes);
        if !finalizer.contains('/')
            && !matches!(finalizer, "orphan" | "foregroundDeletion" | "kubernetes")
            && resource.group.is_empty()
        {
            causes.push(Cause::invalid(
                format!("metadata.finalizers[{at}]"),
                &json!(finalizer),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    owners(meta, causes);
}

fn owners(meta: &Value, causes: &mut Vec<Cause>) {
    let mut controllers = 0;
    for owner in meta["ownerReferences"].as_array().into_iter().flatten() {
        let path = "metadata.ownerReferences";
        for (name, what) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[name].as_str().is_none_or(str::is_empty) {
                causes.push(Cause::invalid(format!("{path}.{name}"), &json!(""), what));
            }
        }
        controllers += usize::from(owner["controller"] == true);
    }
    if controllers > 1 {
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            &meta["ownerReferences"],
            "Only one reference can have Controller set to true",
        ));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", "events", "AssistedControllerIsReady", 0)]
    #[case("", "events", "a/b", 1)]
    #[case("rbac.authorization.k8s.io", "clusterroles", "system:node", 0)]
    #[case("rbac.authorization.k8s.io", "clusterroles", "..", 1)]
    #[case("", "configmaps", "Upper", 1)]
    #[case("", "namespaces", "a.b", 1)]
    fn names(#[case] group: &str, #[case] plural: &str, #[case] name: &str, #[case] wrong: usize) {
        let kinds = crate::builtin::kinds::all();
        let resource = kinds.into_iter().find(|r| r.group == group && r.plural == plural).unwrap();
        let mut causes = Vec::new();
        check(&resource, &json!({ "metadata": { "name": name } }), &mut causes);
        assert_eq!(causes.len(), wrong, "{causes:?}");
    }

    #[rstest]
    #[case(5, "5s")]
    #[case(125, "2m5s")]
    #[case(1200, "20m")]
    #[case(11_000, "3h3m")]
    #[case(90_000, "25h")]
    #[case(86_400 * 3, "3d")]
    #[case(86_400 * 400, "400d")]
    fn ages(#[case] seconds: u64, #[case] text: &str) {
        assert_eq!(human(Duration::from_secs(seconds)), text);
    }

    #[rstest]
    #[case("a", "b", 0)]
    #[case("example.com/a.b_c", "", 0)]
    #[case("a/b/c", "", 1)]
    #[case("a", "-x", 1)]
    #[case("-a", "x", 1)]
    #[case("bmac.x.io.name", "a b", 1)]
    fn labels(#[case] name: &str, #[case] value: &str, #[case] wrong: usize) {
        let mut causes = Vec::new();
        check_labels("metadata.labels", &json!({ name: value }), &mut causes);
        assert_eq!(causes.len(), wrong, "{causes:?}");
    }

    #[test]
    fn stamps() {
        let now = Timestamp::from_micros(1_700_000_000_123_456);
        assert_eq!(stamp(now), "2023-11-14T22:13:20Z");
        assert_eq!(now.to_micro_string(), "2023-11-14T22:13:20.123456Z");
    }
}
