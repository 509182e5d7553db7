//! What the scenario brings about or asks for itself: that is no cause, unless a check failed at that very observation.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vlab_history::Timeline;
use vlab_model::history::{FaultPhase, What};
use vlab_scenario::{ActionTime, Criterion, Moment, Steps};

use super::{Candidate, Case, END, Whom};
use crate::moment::Tracker;

/// When the scenario's faults began: of each that was hit, and of what all depend on.
pub(super) struct Hit {
    of: BTreeMap<Uuid, u64>,
    all: u64,
}

fn began_of(hit: &Hit, id: Uuid) -> u64 {
    hit.of.get(&id).copied().unwrap_or(END)
}

/// What the faults of a history hit.
pub(super) fn hit(timeline: &Timeline<'_>) -> Hit {
    let mut hit = Hit { of: BTreeMap::new(), all: END };
    for o in timeline.observations {
        let What::Fault { phase: FaultPhase::Begin, host, cluster, .. } = &o.what else { continue };
        match host.or(*cluster) {
            Some(id) => _ = hit.of.entry(id).or_insert(o.seq),
            None => hit.all = hit.all.min(o.seq),
        }
    }
    hit
}

impl Case<'_> {
    /// Of these the ones that the scenario does not explain.
    pub(super) fn undeclared(&self, facts: Vec<Candidate>) -> Vec<Candidate> {
        let (hit, asked_for) = (&self.hit, self.asked_for());
        let failed: BTreeSet<u64> = self.failed.iter().map(|failed| failed.candidate.seq).collect();
        let declared = |fact: &Candidate| {
            let began = |id: Uuid| began_of(hit, id).min(hit.all);
            let by_fault = match fact.whom {
                Whom::Host(host) => {
                    let cluster = self.timeline.directory.cluster_of.get(&host);
                    began(host).min(cluster.map_or(END, |cluster| began_of(hit, *cluster)))
                }
                Whom::Cluster(cluster) => {
                    let hosts = self.timeline.directory.cluster_of.iter().filter(|(_, c)| **c == cluster);
                    hosts.map(|(host, _)| began(*host)).min().unwrap_or(END).min(began(cluster))
                }
                Whom::Service | Whom::Run => hit.all,
            };
            by_fault < fact.seq || asked_for.contains(&fact.seq)
        };
        facts.into_iter().filter(|fact| failed.contains(&fact.seq) || !declared(fact)).collect()
    }

    /// Was that host, or its cluster, or what all depend on, hit by a fault of the scenario?
    pub(super) fn is_hit(&self, host: Uuid) -> bool {
        let hit = &self.hit;
        let cluster = self.timeline.directory.cluster_of.get(&host);
        hit.all != END || hit.of.contains_key(&host) || cluster.is_some_and(|cluster| hit.of.contains_key(cluster))
    }

    /// The observations that the scenario asks for, or waits for, by their places.
    fn asked_for(&self) -> BTreeSet<u64> {
        let scenario = self.scenario;
        let times = scenario.actions.iter().map(|a| &a.when).chain(scenario.faults.iter().map(|f| &f.when));
        let waited = times.filter_map(|when| match when {
            ActionTime::After { moment, .. } => Some(moment),
            ActionTime::At(_) => None,
        });
        let expected = scenario.expect.iter().flat_map(|expectation| match &expectation.check {
            Criterion::Eventually { moment, .. } => vec![moment],
            Criterion::Order { see, before, after, .. } => {
                [Some(see), before.as_ref(), after.as_ref()].into_iter().flatten().collect()
            }
            _ => vec![],
        });
        let moments: Vec<&Moment> = waited.chain(expected).chain(&scenario.until.seen).collect();
        let directory = &self.timeline.directory;
        let mut seqs = BTreeSet::new();
        for moment in moments {
            let mut tracker = Tracker::new(moment.clone());
            for o in self.timeline.observations {
                tracker.observe(directory, o);
            }
            seqs.extend(tracker.hits(directory).into_iter().map(|(_, at)| at.seq));
        }
        seqs.extend(self.in_sequences());
        seqs.extend(self.events());
        seqs
    }

    /// Events that the scenario wants.
    fn events(&self) -> Vec<u64> {
        let wanted = |e: &vlab_scenario::Expectation| match &e.check {
            Criterion::Event { name, min: 1.., .. } => Some(name.clone()),
            _ => None,
        };
        let wanted: BTreeSet<String> = self.scenario.expect.iter().filter_map(wanted).collect();
        let is_wanted = |what: &What| matches!(what, What::Event { name, .. } if wanted.contains(name));
        self.timeline.observations.iter().filter(|o| is_wanted(&o.what)).map(|o| o.seq).collect()
    }

    /// States that the scenario's sequences name, each time that they are entered.
    fn in_sequences(&self) -> BTreeSet<u64> {
        let mut seqs = BTreeSet::new();
        for expectation in &self.scenario.expect {
            let Criterion::Sequence { steps, .. } = &expectation.check else { continue };
            for change in &self.timeline.changes {
                let named = match (&change.observation.what, steps) {
                    (What::HostStatus { to, .. }, Steps::HostStatuses(wanted)) => {
                        wanted.iter().any(|step| step.any_of.contains(to))
                    }
                    (What::ClusterStatus { to, .. }, Steps::ClusterStatuses(wanted)) => {
                        wanted.iter().any(|step| step.any_of.contains(to))
                    }
                    (What::HostStage { to: Some(to), .. }, Steps::Stages(wanted)) => {
                        wanted.iter().any(|step| step.any_of.contains(to))
                    }
                    _ => false,
                };
                if named {
                    seqs.insert(change.observation.seq);
                }
            }
        }
        seqs
    }
}
