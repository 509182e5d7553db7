//! What the catalogue exercises of the service's machines, in virtual time; that each of its scenarios passes; that a history claims
//! no rule that did not fire; and that `docs/coverage.md` says so.

#![expect(clippy::disallowed_methods, reason = "a test may be told to write what it compares with")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use vlab_drive::coverage::{Gatherer, RULES, Run, UNREACHABLE, prepare_catalogue};
use vlab_drive::simulate::{Whole, run_whole};
use vlab_history::rules::{RuleId, shown};
use vlab_judge::coverage::{Coverage, Reached};
use vlab_judge::result::{CheckResult, CheckVerdict, Verdict};
use vlab_reports::coverage::{markdown, text};
use vlab_scenario::Catalogue;

/// So many per cent of the rules that can be reached the catalogue reaches at least. Raise it when it reaches more.
const AT_LEAST: f64 = 99.0;

/// An item, by its section.
type Key = (String, String);

/// What the catalogue did.
#[derive(Default)]
struct Rehearsed {
    /// Scenarios that reach a thing, by what their histories show.
    by: BTreeMap<Key, BTreeSet<String>>,
    /// Scenarios that do not pass, with the checks that do not hold.
    red: String,
    /// Rules that a history claims, with its scenario, and that did not fire.
    invented: String,
    /// Rules that fired.
    fired: BTreeSet<RuleId>,
    /// Rules that a history shows.
    claimed: BTreeSet<RuleId>,
}

fn rehearse_all() -> (Rehearsed, Coverage) {
    let mut all = Rehearsed::default();
    let mut gatherer = Gatherer::new();
    for prepared in &prepare_catalogue(&Catalogue::discover().unwrap()).unwrap() {
        let scenario = &prepared.scenario.name;
        let Whole { result, history, fired, .. } = run_whole(prepared, u64::MAX);
        if result.verdict != Verdict::Passed {
            let bad = |check: &&CheckResult| {
                matches!(check.verdict, CheckVerdict::Failed | CheckVerdict::Inconclusive { .. })
            };
            let wrong = result.checks.iter().filter(bad);
            let wrong: Vec<String> = wrong.map(|check| format!("{}: {}", check.name, check.message)).collect();
            let _ = writeln!(all.red, "{scenario}: {}: {}", result.verdict, wrong.join("; "));
        }
        let run = Run { scenario, history: &history, settings: &prepared.settings, real: false };
        gatherer.add(&run);
        let mut alone = Gatherer::new();
        alone.add(&run);
        for (key, _) in reached(&alone.finish()) {
            all.by.entry(key).or_default().insert(scenario.clone());
        }
        let claimed: BTreeSet<RuleId> = shown(&history, &prepared.settings, false).certain.into_keys().collect();
        for id in claimed.difference(&fired) {
            let _ = writeln!(all.invented, "{scenario}: {id} {}", id.describe().3);
        }
        all.claimed.extend(claimed);
        all.fired.extend(fired);
    }
    (all, gatherer.finish())
}

/// The things that runs on the built-in service have reached, with the first of them.
fn reached(coverage: &Coverage) -> BTreeMap<Key, String> {
    let items = coverage.sections.iter().flat_map(|s| s.items.iter().map(move |i| (s, i)));
    items.filter_map(|(s, i)| Some(((s.id.clone(), i.id.clone()), i.simulated.first.clone()?))).collect()
}

/// One test for all, because the catalogue is simulated for it.
#[test]
fn the_catalogue_exercises_the_machines_and_claims_nothing_else() {
    let (all, coverage) = rehearse_all();
    assert!(all.red.is_empty(), "scenarios do not pass:\n{}", all.red);
    assert!(all.invented.is_empty(), "histories claim rules that did not fire:\n{}", all.invented);

    let about = |id: &RuleId| format!("{id} {}", id.describe().3);
    let unseen: Vec<String> = all.fired.difference(&all.claimed).map(about).collect();
    println!("fired, and no history shows it: {unseen:#?}");
    println!("{}", text(&coverage, false));

    for unreachable in UNREACHABLE {
        for item in &coverage.section(unreachable.section).unwrap().items {
            assert!(
                !unreachable.names(&item.id) || item.simulated.runs == 0,
                "{} {} is reached by {:?}: take its reason out",
                unreachable.section,
                item.id,
                item.simulated.first
            );
        }
    }
    let rules = coverage.count(&RULES, false);
    assert_eq!(rules.all, 127);
    assert!(rules.of_reachable() >= AT_LEAST, "{:.1} % of the rules that can be reached", rules.of_reachable());

    the_page_is_true(&all, &coverage);
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/coverage.md");
const BEGIN: &str = "<!-- tables -->\n";
const END: &str = "<!-- end of the tables -->";
const RENEW: &str =
    "renew it: VLAB_UPDATE_DOCS=1 cargo nextest run --workspace -E 'package(vlab-drive) & binary(coverage)'";

/// The page: what stands before its tables, the tables, and what stands after them.
fn page() -> (String, String, String) {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (head, rest) = page.split_once(BEGIN).expect("a place for the tables");
    let (tables, tail) = rest.split_once(END).expect("an end of the tables");
    (head.to_owned(), tables.to_owned(), tail.to_owned())
}

/// Its numbers and words are those of its rows, its rows are all that there is, its scenarios are in the catalogue, and of the
/// rules none is without a scenario or a reason.
#[test]
fn the_page_is_whole() {
    let (_, tables, _) = page();
    let empty = Gatherer::new().finish();
    let (built_in, another) = examples(&tables, &empty);
    let shown = with_examples(&built_in, &another);
    assert!(tables.trim() == markdown(&shown).trim(), "docs/coverage.md: {RENEW}");
    let catalogue = Catalogue::discover().unwrap();
    let known: BTreeSet<String> = catalogue.list().into_iter().map(|entry| entry.name).collect();
    let gone: BTreeSet<&String> =
        built_in.values().chain(another.values()).filter(|name| !known.contains(*name)).collect();
    assert!(gone.is_empty(), "docs/coverage.md names scenarios that are not there: {gone:?}; {RENEW}");
    let rules = shown.count(&RULES, false);
    assert!(rules.of_reachable() >= AT_LEAST, "{:.1} % of the rules that can be reached", rules.of_reachable());
}

/// What people read is what runs do: each scenario that the page names reaches what it is named for, and no rule is missing. The
/// page may know less of the rest than the catalogue does, so that one scenario more makes it no lie. `VLAB_UPDATE_DOCS=1` renews
/// it, `VLAB_COVERAGE=FILE` with the other service's runs in a file of `vlab coverage --json`.
fn the_page_is_true(all: &Rehearsed, coverage: &Coverage) {
    let (head, tables, tail) = page();
    let (built_in, another) = examples(&tables, coverage);
    if std::env::var_os("VLAB_UPDATE_DOCS").is_some() {
        let mut now = reached(coverage);
        // An example that still is one stays.
        for (key, scenario) in &built_in {
            if all.by.get(key).is_some_and(|by| by.contains(scenario)) {
                now.insert(key.clone(), scenario.clone());
            }
        }
        let another = match std::env::var_os("VLAB_COVERAGE") {
            Some(file) => {
                let read: Coverage = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
                let items = read.sections.iter().flat_map(|s| s.items.iter().map(move |i| (s, i)));
                items.filter_map(|(s, i)| Some(((s.id.clone(), i.id.clone()), i.real.first.clone()?))).collect()
            }
            None => another,
        };
        let tables = markdown(&with_examples(&now, &another));
        std::fs::write(PAGE, format!("{head}{BEGIN}\n{tables}\n{END}{tail}")).unwrap();
        return;
    }
    let mut lies = String::new();
    for (key, scenario) in &built_in {
        if all.by.get(key).is_none_or(|by| !by.contains(scenario)) {
            let _ = writeln!(lies, "{} {}: {scenario} does not reach it", key.0, key.1);
        }
    }
    for (key, scenario) in reached(coverage) {
        match (RULES.contains(&key.0.as_str()), built_in.contains_key(&key)) {
            (_, true) => {}
            (true, false) => {
                let _ = writeln!(lies, "{} {}: {scenario} reaches it", key.0, key.1);
            }
            (false, false) => println!("not on the page: {} {}, reached by {scenario}", key.0, key.1),
        }
    }
    assert!(lies.is_empty(), "docs/coverage.md: {RENEW}\n{lies}");
}

/// The scenarios that the page's tables name, by what for: on the built-in service, and on another one.
fn examples(tables: &str, coverage: &Coverage) -> (BTreeMap<Key, String>, BTreeMap<Key, String>) {
    let (mut built_in, mut another) = (BTreeMap::new(), BTreeMap::new());
    let mut section = None;
    for line in tables.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = coverage.sections.iter().find(|s| s.title == title);
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (Some(section), [_, id, _, ours, theirs, ..]) = (section, cells.as_slice()) else { continue };
        let scenario = |cell: &str| cell.strip_prefix('`').and_then(|c| c.strip_suffix('`')).map(str::to_owned);
        let key = || (section.id.clone(), (*id).to_owned());
        built_in.extend(scenario(ours).map(|s| (key(), s)));
        another.extend(scenario(theirs).map(|s| (key(), s)));
    }
    (built_in, another)
}

/// Everything there is, with these scenarios as those that reach it.
fn with_examples(built_in: &BTreeMap<Key, String>, another: &BTreeMap<Key, String>) -> Coverage {
    let mut coverage = Gatherer::new().finish();
    for section in &mut coverage.sections {
        for item in &mut section.items {
            let key = (section.id.clone(), item.id.clone());
            let by = |examples: &BTreeMap<Key, String>| {
                let first = examples.get(&key).cloned();
                Reached { runs: usize::from(first.is_some()), first, possible: false }
            };
            (item.simulated, item.real) = (by(built_in), by(another));
            if item.simulated.runs + item.real.runs > 0 {
                item.reason = None;
            }
        }
    }
    coverage
}

/// A reason that is none any more is taken out; the gatherer drops the reason of what is reached.
#[test]
fn each_reason_speaks_of_something() {
    let coverage = Gatherer::new().finish();
    for unreachable in UNREACHABLE {
        let section = coverage.section(unreachable.section);
        for item in unreachable.items {
            let one = vlab_drive::coverage::Unreachable { items: std::slice::from_ref(item), ..*unreachable };
            assert!(
                section.is_some_and(|s| s.items.iter().any(|i| one.names(&i.id))),
                "{}: {item}",
                unreachable.section
            );
        }
    }
}
