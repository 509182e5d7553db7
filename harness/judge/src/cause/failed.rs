//! The failed checks: each is a candidate, at the moment at which it failed.

use std::collections::BTreeSet;

use vlab_api::types::{ClusterStatus, HostStatus};
use vlab_history::Timeline;
use vlab_model::history::{Observation, What};
use vlab_scenario::{Criterion, Scenario, When};

use super::{Candidate, CauseKind, END, Rank, Whom};
use crate::result::{CheckKind, CheckResult, CheckVerdict};
use crate::verdict::{CAN_GO_ON, COMES_TO_ITS_END, REFUSED, SERVER_ERRORS, STAYS_UP};

/// A failed check.
pub(super) struct Failed {
    /// Its place among the checks.
    pub(super) place: usize,
    /// Whom it is about; empty: the run.
    pub(super) about: BTreeSet<Whom>,
    /// It as a cause.
    pub(super) candidate: Candidate,
}

/// The checks that failed, but for those of the lab.
pub(super) fn failed(timeline: &Timeline<'_>, scenario: &Scenario, checks: &[CheckResult]) -> Vec<Failed> {
    let bad =
        |(_, check): &(usize, &CheckResult)| check.verdict == CheckVerdict::Failed && check.kind != CheckKind::Lab;
    checks.iter().enumerate().filter(bad).map(|(place, check)| one(timeline, scenario, place, check)).collect()
}

fn one(timeline: &Timeline<'_>, scenario: &Scenario, place: usize, check: &CheckResult) -> Failed {
    let at_seq = check.seq.and_then(|seq| observation(timeline, seq));
    let about = about(timeline, check, at_seq);
    let kind = kind(check);
    let rank = rank(scenario, check, at_seq);
    let whom = match kind {
        CauseKind::ServiceEnded | CauseKind::ServiceError | CauseKind::Killed => Whom::Service,
        _ => about.first().copied().unwrap_or(Whom::Run),
    };
    let (seq, at) = match (kind, rank) {
        // From when on nobody is there any more.
        (CauseKind::ServiceEnded, _) => {
            let refused = |o: &&Observation| matches!(o.what, What::BadAnswer { status: 0, .. });
            let first = timeline.observations.iter().find(refused);
            (first.map_or(END, |o| o.seq), check.at.or(first.map(Observation::at)))
        }
        (_, Rank::Event) => (check.seq.unwrap_or(END), check.at.or(at_seq.map(Observation::at))),
        _ => (END, None),
    };
    let (title, words) = told(kind, check);
    Failed { place, about, candidate: Candidate { rank, kind, whom, seq, at, title, words, check: Some(place) } }
}

/// The observation in that place.
pub(super) fn observation<'h>(timeline: &Timeline<'h>, seq: u64) -> Option<&'h Observation> {
    let place = timeline.observations.partition_point(|o| o.seq < seq);
    timeline.observations.get(place).filter(|o| o.seq == seq)
}

fn kind(check: &CheckResult) -> CauseKind {
    match (check.kind, check.name.as_str()) {
        (_, STAYS_UP) => CauseKind::ServiceEnded,
        (_, SERVER_ERRORS | REFUSED) => CauseKind::ServiceError,
        (_, CAN_GO_ON | COMES_TO_ITS_END) => CauseKind::Check,
        (CheckKind::Invariant, name) if name.ends_with(" ends when asked") => CauseKind::Killed,
        (CheckKind::Invariant, name) if name.starts_with("the console of ") => CauseKind::ConsoleFinding,
        (CheckKind::Invariant, _) => CauseKind::RuleBroken,
        (CheckKind::Fault, _) => CauseKind::FaultWithoutEffect,
        (CheckKind::Budget, _) => CauseKind::TooLong,
        (CheckKind::Leak, _) => CauseKind::LeftBehind,
        (_, name) if name.starts_with("user: ") && check.message.starts_with("refused with") => CauseKind::Refused,
        _ => CauseKind::Check,
    }
}

/// Does it tell of something that happened, or of something that did not come?
fn rank(scenario: &Scenario, check: &CheckResult, at_seq: Option<&Observation>) -> Rank {
    match check.kind {
        CheckKind::Fault => return Rank::Fault,
        CheckKind::Budget => return Rank::Budget,
        CheckKind::Leak => return Rank::Leak,
        _ => {}
    }
    if check.name == STAYS_UP {
        return Rank::Event;
    }
    // What a step could not do has words of its own, and they come a moment later.
    if check.kind == CheckKind::Invariant && check.name.starts_with("steps-answered:") {
        return Rank::Step;
    }
    if at_seq.is_none() {
        return Rank::Missing;
    }
    let expectation = scenario.expect.iter().find(|e| e.name == check.name && check.kind == CheckKind::Expectation);
    let waits = match expectation.map(|e| &e.check) {
        Some(Criterion::Sequence { .. }) => check.message.contains(" was never reached"),
        Some(Criterion::StageDuration { .. }) => check.message.contains("never"),
        Some(Criterion::Event { min, .. }) => {
            check.message.split(' ').next().and_then(|n| n.parse::<u64>().ok()).is_some_and(|seen| seen < *min)
        }
        Some(Criterion::Validation { when, .. }) => *when != When::Always,
        Some(Criterion::Operator { .. }) => true,
        Some(_) => false,
        // A cluster that is to end installed: what it ended in says whether something happened.
        None if check.name.ends_with(" ends installed") => !ended(at_seq),
        // A moment of the pivot.
        None => check.message.contains(" was never seen"),
    };
    if waits { Rank::Missing } else { Rank::Event }
}

/// Is that a status in which nothing goes on?
fn ended(o: Option<&Observation>) -> bool {
    match o.map(|o| &o.what) {
        Some(What::ClusterStatus { to, .. }) => matches!(to, ClusterStatus::Error | ClusterStatus::Cancelled),
        Some(What::HostStatus { to, .. }) => matches!(to, HostStatus::Error | HostStatus::Cancelled),
        _ => false,
    }
}

/// Whom a check is about: its subject, else whoever the observation or the message names.
fn about(timeline: &Timeline<'_>, check: &CheckResult, at_seq: Option<&Observation>) -> BTreeSet<Whom> {
    let directory = &timeline.directory;
    if let Some(subject) = &check.subject {
        let host = directory.hosts.get(subject).map(|id| Whom::Host(*id));
        return host.or_else(|| directory.clusters.get(subject).map(|id| Whom::Cluster(*id))).into_iter().collect();
    }
    if check.kind == CheckKind::Invariant {
        // The first violation is what counts; names that are parts of others are told apart by the words around.
        let first = check.message.split("; ").next().unwrap_or_default();
        let words: BTreeSet<&str> =
            first.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_' || c == '.')).collect();
        let named = |name: &String| words.contains(name.as_str());
        let hosts = directory.hosts.iter().filter(|(name, _)| named(name)).map(|(_, id)| Whom::Host(*id));
        let clusters = directory.clusters.iter().filter(|(name, _)| named(name)).map(|(_, id)| Whom::Cluster(*id));
        let found: BTreeSet<Whom> = hosts.chain(clusters).collect();
        if !found.is_empty() {
            return found;
        }
    }
    at_seq.and_then(|o| of_observation(&o.what)).into_iter().collect()
}

fn of_observation(what: &What) -> Option<Whom> {
    match what {
        What::Event { host: Some(host), .. } | What::Step { host, .. } | What::HostDid { host, .. } => {
            Some(Whom::Host(*host))
        }
        What::Event { cluster: Some(cluster), .. } | What::InCluster { cluster, .. } => Some(Whom::Cluster(*cluster)),
        other => vlab_history::timeline::HostOrCluster::of(other).map(|subject| match subject {
            vlab_history::timeline::HostOrCluster::Host(id) => Whom::Host(id),
            vlab_history::timeline::HostOrCluster::Cluster(id) => Whom::Cluster(id),
        }),
    }
}

/// A failed check as a title and words.
fn told(kind: CauseKind, check: &CheckResult) -> (String, String) {
    let first = check.message.split("; ").next().unwrap_or_default().to_owned();
    let on = check.subject.as_ref().map(|subject| format!(" ({subject})")).unwrap_or_default();
    match kind {
        // What it says names whom it is about; the name of the rule stands behind.
        CauseKind::RuleBroken if !first.is_empty() && check.name != COMES_TO_ITS_END => {
            let id = check.name.split(':').next().unwrap_or_default();
            (format!("{first} [{id}]"), String::new())
        }
        CauseKind::ServiceError => (format!("the service failed to answer: {}", check.message), String::new()),
        CauseKind::ServiceEnded => ("the service ended by itself".to_owned(), check.message.clone()),
        CauseKind::Killed => {
            let program = check.name.trim_end_matches(" ends when asked");
            (format!("{program} had to be killed"), check.message.clone())
        }
        CauseKind::FaultWithoutEffect => (format!("the fault {} did nothing", check.name), check.message.clone()),
        CauseKind::ConsoleFinding => (format!("the console{on}"), check.message.clone()),
        CauseKind::Refused => (check.name.clone(), check.message.clone()),
        _ => (format!("the check “{}” failed{on}", check.name), check.message.clone()),
    }
}
