//! All of a small world: whatever a user does and whatever goes wrong in a moment, at every state that there is, to a depth.
//!
//! A state is what the service says of every host and cluster: status, stage, role, and which faults are on. Each state that is
//! reached for the first time is a place from which everything that can be done is done once, a second later. States that were seen
//! before are not gone on from, so what is shown is: no state that is reached with so many interventions has a run that shows
//! something wrong, where what went before makes no difference to what comes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use uuid::Uuid;
use vlab_model::history::{FaultPhase, Observation, What};
use vlab_scenario::{ActionKind, Catalogue, Lasting, ParamDefault, TargetForm, fault_rows};

use super::base::{Added, Base};
use super::oracle::{Violation, look};
use super::scenario::{DRAWN, Drawn};
use super::search::prepared;
use super::tape::Trace;
use crate::prepare::Prepared;
use crate::simulate::BEGINNING;

/// A state of a run, as a digest, and the second after the start at which it was entered.
pub type Entered = (u64, u64);

/// The states that a history goes through, in order.
pub fn states(history: &[Observation]) -> Vec<Entered> {
    let mut now: BTreeMap<(Uuid, u8), String> = BTreeMap::new();
    let mut faults: BTreeSet<&str> = BTreeSet::new();
    let mut all: Vec<Entered> = Vec::new();
    for observation in history {
        match &observation.what {
            What::HostStatus { host, to, .. } => _ = now.insert((*host, 0), to.as_str().to_owned()),
            What::HostStage { host, to, .. } => {
                let stage = to.map_or("", |stage| stage.as_str());
                now.insert((*host, 1), stage.to_owned());
            }
            What::HostDeleted { host } => now.retain(|(id, _), _| id != host),
            What::ClusterStatus { cluster, to, .. } => _ = now.insert((*cluster, 0), to.as_str().to_owned()),
            What::Fault { name, phase: FaultPhase::Begin, .. } => _ = faults.insert(name),
            What::Fault { name, phase: FaultPhase::End, .. } => _ = faults.remove(name.as_str()),
            _ => continue,
        }
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut mix = |text: &str| {
            for byte in text.bytes().chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        now.values().for_each(|text| mix(text));
        mix(if faults.is_empty() { "" } else { "fault" });
        let micros = observation.at().as_micros().saturating_sub(BEGINNING.as_micros());
        let second = u64::try_from(micros / 1_000_000).unwrap_or(0);
        match all.last_mut() {
            // What changes in the same second is one step.
            Some(last) if last.0 == second => last.1 = hash,
            _ => all.push((second, hash)),
        }
    }
    all
}

/// Everything that can be done at once to a base: lines of actions and of faults, without their times.
fn interventions(base: &Base) -> Vec<(bool, String)> {
    let mut all = Vec::new();
    for (cluster, ..) in &base.clusters {
        for kind in [ActionKind::Install, ActionKind::Cancel, ActionKind::Reset, ActionKind::AllowAddHosts] {
            all.push((false, format!("do: {kind}, cluster: {cluster}")));
        }
    }
    for host in &base.hosts {
        for kind in [ActionKind::DeleteHost, ActionKind::Unbind, ActionKind::BootDiscovery] {
            all.push((false, format!("do: {kind}, host: {host}")));
        }
    }
    // Kinds that need nothing to be said.
    let plain = fault_rows().filter(|row| !row.needs_real_time() && (base.hub_faults || !row.needs_hub()));
    for row in plain.filter(|row| row.all_params().all(|param| param.default != ParamDefault::Needed)) {
        let lasts = if row.lasts == Lasting::Moment { "" } else { ", for: 5m" };
        let targets: Vec<String> = match row.targets[0] {
            TargetForm::Hosts => base.hosts.clone(),
            TargetForm::Cluster => base.clusters.iter().map(|(name, ..)| name.clone()).collect(),
            TargetForm::Service => vec!["service".to_owned()],
            TargetForm::Gateway => vec!["gateway".to_owned()],
            TargetForm::Kube => vec!["kube".to_owned()],
            TargetForm::Link | TargetForm::Postgres => Vec::new(),
        };
        all.extend(targets.into_iter().map(|target| (true, format!("target: {target}, inject: {}{lasts}", row.word))));
    }
    all
}

/// What was seen of a small world.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How many different states.
    pub states: usize,
    /// How many runs that took.
    pub runs: u64,
    /// Interventions that the language refuses: they were not done.
    pub refused: u64,
    /// What is wrong, each with what was added to the base when it showed first, and the file.
    pub violations: Vec<(Violation, Added, String)>,
    /// Every state was gone on from; otherwise the runs were used up.
    pub is_whole: bool,
}

/// Goes through a small world: so many interventions one after the other, in at most so many runs. `tell` is told after each run how
/// many there were and how many states were seen.
///
/// # Errors
/// The base itself cannot be run.
pub fn exhaust(
    base: &Base,
    catalogue: &Catalogue,
    alter: &dyn Fn(&mut Prepared),
    (depth, most): (usize, u64),
    tell: &mut dyn FnMut(u64, usize),
) -> Result<Seen, String> {
    let all = interventions(base);
    let mut seen = Seen::default();
    let mut known: BTreeSet<u64> = BTreeSet::new();
    let mut queue: VecDeque<(Added, u64)> = VecDeque::from([(Added { seed: 1, ..Added::default() }, 0)]);
    while let Some((added, from)) = queue.pop_front() {
        if seen.runs >= most {
            return Ok(seen);
        }
        let source = base.with(DRAWN, "", &added);
        let scenario = match vlab_scenario::load(&source, catalogue) {
            Ok(scenario) => scenario,
            Err(error) if added.lines() == 1 => return Err(error.to_string()),
            Err(_) => {
                seen.refused += 1;
                continue;
            }
        };
        let text = String::from_utf8_lossy(&source.bytes).into_owned();
        let drawn =
            Drawn { trace: Trace::default(), base: base.clone(), added: added.clone(), source, scenario, refused: 0 };
        let mut run = prepared(&drawn, catalogue)?;
        alter(&mut run);
        let outcome = look(&run, false);
        seen.runs += 1;
        for violation in outcome.violations {
            if !seen.violations.iter().any(|(known, ..)| known.signature == violation.signature) {
                seen.violations.push((violation, added.clone(), text.clone()));
            }
        }
        let done = added.actions.len() + added.faults.len();
        for (second, state) in outcome.states {
            if second < from || !known.insert(state) {
                continue;
            }
            let at = second + 1;
            for (is_fault, what) in all.iter().filter(|_| done < depth) {
                let mut next = added.clone();
                match is_fault {
                    true => next.faults.push(format!("{{name: f{}, at: {at}s, {what}}}", done + 1)),
                    false => next.actions.push(format!("{{{what}, at: {at}s}}")),
                }
                queue.push_back((next, at));
            }
        }
        seen.states = known.len();
        tell(seen.runs, seen.states);
    }
    seen.is_whole = true;
    Ok(seen)
}
