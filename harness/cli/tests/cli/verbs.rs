//! The verbs that run nothing, and bad input to all: exit codes and messages.

use std::fs;

use rstest::rstest;
use serde_json::Value;

use crate::bench::CliFixture;

#[rstest]
#[case::no_verb(&[], 2, "Usage")]
#[case::unknown_verb(&["scenarios"], 2, "scenario")]
#[case::unknown_option(&["list", "--jsn"], 2, "--json")]
#[case::help(&["--help"], 0, "Exit codes")]
#[case::version(&["--version"], 0, "vlab 0.")]
#[case::no_run_recorded(&["flakes"], 4, "no run is recorded")]
#[case::no_such_medium(&["images", "build", "lab-isso"], 2, "there is no medium `lab-isso`")]
#[case::import_of_nothing(&["images", "import", "no-such-file"], 3, "no-such-file")]
#[case::matrix_of_what_cannot_be(&["matrix", "--topology", "arbiter", "--openshift-version", "4.18"], 4, "none of these")]
#[case::nothing_selected(&["scenario"], 4, "no scenario selected")]
#[case::no_tag_matches(&["scenario", "--tag", "no-such-tag"], 4, "no scenario")]
#[case::test_without_any(&["test", "--tag", "no-such-tag"], 4, "no scenario matches")]
#[case::list_without_any(&["list", "--tag", "no-such-tag"], 4, "no scenario matches")]
#[case::bad_seed(&["simulate", "sno", "--seed", "minus"], 2, "--seed")]
#[case::unknown_time_profile(&["simulate", "sno", "--time-profile", "fats"], 2, "fast")]
#[case::real_time_once(&["simulate", "postgres-restarts"], 3, "skipped: postgres-restarts needs real time")]
#[case::real_time_often(&["simulate", "postgres-restarts", "--repeat", "30"], 3, "skipped: postgres-restarts needs real time")]
#[case::unknown_run(&["check", "no-such-run"], 2, "no-such-run")]
#[case::report_of_unknown_run(&["report", "no-such-run"], 2, "no-such-run")]
fn exit_codes(#[case] args: &[&str], #[case] code: i32, #[case] says: &str) {
    CliFixture::new().vlab(args).ends_with(code).says(&[says]);
}

/// Where the sources are in a repository, the version names the commit.
#[test]
fn the_version_names_the_commit() {
    let git = std::process::Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let commit = git.ok().filter(|out| out.status.success()).map(|out| String::from_utf8(out.stdout).unwrap());
    let said = CliFixture::new().vlab(&["--version"]).ends_with(0);
    match commit {
        Some(commit) => assert!(said.out.contains(&format!(" ({})", commit.trim())), "{} is not of {commit}", said.out),
        None => assert!(!said.out.contains('('), "{}", said.out),
    }
}

/// Each run adds its line, and the lines say how often a scenario passes.
#[test]
fn runs_are_counted_over_time() {
    let bench = CliFixture::new();
    let line = |second: u32, verdict: &str, failed: &str| {
        format!(
            "{{\"v\":1,\"at\":\"2026-11-24T06:00:{second:02}Z\",\"scenario\":\"sno\",\"run_id\":\"r{second}\",\"session\":\"s\",\
             \"verdict\":\"{verdict}\",\"exit_code\":0,\"took_ms\":6000.0,\"seed\":1,\"service\":\"simulated\",\"hosts\":\"simulated\",\
             \"time_profile\":\"fast\",\"vlab\":\"0\"{failed}}}\n"
        )
    };
    let text = line(1, "passed", "") + &line(2, "failed", ",\"failed\":\"expectation: x\"") + "cut off";
    fs::write(bench.path("runs").join("runs.jsonl"), text).unwrap();
    bench.vlab(&["flakes"]).ends_with(0).says(&["sno", "50.0 %", ".F", "1 × expectation: x (newest: r2)", "1 lines"]);
    bench.vlab(&["flakes", "--json", "sno"]).ends_with(0).says(&["\"passed\": 1"]);
    bench.vlab(&["flakes", "other"]).ends_with(4).says(&["no run of these scenarios"]);
}

#[test]
fn a_matrix_is_written_as_scenarios_that_can_be_run() {
    let bench = CliFixture::new();
    bench.vlab(&["matrix", "--dry-run", "--topology", "sno,arbiter"]).ends_with(0).says(&["5 scenarios in"]);
    let file = bench.path("runs").join("matrix/matrix-sno-ipv4-bios-4-22.yaml");
    bench.vlab(&["validate", file.to_str().unwrap()]).ends_with(0).says(&["matrix-sno-ipv4-bios-4-22: valid"]);
}

#[rstest]
fn an_unknown_name_offers_the_nearest(#[values("scenario", "simulate", "validate")] verb: &str) {
    CliFixture::new().vlab(&[verb, "snoo"]).ends_with(2).says(&["`snoo`", "did you mean `sno`"]);
    CliFixture::new().vlab(&[verb, "no/such/file.yaml"]).ends_with(2).says(&["no/such/file.yaml"]);
}

/// The mistake in the last one is found before the first one starts.
#[test]
fn one_bad_name_stops_all_before_the_first_run() {
    let bench = CliFixture::new();
    bench.vlab(&["scenario", "sno", "hb-3-2"]).ends_with(2).says(&["did you mean `ha-3-2`"]);
    assert_eq!(fs::read_dir(bench.path("runs")).unwrap().count(), 0);
}

fn deep() -> Vec<u8> {
    let mut text = b"version: 1\nname: deep\nhosts: ".to_vec();
    text.extend(std::iter::repeat_n(b'[', 100_000));
    text
}

fn sno_with(line: &str, instead: &str) -> Vec<u8> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/sno.yaml")).unwrap();
    assert!(text.contains(line), "the scenario has changed, and this test must, too");
    text.replacen(line, instead, 1).into_bytes()
}

#[rstest]
#[case::empty(Vec::new(), "the file is empty", "")]
#[case::only_comments(b"# nothing\n".to_vec(), "the file is empty", "")]
#[case::not_utf8(b"version: 1\nname: \xff\xfe\n".to_vec(), "UTF-8", ":2:7")]
#[case::huge([b"version: 1\nname: \"", vec![b'x'; 10 << 20].as_slice(), b"\"\n"].concat(), "longer than 1024 KiB", "")]
#[case::deep(deep(), "nest", ":3:")]
#[case::no_mapping(b"- a\n- b\n".to_vec(), "", ":1:1")]
#[case::unknown_key(sno_with("topology: sno", "topologie: sno"), "topology", ":15:3")]
#[case::wrong_type(sno_with("tags: [smoke, install, sno]", "tags: 7"), "tags", ":6:7")]
#[case::torn_quote(sno_with("name: sno", "name: \"sno"), "", "bad.yaml:")]
#[case::nul(b"version: 1\nname: a\0b\n".to_vec(), "", ":2:")]
fn bad_files_are_refused_with_their_place(
    #[case] content: Vec<u8>,
    #[case] word: &str,
    #[case] place: &str,
    #[values("scenario", "simulate", "validate")] verb: &str,
) {
    let bench = CliFixture::new();
    let path = bench.file("bad.yaml", content);
    let said = bench.vlab(&[verb, &path]).ends_with(2).says(&["bad.yaml"]);
    let text = said.err.to_lowercase();
    assert!(text.contains(&word.to_lowercase()), "{word:?} is missing:\n{}", said.err);
    assert!(said.err.contains(place), "{place:?} is missing:\n{}", said.err);
    assert!(said.err.len() < 20_000, "{} bytes of message", said.err.len());
    assert!(!said.err.contains("panicked"), "{}", said.err);
    assert_eq!(fs::read_dir(bench.path("runs")).unwrap().count(), 0, "nothing was started");
}

#[test]
fn a_folder_or_an_endless_file_is_no_scenario() {
    let bench = CliFixture::new();
    bench.vlab(&["validate", bench.path("tmp").to_str().unwrap()]).ends_with(2);
    bench.vlab(&["validate", "/dev/zero"]).ends_with(2).says(&["/dev/zero"]);
    let twisted = bench.path("twisted.yaml");
    std::os::unix::fs::symlink(&twisted, &twisted).unwrap();
    bench.vlab(&["validate", twisted.to_str().unwrap()]).ends_with(2).says(&["twisted.yaml"]);
}

#[test]
fn list_shows_what_ships() {
    let bench = CliFixture::new();
    bench.vlab(&["list"]).ends_with(0).says(&["sno", "ha-3-2", "insufficient-hardware", "fleet-2000"]);
    let list: Value =
        serde_json::from_str(&bench.vlab(&["list", "--json", "--tag", "smoke"]).ends_with(0).out).unwrap();
    let names: Vec<_> = list.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"sno") && !names.contains(&"fleet-2000"), "{names:?}");
}

#[test]
fn what_ships_is_valid() {
    CliFixture::new().vlab(&["validate"]).ends_with(0).says(&["sno: valid", "ha-3-2: valid", "fleet-2000: valid"]);
}

/// Also without the sources: the program has a copy of the catalogue in itself.
#[test]
fn the_catalogue_is_inside_the_program() {
    let bench = CliFixture::new();
    let elsewhere = bench.command(&["simulate", "sno"]).current_dir(bench.path("tmp")).output().unwrap();
    crate::bench::Said::from(elsewhere).ends_with(0).says(&["passed"]);
}

#[test]
fn the_schema_is_the_committed_one() {
    let printed = CliFixture::new().vlab(&["schema"]).ends_with(0).out;
    let committed = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/schema.json")).unwrap();
    assert_eq!(printed, committed);
}

#[test]
fn doctor_tells_what_is_there() {
    let bench = CliFixture::new();
    let said = bench.vlab(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&said.out).unwrap();
    let findings = found["findings"].as_array().unwrap();
    assert!(findings.len() >= 5, "{found}");
    for finding in findings {
        let state = finding["state"].as_str().unwrap();
        assert!(["found", "missing", "unusable"].contains(&state), "{finding}");
        assert!(state == "found" || finding["fix"].is_string(), "how to fix it is missing: {finding}");
    }
    // Said by the exit code, too.
    let empty = bench.path("empty");
    fs::create_dir(&empty).unwrap();
    let output = bench.command(&["doctor"]).env("VLAB_PG_BIN", &empty).output().unwrap();
    crate::bench::Said::from(output).ends_with(3).says(&["postgres", "missing", "→"]);
}

#[test]
fn gc_has_nothing_to_do_on_a_clean_machine() {
    let bench = CliFixture::new();
    bench.vlab(&["gc", "--dry-run"]).ends_with(0);
    let plan: Value = serde_json::from_str(&bench.vlab(&["gc", "--dry-run", "--json"]).ends_with(0).out).unwrap();
    assert_eq!(plan["leftovers"], Value::Array(Vec::new()));
    bench.vlab(&["gc"]).ends_with(0);
}

/// `vlab list | head -1` is no error.
#[test]
fn a_reader_that_went_away_is_no_error() {
    let bench = CliFixture::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = bench.command(&["schema"]).stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
}
