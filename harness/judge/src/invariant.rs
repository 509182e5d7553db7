//! What must hold in every history, whatever the scenario: the invariants I1 to I15 and their checkers.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStage, HostStatus, StepType};
use vlab_model::history::{ClusterMoment, HostMoment, Observation, Source, What};
use vlab_model::machine::Rule;
use vlab_model::stages::{self, StageRole};
use vlab_model::{cluster, host};

/// What an invariant speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InvariantScope {
    /// Hosts and clusters alike.
    All,
    /// Each host.
    Host,
    /// Each cluster.
    Cluster,
    /// The bootstrap's pivot, and what waits for it.
    Pivot,
    /// The events API.
    Events,
    /// The steps that hosts are given.
    Steps,
    /// The same thing seen in several ways.
    Views,
    /// Several services on one database.
    HighAvailability,
    /// Hosts that are bound late.
    LateBinding,
}

/// An invariant as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invariant {
    /// `I1` ... `I15`.
    pub id: &'static str,
    /// The invariant in one sentence.
    pub title: &'static str,
    /// What it speaks of.
    pub scope: InvariantScope,
    /// What a history must hold so that it can be judged.
    pub needs: &'static str,
}

/// What a checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvariantVerdict {
    /// It was checked and held each time.
    Held,
    /// It did not hold.
    Violated {
        /// Each violation in one line, in order.
        details: Vec<String>,
        /// Observation that shows the first one.
        first_seq: u64,
    },
    /// The history does not hold what the check needs.
    NotApplicable {
        /// What is missing.
        reason: String,
    },
}

/// Result of one invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvariantResult {
    /// `I1` ... `I15`.
    pub id: &'static str,
    /// The invariant in one sentence.
    pub title: &'static str,
    /// What was found.
    pub verdict: InvariantVerdict,
    /// How many times something was checked; above 0 unless not applicable.
    pub checked: usize,
}

/// Does no installer run on the host after that? It was stopped, or the machine went down.
fn ends_installer(what: &HostMoment) -> bool {
    matches!(
        what,
        HostMoment::InstallerStopped
            | HostMoment::Rebooting
            | HostMoment::PoweredOn
            | HostMoment::BootedDiscovery
            | HostMoment::BootedInstalledOs
    )
}

/// A violation's text is kept for so many of them; the rest is counted.
const KEPT_DETAILS: usize = 20;

/// A step that was on its way when a host was cancelled is no violation.
const IN_FLIGHT: Duration = Duration::from_millis(500);

/// The real service writes the event of a change after the change: 0.2 to 0.9 s later where ten processes share a processor
/// (measured). A younger change may be without its event when a history ends.
const EVENT_FOLLOWS: Duration = Duration::from_secs(2);

/// A cluster that has too few hosts left must fail within this: six periods of the real service's cluster monitor. Profiles
/// that let the service run faster only make the check more lenient.
const CLUSTER_FAILS_WITHIN: Duration = Duration::from_secs(60);

/// The invariants.
pub static INVARIANTS: &[Invariant] = &[
    Invariant {
        id: "I1",
        title: "every change of a status is an edge of the state machine",
        scope: InvariantScope::All,
        needs: "changes of hosts' or clusters' statuses; with polls only, states may be skipped and paths are checked",
    },
    Invariant {
        id: "I2",
        title: "a host's installation stage never goes back, and is one of its role",
        scope: InvariantScope::Host,
        needs: "installation stages of hosts whose role is known",
    },
    Invariant {
        id: "I3",
        title: "from the start of an installation to its end exactly one host is the bootstrap",
        scope: InvariantScope::Cluster,
        needs: "a cluster that was installing, and its hosts' roles",
    },
    Invariant {
        id: "I4",
        title: "a host never runs two installers at a time",
        scope: InvariantScope::Host,
        needs: "hosts that tell when their installer starts and ends",
    },
    Invariant {
        id: "I5",
        title: "when a cluster is installed, all its hosts are installed, or are workers that it went on without",
        scope: InvariantScope::Cluster,
        needs: "a cluster that became installed",
    },
    Invariant {
        id: "I6",
        title: "the bootstrap reboots only after other masters are ready, bootkube and etcd are done and the controller is ready",
        scope: InvariantScope::Pivot,
        needs: "what happened inside a multi-node cluster whose bootstrap went on to the next stages",
    },
    Invariant {
        id: "I6b",
        title: "no worker reboots before two masters or arbiters are done",
        scope: InvariantScope::Pivot,
        needs: "a worker of a first installation that reported Rebooting",
    },
    Invariant {
        id: "I7",
        title: "each change of a status has exactly one event, and no event is without a change",
        scope: InvariantScope::Events,
        needs: "the database's changes and the service's events",
    },
    Invariant {
        id: "I8",
        title: "a cancelled host is asked for nothing but its logs and to stop",
        scope: InvariantScope::Steps,
        needs: "steps that a cancelled host was given",
    },
    Invariant {
        id: "I9",
        title: "a host that is silent for too long is disconnected, and no sooner",
        scope: InvariantScope::Host,
        needs: "the times at which hosts asked for instructions",
    },
    Invariant {
        id: "I10",
        title: "a cluster's percentage never goes back within an installation",
        scope: InvariantScope::Cluster,
        needs: "a cluster whose percentage changed",
    },
    Invariant {
        id: "I11",
        title: "a cluster whose failed hosts leave it too few goes to error",
        scope: InvariantScope::Cluster,
        needs: "an installing cluster in which too many hosts failed, watched for a minute from then on",
    },
    Invariant {
        id: "I12",
        title: "a validation that succeeds agrees with the last inventory",
        scope: InvariantScope::Host,
        needs: "the inventories that the service accepted",
    },
    Invariant {
        id: "I13",
        title: "the API shows no status that the database did not hold",
        scope: InvariantScope::Views,
        needs: "the database's changes and polls of the API",
    },
    Invariant {
        id: "I14",
        title: "two services on one database never apply a transition twice",
        scope: InvariantScope::HighAvailability,
        needs: "which of several services made each change",
    },
    Invariant {
        id: "I15",
        title: "an unbound host has no cluster, a bound host has one that exists",
        scope: InvariantScope::LateBinding,
        needs: "changes of hosts' statuses",
    },
];

/// Place of an invariant in [`INVARIANTS`].
#[derive(Clone, Copy)]
enum Id {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I6b,
    I7,
    I8,
    I9,
    I10,
    I11,
    I12,
    I13,
    I14,
    I15,
}

/// What is found about one invariant while a history is read.
#[derive(Clone, Debug, Default)]
struct Tally {
    checked: usize,
    violations: usize,
    details: Vec<String>,
    first_seq: Option<u64>,
}

/// Reachable states as bits, by the state's own number.
struct Edges {
    /// One step.
    direct: [u32; 32],
    /// Any number of steps, none included.
    path: [u32; 32],
}

impl Edges {
    fn new(pairs: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut direct = [0_u32; 32];
        for (from, to) in pairs {
            direct[from] |= 1 << to;
        }
        let mut path = direct;
        for (state, reachable) in path.iter_mut().enumerate() {
            *reachable |= 1 << state;
        }
        for middle in 0..32 {
            for from in 0..32 {
                if path[from] & (1 << middle) != 0 {
                    path[from] |= path[middle];
                }
            }
        }
        Self { direct, path }
    }

    fn allows(&self, from: usize, to: usize, single_step: bool) -> bool {
        (if single_step { self.direct } else { self.path })[from] & (1 << to) != 0
    }
}

/// All edges of both machines of hosts: binding and unbinding lead from one into the other.
static HOST_EDGES: LazyLock<Edges> = LazyLock::new(|| {
    let of_rule = |rule: &'static host::HostRule| {
        let to = match rule.to {
            host::HostState::At(to) => Some(to as usize),
            host::HostState::Initial => None,
        };
        rule.from.iter().filter_map(move |from| match from {
            host::HostState::At(from) => Some((*from as usize, to?)),
            host::HostState::Initial => None,
        })
    };
    let outside = host::OUTSIDE_THE_MACHINE.iter().map(|(from, to, _)| (*from as usize, *to as usize));
    Edges::new(host::RULES.iter().chain(host::POOL_RULES).flat_map(of_rule).chain(outside))
});

static CLUSTER_EDGES: LazyLock<Edges> = LazyLock::new(|| {
    let of_rule =
        |Rule { from, to, .. }: &'static cluster::ClusterRule| from.iter().map(|f| (*f as usize, *to as usize));
    let outside = cluster::OUTSIDE_THE_MACHINE.iter().map(|(from, to, _)| (*from as usize, *to as usize));
    Edges::new(cluster::RULES.iter().flat_map(of_rule).chain(outside))
});

const UNBOUND: &[HostStatus] = &[
    HostStatus::DiscoveringUnbound,
    HostStatus::InsufficientUnbound,
    HostStatus::KnownUnbound,
    HostStatus::DisconnectedUnbound,
    HostStatus::DisabledUnbound,
    HostStatus::Unbinding,
    HostStatus::UnbindingPendingUserAction,
];

/// In these a host is between a cluster and the pool.
const BETWEEN: &[HostStatus] = &[HostStatus::Reclaiming, HostStatus::ReclaimingRebooting];

/// In these an installation is going on or has ended well.
const WITH_BOOTSTRAP: &[ClusterStatus] = &[
    ClusterStatus::Installing,
    ClusterStatus::InstallingPendingUserAction,
    ClusterStatus::Finalizing,
    ClusterStatus::Installed,
];

/// When something happened, for comparing what different sources saw: the place in the history is the order in which the
/// harness learned of things, which for things seen by different sources need not be the order in which they happened.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Timestamp,
    seq: u64,
}

impl Moment {
    /// Was `self` not after `other`? Either order saying so is enough.
    fn not_after(self, other: Moment) -> bool {
        self.seq < other.seq || self.at <= other.at
    }
}

#[derive(Default)]
struct HostLine {
    name: Option<String>,
    status: Option<HostStatus>,
    cluster: Option<usize>,
    role: Option<HostRole>,
    bootstrap: bool,
    stage: Option<HostStage>,
    cancelled_at: Option<Timestamp>,
    installer_running: bool,
    deleted: bool,
    /// When it got to the stages that the pivot is about, in the present installation.
    reached: Vec<(HostStage, Moment)>,
    /// Bits of the statuses that the database held.
    held: u32,
    /// Changes of its status, and the events about them.
    changes: usize,
    spare_changes: usize,
    events: usize,
    last_seq: u64,
}

#[derive(Default)]
struct ClusterLine {
    id: Uuid,
    name: Option<String>,
    status: Option<ClusterStatus>,
    status_seen: bool,
    members: Vec<usize>,
    total: i64,
    /// Its percentage went back, from what: forgiven when it is as high again at once.
    went_back: Option<(i64, i64, Moment)>,
    /// What happened inside it in the present installation: the first time of each, by host.
    inside: Vec<(Inside, Option<usize>, Moment)>,
    /// Since when it has too few hosts.
    too_few_since: Option<Moment>,
    held: u32,
    changes: usize,
    spare_changes: usize,
    events: usize,
    last_seq: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    NodeReady,
    BootkubeDone,
    EtcdBootstrapDone,
    ControllerReady,
}

struct Checker {
    tallies: [Tally; 16],
    /// The source that states are taken from, as in all readers of a history.
    state_source: Source,
    /// Both the database and polls saw states.
    two_views: bool,
    events_seen: bool,
    /// Instant of the last event that was read.
    last_event: Option<Timestamp>,
    hosts: Vec<HostLine>,
    host_index: HashMap<Uuid, usize>,
    clusters: Vec<ClusterLine>,
    cluster_index: HashMap<Uuid, usize>,
    last_state: Option<Moment>,
}

fn is_state(what: &What) -> bool {
    matches!(what, What::HostStatus { .. } | What::ClusterStatus { .. })
}

/// Checks all invariants over a history, in the order of [`INVARIANTS`]. What a history cannot show is not applicable, with
/// the reason; nothing is called held that was not checked at least once.
pub fn check_all(history: &[Observation]) -> Vec<InvariantResult> {
    let mut checker = Checker::new(history);
    for observation in history {
        checker.see(observation);
    }
    checker.finish()
}

impl Checker {
    fn new(history: &[Observation]) -> Self {
        let mut seen = (false, false);
        let mut checker = Self {
            tallies: Default::default(),
            state_source: Source::Poll,
            two_views: false,
            events_seen: false,
            last_event: None,
            hosts: Vec::new(),
            host_index: HashMap::new(),
            clusters: Vec::new(),
            cluster_index: HashMap::new(),
            last_state: None,
        };
        for observation in history {
            match &observation.what {
                what if is_state(what) => {
                    seen.0 |= observation.source == Source::Database;
                    seen.1 |= observation.source == Source::Poll;
                }
                What::Event { .. } => {
                    checker.events_seen = true;
                    checker.last_event = Some(observation.at()).max(checker.last_event);
                }
                _ => {}
            }
        }
        if seen.0 {
            checker.state_source = Source::Database;
        }
        checker.two_views = seen.0 && seen.1;
        // Who is in which cluster must be known before the first stage is judged: a single node has stages of its own.
        // What the database held must be known before a poll is judged: the two are recorded one after the other.
        for observation in history {
            match &observation.what {
                What::HostStatus { host, cluster, to, .. } if observation.source.tells_states(checker.state_source) => {
                    let host = checker.host(*host);
                    checker.hosts[host].held |= 1 << *to as u32;
                    if let Some(cluster) = cluster {
                        let cluster = checker.cluster(*cluster);
                        // Most changes leave a host in its cluster: no need to look for it among thousands.
                        if checker.hosts[host].cluster != Some(cluster) {
                            checker.hosts[host].cluster = Some(cluster);
                            if !checker.clusters[cluster].members.contains(&host) {
                                checker.clusters[cluster].members.push(host);
                            }
                        }
                    }
                }
                What::ClusterStatus { cluster, to, .. } if observation.source.tells_states(checker.state_source) => {
                    let cluster = checker.cluster(*cluster);
                    checker.clusters[cluster].held |= 1 << *to as u32;
                    checker.clusters[cluster].status_seen = true;
                }
                What::HostNamed { host, name, .. } => {
                    let host = checker.host(*host);
                    checker.hosts[host].name = Some(name.clone());
                }
                What::ClusterNamed { cluster, name, .. } => {
                    let cluster = checker.cluster(*cluster);
                    checker.clusters[cluster].name = Some(name.clone());
                }
                _ => {}
            }
        }
        for line in &mut checker.hosts {
            line.cluster = None;
        }
        checker
    }

    fn host(&mut self, id: Uuid) -> usize {
        *self.host_index.entry(id).or_insert_with(|| {
            self.hosts.push(HostLine { name: Some(id.to_string()), ..HostLine::default() });
            self.hosts.len() - 1
        })
    }

    fn cluster(&mut self, id: Uuid) -> usize {
        *self.cluster_index.entry(id).or_insert_with(|| {
            self.clusters.push(ClusterLine { id, name: Some(id.to_string()), ..ClusterLine::default() });
            self.clusters.len() - 1
        })
    }

    fn host_name(&self, host: usize) -> &str {
        self.hosts[host].name.as_deref().unwrap_or("?")
    }

    fn cluster_name(&self, cluster: usize) -> &str {
        self.clusters[cluster].name.as_deref().unwrap_or("?")
    }

    /// One check was made; it holds, or `violation` says why not.
    fn check(&mut self, id: Id, seq: u64, holds: bool, violation: impl FnOnce(&Self) -> String) {
        self.tallies[id as usize].checked += 1;
        if holds {
            return;
        }
        let text = if self.tallies[id as usize].details.len() < KEPT_DETAILS { Some(violation(self)) } else { None };
        let tally = &mut self.tallies[id as usize];
        tally.violations += 1;
        tally.details.extend(text);
        tally.first_seq = Some(tally.first_seq.map_or(seq, |first| first.min(seq)));
    }

    fn see(&mut self, observation: &Observation) {
        let moment = Moment { at: observation.at(), seq: observation.seq };
        let is_truth = observation.source.tells_states(self.state_source);
        match &observation.what {
            What::HostStatus { host, cluster, from, to, .. } => {
                let host = self.host(*host);
                if is_truth {
                    let cluster = cluster.map(|c| self.cluster(c));
                    self.host_status(host, cluster, *from, *to, moment);
                } else if self.two_views && observation.source == Source::Poll {
                    let held = self.hosts[host].held & (1 << *to as u32) != 0;
                    self.check(Id::I13, moment.seq, held, |c| {
                        format!("the API showed {} in {to}, which the database never held", c.host_name(host))
                    });
                }
            }
            What::ClusterStatus { cluster, from, to, .. } => {
                let cluster = self.cluster(*cluster);
                if is_truth {
                    self.cluster_status(cluster, *from, *to, moment);
                } else if self.two_views && observation.source == Source::Poll {
                    let held = self.clusters[cluster].held & (1 << *to as u32) != 0;
                    self.check(Id::I13, moment.seq, held, |c| {
                        format!(
                            "the API showed cluster {} in {to}, which the database never held",
                            c.cluster_name(cluster)
                        )
                    });
                }
            }
            What::HostStage { host, from, to, .. } if is_truth => {
                let host = self.host(*host);
                self.host_stage(host, *from, *to, moment);
            }
            What::HostRole { host, role, bootstrap } if is_truth => {
                let host = self.host(*host);
                self.hosts[host].role = Some(*role);
                self.hosts[host].bootstrap = *bootstrap;
                let cluster = self.hosts[host].cluster;
                if let Some(cluster) = cluster
                    && *bootstrap
                    && self.clusters[cluster].status.is_some_and(|s| WITH_BOOTSTRAP.contains(&s))
                {
                    self.one_bootstrap(cluster, moment);
                }
            }
            What::HostDeleted { host } => {
                let host = self.host(*host);
                self.hosts[host].deleted = true;
                self.hosts[host].bootstrap = false;
                self.hosts[host].stage = None;
            }
            What::ClusterProgress { cluster, total } if is_truth => {
                let cluster = self.cluster(*cluster);
                let before = self.clusters[cluster].total;
                if self.clusters[cluster].status == Some(ClusterStatus::AddingHosts) {
                    // The cluster is installed. A host of day 2 begins at nothing, and its percentage counts.
                    self.clusters[cluster].total = *total;
                    return;
                }
                // The real service writes what it computed from two reports at once in any order: the lower one last, for
                // some milliseconds.
                if let Some((high, _, then)) = self.clusters[cluster].went_back
                    && *total >= high
                    && moment.at.since(then.at) <= IN_FLIGHT
                {
                    self.clusters[cluster].went_back = None;
                }
                self.percentage_went_back(cluster);
                if *total < before {
                    self.clusters[cluster].went_back = Some((before, *total, moment));
                } else {
                    self.check(Id::I10, moment.seq, true, |_| String::new());
                }
                self.clusters[cluster].total = *total;
            }
            What::InCluster { cluster, host, what } => {
                let inside = match what {
                    ClusterMoment::NodeReady => Inside::NodeReady,
                    ClusterMoment::BootkubeDone => Inside::BootkubeDone,
                    ClusterMoment::EtcdBootstrapDone => Inside::EtcdBootstrapDone,
                    ClusterMoment::ControllerReady => Inside::ControllerReady,
                    _ => return,
                };
                let cluster = self.cluster(*cluster);
                let host = host.map(|h| self.host(h));
                let line = &mut self.clusters[cluster];
                if !line.inside.iter().any(|(i, h, _)| *i == inside && *h == host) {
                    line.inside.push((inside, host, moment));
                }
            }
            What::HostDid { host, what: HostMoment::InstallerStarted } => {
                let host = self.host(*host);
                let running = self.hosts[host].installer_running;
                self.check(Id::I4, moment.seq, !running, |c| {
                    format!("{} started an installer while another one ran", c.host_name(host))
                });
                self.hosts[host].installer_running = true;
            }
            What::HostDid { host, what } if ends_installer(what) => {
                let host = self.host(*host);
                self.hosts[host].installer_running = false;
            }
            What::Step { host, step_type, answered: None, cached: false, .. } => {
                let host = self.host(*host);
                let late = self.hosts[host].cancelled_at.is_some_and(|t| moment.at > t + IN_FLIGHT);
                if late {
                    let allowed =
                        step_type == StepType::LogsGather.as_str() || step_type == StepType::StopInstallation.as_str();
                    self.check(Id::I8, moment.seq, allowed, |c| {
                        format!("{} was cancelled and asked for {step_type}", c.host_name(host))
                    });
                }
            }
            What::Event { name, cluster, host, .. } => match (name.as_str(), host, cluster) {
                ("host_status_updated", Some(host), _) => {
                    let host = self.host(*host);
                    self.hosts[host].events += 1;
                }
                ("cluster_status_updated", _, Some(cluster)) => {
                    let cluster = self.cluster(*cluster);
                    self.clusters[cluster].events += 1;
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn host_status(
        &mut self,
        host: usize,
        cluster: Option<usize>,
        from: Option<HostStatus>,
        to: HostStatus,
        moment: Moment,
    ) {
        let single_step = self.state_source == Source::Database;
        match from {
            Some(from) => {
                let allowed = HOST_EDGES.allows(from as usize, to as usize, single_step);
                self.check(Id::I1, moment.seq, allowed, |c| {
                    format!("{} went from {from} to {to}, for which the machine has no rule", c.host_name(host))
                });
            }
            None if single_step => {
                let initial = matches!(to, HostStatus::Discovering | HostStatus::DiscoveringUnbound);
                self.check(Id::I1, moment.seq, initial, |c| format!("{} began in {to}", c.host_name(host)));
            }
            None => {}
        }
        if !BETWEEN.contains(&to) {
            let unbound = UNBOUND.contains(&to);
            let exists =
                cluster.is_none_or(|c| self.clusters[c].status_seen || !self.clusters.iter().any(|c| c.status_seen));
            self.check(Id::I15, moment.seq, unbound == cluster.is_none() && exists, |c| match cluster {
                Some(cluster) if unbound => {
                    format!("{} is in {to} and belongs to cluster {}", c.host_name(host), c.cluster_name(cluster))
                }
                Some(cluster) => {
                    let id = c.clusters[cluster].id;
                    format!("{} is in {to} and belongs to cluster {id}, which was never seen", c.host_name(host))
                }
                None => format!("{} is in {to} and belongs to no cluster", c.host_name(host)),
            });
        }
        // A change that is younger than the last event that was read may have its event still to come.
        let judged = single_step && self.last_event.is_some_and(|last| last.since(moment.at) > EVENT_FOLLOWS);
        let line = &mut self.hosts[host];
        line.changes += usize::from(from.is_some() && judged);
        line.spare_changes += usize::from(from.is_none() || !judged);
        line.last_seq = moment.seq;
        line.status = Some(to);
        line.cluster = cluster;
        line.deleted = false;
        line.cancelled_at = (to == HostStatus::Cancelled).then_some(moment.at);
        if matches!(to, HostStatus::Discovering | HostStatus::ResettingPendingUserAction | HostStatus::Known) {
            // Registered again, reset, or taken back before its installation: the next installation begins anew.
            line.reached.clear();
        }
        self.last_state = Some(moment);
        if let Some(cluster) = cluster {
            self.too_few(cluster, moment);
        }
    }

    fn cluster_status(&mut self, cluster: usize, from: Option<ClusterStatus>, to: ClusterStatus, moment: Moment) {
        let single_step = self.state_source == Source::Database;
        match from {
            Some(from) => {
                let allowed = CLUSTER_EDGES.allows(from as usize, to as usize, single_step);
                self.check(Id::I1, moment.seq, allowed, |c| {
                    format!(
                        "cluster {} went from {from} to {to}, for which the machine has no rule",
                        c.cluster_name(cluster)
                    )
                });
            }
            None if single_step => {
                let initial = cluster::INITIAL.contains(&to);
                self.check(Id::I1, moment.seq, initial, |c| {
                    format!("cluster {} began in {to}", c.cluster_name(cluster))
                });
            }
            None => {}
        }
        let judged = single_step && self.last_event.is_some_and(|last| last.since(moment.at) > EVENT_FOLLOWS);
        // A cluster that takes more hosts is told by its kind, not by an event.
        let silent = to == ClusterStatus::AddingHosts;
        let line = &mut self.clusters[cluster];
        line.changes += usize::from(from.is_some() && judged && !silent);
        line.spare_changes += usize::from((from.is_none() || !judged) && !silent);
        line.last_seq = moment.seq;
        line.status = Some(to);
        self.last_state = Some(moment);
        match to {
            ClusterStatus::PreparingForInstallation => {
                // A new installation: what happened in the last one says nothing about it.
                self.pivot(cluster);
                self.clusters[cluster].total = 0;
                self.clusters[cluster].inside.clear();
                for member in self.clusters[cluster].members.clone() {
                    self.hosts[member].reached.clear();
                }
            }
            ClusterStatus::Insufficient | ClusterStatus::Ready => self.clusters[cluster].total = 0,
            ClusterStatus::Installed => {
                for member in self.clusters[cluster].members.clone() {
                    let line = &self.hosts[member];
                    if line.deleted || line.cluster != Some(cluster) {
                        continue;
                    }
                    let (status, role) = (line.status, line.role);
                    let good = match status {
                        Some(HostStatus::Installed | HostStatus::AddedToExistingCluster) => true,
                        Some(HostStatus::Error) => role == Some(HostRole::Worker),
                        _ => false,
                    };
                    self.check(Id::I5, moment.seq, good, |c| {
                        let status = status.map_or("no status", HostStatus::as_str);
                        format!(
                            "cluster {} is installed and {} is in {status}",
                            c.cluster_name(cluster),
                            c.host_name(member)
                        )
                    });
                }
            }
            _ => {}
        }
        if WITH_BOOTSTRAP.contains(&to) {
            self.one_bootstrap(cluster, moment);
        }
        self.too_few(cluster, moment);
    }

    fn one_bootstrap(&mut self, cluster: usize, moment: Moment) {
        let members = self.clusters[cluster].members.iter().map(|m| &self.hosts[*m]);
        let known = members.clone().any(|h| h.role.is_some());
        if !known {
            return;
        }
        let bootstraps = members.filter(|h| h.bootstrap && !h.deleted && h.cluster == Some(cluster)).count();
        self.check(Id::I3, moment.seq, bootstraps == 1, |c| {
            format!("cluster {} has {bootstraps} bootstrap hosts", c.cluster_name(cluster))
        });
    }

    /// Which list of stages that host has; `None` while its role is not known.
    fn stage_role(&self, host: usize) -> Option<StageRole> {
        let line = &self.hosts[host];
        let cluster = &self.clusters[line.cluster?];
        if cluster.status == Some(ClusterStatus::AddingHosts) {
            return Some(StageRole::Worker);
        }
        if cluster.members.len() == 1 {
            return Some(StageRole::SingleNode);
        }
        Some(stages::role_of_kind(line.role?, line.bootstrap))
    }

    fn host_stage(&mut self, host: usize, from: Option<HostStage>, to: Option<HostStage>, moment: Moment) {
        let Some(stage) = to else {
            // Progress was cleared: reset, or registered again.
            self.hosts[host].stage = None;
            self.hosts[host].reached.clear();
            return;
        };
        let before = self.hosts[host].stage.or(from);
        self.hosts[host].stage = Some(stage);
        if before == Some(stage) {
            return;
        }
        let role = self.stage_role(host);
        // The service takes any first stage, see `stages::judge`.
        if let (Some(role), Some(before)) = (role, before) {
            let (had, has) = (stages::index(role, before), stages::index(role, stage));
            let holds = has.is_some() && has > had;
            self.check(Id::I2, moment.seq, holds, |c| {
                let name = c.host_name(host);
                match has {
                    None => format!("{name} is in stage {stage}, which its role does not have"),
                    Some(_) => format!("{name} went back from stage {before} to {stage}"),
                }
            });
        } else if role.is_some() {
            self.check(Id::I2, moment.seq, true, |_| String::new());
        }
        self.hosts[host].reached.push((stage, moment));
        if stage == HostStage::Rebooting
            && role == Some(StageRole::Worker)
            && let Some(cluster) = self.hosts[host].cluster
            && self.clusters[cluster].status != Some(ClusterStatus::AddingHosts)
        {
            let members = &self.clusters[cluster].members;
            let controls =
                members.iter().filter(|m| matches!(self.hosts[**m].role, Some(HostRole::Master | HostRole::Arbiter)));
            let done = controls.filter(|m| self.hosts[**m].stage == Some(HostStage::Done)).count();
            self.check(Id::I6b, moment.seq, done >= 2, |c| {
                format!("{} reboots when {done} masters and arbiters are done", c.host_name(host))
            });
        }
    }

    /// Judges the bootstrap's stages of the installation that ends here. Only now is all known that happened inside the
    /// cluster, which may be recorded later than the stages that it allowed.
    fn pivot(&mut self, cluster: usize) {
        let members = self.clusters[cluster].members.clone();
        if members.len() < 2 || self.clusters[cluster].inside.is_empty() {
            return;
        }
        let Some(bootstrap) = members.iter().copied().find(|m| self.hosts[*m].bootstrap) else { return };
        let others = |role| {
            members
                .iter()
                .filter(|m| **m != bootstrap && self.hosts[**m].role == Some(role))
                .copied()
                .collect::<Vec<_>>()
        };
        let (masters, arbiters) = (others(HostRole::Master), others(HostRole::Arbiter));
        let needed_masters = masters.len().min(2);
        let needed_arbiters = arbiters.len().min(1);
        let inside = self.clusters[cluster].inside.clone();
        let ready = |of: &[usize], by: Moment| {
            let of_them = |h: &Option<usize>| h.is_some_and(|h| of.contains(&h));
            inside.iter().filter(|(i, h, m)| *i == Inside::NodeReady && of_them(h) && m.not_after(by)).count()
        };
        let happened = |what, by: Moment| inside.iter().any(|(i, _, m)| *i == what && m.not_after(by));
        for (stage, at) in self.hosts[bootstrap].reached.clone() {
            let rank = match stage {
                HostStage::WaitingForBootkube => 1,
                HostStage::WaitingForController => 2,
                HostStage::Rebooting => 3,
                _ => continue,
            };
            let mut missing = Vec::new();
            if ready(&masters, at) < needed_masters {
                missing.push(format!("{needed_masters} other masters are ready"));
            }
            if ready(&arbiters, at) < needed_arbiters {
                missing.push("an arbiter is ready".to_owned());
            }
            if rank >= 2 && !happened(Inside::BootkubeDone, at) {
                missing.push("bootkube is done".to_owned());
            }
            if rank >= 2 && !happened(Inside::EtcdBootstrapDone, at) {
                missing.push("the bootstrap has left etcd".to_owned());
            }
            if rank >= 3 && !happened(Inside::ControllerReady, at) {
                missing.push("the controller is ready".to_owned());
            }
            self.check(Id::I6, at.seq, missing.is_empty(), |c| {
                format!("{} is in stage {stage} before {}", c.host_name(bootstrap), missing.join(" and "))
            });
        }
    }

    /// Keeps track of whether the cluster can still be installed.
    fn too_few(&mut self, cluster: usize, moment: Moment) {
        let line = &self.clusters[cluster];
        let installing =
            matches!(line.status, Some(ClusterStatus::Installing | ClusterStatus::InstallingPendingUserAction));
        if !installing && line.too_few_since.is_none() {
            return;
        }
        let members = line.members.iter().map(|m| &self.hosts[*m]).filter(|h| h.cluster == Some(cluster) && !h.deleted);
        let failed = |h: &&HostLine| h.status == Some(HostStatus::Error);
        let masters_failed = members.clone().filter(failed).any(|h| h.role == Some(HostRole::Master));
        let workers = members.filter(|h| h.role == Some(HostRole::Worker));
        let (all, left) = workers.fold((0, 0), |(all, left), h| (all + 1, left + usize::from(!failed(&h))));
        let too_few = installing && (masters_failed || (all >= 2 && left < 2));
        match (line.too_few_since, too_few) {
            (None, true) => self.clusters[cluster].too_few_since = Some(moment),
            (Some(since), false) => {
                self.clusters[cluster].too_few_since = None;
                let in_time = moment.at.since(since.at) <= CLUSTER_FAILS_WITHIN;
                self.check(Id::I11, since.seq, in_time, |c| {
                    format!(
                        "cluster {} had too few hosts for {:.0} s before it left the installation",
                        c.cluster_name(cluster),
                        moment.at.since(since.at).as_secs_f64(),
                    )
                });
            }
            _ => {}
        }
    }

    fn finish(mut self) -> Vec<InvariantResult> {
        for cluster in 0..self.clusters.len() {
            self.pivot(cluster);
            self.percentage_went_back(cluster);
            // Too few hosts to the end: a violation once the history shows that the service had its time. A service that was
            // dead from then on would have changed nothing else either.
            if let (Some(since), Some(last)) = (self.clusters[cluster].too_few_since, self.last_state)
                && last.at.since(since.at) > CLUSTER_FAILS_WITHIN
            {
                self.check(Id::I11, since.seq, false, |c| {
                    format!("cluster {} had too few hosts and never went to error", c.cluster_name(cluster))
                });
            }
        }
        if self.state_source == Source::Database && self.events_seen {
            // The first appearance of a host or a cluster may have an event of its own or not, and so may a change that is
            // younger than the last event that was read.
            for host in 0..self.hosts.len() {
                let line = &self.hosts[host];
                let (counts, seq) = ((line.changes, line.spare_changes, line.events), line.last_seq);
                self.one_event_each(counts, seq, |c| format!("host {}", c.host_name(host)));
            }
            for cluster in 0..self.clusters.len() {
                let line = &self.clusters[cluster];
                let (counts, seq) = ((line.changes, line.spare_changes, line.events), line.last_seq);
                self.one_event_each(counts, seq, |c| format!("cluster {}", c.cluster_name(cluster)));
            }
        }
        let reasons = self.reasons();
        let results = INVARIANTS.iter().zip(self.tallies).zip(reasons);
        results
            .map(|((invariant, tally), reason)| {
                let verdict = match tally.first_seq {
                    Some(first_seq) => {
                        let mut details = tally.details;
                        if tally.violations > details.len() {
                            details.push(format!("and {} more", tally.violations - details.len()));
                        }
                        InvariantVerdict::Violated { details, first_seq }
                    }
                    None if tally.checked > 0 => InvariantVerdict::Held,
                    None => InvariantVerdict::NotApplicable { reason },
                };
                InvariantResult { id: invariant.id, title: invariant.title, verdict, checked: tally.checked }
            })
            .collect()
    }

    /// It did, and was not made good.
    fn percentage_went_back(&mut self, cluster: usize) {
        if let Some((from, to, moment)) = self.clusters[cluster].went_back.take() {
            self.check(Id::I10, moment.seq, false, |c| {
                format!("cluster {} went back from {from} % to {to} %", c.cluster_name(cluster))
            });
        }
    }

    fn one_event_each(
        &mut self,
        (changes, spare, events): (usize, usize, usize),
        seq: u64,
        name: impl Fn(&Self) -> String,
    ) {
        if changes + spare == 0 && events == 0 {
            return;
        }
        let holds = (changes..=changes + spare).contains(&events);
        self.check(Id::I7, seq, holds, |c| {
            let most = if spare > 0 { format!(" to {}", changes + spare) } else { String::new() };
            format!("{} has {events} status events for {changes}{most} changes", name(c))
        });
    }

    /// Why each invariant is not applicable, if it is not.
    fn reasons(&self) -> [String; 16] {
        let mut reasons: [String; 16] =
            std::array::from_fn(|i| format!("the history does not show {}", INVARIANTS[i].needs));
        if self.state_source != Source::Database {
            reasons[Id::I7 as usize] = "states were polled, so changes may have been missed".to_owned();
        }
        reasons[Id::I9 as usize] = "a history does not say when hosts asked for instructions".to_owned();
        reasons[Id::I12 as usize] = "a history does not hold the inventories that the service accepted".to_owned();
        reasons[Id::I14 as usize] = "a history does not say which of several services made a change".to_owned();
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use vlab_api::types::Severity;
    use vlab_model::history::HISTORY_VERSION;

    const C: Uuid = Uuid::from_u128(100);

    fn id(host: usize) -> Uuid {
        Uuid::from_u128(host as u128 + 1)
    }

    /// Writes histories, one second between two observations.
    #[derive(Default)]
    struct Story {
        lines: Vec<Observation>,
        hosts: [Option<HostStatus>; 5],
        stages: [Option<HostStage>; 5],
        cluster: Option<ClusterStatus>,
    }

    impl Story {
        fn say(&mut self, source: Source, what: What) {
            let at = Timestamp::from_secs(1_000 + self.lines.len() as i64);
            let seq = self.lines.len() as u64;
            self.lines.push(Observation {
                v: HISTORY_VERSION,
                seq,
                source,
                service_time: None,
                harness_time: at,
                what,
            });
        }
        fn event(&mut self, name: &str, cluster: Option<Uuid>, host: Option<Uuid>) {
            let message = String::new();
            self.say(
                Source::Events,
                What::Event { name: name.to_owned(), severity: Severity::Info, message, cluster, host },
            );
        }
        fn host(&mut self, host: usize, to: HostStatus) {
            let from = self.hosts[host].replace(to);
            let status = What::HostStatus { host: id(host), cluster: Some(C), from, to, info: String::new() };
            self.say(Source::Database, status.clone());
            self.say(Source::Poll, status);
            self.event("host_status_updated", Some(C), Some(id(host)));
        }
        fn cluster(&mut self, to: ClusterStatus) {
            let from = self.cluster.replace(to);
            let status = What::ClusterStatus { cluster: C, from, to, info: String::new() };
            self.say(Source::Database, status.clone());
            self.say(Source::Poll, status);
            if to != ClusterStatus::AddingHosts {
                self.event("cluster_status_updated", Some(C), None);
            }
        }
        fn stage(&mut self, host: usize, to: HostStage) {
            let from = self.stages[host].replace(to);
            let what = What::HostStage { host: id(host), from, to: Some(to), info: String::new(), percentage: 1 };
            self.say(Source::Database, what);
        }
        fn inside(&mut self, what: ClusterMoment, host: Option<usize>) {
            self.say(Source::Hosts, What::InCluster { cluster: C, host: host.map(id), what });
        }
        fn did(&mut self, host: usize, what: HostMoment) {
            self.say(Source::Hosts, What::HostDid { host: id(host), what });
        }
        fn total(&mut self, total: i64) {
            self.say(Source::Database, What::ClusterProgress { cluster: C, total });
        }
        fn role(&mut self, host: usize, role: HostRole, bootstrap: bool) {
            self.say(Source::Database, What::HostRole { host: id(host), role, bootstrap });
        }
        fn step(&mut self, host: usize, step: StepType) {
            let (step_type, step_id) = (step.as_str().to_owned(), String::new());
            self.say(Source::Hosts, What::Step { host: id(host), step_type, step_id, answered: None, cached: false });
        }
    }

    /// Hosts 0 to 2 are masters (2 is the bootstrap), 3 and 4 are workers.
    fn until_installing() -> Story {
        let mut s = Story::default();
        s.cluster(ClusterStatus::Insufficient);
        for host in 0..5 {
            s.host(host, HostStatus::Discovering);
            s.host(host, HostStatus::Known);
        }
        s.cluster(ClusterStatus::Ready);
        s.cluster(ClusterStatus::PreparingForInstallation);
        for host in 0..5 {
            s.role(host, if host < 3 { HostRole::Master } else { HostRole::Worker }, host == 2);
            s.host(host, HostStatus::PreparingForInstallation);
            s.host(host, HostStatus::PreparingSuccessful);
        }
        s.cluster(ClusterStatus::Installing);
        for host in 0..5 {
            s.host(host, HostStatus::Installing);
            s.did(host, HostMoment::InstallerStarted);
            s.stage(host, HostStage::StartingInstallation);
            s.host(host, HostStatus::InstallingInProgress);
            s.stage(host, HostStage::WritingImageToDisk);
        }
        s.total(30);
        s
    }

    fn until_bootstrap_reboots(s: &mut Story) {
        s.stage(2, HostStage::WaitingForControlPlane);
        for master in 0..2 {
            s.did(master, HostMoment::InstallerStopped);
            s.stage(master, HostStage::Rebooting);
            s.stage(master, HostStage::Configuring);
            s.inside(ClusterMoment::NodeReady, Some(master));
        }
        s.stage(2, HostStage::WaitingForBootkube);
        s.inside(ClusterMoment::BootkubeDone, None);
        s.inside(ClusterMoment::EtcdBootstrapDone, None);
        s.stage(2, HostStage::WaitingForController);
        s.inside(ClusterMoment::ControllerReady, None);
        s.stage(2, HostStage::Rebooting);
    }

    fn until_installed(s: &mut Story) {
        for host in 0..5 {
            if host > 2 {
                s.stage(host, HostStage::WaitingForControlPlane);
                s.stage(host, HostStage::Rebooting);
            }
            s.stage(host, HostStage::Joined);
            s.stage(host, HostStage::Done);
            s.host(host, HostStatus::Installed);
        }
        s.total(80);
        s.cluster(ClusterStatus::Finalizing);
        s.cluster(ClusterStatus::Installed);
        s.total(100);
        s.event("cluster_installation_completed", Some(C), None);
    }

    fn good() -> Story {
        let mut s = until_installing();
        until_bootstrap_reboots(&mut s);
        until_installed(&mut s);
        s
    }

    fn verdict(story: &Story, id: &str) -> InvariantVerdict {
        check_all(&story.lines).into_iter().find(|r| r.id == id).unwrap().verdict
    }

    fn violations(story: &Story) -> Vec<(&'static str, Vec<String>, u64)> {
        let violated = |r: InvariantResult| match r.verdict {
            InvariantVerdict::Violated { details, first_seq } => Some((r.id, details, first_seq)),
            _ => None,
        };
        check_all(&story.lines).into_iter().filter_map(violated).collect()
    }

    /// The story ends here with the only violation.
    fn assert_only(story: &Story, id: &str, says: &str) {
        let found = violations(story);
        assert_eq!(found.iter().map(|v| v.0).collect::<Vec<_>>(), [id], "{found:?}");
        assert!(found[0].1[0].contains(says), "{found:?}");
        assert!(found[0].2 < story.lines.len() as u64);
    }

    #[test]
    fn a_good_installation_holds_and_says_what_it_could_not_check() {
        let results = check_all(&good().lines);
        assert_eq!(results.len(), INVARIANTS.len());
        for result in results {
            match (result.id, result.verdict) {
                ("I8" | "I9" | "I11" | "I12" | "I14", InvariantVerdict::NotApplicable { reason }) => {
                    assert_eq!(result.checked, 0);
                    assert!(!reason.is_empty());
                }
                (id, InvariantVerdict::Held) => assert!(result.checked > 0, "{id} was held unchecked"),
                (id, other) => panic!("{id}: {other:?}"),
            }
        }
    }

    #[test]
    fn nothing_is_held_in_an_empty_history() {
        for result in check_all(&[]) {
            assert!(matches!(result.verdict, InvariantVerdict::NotApplicable { .. }), "{result:?}");
            assert_eq!(result.checked, 0);
        }
    }

    #[test]
    fn i1_knows_no_way_from_known_to_installed() {
        let mut s = until_installing();
        s.hosts[0] = Some(HostStatus::Known);
        s.host(0, HostStatus::Installed);
        assert_only(&s, "I1", "went from known to installed");
    }

    #[test]
    fn i1_follows_paths_when_states_were_polled() {
        let poll = |from, to| {
            let mut s = Story::default();
            let info = String::new();
            s.say(Source::Poll, What::HostStatus { host: id(0), cluster: Some(C), from: Some(from), to, info });
            verdict(&s, "I1")
        };
        assert_eq!(poll(HostStatus::Discovering, HostStatus::PreparingSuccessful), InvariantVerdict::Held);
        let back = poll(HostStatus::Cancelled, HostStatus::Installed);
        // After a reset anything is possible again; a status that nothing leads to is not.
        assert_eq!(back, InvariantVerdict::Held);
        assert!(matches!(poll(HostStatus::Known, HostStatus::Disabled), InvariantVerdict::Violated { .. }));
    }

    #[rstest]
    #[case::back(HostStage::StartingInstallation, "went back")]
    #[case::not_of_the_role(HostStage::WaitingForIgnition, "its role does not have")]
    fn i2_knows_the_order_of_each_role(#[case] stage: HostStage, #[case] says: &str) {
        let mut s = until_installing();
        s.stage(0, stage);
        assert_only(&s, "I2", says);
    }

    #[test]
    fn i2_lets_a_host_begin_anew_after_a_reset() {
        let mut s = until_installing();
        let (host, from) = (id(0), Some(HostStage::WritingImageToDisk));
        s.say(Source::Database, What::HostStage { host, from, to: None, info: String::new(), percentage: 0 });
        s.stages[0] = None;
        s.stage(0, HostStage::StartingInstallation);
        assert_eq!(violations(&s), []);
    }

    #[test]
    fn i3_wants_one_bootstrap() {
        let mut s = until_installing();
        s.role(1, HostRole::Master, true);
        assert_only(&s, "I3", "2 bootstrap hosts");
    }

    #[test]
    fn i4_wants_one_installer() {
        let mut s = until_installing();
        s.did(0, HostMoment::InstallerStarted);
        assert_only(&s, "I4", "while another one ran");
    }

    #[rstest::rstest]
    #[case(HostMoment::InstallerStopped)]
    #[case(HostMoment::Rebooting)]
    #[case(HostMoment::BootedDiscovery)]
    fn i4_lets_an_installer_start_again_when_none_runs(#[case] between: HostMoment) {
        let mut s = until_installing();
        s.did(0, between);
        s.did(0, HostMoment::InstallerStarted);
        assert_eq!(violations(&s), []);
    }

    #[test]
    fn i5_lets_a_cluster_go_on_without_a_worker_only() {
        let ends = |host| {
            let mut s = good();
            s.cluster = Some(ClusterStatus::Finalizing);
            s.hosts[host] = Some(HostStatus::InstallingInProgress);
            s.host(host, HostStatus::Error);
            s.cluster(ClusterStatus::Installed);
            s.event("after", None, None);
            verdict(&s, "I5")
        };
        assert_eq!(ends(4), InvariantVerdict::Held);
        assert!(matches!(ends(0), InvariantVerdict::Violated { .. }));
    }

    #[rstest]
    #[case(ClusterMoment::NodeReady, "2 other masters are ready")]
    #[case(ClusterMoment::BootkubeDone, "bootkube is done")]
    #[case(ClusterMoment::EtcdBootstrapDone, "left etcd")]
    #[case(ClusterMoment::ControllerReady, "the controller is ready")]
    fn i6_wants_everything_before_the_pivot(#[case] missing: ClusterMoment, #[case] says: &str) {
        let mut s = good();
        let at =
            s.lines.iter().position(|o| matches!(&o.what, What::InCluster { what, .. } if *what == missing)).unwrap();
        let end = s.lines.len() as i64;
        s.lines[at].seq = end as u64 - 1;
        s.lines[at].harness_time = Timestamp::from_secs(1_000 + end);
        assert_only(&s, "I6", says);
    }

    #[test]
    fn i6_takes_what_was_only_recorded_late() {
        let mut s = good();
        let at = s
            .lines
            .iter()
            .position(|o| matches!(&o.what, What::InCluster { what: ClusterMoment::BootkubeDone, .. }))
            .unwrap();
        let late = s.lines.remove(at);
        s.lines.push(late);
        for (seq, line) in s.lines.iter_mut().enumerate() {
            line.seq = seq as u64;
        }
        assert_eq!(violations(&s), []);
    }

    #[test]
    fn i6b_wants_two_masters_done_before_a_worker_reboots() {
        let mut s = until_installing();
        s.stage(0, HostStage::Done);
        s.stage(3, HostStage::Rebooting);
        assert_only(&s, "I6b", "when 1 masters and arbiters are done");
    }

    #[test]
    fn i7_counts_events() {
        let mut s = good();
        s.event("host_status_updated", Some(C), Some(id(1)));
        s.event("host_status_updated", Some(C), Some(id(1)));
        assert_only(&s, "I7", "host 00000000-0000-0000-0000-000000000002 has");
        let mut s = good();
        let lost =
            s.lines.iter().rposition(|o| matches!(&o.what, What::Event { host: Some(h), .. } if *h == id(1))).unwrap();
        s.lines[lost].what = What::Note { text: String::new() };
        let first =
            s.lines.iter().position(|o| matches!(&o.what, What::Event { host: Some(h), .. } if *h == id(1))).unwrap();
        s.lines[first].what = What::Note { text: String::new() };
        assert_only(&s, "I7", "status events for");
    }

    #[test]
    fn i8_lets_a_cancelled_host_send_its_logs() {
        let mut s = until_installing();
        s.host(0, HostStatus::Cancelled);
        s.step(0, StepType::LogsGather);
        assert_eq!(verdict(&s, "I8"), InvariantVerdict::Held);
        s.step(0, StepType::Install);
        assert_only(&s, "I8", "asked for install");
    }

    #[test]
    fn i10_never_goes_back() {
        let mut s = until_installing();
        s.total(29);
        assert_only(&s, "I10", "from 30 % to 29 %");
    }

    /// Two reports at once: what was computed from the earlier one is written last.
    #[rstest]
    #[case::at_once(true, 30, true)]
    #[case::a_second_later(false, 30, false)]
    #[case::only_half(true, 29, false)]
    fn i10_forgives_what_is_made_good_at_once(#[case] at_once: bool, #[case] then: i64, #[case] good: bool) {
        let mut s = until_installing();
        s.total(28);
        s.total(then);
        if at_once {
            let n = s.lines.len();
            s.lines[n - 1].harness_time = s.lines[n - 2].harness_time;
        }
        if good {
            assert_eq!(verdict(&s, "I10"), InvariantVerdict::Held);
        } else {
            assert_only(&s, "I10", "from 30 % to 28 %");
        }
    }

    #[test]
    fn i10_lets_hosts_of_day_2_begin_at_nothing() {
        let mut s = good();
        s.cluster(ClusterStatus::AddingHosts);
        s.total(68);
        assert_eq!(violations(&s), []);
    }

    #[rstest]
    #[case::a_master(0)]
    #[case::one_of_two_workers(4)]
    fn i11_wants_a_cluster_with_too_few_hosts_to_fail(#[case] failed: usize) {
        let mut s = until_installing();
        s.host(failed, HostStatus::Error);
        for _ in 0..70 {
            s.say(Source::Harness, What::Note { text: String::new() });
        }
        let mut never = Story { lines: s.lines.clone(), ..Story::default() };
        never.hosts = s.hosts;
        never.host(1, HostStatus::InstallingPendingUserAction);
        assert_only(&never, "I11", "never went to error");
        s.cluster(ClusterStatus::Error);
        assert_only(&s, "I11", "before it left the installation");
    }

    #[test]
    fn i11_holds_when_the_cluster_fails_at_once() {
        let mut s = until_installing();
        s.host(0, HostStatus::Error);
        s.cluster(ClusterStatus::Error);
        assert_eq!(verdict(&s, "I11"), InvariantVerdict::Held);
    }

    #[test]
    fn i13_wants_the_api_to_show_what_the_database_held() {
        let mut s = until_installing();
        let (from, to) = (Some(HostStatus::InstallingInProgress), HostStatus::Resetting);
        s.say(Source::Poll, What::HostStatus { host: id(0), cluster: Some(C), from, to, info: String::new() });
        assert_only(&s, "I13", "which the database never held");
    }

    #[rstest]
    #[case(Some(C), HostStatus::DiscoveringUnbound, "belongs to cluster")]
    #[case(None, HostStatus::Discovering, "belongs to no cluster")]
    #[case(Some(Uuid::from_u128(9)), HostStatus::Discovering, "never seen")]
    fn i15_ties_status_and_cluster(#[case] cluster: Option<Uuid>, #[case] to: HostStatus, #[case] says: &str) {
        let mut s = Story::default();
        s.cluster(ClusterStatus::Insufficient);
        s.say(Source::Database, What::HostStatus { host: id(0), cluster, from: None, to, info: String::new() });
        assert_only(&s, "I15", says);
    }

    #[test]
    fn many_violations_are_counted_and_the_first_ones_told() {
        let mut s = until_installing();
        for n in 0..30 {
            s.total(29 - n);
        }
        let InvariantVerdict::Violated { details, .. } = verdict(&s, "I10") else { panic!("I10 holds") };
        assert_eq!(details.len(), KEPT_DETAILS + 1);
        assert_eq!(details[KEPT_DETAILS], "and 10 more");
    }
}
