//! Where something never came: what a host or a cluster waits for at the end of the history, and since when.

use std::collections::BTreeMap;

use uuid::Uuid;
use vlab_api::types::{ClusterStatus, ClusterValidationId, HostStatus};
use vlab_history::timeline::StateChange;
use vlab_model::history::{Observation, What};
use vlab_model::validation::ValidationStatus;

use super::failed::observation;
use super::{Candidate, Case, CauseKind, Rank, Whom};

/// So often a host is asked before it is remarkable that it never answers.
const ASKED: usize = 3;

/// Nothing goes on, because something is not as it should be.
fn is_held(status: HostStatus) -> bool {
    use HostStatus::*;
    matches!(status, Discovering | Insufficient | PendingForInput | DiscoveringUnbound | InsufficientUnbound)
}

/// Where nothing more is to come.
fn is_final(status: HostStatus) -> bool {
    use HostStatus::*;
    matches!(status, Installed | Error | Cancelled | AddedToExistingCluster | Disabled | DisabledUnbound)
}

/// How far a host has come.
fn progress(status: HostStatus) -> u8 {
    use HostStatus::*;
    match status {
        DiscoveringUnbound | Discovering => 0,
        InsufficientUnbound | Insufficient | PendingForInput | DisconnectedUnbound | Disconnected => 1,
        KnownUnbound | Binding | Known => 2,
        PreparingForInstallation | PreparingFailed => 3,
        PreparingSuccessful => 4,
        Installing => 5,
        InstallingInProgress | InstallingPendingUserAction => 6,
        _ => 7,
    }
}

impl Case<'_> {
    /// Who waits, for what.
    pub(super) fn waiting(&self) -> Vec<Candidate> {
        if !self.failed.iter().any(|failed| failed.candidate.rank == Rank::Missing) {
            return Vec::new();
        }
        let mut found = self.unregistered();
        found.extend(self.validations());
        found.extend(self.unanswered());
        found.extend(self.stuck());
        found
    }

    /// Hosts that were never there, though the scenario has nothing that keeps them away.
    fn unregistered(&self) -> Vec<Candidate> {
        let told = |o: &Observation| {
            let What::HostNamed { host, name, .. } = &o.what else { return None };
            let away = !self.timeline.hosts.contains_key(host) && !self.is_hit(*host);
            let title = format!("{name} never registered");
            let (rank, kind, whom) = (Rank::Validation, CauseKind::Stuck, Whom::Host(*host));
            let (seq, at) = (o.seq, Some(o.at()));
            away.then(|| Candidate { rank, kind, whom, seq, at, title, words: String::new(), check: None })
        };
        self.timeline.observations.iter().filter_map(told).collect()
    }

    fn last_status(&self, host: Uuid) -> Option<StateChange<HostStatus>> {
        self.timeline.hosts.get(&host)?.statuses.last().cloned()
    }

    /// The words with which that state was entered.
    fn words_at(&self, seq: u64) -> String {
        match observation(self.timeline, seq).map(|o| &o.what) {
            Some(What::Validation { message: words, .. })
            | Some(What::HostStatus { info: words, .. } | What::ClusterStatus { info: words, .. }) => words.clone(),
            _ => String::new(),
        }
    }

    /// Validations that fail at the end, of hosts and clusters that do not go on. A cluster that waits for its hosts is told as these.
    fn validations(&self) -> Vec<Candidate> {
        let mut found = Vec::new();
        let mut add = |whom, title: String, last: &StateChange<Option<ValidationStatus>>| {
            let words = self.words_at(last.seq);
            let (kind, rank) = (CauseKind::ValidationFails, Rank::Validation);
            found.push(Candidate { rank, kind, whom, seq: last.seq, at: Some(last.at), title, words, check: None });
        };
        let failing = |values: &Vec<StateChange<Option<ValidationStatus>>>| {
            values.last().filter(|last| last.to == Some(ValidationStatus::Failure)).cloned()
        };
        for (host, line) in &self.timeline.hosts {
            let Some(status) = line.statuses.last().filter(|s| is_held(s.to)).map(|s| s.to) else { continue };
            if self.is_hit(*host) {
                continue;
            }
            for (id, last) in line.validations.iter().filter_map(|(id, values)| Some((id, failing(values)?))) {
                let name = self.timeline.host_name(*host);
                add(Whom::Host(*host), format!("{name} stays {status}: its validation {id} fails"), &last);
            }
        }
        for (cluster, line) in &self.timeline.clusters {
            let held = |s: &&StateChange<ClusterStatus>| {
                matches!(s.to, ClusterStatus::Insufficient | ClusterStatus::PendingForInput)
            };
            let Some(status) = line.statuses.last().filter(held).map(|s| s.to) else { continue };
            let of_hosts = ClusterValidationId::AllHostsAreReadyToInstall.as_str();
            for (id, last) in line.validations.iter().filter_map(|(id, values)| Some((id, failing(values)?))) {
                if id != of_hosts {
                    let name = self.timeline.cluster_name(*cluster);
                    let title = format!("cluster {name} stays {status}: its validation {id} fails");
                    add(Whom::Cluster(*cluster), title, &last);
                }
            }
        }
        found
    }

    /// Steps that a host was asked for again and again and never answered, where it does not go on.
    fn unanswered(&self) -> Vec<Candidate> {
        let mut asked: BTreeMap<(Uuid, &str), (usize, u64, bool)> = BTreeMap::new();
        for o in self.timeline.observations {
            let What::Step { host, step_type, answered, .. } = &o.what else { continue };
            let entry = asked.entry((*host, step_type)).or_insert((0, o.seq, false));
            entry.0 += usize::from(answered.is_none());
            entry.2 |= answered.is_some();
        }
        let never = asked.into_iter().filter(|(_, (times, _, answered))| *times >= ASKED && !answered);
        let told = |((host, step), (times, seq, _)): ((Uuid, &str), (usize, u64, bool))| {
            let waits = self.last_status(host).is_some_and(|s| !is_final(s.to)) && !self.is_hit(host);
            let at = observation(self.timeline, seq).map(|o| o.at());
            let name = self.timeline.host_name(host);
            let title = format!("{name} never answered the step {step}, for which it was asked {times} times");
            let (kind, rank) = (CauseKind::NeverAnswered, Rank::Step);
            waits.then(|| Candidate {
                rank,
                kind,
                whom: Whom::Host(host),
                seq,
                at,
                title,
                words: String::new(),
                check: None,
            })
        };
        never.filter_map(told).collect()
    }

    /// The hosts that have come least far, where others, or their cluster, have come further; else the cluster.
    fn stuck(&self) -> Vec<Candidate> {
        let mut found = Vec::new();
        // Where the cluster has ended, nobody is stuck: its hosts are left where they were.
        let ended = |cluster: &Uuid| {
            let last = self.timeline.clusters.get(cluster).and_then(|line| line.statuses.last());
            last.is_some_and(|s| matches!(s.to, ClusterStatus::Error | ClusterStatus::Cancelled))
        };
        let clusters: Vec<Uuid> = self.timeline.clusters.keys().copied().filter(|cluster| !ended(cluster)).collect();
        for cluster in clusters {
            let hosts =
                self.timeline.directory.cluster_of.iter().filter(|(_, c)| **c == cluster).map(|(host, _)| *host);
            let mut last: Vec<(Uuid, StateChange<HostStatus>)> =
                hosts.filter_map(|host| Some((host, self.last_status(host)?))).collect();
            last.sort_by_key(|(_, s)| (progress(s.to), s.seq));
            let (least, most) = (last.first().map(|(_, s)| progress(s.to)), last.last().map(|(_, s)| progress(s.to)));
            let alone = last.len() == 1;
            match last.first() {
                Some((host, s)) if (least != most || alone) && !is_final(s.to) && !self.is_hit(*host) => {
                    found.push(self.stays(Whom::Host(*host), &s.to.to_string(), (s.seq, s.at)));
                }
                _ => {
                    let line = self.timeline.clusters.get(&cluster).and_then(|line| line.statuses.last());
                    let open = |s: &&StateChange<ClusterStatus>| {
                        use ClusterStatus::{AddingHosts, Cancelled, Error, Installed};
                        !matches!(s.to, Installed | AddingHosts | Error | Cancelled)
                    };
                    if let Some(s) = line.filter(open) {
                        found.push(self.stays(Whom::Cluster(cluster), &s.to.to_string(), (s.seq, s.at)));
                    }
                }
            }
        }
        found
    }

    fn stays(&self, whom: Whom, status: &str, (seq, at): (u64, vlab_api::Timestamp)) -> Candidate {
        let name = self.name(whom).unwrap_or_default();
        let what = if matches!(whom, Whom::Cluster(_)) { "cluster " } else { "" };
        let stage = match whom {
            Whom::Host(host) => {
                let line = self.timeline.hosts.get(&host).and_then(|line| line.stages.last());
                line.filter(|s| s.seq > seq).map(|s| format!(", stage {}", s.to)).unwrap_or_default()
            }
            _ => String::new(),
        };
        let words = self.words_at(seq);
        let title = format!("{what}{name} stayed {status}{stage} to the end of the run");
        let (kind, rank) = (CauseKind::Stuck, Rank::Stuck);
        Candidate { rank, kind, whom, seq, at: Some(at), title, words, check: None }
    }
}
