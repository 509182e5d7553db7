//! The pivot oracle: a good pivot holds and is measured; control planes that do it wrong are caught by name.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;

use rstest::rstest;
use vlab_agents::Alteration;
use vlab_agents::ingress::LAB_INGRESS_PEM;
use vlab_drive::prepare::{Choices, Nowhere, prepare};
use vlab_drive::simulate::simulate;
use vlab_history::Recorder;
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict};
use vlab_judge::verdict::{Judgement, judge};
use vlab_model::history::RunEnd;
use vlab_model::pivot::{MULTI_NODE, PivotMoment, SINGLE_NODE};
use vlab_scenario::{Catalogue, Pivot, PivotOrder};

/// Runs a scenario of the catalogue with a pivot of our own, and a control plane that may be built wrong.
fn run(scenario: &str, pivot: Pivot, alteration: Option<Alteration>) -> Judgement {
    let catalogue = Catalogue::discover().unwrap();
    let mut scenario = vlab_scenario::load(&catalogue.find(scenario).unwrap(), &catalogue).unwrap();
    scenario.pivot = Some(pivot);
    // What goes wrong here does so soon, and some of it never ends.
    scenario.budgets.total = "2h".parse().unwrap();
    let choices = Choices { seed: Some(1), time_profile: Some("real".to_owned()), ..Choices::default() };
    let prepared = prepare(scenario, &catalogue, &choices, &Nowhere).unwrap();
    let mut score =
        prepared.conductor_config(prepared.info("virtual", true, BTreeMap::new()), LAB_INGRESS_PEM.to_owned());
    score.alteration = alteration;
    let simulated = simulate(score, prepared.core_config("http://127.0.0.1:8090"), Recorder::new(None));
    let history = simulated.conductor.finish(simulated.now, RunEnd::Ended);
    judge(&prepared.scenario, prepared.clock_scale, &history)
}

fn strict(stages: &[(PivotMoment, &str)], within: &str) -> Pivot {
    Pivot {
        order: PivotOrder::Strict,
        within: Some(within.parse().unwrap()),
        stages: stages.iter().map(|(m, span)| (*m, span.parse().unwrap())).collect(),
        line: 1,
    }
}

fn failed(judgement: &Judgement) -> BTreeMap<&str, &CheckResult> {
    let bad = judgement.checks.iter().filter(|c| c.verdict == CheckVerdict::Failed);
    bad.map(|c| (c.name.as_str(), c)).collect()
}

#[rstest]
#[case::three_masters("ha-3-2", MULTI_NODE)]
#[case::single_node("sno", SINGLE_NODE)]
fn a_good_pivot_holds_and_is_measured(#[case] scenario: &str, #[case] order: &[PivotMoment]) {
    let judgement = run(scenario, strict(&[(PivotMoment::BootkubeDone, "1h")], "2h"), None);
    assert!(failed(&judgement).is_empty(), "{:?}", failed(&judgement).keys());
    let pivot = &judgement.pivots[0];
    assert!(pivot.bootstrap.is_some());
    assert_eq!(
        pivot.moments.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(),
        order.iter().map(|m| m.as_str()).collect::<Vec<_>>()
    );
    assert!(pivot.moments.iter().all(|m| !m.is_bad()), "{:?}", pivot.moments);
    // The stages are the whole.
    let sum: f64 = pivot.moments.iter().filter_map(|m| m.took_ms).sum();
    assert!((sum - pivot.took_ms.unwrap()).abs() < 1.0, "{sum} {:?}", pivot.took_ms);
    let checks = judgement.checks.iter().filter(|c| c.kind != CheckKind::Invariant && c.name.contains("pivot")).count();
    assert_eq!(checks, order.len() + 1 + 2, "each moment, the quorum, and two budgets");
    // What must hold of the pivot in every run was looked at.
    let held = |id: &str| judgement.checks.iter().any(|c| c.name.starts_with(id) && c.verdict == CheckVerdict::Passed);
    assert_eq!((held("pivot-order:"), held("workers-wait:")), (scenario == "ha-3-2", scenario == "ha-3-2"));
}

#[test]
fn a_stage_that_takes_too_long_is_named_with_its_host() {
    let judgement = run("ha-3-2", strict(&[(PivotMoment::SecondMasterJoined, "1ms")], "1s"), None);
    let failed = failed(&judgement);
    assert_eq!(
        failed.keys().copied().collect::<Vec<_>>(),
        ["budget: pivot (ha)", "budget: pivot second-master-joined (ha)"]
    );
    let late = failed["budget: pivot second-master-joined (ha)"];
    assert_eq!(late.kind, CheckKind::Budget);
    let host = late.subject.as_deref().unwrap();
    assert!(
        host.starts_with("master-") && late.message.contains(&format!("on {host}, at most 1ms")),
        "{}",
        late.message
    );
}

#[test]
fn a_bootstrap_that_reboots_one_master_too_early_is_caught_by_name() {
    let judgement = run("ha-3-2", strict(&[], "2h"), Some(Alteration::RebootsTooEarly));
    let failed = failed(&judgement);
    // The first companion is there, the second is not, and will never be.
    assert!(!failed.contains_key("pivot of ha: first-master-joined"));
    let second = failed["pivot of ha: second-master-joined"];
    assert!(
        second.message.starts_with("it was never seen, and bootstrap-reboot (master-") && second.seq.is_some(),
        "{}",
        second.message
    );
    let invariant = failed.iter().find(|(name, _)| name.starts_with("pivot-order:")).unwrap().1;
    assert!(invariant.message.contains("before 2 other masters are ready"), "{}", invariant.message);
}

#[test]
fn a_lost_quorum_is_caught_by_name() {
    let judgement = run("ha-3-2", strict(&[], "2h"), Some(Alteration::LosesQuorum));
    let failed = failed(&judgement);
    let quorum = failed["pivot of ha: etcd keeps its quorum"];
    assert!(quorum.message.contains(" without master-"), "{}", quorum.message);
    assert!(quorum.subject.as_deref().unwrap().starts_with("master-"));
}

#[test]
fn a_skipped_bootkube_is_caught_by_name() {
    let judgement = run("ha-3-2", strict(&[], "2h"), Some(Alteration::SkipsBootkube));
    let failed = failed(&judgement);
    let bootkube = failed["pivot of ha: bootkube-done"];
    assert!(bootkube.message.starts_with("it was never seen, and etcd-quorum"), "{}", bootkube.message);
    let others: Vec<_> = failed.keys().filter(|n| n.starts_with("pivot of ha:")).collect();
    assert_eq!(others, [&"pivot of ha: bootkube-done"], "the moments that came are not blamed");
    assert!(failed.keys().any(|name| name.starts_with("pivot-order:")), "{:?}", failed.keys());
}

/// `order: any` wants the moments, in whatever order.
#[test]
fn without_an_order_the_moments_have_to_come() {
    let any = Pivot { order: PivotOrder::Any, within: None, stages: BTreeMap::new(), line: 1 };
    let judgement = run("ha-3-2", any, Some(Alteration::SkipsBootkube));
    let names: Vec<&str> =
        judgement.checks.iter().map(|c| c.name.as_str()).filter(|n| n.starts_with("pivot of")).collect();
    assert_eq!(names.len(), MULTI_NODE.len(), "no quorum is judged: {names:?}");
    assert!(failed(&judgement).contains_key("pivot of ha: bootkube-done"));
}
