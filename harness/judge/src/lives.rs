//! What a history says about the faults of a run: when each began, whether it had an effect, when it ended.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_model::history::{Observation, What};
use vlab_scenario::FaultPhase;

/// What a history says about one fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// When it began and where in the history.
    pub began: Option<(Timestamp, u64)>,
    /// What it hit, in words.
    pub hit: Vec<String>,
    /// The hosts that it was to hit and on which it has had no effect.
    pub spared: BTreeSet<Uuid>,
    /// When it had an effect for the first time, and which.
    pub effect: Option<(Timestamp, String)>,
    /// When it ended, and why.
    pub ended: Option<(Timestamp, String)>,
}

/// The faults of a history by name.
pub fn lives(history: &[Observation]) -> BTreeMap<&str, Life> {
    let mut lives: BTreeMap<&str, Life> = BTreeMap::new();
    for observation in history {
        let What::Fault { name, phase, detail, host, .. } = &observation.what else { continue };
        let life = lives.entry(name).or_default();
        let at = observation.at();
        match phase {
            FaultPhase::Begin => {
                life.began.get_or_insert((at, observation.seq));
                life.hit.push(detail.clone());
                life.spared.extend(host);
            }
            FaultPhase::Effect => {
                life.effect.get_or_insert((at, detail.clone()));
                if let Some(host) = host {
                    life.spared.remove(host);
                }
            }
            FaultPhase::End => {
                life.ended.get_or_insert((at, detail.clone()));
            }
        }
    }
    lives
}
