//! The history's view of a real PostgreSQL: no change is lost, those of a row are in their order, and what cannot be read is told.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::Client;
use uuid::Uuid;
use vlab_api::types::HostStatus;
use vlab_lab::postgres::{PgCluster, PgOptions};
use vlab_model::history::What;
use vlab_run::service::watch::{self, TableChange, TableNews, Watcher};

/// Budget for what a database does at once; only one that hangs needs it.
const LONG: Duration = Duration::from_secs(60);

async fn server() -> PgCluster {
    PgCluster::start(PgOptions::default()).await.unwrap()
}

/// A database with the service's tables, in which that many hosts are `known`, and a session in it.
async fn database(server: &PgCluster, hosts: u32) -> (String, Client) {
    let conninfo = server.create_database("service").await.unwrap();
    let client = watch::connect(&conninfo).await.unwrap();
    client
        .batch_execute(&format!(
            "CREATE TABLE hosts (id uuid PRIMARY KEY, status text);
             CREATE TABLE clusters (id uuid PRIMARY KEY, status text);
             CREATE TABLE monitored_operators (cluster_id uuid, name text, status text, PRIMARY KEY (cluster_id, name));
             INSERT INTO hosts SELECT lpad(g::text, 32, '0')::uuid, 'known' FROM generate_series(1, {hosts}) g"
        ))
        .await
        .unwrap();
    (conninfo, client)
}

fn update(host: u32, status: HostStatus) -> String {
    format!("UPDATE hosts SET status = '{status}' WHERE id = '{}';", id(host))
}

/// Of the host with that number: its decimal digits.
fn id(host: u32) -> Uuid {
    Uuid::parse_str(&format!("{host:032}")).unwrap()
}

fn moves(changes: &[TableChange]) -> Vec<(Uuid, HostStatus, HostStatus)> {
    let of = |change: &TableChange| match &change.what {
        What::HostStatus { host, from: Some(from), to, .. } => Some((*host, *from, *to)),
        _ => None,
    };
    changes.iter().filter_map(of).collect()
}

/// Something that watches.
struct Watched {
    news: mpsc::UnboundedReceiver<TableNews>,
    over: oneshot::Sender<Instant>,
    task: JoinHandle<Result<(), String>>,
    /// Why the database was away, each time that it was.
    away: Vec<String>,
}

impl Watched {
    fn begin(conninfo: &str) -> Self {
        let (tell, news) = mpsc::unbounded_channel();
        let (over, until) = oneshot::channel();
        Self { news, over, task: tokio::spawn(watch::watch(conninfo.to_owned(), tell, until)), away: Vec::new() }
    }

    /// Waits until it has told so many changes.
    async fn see(&mut self, count: usize) -> Vec<TableChange> {
        let mut seen = Vec::new();
        while seen.len() < count {
            match timeout(LONG, self.news.recv()).await.unwrap_or_else(|_| panic!("{} of {count}", seen.len())).unwrap()
            {
                TableNews::Changes(_, changes) => seen.extend(changes),
                TableNews::Away { why, .. } => self.away.push(why),
                TableNews::Refused(why) => panic!("{why}"),
            }
        }
        seen
    }

    /// Ends it: what it still told, and how it ended.
    async fn end(mut self, within: Duration) -> (Vec<TableChange>, Result<(), String>) {
        self.over.send(Instant::now() + within).unwrap();
        let ended = timeout(LONG, self.task).await.unwrap().unwrap();
        let mut seen = Vec::new();
        while let Some(news) = self.news.recv().await {
            if let TableNews::Changes(_, changes) = news {
                seen.extend(changes);
            }
        }
        (seen, ended)
    }
}

use HostStatus::{Disconnected, Insufficient, Known};

/// A transaction that takes its numbers early and commits seconds later, while others write more than was ever read at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_commits_late_is_not_lost() {
    const HOSTS: u32 = 12_000;
    let server = server().await;
    let (conninfo, client) = database(&server, HOSTS).await;
    watch::install(&client).await.unwrap();
    let mut watched = Watched::begin(&conninfo);

    let late = watch::connect(&conninfo).await.unwrap();
    late.batch_execute(&format!("BEGIN; {}", update(1, Insufficient))).await.unwrap();
    let late = tokio::spawn(async move { late.batch_execute("SELECT pg_sleep(3); COMMIT").await.unwrap() });
    client.batch_execute(&format!("UPDATE hosts SET status = 'insufficient' WHERE id > '{}'", id(1))).await.unwrap();
    for status in [Disconnected, Known, Insufficient] {
        client.batch_execute(&update(2, status)).await.unwrap();
    }
    // All of the others, and nobody waits for the one that is late.
    let others = watched.see(HOSTS as usize - 1 + 3).await;
    assert!(moves(&others).iter().all(|(host, ..)| *host != id(1)) || late.is_finished());
    late.await.unwrap();
    let (last, ended) = watched.end(LONG).await;
    assert_eq!(ended, Ok(()));

    let mut states: BTreeMap<Uuid, HostStatus> = BTreeMap::new();
    let all: Vec<_> = others.into_iter().chain(last).collect();
    for (host, from, to) in moves(&all) {
        assert_eq!(states.insert(host, to).unwrap_or(Known), from, "a change of {host} is missing or out of order");
    }
    assert_eq!(all.len(), HOSTS as usize + 3);
    assert_eq!(states.len(), HOSTS as usize);
    assert!(states.values().all(|status| *status == Insufficient));
    server.stop().await.unwrap();
}

/// Numbers of transactions do not say in which order they wrote: whoever begins first may write last.
#[tokio::test]
async fn the_changes_of_a_row_are_in_their_order() {
    let server = server().await;
    let (conninfo, client) = database(&server, 9).await;
    watch::install(&client).await.unwrap();
    let (first, open) = (watch::connect(&conninfo).await.unwrap(), watch::connect(&conninfo).await.unwrap());
    let mut watcher = Watcher::default();
    assert_eq!(watcher.poll(&client).await.unwrap(), []);

    first.batch_execute(&format!("BEGIN; {}", update(2, Insufficient))).await.unwrap();
    open.batch_execute(&format!("BEGIN; {}", update(3, Insufficient))).await.unwrap();
    client.batch_execute(&update(1, Insufficient)).await.unwrap();
    first.batch_execute(&format!("{} COMMIT", update(1, Disconnected))).await.unwrap();
    // The one that began between the two is still open, so that one of them is above the oldest that runs and one below.
    let seen = moves(&watcher.poll(&client).await.unwrap());
    let of_one: Vec<_> = seen.iter().filter(|(host, ..)| *host == id(1)).map(|(_, from, to)| (*from, *to)).collect();
    assert_eq!(of_one, [(Known, Insufficient), (Insufficient, Disconnected)]);
    assert_eq!(seen.len(), 3);
    assert_eq!(watcher.poll(&client).await.unwrap(), [], "each once");

    client.batch_execute(&format!("BEGIN; {} ROLLBACK", update(4, Insufficient))).await.unwrap();
    open.batch_execute("COMMIT").await.unwrap();
    assert_eq!(moves(&watcher.poll(&client).await.unwrap()), [(id(3), Known, Insufficient)]);
    server.stop().await.unwrap();
}

/// A transaction that is not over when the run is: it is waited for, and when it does not come to an end, that is told.
#[tokio::test]
async fn what_is_not_committed_at_the_end_is_waited_for() {
    let server = server().await;
    let (conninfo, client) = database(&server, 2).await;
    watch::install(&client).await.unwrap();
    let open = watch::connect(&conninfo).await.unwrap();
    open.batch_execute(&format!("BEGIN; {}", update(1, Insufficient))).await.unwrap();
    let (seen, ended) = Watched::begin(&conninfo).end(Duration::from_millis(200)).await;
    assert_eq!(
        (seen.len(), ended.unwrap_err().as_str()),
        (0, "1 transactions have changed something and do not come to an end")
    );

    let commit = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        open.batch_execute("COMMIT").await.unwrap();
    };
    let ((seen, ended), ()) = tokio::join!(Watched::begin(&conninfo).end(LONG), commit);
    assert_eq!((moves(&seen), ended), (vec![(id(1), Known, Insufficient)], Ok(())));
    server.stop().await.unwrap();
}

/// The server is killed and comes back: it goes on where it stopped. It stands still, or is gone for good: that is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_is_found_again_or_told() {
    let server = server().await;
    let (conninfo, client) = database(&server, 3).await;
    watch::install(&client).await.unwrap();
    let mut watched = Watched::begin(&conninfo);
    client.batch_execute(&update(1, Insufficient)).await.unwrap();
    assert_eq!(moves(&watched.see(1).await), [(id(1), Known, Insufficient)]);
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let client = watch::connect(&conninfo).await.unwrap();
    client.batch_execute(&(update(1, Known) + &update(2, Insufficient))).await.unwrap();
    assert_eq!(moves(&watched.see(2).await), [(id(1), Insufficient, Known), (id(2), Known, Insufficient)]);
    assert_eq!(watched.away.len(), 1, "{:?}", watched.away);

    // It stands still for longer than it takes to answer.
    server.pause(true).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    server.pause(false).await.unwrap();
    client.batch_execute(&update(1, Insufficient)).await.unwrap();
    assert_eq!(moves(&watched.see(1).await), [(id(1), Known, Insufficient)]);
    assert_eq!(watched.away[1..], ["it did not answer"]);
    let (seen, ended) = watched.end(LONG).await;
    assert_eq!((moves(&seen), ended), (vec![], Ok(())));

    let mut watched = Watched::begin(&conninfo);
    watched.see(4).await;
    server.pause(true).await.unwrap();
    let (_, ended) = watched.end(Duration::from_millis(300)).await;
    assert_eq!(ended.unwrap_err(), "the database does not answer");
    server.pause(false).await.unwrap();

    let mut watched = Watched::begin(&conninfo);
    watched.see(4).await;
    server.stop().await.unwrap();
    let (_, ended) = watched.end(Duration::from_millis(300)).await;
    let why = ended.unwrap_err();
    assert!(why.contains("connect"), "{why}");
}

/// Rights are taken away in the middle.
#[tokio::test]
async fn a_database_that_refuses_is_told_at_once_and_at_the_end() {
    let server = server().await;
    let (conninfo, admin) = database(&server, 3).await;
    watch::install(&admin).await.unwrap();
    admin
        .batch_execute(
            "CREATE ROLE plain LOGIN;
             GRANT USAGE ON SCHEMA vlab_history TO plain;
             GRANT SELECT ON vlab_history.change TO plain",
        )
        .await
        .unwrap();
    let mut watched = Watched::begin(&format!("{conninfo} user=plain"));
    admin.batch_execute(&update(1, Insufficient)).await.unwrap();
    assert_eq!(moves(&watched.see(1).await), [(id(1), Known, Insufficient)]);

    admin.batch_execute("REVOKE SELECT ON vlab_history.change FROM plain").await.unwrap();
    admin.batch_execute(&update(1, Known)).await.unwrap();
    let told = timeout(LONG, watched.news.recv()).await.unwrap().unwrap();
    assert!(matches!(&told, TableNews::Refused(why) if why.contains("permission denied")), "{told:?}");
    let (seen, ended) = watched.end(Duration::from_millis(100)).await;
    assert_eq!(seen, []);
    let why = ended.unwrap_err();
    assert!(why.contains("permission denied for table change"), "{why}");
    server.stop().await.unwrap();
}

/// Somebody switches the triggers off, or drops one: what is not noted is not missed by anybody, so it must be told.
#[tokio::test]
async fn triggers_that_do_not_fire_are_told() {
    let server = server().await;
    let (conninfo, admin) = database(&server, 3).await;
    for (off, on) in [
        ("ALTER TABLE hosts DISABLE TRIGGER ALL", "ALTER TABLE hosts ENABLE TRIGGER ALL"),
        ("DROP TRIGGER vlab_history_change ON clusters", ""),
    ] {
        watch::install(&admin).await.unwrap();
        let mut watched = Watched::begin(&conninfo);
        admin.batch_execute(off).await.unwrap();
        let told = loop {
            match timeout(LONG, watched.news.recv()).await.unwrap().unwrap() {
                TableNews::Refused(why) => break why,
                TableNews::Changes(..) | TableNews::Away { .. } => {}
            }
        };
        assert!(told.contains("triggers on the service's tables"), "{told}");
        let (_, ended) = watched.end(Duration::from_millis(300)).await;
        assert!(ended.unwrap_err().contains("gone or switched off"));
        admin.batch_execute(on).await.unwrap();
    }
    server.stop().await.unwrap();
}
