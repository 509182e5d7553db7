//! How much the history's trigger disturbs the service: the time of an UPDATE of a host's row with the trigger and its reader, as
//! a ratio to the time without them.
//!
//! `cargo run --release -p vlab-run --example trigger_cost`
//!
//! The table has the columns that the history follows and a heartbeat, which it does not. Rounds with and without the trigger
//! alternate, so that what else the machine does hits both alike.

use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use vlab_lab::postgres::{PgCluster, PgOptions};
use vlab_run::service::watch;

const HOSTS: i32 = 200;
const UPDATES: i32 = 2_000;
const ROUNDS: usize = 5;

/// What is measured: a name and the UPDATE, with `$1` the number of the update and `$2` that of the host.
const WRITES: &[(&str, &str)] = &[
    ("heartbeat (nothing that is followed)", "UPDATE hosts SET checked_in_at = now(), n = $1 WHERE number = $2"),
    ("status", "UPDATE hosts SET status = CASE WHEN $1 % 2 = 0 THEN 'known' ELSE 'insufficient' END WHERE number = $2"),
    (
        "validations (6 KiB)",
        "UPDATE hosts SET validations_info = '{\"network\":[' || repeat('{\"id\":\"connected\",\"status\":\"success\"},', 150)
             || '{\"id\":\"ntp-synced\",\"status\":\"' || CASE WHEN $1 % 2 = 0 THEN 'success' ELSE 'failure' END || '\"}]}'
         WHERE number = $2",
    ),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = PgCluster::start(PgOptions::from_env()).await?;
    let measured = measure(&cluster).await;
    cluster.stop().await?;
    measured
}

async fn measure(cluster: &PgCluster) -> Result<(), Box<dyn std::error::Error>> {
    let mut means = vec![[Vec::new(), Vec::new()]; WRITES.len()];
    for round in 0..ROUNDS {
        for (with, name) in [(false, "plain"), (true, "watched")] {
            let conninfo = cluster.create_database(&format!("{name}{round}")).await?;
            let client = watch::connect(&conninfo).await?;
            client
                .batch_execute(&format!(
                    "CREATE TABLE hosts (id uuid PRIMARY KEY, number int UNIQUE, n int, checked_in_at timestamptz,
                         status text, status_info text, cluster_id uuid, progress_current_stage text,
                         progress_progress_info text, progress_installation_percentage bigint, role text,
                         suggested_role text, bootstrap boolean, validations_info text, deleted_at timestamptz);
                     CREATE TABLE clusters (id uuid PRIMARY KEY, status text);
                     INSERT INTO hosts (id, number, status) SELECT gen_random_uuid(), g, 'known'
                         FROM generate_series(0, {HOSTS} - 1) g"
                ))
                .await?;
            let (sender, mut changes) = mpsc::unbounded_channel();
            // Watched until it is dropped.
            let (_over, until) = oneshot::channel();
            if with {
                watch::install(&client).await?;
                tokio::spawn(watch::watch(conninfo.clone(), sender, until));
                tokio::spawn(async move { while changes.recv().await.is_some() {} });
            }
            for (at, (_, write)) in WRITES.iter().enumerate() {
                let write = client.prepare(write).await?;
                let begun = Instant::now();
                for n in 0..UPDATES {
                    client.execute(&write, &[&n, &(n % HOSTS)]).await?;
                }
                let each = begun.elapsed().as_secs_f64() * 1e6 / f64::from(UPDATES);
                means[at][usize::from(with)].push(each);
            }
        }
    }
    println!("{UPDATES} updates of {HOSTS} hosts, each a transaction; median of {ROUNDS} rounds");
    for ((name, _), [plain, watched]) in WRITES.iter().zip(means) {
        let (plain, watched) = (median(plain), median(watched));
        println!("{name}: {plain:.0} µs, with trigger and reader {watched:.0} µs, ratio {:.2}", watched / plain);
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
