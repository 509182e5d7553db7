//! The state machine of clusters: [`RULES`], one row for each rule of the real service's dump, in the order in which it
//! evaluates them; and how many hosts a cluster needs to live.

mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, FinalizingStage, HostRole, HostStatus, LogsState, OperatorStatus, OperatorType};

use crate::host::{LONG_AGO, soft_timeouts};
use crate::machine::{self, Rule, WRONG_WORDS, fire};
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
    /// These words, literally.
    Say(&'static str),
    /// The reason that is given with the event, else these.
    Given(&'static str),
    /// How the installation ended: whether operators or hosts were left out.
    Outcome,
    /// Which finalizing stage took too long.
    StageTooLong,
}

/// What is said of an installation that ended well: whether an operator failed, and whether workers were left out.
const OUTCOMES: [[&str; 2]; 2] = [
    ["The cluster is installed", "The cluster is installed but some workers did not join"],
    [
        "The cluster is installed but degraded: an operator failed",
        "The cluster is installed but degraded: an operator failed and some workers did not join",
    ],
];
/// The words of a cluster whose preparation took too long.
pub const WORDS_OF_LATE_PREPARATION: &str = "Preparing the cluster took too long";
/// The words of a cluster that takes more hosts.
pub const WORDS_OF_ADDING_HOSTS: &str = "The cluster takes more hosts";
/// The words of a cluster that is known without being managed.
pub const WORDS_OF_UNMONITORED: &str = "The cluster is not monitored";
/// How the words about a finalizing stage that took too long begin.
const IN_STAGE: &str = "The cluster was in finalizing stage ";

impl ClusterWords {
    /// Could a row with these words have said that?
    pub fn could_say(&self, text: &str) -> bool {
        match self {
            ClusterWords::Keep => true,
            ClusterWords::Say(words) | ClusterWords::Given(words) => text == *words,
            ClusterWords::Outcome => OUTCOMES.iter().flatten().any(|words| text == *words),
            ClusterWords::StageTooLong => text.starts_with(IN_STAGE),
        }
    }
}

/// A row of the machine.
pub type ClusterRule = Rule<ClusterEvent, ClusterStatus, ClusterCond, ClusterWords, ClusterEffect>;

/// What is wrong on purpose with the machine.
pub type ClusterWrong = machine::Wrong<ClusterEvent, ClusterStatus, ClusterCond, ClusterWords, ClusterEffect>;

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

/// A host as [`quorum_of`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Role that it was given.
    pub role: HostRole,
    /// Role that it plays: the one that it was given, else the one that is suggested.
    pub effective: HostRole,
    /// Status.
    pub status: HostStatus,
    /// It has fencing credentials.
    pub fenced: bool,
}

impl Member {
    /// Of a host.
    pub fn of(host: &HostView) -> Self {
        Self {
            role: host.host.role.unwrap_or(HostRole::AutoAssign),
            effective: host.effective_role(),
            status: host.host.status,
            fenced: host.host.fencing_credentials.as_deref().is_some_and(|c| !c.is_empty()),
        }
    }
}

/// Would the cluster live with those of its hosts whose status is one of `wanted`?
pub fn quorum(cluster: &ClusterView, hosts: &[&HostView], wanted: &[HostStatus]) -> bool {
    quorum_of(cluster, hosts.iter().map(|h| Member::of(h)), wanted)
}

/// The same with what is known of its hosts. What is asked for follows from the roles that were given, what is there from those
/// that are played.
///
/// * A single node: exactly one master among the wanted ones and no wanted worker.
/// * With an arbiter: a wanted one, and all masters, at least two.
/// * Two masters that can both be fenced, and no arbiter: both.
/// * Else: all masters, at least three.
/// * With two workers or more, two of them; fewer are not counted.
pub fn quorum_of(cluster: &ClusterView, members: impl IntoIterator<Item = Member>, wanted: &[HostStatus]) -> bool {
    let members: Vec<Member> = members.into_iter().collect();
    let is_master = |role: HostRole| matches!(role, HostRole::Master | HostRole::Bootstrap);
    let asked = |role: fn(HostRole) -> bool| members.iter().filter(|m| role(m.role)).count();
    let there =
        |role: fn(HostRole) -> bool| members.iter().filter(|m| role(m.effective) && wanted.contains(&m.status)).count();
    let masters = there(is_master);
    let workers = there(|r| r == HostRole::Worker);
    if cluster.control_plane_count() == 1 {
        return masters == 1 && workers == 0;
    }
    let arbiters = asked(|r| r == HostRole::Arbiter);
    if arbiters > 0 && there(|r| r == HostRole::Arbiter) == 0 {
        return false;
    }
    let mut of_control_plane = members.iter().filter(|m| m.role == HostRole::Master);
    let fenced = cluster.control_plane_count() == 2
        && arbiters == 0
        && asked(|r| r == HostRole::Master) == 2
        && of_control_plane.all(|m| m.fenced);
    let least = if arbiters > 0 || fenced { 2 } else { 3 };
    let masters_asked = asked(is_master);
    let workers_asked = asked(|r| r == HostRole::Worker);
    masters_asked >= least && masters >= masters_asked && (workers_asked < 2 || workers >= 2)
}

/// What an event says beyond its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventArgs<'a> {
    /// Why. Empty: the machine's own words.
    pub reason: &'a str,
    /// The machine is wrong on purpose.
    pub wrong: Option<ClusterWrong>,
}

/// What else a transition does to the cluster, beside its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterEffect {
    /// Set `install_started_at`, forget logs, note that the preparation has not begun.
    BeginInstallation,
    /// Set `install_completed_at`.
    EndInstallation,
    /// Forget progress, logs and the OpenShift cluster id; on a single node the VIPs; delete generated files.
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
    pub validations: Option<Arc<ClusterValidations>>,
    /// `progress.finalizing_stage_timed_out` becomes true, and that is told once.
    pub finalizing_stage_timed_out: bool,
    /// `logs_info` becomes `timeout`.
    pub logs_timed_out: bool,
    /// All of these and the rest, in order.
    pub effects: Vec<ClusterEffect>,
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

struct ClusterGuards<'a> {
    subject: &'a ClusterView,
    hosts: &'a [&'a HostView],
    settings: &'a Settings,
    now: Timestamp,
    args: &'a EventArgs<'a>,
    validations: Option<&'a ClusterValidations>,
}

impl ClusterGuards<'_> {
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
        quorum(self.subject, self.hosts, wanted)
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
    let collected = cluster.controller_logs_collected_at.filter(|t| t.is_set());
    match cluster.logs_info.unwrap_or(LogsState::Empty) {
        LogsState::Completed | LogsState::Timeout => None,
        // Where some have come already, the time runs since then.
        LogsState::Requested => {
            let since = collected.or(cluster.controller_logs_started_at).filter(|t| t.is_set())?;
            Some((since, settings.log_collection_timeout))
        }
        LogsState::Collecting => Some((collected.unwrap_or(LONG_AGO), settings.log_collection_timeout)),
        LogsState::Empty if cluster.controller_logs_started_at.is_some_and(|t| t.is_set()) => None,
        LogsState::Empty => Some((cluster.status_updated_at.filter(|t| t.is_set())?, settings.log_pending_timeout)),
    }
}

/// What the monitor makes of a cluster: evaluates its validations where it does so, then its machine.
pub fn refresh(subject: &ClusterView, hosts: &[&HostView], settings: &Settings, now: Timestamp) -> ClusterDecision {
    let validations =
        EVALUATED_IN.contains(&subject.cluster.status).then(|| evaluate_cluster(subject, hosts, settings, now));
    refresh_with(subject, hosts, settings, now, validations, None)
}

/// The same, with validations that were evaluated before, and perhaps with a machine that is wrong on purpose.
pub fn refresh_with(
    subject: &ClusterView,
    hosts: &[&HostView],
    settings: &Settings,
    now: Timestamp,
    validations: Option<ClusterValidations>,
    wrong: Option<ClusterWrong>,
) -> ClusterDecision {
    let args = EventArgs { wrong, ..EventArgs::default() };
    let facts = ClusterGuards { subject, hosts, settings, now, args: &args, validations: validations.as_ref() };
    let at = (ClusterEvent::RefreshStatus, subject.cluster.status);
    let rule = fire(RULES, wrong.as_ref(), at, &|c| facts.holds(c));
    let mut decision = match rule {
        Some(rule) => decide(rule, &facts),
        None => ClusterDecision {
            rule: None,
            to: subject.cluster.status,
            status_info: subject.cluster.status_info.clone(),
            validations: None,
            finalizing_stage_timed_out: false,
            logs_timed_out: false,
            effects: Vec::new(),
        },
    };
    decision.validations = validations.map(Arc::new);
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
    let facts = ClusterGuards { subject, hosts, settings, now, args, validations: None };
    let rule = fire(RULES, args.wrong.as_ref(), (event, state), &|c| facts.holds(c));
    rule.map(|rule| decide(rule, &facts)).ok_or(NoTransition { event, state })
}

fn decide(rule: &'static ClusterRule, facts: &ClusterGuards<'_>) -> ClusterDecision {
    let wrong = facts.args.wrong.as_ref();
    let effects = rule.does(wrong);
    ClusterDecision {
        rule: Some(rule),
        to: rule.leads_to(wrong),
        status_info: match rule.misspeaks(wrong) {
            true => WRONG_WORDS.to_owned(),
            false => words(rule, facts).unwrap_or_else(|| facts.subject.cluster.status_info.clone()),
        },
        validations: None,
        finalizing_stage_timed_out: effects.contains(&ClusterEffect::NoteFinalizingStageTimeout),
        logs_timed_out: effects.contains(&ClusterEffect::NoteLogsTimeout),
        effects,
    }
}

/// The words that go with a row; `None`: those that the cluster has stay.
fn words(rule: &ClusterRule, facts: &ClusterGuards<'_>) -> Option<String> {
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
            OUTCOMES[usize::from(degraded)][usize::from(left_out)]
        }
        ClusterWords::StageTooLong => {
            let stage = cluster.progress.as_ref().and_then(|p| p.finalizing_stage);
            return Some(format!("{IN_STAGE}{:?} for too long", stage.map_or("", FinalizingStage::as_str),));
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
    let facts = ClusterGuards { subject, hosts: &[], settings, now, args: &args, validations: None };
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
