//! Installations that were recorded against the real service, reduced to what tests compare: who asked what, with which code it
//! was answered, and which statuses, validations and steps the answer showed.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Texts that are longer stand once, in the section `texts`, and are named where they occur.
const LONG: usize = 60;

/// Members of hosts and clusters on which validations depend.
const INPUTS: &[&str] = &[
    "api_vips",
    "base_dns_domain",
    "bootstrap",
    "checked_in_at",
    "cluster_networks",
    "connectivity",
    "connectivity_majority_groups",
    "control_plane_count",
    "cpu_architecture",
    "discovery_agent_version",
    "disks_info",
    "domain_name_resolutions",
    "free_addresses",
    "high_availability_mode",
    "host_networks",
    "id",
    "images_status",
    "ingress_vips",
    "installation_disk_id",
    "installation_disk_path",
    "inventory",
    "kind",
    "logs_info",
    "machine_networks",
    "media_status",
    "monitored_operators",
    "name",
    "network_type",
    "ntp_sources",
    "openshift_version",
    "progress",
    "pull_secret_set",
    "registered_at",
    "requested_hostname",
    "role",
    "schedulable_masters",
    "service_networks",
    "status",
    "suggested_role",
    "timestamp",
    "user_managed_networking",
    "vip_dhcp_allocation",
];

/// Shares texts.
#[derive(Default)]
struct Texts(BTreeMap<String, usize>);

impl Texts {
    fn name(&mut self, text: &str) -> String {
        let next = self.0.len() + 1;
        format!("=t{}", self.0.entry(text.to_owned()).or_insert(next))
    }

    /// The value with names in the place of its long texts.
    fn share(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) if text.len() > LONG => self.name(text).into(),
            Value::Array(items) => items.iter().map(|v| self.share(v)).collect(),
            Value::Object(members) => members.iter().map(|(name, v)| (name.clone(), self.share(v))).collect(),
            other => other.clone(),
        }
    }

    fn section(self) -> Value {
        let mut texts: Vec<(usize, String)> = self.0.into_iter().map(|(text, n)| (n, text)).collect();
        texts.sort();
        texts.into_iter().map(|(n, text)| (format!("t{n:03}"), Value::from(text))).collect::<Map<_, _>>().into()
    }
}

/// What is kept of a transcript: an exchange a line, as it was recorded.
pub fn reduce(transcript: &str) -> Value {
    let mut texts = Texts::default();
    let mut exchanges = Vec::new();
    let mut ids: Vec<(String, &'static str)> = Vec::new();
    for line in transcript.lines() {
        let line = ids.iter().fold(line.to_owned(), |line, (id, name)| line.replace(id, name));
        let mut exchange: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
        let kind = exchange["response"]["kind"].as_str().unwrap_or_default().to_owned();
        let name = match kind.as_str() {
            "Cluster" => "{cluster}",
            "InfraEnv" => "{infra-env}",
            _ => "",
        };
        if !name.is_empty() && !ids.iter().any(|(_, known)| *known == name) {
            let id = exchange["response"]["id"].as_str().unwrap_or_default().to_owned();
            exchange = serde_json::from_str(&line.replace(&id, name)).unwrap_or(Value::Null);
            ids.push((id, name));
        }
        let path = exchange["path"].as_str().unwrap_or_default();
        let path = path.strip_prefix("/api/assisted-install/v2").unwrap_or(path);
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut row = Map::new();
        row.insert("t".into(), exchange["t"].clone());
        row.insert("do".into(), format!("{} {path}", exchange["method"].as_str().unwrap_or_default()).into());
        if query.contains("timestamp=") {
            row.insert("polls".into(), true.into());
        }
        if !exchange["body"].is_null() {
            row.insert("body".into(), texts.share(&exchange["body"]));
        }
        row.insert("status".into(), exchange["status"].clone());
        let shows = shown(&exchange["response"], &mut texts);
        if !shows.is_null() {
            row.insert("shows".into(), shows);
        }
        exchanges.push(Value::Object(row));
    }
    json!({ "exchanges": exchanges, "texts": texts.section() })
}

/// What an answer shows.
fn shown(answer: &Value, texts: &mut Texts) -> Value {
    if answer.get("next_instruction_seconds").is_some() {
        let step = |step: &Value| json!({ "type": step["step_type"], "id": step["step_id"], "args": step["args"] });
        let steps: Value = answer["instructions"].as_array().into_iter().flatten().map(step).collect();
        return json!({ "steps": texts.share(&steps) });
    }
    match answer["kind"].as_str() {
        Some("Cluster" | "Host") => texts.share(&inputs(answer)),
        _ => Value::Null,
    }
}

/// Of a host or a cluster: what its validations depend on, what they were, and its hosts.
fn inputs(of: &Value) -> Value {
    let mut kept: Map<String, Value> = Map::new();
    for (name, value) in of.as_object().into_iter().flatten() {
        let empty = value.is_null() || value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty);
        if INPUTS.contains(&name.as_str()) && !empty {
            kept.insert(name.clone(), value.clone());
        }
    }
    if let Some(hosts) = of["hosts"].as_array().filter(|hosts| !hosts.is_empty()) {
        kept.insert("hosts".into(), hosts.iter().map(inputs).collect());
    }
    let validations: Value =
        of["validations_info"].as_str().and_then(|t| serde_json::from_str(t).ok()).unwrap_or(Value::Null);
    let words = validations.as_object().into_iter().flatten().flat_map(|(category, list)| {
        let of_list = list.as_array().into_iter().flatten();
        of_list.map(move |v| format!("{category}/{} {}", text(&v["id"]), text(&v["status"])))
    });
    let words: Vec<String> = words.collect();
    if !words.is_empty() {
        kept.insert("validations".into(), words.join(", ").into());
    }
    Value::Object(kept)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A recorded installation.
#[derive(Debug)]
pub struct Recording {
    /// Its exchanges in order, with all texts in their places.
    pub exchanges: Vec<Exchange>,
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Seconds since the first one.
    pub t: f64,
    /// HTTP method.
    pub method: String,
    /// Path below the API's base, with `{cluster}` and `{infra-env}` in the place of ids that the service gives.
    pub path: String,
    /// It is an agent that asks for instructions.
    pub polls: bool,
    /// Body; null: none.
    pub body: Value,
    /// HTTP status.
    pub status: u16,
    /// What the answer shows: a cluster or a host with what its validations depend on and what they were, or steps.
    pub shows: Value,
}

impl Recording {
    /// Reads a table that [`reduce`] made.
    pub fn of(table: &Value) -> Self {
        let exchange = |row: &Value| {
            let (method, path) = text(&row["do"]).split_once(' ').unwrap_or_default();
            Exchange {
                t: row["t"].as_f64().unwrap_or_default(),
                method: method.to_owned(),
                path: path.to_owned(),
                polls: row["polls"] == true,
                body: full(&row["body"], &table["texts"]),
                status: row["status"].as_u64().and_then(|s| s.try_into().ok()).unwrap_or_default(),
                shows: full(&row["shows"], &table["texts"]),
            }
        };
        Self { exchanges: table["exchanges"].as_array().into_iter().flatten().map(exchange).collect() }
    }
}

/// The value with its texts in the place of their names.
fn full(value: &Value, texts: &Value) -> Value {
    match value {
        Value::String(name) => match name.strip_prefix("=t").and_then(|n| n.parse::<usize>().ok()) {
            Some(n) => texts[format!("t{n:03}")].clone(),
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(|v| full(v, texts)).collect(),
        Value::Object(members) => members.iter().map(|(name, v)| (name.clone(), full(v, texts))).collect(),
        other => other.clone(),
    }
}
