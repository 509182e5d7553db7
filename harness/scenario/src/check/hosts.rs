//! Groups become hosts.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use vlab_api::types::HostRole;
use vlab_model::console;

use super::addresses::quoted_networks;
use super::cluster::ClusterPlaces;
use super::{Checker, Named, Place};
use crate::diagnostic::quoted;
use crate::file::{ActionFile, GroupFile, OverridesFile, ScenarioFile, VmFile};
use crate::spanned::{At, Plain, Text};
use crate::time::Span;
use crate::types::{Cluster, Host, Overrides, Vm};
use crate::words::{ActionKind, FrontDoor, HostKind};

/// Words that mean something of their own where a name of a host or a group can stand.
pub(super) const RESERVED: &[&str] =
    &["all", "none", "service", "postgres", "gateway", "kube", "bootstrap", "control-plane"];

/// No scenario has more hosts.
pub(super) const MAX_HOSTS: usize = 20_000;

impl Checker<'_> {
    /// Groups become hosts. Addresses come later, when the networks are known. Also the place of each group's name.
    pub(super) fn groups(&mut self, file: &ScenarioFile, clusters: &[Named]) -> (Vec<Host>, BTreeMap<String, Place>) {
        let mut hosts: Vec<Host> = vec![];
        let mut places: BTreeMap<String, Place> = BTreeMap::new();
        let mut host_names: BTreeSet<String> = BTreeSet::new();
        let mut total: usize = 0;
        if file.hosts.is_empty() {
            self.refuse(&file.hosts.span, "there are no hosts", "this list is empty", "add a group: `- name: node`");
        }
        for group in file.hosts.iter() {
            let Some(name) = self.group_name(group, &places) else { continue };
            places.insert(name.clone(), group.name.span.clone());
            let count = self.count(group, &name);
            let first = self.first_host(group, &name, file, clusters);
            // The clusters of which each has so many.
            let named = clusters.iter().find(|named| Some(&named.name) == first.cluster.as_ref());
            let homes: Vec<Option<String>> =
                named.map_or_else(|| vec![first.cluster.clone()], |n| n.all().map(Some).collect());
            total = total.saturating_add(count.saturating_mul(homes.len()));
            if total > MAX_HOSTS {
                let place = group.count.as_ref().map_or(group.name.span.clone(), |c| c.span.clone());
                self.refuse(
                    &place,
                    format!("the groups have {total} hosts in total, more than {MAX_HOSTS}"),
                    "too many from this group on",
                    "make the groups smaller",
                );
                break;
            }
            for number in 0..count * homes.len() {
                let host_name = format!("{name}-{number}");
                if !host_names.insert(host_name.clone()) {
                    self.refuse(
                        &group.name.span,
                        format!("two hosts are named `{host_name}`"),
                        "in this group",
                        "rename the group",
                    );
                    break;
                }
                let cluster = homes[number / count].clone();
                hosts.push(Host { name: host_name, index: hosts.len(), cluster, ..first.clone() });
            }
        }
        (hosts, places)
    }

    /// The name of a group; `None` when another group has it.
    fn group_name(&mut self, group: &GroupFile, places: &BTreeMap<String, Place>) -> Option<String> {
        let name = self.label_name(&group.name, "the group's name", 54);
        if let Some(first) = places.get(&name) {
            self.refuse(
                &group.name.span,
                format!("two groups are named `{name}`"),
                "the second one",
                "give each group a `name` of its own",
            );
            self.also(first, "the first one");
            return None;
        }
        if RESERVED.contains(&name.as_str()) {
            self.refuse(
                &group.name.span,
                format!("a group cannot be named `{name}`"),
                "this name has a special meaning",
                "choose another name",
            );
        }
        Some(name)
    }

    fn count(&mut self, group: &GroupFile, name: &str) -> usize {
        let Some(count) = &group.count else { return 1 };
        match self.number(count, &format!("the number of hosts of group `{name}`"), 1, MAX_HOSTS as i64) {
            Some(n) => usize::try_from(n).unwrap_or(1),
            None => 0,
        }
    }

    /// The first host of a group. The others differ in their names and numbers.
    fn first_host(&mut self, group: &At<GroupFile>, name: &str, file: &ScenarioFile, clusters: &[Named]) -> Host {
        let role = self.read_option(&group.role).map_or(HostRole::AutoAssign, |r| r.0);
        let kind = self.read_option(&group.kind).unwrap_or(HostKind::Simulated);
        let vm = self.vm(group.vm.as_ref());
        let profile = self.profile(group);
        let overrides = group.overrides.as_ref().map_or_else(Overrides::default, |o| self.overrides(o));
        let register_after = self.read_option(&group.register_after).unwrap_or(Span::ZERO);
        let cluster = self.cluster_of_group(group, name, clusters);
        let day2 = self.day2(group, cluster.as_deref(), role, file, clusters);
        Host {
            name: String::new(),
            group: name.to_owned(),
            index: 0,
            kind,
            vm,
            role,
            profile,
            overrides,
            cluster,
            bound_to: vec![],
            day2,
            address: None,
            dhcp: group.dhcp.unwrap_or(true),
            bare_metal_host: self.bare_metal_host(group, file),
            registry_on_medium: group.registry_on_medium.unwrap_or(false),
            second_address: None,
            register_after,
        }
    }

    /// Are they described by BareMetalHosts?
    fn bare_metal_host(&mut self, group: &GroupFile, file: &ScenarioFile) -> bool {
        let Some(said) = group.bare_metal_host.as_ref().filter(|said| ***said) else { return false };
        let over_kube = file.api.as_ref().is_some_and(|api| api.text == FrontDoor::Kube.as_str());
        if !over_kube {
            let why = "only over Kubernetes is a host described by a BareMetalHost";
            self.refuse(&said.span, why, "not used here", "add `api: kube` to the scenario, or remove it");
        }
        true
    }

    fn profile(&mut self, group: &GroupFile) -> String {
        let Some(text) = &group.profile else { return "standard".to_owned() };
        let known = self.catalogue.hardware_profiles();
        if !known.contains(&text.text) {
            self.unknown(&text.span, "hardware profile", &text.text, known.iter().map(String::as_str));
        }
        text.text.clone()
    }

    fn overrides(&mut self, file: &OverridesFile) -> Overrides {
        let mut number = |value: &Option<At<i64>>, what: &str, max: i64| {
            value.as_ref().and_then(|n| self.number(n, what, 1, max)).map(i64::unsigned_abs)
        };
        Overrides {
            cpu_cores: number(&file.cpu_cores, "the number of processor cores", 4096)
                .and_then(|n| u32::try_from(n).ok()),
            memory_mib: number(&file.memory_mib, "the memory in MiB", 64 << 20),
            disk_gb: number(&file.disk_gb, "the size of the disks in GB", 1 << 20),
        }
    }

    /// The cluster of a group's hosts; `None`: the pool.
    fn cluster_of_group(&mut self, group: &GroupFile, name: &str, clusters: &[Named]) -> Option<String> {
        let names = || clusters.iter().map(|named| named.name.as_str());
        match (&group.cluster, clusters) {
            (Some(text), _) if text.text == "none" => None,
            (Some(text), _) => {
                if !names().any(|name| name == text.text) {
                    self.unknown(&text.span, "cluster", &text.text, names().chain(["none"]));
                }
                Some(text.text.clone())
            }
            (None, []) => None,
            (None, [only]) => Some(only.name.clone()),
            (None, _) => {
                let help = format!("add `cluster:` with {} or `none`", quoted(&names().collect::<Vec<_>>(), "or"));
                self.refuse(
                    &group.name.span,
                    format!("the group `{name}` does not say which cluster it belongs to"),
                    "there are several clusters",
                    help,
                );
                None
            }
        }
    }

    /// The inside of a cluster is either simulated or in its machines: its hosts must agree.
    pub(super) fn one_kind_in_a_cluster(&mut self, hosts: &[Host], group_places: &BTreeMap<String, Place>) {
        let mut first: BTreeMap<&str, &Host> = BTreeMap::new();
        let mut told = BTreeSet::new();
        for host in hosts {
            for cluster in host.clusters() {
                let before = *first.entry(cluster).or_insert(host);
                if before.kind == host.kind || !told.insert(host.group.as_str()) {
                    continue;
                }
                let place = group_places.get(&host.group).cloned().unwrap_or_default();
                self.refuse(
                    &place,
                    format!(
                        "the hosts of the cluster `{cluster}` are of two kinds: `{}` is `{}`, and `{}` is `{}`",
                        before.group, before.kind, host.group, host.kind
                    ),
                    "a different kind",
                    "give all groups of the cluster the same `kind`",
                );
            }
        }
    }

    /// What the network of virtual machines cannot be: a machine stays in its segment, segments have nothing in common, and all
    /// reach the service at one address. Whether hosts are machines is decided later; those that may be are looked at, or, where
    /// none may be, all.
    pub(super) fn machines_in_networks(
        &mut self,
        hosts: &[Host],
        clusters: &[Cluster],
        places: &[ClusterPlaces],
        group_places: &BTreeMap<String, Place>,
    ) {
        let some_may_be = hosts.iter().any(|host| host.kind != HostKind::Simulated);
        let mut machines = hosts.iter().filter(|host| !some_may_be || host.kind != HostKind::Simulated).peekable();
        let index = |name: &str| clusters.iter().position(|cluster| cluster.name == name);
        let networks = |i: usize| -> BTreeSet<IpNet> { clusters[i].machine_networks.iter().copied().collect() };
        let shown = |i: usize| quoted_networks(&clusters[i].machine_networks);
        let at = |i: usize| places[i].machine.first().unwrap_or(&places[i].place).clone();
        let first = machines.peek().and_then(|host| host.clusters().find_map(index));
        let mut seen: Vec<usize> = Vec::new();
        let mut told = BTreeSet::new();
        for host in machines {
            let own: Vec<usize> = host.clusters().filter_map(index).collect();
            if let Some((one, other)) =
                own.iter().zip(own.iter().skip(1)).find(|(one, other)| networks(**one) != networks(**other))
                && told.insert(host.group.as_str())
            {
                let what = format!(
                    "a virtual machine that goes from one network to another: `{}` has {}, `{}` has {}",
                    clusters[*one].name,
                    shown(*one),
                    clusters[*other].name,
                    shown(*other)
                );
                let place = group_places.get(&host.group).cloned().unwrap_or_default();
                self.not_built(
                    &place,
                    &what,
                    "give both clusters the same `machine_networks`, or run it with `--hosts sim`",
                );
            }
            for i in own {
                if seen.contains(&i) {
                    continue;
                }
                let overlaps = |other: &usize| {
                    let (mine, theirs) = (networks(i), networks(*other));
                    let common = |a: &IpNet| theirs.iter().any(|b| a.contains(b) || b.contains(a));
                    mine != theirs && mine.iter().any(common)
                };
                if let Some(other) = seen.iter().copied().find(overlaps) {
                    let what = format!(
                        "virtual machines in networks that overlap: `{}` has {}, `{}` has {}",
                        clusters[other].name,
                        shown(other),
                        clusters[i].name,
                        shown(i)
                    );
                    let help = "give both clusters the same `machine_networks`, or ones that have nothing in common";
                    self.not_built(&at(i), &what, help);
                }
                let service = first.and_then(|first| clusters[first].machine_networks.first());
                let reaches =
                    |net: &IpNet| service.is_none_or(|service| service.addr().is_ipv4() == net.addr().is_ipv4());
                if !clusters[i].machine_networks.iter().any(reaches) {
                    let family = if service.is_some_and(|net| net.addr().is_ipv4()) { "IPv4" } else { "IPv6" };
                    let what = format!(
                        "virtual machines that cannot reach the service: it has an {family} address in the network of the first \
                         machines, and `{}` has {} only",
                        clusters[i].name,
                        shown(i)
                    );
                    let help =
                        format!("give `{}` an {family} network, too, or run it with `--hosts sim`", clusters[i].name);
                    self.not_built(&at(i), &what, &help);
                }
                seen.push(i);
            }
        }
    }

    fn vm(&mut self, file: Option<&VmFile>) -> Vm {
        let mut vm = Vm::default();
        let Some(file) = file else { return vm };
        let number = |checks: &mut Self, value: &Option<At<i64>>, what: &str, min: i64, max: i64| {
            value.as_ref().and_then(|n| checks.number(n, what, min, max))
        };
        if let Some(n) = number(self, &file.cpus, "the number of the machine's processors", 1, 256) {
            vm.cpus = u32::try_from(n).unwrap_or(1);
        }
        if let Some(n) = number(self, &file.memory_mib, "the machine's memory in MiB", 64, 64 << 20) {
            vm.memory_mib = n.unsigned_abs();
        }
        vm.disk_gb =
            number(self, &file.disk_gb, "the size of the machine's disk in GB", 1, 1 << 20).map(i64::unsigned_abs);
        vm.disks = file.disks.as_ref().map(|disks| self.disks(disks, file.disk_gb.as_ref())).unwrap_or_default();
        vm.firmware = self.read_option(&file.firmware).unwrap_or(vm.firmware);
        vm.tpm = file.tpm.unwrap_or(vm.tpm);
        vm.boot_order = self.read_option(&file.boot_order).unwrap_or(vm.boot_order);
        self.firmware_can(&vm, file);
        let path = |text: &Option<Text<Plain>>| text.as_ref().map(|path| path.text.clone().into());
        (vm.agent, vm.installer, vm.controller) = (path(&file.agent), path(&file.installer), path(&file.controller));
        for id in &file.ignore_console {
            let known = || console::CHECKS.iter().map(|check| check.id);
            if known().any(|known| known == id.text) {
                vm.ignore_console.push(id.text.clone());
            } else {
                self.unknown(&id.span, "console check", &id.text, known());
            }
        }
        vm
    }

    /// Are the hosts of the group added after the installation?
    fn day2(
        &mut self,
        group: &At<GroupFile>,
        cluster: Option<&str>,
        role: HostRole,
        file: &ScenarioFile,
        clusters: &[Named],
    ) -> bool {
        let Some(said) = group.day2.as_ref().filter(|d| ***d) else { return false };
        let opens = |a: &At<ActionFile>| {
            let first = clusters.first().map(|named| named.name.as_str());
            let of = a.cluster.as_ref().map_or(first, |c| Some(c.text.as_str()));
            a.act.text == ActionKind::AllowAddHosts.as_str() && of == cluster
        };
        if clusters.iter().any(|named| Some(named.name.as_str()) == cluster && named.count.is_some()) {
            let help = "write the cluster without `count`, or remove `day2`";
            self.refuse(&said.span, "clusters with a `count` take no day-2 hosts", "not used here", help);
        } else if cluster.is_none() {
            self.refuse(
                &said.span,
                "hosts in the pool cannot be day-2 hosts",
                "not used here",
                "remove `day2`, or name the `cluster` that they are added to",
            );
        } else if !file.actions.iter().any(opens) {
            self.refuse(
                &said.span,
                "no action opens the cluster for day-2 hosts",
                "they would never boot",
                "add an action `{do: allow-add-hosts, after: {cluster: .., status: installed}}`",
            );
        }
        if !matches!(role, HostRole::Worker | HostRole::AutoAssign) {
            let place = group.role.as_ref().map_or(&group.name.span, |r| &r.span);
            self.refuse(
                place,
                "a day-2 host can only be a worker",
                "not a possible role",
                "write `role: worker`, or leave it out",
            );
        }
        true
    }
}

/// Hosts of the pool that actions bind to clusters later.
pub(super) fn bindings(file: &ScenarioFile, clusters: &[String], hosts: &[Host]) -> BTreeMap<String, Vec<String>> {
    let mut bound: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for action in &file.actions {
        if action.act.text != ActionKind::Bind.as_str() {
            continue;
        }
        let cluster = match (&action.cluster, clusters) {
            (Some(text), _) if clusters.contains(&text.text) => text.text.clone(),
            (None, [only]) => only.clone(),
            _ => continue,
        };
        for host in hosts {
            let named = action.host.as_ref().is_some_and(|h| h.text == host.name)
                || action.hosts.as_ref().is_some_and(|g| g.text == host.group || g.text == "all");
            if named {
                bound.entry(host.name.clone()).or_default().push(cluster.clone());
            }
        }
    }
    bound
}
