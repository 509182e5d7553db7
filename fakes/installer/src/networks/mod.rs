//! Static networks of an infra-env: whether they can be made, how they are kept, and the files with which hosts apply them.
//!
//! For OpenShift before `MIN_VERSION_FOR_NMSTATE_SERVICE` the service itself turns each host's nmstate YAML into
//! NetworkManager's connections, with the user's names for interfaces; a script on the host puts the true names in. From that
//! version on the host gets the YAML as a policy that finds interfaces by MAC, and its own nmstate does the rest. Either way
//! a host finds its folder by its MACs (`reference/rest-api.md` §8, `reference/coreos-iso.md` §8).

use std::collections::BTreeSet;

use nmstate::NetworkState;
use serde_json::{Map, Value, json};
use vlab_api::types::HostStaticNetworkConfig;
use vlab_model::network::host_makes_connections;

use crate::ArtifactError;

/// Folder under which hosts find their networks.
const FOLDER: &str = "/etc/assisted/network";
/// What both ways have in common.
const COMMON_SCRIPT: &str = include_str!("common_network_script.sh");
/// Puts true names into connections.
const KEYFILES_SCRIPT: &str = include_str!("keyfiles.sh");
/// Gives policies to nmstate.
const POLICIES_SCRIPT: &str = include_str!("policies.sh");

/// Where the unit is that runs the script, in the initial RAM disk.
pub const UNIT_PATH: &str = "/etc/systemd/system/pre-network-manager-config.service";
/// What makes it run there.
pub const UNIT_LINK: &str = "/etc/systemd/system/initrd.target.wants/pre-network-manager-config.service";

/// Who makes NetworkManager's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionMaker {
    /// The service: hosts get connections.
    Service,
    /// The host's own nmstate: hosts get policies.
    Host,
}

impl ConnectionMaker {
    /// Of hosts that are to run that version of OpenShift; without a version the service makes them.
    pub fn of(openshift_version: Option<&str>, first_on_host: &str) -> Self {
        if host_makes_connections(openshift_version, first_on_host) {
            ConnectionMaker::Host
        } else {
            ConnectionMaker::Service
        }
    }

    /// Scripts to put on the host, with their paths; the first one is run by the unit.
    pub fn scripts(self) -> [(&'static str, &'static str); 2] {
        let first = match self {
            ConnectionMaker::Service => KEYFILES_SCRIPT,
            ConnectionMaker::Host => POLICIES_SCRIPT,
        };
        [
            ("/usr/local/bin/pre-network-manager-config.sh", first),
            ("/usr/local/bin/common_network_script.sh", COMMON_SCRIPT),
        ]
    }

    /// The unit in the system of a full image.
    pub fn unit(self) -> String {
        let (reader, order) = match self {
            ConnectionMaker::Service => ("NetworkManager", "Before=NetworkManager.service"),
            ConnectionMaker::Host => ("nmstate", "After=NetworkManager-wait-online.service\nBefore=nmstate.service"),
        };
        format!(
            "[Unit]\nDescription=Give {reader} the static networks of this host\nDefaultDependencies=no\n{order}\n\n\
             [Service]\nType=oneshot\nUser=root\nPrivateTmp=true\nTimeoutSec=60\n\
             ExecStart=/bin/bash /usr/local/bin/pre-network-manager-config.sh\n\n\
             [Install]\nWantedBy=multi-user.target\n"
        )
    }

    /// The unit in the RAM disk of a minimal image or a boot from the network. nmstate waits so many seconds before it looks
    /// for interfaces.
    pub fn ram_disk_unit(self, delay_seconds: i64) -> String {
        match self {
            ConnectionMaker::Service => "[Unit]\n\
                 Description=Keep the static networks of this host for its first boot\n\
                 DefaultDependencies=no\n\
                 # Interfaces are found by their MACs: all of them must be there.\n\
                 After=systemd-udev-settle.service\n\
                 Before=coreos-copy-firstboot-network.service\n\
                 \n\
                 [Service]\n\
                 Type=oneshot\n\
                 RemainAfterExit=yes\n\
                 ExecStart=/usr/local/bin/pre-network-manager-config.sh\n"
                .to_owned(),
            ConnectionMaker::Host => format!(
                "[Unit]\n\
                 Description=Apply the static networks of this host\n\
                 DefaultDependencies=no\n\
                 After=nm-initrd.service systemd-udev-settle.service\n\
                 Before=coreos-livepxe-rootfs.service\n\
                 \n\
                 [Service]\n\
                 Type=oneshot\n\
                 RemainAfterExit=yes\n\
                 Environment=DISCOVERY_DELAY_SECONDS={delay_seconds}\n\
                 TimeoutSec={}\n\
                 ExecStart=/usr/local/bin/pre-network-manager-config.sh\n",
                delay_seconds.saturating_add(60)
            ),
        }
    }
}

/// A file for hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkFile {
    /// Its whole path.
    pub path: String,
    /// Its text.
    pub content: String,
}

/// What is wrong with the networks that a user gives; empty when nothing is. As in the real service nothing is compared
/// between hosts, and an address need not reach its gateway: that shows on the hosts.
pub fn problems(hosts: &[HostStaticNetworkConfig]) -> Vec<String> {
    let mut problems = Vec::new();
    for (i, host) in hosts.iter().enumerate() {
        let map = host.mac_interface_map.as_deref().unwrap_or(&[]);
        let names: BTreeSet<&str> = map.iter().map(|m| m.logical_nic_name.as_deref().unwrap_or("")).collect();
        let macs: BTreeSet<&str> = map.iter().map(|m| m.mac_address.as_str()).collect();
        if map.is_empty() {
            problems.push(format!("at least one interface for host {i} must be provided"));
        } else if names.len() < map.len() || macs.len() < map.len() {
            problems.push(format!("MACs and Interfaces for host {i} must be unique"));
        }
        let text = host.network_yaml.as_deref().unwrap_or("");
        match connections(text) {
            // The real service looks no further either.
            Err(problem) => {
                problems.push(format!("failed to validate network yaml for host {i}, {problem}"));
                return problems;
            }
            Ok(_) => problems.extend(unmapped_interface(text, &names)),
        }
    }
    problems
}

/// The first interface that the user names, that has no MAC, and whose name does not look like one that the kernel gives.
fn unmapped_interface(yaml: &str, mapped: &BTreeSet<&str>) -> Option<String> {
    let state: Value = serde_yaml::from_str(yaml).ok()?;
    let interfaces = state.get("interfaces")?.as_array()?;
    let by_mac = |interface: &&Value| interface["identifier"] == "mac-address";
    let known: BTreeSet<&str> = interfaces.iter().filter(by_mac).filter_map(|i| i["name"].as_str()).collect();
    let predictable = |name: &str| {
        let kind = name.strip_prefix("en").and_then(|rest| rest.chars().next());
        kind.is_some_and(|kind| "PsvxXbucaipod".contains(kind))
    };
    let found = |name: &str| mapped.contains(name) || known.contains(name) || predictable(name);
    let lacking = interfaces.iter().find(|interface| match interface["type"].as_str() {
        Some("ethernet" | "802-3-ethernet") => interface["name"].as_str().is_some_and(|name| !found(name)),
        Some("bond") => {
            let ports = interface.pointer("/link-aggregation/port").and_then(Value::as_array);
            ports.into_iter().flatten().filter_map(Value::as_str).any(|port| !found(port))
        }
        _ => false,
    })?;
    let name = lacking["name"].as_str().unwrap_or("");
    Some(format!("mac-interface mapping for interface {name} is missing and not a physical interface"))
}

/// The networks as they are kept: JSON text, MACs by name and hosts by YAML. `None` when there are none.
pub fn stored(hosts: &[HostStaticNetworkConfig]) -> Option<String> {
    let mut hosts = hosts.to_vec();
    for host in &mut hosts {
        if let Some(map) = &mut host.mac_interface_map {
            map.sort_by(|a, b| (&a.logical_nic_name, &a.mac_address).cmp(&(&b.logical_nic_name, &b.mac_address)));
        }
    }
    hosts.sort_by_cached_key(|h| {
        let map: Vec<_> =
            h.mac_interface_map.iter().flatten().map(|m| (m.logical_nic_name.clone(), m.mac_address.clone())).collect();
        (h.network_yaml.clone().unwrap_or_default(), map.len(), map)
    });
    (!hosts.is_empty()).then(|| serde_json::to_string(&hosts).unwrap_or_default())
}

/// The files of all hosts, from the text that [`stored`] made.
///
/// # Errors
/// Where a network has no interfaces: that passes the check and fails here, as in the real service.
pub fn files(stored: &str, maker: ConnectionMaker) -> Result<Vec<NetworkFile>, ArtifactError> {
    let hosts: Vec<HostStaticNetworkConfig> =
        serde_json::from_str(stored).map_err(|e| ArtifactError::StaticNetwork(e.to_string()))?;
    let mut files = Vec::new();
    for (i, host) in hosts.iter().enumerate() {
        let yaml = host.network_yaml.as_deref().unwrap_or("");
        let mut add = |name: &str, content: String| {
            files.push(NetworkFile { path: format!("{FOLDER}/host{i}/{name}"), content });
        };
        match maker {
            ConnectionMaker::Service => {
                let failed = |why: String| {
                    ArtifactError::StaticNetwork(format!("failed to create static config for host {i}: {why}"))
                };
                let connections = connections(yaml).map_err(failed)?;
                if connections.is_empty() {
                    return Err(failed("nmstate generated an empty NetworkManager config file content".to_owned()));
                }
                for (name, content) in connections {
                    add(&name, with_autoconnect(&content));
                }
                add("mac_interface.ini", mapping(host));
            }
            ConnectionMaker::Host => {
                add("mac_interface.ini", mapping(host));
                add(&format!("ymlFile{i}.yml"), policy(host).map_err(ArtifactError::StaticNetwork)?);
            }
        }
    }
    Ok(files)
}

/// Which MAC is which of the user's names: sorted lines, without a newline at the end.
fn mapping(host: &HostStaticNetworkConfig) -> String {
    let entries = host.mac_interface_map.iter().flatten();
    let mut lines: Vec<String> =
        entries.map(|m| format!("{}={}", m.mac_address, m.logical_nic_name.as_deref().unwrap_or(""))).collect();
    lines.sort();
    lines.join("\n")
}

/// NetworkManager's connections for a network: names and contents, by name.
fn connections(yaml: &str) -> Result<Vec<(String, String)>, String> {
    if yaml.is_empty() {
        return Err("cannot generate configuration with an empty host YAML".to_owned());
    }
    let state: Value = serde_yaml::from_str(yaml).map_err(|e| format!("yaml: {e}"))?;
    // nmstate reads JSON text, as it does in the real service: its messages name lines and columns of that.
    let text = sorted(state).to_string();
    let failed = |message: String, kind: nmstate::ErrorKind| {
        format!(
            "nmstate GenerateConfiguration failed, error: failed when generating the configuration {text} with rc: 1, \
             err_msg: {message}, err_kind: {kind}"
        )
    };
    let state = NetworkState::new_from_yaml(&text)
        .map_err(|e| failed(format!("Error on converting string to rust NetworkState: {e}"), e.kind()))?;
    let mut made = state.gen_conf().map_err(|e| failed(e.msg().to_owned(), e.kind()))?;
    let mut connections = made.remove("NetworkManager").unwrap_or_default();
    // nmstate gives them in no order.
    connections.sort();
    Ok(connections)
}

/// Members of all objects by name: so does the real service write JSON and YAML.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut members: Vec<(String, Value)> = map.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(Map::from_iter(members))
        }
        Value::Array(list) => Value::Array(list.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// The connection is taken at boot, before those that nobody made.
fn with_autoconnect(connection: &str) -> String {
    let mut out = String::new();
    let mut seen = false;
    let mut lines = connection.trim_end().lines().peekable();
    let mut inside = false;
    while let Some(line) = lines.next() {
        if line.starts_with('[') {
            inside = line == "[connection]";
        }
        if inside && line.starts_with("autoconnect=") {
            seen = true;
            out.push_str("autoconnect=true\n");
        } else {
            out.push_str(line);
            out.push('\n');
        }
        let ends = lines.peek().is_none_or(|next| next.is_empty() || next.starts_with('['));
        if inside && !line.is_empty() && ends {
            if !seen {
                out.push_str("autoconnect=true\n");
            }
            out.push_str("autoconnect-priority=1\n");
            inside = false;
        }
    }
    out
}

/// The network as a policy of nmstate: interfaces are found by MAC, and the user's names stand for them.
fn policy(host: &HostStaticNetworkConfig) -> Result<String, String> {
    let yaml = host.network_yaml.as_deref().unwrap_or("");
    let mut state: Value = serde_yaml::from_str(yaml).map_err(|e| format!("yaml: {e}"))?;
    let write = |value: &Value| serde_yaml::to_string(value).map_err(|e| e.to_string());
    let mut text = match state.get_mut("interfaces").and_then(Value::as_array_mut) {
        Some(interfaces) => {
            // nmstate on hosts would take what is not said for "as it is now".
            for interface in interfaces {
                for (family, members) in [("ipv4", &["dhcp"][..]), ("ipv6", &["dhcp", "autoconf"][..])] {
                    let Some(ip) = interface.get_mut(family).and_then(Value::as_object_mut) else { continue };
                    for member in members {
                        ip.entry(*member).or_insert(json!(false));
                    }
                }
            }
            write(&sorted(state))?
        }
        None => "{}\n".to_owned(),
    };
    let mut captures = String::new();
    for (n, entry) in host.mac_interface_map.iter().flatten().enumerate() {
        let mac = entry.mac_address.to_uppercase();
        captures.push_str(&format!("  iface{n}: interfaces.mac-address == \"{mac}\"\n"));
        let name = entry.logical_nic_name.as_deref().unwrap_or("");
        let captured = format!("\"{{{{ capture.iface{n}.interfaces.0.name }}}}\"");
        text = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                let named = line.strip_suffix(name).filter(|rest| {
                    rest.trim_start() == "- " || rest.strip_suffix(": ").is_some_and(|key| !key.contains(':'))
                });
                match named {
                    Some(rest) => format!("  {rest}{captured}\n"),
                    None => format!("  {line}\n"),
                }
            })
            .collect();
    }
    Ok(format!("capture:\n{captures}desiredState:\n{}", text.trim_end_matches('\n')))
}

#[cfg(test)]
mod tests;
