//! Several services on one database, and what is in front of them: as a Service of Kubernetes spreads connections over its pods.
//!
//! Who leads is what their lease says: the real ones have it on an API server of the run, the simulated ones in the database.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use vlab_api::http::{Method, Request};
use vlab_client::HttpConnection;
use vlab_lab::wait::{Timeout, until};
use vlab_model::lease::{ELECTION, NAMESPACE};

use super::hub::Hub;
use super::watch;

/// How long an answer about the lease may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How long there may be no leader.
const LED_WITHIN: Duration = Duration::from_secs(60);

/// The name of a replica, which is that of its pod's host, too.
pub(super) fn name(number: usize) -> String {
    format!("service-{number}")
}

/// Takes connections in front of the replicas, and gives each to the next one that is ready. Ends with its owner.
#[derive(Debug)]
pub(super) struct Balancer {
    address: SocketAddr,
    ready: Arc<Mutex<Vec<Option<SocketAddr>>>>,
    _accepting: AbortOnDropHandle<()>,
}

impl Balancer {
    /// One for so many replicas, of which none is ready.
    ///
    /// # Errors
    /// Nobody can listen.
    pub(super) async fn start(replicas: usize) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let ready = Arc::new(Mutex::new(vec![None; replicas]));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&ready)));
        Ok(Self { address, ready, _accepting: AbortOnDropHandle::new(accepting) })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// That replica is ready there, or not any more. The connections that it has stay.
    pub(super) fn set(&self, number: usize, ready: Option<SocketAddr>) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)[number] = ready;
    }
}

async fn accept(listener: TcpListener, ready: Arc<Mutex<Vec<Option<SocketAddr>>>>) {
    let mut passed = JoinSet::new();
    for turn in 0.. {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many open files, for example: told, and tried again when some may have been closed.
                tracing::warn!(%error, "what is in front of the service cannot take a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        while passed.try_join_next().is_some() {}
        let next = {
            let ready = ready.lock().unwrap_or_else(PoisonError::into_inner);
            (0..ready.len()).find_map(|more| ready[(turn + more) % ready.len()])
        };
        passed.spawn(pass(stream, next));
    }
}

/// Connects the two, or refuses whom nobody can answer.
async fn pass(mut stream: TcpStream, to: Option<SocketAddr>) {
    let found = match to {
        Some(address) => TcpStream::connect(address).await.ok(),
        None => None,
    };
    let Some(mut found) = found else {
        // A reset, as where nobody listens.
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        return;
    };
    let _ = (stream.set_nodelay(true), found.set_nodelay(true));
    // Whoever ends it, the other one notices.
    let _ = tokio::io::copy_bidirectional(&mut stream, &mut found).await;
}

/// Where it stands who leads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leases<'a> {
    /// On an API server.
    Hub(&'a Hub),
    /// In the database of the simulated service.
    Database(&'a str),
}

/// The number of the replica that leads, once one does.
///
/// # Errors
/// None does in its time.
pub(super) async fn leader(leases: Leases<'_>) -> Result<usize, Timeout> {
    until("one of the service's replicas to lead", LED_WITHIN, Duration::from_millis(50), || async {
        let holder = match leases {
            Leases::Hub(hub) => on_hub(hub).await?,
            Leases::Database(conninfo) => in_database(conninfo).await.map_err(|error| error.to_string())?,
        };
        // What follows is different for each process of that name.
        let number = holder.split('_').next().and_then(|name| name.strip_prefix("service-")?.parse().ok());
        number.map(Some).ok_or_else(|| format!("{holder:?} leads"))
    })
    .await
}

async fn on_hub(hub: &Hub) -> Result<String, String> {
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{ELECTION}");
    let mut connection = HttpConnection::new(hub.endpoint().clone());
    let answer = connection.send(&Request::new(Method::Get, lease.clone()), ANSWER).await;
    let answer = answer.map_err(|error| format!("GET {lease}: {error}"))?;
    let object: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let holder = object["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
    holder.map(str::to_owned).ok_or_else(|| format!("GET {lease} answered {} without a holder", answer.status))
}

async fn in_database(conninfo: &str) -> Result<String, tokio_postgres::Error> {
    let client = watch::connect(conninfo).await?;
    Ok(client.query_one("SELECT holder FROM vlab_replicas.lease", &[]).await?.get(0))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Says its name to whoever connects.
    async fn server(name: &'static str) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(name.as_bytes()).await.unwrap();
            }
        });
        address
    }

    async fn said(balancer: &Balancer) -> io::Result<String> {
        let mut text = String::new();
        TcpStream::connect(balancer.address()).await?.read_to_string(&mut text).await?;
        Ok(text)
    }

    #[tokio::test]
    async fn connections_are_spread_over_those_that_are_ready() {
        let balancer = Balancer::start(2).await.unwrap();
        let refused = said(&balancer).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionReset);
        let (a, b) = (server("a").await, server("b").await);
        balancer.set(0, Some(a));
        balancer.set(1, Some(b));
        let mut both = Vec::new();
        for _ in 0..4 {
            both.push(said(&balancer).await.unwrap());
        }
        assert!(both == ["a", "b", "a", "b"] || both == ["b", "a", "b", "a"], "{both:?}");
        balancer.set(0, None);
        assert_eq!(said(&balancer).await.unwrap(), "b");
        assert_eq!(said(&balancer).await.unwrap(), "b");
    }
}
