//! What went wrong first in a run that failed, in its own words, and which of the failed checks follow from it: a function of the
//! history, the scenario and the checks.
//!
//! Candidates come from two sides: what the history shows ([`facts`]: a host that went to error, an installer that gave up, a step
//! that was answered with an error, ...), and the failed checks themselves, each at the moment at which it failed. What the scenario
//! brings about or asks for ([`declared`]) is no candidate, unless a check failed at that very observation. The earliest that explains
//! a failed check is the cause; where something never came, and nothing that went wrong says why, it is what a host or a cluster
//! waits for ([`waiting`]).

mod around;
mod declared;
mod facts;
mod failed;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::ClusterStatus;
use vlab_history::Timeline;
use vlab_scenario::Scenario;

use crate::result::{CheckResult, Verdict, decide};
use declared::Hit;
use failed::Failed;

/// Characters of the program's own words that the first line shows.
const WORDS_IN_LINE: usize = 300;

/// What sort of thing went wrong. Of two at one observation the one that stands first here is the cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// The service ended by itself.
    ServiceEnded,
    /// Something that must hold in every run did not.
    RuleBroken,
    /// The service answered with 5xx, or there was nobody to connect to.
    ServiceError,
    /// What the service said cannot be understood.
    Unreadable,
    /// A machine crashed, or its disk gave an error.
    MachineFailed,
    /// A console told of something that no installation should have.
    ConsoleFinding,
    /// A host answered a step with an exit code that is not 0.
    StepFailed,
    /// The installer on a host gave up.
    InstallerFailed,
    /// Something on a host did not work that is no installer.
    HostTrouble,
    /// Something inside the cluster did not work.
    ControlPlane,
    /// A host went to `error`.
    HostError,
    /// The service has not heard from a host for too long.
    HostSilent,
    /// A host waits for the user, who did not expect that.
    HostNeedsUser,
    /// A cluster went to `error`, or could not be prepared.
    ClusterError,
    /// The service refused what the user did.
    Refused,
    /// A program had to be killed.
    Killed,
    /// A validation fails and nothing goes on because of it.
    ValidationFails,
    /// A host never answered what it was asked for.
    NeverAnswered,
    /// A host or a cluster stayed where it was.
    Stuck,
    /// A fault of the scenario did nothing.
    FaultWithoutEffect,
    /// Something took too long.
    TooLong,
    /// Something was left behind.
    LeftBehind,
    /// A check failed, and nothing in the history says more.
    #[default]
    Check,
    /// A word of another version.
    #[serde(other)]
    Other,
}

/// What went wrong first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// What sort of thing it is.
    pub kind: CauseKind,
    /// Host or cluster, by its name in the scenario; `None`: the service, or the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Hosts to which the same happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The observation that shows it (`seq` in `history.jsonl`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// What went wrong, in one line that names whom it is about.
    pub title: String,
    /// The words of the program that told it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
    /// Name of the check that shows it, where a check does and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// What that check expected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// What happened just before and after, oldest first; what went wrong is one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub around: Vec<String>,
    /// The lines of the host's console before that moment, and the next ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub console: Vec<String>,
}

impl Cause {
    /// Title and words in one line.
    pub fn line(&self) -> String {
        let words = self.words.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.is_empty() || self.title.contains(&words) {
            return self.title.clone();
        }
        match words.char_indices().nth(WORDS_IN_LINE) {
            Some((end, _)) => format!("{}: {}…", self.title, &words[..end]),
            None => format!("{}: {words}", self.title),
        }
    }
}

/// The cause, and the failed checks that follow from it, by their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What went wrong first.
    pub cause: Cause,
    /// Places of the failed checks that follow from it; the one that shows it is one of them.
    pub follows: BTreeSet<usize>,
}

/// Whom something is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whom {
    /// A host.
    Host(Uuid),
    /// A cluster.
    Cluster(Uuid),
    /// The service, on which everything depends.
    Service,
    /// The run; nobody in particular.
    Run,
}

/// How surely a candidate is a cause: of two the surer one is, and only among equals the earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It went wrong, at that moment.
    Event,
    /// A validation that keeps everything waiting at the end.
    Validation,
    /// A step that nobody ever answered.
    Step,
    /// Somebody who stays where he is.
    Stuck,
    /// A check of something that never came.
    Missing,
    /// A fault that did nothing.
    Fault,
    /// Time.
    Budget,
    /// What was left behind.
    Leak,
}

/// Something that may be the cause.
#[derive(Clone, Debug)]
struct Candidate {
    rank: Rank,
    kind: CauseKind,
    whom: Whom,
    /// Place in the history; [`END`] where it has none.
    seq: u64,
    at: Option<Timestamp>,
    title: String,
    words: String,
    /// The failed check that it is, by its place.
    check: Option<usize>,
}

/// The moment of what never came: after everything else.
const END: u64 = u64::MAX;

/// What a candidate is judged with.
struct Case<'a> {
    timeline: &'a Timeline<'a>,
    scenario: &'a Scenario,
    checks: &'a [CheckResult],
    failed: Vec<Failed>,
    hit: Hit,
}

/// What went wrong first. `None`: the run has not failed, or nothing was seen.
pub fn find(timeline: &Timeline<'_>, scenario: &Scenario, checks: &[CheckResult]) -> Option<Found> {
    if decide(checks).0 != Verdict::Failed {
        return None;
    }
    let failed = failed::failed(timeline, scenario, checks);
    let case = Case { timeline, scenario, checks, failed, hit: declared::hit(timeline) };
    let all = facts::facts(timeline);
    let mut facts = case.undeclared(all.clone());
    let explains = |candidate: &Candidate| case.failed.iter().any(|failed| case.follows(failed, candidate));
    let mut candidates: Vec<Candidate> = facts.iter().cloned().chain(case.waiting()).filter(explains).collect();
    // What was expected did not come, and nothing but the scenario's own faults is in the way: then it is one of these.
    if candidates.is_empty() && case.failed.iter().all(|failed| failed.candidate.rank > Rank::Event) {
        candidates.extend(all.iter().filter(|candidate| explains(candidate)).cloned());
        facts = all;
    }
    candidates.extend(case.failed.iter().map(|failed| failed.candidate.clone()));
    let first = candidates.iter().min_by_key(|c| (c.rank, c.seq, c.kind, c.check))?;
    let follows = case.failed.iter().filter(|failed| case.follows(failed, first)).map(|failed| failed.place).collect();
    Some(Found { cause: case.told(first, &facts), follows })
}

impl Case<'_> {
    /// Does the failed check follow from that?
    fn follows(&self, failed: &Failed, cause: &Candidate) -> bool {
        if cause.check == Some(failed.place) {
            return true;
        }
        let own = failed.candidate.rank;
        // What was left behind, and what took too long where something else went wrong, are matters of their own.
        if own == Rank::Leak || cause.rank == Rank::Leak || cause.rank > own {
            return false;
        }
        (failed.candidate.seq >= cause.seq || own > Rank::Event) && self.is_related(failed, cause)
    }

    /// Is the check about what went wrong, or about what depends on it?
    fn is_related(&self, failed: &Failed, cause: &Candidate) -> bool {
        let cluster_of = |host: &Uuid| self.cluster_of(*host);
        let (host, cluster) = match cause.whom {
            Whom::Host(host) => (Some(host), cluster_of(&host)),
            Whom::Cluster(cluster) => (None, Some(cluster)),
            Whom::Service => return true,
            Whom::Run => return failed.about.is_empty(),
        };
        let is_late = failed.candidate.rank > Rank::Event;
        let related = |whom: &Whom| match whom {
            Whom::Host(other) if host == Some(*other) => true,
            // Another host of its cluster: it waits for this one, or is taken along.
            Whom::Host(other) => {
                cluster.is_some()
                    && cluster_of(other) == cluster
                    && (host.is_none() || is_late || self.went_down(cluster, cause.seq, failed.candidate.seq))
            }
            Whom::Cluster(other) => cluster == Some(*other),
            Whom::Service | Whom::Run => false,
        };
        failed.about.is_empty() || failed.about.iter().any(related)
    }

    /// Did the cluster end its installation with an error between these?
    fn went_down(&self, cluster: Option<Uuid>, from: u64, to: u64) -> bool {
        let line = cluster.and_then(|cluster| self.timeline.clusters.get(&cluster));
        let down = |status: ClusterStatus| matches!(status, ClusterStatus::Error | ClusterStatus::Cancelled);
        line.is_some_and(|line| line.statuses.iter().any(|s| down(s.to) && (from..=to).contains(&s.seq)))
    }

    /// The cluster of a host; of one that was never there, the scenario says it.
    fn cluster_of(&self, host: Uuid) -> Option<Uuid> {
        let directory = &self.timeline.directory;
        let declared = || {
            let name = directory.host_names.get(&host)?;
            let of = self.scenario.hosts.iter().find(|h| h.name == *name)?.cluster.as_ref()?;
            directory.clusters.get(of).copied()
        };
        directory.cluster_of.get(&host).copied().or_else(declared)
    }

    fn name(&self, whom: Whom) -> Option<String> {
        match whom {
            Whom::Host(id) | Whom::Cluster(id) => Some(self.timeline.directory.name(id)),
            Whom::Service | Whom::Run => None,
        }
    }

    /// A candidate as it is told.
    fn told(&self, candidate: &Candidate, facts: &[Candidate]) -> Cause {
        // Who tells it first may have no words for it: another one has them a moment later.
        let later = || {
            let mut of_it = facts.iter().filter(|f| f.whom == candidate.whom && f.seq >= candidate.seq);
            of_it.find(|f| !f.words.is_empty()).map(|f| f.words.clone())
        };
        let words = match (candidate.words.as_str(), candidate.check) {
            ("", None) => later().unwrap_or_default(),
            (words, _) => words.to_owned(),
        };
        let same =
            |f: &&Candidate| f.kind == candidate.kind && f.whom != candidate.whom && matches!(f.whom, Whom::Host(_));
        let mut also: Vec<String> = Vec::new();
        if candidate.check.is_none() && matches!(candidate.whom, Whom::Host(_)) {
            for name in facts.iter().filter(same).filter_map(|f| self.name(f.whom)) {
                if !also.contains(&name) {
                    also.push(name);
                }
            }
        }
        let so_did = match also.as_slice() {
            [] => String::new(),
            [one] => format!(" (and so did {one})"),
            [one, two] => format!(" (and so did {one} and {two})"),
            [one, more @ ..] => format!(" (and so did {one} and {} more)", more.len()),
        };
        let check = candidate.check.map(|place| &self.checks[place]);
        Cause {
            kind: candidate.kind,
            subject: self.name(candidate.whom).or_else(|| check.and_then(|check| check.subject.clone())),
            title: format!("{}{so_did}", candidate.title),
            also,
            at: candidate.at,
            seq: Some(candidate.seq).filter(|seq| *seq != END),
            words,
            check: check.map(|check| check.name.clone()),
            expected: check.map(|check| check.expected.clone()).unwrap_or_default(),
            around: around::around(self.timeline, candidate),
            console: around::console(self.timeline, candidate),
        }
    }
}
