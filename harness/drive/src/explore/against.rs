//! Exploring another service than the simulated one in virtual time: what of a drawn scenario can be had there, what is wrong in a
//! run of it, what differs from the simulated service, and how a finding is made small where each run takes its time and may
//! show it or not.
//!
//! All of it is pure; who has services, clocks and folders is a shell around it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, RunResult, Verdict, decide};
use vlab_judge::verdict::{CAN_GO_ON, COMES_TO_ITS_END};
use vlab_scenario::{Catalogue, HostKind, Need, Scenario, SourceFile, Span};

use super::base::{Added, Base};
use super::end::{End, end_closely, end_of};
use super::oracle::{Violation, of_result};
use super::scenario::DRAWN;
use crate::conductor::Ending;
use crate::prepare::{Choices, Nowhere, Prepared, prepare};
use crate::simulate::{BEGINNING, run_whole};
use crate::target::Target;

/// A drawn scenario as another service can run it.
#[derive(Clone, Debug)]
pub struct There {
    /// What it is built on.
    pub base: Base,
    /// What is added to it: a part of what was drawn.
    pub added: Added,
    /// Its file.
    pub source: SourceFile,
    /// The scenario.
    pub scenario: Scenario,
    /// Faults that were left out, each with the reason.
    pub left_out: Vec<String>,
    /// Of its interleaving was left out what only virtual time has.
    pub made_plain: bool,
}

/// What of a drawn scenario that service can run.
///
/// # Errors
/// Why it cannot run any of it.
pub fn there(base: &Base, drawn: &Added, target: &Target, catalogue: &Catalogue) -> Result<There, String> {
    let (interleaving, made_plain) = on_the_way(&drawn.interleaving);
    // What is tolerated is the service being killed in the interleaving.
    let mut added = Added { interleaving, tolerate: Vec::new(), ..drawn.clone() };
    let load = |added: &Added| {
        let source = base.with(DRAWN, "", added);
        vlab_scenario::load(&source, catalogue).map(|scenario| (source, scenario)).map_err(|error| error.to_string())
    };
    let (source, scenario) = load(&added)?;
    if scenario.needs.contains(&Need::SimulatedService) && *target != Target::Simulated {
        return Err("it needs the simulated service".to_owned());
    }
    // Those of the base stand first.
    let own = scenario.faults.len().saturating_sub(added.faults.len());
    let (of_base, of_draw) = scenario.faults.split_at(own);
    if let Some(why) = of_base.iter().find_map(|fault| target.can(fault).err()) {
        return Err(why.to_owned());
    }
    let cannot: Vec<Option<&str>> = of_draw.iter().map(|fault| target.can(fault).err()).collect();
    if cannot.iter().all(Option::is_none) {
        return Ok(There { base: base.clone(), added, source, scenario, left_out: Vec::new(), made_plain });
    }
    let mut left_out = Vec::new();
    let mut kept = Vec::new();
    for (text, why) in added.faults.iter().zip(cannot) {
        match why {
            Some(why) => left_out.push(format!("{text}: {why}")),
            None => kept.push(text.clone()),
        }
    }
    added.faults = kept;
    let (source, scenario) = load(&added)?;
    Ok(There { base: base.clone(), added, source, scenario, left_out, made_plain })
}

/// What of an interleaving is done to requests on their way, and whether there was more.
fn on_the_way(interleaving: &str) -> (String, bool) {
    let keys = || interleaving.split(", ").filter(|key| !key.is_empty());
    let kept: Vec<&str> =
        keys().filter(|key| ["seed: ", "latency: ", "lost: ", "twice: "].iter().any(|k| key.starts_with(k))).collect();
    let left_out = kept.len() < keys().count();
    // A seed alone is the plain way.
    let plain = kept.iter().all(|key| key.starts_with("seed: "));
    (if plain { String::new() } else { kept.join(", ") }, left_out)
}

/// An interleaving with the keys of another one, which win.
fn together(interleaving: &str, other: &str) -> String {
    let key = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    let of_other: Vec<&str> = other.split(", ").filter(|k| !k.is_empty()).collect();
    let is_there = |text: &str| of_other.iter().any(|other| key(other) == key(text));
    let mut keys: Vec<&str> = interleaving.split(", ").filter(|k| !k.is_empty() && !is_there(k)).collect();
    keys.extend(of_other.iter().copied());
    keys.join(", ")
}

/// Is that only that the run takes longer than it may? From a snapshot on machines it may take a part of what the service gives it.
pub fn takes_longer(result: &RunResult) -> bool {
    matches!(ending(result), Ending::OutOfTime { .. })
}

/// What a run there says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Nothing, and why.
    Inconclusive(String),
    /// This is wrong; nothing: it is as it should be.
    Wrong(Vec<Violation>),
}

/// Judges a run in real time by what must hold in every run.
pub fn judged(scenario: &Scenario, result: &RunResult) -> Judged {
    let any = |test: fn(&CheckResult) -> bool| result.checks.iter().any(test);
    let is_open = |c: &CheckResult| matches!(c.verdict, CheckVerdict::Failed | CheckVerdict::Inconclusive { .. });
    let lab_was_wrong = result.checks.iter().any(|c| c.kind == CheckKind::Lab && is_open(c));
    let says_nothing = !any(|c| matches!(c.verdict, CheckVerdict::Passed | CheckVerdict::Failed));
    // One that was cut short says nothing whatever its checks say.
    let was_cut = result.verdict == Verdict::Inconclusive && decide(&result.checks).0 != Verdict::Inconclusive;
    if lab_was_wrong || says_nothing || was_cut {
        return Judged::Inconclusive(result.reason.clone().unwrap_or_else(|| "nothing was checked".to_owned()));
    }
    Judged::Wrong(of_result(scenario, result, &ending(result)))
}

/// How a run ended, from its checks.
fn ending(result: &RunResult) -> Ending {
    let failed = |name: &str| result.checks.iter().find(|c| c.name == name && c.verdict == CheckVerdict::Failed);
    match (failed(COMES_TO_ITS_END), failed(CAN_GO_ON)) {
        (Some(check), _) if check.kind == CheckKind::Invariant => Ending::Dead(check.message.clone()),
        (Some(check), _) => Ending::OutOfTime { waiting_for: vec![check.message.clone()] },
        (None, Some(check)) => Ending::Stuck(check.message.clone()),
        (None, None) => Ending::Complete,
    }
}

/// What the simulated service makes of a scenario in virtual time, in as many orders of what comes at the same moment as were asked
/// for.
#[derive(Clone, Debug, Default)]
pub struct Ours {
    /// What is wrong in any of these runs.
    pub violations: Vec<Violation>,
    /// How those ended that came to an end; the first one is the plain order.
    pub ends: Vec<End>,
    /// How long the first one took, in its own time; `None`: longer than it may.
    pub took: Option<Duration>,
    runs: usize,
    /// Ends are compared closely.
    is_close: bool,
}

/// Interleavings in which the simulated service is asked, under the times of the other service or the real ones. Real time has its own
/// interleaving, and what depends on that is no difference.
const ORDERS: [(bool, &str); 6] = [
    (true, ""),
    (true, "seed: 1, any_order: true, latency: 500ms"),
    (false, ""),
    (true, "seed: 2, any_order: true, latency: 900ms"),
    (false, "seed: 3, any_order: true, host_monitor: 9s, cluster_monitor: 4s"),
    (true, "seed: 4, latency: 200ms"),
];

/// More things do not happen in such a run.
const MOST_STEPS: u64 = 300_000;

impl Ours {
    /// How it ends in the plain order, when that is known already.
    pub fn beginning_with(end: End) -> Self {
        Self { is_close: end.closely.is_some(), ends: vec![end], runs: 1, ..Self::default() }
    }

    /// Asks the simulated service in one more order; were there any left? `longest`: what takes longer under the times of the other
    /// service is given up.
    ///
    /// # Errors
    /// It cannot be prepared, with the reason for people.
    pub fn ask(
        &mut self,
        there: &There,
        catalogue: &Catalogue,
        time_profile: &str,
        longest: Duration,
    ) -> Result<bool, String> {
        let Some((own_times, order)) = ORDERS.get(self.runs).copied() else { return Ok(false) };
        self.runs += 1;
        let added = Added { interleaving: together(&there.added.interleaving, order), ..there.added.clone() };
        let source = there.base.with(DRAWN, "", &added);
        let scenario = vlab_scenario::load(&source, catalogue).map_err(|error| error.to_string())?;
        let profile = if own_times { time_profile } else { "real" };
        let mut prepared = prepared_for(&scenario, catalogue, &Target::Simulated, profile, &Choices::default())?;
        let scale = catalogue.time_profile(time_profile).map_err(|error| error.to_string())?.clock_scale;
        let mut bounded = scenario.clone();
        bounded.budgets.total = Span::Service(longest.mul_f64(scale));
        prepared.scenario = Arc::new(bounded);
        let Ok(whole) = catch_unwind(AssertUnwindSafe(|| run_whole(&prepared, MOST_STEPS))) else {
            return Err("the simulated service panics in virtual time: explore there first".to_owned());
        };
        if matches!(whole.ending, Ending::Dead(_) | Ending::OutOfTime { .. }) {
            return Ok(true);
        }
        if self.runs == 1 {
            self.took = whole.history.last().map(|last| last.at().since(BEGINNING));
        }
        for found in of_result(&scenario, &whole.result, &whole.ending) {
            if !self.shows(&found.signature) {
                self.violations.push(found);
            }
        }
        let end = if self.is_close { end_closely } else { end_of };
        self.ends.push(end(&scenario, &whole.history));
        Ok(true)
    }

    /// Was that wrong in one of the runs?
    pub fn shows(&self, signature: &str) -> bool {
        self.violations.iter().any(|known| known.signature == signature)
    }
}

/// Prepares a drawn scenario for a service, with simulated hosts. What else is chosen is taken from `choices`.
///
/// # Errors
/// It cannot be prepared, with the reason for people.
pub fn prepared_for(
    scenario: &Scenario,
    catalogue: &Catalogue,
    target: &Target,
    time_profile: &str,
    choices: &Choices,
) -> Result<Prepared, String> {
    let choices = Choices {
        time_profile: Some(time_profile.to_owned()),
        service: Some(target.clone()),
        hosts: Some(HostKind::Simulated),
        ..choices.clone()
    };
    prepare(scenario.clone(), catalogue, &choices, &Nowhere).map_err(|error| error.to_string())
}

/// The service as records name it: nobody else has its folder.
pub fn name_of_target(target: &Target) -> String {
    match target {
        Target::Process { program } => {
            let name = program.file_name().map(|name| name.to_string_lossy().into_owned());
            format!("process:{}", name.unwrap_or_default())
        }
        other => other.to_string(),
    }
}

/// What a run knows of the service's version, as records have it: without the folder of the program.
pub fn version_of(target: &Target, version: &str) -> String {
    match target {
        Target::Process { program } => {
            let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            version.replace(&program.display().to_string(), &name)
        }
        _ => version.to_owned(),
    }
}

/// Makes a finding small by leaving faults and actions out, one at a time, where each try is a run. A candidate that does not show
/// it is tried again as often as the finding needs to show.
#[derive(Clone, Debug)]
pub struct Lessen {
    best: Added,
    /// What of it is tried to be without next: the faults first.
    place: usize,
    /// How often a candidate is tried, and how often the present one was.
    tries: (u32, u32),
    runs: u64,
    most: u64,
    changed: bool,
    is_minimal: bool,
}

impl Lessen {
    /// Begins. `tries`: so often a candidate is run until it shows it; `most`: so many runs at most.
    pub fn new(added: Added, tries: u32, most: u64) -> Self {
        Self { best: added, place: 0, tries: (tries.max(1), 0), runs: 0, most, changed: false, is_minimal: false }
    }

    /// The next candidate to run; `None`: it is as small as it gets, or the runs are used up.
    pub fn propose(&mut self) -> Option<Added> {
        if self.is_minimal || self.runs >= self.most {
            return self.end();
        }
        let all = self.best.faults.len() + self.best.actions.len();
        if self.place >= all {
            if !self.changed || all == 0 {
                self.is_minimal = true;
                return None;
            }
            (self.place, self.changed) = (0, false);
        }
        let mut added = self.best.clone();
        match self.place.checked_sub(added.faults.len()) {
            None => _ = added.faults.remove(self.place),
            Some(at) => _ = added.actions.remove(at),
        }
        Some(added)
    }

    fn end(&mut self) -> Option<Added> {
        // Nothing to leave out takes no run.
        self.is_minimal |= self.best.faults.is_empty() && self.best.actions.is_empty();
        None
    }

    /// Did the run of `candidate` show it?
    pub fn tell(&mut self, candidate: Added, shows: bool) {
        self.runs += 1;
        self.tries.1 += 1;
        if shows {
            self.best = candidate;
            self.changed = true;
            self.tries.1 = 0;
        } else if self.tries.1 >= self.tries.0 {
            self.place += 1;
            self.tries.1 = 0;
        }
    }

    /// The candidate cannot be run.
    pub fn refuse(&mut self) {
        self.place += 1;
        self.tries.1 = 0;
    }

    /// The smallest that showed it.
    pub const fn best(&self) -> &Added {
        &self.best
    }

    /// How many runs there were.
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// Nothing more could be left out.
    pub const fn is_minimal(&self) -> bool {
        self.is_minimal
    }
}

/// How often a candidate must be tried when the finding showed in `k` of `n` runs: until it is missed by chance in one of ten cases
/// or fewer, as far as so few runs say, and no more than `most`.
pub fn tries(k: u32, n: u32, most: u32) -> u32 {
    match (k, n) {
        (k, n) if k >= n && n > 0 => 1,
        (0, _) => most.max(1),
        (k, n) => {
            let misses = 1.0 - f64::from(k) / f64::from(n);
            let needed = (1..=most).find(|tries| misses.powi(i32::try_from(*tries).unwrap_or(i32::MAX)) <= 0.1);
            needed.unwrap_or(most).max(1)
        }
    }
}

#[cfg(test)]
mod tests;
