//! Several services on one database, as the real one has replicas: all of them take requests, and one, the leader, decides.
//!
//! The real replicas share nothing but the database: each answers by itself, and only the monitors (and what else is done without
//! being asked for) are the leader's, who has a lease. Here the state is in the memory of the leader, so that the others pass
//! connections on to it. What can be seen from outside is the same, but for one thing: a request to another replica needs a leader.
//! So a replica that finds the leader gone answers in its place at once, and does nothing by itself until the old lease is over.
//!
//! Who leads is decided by the lock that every service takes on its database ([`PgStore`]): it is held by the connection through which
//! everything is written, so nobody writes who has lost it. A leader that does not renew its lease, because it was suspended, has its
//! connection ended by whoever takes over.

use std::net::SocketAddr;
use std::str::FromStr as _;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use vlab_api::Timestamp;
use vlab_image_service::service::ImageService;
use vlab_model::lease::Times;

use crate::engine::{Served, ServedConfig};
use crate::pg::{PgOptions, PgStore};
use crate::serve::{Front, bind, serve_logic, settle_urls};
use crate::store::StoreError;
use crate::{ServeError, ServeOptions};

/// How long a connection waits for a leader before it is closed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between one attempt to reach the leader and the next.
const AGAIN: Duration = Duration::from_millis(20);

/// One of several services on a database.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Its name, which PostgreSQL is told, too: `service-0`.
    pub name: String,
    /// How many times faster than a real one the run's clock goes: leases are shorter then.
    pub pace: f64,
    /// The database that they share.
    pub postgres: PgOptions,
}

/// Who leads, as the database has it.
struct Lease {
    holder: String,
    address: Option<SocketAddr>,
    /// Since it was renewed.
    age: Duration,
}

/// The lease is for the monitors. The lock on the database says who writes.
const TABLE: &str = "
    CREATE SCHEMA IF NOT EXISTS vlab_replicas;
    CREATE TABLE IF NOT EXISTS vlab_replicas.lease (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        holder text NOT NULL, address text NOT NULL, renewed_at timestamptz NOT NULL)";

impl Replica {
    /// The leases of several processes of one name are not the same.
    fn identity(&self) -> String {
        format!("{}_{}", self.name, std::process::id())
    }

    /// It waits for the lock and sees at once when the leader is gone; in between it looks who leads.
    fn store(&self) -> PgOptions {
        PgOptions { name: Some(self.name.clone()), lock_wait: Times::at(self.pace).retry, ..self.postgres.clone() }
    }

    /// A connection of its own: it is not held up by what the service does on its.
    async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let mut config = tokio_postgres::Config::from_str(&self.postgres.conninfo)?;
        config.application_name(format!("{}-lease", self.name)).connect_timeout(self.postgres.connect_timeout);
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(async move {
            // It ends with the client, or with the database, which the next query tells.
            let _ = connection.await;
        });
        Ok(client)
    }

    /// Takes the lease, which it may: it has the lock. Returns how long the one before still lasts.
    async fn take(&self, client: &Client, address: SocketAddr) -> Result<Duration, tokio_postgres::Error> {
        client.batch_execute(TABLE).await?;
        let before = lease(client).await?;
        client
            .execute(
                "INSERT INTO vlab_replicas.lease (holder, address, renewed_at) VALUES ($1, $2, clock_timestamp())
                 ON CONFLICT (one) DO UPDATE SET holder = $1, address = $2, renewed_at = clock_timestamp()",
                &[&self.identity(), &address.to_string()],
            )
            .await?;
        let others = before.filter(|lease| lease.holder != self.identity());
        Ok(others.map_or(Duration::ZERO, |lease| Times::at(self.pace).duration.saturating_sub(lease.age)))
    }

    /// Renews the lease for as long as it has it.
    async fn keep(self, mut client: Client) {
        let mut due = tokio::time::interval(Times::at(self.pace).retry);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            let renewed = client
                .execute(
                    "UPDATE vlab_replicas.lease SET renewed_at = clock_timestamp() WHERE holder = $1",
                    &[&self.identity()],
                )
                .await;
            match renewed {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "the lease cannot be renewed");
                    if let Ok(again) = self.connect().await {
                        client = again;
                    }
                }
            }
        }
    }

    /// Returns once it has the lock: somebody has to lead. Tells who leads until then.
    async fn stand_by(&self, leader: &watch::Sender<Option<SocketAddr>>) -> Result<PgStore, StoreError> {
        let times = Times::at(self.pace);
        let mut was_there = false;
        loop {
            match PgStore::connect(self.store()).await {
                Ok(store) => return Ok(store),
                Err(StoreError::InUse { .. }) => {
                    was_there = true;
                    if let Err(error) = self.look(leader, times).await {
                        tracing::debug!(%error, "it cannot be seen who leads");
                    }
                }
                // A wrong address is an error; a database that was there comes back.
                Err(error) if was_there && error.is_transient() => {
                    tracing::debug!(%error, "the database is away");
                    tokio::time::sleep(times.retry).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells who leads, and ends the connection of a leader whose lease is over.
    async fn look(
        &self,
        leader: &watch::Sender<Option<SocketAddr>>,
        times: Times,
    ) -> Result<(), tokio_postgres::Error> {
        let client = self.connect().await?;
        let Some(lease) = lease(&client).await? else { return Ok(()) };
        if lease.age <= times.duration {
            leader.send_if_modified(|known| std::mem::replace(known, lease.address) != lease.address);
            return Ok(());
        }
        tracing::warn!(holder = lease.holder, "the leader did not renew its lease in time, and leads no longer");
        PgStore::end_holder(&client).await
    }
}

async fn lease(client: &Client) -> Result<Option<Lease>, tokio_postgres::Error> {
    let found = client
        .query_opt(
            "SELECT holder, address, extract(epoch FROM clock_timestamp() - renewed_at)::float8 FROM vlab_replicas.lease",
            &[],
        )
        .await;
    let row = match found {
        // Before the first leader there is no table.
        Err(error)
            if [Some(&SqlState::UNDEFINED_TABLE), Some(&SqlState::INVALID_SCHEMA_NAME)].contains(&error.code()) =>
        {
            return Ok(None);
        }
        found => found?,
    };
    Ok(row.map(|row| Lease {
        holder: row.get(0),
        address: row.get::<_, &str>(1).parse().ok(),
        age: Duration::try_from_secs_f64(row.get(2)).unwrap_or_default(),
    }))
}

/// Runs one of several services on a database until `shutdown` is cancelled.
///
/// # Errors
/// As [`crate::serve`]; that another one leads is none.
pub async fn serve_replica(
    replica: Replica,
    options: ServeOptions<()>,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let ServeOptions { listen, store: (), mut core, images, hub: _, limits, mut ready } = options;
    let (listener, address) = bind(listen)?;
    let of_system = |source| ServeError::Bind { address, source };
    // Each term, of others and its own, has the listener anew.
    let listener = listener.into_std().map_err(of_system)?;
    let again = || listener.try_clone().and_then(TcpListener::from_std).map_err(of_system);
    settle_urls(&mut core, address, !images.is_empty());
    let leader = watch::Sender::new(None);
    // What was accepted while another one led is answered whoever leads then.
    let mut passed = JoinSet::new();
    loop {
        let store = {
            let (standing, tell) = (replica.clone(), leader.clone());
            let standing = async move { standing.stand_by(&tell).await };
            let mut standing = AbortOnDropHandle::new(tokio::spawn(standing));
            let listener = again()?;
            let mut seen = leader.subscribe();
            seen.mark_unchanged();
            loop {
                tokio::select! {
                    () = shutdown.cancelled() => return Ok(()),
                    elected = &mut standing => break elected.map_err(panicked)??,
                    Ok(()) = seen.changed() => {
                        if let Some(ready) = ready.take() {
                            // Nobody needs to wait for it.
                            let _ = ready.send(address);
                        }
                    }
                    accepted = listener.accept() => match accepted {
                        Ok((stream, _)) => {
                            passed.spawn(pass(stream, leader.subscribe()));
                            while passed.try_join_next().is_some() {}
                        }
                        Err(error) => {
                            tracing::warn!(%error, "cannot accept a connection, waiting");
                            tokio::time::sleep(AGAIN).await;
                        }
                    }
                }
            }
        };
        let down = |error: tokio_postgres::Error| StoreError::Unavailable(error.to_string());
        let client = replica.connect().await.map_err(down)?;
        let still = replica.take(&client, address).await.map_err(down)?;
        tracing::info!(name = replica.name, ?still, "leads");
        leader.send_replace(Some(address));
        // It ends when another one has the lease.
        let (term, keeping) = (shutdown.child_token(), replica.clone().keep(client));
        let over = term.clone();
        let keeping = AbortOnDropHandle::new(tokio::spawn(async move {
            keeping.await;
            over.cancel();
        }));
        let images = ImageService::open(&images, &core.image_service_url)?;
        let (from, limits) = (Timestamp::now() + still, limits.clone());
        let front = Front { listener: again()?, address, images, hub: None, limits, ready: ready.take(), from };
        let config = ServedConfig { core: core.clone(), door: None };
        let served = serve_logic::<Served, PgStore>(front, store, config, term).await;
        drop(keeping);
        match served {
            _ if shutdown.is_cancelled() => return served,
            Ok(()) | Err(ServeError::Store(StoreError::InUse { .. })) => {
                tracing::warn!(name = replica.name, "another replica leads now");
                leader.send_replace(None);
            }
            Err(error) => return Err(error),
        }
    }
}

fn panicked(error: JoinError) -> ServeError {
    ServeError::Internal(format!("who waits to lead ended: {error}"))
}

/// Passes a connection on to the leader, whoever that is once it can be reached.
async fn pass(mut stream: TcpStream, leader: watch::Receiver<Option<SocketAddr>>) {
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            let known = *leader.borrow();
            if let Some(address) = known
                && let Ok(found) = TcpStream::connect(address).await
            {
                return found;
            }
            tokio::time::sleep(AGAIN).await;
        }
    });
    let Ok(mut found) = found.await else { return };
    let _ = (stream.set_nodelay(true), found.set_nodelay(true));
    // Whoever ends it, the other one notices.
    let _ = tokio::io::copy_bidirectional(&mut stream, &mut found).await;
}

#[cfg(test)]
mod tests;
