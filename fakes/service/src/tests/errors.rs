//! The probes recorded against the real service: the same requests must get the same codes and bodies.

use serde_json::{Value, json};
use vlab_api::http::Method;

use super::lab::{Lab, PULL_SECRET};

const TABLE: &str = "answers-to-mistakes.yaml";
const HEADING: &str = "Requests that are wrong in some way, and what the real service answers, reduced from a recording. `keys` are the members\n\
                       that an answer must have, `reason` and `message` the two forms of an error.";

/// What a request was recorded with in the place of the pull secret, and of the cluster and infra-env that were there.
const RECORDED: [(&str, &str); 3] = [
    (
        r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz","email":"a@b.c"},"cloud.openshift.com":{"auth":"dXNlcjpwYXNz","email":"a@b.c"},"registry.redhat.io":{"auth":"dXNlcjpwYXNz"}}}"#,
        "{pull-secret}",
    ),
    ("ddb0c2cd-27a8-48bd-83fb-dd40ab6732e8", "{cluster}"),
    ("43d3bcd9-1e8d-4692-80ea-81ee769fccfc", "{infra-env}"),
];

/// The value with other texts in all its texts.
fn replaced(value: &Value, texts: &[(&str, &str)]) -> Value {
    match value {
        Value::String(text) => texts.iter().fold(text.clone(), |text, (from, to)| text.replace(from, to)).into(),
        Value::Array(items) => items.iter().map(|v| replaced(v, texts)).collect(),
        Value::Object(members) => members.iter().map(|(name, v)| (name.clone(), replaced(v, texts))).collect(),
        other => other.clone(),
    }
}

/// The row of a recorded exchange. Of an error, its words; the rest follows from the code.
fn reduced(probe: &Value) -> Value {
    let response = &probe["response"];
    let answer = match (response.get("reason"), response.get("message"), response.get("keys"), response.as_str()) {
        (Some(reason), ..) => json!({ "reason": reason }),
        (_, Some(message), ..) => json!({ "message": message }),
        (_, _, Some(keys), _) => json!({ "keys": keys }),
        (.., Some(list)) => json!({ "list": if list == "list of 0" { "empty" } else { "some" } }),
        _ => Value::Null,
    };
    let mut row = json!({
        "what": probe["label"], "do": format!("{} {}", probe["method"].as_str().unwrap(), probe["path"].as_str().unwrap()),
        "status": probe["status"],
    });
    for (name, value) in [("body", &probe["body"]), ("answer", &answer)] {
        if !value.is_null() {
            row[name] = value.clone();
        }
    }
    replaced(&row, &RECORDED)
}

/// The body that goes with a row.
fn body_of(answer: &Value, status: u64) -> Value {
    match (answer.get("reason"), answer.get("message")) {
        (Some(reason), _) => {
            json!({ "code": status.to_string(), "href": "", "id": status, "kind": "Error", "reason": reason })
        }
        (_, Some(message)) => json!({ "code": status, "message": message }),
        _ => Value::Null,
    }
}

#[test]
fn the_table_of_answers_is_the_recorded_one() {
    let Some(text) = vlab_facts::source("transcripts/errors.json") else { return };
    let probes: Vec<Value> = serde_json::from_str(&text).unwrap();
    let rows: Vec<Value> = probes.iter().map(reduced).collect();
    for (probe, row) in probes.iter().zip(&rows) {
        let wanted = body_of(&row["answer"], probe["status"].as_u64().unwrap());
        let response = replaced(&probe["response"], &RECORDED);
        assert!(wanted.is_null() || wanted == response, "{row} leaves out something of {response}");
    }
    vlab_facts::agrees(TABLE, HEADING, &json!({ "requests": rows }));
}

#[test]
fn recorded_probes_get_the_same_answers() {
    let table = vlab_facts::table(TABLE);
    let rows = table["requests"].as_array().unwrap();
    assert!(rows.len() >= 58, "only {} requests", rows.len());
    let mut lab = Lab::new(5);
    let body = json!({"name": "probe", "openshift_version": "4.16", "pull_secret": PULL_SECRET, "base_dns_domain": "example.com"});
    let cluster = lab.ok(201, Method::Post, "/clusters", Some(body))["id"].as_str().unwrap().to_owned();
    let body = json!({"name": "probe", "pull_secret": PULL_SECRET, "cluster_id": cluster});
    let infra_env = lab.ok(201, Method::Post, "/infra-envs", Some(body))["id"].as_str().unwrap().to_owned();
    let ours = [("{pull-secret}", PULL_SECRET), ("{cluster}", &cluster), ("{infra-env}", &infra_env)];
    let mut differences = Vec::new();
    for row in rows {
        let row = replaced(row, &ours);
        let (what, answer, status) = (row["what"].as_str().unwrap(), &row["answer"], row["status"].as_u64().unwrap());
        let (method, path) = row["do"].as_str().unwrap().split_once(' ').unwrap();
        let sent = lab.send(Method::from_name(method), path, row.get("body"));
        let got: Value = serde_json::from_slice(&sent.body).unwrap_or(Value::Null);
        if u64::from(sent.status) != status {
            differences.push(format!("{what}: {} instead of {status}: {got}", sent.status));
            continue;
        }
        if let Some(keys) = answer["keys"].as_array() {
            let missing: Vec<&str> = keys.iter().filter_map(Value::as_str).filter(|k| got.get(*k).is_none()).collect();
            if !missing.is_empty() {
                differences.push(format!("{what}: members {missing:?} are missing"));
            }
        } else if let Some(list) = answer["list"].as_str() {
            if got.as_array().is_none_or(|l| l.is_empty() != (list == "empty")) {
                differences.push(format!("{what}: {got} instead of a list, {list}"));
            }
        } else if got != body_of(answer, status) {
            differences.push(format!("{what}:\n  got    {got}\n  wanted {}", body_of(answer, status)));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
