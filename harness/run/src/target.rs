//! The service under test: a URL, and what has to be done so that it answers there. The targets differ only in that; the
//! rest of a run does not know which one it has.
//!
//! * `simulated`: this program's own service, as a process of its own, on PostgreSQL;
//! * `process`: a program (the real assisted-service) on PostgreSQL, with the environment that [`environment`] makes;
//! * `container`: an image of either, with PostgreSQL in a container beside it ([`crate::container`]);
//! * `remote`: it runs already. Nothing is started, stopped or set, and states come from polls.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::config::Host;
use vlab_api::http::{Method, Request, Response, TransportError};
use vlab_api::ops;
use vlab_api::types::ReleaseImage;
use vlab_client::{Endpoint, HttpConnection};
use vlab_drive::prepare::{Prepared, VERSION};
use vlab_drive::target::Target;
use vlab_lab::containers::ContainerError;
use vlab_lab::ledger::{Ledger, LedgerError, Resource, Token};
use vlab_lab::process::{Child, ProcessError, Program};
use vlab_service_server::program::CONSTANTS;

/// How long the simulated service may take from its start until it is ready.
const SIMULATED_READY: Duration = Duration::from_secs(30);
/// The same for a real one: it makes its tables first.
pub(crate) const PROCESS_READY: Duration = Duration::from_secs(60);
/// What a real service is waited for.
pub(crate) const READY: &str = "the service to be ready (GET /ready)";
/// How long a remote service may take to answer the first question.
const REMOTE_ANSWER: Duration = Duration::from_secs(10);
/// How long a service may take to stop after it was asked to.
const STOP: Duration = Duration::from_secs(10);

/// Stand-in for `oc`; see the file itself.
pub(crate) const OC: &str = include_str!("../stand-ins/oc");

/// A folder of the service's own outside the run's folder: its working directory and the stand-ins. In the ledger.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    entry: Option<(Arc<Ledger>, Token)>,
}

impl Scratch {
    /// Makes the folder, with `work` and (`tools`) the stand-ins in it.
    ///
    /// # Errors
    /// Those of the file system and of the ledger.
    pub fn create(run_id: &str, ledger: Option<Arc<Ledger>>, tools: bool) -> Result<Self, StartError> {
        let path = std::env::temp_dir().join(format!("vlab-service-{run_id}"));
        let entry = match ledger {
            Some(ledger) => {
                let token = ledger.record(Resource::Directory { path: path.clone() })?;
                Some((ledger, token))
            }
            None => None,
        };
        if let Err(error) = folder(&path) {
            // Not made, so not ours: what is there under that name is left alone.
            if let Some((ledger, token)) = entry {
                ledger.release(token)?;
            }
            return Err(StartError::Scratch { path, error });
        }
        let scratch = Self { path, entry };
        if let Err(error) = scratch.fill(tools) {
            let path = scratch.path.clone();
            // What could be made goes again; what cannot be removed stays in the ledger.
            let _ = scratch.remove();
            return Err(StartError::Scratch { path, error });
        }
        Ok(scratch)
    }

    fn fill(&self, tools: bool) -> io::Result<()> {
        folder(&self.work())?;
        if tools {
            folder(&self.tools())?;
            let oc = self.tools().join("oc");
            fs::write(&oc, OC)?;
            fs::set_permissions(&oc, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    fn tools(&self) -> PathBuf {
        self.path.join("tools")
    }

    /// Removes it.
    ///
    /// # Errors
    /// Those of the file system and of the ledger; what is left stays in the ledger.
    pub fn remove(self) -> Result<(), StartError> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StartError::Scratch { path: self.path, error });
            }
            _ => {}
        }
        if let Some((ledger, token)) = self.entry {
            ledger.release(token)?;
        }
        Ok(())
    }
}

/// A new folder that only its owner can enter.
fn folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Why the service under test cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// There is no such program.
    #[error("there is no program {0:?}: give the path of an assisted-service binary")]
    NoProgram(PathBuf),
    /// Its folder.
    #[error("the service's folder {path}: {error}")]
    Scratch {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// What is copied into its container.
    #[error("the stand-ins for the service's container, with {path}: {error}")]
    StandIns {
        /// The program among them.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// No free port.
    #[error("no free port on 127.0.0.1: {0}")]
    Port(io::Error),
    /// The database cannot be told to the service.
    #[error("the database cannot be given to the service: {0}")]
    Database(String),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The remote service.
    #[error("{0}")]
    Remote(String),
    /// A container.
    #[error(transparent)]
    Container(#[from] ContainerError),
}

/// The service under test as it runs.
#[derive(Debug)]
pub struct Running {
    /// Its process; `None` when it is not ours.
    pub child: Option<Child>,
    /// Where it answers.
    pub endpoint: Endpoint,
    /// What it says that it is.
    pub version: String,
    /// From its start to `/ready`; `None` when it ran already.
    pub ready: Option<Duration>,
}

/// What a service needs around it.
#[derive(Debug)]
pub struct Ground<'a> {
    /// The run.
    pub prepared: &'a Prepared,
    /// The `vlab` program.
    pub vlab: &'a Path,
    /// Its log.
    pub log_file: PathBuf,
    /// Where the simulated service tells its address.
    pub address_file: PathBuf,
    /// Where processes are written down.
    pub ledger: Option<Arc<Ledger>>,
    /// Its database by the quickest way.
    pub conninfo: String,
    /// Its database by TCP, for programs that know nothing else.
    pub tcp_conninfo: Option<String>,
    /// Its folder.
    pub scratch: Option<&'a Scratch>,
    /// The real tools are used instead of the stand-ins.
    pub real_tools: bool,
    /// How long it may take until it is ready, when not the usual time.
    pub ready_within: Option<Duration>,
    /// How machines see it, when hosts are virtual machines.
    pub inside: Option<&'a Inside>,
}

/// How virtual machines see the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Where they reach it.
    pub base_url: String,
    /// Where they reach the image service.
    pub images_url: String,
    /// The live ISO that discovery images are made of.
    pub iso: PathBuf,
}

/// Starts the service (or looks for the remote one) and returns when it is ready. `again`: where it was before.
///
/// # Errors
/// [`StartError`]; nothing runs then.
pub async fn start(target: &Target, ground: &Ground<'_>, again: Option<SocketAddr>) -> Result<Running, StartError> {
    match target {
        Target::Simulated => simulated(ground, again).await,
        Target::Process { program } => process(program, ground, again).await,
        // With its database: see `crate::container`.
        Target::Container { image, .. } => {
            Err(StartError::Remote(format!("{image}: containers are started by the run")))
        }
        Target::Remote { url } => remote(url).await,
    }
}

async fn simulated(ground: &Ground<'_>, again: Option<SocketAddr>) -> Result<Running, StartError> {
    let listen = again.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let _ = fs::remove_file(&ground.address_file);
    let mut program = Program::new("service", ground.vlab, ground.log_file.clone())
        .args(["service", "--listen", &listen.to_string(), "--seed"])
        .args([ground.prepared.seed.to_string()])
        .args(["--address-file".into(), ground.address_file.clone().into_os_string()])
        // Not on the command line, where everybody on the machine could read a password of DATABASE_URL.
        .env("VLAB_POSTGRES", &ground.conninfo)
        .ledger(ground.ledger.clone());
    let settings = &ground.prepared.settings;
    for (name, value) in settings.to_vars() {
        program = program.env(name, value);
    }
    // No variable of the real service sets these, and still a time profile scales them.
    program = program.env(CONSTANTS, settings.constants.to_json());
    if let Some(inside) = ground.inside {
        let mut image = OsString::from("iso=");
        image.push(&inside.iso);
        program = program
            .args(["--os-image".into(), image])
            .env("SERVICE_BASE_URL", &inside.base_url)
            .env("IMAGE_SERVICE_BASE_URL", &inside.images_url);
    }
    let begun = Instant::now();
    let child = Child::spawn(program)?;
    let ready = child
        .wait_ready(
            "the service to be ready",
            ground.ready_within.unwrap_or(SIMULATED_READY),
            Duration::from_millis(5),
            || {
                let file = ground.address_file.clone();
                async move {
                    let Ok(text) = fs::read_to_string(&file) else { return Ok(None) };
                    let address = text.trim().parse().map_err(|e| format!("address file: {text:?}: {e}"))?;
                    is_ready(Endpoint::new(address)).await
                }
            },
        )
        .await;
    match ready {
        Ok(endpoint) => Ok(Running {
            child: Some(child),
            endpoint,
            version: format!("simulated {VERSION}"),
            ready: Some(begun.elapsed()),
        }),
        Err(error) => {
            child.stop(STOP).await;
            Err(error.into())
        }
    }
}

pub(crate) async fn is_ready(endpoint: Endpoint) -> Result<Option<Endpoint>, String> {
    let mut connection = HttpConnection::new(endpoint.clone());
    match connection.send(&Request::new(Method::Get, "/ready"), Duration::from_secs(1)).await {
        Ok(response) if response.status == 200 => Ok(Some(endpoint)),
        Ok(response) => Err(format!("GET /ready answered {}", response.status)),
        Err(error) => Err(format!("GET /ready: {error}")),
    }
}

async fn process(program: &Path, ground: &Ground<'_>, again: Option<SocketAddr>) -> Result<Running, StartError> {
    // A name without a slash is looked for in PATH by whoever starts it.
    if program.components().count() > 1 && !program.is_file() {
        return Err(StartError::NoProgram(program.to_owned()));
    }
    let first = process_once(program, ground, again).await;
    match first {
        // Between our asking for a free port and the service's taking it somebody else may have got it.
        Err(StartError::Process(ProcessError::Ended { ref log, .. })) if again.is_none() && port_taken(log) => {
            tracing::warn!("the service's port was taken by somebody else; once more with another one");
            process_once(program, ground, None).await
        }
        other => other,
    }
}

fn port_taken(log: &str) -> bool {
    log.contains("address already in use")
}

async fn process_once(program: &Path, ground: &Ground<'_>, again: Option<SocketAddr>) -> Result<Running, StartError> {
    let address = match again {
        Some(address) => address,
        None => free_address().map_err(StartError::Port)?,
    };
    let conninfo = ground.tcp_conninfo.as_deref().unwrap_or(&ground.conninfo);
    let database = Database::read(conninfo).map_err(StartError::Database)?;
    let Some(scratch) = ground.scratch else {
        return Err(StartError::Database("the run has made no folder for it".to_owned()));
    };
    let folder = scratch.tools();
    let vlab = seen_by_others(ground.vlab);
    let tools = (!ground.real_tools).then_some(StandIns { folder: &folder, installer: &vlab });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut service = Program::new("service", program, ground.log_file.clone()).ledger(ground.ledger.clone());
    let (work, inside) = (scratch.work(), ground.inside);
    for (name, value) in environment(ground.prepared, &database, address, &work, tools.as_ref(), &path, inside) {
        service = service.env(name, value);
    }
    let begun = Instant::now();
    let child = Child::spawn(service)?;
    let endpoint = Endpoint::new(address);
    let ready = child
        .wait_ready(READY, ground.ready_within.unwrap_or(PROCESS_READY), Duration::from_millis(20), || {
            is_ready(endpoint.clone())
        })
        .await;
    if let Err(error) = ready {
        child.stop(STOP).await;
        return Err(error.into());
    }
    let ready = Some(begun.elapsed());
    let version = match who_is(&endpoint).await {
        Ok(version) => format!("{} ({version})", program.display()),
        Err(problem) => {
            child.stop(STOP).await;
            return Err(StartError::Remote(format!("{} is ready, but {problem}", program.display())));
        }
    };
    Ok(Running { child: Some(child), endpoint, version, ready })
}

/// What another process calls a file that this one may call by `/proc/self`.
fn seen_by_others(path: &Path) -> PathBuf {
    match path.strip_prefix("/proc/self") {
        Ok(below) => Path::new("/proc").join(std::process::id().to_string()).join(below),
        Err(_) => path.to_owned(),
    }
}

/// A port of 127.0.0.1 that was free a moment ago: the real service takes a number and cannot be told to take any.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// A database as the real service wants to be told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// Host.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User.
    pub user: String,
    /// Password; empty: none.
    pub password: String,
    /// Name.
    pub name: String,
}

impl Database {
    /// From a connection string or URL.
    ///
    /// # Errors
    /// What it lacks.
    pub fn read(conninfo: &str) -> Result<Self, String> {
        let config: tokio_postgres::Config = conninfo.parse().map_err(|e| format!("{e}"))?;
        let host = match config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => return Err("the connection string has no host".to_owned()),
        };
        let user = config.get_user().ok_or("the connection string has no user")?.to_owned();
        let name = config.get_dbname().unwrap_or(&user).to_owned();
        let password = String::from_utf8_lossy(config.get_password().unwrap_or_default()).into_owned();
        Ok(Self { host, port: config.get_ports().first().copied().unwrap_or(5432), user, password, name })
    }
}

/// Programs that a real service finds first in its `PATH`.
#[derive(Clone, Copy, Debug)]
pub struct StandIns<'a> {
    /// Their folder.
    pub folder: &'a Path,
    /// What the stand-in for `oc` gives as a release's installer: `vlab`, or what starts it.
    pub installer: &'a Path,
}

/// The environment of the real service on top of the run's own. Three layers, later ones win: the settings that it shares
/// with the simulated service (time profile and scenario), the fixed ones of a lab without Kubernetes, S3 and registry
/// together with those that only the real service has (from the scenario), and those that the run must choose ([`OWNED`]).
///
/// `inside` says how virtual machines see it: they need its address in their network, and an image service.
pub fn environment(
    prepared: &Prepared,
    database: &Database,
    address: SocketAddr,
    work: &Path,
    tools: Option<&StandIns<'_>>,
    path: &OsStr,
    inside: Option<&Inside>,
) -> Vec<(String, OsString)> {
    let mut all: Vec<(String, OsString)> = Vec::new();
    let mut set = |name: &str, value: OsString| {
        all.retain(|(known, _)| known != name);
        all.push((name.to_owned(), value));
    };
    // Empty means "not set", which the real service only understands when there is no variable at all.
    for (name, value) in prepared.settings.to_vars().into_iter().filter(|(_, value)| !value.is_empty()) {
        set(name, value.into());
    }
    for (name, value) in [
        // Without an installer ignition configs are made of nothing.
        ("DUMMY_IGNITION", if tools.is_some() { "false" } else { "true" }),
        ("SKIP_CERT_VERIFICATION", "true"),
        // Only one with answers from a data centre would want these.
        ("ENABLE_DATA_COLLECTION", "false"),
        ("ENABLE_EVENT_STREAMING", "false"),
        ("LOG_LEVEL", "info"),
        ("LOG_FORMAT", "text"),
    ] {
        set(name, value.into());
    }
    for (name, value) in &prepared.only_real {
        set(name, value.into());
    }
    set("DEPLOY_TARGET", "onprem".into());
    set("STORAGE", "filesystem".into());
    set("WORK_DIR", work.into());
    set("AUTH_TYPE", "none".into());
    set("ENABLE_KUBE_API", "false".into());
    set("ENABLE_IMAGE_SERVICE", inside.is_some().to_string().into());
    if let Some(inside) = inside {
        set("IMAGE_SERVICE_BASE_URL", inside.images_url.clone().into());
        set("OS_IMAGES", os_images(&prepared.settings.release_images, &inside.iso).into());
    }
    set("HTTP_LISTEN_PORT", address.port().to_string().into());
    set(
        "SERVICE_BASE_URL",
        inside.map_or_else(|| format!("http://{address}"), |inside| inside.base_url.clone()).into(),
    );
    set("DB_HOST", database.host.clone().into());
    set("DB_PORT", database.port.to_string().into());
    set("DB_USER", database.user.clone().into());
    set("DB_PASS", database.password.clone().into());
    set("DB_NAME", database.name.clone().into());
    if let Some(tools) = tools {
        let mut first = tools.folder.as_os_str().to_owned();
        if !path.is_empty() {
            first.push(":");
            first.push(path);
        }
        set("PATH", first);
        set("VLAB_OPENSHIFT_INSTALL", tools.installer.into());
    }
    // The stand-in for the installer looks at it, and our own image.
    set("VLAB_SEED", prepared.seed.to_string().into());
    all
}

/// The list of live images that the real service wants: the one that there is, for every release that it may install.
fn os_images(releases: &[ReleaseImage], iso: &Path) -> String {
    let of = |release: &ReleaseImage| {
        serde_json::json!({
            "openshift_version": release.openshift_version, "version": release.version,
            "cpu_architecture": release.cpu_architecture,
            // It only looks whether there is one: the image service is the one that opens it.
            "url": format!("file://{}", iso.display()),
        })
    };
    serde_json::Value::from_iter(releases.iter().map(of)).to_string()
}

async fn remote(url: &str) -> Result<Running, StartError> {
    let endpoint = Endpoint::resolve(url).await.map_err(|e| StartError::Remote(e.to_string()))?;
    let version = who_is(&endpoint).await.map_err(|e| StartError::Remote(format!("{url}: {e}")))?;
    Ok(Running { child: None, endpoint, version: format!("{url} ({version})"), ready: None })
}

/// Asks what answers there for its versions: only an assisted-service can tell them.
pub(crate) async fn who_is(endpoint: &Endpoint) -> Result<String, String> {
    let call = ops::list_component_versions();
    let mut connection = HttpConnection::new(endpoint.clone());
    match connection.send(&call.request, REMOTE_ANSWER).await {
        Ok(response) => versions_of(&response),
        Err(error @ TransportError::Connect(_)) => {
            Err(format!("no service answers at {endpoint}: {error}; is it running, and is this its address?"))
        }
        Err(error @ TransportError::Timeout(_)) => Err(format!(
            "somebody takes connections at {endpoint} and does not answer: {error}; is the service still starting, or is \
             something else there?"
        )),
        Err(error @ TransportError::Lost(_)) => {
            Err(format!("what listens at {endpoint} does not speak HTTP: {error}; {NO_TLS}, and is this its address?"))
        }
    }
}

const NO_TLS: &str = "https is not built yet: use the service's http listener";

/// The version that an answer to "component versions" tells, or why it is none.
fn versions_of(response: &Response) -> Result<String, String> {
    match response.status {
        200 => {}
        401 | 403 => {
            return Err(format!(
                "the service asks for credentials (HTTP {}); only services with AUTH_TYPE=none can be used so far",
                response.status
            ));
        }
        // How servers written in Go refuse plain requests.
        400 if String::from_utf8_lossy(&response.body).contains("HTTPS server") => {
            return Err(format!("it speaks https; {NO_TLS}"));
        }
        status => {
            return Err(format!("it is not an assisted-service: asked for its versions it answers HTTP {status}"));
        }
    }
    let value: serde_json::Value = serde_json::from_slice(&response.body)
        .map_err(|e| format!("it is not an assisted-service: asked for its versions it answers no JSON ({e})"))?;
    let text = |v: &serde_json::Value| v.as_str().filter(|s| !s.is_empty()).map(str::to_owned);
    match value.get("versions").and_then(serde_json::Value::as_object) {
        Some(versions) => Ok(value
            .get("release_tag")
            .and_then(text)
            .or_else(|| versions.get("assisted-installer-service").and_then(text))
            .unwrap_or_else(|| "of no known version".to_owned())),
        None => Err("it is not an assisted-service: it answers JSON without `versions`".to_owned()),
    }
}
