use vlab_scenario::Catalogue;

use super::*;

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
