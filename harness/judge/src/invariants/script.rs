//! What an installer does before its host reboots: all that its role has to do, in order.

use std::collections::BTreeMap;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStage, LogsState};
use vlab_history::Timeline;
use vlab_model::history::{ClusterMoment, HostMoment, Source, What};
use vlab_model::stages::{self, StageRole, stages_of};

use super::calm::Calm;
use super::found::Found;
use super::limits::Limits;
use super::steps::ends_installer;
use super::{Invariant, InvariantResult};

/// The invariant.
pub(super) const SCRIPT: Invariant = Invariant {
    id: "installer-script",
    number: "I26",
    title: "an installer does all that its role has to do, in order, before its host reboots",
    needs: "the database's changes, and a simulated host without a fault that was installed and rebooted",
};

/// An installer's life.
struct Run {
    host: Uuid,
    began: Timestamp,
    /// When its host rebooted, and where that stands.
    rebooted: Option<(Timestamp, u64)>,
    fetched: Vec<HostMoment>,
}

/// What the database says of one host or cluster, in order.
#[derive(Default)]
struct Told<'h> {
    /// Stages with their texts.
    stages: Vec<(Timestamp, HostStage, &'h str)>,
    logs: Vec<(Timestamp, LogsState)>,
    /// What happened inside the cluster.
    inside: Vec<(Timestamp, &'h ClusterMoment)>,
}

/// Stages in which something is written, and percentages are told.
const WRITES: &[HostStage] = &[HostStage::WritingImageToDisk, HostStage::CopyingRegistryDataToDisk];

struct Judge<'h> {
    timeline: &'h Timeline<'h>,
    limits: Limits,
    told: BTreeMap<Uuid, Told<'h>>,
    /// The history says what installers fetch: those of before that do not.
    has_fetched: bool,
    found: Found,
}

/// Judges it.
pub(super) fn installer_script(timeline: &Timeline<'_>) -> InvariantResult {
    let calm = Calm::new(timeline);
    let mut judge = Judge {
        timeline,
        limits: Limits::new(timeline.run),
        told: BTreeMap::new(),
        has_fetched: false,
        found: Found::default(),
    };
    if timeline.truth != Source::Database {
        return judge.found.result((&SCRIPT).into(), || "not checked: states were polled".to_owned());
    }
    let runs = judge.read(&calm);
    for run in &runs {
        judge.run(run);
    }
    judge.found.result((&SCRIPT).into(), || calm.reason(SCRIPT.needs))
}

impl<'h> Judge<'h> {
    /// Reads what matters, and gives the installers of hosts that are left alone.
    fn read(&mut self, calm: &Calm) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut open: BTreeMap<Uuid, Run> = BTreeMap::new();
        for o in self.timeline.observations {
            let at = o.at();
            match &o.what {
                What::HostDid { host, what } if calm.host(*host) => match what {
                    HostMoment::InstallerStarted => {
                        open.insert(*host, Run { host: *host, began: at, rebooted: None, fetched: Vec::new() });
                    }
                    HostMoment::BootstrapIgnitionFetched | HostMoment::IgnitionFetched => {
                        self.has_fetched = true;
                        open.entry(*host).and_modify(|run| run.fetched.push(what.clone()));
                    }
                    HostMoment::Rebooting => {
                        let run = open.remove(host);
                        runs.extend(run.map(|run| Run { rebooted: Some((at, o.seq)), ..run }));
                    }
                    HostMoment::InstallerFailed => _ = open.remove(host),
                    what if ends_installer(what) => _ = open.remove(host),
                    _ => {}
                },
                What::InCluster { cluster, what, .. } => {
                    self.told.entry(*cluster).or_default().inside.push((at, what));
                }
                _ if o.source != Source::Database => {}
                What::HostStage { host, to: Some(stage), info, .. } => {
                    self.told.entry(*host).or_default().stages.push((at, *stage, info));
                }
                What::HostLogs { host, state } => self.told.entry(*host).or_default().logs.push((at, *state)),
                What::ClusterLogs { cluster, state } => {
                    self.told.entry(*cluster).or_default().logs.push((at, *state));
                }
                _ => {}
            }
        }
        runs
    }

    /// Which list of stages that host has, at that time.
    fn role(&self, host: Uuid, cluster: Uuid, at: Timestamp) -> Option<StageRole> {
        let statuses = &self.timeline.clusters.get(&cluster)?.statuses;
        let role_of = |host: &Uuid| Some(self.timeline.hosts.get(host)?.roles.iter().rfind(|r| r.at <= at)?.to);
        let (role, bootstrap) = role_of(&host)?;
        if statuses.iter().rfind(|s| s.at <= at).is_some_and(|s| s.to == ClusterStatus::AddingHosts) {
            // Only a worker waits for a control plane, of which a master becomes a part.
            return Some(if role == HostRole::Master { StageRole::Master } else { StageRole::Worker });
        }
        let controls = |host: &&Uuid| {
            let role = role_of(host).map(|(role, _)| role);
            matches!(role, Some(HostRole::Master | HostRole::Bootstrap | HostRole::Arbiter))
        };
        let members = self.timeline.directory.cluster_of.iter().filter(|(_, of)| **of == cluster);
        match members.map(|(host, _)| host).filter(controls).count() {
            1 if bootstrap => Some(StageRole::SingleNode),
            _ => Some(stages::role_of_kind(role, bootstrap)),
        }
    }

    fn run(&mut self, run: &Run) {
        let (Some((rebooted, seq)), Some(cluster)) =
            (run.rebooted, self.timeline.directory.cluster_of.get(&run.host).copied())
        else {
            return;
        };
        let Some(role) = self.role(run.host, cluster, rebooted) else { return };
        let apart = self.limits.apart();
        let is_of_it = |at: Timestamp| at + apart >= run.began && at <= rebooted + apart;
        let mut missing = Vec::new();
        let none = Told::default();
        let told = self.told.get(&run.host).unwrap_or(&none);
        let stages: Vec<_> = told.stages.iter().filter(|(at, ..)| is_of_it(*at)).collect();
        // Somebody else may have restarted the machine. A host of day 2 is done with this report.
        if !stages.iter().any(|(_, stage, _)| matches!(stage, HostStage::Rebooting | HostStage::Done)) {
            return;
        }
        self.stages(role, &stages, &mut missing);
        if self.has_fetched {
            let own = [(HostMoment::IgnitionFetched, "its ignition was not fetched")];
            let with_bootkube = matches!(role, StageRole::Bootstrap | StageRole::SingleNode);
            let first = with_bootkube
                .then_some((HostMoment::BootstrapIgnitionFetched, "the bootstrap's ignition was not fetched"));
            let lacks = own.into_iter().chain(first).filter(|(what, _)| !run.fetched.contains(what));
            missing.extend(lacks.map(|(_, text)| text.to_owned()));
        }
        let of_host = |state| told.logs.iter().find(|(at, s)| is_of_it(*at) && *s == state);
        if of_host(LogsState::Completed).is_none() {
            missing.push("its logs were not sent".to_owned());
        }
        if role == StageRole::Bootstrap {
            let first = of_host(LogsState::Requested).map(|(at, _)| *at);
            self.pivot(cluster, &is_of_it, &stages, first, &mut missing);
        }
        let name = self.timeline.host_name(run.host);
        self.found.check(seq, missing.is_empty(), || format!("{name} reboots, and {}", missing.join(" and ")));
    }

    /// Each stage of the role was told, and what was written in it.
    fn stages(&self, role: StageRole, stages: &[&(Timestamp, HostStage, &str)], missing: &mut Vec<String>) {
        let before = stages_of(role).iter().take_while(|stage| **stage != HostStage::Rebooting);
        for stage in before {
            let texts: Vec<&str> = stages.iter().filter(|(_, s, _)| s == stage).map(|(.., text)| *text).collect();
            match texts.first() {
                // Only where the medium carries one.
                None if *stage == HostStage::CopyingRegistryDataToDisk => {}
                None => missing.push(format!("stage {stage} was not told")),
                Some(first) if WRITES.contains(stage) => {
                    if !first.is_empty() {
                        missing.push(format!("the beginning of stage {stage} was not told"));
                    }
                    if texts.last() != Some(&"100%") {
                        missing.push(format!("stage {stage} was not brought to its end"));
                    }
                    if texts.len() < 3 {
                        missing.push(format!("no percentages were told in stage {stage}"));
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// What the bootstrap waits for, and says while it does.
    fn pivot(
        &self,
        cluster: Uuid,
        is_of_it: &dyn Fn(Timestamp) -> bool,
        stages: &[&(Timestamp, HostStage, &str)],
        own_logs: Option<Timestamp>,
        missing: &mut Vec<String>,
    ) {
        let apart = self.limits.apart();
        let none = Told::default();
        let told = self.told.get(&cluster).unwrap_or(&none);
        let happened = |what: &ClusterMoment, by: Timestamp| {
            told.inside.iter().any(|(at, w)| *w == what && is_of_it(*at) && *at <= by + apart)
        };
        let leaves = stages.iter().find(|(_, s, text)| *s == HostStage::WaitingForBootkube && !text.is_empty());
        match leaves {
            None => missing.push("it did not tell that etcd leaves it".to_owned()),
            Some((at, ..)) if !happened(&ClusterMoment::BootkubeDone, *at) => {
                missing.push("etcd was to leave it before bootkube was done".to_owned());
            }
            Some(_) => {}
        }
        if own_logs.is_some_and(|at| !happened(&ClusterMoment::ControllerReady, at)) {
            missing.push("it gathered its logs before the controller was ready".to_owned());
        }
        let asked = |(at, state): &(Timestamp, LogsState)| is_of_it(*at) && *state == LogsState::Requested;
        if !told.logs.iter().any(asked) {
            missing.push("the cluster's logs were not asked for".to_owned());
        }
    }
}
