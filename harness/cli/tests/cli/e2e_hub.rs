//! A service whose controllers work on an API server of the run. In the place of the real one stands a script that looks for what a pod
//! has, takes the controllers' lease and becomes the simulated service.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vlab_judge::result::{CheckKind, Verdict};

use crate::bench::{CliFixture, RUN, VLAB, signal};

const SERVICE: &str = r#"#!/bin/bash
set -eu
namespace=$(cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo .)
[[ -e /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem ]] && echo "authorities there"
echo "namespace <${namespace%.}> kube $ENABLE_KUBE_API metal $ENABLE_METAL3 in $NAMESPACE"
server=$(sed -n 's|.*server: *"*http://\([^"]*\).*|\1|p' "$KUBECONFIG")
exec 3<>"/dev/tcp/${server%:*}/${server#*:}"
body='{"metadata":{"name":"77190dcb.agent-install.openshift.io"},"spec":{"holderIdentity":"LEADER","leaseDurationSeconds":15}}'
printf 'POST /apis/coordination.k8s.io/v1/namespaces/%s/leases HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s' \
    "$NAMESPACE" "${#body}" "$body" >&3
read -r answer <&3
echo "lease: $answer"
exec 3>&-
# The simulated service opens the images that it is told.
unset OS_IMAGES
export VLAB_POSTGRES="host=$DB_HOST port=$DB_PORT user=$DB_USER password=$DB_PASS dbname=$DB_NAME"
controllers=()
if [[ -n ${VLAB_TEST_CONTROLLERS:-} ]]; then
    controllers=(--kubeconfig "$KUBECONFIG" --pace 60)
fi
exec "$VLAB_TEST_PROGRAM" service --listen "127.0.0.1:$HTTP_LISTEN_PORT" "${controllers[@]}"
"#;

/// The API server lies beside `vlab` where all programs are built.
pub(crate) fn api_server() -> bool {
    let there = Path::new(VLAB).with_file_name("vlab-kube").is_file();
    if !there {
        vlab_skip::skip!("vlab-kube is not built: cargo build -p vlab-kube-server");
    }
    there
}

fn service(bench: &CliFixture) -> String {
    let program = bench.file("service", SERVICE);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    format!("process:{program}")
}

fn definitions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fakes/kube-server/tests/clients")
}

/// Controllers always listen on 8080: only one test may have it.
#[test]
fn a_service_in_a_pod_of_the_runs_api_server() {
    if !api_server() {
        return;
    }
    let Ok(taken) = TcpListener::bind("0.0.0.0:8080") else {
        vlab_skip::skip!("somebody has port 8080 of this computer");
        return;
    };
    let bench = CliFixture::new();
    let (service, definitions) = (service(&bench), definitions());
    let definitions = definitions.to_str().unwrap();
    let run = |filter: &str| {
        let args = ["conformance", "--service", &service, "--definitions", definitions, "--filter", filter];
        let mut command = bench.command(&args);
        command.env("VLAB_TEST_PROGRAM", VLAB);
        crate::bench::Said::from(command.output().unwrap())
    };
    run("register/again/known").ends_with(3).says(&["port 8080 is taken", "ss -ltnp sport = :8080"]);
    drop(taken);
    run("register/again/known").ends_with(0).says(&["0 failed"]);
    let log = fs::read_to_string(bench.latest().join("service.log")).unwrap();
    for line in [
        "authorities there",
        "namespace <assisted-installer> kube true metal false in assisted-installer",
        "lease: HTTP/1.1 201",
    ] {
        assert!(log.contains(line), "{line} is missing in {log}");
    }
    bench.nothing_is_left();
}

/// The simulated service's controllers work on an API server of the run, and faults are done to that.
#[test]
fn scenarios_over_kubernetes_in_real_time() {
    if !api_server() {
        return;
    }
    let bench = CliFixture::new();
    bench.vlab(&["scenario", "kube-writes-conflict", "--quiet"]).ends_with(0).says(&["faults 3/3"]);
    let history = fs::read_to_string(bench.latest().join("history.jsonl")).unwrap();
    for part in [r#""resource":{"kind":"AgentClusterInstall""#, "by the service's controllers"] {
        assert!(history.contains(part), "{part} is missing");
    }
    bench.vlab(&["check", "latest"]).ends_with(0);
    // A scenario of the REST API, whose cluster is open for more hosts in the end; judged again from what was written down.
    bench.vlab(&["scenario", "sno", "--hosts", "sim", "--api", "kube", "--quiet"]).ends_with(0);
    bench.vlab(&["check", "latest"]).ends_with(0);
    bench.nothing_is_left();
}

/// The service ends without its lease, and is started again as a pod would be.
#[test]
fn a_service_without_its_lease_is_started_again() {
    if !api_server() {
        return;
    }
    let bench = CliFixture::new();
    bench.vlab(&["scenario", "kube-lease-taken", "--quiet"]).ends_with(0).says(&["faults 1/1"]);
    let history = fs::read_to_string(bench.latest().join("history.jsonl")).unwrap();
    for part in
        ["leases/77190dcb.agent-install.openshift.io was taken over", "leader election lost", "the service is up again"]
    {
        assert!(history.contains(part), "{part} is missing");
    }
    bench.vlab(&["check", "latest"]).ends_with(0);
    bench.nothing_is_left();
}

/// The lab's fault, not the product's: it proves nothing, and the run says which program died and what it said last.
#[test]
fn an_api_server_that_dies_is_inconclusive() {
    if !api_server() {
        return;
    }
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", "kube-sno", "--hosts", "sim"]);
    bench.wait_for_history("Writing image to disk");
    let of_run = |(_, line): &(i32, String)| line.contains("vlab-kube") && line.contains("--http");
    let (pid, _) = bench.processes().into_iter().find(of_run).expect("the run has no API server");
    signal(pid, "KILL");
    run.end(RUN).ends_with(3).says(&[
        "inconclusive",
        "API server exited unexpectedly during the run: signal: 9 (SIGKILL)",
        "s after the start of the run",
    ]);
    let result = bench.result();
    assert_eq!(result.verdict, Verdict::Inconclusive);
    let check = result.checks.iter().find(|c| c.kind == CheckKind::Lab && c.name == "API server");
    let check = check.unwrap_or_else(|| panic!("{:#?}", result.checks));
    assert!(!check.last_things.is_empty(), "the last lines of its log are missing: {check:#?}");
    bench.nothing_is_left();
    bench.vlab(&["check", "latest"]).ends_with(3).says(&["API server"]);
}

/// A program whose controllers are its own: the harness asks the same API server, and does Hive's part there.
#[test]
fn the_controllers_of_a_program_are_asked() {
    if !api_server() {
        return;
    }
    if TcpListener::bind("0.0.0.0:8080").is_err() {
        vlab_skip::skip!("somebody has port 8080 of this computer");
        return;
    }
    let bench = CliFixture::new();
    let mut command =
        bench.command(&["scenario", "kube-sno", "--service", &service(&bench), "--hosts", "sim", "--quiet"]);
    command.env("VLAB_TEST_PROGRAM", VLAB).env("VLAB_TEST_CONTROLLERS", "true");
    crate::bench::Said::from(command.output().unwrap()).ends_with(0);
    bench.nothing_is_left();
}

/// Without the program of the API server a scenario that needs it is skipped, and those of a tag are left out.
#[test]
fn without_an_api_server_scenarios_over_kubernetes_are_skipped() {
    let bench = CliFixture::new();
    let run = |args: &[&str]| {
        let mut command = bench.command(args);
        crate::bench::Said::from(command.env("VLAB_KUBE", "/nonexistent/vlab-kube").output().unwrap())
    };
    let missing = "/nonexistent/vlab-kube is not there";
    run(&["scenario", "kube-sno", "--quiet"]).ends_with(3).says(&["skipped", missing]);
    run(&["scenario", "--tag", "kube", "--quiet"])
        .ends_with(4)
        .says(&["left out, because they ask over Kubernetes", missing]);
    bench.nothing_is_left();
}

#[test]
fn what_a_hub_lacks_is_told() {
    let bench = CliFixture::new();
    let empty = bench.path("empty");
    fs::create_dir(&empty).unwrap();
    let empty = empty.to_str().unwrap();
    let run = |service: &str, kube: &str| {
        let args = ["conformance", "--service", service, "--definitions", empty];
        crate::bench::Said::from(bench.command(&args).env("VLAB_KUBE", kube).output().unwrap())
    };
    run("remote:http://127.0.0.1:1", "").ends_with(3).says(&["not those of remote:"]);
    let service = service(&bench);
    if TcpListener::bind("0.0.0.0:8080").is_err() {
        vlab_skip::skip!("in part: somebody has port 8080 of this computer");
        return;
    }
    run(&service, "/nonexistent/vlab-kube").ends_with(3).says(&["/nonexistent/vlab-kube is not there", "cargo build"]);
    run(&service, VLAB).ends_with(3).says(&["there is no CustomResourceDefinition in its YAML files"]);
    bench.nothing_is_left();
}

/// A kubectl, through which a hub that is there is asked.
fn kubectl() -> Option<PathBuf> {
    let named = std::env::var_os("VLAB_KUBECTL").map(PathBuf::from);
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let found = named.or_else(|| std::env::split_paths(&in_path).map(|f| f.join("kubectl")).find(|f| f.is_file()));
    if found.is_none() {
        vlab_skip::skip!("there is no kubectl (VLAB_KUBECTL names one)");
    }
    found
}

/// Who is refused once is told at once: by whom, as whom, and what to do.
#[test]
fn a_hub_that_refuses_is_told_at_once() {
    let Some(kubectl) = kubectl() else { return };
    let bench = CliFixture::new();
    let (_service, address) = bench.service(&["--time-profile", "fast"]);
    let config = "{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: somebody}}], \
                  clusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}], users: [{name: somebody, user: {token: wrong}}]}";
    let config = bench.file("nobody.yaml", config);
    let service = format!("remote:{address}");
    let args = ["scenario", "kube-sno", "--hosts", "sim", "--quiet", "--kubeconfig", &config, "--service", &service];
    let since = std::time::Instant::now();
    let mut command = bench.command(&args);
    let said = crate::bench::Said::from(command.env("VLAB_KUBECTL", &kubectl).output().unwrap());
    said.ends_with(3).says(&[
        "http://127.0.0.1:1",
        "as the user somebody",
        "connection refused",
        "Is it running there",
    ]);
    let took = since.elapsed();
    assert!(took < Duration::from_secs(10), "it took {took:?}");
}

/// Somebody's hub, with the service's controllers on it: the run makes its namespace there and takes it away again, also when it is killed;
/// what it must not touch it refuses to.
#[test]
fn a_hub_that_is_there_is_left_as_it_was() {
    let Some(kubectl) = kubectl().filter(|_| api_server()) else { return };
    let bench = CliFixture::new();
    let folder = bench.path("hub");
    fs::create_dir(&folder).unwrap();
    let kubeconfig = folder.join("kubeconfig");
    let kube = Path::new(VLAB).with_file_name("vlab-kube");
    let hub = bench.start_as(&kube, &["--http", "--listen", "127.0.0.1:0", "--dir", folder.to_str().unwrap()]);
    crate::bench::until("the hub's kubeconfig", Duration::from_secs(30), || {
        fs::read_to_string(&kubeconfig).is_ok_and(|text| text.ends_with('\n'))
    });
    let ask = |args: &[&str]| {
        let mut command = std::process::Command::new(&kubectl);
        let output = command.arg("--kubeconfig").arg(&kubeconfig).args(args).output().unwrap();
        assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (_service, address) =
        bench.service(&["--time-profile", "fast", "--kubeconfig", kubeconfig.to_str().unwrap(), "--pace", "60"]);
    let service = format!("remote:{address}");
    let args = ["scenario", "kube-sno", "--hosts", "sim", "--quiet", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let run = |more: &[&str]| {
        let mut command = bench.command(&[&args[..], more].concat());
        crate::bench::Said::from(command.env("VLAB_KUBECTL", &kubectl).output().unwrap())
    };
    let here = ["--service", service.as_str()];
    run(&here).ends_with(3).says(&["it has no ClusterImageSet (hive.openshift.io/v1)", "not installed there"]);

    let definitions = vlab_service_server::hub::definitions();
    let kinds: Vec<String> = definitions.iter().map(serde_json::Value::to_string).collect();
    ask(&["apply", "--server-side", "-f", &bench.file("kinds.yaml", format!("# YAML\n{}", kinds.join("\n---\n")))]);
    let ours = ask(&["get", "namespaces", "-o", "name"]);
    run(&[]).ends_with(2).says(&["name the address where hosts reach it"]);
    ask(&["create", "namespace", "edge"]);
    run(&here).ends_with(3).says(&["the namespace edge is there already"]);
    ask(&["delete", "namespace", "edge"]);

    let suite = ["conformance", "--service", service.as_str(), "--kubeconfig", kubeconfig.to_str().unwrap()];
    bench.vlab(&suite).ends_with(2).says(&["--kubeconfig is for runs of scenarios over Kubernetes"]);
    run(&here).ends_with(0).says(&["kube-sno passed"]);
    assert_eq!(ask(&["get", "namespaces", "-o", "name"]), ours);
    assert_eq!(ask(&["get", "clusterimagesets", "-o", "name"]), "");
    let history = fs::read_to_string(bench.latest().join("history.jsonl")).unwrap();
    assert!(history.contains(r#""resource":{"kind":"AgentClusterInstall""#), "the resources were not followed");

    let mut command = bench.command(&[&args[..], &here].concat());
    let mut killed = command.env("VLAB_KUBECTL", &kubectl).spawn().unwrap();
    let ours = ours.as_str();
    crate::bench::until("the run's namespace", Duration::from_secs(60), || {
        ask(&["get", "namespaces", "-o", "name"]) != ours
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    crate::bench::until("the namespace to be gone", Duration::from_secs(60), || {
        ask(&["get", "namespaces", "-o", "name"]) == ours
    });
    drop(hub);
}
