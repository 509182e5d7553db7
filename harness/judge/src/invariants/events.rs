//! The events API: each change of a status has its event.

use std::time::Duration;

use super::Id;
use super::reader::{Counts, Moment, Reader};

/// The real service writes the event of a change after the change: 0.2 to 0.9 s later where ten processes share a processor
/// (measured). A younger change may be without its event when a history ends.
const EVENT_FOLLOWS: Duration = Duration::from_secs(2);

impl Reader<'_> {
    /// Counts a change that may have an event: `first` is the first that is seen of a host or cluster, which may have one of
    /// its own or not.
    pub(super) fn count_change(&self, counts: Counts, first: bool, moment: Moment) -> Counts {
        // A change that is younger than the last event that was read may have its event still to come.
        let judged = self.is_complete() && self.last_event.is_some_and(|last| last.since(moment.at) > EVENT_FOLLOWS);
        let owed = usize::from(!first && judged);
        Counts { changes: counts.changes + owed, spare: counts.spare + 1 - owed, ..counts }
    }

    /// Compares the changes with the events, at the end of the history.
    pub(super) fn one_event_each(&mut self) {
        if !self.is_complete() || self.last_event.is_none() {
            return;
        }
        for host in 0..self.hosts.len() {
            let (counts, seq) = (self.hosts[host].counts, self.hosts[host].last_seq);
            self.compare(counts, seq, |c| format!("host {}", c.host_name(host)));
        }
        for cluster in 0..self.clusters.len() {
            let (counts, seq) = (self.clusters[cluster].counts, self.clusters[cluster].last_seq);
            self.compare(counts, seq, |c| format!("cluster {}", c.cluster_name(cluster)));
        }
    }

    fn compare(&mut self, counts: Counts, seq: u64, name: impl Fn(&Self) -> String) {
        let Counts { changes, spare, events } = counts;
        if changes + spare == 0 && events == 0 {
            return;
        }
        let holds = (changes..=changes + spare).contains(&events);
        self.check(Id::OneEventEach, seq, holds, |c| {
            let most = if spare > 0 { format!(" to {}", changes + spare) } else { String::new() };
            format!("{} has {events} status events for {changes}{most} changes", name(c))
        });
    }
}
