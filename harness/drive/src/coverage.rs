//! What of the service's machines, stages, steps, validations and events, and of the faults, runs have exercised.
//!
//! The lists are the tables of the model and of the language. What a run has exercised is read out of its history; a rule counts
//! only when the history leaves no other one ([`vlab_history::rules`]). What cannot be reached over the REST API, or is not
//! built, is in [`UNREACHABLE`] with its reason, and a test fails when it is reached after all. What the catalogue reaches is in
//! `docs/coverage.md`, which the same test checks.

use std::collections::{BTreeMap, BTreeSet};

use vlab_api::types::{ClusterValidationId, FinalizingStage, HostStage, HostValidationId, StepType};
use vlab_history::rules::{Machine, RuleId, shown};
use vlab_judge::coverage::{COVERAGE_VERSION, Coverage, Item, Reached, Section};
use vlab_model::history::{FaultPhase, Observation, What};
use vlab_model::settings::Settings;
use vlab_model::validation::ValidationStatus;
use vlab_scenario::{Catalogue, EVENT_NAMES, HostKind, Need};

use crate::prepare::{Choices, Nowhere, Prepared, prepare};
use crate::simulate;
use crate::target::Target;

/// The sections of the rules of the three machines.
pub const RULES: [&str; 3] = ["host-rules", "unbound-host-rules", "cluster-rules"];

/// The values of a validation that are counted. `error` and `disabled` are for broken input and for what is switched off.
const VALUES: [ValidationStatus; 3] = [ValidationStatus::Success, ValidationStatus::Failure, ValidationStatus::Pending];

/// With more hosts a scenario says nothing new about rules, and its history takes long to read.
const UP_TO_HOSTS: usize = 100;

mod unreachable;

pub use unreachable::{UNREACHABLE, Unreachable};

/// A run whose history is to be read.
pub struct Run<'a> {
    /// Name of its scenario.
    pub scenario: &'a str,
    /// Its history.
    pub history: &'a [Observation],
    /// The settings of its service.
    pub settings: &'a Settings,
    /// Its service was not the built-in one.
    pub real: bool,
}

/// Simulates the catalogue in virtual time, each scenario once, and shows each run with the rules that fired in it. Left out are
/// fleets, and what only virtual machines can do. How many there were.
///
/// # Errors
/// A scenario that cannot be read or prepared, with its name.
pub fn rehearse_catalogue(
    catalogue: &Catalogue,
    mut see: impl FnMut(&Prepared, &[Observation], &BTreeSet<RuleId>),
) -> Result<usize, String> {
    let all = prepare_catalogue(catalogue)?;
    for prepared in &all {
        let (_, history, fired) = simulate::rehearse(prepared);
        see(prepared, &history, &fired);
    }
    Ok(all.len())
}

/// The scenarios of the catalogue that can be run in virtual time, but for fleets, each with the seed 1.
///
/// # Errors
/// A scenario that cannot be read or prepared, with its name.
pub fn prepare_catalogue(catalogue: &Catalogue) -> Result<Vec<Prepared>, String> {
    let mut all = Vec::new();
    for name in catalogue.scenario_names() {
        let wrong = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let source = catalogue.find(&name).map_err(|e| wrong(&e))?;
        let scenario = vlab_scenario::load(&source, catalogue).map_err(|e| wrong(&e))?;
        if scenario.hosts.len() > UP_TO_HOSTS {
            continue;
        }
        // What has no form in virtual time says nothing here.
        if scenario.hosts.iter().any(|host| host.is_machine()) || scenario.needs.contains(&Need::RealTime) {
            continue;
        }
        let choices = Choices {
            seed: Some(1),
            service: Some(Target::Simulated),
            hosts: Some(HostKind::Simulated),
            ..Choices::default()
        };
        all.push(prepare(scenario, catalogue, &choices, &Nowhere).map_err(|e| wrong(&e))?);
    }
    Ok(all)
}

/// What was reached, by section and item; `false`: only possibly.
type Found = BTreeMap<(&'static str, String), bool>;

/// Gathers what runs have exercised.
#[derive(Debug)]
pub struct Gatherer {
    coverage: Coverage,
    /// Where an item is.
    places: BTreeMap<(&'static str, String), (usize, usize)>,
}

impl Default for Gatherer {
    fn default() -> Self {
        Self::new()
    }
}

impl Gatherer {
    /// Nothing is exercised yet.
    pub fn new() -> Self {
        let mut gatherer =
            Self { coverage: Coverage { version: COVERAGE_VERSION, ..Coverage::default() }, places: BTreeMap::new() };
        let rules = |machine| {
            RuleId::all().filter(move |id| id.machine == machine).map(|id| {
                let (event, from, to, name) = id.describe();
                (format!("{}", id.index), format!("{name} ({event}: {} → {to})", from.join(", ")))
            })
        };
        gatherer.section(RULES[0], "Rules of hosts", rules(Machine::Host));
        gatherer.section(RULES[1], "Rules of unbound hosts", rules(Machine::Pool));
        gatherer.section(RULES[2], "Rules of clusters", rules(Machine::Cluster));
        let words = |words: Vec<&str>| words.into_iter().map(|w| (w.to_owned(), String::new())).collect::<Vec<_>>();
        gatherer.section("stages", "Installation stages", words(HostStage::ALL.iter().map(|s| s.as_str()).collect()));
        gatherer.section(
            "finalizing-stages",
            "Finalizing stages",
            words(FinalizingStage::ALL.iter().map(|s| s.as_str()).collect()),
        );
        gatherer.section("steps", "Steps", words(StepType::ALL.iter().map(|s| s.as_str()).collect()));
        let values = |ids: Vec<&'static str>| {
            ids.into_iter()
                .flat_map(|id| VALUES.iter().map(move |v| (format!("{id} = {}", v.as_str()), String::new())))
                .collect::<Vec<_>>()
        };
        gatherer.section(
            "host-validations",
            "Validations of hosts, each value",
            values(HostValidationId::ALL.iter().map(|v| v.as_str()).collect()),
        );
        gatherer.section(
            "cluster-validations",
            "Validations of clusters, each value",
            values(ClusterValidationId::ALL.iter().map(|v| v.as_str()).collect()),
        );
        gatherer.section("events", "Events", words(EVENT_NAMES.to_vec()));
        gatherer.section("faults", "Kinds of faults", words(vlab_scenario::fault_words()));
        gatherer
    }

    fn section(&mut self, id: &'static str, title: &str, items: impl IntoIterator<Item = (String, String)>) {
        let section = self.coverage.sections.len();
        let mut list = Vec::new();
        for (word, about) in items {
            self.places.insert((id, word.clone()), (section, list.len()));
            let reason = UNREACHABLE.iter().find(|u| u.section == id && u.names(&word)).map(|u| u.reason.to_owned());
            list.push(Item { id: word, about, reason, ..Item::default() });
        }
        self.coverage.sections.push(Section { id: id.to_owned(), title: title.to_owned(), items: list });
    }

    /// Adds a run.
    pub fn add(&mut self, run: &Run<'_>) {
        if run.real {
            self.coverage.real_runs += 1;
        } else {
            self.coverage.simulated_runs += 1;
        }
        for (key, certain) in found(run) {
            let Some((section, item)) = self.places.get(&key) else { continue };
            let item = &mut self.coverage.sections[*section].items[*item];
            let reached: &mut Reached = if run.real { &mut item.real } else { &mut item.simulated };
            if certain {
                reached.runs += 1;
                reached.first.get_or_insert_with(|| run.scenario.to_owned());
            } else {
                reached.possible = true;
            }
        }
    }

    /// What was exercised. What was reached keeps no reason why it cannot be.
    pub fn finish(mut self) -> Coverage {
        for item in self.coverage.sections.iter_mut().flat_map(|s| &mut s.items) {
            if item.simulated.runs > 0 || item.real.runs > 0 {
                item.reason = None;
            }
        }
        self.coverage
    }
}

fn found(run: &Run<'_>) -> Found {
    let mut found = Found::new();
    let rules = shown(run.history, run.settings, run.real);
    let section = |id: RuleId| match id.machine {
        Machine::Host => RULES[0],
        Machine::Pool => RULES[1],
        Machine::Cluster => RULES[2],
    };
    for (ids, certain) in [(&rules.possible, false), (&rules.certain, true)] {
        for id in ids.keys() {
            found.insert((section(*id), id.index.to_string()), certain);
        }
    }
    let mut see = |section: &'static str, word: &str| {
        found.insert((section, word.to_owned()), true);
    };
    let mut began: BTreeMap<&str, &str> = BTreeMap::new();
    let mut did: BTreeSet<&str> = BTreeSet::new();
    for o in run.history {
        match &o.what {
            What::HostStage { to: Some(stage), .. } => see("stages", stage.as_str()),
            // The service keeps the stage that a host was in when it failed; its event tells of it.
            What::Event { name, message, .. } if name == "host_install_progress_updated" => {
                see("events", name);
                if message.contains("stage Failed") {
                    see("stages", HostStage::Failed.as_str());
                }
            }
            What::Event { name, .. } => see("events", name),
            What::ClusterFinalizingStage { stage, .. } => see("finalizing-stages", stage.as_str()),
            What::Step { step_type, .. } => see("steps", step_type),
            What::Validation { is_cluster, id, to: Some(to), .. } => {
                let section = if *is_cluster { "cluster-validations" } else { "host-validations" };
                see(section, &format!("{id} = {}", to.as_str()));
            }
            What::Fault { name, phase, inject, .. } => {
                if !inject.is_empty() {
                    began.insert(name, inject);
                }
                if *phase == FaultPhase::Effect {
                    did.insert(name);
                }
            }
            _ => {}
        }
    }
    // A fault that did nothing exercised nothing.
    for name in did {
        if let Some(kind) = began.get(name) {
            see("faults", kind);
        }
    }
    found
}
