//! What people do with `kubectl`, by a real one, over HTTPS: a table of commands and what they print.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use vlab_kube_server::Server;

/// The oldest `kubectl` whose apply is the present one.
const OLDEST: u64 = 30;

/// `VLAB_KUBECTL`, or the one in `PATH`, if it is new enough.
fn kubectl() -> Option<PathBuf> {
    let program = std::env::var_os("VLAB_KUBECTL").map_or_else(|| PathBuf::from("kubectl"), PathBuf::from);
    let output = Command::new(&program).args(["version", "--client", "-o", "json"]).output().ok()?;
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let minor = version["clientVersion"]["minor"].as_str()?.trim_end_matches('+').parse::<u64>().ok()?;
    (minor >= OLDEST).then_some(program)
}

struct Shell {
    program: PathBuf,
    home: tempfile::TempDir,
    server: Server,
}

impl Shell {
    /// One with a server of its own; nothing: there is no kubectl, which is told.
    async fn new() -> Option<Self> {
        let Some(program) = kubectl() else {
            vlab_skip::skip!("there is no kubectl of 1.{OLDEST} or later (VLAB_KUBECTL names one)");
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        let (server, kubeconfig) = common::server().await;
        std::fs::write(home.path().join("config"), kubeconfig).unwrap();
        Some(Self { program, home, server })
    }

    fn run(&self, words: &str, input: &str) -> Output {
        let mut words: Vec<String> = shell_words(words);
        words.retain(|w| !w.is_empty());
        let mut child = Command::new(&self.program)
            .args(words)
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("config"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

/// Words with single quotes around those that have spaces in them.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words
}

const DEFINITION: &str = include_str!("clients/thing.yaml");

const THING: &str = "
apiVersion: lab.example.com/v1
kind: Thing
metadata: { name: x, labels: { k: v } }
spec: { count: 1 }
";

/// Command, input, exit code, what is in its output (stdout and stderr).
const COMMANDS: &[(&str, &str, i32, &str)] = &[
    ("apply -f -", DEFINITION, 0, "customresourcedefinition.apiextensions.k8s.io/things.lab.example.com created"),
    ("wait --for condition=established --timeout=10s crd/things.lab.example.com", "", 0, "condition met"),
    ("apply -f -", THING, 0, "thing.lab.example.com/x created"),
    ("apply -f -", THING, 0, "thing.lab.example.com/x unchanged"),
    ("apply --server-side -f -", THING, 0, "serverside-applied"),
    ("diff -f -", THING, 0, ""),
    ("get th", "", 0, "NAME   MODE\nx      a\n"),
    ("get things -o wide", "", 0, "NAME   MODE   COUNT\nx      a      1\n"),
    ("get thing x -o jsonpath={.spec.mode}", "", 0, "a"),
    ("get thing x -o yaml", "", 0, "apiVersion: lab.example.com/v1\nkind: Thing\n"),
    ("get thing -l k=v -o name", "", 0, "thing.lab.example.com/x"),
    ("get thing -A", "", 0, "NAMESPACE   NAME   MODE\ndefault     x      a\n"),
    ("get th --show-labels", "", 0, "NAME   MODE   LABELS\nx      a      k=v\n"),
    ("get th -o custom-columns=N:.metadata.name,C:.spec.count", "", 0, "N     C\nx     1\n"),
    ("get th x -o go-template={{.spec.count}}", "", 0, "1"),
    ("get th --sort-by=.spec.count -o name", "", 0, "thing.lab.example.com/x"),
    ("get th x --watch --request-timeout=1s", "", 0, "NAME   MODE\nx      a\n"),
    ("apply view-last-applied thing x", "", 0, "kind: Thing"),
    ("replace -f -", THING, 0, "thing.lab.example.com/x replaced"),
    ("create -f -", THING, 1, "(AlreadyExists)"),
    ("explain thing --recursive", "", 0, "conditions"),
    ("get thing nothing", "", 1, "Error from server (NotFound): things.lab.example.com \"nothing\" not found"),
    ("describe thing x", "", 0, "Kind:         Thing"),
    ("explain thing.spec.mode", "", 0, "How it works."),
    ("explain pod.spec.containers", "", 0, "<[]Container>"),
    ("api-resources --api-group=lab.example.com", "", 0, "lab.example.com/v1   true         Thing"),
    ("api-versions", "", 0, "lab.example.com/v1"),
    ("patch thing x --type merge -p '{\"spec\":{\"mode\":\"b\"}}'", "", 0, "patched"),
    ("patch thing x --type json -p '[{\"op\":\"replace\",\"path\":\"/spec/count\",\"value\":4}]'", "", 0, "patched"),
    (
        "patch thing x --type merge -p '{\"spec\":{\"mode\":\"z\"}}'",
        "",
        1,
        "The Thing \"x\" is invalid: spec.mode: Unsupported value: \"z\": supported values: \"a\", \"b\"",
    ),
    (
        "patch thing x --subresource=status --type merge -p '{\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}'",
        "",
        0,
        "patched",
    ),
    ("wait --for=condition=Ready --timeout=10s thing/x", "", 0, "condition met"),
    ("wait --for=jsonpath={.spec.count}=4 --timeout=10s thing/x", "", 0, "condition met"),
    ("label thing x a=b", "", 0, "labeled"),
    ("label thing x a=c --overwrite", "", 0, "labeled"),
    ("annotate thing x a.example.com/c=d", "", 0, "annotated"),
    (
        "apply --validate=strict -f -",
        "{\"apiVersion\": \"lab.example.com/v1\", \"kind\": \"Thing\", \"metadata\": {\"name\": \"other\"}, \"spec\": {\"more\": 1}}",
        1,
        "unknown field \"spec.more\"",
    ),
    ("create configmap m --from-literal=a=1", "", 0, "configmap/m created"),
    ("patch configmap m --type strategic -p '{\"data\":{\"b\":\"2\"}}'", "", 0, "patched"),
    ("get configmap m", "", 0, "NAME   DATA   AGE\nm      2"),
    ("create secret generic s --from-literal=password=p", "", 0, "secret/s created"),
    ("get secret s -o jsonpath={.data.password}", "", 0, "cA=="),
    ("create namespace lab", "", 0, "namespace/lab created"),
    ("describe namespace lab", "", 0, "Status:       Active"),
    ("create quota q --hard=pods=1", "", 0, "resourcequota/q created"),
    ("create job j --image=i", "", 0, "job.batch/j created"),
    ("create deployment d --image=i --replicas=2", "", 0, "deployment.apps/d created"),
    ("scale deployment d --replicas=3", "", 0, "deployment.apps/d scaled"),
    ("set image deployment d i=j", "", 0, "deployment.apps/d image updated"),
    ("get deployment d -o jsonpath={.spec.replicas}", "", 0, "3"),
    ("get all", "", 0, "deployment.apps/d"),
    ("run p --image=i", "", 0, "pod/p created"),
    ("delete pod p --wait=false", "", 0, "pod \"p\" deleted"),
    ("certificate approve none", "", 1, "certificatesigningrequests.certificates.k8s.io \"none\" not found"),
    ("auth can-i --list", "", 0, "*.*"),
    ("get cm -A --chunk-size=1", "", 0, "NAMESPACE   NAME   DATA   AGE"),
    ("create serviceaccount robot", "", 0, "serviceaccount/robot created"),
    ("create token robot", "", 0, ""),
    ("create role r --verb=get --resource=configmaps", "", 0, "role.rbac.authorization.k8s.io/r created"),
    ("create configmap n --dry-run=server", "", 0, "configmap/n created (server dry run)"),
    ("auth can-i create things", "", 0, "yes"),
    ("auth whoami", "", 0, "kubernetes-admin"),
    ("patch thing x --type merge -p '{\"metadata\":{\"finalizers\":[\"lab.example.com/wait\"]}}'", "", 0, "patched"),
    ("delete thing x --wait=false", "", 0, "thing.lab.example.com \"x\" deleted"),
    ("get thing x -o jsonpath={.metadata.finalizers}", "", 0, "lab.example.com/wait"),
    ("patch thing x --type merge -p '{\"metadata\":{\"finalizers\":null}}'", "", 0, "patched"),
    ("wait --for=delete --timeout=10s thing/x", "", 0, ""),
    ("delete namespace lab --timeout=10s", "", 0, "namespace \"lab\" deleted"),
    ("get events", "", 0, "No resources found"),
    ("get --raw /readyz", "", 0, "ok"),
    ("version", "", 0, "Server Version: v1.36"),
    ("cluster-info", "", 0, "is running at"),
    ("delete crd things.lab.example.com --timeout=10s", "", 0, "deleted"),
    ("get things", "", 1, "the server could not find the requested resource"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_do_with_kubectl() {
    let Some(shell) = Shell::new().await else { return };
    let mut wrong = Vec::new();
    for (command, input, code, wanted) in COMMANDS {
        let output = shell.run(command, input);
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.code() != Some(*code) || !text.contains(wanted) {
            wrong.push(format!(
                "kubectl {command}: exit code {:?}, wanted {code} and {wanted:?}:\n{text}",
                output.status.code()
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} commands:\n{}", wrong.len(), COMMANDS.len(), wrong.join("\n"));
}

const REQUEST: &str = "
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: { name: one }
spec: { request: eA==, signerName: kubernetes.io/kubelet-serving, usages: [digital signature, server auth] }
";

/// Clusters are behind the same port, and who plays a kubelet there is one for a request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_do_with_a_cluster_behind_the_port() {
    let Some(shell) = Shell::new().await else { return };
    let edge = format!("--server {}/clusters/edge", shell.server.url());
    let node = "--as system:node:worker-0 --as-group system:nodes";
    for (command, input, wanted) in [
        ("get machineconfigpools", "", "worker"),
        (&*format!("{node} create --validate=false -f -"), REQUEST, "created"),
        ("get csr one -o jsonpath={.spec.username}", "", "system:node:worker-0"),
        ("certificate approve one", "", "approved"),
        ("wait --for=condition=Approved --timeout=10s csr/one", "", "condition met"),
    ] {
        let output = shell.run(&format!("{edge} {command}"), input);
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains(wanted), "kubectl {command}: wanted {wanted:?}:\n{text}");
    }
    let text = String::from_utf8_lossy(&shell.run("get csr", "").stderr).into_owned();
    assert!(text.contains("No resources found"), "the hub has none: {text}");
}
