//! The state machines of hosts: [`RULES`] for hosts that are bound to a cluster, [`POOL_RULES`] for those that are not.
//!
//! The tables hold one row for each rule of the real service's dump of its machines, in the order in which it evaluates them.
//! [`refresh`] and [`on_event`] look up what a host's monitor or a request leads to; both only say what to do.

pub mod plan;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStage, HostStatus, HostValidationId, LogsState};

use crate::cluster;
use crate::disks;
use crate::machine::{self, Rule, WRONG_WORDS, fire};
use crate::settings::{Settings, format_duration};
use crate::validation::{HostGate, HostValidations, connection_deadline, evaluate_host, time_sync_deadline};
use crate::view::{ClusterView, HostView, Scope};

pub use self::table::{POOL_RULES, RULES};

use self::HostCond::*;
use self::HostState::{At, Initial};
use vlab_api::types::HostStatus::*;

/// Is a host's inventory taken in this status? In others the reply is refused, with 500: a host that was told to take stock
/// just before somebody else moved it is answered with an error that nobody could avoid.
pub fn takes_inventory(status: HostStatus) -> bool {
    matches!(
        status,
        Discovering
            | Known
            | Disconnected
            | Insufficient
            | PendingForInput
            | Binding
            | InstallingInProgress
            | DiscoveringUnbound
            | KnownUnbound
            | DisconnectedUnbound
            | InsufficientUnbound
    )
}

/// What can happen to a host. Names are those of the real service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostEvent {
    /// An unbound host is bound to a cluster.
    BindHost,
    /// The user cancels the cluster's installation.
    CancelInstallation,
    /// The `install` step failed.
    HostInstallationFailed,
    /// The host reported an installation stage (any but `Failed`, see [`installation_failed`]).
    HostProgressChanged,
    /// A host of an adding-hosts cluster is installed.
    InstallHost,
    /// A step's answer says that the boot medium is gone.
    MediaDisconnect,
    /// The host has what it needs to boot into discovery again.
    RebootingForReclaim,
    /// An installed host goes back to the pool.
    ReclaimHost,
    /// That failed.
    ReclaimHostFailed,
    /// The host monitor looks at it, or something about it was changed by the user.
    RefreshHost,
    /// Its agent registers.
    RegisterHost,
    /// The user resets the cluster.
    ResettingPendingUserAction,
    /// The host is unbound from its cluster.
    UnbindHost,
}

impl HostEvent {
    /// All events.
    pub const ALL: &'static [HostEvent] = &[
        HostEvent::BindHost,
        HostEvent::CancelInstallation,
        HostEvent::HostInstallationFailed,
        HostEvent::HostProgressChanged,
        HostEvent::InstallHost,
        HostEvent::MediaDisconnect,
        HostEvent::RebootingForReclaim,
        HostEvent::ReclaimHost,
        HostEvent::ReclaimHostFailed,
        HostEvent::RefreshHost,
        HostEvent::RegisterHost,
        HostEvent::ResettingPendingUserAction,
        HostEvent::UnbindHost,
    ];

    /// Name in the real service.
    pub const fn as_str(self) -> &'static str {
        match self {
            HostEvent::BindHost => "BindHost",
            HostEvent::CancelInstallation => "CancelInstallation",
            HostEvent::HostInstallationFailed => "HostInstallationFailed",
            HostEvent::HostProgressChanged => "HostProgressChanged",
            HostEvent::InstallHost => "InstallHost",
            HostEvent::MediaDisconnect => "MediaDisconnect",
            HostEvent::RebootingForReclaim => "RebootingForReclaim",
            HostEvent::ReclaimHost => "ReclaimHost",
            HostEvent::ReclaimHostFailed => "ReclaimHostFailed",
            HostEvent::RefreshHost => "RefreshHost",
            HostEvent::RegisterHost => "RegisterHost",
            HostEvent::ResettingPendingUserAction => "ResettingPendingUserAction",
            HostEvent::UnbindHost => "UnbindHost",
        }
    }
}

/// Where a host is in its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostState {
    /// It has not registered yet.
    Initial,
    /// It has that status.
    At(HostStatus),
}

impl HostState {
    /// Its name in the real service's dump.
    pub const fn as_str(self) -> &'static str {
        match self {
            Initial => "initial",
            At(status) => status.as_str(),
        }
    }
}

/// What guards ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostCond {
    /// Validation `connected`: it asked for instructions not long ago, or it is rebooting into what was installed.
    Connected,
    /// Validation `media-connected`.
    MediaConnected,
    /// There is an inventory, and it was not cut to nothing.
    HasInventory,
    /// There is an inventory, and it was cut to nothing.
    InventoryCut,
    /// All validations of the minimum hardware.
    MinimumHardware,
    /// All validations of what the user must give.
    InputsGiven,
    /// All validations that an installation needs.
    SufficientForInstall,
    /// Validation `vsphere-disk-uuid-enabled`.
    DiskUuids,
    /// What an unbound host needs: disk, CPU, memory, a valid name.
    PoolMinimum,
    /// Its effective role is master, arbiter or worker.
    RoleCanInstall,
    /// It joins a cluster that exists already.
    Day2Host,
    /// The service runs under Kubernetes.
    KubeApi,
    /// The stage that it reports is `Rebooting`.
    ReportsRebooting,
    /// The stage that it reports is `Done`.
    ReportsDone,
    /// The cluster is in `preparing-for-installation`.
    ClusterPreparing,
    /// The cluster is in `installing`.
    ClusterInstalling,
    /// The cluster is in `error`.
    ClusterInError,
    /// The cluster is in `installing-pending-user-action`.
    ClusterPendingUserAction,
    /// The cluster is in `installed` or `adding-hosts`.
    ClusterInstalledOrAddingHosts,
    /// Enough hosts of the cluster are installed already: it lives if this one fails.
    QuorumWithoutHost,
    /// The speed of its installation disk was measured, or need not be.
    DiskSpeedChecked,
    /// Measuring the disk's speed failed.
    DiskSpeedFailed,
    /// The disk's speed is not known yet.
    DiskSpeedUnknown,
    /// It has pulled all images.
    ImagesAvailable,
    /// It could not pull an image, or too slowly.
    ImagesFailed,
    /// It has not answered for images yet.
    ImagesUnknown,
    /// It has prepared for too long.
    PreparationTimedOut,
    /// It has been in `installing` for too long without reporting a stage.
    InstallingTimedOut,
    /// It has been reclaimed for too long.
    ReclaimTimedOut,
    /// It has waited for the user for too long.
    PendingUserActionTimedOut,
    /// The timer of its stage has run out.
    StageTimedOut,
    /// That was noted already.
    StageTimeoutNoted,
    /// It was noted that it is silent for too long.
    ConnectionTimeoutNoted,
    /// Timeouts of the installation only warn.
    SoftTimeouts,
    /// Its stage is one in which it waits for others: control plane, controller, bootkube, reboot.
    StageMayWaitForUser,
    /// Its stage is `Writing image to disk`.
    StageIsWritingImage,
    /// Its stage is `Copying registry data to disk`.
    StageIsCopyingRegistryData,
    /// Its stage is `Rebooting`.
    StageIsRebooting,
    /// Its stage is `Done`.
    StageIsDone,
    /// Its logs did not come in time, and that was not noted yet.
    LogsTimedOut,
}

/// The service's words about a host after a row has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostWords {
    /// Those that it has stay.
    Keep,
    /// These words, literally.
    Say(&'static str),
    /// The reason that is given with the event, else these.
    Given(&'static str),
    /// The stage that is reported.
    ReportedStage,
    /// Which stage took too long.
    StageTooLong,
    /// What it should have booted from.
    WrongBoot,
    /// How long it has not come back from its reboot.
    NoReboot,
    /// These, and what the validations say that do not hold.
    Unmet(&'static str),
}

/// How the words begin of a host on which the command of the installation failed: with the event they are given as the reason.
pub const INSTALL_COMMAND_FAILED: &str = "installation command failed";
/// How the words about a stage that took too long begin.
const IN_STAGE: &str = "The host was in stage ";
/// How the words about a wrong boot begin.
const SHOULD_BOOT: &str = "The host should boot from ";
/// How the words about a reboot without a return begin.
const NOT_BACK: &str = "The host did not come back from its reboot within ";

impl HostWords {
    /// Could a row with these words have said that?
    pub fn could_say(&self, text: &str) -> bool {
        match self {
            HostWords::Keep => true,
            HostWords::Say(words) => text == *words,
            HostWords::Given(words) => text == *words || text.starts_with(INSTALL_COMMAND_FAILED),
            HostWords::ReportedStage => HostStage::ALL.iter().any(|stage| stage.as_str() == text),
            HostWords::StageTooLong => text.starts_with(IN_STAGE),
            HostWords::WrongBoot => text.starts_with(SHOULD_BOOT),
            HostWords::NoReboot => text.starts_with(NOT_BACK),
            HostWords::Unmet(words) => text.starts_with(words),
        }
    }
}

/// A row of a host's machine.
pub type HostRule = Rule<HostEvent, HostState, HostCond, HostWords, HostEffect>;

/// What is wrong on purpose with the machines of hosts.
pub type HostWrong = machine::Wrong<HostEvent, HostState, HostCond, HostWords, HostEffect>;

/// Changes of a host's status that the real service makes outside of its machine.
/// * A report of stage `Failed` leads to `error` ([`installation_failed`]).
pub const OUTSIDE_THE_MACHINE: &[(HostStatus, HostStatus, &str)] = &[
    (Installing, Error, "stage Failed was reported"),
    (InstallingInProgress, Error, "stage Failed was reported"),
    (InstallingPendingUserAction, Error, "stage Failed was reported"),
];

/// In these the host monitor does not look at a host, although there are rules for it: the real service's lists do not have them.
pub const NOT_MONITORED: &[HostStatus] = &[HostStatus::Unbinding];

/// The words of a host that cannot read the medium that it booted from.
pub const WORDS_OF_LOST_MEDIUM: &str =
    "The host cannot read its boot medium; check that it is still connected and boot again";
/// How the words of a host begin that reported the stage `Failed`.
pub const STAGE_FAILED: &str = "Failed - ";

/// What an event says beyond its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventArgs<'a> {
    /// The host has not been known so far (`RegisterHost` only).
    pub initial: bool,
    /// The stage that is reported (`HostProgressChanged` only), as [`crate::stages::stored_stage`] gives it.
    pub stage: Option<HostStage>,
    /// Why: the installer's error text, the user's reason. Empty: the machine's own words.
    pub reason: &'a str,
    /// The service runs under Kubernetes.
    pub kube_api: bool,
    /// The machine is wrong on purpose.
    pub wrong: Option<HostWrong>,
}

/// What else a transition does to the host, beside its status. The service carries them out in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostEffect {
    /// Forget inventory and being the bootstrap. What the user chose (role, name) stays.
    ForgetInventory,
    /// Forget progress and images.
    ForgetProgress,
    /// Forget which time sources it has.
    ForgetTimeSources,
    /// Forget its logs.
    ForgetLogs,
    /// Forget its answers for images if one of them failed.
    ForgetFailedImages,
    /// Note that the cluster's last preparation has not begun (`last-installation-preparation`: `not_started`).
    RestartClusterPreparation,
    /// Forget what the installation has left: suggested role, being the bootstrap, progress and logs.
    ForgetInstallation,
    /// Forget all that depends on the cluster, leave it, and be a day-1 host with the role `auto-assign` again.
    LeaveCluster,
    /// `media_status` becomes `disconnected`.
    MediaGone,
    /// `progress.stage_timed_out` becomes true; event `host_stage_timed_out`.
    NoteStageTimeout,
    /// `progress.stage_updated_at` becomes now.
    RestartStageTimer,
    /// `connection_timed_out` becomes true.
    NoteConnectionTimeout,
    /// `connection_timed_out` becomes false.
    ForgetConnectionTimeout,
    /// `logs_info` becomes `timeout`.
    NoteLogsTimeout,
}

/// What is to be done with a host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostDecision {
    /// The row that fired; `None` when a refresh found none, which leaves the status as it is.
    pub rule: Option<&'static HostRule>,
    /// Status from now on.
    pub to: HostStatus,
    /// The service's words from now on.
    pub status_info: String,
    /// What the validations say (refreshes only).
    pub validations: Option<Arc<HostValidations>>,
    /// New value of `connection_timed_out`; `None`: stays.
    pub connection_timed_out: Option<bool>,
    /// `progress.stage_timed_out` becomes true, and that is told once.
    pub stage_timed_out: bool,
    /// `logs_info` becomes `timeout`.
    pub logs_timed_out: bool,
    /// `progress.stage_updated_at` becomes now.
    pub touch_stage_timer: bool,
    /// All of these and the rest, in order.
    pub effects: Vec<HostEffect>,
    /// The request is answered with this status although a row fired, and nothing is stored.
    pub refused: Option<u16>,
}

impl HostDecision {
    /// Does the host's status change?
    pub fn changes_status(&self, subject: &HostView) -> bool {
        self.refused.is_none() && self.to != subject.host.status
    }
}

/// No row of the machine fits. The real service answers 400 to registrations, 409 or 500 to other requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no transition of a host in {} on {}", state.as_str(), event.as_str())]
pub struct NoTransition {
    /// What happened.
    pub event: HostEvent,
    /// Where the host was.
    pub state: HostState,
}

/// Is it the pool's machine that a host of no cluster asks, in that state about that event? One that is given back has left its cluster
/// already, and its way on has rules in the machine of the others.
pub fn is_of_the_pool(event: HostEvent, state: HostState) -> bool {
    event == HostEvent::RegisterHost || !matches!(state, At(Reclaiming | ReclaimingRebooting))
}

/// The machine of that host, asked about that event.
pub fn machine_of(subject: &HostView, scope: &Scope<'_>, event: HostEvent) -> &'static [HostRule] {
    let is_unbound = subject.is_unbound() && scope.cluster.is_none();
    if is_unbound && is_of_the_pool(event, At(subject.host.status)) { POOL_RULES } else { RULES }
}

/// What was found about a host at an instant: answers the guards' questions.
struct HostGuards<'a> {
    subject: &'a HostView,
    scope: &'a Scope<'a>,
    settings: &'a Settings,
    now: Timestamp,
    args: &'a EventArgs<'a>,
    /// Evaluated for refreshes only; no other event's guards ask for it.
    validations: Option<&'a HostValidations>,
}

impl HostGuards<'_> {
    fn cluster_is(&self, statuses: &[ClusterStatus]) -> bool {
        self.scope.cluster.is_some_and(|c| statuses.contains(&c.cluster.status))
    }

    fn gate(&self, gate: HostGate) -> bool {
        self.validations.is_some_and(|v| v.gate(gate))
    }

    fn satisfied(&self, ids: &[HostValidationId]) -> bool {
        self.validations.is_some_and(|v| ids.iter().all(|id| v.satisfied(*id)))
    }

    /// Is `limit` over since `begin`? An instant that is not set never was.
    fn over(&self, begin: Option<Timestamp>, limit: Duration) -> bool {
        begin.is_some_and(|t| t.is_set() && self.now.since(t) > limit)
    }

    fn holds(&self, condition: HostCond) -> bool {
        let (subject, host) = (self.subject, &self.subject.host);
        let stage = subject.stage();
        match condition {
            Connected => self.satisfied(&[HostValidationId::Connected]),
            MediaConnected => self.satisfied(&[HostValidationId::MediaConnected]),
            HasInventory => self.gate(HostGate::Inventory),
            InventoryCut => {
                self.satisfied(&[HostValidationId::HasInventory])
                    && !self.satisfied(&[HostValidationId::InventoryNotFullyTruncated])
            }
            MinimumHardware => self.gate(HostGate::MinimumHardware),
            InputsGiven => self.gate(HostGate::PendingInput),
            SufficientForInstall => self.gate(HostGate::Sufficient),
            DiskUuids => self.gate(HostGate::BeforeInput),
            PoolMinimum => self.satisfied(POOL_MINIMUM),
            RoleCanInstall => {
                matches!(subject.effective_role(), HostRole::Master | HostRole::Arbiter | HostRole::Worker)
            }
            Day2Host => subject.is_day2(),
            KubeApi => self.args.kube_api,
            ReportsRebooting => self.args.stage == Some(HostStage::Rebooting),
            ReportsDone => self.args.stage == Some(HostStage::Done),
            ClusterPreparing => self.cluster_is(&[ClusterStatus::PreparingForInstallation]),
            ClusterInstalling => self.cluster_is(&[ClusterStatus::Installing]),
            ClusterInError => self.cluster_is(&[ClusterStatus::Error]),
            ClusterPendingUserAction => self.cluster_is(&[ClusterStatus::InstallingPendingUserAction]),
            ClusterInstalledOrAddingHosts => self.cluster_is(&[ClusterStatus::Installed, ClusterStatus::AddingHosts]),
            QuorumWithoutHost => self.scope.cluster.is_some_and(|c| {
                // Hosts that are still on their way do not count: only what is installed is certain.
                cluster::quorum(c, self.scope.hosts, &[HostStatus::Installed])
            }),
            DiskSpeedChecked => disk_speed(subject) == PreparationCheck::Passed,
            DiskSpeedFailed => disk_speed(subject) == PreparationCheck::Failed,
            DiskSpeedUnknown => disk_speed(subject) == PreparationCheck::Unknown,
            ImagesAvailable => images(subject) == PreparationCheck::Passed,
            ImagesFailed => images(subject) == PreparationCheck::Failed,
            ImagesUnknown => images(subject) == PreparationCheck::Unknown,
            PreparationTimedOut
            | InstallingTimedOut
            | ReclaimTimedOut
            | PendingUserActionTimedOut
            | StageTimedOut
            | LogsTimedOut => self.timer(condition).is_some_and(|(begin, limit)| self.over(Some(begin), limit)),
            StageTimeoutNoted => host.progress.as_ref().and_then(|p| p.stage_timed_out) == Some(true),
            ConnectionTimeoutNoted => host.connection_timed_out == Some(true),
            SoftTimeouts => self.scope.cluster.is_some_and(|c| soft_timeouts(self.settings, c)),
            StageMayWaitForUser => stage.is_some_and(|s| MAY_WAIT_FOR_USER.contains(&s)),
            StageIsWritingImage => stage == Some(HostStage::WritingImageToDisk),
            StageIsCopyingRegistryData => stage == Some(HostStage::CopyingRegistryDataToDisk),
            StageIsRebooting => stage == Some(HostStage::Rebooting),
            StageIsDone => stage == Some(HostStage::Done),
        }
    }

    /// The timer of a condition that comes true by the passing of time alone: since when it runs, and for how long.
    fn timer(&self, condition: HostCond) -> Option<(Timestamp, Duration)> {
        let (subject, settings) = (self.subject, self.settings);
        let in_status = |limit| Some((subject.host.status_updated_at.filter(|t| t.is_set())?, limit));
        match condition {
            PreparationTimedOut => in_status(settings.host_prepare_timeout()),
            InstallingTimedOut => in_status(settings.constants.installing_without_progress),
            ReclaimTimedOut => in_status(settings.constants.reclaim_timeout),
            PendingUserActionTimedOut => in_status(settings.host_installing_pending_user_action_timeout),
            StageTimedOut => Some((stage_updated_at(subject)?, self.stage_timeout(subject.stage()?))),
            LogsTimedOut => logs_timer(subject, settings),
            _ => None,
        }
    }

    fn stage_timeout(&self, stage: HostStage) -> Duration {
        self.settings.stage_timeout(stage, self.scope.cluster.is_some_and(ClusterView::is_sno))
    }
}

/// Stages in which a host waits for others. While the cluster waits for its user, their timer does not run out.
pub const MAY_WAIT_FOR_USER: &[HostStage] = &[
    HostStage::WaitingForControlPlane,
    HostStage::WaitingForController,
    HostStage::WaitingForBootkube,
    HostStage::Rebooting,
];

/// What an unbound host needs to be known.
pub const POOL_MINIMUM: &[HostValidationId] = &[
    HostValidationId::HasMinValidDisks,
    HostValidationId::HasMinCpuCores,
    HostValidationId::HasMinMemory,
    HostValidationId::HostnameValid,
];

/// Do timeouts of that cluster's installation only warn?
pub fn soft_timeouts(settings: &Settings, cluster: &ClusterView) -> bool {
    settings.enable_soft_timeouts && cluster.cluster.org_soft_timeouts_enabled == Some(true)
}

/// Result of one of the two checks of the preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreparationCheck {
    Passed,
    Failed,
    Unknown,
}

/// The disk's speed need not be measured where the system runs from its disk, or where partitions are kept.
fn disk_speed(subject: &HostView) -> PreparationCheck {
    let persistent = subject.inventory.as_ref().and_then(|i| i.boot.as_ref()).and_then(|b| b.device_type.as_deref())
        == Some("persistent");
    let keeps_partitions = subject.host.installer_args.as_deref().is_some_and(|args| args.contains("--save-part"));
    if persistent || keeps_partitions {
        return PreparationCheck::Passed;
    }
    let measured = subject
        .installation_disk()
        .and_then(|disk| subject.disks_info.get(disks::identifier(disk)))
        .or_else(|| subject.host.installation_disk_id.as_ref().and_then(|id| subject.disks_info.get(id)))
        .and_then(|info| info.disk_speed.as_ref());
    match measured {
        Some(speed) if speed.tested == Some(true) && speed.exit_code.unwrap_or(0) == 0 => PreparationCheck::Passed,
        Some(speed) if speed.tested == Some(true) => PreparationCheck::Failed,
        _ => PreparationCheck::Unknown,
    }
}

/// Could the host not pull an image, or only at a crawl?
pub fn images_failed(subject: &HostView) -> bool {
    images(subject) == PreparationCheck::Failed
}

/// Images count as pulled when there is an answer for at least one and none failed or crawled.
fn images(subject: &HostView) -> PreparationCheck {
    // The service's threshold, in MB/s.
    const TOO_SLOW: f64 = 0.001;
    let failed = subject.images_status.values().any(|image| {
        image.result.as_deref() == Some("failure")
            || (image.size_bytes.unwrap_or(0.0) > 0.0 && image.download_rate.unwrap_or(0.0) < TOO_SLOW)
    });
    match (subject.images_status.is_empty(), failed) {
        (true, _) => PreparationCheck::Unknown,
        (false, true) => PreparationCheck::Failed,
        (false, false) => PreparationCheck::Passed,
    }
}

fn stage_updated_at(subject: &HostView) -> Option<Timestamp> {
    subject.host.progress.as_ref().and_then(|p| p.stage_updated_at).or(subject.host.stage_updated_at)
}

/// When something happened that never did, for the timers of logs: whatever waits for it has waited long enough.
pub(crate) const LONG_AGO: Timestamp = Timestamp::from_secs(1);

/// Which timer of the host's logs runs: since when and for how long.
fn logs_timer(subject: &HostView, settings: &Settings) -> Option<(Timestamp, Duration)> {
    let host = &subject.host;
    let collected = host.logs_collected_at.filter(|t| t.is_set());
    match host.logs_info.unwrap_or(LogsState::Empty) {
        LogsState::Completed | LogsState::Timeout => None,
        // Where some have come already, the time runs since then.
        LogsState::Requested => {
            Some((collected.or(host.logs_started_at).filter(|t| t.is_set())?, settings.host_log_collection_timeout))
        }
        LogsState::Collecting => Some((collected.unwrap_or(LONG_AGO), settings.host_log_pending_timeout)),
        LogsState::Empty if host.logs_started_at.is_some_and(|t| t.is_set()) => None,
        LogsState::Empty => Some((host.status_updated_at.filter(|t| t.is_set())?, settings.host_log_pending_timeout)),
    }
}

/// What the monitor makes of a host: evaluates its validations, then its machine.
pub fn refresh(subject: &HostView, scope: &Scope<'_>, settings: &Settings, now: Timestamp) -> HostDecision {
    let validations = evaluate_host(subject, scope, settings, now);
    refresh_with(subject, scope, settings, now, validations, None)
}

/// The same, with validations that were evaluated before, and perhaps with a machine that is wrong on purpose.
pub fn refresh_with(
    subject: &HostView,
    scope: &Scope<'_>,
    settings: &Settings,
    now: Timestamp,
    validations: HostValidations,
    wrong: Option<HostWrong>,
) -> HostDecision {
    let args = EventArgs { wrong, ..EventArgs::default() };
    let facts = HostGuards { subject, scope, settings, now, args: &args, validations: Some(&validations) };
    let at = (HostEvent::RefreshHost, At(subject.host.status));
    let rule = fire(machine_of(subject, scope, at.0), wrong.as_ref(), at, &|c| facts.holds(c));
    let mut decision = decide(rule, &facts);
    decision.validations = Some(Arc::new(validations));
    decision
}

/// What any other event leads to.
///
/// # Errors
/// No row of the host's machine fits.
pub fn on_event(
    event: HostEvent,
    subject: &HostView,
    scope: &Scope<'_>,
    settings: &Settings,
    now: Timestamp,
    args: &EventArgs<'_>,
) -> Result<HostDecision, NoTransition> {
    if event == HostEvent::RefreshHost {
        return Ok(refresh(subject, scope, settings, now));
    }
    let state = if args.initial && event == HostEvent::RegisterHost { Initial } else { At(subject.host.status) };
    let facts = HostGuards { subject, scope, settings, now, args, validations: None };
    let rule = fire(machine_of(subject, scope, event), args.wrong.as_ref(), (event, state), &|c| facts.holds(c));
    match rule {
        Some(rule) => Ok(decide(Some(rule), &facts)),
        None => Err(NoTransition { event, state }),
    }
}

/// What a report of stage `Failed` leads to; the machine has no row for it. `None` outside of the installation, where the
/// report is refused.
pub fn installation_failed(subject: &HostView, progress_info: &str) -> Option<HostDecision> {
    let status = subject.host.status;
    OUTSIDE_THE_MACHINE.iter().any(|(from, to, _)| *from == status && *to == Error).then(|| HostDecision {
        to: Error,
        status_info: format!("{STAGE_FAILED}{progress_info}"),
        ..unchanged(subject)
    })
}

fn unchanged(subject: &HostView) -> HostDecision {
    HostDecision {
        rule: None,
        to: subject.host.status,
        status_info: subject.host.status_info.clone(),
        validations: None,
        connection_timed_out: None,
        stage_timed_out: false,
        logs_timed_out: false,
        touch_stage_timer: false,
        effects: Vec::new(),
        refused: None,
    }
}

fn decide(rule: Option<&'static HostRule>, facts: &HostGuards<'_>) -> HostDecision {
    let subject = facts.subject;
    let Some(rule) = rule else { return unchanged(subject) };
    let wrong = facts.args.wrong.as_ref();
    let At(to) = rule.leads_to(wrong) else { return unchanged(subject) };
    let mut effects = rule.does(wrong);
    if effects.contains(&HostEffect::RestartStageTimer)
        && !facts.over(stage_updated_at(subject), facts.settings.constants.stage_timer_refresh)
    {
        effects.clear();
    }
    let refused = match (rule.event, rule.to) {
        (HostEvent::RegisterHost, At(Installed)) => Some(409),
        // Told before: the agent keeps trying, and is answered that it may not.
        (HostEvent::RegisterHost, At(InstallingPendingUserAction))
            if subject.host.status == InstallingPendingUserAction
                || subject.inventory.is_none()
                || subject.host.installation_disk_id.as_deref().unwrap_or("").is_empty() =>
        {
            Some(400)
        }
        _ => None,
    };
    let status_info = match rule.misspeaks(wrong) {
        true => WRONG_WORDS.to_owned(),
        false => words(rule, facts).unwrap_or_else(|| subject.host.status_info.clone()),
    };
    HostDecision {
        rule: Some(rule),
        to,
        status_info,
        validations: None,
        connection_timed_out: match () {
            () if effects.contains(&HostEffect::NoteConnectionTimeout) => Some(true),
            () if effects.contains(&HostEffect::ForgetConnectionTimeout) => Some(false),
            () => None,
        },
        stage_timed_out: effects.contains(&HostEffect::NoteStageTimeout),
        logs_timed_out: effects.contains(&HostEffect::NoteLogsTimeout),
        touch_stage_timer: effects.contains(&HostEffect::RestartStageTimer),
        effects: if refused.is_some() { Vec::new() } else { effects },
        refused,
    }
}

/// The words that go with a row; `None`: those that the host has stay.
fn words(rule: &HostRule, facts: &HostGuards<'_>) -> Option<String> {
    let disk = || facts.subject.host.installation_disk_path.as_deref().unwrap_or("its installation disk");
    Some(match rule.words {
        HostWords::Keep => return None,
        HostWords::Say(text) => text.to_owned(),
        HostWords::Given(text) if facts.args.reason.is_empty() => text.to_owned(),
        HostWords::Given(_) => facts.args.reason.to_owned(),
        HostWords::ReportedStage => facts.args.stage.map_or("", HostStage::as_str).to_owned(),
        HostWords::StageTooLong => {
            let stage = facts.subject.stage().map_or("an unknown stage", HostStage::as_str);
            format!("{IN_STAGE}{stage} for too long")
        }
        HostWords::WrongBoot => {
            // Whoever stands before the machine sees the disk's model and serial number, and not its path.
            let seen = facts.subject.installation_disk().map(|disk| [disk.model.as_deref(), disk.serial.as_deref()]);
            let seen = seen.into_iter().flatten().flatten().filter(|word| !word.is_empty());
            let seen: String = seen.map(|word| format!("{word} ")).collect();
            format!(
                "{SHOULD_BOOT}{seen}{} and booted from its discovery image instead; correct the boot order and reboot it",
                disk(),
            )
        }
        HostWords::NoReboot => format!(
            "{NOT_BACK}{}; check that it boots from {}",
            format_duration(facts.stage_timeout(HostStage::Rebooting)),
            disk(),
        ),
        HostWords::Unmet(beginning) => unmet(beginning, facts),
    })
}

/// `beginning`, and what the first unmet validations say.
fn unmet(beginning: &str, facts: &HostGuards<'_>) -> String {
    // The API's limit for the whole text is 2040 characters.
    const LIMIT: usize = 2000;
    let mut text = beginning.to_owned();
    let open = facts.validations.map(|v| v.0.as_slice()).unwrap_or_default();
    for validation in open.iter().filter(|v| !v.satisfied() && !v.hidden) {
        if text.len() + validation.message.len() + 2 > LIMIT {
            break;
        }
        text.push_str(if text.len() == beginning.len() { ": " } else { "; " });
        text.push_str(&validation.message);
    }
    text
}

/// The next instant, after `now`, at which the passing of time alone could change what [`refresh`] says; `None`: never.
/// Until then a host of which nothing else has changed need not be looked at.
pub fn next_deadline(subject: &HostView, scope: &Scope<'_>, settings: &Settings, now: Timestamp) -> Option<Timestamp> {
    let host = &subject.host;
    let constants = &settings.constants;
    let mut next: Option<Timestamp> = None;
    // All limits are "longer than": they are passed one tick of the clock after their end.
    let mut consider = |begin: Option<Timestamp>, limit: Duration| {
        let Some(begin) = begin.filter(|t| t.is_set()) else { return };
        let passed = begin + limit + Duration::from_micros(1);
        if passed > now && next.is_none_or(|n| passed < n) {
            next = Some(passed);
        }
    };
    // The instants at which a validation's answer turns. They are exact: nothing is added to them.
    let clock_right_again = host
        .timestamp
        .map(|sent| Timestamp::from_secs(sent.saturating_sub(constants.host_ahead_minutes.saturating_mul(60))));
    for turn in [connection_deadline(subject, settings), time_sync_deadline(subject, settings), clock_right_again] {
        consider(turn.map(|t| t - Duration::from_micros(1)), Duration::ZERO);
    }
    let (args, state) = (EventArgs::default(), At(host.status));
    let facts = HostGuards { subject, scope, settings, now, args: &args, validations: None };
    for rule in machine_of(subject, scope, HostEvent::RefreshHost) {
        if rule.event != HostEvent::RefreshHost || !rule.from.contains(&state) {
            continue;
        }
        rule.guard.each(&mut |condition| {
            if let Some((begin, limit)) = facts.timer(condition) {
                consider(Some(begin), limit);
            }
        });
        if rule.effects.contains(&HostEffect::RestartStageTimer) && facts.holds(StageMayWaitForUser) {
            consider(stage_updated_at(subject), constants.stage_timer_refresh);
        }
    }
    next
}
