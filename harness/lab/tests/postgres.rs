//! A real PostgreSQL: starts, dies, comes back with all that it acknowledged, and goes without a trace.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use vlab_lab::ledger::Ledger;
use vlab_lab::postgres::{PgCluster, PgError, PgOptions, Tcp, connect, explain};
use vlab_lab::proc;

/// A folder that other users can enter, as `/tmp` is, so that what is left in it is ours.
fn world() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::Builder::new().prefix("vlab-t-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn options(parent: &Path) -> PgOptions {
    PgOptions { parent: Some(parent.to_path_buf()), ..PgOptions::default() }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Ids of the System V shared memory segments of this machine.
fn segments() -> Vec<String> {
    let text = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(1).map(str::to_owned)).collect()
}

fn segment_of(data: &Path) -> String {
    let text = fs::read_to_string(data.join("postmaster.pid")).unwrap();
    text.lines().nth(6).unwrap().split_ascii_whitespace().nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn starts_serves_and_leaves_nothing() {
    let world = world();
    let ledger = Arc::new(Ledger::create(&world.path().join("ledgers"), "r1").unwrap());
    let cluster =
        PgCluster::start(PgOptions { ledger: Some(Arc::clone(&ledger)), ..options(world.path()) }).await.unwrap();
    let base = cluster.directory().unwrap().to_path_buf();
    assert!(base.starts_with(world.path()));
    assert_eq!(ledger.open_entries().len(), 3, "directory, server, process: {:?}", ledger.open_entries());

    let conninfo = cluster.create_database("it's \"odd\"").await.unwrap();
    let client = connect(&conninfo).await.unwrap();
    let row = client.query_one("SELECT current_database(), current_setting('max_connections')", &[]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("it's \"odd\"", "200"));
    for (setting, value) in [("synchronous_commit", "on"), ("fsync", "off"), ("listen_addresses", "")] {
        let row = client.query_one("SELECT current_setting($1)", &[&setting]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), value, "{setting}");
    }

    let postmaster = cluster.postmaster().unwrap();
    let segment = segment_of(&base.join("data"));
    assert!(segments().contains(&segment));
    cluster.stop().await.unwrap();
    assert!(!postmaster.is_alive());
    assert_eq!(proc::working_in(&base.join("data")), []);
    assert!(!segments().contains(&segment), "shared memory stays behind");
    assert_eq!(entries(world.path()), [world.path().join("ledgers")]);
    assert_eq!(ledger.open_entries(), []);
    cluster.stop().await.expect("a second stop does nothing");
    assert!(matches!(cluster.restart().await, Err(PgError::Stopped)));
}

/// A client commits as fast as it can and counts what was acknowledged; the server is killed under it again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_loses_no_acknowledged_commit() {
    let world = world();
    let cluster = PgCluster::start(options(world.path())).await.unwrap();
    let conninfo = cluster.create_database("counted").await.unwrap();
    connect(&conninfo).await.unwrap().batch_execute("CREATE TABLE n (i bigint PRIMARY KEY)").await.unwrap();

    let acknowledged = Arc::new(AtomicI64::new(0));
    let mut next = 1;
    for round in 1..=3 {
        let client = connect(&conninfo).await.unwrap();
        let counter = Arc::clone(&acknowledged);
        let writer = tokio::spawn(async move {
            loop {
                match client.execute("INSERT INTO n VALUES ($1)", &[&next]).await {
                    Ok(_) => counter.store(next, Ordering::SeqCst),
                    // Whether this one is in the table nobody knows: it was not acknowledged. Its number is not used again.
                    Err(error) => return (next + 1, explain(&error)),
                }
                next += 1;
            }
        });
        let before = acknowledged.load(Ordering::SeqCst);
        vlab_lab::wait::until("200 commits", Duration::from_secs(20), Duration::from_millis(1), || {
            let done = acknowledged.load(Ordering::SeqCst) - before;
            async move { if done >= 200 { Ok(Some(())) } else { Err(format!("{done}")) } }
        })
        .await
        .unwrap();

        let postmaster = cluster.postmaster().unwrap();
        cluster.kill9().await.unwrap();
        assert!(!postmaster.is_alive());
        assert_eq!(proc::working_in(&cluster.directory().unwrap().join("data")), [], "children outlive kill9");
        assert!(connect(&conninfo).await.is_err(), "a killed server answers");
        next = writer.await.unwrap().0;

        cluster.restart().await.unwrap();
        assert_ne!(cluster.postmaster(), Some(postmaster));
        let sure = acknowledged.load(Ordering::SeqCst);
        let row = connect(&conninfo)
            .await
            .unwrap()
            .query_one("SELECT count(*), max(i) FROM n WHERE i <= $1", &[&sure])
            .await
            .unwrap();
        // At most one number a round was never acknowledged and may be missing below the highest one.
        let (count, highest) = (row.get::<_, i64>(0), row.get::<_, i64>(1));
        assert_eq!(highest, sure, "round {round}: the last acknowledged commit is lost");
        assert!(count >= sure - (round - 1), "round {round}: {count} rows of {sure} acknowledged");
    }
    cluster.restart().await.expect("restart of a running server stops it first");
    cluster.kill9().await.unwrap();
    let segment = segment_of(&cluster.directory().unwrap().join("data"));
    cluster.stop().await.expect("stop after kill9");
    assert!(!segments().contains(&segment), "shared memory of a killed server stays behind");
    assert_eq!(entries(world.path()), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn tcp_asks_for_the_password_and_survives_a_restart() {
    let world = world();
    let cluster = PgCluster::start(PgOptions { tcp: Tcp::AnyPort, ..options(world.path()) }).await.unwrap();
    let good = cluster.tcp_conninfo_for("postgres").unwrap();
    connect(&good).await.unwrap();
    let bad: String = good
        .split(' ')
        .map(|part| if part.starts_with("password=") { "password=wrong" } else { part })
        .collect::<Vec<_>>()
        .join(" ");
    let refused = connect(&bad).await.expect_err("TCP takes any password").to_string();
    assert!(refused.contains("password authentication failed"), "{refused}");
    assert!(!format!("{cluster:?}").contains(good.split("password=").nth(1).unwrap().split(' ').next().unwrap()));
    cluster.kill9().await.unwrap();
    cluster.restart().await.unwrap();
    connect(&good).await.unwrap();
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let world = world();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = PgCluster::start(PgOptions { tcp: Tcp::Port(port), ..options(world.path()) }).await.unwrap_err();
    assert!(error.to_string().contains(&format!("port {port} of 127.0.0.1 is taken")), "{error}");
    assert_eq!(entries(world.path()), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn a_path_that_is_too_long_is_refused_before_anything_is_made() {
    let world = world();
    let deep = world.path().join("d".repeat(90));
    fs::create_dir(&deep).unwrap();
    let error = PgCluster::start(options(&deep)).await.unwrap_err();
    let PgError::SocketPathTooLong { length, limit: 107, .. } = &error else { panic!("{error}") };
    assert!(*length > 107);
    assert!(error.to_string().contains("fix: a shorter folder"), "{error}");
    assert_eq!(entries(&deep), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn missing_binaries_leave_nothing_behind() {
    let (world, empty) = (world(), world());
    let options = PgOptions { bin_dir: Some(empty.path().to_path_buf()), ..options(world.path()) };
    let error = PgCluster::start(options).await.unwrap_err();
    assert!(matches!(&error, PgError::NotFound { .. }), "{error}");
    assert_eq!(entries(world.path()), [] as [PathBuf; 0]);
}

/// The server says why it does not start: its own last words are in the error.
#[tokio::test]
async fn a_server_that_does_not_start_is_quoted() {
    let world = world();
    let settings = vec![("shared_buffers".to_owned(), "lots".to_owned())];
    let error = PgCluster::start(PgOptions { settings, ..options(world.path()) }).await.unwrap_err().to_string();
    assert!(error.contains("ended (exit status: 1)"), "{error}");
    assert!(error.contains("invalid value for parameter \"shared_buffers\": \"lots\""), "{error}");
    assert_eq!(entries(world.path()), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn dropping_is_enough_as_a_last_resort() {
    let world = world();
    let cluster = PgCluster::start(options(world.path())).await.unwrap();
    let postmaster = cluster.postmaster().unwrap();
    let segment = segment_of(&cluster.directory().unwrap().join("data"));
    drop(cluster);
    assert!(!postmaster.is_alive());
    assert!(!segments().contains(&segment));
    assert_eq!(entries(world.path()), [] as [PathBuf; 0]);
}

/// The first start of a version fills the cache, the next one uses it, and a broken cache is replaced.
#[tokio::test]
async fn the_cache_is_filled_used_and_repaired() {
    let (world, home) = (world(), world());
    let cache = home.path().join("cache");
    let start = async || {
        let cluster =
            PgCluster::start(PgOptions { cache: Some(cache.clone()), ..options(world.path()) }).await.unwrap();
        let from_cache = cluster.start_times().from_cache;
        connect(&cluster.conninfo()).await.unwrap();
        cluster.stop().await.unwrap();
        from_cache
    };
    assert!(!start().await);
    assert!(start().await);
    let template = entries(&cache).pop().unwrap();
    fs::remove_file(template.join("PG_VERSION")).unwrap();
    assert!(!start().await);
    assert!(start().await);
}

/// `DATABASE_URL`: our databases come and go, the others stay, and the server is not ours to kill.
#[tokio::test]
async fn an_existing_server_gets_databases_of_our_own_and_keeps_its_own() {
    let world = world();
    let host = PgCluster::start(PgOptions { tcp: Tcp::AnyPort, ..options(world.path()) }).await.unwrap();
    host.create_database("theirs").await.unwrap();
    let theirs = host.tcp_conninfo_for("theirs").unwrap();
    let ledger = Arc::new(Ledger::create(&world.path().join("ledgers"), "r1").unwrap());
    let guest = async |ledger| {
        let options = PgOptions { database_url: Some(theirs.clone()), ledger, ..PgOptions::default() };
        PgCluster::start(options).await.unwrap()
    };
    let databases = async || {
        let client = connect(&theirs).await.unwrap();
        let rows =
            client.query("SELECT datname FROM pg_database WHERE NOT datistemplate ORDER BY 1", &[]).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>()
    };

    let cluster = guest(Some(Arc::clone(&ledger))).await;
    assert!(!cluster.is_ours());
    let ours = cluster.create_database("service").await.unwrap();
    assert_eq!(cluster.conninfo_for("service"), ours);
    let client = connect(&ours).await.unwrap();
    assert_eq!(databases().await.len(), 3);
    assert_eq!(ledger.open_entries().len(), 1);
    let refused = cluster.kill9().await.unwrap_err().to_string();
    assert!(refused.starts_with("cannot kill PostgreSQL") && refused.contains("DATABASE_URL"), "{refused}");
    cluster.stop().await.expect("an open connection does not hold it");
    drop(client);
    assert_eq!(databases().await, ["postgres", "theirs"]);
    assert_eq!(ledger.open_entries(), []);

    let cluster = guest(None).await;
    cluster.create_database("service").await.unwrap();
    drop(cluster);
    assert_eq!(databases().await, ["postgres", "theirs"], "dropping leaves a database");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_an_error_within_the_budget() {
    // Takes connections and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://u:topsecret@127.0.0.1:{}/d", silent.local_addr().unwrap().port());
    let options =
        PgOptions { database_url: Some(url), ready_budget: Duration::from_millis(200), ..PgOptions::default() };
    let text = PgCluster::start(options).await.unwrap_err().to_string();
    assert!(text.contains("does not answer within 200ms") && !text.contains("topsecret"), "{text}");
}

/// What a server had is there in another one, which can be started with it any number of times.
#[tokio::test]
async fn what_is_kept_can_be_gone_on_with() {
    let world = world();
    let kept = world.path().join("kept");
    let first = PgCluster::start(options(world.path())).await.unwrap();
    let client = connect(&first.create_database("service").await.unwrap()).await.unwrap();
    client.batch_execute("CREATE TABLE hosts (id text); INSERT INTO hosts VALUES ('one')").await.unwrap();
    first.keep(&kept).await.unwrap();
    first.stop().await.unwrap();
    assert_eq!(entries(world.path()), std::slice::from_ref(&kept));
    for n in 0..2 {
        let with = PgOptions { content: Some(kept.clone()), tcp: Tcp::AnyPort, ..options(world.path()) };
        let server = PgCluster::start(with).await.unwrap();
        let client = connect(&server.tcp_conninfo_for("service").unwrap()).await.unwrap();
        let count: i64 = client.query_one("SELECT count(*) FROM hosts", &[]).await.unwrap().get(0);
        assert_eq!(count, 1, "the {n}. time");
        client.batch_execute("INSERT INTO hosts VALUES ('two')").await.unwrap();
        server.stop().await.unwrap();
    }
    fs::write(kept.join("PG_VERSION"), "9\n").unwrap();
    let with = PgOptions { content: Some(kept.clone()), ..options(world.path()) };
    let error = PgCluster::start(with).await.unwrap_err().to_string();
    assert!(error.contains("it is of PostgreSQL 9, and here is"), "{error}");
    assert_eq!(entries(world.path()), [kept]);
}
