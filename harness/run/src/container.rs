//! The service under test and its PostgreSQL as two containers on a network of their own.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio_util::sync::CancellationToken;
use vlab_client::Endpoint;
use vlab_drive::prepare::Prepared;
use vlab_lab::containers::{Container, ContainerError, ContainerSpec, Content, CopiedFile, Pod, PodOptions};
use vlab_lab::ledger::Ledger;

use crate::target::{
    Database, Inside, OC, PROCESS_READY, READY, StandIns, StartError, environment, free_address, is_ready, who_is,
};

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
/// The path of programs of an image that names none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long PostgreSQL may take until a query works. The upstream image starts it twice.
const POSTGRES_READY: Duration = Duration::from_secs(60);
/// How long each of them may take to stop after it was asked to.
const STOP: Duration = Duration::from_secs(10);

/// What the server is told beside its defaults, as the private server is: a run does not outlive the machine, and as many
/// connections as the real service's pool may open.
const POSTGRES_SETTINGS: &[&str] = &["fsync=off", "full_page_writes=off", "max_connections=200", "jit=off"];

/// What is to be started, and around what.
#[derive(Debug)]
pub struct Order<'a> {
    /// The run.
    pub prepared: &'a Prepared,
    /// Its id.
    pub run_id: &'a str,
    /// The service's image.
    pub image: &'a str,
    /// PostgreSQL's image, when not the usual one.
    pub postgres_image: Option<&'a str>,
    /// Name of the service's database.
    pub database: &'a str,
    /// Where the service's log goes.
    pub service_log: PathBuf,
    /// Where PostgreSQL's log goes.
    pub postgres_log: PathBuf,
    /// Where everything is written down.
    pub ledger: Option<Arc<Ledger>>,
    /// The tools in the image are used instead of the stand-ins.
    pub real_tools: bool,
    /// How long the service may take until it is ready, when not the usual time.
    pub ready_within: Option<Duration>,
    /// `vlab`, in the place of the installer that a release image would have.
    pub vlab: &'a Path,
    /// How machines see the service, when hosts are virtual machines.
    pub inside: Option<&'a Inside>,
    /// Cancelled when the user wants an end.
    pub interrupted: &'a CancellationToken,
}

/// Both containers as they run.
#[derive(Debug)]
pub struct Containers {
    pod: Pod,
    postgres: Option<Container>,
    service: Option<Container>,
    /// Connection string of the service's database, for the harness.
    pub conninfo: String,
    /// The password in it.
    pub password: String,
    /// Where the service answers.
    pub endpoint: Endpoint,
    /// What the service says that it is.
    pub version: String,
    /// What PostgreSQL says that it is.
    pub postgres_version: String,
    /// From the order to make the service's container to `/ready`.
    pub service_ready: Duration,
    /// From the order to make PostgreSQL's container to an answer to a query.
    pub postgres_ready: Duration,
}

/// Why there are no containers.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The user wants an end.
    #[error("interrupted")]
    Interrupted,
    /// Something else.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl From<ContainerError> for Problem {
    fn from(error: ContainerError) -> Self {
        Self::Start(error.into())
    }
}

/// What is up so far: whatever happens, this goes down again.
struct Rising {
    pod: Pod,
    postgres: Option<Container>,
    service: Option<Container>,
}

impl Containers {
    /// Starts PostgreSQL, waits for an answer to a query, starts the service, waits for `/ready`.
    ///
    /// # Errors
    /// [`Problem`]; nothing is left then, or what is left is in the ledger.
    pub async fn start(order: &Order<'_>) -> Result<Self, Problem> {
        let pod = Pod::create(PodOptions {
            run: order.run_id.to_owned(),
            ledger: order.ledger.clone(),
            helper: None,
            helper_log: order.service_log.with_file_name("container-helper.log"),
        });
        let pod = pod.await?;
        let mut rising = Rising { pod, postgres: None, service: None };
        match raise(&mut rising, order).await {
            Ok(up) => {
                let Rising { pod, postgres, service } = rising;
                Ok(Self {
                    pod,
                    postgres,
                    service,
                    conninfo: up.conninfo,
                    password: up.password,
                    endpoint: up.endpoint,
                    version: up.version,
                    postgres_version: up.postgres_version,
                    service_ready: up.service_ready,
                    postgres_ready: up.postgres_ready,
                })
            }
            Err(problem) => {
                // What cannot be removed stays in the ledger and is told as a leak.
                for container in [rising.service.take(), rising.postgres.take()].into_iter().flatten() {
                    let _ = container.remove(Duration::ZERO).await;
                }
                let _ = rising.pod.remove().await;
                Err(problem)
            }
        }
    }

    /// The engine.
    pub fn engine(&self) -> String {
        self.pod.engine().to_string()
    }

    /// Ends when one of them ends by itself: whether it was the service, and how it ended.
    pub async fn ended(&self) -> (bool, String) {
        let wait = async |container: &Option<Container>| match container {
            Some(container) => match container.ended().await {
                Ok(code) => format!("exit code {code}"),
                Err(problem) => problem,
            },
            None => std::future::pending().await,
        };
        tokio::select! {
            how = wait(&self.service) => (true, how),
            how = wait(&self.postgres) => (false, how),
        }
    }

    /// Lets the service (or PostgreSQL) stand still, or go on.
    ///
    /// # Errors
    /// The engine refuses, or the container is gone.
    pub async fn pause(&self, service: bool, still: bool) -> Result<(), String> {
        let container = if service { &self.service } else { &self.postgres };
        match container {
            Some(container) => container.pause(still).await.map_err(|e| e.to_string()),
            None => Err("its container is gone".to_owned()),
        }
    }

    /// The last lines of the service's log, or of PostgreSQL's.
    pub fn last_lines(&self, of_service: bool, count: usize) -> Vec<String> {
        let container = if of_service { &self.service } else { &self.postgres };
        container.as_ref().map(|container| container.last_lines(count)).unwrap_or_default()
    }

    /// Stops and removes the service.
    ///
    /// # Errors
    /// The engine refuses; it stays in the ledger then.
    pub async fn remove_service(&mut self) -> Result<(), ContainerError> {
        match self.service.take() {
            Some(service) => service.remove(STOP).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Stops and removes all of it. The service goes first.
    ///
    /// # Errors
    /// The engine refuses; what is left stays in the ledger.
    pub async fn remove(mut self) -> Result<(), ContainerError> {
        let service = self.remove_service().await;
        let postgres = match self.postgres.take() {
            Some(postgres) => postgres.remove(STOP).await.map(|_| ()),
            None => Ok(()),
        };
        let rest = self.pod.remove().await;
        service.and(postgres).and(rest)
    }
}

struct Up {
    conninfo: String,
    password: String,
    endpoint: Endpoint,
    version: String,
    postgres_version: String,
    service_ready: Duration,
    postgres_ready: Duration,
}

/// Ends early when the user wants an end. Only for what may be given up in the middle: the engine would go on with a
/// container that it is just making.
async fn or_end<T, E>(order: &Order<'_>, work: impl Future<Output = Result<T, E>>) -> Result<T, Problem>
where
    Problem: From<E>,
{
    tokio::select! {
        done = work => Ok(done?),
        () = order.interrupted.cancelled() => Err(Problem::Interrupted),
    }
}

async fn raise(rising: &mut Rising, order: &Order<'_>) -> Result<Up, Problem> {
    // Both images first: that one is missing should not be told after the other one was started.
    let service_image = or_end(order, rising.pod.image(order.image)).await?;
    let postgres_image = match order.postgres_image {
        Some(image) => image.to_owned(),
        None if rising.pod.has_image(OUR_POSTGRES).await? => OUR_POSTGRES.to_owned(),
        None => UPSTREAM_POSTGRES.to_owned(),
    };
    or_end(order, rising.pod.image(&postgres_image)).await?;

    let password = password(order.prepared.seed);
    let database = Database {
        host: Ipv4Addr::LOCALHOST.to_string(),
        port: 0,
        user: "admin".to_owned(),
        password: password.clone(),
        name: order.database.to_owned(),
    };
    let postgres = rising.pod.start(postgres_spec(order, postgres_image, &database)).await?;
    let postgres = rising.postgres.insert(postgres);
    let conninfo = conninfo(&Database { port: postgres.host_port(), ..database.clone() });
    let what = "PostgreSQL to answer a query";
    let waiting =
        postgres.wait_ready(what, POSTGRES_READY, Duration::from_millis(50), || answers_a_query(conninfo.clone()));
    let postgres_version = or_end(order, waiting).await?;
    let postgres_ready = postgres.begun().elapsed();

    let inside = Database { host: postgres.address().to_owned(), port: POSTGRES_PORT, ..database };
    let path = service_image.env.iter().find_map(|entry| entry.strip_prefix("PATH=")).unwrap_or(PATH).to_owned();
    let mut first = start_service(rising, order, &inside, &path).await;
    if let Err(StartError::Container(ContainerError::PortTaken { .. })) = &first {
        // Between our asking for a free port and the engine's taking it somebody else got it.
        tracing::warn!("the service's port was taken by somebody else; once more with another one");
        first = start_service(rising, order, &inside, &path).await;
    }
    let address = first?;
    let service = rising.service.as_mut().ok_or(Problem::Interrupted)?;
    let endpoint = Endpoint::new(address);
    let budget = order.ready_within.unwrap_or(PROCESS_READY);
    let waiting = service.wait_ready(READY, budget, Duration::from_millis(20), || is_ready(endpoint.clone()));
    or_end(order, waiting).await?;
    let service_ready = service.begun().elapsed();
    let asked = who_is(&endpoint).await;
    let version = asked.map_err(|p| StartError::Remote(format!("{} is ready, but {p}", order.image)))?;
    Ok(Up {
        conninfo,
        password,
        endpoint,
        version: format!("{} ({version})", order.image),
        postgres_version,
        service_ready,
        postgres_ready,
    })
}

fn postgres_spec(order: &Order<'_>, image: String, database: &Database) -> ContainerSpec {
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
        log_file: order.postgres_log.clone(),
    }
}

async fn start_service(
    rising: &mut Rising,
    order: &Order<'_>,
    database: &Database,
    path: &str,
) -> Result<SocketAddr, StartError> {
    // The service must be told under which address it is reached before it starts, so it cannot be the engine that chooses.
    let address = free_address().map_err(StartError::Port)?;
    let program = PathBuf::from(format!("{TOOLS}/{INSTALLER}"));
    let tools = (!order.real_tools).then_some(StandIns { folder: Path::new(TOOLS), installer: &program });
    let env =
        environment(order.prepared, database, address, Path::new(WORK), tools.as_ref(), OsStr::new(path), order.inside);
    let mut env: Vec<(String, String)> =
        env.into_iter().map(|(name, value)| (name, value.to_string_lossy().into_owned())).collect();
    for (name, value) in &mut env {
        if name == "HTTP_LISTEN_PORT" {
            *value = SERVICE_PORT.to_string();
        }
    }
    let files = match tools {
        Some(_) => {
            stand_ins(order.vlab).map_err(|error| StartError::StandIns { path: order.vlab.to_owned(), error })?
        }
        None => Vec::new(),
    };
    let spec = ContainerSpec {
        what: "service".to_owned(),
        image: order.image.to_owned(),
        env,
        args: Vec::new(),
        port: SERVICE_PORT,
        host_port: Some(address.port()),
        volume: None,
        scratch: Some(WORK.to_owned()),
        files,
        log_file: order.service_log.clone(),
    };
    rising.service = Some(rising.pod.start(spec).await?);
    Ok(address)
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

/// A password that stands in no file but those of the engine.
fn password(seed: u64) -> String {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((1 << 61) + 1);
    (0..20).map(|_| char::from(b"abcdefghijkmnpqrstuvwxyz23456789"[(rng.next_u32() % 32) as usize])).collect()
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
