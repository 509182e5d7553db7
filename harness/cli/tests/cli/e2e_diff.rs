//! Comparing runs: `diff` and `differential`.

use std::fs;

use rstest::rstest;
use serde_json::Value;

use crate::bench::CliFixture;

/// Simulates a scenario and gives the name of its run.
fn simulated(bench: &CliFixture, scenario: &str, seed: &str) -> String {
    bench.vlab(&["simulate", scenario, "--seed", seed]).ends_with(0);
    format!("simulated-{scenario}-{seed}")
}

#[test]
fn a_run_is_the_same_as_itself_and_as_its_repetition() {
    let bench = CliFixture::new();
    let run = simulated(&bench, "sno", "5");
    bench.vlab(&["diff", &run, "latest"]).ends_with(0).says(&["same:", "strands of 2 hosts and clusters", "seed 5"]);
    // A file and a folder will do, too.
    let folder = bench.path("runs").join(&run);
    let file = folder.join("history.jsonl");
    bench.vlab(&["diff", folder.to_str().unwrap(), file.to_str().unwrap()]).ends_with(0).says(&["same:"]);
}

#[test]
fn where_two_runs_part_is_told() {
    let bench = CliFixture::new();
    let run = simulated(&bench, "sno", "5");
    let text = fs::read_to_string(bench.path("runs").join(&run).join("history.jsonl")).unwrap();
    // The history of a node that reported another stage in place of "Rebooting".
    let changed = text.replace("\"Rebooting\"", "\"Configuring\"");
    assert_ne!(text, changed);
    let other = bench.file("other.jsonl", changed);
    let said = bench.vlab(&["diff", &run, &other]).ends_with(1);
    // The stage, and the percentage that goes with it.
    said.says(&["2 differences", "host node-0 (master, bootstrap): stage", "A: Rebooting", "B: Configuring"]);
    let said = bench.vlab(&["diff", &run, &other, "--json"]).ends_with(1);
    let json: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["differences"][0]["strand"], "stage");
    assert_eq!(json["differences"][0]["a"][0], "Rebooting");
    assert_eq!(json["differences"][0]["b"][0], "Configuring");
}

#[test]
fn what_cannot_be_compared_is_inconclusive_and_says_why() {
    let bench = CliFixture::new();
    let sno = simulated(&bench, "sno", "5");
    let small = simulated(&bench, "insufficient-hardware", "5");
    let said = bench.vlab(&["diff", &sno, &small]).ends_with(3);
    said.says(&["one of insufficient-hardware", "--force"]);
    bench.vlab(&["diff", &sno, &small, "--force"]).ends_with(1).says(&["differences"]);

    let text = fs::read_to_string(bench.path("runs").join(&sno).join("history.jsonl")).unwrap();
    let half: String = text.lines().take(50).map(|l| format!("{l}\n")).collect();
    let cut = bench.file("cut.jsonl", half);
    bench.vlab(&["diff", &sno, &cut]).ends_with(3).says(&["has no end", "--force"]);
    bench.vlab(&["diff", &sno, &cut, "--force"]).ends_with(1).says(&["cut short"]);
}

#[rstest]
#[case::empty("", "is empty, or does not begin with the start of a run")]
#[case::no_history("hello\n", "x.jsonl:1: this line is not an observation")]
#[case::newer(
    "{\"v\":99,\"seq\":0,\"source\":\"harness\",\"harness_time\":\"2026-01-01T00:00:00Z\",\"what\":{\"note\":{\"text\":\"\"}}}\n",
    "use a newer vlab"
)]
fn an_unreadable_history_is_inconclusive(#[case] content: &str, #[case] why: &str) {
    let bench = CliFixture::new();
    let file = bench.file("x.jsonl", content);
    bench.vlab(&["diff", &file, &file]).ends_with(3).says(&[why]);
}

#[rstest]
#[case(&["diff", "a"], "<B>")]
#[case(&["differential", "sno"], "--against")]
#[case(&["differential", "--against", "simulated"], "<SCENARIOS>")]
#[case(&["differential", "sno", "--against", "podman:x"], "is not a target")]
#[case(&["differential", "snoo", "--against", "simulated"], "did you mean `sno`")]
#[case(&["differential", "sno", "--against", "simulated", "--repeat", "0"], "--repeat")]
fn wrong_usage(#[case] args: &[&str], #[case] why: &str) {
    let bench = CliFixture::new();
    bench.vlab(args).ends_with(2).says(&[why]);
    assert_eq!(fs::read_dir(bench.path("runs")).unwrap().count(), 0, "nothing was started");
}

/// Two runs of the same service differ in their moments only, and those do not count.
#[test]
fn the_simulated_service_is_the_same_as_itself() {
    let bench = CliFixture::new();
    let said = bench.vlab(&["differential", "insufficient-hardware", "--against", "simulated", "--seed", "4"]);
    said.ends_with(0).says(&["1 of 1 pairs the same", "same:", "service simulated, seed 4"]);
    let runs = fs::read_dir(bench.path("runs")).unwrap().flatten().filter(|e| e.file_name() != "latest").count();
    assert_eq!(runs, 2, "both folders are kept");
    bench.nothing_is_left();
}

/// A program that is no service: the comparison says nothing, and says so.
#[test]
fn a_service_that_does_not_come_up_is_inconclusive() {
    let bench = CliFixture::new();
    let said = bench.vlab(&["differential", "insufficient-hardware", "--against", "process:/bin/false"]);
    said.ends_with(3).says(&["insufficient-hardware on process:/bin/false is inconclusive"]);
    bench.nothing_is_left();
}
