//! How long the monitors' looks take. Usually a look takes no time here, and a tick sees all that is due (see `monitor`). With a pace the
//! monitors are as slow as the real service's, for who asks what its intervals and batches do to a large fleet:
//!
//! * a pass goes over clusters in the order of their ids, one after the other, and then over the hosts of the pool; each look takes its
//!   time. The hosts of a cluster are looked at when its turn comes, and the next cluster's turn comes when all of them had their time;
//! * which clusters a pass sees is the real service's choice: all of them in the first pass and in the first of each five minutes, those that
//!   were touched within a quarter of an hour in the first of each minute, else those that were touched within five minutes;
//! * a pass that takes longer than the interval swallows ticks: the next one follows at once;
//! * the pass over clusters ends after four minutes, and the next one begins behind the cluster at which it ended. Where that cluster
//!   is not among those that the next pass sees, that pass sees nothing at all.
//!
//! Source: `internal/host/monitor.go`, `internal/cluster/cluster.go`, `internal/common/monitor_query_generator.go` and `pkg/thread` of the
//! real service. Rows are read when they are looked at; the real one reads a hundred clusters at a time.

use std::collections::VecDeque;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostStatus, LogsState};

use crate::Core;
use crate::monitor::{ceil_ms, tick};
use crate::rows::HostRow;

/// `CLUSTER_MONITOR_CYCLE_DEADLINE`.
const CYCLE_DEADLINE: Duration = Duration::from_secs(4 * 60);

/// How long a look takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// At one host.
    pub host: Duration,
    /// At one cluster.
    pub cluster: Duration,
}

/// Which monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Monitor {
    /// That of hosts.
    Hosts,
    /// That of clusters.
    Clusters,
}

/// A pass that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Of which monitor.
    pub monitor: Monitor,
    /// When it began.
    pub began: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// So many hosts, or clusters, were looked at.
    pub looked: u64,
    /// Its time was over before it had seen all.
    pub cut_short: bool,
}

#[derive(Debug)]
pub(crate) struct Paced {
    pace: Pace,
    hosts: Rounds,
    clusters: Rounds,
    over: Vec<Pass>,
}

/// The passes of one monitor.
#[derive(Debug, Default)]
struct Rounds {
    /// When the last one began.
    began: Option<Timestamp>,
    /// When it ended.
    free_from: Timestamp,
    going: Option<Going>,
    /// The last one had to end behind this cluster.
    resume_after: Option<Uuid>,
}

/// A pass that goes on.
#[derive(Debug)]
struct Going {
    began: Timestamp,
    /// When it looks at the next one, or ends.
    at: Timestamp,
    left: VecDeque<Next>,
    last: Option<Uuid>,
    looked: u64,
}

/// What is looked at next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// A cluster, or its hosts.
    Cluster(Uuid),
    /// The hosts of an infra-env that are in no cluster.
    Pool(Uuid),
}

/// Who must have been touched how recently to be seen by the pass that begins now; `None`: nobody must.
fn window(last: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let minute = |at: Timestamp| at.as_micros().div_euclid(60_000_000);
    let last = minute(last?);
    let now = minute(now);
    match () {
        () if last.div_euclid(5) != now.div_euclid(5) => None,
        () if last != now => Some(Duration::from_secs(15 * 60)),
        () => Some(Duration::from_secs(5 * 60)),
    }
}

/// Does this host bring its cluster before the monitor of hosts?
fn wants_a_look(row: &HostRow, of: ClusterStatus) -> bool {
    use HostStatus as S;
    let host = row.host();
    match host.status {
        S::Discovering
        | S::Known
        | S::Disconnected
        | S::Insufficient
        | S::PendingForInput
        | S::PreparingForInstallation
        | S::PreparingFailed
        | S::PreparingSuccessful
        | S::Installing
        | S::InstallingInProgress
        | S::InstallingPendingUserAction
        | S::ResettingPendingUserAction => true,
        S::Cancelled | S::Error => {
            !matches!(host.logs_info, None | Some(LogsState::Completed | LogsState::Timeout | LogsState::Empty))
        }
        S::Installed => of != ClusterStatus::Installed,
        _ => false,
    }
}

impl Core {
    /// Monitors take that long.
    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        let (hosts, clusters) = (Rounds::default(), Rounds::default());
        self.paced = Some(Paced { pace, hosts, clusters, over: Vec::new() });
        self.state.touches.begin();
        self
    }

    /// Passes that ended since the last call; only with a pace.
    pub fn take_passes(&mut self) -> Vec<Pass> {
        self.paced.as_mut().map(|paced| std::mem::take(&mut paced.over)).unwrap_or_default()
    }

    /// When a monitor with a pace has something to do next.
    pub(crate) fn next_look(&self) -> Option<Timestamp> {
        let paced = self.paced.as_ref()?;
        let hosts = self.next_of(Monitor::Hosts, &paced.hosts);
        let clusters = self.next_of(Monitor::Clusters, &paced.clusters);
        [hosts, clusters].into_iter().flatten().min()
    }

    fn next_of(&self, monitor: Monitor, rounds: &Rounds) -> Option<Timestamp> {
        if let Some(going) = &rounds.going {
            return Some(ceil_ms(going.at));
        }
        let settings = &self.config.settings;
        let (work, interval, phase) = match monitor {
            Monitor::Hosts => (self.state.host_agenda.next(), settings.host_monitor_interval, self.phases[0]),
            Monitor::Clusters => (self.state.cluster_agenda.next(), settings.cluster_monitor_interval, self.phases[1]),
        };
        let last = rounds.began.unwrap_or(self.last_host_tick);
        Some(tick(interval, phase, last, work?).max(ceil_ms(rounds.free_from)))
    }

    /// Does what monitors with a pace have to do by now.
    pub(crate) fn wake_at_pace(&mut self, now: Timestamp) {
        let Some(mut paced) = self.paced.take() else { return };
        let pace = paced.pace;
        let mut over = Vec::new();
        over.extend(self.go_round(now, Monitor::Hosts, pace, &mut paced.hosts));
        over.extend(self.go_round(now, Monitor::Clusters, pace, &mut paced.clusters));
        paced.over.extend(over);
        self.paced = Some(paced);
    }

    fn go_round(&mut self, now: Timestamp, monitor: Monitor, pace: Pace, rounds: &mut Rounds) -> Option<Pass> {
        if rounds.going.is_none() {
            if self.next_of(monitor, rounds).is_none_or(|at| at > now) {
                return None;
            }
            let left = self.seen_by(monitor, window(rounds.began, now), now, rounds.resume_after.take());
            rounds.began = Some(now);
            rounds.going = Some(Going { began: now, at: now, left, last: None, looked: 0 });
            match monitor {
                Monitor::Hosts => self.host_monitor_runs += 1,
                Monitor::Clusters => self.cluster_monitor_runs += 1,
            }
        }
        let mut going = rounds.going.take()?;
        while ceil_ms(going.at) <= now {
            let late = monitor == Monitor::Clusters && going.at.since(going.began) > CYCLE_DEADLINE;
            let cut_short = late && !going.left.is_empty();
            let Some(next) = going.left.pop_front().filter(|_| !cut_short) else {
                rounds.free_from = going.at;
                rounds.resume_after = going.last.filter(|_| cut_short);
                let took = going.at.since(going.began);
                return Some(Pass { monitor, began: going.began, took, looked: going.looked, cut_short });
            };
            let looked = self.look_at(now, monitor, next);
            going.looked += looked;
            going.at = going.at
                + match monitor {
                    Monitor::Hosts => pace.host * u32::try_from(looked).unwrap_or(u32::MAX),
                    Monitor::Clusters => pace.cluster,
                };
            if let Next::Cluster(id) = next {
                going.last = Some(id);
            }
        }
        rounds.going = Some(going);
        None
    }

    /// What a pass that begins now looks at, in its order.
    fn seen_by(
        &self,
        monitor: Monitor,
        window: Option<Duration>,
        now: Timestamp,
        resume_after: Option<Uuid>,
    ) -> VecDeque<Next> {
        let recent = |id: Uuid| match window {
            None => true,
            Some(window) => self.state.touches.of(id).is_some_and(|at| at + window > now),
        };
        let clusters = self.state.clusters_by_id().filter(|(id, row)| {
            let status = row.cluster().status;
            recent(**id)
                && match monitor {
                    Monitor::Hosts => self.state.hosts_of_cluster(**id).iter().any(|host| wants_a_look(host, status)),
                    Monitor::Clusters => {
                        let collected =
                            matches!(row.cluster().logs_info, Some(LogsState::Completed | LogsState::Timeout));
                        let over = matches!(status, ClusterStatus::Error | ClusterStatus::Cancelled) && collected;
                        status != ClusterStatus::Installed && !over
                    }
                }
        });
        let mut seen: VecDeque<Next> = clusters.map(|(id, _)| Next::Cluster(*id)).collect();
        if let Some(last) = resume_after {
            let place = seen.iter().position(|next| matches!(next, Next::Cluster(id) if *id == last));
            seen.drain(..place.map_or(seen.len(), |place| place + 1));
        }
        if monitor == Monitor::Hosts {
            seen.extend(self.state.infra_envs_with_a_pool().into_iter().filter(|id| recent(*id)).map(Next::Pool));
        }
        seen
    }

    /// Looks; how many looks that was.
    fn look_at(&mut self, now: Timestamp, monitor: Monitor, next: Next) -> u64 {
        let looked = match (monitor, next) {
            (Monitor::Hosts, Next::Cluster(id)) => {
                let keys = self.state.host_keys_of_cluster(id);
                let due: Vec<_> = keys.iter().filter(|key| self.state.host_agenda.take(**key, now)).copied().collect();
                self.look_at_hosts(now, due);
                keys.len()
            }
            (Monitor::Hosts, Next::Pool(id)) => {
                let keys = self.state.pool_keys(id);
                let due: Vec<_> = keys.iter().filter(|key| self.state.host_agenda.take(**key, now)).copied().collect();
                self.look_at_hosts(now, due);
                keys.len()
            }
            (Monitor::Clusters, Next::Cluster(id)) => {
                if self.state.cluster_agenda.take(id, now) {
                    self.look_at_cluster(now, id);
                }
                1
            }
            (Monitor::Clusters, Next::Pool(_)) => 0,
        };
        self.state.end_unit();
        looked as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pass_sees_depends_on_the_clock() {
        let at = |minute: i64, second: i64| Timestamp::from_secs(minute * 60 + second);
        let minutes = |minutes: u64| Some(Duration::from_secs(minutes * 60));
        assert_eq!(window(None, at(3, 0)), None);
        assert_eq!(window(Some(at(3, 0)), at(3, 8)), minutes(5));
        assert_eq!(window(Some(at(3, 56)), at(4, 4)), minutes(15));
        assert_eq!(window(Some(at(4, 56)), at(5, 4)), None);
        assert_eq!(window(Some(at(1, 0)), at(17, 0)), None);
    }
}
