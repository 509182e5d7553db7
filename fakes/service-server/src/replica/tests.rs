//! Two services on one real PostgreSQL.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use vlab_api::http::{Method, Request};
use vlab_client::{Endpoint, HttpConnection};
use vlab_lab::postgres::PgCluster;
use vlab_model::settings::Settings;
use vlab_service::CoreConfig;

use super::*;
use crate::Listen;

const API: &str = "/api/assisted-install/v2";
/// The shortest leases that there are.
const PACE: f64 = 60.0;

struct Running {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

fn core() -> CoreConfig {
    CoreConfig {
        settings: Settings::default().scaled(PACE),
        seed: 1,
        base_url: String::new(),
        image_service_url: String::new(),
        alteration: None,
    }
}

fn replica(name: &str, conninfo: &str) -> Replica {
    Replica { name: name.to_owned(), pace: PACE, postgres: PgOptions::new(conninfo) }
}

impl Running {
    async fn start(name: &str, conninfo: &str) -> Self {
        let (ready, is_ready) = oneshot::channel();
        let shutdown = CancellationToken::new();
        let listen = Listen::Address(([127, 0, 0, 1], 0).into());
        let options = ServeOptions { ready: Some(ready), ..ServeOptions::new(listen, (), core()) };
        let task = tokio::spawn(serve_replica(replica(name, conninfo), options, shutdown.clone()));
        Self { address: is_ready.await.unwrap(), shutdown, task }
    }

    async fn ask(&self, method: Method, path: &str, body: &str) -> (u16, String) {
        let mut request = Request::new(method, path);
        if !body.is_empty() {
            request = request.json(&serde_json::from_str::<serde_json::Value>(body).unwrap());
        }
        let mut connection = HttpConnection::new(Endpoint::new(self.address));
        let answer = connection.send(&request, Duration::from_secs(30)).await.unwrap();
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    }

    async fn infra_env(&self, name: &str) {
        let body = serde_json::json!({
            "name": name,
            "pull_secret": r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"}}}"#,
            "openshift_version": "4.20",
        });
        let (status, answer) = self.ask(Method::Post, &format!("{API}/infra-envs"), &body.to_string()).await;
        assert_eq!(status, 201, "{answer}");
    }

    async fn infra_envs(&self) -> usize {
        let (status, answer) = self.ask(Method::Get, &format!("{API}/infra-envs"), "").await;
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str::<Vec<serde_json::Value>>(&answer).unwrap().len()
    }

    /// Runs of the monitor of clusters in the term of whoever leads.
    async fn monitor_runs(&self) -> u64 {
        let (_, page) = self.ask(Method::Get, "/metrics", "").await;
        let line = page.lines().find_map(|line| line.strip_prefix("vlab_service_cluster_monitor_runs_total "));
        line.unwrap().parse().unwrap()
    }

    /// What it has open is lost, as with a process that is killed.
    async fn die(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(std::time::Instant::now() < end, "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_both_answer_and_the_other_one_goes_on_when_the_leader_is_killed() {
    let server = PgCluster::start(vlab_lab::postgres::PgOptions::from_env()).await.unwrap();
    let conninfo = server.create_database("replicas").await.unwrap();
    let first = Running::start("service-0", &conninfo).await;
    let second = Running::start("service-1", &conninfo).await;
    first.infra_env("one").await;
    second.infra_env("two").await;
    assert_eq!((first.infra_envs().await, second.infra_envs().await), (2, 2));
    // Monitors look only at what there is.
    let body = r#"{"name": "a", "openshift_version": "4.20", "pull_secret": "{\"auths\":{\"quay.io\":{\"auth\":\"dXNlcjpwYXNz\"}}}"}"#;
    let (status, answer) = second.ask(Method::Post, &format!("{API}/clusters"), body).await;
    assert_eq!(status, 201, "{answer}");
    until("the leader's monitors run", async || second.monitor_runs().await > 0).await;
    // Only who has the lock writes.
    let client = vlab_lab::postgres::connect(&conninfo).await.unwrap();
    let writers = "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND granted";
    let writer = async || client.query_one(writers, &[]).await.unwrap().get::<_, String>(0);
    assert_eq!(writer().await, "service-0");

    let renewed = "SELECT extract(epoch FROM renewed_at)::float8 FROM vlab_replicas.lease";
    let renewed: f64 = client.query_one(renewed, &[]).await.unwrap().get(0);
    first.die().await;
    second.infra_env("three").await;
    assert_eq!(second.infra_envs().await, 3);
    assert_eq!(writer().await, "service-1");
    // It answers, and decides nothing by itself as long as the one before might. However slow this computer is: the age is read last.
    let age = "SELECT extract(epoch FROM clock_timestamp())::float8 - $1";
    until("the new leader's monitors run", async || {
        let runs = second.monitor_runs().await;
        let age: f64 = client.query_one(age, &[&renewed]).await.unwrap().get(0);
        assert!(runs == 0 || age >= Times::at(PACE).duration.as_secs_f64(), "{runs} runs after {age} s");
        runs > 0
    })
    .await;

    // Whoever comes back stands by.
    let again = Running::start("service-0", &conninfo).await;
    again.infra_env("four").await;
    assert_eq!(second.infra_envs().await, 4);
    assert_eq!(writer().await, "service-1");
    again.stop().await;
    second.stop().await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_leader_that_stands_still_writes_nothing_any_more() {
    let server = PgCluster::start(vlab_lab::postgres::PgOptions::from_env()).await.unwrap();
    let conninfo = server.create_database("fenced").await.unwrap();
    // It has the lock and the lease, and then nothing is heard of it.
    let still = replica("service-0", &conninfo);
    let mut store = PgStore::connect(still.store()).await.unwrap();
    let lasts = still.take(&still.connect().await.unwrap(), ([127, 0, 0, 1], 1).into()).await.unwrap();
    assert_eq!(lasts, Duration::ZERO, "there was none before");

    let second = Running::start("service-1", &conninfo).await;
    second.infra_env("one").await;
    let late = vlab_service::Write::PutFile(vlab_service::FileRow { key: "a/late".into(), bytes: Arc::from(*b"x") });
    let refused = crate::store::Store::commit(&mut store, vec![late]).await.unwrap_err();
    assert!(refused.needs_reload(), "{refused}");
    let refused = crate::store::Store::load(&mut store).await.unwrap_err();
    assert!(matches!(refused, StoreError::InUse { .. }), "{refused}");
    second.stop().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_database_that_is_not_there_is_an_error() {
    let options = ServeOptions::new(Listen::Address(([127, 0, 0, 1], 0).into()), (), core());
    let nowhere = replica("service-0", "host=127.0.0.1 port=1 user=a dbname=b");
    let error = serve_replica(nowhere, options, CancellationToken::new()).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot load the service's state: the database cannot be reached"), "{error}");
}
