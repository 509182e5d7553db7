//! Judges a history: every expectation of the scenario, every invariant, every budget. A function of the history alone, so
//! that `vlab check` can judge an old run again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostStatus};
use vlab_history::timeline::{HostLine, StateChange};
use vlab_history::{Directory, Timeline};
use vlab_model::console::{self, Blame};
use vlab_model::history::{ActionKind, MachineMoment, Observation, ResourceState, Source, UserVerb, What};
use vlab_model::validation::ValidationStatus;
use vlab_scenario::{
    Criterion, Expectation, Fault, Moment, ResourceKind, Scenario, Seen, SequenceMode, SequenceStep, Span, Steps,
    Subject, Times, When, follow,
};

use crate::cause;
use crate::invariants::{self, InvariantVerdict};
use crate::lives;
use crate::moment::{At, Tracker, hosts_of};
use crate::pivot;
use crate::result::{
    CheckKind, CheckResult, CheckVerdict, DurationResult, PivotResult, Quantiles, RunResult, Verdict, decide,
};

mod expectation;
mod late;
mod unasked;
mod words;

pub use late::ACTS_IN_TIME;
pub use unasked::{LEASE_LOST, REFUSED, SERVER_ERRORS, SERVICE_UP_AGAIN, killed_check};

/// Name of the check that fails when the service under test ends by itself.
pub const STAYS_UP: &str = "the service stays up";
/// Name of the check that fails when a run is ended by its total budget.
pub const COMES_TO_ITS_END: &str = "the run comes to its end";
/// Name of the check that fails when the service refuses what the user cannot do without.
pub const CAN_GO_ON: &str = "the user can go on";
/// Name of the check of what the harness itself added to the time of a run, which its history does not say.
pub const OVERHEAD: &str = "budget: the harness's own overhead";
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
    let mut found = std::mem::take(&mut result.checks);
    found.retain(|check| ![late::ACTS_IN_TIME, late::DATABASE_IS_THERE].contains(&check.name.as_str()));
    result.checks = in_order(judgement.checks, found);
    for excuse in [late::database_was_away, late::acted_late] {
        if let Some(check) = excuse(&result.checks, scenario, clock_scale, history) {
            result.checks.insert(0, check);
        }
    }
    result.detection_latency_ms = Quantiles::of(&detection_latencies(history));
    name_cause(result, scenario, history);
    result.conclude();
}

/// What went wrong first, and which of the failed checks follow from it.
fn name_cause(result: &mut RunResult, scenario: &Scenario, history: &[Observation]) {
    let has_failed = decide(&result.checks).0 == Verdict::Failed;
    let found = has_failed.then(|| cause::find(&Timeline::new(history), scenario, &result.checks)).flatten();
    let follows = found.as_ref().map(|found| &found.follows);
    for (place, check) in result.checks.iter_mut().enumerate() {
        check.follows = follows.is_some_and(|follows| follows.contains(&place));
    }
    result.cause = found.map(|found| found.cause);
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

/// Judges a history. `clock_scale` is the time profile's.
pub fn judge(scenario: &Scenario, clock_scale: f64, history: &[Observation]) -> Judgement {
    let timeline = Timeline::new(history);
    let judge = Judge { scenario, clock_scale, history, timeline };
    let mut judgement = Judgement::default();
    judgement.checks.extend(scenario.expect.iter().map(|e| judge.expectation(e)));
    judgement.checks.extend(judge.ends_installed());
    judgement.checks.extend(judge.faults());
    judgement.checks.extend(judge.planned_actions());
    judgement.checks.extend(judge.refused_actions());
    judgement.checks.extend(judge.refused_image());
    judgement.checks.extend(judge.consoles());
    let pivots = pivot::measure(scenario, clock_scale, history, &judge.timeline);
    judgement.checks.extend(pivots.checks);
    judgement.pivots = pivots.pivots;
    judgement.checks.extend(invariants::check(&judge.timeline).into_iter().map(invariant_check));
    judgement.checks.extend(judge.bad_answers());
    judgement.checks.extend(judge.killed());
    let incomplete = judge.incomplete(&judgement.checks);
    judgement.checks.extend(incomplete);
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
}

impl Judge<'_> {
    fn directory(&self) -> &Directory {
        &self.timeline.directory
    }

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

    /// What the user does on the plain way (create, set roles, install) must succeed in the end. What the scenario plans beyond
    /// that has checks of its own.
    fn refused_actions(&self) -> Vec<CheckResult> {
        let mut checks = Vec::new();
        let planned: BTreeSet<UserVerb> = self.scenario.actions.iter().map(|a| UserVerb::Action(a.kind)).collect();
        let deeds: Vec<(&Observation, &UserVerb, &Option<Uuid>, u16, &String)> = self
            .history
            .iter()
            .filter_map(|o| match &o.what {
                What::UserAction { action, subject, status, reason, planned: None }
                    if *action == UserVerb::Action(ActionKind::Install) || !planned.contains(action) =>
                {
                    Some((o, action, subject, *status, reason))
                }
                _ => None,
            })
            .collect();
        let good = |status: u16| (200..300).contains(&status);
        let mut told = BTreeSet::new();
        for (o, action, subject, status, reason) in &deeds {
            let expected = self.scenario.infra_env.refused.filter(|_| **action == UserVerb::CreateInfraEnv);
            let later_done =
                deeds.iter().any(|(later, a, s, st, _)| later.seq > o.seq && a == action && s == subject && good(*st));
            let wrong = match expected {
                Some(refused) => (*status != refused).then(|| format!("refused with {refused}")),
                None => (!good(*status) && !later_done).then(|| "done".to_owned()),
            };
            let Some(wanted) = wrong else { continue };
            let who = subject.map(|id| self.directory().name(id));
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
                let names: Vec<String> = life.spared.iter().map(|id| self.directory().name(*id)).collect();
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
                What::HostNamed { name, kind, .. } if kind.has_console() => {
                    found.entry(name).or_default();
                }
                What::Fault { name, host: Some(host), .. } => {
                    let fault = self.scenario.faults.iter().find(|fault| fault.name == *name);
                    let says = fault.map(|fault| fault.injection.on_consoles()).unwrap_or_default();
                    by_fault.extend(says.iter().map(|id| (*host, *id)));
                }
                What::Console { machine, finding: Some(id), .. }
                    if self.directory().hosts.get(machine).is_some_and(|host| by_fault.contains(&(*host, id))) => {}
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
            let name = format!("the console of {machine} shows nothing wrong");
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
        let known = |s: &StateChange<HostStatus>| matches!(s.to, HostStatus::Known | HostStatus::KnownUnbound);
        let all_known = self
            .scenario
            .hosts
            .iter()
            .filter(|h| !h.day2)
            .map(|h| {
                let id = self.directory().hosts.get(&h.name)?;
                self.timeline.hosts.get(id)?.statuses.iter().find(|s| known(s)).map(|s| s.at)
            })
            .collect::<Option<Vec<_>>>()
            .and_then(|all| all.into_iter().max());
        let mut add = |name: &str, subject: Option<&String>, took: Option<Duration>, budget: Option<Span>| {
            let (duration, check) = self.measured(name, subject, took, budget);
            judgement.checks.extend(check);
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
            let ready = self.cluster_moment(&cluster.name, ClusterStatus::Ready).map(|t| t.since(start));
            add("start to ready", Some(&cluster.name), ready, budgets.ready);
            let id = self.directory().clusters.get(&cluster.name);
            let asked = self.history.iter().find_map(|o| match &o.what {
                What::UserAction { action: UserVerb::Action(ActionKind::Install), subject, status, .. }
                    if subject.as_ref() == id && (200..300).contains(status) =>
                {
                    Some(o.at())
                }
                _ => None,
            });
            let installed = self.cluster_moment(&cluster.name, ClusterStatus::Installed);
            let install = asked.zip(installed).map(|(a, i)| i.since(a));
            if asked.is_some() || budgets.install.is_some() {
                add("install to installed", Some(&cluster.name), install, budgets.install);
            }
        }
        for (name, cluster, took) in self.boot_durations(first_registration) {
            add(name, cluster, took, None);
        }
        let total = self.history.last().map(|o| o.harness_time.since(start));
        add("the whole run", None, total, Some(budgets.total));
    }

    /// When the cluster entered that status first.
    fn cluster_moment(&self, name: &str, status: ClusterStatus) -> Option<Timestamp> {
        let id = self.directory().clusters.get(name)?;
        self.timeline.clusters.get(id)?.statuses.iter().find(|s| s.to == status).map(|s| s.at)
    }

    /// How long something took, and the check of its budget, where it has one.
    fn measured(
        &self,
        name: &str,
        subject: Option<&String>,
        took: Option<Duration>,
        budget: Option<Span>,
    ) -> (DurationResult, Option<CheckResult>) {
        let duration = DurationResult {
            name: name.to_owned(),
            subject: subject.cloned(),
            took_ms: took.map(millis),
            budget_ms: budget.map(|b| millis(self.under(b))),
            budget_source: budget.map(|_| "scenario".to_owned()),
        };
        let check = duration.met().zip(budget).map(|(met, budget)| {
            let title = match subject {
                Some(subject) => format!("budget: {name} ({subject})"),
                None => format!("budget: {name}"),
            };
            // What never happened is no matter of time.
            let kind = if took.is_some() { CheckKind::Budget } else { CheckKind::Expectation };
            let mut check = CheckResult::new(kind, title, CheckVerdict::Passed);
            check.expected = format!("at most {}", self.span_text(budget));
            check.seen = match took {
                Some(took) => format!("{:.3} s", took.as_secs_f64()),
                None => "it never ended".to_owned(),
            };
            check.subject = subject.cloned();
            if !met {
                check.verdict = CheckVerdict::Failed;
                check.message = match took {
                    Some(_) => format!("took {}, {}", check.seen, check.expected),
                    None => check.seen.clone(),
                };
            }
            check
        });
        (duration, check)
    }

    /// What virtual machines took to boot and to install, where there are some: name, cluster, time.
    fn boot_durations(
        &self,
        first_registration: Option<Timestamp>,
    ) -> Vec<(&'static str, Option<&String>, Option<Duration>)> {
        let machine_on = self.history.iter().find_map(|o| match &o.what {
            What::Machine { did: MachineMoment::Started, .. } => Some(o.at()),
            _ => None,
        });
        let Some(machine_on) = machine_on else { return Vec::new() };
        let since_on = |at: Option<Timestamp>| at.map(|t| t.since(machine_on));
        let installed = self.scenario.clusters.iter().map(|cluster| {
            let installed = self.cluster_moment(&cluster.name, ClusterStatus::Installed);
            ("first machine on to installed", Some(&cluster.name), since_on(installed))
        });
        // The bare boot: firmware, boot loader and kernel.
        let userspace = self.history.iter().find_map(|o| match &o.what {
            What::Console { line, .. } if is_userspace(line) => Some(o.at()),
            _ => None,
        });
        // What the image and the agent add to it.
        let added = userspace.zip(first_registration).map(|(u, r)| r.since(u));
        let boot = [
            ("first machine on to first userspace", None, since_on(userspace)),
            ("first machine on to first registration", None, since_on(first_registration)),
            ("first userspace to first registration", None, added),
        ];
        installed.chain(boot).collect()
    }
}

/// Is that a line of a program, the first of the initrd or systemd, and not of firmware, boot loader or kernel?
fn is_userspace(line: &str) -> bool {
    ["vlab-initrd[", "dracut", "systemd[1]:"].iter().any(|who| line.contains(who))
}

fn millis(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() / 1e3
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
            let (host, name, kind) = (Uuid::from_u128(id), name.to_owned(), vlab_model::history::HostsKind::Vm);
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
            What::HostNamed { host, name: "m".into(), kind: vlab_model::history::HostsKind::Vm },
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
