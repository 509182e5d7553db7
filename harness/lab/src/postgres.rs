//! A private PostgreSQL from the system's own binaries (or a database of our own on the server of `DATABASE_URL`).

use std::path::PathBuf;
use std::time::Duration;

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
    /// Folder in which the private directory (data and socket) is made. `None`: the system's temporary folder.
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

/// What can go wrong with PostgreSQL.
#[derive(Debug, thiserror::Error)]
pub enum PgError {
    /// Nothing to start.
    #[error("no PostgreSQL server binaries found")]
    NotFound,
}

/// A PostgreSQL server that belongs to this run. All methods take `&self`: share it in an `Arc`.
#[derive(Debug)]
pub struct PgCluster {}

impl PgCluster {
    /// Starts a server; when this returns, a query has worked.
    ///
    /// # Errors
    /// No binaries, wrong version, path too long, port taken, not ready within the budget.
    pub async fn start(_options: PgOptions) -> Result<Self, PgError> {
        unimplemented!("being built")
    }

    /// Connection string (`host=… port=… user=… dbname=postgres`) for `tokio_postgres::connect`.
    #[must_use]
    pub fn conninfo(&self) -> String {
        unimplemented!("being built")
    }

    /// Makes an empty database and returns its connection string. On the server of `DATABASE_URL` the real name gets
    /// a prefix of this run, and `stop` drops it.
    ///
    /// # Errors
    /// The server's answer.
    pub async fn create_database(&self, _name: &str) -> Result<String, PgError> {
        unimplemented!("being built")
    }

    /// SIGKILL to the postmaster and all its children; returns when they are gone.
    ///
    /// # Errors
    /// When the server is not ours (`DATABASE_URL`).
    pub async fn kill9(&self) -> Result<(), PgError> {
        unimplemented!("being built")
    }

    /// Starts the server again (after `kill9`, or stops it first) on the same socket and port.
    ///
    /// # Errors
    /// As [`PgCluster::start`]; when the server is not ours.
    pub async fn restart(&self) -> Result<(), PgError> {
        unimplemented!("being built")
    }

    /// Stops the server (fast) and removes all that it had. A second call does nothing.
    ///
    /// # Errors
    /// What could not be removed.
    pub async fn stop(&self) -> Result<(), PgError> {
        unimplemented!("being built")
    }
}
