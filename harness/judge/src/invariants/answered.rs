//! What agents do with what they are asked for.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vlab_api::types::StepType;
use vlab_history::Timeline;
use vlab_model::history::{HostMoment, What};

use super::calm::Calm;
use super::found::Found;
use super::steps::ends_installer;
use super::{Invariant, InvariantResult};

/// The invariant.
pub(super) const ANSWERED: Invariant = Invariant {
    id: "steps-answered",
    number: "I25",
    title: "a host does what it is asked for, and answers, unless something is wrong with it",
    needs: "steps that simulated hosts without faults were asked for",
};

/// Who was asked for something so often and never answered will not. What takes long is asked for again meanwhile.
fn times(step: &str) -> usize {
    if step == StepType::StopInstallation.as_str() { 2 } else { 3 }
}

/// A host that finds no way to a registry is set up so, and does what it can.
const DEPENDS_ON_OTHERS: &str = "container-image-availability";

/// A kind of step of a host, since its agent began.
#[derive(Default)]
struct Asked {
    given: usize,
    answered: bool,
    seq: u64,
}

/// Does the agent begin anew after that? What it was asked for before is forgotten.
fn forgets(what: &HostMoment) -> bool {
    !matches!(
        what,
        HostMoment::InstallerStarted
            | HostMoment::BootstrapIgnitionFetched
            | HostMoment::IgnitionFetched
            | HostMoment::InstallerStopped
            | HostMoment::InstallerFailed
            | HostMoment::ReportRefused(_)
    )
}

/// Judges it.
pub(super) fn steps_answered(timeline: &Timeline<'_>) -> InvariantResult {
    let calm = Calm::new(timeline);
    let mut found = Found::default();
    let mut asked: BTreeMap<(Uuid, &str), Asked> = BTreeMap::new();
    let mut installing: BTreeSet<Uuid> = BTreeSet::new();
    let settle = |found: &mut Found, (host, step): (Uuid, &str), line: &Asked| {
        if line.given >= times(step) || line.answered {
            let name = || timeline.host_name(host);
            found.check(line.seq, line.answered, || {
                format!("{} was asked {} times for {step} and never answered", name(), line.given)
            });
        }
    };
    for o in timeline.observations {
        match &o.what {
            What::Step { host, step_type, answered, .. } if calm.host(*host) => {
                let line = asked.entry((*host, step_type)).or_default();
                let Some(code) = answered else {
                    line.given += 1;
                    line.seq = o.seq;
                    continue;
                };
                line.answered = true;
                let name = || timeline.host_name(*host);
                found.check(o.seq, *code == 0 || step_type == DEPENDS_ON_OTHERS, || {
                    format!("{} could not do {step_type} ({code}), and nothing was wrong with it", name())
                });
                if *step_type == StepType::StopInstallation.as_str() && *code == 0 {
                    found.check(o.seq, !installing.contains(host), || {
                        format!("{} says that it has stopped, and its installer runs", name())
                    });
                }
            }
            What::HostDid { host, what } if calm.host(*host) => {
                if *what == HostMoment::InstallerStarted {
                    installing.insert(*host);
                } else if ends_installer(what) {
                    installing.remove(host);
                }
                if forgets(what) {
                    asked
                        .iter()
                        .filter(|((of, _), _)| of == host)
                        .for_each(|(key, line)| settle(&mut found, *key, line));
                    asked.retain(|(of, _), _| of != host);
                }
            }
            _ => {}
        }
    }
    asked.iter().for_each(|(key, line)| settle(&mut found, *key, line));
    found.result((&ANSWERED).into(), || calm.reason(ANSWERED.needs))
}
