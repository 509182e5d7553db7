//! Traces as OTLP has them in JSON: one trace for the run, a span for the run, one for each cluster, host and fault in it, and in
//! these one for each status and stage. Ids are hexadecimal, times are nanoseconds since 1970 as texts.

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_model::history::Observation;

use super::{Clean, id, role, run_info, slices};
use crate::moments::{Moment, MomentKind, Moments};
use crate::redact::Redactor;
use crate::timeline::{Lane, Lanes};

/// `SPAN_KIND_INTERNAL`
const INTERNAL: u8 = 1;
/// `STATUS_CODE_ERROR`
const ERROR: u8 = 2;

/// The file, without secrets.
pub fn render(history: &[Observation], redactor: &Redactor) -> String {
    let timeline = Lanes::read(history);
    let moments = Moments::read(history, &timeline, &[]);
    let info = run_info(history);
    let start = timeline.start.as_micros();
    let run = info.map_or_else(|| start.to_string(), |info| info.run_id.clone());
    let mut trace = Trace { spans: Vec::new(), trace: id(&["trace", &run], 32), run, start, clean: Clean(redactor) };
    let root = trace.span(None, "run", (0, timeline.length), info.map_or("run", |info| &info.scenario));
    for (n, fault) in timeline.faults.iter().enumerate() {
        let to = fault.to.unwrap_or(timeline.length).max(fault.from);
        let path = format!("fault {n}");
        let span = trace.span(Some(&root), &path, (fault.from, to), &format!("fault {}", fault.name));
        trace.add_events(&span, fault.effects.iter().map(|at| (*at, "effect", String::new())));
    }
    let mut by_who: Vec<Vec<Moment>> = vec![Vec::new(); moments.who.len()];
    for item in &moments.items {
        by_who[item.who as usize].push(*item);
    }
    for (n, lane) in timeline.clusters.iter().chain(&timeline.hosts).enumerate() {
        let span = trace.lane(&root, lane, timeline.length);
        trace.add_events(&span, by_who[n + 1].iter().filter_map(|item| event(&moments, item)));
    }
    // What is about the run, and about machines that never became hosts.
    let hosts = timeline.clusters.len() + timeline.hosts.len();
    let others = by_who.iter().enumerate().filter(|(n, _)| *n == 0 || *n > hosts).flat_map(|(_, items)| items);
    trace.add_events(&root, others.filter_map(|item| event(&moments, item)));
    let mut about = vec![attribute("service.name", "vlab"), attribute("vlab.run", &trace.clean.text(&trace.run))];
    if let Some(info) = info {
        about.push(attribute("service.version", &info.vlab_version));
        about.push(attribute("vlab.scenario", &trace.clean.text(&info.scenario)));
        about.push(attribute("vlab.seed", &info.seed.to_string()));
    }
    let version = info.map_or("", |info| &info.vlab_version);
    let data = json!({"resourceSpans": [{
        "resource": {"attributes": about},
        "scopeSpans": [{"scope": {"name": "vlab", "version": version}, "spans": trace.spans}],
    }]});
    data.to_string() + "\n"
}

/// What happened at one moment and is neither a status nor a stage, for people: when, its name, more.
fn event<'m>(moments: &'m Moments<'_>, item: &Moment) -> Option<(i64, &'m str, String)> {
    let fact = &moments.facts[item.fact as usize];
    let (name, more) = match fact.kind {
        MomentKind::Status | MomentKind::Stage | MomentKind::Fault | MomentKind::Percent => return None,
        MomentKind::Validation | MomentKind::Operator => (&*fact.key, format!("{} {}", fact.value, fact.info)),
        _ => (&*fact.value, fact.info.to_string()),
    };
    let name = if name.is_empty() { fact.kind.word() } else { name };
    Some((item.at, name, more.trim().to_owned()))
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

struct Trace<'r> {
    spans: Vec<Value>,
    trace: String,
    run: String,
    /// Microseconds since 1970.
    start: i64,
    clean: Clean<'r>,
}

/// A span that is written: its place and its id.
struct Written {
    place: usize,
    id: String,
}

impl Trace<'_> {
    fn nanos(&self, at: i64) -> String {
        let at = Timestamp::from_micros(self.start.saturating_add(at));
        format!("{}000", at.as_micros().max(0))
    }

    /// Writes a span. `path` is what its id is made of: no two have the same.
    fn span(&mut self, parent: Option<&Written>, path: &str, (from, to): (i64, i64), name: &str) -> Written {
        let id = id(&["span", &self.run, path], 16);
        let mut span = json!({
            "traceId": self.trace,
            "spanId": id,
            "name": self.clean.text(name),
            "kind": INTERNAL,
            "startTimeUnixNano": self.nanos(from),
            "endTimeUnixNano": self.nanos(to),
            "attributes": [],
            "events": [],
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = json!(parent.id);
        }
        self.spans.push(span);
        Written { place: self.spans.len() - 1, id }
    }

    fn lane(&mut self, root: &Written, lane: &Lane<'_>, length: i64) -> Written {
        let sort = if lane.is_cluster { "cluster" } else { "host" };
        let from = lane.statuses.iter().chain(&lane.stages).map(|s| s.from).min().unwrap_or(0);
        let to = lane.statuses.iter().chain(&lane.stages).map(|s| s.to).max().unwrap_or(length);
        let path = lane.id.to_string();
        let written = self.span(Some(root), &path, (from, to), &format!("{sort} {}", lane.name));
        let mut about = vec![attribute(&format!("{sort}.id"), &path)];
        about.extend(role(lane).map(|role| attribute("host.role", &role)));
        self.spans[written.place]["attributes"] = json!(about);
        for (kind, stages) in [("status", false), ("stage", true)] {
            for (n, slice) in slices(lane, stages).into_iter().enumerate() {
                let path = format!("{path} {kind} {n}");
                let span = self.span(Some(&written), &path, (slice.from, slice.to), slice.name);
                let info = self.clean.text(slice.info);
                let about = [("vlab.kind", kind), ("vlab.info", &info)];
                let about: Vec<Value> =
                    about.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| attribute(k, v)).collect();
                self.spans[span.place]["attributes"] = json!(about);
                if matches!(slice.name, "error" | "Failed") {
                    self.spans[span.place]["status"] = json!({"code": ERROR, "message": info});
                }
            }
        }
        written
    }

    fn add_events<'e>(&mut self, span: &Written, events: impl Iterator<Item = (i64, &'e str, String)>) {
        let event = |(at, name, more): (i64, &str, String)| {
            let more = self.clean.text(&more).into_owned();
            let about = if more.is_empty() { Vec::new() } else { vec![attribute("vlab.info", &more)] };
            json!({"timeUnixNano": self.nanos(at), "name": self.clean.text(name), "attributes": about})
        };
        let events: Vec<Value> = events.map(event).collect();
        if !events.is_empty() {
            self.spans[span.place]["events"] = json!(events);
        }
    }
}
