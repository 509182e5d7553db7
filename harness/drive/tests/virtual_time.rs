//! Virtual time: the same seed gives the same history byte for byte, another seed another one. That every shipped scenario
//! passes is what `catalogue.rs` says.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;

use rstest::rstest;
use vlab_agents::ingress::LAB_INGRESS_PEM;
use vlab_drive::conductor::Ending;
use vlab_drive::prepare::{Choices, Nowhere, Prepared, prepare};
use vlab_drive::simulate::{as_lines, simulate};
use vlab_history::Recorder;
use vlab_model::history::{Observation, RunEnd};
use vlab_scenario::{Catalogue, SourceFile};

fn prepared(scenario: &str, seed: u64, time_profile: &str) -> Prepared {
    let catalogue = Catalogue::discover().unwrap();
    prepared_from(&catalogue.find(scenario).unwrap(), seed, time_profile)
}

fn prepared_from(source: &SourceFile, seed: u64, time_profile: &str) -> Prepared {
    let catalogue = Catalogue::discover().unwrap();
    let scenario = vlab_scenario::load(source, &catalogue).unwrap();
    let choices = Choices { seed: Some(seed), time_profile: Some(time_profile.to_owned()), ..Choices::default() };
    prepare(scenario, &catalogue, &choices, &Nowhere).unwrap()
}

fn run(prepared: &Prepared) -> (Ending, Vec<Observation>, u64) {
    let score = prepared.conductor_config(prepared.info("virtual", true, BTreeMap::new()), LAB_INGRESS_PEM.to_owned());
    let simulated = simulate(score, prepared.core_config("http://127.0.0.1:8090"), Recorder::new(None));
    let requests = simulated.requests;
    (simulated.ending, simulated.conductor.finish(simulated.now, RunEnd::Ended), requests)
}

fn lines(scenario: &str, seed: u64, time_profile: &str) -> String {
    as_lines(&run(&prepared(scenario, seed, time_profile)).1)
}

/// The first line in which two histories differ, for the message of a failed test.
fn first_difference(a: &str, b: &str) -> String {
    match a.lines().zip(b.lines()).enumerate().find(|(_, (x, y))| x != y) {
        Some((n, (x, y))) => format!("line {}:\n  {x}\n  {y}", n + 1),
        None => format!("{} and {} lines", a.lines().count(), b.lines().count()),
    }
}

#[rstest]
#[case::sno("sno", "real", 20)]
#[case::sno_fast("sno", "fast", 5)]
#[case::ha("ha-3-2", "real", 4)]
#[case::insufficient("insufficient-hardware", "real", 5)]
#[case::faults("host-disconnects-and-returns", "fast", 4)]
fn the_same_seed_gives_the_same_history(#[case] scenario: &str, #[case] profile: &str, #[case] times: usize) {
    let first = lines(scenario, 7, profile);
    assert!(first.lines().count() > 50, "a history of {} lines proves nothing", first.lines().count());
    for _ in 1..times {
        let again = lines(scenario, 7, profile);
        assert!(first == again, "{}", first_difference(&first, &again));
    }
}

/// Ids and times, not only the seed that the first line repeats.
#[rstest]
#[case("sno")]
#[case("ha-3-2")]
fn another_seed_gives_another_history(#[case] scenario: &str) {
    let seeds: Vec<String> = (1..=4).map(|seed| lines(scenario, seed, "real")).collect();
    for (i, a) in seeds.iter().enumerate() {
        for b in &seeds[i + 1..] {
            let same = a.lines().skip(1).zip(b.lines().skip(1)).filter(|(x, y)| x == y).count();
            assert!(same * 10 < a.lines().count(), "{same} of {} lines are the same", a.lines().count());
        }
    }
}

/// Its controllers hear later what comes meanwhile, and nobody asks again and again whether it goes on.
#[test]
fn a_service_that_stands_still_over_kubernetes_goes_on() {
    let text = "version: 1\nname: still\napi: kube\ncluster: {name: edge, topology: sno, machine_networks: [192.168.126.0/24]}\n\
                hosts: [{name: node}]\n\
                faults: [{name: pause, at: 1s, target: service, inject: service-pause, for: 10m}]\n\
                expect: [{eventually: {cluster: edge, status: installed}}]\nbudgets: {total: 6h}\n";
    let source = SourceFile::new("still.yaml", text.to_owned());
    let (ending, history, _) = run(&prepared_from(&source, 1, "fast"));
    assert!(matches!(ending, Ending::Complete), "{ending:?}");
    assert!(history.len() < 2_000, "{} lines", history.len());
}
