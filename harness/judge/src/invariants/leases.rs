//! Clusters whose addresses DHCP leases: their hosts are asked to renew the leases all the way through the installation.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{HostStatus, StepType};
use vlab_history::Timeline;
use vlab_history::timeline::HostLine;
use vlab_model::history::{Source, What};

use super::found::Found;
use super::limits::Limits;
use super::told::answers_come_late;
use super::{Invariant, InvariantResult};

/// The invariant.
pub(super) const LEASES: Invariant = Invariant {
    id: "leases-renewed",
    number: "I28",
    title: "where DHCP leases a cluster's addresses, its hosts are asked for them in each status on their way",
    needs: "a cluster whose addresses are leased, and the steps that its hosts were asked for",
};

/// In these a host is asked for them, once it is known in which network they are.
const ASKED_IN: &[HostStatus] = &[
    HostStatus::PendingForInput,
    HostStatus::Insufficient,
    HostStatus::Known,
    HostStatus::PreparingForInstallation,
    HostStatus::Installing,
    HostStatus::InstallingInProgress,
];

/// A status is not older than this when it decides what is asked, beside what is on its way.
const ANSWER: Duration = Duration::from_millis(10);

/// What a host was asked for at one time.
#[derive(Default)]
struct Asked {
    /// When, whether the leases were among it, and where that stands.
    polls: Vec<(Timestamp, bool, u64)>,
    /// Times in which it asked for instructions all the time, and the longest between two questions.
    stretches: Vec<(Timestamp, Timestamp, Duration)>,
}

/// Judges it.
pub(super) fn leases_renewed(timeline: &Timeline<'_>) -> InvariantResult {
    let mut found = Found::default();
    let leased = |host: &Uuid| {
        let cluster = timeline.directory.cluster_of.get(host);
        cluster.and_then(|cluster| timeline.clusters.get(cluster)).is_some_and(|line| line.vip_dhcp)
    };
    let mut hosts: BTreeMap<Uuid, Asked> = BTreeMap::new();
    let late = answers_come_late(timeline.observations);
    if timeline.truth == Source::Database && !late {
        for o in timeline.observations {
            match &o.what {
                What::Step { host, step_type, answered: None, .. } if leased(host) => {
                    let polls = &mut hosts.entry(*host).or_default().polls;
                    let is_it = step_type == StepType::DhcpLeaseAllocate.as_str();
                    match polls.last_mut() {
                        Some((at, any, _)) if *at == o.at() => *any |= is_it,
                        _ => polls.push((o.at(), is_it, o.seq)),
                    }
                }
                What::Polls { host, from, to, longest_ms, .. } if leased(host) => {
                    let stretch = (*from, *to, Duration::from_millis(*longest_ms));
                    hosts.entry(*host).or_default().stretches.push(stretch);
                }
                _ => {}
            }
        }
    }
    let limits = Limits::new(timeline.run);
    for (host, asked) in &hosts {
        // It is known in which network the addresses are when it is asked for them first.
        let first = asked.polls.iter().find(|(_, is_it, _)| *is_it).map(|(at, ..)| *at);
        if let (Some(line), Some(first)) = (timeline.hosts.get(host), first) {
            judge((timeline, &limits), (*host, line, asked), first, &mut found);
        }
    }
    found.result((&LEASES).into(), || match timeline.truth {
        _ if late => "not checked: answers come late on purpose".to_owned(),
        Source::Database => format!("the history does not show {}", LEASES.needs),
        _ => "not checked: states were polled".to_owned(),
    })
}

fn judge(
    (timeline, limits): (&Timeline<'_>, &Limits),
    (host, line, asked): (Uuid, &HostLine, &Asked),
    first: Timestamp,
    found: &mut Found,
) {
    let settled = ANSWER + limits.in_flight();
    for (n, status) in line.statuses.iter().enumerate().filter(|(_, status)| ASKED_IN.contains(&status.to)) {
        let since = status.at.max(first) + settled;
        let until = line.statuses.get(n + 1).map(|next| next.at);
        let is_within = |at: Timestamp| at >= since && until.is_none_or(|until| at + settled <= until);
        let polls: Vec<_> = asked.polls.iter().filter(|(at, ..)| is_within(*at)).collect();
        let lacks = || format!("{} is {} and was not asked for the leases", timeline.host_name(host), status.to);
        for (_, is_it, seq) in &polls {
            found.check(*seq, *is_it, lacks);
        }
        // Where nothing else is asked, too.
        let asks = asked.stretches.iter().any(|(from, to, longest)| {
            let (from, to) = ((*from).max(since), until.map_or(*to, |until| (*to).min(until)));
            to > from + *longest + settled * 2
        });
        if polls.is_empty() && asks {
            found.check(status.seq, false, lacks);
        }
    }
}
