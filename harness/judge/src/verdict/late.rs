//! A lab that acts late proves nothing: where a fault came, or was done in a machine, long after its moment, or where the run's
//! programs had no processor for long, because the computer had other work, what the scenario then expects in vain is no failure of the product. What the user does
//! is not looked at: how long that took is a matter of the service, too.

use vlab_scenario::{ActionTime, FaultTarget};

use super::*;

/// Name of the check that a lab fails which acted too late.
pub const ACTS_IN_TIME: &str = "the lab acts in time";

/// Name of the check that a lab fails whose database was away.
pub(super) const DATABASE_IS_THERE: &str = "PostgreSQL is there";

/// So late is too late, by the service's clock: two polls of a host come within it, and most steps take less.
const LATE: Duration = Duration::from_secs(20);

/// As late as an idle computer may be under the fastest time profile: what is seen, is seen within some ten milliseconds.
const PROMPT: Duration = Duration::from_millis(50);

/// What comes this long after its moment waited for something else: for a target that was not there yet.
const WAITED: Duration = Duration::from_secs(10);

/// Who waits so long for a processor within a few seconds, by the service's clock, is heard of too late by whoever waits for it, and what
/// is done to a machine so late may come after what it was to hit: a host is to be heard of once a minute.
const MINUTE: Duration = Duration::from_secs(60);

/// So long has to be waited under any time profile: an idle computer with two processors shows up to half of it.
const STARVED_AT_LEAST: Duration = Duration::from_secs(1);

/// Invariants over how long something took or lasted, which is not the product's affair where it had no processor.
const OF_TIME: &[&str] = &["silence-disconnects", "too-few-hosts-fail", "conditions-agree", "leases-renewed"];

/// Something that came late, and what is said of it.
struct Late {
    by: Duration,
    /// When it began.
    since: Timestamp,
    at: At,
    seen: String,
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
            || OF_TIME.iter().any(|id| check.name.starts_with(id))
    };
    let failed = || checks.iter().filter(|check| check.verdict == CheckVerdict::Failed);
    if decide(checks).0 != Verdict::Failed || !failed().all(|check| may_follow(&check)) {
        return None;
    }
    let judge = Judge { scenario, clock_scale, history, timeline: Timeline::new(history) };
    // What starves after everything that failed had failed is no reason.
    let before_a_failure = |late: &Late| failed().any(|check| check.at.is_none_or(|at| late.since <= at));
    let starved = judge.starved().filter(before_a_failure);
    let late = judge.late().into_iter().chain(judge.reached_late()).chain(starved).max_by_key(|late| late.by)?;
    let mut check = CheckResult::new(CheckKind::Lab, ACTS_IN_TIME, CheckVerdict::Failed);
    check.expected = "faults come at their moments, and who has work has a processor".to_owned();
    check.seen = late.seen;
    check.message = format!("{}; run it again, under a slower `--time-profile` or with fewer jobs", check.seen);
    (check.at, check.seq) = (Some(late.at.time), Some(late.at.seq));
    Some(check)
}

/// The check that makes a run inconclusive whose database was away by itself, if something failed from then on: a service that
/// cannot write may answer with an error, lose an event, or end.
pub(super) fn database_was_away(
    checks: &[CheckResult],
    scenario: &Scenario,
    clock_scale: f64,
    history: &[Observation],
) -> Option<CheckResult> {
    if decide(checks).0 != Verdict::Failed {
        return None;
    }
    let judge = Judge { scenario, clock_scale, history, timeline: Timeline::new(history) };
    let outages = judge.outages(|target| *target == FaultTarget::Postgres);
    let mut away = history.iter().filter_map(|o| match &o.what {
        What::DatabaseAway { for_ms, why } => Some((o.at() - Duration::from_millis(*for_ms), o, *for_ms, why)),
        _ => None,
    });
    let is_asked_for = |since: Timestamp| outages.iter().any(|(begin, end)| *begin <= since && since <= *end);
    let (since, o, for_ms, why) = away.find(|(since, ..)| !is_asked_for(*since))?;
    let mut failed = checks.iter().filter(|check| check.verdict == CheckVerdict::Failed);
    if !failed.all(|check| check.at.is_none_or(|at| since <= at)) {
        return None;
    }
    let mut check = CheckResult::new(CheckKind::Lab, DATABASE_IS_THERE, CheckVerdict::Failed);
    check.expected = "it is away only where the scenario makes it so".to_owned();
    check.seen = format!("PostgreSQL was away for {:.1} s: {why}", Duration::from_millis(for_ms).as_secs_f64());
    check.message = format!("{}; what failed since then may follow from that", check.seen);
    (check.at, check.seq) = (Some(o.at()), Some(o.seq));
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
        let seen = || {
            format!(
                "fault {} came {:.3} s after its moment, which is {:.0} s by the service's clock: this computer is too busy for the \
                 time profile",
                fault.name,
                by.as_secs_f64(),
                by.mul_f64(self.clock_scale).as_secs_f64()
            )
        };
        too_late.then(|| Late { by, since: due, at, seen: seen() })
    }

    /// Faults that were done late because the way into a machine took so long, or because there was none yet.
    fn reached_late(&self) -> Vec<Late> {
        let machines = |o: &Observation| matches!(&o.what, What::HostNamed { kind, .. } if kind.has_console());
        if !self.history.iter().any(machines) {
            return Vec::new();
        }
        let lives = lives::lives(self.history);
        let late = |fault: &Fault| {
            let life = lives.get(fault.name.as_str())?;
            let ((begun, seq), (done, _)) = (life.began?, life.effect.as_ref()?);
            let in_stage = |o: &&Observation| {
                let What::HostStage { to, .. } = &o.what else { return false };
                fault.injection.stage().is_some() && *to == fault.injection.stage() && o.at() <= *done
            };
            let due = self.history.iter().rev().find(in_stage).map_or(begun, |o| o.at().max(begun));
            let by = done.since(due);
            let by_service = by.mul_f64(self.clock_scale);
            let seen = format!(
                "fault {} was done {:.1} s after its moment, which is {:.0} s by the service's clock: so long did it take to get into \
                 the machine",
                fault.name,
                by.as_secs_f64(),
                by_service.as_secs_f64()
            );
            (by_service >= MINUTE).then_some(Late { by, since: due, at: At { time: *done, seq }, seen })
        };
        self.scenario.faults.iter().filter(|fault| fault.injection.is_done_inside()).filter_map(late).collect()
    }

    /// Programs of the run that had work and no processor for too long.
    fn starved(&self) -> impl Iterator<Item = Late> {
        self.history.iter().filter_map(|o| {
            let What::Starved { program, waited_ms, within_ms } = &o.what else { return None };
            let by = Duration::from_millis(*waited_ms);
            let by_service = by.mul_f64(self.clock_scale);
            let seen = || {
                format!(
                    "{program} waited for a processor for {waited_ms} of {within_ms} ms, which is {:.0} s by the service's clock: \
                     this computer is too busy for the time profile",
                    by_service.as_secs_f64()
                )
            };
            let too_long = by >= STARVED_AT_LEAST && by_service >= MINUTE;
            let at = At { time: o.at(), seq: o.seq };
            let since = Timestamp::from_micros(at.time.as_micros() - i64::try_from(within_ms * 1000).unwrap_or_default());
            too_long.then(|| Late { by, since, at, seen: seen() })
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_history::Recorder;
    use vlab_model::history::HostsKind;
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
        let kind = HostsKind::Simulated;
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

    /// A program waits so many milliseconds for a processor at the tenth second, and that invariant fails at that second.
    #[rstest]
    #[case::long(240.0, 1_900, "silence-disconnects: it is told", 12, true)]
    #[case::the_end_of_it(240.0, 1_900, "too-few-hosts-fail: in time", 10, true)]
    #[case::a_moment(240.0, 800, "silence-disconnects: it is told", 12, false)]
    #[case::little_by_a_slower_clock(20.0, 1_900, "silence-disconnects: it is told", 12, false)]
    #[case::after_it_had_failed(240.0, 1_900, "silence-disconnects: it is told", 4, false)]
    #[case::not_a_matter_of_time(240.0, 1_900, "one-bootstrap: it is one", 12, false)]
    fn who_had_no_processor_proves_nothing(
        #[case] scale: f64,
        #[case] waited_ms: u64,
        #[case] failed: &str,
        #[case] failed_at: i64,
        #[case] excused: bool,
    ) {
        let text = "version: 1\nname: t\ncluster: {topology: sno}\nhosts: [{name: m}]\nbudgets: {total: 1h}\n";
        let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text.to_owned()), &Catalogue::embedded());
        let mut recorder = Recorder::new(None);
        let at = |seconds: i64| Timestamp::from_secs(seconds);
        let starved = What::Starved { program: "postgres".to_owned(), waited_ms, within_ms: 5_000 };
        recorder.record(Source::Harness, None, at(10), starved);
        let mut check = CheckResult::new(CheckKind::Invariant, failed, CheckVerdict::Failed);
        check.at = Some(at(failed_at));
        let late = acted_late(&[check], &scenario.unwrap_or_else(|e| panic!("{e}")), scale, recorder.observations());
        assert_eq!(late.is_some(), excused, "{late:?}");
        if let Some(late) = late {
            let expected =
                "postgres waited for a processor for 1900 of 5000 ms, which is 456 s by the service's clock: ";
            assert!(late.seen.starts_with(expected), "{}", late.seen);
        }
    }

    /// The agent of a host is to hang at the tenth second, and does so many seconds later; by then what was expected had failed.
    #[rstest]
    #[case::long(HostsKind::Vm, 30, true)]
    #[case::as_long_as_it_takes(HostsKind::Vm, 3, false)]
    #[case::no_machine(HostsKind::Simulated, 30, false)]
    fn what_could_not_be_done_in_time_proves_nothing(
        #[case] kind: HostsKind,
        #[case] late: i64,
        #[case] excused: bool,
    ) {
        let text = "version: 1\nname: t\ncluster: {topology: sno}\nhosts: [{name: m, kind: vm}]\nbudgets: {total: 1h}\n\
                    faults: [{name: mute, at: 10s, target: m-0, inject: silent-agent, for: 10m}]\n";
        let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text.to_owned()), &Catalogue::embedded());
        let mut recorder = Recorder::new(None);
        let at = |seconds: i64| Timestamp::from_secs(seconds);
        recorder.record(Source::Harness, None, at(0), What::HostNamed { host: HOST, name: "m-0".to_owned(), kind });
        for (phase, when) in [(FaultPhase::Begin, 10), (FaultPhase::Effect, 10 + late)] {
            let (name, inject, host) = ("mute".to_owned(), "silent-agent".to_owned(), Some(HOST));
            let what = What::Fault { name, phase, inject, host, cluster: None, detail: String::new() };
            recorder.record(Source::Harness, None, at(when), what);
        }
        let checks = [CheckResult::new(CheckKind::Expectation, "it is missed", CheckVerdict::Failed)];
        let late = acted_late(&checks, &scenario.unwrap_or_else(|e| panic!("{e}")), 5.0, recorder.observations());
        assert_eq!(late.is_some(), excused, "{late:?}");
        if let Some(late) = late {
            assert!(
                late.seen.starts_with("fault mute was done 30.0 s after its moment, which is 150 s by"),
                "{}",
                late.seen
            );
        }
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

    /// The database is away for two seconds until the tenth, and a check fails.
    #[rstest]
    #[case::in_it("", Some(9), true)]
    #[case::never_seen("", None, true)]
    #[case::before_it("", Some(7), false)]
    #[case::the_scenario_did_it(
        "faults: [{name: down, at: 8s, target: postgres, inject: postgres-unreachable, for: 2s}]\nneeds: [real-time]",
        Some(9),
        false
    )]
    fn a_database_that_was_away_proves_nothing(
        #[case] more: &str,
        #[case] failed_at: Option<i64>,
        #[case] excused: bool,
    ) {
        let text = format!(
            "version: 1\nname: t\ncluster: {{topology: sno}}\nhosts: [{{name: m}}]\n{more}\nbudgets: {{total: 1h}}\n"
        );
        let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded());
        let mut recorder = Recorder::new(None);
        let at = |seconds: i64| Timestamp::from_secs(seconds);
        if !more.is_empty() {
            for (phase, when) in [(FaultPhase::Begin, 8), (FaultPhase::End, 10)] {
                let (name, inject) = ("down".to_owned(), "postgres-unreachable".to_owned());
                let what = What::Fault { name, phase, inject, host: None, cluster: None, detail: String::new() };
                recorder.record(Source::Harness, None, at(when), what);
            }
        }
        let away = What::DatabaseAway { for_ms: 2_000, why: "connection refused".to_owned() };
        recorder.record(Source::Harness, None, at(10), away);
        let mut check = CheckResult::new(CheckKind::Invariant, "one-event-each: …", CheckVerdict::Failed);
        check.at = failed_at.map(at);
        let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
        let away = database_was_away(&[check.clone()], &scenario, 1.0, recorder.observations());
        assert_eq!(away.is_some(), excused, "{away:?}");
        if let Some(away) = away {
            assert_eq!(away.seen, "PostgreSQL was away for 2.0 s: connection refused");
            assert_eq!(decide(&[check, away]).0, Verdict::Inconclusive);
        }
    }
}
