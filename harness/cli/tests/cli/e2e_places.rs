//! Machines that are not as one would wish: a home that cannot be written, temporary files that may not be started, packages that
//! cannot be had.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rstest::rstest;

use crate::bench::{CliFixture, RUN, Said, VLAB};

/// The small scenario that is over in seconds.
const SMALL: &str = "insufficient-hardware";

#[test]
fn a_home_that_cannot_be_written_is_no_obstacle() {
    let bench = CliFixture::new();
    let mut command = bench.command(&["scenario", SMALL]);
    // Nothing can be made there, whoever asks for it.
    command.env("HOME", "/proc/no-home").env_remove("XDG_CACHE_HOME");
    let said: Said = command.output().unwrap().into();
    said.ends_with(0).says(&["passed"]);
    bench.nothing_is_left();
}

#[test]
fn temporary_files_that_cannot_be_started_are_no_obstacle() {
    if !nix::unistd::geteuid().is_root() {
        vlab_skip::skip!("only root can mount a folder from which nothing can be started");
        return;
    }
    let bench = CliFixture::new();
    let tmp = bench.path("tmp");
    let script = format!(
        "mount --make-rprivate / && mount -t tmpfs -o noexec,mode=1777 tmpfs {} && exec {VLAB} scenario {SMALL}",
        tmp.display()
    );
    let mut command = bench.command_of("unshare".as_ref(), &["--mount", "sh", "-c", &script]);
    let said: Said = command.output().unwrap().into();
    said.ends_with(0).says(&["passed"]);
}

/// As a script that starts several at once does: none writes into the folder of another, and the newest is one of them.
#[test]
fn runs_of_the_same_second_have_a_folder_each() {
    let bench = CliFixture::new();
    let runs: Vec<_> = (0..4).map(|_| bench.start(&["simulate", SMALL])).collect();
    for run in runs {
        run.end(RUN).ends_with(0).says(&["passed"]);
    }
    let entries = fs::read_dir(bench.path("runs")).unwrap().map(|entry| entry.unwrap());
    let folders: Vec<_> = entries.filter(|entry| entry.file_type().unwrap().is_dir()).map(|e| e.path()).collect();
    assert_eq!(folders.len(), 4, "{folders:?}");
    assert!(folders.iter().all(|folder| folder.join("result.json").exists()), "{folders:?}");
    assert!(folders.contains(&bench.latest().canonicalize().unwrap()));
}

/// `vlab setup` where PostgreSQL is missing, with these programs and no others: what it says, and the exit code 3.
#[rstest]
#[case::no_network(None, &[("apt-get", "echo 'E: Unable to fetch some archives' >&2; exit 100")],
    &["E: Unable to fetch some archives", "not installed: PostgreSQL server", "the package mirror cannot be reached"])]
#[case::a_lock(None, &[("apt-get", "case \"$*\" in *Lock::Timeout=180*install*) echo 'E: Could not get lock' >&2; exit 100;; esac")],
    &["E: Could not get lock", "not installed: PostgreSQL server", "holds apt's lock"])]
#[case::a_password(Some("65534"), &[("apt-get", "exit 1"), ("sudo", "echo 'sudo: a password is required' >&2; exit 1")],
    &["`sudo` asks for a password, and there is no terminal; by hand it is", "apt-get"])]
#[case::no_sudo(Some("65534"), &[("apt-get", "exit 1")], &["not root, and there is no sudo; by hand it is", "postgresql"])]
#[case::another_system(Some("65534"), &[], &["there is no apt-get here; install the above by hand", "postgresql"])]
fn packages_that_cannot_be_had(
    #[case] user: Option<&str>,
    #[case] programs: &[(&str, &str)],
    #[case] expected: &[&str],
) {
    if !nix::unistd::geteuid().is_root() {
        vlab_skip::skip!("only root can hide PostgreSQL from a program");
        return;
    }
    let bench = CliFixture::new();
    let (bin, empty) = (bench.path("bin"), bench.path("empty"));
    for folder in [&bin, &empty] {
        fs::create_dir(folder).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (name, text) in programs {
        fs::write(bin.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    // What the set-up calls besides, as root.
    for name in ["sh", "mkdir", "dirname", "env", "rm"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{name}"), bin.join(name)).unwrap();
    }
    let switch = user.map(|user| format!("/usr/bin/setpriv --reuid={user} --clear-groups ")).unwrap_or_default();
    let script = format!(
        "mount --make-rprivate / && mount --bind {empty} /usr/lib/postgresql && mount --bind {empty} /etc/postgresql-common && \
         PATH={bin} exec {switch}{VLAB} setup",
        empty = empty.display(),
        bin = bin.display()
    );
    let mut command = bench.command_of("unshare".as_ref(), &["--mount", "sh", "-c", &script]);
    let said: Said = command.output().unwrap().into();
    said.ends_with(3).says(expected);
}
