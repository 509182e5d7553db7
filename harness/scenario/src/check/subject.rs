//! Whom an item speaks of, and the words whose meaning depends on it.

use vlab_api::types::{ClusterStatus, ClusterValidationId, HostRole, HostStatus, HostValidationId};

use super::{Checker, Known, Place};
use crate::diagnostic::quoted;
use crate::spanned::{AnyStatus, AnyValidation, Plain, Text};
use crate::types::{Cluster, Host, Subject};
use crate::words::RoleName;

/// Who an item speaks of, as it is written.
#[derive(Clone, Copy)]
pub(super) struct Who<'a> {
    pub(super) host: &'a Option<Text<Plain>>,
    pub(super) hosts: &'a Option<Text<Plain>>,
    pub(super) role: &'a Option<Text<RoleName>>,
    pub(super) cluster: &'a Option<Text<Plain>>,
}

/// [`Who`] of an item that has all four keys.
macro_rules! who {
    ($item:expr) => {
        $crate::check::subject::Who {
            host: &$item.host,
            hosts: &$item.hosts,
            role: &$item.role,
            cluster: &$item.cluster,
        }
    };
}
pub(super) use who;

impl Checker<'_> {
    /// Whom an item speaks of. `None`: a problem was noted. `Some(None)`: of nobody.
    pub(super) fn subject(&mut self, who: Who<'_>, known: &Known<'_>) -> Option<Option<Subject>> {
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
                format!("`{first}` and `{second}` cannot be used together"),
                "the second one",
                "use one of `host`, `hosts`, `role` and `cluster`",
            );
            self.also(there, "the first one");
            return None;
        }
        if let Some(text) = who.host {
            return self.one_host(text, known).map(Some);
        }
        if let Some(text) = who.hosts {
            return self.group(text, known).map(Some);
        }
        if let Some(text) = who.role {
            return self.role(text, who.cluster, known).map(Some);
        }
        if let Some(text) = who.cluster {
            let cluster = self.the_cluster(Some(text), &text.span, known)?;
            return Some(Some(Subject::Cluster(cluster.name.clone())));
        }
        Some(None)
    }

    fn one_host(&mut self, text: &Text<Plain>, known: &Known<'_>) -> Option<Subject> {
        let name = &text.text;
        if known.hosts.iter().any(|h| h.name == *name) {
            return Some(Subject::Hosts(vec![name.clone()]));
        }
        self.unknown(&text.span, "host", name, known.hosts.iter().map(|h| h.name.as_str()));
        if known.groups.contains(&name.as_str()) {
            self.set_help(format!("`{name}` is a group; write `hosts: {name}`, or one of its hosts: `{name}-0`"));
        }
        None
    }

    fn group(&mut self, text: &Text<Plain>, known: &Known<'_>) -> Option<Subject> {
        let name = &text.text;
        let members = known.hosts.iter().filter(|h| name == "all" || h.group == *name);
        let names: Vec<String> = members.map(|h| h.name.clone()).collect();
        if !names.is_empty() {
            return Some(Subject::Hosts(names));
        }
        self.unknown(&text.span, "group of hosts", name, known.groups.iter().copied().chain(["all"]));
        if known.hosts.iter().any(|h| h.name == *name) {
            self.set_help(format!("`{name}` is one host; write `host: {name}`"));
        }
        None
    }

    fn role(&mut self, text: &Text<RoleName>, cluster: &Option<Text<Plain>>, known: &Known<'_>) -> Option<Subject> {
        let role = self.read(text)?;
        let cluster = self.the_cluster(cluster.as_ref(), &text.span, known)?;
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
        if possible {
            return Some(Subject::Role { role, cluster: cluster.name.clone() });
        }
        let help = if role == RoleName::Master {
            "the only master is the bootstrap: write `role: bootstrap`".to_owned()
        } else {
            format!("add a group with `role: {role}`, or name another role")
        };
        self.refuse(
            &text.span,
            format!("no host of the cluster `{}` can have the role `{role}`", cluster.name),
            "no such host",
            help,
        );
        None
    }

    /// Puts another help in the place of the last problem's.
    pub(super) fn set_help(&mut self, help: String) {
        if let Some(problem) = self.problems.last_mut() {
            problem.help = Some(help);
        }
    }

    /// The cluster of that name, or the only one.
    pub(super) fn the_cluster<'k>(
        &mut self,
        text: Option<&Text<Plain>>,
        place: &Place,
        known: &Known<'k>,
    ) -> Option<&'k Cluster> {
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
                self.refuse(place, "there is no cluster", "needs a cluster", "add `cluster:` to the scenario");
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

    pub(super) fn host_status(&mut self, text: &Text<AnyStatus>) -> Option<HostStatus> {
        if let Ok(status) = text.text.parse() {
            return Some(status);
        }
        self.unknown(&text.span, "status of a host", &text.text, HostStatus::NAMES.iter().copied());
        if ClusterStatus::NAMES.contains(&text.text.as_str()) {
            self.set_help(format!("`{}` is a status of clusters; name a `cluster`, or a status of hosts", text.text));
        }
        None
    }

    pub(super) fn cluster_status(&mut self, text: &Text<AnyStatus>) -> Option<ClusterStatus> {
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

    pub(super) fn validation_id(&mut self, text: &Text<AnyValidation>, of_cluster: bool) -> Option<String> {
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

    /// Is the subject hosts? Else a problem is noted.
    pub(super) fn needs_hosts(&mut self, subject: &Subject, place: &Place, what: &str) -> bool {
        let hosts = matches!(subject, Subject::Hosts(_) | Subject::Role { .. });
        if !hosts {
            self.refuse(place, format!("{what} belongs to hosts"), "which hosts?", "add `host`, `hosts` or `role`");
        }
        hosts
    }

    /// The cluster that is named, or the only one.
    pub(super) fn needs_cluster(
        &mut self,
        subject: Option<Subject>,
        place: &Place,
        known: &Known<'_>,
        what: &str,
    ) -> Option<Subject> {
        match subject {
            Some(Subject::Cluster(name)) => Some(Subject::Cluster(name)),
            None => self.the_cluster(None, place, known).map(|c| Subject::Cluster(c.name.clone())),
            Some(_) => {
                self.refuse(
                    place,
                    format!("{what} belongs to a cluster, not to hosts"),
                    "which cluster?",
                    "name a `cluster` instead of hosts",
                );
                None
            }
        }
    }
}
