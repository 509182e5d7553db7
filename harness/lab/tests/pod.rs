//! A program that believes to be in a pod.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use vlab_lab::pod;

/// What a program in a pod of that namespace sees; it runs as that user.
fn look(program: &Path, user: Option<u32>) -> Output {
    // What is beside the file's first folder, and what is in the file to its last byte.
    let script = format!(
        "ls -A /var/run | grep -vx secrets; echo '--'; printf '<%s>' \"$(od -An -c {} | tr -d ' \\n')\"; id -u; exit 7",
        pod::NAMESPACE_FILE
    );
    let mut command = Command::new(program);
    command.args([pod::VERB, "lab-ns", "/bin/sh", "-c", &script]).current_dir("/");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command.output().unwrap()
}

fn check(output: &Output, user: u32) {
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("no mount namespace of its own") {
        vlab_skip::skip!("this system gives nobody a mount namespace: {complaint}");
        return;
    }
    assert_eq!(output.status.code(), Some(7), "{said}{complaint}");
    let (seen, rest) = said.split_once("--\n").unwrap();
    assert_eq!(rest, format!("<lab-ns>{user}\n"), "{said}{complaint}");
    // Entries come and go; those that stay are seen.
    let mut there: Vec<String> =
        fs::read_dir("/var/run").unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    there.retain(|name| name != "secrets");
    let missing: Vec<&String> = there.iter().filter(|name| !seen.lines().any(|line| line == *name)).collect();
    assert!(missing.is_empty(), "not seen: {missing:?}\n{said}{complaint}");
}

#[test]
fn it_finds_its_namespace_and_everything_else_as_it_was() {
    let before = Path::new(pod::NAMESPACE_FILE).exists();
    check(&look(Path::new(env!("CARGO_BIN_EXE_mini-harness")), None), nix::unistd::geteuid().as_raw());
    assert_eq!(Path::new(pod::NAMESPACE_FILE).exists(), before, "this computer has no more than it had");
}

#[test]
fn an_ordinary_user_stays_who_they_are() {
    if !nix::unistd::geteuid().is_root() {
        vlab_skip::skip!("not root, so the other test runs as an ordinary user already");
        return;
    }
    // Where an ordinary user can start it.
    let folder = tempfile::Builder::new().prefix("vlab-pod-").tempdir().unwrap();
    let program: PathBuf = folder.path().join("mini");
    fs::copy(env!("CARGO_BIN_EXE_mini-harness"), &program).unwrap();
    for path in [folder.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    check(&look(&program, Some(65_534)), 65_534);
}

#[test]
fn it_has_a_host_name_and_a_service_account_of_its_own() {
    let account = tempfile::Builder::new().prefix("vlab-account-").tempdir().unwrap();
    fs::write(account.path().join("token"), "secret").unwrap();
    fs::write(account.path().join("ca.crt"), "authority").unwrap();
    let script = format!(
        "cd {}; cat token ca.crt namespace; uname -n",
        Path::new(pod::NAMESPACE_FILE).parent().unwrap().display()
    );
    let output = Command::new(env!("CARGO_BIN_EXE_mini-harness"))
        .args([pod::VERB, pod::HOST, "service-1", pod::ACCOUNT])
        .arg(account.path())
        .args(["lab-ns", "/bin/sh", "-c", &script])
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("no mount namespace of its own") {
        vlab_skip::skip!("this system gives nobody a mount namespace: {complaint}");
        return;
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), "secretauthoritylab-nsservice-1\n", "{complaint}");
    let before = nix::unistd::gethostname().unwrap();
    assert_ne!(before, "service-1", "this computer is called as it was");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_mini-harness"))
        .args([pod::VERB, "lab-ns", "/nonexistent/program"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("/nonexistent/program cannot be started as in a pod"), "{said}");
}
