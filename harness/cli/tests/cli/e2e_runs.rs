//! Whole runs: what a run folder holds, what a failure says, and that no secret of the run is in any file.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use rstest::rstest;
use vlab_drive::prepare::Choices;
use vlab_judge::result::{CheckKind, CheckVerdict, Verdict};
use vlab_model::history::{Source, What};
use vlab_run::prepare::prepare;
use vlab_scenario::Catalogue;

use crate::bench::{CliFixture, RUN, walk};

#[rstest]
#[case("sno")]
#[case("ha-3-2")]
#[case("insufficient-hardware")]
fn a_shipped_scenario_passes_and_leaves_a_whole_folder(#[case] scenario: &str) {
    let bench = CliFixture::new();
    bench.vlab(&["scenario", scenario]).ends_with(0).says(&["passed", scenario, "report.html"]);
    let latest = bench.latest();
    assert!(fs::symlink_metadata(&latest).unwrap().is_symlink());
    for name in ["started.json", "scenario.yaml", "history.jsonl", "result.json", "report.html", "service.log"] {
        assert!(fs::metadata(latest.join(name)).is_ok_and(|m| m.len() > 0), "{name} is missing or empty");
    }
    let result = bench.result();
    assert_eq!((result.verdict, result.exit_code), (Verdict::Passed, 0));
    for kind in [CheckKind::Expectation, CheckKind::Invariant, CheckKind::Leak] {
        assert!(result.checks.iter().any(|c| c.kind == kind), "no check of kind {kind:?}");
    }
    for file in &result.files {
        assert!(latest.join(&file.path).exists(), "{} is named and not there", file.path);
    }
    let junit = walk(&fs::canonicalize(&latest).unwrap())
        .into_iter()
        .find(|p| p.file_name().unwrap().to_str().unwrap().starts_with("junit_"))
        .expect("a junit file");
    let junit = fs::read_to_string(junit).unwrap();
    // One case per check, so that none is hidden in another.
    assert_eq!(junit.matches("<testcase ").count(), result.checks.len());
    let history = bench.history();
    let sources: BTreeSet<Source> = history.iter().map(|o| o.source).collect();
    for source in [Source::Database, Source::Events, Source::Poll, Source::Harness, Source::Hosts] {
        assert!(sources.contains(&source), "nothing from {source:?}");
    }
    assert!(matches!(history[0].what, What::RunStarted(_)));
    assert!(matches!(history[history.len() - 1].what, What::RunFinished { .. }));
    bench.nothing_is_left();
    // The verdict is a function of the folder.
    bench.vlab(&["check", "latest"]).ends_with(0).says(&["passed"]);
    bench.vlab(&["report", "latest"]).ends_with(0).says(&["report.html"]);
    assert_eq!(bench.result().verdict, Verdict::Passed);
}

/// The kubeadmin password is only known while the cluster is there: it is asked for during the run.
#[test]
fn no_secret_of_the_run_is_in_any_file_of_its_folder() {
    let bench = CliFixture::new();
    let mut run = bench.start(&["scenario", "ha-3-2", "--seed", "99"]);
    let done = AtomicBool::new(false);
    let mut secrets: BTreeSet<String> = BTreeSet::new();
    while !run.has_ended() && !done.load(Ordering::Relaxed) {
        let clusters = bench.ask_service_json("/api/assisted-install/v2/clusters");
        let id = clusters.as_ref().and_then(|c| c[0]["id"].as_str());
        if let Some(id) = id {
            let found = bench.ask_service_json(&format!("/api/assisted-install/v2/clusters/{id}/credentials"));
            if let Some(password) = found.as_ref().and_then(|c| c["password"].as_str()) {
                secrets.insert(password.to_owned());
                done.store(true, Ordering::Relaxed);
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    run.end(RUN).ends_with(0);
    assert_eq!(secrets.len(), 1, "the kubeadmin password was not to be had");
    let catalogue = Catalogue::discover().unwrap();
    let scenario = vlab_scenario::load(&catalogue.find("ha-3-2").unwrap(), &catalogue).unwrap();
    let prepared = prepare(scenario, &catalogue, &Choices { seed: Some(99), ..Choices::default() }).unwrap();
    let pull_secret: serde_json::Value = serde_json::from_str(&prepared.pull_secret).unwrap();
    let auth = pull_secret["auths"]["quay.io"]["auth"].as_str().unwrap();
    secrets.insert(auth.to_owned());
    let folder = fs::canonicalize(bench.latest()).unwrap();
    let files: Vec<_> = walk(&folder).into_iter().filter(|p| p.is_file()).collect();
    assert!(files.len() >= 7, "{files:?}");
    for file in files {
        let bytes = fs::read(&file).unwrap();
        for secret in &secrets {
            let found = bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
            assert!(!found, "{} holds the secret {secret}", file.display());
        }
        assert!(
            !String::from_utf8_lossy(&bytes).contains("PRIVATE KEY-----\nM"),
            "a private key in {}",
            file.display()
        );
    }
    bench.nothing_is_left();
}

#[test]
fn a_broken_expectation_fails_and_says_where_and_what_was_seen() {
    let bench = CliFixture::new();
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/sno.yaml")).unwrap();
    let broken = text
        .replace(
            "  - never: {hosts: all, stage: Failed}\n",
            "  - name: nobody ever reboots\n    never: {hosts: all, stage: Rebooting}\n",
        )
        .replace("        - Joined\n", "");
    assert_eq!(text.lines().count(), broken.lines().count(), "the scenario has changed, and this test must, too");
    let path = bench.file("broken.yaml", broken);
    let said = bench.vlab(&["scenario", &path]).ends_with(1).says(&[
        "failed",
        "the check “nobody ever reboots” failed (node-0)",
        "stage Rebooting was seen",
        "and 1 check that follows from it",
    ]);
    let follows = ["the host goes through the stages of a single node", "node-0", "step 6 is Joined, not Done"];
    bench.vlab(&["check", "latest", "--all"]).ends_with(1).says(&follows);
    let result = bench.result();
    assert_eq!((result.verdict, result.exit_code), (Verdict::Failed, 1));
    let failed: Vec<_> = result.checks.iter().filter(|c| c.verdict == CheckVerdict::Failed).collect();
    let names: Vec<_> = failed.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["the host goes through the stages of a single node", "nobody ever reboots"]);
    for check in failed {
        assert_eq!(check.last_things.len(), 10, "{check:#?}");
        // They are of the time of the failure, and shown.
        assert!(
            check.last_things.iter().any(|l| said.out.contains(l.trim())),
            "{:?} not in\n{}",
            check.last_things,
            said.out
        );
    }
    bench.vlab(&["check", "latest"]).ends_with(1).says(&["nobody ever reboots"]);
    bench.nothing_is_left();
}

/// Also between processes: addresses in memory and the order of hash tables differ there.
#[rstest]
#[case("sno")]
#[case("ha-3-2")]
fn simulated_histories_of_two_processes_are_the_same(#[case] scenario: &str) {
    let bench = CliFixture::new();
    let history = |seed: &str| bench.vlab(&["simulate", scenario, "--seed", seed, "--history"]).ends_with(0).out;
    let first = history("5");
    assert!(first.lines().count() > 100, "{} lines", first.lines().count());
    assert!(first == history("5"), "two processes, two histories");
    assert!(first != history("6"));
    // The folder of a simulated run has the same history, and is judged the same.
    bench.vlab(&["simulate", scenario, "--seed", "5"]).ends_with(0).says(&["passed"]);
    assert_eq!(fs::read_to_string(bench.latest().join("history.jsonl")).unwrap(), first);
    bench.vlab(&["check", "latest"]).ends_with(0).says(&["passed"]);
}

/// The folder of a run is enough: what the scenario names beside itself is in it, too.
#[test]
fn a_run_is_judged_again_without_the_files_that_its_scenario_names() {
    let bench = CliFixture::new();
    bench.vlab(&["simulate", "static-routes-and-dns", "--seed", "1"]).ends_with(0).says(&["passed"]);
    let kept = fs::read_to_string(bench.latest().join("resources.json")).unwrap();
    assert!(kept.contains("../profiles/nmstate/routes-and-dns.yaml") && kept.contains("NMStateConfig"), "{kept}");
    for verb in ["check", "report", "coverage"] {
        bench.vlab(&[verb, "latest"]).ends_with(0);
    }
}

const ON_THE_WAY: &str = "version: 1\nname: on-the-way\nneeds: [postgres]\nservice: {time_profile: fast}\n\
    cluster: {topology: sno}\nhosts: [{name: node}]\n";

/// Requests that come late, not at all or twice are no mistake of the service, and the cluster is installed all the same.
#[test]
fn requests_can_be_disturbed_on_their_way_in_real_time() {
    let bench = CliFixture::new();
    let text = format!("{ON_THE_WAY}interleaving: {{seed: 3, latency: 500ms, lost: 60, twice: 60}}\n");
    let file = bench.file("on-the-way.yaml", text);
    bench.vlab(&["scenario", &file]).ends_with(0).says(&["on-the-way passed"]);
    let did: BTreeSet<String> = bench
        .history()
        .iter()
        .filter_map(|o| match &o.what {
            What::Interleaved { did, .. } => Some(did.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(did.len(), 2, "{did:?}");
}

#[test]
fn an_order_is_for_virtual_time() {
    let bench = CliFixture::new();
    let file = bench.file("in-order.yaml", format!("{ON_THE_WAY}interleaving: {{any_order: true, lost: 5}}\n"));
    bench.vlab(&["scenario", &file]).ends_with(3).says(&["`any_order` of its `interleaving` is for virtual time"]);
    bench.vlab(&["simulate", &file]).ends_with(0);
}
