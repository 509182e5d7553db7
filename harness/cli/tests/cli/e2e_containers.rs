//! The service and PostgreSQL as containers of a real engine: scenarios pass, and whatever goes wrong is told with its cause
//! and leaves nothing.
//!
//! Without an engine these tests are skipped; `cargo xtask test` starts one.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use rstest::rstest;
use vlab_container_engine::{Engine, LABEL_OWNER, LABEL_RUN, Thing};
use vlab_images::cache::Cache;
use vlab_images::container::{self, Start};
use vlab_images::manifest::Manifest;
use vlab_images::packages;
use vlab_images::rootfs::Rootfs;
use vlab_lab::containers::Owner;

use crate::bench::{CliFixture, RUN, VLAB, until};

/// How long a run may take in containers on a busy machine.
const LONG: Duration = Duration::from_secs(150);

/// The engine with our images in it; `None`: the test is skipped.
fn engine() -> Option<Engine> {
    let problem = match vlab_container_engine::find() {
        Err(none) => none.to_string(),
        Ok(engine) => {
            let missing: Vec<&str> = ["vlab-service", "vlab-postgres"]
                .into_iter()
                .filter(|image| engine.image(image).unwrap().is_none())
                .collect();
            if missing.is_empty() {
                return Some(engine);
            }
            format!("{engine} has no image {}: `cargo xtask images` builds it", missing.join(", "))
        }
    };
    vlab_skip::skip!("{problem}");
    None
}

/// What the engine has of the runs of this bench.
fn left(engine: &Engine, bench: &CliFixture) -> Vec<String> {
    let runs: Vec<String> = std::fs::read_dir(bench.path("runs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    let all = engine.labelled().unwrap();
    all.into_iter()
        .filter(|thing| runs.contains(&thing.run))
        .map(|thing| format!("{} {}", thing.thing, thing.name))
        .collect()
}

#[track_caller]
fn nothing_is_left(engine: &Engine, bench: &CliFixture) {
    bench.nothing_is_left();
    assert_eq!(left(engine, bench), [""; 0]);
}

/// An image that runs a line of shell, made of the packages that `vlab-postgres` is made of.
fn shell_image(engine: &Engine, name: &str, script: &str, whole: bool) -> String {
    let (cache, manifest) = (Cache::of_this_user(), Manifest::built_in().unwrap());
    let mut tree = Rootfs::merged_usr();
    for package in manifest.packages("postgres").unwrap() {
        const SHELL: &[&str] =
            &["libc6", "dash", "coreutils", "libacl1", "libattr1", "libgmp10", "libpcre2-8-0", "libselinux1"];
        if whole || SHELL.contains(&package.name.as_str()) {
            tree.add_tar(&packages::contents(&cache, &manifest, package).unwrap()).unwrap();
        }
    }
    tree.symlink("bin/sh", "dash");
    tree.directory("tmp", 0o1777);
    tree.directory("run/postgresql", 0o1777);
    tree.directory("var/lib/postgresql/data", 0o700);
    tree.chown("var/lib/postgresql/data", 999, 999).unwrap();
    tree.file("etc/passwd", 0o644, "postgres:x:999:999::/:/bin/sh\n");
    tree.file("start", 0o755, include_str!("../../../../images/files/vlab-postgres-start"));
    let mut start = Start { user: "999:999".into(), directory: "/".into(), ..Start::default() };
    start.entrypoint = vec!["/bin/sh".into(), "-c".into(), script.into(), "sh".into()];
    start.env.insert("PATH".into(), "/usr/lib/postgresql/15/bin:/usr/bin:/bin".into());
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("image.tar");
    let name = format!("{name}:test");
    container::write(&tree, &start, "amd64", &name, &archive).unwrap();
    engine.load(&archive).unwrap();
    name
}

#[rstest]
#[case("sno", 1)]
#[case("ha-3-2", 5)]
fn scenarios_pass_with_both_in_containers(#[case] scenario: &str, #[case] hosts: usize) {
    let Some(engine) = engine() else { return };
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", scenario, "--service", "container:vlab-service", "--quiet"]);
    // While it runs: what is published is published on 127.0.0.1 only.
    bench.wait_for_history("known");
    let mut published = 0;
    for name in left(&engine, &bench).iter().filter_map(|thing| thing.strip_prefix("container ")) {
        published += engine.inspect(name).unwrap().unwrap().ports.len();
    }
    assert_eq!(published, 2, "one port of each container");
    let addresses = listening_elsewhere(&engine, &bench);
    assert_eq!(addresses, [""; 0], "ports on other addresses than 127.0.0.1");
    run.end(LONG).ends_with(0).says(&[&format!("{scenario} passed"), "service ready after"]);
    let result = bench.result();
    let startup = result.startup.unwrap();
    assert!(startup.service_ready_ms > 0.0 && startup.postgres_ready_ms.unwrap() > 0.0, "{startup:?}");
    assert!(result.run.versions["postgresql"].starts_with("PostgreSQL 1"), "{:?}", result.run.versions);
    assert!(result.run.versions["container engine"].contains(&engine.version), "{:?}", result.run.versions);
    assert_eq!(result.run.expected_hosts.len(), hosts);
    for log in ["service.log", "postgresql.log"] {
        assert!(std::fs::metadata(bench.latest().join(log)).unwrap().len() > 0, "{log} is empty");
    }
    let log = std::fs::read_to_string(bench.latest().join("postgresql.log")).unwrap();
    assert!(log.contains("database system is shut down"), "the end of the log is there, too:\n{log}");
    // States of milliseconds are only seen by the trigger in the container's database.
    assert!(bench.history().iter().any(|o| o.source == vlab_model::history::Source::Database));
    nothing_is_left(&engine, &bench);
    bench.vlab(&["check", "latest"]).ends_with(0);
}

/// The controllers in the service's container work on the API server of the run, which is a program of this computer.
/// On day 2 they ask the API server of the cluster, too.
#[test]
fn controllers_in_a_container_work_on_the_api_server_of_the_run() {
    let Some(engine) = engine() else { return };
    let bench = CliFixture::new();
    let args = ["scenario", "kube-node-joins", "--service", "container:vlab-service", "--quiet"];
    bench.vlab_within(LONG, &args).ends_with(0).says(&["kube-node-joins passed"]);
    let result = bench.result();
    assert!(result.run.versions["container engine"].contains(&engine.version), "{:?}", result.run.versions);
    let told = |o: &vlab_model::history::Observation| matches!(o.what, vlab_model::history::What::Resource { .. });
    assert!(bench.history().iter().any(told), "nothing from the API server");
    nothing_is_left(&engine, &bench);
}

/// What a container cannot have is told before anything starts.
#[rstest]
#[case(&["kube-sno", "--hosts", "vm"], "use `--hosts sim`")]
#[case(&["kube-lease-taken"], "a container is not started again")]
fn what_controllers_in_a_container_cannot_do(#[case] args: &[&str], #[case] why: &str) {
    let bench = CliFixture::new();
    let all = [&["scenario"], args, &["--service", "container:vlab-service"]].concat();
    bench.vlab(&all).ends_with(2).says(&[why]);
}

/// Ports of this bench's containers that are bound to other addresses than 127.0.0.1.
fn listening_elsewhere(engine: &Engine, bench: &CliFixture) -> Vec<String> {
    let ports: Vec<u16> = left(engine, bench)
        .iter()
        .filter_map(|thing| thing.strip_prefix("container "))
        .flat_map(|name| engine.inspect(name).unwrap().unwrap().ports)
        .map(|(_, port)| port)
        .collect();
    let loopback = "0100007F";
    let mut elsewhere = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in std::fs::read_to_string(file).unwrap_or_default().lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (Some((address, port)), Some(&"0A")) = (words[1].split_once(':'), words.get(3)) else { continue };
            let port = u16::from_str_radix(port, 16).unwrap();
            if ports.contains(&port) && address != loopback {
                elsewhere.push(format!("{address}:{port}"));
            }
        }
    }
    elsewhere
}

#[test]
fn kill_9_of_the_harness_leaves_no_container() {
    let Some(engine) = engine() else { return };
    // While the containers are made, and while hosts install.
    for moment in ["network", "container", "Writing image to disk"] {
        let bench = CliFixture::new();
        let run = bench.start(&["scenario", "sno", "--service", "container:vlab-service", "--quiet"]);
        match moment {
            "Writing image to disk" => bench.wait_for_history(moment),
            thing => until(thing, RUN, || left(&engine, &bench).iter().any(|name| name.starts_with(thing))),
        }
        run.signal("KILL");
        drop(run);
        until("the supervisor's end", RUN, || bench.leftovers().is_empty() && left(&engine, &bench).is_empty());
        nothing_is_left(&engine, &bench);
    }
}

#[test]
fn ctrl_c_leaves_no_container() {
    let Some(engine) = engine() else { return };
    for moment in ["network", "container"] {
        let bench = CliFixture::new();
        let run = bench.start(&["scenario", "sno", "--service", "container:vlab-service", "--quiet"]);
        until(moment, RUN, || left(&engine, &bench).iter().any(|name| name.starts_with(moment)));
        run.signal("INT");
        run.end(LONG).ends_with(3).says(&["interrupted"]);
        nothing_is_left(&engine, &bench);
    }
}

/// Their ledger is gone with the machine's temporary files; only the labels tell.
#[test]
fn gc_finds_by_their_labels_what_dead_runs_left_and_only_that() {
    let Some(engine) = engine() else { return };
    let bench = CliFixture::new();
    let name = |what: &str| format!("vlab-test-gc-{}-{what}", std::process::id());
    let me = Owner::me().unwrap().to_string();
    // The same process number with another start time: that one is dead.
    let (most, _) = me.rsplit_once(' ').unwrap();
    let (dead, alive, strange) = (name("dead"), name("alive"), name("strange"));
    for (name, owner) in [(&dead, format!("{most} 1")), (&alive, me), (&strange, "somebody".to_owned())] {
        engine.create_network(name, &[(LABEL_RUN, name), (LABEL_OWNER, &owner)]).unwrap();
        engine.create_volume(name, &[(LABEL_RUN, name), (LABEL_OWNER, &owner)]).unwrap();
    }
    let dry = bench.vlab(&["gc", "--dry-run"]).ends_with(0);
    let real = bench.vlab(&["gc"]);
    let there = |name: &str| [Thing::Network, Thing::Volume].map(|thing| engine.exists(thing, name).unwrap());
    let seen = [&dead, &alive, &strange].map(|name| there(name));
    for name in [&dead, &alive, &strange] {
        engine.remove(Thing::Network, name).unwrap();
        engine.remove(Thing::Volume, name).unwrap();
    }
    real.ends_with(0).says(&[&format!("removed network {dead}"), &format!("removed volume {dead}")]);
    dry.says(&[
        &format!("its run is dead: network {dead}"),
        "it cannot be told from here whether its run is still alive",
    ]);
    assert_eq!(seen, [[false; 2], [true; 2], [true; 2]]);
}

#[test]
fn an_image_that_is_not_there_is_told_with_similar_names() {
    let Some(engine) = engine() else { return };
    let bench = CliFixture::new();
    bench.vlab(&["scenario", "sno", "--service", "container:vlab-servise", "--quiet"]).ends_with(3).says(&[
        "there is no image vlab-servise",
        "images here:",
        "vlab-service",
        "cargo xtask images",
    ]);
    nothing_is_left(&engine, &bench);
    // PostgreSQL's is looked for before anything is started.
    let service = ["scenario", "sno", "--service", "container:vlab-service", "--postgres-image", "localhost:1/none:7"];
    bench.vlab(&service).ends_with(3).says(&["there is no image localhost:1/none:7", "cannot be fetched"]);
    nothing_is_left(&engine, &bench);
}

#[test]
fn a_service_that_ends_at_its_start_shows_its_last_fifty_lines() {
    let Some(engine) = engine() else { return };
    let script = "i=0; while [ $i -lt 80 ]; do i=$((i+1)); echo \"line $i.\" >&2; done; command -v oc >&2; exit 7";
    let image = shell_image(&engine, "vlab-test-ends", script, false);
    let bench = CliFixture::new();
    let said = bench.vlab(&["scenario", "sno", "--service", &format!("container:{image}"), "--quiet"]).ends_with(3);
    assert!(!said.out.contains("line 30."), "{}", said.out);
    said.says(&["ended with exit code 7 before the service to be ready", "line 32.", "line 80.", "/opt/vlab/bin/oc"]);
    nothing_is_left(&engine, &bench);
}

#[test]
fn a_service_that_never_gets_ready_is_given_up() {
    let Some(engine) = engine() else { return };
    let image = shell_image(&engine, "vlab-test-silent", "echo here I am; exec sleep 600", false);
    let bench = CliFixture::new();
    let service = format!("container:{image}");
    bench
        .vlab(&["scenario", "sno", "--service", &service, "--ready-within", "8", "--quiet"])
        .ends_with(3)
        .says(&["the service to be ready (GET /ready): not within 8s", "here I am"]);
    nothing_is_left(&engine, &bench);
}

#[test]
fn a_database_of_a_newer_service_is_refused_with_both_versions() {
    let Some(engine) = engine() else { return };
    let script = "/start -C port && (echo 'CREATE TABLE schema_migrations (version integer PRIMARY KEY, name text NOT NULL, \
                  applied_at timestamptz NOT NULL DEFAULT now(), checksum text NOT NULL)'; \
                  echo \"INSERT INTO schema_migrations (version, name, checksum) VALUES (999, 'of-tomorrow', 'x')\") \
                  | postgres --single -D $PGDATA $POSTGRES_DB && exec /start \"$@\"";
    let image = shell_image(&engine, "vlab-test-newer", script, true);
    let bench = CliFixture::new();
    bench
        .vlab(&["scenario", "sno", "--service", "container:vlab-service", "--postgres-image", &image, "--quiet"])
        .ends_with(3)
        .says(&["has schema version 999 (of-tomorrow)", "knows versions up to", "Use that program"]);
    nothing_is_left(&engine, &bench);
}

#[test]
fn without_an_engine_it_is_said_what_is_missing() {
    let bench = CliFixture::new();
    let host = format!("unix://{}", bench.path("nowhere.sock").display());
    let run = |bench: &CliFixture, host: &str| {
        let mut command = bench.command(&["scenario", "sno", "--service", "container:vlab-service", "--quiet"]);
        crate::bench::Said::from(command.env("DOCKER_HOST", host).output().unwrap())
    };
    let text = ["nowhere.sock: there is no such socket", "fix: "];
    run(&bench, &host).ends_with(3).says(&text);
    // A socket on which nobody listens any more.
    drop(UnixListener::bind(bench.path("nowhere.sock")).unwrap());
    run(&bench, &host).ends_with(3).says(&["no container engine is running", "cargo xtask setup --containers"]);
    run(&bench, "ssh://somewhere").ends_with(3).says(&["only unix:// and plain tcp:// are understood"]);
    bench.nothing_is_left();
    // Everything else goes on without it.
    let mut command = bench.command(&["scenario", "sno", "--quiet"]);
    crate::bench::Said::from(command.env("DOCKER_HOST", host).output().unwrap()).ends_with(0);
}

#[test]
fn a_socket_that_this_user_may_not_use_is_told_with_the_fix() {
    let bench = CliFixture::new();
    let socket = bench.path("engine.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).unwrap();
    for folder in ["ledgers", "runs"] {
        std::fs::set_permissions(bench.path(folder), std::fs::Permissions::from_mode(0o1777)).unwrap();
    }
    let host = format!("unix://{}", socket.display());
    let mut command = if nix::unistd::geteuid().is_root() {
        // As somebody who may not: root may use any socket. The program lies where others can reach it.
        let program = bench.path("vlab");
        std::fs::copy(VLAB, &program).unwrap();
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
        command
    } else {
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o000)).unwrap();
        std::process::Command::new(VLAB)
    };
    let ledgers = bench.path("tmp/ledgers");
    std::fs::create_dir(&ledgers).unwrap();
    std::fs::set_permissions(&ledgers, std::fs::Permissions::from_mode(0o1777)).unwrap();
    command
        .args(["scenario", "sno", "--service", "container:vlab-service", "--quiet"])
        .env("DOCKER_HOST", &host)
        .env("XDG_RUNTIME_DIR", &ledgers)
        .env("TMPDIR", bench.path("tmp"))
        .env("VLAB_RUNS", bench.path("runs"))
        .env("NO_COLOR", "1")
        .current_dir(Path::new("/tmp"));
    crate::bench::Said::from(command.output().unwrap()).ends_with(3).says(&[
        "no permission to use the container engine",
        "usermod -aG docker",
        "this user may not use the socket",
    ]);
}
