//! The database of a service that goes on after a while: times of the run are moved, and nothing else.

use vlab_drive::journal::Shift;
use vlab_lab::postgres::{PgCluster, PgOptions};
use vlab_run::service::{shift, watch};

#[tokio::test]
async fn times_of_the_run_are_moved_in_every_table() {
    let server = PgCluster::start(PgOptions::default()).await.unwrap();
    let conninfo = server.create_database("service").await.unwrap();
    let client = watch::connect(&conninfo).await.unwrap();
    client
        .batch_execute(
            r#"CREATE TABLE hosts (id uuid PRIMARY KEY, status text, checked_in_at timestamptz, registered_at timestamptz,
                   "odd name" varchar(90), info jsonb, short varchar(3));
               CREATE TABLE clusters (id uuid PRIMARY KEY, status text, install_started_at timestamptz);
               CREATE TABLE monitored_operators (cluster_id uuid, name text, status text, PRIMARY KEY (cluster_id, name));
               INSERT INTO hosts VALUES
                   ('00000000-0000-0000-0000-000000000001', 'known', '2026-11-29 10:05:00.5Z', '2000-01-01 00:00:00Z',
                    'since 2026-11-29T10:04:00Z', '{"at": "2026-11-29T10:03:00.000Z", "of": "2020-01-01T00:00:00Z"}', 'abc'),
                   ('00000000-0000-0000-0000-000000000002', 'known', NULL, NULL, NULL, NULL, NULL)"#,
        )
        .await
        .unwrap();
    watch::install(&client).await.unwrap();
    client.batch_execute("UPDATE hosts SET status = 'ready' WHERE info IS NULL").await.unwrap();
    let by = Shift::new(
        "2026-11-29T10:00:00Z".parse().unwrap(),
        "2026-11-29T10:10:00Z".parse().unwrap(),
        "2026-11-30T10:10:00Z".parse().unwrap(),
    );
    shift::shift(&conninfo, &by).await.unwrap();
    let row = client
        .query_one(
            r#"SELECT checked_in_at::text, registered_at::text, "odd name", info->>'at', info->>'of', short, status
               FROM hosts WHERE info IS NOT NULL"#,
            &[],
        )
        .await
        .unwrap();
    let found: Vec<String> = (0..7).map(|column| row.get(column)).collect();
    let zone: String =
        client.query_one("SELECT to_char('2026-11-30 10:05:00.5Z'::timestamptz, 'HH24')", &[]).await.unwrap().get(0);
    assert!(found[0].starts_with(&format!("2026-11-30 {zone}:05:00.5")), "{found:?}");
    assert!(found[1].starts_with("2000-01-01") || found[1].starts_with("1999-12-31"), "{found:?}");
    assert_eq!(
        found[2..],
        ["since 2026-11-30T10:04:00.000Z", "2026-11-30T10:03:00.000Z", "2020-01-01T00:00:00Z", "abc", "known"]
    );
    // To the history nothing has happened, neither now nor before.
    assert_eq!(watch::Watcher::default().poll(&client).await.unwrap(), []);
    server.stop().await.unwrap();
}
