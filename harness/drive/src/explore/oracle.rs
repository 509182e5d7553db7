//! What is wrong in a run, whatever its scenario: an invariant that does not hold, errors of the service, a run that never comes to
//! rest, one that panics, one that is not the same twice.
//!
//! What only a scenario's author can know is not asked: that a cluster is installed in the end, or that an action is taken.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, RunResult};
use vlab_judge::verdict::{COMES_TO_ITS_END, SERVER_ERRORS, STAYS_UP};
use vlab_model::history::{Observation, What};
use vlab_scenario::{Scenario, Span};

use super::exhaustive::{Entered, states};
use super::reach::{Reached, reached};
use crate::conductor::Ending;
use crate::prepare::Prepared;
use crate::simulate::{as_lines, run_whole};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The check, and what it said without names and numbers: the same in each run that shows the same.
    pub signature: String,
    /// The check that failed.
    pub check: String,
    /// What it said.
    pub message: String,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What is wrong; nothing twice.
    pub violations: Vec<Violation>,
    /// What it reached.
    pub reached: Reached,
    /// How many things happened in it.
    pub steps: u64,
    /// The states that it went through.
    pub states: Vec<Entered>,
    /// Status with which each action of the scenario was answered, where it was refused.
    pub refused: Vec<(usize, u16)>,
    /// What was seen; nothing of one that panicked.
    pub history: Vec<Observation>,
}

/// More things do not happen in a run of a drawn scenario, unless it has no end.
const MOST_STEPS: u64 = 1_000_000;

/// Runs a scenario in virtual time and looks for what is wrong. `twice`: also whether it is the same again.
pub fn look(prepared: &Prepared, twice: bool) -> Outcome {
    let run = || run_whole(prepared, MOST_STEPS);
    let whole = match without_panic(&prepared.scenario, run) {
        Ok(whole) => whole,
        Err(panics) => return Outcome { violations: vec![panics], ..Outcome::default() },
    };
    let mut violations = of_result(&prepared.scenario, &whole.result, &whole.ending);
    if twice && as_lines(&run().history) != as_lines(&whole.history) {
        violations.push(violation(&prepared.scenario, "the same seed gives the same history", "two runs differ"));
    }
    Outcome {
        violations,
        reached: reached(&prepared.scenario, &whole),
        steps: whole.steps,
        states: states(&whole.history),
        refused: refusals(&whole.history),
        history: whole.history,
    }
}

/// Runs it. What panics is wrong, whatever the scenario.
///
/// # Errors
/// It panicked.
pub fn without_panic<R>(scenario: &Scenario, run: impl FnOnce() -> R) -> Result<R, Violation> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
        violation(scenario, "nothing panics", text)
    })
}

/// Position and status of each action of the scenario that was refused.
pub fn refusals(history: &[Observation]) -> Vec<(usize, u16)> {
    let of = |o: &Observation| match &o.what {
        What::UserAction { planned: Some(index), status, .. } if *status >= 400 => Some((*index, *status)),
        _ => None,
    };
    history.iter().filter_map(of).collect()
}

/// What is wrong by the checks of a result.
pub fn of_result(scenario: &Scenario, result: &RunResult, ending: &Ending) -> Vec<Violation> {
    let mut violations: Vec<Violation> = Vec::new();
    for check in result.checks.iter().filter(|check| check.verdict == CheckVerdict::Failed) {
        if is_wrong(scenario, check, ending) {
            let found = violation(scenario, &check.name, &check.message);
            if !violations.iter().any(|other| other.signature == found.signature) {
                violations.push(found);
            }
        }
    }
    violations
}

/// Is a failed check one that must hold in every run?
pub fn is_wrong(scenario: &Scenario, check: &CheckResult, ending: &Ending) -> bool {
    let name = check.name.as_str();
    if name == COMES_TO_ITS_END {
        // Who is held up to the end of the run need not come to rest.
        let ends = |f: &vlab_scenario::Fault| f.is_momentary() || f.lasts.is_some() || f.until.is_some();
        return matches!(ending, Ending::Dead(_)) || scenario.faults.iter().all(ends);
    }
    // An answer that is late shows what was: that invariant takes the moment at which it arrives.
    if scenario.interleaving.latency != Span::ZERO && name.starts_with("api-agrees") {
        return false;
    }
    check.kind == CheckKind::Invariant || [SERVER_ERRORS, STAYS_UP].contains(&name)
}

/// What is wrong, with a signature that does not depend on names and numbers.
pub fn violation(scenario: &Scenario, check: &str, message: &str) -> Violation {
    let id = check.split(':').next().unwrap_or_default();
    let first = message.split(';').next().unwrap_or_default();
    // How many more there are of it is no other thing.
    let first = first.split(" (and ").next().unwrap_or(first);
    Violation {
        signature: format!("{id}: {}", PlainWords::new(scenario).of(first)),
        check: check.to_owned(),
        message: message.chars().take(2000).collect(),
    }
}

/// Words of texts without names and numbers.
pub(super) struct PlainWords<'s> {
    /// Names of hosts, groups and clusters.
    names: BTreeSet<&'s str>,
}

/// Of a text so many words.
const MOST_WORDS: usize = 40;

impl<'s> PlainWords<'s> {
    /// Those in a run of that scenario.
    pub(super) fn new(scenario: &'s Scenario) -> Self {
        let of_hosts = scenario.hosts.iter().flat_map(|host| [host.name.as_str(), host.group.as_str()]);
        Self { names: of_hosts.chain(scenario.clusters.iter().map(|cluster| cluster.name.as_str())).collect() }
    }

    /// The words of a text.
    pub(super) fn of(&self, text: &str) -> String {
        let mut words: Vec<String> = Vec::new();
        for word in text.split([' ', '\n', '\t']).filter(|word| !word.is_empty()) {
            let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
            let has_digit = |part: &str| part.contains(|c: char| c.is_ascii_digit());
            let plain = match bare {
                bare if self.names.contains(bare) => "@".to_owned(),
                // Of a path all but the ids says what was asked for.
                _ if word.starts_with('/') => {
                    word.split('/').map(|part| if has_digit(part) { "#" } else { part }).collect::<Vec<_>>().join("/")
                }
                bare if has_digit(bare) => "#".to_owned(),
                _ => word.trim_end_matches([',', '.', ':']).to_owned(),
            };
            if words.last() != Some(&plain) || !["@", "#"].contains(&plain.as_str()) {
                words.push(plain);
            }
            if words.len() >= MOST_WORDS {
                break;
            }
        }
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(message: &str) -> String {
        let catalogue = vlab_scenario::Catalogue::embedded();
        let scenario = vlab_scenario::load(&catalogue.find("sno").unwrap(), &catalogue).unwrap();
        violation(&scenario, "held: it holds", message).signature
    }

    /// The same for any host, id and number, and another for another request.
    #[test]
    fn a_signature_has_what_was_asked_for_and_no_names_and_numbers() {
        let one = signature(
            "HTTP 500 for node-0 at 3.2 s: POST /v2/infra-envs/65060736-032b-4898-820d/hosts/c6e5-1/actions/bind",
        );
        assert_eq!(one, "held: HTTP # for @ at # s POST /#/infra-envs/#/hosts/#/actions/bind");
        let more = signature("HTTP 503 for node-0 at 9 s: POST /v2/infra-envs/7/hosts/9/actions/bind (and 3 more)");
        assert_eq!(more, one);
        let other = signature("HTTP 500 for node-0 at 3.2 s: POST /v2/infra-envs/7/hosts/9/actions/unbind");
        assert_ne!(other, one);
    }
}
