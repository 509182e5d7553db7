//! `junit_<scenario>.xml` for CI: one case for each expectation and each invariant, one for leaks, one for each budget.
//!
//! Names are the checks' own and do not change between runs, because the tools that read these files compare by name.
//! What could not be decided is `skipped` with a message that begins with `inconclusive: `.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use vlab_judge::cause::Cause;
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, RunResult, Verdict};

/// Name of the file: `junit_<scenario>.xml`, with only letters, digits, `-`, `_` and `.` of the scenario's name.
pub fn file_name(scenario: &str) -> String {
    let word: String = scenario
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .take(120)
        .collect();
    format!("junit_{}.xml", if word.is_empty() { "scenario" } else { &word })
}

/// The file's text. Characters that XML does not allow, and terminal colours, are left out.
pub fn render(result: &RunResult) -> String {
    let mut suite = TestSuite::new(result.run.scenario.as_str());
    for check in &result.checks {
        suite.add_test_case(case(result, check));
    }
    if result.verdict != Verdict::Passed && !result.checks.iter().any(|c| c.verdict.urgency() < 2) {
        // Cut short, or nothing was decided: no other case would say so.
        let mut status = TestCaseStatus::skipped();
        status.set_message(format!("inconclusive: {}", result.reason.as_deref().unwrap_or("no reason was given")));
        suite.add_test_case(named(result, "run", "run finished", status));
    }
    let took = result.finished_at.since(result.started_at);
    suite.set_time(took);
    let mut property = |name: &str, value: &str| {
        suite.add_property((name, value));
    };
    property("run", &result.run.run_id);
    property("verdict", result.verdict.as_str());
    property("exit_code", &result.exit_code.to_string());
    property("seed", &result.run.seed.to_string());
    property("service", &result.run.service.word());
    property("hosts", &result.run.hosts.word());
    property("time_profile", &result.run.time_profile);
    property("vlab", &result.run.vlab_version);
    for (part, version) in &result.run.versions {
        property(&format!("version.{part}"), version);
    }
    if !result.how_to_repeat.is_empty() {
        property("repeat", &result.how_to_repeat);
    }
    if let Some(cause) = &result.cause {
        suite.add_property(("cause", cause.line().as_str()));
        suite.set_system_out(cause_told(cause));
    }
    let mut report = Report::new("vlab");
    report.set_time(took);
    report.add_test_suite(suite);
    report.to_string().unwrap_or_else(|e| unreachable!("writing to a string does not fail: {e}"))
}

fn named(result: &RunResult, group: &str, name: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(name, status);
    case.set_classname(format!("{}.{group}", result.run.scenario));
    case
}

fn case(result: &RunResult, check: &CheckResult) -> TestCase {
    let mut status = match &check.verdict {
        CheckVerdict::Passed => TestCaseStatus::success(),
        CheckVerdict::Failed => TestCaseStatus::non_success(NonSuccessKind::Failure),
        CheckVerdict::Skipped { .. } | CheckVerdict::Inconclusive { .. } => TestCaseStatus::skipped(),
    };
    match &check.verdict {
        CheckVerdict::Passed => {}
        CheckVerdict::Failed => {
            let message = if check.message.is_empty() { &check.name } else { &check.message };
            let cause = result.cause.as_ref().filter(|_| check.follows);
            // Who opens one failure of many reads first what all of them come from.
            let first = cause.map(|cause| format!("what went wrong first: {}", cause.line()));
            status.set_message(first.as_ref().map_or_else(|| message.clone(), |first| format!("{message} ({first})")));
            status.set_type(check.kind.as_str());
            status.set_description([first.into_iter().collect(), told(check)].concat().join("\n"));
        }
        CheckVerdict::Skipped { reason } => {
            status.set_message(reason);
        }
        CheckVerdict::Inconclusive { reason } => {
            status.set_message(format!("inconclusive: {reason}"));
        }
    }
    let group = match check.kind {
        CheckKind::Leak => "leaks",
        kind => kind.as_str(),
    };
    // Two cases of one name would count as one that is flaky.
    let same = result.checks.iter().filter(|c| c.kind == check.kind && c.name == check.name).count();
    let name = match &check.subject {
        Some(subject) if same > 1 => format!("{} [{subject}]", check.name),
        _ => check.name.clone(),
    };
    let mut case = named(result, group, &name, status);
    // A budget's case takes as long as what it measures.
    let took = result
        .durations
        .iter()
        .find(|d| check.kind == CheckKind::Budget && d.name == check.name && d.subject == check.subject);
    if let Some(ms) = took.and_then(|d| d.took_ms).filter(|ms| ms.is_finite() && *ms >= 0.0) {
        case.set_time(Duration::from_micros((ms * 1000.0) as u64));
    }
    case
}

/// What went wrong first, in lines.
fn cause_told(cause: &Cause) -> String {
    let mut lines = vec![format!("what went wrong first: {}", cause.line())];
    lines.extend(cause.at.map(|at| format!("at: {at}")));
    lines.extend(cause.seq.map(|seq| format!("observation: {seq}")));
    for (title, of_it) in [("around it:", &cause.around), ("console:", &cause.console)] {
        if !of_it.is_empty() {
            lines.push(title.to_owned());
            lines.extend(of_it.iter().map(|line| format!("  {line}")));
        }
    }
    lines.join("\n")
}

/// A failure in lines.
fn told(check: &CheckResult) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |name: &str, text: &str| {
        if !text.is_empty() {
            lines.push(format!("{name}: {text}"));
        }
    };
    line("on", check.subject.as_deref().unwrap_or_default());
    line("at", &check.at.map(|at| at.to_string()).unwrap_or_default());
    line("observation", &check.seq.map(|seq| seq.to_string()).unwrap_or_default());
    line("expected", &check.expected);
    line("seen", &check.seen);
    if !check.last_things.is_empty() {
        lines.push("the last things it did:".to_owned());
        lines.extend(check.last_things.iter().map(|thing| format!("  {thing}")));
    }
    lines
}
