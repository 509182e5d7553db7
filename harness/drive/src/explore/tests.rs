use vlab_scenario::Catalogue;
use vlab_service::alteration::Planted;

use super::*;
use crate::alterations::Alteration;
use crate::prepare::Prepared;

/// In more runs no planted defect needs to be found.
const MOST_RUNS: u64 = 400;

/// An installation that is cancelled and reset, and a second one, in less time than an installation may take, but not by much.
const RESET_ONCE: &str = "service: {settings: {INSTALLATION_TIMEOUT: 90m}}
actions:
  - {do: cancel, after: {host: node-0, stage: Waiting for bootkube}}
  - {do: reset, after: {cluster: c, status: cancelled}, then: 2m}
  - {do: boot-discovery, host: node-0, after: {host: node-0, status: resetting-pending-user-action}, then: 1m}
";

fn space(names: &[&str], grammar: bool) -> (Space, Catalogue) {
    let catalogue = Catalogue::embedded();
    let base = |name: &&str| Base::new(&catalogue.find(name).unwrap(), &catalogue).unwrap();
    (Space::new(names.iter().map(base).collect(), grammar, true), catalogue)
}

/// Whatever is drawn is a scenario that the language takes, and is drawn again from its tape.
#[test]
fn what_is_drawn_is_a_scenario() {
    let (space, catalogue) = space(&["sno", "ha-3-2", "reset", "late-binding"], true);
    let (mut things, mut refused) = (0, 0);
    for seed in 0..300 {
        let drawn =
            scenario::draw(&space, &catalogue, Draw::go_on(&[], seed, None)).unwrap_or_else(|e| panic!("{seed}: {e}"));
        things += drawn.added.faults.len() + drawn.added.actions.len();
        refused += drawn.refused;
        let again = scenario::draw(&space, &catalogue, Draw::replay(&drawn.trace.numbers())).unwrap();
        assert_eq!(again.source.bytes, drawn.source.bytes);
        search::prepared(&drawn, &catalogue).unwrap_or_else(|e| panic!("{seed}: {e}"));
    }
    assert!(things > 300 && refused * 10 < things, "{refused} of {things} were refused");
}

#[test]
fn an_empty_tape_is_the_base_alone() {
    let (space, catalogue) = space(&["sno"], false);
    let drawn = scenario::draw(&space, &catalogue, Draw::replay(&[])).unwrap();
    assert_eq!((drawn.added.lines(), drawn.scenario.faults.len(), drawn.scenario.seed), (1, 0, Some(1)));
    let outcome = oracle::look(&search::prepared(&drawn, &catalogue).unwrap(), true);
    assert_eq!(outcome.violations, []);
}

/// What is planted shows only when two things meet, in no scenario of the catalogue by itself. It is found, and made small.
#[rstest::rstest]
#[case::order_of_two_writes(Planted::EventsFirst, "")]
#[case::missing_lock(Planted::NoLock, "")]
#[case::timer_that_survives_a_reset(Planted::TimerSurvives, RESET_ONCE)]
#[case::stale_read(Planted::StaleSteps, "")]
fn what_is_planted_is_found_and_made_small(#[case] planted: Planted, #[case] more: &str) {
    let catalogue = Catalogue::embedded();
    let text = format!("version: 1\nname: small\ncluster: {{name: c, topology: sno}}\nhosts: [{{name: node}}]\n{more}");
    let base = Base::new(&vlab_scenario::SourceFile::new("small.yaml", text), &catalogue).unwrap();
    let space = Space::new(vec![base], false, true);
    let alter = |prepared: &mut Prepared| {
        prepared.alteration = Some(Alteration::Service(vlab_service::alteration::Alteration::Planted(planted)));
    };
    let all: (&Space, &Catalogue, &dyn Fn(&mut Prepared)) = (&space, &catalogue, &alter);
    let healthy: (&Space, &Catalogue, &dyn Fn(&mut Prepared)) = (&space, &catalogue, &|_| {});
    let mut search = Search::new(1, 1, Vec::new());
    let mut found = None;
    while found.is_none() {
        let next = search::search_until(&mut search, all, MOST_RUNS, &|_| true).unwrap();
        let next = next.unwrap_or_else(|| panic!("{planted:?} was not found in {MOST_RUNS} runs"));
        // What is wrong without it, too, is something else.
        if shrink(healthy, &next.numbers, &next.violation.signature, 1, &mut |_, _| {}).is_none() {
            found = Some(next);
        }
    }
    let found = found.unwrap();
    let shrunk = shrink(all, &found.numbers, &found.violation.signature, 150, &mut |_, _| {}).unwrap();
    let (name, source) = finding(&shrunk);
    let text = String::from_utf8_lossy(&source.bytes).into_owned();
    println!("{planted:?}: {} in run {}, {} runs to shrink\n{text}", found.violation.signature, found.run, shrunk.runs);
    assert!(shrunk.tried.drawn.added.lines() <= 12 && shrunk.tried.drawn.added.faults.len() <= 2, "{text}");
    // The file alone shows it again.
    let scenario = vlab_scenario::load(&source, &catalogue).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(scenario.name, name);
    let mut prepared = search::prepared(&Drawn { scenario, ..shrunk.tried.drawn.clone() }, &catalogue).unwrap();
    alter(&mut prepared);
    let again = oracle::look(&prepared, true);
    assert!(
        again.violations.iter().any(|v| v.signature == found.violation.signature),
        "{:?}\n{text}",
        again.violations
    );
}
