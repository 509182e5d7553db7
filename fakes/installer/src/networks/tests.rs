#![expect(clippy::disallowed_methods, reason = "the test runs the script that hosts run")]

use std::process::Command;

use rstest::rstest;
use vlab_api::types::MacInterfaceMapItem;

use super::*;

/// A host with these MACs and names for them.
fn host(yaml: &str, map: &[(&str, &str)]) -> HostStaticNetworkConfig {
    let item = |(mac, name): &(&str, &str)| MacInterfaceMapItem {
        mac_address: (*mac).to_owned(),
        logical_nic_name: Some((*name).to_owned()),
    };
    HostStaticNetworkConfig {
        network_yaml: Some(yaml.to_owned()),
        mac_interface_map: Some(map.iter().map(item).collect()),
    }
}

const MAC: &str = "02:00:00:80:12:14";
const OTHER: &str = "02:00:00:80:12:1A";

const ETHERNET: &str = "\
interfaces:
- name: eth0
  type: ethernet
  state: up
  ipv4: {enabled: true, dhcp: false, address: [{ip: 192.168.126.30, prefix-length: 24}]}
routes:
  config:
  - {destination: 0.0.0.0/0, next-hop-address: 192.168.126.1, next-hop-interface: eth0}
";

const BOND: &str = "\
interfaces:
- name: bond0
  type: bond
  state: up
  ipv6: {enabled: true, address: [{ip: 'fd00::30', prefix-length: 64}]}
  link-aggregation: {mode: active-backup, options: {miimon: '140'}, port: [eth0, eth1]}
- {name: eth0, type: ethernet, state: up}
- {name: eth1, type: ethernet, state: up}
- name: bond0.404
  type: vlan
  state: up
  vlan: {base-iface: bond0, id: 404}
  ipv4: {enabled: true, address: [{ip: 192.168.126.30, prefix-length: 24}]}
- name: eth0.2507
  type: vlan
  state: up
  vlan: {base-iface: eth0, id: 2507}
";

#[rstest]
#[case::good(ETHERNET, &[(MAC, "eth0")], &[])]
#[case::no_mac(ETHERNET, &[], &[
    "at least one interface for host 0 must be provided",
    "mac-interface mapping for interface eth0 is missing and not a physical interface",
])]
#[case::mac_twice(ETHERNET, &[(MAC, "eth0"), (MAC, "eth1")], &["MACs and Interfaces for host 0 must be unique"])]
#[case::name_twice(ETHERNET, &[(MAC, "eth0"), (OTHER, "eth0")], &["MACs and Interfaces for host 0 must be unique"])]
#[case::port_without_mac(BOND, &[(MAC, "eth0")], &[
    "mac-interface mapping for interface bond0 is missing and not a physical interface",
])]
#[case::empty("", &[(MAC, "eth0")], &[
    "failed to validate network yaml for host 0, cannot generate configuration with an empty host YAML",
])]
#[case::no_list("interfaces: 5", &[(MAC, "eth0")], &[
    "failed to validate network yaml for host 0, nmstate GenerateConfiguration failed, error: failed when generating the \
     configuration {\"interfaces\":5} with rc: 1, err_msg: Error on converting string to rust NetworkState: InvalidArgument: \
     Invalid YAML string: interfaces: invalid type: integer `5`, expected a sequence at line 1 column 15, err_kind: \
     InvalidArgument",
])]
#[case::kernel_name("interfaces: [{name: enp1s0, type: ethernet}]", &[(MAC, "eth0")], &[])]
#[case::unknown_gateway(&ETHERNET.replace("next-hop-address: 192.168.126.1", "next-hop-address: 10.9.9.9"), &[(MAC, "eth0")], &[])]
fn what_is_wrong_with_a_network_is_said(#[case] yaml: &str, #[case] map: &[(&str, &str)], #[case] expected: &[&str]) {
    assert_eq!(problems(&[host(yaml, map)]), expected);
}

#[test]
fn hosts_are_not_compared() {
    assert_eq!(problems(&[host(ETHERNET, &[(MAC, "eth0")]), host(ETHERNET, &[(MAC, "eth0")])]), [""; 0]);
}

#[rstest]
#[case(None, ConnectionMaker::Service)]
#[case(Some(""), ConnectionMaker::Service)]
#[case(Some("4.17.9"), ConnectionMaker::Service)]
#[case(Some("4.18.0-ec.0"), ConnectionMaker::Service)]
#[case(Some("4.18"), ConnectionMaker::Host)]
#[case(Some("4.18.3"), ConnectionMaker::Host)]
#[case(Some("4.20.0-rc.1"), ConnectionMaker::Host)]
fn the_version_decides_who_makes_connections(#[case] version: Option<&str>, #[case] maker: ConnectionMaker) {
    assert_eq!(ConnectionMaker::of(version, "4.18"), maker);
}

#[test]
fn a_network_without_interfaces_fails_when_its_files_are_made() {
    let hosts = [host("interfaces: []", &[(MAC, "eth0")])];
    assert_eq!(problems(&hosts), [""; 0]);
    let stored = stored(&hosts).unwrap();
    let error = files(&stored, ConnectionMaker::Service).unwrap_err().to_string();
    assert_eq!(
        error,
        "failed to create static config for host 0: nmstate generated an empty NetworkManager config file content"
    );
    assert!(files(&stored, ConnectionMaker::Host).is_ok());
}

/// A machine's file system below a temporary folder: its interfaces, and the files that the image has.
fn machine(nics: &[(&str, &str)], files: &[NetworkFile], maker: ConnectionMaker) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("/sys/class/net/lo/address", "00:00:00:00:00:00\n");
    for (name, mac) in nics {
        put(&format!("/sys/class/net/{name}/address"), &format!("{}\n", mac.to_lowercase()));
    }
    put("/etc/NetworkManager/system-connections/default_connection.nmconnection", "[connection]\n");
    for file in files {
        put(&file.path, &file.content);
    }
    for (path, script) in maker.scripts() {
        put(path, script);
    }
    // It stands for nmstate: what it finds is what it would apply.
    put("/usr/bin/nmstatectl", "#!/bin/bash\nls \"$PATH_PREFIX\"/etc/nmstate > \"$PATH_PREFIX\"/applied\n");
    assert!(Command::new("chmod").arg("755").arg(root.path().join("usr/bin/nmstatectl")).status().unwrap().success());
    root
}

fn run_script(root: &tempfile::TempDir) -> String {
    let script = |name: &str| root.path().join("usr/local/bin").join(name);
    let out = Command::new("bash")
        .arg(script("pre-network-manager-config.sh"))
        .env("PATH_PREFIX", root.path())
        .env("COMMON_SCRIPT_PATH", script("common_network_script.sh"))
        .env("STABLE_SECONDS", "0")
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn connections_of(root: &tempfile::TempDir, folder: &str) -> std::collections::BTreeMap<String, String> {
    let entries = std::fs::read_dir(root.path().join(folder)).into_iter().flatten();
    entries
        .map(|e| {
            let e = e.unwrap();
            (e.file_name().to_string_lossy().into_owned(), std::fs::read_to_string(e.path()).unwrap())
        })
        .collect()
}

/// The script and the simulated hosts understand the same files in the same way.
#[rstest]
#[case::by_mac(&[("enp1s0", MAC), ("enp2s0", OTHER)])]
#[case::other_order(&[("enp2s0", MAC), ("enp1s0", OTHER)])]
#[case::long_names(&[("enp94s0f0np0", MAC), ("enp94s0f1np1", OTHER)])]
#[case::the_other_host(&[("ens3", "02:00:00:80:13:01")])]
#[case::one_is_missing(&[("ens3", MAC)])]
fn the_script_does_what_simulated_hosts_do(#[case] nics: &[(&str, &str)], #[values(false, true)] ram_disk: bool) {
    let hosts = [host(BOND, &[(OTHER, "eth1"), (MAC, "eth0")]), host(ETHERNET, &[("02:00:00:80:13:01", "eth0")])];
    let files = files(&stored(&hosts).unwrap(), ConnectionMaker::Service).unwrap();
    let root = machine(nics, &files, ConnectionMaker::Service);
    let folder = if ram_disk { "etc/coreos-firstboot-network" } else { "etc/NetworkManager/system-connections" };
    if ram_disk {
        std::fs::write(root.path().join("etc/initrd-release"), "").unwrap();
    }
    let said = run_script(&root);
    let made = connections_of(&root, folder);
    assert!(made.len() > usize::from(nics.len() > 1), "{said}");
    let mut archive = vlab_image_service::cpio::Archive::default();
    for file in &files {
        archive.add(&file.path, 0o100_600, file.content.as_bytes());
    }
    let image = vlab_agents::DiscoveryImage::from_ram_disk(&vlab_image_service::cpio::gzip(&archive.finish()).unwrap())
        .unwrap();
    let nics: Vec<_> = nics.iter().map(|(name, mac)| ((*name).to_owned(), mac.parse().unwrap())).collect();
    assert_eq!(image.network_of(&nics), vlab_agents::boot::ImageNetwork::Connections(made), "{said}");
}

#[rstest]
#[case(ConnectionMaker::Service)]
#[case(ConnectionMaker::Host)]
fn a_machine_that_no_network_is_for_keeps_what_it_has(#[case] maker: ConnectionMaker) {
    let files = files(&stored(&[host(ETHERNET, &[(MAC, "eth0")])]).unwrap(), maker).unwrap();
    let root = machine(&[("ens3", OTHER)], &files, maker);
    run_script(&root);
    let kept = connections_of(&root, "etc/NetworkManager/system-connections");
    assert_eq!(kept.into_keys().collect::<Vec<_>>(), ["default_connection.nmconnection"]);
    assert!(!root.path().join("applied").exists());
}

#[test]
fn nmstate_gets_the_policy_that_is_for_the_machine() {
    let hosts = [host(BOND, &[(OTHER, "eth1"), (MAC, "eth0")]), host(ETHERNET, &[("02:00:00:80:13:01", "eth0")])];
    let files = files(&stored(&hosts).unwrap(), ConnectionMaker::Host).unwrap();
    let root = machine(&[("ens3", "02:00:00:80:13:01")], &files, ConnectionMaker::Host);
    run_script(&root);
    assert_eq!(std::fs::read_to_string(root.path().join("applied")).unwrap(), "ymlFile1.yml\n");
}
