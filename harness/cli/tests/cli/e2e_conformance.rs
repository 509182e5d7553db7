//! The conformance suite as people run it, and services that cannot be asked: each a clear reason and code 3, nothing left behind.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use rstest::rstest;
use serde_json::Value;
use vlab_judge::result::Verdict;

use crate::bench::{CliFixture, RUN, signal, until};

/// So many checks may come too late for a monitor of the service when everything else runs beside them.
const LATE: usize = 3;

/// Checks that did not hold, among hundreds at a time, are asked once more by themselves: what is wrong with the service is wrong then,
/// too, and on a busy computer a check may be later than the service's own clockwork.
fn asked_again(bench: &CliFixture, suite: &Value, api: &str) {
    let failed = suite["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "failed");
    let failed: Vec<&str> = failed.map(|check| check["id"].as_str().unwrap()).collect();
    assert!(failed.len() <= LATE, "{failed:?}");
    for id in failed {
        eprintln!("{id} did not hold beside all others, and is asked once more");
        bench.vlab(&["conformance", "--api", api, "--filter", id]).ends_with(0).says(&["0 failed"]);
    }
}

#[test]
fn the_simulated_service_passes_the_whole_suite() {
    let bench = CliFixture::new();
    let said = bench.vlab(&["conformance"]).says(&["checks passed in", "8 skipped", "report.html"]);
    // One line for each check, with how many there are.
    assert!(said.err.contains("] passed        register/new "), "{}", said.err);
    assert!(said.err.contains("skipped       service/image-url: needs an image service"), "{}", said.err);
    assert!(
        said.err.contains("skipped       steps/preparing/amounts: needs times as the real service"),
        "{}",
        said.err
    );
    let suite: Value = serde_json::from_slice(&fs::read(bench.latest().join("conformance.json")).unwrap()).unwrap();
    let checks = suite["checks"].as_array().unwrap();
    assert!(checks.len() >= 500, "{}", checks.len());
    let late = suite["count"]["failed"].as_u64().unwrap();
    assert_eq!(suite["count"]["passed"].as_u64().unwrap() + late, checks.len() as u64 - 8);
    let said = said.ends_with(i32::from(late > 0));
    let counts = format!("{} of {} checks passed", checks.len() - 8, checks.len());
    let manual = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md")).unwrap();
    assert!(manual.contains(&counts), "docs/conformance.md does not say {counts:?}");
    assert!(late > 0 || said.out.contains(&counts), "{}", said.out);
    let junit = fs::read_to_string(bench.latest().join("junit_conformance.xml")).unwrap();
    assert_eq!(junit.matches("<testcase ").count(), checks.len());
    assert!(junit.contains("classname=\"conformance.register\""), "grouped by area");
    for name in ["started.json", "service.log", "postgresql.log", "result.json", "report.html"] {
        assert!(fs::metadata(bench.latest().join(name)).is_ok_and(|m| m.len() > 0), "{name} is missing or empty");
    }
    assert_eq!(bench.result().verdict, if late > 0 { Verdict::Failed } else { Verdict::Passed });
    bench.nothing_is_left();
    bench.vlab(&["check", "latest"]).ends_with(2).says(&["a run of the conformance suite"]);
    asked_again(&bench, &suite, "rest");
    bench.nothing_is_left();
}

/// The same for the other door: its checks are its own.
#[test]
fn the_simulated_controllers_pass_the_whole_suite() {
    if !crate::e2e_hub::api_server() {
        return;
    }
    let bench = CliFixture::new();
    let said = bench.vlab(&["conformance", "--api", "kube"]);
    let suite: Value = serde_json::from_slice(&fs::read(bench.latest().join("conformance.json")).unwrap()).unwrap();
    let checks = suite["checks"].as_array().unwrap();
    let late = suite["count"]["failed"].as_u64().unwrap();
    // The converged flow needs another hub.
    let other_hub = checks.iter().filter(|check| check["area"] == "converged").count();
    assert_eq!(suite["count"]["skipped"].as_u64().unwrap(), other_hub as u64, "{}", said.err);
    let asked = checks.len() - other_hub;
    assert_eq!(suite["count"]["passed"].as_u64().unwrap() + late, asked as u64, "{}", said.err);
    let counts = format!("{asked} of {} checks passed", checks.len());
    let manual = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md")).unwrap();
    assert!(manual.contains(&counts), "docs/conformance.md does not say {counts:?}");
    let repeat = bench.result().how_to_repeat;
    assert!(repeat.ends_with("--api kube"), "{repeat}");
    asked_again(&bench, &suite, "kube");
    bench.nothing_is_left();
}

/// Checks of the other door, and a real service without the definitions of its kinds, are refused before anything starts.
#[rstest]
#[case(&["--api", "kube", "--checks", "FILE"], "t/a asks over REST")]
#[case(&["--api", "kube", "--service", "process:/bin/true"], "add `--definitions FOLDER`")]
fn what_cannot_be_asked_over_kubernetes_is_refused(#[case] args: &[&str], #[case] says: &str) {
    let bench = CliFixture::new();
    let text = "area: t\nsource: s\nchecks: [{id: a, purpose: p, steps: [{call: 'GET /clusters', status: 200}]}]\n";
    let file = bench.file("checks.yaml", text);
    let args: Vec<&str> =
        ["conformance"].into_iter().chain(args.iter().map(|arg| if *arg == "FILE" { &*file } else { *arg })).collect();
    bench.vlab(&args).ends_with(2).says(&[says]);
    bench.nothing_is_left();
}

#[test]
fn a_check_that_fails_is_told_with_its_place() {
    let bench = CliFixture::new();
    let file = bench.file(
        "mine.yaml",
        "area: mine\nsource: nowhere\nchecks:\n- id: wrong\n  purpose: clusters are purple\n  \
         steps: [{call: POST /clusters, base: cluster, status: 201, expect: {colour: purple}}]\n",
    );
    bench.vlab(&["conformance", "--checks", &file]).ends_with(1).says(&[
        "FAILED mine/wrong",
        "step 1 of 1 (POST /clusters): colour: expected \"purple\", found nothing",
        "0 of 1 checks passed",
    ]);
    assert!(fs::read_to_string(bench.latest().join("junit_conformance.xml")).unwrap().contains("<failure"));
    bench.nothing_is_left();
}

/// What was through stays known, and the others are named: one of them may have been the end of the service.
#[test]
fn a_service_that_dies_does_not_take_the_answers_with_it() {
    let bench = CliFixture::new();
    let waits = "{stay: {a: known}}, ".repeat(40);
    let file = bench.file(
        "mine.yaml",
        format!(
            "area: mine\nsource: nowhere\nchecks:\n- id: quick\n  purpose: clusters are listed\n  \
             steps: [{{call: GET /clusters, status: 200}}]\n- id: slow\n  purpose: a host stays known\n  \
             world: {{cluster: sno, hosts: 1, at: ready}}\n  steps: [{waits}]\n"
        ),
    );
    let run = bench.start(&["conformance", "--checks", &file]);
    let ready = |cluster: &Value| cluster["status"] == "ready";
    until("a cluster that is ready", RUN, || {
        let clusters = bench.ask_service_json("/api/assisted-install/v2/clusters");
        clusters.is_some_and(|clusters| clusters.as_array().is_some_and(|all| all.iter().any(ready)))
    });
    signal(bench.service_pid(), "KILL");
    run.end(RUN).ends_with(1).says(&["1 of 2 checks passed", "0 skipped"]);
    let suite: Value = serde_json::from_slice(&fs::read(bench.latest().join("conformance.json")).unwrap()).unwrap();
    let slow = suite["checks"].as_array().unwrap().iter().find(|check| check["id"] == "mine/slow").unwrap();
    // A request may have been on its way: that it was lost is what the check says then.
    let said = slow["reason"].as_str().or(slow["message"].as_str()).unwrap_or_default();
    let told = ["the service ended before it was through", "connection lost", "cannot connect"];
    assert!(slow["verdict"] != "passed" && told.iter().any(|text| said.contains(text)), "{slow}");
    bench.nothing_is_left();
}

#[rstest]
#[case::list(&["--list"], 0, &["register/again/known", "checks"])]
#[case::list_of_some(&["--list", "--filter", "register/*/known"], 0, &["2 checks"])]
#[case::list_for_programs(&["--list", "--json", "--filter", "errors/unknown/cluster"], 0, &["\"purpose\""])]
#[case::nothing_selected(&["--filter", "no-such-check"], 4, &["no check selected"])]
#[case::no_file(&["--checks", "/no/such.yaml"], 2, &["/no/such.yaml"])]
#[case::bad_target(&["--service", "docker"], 2, &["process:<program>"])]
#[case::bad_url(&["--service", "remote:127.0.0.1:80"], 2, &["is not a service URL", "http://HOST"])]
#[case::https(&["--service", "remote:https://127.0.0.1"], 2, &["https", "http listener"])]
#[case::bad_profile(&["--time-profile", "fats"], 2, &["fats", "fast"])]
#[case::bad_jobs(&["--jobs", "0"], 2, &["--jobs"])]
#[case::no_program(&["--service", "process:/no/such/program", "--no-setup"], 3, &["there is no program", "give the path"])]
fn usage(#[case] args: &[&str], #[case] code: i32, #[case] says: &[&str]) {
    let bench = CliFixture::new();
    let args: Vec<&str> = ["conformance"].iter().chain(args).copied().collect();
    bench.vlab(&args).ends_with(code).says(says);
    bench.nothing_is_left();
}

/// Answers every request with these bytes.
fn server(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(answer);
        }
    });
    format!("remote:http://{address}")
}

#[rstest]
#[case::another_server(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>", &["not an assisted-service", "no JSON"])]
#[case::not_found(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", &["not an assisted-service", "HTTP 404"])]
#[case::unauthorized(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", &["asks for credentials (HTTP 401)", "AUTH_TYPE=none"])]
#[case::forbidden(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", &["asks for credentials (HTTP 403)", "AUTH_TYPE=none"])]
#[case::tls(b"\x15\x03\x01\x00\x02\x02\x46", &["does not speak HTTP", "http listener"])]
fn a_remote_service_that_cannot_be_asked_is_inconclusive(
    #[case] answer: &'static [u8],
    #[case] says: &[&str],
    #[values("conformance", "scenario")] verb: &str,
) {
    let bench = CliFixture::new();
    let service = server(answer);
    let args: &[&str] =
        if verb == "scenario" { &["scenario", "sno", "--service"] } else { &["conformance", "--service"] };
    let args: Vec<&str> = args.iter().copied().chain([service.as_str()]).collect();
    bench.vlab(&args).ends_with(3).says(says).says(&["inconclusive"]);
    assert_eq!(bench.result().verdict, Verdict::Inconclusive);
    bench.nothing_is_left();
}

#[rstest]
fn nobody_there_is_inconclusive(#[values("conformance", "scenario")] verb: &str) {
    let bench = CliFixture::new();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let service = format!("remote:http://{closed}");
    let args: &[&str] =
        if verb == "scenario" { &["scenario", "sno", "--service"] } else { &["conformance", "--service"] };
    let args: Vec<&str> = args.iter().copied().chain([service.as_str()]).collect();
    bench.vlab(&args).ends_with(3).says(&["no service answers at", "is it running"]);
    bench.nothing_is_left();
}

#[test]
fn a_service_that_ends_at_its_start_shows_its_last_lines() {
    let bench = CliFixture::new();
    let program = bench.file("service", "#!/bin/sh\nseq 1 80\necho no such database\nexit 7\n");
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let service = format!("process:{program}");
    let says = &["ended (exit status: 7)", "no such database", "inconclusive"];
    let said = bench.vlab(&["conformance", "--service", &service]).ends_with(3).says(says);
    assert!(!said.out.lines().any(|line| line.trim() == "30"), "the last fifty lines only: {}", said.out);
    bench.nothing_is_left();
}

/// Against a service that runs already, only what the suite has made itself is removed.
#[test]
fn a_remote_service_keeps_what_it_has() {
    let bench = CliFixture::new();
    let address = bench.path("address");
    let mut service = bench
        .command(&["service", "--listen", "127.0.0.1:0", "--address-file", address.to_str().unwrap()])
        .env("HOST_MONITOR_INTERVAL", "200ms")
        .env("CLUSTER_MONITOR_INTERVAL", "200ms")
        .env("HOST_MAX_DISCONNECTION_TIME", "10s")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("the address", crate::bench::RUN, || fs::read_to_string(&address).is_ok_and(|text| text.contains(':')));
    let url = format!("http://{}", fs::read_to_string(&address).unwrap().trim());
    let own = post(&url, "/api/assisted-install/v2/infra-envs");
    let service_arg = format!("remote:{url}");
    let args = ["conformance", "--service", &service_arg, "--filter", "infra-envs", "--filter", "register"];
    let said = bench.vlab(&args).ends_with(0).says(&["only what the checks make themselves", "0 failed"]);
    // Nobody has said how quick it is.
    assert!(
        said.err.contains("skipped       register/again/known: needs monitors that run every second"),
        "{}",
        said.err
    );
    let fast: Vec<&str> = args.into_iter().chain(["--time-profile", "fast"]).collect();
    bench.vlab(&fast).ends_with(0).says(&[
        "0 failed, 3 skipped",
        "needs settings that the suite makes itself",
        "needs an image service",
    ]);
    let list = ask(&url, "/api/assisted-install/v2/infra-envs");
    let left: Value = serde_json::from_str(&list).unwrap();
    let left: Vec<&str> = left.as_array().unwrap().iter().map(|i| i["id"].as_str().unwrap()).collect();
    assert_eq!(left, [own["id"].as_str().unwrap()], "mine is left, and nothing else");
    service.kill().unwrap();
    service.wait().unwrap();
    bench.nothing_is_left();
}

fn exchange(url: &str, request: &str) -> String {
    let mut stream = std::net::TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn ask(url: &str, path: &str) -> String {
    exchange(url, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

fn post(url: &str, path: &str) -> Value {
    let body = r#"{"name":"mine","pull_secret":"{\"auths\":{\"quay.io\":{\"auth\":\"dXNlcjpwYXNz\"}}}"}"#;
    let head = "Host: x\r\nConnection: close\r\nContent-Type: application/json";
    let request = format!("POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    serde_json::from_str(&exchange(url, &request)).unwrap()
}
