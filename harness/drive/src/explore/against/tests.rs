use rstest::rstest;
use vlab_judge::result::CheckResult;

use super::*;
use crate::explore::end::differs;

fn base(name: &str) -> (Base, Catalogue) {
    let catalogue = Catalogue::embedded();
    (Base::new(&catalogue.find(name).unwrap(), &catalogue).unwrap(), catalogue)
}

fn added(faults: &[&str], actions: &[&str]) -> Added {
    let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Added { faults: own(faults), actions: own(actions), seed: 3, ..Added::default() }
}

const KILL: &str = "{name: f1, at: 5m, target: service, inject: service-kill}";
const LOSE: &str = "{name: f2, at: 5m, target: node-0, inject: crash}";

#[test]
fn what_a_service_cannot_have_is_left_out_and_told() {
    let (base, catalogue) = base("sno");
    let mut drawn = added(&[KILL, LOSE], &["{do: cancel, cluster: sno, at: 10m}"]);
    drawn.interleaving = "seed: 1, any_order: true, killed_after_writes: [9]".to_owned();
    drawn.tolerate = vec!["refused-connections"];
    let remote: Target = "remote:http://127.0.0.1:1".parse().unwrap();
    let seen = there(&base, &drawn, &remote, &catalogue).unwrap();
    assert_eq!(seen.added.faults, [LOSE]);
    assert_eq!((seen.scenario.faults.len(), seen.scenario.actions.len()), (1, 1));
    assert!(
        seen.left_out[0].starts_with(KILL) && seen.left_out[0].ends_with("not ours to stop"),
        "{:?}",
        seen.left_out
    );
    // Real time has its own order.
    assert!(seen.made_plain && seen.scenario.interleaving.is_plain() && seen.added.tolerate.is_empty());
    drawn.interleaving = "seed: 1, latency: 500ms, any_order: true, lost: 20".to_owned();
    let seen = there(&base, &drawn, &remote, &catalogue).unwrap();
    assert_eq!((seen.added.interleaving.as_str(), seen.made_plain), ("seed: 1, latency: 500ms, lost: 20", true));
    assert_eq!(seen.scenario.interleaving.lost, 20);
    let here = there(&base, &drawn, &Target::Simulated, &catalogue).unwrap();
    assert_eq!((here.added.faults.len(), here.left_out.len()), (2, 0));
}

#[test]
fn what_needs_the_simulated_service_is_not_taken_elsewhere() {
    let catalogue = Catalogue::embedded();
    let needs = |entry: &vlab_scenario::CatalogueEntry| entry.needs.contains(&Need::SimulatedService);
    let built_on =
        |entry: vlab_scenario::CatalogueEntry| Base::new(&catalogue.find(&entry.name).ok()?, &catalogue).ok();
    let base = catalogue.list().into_iter().filter(needs).find_map(built_on).expect("a scenario with that need");
    let process: Target = "process:x".parse().unwrap();
    assert!(there(&base, &added(&[], &[]), &process, &catalogue).unwrap_err().contains("needs the simulated service"));
    assert!(there(&base, &added(&[], &[]), &Target::Simulated, &catalogue).is_ok());
}

fn checked(kind: CheckKind, name: &str, verdict: CheckVerdict) -> RunResult {
    let mut check = CheckResult::new(kind, name, verdict);
    check.message = "node-0 has it".to_owned();
    let mut result = RunResult { checks: vec![check], ..RunResult::default() };
    result.conclude();
    result
}

#[test]
fn a_run_is_judged_by_what_must_always_hold() {
    let (base, catalogue) = base("sno");
    let scenario = there(&base, &added(&[], &[]), &Target::Simulated, &catalogue).unwrap().scenario;
    let of = |result: RunResult| judged(&scenario, &result);
    assert_eq!(of(checked(CheckKind::Expectation, "x", CheckVerdict::Failed)), Judged::Wrong(Vec::new()));
    assert_eq!(of(checked(CheckKind::Invariant, "x", CheckVerdict::Passed)), Judged::Wrong(Vec::new()));
    let Judged::Wrong(found) = of(checked(CheckKind::Invariant, "x: y", CheckVerdict::Failed)) else { panic!() };
    assert_eq!(found[0].signature, "x: @ has it");
    let late = checked(CheckKind::Expectation, COMES_TO_ITS_END, CheckVerdict::Failed);
    assert!(matches!(of(late), Judged::Wrong(found) if found.len() == 1));
    // What says nothing is never taken for well.
    let inconclusive = CheckVerdict::Inconclusive { reason: "r".to_owned() };
    assert!(matches!(of(checked(CheckKind::Lab, "memory", inconclusive)), Judged::Inconclusive(_)));
    assert!(matches!(of(RunResult::default()), Judged::Inconclusive(_)));
    let mut cut = checked(CheckKind::Invariant, "x: y", CheckVerdict::Failed);
    cut.cut_short(3, "interrupted");
    assert_eq!(of(cut), Judged::Inconclusive("interrupted".to_owned()));
}

#[test]
fn records_have_no_folders_of_the_machine() {
    let name = |text: &str| name_of_target(&text.parse().unwrap());
    assert_eq!(name("process:/opt/a/assisted-service"), "process:assisted-service");
    assert_eq!(name("container:a/b:c"), "container:a/b:c");
    let process: Target = "process:/opt/a/service".parse().unwrap();
    assert_eq!(version_of(&process, "/opt/a/service (1.2)"), "service (1.2)");
    assert_eq!(version_of(&Target::Simulated, "simulated 1.2"), "simulated 1.2");
}

#[test]
fn the_simulated_service_ends_like_itself() {
    let (base, catalogue) = base("sno");
    let drawn = added(&[], &["{do: cancel, cluster: sno, at: 1s, refused: 409}"]);
    let there = there(&base, &drawn, &Target::Simulated, &catalogue).unwrap();
    let mut ours = Ours::default();
    let longest = Duration::from_secs(60);
    while ours.ask(&there, &catalogue, "rapid", longest).unwrap() {}
    assert_eq!(ours.violations, []);
    assert_eq!(ours.ends.len(), ORDERS.len());
    assert!(ours.took.is_some_and(|took| took < longest), "{:?}", ours.took);
    // What takes longer is known by then.
    let mut given_up = Ours::default();
    assert!(given_up.ask(&there, &catalogue, "rapid", Duration::from_secs(1)).unwrap());
    assert_eq!((given_up.took, given_up.ends.len()), (None, 0));
    let end = &ours.ends[0];
    assert_eq!(end.clusters["sno"], "installed");
    assert_eq!(end.hosts["node"], ["installed"]);
    let at = there.base.own_actions();
    assert_eq!(end.actions[&at], ("cancel".to_owned(), 409));
    assert_eq!(differs(&there.scenario, end, &ours.ends), []);
    let mut other = end.clone();
    other.clusters.insert("sno".to_owned(), "error".to_owned());
    other.hosts.insert("node".to_owned(), vec!["error".to_owned()]);
    other.actions.insert(at, ("cancel".to_owned(), 0));
    let signatures: Vec<String> =
        differs(&there.scenario, &other, &ours.ends).into_iter().map(|found| found.signature).collect();
    assert_eq!(
        signatures,
        [
            "ends-alike: a cluster ends error and installed on the simulated service",
            "ends-alike: a host ends error and installed on the simulated service",
            "ends-alike: cancel is taken and refused with # by the simulated service"
        ]
    );
    // What depends on the order there is no difference.
    assert_eq!(differs(&there.scenario, &other, &[end.clone(), other.clone()]), []);
}

/// Lessens until nothing can go; `shows` says whether a run of a candidate shows it.
fn lessened(from: Added, tries: u32, most: u64, mut shows: impl FnMut(&Added) -> bool) -> Lessen {
    let mut lessen = Lessen::new(from, tries, most);
    while let Some(candidate) = lessen.propose() {
        let shown = shows(&candidate);
        lessen.tell(candidate, shown);
    }
    lessen
}

#[test]
fn what_does_not_matter_goes() {
    let all = added(&["a", "b", "c"], &["d", "e"]);
    let needed = |added: &Added| added.faults.contains(&"b".to_owned()) && added.actions.contains(&"e".to_owned());
    let small = lessened(all, 1, 100, needed);
    assert_eq!(
        (small.best().faults.clone(), small.best().actions.clone()),
        (vec!["b".to_owned()], vec!["e".to_owned()])
    );
    assert!(small.is_minimal() && small.runs() < 12, "{} runs", small.runs());
    let bare = lessened(added(&[], &[]), 1, 100, |_| panic!("there is nothing to leave out"));
    assert!(bare.is_minimal() && bare.runs() == 0);
    let gone = lessened(added(&["a"], &[]), 1, 100, |_| true);
    assert!(gone.is_minimal() && gone.best().faults.is_empty());
}

#[test]
fn what_shows_only_sometimes_is_tried_again() {
    // Every third run shows it, whatever is in it.
    let mut runs = 0;
    let mut sometimes = |_: &Added| {
        runs += 1;
        runs % 3 == 0
    };
    let small = lessened(added(&["a", "b"], &["c"]), 3, 100, &mut sometimes);
    assert!(small.is_minimal() && small.best().faults.is_empty() && small.best().actions.is_empty());
    let spent = lessened(added(&["a", "b"], &["c"]), 3, 2, |_| false);
    assert!(!spent.is_minimal() && spent.runs() == 2);
}

#[rstest]
#[case::always(3, 3, 5, 1)]
#[case::never(0, 3, 5, 5)]
#[case::sometimes(2, 3, 5, 3)]
#[case::rarely(1, 10, 5, 5)]
#[case::not_known(0, 0, 4, 4)]
fn how_often_a_candidate_is_tried(#[case] k: u32, #[case] n: u32, #[case] most: u32, #[case] expected: u32) {
    assert_eq!(tries(k, n, most), expected);
}

#[rstest]
#[case("", "seed: 2, any_order: true", "seed: 2, any_order: true")]
#[case("seed: 1, latency: 500ms, lost: 20", "", "seed: 1, latency: 500ms, lost: 20")]
#[case("seed: 1, latency: 500ms, lost: 20", "seed: 2, latency: 900ms", "lost: 20, seed: 2, latency: 900ms")]
fn orders_are_asked_with_what_is_drawn(#[case] drawn: &str, #[case] order: &str, #[case] both: &str) {
    assert_eq!(together(drawn, order), both);
}
