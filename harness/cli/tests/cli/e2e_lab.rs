//! A machine that cannot carry a run: taken ports, no PostgreSQL or an old one, full or unwritable disks.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rstest::rstest;
use vlab_judge::result::{CheckKind, Verdict};

use crate::bench::{CliFixture, RUN, VLAB};

#[test]
fn a_taken_port_is_named() {
    let bench = CliFixture::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let service = bench.start(&["service", "--listen", &address.to_string()]);
    service.end(RUN).ends_with(3).says(&[&format!("port {} of 127.0.0.1 is taken", address.port())]);
}

#[rstest]
#[case("not an address")]
#[case("127.0.0.1")]
#[case("127.0.0.1:99999")]
fn an_address_that_is_none_is_wrong_usage(#[case] address: &str) {
    CliFixture::new().vlab(&["service", "--listen", address]).ends_with(2).says(&["--listen", address]);
}

#[test]
fn a_database_that_is_not_there_is_named() {
    let bench = CliFixture::new();
    // Nobody listens there: the listener is gone again.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgres://somebody:swordfish77@127.0.0.1:{port}/none");
    let said = bench.command(&["service", "--listen", "127.0.0.1:0"]).env("VLAB_POSTGRES", url).output().unwrap();
    let said = crate::bench::Said::from(said).ends_with(3).says(&["database"]);
    assert!(!said.err.contains("swordfish77"), "{}", said.err);
}

#[test]
fn no_postgresql_says_how_to_get_it() {
    let bench = CliFixture::new();
    let empty = bench.path("empty");
    fs::create_dir(&empty).unwrap();
    let said = bench.command(&["scenario", "sno", "--no-setup"]).env("VLAB_PG_BIN", &empty).output().unwrap();
    crate::bench::Said::from(said).ends_with(3).says(&[empty.to_str().unwrap(), "correct or unset it"]);
    bench.nothing_is_left();
}

#[test]
fn an_old_postgresql_says_what_is_needed() {
    let bench = CliFixture::new();
    let old = bench.path("old");
    fs::create_dir(&old).unwrap();
    for name in ["initdb", "postgres"] {
        fs::write(old.join(name), "#!/bin/sh\necho 'postgres (PostgreSQL) 9.6.24'\n").unwrap();
        fs::set_permissions(old.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let said = bench.command(&["scenario", "sno", "--no-setup"]).env("VLAB_PG_BIN", &old).output().unwrap();
    crate::bench::Said::from(said).ends_with(3).says(&["9.6.24", "13 or newer", "fix"]);
    bench.nothing_is_left();
}

/// The folder's name is taken by a file: nobody can write there, not even root.
#[test]
fn an_output_folder_that_cannot_be_made_is_named() {
    let bench = CliFixture::new();
    let file = bench.file("file", "I am no folder");
    let below = format!("{file}/runs");
    for verb in ["scenario", "simulate"] {
        bench.vlab(&[verb, "sno", "--output-dir", &below]).ends_with(3).says(&[&below, "inconclusive"]);
    }
    bench.nothing_is_left();
}

/// Can this user mount a file system that only its own processes see, and that is gone with them?
fn can_mount(at: &Path) -> bool {
    let tried = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "tmpfs"]).arg(at).output();
    let why = match tried {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    vlab_skip::skip!("a small disk cannot be mounted: {why}");
    false
}

/// From a disk that is full before the first file to one that becomes full in the middle of the history or in the report.
#[rstest]
fn a_full_disk_is_inconclusive_and_says_so(#[values(4, 40, 200)] kib: u32) {
    let bench = CliFixture::new();
    let small = bench.path("small");
    fs::create_dir(&small).unwrap();
    if !can_mount(&small) {
        return;
    }
    let script =
        r#"mount -t tmpfs -o "size=$1k,mode=0755" tmpfs "$2" && exec "$3" scenario sno --output-dir "$2/runs""#;
    let plain = bench.command(&[]);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", &kib.to_string()]).arg(&small).arg(VLAB);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let said = crate::bench::Said::from(command.output().unwrap()).ends_with(3);
    let said = said.says(&["inconclusive", "No space left on device", small.join("runs").to_str().unwrap()]);
    assert!(!said.err.contains("panicked"), "{}", said.err);
    bench.nothing_is_left();
}

/// A run whose set-up fails has a folder that says so.
#[test]
fn a_failed_set_up_has_a_report() {
    let bench = CliFixture::new();
    // Programs of the right version that cannot make a database.
    let odd = bench.path("odd");
    fs::create_dir(&odd).unwrap();
    for name in ["initdb", "postgres"] {
        let script = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'postgres (PostgreSQL) 15.1' && exit 0\necho 'a disk is on fire' >&2\nexit 1\n";
        fs::write(odd.join(name), script).unwrap();
        fs::set_permissions(odd.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = bench.command(&["scenario", "sno", "--no-setup"]);
    // Its own cache: one that holds a ready database would not ask these programs.
    command.env("VLAB_PG_BIN", &odd).env("XDG_CACHE_HOME", bench.path("cache"));
    crate::bench::Said::from(command.output().unwrap()).ends_with(3).says(&["inconclusive"]);
    let result = bench.result();
    assert_eq!(result.verdict, Verdict::Inconclusive);
    assert!(
        result.checks.iter().any(|c| c.kind == CheckKind::Lab && c.message.contains("a disk is on fire")),
        "{result:#?}"
    );
    assert!(bench.latest().join("report.html").exists());
    bench.nothing_is_left();
}
