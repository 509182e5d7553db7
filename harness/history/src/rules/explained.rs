//! Whether a history is what the tables allow: each change of a status and each word about it is explained by a rule whose guard
//! may have held, and no subject stays in a status that a rule leads out of whose guard certainly holds.
//!
//! It is read by the same reader as [`shown`](super::shown), so what a guard asks for is known in one place. What is not known is never held
//! against a service.

use super::*;

/// What is not explained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// How many changes, words and stays were looked at.
    pub checked: usize,
    /// What is not explained, with the observation (`seq`) that shows it: a host or a cluster, and what is wrong with it.
    pub problems: Vec<(u64, Uuid, String)>,
}

impl Explained {
    pub(super) fn check(&mut self, seq: u64, subject: Uuid, holds: bool, text: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.problems.push((seq, subject, text()));
        }
    }
}

/// So many rounds of its monitor a subject may stay where a rule leads it away from: it may be looked at just before, and what it
/// looks at may be written just after.
const ROUNDS: u32 = 3;

/// Compares a history with the tables; see the module. Only for the built-in service: another one has words of its own, and
/// leaves rows alone that nobody has touched.
pub fn explained(timeline: &Timeline<'_>, settings: &Settings) -> Explained {
    let mut reader = Reader::new(timeline, settings, false);
    reader.explained = Some(Explained::default());
    reader.read(timeline, timeline.observations);
    reader.explained.unwrap_or_default()
}

impl Reader<'_> {
    /// A host went from one status to another: may a rule have fired?
    pub(super) fn host_explained(&mut self, change: (Uuid, u64), (from, to): (HostState, HostStatus), fired: bool) {
        let (id, seq) = change;
        let Some(explained) = &mut self.explained else { return };
        let outside = host::OUTSIDE_THE_MACHINE.iter().any(|(f, t, _)| HostState::At(*f) == from && *t == to);
        explained.check(seq, id, fired || outside, || {
            format!("it went from {} to {to}, and no rule that leads there could fire", from.as_str())
        });
    }

    /// The service says this about a host in that status.
    pub(super) fn host_words(&mut self, id: Uuid, status: HostStatus, info: &str, seq: u64) {
        let Some(explained) = &mut self.explained else { return };
        let rules = host::RULES.iter().chain(host::POOL_RULES);
        let mut said = rules.filter(|r| r.to == HostState::At(status) && r.words != HostWords::Keep);
        let failed = status == HostStatus::Error && info.starts_with(host::STAGE_FAILED);
        // A stage that is reported is what a host of an installation says.
        let holds = failed || said.any(|r| r.words.could_say(info));
        explained.check(seq, id, holds, || format!("it is {status}, and no rule that leads there says {info:?}"));
    }

    /// The same about a cluster.
    pub(super) fn cluster_words(&mut self, id: Uuid, status: ClusterStatus, info: &str, seq: u64) {
        let Some(explained) = &mut self.explained else { return };
        let mut said = cluster::RULES.iter().filter(|r| r.to == status && r.words != ClusterWords::Keep);
        // What is made or changed without the machine has words of its own.
        let own = match status {
            ClusterStatus::AddingHosts => info == cluster::WORDS_OF_ADDING_HOSTS,
            ClusterStatus::Unmonitored => info == cluster::WORDS_OF_UNMONITORED,
            _ => false,
        };
        explained.check(seq, id, own || said.any(|r| r.words.could_say(info)), || {
            format!("it is {status}, and no rule that leads there says {info:?}")
        });
    }

    /// A cluster went from one status to another.
    pub(super) fn cluster_explained(
        &mut self,
        change: (Uuid, u64),
        (from, to): (ClusterStatus, ClusterStatus),
        found: &[usize],
    ) {
        let (id, seq) = change;
        let Some(explained) = &mut self.explained else { return };
        let outside = cluster::OUTSIDE_THE_MACHINE.iter().any(|(f, t, _)| (*f, *t) == (from, to));
        explained.check(seq, id, !found.is_empty() || outside, || {
            format!("it went from {from} to {to}, and no rule that leads there could fire")
        });
    }

    /// A host has stayed as it is for so long that its monitor must have looked at it: does a rule lead away from there?
    pub(super) fn host_may_stay(&mut self, id: Uuid, place: Place) {
        if self.explained.is_none() {
            return;
        }
        let Some(h) = self.hosts.get(&id) else { return };
        let Some(status) = h.status.filter(|status| !host::NOT_MONITORED.contains(status)) else { return };
        let interval = self.settings.host_monitor_interval * ROUNDS;
        // What held so long ago, and holds still, was seen.
        let Some(then) = self.long_ago(h.quiet_since, place.at, interval) else { return };
        let (_, table) = machine_of(h.cluster.is_none(), HostEvent::RefreshHost, HostState::At(status));
        let (earlier, now) = (Place { at: then, ..place }, place);
        let at = |place| HostChange { id, before: h, now: h, place };
        let condition = |c: HostCond| {
            let answers = (self.host_condition(c, &at(earlier)), self.host_condition(c, &at(now)));
            answers.0.filter(|_| answers.0 == answers.1)
        };
        let leads = certain(table, HostEvent::RefreshHost, HostState::At(status), &condition);
        let away = leads.filter(|rule| rule.to != HostState::At(status));
        let text = away.map(|rule| format!("it stays {status} although {:?} leads to {}", rule.name, rule.to.as_str()));
        if let Some(explained) = &mut self.explained {
            explained.check(place.seq, id, text.is_none(), || text.unwrap_or_default());
        }
    }

    /// The same for a cluster.
    pub(super) fn cluster_may_stay(&mut self, id: Uuid, place: Place) {
        if self.explained.is_none() {
            return;
        }
        let Some(c) = self.clusters.get(&id) else { return };
        let Some(status) = c.status else { return };
        let interval = self.settings.cluster_monitor_interval * ROUNDS;
        let Some(then) = self.long_ago(c.quiet_since, place.at, interval) else { return };
        let at = |at| ClusterChange { id, now: c, since: c.since, at };
        let condition = |asked: ClusterCond| {
            let answers = (self.cluster_condition(asked, &at(then)), self.cluster_condition(asked, &at(place.at)));
            answers.0.filter(|_| answers.0 == answers.1)
        };
        let leads = certain(cluster::RULES, ClusterEvent::RefreshStatus, status, &condition);
        let away = leads.filter(|rule| rule.to != status);
        let text = away.map(|rule| format!("it stays {status} although {:?} leads to {}", rule.name, rule.to));
        if let Some(explained) = &mut self.explained {
            explained.check(place.seq, id, text.is_none(), || text.unwrap_or_default());
        }
    }

    /// What was done or said, and that the machine was certainly asked about: a rule that leads elsewhere must have fired.
    pub(super) fn followed(&mut self) {
        if self.explained.is_none() {
            return;
        }
        let mut problems = Vec::new();
        let mut checked = 0;
        for ((subject, clue), times) in &self.evidence.0 {
            let Some(event) = clue.event() else { continue };
            for at in times {
                for (id, host) in &self.hosts {
                    let Some(past) = self.past(*id, *at).filter(|p| *id == *subject || p.cluster == Some(*subject))
                    else {
                        continue;
                    };
                    let Some(status) = past.status else { continue };
                    let (_, table) = machine_of(past.cluster.is_none(), event, HostState::At(status));
                    let condition = |_: HostCond| None;
                    let Some(rule) = certain(table, event, HostState::At(status), &condition) else { continue };
                    if rule.to == HostState::At(status) {
                        continue;
                    }
                    checked += 1;
                    let moved = |p: &&Past| p.status != Some(status) && p.at <= *at + AFTER && p.at + BEFORE >= *at;
                    if host.past.iter().find(moved).is_none() {
                        let text = format!("it stays {status} although {:?} leads to {}", rule.name, rule.to.as_str());
                        problems.push((*at, *id, text));
                    }
                }
            }
        }
        if let Some(explained) = &mut self.explained {
            explained.checked += checked;
            explained.problems.extend(problems.into_iter().map(|(_, id, text)| (0, id, text)));
        }
    }

    /// The time that lies `interval` before `at`, when the subject was quiet since and the service could look.
    fn long_ago(&self, quiet_since: Timestamp, at: Timestamp, interval: Duration) -> Option<Timestamp> {
        if self.quiet(quiet_since, at) < interval {
            return None;
        }
        Some(Timestamp::from_micros(at.as_micros() - i64::try_from(interval.as_micros()).ok()?))
    }
}

/// The row that certainly fires: the first whose guard may hold, if it certainly does.
fn certain<E: Copy + PartialEq, S: Copy + PartialEq, C: Copy, W, F>(
    table: &'static [Rule<E, S, C, W, F>],
    event: E,
    from: S,
    condition: &dyn Fn(C) -> Option<bool>,
) -> Option<&'static Rule<E, S, C, W, F>> {
    let rows = table.iter().filter(|r| r.event == event && r.from.contains(&from));
    let mut rows = rows.map(|r| (r, judge(&r.guard, condition))).skip_while(|(_, holds)| *holds == Some(false));
    rows.next().filter(|(_, holds)| *holds == Some(true)).map(|(rule, _)| rule)
}
