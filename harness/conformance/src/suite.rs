//! Many checks at once: selection, needs, order, and what became of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::script::{Trouble, perform};
use crate::table::{Check, Milestone, Need};
use crate::target::Target;
use crate::wire::Wire;

/// A check that takes longer than so many times the target's patience hangs.
const HANGS: u32 = 6;

/// How a check came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Verdict {
    /// As expected.
    Passed,
    /// Not as expected.
    Failed {
        /// What differs, and where.
        message: String,
    },
    /// Not tried.
    Skipped {
        /// Why.
        reason: String,
    },
    /// Not known.
    Inconclusive {
        /// Why.
        reason: String,
    },
}

/// What became of one check.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Stable name.
    pub id: String,
    /// Area.
    pub area: String,
    /// What must be so.
    pub purpose: String,
    /// Where that is known from.
    pub source: String,
    /// How it came out.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Milliseconds.
    pub took_ms: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// The last exchanges of a check that did not pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<String>,
    /// What it has made and could not remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

impl Outcome {
    fn new(check: &Check, verdict: Verdict) -> Self {
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
    checks: Vec<Check>,
    target: Arc<Target>,
    jobs: usize,
    wire: W,
    interrupted: CancellationToken,
    mut told: impl FnMut(&Outcome),
) -> Vec<Outcome>
where
    W: Fn(&Check) -> Box<dyn Wire>,
{
    let mut outcomes: Vec<Option<Outcome>> = vec![None; checks.len()];
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
            let outcome = Outcome::new(&check, Verdict::Skipped { reason: format!("needs {}; {why}", need.as_str()) });
            told(&outcome);
            outcomes[n] = Some(outcome);
            continue;
        }
        let wire = wire(&check);
        let (target, gate, interrupted) = (target.clone(), gate.clone(), interrupted.clone());
        running.spawn(async move {
            let mut outcome = Outcome::new(&check, Verdict::Passed);
            let Ok(_place) = gate.acquire_owned().await else { return (n, outcome) };
            let begun = Instant::now();
            tokio::select! {
                biased;
                () = interrupted.cancelled() => {
                    outcome.verdict = Verdict::Inconclusive { reason: "interrupted".to_owned() };
                }
                performed = perform(&check, &target, wire) => {
                    outcome.requests = performed.requests;
                    outcome.left = performed.left;
                    match performed.trouble {
                        None => {}
                        Some(Trouble::Differs(message)) => {
                            outcome.verdict = Verdict::Failed { message };
                            outcome.trace = performed.trace;
                        }
                        Some(Trouble::Lab(reason)) => {
                            outcome.verdict = Verdict::Inconclusive { reason };
                            outcome.trace = performed.trace;
                        }
                    }
                }
                () = tokio::time::sleep(target.patience * HANGS) => {
                    let reason = format!("not through after {} s", (target.patience * HANGS).as_secs());
                    outcome.verdict = Verdict::Inconclusive { reason };
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
    let lost = |check: &Check| {
        Outcome::new(
            check,
            Verdict::Inconclusive { reason: "a fault of the harness: the check ended by itself".into() },
        )
    };
    checks.iter().zip(outcomes).map(|(check, outcome)| outcome.unwrap_or_else(|| lost(check))).collect()
}

/// Whatever waits for monitors needs quick ones.
fn implied(check: &Check) -> &'static [Need] {
    use crate::table::Step;
    let waits = check.world.at > Milestone::Registered
        || check.steps.iter().any(|step| {
            matches!(step, Step::Wait(_) | Step::Stay(_) | Step::Validation(_) | Step::Reach(_) | Step::NoEvent(_))
        });
    if waits { &[Need::QuickMonitors] } else { &[] }
}

fn weight(check: &Check) -> (bool, Milestone, usize) {
    (check.needs.contains(&Need::ShortDisconnection), check.world.at, check.world.hosts)
}

/// Numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Skipped.
    pub skipped: usize,
    /// Inconclusive.
    pub inconclusive: usize,
}

impl Count {
    /// Of these.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let mut count = Self::default();
        for outcome in outcomes {
            *match &outcome.verdict {
                Verdict::Passed => &mut count.passed,
                Verdict::Failed { .. } => &mut count.failed,
                Verdict::Skipped { .. } => &mut count.skipped,
                Verdict::Inconclusive { .. } => &mut count.inconclusive,
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
