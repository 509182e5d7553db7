//! Watches the tables of a service: a trigger writes each change of what a history follows into a table of our own, and a
//! poll reads it. States that last less than a poll are therefore not missed, and the time of a change is the database's.
//!
//! **Nothing is lost.** Each row has the number of its transaction, and each poll the snapshot of the one before: it reads what
//! is committed now and was not then. A transaction that commits seconds after others with later numbers is read when it
//! commits, and nothing waits for it. The changes of one row of the service come in their order: whoever changes a row waits
//! for the transaction that changed it before, so that a snapshot which has a change has those before it, too; and within
//! one poll the numbers, which are taken while the row is locked, say the order.
//!
//! Polling a table is chosen over LISTEN/NOTIFY, which takes a lock over the whole database at every commit.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls, Statement};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_history::facts::{ClusterFacts, HostFacts, OperatorFacts, diff_cluster, diff_host, diff_operator};
use vlab_history::times::{odd_times_of_cluster, odd_times_of_host, odd_times_of_operator};
use vlab_model::history::What;

/// How often the table of changes is read. Well below the 50 ms within which a change must be known.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Who takes longer to answer is away: a few milliseconds are usual, some hundred where the computer is very busy.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// How long one attempt to read what is left at the end may take before it is made over another connection.
const ATTEMPT: Duration = Duration::from_secs(3);

/// A change as the database saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableChange {
    /// The database's clock.
    pub at: Timestamp,
    /// What changed.
    pub what: What,
    /// Who wrote it, where that is another one than before: the name that its connection has at the database, else the address
    /// from which it came.
    pub writer: Option<String>,
}

/// Why the tables cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The database's answer.
    #[error("watching the service's tables: {0}")]
    Database(#[from] tokio_postgres::Error),
    /// The tables are not those of an assisted-service.
    #[error(
        "the database has no table {table:?} with the columns {missing:?}: is it the service's database, and has the service started?"
    )]
    Schema {
        /// Table looked for.
        table: &'static str,
        /// Columns it should have.
        missing: Vec<&'static str>,
    },
}

struct Watched {
    table: &'static str,
    subject: &'static str,
    /// The column that says whose row it is.
    id: &'static str,
    required: &'static [&'static str],
    columns: &'static [&'static str],
}

/// The tables and columns that are followed: those that the real service's tables have, too.
const WATCHED: &[Watched] = &[
    Watched {
        table: "hosts",
        subject: "host",
        id: "id",
        required: &["id", "status"],
        columns: &[
            "status",
            "status_info",
            "cluster_id",
            "progress_current_stage",
            "progress_progress_info",
            "progress_installation_percentage",
            "role",
            "suggested_role",
            "bootstrap",
            "logs_info",
            "validations_info",
            // The real service keeps the rows of hosts that were deleted, with this time in them.
            "deleted_at",
            "status_updated_at",
            "progress_stage_started_at",
            "progress_stage_updated_at",
        ],
    },
    Watched {
        table: "clusters",
        subject: "cluster",
        id: "id",
        required: &["id", "status"],
        columns: &[
            "status",
            "status_info",
            "progress_total_percentage",
            "progress_finalizing_stage",
            "logs_info",
            "validations_info",
            "status_updated_at",
            "install_started_at",
            "install_completed_at",
            "progress_finalizing_stage_started_at",
        ],
    },
    Watched {
        table: "monitored_operators",
        subject: "operator",
        id: "cluster_id",
        required: &["cluster_id", "name", "status"],
        columns: &["name", "operator_type", "status", "status_updated_at"],
    },
];

/// Connects to the database; the connection's task ends with the client.
///
/// # Errors
/// When the server does not let us in.
pub async fn connect(conninfo: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(conninfo, NoTls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the history's database connection ended");
        }
    });
    Ok(client)
}

/// Puts the trigger beside the service's tables. Doing it twice does nothing.
///
/// # Errors
/// [`WatchError::Schema`] when the tables are not there, otherwise the database's answer.
pub async fn install(client: &Client) -> Result<(), WatchError> {
    client
        .batch_execute(
            // A logged table, although its content is not worth keeping: an unlogged one is emptied and its numbers begin
            // anew when the server is killed, which is one of the things a history must survive.
            "CREATE SCHEMA IF NOT EXISTS vlab_history;
             CREATE TABLE IF NOT EXISTS vlab_history.change (
                 seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                 xact bigint NOT NULL DEFAULT txid_current(),
                 at timestamptz NOT NULL DEFAULT clock_timestamp(),
                 subject text NOT NULL, id text NOT NULL, before text, after text);
             ALTER TABLE vlab_history.change ADD COLUMN IF NOT EXISTS writer text NOT NULL DEFAULT
                 coalesce(nullif(current_setting('application_name'), ''), inet_client_addr()::text, 'unnamed');
             CREATE INDEX IF NOT EXISTS change_xact ON vlab_history.change (xact)",
        )
        .await?;
    for watched in WATCHED {
        let found: Vec<String> = client
            .query(
                "SELECT column_name::text FROM information_schema.columns
                 WHERE table_name = $1 AND table_schema = ANY (current_schemas(false))",
                &[&watched.table],
            )
            .await?
            .iter()
            .map(|row| row.get(0))
            .collect();
        let missing: Vec<_> = watched.required.iter().copied().filter(|c| !found.iter().any(|f| f == c)).collect();
        if !missing.is_empty() {
            return Err(WatchError::Schema { table: watched.table, missing });
        }
        let columns: Vec<&str> = watched.columns.iter().copied().filter(|c| found.iter().any(|f| f == c)).collect();
        client.batch_execute(&trigger_sql(watched, &columns)).await?;
    }
    Ok(())
}

/// The trigger of one table. `WHEN` keeps the frequent writes that change nothing of interest (heartbeats) out of the
/// procedural language altogether.
fn trigger_sql(watched: &Watched, columns: &[&str]) -> String {
    let Watched { table, subject, id, .. } = watched;
    let object = |row: &str| {
        let members: Vec<String> = columns.iter().map(|c| format!("'{c}', {row}.{c}")).collect();
        format!("json_strip_nulls(json_build_object({}))::text", members.join(", "))
    };
    let changed: Vec<String> = columns.iter().map(|c| format!("OLD.{c} IS DISTINCT FROM NEW.{c}")).collect();
    let (old, new, changed) = (object("OLD"), object("NEW"), changed.join(" OR "));
    format!(
        "CREATE OR REPLACE FUNCTION vlab_history.note_{subject}() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF TG_OP = 'INSERT' THEN
                 INSERT INTO vlab_history.change (subject, id, before, after) VALUES ('{subject}', NEW.{id}::text, NULL, {new});
             ELSIF TG_OP = 'DELETE' THEN
                 INSERT INTO vlab_history.change (subject, id, before, after) VALUES ('{subject}', OLD.{id}::text, {old}, NULL);
             ELSE
                 INSERT INTO vlab_history.change (subject, id, before, after) VALUES ('{subject}', NEW.{id}::text, {old}, {new});
             END IF;
             RETURN NULL;
         END $$;
         DROP TRIGGER IF EXISTS vlab_history_rows ON {table};
         DROP TRIGGER IF EXISTS vlab_history_change ON {table};
         CREATE TRIGGER vlab_history_rows AFTER INSERT OR DELETE ON {table}
             FOR EACH ROW EXECUTE FUNCTION vlab_history.note_{subject}();
         CREATE TRIGGER vlab_history_change AFTER UPDATE ON {table}
             FOR EACH ROW WHEN ({changed}) EXECUTE FUNCTION vlab_history.note_{subject}();"
    )
}

/// What was committed since the snapshot `$1`, and the snapshot of now. The names of these functions are those that every
/// PostgreSQL knows; since 13 there are `pg_current_xact_id`, `pg_current_snapshot` and `pg_visible_in_snapshot` beside them.
const READ: &str = "
    SELECT now.snapshot::text, c.seq, (extract(epoch FROM c.at) * 1000000)::bigint, c.subject, c.id, c.before, c.after, c.writer
    FROM (SELECT txid_current_snapshot() AS snapshot) now
    LEFT JOIN vlab_history.change c
        ON c.xact >= txid_snapshot_xmin($1::text::txid_snapshot)
        AND NOT txid_visible_in_snapshot(c.xact, $1::text::txid_snapshot)
    ORDER BY c.seq";

/// Transactions that have noted changes and are not over: each holds such a lock on the table until then.
const WRITERS: &str = "
    SELECT count(DISTINCT pid) FROM pg_locks
    WHERE relation = 'vlab_history.change'::regclass AND mode = 'RowExclusiveLock' AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// How many of the triggers are there and fire.
const TRIGGERS: &str = "
    SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE t.tgname IN ('vlab_history_rows', 'vlab_history_change') AND t.tgenabled <> 'D'
        AND c.relname = ANY ($1) AND pg_table_is_visible(c.oid)";

/// Two for each table.
const ALL_TRIGGERS: i64 = 2 * WATCHED.len() as i64;

/// After so many polls it is looked whether the triggers are still there: about once a second.
const LOOK_EVERY: u32 = 100;

/// Reads changes, each once.
#[derive(Debug)]
pub struct Watcher {
    /// Which transactions were over when it was read last, as PostgreSQL writes it: what these have noted is read.
    seen: String,
    /// Who wrote last.
    writer: String,
}

impl Default for Watcher {
    fn default() -> Self {
        // No transaction at all.
        Self { seen: "1:1:".to_owned(), writer: String::new() }
    }
}

impl Watcher {
    /// Reads all that is new.
    ///
    /// # Errors
    /// The database's answer; the next call goes on where the last one that succeeded stopped.
    pub async fn poll(&mut self, client: &Client) -> Result<Vec<TableChange>, tokio_postgres::Error> {
        let statement = client.prepare(READ).await?;
        self.read(client, &statement).await
    }

    async fn read(
        &mut self,
        client: &Client,
        statement: &Statement,
    ) -> Result<Vec<TableChange>, tokio_postgres::Error> {
        let rows = client.query(statement, &[&self.seen]).await?;
        if let Some(row) = rows.first() {
            self.seen = row.get(0);
        }
        let mut changes = Vec::new();
        for row in rows {
            // The row that is always there says only which snapshot it is.
            if row.get::<_, Option<i64>>(1).is_none() {
                continue;
            }
            let at = Timestamp::from_micros(row.get(2));
            let (subject, id): (&str, &str) = (row.get(3), row.get(4));
            let (before, after): (Option<&str>, Option<&str>) = (row.get(5), row.get(6));
            let by: &str = row.get(7);
            for what in decode(subject, id, before, after) {
                let writer = (by != self.writer).then(|| by.to_owned());
                if let Some(by) = &writer {
                    self.writer.clone_from(by);
                }
                changes.push(TableChange { at, what, writer });
            }
        }
        Ok(changes)
    }
}

fn decode(subject: &str, id: &str, before: Option<&str>, after: Option<&str>) -> Vec<What> {
    let Ok(id) = Uuid::parse_str(id) else {
        let error = format!("{id:?} is not an id");
        return vec![What::Unreadable { subject: None, of: format!("the row of a {subject}"), error }];
    };
    let (before, after) = match subject {
        "host" => (before.filter(|row| !is_deleted(row)), after.filter(|row| !is_deleted(row))),
        _ => (before, after),
    };
    match (subject, after) {
        ("host", None) if before.is_none() => Vec::new(),
        ("host", Some(after)) => match facts::<HostFacts>(subject, id, after) {
            Ok(new) => {
                let old = before_of(before);
                let mut changes = diff_host(id, old.as_ref(), &new);
                changes.extend(odd_times_of_host(id, old.as_ref(), &new));
                changes
            }
            Err(unreadable) => vec![*unreadable],
        },
        ("host", None) => vec![What::HostDeleted { host: id }],
        ("cluster", Some(after)) => match facts::<ClusterFacts>(subject, id, after) {
            Ok(new) => {
                let old = before_of(before);
                let mut changes = diff_cluster(id, old.as_ref(), &new);
                changes.extend(odd_times_of_cluster(id, old.as_ref(), &new));
                changes
            }
            Err(unreadable) => vec![*unreadable],
        },
        // One that is not monitored any more is waited for no more: its cluster goes with it, or the user does not want it.
        ("operator", Some(after)) => match facts::<OperatorFacts>(subject, id, after) {
            Ok(new) => {
                let old = before_of(before);
                let mut changes = diff_operator(id, old.as_ref(), &new);
                changes.extend(odd_times_of_operator(id, old.as_ref(), &new));
                changes
            }
            Err(unreadable) => vec![*unreadable],
        },
        _ => Vec::new(),
    }
}

/// A row as it is now, or what the history has of one that cannot be understood.
fn facts<T: DeserializeOwned>(subject: &str, id: Uuid, row: &str) -> Result<T, Box<What>> {
    serde_json::from_str(row).map_err(|error| {
        let (of, error) = (format!("the row of a {subject}"), error.to_string());
        Box::new(What::Unreadable { subject: Some(id), of, error })
    })
}

/// A row as it was before. When it could not be understood then, that was told then.
fn before_of<T: DeserializeOwned>(row: Option<&str>) -> Option<T> {
    serde_json::from_str(row?).ok()
}

/// Is the row one that only says that something was there?
fn is_deleted(row: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(row).is_ok_and(|row| !row["deleted_at"].is_null())
}

/// What is told while it is watched.
#[derive(Debug)]
pub enum TableNews {
    /// Changes, and when they were read.
    Changes(Timestamp, Vec<TableChange>),
    /// The database was away and is back.
    Away {
        /// For how long.
        lasted: Duration,
        /// What it answered last.
        why: String,
    },
    /// The database refuses to be read, and not because it is going down or coming up: waiting will not help.
    Refused(String),
}

/// Watches until `over` says when it must be done at the latest, or is dropped: then at once. What was committed until then is
/// read, and so is what transactions commit that had changed something and were not over. Connects again when the database
/// goes away and comes back.
///
/// # Errors
/// The database could not be read to its end, and why: the last error.
pub async fn watch(
    conninfo: String,
    tell: mpsc::UnboundedSender<TableNews>,
    mut over: oneshot::Receiver<Instant>,
) -> Result<(), String> {
    let mut line = Line { conninfo, watcher: Watcher::default(), open: None, refused: false, away: None, polls: 0 };
    let mut interval = tokio::time::interval(POLL_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let deadline = loop {
        tokio::select! {
            biased;
            deadline = &mut over => break deadline,
            // Given up in the middle it has read nothing: it is read again.
            read = async { interval.tick().await; line.read().await } => match read {
                Ok(found) => {
                    line.refused = false;
                    line.is_there(&tell);
                    if !found.is_empty() && tell.send(TableNews::Changes(Timestamp::now(), found)).is_err() {
                        return Ok(());
                    }
                }
                Err(error) => {
                    line.has_failed(&error);
                    if error.is_refusal() && !std::mem::replace(&mut line.refused, true) {
                        let _ = tell.send(TableNews::Refused(error.explain()));
                    }
                }
            },
        }
    };
    line.drain(deadline.unwrap_or_else(|_| Instant::now()), &tell).await
}

/// A connection that is made again when it is lost.
struct Line {
    conninfo: String,
    watcher: Watcher,
    open: Option<(Client, Statement)>,
    /// It was told that the database refuses.
    refused: bool,
    /// Since when it is not there, and its last answer.
    away: Option<(Instant, String)>,
    /// So many have succeeded.
    polls: u32,
}

/// Why nothing was read.
enum Trouble {
    /// The database's answer.
    Database(tokio_postgres::Error),
    /// The triggers are gone: without them a history would only be shorter, and blame the service for what is missing.
    NothingNoted,
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl Trouble {
    /// Will waiting not help?
    fn is_refusal(&self) -> bool {
        match self {
            Self::Database(error) => is_refusal(error),
            Self::NothingNoted => true,
        }
    }

    /// Is there no database to ask?
    fn is_away(&self) -> bool {
        match self {
            Self::Database(error) => is_away(error),
            Self::NothingNoted => false,
        }
    }

    fn explain(&self) -> String {
        match self {
            Self::Database(error) => vlab_lab::postgres::explain(error),
            Self::NothingNoted => {
                "the triggers on the service's tables by which changes are noted are gone or switched off".to_owned()
            }
        }
    }
}

impl Line {
    /// What is noted of a database that is away until it is there again.
    fn has_failed(&mut self, trouble: &Trouble) {
        if trouble.is_away() {
            let since = self.away.take().map_or_else(Instant::now, |(since, _)| since);
            self.away = Some((since, trouble.explain()));
        }
    }

    fn is_there(&mut self, tell: &mpsc::UnboundedSender<TableNews>) {
        if let Some((since, why)) = self.away.take() {
            let _ = tell.send(TableNews::Away { lasted: since.elapsed(), why });
        }
    }

    async fn read(&mut self) -> Result<Vec<TableChange>, Trouble> {
        let began = Instant::now();
        let found = self.read_now().await;
        if found.is_ok() && began.elapsed() > ANSWERS_WITHIN {
            self.away.get_or_insert_with(|| (began, "it did not answer".to_owned()));
        }
        found
    }

    async fn read_now(&mut self) -> Result<Vec<TableChange>, Trouble> {
        let (client, statement) = self.open().await?;
        if self.polls.is_multiple_of(LOOK_EVERY) {
            look_at_triggers(&client).await?;
        }
        let found = self.watcher.read(&client, &statement).await?;
        self.polls = self.polls.wrapping_add(1);
        self.open = Some((client, statement));
        Ok(found)
    }

    async fn open(&mut self) -> Result<(Client, Statement), tokio_postgres::Error> {
        if let Some(open) = self.open.take().filter(|(client, _)| !client.is_closed()) {
            return Ok(open);
        }
        let client = connect(&self.conninfo).await?;
        let statement = client.prepare(READ).await?;
        Ok((client, statement))
    }

    /// Reads until nothing is left and nobody has still something to commit.
    async fn drain(&mut self, deadline: Instant, tell: &mpsc::UnboundedSender<TableNews>) -> Result<(), String> {
        loop {
            // At least once, however late it is.
            let until = (Instant::now() + ATTEMPT).min(deadline.max(Instant::now() + POLL_INTERVAL * 10));
            let problem = match tokio::time::timeout_at(until, self.drain_once(tell)).await {
                Ok(Ok(writers)) => {
                    self.is_there(tell);
                    if writers == 0 {
                        return Ok(());
                    }
                    format!("{writers} transactions have changed something and do not come to an end")
                }
                Ok(Err(trouble)) => {
                    self.has_failed(&trouble);
                    trouble.explain()
                }
                Err(_) => "the database does not answer".to_owned(),
            };
            if Instant::now() + POLL_INTERVAL >= deadline {
                return Err(problem);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Reads what is there; how many transactions may still bring more. They are counted before: who was over then is read.
    async fn drain_once(&mut self, tell: &mpsc::UnboundedSender<TableNews>) -> Result<i64, Trouble> {
        let (client, statement) = self.open().await?;
        look_at_triggers(&client).await?;
        let writers: i64 = client.query_one(WRITERS, &[]).await?.get(0);
        let found = self.watcher.read(&client, &statement).await?;
        self.open = Some((client, statement));
        if !found.is_empty() {
            let _ = tell.send(TableNews::Changes(Timestamp::now(), found));
        }
        Ok(writers)
    }
}

/// All triggers must be there.
async fn look_at_triggers(client: &Client) -> Result<(), Trouble> {
    let tables: Vec<&str> = WATCHED.iter().map(|watched| watched.table).collect();
    let there: i64 = client.query_one(TRIGGERS, &[&tables]).await?.get(0);
    if there == ALL_TRIGGERS { Ok(()) } else { Err(Trouble::NothingNoted) }
}

/// Is that the database's own word, and none of those that it has while it goes down or comes up, or while others are in the way?
fn is_refusal(error: &tokio_postgres::Error) -> bool {
    const PASSES: [&str; 6] = ["08", "25", "40", "53", "55", "57"];
    error.as_db_error().is_some_and(|error| !PASSES.contains(&error.code().code().get(..2).unwrap_or_default()))
}

/// Is nobody there, or one that goes down or comes up?
fn is_away(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_none_or(|error| ["08", "57"].contains(&error.code().code().get(..2).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use vlab_api::types::{ClusterStatus, HostStatus, OperatorStatus, OperatorType};

    use super::*;

    #[test]
    fn rows_become_changes() {
        let id = Uuid::from_u128(9).to_string();
        let found = decode("host", &id, None, Some(r#"{"status":"discovering","role":"master","bootstrap":true}"#));
        assert!(matches!(found[0], What::HostStatus { from: None, to: HostStatus::Discovering, .. }), "{found:?}");
        let found = decode("cluster", &id, Some(r#"{"status":"ready"}"#), Some(r#"{"status":"installing"}"#));
        assert!(
            matches!(
                found[..],
                [What::ClusterStatus { from: Some(ClusterStatus::Ready), to: ClusterStatus::Installing, .. }]
            ),
            "{found:?}"
        );
        assert!(matches!(decode("host", &id, Some("{}"), None)[..], [What::HostDeleted { .. }]));
        let (before, after) =
            (r#"{"name":"console","operator_type":"builtin"}"#, r#"{"name":"console","status":"available"}"#);
        let found = decode("operator", &id, None, Some(before));
        assert!(
            matches!(found[..], [What::Operator { status: None, kind: Some(OperatorType::Builtin), .. }]),
            "{found:?}"
        );
        let found = decode("operator", &id, Some(before), Some(after));
        assert!(matches!(found[..], [What::Operator { status: Some(OperatorStatus::Available), .. }]), "{found:?}");
    }

    #[test]
    fn a_row_that_is_marked_as_deleted_is_a_deleted_host() {
        let id = Uuid::from_u128(9).to_string();
        let (there, gone) = (r#"{"status":"known"}"#, r#"{"status":"known","deleted_at":"2026-01-01T00:00:00Z"}"#);
        assert!(matches!(decode("host", &id, Some(there), Some(gone))[..], [What::HostDeleted { .. }]));
        assert_eq!(decode("host", &id, Some(gone), Some(gone)), vec![]);
        assert_eq!(decode("host", &id, Some(gone), None), vec![]);
        let back = decode("host", &id, Some(gone), Some(there));
        assert!(matches!(back[0], What::HostStatus { from: None, to: HostStatus::Known, .. }), "{back:?}");
    }

    #[test]
    fn a_row_that_cannot_be_understood_is_told() {
        let id = Uuid::from_u128(9);
        let (odd, good) = (r#"{"status":"flying"}"#, r#"{"status":"known"}"#);
        for subject in ["host", "cluster"] {
            let found = decode(subject, &id.to_string(), Some(good), Some(odd));
            let [What::Unreadable { subject: Some(whose), of, error }] = &found[..] else { panic!("{found:?}") };
            assert_eq!((*whose, of.as_str()), (id, format!("the row of a {subject}").as_str()));
            assert!(error.contains("flying"), "{error}");
        }
        let found = decode("host", "no-id", None, Some(good));
        assert!(
            matches!(&found[..], [What::Unreadable { subject: None, error, .. }] if error.contains("no-id")),
            "{found:?}"
        );
        let found = decode("host", &id.to_string(), Some(odd), Some(good));
        assert!(matches!(found[0], What::HostStatus { to: HostStatus::Known, .. }), "it is known again: {found:?}");
    }
}
