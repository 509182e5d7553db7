//! How long a private PostgreSQL takes to start and to stop: five times from the cache, then one time with `initdb`.

use std::time::Instant;

use vlab_lab::postgres::{PgCluster, PgError, PgOptions};

#[tokio::main]
async fn main() -> Result<(), PgError> {
    for round in 0..6 {
        let cache = if round < 5 { PgOptions::default().cache } else { None };
        let cluster = PgCluster::start(PgOptions { cache, ..PgOptions::default() }).await?;
        let times = cluster.start_times();
        let stopping = Instant::now();
        cluster.stop().await?;
        println!("{times:?}, stop {:?}", stopping.elapsed());
    }
    Ok(())
}
