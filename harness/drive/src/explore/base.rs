//! What a drawn scenario is built on: a scenario of the catalogue or of a grammar, taken apart so that things can be added.

use vlab_scenario::{Catalogue, FrontDoor, Need, Scenario, SourceFile, Span};

/// A scenario to build on.
#[derive(Clone, Debug)]
pub struct Base {
    /// Its name.
    pub name: String,
    /// Where it was read from: what it refers to is found from there.
    path: String,
    /// Its parts by their keys, with the lines of each.
    parts: Vec<(String, Vec<String>)>,
    /// Names of its hosts.
    pub hosts: Vec<String>,
    /// Names of its groups.
    pub groups: Vec<String>,
    /// It has no form in virtual time.
    pub real_time: bool,
    /// How many of the service there are.
    pub replicas: u64,
    /// The service is asked over Kubernetes.
    pub kube: bool,
    /// Its API server can do something wrong on purpose.
    pub hub_faults: bool,
    /// Its clusters: names, and the addresses of API and ingress.
    pub clusters: Vec<(String, Vec<String>, Vec<String>)>,
    /// It goes on from a snapshot of it: it keeps its name and its end, and may take so long.
    going_on: Option<Span>,
}

/// What a scenario to build on loses: what it says of itself, what it expects, and how long it may take.
const LEFT_OUT: &[&str] =
    &["description", "tags", "seed", "expect", "pivot", "budgets", "until", "report", "load", "interleaving"];

/// What is added to a base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Actions of the user, one line each.
    pub actions: Vec<String>,
    /// Faults, one line each.
    pub faults: Vec<String>,
    /// What is under `interleaving`, in one line; empty: it is plain.
    pub interleaving: String,
    /// What the service may do.
    pub tolerate: Vec<&'static str>,
    /// Seed of the run.
    pub seed: u64,
}

impl Added {
    /// Lines that it adds to the base's text, but for those that all drawn scenarios have: its name, the end of the run, budgets.
    pub fn lines(&self) -> usize {
        let one = |there: bool| usize::from(there);
        self.actions.len()
            + one(!self.actions.is_empty())
            + self.faults.len()
            + one(!self.faults.is_empty())
            + one(!self.interleaving.is_empty())
            + one(!self.tolerate.is_empty())
            + 1
    }
}

impl Base {
    /// Takes a scenario apart.
    ///
    /// # Errors
    /// Why it cannot be built on, for people.
    pub fn new(source: &SourceFile, catalogue: &Catalogue) -> Result<Self, String> {
        let scenario = vlab_scenario::load(source, catalogue).map_err(|error| error.to_string())?;
        let text = std::str::from_utf8(&source.bytes).map_err(|error| error.to_string())?;
        if scenario.hosts.iter().any(vlab_scenario::Host::is_machine) {
            return Err("its hosts are virtual machines, and virtual time has none".to_owned());
        }
        Self::taken_apart(&scenario, text, None)
    }

    /// Takes a scenario apart that goes on from a snapshot of it, in real time, and may take so long from its start.
    ///
    /// # Errors
    /// Why it cannot be built on, for people.
    pub fn going_on(source: &SourceFile, catalogue: &Catalogue, total: Span) -> Result<Self, String> {
        let scenario = vlab_scenario::load(source, catalogue).map_err(|error| error.to_string())?;
        let text = std::str::from_utf8(&source.bytes).map_err(|error| error.to_string())?;
        Self::taken_apart(&scenario, text, Some(total))
    }

    fn taken_apart(scenario: &Scenario, text: &str, going_on: Option<Span>) -> Result<Self, String> {
        let mut parts: Vec<(String, Vec<String>)> = Vec::new();
        for line in text.lines() {
            let begins = line.starts_with(|c: char| c.is_ascii_lowercase());
            match (begins, parts.last_mut()) {
                (true, _) => {
                    let key = line.split(':').next().unwrap_or_default();
                    parts.push((key.to_owned(), vec![line.to_owned()]));
                }
                (false, Some((_, lines))) if !line.starts_with('#') => lines.push(line.to_owned()),
                _ => {}
            }
        }
        for (_, lines) in &mut parts {
            while lines.last().is_some_and(|line| line.trim().is_empty()) {
                lines.pop();
            }
        }
        parts.retain(|(key, _)| !LEFT_OUT.contains(&key.as_str()));
        for (key, lines) in parts.iter().filter(|(key, _)| ["actions", "faults", "tolerate"].contains(&key.as_str())) {
            if key == "tolerate" || lines.len() < 2 {
                return Err(format!("its `{key}` cannot be added to: write them one a line, each beginning with `- `"));
            }
        }
        if !scenario.infra_env.resources.is_empty() {
            return Err("it reads other files, which would not be beside what is drawn from it".to_owned());
        }
        let mut groups: Vec<String> = scenario.hosts.iter().map(|host| host.group.clone()).collect();
        groups.dedup();
        let texts = |all: &[std::net::IpAddr]| all.iter().map(ToString::to_string).collect();
        Ok(Self {
            name: scenario.name.clone(),
            path: scenario.path.clone(),
            parts,
            hosts: scenario.hosts.iter().map(|host| host.name.clone()).collect(),
            groups,
            replicas: scenario.service.replicas,
            real_time: scenario.needs.contains(&Need::RealTime),
            kube: scenario.api == FrontDoor::Kube,
            hub_faults: scenario.api == FrontDoor::Kube && scenario.hub_assets.is_none(),
            clusters: scenario
                .clusters
                .iter()
                .map(|cluster| (cluster.name.clone(), texts(&cluster.api_vips), texts(&cluster.ingress_vips)))
                .collect(),
            going_on,
        })
    }

    /// How many actions the base has itself.
    pub fn own_actions(&self) -> usize {
        let of = |line: &&String| line.trim_start().starts_with("- ");
        let actions = self.parts.iter().find(|(key, _)| key == "actions");
        let indent = actions.and_then(|(_, lines)| lines.get(1)).map_or(0, |line| line.len() - line.trim_start().len());
        let top = |line: &&String| line.len() - line.trim_start().len() == indent;
        actions.map_or(0, |(_, lines)| lines.iter().skip(1).filter(of).filter(top).count())
    }

    /// The scenario's text with what is added, under that name, and where its file would be.
    pub fn with(&self, name: &str, head: &str, added: &Added) -> SourceFile {
        let mut text = head.to_owned();
        let mut line = |line: &str| {
            text.push_str(line);
            text.push('\n');
        };
        let items = |key: &str| match key {
            "actions" => added.actions.as_slice(),
            "faults" => added.faults.as_slice(),
            _ => &[],
        };
        for (key, lines) in &self.parts {
            if key == "name" {
                line(&format!("name: {}", if self.going_on.is_some() { &self.name } else { name }));
                line(&format!("seed: {}", added.seed));
                continue;
            }
            lines.iter().for_each(|l| line(l));
            let indent = lines.get(1).map_or(2, |l| l.len() - l.trim_start().len());
            items(key).iter().for_each(|item| line(&format!("{}- {item}", " ".repeat(indent))));
        }
        for key in ["actions", "faults"] {
            if !items(key).is_empty() && !self.parts.iter().any(|(k, _)| k == key) {
                line(&format!("{key}:"));
                items(key).iter().for_each(|item| line(&format!("  - {item}")));
            }
        }
        if !added.interleaving.is_empty() {
            line(&format!("interleaving: {{{}}}", added.interleaving));
        }
        if !added.tolerate.is_empty() {
            line(&format!("tolerate: [{}]", added.tolerate.join(", ")));
        }
        match self.going_on {
            Some(total) => line(&format!("budgets: {{total: {total}}}")),
            None => {
                line(&format!("until: {{rest: {REST}}}"));
                line(&format!("budgets: {{total: {TOTAL}}}"));
            }
        }
        SourceFile::new(self.path.clone(), text)
    }
}

/// So long must nothing change.
const REST: &str = "30m";

/// By then everything must have come to rest: the longest time that the service gives anything is a day, and what the user is
/// waited for after that another one.
const TOTAL: &str = "60h";
