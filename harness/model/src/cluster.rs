//! The state machine of clusters: [`RULES`], one row for each rule of the real service's dump, in the order in which it
//! evaluates them; and how many hosts a cluster needs to live.

use std::time::Duration;

use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, FinalizingStage, HostRole, HostStatus, LogsState, OperatorStatus, OperatorType};

use crate::host::soft_timeouts;
use crate::machine::Guard::{self, All, Always, Any, Is, Not};
use crate::machine::{Rule, fire};
use crate::settings::Settings;
use crate::validation::{ClusterGate, ClusterValidations, EVALUATED_IN, evaluate_cluster};
use crate::view::{ClusterView, HostView};

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

/// A row of the machine.
pub type ClusterRule = Rule<ClusterEvent, ClusterStatus, ClusterCond>;

/// The machine.
pub static RULES: &[ClusterRule] = &[
    Rule {
        name: "Cancel installation of installing cluster",
        event: ClusterEvent::CancelInstallation,
        from: &[Installing, InstallingPendingUserAction, Error, Finalizing],
        guard: Always,
        to: Cancelled,
    },
    Rule {
        name: "Cancel installation of preparing cluster",
        event: ClusterEvent::CancelInstallation,
        from: &[PreparingForInstallation],
        guard: Always,
        to: Ready,
    },
    Rule {
        name: "Start installation",
        event: ClusterEvent::PrepareForInstallation,
        from: &[Ready],
        guard: Always,
        to: PreparingForInstallation,
    },
    Rule {
        name: "Refresh discovering cluster - detect required input",
        event: ClusterEvent::RefreshStatus,
        from: &[PendingForInput, Ready, Insufficient],
        guard: All(&[Not(&Is(VipDhcp)), Not(&All(&[Is(PendingInputsGiven), Is(VipsDefined)]))]),
        to: PendingForInput,
    },
    Rule {
        name: "Refresh discovering cluster - detect insufficient",
        event: ClusterEvent::RefreshStatus,
        from: &[PendingForInput, Ready, Insufficient],
        guard: All(&[Not(&Is(VipDhcp)), Is(PendingInputsGiven), Is(VipsDefined), Not(&Is(SufficientForInstall))]),
        to: Insufficient,
    },
    Rule {
        name: "TODO: Name this transition",
        event: ClusterEvent::RefreshStatus,
        from: &[PendingForInput, Ready, Insufficient],
        guard: All(&[Is(VipDhcp), Not(&Is(PendingInputsGiven))]),
        to: PendingForInput,
    },
    Rule {
        name: "TODO: Name this transition",
        event: ClusterEvent::RefreshStatus,
        from: &[PendingForInput, Ready, Insufficient],
        guard: All(&[Is(VipDhcp), Is(PendingInputsGiven), Not(&All(&[Is(SufficientForInstall), Is(VipsDefined)]))]),
        to: Insufficient,
    },
    Rule {
        name: "Refresh discovering cluster - detect ready",
        event: ClusterEvent::RefreshStatus,
        from: &[PendingForInput, Ready, Insufficient],
        guard: All(&[Is(PendingInputsGiven), Is(VipsDefined), Is(SufficientForInstall)]),
        to: Ready,
    },
    Rule {
        name: "Refresh preparing cluster - detect timeout",
        event: ClusterEvent::RefreshStatus,
        from: &[PreparingForInstallation],
        guard: All(&[Is(PreparationTimedOut), Not(&Is(SomeHostPreparingFailed))]),
        to: Ready,
    },
    Rule {
        name: "Refresh preparing cluster - done preparing",
        event: ClusterEvent::RefreshStatus,
        from: &[PreparingForInstallation],
        guard: All(&[Is(AllHostsPrepared), Is(PreparationSucceeded)]),
        to: Installing,
    },
    Rule {
        name: "Refresh preparing cluster - insufficient",
        event: ClusterEvent::RefreshStatus,
        from: &[PreparingForInstallation],
        guard: Is(SomeHostLeftPreparation),
        to: Insufficient,
    },
    Rule {
        name: "Refresh preparing cluster - failed",
        event: ClusterEvent::RefreshStatus,
        from: &[PreparingForInstallation],
        guard: All(&[Any(&[Is(SomeHostPreparingFailed), Is(PreparationFailed)]), Not(&Is(SomeHostLeftPreparation))]),
        to: Ready,
    },
    Rule {
        name: "TODO: Name this transition",
        event: ClusterEvent::RefreshStatus,
        from: &[InstallingPendingUserAction],
        guard: All(&[Not(&Is(QuorumAlive)), Not(&Is(QuorumInstalled))]),
        to: Error,
    },
    Rule {
        name: "Timed out while waiting for user",
        event: ClusterEvent::RefreshStatus,
        from: &[InstallingPendingUserAction],
        guard: Is(InstallationTimedOut),
        to: Error,
    },
    Rule {
        name: "Timed out while installing",
        event: ClusterEvent::RefreshStatus,
        from: &[Installing, Finalizing],
        guard: All(&[Is(InstallationTimedOut), Is(SoftTimeouts)]),
        to: Error,
    },
    Rule {
        name: "Timed out while finalizing",
        event: ClusterEvent::RefreshStatus,
        from: &[Finalizing],
        guard: All(&[Is(FinalizingTimedOut), Not(&Is(SoftTimeouts))]),
        to: Error,
    },
    Rule {
        name: "Finalizing stage timed out.  Move to error",
        event: ClusterEvent::RefreshStatus,
        from: &[Finalizing],
        guard: All(&[Not(&Is(SoftTimeouts)), Is(FinalizingStageTimedOut), Not(&Is(FinalizingStageNeverFails))]),
        to: Error,
    },
    Rule {
        name: "Finalizing stage is taking too long.  Emit an appropriate event",
        event: ClusterEvent::RefreshStatus,
        from: &[Finalizing],
        guard: All(&[
            Is(FinalizingStageTimedOut),
            Any(&[Is(SoftTimeouts), Is(FinalizingStageNeverFails)]),
            Not(&Is(FinalizingStageTimeoutNoted)),
        ]),
        to: Finalizing,
    },
    Rule {
        name: "TODO: Name this transition",
        event: ClusterEvent::RefreshStatus,
        from: &[InstallingPendingUserAction],
        guard: All(&[Is(SomeHostPendingUserAction), Is(QuorumAlive)]),
        to: InstallingPendingUserAction,
    },
    Rule {
        name: "TODO: Name this transition",
        event: ClusterEvent::RefreshStatus,
        from: &[InstallingPendingUserAction],
        guard: All(&[Not(&Is(SomeHostPendingUserAction)), Is(QuorumAlive), Not(&Is(QuorumInstalled))]),
        to: Installing,
    },
    Rule {
        name: "TODO: Name this transition",
        event: ClusterEvent::RefreshStatus,
        from: &[InstallingPendingUserAction],
        guard: All(&[Not(&Is(SomeHostPendingUserAction)), Is(QuorumInstalled)]),
        to: Finalizing,
    },
    Rule {
        name: "TODO: Name this transition",
        event: ClusterEvent::RefreshStatus,
        from: &[Installing, Finalizing],
        guard: All(&[Is(QuorumAlive), Is(SomeHostPendingUserAction)]),
        to: InstallingPendingUserAction,
    },
    Rule {
        name: "Move to finalizing",
        event: ClusterEvent::RefreshStatus,
        from: &[Installing],
        guard: All(&[Is(QuorumInstalled), Not(&Is(SomeHostPendingUserAction))]),
        to: Finalizing,
    },
    Rule {
        name: "Stay in installing",
        event: ClusterEvent::RefreshStatus,
        from: &[Installing],
        guard: All(&[Is(QuorumAlive), Not(&Is(QuorumInstalled))]),
        to: Installing,
    },
    Rule {
        name: "Update AMS subscription",
        event: ClusterEvent::RefreshStatus,
        from: &[Finalizing],
        guard: Is(ConsoleUrlToPush),
        to: Finalizing,
    },
    Rule {
        name: "Finalizing complete",
        event: ClusterEvent::RefreshStatus,
        from: &[Finalizing],
        guard: All(&[Is(AllHostsFinished), Is(KubeconfigUploaded), Is(OperatorsDone)]),
        to: Installed,
    },
    Rule {
        name: "Installation error",
        event: ClusterEvent::RefreshStatus,
        from: &[Installing],
        guard: All(&[Not(&Is(QuorumAlive)), Not(&Is(QuorumInstalled))]),
        to: Error,
    },
    Rule {
        name: "Log collection timeout during error",
        event: ClusterEvent::RefreshStatus,
        from: &[Error],
        guard: Is(LogsTimedOut),
        to: Error,
    },
    Rule {
        name: "Log collection timeout during cancelled",
        event: ClusterEvent::RefreshStatus,
        from: &[Cancelled],
        guard: Is(LogsTimedOut),
        to: Cancelled,
    },
    Rule {
        name: "Maintain preparing-for-installation state",
        event: ClusterEvent::RefreshStatus,
        from: &[PreparingForInstallation],
        guard: Always,
        to: PreparingForInstallation,
    },
    Rule {
        name: "Maintain finalizing state",
        event: ClusterEvent::RefreshStatus,
        from: &[Finalizing],
        guard: Always,
        to: Finalizing,
    },
    Rule {
        name: "Maintain installed state",
        event: ClusterEvent::RefreshStatus,
        from: &[Installed],
        guard: Always,
        to: Installed,
    },
    Rule { name: "Maintain error state", event: ClusterEvent::RefreshStatus, from: &[Error], guard: Always, to: Error },
    Rule {
        name: "Maintain cancelled state",
        event: ClusterEvent::RefreshStatus,
        from: &[Cancelled],
        guard: Always,
        to: Cancelled,
    },
    Rule {
        name: "Maintain adding-hosts state",
        event: ClusterEvent::RefreshStatus,
        from: &[AddingHosts],
        guard: Always,
        to: AddingHosts,
    },
    Rule {
        name: "Maintain unmonitored state",
        event: ClusterEvent::RefreshStatus,
        from: &[Unmonitored],
        guard: Always,
        to: Unmonitored,
    },
    Rule {
        name: "Reset installation",
        event: ClusterEvent::ResetCluster,
        from: &[PreparingForInstallation, Installing, InstallingPendingUserAction, Error, Cancelled, Finalizing],
        guard: Always,
        to: Insufficient,
    },
];

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
            PreparationTimedOut => self.over(cluster.status_updated_at, self.settings.cluster_prepare_timeout()),
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
            InstallationTimedOut => self.over(cluster.install_started_at, self.settings.installation_timeout),
            FinalizingTimedOut => self.over(cluster.status_updated_at, self.settings.finalizing_timeout),
            FinalizingStageTimedOut => finalizing_timer(self.subject, self.settings)
                .is_some_and(|(begin, limit)| self.over(Some(begin), limit)),
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
            LogsTimedOut => {
                logs_timer(self.subject, self.settings).is_some_and(|(begin, limit)| self.over(Some(begin), limit))
            }
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
    let effects = effects_of(rule);
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

/// What a row does beside the status.
pub fn effects_of(rule: &ClusterRule) -> &'static [ClusterEffect] {
    use ClusterEffect::*;
    let asks = |condition| asks(&rule.guard, condition);
    match (rule.event, rule.to) {
        (ClusterEvent::PrepareForInstallation, _) => &[BeginInstallation],
        (ClusterEvent::ResetCluster, _) => &[ForgetInstallation],
        (ClusterEvent::RefreshStatus, Ready) if asks(PreparationTimedOut) => &[NotePreparationTimeout],
        (ClusterEvent::RefreshStatus, Finalizing) if asks(FinalizingStageTimedOut) => &[NoteFinalizingStageTimeout],
        (ClusterEvent::RefreshStatus, Finalizing) if rule.from == [InstallingPendingUserAction] => {
            &[RestartFinalizingStage]
        }
        (ClusterEvent::RefreshStatus, Installed) if rule.from != [Installed] => &[EndInstallation, CompleteProgress],
        (ClusterEvent::RefreshStatus, Error) if rule.from != [Error] => &[EndInstallation, TellFailure],
        (ClusterEvent::RefreshStatus, Error | Cancelled) if asks(LogsTimedOut) => &[NoteLogsTimeout],
        _ => &[],
    }
}

fn asks(guard: &Guard<ClusterCond>, condition: ClusterCond) -> bool {
    match guard {
        Always => false,
        Is(c) => *c == condition,
        Not(inner) => asks(inner, condition),
        All(all) | Any(all) => all.iter().any(|g| asks(g, condition)),
    }
}

/// The words that go with a row; `None`: those that the cluster has stay.
fn words(rule: &ClusterRule, facts: &Facts<'_>) -> Option<String> {
    let asks = |condition| asks(&rule.guard, condition);
    let text = match (rule.event, rule.to) {
        (ClusterEvent::CancelInstallation, _) if !facts.args.reason.is_empty() => facts.args.reason,
        (ClusterEvent::CancelInstallation, _) => "The installation was cancelled by the user",
        (ClusterEvent::PrepareForInstallation, _) => "The cluster is prepared for the installation",
        (ClusterEvent::ResetCluster, _) if !facts.args.reason.is_empty() => facts.args.reason,
        (ClusterEvent::ResetCluster, _) => "The installation was reset by the user",
        (ClusterEvent::RefreshStatus, to) if rule.from == [to] => return None,
        (ClusterEvent::RefreshStatus, PendingForInput) => "The user must give more",
        (ClusterEvent::RefreshStatus, Insufficient) if asks(SomeHostLeftPreparation) => {
            "A host is no longer ready to be installed"
        }
        (ClusterEvent::RefreshStatus, Insufficient) => "The cluster is not ready to be installed",
        (ClusterEvent::RefreshStatus, Ready) if asks(PreparationTimedOut) => "Preparing the cluster took too long",
        (ClusterEvent::RefreshStatus, Ready) if asks(PreparationFailed) => "Preparing the cluster failed",
        (ClusterEvent::RefreshStatus, Ready) => "The cluster is ready to be installed",
        (ClusterEvent::RefreshStatus, Installing) => "The installation is in progress",
        (ClusterEvent::RefreshStatus, InstallingPendingUserAction) => "The installation waits for the user",
        (ClusterEvent::RefreshStatus, Finalizing) => "The cluster is finalized",
        (ClusterEvent::RefreshStatus, Installed) => {
            let degraded = facts.subject.cluster.monitored_operators.iter().flatten().any(|operator| {
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
        (ClusterEvent::RefreshStatus, Error) if asks(InstallationTimedOut) => "The installation took too long",
        (ClusterEvent::RefreshStatus, Error) if asks(FinalizingTimedOut) => "Finalizing the cluster took too long",
        (ClusterEvent::RefreshStatus, Error) if asks(FinalizingStageTimedOut) => {
            let stage = facts.subject.cluster.progress.as_ref().and_then(|p| p.finalizing_stage);
            return Some(format!(
                "The cluster was in finalizing stage {:?} for too long",
                stage.map_or("", FinalizingStage::as_str),
            ));
        }
        (ClusterEvent::RefreshStatus, Error) => "The cluster has too few hosts left to be installed",
        (ClusterEvent::RefreshStatus, _) => return None,
    };
    Some(text.to_owned())
}

/// The next instant, after `now`, at which the passing of time alone could change what [`refresh`] says; `None`: never.
/// Until then a cluster of which nothing else has changed need not be looked at.
pub fn next_deadline(subject: &ClusterView, settings: &Settings, now: Timestamp) -> Option<Timestamp> {
    let cluster = &subject.cluster;
    let mut next: Option<Timestamp> = None;
    // All limits are "longer than": they are passed one tick of the clock after their end.
    let mut consider = |begin: Option<Timestamp>, limit: Duration| {
        let Some(begin) = begin.filter(|t| t.is_set()) else { return };
        let passed = begin + limit + Duration::from_micros(1);
        if passed > now && next.is_none_or(|n| passed < n) {
            next = Some(passed);
        }
    };
    match cluster.status {
        PreparingForInstallation => consider(cluster.status_updated_at, settings.cluster_prepare_timeout()),
        Installing | InstallingPendingUserAction => consider(cluster.install_started_at, settings.installation_timeout),
        Finalizing => {
            consider(cluster.install_started_at, settings.installation_timeout);
            consider(cluster.status_updated_at, settings.finalizing_timeout);
            if let Some((begin, limit)) = finalizing_timer(subject, settings) {
                consider(Some(begin), limit);
            }
        }
        Error | Cancelled => {
            if let Some((begin, limit)) = logs_timer(subject, settings) {
                consider(Some(begin), limit);
            }
        }
        _ => {}
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::{CLUSTER, Validation, ValidationStatus};
    use proptest::prelude::*;
    use rstest::rstest;
    use std::collections::BTreeSet;
    use uuid::Uuid;
    use vlab_api::types::{ClusterProgressInfo, Host, LastInstallationPreparation, MonitoredOperator};

    const NOW: Timestamp = Timestamp::from_secs(1_000_000);

    /// Rows that no cluster can fire here, and why.
    const UNREACHABLE: &[(&str, &str)] =
        &[("Update AMS subscription", "needs a service that is tied to a subscription system, which a lab is not")];

    #[derive(Clone, Debug, Default)]
    struct Bench {
        cluster: ClusterView,
        hosts: Vec<HostView>,
        settings: Settings,
        failing: Option<ClusterGate>,
    }

    fn bench(status: ClusterStatus) -> Bench {
        let mut bench = Bench::default();
        bench.cluster.cluster.status = status;
        bench.cluster.cluster.control_plane_count = Some(3);
        bench.cluster.cluster.status_updated_at = Some(NOW - Duration::from_secs(1));
        bench.cluster.cluster.install_started_at = Some(NOW - Duration::from_secs(1));
        bench
    }

    fn hosts(roles_and_statuses: &[(HostRole, HostStatus)]) -> Vec<HostView> {
        let host = |(i, (role, status)): (usize, &(HostRole, HostStatus))| HostView {
            host: Host { id: Uuid::from_u128(i as u128 + 1), role: Some(*role), status: *status, ..Host::default() },
            ..HostView::default()
        };
        roles_and_statuses.iter().enumerate().map(host).collect()
    }

    impl Bench {
        fn masters(mut self, statuses: [HostStatus; 3]) -> Self {
            self.hosts = hosts(&statuses.map(|s| (HostRole::Master, s)));
            self
        }
        fn with(mut self, change: impl FnOnce(&mut Bench)) -> Self {
            change(&mut self);
            self
        }
        fn failing(mut self, gate: ClusterGate) -> Self {
            self.failing = Some(gate);
            self
        }
        fn refresh_at(&self, now: Timestamp) -> ClusterDecision {
            let validations = EVALUATED_IN.contains(&self.cluster.cluster.status).then(|| {
                let answer = |spec: &crate::validation::ClusterValidationSpec| Validation {
                    id: spec.id.as_str(),
                    category: spec.category,
                    status: if self.failing == Some(spec.gate) {
                        ValidationStatus::Failure
                    } else {
                        ValidationStatus::Success
                    },
                    message: "".into(),
                    hidden: false,
                    ignored: false,
                };
                ClusterValidations(CLUSTER.iter().map(answer).collect())
            });
            let hosts: Vec<&HostView> = self.hosts.iter().collect();
            refresh_with(&self.cluster, &hosts, &self.settings, now, validations)
        }
        fn on(&self, event: ClusterEvent) -> Result<ClusterDecision, NoTransition> {
            let hosts: Vec<&HostView> = self.hosts.iter().collect();
            on_event(event, &self.cluster, &hosts, &self.settings, NOW, &EventArgs::default())
        }
    }

    fn ago(minutes: u64) -> Option<Timestamp> {
        Some(NOW - Duration::from_secs(minutes * 60))
    }

    fn soft(bench: &mut Bench) {
        bench.settings.enable_soft_timeouts = true;
        bench.cluster.cluster.org_soft_timeouts_enabled = Some(true);
    }

    fn finalizing(stage: FinalizingStage, minutes: u64) -> impl FnOnce(&mut Bench) {
        move |b| {
            b.cluster.cluster.progress = Some(ClusterProgressInfo {
                finalizing_stage: Some(stage),
                finalizing_stage_started_at: ago(minutes),
                ..ClusterProgressInfo::default()
            });
        }
    }

    fn prepared(status: &str) -> impl FnOnce(&mut Bench) {
        let status = status.to_owned();
        move |b| {
            b.cluster.cluster.last_installation_preparation =
                Some(LastInstallationPreparation { status: Some(status), reason: None });
        }
    }

    /// One situation for each row, with the destination that it must lead to.
    fn refreshes() -> Vec<(&'static str, Bench, &'static str, ClusterStatus)> {
        use HostStatus as H;
        let dhcp = |b: &mut Bench| b.cluster.cluster.vip_dhcp_allocation = Some(true);
        let todo = "TODO: Name this transition";
        let preparing = || bench(PreparingForInstallation).masters([H::PreparingSuccessful; 3]);
        let installed = || {
            bench(Finalizing).masters([H::Installed; 3]).with(|b| {
                b.cluster.kubeconfig_uploaded = true;
                b.cluster.cluster.monitored_operators = Some(vec![MonitoredOperator {
                    operator_type: Some(OperatorType::Builtin),
                    status: Some(OperatorStatus::Available),
                    ..MonitoredOperator::default()
                }]);
            })
        };
        let lost = [H::Error, H::Installed, H::Installed];
        let waiting = [H::InstallingPendingUserAction, H::Installed, H::Installed];
        let running = [H::InstallingInProgress, H::Installed, H::Installed];
        vec![
            (
                "inputs missing",
                bench(Insufficient).failing(ClusterGate::PendingInput),
                "Refresh discovering cluster - detect required input",
                PendingForInput,
            ),
            (
                "VIPs missing",
                bench(Ready).failing(ClusterGate::Vips),
                "Refresh discovering cluster - detect required input",
                PendingForInput,
            ),
            (
                "a host not ready",
                bench(Ready).failing(ClusterGate::Sufficient),
                "Refresh discovering cluster - detect insufficient",
                Insufficient,
            ),
            ("DHCP, inputs missing", bench(Ready).with(dhcp).failing(ClusterGate::PendingInput), todo, PendingForInput),
            ("DHCP, no lease yet", bench(Ready).with(dhcp).failing(ClusterGate::Vips), todo, Insufficient),
            ("all well", bench(PendingForInput), "Refresh discovering cluster - detect ready", Ready),
            (
                "prepared too long",
                preparing().with(|b| b.cluster.cluster.status_updated_at = ago(19)),
                "Refresh preparing cluster - detect timeout",
                Ready,
            ),
            (
                "prepared",
                preparing().with(prepared("success")),
                "Refresh preparing cluster - done preparing",
                Installing,
            ),
            (
                "a host left",
                preparing().masters([H::Disconnected, H::PreparingSuccessful, H::Known]),
                "Refresh preparing cluster - insufficient",
                Insufficient,
            ),
            (
                "a host failed to prepare",
                preparing().masters([H::PreparingFailed, H::PreparingSuccessful, H::Known]),
                "Refresh preparing cluster - failed",
                Ready,
            ),
            (
                "the preparation failed",
                preparing().with(prepared("failed")),
                "Refresh preparing cluster - failed",
                Ready,
            ),
            ("still preparing", preparing(), "Maintain preparing-for-installation state", PreparingForInstallation),
            ("too few hosts, user asked", bench(InstallingPendingUserAction).masters(lost), todo, Error),
            (
                "user asked for a day",
                bench(InstallingPendingUserAction)
                    .masters(waiting)
                    .with(|b| b.cluster.cluster.install_started_at = ago(24 * 60 + 1)),
                "Timed out while waiting for user",
                Error,
            ),
            (
                "soft: installed for a day",
                bench(Installing)
                    .masters(running)
                    .with(soft)
                    .with(|b| b.cluster.cluster.install_started_at = ago(24 * 60 + 1)),
                "Timed out while installing",
                Error,
            ),
            (
                "finalizing for too long",
                bench(Finalizing).masters([H::Installed; 3]).with(|b| b.cluster.cluster.status_updated_at = ago(301)),
                "Timed out while finalizing",
                Error,
            ),
            (
                "a finalizing stage for too long",
                bench(Finalizing).masters([H::Installed; 3]).with(finalizing(FinalizingStage::AddingRouterCa, 71)),
                "Finalizing stage timed out.  Move to error",
                Error,
            ),
            (
                "a stage that only warns",
                bench(Finalizing)
                    .masters([H::Installed; 3])
                    .with(finalizing(FinalizingStage::ApplyingOlmManifests, 11)),
                "Finalizing stage is taking too long.  Emit an appropriate event",
                Finalizing,
            ),
            (
                "soft: any stage only warns",
                bench(Finalizing)
                    .masters([H::Installed; 3])
                    .with(soft)
                    .with(finalizing(FinalizingStage::WaitingForClusterOperators, 71)),
                "Finalizing stage is taking too long.  Emit an appropriate event",
                Finalizing,
            ),
            (
                "user still asked",
                bench(InstallingPendingUserAction).masters(waiting),
                todo,
                InstallingPendingUserAction,
            ),
            ("user did it", bench(InstallingPendingUserAction).masters(running), todo, Installing),
            (
                "user did it, all installed",
                bench(InstallingPendingUserAction).masters([H::Installed; 3]),
                todo,
                Finalizing,
            ),
            ("user is needed", bench(Installing).masters(waiting), todo, InstallingPendingUserAction),
            ("all installed", bench(Installing).masters([H::Installed; 3]), "Move to finalizing", Finalizing),
            ("still installing", bench(Installing).masters(running), "Stay in installing", Installing),
            ("all done", installed(), "Finalizing complete", Installed),
            (
                "operators missing",
                installed().with(|b| b.cluster.cluster.monitored_operators = Some(vec![MonitoredOperator::default()])),
                "Maintain finalizing state",
                Finalizing,
            ),
            (
                "kubeconfig missing",
                installed().with(|b| b.cluster.kubeconfig_uploaded = false),
                "Maintain finalizing state",
                Finalizing,
            ),
            ("too few hosts", bench(Installing).masters(lost), "Installation error", Error),
            (
                "logs missing after failure",
                bench(Error).with(|b| b.cluster.cluster.status_updated_at = ago(11)),
                "Log collection timeout during error",
                Error,
            ),
            (
                "logs missing after cancel",
                bench(Cancelled).with(|b| b.cluster.cluster.status_updated_at = ago(11)),
                "Log collection timeout during cancelled",
                Cancelled,
            ),
            ("failed", bench(Error), "Maintain error state", Error),
            ("cancelled", bench(Cancelled), "Maintain cancelled state", Cancelled),
            ("installed", bench(Installed), "Maintain installed state", Installed),
            ("adding hosts", bench(AddingHosts), "Maintain adding-hosts state", AddingHosts),
            ("unmonitored", bench(Unmonitored), "Maintain unmonitored state", Unmonitored),
        ]
    }

    #[test]
    fn every_row_fires_in_its_situation() {
        let mut fired = BTreeSet::new();
        let mut note = |what: &str, decision: &ClusterDecision, name: &str, to: ClusterStatus| {
            let rule = decision.rule.unwrap_or_else(|| panic!("{what}: no row fired"));
            assert_eq!((rule.name, decision.to), (name, to), "{what}");
            fired.insert(RULES.iter().position(|r| r == rule).unwrap());
        };
        for (what, bench, name, to) in refreshes() {
            note(what, &bench.refresh_at(NOW), name, to);
        }
        for (event, from, name, to) in [
            (ClusterEvent::CancelInstallation, Finalizing, "Cancel installation of installing cluster", Cancelled),
            (
                ClusterEvent::CancelInstallation,
                PreparingForInstallation,
                "Cancel installation of preparing cluster",
                Ready,
            ),
            (ClusterEvent::PrepareForInstallation, Ready, "Start installation", PreparingForInstallation),
            (ClusterEvent::ResetCluster, Cancelled, "Reset installation", Insufficient),
        ] {
            note(event.as_str(), &bench(from).on(event).unwrap(), name, to);
        }
        let silent: Vec<&str> = (0..RULES.len()).filter(|i| !fired.contains(i)).map(|i| RULES[i].name).collect();
        assert_eq!(silent, UNREACHABLE.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }

    #[rstest]
    #[case(ClusterEvent::PrepareForInstallation, Insufficient)]
    #[case(ClusterEvent::CancelInstallation, Installed)]
    #[case(ClusterEvent::CancelInstallation, Ready)]
    #[case(ClusterEvent::ResetCluster, Installed)]
    fn other_requests_are_refused(#[case] event: ClusterEvent, #[case] state: ClusterStatus) {
        assert_eq!(bench(state).on(event), Err(NoTransition { event, state }));
    }

    const M: HostRole = HostRole::Master;
    const W: HostRole = HostRole::Worker;
    const A: HostRole = HostRole::Arbiter;
    const IN: HostStatus = HostStatus::Installed;
    const OUT: HostStatus = HostStatus::Error;

    #[rstest]
    #[case::single_node(1, &[(M, IN)], true)]
    #[case::single_node_and_a_worker(1, &[(M, IN), (W, IN)], false)]
    #[case::single_node_failed(1, &[(M, OUT)], false)]
    #[case::arbiter(2, &[(M, IN), (M, IN), (A, IN)], true)]
    #[case::arbiter_failed(2, &[(M, IN), (M, IN), (A, OUT)], false)]
    #[case::two_masters_alone(2, &[(M, IN), (M, IN)], false)]
    #[case::three(3, &[(M, IN), (M, IN), (M, IN)], true)]
    #[case::a_master_failed(3, &[(M, IN), (M, IN), (M, OUT)], false)]
    #[case::five_one_failed(5, &[(M, IN), (M, IN), (M, IN), (M, IN), (M, OUT)], false)]
    #[case::one_of_three_workers_failed(3, &[(M, IN), (M, IN), (M, IN), (W, IN), (W, IN), (W, OUT)], true)]
    #[case::one_of_two_workers_failed(3, &[(M, IN), (M, IN), (M, IN), (W, IN), (W, OUT)], false)]
    #[case::the_only_worker_failed(3, &[(M, IN), (M, IN), (M, IN), (W, OUT)], true)]
    fn how_many_hosts_are_enough(#[case] count: i64, #[case] members: &[(HostRole, HostStatus)], #[case] enough: bool) {
        let mut cluster = ClusterView::default();
        cluster.cluster.control_plane_count = Some(count);
        assert_eq!(quorum(&cluster, &[], members.iter().copied(), &[IN]), enough);
    }

    #[test]
    fn two_masters_that_can_be_fenced_need_no_arbiter() {
        let mut cluster = ClusterView::default();
        cluster.cluster.control_plane_count = Some(2);
        let mut all = hosts(&[(M, IN), (M, IN)]);
        all[0].host.fencing_credentials = Some("{}".to_owned());
        let all: Vec<&HostView> = all.iter().collect();
        assert!(quorum(&cluster, &all, all.iter().map(|h| (h.effective_role(), h.host.status)), &[IN]));
    }

    fn any_bench() -> impl Strategy<Value = Bench> {
        let status = prop::sample::select(ClusterStatus::ALL);
        let host = (prop::sample::select(HostRole::ALL), prop::sample::select(HostStatus::ALL));
        let gate = prop::sample::select(vec![
            None,
            Some(ClusterGate::PendingInput),
            Some(ClusterGate::Vips),
            Some(ClusterGate::Sufficient),
        ]);
        let stage = prop::option::of(prop::sample::select(FinalizingStage::ALL));
        let times = (0..2_000_u64, 0..2_000_u64, 0..2_000_u64);
        let flags = (any::<bool>(), any::<bool>(), prop::sample::select(&["not_started", "failed", "success"][..]));
        (status, prop::collection::vec(host, 0..6), gate, stage, times, flags).prop_map(
            |(status, members, gate, stage, times, flags)| {
                let mut b = bench(status);
                b.hosts = hosts(&members);
                b.failing = gate;
                b.cluster.cluster.status_updated_at = ago(times.0);
                b.cluster.cluster.install_started_at = ago(times.1);
                if let Some(stage) = stage {
                    finalizing(stage, times.2)(&mut b);
                }
                if flags.0 {
                    soft(&mut b);
                }
                b.cluster.kubeconfig_uploaded = flags.1;
                prepared(flags.2)(&mut b);
                b
            },
        )
    }

    proptest! {
        #[test]
        fn no_decision_leaves_the_table(bench in any_bench()) {
            let decision = bench.refresh_at(NOW);
            let from = bench.cluster.cluster.status;
            match decision.rule {
                Some(rule) => prop_assert!(rule.from.contains(&from) && rule.to == decision.to),
                None => prop_assert_eq!(decision.to, from),
            }
            for event in ClusterEvent::ALL.iter().filter(|e| **e != ClusterEvent::RefreshStatus) {
                let row = RULES.iter().find(|r| r.event == *event && r.from.contains(&from));
                prop_assert_eq!(bench.on(*event).ok().map(|d| d.to), row.map(|r| r.to));
            }
        }

        #[test]
        fn nothing_happens_before_the_deadline(bench in any_bench(), part in 0.0..1.0_f64) {
            let decision = bench.refresh_at(NOW);
            let deadline = next_deadline(&bench.cluster, &bench.settings, NOW);
            prop_assert!(deadline.is_none_or(|d| d > NOW));
            let gap = deadline.map_or(Duration::from_secs(1 << 30), |d| d.since(NOW)) - Duration::from_micros(1);
            prop_assert_eq!(&bench.refresh_at(NOW + gap.mul_f64(part)), &decision);
            prop_assert_eq!(&bench.refresh_at(NOW + gap), &decision);
        }
    }
}
