//! Python clients from PyPI over HTTPS. `VLAB_PYTHON` names a Python that has them; else `python3` is asked.

mod common;

use std::path::Path;
use std::process::Command;

use rstest::rstest;

/// A Python that has that module.
fn python(module: &str) -> Option<String> {
    let python = std::env::var("VLAB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", &format!("import {module}, yaml")]).output();
    found.is_ok_and(|out| out.status.success()).then_some(python)
}

#[rstest]
#[case("kubernetes")]
#[case("kr8s")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_clients(#[case] module: &str) {
    let Some(python) = python(module) else {
        vlab_skip::skip!(
            "no Python has the module {module}; `pip install {module}` installs it, VLAB_PYTHON names another Python"
        );
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let (_server, kubeconfig) = common::server().await;
    let config = home.path().join("config");
    std::fs::write(&config, kubeconfig).unwrap();
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let done = Command::new(python)
        .arg(clients.join(format!("with_{module}.py")))
        .args([config, clients.join("thing.yaml")])
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}
