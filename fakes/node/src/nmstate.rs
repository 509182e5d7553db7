//! `nmstatectl`, which RHCOS has and Debian has not: hosts of OpenShift 4.18 and later make the connections of their static networks
//! with it. The connections are those that the nmstate library makes: coreos-installer, which is here anyway, has it, and makes of a
//! state the network files of an initrd. They are written where NetworkManager looks when it starts, and one that runs is told
//! to use them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use vlab_agents::boot;

use crate::machine::Root;

/// Where policies are looked for.
const POLICIES: &str = "/etc/nmstate";
/// Where NetworkManager looks for connections.
pub const CONNECTIONS: &str = "/etc/NetworkManager/system-connections";
/// An initrd in which coreos-installer puts network files, and nothing else: see the root file system of the lab OS.
const INITRD: &str = "/usr/lib/vlab/network-initrd.img";
/// There while NetworkManager runs.
const RUNNING: &str = "/run/NetworkManager";

/// Runs a program with these words; else says why not.
type RunProgram<'a> = &'a mut dyn FnMut(&str, &[&str]) -> Result<(), String>;

/// Runs it: what it prints. `call` runs a program with these words.
///
/// # Errors
/// It was asked for something else than `service`, or a policy cannot be applied; the others are.
pub fn nmstatectl(
    root: &Root,
    words: &[String],
    mut call: impl FnMut(&str, &[&str]) -> Result<(), String>,
) -> Result<String, String> {
    match words {
        [word] if word == "service" => service(root, &mut call),
        _ => Err(format!(
            "nmstatectl: the lab's stand-in knows `nmstatectl service` only, and not {:?}",
            words.join(" ")
        )),
    }
}

/// Runs a program.
///
/// # Errors
/// What it says when it fails.
pub fn call(program: &Path, words: &[&str]) -> Result<(), String> {
    let ran = Command::new(program).args(words).output().map_err(|e| format!("{}: {e}", program.display()))?;
    let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    ran.status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{} {}: {said} ({})", program.display(), words.join(" "), ran.status))
}

/// The connections, by file name, that nmstate makes of a state.
fn connections_of(
    root: &Root,
    state: &serde_json::Value,
    call: RunProgram<'_>,
) -> Result<BTreeMap<String, String>, String> {
    let place = root.path(&format!("/run/vlab-nmstate-{}", std::process::id()));
    let words = |e: std::io::Error| format!("{}: {e}", place.display());
    let at = |name: &str| place.join(name).display().to_string();
    let mut make = || -> Result<BTreeMap<String, String>, String> {
        fs::create_dir_all(&place).map_err(words)?;
        fs::write(at("state.yml"), state.to_string()).map_err(words)?;
        let (state, initrd, folder) = (at("state.yml"), at("initrd"), at("files"));
        let base = root.path(INITRD).display().to_string();
        call("coreos-installer", &["pxe", "customize", "--network-nmstate", &state, "-o", &initrd, &base])?;
        call("coreos-installer", &["pxe", "network", "unwrap", "-C", &folder, &initrd])?;
        let files = fs::read_dir(&folder).map_err(words)?;
        files
            .map(|file| {
                let file = file.map_err(words)?;
                let text = fs::read_to_string(file.path()).map_err(words)?;
                Ok((file.file_name().to_string_lossy().into_owned(), text))
            })
            .collect()
    };
    let made = make();
    let _ = fs::remove_dir_all(&place);
    made
}

/// Makes connections of all policies, each once: an applied one is called so from then on.
fn service(root: &Root, call: RunProgram<'_>) -> Result<String, String> {
    let interfaces = root.names("/sys/class/net").into_iter();
    let by_mac: BTreeMap<String, String> = interfaces
        .filter_map(|name| Some((root.some_text(&format!("/sys/class/net/{name}/address"))?.to_uppercase(), name)))
        .collect();
    let ours: BTreeMap<String, &str> = by_mac.iter().map(|(mac, name)| (mac.clone(), name.as_str())).collect();
    let (mut said, mut problems, mut made) = (String::new(), Vec::new(), BTreeMap::new());
    for file in root.names(POLICIES) {
        let Some(stem) = file.strip_suffix(".yml").or_else(|| file.strip_suffix(".yaml")) else { continue };
        let path = root.path(&format!("{POLICIES}/{file}"));
        let applied = fs::read_to_string(&path).map_err(|e| e.to_string()).and_then(|policy| {
            let connections = connections_of(root, &boot::desired_state(&policy, &ours)?, call)?;
            keep(root, &connections).map_err(|e| format!("{CONNECTIONS}: {e}"))?;
            fs::rename(&path, path.with_file_name(format!("{stem}.applied"))).map_err(|e| e.to_string())?;
            let names = connections.keys().cloned().collect::<Vec<_>>().join(", ");
            made.extend(connections);
            Ok(names)
        });
        match applied {
            Ok(connections) => said += &format!("{POLICIES}/{file}: {connections}\n"),
            Err(why) => problems.push(format!("nmstatectl: {POLICIES}/{file}: {why}")),
        }
    }
    // One that starts later reads them anyway.
    if !made.is_empty() && root.has(RUNNING) {
        let uuid = |text: &str| text.lines().find_map(|line| Some(line.strip_prefix("uuid=")?.to_owned()));
        let reload = call("nmcli", &["connection", "reload"]);
        // What one needs of another is NetworkManager's to find out: nothing waits here.
        let up = made
            .values()
            .filter_map(|text| uuid(text))
            .map(|uuid| call("nmcli", &["--wait", "0", "connection", "up", &uuid]));
        problems
            .extend(std::iter::once(reload).chain(up).filter_map(|told| Some(format!("nmstatectl: {}", told.err()?))));
    }
    if problems.is_empty() { Ok(said) } else { Err(problems.join("\n")) }
}

fn keep(root: &Root, connections: &BTreeMap<String, String>) -> std::io::Result<()> {
    fs::create_dir_all(root.path(CONNECTIONS))?;
    for (name, text) in connections {
        // NetworkManager reads none that others can read.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(root.path(&format!("{CONNECTIONS}/{name}")))?.write_all(text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// As the service makes it of a user's static network.
    const POLICY: &str = r#"
capture:
  iface0: interfaces.mac-address == "52:54:00:AB:CD:01"
desiredState:
  interfaces:
  - name: "{{ capture.iface0.interfaces.0.name }}"
    type: ethernet
    state: up
    ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.30, prefix-length: 24}]}
  routes:
    config:
    - {destination: 0.0.0.0/0, next-hop-address: 192.0.2.1, next-hop-interface: "{{ capture.iface0.interfaces.0.name }}"}
"#;

    fn machine(policies: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/class/net/enp1s0/address", "52:54:00:ab:cd:01\n");
        policies.iter().for_each(|(name, text)| write(&format!("etc/nmstate/{name}"), text));
        let root = Root::at(folder.path());
        (folder, root)
    }

    /// A coreos-installer that writes down the state that it was given as a connection, and a nmcli that answers so.
    fn service_of(root: &Root, nmcli: Result<(), String>) -> (Result<String, String>, Vec<String>) {
        let mut told = Vec::new();
        let said = nmstatectl(root, &["service".to_owned()], |program, words| match (program, words) {
            ("coreos-installer", ["pxe", "customize", "--network-nmstate", state, "-o", initrd, base]) => {
                assert!(base.ends_with("/usr/lib/vlab/network-initrd.img"), "{base}");
                fs::copy(state, initrd).map(drop).map_err(|e| e.to_string())
            }
            ("coreos-installer", ["pxe", "network", "unwrap", "-C", folder, initrd]) => {
                let state: serde_json::Value = serde_json::from_str(&fs::read_to_string(initrd).unwrap()).unwrap();
                let name = state["interfaces"][0]["name"].as_str().unwrap();
                fs::create_dir(folder).unwrap();
                fs::write(format!("{folder}/{name}.nmconnection"), format!("[connection]\nuuid=1-2\n{state}\n"))
                    .unwrap();
                Ok(())
            }
            ("nmcli", words) => {
                told.push(words.join(" "));
                if words.contains(&"up") { nmcli.clone() } else { Ok(()) }
            }
            other => panic!("{other:?}"),
        });
        (said, told)
    }

    #[test]
    fn a_policy_becomes_a_connection_of_the_interface_with_that_mac() {
        let (_folder, root) = machine(&[("host0.yml", POLICY), ("README", "none of its business")]);
        let (said, told) = service_of(&root, Ok(()));
        assert_eq!(said.unwrap(), "/etc/nmstate/host0.yml: enp1s0.nmconnection\n");
        assert_eq!(told, [""; 0], "NetworkManager does not run");
        let made = root.path("/etc/NetworkManager/system-connections/enp1s0.nmconnection");
        let text = fs::read_to_string(&made).unwrap();
        assert!(text.contains(r#""next-hop-interface":"enp1s0""#), "{text}");
        assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(root.names("/etc/nmstate"), ["README", "host0.applied"]);
        assert_eq!(service_of(&root, Ok(())).0.unwrap(), "", "once");
        assert_eq!(root.names("/run"), [""; 0], "nothing is left");
    }

    #[test]
    fn a_network_manager_that_runs_is_told() {
        let (folder, root) = machine(&[("host0.yml", POLICY)]);
        fs::create_dir_all(folder.path().join("run/NetworkManager")).unwrap();
        let (said, told) = service_of(&root, Err("it does not answer".to_owned()));
        assert_eq!(said.unwrap_err(), "nmstatectl: it does not answer");
        assert_eq!(told, ["connection reload", "--wait 0 connection up 1-2"]);
    }

    #[test]
    fn one_that_cannot_be_applied_keeps_no_other_from_it() {
        let other = POLICY.replace("AB:CD:01", "AB:CD:99");
        let (_folder, root) = machine(&[("a.yml", &other), ("b.yaml", POLICY)]);
        let problem = service_of(&root, Ok(())).0.unwrap_err();
        assert!(problem.starts_with("nmstatectl: /etc/nmstate/a.yml: the machine has no interface for "), "{problem}");
        assert_eq!(root.names(CONNECTIONS), ["enp1s0.nmconnection"]);
        assert_eq!(root.names("/etc/nmstate"), ["a.yml", "b.applied"]);
    }

    #[test]
    fn other_verbs_are_refused() {
        let (_folder, root) = machine(&[]);
        let refused = nmstatectl(&root, &["apply".to_owned(), "x.yml".to_owned()], |_, _| Ok(())).unwrap_err();
        assert!(refused.contains("\"apply x.yml\""), "{refused}");
    }
}
