//! Judges a history: every expectation of the scenario, every invariant, every budget. A function of the history alone, so
//! that `vlab check` can judge an old run again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostStatus};
use vlab_history::Timeline;
use vlab_history::timeline::{HostLine, Step};
use vlab_model::console::{self, Blame};
use vlab_model::history::{HostsKind, MachineMoment, Observation, Source, UserVerb, What};
use vlab_model::validation::ValidationStatus;
use vlab_scenario::{
    Check, Expectation, Fault, Moment, Quantity, Scenario, Seen, SequenceMode, Span, Steps, Subject, When, follow,
};

use crate::invariants::{self, InvariantVerdict};
use crate::lives;
use crate::moment::{At, Cast, Tracker};
use crate::pivot;
use crate::result::{CheckKind, CheckResult, CheckVerdict, DurationResult, PivotResult, Quantiles, RunResult};

/// Name of the check that fails when the service under test ends by itself.
pub const STAYS_UP: &str = "the service stays up";
/// Name of the check that fails when a run is ended by its total budget.
pub const COMES_TO_ITS_END: &str = "the run comes to its end";
/// Name of the check that fails when the service refuses what the user cannot do without.
pub const CAN_GO_ON: &str = "the user can go on";
/// Checks that are made while a run goes on: its history alone does not say them again.
pub const MADE_WHILE_RUNNING: [&str; 3] = [STAYS_UP, COMES_TO_ITS_END, CAN_GO_ON];

/// Puts all that a history says into the result of a run: what things took, and the checks beside those that were made while it
/// went on. Verdict and exit code follow. Without a history nothing was run: a list of all that was not seen would only hide why.
pub fn put_together(result: &mut RunResult, scenario: &Scenario, clock_scale: f64, history: &[Observation]) {
    let judgement = match history.is_empty() {
        true => Judgement::default(),
        false => judge(scenario, clock_scale, history),
    };
    result.durations = judgement.durations;
    result.pivots = judgement.pivots;
    result.checks = in_order(judgement.checks, std::mem::take(&mut result.checks));
    result.detection_latency_ms = Quantiles::of(&detection_latencies(history));
    result.conclude();
}

/// What follows from the history and what was found while running, in the order in which it is told: why a run was cut
/// short comes before all that could not be seen any more because of that. A problem of the lab that an earlier judgement found in
/// the history is there once.
fn in_order(judged: Vec<CheckResult>, found: Vec<CheckResult>) -> Vec<CheckResult> {
    let is_new =
        |check: &CheckResult| !judged.iter().any(|other| (other.kind, &other.name) == (check.kind, &check.name));
    let (mut checks, rest): (Vec<_>, Vec<_>) = found
        .into_iter()
        .filter(is_new)
        .partition(|c| c.kind == CheckKind::Lab || MADE_WHILE_RUNNING.contains(&c.name.as_str()));
    checks.extend(judged);
    checks.extend(rest);
    checks
}

/// How many of a host's last doings are shown with a failure.
const LAST_THINGS: usize = 10;

/// What a history says about a scenario.
#[derive(Debug, Default)]
pub struct Judgement {
    /// Expectations, faults, invariants and budgets, in that order.
    pub checks: Vec<CheckResult>,
    /// How long things took.
    pub durations: Vec<DurationResult>,
    /// The bootstraps' pivots, as they were measured.
    pub pivots: Vec<PivotResult>,
}

/// Judges a history. `clock_scale` is the time profile's;
pub fn judge(scenario: &Scenario, clock_scale: f64, history: &[Observation]) -> Judgement {
    let timeline = Timeline::new(history);
    let mut cast = Cast::new(timeline.truth);
    for observation in history {
        cast.observe(observation);
    }
    let judge = Judge { scenario, clock_scale, history, timeline, cast };
    let mut judgement = Judgement::default();
    judgement.checks.extend(scenario.expect.iter().map(|e| judge.expectation(e)));
    judgement.checks.extend(judge.faults());
    judgement.checks.extend(judge.refused_actions());
    judgement.checks.extend(judge.consoles());
    let pivots = pivot::measure(scenario, clock_scale, history, &judge.timeline, &judge.cast);
    judgement.checks.extend(pivots.checks);
    judgement.pivots = pivots.pivots;
    judgement.checks.extend(invariants::check(&judge.timeline).into_iter().map(invariant_check));
    judge.budgets(&mut judgement);
    judgement
}

fn invariant_check(result: invariants::InvariantResult) -> CheckResult {
    let name = format!("{}: {}", result.id, result.title);
    let mut check = CheckResult::new(CheckKind::Invariant, name, CheckVerdict::Passed);
    match result.verdict {
        InvariantVerdict::Held => check.message = format!("held; {} observations checked", result.checked),
        InvariantVerdict::Violated { details, first_seq } => {
            check.verdict = CheckVerdict::Failed;
            check.message = details.join("; ");
            check.seq = Some(first_seq);
        }
        InvariantVerdict::NotApplicable { reason } => check.verdict = CheckVerdict::Skipped { reason },
    }
    check
}

/// A failed check, with what was seen instead.
struct Failure {
    subject: Option<String>,
    host: Option<Uuid>,
    seen: String,
    at: Option<At>,
    /// States that came and went between two looks would explain it.
    missed: bool,
}

impl Failure {
    fn new(seen: impl Into<String>) -> Self {
        Self { subject: None, host: None, seen: seen.into(), at: None, missed: false }
    }
    fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }
    fn host(mut self, host: Uuid) -> Self {
        self.host = Some(host);
        self
    }
    fn at(mut self, at: Option<At>) -> Self {
        self.at = at;
        self
    }
    fn missed(mut self, missed: bool) -> Self {
        self.missed = missed;
        self
    }
}

struct Judge<'a> {
    scenario: &'a Scenario,
    clock_scale: f64,
    history: &'a [Observation],
    timeline: Timeline<'a>,
    cast: Cast,
}

impl Judge<'_> {
    fn start(&self) -> Timestamp {
        self.timeline.start().unwrap_or_default()
    }

    fn since_start(&self, at: Timestamp) -> String {
        format!("{:.3} s", at.since(self.start()).as_secs_f64())
    }

    fn under(&self, span: Span) -> Duration {
        span.under(self.clock_scale)
    }

    fn span_text(&self, span: Span) -> String {
        let wall = self.under(span);
        if wall == span.as_written() { span.to_string() } else { format!("{span} ({:.3} s here)", wall.as_secs_f64()) }
    }

    fn expectation(&self, expectation: &Expectation) -> CheckResult {
        let mut check = CheckResult::new(CheckKind::Expectation, expectation.name.clone(), CheckVerdict::Passed);
        let (expected, outcome) = self.check(&expectation.check);
        check.expected = expected;
        match outcome {
            Ok(seen) => check.seen = seen,
            Err(failure) => {
                check.verdict = if failure.missed && self.timeline.truth == Source::Poll {
                    // The product may have done right: who only looks now and then cannot tell.
                    CheckVerdict::Inconclusive {
                        reason: "states were only polled, and what came and went between two looks is not known"
                            .to_owned(),
                    }
                } else {
                    CheckVerdict::Failed
                };
                check.message = failure.seen.clone();
                check.seen = failure.seen;
                check.at = failure.at.map(|a| a.time);
                check.seq = failure.at.map(|a| a.seq);
                if let Some(host) = failure.host {
                    check.last_things = self.timeline.last_things(host, LAST_THINGS, failure.at.map(|a| a.seq));
                    check.subject = Some(self.timeline.host_name(host));
                }
                if failure.subject.is_some() {
                    check.subject = failure.subject;
                }
            }
        }
        check
    }

    fn check(&self, check: &Check) -> (String, Result<String, Failure>) {
        match check {
            Check::Sequence { subject, steps, optional, mode } => self.sequence(subject, steps, optional, *mode),
            Check::Eventually { moment, within } => self.eventually(moment, *within),
            Check::Never { moment } => self.never(moment),
            Check::Order { see, before, after, within } => self.order(see, before.as_ref(), after.as_ref(), *within),
            Check::Validation { subject, id, status, when } => self.validation(subject, id, *status, *when),
            Check::Event { subject, name, severity, min, max } => {
                let wanted = match max {
                    Some(max) if max == min => format!("exactly {min}"),
                    Some(max) => format!("{min} to {max}"),
                    None => format!("at least {min}"),
                };
                (
                    format!("{wanted} × event {name} for {}", subject_text(subject)),
                    self.events(subject, name, severity.as_ref().copied(), *min, *max),
                )
            }
            Check::StageDuration { subject, stage, at_least, at_most } => {
                let limits: Vec<String> = [("at least", at_least), ("at most", at_most)]
                    .into_iter()
                    .filter_map(|(word, span)| span.map(|s| format!("{word} {}", self.span_text(s))))
                    .collect();
                (
                    format!("{} spends {} in {stage}", subject_text(subject), limits.join(" and ")),
                    self.stage_duration(subject, *stage, *at_least, *at_most),
                )
            }
            Check::Operator { cluster, name, status } => {
                let expected = format!("operator {name} of {cluster} is {status} at the end");
                let id = self.cast.clusters.get(cluster);
                let last = self.history.iter().rev().find_map(|o| match &o.what {
                    What::Operator { cluster: c, name: n, status } if Some(c) == id && n == name => {
                        Some((*status, At { time: o.at(), seq: o.seq }))
                    }
                    _ => None,
                });
                let outcome = match last {
                    Some((Some(seen), _)) if seen == *status => Ok(format!("{seen}")),
                    Some((seen, at)) => Err(Failure::new(match seen {
                        Some(seen) => format!("the operator is {seen}"),
                        None => "the operator never reported a status".to_owned(),
                    })
                    .of(cluster.clone())
                    .at(Some(at))),
                    None => Err(Failure::new(format!("no operator {name} was seen")).of(cluster.clone())),
                };
                (expected, outcome)
            }
        }
    }

    /// The hosts that a subject means, in the order of their names.
    fn hosts(&self, subject: &Subject) -> Result<Vec<(Uuid, &HostLine)>, Failure> {
        let wanted: Vec<Uuid> = match subject {
            Subject::Hosts(names) => names
                .iter()
                .map(|n| {
                    self.cast
                        .hosts
                        .get(n)
                        .copied()
                        .ok_or_else(|| Failure::new("the host is not part of the run").of(n.clone()))
                })
                .collect::<Result<_, _>>()?,
            Subject::Cluster(name) => {
                let id = self.cast.clusters.get(name);
                self.cast.cluster_of.iter().filter(|(_, c)| Some(*c) == id).map(|(h, _)| *h).collect()
            }
            Subject::Role { .. } => self.cast.hosts_of(subject).into_iter().collect(),
            Subject::Run => self.timeline.hosts.keys().copied().collect(),
        };
        if wanted.is_empty() {
            return Err(Failure::new(format!("there is no host that is {}", subject_text(subject))));
        }
        wanted
            .into_iter()
            .map(|id| match self.timeline.hosts.get(&id) {
                Some(line) => Ok((id, line)),
                None => Err(Failure::new("the host never registered").host(id)),
            })
            .collect()
    }

    fn cluster_id(&self, subject: &Subject) -> Result<Uuid, Failure> {
        match subject {
            Subject::Cluster(name) => self
                .cast
                .clusters
                .get(name)
                .copied()
                .ok_or_else(|| Failure::new("the cluster was never created").of(name.clone())),
            other => Err(Failure::new(format!("{} is no cluster", subject_text(other)))),
        }
    }

    fn sequence(
        &self,
        subject: &Subject,
        steps: &Steps,
        optional: &BTreeSet<usize>,
        mode: SequenceMode,
    ) -> (String, Result<String, Failure>) {
        let word = match mode {
            SequenceMode::Exact => "exactly",
            SequenceMode::Partial => "among others",
        };
        match steps {
            Steps::HostStatuses(wanted) => (
                format!("{} goes through {word}: {}", subject_text(subject), steps_text(wanted, optional)),
                self.host_sequences(subject, wanted, optional, mode, |line| &line.statuses),
            ),
            Steps::Stages(wanted) => (
                format!("{} goes through the stages {word}: {}", subject_text(subject), steps_text(wanted, optional)),
                self.host_sequences(subject, wanted, optional, mode, |line| &line.stages),
            ),
            Steps::ClusterStatuses(wanted) => (
                format!("{} goes through {word}: {}", subject_text(subject), steps_text(wanted, optional)),
                self.cluster_id(subject).and_then(|id| {
                    let seen = self.timeline.clusters.get(&id).map(|c| c.statuses.as_slice()).unwrap_or_default();
                    compare(wanted, optional, seen, mode)
                        .map_err(|d| Failure::new(d.text).of(self.cast.name(id)).at(d.at).missed(d.gaps_only))
                }),
            ),
            Steps::FinalizingStages(wanted) => (
                format!("{} finalizes {word}: {}", subject_text(subject), steps_text(wanted, optional)),
                self.cluster_id(subject).and_then(|id| {
                    let seen = self.timeline.clusters.get(&id).map(|c| c.finalizing.as_slice()).unwrap_or_default();
                    compare(wanted, optional, seen, mode)
                        .map_err(|d| Failure::new(d.text).of(self.cast.name(id)).at(d.at).missed(d.gaps_only))
                }),
            ),
        }
    }

    fn host_sequences<T: Copy + PartialEq + std::fmt::Display>(
        &self,
        subject: &Subject,
        wanted: &[T],
        optional: &BTreeSet<usize>,
        mode: SequenceMode,
        of: impl Fn(&HostLine) -> &Vec<Step<T>>,
    ) -> Result<String, Failure> {
        let hosts = self.hosts(subject)?;
        let mut seen = String::new();
        for (id, line) in &hosts {
            seen = compare(wanted, optional, of(line), mode)
                .map_err(|d| Failure::new(d.text).host(*id).at(d.at).missed(d.gaps_only))?;
        }
        Ok(if hosts.len() == 1 { seen } else { format!("so did all {} hosts", hosts.len()) })
    }

    fn track(&self, moment: &Moment) -> Tracker {
        let mut tracker = Tracker::new(moment.clone());
        for observation in self.history {
            tracker.observe(&self.cast, observation);
        }
        tracker
    }

    /// The moment did not come: for whom, and what that one did instead.
    fn not_seen(&self, tracker: &Tracker, moment: &Moment) -> Failure {
        let missing = tracker.missing(&self.cast);
        let Some(first) = missing.first() else {
            let text = format!("{} was not seen often enough", seen_text(&moment.seen));
            return Failure::new(text).missed(is_state(&moment.seen));
        };
        let host = self.cast.hosts.get(first).copied();
        let instead = match host.and_then(|h| self.timeline.hosts.get(&h)) {
            Some(line) => match line.statuses.last() {
                Some(last) => format!("; its last status is {}", last.to),
                None => String::new(),
            },
            None => match self.cast.clusters.get(first).and_then(|c| self.timeline.clusters.get(c)) {
                Some(line) => {
                    line.statuses.last().map(|s| format!("; its last status is {}", s.to)).unwrap_or_default()
                }
                None if host.is_some() => "; it never registered".to_owned(),
                None => String::new(),
            },
        };
        let others = if missing.len() > 1 { format!(" (nor for {} more)", missing.len() - 1) } else { String::new() };
        let failure = Failure::new(format!("{} was never seen{others}{instead}", seen_text(&moment.seen)))
            .of(first.clone())
            .missed(is_state(&moment.seen));
        match host {
            Some(host) => failure.host(host),
            None => failure,
        }
    }

    fn eventually(&self, moment: &Moment, within: Option<Span>) -> (String, Result<String, Failure>) {
        let limit = within.map(|w| format!(" within {}", self.span_text(w))).unwrap_or_default();
        let expected = format!("{}{limit}", moment_text(moment));
        let tracker = self.track(moment);
        let outcome = match tracker.complete(&self.cast) {
            None => Err(self.not_seen(&tracker, moment)),
            Some(at) => match within {
                Some(span) if at.time.since(self.start()) > self.under(span) => {
                    let who = tracker.hits(&self.cast).into_iter().find(|(_, a)| *a == at).and_then(|(w, _)| w);
                    let failure = Failure::new(format!("it took {}", self.since_start(at.time))).at(Some(at));
                    Err(match who {
                        Some(id) if self.timeline.hosts.contains_key(&id) => failure.host(id),
                        Some(id) => failure.of(self.cast.name(id)),
                        None => failure,
                    })
                }
                _ => Ok(format!("after {}", self.since_start(at.time))),
            },
        };
        (expected, outcome)
    }

    fn never(&self, moment: &Moment) -> (String, Result<String, Failure>) {
        let expected = format!("never: {}", moment_text(&Moment { of: Quantity::AtLeast(1), ..moment.clone() }));
        let tracker = self.track(moment);
        let outcome = match tracker.first(&self.cast) {
            None => Ok("it was not seen".to_owned()),
            Some((who, at)) => {
                let failure =
                    Failure::new(format!("{} was seen after {}", seen_text(&moment.seen), self.since_start(at.time)))
                        .at(Some(at));
                Err(match who {
                    Some(id) if self.timeline.hosts.contains_key(&id) => failure.host(id),
                    Some(id) => failure.of(self.cast.name(id)),
                    None => failure,
                })
            }
        };
        (expected, outcome)
    }

    fn order(
        &self,
        see: &Moment,
        before: Option<&Moment>,
        after: Option<&Moment>,
        within: Option<Span>,
    ) -> (String, Result<String, Failure>) {
        let mut expected = moment_text(see);
        if let Some(b) = before {
            expected.push_str(&format!(", before {}", moment_text(b)));
        }
        if let Some(a) = after {
            expected.push_str(&format!(", after {}", moment_text(a)));
        }
        if let Some(w) = within {
            expected.push_str(&format!(", within {}", self.span_text(w)));
        }
        (expected, self.order_outcome(see, before, after, within))
    }

    fn order_outcome(
        &self,
        see: &Moment,
        before: Option<&Moment>,
        after: Option<&Moment>,
        within: Option<Span>,
    ) -> Result<String, Failure> {
        let tracker = self.track(see);
        let complete = tracker.complete(&self.cast).ok_or_else(|| self.not_seen(&tracker, see))?;
        let (first_who, first) = tracker.first(&self.cast).ok_or_else(|| self.not_seen(&tracker, see))?;
        let late = |text: String, at: At, who: Option<Uuid>| {
            let failure = Failure::new(text).at(Some(at));
            match who {
                Some(id) if self.timeline.hosts.contains_key(&id) => failure.host(id),
                Some(id) => failure.of(self.cast.name(id)),
                None => failure,
            }
        };
        let mut gap = None;
        if let Some(moment) = before {
            let other = self.track(moment);
            let (_, other_first) = other.first(&self.cast).ok_or_else(|| self.not_seen(&other, moment))?;
            self.in_one_look(see, complete, moment, other_first)?;
            if other_first < complete {
                let text = format!(
                    "{} came after {}, {} only after {}",
                    seen_text(&moment.seen),
                    self.since_start(other_first.time),
                    seen_text(&see.seen),
                    self.since_start(complete.time)
                );
                return Err(late(text, complete, None));
            }
            gap = Some(other_first.time.since(complete.time));
        }
        if let Some(moment) = after {
            let other = self.track(moment);
            let other_complete = other.complete(&self.cast).ok_or_else(|| self.not_seen(&other, moment))?;
            self.in_one_look(see, first, moment, other_complete)?;
            if first < other_complete {
                let text = format!(
                    "{} came after {} already, {} only after {}",
                    seen_text(&see.seen),
                    self.since_start(first.time),
                    seen_text(&moment.seen),
                    self.since_start(other_complete.time)
                );
                return Err(late(text, first, first_who));
            }
            gap = Some(complete.time.since(other_complete.time));
        }
        match (within, gap) {
            (Some(span), Some(gap)) if gap > self.under(span) => {
                Err(late(format!("{:.3} s lie between them", gap.as_secs_f64()), complete, None))
            }
            (_, Some(gap)) => Ok(format!("{:.3} s lie between them", gap.as_secs_f64())),
            (_, None) => Ok(format!("after {}", self.since_start(complete.time))),
        }
    }

    fn validation(
        &self,
        subject: &Subject,
        id: &str,
        wanted: ValidationStatus,
        when: When,
    ) -> (String, Result<String, Failure>) {
        let word = word(&wanted);
        let expected = format!(
            "validation {id} of {} is {word} {}",
            subject_text(subject),
            match when {
                When::End => "at the end",
                When::Ever => "at some time",
                When::Always => "whenever it is evaluated",
            }
        );
        let judge = |values: Option<&Vec<Step<Option<ValidationStatus>>>>| -> Result<(), (String, Option<At>)> {
            let Some(values) = values.filter(|v| !v.is_empty()) else {
                return Err(("it was never evaluated".to_owned(), None));
            };
            let bad = match when {
                When::End => values.last().filter(|s| s.to != Some(wanted)),
                When::Ever => (!values.iter().any(|s| s.to == Some(wanted))).then(|| values.last()).flatten(),
                When::Always => values.iter().find(|s| s.to.is_some_and(|v| v != wanted)),
            };
            match bad {
                None => Ok(()),
                Some(step) => {
                    let text = match step.to {
                        Some(value) => format!("it is {}", self::word(&value)),
                        None => "it is not evaluated any more".to_owned(),
                    };
                    Err((text, Some(At { time: step.at, seq: step.seq })))
                }
            }
        };
        let outcome = match subject {
            Subject::Cluster(name) if id.parse::<vlab_api::types::ClusterValidationId>().is_ok() => {
                self.cluster_id(subject).and_then(|cluster| {
                    judge(self.timeline.clusters.get(&cluster).and_then(|c| c.validations.get(id)))
                        .map_err(|(text, at)| Failure::new(text).of(name.clone()).at(at))
                })
            }
            _ => self.hosts(subject).and_then(|hosts| {
                hosts.iter().try_for_each(|(host, line)| {
                    judge(line.validations.get(id)).map_err(|(text, at)| Failure::new(text).host(*host).at(at))
                })
            }),
        };
        (expected, outcome.map(|()| word))
    }

    fn events(
        &self,
        subject: &Subject,
        wanted: &str,
        severity: Option<vlab_api::types::Severity>,
        min: u64,
        max: Option<u64>,
    ) -> Result<String, Failure> {
        // One pass over the history, whatever the number of hosts.
        let mut of_run: (u64, Option<At>) = (0, None);
        let mut of: BTreeMap<Uuid, (u64, Option<At>)> = BTreeMap::new();
        for o in self.history {
            if let What::Event { name, severity: s, cluster, host, .. } = &o.what
                && name == wanted
                && severity.is_none_or(|w| w == *s)
            {
                let at = Some(At { time: o.at(), seq: o.seq });
                of_run = (of_run.0 + 1, at);
                for id in [cluster, host].into_iter().flatten() {
                    let entry = of.entry(*id).or_default();
                    *entry = (entry.0 + 1, at);
                }
            }
        }
        let count = |id: Uuid| of.get(&id).copied().unwrap_or_default();
        let verdict = |found: u64, last: Option<At>| {
            if found < min || max.is_some_and(|m| found > m) {
                Err(Failure::new(format!("{found} were seen")).at(last))
            } else {
                Ok(format!("{found} were seen"))
            }
        };
        match subject {
            Subject::Run => {
                let (found, last) = of_run;
                verdict(found, last)
            }
            Subject::Cluster(name) => {
                let id = self.cluster_id(subject)?;
                let (found, last) = count(id);
                verdict(found, last).map_err(|f| f.of(name.clone()))
            }
            _ => {
                let mut seen = String::new();
                for (host, _) in self.hosts(subject)? {
                    let (found, last) = count(host);
                    seen = verdict(found, last).map_err(|f| f.host(host))?;
                }
                Ok(seen)
            }
        }
    }

    fn stage_duration(
        &self,
        subject: &Subject,
        stage: vlab_api::types::HostStage,
        at_least: Option<Span>,
        at_most: Option<Span>,
    ) -> Result<String, Failure> {
        let mut shown = Vec::new();
        for (host, line) in self.hosts(subject)? {
            let at = line.stages.iter().find(|s| s.to == stage).map(|s| At { time: s.at, seq: s.seq });
            let took = match line.stage_duration(stage) {
                None => return Err(Failure::new("the stage was never reached").host(host).missed(true)),
                Some((_, None)) => return Err(Failure::new("the stage never ended").host(host).at(at)),
                Some((_, Some(took))) => took,
            };
            let text = format!("{:.3} s", took.as_secs_f64());
            if at_least.is_some_and(|s| took < self.under(s)) || at_most.is_some_and(|s| took > self.under(s)) {
                return Err(Failure::new(format!("it took {text}")).host(host).at(at));
            }
            shown.push(text);
        }
        Ok(shown.join(", "))
    }

    /// What one look at the service showed at once has no order that anybody knows.
    fn in_one_look(&self, one: &Moment, at: At, other: &Moment, other_at: At) -> Result<(), Failure> {
        if self.timeline.truth != Source::Poll || at.time != other_at.time {
            return Ok(());
        }
        let text = format!("{} and {} were seen in one look", seen_text(&one.seen), seen_text(&other.seen));
        Err(Failure::new(text).at(Some(at)).missed(true))
    }

    /// Actions of the user that were refused although the scenario does not expect it, and the other way round. What the
    /// user does on the plain way (create, set roles, install) must succeed in the end.
    fn refused_actions(&self) -> Vec<CheckResult> {
        let mut checks = Vec::new();
        let deeds: Vec<(&Observation, &UserVerb, &Option<Uuid>, u16, &String)> = self
            .history
            .iter()
            .filter_map(|o| match &o.what {
                What::UserAction { action, subject, status, reason } => Some((o, action, subject, *status, reason)),
                _ => None,
            })
            .collect();
        let good = |status: u16| (200..300).contains(&status);
        let mut told = BTreeSet::new();
        for (o, action, subject, status, reason) in &deeds {
            let of_image = self.scenario.infra_env.refused.filter(|_| **action == UserVerb::CreateInfraEnv);
            let acts = self.scenario.actions.iter().find(|a| {
                UserVerb::from(a.kind) == **action
                    && a.refused.is_some()
                    && subject.is_none_or(|s| {
                        a.hosts.iter().any(|h| self.cast.hosts.get(h) == Some(&s))
                            || a.cluster.as_ref().is_some_and(|c| self.cast.clusters.get(c) == Some(&s))
                    })
            });
            let expected = acts.and_then(|a| a.refused).or(of_image);
            let later_done =
                deeds.iter().any(|(later, a, s, st, _)| later.seq > o.seq && a == action && s == subject && good(*st));
            let wrong = match expected {
                Some(refused) => (*status != refused).then(|| format!("refused with {refused}")),
                None => (!good(*status) && !later_done).then(|| "done".to_owned()),
            };
            let Some(wanted) = wrong else { continue };
            let who = subject.map(|id| self.cast.name(id));
            let name = match &who {
                Some(who) => format!("user: {action} {who}"),
                None => format!("user: {action}"),
            };
            if !told.insert(name.clone()) {
                continue;
            }
            let mut check = CheckResult::new(CheckKind::Expectation, name, CheckVerdict::Failed);
            check.expected = wanted;
            check.seen = if good(*status) { "done".to_owned() } else { format!("refused with {status}: {reason}") };
            check.message = check.seen.clone();
            check.subject = who;
            check.at = Some(o.at());
            check.seq = Some(o.seq);
            if let Some(id) = subject
                && self.timeline.hosts.contains_key(id)
            {
                check.last_things = self.timeline.last_things(*id, LAST_THINGS, Some(o.seq));
            }
            checks.push(check);
        }
        checks
    }

    /// A fault that a scenario declares and that did nothing makes the scenario worth nothing.
    fn faults(&self) -> Vec<CheckResult> {
        let lives = lives::lives(self.history);
        let never = lives::Life::default();
        let check = |fault: &Fault| {
            let life = lives.get(fault.name.as_str()).unwrap_or(&never);
            let mut check = CheckResult::new(CheckKind::Fault, fault.name.clone(), CheckVerdict::Passed);
            check.expected = format!("{} begins and has an effect on all that it hits", fault.word());
            check.at = life.began.map(|(at, _)| at);
            check.seq = life.began.map(|(_, seq)| seq);
            check.seen = match (&life.began, &life.effect) {
                (None, _) => "it never began: its time did not come, or what it was to hit was not there".to_owned(),
                (Some((began, _)), None) => {
                    format!("{} began at {} and never had an effect", life.hit.join(", "), self.since_start(*began))
                }
                (Some((began, _)), Some((at, what))) => {
                    let ended = life.ended.as_ref().map_or("it never ended".to_owned(), |(at, why)| {
                        format!("ended at {}: {why}", self.since_start(*at))
                    });
                    let (began, at) = (self.since_start(*began), self.since_start(*at));
                    format!("{} began at {began}; at {at} {what}; {ended}", life.hit.join(", "))
                }
            };
            if life.effect.is_none() {
                check.verdict = CheckVerdict::Failed;
            } else if !life.spared.is_empty() {
                check.verdict = CheckVerdict::Failed;
                let names: Vec<String> = life.spared.iter().map(|id| self.cast.name(*id)).collect();
                check.seen = format!("{}; it had no effect on {}", check.seen, names.join(", "));
            }
            check.message = check.seen.clone();
            check
        };
        self.scenario.faults.iter().map(check).collect()
    }

    /// What the consoles of virtual machines must not say: one check for each machine, and one more for a machine that tells of a
    /// problem of the lab. What a fault makes them say, they may say once it began.
    fn consoles(&self) -> Vec<CheckResult> {
        let mut found: BTreeMap<&str, Vec<(&str, &str, At)>> = BTreeMap::new();
        let mut by_fault: BTreeSet<(Uuid, &str)> = BTreeSet::new();
        for observation in self.history {
            match &observation.what {
                What::HostNamed { name, kind: HostsKind::Vm, .. } => {
                    found.entry(name).or_default();
                }
                What::Fault { name, host: Some(host), .. } => {
                    let fault = self.scenario.faults.iter().find(|fault| fault.name == *name);
                    let says = fault.map(|fault| fault.injection.on_consoles()).unwrap_or_default();
                    by_fault.extend(says.iter().map(|id| (*host, *id)));
                }
                What::Console { machine, finding: Some(id), .. }
                    if self.cast.hosts.get(machine).is_some_and(|host| by_fault.contains(&(*host, id))) => {}
                What::Console { machine, line, finding: Some(id) } => {
                    let at = At { time: observation.at(), seq: observation.seq };
                    found.entry(machine).or_default().push((id, line, at));
                }
                _ => {}
            }
        }
        let check = |(machine, lines): (&str, Vec<(&str, &str, At)>)| {
            let row = |id: &str| console::CHECKS.iter().find(|check| check.id == id);
            let is_lab = |id: &str| row(id).is_some_and(|check| check.blames == Blame::Lab);
            let (lab, product): (Vec<_>, Vec<_>) = lines.into_iter().partition(|(id, ..)| is_lab(id));
            let found = |check: &mut CheckResult, lines: &[(&str, &str, At)]| {
                let Some((id, line, at)) = lines.first() else { return };
                let means = row(id).map_or("", |check| check.description);
                check.verdict = CheckVerdict::Failed;
                check.subject = Some(machine.to_owned());
                check.seen = format!("{id} at {}: {line}", self.since_start(at.time));
                check.message = format!("{id} ({means}) at {}: {line}", self.since_start(at.time));
                check.last_things =
                    lines.iter().take(LAST_THINGS).map(|(id, line, _)| format!("{id}: {line}")).collect();
                (check.at, check.seq) = (Some(at.time), Some(at.seq));
            };
            let name = format!("the console of {machine} has nothing bad to say");
            let mut of_product = CheckResult::new(CheckKind::Invariant, name, CheckVerdict::Passed);
            of_product.expected =
                "no kernel panic, emergency shell, failed unit or other line of the console checks".to_owned();
            found(&mut of_product, &product);
            let of_lab = (!lab.is_empty()).then(|| {
                let mut check =
                    CheckResult::new(CheckKind::Lab, format!("the lab was ready for {machine}"), CheckVerdict::Failed);
                check.expected = "the lab has what its machines need when they need it".to_owned();
                found(&mut check, &lab);
                check
            });
            std::iter::once(of_product).chain(of_lab)
        };
        found.into_iter().flat_map(check).collect()
    }

    fn budgets(&self, judgement: &mut Judgement) {
        let budgets = &self.scenario.budgets;
        let start = self.start();
        let first_registration = self.timeline.hosts.values().filter_map(|l| l.statuses.first()).map(|s| s.at).min();
        let known = |s: &Step<HostStatus>| matches!(s.to, HostStatus::Known | HostStatus::KnownUnbound);
        let all_known = self
            .scenario
            .hosts
            .iter()
            .filter(|h| !h.day2)
            .map(|h| {
                let id = self.cast.hosts.get(&h.name)?;
                self.timeline.hosts.get(id)?.statuses.iter().find(|s| known(s)).map(|s| s.at)
            })
            .collect::<Option<Vec<_>>>()
            .and_then(|all| all.into_iter().max());
        let cluster_moment = |name: &str, status: ClusterStatus| {
            let id = self.cast.clusters.get(name)?;
            self.timeline.clusters.get(id)?.statuses.iter().find(|s| s.to == status).map(|s| s.at)
        };
        let mut add = |name: &str, subject: Option<String>, took: Option<Duration>, budget: Option<Span>| {
            let wall = budget.map(|b| self.under(b));
            let duration = DurationResult {
                name: name.to_owned(),
                subject: subject.clone(),
                took_ms: took.map(millis),
                budget_ms: wall.map(millis),
                budget_source: budget.map(|_| "scenario".to_owned()),
            };
            if let (Some(met), Some(budget)) = (duration.met(), budget) {
                let title = match &subject {
                    Some(subject) => format!("budget: {name} ({subject})"),
                    None => format!("budget: {name}"),
                };
                let mut check = CheckResult::new(CheckKind::Budget, title, CheckVerdict::Passed);
                check.expected = format!("at most {}", self.span_text(budget));
                check.seen = match took {
                    Some(took) => format!("{:.3} s", took.as_secs_f64()),
                    None => "it never came to an end".to_owned(),
                };
                check.subject = subject;
                if !met {
                    check.verdict = CheckVerdict::Failed;
                    check.message = match took {
                        Some(_) => format!("took {}, {}", check.seen, check.expected),
                        None => check.seen.clone(),
                    };
                }
                judgement.checks.push(check);
            }
            judgement.durations.push(duration);
        };
        add(
            "start to first registration",
            None,
            first_registration.map(|t| t.since(start)),
            budgets.first_registration,
        );
        add("start to all hosts known", None, all_known.map(|t| t.since(start)), budgets.known);
        for cluster in &self.scenario.clusters {
            let ready = cluster_moment(&cluster.name, ClusterStatus::Ready).map(|t| t.since(start));
            add("start to ready", Some(cluster.name.clone()), ready, budgets.ready);
            let id = self.cast.clusters.get(&cluster.name);
            let asked = self.history.iter().find_map(|o| match &o.what {
                What::UserAction { action: UserVerb::Install, subject, status, .. }
                    if subject.as_ref() == id && (200..300).contains(status) =>
                {
                    Some(o.at())
                }
                _ => None,
            });
            let installed = cluster_moment(&cluster.name, ClusterStatus::Installed);
            let install = asked.zip(installed).map(|(a, i)| i.since(a));
            if asked.is_some() || budgets.install.is_some() {
                add("install to installed", Some(cluster.name.clone()), install, budgets.install);
            }
        }
        let machine_on = self.history.iter().find_map(|o| match &o.what {
            What::Machine { did: MachineMoment::Started, .. } => Some(o.at()),
            _ => None,
        });
        if let Some(machine_on) = machine_on {
            for cluster in &self.scenario.clusters {
                let installed = cluster_moment(&cluster.name, ClusterStatus::Installed).map(|t| t.since(machine_on));
                add("first machine on to installed", Some(cluster.name.clone()), installed, None);
            }
            // The bare boot: firmware, boot loader and kernel.
            let userspace = self.history.iter().find_map(|o| match &o.what {
                What::Console { line, .. } if is_userspace(line) => Some(o.at()),
                _ => None,
            });
            add("first machine on to first userspace", None, userspace.map(|t| t.since(machine_on)), None);
            let registered = first_registration.map(|t| t.since(machine_on));
            add("first machine on to first registration", None, registered, None);
            // What the image and the agent add to it.
            let added = userspace.zip(first_registration).map(|(u, r)| r.since(u));
            add("first userspace to first registration", None, added, None);
        }
        let total = self.history.last().map(|o| o.harness_time.since(start));
        add("the whole run", None, total, Some(budgets.total));
    }
}

/// Is that a line of a program, the first of the initrd or systemd, and not of firmware, boot loader or kernel?
fn is_userspace(line: &str) -> bool {
    ["vlab-initrd[", "dracut", "systemd[1]:"].iter().any(|who| line.contains(who))
}

fn millis(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() / 1e3
}

/// Compares what was gone through with what should be.
fn compare<T: Copy + PartialEq + std::fmt::Display>(
    wanted: &[T],
    optional: &BTreeSet<usize>,
    seen: &[Step<T>],
    mode: SequenceMode,
) -> Result<String, Deviation> {
    let states: Vec<T> = seen.iter().map(|s| s.to).collect();
    let Err(deviation) = follow(wanted, optional, mode, &states) else { return Ok(arrows(&states)) };
    let expected = match deviation.expected.as_slice() {
        [] => "nothing more".to_owned(),
        next => next.iter().map(|i| wanted[*i].to_string()).collect::<Vec<_>>().join(" or "),
    };
    let text = match states.get(deviation.seen) {
        Some(found) => format!("step {} is {found}, not {expected}", deviation.seen + 1),
        None => format!("{expected} was never reached"),
    };
    let at = seen.get(deviation.seen).or(seen.last()).map(|s| At { time: s.at, seq: s.seq });
    // Nothing but wanted states in the wanted order, up to the last one: only those between are missing.
    let mut rest = wanted.iter();
    let in_order = states.iter().all(|seen| rest.any(|w| w == seen));
    let gaps_only = in_order && states.last().is_some() && states.last() == wanted.last();
    Err(Deviation { text: format!("{text}; seen: {}", arrows(&states)), at, gaps_only })
}

/// Is it something that is there for a while and then not any more, which who looks now and then can miss?
fn is_state(seen: &Seen) -> bool {
    matches!(
        seen,
        Seen::HostStatus(_)
            | Seen::ClusterStatus(_)
            | Seen::HostTransition { .. }
            | Seen::ClusterTransition { .. }
            | Seen::Stage(_)
            | Seen::Progress { .. }
            | Seen::FinalizingStage(_)
            | Seen::Validation { .. }
    )
}

/// How what was gone through differs from what should be.
#[derive(Debug)]
struct Deviation {
    text: String,
    at: Option<At>,
    /// Some of what should be was not seen, and nothing else was seen.
    gaps_only: bool,
}

fn steps_text<T: std::fmt::Display>(steps: &[T], optional: &BTreeSet<usize>) -> String {
    let words: Vec<String> = steps
        .iter()
        .enumerate()
        .map(|(i, s)| if optional.contains(&i) { format!("[{s}]") } else { s.to_string() })
        .collect();
    words.join(" → ")
}

fn arrows<T: std::fmt::Display>(states: &[T]) -> String {
    if states.is_empty() {
        return "nothing".to_owned();
    }
    states.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → ")
}

fn subject_text(subject: &Subject) -> String {
    match subject {
        Subject::Cluster(name) => format!("cluster {name}"),
        Subject::Hosts(names) => match names.as_slice() {
            [one] => one.clone(),
            [first, .., last] => format!("{} hosts ({first} … {last})", names.len()),
            [] => "no host".to_owned(),
        },
        Subject::Role { role, cluster } => format!("{role} of {cluster}"),
        Subject::Run => "the run".to_owned(),
    }
}

fn seen_text(seen: &Seen) -> String {
    match seen {
        Seen::HostStatus(s) => format!("status {s}"),
        Seen::ClusterStatus(s) => format!("status {s}"),
        Seen::HostTransition { from, to } => format!("way from {from} to {to}"),
        Seen::ClusterTransition { from, to } => format!("way from {from} to {to}"),
        Seen::Console(text) => format!("console line with {text:?}"),
        Seen::Stage(s) => format!("stage {s}"),
        Seen::FinalizingStage(s) => format!("finalizing stage {s}"),
        Seen::Validation { id, status } => format!("validation {id} {}", word(status)),
        Seen::Event { name, .. } => format!("event {name}"),
        Seen::Operator { name, status } => format!("operator {name} {status}"),
        Seen::Action(kind) => format!("the user's {kind}"),
        Seen::Progress { stage, percent } => format!("stage {stage} at {percent}%"),
        Seen::Step(step) => format!("step {step}"),
        Seen::Fault { name, phase } => format!("{phase} of the fault {name}"),
        Seen::Did(what) => what.clone(),
    }
}

fn moment_text(moment: &Moment) -> String {
    let many = match moment.of {
        Quantity::All => String::new(),
        Quantity::AtLeast(1) => "any of ".to_owned(),
        Quantity::AtLeast(n) => format!("at least {n} of "),
    };
    format!("{many}{}: {}", subject_text(&moment.subject), seen_text(&moment.seen))
}

fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => format!("{other:?}"),
    }
}

/// How long after the database's time the harness knew of a change: milliseconds, in order of the history.
fn detection_latencies(history: &[Observation]) -> Vec<f64> {
    history
        .iter()
        .filter(|o| o.source == Source::Database)
        .filter_map(|o| Some(millis(o.harness_time.since(o.service_time?))))
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_history::Recorder;
    use vlab_scenario::{Catalogue, FaultPhase, SourceFile};

    use super::*;

    /// The verdict on the console of a machine that says a line of a check, before or after a fault hits a machine.
    #[rstest]
    #[case::its_own_doing("media-lost", "m-0", true, "disk-error", true)]
    #[case::units_on_the_medium("media-lost", "m-0", true, "unit-failed", true)]
    #[case::a_disk("disk-fails", "m-0", true, "disk-error", true)]
    #[case::something_else("media-lost", "m-0", true, "kernel-panic", false)]
    #[case::another_machine("media-lost", "m-1", true, "disk-error", false)]
    #[case::too_early("media-lost", "m-0", false, "disk-error", false)]
    #[case::a_fault_without_a_voice("crash", "m-0", true, "disk-error", false)]
    fn what_a_fault_makes_a_console_say_does_not_count(
        #[case] inject: &str,
        #[case] hit: &str,
        #[case] fault_is_first: bool,
        #[case] finding: &str,
        #[case] passes: bool,
    ) {
        let text = format!(
            "version: 1\nname: t\nneeds: [real-time]\ncluster: {{topology: compact, user_managed_networking: true}}\n\
             hosts: [{{name: m, count: 3, kind: vm}}]\n\
             faults: [{{name: it, at: 1m, target: {hit}, inject: {inject}}}]\n"
        );
        let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded());
        let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
        let mut recorder = Recorder::new(None);
        let mut see = |source, what| {
            recorder.record(source, None, Timestamp::from_secs(1), what);
        };
        for (id, name) in [(1, "m-0"), (2, "m-1")] {
            let (host, name, kind) = (Uuid::from_u128(id), name.to_owned(), HostsKind::Vm);
            see(Source::Harness, What::HostNamed { host, name, kind });
        }
        let begins = What::Fault {
            name: "it".into(),
            phase: FaultPhase::Begin,
            inject: inject.into(),
            host: Some(Uuid::from_u128(if hit == "m-0" { 1 } else { 2 })),
            cluster: None,
            detail: String::new(),
        };
        let says = What::Console { machine: "m-0".into(), line: "a line".into(), finding: Some(finding.into()) };
        let both = if fault_is_first { [begins, says] } else { [says, begins] };
        both.into_iter().for_each(|what| see(Source::Console, what));
        let judgement = judge(&scenario, 1.0, recorder.observations());
        let of = |machine: &str| {
            let mut of = judgement.checks.iter().filter(|c| c.name.starts_with(&format!("the console of {machine} ")));
            of.next().unwrap_or_else(|| panic!("{machine} was not judged")).verdict == CheckVerdict::Passed
        };
        assert_eq!((of("m-0"), of("m-1")), (passes, true));
    }

    /// A lab that had not prepared what a machine needs proves nothing about the product.
    #[test]
    fn a_lab_that_was_not_ready_is_inconclusive() {
        let text = "version: 1\nname: t\nneeds: [real-time]\ncluster: {topology: sno, user_managed_networking: true}\n\
                    hosts: [{name: m, kind: vm}]\nexpect: [{never: {hosts: all, status: error}}]\n";
        let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded());
        let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
        let mut recorder = Recorder::new(None);
        let host = Uuid::from_u128(1);
        recorder.record(
            Source::Harness,
            None,
            Timestamp::from_secs(1),
            What::HostNamed { host, name: "m".into(), kind: HostsKind::Vm },
        );
        let line = "vlab-node: installer lab-not-ready {\"what\":\"the disk image\"}".to_owned();
        let says = What::Console { machine: "m".into(), line, finding: Some("lab-not-ready".into()) };
        recorder.record(Source::Console, None, Timestamp::from_secs(2), says);
        let checks = judge(&scenario, 1.0, recorder.observations()).checks;
        let lab: Vec<_> = checks.iter().filter(|c| c.kind == CheckKind::Lab).collect();
        assert_eq!(lab.len(), 1, "{checks:#?}");
        assert_eq!((lab[0].name.as_str(), &lab[0].verdict), ("the lab was ready for m", &CheckVerdict::Failed));
        assert!(lab[0].message.contains("the disk image"), "{}", lab[0].message);
        let console = checks.iter().find(|c| c.name.starts_with("the console of m ")).unwrap();
        assert_eq!(console.verdict, CheckVerdict::Passed, "the product has not said it");
        assert_eq!(crate::result::decide(&checks).0, crate::result::Verdict::Inconclusive);
        let again = in_order(checks.clone(), checks.clone());
        assert_eq!(again.iter().filter(|c| c.kind == CheckKind::Lab).count(), 1, "judged again it is there once");
    }
}
