//! What the controller of a cluster says and does: its stages in order, and of nodes and operators what is so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, FinalizingStage, HostStage, LogsState, OperatorStatus, OperatorType};
use vlab_history::{Timeline, watched_until};
use vlab_model::history::{ClusterMoment, Source, What};

use super::calm::Calm;
use super::found::Found;
use super::limits::Limits;
use super::{Invariant, InvariantResult, events};

/// The invariant.
pub(super) const CONTROLLER: Invariant = Invariant {
    id: "controller-order",
    number: "I27",
    title: "the controller finalizes in order, leaves nothing out, and says of nodes and operators what is so",
    needs: "the database's changes of a cluster of simulated hosts without a fault, and its controller's doings",
};

/// The finalizing stages in order. Those of OLM operators come in clusters that have some.
const ORDER: &[FinalizingStage] = &[
    FinalizingStage::WaitingForClusterOperators,
    FinalizingStage::AddingRouterCa,
    FinalizingStage::WaitingForOlmOperatorsCsvInitialization,
    FinalizingStage::ApplyingOlmManifests,
    FinalizingStage::WaitingForOlmOperatorsCsv,
    FinalizingStage::Done,
];

const OF_OLM: &[FinalizingStage] = &[FinalizingStage::ApplyingOlmManifests, FinalizingStage::WaitingForOlmOperatorsCsv];

/// The controller sends its logs so often.
const LOGS_EVERY: Duration = Duration::from_mins(5);

/// And has looked at the cluster's status within this, and has left it where it has ended.
const LEAVES_WITHIN: Duration = Duration::from_mins(3);

/// A cluster as far as it has been read.
#[derive(Default)]
struct Line<'h> {
    status: Option<ClusterStatus>,
    has_olm: bool,
    /// When the controller said that it was ready, in the present installation.
    ready: Option<Timestamp>,
    /// Finalizing stages of the present installation.
    stages: Vec<(FinalizingStage, Timestamp)>,
    /// When, and where that stands: the report of the last stage may still be on its way then.
    completed_at: Option<(Timestamp, u64)>,
    /// Since when it is installed.
    installed: Option<Timestamp>,
    /// Logs of the controller came while it worked.
    logs: bool,
    /// It was told that they will come.
    logs_announced: bool,
    available: BTreeSet<&'h str>,
    ready_nodes: BTreeSet<Uuid>,
    /// It failed or was cancelled while the controller ran; its logs were seen to after that.
    ended: Option<(Timestamp, u64, bool)>,
}

struct Judge<'h> {
    timeline: &'h Timeline<'h>,
    limits: Limits,
    events_until: Option<Timestamp>,
    clusters: BTreeMap<Uuid, Line<'h>>,
    /// Hosts that are done, with when.
    done: Vec<(Uuid, Timestamp, u64)>,
    /// Hosts of whose reboots was told.
    reboots: BTreeSet<Uuid>,
    found: Found,
}

/// Judges it.
pub(super) fn controller_order(timeline: &Timeline<'_>) -> InvariantResult {
    let calm = Calm::new(timeline);
    let mut judge = Judge {
        timeline,
        limits: Limits::new(timeline.run),
        events_until: events::known_until(timeline.observations),
        clusters: BTreeMap::new(),
        done: Vec::new(),
        reboots: BTreeSet::new(),
        found: Found::default(),
    };
    if timeline.truth != Source::Database {
        return judge.found.result((&CONTROLLER).into(), || "not checked: states were polled".to_owned());
    }
    judge.read(&calm);
    judge.ends();
    judge.found.result((&CONTROLLER).into(), || calm.reason(CONTROLLER.needs))
}

impl<'h> Judge<'h> {
    fn read(&mut self, calm: &Calm) {
        for o in self.timeline.observations {
            let (at, seq) = (o.at(), o.seq);
            match &o.what {
                What::InCluster { cluster, host, what } if calm.cluster(*cluster) => {
                    let line = self.clusters.entry(*cluster).or_default();
                    match what {
                        ClusterMoment::ControllerReady => line.ready = Some(at),
                        ClusterMoment::InstallationCompleted => {
                            line.completed_at = Some((at, seq));
                            self.logs_came(*cluster, (at, seq));
                        }
                        ClusterMoment::OperatorAvailable(name) => _ = line.available.insert(name),
                        ClusterMoment::NodeReady => line.ready_nodes.extend(*host),
                        _ => {}
                    }
                }
                What::Event { name, host: Some(host), .. } if name == "reboots_for_node" => {
                    self.reboots.insert(*host);
                }
                _ if o.source != Source::Database => {}
                What::ClusterStatus { cluster, to, .. } if calm.cluster(*cluster) => {
                    self.cluster_status(*cluster, *to, calm.is_late(*cluster), (at, seq));
                }
                What::ClusterFinalizingStage { cluster, stage } if calm.cluster(*cluster) => {
                    self.finalizes(*cluster, *stage, (at, seq));
                }
                What::ClusterLogs { cluster, state } if calm.cluster(*cluster) => {
                    let line = self.clusters.entry(*cluster).or_default();
                    line.logs |= *state == LogsState::Collecting;
                    line.logs_announced = *state == LogsState::Requested;
                    if matches!(state, LogsState::Requested | LogsState::Completed) {
                        line.ended = line.ended.map(|(then, seq, _)| (then, seq, true));
                    }
                }
                What::Operator { cluster, name, status, kind } if calm.cluster(*cluster) => {
                    self.operator(*cluster, name, (*kind, *status), seq);
                }
                What::HostStage { host, from, to: Some(HostStage::Done), .. } if *from != Some(HostStage::Done) => {
                    self.host_done(calm, *host, (at, seq));
                }
                _ => {}
            }
        }
    }

    fn cluster_status(&mut self, cluster: Uuid, to: ClusterStatus, is_late: bool, (at, seq): (Timestamp, u64)) {
        // It does both at once, and waits for the answer.
        let limit = self.limits.settles() + self.limits.settings.cluster_monitor_interval / 4;
        let leaves_within = self.limits.of_hosts(LEAVES_WITHIN);
        let line = self.clusters.entry(cluster).or_default();
        line.status = Some(to);
        match to {
            // A cluster that is reset before the controller has looked has not ended for it.
            ClusterStatus::Insufficient
                if line.ended.is_some_and(|(then, _, seen_to)| !seen_to && at.since(then) <= leaves_within) =>
            {
                line.ended = None;
            }
            ClusterStatus::PreparingForInstallation => {
                *line = Line { status: line.status, has_olm: line.has_olm, ..Line::default() };
            }
            // One that failed and is cancelled then has been left already.
            ClusterStatus::Error | ClusterStatus::Cancelled if line.ready.is_some() && line.ended.is_none() => {
                // Where its logs were announced before, nothing new is told when it leaves.
                line.ended = (!line.logs_announced).then_some((at, seq, false));
                self.logs_came(cluster, (at, seq));
            }
            ClusterStatus::Installed => {
                line.installed = Some(at);
                let last = line.stages.last().copied();
                let idle = last.is_some_and(|(stage, since)| {
                    stage == FinalizingStage::Done && since + limit < at && line.completed_at.is_none()
                });
                self.found.check(seq, is_late || !idle, || {
                    let name = self.timeline.cluster_name(cluster);
                    format!("cluster {name} is installed, and its controller did not complete the installation")
                });
            }
            _ => {}
        }
    }

    /// A controller that has worked for so long has sent its logs.
    fn logs_came(&mut self, cluster: Uuid, (at, seq): (Timestamp, u64)) {
        let line = self.clusters.entry(cluster).or_default();
        let due = line.ready.is_some_and(|ready| at.since(ready) > self.limits.of_hosts(LOGS_EVERY));
        let holds = line.logs || !due;
        self.found.check(seq, holds, || {
            let name = self.timeline.cluster_name(cluster);
            format!("the controller of {name} sent no logs while it worked")
        });
    }

    /// The controller told a finalizing stage: the one before it must have been told.
    fn finalizes(&mut self, cluster: Uuid, stage: FinalizingStage, (at, seq): (Timestamp, u64)) {
        let line = self.clusters.entry(cluster).or_default();
        let last = line.stages.last().map(|(stage, _)| *stage);
        let has_olm = line.has_olm;
        let mut order = ORDER.iter().filter(|stage| has_olm || !OF_OLM.contains(stage));
        let place = order.clone().position(|s| *s == stage);
        let expected = place.and_then(|place| place.checked_sub(1)).and_then(|before| order.nth(before)).copied();
        // The service takes the same stage again, from a controller that has begun anew.
        let begins_anew = place == Some(0);
        line.stages.push((stage, at));
        self.found.check(seq, place.is_some() && (begins_anew || last == expected || last == Some(stage)), || {
            let name = self.timeline.cluster_name(cluster);
            let last = last.map_or("nothing", FinalizingStage::as_str);
            format!("the controller of {name} went from {last} to {stage}")
        });
    }

    fn operator(
        &mut self,
        cluster: Uuid,
        name: &str,
        (kind, status): (Option<OperatorType>, Option<OperatorStatus>),
        seq: u64,
    ) {
        let line = self.clusters.entry(cluster).or_default();
        line.has_olm |= kind == Some(OperatorType::Olm);
        let told = line.ready.is_some() && status == Some(OperatorStatus::Available);
        if told && self.limits.built_in {
            // Whatever else every cluster has is there with its console.
            let is_up = line.available.contains(name)
                || (kind == Some(OperatorType::Builtin) && line.available.contains("console"));
            self.found.check(seq, is_up, || {
                let cluster = self.timeline.cluster_name(cluster);
                format!("the controller of {cluster} told that {name} is available, which it is not")
            });
        }
    }

    /// A host is done, as the controller says.
    fn host_done(&mut self, calm: &Calm, host: Uuid, (at, seq): (Timestamp, u64)) {
        let Some(cluster) = self.timeline.directory.cluster_of.get(&host).copied().filter(|c| calm.cluster(*c)) else {
            return;
        };
        let line = self.clusters.entry(cluster).or_default();
        // A host of day 2 is done when it reboots.
        if line.status == Some(ClusterStatus::AddingHosts) || line.ready.is_none() {
            return;
        }
        let is_ready = line.ready_nodes.contains(&host);
        let name = self.timeline.host_name(host);
        self.found
            .check(seq, is_ready, || format!("the controller says that {name} is done, and its node is not ready"));
        self.done.push((host, at, seq));
    }

    /// Judges what only the end shows.
    fn ends(&mut self) {
        let end = watched_until(self.timeline.observations);
        let told_after = self.limits.event_follows() + self.limits.of_hosts(LEAVES_WITHIN);
        for (host, at, seq) in std::mem::take(&mut self.done) {
            if self.events_until.is_some_and(|until| at + told_after < until) {
                let told = self.reboots.contains(&host);
                let name = self.timeline.host_name(host);
                self.found.check(seq, told, || format!("{name} is done, and nobody told how often it rebooted"));
            }
        }
        let limit = self.limits.of_hosts(LEAVES_WITHIN);
        for (cluster, line) in &self.clusters {
            if let Some((at, seq)) = line.completed_at {
                let told = |(stage, told): &(FinalizingStage, Timestamp)| {
                    *stage == FinalizingStage::Done && *told <= at + limit
                };
                // The service takes no stage of a cluster that it has installed by itself meanwhile.
                let was_late = line.installed.is_some_and(|installed| installed < at);
                let name = self.timeline.cluster_name(*cluster);
                self.found.check(seq, was_late || line.stages.iter().any(told), || {
                    format!("the controller of {name} completed before its last stage")
                });
            }
            if let Some((at, seq, seen_to)) = line.ended
                && (seen_to || end.since(at) > limit)
            {
                let name = self.timeline.cluster_name(*cluster);
                self.found
                    .check(seq, seen_to, || format!("the controller of {name} did not leave a cluster that has ended"));
            }
        }
    }
}
