//! A server that keeps objects parsed answers as one that keeps bytes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request};
use vlab_kube::{Line, Memory, Options};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn at(seconds: u32) -> Timestamp {
    Timestamp::from_secs(1_700_000_000 + i64::from(seconds))
}

#[derive(Clone, Debug)]
enum Step {
    Make(&'static str, u8, Value),
    Write(&'static str, u8, &'static str, Value),
    Merge(&'static str, u8, Value),
    Get(&'static str, u8, &'static str),
    List(&'static str),
    Delete(&'static str, u8),
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({ "data": { "a": "1" } })),
        Just(
            json!({ "data": { "a": "1", "b": "ä\"\\" }, "metadata": { "labels": { "x": "y" }, "finalizers": ["f/g"] } })
        ),
        Just(json!({ "data": null, "unknown": [1, 2.5, { "deep": true }] })),
        Just(json!({ "spec": { "containers": [{ "name": "c", "image": "i" }] }, "status": { "phase": "Running" } })),
        Just(json!({ "data": { "a": 7 } })),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let kind = || prop_oneof![Just(MAPS), Just(PODS)];
    prop_oneof![
        (kind(), 0..3_u8, values()).prop_map(|(k, n, v)| Step::Make(k, n, v)),
        (kind(), 0..3_u8, prop_oneof![Just(""), Just("/status")], values())
            .prop_map(|(k, n, s, v)| Step::Write(k, n, s, v)),
        (kind(), 0..3_u8, values()).prop_map(|(k, n, v)| Step::Merge(k, n, v)),
        (
            kind(),
            0..3_u8,
            prop_oneof![
                Just("application/json"),
                Just("application/json;as=Table;v=v1;g=meta.k8s.io"),
                Just("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
            ]
        )
            .prop_map(|(k, n, accept)| Step::Get(k, n, accept)),
        kind().prop_map(Step::List),
        (kind(), 0..3_u8).prop_map(|(k, n)| Step::Delete(k, n)),
    ]
}

/// The request of a step, with its body as bytes or as it is.
fn request(step: &Step, parsed: bool) -> Request {
    let named = |value: &Value, n: u8| {
        let mut value = value.clone();
        if !value["metadata"].is_object() {
            value["metadata"] = json!({});
        }
        value["metadata"]["name"] = json!(format!("n{n}"));
        value
    };
    let with = |request: Request, value: Value| if parsed { request.object(value) } else { request.json(&value) };
    match step {
        Step::Make(kind, n, value) => with(Request::new(Method::Post, *kind), named(value, *n)),
        Step::Write(kind, n, sub, value) => {
            with(Request::new(Method::Put, format!("{kind}/n{n}{sub}")), named(value, *n))
        }
        Step::Merge(kind, n, value) => {
            let mut request = Request::new(Method::Patch, format!("{kind}/n{n}"));
            request.body = value.to_string().into();
            request.header("content-type", "application/merge-patch+json")
        }
        Step::Get(kind, n, accept) => Request::new(Method::Get, format!("{kind}/n{n}")).header("accept", *accept),
        Step::List(kind) => Request::new(Method::Get, *kind),
        Step::Delete(kind, n) => Request::new(Method::Delete, format!("{kind}/n{n}")),
    }
}

/// Every answer, and every line of a watch.
fn run(steps: &[Step], parsed: bool) -> Vec<String> {
    let mut memory = Memory::new(Options::default(), at(0));
    if parsed {
        memory.keep_parsed();
    }
    let watches = [MAPS, PODS].map(|kind| memory.watch(at(0), kind).unwrap());
    let mut said = Vec::new();
    for (now, step) in (1..).zip(steps) {
        let answer = memory.handle(at(now), &request(step, parsed));
        said.push(format!("{} {:?} {:?}", answer.status, answer.headers, answer.body));
        for watch in watches {
            let told = memory.core.poll_watch(at(now), watch);
            said.extend(told.lines.iter().map(|line: &Line| format!("{:?}", line.bytes())));
        }
    }
    said
}

proptest! {
    #[test]
    fn answers_and_watches_are_the_same(steps in proptest::collection::vec(steps(), 1..30)) {
        let bytes = run(&steps, false);
        prop_assert!(bytes.len() >= steps.len());
        prop_assert_eq!(bytes, run(&steps, true));
    }
}
