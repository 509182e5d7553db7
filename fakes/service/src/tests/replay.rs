//! Installations recorded against the real service, replayed: the same requests at the same times must get the same codes
//! and show the same statuses.

use std::collections::BTreeMap;
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use vlab_api::http::{Method, Request};
use vlab_facts::recording::{Exchange, Recording};

use super::lab::Lab;

const AGENT: &str = "quay.io/edge-infrastructure/assisted-installer-agent:latest";
const FREE: &str = r#"[{"network":"192.168.126.0/24","free_addresses":["192.168.126.100"]}]"#;

/// `phase_ms` is where between the ticks of the real service's monitors the recording began, as far as it tells: so long after
/// an instant at which both ticked.
#[rstest]
#[case("recorded-sno.yaml", 7_000)]
#[case("recorded-ha-3-2.yaml", 32_000)]
fn a_recorded_installation_goes_the_same_way(#[case] name: &str, #[case] phase_ms: u64) {
    let exchanges = Recording::of(&vlab_facts::table(name)).exchanges;
    let mut lab = Lab::new(5);
    // Both monitors tick at every multiple of 40 s.
    lab.now = vlab_api::Timestamp::from_secs(1_795_179_080) + Duration::from_millis(phase_ms);
    let zero = lab.now;
    let mut ids: Vec<(&str, String)> = Vec::new();
    let mut images: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut differences = Vec::new();
    for (n, exchange) in exchanges.iter().enumerate() {
        let at = zero + Duration::from_secs_f64(exchange.t);
        lab.advance(at.since(lab.now));
        let request = request(exchange, &ids, &images, &lab);
        let answer = lab.call(&request);
        let got: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        let place = format!("#{n} t={} {} {}", exchange.t, exchange.method, exchange.path);
        if exchange.status != answer.status {
            differences.push(format!("{place}: {} instead of {}: {got}", answer.status, exchange.status));
            continue;
        }
        if n < 2 {
            ids.push((["{cluster}", "{infra-env}"][n], got["id"].as_str().unwrap().to_owned()));
        }
        for (what, mine, theirs) in statuses(&got, &exchange.shows) {
            if mine != theirs {
                differences.push(format!("{place}: {what} is {mine} instead of {theirs}"));
            }
        }
        for step in got["instructions"].as_array().into_iter().flatten() {
            if step["step_type"] == "container-image-availability" {
                let args: Value = serde_json::from_str(step["args"][0].as_str().unwrap()).unwrap();
                images.insert(exchange.path.clone(), args["images"].as_array().unwrap().clone());
            }
        }
        if exchange.polls && exchange.status == 200 {
            let (mine, theirs) = (steps(&got["instructions"], "step_type"), steps(&exchange.shows["steps"], "type"));
            if mine != theirs {
                differences.push(format!("{place}: steps {mine:?} instead of {theirs:?}"));
            }
        }
    }
    assert!(exchanges.len() > 100);
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// The request of an exchange, to our service: with its ids, and its clock.
fn request(exchange: &Exchange, ids: &[(&str, String)], images: &BTreeMap<String, Vec<Value>>, lab: &Lab) -> Request {
    let ours = |text: &str| ids.iter().fold(text.to_owned(), |t, (name, id)| t.replace(name, id));
    let mut path = format!("/api/assisted-install/v2{}", ours(&exchange.path));
    if exchange.polls {
        // The recording's clock is not the lab's.
        path += &format!("?timestamp={}&discovery_agent_version={AGENT}", lab.now.as_secs());
    }
    let request = Request::new(Method::from_name(&exchange.method), path);
    if exchange.body.is_null() {
        return request;
    }
    let mut body: Value = serde_json::from_str(&ours(&exchange.body.to_string())).unwrap();
    if body["output"].as_str().is_some_and(|o| o.ends_with("(cut)")) {
        // Lists of free addresses were cut in the recording; one address does as well.
        assert_eq!(body["step_type"], "free-network-addresses", "{}", exchange.path);
        body["output"] = FREE.into();
    }
    if body["step_type"] == "container-image-availability" {
        // Names of images inside of a release are the service's own.
        let asked = images.get(&exchange.path).cloned().unwrap_or_default();
        let pulled = |image: &Value| json!({"name": image, "result": "success", "size_bytes": 1000, "time": 1, "download_rate": 100});
        let results: Vec<Value> = asked.iter().map(pulled).collect();
        body["output"] = json!({ "images": results }).to_string().into();
    }
    request.json(&body)
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

/// Types of steps.
fn steps<'a>(steps: &'a Value, member: &str) -> Vec<&'a str> {
    steps.as_array().into_iter().flatten().filter_map(|s| s[member].as_str()).collect()
}
