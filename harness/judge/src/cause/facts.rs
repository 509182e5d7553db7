//! What a history shows of things that go wrong, whoever asks for them: a table of observations.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vlab_api::types::{ClusterStatus, HostStage, HostStatus, OperatorStatus, Severity};
use vlab_history::Timeline;
use vlab_model::console::{self, Blame};
use vlab_model::history::{ActionKind, ClusterMoment, HostMoment, MachineMoment, Observation, UserVerb, What};

use super::{Candidate, CauseKind, Rank, Whom};

/// What is told of an observation that shows something wrong.
struct Fact {
    kind: CauseKind,
    whom: Whom,
    title: String,
    words: String,
}

/// Everything that went wrong in a history, in its order.
pub(super) fn facts(timeline: &Timeline<'_>) -> Vec<Candidate> {
    let mut reader = Reader { timeline, stages: BTreeMap::new(), taken_out: BTreeSet::new() };
    let mut found = Vec::new();
    for (o, change) in timeline.walk() {
        if let Some(fact) = reader.state(o, change.is_some()).or_else(|| reader.other(o)) {
            let Fact { kind, whom, title, words } = fact;
            let (seq, at) = (o.seq, Some(o.at()));
            found.push(Candidate { rank: Rank::Event, kind, whom, seq, at, title, words, check: None });
        }
        if let What::HostStage { host, to: Some(stage), .. } = &o.what
            && *stage != HostStage::Failed
        {
            reader.stages.insert(*host, *stage);
        }
        reader.taken_out.extend(taken_out(&o.what));
    }
    found
}

struct Reader<'a> {
    timeline: &'a Timeline<'a>,
    /// The stage in which each host is.
    stages: BTreeMap<Uuid, HostStage>,
    /// Hosts that the user took out of their clusters: what these then lack is what was asked for.
    taken_out: BTreeSet<Uuid>,
}

/// The host that the user takes out of its cluster by that: it is unbound, or booted from the discovery image again.
fn taken_out(what: &What) -> Option<Uuid> {
    match what {
        What::UserAction {
            action: UserVerb::Action(ActionKind::Unbind | ActionKind::BootDiscovery),
            subject,
            status: 200..300,
            ..
        } => *subject,
        _ => None,
    }
}

impl Reader<'_> {
    fn host(&self, kind: CauseKind, host: Uuid, what: &str, words: &str) -> Fact {
        let title = format!("{} {what}", self.timeline.host_name(host));
        Fact { kind, whom: Whom::Host(host), title, words: words.to_owned() }
    }

    fn cluster(&self, kind: CauseKind, cluster: Uuid, what: &str, words: &str) -> Fact {
        let title = format!("cluster {} {what}", self.timeline.cluster_name(cluster));
        Fact { kind, whom: Whom::Cluster(cluster), title, words: words.to_owned() }
    }

    /// The installer gave up: where it was is half of why.
    fn installer(&self, host: Uuid, words: &str) -> Fact {
        let stage = self.stages.get(&host).map(|stage| format!(" in the stage {stage}")).unwrap_or_default();
        let name = self.timeline.host_name(host);
        let title = format!("the installer on {name} gave up{stage}");
        Fact { kind: CauseKind::InstallerFailed, whom: Whom::Host(host), title, words: words.to_owned() }
    }

    /// A change of a state.
    fn state(&self, o: &Observation, is_change: bool) -> Option<Fact> {
        if !is_change {
            return None;
        }
        match &o.what {
            What::HostStage { host, to: Some(HostStage::Failed), info, .. } => Some(self.installer(*host, info)),
            What::HostStatus { host, from, to, info, .. } => {
                let from = from.map(|from| format!(" from {from}")).unwrap_or_default();
                let (kind, text) = match to {
                    HostStatus::Error => (CauseKind::HostError, format!("went{from} to error")),
                    HostStatus::PreparingFailed => (CauseKind::HostError, "could not be prepared".to_owned()),
                    HostStatus::Disconnected | HostStatus::DisconnectedUnbound => {
                        (CauseKind::HostSilent, format!("fell silent and went{from} to {to}"))
                    }
                    HostStatus::InstallingPendingUserAction => {
                        (CauseKind::HostNeedsUser, format!("went{from} to {to}"))
                    }
                    _ => return None,
                };
                Some(self.host(kind, *host, &text, info))
            }
            What::ClusterStatus { cluster, from, to: ClusterStatus::Error, info } => {
                let from = from.map(|from| format!(" from {from}")).unwrap_or_default();
                Some(self.cluster(CauseKind::ClusterError, *cluster, &format!("went{from} to error"), info))
            }
            What::Operator { cluster, name, status: Some(OperatorStatus::Failed), .. } => Some(self.cluster(
                CauseKind::ControlPlane,
                *cluster,
                &format!("reports that its operator {name} failed"),
                "",
            )),
            _ => None,
        }
    }

    /// Anything else.
    fn other(&self, o: &Observation) -> Option<Fact> {
        match &o.what {
            What::HostDid { host, what } => self.did(*host, what),
            What::InCluster { cluster, host, what } => {
                let on = host.map(|host| format!(" on {}", self.timeline.host_name(host))).unwrap_or_default();
                let name = self.timeline.cluster_name(*cluster);
                let title = match what {
                    ClusterMoment::BootkubeFailed => format!("bootkube of cluster {name} failed{on}"),
                    ClusterMoment::EtcdQuorumLost if host.is_some_and(|host| self.taken_out.contains(&host)) => return None,
                    ClusterMoment::EtcdQuorumLost => format!("etcd of cluster {name} lost its quorum{on}"),
                    _ => return None,
                };
                let (kind, whom) = (CauseKind::ControlPlane, Whom::Cluster(*cluster));
                Some(Fact { kind, whom, title, words: String::new() })
            }
            What::Step { host, step_type, answered: Some(code), .. } if *code != 0 => {
                let text = format!("answered the step {step_type} with exit code {code}");
                Some(self.host(CauseKind::StepFailed, *host, &text, ""))
            }
            What::Event { name, severity, message, cluster, host }
                // A validation that fails for a while is no news: one that holds everything up at the end is told by itself.
                if !name.contains("validation")
                    && (matches!(severity, Severity::Error | Severity::Critical) || name.ends_with("_failed")) =>
            {
                match (host, cluster) {
                    (Some(host), _) => {
                        Some(self.host(CauseKind::HostError, *host, &format!("has the event {name}"), message))
                    }
                    (None, Some(cluster)) => {
                        Some(self.cluster(CauseKind::ClusterError, *cluster, &format!("has the event {name}"), message))
                    }
                    (None, None) => None,
                }
            }
            What::Unreadable { subject, of, error } => {
                let (whom, name) = match subject {
                    Some(id) if self.timeline.clusters.contains_key(id) => {
                        (Whom::Cluster(*id), format!(" of cluster {}", self.timeline.cluster_name(*id)))
                    }
                    Some(id) => (Whom::Host(*id), format!(" of {}", self.timeline.host_name(*id))),
                    None => (Whom::Service, String::new()),
                };
                let title = format!("what the service says{name} cannot be understood ({of})");
                Some(Fact { kind: CauseKind::Unreadable, whom, title, words: error.clone() })
            }
            What::Machine { machine, did, detail } => self.machine(machine, did, detail),
            What::Console { machine, line, finding: Some(id) } => {
                let check = console::CHECKS.iter().find(|check| check.id == id)?;
                let title = format!("the console of {machine} says {id}: {}", check.description);
                let whom = self.machine_host(machine);
                (check.blames == Blame::Product).then(|| Fact {
                    kind: CauseKind::ConsoleFinding,
                    whom,
                    title,
                    words: line.clone(),
                })
            }
            _ => None,
        }
    }

    fn did(&self, host: Uuid, what: &HostMoment) -> Option<Fact> {
        let text = match what {
            HostMoment::InstallerFailed => return Some(self.installer(host, "")),
            HostMoment::Frozen => "is no longer known to the service, and its agent stopped for good".to_owned(),
            HostMoment::GaveUpPolling => "got no answer from the service for too long".to_owned(),
            HostMoment::StaticNetworkFailed => "could not read its static network".to_owned(),
            HostMoment::CutOff => "has no address from which it reaches the service".to_owned(),
            HostMoment::RegistrationRefused(status) => format!("was refused its registration with {status}"),
            HostMoment::ReportRefused(status) => format!("was refused the report of its installer with {status}"),
            HostMoment::Other(word) if word == "failed" => "has a program that failed".to_owned(),
            _ => return None,
        };
        Some(self.host(CauseKind::HostTrouble, host, &text, ""))
    }

    fn machine_host(&self, machine: &str) -> Whom {
        self.timeline.directory.hosts.get(machine).map_or(Whom::Run, |host| Whom::Host(*host))
    }

    fn machine(&self, machine: &str, did: &MachineMoment, detail: &str) -> Option<Fact> {
        let text = match did {
            MachineMoment::Crashed => "crashed",
            MachineMoment::IoError => "had an error of a disk",
            MachineMoment::Stopped if detail == "failed" => "was lost: its virtual machine ended with an error",
            _ => return None,
        };
        let title = format!("the machine {machine} {text}");
        Some(Fact { kind: CauseKind::MachineFailed, whom: self.machine_host(machine), title, words: detail.to_owned() })
    }
}
