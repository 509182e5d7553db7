//! Load plans that install clusters, against `vlab service`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;
use vlab_lab::postgres::{PgCluster, PgOptions};

use crate::bench::{CliFixture, RUN, until};

const PLAN: &str = "version: 1
name: two-kinds
mode: installs
time_profile: rapid
look: 500ms
population:
  clusters:
    - {scenario: sno, count: 2}
    - {scenario: ha-3-2, count: 1}
    - {scenario: insufficient-hardware, count: 1}
phases:
  - ramp: 1s
  - hold: 5m
thresholds:
  errors_percent: 5
  installed_percent: 75
";

#[test]
fn e2e_installations_are_counted_by_how_they_end() {
    let bench = CliFixture::new();
    let (_service, url) = bench.service(&["--time-profile", "rapid"]);
    let plan = bench.file("two-kinds.yaml", PLAN);
    let json = bench.path("result.json");
    let page = bench.path("page.html");
    let metrics = bench.path("otlp.json");
    let (json, page, otlp) = (json.to_str().unwrap(), page.to_str().unwrap(), metrics.to_str().unwrap());
    let files = ["--json", json, "--html", page, "--otlp", otlp];
    let said = bench.vlab_within(RUN, &[&["load", &plan, "--url", &url][..], &files].concat()).ends_with(0);
    let said = said.says(&["installations: 4 begun, 3 installed", "holds: at least 75 %"]);
    assert!(said.err.contains("begun, "), "progress is told: {}", said.err);
    let result: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let installs = &result["installs"];
    assert_eq!((installs["begun"].as_u64(), installs["installed"].as_u64()), (Some(4), Some(3)), "{installs}");
    assert_eq!(installs["ended_otherwise"].as_object().unwrap().len(), 1, "{installs}");
    let operations: Vec<&str> =
        result["lines"].as_array().unwrap().iter().map(|line| line["operation"].as_str().unwrap()).collect();
    for operation in ["v2RegisterCluster", "v2InstallCluster", "v2UpdateHostInstallProgress", "v2GetNextSteps"] {
        assert!(operations.contains(&operation), "{operation}: {operations:?}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h2>Installations</h2>"));
    let metrics = std::fs::read_to_string(metrics).unwrap();
    assert!(metrics.starts_with("{\"resourceMetrics\"") && metrics.contains("vlab.load.installations"), "{metrics}");
}

#[test]
fn a_fleet_can_be_played_in_virtual_time() {
    let bench = CliFixture::new();
    let plan = |hold: &str| {
        let text = PLAN.replace("rapid", "real").replace("look: 500ms", "look: 30s").replace("hold: 5m", hold);
        bench.file("two-kinds.yaml", text)
    };
    let json = bench.path("result.json");
    let json = json.to_str().unwrap();
    let slow = ["--virtual", "--host-look", "3s", "--cluster-look", "15ms", "--json", json];
    let said = bench.vlab_within(RUN, &[&["load", &plan("hold: 6h")][..], &slow].concat()).ends_with(0);
    said.says(&["4 installations begun", "installed 3: half within", "a look at a host takes 3000 ms", "result: "]);
    let result: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(result["installs"]["installed"], 3);
    // Eight hosts take a pass of 24 s, which the plan wants each 8 s.
    assert!(result["host_monitor"]["overdue"].as_u64().unwrap() > 0, "{}", result["host_monitor"]);
    assert!(!result["per_second"].as_array().unwrap().is_empty());
    // Nobody is installed by then.
    let said = bench.vlab_within(RUN, &["load", &plan("hold: 10m"), "--virtual", "--json", "-"]).ends_with(5);
    let missed: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(missed["checks"][0]["holds"], false, "{}", missed["checks"]);
}

#[test]
fn what_virtual_time_has_not_is_refused() {
    let bench = CliFixture::new();
    let plan = bench.file("two-kinds.yaml", PLAN);
    bench
        .vlab(&["load", &plan, "--virtual", "--url", "http://127.0.0.1:1"])
        .ends_with(2)
        .says(&["cannot be used with"]);
    bench.vlab(&["load", &plan, "--virtual", "--host-look", "3"]).ends_with(2).says(&["needs a unit"]);
    bench.vlab(&["load", &plan, "--virtual", "--time-profile", "reel"]).ends_with(2).says(&["reel"]);
    let idle = bench.file("few.yaml", IDLE.replace("HOLD", "5s"));
    bench.vlab(&["load", &idle, "--virtual"]).ends_with(2).says(&["`mode: installs`"]);
}

/// The body of an answer.
fn get(url: &str, path: &str) -> String {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

const STANDING: &str = "version: 1
name: standing
mode: reboot-storm
cadence: 500ms
population:
  unbound: 10
  clusters:
    - {scenario: sno, count: 2}
    - {scenario: ha-3-2, count: 2}
phases:
  - ramp: 1s
  - hold: 6s
  - storm: 1s
  - hold: 4s
thresholds:
  errors_percent: 0
";

/// Hosts of clusters that nobody installs are asked more than unbound ones, and answer it all: their clusters become ready.
#[test]
fn e2e_hosts_of_clusters_stand_by_among_others() {
    let bench = CliFixture::new();
    let (_service, url) = bench.service(&["--time-profile", "rapid"]);
    let plan = bench.file("standing.yaml", STANDING);
    bench.vlab(&["load", "validate", &plan]).ends_with(0).says(&["standing: valid; 4 clusters, 22 hosts, 12 s"]);
    let said = bench.vlab_within(RUN, &["load", &plan, "--url", &url, "--json", "-", "--workers", "2"]).ends_with(0);
    let result: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(result["steps_left"], serde_json::json!({}), "all is answered");
    let count = |operation: &str| -> u64 {
        let lines = result["lines"].as_array().unwrap().iter().filter(|line| line["operation"] == operation);
        lines.map(|line| line["answered"].as_u64().unwrap()).sum()
    };
    // Each twice, and once more those that came before the service had said which agent it wants.
    assert!((44..=66).contains(&count("v2RegisterHost")), "{}", count("v2RegisterHost"));
    // Each host tells its inventory after each registration; those of clusters also whom they reach, what the time is, and more.
    assert!(count("v2PostStepReply") > 44 + 24, "{}", count("v2PostStepReply"));
    let clusters: Vec<Value> = serde_json::from_str(&get(&url, "/api/assisted-install/v2/clusters")).unwrap();
    let statuses: Vec<&str> = clusters.iter().map(|cluster| cluster["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["ready"; 4], "{statuses:?}");
}

#[test]
fn who_comes_only_after_an_installation_cannot_stand_by() {
    let bench = CliFixture::new();
    let plan = bench.file("standing.yaml", STANDING.replace("scenario: sno", "scenario: day-2-worker"));
    bench
        .vlab(&["load", "validate", &plan])
        .ends_with(2)
        .says(&["the scenario day-2-worker cannot be played as a load", "comes when its cluster is installed"]);
    let plan = bench.file("standing.yaml", STANDING);
    bench.vlab(&["load", &plan, "--stub"]).ends_with(2).says(&["a stub only answers"]);
}

/// PostgreSQL's own figures are noted beside those of the load; what it does not tell is told.
#[rstest::rstest]
#[case::with_statements(true)]
#[case::without(false)]
fn e2e_the_database_tells_its_figures(#[case] has_statements: bool) {
    let bench = CliFixture::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_server, conninfo) = runtime.block_on(async {
        let preload = ("shared_preload_libraries".to_owned(), "pg_stat_statements".to_owned());
        let options =
            PgOptions { settings: has_statements.then_some(preload).into_iter().collect(), ..Default::default() };
        let server = PgCluster::start(options).await.unwrap();
        let conninfo = server.create_database("service").await.unwrap();
        if has_statements {
            let client = vlab_lab::postgres::connect(&conninfo).await.unwrap();
            client.batch_execute("CREATE EXTENSION pg_stat_statements").await.unwrap();
        }
        (server, conninfo)
    });
    let (_service, url) = bench.service(&["--postgres", &conninfo]);
    let plan = bench.file("few.yaml", IDLE.replace("HOLD", "4s"));
    let page = bench.path("page.html");
    let asks = ["load", &plan, "--url", &url, "--database", &conninfo];
    let said = bench.vlab_within(RUN, &[&asks[..], &["--json", "-", "--html", page.to_str().unwrap()]].concat());
    let result: Value = serde_json::from_str(&said.ends_with(0).out).unwrap();
    let seconds = result["seconds"].as_array().unwrap();
    let most = |figure: &str| seconds.iter().filter_map(|s| s["database"][figure].as_u64()).max().unwrap_or(0);
    // The service has one connection at least, and what hosts say is stored.
    assert!(most("connections") >= 1 && most("transactions") >= 1 && most("written") >= 1, "{seconds:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("the database: connections"));
    let warnings = result["warnings"].to_string();
    assert_eq!(warnings.contains("pg_stat_statements"), !has_statements, "{warnings}");
    let statements = result["statements"].as_array();
    let told = statements.is_some_and(|all| all.iter().any(|one| one["text"].as_str().unwrap().contains("hosts")));
    assert_eq!((told, page.contains("spent most time on")), (has_statements, has_statements), "{statements:?}");
    let nobody = ["load", &plan, "--url", &url, "--database", "host=127.0.0.1 port=1 user=x connect_timeout=5"];
    bench.vlab_within(RUN, &nobody).ends_with(3).says(&["cannot be asked for its figures", "refused"]);
}

#[test]
fn a_soak_needs_a_process_to_watch_and_a_hold_that_is_long_enough() {
    let bench = CliFixture::new();
    let soak = |hold: &str| {
        let plan =
            "version: 1\nname: soak\nmode: idle\npopulation: {unbound: 5}\nthresholds: {memory_growth_percent: 1}\n";
        bench.file("soak.yaml", format!("{plan}phases: [ramp: 1s, hold: {hold}]\n"))
    };
    let url = ["--url", "http://127.0.0.1:1"];
    bench.vlab(&[&["load", &soak("10m")][..], &url].concat()).ends_with(2).says(&["--watch PID"]);
    bench.vlab(&["load", "validate", &soak("10m")]).ends_with(0);
    bench.vlab(&["load", "validate", &soak("4m")]).ends_with(2).says(&["needs a hold of 300 s or more"]);
}

#[test]
fn e2e_a_missed_share_is_5_and_figures_are_shown_meanwhile() {
    let bench = CliFixture::new();
    let (_service, url) = bench.service(&["--time-profile", "fast"]);
    // Under `fast` nobody is installed within that time.
    let plan = PLAN.replace("rapid", "fast").replace("hold: 5m", "hold: 3s").replace("ha-3-2", "sno");
    let plan = plan.replace("insufficient-hardware", "sno");
    let plan = bench.file("two-kinds.yaml", plan);
    let mut run = bench.start(&["load", &plan, "--url", &url, "--json", "-", "--metrics", "127.0.0.1:0"]);
    let first = run.says_next();
    let address = first.strip_prefix("figures: http://").and_then(|rest| rest.strip_suffix("/metrics")).unwrap();
    let mut figures = String::new();
    until("the figures have the clusters", RUN, || {
        figures = get(&format!("http://{address}"), "/metrics");
        figures.contains("vlab_load_fleet{state=\"under way\"} 4")
    });
    assert!(figures.contains("vlab_load_requests_answered_total{operation=\"v2RegisterCluster\"}"), "{figures}");
    let said = run.end(RUN).ends_with(5);
    let result: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(result["installs"]["ended_otherwise"]["under way when the plan was over"], 4);
}

#[test]
fn what_cannot_be_a_load_is_refused_with_its_reason() {
    let bench = CliFixture::new();
    for (scenario, says) in [
        ("kube-sno", "its user asks over Kubernetes"),
        ("postgres-restarts", "the database of a remote service is not ours to touch"),
        ("sno", "a stub only answers"),
    ] {
        let plan = PLAN.replace("scenario: sno", &format!("scenario: {scenario}"));
        let plan = bench.file("two-kinds.yaml", plan);
        bench.vlab(&["load", &plan, "--stub"]).ends_with(2).says(&[says]);
    }
}

const IDLE: &str =
    "version: 1\nname: few\nmode: idle\npopulation: {unbound: 20}\ncadence: 200ms\nphases: [ramp: 1s, hold: HOLD]\n";

#[test]
fn e2e_a_full_disk_is_told_and_the_other_files_are_written() {
    let bench = CliFixture::new();
    let plan = bench.file("few.yaml", IDLE.replace("HOLD", "1s"));
    let page = bench.path("page.html");
    let said =
        bench.vlab_within(RUN, &["load", &plan, "--stub", "--json", "/dev/full", "--html", page.to_str().unwrap()]);
    let said = said.ends_with(3).says(&["cannot write /dev/full", "0 failed, 0 unanswered"]);
    assert!(!said.err.contains("result: "), "{}", said.err);
    assert!(std::fs::read_to_string(page).unwrap().contains("</html>"));
}

#[test]
fn e2e_what_the_other_parts_saw_outlives_one_that_died() {
    let bench = CliFixture::new();
    let plan = bench.file("few.yaml", IDLE.replace("HOLD", "3s"));
    let json = bench.path("result.json");
    let run = bench.start(&["load", &plan, "--stub", "--workers", "2", "--json", json.to_str().unwrap()]);
    let children = format!("/proc/{0}/task", run.id());
    let mut parts: Vec<i32> = Vec::new();
    until("both parts are there", RUN, || {
        let threads = std::fs::read_dir(&children).unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        let of = |thread: std::path::PathBuf| std::fs::read_to_string(thread.join("children")).unwrap_or_default();
        let all: String = threads.map(of).collect();
        parts = all.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        parts.len() == 2
    });
    parts.sort_unstable();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(parts[0]), nix::sys::signal::Signal::SIGKILL).unwrap();
    run.end(RUN).ends_with(3).says(&["part 1/2 gave no result", "these are 1 of the 2 parts"]);
    let result: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(result["parts"], serde_json::json!([2, 1]));
    assert!(result["lines"][0]["answered"].as_u64().unwrap() > 0, "{result}");
}
