//! Causes of made-up histories.

use rstest::rstest;
use vlab_api::types::{HostStage, HostStatus};
use vlab_history::Recorder;
use vlab_model::history::{ActionKind, ClusterMoment, FaultPhase, HostsKind, Source, UserVerb, What};
use vlab_scenario::{Catalogue, SourceFile};

use super::*;
use crate::result::{CheckKind, CheckVerdict, RunResult};
use crate::verdict::judge;

const CLUSTER: Uuid = Uuid::from_u128(100);

fn host(n: u128) -> Uuid {
    Uuid::from_u128(n + 1)
}

fn scenario(more: &str) -> Scenario {
    let text = format!(
        "version: 1\nname: t\ncluster: {{name: c, topology: compact, user_managed_networking: true}}\n\
         hosts: [{{name: m, count: 3}}]\n{more}\n"
    );
    let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded());
    scenario.unwrap_or_else(|e| panic!("{e}"))
}

/// A history of three hosts and their cluster: these things, one every second.
fn recorded(things: Vec<What>) -> Recorder {
    let mut recorder = Recorder::new(None);
    let mut second = 0;
    let mut see = |what: What| {
        let source = match what {
            What::Fault { .. } | What::HostNamed { .. } | What::ClusterNamed { .. } => Source::Harness,
            What::Console { .. } => Source::Console,
            _ => Source::Database,
        };
        second += 1;
        recorder.record(source, None, Timestamp::from_secs(second), what);
    };
    see(What::ClusterNamed { cluster: CLUSTER, name: "c".into(), vip_dhcp: false });
    for n in 0..3 {
        see(What::HostNamed { host: host(n), name: format!("m-{n}"), kind: HostsKind::Vm });
        see(status(n, None, HostStatus::Installing, ""));
    }
    things.into_iter().for_each(see);
    recorder
}

fn status(n: u128, from: Option<HostStatus>, to: HostStatus, info: &str) -> What {
    What::HostStatus { host: host(n), cluster: Some(CLUSTER), from, to, info: info.into() }
}

fn error(n: u128, info: &str) -> What {
    status(n, Some(HostStatus::Installing), HostStatus::Error, info)
}

fn stage(n: u128, to: HostStage, info: &str) -> What {
    What::HostStage { host: host(n), from: None, to: Some(to), info: info.into(), percentage: 0 }
}

fn cluster_error() -> What {
    let (from, to) = (Some(ClusterStatus::Installing), ClusterStatus::Error);
    What::ClusterStatus { cluster: CLUSTER, from, to, info: "cluster has hosts in error".into() }
}

fn says(n: u128, line: &str) -> What {
    What::Console { machine: format!("m-{n}"), line: line.into(), finding: None }
}

/// The result of a run that the history is of, without invariants: a made-up history breaks some.
fn judged(more: &str, things: Vec<What>) -> RunResult {
    let scenario = scenario(more);
    let recorder = recorded(things);
    let mut checks = judge(&scenario, 1.0, recorder.observations()).checks;
    checks.retain(|check| check.kind == CheckKind::Expectation);
    let found = find(&Timeline::new(recorder.observations()), &scenario, &checks);
    let follows = found.as_ref().map(|found| found.follows.clone()).unwrap_or_default();
    follows.into_iter().for_each(|place| checks[place].follows = true);
    let mut result = RunResult { checks, cause: found.map(|found| found.cause), ..RunResult::default() };
    result.conclude();
    result
}

/// Names of the failed expectations that stand for themselves.
fn separate(result: &RunResult) -> Vec<&str> {
    let own = |c: &&CheckResult| c.verdict == CheckVerdict::Failed && !c.follows && c.kind == CheckKind::Expectation;
    result.checks.iter().filter(own).map(|c| c.name.as_str()).collect()
}

#[test]
fn two_installers_that_give_up_are_one_cause() {
    let words = "failed after 3 attempts: coreos-installer: write /dev/vda: Input/output error";
    let result = judged(
        "expect:\n  - never: {hosts: all, status: error}\n  - eventually: {cluster: c, status: installed}\n\
         \x20 - eventually: {hosts: all, status: installed}",
        vec![
            stage(1, HostStage::WritingImageToDisk, ""),
            says(1, "coreos-installer: Error: write: Input/output error"),
            stage(1, HostStage::Failed, words),
            error(1, words),
            stage(2, HostStage::WritingImageToDisk, ""),
            stage(2, HostStage::Failed, words),
            error(2, words),
            cluster_error(),
            error(0, "cluster is not going to be installed"),
        ],
    );
    let cause = result.cause.clone().unwrap();
    assert_eq!(
        cause.line(),
        format!("the installer on m-1 gave up in the stage Writing image to disk (and so did m-2): {words}")
    );
    assert_eq!((cause.kind, cause.subject.as_deref()), (CauseKind::InstallerFailed, Some("m-1")));
    assert_eq!(cause.console, ["coreos-installer: Error: write: Input/output error"]);
    assert!(cause.around.iter().any(|line| line.contains("stage Failed")), "{:?}", cause.around);
    assert!(separate(&result).is_empty(), "{:?}", separate(&result));
    assert_eq!(result.followers().len(), 3);
    assert_eq!(result.reason, Some(cause.line()));
}

#[test]
fn what_the_scenario_brings_about_is_no_cause() {
    let fault = |host| What::Fault {
        name: "f".into(),
        phase: FaultPhase::Begin,
        inject: "crash".into(),
        host: Some(host),
        cluster: None,
        detail: String::new(),
    };
    let result = judged(
        "faults: [{name: f, at: 1s, target: m-0, inject: crash}]\n\
         expect:\n  - eventually: {host: m-0, status: error}\n  - never: {host: m-1, status: error}",
        vec![fault(host(0)), error(0, "it was silent for too long"), error(1, "nobody knows why")],
    );
    let cause = result.cause.unwrap();
    assert_eq!(cause.line(), "m-1 went from installing to error: nobody knows why");
}

/// A fault of the scenario that an expectation does not survive: its effect is the cause, and not who else was left where it was.
#[test]
fn where_only_the_scenarios_own_fault_is_in_the_way_it_is_the_cause() {
    let fault = What::Fault {
        name: "f".into(),
        phase: FaultPhase::Begin,
        inject: "disk-fails".into(),
        host: Some(host(1)),
        cluster: None,
        detail: String::new(),
    };
    let result = judged(
        "faults: [{name: f, at: 1s, target: m-1, inject: disk-fails}]\n\
         expect:\n  - eventually: {cluster: c, status: installed}\n  - eventually: {hosts: all, status: installed}",
        vec![
            fault,
            status(1, Some(HostStatus::Installing), HostStatus::InstallingInProgress, ""),
            stage(1, HostStage::WritingImageToDisk, ""),
            stage(1, HostStage::Failed, "Input/output error"),
            error(1, "Input/output error"),
            cluster_error(),
        ],
    );
    let cause = result.cause.clone().unwrap();
    assert_eq!(cause.line(), "the installer on m-1 gave up in the stage Writing image to disk: Input/output error");
    assert!(separate(&result).is_empty(), "{:?}", separate(&result));
}

#[test]
fn what_is_asked_for_is_no_cause_and_its_consequence_is() {
    let result = judged(
        "expect:\n  - eventually: {host: m-0, status: error}\n  - never: {cluster: c, status: error}",
        vec![error(0, "as it must be"), cluster_error()],
    );
    assert_eq!(result.cause.unwrap().line(), "cluster c went from installing to error: cluster has hosts in error");
}

#[test]
fn a_check_about_another_host_stands_for_itself() {
    let away = status(2, Some(HostStatus::Installing), HostStatus::Disconnected, "no contact");
    let result = judged(
        "expect:\n  - {name: away, never: {host: m-2, status: disconnected}}\n\
         \x20 - {name: wrong, never: {host: m-1, status: error}}\n\
         \x20 - {name: late, eventually: {host: m-2, status: installed}}",
        vec![away, error(1, "something else")],
    );
    assert_eq!(
        result.cause.as_ref().unwrap().line(),
        "m-2 fell silent and went from installing to disconnected: no contact"
    );
    assert_eq!(separate(&result), ["wrong"]);
}

#[test]
fn where_nothing_comes_it_is_who_stays_behind() {
    let done = |n| status(n, Some(HostStatus::Installing), HostStatus::InstallingInProgress, "");
    let begun =
        What::ClusterStatus { cluster: CLUSTER, from: None, to: ClusterStatus::Installing, info: String::new() };
    let result = judged("expect: [{eventually: {cluster: c, status: installed}}]", vec![begun, done(0), done(2)]);
    let cause = result.cause.unwrap();
    assert_eq!((cause.kind, cause.subject.as_deref()), (CauseKind::Stuck, Some("m-1")));
    assert_eq!(cause.title, "m-1 stayed installing to the end of the run");
}

#[test]
fn a_failed_check_that_nothing_precedes_is_the_cause() {
    let result = judged(
        "expect: [{name: it does, never: {host: m-0, stage: Rebooting}}]",
        vec![stage(0, HostStage::Rebooting, "")],
    );
    let cause = result.cause.as_ref().unwrap();
    assert_eq!((cause.kind, cause.check.as_deref()), (CauseKind::Check, Some("it does")));
    assert_eq!(cause.title, "the check “it does” failed (m-0)");
    assert!(result.followers().iter().all(|check| check.name != "it does"));
}

#[rstest]
#[case::booted(ActionKind::BootDiscovery, 0, CauseKind::Check)]
#[case::unbound(ActionKind::Unbind, 0, CauseKind::Check)]
#[case::another(ActionKind::Unbind, 1, CauseKind::ControlPlane)]
#[case::something_else(ActionKind::PatchHost, 0, CauseKind::ControlPlane)]
fn what_a_cluster_lacks_whose_host_the_user_takes_is_no_cause(
    #[case] action: ActionKind,
    #[case] taken: u128,
    #[case] kind: CauseKind,
) {
    let (action, reason) = (UserVerb::Action(action), String::new());
    let result = judged(
        "expect: [{eventually: {host: m-0, status: known-unbound}}]",
        vec![
            What::UserAction { action, subject: Some(host(taken)), status: 200, reason, planned: None },
            What::InCluster { cluster: CLUSTER, host: Some(host(0)), what: ClusterMoment::EtcdQuorumLost },
        ],
    );
    let cause = result.cause.unwrap();
    assert_eq!(cause.kind, kind, "{cause:?}");
}

#[test]
fn a_run_that_has_not_failed_has_no_cause() {
    let scenario = scenario("");
    let recorder = recorded(vec![error(0, "x")]);
    let timeline = Timeline::new(recorder.observations());
    let passed = CheckResult::new(CheckKind::Expectation, "fine", CheckVerdict::Passed);
    assert_eq!(find(&timeline, &scenario, std::slice::from_ref(&passed)), None);
    let lab = CheckResult::new(CheckKind::Lab, "memory", CheckVerdict::Failed);
    let failed = CheckResult::new(CheckKind::Expectation, "bad", CheckVerdict::Failed);
    assert_eq!(find(&timeline, &scenario, &[passed, lab, failed]), None);
}

#[test]
fn results_of_other_versions_are_read() {
    let cause: Cause = serde_json::from_str(r#"{"kind":"of-tomorrow","title":"t"}"#).unwrap();
    assert_eq!((cause.kind, cause.line().as_str()), (CauseKind::Other, "t"));
    let check: CheckResult = serde_json::from_str(r#"{"name":"n","kind":"lab","verdict":"passed"}"#).unwrap();
    assert!(!check.follows);
}
