//! The stores: one suite for both, and what is PostgreSQL's alone.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{
    Event, HostProgressInfo, HostRole, HostStage, HostStatus, MonitoredOperator, OperatorStatus, OperatorType, Severity,
};
use vlab_lab::postgres::PgCluster;

use super::{MemoryStore, Store, StoreError};
use crate::pg::{MIGRATIONS, Migration, PgOptions, PgStore, migrate};
use vlab_service::{ClusterRow, EventRow, FileRow, HostRow, InfraEnvRow, Snapshot, Write};

const ENV: Uuid = Uuid::from_u128(0xe);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(1_800_000_000 + seconds)
}

fn cluster(id: u128, name: &str) -> ClusterRow {
    let mut row = ClusterRow::default();
    row.view.cluster.id = Uuid::from_u128(id);
    row.view.cluster.name = Some(name.into());
    row.view.cluster.monitored_operators = Some(vec![MonitoredOperator {
        name: Some("console".into()),
        operator_type: Some(OperatorType::Builtin),
        status: Some(OperatorStatus::Progressing),
        ..MonitoredOperator::default()
    }]);
    row.private.ordinal = 7;
    row.private.pull_secret = "{\"auths\":{}}".into();
    row.private.artifact_seed = [9; 32];
    row
}

fn host(id: u128, status: HostStatus) -> HostRow {
    let mut row = HostRow::default();
    let host = &mut row.view.host;
    host.id = Uuid::from_u128(id);
    host.infra_env_id = Some(ENV);
    host.cluster_id = Some(Uuid::from_u128(0xc));
    host.status = status;
    host.status_info = format!("it is {status}");
    host.role = Some(HostRole::Master);
    host.checked_in_at = Some(at(0));
    host.progress = Some(HostProgressInfo {
        current_stage: Some(HostStage::ALL[0]),
        progress_info: Some("42%".into()),
        installation_percentage: Some(5),
        ..HostProgressInfo::default()
    });
    row.private.ordinal = 3;
    row
}

fn beat(id: u128, seconds: i64, unix: Option<i64>) -> Write {
    Write::Heartbeat { infra_env_id: ENV, host_id: Uuid::from_u128(id), checked_in_at: at(seconds), timestamp: unix }
}

fn event(seq: u64, message: &str) -> Write {
    Write::AppendEvent(EventRow {
        seq,
        event: Event {
            name: Some("host_status_updated".into()),
            host_id: Some(Uuid::from_u128(1)),
            severity: Severity::Warning,
            category: Some("user".into()),
            message: message.into(),
            event_time: at(1),
            props: Some("{}".into()),
            ..Event::default()
        },
    })
}

fn put_host(row: HostRow) -> Write {
    Write::PutHost(Arc::new(row))
}

fn put_file(key: &str, bytes: &[u8]) -> Write {
    Write::PutFile(FileRow { key: key.into(), bytes: bytes.into() })
}

/// The same rows in one order.
fn sorted(mut snapshot: Snapshot) -> Snapshot {
    snapshot.clusters.sort_by_key(|r| r.view.cluster.id);
    snapshot.infra_envs.sort_by_key(|r| r.infra_env.id);
    snapshot.hosts.sort_by_key(|r| (r.infra_env_id(), r.view.host.id));
    snapshot.events.sort_by_key(|r| r.seq);
    snapshot.files.sort_by(|a, b| a.key.cmp(&b.key));
    snapshot
}

/// What the batches mean, by definition.
fn reference(batches: &[Vec<Write>]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    batches.iter().flatten().for_each(|w| snapshot.apply(w));
    sorted(snapshot)
}

/// The suite: `factory` gives an empty store each time, and `reopen` another handle to the rows of a given one.
async fn suite<S, F, R>(factory: impl Fn() -> F, reopen: impl Fn(S) -> R)
where
    S: Store,
    F: Future<Output = S>,
    R: Future<Output = S>,
{
    // Nothing at first.
    let mut store = factory().await;
    assert_eq!(store.load().await.unwrap(), Snapshot::default());
    store.health().await.unwrap();

    // All kinds of rows come back as they were, from another handle too.
    let env = InfraEnvRow { ordinal: 1, pull_secret: "secret".into(), ..InfraEnvRow::default() };
    let all = vec![
        Write::PutCluster(Arc::new(cluster(0xc, "lab"))),
        Write::PutInfraEnv(Arc::new(env)),
        put_host(host(1, HostStatus::Discovering)),
        put_host(host(2, HostStatus::Known)),
        event(0, "first"),
        event(1, "second: ü \u{1F600} \"quoted\""),
        put_file("c/bootstrap.ign", &[0, 1, 2, 255]),
        put_file("c/empty", &[]),
    ];
    store.commit(all.clone()).await.unwrap();
    assert_eq!(sorted(store.load().await.unwrap()), reference(std::slice::from_ref(&all)));
    let mut store = reopen(store).await;
    assert_eq!(sorted(store.load().await.unwrap()), reference(std::slice::from_ref(&all)));

    // Later batches replace, remove and append; the last write of a key in a batch counts.
    let changes = vec![
        put_host(host(1, HostStatus::Insufficient)),
        put_host(host(1, HostStatus::Known)),
        Write::DeleteHost { infra_env_id: ENV, host_id: Uuid::from_u128(2) },
        beat(2, 9, None),
        beat(1, 10, Some(77)),
        beat(1, 11, None),
        put_host(host(3, HostStatus::Discovering)),
        Write::DeleteHost { infra_env_id: ENV, host_id: Uuid::from_u128(3) },
        put_host(host(3, HostStatus::Error)),
        Write::PutCluster(Arc::new(cluster(0xd, "second"))),
        Write::DeleteCluster(Uuid::from_u128(0xc)),
        event(2, "third"),
        put_file("c/empty", b"not any more"),
        Write::DeleteFile("c/bootstrap.ign".into()),
        Write::DeleteFile("c/never-there".into()),
    ];
    store.commit(changes.clone()).await.unwrap();
    let expected = reference(&[all, changes]);
    assert_eq!(sorted(store.load().await.unwrap()), expected);
    assert_eq!(expected.hosts[0].view.host.checked_in_at, Some(at(11)));
    assert_eq!(expected.hosts[0].view.host.timestamp, Some(77));

    // A batch is stored whole or not at all.
    let refused = store
        .commit(vec![put_host(host(4, HostStatus::Known)), event(1, "its place is taken"), event(9, "x")])
        .await
        .unwrap_err();
    assert!(matches!(refused, StoreError::Rejected(_)), "{refused}");
    assert!(!refused.needs_reload());
    assert_eq!(sorted(store.load().await.unwrap()), expected);
    store.commit(vec![event(3, "after a refusal")]).await.unwrap();
    assert_eq!(store.load().await.unwrap().events.len(), 4);

    // Text that PostgreSQL cannot hold in a column spoils nothing.
    let mut odd = host(5, HostStatus::Known);
    odd.view.host.requested_hostname = Some("nul\0nul".into());
    store.commit(vec![put_host(odd)]).await.unwrap();
    let odd = store.load().await.unwrap().hosts.into_iter().find(|h| h.view.host.id.as_u128() == 5).unwrap();
    assert_eq!(odd.view.host.requested_hostname.as_deref(), Some("nul\0nul"));

    // Many at once, as a large fleet polls.
    let mut store = factory().await;
    let fleet: Vec<Write> = (0..500).map(|i| put_host(host(i, HostStatus::Known))).collect();
    let beats: Vec<Write> = (0..500).map(|i| beat(i, i as i64, Some(i as i64))).collect();
    store.commit(fleet.clone()).await.unwrap();
    store.commit(beats.clone()).await.unwrap();
    assert_eq!(sorted(store.load().await.unwrap()), reference(&[fleet, beats]));
}

#[tokio::test]
async fn memory_passes_the_suite() {
    suite(|| async { MemoryStore::new() }, |store: MemoryStore| async move { store.clone() }).await;
}

/// Databases of one server, numbered.
struct Databases {
    server: PgCluster,
    count: std::sync::atomic::AtomicU32,
}

impl Databases {
    async fn start() -> Self {
        let server = PgCluster::start(vlab_lab::postgres::PgOptions::from_env()).await.unwrap();
        Self { server, count: 0.into() }
    }

    async fn empty(&self) -> String {
        let n = self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.server.create_database(&format!("store_{n}")).await.unwrap()
    }

    async fn raw(&self, conninfo: &str) -> tokio_postgres::Client {
        vlab_lab::postgres::connect(conninfo).await.unwrap()
    }
}

fn quick(conninfo: &str) -> PgOptions {
    PgOptions { lock_wait: Duration::from_millis(300), ..PgOptions::new(conninfo) }
}

#[tokio::test]
async fn postgres_passes_the_suite() {
    let databases = Databases::start().await;
    let last = std::sync::Mutex::new(String::new());
    suite(
        || async {
            let conninfo = databases.empty().await;
            last.lock().unwrap().clone_from(&conninfo);
            PgStore::connect(PgOptions::new(conninfo)).await.unwrap()
        },
        |old: PgStore| async {
            drop(old);
            let conninfo = last.lock().unwrap().clone();
            PgStore::connect(PgOptions::new(conninfo)).await.unwrap()
        },
    )
    .await;
    databases.server.stop().await.unwrap();
}

/// One random write. Positions of events are given later, they must not repeat.
fn write() -> impl Strategy<Value = Write> {
    let id = 0..4_u128;
    let status = prop::sample::select(HostStatus::ALL);
    prop_oneof![
        4 => (id.clone(), status).prop_map(|(id, status)| put_host(host(id, status))),
        2 => (id.clone(), 0..100_i64, prop::option::of(0..9_i64)).prop_map(|(id, s, unix)| beat(id, s, unix)),
        1 => id.clone().prop_map(|id| Write::DeleteHost { infra_env_id: ENV, host_id: Uuid::from_u128(id) }),
        2 => (id.clone(), "[a-c]").prop_map(|(id, name)| Write::PutCluster(Arc::new(cluster(id, &name)))),
        1 => id.prop_map(|id| Write::DeleteCluster(Uuid::from_u128(id))),
        1 => ("[a-c]", prop::collection::vec(any::<u8>(), 0..4)).prop_map(|(key, bytes)| put_file(&key, &bytes)),
        1 => "[a-c]".prop_map(Write::DeleteFile),
        1 => Just(event(0, "x")),
    ]
}

fn number_events(batches: &mut [Vec<Write>]) {
    let mut next = 0;
    for write in batches.iter_mut().flatten() {
        if let Write::AppendEvent(row) = write {
            row.seq = next;
            next += 1;
        }
    }
}

proptest! {
    /// Whatever is written in whatever batches, the store holds what the writes mean one by one.
    #[test]
    fn memory_agrees_with_the_definition(mut batches in prop::collection::vec(prop::collection::vec(write(), 0..12), 0..6)) {
        number_events(&mut batches);
        let store = MemoryStore::new();
        for batch in &batches {
            store.apply(batch.clone()).unwrap();
        }
        prop_assert_eq!(sorted(store.snapshot()), reference(&batches));
    }
}

#[tokio::test]
async fn postgres_agrees_with_the_definition() {
    let databases = Databases::start().await;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = prop::collection::vec(prop::collection::vec(write(), 0..12), 1..6);
    for _ in 0..24 {
        let mut batches = strategy.new_tree(&mut runner).unwrap().current();
        number_events(&mut batches);
        let mut store = PgStore::connect(quick(&databases.empty().await)).await.unwrap();
        for batch in &batches {
            store.commit(batch.clone()).await.unwrap();
        }
        assert_eq!(sorted(store.load().await.unwrap()), reference(&batches));
    }
    databases.server.stop().await.unwrap();
}

#[tokio::test]
async fn observers_find_columns_and_see_every_status_in_order() {
    let databases = Databases::start().await;
    let conninfo = databases.empty().await;
    let mut store = PgStore::connect(quick(&conninfo)).await.unwrap();
    let watcher = databases.raw(&conninfo).await;
    watcher
        .batch_execute(
            "CREATE TABLE seen (n serial, what text);
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO seen (what) VALUES (TG_TABLE_NAME || ' ' || NEW.status); RETURN NULL; END $$;
             CREATE TRIGGER see AFTER INSERT OR UPDATE ON hosts FOR EACH ROW EXECUTE FUNCTION see();
             CREATE TRIGGER see AFTER INSERT OR UPDATE ON clusters FOR EACH ROW EXECUTE FUNCTION see();",
        )
        .await
        .unwrap();
    store
        .commit(vec![
            put_host(host(1, HostStatus::Discovering)),
            put_host(host(1, HostStatus::Insufficient)),
            Write::PutCluster(Arc::new(cluster(0xc, "lab"))),
            put_host(host(1, HostStatus::Known)),
            // The same again is no change.
            put_host(host(1, HostStatus::Known)),
        ])
        .await
        .unwrap();
    store.commit(vec![put_host(host(1, HostStatus::Known))]).await.unwrap();
    let rows = watcher.query("SELECT what FROM seen ORDER BY n", &[]).await.unwrap();
    let seen: Vec<String> = rows.iter().map(|r| r.get(0)).collect();
    assert_eq!(seen, ["hosts discovering", "hosts insufficient", "clusters insufficient", "hosts known"]);

    let row = watcher
        .query_one(
            "SELECT id, infra_env_id, cluster_id, status, status_info, progress_current_stage, progress_progress_info, role, \
             progress_installation_percentage FROM hosts",
            &[],
        )
        .await
        .unwrap();
    let text = |i: usize| row.get::<_, Option<String>>(i).unwrap();
    assert_eq!(text(0), Uuid::from_u128(1).to_string());
    assert_eq!(text(1), ENV.to_string());
    assert_eq!(text(3), "known");
    assert_eq!(text(4), "it is known");
    assert_eq!(text(5), HostStage::ALL[0].as_str());
    assert_eq!(text(6), "42%");
    assert_eq!(text(7), "master");
    assert_eq!(row.get::<_, Option<i64>>(8), Some(5));
    let operator = watcher.query_one("SELECT name, status FROM monitored_operators", &[]).await.unwrap();
    assert_eq!((operator.get::<_, &str>(0), operator.get::<_, &str>(1)), ("console", "progressing"));
    store.commit(vec![Write::DeleteCluster(Uuid::from_u128(0xc))]).await.unwrap();
    let left: i64 = watcher.query_one("SELECT count(*) FROM monitored_operators", &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
    databases.server.stop().await.unwrap();
}

const EXTRA: Migration = Migration { version: 3, name: "extra", sql: "ALTER TABLE hosts ADD COLUMN extra text" };
const BROKEN: Migration =
    Migration { version: 3, name: "broken", sql: "CREATE TABLE half (x int); SELECT * FROM nowhere" };

#[tokio::test]
async fn migrations() {
    let databases = Databases::start().await;

    // From empty, then again: nothing to do.
    let conninfo = databases.empty().await;
    let mut client = databases.raw(&conninfo).await;
    assert_eq!(migrate(&mut client, MIGRATIONS).await.unwrap(), MIGRATIONS.len());
    assert_eq!(migrate(&mut client, MIGRATIONS).await.unwrap(), 0);

    // A step that fails is undone, and can be repeated once it is right.
    let error = migrate(&mut client, &[MIGRATIONS, &[BROKEN]].concat()).await.unwrap_err().to_string();
    assert!(error.contains("migration 3 (broken) failed") && error.contains("nowhere"), "{error}");
    let half: bool = client.query_one("SELECT to_regclass('half') IS NOT NULL", &[]).await.unwrap().get(0);
    assert!(!half, "the first statement of a failed step is there");
    assert_eq!(migrate(&mut client, &[MIGRATIONS, &[EXTRA]].concat()).await.unwrap(), 1);

    // Now the database is ahead of this program.
    let error = PgStore::connect(quick(&conninfo)).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Schema(t) if t.contains("schema version 3 (extra)") && t.contains("up to 2 only")),
        "{error}"
    );
    assert!(!error.is_transient());

    // A step that was applied with another text.
    let conninfo = databases.empty().await;
    drop(PgStore::connect(quick(&conninfo)).await.unwrap());
    let client = databases.raw(&conninfo).await;
    client.execute("UPDATE schema_migrations SET checksum = 'feedbeef0000' WHERE version = 1", &[]).await.unwrap();
    let error = PgStore::connect(quick(&conninfo)).await.unwrap_err().to_string();
    assert!(error.contains("migration 1 (initial)") && error.contains("has checksum feedbeef0000"), "{error}");

    // Tables of somebody else.
    let conninfo = databases.empty().await;
    let client = databases.raw(&conninfo).await;
    client.batch_execute("CREATE TABLE hosts (id text); CREATE TABLE clusters (id text)").await.unwrap();
    let error = PgStore::connect(quick(&conninfo)).await.unwrap_err().to_string();
    assert!(error.contains("not the simulated service's (clusters, hosts)"), "{error}");
    databases.server.stop().await.unwrap();
}

#[tokio::test]
async fn one_service_per_database() {
    let databases = Databases::start().await;
    let conninfo = databases.empty().await;
    let first = PgStore::connect(quick(&conninfo)).await.unwrap();
    let error = PgStore::connect(quick(&conninfo)).await.unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("is in use by another service (backend pid "), "{error}");
    // Another database of the same server is free, and so is this one once the first service is gone.
    drop(PgStore::connect(quick(&databases.empty().await)).await.unwrap());
    drop(first);
    drop(PgStore::connect(PgOptions::new(conninfo)).await.unwrap());
    databases.server.stop().await.unwrap();
}

#[tokio::test]
async fn a_wrong_address_is_an_error_and_not_a_wait() {
    for (conninfo, expected) in [
        ("host=/nonexistent user=nobody dbname=none", "cannot be reached"),
        ("this is no connection string", "not understood"),
    ] {
        let error = PgStore::connect(quick(conninfo)).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9_of_the_server() {
    let databases = Databases::start().await;
    if !databases.server.is_ours() {
        vlab_skip::skip!("the server of DATABASE_URL is not ours to kill");
        return;
    }
    let conninfo = databases.empty().await;
    let mut store = PgStore::connect(PgOptions::new(conninfo)).await.unwrap();
    let mut acknowledged: BTreeMap<u64, String> = BTreeMap::new();
    let mut seq = 0;
    for round in 0..3_u64 {
        // Not before something was acknowledged, however slow the machine is.
        let enough = tokio::sync::Notify::new();
        let killer = async {
            enough.notified().await;
            databases.server.kill9().await.unwrap();
        };
        let at_first = seq;
        let writer = async {
            loop {
                let batch: Vec<Write> = (0..5).map(|i| event(seq + i, &format!("round {round}"))).collect();
                match store.commit(batch).await {
                    Ok(()) => {
                        (0..5).for_each(|i| drop(acknowledged.insert(seq + i, format!("round {round}"))));
                        seq += 5;
                        if seq == at_first + 15 {
                            enough.notify_one();
                        }
                    }
                    Err(error) => {
                        assert!(error.needs_reload() && error.is_transient(), "{error}");
                        // Without a load nothing is written any more.
                        let again = store.commit(vec![event(1_000_000, "no")]).await.unwrap_err();
                        assert!(matches!(again, StoreError::Unavailable(_)), "{again}");
                        assert!(store.health().await.is_err());
                        break;
                    }
                }
            }
        };
        tokio::join!(killer, writer);
        databases.server.restart().await.unwrap();
        let events = store.load().await.unwrap().events;
        let stored: BTreeMap<u64, String> = events.into_iter().map(|e| (e.seq, e.event.message)).collect();
        for (seq, message) in &acknowledged {
            assert_eq!(stored.get(seq), Some(message), "event {seq} was acknowledged and is lost");
        }
        // The batch under way at the kill is in whole or not at all.
        assert!(stored.len() == acknowledged.len() || stored.len() == acknowledged.len() + 5, "{}", stored.len());
        acknowledged = stored;
        seq = acknowledged.len() as u64;
    }
    databases.server.stop().await.unwrap();
}
