//! What is judged without being asked: that a scenario which expects nothing ends installed, that what the user was to do was
//! done, that the service answers and stops as a service does, and that the history holds all that the verdict needs.

use std::fmt::Write as _;

use vlab_api::http::is_for_hub;
use vlab_api::types::StepType;
use vlab_model::history::HistoryPart;
use vlab_model::host::takes_inventory;
use vlab_scenario::{Action, ActionKind, ActionTime, FaultTarget, Tolerated, moment_words};

use super::*;

/// How long after an outage that the scenario made a service may still be busy with what it did to it: pools of connections to a
/// database that was down find out one by one. Wall time.
const AFTERMATH: Duration = Duration::from_secs(5);

/// So long after the fault that is to blame a lease may be lost: as long as it is tried to renew it.
const LATE_LOSS: Duration = Duration::from_secs(10);

/// An answer of the service that nobody should get.
struct Bad<'a> {
    at: At,
    who: Option<Uuid>,
    request: &'a str,
    status: u16,
}

impl Judge<'_> {
    /// A scenario that expects nothing wants what everybody wants.
    pub(super) fn ends_installed(&self) -> Vec<CheckResult> {
        // Who waits for rest wants that, whatever comes of it.
        if !self.scenario.expect.is_empty() || self.scenario.until.rest.is_some() {
            return Vec::new();
        }
        let check = |cluster: &vlab_scenario::Cluster| {
            let name = format!("{} ends installed", cluster.name);
            let mut check = CheckResult::new(CheckKind::Expectation, name, CheckVerdict::Passed);
            check.expected = "the last status is installed; the scenario expects nothing else".to_owned();
            check.subject = Some(cluster.name.clone());
            let line = self.directory().clusters.get(&cluster.name).and_then(|id| self.timeline.clusters.get(id));
            let last = line.and_then(|line| line.statuses.last());
            check.seen = match last {
                Some(last) => last.to.to_string(),
                None => "it has never had a status".to_owned(),
            };
            (check.at, check.seq) = (last.map(|last| last.at), last.map(|last| last.seq));
            if last.is_none_or(|last| last.to != ClusterStatus::Installed) {
                check.verdict = CheckVerdict::Failed;
                check.message = check.seen.clone();
            }
            check
        };
        self.scenario.clusters.iter().map(check).collect()
    }

    /// What the user was to do was done, and was answered as the scenario says.
    pub(super) fn planned_actions(&self) -> Vec<CheckResult> {
        let mut checks = Vec::new();
        for (index, action) in self.scenario.actions.iter().enumerate() {
            let subjects: Vec<(Option<Uuid>, String)> = if action.hosts.is_empty() {
                let cluster = action.cluster.as_ref();
                let id = cluster.and_then(|name| self.directory().clusters.get(name)).copied();
                vec![(id, cluster.cloned().unwrap_or_default())]
            } else {
                action.hosts.iter().map(|h| (self.directory().hosts.get(h).copied(), h.clone())).collect()
            };
            for (subject, who) in subjects {
                checks.push(self.planned_action(index, action, subject, who));
            }
        }
        checks
    }

    fn planned_action(&self, index: usize, action: &Action, subject: Option<Uuid>, who: String) -> CheckResult {
        let verb = UserVerb::Action(action.kind);
        let operation = action.request.as_ref().map_or(String::new(), |request| format!(" {}", request.operation));
        let name = format!("user: {verb}{operation} {who}").trim_end().to_owned();
        let mut check = CheckResult::new(CheckKind::Expectation, name, CheckVerdict::Passed);
        check.subject = Some(who).filter(|who| !who.is_empty());
        check.expected = match action.refused {
            Some(status) => format!("refused with {status}"),
            None => "done".to_owned(),
        };
        let deeds: Vec<(&Observation, bool, u16, &str)> = self
            .history
            .iter()
            .filter_map(|o| match &o.what {
                What::UserAction { action, subject: s, status, reason, planned }
                    // What another planned action did is not what this one did.
                    if *action == verb && *s == subject && planned.is_none_or(|of| of == index) =>
                {
                    // Histories of before that was written: nobody else does any of these but `install`.
                    let this = *planned == Some(index)
                        || (planned.is_none() && action != &UserVerb::Action(ActionKind::Install));
                    Some((o, this, *status, reason.as_str()))
                }
                _ => None,
            })
            .collect();
        let Some((o, _, status, reason)) = deeds.iter().find(|(_, this, ..)| *this) else {
            check.verdict = CheckVerdict::Failed;
            check.seen = match &action.when {
                ActionTime::After { moment, .. } => format!("never done: it waits for {}", moment_words(moment)),
                ActionTime::At(span) => format!("never done: the run ended before {}", self.span_text(*span)),
            };
            check.message = format!("{} (line {} of the scenario)", check.seen, action.line);
            return check;
        };
        let good = |status: u16| (200..300).contains(&status);
        // What the user tries again until it is done is done.
        let in_the_end = action.refused.is_none() && deeds.iter().any(|(later, _, s, _)| later.seq > o.seq && good(*s));
        let holds = match action.refused {
            Some(refused) => *status == refused,
            None => good(*status) || in_the_end,
        };
        check.seen = if good(*status) { "done".to_owned() } else { format!("refused with {status}: {reason}") };
        (check.at, check.seq) = (Some(o.at()), Some(o.seq));
        if !holds {
            check.verdict = CheckVerdict::Failed;
            // Behind what was seen: by how it begins the kind of a cause is told.
            check.message = format!("{} (line {} of the scenario)", check.seen, action.line);
            if let Some(host) = subject.filter(|id| self.timeline.hosts.contains_key(id)) {
                check.last_things = self.timeline.last_things(host, LAST_THINGS, Some(o.seq));
            }
        }
        check
    }

    /// The infra-env that the scenario wants refused was refused.
    pub(super) fn refused_image(&self) -> Option<CheckResult> {
        let refused = self.scenario.infra_env.refused?;
        let seen = |o: &Observation| matches!(o.what, What::UserAction { action: UserVerb::CreateInfraEnv, status, .. } if status == refused);
        if self.history.iter().any(seen) {
            return None;
        }
        let mut check = CheckResult::new(CheckKind::Expectation, "the infra-env is refused", CheckVerdict::Failed);
        check.expected = format!("the service answers {refused}");
        check.seen = "the service never did".to_owned();
        check.message = check.seen.clone();
        Some(check)
    }

    /// The service is there and has no errors of its own, but for the outages that the scenario makes.
    pub(super) fn bad_answers(&self) -> Vec<CheckResult> {
        let of_service = |target: &FaultTarget| {
            matches!(target, FaultTarget::Service | FaultTarget::Postgres | FaultTarget::Gateway)
        };
        let mut outages = self.outages(of_service);
        // What goes wrong at the API server is no reason for the service to fail its hosts, but that it ends without its lease.
        let of_hub = self.outages(|target| *target == FaultTarget::Kube);
        let without_lease = self.without_lease();
        let in_fault = |(from, _): &(Timestamp, Timestamp)| {
            // An answer that is late may be so still when its fault is over.
            outages.iter().chain(&of_hub).any(|(begin, end)| begin <= from && *from <= *end + LATE_LOSS)
        };
        let (explained, by_itself): (Vec<_>, Vec<_>) = without_lease.into_iter().partition(in_fault);
        let lease = (!explained.is_empty() || !by_itself.is_empty()).then(|| self.keeps_lease(&by_itself));
        // Hosts may find out before the harness is told.
        outages.extend(explained.into_iter().map(|(from, to)| (from - AFTERMATH, to)));
        let refusals: BTreeSet<u16> =
            self.scenario.actions.iter().filter_map(|a| a.refused).chain(self.scenario.infra_env.refused).collect();
        let counted = self.scenario.load.as_ref().is_some_and(|load| load.max_errors.is_some());
        let mut bad = Vec::new();
        for o in self.history {
            let What::BadAnswer { host, request, status, took_ms } = &o.what else { continue };
            let (from, to) = (o.at() - Duration::from_millis(*took_ms), o.at());
            let within =
                |outages: &[(Timestamp, Timestamp)]| outages.iter().any(|(begin, end)| from <= *end && to >= *begin);
            let explained = within(&outages)
                || (request.split_once(' ').is_some_and(|(_, path)| is_for_hub(path)) && within(&of_hub))
                || (host.is_none() && refusals.contains(status))
                // How many a load may have says the scenario.
                || (host.is_some() && counted)
                || (*status == 500 && host.is_some_and(|host| self.crossed(host, request, o)));
            if !explained {
                bad.push(Bad { at: At { time: o.at(), seq: o.seq }, who: *host, request, status: *status });
            }
        }
        let (refused, errors): (Vec<_>, Vec<_>) = bad.into_iter().partition(|bad| bad.status == 0);
        let mut checks = vec![
            self.answered(SERVER_ERRORS, Tolerated::ServerErrors, "no answer of 500 or above", &errors),
            self.answered(REFUSED, Tolerated::RefusedConnections, "no refused connection", &refused),
        ];
        checks.extend(lease);
        checks
    }

    /// A service that has lost the lease of its controllers ends. Where no fault is to blame, that is its own doing.
    fn keeps_lease(&self, by_itself: &[(Timestamp, Timestamp)]) -> CheckResult {
        let mut check = CheckResult::new(CheckKind::Invariant, KEEPS_LEASE, CheckVerdict::Passed);
        check.expected = "the lease is lost only where a fault is to blame".to_owned();
        let Some((lost, _)) = by_itself.first() else {
            check.seen = "a fault is to blame".to_owned();
            return check;
        };
        check.verdict = CheckVerdict::Failed;
        check.at = Some(*lost);
        check.seen = format!("it was lost at {}, and the service ended", self.since_start(*lost));
        check.message = check.seen.clone();
        check
    }

    /// An inventory that was asked for before the host was moved to a status in which none is taken, and that came after that.
    /// How long it is on its way is a matter of the computer: it is refused, and nothing is wrong.
    fn crossed(&self, host: Uuid, request: &str, answer: &Observation) -> bool {
        let taking_stock = |o: &&Observation| {
            matches!(&o.what, What::Step { host: h, step_type, answered: None, .. }
                if *h == host && step_type == StepType::Inventory.as_str())
        };
        let asked = self.history.iter().take_while(|o| o.seq < answer.seq).filter(taking_stock).last();
        let statuses = self.timeline.hosts.get(&host).map_or(&[][..], |line| &line.statuses);
        let moved = statuses.iter().rev().find(|status| status.at <= answer.at());
        // The service's clock has whole milliseconds, the harness's finer ones. What hosts are asked is known when the answer has
        // come, and a busy service moves a host between reading it and answering.
        let virtual_time = self.timeline.run.is_some_and(|run| run.virtual_time);
        let old = if virtual_time { Duration::from_millis(1) } else { ANSWER_IS_OLD };
        let after = |moved: Timestamp, asked: Timestamp| moved + old > asked;
        // What machines are asked is not heard: it may have been before.
        let may_be = |moved: Timestamp| asked.is_none_or(|asked| after(moved, asked.at()));
        request.ends_with("/instructions") && moved.is_some_and(|moved| may_be(moved.at) && !takes_inventory(moved.to))
    }

    fn answered(&self, name: &str, word: Tolerated, expected: &str, bad: &[Bad<'_>]) -> CheckResult {
        let mut check = CheckResult::new(CheckKind::Invariant, name, CheckVerdict::Passed);
        check.expected = format!("{expected}, but for outages that the scenario makes");
        let Some(first) = bad.first() else {
            check.seen = "none was seen".to_owned();
            return check;
        };
        check.seen = self.bad_words(first);
        if bad.len() > 1 {
            let _ = write!(check.seen, " (and {} more)", bad.len() - 1);
        }
        (check.at, check.seq) = (Some(first.at.time), Some(first.at.seq));
        if self.scenario.tolerate.contains(&word) {
            check.verdict = CheckVerdict::Skipped { reason: format!("the scenario tolerates {word}") };
            return check;
        }
        check.verdict = CheckVerdict::Failed;
        check.message = check.seen.clone();
        check.last_things = bad.iter().take(LAST_THINGS).map(|bad| self.bad_words(bad)).collect();
        check
    }

    fn bad_words(&self, bad: &Bad<'_>) -> String {
        let who = bad.who.map_or("the user".to_owned(), |id| self.directory().name(id));
        let what = if bad.status == 0 { "connection refused".to_owned() } else { format!("HTTP {}", bad.status) };
        format!("{what} for {who} at {}: {}", self.since_start(bad.at.time), bad.request)
    }

    /// When the scenario itself kept the service, its database or the way to it from working.
    pub(super) fn outages(&self, of: impl Fn(&FaultTarget) -> bool) -> Vec<(Timestamp, Timestamp)> {
        let lives = lives::lives(self.history);
        let last = self.history.last().map(|o| o.at()).unwrap_or_default();
        let outage = |fault: &Fault| {
            let life = lives.get(fault.name.as_str())?;
            let (began, _) = life.began?;
            Some((began, life.ended.as_ref().map_or(last, |(at, _)| *at) + AFTERMATH))
        };
        self.scenario.faults.iter().filter(|fault| of(&fault.target)).filter_map(outage).collect()
    }

    /// When the service was down because it had lost the lease of its controllers.
    fn without_lease(&self) -> Vec<(Timestamp, Timestamp)> {
        let (mut times, mut since) = (Vec::new(), None);
        for o in self.history {
            match &o.what {
                What::Note { text } if text == LEASE_LOST => since = Some(o.at()),
                What::Note { text } if text == SERVICE_UP_AGAIN => {
                    times.extend(since.take().map(|since| (since, o.at() + AFTERMATH)));
                }
                _ => {}
            }
        }
        let last = self.history.last().map(|o| o.at()).unwrap_or_default();
        times.extend(since.map(|since| (since, last)));
        times
    }

    /// Programs that did not end when they were asked to.
    pub(super) fn killed(&self) -> Vec<CheckResult> {
        let check = |o: &Observation| {
            let What::Killed { program, detail } = &o.what else { return None };
            let mut check = killed_check(program, detail);
            (check.at, check.seq) = (Some(o.at()), Some(o.seq));
            if self.scenario.tolerate.contains(&Tolerated::Kills) {
                check.verdict =
                    CheckVerdict::Skipped { reason: format!("the scenario tolerates {}", Tolerated::Kills) };
            }
            Some(check)
        };
        self.history.iter().filter_map(check).collect()
    }

    /// What could not be read to its end, where something was judged that needs it.
    pub(super) fn incomplete(&self, judged: &[CheckResult]) -> Vec<CheckResult> {
        // A service that does not answer is told as that.
        let product = |c: &CheckResult| {
            c.verdict == CheckVerdict::Failed && [SERVER_ERRORS, REFUSED, STAYS_UP].contains(&c.name.as_str())
        };
        let no_answers = judged.iter().any(product);
        let needs_events = || {
            let expected = self.scenario.expect.iter().any(|e| matches!(e.check, Criterion::Event { .. }));
            let invariant = |c: &CheckResult| {
                c.kind == CheckKind::Invariant
                    && ["one-event-each", "events-tell", "end-complete"].iter().any(|id| c.name.starts_with(id))
                    && !matches!(c.verdict, CheckVerdict::Skipped { .. })
            };
            expected || judged.iter().any(invariant)
        };
        let needs_look = || {
            let of_looks = |e: &Expectation| matches!(e.check, Criterion::Operator { .. });
            self.timeline.truth == Source::Poll || self.scenario.expect.iter().any(of_looks)
        };
        let check = |o: &Observation| {
            let What::Incomplete { part, machine, why } = &o.what else { return None };
            let needed = match part {
                HistoryPart::Events => !no_answers && needs_events(),
                HistoryPart::LastLook => !no_answers && (needs_look() || needs_events()),
                HistoryPart::ConsoleLines => self.scenario.moments().any(|m| matches!(m.seen, Seen::Console(_))),
                HistoryPart::Database | HistoryPart::Console | HistoryPart::Other(_) => true,
            };
            needed.then(|| {
                let of = machine.as_ref().map(|machine| format!(" of {machine}")).unwrap_or_default();
                let name = format!("the history is complete: {part}{of}");
                let mut check = CheckResult::new(CheckKind::Lab, name, CheckVerdict::Failed);
                check.expected = "everything that is judged was read to its end".to_owned();
                check.message = why.clone();
                check.seen = why.clone();
                check.subject = machine.clone();
                (check.at, check.seq) = (Some(o.at()), Some(o.seq));
                check
            })
        };
        let mut checks: Vec<CheckResult> = Vec::new();
        for check in self.history.iter().filter_map(check) {
            if !checks.iter().any(|other| other.name == check.name) {
                checks.push(check);
            }
        }
        checks
    }
}

/// What an answer of the service says may have been otherwise for so long when it is read, on a busy computer.
const ANSWER_IS_OLD: Duration = Duration::from_secs(1);

/// What a history notes when a service has ended because it had lost the lease of its controllers.
pub const LEASE_LOST: &str = "the service ended: leader election lost; it is started again, as a pod would be";
/// What a history notes when a service runs again that had ended by itself.
pub const SERVICE_UP_AGAIN: &str = "the service is up again";

/// Name of the check of a service that has lost the lease of its controllers.
const KEEPS_LEASE: &str = "the service keeps the lease of its controllers";
/// Name of the check that fails when the service answers with 5xx.
pub const SERVER_ERRORS: &str = "the service has no errors of its own";
/// Name of the check that fails when nobody listens where the service should.
pub const REFUSED: &str = "the service can be reached";

/// The check that fails when a program under test had to be killed.
pub fn killed_check(program: &str, detail: &str) -> CheckResult {
    let mut check = CheckResult::new(CheckKind::Invariant, format!("{program} ends when asked"), CheckVerdict::Failed);
    check.expected = "SIGTERM is enough".to_owned();
    check.seen = detail.to_owned();
    check.message = detail.to_owned();
    check
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_api::types::HostStatus;
    use vlab_history::Recorder;
    use vlab_model::history::HostsKind;
    use vlab_scenario::{Catalogue, FaultPhase, SourceFile};

    use super::*;
    use crate::result::{Verdict, decide};

    const CLUSTER: Uuid = Uuid::from_u128(100);
    const HOST: Uuid = Uuid::from_u128(1);

    fn scenario(more: &str) -> Scenario {
        let text = format!(
            "version: 1\nname: t\ncluster: {{topology: sno}}\nhosts: [{{name: m}}]\n{more}\nbudgets: {{total: 1h}}\n"
        );
        let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded());
        scenario.unwrap_or_else(|e| panic!("{e}"))
    }

    /// The checks over a history of one host and one cluster that is `installed` after the tenth second, beside these things and the
    /// milliseconds at which they happen.
    fn checks(more: &str, things: Vec<(i64, What)>) -> Vec<CheckResult> {
        let to = |to, from| What::ClusterStatus { cluster: CLUSTER, from, to, info: String::new() };
        let name = |name: &str| name.to_owned();
        let mut all = vec![
            (0, What::HostNamed { host: HOST, name: name("m-0"), kind: HostsKind::Simulated }),
            (0, What::ClusterNamed { cluster: CLUSTER, name: name("t"), vip_dhcp: false }),
            (0, to(ClusterStatus::Insufficient, None)),
            (10_000, to(ClusterStatus::Ready, Some(ClusterStatus::Insufficient))),
        ];
        all.extend(things);
        all.sort_by_key(|(at, _)| *at);
        let mut recorder = Recorder::new(None);
        for (at, what) in all {
            recorder.record(Source::Database, None, Timestamp::from_micros(at * 1000), what);
        }
        judge(&scenario(more), 1.0, recorder.observations()).checks
    }

    fn of<'a>(checks: &'a [CheckResult], name: &str) -> &'a CheckResult {
        checks.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("no check {name}: {checks:#?}"))
    }

    const ENDS: &str = "expect: [{never: {hosts: all, status: error}}]";

    /// A `never` about somebody who was never there shows nothing.
    #[rstest]
    #[case::a_host("{hosts: all, status: error}", false, true)]
    #[case::its_stage("{hosts: all, stage: Rebooting}", false, true)]
    #[case::its_validation("{hosts: all, validation: ntp-synced, is: failure}", false, true)]
    #[case::what_it_does("{hosts: all, did: registered}", false, false)]
    #[case::that_it_registers("{hosts: all, status: discovering}", false, false)]
    #[case::a_role("{role: bootstrap, stage: Rebooting}", true, true)]
    #[case::a_host_that_registered("{hosts: all, status: error}", true, false)]
    #[case::a_cluster("{cluster: t, status: error}", false, false)]
    fn a_never_needs_somebody(#[case] moment: &str, #[case] registers: bool, #[case] is_empty: bool) {
        let (from, to, info) = (None, HostStatus::Known, String::new());
        let known = What::HostStatus { host: HOST, cluster: Some(CLUSTER), from, to, info };
        let things = if registers { vec![(1_000, known)] } else { Vec::new() };
        let checks = checks(&format!("expect: [{{never: {moment}}}]"), things);
        let check = checks.iter().find(|c| c.kind == CheckKind::Expectation).unwrap();
        assert_eq!(check.verdict == CheckVerdict::Failed, is_empty, "{check:?}");
        assert!(!is_empty || check.seen.contains("never registered"), "{check:?}");
    }

    #[rstest]
    #[case(&[], "ready")]
    #[case(&[ClusterStatus::Installing, ClusterStatus::Error], "error")]
    #[case(&[ClusterStatus::Installing, ClusterStatus::Installed], "")]
    #[case(&[ClusterStatus::Installed, ClusterStatus::Ready], "ready")]
    fn without_an_expectation_a_cluster_ends_installed(#[case] statuses: &[ClusterStatus], #[case] instead: &str) {
        let to = |(n, to): (i64, &ClusterStatus)| {
            (20_000 + n, What::ClusterStatus { cluster: CLUSTER, from: None, to: *to, info: String::new() })
        };
        let checks = checks("", (0..).zip(statuses).map(to).collect());
        let check = of(&checks, "t ends installed");
        assert_eq!((check.verdict == CheckVerdict::Passed, check.message.as_str()), (instead.is_empty(), instead));
        assert_eq!(check.kind, CheckKind::Expectation);
        let asked = self::checks(ENDS, Vec::new());
        assert!(asked.iter().all(|c| c.name != "t ends installed"), "it expects something else");
    }

    fn cancel(status: u16, planned: Option<usize>) -> What {
        let (action, subject, reason) = (UserVerb::Action(ActionKind::Cancel), Some(CLUSTER), "because".to_owned());
        What::UserAction { action, subject, status, reason, planned }
    }

    #[rstest]
    #[case::done("", Some(cancel(202, Some(0))), "")]
    #[case::refused("", Some(cancel(409, Some(0))), "refused with 409: because")]
    #[case::its_trigger_never_came("", None, "never done: it waits for cluster t: status error")]
    #[case::another_one("", Some(cancel(202, Some(1))), "never done: it waits for cluster t: status error")]
    #[case::of_a_history_of_before("", Some(cancel(202, None)), "")]
    #[case::refused_as_planned(", refused: 409", Some(cancel(409, Some(0))), "")]
    #[case::refused_otherwise(", refused: 409", Some(cancel(404, Some(0))), "refused with 404: because")]
    #[case::not_refused(", refused: 409", Some(cancel(202, Some(0))), "done")]
    #[case::the_refusal_was_never_seen(", refused: 409", None, "never done: it waits for cluster t: status error")]
    fn what_the_user_was_to_do_was_done(#[case] refused: &str, #[case] did: Option<What>, #[case] wrong: &str) {
        let more = format!("actions: [{{after: {{cluster: t, status: error}}, do: cancel{refused}}}]\n{ENDS}");
        let checks = checks(&more, did.into_iter().map(|what| (20_000, what)).collect());
        let check = of(&checks, "user: cancel t");
        let verdict = if wrong.is_empty() { CheckVerdict::Passed } else { CheckVerdict::Failed };
        let wrong = if wrong.is_empty() { String::new() } else { format!("{wrong} (line 5 of the scenario)") };
        assert_eq!((&check.verdict, check.message.as_str()), (&verdict, wrong.as_str()));
        assert_eq!(checks.iter().filter(|c| c.name.starts_with("user: ")).count(), 1, "{checks:#?}");
    }

    /// Of two actions of one kind the second does not make the first one good.
    #[test]
    fn each_planned_action_is_judged_by_what_it_did() {
        let more = format!("actions: [{{at: 1s, do: cancel}}, {{at: 2s, do: cancel}}]\n{ENDS}");
        let checks = checks(&more, vec![(20_000, cancel(409, Some(0))), (30_000, cancel(202, Some(1)))]);
        let of_user = checks.iter().filter(|c| c.name == "user: cancel t").map(|c| c.verdict.clone());
        assert_eq!(of_user.collect::<Vec<_>>(), [CheckVerdict::Failed, CheckVerdict::Passed]);
    }

    #[test]
    fn what_was_to_be_done_after_the_end_was_not_done() {
        let checks = checks(&format!("actions: [{{at: 30m, do: cancel}}]\n{ENDS}"), Vec::new());
        let check = of(&checks, "user: cancel t");
        assert_eq!(
            (&check.verdict, check.message.as_str()),
            (&CheckVerdict::Failed, "never done: the run ended before 30m (line 5 of the scenario)")
        );
    }

    fn bad(host: Option<Uuid>, status: u16) -> What {
        What::BadAnswer { host, request: "GET /v2/x".to_owned(), status, took_ms: 50 }
    }

    fn outage(phase: FaultPhase) -> What {
        let (name, inject, detail) = ("down".to_owned(), "service-kill".to_owned(), "it".to_owned());
        What::Fault { name, phase, inject, host: None, cluster: None, detail }
    }

    #[rstest]
    #[case::nothing(None, "", true)]
    #[case::before_the_outage(Some(bad(Some(HOST), 500)), "", false)]
    #[case::to_the_user(Some(bad(None, 503)), "", false)]
    #[case::tolerated(Some(bad(None, 503)), "tolerate: [server-errors]", true)]
    #[case::something_else_tolerated(Some(bad(None, 503)), "tolerate: [kills, refused-connections]", false)]
    #[case::as_the_user_wants_it(Some(bad(None, 500)), "actions: [{at: 1s, do: cancel, refused: 500}]", true)]
    #[case::a_host_does_not_want_it(Some(bad(Some(HOST), 500)), "actions: [{at: 1s, do: cancel, refused: 500}]", false)]
    #[case::counted_by_the_load(Some(bad(Some(HOST), 500)), "load: {max_errors: 5}", true)]
    fn errors_of_the_service_fail_a_run(#[case] answer: Option<What>, #[case] more: &str, #[case] holds: bool) {
        let things = answer.into_iter().map(|what| (12_000, what)).collect();
        let checks = checks(&format!("{more}\n{ENDS}"), things);
        assert_eq!(of(&checks, SERVER_ERRORS).verdict != CheckVerdict::Failed, holds, "{checks:#?}");
        assert_eq!(of(&checks, REFUSED).verdict, CheckVerdict::Passed);
    }

    #[rstest]
    #[case::before_it(14_900, 0, false)]
    #[case::asked_before_it(15_040, 0, true)]
    #[case::in_it(20_000, 0, true)]
    #[case::busy_after_it(34_000, 500, true)]
    #[case::long_after_it(35_100, 500, false)]
    fn an_outage_of_the_scenario_excuses_what_comes_of_it(#[case] at: i64, #[case] status: u16, #[case] excused: bool) {
        let faults = "faults: [{name: down, at: 1s, target: service, inject: service-kill, with: {down: 15s}}]";
        let things = vec![
            (15_000, outage(FaultPhase::Begin)),
            (15_001, outage(FaultPhase::Effect)),
            (30_000, outage(FaultPhase::End)),
            (at, bad(Some(HOST), status)),
        ];
        let checks = checks(&format!("{faults}\n{ENDS}"), things);
        let check = of(&checks, if status == 0 { REFUSED } else { SERVER_ERRORS });
        assert_eq!(check.verdict == CheckVerdict::Passed, excused, "{check:#?}");
        if !excused {
            assert!(check.message.contains(" for m-0 at ") && check.message.ends_with(": GET /v2/x"), "{check:#?}");
        }
    }

    /// The service is down without its lease for two seconds, and a host finds nobody, the first time before the harness is told.
    #[rstest]
    #[case::in_a_fault(20_000, true)]
    #[case::shortly_after_it(40_000, true)]
    #[case::long_after_it(50_000, false)]
    fn a_lease_is_lost_only_where_a_fault_is_to_blame(#[case] at: i64, #[case] excused: bool) {
        let faults = "faults: [{name: down, at: 1s, target: service, inject: service-kill, with: {down: 15s}}]";
        let note = |text: String| What::Note { text };
        let things = vec![
            (15_000, outage(FaultPhase::Begin)),
            (15_001, outage(FaultPhase::Effect)),
            (30_000, outage(FaultPhase::End)),
            (at - 20, bad(Some(HOST), 0)),
            (at, note(LEASE_LOST.to_owned())),
            (at + 1000, bad(Some(HOST), 0)),
            (at + 2000, note(SERVICE_UP_AGAIN.to_owned())),
        ];
        let checks = checks(&format!("{faults}\n{ENDS}"), things);
        for name in [KEEPS_LEASE, REFUSED] {
            let check = of(&checks, name);
            assert_eq!(check.verdict == CheckVerdict::Passed, excused, "{check:#?}");
        }
    }

    #[test]
    fn who_has_lost_no_lease_is_not_asked_for_it() {
        assert!(checks(ENDS, Vec::new()).iter().all(|check| check.name != KEEPS_LEASE));
    }

    /// A host is told to take stock at 11.5 s and moved at this time; its reply is refused at 12 s.
    #[rstest]
    #[case::moved_meanwhile(11_700, HostStatus::PreparingForInstallation, 500, true)]
    #[case::moved_while_it_was_told(11_000, HostStatus::PreparingForInstallation, 500, true)]
    #[case::moved_before_it_was_told(10_400, HostStatus::PreparingForInstallation, 500, false)]
    #[case::moved_to_where_inventories_are_taken(11_700, HostStatus::Known, 500, false)]
    #[case::moved_after_the_answer(12_500, HostStatus::PreparingForInstallation, 500, false)]
    #[case::another_error(11_700, HostStatus::PreparingForInstallation, 503, false)]
    fn an_inventory_may_come_after_the_host_was_moved(
        #[case] moved: i64,
        #[case] to: HostStatus,
        #[case] status: u16,
        #[case] excused: bool,
    ) {
        let (step_type, step_id) = ("inventory".to_owned(), "inventory-1".to_owned());
        let step = What::Step { host: HOST, step_type, step_id, answered: None, cached: false };
        let cluster = Some(CLUSTER);
        let at = |to| What::HostStatus { host: HOST, cluster, from: None, to, info: String::new() };
        let request = format!("POST /v2/infra-envs/1/hosts/{HOST}/instructions");
        let answer = What::BadAnswer { host: Some(HOST), request, status, took_ms: 50 };
        let mut things = vec![(10_100, at(HostStatus::Known)), (11_500, step), (moved, at(to)), (12_000, answer)];
        things.sort_by_key(|(time, _)| *time);
        let checks = checks(ENDS, things);
        assert_eq!(of(&checks, SERVER_ERRORS).verdict == CheckVerdict::Passed, excused, "{checks:#?}");
    }

    /// What machines are asked nobody hears, so that theirs may have been asked for before.
    #[rstest]
    #[case(HostStatus::PreparingForInstallation, true)]
    #[case(HostStatus::Known, false)]
    fn an_inventory_of_a_machine_may_have_been_asked_for_before(#[case] is: HostStatus, #[case] excused: bool) {
        let status = What::HostStatus { host: HOST, cluster: Some(CLUSTER), from: None, to: is, info: String::new() };
        let request = format!("POST /v2/infra-envs/1/hosts/{HOST}/instructions");
        let answer = What::BadAnswer { host: Some(HOST), request, status: 500, took_ms: 50 };
        let checks = checks(ENDS, vec![(10_100, status), (12_000, answer)]);
        assert_eq!(of(&checks, SERVER_ERRORS).verdict == CheckVerdict::Passed, excused, "{checks:#?}");
    }

    /// What goes wrong at the API server of a hub is no reason for the service to fail its hosts.
    #[rstest]
    #[case::of_the_hub(None, "GET /apis/hive.openshift.io/v1/clusterdeployments", true)]
    #[case::of_the_service(Some(HOST), "POST /api/assisted-install/v2/infra-envs/1/hosts", false)]
    fn a_fault_of_the_hub_excuses_its_own_answers(
        #[case] host: Option<Uuid>,
        #[case] request: &str,
        #[case] excused: bool,
    ) {
        let fault = |phase| What::Fault {
            name: "it".into(),
            phase,
            inject: "kube-error".into(),
            host: None,
            cluster: None,
            detail: String::new(),
        };
        let answer = What::BadAnswer { host, request: request.to_owned(), status: 503, took_ms: 5 };
        let text = format!("api: kube\nfaults: [{{name: it, at: 1s, target: kube, inject: kube-error}}]\n{ENDS}");
        let checks = checks(&text, vec![(11_000, fault(FaultPhase::Begin)), (12_000, answer)]);
        assert_eq!(of(&checks, SERVER_ERRORS).verdict == CheckVerdict::Passed, excused, "{checks:#?}");
    }

    #[rstest]
    #[case("", CheckVerdict::Failed)]
    #[case("tolerate: [kills]", CheckVerdict::Skipped { reason: "the scenario tolerates kills".into() })]
    fn a_program_that_must_be_killed_fails_a_run(#[case] more: &str, #[case] verdict: CheckVerdict) {
        let killed = What::Killed { program: "the service".into(), detail: "it did not end".into() };
        let checks = checks(&format!("{more}\n{ENDS}"), vec![(20_000, killed)]);
        assert_eq!(of(&checks, "the service ends when asked").verdict, verdict);
    }

    fn incomplete(part: HistoryPart) -> (i64, What) {
        (20_000, What::Incomplete { part, machine: None, why: "it was cut".into() })
    }

    const EVENTS: &str = "expect: [{event: {name: cluster_installation_completed}}]";

    #[rstest]
    #[case::the_database(HistoryPart::Database, ENDS, true)]
    #[case::events_that_nobody_needs(HistoryPart::Events, ENDS, false)]
    #[case::events_that_are_expected(HistoryPart::Events, EVENTS, true)]
    #[case::the_last_look_at_events(HistoryPart::LastLook, EVENTS, true)]
    #[case::operators(HistoryPart::LastLook, "expect: [{operator: {name: console, is: available}}]", true)]
    #[case::lines_that_nobody_looks_for(HistoryPart::ConsoleLines, ENDS, false)]
    fn what_was_not_read_to_its_end_proves_nothing(#[case] part: HistoryPart, #[case] expect: &str, #[case] lab: bool) {
        let checks = checks(expect, vec![incomplete(part.clone()), incomplete(part.clone())]);
        let found: Vec<_> = checks.iter().filter(|c| c.kind == CheckKind::Lab).collect();
        assert_eq!(found.len(), usize::from(lab), "{found:#?}");
        if let [check] = found[..] {
            assert_eq!(check.name, format!("the history is complete: {part}"));
            assert_eq!(decide(&checks).0, Verdict::Inconclusive);
        }
    }

    /// The service does not answer the last look: that is its own doing, and told as that.
    #[test]
    fn a_service_that_answers_with_errors_at_the_end_has_failed() {
        let checks = checks(EVENTS, vec![(19_000, bad(None, 500)), incomplete(HistoryPart::Events)]);
        assert_eq!(of(&checks, SERVER_ERRORS).verdict, CheckVerdict::Failed);
        assert_eq!(decide(&checks).0, Verdict::Failed);
    }

    /// Neither is in a log only.
    #[test]
    fn what_cannot_be_understood_breaks_the_first_invariant() {
        let unreadable = What::Unreadable { subject: Some(HOST), of: "the row of a host".into(), error: "odd".into() };
        let known = What::HostStatus {
            host: HOST,
            cluster: Some(CLUSTER),
            from: None,
            to: HostStatus::Discovering,
            info: String::new(),
        };
        let checks = checks(ENDS, vec![(20_000, known), (20_001, unreadable)]);
        let check = checks.iter().find(|c| c.message.contains("cannot be understood")).unwrap();
        assert_eq!((check.kind, &check.verdict), (CheckKind::Invariant, &CheckVerdict::Failed));
        assert!(check.message.contains("the row of a host (m-0) cannot be understood: odd"), "{}", check.message);
    }

    /// That something never came to its end is no matter of time.
    #[rstest]
    #[case::late(Some(60_000), CheckKind::Budget)]
    #[case::never(None, CheckKind::Expectation)]
    fn a_budget_is_missed_by_what_came_late(#[case] installed: Option<i64>, #[case] kind: CheckKind) {
        let text = "version: 1\nname: t\ncluster: {topology: sno}\nhosts: [{name: m}]\nbudgets: {install: 10s}\n\
                    expect: [{never: {hosts: all, status: error}}]\n";
        let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded()).unwrap();
        let mut recorder = Recorder::new(None);
        let mut see = |at: i64, what| {
            recorder.record(Source::Database, None, Timestamp::from_micros(at * 1000), what);
        };
        see(0, What::ClusterNamed { cluster: CLUSTER, name: "t".into(), vip_dhcp: false });
        let (action, subject, reason) = (UserVerb::Action(ActionKind::Install), Some(CLUSTER), String::new());
        see(1000, What::UserAction { action, subject, status: 200, reason, planned: None });
        if let Some(at) = installed {
            let to = ClusterStatus::Installed;
            see(at, What::ClusterStatus { cluster: CLUSTER, from: None, to, info: String::new() });
        }
        let checks = judge(&scenario, 1.0, recorder.observations()).checks;
        let check = of(&checks, "budget: install to installed (t)");
        assert_eq!((check.kind, &check.verdict), (kind, &CheckVerdict::Failed));
    }
}
