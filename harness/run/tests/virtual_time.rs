//! Virtual time: the same seed gives the same history byte for byte, another seed another one, and every shipped scenario
//! that fits passes in both time profiles.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;

use rstest::rstest;
use vlab_agents::ingress::LAB_INGRESS_PEM;
use vlab_history::Recorder;
use vlab_model::history::Observation;
use vlab_reports::result::{CheckVerdict, RunResult, Verdict};
use vlab_run::conductor::Ending;
use vlab_run::prepare::{Choices, Prepared, prepare};
use vlab_run::simulate::{as_lines, ending_check, simulate};
use vlab_run::verdict::judge;
use vlab_scenario::Catalogue;

fn prepared(scenario: &str, seed: u64, time_profile: &str) -> Prepared {
    let catalogue = Catalogue::discover().unwrap();
    let source = catalogue.find(scenario).unwrap();
    let scenario = vlab_scenario::load(&source, &catalogue).unwrap();
    let choices = Choices { seed: Some(seed), time_profile: Some(time_profile.to_owned()), ..Choices::default() };
    prepare(scenario, &catalogue, &choices).unwrap()
}

fn run(prepared: &Prepared) -> (Ending, Vec<Observation>, u64) {
    let score = prepared.score(prepared.info("virtual", true, BTreeMap::new()), LAB_INGRESS_PEM.to_owned());
    let simulated = simulate(score, prepared.core_config("http://127.0.0.1:8090"), Recorder::new(None));
    let requests = simulated.requests;
    (simulated.ending, simulated.conductor.finish(simulated.now, "ended"), requests)
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

#[rstest]
fn shipped_scenarios_pass_in_virtual_time(
    #[values("sno", "ha-3-2", "insufficient-hardware", "cancel", "reset")] scenario: &str,
    #[values("real", "fast")] profile: &str,
    #[values(1, 2, 3)] seed: u64,
) {
    let prepared = prepared(scenario, seed, profile);
    let (ending, history, requests) = run(&prepared);
    assert_eq!(ending, Ending::Complete);
    assert!(requests > 10, "{requests} requests");
    let mut result =
        RunResult { checks: judge(&prepared.scenario, prepared.clock_scale, &history).checks, ..RunResult::default() };
    ending_check(&mut result, &ending);
    result.conclude();
    let wrong: Vec<_> = result
        .checks
        .iter()
        .filter(|c| !matches!(c.verdict, CheckVerdict::Passed))
        .map(|c| (&c.name, &c.verdict, &c.message))
        .collect();
    assert_eq!(result.verdict, Verdict::Passed, "{wrong:#?}");
    // Each expectation of the file is a check of its own, and the invariants are there.
    assert!(result.checks.len() >= prepared.scenario.expect.len() + 10, "{} checks", result.checks.len());
}

/// A list of scenarios here that misses one that is shipped would prove less than it says.
#[test]
fn no_shipped_scenario_is_forgotten() {
    let names: Vec<String> = Catalogue::discover().unwrap().list().into_iter().map(|e| e.name).collect();
    let here = ["cancel", "fleet-2000", "ha-3-2", "insufficient-hardware", "reset", "sno"];
    assert_eq!(names, here, "add the new one to the tests of virtual time");
}
