//! The simulated service passes every check.

use rstest::rstest;
use vlab_conformance::memory::Services;
use vlab_conformance::suite::Count;
use vlab_conformance::{ConformanceVerdict, Need, table};

use crate::{OF_THE_SHELL, on_operator, over_kube, run, settings};

/// Checks that the simulated service skips, with the reason: it has no image service here.
const SKIPPED: &[&str] = &[
    "service/image-url",
    "service/image-url/changed",
    "events/sent/image_info_updated",
    "infra-envs/ipxe/all-kernel-arguments",
    "infra-envs/unknown-version",
];

#[tokio::test]
async fn the_simulated_service_passes_all_checks() {
    let outcomes = run(&[OF_THE_SHELL], settings("1s"), None).await;
    let bad: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| match &outcome.verdict {
            ConformanceVerdict::Passed => None,
            ConformanceVerdict::Skipped { .. } if SKIPPED.contains(&outcome.id.as_str()) => None,
            other => Some(format!("{}: {other:?}", outcome.id)),
        })
        .collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    let count = Count::of(&outcomes);
    assert_eq!(count.skipped, SKIPPED.len());
    // The suite must not shrink unseen.
    assert!(count.passed >= 800, "{count:?}");
    // A check removes what it has made.
    let left: Vec<String> = outcomes.iter().flat_map(|o| o.left.iter().map(|l| format!("{}: {l}", o.id))).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// In memory there can be an image service, too: nothing is skipped for good.
#[tokio::test]
async fn what_needs_an_image_service_passes_with_one() {
    let services = Services::new(settings("1s")).await.unwrap();
    let checks = table::built_in().unwrap().into_iter().filter(|check| check.needs.contains(&Need::ImageService));
    let mut performed = 0;
    for check in checks {
        let outcome = services.perform(&check, None).await.unwrap();
        assert_eq!(outcome.verdict, ConformanceVerdict::Passed, "{}", outcome.id);
        performed += 1;
    }
    assert_eq!(performed, SKIPPED.len());
}

/// Over Kubernetes: an API server and the controllers are in memory, too. Each part is a test of its own, so that they run at once.
#[rstest]
#[case::clusters(&["resources", "installation", "manifests"])]
#[case::infra_envs(&["infra-envs", "bare-metal", "classifications"])]
#[case::agents(&["agents", "binding", "deletion"])]
#[case::changes(&["changes", "specs"])]
#[case::mirrors(&["mirrors", "service-config"])]
#[case::spoke(&["spoke", "status"])]
#[case::clients(&["clients"])]
#[case::converged(&["converged"])]
#[tokio::test]
async fn the_simulated_controllers_pass_all_checks(#[case] areas: &[&str]) {
    let services = Services::new(settings("1s")).await.unwrap();
    let mut bad = Vec::new();
    for check in table::over_kubernetes().unwrap().into_iter().filter(|check| areas.contains(&check.area.as_str())) {
        let outcome = services.perform(&check, None).await.unwrap();
        if outcome.verdict != ConformanceVerdict::Passed || !outcome.left.is_empty() {
            bad.push(format!("{}: {:?} {:?}", outcome.id, outcome.verdict, outcome.left));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Hosts are shared with metal3 only where the hub's operator and the setting want it: else it is as without an operator.
#[rstest]
#[case::not_allowed("false", "4.20.0", "bare-metal/own", true)]
#[case::older("true", "4.11.0-0.nightly-2022-06-15-222801", "bare-metal/own", true)]
#[case::shared("true", "4.20.0", "bare-metal/own", false)]
#[case::first_of_them("true", "4.12.0-0.alpha", "converged/own", true)]
#[tokio::test]
async fn hosts_are_shared_where_both_want_it(
    #[case] allowed: &str,
    #[case] version: &str,
    #[case] id: &str,
    #[case] passes: bool,
) {
    let mut settings = settings("1s");
    settings.apply_vars([("ALLOW_CONVERGED_FLOW", allowed)]).unwrap();
    let check = table::over_kubernetes().unwrap().into_iter().find(|check| check.id == id).unwrap();
    let outcome = on_operator(&check, settings, version).await;
    assert_eq!(outcome.verdict == ConformanceVerdict::Passed, passes, "{:?}", outcome.verdict);
}

/// The suite must not shrink unseen, and no area may be left out above.
#[test]
fn each_area_over_kubernetes_is_performed() {
    let checks = table::over_kubernetes().unwrap();
    assert!(checks.len() >= 320, "{}", checks.len());
    let areas: std::collections::BTreeSet<&str> = checks.iter().map(|check| check.area.as_str()).collect();
    let performed = [
        "agents",
        "bare-metal",
        "binding",
        "changes",
        "classifications",
        "clients",
        "converged",
        "deletion",
        "infra-envs",
        "installation",
        "manifests",
        "mirrors",
        "resources",
        "service-config",
        "specs",
        "spoke",
        "status",
    ];
    assert_eq!(areas.into_iter().collect::<Vec<_>>(), performed);
}

/// Controllers that say something else than they should are noticed.
#[rstest]
#[case::another_reason("resources/cluster/registered", "SyncOK", "SyncedOK")]
#[case::another_state("installation/held", "InstallationOnHold", "InstallationNotStarted")]
#[case::an_open_door("resources/cluster/schema", "\"code\":422", "\"code\":409")]
#[case::no_finalizer("agents/owned", "agent.agent-install.openshift.io/ai-deprovision", "agent/none")]
#[tokio::test]
async fn wrong_controllers_are_noticed(#[case] id: &str, #[case] right: &str, #[case] wrong: &str) {
    let check = table::over_kubernetes().unwrap().into_iter().find(|check| check.id == id).unwrap();
    assert_eq!(over_kube(&check, None).await.verdict, ConformanceVerdict::Passed);
    let outcome = over_kube(&check, Some((right.to_owned(), wrong.to_owned()))).await;
    assert!(matches!(outcome.verdict, ConformanceVerdict::Failed { .. }), "{:?}", outcome.verdict);
}
