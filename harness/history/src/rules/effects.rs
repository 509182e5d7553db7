//! What a rule does beside the status: where it is certain which rule fired, what it does is looked for at the same time.

use vlab_model::history::FaultPhase;

use super::*;

/// Members, percentages and tries of the user, with their times: what the effects of rules are read from.
#[derive(Default)]
pub(super) struct Traces {
    /// Values of members of rows.
    members: BTreeMap<(Uuid, String), Vec<(Timestamp, String)>>,
    /// A cluster's percentage.
    totals: BTreeMap<Uuid, Vec<(Timestamp, i64)>>,
    /// What the user tried, whatever came of it.
    tries: BTreeMap<(Uuid, ActionKind), Vec<Timestamp>>,
    /// Logs came.
    uploads: BTreeMap<Uuid, Vec<Timestamp>>,
    /// Something was wrong on purpose: hosts may have asked, and have heard of no answer.
    faulty: bool,
    /// It is told what hosts were asked and answered.
    steps: bool,
}

/// An answer may come so long after what it answers, or get lost and be given up.
const GIVEN_UP: Duration = Duration::from_secs(180);

impl Traces {
    pub(super) fn of(history: &[Observation]) -> Self {
        let mut traces = Self::default();
        for o in history {
            match &o.what {
                What::Member { subject, name, value, .. } if o.source == Source::Database => {
                    traces.members.entry((*subject, name.clone())).or_default().push((o.at(), value.clone()));
                }
                // What it had is gone with it; what it has when it comes back is told anew.
                What::HostDeleted { host } if o.source == Source::Database => {
                    let of_it = traces.members.iter_mut().filter(|((subject, _), _)| subject == host);
                    of_it.for_each(|(_, values)| values.push((o.at(), String::new())));
                }
                What::ClusterProgress { cluster, total } if o.source == Source::Database => {
                    traces.totals.entry(*cluster).or_default().push((o.at(), *total));
                }
                What::UserAction { action: UserVerb::Action(kind), subject: Some(subject), .. } => {
                    traces.tries.entry((*subject, *kind)).or_default().push(o.at());
                }
                What::Event { name, host: Some(subject), .. } if name == "host_logs_uploaded" => {
                    traces.uploads.entry(*subject).or_default().push(o.at());
                }
                What::Fault { .. } | What::Interleaved { .. } => traces.faulty = true,
                What::Step { .. } => traces.steps = true,
                _ => {}
            }
        }
        traces
    }

    /// What a member is at that time; `None`: nothing was told of it.
    fn member(&self, subject: Uuid, name: &str, at: Timestamp) -> Option<&str> {
        let values = self.members.get(&(subject, name.to_owned()))?;
        values.iter().rfind(|(t, _)| *t <= at).map(|(_, value)| value.as_str())
    }

    /// Was it written at that time?
    fn is_written(&self, subject: Uuid, name: &str, at: Timestamp) -> bool {
        let values = self.members.get(&(subject, name.to_owned())).into_iter().flatten();
        values.into_iter().any(|(t, value)| *t == at && !value.is_empty())
    }

    fn total(&self, cluster: Uuid, at: Timestamp) -> i64 {
        let mut values = self.totals.get(&cluster).into_iter().flatten();
        values.rfind(|(t, _)| *t <= at).map_or(0, |(_, total)| *total)
    }

    fn tried(&self, subject: Uuid, kind: ActionKind, at: Timestamp) -> bool {
        self.tries.get(&(subject, kind)).is_some_and(|times| {
            times.iter().any(|t| if *t < at { at.since(*t) <= AFTER } else { t.since(at) <= GIVEN_UP })
        })
    }
}

/// What the user does so that a host's machine is asked this.
fn deed_of_host(event: HostEvent) -> Option<ActionKind> {
    Some(match event {
        HostEvent::CancelInstallation => ActionKind::Cancel,
        HostEvent::ResettingPendingUserAction => ActionKind::Reset,
        HostEvent::UnbindHost | HostEvent::ReclaimHost => ActionKind::Unbind,
        HostEvent::BindHost => ActionKind::Bind,
        HostEvent::InstallHost => ActionKind::InstallHost,
        _ => return None,
    })
}

impl Reader<'_> {
    /// May the host's machine have been asked that, although nothing in the history says so for certain?
    pub(super) fn may_be_asked(&self, event: HostEvent, change: &HostChange<'_>, reported: bool) -> bool {
        let HostChange { id, before, now, place, .. } = *change;
        match (event, deed_of_host(event)) {
            (HostEvent::RefreshHost, _) => false,
            (HostEvent::HostProgressChanged, _) => reported,
            (_, Some(deed)) => {
                let subjects = [Some(id), before.cluster, now.cluster];
                subjects.into_iter().flatten().any(|subject| self.traces.tried(subject, deed, place.at))
            }
            (HostEvent::RegisterHost, _) => {
                self.traces.faulty || self.evidence.near(id, Clue::Register, place.at, BEFORE, AFTER)
            }
            (HostEvent::MediaDisconnect, _) => self.traces.faulty,
            (HostEvent::RebootingForReclaim, _) => self.may_have_answered(id, Clue::Fetched, place.at),
            (HostEvent::ReclaimHostFailed, _) => self.may_have_answered(id, Clue::FetchFailed, place.at),
            (HostEvent::HostInstallationFailed, _) => {
                self.traces.faulty || self.evidence.near(id, Clue::InstallFailed, place.at, AFTER, BEFORE)
            }
            _ => false,
        }
    }

    /// May the service have taken such an answer of the host to a step then?
    fn may_have_answered(&self, id: Uuid, clue: Clue, at: Timestamp) -> bool {
        let on_its_way = if self.traces.faulty { GIVEN_UP } else { AFTER };
        !self.traces.steps || self.evidence.near(id, clue, at, on_its_way, BEFORE)
    }

    /// The same of a cluster's machine.
    pub(super) fn cluster_may_be_asked(&self, event: ClusterEvent, cluster: Uuid, at: Timestamp) -> bool {
        let deed = match event {
            ClusterEvent::PrepareForInstallation => ActionKind::Install,
            ClusterEvent::CancelInstallation => ActionKind::Cancel,
            ClusterEvent::ResetCluster => ActionKind::Reset,
            ClusterEvent::RefreshStatus => return false,
        };
        self.traces.tried(cluster, deed, at)
    }

    /// A rule of a host certainly fired: it did what it does.
    pub(super) fn host_effects(&mut self, change: &HostChange<'_>, rule: &'static HostRule) {
        if self.explained.is_none() {
            return;
        }
        let HostChange { id, now, place: Place { at, seq }, .. } = *change;
        for effect in rule.effects {
            let gone = |name: &str| self.traces.member(id, name, at).unwrap_or_default().is_empty();
            let done = match effect {
                HostEffect::ForgetInventory => gone("inventory"),
                HostEffect::ForgetTimeSources => gone("ntp_sources"),
                HostEffect::ForgetProgress => now.stage.is_none() && gone("images_status"),
                HostEffect::ForgetLogs => {
                    matches!(now.logs, None | Some(LogsState::Empty)) && gone("logs_collected_at")
                }
                HostEffect::LeaveCluster => now.cluster.is_none(),
                HostEffect::RestartClusterPreparation => {
                    let prepared = now.cluster.and_then(|c| self.traces.member(c, "last-installation-preparation", at));
                    prepared.is_none_or(|status| status == "not_started")
                }
                _ => continue,
            };
            if let Some(explained) = &mut self.explained {
                explained.check(seq, id, done, || format!("{:?} fired and did not do {effect:?}", rule.name));
            }
        }
    }

    /// The same of a cluster.
    pub(super) fn cluster_effects(&mut self, id: Uuid, now: &ClusterNow, rule: &'static ClusterRule, place: Place) {
        if self.explained.is_none() {
            return;
        }
        let Place { at, seq } = place;
        for effect in rule.effects {
            let done = match effect {
                ClusterEffect::BeginInstallation => self.traces.is_written(id, "install_started_at", at),
                ClusterEffect::EndInstallation => self.traces.is_written(id, "install_completed_at", at),
                ClusterEffect::RestartFinalizingStage => {
                    now.finalizing.is_none() || self.traces.is_written(id, "finalizing_stage_started_at", at)
                }
                ClusterEffect::CompleteProgress => self.traces.total(id, at) == 100,
                ClusterEffect::ForgetInstallation => {
                    self.traces.total(id, at) == 0 && matches!(now.logs, None | Some(LogsState::Empty))
                }
                _ => continue,
            };
            if let Some(explained) = &mut self.explained {
                explained.check(seq, id, done, || format!("{:?} fired and did not do {effect:?}", rule.name));
            }
        }
    }

    /// With soft timeouts it is noted of a host that is installed and was just looked at whether it answers.
    pub(super) fn silence_is_noted(&mut self, id: Uuid, status: HostStatus, connected: Option<bool>, place: Place) {
        if self.explained.is_none()
            || !self.soft()
            || !matches!(status, HostStatus::Installing | HostStatus::InstallingInProgress)
        {
            return;
        }
        let Some(connected) = connected else { return };
        // What it is looked at for may change in this moment.
        let just_before = Timestamp::from_micros(place.at.as_micros() - 1);
        let noted = [place.at, just_before].map(|at| self.traces.member(id, SILENT, at) == Some("true"));
        if let Some(explained) = &mut self.explained {
            explained.check(place.seq, id, noted.contains(&!connected), || {
                format!("it {} answer, and the service notes otherwise", if connected { "does" } else { "does not" })
            });
        }
    }

    /// A host or cluster that failed or was cancelled does not wait for logs for ever.
    pub(super) fn logs_may_wait(&mut self, id: Uuid, place: Place) {
        if self.explained.is_none() {
            return;
        }
        let s = self.settings;
        let (state, since, ended, limit) = if let Some(h) = self.hosts.get(&id) {
            let ended = matches!(h.status, Some(HostStatus::Error | HostStatus::Cancelled)) && h.cluster.is_some();
            let round = s.host_monitor_interval * 3;
            (
                h.logs,
                h.since.max(h.logs_since),
                ended,
                s.host_log_collection_timeout.max(s.host_log_pending_timeout) + round,
            )
        } else if let Some(c) = self.clusters.get(&id) {
            let ended = matches!(c.status, Some(ClusterStatus::Error | ClusterStatus::Cancelled));
            let round = s.cluster_monitor_interval * 3;
            // What the controller sends after its first logs is not told.
            let ended = ended && c.logs != Some(LogsState::Collecting);
            (c.logs, c.since.max(c.logs_since), ended, s.log_collection_timeout.max(s.log_pending_timeout) + round)
        } else {
            return;
        };
        // Each announcement of logs lets them be waited for anew, and the second one is no change of their state.
        let ended = ended && state != Some(LogsState::Requested);
        let uploads = self.traces.uploads.get(&id).into_iter().flatten();
        let since = uploads.filter(|t| **t <= place.at).copied().fold(since, Timestamp::max);
        if !ended || self.quiet(since, place.at) < limit {
            return;
        }
        let over = matches!(state, Some(LogsState::Completed | LogsState::Timeout));
        if let Some(explained) = &mut self.explained {
            explained.check(place.seq, id, over, || "its logs are waited for although their time is over".to_owned());
        }
    }
}

/// It is noted in this member that a host does not answer.
const SILENT: &str = "connection_timed_out";

/// The times between begin and end of the faults that keep the service from working.
pub(super) fn stopped(history: &[Observation]) -> Vec<(Timestamp, Timestamp)> {
    let mut begun: BTreeMap<&str, Timestamp> = BTreeMap::new();
    let mut stopped = Vec::new();
    for o in history {
        let What::Fault { name, phase, inject, .. } = &o.what else { continue };
        match phase {
            FaultPhase::Begin if ["service-", "postgres-"].iter().any(|kind| inject.starts_with(kind)) => {
                begun.insert(name, o.at());
            }
            FaultPhase::End => stopped.extend(begun.remove(name.as_str()).map(|begin| (begin, o.at()))),
            _ => {}
        }
    }
    let end = history.last().map(Observation::at).unwrap_or_default();
    stopped.extend(begun.into_values().map(|begin| (begin, end)));
    stopped
}
