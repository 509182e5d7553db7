//! The hub of a run: a Kubernetes API server on which the service's controllers work. A run that asks over Kubernetes asks there, and
//! follows what becomes of the resources. It is one of
//!
//! * our own small API server, a process of the run;
//! * a real one with its etcd, of programs that somebody has ([`assets`]), which are processes of the run;
//! * one that is there already, with the service in it ([`existing`]).
//!
//! The last two speak TLS, and are asked through `kubectl proxy`.
//!
//! A real service believes to be in a pod of it: see [`vlab_lab::pod`].

pub mod assets;
pub mod existing;
mod proxy;

use std::env;
use std::fs;
use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;
use vlab_api::http::{Method, Request, Response};
use vlab_client::{Endpoint, HttpConnection};
use vlab_lab::ledger::Ledger;
use vlab_lab::process::{Child, Program};
use vlab_lab::wait;
use vlab_model::lease::{NAME as LEASE, NAMESPACE};
use vlab_service_server::hub::{HubOptions, address_in, kubeconfig as plain_kubeconfig, operator, play_others};

use self::assets::Assets;
use super::environment::Kube;
use super::{STOP, StartError};

/// Name of the API server's program. It lies beside `vlab`; `VLAB_KUBE` names another place.
const PROGRAM: &str = "vlab-kube";
/// The port of the metrics of controllers: the real service takes no other.
const METRICS: u16 = 8080;
/// What the hub is waited for.
const READY: &str = "the API server to be ready (GET /readyz)";
/// How long the API server may take from its start until it is ready.
const BUDGET: Duration = Duration::from_secs(30);
/// How long it may take for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// What the controllers are waited for.
pub(super) const LEADING: &str = "the service's controllers to begin (their lease on the API server)";
/// How long after it is ready the service may take until its controllers work: a lease of one that died lasts 15 s.
pub(super) const LEADS_WITHIN: Duration = Duration::from_secs(60);

/// The file of a run by which clients reach its hub.
const KUBECONFIG: &str = "kubeconfig";
/// The folder with what programs in pods are given.
const ACCOUNT: &str = "account";
/// Where definitions of kinds are.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// What of a file is a definition of a kind.
const DEFINITION: &str = "CustomResourceDefinition";

/// The program of the API server.
///
/// # Errors
/// It is not there: what to do.
pub fn program() -> Result<PathBuf, String> {
    let named = env::var_os("VLAB_KUBE").filter(|path| !path.is_empty()).map(PathBuf::from);
    let program = named.unwrap_or_else(|| env::current_exe().unwrap_or_default().with_file_name(PROGRAM));
    if program.is_file() {
        return Ok(program);
    }
    Err(format!(
        "{} is not there. Build it with `cargo build --profile lab -p vlab-kube-server`, or name it with VLAB_KUBE",
        program.display()
    ))
}

/// A hub that is wanted.
#[derive(Clone, Debug, Default)]
pub struct HubOrder {
    /// Our API server; `None`: the usual one, see [`program`].
    pub program: Option<PathBuf>,
    /// The folder with the definitions of the service's kinds, as they are in its repository; `None`: those that the simulated service has.
    pub definitions: Option<PathBuf>,
    /// The version of its operator for bare metal, if it is to have one.
    pub bare_metal: Option<String>,
}

/// A hub that is up. Its processes end with the last owner.
#[derive(Debug)]
pub struct Hub {
    programs: Programs,
    endpoint: Endpoint,
    kubeconfig: PathBuf,
    plain: PathBuf,
    metal: bool,
}

/// What a hub is started of.
enum Of<'a> {
    /// Our API server.
    Ours(PathBuf),
    /// A real one: the folder with its programs.
    Real(&'a Path),
}

/// What runs for a hub.
#[derive(Debug)]
enum Programs {
    Ours(Child),
    Real(Assets),
}

/// A program of a hub that has ended, and nobody has stopped it.
#[derive(Debug)]
pub struct HubProgramEnd {
    /// What it is: `API server`, `etcd`, `kubectl proxy`.
    pub program: String,
    /// How it ended.
    pub how: String,
    /// The end of its log.
    pub log: Vec<String>,
}

/// Ends when the first of these does.
async fn first_end<'c>(programs: impl IntoIterator<Item = &'c Child>) -> HubProgramEnd {
    let ends = programs.into_iter().map(|child| {
        Box::pin(async move {
            let how = child.wait().await.to_string();
            HubProgramEnd { program: child.what().to_owned(), how, log: child.last_lines(20) }
        })
    });
    let mut ends: Vec<_> = ends.collect();
    poll_fn(|cx| {
        let ended = ends.iter_mut().find_map(|end| match end.as_mut().poll(cx) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        });
        ended.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

impl Programs {
    /// Those that need no other one come first: what ends because another one did is told after it.
    fn children(&self) -> Vec<&Child> {
        match self {
            Self::Ours(child) => vec![child],
            Self::Real(assets) => assets.programs.iter().rev().collect(),
        }
    }

    async fn stop(&self) {
        match self {
            Self::Ours(child) => drop(child.stop(STOP).await),
            Self::Real(assets) => assets.stop().await,
        }
    }
}

impl Hub {
    /// Starts the API server (a real one, where its folder is named), and makes the service's kinds and namespace in it. `folder` gets the
    /// kubeconfig and the log.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(
        order: &HubOrder,
        assets: Option<&Path>,
        folder: &Path,
        ledger: Option<Arc<Ledger>>,
    ) -> Result<Self, StartError> {
        // Before the definitions are read: who lacks the program lacks more than those.
        let of = match (assets, &order.program) {
            (Some(folder), _) => Of::Real(folder),
            (None, Some(path)) => Of::Ours(path.clone()),
            (None, None) => Of::Ours(program().map_err(StartError::NoApiServer)?),
        };
        let ours = vlab_service_server::hub::definitions();
        let mut definitions = order.definitions.as_deref().map_or_else(|| Ok(ours.clone()), read_definitions)?;
        // Operators are OpenShift's: the service's repository may not define them.
        let is_operator = |definition: &&Value| definition["spec"]["names"]["kind"] == "ClusterOperator";
        if !definitions.iter().any(|definition| is_operator(&definition)) {
            definitions.extend(ours.iter().find(is_operator).cloned());
        }
        let metal = definitions.iter().any(|d| d["spec"]["names"]["kind"] == "BareMetalHost");
        let (programs, endpoint) = match of {
            Of::Real(assets) => {
                let assets = Assets::start(assets, folder, ledger).await?;
                let endpoint = assets.endpoint.clone();
                (Programs::Real(assets), endpoint)
            }
            Of::Ours(program) => {
                let (child, endpoint) = start_ours(program, folder, folder, false, ledger).await?;
                (Programs::Ours(child), endpoint)
            }
        };
        let kubeconfig = folder.join(KUBECONFIG);
        let (made, plain) = match &programs {
            Programs::Ours(_) => (Ok(()), kubeconfig.clone()),
            Programs::Real(_) => {
                let plain = folder.join("kubeconfig.plain");
                let text = plain_kubeconfig(&format!("http://{}", endpoint.address()));
                let wrong = |error| StartError::Scratch { path: plain.clone(), error };
                (fs::write(&plain, text).map_err(wrong), plain)
            }
        };
        let made = match made {
            Ok(()) => fill(&endpoint, &definitions, order.bare_metal.as_deref()).await,
            Err(error) => Err(error),
        };
        match made {
            Ok(()) => Ok(Self { programs, endpoint, kubeconfig, plain, metal }),
            Err(error) => {
                programs.stop().await;
                Err(error)
            }
        }
    }

    /// Starts our API server for the leases of a service that has no controllers, and no kinds in it. Programs in pods find what they are
    /// given in [`ACCOUNT`] of `folder`, which has keys; the log is in `logs`.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn for_leases(folder: &Path, logs: &Path, ledger: Option<Arc<Ledger>>) -> Result<Self, StartError> {
        let wrong = |error| StartError::Scratch { path: folder.to_owned(), error };
        fs::create_dir_all(folder).map_err(wrong)?;
        let program = program().map_err(StartError::NoApiServer)?;
        let (child, endpoint) = start_ours(program, folder, logs, true, ledger).await?;
        let kubeconfig = folder.join(KUBECONFIG);
        let hub =
            Self { programs: Programs::Ours(child), endpoint, plain: kubeconfig.clone(), kubeconfig, metal: false };
        match fill(&hub.endpoint, &[], None).await {
            Ok(()) => Ok(hub),
            Err(error) => {
                hub.stop().await;
                Err(error)
            }
        }
    }

    /// What a program in a pod of it is given: the folder with the files of its service account, and where it reaches the API server.
    ///
    /// # Errors
    /// It was not started [`for`](Self::for_leases) such programs.
    pub fn account(&self) -> Result<(PathBuf, SocketAddr), StartError> {
        let folder = self.kubeconfig.with_file_name(ACCOUNT);
        let wrong = |why: String| StartError::NoApiServer(format!("{}: {why}", folder.display()));
        let text = fs::read_to_string(folder.join("server")).map_err(|error| wrong(error.to_string()))?;
        let address = text.trim().parse().map_err(|error| wrong(format!("{text:?}: {error}")))?;
        Ok((folder, address))
    }

    /// Where it answers, by plain HTTP.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// How clients reach it.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// How clients reach it that speak only plain HTTP.
    pub fn plain(&self) -> &Path {
        &self.plain
    }

    /// Has it API servers of clusters, too, so that nodes can join those? Only ours has.
    pub fn has_clusters(&self) -> bool {
        matches!(self.programs, Programs::Ours(_))
    }

    /// What a service that works on it has to know.
    pub fn kube(&self) -> Kube<'_> {
        Kube { kubeconfig: &self.kubeconfig, namespace: NAMESPACE, bare_metal: self.metal }
    }

    /// Is the port free that controllers always take for their metrics?
    ///
    /// # Errors
    /// Somebody has it.
    pub fn metrics_port() -> Result<(), StartError> {
        let free = |address: SocketAddr| match TcpListener::bind(address) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(StartError::MetricsPort(METRICS)),
            _ => Ok(()),
        };
        free((Ipv4Addr::UNSPECIFIED, METRICS).into())?;
        free((Ipv6Addr::UNSPECIFIED, METRICS).into())
    }

    /// Returns when the controllers of the first service on this hub work.
    ///
    /// # Errors
    /// They do not in their time, or the service ends.
    pub async fn wait_for_controllers(&self, service: &Child) -> Result<(), StartError> {
        let led = service.wait_ready(LEADING, LEADS_WITHIN, Duration::from_millis(50), || self.is_led());
        Ok(led.await?)
    }

    /// Have controllers their lease? The error is what was seen instead.
    pub async fn is_led(&self) -> Result<Option<()>, String> {
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}");
        let response = ask(&self.endpoint, &Request::new(Method::Get, lease.clone()), ANSWER).await?;
        let object: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        match object["spec"]["holderIdentity"].as_str() {
            Some(holder) if !holder.is_empty() => Ok(Some(())),
            _ => Err(format!("GET {lease} answered {} without a holder", response.status)),
        }
    }

    /// Does the part of Hive and metal3, as long as what is given back is there: the hub has neither. The API servers of its clusters are
    /// found below `endpoint`, which the service must reach.
    pub fn others(&self, endpoint: Endpoint, pace: f64) -> AbortOnDropHandle<()> {
        let options = HubOptions { endpoint, pace, has_clusters: self.has_clusters(), others: true };
        AbortOnDropHandle::new(tokio::spawn(play_others(options)))
    }

    /// Ends when one of its programs does that nobody has stopped.
    pub async fn ended(&self) -> HubProgramEnd {
        first_end(self.programs.children()).await
    }

    /// Ends it.
    pub async fn stop(&self) {
        self.programs.stop().await;
    }
}

/// Starts our API server. `folder` gets the kubeconfig, and `logs` the log.
async fn start_ours(
    api_server: PathBuf,
    folder: &Path,
    logs: &Path,
    pods: bool,
    ledger: Option<Arc<Ledger>>,
) -> Result<(Child, Endpoint), StartError> {
    let kubeconfig = folder.join(KUBECONFIG);
    // One of an earlier hub would be read as this one's.
    let _ = fs::remove_file(&kubeconfig);
    let program = Program::new("API server", api_server, logs.join("kube.log"))
        .args(["--http", "--listen", "127.0.0.1:0", "--dir"])
        .args([folder])
        .args(pods.then_some("--pods"))
        .ledger(ledger);
    let child = Child::spawn(program)?;
    let ready = child.wait_ready(READY, BUDGET, Duration::from_millis(5), || {
        let file = kubeconfig.clone();
        async move {
            let text = fs::read_to_string(&file).unwrap_or_default();
            // Not before it is written to its end.
            if !text.ends_with('\n') {
                return Ok(None);
            }
            let address = address_in(&text)?;
            let endpoint = Endpoint::new(address);
            match ask(&endpoint, &Request::new(Method::Get, "/readyz"), Duration::from_secs(1)).await {
                Ok(response) if response.status == 200 => Ok(Some(endpoint)),
                Ok(response) => Err(format!("GET /readyz answered {}", response.status)),
                Err(error) => Err(error),
            }
        }
    });
    match ready.await {
        Ok(endpoint) => Ok((child, endpoint)),
        Err(error) => {
            child.stop(STOP).await;
            Err(error.into())
        }
    }
}

async fn ask(endpoint: &Endpoint, request: &Request, budget: Duration) -> Result<Response, String> {
    let sent = HttpConnection::new(endpoint.clone()).send(request, budget).await;
    sent.map_err(|error| format!("{} {}: {error}", request.method, request.path))
}

/// The definitions in the YAML files of a folder, and of the folders in it.
fn read_definitions(folder: &Path) -> Result<Vec<Value>, StartError> {
    let wrong = |path: &Path, why: String| StartError::Definitions { path: path.to_owned(), why };
    let (mut all, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| wrong(&folder, error.to_string()))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if !path.extension().is_some_and(|e| e == "yaml" || e == "yml") {
                continue;
            }
            let text = fs::read_to_string(&path).map_err(|error| wrong(&path, error.to_string()))?;
            for document in serde_yaml::Deserializer::from_str(&text) {
                let value = Value::deserialize(document).map_err(|error| wrong(&path, error.to_string()))?;
                if value["kind"] == DEFINITION {
                    all.push(value);
                }
            }
        }
    }
    if all.is_empty() {
        return Err(wrong(folder, format!("there is no {DEFINITION} in its YAML files")));
    }
    Ok(all)
}

/// Makes the kinds, the namespace of the service, and what an operator for bare metal of that version has.
async fn fill(endpoint: &Endpoint, definitions: &[Value], bare_metal: Option<&str>) -> Result<(), StartError> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    make(endpoint, "/api/v1/namespaces", &namespace).await?;
    for definition in definitions {
        make(endpoint, DEFINITIONS, definition).await?;
    }
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        wait_for_kind(endpoint, name).await?;
    }
    for request in bare_metal.map(operator).into_iter().flatten() {
        let answer = ask(endpoint, &request, ANSWER).await;
        // A definition may know no status of its own: then it was made with that.
        let has_no_status =
            request.path.ends_with("/status") && answer.as_ref().is_ok_and(|answer| answer.status == 404);
        if !has_no_status {
            done(answer, || format!("{} {}", request.method, request.path))?;
        }
    }
    Ok(())
}

/// Returns once the kind of that definition can be used: a real API server takes a moment.
async fn wait_for_kind(endpoint: &Endpoint, name: &str) -> Result<(), StartError> {
    let path = format!("{DEFINITIONS}/{name}");
    let what = format!("the kind of {name} to be served");
    let seen = wait::until(&what, BUDGET, Duration::from_millis(20), || async {
        let response = ask(endpoint, &Request::new(Method::Get, path.clone()), ANSWER).await?;
        let object: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let conditions = object["status"]["conditions"].as_array();
        let established = |c: &Value| c["type"] == "Established" && c["status"] == "True";
        match conditions.into_iter().flatten().any(established) {
            true => Ok(Some(())),
            false => Err(format!("its status is {}", object["status"])),
        }
    });
    seen.await.map_err(|error| StartError::Hub { what: format!("{DEFINITION} {name}"), why: error.to_string() })
}

async fn make(endpoint: &Endpoint, path: &str, object: &Value) -> Result<(), StartError> {
    let subject = || format!("{} {}", object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"]);
    done(ask(endpoint, &Request::new(Method::Post, path).json(object), ANSWER).await, subject)
}

/// Was it made?
fn done(answer: Result<Response, String>, subject: impl FnOnce() -> String) -> Result<(), StartError> {
    let why = match answer {
        // A definition may be in two files.
        Ok(response) if response.is_success() || response.status == 409 => return Ok(()),
        Ok(response) => {
            let status: Value = serde_json::from_slice(&response.body).unwrap_or_default();
            format!("HTTP {}: {}", response.status, status["message"].as_str().unwrap_or("no message"))
        }
        Err(error) => error,
    };
    Err(StartError::Hub { what: subject(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_found_in_folders_and_among_other_objects() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_definitions(folder.path()).unwrap_err().to_string();
        assert!(error.contains("there is no CustomResourceDefinition in its YAML files"), "{error}");
        fs::create_dir(folder.path().join("more")).unwrap();
        fs::write(folder.path().join("more/a.yaml"), "kind: ConfigMap\n---\nkind: CustomResourceDefinition\nx: 1\n")
            .unwrap();
        fs::write(folder.path().join("notes.txt"), "kind: CustomResourceDefinition\n").unwrap();
        assert_eq!(read_definitions(folder.path()).unwrap(), [json!({ "kind": DEFINITION, "x": 1 })]);
        fs::write(folder.path().join("b.yml"), "a: [\n").unwrap();
        let error = read_definitions(folder.path()).unwrap_err().to_string();
        assert!(error.contains("b.yml"), "{error}");
    }
}
