//! The stand-in for podman as a program: what only shows when several of it run at once, and how it waits for a given installer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::json;
use vlab_node::say;

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

/// A machine to which a run gives an installer: a script that stands for the product's.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for (name, text) in
            [("installer", script), ("curl", "while [ \"$1\" != --output ]; do shift; done\ncp \"$3\" \"$2\"")]
        {
            std::fs::write(file(name), format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(file(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let config = json!({ "installer": file("installer"), "programs": { "curl": file("curl") } });
        std::fs::write(file("node.json"), config.to_string()).unwrap();
        Self(folder)
    }

    fn podman(&self, words: &str) -> Command {
        let file = |name: &str| self.0.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_vlab-node"));
        command.arg("podman").args(words.split_whitespace()).env("VLAB_NODE_CONSOLE", "no").stdin(Stdio::null());
        for (name, place) in [("RUN", "run"), ("LOG", "log"), ("GIVEN", "given"), ("CONFIG", "node.json")] {
            command.env(format!("VLAB_NODE_{name}"), file(place));
        }
        command
    }

    fn runs(&self) -> bool {
        let shown = self.podman("ps --quiet").output().unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("assisted-installer")
    }
}

const RUN: &str = "run --privileged --name=assisted-installer -v /dev:/dev:rw --env=PULL_SECRET_TOKEN registry.test/any@sha256:7 \
                   --role master --host-id 1";

#[test]
fn a_given_installer_is_waited_for_and_keeps_its_name() {
    let machine = Machine::new(
        "echo \"$0 $@\"\necho 'level=info msg=\"Updating node installation stage: Installing - master\" id=1' >&2\nexit 7",
    );
    let ran = machine.podman(RUN).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!(ran.status.code(), Some(7), "{errors}");
    assert!(said.ends_with("installer --role master --host-id 1\n"), "{said}");
    let told: Vec<_> = errors.lines().filter_map(say::read).filter(|(part, ..)| *part == "installer").collect();
    let about = json!({ "role": "master", "host_id": "1", "disk": null, "program": "given by the run" });
    assert_eq!(
        told,
        [
            ("installer", "started", about),
            ("installer", "stage", json!({ "stage": "Installing", "info": "master" })),
            ("installer", "failed", json!({ "problem": "exit status: 7" })),
        ]
    );
    let passed_on = r#"level=info msg="Updating node installation stage: Installing - master" id=1"#;
    assert!(errors.contains(passed_on), "{errors}");
    assert!(!machine.runs());
    let again = machine.podman(RUN).output().unwrap();
    let errors = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(125), "{errors}");
    assert!(errors.contains("the container name \"assisted-installer\" is already in use"), "{errors}");
    assert!(machine.podman("rm -f assisted-installer").status().unwrap().success());
    assert_eq!(machine.podman(&RUN.replacen("run", "run --rm", 1)).output().unwrap().status.code(), Some(7));
    assert_eq!(machine.podman(RUN).output().unwrap().status.code(), Some(7), "`--rm` gives the name back");
}

#[test]
fn a_given_installer_outlives_its_podman_and_is_killed_when_it_does_not_stop() {
    let machine = Machine::new("trap '' TERM\nwhile :; do echo on; sleep 0.1; done");
    let mut podman = machine.podman(RUN).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let wait = |until: &dyn Fn() -> bool| {
        let begin = std::time::Instant::now();
        while !until() {
            assert!(begin.elapsed().as_secs() < 30, "it did not come so far");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    let log = machine.0.path().join("log/assisted-installer.log");
    wait(&|| std::fs::read_to_string(&log).is_ok_and(|text| text.contains("on")));
    podman.kill().unwrap();
    podman.wait().unwrap();
    assert!(machine.runs());
    assert!(machine.podman("stop -i -t 1 assisted-installer").status().unwrap().success());
    assert!(!machine.runs());
}
