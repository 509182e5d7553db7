//! The wire types read what the real service and the real agent sent each other, and lose nothing of it.
//! The members that were seen are a table of our own. Where `VLAB_REFERENCE` names the recordings themselves, each exchange is
//! read and written again, and the table is compared with them.

#![expect(clippy::unwrap_used, reason = "tests: a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use vlab_api::registry::{ENUMS, object};
use vlab_api::spec::{FieldKind, StructSpec};
use vlab_api::{BASE_PATH, Timestamp};

const TABLE: &str = "recorded-members.yaml";
const HEADING: &str = "Members that the real service and its agent were seen to send, reduced from recordings: of each definition of the API the\n\
                       path of each member and the kinds of its values.";

/// Definition, path of a member, kinds of its values.
type Seen = BTreeMap<String, BTreeMap<String, BTreeSet<&'static str>>>;

/// Notes the members of a value.
fn note(seen: &mut BTreeMap<String, BTreeSet<&'static str>>, at: &str, value: &Value) {
    let kind = match value {
        Value::Null => return,
        Value::Object(members) => {
            for (name, value) in members {
                // The keys of maps are ids, networks and the like.
                let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
                    && name.parse::<uuid::Uuid>().is_err();
                let name = if is_name { name.as_str() } else { "{}" };
                note(seen, &if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }, value);
            }
            "object"
        }
        Value::Array(items) => {
            items.iter().for_each(|value| note(seen, &format!("{at}[]"), value));
            "list"
        }
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(text) if text.len() >= 20 && text.parse::<Timestamp>().is_ok() => "date-time",
        Value::String(text) if text.parse::<uuid::Uuid>().is_ok() => "uuid",
        Value::String(_) => "string",
    };
    if !at.is_empty() {
        seen.entry(at.to_owned()).or_default().insert(kind);
    }
}

/// The kind of the member at that path; `None` when there is none. What is below a map or anything is not known.
fn kind_at(spec: &'static StructSpec, path: &str) -> Option<FieldKind> {
    let mut kind = FieldKind::Object(spec);
    for part in path.split('.') {
        let name = part.trim_end_matches("[]");
        kind = match kind {
            FieldKind::Object(spec) => spec.field(name)?.kind,
            FieldKind::Map(items) => *items,
            _ => return Some(FieldKind::Any),
        };
        for _ in 0..part.matches("[]").count() {
            kind = match kind {
                FieldKind::Array(items) => *items,
                _ => return Some(FieldKind::Any),
            };
        }
    }
    Some(kind)
}

fn holds(kind: FieldKind, seen: &str) -> bool {
    match kind {
        FieldKind::Any => true,
        FieldKind::String => matches!(seen, "string" | "uuid" | "date-time"),
        FieldKind::Enum(_) => seen == "string",
        FieldKind::Uuid => seen == "uuid",
        FieldKind::DateTime => seen == "date-time",
        FieldKind::Integer => seen == "integer" || seen == "number",
        FieldKind::Number => seen == "integer" || seen == "number",
        FieldKind::Bool => seen == "boolean",
        FieldKind::Array(_) => seen == "list",
        FieldKind::Object(_) | FieldKind::Map(_) => seen == "object",
    }
}

#[test]
fn every_member_that_was_seen_is_a_member_here() {
    let table = vlab_facts::table(TABLE);
    let mut faults = Vec::new();
    for (definition, members) in table.as_object().unwrap() {
        let spec = object(definition).unwrap_or_else(|| panic!("no type {definition}")).spec;
        for (path, kinds) in members.as_object().unwrap() {
            let place = format!("{definition}.{path}");
            if NOT_OF_THE_SCHEMA.iter().any(|(member, _)| *member == place) {
                continue;
            }
            match kind_at(spec, path) {
                None => faults.push(format!("{place} is lost")),
                Some(kind) => {
                    let bad = kinds.as_array().unwrap().iter().filter(|k| !holds(kind, k.as_str().unwrap()));
                    faults.extend(bad.map(|k| format!("{place} was seen as {k} and is {kind:?}")));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for definition in
        ["cluster", "host", "steps", "step-reply", "inventory", "error", "connectivity-report", "infra-env"]
    {
        assert!(table.get(definition).is_some(), "nothing was seen of {definition}");
    }
}

/// What an operation carries: method, path, definition of the request's body, definition of the answer of a success.
/// An empty word: nothing that is one of our types.
const OPERATIONS: &[(&str, &str, &str, &str)] = &[
    ("POST", "/clusters", "cluster-create-params", "cluster"),
    ("GET", "/clusters/{}", "", "cluster"),
    ("PATCH", "/clusters/{}", "v2-cluster-update-params", "cluster"),
    ("POST", "/clusters/{}/actions/complete-installation", "completion-params", "cluster"),
    ("POST", "/clusters/{}/actions/install", "", "cluster"),
    ("PUT", "/clusters/{}/monitored-operators", "operator-monitor-report", ""),
    ("POST", "/clusters/{}/uploads/ingress-cert", "", ""),
    ("POST", "/infra-envs", "infra-env-create-params", "infra-env"),
    ("POST", "/infra-envs/{}/hosts", "host-create-params", "host_registration_response"),
    ("GET", "/infra-envs/{}/hosts/{}", "", "host"),
    ("PATCH", "/infra-envs/{}/hosts/{}", "host-update-params", "host"),
    ("GET", "/infra-envs/{}/hosts/{}/instructions", "", "steps"),
    ("POST", "/infra-envs/{}/hosts/{}/instructions", "step-reply", ""),
    ("PUT", "/infra-envs/{}/hosts/{}/progress", "host-progress", ""),
];

/// JSON that travels as text inside a member: where, and its definition.
const TEXTS: &[(&str, &str, &str)] = &[
    ("host", "inventory", "inventory"),
    ("host", "connectivity", "connectivity-report"),
    ("host", "domain_name_resolutions", "domain_resolution_response"),
    ("host", "api_vip_connectivity", "api_vip_connectivity_response"),
    ("host", "tang_connectivity", "tang_connectivity_response"),
];

/// Output of a step that succeeded, and its definition.
const OUTPUTS: &[(&str, &str)] = &[
    ("inventory", "inventory"),
    ("connectivity-check", "connectivity-report"),
    ("ntp-synchronizer", "ntp_synchronization_response"),
    ("domain-resolution", "domain_resolution_response"),
    ("container-image-availability", "container_image_availability_response"),
    ("installation-disk-speed-check", "disk_speed_check_response"),
    ("api-vip-connectivity-check", "api_vip_connectivity_response"),
    ("tang-connectivity-check", "tang_connectivity_response"),
    ("dhcp-lease-allocate", "dhcp_allocation_response"),
    ("upgrade-agent", "upgrade_agent_response"),
];

/// Marks a body of which only a few members were kept when it was recorded.
const CUT: &str = "(cut)";

/// Members that were sent and that the schema does not know, and why. The real service drops them, as we do.
const NOT_OF_THE_SCHEMA: &[(&str, &str)] =
    &[("inventory.timestamp", "the hosts of the recording sent it on their own account; the real agent does not")];

/// As both sides would write it: no nulls, dates in one form, whole numbers as whole numbers.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), plain(v))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        Value::Number(n) => {
            n.as_f64().map_or(value.clone(), |f| if f.fract() == 0.0 { Value::from(f as i64) } else { f.into() })
        }
        Value::String(text) if text.len() >= 20 && text.as_bytes()[10] == b'T' => {
            text.parse::<Timestamp>().map_or(value.clone(), |t| Value::from(t.to_string()))
        }
        other => other.clone(),
    }
}

/// Members (with their paths) that are in `before` and not, or not so, in `after`.
fn lost(before: &Value, after: &Value, at: &str, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(b), Value::Object(a)) => {
            for (key, value) in b {
                let at = format!("{at}.{key}");
                match a.get(key) {
                    Some(other) => lost(value, other, &at, found),
                    None => found.push(format!("{at} is lost")),
                }
            }
        }
        (Value::Array(b), Value::Array(a)) if a.len() == b.len() => {
            for (i, (b, a)) in b.iter().zip(a).enumerate() {
                lost(b, a, &format!("{at}[{i}]"), found);
            }
        }
        (b, a) if b == a => {}
        (b, a) => found.push(format!("{at} was {b} and is {a}")),
    }
}

#[derive(Default)]
struct Faults {
    /// Fault to how often.
    all: BTreeMap<String, usize>,
    checked: BTreeMap<String, usize>,
    seen: Seen,
}

impl Faults {
    fn check(&mut self, definition: &str, value: &Value, place: &str) {
        if value.get(CUT).is_some() {
            // Only a few members were kept; their words must be known.
            self.word("cluster.status", &value["status"], place);
            for host in value["hosts"].as_array().into_iter().flatten() {
                self.word("host.status", &host["status"], place);
                self.word("host-role", &host["role"], place);
                self.word("host-stage", &host["stage"], place);
            }
            *self.checked.entry(format!("{definition} (cut)")).or_default() += 1;
            return;
        }
        let entry = object(definition).unwrap_or_else(|| panic!("no type {definition}"));
        *self.checked.entry(definition.to_owned()).or_default() += 1;
        note(self.seen.entry(definition.to_owned()).or_default(), "", value);
        let mut found = Vec::new();
        match (entry.reserialise)(value.clone()) {
            Ok(after) => lost(&plain(value), &plain(&after), definition, &mut found),
            Err(e) => found.push(format!("{definition}: {e}")),
        }
        for (_, member, inner) in TEXTS.iter().filter(|(d, ..)| *d == definition) {
            if let Some(text) = value.get(member).and_then(Value::as_str).filter(|t| !t.is_empty()) {
                self.text(inner, text, &format!("{place} {definition}.{member}"));
            }
        }
        for host in
            value.get("hosts").and_then(Value::as_array).into_iter().flatten().filter(|_| definition == "cluster")
        {
            self.check("host", host, place);
        }
        found.retain(|fault| !NOT_OF_THE_SCHEMA.iter().any(|(member, _)| fault == &format!("{member} is lost")));
        for fault in found {
            *self.all.entry(format!("{place}: {fault}")).or_default() += 1;
        }
    }

    fn word(&mut self, list: &str, value: &Value, place: &str) {
        let list = ENUMS.iter().find(|e| e.name == list).unwrap_or_else(|| panic!("no list {list}"));
        if let Some(word) = value.as_str().filter(|w| !list.words.contains(w)) {
            *self.all.entry(format!("{place}: {word:?} is no {}", list.name)).or_default() += 1;
        }
    }

    fn text(&mut self, definition: &str, text: &str, place: &str) {
        match serde_json::from_str::<Value>(text) {
            Ok(value) => self.check(definition, &value, place),
            Err(e) => *self.all.entry(format!("{place}: {definition} is no JSON: {e}")).or_default() += 1,
        }
    }

    fn done(self) {
        let list: Vec<String> = self.all.iter().map(|(fault, n)| format!("{fault} ({n} times)")).collect();
        assert!(list.is_empty(), "{} kinds of faults:\n{}", list.len(), list.join("\n"));
    }
}

/// The operation of a path: base path and query gone, ids as `{}`.
fn operation(path: &str) -> String {
    let path = path.split('?').next().unwrap_or(path);
    let path = path.strip_prefix(BASE_PATH).unwrap_or(path);
    let word = |w: &str| if w.parse::<uuid::Uuid>().is_ok() { "{}".to_owned() } else { w.to_owned() };
    path.split('/').map(word).collect::<Vec<_>>().join("/")
}

/// An error's body is the service's, or that of the layer below it (`{"code": 405, "message": ...}`).
fn check_error(faults: &mut Faults, status: i64, body: &Value, place: &str) {
    if body.get("reason").is_some() {
        faults.check("error", body, place);
        assert_eq!(body["id"].as_i64(), Some(status), "{place}");
    } else {
        faults.check("infra_error", body, place);
    }
}

fn exchanges(faults: &mut Faults, name: &str) -> usize {
    let Some(text) = vlab_facts::source(&format!("transcripts/{name}")) else { return 0 };
    let mut count = 0;
    for (i, line) in text.lines().enumerate() {
        let exchange: Value = serde_json::from_str(line).unwrap();
        let method = exchange["method"].as_str().unwrap();
        let path = operation(exchange["path"].as_str().unwrap());
        let place = format!("{name} {method} {path}");
        let (_, _, body, answer) = OPERATIONS
            .iter()
            .find(|(m, p, ..)| *m == method && *p == path)
            .unwrap_or_else(|| panic!("{name}:{}: {place} is no operation of this test", i + 1));
        let status = exchange["status"].as_i64().unwrap();
        if !body.is_empty() {
            faults.check(body, &exchange["body"], &format!("{place} body"));
        }
        match (status, answer.is_empty()) {
            (400.., _) => check_error(faults, status, &exchange["response"], &place),
            (_, false) => faults.check(answer, &exchange["response"], &place),
            (_, true) => assert!(exchange["response"].is_null(), "{place} answers something"),
        }
        if *body == "step-reply" && exchange["body"]["exit_code"].as_i64().unwrap_or(0) == 0 {
            let step = exchange["body"]["step_type"].as_str().unwrap_or_default();
            let output = exchange["body"]["output"].as_str().unwrap_or_default();
            if let Some((_, definition)) = OUTPUTS.iter().find(|(s, _)| *s == step)
                && !output.is_empty()
            {
                faults.text(definition, output, &format!("{place} {step}"));
            }
        }
        count += 1;
    }
    count
}

#[test]
fn nothing_of_the_recorded_exchanges_is_lost() {
    if vlab_facts::source("transcripts/errors.json").is_none() {
        return;
    }
    let mut faults = Faults::default();
    let mut count = 0;
    for name in ["fake-sno.jsonl", "fake-ha-3-2.jsonl", "real-agent.jsonl"] {
        let of = exchanges(&mut faults, name);
        assert!(of > 0, "{name} is empty");
        count += of;
    }
    for definition in
        ["cluster", "host", "steps", "step-reply", "inventory", "error", "connectivity-report", "infra-env"]
    {
        assert!(faults.checked.contains_key(definition), "no {definition} among {count} exchanges");
    }
    vlab_facts::agrees(TABLE, HEADING, &serde_json::to_value(&faults.seen).unwrap());
    faults.done();
}

#[test]
fn every_recorded_error_is_read() {
    let Some(text) = vlab_facts::source("transcripts/errors.json") else { return };
    let probes: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut faults = Faults::default();
    let mut errors = 0;
    for probe in &probes {
        let status = probe["status"].as_i64().unwrap();
        if status >= 400 {
            errors += 1;
            check_error(&mut faults, status, &probe["response"], probe["label"].as_str().unwrap_or_default());
        }
    }
    assert!(errors > 30, "{errors}");
    faults.done();
}
