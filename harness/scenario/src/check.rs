//! From the form of a file to a [`Scenario`]: every name is looked up, every number compared, every contradiction named.
//! Nothing stops at the first mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::catalogue::Catalogue;
use crate::diagnostic::{Problem, SourceFile, line_column, render_problem, suggestion};
use crate::file::{ClusterFile, HubFile, ScenarioFile};
use crate::spanned::{At, Plain, Scalar, Text};
use crate::types::{Action, Cluster, Fault, Host, HostsSettings, NotBuilt, Scenario};
use crate::words::{ActionKind, FrontDoor, InstallMode, Need};

use cluster::name_place;
use hosts::bindings;

mod action;
mod addresses;
pub(crate) mod api;
mod cluster;
mod disks;
mod expect;
mod fault;
mod hosts;
mod limits;
mod networks;
mod observation;
pub(crate) mod plan;
mod sequence;
mod service;
mod subject;

type Place = Range<usize>;

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
    /// Is the service asked over Kubernetes?
    kube: bool,
    /// How many of the service there are.
    replicas: u64,
    /// The cluster that each host is in at some time, by binding too.
    member: BTreeMap<&'a str, Option<&'a str>>,
    /// The user resets a cluster, whose hosts then begin anew.
    resets: bool,
}

impl<'a> Known<'a> {
    fn new(file: &'a ScenarioFile, clusters: &'a [Cluster], hosts: &'a [Host], real_time: bool) -> Self {
        let mut groups: Vec<&str> = hosts.iter().map(|h| h.group.as_str()).collect();
        groups.dedup();
        Self {
            clusters,
            hosts,
            groups,
            faults: file.faults.iter().map(|f| f.name.text.as_str()).collect(),
            real_time,
            replicas: 1,
            kube: file.api.as_ref().is_some_and(|api| api.text == FrontDoor::Kube.as_str()),
            member: hosts
                .iter()
                .map(|h| (h.name.as_str(), h.cluster.as_deref().or(h.bound_to.last().map(String::as_str))))
                .collect(),
            resets: file.actions.iter().any(|a| a.act.text == ActionKind::Reset.as_str()),
        }
    }
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
            message: format!("not supported yet: {what}"),
            span: Some(place.clone()),
            label: "this version cannot run it".to_owned(),
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
        self.read_as(&text.text, &text.span)
    }

    /// Reads a text that the file's form leaves open.
    fn read_as<T: Scalar>(&mut self, text: &str, place: &Place) -> Option<T> {
        match T::read(text) {
            Ok(value) => Some(value),
            Err(c) => {
                self.refuse(place, c.message, c.label, c.help);
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
            format!("{what} is {}; it must be between {min} and {max}", **value),
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
        if name.len() > max || !is_label(name) {
            self.refuse(
                &text.span,
                format!("{what} {name:?} cannot be used"),
                "not a valid name",
                format!("use 1 to {max} lower-case letters, digits and dashes; begin and end with a letter or a digit"),
            );
        }
        name.clone()
    }

    fn scenario(&mut self, file: &ScenarioFile) -> Option<Scenario> {
        if *file.version != 1 {
            self.refuse(
                &file.version.span,
                format!("version {} of the scenario language is unknown", *file.version),
                "must be 1",
                "write `version: 1`",
            );
        }
        let name = self.label_name(&file.name, "the scenario's name", 63);
        let tags = self.tags(&file.tags);
        let needs = self.read_all(&file.needs);
        let service = self.service(file.service.as_ref());
        self.replicas_fit(file.service.as_ref(), service.replicas, &needs);
        let api = self.read_option(&file.api).unwrap_or(FrontDoor::Rest);
        let hub = file.hub.as_ref().filter(|hub| self.has_hub(hub, api));
        let hub_assets = hub.and_then(|hub| self.hub_assets(hub));
        let baremetal_operator = hub.and_then(|hub| self.baremetal_operator(hub));
        let mut infra_env = self.infra_env(file.infra_env.as_ref());
        let cluster_files = self.cluster_files(file);
        let names = self.cluster_names(&cluster_files, &name);
        self.different_names(&names);
        let (hosts, clusters) = self.hosts_and_clusters(file, &cluster_files, &names);
        (infra_env.static_networks, infra_env.mistakes) = self.static_networks(file.infra_env.as_ref(), &hosts);

        let known = Known {
            replicas: service.replicas,
            ..Known::new(file, &clusters, &hosts, needs.contains(&Need::RealTime))
        };
        let actions: Vec<Action> = file.actions.iter().flat_map(|a| self.action(a, &known)).collect();
        // All files that were read go into the run's folder with the scenario.
        infra_env.resources = std::mem::take(&mut self.resources);
        if known.kube {
            self.over_kube(file);
        }
        let faults = self.faults(&file.faults, &known);
        if let Some(hub) = file.hub.as_ref().filter(|hub| hub.assets.is_some()) {
            self.without_faults_of_the_hub(hub, file, &faults);
        }
        let expect = self.expectations(&file.expect, &known);
        let tolerate = self.read_all(&file.tolerate);
        let budgets = self.budgets(file.budgets.as_ref());
        let pivot = file.pivot.as_ref().and_then(|p| self.pivot(p, &clusters, &actions));
        let installs = clusters.iter().any(|c| c.install == InstallMode::Auto)
            || actions.iter().any(|a| a.kind == ActionKind::Install && a.refused.is_none());
        let until = self.until(file, &known, installs)?;
        // Only once everything else is right: what is wrong elsewhere may be the reason.
        // That everything comes to rest is something to expect.
        if file.expect.is_empty() && until.rest.is_none() && self.problems.is_empty() {
            self.must_end_installed(file, &clusters, &actions, &until);
        }
        let interleaving = self.interleaving(file.interleaving.as_ref());
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
            api,
            hub_assets,
            baremetal_operator,
            infra_env,
            clusters,
            hosts,
            hosts_settings: HostsSettings {
                reply_cache: file.hosts_settings.as_ref().and_then(|h| h.reply_cache).unwrap_or(true),
            },
            actions,
            faults,
            expect,
            tolerate,
            budgets,
            pivot,
            until,
            interleaving,
            load,
            report,
            not_built: std::mem::take(&mut self.not_built),
        })
    }

    /// Has the run a hub?
    fn has_hub(&mut self, hub: &At<HubFile>, api: FrontDoor) -> bool {
        if api == FrontDoor::Rest {
            let help = "add `api: kube`, or remove it";
            self.refuse(&hub.span, "a run that asks over REST has no API server", "not used here", help);
        }
        if hub.assets.is_none() && hub.baremetal_operator.is_none() {
            let help = "write `assets` or `baremetal_operator`, or remove it";
            self.refuse(&hub.span, "`hub` says neither `assets` nor `baremetal_operator`", "nothing here", help);
        }
        api != FrontDoor::Rest
    }

    /// The version of its operator for bare metal.
    fn baremetal_operator(&mut self, hub: &At<HubFile>) -> Option<String> {
        let version = hub.baremetal_operator.as_ref()?;
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let numbers = version.text.split(['-', '+']).next().unwrap_or_default();
        if numbers.split('.').count() < 2 || !numbers.split('.').all(is_number) {
            let help = "write a version of OpenShift, for example `4.20.0`";
            self.refuse(&version.span, "`baremetal_operator` is no version", "no version", help);
            return None;
        }
        Some(version.text.clone())
    }

    /// The folder with the programs of the run's API server.
    fn hub_assets(&mut self, hub: &At<HubFile>) -> Option<PathBuf> {
        let assets = hub.assets.as_ref()?;
        let given = Path::new(&assets.text);
        if assets.text.trim().is_empty() {
            let help = "name the folder that envtest uses, with etcd, kube-apiserver and kubectl";
            self.refuse(&assets.span, "`assets` is empty", "nothing here", help);
            return None;
        }
        if self.source.name.starts_with("built-in:") && given.is_relative() {
            let help = "write an absolute path, or use `--hub-assets`";
            self.refuse(&assets.span, "a scenario inside the program has no folder", "a relative path", help);
            return None;
        }
        Some(Path::new(&self.source.name).parent().unwrap_or(Path::new("")).join(given))
    }

    /// A real API server does nothing wrong on purpose.
    fn without_faults_of_the_hub(&mut self, hub: &At<HubFile>, file: &ScenarioFile, faults: &[Fault]) {
        let of_hub = faults.iter().find(|fault| fault.row().needs_hub());
        let Some(item) = of_hub.and_then(|fault| file.faults.iter().find(|item| item.name.text == fault.name)) else {
            return;
        };
        let why = format!("`{}` is done by the lab's own API server, and not by a real one", item.inject.text);
        self.refuse(&item.inject.span, why, "cannot be done there", "remove it, or remove `assets`");
        self.also(&hub.span, "a real one is wanted here");
    }

    /// What has no form as resources is refused where it stands.
    fn over_kube(&mut self, file: &ScenarioFile) {
        for action in &file.actions {
            let why = match ActionKind::from_word(&action.act.text).and_then(ActionKind::without_resources) {
                Some(why) => format!("`{}` has no form over Kubernetes: {why}", action.act.text),
                None => continue,
            };
            self.refuse(&action.act.span, why, "no resource says that", "remove it, or ask over REST");
        }
        self.params_over_kube(file);
        let refused = file.actions.iter().filter_map(|action| action.refused.as_ref());
        for place in refused.chain(file.infra_env.iter().filter_map(|env| env.refused.as_ref())) {
            let why =
                "over Kubernetes nothing is refused with a status: a condition of the resource says what is wrong";
            self.refuse(&place.span, why, "not used here", "remove it, and expect a `condition`");
        }
    }

    fn tags(&mut self, texts: &[Text<Plain>]) -> Vec<String> {
        let mut tags = vec![];
        for text in texts {
            let tag = self.label_name(text, "the tag", 63);
            if tags.contains(&tag) {
                self.refuse(&text.span, format!("the tag `{tag}` is given twice"), "the second one", "remove it");
            }
            tags.push(tag);
        }
        tags
    }

    fn cluster_files<'f>(&mut self, file: &'f ScenarioFile) -> Vec<&'f At<ClusterFile>> {
        match (&file.cluster, &file.clusters) {
            (Some(one), Some(many)) => {
                let place = many.first().map_or(one.span.clone(), |c| c.span.clone());
                self.refuse(
                    &place,
                    "`cluster` and `clusters` cannot be used together",
                    "this one",
                    "put all clusters under `clusters`",
                );
                self.also(&one.span, "and this one");
                vec![one]
            }
            (Some(one), None) => vec![one],
            (None, Some(many)) => many.iter().collect(),
            (None, None) => vec![],
        }
    }

    /// The names of each file's clusters; without one it has the scenario's.
    fn cluster_names(&mut self, files: &[&At<ClusterFile>], scenario: &str) -> Vec<Named> {
        let mut all = Vec::new();
        for file in files {
            let name = match &file.name {
                Some(name) => self.label_name(name, "the cluster's name", 54),
                None => scenario.to_owned(),
            };
            let count = file.count.as_ref().and_then(|count| {
                let count = self.number(count, "the number of clusters", 1, hosts::MAX_HOSTS as i64)?;
                usize::try_from(count).ok()
            });
            let place = name_place(file);
            if name == "none" {
                self.refuse(&place, "a cluster cannot be named `none`", "`none` means the pool", "choose another name");
            }
            all.push(Named { name, count, place });
        }
        all
    }

    fn different_names(&mut self, names: &[Named]) {
        let mut seen: BTreeMap<String, &Place> = BTreeMap::new();
        for named in names {
            // That of all of them is a name, too.
            let own: BTreeSet<String> = named.all().chain([named.name.clone()]).collect();
            if let Some((name, first)) = own.iter().find_map(|name| seen.get_key_value(name)) {
                let what = format!("two clusters are named `{name}`");
                let help = "give each cluster a `name` of its own";
                let first = (*first).clone();
                self.refuse(&named.place, what, "the second one", help);
                self.also(&first, "the first one");
            }
            seen.extend(own.into_iter().map(|name| (name, &named.place)));
        }
    }

    fn hosts_and_clusters(
        &mut self,
        file: &ScenarioFile,
        cluster_files: &[&At<ClusterFile>],
        names: &[Named],
    ) -> (Vec<Host>, Vec<Cluster>) {
        let (mut hosts, group_places) = self.groups(file, names);
        let all: Vec<String> = names.iter().flat_map(Named::all).collect();
        let bound = bindings(file, &all, &hosts);
        for host in &mut hosts {
            host.bound_to = bound.get(&host.name).cloned().unwrap_or_default();
        }
        self.one_kind_in_a_cluster(&hosts, &group_places);
        let mut clusters = vec![];
        let mut places = vec![];
        for (cluster_file, named) in cluster_files.iter().zip(names) {
            let Some(first) = named.all().next() else { continue };
            let members: Vec<&Host> = hosts
                .iter()
                .filter(|h| h.cluster.as_ref() == Some(&first) || h.bound_to.contains(&first))
                .filter(|h| !h.day2)
                .collect();
            // VIPs that the user sets later need not be there at the beginning.
            let vips_later = file.actions.iter().any(|a| {
                a.act.text == ActionKind::SetVips.as_str() && a.cluster.as_ref().is_none_or(|c| c.text == first)
            });
            let (cluster, place) = self.cluster(cluster_file, &first, &members, &group_places, vips_later);
            if let Some(count) =
                cluster_file.count.as_ref().filter(|count| ***count > 1 && !cluster.user_managed_networking)
            {
                let why = "clusters with VIPs cannot be alike: their addresses would be the same";
                let help = "write each cluster with its addresses, or make them single nodes";
                self.refuse(&count.span, why, "more than one", help);
            }
            for name in named.all() {
                clusters.push(Cluster { name, ..cluster.clone() });
                places.push(place.clone());
            }
        }
        self.addresses(file, &clusters, &places, &mut hosts);
        self.machines_in_networks(&hosts, &clusters, &places, &group_places);
        (hosts, clusters)
    }
}

/// How a file's cluster is named, or its clusters.
struct Named {
    name: String,
    /// So many that are alike, with a number behind their name.
    count: Option<usize>,
    place: Place,
}

impl Named {
    /// The name of each.
    fn all(&self) -> impl Iterator<Item = String> {
        (0..self.count.unwrap_or(1)).map(|number| match self.count {
            Some(_) => format!("{}-{number}", self.name),
            None => self.name.clone(),
        })
    }
}

/// Lower-case letters, digits and dashes, with a letter or a digit at both ends.
fn is_label(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}
