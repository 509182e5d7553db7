//! `vlab service`: the simulated assisted-service as a program of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use vlab_drive::alterations::Alteration;
use vlab_image_service::catalog::{OsImage, from_setting};
use vlab_judge::result::exit;
use vlab_model::settings::Settings;
use vlab_service::CoreConfig;
use vlab_service_server::hub::HubOptions;
use vlab_service_server::pg::{PgOptions, PgStore};
use vlab_service_server::program::{settings_of_environment, stop_on_signals};
use vlab_service_server::store::MemoryStore;
use vlab_service_server::{Listen, Replica, ServeError, ServeOptions, serve, serve_replica};

use crate::error::{CliError, ExitResult, OrExit as _};
use crate::explore::alteration;
use crate::say;
use crate::tools::catalogue;

#[derive(clap::Args)]
#[command(
    after_help = "The service's tunables are taken from the environment under the real service's own names, for \
example HOST_MONITOR_INTERVAL=1s CLUSTER_MONITOR_INTERVAL=1s. OS_IMAGES, in the real image service's form, is for when \
no --os-image is given; its URLs must be files. IMAGE_SERVICE_BASE_URL is where machines reach the image service; default: \
where they reach the service, which serves the images.",
    group(clap::ArgGroup::new("paced").args(["kubeconfig", "replica"]))
)]
pub(crate) struct ServiceArgs {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// PostgreSQL connection string or URL. Without one the state is in memory and gone with the process.
    #[arg(long, env = "VLAB_POSTGRES", hide_env_values = true)]
    postgres: Option<String>,
    /// Time profile: how fast its clockwork runs. What the environment sets comes on top. Default: `real`.
    #[arg(long, value_name = "NAME")]
    time_profile: Option<String>,
    /// Seed of ids, keys and passwords.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// URL under which hosts reach the service; default: that of the address it listens on.
    #[arg(long, env = "SERVICE_BASE_URL")]
    base_url: Option<String>,
    /// Live image (ISO) that discovery images are made from: `[version=V,][openshift=V,][arch=A,][type=T,]iso=FILE`.
    /// Without a version it is for every version. Can be given several times.
    #[arg(long = "os-image", value_name = "IMAGE")]
    os_images: Vec<OsImage>,
    /// Write the address here once the service is ready.
    #[arg(long)]
    address_file: Option<PathBuf>,
    /// Its controllers work on the Kubernetes API server of this kubeconfig, which speaks plain HTTP (`vlab kube --http`).
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// It is one of several on the same database, under this name, `service-0` for example. All of them answer; one, the leader, decides.
    #[arg(long, value_name = "NAME", requires = "postgres")]
    replica: Option<String>,
    /// How many times faster than the real ones the controllers wait, and replicas for a leader that is gone.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "paced")]
    pace: f64,
    /// Hosts that are added to an installed cluster become nodes of it, on an API server that `vlab kube` has for each cluster
    /// (`/clusters/NAMESPACE.NAME`).
    #[arg(long, requires = "kubeconfig")]
    play_nodes: bool,
    /// A request that waited longer than this behind a thousand others is answered 429 with `Retry-After`. 0: never, as the real
    /// service does.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    max_wait: u64,
    /// Let this be wrong, by its name in `vlab mutation --list`.
    #[arg(long, value_name = "NAME", hide = true)]
    alteration: Option<String>,
}

pub(crate) async fn service(args: ServiceArgs) -> ExitResult {
    let base = match &args.time_profile {
        Some(name) => catalogue()?.time_profile(name).map_err(CliError::rendered)?.settings().or_usage()?,
        None => Settings::default(),
    };
    let settings =
        settings_of_environment(base).map_err(|e| CliError::usage(format!("settings in the environment: {e}")))?;
    let mut images = args.os_images;
    if images.is_empty()
        && let Some(list) = std::env::var("OS_IMAGES").ok().filter(|list| !list.is_empty())
    {
        images = from_setting(&list).map_err(|e| CliError::usage(format!("OS_IMAGES in the environment: {e}")))?;
    }
    let alteration = match args.alteration.as_deref().map(alteration).transpose()? {
        Some(Alteration::Service(alteration)) => Some(alteration),
        Some(Alteration::Hosts(_)) => return Err(CliError::usage("that alteration is of hosts, not of the service")),
        None => None,
    };
    if !(args.pace.is_finite() && args.pace > 0.0) {
        return Err(CliError::usage(format!("--pace {}: expected a number above 0", args.pace)));
    }
    let hub = args.kubeconfig.as_deref().map(|file| hub(file, args.pace, args.play_nodes)).transpose()?;
    let core = CoreConfig {
        settings,
        seed: args.seed,
        base_url: args.base_url.unwrap_or_default(),
        image_service_url: std::env::var("IMAGE_SERVICE_BASE_URL").unwrap_or_default(),
        alteration,
    };
    let max_wait = if args.max_wait == 0 { Duration::MAX } else { Duration::from_secs(args.max_wait) };
    let stop = CancellationToken::new();
    stop_on_signals(i32::from(exit::INTERRUPTED), {
        let stop = stop.clone();
        move || stop.cancel()
    });
    let (ready, listens) = tokio::sync::oneshot::channel();
    tokio::spawn(announce(listens, args.address_file));
    let listen = Listen::Address(args.listen);
    let served = match (&args.postgres, args.replica) {
        (Some(conninfo), Some(name)) => {
            let replica = Replica { name, pace: args.pace, postgres: PgOptions::new(conninfo.as_str()) };
            let mut options = ServeOptions::new(listen, (), core);
            options.ready = Some(ready);
            options.images = images;
            options.limits.max_wait = max_wait;
            serve_replica(replica, options, stop).await
        }
        (Some(conninfo), None) => {
            let store = PgStore::connect(PgOptions::new(conninfo.as_str())).await;
            let store = store.map_err(|e| CliError::inconclusive(format!("the database: {e}")))?;
            let mut options = ServeOptions::new(listen, store, core);
            options.ready = Some(ready);
            options.images = images;
            options.hub = hub;
            options.limits.max_wait = max_wait;
            serve(options, stop).await
        }
        (None, _) => {
            say("no --postgres: the state is in memory and gone when the service ends");
            let mut options = ServeOptions::new(listen, MemoryStore::default(), core);
            options.ready = Some(ready);
            options.images = images;
            options.hub = hub;
            options.limits.max_wait = max_wait;
            serve(options, stop).await
        }
    };
    match served {
        Err(error @ ServeError::Image(_)) => Err(CliError::usage(error)),
        served => served.or_inconclusive().map(|()| exit::PASSED),
    }
}

fn hub(kubeconfig: &Path, pace: f64, play_nodes: bool) -> Result<HubOptions, CliError> {
    let wrong = |why: String| CliError::usage(format!("--kubeconfig {}: {why}", kubeconfig.display()));
    let text = std::fs::read_to_string(kubeconfig).map_err(|error| wrong(error.to_string()))?;
    Ok(HubOptions { has_clusters: play_nodes, ..HubOptions::of_kubeconfig(&text, pace).map_err(wrong)? })
}

async fn announce(listens: tokio::sync::oneshot::Receiver<SocketAddr>, file: Option<PathBuf>) {
    let Ok(address) = listens.await else { return };
    say(&format!("listening on http://{address}"));
    let Some(file) = file else { return };
    // Whole or not at all: somebody waits for it.
    let beside = file.with_extension("new");
    let written = std::fs::write(&beside, format!("{address}\n")).and_then(|()| std::fs::rename(&beside, &file));
    if let Err(error) = written {
        say(&format!("cannot write {}: {error}", file.display()));
    }
}
