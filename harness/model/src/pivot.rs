//! The pivot of a bootstrap as a measured thing: its moments, in the order in which they must come, read from a history.
//!
//! Simulated hosts tell the moments as [`What::InCluster`] and [`What::HostDid`]. The programs of lab machines say the same on
//! their consoles; [`told`] knows their lines, so that both become the same observations and nobody who judges needs to know
//! where they came from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::HostRole;

use crate::history::{ClusterMoment, HostMoment, Observation, What};

/// A moment of a pivot. The interval from the one before it is the stage of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PivotMoment {
    /// bootkube was started on the bootstrap.
    BootkubeStarted,
    /// The temporary control plane answers: API and, on several nodes, the machine-config server.
    TemporaryControlPlaneUp,
    /// The first other master (or arbiter) is a ready node.
    FirstMasterJoined,
    /// The second one is.
    SecondMasterJoined,
    /// bootkube is through.
    BootkubeDone,
    /// etcd has its quorum without the bootstrap's member. On a single node: its own etcd runs from its disk.
    EtcdQuorum,
    /// The bootstrap reboots.
    BootstrapReboot,
    /// The bootstrap is a ready node of the control plane.
    Rejoined,
}

use PivotMoment::*;

/// The moments of a cluster of several nodes, in order.
pub const MULTI_NODE: &[PivotMoment] = &[
    BootkubeStarted,
    TemporaryControlPlaneUp,
    FirstMasterJoined,
    SecondMasterJoined,
    BootkubeDone,
    EtcdQuorum,
    BootstrapReboot,
    Rejoined,
];

/// The moments of a single node, which bootstraps in place: bootkube runs, the disk is written, and the control plane comes up
/// again from it.
pub const SINGLE_NODE: &[PivotMoment] =
    &[BootkubeStarted, TemporaryControlPlaneUp, BootkubeDone, BootstrapReboot, EtcdQuorum, Rejoined];

impl PivotMoment {
    /// Its word in scenarios and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            BootkubeStarted => "bootkube-started",
            TemporaryControlPlaneUp => "temporary-control-plane-up",
            FirstMasterJoined => "first-master-joined",
            SecondMasterJoined => "second-master-joined",
            BootkubeDone => "bootkube-done",
            EtcdQuorum => "etcd-quorum",
            BootstrapReboot => "bootstrap-reboot",
            Rejoined => "rejoined",
        }
    }

    /// The moments of a cluster, in the order in which they must come.
    pub const fn of(single_node: bool) -> &'static [PivotMoment] {
        if single_node { SINGLE_NODE } else { MULTI_NODE }
    }
}

impl std::fmt::Display for PivotMoment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// When a moment came, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// By the clock of whoever told it.
    pub at: Timestamp,
    /// Observation that shows it.
    pub seq: u64,
    /// Host that it is about, where it is one's.
    pub host: Option<Uuid>,
}

/// The pivot of one cluster: of its last installation, when there were several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pivot {
    /// Id of the cluster in the service.
    pub cluster: Uuid,
    /// The bootstrap, where it is known.
    pub bootstrap: Option<Uuid>,
    /// When each moment came first. What is missing was not seen.
    pub came: BTreeMap<PivotMoment, Came>,
    /// When etcd lost its quorum between the pivot's moments, and which host was missing.
    pub quorum_lost: Vec<Came>,
}

impl Pivot {
    fn new(cluster: Uuid, bootstrap: Option<Uuid>) -> Self {
        Self { cluster, bootstrap, came: BTreeMap::new(), quorum_lost: Vec::new() }
    }

    fn saw(&mut self, moment: PivotMoment, came: Came) {
        self.came.entry(moment).or_insert(came);
    }

    /// When the stage that ends with that moment began: with the latest of the moments before it.
    pub fn began(&self, order: &[PivotMoment], moment: PivotMoment) -> Option<Came> {
        let before = order.iter().take_while(|m| **m != moment);
        before.filter_map(|m| self.came.get(m)).max_by_key(|c| (c.at, c.seq)).copied()
    }
}

/// The pivots of a history by cluster.
pub fn pivots(history: &[Observation]) -> BTreeMap<Uuid, Pivot> {
    let mut pivots: BTreeMap<Uuid, Pivot> = BTreeMap::new();
    // The role that a host has in the end: who only looks now and then learns of it late.
    let roles: BTreeMap<Uuid, HostRole> = history
        .iter()
        .filter_map(|o| match &o.what {
            What::HostRole { host, role, .. } => Some((*host, *role)),
            _ => None,
        })
        .collect();
    let mut joined: BTreeMap<Uuid, BTreeSet<Uuid>> = BTreeMap::new();
    for o in history {
        let came = |host| Came { at: o.at(), seq: o.seq, host };
        match &o.what {
            What::HostDid { host, what: HostMoment::Rebooting } => {
                for pivot in pivots.values_mut().filter(|p| p.bootstrap == Some(*host)) {
                    pivot.saw(BootstrapReboot, came(Some(*host)));
                }
            }
            What::InCluster { cluster, host, what: ClusterMoment::BootkubeStarted } => {
                // Another start is another installation: what came before is over.
                let mut pivot = Pivot::new(*cluster, *host);
                pivot.saw(BootkubeStarted, came(*host));
                joined.remove(cluster);
                pivots.insert(*cluster, pivot);
            }
            What::InCluster { cluster, host, what } => {
                // Something came of it without bootkube: that is a finding, and no reason to see nothing.
                if matches!(
                    what,
                    ClusterMoment::TemporaryControlPlaneUp
                        | ClusterMoment::BootkubeDone
                        | ClusterMoment::EtcdBootstrapDone
                ) {
                    pivots.entry(*cluster).or_insert_with(|| Pivot::new(*cluster, None));
                }
                let Some(pivot) = pivots.get_mut(cluster) else { continue };
                if pivot.came.contains_key(&Rejoined) {
                    continue;
                }
                match what {
                    ClusterMoment::TemporaryControlPlaneUp => pivot.saw(TemporaryControlPlaneUp, came(*host)),
                    ClusterMoment::BootkubeDone => pivot.saw(BootkubeDone, came(*host)),
                    ClusterMoment::EtcdBootstrapDone => pivot.saw(EtcdQuorum, came(*host)),
                    ClusterMoment::EtcdQuorumLost => pivot.quorum_lost.push(came(*host)),
                    ClusterMoment::NodeReady => {
                        let Some(node) = *host else { continue };
                        let bootstrap = pivot.bootstrap == Some(node);
                        let masters = [HostRole::Master, HostRole::Arbiter];
                        if bootstrap && pivot.came.contains_key(&BootstrapReboot) {
                            pivot.saw(Rejoined, came(*host));
                        } else if !bootstrap && roles.get(&node).is_some_and(|role| masters.contains(role)) {
                            let members = joined.entry(*cluster).or_default();
                            members.insert(node);
                            let moment = if members.len() == 1 { FirstMasterJoined } else { SecondMasterJoined };
                            pivot.saw(moment, came(*host));
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    pivots
}

/// What a program on a lab machine told of itself or of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// As [`What::InCluster`].
    InCluster(ClusterMoment),
    /// As [`What::HostDid`].
    HostDid(HostMoment),
}

/// Part and moment of a console line, and what they mean.
const LINES: &[(&str, &str, Told)] = &[
    ("pivot", "bootkube-started", Told::InCluster(ClusterMoment::BootkubeStarted)),
    ("pivot", "temporary-api-up", Told::InCluster(ClusterMoment::TemporaryControlPlaneUp)),
    // The masters are enough without the bootstrap: that is when `.bootkube.done` is written, on which the installer waits.
    ("pivot", "etcd-quorum", Told::InCluster(ClusterMoment::BootkubeDone)),
    ("pivot", "etcd-bootstrap-removed", Told::InCluster(ClusterMoment::EtcdBootstrapDone)),
    ("pivot", "bootstrap-in-place-ready", Told::InCluster(ClusterMoment::BootkubeDone)),
    ("pivot", "etcd-snapshot-restored", Told::InCluster(ClusterMoment::EtcdBootstrapDone)),
    ("pivot", "etcd-quorum-lost", Told::InCluster(ClusterMoment::EtcdQuorumLost)),
    ("pivot", "etcd-quorum-back", Told::InCluster(ClusterMoment::EtcdQuorumBack)),
    ("node", "ready", Told::InCluster(ClusterMoment::NodeReady)),
    ("controller", "controller-ready", Told::InCluster(ClusterMoment::ControllerReady)),
    ("installer", "reboot-now", Told::HostDid(HostMoment::Rebooting)),
    ("node", "booted-installed-os", Told::HostDid(HostMoment::BootedInstalledOs)),
    ("node", "booted-another-disk", Told::HostDid(HostMoment::BootedAnotherDisk)),
];

/// Name that begins what the programs of lab machines say on a console.
const PREFIX: &str = "vlab-node:";

/// What a line of a machine's console tells about a pivot; `None` for all others.
pub fn told(line: &str) -> Option<Told> {
    let at = line.find(PREFIX)?;
    let mut words = line[at + PREFIX.len()..].split_whitespace();
    let (part, what) = (words.next()?, words.next()?);
    LINES.iter().find(|(p, w, _)| *p == part && *w == what).map(|(_, _, told)| told.clone())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::history::Source;

    const C: Uuid = Uuid::from_u128(100);

    fn id(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    #[derive(Default)]
    struct Story(Vec<Observation>);

    impl Story {
        fn say(&mut self, what: What) {
            let n = self.0.len() as u64;
            let at = Timestamp::from_secs(i64::try_from(n).unwrap());
            self.0.push(Observation {
                v: crate::history::HISTORY_VERSION,
                seq: n,
                source: Source::Hosts,
                service_time: None,
                harness_time: at,
                what,
            });
        }
        fn roles(&mut self, roles: &[(u128, HostRole, bool)]) {
            for (n, role, bootstrap) in roles {
                self.say(What::HostRole { host: id(*n), role: *role, bootstrap: *bootstrap });
            }
        }
        fn inside(&mut self, host: Option<u128>, what: ClusterMoment) {
            self.say(What::InCluster { cluster: C, host: host.map(id), what });
        }
        fn reboots(&mut self, host: u128) {
            self.say(What::HostDid { host: id(host), what: HostMoment::Rebooting });
        }
        fn order(&self) -> Vec<PivotMoment> {
            let pivots = pivots(&self.0);
            let mut came: Vec<_> = pivots[&C].came.iter().map(|(m, c)| (c.seq, *m)).collect();
            came.sort();
            came.into_iter().map(|(_, m)| m).collect()
        }
    }

    fn masters() -> Story {
        let mut s = Story::default();
        let (m, w) = (HostRole::Master, HostRole::Worker);
        s.roles(&[(0, m, true), (1, m, false), (2, m, false), (3, w, false)]);
        s
    }

    #[test]
    fn the_moments_of_three_masters() {
        let mut s = masters();
        s.inside(Some(0), ClusterMoment::BootkubeStarted);
        s.inside(None, ClusterMoment::TemporaryControlPlaneUp);
        s.reboots(1);
        s.inside(Some(1), ClusterMoment::NodeReady);
        s.inside(Some(1), ClusterMoment::NodeReady);
        s.inside(Some(3), ClusterMoment::NodeReady);
        s.inside(Some(2), ClusterMoment::NodeReady);
        s.inside(None, ClusterMoment::BootkubeDone);
        s.inside(None, ClusterMoment::EtcdBootstrapDone);
        s.reboots(0);
        s.inside(Some(0), ClusterMoment::NodeReady);
        assert_eq!(s.order(), MULTI_NODE);
        let pivot = &pivots(&s.0)[&C];
        assert_eq!(pivot.came[&SecondMasterJoined].host, Some(id(2)));
        let began = pivot.began(MULTI_NODE, BootkubeDone).unwrap();
        assert_eq!(began, pivot.came[&SecondMasterJoined]);
        assert_eq!(pivot.began(MULTI_NODE, BootkubeStarted), None);
    }

    #[test]
    fn a_single_node_bootstraps_in_place() {
        let mut s = Story::default();
        s.roles(&[(0, HostRole::Master, true)]);
        s.inside(Some(0), ClusterMoment::BootkubeStarted);
        s.inside(None, ClusterMoment::TemporaryControlPlaneUp);
        s.inside(None, ClusterMoment::BootkubeDone);
        s.reboots(0);
        s.inside(None, ClusterMoment::EtcdBootstrapDone);
        s.inside(Some(0), ClusterMoment::NodeReady);
        s.inside(None, ClusterMoment::EtcdQuorumLost);
        assert_eq!(s.order(), SINGLE_NODE);
        assert_eq!(pivots(&s.0)[&C].quorum_lost, [], "what comes after the pivot is no part of it");
    }

    #[test]
    fn an_arbiter_counts_as_the_second_one() {
        let mut s = Story::default();
        let (m, a) = (HostRole::Master, HostRole::Arbiter);
        s.roles(&[(0, m, true), (1, m, false), (2, a, false)]);
        s.inside(Some(0), ClusterMoment::BootkubeStarted);
        s.inside(Some(2), ClusterMoment::NodeReady);
        s.inside(Some(1), ClusterMoment::NodeReady);
        assert_eq!(s.order(), [BootkubeStarted, FirstMasterJoined, SecondMasterJoined]);
    }

    #[test]
    fn another_start_of_bootkube_is_another_installation() {
        let mut s = masters();
        s.inside(Some(0), ClusterMoment::BootkubeStarted);
        s.inside(Some(1), ClusterMoment::NodeReady);
        s.inside(None, ClusterMoment::EtcdQuorumLost);
        s.inside(Some(0), ClusterMoment::BootkubeStarted);
        assert_eq!(s.order(), [BootkubeStarted]);
        assert_eq!(pivots(&s.0)[&C].quorum_lost, []);
    }

    #[test]
    fn a_pivot_without_bootkube_is_seen() {
        let mut s = masters();
        s.inside(None, ClusterMoment::EtcdBootstrapDone);
        assert_eq!(s.order(), [EtcdQuorum]);
    }

    #[rstest]
    #[case(
        "[   12.34] vlab-node: pivot etcd-quorum {\"members\":[]}\r",
        Some(Told::InCluster(ClusterMoment::BootkubeDone))
    )]
    #[case("vlab-node: node ready {\"name\":\"master-1\"}", Some(Told::InCluster(ClusterMoment::NodeReady)))]
    #[case("vlab-node: installer reboot-now {}", Some(Told::HostDid(HostMoment::Rebooting)))]
    #[case("vlab-node: node started {}", None)]
    #[case("vlab-node:", None)]
    #[case("systemd: bootkube-done", None)]
    fn lines_of_consoles(#[case] line: &str, #[case] expected: Option<Told>) {
        assert_eq!(told(line), expected);
    }
}
