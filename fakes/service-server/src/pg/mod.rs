//! The store in PostgreSQL.
//!
//! One connection does everything: the service is one actor, its batches follow each other, and a transaction per batch is what makes
//! thousands of polls a second cheap. The statements of a batch are sent without waiting for each other.
//!
//! The connection holds an advisory lock for as long as it lives. It keeps a second service out, and it also makes
//! [`Store::load`] after a lost connection safe: the new connection gets the lock only when the old one's backend is gone, and with
//! it any commit that was still under way.

mod migrations;
mod tables;

use std::str::FromStr;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tokio_postgres::error::Severity;
use tokio_postgres::{Client, Config, NoTls};

use crate::store::{PoolState, Store, StoreError, fold};
use tables::Statements;
use vlab_service::{Snapshot, Write};

pub use migrations::{MIGRATIONS, Migration, migrate};

/// First number of all our advisory locks: "vlab" in ASCII.
const LOCK_CLASS: i32 = 0x766c_6162;
/// Second number of the lock that the one service of a database holds.
const LOCK_SERVICE: i32 = 1;
/// Where a query finds who holds the lock of which these are the numbers.
const HOLDERS: &str = "FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid::bigint = $1 AND objid::bigint = $2 \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// How to reach the database.
#[derive(Clone, Debug)]
pub struct PgOptions {
    /// `host=… port=… user=… dbname=…` or `postgres://…`, as `tokio_postgres` reads it.
    pub conninfo: String,
    /// What PostgreSQL is told that it is; `None`: what the connection string says, or the usual name.
    pub name: Option<String>,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a batch or a query may take before the connection is given up.
    pub statement_timeout: Duration,
    /// How long to wait for another service on the same database to go away before it is an error. A service that was
    /// killed needs a moment until PostgreSQL has noticed.
    pub lock_wait: Duration,
}

impl PgOptions {
    /// The defaults for a database.
    pub fn new(conninfo: impl Into<String>) -> Self {
        Self {
            conninfo: conninfo.into(),
            name: None,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            lock_wait: Duration::from_secs(3),
        }
    }
}

/// Rows in PostgreSQL.
#[derive(Debug)]
pub struct PgStore {
    options: PgOptions,
    config: Config,
    session: Option<Session>,
    made: u64,
}

#[derive(Debug)]
struct Session {
    client: Client,
    statements: Statements,
}

impl PgStore {
    /// Connects, takes the database for itself and migrates it. The first error is the caller's: a wrong address should end
    /// the program at its start, not be retried for ever.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`], [`StoreError::InUse`], [`StoreError::Schema`].
    pub async fn connect(options: PgOptions) -> Result<Self, StoreError> {
        let mut config = Config::from_str(&options.conninfo).map_err(|e| {
            let cause = std::error::Error::source(&e).map(ToString::to_string).unwrap_or_default();
            StoreError::Unavailable(format!("the connection string is not understood: {e} {cause}"))
        })?;
        config.connect_timeout(options.connect_timeout);
        match &options.name {
            Some(name) => drop(config.application_name(name)),
            None if config.get_application_name().is_none() => drop(config.application_name("vlab-service")),
            None => {}
        }
        let mut store = Self { options, config, session: None, made: 0 };
        store.session().await?;
        Ok(store)
    }

    /// The open session, or a new one.
    async fn session(&mut self) -> Result<&mut Session, StoreError> {
        if self.session.as_ref().is_none_or(|s| s.client.is_closed()) {
            self.session = None;
            self.session = Some(self.open().await?);
            self.made += 1;
        }
        self.session.as_mut().ok_or_else(|| StoreError::Unavailable("not connected".into()))
    }

    async fn open(&self) -> Result<Session, StoreError> {
        let connecting = self.config.connect(NoTls);
        let (mut client, connection) = match timeout(self.options.connect_timeout, connecting).await {
            Ok(Ok(both)) => both,
            Ok(Err(e)) => return Err(connection_error(&e)),
            Err(_) => {
                return Err(StoreError::Unavailable(format!("no answer within {:?}", self.options.connect_timeout)));
            }
        };
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = %describe(&error), "the connection to the database ended");
            }
        });
        let setup = async {
            client
                .batch_execute(
                    // What was acknowledged must survive; a server that was configured otherwise does not change that.
                    "SET synchronous_commit = on; SET client_min_messages = warning; SET default_transaction_isolation = 'read committed'",
                )
                .await
                .map_err(|e| connection_error(&e))?;
            self.lock(&client).await?;
            let applied = migrate(&mut client, MIGRATIONS).await?;
            if applied > 0 {
                tracing::info!(applied, "the database's schema was brought up to date");
            }
            Statements::prepare(&client).await.map_err(|e| connection_error(&e))
        };
        // Waiting for the lock has its own budget.
        let budget = self.options.statement_timeout + self.options.lock_wait;
        let statements = timeout(budget, setup)
            .await
            .map_err(|_| StoreError::Unavailable(format!("the database did not get ready within {budget:?}")))??;
        Ok(Session { client, statements })
    }

    /// Ends the connection of the service that has this database for itself, which then writes no more.
    pub(crate) async fn end_holder(client: &Client) -> Result<(), tokio_postgres::Error> {
        let end = format!("SELECT pg_terminate_backend(pid) {HOLDERS}");
        client.execute(&end, &[&i64::from(LOCK_CLASS), &i64::from(LOCK_SERVICE)]).await.map(drop)
    }

    async fn lock(&self, client: &Client) -> Result<(), StoreError> {
        let down = |e: tokio_postgres::Error| connection_error(&e);
        let until = Instant::now() + self.options.lock_wait;
        loop {
            let taken: bool = client
                .query_one("SELECT pg_try_advisory_lock($1, $2)", &[&LOCK_CLASS, &LOCK_SERVICE])
                .await
                .map_err(down)?
                .get(0);
            if taken {
                return Ok(());
            }
            if Instant::now() >= until {
                let who = format!("SELECT current_database()::text, (SELECT string_agg(pid::text, ', ') {HOLDERS})");
                let row =
                    client.query_one(&who, &[&i64::from(LOCK_CLASS), &i64::from(LOCK_SERVICE)]).await.map_err(down)?;
                return Err(StoreError::InUse {
                    database: row.get(0),
                    holder: row.get::<_, Option<String>>(1).unwrap_or_else(|| "unknown".into()),
                });
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Runs one piece of work on the session, within the statement timeout. A session that did not answer is closed.
    async fn within<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let budget = self.options.statement_timeout;
        let session = self.session().await?;
        let result = match timeout(budget, work(session)).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::Unknown(format!("no answer within {budget:?}"))),
        };
        if matches!(result, Err(StoreError::Unknown(_) | StoreError::Unavailable(_))) {
            self.session = None;
        }
        result
    }
}

impl Store for PgStore {
    async fn load(&mut self) -> Result<Snapshot, StoreError> {
        self.within(async |session| tables::load(&mut session.client).await).await
    }

    async fn commit(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        if self.session.as_ref().is_none_or(|s| s.client.is_closed()) {
            // Not opened again here: whoever lost the connection must load first, the last batch may be in or not.
            self.session = None;
            return Err(StoreError::Unavailable("the connection is closed".into()));
        }
        let batch = tables::Batch::new(fold(writes))?;
        self.within(async |session| batch.commit(&session.client, &session.statements).await).await
    }

    async fn health(&mut self) -> Result<(), StoreError> {
        let Some(session) = self.session.as_ref().filter(|s| !s.client.is_closed()) else {
            return Err(StoreError::Unavailable("not connected".into()));
        };
        match timeout(Duration::from_secs(2), session.client.simple_query("SELECT 1")).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(connection_error(&e)),
            Err(_) => Err(StoreError::Unavailable("no answer within 2s".into())),
        }
    }

    fn pool(&self) -> PoolState {
        let open = self.session.as_ref().is_some_and(|s| !s.client.is_closed());
        PoolState { open: u64::from(open), made: self.made }
    }
}

/// An error outside of a batch: nothing was at stake.
fn connection_error(error: &tokio_postgres::Error) -> StoreError {
    StoreError::Unavailable(describe(error))
}

/// An error of a batch's statement: did the server refuse it, or is its fate unknown?
fn batch_error(error: &tokio_postgres::Error) -> StoreError {
    match error.as_db_error() {
        Some(db) if matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic)) => {
            StoreError::Unknown(describe(error))
        }
        Some(_) => StoreError::Rejected(describe(error)),
        None if error.is_closed() => StoreError::Unknown(describe(error)),
        // Values that cannot be encoded never leave the process; everything else is the connection.
        None => match std::error::Error::source(error) {
            Some(source) if source.is::<std::io::Error>() => StoreError::Unknown(describe(error)),
            Some(_) if error.to_string().contains("serializing") => StoreError::Rejected(describe(error)),
            _ => StoreError::Unknown(describe(error)),
        },
    }
}

/// The error with its cause, which the library's own text leaves out.
fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let detail = db.detail().map(|d| format!(" ({d})")).unwrap_or_default();
        return format!("{}: {}{detail}", db.code().code(), db.message());
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
