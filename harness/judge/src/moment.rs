//! Follows a history as it grows and knows when a moment of the scenario ("all masters are `installed`") has come.
//!
//! The driver uses it to act and to stop, the verdict to judge: both feed it the same observations.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::HostRole;
use vlab_history::Directory;
use vlab_model::history::{Observation, ResourceState, UserVerb, What};
use vlab_scenario::{Moment, Quantity, ResourceKind, RoleName, Seen, Subject};

/// The hosts that a subject means, as far as is known now.
pub fn hosts_of(directory: &Directory, subject: &Subject) -> BTreeSet<Uuid> {
    match subject {
        Subject::Hosts(names) => names.iter().filter_map(|n| directory.hosts.get(n)).copied().collect(),
        Subject::Role { role, cluster } => {
            let Some(cluster) = directory.clusters.get(cluster) else { return BTreeSet::new() };
            directory.hosts_with_role(*cluster, |has, bootstrap| match role {
                RoleName::Bootstrap => bootstrap,
                RoleName::Master => has == HostRole::Master && !bootstrap,
                RoleName::Worker => has == HostRole::Worker,
                RoleName::Arbiter => has == HostRole::Arbiter,
            })
        }
        Subject::Cluster(_) | Subject::Run => BTreeSet::new(),
    }
}

/// When and where in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// By the service's clock where that is known, else by the harness's.
    pub time: Timestamp,
    /// Position in the history.
    pub seq: u64,
}

/// Who was seen: a host, a cluster, or nobody in particular.
type Who = Option<Uuid>;

/// Waits for one moment.
#[derive(Clone, Debug)]
pub struct Tracker {
    moment: Moment,
    first_hits: BTreeMap<Who, At>,
}

impl Tracker {
    /// Nothing seen yet.
    pub fn new(moment: Moment) -> Self {
        Self { moment, first_hits: BTreeMap::new() }
    }

    /// Takes in an observation. The directory must have taken it in first. Tells whether it showed something new.
    pub fn observe(&mut self, directory: &Directory, observation: &Observation) -> bool {
        let Some(who) = hit(&self.moment.seen, directory, observation) else { return false };
        let new = !self.first_hits.contains_key(&who);
        self.first_hits.entry(who).or_insert(At { time: observation.at(), seq: observation.seq });
        new
    }

    /// First time that it was seen for each of the subject's hosts (or the cluster, or the run).
    pub fn hits(&self, directory: &Directory) -> Vec<(Who, At)> {
        // Once, and not for each hit: a subject may have a hundred thousand hosts.
        let hosts = hosts_of(directory, &self.moment.subject);
        let relevant = |who: &Who| match (&self.moment.subject, who) {
            (Subject::Run, _) => true,
            (Subject::Cluster(name), Some(id)) => {
                directory.clusters.get(name) == Some(id)
                    || *id == named(name)
                    || self.host_counts_for_cluster(directory, name, *id)
            }
            (_, Some(id)) => hosts.contains(id),
            (_, None) => false,
        };
        let of_resource = |who: Who| match &self.moment.subject {
            Subject::Cluster(name) if who == Some(named(name)) => directory.clusters.get(name).copied().or(who),
            _ => who,
        };
        let first_hits = self.first_hits.iter().map(|(who, at)| (of_resource(*who), *at));
        let mut hits: Vec<_> = first_hits.filter(|(who, _)| relevant(who)).collect();
        hits.sort_by_key(|(_, at)| *at);
        hits
    }

    /// "A host status of a cluster" means any of its hosts; so does an event that speaks of one of them.
    fn host_counts_for_cluster(&self, directory: &Directory, cluster: &str, host: Uuid) -> bool {
        matches!(
            self.moment.seen,
            Seen::HostStatus(_)
                | Seen::HostTransition { .. }
                | Seen::Console(_)
                | Seen::Stage(_)
                | Seen::Did(_)
                | Seen::Event { .. }
                | Seen::Fault { .. }
        ) && directory.clusters.get(cluster).is_some_and(|c| directory.cluster_of.get(&host) == Some(c))
    }

    /// When it was first seen for any of the subject.
    pub fn first(&self, directory: &Directory) -> Option<(Who, At)> {
        self.hits(directory).first().copied()
    }

    /// When it had been seen for as many as the moment asks.
    pub fn complete(&self, directory: &Directory) -> Option<At> {
        // Not enough, whoever they are: who they are need not be looked up with each hit.
        let at_least = match (&self.moment.subject, self.moment.of) {
            (Subject::Hosts(names), Quantity::All) => names.len(),
            (_, Quantity::All) => 1,
            (_, Quantity::AtLeast(n)) => n as usize,
        };
        if self.first_hits.len() < at_least {
            return None;
        }
        let hits = self.hits(directory);
        let needed = match (&self.moment.subject, self.moment.of) {
            (Subject::Run | Subject::Cluster(_), Quantity::All) => 1,
            // A host that is named in the scenario and that nobody has seen yet is missing, too.
            (Subject::Hosts(names), Quantity::All) => names.len(),
            (subject, Quantity::All) => hosts_of(directory, subject).len().max(1),
            (_, Quantity::AtLeast(n)) => n as usize,
        };
        hits.get(needed.max(1) - 1).map(|(_, at)| *at)
    }

    /// Names of the subject's hosts for which it was not seen.
    pub fn missing(&self, directory: &Directory) -> Vec<String> {
        let seen: BTreeSet<Uuid> = self.first_hits.keys().flatten().copied().collect();
        match &self.moment.subject {
            Subject::Hosts(names) => {
                names.iter().filter(|n| directory.hosts.get(*n).is_none_or(|id| !seen.contains(id))).cloned().collect()
            }
            Subject::Cluster(name) => vec![name.clone()],
            Subject::Run => vec!["the run".to_owned()],
            subject @ Subject::Role { role, cluster } => {
                let hosts = hosts_of(directory, subject);
                if hosts.is_empty() {
                    return vec![format!("no host of {cluster} has the role {role}")];
                }
                hosts.difference(&seen).map(|id| directory.name(*id)).collect()
            }
        }
    }
}

/// Does the observation show what is waited for, and of whom?
fn hit(seen: &Seen, directory: &Directory, observation: &Observation) -> Option<Who> {
    let state = directory.counts(observation.source);
    match (seen, &observation.what) {
        (Seen::HostStatus(wanted), What::HostStatus { host, to, .. }) if state && to == wanted => Some(Some(*host)),
        (Seen::ClusterStatus(wanted), What::ClusterStatus { cluster, to, .. }) if state && to == wanted => {
            Some(Some(*cluster))
        }
        (Seen::HostTransition { from: before, to: wanted }, What::HostStatus { host, from, to, .. })
            if state && to == wanted && from.as_ref() == Some(before) =>
        {
            Some(Some(*host))
        }
        (Seen::ClusterTransition { from: before, to: wanted }, What::ClusterStatus { cluster, from, to, .. })
            if state && to == wanted && from.as_ref() == Some(before) =>
        {
            Some(Some(*cluster))
        }
        // Machines are named; who they are is known from the first lines of the history on.
        (Seen::Console(text), What::Console { machine, line, .. }) if line.contains(text.as_str()) => {
            Some(directory.hosts.get(machine).copied())
        }
        (Seen::Stage(wanted), What::HostStage { host, to: Some(to), .. }) if state && to == wanted => Some(Some(*host)),
        (Seen::FinalizingStage(wanted), What::ClusterFinalizingStage { cluster, stage })
            if state && stage == wanted =>
        {
            Some(Some(*cluster))
        }
        (Seen::Validation { id: wanted, status }, What::Validation { subject, id, to, .. })
            if state && id == wanted && to.as_ref() == Some(status) =>
        {
            Some(Some(*subject))
        }
        (
            Seen::Event { name: wanted, severity: wanted_severity },
            What::Event { name, severity, cluster, host, .. },
        ) if name == wanted && wanted_severity.is_none_or(|s| s == *severity) => Some(host.or(*cluster)),
        (Seen::Operator { name: wanted, status: wanted_status }, What::Operator { cluster, name, status, .. })
            if name == wanted && *status == Some(*wanted_status) =>
        {
            Some(Some(*cluster))
        }
        (Seen::Action(kind), What::UserAction { action, subject, .. }) if *action == UserVerb::Action(*kind) => {
            Some(*subject)
        }
        (Seen::Progress { stage, percent }, What::HostStage { host, to: Some(to), info, .. })
            if state && to == stage && percentage(info).is_some_and(|p| p >= *percent) =>
        {
            Some(Some(*host))
        }
        (Seen::Step(wanted), What::Step { host, step_type, answered: None, .. }) if step_type == wanted => {
            Some(Some(*host))
        }
        (Seen::Fault { name: wanted, phase: wanted_phase }, What::Fault { name, phase, host, cluster, .. })
            if name == wanted && phase == wanted_phase =>
        {
            Some(host.or(*cluster))
        }
        (Seen::Condition { resource, condition, status, reason }, What::Resource { kind, name, conditions, .. })
            if kind == resource.as_str() =>
        {
            let is = conditions.get(condition)?.as_ref()?;
            (is.status == *status && reason.as_ref().is_none_or(|reason| *reason == is.reason))
                .then(|| whose(directory, kind, name))
        }
        (Seen::Resource { resource, state }, What::Resource { kind, name, is, .. })
            if kind == resource.as_str() && is == state =>
        {
            Some(whose(directory, kind, name))
        }
        (Seen::Held { resource, finalizer }, What::Resource { kind, name, is, finalizers, .. })
            if kind == resource.as_str() && *is == ResourceState::Deleting && finalizers.contains(finalizer) =>
        {
            Some(whose(directory, kind, name))
        }
        (Seen::Did(wanted), What::HostDid { host, what }) if what.word() == *wanted => Some(Some(*host)),
        (Seen::Did(wanted), What::InCluster { host, cluster, what }) if what.word() == *wanted => {
            Some(host.or(Some(*cluster)))
        }
        _ => None,
    }
}

/// Whose resource it is: a BareMetalHost and its PreprovisioningImage are called as the host, another one of a host as the host's id, one
/// of a cluster as the cluster.
fn whose(directory: &Directory, kind: &str, name: &str) -> Who {
    if ResourceKind::from_word(kind).is_some_and(ResourceKind::is_called_as_its_host)
        && let Some(host) = directory.hosts.get(name)
    {
        return Some(*host);
    }
    Some(name.parse().unwrap_or_else(|_| named(name)))
}

/// Stands for the cluster of that name: its resources are there before the service has given it an id.
fn named(cluster: &str) -> Uuid {
    let bytes = cluster.bytes().map(u128::from);
    // FNV-1a: all that matters is that two names differ.
    Uuid::from_u128(bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ byte).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    }))
}

/// The number of a progress text such as `42%`.
pub fn percentage(info: &str) -> Option<u32> {
    info.strip_suffix('%')?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use vlab_api::types::HostStatus;
    use vlab_history::Recorder;
    use vlab_model::history::{HostsKind, Source};

    use super::*;

    fn at(n: i64) -> Timestamp {
        Timestamp::from_secs(n)
    }

    fn follow(moment: Moment, history: &[Observation]) -> (Directory, Tracker) {
        let mut directory = Directory::new(Source::Database);
        let mut tracker = Tracker::new(moment);
        for o in history {
            directory.observe(o);
            tracker.observe(&directory, o);
        }
        (directory, tracker)
    }

    fn two_hosts() -> (Recorder, Uuid, Uuid, Uuid) {
        let (a, b, c) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let mut r = Recorder::new(None);
        r.record(Source::Harness, None, at(0), What::ClusterNamed { cluster: c, name: "c".into(), vip_dhcp: false });
        for (host, name) in [(a, "a"), (b, "b")] {
            r.record(
                Source::Harness,
                None,
                at(0),
                What::HostNamed { host, name: name.into(), kind: HostsKind::Simulated },
            );
        }
        (r, a, b, c)
    }

    fn status(r: &mut Recorder, source: Source, when: i64, host: Uuid, cluster: Uuid, to: HostStatus) {
        let what = What::HostStatus { host, cluster: Some(cluster), from: None, to, info: String::new() };
        r.record(source, None, at(when), what);
    }

    #[test]
    fn all_hosts_means_also_those_not_seen_yet() {
        let (mut r, a, b, c) = two_hosts();
        let moment = Moment {
            subject: Subject::Hosts(vec!["a".into(), "b".into()]),
            seen: Seen::HostStatus(HostStatus::Known),
            of: Quantity::All,
        };
        status(&mut r, Source::Database, 5, a, c, HostStatus::Known);
        status(&mut r, Source::Poll, 6, b, c, HostStatus::Known);
        let (directory, tracker) = follow(moment.clone(), r.observations());
        assert_eq!(tracker.complete(&directory), None, "a poll does not count where the database is watched");
        assert_eq!(tracker.missing(&directory), ["b"]);
        assert_eq!(tracker.first(&directory).unwrap().1.time, at(5));
        status(&mut r, Source::Database, 7, b, c, HostStatus::Known);
        status(&mut r, Source::Database, 8, a, c, HostStatus::Known);
        let (directory, tracker) = follow(moment.clone(), r.observations());
        assert_eq!(tracker.complete(&directory).unwrap().time, at(7));
        let one = Moment { of: Quantity::AtLeast(1), ..moment };
        let (directory, tracker) = follow(one, r.observations());
        assert_eq!(tracker.complete(&directory).unwrap().time, at(5));
    }

    #[test]
    fn a_role_is_whoever_has_it_in_the_end() {
        let (mut r, a, b, c) = two_hosts();
        for (host, bootstrap) in [(a, true), (b, false)] {
            status(&mut r, Source::Database, 1, host, c, HostStatus::Installed);
            r.record(Source::Database, None, at(2), What::HostRole { host, role: HostRole::Master, bootstrap });
        }
        let moment = |role| Moment {
            subject: Subject::Role { role, cluster: "c".into() },
            seen: Seen::HostStatus(HostStatus::Installed),
            of: Quantity::All,
        };
        let (directory, tracker) = follow(moment(RoleName::Bootstrap), r.observations());
        assert_eq!(tracker.hits(&directory).len(), 1);
        assert_eq!(tracker.first(&directory).unwrap().0, Some(a));
        let (directory, tracker) = follow(moment(RoleName::Worker), r.observations());
        assert_eq!(tracker.complete(&directory), None);
        assert_eq!(tracker.missing(&directory), ["no host of c has the role worker"]);
    }
}
