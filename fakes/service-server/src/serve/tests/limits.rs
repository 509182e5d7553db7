//! What a bad client may not do.

use super::*;
use crate::engine::{Asked, Engine, Job, Ways};

/// A request to upload the logs of a cluster, without its end.
fn upload(length: usize) -> String {
    let path = "/api/assisted-install/v2/clusters/00000000-0000-0000-0000-000000000001/logs?logs_type=host";
    format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n")
}

#[tokio::test]
async fn only_what_brings_files_may_be_large() {
    let limits = Limits { upload_bytes: 5000, ..short() };
    let service = Running::start(MemoryStore::new(), NotesConfig::default(), limits).await;
    let mut client = service.client().await;
    client.send(upload(5000) + &"x".repeat(5000)).await;
    assert_eq!(client.answer().await.unwrap().status, 404, "it got to the core, which knows no logs");
    client.send(upload(5001) + &"x".repeat(5001)).await;
    assert_eq!(client.answer().await.unwrap().reason(), "the body is larger than the 5000 bytes that are allowed");
    assert_eq!(client.ask("POST", "/notes/a", &"x".repeat(1001)).await.status, 413);
    service.stop().await;
    let defaults = Limits::default();
    assert_eq!((defaults.body_bytes, defaults.upload_bytes), (1 << 20, 100 << 20));
}

#[tokio::test]
async fn a_body_that_never_pauses_and_never_ends_is_cut_off() {
    let limits = Limits { body_time: Duration::from_millis(300), body_pause: Duration::from_secs(60), ..short() };
    let service = Running::start(MemoryStore::new(), NotesConfig::default(), limits).await;
    let mut client = service.client().await;
    client.send("POST /notes/a HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n").await;
    let (mut reading, mut writing) = client.stream.into_split();
    let dribble = tokio::spawn(async move {
        while writing.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(60), reading.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the connection is still open");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("the body took longer than 300ms"), "{answer}");
    dribble.abort();
    service.stop().await;
}

#[tokio::test]
async fn bodies_of_all_clients_share_the_memory() {
    let limits = Limits { buffered_bytes: 64 * 1024, upload_bytes: 60 * 1024, ..Limits::default() };
    let service = Running::start(MemoryStore::new(), NotesConfig::default(), limits).await;
    let mut holds = service.client().await;
    holds.send(upload(50 * 1024) + &"x".repeat(49 * 1024)).await;
    let full = async || {
        let mut other = service.client().await;
        other.send(upload(40 * 1024) + &"x".repeat(40 * 1024)).await;
        let answer = other.answer().await.unwrap();
        if answer.status == 503 {
            assert!(answer.head.contains("retry-after: 1") && answer.body.contains("too much is being uploaded"));
        }
        answer.status == 503
    };
    until("the first body to fill the memory", full).await;
    holds.send("x".repeat(1024)).await;
    assert_eq!(holds.answer().await.unwrap().status, 404);
    // Given back with the answer.
    assert!(!full().await);
    service.stop().await;
}

#[tokio::test]
async fn so_many_connections_and_no_more() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let service = Running::start(MemoryStore::new(), NotesConfig::default(), limits).await;
    let mut first = service.client().await;
    let mut second = service.client().await;
    assert_eq!(first.ask("POST", "/notes/a", "x").await.status, 201);
    assert_eq!(second.ask("GET", "/notes/a", "").await.status, 200);
    let mut third = service.client().await;
    third.send("GET /notes/a HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(tokio::time::timeout(Duration::from_millis(300), third.answer()).await.is_err(), "it is served");
    drop(first);
    assert_eq!(third.answer().await.unwrap().status, 200);
    service.stop().await;
}

#[tokio::test]
async fn a_client_that_takes_no_answer_is_let_go() {
    let limits = Limits { write_pause: Duration::from_millis(300), ..Limits::default() };
    let service = Running::start(MemoryStore::new(), NotesConfig::default(), limits).await;
    let mut client = service.client().await;
    assert_eq!(client.ask("POST", "/notes/a", &"x".repeat(1 << 20)).await.status, 201);
    // More answers than the kernel keeps for one that does not read.
    let ask = "GET /notes/a HTTP/1.1\r\nhost: x\r\n\r\n".repeat(64);
    client.send(ask).await;
    let gone = async || {
        let page = service.ask("GET", "/metrics", "").await.body;
        page.lines().any(|line| line == "vlab_service_connections 1")
    };
    until("the connection that asks for the metrics to be the only one", gone).await;
    service.stop().await;
}

/// What an engine makes of that many requests that have waited for a minute: how many it answers with each status.
async fn after_a_minute(requests: usize, limits: Limits) -> BTreeMap<u16, usize> {
    let (jobs, queue) = mpsc::channel(requests);
    let long_ago = std::time::Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    let mut answers = Vec::new();
    for n in 0..requests {
        let (reply, answer) = oneshot::channel();
        let request = Request::new(Method::Post, format!("/notes/{n}"));
        jobs.send(Job::Request(Asked { since: long_ago, ..Asked::new(request, reply) })).await.unwrap();
        answers.push(answer);
    }
    drop(jobs);
    let (limits, metrics) = (Arc::new(limits), Arc::new(Metrics::new()));
    let ways = Ways { queue, asks: None };
    let config = NotesConfig::default();
    let engine =
        Engine::<Notes, _>::new(config, MemoryStore::new(), Snapshot::default(), ways, limits, metrics.clone());
    engine.run().await.unwrap();
    let mut counts = BTreeMap::new();
    for answer in answers {
        let answer = answer.await.unwrap();
        if answer.status == 429 {
            assert_eq!(answer.get_header("retry-after"), Some("60"));
            assert!(answer.decode::<ErrorBody>().unwrap().reason.contains("has waited for 60."), "{answer:?}");
        }
        *counts.entry(answer.status).or_default() += 1;
    }
    let away = format!("vlab_service_turned_away_total {}", counts.get(&429).unwrap_or(&0));
    let page = metrics.page(None);
    assert!(page.lines().any(|line| line == away), "{away}: {page}");
    counts
}

#[tokio::test]
async fn who_waits_too_long_behind_too_many_is_told_to_come_again() {
    let limits = |max_wait| Limits { batch: 4, max_wait: Duration::from_secs(max_wait), ..Limits::default() };
    assert_eq!(after_a_minute(10, limits(10)).await, BTreeMap::from([(429, 8), (201, 2)]), "two batches are crowded");
    assert_eq!(after_a_minute(3, limits(10)).await, BTreeMap::from([(201, 3)]), "nobody is behind anybody");
    assert_eq!(after_a_minute(10, limits(100)).await, BTreeMap::from([(201, 10)]), "nobody has waited for so long");
}

#[tokio::test]
async fn a_fleet_that_connects_at_once_need_not_be_accepted_at_once() {
    let (listener, address) = bind(Listen::Address(([127, 0, 0, 1], 0).into())).unwrap();
    // Nobody accepts. What finds no place in the kernel's queue is tried again after a second, and later, and later.
    let patience = Duration::from_secs(30);
    let all = (0..600).map(|i| {
        std::net::TcpStream::connect_timeout(&address, patience).unwrap_or_else(|e| panic!("connection {i}: {e}"))
    });
    let all: Vec<_> = all.collect();
    assert_eq!(all.len(), 600);
    drop(listener);
}
