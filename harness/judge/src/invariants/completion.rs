//! How an installation is completed: what must have come before `finalizing` and before `installed`, and what belongs to an end.

use vlab_api::types::{ClusterStatus, HostRole, HostStage, HostStatus, OperatorStatus, OperatorType};

use super::Id;
use super::reader::{HostLine, Moment, Reader};

/// What was told of the ends of a cluster's installations.
#[derive(Clone, Copy, Default)]
pub(super) struct Ends {
    installed: End,
    failed: End,
    cancelled: End,
}

#[derive(Clone, Copy, Default)]
struct End {
    /// So often the cluster came to it, long enough ago for its event to be there.
    came: usize,
    /// So often it came to it at all.
    ever: usize,
    events: usize,
    seq: u64,
    /// That of the last event.
    told: u64,
}

impl Ends {
    fn of_status(&mut self, status: ClusterStatus) -> Option<&mut End> {
        match status {
            ClusterStatus::Installed => Some(&mut self.installed),
            ClusterStatus::Error => Some(&mut self.failed),
            ClusterStatus::Cancelled => Some(&mut self.cancelled),
            _ => None,
        }
    }

    /// An event of that name was told.
    pub(super) fn told(&mut self, name: &str, seq: u64) {
        let end = match name {
            "cluster_installation_completed" => &mut self.installed,
            "cluster_installation_failed" => &mut self.failed,
            "cluster_installation_canceled" => &mut self.cancelled,
            _ => return,
        };
        end.events += 1;
        end.told = seq;
    }
}

impl Reader<'_> {
    /// A monitored operator was told of by the database.
    pub(super) fn operator(
        &mut self,
        cluster: usize,
        name: &str,
        (kind, status): (Option<OperatorType>, Option<OperatorStatus>),
        moment: Moment,
    ) {
        self.cluster_worth(cluster, moment, true);
        let operators = &mut self.clusters[cluster].operators;
        match operators.iter_mut().find(|(of, ..)| of == name) {
            Some((_, of, at)) => (*of, *at) = (kind, status),
            None => operators.push((name.to_owned(), kind, status)),
        }
        if self.clusters[cluster].status == Some(ClusterStatus::Installed) {
            self.operators_first(cluster, moment);
        }
    }

    /// A cluster is installed: its built-in operators are available.
    pub(super) fn operators_first(&mut self, cluster: usize, moment: Moment) {
        let operators = &self.clusters[cluster].operators;
        let built_in = || operators.iter().filter(|(_, kind, _)| *kind == Some(OperatorType::Builtin));
        if built_in().next().is_none() {
            // One that was imported was installed elsewhere.
            if self.is_complete() && self.clusters[cluster].installations > 0 {
                let name = self.cluster_name(cluster);
                let problem = format!("cluster {name} is installed and nobody has told of its operators");
                self.must(Id::OperatorsFirst, cluster, moment, Some(problem));
            }
            return;
        }
        let missing: Vec<&str> = built_in()
            .filter(|(.., status)| *status != Some(OperatorStatus::Available))
            .map(|(name, ..)| name.as_str())
            .collect();
        let problem = (!missing.is_empty()).then(|| {
            let name = self.cluster_name(cluster);
            format!("cluster {name} is installed and its operators {} are not available", missing.join(", "))
        });
        self.must(Id::OperatorsFirst, cluster, moment, problem);
    }

    /// A cluster is finalizing: the hosts without which it is none are installed.
    pub(super) fn hosts_first(&mut self, cluster: usize, moment: Moment) {
        let members: Vec<&HostLine> = self.present(cluster).map(|host| &self.hosts[host]).collect();
        let known = members.iter().all(|host| host.role.is_some_and(|role| role != HostRole::AutoAssign));
        if members.is_empty() || !known || !self.is_complete() {
            return;
        }
        let count = |role| {
            let of = members.iter().filter(move |host| host.role == Some(role));
            (of.clone().count(), of.filter(|host| host.status == Some(HostStatus::Installed)).count())
        };
        let ((masters, of_masters), (arbiters, of_arbiters), (workers, of_workers)) =
            (count(HostRole::Master), count(HostRole::Arbiter), count(HostRole::Worker));
        // One worker alone may be missing: the control plane runs what it would.
        let needed_workers = if workers < 2 { 0 } else { 2 };
        let mut missing = Vec::new();
        for (what, has, needs) in [
            ("masters", of_masters, masters.max(1)),
            ("arbiters", of_arbiters, arbiters.min(1)),
            ("workers", of_workers, needed_workers),
        ] {
            if has < needs {
                missing.push(format!("{has} {what} of {needs} that it needs are installed"));
            }
        }
        let problem = (!missing.is_empty())
            .then(|| format!("cluster {} is finalizing when {}", self.cluster_name(cluster), missing.join(" and ")));
        self.must(Id::HostsFirst, cluster, moment, problem);
    }

    /// A cluster came to a status that may be an end.
    pub(super) fn ended(&mut self, cluster: usize, status: ClusterStatus, moment: Moment) {
        let owed = self.is_complete() && self.has_event(moment);
        if let Some(end) = self.clusters[cluster].ends.of_status(status) {
            end.ever += 1;
            if owed {
                end.came += 1;
                end.seq = moment.seq;
            }
        }
    }

    /// A host came to another status: were its logs seen to in the one that it leaves? The real service leaves hosts alone that
    /// nobody has touched for some minutes; and a cancelled single node was seen to wait for its logs longer than its setting says.
    pub(super) fn logs_of_end(&mut self, host: usize, moment: Moment) {
        let line = &mut self.hosts[host];
        let Some(since) = line.ended.take() else { return };
        let asked_for = line.logs.is_some();
        let limit = self.limits.settings.host_log_pending_timeout + self.limits.host_rounds(3);
        let took = moment.at.since(since.at);
        if !self.limits.built_in || self.was_away_between(since.at, moment.at) || (!asked_for && took <= limit) {
            return;
        }
        self.check(Id::EndComplete, since.seq, asked_for, |c| {
            let (name, took) = (c.host_name(host), took.as_secs_f64());
            format!("{name} came to its end and {took:.0} s later nothing is known of its logs")
        });
    }

    /// A host that is installed was done, at that time: both are written together.
    pub(super) fn done_when_installed(&mut self, host: usize) {
        if !self.is_complete() {
            return;
        }
        let Some(line) = self.timeline.hosts.get(&self.hosts[host].id) else { return };
        for status in line.statuses.iter().filter(|s| s.to == HostStatus::Installed) {
            let latest = status.at + self.limits.in_flight();
            let stage = line.stages.iter().rfind(|s| s.at <= latest).map(|s| s.to);
            self.check(Id::EndComplete, status.seq, stage == Some(HostStage::Done), |c| {
                let stage = stage.map_or("no stage", HostStage::as_str);
                format!("{} is installed and in stage {stage}", c.host_name(host))
            });
        }
    }

    /// Judges at the end of the history whether each end was told.
    pub(super) fn ends_told(&mut self, cluster: usize) {
        if self.events_until.is_none() || !self.is_complete() {
            return;
        }
        let Ends { installed, failed, cancelled } = self.clusters[cluster].ends;
        for (end, status, event) in [
            (installed, ClusterStatus::Installed, "cluster_installation_completed"),
            (failed, ClusterStatus::Error, "cluster_installation_failed"),
            (cancelled, ClusterStatus::Cancelled, "cluster_installation_canceled"),
        ] {
            if end.came > 0 {
                self.check(Id::EndComplete, end.seq, end.events >= end.came, |c| {
                    let (name, End { came, events, .. }) = (c.cluster_name(cluster), end);
                    format!("cluster {name} came to {status} {came} times and has {events} events {event}")
                });
            }
            // A user who cancels before anything is installed is told so, and the cluster is as it was before.
            if end.events > 0 && status != ClusterStatus::Cancelled {
                self.check(Id::EndComplete, end.told, end.events <= end.ever, |c| {
                    let (name, End { ever, events, .. }) = (c.cluster_name(cluster), end);
                    format!("cluster {name} came to {status} {ever} times only and has {events} events {event}")
                });
            }
        }
    }
}
