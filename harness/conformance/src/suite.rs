//! Many checks at once: selection, needs, order, and what became of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::script::{Performed, Trouble, perform};
use crate::table::{ConformanceCheck, Milestone, Need};
use crate::target::Target;
use crate::wire::Wire;

/// How often a check is performed that meets a known defect of the service each time.
const TRIES: u64 = 3;

/// How often a check is performed that must come before something that the service does by itself, and may have been too late.
const RACES: u64 = 10;

/// A check that takes longer than so many times the target's patience hangs.
const HANGS: u32 = 6;

/// How a check came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum ConformanceVerdict {
    /// As expected.
    Passed,
    /// Not as expected.
    Failed {
        /// What differs, and where.
        message: String,
    },
    /// Not tried.
    Skipped {
        /// The reason, for people.
        reason: String,
    },
    /// Not known.
    Inconclusive {
        /// The reason, for people.
        reason: String,
    },
}

/// What became of one check.
#[derive(Clone, Debug, Serialize)]
pub struct CheckOutcome {
    /// Stable name.
    pub id: String,
    /// First part of the id: the part of the API that the check is about.
    pub area: String,
    /// What must be so.
    pub purpose: String,
    /// Where that is known from.
    pub source: String,
    /// How it came out.
    #[serde(flatten)]
    pub verdict: ConformanceVerdict,
    /// How long the check took, in milliseconds.
    pub took_ms: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// The last exchanges of a check that did not pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<String>,
    /// What it has made and could not remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// Known defects of the service that it has met and for which it was tried again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried_again: Vec<String>,
    /// What the service logged about what a check that did not pass had made; put in by who has the log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub service_log: Vec<String>,
    /// Ids of what it made.
    #[serde(skip)]
    pub ids: Vec<String>,
}

impl CheckOutcome {
    /// Of a check that came to no answer.
    pub fn unknown(check: &ConformanceCheck, reason: &str) -> Self {
        Self::new(check, ConformanceVerdict::Inconclusive { reason: reason.to_owned() })
    }

    fn new(check: &ConformanceCheck, verdict: ConformanceVerdict) -> Self {
        Self {
            id: check.id.clone(),
            area: check.area.clone(),
            purpose: check.purpose.clone(),
            source: check.source.clone(),
            verdict,
            took_ms: 0,
            requests: 0,
            trace: Vec::new(),
            left: Vec::new(),
            tried_again: Vec::new(),
            service_log: Vec::new(),
            ids: Vec::new(),
        }
    }

    fn note(&mut self, performed: Performed) {
        self.requests += performed.requests;
        self.left.extend(performed.left);
        self.ids = performed.ids;
        self.trace = if performed.trouble.is_some() { performed.trace } else { Vec::new() };
        self.verdict = match performed.trouble {
            None => ConformanceVerdict::Passed,
            Some(Trouble::Differs(message)) => ConformanceVerdict::Failed { message },
            Some(Trouble::Lab(reason)) => ConformanceVerdict::Inconclusive { reason },
        };
    }
}

/// Performs a check, again where it has met a known defect of the service or may have come too late, each time with ids of its
/// own.
async fn perform_until_known(
    check: &ConformanceCheck,
    target: &Target,
    wire: &mut dyn Wire,
    outcome: &mut CheckOutcome,
) {
    for attempt in 1..=RACES {
        let again = Target { run: target.run.wrapping_add((attempt - 1) << 32), ..target.clone() };
        let performed = perform(check, &again, wire).await;
        let differs = matches!(performed.trouble, Some(Trouble::Differs(_)));
        let late = check.races.as_ref().filter(|_| differs);
        let (again, most) = match (performed.known, late) {
            (Some(known), _) => (Some(known.to_owned()), TRIES),
            (None, late) => (late.map(|what| format!("it must come before {what}")), RACES),
        };
        outcome.note(performed);
        match again {
            Some(why) if attempt < most => outcome.tried_again.push(why),
            _ => return,
        }
    }
}

/// Does one of the patterns select the check? A pattern is a part of the id; with `*` in it, the whole id, where `*` stands for
/// anything; `!` in front takes out what it would select.
pub fn selected(id: &str, patterns: &[String]) -> bool {
    let hit = |pattern: &str| match pattern.contains('*') {
        true => wildcard(pattern.as_bytes(), id.as_bytes()),
        false => id.contains(pattern),
    };
    let (not, wanted): (Vec<&String>, Vec<&String>) = patterns.iter().partition(|p| p.starts_with('!'));
    (wanted.is_empty() || wanted.iter().any(|p| hit(p))) && !not.iter().any(|p| hit(&p[1..]))
}

fn wildcard(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) if wildcard(rest, text) => true,
        (Some((b'*', _)), Some((_, text))) => wildcard(pattern, text),
        (Some((p, pattern)), Some((t, text))) if p == t => wildcard(pattern, text),
        _ => false,
    }
}

/// Runs checks, `jobs` at a time; `told` hears of each when it is through. The outcomes are in the order of the checks.
pub async fn run<W>(
    checks: Vec<ConformanceCheck>,
    target: Arc<Target>,
    jobs: usize,
    wire: W,
    interrupted: CancellationToken,
    mut told: impl FnMut(&CheckOutcome),
) -> Vec<CheckOutcome>
where
    W: Fn(&ConformanceCheck) -> Box<dyn Wire>,
{
    let mut outcomes: Vec<Option<CheckOutcome>> = vec![None; checks.len()];
    let gate = Arc::new(Semaphore::new(jobs.max(1)));
    let mut running = JoinSet::new();
    // What takes longest comes first, so that it is not waited for at the end.
    let mut order: Vec<usize> = (0..checks.len()).collect();
    order.sort_by_key(|n| std::cmp::Reverse(weight(&checks[*n])));
    for n in order {
        let check = checks[n].clone();
        if let Some(reason) =
            check.needs.iter().chain(implied(&check)).find_map(|need| target.unmet.get(need).map(|why| (need, why)))
        {
            let (need, why) = reason;
            let outcome = CheckOutcome::new(
                &check,
                ConformanceVerdict::Skipped { reason: format!("needs {}; {why}", need.as_str()) },
            );
            told(&outcome);
            outcomes[n] = Some(outcome);
            continue;
        }
        let mut wire = wire(&check);
        let (target, gate, interrupted) = (target.clone(), gate.clone(), interrupted.clone());
        running.spawn(async move {
            let mut outcome = CheckOutcome::new(&check, ConformanceVerdict::Passed);
            let Ok(_place) = gate.acquire_owned().await else { return (n, outcome) };
            let begun = Instant::now();
            let mut performed = outcome.clone();
            tokio::select! {
                biased;
                () = interrupted.cancelled() => {
                    outcome.verdict = ConformanceVerdict::Inconclusive { reason: "interrupted".to_owned() };
                }
                () = perform_until_known(&check, &target, &mut *wire, &mut performed) => outcome = performed,
                () = tokio::time::sleep(target.patience * HANGS) => {
                    let reason = format!("not through after {} s", (target.patience * HANGS).as_secs());
                    outcome.verdict = ConformanceVerdict::Inconclusive { reason };
                }
            }
            outcome.took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            (n, outcome)
        });
    }
    while let Some(joined) = running.join_next().await {
        if let Ok((n, outcome)) = joined {
            told(&outcome);
            outcomes[n] = Some(outcome);
        }
    }
    let lost =
        |check: &ConformanceCheck| CheckOutcome::unknown(check, "a fault of the harness: the check ended unexpectedly");
    checks.iter().zip(outcomes).map(|(check, outcome)| outcome.unwrap_or_else(|| lost(check))).collect()
}

/// Whatever waits for monitors needs quick ones.
fn implied(check: &ConformanceCheck) -> &'static [Need] {
    use crate::table::CheckStep;
    let waits = check.world.at > Milestone::Registered
        || check.steps.iter().any(|step| {
            matches!(
                step,
                CheckStep::Wait(_)
                    | CheckStep::Stay(_)
                    | CheckStep::Validation(_)
                    | CheckStep::Reach(_)
                    | CheckStep::NoEvent(_)
                    | CheckStep::Resource(_)
            )
        });
    if waits { &[Need::QuickMonitors] } else { &[] }
}

fn weight(check: &ConformanceCheck) -> (bool, Milestone, usize) {
    (check.needs.contains(&Need::ShortDisconnection), check.world.at, check.world.hosts)
}

/// Numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Number of checks that passed.
    pub passed: usize,
    /// Number of checks that failed.
    pub failed: usize,
    /// Number of checks that were not tried.
    pub skipped: usize,
    /// Number of checks that came to no answer.
    pub inconclusive: usize,
}

impl Count {
    /// Of these.
    pub fn of(outcomes: &[CheckOutcome]) -> Self {
        let mut count = Self::default();
        for outcome in outcomes {
            *match &outcome.verdict {
                ConformanceVerdict::Passed => &mut count.passed,
                ConformanceVerdict::Failed { .. } => &mut count.failed,
                ConformanceVerdict::Skipped { .. } => &mut count.skipped,
                ConformanceVerdict::Inconclusive { .. } => &mut count.inconclusive,
            } += 1;
        }
        count
    }
}

/// Wall time between two checks' ends, for people: `12.3 s`.
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("register/again/known", &[], true)]
    #[case("register/again/known", &["again"], true)]
    #[case("register/again/known", &["again/*"], false)]
    #[case("register/again/known", &["register/*/known"], true)]
    #[case("register/again/known", &["register/*", "!known"], false)]
    #[case("register/again/known", &["!steps"], true)]
    #[case("register/again/known", &["steps", "events"], false)]
    fn a_pattern_selects(#[case] id: &str, #[case] patterns: &[&str], #[case] expected: bool) {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        assert_eq!(selected(id, &patterns), expected);
    }
}
