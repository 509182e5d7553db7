//! Silence: who does not ask for instructions for too long is disconnected, and nobody else is.
//!
//! When hosts asked is known from where they ask, and not from the service ([`What::Polls`]). The service has noted a question
//! some time between its being sent and its being answered; what it may have noted of one that was not answered counts for the
//! host where it must be disconnected, and not where it must not.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{HostRole, HostStatus};
use vlab_history::timeline::{HostLine, StateChange};
use vlab_history::{Timeline, watched_until};
use vlab_model::history::{HostsKind, Source, What};
use vlab_model::host::{self, HostEvent, HostRule, HostState};
use vlab_model::validation::ValidationStatus;

use super::found::Found;
use super::limits::Limits;
use super::told::{hindered, one_between, outages};
use super::{Id, InvariantResult};

/// A host that must be disconnected is within so many rounds of the monitor: the one that sees it may be late.
const ROUNDS: u32 = 3;

/// No request takes longer in virtual time, but for those that a fault holds up.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// Times between two silences.
struct Stretch {
    from: Timestamp,
    to: Timestamp,
    longest: Duration,
    tried: Timestamp,
}

/// In these a host that is silent becomes disconnected, by the rules of the machines.
static WAITED_FOR: LazyLock<Vec<HostStatus>> = LazyLock::new(|| {
    let leads = |rule: &&HostRule| {
        let gone = [HostStatus::Disconnected, HostStatus::DisconnectedUnbound];
        rule.event == HostEvent::RefreshHost && matches!(rule.to, HostState::At(to) if gone.contains(&to))
    };
    let from = host::RULES.iter().chain(host::POOL_RULES).filter(leads).flat_map(|rule| rule.from);
    from.filter_map(|state| match state {
        HostState::At(status) if !is_gone(*status) && !host::NOT_MONITORED.contains(status) => Some(*status),
        _ => None,
    })
    .collect()
});

fn is_gone(status: HostStatus) -> bool {
    matches!(status, HostStatus::Disconnected | HostStatus::DisconnectedUnbound)
}

struct Judge<'h> {
    timeline: &'h Timeline<'h>,
    limits: Limits,
    /// The service or its database was away: it may not have seen in time who is silent.
    outages: Vec<(Timestamp, Timestamp)>,
    /// When: what was asked then may be noted later, or never.
    away: Vec<(Timestamp, Timestamp)>,
    end: Timestamp,
    deleted: BTreeMap<Uuid, Vec<Timestamp>>,
    /// When the service told that a host's medium is gone: it is disconnected at once, and its validation fails later.
    lost_media: BTreeMap<Uuid, Vec<Timestamp>>,
    found: Found,
}

/// Judges it.
pub(super) fn silence_disconnects(timeline: &Timeline<'_>) -> InvariantResult {
    let of = Id::SilenceDisconnects.named();
    if timeline.truth != Source::Database {
        return Found::default()
            .result(of, || "not checked: states were polled, so that nobody knows when they changed".to_owned());
    }
    let mut asked: BTreeMap<Uuid, Vec<Stretch>> = BTreeMap::new();
    let mut deleted: BTreeMap<Uuid, Vec<Timestamp>> = BTreeMap::new();
    for o in timeline.observations {
        match o.what {
            What::Polls { host, from, to, longest_ms, tried, .. } => {
                let longest = Duration::from_millis(longest_ms);
                asked.entry(host).or_default().push(Stretch { from, to, longest, tried });
            }
            What::HostDeleted { host } if o.source == Source::Database => deleted.entry(host).or_default().push(o.at()),
            _ => {}
        }
    }
    let mut lost_media: BTreeMap<Uuid, Vec<Timestamp>> = BTreeMap::new();
    for o in timeline.observations {
        if let (What::Event { name, host: Some(host), .. }, Some(at)) = (&o.what, o.service_time)
            && name == "host_media_disconnected"
        {
            lost_media.entry(*host).or_default().push(at);
        }
    }
    let mut judge = Judge {
        timeline,
        limits: Limits::new(timeline.run),
        outages: outages(timeline.observations),
        away: hindered(timeline.observations),
        end: watched_until(timeline.observations),
        deleted,
        lost_media,
        found: Found::default(),
    };
    for (host, stretches) in &asked {
        if let Some(line) = timeline.hosts.get(host) {
            judge.not_sooner(*host, line, stretches);
            judge.in_time(*host, line, stretches);
        }
    }
    judge.found.result(of, || match timeline.run.map(|run| &run.hosts) {
        Some(HostsKind::Vm) => {
            "not checked: machines ask for instructions where the harness does not hear it".to_owned()
        }
        _ if asked.is_empty() => "not checked: the history does not say when hosts asked for instructions".to_owned(),
        _ => "no host was silent".to_owned(),
    })
}

impl Judge<'_> {
    /// Two things that the service did within a round of its monitor.
    fn is_then(&self, told: Timestamp, at: Timestamp) -> bool {
        told.since(at).max(at.since(told)) <= self.limits.host_rounds(ROUNDS)
    }

    /// Was it the bootstrap, which has more time, all through that time or never? `None`: nobody knows.
    fn is_bootstrap(&self, line: &HostLine, from: Timestamp, to: Timestamp) -> Option<bool> {
        if !self.limits.known {
            return None;
        }
        let rounds = self.limits.host_rounds(ROUNDS);
        let then = line.roles.iter().rfind(|role| role.at + rounds <= from)?.to.1;
        let changes = |role: &StateChange<(HostRole, bool)>| role.at + rounds > from && role.at <= to + rounds;
        line.roles.iter().filter(|role| changes(role)).all(|role| role.to.1 == then).then_some(then)
    }

    /// Nobody is disconnected who has asked lately.
    fn not_sooner(&mut self, host: Uuid, line: &HostLine, stretches: &[Stretch]) {
        let statuses = line.statuses.iter().filter(|s| is_gone(s.to)).map(|s| (s.at, s.seq));
        let failed = |s: &&StateChange<Option<ValidationStatus>>| s.to == Some(ValidationStatus::Failure);
        let values = |id: &str| line.validations.get(id).into_iter().flatten();
        let connections = values("connected").filter(failed).map(|s| (s.at, s.seq));
        let mut called_gone: Vec<(Timestamp, u64)> = statuses.chain(connections).collect();
        called_gone.sort_unstable();
        for (at, seq) in called_gone {
            let least = self.limits.settings.max_disconnection(self.is_bootstrap(line, at, at).unwrap_or(false));
            // It may be its medium that is gone.
            let medium = values("media-connected").rfind(|s| s.at <= at).is_some_and(|s| failed(&s))
                || self.lost_media.get(&host).is_some_and(|lost| lost.iter().any(|then| self.is_then(*then, at)));
            // A question that is still on its way is not heard yet.
            let in_flight = self.limits.in_flight().max(ON_ITS_WAY);
            let Some(last) = stretches.iter().rfind(|s| s.from + in_flight < at).filter(|_| !medium) else { continue };
            let inside = at <= last.to;
            if inside && last.longest >= least {
                // It was silent so long at some time: nobody knows whether at this.
                continue;
            }
            let silent = at.since(last.to) + self.limits.in_flight() + Duration::from_millis(1);
            if self.away.iter().any(|(from, to)| *from <= last.to && last.to <= *to) {
                continue;
            }
            let holds = !inside && silent >= least;
            let name = || self.timeline.host_name(host);
            self.found.check(seq, holds, || {
                let (after, least) = (at.since(last.to).as_secs_f64(), least.as_secs_f64());
                match inside {
                    true => format!("{} is disconnected, and asks for instructions all the time", name()),
                    false => format!("{} is disconnected {after:.0} s after it asked, and not {least:.0} s", name()),
                }
            });
        }
    }

    /// Who is silent is disconnected in time, where the service waits for it.
    fn in_time(&mut self, host: Uuid, line: &HostLine, stretches: &[Stretch]) {
        let rounds = self.limits.next_host_round(ROUNDS) + ON_ITS_WAY;
        let none = Vec::new();
        let deleted = self.deleted.get(&host).unwrap_or(&none);
        for (n, stretch) in stretches.iter().enumerate() {
            let back = stretches.get(n + 1).map_or(self.end, |next| next.from);
            let is_bootstrap = self.is_bootstrap(line, stretch.tried, back);
            let most = self.limits.settings.max_disconnection(is_bootstrap.unwrap_or(true));
            let gone = stretch.tried + most;
            for (i, state) in line.statuses.iter().enumerate().filter(|(_, s)| WAITED_FOR.contains(&s.to)) {
                let next = line.statuses.get(i + 1);
                let removed = deleted.iter().copied().find(|at| *at >= state.at);
                let left = [next.map(|s| s.at), removed, Some(back)].into_iter().flatten().min().unwrap_or(back);
                let since = state.at.max(gone);
                // A service that was away in between has had less time.
                if left <= since || one_between(&self.outages, stretch.tried, left) {
                    continue;
                }
                let late = left > since + rounds;
                let (name, silent) = (self.timeline.host_name(host), left.since(stretch.tried).as_secs_f64());
                self.found.check(state.seq, !late, || {
                    format!("{name} has been silent for {silent:.0} s and is still {}", state.to)
                });
            }
        }
    }
}
