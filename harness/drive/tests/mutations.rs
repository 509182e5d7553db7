//! `docs/mutations.md` is about the alterations that there are, and what it says of some of them is true.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};

use vlab_drive::alterations::bench::try_in;
use vlab_drive::alterations::unnoticed::{OPEN_RULES, UNNOTICED, reason};
use vlab_drive::alterations::{Alteration, all, find};
use vlab_drive::coverage::prepare_catalogue;
use vlab_scenario::Catalogue;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mutations.md");
const RENEW: &str = "renew it: cargo xtask mutation --page docs/mutations.md (it tries what is not in its file yet)";

/// So many of the alterations that the page says were noticed are tried again.
const SAMPLE: usize = 12;

/// A row of the page's tables: what noticed an alteration.
struct Row {
    check: String,
    tried: bool,
    scenario: Option<String>,
    conformance: bool,
}

/// The rows of the tables of alterations, by name.
fn rows() -> BTreeMap<String, Row> {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let mut rows = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        let [name, _, check, scenario, after, conformance] = cells.as_slice() else { continue };
        let code = |cell: &str| cell.strip_prefix('`').and_then(|c| c.strip_suffix('`')).map(str::to_owned);
        let (Some(name), Ok(_)) = (code(name), after.parse::<usize>()) else { continue };
        let (scenario, conformance) = (code(scenario), code(conformance).is_some());
        rows.insert(name, Row { check: (*check).to_owned(), tried: *check != "not tried", scenario, conformance });
    }
    rows
}

#[test]
fn the_page_has_each_alteration() {
    let shown: BTreeSet<String> = rows().into_keys().collect();
    let there: BTreeSet<String> = all().iter().map(|alteration| alteration.name()).collect();
    let missing: Vec<&String> = there.difference(&shown).collect();
    let gone: Vec<&String> = shown.difference(&there).collect();
    assert!(missing.is_empty(), "docs/mutations.md has no {missing:?}; {RENEW}");
    assert!(gone.is_empty(), "docs/mutations.md has {gone:?}, which there are not any more; {RENEW}");
}

#[test]
fn each_reason_speaks_of_an_alteration_that_nobody_noticed() {
    let rows = rows();
    let mut seen = BTreeSet::new();
    for name in UNNOTICED.iter().flat_map(|row| row.names) {
        assert!(find(name).is_some(), "{name}: no such alteration");
        assert!(seen.insert(*name), "{name} has two reasons");
        let row = rows.get(*name).unwrap_or_else(|| panic!("{name} is not on the page; {RENEW}"));
        assert!(row.scenario.is_none() && !row.conformance, "{name} is noticed: take its reason out");
    }
}

/// A rule that nobody notices, without a reason, is in the list of what is to be done; what is noticed is not there any more.
#[test]
fn each_rule_is_noticed_or_has_a_reason_or_is_to_be_done() {
    let rows = rows();
    let open =
        |name: &String| rows.get(name).is_some_and(|row| row.tried && row.scenario.is_none() && !row.conformance);
    let of_rules = |alteration: &Alteration| alteration.rule().is_some() && !alteration.is_of_a_source();
    let rules = all().into_iter().filter(of_rules).map(|alteration| alteration.name());
    let unnoticed: BTreeSet<String> = rules.filter(|name| open(name) && reason(name).is_none()).collect();
    let known: BTreeSet<String> = OPEN_RULES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(unnoticed, known, "left: nobody notices them, and nothing says why; right: `OPEN_RULES`");
}

/// The scenario that the page names notices the alteration: some of them, spread over the page. CI tries all.
#[test]
fn what_the_page_says_is_true() {
    let rows: Vec<(String, Row)> = rows().into_iter().filter(|(_, row)| row.scenario.is_some()).collect();
    let catalogue = Catalogue::discover().unwrap();
    let prepared = prepare_catalogue(&catalogue).unwrap();
    let step = (rows.len() / SAMPLE).max(1);
    let mut tried = 0;
    for (name, row) in rows.iter().step_by(step) {
        let scenario = row.scenario.as_deref().unwrap_or_default();
        let prepared = prepared.iter().find(|p| p.scenario.name == scenario);
        let prepared = prepared.unwrap_or_else(|| panic!("{name}: there is no scenario {scenario}; {RENEW}"));
        let alteration = find(name).unwrap_or_else(|| panic!("{name}: no such alteration; {RENEW}"));
        let noticed = try_in(prepared, alteration);
        assert!(noticed.is_some(), "{scenario} does not notice {name} (it said: {}); {RENEW}", row.check);
        tried += 1;
    }
    assert!(tried >= SAMPLE, "{tried} of {} were tried", rows.len());
}
