//! The service under test: what the command line and a scenario may name, what the real one is told, and what is said when
//! it cannot be had.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rstest::rstest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use vlab_api::Timestamp;
use vlab_api::types::HostStatus;
use vlab_drive::prepare::{Choices, PrepareError, Prepared};
use vlab_drive::target::{OWNED, Target};
use vlab_history::Recorder;
use vlab_judge::result::CheckVerdict;
use vlab_judge::verdict::judge;
use vlab_model::history::{HostsKind, Source, What};
use vlab_run::prepare::prepare;
use vlab_run::service::environment::{Around, Database, Kube, StandIns, environment};
use vlab_run::service::scratch::Scratch;
use vlab_run::service::{Inside, Launch, Launched, StartError, process, remote};
use vlab_scenario::{Catalogue, Scenario, SourceFile};

fn scenario(service: &str) -> Scenario {
    scenario_that(service, "{eventually: {host: node-0, status: known}}")
}

fn scenario_that(service: &str, expect: &str) -> Scenario {
    let catalogue = Catalogue::discover().unwrap();
    let text = format!(
        "version: 1\nname: x\ndescription: x\nservice: {service}\ncluster: {{topology: sno, machine_networks: [10.0.0.0/24]}}\n\
         hosts: [{{name: node, profile: standard, addresses: {{first: 10.0.0.9}}}}]\n\
         expect: [{expect}]\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.yaml");
    std::fs::write(&path, text).unwrap();
    vlab_scenario::load(&SourceFile::read(&path).unwrap(), &catalogue).unwrap_or_else(|e| panic!("{e}"))
}

fn prepared(service: &str, chosen: Option<&str>) -> Result<Prepared, PrepareError> {
    let service_choice = chosen.map(|text| text.parse().unwrap());
    let choices = Choices { seed: Some(1), service: service_choice, ..Choices::default() };
    prepare(scenario(service), &Catalogue::discover().unwrap(), &choices)
}

#[rstest]
#[case("simulated", Target::Simulated)]
#[case("process:/a b/assisted-service", Target::Process { program: "/a b/assisted-service".into() })]
#[case("container:quay.io/a/b:c", Target::Container { image: "quay.io/a/b:c".into(), postgres: None })]
#[case("remote:http://h:8090", Target::Remote { url: "http://h:8090".into() })]
#[case("remote:http://[::1]:8090/", Target::Remote { url: "http://[::1]:8090/".into() })]
fn targets_are_read_and_written(#[case] text: &str, #[case] expected: Target) {
    let target: Target = text.parse().unwrap();
    assert_eq!(target, expected);
    assert_eq!(target.to_string(), text);
}

#[rstest]
#[case("", "is not a target: write simulated, process:<program>, container:<image> or remote:<url>")]
#[case("simulated:x", "is not a target")]
#[case("podman:x", "is not a target")]
#[case("process", "process needs a program")]
#[case("process:", "process needs a program")]
#[case("remote:", "remote needs an address")]
#[case("remote:ftp://x", "is not a service URL")]
#[case("remote:http://x/api", "is not a service URL")]
#[case("remote:https://x", "not built yet: https://x: https; use the service's http listener")]
#[case("container", "container needs an image")]
#[case("container:", "container needs an image")]
#[case("container:a b", "is not a target")]
fn bad_targets_are_refused_with_what_to_write(#[case] text: &str, #[case] expected: &str) {
    let error = text.parse::<Target>().unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[rstest]
#[case("{kind: simulated}", None, "simulated", "")]
#[case("{kind: simulated}", Some("process:/p"), "process:/p", " --service process:/p")]
#[case("{kind: process, program: /p}", None, "process:/p", "")]
#[case("{kind: process, program: /p}", Some("process:/p"), "process:/p", "")]
#[case("{kind: remote, url: 'http://h'}", None, "remote:http://h", "")]
#[case("{kind: remote, url: 'http://h'}", Some("simulated"), "simulated", " --service simulated")]
#[case("{kind: container, image: a}", None, "container:a", "")]
#[case("{kind: container, image: a}", Some("container:b"), "container:b", " --service container:b")]
fn the_command_line_wins_over_the_scenario(
    #[case] service: &str,
    #[case] chosen: Option<&str>,
    #[case] expected: &str,
    #[case] repeat: &str,
) {
    let prepared = prepared(service, chosen).unwrap();
    assert_eq!(prepared.info("r", false, BTreeMap::new()).service.to_string(), expected);
    let again = prepared.how_to_repeat("scenario");
    assert!(again.ends_with(&format!("--seed 1{repeat}")), "{again}");
    assert!(!prepared.how_to_repeat("simulate").contains("--service"));
}

#[rstest]
#[case(
    "{kind: container, image: a, settings: {DB_HOST: x}}",
    None,
    "it sets DB_HOST, which the run must choose itself"
)]
#[case("{settings: {HOST_MONITOR_INTERVAL: 1s}}", Some("remote:http://h"), "it sets HOST_MONITOR_INTERVAL")]
#[case(
    "{kind: process, program: /p, settings: {DB_HOST: x}}",
    None,
    "it sets DB_HOST, which the run must choose itself"
)]
#[case("{kind: process, program: /p, settings: {LOG_LEVEL: debug}}", Some("simulated"), "LOG_LEVEL")]
fn what_a_target_cannot_do_is_refused(#[case] service: &str, #[case] chosen: Option<&str>, #[case] expected: &str) {
    let error = prepared(service, chosen).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn states_of_a_remote_service_come_from_looking() {
    let remote = prepared("{kind: remote, url: 'http://h'}", None).unwrap();
    let score = remote.conductor_config(remote.info("r", false, BTreeMap::new()), String::new());
    assert_eq!((score.state_source, score.look_every.as_millis()), (Source::Poll, 1000));
    let own = prepared("{kind: process, program: /p}", None).unwrap();
    let score = own.conductor_config(own.info("r", false, BTreeMap::new()), String::new());
    assert_eq!(score.state_source, Source::Database);
}

/// How an expectation is judged over a host that goes through these statuses, each with the second at which it is seen.
fn judged(expect: &str, source: Source, statuses: &[(i64, HostStatus)]) -> String {
    let scenario = scenario_that("{kind: simulated}", expect);
    let host = uuid::Uuid::from_u128(1);
    let mut recorder = Recorder::new(None);
    let named = What::HostNamed { host, name: "node-0".into(), kind: HostsKind::Simulated };
    recorder.record(Source::Harness, None, Timestamp::from_secs(0), named);
    let mut from = None;
    for (at, to) in statuses {
        let what = What::HostStatus { host, cluster: None, from, to: *to, info: String::new() };
        recorder.record(source, None, Timestamp::from_secs(*at), what);
        from = Some(*to);
    }
    let checks = judge(&scenario, 1.0, &recorder.into_observations()).checks;
    match &checks[0].verdict {
        CheckVerdict::Passed => "passed",
        CheckVerdict::Failed => "failed",
        CheckVerdict::Inconclusive { reason } if reason.contains("only polled") => "inconclusive",
        other => panic!("{other:?}"),
    }
    .to_owned()
}

const STRAIGHT: &str = "{sequence: {host: node-0, statuses: [discovering, insufficient, known]}}";
const ORDER: &str = "{see: {host: node-0, status: insufficient}, before: {host: node-0, status: known}}";
const FIRST: (i64, HostStatus) = (1, HostStatus::Discovering);
const THEN: (i64, HostStatus) = (2, HostStatus::Insufficient);
const LAST: (i64, HostStatus) = (3, HostStatus::Known);

#[rstest]
#[case::all(STRAIGHT, &[FIRST, THEN, LAST], "passed", "passed")]
#[case::gap(STRAIGHT, &[FIRST, LAST], "inconclusive", "failed")]
#[case::no_beginning(STRAIGHT, &[LAST], "inconclusive", "failed")]
// The end is always looked at, so it cannot be missed; and what is there although it must not be is no gap.
#[case::no_end(STRAIGHT, &[FIRST, THEN], "failed", "failed")]
#[case::another(STRAIGHT, &[FIRST, (2, HostStatus::Error), LAST], "failed", "failed")]
#[case::backwards(STRAIGHT, &[THEN, (4, HostStatus::Discovering), (5, HostStatus::Known)], "failed", "failed")]
#[case::in_order(ORDER, &[THEN, LAST], "passed", "passed")]
#[case::out_of_order(ORDER, &[LAST, (4, HostStatus::Insufficient)], "failed", "failed")]
#[case::in_one_look(ORDER, &[THEN, (2, HostStatus::Known)], "inconclusive", "passed")]
#[case::not_seen(ORDER, &[LAST], "inconclusive", "failed")]
#[case::never(r"{never: {host: node-0, status: error}}", &[FIRST, (2, HostStatus::Error)], "failed", "failed")]
fn what_lies_between_two_looks_is_inconclusive(
    #[case] expect: &str,
    #[case] statuses: &[(i64, HostStatus)],
    #[case] polled: &str,
    #[case] from_database: &str,
) {
    assert_eq!(judged(expect, Source::Poll, statuses), polled);
    assert_eq!(judged(expect, Source::Database, statuses), from_database);
}

#[test]
fn the_real_service_is_told_all_that_it_needs() {
    let settings = "{kind: process, program: /p, settings: {LOG_LEVEL: debug, CLUSTER_MONITOR_INTERVAL: 3s wall}}";
    let prepared = prepared(settings, None).unwrap();
    let database = Database::read("host=127.0.0.1 port=5433 user=u password='p w' dbname=assisted").unwrap();
    let around = Around {
        pod: None,
        database: &database,
        address: "127.0.0.1:4711".parse().unwrap(),
        work: Path::new("/w"),
        tools: Some(StandIns { folder: Path::new("/tools"), installer: Path::new("/bin/vlab") }),
        path: OsStr::new("/usr/bin:/bin"),
        inside: None,
        kube: None,
    };
    let made = environment(&prepared, &around);
    let map: BTreeMap<&str, &str> = made.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
    assert_eq!(map.len(), made.len(), "each variable once");
    for (name, value) in [
        ("DB_HOST", "127.0.0.1"),
        ("DB_PORT", "5433"),
        ("DB_USER", "u"),
        ("DB_PASS", "p w"),
        ("DB_NAME", "assisted"),
        ("DEPLOY_TARGET", "onprem"),
        ("STORAGE", "filesystem"),
        ("WORK_DIR", "/w"),
        ("AUTH_TYPE", "none"),
        ("SERVICE_BASE_URL", "http://127.0.0.1:4711"),
        ("HTTP_LISTEN_PORT", "4711"),
        ("ENABLE_IMAGE_SERVICE", "false"),
        ("ENABLE_KUBE_API", "false"),
        ("DUMMY_IGNITION", "false"),
        ("VLAB_OPENSHIFT_INSTALL", "/bin/vlab"),
        ("VLAB_SEED", &prepared.seed.to_string()),
        ("SKIP_CERT_VERIFICATION", "true"),
        ("PATH", "/tools:/usr/bin:/bin"),
        // The scenario's own, one that only the real service has and one that both have.
        ("LOG_LEVEL", "debug"),
        ("CLUSTER_MONITOR_INTERVAL", "3s"),
    ] {
        assert_eq!(map.get(name), Some(&value), "{name}");
    }
    assert!(map["HOST_MONITOR_INTERVAL"].ends_with("ms"), "the profile `fast`: {}", map["HOST_MONITOR_INTERVAL"]);
    for list in ["RELEASE_IMAGES", "HW_VALIDATOR_REQUIREMENTS"] {
        let value: serde_json::Value = serde_json::from_str(map[list]).unwrap();
        assert!(value.as_array().is_some_and(|a| !a.is_empty()), "{list}: {value}");
    }
    assert!(map.values().all(|v| !v.is_empty()), "the real service does not take empty text for its default");
    // Without stand-ins PATH is the user's own. With machines it is told how these see it.
    let inside = Inside {
        base_url: "http://192.168.126.1:8090".into(),
        images_url: "http://192.168.126.1:8888".into(),
        iso: "/live.iso".into(),
    };
    let address = "127.0.0.1:1".parse().unwrap();
    let around = Around { address, tools: None, path: OsStr::new("/b"), inside: Some(&inside), ..around };
    let real = environment(&prepared, &around);
    let map: BTreeMap<&str, &str> = real.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
    assert!(!map.contains_key("PATH"));
    for (name, value) in [
        ("ENABLE_IMAGE_SERVICE", "true"),
        ("SERVICE_BASE_URL", "http://192.168.126.1:8090"),
        ("IMAGE_SERVICE_BASE_URL", "http://192.168.126.1:8888"),
        ("HTTP_LISTEN_PORT", "1"),
        ("DUMMY_IGNITION", "true"),
    ] {
        assert_eq!(map.get(name), Some(&value), "{name}");
    }
    let images: serde_json::Value = serde_json::from_str(map["OS_IMAGES"]).unwrap();
    assert_eq!(images.as_array().unwrap().len(), prepared.settings.release_images.len(), "one for each release");
    assert_eq!(images[0]["url"], "file:///live.iso");
    assert!(OWNED.iter().all(|name| map.contains_key(name)));
    // With controllers it is told where their API server is, and of images that nobody opens.
    let kube = Kube { kubeconfig: Path::new("/run/kubeconfig"), namespace: "assisted-installer", bare_metal: true };
    let real = environment(&prepared, &Around { kube: Some(kube), inside: None, ..around });
    let map: BTreeMap<&str, &str> = real.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
    for (name, value) in [
        ("ENABLE_KUBE_API", "true"),
        ("KUBECONFIG", "/run/kubeconfig"),
        ("NAMESPACE", "assisted-installer"),
        ("ENABLE_METAL3", "true"),
        ("ENABLE_IMAGE_SERVICE", "true"),
        ("DEPLOY_TARGET", "onprem"),
    ] {
        assert_eq!(map.get(name), Some(&value), "{name}");
    }
    assert!(map["OS_IMAGES"].contains("cpu_architecture"), "{}", map["OS_IMAGES"]);
}

#[test]
fn a_database_is_told_in_parts() {
    let read = Database::read("postgresql://me:s%20t@db.example:6000/x").unwrap();
    let expected =
        Database { host: "db.example".into(), port: 6000, user: "me".into(), password: "s t".into(), name: "x".into() };
    assert_eq!(read, expected);
    assert!(Database::read("port=1").is_err());
    assert!(Database::read("host=h").is_err());
}

#[rstest]
#[case("adm release info --image-for=machine-config-operator --insecure=false quay.io/r:1 --registry-config=/t", true)]
#[case("adm release info --image-for=must-gather quay.io/r:1", true)]
#[case("adm release info --image-for=okd-rpms quay.io/r:1", false)]
#[case("adm release extract --command=openshift-install --to=/nowhere quay.io/r:1", false)]
#[case("image info --output json quay.io/r:1", false)]
#[case("", false)]
fn the_stand_in_answers_only_what_it_must(#[case] args: &str, #[case] answered: bool) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("stand-ins/oc");
    let output = Command::new("sh").arg(script).args(args.split(' ')).output().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!answered)));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout.lines().filter(|l| l.contains("@sha256:")).count(), usize::from(answered), "{stdout}");
    assert_eq!(stdout.is_empty(), !answered);
}

#[test]
fn the_stand_in_tells_a_releases_version_and_gives_an_installer() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("stand-ins/oc");
    let release = "quay.example.org/openshift-release-dev/ocp-release:4.20.1-x86_64";
    let ask = |args: &[&str]| {
        let mut command = Command::new("sh");
        command.arg(&script).args(args).env("VLAB_OPENSHIFT_INSTALL", "/bin/echo").output().unwrap()
    };
    let version = ["adm", "release", "info", "-o", "template", "--template", "'{{.metadata.version}}'"];
    let told = ask(&[&version[..], &["--insecure=false", release, "--registry-config=/tmp/x"]].concat());
    assert_eq!(String::from_utf8(told.stdout).unwrap(), "'4.20.1'\n");
    let to = format!("--to={}", folder.path().display());
    let extract = ["adm", "release", "extract", "--command=openshift-install", &to, "--insecure=false"];
    let given = ask(&[&extract[..], &["", release, "--registry-config=/tmp/x"]].concat());
    assert!(given.status.success(), "{given:?}");
    let program = folder.path().join("openshift-install");
    let ran = Command::new(program).args(["create", "manifests"]).env("VLAB_OPENSHIFT_INSTALL", "/bin/echo").output();
    assert_eq!(String::from_utf8(ran.unwrap().stdout).unwrap(), "openshift-install create manifests\n");
}

/// Starts `target`, a program, in a folder of its own.
async fn start(target: &Target, folder: &Path, scratch: &Scratch) -> Result<Launched, StartError> {
    let launch = Launch {
        one_of: None,
        prepared: Arc::new(prepared("{kind: simulated}", Some(&target.to_string())).unwrap()),
        vlab: "/proc/self/exe".into(),
        log_file: folder.join("service.log"),
        address_file: folder.join("address"),
        ledger: None,
        conninfo: "host=127.0.0.1 user=u dbname=d".to_owned(),
        tcp_conninfo: None,
        scratch: Some(scratch.path().to_owned()),
        real_tools: false,
        ready_within: None,
        inside: None,
        hub: None,
    };
    process::launch(&launch, None).await
}

/// A program that is none of ours, and the folder that it would work in.
fn program(folder: &Path, text: &str) -> Target {
    let program = folder.join("program");
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    Target::Process { program }
}

#[tokio::test]
async fn a_program_that_ends_at_start_shows_its_last_fifty_lines_and_our_stand_in_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let target =
        program(folder.path(), "#!/bin/sh\nseq 1 79\necho \"$VLAB_OPENSHIFT_INSTALL\"\ncommand -v oc\nexit 7\n");
    let name = format!("test-{}", std::process::id());
    let scratch = Scratch::create(&name, None, true).unwrap();
    let error = start(&target, folder.path(), &scratch).await.unwrap_err().to_string();
    scratch.remove().unwrap();
    assert!(error.contains("ended (exit status: 7) before the service to be ready"), "{error}");
    let oc = error.lines().last().unwrap();
    assert!(oc.ends_with("/tools/oc") && oc.contains(&name), "{oc}");
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines.contains(&"32") && lines.contains(&"79") && !lines.contains(&"31"), "{error}");
    // The installer is this program, and not whatever the service calls itself.
    assert!(lines.contains(&format!("/proc/{}/exe", std::process::id()).as_str()), "{error}");
    assert!(!Path::new(oc).exists(), "the folder is gone");
}

#[tokio::test]
async fn a_port_that_was_taken_is_tried_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let target = program(
        folder.path(),
        "#!/bin/sh\necho \"port $HTTP_LISTEN_PORT\"\necho 'listen tcp: bind: address already in use'\nexit 1\n",
    );
    let scratch = Scratch::create(&format!("test-port-{}", std::process::id()), None, true).unwrap();
    let error = start(&target, folder.path(), &scratch).await.unwrap_err().to_string();
    scratch.remove().unwrap();
    assert!(error.contains("address already in use"), "{error}");
    let log = std::fs::read_to_string(folder.path().join("service.log")).unwrap();
    assert_eq!(log.matches("port ").count(), 2, "twice and not without end: {log}");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let scratch = Scratch::create(&format!("test-none-{}", std::process::id()), None, true).unwrap();
    let target = Target::Process { program: folder.path().join("missing") };
    let error = start(&target, folder.path(), &scratch).await.unwrap_err().to_string();
    scratch.remove().unwrap();
    assert!(error.contains("there is no program") && error.contains("missing"), "{error}");
}

/// Answers one request.
async fn answer_once(status: &'static str, body: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer).await;
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    });
    format!("http://{address}")
}

#[rstest]
#[case("200 OK", r#"{"versions":{},"release_tag":"v9"}"#, Ok("(v9)"))]
#[case("200 OK", r#"{"versions":{"assisted-installer-service":"image:7"}}"#, Ok("(image:7)"))]
#[case("200 OK", r#"{"versions":{}}"#, Ok("(of an unknown version)"))]
#[case("200 OK", "{}", Err("it is not an assisted-service: it answers JSON without `versions`"))]
#[case("200 OK", "<html>", Err("answers no JSON"))]
#[case("404 Not Found", "", Err("it is not an assisted-service: asked for its versions it answers HTTP 404"))]
#[case(
    "400 Bad Request",
    "Client sent an HTTP request to an HTTPS server.\n",
    Err("it speaks https; https is not built yet: use the service's http listener")
)]
#[case("401 Unauthorized", "", Err("the service asks for credentials (HTTP 401)"))]
#[case("403 Forbidden", "", Err("the service asks for credentials (HTTP 403)"))]
#[tokio::test]
async fn a_remote_service_says_what_it_is(
    #[case] status: &'static str,
    #[case] body: &'static str,
    #[case] expected: Result<&str, &str>,
) {
    let url = answer_once(status, body).await;
    let found = remote::find(&url).await;
    match (found, expected) {
        (Ok(about), Ok(version)) => {
            assert!(about.conninfo.is_none() && about.startup.is_none(), "nothing was started");
            assert_eq!(about.version, format!("{url} {version}"));
        }
        (Err(error), Err(text)) => {
            let error = error.to_string();
            assert!(error.contains(text) && error.contains(&url), "{error}");
        }
        (found, expected) => panic!("{found:?} instead of {expected:?}"),
    }
}

#[tokio::test]
async fn a_remote_service_that_does_not_answer_is_named() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    let error = remote::find(&url).await.unwrap_err().to_string();
    assert!(error.contains("no service answers at") && error.contains(&url), "{error}");
}

/// What a TLS server says to plain HTTP, and what comes from a port that is something else.
#[rstest]
#[case::tls_alert(b"\x15\x03\x01\x00\x02\x02\x46")]
#[case::ssh(b"SSH-2.0-OpenSSH_9.2\r\n")]
#[case::nothing(b"")]
#[tokio::test]
async fn what_speaks_no_http_is_told_apart(#[case] says: &'static [u8]) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        // The question is a GET: it is asked once more over a new connection.
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(says).await;
        }
    });
    let error = remote::find(&url).await.unwrap_err().to_string();
    assert!(error.contains("does not speak HTTP") && error.contains("use the service's http listener"), "{error}");
    assert!(error.contains(&url), "{error}");
}

#[test]
fn nothing_is_made_where_a_folder_of_that_name_is_already() {
    let name = format!("test-twice-{}", std::process::id());
    let first = Scratch::create(&name, None, true).unwrap();
    let error = Scratch::create(&name, None, true).unwrap_err().to_string();
    assert!(error.contains(&name), "{error}");
    assert!(first.path().join("tools/oc").exists(), "the first one is not taken over");
    first.remove().unwrap();
}
