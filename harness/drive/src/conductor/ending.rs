//! When a run is over, and how it ended.

use vlab_api::Timestamp;
use vlab_scenario::InstallMode;

use super::{Conductor, Ending};
use crate::journal::Entry;

impl Conductor {
    pub(super) fn deadline(&self, started: Timestamp) -> Timestamp {
        started + self.config.scenario.budgets.total.under(self.config.clock_scale)
    }

    /// Has the run come to its end, and how?
    pub fn ending(&mut self, now: Timestamp) -> Option<Ending> {
        let before = (self.satisfied_at, self.linger_until);
        let ending = self.comes_to_an_end(now);
        if before != (self.satisfied_at, self.linger_until) {
            self.enter(|| Entry::Ending { at: now.as_micros() });
        }
        ending
    }

    fn comes_to_an_end(&mut self, now: Timestamp) -> Option<Ending> {
        let started = self.started?;
        if let Some(reason) = self.user.fatal() {
            return Some(Ending::Stuck(reason.to_owned()));
        }
        if let Some(reason) = &self.dead {
            return Some(Ending::Dead(reason.clone()));
        }
        if self.satisfied_at.is_none() && std::mem::take(&mut self.look_at_until) {
            let clusters_ended = !self.config.scenario.until.clusters_ended || self.no_cluster_left();
            let seen = || self.until.iter().all(|t| t.complete(&self.directory).is_some());
            let named = || self.config.scenario.clusters.iter().all(|c| self.directory.clusters.contains_key(&c.name));
            if clusters_ended && seen() && named() {
                self.satisfied_at = Some(now);
            }
        }
        let until = &self.config.scenario.until;
        let rest_reached = until.rest.is_none() || self.rested_at(started).is_some_and(|at| at <= now);
        let at_reached = until.at.is_none_or(|span| started + span.under(self.config.clock_scale) <= now);
        if self.linger_until.is_none() && self.satisfied_at.is_some() && at_reached && rest_reached {
            // The service names 60 s between polls; hosts scale that.
            let poll = self.config.timing.next_instruction(60);
            self.linger_until = Some(now + poll * until.idle_polls + until.then.under(self.config.clock_scale));
        }
        if self.linger_until.is_some_and(|at| at <= now) {
            return Some(Ending::Complete);
        }
        if self.linger_until.is_none() && self.deadline(started) <= now {
            let mut waiting_for = match until.rest {
                Some(_) => self.rest.moving(&self.directory),
                None => self.clusters_left(),
            };
            for tracker in &self.until {
                if tracker.complete(&self.directory).is_none() {
                    waiting_for.extend(tracker.missing(&self.directory));
                }
            }
            waiting_for.dedup();
            return Some(Ending::OutOfTime { waiting_for });
        }
        None
    }

    /// When everything will have been at rest for as long as the scenario wants, if nothing more happens; `None` while something
    /// moves or is still to come, or when the scenario does not ask.
    pub(super) fn rested_at(&self, started: Timestamp) -> Option<Timestamp> {
        let wanted = self.config.scenario.until.rest?;
        let still = self.rest.is_still() && !self.user.has_plans() && !self.faults.has_plans();
        still.then(|| self.rest.since().unwrap_or(started) + wanted.under(self.config.clock_scale))
    }

    /// Since when the run only lingers (idle polls, `then`), if it does.
    pub fn lingering_since(&self) -> Option<Timestamp> {
        self.satisfied_at
    }

    /// Are all clusters that are to be installed at their end? Looked for from where one was left the last time.
    fn no_cluster_left(&mut self) -> bool {
        let clusters = &self.config.scenario.clusters;
        let left = |position: &usize| {
            let cluster = &clusters[*position];
            let id = self.directory.clusters.get(&cluster.name);
            cluster.install == InstallMode::Auto && id.is_none_or(|id| !self.ended_clusters.contains(id))
        };
        let found = (self.left_from..clusters.len()).chain(0..self.left_from).find(left);
        self.left_from = found.unwrap_or(0);
        found.is_none()
    }

    fn clusters_left(&self) -> Vec<String> {
        self.config
            .scenario
            .clusters
            .iter()
            .filter(|c| c.install == InstallMode::Auto)
            .filter(|c| self.directory.clusters.get(&c.name).is_none_or(|id| !self.ended_clusters.contains(id)))
            .map(|c| c.name.clone())
            .collect()
    }
}
