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
use super::told::LateAnswers;
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
struct Poll {
    at: Timestamp,
    /// Were the leases among it?
    has_leases: bool,
    /// Where that stands.
    seq: u64,
    /// It may be for a status of long before.
    is_late: bool,
}

/// What a host was asked for.
#[derive(Default)]
struct Asked {
    polls: Vec<Poll>,
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
    let late_answers = LateAnswers::new(timeline.observations);
    if timeline.truth == Source::Database {
        for o in timeline.observations {
            match &o.what {
                What::Step { host, step_type, answered: None, .. } if leased(host) => {
                    let polls = &mut hosts.entry(*host).or_default().polls;
                    let (at, has_leases) = (o.at(), step_type == StepType::DhcpLeaseAllocate.as_str());
                    match polls.last_mut() {
                        Some(poll) if poll.at == at => poll.has_leases |= has_leases,
                        last => {
                            let is_late = late_answers.may_be_late(last.map(|poll| poll.at), at);
                            polls.push(Poll { at, has_leases, seq: o.seq, is_late });
                        }
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
        let first = asked.polls.iter().find(|poll| poll.has_leases).map(|poll| poll.at);
        if let (Some(line), Some(first)) = (timeline.hosts.get(host), first) {
            judge((timeline, &limits), (*host, line, asked), first, &mut found);
        }
    }
    found.result((&LEASES).into(), || match timeline.truth {
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
        let polls: Vec<_> = asked.polls.iter().filter(|poll| is_within(poll.at)).collect();
        let lacks = || format!("{} is {} and was not asked for the leases", timeline.host_name(host), status.to);
        for poll in polls.iter().filter(|poll| !poll.is_late) {
            found.check(poll.seq, poll.has_leases, lacks);
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
