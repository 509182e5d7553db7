//! The stand-in for podman as a program: what only shows when several of it run at once.

use std::process::{Command, Stdio};

/// The service repeats the step `install` until the installer has told that it runs; on a slow machine that is many times.
#[test]
fn of_many_who_ask_for_a_name_at_once_one_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let podman = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vlab-node"));
        command.arg("podman").args(args).env("VLAB_NODE_CONSOLE", "no").env("VLAB_NODE_RUN", folder.path().join("run"));
        command.env("VLAB_NODE_LOG", folder.path().join("log")).stdin(Stdio::null());
        command
    };
    let run = ["run", "--detach", "--name=assisted-installer", "q.test/installer:1", "/bin/sleep", "60"];
    let asking: Vec<_> =
        (0..12).map(|_| podman(&run).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()).collect();
    let answers: Vec<_> = asking.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    assert!(podman(&["stop", "assisted-installer"]).status().unwrap().success());
    let started = answers.iter().filter(|a| a.status.success()).count();
    assert_eq!(started, 1, "{answers:?}");
    for refused in answers.iter().filter(|a| !a.status.success()) {
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125), "{said}");
        assert!(said.contains("the container name \"assisted-installer\" is already in use"), "{said}");
    }
}
