//! The probes recorded against the real service: the same requests must get the same codes and bodies.

#![expect(clippy::disallowed_methods, reason = "a test looks where its facts are")]

use serde_json::{Value, json};
use vlab_api::http::Method;

use super::lab::{Lab, PULL_SECRET};

/// The recorded file of that name, or `None` with a line that says that the test checks nothing.
pub(super) fn reference(name: &str) -> Option<String> {
    let Ok(folder) = std::env::var("VLAB_REFERENCE") else {
        vlab_skip::skip!("VLAB_REFERENCE is not set (the folder that has {name})");
        return None;
    };
    Some(std::fs::read_to_string(format!("{folder}/{name}")).unwrap_or_else(|e| panic!("{folder}/{name}: {e}")))
}

/// Members that the real service writes and this one leaves out, because they are empty there too.
const LEFT_OUT: &[&str] = &[];

#[test]
fn recorded_probes_get_the_same_answers() {
    let Some(text) = reference("transcripts/errors.json") else { return };
    let probes: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(probes.len() >= 58, "only {} probes", probes.len());
    let mut lab = Lab::new(5);
    let body = json!({"name": "probe", "openshift_version": "4.16", "pull_secret": PULL_SECRET, "base_dns_domain": "example.com"});
    let cluster = lab.ok(201, Method::Post, "/clusters", Some(body))["id"].as_str().unwrap().to_owned();
    let body = json!({"name": "probe", "pull_secret": PULL_SECRET, "cluster_id": cluster});
    let infra_env = lab.ok(201, Method::Post, "/infra-envs", Some(body))["id"].as_str().unwrap().to_owned();
    let ours = |text: &str| {
        text.replace("ddb0c2cd-27a8-48bd-83fb-dd40ab6732e8", &cluster)
            .replace("43d3bcd9-1e8d-4692-80ea-81ee769fccfc", &infra_env)
    };
    let mut differences = Vec::new();
    for probe in &probes {
        let label = probe["label"].as_str().unwrap();
        let method = Method::from_name(probe["method"].as_str().unwrap());
        let body: Option<Value> = Some(probe["body"].clone()).filter(|b| !b.is_null());
        let body = body.map(|b| serde_json::from_str(&ours(&b.to_string())).unwrap());
        let answer = lab.send(method, &ours(probe["path"].as_str().unwrap()), body.as_ref());
        let got: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        if json!(answer.status) != probe["status"] {
            differences.push(format!("{label}: {} instead of {}: {got}", answer.status, probe["status"]));
            continue;
        }
        let wanted: Value = serde_json::from_str(&ours(&probe["response"].to_string())).unwrap();
        if let Some(keys) = wanted.get("keys").and_then(Value::as_array) {
            let missing: Vec<&str> = keys
                .iter()
                .filter_map(Value::as_str)
                .filter(|k| got.get(*k).is_none() && !LEFT_OUT.contains(k))
                .collect();
            if !missing.is_empty() {
                differences.push(format!("{label}: members {missing:?} are missing"));
            }
        } else if wanted.as_str().is_some_and(|w| w.starts_with("list of")) {
            let empty = wanted == json!("list of 0");
            if got.as_array().is_none_or(|l| l.is_empty() != empty) {
                differences.push(format!("{label}: {got} instead of a {wanted}"));
            }
        } else if got != wanted {
            differences.push(format!("{label}:\n  got    {got}\n  wanted {wanted}"));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
