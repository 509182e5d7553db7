//! Chrome's trace events. A process for the run with a thread for the user, one for each fault, one for events of the service;
//! a process for each cluster and host with a thread for its statuses, one for its stages and one for what happened on it.
//! Percentages are counters.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vlab_model::history::Observation;

use super::{Clean, role, run_info, slices};
use crate::moments::{MomentKind, Moments, Sort};
use crate::redact::Redactor;
use crate::timeline::{Lane, Lanes};

const USER: u64 = 1;
const NOTES: u64 = 2;
/// The first thread of faults, in the process of the run.
const FAULTS: u64 = 10;
const STATUSES: u64 = 1;
const STAGES: u64 = 2;
const HAPPENED: u64 = 3;

/// The file, without secrets.
pub fn render(history: &[Observation], redactor: &Redactor) -> String {
    let timeline = Lanes::read(history);
    let moments = Moments::read(history, &timeline, &[]);
    let mut trace = Trace { events: Vec::new(), clean: Clean(redactor) };
    trace.process(1, "run", 0);
    trace.user_and_faults(&timeline);
    for (n, lane) in timeline.clusters.iter().chain(&timeline.hosts).enumerate() {
        trace.lane(n as u64 + 2, lane);
    }
    // Places in `who` are those of the processes: the run, then clusters and hosts in the order of the timeline.
    for (n, who) in moments.who.iter().enumerate().skip(1 + timeline.clusters.len() + timeline.hosts.len()) {
        trace.process(n as u64 + 1, &format!("machine {}", who.name), n);
    }
    trace.instants(&moments);
    let info = run_info(history);
    let about: BTreeMap<&str, String> = info.map_or_else(BTreeMap::new, |info| {
        let about = [
            ("run", info.run_id.clone()),
            ("scenario", info.scenario.clone()),
            ("seed", info.seed.to_string()),
            ("start", timeline.start.to_string()),
        ];
        about.into_iter().map(|(name, value)| (name, trace.clean.text(&value).into_owned())).collect()
    });
    // A line an event: such files are looked at with line-wise tools, too.
    let events: Vec<String> = trace.events.iter().map(Value::to_string).collect();
    format!(
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{},\"traceEvents\":[\n{}\n]}}\n",
        json!(about),
        events.join(",\n")
    )
}

struct Trace<'r> {
    events: Vec<Value>,
    clean: Clean<'r>,
}

impl Trace<'_> {
    fn process(&mut self, pid: u64, name: &str, place: usize) {
        let name = self.clean.text(name);
        self.events.push(json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}));
        let sort =
            json!({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": place}});
        self.events.push(sort);
    }

    fn thread(&mut self, pid: u64, tid: u64, name: &str) {
        let name = self.clean.text(name);
        self.events.push(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}));
    }

    fn slice(&mut self, (pid, tid): (u64, u64), (from, to): (i64, i64), name: &str, info: &str) {
        let (name, info) = (self.clean.text(or(name, "state")), self.clean.text(info));
        let mut event =
            json!({"ph": "X", "pid": pid, "tid": tid, "ts": from, "dur": to - from, "name": name, "cat": "state"});
        if !info.is_empty() {
            event["args"] = json!({"info": info});
        }
        self.events.push(event);
    }

    fn instant(&mut self, (pid, tid): (u64, u64), at: i64, (name, category): (&str, &str), info: &str) {
        let (name, info) = (self.clean.text(or(name, category)), self.clean.text(info));
        let mut event = json!({"ph": "i", "s": "t", "pid": pid, "tid": tid, "ts": at, "name": name, "cat": category});
        if !info.is_empty() {
            event["args"] = json!({"info": info});
        }
        self.events.push(event);
    }

    fn user_and_faults(&mut self, timeline: &Lanes<'_>) {
        self.thread(1, USER, "user");
        self.thread(1, NOTES, "run and service");
        for (n, fault) in timeline.faults.iter().enumerate() {
            let track = (1, FAULTS + n as u64);
            self.thread(track.0, track.1, &format!("fault {}", fault.name));
            let to = fault.to.unwrap_or(timeline.length).max(fault.from);
            self.slice(track, (fault.from, to), fault.name, "");
            for at in &fault.effects {
                self.instant(track, *at, ("effect", "fault"), "");
            }
        }
    }

    fn lane(&mut self, pid: u64, lane: &Lane<'_>) {
        let more = role(lane).map(|role| format!(" ({role})")).unwrap_or_default();
        let sort = if lane.is_cluster { "cluster" } else { "host" };
        self.process(pid, &format!("{sort} {}{more}", lane.name), pid as usize);
        for (tid, name, stages) in [(STATUSES, "status", false), (STAGES, "stage", true)] {
            let all = slices(lane, stages);
            if !all.is_empty() {
                self.thread(pid, tid, name);
            }
            for slice in all {
                self.slice((pid, tid), (slice.from, slice.to), slice.name, slice.info);
            }
        }
        self.thread(pid, HAPPENED, "what happened");
    }

    /// What lasts no time, and the percentages.
    fn instants(&mut self, moments: &Moments<'_>) {
        for item in &moments.items {
            let fact = &moments.facts[item.fact as usize];
            let pid = u64::from(item.who) + 1;
            let track = match (moments.who[item.who as usize].sort, fact.kind) {
                (_, MomentKind::User) => (1, USER),
                (Sort::Run, _) => (1, NOTES),
                _ => (pid, HAPPENED),
            };
            match fact.kind {
                MomentKind::Status | MomentKind::Stage | MomentKind::Fault => {}
                MomentKind::Percent => {
                    let percent: i64 = fact.value.parse().unwrap_or_default();
                    let event = json!({
                        "ph": "C", "pid": pid, "ts": item.at, "name": "installed %", "args": {"percent": percent}
                    });
                    self.events.push(event);
                }
                MomentKind::Validation | MomentKind::Operator => {
                    let name = format!("{}: {}", fact.key, fact.value);
                    self.instant(track, item.at, (&name, fact.kind.word()), &fact.info);
                }
                kind => self.instant(track, item.at, (&fact.value, kind.word()), &fact.info),
            }
        }
    }
}

/// A name, or another word where it is empty: without one Perfetto shows nothing.
fn or<'t>(name: &'t str, other: &'t str) -> &'t str {
    if name.is_empty() { other } else { name }
}
