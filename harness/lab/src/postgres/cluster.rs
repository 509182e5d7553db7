//! The server of a run.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use tokio_postgres::config::Host;

use super::binaries::{Binaries, OLDEST};
use super::error::{PgError, explain};
use super::{remains, template};
use crate::ledger::{Ledger, Resource, Token};
use crate::proc::{self, ProcessId};
use crate::process::{Child, ProcessError, Program, last_lines};
use crate::wait::ReadyError;

/// Prefix of the private directories, in the folder for temporary files.
pub const PREFIX: &str = "vlab-pg-";

/// File in the private directory that says which process owns it, for `gc`.
pub const OWNER_FILE: &str = "owner.json";

/// Port in the name of the socket file when there is no TCP; the directory is private, so it cannot be taken.
const SOCKET_ONLY_PORT: u16 = 5432;

/// `sun_path` of a socket address has 108 bytes, the last one is NUL.
const SOCKET_PATH_LIMIT: usize = 107;

/// Server settings that make it quick to start and cheap to run, without losing what it has acknowledged when it is
/// killed with -9.
const SETTINGS: &[(&str, &str)] = &[
    // What a process has written is in the kernel's page cache and survives the death of the process; only a crash of
    // the machine loses it. A run does not outlive the machine, so nothing is forced to the disk...
    ("fsync", "off"),
    // ...and a page cannot be torn by the death of a process either.
    ("full_page_writes", "off"),
    // This one must stay on: off means that a commit is acknowledged while its record is still in the server's own memory,
    // and `kill -9` would lose it. That is what the tests about a dying database are for.
    ("synchronous_commit", "on"),
    // Segments in /dev/shm would stay behind after kill -9; as files of the data directory they go with it.
    ("dynamic_shared_memory_type", "mmap"),
    ("logging_collector", "off"),
    ("log_line_prefix", "%m [%p] "),
    // Compiling a query costs more than any query here takes.
    ("jit", "off"),
];

/// Whether and where the server listens on loopback besides its unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tcp {
    /// Only the unix socket.
    #[default]
    Off,
    /// 127.0.0.1 on a free port.
    AnyPort,
    /// 127.0.0.1 on this port; taken is an error.
    Port(u16),
}

/// How to start a [`PgCluster`].
#[derive(Debug, Clone)]
pub struct PgOptions {
    /// Folder in which the private directory (data and socket) is made. `None`: the system's temporary folder, or `/tmp`
    /// when that one's path is too long. When root, other users must be able to enter it.
    pub parent: Option<PathBuf>,
    /// Where the server logs to (appended). `None`: inside the private directory, removed with it.
    pub log_file: Option<PathBuf>,
    /// `max_connections` of the server.
    pub max_connections: u32,
    /// Loopback TCP besides the socket.
    pub tcp: Tcp,
    /// Folder of `initdb` and `postgres`. `None`: looked for.
    pub bin_dir: Option<PathBuf>,
    /// An existing server to use instead of starting one.
    pub database_url: Option<String>,
    /// How long the server may take until a query works.
    pub ready_budget: Duration,
    /// Where all that is made is written down.
    pub ledger: Option<Arc<Ledger>>,
    /// Folder that keeps what `initdb` makes; `None`: made anew each time.
    pub cache: Option<PathBuf>,
    /// Further settings of the server, stronger than the ones above.
    pub settings: Vec<(String, String)>,
    /// The data of a server that was kept ([`PgCluster::keep`]), instead of an empty one.
    pub content: Option<PathBuf>,
}

impl Default for PgOptions {
    fn default() -> Self {
        Self {
            parent: None,
            log_file: None,
            max_connections: 200,
            tcp: Tcp::Off,
            bin_dir: None,
            database_url: None,
            ready_budget: Duration::from_secs(20),
            ledger: None,
            cache: template::cache_dir(),
            settings: Vec::new(),
            content: None,
        }
    }
}

impl PgOptions {
    /// The defaults plus what the environment says: `DATABASE_URL`, `VLAB_PG_BIN`.
    #[must_use]
    pub fn from_env() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self { bin_dir: set("VLAB_PG_BIN").map(PathBuf::from), database_url: set("DATABASE_URL"), ..Self::default() }
    }
}

/// Where the time of a start went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartTimes {
    /// The cluster came from the cache and not from `initdb`.
    pub from_cache: bool,
    /// Filling the data directory.
    pub fill: Duration,
    /// From the start of the server until a query worked.
    pub ready: Duration,
    /// All of it.
    pub total: Duration,
}

/// A PostgreSQL server for this run. All methods take `&self`: share it in an `Arc`.
///
/// Call [`PgCluster::stop`] at the end. Dropping it kills the server and removes its directory as a last resort.
#[derive(Debug)]
pub struct PgCluster {
    version: String,
    times: StartTimes,
    kind: ServerKind,
}

#[derive(Debug)]
enum ServerKind {
    Own(Box<Own>),
    Foreign(Box<Foreign>),
}

/// A server that we started.
#[derive(Debug)]
struct Own {
    binaries: Binaries,
    base: PathBuf,
    socket_dir: PathBuf,
    data: PathBuf,
    log_file: PathBuf,
    user: Option<(u32, u32)>,
    port: u16,
    password: Option<Secret>,
    max_connections: u32,
    settings: Vec<(String, String)>,
    ready_budget: Duration,
    ledger: Option<Arc<Ledger>>,
    /// Of the directory and of the server, to be crossed out in reverse order.
    entries: Vec<Token>,
    server: tokio::sync::Mutex<Server>,
    postmaster: Mutex<Option<ProcessId>>,
}

#[derive(Debug)]
enum Server {
    Runs(Child),
    Dead,
    Removed,
}

/// A server that was there before us.
#[derive(Debug)]
struct Foreign {
    config: tokio_postgres::Config,
    server: String,
    prefix: String,
    ledger: Option<Arc<Ledger>>,
    databases: Mutex<Vec<(String, Option<Token>)>>,
}

struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Connects without TLS and lets the connection run by itself.
///
/// # Errors
/// The server's answer, or why there was none.
pub async fn connect(conninfo: &str) -> Result<tokio_postgres::Client, PgError> {
    let what = || "connect".to_owned();
    let (client, connection) = tokio_postgres::connect(conninfo, tokio_postgres::NoTls)
        .await
        .map_err(|error| PgError::Query { what: what(), problem: explain(&error) })?;
    tokio::spawn(async move {
        // The end of the connection is seen by whoever uses the client.
        if let Err(error) = connection.await {
            tracing::debug!(error = %explain(&error), "connection to PostgreSQL ended");
        }
    });
    Ok(client)
}

impl PgCluster {
    /// Starts a server; when this returns, a query has worked. With `database_url`: connects to that one instead.
    ///
    /// # Errors
    /// No binaries, wrong version, path too long, port taken, not ready within the budget … see [`PgError`].
    pub async fn start(options: PgOptions) -> Result<Self, PgError> {
        let begin = Instant::now();
        if let Some(url) = &options.database_url {
            let (foreign, version) = Foreign::connect(url, options.ledger.clone(), options.ready_budget).await?;
            let times = StartTimes { ready: begin.elapsed(), total: begin.elapsed(), ..StartTimes::default() };
            return Ok(Self { version, times, kind: ServerKind::Foreign(Box::new(foreign)) });
        }
        let tcp = options.tcp;
        // Files, initdb and copying: not for the threads of the runtime.
        let prepared = tokio::task::spawn_blocking(move || Own::prepare(options)).await;
        let (mut own, from_cache) = prepared.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let fill = begin.elapsed();
        own.start(tcp).await?;
        let times = StartTimes { from_cache, fill, ready: begin.elapsed() - fill, total: begin.elapsed() };
        Ok(Self { version: own.binaries.version.clone(), times, kind: ServerKind::Own(Box::new(own)) })
    }

    /// Version of the server, as it says itself.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where the time of the start went.
    #[must_use]
    pub fn start_times(&self) -> StartTimes {
        self.times
    }

    /// Was it started by us? Otherwise it cannot be killed or restarted.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self.kind, ServerKind::Own(_))
    }

    /// Connection string (`host=… port=… user=… dbname=postgres`) for `tokio_postgres::connect`, by the unix socket when the
    /// server is ours. It may hold a password.
    #[must_use]
    pub fn conninfo(&self) -> String {
        match &self.kind {
            ServerKind::Own(own) => own.conninfo("postgres"),
            ServerKind::Foreign(foreign) => foreign.conninfo(None),
        }
    }

    /// As [`PgCluster::conninfo`] for another database, by the name that `create_database` was given.
    #[must_use]
    pub fn conninfo_for(&self, database: &str) -> String {
        match &self.kind {
            ServerKind::Own(own) => own.conninfo(database),
            ServerKind::Foreign(foreign) => foreign.conninfo(Some(&foreign.real_name(database))),
        }
    }

    /// Connection string by loopback TCP, with its password. `None` when the server was not started with TCP.
    #[must_use]
    pub fn tcp_conninfo_for(&self, database: &str) -> Option<String> {
        match &self.kind {
            ServerKind::Own(own) => own.tcp_conninfo(database),
            ServerKind::Foreign(foreign) => Some(foreign.conninfo(Some(&foreign.real_name(database)))),
        }
    }

    /// The postmaster, while it runs and is ours.
    #[must_use]
    pub fn postmaster(&self) -> Option<ProcessId> {
        match &self.kind {
            ServerKind::Own(own) => *own.postmaster.lock().unwrap_or_else(PoisonError::into_inner),
            ServerKind::Foreign(_) => None,
        }
    }

    /// The private directory, when the server is ours.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        match &self.kind {
            ServerKind::Own(own) => Some(&own.base),
            ServerKind::Foreign(_) => None,
        }
    }

    /// The last lines of the server's log; none when the server is not ours.
    #[must_use]
    pub fn last_log_lines(&self, count: usize) -> Vec<String> {
        match &self.kind {
            ServerKind::Own(own) => last_lines(&own.log_file, count),
            ServerKind::Foreign(_) => Vec::new(),
        }
    }

    /// Makes an empty database and returns its connection string. On the server of `DATABASE_URL` the real name gets a
    /// prefix of this run, and `stop` drops it.
    ///
    /// # Errors
    /// The server's answer; a name that cannot be one.
    pub async fn create_database(&self, name: &str) -> Result<String, PgError> {
        let real = match &self.kind {
            ServerKind::Own(_) => name.to_owned(),
            ServerKind::Foreign(foreign) => foreign.real_name(name),
        };
        if name.is_empty() || real.len() > 63 || name.contains('\0') {
            return Err(PgError::DatabaseName(name.to_owned()));
        }
        if let ServerKind::Foreign(foreign) = &self.kind {
            foreign.record(&real)?;
        }
        let client = connect(&self.conninfo()).await?;
        execute(&client, &format!("CREATE DATABASE {}", identifier(&real))).await?;
        Ok(self.conninfo_for(name))
    }

    /// SIGKILL to the postmaster and all its children; returns when they are gone. The data stays.
    ///
    /// # Errors
    /// When the server is not ours, or has been stopped for good.
    pub async fn kill9(&self) -> Result<(), PgError> {
        self.interrupt(true).await
    }

    /// Stops the server (fast: open transactions are rolled back) and keeps its data; [`PgCluster::restart`] starts it again.
    ///
    /// # Errors
    /// When the server is not ours, or has been stopped for good.
    pub async fn halt(&self) -> Result<(), PgError> {
        self.interrupt(false).await
    }

    async fn interrupt(&self, kill: bool) -> Result<(), PgError> {
        let ServerKind::Own(own) = &self.kind else { return Err(PgError::NotOurs(if kill { "kill" } else { "stop" })) };
        let mut server = own.server.lock().await;
        match &*server {
            Server::Removed => return Err(PgError::Stopped),
            Server::Dead => return Ok(()),
            Server::Runs(child) if kill => own.kill(child).await?,
            Server::Runs(child) => own.stop(child).await?,
        };
        own.set(&mut server, Server::Dead);
        Ok(())
    }

    /// Lets the server and all its backends stand still: open connections hang, new ones do not come about. Or lets them go on.
    ///
    /// # Errors
    /// When the server is not ours, does not run, or does not obey.
    pub async fn pause(&self, still: bool) -> Result<(), PgError> {
        const BUDGET: Duration = Duration::from_secs(5);
        let what = if still { "pause" } else { "continue" };
        let ServerKind::Own(own) = &self.kind else { return Err(PgError::NotOurs(what)) };
        let data = own.data.clone();
        let paused = tokio::task::spawn_blocking(move || remains::pause(&data, still, Instant::now() + BUDGET)).await;
        match paused.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
            Ok(_) => Ok(()),
            Err(problem) => Err(PgError::Query { what: what.to_owned(), problem }),
        }
    }

    /// Starts the server again (after `kill9`, or stops it first) on the same socket and port.
    ///
    /// # Errors
    /// As [`PgCluster::start`]; when the server is not ours.
    pub async fn restart(&self) -> Result<(), PgError> {
        let ServerKind::Own(own) = &self.kind else { return Err(PgError::NotOurs("restart")) };
        let mut server = own.server.lock().await;
        match &*server {
            Server::Removed => return Err(PgError::Stopped),
            Server::Dead => {}
            Server::Runs(child) => own.stop(child).await?,
        }
        own.set(&mut server, Server::Dead);
        let child = own.launch().await?;
        own.set(&mut server, Server::Runs(child));
        Ok(())
    }

    /// Stops the server and copies its data into a new folder, from which [`PgOptions::content`] begins.
    ///
    /// # Errors
    /// When the server is not ours, or the files cannot be copied.
    pub async fn keep(&self, into: &Path) -> Result<(), PgError> {
        let ServerKind::Own(own) = &self.kind else { return Err(PgError::NotOurs("keep")) };
        self.halt().await?;
        let (data, into) = (own.data.clone(), into.to_owned());
        let copied = tokio::task::spawn_blocking(move || template::copy_out(&data, &into)).await;
        copied.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Stops the server (fast: open transactions are rolled back) and removes all that it had; on the server of
    /// `DATABASE_URL` drops our databases. A second call does nothing.
    ///
    /// # Errors
    /// What could not be removed; it stays in the ledger.
    pub async fn stop(&self) -> Result<(), PgError> {
        match &self.kind {
            ServerKind::Foreign(foreign) => foreign.drop_databases().await,
            ServerKind::Own(own) => {
                let mut server = own.server.lock().await;
                match &*server {
                    Server::Removed => return Ok(()),
                    Server::Dead => {}
                    Server::Runs(child) => own.stop(child).await?,
                }
                own.set(&mut server, Server::Dead);
                let remove = tokio::task::spawn_blocking({
                    let (base, data) = (own.base.clone(), own.data.clone());
                    move || remove_all(&base, &data)
                });
                remove.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
                own.set(&mut server, Server::Removed);
                own.release_entries()
            }
        }
    }
}

impl Own {
    /// Everything up to a filled data directory. `true`: from the cache.
    fn prepare(options: PgOptions) -> Result<(Self, bool), PgError> {
        let binaries = Binaries::find(options.bin_dir.as_deref())?;
        let user = unprivileged_user()?;
        let port = match options.tcp {
            Tcp::Off => SOCKET_ONLY_PORT,
            Tcp::AnyPort => free_port()?,
            Tcp::Port(port) => port,
        };
        let (base, base_entry) = make_base(options.parent.as_deref(), options.ledger.as_deref())?;
        let mut own = Self {
            binaries,
            socket_dir: base.join("s"),
            data: base.join("data"),
            log_file: options.log_file.unwrap_or_else(|| base.join("postgres.log")),
            base,
            user,
            port,
            password: None,
            max_connections: options.max_connections,
            settings: options.settings,
            ready_budget: options.ready_budget,
            ledger: options.ledger,
            entries: base_entry.into_iter().collect(),
            // From here on dropping removes what is there.
            server: tokio::sync::Mutex::new(Server::Dead),
            postmaster: Mutex::new(None),
        };
        for dir in [&own.data, &own.socket_dir] {
            let fail = |error| PgError::Io { what: "make", path: dir.clone(), error };
            fs::DirBuilder::new().mode(0o700).create(dir).map_err(fail)?;
            if let Some((uid, gid)) = user {
                chown(dir, Some(uid), Some(gid)).map_err(fail)?;
            }
        }
        let from_cache = match &options.content {
            Some(kept) => template::take_over(&own.binaries, kept, &own.data, user).map(|()| true)?,
            None => template::fill(&own.binaries, &own.data, user, options.cache.as_deref())?,
        };
        if let Some(ledger) = &own.ledger {
            own.entries.push(ledger.record(Resource::PostgresCluster { data_dir: own.data.clone() })?);
        }
        if options.tcp != Tcp::Off {
            own.password = Some(random_password()?);
        }
        Ok((own, from_cache))
    }

    /// The first start: with any port, a port that was taken in the last moment is no reason to give up.
    async fn start(&mut self, tcp: Tcp) -> Result<(), PgError> {
        let mut tries = 5;
        let child = loop {
            tries -= 1;
            if let Tcp::Port(port) = tcp
                && !is_free(port)
            {
                return Err(PgError::PortTaken { port });
            }
            match self.launch().await {
                Ok(child) => break child,
                Err(PgError::Process(ProcessError::NotReady(ReadyError::Ended { .. })))
                    if tcp != Tcp::Off && !is_free(self.port) =>
                {
                    if tries == 0 || matches!(tcp, Tcp::Port(_)) {
                        return Err(PgError::PortTaken { port: self.port });
                    }
                    self.port = free_port()?;
                }
                Err(error) => return Err(error),
            }
        };
        *self.postmaster.lock().unwrap_or_else(PoisonError::into_inner) = Some(child.id());
        *self.server.get_mut() = Server::Runs(child);
        if let Some(Secret(password)) = &self.password {
            let client = connect(&self.conninfo("postgres")).await?;
            // Hexadecimal digits only: nothing to escape.
            execute(&client, &format!("ALTER ROLE {} PASSWORD '{password}'", template::SUPERUSER)).await?;
        }
        Ok(())
    }

    /// Starts the server and waits until a query works.
    async fn launch(&self) -> Result<Child, PgError> {
        let mut settings: Vec<(String, String)> = vec![
            ("unix_socket_directories".into(), self.socket_dir.display().to_string()),
            ("listen_addresses".into(), if self.password.is_some() { "127.0.0.1".into() } else { String::new() }),
            ("port".into(), self.port.to_string()),
            ("max_connections".into(), self.max_connections.to_string()),
        ];
        settings.extend(SETTINGS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        settings.extend(self.settings.iter().cloned());
        let mut program = Program::new("postgres", self.binaries.program("postgres"), &self.log_file)
            .args(["-D".into(), self.data.clone().into_os_string()])
            .env("LC_ALL", "C")
            .ledger(self.ledger.clone());
        for (name, value) in settings {
            program = program.args(["-c".to_owned(), format!("{name}={value}")]);
        }
        program.directory = Some(self.base.clone());
        program.user = self.user;
        // Not SIGKILL: at SIGQUIT the server ends at once, takes its children with it and removes its shared memory.
        program.death_signal = Some(Signal::SIGQUIT);
        let child = Child::spawn(program)?;
        let conninfo = self.conninfo("postgres");
        child
            .wait_ready("PostgreSQL answers a query", self.ready_budget, Duration::from_millis(5), || async {
                let client = connect(&conninfo).await.map_err(|error| error.to_string())?;
                client.simple_query("SELECT 1").await.map_err(|error| explain(&error))?;
                Ok(Some(()))
            })
            .await?;
        Ok(child)
    }

    async fn stop(&self, child: &Child) -> Result<(), PgError> {
        child.signal(Signal::SIGINT);
        if tokio::time::timeout(Duration::from_secs(10), child.wait()).await.is_err() {
            tracing::warn!(pid = child.pid(), "PostgreSQL does not stop within 10 s, it is killed");
            self.kill(child).await?;
        }
        Ok(())
    }

    async fn kill(&self, child: &Child) -> Result<(), PgError> {
        const BUDGET: Duration = Duration::from_secs(5);
        let error = || PgError::DoesNotDie { pid: child.pid(), after: BUDGET };
        // By number first: it cannot fork any more, and is ours to signal as long as nobody has waited for it.
        child.signal(Signal::SIGKILL);
        let data = self.data.clone();
        let killed = tokio::task::spawn_blocking(move || remains::kill(&data, Instant::now() + BUDGET)).await;
        if !matches!(killed, Ok(Ok(_))) {
            return Err(error());
        }
        tokio::time::timeout(BUDGET, child.wait()).await.map_err(|_| error())?;
        Ok(())
    }

    fn set(&self, server: &mut Server, to: Server) {
        *self.postmaster.lock().unwrap_or_else(PoisonError::into_inner) = match &to {
            Server::Runs(child) => Some(child.id()),
            Server::Dead | Server::Removed => None,
        };
        *server = to;
    }

    fn conninfo(&self, database: &str) -> String {
        let (host, user) = (quote(&self.socket_dir.display().to_string()), template::SUPERUSER);
        format!("host={host} port={} user={user} dbname={}", self.port, quote(database))
    }

    fn tcp_conninfo(&self, database: &str) -> Option<String> {
        let Secret(password) = self.password.as_ref()?;
        let (port, user, database) = (self.port, template::SUPERUSER, quote(database));
        Some(format!("host=127.0.0.1 port={port} user={user} password={password} dbname={database}"))
    }

    fn release_entries(&self) -> Result<(), PgError> {
        if let Some(ledger) = &self.ledger {
            for token in self.entries.iter().rev() {
                ledger.release(*token)?;
            }
        }
        Ok(())
    }
}

/// The last resort: no runtime, no good order, nothing left behind.
impl Drop for Own {
    fn drop(&mut self) {
        let server = self.server.get_mut();
        if matches!(server, Server::Removed) || self.ledger.as_ref().is_some_and(|ledger| ledger.is_kept()) {
            return;
        }
        // Its own drop kills the postmaster.
        *server = Server::Dead;
        let removed = remove_all(&self.base, &self.data).and_then(|()| self.release_entries());
        if let Err(error) = removed {
            tracing::warn!(%error, "a private PostgreSQL was not completely removed; `vlab gc` removes the rest");
        }
    }
}

/// Ends what still runs in `data` and removes `base`.
fn remove_all(base: &Path, data: &Path) -> Result<(), PgError> {
    let fail = |error| PgError::Io { what: "remove", path: base.to_path_buf(), error };
    remains::remove(data, Instant::now() + Duration::from_secs(5))
        .map_err(|problem| fail(io::Error::other(problem)))?;
    match fs::remove_dir_all(base) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fail(error)),
        _ => Ok(()),
    }
}

/// Makes the private directory, written down before it exists.
fn make_base(parent: Option<&Path>, ledger: Option<&Ledger>) -> Result<(PathBuf, Option<Token>), PgError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let temporary = std::env::temp_dir();
    let parents: Vec<&Path> = match parent {
        Some(parent) => vec![parent],
        None => vec![&temporary, Path::new("/tmp")],
    };
    loop {
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        let name = format!("{PREFIX}{}-{nanos:x}{:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let fits = |parent: &&&Path| socket_path(&parent.join(&name)).as_os_str().len() <= SOCKET_PATH_LIMIT;
        let Some(parent) = parents.iter().find(fits) else {
            let path = socket_path(&parents[0].join(&name));
            let length = path.as_os_str().as_bytes().len();
            return Err(PgError::SocketPathTooLong { path, length, limit: SOCKET_PATH_LIMIT });
        };
        let base = parent.join(&name);
        let entry = match ledger {
            Some(ledger) => Some(ledger.record(Resource::Directory { path: base.clone() })?),
            None => None,
        };
        let made = fs::DirBuilder::new().mode(0o711).create(&base);
        if let Err(error) = made {
            if let (Some(ledger), Some(entry)) = (ledger, entry) {
                ledger.release(entry)?;
            }
            if error.kind() == io::ErrorKind::AlreadyExists {
                continue;
            }
            return Err(PgError::Io { what: "make", path: base, error });
        }
        let owner = ProcessId::me().and_then(|me| {
            let text = serde_json::json!({ "owner": me, "boot": proc::boot_id() }).to_string();
            fs::write(base.join(OWNER_FILE), text)
        });
        owner.map_err(|error| PgError::Io { what: "write into", path: base.clone(), error })?;
        return Ok((base, entry));
    }
}

/// Path of the socket with the longest possible port.
fn socket_path(base: &Path) -> PathBuf {
    base.join("s/.s.PGSQL.65535")
}

/// Whom to be instead of root; `None` when we are not root.
fn unprivileged_user() -> Result<Option<(u32, u32)>, PgError> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    ["postgres", "nobody"]
        .iter()
        .find_map(|name| nix::unistd::User::from_name(name).ok().flatten())
        .filter(|user| !user.uid.is_root())
        .map(|user| Some((user.uid.as_raw(), user.gid.as_raw())))
        .ok_or(PgError::NoUser)
}

fn free_port() -> Result<u16, PgError> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| PgError::Io {
        what: "find a free port on",
        path: "127.0.0.1".into(),
        error,
    })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// So many random bytes in hexadecimal digits.
///
/// # Errors
/// The kernel gives none.
pub fn random_hex(bytes: usize) -> io::Result<String> {
    let mut random = vec![0_u8; bytes];
    fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn random_password() -> Result<Secret, PgError> {
    let fail = |error| PgError::Io { what: "read", path: "/dev/urandom".into(), error };
    random_hex(16).map(Secret).map_err(fail)
}

/// A value of a connection string.
fn quote(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// An SQL identifier.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

async fn execute(client: &tokio_postgres::Client, statement: &str) -> Result<(), PgError> {
    // Up to the first quoted word: a password follows as a literal.
    let what = statement.split('\'').next().unwrap_or_default().trim().to_owned();
    client.batch_execute(statement).await.map_err(|error| PgError::Query { what, problem: explain(&error) })
}

impl Foreign {
    async fn connect(url: &str, ledger: Option<Arc<Ledger>>, budget: Duration) -> Result<(Self, String), PgError> {
        let mut config: tokio_postgres::Config = url.parse().map_err(|error| PgError::Url(explain(&error)))?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(budget);
        }
        let server = server_of(&config)?;
        let prefix = random_hex(4).map(|random| format!("vlab_{random}_")).map_err(|error| PgError::Io {
            what: "read",
            path: "/dev/urandom".into(),
            error,
        })?;
        let this = Self { config, server, prefix, ledger, databases: Mutex::new(Vec::new()) };
        let asked = tokio::time::timeout(budget, async {
            let client = connect(&this.conninfo(None)).await?;
            let row = client
                .query_one("SELECT current_setting('server_version'), current_setting('server_version_num')::int", &[])
                .await
                .map_err(|error| PgError::Query { what: "version".into(), problem: explain(&error) })?;
            Ok::<_, PgError>((row.get::<_, String>(0), row.get::<_, i32>(1)))
        });
        let (version, number) =
            asked.await.map_err(|_| PgError::Url(format!("{} does not answer within {budget:?}", this.server)))??;
        if u32::try_from(number / 10_000).unwrap_or(0) < OLDEST {
            return Err(PgError::WrongVersion { found: vec![format!("{version} at {} (DATABASE_URL)", this.server)] });
        }
        Ok((this, version))
    }

    /// The connection string of the user with another database.
    fn conninfo(&self, database: Option<&str>) -> String {
        let mut parts = Vec::new();
        let mut add = |name: &str, value: &str| parts.push(format!("{name}={}", quote(value)));
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .map(|host| match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        add("host", &hosts.join(","));
        let ports: Vec<String> = self.config.get_ports().iter().map(u16::to_string).collect();
        if !ports.is_empty() {
            add("port", &ports.join(","));
        }
        if let Some(user) = self.config.get_user() {
            add("user", user);
        }
        if let Some(password) = self.config.get_password() {
            add("password", &String::from_utf8_lossy(password));
        }
        if let Some(timeout) = self.config.get_connect_timeout() {
            add("connect_timeout", &timeout.as_secs().max(1).to_string());
        }
        if let Some(options) = self.config.get_options() {
            add("options", options);
        }
        if let Some(database) = database.or(self.config.get_dbname()) {
            add("dbname", database);
        }
        parts.join(" ")
    }

    fn real_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn record(&self, real: &str) -> Result<(), PgError> {
        let token = match &self.ledger {
            Some(ledger) => {
                Some(ledger.record(Resource::Database { server: self.server.clone(), name: real.to_owned() })?)
            }
            None => None,
        };
        self.databases.lock().unwrap_or_else(PoisonError::into_inner).push((real.to_owned(), token));
        Ok(())
    }

    /// Drops what we made, and only that.
    async fn drop_databases(&self) -> Result<(), PgError> {
        let ours = || self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut next) = ours().last().cloned() else { return Ok(()) };
        let client = connect(&self.conninfo(None)).await?;
        loop {
            let (name, token) = next;
            drop_database(&client, &name).await?;
            if let (Some(ledger), Some(token)) = (&self.ledger, token) {
                ledger.release(token)?;
            }
            ours().retain(|(other, _)| *other != name);
            match ours().last().cloned() {
                Some(another) => next = another,
                None => return Ok(()),
            }
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let kept = self.ledger.as_ref().is_some_and(|ledger| ledger.is_kept());
        if kept || self.databases.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return;
        }
        // A drop may happen inside a runtime, where another one may not be entered: a thread of its own.
        let this = &*self;
        let dropped = std::thread::scope(|scope| scope.spawn(|| in_runtime(this.drop_databases())).join());
        if let Ok(Err(error)) = dropped {
            tracing::warn!(%error, "databases of this run stay behind; `vlab gc` with the same DATABASE_URL removes them");
        }
    }
}

/// Runs something asynchronous where there is no runtime, for at most 3 s.
fn in_runtime(work: impl Future<Output = Result<(), PgError>>) -> Result<(), PgError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| PgError::Url(format!("no runtime: {error}")))?;
    let limit = Duration::from_secs(3);
    runtime.block_on(async {
        let late = |_| PgError::Url(format!("no answer within {limit:?}"));
        tokio::time::timeout(limit, work).await.map_err(late)?
    })
}

async fn drop_database(client: &tokio_postgres::Client, name: &str) -> Result<(), PgError> {
    execute(client, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", identifier(name))).await
}

/// `host:port` of the first server of a connection string.
fn server_of(config: &tokio_postgres::Config) -> Result<String, PgError> {
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match config.get_hosts().first() {
        Some(Host::Tcp(name)) => Ok(format!("{name}:{port}")),
        Some(Host::Unix(path)) => Ok(format!("{}:{port}", path.display())),
        None => Err(PgError::Url("names no host".into())),
    }
}

/// Drops a database that a dead run left on the server of `DATABASE_URL`, for clean-up. Only names that we give are taken.
pub(crate) fn drop_left_behind(url: &str, server: &str, name: &str) -> Result<(), String> {
    let config: tokio_postgres::Config = url.parse().map_err(|error| format!("DATABASE_URL: {}", explain(&error)))?;
    let found = server_of(&config).map_err(|error| error.to_string())?;
    if found != server {
        return Err(format!("DATABASE_URL names {found} and not {server}"));
    }
    if !name.starts_with("vlab_") {
        return Err("is not a name that a run gives".into());
    }
    let work = async {
        let client = connect(url).await?;
        drop_database(&client, name).await
    };
    in_runtime(work).map_err(|error| error.to_string())
}
