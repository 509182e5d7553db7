//! A lab that acts late proves nothing: where a fault came long after its moment, because the computer had other work, what the
//! scenario then expects in vain is no failure of the product. What the user does is not looked at: how long that took is a matter of
//! the service, too.

use vlab_scenario::ActionTime;

use super::*;

/// Name of the check that a lab fails which acted too late.
pub(super) const ACTS_IN_TIME: &str = "the lab acts in time";

/// So late is too late, by the service's clock: two polls of a host come within it, and most steps take less.
const LATE: Duration = Duration::from_secs(20);

/// As late as an idle computer may be under the fastest time profile: what is seen, is seen within some ten milliseconds.
const PROMPT: Duration = Duration::from_millis(50);

/// What comes this long after its moment waited for something else: for a target that was not there yet.
const WAITED: Duration = Duration::from_secs(10);

/// A fault that came late.
struct Late {
    name: String,
    by: Duration,
    at: At,
}

/// The check that makes a run inconclusive whose lab acted late, if nothing failed but what may follow from that: invariants hold
/// whenever something is done.
pub(super) fn acted_late(
    checks: &[CheckResult],
    scenario: &Scenario,
    clock_scale: f64,
    history: &[Observation],
) -> Option<CheckResult> {
    let may_follow = |check: &&CheckResult| {
        matches!(check.kind, CheckKind::Expectation | CheckKind::Fault | CheckKind::Budget)
            || MADE_WHILE_RUNNING.contains(&check.name.as_str())
    };
    let failed = || checks.iter().filter(|check| check.verdict == CheckVerdict::Failed);
    if decide(checks).0 != Verdict::Failed || !failed().all(|check| may_follow(&check)) {
        return None;
    }
    let judge = Judge { scenario, clock_scale, history, timeline: Timeline::new(history) };
    let late = judge.late().into_iter().max_by_key(|late| late.by)?;
    let by_service = late.by.mul_f64(clock_scale);
    let mut check = CheckResult::new(CheckKind::Lab, ACTS_IN_TIME, CheckVerdict::Failed);
    check.expected = "faults come at their moments".to_owned();
    check.seen = format!(
        "fault {} came {:.3} s after its moment, which is {:.0} s by the service's clock: this computer is too busy for the time profile",
        late.name,
        late.by.as_secs_f64(),
        by_service.as_secs_f64()
    );
    check.message = format!("{}; run it again, under a slower `--time-profile` or with fewer jobs", check.seen);
    (check.at, check.seq) = (Some(late.at.time), Some(late.at.seq));
    Some(check)
}

impl Judge<'_> {
    fn late(&self) -> Vec<Late> {
        let lives = lives::lives(self.history);
        let late = |fault: &Fault| {
            let (time, seq) = lives.get(fault.name.as_str())?.began?;
            self.late_by(fault, At { time, seq })
        };
        self.scenario.faults.iter().filter_map(late).collect()
    }

    fn late_by(&self, fault: &Fault, at: At) -> Option<Late> {
        let ActionTime::After { moment, then } = &fault.when else { return None };
        let mut tracker = Tracker::new(moment.clone());
        for observation in self.history.iter().take_while(|o| o.seq < at.seq) {
            tracker.observe(self.directory(), observation);
        }
        let due = tracker.complete(self.directory())?.time + self.under(*then);
        let by = at.time.since(due);
        let too_late = by.mul_f64(self.clock_scale) >= LATE && by >= PROMPT && by <= WAITED;
        too_late.then(|| Late { name: fault.name.clone(), by, at })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_history::Recorder;
    use vlab_scenario::{Catalogue, FaultPhase, SourceFile};

    use super::*;

    const HOST: Uuid = Uuid::from_u128(1);

    /// A host is known at the tenth second, by the service's clock, and its fault begins so many milliseconds later.
    fn check(scale: f64, late_ms: i64, failed: &str) -> Option<CheckResult> {
        let text = "version: 1\nname: t\ncluster: {topology: sno}\nhosts: [{name: m}]\n\
                    faults: [{name: mute, at: {host: m-0, status: known}, target: m-0, inject: silent-agent, for: 10m}]\n\
                    expect: [{never: {hosts: all, status: error}}]\nbudgets: {total: 1h}\n";
        let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text.to_owned()), &Catalogue::embedded());
        let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
        let at = |ms: i64| Timestamp::from_micros(ms * 1000);
        let mut recorder = Recorder::new(None);
        let name = "m-0".to_owned();
        let kind = vlab_model::history::HostsKind::Simulated;
        recorder.record(Source::Harness, None, at(0), What::HostNamed { host: HOST, name, kind });
        let known = What::HostStatus {
            host: HOST,
            cluster: None,
            from: Some(HostStatus::Insufficient),
            to: HostStatus::Known,
            info: String::new(),
        };
        recorder.record(Source::Database, Some(at(10_000)), at(10_000 + late_ms / 2), known);
        let fault = What::Fault {
            name: "mute".to_owned(),
            phase: FaultPhase::Begin,
            inject: "silent-agent".to_owned(),
            host: Some(HOST),
            cluster: None,
            detail: String::new(),
        };
        recorder.record(Source::Harness, None, at(10_000 + late_ms), fault);
        let kind = match failed {
            "expectation" | "passed" => CheckKind::Expectation,
            _ => CheckKind::Invariant,
        };
        let verdict = if failed == "passed" { CheckVerdict::Passed } else { CheckVerdict::Failed };
        let checks = [CheckResult::new(kind, failed, verdict)];
        acted_late(&checks, &scenario, scale, recorder.observations())
    }

    #[rstest]
    #[case::in_time(240.0, 40, "expectation", false)]
    #[case::late(240.0, 200, "expectation", true)]
    #[case::not_by_a_slower_clock(60.0, 200, "expectation", false)]
    #[case::the_run_did_not_end(240.0, 200, COMES_TO_ITS_END, true)]
    #[case::nothing_failed(240.0, 200, "passed", false)]
    #[case::an_invariant_holds_anyway(240.0, 200, "one-bootstrap", false)]
    #[case::it_waited_for_its_target(1.0, 30_000, "expectation", false)]
    fn what_came_late_proves_nothing(
        #[case] scale: f64,
        #[case] late_ms: i64,
        #[case] failed: &str,
        #[case] excused: bool,
    ) {
        let check = check(scale, late_ms, failed);
        assert_eq!(check.is_some(), excused, "{check:?}");
        if let Some(check) = check {
            assert!(check.seen.starts_with("fault mute came 0.200 s after its moment, which is 48 s by"), "{check:?}");
            let before = CheckResult::new(CheckKind::Expectation, failed, CheckVerdict::Failed);
            assert_eq!(decide(&[before, check]).0, Verdict::Inconclusive);
        }
    }
}
