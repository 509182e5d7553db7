//! What a bad client may not do.

use super::*;

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
