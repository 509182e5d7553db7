//! A service whose database is not ours: states come from looking every second and from events. The simulator knows what the
//! store really held, so that the two can be compared.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rstest::rstest;
use uuid::Uuid;
use vlab_agents::ingress::LAB_INGRESS_PEM;
use vlab_drive::conductor::Ending;
use vlab_drive::prepare::{Choices, Nowhere, prepare};
use vlab_drive::simulate::simulate;
use vlab_history::Recorder;
use vlab_model::history::{Observation, RunEnd, Source, What};
use vlab_scenario::Catalogue;

fn looked_at(scenario: &str, seed: u64) -> Vec<Observation> {
    let catalogue = Catalogue::discover().unwrap();
    let scenario = vlab_scenario::load(&catalogue.find(scenario).unwrap(), &catalogue).unwrap();
    let choices = Choices { seed: Some(seed), time_profile: Some("fast".to_owned()), ..Choices::default() };
    let prepared = prepare(scenario, &catalogue, &choices, &Nowhere).unwrap();
    let mut score =
        prepared.conductor_config(prepared.info("looks", true, BTreeMap::new()), LAB_INGRESS_PEM.to_owned());
    (score.state_source, score.look_every) = (Source::Poll, Duration::from_secs(1));
    let simulated = simulate(score, prepared.core_config("http://127.0.0.1:8090"), Recorder::new(None));
    assert_eq!(simulated.ending, Ending::Complete);
    simulated.conductor.finish(simulated.now, RunEnd::Ended)
}

/// What each host and cluster went through, by those sources: statuses, stages, stages of finalizing.
fn lines(history: &[Observation], sources: &[Source]) -> BTreeMap<(Uuid, &'static str), Vec<String>> {
    let mut lines: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for o in history.iter().filter(|o| sources.contains(&o.source)) {
        let (key, word) = match &o.what {
            What::HostStatus { host, to, .. } => ((*host, "status"), to.to_string()),
            What::HostStage { host, from, to, .. } if from != to => ((*host, "stage"), format!("{to:?}")),
            What::ClusterStatus { cluster, to, .. } => ((*cluster, "status"), to.to_string()),
            What::ClusterFinalizingStage { cluster, stage } => ((*cluster, "finalizing"), stage.to_string()),
            _ => continue,
        };
        lines.entry(key).or_default().push(word);
    }
    lines
}

/// Every change is there once and in its order, although each look misses most of them.
#[rstest]
fn events_and_looks_tell_what_the_database_held(
    #[values("sno", "ha-3-2", "cancel", "reset")] scenario: &str,
    #[values(1, 2)] seed: u64,
) {
    let history = looked_at(scenario, seed);
    let held = lines(&history, &[Source::Database]);
    assert!(held.values().map(Vec::len).sum::<usize>() > 15, "{held:#?}");
    assert_eq!(lines(&history, &[Source::Poll, Source::Events]), held);
    // A state of a moment is there, from its event and with the event's time.
    let brief: BTreeSet<Source> = history
        .iter()
        .filter(|o| matches!(&o.what, What::HostStatus { to, .. } if to.as_str() == "preparing-for-installation"))
        .map(|o| o.source)
        .collect();
    assert_eq!(brief, BTreeSet::from([Source::Database, Source::Events]));
    for o in history.iter().filter(|o| o.source == Source::Events) {
        assert!(o.service_time.is_some(), "{o:?}");
    }
    // And the looks alone would not have known.
    let shown = lines(&history, &[Source::Poll]);
    assert!(shown.values().map(Vec::len).sum::<usize>() * 2 < held.values().map(Vec::len).sum::<usize>(), "{shown:#?}");
}

/// Where the database is watched events are events only: no change is recorded twice.
#[test]
fn a_watched_database_needs_no_events() {
    let catalogue = Catalogue::discover().unwrap();
    let scenario = vlab_scenario::load(&catalogue.find("sno").unwrap(), &catalogue).unwrap();
    let prepared = prepare(scenario, &catalogue, &Choices { seed: Some(1), ..Choices::default() }, &Nowhere).unwrap();
    let score = prepared.conductor_config(prepared.info("watched", true, BTreeMap::new()), LAB_INGRESS_PEM.to_owned());
    let simulated = simulate(score, prepared.core_config("http://127.0.0.1:8090"), Recorder::new(None));
    let history = simulated.conductor.finish(simulated.now, RunEnd::Ended);
    assert_eq!(lines(&history, &[Source::Events]), BTreeMap::new());
}
