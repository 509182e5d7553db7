//! What the real service is told: its environment, its database, and the programs that it finds first.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::Path;

use tokio_postgres::config::Host;
use vlab_api::types::ReleaseImage;
use vlab_drive::prepare::Prepared;
use vlab_model::lease::{NAMESPACE, Times};
use vlab_service_server::program::{CONSTANTS, PACE};

use super::Inside;

/// A database as the real service wants to be told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Role that logs in.
    pub user: String,
    /// Password; empty: none.
    pub password: String,
    /// Name of the database.
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

/// What is around a real service.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Its database.
    pub database: &'a Database,
    /// Where it is to listen.
    pub address: SocketAddr,
    /// Its working directory.
    pub work: &'a Path,
    /// The stand-ins; `None`: it uses the real tools.
    pub tools: Option<StandIns<'a>>,
    /// Where programs are looked for besides.
    pub path: &'a OsStr,
    /// How machines see it: they need its address in their network, and an image service.
    pub inside: Option<&'a Inside>,
    /// The API server that its controllers work on; `None`: they are off.
    pub kube: Option<Kube<'a>>,
    /// It is one of several, in a pod of its own.
    pub pod: Option<Pod<'a>>,
}

/// What is around one of several services.
#[derive(Clone, Copy, Debug)]
pub struct Pod<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where all of them are reached.
    pub front: SocketAddr,
    /// Where it reaches the API server on which they have their leases.
    pub server: SocketAddr,
}

/// An API server, as a service whose controllers work on it wants to be told it.
#[derive(Clone, Copy, Debug)]
pub struct Kube<'a> {
    /// How it is reached.
    pub kubeconfig: &'a Path,
    /// The service's own namespace.
    pub namespace: &'a str,
    /// Are there BareMetalHosts? The service asks for them at its start and ends when it hears of none.
    pub bare_metal: bool,
}

/// The live image in the list that the real service wants, where no machine boots one: it is never opened.
const NO_IMAGE: &str = "/nonexistent/live.iso";
/// An image service that nobody asks: simulated hosts boot no image, and still an InfraEnv gets a URL with this in it.
const NO_IMAGES: &str = "http://images.invalid";

/// The environment of the real service on top of the run's own. Three layers, later ones win: the settings that it shares
/// with the simulated service (time profile and scenario), the fixed ones of a lab without Kubernetes, S3 and registry
/// together with those that only the real service has (from the scenario), and those that the run must choose
/// ([`vlab_drive::target::OWNED`]).
pub fn environment(prepared: &Prepared, around: &Around<'_>) -> Vec<(String, OsString)> {
    let Around { database, address, work, tools, path, inside, kube, pod } = *around;
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
    set("ENABLE_KUBE_API", kube.is_some().to_string().into());
    // Without an image service, controllers say nothing of images.
    set("ENABLE_IMAGE_SERVICE", (inside.is_some() || kube.is_some()).to_string().into());
    if let Some(kube) = kube {
        set("KUBECONFIG", kube.kubeconfig.into());
        set("NAMESPACE", kube.namespace.into());
        set("ENABLE_METAL3", kube.bare_metal.to_string().into());
        set("IMAGE_SERVICE_BASE_URL", NO_IMAGES.into());
        set("OS_IMAGES", os_images(&prepared.settings.release_images, Path::new(NO_IMAGE)).into());
    }
    if let Some(inside) = inside {
        set("IMAGE_SERVICE_BASE_URL", inside.images_url.clone().into());
        set("OS_IMAGES", os_images(&prepared.settings.release_images, &inside.iso).into());
    }
    set("HTTP_LISTEN_PORT", address.port().to_string().into());
    set(
        "SERVICE_BASE_URL",
        inside
            .map_or_else(
                || format!("http://{}", pod.map_or(address, |pod| pod.front)),
                |inside| inside.base_url.clone(),
            )
            .into(),
    );
    if let Some(pod) = pod {
        // Only there it has leases. Files are kept in a folder that all have.
        set("DEPLOY_TARGET", "k8s".into());
        set("NAMESPACE", NAMESPACE.into());
        set("KUBERNETES_SERVICE_HOST", pod.server.ip().to_string().into());
        set("KUBERNETES_SERVICE_PORT", pod.server.port().to_string().into());
        set("PGAPPNAME", pod.name.into());
        let times = Times::at(prepared.clock_scale);
        for (name, time) in [
            ("LEADER_LEASE_DURATION", times.duration),
            ("LEADER_RENEW_DEADLINE", times.deadline),
            ("LEADER_RETRY_INTERVAL", times.retry),
        ] {
            set(name, format!("{}ms", time.as_millis()).into());
        }
    }
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
    // The stand-in for the installer looks at it, and our own image, which alone looks at the others.
    set("VLAB_SEED", prepared.seed.to_string().into());
    set(CONSTANTS, prepared.settings.constants.to_json().into());
    set(PACE, prepared.clock_scale.to_string().into());
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
