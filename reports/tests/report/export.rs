//! What other programs are given: that they can read it, whatever a history holds.

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_proto::tonic::trace::v1::TracesData;
use rstest::rstest;
use serde_json::Value;
use vlab_model::history::Observation;
use vlab_reports::Redactor;
use vlab_reports::export::{otlp, perfetto};

use crate::sample;

/// What of a trace for Perfetto would not be drawn as it is meant.
fn wrong_in_perfetto(text: &str) -> Vec<String> {
    let trace: Value = serde_json::from_str(text).unwrap();
    let (mut wrong, mut named) = (Vec::new(), BTreeSet::new());
    let mut tracks: BTreeMap<(u64, u64), Vec<(i64, i64)>> = BTreeMap::new();
    let mut used = BTreeSet::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let number = |name: &str| event[name].as_i64();
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap_or(0));
        match event["ph"].as_str().unwrap() {
            "M" if event["name"] == "process_name" && !named.insert((track.0, u64::MAX)) => {
                wrong.push(format!("two processes are {}", track.0));
            }
            "M" if event["name"] == "thread_name" && !named.insert(track) => {
                wrong.push(format!("two threads are {track:?}"));
            }
            "M" => {}
            "X" => {
                used.insert(track);
                let from = number("ts").unwrap();
                tracks.entry(track).or_default().push((from, from + number("dur").unwrap()));
            }
            "i" => {
                used.insert(track);
                assert!(number("ts").unwrap() >= 0 && event["s"] == "t", "{event}");
            }
            "C" => assert!(event["args"]["percent"].is_i64() && number("ts").is_some(), "{event}"),
            other => wrong.push(format!("an event of the unknown phase {other}")),
        }
        if event["name"].as_str().is_none_or(str::is_empty) {
            wrong.push(format!("without a name: {event}"));
        }
    }
    for (track, mut slices) in tracks {
        slices.sort_unstable();
        wrong.extend(slices.iter().filter(|(from, to)| from > to).map(|slice| format!("{track:?}: {slice:?}")));
        let overlap = slices.windows(2).filter(|pair| pair[0].1 > pair[1].0);
        wrong.extend(overlap.map(|pair| format!("{track:?}: {pair:?} overlap")));
    }
    wrong.extend(used.difference(&named).map(|track| format!("the thread {track:?} has no name")));
    wrong
}

/// What of an OTLP file is not as its mapping to JSON says, or is no tree.
fn wrong_in_otlp(text: &str) -> Vec<String> {
    let file: Value = serde_json::from_str(text).unwrap();
    // OpenTelemetry's own types read it, and have as many spans and events then as there are.
    let theirs: TracesData = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let read = &theirs.resource_spans[0].scope_spans[0].spans;
    let resource = &file["resourceSpans"][0];
    assert!(resource["resource"]["attributes"].as_array().unwrap().iter().any(|a| a["key"] == "service.name"));
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    let hex = |value: &Value, digits: usize| {
        value.as_str().is_some_and(|id| {
            id.len() == digits && id.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')) && id.contains(|c| c != '0')
        })
    };
    let nanos = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let mut wrong = Vec::new();
    let mut known: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    assert_eq!(read.len(), spans.len());
    for (span, read) in spans.iter().zip(read) {
        let times = (read.start_time_unix_nano, read.end_time_unix_nano);
        let counts = (read.events.len(), read.attributes.len());
        let ours = [&span["events"], &span["attributes"]].map(|all| all.as_array().unwrap().len());
        if times != (nanos(&span["startTimeUnixNano"]), nanos(&span["endTimeUnixNano"])) || counts != (ours[0], ours[1])
        {
            wrong.push(format!("{span} is read as {read:?}"));
        }
        if !hex(&span["traceId"], 32) || !hex(&span["spanId"], 16) || span["traceId"] != spans[0]["traceId"] {
            wrong.push(format!("ids of {span}"));
        }
        let (from, to) = (nanos(&span["startTimeUnixNano"]), nanos(&span["endTimeUnixNano"]));
        if from > to {
            wrong.push(format!("ends before it begins: {span}"));
        }
        // Parents stand before their children, and last as long.
        if let Some(parent) = span["parentSpanId"].as_str() {
            match known.get(parent) {
                Some((begin, end)) if *begin <= from && to <= *end => {}
                of_parent => wrong.push(format!("outside of {of_parent:?}: {span}")),
            }
        } else if !known.is_empty() {
            wrong.push(format!("a second root: {span}"));
        }
        if known.insert(span["spanId"].as_str().unwrap(), (from, to)).is_some() {
            wrong.push(format!("two have the id of {span}"));
        }
        for event in span["events"].as_array().unwrap() {
            assert!(nanos(&event["timeUnixNano"]) > 0 && event["name"].is_string(), "{event}");
        }
    }
    wrong
}

/// What of the files of a history is wrong.
pub(crate) fn wrong(history: &[Observation]) -> Vec<String> {
    let redactor = Redactor::default();
    let mut wrong = wrong_in_perfetto(&perfetto::render(history, &redactor));
    wrong.extend(wrong_in_otlp(&otlp::render(history, &redactor)));
    wrong
}

#[rstest]
#[case::ha(sample::ha().1)]
#[case::failed(sample::sno_failed().1)]
#[case::hostile(crate::hostile().1)]
#[case::fleet(sample::fleet(50, 20).1)]
#[case::empty(Vec::new())]
fn other_programs_can_read_it(#[case] history: Vec<Observation>) {
    let wrong = wrong(&history);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_same_history_gives_the_same_files() {
    let (_, history) = sample::ha();
    let redactor = Redactor::default();
    assert_eq!(perfetto::render(&history, &redactor), perfetto::render(&history, &redactor));
    assert_eq!(otlp::render(&history, &redactor), otlp::render(&history, &redactor));
}

#[test]
fn a_failed_installation_can_be_found_in_the_files() {
    let (_, history) = sample::sno_failed();
    let redactor = Redactor::new(["input/output".to_owned()]);
    let trace: Value = serde_json::from_str(&perfetto::render(&history, &redactor)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |ph: &str, name: &str| events.iter().find(|e| e["ph"] == ph && e["name"] == name).unwrap();
    let failed = of("X", "Failed");
    assert_eq!(failed["args"]["info"], "failed after 3 attempts: write /dev/sda: (redacted) error");
    assert_eq!((&failed["ts"], &failed["dur"]), (&3_700_000.into(), &320_000.into()));
    assert_eq!(of("X", "disk-write-error")["dur"], 950_000);
    assert!(events.iter().any(|e| e["args"]["name"] == "host master-0 (master, bootstrap)"));
    assert_eq!(trace["otherData"]["seed"], "42");

    let file: Value = serde_json::from_str(&otlp::render(&history, &redactor)).unwrap();
    let spans = file["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let error = spans.iter().find(|span| span["name"] == "Failed" && span["status"]["code"] == 2).unwrap();
    assert_eq!(error["startTimeUnixNano"], "1795179003700000000");
    assert!(!file.to_string().contains("input/output"));
}
