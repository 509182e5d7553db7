//! Several runs of one command: side by side, again, in parts, kept, and what they say together.

use std::fs;

use vlab_reports::session::{ItemOutcome, Session};
use vlab_reports::spread::Series;

use crate::bench::{CliFixture, RUN, VLAB};

/// A scenario without an installation: a second of wall time, or two.
fn quick(name: &str, expected: &str) -> String {
    format!(
        "version: 1\nname: {name}\ndescription: A host registers.\n\
         service: {{kind: simulated, time_profile: fast}}\n\
         cluster: {{name: c, topology: sno, install: never}}\n\
         hosts: [{{name: node, role: auto}}]\n\
         expect:\n  - eventually: {{host: node-0, status: {expected}}}\n\
         until: {{seen: [{{host: node-0, status: known}}]}}\n\
         budgets: {{total: 2h}}\n"
    )
}

fn session(bench: &CliFixture) -> Session {
    Session::read(&bench.path("runs/sessions/latest")).unwrap()
}

#[test]
fn runs_side_by_side_make_one_session_and_what_failed_is_run_again() {
    let bench = CliFixture::new();
    let good = bench.file("good.yaml", quick("good", "known"));
    let bad = bench.file("bad.yaml", quick("bad", "installed"));
    let args = ["scenario", &good, &bad, "--repeat", "2", "-j", "2", "--retries", "1", "--quiet"];
    let said = bench.vlab(&args).ends_with(1);
    assert!(said.out.contains("4 runs in ") && said.out.contains("2 passed, 2 failed"), "{}", said.out);
    let first = session(&bench);
    assert_eq!((first.items.len(), first.count(ItemOutcome::Passed), first.count(ItemOutcome::Failed)), (4, 2, 2));
    let failed: Vec<_> = first.items.iter().filter(|i| i.scenario == "bad").collect();
    assert!(failed.iter().all(|i| i.attempts.len() == 2), "what fails is tried again: {failed:#?}");
    let folders = first.items.iter().flat_map(|i| &i.attempts).map(|a| &a.run_id);
    assert!(folders.clone().all(|id| bench.path("runs").join(id).join("result.json").exists()));
    let junit = fs::read_to_string(bench.path("runs/sessions/latest/junit.xml")).unwrap();
    assert!(junit.contains("rerunFailure") && junit.contains("bad #2"), "{junit}");
    bench.nothing_is_left();

    bench.vlab(&["rerun", "--quiet"]).ends_with(1);
    let second = session(&bench);
    let seeds = |s: &Session| s.items.iter().filter(|i| i.scenario == "bad").map(|i| i.seed).collect::<Vec<_>>();
    assert_eq!((second.items.len(), seeds(&second)), (2, seeds(&first)), "those that failed, with their seeds");
    bench.vlab(&["report", "sessions/latest"]).ends_with(0).says(&["2 failed"]);
}

/// A run that was asked over the other door is asked over it again.
#[test]
fn what_was_asked_over_kubernetes_is_asked_there_again() {
    let bench = CliFixture::new();
    let good = bench.file("good.yaml", quick("good", "known"));
    bench.vlab(&["scenario", &good, "--repeat", "2", "--api", "kube", "--quiet"]).ends_with(0);
    bench.vlab(&["rerun", "--all", "--quiet"]).ends_with(0);
    let again = session(&bench);
    assert_eq!(again.items.len(), 2);
    assert!(again.items.iter().all(|item| item.api.as_deref() == Some("kube")), "{:#?}", again.items);
}

/// What was not run is known, although the harness was killed.
#[test]
fn a_session_that_was_killed_can_be_taken_up() {
    let bench = CliFixture::new();
    let good = bench.file("good.yaml", quick("good", "known"));
    let run = bench.start(&["scenario", &good, "--repeat", "3", "--quiet"]);
    // What the session says, and not the folder `latest`: that is the next run's as soon as the first has ended.
    crate::bench::until("the end of the first run", RUN, || {
        Session::read(&bench.path("runs/sessions/latest")).is_ok_and(|session| session.count(ItemOutcome::Passed) > 0)
    });
    // In the middle of the next one: somebody watches over it then.
    let begun =
        || fs::read_dir(bench.path("runs")).unwrap().flatten().filter(|run| run.path().join("history.jsonl").exists());
    let runs =
        || begun().filter(|run| run.file_type().is_ok_and(|kind| kind.is_dir()) && run.file_name() != "latest").count();
    crate::bench::until("the next run", RUN, || runs() > 1);
    run.signal("KILL");
    drop(run);
    bench.nothing_is_left();
    bench.vlab(&["report", "sessions/latest"]).ends_with(0).says(&["not run"]);
    let left = session(&bench).count(ItemOutcome::NotRun);
    assert!(left >= 1);
    bench.vlab(&["rerun", "--quiet"]).ends_with(0);
    assert_eq!(session(&bench).count(ItemOutcome::Passed), left);
}

/// Who builds the program anew while a long session runs loses nothing.
#[test]
fn a_session_survives_that_its_program_is_built_anew() {
    let bench = CliFixture::new();
    let good = bench.file("good.yaml", quick("good", "known"));
    let program = bench.path("vlab");
    fs::hard_link(VLAB, &program).or_else(|_| fs::copy(VLAB, &program).map(drop)).unwrap();
    let run = bench.start_as(&program, &["scenario", &good, "--repeat", "3", "--quiet"]);
    crate::bench::until("the end of the first run", RUN, || {
        Session::read(&bench.path("runs/sessions/latest")).is_ok_and(|session| session.count(ItemOutcome::Passed) > 0)
    });
    fs::remove_file(&program).unwrap();
    run.end(RUN).ends_with(0);
    assert_eq!(session(&bench).count(ItemOutcome::Passed), 3);
}

#[test]
fn a_kept_lab_answers_until_gc_removes_it() {
    let bench = CliFixture::new();
    let good = bench.file("good.yaml", quick("good", "known"));
    let said = bench.vlab(&["scenario", &good, "--keep", "--quiet"]).ends_with(0).says(&["the lab is kept"]);
    assert!(said.out.contains("service:  http://127.0.0.1:") && said.out.contains("psql '"), "{}", said.out);
    let (status, _) = bench.ask_service("/ready").expect("the service does not answer any more");
    assert_eq!(status, 200);
    bench.vlab(&["gc"]).ends_with(0);
    bench.nothing_is_left();
}

#[test]
fn a_file_has_the_times_of_one_scenario() {
    let bench = CliFixture::new();
    let args = ["scenario", "sno", "ha-3-2", "--repeat", "2", "--save-series", "never"];
    bench.vlab(&args).ends_with(2).says(&["are for one scenario, and 2 are selected"]);
    assert!(!bench.path("runs/sessions").exists(), "something was run");
}

#[test]
fn without_a_terminal_nobody_can_press_enter() {
    let bench = CliFixture::new();
    bench.vlab(&["scenario", "sno", "--pause-on-failure"]).ends_with(2).says(&["there is no terminal"]);
}

#[test]
fn what_is_in_quarantine_is_shown_and_does_not_count() {
    let bench = CliFixture::new();
    fs::create_dir_all(bench.path("catalogue/profiles")).unwrap();
    for folder in ["time", "hardware"] {
        let to = bench.path("catalogue/profiles").join(folder);
        fs::create_dir(&to).unwrap();
        let from = format!("{}/../../scenarios/profiles/{folder}", env!("CARGO_MANIFEST_DIR"));
        for file in fs::read_dir(from).unwrap().flatten() {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
    fs::write(bench.path("catalogue/bad.yaml"), quick("bad", "installed")).unwrap();
    let list = |until: &str, scenario: &str| {
        let text = format!(
            "version: 1\nquarantine:\n  - {{scenario: {scenario}, reason: slow, link: \"https://x/1\", until: {until}}}\n"
        );
        fs::write(bench.path("catalogue/quarantine.yaml"), text).unwrap();
        let mut command = bench.command(&["scenario", "bad", "--quiet"]);
        crate::bench::Said::from(command.env("VLAB_SCENARIOS", bench.path("catalogue")).output().unwrap())
    };
    list("2999-01-01", "bad").ends_with(0).says(&["bad is quarantined"]);
    assert_eq!(session(&bench).count(ItemOutcome::Quarantined), 1);
    list("2020-01-01", "bad").ends_with(2).says(&["the quarantine of `bad` ended on 2020-01-01"]);
    list("2999-01-01", "bat").ends_with(2).says(&["there is no scenario `bat`"]);
}

/// The same seed gives the same projected history in real time; how often is `VLAB_ROUNDS` (20 for the figure). And what the
/// repetitions took stands side by side.
#[test]
fn the_same_seed_gives_the_same_history_and_a_series_of_times() {
    let bench = CliFixture::new();
    let rounds = std::env::var("VLAB_ROUNDS").unwrap_or_else(|_| "3".to_owned());
    let file = bench.path("series.json").display().to_string();
    let args = ["scenario", "sno", "--seed", "7", "--repeat", &rounds, "--save-series", &file, "--quiet"];
    bench.vlab(&args).ends_with(0).says(&["IQR", "sno: bootkube-done", "sno: bootstrap-reboot"]);
    let series: Series = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(
        (series.scenario.as_str(), series.service.as_str(), series.hosts.as_str()),
        ("sno", "simulated", "simulated")
    );
    let rejoined = series.stages.iter().find(|stage| stage.name == "sno: rejoined").unwrap();
    assert_eq!(rejoined.took_ms.len().to_string(), rounds);
    // Of other times it says so, and not how they changed.
    bench.vlab(&["simulate", "sno", "--repeat", "2", "--compare", &file]).ends_with(2).says(&["cannot be compared"]);
    let session = session(&bench);
    let runs: Vec<&str> = session.items.iter().map(|i| i.attempts[0].run_id.as_str()).collect();
    for run in &runs[1..] {
        let said = bench.vlab(&["diff", runs[0], run]);
        // What comes first, the controller's last word or the look of the monitor that ends the installation, no seed decides.
        let is_last_word =
            |line: &&str| line.ends_with("finalizing stage") || line.ends_with("finalizing_stage_updated");
        let differs = |line: &&str| line.starts_with("cluster ") || line.starts_with("host ");
        let (last, others): (Vec<&str>, Vec<&str>) = said.out.lines().filter(differs).partition(is_last_word);
        assert!(others.is_empty(), "{}", said.out);
        let code = i32::from(!last.is_empty());
        said.ends_with(code);
    }
}

/// The figure: kills of the harness at random moments of scenarios of the catalogue. `VLAB_ROUNDS` says how many.
#[test]
#[ignore = "a quarter of an hour; for the figure"]
fn kill_9_a_hundred_times_leaves_nothing() {
    use rand::{Rng as _, SeedableRng as _};
    let rounds = std::env::var("VLAB_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let scenarios = ["sno", "ha-3-2", "cancel", "reset", "wrong-boot-order", "insufficient-hardware", "slow-disk"];
    let mut dice = rand_chacha::ChaCha8Rng::seed_from_u64(5);
    for round in 0..rounds {
        let bench = CliFixture::new();
        let scenario = scenarios[round % scenarios.len()];
        let run = bench.start(&["scenario", scenario, "--quiet"]);
        std::thread::sleep(std::time::Duration::from_millis(u64::from(dice.next_u32()) % 7000));
        run.signal("KILL");
        drop(run);
        bench.nothing_is_left();
        eprintln!("{} of {rounds}: {scenario}", round + 1);
    }
}
