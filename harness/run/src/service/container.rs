//! A service in a container, with PostgreSQL in a container beside it. Over Kubernetes its controllers reach the API server of the run, which
//! is a program of this computer, through a [`Relay`] at the address that this computer has in the containers' network.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use vlab_client::Endpoint;
use vlab_drive::fault::effect::Program;
use vlab_judge::result::Startup;
use vlab_lab::containers::{Container, ContainerError, ContainerSpec, Content, CopiedFile, Pod, PodOptions};
use vlab_lab::pod;
use vlab_scenario::WhichReplica;

use vlab_model::lease::LOST;
use vlab_service_server::hub::kubeconfig;

use super::environment::{Around, Database, Kube, StandIns, environment};
use super::hub::{Hub, LEADING, LEADS_WITHIN};
use super::local::hub_of;
use super::ready::{BUDGET, READY, free_address, is_ready, who_is};
use super::scratch::OC;
use super::{
    About, BoxFuture, DATABASE, Down, ProgramEnd, Restart, RunningService, STOP, ServiceOrder, StartError,
    crashed_then, is_crash, not_ended,
};
use crate::error::{LabError, lab};

/// Our own image of PostgreSQL, used when it is there.
const OUR_POSTGRES: &str = "vlab-postgres";
/// The upstream one, used when ours is not there.
const UPSTREAM_POSTGRES: &str = "docker.io/library/postgres:16";
/// Both keep their data below this.
const POSTGRES_DATA: &str = "/var/lib/postgresql/data";
/// PostgreSQL's port in its container.
const POSTGRES_PORT: u16 = 5432;
/// The service's port in its container.
const SERVICE_PORT: u16 = 8090;
/// Where the stand-ins are in the service's container.
const TOOLS: &str = "/opt/vlab/bin";
/// What the stand-in for `oc` gives as the release's installer, in that folder.
const INSTALLER: &str = "openshift-install";
/// The service's working directory there: in memory, and everybody may write into it. Not one that an image may have: its
/// owner and mode would be those of the image.
const WORK: &str = "/vlab-work";
/// The kubeconfig in the service's container.
const HUB: &str = "/opt/vlab/kubeconfig";
/// The path of programs of an image that names none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long PostgreSQL may take until a query works. The upstream image starts it twice.
const POSTGRES_READY: Duration = Duration::from_secs(60);

/// What the server is told beside its defaults, as the private server is: a run does not outlive the machine, and as many
/// connections as the real service's pool may open.
const POSTGRES_SETTINGS: &[&str] = &["fsync=off", "full_page_writes=off", "max_connections=200", "jit=off"];

/// What is up so far: whatever happens, this goes down again.
struct Rising<'a> {
    order: &'a ServiceOrder<'a>,
    image: &'a str,
    pod: Pod,
    postgres: Option<Container>,
    service: Option<Container>,
    hub: Option<HubOfContainers>,
}

struct Containers {
    about: About,
    pod: Pod,
    postgres: Container,
    service: Container,
    hub: Option<HubOfContainers>,
    /// Does Hive's and metal3's part on the hub.
    others: Option<AbortOnDropHandle<()>>,
}

/// The API server of the run, and the way to it from containers.
struct HubOfContainers {
    hub: Hub,
    relay: Relay,
}

/// Listens where containers reach this computer, and passes what comes there on to an address that only this computer has.
struct Relay {
    address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Relay {
    async fn start(at: IpAddr, to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((at, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut under_way = JoinSet::new();
            while let Ok((mut from, _)) = listener.accept().await {
                while under_way.try_join_next().is_some() {}
                under_way.spawn(async move {
                    // Whoever asked sees that the connection ends, and asks again.
                    if let Ok(mut there) = TcpStream::connect(to).await {
                        let _ = tokio::io::copy_bidirectional(&mut from, &mut there).await;
                    }
                });
            }
        });
        Ok(Self { address, _task: AbortOnDropHandle::new(task) })
    }
}

/// Starts PostgreSQL, waits for an answer to a query, starts the service, waits for `/ready`.
pub(super) async fn start(
    order: &ServiceOrder<'_>,
    image: &str,
    postgres_image: Option<&str>,
) -> Result<Arc<dyn RunningService>, LabError> {
    let pod = Pod::create(PodOptions {
        run: order.run_id.to_owned(),
        ledger: order.ledger.clone(),
        helper: None,
        helper_log: order.folder.join("container-helper.log"),
    });
    let pod = pod.await.map_err(broken)?;
    let mut rising = Rising { order, image, pod, postgres: None, service: None, hub: None };
    match Box::pin(rising.raise(postgres_image)).await {
        Ok(about) => match (rising.postgres, rising.service) {
            (Some(postgres), Some(service)) => {
                let Rising { pod, hub, .. } = rising;
                let others = hub
                    .as_ref()
                    .map(|hub| hub.hub.others(Endpoint::new(hub.relay.address), order.prepared.clock_scale));
                Ok(Arc::new(Containers { about, pod, postgres, service, hub, others }))
            }
            _ => Err(LabError::new("containers", "one of the containers was not started")),
        },
        Err(error) => {
            // What cannot be removed stays in the ledger and is told as a leak.
            for container in [rising.service.take(), rising.postgres.take()].into_iter().flatten() {
                let _ = container.remove(Duration::ZERO).await;
            }
            if let Some(hub) = &rising.hub {
                hub.hub.stop().await;
            }
            let _ = rising.pod.remove().await;
            Err(error)
        }
    }
}

fn broken(error: impl Into<StartError>) -> LabError {
    lab("containers")(error.into())
}

impl Containers {
    fn of(&self, which: Program) -> &Container {
        match which {
            Program::Service => &self.service,
            Program::Postgres => &self.postgres,
        }
    }
}

impl RunningService for Containers {
    fn about(&self) -> &About {
        &self.about
    }

    fn ended(&self) -> BoxFuture<'_, ProgramEnd> {
        let wait = async |container: &Container| match container.ended().await {
            Ok(code) => format!("exit code {code}"),
            Err(problem) => problem,
        };
        let hub = async {
            match &self.hub {
                Some(hub) => hub.hub.ended().await,
                None => std::future::pending().await,
            }
        };
        Box::pin(async move {
            let (which, how) = tokio::select! {
                // A service that has lost its API server may end of that.
                biased;
                ended = hub => return ProgramEnd::OfHub(ended),
                how = wait(&self.service) => (Program::Service, how),
                how = wait(&self.postgres) => (Program::Postgres, how),
            };
            ProgramEnd::Of { which, how: Some(how) }
        })
    }

    fn has_lost_lease(&self) -> bool {
        self.hub.is_some() && self.last_lines(Program::Service, 20).iter().any(|line| line.contains(LOST))
    }

    fn lost(&self) -> Option<ProgramEnd> {
        None
    }

    fn pause(&self, which: Program, _: WhichReplica, still: bool) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { self.of(which).pause(still).await.map_err(|error| error.to_string()) })
    }

    fn restart(self: Arc<Self>, _: Restart) -> BoxFuture<'static, Result<(), LabError>> {
        Box::pin(async { Err(LabError::new("faults", NO_RESTART)) })
    }

    fn last_lines(&self, which: Program, count: usize) -> Vec<String> {
        self.of(which).last_lines(count)
    }

    fn memory(&self, _: Program) -> Option<u64> {
        None
    }

    fn stop(self: Arc<Self>) -> BoxFuture<'static, Down> {
        Box::pin(async move {
            let Some(Self { pod, postgres, service, hub, others, .. }) = Arc::into_inner(self) else {
                let problem = LabError::new("containers", "they are still in use and were not stopped");
                return Down { problems: vec![problem], killed: None };
            };
            let running = service.state().await.is_ok_and(|ended| ended.is_none());
            let service = service.remove(STOP).await;
            let killed = match service {
                Ok(KILLED) if running => Some(not_ended()),
                Ok(code) if running && is_crash(code) => Some(crashed_then(&format!("exit code {code}"))),
                _ => None,
            };
            drop(others);
            if let Some(hub) = hub {
                hub.hub.stop().await;
            }
            let postgres = postgres.remove(STOP).await.map(drop);
            let pod = pod.remove().await;
            let problems = [service.map(drop), postgres, pod].into_iter().filter_map(Result::err).map(broken).collect();
            Down { problems, killed }
        })
    }
}

/// Exit code of a container whose program got SIGKILL.
const KILLED: i64 = 128 + 9;

/// What cannot be done to a container.
/// Runs with such faults are refused before the start: [`vlab_drive::target::Target::can`].
const NO_RESTART: &str = "the service's containers are not restarted during a run";

impl Rising<'_> {
    async fn raise(&mut self, postgres_image: Option<&str>) -> Result<About, LabError> {
        let order = self.order;
        // Both images first: that one is missing should not be told after the other one was started.
        let service_image = order.or_end(async { self.pod.image(self.image).await.map_err(broken) }).await?;
        let postgres_image = match postgres_image {
            Some(image) => image.to_owned(),
            None if self.pod.has_image(OUR_POSTGRES).await.map_err(broken)? => OUR_POSTGRES.to_owned(),
            None => UPSTREAM_POSTGRES.to_owned(),
        };
        order.or_end(async { self.pod.image(&postgres_image).await.map_err(broken) }).await?;

        let database = Database {
            host: Ipv4Addr::LOCALHOST.to_string(),
            port: 0,
            user: "admin".to_owned(),
            password: password()?,
            name: DATABASE.to_owned(),
        };
        // The service may write it into its log.
        order.secrets.add(database.password.clone());
        let (conninfo, postgres_version, inside) = Box::pin(self.raise_postgres(postgres_image, database)).await?;
        let postgres_ready = self.postgres.as_ref().map(|postgres| postgres.begun().elapsed());
        if let Some(wanted) = order.hub {
            let hub = hub_of(order, wanted).await?;
            let to = hub.endpoint().address();
            let way = self.way_to(to).await;
            let relay = match way {
                Ok(relay) => relay,
                Err(error) => {
                    hub.stop().await;
                    return Err(error);
                }
            };
            self.hub = Some(HubOfContainers { hub, relay });
        }
        let path = service_image.env.iter().find_map(|entry| entry.strip_prefix("PATH=")).unwrap_or(PATH);
        let (endpoint, version, service_ready) = self.raise_service(&inside, path).await?;
        let engine = self.pod.engine().to_string();
        Ok(About {
            endpoint,
            version,
            stands_on: BTreeMap::from([
                ("postgresql".to_owned(), postgres_version),
                ("container engine".to_owned(), engine),
            ]),
            conninfo: Some(conninfo),
            startup: Some(Startup {
                service_ready_ms: service_ready.as_secs_f64() * 1e3,
                postgres_ready_ms: postgres_ready.map(|ready| ready.as_secs_f64() * 1e3),
            }),
            // Where the service reaches it, too: the clusters on it have their addresses from this one.
            hub: self.hub.as_ref().map(|hub| (Endpoint::new(hub.relay.address), hub.hub.kubeconfig().to_owned())),
        })
    }

    /// The way from containers to an address of this computer.
    async fn way_to(&self, to: SocketAddr) -> Result<Relay, LabError> {
        let none = |why: String| broken(StartError::NoWayToHub(why));
        let gateway = self.pod.gateway().await.map_err(broken)?;
        let gateway = gateway.ok_or_else(|| none("its network has no gateway".to_owned()))?;
        Relay::start(gateway, to).await.map_err(|error| none(format!("{gateway}: {error}")))
    }

    /// PostgreSQL answers a query: its connection string from here, what it says that it is, and where the service finds it.
    async fn raise_postgres(
        &mut self,
        image: String,
        database: Database,
    ) -> Result<(String, String, Database), LabError> {
        let postgres = self.pod.start(postgres_spec(self.order, image, &database)).await.map_err(broken)?;
        let postgres = self.postgres.insert(postgres);
        let conninfo = conninfo(&Database { port: postgres.host_port(), ..database.clone() });
        let what = "PostgreSQL to answer a query";
        let waiting =
            postgres.wait_ready(what, POSTGRES_READY, Duration::from_millis(50), || answers_a_query(conninfo.clone()));
        let version = Box::pin(self.order.or_end(async { waiting.await.map_err(broken) })).await?;
        let inside = Database { host: postgres.address().to_owned(), port: POSTGRES_PORT, ..database };
        Ok((conninfo, version, inside))
    }

    /// The service is ready: where it answers, what it says that it is, and how long it took.
    async fn raise_service(
        &mut self,
        database: &Database,
        path: &str,
    ) -> Result<(Endpoint, String, Duration), LabError> {
        let mut first = self.start_service(database, path).await;
        if let Err(StartError::Container(error)) = &first
            && matches!(**error, ContainerError::PortTaken { .. })
        {
            // Between our asking for a free port and the engine's taking it somebody else got it.
            tracing::warn!("another program took the service's port; trying again with another port");
            first = self.start_service(database, path).await;
        }
        let (address, service) = first.map_err(broken)?;
        let service = self.service.insert(service);
        let endpoint = Endpoint::new(address);
        let budget = self.order.ready_within.unwrap_or(BUDGET);
        let waiting = service.wait_ready(READY, budget, Duration::from_millis(20), || is_ready(endpoint.clone()));
        self.order.or_end(async { waiting.await.map_err(broken) }).await?;
        if let Some(HubOfContainers { hub, .. }) = &self.hub {
            let waiting = service.wait_ready(LEADING, LEADS_WITHIN, Duration::from_millis(50), || hub.is_led());
            self.order.or_end(async { waiting.await.map_err(broken) }).await?;
        }
        let ready = service.begun().elapsed();
        let asked = who_is(&endpoint).await;
        let version =
            asked.map_err(|problem| broken(StartError::Stranger(format!("{} is ready, but {problem}", self.image))))?;
        Ok((endpoint, format!("{} ({version})", self.image), ready))
    }

    async fn start_service(&self, database: &Database, path: &str) -> Result<(SocketAddr, Container), StartError> {
        let order = self.order;
        // The service must be told under which address it is reached before it starts, so it cannot be the engine that chooses.
        let address = free_address().map_err(StartError::Port)?;
        let program = PathBuf::from(format!("{TOOLS}/{INSTALLER}"));
        let tools = (!order.real_tools).then_some(StandIns { folder: Path::new(TOOLS), installer: &program });
        let (work, path) = (Path::new(WORK), OsStr::new(path));
        let kube = self.hub.as_ref().map(|hub| Kube { kubeconfig: Path::new(HUB), ..hub.hub.kube() });
        let around = Around { database, address, work, tools, path, inside: order.inside, kube, pod: None };
        let env = environment(order.prepared, &around);
        let mut env: Vec<(String, String)> =
            env.into_iter().map(|(name, value)| (name, value.to_string_lossy().into_owned())).collect();
        for (name, value) in &mut env {
            if name == "HTTP_LISTEN_PORT" {
                *value = SERVICE_PORT.to_string();
            }
        }
        let mut files = match tools {
            Some(_) => {
                stand_ins(order.vlab).map_err(|error| StartError::StandIns { path: order.vlab.to_owned(), error })?
            }
            None => Vec::new(),
        };
        if let (Some(hub), Some(kube)) = (&self.hub, kube) {
            let file = |path: &str, text: String| CopiedFile {
                path: path.to_owned(),
                mode: 0o644,
                content: Content::Text(text),
            };
            files.push(file(HUB, kubeconfig(&format!("http://{}", hub.relay.address))));
            files.push(file(pod::NAMESPACE_FILE, kube.namespace.to_owned()));
        }
        let spec = ContainerSpec {
            what: "service".to_owned(),
            image: self.image.to_owned(),
            env,
            args: Vec::new(),
            port: SERVICE_PORT,
            host_port: Some(address.port()),
            volume: None,
            scratch: Some(WORK.to_owned()),
            files,
            log_file: order.folder.join("service.log"),
        };
        Ok((address, self.pod.start(spec).await?))
    }
}

fn postgres_spec(order: &ServiceOrder<'_>, image: String, database: &Database) -> ContainerSpec {
    let env = [
        ("POSTGRES_USER", database.user.as_str()),
        ("POSTGRES_PASSWORD", &database.password),
        ("POSTGRES_DB", &database.name),
        ("PGDATA", &format!("{POSTGRES_DATA}/pg")),
    ];
    let mut args = vec!["postgres".to_owned()];
    args.extend(POSTGRES_SETTINGS.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]));
    ContainerSpec {
        what: "postgres".to_owned(),
        image,
        env: env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        args,
        port: POSTGRES_PORT,
        host_port: None,
        volume: Some(POSTGRES_DATA.to_owned()),
        scratch: None,
        files: Vec::new(),
        log_file: order.folder.join("postgresql.log"),
    }
}

/// The stand-ins, and what they need in an image that has other libraries than this machine, or none: `vlab` comes with all of
/// its own.
fn stand_ins(vlab: &Path) -> io::Result<Vec<CopiedFile>> {
    let file = |path: String, content| CopiedFile { path, mode: 0o755, content };
    let mut files = vec![
        file(format!("{TOOLS}/oc"), Content::Text(OC.to_owned())),
        file(format!("{TOOLS}/lib/vlab"), Content::Of(vlab.to_owned())),
    ];
    let mut loader = None;
    for path in loaded_libraries(&fs::read_to_string("/proc/self/maps")?) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("ld-") {
            loader = Some(name.clone());
        }
        files.push(file(format!("{TOOLS}/lib/{name}"), Content::Of(path)));
    }
    // Linked statically it needs no loader.
    let program = match loader {
        Some(name) => format!("{TOOLS}/lib/{name} --library-path {TOOLS}/lib {TOOLS}/lib/vlab"),
        None => format!("{TOOLS}/lib/vlab"),
    };
    let script = format!("#!/bin/sh\nexec {program} \"$@\"\n");
    files.push(file(format!("{TOOLS}/{INSTALLER}"), Content::Text(script)));
    Ok(files)
}

/// The shared libraries in a process's memory, its loader included, by `/proc/<pid>/maps`.
fn loaded_libraries(maps: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| line.find('/').map(|at| PathBuf::from(&line[at..]));
    let library = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.ends_with(".so") || name.contains(".so."))
    };
    maps.lines().filter_map(path).filter(library).collect()
}

fn conninfo(database: &Database) -> String {
    let Database { host, port, user, password, name } = database;
    format!("host={host} port={port} user={user} password={password} dbname={name} connect_timeout=2")
}

async fn answers_a_query(conninfo: String) -> Result<Option<String>, String> {
    let told = |error: tokio_postgres::Error| match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    let (client, connection) = tokio_postgres::connect(&conninfo, tokio_postgres::NoTls).await.map_err(told)?;
    let connection = tokio::spawn(connection);
    let answer = client.query_one("SELECT current_setting('server_version')", &[]).await;
    drop(client);
    let _ = connection.await;
    let version: String = answer.map_err(told)?.try_get(0).map_err(told)?;
    Ok(Some(format!("PostgreSQL {version}")))
}

/// A password that stands in no file but those of the engine. Not from the run's seed, which is in every report: whoever has
/// that one could make it, too.
fn password() -> Result<String, LabError> {
    vlab_lab::postgres::random_hex(16).map_err(lab("postgresql"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_from_other_mappings() {
        let maps = "\
55d0c0000000-55d0c0100000 r--p 00000000 08:01 12 /usr/bin/vlab
7f254481e000-7f2544844000 r--p 00000000 08:01 13 /usr/lib/x86_64-linux-gnu/libc.so.6
7f2544844000-7f2544999000 r-xp 00026000 08:01 13 /usr/lib/x86_64-linux-gnu/libc.so.6
7f2547329000-7f254735e000 r--p 00000000 08:01 14 /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
7f2547400000-7f2547401000 rw-p 00000000 00:00 0
";
        let found: Vec<PathBuf> = loaded_libraries(maps).into_iter().collect();
        let below = Path::new("/usr/lib/x86_64-linux-gnu");
        assert_eq!(found, [below.join("ld-linux-x86-64.so.2"), below.join("libc.so.6")]);
    }

    /// The program that is copied is started by the loader that is copied, with the libraries that are copied: here in a folder of
    /// its own.
    #[test]
    fn what_is_copied_into_a_container_runs_without_the_libraries_of_its_image() {
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join(TOOLS.trim_start_matches('/'));
        for file in stand_ins(&program).unwrap() {
            use std::os::unix::fs::OpenOptionsExt as _;
            let path = folder.path().join(file.path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let bytes = match file.content {
                // The folder stands for the root of the container.
                Content::Text(text) => text.replace(TOOLS, root.to_str().unwrap()).into_bytes(),
                Content::Of(path) => fs::read(path).unwrap(),
            };
            let mut copy = fs::OpenOptions::new().create_new(true).write(true).mode(file.mode).open(path).unwrap();
            io::Write::write_all(&mut copy, &bytes).unwrap();
        }
        let tools = folder.path().join(TOOLS.trim_start_matches('/'));
        let ran = std::process::Command::new(tools.join(INSTALLER)).arg("--list").env_clear().output().unwrap();
        let listed = String::from_utf8(ran.stdout).unwrap();
        assert!(listed.contains("libraries_are_told_from_other_mappings"), "{listed}");
    }
}
