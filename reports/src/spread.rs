//! What several runs of one scenario took, side by side: median and spread of each stage, and whether a change against an
//! earlier series is more than noise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text::human_ms;
use vlab_judge::result::RunResult;

/// A change of a median by less than this, in percent, is noise.
pub const NOISE_PERCENT: f64 = 5.0;
/// Version of a written series. Raised when the meaning of a member changes.
pub const SERIES_VERSION: u32 = 1;

/// What the runs of a series took. Written to a file, it is what a later series is compared with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// [`SERIES_VERSION`] of the writer.
    pub version: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// Time profile: times of different ones cannot be compared.
    pub time_profile: String,
    /// `simulated`, `process`, ...; `virtual` in virtual time.
    pub service: String,
    /// What its hosts were: `simulated`, `vm`, `mixed`. Simulated ones and machines cannot be compared.
    #[serde(default)]
    pub hosts: String,
    /// What was measured, in the order in which it happens.
    pub stages: Vec<Timing>,
}

/// One thing that was measured in several runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// For example `ha: bootkube-done`.
    pub name: String,
    /// Milliseconds, a run each; runs that did not come so far have none.
    pub took_ms: Vec<f64>,
}

/// Median and spread of one thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Number of runs.
    pub count: usize,
    /// Median, in milliseconds.
    pub median_ms: f64,
    /// Distance between the quartiles, in milliseconds: half of the runs lie within it.
    pub quartiles_ms: f64,
    /// Shortest, in milliseconds.
    pub least_ms: f64,
    /// Longest, in milliseconds.
    pub most_ms: f64,
}

impl Spread {
    /// Of these; `None` of nothing.
    pub fn of(took_ms: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = took_ms.iter().copied().filter(|ms| ms.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (least_ms, most_ms) = (*sorted.first()?, *sorted.last()?);
        // Between two neighbours where it falls between them.
        let at = |share: f64| {
            let place = share * (sorted.len() - 1) as f64;
            let below = place.floor();
            let (low, high) = (sorted[below as usize], sorted[(place.ceil() as usize).min(sorted.len() - 1)]);
            low + (high - low) * (place - below)
        };
        Some(Self { count: sorted.len(), median_ms: at(0.5), quartiles_ms: at(0.75) - at(0.25), least_ms, most_ms })
    }
}

/// How a median changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// By so many percent of the earlier one.
    pub percent: f64,
}

impl Change {
    /// From the earlier median to the later one; `None` where the earlier one was nothing.
    pub fn between(before_ms: f64, now_ms: f64) -> Option<Self> {
        (before_ms > 0.0).then(|| Self { percent: (now_ms - before_ms) / before_ms * 100.0 })
    }

    /// Is it too small to mean anything?
    pub fn is_noise(self) -> bool {
        self.percent.abs() < NOISE_PERCENT
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_noise() {
            true => write!(f, "{:+.1}% (noise)", self.percent),
            false if self.percent > 0.0 => write!(f, "{:+.1}% (slower)", self.percent),
            false => write!(f, "{:+.1}% (faster)", self.percent),
        }
    }
}

impl Series {
    /// The series of these runs: the stages of each pivot, the durations that every run has, and latencies under load.
    pub fn of(results: &[RunResult]) -> Self {
        let mut stages: Vec<Timing> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut add = |name: String, took: Option<f64>| {
            let Some(took) = took else { return };
            let place = *places.entry(name.clone()).or_insert_with(|| {
                stages.push(Timing { name, took_ms: Vec::new() });
                stages.len() - 1
            });
            stages[place].took_ms.push(took);
        };
        for result in results {
            for pivot in &result.pivots {
                for moment in &pivot.moments {
                    add(format!("{}: {}", pivot.cluster, moment.name), moment.took_ms);
                }
                add(format!("{}: pivot", pivot.cluster), pivot.took_ms);
            }
            for duration in &result.durations {
                let of = duration.subject.as_deref().map(|s| format!("{s}: ")).unwrap_or_default();
                add(format!("{of}{}", duration.name), duration.took_ms);
            }
            for operation in result.load.iter().flat_map(|load| &load.latency) {
                add(format!("{}: 99th percentile", operation.operation), Some(operation.latency_ms.p99));
            }
        }
        let run = results.first().map(|r| r.run.clone()).unwrap_or_default();
        Self {
            version: SERIES_VERSION,
            scenario: run.scenario,
            time_profile: run.time_profile,
            service: if run.virtual_time { "virtual".to_owned() } else { run.service.to_string() },
            hosts: run.hosts.to_string(),
            stages,
        }
    }

    /// Why it cannot be compared with that one, if so.
    pub fn differs_from(&self, other: &Self) -> Option<String> {
        let pairs = [
            ("version", self.version.to_string(), other.version.to_string()),
            ("scenario", self.scenario.clone(), other.scenario.clone()),
            ("time profile", self.time_profile.clone(), other.time_profile.clone()),
            ("service", self.service.clone(), other.service.clone()),
            ("kind of hosts", self.hosts.clone(), other.hosts.clone()),
        ];
        let (what, a, b) = pairs.into_iter().find(|(_, a, b)| a != b)?;
        Some(format!("its {what} is {b:?}, that of these runs is {a:?}"))
    }

    /// A table for the terminal, with the changes against an earlier series.
    pub fn table(&self, before: Option<&Series>) -> String {
        let mut head = vec!["stage", "runs", "median", "IQR", "shortest", "longest"];
        head.extend(before.map(|_| "change"));
        let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        for stage in &self.stages {
            let Some(now) = Spread::of(&stage.took_ms) else { continue };
            let mut row = vec![stage.name.clone(), now.count.to_string()];
            row.extend([now.median_ms, now.quartiles_ms, now.least_ms, now.most_ms].map(human_ms));
            if let Some(before) = before {
                let then = before.stages.iter().find(|s| s.name == stage.name).and_then(|s| Spread::of(&s.took_ms));
                let change = then.and_then(|then| Change::between(then.median_ms, now.median_ms));
                row.push(change.map_or("new".to_owned(), |c| c.to_string()));
            }
            rows.push(row);
        }
        let columns = rows.first().map_or(0, Vec::len);
        let widths: Vec<usize> =
            (0..columns).map(|c| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for row in rows {
            let mut line = String::new();
            for (c, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let pad = " ".repeat(width - cell.chars().count());
                // Names begin and changes end at the left; numbers stand below each other.
                match c {
                    0 => line.push_str(&format!("{cell}{pad}")),
                    6 => line.push_str(&format!("  {cell}")),
                    _ => line.push_str(&format!("  {pad}{cell}")),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use vlab_judge::result::{DurationResult, LoadReport, OperationLatency, PivotMomentResult, PivotResult, Quantiles};

    #[rstest]
    #[case(&[], None)]
    #[case(&[4.0], Some((4.0, 0.0)))]
    #[case(&[3.0, 1.0], Some((2.0, 1.0)))]
    #[case(&[5.0, 1.0, 2.0, 4.0, 3.0], Some((3.0, 2.0)))]
    fn median_and_quartiles(#[case] took: &[f64], #[case] expected: Option<(f64, f64)>) {
        assert_eq!(Spread::of(took).map(|s| (s.median_ms, s.quartiles_ms)), expected);
    }

    #[test]
    fn a_run_under_load_is_compared_by_its_latencies() {
        let latency_ms = Quantiles { p99: 59.0, ..Quantiles::default() };
        let latency = vec![OperationLatency { operation: "GetNextSteps".to_owned(), latency_ms }];
        let load = Some(LoadReport { latency, ..LoadReport::default() });
        let series = Series::of(&[RunResult { load, ..RunResult::default() }]);
        let stage = Timing { name: "GetNextSteps: 99th percentile".to_owned(), took_ms: vec![59.0] };
        assert_eq!(series.stages, [stage]);
    }

    #[rstest]
    #[case(100.0, 104.9, "+4.9% (noise)")]
    #[case(100.0, 95.1, "-4.9% (noise)")]
    #[case(100.0, 105.0, "+5.0% (slower)")]
    #[case(200.0, 100.0, "-50.0% (faster)")]
    fn a_change_is_noise_below_five_percent(#[case] before: f64, #[case] now: f64, #[case] expected: &str) {
        assert_eq!(Change::between(before, now).unwrap().to_string(), expected);
    }

    fn run(took_s: f64) -> RunResult {
        let moment =
            |name: &str, took_ms| PivotMomentResult { name: name.to_owned(), took_ms, ..PivotMomentResult::default() };
        RunResult {
            pivots: vec![PivotResult {
                cluster: "ha".to_owned(),
                moments: vec![moment("bootkube-started", None), moment("bootkube-done", Some(took_s * 1e3))],
                took_ms: Some(took_s * 2e3),
                ..PivotResult::default()
            }],
            durations: vec![DurationResult {
                name: "install to installed".to_owned(),
                subject: Some("ha".to_owned()),
                took_ms: (took_s > 11.0).then_some(60_000.0),
                ..DurationResult::default()
            }],
            ..RunResult::default()
        }
    }

    #[test]
    fn a_series_and_the_one_before_it() {
        let before = Series::of(&[run(10.0), run(10.2)]);
        let now = Series::of(&[run(12.0), run(14.0), run(10.0)]);
        insta::assert_snapshot!(now.table(Some(&before)), @r"
        stage                     runs    median     IQR  shortest   longest  change
        ha: bootkube-done            3   12.00 s  2.00 s   10.00 s   14.00 s  +18.8% (slower)
        ha: pivot                    3   24.00 s  4.00 s   20.00 s   28.00 s  +18.8% (slower)
        ha: install to installed     2  1 m 00 s    0 µs  1 m 00 s  1 m 00 s  new
        ");
        assert_eq!(now.differs_from(&before), None);
        let other = Series { time_profile: "real".to_owned(), ..before };
        assert_eq!(now.differs_from(&other).unwrap(), "its time profile is \"real\", that of these runs is \"\"");
    }
}
