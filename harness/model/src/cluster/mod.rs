//! The state machine of clusters: [`RULES`], one row for each rule of the real service's dump, in the order in which it
//! evaluates them; and how many hosts a cluster needs to live.

mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, FinalizingStage, HostRole, HostStatus, LogsState, OperatorStatus, OperatorType};

use crate::host::soft_timeouts;
use crate::machine::{Rule, fire};
use crate::settings::Settings;
use crate::validation::{ClusterGate, ClusterValidations, EVALUATED_IN, evaluate_cluster};
use crate::view::{ClusterView, HostView};

pub use self::table::RULES;

use self::ClusterCond::*;
use vlab_api::types::ClusterStatus::*;

/// What can happen to a cluster. Names are those of the real service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterEvent {
    /// The user cancels the installation.
    CancelInstallation,
    /// The user starts the installation.
    PrepareForInstallation,
    /// The cluster monitor looks at it, or something about it was changed by the user.
    RefreshStatus,
    /// The user resets the cluster.
    ResetCluster,
}

impl ClusterEvent {
    /// All events.
    pub const ALL: &'static [ClusterEvent] = &[
        ClusterEvent::CancelInstallation,
        ClusterEvent::PrepareForInstallation,
        ClusterEvent::RefreshStatus,
        ClusterEvent::ResetCluster,
    ];

    /// Name in the real service.
    pub const fn as_str(self) -> &'static str {
        match self {
            ClusterEvent::CancelInstallation => "CancelInstallation",
            ClusterEvent::PrepareForInstallation => "PrepareForInstallation",
            ClusterEvent::RefreshStatus => "RefreshStatus",
            ClusterEvent::ResetCluster => "ResetCluster",
        }
    }
}

/// What guards ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterCond {
    /// All validations of what the user must give, VIPs aside.
    PendingInputsGiven,
    /// The validations of the VIPs' being there.
    VipsDefined,
    /// All validations that an installation needs.
    SufficientForInstall,
    /// The VIPs are leased by DHCP.
    VipDhcp,
    /// It has prepared for too long.
    PreparationTimedOut,
    /// What is prepared in the background (install-config, ignition) is done.
    PreparationSucceeded,
    /// That failed.
    PreparationFailed,
    /// Every host is in `preparing-successful`.
    AllHostsPrepared,
    /// A host is in `preparing-failed`.
    SomeHostPreparingFailed,
    /// A host is in none of the states that hosts have while their cluster prepares.
    SomeHostLeftPreparation,
    /// A host is in `installing-pending-user-action`.
    SomeHostPendingUserAction,
    /// Enough hosts are on their way or there ([`IN_INSTALLATION`]).
    QuorumAlive,
    /// Enough hosts are installed.
    QuorumInstalled,
    /// The installation has taken too long.
    InstallationTimedOut,
    /// It has been in `finalizing` for too long.
    FinalizingTimedOut,
    /// The timer of its finalizing stage has run out.
    FinalizingStageTimedOut,
    /// That was noted already.
    FinalizingStageTimeoutNoted,
    /// Its finalizing stage is one that never fails a cluster.
    FinalizingStageNeverFails,
    /// Timeouts of the installation only warn.
    SoftTimeouts,
    /// A subscription waits for the console's URL. Needs a service that is tied to a subscription system: never true here.
    ConsoleUrlToPush,
    /// Every host is in `installed` or `error`.
    AllHostsFinished,
    /// The final kubeconfig is there.
    KubeconfigUploaded,
    /// All monitored operators are done.
    OperatorsDone,
    /// The controller's logs did not come in time, and that was not noted yet.
    LogsTimedOut,
}

/// The service's words about a cluster after a row has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterWords {
    /// Those that it has stay.
    Keep,
    /// These.
    Say(&'static str),
    /// The reason that is given with the event, else these.
    Given(&'static str),
    /// How the installation ended: whether operators or hosts were left out.
    Outcome,
    /// Which finalizing stage took too long.
    StageTooLong,
}

/// A row of the machine.
pub type ClusterRule = Rule<ClusterEvent, ClusterStatus, ClusterCond, ClusterWords, ClusterEffect>;

/// States in which a cluster begins to exist: created, imported to take hosts, or known without being managed.
pub const INITIAL: &[ClusterStatus] = &[Insufficient, AddingHosts, Unmonitored];

/// Changes of a cluster's status that the real service makes outside of its machine.
pub const OUTSIDE_THE_MACHINE: &[(ClusterStatus, ClusterStatus, &str)] =
    &[(Installed, AddingHosts, "the user allows hosts to be added")];

/// Statuses of hosts that are being installed or are installed.
pub const IN_INSTALLATION: &[HostStatus] = &[
    HostStatus::Installing,
    HostStatus::InstallingInProgress,
    HostStatus::Installed,
    HostStatus::InstallingPendingUserAction,
    HostStatus::PreparingSuccessful,
];

/// Would the cluster live with the hosts whose status is one of `wanted`? `members` are the effective role and the status of
/// each host, `hosts` the hosts themselves (for their fencing credentials).
///
/// * A single node: exactly one master among the wanted ones and no worker at all.
/// * Two masters: both, and a wanted arbiter unless the masters can be fenced.
/// * More: all masters, at least three.
/// * With two workers or more, two of them; fewer are not counted.
pub fn quorum(
    cluster: &ClusterView,
    hosts: &[&HostView],
    members: impl IntoIterator<Item = (HostRole, HostStatus)>,
    wanted: &[HostStatus],
) -> bool {
    let (mut masters, mut wanted_masters, mut workers, mut wanted_workers) = (0, 0, 0, 0);
    let (mut arbiters, mut wanted_arbiters) = (0, 0);
    for (role, status) in members {
        let (all, good) = match role {
            HostRole::Master | HostRole::Bootstrap => (&mut masters, &mut wanted_masters),
            HostRole::Arbiter => (&mut arbiters, &mut wanted_arbiters),
            HostRole::Worker => (&mut workers, &mut wanted_workers),
            HostRole::AutoAssign => continue,
        };
        *all += 1;
        *good += usize::from(wanted.contains(&status));
    }
    if cluster.is_sno() {
        return wanted_masters == 1 && workers == 0;
    }
    let enough_workers = workers < 2 || wanted_workers >= 2;
    let all_masters = wanted_masters == masters;
    let enough_masters = if cluster.control_plane_count() == 2 {
        let fenced =
            arbiters == 0 && hosts.iter().any(|h| h.host.fencing_credentials.as_deref().is_some_and(|c| !c.is_empty()));
        masters >= 2 && (fenced || wanted_arbiters >= 1)
    } else {
        masters >= 3
    };
    all_masters && enough_masters && enough_workers
}

/// What an event says beyond its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventArgs<'a> {
    /// Why. Empty: the machine's own words.
    pub reason: &'a str,
}

/// What else a transition does to the cluster, beside its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterEffect {
    /// Set `install_started_at`, forget progress and logs, note that the preparation has not begun.
    BeginInstallation,
    /// Set `install_completed_at`.
    EndInstallation,
    /// Forget install times, progress, logs and the OpenShift cluster id; on a single node the VIPs; delete generated files.
    ForgetInstallation,
    /// Note that the preparation failed because it took too long; event `installation_preparing_timed_out`.
    NotePreparationTimeout,
    /// `progress.finalizing_stage_timed_out` becomes true; event `finalizing_stage_timed_out`.
    NoteFinalizingStageTimeout,
    /// The present finalizing stage has its whole time again.
    RestartFinalizingStage,
    /// Event `cluster_installation_failed`.
    TellFailure,
    /// Total and finalizing percentage become 100.
    CompleteProgress,
    /// `logs_info` becomes `timeout`.
    NoteLogsTimeout,
}

/// What is to be done with a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterDecision {
    /// The row that fired; `None` when a refresh found none, which leaves the status as it is.
    pub rule: Option<&'static ClusterRule>,
    /// Status from now on.
    pub to: ClusterStatus,
    /// The service's words from now on.
    pub status_info: String,
    /// What the validations say; `None` where they are not evaluated (then what is stored stays).
    pub validations: Option<ClusterValidations>,
    /// `progress.finalizing_stage_timed_out` becomes true, and that is told once.
    pub finalizing_stage_timed_out: bool,
    /// `logs_info` becomes `timeout`.
    pub logs_timed_out: bool,
    /// All of these and the rest, in order.
    pub effects: &'static [ClusterEffect],
}

impl ClusterDecision {
    /// Does the cluster's status change?
    pub fn changes_status(&self, subject: &ClusterView) -> bool {
        self.to != subject.cluster.status
    }
}

/// No row of the machine fits: the real service answers 409.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no transition of a cluster in {state} on {}", event.as_str())]
pub struct NoTransition {
    /// What happened.
    pub event: ClusterEvent,
    /// Where the cluster was.
    pub state: ClusterStatus,
}

struct Facts<'a> {
    subject: &'a ClusterView,
    hosts: &'a [&'a HostView],
    settings: &'a Settings,
    now: Timestamp,
    args: &'a EventArgs<'a>,
    validations: Option<&'a ClusterValidations>,
}

impl Facts<'_> {
    fn gate(&self, gate: ClusterGate) -> bool {
        self.validations.is_some_and(|v| v.gate(gate))
    }

    fn over(&self, begin: Option<Timestamp>, limit: Duration) -> bool {
        begin.is_some_and(|t| t.is_set() && self.now.since(t) > limit)
    }

    fn some_host(&self, statuses: &[HostStatus]) -> bool {
        self.hosts.iter().any(|h| statuses.contains(&h.host.status))
    }

    fn all_hosts(&self, statuses: &[HostStatus]) -> bool {
        self.hosts.iter().all(|h| statuses.contains(&h.host.status))
    }

    fn preparation_is(&self, status: &str) -> bool {
        let last = self.subject.cluster.last_installation_preparation.as_ref();
        last.and_then(|l| l.status.as_deref()) == Some(status)
    }

    fn quorum(&self, wanted: &[HostStatus]) -> bool {
        let members = self.hosts.iter().map(|h| (h.effective_role(), h.host.status));
        quorum(self.subject, self.hosts, members, wanted)
    }

    fn holds(&self, condition: ClusterCond) -> bool {
        let cluster = &self.subject.cluster;
        match condition {
            PendingInputsGiven => self.gate(ClusterGate::PendingInput),
            VipsDefined => self.gate(ClusterGate::Vips),
            SufficientForInstall => self.gate(ClusterGate::Sufficient),
            VipDhcp => self.subject.vip_dhcp_allocation(),
            PreparationTimedOut
            | InstallationTimedOut
            | FinalizingTimedOut
            | FinalizingStageTimedOut
            | LogsTimedOut => self.timer(condition).is_some_and(|(begin, limit)| self.over(Some(begin), limit)),
            PreparationSucceeded => self.preparation_is("success"),
            PreparationFailed => self.preparation_is("failed"),
            AllHostsPrepared => self.all_hosts(&[HostStatus::PreparingSuccessful]),
            SomeHostPreparingFailed => self.some_host(&[HostStatus::PreparingFailed]),
            SomeHostLeftPreparation => !self.all_hosts(&[
                HostStatus::PreparingForInstallation,
                HostStatus::PreparingSuccessful,
                HostStatus::PreparingFailed,
                HostStatus::Known,
            ]),
            SomeHostPendingUserAction => self.some_host(&[HostStatus::InstallingPendingUserAction]),
            QuorumAlive => self.quorum(IN_INSTALLATION),
            QuorumInstalled => self.quorum(&[HostStatus::Installed]),
            FinalizingStageTimeoutNoted => {
                cluster.progress.as_ref().and_then(|p| p.finalizing_stage_timed_out) == Some(true)
            }
            FinalizingStageNeverFails => cluster
                .progress
                .as_ref()
                .and_then(|p| p.finalizing_stage)
                .is_some_and(|stage| NEVER_FAIL.contains(&stage)),
            SoftTimeouts => soft_timeouts(self.settings, self.subject),
            ConsoleUrlToPush => false,
            AllHostsFinished => self.all_hosts(&[HostStatus::Installed, HostStatus::Error]),
            KubeconfigUploaded => self.subject.kubeconfig_uploaded,
            OperatorsDone => operators_done(self.subject),
        }
    }

    /// The timer of a condition that comes true by the passing of time alone: since when it runs, and for how long.
    fn timer(&self, condition: ClusterCond) -> Option<(Timestamp, Duration)> {
        let (cluster, settings) = (&self.subject.cluster, self.settings);
        let since = |begin: Option<Timestamp>, limit| Some((begin.filter(|t| t.is_set())?, limit));
        match condition {
            PreparationTimedOut => since(cluster.status_updated_at, settings.cluster_prepare_timeout()),
            InstallationTimedOut => since(cluster.install_started_at, settings.installation_timeout),
            FinalizingTimedOut => since(cluster.status_updated_at, settings.finalizing_timeout),
            FinalizingStageTimedOut => finalizing_timer(self.subject, settings),
            LogsTimedOut => logs_timer(self.subject, settings),
            _ => None,
        }
    }
}

/// Finalizing stages whose timer only warns.
pub const NEVER_FAIL: &[FinalizingStage] = &[
    FinalizingStage::ApplyingOlmManifests,
    FinalizingStage::WaitingForOlmOperatorsCsvInitialization,
    FinalizingStage::WaitingForOlmOperatorsCsv,
];

/// Are all monitored operators done: those of the product available, the others available or given up?
pub fn operators_done(cluster: &ClusterView) -> bool {
    cluster.cluster.monitored_operators.iter().flatten().all(|operator| match operator.status {
        Some(OperatorStatus::Available) => true,
        Some(OperatorStatus::Failed) => operator.operator_type == Some(OperatorType::Olm),
        _ => false,
    })
}

/// The timer of the finalizing stage: since when and for how long.
fn finalizing_timer(subject: &ClusterView, settings: &Settings) -> Option<(Timestamp, Duration)> {
    let progress = subject.cluster.progress.as_ref()?;
    let olm =
        subject.cluster.monitored_operators.iter().flatten().filter(|o| o.operator_type == Some(OperatorType::Olm));
    let longest = olm.filter_map(|o| u64::try_from(o.timeout_seconds?).ok()).max().unwrap_or(0);
    let soft = soft_timeouts(settings, subject);
    let limit = settings.finalizing_stage_timeout(progress.finalizing_stage?, soft, Duration::from_secs(longest));
    Some((progress.finalizing_stage_started_at.filter(|t| t.is_set())?, limit))
}

/// Which timer of the controller's logs runs: since when and for how long.
fn logs_timer(subject: &ClusterView, settings: &Settings) -> Option<(Timestamp, Duration)> {
    let cluster = &subject.cluster;
    match cluster.logs_info.unwrap_or(LogsState::Empty) {
        LogsState::Completed | LogsState::Timeout => None,
        LogsState::Requested | LogsState::Collecting => {
            Some((cluster.controller_logs_started_at.filter(|t| t.is_set())?, settings.log_collection_timeout))
        }
        LogsState::Empty => Some((cluster.status_updated_at.filter(|t| t.is_set())?, settings.log_pending_timeout)),
    }
}

/// What the monitor makes of a cluster: evaluates its validations where it does so, then its machine.
pub fn refresh(subject: &ClusterView, hosts: &[&HostView], settings: &Settings, now: Timestamp) -> ClusterDecision {
    let validations =
        EVALUATED_IN.contains(&subject.cluster.status).then(|| evaluate_cluster(subject, hosts, settings, now));
    refresh_with(subject, hosts, settings, now, validations)
}

/// The same, with validations that were evaluated before.
pub fn refresh_with(
    subject: &ClusterView,
    hosts: &[&HostView],
    settings: &Settings,
    now: Timestamp,
    validations: Option<ClusterValidations>,
) -> ClusterDecision {
    let args = EventArgs::default();
    let facts = Facts { subject, hosts, settings, now, args: &args, validations: validations.as_ref() };
    let rule = fire(RULES, ClusterEvent::RefreshStatus, subject.cluster.status, &|c| facts.holds(c));
    let mut decision = match rule {
        Some(rule) => decide(rule, &facts),
        None => ClusterDecision {
            rule: None,
            to: subject.cluster.status,
            status_info: subject.cluster.status_info.clone(),
            validations: None,
            finalizing_stage_timed_out: false,
            logs_timed_out: false,
            effects: &[],
        },
    };
    decision.validations = validations;
    decision
}

/// What any other event leads to.
///
/// # Errors
/// No row of the machine fits.
pub fn on_event(
    event: ClusterEvent,
    subject: &ClusterView,
    hosts: &[&HostView],
    settings: &Settings,
    now: Timestamp,
    args: &EventArgs<'_>,
) -> Result<ClusterDecision, NoTransition> {
    if event == ClusterEvent::RefreshStatus {
        return Ok(refresh(subject, hosts, settings, now));
    }
    let state = subject.cluster.status;
    let facts = Facts { subject, hosts, settings, now, args, validations: None };
    fire(RULES, event, state, &|c| facts.holds(c)).map(|rule| decide(rule, &facts)).ok_or(NoTransition { event, state })
}

fn decide(rule: &'static ClusterRule, facts: &Facts<'_>) -> ClusterDecision {
    let effects = rule.effects;
    ClusterDecision {
        rule: Some(rule),
        to: rule.to,
        status_info: words(rule, facts).unwrap_or_else(|| facts.subject.cluster.status_info.clone()),
        validations: None,
        finalizing_stage_timed_out: effects.contains(&ClusterEffect::NoteFinalizingStageTimeout),
        logs_timed_out: effects.contains(&ClusterEffect::NoteLogsTimeout),
        effects,
    }
}

/// The words that go with a row; `None`: those that the cluster has stay.
fn words(rule: &ClusterRule, facts: &Facts<'_>) -> Option<String> {
    let cluster = &facts.subject.cluster;
    let text = match rule.words {
        ClusterWords::Keep => return None,
        ClusterWords::Say(text) => text,
        ClusterWords::Given(text) if facts.args.reason.is_empty() => text,
        ClusterWords::Given(_) => facts.args.reason,
        ClusterWords::Outcome => {
            let degraded = cluster.monitored_operators.iter().flatten().any(|operator| {
                operator.operator_type == Some(OperatorType::Olm) && operator.status == Some(OperatorStatus::Failed)
            });
            let left_out = facts.some_host(&[HostStatus::Error]);
            match (degraded, left_out) {
                (false, false) => "The cluster is installed",
                (true, false) => "The cluster is installed but degraded: an operator failed",
                (false, true) => "The cluster is installed but some workers did not join",
                (true, true) => {
                    "The cluster is installed but degraded: an operator failed and some workers did not join"
                }
            }
        }
        ClusterWords::StageTooLong => {
            let stage = cluster.progress.as_ref().and_then(|p| p.finalizing_stage);
            return Some(format!(
                "The cluster was in finalizing stage {:?} for too long",
                stage.map_or("", FinalizingStage::as_str),
            ));
        }
    };
    Some(text.to_owned())
}

/// The next instant, after `now`, at which the passing of time alone could change what [`refresh`] says; `None`: never.
/// Until then a cluster of which nothing else has changed need not be looked at.
pub fn next_deadline(subject: &ClusterView, settings: &Settings, now: Timestamp) -> Option<Timestamp> {
    let mut next: Option<Timestamp> = None;
    // All limits are "longer than": they are passed one tick of the clock after their end.
    let mut consider = |begin: Option<Timestamp>, limit: Duration| {
        let Some(begin) = begin.filter(|t| t.is_set()) else { return };
        let passed = begin + limit + Duration::from_micros(1);
        if passed > now && next.is_none_or(|n| passed < n) {
            next = Some(passed);
        }
    };
    let args = EventArgs::default();
    let facts = Facts { subject, hosts: &[], settings, now, args: &args, validations: None };
    for rule in RULES {
        if rule.event == ClusterEvent::RefreshStatus && rule.from.contains(&subject.cluster.status) {
            rule.guard.each(&mut |condition| {
                if let Some((begin, limit)) = facts.timer(condition) {
                    consider(Some(begin), limit);
                }
            });
        }
    }
    next
}
