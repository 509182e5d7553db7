//! What a run measures beside its history: load, memory, and what the harness itself added to the time.

use std::collections::BTreeMap;
use std::time::Duration;

use vlab_api::Timestamp;
use vlab_drive::conductor::{ConductorConfig, Ending};
use vlab_drive::fault::effect::Program;
use vlab_drive::simulate::simulate;
use vlab_drive::target::Target;
use vlab_history::Recorder;
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, LoadReport, Overhead, RunResult};
use vlab_judge::verdict;
use vlab_lab::proc::Usage;
use vlab_model::history::{Observation, Source, What};
use vlab_scenario::{Fault, FaultTarget};

use super::RealRun;
use crate::service::RunningService;
use crate::traffic::Traffic;

/// The harness may add so much to what the service's own intervals force, or this share of it, whichever is more.
const OVERHEAD_LIMIT: (f64, f64) = (200.0, 0.01);
/// Up to so many hosts the forced time is found by simulating the same run.
const SIMULATE_UP_TO: usize = 50;

/// When a run began and ended, and how.
pub(super) struct Span<'a> {
    pub(super) begun: Timestamp,
    pub(super) ended: Timestamp,
    /// How long the lab took to be up before that.
    pub(super) set_up: Duration,
    /// How long the machine's programs had waited for a processor when it began.
    pub(super) waited: Option<Duration>,
    pub(super) ending: Option<&'a Ending>,
}

impl RealRun<'_> {
    pub(super) fn load(&self, result: &mut RunResult, traffic: &Traffic, memory: &Memory, measured: Duration) {
        let Some(load) = &self.prepared.scenario.load else { return };
        let tally = traffic.tally();
        let seconds = measured.as_secs_f64().max(1e-6);
        let report = LoadReport {
            hosts: self.prepared.scenario.hosts.len() as u64,
            measured_s: seconds,
            offered_rps: tally.offered as f64 / seconds,
            achieved_rps: tally.answered as f64 / seconds,
            requests: tally.offered,
            errors: tally.errors.clone(),
            latency: tally.latencies(),
            agents_rss_kib: memory.harness,
            service_rss_kib: memory.service,
            postgres_rss_kib: memory.postgres,
            per_host_kib_slope: memory.slope(),
        };
        if let Some(limit) = load.max_errors {
            let failed = tally.failed();
            let verdict = if failed > limit { CheckVerdict::Failed } else { CheckVerdict::Passed };
            let mut check = CheckResult::new(CheckKind::Expectation, "load: failed requests", verdict);
            check.expected = format!("at most {limit}");
            check.seen = format!("{failed} of {}: {:?}", tally.offered, tally.errors);
            check.message = check.seen.clone();
            result.checks.push(check);
        }
        if let Some(limit) = load.latency_p99_at_most {
            let limit = limit.under(self.prepared.clock_scale).as_secs_f64() * 1e3;
            let worst =
                report.latency.iter().map(|l| (l.latency_ms.p99, &l.operation)).max_by(|a, b| a.0.total_cmp(&b.0));
            let verdict = match worst {
                Some((p99, _)) if p99 <= limit => CheckVerdict::Passed,
                Some(_) => CheckVerdict::Failed,
                None => CheckVerdict::Inconclusive { reason: "no request was measured".to_owned() },
            };
            let mut check = CheckResult::new(CheckKind::Budget, "load: 99th percentile of latency", verdict);
            check.expected = format!("at most {limit:.1} ms");
            check.seen = worst.map(|(p99, op)| format!("{p99:.1} ms ({op})")).unwrap_or_default();
            check.message = check.seen.clone();
            result.checks.push(check);
        }
        result.load = Some(report);
    }

    /// What the harness added to what the service's own intervals force: the same run in virtual time, where requests cost
    /// nothing, says what is forced.
    pub(super) fn overhead(&self, result: &mut RunResult, history: &[Observation], span: &Span<'_>) {
        let Span { begun, ended, set_up, waited, ending } = *span;
        let hosts = self.prepared.scenario.hosts.len();
        // What the simulated service's intervals force says nothing about another one.
        if ending != Some(&Ending::Complete)
            || hosts > SIMULATE_UP_TO
            || self.prepared.scenario.faults.iter().any(is_outside)
            || self.prepared.target != Target::Simulated
            || self.prepared.has_machines()
        {
            return;
        }
        let info = self.prepared.info("forced-time", true, BTreeMap::new());
        let score: ConductorConfig =
            self.prepared.conductor_config(info, vlab_agents::ingress::LAB_INGRESS_PEM.to_owned());
        let forced = simulate(score, self.prepared.core_config("http://127.0.0.1:8090"), Recorder::new(None));
        if forced.ending != Ending::Complete {
            return;
        }
        let wall_ms = ended.since(begun).as_secs_f64() * 1e3;
        let forced_ms = forced.ended_at.since(vlab_drive::simulate::BEGINNING).as_secs_f64() * 1e3;
        let first_host = history.iter().find_map(|o| match &o.what {
            What::HostStatus { from: None, .. } => Some(o.at()),
            _ => None,
        });
        let limit_ms = OVERHEAD_LIMIT.0.max(forced_ms * OVERHEAD_LIMIT.1);
        let (seconds, timing) = (self.prepared.settings.constants.next_instruction_seconds, &self.prepared.timing);
        let poll_ms = timing.next_instruction(seconds).as_secs_f64() * 1e3;
        let waited = waited.zip(waited_for_a_processor()).map(|(before, now)| now.saturating_sub(before));
        result.checks.push(overhead_check(wall_ms - forced_ms, (limit_ms, poll_ms), waited));
        result.overhead = Some(Overhead {
            wall_ms,
            forced_ms,
            overhead_ms: wall_ms - forced_ms,
            limit_ms: Some(limit_ms),
            first_host_ms: first_host.map(|at| (at.since(begun) + set_up).as_secs_f64() * 1e3),
        });
    }
}

/// Judges what was added. The time in which programs waited for a processor is the machine's doing, not the harness's; where the
/// machine does not tell it, what is over the limit proves nothing. A host that comes a moment too late for a look of the service
/// comes again a poll later: that may happen once, and more often where programs had to wait.
fn overhead_check(overhead_ms: f64, (limit_ms, poll_ms): (f64, f64), waited: Option<Duration>) -> CheckResult {
    let waited_ms = waited.map(|waited| waited.as_secs_f64() * 1e3);
    let polls = 1.0 + (waited_ms.unwrap_or_default() / limit_ms).floor();
    let own_ms = overhead_ms - waited_ms.unwrap_or_default() - polls * poll_ms;
    let outcome = if own_ms <= limit_ms {
        CheckVerdict::Passed
    } else if waited.is_some() {
        CheckVerdict::Failed
    } else {
        let reason = format!("{overhead_ms:.0} ms, but how long programs waited for a processor cannot be read here");
        CheckVerdict::Skipped { reason }
    };
    let mut check = CheckResult::new(CheckKind::Budget, verdict::OVERHEAD, outcome);
    check.expected = format!(
        "at most {limit_ms:.0} ms beside the time in which programs waited for a processor and {polls} of {poll_ms:.0} ms in \
         which a host that came too late waited for its next poll"
    );
    check.seen = match waited_ms {
        Some(waited_ms) => format!("{overhead_ms:.0} ms, with programs waiting for a processor for {waited_ms:.0} ms"),
        None => format!("{overhead_ms:.0} ms"),
    };
    if check.verdict == CheckVerdict::Failed {
        check.message = check.seen.clone();
    }
    check
}

/// For how long since the machine's start programs were ready to run and had no processor; `None` where the kernel does not say.
pub(super) fn waited_for_a_processor() -> Option<Duration> {
    pressure(&std::fs::read_to_string("/proc/pressure/cpu").ok()?)
}

/// The total of the line `some` of a pressure file, which counts microseconds.
fn pressure(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

/// Number of hosts from which the memory of one more host is measured: with fewer, what every process needs would count.
const SLOPE_FROM: u64 = 100;

/// Largest resident memory seen, in KiB.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) harness: Option<u64>,
    pub(super) service: Option<u64>,
    pub(super) postgres: Option<u64>,
    /// Hosts that have registered, and how much of the history was counted for that.
    registered: u64,
    counted: usize,
    /// Hosts and memory of the harness when there were [`SLOPE_FROM`] hosts for the first time.
    few: Option<(u64, u64)>,
}

impl Memory {
    pub(super) fn look(&mut self, service: &dyn RunningService, history: &[Observation]) {
        let harness = Usage::of(std::process::id()).ok().map(|usage| usage.rss_bytes / 1024);
        self.harness = self.harness.max(harness);
        self.service = self.service.max(service.memory(Program::Service));
        self.postgres = self.postgres.max(service.memory(Program::Postgres));
        let new =
            |o: &&Observation| matches!(o.what, What::HostStatus { from: None, .. }) && o.source == Source::Database;
        self.registered += history[self.counted..].iter().filter(new).count() as u64;
        self.counted = history.len();
        if self.few.is_none()
            && self.registered >= SLOPE_FROM
            && let Some(kib) = harness
        {
            self.few = Some((self.registered, kib));
        }
    }

    /// Forgets the largest values: from now on those of the idle fleet count.
    pub(super) fn settle(&mut self) {
        (self.harness, self.service, self.postgres) = (None, None, None);
    }

    /// KiB for one more host of the fleet, its part of the history included.
    pub(super) fn slope(&self) -> Option<f64> {
        let (hosts, kib) = self.few?;
        let more = self.registered.checked_sub(hosts).filter(|n| *n >= SLOPE_FROM)?;
        Some((self.harness? as f64 - kib as f64) / more as f64)
    }
}

/// Does it happen to the programs of the run? Its length is then that of the wall clock, too.
fn is_outside(fault: &Fault) -> bool {
    matches!(fault.target, FaultTarget::Service | FaultTarget::Postgres | FaultTarget::Gateway | FaultTarget::Kube)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::little(150.0, Some(0), "passed")]
    #[case::a_poll_was_missed(1190.0, Some(0), "passed")]
    #[case::too_much(1250.0, Some(10), "failed")]
    #[case::the_machine_was_busy(2000.0, Some(1900), "passed")]
    #[case::busy_and_polls_were_missed(2400.0, Some(250), "passed")]
    #[case::busy_and_too_much_all_the_same(2500.0, Some(250), "failed")]
    #[case::little_and_nobody_knows(150.0, None, "passed")]
    #[case::too_much_and_nobody_knows(1250.0, None, "skipped")]
    fn what_the_harness_adds_has_a_limit(#[case] overhead: f64, #[case] waited: Option<u64>, #[case] verdict: &str) {
        let check = overhead_check(overhead, (200.0, 1000.0), waited.map(Duration::from_millis));
        let is = match check.verdict {
            CheckVerdict::Passed => "passed",
            CheckVerdict::Failed => "failed",
            CheckVerdict::Skipped { .. } => "skipped",
            CheckVerdict::Inconclusive { .. } => "inconclusive",
        };
        assert_eq!(is, verdict, "{check:?}");
        assert_eq!(check.kind, CheckKind::Budget);
    }

    #[test]
    fn the_time_without_a_processor_is_read() {
        let text = "some avg10=94.25 avg60=86.36 avg300=42.20 total=179959188\nfull avg10=0.00 total=0\n";
        assert_eq!(pressure(text), Some(Duration::from_micros(179_959_188)));
        assert_eq!(pressure(""), None);
    }
}
