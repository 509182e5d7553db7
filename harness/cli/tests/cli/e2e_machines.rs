//! Hosts that are virtual machines: what is refused before anything starts, and what happens where there are none. Whole
//! installations on machines are in `vm_installs`.

use crate::bench::CliFixture;

/// A single node with so much memory.
fn node(kind: &str, memory_mib: u64) -> String {
    format!(
        "version: 1\nname: t\nneeds: [postgres]\ncluster: {{topology: sno}}\n\
         hosts: [{{name: node, kind: {kind}, vm: {{memory_mib: {memory_mib}}}}}]\n"
    )
}

/// Can this machine run no virtual machines? Then the test is skipped.
pub(crate) fn no_machines() -> bool {
    let helper = std::path::Path::new(crate::bench::VLAB).with_file_name("vlab-libvirt-helper");
    let there = helper.is_file() && vlab_lab::machines::probe::qemu().is_some();
    if !there {
        vlab_skip::skip!("no QEMU, or {} was not built", helper.display());
    }
    !there
}

#[test]
fn e2e_machines_that_do_not_fit_are_refused_before_anything_starts() {
    if no_machines() {
        return;
    }
    let bench = CliFixture::new();
    let file = bench.file("t.yaml", node("vm", 32 << 20));
    let said = bench.vlab(&["scenario", &file, "--hosts", "vm", "--no-setup"]).ends_with(3);
    said.says(&["the machines need 33554", "MiB available", "inconclusive"]);
    bench.nothing_is_left();
    assert!(!bench.latest().join("postgresql.log").exists(), "PostgreSQL was started");
}

#[test]
fn e2e_without_machines_open_hosts_are_simulated_loudly_and_others_say_why() {
    let bench = CliFixture::new();
    let file = bench.file("t.yaml", node("auto", 1024));
    let run = |hosts: &str| {
        let mut command = bench.command(&["scenario", &file, "--no-setup", "--quiet"]);
        command.env_remove("VLAB_HOSTS").env("VLAB_LIBVIRT_HELPER", "/nowhere/vlab-libvirt-helper");
        if !hosts.is_empty() {
            command.args(["--hosts", hosts]);
        }
        command.output().unwrap()
    };
    let open = run("");
    let said = String::from_utf8_lossy(&open.stderr).into_owned();
    assert_eq!(open.status.code(), Some(0), "{said}");
    assert!(said.contains("t: its hosts are SIMULATED: "), "{said}");
    let asked = run("vm");
    let said = String::from_utf8_lossy(&asked.stdout).into_owned() + &String::from_utf8_lossy(&asked.stderr);
    assert_eq!(asked.status.code(), Some(3), "{said}");
    bench.nothing_is_left();
}

#[test]
fn e2e_a_medium_that_is_none_is_told_by_its_name() {
    if no_machines() {
        return;
    }
    let bench = CliFixture::new();
    let medium = bench.file("live.iso", vec![0; 70_000]);
    let file = bench.file("t.yaml", node("vm", 64) + &format!("infra_env: {{iso: {medium}}}\n"));
    let said = bench.vlab(&["scenario", &file, "--hosts", "vm", "--no-setup"]).ends_with(2);
    said.says(&[&format!("infra_env.iso: {medium} is not an ISO 9660 image")]);
    bench.nothing_is_left();
}
