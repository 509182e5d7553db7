//! PostgreSQL's own figures of a service's database, on the same axis as those of the load: what its statistics views say each second.
//!
//! Only statistics are read, over one connection. What the server does not tell (an older version, no rights, no extension
//! `pg_stat_statements`) is left out and told.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// A server that has not answered after so long says nothing of that time.
const PATIENCE: Duration = Duration::from_secs(3);
/// So many statements are told at the end, those that took longest.
const STATEMENTS: usize = 12;
/// No statement is told with more letters.
const LONGEST_STATEMENT: usize = 200;

/// Figures at a moment (`pg_stat_activity`, `pg_stat_database`), of the database of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseSecond {
    /// Connections to it, that of the generator not counted.
    pub connections: u64,
    /// Of them those that carry something out.
    pub active: u64,
    /// Of them those that wait for a lock.
    pub waiting: u64,
    /// Transactions that have ended since the look before.
    pub transactions: u64,
    /// Rows that were inserted, changed or deleted since then.
    pub written: u64,
    /// Blocks that were read from the disk, or from the computer's cache of it, since then.
    pub blocks_read: u64,
    /// Deadlocks since then.
    pub deadlocks: u64,
}

impl DatabaseSecond {
    /// Of several generators that look at the same server each saw the same.
    pub(crate) fn add(&mut self, other: &Self) {
        self.connections = self.connections.max(other.connections);
        self.active = self.active.max(other.active);
        self.waiting = self.waiting.max(other.waiting);
        self.transactions = self.transactions.max(other.transactions);
        self.written = self.written.max(other.written);
        self.blocks_read = self.blocks_read.max(other.blocks_read);
        self.deadlocks = self.deadlocks.max(other.deadlocks);
    }
}

/// What the server spent on one kind of statement (`pg_stat_statements`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// Its text, without the values.
    pub text: String,
    /// How often.
    pub calls: u64,
    /// Time in milliseconds, all calls together.
    pub took_ms: f64,
    /// Rows that it found or changed.
    pub rows: u64,
}

/// Why the database tells nothing.
#[derive(Debug, thiserror::Error)]
#[error("the database of the service cannot be asked for its figures: {0}")]
pub struct DatabaseError(String);

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        // What the server or the system said is inside of it.
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        Self(format!("{error}{cause}"))
    }
}

/// Counters that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    transactions: i64,
    written: i64,
    blocks_read: i64,
    deadlocks: i64,
}

const LOOK: &str = "SELECT a.connections, a.active, a.waiting, d.xact_commit + d.xact_rollback, \
     d.tup_inserted + d.tup_updated + d.tup_deleted, d.blks_read, d.deadlocks \
     FROM pg_stat_database d, (SELECT count(*) AS connections, count(*) FILTER (WHERE state = 'active') AS active, \
     count(*) FILTER (WHERE wait_event_type = 'Lock') AS waiting FROM pg_stat_activity \
     WHERE datname = current_database() AND pid <> pg_backend_pid()) a WHERE d.datname = current_database()";

const TOP: &str = "SELECT s.queryid, s.query, s.calls, s.total_exec_time, s.rows FROM pg_stat_statements s \
     JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database() AND s.queryid IS NOT NULL";

/// Looks at the database until it is dropped.
pub(crate) struct Watched {
    client: Client,
    connection: JoinHandle<()>,
    before: BTreeMap<i64, Statement>,
    /// Why there are no statements; empty: there are.
    without_statements: String,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Watched {
    /// Connects, and makes sure that the server tells what is needed.
    pub(crate) async fn begin(url: &str) -> Result<Self, DatabaseError> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // What becomes of it is seen by whoever asks.
        let connection = tokio::spawn(async move { drop(connection.await) });
        let mut watched = Self { client, connection, before: BTreeMap::new(), without_statements: String::new() };
        watched.look().await?;
        match watched.statements().await {
            Ok(before) => watched.before = before,
            Err(error) => watched.without_statements = error.to_string(),
        }
        Ok(watched)
    }

    async fn look(&self) -> Result<(DatabaseSecond, Totals), DatabaseError> {
        let row = self.client.query_one(LOOK, &[]).await?;
        let count = |n: usize| row.try_get::<_, i64>(n).map(|n| n.unsigned_abs());
        let now = DatabaseSecond {
            connections: count(0)?,
            active: count(1)?,
            waiting: count(2)?,
            ..DatabaseSecond::default()
        };
        let total = |n: usize| row.try_get::<_, i64>(n);
        Ok((now, Totals { transactions: total(3)?, written: total(4)?, blocks_read: total(5)?, deadlocks: total(6)? }))
    }

    async fn statements(&self) -> Result<BTreeMap<i64, Statement>, DatabaseError> {
        let mut all: BTreeMap<i64, Statement> = BTreeMap::new();
        for row in self.client.query(TOP, &[]).await? {
            let (calls, rows): (i64, i64) = (row.try_get(2)?, row.try_get(4)?);
            let text: String = row.try_get(1)?;
            let words: Vec<&str> = text.split_whitespace().collect();
            let own = Statement {
                text: words.join(" ").chars().take(LONGEST_STATEMENT).collect(),
                calls: calls.unsigned_abs(),
                took_ms: row.try_get(3)?,
                rows: rows.unsigned_abs(),
            };
            // The same statement of several users is one.
            match all.get_mut(&row.try_get(0)?) {
                Some(known) => known.add(&own),
                None => drop(all.insert(row.try_get(0)?, own)),
            }
        }
        Ok(all)
    }

    /// Tells each second what the server says, until the task is dropped; nothing when it says nothing.
    pub(crate) async fn go_on(&self, tell: watch::Sender<Option<DatabaseSecond>>) {
        let mut before = None;
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            // What it said before is no figure of now.
            let Ok(Ok((now, totals))) = tokio::time::timeout(PATIENCE, self.look()).await else {
                before = None;
                tell.send_replace(None);
                continue;
            };
            tell.send_replace(Some(since(now, totals, before)));
            before = Some(totals);
        }
    }

    /// The statements that took longest since the beginning; or why they are not known.
    pub(crate) async fn end(&self) -> Result<Vec<Statement>, String> {
        if !self.without_statements.is_empty() {
            return Err(self.without_statements.clone());
        }
        let after = self.statements().await.map_err(|error| error.to_string())?;
        Ok(longest(&self.before, after))
    }
}

impl Statement {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.rows += other.rows;
        self.took_ms += other.took_ms;
    }

    fn subtract(&mut self, other: &Self) {
        self.calls = self.calls.saturating_sub(other.calls);
        self.rows = self.rows.saturating_sub(other.rows);
        self.took_ms -= other.took_ms;
    }
}

/// The figures with what has come since the look before. A server that was started again counts from zero.
fn since(now: DatabaseSecond, totals: Totals, before: Option<Totals>) -> DatabaseSecond {
    let grown = |of: fn(&Totals) -> i64| before.map_or(0, |before| (of(&totals) - of(&before)).max(0)).unsigned_abs();
    DatabaseSecond {
        transactions: grown(|t| t.transactions),
        written: grown(|t| t.written),
        blocks_read: grown(|t| t.blocks_read),
        deadlocks: grown(|t| t.deadlocks),
        ..now
    }
}

/// What took longest between the two.
fn longest(before: &BTreeMap<i64, Statement>, after: BTreeMap<i64, Statement>) -> Vec<Statement> {
    let mut all: Vec<Statement> = after
        .into_iter()
        .map(|(id, mut statement)| {
            // Counted anew since: all of it is of this time.
            if let Some(known) = before.get(&id).filter(|known| known.calls <= statement.calls) {
                statement.subtract(known);
            }
            statement
        })
        .filter(|statement| statement.calls > 0)
        .collect();
    all.sort_by(|a, b| b.took_ms.total_cmp(&a.took_ms));
    all.truncate(STATEMENTS);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(text: &str, calls: u64, took_ms: f64) -> Statement {
        Statement { text: text.to_owned(), calls, took_ms, rows: calls }
    }

    #[test]
    fn what_took_longest_since_then_comes_first() {
        let before =
            BTreeMap::from([(1, statement("a", 10, 100.0)), (2, statement("b", 5, 5.0)), (3, statement("c", 9, 1.0))]);
        let after = BTreeMap::from([
            (1, statement("a", 12, 101.0)),
            (2, statement("b", 25, 45.0)),
            (3, statement("c", 9, 1.0)),
            // The counters were put back in between.
            (4, statement("d", 3, 3.0)),
        ]);
        let told: Vec<_> = longest(&before, after).into_iter().map(|s| (s.text, s.calls, s.took_ms)).collect();
        let wanted = [("b", 20, 40.0), ("d", 3, 3.0), ("a", 2, 1.0)];
        assert_eq!(told, wanted.map(|(text, calls, took)| (text.to_owned(), calls, took)));
    }

    #[test]
    fn a_server_that_was_started_again_counts_from_zero() {
        let totals = |n| Totals { transactions: n, written: n, blocks_read: n, deadlocks: 0 };
        let now = DatabaseSecond { connections: 3, ..DatabaseSecond::default() };
        assert_eq!(since(now, totals(50), None).transactions, 0, "nothing is known of before");
        assert_eq!(since(now, totals(50), Some(totals(20))).written, 30);
        assert_eq!(since(now, totals(5), Some(totals(20))).transactions, 0);
    }
}
