//! The same calls on our Kubernetes API server and on a real one: every answer is compared, and so is what watches tell. The calls and the
//! differences that stay are data: `api_servers/calls.yaml`.
//!
//! Wants a real API server: `KUBEBUILDER_ASSETS` names the folder, as for envtest. Without it the test is skipped.

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use vlab_api::http::{Method, Request};
use vlab_client::{Answered, Endpoint, HttpConnection, lines};
use vlab_run::service::hub::{Hub, HubOrder};

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    /// What it is about; the same in no two calls.
    name: String,
    /// Method and path. `${name}` is what an earlier call has saved.
    call: String,
    /// Content type of the body: `json` (the default), `yaml`, `merge`, `strategic`, `patch`, `apply`, or any other.
    #[serde(default, rename = "type")]
    kind: Option<String>,
    /// `Accept`.
    #[serde(default)]
    accept: Option<String>,
    #[serde(default)]
    body: Option<Value>,
    /// A body that is no JSON.
    #[serde(default)]
    text: Option<String>,
    /// Saves what is at that JSON pointer of the answer.
    #[serde(default)]
    save: BTreeMap<String, String>,
    /// It is a watch: the events until it ends (`timeoutSeconds` in its path) are compared.
    #[serde(default)]
    watch: bool,
    /// Asked again until its status is this one: what others of the server do takes a moment.
    #[serde(default)]
    until: Option<u16>,
    /// Only the status is compared, because the body is about something else: which is said here.
    #[serde(default)]
    only_status: Option<String>,
    /// JSON pointers (`*` is any part) that differ, and why.
    #[serde(default)]
    differs: BTreeMap<String, String>,
}

/// What a server said to a call.
#[derive(Debug)]
struct Said {
    status: u16,
    kind: String,
    warnings: Vec<String>,
    bodies: Vec<Value>,
}

fn content_type(word: &str) -> &str {
    match word {
        "json" => "application/json",
        "yaml" => "application/yaml",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "patch" => "application/json-patch+json",
        "apply" => "application/apply-patch+yaml",
        other => other,
    }
}

fn method(word: &str) -> Method {
    match word {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        other => panic!("{other} is no method"),
    }
}

/// One server, and what was saved of its answers.
struct Server {
    endpoint: Endpoint,
    saved: BTreeMap<String, String>,
    seen: Seen,
}

/// Replaces what is different on each server by who came first.
#[derive(Default)]
struct Seen {
    uids: Vec<String>,
    versions: Vec<String>,
}

fn nth(list: &mut Vec<String>, what: &str, value: &str) -> String {
    let at = list.iter().position(|known| known == value).unwrap_or_else(|| {
        list.push(value.to_owned());
        list.len() - 1
    });
    format!("{what} {at}")
}

/// Members in any order are the same value.
fn in_one_order(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

impl Seen {
    fn plain(&mut self, key: &str, value: &mut Value, of_list: bool) {
        match value {
            Value::Object(members) => {
                let list = members.get("items").is_some() || members.get("type") == Some(&"BOOKMARK".into());
                // The owners of fields name items of lists by their keys.
                let keys: Vec<String> = members.keys().filter(|key| key.starts_with("k:{\"uid\":")).cloned().collect();
                for key in keys {
                    let plain = self
                        .uids
                        .iter()
                        .enumerate()
                        .fold(key.clone(), |key, (at, uid)| key.replace(uid, &at.to_string()));
                    let value = members.remove(&key).unwrap_or_default();
                    members.insert(plain, value);
                }
                for (key, value) in members {
                    let inherits = matches!(key.as_str(), "metadata" | "resourceVersion");
                    let of_list = list && matches!(key.as_str(), "metadata" | "object") || of_list && inherits;
                    self.plain(key, value, of_list);
                }
            }
            Value::String(text)
                if key == "cells" && text.strip_suffix('s').is_some_and(|n| n.parse::<u32>().is_ok()) =>
            {
                *text = "an age".to_owned();
            }
            Value::Array(values) => {
                values.iter_mut().for_each(|value| self.plain(key, value, false));
                // Owners of fields are sorted by the second in which they wrote, which is not the same on both.
                if key == "causes" || key == "managedFields" {
                    values.sort_by_key(in_one_order);
                }
            }
            Value::String(text) if key == "uid" => *text = nth(&mut self.uids, "uid", text),
            // Others of a real server write, too: what a list says only grows.
            Value::String(text) if key == "resourceVersion" && of_list => *text = "a version".to_owned(),
            Value::String(text) if key == "resourceVersion" && !text.is_empty() => {
                *text = nth(&mut self.versions, "version", text);
            }
            Value::String(text) if key.ends_with("Timestamp") || key == "time" || key == "lastTransitionTime" => {
                *text = "a time".to_owned();
            }
            Value::String(text) if key == "continue" && !text.is_empty() => *text = "more".to_owned(),
            Value::String(text) if key == "message" => {
                for (at, uid) in self.uids.iter().enumerate() {
                    *text = text.replace(uid.as_str(), &format!("uid {at}"));
                }
                // Where several things are wrong, the real server tells them in any order.
                if let Some((head, rest)) = text.split_once(" is invalid: [") {
                    let mut parts: Vec<&str> = rest.trim_end_matches(']').split(", ").collect();
                    parts.sort_unstable();
                    *text = format!("{head} is invalid: [{}]", parts.join(", "));
                }
            }
            _ => {}
        }
    }
}

impl Server {
    fn filled(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.saved {
            text = text.replace(&format!("${{{name}}}"), value);
        }
        assert!(!text.contains("${"), "{text}: nothing of that name was saved");
        text
    }

    async fn ask(&mut self, call: &Call) -> Said {
        let (verb, path) = call.call.split_once(' ').unwrap();
        let mut request = Request::new(method(verb), self.filled(path)).header("user-agent", "comparer/1");
        if let Some(body) = &call.body {
            request.body = self.filled(&body.to_string()).into();
        }
        if let Some(text) = &call.text {
            request.body = text.clone().into();
        }
        if call.body.is_some() || call.text.is_some() {
            request = request.header("content-type", content_type(call.kind.as_deref().unwrap_or("json")));
        }
        if let Some(accept) = &call.accept {
            request = request.header("accept", accept);
        }
        let mut said = if call.watch {
            self.follow(&request).await
        } else {
            let end = std::time::Instant::now() + ANSWER;
            loop {
                let said = self.once(&request).await;
                if call.until.is_none_or(|status| status == said.status) || std::time::Instant::now() > end {
                    break said;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        for (name, pointer) in &call.save {
            let value = said.bodies.first().and_then(|body| body.pointer(pointer));
            // What is not there is told by the comparison.
            let text = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            self.saved.insert(name.clone(), text.unwrap_or_default());
        }
        if call.only_status.is_none() {
            for body in &mut said.bodies {
                self.seen.plain("", body, false);
            }
        }
        said
    }

    async fn once(&self, request: &Request) -> Said {
        let answer = HttpConnection::new(self.endpoint.clone()).send(request, ANSWER).await;
        let answer = answer.unwrap_or_else(|error| panic!("{} {}: {error}", request.method, request.path));
        let header = |name: &'static str| answer.headers.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.clone());
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Said {
            status: answer.status,
            kind: header("content-type").next().unwrap_or_default(),
            warnings: header("warning").collect(),
            bodies: vec![body],
        }
    }

    async fn follow(&self, request: &Request) -> Said {
        let mut said = Said { status: 200, kind: String::new(), warnings: Vec::new(), bodies: Vec::new() };
        match lines(&self.endpoint, request, ANSWER).await.unwrap() {
            Answered::Refused(answer) => {
                said.status = answer.status;
                said.bodies.push(answer.decode().unwrap_or_default());
            }
            Answered::Lines(mut watch) => {
                while let Ok(Some(more)) = watch.next().await {
                    said.bodies.extend(more.iter().map(|line| serde_json::from_slice::<Value>(line).unwrap()));
                }
            }
        }
        said
    }
}

fn is_at(pattern: &str, pointer: &str) -> bool {
    let (pattern, pointer): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), pointer.split('/').collect());
    pattern.len() <= pointer.len() && pattern.iter().zip(&pointer).all(|(a, b)| *a == "*" || a == b)
}

/// Where two values differ.
fn differences(at: &str, ours: &Value, real: &Value, found: &mut Vec<(String, String)>) {
    match (ours, real) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                let none = Value::String("(nothing)".to_owned());
                let (a, b) = (a.get(key).unwrap_or(&none), b.get(key).unwrap_or(&none));
                differences(&format!("{at}/{escaped}"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{at}/{index}"), a, b, found);
            }
        }
        _ if ours != real => found.push((at.to_owned(), format!("ours {ours}\n        real {real}"))),
        _ => {}
    }
}

fn compare(call: &Call, ours: &Said, real: &Said) -> Vec<String> {
    let mut found = Vec::new();
    let value = |said: &Said| match call.only_status {
        Some(_) => Value::Null,
        None => serde_json::json!({ "bodies": said.bodies, "type": said.kind, "warnings": said.warnings }),
    };
    if ours.status != real.status {
        let (ours, real) = (format!("{} {:?}", ours.status, ours.bodies), format!("{} {:?}", real.status, real.bodies));
        found.push(("/status".to_owned(), format!("ours {ours}\n        real {real}")));
    }
    differences("", &value(ours), &value(real), &mut found);
    let mut told: Vec<String> = Vec::new();
    for (at, what) in &found {
        if !call.differs.keys().any(|pattern| is_at(pattern, at)) {
            told.push(format!("{}: {at}\n        {what}", call.name));
        }
    }
    for pattern in call.differs.keys() {
        if !found.iter().any(|(at, _)| is_at(pattern, at)) {
            told.push(format!("{}: {pattern} does not differ any more", call.name));
        }
    }
    told
}

fn beside(name: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    deps.parent().and_then(Path::parent).unwrap().join(name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lab_every_answer_is_that_of_a_real_api_server() {
    let calls = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api_servers/calls.yaml")).unwrap();
    let calls: Vec<Call> = serde_yaml::from_str(&calls).unwrap();
    let mut names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "two calls have one name: {names:?}");
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) else {
        vlab_skip::skip!("KUBEBUILDER_ASSETS names no folder with a real API server");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let ours = HubOrder { program: Some(beside("vlab-kube")), ..HubOrder::default() };
    let ours = Hub::start(&ours, None, &in_folder("ours"), None).await.unwrap();
    let real = Hub::start(&HubOrder::default(), Some(&assets), &in_folder("real"), None).await.unwrap();
    let server = |hub: &Hub| Server { endpoint: hub.endpoint().clone(), saved: BTreeMap::new(), seen: Seen::default() };
    let (mut a, mut b) = (server(&ours), server(&real));
    let mut told = Vec::new();
    for call in &calls {
        let (ours, real) = (a.ask(call).await, b.ask(call).await);
        told.extend(compare(call, &ours, &real));
    }
    ours.stop().await;
    real.stop().await;
    assert!(told.is_empty(), "{} of {} calls:\n{}", told.len(), calls.len(), told.join("\n"));
    println!("{} calls answered alike", calls.len());
}
