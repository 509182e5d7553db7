//! Runs the controller of the product as a cluster would run its Job: what the Job says of environment and mounts is done on the machine
//! that holds the lease, as a process of the machine. Its Pod and the log of it are in the cluster.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::api::{CONTROLLER_ACCOUNT, LOG_OF, condition, service_account_token};
use super::controller::Here;
use super::watch::{API_PORT, CONTROLLER_READY, is_master};
use crate::given::{self, Given};
use crate::say;

const NAMESPACE: &str = "/api/v1/namespaces/assisted-installer";
const JOB: &str = "/apis/batch/v1/namespaces/assisted-installer/jobs/assisted-installer-controller";
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Between two looks at the cluster or the program.
const LOOK: Duration = Duration::from_secs(2);
/// Delays between two runs of a program that fails. Source: the kubelet's back-off for containers.
const BACK_OFF: [u64; 6] = [10, 20, 40, 80, 160, 300];
/// How much of the end of a log is kept in the cluster.
const LOG_END: usize = 200_000;

/// Runs the Job until the program has ended well.
pub async fn run(here: Here) {
    // Fetching takes as long as it takes, and the node lives on meanwhile.
    let config = here.config.clone();
    let fetched = tokio::task::spawn_blocking(move || given::program(&config, Given::Controller)).await;
    let program = match fetched.map_err(|e| e.to_string()).flatten() {
        Ok(Some(program)) => program,
        Ok(None) => return say::note("job", "the run gives no controller"),
        Err(e) => return say::moment("controller", "failed", &json!({ "problem": e })),
    };
    let job = wait_for_job(&here).await;
    let pod = format!("assisted-installer-controller-{}", &suffix(&here.name));
    let log = here.logs.join("assisted-installer-controller.log");
    for failures in 0.. {
        let result = once(&here, &program, &job, &pod, &log).await;
        keep_log(&here, &pod, &log).await;
        match result {
            Ok(status) if status.success() => {
                say::moment("controller", "ended", &json!({ "status": status.to_string() }));
                finish(&here, &pod).await;
                return;
            }
            Ok(status) => {
                let last = fs::read_to_string(&log).unwrap_or_default();
                let last = last.lines().last().unwrap_or_default().to_owned();
                say::moment("controller", "ended", &json!({ "status": status.to_string(), "said": last }));
            }
            Err(e) => say::note("job", &format!("the controller cannot be started: {e}")),
        }
        tokio::time::sleep(Duration::from_secs(BACK_OFF[usize::min(failures, BACK_OFF.len() - 1)])).await;
    }
}

/// Five letters that are always the same for a node.
fn suffix(node: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(node).iter().take(5).map(|b| char::from(b'a' + b % 26)).collect()
}

/// Waits until the cluster has the Job and, where the Job does not tolerate less, this machine is a ready node.
async fn wait_for_job(here: &Here) -> Value {
    let mut said = String::new();
    loop {
        let problem = match here.client.get(JOB).await {
            Err(e) => e.to_string(),
            Ok(job) if tolerates_not_ready(&job) => return job,
            Ok(job) => match here.client.get(&format!("/api/v1/nodes/{}", here.name)).await {
                Ok(node) if is_master(&node) && condition(&node, "Ready") == "True" => return job,
                Ok(_) => "this node is not ready".to_owned(),
                Err(e) => e.to_string(),
            },
        };
        if problem != said {
            say::note("job", &format!("the controller waits: {problem}"));
            said = problem;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn tolerates_not_ready(job: &Value) -> bool {
    let all = job.pointer("/spec/template/spec/tolerations").and_then(Value::as_array);
    all.into_iter().flatten().any(|t| t["key"] == "node.kubernetes.io/not-ready")
}

/// Runs the program once.
async fn once(here: &Here, program: &Path, job: &Value, pod: &str, log: &Path) -> io::Result<std::process::ExitStatus> {
    let environment = environment(here, job).await?;
    mount(here, job).await?;
    let out = fs::OpenOptions::new().create(true).append(true).open(log)?;
    let mut child = Command::new(program)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root")
        .envs(environment)
        .env("KUBERNETES_SERVICE_HOST", here.own.to_string())
        .env("KUBERNETES_SERVICE_PORT", API_PORT.to_string())
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .kill_on_drop(true)
        .spawn()?;
    say::moment("controller", "program-started", &json!({ "program": program, "pid": child.id() }));
    make_pod(here, job, pod).await;
    follow(here, &mut child, pod, log).await
}

/// Waits for the end of the program, keeps its log in the cluster, and says when it said that it is ready.
async fn follow(here: &Here, child: &mut Child, pod: &str, log: &Path) -> io::Result<std::process::ExitStatus> {
    let (mut ready, mut rounds) = (false, 0u32);
    loop {
        tokio::select! {
            status = child.wait() => return status,
            () = tokio::time::sleep(LOOK) => {}
        }
        if !ready && here.client.get(&format!("{NAMESPACE}/events/{CONTROLLER_READY}")).await.is_ok() {
            ready = true;
            say::moment("controller", "controller-ready", &json!({}));
        }
        rounds += 1;
        if rounds % 5 == 0 {
            keep_log(here, pod, log).await;
        }
    }
}

/// Where the value of a variable comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// The Job says it.
    Value(String),
    /// A ConfigMap has it under a key.
    ConfigMap(String, String),
}

/// The environment that the Job asks for.
fn variables(job: &Value) -> Vec<(String, Source)> {
    let said = job.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array);
    let source = |variable: &Value| {
        let from = &variable["valueFrom"]["configMapKeyRef"];
        match (variable["value"].as_str(), from["name"].as_str(), from["key"].as_str()) {
            (Some(value), _, _) => Some(Source::Value(value.to_owned())),
            (None, Some(map), Some(key)) => Some(Source::ConfigMap(map.to_owned(), key.to_owned())),
            _ => None,
        }
    };
    let named = |variable: &Value| Some((variable["name"].as_str()?.to_owned(), source(variable)?));
    said.into_iter().flatten().filter_map(named).collect()
}

/// The environment with its values. A key that its ConfigMap lacks leaves the variable out, as an optional one is in a pod.
async fn environment(here: &Here, job: &Value) -> io::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for (name, source) in variables(job) {
        let value = match source {
            Source::Value(value) => Some(value),
            Source::ConfigMap(map, key) => {
                let map = here.client.get(&format!("{NAMESPACE}/configmaps/{map}")).await?;
                map["data"][key].as_str().map(str::to_owned)
            }
        };
        all.extend(value.map(|value| (name, value)));
    }
    Ok(all)
}

/// Something that the program finds among the machine's own files.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mount {
    /// A path of the machine under another name.
    Path { of_machine: PathBuf, name: PathBuf },
    /// A key of a secret as a file.
    Secret { secret: String, key: String, file: PathBuf },
}

/// What the Job mounts. A path under its own name is there already.
fn mounts(job: &Value) -> Vec<Mount> {
    let list = |pointer: &str| job.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let volumes = list("/spec/template/spec/volumes");
    let mut all = Vec::new();
    for mount in list("/spec/template/spec/containers/0/volumeMounts") {
        let path = PathBuf::from(mount["mountPath"].as_str().unwrap_or_default());
        let Some(volume) = volumes.iter().find(|v| v["name"] == mount["name"]) else { continue };
        if let Some(host) = volume["hostPath"]["path"].as_str().filter(|host| Path::new(host) != path) {
            all.push(Mount::Path { of_machine: host.into(), name: path.clone() });
        }
        let Some(secret) = volume["secret"]["secretName"].as_str() else { continue };
        for item in volume["secret"]["items"].as_array().into_iter().flatten() {
            let Some(key) = item["key"].as_str() else { continue };
            let file = path.join(item["path"].as_str().unwrap_or(key));
            all.push(Mount::Secret { secret: secret.to_owned(), key: key.to_owned(), file });
        }
    }
    all
}

/// Puts what the Job mounts where the program looks for it, and the service account's files.
async fn mount(here: &Here, job: &Value) -> io::Result<()> {
    for mount in mounts(job) {
        match mount {
            Mount::Path { of_machine, name } => {
                if fs::symlink_metadata(&name).is_err() {
                    std::os::unix::fs::symlink(of_machine, name)?;
                }
            }
            Mount::Secret { secret, key, file } => {
                let found = here.client.get(&format!("{NAMESPACE}/secrets/{secret}")).await?;
                let value = found["data"][&key].as_str().and_then(|t| BASE64.decode(t).ok());
                let value = value.ok_or_else(|| io::Error::other(format!("the secret {secret} has no {key}")))?;
                secret_file(&file, &value)?;
            }
        }
    }
    let (namespace, account) = CONTROLLER_ACCOUNT;
    let token = service_account_token(&here.pki, namespace, account);
    let files = [("token", token.as_str()), ("ca.crt", here.pki.ca.cert.as_str()), ("namespace", namespace)];
    files.into_iter().try_for_each(|(name, text)| secret_file(&Path::new(ACCOUNT).join(name), text.as_bytes()))
}

fn secret_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(at)?;
    }
    fs::write(path, bytes).map_err(at)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(at)
}

/// The pod of the Job, as far as somebody looks for it.
async fn make_pod(here: &Here, job: &Value, pod: &str) {
    let mut spec = job["spec"]["template"]["spec"].clone();
    spec["nodeName"] = json!(here.name);
    let mut labels = job["spec"]["template"]["metadata"]["labels"].clone();
    labels["job-name"] = json!("assisted-installer-controller");
    let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "assisted-installer-controller",
        "uid": job["metadata"]["uid"], "controller": true });
    let object = json!({ "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": { "name": pod, "labels": labels, "ownerReferences": [owner] } });
    let made = here.client.create(&format!("{NAMESPACE}/pods"), &object).await;
    let running = json!({ "status": { "phase": "Running", "hostIP": here.own, "podIP": here.own } });
    let told = here.client.patch(&format!("{NAMESPACE}/pods/{pod}/status"), &running).await;
    for problem in [made.err(), told.err()].into_iter().flatten() {
        say::note("job", &format!("the controller's pod: {problem}"));
    }
}

/// Says that the Job is done.
async fn finish(here: &Here, pod: &str) {
    let ended = json!({ "status": { "phase": "Succeeded" } });
    let complete = json!({ "status": { "succeeded": 1, "conditions": [{ "type": "Complete", "status": "True" }] } });
    let told = here.client.patch(&format!("{NAMESPACE}/pods/{pod}/status"), &ended).await;
    let job = here.client.patch(&format!("{JOB}/status"), &complete).await;
    for problem in [told.err(), job.err()].into_iter().flatten() {
        say::note("job", &problem.to_string());
    }
}

/// Keeps the end of the log where every master finds it.
async fn keep_log(here: &Here, pod: &str, log: &Path) {
    let bytes = fs::read(log).unwrap_or_default();
    let end = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG_END)..]).into_owned();
    let name = format!("{pod}{LOG_OF}");
    let object = json!({ "metadata": { "name": name }, "data": { "log": end } });
    let path = format!("{NAMESPACE}/configmaps");
    let result = match here.client.create(&path, &object).await {
        Ok(false) => here.client.patch(&format!("{path}/{name}"), &json!({ "data": { "log": end } })).await,
        other => other.map(drop),
    };
    if let Err(e) = result {
        say::note("job", &format!("the controller's log: {e}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_node_s_job_does_not_wait_for_the_node() {
        let job = |key: &str| json!({ "spec": { "template": { "spec": { "tolerations": [{ "key": key }] } } } });
        assert!(tolerates_not_ready(&job("node.kubernetes.io/not-ready")));
        assert!(!tolerates_not_ready(&job("node-role.kubernetes.io/master")));
    }

    #[test]
    fn what_a_job_asks_for() {
        let spec = json!({
            "containers": [{
                "env": [
                    { "name": "PLAIN", "value": "1" },
                    { "name": "OF_MAP", "valueFrom": { "configMapKeyRef": { "name": "config", "key": "id", "optional": true } } },
                    { "name": "UNKNOWN", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
                ],
                "volumeMounts": [
                    { "name": "pki", "mountPath": "/etc/pki" },
                    { "name": "resolv", "mountPath": "/tmp/host-resolv.conf" },
                    { "name": "pull-secret", "mountPath": "/etc/controller" },
                    { "name": "nowhere", "mountPath": "/x" },
                ],
            }],
            "volumes": [
                { "name": "pki", "hostPath": { "path": "/etc/pki" } },
                { "name": "resolv", "hostPath": { "path": "/etc/resolv.conf" } },
                { "name": "pull-secret", "secret": { "secretName": "s", "items": [{ "key": "pull-secret-token", "path": "token" }] } },
            ],
        });
        let job = json!({ "spec": { "template": { "spec": spec } } });
        assert_eq!(
            variables(&job),
            [
                ("PLAIN".to_owned(), Source::Value("1".into())),
                ("OF_MAP".to_owned(), Source::ConfigMap("config".into(), "id".into())),
            ]
        );
        let (secret, key) = ("s".to_owned(), "pull-secret-token".to_owned());
        assert_eq!(
            mounts(&job),
            [
                Mount::Path { of_machine: "/etc/resolv.conf".into(), name: "/tmp/host-resolv.conf".into() },
                Mount::Secret { secret, key, file: "/etc/controller/token".into() },
            ]
        );
    }

    #[test]
    fn a_node_s_pod_has_always_the_same_name() {
        assert_eq!(suffix("a"), suffix("a"));
        assert_ne!(suffix("a"), suffix("b"));
        assert!(suffix("a").chars().all(|c| c.is_ascii_lowercase()));
    }
}
