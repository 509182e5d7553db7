//! Runs whose hosts are virtual machines. That single nodes (from BIOS and from UEFI) and a cluster install themselves, and what
//! happens when something they need is gone, is tested in CI and where `VLAB_TEST_MACHINES` is set.

use std::time::Duration;

use rstest::rstest;
use vlab_judge::result::CheckVerdict;
use vlab_model::history::{HostsKind, MachineMoment, What};

use crate::bench::{CliFixture, until};
use crate::e2e_machines::no_machines;

pub(crate) fn wanted() -> bool {
    let wanted = ["CI", "VLAB_TEST_MACHINES"].iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty()));
    if !wanted {
        vlab_skip::skip!("it takes minutes; set VLAB_TEST_MACHINES=yes");
    }
    wanted && !no_machines()
}

/// From BIOS. A single node from UEFI is what installs itself on half of the processors (`vm_slow.rs`).
#[test]
fn vm_installs_two_clusters_from_the_pool() {
    if wanted() {
        installs("two-clusters-from-the-pool", 2, Duration::from_secs(720));
    }
}

/// Faults do something to what runs inside of a machine: its agent is started again, its installer is ended.
#[test]
fn vm_installs_not_when_its_installer_is_ended() {
    if wanted() {
        let bench = CliFixture::new();
        let arguments = ["scenario", "installer-ended", "--hosts", "vm", "--no-setup", "--quiet"];
        bench.vlab_within(Duration::from_secs(600), &arguments).ends_with(0);
        let said = std::fs::read_to_string(bench.latest().join("node-0.faults.log")).unwrap();
        // On a busy computer a machine may not answer at once; then it is tried again.
        let complains =
            |line: &&str| !line.is_empty() && !line.starts_with("Connection ") && !line.starts_with("ssh: ");
        assert_eq!(said.lines().find(complains), None, "the scripts had nothing to complain of");
        bench.nothing_is_left();
    }
}

/// Frozen in the middle of its pivot, and installed from there. Its machines take all processors that CI has: see `.config/nextest.toml`.
#[test]
fn vm_a_cluster_is_frozen_in_its_pivot_and_installs_itself() {
    if wanted() {
        let bench = CliFixture::new();
        let arguments = ["scenario", "ha-3-1", "--hosts", "vm", "--no-setup", "--quiet"];
        let freeze = [&arguments[..], &["--snapshot-at", "bootkube done", "--snapshot", "pivot"]].concat();
        bench.vlab_within(Duration::from_secs(780), &freeze).ends_with(0).says(&["is frozen at `bootkube done`"]);
        bench.nothing_is_left();
        bench
            .vlab_within(Duration::from_secs(390), &["scenario", "--from", "pivot", "--no-setup", "--quiet"])
            .ends_with(0);
        has_installed(&bench, 4);
        bench.nothing_is_left();
    }
}

/// `budget` is below what ends the test from outside: then it could not say where the installation stood.
fn installs(name: &str, machines: usize, budget: Duration) {
    let bench = CliFixture::new();
    bench.vlab_within(budget, &["scenario", name, "--hosts", "vm", "--no-setup", "--quiet"]).ends_with(0);
    has_installed(&bench, machines);
    bench.nothing_is_left();
}

/// What a run shows in which so many machines have installed themselves.
pub(crate) fn has_installed(bench: &CliFixture, machines: usize) {
    let (result, history) = (bench.result(), bench.history());
    assert_eq!(result.run.hosts, HostsKind::Vm);
    let declared = &result.environment["declared, not there"];
    assert!(declared.contains("8 cores, 1 there"), "{declared}");
    let started = |o: &&_| matches!(&**o, What::Machine { did: MachineMoment::Started, .. });
    assert_eq!(history.iter().map(|o| &o.what).filter(started).count(), machines);
    let took = |name: &str| result.durations.iter().find(|d| d.name == name).and_then(|d| d.took_ms).unwrap();
    let [userspace, registration] =
        ["first userspace", "first registration"].map(|to| took(&format!("first machine on to {to}")));
    assert!(0.0 < userspace && userspace < registration, "{userspace} ms, {registration} ms");
    // A console that says nothing proves nothing.
    let lines = history.iter().filter(|o| matches!(o.what, What::Console { .. })).count();
    assert!(lines > 50 * machines, "{lines} lines of consoles");
    let consoles = result.checks.iter().filter(|c| c.name.starts_with("the console of ")).collect::<Vec<_>>();
    assert!(consoles.len() == machines && consoles.iter().all(|c| c.verdict == CheckVerdict::Passed));
    let page = std::fs::read_to_string(bench.latest().join("report.html")).unwrap();
    for file in result.files.iter().filter(|file| file.path.ends_with(".console.log")) {
        assert!(page.contains(&format!("<a href=\"{}\">", file.path)), "{} is not linked", file.path);
    }
}

/// People get into the discovery system and into the installed one, and the run does not mind.
#[test]
#[ignore = "minutes, on a machine of its own: `cargo nextest run -p vlab-cli --run-ignored only vm_lets`"]
fn vm_lets_people_in() {
    const BUDGET: Duration = Duration::from_secs(1200);
    assert!(!no_machines(), "virtual machines cannot be had here: `vlab doctor` says why");
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", "sno", "--hosts", "vm", "--no-setup", "--quiet"]);
    let ssh = |command: &[&str]| bench.vlab(&[&["ssh", "node-0"], command].concat());
    let lets_in = |wanted: &str, is: fn(&str) -> bool| {
        until(wanted, BUDGET, || {
            let said = ssh(&["cat", "/proc/cmdline"]);
            said.code == Some(0) && is(&said.out)
        });
    };
    lets_in("a way into the discovery system", |cmdline| cmdline.contains("coreos.liveiso="));
    ssh(&["id", "-un"]).ends_with(0).says(&["core"]);
    ssh(&["sudo", "id", "-un"]).ends_with(0).says(&["root"]);
    ssh(&["exit", "3"]).ends_with(3);
    lets_in("a way into the installed system", |cmdline| !cmdline.contains("coreos.liveiso="));
    run.end(BUDGET).ends_with(0);
    bench.nothing_is_left();
}

/// What is killed while the machine boots, and what the run then says.
#[rstest]
#[case("qemu-system", "node-0: its QEMU was killed or crashed")]
#[case("dnsmasq", "dnsmasq, which gives the machines addresses and names, exited unexpectedly")]
fn vm_without_what_it_needs_ends_the_run_with_its_name(#[case] program: &str, #[case] words: &str) {
    if !wanted() {
        return;
    }
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", "sno", "--hosts", "vm", "--no-setup", "--quiet"]);
    bench.wait_for_history("\"did\":\"defined\"");
    let (pid, _) = bench.processes().into_iter().find(|(_, line)| line.contains(program)).unwrap();
    crate::bench::signal(pid, "KILL");
    run.end(crate::bench::RUN).ends_with(3).says(&[words]);
    bench.nothing_is_left();
}

#[test]
fn vm_that_outlives_its_harness_is_ended() {
    if !wanted() {
        return;
    }
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", "sno", "--hosts", "vm", "--no-setup", "--quiet"]);
    bench.wait_for_history("\"did\":\"defined\"");
    run.signal("KILL");
    bench.nothing_is_left();
}
