//! Performs one check: makes its world, goes through its steps, and removes what was made.

mod hosts;
mod known;
mod resources;
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};
use vlab_api::http::{Method, Request, Response, TransportError};
use vlab_api::{BASE_PATH, Timestamp};

use crate::hosts::{Host, PREPARATION};
use crate::matcher::{self, differences, shortened, shown};
use crate::table::{
    Change, CheckStep, ClusterKind, ConformanceCheck, EventIs, Many, Milestone, Poll, Refusal, Register, Reply, Report,
    RequestStep, Took, ValidationIs, fill_known, merged,
};
use crate::target::Target;
use crate::wire::Wire;

/// Requests of which a failed check tells.
const TRACED: usize = 15;
/// Ticks of the monitors after which something that has not happened will not happen.
const SETTLED: u32 = 6;
/// Who waits looks so often whether a known defect is why.
const DEFECTS_EVERY: Duration = Duration::from_secs(5);

/// Why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The service is not as expected.
    Differs(String),
    /// Nothing is known: the service was not reached.
    Lab(String),
}

type Done<T = ()> = Result<T, Trouble>;

fn differs<T>(text: impl Into<String>) -> Done<T> {
    Err(Trouble::Differs(text.into()))
}

/// What became of one check.
#[derive(Clone, Debug)]
pub struct Performed {
    /// `None`: passed.
    pub trouble: Option<Trouble>,
    /// Requests that were sent.
    pub requests: u64,
    /// The last exchanges, oldest first.
    pub trace: Vec<String>,
    /// What could not be removed.
    pub left: Vec<String>,
    /// The service is not reached any more.
    pub lost: bool,
    /// Ids of what it has made: what the service logs about the check names one of them.
    pub ids: Vec<String>,
    /// The defect of the service that it has met by bad luck, if it did not pass for that reason.
    pub known: Option<&'static str>,
}

/// Performs a check.
pub async fn perform(check: &ConformanceCheck, target: &Target, wire: &mut dyn Wire) -> Performed {
    let mut script = Script::new(check, target, wire);
    let result = script.run().await;
    let lost = matches!(result, Err(Trouble::Lab(_)));
    let trace = script.trace.iter().cloned().collect();
    let ids = script.made.iter().map(|made| made.id.clone()).collect();
    let known = if matches!(result, Err(Trouble::Differs(_))) { script.known_defect().await } else { None };
    let left = if lost { script.made.iter().map(Made::to_string).collect() } else { script.clean_up().await };
    Performed { trouble: result.err(), requests: script.requests, trace, left, lost, ids, known }
}

/// Something that the check has made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    what: &'static str,
    id: String,
}

impl std::fmt::Display for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = self.what.trim_end_matches('s');
        write!(f, "{what} {}", self.id)
    }
}

struct Script<'c> {
    check: &'c ConformanceCheck,
    target: &'c Target,
    wire: &'c mut dyn Wire,
    vars: BTreeMap<String, Value>,
    hosts: Vec<Host>,
    made: Vec<Made>,
    /// Paths of the resources that were applied.
    applied: Vec<String>,
    at: Milestone,
    /// Hosts keep back what a preparation waits for.
    holding: bool,
    requests: u64,
    trace: VecDeque<String>,
}

impl<'c> Script<'c> {
    fn new(check: &'c ConformanceCheck, target: &'c Target, wire: &'c mut dyn Wire) -> Self {
        let mut hosts: Vec<Host> =
            (0..check.world.hosts).map(|n| Host::new(n, target.id(&check.id, n as u64))).collect();
        let mut vars: BTreeMap<String, Value> = BTreeMap::new();
        let mut set = |name: &str, value: Value| vars.insert(name.to_owned(), value);
        set("missing", json!(target.id(&check.id, 0xdead)));
        set("missing_too", json!(target.id(&check.id, 0xbeef)));
        set("name", json!(target.name(&check.id)));
        set("version", json!(target.version));
        set("agent", json!(target.agent_version));
        set("pull_secret", json!(target.pull_secret));
        for host in &hosts {
            set(&host.name, json!(host.id));
        }
        for host in &mut hosts {
            let patch = check.world.inventory.get(&host.name).cloned().unwrap_or_default();
            host.patch = fill_known(&patch, &vars);
            let answers = check.world.answers.get(&host.name).into_iter().flatten();
            host.answers = answers.map(|(step, answer)| (step.clone(), fill_known(answer, &vars))).collect();
        }
        Self {
            check,
            target,
            wire,
            vars,
            hosts,
            made: Vec::new(),
            applied: Vec::new(),
            at: Milestone::Made,
            holding: false,
            requests: 0,
            trace: VecDeque::new(),
        }
    }

    async fn run(&mut self) -> Done {
        let check = self.check;
        if let Err(trouble) = self.make_world().await {
            return Err(in_front("before the first step", trouble));
        }
        for (n, step) in check.steps.iter().enumerate() {
            if let Err(trouble) = self.step(step).await {
                return Err(in_front(&format!("step {} of {} ({})", n + 1, check.steps.len(), title(step)), trouble));
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &CheckStep) -> Done {
        match step {
            CheckStep::Call(call) => self.call(call).await,
            CheckStep::Register(register) => self.register(register).await,
            CheckStep::Poll(poll) => self.poll(poll).await,
            CheckStep::Reply(reply) => self.reply(reply).await,
            CheckStep::Report(report) => self.report(report).await,
            CheckStep::Wait(statuses) => self.wait(statuses).await,
            CheckStep::Stay(statuses) => self.stay(statuses).await,
            CheckStep::Validation(validation) => self.validation(validation).await,
            CheckStep::Event(event) => self.event(event).await,
            CheckStep::NoEvent(event) => self.no_event(event).await,
            CheckStep::Reach(milestone) => self.reach(*milestone).await,
            CheckStep::Change(change) => self.change(change),
            CheckStep::Took(took) => self.took(took).await,
            CheckStep::Resource(step) => self.resource(step).await,
        }
    }

    // ---- requests ----

    async fn send(&mut self, request: &Request) -> Done<Response> {
        self.requests += 1;
        let answer = self.wire.send(request).await;
        let line = match &answer {
            Ok(response) => {
                format!("{} {} → {} {}", request.method, request.path, response.status, text_of(response))
            }
            Err(error) => format!("{} {} → {error}", request.method, request.path),
        };
        if self.trace.len() == TRACED {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
        let response = answer.map_err(|error| match error {
            // The others are what a service may do wrong with a request.
            TransportError::Connect(_) => Trouble::Lab(format!("{} {}: {error}", request.method, request.path)),
            error => Trouble::Differs(format!("{} {}: {error}", request.method, request.path)),
        })?;
        self.remember(request, &response);
        Ok(response)
    }

    /// Writes down what a request has made, so that it is removed.
    fn remember(&mut self, request: &Request, response: &Response) {
        if request.method != Method::Post || response.status != 201 {
            return;
        }
        let what = match request.path.trim_start_matches(BASE_PATH) {
            "/clusters" | "/clusters/import" | "/clusters/disconnected" => "clusters",
            "/infra-envs" => "infra-envs",
            _ => return,
        };
        if let Some(id) = response.decode::<Value>().ok().and_then(|v| v["id"].as_str().map(str::to_owned)) {
            self.made.push(Made { what, id });
        }
    }

    async fn ask(&mut self, method: Method, path: &str, body: Option<&Value>) -> Done<Response> {
        let mut request = Request::new(method, format!("{BASE_PATH}{path}"));
        if let Some(body) = body {
            request = request.json(body);
        }
        self.send(&request).await
    }

    /// A request that is no expectation of its own: it must be answered with that status.
    async fn must(&mut self, status: u16, method: Method, path: &str, body: Option<&Value>) -> Done<Value> {
        let response = self.ask(method, path, body).await?;
        if response.status != status {
            return differs(format!("{method} {path}: expected {status}, found {}", answer_of(&response)));
        }
        Ok(response.decode().unwrap_or_default())
    }

    fn filled(&self, value: &Value) -> Done<Value> {
        let filled = fill_known(value, &self.vars);
        match unfilled(&filled) {
            Some(name) => differs(format!("the check itself is wrong: nothing is known by the name <{name}>")),
            None => Ok(filled),
        }
    }

    fn filled_text(&self, text: &str) -> Done<String> {
        let filled = self.filled(&Value::String(format!("{text} ")))?;
        // With the blank it is never taken for a value of another type.
        Ok(filled.as_str().unwrap_or_default().trim_end_matches(' ').to_owned())
    }

    fn var(&self, name: &str) -> Done<String> {
        match self.vars.get(name).and_then(Value::as_str) {
            Some(text) => Ok(text.to_owned()),
            None => differs(format!("the check itself is wrong: it has no <{name}>")),
        }
    }

    fn base_body(&self, name: &str) -> Done<Value> {
        let cluster = json!({
            "name": self.vars["name"], "openshift_version": self.target.version, "base_dns_domain": "example.com",
            "pull_secret": self.target.pull_secret,
        });
        Ok(match name {
            "cluster" => merged(&cluster, &json!({"high_availability_mode": "None"})),
            "ha-cluster" => merged(&cluster, &json!({"high_availability_mode": "Full"})),
            "infra-env" => json!({"name": self.vars["name"], "pull_secret": self.target.pull_secret}),
            "import" => json!({"name": self.vars["name"], "api_vip_dnsname": "api.day2.example.com",
                "openshift_cluster_id": self.target.id(&self.check.id, 0xd2), "openshift_version": self.target.version}),
            other => return differs(format!("the check itself is wrong: there is no body {other:?}")),
        })
    }

    async fn call(&mut self, call: &RequestStep) -> Done {
        let request = self.request(call)?;
        let patience = if call.retry { self.target.patience } else { Duration::ZERO };
        let begun = self.wire.now();
        loop {
            let response = self.send(&request).await?;
            match self.judge(call, &response) {
                Ok(()) => return Ok(()),
                Err(trouble) if self.wire.now().since(begun) >= patience => return Err(trouble),
                Err(_) => self.work().await?,
            }
        }
    }

    fn request(&self, call: &RequestStep) -> Done<Request> {
        let line = self.filled_text(&call.call)?;
        let Some((method, path)) = line.split_once(' ') else {
            return differs(format!("the check itself is wrong: {line:?} is not a method and path"));
        };
        let path = match path.strip_prefix("root:") {
            Some(path) => path.to_owned(),
            None => format!("{BASE_PATH}{path}"),
        };
        let mut request = Request::new(Method::from_name(method), path);
        if let Some(text) = &call.text {
            request.body = self.filled_text(text)?.into();
            request = request.header("content-type", "application/json");
        } else if !call.form.is_empty() {
            const BOUNDARY: &str = "vlab-conformance-boundary";
            let mut body = String::new();
            for (field, content) in &call.form {
                body.push_str(&format!(
                    "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"logs.tar.gz\"\r\n\
                     Content-Type: application/octet-stream\r\n\r\n{content}\r\n"
                ));
            }
            body.push_str(&format!("--{BOUNDARY}--\r\n"));
            request.body = body.into();
            request = request.header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"));
        } else if call.base.is_some() || !call.body.is_null() {
            let body = match &call.base {
                Some(base) => merged(&self.base_body(base)?, &call.body),
                None => call.body.clone(),
            };
            request = request.json(&self.filled(&body)?);
        }
        for (name, value) in &call.headers {
            request.headers.retain(|(known, _)| known != name);
            request = request.header(name, self.filled_text(value)?);
        }
        Ok(request)
    }

    fn judge(&mut self, call: &RequestStep, response: &Response) -> Done {
        let mut wrong = Vec::new();
        let body: Option<Value> = response.decode().ok();
        let refusal = match (&call.error, &call.infra) {
            (Some(refusal), _) => Some((refusal, true)),
            (_, Some(refusal)) => Some((refusal, false)),
            _ => None,
        };
        if let Some((refusal, of_handler)) = refusal {
            let filled = Refusal { status: self.filled(&refusal.status)?, says: self.filled(&refusal.says)? };
            wrong.extend(refused(&filled, of_handler, response));
        } else {
            let status = Value::from(response.status);
            let ok = match &call.status {
                Value::Null => response.is_success(),
                Value::Array(several) => several.contains(&status),
                one => *one == status,
            };
            if !ok {
                let wanted = if call.status.is_null() { "2xx".to_owned() } else { call.status.to_string() };
                wrong.push(format!("expected status {wanted}, found {}", answer_of(response)));
            }
        }
        if let Some(expected) = &call.expect {
            let expected = self.filled(expected)?;
            match &body {
                Some(body) => wrong.extend(differences(&expected, Some(body))),
                None => wrong.push(format!("expected JSON, found {}", answer_of(response))),
            }
        }
        if let Some(expected) = &call.content {
            let text = Value::String(String::from_utf8_lossy(&response.body).into_owned());
            wrong.extend(differences(&self.filled(expected)?, Some(&text)));
        }
        for (name, expected) in &call.head {
            let found = response.get_header(name).map(|text| Value::String(text.to_owned()));
            let lines = differences(&self.filled(expected)?, found.as_ref());
            wrong.extend(lines.into_iter().map(|line| format!("header {name}: {line}")));
        }
        if !wrong.is_empty() {
            return differs(wrong.join("\n"));
        }
        for (name, path) in &call.save {
            match body.as_ref().and_then(|body| matcher::at(body, path)) {
                Some(value) => self.vars.insert(name.clone(), value.clone()),
                None => return differs(format!("the answer has no {path:?}: {}", answer_of(response))),
            };
        }
        Ok(())
    }

    async fn cluster(&mut self) -> Done<Value> {
        let path = format!("/clusters/{}", self.var("cluster")?);
        self.must(200, Method::Get, &path, None).await
    }

    async fn shown_host(&mut self, name: &str) -> Done<Value> {
        let path = self.host_path(name)?;
        self.must(200, Method::Get, &path, None).await
    }

    async fn status_of(&mut self, name: &str) -> Done<(String, String)> {
        let shown = if name == "cluster" { self.cluster().await? } else { self.shown_host(name).await? };
        let text = |member: &str| shown[member].as_str().unwrap_or_default().to_owned();
        Ok((text("status"), text("status_info")))
    }

    async fn statuses_differ(&mut self, statuses: &BTreeMap<String, Many<String>>) -> Done<Option<String>> {
        for (name, wanted) in statuses {
            let (status, info) = self.status_of(name).await?;
            if !wanted.as_slice().contains(&status) {
                let wanted = wanted.as_slice().join(" or ");
                return Ok(Some(format!("{name}: expected status {wanted}, found {status} ({})", shortened(&info))));
            }
        }
        Ok(None)
    }

    async fn wait(&mut self, statuses: &BTreeMap<String, Many<String>>) -> Done {
        let begun = self.wire.now();
        let mut looked = begun;
        loop {
            let Some(wrong) = self.statuses_differ(statuses).await? else { return Ok(()) };
            let now = self.wire.now();
            let waited = now.since(begun);
            let looks = now.since(looked) >= DEFECTS_EVERY;
            if looks {
                looked = now;
            }
            // Where a known defect was met it does not come any more.
            if waited >= self.target.patience || looks && self.known_defect().await.is_some() {
                return differs(format!("after {} s {wrong}", waited.as_secs()));
            }
            self.work().await?;
        }
    }

    async fn stay(&mut self, statuses: &BTreeMap<String, Many<String>>) -> Done {
        let begun = self.wire.now();
        loop {
            if let Some(wrong) = self.statuses_differ(statuses).await? {
                return differs(wrong);
            }
            if self.wire.now().since(begun) >= self.target.monitor * SETTLED {
                return Ok(());
            }
            self.work().await?;
        }
    }

    async fn validation(&mut self, wanted: &ValidationIs) -> Done {
        let is = self.filled(&wanted.is)?;
        let says = self.filled(&wanted.says)?;
        let begun = self.wire.now();
        loop {
            let shown = match &wanted.host {
                Some(host) => self.shown_host(host).await?,
                None => self.cluster().await?,
            };
            let wrong = validation_differs(&shown, &wanted.id, &is, &says);
            let Some(wrong) = wrong else { return Ok(()) };
            let waited = self.wire.now().since(begun);
            if waited >= self.target.patience {
                return differs(format!("after {} s {wrong}", waited.as_secs()));
            }
            self.work().await?;
        }
    }

    async fn events(&mut self, wanted: &EventIs) -> Done<(Vec<Value>, usize)> {
        let query = match &wanted.query {
            Some(query) => self.filled_text(query)?,
            None => match self.var("cluster") {
                Ok(cluster) => format!("cluster_id={cluster}"),
                Err(_) => format!("infra_env_id={}", self.var("infra_env")?),
            },
        };
        let all = self.must(200, Method::Get, &format!("/events?{query}"), None).await?;
        let expected = self.filled(&wanted.event)?;
        let all = all.as_array().cloned().unwrap_or_default();
        let found = all.iter().filter(|event| matcher::matches(&expected, Some(event))).cloned().collect();
        Ok((found, all.len()))
    }

    async fn event(&mut self, wanted: &EventIs) -> Done {
        let begun = self.wire.now();
        loop {
            let (found, all) = self.events(wanted).await?;
            let enough = wanted.count.map_or(!found.is_empty(), |count| found.len() == count);
            if enough {
                return match told_twice(&found) {
                    None => Ok(()),
                    Some(event) => differs(format!("an event is told twice: {}", shown(Some(event)))),
                };
            }
            if self.wire.now().since(begun) >= self.target.patience_for_events {
                let wanted_count = wanted.count.map_or("an".to_owned(), |n| format!("exactly {n}"));
                return differs(format!(
                    "expected {wanted_count} event {}, found {} of {all}",
                    shown(Some(&wanted.event)),
                    found.len()
                ));
            }
            self.work().await?;
        }
    }

    async fn took(&mut self, wanted: &Took) -> Done {
        let event = match &wanted.event {
            Some(event) => Some(self.coming_event(event).await?),
            None => None,
        };
        let shown = match &wanted.host {
            Some(host) => self.shown_host(host).await?,
            None => self.cluster().await?,
        };
        let time = |shown: &Value, path: &str| {
            let found = matcher::at(shown, path);
            match found.and_then(Value::as_str).map(str::parse::<Timestamp>) {
                Some(Ok(time)) if time.is_set() => Ok(time),
                _ => differs(format!("expected a time as {path}, found {}", matcher::shown(found))),
            }
        };
        let (from, to) = (time(&shown, &wanted.from)?, time(event.as_ref().unwrap_or(&shown), &wanted.to)?);
        let seconds = (to.as_micros() - from.as_micros()) as f64 / 1e6;
        if (wanted.at_least..=wanted.at_most).contains(&seconds) {
            return Ok(());
        }
        let (least, most) = (wanted.at_least, wanted.at_most);
        differs(format!("expected {least} s to {most} s from {} to {}, found {seconds} s", wanted.from, wanted.to))
    }

    /// The first such event, as soon as it is there.
    async fn coming_event(&mut self, event: &Value) -> Done<Value> {
        let wanted = EventIs { event: event.clone(), count: None, query: None };
        let begun = self.wire.now();
        loop {
            let (found, all) = self.events(&wanted).await?;
            match found.into_iter().next() {
                Some(event) => return Ok(event),
                None if self.wire.now().since(begun) >= self.target.patience => {
                    return differs(format!("expected an event {}, found none of {all}", shown(Some(event))));
                }
                None => self.work().await?,
            }
        }
    }

    async fn no_event(&mut self, wanted: &EventIs) -> Done {
        let begun = self.wire.now();
        while self.wire.now().since(begun) < self.target.monitor * SETTLED {
            self.work().await?;
        }
        let (found, _) = self.events(wanted).await?;
        match found.first() {
            None => Ok(()),
            Some(event) => differs(format!("expected no such event, found {}", shown(Some(event)))),
        }
    }
}

/// An event that is there a second time, with the same time and text.
fn told_twice(events: &[Value]) -> Option<&Value> {
    let same = |one: &Value, other: &Value| {
        ["name", "event_time", "message", "host_id", "props"].iter().all(|member| one.get(member) == other.get(member))
    };
    events.iter().enumerate().find(|(place, event)| events[..*place].iter().any(|e| same(e, event))).map(|(_, e)| e)
}

fn in_front(text: &str, trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Differs(why) => Trouble::Differs(format!("{text}: {why}")),
        Trouble::Lab(why) => Trouble::Lab(format!("{text}: {why}")),
    }
}

/// A step in few words.
fn title(step: &CheckStep) -> String {
    match step {
        CheckStep::Call(call) => call.call.clone(),
        CheckStep::Register(register) => format!("host {} registers", register.host),
        CheckStep::Poll(poll) => format!("host {} asks for instructions", poll.host),
        CheckStep::Reply(reply) => format!("host {} answers {}", reply.host, reply.step),
        CheckStep::Report(report) => format!("host {} reports {}", report.host, report.stage.as_slice().join(", ")),
        CheckStep::Wait(statuses) => format!("wait for {}", named(statuses)),
        CheckStep::Stay(statuses) => format!("stay {}", named(statuses)),
        CheckStep::Validation(v) => {
            format!("validation {} of {}", v.id, v.host.as_ref().map_or("the cluster".into(), |h| format!("host {h}")))
        }
        CheckStep::Event(event) => format!("event {}", shown(Some(&event.event))),
        CheckStep::NoEvent(event) => format!("no event {}", shown(Some(&event.event))),
        CheckStep::Reach(milestone) => format!("go on to {milestone:?}"),
        CheckStep::Change(change) => format!("host {} changes", change.host),
        CheckStep::Took(took) => format!("time from {} to {}", took.from, took.to),
        CheckStep::Resource(step) => step.title(),
    }
}

fn named(statuses: &BTreeMap<String, Many<String>>) -> String {
    let all: Vec<String> = statuses.iter().map(|(name, s)| format!("{name} {}", s.as_slice().join(" or "))).collect();
    all.join(", ")
}

fn text_of(response: &Response) -> String {
    shortened(String::from_utf8_lossy(&response.body).trim())
}

fn answer_of(response: &Response) -> String {
    format!("{} {}", response.status, text_of(response))
}

/// The first `<name>` for which nothing is known.
fn unfilled(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => {
            let mut rest = text.as_str();
            while let Some(start) = rest.find('<') {
                rest = &rest[start + 1..];
                if let Some(end) = rest.find('>')
                    && !rest[..end].is_empty()
                    && rest[..end].chars().all(|c| c.is_ascii_lowercase() || c == '_')
                {
                    return Some(rest[..end].to_owned());
                }
            }
            None
        }
        Value::Array(list) => list.iter().find_map(unfilled),
        Value::Object(map) => {
            map.iter().find_map(|(name, value)| unfilled(&Value::String(name.clone())).or_else(|| unfilled(value)))
        }
        _ => None,
    }
}

/// What is not as a refusal must be.
fn refused(refusal: &Refusal, of_handler: bool, response: &Response) -> Vec<String> {
    let status = Value::from(response.status);
    let ok = match &refusal.status {
        Value::Array(several) => several.contains(&status),
        one => *one == status,
    };
    if !ok {
        return vec![format!("expected a refusal with status {}, found {}", refusal.status, answer_of(response))];
    }
    let Ok(body) = response.decode::<Value>() else {
        return vec![format!("expected a refusal as JSON, found {}", answer_of(response))];
    };
    let says = match &refusal.says {
        Value::String(text) => json!({"$has": text}),
        Value::Null => json!({"$present": true}),
        question => question.clone(),
    };
    let expected = if of_handler {
        json!({"kind": "Error", "id": status, "href": "", "code": response.status.to_string(), "reason": says})
    } else {
        json!({"code": {"$present": true}, "message": says})
    };
    let mut wrong = differences(&expected, Some(&body));
    let members: &[&str] = if of_handler { &["kind", "id", "href", "code", "reason"] } else { &["code", "message"] };
    if let Some(map) = body.as_object() {
        let more: Vec<&String> = map.keys().filter(|name| !members.contains(&name.as_str())).collect();
        if !more.is_empty() {
            wrong.push(format!("the refusal has members that it must not have: {more:?}"));
        }
    }
    wrong
}

/// `validations_info` is JSON text: categories, each with a list of `{id, status, message}`.
fn validation_differs(shown: &Value, id: &str, is: &Value, says: &Value) -> Option<String> {
    let text = shown["validations_info"].as_str().unwrap_or("{}");
    let all: Value = serde_json::from_str(text).unwrap_or_default();
    let found = all
        .as_object()
        .into_iter()
        .flat_map(|map| map.values())
        .filter_map(Value::as_array)
        .flatten()
        .find(|validation| validation["id"] == id);
    let status = found.map_or(json!("absent"), |validation| validation["status"].clone());
    let message = found.and_then(|validation| validation.get("message"));
    let mut wrong = differences(is, Some(&status));
    match says {
        Value::Null => {}
        Value::String(text) => wrong.extend(differences(&json!({"$has": text}), message)),
        question => wrong.extend(differences(question, message)),
    }
    if wrong.is_empty() {
        return None;
    }
    let of = matcher::shown(message);
    Some(format!("validation {id} is {status} ({of}): {}", wrong.join("; ").replace("the answer: ", "")))
}
