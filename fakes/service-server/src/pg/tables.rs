//! Rows to columns and back, and the statements between: one per table and batch, over arrays.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, IsolationLevel, Row, Statement};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Event, MonitoredOperator, Severity};

use super::{batch_error, connection_error};
use crate::store::{Folded, RowStep, StoreError};
use vlab_service::{ClusterRow, EventRow, FileRow, HostRow, InfraEnvRow, Snapshot};

/// A table as the batches see it: its key and its other columns, with their types.
struct Table {
    name: &'static str,
    key: &'static [(&'static str, &'static str)],
    columns: &'static [(&'static str, &'static str)],
}

const CLUSTERS: Table = Table {
    name: "clusters",
    key: &[("id", "text")],
    columns: &[
        ("name", "text"),
        ("openshift_version", "text"),
        ("status", "text"),
        ("status_info", "text"),
        ("status_updated_at", "timestamptz"),
        ("validations_info", "text"),
        ("progress_total_percentage", "bigint"),
        ("progress_finalizing_stage", "text"),
        ("logs_info", "text"),
        ("install_started_at", "timestamptz"),
        ("install_completed_at", "timestamptz"),
        ("body", "text"),
    ],
};

const INFRA_ENVS: Table = Table {
    name: "infra_envs",
    key: &[("id", "text")],
    columns: &[("name", "text"), ("cluster_id", "text"), ("body", "text")],
};

const HOSTS: Table = Table {
    name: "hosts",
    key: &[("id", "text"), ("infra_env_id", "text")],
    columns: &[
        ("cluster_id", "text"),
        ("status", "text"),
        ("status_info", "text"),
        ("status_updated_at", "timestamptz"),
        ("validations_info", "text"),
        ("progress_current_stage", "text"),
        ("progress_progress_info", "text"),
        ("progress_installation_percentage", "bigint"),
        ("progress_stage_started_at", "timestamptz"),
        ("progress_stage_updated_at", "timestamptz"),
        ("role", "text"),
        ("suggested_role", "text"),
        ("bootstrap", "boolean"),
        ("logs_info", "text"),
        ("requested_hostname", "text"),
        ("checked_in_at", "timestamptz"),
        ("\"timestamp\"", "bigint"),
        ("body", "text"),
    ],
};

const OPERATORS: Table = Table {
    name: "monitored_operators",
    key: &[("cluster_id", "text"), ("name", "text")],
    columns: &[
        ("version", "text"),
        ("operator_type", "text"),
        ("status", "text"),
        ("status_info", "text"),
        ("status_updated_at", "timestamptz"),
    ],
};

const FILES: Table = Table { name: "files", key: &[("key", "text")], columns: &[("bytes", "bytea")] };

const EVENTS: Table = Table {
    name: "events",
    key: &[("id", "bigint")],
    columns: &[
        ("name", "text"),
        ("severity", "text"),
        ("category", "text"),
        ("cluster_id", "text"),
        ("host_id", "text"),
        ("infra_env_id", "text"),
        ("event_time", "timestamptz"),
        ("message", "text"),
        ("props", "text"),
        ("request_id", "text"),
    ],
};

impl Table {
    fn all(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        self.key.iter().chain(self.columns)
    }

    fn arrays(&self) -> String {
        self.all().enumerate().map(|(i, (_, kind))| format!("${}::{kind}[]", i + 1)).collect::<Vec<_>>().join(", ")
    }

    fn names(&self) -> String {
        self.all().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// Inserts rows; a key that exists is an error.
    fn insert(&self) -> String {
        format!("INSERT INTO {} ({}) SELECT * FROM unnest({})", self.name, self.names(), self.arrays())
    }

    /// Inserts rows or replaces those with the same key. Rows that would not change are not touched, so that triggers only see
    /// changes.
    fn upsert(&self) -> String {
        let list = |prefix: &str| {
            self.columns.iter().map(|(name, _)| format!("{prefix}{name}")).collect::<Vec<_>>().join(", ")
        };
        let sets: Vec<String> = self.columns.iter().map(|(name, _)| format!("{name} = EXCLUDED.{name}")).collect();
        format!(
            "{} ON CONFLICT ({}) DO UPDATE SET {} WHERE ({}) IS DISTINCT FROM ({})",
            self.insert(),
            self.key.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
            sets.join(", "),
            list(&format!("{}.", self.name)),
            list("EXCLUDED."),
        )
    }

    /// Deletes rows by key.
    fn delete(&self) -> String {
        let key: Vec<&str> = self.key.iter().map(|(name, _)| *name).collect();
        let arrays: Vec<String> =
            self.key.iter().enumerate().map(|(i, (_, kind))| format!("${}::{kind}[]", i + 1)).collect();
        format!("DELETE FROM {} WHERE ({}) IN (SELECT * FROM unnest({}))", self.name, key.join(", "), arrays.join(", "))
    }
}

const HEARTBEATS: &str = "\
UPDATE hosts SET checked_in_at = beat.checked_in_at, \"timestamp\" = COALESCE(beat.unix, hosts.\"timestamp\") \
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[]) AS beat (id, infra_env_id, checked_in_at, unix) \
WHERE hosts.id = beat.id AND hosts.infra_env_id = beat.infra_env_id";

/// Operators that a cluster of the batch does not have (any more).
const STALE_OPERATORS: &str = "\
DELETE FROM monitored_operators WHERE cluster_id = ANY ($1::text[]) \
AND (cluster_id, name) NOT IN (SELECT * FROM unnest($2::text[], $3::text[]))";

/// All statements, prepared.
#[derive(Debug)]
pub(super) struct Statements {
    put_clusters: Statement,
    delete_clusters: Statement,
    stale_operators: Statement,
    put_operators: Statement,
    put_infra_envs: Statement,
    delete_infra_envs: Statement,
    put_hosts: Statement,
    delete_hosts: Statement,
    heartbeats: Statement,
    events: Statement,
    put_files: Statement,
    delete_files: Statement,
}

impl Statements {
    pub(super) async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            put_clusters: client.prepare(&CLUSTERS.upsert()).await?,
            delete_clusters: client.prepare(&CLUSTERS.delete()).await?,
            stale_operators: client.prepare(STALE_OPERATORS).await?,
            put_operators: client.prepare(&OPERATORS.upsert()).await?,
            put_infra_envs: client.prepare(&INFRA_ENVS.upsert()).await?,
            delete_infra_envs: client.prepare(&INFRA_ENVS.delete()).await?,
            put_hosts: client.prepare(&HOSTS.upsert()).await?,
            delete_hosts: client.prepare(&HOSTS.delete()).await?,
            heartbeats: client.prepare(HEARTBEATS).await?,
            events: client.prepare(&EVENTS.insert()).await?,
            put_files: client.prepare(&FILES.upsert()).await?,
            delete_files: client.prepare(&FILES.delete()).await?,
        })
    }
}

type Column = Box<dyn ToSql + Sync + Send>;

/// One statement of a batch with its parameters.
struct StatementCall {
    statement: fn(&Statements) -> &Statement,
    columns: Vec<Column>,
}

impl StatementCall {
    async fn run(&self, client: &Client, statements: &Statements) -> Result<(), tokio_postgres::Error> {
        let refs: Vec<&(dyn ToSql + Sync)> = self.columns.iter().map(|c| &**c as &(dyn ToSql + Sync)).collect();
        client.execute((self.statement)(statements), &refs).await.map(|_| ())
    }
}

/// One batch as statements in order.
#[derive(Default)]
pub(super) struct Batch {
    calls: Vec<StatementCall>,
}

/// A column: one value of each row.
fn column<R, V>(rows: &[R], value: impl Fn(&R) -> V) -> Column
where
    V: Send + Sync + ToSql + 'static,
{
    Box::new(rows.iter().map(value).collect::<Vec<V>>()) as Column
}

/// Text as PostgreSQL takes it: the one character that it cannot store is replaced, because a host that sends it must not spoil
/// the batch of all others.
fn text(value: &str) -> String {
    if value.contains('\0') { value.replace('\0', "\u{fffd}") } else { value.to_owned() }
}

fn maybe(value: Option<&impl Deref<Target = str>>) -> Option<String> {
    value.map(|v| text(v))
}

fn id(value: Option<Uuid>) -> Option<String> {
    value.map(|v| v.to_string())
}

fn time(value: Option<Timestamp>) -> Option<SystemTime> {
    value.map(|t| {
        let micros = t.as_micros();
        let distance = Duration::from_micros(micros.unsigned_abs());
        if micros < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
    })
}

impl Batch {
    pub(super) fn new(batch: Folded) -> Result<Self, StoreError> {
        let mut out = Self::default();
        for step in &batch.steps {
            match step {
                RowStep::PutClusters(rows) => out.put_clusters(rows)?,
                RowStep::DeleteClusters(ids) => {
                    out.call(|s| &s.delete_clusters, vec![column(ids, Uuid::to_string)]);
                    let none = || -> Column { Box::new(Vec::<String>::new()) };
                    out.call(|s| &s.stale_operators, vec![column(ids, Uuid::to_string), none(), none()]);
                }
                RowStep::PutInfraEnvs(rows) => out.put_infra_envs(rows)?,
                RowStep::DeleteInfraEnvs(ids) => out.call(|s| &s.delete_infra_envs, vec![column(ids, Uuid::to_string)]),
                RowStep::PutHosts(rows) => out.put_hosts(rows)?,
                RowStep::DeleteHosts(keys) => out.call(
                    |s| &s.delete_hosts,
                    vec![column(keys, |(_, host)| host.to_string()), column(keys, |(env, _)| env.to_string())],
                ),
            }
        }
        let beats: Vec<_> = batch.heartbeats.iter().collect();
        if !beats.is_empty() {
            out.call(
                |s| &s.heartbeats,
                vec![
                    column(&beats, |((_, host), _)| host.to_string()),
                    column(&beats, |((env, _), _)| env.to_string()),
                    column(&beats, |(_, (at, _))| time(Some(*at))),
                    column(&beats, |(_, (_, unix))| *unix),
                ],
            );
        }
        if !batch.events.is_empty() {
            out.events(&batch.events);
        }
        let put: Vec<(&String, &Arc<[u8]>)> = batch.files.iter().filter_map(|(k, v)| Some((k, v.as_ref()?))).collect();
        if !put.is_empty() {
            let columns = vec![column(&put, |(key, _)| (*key).clone()), column(&put, |(_, bytes)| bytes.to_vec())];
            out.call(|s| &s.put_files, columns);
        }
        let deleted: Vec<&String> = batch.files.iter().filter(|(_, v)| v.is_none()).map(|(k, _)| k).collect();
        if !deleted.is_empty() {
            out.call(|s| &s.delete_files, vec![column(&deleted, |key| (*key).clone())]);
        }
        Ok(out)
    }

    fn call(&mut self, statement: fn(&Statements) -> &Statement, columns: Vec<Column>) {
        self.calls.push(StatementCall { statement, columns });
    }

    fn put_clusters(&mut self, put: &[Arc<ClusterRow>]) -> Result<(), StoreError> {
        let bodies = bodies("clusters", put, |r| r.view.cluster.id)?;
        self.call(
            |s| &s.put_clusters,
            vec![
                column(put, |r| r.view.cluster.id.to_string()),
                column(put, |r| maybe(r.view.cluster.name.as_ref())),
                column(put, |r| maybe(r.view.cluster.openshift_version.as_ref())),
                column(put, |r| r.view.cluster.status.as_str()),
                column(put, |r| text(&r.view.cluster.status_info)),
                column(put, |r| time(r.view.cluster.status_updated_at)),
                column(put, |r| maybe(r.view.cluster.validations_info.as_ref())),
                column(put, |r| r.view.cluster.progress.as_ref().and_then(|p| p.total_percentage)),
                column(put, |r| r.view.cluster.progress.as_ref().and_then(|p| p.finalizing_stage).map(|s| s.as_str())),
                column(put, |r| r.view.cluster.logs_info.map(|l| l.as_str())),
                column(put, |r| time(r.view.cluster.install_started_at)),
                column(put, |r| time(r.view.cluster.install_completed_at)),
                bodies,
            ],
        );

        let operators: Vec<(Uuid, &MonitoredOperator)> = put
            .iter()
            .flat_map(|r| r.view.cluster.monitored_operators.iter().flatten().map(|o| (r.view.cluster.id, o)))
            .filter(|(_, o)| o.name.is_some())
            .collect();
        let clusters = || column(&operators, |(cluster, _)| cluster.to_string());
        let names = || column(&operators, |(_, o)| maybe(o.name.as_ref()));
        self.call(|s| &s.stale_operators, vec![column(put, |r| r.view.cluster.id.to_string()), clusters(), names()]);
        if !operators.is_empty() {
            self.call(
                |s| &s.put_operators,
                vec![
                    clusters(),
                    names(),
                    column(&operators, |(_, o)| maybe(o.version.as_ref())),
                    column(&operators, |(_, o)| o.operator_type.map(|t| t.as_str())),
                    column(&operators, |(_, o)| o.status.map(|s| s.as_str())),
                    column(&operators, |(_, o)| maybe(o.status_info.as_ref())),
                    column(&operators, |(_, o)| time(o.status_updated_at)),
                ],
            );
        }
        Ok(())
    }

    fn put_infra_envs(&mut self, put: &[Arc<InfraEnvRow>]) -> Result<(), StoreError> {
        let bodies = bodies("infra_envs", put, |r| r.infra_env.id)?;
        self.call(
            |s| &s.put_infra_envs,
            vec![
                column(put, |r| r.infra_env.id.to_string()),
                column(put, |r| text(&r.infra_env.name)),
                column(put, |r| id(r.infra_env.cluster_id)),
                bodies,
            ],
        );
        Ok(())
    }

    fn put_hosts(&mut self, put: &[Arc<HostRow>]) -> Result<(), StoreError> {
        let bodies = bodies("hosts", put, |r| r.view.host.id)?;
        self.call(
            |s| &s.put_hosts,
            vec![
                column(put, |r| r.view.host.id.to_string()),
                column(put, |r| r.infra_env_id().to_string()),
                column(put, |r| id(r.view.host.cluster_id)),
                column(put, |r| r.view.host.status.as_str()),
                column(put, |r| text(&r.view.host.status_info)),
                column(put, |r| time(r.view.host.status_updated_at)),
                column(put, |r| maybe(r.view.host.validations_info.as_ref())),
                column(put, |r| r.view.host.progress.as_ref().and_then(|p| p.current_stage).map(|s| s.as_str())),
                column(put, |r| maybe(r.view.host.progress.as_ref().and_then(|p| p.progress_info.as_ref()))),
                column(put, |r| r.view.host.progress.as_ref().and_then(|p| p.installation_percentage)),
                column(put, |r| time(r.view.host.progress.as_ref().and_then(|p| p.stage_started_at))),
                column(put, |r| time(r.view.host.progress.as_ref().and_then(|p| p.stage_updated_at))),
                column(put, |r| r.view.host.role.map(|v| v.as_str())),
                column(put, |r| r.view.host.suggested_role.map(|v| v.as_str())),
                column(put, |r| r.view.host.bootstrap),
                column(put, |r| r.view.host.logs_info.map(|l| l.as_str())),
                column(put, |r| maybe(r.view.host.requested_hostname.as_ref())),
                column(put, |r| time(r.view.host.checked_in_at)),
                column(put, |r| r.view.host.timestamp),
                bodies,
            ],
        );
        Ok(())
    }

    fn events(&mut self, events: &[EventRow]) {
        self.call(
            |s| &s.events,
            vec![
                column(events, |e| i64::try_from(e.seq).unwrap_or(i64::MAX)),
                column(events, |e| maybe(e.event.name.as_ref())),
                column(events, |e| e.event.severity.as_str()),
                column(events, |e| maybe(e.event.category.as_ref())),
                column(events, |e| id(e.event.cluster_id)),
                column(events, |e| id(e.event.host_id)),
                column(events, |e| id(e.event.infra_env_id)),
                column(events, |e| time(Some(e.event.event_time))),
                column(events, |e| text(&e.event.message)),
                column(events, |e| maybe(e.event.props.as_ref())),
                column(events, |e| id(e.event.request_id)),
            ],
        );
    }

    /// Runs the batch in one transaction; all messages leave together.
    pub(super) async fn commit(&self, client: &Client, s: &Statements) -> Result<(), StoreError> {
        // A statement that fails makes the server refuse the rest and turns COMMIT into a rollback.
        let mut work: Vec<Sent<'_>> = vec![Box::pin(client.batch_execute("BEGIN"))];
        for call in &self.calls {
            work.push(Box::pin(call.run(client, s)));
        }
        work.push(Box::pin(client.batch_execute("COMMIT")));
        let results = together(work).await;
        let mut refused = None;
        for result in results {
            match result.map_err(|e| batch_error(&e)) {
                Ok(()) => {}
                Err(StoreError::Rejected(reason)) => {
                    // The first one is the cause; the others only say that the transaction is over.
                    refused.get_or_insert(reason);
                }
                Err(lost) => return Err(lost),
            }
        }
        match refused {
            Some(reason) => Err(StoreError::Rejected(reason)),
            None => Ok(()),
        }
    }
}

/// A statement on its way.
type Sent<'a> = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send + 'a>>;

/// Waits for all. Each is polled in turn from the first on, and a statement is on its way after its first poll: so they reach the
/// server in this order, without waiting for each other's answers.
async fn together(mut work: Vec<Sent<'_>>) -> Vec<Result<(), tokio_postgres::Error>> {
    let mut results: Vec<Option<Result<(), tokio_postgres::Error>>> = work.iter().map(|_| None).collect();
    poll_fn(move |cx| {
        for (one, result) in work.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(done) = one.as_mut().poll(cx)
            {
                *result = Some(done);
            }
        }
        if results.iter().all(Option::is_some) {
            Poll::Ready(results.drain(..).flatten().collect())
        } else {
            Poll::Pending
        }
    })
    .await
}

fn bodies<B: serde::Serialize>(
    table: &'static str,
    rows: &[Arc<B>],
    key: impl Fn(&B) -> Uuid,
) -> Result<Column, StoreError> {
    let bodies: Vec<String> = rows
        .iter()
        .map(|r| {
            serde_json::to_string(&**r).map_err(|e| StoreError::Rejected(format!("table {table}, row {}: {e}", key(r))))
        })
        .collect::<Result<_, _>>()?;
    Ok(Box::new(bodies))
}

/// Reads everything, as of one instant.
pub(super) async fn load(client: &mut Client) -> Result<Snapshot, StoreError> {
    let down = |e: tokio_postgres::Error| connection_error(&e);
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await
        .map_err(down)?;
    let clusters = transaction.query("SELECT id, body FROM clusters ORDER BY id", &[]).await.map_err(down)?;
    let infra_envs = transaction.query("SELECT id, body FROM infra_envs ORDER BY id", &[]).await.map_err(down)?;
    let hosts = transaction
        .query("SELECT id, body, checked_in_at, \"timestamp\" FROM hosts ORDER BY infra_env_id, id", &[])
        .await
        .map_err(down)?;
    let events =
        transaction.query(&format!("SELECT {} FROM events ORDER BY id", EVENTS.names()), &[]).await.map_err(down)?;
    let files = transaction.query("SELECT key, bytes FROM files ORDER BY key", &[]).await.map_err(down)?;
    transaction.commit().await.map_err(down)?;

    Ok(Snapshot {
        clusters: clusters.iter().map(|r| body::<ClusterRow>("clusters", r)).collect::<Result<_, _>>()?,
        infra_envs: infra_envs.iter().map(|r| body::<InfraEnvRow>("infra_envs", r)).collect::<Result<_, _>>()?,
        hosts: hosts
            .iter()
            .map(|r| {
                let mut row: HostRow = body("hosts", r)?;
                row.view.host.checked_in_at = r.get::<_, Option<SystemTime>>(2).map(Timestamp::from);
                row.view.host.timestamp = r.get(3);
                Ok(row)
            })
            .collect::<Result<_, _>>()?,
        events: events.iter().map(event).collect::<Result<_, _>>()?,
        files: files.iter().map(|r| FileRow { key: r.get(0), bytes: Arc::from(r.get::<_, &[u8]>(1)) }).collect(),
    })
}

fn body<T: DeserializeOwned>(table: &'static str, row: &Row) -> Result<T, StoreError> {
    serde_json::from_str(row.get::<_, &str>(1)).map_err(|e| StoreError::Corrupt {
        table,
        key: row.get(0),
        reason: e.to_string(),
    })
}

fn event(row: &Row) -> Result<EventRow, StoreError> {
    let id: i64 = row.get(0);
    let corrupt = |reason: String| StoreError::Corrupt { table: "events", key: id.to_string(), reason };
    let uuid = |column: usize| -> Result<Option<Uuid>, StoreError> {
        row.get::<_, Option<&str>>(column)
            .map(|t| t.parse().map_err(|e: uuid::Error| corrupt(e.to_string())))
            .transpose()
    };
    let severity: Option<&str> = row.get(2);
    Ok(EventRow {
        seq: u64::try_from(id).map_err(|_| corrupt("its id is negative".into()))?,
        event: Event {
            name: row.get(1),
            severity: severity.unwrap_or_default().parse::<Severity>().map_err(|e| corrupt(e.to_string()))?,
            category: row.get(3),
            cluster_id: uuid(4)?,
            host_id: uuid(5)?,
            infra_env_id: uuid(6)?,
            event_time: row.get::<_, Option<SystemTime>>(7).map(Timestamp::from).unwrap_or_default(),
            message: row.get::<_, Option<String>>(8).unwrap_or_default(),
            props: row.get(9),
            request_id: uuid(10)?,
        },
    })
}
