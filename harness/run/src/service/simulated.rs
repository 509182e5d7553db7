//! The built-in service: `vlab service`, a process on PostgreSQL.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use vlab_client::Endpoint;
use vlab_drive::alterations::Alteration;
use vlab_drive::prepare::VERSION;
use vlab_lab::process::{Child, Program};
use vlab_service_server::program::CONSTANTS;

use super::local::ProcessKind;
use super::ready::is_ready;
use super::{Launch, Launched, STOP, StartError};

/// How long it may take from its start until it is ready.
const BUDGET: Duration = Duration::from_secs(30);

/// How it stands on this computer.
pub(super) const KIND: ProcessKind = ProcessKind {
    launcher: |launch, again| Box::pin(self::launch(launch, again)),
    tcp: false,
    scratch: false,
    real: false,
};

/// Starts it and returns when it is ready. `again`: where it was before.
///
/// # Errors
/// [`StartError`]; nothing runs then.
pub async fn launch(launch: &Launch, again: Option<SocketAddr>) -> Result<Launched, StartError> {
    let listen = again.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let _ = fs::remove_file(&launch.address_file);
    let mut program = Program::new("service", &launch.vlab, launch.log_file.clone())
        .args(["service", "--listen", &listen.to_string(), "--seed"])
        .args([launch.prepared.seed.to_string()])
        .args(["--address-file".into(), launch.address_file.clone().into_os_string()])
        // Not on the command line, where everybody on the machine could read a password of DATABASE_URL.
        .env("VLAB_POSTGRES", &launch.conninfo)
        .ledger(launch.ledger.clone());
    if let Some(Alteration::Service(alteration)) = &launch.prepared.alteration {
        program = program.args(["--alteration".to_owned(), alteration.name()]);
    }
    let settings = &launch.prepared.settings;
    for (name, value) in settings.to_vars() {
        program = program.env(name, value);
    }
    // No variable of the real service sets these, and still a time profile scales them.
    program = program.env(CONSTANTS, settings.constants.to_json());
    if let Some(inside) = &launch.inside {
        let mut image = OsString::from("iso=");
        image.push(&inside.iso);
        program = program
            .args(["--os-image".into(), image])
            .env("SERVICE_BASE_URL", &inside.base_url)
            .env("IMAGE_SERVICE_BASE_URL", &inside.images_url);
    }
    if let Some(hub) = &launch.hub {
        program = program.args(["--kubeconfig".into(), hub.plain().as_os_str().to_owned()]);
        program = program.args(["--pace".to_owned(), launch.prepared.clock_scale.to_string()]);
        if hub.has_clusters() {
            program = program.args(["--play-nodes"]);
        }
    }
    if let Some(one) = &launch.one_of {
        program = program
            .args(["--replica", &one.name, "--pace", &launch.prepared.clock_scale.to_string()])
            .args(launch.inside.is_none().then(|| format!("--base-url=http://{}", one.front)));
    }
    let begun = Instant::now();
    let child = Child::spawn(program)?;
    let ready = child
        .wait_ready("the service to be ready", launch.ready_within.unwrap_or(BUDGET), Duration::from_millis(5), || {
            let file = launch.address_file.clone();
            async move {
                let Ok(text) = fs::read_to_string(&file) else { return Ok(None) };
                let address = text.trim().parse().map_err(|e| format!("address file: {text:?}: {e}"))?;
                is_ready(Endpoint::new(address)).await
            }
        })
        .await;
    match ready {
        Ok(endpoint) => {
            let wrong = launch.prepared.alteration.map(|wrong| format!(" with {}", wrong.name())).unwrap_or_default();
            Ok(Launched { child, endpoint, version: format!("simulated {VERSION}{wrong}"), ready: begun.elapsed() })
        }
        Err(error) => {
            child.stop(STOP).await;
            Err(error.into())
        }
    }
}
