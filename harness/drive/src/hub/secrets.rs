//! Secrets that the run gave, or the service made: what stands in Secrets of the hub must not stand anywhere else. Only where it does, and
//! which kind of secret it is, goes into the history, never the secret itself.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Shorter texts are words that stand everywhere.
const LEAST: usize = 8;
/// Lines of a key that are at least so long are of nobody else.
const OF_A_KEY: usize = 40;

/// What is secret: the text, and what it is for people.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    known: BTreeMap<String, &'static str>,
}

impl Secrets {
    /// Takes in a Secret.
    pub(super) fn learn(&mut self, secret: &Value) {
        for (key, value) in secret["data"].as_object().into_iter().flatten() {
            let bytes = value.as_str().and_then(|text| STANDARD.decode(text).ok());
            let Some(text) = bytes.and_then(|bytes| String::from_utf8(bytes).ok()) else { continue };
            match key.as_str() {
                ".dockerconfigjson" => self.pull_secret(&text),
                "password" => self.keep(&text, "a password"),
                "kubeconfig" => {
                    self.keep(&text, "a kubeconfig");
                    for of in ["client-key-data:", "token:"] {
                        let values = text.lines().filter_map(|line| line.trim().strip_prefix(of));
                        values.for_each(|value| self.keep(value, "the key of a kubeconfig"));
                    }
                }
                _ if text.contains("PRIVATE KEY-----") => {
                    let of_key = text.lines().filter(|line| line.len() >= OF_A_KEY && !line.contains("-----"));
                    of_key.for_each(|line| self.keep(line, "a private key"));
                }
                _ => {}
            }
        }
    }

    fn pull_secret(&mut self, text: &str) {
        self.keep(text, "a pull secret");
        // Others write it in another order, or a part of it.
        let whole: Value = serde_json::from_str(text).unwrap_or_default();
        for (_, registry) in whole["auths"].as_object().into_iter().flatten() {
            let Some(auth) = registry["auth"].as_str() else { continue };
            self.keep(auth, "a pull secret");
            let decoded = STANDARD.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some((_, password)) = decoded.as_deref().and_then(|text| text.split_once(':')) {
                self.keep(password, "a pull secret");
            }
        }
    }

    fn keep(&mut self, text: &str, what: &'static str) {
        let text = text.trim().trim_matches('"');
        if text.len() >= LEAST {
            self.known.entry(text.to_owned()).or_insert(what);
        }
    }

    /// Where in a resource's status, labels and annotations a secret stands, and which kind of secret.
    pub(super) fn shown_in(&self, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        if self.known.is_empty() {
            return found;
        }
        let metadata = &object["metadata"];
        let places = [
            ("status", &object["status"]),
            ("metadata.annotations", &metadata["annotations"]),
            ("metadata.labels", &metadata["labels"]),
        ];
        for (path, value) in places {
            self.look(path, value, &mut found);
        }
        found
    }

    fn look(&self, path: &str, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) if text.len() >= LEAST => {
                if let Some((_, what)) = self.known.iter().find(|(secret, _)| text.contains(secret.as_str())) {
                    found.push(format!("{what} in {path}"));
                }
            }
            Value::Array(items) => {
                for (n, item) in items.iter().enumerate() {
                    // Conditions are called by their type.
                    let name = item["type"].as_str().map_or_else(|| n.to_string(), str::to_owned);
                    self.look(&format!("{path}[{name}]"), item, found);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    self.look(&format!("{path}.{name}"), member, found);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const AUTH: &str = "dmxhYjpzZXNhbS1vcGVu";

    fn known() -> Secrets {
        let mut secrets = Secrets::default();
        let pull = format!(r#"{{"auths":{{"quay.io":{{"auth":"{AUTH}","email":"somebody@example.com"}}}}}}"#);
        let key = format!("-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n", "k".repeat(64));
        let kubeconfig = "users:\n- name: admin\n  user:\n    client-key-data: c2VjcmV0LWtleQ==\n";
        let data = json!({
            ".dockerconfigjson": STANDARD.encode(pull), "password": STANDARD.encode("abcde-fghij"), "tls.key": STANDARD.encode(key),
            "username": STANDARD.encode("kubeadmin"), "kubeconfig": STANDARD.encode(kubeconfig), "broken": 5,
        });
        secrets.learn(&json!({ "kind": "Secret", "data": data }));
        secrets
    }

    #[rstest]
    #[case::nothing(json!({ "status": { "text": "kubeadmin of somebody@example.com at quay.io" } }), &[])]
    #[case::in_a_condition(
        json!({ "status": { "conditions": [{ "type": "SpecSynced", "message": format!("refused: {{\"auth\": \"{AUTH}\"}}") }] } }),
        &["a pull secret in status.conditions[SpecSynced].message"])]
    #[case::decoded(json!({ "metadata": { "annotations": { "a/b": "it is sesam-open" } } }), &["a pull secret in metadata.annotations.a/b"])]
    #[case::of_kubeadmin(json!({ "status": { "x": ["abcde-fghij"] } }), &["a password in status.x[0]"])]
    #[case::a_key(json!({ "metadata": { "labels": { "l": "k".repeat(70) } } }), &["a private key in metadata.labels.l"])]
    #[case::of_a_kubeconfig(json!({ "status": { "x": "c2VjcmV0LWtleQ==" } }), &["the key of a kubeconfig in status.x"])]
    #[case::where_it_may(json!({ "spec": { "x": AUTH }, "data": { "x": AUTH } }), &[])]
    fn a_secret_is_found_where_it_may_not_be(#[case] object: Value, #[case] expected: &[&str]) {
        assert_eq!(known().shown_in(&object), expected);
    }
}
