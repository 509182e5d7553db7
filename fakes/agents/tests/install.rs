//! Whole installations against the scripted service, in virtual time.

mod scripted;

use std::time::Duration;

use rstest::rstest;
use scripted::*;
use vlab_agents::controller::ControllerState;
use vlab_agents::*;
use vlab_api::actor::Actor;
use vlab_api::types::HostStage;
use vlab_model::history::{HostMoment, What};

const HOURS: Duration = Duration::from_secs(4 * 3600);

fn installed(seed: u64, masters: usize, workers: usize) -> Lab {
    let mut service = Service::new(masters, workers);
    service.install = true;
    let mut lab = Lab::new(fleet(seed, masters, workers), service);
    lab.run(HOURS, |lab| lab.fleet.is_finished());
    lab
}

fn position(words: &[String], word: &str) -> usize {
    words.iter().position(|w| w == word).unwrap_or_else(|| panic!("{word} did not happen: {words:?}"))
}

#[rstest]
#[case::single_node(1, 0)]
#[case::three_masters(3, 0)]
#[case::three_and_two(3, 2)]
#[case::five_and_one(5, 1)]
fn an_installation_ends(#[case] masters: usize, #[case] workers: usize) {
    let lab = installed(1, masters, workers);
    assert!(
        lab.fleet.is_finished(),
        "still busy at {}: {:?}",
        lab.now,
        lab.service.hosts.iter().map(|h| h.stages.last()).collect::<Vec<_>>()
    );
    assert_eq!(lab.service.cluster_status, "installed");
    assert_eq!(lab.service.ingress.as_deref(), Some(ingress::LAB_INGRESS_PEM));
    assert_eq!(lab.service.completed.as_ref().unwrap()["is_success"], true);
    assert_eq!(lab.fleet.controller_state(0), Some(ControllerState::Ended));
    for host in &lab.service.hosts {
        // All legal stages but the one of the disconnected appliance.
        let mut seen = host.stages.clone();
        seen.dedup();
        let expected: Vec<_> =
            legal(host.role, host.bootstrap, masters == 1).iter().filter(|s| !s.starts_with("Copying")).collect();
        let skippable = |s: &str| s == "Configuring" || s == "Waiting for ignition" || s == "Joined";
        let missing: Vec<_> = expected.iter().filter(|s| !seen.iter().any(|x| x == **s) && !skippable(s)).collect();
        assert!(missing.is_empty(), "{}: {missing:?} missing in {seen:?}", host.id);
        assert_eq!(seen.last().map(String::as_str), Some("Done"));
    }
    let refused: Vec<_> = lab.service.log.iter().filter(|s| s.status >= 400).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    // Logs of every host and of the controller.
    let uploads = |part: &str| {
        lab.service.log.iter().filter(|s| s.request.path.contains("/logs?") && s.request.path.contains(part)).count()
    };
    assert_eq!(uploads("logs_type=host"), masters + workers);
    assert!(uploads("logs_type=controller") >= 1);
}

#[test]
fn the_inside_of_a_cluster_happens_in_order() {
    let lab = installed(7, 3, 2);
    let words: Vec<String> = lab.in_cluster().into_iter().map(|(_, _, w)| w).collect();
    let order =
        ["bootkube-started", "temporary-control-plane-up", "node-ready", "bootkube-done", "etcd-bootstrap-done"];
    for pair in order.windows(2) {
        assert!(position(&words, pair[0]) < position(&words, pair[1]), "{words:?}");
    }
    assert_eq!(words.iter().filter(|w| *w == "node-ready").count(), 5);
    assert_eq!(words.iter().filter(|w| *w == "controller-ready").count(), 1);
    position(&words, "operator-available:console");
}

/// The rule that the pivot must not break: the bootstrap reboots only when the masters carry the cluster.
#[rstest]
fn the_bootstrap_reboots_after_the_pivot(#[values(1, 2, 3, 4, 5)] seed: u64) {
    let lab = installed(seed, 3, 1);
    let bootstrap = host_id(0);
    let rebooting = lab
        .seen
        .iter()
        .position(|(_, w)| matches!(w, What::HostDid { host, what: HostMoment::Rebooting } if *host == bootstrap));
    let before: Vec<String> = lab.seen[..rebooting.unwrap()]
        .iter()
        .filter_map(|(_, w)| if let What::InCluster { what, .. } = w { Some(what.to_string()) } else { None })
        .collect();
    assert!(before.iter().filter(|w| *w == "node-ready").count() >= 2, "{before:?}");
    for word in ["bootkube-done", "etcd-bootstrap-done", "controller-ready"] {
        position(&before, word);
    }
    // And the worker leaves its wait only when two masters are done.
    let stage_at = |i: usize, stage: &str| {
        let path = format!("/hosts/{}/progress", host_id(i));
        let fits = |s: &&Sent| s.request.path.ends_with(&path) && s.progress().is_some_and(|(p, _)| p == stage);
        lab.service.log.iter().find(fits).map(|s| s.at).unwrap_or_else(|| panic!("host {i} never was in {stage}"))
    };
    let mut done: Vec<_> = (0..3).map(|i| stage_at(i, "Done")).collect();
    done.sort();
    assert!(stage_at(3, "Rebooting") > done[1]);
}

#[test]
fn percentages_grow_by_five_or_more_and_end_with_a_hundred() {
    let lab = installed(3, 1, 0);
    let texts: Vec<String> = lab
        .service
        .log
        .iter()
        .filter_map(Sent::progress)
        .filter(|(s, _)| s == "Writing image to disk")
        .map(|(_, i)| i)
        .collect();
    assert_eq!(texts[0], "");
    assert_eq!(texts.last().map(String::as_str), Some("100%"));
    let numbers: Vec<i64> = texts[1..].iter().map(|t| t.trim_end_matches('%').parse().unwrap()).collect();
    assert!(numbers.windows(2).all(|p| p[1] - p[0] >= 5), "{numbers:?}");
    assert!(numbers.len() > 10);
}

#[test]
fn a_host_that_reboots_polls_no_more_and_comes_back_as_a_node() {
    let lab = installed(3, 1, 0);
    let rebooting = lab.service.log.iter().find(|s| s.progress().is_some_and(|(p, _)| p == "Rebooting")).unwrap().at;
    assert!(!lab.service.log.iter().any(|s| s.at > rebooting && (s.is_poll() || s.is_registration())));
    assert_eq!(lab.did("booted-installed-os").len(), 1);
    assert_eq!(lab.fleet.agent(0), Some(&Agent::Node));
}

#[rstest]
#[case(HostStage::Installing)]
#[case(HostStage::WritingImageToDisk)]
#[case(HostStage::WaitingForBootkube)]
fn a_failure_is_reported_and_ends_the_installer(#[case] stage: HostStage) {
    let mut service = Service::new(1, 0);
    service.install = true;
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    let now = lab.now;
    lab.fleet.inject(now, 0, &"fire".into(), HostFault::FailsAt(stage, "the disk caught fire".into()));
    lab.run(HOURS, |_| false);
    let reports: Vec<_> = lab.service.log.iter().filter_map(Sent::progress).collect();
    assert_eq!(reports.last(), Some(&("Failed".to_owned(), "the disk caught fire".to_owned())));
    assert_eq!(reports[reports.len() - 2].0, stage.as_str());
    assert_eq!(lab.did("installer-failed").len(), 1);
    assert!(lab.did("rebooting").is_empty());
}

#[test]
fn without_its_ignition_the_installation_fails() {
    let mut service = Service::new(1, 0);
    service.install = true;
    service.misbehave =
        Box::new(|_, r| r.path.contains("bootstrap.ign").then(|| Ok(vlab_api::http::Response::empty(403))));
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(HOURS, |_| false);
    let (stage, text) = lab.service.log.iter().filter_map(Sent::progress).next_back().unwrap();
    assert_eq!(stage, "Failed");
    assert!(text.contains("403"), "{text}");
}

#[test]
fn the_installer_sits_out_an_outage() {
    let mut service = Service::new(1, 0);
    service.install = true;
    let gone = START + Duration::from_secs(600)..START + Duration::from_secs(1200);
    service.misbehave = Box::new(move |now, _| {
        gone.contains(&now).then(|| Err(vlab_api::http::TransportError::Connect("refused".into())))
    });
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(HOURS, |lab| lab.fleet.is_finished());
    assert_eq!(lab.service.cluster_status, "installed");
    assert!(lab.service.log.iter().any(|s| s.status == 0), "the outage was not noticed");
}

/// The service can have decided that the cluster is installed before the last stages are reported, and takes no more of them then.
#[test]
fn a_finalizing_stage_that_is_refused_is_not_told_again_and_ends_nothing() {
    let mut service = Service::new(1, 0);
    service.install = true;
    let is_late = |request: &vlab_api::http::Request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        request.path.ends_with("/progress")
            && ["csv initialization", "\"Done\"}"].iter().any(|late| body.contains(late))
    };
    let refused = vlab_api::http::Response::empty(400);
    service.misbehave = Box::new(move |_, request| {
        (request.path.contains("/clusters/") && is_late(request)).then(|| Ok(refused.clone()))
    });
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(HOURS, |lab| lab.fleet.is_finished());
    assert_eq!(lab.service.log.iter().filter(|sent| sent.status == 400).count(), 2, "each of both once");
    assert_eq!(lab.service.completed.as_ref().unwrap()["is_success"], true);
    assert_eq!(lab.fleet.controller_state(0), Some(ControllerState::Ended));
}

#[test]
fn olm_operators_are_waited_for() {
    let mut service = Service::new(1, 0);
    service.install = true;
    service.olm = true;
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(HOURS, |lab| lab.fleet.is_finished());
    assert_eq!(lab.service.olm_status, "available");
    assert_eq!(lab.service.cluster_status, "installed");
    let stages: Vec<String> = lab
        .service
        .log
        .iter()
        .filter(|s| {
            s.request.path.ends_with("/c1/progress")
                || s.request.path.contains("clusters") && s.request.path.ends_with("/progress")
        })
        .map(|s| {
            serde_json::from_slice::<serde_json::Value>(&s.request.body).unwrap()["finalizing_stage"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        stages,
        [
            "Waiting for cluster operators",
            "Adding router ca",
            "Waiting for olm operators csv initialization",
            "Applying olm manifests",
            "Waiting for olm operators csv",
            "Done"
        ]
    );
}

#[test]
fn the_discovery_image_that_boots_again_registers_again() {
    let mut service = Service::new(1, 0);
    service.install = true;
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    let now = lab.now;
    lab.fleet.inject(now, 0, &"boot order".into(), HostFault::BootsDiscovery);
    lab.run(HOURS, |_| false);
    assert_eq!(lab.did("registered").len(), 2);
    assert!(lab.did("booted-installed-os").is_empty());
    let now = lab.now;
    lab.fleet.clear(now, "boot order");
    lab.run(HOURS, |lab| lab.fleet.is_finished());
    assert_eq!(lab.service.cluster_status, "installed");
}

#[test]
fn a_crash_while_the_image_is_written_boots_the_discovery_image() {
    let mut service = Service::new(1, 0);
    service.install = true;
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(HOURS, |lab| lab.service.log.last().and_then(Sent::progress).is_some_and(|(_, info)| info == "50%"));
    let now = lab.now;
    lab.fleet.reboot(now, 0, &"crash".into());
    lab.run(Duration::from_secs(600), |_| false);
    assert_eq!(lab.did("booted-discovery").len(), 2);
    assert_eq!(lab.did("registered").len(), 2);
}

#[test]
fn the_same_seed_sends_the_same_and_another_seed_does_not() {
    let first = installed(42, 3, 2);
    for _ in 0..3 {
        let again = installed(42, 3, 2);
        assert!(first.service.log == again.service.log, "the requests differ");
        assert!(first.seen == again.seen, "the observations differ");
    }
    assert!(first.service.log != installed(43, 3, 2).service.log, "another seed made no difference");
}
