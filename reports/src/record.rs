//! `runs.jsonl`: what each run of a folder came to, one line each, only ever appended to; and what these lines say about a scenario: how
//! often it passes, since when it does not, what it fails of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use vlab_api::Timestamp;
use vlab_judge::result::{RunResult, Verdict};

use crate::text::human_ms;

/// Name of the file, in the folder of the runs.
pub const RECORD: &str = "runs.jsonl";
/// Version of a line. Raised when the meaning of a member changes; new optional members do not raise it.
const VERSION: u32 = 1;
/// So many of the newest runs are shown one by one.
const LAST: usize = 10;

/// A line: an attempt of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Version of the line.
    pub v: u32,
    /// When it ended.
    pub at: Timestamp,
    /// Scenario.
    pub scenario: String,
    /// Id of the run.
    pub run_id: String,
    /// Id of its session.
    pub session: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// Its exit code.
    pub exit_code: u8,
    /// Wall time in milliseconds.
    pub took_ms: f64,
    /// Seed.
    pub seed: u64,
    /// The service under test: `simulated`, `process`, ...
    pub service: String,
    /// What the hosts were: `simulated`, `vm`, ...
    pub hosts: String,
    /// Time profile.
    pub time_profile: String,
    /// Version of the harness.
    pub vlab: String,
    /// What failed: sort and name of the check that decided. The same mistake has the same words in every run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl RunRecord {
    /// The line of a run of that session.
    pub fn of(result: &RunResult, session: &str) -> Self {
        let failed = (result.verdict != Verdict::Passed).then(|| match result.decisive() {
            Some(check) => format!("{}: {}", check.kind.as_str(), check.name),
            // Cut short: the reason has times and numbers, and what is before them is enough for a heap of the same.
            None => "run: cut short or not decided".to_owned(),
        });
        Self {
            v: VERSION,
            at: result.finished_at,
            scenario: result.run.scenario.clone(),
            run_id: result.run.run_id.clone(),
            session: session.to_owned(),
            verdict: result.verdict,
            exit_code: result.exit_code,
            took_ms: result.finished_at.since(result.started_at).as_secs_f64() * 1e3,
            seed: result.run.seed,
            service: result.run.service.word().to_string(),
            hosts: result.run.hosts.word().to_string(),
            time_profile: result.run.time_profile.clone(),
            vlab: result.run.vlab_version.clone(),
            failed,
        }
    }
}

/// Appends a line. In one piece, so that lines of runs that end at the same moment do not mix.
///
/// # Errors
/// Those of the file system, with the path in their text.
pub fn append(runs: &Path, run: &RunRecord) -> io::Result<()> {
    let path = runs.join(RECORD);
    let mut line = serde_json::to_vec(run).map_err(io::Error::other)?;
    line.push(b'\n');
    let written = OpenOptions::new().append(true).create(true).open(&path).and_then(|mut file| file.write_all(&line));
    written.map_err(|e| io::Error::new(e.kind(), format!("cannot append to {}: {e}", path.display())))
}

/// Reads the lines of a folder, oldest first, and how many could not be understood (of another version, or cut off by a full disk). No
/// file: no lines.
///
/// # Errors
/// Those of the file system, with the path in their text.
pub fn read(runs: &Path) -> io::Result<(Vec<RunRecord>, usize)> {
    let path = runs.join(RECORD);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let understood = |line: &&str| serde_json::from_str::<RunRecord>(line).ok().filter(|run| run.v == VERSION);
    let mut runs: Vec<RunRecord> = lines.iter().filter_map(understood).collect();
    let lost = lines.len() - runs.len();
    runs.sort_by_key(|run| run.at);
    Ok((runs, lost))
}

/// What the runs of one scenario say, against one kind of service with one kind of hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Statistics {
    /// Scenario.
    pub scenario: String,
    /// The service under test.
    pub service: String,
    /// The hosts.
    pub hosts: String,
    /// Runs.
    pub runs: usize,
    /// Those that passed.
    pub passed: usize,
    /// Those that failed.
    pub failed: usize,
    /// Those that say nothing about the product.
    pub inconclusive: usize,
    /// The newest ten, oldest first: `.` passed, `F` failed, `?` inconclusive.
    pub last: String,
    /// When one did not pass for the first time, and its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<(Timestamp, String)>,
    /// Median of the wall time of those that passed, in milliseconds.
    pub median_ms: f64,
    /// The longest wall time, in milliseconds, and the id of its run.
    pub slowest: (f64, String),
    /// What failed, how often, and the newest run that did; most frequent first.
    pub heaps: Vec<(String, usize, String)>,
}

impl Statistics {
    /// The part of the runs that passed, from 0 to 1.
    pub fn pass_rate(&self) -> f64 {
        self.passed as f64 / self.runs.max(1) as f64
    }

    /// Does it sometimes pass and sometimes not?
    pub fn is_flaky(&self) -> bool {
        (1..self.runs).contains(&self.passed)
    }
}

/// The statistics of each scenario, those that pass least often first. `last`: only the newest so many runs of each count.
pub fn statistics(runs: &[RunRecord], last: Option<usize>) -> Vec<Statistics> {
    let mut by_key: BTreeMap<(&str, &str, &str), Vec<&RunRecord>> = BTreeMap::new();
    for run in runs {
        by_key.entry((&run.scenario, &run.service, &run.hosts)).or_default().push(run);
    }
    let mut all: Vec<Statistics> = by_key
        .into_iter()
        .map(|((scenario, service, hosts), runs)| {
            let from = last.map_or(0, |last| runs.len().saturating_sub(last));
            Statistics {
                scenario: scenario.to_owned(),
                service: service.to_owned(),
                hosts: hosts.to_owned(),
                ..of(&runs[from..])
            }
        })
        .collect();
    all.sort_by(|a, b| a.pass_rate().total_cmp(&b.pass_rate()).then_with(|| a.scenario.cmp(&b.scenario)));
    all
}

fn of(runs: &[&RunRecord]) -> Statistics {
    let count = |verdict| runs.iter().filter(|run| run.verdict == verdict).count();
    let letter = |run: &&RunRecord| match run.verdict {
        Verdict::Passed => '.',
        Verdict::Failed => 'F',
        Verdict::Inconclusive => '?',
    };
    let mut took: Vec<f64> = runs.iter().filter(|r| r.verdict == Verdict::Passed).map(|run| run.took_ms).collect();
    took.sort_by(f64::total_cmp);
    let slowest = runs.iter().max_by(|a, b| a.took_ms.total_cmp(&b.took_ms));
    let mut heaps: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for run in runs {
        if let Some(failed) = &run.failed {
            let heap = heaps.entry(failed).or_default();
            *heap = (heap.0 + 1, &run.run_id);
        }
    }
    let mut heaps: Vec<_> = heaps.into_iter().map(|(what, (n, id))| (what.to_owned(), n, id.to_owned())).collect();
    heaps.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let first = runs.iter().find(|run| run.verdict != Verdict::Passed);
    Statistics {
        runs: runs.len(),
        passed: count(Verdict::Passed),
        failed: count(Verdict::Failed),
        inconclusive: count(Verdict::Inconclusive),
        last: runs[runs.len().saturating_sub(LAST)..].iter().map(letter).collect(),
        first_failure: first.map(|run| (run.at, run.run_id.clone())),
        median_ms: took.get(took.len() / 2).copied().unwrap_or_default(),
        slowest: slowest.map(|run| (run.took_ms, run.run_id.clone())).unwrap_or_default(),
        heaps,
        ..Statistics::default()
    }
}

/// The statistics for the terminal.
pub fn table(all: &[Statistics]) -> String {
    let title = |s: &Statistics| match (s.service.as_str(), s.hosts.as_str()) {
        ("simulated", "simulated") => s.scenario.clone(),
        (service, hosts) => format!("{} ({service}, hosts {hosts})", s.scenario),
    };
    let width = all.iter().map(|s| title(s).chars().count()).max().unwrap_or(0).max("scenario".len());
    let mut text = format!(
        "{:<width$}  {:>5}  {:>7}  {:<LAST$}  {:>10}  {:>10}  first failure\n",
        "scenario", "runs", "passed", "last ten", "median", "slowest"
    );
    for s in all {
        let first = s.first_failure.as_ref().map_or("–".to_owned(), |(at, _)| at.to_string());
        let _ = writeln!(
            text,
            "{:<width$}  {:>5}  {:>5.1} %  {:<LAST$}  {:>10}  {:>10}  {first}",
            title(s),
            s.runs,
            s.pass_rate() * 100.0,
            s.last,
            if s.passed == 0 { "–".to_owned() } else { human_ms(s.median_ms) },
            human_ms(s.slowest.0),
        );
        for (what, count, run) in &s.heaps {
            let _ = writeln!(text, "{:>4} × {what}  (newest: {run})", count);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict};

    fn run(scenario: &str, second: i64, failed: Option<&str>) -> RunRecord {
        RunRecord {
            v: VERSION,
            at: Timestamp::from_secs(second),
            scenario: scenario.to_owned(),
            run_id: format!("{scenario}-{second}"),
            verdict: if failed.is_some() { Verdict::Failed } else { Verdict::Passed },
            took_ms: 1000.0 * second as f64,
            service: "simulated".to_owned(),
            hosts: "simulated".to_owned(),
            failed: failed.map(str::to_owned),
            ..RunRecord::default()
        }
    }

    #[test]
    fn lines_are_appended_and_read_back_and_broken_ones_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), (Vec::new(), 0));
        let (second, first) = (run("a", 2, Some("x")), run("b", 1, None));
        for run in [&second, &first] {
            append(folder.path(), run).unwrap();
        }
        let path = folder.path().join(RECORD);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"v\":9}\n{\"v\":1,\"at\":");
        std::fs::write(&path, text).unwrap();
        assert_eq!(read(folder.path()).unwrap(), (vec![first, second], 2));
    }

    #[test]
    fn a_line_names_the_check_that_decided() {
        let mut result = RunResult::default();
        result.checks.push(CheckResult::new(CheckKind::Budget, "install", CheckVerdict::Failed));
        result.checks.push(CheckResult::new(CheckKind::Expectation, "all hosts", CheckVerdict::Failed));
        result.conclude();
        assert_eq!(RunRecord::of(&result, "s").failed.as_deref(), Some("expectation: all hosts"));
        result.cut_short(130, "Ctrl-C after 17 s");
        result.checks.clear();
        assert_eq!(RunRecord::of(&result, "s").failed.as_deref(), Some("run: cut short or not decided"));
        result.verdict = Verdict::Passed;
        assert_eq!(RunRecord::of(&result, "s").failed, None);
    }

    #[test]
    fn scenarios_that_pass_least_often_come_first_with_what_they_fail_of() {
        let mut runs: Vec<RunRecord> = (1..=12).map(|n| run("good", n, None)).collect();
        runs.extend((1..=12).map(|n| run("bad", n, (n % 3 == 0).then_some(if n == 3 { "rare" } else { "often" }))));
        let all = statistics(&runs, None);
        let (bad, good) = (&all[0], &all[1]);
        assert_eq!((bad.scenario.as_str(), bad.runs, bad.passed, bad.failed), ("bad", 12, 8, 4));
        assert!(bad.is_flaky() && !good.is_flaky());
        assert_eq!((bad.last.as_str(), good.last.as_str()), ("F..F..F..F", ".........."));
        assert_eq!(bad.first_failure, Some((Timestamp::from_secs(3), "bad-3".to_owned())));
        assert_eq!(bad.slowest, (12_000.0, "bad-12".to_owned()));
        let heaps = [("often".to_owned(), 3, "bad-12".to_owned()), ("rare".to_owned(), 1, "bad-3".to_owned())];
        assert_eq!(bad.heaps, heaps);
        let text = table(&all);
        assert!(text.contains(" 66.7 %  F..F..F..F") && text.contains("   3 × often  (newest: bad-12)"), "{text}");
        let newest = statistics(&runs, Some(2));
        assert_eq!((newest[0].runs, newest[0].passed), (2, 1));
    }
}
