//! What the comparison of two services notices. The histories are those of scenarios with which the simulated service is compared
//! with the real one; the other side is the same history with something taken away or bent, told as a real service's.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeSet;

use vlab_api::types::{HostRole, LogsState, Severity};
use vlab_drive::prepare::{Choices, Nowhere, prepare};
use vlab_drive::simulate::rehearse;
use vlab_history::compare::{Explanations, Options, compare};
use vlab_model::history::{Observation, TargetKind, What};
use vlab_scenario::{Catalogue, HostKind};

/// Those of the table of explained differences, and one in which the service chooses the roles.
fn histories() -> Vec<(String, Vec<Observation>)> {
    let table = Explanations::built_in().unwrap();
    let named: BTreeSet<&str> = table
        .rows()
        .iter()
        .flat_map(|row| row.scenarios.iter().map(String::as_str))
        .chain(["hold-and-approve"])
        .collect();
    let catalogue = Catalogue::discover().unwrap();
    let one = |name: &str| {
        let scenario = vlab_scenario::load(&catalogue.find(name).unwrap(), &catalogue).unwrap();
        let choices = Choices { seed: Some(1), hosts: Some(HostKind::Simulated), ..Choices::default() };
        let (_, history, _) = rehearse(&prepare(scenario, &catalogue, &choices, &Nowhere).unwrap());
        (name.to_owned(), history)
    };
    named.into_iter().map(one).collect()
}

/// Is there a difference that nothing explains, when a real service has told `theirs`?
fn noticed(ours: &[Observation], mut theirs: Vec<Observation>) -> bool {
    for o in &mut theirs {
        if let What::RunStarted(info) = &mut o.what {
            info.service = TargetKind::of("process:/p");
        }
    }
    let mut comparison = compare(ours, &theirs, &Options::default());
    comparison.explain(&Explanations::built_in().unwrap());
    !comparison.is_same()
}

fn name_of(o: &Observation) -> Option<&str> {
    match &o.what {
        What::Event { name, .. } if !name.is_empty() => Some(name),
        _ => None,
    }
}

#[test]
fn a_service_that_tells_nothing_of_a_kind_of_event_is_noticed() {
    let histories = histories();
    let kinds: BTreeSet<&str> = histories.iter().flat_map(|(_, h)| h.iter().filter_map(name_of)).collect();
    assert!(kinds.len() > 20, "{kinds:?}");
    let unnoticed: Vec<&str> = kinds
        .into_iter()
        .filter(|kind| {
            let without = |h: &[Observation]| h.iter().filter(|o| name_of(o) != Some(kind)).cloned().collect();
            !histories.iter().any(|(_, h)| noticed(h, without(h)))
        })
        .collect();
    assert_eq!(unnoticed, Vec::<&str>::new());
}

#[test]
fn the_same_history_is_the_same() {
    for (scenario, history) in histories() {
        assert!(!noticed(&history, history.clone()), "{scenario}");
    }
}

/// Each of these bends one thing everywhere in a history.
type Bend = fn(&mut What);

const BENDS: &[(&str, Bend)] = &[
    ("severities of events", |what| {
        if let What::Event { severity, .. } = what {
            *severity = if *severity == Severity::Info { Severity::Warning } else { Severity::Info };
        }
    }),
    ("the cluster that an event names", |what| {
        if let What::Event { cluster, host: Some(_), .. } = what {
            *cluster = None;
        }
    }),
    ("percentages of hosts", |what| {
        if let What::HostStage { percentage, .. } = what {
            *percentage /= 2;
        }
    }),
    ("the total percentage", |what| {
        if let What::ClusterProgress { total, .. } = what {
            *total = (*total).min(99);
        }
    }),
    ("logs of hosts", |what| {
        if let What::HostLogs { state, .. } = what {
            *state = LogsState::Timeout;
        }
    }),
    ("logs of clusters", |what| {
        if let What::ClusterLogs { state, .. } = what {
            *state = LogsState::Timeout;
        }
    }),
    ("roles", |what| {
        if let What::HostRole { role, .. } = what
            && *role == HostRole::Worker
        {
            *role = HostRole::Master;
        }
    }),
    ("who is the bootstrap", |what| {
        if let What::HostRole { bootstrap, .. } = what {
            *bootstrap = false;
        }
    }),
];

#[test]
fn what_is_bent_is_noticed() {
    let histories = histories();
    for (what, bend) in BENDS {
        let bent = |h: &[Observation]| {
            let mut bent = h.to_vec();
            bent.iter_mut().for_each(|o| bend(&mut o.what));
            bent
        };
        let by: Vec<&str> =
            histories.iter().filter(|(_, h)| noticed(h, bent(h))).map(|(name, _)| name.as_str()).collect();
        assert!(!by.is_empty(), "{what}: noticed by no scenario");
    }
}
