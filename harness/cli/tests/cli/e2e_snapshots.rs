//! Labs that are frozen and go on: with simulated hosts, a real PostgreSQL and a service that is a process. Machines are in `vm_installs.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rstest::rstest;
use vlab_judge::result::Verdict;
use vlab_model::history::What;

use crate::bench::{CliFixture, Said, walk};

/// Each file of a snapshot with its content.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    walk(folder).into_iter().filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn frozen(bench: &CliFixture, scenario: &str, moment: &str) -> PathBuf {
    let said = bench.vlab(&["scenario", scenario, "--hosts", "sim", "--snapshot-at", moment, "--snapshot", "snap"]);
    said.ends_with(0).says(&["is frozen at", "--from snap"]);
    bench.nothing_is_left();
    bench.path("snapshots/snap")
}

/// The single node of the catalogue with a fault.
fn with_fault(bench: &CliFixture, fault: &str) -> String {
    let sno = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/sno.yaml")).unwrap();
    assert!(!sno.contains("\nfaults:"), "it has faults of its own");
    bench.file("faulty.yaml", format!("{sno}\nfaults:\n- {fault}\n"))
}

/// At any moment: while hosts register, while they install, in the pivot, while the cluster is finished.
#[rstest]
#[case("sno", "bootkube done")]
#[case("ha-3-2", "host known")]
#[case("ha-3-2", "cluster installing")]
#[case("ha-3-2", "Rebooting")]
#[case("ha-3-2", "cluster finalizing")]
fn a_frozen_run_goes_on_as_if_nothing_had_been(#[case] scenario: &str, #[case] moment: &str) {
    let bench = CliFixture::new();
    let folder = frozen(&bench, scenario, moment);
    let before = content(&folder);
    for _ in 0..2 {
        bench.vlab(&["scenario", "--from", "snap"]).ends_with(0).says(&[&format!("{scenario} passed")]);
        bench.nothing_is_left();
    }
    assert_eq!(content(&folder), before, "who goes on changes nothing of it");
    // The history has all of it: what was before the snapshot, and after.
    let (result, history) = (bench.result(), bench.history());
    assert_eq!(result.verdict, Verdict::Passed);
    assert!(result.how_to_repeat.contains(" --from "), "{}", result.how_to_repeat);
    assert!(matches!(history[0].what, What::RunStarted(_)));
    let goes_on = |what: &What| matches!(what, What::Note { text } if text.starts_with("the run goes on from"));
    let at = history.iter().position(|o| goes_on(&o.what)).unwrap();
    assert!(at > 10 && at < history.len() - 10, "{at} of {}", history.len());
    let away = history[at].harness_time.since(history[at - 1].harness_time);
    assert!(away.as_secs() < 20, "{away:?} between what was before the snapshot and what is after");
}

#[test]
fn a_branch_may_do_otherwise_after_the_snapshot_and_not_before() {
    let bench = CliFixture::new();
    frozen(&bench, "sno", "cluster installing");
    let restart = "target: service, inject: service-restart, with: {down: 5s}";
    let after = with_fault(&bench, &format!("{{name: away, at: {{host: node-0, stage: Rebooting}}, {restart}}}"));
    bench.vlab(&["scenario", &after, "--from", "snap"]).ends_with(0).says(&["passed"]);
    let away = |what: &What| matches!(what, What::Fault { name, .. } if name == "away");
    assert!(bench.history().iter().any(|o| away(&o.what)), "the fault of the branch did not happen");
    let before = with_fault(&bench, &format!("{{name: early, at: {{host: node-0, status: known}}, {restart}}}"));
    let said = bench.vlab(&["scenario", &before, "--from", "snap"]).ends_with(2);
    said.says(&["cannot go on from", "before the snapshot this scenario does otherwise", "the fault early begins"]);
    bench.vlab(&["scenario", "sno", "--from", "snap", "--seed", "4"]).ends_with(2).says(&["the seed of the run"]);
    bench
        .vlab(&["scenario", "sno", "--from", "snap", "--hosts", "vm"])
        .ends_with(2)
        .says(&["the kind of hosts of the run"]);
    // Unless that is what the environment wants of every run.
    let said: Said =
        bench.command(&["scenario", "sno", "--from", "snap"]).env("VLAB_HOSTS", "vm").output().unwrap().into();
    said.ends_with(0).says(&["passed"]);
    bench.nothing_is_left();
}

#[rstest]
#[case(&["--snapshot-at", "bootkube dnoe"], 2, "did you mean `bootkube-done`")]
#[case(&["--snapshot-at", "nod-0: Joined"], 2, "did you mean `node-0`")]
#[case(&["--snapshot-at", "Rebooting", "--api", "kube"], 2, "over Kubernetes cannot be frozen")]
#[case(&["--snapshot-at", "Rebooting", "--service", "remote:http://127.0.0.1:9"], 2, "cannot be frozen: only a service that is a process")]
#[case(&["--snapshot-at", "host disconnected"], 3, "was not seen until the end of the run: nothing was frozen")]
#[case(&["--snapshot-at", "Rebooting", "--retries", "1"], 2, "cannot be used with")]
#[case(&["--snapshot", "x"], 2, "--snapshot-at")]
#[case(&["--from", "nowhere"], 2, "is no snapshot: it has no snapshot.json")]
fn what_cannot_be_frozen_is_told(#[case] options: &[&str], #[case] code: i32, #[case] words: &str) {
    let bench = CliFixture::new();
    let arguments = [&["scenario", "sno", "--hosts", "sim"], options].concat();
    bench.vlab(&arguments).ends_with(code).says(&[words]);
    assert!(!bench.path("snapshots").exists() || bench.vlab(&["snapshots"]).out.is_empty());
    bench.nothing_is_left();
}

/// What a fault does to a program or a machine is nowhere written down.
#[test]
fn nothing_is_frozen_while_a_fault_is_under_way() {
    let bench = CliFixture::new();
    let when = "at: {host: node-0, status: known}, until: {host: node-0, stage: Rebooting}";
    let scenario = with_fault(
        &bench,
        &format!(
            "{{name: slow, {when}, target: gateway, inject: slow-answer, with: {{by: 2s, operation: v2UpdateHostInstallProgress}}}}"
        ),
    );
    let said =
        bench.vlab(&["scenario", &scenario, "--hosts", "sim", "--snapshot-at", "cluster installing"]).ends_with(3);
    said.says(&["a fault is under way (slow)"]);
    bench.nothing_is_left();
}

/// A service that says at the end of an installation twice that it is done: found from a snapshot in the middle, and written as a scenario that
/// goes on from it.
#[test]
fn what_is_drawn_goes_on_from_a_snapshot() {
    let bench = CliFixture::new();
    frozen(&bench, "sno", "bootkube done");
    let findings = bench.path("findings");
    let wrong = "event/cluster_installation_completed/twice";
    let how = ["explore", "--from", "snap", "--runs", "1", "--again", "1", "--shrink-runs", "8", "--longest", "30"];
    let where_to = ["--alteration", wrong, "--findings", findings.to_str().unwrap()];
    let said = bench.vlab(&[&how[..], &where_to[..]].concat()).ends_with(1);
    said.says(&["found: ", "runs from ", "different things are wrong", "cluster_installation_completed"]);
    let files: Vec<_> =
        walk(&findings).into_iter().filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
    assert!(!files.is_empty());
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        assert!(
            text.contains("# It goes on from a snapshot: vlab scenario sno --hosts sim --snapshot-at 'bootkube done'"),
            "{text}"
        );
        assert!(text.contains("\nname: sno\n"), "{text}");
    }
    // Without what was wrong with the service nothing is wrong.
    bench.vlab(&["scenario", files[0].to_str().unwrap(), "--from", "snap"]).ends_with(0);
    // A session knows what its runs went on from.
    bench.vlab(&["rerun", "--all"]).ends_with(0).says(&["passed"]);
    let goes_on = |what: &What| matches!(what, What::Note { text } if text.starts_with("the run goes on from"));
    assert!(bench.history().iter().any(|o| goes_on(&o.what)), "it began anew");
    bench.nothing_is_left();
}

#[test]
fn snapshots_are_listed_and_removed_and_others_are_refused_by_name() {
    let bench = CliFixture::new();
    let folder = frozen(&bench, "sno", "host known");
    bench.vlab(&["snapshots"]).ends_with(0).says(&["snap: sno at `host known`", "hosts: simulated"]);
    let again = bench.vlab(&["scenario", "sno", "--hosts", "sim", "--snapshot-at", "host known", "--snapshot", "snap"]);
    again.ends_with(2).says(&["is there already"]);
    let manifest = folder.join("snapshot.json");
    let text = fs::read_to_string(&manifest).unwrap().replace("\"format\": 1", "\"format\": 99");
    fs::write(&manifest, text).unwrap();
    let refused = bench.vlab(&["scenario", "--from", "snap"]).ends_with(2);
    refused.says(&["is a snapshot of form 99", "freeze it anew"]);
    bench.vlab(&["snapshots"]).ends_with(0).says(&["snap: ", "form 99"]);
    bench.vlab(&["snapshots", "--remove", ".."]).ends_with(2).says(&["is no snapshot"]);
    assert!(bench.path("runs").exists());
    bench.vlab(&["snapshots", "--remove", "snap", "nothing"]).ends_with(2).says(&["nothing is no snapshot"]);
    bench.vlab(&["snapshots", "--remove", "snap"]).ends_with(0).says(&["removed"]);
    assert!(!folder.exists());
}
