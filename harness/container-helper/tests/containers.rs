//! One container of a real engine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use vlab_lab::containers::{ContainerSpec, Pod, PodOptions};

/// What came of a container on this port, and whether anything of it is left.
async fn start(port: u16) -> Option<String> {
    const IMAGE: &str = "vlab-postgres";
    let engine = vlab_container_engine::find();
    let there = engine.as_ref().is_ok_and(|engine| engine.image(IMAGE).unwrap().is_some());
    if !there {
        vlab_skip::skip!("no container engine with the image {IMAGE}: {engine:?}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = format!("mini-{}-{port}", std::process::id());
    let pod = Pod::create(PodOptions {
        run: run.clone(),
        ledger: None,
        helper: Some(PathBuf::from(env!("CARGO_BIN_EXE_vlab-container-helper"))),
        helper_log: folder.path().join("container-helper.log"),
    });
    let pod = pod.await.unwrap();
    let spec = ContainerSpec {
        what: "test".to_owned(),
        image: IMAGE.to_owned(),
        // Without a password the image's program ends at once, and an ended container has no port.
        env: vec![("POSTGRES_PASSWORD".to_owned(), "test".to_owned())],
        args: Vec::new(),
        port: 5432,
        host_port: Some(port),
        volume: None,
        scratch: None,
        files: Vec::new(),
        log_file: folder.path().join("log"),
    };
    let said = match pod.start(spec).await {
        Ok(container) => {
            let said = format!("started on port {}", container.host_port());
            container.remove(Duration::ZERO).await.unwrap();
            said
        }
        Err(error) => error.to_string(),
    };
    pod.remove().await.unwrap();
    let left: Vec<_> = engine.unwrap().labelled().unwrap().into_iter().filter(|thing| thing.run == run).collect();
    assert_eq!(left, []);
    Some(said)
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_with_what_takes_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let Some(said) = start(port).await else { return };
    assert!(said.contains(&format!("port {port} of 127.0.0.1 is taken")) && said.contains("ss -ltnp"), "{said}");
    drop(listener);
    assert_eq!(start(port).await.unwrap(), format!("started on port {port}"), "the same one when it is free");
}
