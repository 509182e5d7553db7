//! Static networks: read from the scenario or from `NMStateConfig` resources, and compared with its hosts.
//!
//! The service refuses little of this; most mistakes would only show as hosts that never come. So they are found here, unless
//! the scenario says that it wants them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use vlab_model::mac::{Mac, parse_prefix};

use super::{Checker, Place};
use crate::diagnostic::{SourceFile, quoted};
use crate::file::{InfraEnvFile, StaticNetworkFile};
use crate::spanned::At;
use crate::types::{Host, StaticNetwork};
use crate::words::NetworkMistake;

/// What of a hardware profile makes MACs.
#[derive(Deserialize)]
struct Nics {
    nics: Vec<Nic>,
}

#[derive(Deserialize)]
struct Nic {
    name: String,
    mac_prefix: Option<String>,
}

/// The resource with which a cluster's operator is told of a static network.
#[derive(Deserialize)]
struct NmStateConfig {
    kind: String,
    spec: NmStateConfigSpec,
}

#[derive(Deserialize)]
struct NmStateConfigSpec {
    #[serde(default)]
    interfaces: Vec<NmStateInterface>,
    #[serde(default)]
    config: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NmStateInterface {
    name: String,
    mac_address: String,
}

/// A network with the places of what it says.
struct Placed {
    yaml: String,
    yaml_place: Place,
    /// MAC and the user's name, each with its place.
    map: Vec<(String, String, Place)>,
    place: Place,
}

/// A NIC of a host.
struct Known<'a> {
    host: &'a str,
    nic: String,
}

/// The mistakes that a scenario makes on purpose, and those that are there.
struct Mistakes<'a> {
    wanted: &'a [NetworkMistake],
    found: BTreeSet<NetworkMistake>,
}

impl Checker<'_> {
    /// The static networks of the infra-envs, with the hosts that they are for.
    pub(super) fn static_networks(
        &mut self,
        file: Option<&InfraEnvFile>,
        hosts: &[Host],
    ) -> (Vec<StaticNetwork>, Vec<NetworkMistake>) {
        let Some(file) = file else { return (vec![], vec![]) };
        let wanted: Vec<NetworkMistake> = self.read_all(&file.mistakes);
        if file.static_network_config.is_empty() {
            if let Some(first) = file.mistakes.first() {
                self.refuse(
                    &first.span,
                    "`mistakes` are those of static networks, and there are none",
                    "of nothing",
                    "add `static_network_config`, or remove `mistakes`",
                );
            }
            return (vec![], wanted);
        }
        let macs = self.macs(hosts);
        let mut networks: Vec<Placed> = vec![];
        for entry in &file.static_network_config {
            self.network(entry, &macs, &mut networks);
        }
        let mut mistakes = Mistakes { wanted: &wanted, found: BTreeSet::new() };
        self.compare_macs(&networks, &macs, &mut mistakes);
        self.compare_addresses(&networks, &mut mistakes);
        let found = mistakes.found;
        for (text, mistake) in file.mistakes.iter().zip(&wanted) {
            if !found.contains(mistake) {
                self.refuse(
                    &text.span,
                    format!("the static networks do not have the mistake `{mistake}`"),
                    "not found",
                    "remove it, or make that mistake in the static networks",
                );
            }
        }
        let resolved = networks
            .into_iter()
            .map(|n| {
                let mut of: Vec<String> = vec![];
                for known in n.map.iter().filter_map(|(mac, ..)| macs.get(&mac.parse::<Mac>().ok()?)) {
                    if !of.iter().any(|h| h == known.host) {
                        of.push(known.host.to_owned());
                    }
                }
                StaticNetwork {
                    line: self.line(&n.place),
                    network_yaml: n.yaml,
                    mac_interface_map: n.map.into_iter().map(|(mac, name, _)| (mac, name)).collect(),
                    hosts: of,
                }
            })
            .collect();
        (resolved, wanted)
    }

    /// The MACs of all hosts.
    fn macs<'h>(&self, hosts: &'h [Host]) -> BTreeMap<Mac, Known<'h>> {
        let mut profiles: BTreeMap<&str, Vec<Nic>> = BTreeMap::new();
        let mut macs = BTreeMap::new();
        for host in hosts {
            let nics = profiles.entry(&host.profile).or_insert_with(|| {
                let text = self.catalogue.hardware_profile(&host.profile);
                text.and_then(|t| serde_saphyr::from_str::<Nics>(&t).ok()).map_or_else(Vec::new, |n| n.nics)
            });
            for (i, nic) in nics.iter().enumerate() {
                let index = u32::try_from(host.index).unwrap_or(u32::MAX);
                let mac = Mac::of(nic.mac_prefix.as_deref().and_then(parse_prefix), index, i);
                macs.insert(mac, Known { host: &host.name, nic: nic.name.clone() });
            }
        }
        macs
    }

    /// Reads one entry, which is one network, or a file of resources.
    fn network(&mut self, entry: &At<StaticNetworkFile>, macs: &BTreeMap<Mac, Known<'_>>, networks: &mut Vec<Placed>) {
        if let Some(resource) = &entry.resource {
            if entry.network_yaml.is_some() || entry.mac_interface_map.is_some() {
                self.refuse(
                    &resource.span,
                    "`resource` cannot be combined with `network_yaml` or `mac_interface_map`",
                    "has both",
                    "keep one or the other",
                );
                return;
            }
            match self.resources(&resource.text) {
                Ok(read) => networks.extend(read.into_iter().map(|spec| Placed {
                    // JSON is YAML, too.
                    yaml: spec.config.to_string(),
                    yaml_place: resource.span.clone(),
                    map: spec.interfaces.into_iter().map(|i| (i.mac_address, i.name, resource.span.clone())).collect(),
                    place: resource.span.clone(),
                })),
                Err(why) => self.refuse(
                    &resource.span,
                    format!("the resource `{}` cannot be read: {why}", resource.text),
                    "from here",
                    "name a file with `NMStateConfig` resources, with a path relative to the scenario's file",
                ),
            }
            return;
        }
        let Some(yaml) = &entry.network_yaml else {
            let help =
                "add `network_yaml: |` with nmstate's YAML, or `resource:` with a file of `NMStateConfig` resources";
            return self.refuse(&entry.span, "a static network needs its YAML", "`network_yaml` is missing", help);
        };
        let mut map = vec![];
        for item in entry.mac_interface_map.iter().flatten() {
            let name = item.logical_nic_name.text.clone();
            let (mac, place) = match (&item.mac_address, &item.nic) {
                (Some(mac), None) => {
                    if mac.text.parse::<Mac>().is_err() {
                        let help = "write six pairs of hexadecimal digits: `52:54:00:00:00:10`";
                        self.refuse(&mac.span, format!("`{}` is not a MAC address", mac.text), "not a MAC", help);
                        continue;
                    }
                    (mac.text.clone(), mac.span.clone())
                }
                (None, Some(nic)) => {
                    let (host, name) = nic.text.split_once('/').unwrap_or((&nic.text, ""));
                    let Some((mac, _)) = macs.iter().find(|(_, k)| k.host == host && k.nic == name) else {
                        let known: Vec<String> = macs.values().map(|k| format!("{}/{}", k.host, k.nic)).collect();
                        self.unknown(&nic.span, "NIC", &nic.text, known.iter().map(String::as_str));
                        continue;
                    };
                    (mac.to_string(), nic.span.clone())
                }
                _ => {
                    let help = "write either `mac_address: <MAC>` or `nic: <host>/<NIC of its profile>`";
                    self.refuse(&item.span, "an interface needs either its MAC or its NIC", "both, or neither", help);
                    continue;
                }
            };
            map.push((mac, name, place));
        }
        networks.push(Placed {
            yaml: yaml.text.clone(),
            yaml_place: yaml.span.clone(),
            map,
            place: entry.span.clone(),
        });
    }

    fn resources(&mut self, path: &str) -> Result<Vec<NmStateConfigSpec>, String> {
        let text = match self.source.resources.get(path) {
            Some(text) => text.clone(),
            None => self.catalogue.beside(&self.source.name, path).map_err(|e| e.to_string())?,
        };
        let read: Vec<NmStateConfig> =
            serde_saphyr::from_multiple(&text).map_err(|e| e.to_string().lines().next().unwrap_or("").to_owned())?;
        match read.iter().find(|r| r.kind != "NMStateConfig") {
            Some(other) => Err(format!("it has a resource of kind {}", other.kind)),
            None if read.is_empty() => Err("it has no resource".to_owned()),
            None => {
                self.resources.insert(path.to_owned(), text);
                Ok(read.into_iter().map(|r| r.spec).collect())
            }
        }
    }

    /// A mistake, unless it is wanted.
    fn mistake(
        &mut self,
        mistakes: &mut Mistakes<'_>,
        mistake: NetworkMistake,
        place: &Place,
        message: String,
        help: &str,
    ) -> bool {
        mistakes.found.insert(mistake);
        if mistakes.wanted.contains(&mistake) {
            return false;
        }
        let help = format!("{help}; or add `mistakes: [{mistake}]` to the infra-env, to send it as it is");
        self.refuse(place, message, mistake.as_str().replace('-', " "), help);
        true
    }

    fn compare_macs(&mut self, networks: &[Placed], macs: &BTreeMap<Mac, Known<'_>>, mistakes: &mut Mistakes<'_>) {
        let mut seen: BTreeMap<Mac, Place> = BTreeMap::new();
        for network in networks {
            if network.map.is_empty() {
                let message = "a static network needs a MAC, so that its host can recognize it".to_owned();
                let help = "add `mac_interface_map` with `mac_address` and `logical_nic_name`";
                self.mistake(mistakes, NetworkMistake::MissingInterface, &network.place, message, help);
            }
            for (text, _, place) in &network.map {
                let Ok(mac) = text.parse::<Mac>() else { continue };
                if !macs.contains_key(&mac) {
                    let near: Vec<String> =
                        macs.iter().take(4).map(|(mac, k)| format!("{mac} is {}/{}", k.host, k.nic)).collect();
                    let near: Vec<&str> = near.iter().map(String::as_str).collect();
                    let message = format!("no host has the MAC {text}");
                    let help = format!("MACs follow from the hardware profile: {}", quoted(&near, "and"));
                    self.mistake(mistakes, NetworkMistake::UnknownMac, place, message, &help);
                }
                if let Some(first) = seen.insert(mac, place.clone()) {
                    let message = format!("the MAC {text} appears twice");
                    let help = "each MAC stands for one interface of one host";
                    if self.mistake(mistakes, NetworkMistake::DuplicateMac, place, message, help) {
                        self.also(&first, "the first one");
                    }
                }
            }
        }
    }

    fn compare_addresses(&mut self, networks: &[Placed], mistakes: &mut Mistakes<'_>) {
        let mut seen: BTreeMap<IpAddr, Place> = BTreeMap::new();
        for network in networks {
            let place = &network.yaml_place;
            let state = match serde_saphyr::from_str::<Value>(&network.yaml) {
                Ok(state) if state.get("interfaces").is_some_and(Value::is_array) => state,
                read => {
                    let why = read.err().map_or("it has no list of `interfaces`".to_owned(), |e| {
                        e.to_string().lines().next().unwrap_or("").trim_start_matches("error: ").to_owned()
                    });
                    let message = format!("the YAML of the static network cannot be read: {why}");
                    let help = "write it in nmstate's form: a mapping with `interfaces`";
                    self.mistake(mistakes, NetworkMistake::InvalidYaml, place, message, help);
                    continue;
                }
            };
            let interfaces = state["interfaces"].as_array().map_or(&[][..], Vec::as_slice);
            let names: Vec<&str> = network.map.iter().map(|(_, name, _)| name.as_str()).collect();
            for interface in interfaces {
                let name = interface["name"].as_str().unwrap_or_default();
                let ethernet = matches!(interface["type"].as_str(), Some("ethernet" | "802-3-ethernet"));
                if ethernet
                    && !names.contains(&name)
                    && !is_kernel_name(name)
                    && interface["identifier"] != "mac-address"
                {
                    let message = format!("no MAC is given for the interface `{name}`");
                    let help = format!("add `{{mac_address: <MAC>, logical_nic_name: {name}}}` to `mac_interface_map`");
                    self.mistake(mistakes, NetworkMistake::MissingInterface, place, message, &help);
                }
            }
            let own: Vec<IpNet> = interfaces.iter().flat_map(addresses).collect();
            for net in &own {
                if let Some(first) = seen.insert(net.addr(), place.clone()) {
                    let message = format!("the address {} appears twice", net.addr());
                    let help = "give each interface an address of its own";
                    if self.mistake(mistakes, NetworkMistake::DuplicateAddress, place, message, help) && first != *place
                    {
                        self.also(&first, "the first one");
                    }
                }
            }
            let routes = state.pointer("/routes/config").and_then(Value::as_array).into_iter().flatten();
            for route in routes {
                let default = matches!(route["destination"].as_str(), Some("0.0.0.0/0" | "::/0"));
                let hop = route["next-hop-address"].as_str().and_then(|h| h.parse::<IpAddr>().ok());
                if let Some(hop) = hop.filter(|hop| default && !own.iter().any(|net| net.contains(hop))) {
                    let list: Vec<String> = own.iter().map(|n| n.trunc().to_string()).collect();
                    let list: Vec<&str> = list.iter().map(String::as_str).collect();
                    let message = format!("the gateway {hop} is outside {}", quoted(&list, "and"));
                    let help = "a gateway must be in a network of the host";
                    self.mistake(mistakes, NetworkMistake::GatewayOutside, place, message, help);
                }
            }
        }
    }
}

/// A name that the service takes for one that the kernel gives.
fn is_kernel_name(name: &str) -> bool {
    name.strip_prefix("en").and_then(|rest| rest.chars().next()).is_some_and(|kind| "PsvxXbucaipod".contains(kind))
}

impl crate::StaticNetwork {
    /// What it wants of interfaces, as nmstate writes it; none where that is no YAML or has none, which is the service's to refuse.
    pub fn interfaces(&self) -> Vec<Value> {
        let state = serde_saphyr::from_str::<Value>(&self.network_yaml).unwrap_or_default();
        state["interfaces"].as_array().cloned().unwrap_or_default()
    }

    /// The addresses that its interfaces get, with their networks.
    pub fn addresses(&self) -> Vec<IpNet> {
        self.interfaces().iter().flat_map(addresses).collect()
    }
}

/// The addresses that an interface gets.
fn addresses(interface: &Value) -> Vec<IpNet> {
    let lists = ["ipv4", "ipv6"].iter().filter_map(|family| interface[*family]["address"].as_array());
    lists
        .flatten()
        .filter_map(|a| {
            let address = a["ip"].as_str()?.parse().ok()?;
            IpNet::new(address, u8::try_from(a["prefix-length"].as_u64()?).ok()?).ok()
        })
        .collect()
}

impl crate::Catalogue {
    /// The text of a file whose path is relative to that of a scenario.
    pub(super) fn beside(&self, scenario: &str, path: &str) -> Result<String, crate::diagnostic::LoadError> {
        let source = match scenario.strip_prefix("built-in:") {
            Some(inside) => {
                let mut parts: Vec<&str> =
                    inside.rsplit_once('/').map_or(vec![], |(folder, _)| folder.split('/').collect());
                for part in path.split('/') {
                    match part {
                        "." => {}
                        ".." => drop(parts.pop()),
                        part => parts.push(part),
                    }
                }
                self.source(&parts.join("/"))?
            }
            None => SourceFile::read(&Path::new(scenario).parent().unwrap_or(Path::new("")).join(path))?,
        };
        Ok(String::from_utf8_lossy(&source.bytes).into_owned())
    }
}
