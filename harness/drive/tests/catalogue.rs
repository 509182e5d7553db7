//! Every scenario that ships passes in virtual time, with the times of the real service and over Kubernetes; every fault in it does
//! something; and without its faults it does not pass. (With the times that a run has by itself the catalogue is run for
//! its coverage: see `coverage.rs`.)

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rstest::rstest;
use vlab_drive::prepare::{Choices, Nowhere, PrepareError, prepare, wants_machines};
use vlab_drive::simulate;
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, RunResult, Verdict};
use vlab_model::history::Observation;
use vlab_scenario::{Catalogue, Criterion, Expectation, FrontDoor, HostKind, Moment, Need, Scenario, Seen};

/// With more hosts a debug build takes minutes; what such a scenario is for is measured elsewhere.
const UP_TO_HOSTS: usize = 100;

fn scenarios() -> Vec<(Catalogue, Scenario)> {
    at_places(|_| true)
}

/// Those whose place in the catalogue is wanted. The others are not read: that is a good part of what a short run costs.
fn at_places(wanted: impl Fn(usize) -> bool) -> Vec<(Catalogue, Scenario)> {
    let catalogue = Catalogue::discover().unwrap();
    let load = |name: String| {
        let scenario = vlab_scenario::load(&catalogue.find(&name).unwrap(), &catalogue).unwrap();
        // What only a machine can do (boot from the wrong medium, say) has its own tests.
        let machines_only = scenario.hosts.iter().any(|host| host.is_machine());
        (scenario.hosts.len() <= UP_TO_HOSTS && !machines_only).then(|| (catalogue.clone(), scenario))
    };
    let names = catalogue.scenario_names().into_iter().enumerate().filter(|(place, _)| wanted(*place));
    names.filter_map(|(_, name)| load(name)).collect()
}

/// Without a time profile in its own.
fn run(
    catalogue: &Catalogue,
    scenario: Scenario,
    seed: u64,
    time_profile: Option<&str>,
) -> (RunResult, Vec<Observation>) {
    let choices = Choices {
        seed: Some(seed),
        time_profile: time_profile.map(str::to_owned),
        hosts: Some(HostKind::Simulated),
        ..Choices::default()
    };
    simulate::run(&prepare(scenario, catalogue, &choices, &Nowhere).unwrap())
}

fn wrong(checks: &[CheckResult]) -> String {
    let bad = |c: &&CheckResult| matches!(c.verdict, CheckVerdict::Failed | CheckVerdict::Inconclusive { .. });
    checks.iter().filter(bad).fold(String::new(), |mut text, c| {
        let _ = writeln!(text, "    {} {}: {}", c.kind.as_str(), c.name, c.message);
        text
    })
}

/// The catalogue in parts, so that they run side by side.
const PARTS: usize = 8;

/// Without those that have no form in virtual time; they have tests of their own in real time.
fn part(number: usize) -> impl Iterator<Item = (Catalogue, Scenario)> {
    let found = at_places(|place| place % PARTS == number);
    found.into_iter().filter(|(_, scenario)| !scenario.needs.contains(&Need::RealTime))
}

/// One scenario in so many is run twice with one seed: a run is most of what this costs.
const TWICE: usize = 4;

#[rstest]
fn every_scenario_passes(#[values(0, 1, 2, 3, 4, 5, 6, 7)] number: usize) {
    let mut problems = String::new();
    let mut count = 0;
    for (catalogue, scenario) in part(number) {
        let (name, faults, expected) = (scenario.name.clone(), scenario.faults.len(), scenario.expect.len());
        let again = (count % TWICE == number % TWICE).then(|| scenario.clone());
        let (result, history) = run(&catalogue, scenario, 2, Some("real"));
        if result.verdict != Verdict::Passed {
            let _ = writeln!(problems, "{name}: {}\n{}", result.verdict, wrong(&result.checks));
        }
        // The same seed gives the same history.
        if again.is_some_and(|scenario| run(&catalogue, scenario, 2, Some("real")).1 != history) {
            let _ = writeln!(problems, "{name}: two histories of one seed differ");
        }
        // Each expectation and each fault of the file is a check of its own, and the invariants are there.
        let fired = result.checks.iter().filter(|c| c.kind == CheckKind::Fault).count();
        assert_eq!(fired, faults, "{name}");
        assert!(result.checks.len() >= expected + faults + 10, "{name}: {} checks", result.checks.len());
        count += 1;
    }
    assert!(problems.is_empty(), "{problems}");
    assert!(count >= 2, "{count} scenarios prove little");
}

/// What is for machines passes with simulated hosts, too (`--hosts sim`), or says what only a machine shows: it is skipped then.
#[test]
fn what_is_for_machines_passes_without_them_or_is_skipped() {
    let catalogue = Catalogue::discover().unwrap();
    let (mut problems, mut passed, mut skipped) = (String::new(), 0, 0);
    for entry in catalogue.list() {
        let scenario = vlab_scenario::load(&catalogue.find(&entry.name).unwrap(), &catalogue).unwrap();
        let is_left_out = scenario.hosts.len() > UP_TO_HOSTS || scenario.needs.contains(&Need::RealTime);
        if is_left_out || !scenario.hosts.iter().any(|host| host.is_machine()) {
            continue;
        }
        assert_eq!(wants_machines(&scenario), None, "{}: its hosts are machines", entry.name);
        let choices = Choices { seed: Some(2), hosts: Some(HostKind::Simulated), ..Choices::default() };
        let prepared = prepare(scenario, &catalogue, &choices, &Nowhere).unwrap();
        if let Some(why) = wants_machines(&prepared.scenario) {
            assert!(why.contains("console line with"), "{why}");
            skipped += 1;
            continue;
        }
        let (result, _) = simulate::run(&prepared);
        if result.verdict != Verdict::Passed {
            let _ = writeln!(problems, "{}: {}\n{}", entry.name, result.verdict, wrong(&result.checks));
        }
        passed += 1;
    }
    assert!(problems.is_empty(), "{problems}");
    assert!(passed >= 5 && skipped >= 2, "{passed} passed, {skipped} were skipped");
}

/// Whatever has a form as resources is passed over Kubernetes, too; what has none is refused with the reason.
#[rstest]
fn every_scenario_passes_over_kubernetes(#[values(0, 1, 2, 3, 4, 5, 6, 7)] number: usize) {
    let (mut problems, mut asked, mut refused) = (String::new(), 0, 0);
    for (catalogue, scenario) in part(number) {
        let name = scenario.name.clone();
        let choices = Choices {
            seed: Some(3),
            time_profile: Some("fast".to_owned()),
            hosts: Some(HostKind::Simulated),
            api: Some(FrontDoor::Kube),
            ..Choices::default()
        };
        if scenario.api == FrontDoor::Kube {
            continue;
        }
        match prepare(scenario, &catalogue, &choices, &Nowhere) {
            Ok(prepared) => {
                let (result, _) = simulate::run(&prepared);
                if result.verdict != Verdict::Passed {
                    let _ = writeln!(problems, "{name}: {}\n{}", result.verdict, wrong(&result.checks));
                }
                asked += 1;
            }
            Err(PrepareError::Unfit { why, .. }) => {
                assert!(
                    ["`rest`", "no form", "refused", "DHCP"].iter().any(|word| why.contains(word)),
                    "{name}: {why}"
                );
                refused += 1;
            }
            Err(other) => panic!("{name}: {other}"),
        }
    }
    assert!(problems.is_empty(), "{problems}");
    assert!(asked > refused, "{asked} were asked, {refused} refused");
}

/// Does the expectation speak of a fault? Without that fault it could not be met whatever the service does.
fn speaks_of_a_fault(expectation: &Expectation) -> bool {
    let fault = |moment: &Moment| matches!(moment.seen, Seen::Fault { .. });
    match &expectation.check {
        Criterion::Eventually { moment, .. } | Criterion::Never { moment } => fault(moment),
        Criterion::Order { see, before, after, .. } => {
            fault(see) || before.as_ref().is_some_and(fault) || after.as_ref().is_some_and(fault)
        }
        _ => false,
    }
}

/// A scenario that says that a fault does no harm.
const HARMLESS: &str = "harmless";

#[rstest]
fn without_its_faults_no_scenario_passes(#[values(0, 1, 2, 3, 4, 5, 6, 7)] number: usize) {
    let mut problems = String::new();
    let mut count = 0;
    for (catalogue, mut scenario) in part(number) {
        if scenario.faults.is_empty() {
            continue;
        }
        let name = scenario.name.clone();
        let harmless = scenario.tags.iter().any(|t| t == HARMLESS);
        let own: BTreeSet<String> =
            scenario.expect.iter().filter(|e| !speaks_of_a_fault(e)).map(|e| e.name.clone()).collect();
        scenario.faults.clear();
        // What has no fault does not wait for one.
        scenario.until.seen.retain(|moment| !matches!(moment.seen, Seen::Fault { .. }));
        let (result, _) = run(&catalogue, scenario, 1, None);
        let failed = result.checks.iter().filter(|c| c.verdict == CheckVerdict::Failed && own.contains(&c.name));
        if (failed.count() == 0) != harmless {
            let _ = match harmless {
                true => writeln!(problems, "{name}: fails without its fault, which it says does no harm"),
                false => writeln!(problems, "{name}: nothing that it expects of hosts and clusters needs its faults"),
            };
        }
        assert_eq!(result.verdict == Verdict::Passed, harmless, "{name}");
        count += 1;
    }
    assert!(problems.is_empty(), "{problems}");
    assert!(count >= 2, "{count} scenarios prove little");
}

/// Each kind of fault is in a scenario that ships.
#[test]
fn every_kind_of_fault_has_a_scenario() {
    let all = scenarios();
    let used: BTreeSet<&str> = all.iter().flat_map(|(_, s)| &s.faults).map(|f| f.word()).collect();
    let missing: Vec<&str> = vlab_scenario::fault_words().into_iter().filter(|n| !used.contains(n)).collect();
    assert!(missing.is_empty(), "no scenario has {missing:?}");
}

/// A fault that is declared and never comes makes a run fail, and is named.
#[test]
fn a_fault_that_never_fires_fails_the_run() {
    let catalogue = Catalogue::discover().unwrap();
    let source = catalogue.find("host-fails-in-the-middle").unwrap();
    let mut scenario = vlab_scenario::load(&source, &catalogue).unwrap();
    let mut never = scenario.faults[0].clone();
    never.name = "never".into();
    never.when = vlab_scenario::ActionTime::At("100h".parse().unwrap());
    scenario.faults.push(never);
    let (result, history) = run(&catalogue, scenario, 1, Some("real"));
    assert_eq!(result.verdict, Verdict::Failed);
    assert_eq!(result.exit_code, 1);
    let failed: Vec<_> = result.checks.iter().filter(|c| c.verdict == CheckVerdict::Failed).collect();
    assert_eq!(failed.iter().map(|c| (c.kind, c.name.as_str())).collect::<Vec<_>>(), [(CheckKind::Fault, "never")]);
    assert!(failed[0].message.contains("never began"), "{}", failed[0].message);
    let lives = vlab_judge::lives::lives(&history);
    assert!(lives["disk-of-master"].effect.is_some() && !lives.contains_key("never"));
}
