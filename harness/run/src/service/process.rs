//! A program that is the service: the real assisted-service, or what stands in its place, on PostgreSQL.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vlab_client::Endpoint;
use vlab_drive::target::Target;
use vlab_lab::pod;
use vlab_lab::process::{Child, ProcessError, Program};
use vlab_lab::wait::ReadyError;
use vlab_model::lease;

use super::environment::{Around, Database, Pod, StandIns, environment};
use super::local::ProcessKind;
use super::ready::{BUDGET, READY, free_address, is_ready, who_is};
use super::{Launch, Launched, STOP, StartError, scratch};

/// How it stands on this computer. The real service knows no unix sockets.
pub(super) const KIND: ProcessKind = ProcessKind {
    launcher: |launch, again| Box::pin(self::launch(launch, again)),
    tcp: true,
    scratch: true,
    real: true,
};

/// Starts the program that the run names and returns when it is ready. `again`: where it was before.
///
/// # Errors
/// [`StartError`]; nothing runs then.
pub async fn launch(launch: &Launch, again: Option<SocketAddr>) -> Result<Launched, StartError> {
    let Target::Process { program } = &launch.prepared.target else {
        return Err(StartError::NoProgram(PathBuf::new()));
    };
    // A name without a slash is looked for in PATH by whoever starts it.
    if program.components().count() > 1 && !program.is_file() {
        return Err(StartError::NoProgram(program.to_owned()));
    }
    let first = process_once(program, launch, again).await;
    match first {
        // Between our asking for a free port and the service's taking it somebody else may have got it.
        Err(ref error) if again.is_none() && lost_port(error) => {
            tracing::warn!("another program took the service's port; trying again with another port");
            process_once(program, launch, None).await
        }
        other => other,
    }
}

/// Did a program end because somebody else had taken its port meanwhile?
pub(super) fn lost_port(error: &StartError) -> bool {
    matches!(error, StartError::Process(ProcessError::NotReady(ReadyError::Ended { log, .. })) if log.contains("address already in use"))
}

async fn process_once(program: &Path, launch: &Launch, again: Option<SocketAddr>) -> Result<Launched, StartError> {
    let address = match again {
        Some(address) => address,
        None => free_address().map_err(StartError::Port)?,
    };
    let conninfo = launch.tcp_conninfo.as_deref().unwrap_or(&launch.conninfo);
    let database = Database::read(conninfo).map_err(StartError::Database)?;
    let Some(folder) = &launch.scratch else {
        return Err(StartError::Database("the run has made no folder for it".to_owned()));
    };
    let (tools, work) = (scratch::tools(folder), scratch::work(folder));
    let vlab = seen_by_others(&launch.vlab);
    let tools = (!launch.real_tools).then_some(StandIns { folder: &tools, installer: &vlab });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_pod = || Program::new("service", &launch.vlab, launch.log_file.clone()).args([pod::VERB]);
    let leases = launch.one_of.as_ref().and_then(|one| Some((one, one.leases.as_ref()?)));
    let account = leases.map(|(one, hub)| Ok::<_, StartError>((one, hub.account()?))).transpose()?;
    let mut service = match (&account, &launch.hub) {
        (None, None) => Program::new("service", program, launch.log_file.clone()),
        // It looks for a file that pods have.
        (None, Some(_)) => in_pod().args([lease::NAMESPACE]).args([program]),
        (Some((one, (folder, _))), _) => {
            in_pod().args([pod::HOST, &one.name, pod::ACCOUNT]).args([folder]).args([lease::NAMESPACE]).args([program])
        }
    };
    service = service.ledger(launch.ledger.clone());
    let around = Around {
        database: &database,
        address,
        work: &work,
        tools,
        path: &path,
        inside: launch.inside.as_ref(),
        kube: launch.hub.as_ref().map(|hub| hub.kube()),
        pod: account.as_ref().map(|(one, (_, server))| Pod { name: &one.name, front: one.front, server: *server }),
    };
    for (name, value) in environment(&launch.prepared, &around) {
        service = service.env(name, value);
    }
    let begun = Instant::now();
    let child = Child::spawn(service)?;
    let endpoint = Endpoint::new(address);
    let ready = child
        .wait_ready(READY, launch.ready_within.unwrap_or(BUDGET), Duration::from_millis(20), || {
            is_ready(endpoint.clone())
        })
        .await;
    if let Err(error) = ready {
        child.stop(STOP).await;
        return Err(error.into());
    }
    // One that is started again waits for the lease of the one before it, and says meanwhile that it is ready.
    if let (Some(hub), None) = (&launch.hub, again)
        && let Err(error) = hub.wait_for_controllers(&child).await
    {
        child.stop(STOP).await;
        return Err(error);
    }
    let ready = begun.elapsed();
    let version = match who_is(&endpoint).await {
        Ok(version) => format!("{} ({version})", program.display()),
        Err(problem) => {
            child.stop(STOP).await;
            return Err(StartError::Stranger(format!("{} is ready, but {problem}", program.display())));
        }
    };
    Ok(Launched { child, endpoint, version, ready })
}

/// What another process calls a file that this one may call by `/proc/self`.
fn seen_by_others(path: &Path) -> PathBuf {
    match path.strip_prefix("/proc/self") {
        Ok(below) => Path::new("/proc").join(std::process::id().to_string()).join(below),
        Err(_) => path.to_owned(),
    }
}
