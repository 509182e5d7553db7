//! From the form of a file to a [`Scenario`]: every name is looked up, every number compared, every contradiction named.
//! Nothing stops at the first mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use ipnet::IpNet;
use vlab_api::types::{
    ClusterStatus, ClusterValidationId, HostRole, HostStage, HostStatus, HostValidationId, ImageType, PlatformType,
};
use vlab_model::console;
use vlab_model::pivot::{PivotMoment, SINGLE_NODE};
use vlab_model::settings::{SettingError, Settings};

use crate::catalogue::Catalogue;
use crate::diagnostic::{Problem, SourceFile, line_column, quoted, render_problem, suggestion};
use crate::faults::{FaultRow, OWN_STAGES, ParamForm, ParamRow, ParamValue, TargetForm, fault_row, operation_ids};
use crate::file::*;
use crate::spanned::{At, Plain, Scalar, Text, Version, split_step};
use crate::time::Span;
use crate::types::*;
use crate::words::{
    ActionKind, FaultKind, FaultPhase, HostKind, InstallMode, Lasting, Need, PivotOrder, Quantity, RoleName,
    SequenceMode, ServiceKind, Topology, When,
};

/// Words that mean something of their own where a name of a host or a group can stand.
const RESERVED: &[&str] = &["all", "none", "service", "postgres", "gateway", "bootstrap", "control-plane"];
/// Stages whose progress text is a percentage.
const HAVE_PROGRESS: &[HostStage] = &[HostStage::WritingImageToDisk, HostStage::CopyingRegistryDataToDisk];

/// No scenario has more hosts.
pub(crate) const MAX_HOSTS: usize = 20_000;

type Place = Range<usize>;

mod networks;

/// Checks a file and resolves it. The scenario is there only when there are no problems.
pub(crate) fn check(
    file: &ScenarioFile,
    source: &SourceFile,
    text: &str,
    catalogue: &Catalogue,
) -> Result<Scenario, Vec<Problem>> {
    let mut checker =
        Checker { source, text, catalogue, resources: BTreeMap::new(), problems: vec![], not_built: vec![] };
    let scenario = checker.scenario(file);
    match scenario {
        Some(scenario) if checker.problems.is_empty() => Ok(scenario),
        _ => Err(checker.problems),
    }
}

struct Checker<'a> {
    source: &'a SourceFile,
    text: &'a str,
    catalogue: &'a Catalogue,
    /// Files of resources that were read.
    resources: BTreeMap<String, String>,
    problems: Vec<Problem>,
    not_built: Vec<NotBuilt>,
}

/// What is known about the scenario while its expectations are read.
struct Known<'a> {
    clusters: &'a [Cluster],
    hosts: &'a [Host],
    groups: Vec<&'a str>,
    /// Names of the faults.
    faults: Vec<&'a str>,
    /// Is real time among the needs?
    real_time: bool,
    /// The cluster that each host is in at some time, by binding too.
    member: BTreeMap<&'a str, Option<&'a str>>,
    /// The user resets a cluster, whose hosts then begin anew.
    resets: bool,
}

/// Who an item speaks of, as it is written.
#[derive(Clone, Copy)]
struct Who<'a> {
    host: &'a Option<Text<Plain>>,
    hosts: &'a Option<Text<Plain>>,
    role: &'a Option<Text<RoleName>>,
    cluster: &'a Option<Text<Plain>>,
}

macro_rules! who {
    ($item:expr) => {
        Who { host: &$item.host, hosts: &$item.hosts, role: &$item.role, cluster: &$item.cluster }
    };
}

/// A cluster while it is checked: what it says and where it says it.
struct ClusterPlaces {
    place: Place,
    machine: Vec<Place>,
    machine_is_default: bool,
}

impl Checker<'_> {
    fn refuse(&mut self, place: &Place, message: impl Into<String>, label: impl Into<String>, help: impl Into<String>) {
        let help = help.into();
        self.problems.push(Problem {
            message: message.into(),
            span: Some(place.clone()),
            label: label.into(),
            also: vec![],
            help: Some(help).filter(|h| !h.is_empty()),
        });
    }

    /// Adds another place to the last problem.
    fn also(&mut self, place: &Place, label: impl Into<String>) {
        if let Some(problem) = self.problems.last_mut() {
            problem.also.push((place.clone(), label.into()));
        }
    }

    fn unknown<'k>(&mut self, place: &Place, what: &str, word: &str, known: impl IntoIterator<Item = &'k str>) {
        let help = suggestion(word, known);
        self.refuse(place, format!("there is no {what} `{word}`"), format!("no such {what}"), help);
    }

    fn not_built(&mut self, place: &Place, what: &str, help: &str) {
        let problem = Problem {
            message: format!("{what}: not built yet"),
            span: Some(place.clone()),
            label: "cannot be run by this version".to_owned(),
            also: vec![],
            help: Some(help.to_owned()),
        };
        self.not_built.push(NotBuilt {
            what: what.to_owned(),
            line: self.line(place),
            diagnostic: render_problem(&self.source.name, self.text, &problem, false),
        });
    }

    fn line(&self, place: &Place) -> usize {
        line_column(self.text, place.start).0
    }

    fn read<T: Scalar>(&mut self, text: &Text<T>) -> Option<T> {
        match T::read(&text.text) {
            Ok(value) => Some(value),
            Err(c) => {
                self.refuse(&text.span, c.message, c.label, c.help);
                None
            }
        }
    }

    fn read_option<T: Scalar>(&mut self, text: &Option<Text<T>>) -> Option<T> {
        text.as_ref().and_then(|t| self.read(t))
    }

    fn read_all<T: Scalar>(&mut self, texts: &[Text<T>]) -> Vec<T> {
        texts.iter().filter_map(|t| self.read(t)).collect()
    }

    /// A whole number within limits.
    fn number(&mut self, value: &At<i64>, what: &str, min: i64, max: i64) -> Option<i64> {
        if (min..=max).contains(&**value) {
            return Some(**value);
        }
        let label = if **value < min { "too small" } else { "too big" };
        self.refuse(
            &value.span,
            format!("{what} is {}, must be {min} to {max}", **value),
            label,
            format!("write a number from {min} to {max}"),
        );
        None
    }

    fn positive_u64(&mut self, value: &Option<At<i64>>, what: &str, min: i64) -> Option<u64> {
        value.as_ref().and_then(|v| self.number(v, what, min, 1_000_000_000)).and_then(|n| u64::try_from(n).ok())
    }

    /// A name that becomes a part of host names and of paths.
    fn label_name(&mut self, text: &Text<Plain>, what: &str, max: usize) -> String {
        let name = &text.text;
        let good = !name.is_empty()
            && name.len() <= max
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-');
        if !good {
            self.refuse(
                &text.span,
                format!("{what} {name:?} cannot be used"),
                "not such a name",
                format!(
                    "write 1 to {max} lower-case letters, digits and dashes, with a letter or a digit at both ends"
                ),
            );
        }
        name.clone()
    }

    fn scenario(&mut self, file: &ScenarioFile) -> Option<Scenario> {
        if *file.version != 1 {
            self.refuse(
                &file.version.span,
                format!("version {} of the scenario language is not known", *file.version),
                "must be 1",
                "write `version: 1`",
            );
        }
        let name = self.label_name(&file.name, "the scenario's name", 63);
        let mut tags = vec![];
        for tag in &file.tags {
            let tag_name = self.label_name(tag, "the tag", 63);
            if tags.contains(&tag_name) {
                self.refuse(&tag.span, format!("the tag `{tag_name}` is there twice"), "the second one", "remove it");
            }
            tags.push(tag_name);
        }
        let needs = self.read_all(&file.needs);
        let service = self.service(file.service.as_ref());
        let mut infra_env = self.infra_env(file.infra_env.as_ref());

        let cluster_files: Vec<&At<ClusterFile>> = match (&file.cluster, &file.clusters) {
            (Some(one), Some(many)) => {
                let place = many.first().map_or(one.span.clone(), |c| c.span.clone());
                self.refuse(
                    &place,
                    "`cluster` and `clusters` are both there",
                    "the other one",
                    "put all clusters under `clusters`",
                );
                self.also(&one.span, "one of them");
                vec![one]
            }
            (Some(one), None) => vec![one],
            (None, Some(many)) => many.iter().collect(),
            (None, None) => vec![],
        };
        let names: Vec<String> = cluster_files
            .iter()
            .map(|c| match &c.name {
                Some(n) => self.label_name(n, "the cluster's name", 54),
                None => name.clone(),
            })
            .collect();
        for (i, cluster_name) in names.iter().enumerate() {
            if let Some(first) = names[..i].iter().position(|n| n == cluster_name) {
                let place = name_place(cluster_files[i]);
                self.refuse(
                    &place,
                    format!("two clusters are named `{cluster_name}`"),
                    "the second one",
                    "give each cluster a `name` of its own",
                );
                self.also(&name_place(cluster_files[first]), "the first one");
            }
            if cluster_name == "none" {
                self.refuse(
                    &name_place(cluster_files[i]),
                    "a cluster cannot be named `none`",
                    "means the pool",
                    "choose another name",
                );
            }
        }

        let (mut hosts, group_places) = self.groups(file, &names);
        self.one_kind_in_a_cluster(&hosts, &group_places);
        self.machines_in_one_network(&hosts, &group_places);
        let bound = self.bindings(file, &names, &hosts);
        for host in &mut hosts {
            host.bound_to = bound.get(&host.name).cloned().unwrap_or_default();
        }
        let mut clusters = vec![];
        let mut places = vec![];
        for (cluster_file, cluster_name) in cluster_files.iter().zip(&names) {
            let members: Vec<&Host> = hosts
                .iter()
                .filter(|h| h.cluster.as_ref() == Some(cluster_name) || h.bound_to.contains(cluster_name))
                .filter(|h| !h.day2)
                .collect();
            // VIPs that the user sets later need not be there at the beginning.
            let vips_later = file.actions.iter().any(|a| {
                a.act.text == ActionKind::SetVips.as_str() && a.cluster.as_ref().is_none_or(|c| c.text == *cluster_name)
            });
            let (cluster, place) = self.cluster(cluster_file, cluster_name, &members, &group_places, vips_later);
            clusters.push(cluster);
            places.push(place);
        }
        self.addresses(file, &clusters, &places, &mut hosts);
        (infra_env.static_networks, infra_env.mistakes) = self.static_networks(file.infra_env.as_ref(), &hosts);
        infra_env.resources = std::mem::take(&mut self.resources);

        let known = Known {
            clusters: &clusters,
            hosts: &hosts,
            groups: {
                let mut groups: Vec<&str> = hosts.iter().map(|h| h.group.as_str()).collect();
                groups.dedup();
                groups
            },
            faults: file.faults.iter().map(|f| f.name.text.as_str()).collect(),
            real_time: needs.contains(&Need::RealTime),
            member: hosts
                .iter()
                .map(|h| (h.name.as_str(), h.cluster.as_deref().or(h.bound_to.last().map(String::as_str))))
                .collect(),
            resets: file.actions.iter().any(|a| a.act.text == ActionKind::Reset.as_str()),
        };

        let actions: Vec<Action> = file.actions.iter().filter_map(|a| self.action(a, &known)).collect();
        let faults = self.faults(&file.faults, &known);
        let expect = self.expectations(&file.expect, &known);
        let budgets = self.budgets(file.budgets.as_ref());
        let pivot = file.pivot.as_ref().and_then(|p| self.pivot(p, &clusters, &actions));
        let installs = clusters.iter().any(|c| c.install == InstallMode::Auto)
            || actions.iter().any(|a| a.kind == ActionKind::Install && a.refused.is_none());
        let until = self.until(file, &known, installs)?;
        let load = self.load(file.load.as_ref());
        let report = self.report(file.report.as_ref(), hosts.len());

        Some(Scenario {
            version: 1,
            name,
            description: file.description.as_deref().unwrap_or_default().trim().to_owned(),
            tags,
            path: self.source.name.clone(),
            seed: file.seed,
            needs,
            service,
            infra_env,
            clusters,
            hosts,
            hosts_settings: HostsSettings {
                reply_cache: file.hosts_settings.as_ref().and_then(|h| h.reply_cache).unwrap_or(true),
            },
            actions,
            faults,
            expect,
            budgets,
            pivot,
            until,
            load,
            report,
            not_built: std::mem::take(&mut self.not_built),
        })
    }

    fn service(&mut self, file: Option<&ServiceFile>) -> Service {
        let Some(file) = file else {
            return Service {
                kind: ServiceKind::Simulated,
                settings: BTreeMap::new(),
                time_profile: "fast".to_owned(),
                url: None,
                program: None,
                image: None,
                postgres_image: None,
            };
        };
        let kind = self.read_option(&file.kind).unwrap_or(ServiceKind::Simulated);
        let no_name = |text: &str| text.is_empty() || text.contains(char::is_whitespace);
        match (&file.image, kind) {
            (None, ServiceKind::Container) => {
                let place = file.kind.as_ref().map_or(0..0, |k| k.span.clone());
                self.refuse(
                    &place,
                    "a service of kind container needs its image",
                    "`image` is missing",
                    "add `image: vlab-service`, or `image: quay.io/edge-infrastructure/assisted-service:latest`",
                );
            }
            (Some(image), ServiceKind::Container) if no_name(&image.text) => self.refuse(
                &image.span,
                "the service's image has no name",
                "no name of an image",
                "write `image: name` or `image: name:tag`",
            ),
            _ => {}
        }
        for (name, text) in [("image", &file.image), ("postgres_image", &file.postgres_image)] {
            let Some(text) = text else { continue };
            if kind != ServiceKind::Container {
                self.refuse(
                    &text.span,
                    format!("only a service of kind container has `{name}`"),
                    "of no use here",
                    "remove it, or write `kind: container`",
                );
            } else if name == "postgres_image" && no_name(&text.text) {
                self.refuse(&text.span, "PostgreSQL's image has no name", "no name of an image", "write `name:tag`");
            }
        }
        match (&file.program, kind) {
            (None, ServiceKind::Process) => {
                let place = file.kind.as_ref().map_or(0..0, |k| k.span.clone());
                self.refuse(
                    &place,
                    "a service of kind process needs its program",
                    "`program` is missing",
                    "add `program: /path/to/assisted-service`",
                );
            }
            (Some(program), ServiceKind::Process) if program.text.is_empty() => self.refuse(
                &program.span,
                "the service's program has no name",
                "empty",
                "write `program: /path/to/assisted-service`",
            ),
            (Some(program), other) if other != ServiceKind::Process => self.refuse(
                &program.span,
                "only a service of kind process has a `program`",
                "of no use here",
                "remove it, or write `kind: process`",
            ),
            _ => {}
        }
        if kind == ServiceKind::Remote
            && let Some((_, value)) = file.settings.first_key_value()
        {
            self.refuse(
                &value.span,
                "a remote service is not set up by the run",
                "cannot be set",
                "remove `settings`, and set them where the service is started",
            );
        }
        match (&file.url, kind) {
            (None, ServiceKind::Remote) => {
                let place = file.kind.as_ref().map_or(0..0, |k| k.span.clone());
                self.refuse(&place, "a remote service needs its address", "`url` is missing", "add `url: http://...`");
            }
            (Some(url), ServiceKind::Remote) => {
                if !url.text.starts_with("http://") && !url.text.starts_with("https://") {
                    self.refuse(
                        &url.span,
                        format!("`{}` is no address of a service", url.text),
                        "not a URL",
                        "it begins with `http://` or `https://`",
                    );
                }
            }
            (Some(url), _) => self.refuse(
                &url.span,
                "only a remote service has a `url`",
                "of no use here",
                "remove it, or write `kind: remote`",
            ),
            (None, _) => {}
        }
        let mut settings = BTreeMap::new();
        for (name, value) in &file.settings {
            let text = match &value.value {
                serde_json::Value::String(s) => s.clone(),
                serde_json::Value::Null => {
                    self.refuse(
                        &value.span,
                        format!("the setting {name} has no value"),
                        "nothing here",
                        "write a value; `\"\"` is the empty one",
                    );
                    continue;
                }
                other => other.to_string(),
            };
            match Settings::default().apply_in_profile(name, &text, 1.0) {
                Ok(()) => {}
                // Only the simulated service lacks what the real one has.
                Err(SettingError::NotSimulated { .. }) if kind != ServiceKind::Simulated => {}
                Err(SettingError::Unknown { name, .. }) => {
                    self.unknown(&value.span, "service setting", &name, Settings::NAMES.iter().copied());
                }
                Err(error) => self.refuse(&value.span, error.to_string(), "cannot be taken", ""),
            }
            settings.insert(name.clone(), text);
        }
        let time_profile = match &file.time_profile {
            None => "fast".to_owned(),
            Some(text) => {
                let known = self.catalogue.time_profile_names();
                if !known.contains(&text.text) {
                    self.unknown(&text.span, "time profile", &text.text, known.iter().map(String::as_str));
                } else if let Err(error) = self.catalogue.time_profile(&text.text) {
                    self.refuse(
                        &text.span,
                        format!("the time profile `{}` cannot be used: {error}", text.text),
                        "this one",
                        "",
                    );
                }
                text.text.clone()
            }
        };
        Service {
            kind,
            settings,
            time_profile,
            url: file.url.as_ref().map(|u| u.text.clone()),
            program: file.program.as_ref().map(|p| p.text.clone()),
            image: file.image.as_ref().map(|i| i.text.clone()),
            postgres_image: file.postgres_image.as_ref().map(|i| i.text.clone()),
        }
    }

    fn infra_env(&mut self, file: Option<&InfraEnvFile>) -> InfraEnv {
        const ARCHITECTURES: &[&str] = &["x86_64", "aarch64", "arm64", "ppc64le", "s390x"];
        let none = InfraEnvFile::default();
        let file = file.unwrap_or(&none);
        if let Some(text) = &file.cpu_architecture
            && !ARCHITECTURES.contains(&text.text.as_str())
        {
            self.unknown(&text.span, "processor architecture", &text.text, ARCHITECTURES.iter().copied());
        }
        InfraEnv {
            cpu_architecture: file.cpu_architecture.as_ref().map_or("x86_64", |t| t.text.as_str()).to_owned(),
            image_type: self.read_option(&file.image_type).unwrap_or(ImageType::MinimalIso),
            additional_ntp_sources: file.additional_ntp_sources.clone(),
            kernel_arguments: file.kernel_arguments.clone(),
            iso: file.iso.as_ref().map(|path| path.text.clone().into()),
            static_networks: vec![],
            resources: BTreeMap::new(),
            mistakes: vec![],
            refused: file
                .refused
                .as_ref()
                .and_then(|n| self.number(n, "the status of a refusal", 400, 599))
                .and_then(|n| u16::try_from(n).ok()),
        }
    }

    /// Groups become hosts. Addresses come later, when the networks are known. Also the place of each group's name.
    fn groups(&mut self, file: &ScenarioFile, clusters: &[String]) -> (Vec<Host>, BTreeMap<String, Place>) {
        let mut hosts: Vec<Host> = vec![];
        let mut places: BTreeMap<String, Place> = BTreeMap::new();
        let mut host_names: BTreeSet<String> = BTreeSet::new();
        let mut total: usize = 0;
        let profiles = self.catalogue.hardware_profiles();
        if file.hosts.is_empty() {
            self.refuse(&file.hosts.span, "there are no hosts", "an empty list", "add a group: `- name: node`");
        }
        for group in file.hosts.iter() {
            let name = self.label_name(&group.name, "the group's name", 54);
            if let Some(first) = places.get(&name).cloned() {
                self.refuse(
                    &group.name.span,
                    format!("two groups are named `{name}`"),
                    "the second one",
                    "give each group a `name` of its own",
                );
                self.also(&first, "the first one");
                continue;
            }
            if RESERVED.contains(&name.as_str()) {
                self.refuse(
                    &group.name.span,
                    format!("a group cannot be named `{name}`"),
                    "has a meaning of its own",
                    "choose another name",
                );
            }
            places.insert(name.clone(), group.name.span.clone());
            let count = match &group.count {
                None => 1,
                Some(count) => {
                    match self.number(count, &format!("the number of hosts of group `{name}`"), 1, MAX_HOSTS as i64) {
                        Some(n) => usize::try_from(n).unwrap_or(1),
                        None => 0,
                    }
                }
            };
            total += count;
            if total > MAX_HOSTS {
                let place = group.count.as_ref().map_or(group.name.span.clone(), |c| c.span.clone());
                self.refuse(
                    &place,
                    format!("the groups have {total} hosts together, more than {MAX_HOSTS}"),
                    "too many with this group",
                    "make the groups smaller",
                );
                break;
            }
            let role = self.read_option(&group.role).map_or(HostRole::AutoAssign, |r| r.0);
            let kind = self.read_option(&group.kind).unwrap_or(HostKind::Simulated);
            let vm = self.vm(group.vm.as_ref());
            let profile = match &group.profile {
                None => "standard".to_owned(),
                Some(text) => {
                    if !profiles.contains(&text.text) {
                        self.unknown(&text.span, "hardware profile", &text.text, profiles.iter().map(String::as_str));
                    }
                    text.text.clone()
                }
            };
            let overrides = group.overrides.as_ref().map_or_else(Overrides::default, |o| Overrides {
                cpu_cores: o
                    .cpu_cores
                    .as_ref()
                    .and_then(|n| self.number(n, "the number of processor cores", 1, 4096))
                    .and_then(|n| u32::try_from(n).ok()),
                memory_mib: o
                    .memory_mib
                    .as_ref()
                    .and_then(|n| self.number(n, "the memory in MiB", 1, 64 << 20))
                    .and_then(|n| u64::try_from(n).ok()),
                disk_gb: o
                    .disk_gb
                    .as_ref()
                    .and_then(|n| self.number(n, "the size of the disks in GB", 1, 1 << 20))
                    .and_then(|n| u64::try_from(n).ok()),
            });
            let register_after = self.read_option(&group.register_after).unwrap_or(Span::ZERO);
            let cluster = match (&group.cluster, clusters) {
                (Some(text), _) if text.text == "none" => None,
                (Some(text), _) => {
                    if !clusters.contains(&text.text) {
                        self.unknown(
                            &text.span,
                            "cluster",
                            &text.text,
                            clusters.iter().map(String::as_str).chain(["none"]),
                        );
                    }
                    Some(text.text.clone())
                }
                (None, []) => None,
                (None, [only]) => Some(only.clone()),
                (None, _) => {
                    let help = format!(
                        "add `cluster:` with {} or `none`",
                        quoted(&clusters.iter().map(String::as_str).collect::<Vec<_>>(), "or")
                    );
                    self.refuse(
                        &group.name.span,
                        format!("the group `{name}` does not say which cluster it is of"),
                        "there are several clusters",
                        help,
                    );
                    None
                }
            };
            let day2 = self.day2(group, cluster.as_deref(), role, file, clusters);
            for number in 0..count {
                let host_name = format!("{name}-{number}");
                if !host_names.insert(host_name.clone()) {
                    self.refuse(
                        &group.name.span,
                        format!("two hosts are named `{host_name}`"),
                        "by this group",
                        "rename the group",
                    );
                    break;
                }
                hosts.push(Host {
                    name: host_name,
                    group: name.clone(),
                    index: hosts.len(),
                    kind,
                    vm: vm.clone(),
                    role,
                    profile: profile.clone(),
                    overrides: overrides.clone(),
                    cluster: cluster.clone(),
                    bound_to: vec![],
                    day2,
                    address: None,
                    dhcp: group.dhcp.unwrap_or(true),
                    registry_on_medium: group.registry_on_medium.unwrap_or(false),
                    second_address: None,
                    register_after,
                });
            }
        }
        (hosts, places)
    }

    /// The inside of a cluster is either simulated or in its machines: its hosts must agree.
    fn one_kind_in_a_cluster(&mut self, hosts: &[Host], group_places: &BTreeMap<String, Place>) {
        let mut first: BTreeMap<&str, &Host> = BTreeMap::new();
        let mut told = BTreeSet::new();
        for host in hosts {
            let Some(cluster) = host.cluster.as_deref() else { continue };
            let before = *first.entry(cluster).or_insert(host);
            if before.kind != host.kind && told.insert(host.group.as_str()) {
                let place = group_places.get(&host.group).cloned().unwrap_or_default();
                self.refuse(
                    &place,
                    format!(
                        "the hosts of the cluster `{cluster}` are of two kinds: `{}` is `{}`, and `{}` is `{}`",
                        before.group, before.kind, host.group, host.kind
                    ),
                    "of another kind",
                    "give all groups of the cluster the same `kind`",
                );
            }
        }
    }

    /// The lab network of a run is that of one cluster.
    fn machines_in_one_network(&mut self, hosts: &[Host], group_places: &BTreeMap<String, Place>) {
        let mut machines = hosts.iter().filter(|host| host.kind != HostKind::Simulated);
        let Some(first) = machines.next() else { return };
        if let Some(other) = machines.find(|host| host.cluster != first.cluster) {
            let place = group_places.get(&other.group).cloned().unwrap_or_default();
            let help = format!("leave `kind` out, or put them where `{}` is", first.group);
            self.not_built(&place, "virtual machines in several clusters (or in the pool beside one)", &help);
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
        vm.firmware = self.read_option(&file.firmware).unwrap_or(vm.firmware);
        vm.tpm = file.tpm.unwrap_or(vm.tpm);
        vm.boot_order = self.read_option(&file.boot_order).unwrap_or(vm.boot_order);
        vm.agent = file.agent.as_ref().map(|path| path.text.clone().into());
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
        clusters: &[String],
    ) -> bool {
        let Some(said) = group.day2.as_ref().filter(|d| ***d) else { return false };
        let opens = |a: &At<ActionFile>| {
            let of = a.cluster.as_ref().map_or(clusters.first().map(String::as_str), |c| Some(c.text.as_str()));
            a.act.text == ActionKind::AllowAddHosts.as_str() && of == cluster
        };
        if cluster.is_none() {
            self.refuse(
                &said.span,
                "hosts of the pool are bound to a cluster, whatever the day",
                "of no use here",
                "remove `day2`, or name the `cluster` that they are added to",
            );
        } else if !file.actions.iter().any(opens) {
            self.refuse(
                &said.span,
                "nobody opens the cluster for hosts of day 2",
                "they would never boot",
                "add an action `{do: allow-add-hosts, after: {cluster: .., status: installed}}`",
            );
        }
        if !matches!(role, HostRole::Worker | HostRole::AutoAssign) {
            let place = group.role.as_ref().map_or(&group.name.span, |r| &r.span);
            self.refuse(
                place,
                "a host of day 2 becomes a worker",
                "not this role",
                "write `role: worker`, or leave it out",
            );
        }
        true
    }

    /// Hosts of the pool that actions bind to clusters later.
    fn bindings(&self, file: &ScenarioFile, clusters: &[String], hosts: &[Host]) -> BTreeMap<String, Vec<String>> {
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

    fn cluster(
        &mut self,
        file: &At<ClusterFile>,
        name: &str,
        members: &[&Host],
        group_places: &BTreeMap<String, Place>,
        vips_later: bool,
    ) -> (Cluster, ClusterPlaces) {
        let place = name_place(file);
        let of_role = |role: HostRole| members.iter().filter(|h| h.role == role).count();
        let (masters, workers, arbiters, autos) = (
            of_role(HostRole::Master),
            of_role(HostRole::Worker),
            of_role(HostRole::Arbiter),
            of_role(HostRole::AutoAssign),
        );
        let version = file.openshift_version.as_ref().map(|v| (self.read(v), v.span.clone()));
        let minor = match &version {
            Some((Some(v), _)) => v.minor,
            _ => (4, 18),
        };
        let asked = self.read_option(&file.topology);
        let asked_place = file.topology.as_ref().map(|t| t.span.clone());
        let given = file.control_plane_count.as_ref();
        let count = match (given, asked) {
            (Some(n), _) => {
                self.number(n, "the number of masters", 1, 5).and_then(|n| usize::try_from(n).ok()).unwrap_or(3)
            }
            (None, Some(Topology::Sno)) => 1,
            (None, _) if masters > 0 => masters + if masters == 1 && autos >= 2 { 2 } else { 0 },
            (None, _) if autos == 1 && workers == 0 => 1,
            (None, _) => 3,
        };
        let topology = asked.unwrap_or(match (count, workers + autos.saturating_sub(count.saturating_sub(masters))) {
            (1, _) => Topology::Sno,
            (_, 0) => Topology::Compact,
            _ => Topology::Ha,
        });
        let sno = topology == Topology::Sno;
        let count_place = given.map(|n| n.span.clone());
        let count_or_cluster = count_place.clone().or(asked_place.clone()).unwrap_or(place.clone());
        let group_of =
            |role: HostRole| members.iter().find(|h| h.role == role).and_then(|h| group_places.get(&h.group)).cloned();

        if members.is_empty() {
            self.refuse(
                &place,
                format!("the cluster `{name}` has no hosts"),
                "this cluster",
                "add a group of hosts, or leave the cluster out",
            );
        } else if sno {
            if count != 1 {
                self.refuse(
                    &count_or_cluster,
                    format!("a single node has one master, not {count}"),
                    "must be 1",
                    "write `control_plane_count: 1`, or another `topology`",
                );
            }
            if members.len() > 1 {
                let at = group_of(HostRole::Worker).unwrap_or_else(|| count_or_cluster.clone());
                let what = if workers > 0 {
                    format!("a single node has no workers, and the cluster `{name}` has {workers}")
                } else {
                    format!("a single node is one host, and the cluster `{name}` has {}", members.len())
                };
                self.refuse(&at, what, "one too many", "remove the other hosts, or give the cluster three masters");
            } else if masters + autos != 1 {
                self.refuse(
                    &count_or_cluster,
                    "a single node must be a master",
                    "this cluster",
                    "give its host `role: master` or `role: auto`",
                );
            }
        } else {
            if topology == Topology::Compact && workers > 0 {
                let at = group_of(HostRole::Worker).unwrap_or_else(|| place.clone());
                self.refuse(
                    &at,
                    format!("a compact cluster has no workers, and the cluster `{name}` has {workers}"),
                    "these",
                    "write `topology: ha`, or remove them",
                );
            }
            if asked == Some(Topology::Ha) && workers == 0 && masters + autos <= count {
                let at = asked_place.clone().unwrap_or_else(|| place.clone());
                self.refuse(
                    &at,
                    format!("a cluster with workers was asked for, and the cluster `{name}` has none"),
                    "`ha` means masters and workers",
                    "add a group with `role: worker`, or write `topology: compact`",
                );
            }
            match count {
                1 => self.refuse(
                    &count_or_cluster,
                    "a cluster of several nodes has three masters or more",
                    "one master",
                    "write `topology: sno` for a single node",
                ),
                2 if arbiters == 0 => {
                    let at =
                        count_place.clone().or_else(|| group_of(HostRole::Master)).unwrap_or_else(|| place.clone());
                    self.refuse(&at, "a cluster with 2 masters cannot be installed", "2 masters", "use 1 (a single node) or 3 masters; 2 are possible with an arbiter (a group with `role: arbiter`)");
                }
                2 if minor < (4, 19) => {
                    let at = version.as_ref().map_or(count_or_cluster.clone(), |(_, p)| p.clone());
                    self.refuse(
                        &at,
                        "2 masters with an arbiter need OpenShift 4.19 or later",
                        "too old",
                        "write `openshift_version: 4.19` or later",
                    );
                }
                4 | 5 if minor < (4, 18) => {
                    let at = version.as_ref().map_or(count_or_cluster.clone(), |(_, p)| p.clone());
                    self.refuse(
                        &at,
                        format!("{count} masters need OpenShift 4.18 or later"),
                        "too old",
                        "write `openshift_version: 4.18` or later, or use 3 masters",
                    );
                }
                6.. => self.refuse(
                    &count_place.clone().or_else(|| group_of(HostRole::Master)).unwrap_or_else(|| place.clone()),
                    format!("a cluster has at most 5 masters, not {count}"),
                    "too many",
                    "use 3, 4 or 5 masters; more hosts can be workers",
                ),
                _ => {}
            }
            if count != 2 && arbiters > 0 {
                let at = group_of(HostRole::Arbiter).unwrap_or_else(|| place.clone());
                self.refuse(
                    &at,
                    "only a cluster with 2 masters has an arbiter",
                    "an arbiter",
                    "remove it, or use 2 masters",
                );
            }
            if masters > count {
                let at = group_of(HostRole::Master).unwrap_or_else(|| place.clone());
                self.refuse(
                    &at,
                    format!("the groups have {masters} masters, and the cluster `{name}` has {count}"),
                    "too many masters",
                    "let `control_plane_count` and the groups agree",
                );
                self.also(&count_or_cluster, format!("{count} masters"));
            } else if masters + autos < count
                && (masters > 0 || autos > 0 || given.is_some())
                && !(count == 2 && arbiters == 0)
            {
                let at = count_place.clone().or_else(|| group_of(HostRole::Master)).unwrap_or_else(|| place.clone());
                self.refuse(
                    &at,
                    format!("the cluster `{name}` needs {count} masters, and the groups can give {}", masters + autos),
                    format!("needs {count}"),
                    "add hosts with `role: master` or `role: auto`, or change `control_plane_count`",
                );
            } else if masters + autos < count {
                self.refuse(
                    &place,
                    format!("the cluster `{name}` needs {count} masters and has none"),
                    "this cluster",
                    "add a group with `role: master` and `count: 3`",
                );
            }
        }

        // Platform and who cares for the network.
        let umn_said = file.user_managed_networking.as_ref();
        let platform_said = self.read_option(&file.platform);
        let no_platform = |p: PlatformType| matches!(p, PlatformType::None | PlatformType::External);
        let umn = sno || umn_said.is_some_and(|u| **u) || platform_said.is_some_and(no_platform);
        if let Some(said) = umn_said.filter(|u| !***u) {
            if sno {
                self.refuse(
                    &said.span,
                    "a single node has user-managed networking",
                    "cannot be false",
                    "remove it, or write `true`",
                );
            } else if platform_said.is_some_and(no_platform) {
                self.refuse(
                    &said.span,
                    "platforms `none` and `external` have user-managed networking",
                    "cannot be false",
                    "remove it, or choose `platform: baremetal`",
                );
            }
        }
        if let (Some(platform), Some(text)) = (platform_said, &file.platform)
            && umn
            && matches!(platform, PlatformType::Baremetal | PlatformType::Nutanix)
        {
            let why = if sno { "a single node" } else { "user-managed networking" };
            self.refuse(
                &text.span,
                format!("platform `{platform}` does not go with {why}"),
                "not this one",
                "write `platform: none`, or leave it out",
            );
        }
        let platform = platform_said.unwrap_or(if umn { PlatformType::None } else { PlatformType::Baremetal });

        // Networks.
        let machine_is_default = file.machine_networks.as_ref().is_none_or(Vec::is_empty);
        let mut machine_places = vec![];
        let mut all: Vec<(IpNet, Place, &str)> = vec![];
        let mut machine_networks = vec![];
        for text in file.machine_networks.iter().flatten() {
            let network = self.read(text);
            if network.is_none() {
                // It cannot be told what is inside of it: everything is, so that one mistake is told once.
                machine_networks
                    .extend([ipv4_net([0, 0, 0, 0], 0), IpNet::new_assert(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)]);
            }
            if let Some(network) = network {
                machine_networks.push(network);
                machine_places.push(text.span.clone());
                all.push((network, text.span.clone(), "machine network"));
                let smallest = if sno { 1 } else { 4 };
                if network.max_prefix_len() - network.prefix_len() < smallest {
                    self.refuse(
                        &text.span,
                        format!("the machine network `{network}` is too small"),
                        "too few addresses",
                        format!("its prefix must be /{} or shorter", network.max_prefix_len() - smallest),
                    );
                }
            }
        }
        if machine_is_default {
            machine_networks.push(ipv4_net([192, 168, 126, 0], 24));
            all.push((
                machine_networks[0],
                place.clone(),
                "machine network (the one that is used without `machine_networks`)",
            ));
        }
        let mut cluster_networks = vec![];
        for item in file.cluster_networks.iter().flatten() {
            let Some(cidr) = self.read(&item.cidr) else { continue };
            let default = if matches!(cidr, IpNet::V4(_)) { 23 } else { 64 };
            let bits = i64::from(cidr.max_prefix_len());
            let prefix = item
                .host_prefix
                .as_ref()
                .map_or(Some(default), |p| self.number(p, "the host prefix", i64::from(cidr.prefix_len()), bits - 7));
            if let Some(prefix) = prefix.and_then(|p| u8::try_from(p).ok()) {
                let room_bits = u32::from(prefix.saturating_sub(cidr.prefix_len()));
                let wanted = if sno { 1 } else { members.len().max(4) };
                if prefix < cidr.prefix_len() || 1u128.checked_shl(room_bits).unwrap_or(u128::MAX) < wanted as u128 {
                    let at = item.host_prefix.as_ref().map_or(item.cidr.span.clone(), |p| p.span.clone());
                    self.refuse(
                        &at,
                        format!(
                            "the cluster network `{cidr}` has no room for {wanted} hosts with host prefix {prefix}"
                        ),
                        "too few parts",
                        "use a bigger network, or a longer host prefix",
                    );
                }
                cluster_networks.push(ClusterNetwork { cidr, host_prefix: prefix });
            }
            all.push((cidr, item.cidr.span.clone(), "cluster network"));
        }
        if file.cluster_networks.is_none() {
            cluster_networks.push(ClusterNetwork { cidr: ipv4_net([10, 128, 0, 0], 14), host_prefix: 23 });
            all.push((
                cluster_networks[0].cidr,
                place.clone(),
                "cluster network (the one that is used without `cluster_networks`)",
            ));
        }
        let mut service_networks = vec![];
        for text in file.service_networks.iter().flatten() {
            if let Some(network) = self.read(text) {
                service_networks.push(network);
                all.push((network, text.span.clone(), "service network"));
            }
        }
        if file.service_networks.is_none() {
            service_networks.push(ipv4_net([172, 30, 0, 0], 16));
            all.push((
                service_networks[0],
                place.clone(),
                "service network (the one that is used without `service_networks`)",
            ));
        }
        for (i, (network, span, what)) in all.iter().enumerate() {
            for (other, other_span, other_what) in &all[..i] {
                if network.contains(&other.network()) || other.contains(&network.network()) {
                    // Point at the one that the file says.
                    let (at, there) = if *span == place { (other_span, span) } else { (span, other_span) };
                    self.refuse(
                        at,
                        format!("{what} `{network}` and {other_what} `{other}` overlap"),
                        "overlaps",
                        "choose networks that share no address",
                    );
                    if there != at {
                        self.also(there, "with this");
                    }
                }
            }
        }

        // Addresses of the API and the ingress.
        let api: Vec<(IpAddr, Place)> =
            file.api_vips.iter().filter_map(|t| Some((self.read(t)?, t.span.clone()))).collect();
        let ingress: Vec<(IpAddr, Place)> =
            file.ingress_vips.iter().filter_map(|t| Some((self.read(t)?, t.span.clone()))).collect();
        let vip_dhcp = file.vip_dhcp_allocation.as_ref().filter(|said| ***said).map(|said| said.span.clone());
        if let Some(said) = &vip_dhcp {
            self.leased_vips(said, file, sno || umn);
        }
        if sno || umn {
            if let Some((_, span)) = api.first().or(ingress.first()) {
                let why = if sno { "a single node" } else { "a cluster with user-managed networking" };
                self.refuse(
                    span,
                    format!("{why} has no API or ingress VIPs"),
                    "of no use here",
                    "remove `api_vips` and `ingress_vips`",
                );
            }
        } else {
            let later = vips_later || vip_dhcp.is_some();
            self.vips(&place, &api, &ingress, &machine_networks, &machine_places, later);
        }
        let base_domain = match &file.base_domain {
            None => "lab.example".to_owned(),
            Some(text) => {
                let good = text.text.len() <= 181
                    && text.text.contains('.')
                    && text.text.split('.').all(|part| {
                        !part.is_empty()
                            && part.len() <= 63
                            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                            && !part.starts_with('-')
                            && !part.ends_with('-')
                    });
                if !good {
                    self.refuse(
                        &text.span,
                        format!("`{}` is no DNS domain", text.text),
                        "not a domain",
                        "write lower-case names with dots between, for example `lab.example`",
                    );
                }
                text.text.clone()
            }
        };
        let install = self.read_option(&file.install).unwrap_or(InstallMode::Auto);
        let cluster = Cluster {
            name: name.to_owned(),
            topology,
            control_plane_count: u32::try_from(count).unwrap_or(0),
            openshift_version: file.openshift_version.as_ref().map_or("4.18", |v| v.text.as_str()).to_owned(),
            base_domain,
            machine_networks,
            cluster_networks,
            service_networks,
            api_vips: api.into_iter().map(|(a, _)| a).collect(),
            ingress_vips: ingress.into_iter().map(|(a, _)| a).collect(),
            vip_dhcp_allocation: vip_dhcp.is_some(),
            platform,
            user_managed_networking: umn,
            ssh_public_key: file.ssh_public_key.clone(),
            additional_ntp_source: file.additional_ntp_source.clone(),
            install,
            line: self.line(&file.span),
        };
        let places = ClusterPlaces { place, machine: machine_places, machine_is_default };
        (cluster, places)
    }

    /// Addresses of the API and the ingress that the service has leased by DHCP; `said` is where the file wants it.
    /// What cannot be read has been told already.
    fn leased_vips(&mut self, said: &Place, file: &ClusterFile, unmanaged: bool) {
        let no = "cannot be true";
        if unmanaged {
            let why = "a single node, and a cluster with user-managed networking, has no API or ingress VIPs to lease";
            self.refuse(said, why, no, "remove it");
        }
        if let Some(text) = file.api_vips.first().or(file.ingress_vips.first()) {
            self.refuse(
                &text.span,
                "the VIPs of this cluster are leased by DHCP",
                "of no use here",
                "remove `api_vips` and `ingress_vips`, or `vip_dhcp_allocation`",
            );
            self.also(said, "leased, says this");
        }
        if file.openshift_version.as_ref().is_none_or(|v| Version::read(&v.text).is_ok_and(|v| v.minor >= (4, 15))) {
            let at = file.openshift_version.as_ref().map_or(said, |v| &v.span);
            self.refuse(
                at,
                "the service leases no VIPs by DHCP for OpenShift 4.15 and later",
                "needs an older version",
                "write `openshift_version: 4.14`, and have the service know that release (its setting RELEASE_IMAGES)",
            );
        }
        let networks = file.machine_networks.iter().flatten();
        if networks.filter_map(|t| IpNet::read(&t.text).ok()).any(|network| matches!(network, IpNet::V6(_))) {
            self.refuse(said, "VIPs cannot be leased by DHCP in an IPv6 machine network", no, "remove it");
        }
    }

    fn vips(
        &mut self,
        cluster: &Place,
        api: &[(IpAddr, Place)],
        ingress: &[(IpAddr, Place)],
        machine: &[IpNet],
        machine_places: &[Place],
        later: bool,
    ) {
        for (vips, key) in [(api, "api_vips"), (ingress, "ingress_vips")] {
            if vips.is_empty() && !later {
                self.refuse(
                    cluster,
                    format!("a cluster of several nodes needs `{key}`"),
                    "this cluster",
                    format!(
                        "add `{key}: [<address in the machine network>]`, or write `user_managed_networking: true`"
                    ),
                );
            }
            if let Some((_, span)) = vips.get(2) {
                self.refuse(
                    span,
                    format!("`{key}` has more than two addresses"),
                    "the third",
                    "at most one of IPv4 and one of IPv6",
                );
            } else if let [(a, _), (b, span)] = vips
                && a.is_ipv4() == b.is_ipv4()
            {
                self.refuse(
                    span,
                    format!("both addresses of `{key}` are of the same family"),
                    "the second",
                    "at most one of IPv4 and one of IPv6",
                );
            }
            for (vip, span) in vips {
                let Some(network) = machine.iter().find(|n| n.contains(vip)) else {
                    let list: Vec<String> = machine.iter().map(IpNet::to_string).collect();
                    let list: Vec<&str> = list.iter().map(String::as_str).collect();
                    self.refuse(
                        span,
                        format!(
                            "the address `{vip}` of `{key}` is outside the machine network {}",
                            quoted(&list, "and")
                        ),
                        "outside",
                        "choose an address inside it",
                    );
                    if let Some(there) = machine_places.first() {
                        self.also(there, "the machine network");
                    }
                    continue;
                };
                if let IpNet::V4(v4) = network
                    && (IpAddr::V4(v4.network()) == *vip || IpAddr::V4(v4.broadcast()) == *vip)
                {
                    self.refuse(
                        span,
                        format!("`{vip}` is the network's own or its broadcast address"),
                        "cannot be a VIP",
                        "choose another address",
                    );
                }
            }
        }
        for (vip, span) in ingress {
            if let Some((_, there)) = api.iter().find(|(a, _)| a == vip) {
                self.refuse(
                    span,
                    format!("`{vip}` is an API VIP and an ingress VIP"),
                    "the same address",
                    "choose another address for one of them",
                );
                self.also(there, "also here");
            }
        }
        if api.len() == 1 && ingress.len() == 2 || api.len() == 2 && ingress.len() == 1 {
            let span = &ingress[0].1;
            self.refuse(
                span,
                format!("{} API VIPs and {} ingress VIPs", api.len(), ingress.len()),
                "must be as many",
                "give one of each address family to both",
            );
        }
    }

    /// Gives every host its address and compares them all.
    fn addresses(&mut self, file: &ScenarioFile, clusters: &[Cluster], places: &[ClusterPlaces], hosts: &mut [Host]) {
        let mut taken: BTreeMap<IpAddr, String> = BTreeMap::new();
        for cluster in clusters {
            for vip in cluster.api_vips.iter().chain(&cluster.ingress_vips) {
                taken.insert(*vip, format!("a VIP of the cluster `{}`", cluster.name));
            }
        }
        let member = |h: &Host| h.cluster.clone().or_else(|| h.bound_to.last().cloned());
        // First what the file says, so that what is chosen keeps clear of it.
        for group in file.hosts.iter() {
            let Some(addresses) = &group.addresses else { continue };
            let range = group_range(hosts, &group.name.text);
            let Some(first_host) = hosts[range.clone()].first() else { continue };
            let cluster = member(first_host).and_then(|name| clusters.iter().position(|c| c.name == name));
            let network = self.read_option(&addresses.network);
            let first = self.read_option(&addresses.first);
            let (start, place) = match (first, network) {
                (Some(first), _) => {
                    (first, addresses.first.as_ref().map_or(addresses.span.clone(), |t| t.span.clone()))
                }
                (None, Some(network)) => {
                    let Some(tenth) = offset_address(network.network(), 10) else { continue };
                    (tenth, addresses.network.as_ref().map_or(addresses.span.clone(), |t| t.span.clone()))
                }
                (None, None) => {
                    if addresses.first.is_none() && addresses.network.is_none() {
                        self.refuse(
                            &addresses.span,
                            "`addresses` says nothing",
                            "empty",
                            "write `first: <address>`, `network: <network>`, or both",
                        );
                    }
                    continue;
                }
            };
            let inside: Vec<IpNet> = match (network, cluster) {
                (Some(network), _) => vec![network],
                (None, Some(i)) => clusters[i].machine_networks.clone(),
                (None, None) => vec![match start {
                    IpAddr::V4(_) => IpNet::new_assert(start, 24).trunc(),
                    IpAddr::V6(_) => IpNet::new_assert(start, 64).trunc(),
                }],
            };
            if let (Some(network), Some(i)) = (network, cluster) {
                let cluster = &clusters[i];
                let foreign = !cluster.machine_networks.iter().any(|m| m.contains(&network));
                // With user-managed networking the nodes may be anywhere, as long as nobody said where.
                if foreign && !(cluster.user_managed_networking && places[i].machine_is_default) {
                    let at = addresses.network.as_ref().map_or(addresses.span.clone(), |t| t.span.clone());
                    self.refuse(
                        &at,
                        format!(
                            "the network `{network}` is no part of the machine network of the cluster `{}`",
                            cluster.name
                        ),
                        "outside",
                        "hosts of a cluster live in its machine network",
                    );
                    self.also(places[i].machine.first().unwrap_or(&places[i].place), "the machine network");
                    continue;
                }
            }
            for (number, host) in hosts[range].iter_mut().enumerate() {
                let address = offset_address(start, number as u128);
                let network = address.and_then(|a| inside.iter().find(|n| usable(n, a)));
                let (Some(address), Some(network)) = (address, network) else {
                    let list: Vec<String> = inside.iter().map(IpNet::to_string).collect();
                    let list: Vec<&str> = list.iter().map(String::as_str).collect();
                    let shown = address.map_or("beyond the last address".to_owned(), |a| format!("`{a}`"));
                    self.refuse(
                        &place,
                        format!(
                            "the address of host `{}` is {shown}, outside the network {}",
                            host.name,
                            quoted(&list, "and")
                        ),
                        if number == 0 { "outside" } else { "runs out of the network" },
                        "choose a first address so that all hosts of the group fit in",
                    );
                    if let Some(i) = cluster.filter(|_| network.is_none() && addresses.network.is_none())
                        && let Some(there) = places[i].machine.first()
                    {
                        self.also(there, "the machine network");
                    }
                    break;
                };
                if let Some(other) = taken.insert(address, format!("the address of host `{}`", host.name)) {
                    self.refuse(
                        &place,
                        format!("`{address}` is the address of host `{}` and {other}", host.name),
                        "taken already",
                        "choose a first address that leaves room for the others",
                    );
                    break;
                }
                host.address = IpNet::new(address, network.prefix_len()).ok();
            }
        }
        // Then the rest, from the tenth address on.
        for group in file.hosts.iter().filter(|g| g.addresses.is_none()) {
            let range = group_range(hosts, &group.name.text);
            let mut next: BTreeMap<usize, u128> = BTreeMap::new();
            for host in &mut hosts[range] {
                let Some(i) = member(host).and_then(|name| clusters.iter().position(|c| c.name == name)) else {
                    continue;
                };
                let network = clusters[i].machine_networks[0];
                let from = next.entry(i).or_insert(10);
                let mut found = None;
                while let Some(address) = offset_address(network.network(), *from).filter(|a| usable(&network, *a)) {
                    *from += 1;
                    if !taken.contains_key(&address) {
                        found = Some(address);
                        break;
                    }
                }
                let Some(address) = found else {
                    self.no_address_left(&places[i], &network, &host.name);
                    break;
                };
                taken.insert(address, format!("the address of host `{}`", host.name));
                host.address = IpNet::new(address, network.prefix_len()).ok();
            }
        }
        self.second_addresses(clusters, places, hosts, &mut taken);
    }

    fn no_address_left(&mut self, places: &ClusterPlaces, network: &IpNet, host: &str) {
        let at = places.machine.first().unwrap_or(&places.place).clone();
        self.refuse(
            &at,
            format!("the machine network `{network}` has no address left for host `{host}`"),
            "full",
            "use a bigger machine network",
        );
    }

    /// Hosts of dual-stack clusters have an address of the other family, too: the next free one, from the tenth on.
    fn second_addresses(
        &mut self,
        clusters: &[Cluster],
        places: &[ClusterPlaces],
        hosts: &mut [Host],
        taken: &mut BTreeMap<IpAddr, String>,
    ) {
        for host in hosts {
            let name = host.cluster.as_ref().or(host.bound_to.last());
            let Some(i) = clusters.iter().position(|c| Some(&c.name) == name && c.is_dual_stack()) else { continue };
            let Some(first) = host.address else { continue };
            let other = |n: &&IpNet| matches!(n, IpNet::V4(_)) != matches!(first, IpNet::V4(_));
            let Some(network) = clusters[i].machine_networks.iter().find(other) else { continue };
            let mut free =
                (10..).map_while(|n| offset_address(network.network(), n)).take_while(|a| usable(network, *a));
            let Some(address) = free.find(|a| !taken.contains_key(a)) else {
                self.no_address_left(&places[i], network, &host.name);
                return;
            };
            taken.insert(address, format!("the address of host `{}`", host.name));
            host.second_address = IpNet::new(address, network.prefix_len()).ok();
        }
    }
}

fn name_place(file: &At<ClusterFile>) -> Place {
    file.name.as_ref().map_or(file.span.clone(), |n| n.span.clone())
}

fn ipv4_net(octets: [u8; 4], prefix: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::from(octets)), prefix)
}

fn offset_address(address: IpAddr, by: u128) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => {
            let sum = u128::from(u32::from(v4)).checked_add(by)?;
            Some(IpAddr::V4(Ipv4Addr::from(u32::try_from(sum).ok()?)))
        }
        IpAddr::V6(v6) => Some(IpAddr::V6(Ipv6Addr::from(u128::from(v6).checked_add(by)?))),
    }
}

/// In the network, and neither its own nor its broadcast address.
fn usable(network: &IpNet, address: IpAddr) -> bool {
    network.contains(&address)
        && (network.max_prefix_len() - network.prefix_len() < 2
            || (address != network.network() && (address.is_ipv6() || address != network.broadcast())))
}

fn group_range(hosts: &[Host], group: &str) -> Range<usize> {
    let start = hosts.iter().position(|h| h.group == group).unwrap_or(hosts.len());
    let len = hosts[start..].iter().take_while(|h| h.group == group).count();
    start..start + len
}

// ---------------------------------------------------------------------------------------------------------------------
// Actions, expectations, and the end of the run.

impl Checker<'_> {
    /// Whom an item speaks of. `None`: a problem was noted. `Some(None)`: of nobody.
    fn subject(&mut self, who: Who<'_>, known: &Known<'_>) -> Option<Option<Subject>> {
        let given: Vec<(&str, &Place)> = [
            who.host.as_ref().map(|t| ("host", &t.span)),
            who.hosts.as_ref().map(|t| ("hosts", &t.span)),
            who.role.as_ref().map(|t| ("role", &t.span)),
            who.cluster.as_ref().filter(|_| who.role.is_none()).map(|t| ("cluster", &t.span)),
        ]
        .into_iter()
        .flatten()
        .collect();
        if let [(first, there), (second, place), ..] = given.as_slice() {
            self.refuse(
                place,
                format!("`{first}` and `{second}` are both there"),
                "the second one",
                "name one of `host`, `hosts`, `role`, `cluster`",
            );
            self.also(there, "the first one");
            return None;
        }
        if let Some(text) = who.host {
            if known.hosts.iter().any(|h| h.name == text.text) {
                return Some(Some(Subject::Hosts(vec![text.text.clone()])));
            }
            let names = known.hosts.iter().map(|h| h.name.as_str());
            self.unknown(&text.span, "host", &text.text, names);
            if known.groups.contains(&text.text.as_str()) {
                self.set_help(format!(
                    "`{}` is a group; write `hosts: {}`, or one of its hosts: `{}-0`",
                    text.text, text.text, text.text
                ));
            }
            return None;
        }
        if let Some(text) = who.hosts {
            let names: Vec<String> = known
                .hosts
                .iter()
                .filter(|h| text.text == "all" || h.group == text.text)
                .map(|h| h.name.clone())
                .collect();
            if names.is_empty() {
                self.unknown(&text.span, "group of hosts", &text.text, known.groups.iter().copied().chain(["all"]));
                if known.hosts.iter().any(|h| h.name == text.text) {
                    self.set_help(format!("`{}` is one host; write `host: {}`", text.text, text.text));
                }
                return None;
            }
            return Some(Some(Subject::Hosts(names)));
        }
        if let Some(text) = who.role {
            let role = self.read(text)?;
            let cluster = self.the_cluster(who.cluster, &text.span, known)?;
            let members: Vec<&Host> = known
                .hosts
                .iter()
                .filter(|h| known.member.get(h.name.as_str()) == Some(&Some(cluster.name.as_str())))
                .collect();
            let count = cluster.control_plane_count as usize;
            let explicit = |role: HostRole| members.iter().filter(|h| h.role == role).count();
            let autos = explicit(HostRole::AutoAssign);
            let possible = match role {
                RoleName::Bootstrap => true,
                RoleName::Master => count > 1,
                RoleName::Worker => explicit(HostRole::Worker) > 0 || explicit(HostRole::Master) + autos > count,
                RoleName::Arbiter => explicit(HostRole::Arbiter) > 0,
            };
            if !possible {
                let help = if role == RoleName::Master {
                    "the only master is the bootstrap: write `role: bootstrap`".to_owned()
                } else {
                    format!("add a group with `role: {role}`, or name another role")
                };
                self.refuse(
                    &text.span,
                    format!("no host of the cluster `{}` can have the role `{role}`", cluster.name),
                    "nobody",
                    help,
                );
                return None;
            }
            return Some(Some(Subject::Role { role, cluster: cluster.name.clone() }));
        }
        if let Some(text) = who.cluster {
            let cluster = self.the_cluster(&Some(text.clone()), &text.span, known)?;
            return Some(Some(Subject::Cluster(cluster.name.clone())));
        }
        Some(None)
    }

    fn set_help(&mut self, help: String) {
        if let Some(problem) = self.problems.last_mut() {
            problem.help = Some(help);
        }
    }

    /// The cluster of that name, or the only one.
    fn the_cluster<'k>(&mut self, text: &Option<Text<Plain>>, place: &Place, known: &Known<'k>) -> Option<&'k Cluster> {
        match (text, known.clusters) {
            (Some(text), clusters) => {
                let found = clusters.iter().find(|c| c.name == text.text);
                if found.is_none() {
                    self.unknown(&text.span, "cluster", &text.text, clusters.iter().map(|c| c.name.as_str()));
                }
                found
            }
            (None, [only]) => Some(only),
            (None, []) => {
                self.refuse(place, "there is no cluster", "needs one", "add `cluster:` to the scenario");
                None
            }
            (None, clusters) => {
                let names: Vec<&str> = clusters.iter().map(|c| c.name.as_str()).collect();
                self.refuse(
                    place,
                    "there are several clusters",
                    "which one?",
                    format!("add `cluster:` with {}", quoted(&names, "or")),
                );
                None
            }
        }
    }

    fn host_status(&mut self, text: &Text<crate::spanned::AnyStatus>) -> Option<HostStatus> {
        if let Ok(status) = text.text.parse() {
            return Some(status);
        }
        self.unknown(&text.span, "status of a host", &text.text, HostStatus::NAMES.iter().copied());
        if ClusterStatus::NAMES.contains(&text.text.as_str()) {
            self.set_help(format!("`{}` is a status of clusters; name a `cluster`, or a status of hosts", text.text));
        }
        None
    }

    fn cluster_status(&mut self, text: &Text<crate::spanned::AnyStatus>) -> Option<ClusterStatus> {
        if let Ok(status) = text.text.parse() {
            return Some(status);
        }
        self.unknown(&text.span, "status of a cluster", &text.text, ClusterStatus::NAMES.iter().copied());
        if HostStatus::NAMES.contains(&text.text.as_str()) {
            self.set_help(format!(
                "`{}` is a status of hosts; name `host`, `hosts` or `role`, or a status of clusters",
                text.text
            ));
        }
        None
    }

    fn validation_id(&mut self, text: &Text<crate::spanned::AnyValidation>, of_cluster: bool) -> Option<String> {
        let (names, others, what, other) = if of_cluster {
            (ClusterValidationId::NAMES, HostValidationId::NAMES, "validation of clusters", "validation of hosts")
        } else {
            (HostValidationId::NAMES, ClusterValidationId::NAMES, "validation of hosts", "validation of clusters")
        };
        if names.contains(&text.text.as_str()) {
            return Some(text.text.clone());
        }
        self.unknown(&text.span, what, &text.text, names.iter().copied());
        if others.contains(&text.text.as_str()) {
            self.set_help(format!("`{}` is a {other}", text.text));
        }
        None
    }

    fn needs_hosts(&mut self, subject: &Subject, place: &Place, what: &str) -> bool {
        let hosts = matches!(subject, Subject::Hosts(_) | Subject::Role { .. });
        if !hosts {
            self.refuse(place, format!("{what} is of hosts"), "of which hosts?", "add `host`, `hosts` or `role`");
        }
        hosts
    }

    fn needs_cluster(
        &mut self,
        subject: Option<Subject>,
        place: &Place,
        known: &Known<'_>,
        what: &str,
    ) -> Option<Subject> {
        match subject {
            Some(Subject::Cluster(name)) => Some(Subject::Cluster(name)),
            None => self.the_cluster(&None, place, known).map(|c| Subject::Cluster(c.name.clone())),
            Some(_) => {
                self.refuse(
                    place,
                    format!("{what} is of clusters, not of hosts"),
                    "of which cluster?",
                    "name a `cluster` instead of hosts",
                );
                None
            }
        }
    }

    fn observation(&mut self, item: &At<ObservationFile>, known: &Known<'_>) -> Option<Moment> {
        self.observed(&item.value, &item.span, known)
    }

    fn observed(&mut self, item: &ObservationFile, place: &Place, known: &Known<'_>) -> Option<Moment> {
        let kinds: Vec<(&str, &Place)> = [
            item.status.as_ref().map(|t| ("status", &t.span)),
            item.stage.as_ref().map(|t| ("stage", &t.span)),
            item.finalizing_stage.as_ref().map(|t| ("finalizing_stage", &t.span)),
            item.validation.as_ref().map(|t| ("validation", &t.span)),
            item.event.as_ref().map(|t| ("event", &t.span)),
            item.operator.as_ref().map(|t| ("operator", &t.span)),
            item.action.as_ref().map(|t| ("action", &t.span)),
            item.step.as_ref().map(|t| ("step", &t.span)),
            item.fault.as_ref().map(|t| ("fault", &t.span)),
            item.did.as_ref().map(|t| ("did", &t.span)),
            item.console.as_ref().map(|t| ("console", &t.span)),
        ]
        .into_iter()
        .flatten()
        .collect();
        let subject = self.subject(who!(item), known);
        match kinds.as_slice() {
            [] => {
                self.refuse(
                    place,
                    "it does not say what is to be seen",
                    "here",
                    "add one of `status`, `stage`, `finalizing_stage`, `validation`, `event`, `operator`, `action`, `step`, `fault`, `did`, `console`",
                );
                return None;
            }
            [_] => {}
            [(first, there), (second, place), ..] => {
                self.refuse(
                    place,
                    format!("`{first}` and `{second}` are both there"),
                    "the second one",
                    "one observation is of one thing; write two",
                );
                self.also(there, "the first one");
                return None;
            }
        }
        let of = match &item.at_least {
            None => Quantity::All,
            Some(n) => {
                let number = self.number(n, "the number of hosts that are enough", 1, MAX_HOSTS as i64)?;
                let number = u32::try_from(number).ok()?;
                let have = match &subject {
                    Some(Some(Subject::Hosts(names))) => names.len(),
                    _ => known.hosts.len(),
                };
                if number as usize > have {
                    self.refuse(
                        &n.span,
                        format!("{number} hosts are asked for, and there are {have}"),
                        "can never be",
                        format!("write a number from 1 to {have}"),
                    );
                }
                Quantity::AtLeast(number)
            }
        };
        if let Some(severity) = item.severity.as_ref().filter(|_| item.event.is_none()) {
            self.refuse(&severity.span, "only an event has a severity", "of no use here", "remove it, or add `event`");
        }
        if let Some(is) = item.is.as_ref().filter(|_| item.validation.is_none() && item.operator.is_none()) {
            self.refuse(
                &is.span,
                "only a validation or an operator is something",
                "of no use here",
                "remove `is`, or add `validation` or `operator`",
            );
        }
        if let Some(percent) = item.percent.as_ref().filter(|_| item.stage.is_none()) {
            self.refuse(&percent.span, "only a stage has a percentage", "of no use here", "remove it, or add `stage`");
        }
        if let Some(from) = item.from.as_ref().filter(|_| item.status.is_none()) {
            self.refuse(
                &from.span,
                "only a status comes from another one",
                "of no use here",
                "remove it, or add `status`",
            );
        }
        if let Some(phase) = item.phase.as_ref().filter(|_| item.fault.is_none()) {
            self.refuse(&phase.span, "only a fault has a phase", "of no use here", "remove it, or add `fault`");
        }
        let subject = subject?;
        let missing = |c: &mut Self| {
            c.refuse(place, "it does not say of whom", "of whom?", "add `host`, `hosts`, `role` or `cluster`");
        };
        let (subject, seen) = if let Some(text) = &item.status {
            match subject {
                None => {
                    missing(self);
                    return None;
                }
                Some(Subject::Cluster(c)) => {
                    let to = self.cluster_status(text)?;
                    let seen = match &item.from {
                        None => Seen::ClusterStatus(to),
                        Some(from) => Seen::ClusterTransition { from: self.cluster_status(from)?, to },
                    };
                    (Subject::Cluster(c), seen)
                }
                Some(s) => {
                    let to = self.host_status(text)?;
                    let seen = match &item.from {
                        None => Seen::HostStatus(to),
                        Some(from) => Seen::HostTransition { from: self.host_status(from)?, to },
                    };
                    (s, seen)
                }
            }
        } else if let Some(text) = &item.stage {
            let stage = self.read(text);
            let Some(subject) = subject else {
                missing(self);
                return None;
            };
            if !self.needs_hosts(&subject, &text.span, "an installation stage") {
                return None;
            }
            let stage = stage?;
            self.stage_exists(&subject, stage, &text.span, known);
            let seen = match &item.percent {
                None => Seen::Stage(stage),
                Some(percent) if HAVE_PROGRESS.contains(&stage) => {
                    let percent = self.number(percent, "the percentage", 1, 100)?;
                    Seen::Progress { stage, percent: u32::try_from(percent).ok()? }
                }
                Some(percent) => {
                    let stages: Vec<&str> = HAVE_PROGRESS.iter().map(|s| s.as_str()).collect();
                    self.refuse(
                        &percent.span,
                        format!("the stage `{stage}` has no percentage"),
                        "of no use here",
                        format!("remove it, or name {}", quoted(&stages, "or")),
                    );
                    return None;
                }
            };
            (subject, seen)
        } else if let Some(text) = &item.finalizing_stage {
            let stage = self.read(text)?;
            (self.needs_cluster(subject, &text.span, known, "a stage of finalizing")?, Seen::FinalizingStage(stage))
        } else if let Some(text) = &item.validation {
            let Some(subject) = subject else {
                missing(self);
                return None;
            };
            let id = self.validation_id(text, matches!(subject, Subject::Cluster(_)));
            let Some(is) = &item.is else {
                self.refuse(
                    &text.span,
                    "it does not say which value the validation has",
                    "is what?",
                    "add `is: success` or `is: failure`",
                );
                return None;
            };
            let status = self.scalar(is);
            (subject, Seen::Validation { id: id?, status: status? })
        } else if let Some(text) = &item.event {
            self.read(text)?;
            let severity = self.read_option(&item.severity);
            (subject.unwrap_or(Subject::Run), Seen::Event { name: text.text.clone(), severity })
        } else if let Some(text) = &item.operator {
            self.read(text)?;
            let Some(is) = &item.is else {
                self.refuse(
                    &text.span,
                    "it does not say which status the operator has",
                    "is what?",
                    "add `is: available`",
                );
                return None;
            };
            let status = self.scalar(is);
            (
                self.needs_cluster(subject, &text.span, known, "an operator")?,
                Seen::Operator { name: text.text.clone(), status: status? },
            )
        } else if let Some(text) = &item.action {
            let action = self.read(text)?;
            (subject.unwrap_or(Subject::Run), Seen::Action(action))
        } else if let Some(text) = &item.step {
            self.read(text)?;
            let Some(subject) = subject else {
                missing(self);
                return None;
            };
            if !self.needs_hosts(&subject, &text.span, "a step") {
                return None;
            }
            (subject, Seen::Step(text.text.clone()))
        } else if let Some(text) = &item.fault {
            if !known.faults.contains(&text.text.as_str()) {
                self.unknown(&text.span, "fault", &text.text, known.faults.iter().copied());
                return None;
            }
            let phase = self.read_option(&item.phase).unwrap_or(FaultPhase::Begin);
            (subject.unwrap_or(Subject::Run), Seen::Fault { name: text.text.clone(), phase })
        } else if let Some(text) = &item.console {
            if text.text.trim().is_empty() {
                self.refuse(&text.span, "`console` is empty", "nothing here", "write a part of the line");
                return None;
            }
            let subject = subject.unwrap_or(Subject::Run);
            let machine = |h: &Host| h.kind == HostKind::Vm;
            let some = match &subject {
                Subject::Hosts(names) => known.hosts.iter().any(|h| machine(h) && names.contains(&h.name)),
                _ => known.hosts.iter().any(machine),
            };
            if !some {
                self.refuse(
                    &text.span,
                    "only machines have a serial console",
                    "no host here is one",
                    "write `kind: vm` for the host, or look for something else",
                );
                return None;
            }
            (subject, Seen::Console(text.text.clone()))
        } else if let Some(text) = &item.did {
            let deed = self.read(text)?;
            let of_hosts = matches!(subject, Some(Subject::Hosts(_) | Subject::Role { .. }));
            let subject = if deed.of_cluster && !(deed.of_host && of_hosts) {
                self.needs_cluster(subject, &text.span, known, "what happens inside clusters")?
            } else {
                let subject = subject.unwrap_or(Subject::Run);
                if !self.needs_hosts(&subject, &text.span, "what hosts do") {
                    return None;
                }
                subject
            };
            (subject, Seen::Did(text.text.clone()))
        } else {
            return None;
        };
        Some(Moment { subject, seen, of })
    }

    /// Reads a text that the file's form leaves open.
    fn scalar<T: Scalar>(&mut self, text: &Text<Plain>) -> Option<T> {
        match T::read(&text.text) {
            Ok(value) => Some(value),
            Err(c) => {
                self.refuse(&text.span, c.message, c.label, c.help);
                None
            }
        }
    }

    fn action(&mut self, item: &At<ActionFile>, known: &Known<'_>) -> Option<Action> {
        let kind = self.read(&item.act);
        let at = self.read_option(&item.at);
        let after = item.after.as_ref().map(|a| self.observation(a, known));
        let then = self.read_option(&item.then);
        let when = match (&item.at, &item.after) {
            (Some(a), Some(b)) => {
                self.refuse(
                    &b.span,
                    "`at` and `after` are both there",
                    "the second one",
                    "an action is done `at` a time or `after` something",
                );
                self.also(&a.span, "the first one");
                None
            }
            (None, None) => {
                self.refuse(
                    &item.act.span,
                    "it does not say when",
                    "when?",
                    "add `at: 30s`, or `after:` with something that is seen",
                );
                None
            }
            (Some(a), None) => {
                if item.then.is_some() {
                    self.refuse(
                        &a.span,
                        "`then` goes with `after`",
                        "there is no `after`",
                        "add the two times up in `at`",
                    );
                }
                at.map(ActionTime::At)
            }
            (None, Some(_)) => {
                after.flatten().map(|moment| ActionTime::After { moment, then: then.unwrap_or(Span::ZERO) })
            }
        };
        let kind = kind?;
        let on_hosts = matches!(
            kind,
            ActionKind::PatchHost
                | ActionKind::DeleteHost
                | ActionKind::Bind
                | ActionKind::Unbind
                | ActionKind::InstallHost
                | ActionKind::BootDiscovery
        );
        if kind == ActionKind::BootDiscovery
            && let Some(refused) = &item.refused
        {
            self.refuse(
                &refused.span,
                "`boot-discovery` is done to a machine, which does not refuse",
                "never",
                "remove it",
            );
        }
        let mut hosts = vec![];
        if on_hosts {
            match self.subject(Who { host: &item.host, hosts: &item.hosts, role: &None, cluster: &None }, known)? {
                Some(Subject::Hosts(names)) => hosts = names,
                _ => self.refuse(
                    &item.act.span,
                    format!("`{kind}` is done to hosts"),
                    "to which?",
                    "add `host` or `hosts`",
                ),
            }
        } else if let Some(text) = item.host.as_ref().or(item.hosts.as_ref()) {
            self.refuse(
                &text.span,
                format!("`{kind}` is done to a cluster, not to hosts"),
                "of no use here",
                "remove it",
            );
        }
        let cluster = if !on_hosts || kind == ActionKind::Bind {
            Some(self.the_cluster(&item.cluster, &item.act.span, known)?.name.clone())
        } else {
            if let Some(text) = &item.cluster {
                self.refuse(
                    &text.span,
                    format!("`{kind}` is done to hosts, not to a cluster"),
                    "of no use here",
                    "remove it",
                );
            }
            None
        };
        let api_vips = self.read_all(&item.api_vips);
        let ingress_vips = self.read_all(&item.ingress_vips);
        if kind == ActionKind::SetVips {
            if item.api_vips.is_empty() && item.ingress_vips.is_empty() {
                self.refuse(
                    &item.act.span,
                    "`set-vips` has no addresses",
                    "which?",
                    "add `api_vips` and `ingress_vips`",
                );
            }
        } else if let Some(text) = item.api_vips.first().or(item.ingress_vips.first()) {
            self.refuse(
                &text.span,
                format!("`{kind}` takes no VIPs"),
                "of no use here",
                "remove them, or write `do: set-vips`",
            );
        }
        let role = self.read_option(&item.role).map(|r| r.0);
        if kind == ActionKind::PatchHost {
            if item.role.is_none() && item.hostname.is_none() {
                self.refuse(&item.act.span, "`patch-host` changes nothing", "what?", "add `role` or `hostname`");
            }
            if let Some(hostname) = item.hostname.as_ref().filter(|_| hosts.len() > 1) {
                self.refuse(
                    &hostname.span,
                    "one name cannot be given to several hosts",
                    "for several hosts",
                    "name one `host`",
                );
            }
        } else {
            for place in item.role.iter().map(|t| &t.span).chain(item.hostname.iter().map(|t| &t.span)) {
                self.refuse(
                    place,
                    format!("`{kind}` takes no role and no name"),
                    "of no use here",
                    "remove it, or write `do: patch-host`",
                );
            }
        }
        let refused = item.refused.as_ref().and_then(|n| self.number(n, "the HTTP status of a refusal", 400, 599));
        Some(Action {
            kind,
            when: when?,
            cluster,
            hosts,
            api_vips,
            ingress_vips,
            role,
            hostname: item.hostname.as_ref().map(|t| t.text.clone()),
            refused: refused.and_then(|n| u16::try_from(n).ok()),
            line: self.line(&item.span),
        })
    }

    /// The shape is checked, so that files can be written ahead; running them waits for the engine.
    fn faults(&mut self, faults: &[At<FaultFile>], known: &Known<'_>) -> Vec<Fault> {
        let mut names: BTreeMap<&str, &Place> = BTreeMap::new();
        for fault in faults {
            self.label_name(&fault.name, "the fault's name", 63);
            if let Some(first) = names.insert(&fault.name.text, &fault.name.span) {
                self.refuse(
                    &fault.name.span,
                    format!("two faults are named `{}`", fault.name.text),
                    "the second one",
                    "give each fault a `name` of its own",
                );
                self.also(first, "the first one");
            }
        }
        faults.iter().filter_map(|fault| self.fault(fault, known)).collect()
    }

    fn fault(&mut self, item: &At<FaultFile>, known: &Known<'_>) -> Option<Fault> {
        let kind = self.read(&item.inject);
        let when = self.fault_time(item, known);
        let target = self.fault_target(&item.target, known);
        let lasts = self.read_option(&item.lasts);
        let until = item.until.as_ref().map(|u| self.observation(u, known));
        let row = fault_row(kind?);
        if row.needs_real_time() && !known.real_time {
            self.refuse(
                &item.inject.span,
                format!(
                    "`{}` has no form in virtual time, and the scenario does not say that it needs real time",
                    row.kind
                ),
                "needs real time",
                "add `real-time` to `needs`",
            );
        }
        if let (Some(a), Some(b)) = (&item.lasts, &item.until) {
            self.refuse(&b.span, "`for` and `until` are both there", "the second one", "a fault ends in one way");
            self.also(&a.span, "the first one");
        }
        let end = item.lasts.as_ref().map(|t| &t.span).or(item.until.as_ref().map(|u| &u.span));
        if let (Lasting::Moment, Some(end)) = (row.lasts, end) {
            self.refuse(end, format!("`{}` happens in a moment", row.kind), "of no use here", "remove it");
        }
        let with = self.fault_parameters(item, row, known);
        let (target, form) = target?;
        if !row.targets.contains(&form) {
            let words: Vec<&str> = row.targets.iter().map(|t| t.words()).collect();
            self.refuse(
                &item.target.span,
                format!("`{}` cannot hit {}", row.kind, form.words()),
                "not this",
                format!("it hits {}", words.join(" or ")),
            );
            return None;
        }
        // Some parameters make sense only beside what is hit.
        let other = match with.as_ref()?.get("of") {
            Some(ParamValue::Text(other)) => Some(other.clone()),
            _ => None,
        };
        if let (Some(other), FaultTarget::Hosts { of: Subject::Hosts(names), .. }) = (other, &target)
            && names.contains(&other)
        {
            let place = item.with.get("of").map_or(&item.span, |v| &v.span);
            self.refuse(place, format!("`{other}` is hit itself"), "the same host", "name another host");
        }
        if let (FaultKind::VipTaken, FaultTarget::Cluster(name)) = (row.kind, &target)
            && known.clusters.iter().any(|c| c.name == *name && c.api_vips.is_empty())
        {
            self.refuse(
                &item.target.span,
                format!("the cluster `{name}` has no virtual addresses that could be taken"),
                "none",
                "use a cluster of several nodes with `api_vips` and `ingress_vips`",
            );
        }
        Some(Fault {
            name: item.name.text.clone(),
            kind: row.kind,
            when: when?,
            target,
            lasts,
            until: match until {
                None => None,
                Some(moment) => Some(moment?),
            },
            with: with?,
            line: self.line(&item.span),
        })
    }

    fn fault_time(&mut self, item: &At<FaultFile>, known: &Known<'_>) -> Option<ActionTime> {
        let then = self.read_option(&item.then);
        match &item.at.value {
            FaultTimeFile::Time(text) => {
                if let Some(then) = &item.then {
                    self.refuse(
                        &then.span,
                        "`then` goes with something that is seen",
                        "`at` is a time",
                        "add the two times up in `at`",
                    );
                }
                match <Span as Scalar>::read(text) {
                    Ok(span) => Some(ActionTime::At(span)),
                    Err(c) => {
                        let help = format!("{}; or say what must be seen: `at: {{host: .., status: ..}}`", c.help);
                        self.refuse(&item.at.span, c.message, c.label, help);
                        None
                    }
                }
            }
            FaultTimeFile::Seen(seen) => {
                let moment = self.observed(seen, &item.at.span, known)?;
                if matches!(&moment.seen, Seen::Fault { name, .. } if *name == item.name.text) {
                    self.refuse(&item.at.span, "it waits for itself", "its own name", "name another fault");
                }
                Some(ActionTime::After { moment, then: then.unwrap_or(Span::ZERO) })
            }
        }
    }

    fn fault_target(&mut self, item: &At<FaultTargetFile>, known: &Known<'_>) -> Option<(FaultTarget, TargetForm)> {
        let place = &item.span;
        let all = |of| (FaultTarget::Hosts { of, choose: None }, TargetForm::Hosts);
        let who = match &item.value {
            FaultTargetFile::Name(name) => {
                let of_group: Vec<String> =
                    known.hosts.iter().filter(|h| h.group == *name || name == "all").map(|h| h.name.clone()).collect();
                if known.hosts.iter().any(|h| h.name == *name) {
                    return Some(all(Subject::Hosts(vec![name.clone()])));
                } else if !of_group.is_empty() {
                    return Some(all(Subject::Hosts(of_group)));
                }
                match name.as_str() {
                    "bootstrap" => {
                        let cluster = self.the_cluster(&None, place, known)?.name.clone();
                        return Some(all(Subject::Role { role: RoleName::Bootstrap, cluster }));
                    }
                    "control-plane" => {
                        let cluster = self.the_cluster(&None, place, known)?.name.clone();
                        return Some((FaultTarget::Cluster(cluster), TargetForm::Cluster));
                    }
                    "service" => return Some((FaultTarget::Service, TargetForm::Service)),
                    "postgres" => return Some((FaultTarget::Postgres, TargetForm::Postgres)),
                    "gateway" => return Some((FaultTarget::Gateway, TargetForm::Gateway)),
                    _ => {}
                }
                if known.clusters.iter().any(|c| c.name == *name) {
                    return Some((FaultTarget::Cluster(name.clone()), TargetForm::Cluster));
                }
                let names = known.hosts.iter().map(|h| h.name.as_str()).chain(known.groups.iter().copied());
                let names = names.chain(RESERVED.iter().copied().filter(|n| *n != "none"));
                self.unknown(
                    place,
                    "target of a fault",
                    name,
                    names.chain(known.clusters.iter().map(|c| c.name.as_str())),
                );
                return None;
            }
            FaultTargetFile::Who(who) => who,
        };
        if let Some(between) = &who.between {
            let others = [
                who.host.as_ref().map(|t| &t.span),
                who.hosts.as_ref().map(|t| &t.span),
                who.role.as_ref().map(|t| &t.span),
                who.cluster.as_ref().map(|t| &t.span),
                who.choose.as_ref().map(|t| &t.span),
            ];
            if let Some(other) = others.into_iter().flatten().next() {
                self.refuse(other, "`between` stands alone", "one too many", "remove it");
                return None;
            }
            let [from, to] = between.as_slice() else {
                self.refuse(
                    &between.span,
                    "a way is between two",
                    format!("{} here", between.len()),
                    "write two names of hosts or groups: `between: [master-0, worker]`",
                );
                return None;
            };
            let (from, to) = (self.end_of_link(from, known), self.end_of_link(to, known));
            let (from, to) = (from?, to?);
            if from == to && from.len() == 1 {
                self.refuse(&between.span, "a way is between two", "twice the same host", "name two hosts");
                return None;
            }
            return Some((FaultTarget::Link { from, to }, TargetForm::Link));
        }
        let subject = self.subject(who!(who), known)?;
        let choose = match &who.choose {
            None => None,
            Some(n) => {
                let most = match &subject {
                    Some(Subject::Hosts(names)) => names.len(),
                    _ => known.hosts.len(),
                };
                let most = i64::try_from(most).unwrap_or(i64::MAX);
                Some(self.number(n, "the number of hosts to choose", 1, most).and_then(|n| u32::try_from(n).ok())?)
            }
        };
        match subject {
            Some(of @ (Subject::Hosts(_) | Subject::Role { .. })) => {
                Some((FaultTarget::Hosts { of, choose }, TargetForm::Hosts))
            }
            Some(Subject::Cluster(name)) => Some((FaultTarget::Cluster(name), TargetForm::Cluster)),
            Some(Subject::Run) | None => {
                self.refuse(
                    place,
                    "it does not say what is hit",
                    "what?",
                    "add `host`, `hosts`, `role`, `cluster` or `between`",
                );
                None
            }
        }
    }

    fn end_of_link(&mut self, text: &Text<Plain>, known: &Known<'_>) -> Option<Vec<String>> {
        let is = |h: &&Host| h.name == text.text || h.group == text.text || text.text == "all";
        let names: Vec<String> = known.hosts.iter().filter(is).map(|h| h.name.clone()).collect();
        if names.is_empty() {
            let known = known.hosts.iter().map(|h| h.name.as_str()).chain(known.groups.iter().copied());
            self.unknown(&text.span, "host or group", &text.text, known.chain(["all"]));
            return None;
        }
        Some(names)
    }

    fn fault_parameters(
        &mut self,
        item: &At<FaultFile>,
        row: &'static FaultRow,
        known: &Known<'_>,
    ) -> Option<BTreeMap<&'static str, ParamValue>> {
        let mut good = true;
        for (name, value) in &item.with {
            if !row.params.iter().any(|p| p.name == name) {
                let what = format!("parameter of `{}`", row.kind);
                self.unknown(&value.span, &what, name, row.params.iter().map(|p| p.name));
                if row.params.is_empty() {
                    self.set_help(format!("`{}` takes no parameters", row.kind));
                }
                good = false;
            }
        }
        let mut values = BTreeMap::new();
        for param in row.params {
            let (text, place) = match (item.with.get(param.name), param.default) {
                (Some(given), _) => {
                    let text = match &given.value {
                        serde_json::Value::String(text) => text.clone(),
                        other => other.to_string(),
                    };
                    (text, &given.span)
                }
                // It need not be there at all.
                (None, Some("")) => continue,
                (None, Some(default)) => (default.to_owned(), &item.span),
                (None, None) => {
                    self.refuse(
                        &item.inject.span,
                        format!("`{}` needs `{}`: {}", row.kind, param.name, param.purpose),
                        format!("`{}` is missing", param.name),
                        format!("add `with: {{{}: ..}}`", param.name),
                    );
                    good = false;
                    continue;
                }
            };
            match self.fault_parameter(param, &text, place, known) {
                Some(value) => {
                    values.insert(param.name, value);
                }
                None => good = false,
            }
        }
        good.then_some(values)
    }

    fn fault_parameter(
        &mut self,
        param: &ParamRow,
        text: &str,
        place: &Place,
        known: &Known<'_>,
    ) -> Option<ParamValue> {
        let complain = |c: &mut Self, complaint: crate::spanned::Complaint| {
            c.refuse(place, complaint.message, complaint.label, complaint.help);
        };
        match param.form {
            ParamForm::Span => match <Span as Scalar>::read(text) {
                Ok(span) => return Some(ParamValue::Span(span)),
                Err(complaint) => complain(self, complaint),
            },
            ParamForm::Number(min, max) => match text.parse::<u64>() {
                Ok(n) if (min..=max).contains(&n) => return Some(ParamValue::Number(n)),
                _ => self.refuse(
                    place,
                    format!("`{}` is {text}, must be {min} to {max}", param.name),
                    "not such a number",
                    format!("write a whole number from {min} to {max}: {}", param.purpose),
                ),
            },
            ParamForm::Text if text.trim().is_empty() => {
                self.refuse(place, format!("`{}` is empty", param.name), "nothing here", param.purpose);
            }
            ParamForm::Text => return Some(ParamValue::Text(text.to_owned())),
            ParamForm::Words(words) if words.contains(&text) => return Some(ParamValue::Text(text.to_owned())),
            ParamForm::Words(words) => {
                self.unknown(place, &format!("value of `{}`", param.name), text, words.iter().copied());
            }
            ParamForm::Host if known.hosts.iter().any(|h| h.name == text) => {
                return Some(ParamValue::Text(text.to_owned()));
            }
            ParamForm::Host => self.unknown(place, "host", text, known.hosts.iter().map(|h| h.name.as_str())),
            ParamForm::Stage => match <HostStage as Scalar>::read(text) {
                Ok(stage) if OWN_STAGES.contains(&stage) => return Some(ParamValue::Stage(stage)),
                Ok(stage) => {
                    let own: Vec<&str> = OWN_STAGES.iter().map(|s| s.as_str()).collect();
                    self.refuse(
                        place,
                        format!("`{stage}` is not reported by the host itself"),
                        "not this one",
                        format!("name {}", quoted(&own, "or")),
                    );
                }
                Err(complaint) => complain(self, complaint),
            },
            ParamForm::Address => match <IpAddr as Scalar>::read(text) {
                Ok(address) => return Some(ParamValue::Address(address)),
                Err(complaint) => complain(self, complaint),
            },
            ParamForm::Operation if operation_ids().contains(&text) => return Some(ParamValue::Text(text.to_owned())),
            ParamForm::Operation => self.unknown(place, "operation", text, operation_ids()),
            ParamForm::FinalizingStage => match <vlab_api::types::FinalizingStage as Scalar>::read(text) {
                Ok(stage) => return Some(ParamValue::FinalizingStage(stage)),
                Err(complaint) => complain(self, complaint),
            },
        }
        None
    }

    fn expectations(&mut self, items: &[At<ExpectFile>], known: &Known<'_>) -> Vec<Expectation> {
        let mut all: Vec<Expectation> = vec![];
        let mut names: BTreeMap<String, Place> = BTreeMap::new();
        for item in items {
            let Some(check) = self.expectation(item, known) else { continue };
            let mut name = match &item.name {
                Some(text) if text.text.trim().is_empty() => {
                    self.refuse(
                        &text.span,
                        "the expectation's name is empty",
                        "nothing here",
                        "write a name, or remove `name`",
                    );
                    continue;
                }
                Some(text) => text.text.trim().to_owned(),
                None => crate::describe::check(&check),
            };
            let place = item.name.as_ref().map_or(item.span.clone(), |t| t.span.clone());
            if let Some(first) = names.get(&name).cloned() {
                if item.name.is_some() {
                    self.refuse(
                        &place,
                        format!("two expectations are named {name:?}"),
                        "the second one",
                        "give each a name of its own",
                    );
                    self.also(&first, "the first one");
                    continue;
                }
                name = format!("{name} (line {})", self.line(&item.span));
            }
            names.insert(name.clone(), place);
            all.push(Expectation { name, line: self.line(&item.span), check });
        }
        all
    }

    fn expectation(&mut self, item: &At<ExpectFile>, known: &Known<'_>) -> Option<Check> {
        let kinds: Vec<(&str, &Place)> = [
            item.sequence.as_ref().map(|k| ("sequence", &k.span)),
            item.eventually.as_ref().map(|k| ("eventually", &k.span)),
            item.never.as_ref().map(|k| ("never", &k.span)),
            item.see.as_ref().map(|k| ("see", &k.span)),
            item.validation.as_ref().map(|k| ("validation", &k.span)),
            item.event.as_ref().map(|k| ("event", &k.span)),
            item.stage_duration.as_ref().map(|k| ("stage_duration", &k.span)),
            item.operator.as_ref().map(|k| ("operator", &k.span)),
        ]
        .into_iter()
        .flatten()
        .collect();
        match kinds.as_slice() {
            [_] => {}
            [] => {
                self.refuse(&item.span, "the expectation expects nothing", "here", "add one of `sequence`, `eventually`, `never`, `see`, `validation`, `event`, `stage_duration`, `operator`");
                return None;
            }
            [(first, there), (second, place), ..] => {
                self.refuse(
                    place,
                    format!("`{first}` and `{second}` are both in one expectation"),
                    "the second one",
                    "write two expectations, each with its own `- `",
                );
                self.also(there, "the first one");
                return None;
            }
        }
        for (key, other) in [("before", &item.before), ("after", &item.after)] {
            if let Some(other) = other.as_ref().filter(|_| item.see.is_none()) {
                self.refuse(
                    &other.span,
                    format!("`{key}` goes with `see`"),
                    "there is no `see`",
                    format!("write `see: ...` and `{key}: ...`"),
                );
            }
        }
        if let Some(within) = item.within.as_ref().filter(|_| item.see.is_none() && item.eventually.is_none()) {
            self.refuse(&within.span, "`within` goes with `eventually` and `see`", "of no use here", "remove it");
        }
        let within = self.read_option(&item.within);
        if let Some(sequence) = &item.sequence {
            return self.sequence(sequence, known);
        }
        if let Some(moment) = &item.eventually {
            return Some(Check::Eventually { moment: self.observation(moment, known)?, within });
        }
        if let Some(moment) = &item.never {
            if let Some(n) = &moment.at_least {
                self.refuse(&n.span, "`never` means of no host at all", "of no use here", "remove `at_least`");
            }
            return Some(Check::Never { moment: self.observation(moment, known)? });
        }
        if let Some(see) = &item.see {
            let seen = self.observation(see, known);
            let before = item.before.as_ref().map(|m| self.observation(m, known));
            let after = item.after.as_ref().map(|m| self.observation(m, known));
            if before.is_none() && after.is_none() {
                self.refuse(
                    &see.span,
                    "`see` says neither `before` nor `after` what",
                    "when?",
                    "add `before:` or `after:`, or write `eventually` instead of `see`",
                );
                return None;
            }
            let before = match before {
                Some(None) => return None,
                other => other.flatten(),
            };
            let after = match after {
                Some(None) => return None,
                other => other.flatten(),
            };
            return Some(Check::Order { see: seen?, before, after, within });
        }
        if let Some(v) = &item.validation {
            let subject = self.subject(who!(v), known);
            let status = self.read(&v.is);
            let when = self.read_option(&v.when).unwrap_or(When::End);
            let Some(subject) = subject? else {
                self.refuse(
                    &v.span,
                    "it does not say whose validation",
                    "whose?",
                    "add `host`, `hosts`, `role` or `cluster`",
                );
                return None;
            };
            let id = self.validation_id(&v.id, matches!(subject, Subject::Cluster(_)))?;
            return Some(Check::Validation { subject, id, status: status?, when });
        }
        if let Some(e) = &item.event {
            let subject = self.subject(who!(e), known);
            self.read(&e.name);
            let severity = self.read_option(&e.severity);
            if let (Some(count), Some(other)) = (&e.count, e.min.as_ref().or(e.max.as_ref())) {
                self.refuse(
                    &other.span,
                    "`count` says exactly how many",
                    "of no use beside it",
                    "write `count`, or `min` and `max`",
                );
                self.also(&count.span, "here");
            }
            let count = self.positive_u64(&e.count, "the number of events", 0);
            let min = self.positive_u64(&e.min, "the smallest number of events", 0);
            let max = self.positive_u64(&e.max, "the biggest number of events", 0);
            if let (Some(min), Some(max), Some(place)) = (min, max, &e.max)
                && min > max
            {
                self.refuse(
                    &place.span,
                    format!("`max: {max}` is less than `min: {min}`"),
                    "can never be",
                    "exchange them",
                );
            }
            if let (Some(0), None, Some(place)) = (min, max, &e.min) {
                self.refuse(
                    &place.span,
                    "`min: 0` without `max` is always true",
                    "expects nothing",
                    "write `count: 0` for none, or add `max`",
                );
            }
            let (min, max) = match count {
                Some(n) => (n, Some(n)),
                None => (min.unwrap_or(u64::from(max.is_none())), max),
            };
            return Some(Check::Event {
                subject: subject?.unwrap_or(Subject::Run),
                name: e.name.text.clone(),
                severity,
                min,
                max,
            });
        }
        if let Some(d) = &item.stage_duration {
            let subject = self.subject(who!(d), known);
            let stage = self.read(&d.stage);
            let at_least = self.read_option(&d.at_least);
            let at_most = self.read_option(&d.at_most);
            if d.at_least.is_none() && d.at_most.is_none() {
                self.refuse(&d.stage.span, "it does not say how long", "how long?", "add `at_most` or `at_least`");
            }
            let Some(subject) = subject? else {
                self.refuse(&d.span, "it does not say whose stage", "whose?", "add `host`, `hosts` or `role`");
                return None;
            };
            if !self.needs_hosts(&subject, &d.stage.span, "an installation stage") {
                return None;
            }
            self.stage_exists(&subject, stage?, &d.stage.span, known);
            return Some(Check::StageDuration { subject, stage: stage?, at_least, at_most });
        }
        if let Some(o) = &item.operator {
            self.read(&o.name);
            let status = self.read(&o.is);
            let cluster = self.the_cluster(&o.cluster, &o.name.span, known)?.name.clone();
            return Some(Check::Operator { cluster, name: o.name.text.clone(), status: status? });
        }
        None
    }

    fn sequence(&mut self, item: &At<SequenceFile>, known: &Known<'_>) -> Option<Check> {
        let subject = self.subject(who!(item), known);
        let mode = self.read_option(&item.mode).unwrap_or(SequenceMode::Exact);
        let kinds = [
            item.statuses.as_ref().map(|s| (&s.span, s.is_empty())),
            item.stages.as_ref().map(|s| (&s.span, s.is_empty())),
            item.finalizing_stages.as_ref().map(|s| (&s.span, s.is_empty())),
        ];
        let given: Vec<(&Place, bool)> = kinds.into_iter().flatten().collect();
        match given.as_slice() {
            [(place, true)] => {
                self.refuse(place, "the sequence is empty", "no steps", "name the steps");
                return None;
            }
            [_] => {}
            [] => {
                self.refuse(
                    &item.span,
                    "the sequence has no steps",
                    "here",
                    "add `statuses`, `stages` or `finalizing_stages`",
                );
                return None;
            }
            [(there, _), (place, _), ..] => {
                self.refuse(place, "a sequence is of one kind of steps", "the second kind", "write two expectations");
                self.also(there, "the first kind");
                return None;
            }
        }
        let subject = subject?;
        let (steps, optional) = if let Some(statuses) = &item.statuses {
            let (words, optional): (Vec<_>, Vec<bool>) = statuses.iter().map(split_step).unzip();
            let places: Vec<Place> = words.iter().map(|t| t.span.clone()).collect();
            let steps = match &subject {
                None => {
                    self.refuse(
                        &item.span,
                        "it does not say whose statuses",
                        "whose?",
                        "add `host`, `hosts`, `role` or `cluster`",
                    );
                    return None;
                }
                Some(Subject::Cluster(_)) => {
                    let read: Vec<Option<ClusterStatus>> = words.iter().map(|t| self.cluster_status(t)).collect();
                    let all: Vec<ClusterStatus> = read.into_iter().collect::<Option<_>>()?;
                    let names: Vec<&str> = all.iter().map(|s| s.as_str()).collect();
                    self.status_path(&names, &optional, &places, mode, &CLUSTER_MACHINE);
                    Steps::ClusterStatuses(all)
                }
                Some(_) => {
                    let read: Vec<Option<HostStatus>> = words.iter().map(|t| self.host_status(t)).collect();
                    let all: Vec<HostStatus> = read.into_iter().collect::<Option<_>>()?;
                    let names: Vec<&str> = all.iter().map(|s| s.as_str()).collect();
                    self.status_path(&names, &optional, &places, mode, &HOST_MACHINE);
                    Steps::HostStatuses(all)
                }
            };
            (steps, optional)
        } else if let Some(stages) = &item.stages {
            let (words, optional): (Vec<_>, Vec<bool>) = stages.iter().map(split_step).unzip();
            let places: Vec<Place> = words.iter().map(|t| t.span.clone()).collect();
            let read: Vec<Option<HostStage>> = words.iter().map(|t| self.read(t)).collect();
            let all: Vec<HostStage> = read.into_iter().collect::<Option<_>>()?;
            let Some(subject) = &subject else {
                self.refuse(&item.span, "it does not say whose stages", "whose?", "add `host`, `hosts` or `role`");
                return None;
            };
            if !self.needs_hosts(subject, &item.span, "an installation stage") {
                return None;
            }
            self.stage_path(subject, &all, &places, known);
            (Steps::Stages(all), optional)
        } else if let Some(stages) = &item.finalizing_stages {
            let (words, optional): (Vec<_>, Vec<bool>) = stages.iter().map(split_step).unzip();
            let read: Vec<Option<_>> = words.iter().map(|t| self.read(t)).collect();
            let all: Vec<_> = read.into_iter().collect::<Option<_>>()?;
            let subject = self.needs_cluster(subject, &item.span, known, "a stage of finalizing")?;
            return Some(Check::Sequence {
                subject,
                steps: Steps::FinalizingStages(all),
                optional: positions(&optional),
                mode,
            });
        } else {
            return None;
        };
        if optional.iter().all(|o| *o) {
            self.refuse(
                &item.span,
                "every step of the sequence may be missing",
                "expects nothing",
                "remove the `?` of one step at least",
            );
        }
        Some(Check::Sequence { subject: subject?, steps, optional: positions(&optional), mode })
    }

    /// An exact sequence must follow the rules of the machine; any sequence must not repeat itself without a change.
    fn status_path(
        &mut self,
        names: &[&str],
        optional: &[bool],
        places: &[Place],
        mode: SequenceMode,
        machine: &Machine,
    ) {
        let what = machine.what;
        for (i, name) in names.iter().enumerate() {
            // Steps that can come directly before this one: back to the first that cannot be missing.
            let mut before = vec![];
            let mut first = true;
            for j in (0..i).rev() {
                before.push(j);
                if !optional[j] {
                    first = false;
                    break;
                }
            }
            if mode == SequenceMode::Exact && first && !machine.starts.contains(name) && before.is_empty() {
                self.refuse(
                    &places[i],
                    format!("no {what} begins as `{name}`"),
                    "cannot be the first",
                    format!(
                        "an exact sequence begins with {}; `mode: partial` may begin anywhere",
                        quoted(machine.starts, "or")
                    ),
                );
            } else if let Some(&j) = before.first() {
                if names[j] == *name {
                    self.refuse(
                        &places[i],
                        format!("`{name}` follows itself"),
                        "no change",
                        "a sequence lists changes; remove it",
                    );
                } else if mode == SequenceMode::Exact && !before.iter().any(|j| (machine.edge)(names[*j], name)) {
                    self.refuse(
                        &places[i],
                        format!("no rule leads a {what} from `{}` to `{name}`", names[j]),
                        "cannot follow",
                        "add what is between, or write `mode: partial`",
                    );
                    self.also(&places[j], "from here");
                }
            }
        }
    }

    fn stage_lists(&self, subject: &Subject, known: &Known<'_>) -> Vec<(String, &'static [HostStage])> {
        crate::paths::stage_lists(subject, known.clusters, known.hosts, &known.member)
    }

    /// The stage must be one that the subject's role has.
    fn stage_exists(&mut self, subject: &Subject, stage: HostStage, place: &Place, known: &Known<'_>) {
        let lists = self.stage_lists(subject, known);
        if stage == HostStage::Failed || lists.is_empty() || lists.iter().any(|(_, l)| l.contains(&stage)) {
            return;
        }
        let (role, list) = &lists[0];
        let names: Vec<&str> = list.iter().map(|s| s.as_str()).collect();
        self.refuse(
            place,
            format!("{role} has no stage `{stage}`"),
            "never reported",
            format!("its stages are {}", quoted(&names, "and")),
        );
    }

    /// Stages must come in the order of some role that the subject can have.
    fn stage_path(&mut self, subject: &Subject, stages: &[HostStage], places: &[Place], known: &Known<'_>) {
        let lists = self.stage_lists(subject, known);
        let mut worst: Option<(usize, &String, &[HostStage])> = None;
        for (role, list) in &lists {
            match first_misplaced(stages, list, known.resets) {
                None => return,
                Some(i) => {
                    if worst.as_ref().is_none_or(|(j, ..)| i > *j) {
                        worst = Some((i, role, list));
                    }
                }
            }
        }
        if let Some((i, role, list)) = worst {
            let names: Vec<&str> = list.iter().map(|s| s.as_str()).collect();
            let message = if list.contains(&stages[i]) {
                format!("{role} cannot report `{}` here: stages never go back", stages[i])
            } else {
                format!("{role} has no stage `{}`", stages[i])
            };
            self.refuse(
                &places[i],
                message,
                "cannot be",
                format!("its stages are, in this order, {}", quoted(&names, "and")),
            );
        }
    }

    fn budgets(&mut self, file: Option<&BudgetsFile>) -> Budgets {
        let none = BudgetsFile::default();
        let file = file.unwrap_or(&none);
        let positive = |c: &mut Self, text: &Option<Text<Span>>, what: &str| {
            let span = c.read_option(text)?;
            if span.as_written().is_zero() {
                let place = text.as_ref().map_or(0..0, |t| t.span.clone());
                c.refuse(&place, format!("the budget `{what}` is zero"), "cannot be kept", "write a time above zero");
            }
            Some(span)
        };
        Budgets {
            first_registration: positive(self, &file.first_registration, "first_registration"),
            known: positive(self, &file.known, "known"),
            ready: positive(self, &file.ready, "ready"),
            install: positive(self, &file.install, "install"),
            total: positive(self, &file.total, "total")
                .unwrap_or(Span::Service(std::time::Duration::from_secs(3 * 3600))),
        }
    }

    fn pivot(&mut self, file: &At<PivotFile>, clusters: &[Cluster], actions: &[Action]) -> Option<Pivot> {
        let order = self.read_option(&file.order).unwrap_or(PivotOrder::Strict);
        let positive = |c: &mut Self, text: &Option<Text<Span>>| {
            let span = c.read_option(text)?;
            if span.as_written().is_zero() {
                let place = text.as_ref().map_or(0..0, |t| t.span.clone());
                c.refuse(&place, "a budget of the pivot is zero", "cannot be kept", "write a time above zero");
            }
            Some(span)
        };
        let within = positive(self, &file.within);
        let of = &file.stages;
        let written = [
            (PivotMoment::TemporaryControlPlaneUp, &of.temporary_control_plane_up),
            (PivotMoment::FirstMasterJoined, &of.first_master_joined),
            (PivotMoment::SecondMasterJoined, &of.second_master_joined),
            (PivotMoment::BootkubeDone, &of.bootkube_done),
            (PivotMoment::EtcdQuorum, &of.etcd_quorum),
            (PivotMoment::BootstrapReboot, &of.bootstrap_reboot),
            (PivotMoment::Rejoined, &of.rejoined),
        ];
        let installs: Vec<&Cluster> = clusters.iter().filter(|c| c.is_installed_by(actions)).collect();
        if installs.is_empty() {
            self.refuse(&file.span, "no cluster is installed here", "no pivot without it", "remove `pivot`");
        }
        let mut stages = BTreeMap::new();
        for (moment, text) in written {
            let Some(span) = positive(self, text) else { continue };
            let has = |c: &&Cluster| PivotMoment::of(c.control_plane_count == 1).contains(&moment);
            if !installs.is_empty() && !installs.iter().any(has) {
                let place = text.as_ref().map_or(0..0, |t| t.span.clone());
                let words: Vec<&str> = SINGLE_NODE.iter().skip(1).map(|m| m.as_str()).collect();
                self.refuse(
                    &place,
                    format!("the pivot of a single node has no `{moment}`"),
                    "nobody joins",
                    format!("remove it; there are {}", quoted(&words, "and")),
                );
            }
            stages.insert(moment, span);
        }
        Some(Pivot { order, within, stages, line: self.line(&file.span) })
    }

    fn until(&mut self, file: &ScenarioFile, known: &Known<'_>, installs: bool) -> Option<Until> {
        let none = UntilFile::default();
        let until = file.until.as_ref().map_or(&none, |u| &u.value);
        let seen: Vec<Option<Moment>> = until.seen.iter().map(|m| self.observation(m, known)).collect();
        let at = self.read_option(&until.at);
        let then = self.read_option(&until.then).unwrap_or(Span::ZERO);
        let idle_polls = until
            .idle_polls
            .as_ref()
            .and_then(|n| self.number(n, "the number of poll intervals", 0, 10_000))
            .unwrap_or(0);
        let says = !until.seen.is_empty() || until.at.is_some();
        if !says && !installs {
            let place = file.until.as_ref().map_or(file.name.span.clone(), |u| u.span.clone());
            self.refuse(
                &place,
                "nothing says when the run ends: no cluster is installed",
                "no end",
                "add `until:` with `seen` (something that is observed) or `at` (a time)",
            );
            return None;
        }
        Some(Until {
            seen: seen.into_iter().collect::<Option<_>>()?,
            clusters_ended: !says,
            at,
            idle_polls: u32::try_from(idle_polls).unwrap_or(0),
            then,
        })
    }

    fn load(&mut self, file: Option<&LoadFile>) -> Option<Load> {
        let file = file?;
        let ramp = file.ramp_per_second.as_ref().filter(|r| {
            let good = r.is_finite() && ***r > 0.0;
            if !good {
                self.refuse(
                    &r.span,
                    format!("a ramp of {} hosts in a second brings none", r.value),
                    "must be above zero",
                    "write a number above zero, or leave it out",
                );
            }
            good
        });
        Some(Load {
            ramp_per_second: ramp.map(|r| r.value),
            measure: file.measure.unwrap_or(true),
            max_errors: self.positive_u64(&file.max_errors, "the number of failed requests", 0),
            latency_p99_at_most: self.read_option(&file.latency_p99_at_most),
        })
    }

    fn report(&mut self, file: Option<&ReportFile>, hosts: usize) -> ReportOptions {
        let lanes =
            file.and_then(|f| f.max_lanes.as_ref()).and_then(|n| self.number(n, "the number of lanes", 1, 10_000));
        ReportOptions {
            max_lanes: lanes.and_then(|n| usize::try_from(n).ok()).unwrap_or(50),
            steps: file.and_then(|f| f.steps).unwrap_or(hosts <= 100),
        }
    }
}

/// What the tables say about statuses.
struct Machine {
    what: &'static str,
    edge: fn(&str, &str) -> bool,
    starts: &'static [&'static str],
}

const HOST_MACHINE: Machine =
    Machine { what: "host", edge: crate::paths::host_edge, starts: &["discovering", "discovering-unbound"] };
const CLUSTER_MACHINE: Machine = Machine {
    what: "cluster",
    edge: crate::paths::cluster_edge,
    starts: &["insufficient", "adding-hosts", "unmonitored"],
};

fn positions(optional: &[bool]) -> BTreeSet<usize> {
    optional.iter().enumerate().filter(|(_, o)| **o).map(|(i, _)| i).collect()
}

/// The first stage that is not in the list, or that comes before one that was there already. With `resets` a host may begin
/// anew.
fn first_misplaced(stages: &[HostStage], list: &[HostStage], resets: bool) -> Option<usize> {
    let mut next = 0;
    for (i, stage) in stages.iter().enumerate() {
        if *stage == HostStage::Failed {
            continue;
        }
        if resets && list.first() == Some(stage) {
            next = 0;
        }
        match list.iter().position(|s| s == stage) {
            Some(at) if at >= next => next = at + 1,
            _ => return Some(i),
        }
    }
    None
}
