//! What came out: lines for people, a JUnit file for pipelines, JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde::Serialize;

use crate::suite::{CheckOutcome, ConformanceVerdict, Count, seconds};
use crate::table::ConformanceCheck;

/// Everything about a run of the suite, as it is written to `conformance.json`.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteResult {
    /// Version of this form.
    pub version: u32,
    /// Id of the run.
    pub run_id: String,
    /// The service: what it was asked for, and what it says that it is.
    pub service: String,
    /// Wall time of the checks in milliseconds.
    pub took_ms: u64,
    /// How many checks came out how.
    pub count: Count,
    /// Why nothing is known, when that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inconclusive: Option<String>,
    /// Each check.
    pub checks: Vec<CheckOutcome>,
}

/// `conformance.json`'s version.
pub const VERSION: u32 = 1;

/// The list of checks for people, grouped by area.
pub fn list(checks: &[ConformanceCheck]) -> String {
    let width = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let mut out = String::new();
    let mut area = "";
    for check in checks {
        if area != check.area {
            let _ = writeln!(out, "{}{}", if area.is_empty() { "" } else { "\n" }, check.area);
            area = &check.area;
        }
        let _ = writeln!(out, "  {:width$}  {}", check.id, check.purpose);
    }
    let _ = writeln!(out, "\n{} checks", checks.len());
    out
}

/// The same for programs.
pub fn list_json(checks: &[ConformanceCheck]) -> serde_json::Value {
    let one = |check: &ConformanceCheck| {
        let needs: Vec<&str> = check.needs.iter().map(|need| need.as_str()).collect();
        serde_json::json!({
            "id": check.id, "area": check.area, "purpose": check.purpose, "source": check.source, "needs": needs,
        })
    };
    checks.iter().map(one).collect()
}

/// One line for a check that is through.
pub fn line(outcome: &CheckOutcome) -> String {
    let took = seconds(Duration::from_millis(outcome.took_ms));
    match &outcome.verdict {
        ConformanceVerdict::Passed if outcome.tried_again.is_empty() => {
            format!("passed        {} ({took})", outcome.id)
        }
        ConformanceVerdict::Passed => {
            format!("passed        {} ({took}, tried again: {})", outcome.id, outcome.tried_again.join("; "))
        }
        ConformanceVerdict::Failed { .. } => format!("FAILED        {} ({took})", outcome.id),
        ConformanceVerdict::Skipped { reason } => format!("skipped       {}: {reason}", outcome.id),
        ConformanceVerdict::Inconclusive { reason } => format!("inconclusive  {}: {reason}", outcome.id),
    }
}

/// Lines of the service's log that are shown of a check.
const LOGGED: usize = 8;

/// The last lines of the log that are warnings or worse; without any, the last lines.
fn told_of(log: &[String]) -> Vec<&String> {
    let bad = |line: &&String| {
        ["level=warn", "level=error", "level=fatal", " WARN ", " ERROR "].iter().any(|w| line.contains(w))
    };
    let mut lines: Vec<&String> = log.iter().filter(bad).collect();
    if lines.is_empty() {
        lines = log.iter().collect();
    }
    lines.split_off(lines.len().saturating_sub(LOGGED))
}

/// Puts into each outcome that is not good the lines of the service's log that name something that the check had made.
pub fn add_service_log<'a>(outcomes: &mut [CheckOutcome], log: impl Iterator<Item = &'a str> + Clone) {
    const KEPT: usize = 200;
    for outcome in outcomes {
        if matches!(outcome.verdict, ConformanceVerdict::Passed | ConformanceVerdict::Skipped { .. }) {
            continue;
        }
        let about = log.clone().filter(|line| outcome.ids.iter().any(|id| line.contains(id.as_str())));
        let mut lines: Vec<String> = about.map(str::to_owned).collect();
        outcome.service_log = lines.split_off(lines.len().saturating_sub(KEPT));
    }
}

/// The end of a run for people: what did not pass in full, then numbers by area.
pub fn summary(result: &SuiteResult) -> String {
    let mut out = String::new();
    for outcome in &result.checks {
        let (word, text) = match &outcome.verdict {
            ConformanceVerdict::Failed { message } => ("FAILED", message),
            ConformanceVerdict::Inconclusive { reason } => ("inconclusive", reason),
            _ => continue,
        };
        let _ = writeln!(out, "{word} {}\n  {}", outcome.id, outcome.purpose);
        let _ = writeln!(out, "  source: {}", outcome.source);
        for line in text.lines() {
            let _ = writeln!(out, "  {line}");
        }
        if !outcome.trace.is_empty() {
            let _ = writeln!(out, "  the last requests:");
        }
        for line in outcome.trace.iter().rev().take(5).rev() {
            let _ = writeln!(out, "    {line}");
        }
        if !outcome.service_log.is_empty() {
            let _ = writeln!(out, "  what the service logged about it:");
        }
        for line in told_of(&outcome.service_log) {
            let _ = writeln!(out, "    {line}");
        }
        out.push('\n');
    }
    for outcome in result.checks.iter().filter(|outcome| !outcome.tried_again.is_empty()) {
        let _ = writeln!(out, "{} was tried again: {}", outcome.id, outcome.tried_again.join("; "));
    }
    let mut skipped: Vec<(&str, usize)> = Vec::new();
    for outcome in &result.checks {
        if let ConformanceVerdict::Skipped { reason } = &outcome.verdict {
            match skipped.iter_mut().find(|(known, _)| known == reason) {
                Some((_, n)) => *n += 1,
                None => skipped.push((reason, 1)),
            }
        }
    }
    for (reason, n) in skipped {
        let _ = writeln!(out, "{n} skipped: {reason}");
    }
    let mut areas: Vec<(&str, usize, usize)> = Vec::new();
    for outcome in &result.checks {
        let passed = usize::from(outcome.verdict == ConformanceVerdict::Passed);
        match areas.iter_mut().find(|(area, ..)| *area == outcome.area) {
            Some((_, all, ok)) => {
                *all += 1;
                *ok += passed;
            }
            None => areas.push((&outcome.area, 1, passed)),
        }
    }
    let width = areas.iter().map(|(area, ..)| area.len()).max().unwrap_or(0);
    for (area, all, passed) in areas {
        let _ = writeln!(out, "{area:width$}  {passed}/{all}");
    }
    for (outcome, left) in result.checks.iter().flat_map(|outcome| outcome.left.iter().map(move |left| (outcome, left)))
    {
        let _ = writeln!(out, "left behind by {}: {left}", outcome.id);
    }
    let Count { passed, failed, skipped, inconclusive } = result.count;
    let all = result.checks.len();
    let _ = writeln!(
        out,
        "conformance of {}: {passed} of {all} checks passed in {}, {failed} failed, {skipped} skipped, {inconclusive} \
         inconclusive",
        result.service,
        seconds(Duration::from_millis(result.took_ms))
    );
    if let Some(reason) = &result.inconclusive {
        let _ = writeln!(out, "inconclusive: {reason}");
    }
    out
}

/// One case for each check; the class is the area.
pub fn junit(result: &SuiteResult) -> String {
    let mut suite = TestSuite::new("conformance");
    for outcome in &result.checks {
        let mut status = match &outcome.verdict {
            ConformanceVerdict::Passed => TestCaseStatus::success(),
            ConformanceVerdict::Failed { .. } => TestCaseStatus::non_success(NonSuccessKind::Failure),
            ConformanceVerdict::Skipped { .. } | ConformanceVerdict::Inconclusive { .. } => TestCaseStatus::skipped(),
        };
        match &outcome.verdict {
            ConformanceVerdict::Passed => {}
            ConformanceVerdict::Failed { message } => {
                status.set_message(message.lines().next().unwrap_or_default());
                status.set_type("conformance");
                let lines = [&outcome.purpose, &outcome.source, message].map(String::as_str);
                let lines: Vec<&str> = lines.into_iter().chain(outcome.trace.iter().map(String::as_str)).collect();
                status.set_description(lines.join("\n"));
            }
            ConformanceVerdict::Skipped { reason } => {
                status.set_message(reason);
            }
            ConformanceVerdict::Inconclusive { reason } => {
                status.set_message(format!("inconclusive: {reason}"));
            }
        }
        let mut case = TestCase::new(outcome.id.as_str(), status);
        case.set_classname(format!("conformance.{}", outcome.area));
        case.set_time(Duration::from_millis(outcome.took_ms));
        suite.add_test_case(case);
    }
    if let Some(reason) = &result.inconclusive {
        let mut status = TestCaseStatus::skipped();
        status.set_message(format!("inconclusive: {reason}"));
        let mut case = TestCase::new("run finished", status);
        case.set_classname("conformance.run");
        suite.add_test_case(case);
    }
    suite.set_time(Duration::from_millis(result.took_ms));
    suite.add_property(("run", result.run_id.as_str()));
    suite.add_property(("service", result.service.as_str()));
    let mut report = Report::new("vlab");
    report.set_time(Duration::from_millis(result.took_ms));
    report.add_test_suite(suite);
    report.to_string().unwrap_or_else(|e| unreachable!("writing to a string does not fail: {e}"))
}
