//! Watches the tables of a service: a trigger writes each change of what a history follows into a table of our own, and a
//! poll by sequence number reads it. States that last less than a poll are therefore not missed, and the time of a change
//! is the database's.
//!
//! Polling a table is chosen over LISTEN/NOTIFY, which takes a lock over the whole database at every commit.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_history::facts::{ClusterFacts, HostFacts, diff_cluster, diff_host};
use vlab_model::history::What;

/// How often the table of changes is read. Well below the 50 ms within which a change must be known.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long a gap in the sequence is waited for: a transaction that took a number and has not committed yet, or that was
/// rolled back and never will.
const GAP_PATIENCE: Duration = Duration::from_secs(2);

/// Rows read at once.
const BATCH: i64 = 5_000;

/// A change as the database saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The database's clock.
    pub at: Timestamp,
    /// What changed.
    pub what: What,
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
    required: &'static [&'static str],
    columns: &'static [&'static str],
}

/// The tables and columns that are followed: those that the real service's tables have, too.
const WATCHED: &[Watched] = &[
    Watched {
        table: "hosts",
        subject: "host",
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
        ],
    },
    Watched {
        table: "clusters",
        subject: "cluster",
        required: &["id", "status"],
        columns: &[
            "status",
            "status_info",
            "progress_total_percentage",
            "progress_finalizing_stage",
            "logs_info",
            "validations_info",
        ],
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
                 at timestamptz NOT NULL DEFAULT clock_timestamp(),
                 subject text NOT NULL, id text NOT NULL, before text, after text)",
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
    let Watched { table, subject, .. } = watched;
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
                 INSERT INTO vlab_history.change (subject, id, before, after) VALUES ('{subject}', NEW.id::text, NULL, {new});
             ELSIF TG_OP = 'DELETE' THEN
                 INSERT INTO vlab_history.change (subject, id, before, after) VALUES ('{subject}', OLD.id::text, {old}, NULL);
             ELSE
                 INSERT INTO vlab_history.change (subject, id, before, after) VALUES ('{subject}', NEW.id::text, {old}, {new});
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

/// Reads changes in the order of their numbers.
#[derive(Debug, Default)]
pub struct Watcher {
    /// All numbers up to this one are read or given up.
    low: i64,
    /// Numbers above `low` that are read already.
    done: BTreeMap<i64, ()>,
    /// Since when the number after `low` is missing.
    gap_since: Option<std::time::Instant>,
}

impl Watcher {
    /// Reads what is new.
    ///
    /// # Errors
    /// The database's answer; the next call goes on where this one stopped.
    pub async fn poll(&mut self, client: &Client) -> Result<Vec<Change>, tokio_postgres::Error> {
        let rows = client
            .query(
                "SELECT seq, (extract(epoch FROM at) * 1000000)::bigint, subject, id, before, after
                 FROM vlab_history.change WHERE seq > $1 ORDER BY seq LIMIT $2",
                &[&self.low, &BATCH],
            )
            .await?;
        let mut changes = Vec::new();
        for row in rows {
            let seq: i64 = row.get(0);
            if self.done.contains_key(&seq) {
                continue;
            }
            self.done.insert(seq, ());
            let at = Timestamp::from_micros(row.get(1));
            let (subject, id): (&str, &str) = (row.get(2), row.get(3));
            let (before, after): (Option<&str>, Option<&str>) = (row.get(4), row.get(5));
            changes.extend(decode(subject, id, before, after).into_iter().map(|what| Change { at, what }));
        }
        self.advance();
        Ok(changes)
    }

    /// Moves `low` over what is read, and over a gap that nobody fills.
    fn advance(&mut self) {
        loop {
            while self.done.remove(&(self.low + 1)).is_some() {
                self.low += 1;
                self.gap_since = None;
            }
            let Some(next) = self.done.keys().next().copied() else {
                self.gap_since = None;
                return;
            };
            let since = *self.gap_since.get_or_insert_with(std::time::Instant::now);
            if since.elapsed() < GAP_PATIENCE {
                return;
            }
            self.low = next - 1;
            self.gap_since = None;
        }
    }
}

fn decode(subject: &str, id: &str, before: Option<&str>, after: Option<&str>) -> Vec<What> {
    fn facts<T: DeserializeOwned>(text: Option<&str>) -> Option<T> {
        let text = text?;
        match serde_json::from_str(text) {
            Ok(facts) => Some(facts),
            Err(error) => {
                tracing::warn!(%error, text, "a row of the service cannot be understood");
                None
            }
        }
    }
    let Ok(id) = Uuid::parse_str(id) else { return Vec::new() };
    let (before, after) = match subject {
        "host" => (before.filter(|row| !is_deleted(row)), after.filter(|row| !is_deleted(row))),
        _ => (before, after),
    };
    match (subject, after) {
        ("host", None) if before.is_none() => Vec::new(),
        ("host", Some(_)) => facts::<HostFacts>(after)
            .map(|new| diff_host(id, facts::<HostFacts>(before).as_ref(), &new))
            .unwrap_or_default(),
        ("host", None) => vec![What::HostDeleted { host: id }],
        ("cluster", Some(_)) => facts::<ClusterFacts>(after)
            .map(|new| diff_cluster(id, facts::<ClusterFacts>(before).as_ref(), &new))
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Is the row one that only says that something was there?
fn is_deleted(row: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(row).is_ok_and(|row| !row["deleted_at"].is_null())
}

/// Watches until `over` is told or dropped, and then reads once more: what was committed before that is not missed. Connects
/// again when the database goes away and comes back. Every batch is sent with the time at which it was read.
pub async fn watch(
    conninfo: String,
    changes: mpsc::UnboundedSender<(Timestamp, Vec<Change>)>,
    mut over: oneshot::Receiver<()>,
) {
    let mut watcher = Watcher::default();
    let mut client: Option<Client> = None;
    let mut interval = tokio::time::interval(POLL_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = false;
    while !last {
        last = tokio::select! {
            _ = &mut over => true,
            _ = interval.tick() => false,
        };
        let connected = match client.take() {
            Some(c) if !c.is_closed() => c,
            _ => match connect(&conninfo).await {
                Ok(c) => c,
                // The server is down (a fault, or the end of the run): the next tick tries again.
                Err(_) => continue,
            },
        };
        if let Ok(found) = watcher.poll(&connected).await {
            client = Some(connected);
            if !found.is_empty() && changes.send((Timestamp::now(), found)).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vlab_api::types::{ClusterStatus, HostStatus};

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
        assert_eq!(decode("host", "no-id", None, Some("{}")), vec![]);
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
    fn a_number_that_comes_late_is_waited_for() {
        let mut watcher = Watcher::default();
        watcher.done.extend([(1, ()), (3, ())]);
        watcher.advance();
        assert_eq!(watcher.low, 1, "2 may still be committed");
        watcher.done.insert(2, ());
        watcher.advance();
        assert_eq!((watcher.low, watcher.done.len()), (3, 0));
    }

    #[test]
    fn a_number_that_never_comes_is_given_up() {
        let mut watcher = Watcher::default();
        watcher.done.insert(2, ());
        watcher.gap_since = std::time::Instant::now().checked_sub(GAP_PATIENCE);
        watcher.advance();
        assert_eq!(watcher.low, 2);
    }
}
