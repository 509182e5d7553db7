//! Tools that people have, against `vlab service`: `aicli` and the generated Python client (`assisted-service-client`), both from PyPI.
//! `VLAB_PYTHON` names a Python that has them; else `python3` is asked.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::bench::{CliFixture, RUN, Said, until};

/// A row of `clients.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    run: String,
    #[serde(default)]
    code: i32,
    #[serde(default)]
    patiently: bool,
    says: Vec<serde_json::Value>,
}

/// A Python that has that module.
fn python(module: &str) -> Option<String> {
    let python = std::env::var("VLAB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if found.is_ok_and(|out| out.status.success()) {
        return Some(python);
    }
    vlab_skip::skip!(
        "{python} has no module {module}; `pip install aicli` installs it, and VLAB_PYTHON names another Python"
    );
    None
}

fn work(bench: &CliFixture) -> std::path::PathBuf {
    let work = bench.path("work");
    for folder in [".ssh", "manifests"] {
        fs::create_dir_all(work.join(folder)).unwrap();
    }
    let secret = r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz","email":"a@b.example"}}}"#;
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIO3fbPbXoXqR0s1QPz0F0pJ5sY0oVh6nC5Z0l2m0aTbC lab";
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: default}\n";
    for (name, text) in [("openshift_pull.json", secret), (".ssh/id_rsa.pub", key), ("manifests/x.yaml", manifest)] {
        fs::write(work.join(name), text).unwrap();
    }
    work
}

fn aicli(python: &str, url: &str, work: &Path, words: &str) -> Said {
    let words = words.replace("WORK", work.to_str().unwrap());
    let start = "import sys; from ailib.cli import cli; sys.argv[0] = 'aicli'; sys.exit(cli())";
    let mut command = Command::new(python);
    command.args(["-c", start, "-U", url]).args(words.split_whitespace()).current_dir(work).env("HOME", work);
    command
        .env("NO_COLOR", "1")
        .env_remove("AI_URL")
        .env_remove("AI_OFFLINETOKEN")
        .env_remove("AI_TOKEN")
        .output()
        .unwrap()
        .into()
}

#[test]
fn e2e_aicli_is_content_with_the_simulated_service() {
    let Some(python) = python("ailib") else { return };
    let bench = CliFixture::new();
    let (_service, url) = bench.service(&[]);
    let work = work(&bench);
    let rows: Vec<Row> = serde_yaml::from_str(include_str!("clients.yaml")).unwrap();
    for row in rows {
        println!("aicli {}", row.run);
        let says: Vec<String> =
            row.says.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned)).collect();
        let says: Vec<&str> = says.iter().map(String::as_str).collect();
        if row.patiently {
            let says_it = || {
                let said = aicli(&python, &url, &work, &row.run);
                says.iter().all(|word| said.out.contains(word))
            };
            until(&row.run, RUN, says_it);
        }
        aicli(&python, &url, &work, &row.run).ends_with(row.code).says(&says);
    }
}

#[test]
fn e2e_the_generated_client_reads_back_what_it_wrote() {
    let Some(python) = python("assisted_service_client") else { return };
    let bench = CliFixture::new();
    let (_service, url) = bench.service(&[]);
    let secret = work(&bench).join("openshift_pull.json");
    let said: Said =
        Command::new(python).args(["-c", include_str!("clients.py"), &url]).arg(secret).output().unwrap().into();
    said.ends_with(0).says(&["the generated client is content"]);
}
