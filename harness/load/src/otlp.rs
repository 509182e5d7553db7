//! A result as metrics of OTLP in JSON, for whatever keeps the figures of many runs. Times are nanoseconds since 1970 as texts, and so
//! are whole numbers of 64 bits, as the mapping of Protocol Buffers to JSON has them.

use serde_json::{Value, json};

use crate::result::{Counted, LoadResult, Second, Values};

/// `AGGREGATION_TEMPORALITY_DELTA`: each point is of its own time, from its start to its end.
const DELTA: u8 = 1;
/// Upper bounds of the buckets of requests, in seconds.
const OF_REQUESTS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// And of installations.
const OF_INSTALLATIONS: &[f64] = &[1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];
const NANOS: u64 = 1_000_000_000;

/// The file.
pub fn render(result: &LoadResult) -> String {
    let about = vec![
        attribute("service.name", "vlab load"),
        attribute("vlab.load.plan", &result.plan),
        attribute("vlab.load.seed", &result.seed.to_string()),
        attribute("vlab.load.target", result.target.as_str()),
        attribute("vlab.load.url", &result.url),
        attribute("vlab.load.hosts", &result.hosts.to_string()),
    ];
    let file = File { result, begin: u64::try_from(result.started_at).unwrap_or(0) * NANOS };
    let metrics: Vec<Value> = [file.by_second(), file.by_operation(), file.as_a_whole()].concat();
    let data = json!({"resourceMetrics": [{
        "resource": {"attributes": about},
        "scopeMetrics": [{
            "scope": {"name": "vlab", "version": env!("CARGO_PKG_VERSION")},
            // A metric without a point is none.
            "metrics": metrics.into_iter().filter(has_points).collect::<Vec<_>>(),
        }],
    }]});
    data.to_string() + "\n"
}

fn has_points(metric: &Value) -> bool {
    ["sum", "gauge", "histogram"]
        .iter()
        .any(|kind| metric[kind]["dataPoints"].as_array().is_some_and(|p| !p.is_empty()))
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// A point that is of the time between both.
fn point((from, to): (u64, u64), attributes: &[Value], value: Value) -> Value {
    let mut point = json!({
        "attributes": attributes,
        "startTimeUnixNano": from.to_string(),
        "timeUnixNano": to.to_string(),
    });
    if let (Some(point), Value::Object(value)) = (point.as_object_mut(), value) {
        point.extend(value);
    }
    point
}

fn whole(value: u64) -> Value {
    json!({"asInt": value.to_string()})
}

fn fraction(value: f64) -> Value {
    json!({"asDouble": value})
}

/// Counts that are added up.
fn sum(name: &str, about: &str, unit: &str, points: Vec<Value>) -> Value {
    let sum = json!({"aggregationTemporality": DELTA, "isMonotonic": true, "dataPoints": points});
    json!({"name": name, "description": about, "unit": unit, "sum": sum})
}

/// What is so at a time.
fn gauge(name: &str, about: &str, unit: &str, points: Vec<Value>) -> Value {
    json!({"name": name, "description": about, "unit": unit, "gauge": {"dataPoints": points}})
}

fn histogram(name: &str, about: &str, points: Vec<Value>) -> Value {
    let histogram = json!({"aggregationTemporality": DELTA, "dataPoints": points});
    json!({"name": name, "description": about, "unit": "s", "histogram": histogram})
}

/// Values as buckets; they are kept with three digits, and so is the sum.
fn buckets(values: &Values, bounds: &[f64]) -> Value {
    let mut counts = vec![0_u64; bounds.len() + 1];
    let mut sum = 0.0;
    for (us, count) in &values.0 {
        let value = *us as f64 / 1e6;
        sum += value * *count as f64;
        counts[bounds.partition_point(|bound| *bound < value)] += count;
    }
    let mut all = json!({
        "count": values.count().to_string(),
        "sum": sum,
        "explicitBounds": bounds,
        "bucketCounts": counts.iter().map(u64::to_string).collect::<Vec<_>>(),
    });
    let there = || values.0.iter().filter(|(_, count)| *count > 0).map(|(us, _)| *us);
    if let (Some(all), Some(least), Some(most)) = (all.as_object_mut(), there().min(), there().max()) {
        all.insert("min".to_owned(), json!(least as f64 / 1e6));
        all.insert("max".to_owned(), json!(most as f64 / 1e6));
    }
    all
}

/// What of a second is shown: more than nothing may be known of it.
type OfSecond = fn(&Second) -> Option<Value>;

struct File<'a> {
    result: &'a LoadResult,
    /// Nanoseconds since 1970.
    begin: u64,
}

impl File<'_> {
    /// From the beginning to the end.
    fn run(&self) -> (u64, u64) {
        (self.begin, self.begin + (self.result.took_s.max(0.0) * NANOS as f64) as u64)
    }

    fn seconds(&self, attributes: &[Value], of: OfSecond) -> Vec<Value> {
        let at = |second: &Second| self.begin + second.at * NANOS;
        let points = self.result.seconds.iter().filter_map(|second| Some((at(second), of(second)?)));
        points.map(|(at, value)| point((at, at + NANOS), attributes, value)).collect()
    }

    /// Of both processes, one after the other.
    fn processes(&self, generator: OfSecond, service: OfSecond) -> Vec<Value> {
        let of = |process: &str, of: OfSecond| self.seconds(&[attribute("vlab.load.process", process)], of);
        [of("generator", generator), of("service", service)].concat()
    }

    /// What happened when.
    fn by_second(&self) -> Vec<Value> {
        let seconds = |of: OfSecond| self.seconds(&[], of);
        let quantile = |quantile: &str, of: OfSecond| self.seconds(&[attribute("quantile", quantile)], of);
        let latency = [
            quantile("0.5", |s| Some(fraction(s.p50_us as f64 / 1e6))),
            quantile("0.99", |s| Some(fraction(s.p99_us as f64 / 1e6))),
        ];
        let cpu = self.processes(
            |s| Some(fraction(s.generator_cpu_ms as f64 / 1000.0)),
            |s| s.service_cpu_ms.map(|ms| fraction(ms as f64 / 1000.0)),
        );
        let memory = self.processes(
            |s| (s.generator_kib > 0).then(|| whole(s.generator_kib * 1024)),
            |s| s.service_kib.map(|kib| whole(kib * 1024)),
        );
        vec![
            sum(
                "vlab.load.offered",
                "Requests that were to be made.",
                "{request}",
                seconds(|s| Some(whole(s.offered))),
            ),
            sum("vlab.load.answered", "Answers below 400.", "{request}", seconds(|s| Some(whole(s.answered)))),
            sum("vlab.load.failed", "Requests that failed.", "{request}", seconds(|s| Some(whole(s.failed)))),
            gauge("vlab.load.latency", "From the moment at which a request was to be made.", "s", latency.concat()),
            gauge(
                "vlab.load.late",
                "The latest that a request was made after its moment: the generator's doing.",
                "s",
                seconds(|s| Some(fraction(s.late_us as f64 / 1e6))),
            ),
            sum("vlab.load.cpu", "Processor time of the processes.", "s", cpu),
            gauge("vlab.load.memory", "Resident memory of the processes.", "By", memory),
        ]
    }

    /// When that phase was.
    fn phase(&self, position: usize) -> (u64, u64) {
        let before = self.result.phases.iter().take(position).map(|phase| phase.takes.as_nanos()).sum::<u128>();
        let takes = self.result.phases.get(position).map_or(0, |phase| phase.takes.as_nanos());
        let at = |nanos: u128| self.begin + u64::try_from(nanos).unwrap_or(0);
        (at(before), at(before + takes))
    }

    /// What was counted of each operation in each phase.
    fn by_operation(&self) -> Vec<Value> {
        let (mut durations, mut errors) = (Vec::new(), Vec::new());
        for line in &self.result.lines {
            let kind = self.result.phases.get(line.phase).map_or("", |phase| phase.kind.as_str());
            let about = [
                attribute("vlab.load.operation", &line.operation),
                attribute("vlab.load.phase", &format!("{} {kind}", line.phase + 1)),
            ];
            let Counted { latency, errors: by_kind, .. } = &line.counted;
            let when = self.phase(line.phase);
            durations.push(point(when, &about, buckets(latency, OF_REQUESTS)));
            for (kind, count) in by_kind {
                let about = [&about[..], &[attribute("error.type", kind)]].concat();
                errors.push(point(when, &about, whole(*count)));
            }
        }
        vec![
            histogram("vlab.load.request.duration", "From the moment at which a request was to be made.", durations),
            sum("vlab.load.errors", "Requests that failed, by what was wrong.", "{request}", errors),
        ]
    }

    /// What is of the whole run.
    fn as_a_whole(&self) -> Vec<Value> {
        let (result, run) = (self.result, self.run());
        let (mut ends, mut took) = (Vec::new(), Vec::new());
        if let Some(installs) = &result.installs {
            let otherwise = installs.ended_otherwise.iter().map(|(how, count)| (how.as_str(), *count));
            for (how, count) in std::iter::once(("installed", installs.installed)).chain(otherwise) {
                ends.push(point(run, &[attribute("vlab.load.end", how)], whole(count)));
            }
            took.push(point(run, &[], buckets(&installs.took, OF_INSTALLATIONS)));
        }
        let checks = result.checks.iter();
        let checks = checks.map(|c| point(run, &[attribute("vlab.load.check", &c.name)], whole(u64::from(c.holds))));
        let changes = result.service_metrics.iter();
        let changes = changes.map(|(name, by)| point(run, &[attribute("vlab.load.metric", name)], fraction(*by)));
        let opened = vec![point(run, &[], whole(result.connections_opened))];
        vec![
            sum("vlab.load.connections", "TCP connections that were opened.", "{connection}", opened),
            sum("vlab.load.installations", "Installations, by how they ended.", "{installation}", ends),
            histogram("vlab.load.installation.duration", "From when each was to begin.", took),
            gauge("vlab.load.holds", "Thresholds: 1 where it holds.", "1", checks.collect()),
            gauge("vlab.load.service.change", "What changed in the service's own figures.", "1", changes.collect()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
    use opentelemetry_proto::tonic::metrics::v1::{Metric, MetricsData};
    use vlab_scenario::{LoadPhase, PhaseKind};

    use super::*;
    use crate::result::{Check, Installs, Line, Target};

    fn sample() -> LoadResult {
        let phase = |kind, seconds| LoadPhase { kind, takes: Duration::from_secs(seconds) };
        let errors = BTreeMap::from([("HTTP 503".to_owned(), 2)]);
        let latency = Values(vec![(400, 3), (500, 1), (2_000_000, 4), (60_000_000, 1)]);
        let second = |at| Second {
            at,
            offered: 7,
            answered: 5,
            failed: 2,
            generator_cpu_ms: 250,
            generator_kib: 10,
            service_kib: (at == 1).then_some(20),
            ..Second::default()
        };
        LoadResult {
            plan: "p \"1\"".into(),
            target: Target::Simulated,
            started_at: 1_700_000_000,
            took_s: 3.0,
            phases: vec![phase(PhaseKind::Ramp, 1), phase(PhaseKind::Hold, 2)],
            lines: vec![Line {
                phase: 1,
                operation: "v2GetNextSteps".into(),
                counted: Counted { offered: 11, answered: 9, errors, latency, ..Counted::default() },
            }],
            seconds: (0..3).map(second).collect(),
            installs: Some(Installs {
                begun: 2,
                installed: 1,
                took: Values(vec![(9_000_000, 1)]),
                ..Installs::default()
            }),
            checks: vec![Check { name: "it is fast".into(), holds: false, seen: "2 s".into() }],
            service_metrics: BTreeMap::from([("process_cpu_seconds_total".to_owned(), 1.5)]),
            ..LoadResult::default()
        }
    }

    /// As OpenTelemetry's own types read it.
    fn read(text: &str) -> MetricsData {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn metrics(data: &MetricsData) -> BTreeMap<&str, &Metric> {
        data.resource_metrics[0].scope_metrics[0].metrics.iter().map(|metric| (metric.name.as_str(), metric)).collect()
    }

    fn numbers(metric: &Metric) -> Vec<(u64, u64, Number)> {
        let points = match metric.data.as_ref().unwrap() {
            Data::Sum(sum) => {
                assert!(sum.is_monotonic && sum.aggregation_temporality == i32::from(DELTA), "{metric:?}");
                &sum.data_points
            }
            Data::Gauge(gauge) => &gauge.data_points,
            other => panic!("{other:?}"),
        };
        points.iter().map(|p| (p.start_time_unix_nano, p.time_unix_nano, p.value.unwrap())).collect()
    }

    #[test]
    fn opentelemetry_reads_what_is_written() {
        let result = sample();
        let text = render(&result);
        let data = read(&text);
        let metrics = metrics(&data);
        let begin = 1_700_000_000 * NANOS;
        let offered = numbers(metrics["vlab.load.offered"]);
        assert_eq!(offered.iter().map(|(.., n)| *n).collect::<Vec<_>>(), [Number::AsInt(7); 3]);
        assert_eq!((offered[2].0, offered[2].1), (begin + 2 * NANOS, begin + 3 * NANOS));
        // The service was watched in one second only.
        assert_eq!(numbers(metrics["vlab.load.memory"]).len(), 4);
        assert_eq!(
            numbers(metrics["vlab.load.cpu"]).iter().map(|(.., n)| *n).collect::<Vec<_>>(),
            [Number::AsDouble(0.25); 3]
        );
        assert_eq!(numbers(metrics["vlab.load.errors"]), [(begin + NANOS, begin + 3 * NANOS, Number::AsInt(2))]);
        assert_eq!(numbers(metrics["vlab.load.holds"])[0].2, Number::AsInt(0));
        assert_eq!(numbers(metrics["vlab.load.service.change"])[0].2, Number::AsDouble(1.5));
        let Some(Data::Histogram(durations)) = &metrics["vlab.load.request.duration"].data else { panic!("{text}") };
        let of = &durations.data_points[0];
        assert_eq!((of.count, of.bucket_counts.iter().sum::<u64>()), (9, 9));
        assert_eq!(
            (of.bucket_counts[0], of.bucket_counts[11], of.bucket_counts[15]),
            (4, 4, 1),
            "a bound is in its bucket"
        );
        assert_eq!((of.explicit_bounds.len() + 1, of.min, of.max), (of.bucket_counts.len(), Some(0.0004), Some(60.0)));
        assert!((of.sum.unwrap() - 68.0017).abs() < 1e-9, "{:?}", of.sum);
        assert_eq!(of.attributes[0].key, "vlab.load.operation");
        let Some(Data::Histogram(took)) = &metrics["vlab.load.installation.duration"].data else { panic!("{text}") };
        assert_eq!((took.data_points[0].count, took.data_points[0].bucket_counts[3]), (1, 1));
    }

    /// Their reader takes what it does not know for nothing: what it has understood, written again, is all that there was.
    #[test]
    fn opentelemetry_leaves_nothing_out() {
        let text = render(&sample());
        let ours: Value = serde_json::from_str(&text).unwrap();
        let again = serde_json::to_value(read(&text)).unwrap();
        let lost = not_in(&ours, &again, "");
        assert!(lost.is_empty(), "{}", lost.join("\n"));
    }

    /// What of the first is not in the second.
    fn not_in(a: &Value, b: &Value, path: &str) -> Vec<String> {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => {
                let of = |(key, value): (&String, &Value)| {
                    let path = format!("{path}.{key}");
                    b.get(key).map_or_else(|| vec![format!("{path} is not there")], |b| not_in(value, b, &path))
                };
                a.iter().flat_map(of).collect()
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                let pairs = a.iter().zip(b).enumerate();
                pairs.flat_map(|(n, (a, b))| not_in(a, b, &format!("{path}[{n}]"))).collect()
            }
            // Whole numbers are texts here or there.
            (Value::String(a), Value::Number(b)) if *a == b.to_string() => Vec::new(),
            (a, b) if a == b => Vec::new(),
            (a, b) => vec![format!("{path}: {a} is {b}")],
        }
    }

    #[test]
    fn every_metric_has_its_name_once_and_a_point() {
        for result in [sample(), LoadResult::default()] {
            let text = render(&result);
            let data = read(&text);
            let all = &data.resource_metrics[0].scope_metrics[0].metrics;
            let names: BTreeSet<&str> = all.iter().map(|metric| metric.name.as_str()).collect();
            assert_eq!(names.len(), all.len());
            let value: Value = serde_json::from_str(&text).unwrap();
            let metrics = value["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
            assert!(metrics.iter().all(has_points) && metrics.len() == all.len());
        }
    }
}
