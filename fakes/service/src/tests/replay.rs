//! Installations recorded against the real service, replayed: the same requests at the same times must get the same codes
//! and show the same statuses.

use std::time::Duration;

use rstest::rstest;
use serde_json::Value;
use vlab_api::http::{Method, Request};

use super::errors::reference;
use super::lab::Lab;

const FREE: &str = r#"[{"network":"192.168.126.0/24","free_addresses":["192.168.126.100"]}]"#;

/// `phase_ms` is where between the ticks of the real service's monitors the recording began, as far as it tells: so long after
/// an instant at which both ticked.
#[rstest]
#[case("transcripts/fake-sno.jsonl", 7_000)]
#[case("transcripts/fake-ha-3-2.jsonl", 32_000)]
fn a_recorded_installation_goes_the_same_way(#[case] name: &str, #[case] phase_ms: u64) {
    let Some(text) = reference(name) else { return };
    let exchanges: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let mut lab = Lab::new(5);
    // Both monitors tick at every multiple of 40 s.
    lab.now = vlab_api::Timestamp::from_secs(1_795_179_080) + Duration::from_millis(phase_ms);
    let zero = lab.now;
    let mut ids: Vec<(String, String)> = Vec::new();
    let mut images: std::collections::BTreeMap<String, Vec<Value>> = Default::default();
    let mut differences = Vec::new();
    for (n, exchange) in exchanges.iter().enumerate() {
        let at = zero + Duration::from_secs_f64(exchange["t"].as_f64().unwrap());
        lab.advance(at.since(lab.now));
        let ours = |text: &str| ids.iter().fold(text.to_owned(), |t, (theirs, mine)| t.replace(theirs, mine));
        let mut path = ours(exchange["path"].as_str().unwrap());
        // The recording's clock is not the lab's.
        if let Some(from) = path.find("timestamp=") {
            let to = path[from..].find('&').map_or(path.len(), |i| from + i);
            path.replace_range(from..to, &format!("timestamp={}", lab.now.as_secs()));
        }
        let method = Method::from_name(exchange["method"].as_str().unwrap());
        let mut request = Request::new(method, path.clone());
        if !exchange["body"].is_null() {
            let mut body: Value = serde_json::from_str(&ours(&exchange["body"].to_string())).unwrap();
            if body["output"].as_str().is_some_and(|o| o.ends_with("(cut)")) {
                // Lists of free addresses were cut in the recording; one address does as well.
                assert_eq!(body["step_type"], "free-network-addresses", "{name} #{n}");
                body["output"] = FREE.into();
            }
            if body["step_type"] == "container-image-availability" {
                // Names of images inside of a release are the service's own.
                let asked = images.get(&path).cloned().unwrap_or_default();
                let results = asked.iter().map(|i| serde_json::json!({"name": i, "result": "success", "size_bytes": 1000, "time": 1, "download_rate": 100}));
                body["output"] = serde_json::json!({"images": results.collect::<Vec<_>>()}).to_string().into();
            }
            request = request.json(&body);
        }
        let answer = lab.call(&request);
        let got: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        let wanted = &exchange["response"];
        let place = format!("#{n} t={} {method} {path}", exchange["t"]);
        if exchange["status"].as_u64() != Some(answer.status.into()) {
            differences.push(format!("{place}: {} instead of {}: {got}", answer.status, exchange["status"]));
            continue;
        }
        if n < 2 {
            ids.push((wanted["id"].as_str().unwrap().to_owned(), got["id"].as_str().unwrap().to_owned()));
        }
        for (what, mine, theirs) in statuses(&got, wanted) {
            if mine != theirs {
                differences.push(format!("{place}: {what} is {mine} instead of {theirs}"));
            }
        }
        for step in got["instructions"].as_array().into_iter().flatten() {
            if step["step_type"] == "container-image-availability" {
                let args: Value = serde_json::from_str(step["args"][0].as_str().unwrap()).unwrap();
                let poll = path.split('?').next().unwrap().to_owned();
                images.insert(poll, args["images"].as_array().unwrap().clone());
            }
        }
        if let (Some(mine), Some(theirs)) = (steps(&got), steps(wanted))
            && mine != theirs
        {
            differences.push(format!("{place}: steps {mine:?} instead of {theirs:?}"));
        }
    }
    assert!(exchanges.len() > 100);
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// Statuses of a cluster (or host) and of the hosts in it: what, ours, theirs.
fn statuses(got: &Value, wanted: &Value) -> Vec<(String, String, String)> {
    let text = |v: &Value| v["status"].as_str().unwrap_or("").to_owned();
    let mut list = Vec::new();
    if wanted["status"].is_string() {
        list.push(("status".to_owned(), text(got), text(wanted)));
    }
    for host in wanted["hosts"].as_array().into_iter().flatten().filter(|h| h["status"].is_string()) {
        let mine = got["hosts"].as_array().into_iter().flatten().find(|h| h["id"] == host["id"]);
        list.push((format!("host {}", host["id"]), mine.map_or_else(String::new, text), text(host)));
    }
    list
}

/// Types of the steps in an answer to a poll.
fn steps(answer: &Value) -> Option<Vec<&str>> {
    answer.get("next_instruction_seconds")?;
    Some(answer["instructions"].as_array().into_iter().flatten().filter_map(|s| s["step_type"].as_str()).collect())
}
