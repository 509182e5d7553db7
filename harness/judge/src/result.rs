//! The verdict of a run, as it is written to `result.json`.
//!
//! The runner fills a [`RunResult`]; whoever reads it (people, CI, `vlab report`) needs nothing else but the history.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vlab_api::Timestamp;
use vlab_model::history::RunInfo;

use crate::cause::Cause;

/// Version of `result.json`. Raised when the meaning of a member changes; new optional members do not raise it.
pub const RESULT_VERSION: u32 = 1;

/// Exit codes of every program of the project: one table, from which the help and the reference are made.
pub mod exit {
    /// A code and what it says.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Code {
        /// The code.
        pub code: u8,
        /// What it is called.
        pub name: &'static str,
        /// What it means, as half a sentence; empty: the name says it.
        pub meaning: &'static str,
    }

    macro_rules! codes {
        ($($constant:ident = $code:literal, $name:literal, $meaning:literal;)*) => {
            $(
                #[doc = concat!($name, ": ", $meaning)]
                pub const $constant: u8 = $code;
            )*

            /// All of them, in the order of their numbers.
            pub const CODES: &[Code] = &[$(Code { code: $code, name: $name, meaning: $meaning }),*];
        };
    }

    codes! {
        PASSED = 0, "passed", "everything that was asked for holds";
        FAILED = 1, "failed", "the product is wrong: an expectation or an invariant does not hold";
        USAGE = 2, "usage", "the command line or a scenario is not valid; nothing was started";
        INCONCLUSIVE = 3, "inconclusive", "the lab was wrong; nothing is known about the product";
        NOTHING_SELECTED = 4, "nothing selected", "the selection matched nothing";
        BUDGET_MISSED = 5, "budget missed", "everything holds, but it took longer than it may";
        LEAK = 6, "leak", "everything holds, but something was left behind";
        FLAKY = 7, "flaky", "everything holds, but something passed only on a retry";
        INTERNAL = 70, "internal error", "a fault of vlab itself";
        INTERRUPTED = 130, "interrupted", "stopped by the user";
    }

    /// The most telling of several: a fault of the harness first, then a failed product, leaks, budgets, what says nothing,
    /// and what passed only when it was tried again. None: [`PASSED`].
    pub fn most_telling(codes: &[u8]) -> u8 {
        let order = [INTERNAL, INTERRUPTED, FAILED, LEAK, BUDGET_MISSED, INCONCLUSIVE, FLAKY];
        order.into_iter().find(|code| codes.contains(code)).unwrap_or(PASSED)
    }
}

/// What a run says about the product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything that was asked for holds.
    Passed,
    /// The product is wrong.
    Failed,
    /// The lab was wrong: no memory, image missing, host clock jumped, interrupted.
    #[default]
    Inconclusive,
}

impl Verdict {
    /// The word in `result.json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Inconclusive => "inconclusive",
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// What sort of check it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    /// What the scenario expects.
    Expectation,
    /// What must hold in every run.
    Invariant,
    /// A fault that the scenario declares begins and has an effect.
    Fault,
    /// Nothing of the run is left behind.
    Leak,
    /// Something may not take longer than so long.
    Budget,
    /// The lab itself: memory, clock, images. When it is not as it should be, the run proves nothing.
    Lab,
}

impl CheckKind {
    /// The word in `result.json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            CheckKind::Expectation => "expectation",
            CheckKind::Invariant => "invariant",
            CheckKind::Fault => "fault",
            CheckKind::Leak => "leak",
            CheckKind::Budget => "budget",
            CheckKind::Lab => "lab",
        }
    }
}

/// How a check came out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckVerdict {
    /// Holds.
    #[default]
    Passed,
    /// Does not hold.
    Failed,
    /// Was not looked at, and why; for example a need that the target does not meet.
    Skipped {
        /// The reason, for people.
        reason: String,
    },
    /// Could not be decided, and why.
    Inconclusive {
        /// The reason, for people.
        reason: String,
    },
}

impl CheckVerdict {
    /// The word for people.
    pub const fn as_str(&self) -> &'static str {
        match self {
            CheckVerdict::Passed => "passed",
            CheckVerdict::Failed => "failed",
            CheckVerdict::Skipped { .. } => "skipped",
            CheckVerdict::Inconclusive { .. } => "inconclusive",
        }
    }

    /// Why it was skipped or is inconclusive.
    pub fn reason(&self) -> Option<&str> {
        match self {
            CheckVerdict::Skipped { reason } | CheckVerdict::Inconclusive { reason } => Some(reason),
            CheckVerdict::Passed | CheckVerdict::Failed => None,
        }
    }

    /// Order in which people want to read: failed, inconclusive, skipped, passed.
    pub const fn urgency(&self) -> u8 {
        match self {
            CheckVerdict::Failed => 0,
            CheckVerdict::Inconclusive { .. } => 1,
            CheckVerdict::Skipped { .. } => 2,
            CheckVerdict::Passed => 3,
        }
    }
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Stable name: the same check has the same name in every run.
    pub name: String,
    /// What the check is about, which decides what its failure means.
    pub kind: CheckKind,
    /// How the check came out.
    pub verdict: CheckVerdict,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Host or cluster that it went wrong on, by its name in the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What was expected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// What was seen instead.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub seen: String,
    /// The last ten things that the subject did before it went wrong, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_things: Vec<String>,
    /// When it went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Observation with which it went wrong (`seq` in `history.jsonl`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// It failed because of what went wrong first in the run ([`RunResult::cause`]), or shows that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follows: bool,
}

impl CheckResult {
    /// A check that came out as `verdict`, with nothing more to say.
    pub fn new(kind: CheckKind, name: impl Into<String>, verdict: CheckVerdict) -> Self {
        Self {
            name: name.into(),
            kind,
            verdict,
            message: String::new(),
            subject: None,
            expected: String::new(),
            seen: String::new(),
            last_things: Vec::new(),
            at: None,
            seq: None,
            follows: false,
        }
    }
}

/// How long something took, and how long it may take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DurationResult {
    /// What, for example `install to installed`.
    pub name: String,
    /// Host or cluster, by its name in the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Milliseconds; `None`: it never ended.
    pub took_ms: Option<f64>,
    /// Milliseconds that it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<f64>,
    /// Who says so: `scenario`, `time profile fast`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_source: Option<String>,
}

impl DurationResult {
    /// Was the budget met? `None` without a budget.
    pub fn met(&self) -> Option<bool> {
        self.budget_ms.map(|budget| self.took_ms.is_some_and(|took| took <= budget))
    }
}

/// The pivot of a cluster's bootstrap, as it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PivotResult {
    /// Cluster, by its name in the scenario.
    pub cluster: String,
    /// Bootstrap, by its name in the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<String>,
    /// The moments, in the order in which they must come.
    pub moments: Vec<PivotMomentResult>,
    /// From the start of bootkube until the bootstrap was back as a master, in milliseconds; `None`: it never was.
    pub took_ms: Option<f64>,
    /// Milliseconds that it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<f64>,
}

/// A moment of a pivot, and the stage that ends with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PivotMomentResult {
    /// Its word, for example `bootkube-done`.
    pub name: String,
    /// When it came; `None`: it was not seen.
    pub at: Option<Timestamp>,
    /// Host that it is about, by its name in the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When the stage began: with the latest moment before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<Timestamp>,
    /// How long the stage took, in milliseconds. Negative when the moment came before one that it must follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<f64>,
    /// Milliseconds that it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<f64>,
}

impl PivotMomentResult {
    /// Did it come too early, too late or not at all?
    pub fn is_bad(&self) -> bool {
        let late = self.budget_ms.zip(self.took_ms).is_some_and(|(budget, took)| took > budget);
        self.at.is_none() || late || self.took_ms.is_some_and(|took| took < 0.0)
    }
}

/// Quantiles of a duration, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many were measured.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Longest.
    pub max: f64,
}

impl Quantiles {
    /// Of these durations; `None`: there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |q: f64| sorted[((q * sorted.len() as f64).ceil() as usize).clamp(1, last + 1) - 1];
        Some(Self {
            count: sorted.len() as u64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: sorted[last],
        })
    }
}

/// From the start of programs or containers until they were of use, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Startup {
    /// From the start of the service's process, or the order to make its container, until `/ready` answered 200.
    pub service_ready_ms: f64,
    /// From the same of PostgreSQL until a query was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postgres_ready_ms: Option<f64>,
}

/// What the harness itself cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Wall time of the run, in milliseconds.
    pub wall_ms: f64,
    /// Time that the service's and the hosts' own intervals force, in milliseconds.
    pub forced_ms: f64,
    /// What the harness added, in milliseconds.
    pub overhead_ms: f64,
    /// What it may add, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<f64>,
    /// Start of the run to the first registration of a host, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_host_ms: Option<f64>,
}

/// Latency of one operation as the hosts saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationLatency {
    /// Operation, for example `GetNextSteps`.
    pub operation: String,
    /// Latency of requests, in milliseconds.
    pub latency_ms: Quantiles,
}

/// What a run under load measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Number of hosts.
    pub hosts: u64,
    /// Length of the measurement, in seconds.
    pub measured_s: f64,
    /// Requests a second that the hosts wanted to make.
    pub offered_rps: f64,
    /// Requests a second that were answered.
    pub achieved_rps: f64,
    /// Requests in all.
    pub requests: u64,
    /// Errors: kind (`connect refused`, `HTTP 500`, ...) to how many.
    pub errors: BTreeMap<String, u64>,
    /// Latency of each operation.
    pub latency: Vec<OperationLatency>,
    /// Resident memory of the process that runs the hosts, in KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_rss_kib: Option<u64>,
    /// Resident memory of the service, in KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_rss_kib: Option<u64>,
    /// Resident memory of PostgreSQL, in KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postgres_rss_kib: Option<u64>,
    /// Memory of one more idle host, in KiB: slope between two fleet sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_host_kib_slope: Option<f64>,
}

/// A file of the run's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// Path relative to the run's folder.
    pub path: String,
    /// What is in it.
    pub what: String,
}

/// The verdict of a run in full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`RESULT_VERSION`] of the writer.
    pub version: u32,
    /// What was run.
    pub run: RunInfo,
    /// What it says about the product.
    pub verdict: Verdict,
    /// Exit code of the process, see [`exit`].
    pub exit_code: u8,
    /// One sentence: why not passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What went wrong first, where the product did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// When it began, by the harness's clock.
    pub started_at: Timestamp,
    /// When it ended, by the harness's clock.
    pub finished_at: Timestamp,
    /// How long things took.
    pub durations: Vec<DurationResult>,
    /// The pivot of each cluster whose installation came so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pivots: Vec<PivotResult>,
    /// Everything that was checked.
    pub checks: Vec<CheckResult>,
    /// How long it took until there was a service; `None` when it ran already or none came up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,
    /// What the harness itself cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// What a run under load measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadReport>,
    /// Time from a transition to the harness knowing of it, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detection_latency_ms: Option<Quantiles>,
    /// How virtual machines ran: `kvm`, `tcg`; `None` when there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accel: Option<String>,
    /// The machine: `cpu`, `cores`, `memory`, `kernel`, `os`, ...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Command that repeats the run.
    pub how_to_repeat: String,
    /// What lies in the run's folder.
    pub files: Vec<FileRef>,
}

impl RunResult {
    /// Derives verdict, exit code and (where none is given) the reason from the checks.
    pub fn conclude(&mut self) {
        let (verdict, exit_code) = decide(&self.checks);
        self.verdict = verdict;
        self.exit_code = exit_code;
        if verdict != Verdict::Failed {
            self.forget_cause();
        }
        if self.reason.is_none() && verdict != Verdict::Passed {
            self.reason = Some(match &self.cause {
                Some(cause) => caused(cause, &self.checks),
                None => reason(&self.checks),
            });
        }
    }

    /// The run was cut short (Ctrl-C, internal error): inconclusive, with that code, whatever the checks say.
    pub fn cut_short(&mut self, exit_code: u8, reason: impl Into<String>) {
        self.verdict = Verdict::Inconclusive;
        self.exit_code = exit_code;
        self.reason = Some(reason.into());
        self.forget_cause();
    }

    /// Nothing is known about the product: no check of it follows from anything.
    fn forget_cause(&mut self) {
        self.cause = None;
        self.checks.iter_mut().for_each(|check| check.follows = false);
    }

    /// The failed checks that follow from the cause, without the one that shows it.
    pub fn followers(&self) -> Vec<&CheckResult> {
        let shows = self.cause.as_ref().and_then(|cause| cause.check.as_deref());
        let mut shown = false;
        let others = self.checks.iter().filter(|check| check.follows).filter(|check| {
            let is_it = !shown && shows == Some(check.name.as_str());
            shown |= is_it;
            !is_it
        });
        others.collect()
    }

    /// The check that decided that the run has not passed. `None`: it has, or no check was decided.
    pub fn decisive(&self) -> Option<&CheckResult> {
        decisive(&self.checks).filter(|_| self.verdict != Verdict::Passed)
    }

    /// The checks in the order in which people want to read them: failures first.
    pub fn by_urgency(&self) -> Vec<&CheckResult> {
        let mut checks: Vec<&CheckResult> = self.checks.iter().collect();
        checks.sort_by_key(|c| (c.verdict.urgency(), c.kind));
        checks
    }
}

/// Verdict and exit code of a set of checks.
///
/// A lab that was not as it should be makes the run inconclusive whatever else was seen: a failure there proves nothing.
/// Then failures of the product count, then leaks, then budgets. A run in which nothing was decided is no pass.
pub fn decide(checks: &[CheckResult]) -> (Verdict, u8) {
    let any = |kinds: &[CheckKind], test: fn(&CheckVerdict) -> bool| {
        checks.iter().any(|c| kinds.contains(&c.kind) && test(&c.verdict))
    };
    let failed = |v: &CheckVerdict| matches!(v, CheckVerdict::Failed);
    let open = |v: &CheckVerdict| matches!(v, CheckVerdict::Failed | CheckVerdict::Inconclusive { .. });
    if any(&[CheckKind::Lab], open) {
        (Verdict::Inconclusive, exit::INCONCLUSIVE)
    } else if any(&[CheckKind::Expectation, CheckKind::Fault, CheckKind::Invariant], failed) {
        (Verdict::Failed, exit::FAILED)
    } else if any(&[CheckKind::Leak], failed) {
        (Verdict::Failed, exit::LEAK)
    } else if any(&[CheckKind::Budget], failed) {
        (Verdict::Failed, exit::BUDGET_MISSED)
    } else if checks.iter().any(|c| open(&c.verdict)) || !checks.iter().any(|c| c.verdict == CheckVerdict::Passed) {
        (Verdict::Inconclusive, exit::INCONCLUSIVE)
    } else {
        (Verdict::Passed, exit::PASSED)
    }
}

/// The checks that failed, in the order in which they decide.
fn failed(checks: &[CheckResult]) -> impl Iterator<Item = &CheckResult> {
    let order = [CheckKind::Expectation, CheckKind::Fault, CheckKind::Invariant, CheckKind::Leak, CheckKind::Budget];
    let of = move |kind| checks.iter().filter(move |c| c.kind == kind && c.verdict == CheckVerdict::Failed);
    order.into_iter().flat_map(of)
}

/// The check of a set that is no pass which decided that. `None`: none of them was decided.
fn decisive(checks: &[CheckResult]) -> Option<&CheckResult> {
    let lab = |c: &&CheckResult| c.kind == CheckKind::Lab && c.verdict.urgency() < 2;
    let open = |c: &&CheckResult| matches!(c.verdict, CheckVerdict::Inconclusive { .. });
    checks.iter().find(lab).or_else(|| failed(checks).next()).or_else(|| checks.iter().find(open))
}

/// One sentence for what went wrong first, and how much follows from it or is another matter.
fn caused(cause: &Cause, checks: &[CheckResult]) -> String {
    let others = failed(checks).filter(|check| !check.follows).count();
    match others {
        0 => cause.line(),
        1 => format!("{} (and one more check failed)", cause.line()),
        n => format!("{} (and {n} more checks failed)", cause.line()),
    }
}

/// One sentence for a set of checks that is no pass: the one that decided, and how many more there are.
fn reason(checks: &[CheckResult]) -> String {
    let Some(check) = decisive(checks) else {
        return match checks.len() {
            0 => "nothing was checked".to_owned(),
            n => format!("none of the {n} checks was decided"),
        };
    };
    let said = check.verdict.reason().unwrap_or(&check.message);
    let mut text = match check.subject.as_deref() {
        Some(subject) => format!("{} ({subject})", check.name),
        None => check.name.clone(),
    };
    if !said.is_empty() {
        text = format!("{text}: {said}");
    }
    // What failed in a lab that was not as it should be is no more of the same.
    let more = match check.kind {
        CheckKind::Lab => checks.iter().filter(|c| c.kind == CheckKind::Lab && c.verdict.urgency() < 2).count() - 1,
        _ => failed(checks).filter(|c| !std::ptr::eq(*c, check)).count(),
    };
    if more > 0 {
        text = format!("{text} (and {more} more)");
    }
    text
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const P: CheckVerdict = CheckVerdict::Passed;
    const F: CheckVerdict = CheckVerdict::Failed;

    fn skipped() -> CheckVerdict {
        CheckVerdict::Skipped { reason: "needs kvm".into() }
    }

    fn open() -> CheckVerdict {
        CheckVerdict::Inconclusive { reason: "out of memory".into() }
    }

    #[rstest]
    #[case(&[1.0], 1.0, 1.0)]
    #[case(&[4.0, 1.0, 2.0, 3.0], 2.0, 4.0)]
    fn quantiles_of_few_values(#[case] values: &[f64], #[case] p50: f64, #[case] p99: f64) {
        let q = Quantiles::of(values).unwrap();
        assert_eq!((q.p50, q.p99, q.count), (p50, p99, values.len() as u64));
        assert_eq!(Quantiles::of(&[]), None);
    }

    use CheckKind::{Budget, Expectation, Invariant, Lab, Leak};

    #[rstest]
    #[case::nothing_checked(&[], Verdict::Inconclusive, 3)]
    #[case::all_pass(&[(Expectation, P), (Invariant, P), (Leak, P)], Verdict::Passed, 0)]
    #[case::pass_with_a_skip(&[(Expectation, P), (Invariant, skipped())], Verdict::Passed, 0)]
    #[case::only_skips_is_no_pass(&[(Expectation, skipped())], Verdict::Inconclusive, 3)]
    #[case::expectation(&[(Expectation, F), (Leak, F), (Budget, F)], Verdict::Failed, 1)]
    #[case::invariant(&[(Expectation, P), (Invariant, F)], Verdict::Failed, 1)]
    #[case::leak(&[(Expectation, P), (Leak, F), (Budget, F)], Verdict::Failed, 6)]
    #[case::budget(&[(Expectation, P), (Leak, P), (Budget, F)], Verdict::Failed, 5)]
    #[case::open_check(&[(Expectation, P), (Expectation, open())], Verdict::Inconclusive, 3)]
    #[case::failure_beats_open_check(&[(Expectation, F), (Expectation, open())], Verdict::Failed, 1)]
    #[case::broken_lab_proves_nothing(&[(Expectation, F), (Lab, open())], Verdict::Inconclusive, 3)]
    #[case::failed_lab_check_is_no_failure_of_the_product(&[(Expectation, P), (Lab, F)], Verdict::Inconclusive, 3)]
    fn verdict_of(#[case] checks: &[(CheckKind, CheckVerdict)], #[case] verdict: Verdict, #[case] code: u8) {
        let checks: Vec<_> = checks.iter().map(|(k, v)| CheckResult::new(*k, "x", v.clone())).collect();
        assert_eq!(decide(&checks), (verdict, code));
        let mut result = RunResult { checks, ..Default::default() };
        result.conclude();
        assert_eq!(result.reason.is_none(), verdict == Verdict::Passed, "{:?}", result.reason);
    }

    #[test]
    fn the_reason_names_what_decided() {
        let mut leak = CheckResult::new(Leak, "leaks", F);
        leak.message = "one file".into();
        let mut expectation = CheckResult::new(Expectation, "installs", F);
        expectation.subject = Some("master-0".into());
        expectation.message = "ended in error".into();
        let mut result = RunResult { checks: vec![leak, expectation], ..Default::default() };
        result.conclude();
        assert_eq!(result.reason.as_deref(), Some("installs (master-0): ended in error (and 1 more)"));
    }
}
