//! Tries alterations on the catalogue: which check notices each, in which scenario, after how many.

use std::collections::BTreeSet;

use vlab_agents::Alteration as Hosts;
use vlab_agents::steps::STEPS;
use vlab_api::types::HostStatus;
use vlab_history::rules::RuleId;
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict};
use vlab_model::history::{Observation, What};
use vlab_model::host::HostState;
use vlab_model::machine::Wrong;
use vlab_model::validation::ValidationStatus;
use vlab_scenario::{Catalogue, Criterion};
use vlab_service::alteration::Alteration as Service;

use super::Alteration;
use super::hits::Hits;
use crate::coverage::prepare_catalogue;
use crate::prepare::Prepared;
use crate::simulate::{Whole, run_unless, run_whole};

/// A run with an alteration may do so many times as much as the one without it, and so much more, before it is given up: some of
/// them would go on for ever.
const TIMES: u64 = 8;
const MORE: u64 = 20_000;

/// A scenario that passes when nothing is wrong, and what its run shows then.
#[derive(Debug)]
pub struct Rehearsed {
    prepared: Prepared,
    steps: u64,
    /// What was observed: a run in which the same is observed was not touched.
    history: Vec<Observation>,
    fired: BTreeSet<RuleId>,
    shows: BTreeSet<Shown>,
}

/// Something that a run shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Rule(RuleId),
    Event(String),
    Status(HostStatus),
    Step(String),
    Operation(&'static str),
    Validation(bool, String, Option<ValidationStatus>),
}

impl Rehearsed {
    /// What that run showed, in which nothing was wrong.
    pub(super) fn new(prepared: Prepared, whole: Whole) -> Self {
        let Whole { history, fired, steps, answers, .. } = whole;
        let mut shows = shown(&history);
        shows.extend(fired.iter().copied().map(Shown::Rule));
        shows.extend(answers.into_iter().map(|(operation, _)| Shown::Operation(operation)));
        Self { prepared, steps, history, fired, shows }
    }

    /// Its run with the alteration. `None`: the same was observed.
    pub(super) fn altered(&self, alteration: Alteration) -> Option<Whole> {
        altered(&self.prepared, self.steps, alteration, &self.history)
    }

    /// Name of the scenario.
    pub fn name(&self) -> &str {
        &self.prepared.scenario.name
    }

    /// Is the service asked over Kubernetes in it?
    pub(super) const fn is_over_kube(&self) -> bool {
        self.prepared.kube
    }

    /// Observations of its run: what it costs.
    fn cost(&self) -> usize {
        self.history.len()
    }

    /// Can the alteration change anything in its run? What never happens there cannot.
    pub(super) fn is_touched(&self, alteration: &Alteration) -> bool {
        let shows = |shown: Shown| self.shows.contains(&shown);
        // A validation that has that value anyway.
        let always = |is_cluster, id: &str, status: ValidationStatus| {
            let of_it = |s: &&Shown| matches!(s, Shown::Validation(c, i, _) if (*c, i.as_str()) == (is_cluster, id));
            let mut values = self.shows.iter().filter(of_it).peekable();
            // One that is not shown counts all the same.
            values.peek().is_some() && values.all(|s| *s == Shown::Validation(is_cluster, id.to_owned(), Some(status)))
        };
        match alteration {
            Alteration::Service(Service::Event(name, _)) => shows(Shown::Event((*name).to_owned())),
            Alteration::Service(Service::Plan(_, status, _)) => shows(Shown::Status(*status)),
            Alteration::Service(Service::Argument(step, ..)) => shows(Shown::Step(step.as_str().to_owned())),
            Alteration::Service(Service::Answer(operation, _)) => shows(Shown::Operation(operation)),
            Alteration::Service(Service::HostValidation(id, status)) => !always(false, id.as_str(), *status),
            Alteration::Service(Service::ClusterValidation(id, status)) => !always(true, id.as_str(), *status),
            Alteration::Hosts(Hosts::Step(kind, _)) => shows(Shown::Step(STEPS[*kind].step_type.to_owned())),
            _ if alteration.is_of_controllers() => self.prepared.kube,
            Alteration::Service(Service::Hosts(Wrong::NotFrom(_, HostState::At(status))))
                if !shows(Shown::Status(*status)) =>
            {
                false
            }
            _ => alteration.rule().is_none_or(|id| self.fired.contains(&id)),
        }
    }
}

/// The catalogue: first the scenarios that show most for what they cost.
#[derive(Debug)]
pub struct Bench {
    /// The scenarios.
    pub scenarios: Vec<Rehearsed>,
    /// What fails although nothing is wrong: scenario and check. Such scenarios prove nothing and are left out.
    pub wrong: Vec<(String, String)>,
    hits: Hits,
}

/// Who noticed an alteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// The check, by its kind and its name.
    pub check: String,
    /// All that failed in that run, so that it is known which checks notice anything.
    pub all: Vec<String>,
    /// The scenario.
    pub scenario: String,
}

/// What came of an alteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Who noticed it first; nobody did.
    pub noticed: Option<Noticed>,
    /// In how many scenarios it was tried.
    pub scenarios: usize,
}

impl Bench {
    /// Runs the catalogue, with nothing wrong, as far as it can be run in virtual time.
    ///
    /// # Errors
    /// A scenario that cannot be read or prepared, with its name.
    pub fn new(catalogue: &Catalogue) -> Result<Self, String> {
        let mut bench = Self { scenarios: Vec::new(), wrong: Vec::new(), hits: Hits::default() };
        for prepared in prepare_catalogue(catalogue)? {
            let whole = run_whole(&prepared, u64::MAX);
            let failed: Vec<String> =
                whole.result.checks.iter().filter(|c| failed(c)).map(|c| c.name.clone()).collect();
            if !failed.is_empty() {
                let name = &prepared.scenario.name;
                bench.wrong.extend(failed.into_iter().map(|check| (name.clone(), check)));
                continue;
            }
            bench.scenarios.push(Rehearsed::new(prepared, whole));
        }
        bench.scenarios.sort_by(|a, b| (a.cost(), a.name()).cmp(&(b.cost(), b.name())));
        bench.scenarios = most_telling_first(bench.scenarios, |s| s);
        Ok(bench)
    }

    /// Tries an alteration in one scenario after the other, at most in so many, until a check notices it: first in those that noticed
    /// what is most like it, and before them in the one that noticed it before.
    pub fn attempt(&self, alteration: Alteration, most: usize, before: Option<&str>) -> Tried {
        let name = alteration.name();
        let mut order: Vec<(usize, &Rehearsed)> = self.scenarios.iter().enumerate().collect();
        order.retain(|(_, s)| s.is_touched(&alteration));
        let hits = self.hits.of(&name);
        order.sort_by_key(|(place, s)| std::cmp::Reverse((before == Some(s.name()), hits(*place))));
        let mut scenarios = 0;
        for (place, scenario) in order.into_iter().take(most) {
            scenarios += 1;
            if let Some(noticed) = attempt(&scenario.prepared, scenario.steps, alteration, &scenario.history) {
                self.hits.add(&name, place);
                return Tried { noticed: Some(noticed), scenarios };
            }
        }
        Tried { noticed: None, scenarios }
    }
}

/// Puts those first that show most that is new for what they cost.
pub(super) fn most_telling_first<T>(mut left: Vec<T>, of: impl Fn(&T) -> &Rehearsed) -> Vec<T> {
    let (mut ordered, mut seen) = (Vec::new(), BTreeSet::new());
    while !left.is_empty() {
        let worth = |one: &T| {
            let rehearsed = of(one);
            rehearsed.shows.difference(&seen).count() as f64 / (rehearsed.cost() as f64 + 100.0)
        };
        let best = (0..left.len()).rev().max_by(|a, b| worth(&left[*a]).total_cmp(&worth(&left[*b]))).unwrap_or(0);
        let next = left.remove(best);
        seen.extend(of(&next).shows.iter().cloned());
        ordered.push(next);
    }
    ordered
}

/// Tries an alteration in one scenario.
pub fn try_in(prepared: &Prepared, alteration: Alteration) -> Option<Noticed> {
    let Whole { steps, history, .. } = run_whole(prepared, u64::MAX);
    attempt(prepared, steps, alteration, &history)
}

fn shown(history: &[Observation]) -> BTreeSet<Shown> {
    let mut shows = BTreeSet::new();
    for observation in history {
        shows.extend(match &observation.what {
            What::Event { name, .. } => Some(Shown::Event(name.clone())),
            What::HostStatus { to, .. } => Some(Shown::Status(*to)),
            What::Step { step_type, .. } => Some(Shown::Step(step_type.clone())),
            What::Validation { is_cluster, id, to, .. } => Some(Shown::Validation(*is_cluster, id.clone(), *to)),
            _ => None,
        });
    }
    shows
}

fn failed(check: &CheckResult) -> bool {
    check.verdict == CheckVerdict::Failed && check.kind != CheckKind::Lab
}

/// Tries an alteration in a scenario that needs so many steps without it, and shows that.
fn attempt(prepared: &Prepared, steps: u64, alteration: Alteration, untouched: &[Observation]) -> Option<Noticed> {
    let scenario = prepared.scenario.name.clone();
    let Whole { result, .. } = altered(prepared, steps, alteration, untouched)?;
    let mut all: Vec<String> = result.checks.iter().filter(|c| failed(c)).map(|c| kind_of(prepared, c)).collect();
    let check = all.first()?.clone();
    all.sort();
    all.dedup();
    Some(Noticed { check, all, scenario })
}

fn altered(prepared: &Prepared, steps: u64, alteration: Alteration, untouched: &[Observation]) -> Option<Whole> {
    let prepared = Prepared { alteration: Some(alteration), ..prepared.clone() };
    let limit = steps.saturating_mul(TIMES).saturating_add(MORE);
    run_unless(&prepared, limit, |history| history == untouched)
}

/// A check by its kind: an invariant by its id, an expectation by its key in the language.
fn kind_of(prepared: &Prepared, check: &CheckResult) -> String {
    match check.kind {
        CheckKind::Invariant => {
            let id = check.name.split(':').next().unwrap_or_default();
            format!("invariant {id}")
        }
        CheckKind::Expectation => {
            match prepared.scenario.expect.iter().find(|expectation| expectation.name == check.name) {
                Some(expectation) => format!("expectation `{}`: {}", key_of(&expectation.check), check.name),
                None => format!("expectation: {}", check.name),
            }
        }
        other => format!("{}: {}", other.as_str(), check.name),
    }
}

fn key_of(check: &Criterion) -> &'static str {
    match check {
        Criterion::Eventually { .. } => "eventually",
        Criterion::Never { .. } => "never",
        Criterion::Order { .. } => "see",
        Criterion::Sequence { .. } => "sequence",
        Criterion::Validation { .. } => "validation",
        Criterion::Event { .. } => "event",
        _ => "other",
    }
}
