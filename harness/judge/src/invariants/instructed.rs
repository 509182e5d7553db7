//! What a host is answered when it asks for instructions: all that its status asks of it, nothing else, and when to ask again.
//!
//! The answer does not say which status it is for. A host that moves just then may be answered for the status before or after,
//! so that a stretch of answers is wrong when no status that the host had then has them, or when one does not that it had for
//! so long that it must have asked in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostStatus, LogsState, StepType};
use vlab_history::Timeline;
use vlab_history::timeline::HostLine;
use vlab_model::history::{Source, What};
use vlab_model::host::plan::{self, Plan};

use super::found::Found;
use super::limits::Limits;
use super::told::hindered;
use super::{Invariant, InvariantResult};

/// The invariant.
pub(super) const INSTRUCTED: Invariant = Invariant {
    id: "asked-for-all",
    number: "I33",
    title: "a host is asked for all that its status asks of it and for nothing else, and to ask again when that says",
    needs: "the database's changes, and answers to simulated hosts that asked for instructions",
};

/// Answers to a host that are the same.
struct Stretch<'h> {
    host: Uuid,
    seq: u64,
    from: Timestamp,
    to: Timestamp,
    longest: Duration,
    steps: BTreeSet<&'h str>,
    next: i64,
    exit: bool,
}

/// What is needed beside the statuses.
struct Judge<'h> {
    timeline: &'h Timeline<'h>,
    limits: Limits,
    /// How far apart an answer and the time of a status may be that it was made for.
    slack: Duration,
    logs: BTreeMap<Uuid, Vec<(Timestamp, LogsState)>>,
    /// Where hosts came and went, it is not known who had whom to reach.
    changing: BTreeSet<Uuid>,
    members: BTreeMap<Uuid, BTreeSet<Uuid>>,
}

/// Judges it.
pub(super) fn asked_for_all(timeline: &Timeline<'_>) -> InvariantResult {
    let mut found = Found::default();
    if timeline.truth == Source::Database {
        let judge = Judge::new(timeline);
        let hindered = hindered(timeline.observations);
        for stretch in timeline.observations.iter().filter_map(|o| stretch(o.seq, &o.what)) {
            // A service that cannot read its database leaves out a step.
            let is_hindered = hindered.iter().any(|(from, to)| *from <= stretch.to && stretch.from <= *to);
            if let Some(line) = timeline.hosts.get(&stretch.host).filter(|_| !is_hindered) {
                judge.judge(&stretch, line, &mut found);
            }
        }
    }
    found.result((&INSTRUCTED).into(), || match timeline.truth {
        Source::Database => format!("the history does not show {}", INSTRUCTED.needs),
        _ => "not checked: states were polled".to_owned(),
    })
}

fn stretch(seq: u64, what: &What) -> Option<Stretch<'_>> {
    let What::Instructed { host, from, to, longest_ms, steps, next, exit, .. } = what else { return None };
    let (longest, steps) = (Duration::from_millis(*longest_ms), steps.iter().map(String::as_str).collect());
    Some(Stretch { host: *host, seq, from: *from, to: *to, longest, steps, next: *next, exit: *exit })
}

impl<'h> Judge<'h> {
    fn new(timeline: &'h Timeline<'h>) -> Self {
        let limits = Limits::new(timeline.run);
        let slack = limits.event_follows().max(limits.apart());
        let mut judge = Self {
            timeline,
            limits,
            slack,
            logs: BTreeMap::new(),
            changing: BTreeSet::new(),
            members: BTreeMap::new(),
        };
        let mut cluster_of: BTreeMap<Uuid, Uuid> = BTreeMap::new();
        for o in timeline.observations.iter().filter(|o| o.source == Source::Database) {
            match &o.what {
                What::HostLogs { host, state } => judge.logs.entry(*host).or_default().push((o.at(), *state)),
                What::HostStatus { host, cluster: Some(cluster), .. } => {
                    judge.members.entry(*cluster).or_default().insert(*host);
                    let before = cluster_of.insert(*host, *cluster).filter(|before| before != cluster);
                    judge.changing.extend(before.into_iter().flat_map(|before| [before, *cluster]));
                }
                What::HostDeleted { host } => judge.changing.extend(cluster_of.get(host)),
                _ => {}
            }
        }
        judge
    }

    fn judge(&self, stretch: &Stretch<'_>, line: &HostLine, found: &mut Found) {
        let (mut can_be, mut must_be) = (Vec::new(), Vec::new());
        for (n, status) in line.statuses.iter().enumerate() {
            let until = line.statuses.get(n + 1).map(|next| next.at);
            let ended = until.is_some_and(|until| until + self.slack < stretch.from);
            if ended || status.at > stretch.to + self.slack {
                continue;
            }
            let (from, to) = (status.at.max(stretch.from), until.map_or(stretch.to, |until| until.min(stretch.to)));
            can_be.push((to.since(from), status.to));
            if to > from + stretch.longest + self.slack * 2 {
                must_be.push((status.to, to - (stretch.longest + self.slack * 2)));
            }
        }
        // What was before the history began.
        if can_be.is_empty() || line.statuses.first().is_none_or(|first| first.at > stretch.from) {
            return;
        }
        let wrong = |status: &HostStatus, since| self.problem(stretch, line, *status, since);
        let problem = match must_be.iter().find_map(|(status, since)| wrong(status, *since)) {
            Some(problem) => Some(problem),
            None => {
                // Told is what is wrong for the one that it had longest.
                can_be.sort_unstable_by_key(|(time, _)| *time);
                let all = can_be.iter().map(|(_, status)| wrong(status, stretch.from - self.slack));
                all.into_iter().try_fold(None, |_, problem| problem.map(Some)).flatten()
            }
        };
        let name = || self.timeline.host_name(stretch.host);
        found.check(stretch.seq, problem.is_none(), || {
            let at = self.timeline.start().map_or(0.0, |start| stretch.from.since(start).as_secs_f64());
            format!("+{at:.3}s {} {}", name(), problem.unwrap_or_default())
        });
    }

    /// What is wrong with these answers in that status; `None`: nothing. `since`: what was so from then on was so in one of them.
    fn problem(&self, stretch: &Stretch<'_>, line: &HostLine, status: HostStatus, since: Timestamp) -> Option<String> {
        let plans = [false, true].map(|is_day2| plan::plan(status, is_day2));
        let is_added = self.is_added(stretch.host);
        let problem = |plan: &Plan| self.differs((stretch, since), line, status, plan);
        match problem(&plans[0]) {
            Some(_) if is_added => problem(&plans[1]),
            of_day1 => of_day1,
        }
        .map(|text| format!("is {status} and {text}"))
    }

    fn differs(
        &self,
        (stretch, since): (&Stretch<'_>, Timestamp),
        line: &HostLine,
        status: HostStatus,
        plan: &Plan,
    ) -> Option<String> {
        let upgrades = StepType::UpgradeAgent.as_str();
        if stretch.steps.iter().eq([&upgrades]) && plan::UPGRADES.contains(&status) {
            return None;
        }
        let is_asked = |kind: &str| plan.steps.iter().any(|step| step.as_str() == kind);
        if let Some(extra) = stretch.steps.iter().find(|kind| !is_asked(kind)) {
            return Some(format!("was asked for {extra}"));
        }
        if !self.limits.known {
            return None;
        }
        let settings = &self.limits.settings;
        let is_on = |step: &StepType| !settings.disabled_steps.iter().any(|off| off == step.as_str());
        let mut due = plan.steps.iter().filter(|step| is_on(step) && self.is_due((stretch, since), line, **step));
        if let Some(lacks) = due.find(|step| !stretch.steps.contains(step.as_str())) {
            return Some(format!("was not asked for {lacks}"));
        }
        let next = plan.pace.seconds(&settings.constants);
        if stretch.next != next {
            return Some(format!("was told to ask again after {} s, not {next} s", stretch.next));
        }
        (stretch.exit != plan.exit).then(|| match plan.exit {
            true => "its agent was not told to start over".to_owned(),
            false => "its agent was told to start over".to_owned(),
        })
    }

    /// Was that step due in one of these answers at least?
    fn is_due(&self, (stretch, since): (&Stretch<'_>, Timestamp), line: &HostLine, step: StepType) -> bool {
        match step {
            // Of the addresses of masters, which one that registered again has lost, the bootstrap is told, too.
            StepType::LogsGather => {
                let logs = self.logs.get(&stretch.host).map_or(&[][..], Vec::as_slice);
                let is_bootstrap = line.roles.iter().any(|role| role.to.1);
                let by_then = logs.iter().filter(|(at, _)| *at <= stretch.to + self.slack);
                let (before, then): (Vec<_>, Vec<_>) = by_then.partition(|(at, _)| *at + self.slack < stretch.from);
                let none = |(_, state): &&(Timestamp, LogsState)| *state == LogsState::Empty;
                !is_bootstrap && before.last().is_none_or(none) && then.iter().all(none)
            }
            StepType::ConnectivityCheck => self.has_neighbours(stretch, since),
            _ => plan::is_always_asked(step),
        }
    }

    /// Had it others to reach from that time on, until the end of these answers?
    fn has_neighbours(&self, stretch: &Stretch<'_>, since: Timestamp) -> bool {
        let Some(cluster) = self.timeline.directory.cluster_of.get(&stretch.host) else { return false };
        let Some(members) = self.members.get(cluster).filter(|_| !self.changing.contains(cluster)) else {
            return false;
        };
        let most = usize::try_from(self.limits.settings.constants.connectivity_checks_per_minute).unwrap_or(0);
        let is_reachable =
            |to: HostStatus| matches!(to, HostStatus::Known | HostStatus::Insufficient | HostStatus::PendingForInput);
        let until = stretch.to + self.slack;
        let is_there = |host: &Uuid| {
            let statuses = self.timeline.hosts.get(host).map_or(&[][..], |line| &line.statuses);
            let by_then = statuses.iter().rev().skip_while(|status| status.at > until);
            by_then.take_while(|status| is_reachable(status.to)).last().is_some_and(|status| status.at < since)
        };
        members.len() > 1 && members.len() <= most && members.iter().all(is_there)
    }

    /// Is its cluster one that is installed, and gets more hosts, at any time?
    fn is_added(&self, host: Uuid) -> bool {
        let cluster = self.timeline.directory.cluster_of.get(&host).and_then(|c| self.timeline.clusters.get(c));
        cluster.is_some_and(|line| line.statuses.iter().any(|s| s.to == ClusterStatus::AddingHosts))
    }
}
