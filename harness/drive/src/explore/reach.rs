//! What a run has reached, as far as it guides a search: rules, pairs of rules, stages, validations, events, answers, instructions,
//! members, conditions, what was said, and what was going on when something went wrong on purpose.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_history::rules::{Machine, RuleId};
use vlab_model::history::{FaultPhase, Observation, What};
use vlab_model::host;
use vlab_scenario::Scenario;

use super::oracle::PlainWords;
use crate::simulate::Whole;

/// Kinds of things that are reached, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A rule of one of the machines.
    Rule,
    /// A rule of a host's machine right after another one.
    Pair,
    /// A stage of an installation, in a status.
    Stage,
    /// A value of a validation.
    Validation,
    /// An event.
    Event,
    /// An operation that answered with a status.
    Answer,
    /// What a host is asked for in a status.
    Instruction,
    /// A member of a host or a cluster that has a value.
    Member,
    /// A condition of a resource, with its reason.
    Condition,
    /// Why a host or a cluster is what it is, or a validation what it is, without names and numbers: a reason has words of its own.
    Words,
    /// A kind of fault that began while a cluster was in a status.
    Fault,
    /// Something that the user did while a cluster was in a status, and how it was answered.
    Action,
}

impl Kind {
    /// All, in order.
    pub const ALL: [Kind; 12] = [
        Kind::Rule,
        Kind::Pair,
        Kind::Stage,
        Kind::Validation,
        Kind::Event,
        Kind::Answer,
        Kind::Instruction,
        Kind::Member,
        Kind::Condition,
        Kind::Words,
        Kind::Fault,
        Kind::Action,
    ];

    /// For people, of several.
    pub const fn words(self) -> &'static str {
        match self {
            Kind::Rule => "rules",
            Kind::Pair => "pairs of rules",
            Kind::Stage => "stages",
            Kind::Validation => "validations",
            Kind::Event => "events",
            Kind::Answer => "answers",
            Kind::Instruction => "instructions by status",
            Kind::Member => "members",
            Kind::Condition => "conditions",
            Kind::Words => "reasons in words",
            Kind::Fault => "faults by status",
            Kind::Action => "actions by status",
        }
    }
}

/// Something that was reached.
pub type Reached = BTreeSet<(Kind, String)>;

/// What a run has reached.
pub fn reached(scenario: &Scenario, whole: &Whole) -> Reached {
    let mut all = Reached::new();
    let rule = |id: &RuleId| format!("{}/{}", id.machine.as_str(), id.index);
    all.extend(whole.fired.iter().map(|id| (Kind::Rule, rule(id))));
    all.extend(whole.pairs.iter().map(|(a, b)| (Kind::Pair, format!("{} {}", rule(a), rule(b)))));
    all.extend(whole.answers.iter().map(|(operation, status)| (Kind::Answer, format!("{operation} {status}"))));
    of_history(&whole.history, &mut all);
    said(scenario, &whole.history, &mut all);
    all
}

/// What was said, without names and numbers.
fn said(scenario: &Scenario, history: &[Observation], all: &mut Reached) {
    let mut texts = BTreeSet::new();
    for observation in history {
        texts.extend(match &observation.what {
            What::HostStatus { info, .. } | What::ClusterStatus { info, .. } | What::StatusInfo { info, .. } => {
                Some(info.as_str())
            }
            What::Validation { message, .. } => Some(message.as_str()),
            _ => None,
        });
    }
    let plain = PlainWords::new(scenario);
    all.extend(texts.into_iter().map(|text| (Kind::Words, plain.of(text))));
}

fn of_history(history: &[Observation], all: &mut Reached) {
    // Of the cluster that changed last: with one cluster it is that one.
    let mut cluster = "no cluster";
    let mut statuses = Statuses::default();
    for observation in history {
        match &observation.what {
            What::ClusterStatus { to, .. } => cluster = to.as_str(),
            What::HostStatus { host, to, .. } => {
                statuses.note(*host, observation.at(), to.as_str());
            }
            What::Instructed { host, from, steps, .. } => {
                let status = statuses.at(*host, *from);
                all.insert((Kind::Instruction, format!("{status}: {}", steps.join(" "))));
            }
            What::Member { is_cluster, name, value, .. } if !value.is_empty() => {
                let whose = if *is_cluster { "cluster" } else { "host" };
                all.insert((Kind::Member, format!("{whose} {name}")));
            }
            What::Resource { kind, conditions, .. } => {
                all.extend(conditions.iter().filter_map(|(of, is)| {
                    let is = is.as_ref()?;
                    Some((Kind::Condition, format!("{kind} {of} {:?} {}", is.status, is.reason)))
                }));
            }
            What::HostStage { to: Some(stage), .. } => _ = all.insert((Kind::Stage, stage.as_str().to_owned())),
            What::ClusterFinalizingStage { stage, .. } => _ = all.insert((Kind::Stage, stage.as_str().to_owned())),
            What::Validation { is_cluster, id, to: Some(to), .. } => {
                let whose = if *is_cluster { "cluster" } else { "host" };
                all.insert((Kind::Validation, format!("{whose} {id} {}", to.as_str())));
            }
            What::Event { name, .. } => _ = all.insert((Kind::Event, name.clone())),
            What::Fault { phase: FaultPhase::Begin, inject, .. } => {
                all.insert((Kind::Fault, format!("{inject} {cluster}")));
            }
            What::UserAction { action, status, planned: Some(_), .. } => {
                all.insert((Kind::Action, format!("{action} {status} {cluster}")));
            }
            _ => {}
        }
    }
}

/// Statuses of hosts, for what is told later than it was: an instruction is told when the next one comes.
#[derive(Debug, Default)]
pub(super) struct Statuses(BTreeMap<Uuid, Vec<(Timestamp, &'static str)>>);

impl Statuses {
    /// A host has that status from now on.
    pub(super) fn note(&mut self, host: Uuid, at: Timestamp, status: &'static str) {
        self.0.entry(host).or_default().push((at, status));
    }

    /// The status that a host had then.
    pub(super) fn at(&self, host: Uuid, then: Timestamp) -> &'static str {
        let of = self.0.get(&host).and_then(|all| all.iter().rev().find(|(since, _)| *since <= then));
        of.map_or("no status", |(_, status)| *status)
    }
}

/// How many pairs of rules there can be at most: those of which one leads to where the other one begins.
pub fn possible_pairs() -> usize {
    let of = |table: &'static [host::HostRule]| -> usize {
        let after = |a: &host::HostRule| table.iter().filter(|b| *b != a && b.from.contains(&a.to)).count();
        table.iter().map(after).sum()
    };
    of(host::RULES) + of(host::POOL_RULES)
}

/// How many rules there are.
pub fn possible_rules() -> usize {
    RuleId::all().filter(|id| matches!(id.machine, Machine::Host | Machine::Pool | Machine::Cluster)).count()
}
