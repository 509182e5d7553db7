//! What a machine's network becomes when it boots a discovery image with static networks in it: the image's files, which of
//! them are for this machine (by MAC, as the image's own script finds out), and the addresses that NetworkManager sets by
//! them. Nothing here knows what the user wanted; only the image counts.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use ipnet::IpNet;
use serde_json::Value;

use crate::profile::{HardwareProfile, HostAddresses, Mac, NicAddresses, NicProfile, StaticRoute};

/// Folder of the networks in an image, with a folder `host<N>` for each host.
const FOLDER: &str = "/etc/assisted/network/";
/// Which MAC is which of the user's names.
const MAPPING: &str = "mac_interface.ini";
/// Largest RAM disk in bytes, unpacked. One with the networks of hundreds of hosts has less than one MiB; some kilobytes of a
/// product that is wrong could become gigabytes.
const LARGEST_RAM_DISK: u64 = 64 << 20;
/// Longest name of an interface.
const LONGEST_NAME: usize = 15;

/// Why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The ignition is no JSON, or a file in it has no data.
    #[error("the discovery ignition: {0}")]
    Ignition(String),
    /// The RAM disk is no compressed archive.
    #[error("the RAM disk: {0}")]
    RamDisk(String),
}

/// The files of a discovery image by their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryImage {
    files: BTreeMap<String, Vec<u8>>,
}

/// How machines of an infra-env boot, where its image has static networks.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The image.
    pub image: Arc<DiscoveryImage>,
    /// What DHCP would give; nothing where there is none.
    pub leased: HostAddresses,
    /// Where the lab has its gateway, its name server and the service.
    pub lab: Vec<IpAddr>,
}

/// What an image does to a machine's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageNetwork {
    /// No folder of it names a MAC of the machine.
    Nothing,
    /// It cannot be applied, with the reason.
    Failed(String),
    /// NetworkManager's connections, by file name.
    Connections(BTreeMap<String, String>),
}

impl DiscoveryImage {
    /// The files of a discovery ignition.
    ///
    /// # Errors
    /// When it is none.
    pub fn from_ignition(bytes: &[u8]) -> Result<Self, ImageError> {
        let bad = |why: String| ImageError::Ignition(why);
        let ignition: Value = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        let mut files = BTreeMap::new();
        for file in ignition.pointer("/storage/files").and_then(Value::as_array).into_iter().flatten() {
            let Some(path) = file["path"].as_str() else { return Err(bad("a file has no path".to_owned())) };
            let source = file.pointer("/contents/source").and_then(Value::as_str).unwrap_or("data:,");
            let content = data_of(source).ok_or_else(|| bad(format!("the source of {path} is not a data URL")))?;
            files.insert(path.to_owned(), content);
        }
        Ok(Self { files })
    }

    /// The files of a minimal image's RAM disk (compressed cpio). Nothing is an image without files.
    ///
    /// # Errors
    /// When it is none.
    pub fn from_ram_disk(bytes: &[u8]) -> Result<Self, ImageError> {
        let mut files = BTreeMap::new();
        if bytes.is_empty() {
            return Ok(Self { files });
        }
        let mut archive = Vec::new();
        flate2::read::GzDecoder::new(bytes)
            .take(LARGEST_RAM_DISK + 1)
            .read_to_end(&mut archive)
            .map_err(|e| ImageError::RamDisk(e.to_string()))?;
        if archive.len() as u64 > LARGEST_RAM_DISK {
            return Err(ImageError::RamDisk(format!("it is larger than {} MiB unpacked", LARGEST_RAM_DISK >> 20)));
        }
        let bad = || ImageError::RamDisk("it is not a cpio archive in the new ASCII format".to_owned());
        let mut at = 0;
        loop {
            let header = archive.get(at..at + 110).filter(|h| h.starts_with(b"070701")).ok_or_else(bad)?;
            let field = |n: usize| {
                let digits = std::str::from_utf8(&header[6 + 8 * n..14 + 8 * n]).ok()?;
                usize::from_str_radix(digits, 16).ok()
            };
            let (mode, size, name_size) =
                (field(1).ok_or_else(bad)?, field(6).ok_or_else(bad)?, field(11).ok_or_else(bad)?);
            let name = archive.get(at + 110..at + 110 + name_size).ok_or_else(bad)?;
            let name = String::from_utf8_lossy(name.strip_suffix(b"\0").unwrap_or(name)).into_owned();
            let data = (at + 110 + name_size).next_multiple_of(4);
            let content = archive.get(data..data + size).ok_or_else(bad)?;
            if name == "TRAILER!!!" {
                return Ok(Self { files });
            }
            if mode & 0o170_000 == 0o100_000 {
                files.insert(name, content.to_vec());
            }
            at = (data + size).next_multiple_of(4);
        }
    }

    /// What it does to the network of a machine with these interfaces.
    pub fn network_of(&self, nics: &[(String, Mac)]) -> ImageNetwork {
        let folders = self.folders();
        let ours: BTreeMap<String, &str> =
            nics.iter().map(|(name, mac)| (mac.to_string().to_uppercase(), name.as_str())).collect();
        // All hosts' mappings are read, and the last one of a MAC counts.
        let names: BTreeMap<String, String> = folders.values().flat_map(|f| f.mapping.clone()).collect();
        let mut connections = BTreeMap::new();
        let mut found = false;
        let mut failed = None;
        for folder in folders.values().filter(|f| f.mapping.iter().any(|(mac, _)| ours.contains_key(mac))) {
            found = true;
            if !folder.connections.is_empty() {
                connections.extend(with_true_names(folder, &names, &ours, &connections));
            }
            for policy in &folder.policies {
                match desired_state(policy, &ours).and_then(|state| connections_of(&state)) {
                    Ok(made) => connections.extend(made),
                    Err(why) => failed = Some(why),
                }
            }
        }
        match (found, connections.is_empty(), failed) {
            (false, ..) => ImageNetwork::Nothing,
            (true, true, Some(why)) => ImageNetwork::Failed(why),
            _ => ImageNetwork::Connections(connections),
        }
    }

    fn folders(&self) -> BTreeMap<&str, Folder> {
        let mut folders: BTreeMap<&str, Folder> = BTreeMap::new();
        for (path, content) in &self.files {
            let Some((folder, name)) = path.strip_prefix(FOLDER).and_then(|rest| rest.split_once('/')) else {
                continue;
            };
            let text = String::from_utf8_lossy(content).into_owned();
            let entry = folders.entry(folder).or_default();
            if name == MAPPING {
                let lines = text.lines().filter_map(|line| line.split_once('='));
                entry.mapping = lines.map(|(mac, name)| (mac.trim().to_uppercase(), name.trim().to_owned())).collect();
            } else if name.ends_with(".nmconnection") {
                entry.connections.insert(name.to_owned(), text);
            } else if name.ends_with(".yml") {
                entry.policies.push(text);
            }
        }
        folders
    }
}

/// What an image has for one host.
#[derive(Default)]
struct Folder {
    /// MACs in capital letters, and the user's names for them.
    mapping: Vec<(String, String)>,
    connections: BTreeMap<String, String>,
    policies: Vec<String>,
}

/// The bytes of a data URL.
fn data_of(url: &str) -> Option<Vec<u8>> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(',')?;
    if kind.ends_with(";base64") {
        return base64::engine::general_purpose::STANDARD.decode(data).ok();
    }
    let mut bytes = Vec::with_capacity(data.len());
    let mut rest = data.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
            let (high, low) = (digit(rest.next())?, digit(rest.next())?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    Some(bytes)
}

/// The connections of a folder with the kernel's names instead of the user's, as the image's script makes them.
fn with_true_names(
    folder: &Folder,
    names: &BTreeMap<String, String>,
    ours: &BTreeMap<String, &str>,
    done: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let renamed: Vec<(&str, &str)> =
        folder.mapping.iter().filter_map(|(mac, _)| Some((names.get(mac)?.as_str(), *ours.get(mac)?))).collect();
    let mut shortened: Vec<(String, String)> = Vec::new();
    let mut files: Vec<(String, String)> = Vec::new();
    for (file, content) in &folder.connections {
        let (prefix, rest) = file.split_once('.').unwrap_or((file, ""));
        match renamed.iter().find(|(user, _)| *user == prefix) {
            Some((_, nic)) => {
                let mut name = (*nic).to_owned();
                if let Some((id, _)) = rest.split_once('.')
                    && name.len() + 1 + id.len() > LONGEST_NAME
                {
                    name.truncate(LONGEST_NAME.saturating_sub(id.len() + 1));
                    shortened.push((format!("{nic}.{id}"), format!("{name}.{id}")));
                }
                files.push((format!("{name}.{rest}"), content.clone()));
            }
            None if done.contains_key(file) => {}
            None => files.push((file.clone(), content.clone())),
        }
    }
    for (_, content) in &mut files {
        for (user, nic) in &renamed {
            let lines: Vec<String> = content
                .lines()
                .map(|line| {
                    let line = match line.strip_suffix(&format!("={user}")) {
                        Some(key) => format!("{key}={nic}"),
                        None => line.to_owned(),
                    };
                    let line = line.replace(&format!("={user}."), &format!("={nic}."));
                    shortened.iter().fold(line, |l, (long, short)| l.replace(&format!("={long}"), &format!("={short}")))
                })
                .collect();
            *content = lines.join("\n") + "\n";
        }
    }
    files.into_iter().collect()
}

/// The state that a policy wants of a machine with these interfaces (MAC in capital letters to name), for nmstate.
///
/// # Errors
/// It is no policy such as services make, or speaks of an interface that the machine has not; words for people.
pub fn desired_state(policy: &str, ours: &BTreeMap<String, &str>) -> Result<Value, String> {
    let mut policy: Value = serde_yaml::from_str(policy).map_err(|e| format!("the policy cannot be read: {e}"))?;
    let mut captured = BTreeMap::new();
    for (name, rule) in policy["capture"].as_object().into_iter().flatten() {
        let rule = rule.as_str().unwrap_or_default();
        let mac = rule.split_once("==").filter(|(what, _)| what.trim() == "interfaces.mac-address");
        let Some((_, mac)) = mac else { return Err(format!("the rule {rule:?} of the policy is not understood")) };
        if let Some(nic) = ours.get(&mac.trim().trim_matches('"').to_uppercase()) {
            captured.insert(format!("{{{{ capture.{name}.interfaces.0.name }}}}"), (*nic).to_owned());
        }
    }
    let mut state = policy["desiredState"].take();
    fill(&mut state, &captured)?;
    Ok(state)
}

/// The connections, by file name, that nmstate makes of a state.
#[cfg(feature = "nmstate")]
fn connections_of(state: &Value) -> Result<BTreeMap<String, String>, String> {
    let state = nmstate::NetworkState::new_from_yaml(&state.to_string()).map_err(|e| e.to_string())?;
    let mut made = state.gen_conf().map_err(|e| e.to_string())?;
    Ok(made.remove("NetworkManager").unwrap_or_default().into_iter().collect())
}

#[cfg(not(feature = "nmstate"))]
fn connections_of(_: &Value) -> Result<BTreeMap<String, String>, String> {
    Err("this program was built without nmstate (the feature `nmstate` of vlab-agents)".to_owned())
}

/// Puts what was captured in its places.
fn fill(value: &mut Value, captured: &BTreeMap<String, String>) -> Result<(), String> {
    match value {
        Value::String(text) if text.contains("{{") => match captured.get(text.as_str()) {
            Some(name) => *text = name.clone(),
            None => return Err(format!("the machine has no interface for {text}")),
        },
        Value::Array(list) => list.iter_mut().try_for_each(|v| fill(v, captured))?,
        Value::Object(map) => map.values_mut().try_for_each(|v| fill(v, captured))?,
        _ => {}
    }
    Ok(())
}

/// A connection of NetworkManager: its sections and their members.
struct Connection(BTreeMap<String, BTreeMap<String, String>>);

impl Connection {
    fn parse(text: &str) -> Self {
        let mut sections: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        let mut section = String::new();
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = name.to_owned();
            } else if let Some((key, value)) = line.split_once('=') {
                sections.entry(section.clone()).or_default().insert(key.trim().to_owned(), value.trim().to_owned());
            }
        }
        Self(sections)
    }

    fn get(&self, section: &str, key: &str) -> Option<&str> {
        self.0.get(section)?.get(key).map(String::as_str)
    }

    /// Values of `<prefix>0`, `<prefix>1`, ...
    fn numbered<'a>(&'a self, section: &str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.get(section).into_iter().flatten().filter_map(move |(key, value)| {
            let number = key.strip_prefix(prefix)?;
            (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(value.as_str())
        })
    }

    /// The bond that it is a port of.
    fn controller(&self) -> Option<&str> {
        self.get("connection", "controller").or_else(|| self.get("connection", "master"))
    }
}

/// A machine's network as these connections make it: its interfaces with the bonds and VLANs that they bring, and its
/// addresses. `leased` is what DHCP gives to the machine's own interfaces, by position.
pub fn configured(
    profile: &HardwareProfile,
    index: u32,
    connections: &BTreeMap<String, String>,
    leased: &HostAddresses,
) -> (HardwareProfile, HostAddresses) {
    let connections: Vec<Connection> = connections.values().map(|text| Connection::parse(text)).collect();
    let mut machine = Machine::new(profile, index, leased);
    machine.add_interfaces(&connections);
    for connection in connections.iter().filter(|c| c.controller().is_none()) {
        machine.apply(connection);
    }
    machine.addresses.dns = Some(machine.dns);
    (machine.profile, machine.addresses)
}

/// A machine while its network is being configured.
struct Machine<'a> {
    profile: HardwareProfile,
    /// MACs of its own interfaces.
    macs: Vec<Mac>,
    addresses: HostAddresses,
    leased: &'a HostAddresses,
    /// Which lease an interface gets: that of the interface below it.
    lease_of: Vec<Option<usize>>,
    dns: Vec<IpAddr>,
}

impl<'a> Machine<'a> {
    fn new(profile: &HardwareProfile, index: u32, leased: &'a HostAddresses) -> Self {
        let own = profile.nics.len();
        Self {
            profile: profile.clone(),
            macs: (0..own).map(|i| profile.mac(index, i)).collect(),
            addresses: HostAddresses { nics: vec![NicAddresses::default(); own], ..HostAddresses::default() },
            leased,
            lease_of: (0..own).map(Some).collect(),
            dns: Vec::new(),
        }
    }

    /// The interface that a connection is for: by name, else by MAC.
    fn interface_of(&self, connection: &Connection) -> Option<String> {
        if let Some(name) = connection.get("connection", "interface-name") {
            return Some(name.to_owned());
        }
        let mac =
            connection.get("ethernet", "mac-address").or_else(|| connection.get("802-3-ethernet", "mac-address"))?;
        let at = self.macs.iter().position(|own| own.to_string().eq_ignore_ascii_case(mac))?;
        self.profile.nics.get(at).map(|nic| nic.name.clone())
    }

    fn position(&self, interface: &str) -> Option<usize> {
        self.profile.nics.iter().position(|nic| nic.name == interface)
    }

    /// Bonds before VLANs: a VLAN can be on a bond.
    fn add_interfaces(&mut self, connections: &[Connection]) {
        for kind in ["bond", "vlan"] {
            for connection in connections.iter().filter(|c| c.get("connection", "type") == Some(kind)) {
                let Some(name) = self.interface_of(connection) else { continue };
                let below = match kind {
                    "bond" => connections
                        .iter()
                        .filter(|port| port.controller() == Some(name.as_str()))
                        .find_map(|port| self.position(&self.interface_of(port)?)),
                    _ => connection.get("vlan", "parent").and_then(|parent| self.position(parent)),
                };
                // Without what is below it there is no such interface.
                let Some(below) = below else { continue };
                let mac = self.addresses.nics[below].mac.or_else(|| self.macs.get(below).copied());
                let model = self.profile.nics[below].clone();
                self.profile.nics.push(NicProfile {
                    name,
                    kind: kind.to_owned(),
                    vendor: None,
                    product: None,
                    ..model
                });
                self.addresses.nics.push(NicAddresses { mac, ..NicAddresses::default() });
                self.lease_of.push(if kind == "bond" { self.lease_of[below] } else { None });
            }
        }
    }

    /// Addresses, gateways, name servers and routes of a connection.
    fn apply(&mut self, connection: &Connection) {
        let Some(name) = self.interface_of(connection) else { return };
        let Some(at) = self.position(&name) else { return };
        for family in ["ipv4", "ipv6"] {
            match connection.get(family, "method") {
                Some("manual") => self.apply_addresses(connection, family, at),
                Some("auto" | "dhcp") => self.apply_lease(connection, family, at),
                _ => {}
            }
            self.addresses.default_gateway(connection.get(family, "gateway").and_then(|g| g.parse().ok()), true);
            let servers = connection.get(family, "dns").into_iter().flat_map(|list| list.split([';', ',']));
            self.dns.extend(servers.filter_map(|server| server.trim().parse::<IpAddr>().ok()));
            self.apply_routes(connection, family, &name);
        }
    }

    fn apply_addresses(&mut self, connection: &Connection, family: &str, at: usize) {
        for text in connection.numbered(family, "address") {
            let (net, gateway) = text.split_once(',').map_or((text, None), |(n, g)| (n, Some(g)));
            match net.parse::<IpNet>() {
                Ok(IpNet::V4(net)) => self.addresses.nics[at].ipv4.push(net),
                Ok(IpNet::V6(net)) => self.addresses.nics[at].ipv6.push(net),
                Err(_) => {}
            }
            self.addresses.default_gateway(gateway.and_then(|g| g.parse().ok()), false);
        }
    }

    fn apply_lease(&mut self, connection: &Connection, family: &str, at: usize) {
        let leased = self.leased;
        let Some(lease) = self.lease_of[at].and_then(|i| leased.nics.get(i)) else { return };
        let nic = &mut self.addresses.nics[at];
        let (has, gateway) = match family {
            "ipv4" => {
                nic.ipv4.extend(&lease.ipv4);
                (!lease.ipv4.is_empty(), leased.gateway_v4.map(IpAddr::V4))
            }
            _ => {
                nic.ipv6.extend(&lease.ipv6);
                (!lease.ipv6.is_empty(), leased.gateway_v6.map(IpAddr::V6))
            }
        };
        if has && connection.get(family, "never-default") != Some("true") {
            self.addresses.default_gateway(gateway, false);
        }
        if has && connection.get(family, "ignore-auto-dns") != Some("true") {
            self.dns.extend(gateway);
        }
    }

    fn apply_routes(&mut self, connection: &Connection, family: &str, interface: &str) {
        for text in connection.numbered(family, "route") {
            let mut parts = text.split(',').map(str::trim);
            let Some(destination) = parts.next().and_then(|d| d.parse::<IpNet>().ok()) else { continue };
            let gateway = parts.next().and_then(|g| g.parse::<IpAddr>().ok()).filter(|g| !g.is_unspecified());
            let metric = parts.next().and_then(|m| m.parse().ok()).filter(|m| *m > 0).unwrap_or(100);
            if destination.prefix_len() == 0 {
                self.addresses.default_gateway(gateway, true);
            } else {
                let interface = interface.to_owned();
                self.addresses.routes.push(StaticRoute { interface, destination, gateway, metric });
            }
        }
    }
}

#[cfg(test)]
mod tests;
