//! `vlab ssh` with a program in the place of `ssh`: which machine, in which network it runs, what it is told, what comes back.
//! The real one is with the virtual machines (`vm_installs`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use rstest::rstest;
use vlab_lab::ledger::{Ledger, Resource};
use vlab_lab::network::{Form, Namespace, NetworkError};
use vlab_lab::ssh::Keys;

use crate::bench::{CliFixture, Said, VLAB};

/// A run that goes on, this process being its harness, with a machine `node-0`.
fn run(bench: &CliFixture, name: &str) -> Arc<Ledger> {
    let ledger = Arc::new(Ledger::create(&bench.path("ledgers/vlab"), name).unwrap());
    let (directory, console) = (bench.path("machine"), bench.path("console.log"));
    ledger.record(Resource::Machine { name: "node-0".into(), directory, console, process: None, pgid: None }).unwrap();
    ledger
}

/// Says in which network it runs, as whom, what is in its configuration of the host, and its further words.
const SSH: &str = r#"#!/bin/sh
echo "net $(readlink /proc/self/ns/net) uid $(id -u) address $(grep HostName "$2")"
shift 2
echo "words $*"
exit 7
"#;

fn vlab(bench: &CliFixture, args: &[&str]) -> Said {
    let folder = bench.path("bin");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("ssh"), SSH).unwrap();
    fs::set_permissions(folder.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    bench.command(args).env("PATH", path).output().unwrap().into()
}

#[rstest]
fn ssh_runs_in_the_network_of_the_run(#[values(Form::Named, Form::User)] form: Form) {
    let bench = CliFixture::new();
    let ledger = run(&bench, &format!("ssh-{}", std::process::id()));
    let made =
        Namespace::create(&format!("vlab-{}", ledger.run()), form, &bench.path("tmp"), Path::new(VLAB), Some(&ledger));
    let namespace = match made {
        Err(why @ (NetworkError::NotPermitted { .. } | NetworkError::Missing { .. })) => {
            return vlab_skip::skip!("{why}");
        }
        made => made.unwrap(),
    };
    let address = ["192.0.2.10".parse().unwrap()];
    let keys = Keys::create(&ledger, [("node-0", address.as_slice())].into_iter(), None).unwrap();
    let said = vlab(&bench, &["ssh", "node-0", "uname", "-a", "--all"]).ends_with(7);
    let uid = nix::unistd::geteuid();
    said.says(&[&format!("uid {uid} address HostName 192.0.2.10"), "words -- node-0 uname -a --all"]);
    let said = vlab(&bench, &["ssh", "--run", ledger.run(), "-t", "node-0"]).ends_with(7);
    assert!(said.out.contains("words -t -- node-0\n"), "{}", said.out);
    let ours = fs::read_link("/proc/self/ns/net").unwrap();
    assert!(said.out.starts_with("net net:[") && !said.out.contains(ours.to_str().unwrap()), "{}", said.out);
    let mut nowhere = bench.command(&["ssh", "node-0"]);
    let said: Said = nowhere.env("PATH", bench.path("nowhere")).output().unwrap().into();
    said.ends_with(3).says(&["`ssh` is not installed (Debian: apt-get install openssh-client)"]);
    drop((keys, namespace));
    // The run is taken down meanwhile.
    vlab(&bench, &["ssh", "node-0"]).ends_with(2).says(&["`node-0`", "key"]);
}

#[test]
fn ssh_says_what_is_missing() {
    let bench = CliFixture::new();
    vlab(&bench, &["ssh", "node-0"]).ends_with(2).says(&["there is no virtual machine `node-0`: none is running"]);
    let (_one, _two) = (run(&bench, "one"), run(&bench, "two"));
    for verb in ["ssh", "console"] {
        let said = |args: &[&str]| vlab(&bench, &[&[verb], args].concat()).ends_with(2);
        said(&["node-0"]).says(&["several runs have a `node-0`: choose one with --run: one, two"]);
        said(&["--run", "one", "nod-0"]).says(&["`nod-0`: did you mean `node-0`? (`vlab machines` lists all)"]);
        said(&["--run", "on", "node-0"]).says(&["there is no run `on`", "did you mean `one`?"]);
    }
    let said = vlab(&bench, &["ssh", "--run", "one", "node-0"]).ends_with(2);
    said.says(&["vlab has no key for `node-0`", "`vlab console node-0`"]);
}
