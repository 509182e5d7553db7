//! The events API: each change of a status has the event that tells it, and each such event a change.

use std::collections::BTreeMap;

use vlab_history::merge::ToldByEvent;
use vlab_history::merge::told;
use vlab_model::history::{HistoryPart, Observation, What};

use super::Id;
use super::reader::{Moment, Reader};

/// How often something happened, and how often it was told.
#[derive(Clone, Copy, Default)]
struct Count {
    /// Changes that must have an event.
    owed: usize,
    /// Changes that may have one.
    spare: usize,
    events: usize,
    /// Where in the history the last of them is.
    seq: u64,
}

/// Changes of the status of one host or cluster, and the events about them. Statuses are their own numbers.
#[derive(Default)]
pub(super) struct Ledger {
    /// By the status before, where events name it, and the one after.
    by_change: BTreeMap<(Option<u32>, u32), Count>,
    /// Events in words that are not known.
    unread: usize,
    last_seq: u64,
}

impl Ledger {
    fn count(&mut self, from: Option<u32>, to: u32, seq: u64) -> &mut Count {
        self.last_seq = seq;
        let count = self.by_change.entry((from, to)).or_default();
        count.seq = seq;
        count
    }

    /// A status changed; `owed`: long enough ago for its event to be there.
    pub(super) fn changed(&mut self, from: Option<u32>, to: u32, owed: bool, seq: u64) {
        let count = self.count(from, to, seq);
        if owed {
            count.owed += 1;
        } else {
            count.spare += 1;
        }
    }

    /// Something was seen for the first time, in that status, which may have an event of its own.
    pub(super) fn began(&mut self, to: u32, seq: u64) {
        self.count(None, to, seq).spare += 1;
    }

    /// An event tells of a change.
    pub(super) fn told(&mut self, from: Option<u32>, to: u32, seq: u64) {
        self.count(from, to, seq).events += 1;
    }

    /// An event tells of a change in words that are not known.
    pub(super) fn unread(&mut self, seq: u64) {
        self.unread += 1;
        self.last_seq = seq;
    }
}

/// Until when events are known: they are read in the last look, unless that failed; without one up to the last that was read.
pub(super) fn known_until(history: &[Observation]) -> Option<vlab_api::Timestamp> {
    let failed = history
        .iter()
        .any(|o| matches!(&o.what, What::Incomplete { part: HistoryPart::Events | HistoryPart::LastLook, .. }));
    let look = history.iter().rev().find(|o| matches!(o.what, What::LastLook {})).filter(|_| !failed);
    let last_event = || history.iter().filter(|o| matches!(o.what, What::Event { .. })).map(Observation::at).max();
    look.map(|look| look.harness_time).or_else(last_event)
}

impl Reader<'_> {
    /// Must a change of that moment have its event in this history?
    pub(super) fn has_event(&self, moment: Moment) -> bool {
        self.events_until.is_some_and(|until| moment.at + self.limits.event_follows() < until)
    }

    /// An event about the status of a host was told.
    pub(super) fn host_status_told(&mut self, host: usize, message: &str, moment: Moment) {
        let ledger = &mut self.hosts[host].ledger;
        match told("host_status_updated", message) {
            Some(ToldByEvent::HostStatus(from, to, _)) => ledger.told(Some(from as u32), to as u32, moment.seq),
            _ => ledger.unread(moment.seq),
        }
    }

    /// The same of a cluster: such events do not name the status before.
    pub(super) fn cluster_status_told(&mut self, cluster: usize, message: &str, moment: Moment) {
        let ledger = &mut self.clusters[cluster].ledger;
        match told("cluster_status_updated", message) {
            Some(ToldByEvent::ClusterStatus(to)) => ledger.told(None, to as u32, moment.seq),
            _ => ledger.unread(moment.seq),
        }
    }

    /// Compares the changes with the events, at the end of the history.
    pub(super) fn one_event_each(&mut self) {
        if !self.is_complete() || self.events_until.is_none() {
            return;
        }
        let host_word = |status: u32| {
            vlab_api::types::HostStatus::ALL.iter().find(|s| **s as u32 == status).map_or("", |s| s.as_str())
        };
        let cluster_word = |status: u32| {
            vlab_api::types::ClusterStatus::ALL.iter().find(|s| **s as u32 == status).map_or("", |s| s.as_str())
        };
        for host in 0..self.hosts.len() {
            let ledger = std::mem::take(&mut self.hosts[host].ledger);
            self.compare(&ledger, host_word, |c| format!("host {}", c.host_name(host)));
        }
        for cluster in 0..self.clusters.len() {
            let ledger = std::mem::take(&mut self.clusters[cluster].ledger);
            self.compare(&ledger, cluster_word, |c| format!("cluster {}", c.cluster_name(cluster)));
        }
    }

    fn compare(&mut self, ledger: &Ledger, word: impl Fn(u32) -> &'static str, name: impl Fn(&Self) -> String) {
        // What is told in words that are not known may be any of those that nothing else tells.
        let mut unread = ledger.unread;
        for ((from, to), count) in &ledger.by_change {
            let silent = count.owed.saturating_sub(count.events);
            let read = silent.min(unread);
            unread -= read;
            let holds = silent == read && count.events <= count.owed + count.spare;
            self.check(Id::OneEventEach, count.seq, holds, |c| {
                let from = from.map(|from| format!("from {} ", word(from))).unwrap_or_default();
                let (events, changes, to) = (count.events, count.owed, word(*to));
                let most = if count.spare > 0 { format!(" to {}", changes + count.spare) } else { String::new() };
                format!("{} has {events} status events for {changes}{most} changes {from}to {to}", name(c))
            });
        }
        let spare: usize = ledger.by_change.values().map(|count| count.spare).sum();
        if ledger.unread > 0 {
            self.check(Id::OneEventEach, ledger.last_seq, unread <= spare, |c| {
                format!("{} has {unread} status events more than changes", name(c))
            });
        }
    }
}
