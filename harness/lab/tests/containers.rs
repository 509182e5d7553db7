//! One container of a real engine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::net::TcpListener;
use std::process::{Command, Stdio};

/// What came of a container on this port, and whether anything of it is left.
fn start(port: u16) -> Option<String> {
    const IMAGE: &str = "vlab-postgres";
    let engine = vlab_container_engine::find();
    let there = engine.as_ref().is_ok_and(|engine| engine.image(IMAGE).unwrap().is_some());
    if !there {
        let required = std::env::var("VLAB_TEST_CONTAINERS").is_ok_and(|value| value == "required");
        assert!(!required, "the tests with containers are required here: no engine with {IMAGE}: {engine:?}");
        eprintln!("skipped: no engine with the image {IMAGE}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let port = port.to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mini-harness"));
    command.args(["container", IMAGE, &port]).arg(folder.path()).env("XDG_RUNTIME_DIR", folder.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let run = format!("mini-{}", child.id());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> = engine.unwrap().labelled().unwrap().into_iter().filter(|thing| thing.run == run).collect();
    assert_eq!(left, []);
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_port_that_is_taken_is_told_with_what_takes_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let Some(said) = start(port) else { return };
    assert!(said.contains(&format!("port {port} of 127.0.0.1 is taken")) && said.contains("ss -ltnp"), "{said}");
    drop(listener);
    assert_eq!(start(port).unwrap(), format!("started on port {port}\n"), "the same one when it is free");
}
