//! The state machines of hosts: [`RULES`] for hosts that are bound to a cluster, [`POOL_RULES`] for those that are not.
//!
//! The tables hold one row for each rule of the real service's dump of its machines, in the order in which it evaluates them.
//! [`refresh`] and [`on_event`] look up what a host's monitor or a request leads to; both only say what to do.

use std::time::Duration;

use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStage, HostStatus, HostValidationId, LogsState};

use crate::cluster;
use crate::disks;
use crate::machine::Guard::{All, Always, Any, Is, Not};
use crate::machine::{Guard, Rule, fire};
use crate::settings::{Settings, format_duration};
use crate::validation::{HostGate, HostValidations, connection_deadline, evaluate_host, time_sync_deadline};
use crate::view::{ClusterView, HostView, Scope};

use self::HostCond::*;
use self::HostState::{At, Initial};
use vlab_api::types::HostStatus::*;

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
    /// All validations of the minimum hardware.
    MinimumHardware,
    /// All validations of what the user must give.
    InputsGiven,
    /// All validations that an installation needs.
    SufficientForInstall,
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
    /// Enough other hosts of the cluster are left if this one fails.
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

/// A row of a host's machine.
pub type HostRule = Rule<HostEvent, HostState, HostCond>;

/// The machine of hosts that are bound to a cluster.
pub static RULES: &[HostRule] = &[
    Rule {
        name: "Installation canceled while host is installing",
        event: HostEvent::CancelInstallation,
        from: &[At(InstallingPendingUserAction), At(Installing), At(InstallingInProgress), At(Installed), At(Error)],
        guard: Always,
        to: At(Cancelled),
    },
    Rule {
        name: "Cancel while preparing",
        event: HostEvent::CancelInstallation,
        from: &[At(PreparingForInstallation), At(PreparingSuccessful)],
        guard: Always,
        to: At(Known),
    },
    Rule {
        name: "Cancel while known",
        event: HostEvent::CancelInstallation,
        from: &[At(Known)],
        guard: Always,
        to: At(Known),
    },
    Rule {
        name: "Installation failed while host is installing",
        event: HostEvent::HostInstallationFailed,
        from: &[At(Installing), At(InstallingInProgress)],
        guard: Always,
        to: At(Error),
    },
    Rule {
        name: "host progress installing-in-progress on rebooting in kube-api mode",
        event: HostEvent::HostProgressChanged,
        from: &[At(InstallingInProgress), At(Installing)],
        guard: All(&[Is(Day2Host), Is(ReportsRebooting), Is(KubeApi)]),
        to: At(InstallingInProgress),
    },
    Rule {
        name: "host progress changed to added-to-existing-cluster for day2 host",
        event: HostEvent::HostProgressChanged,
        from: &[At(InstallingInProgress), At(Installing), At(InstallingPendingUserAction)],
        guard: All(&[Is(Day2Host), Is(ReportsDone)]),
        to: At(AddedToExistingCluster),
    },
    Rule {
        name: "host progress changed to installed",
        event: HostEvent::HostProgressChanged,
        from: &[At(InstallingInProgress), At(Installing)],
        guard: Is(ReportsDone),
        to: At(Installed),
    },
    Rule {
        name: "default host progress changed",
        event: HostEvent::HostProgressChanged,
        from: &[At(InstallingInProgress), At(Installing), At(InstallingPendingUserAction)],
        guard: Always,
        to: At(InstallingInProgress),
    },
    Rule {
        name: "Host progress change during installed state when host is not in state Done (or Rebooting in day2) should stay in installed state",
        event: HostEvent::HostProgressChanged,
        from: &[At(Installed)],
        guard: Always,
        to: At(Installed),
    },
    Rule {
        name: "Host progress change during installing-pending-user-action state when host is not in state Done (or Rebooting in day2) should stay in installing-pending-user-action state",
        event: HostEvent::HostProgressChanged,
        from: &[At(InstallingPendingUserAction)],
        guard: Always,
        to: At(InstallingPendingUserAction),
    },
    Rule {
        name: "Host progress change during resetting-pending-user-action state when host is not in state Done (or Rebooting in day2) should stay in resetting-pending-user-action state",
        event: HostEvent::HostProgressChanged,
        from: &[At(ResettingPendingUserAction)],
        guard: Always,
        to: At(ResettingPendingUserAction),
    },
    Rule {
        name: "Install known host",
        event: HostEvent::InstallHost,
        from: &[At(Known)],
        guard: Is(Day2Host),
        to: At(Installing),
    },
    Rule {
        name: "Move to disconnected when virtual media disconnects pre-installation",
        event: HostEvent::MediaDisconnect,
        from: &[At(Discovering), At(Insufficient), At(Known), At(PendingForInput), At(Disconnected), At(Binding)],
        guard: Always,
        to: At(Disconnected),
    },
    Rule {
        name: "Move to error when virtual media disconnects post-installation",
        event: HostEvent::MediaDisconnect,
        from: &[
            At(PreparingForInstallation),
            At(PreparingFailed),
            At(PreparingSuccessful),
            At(Installing),
            At(InstallingInProgress),
            At(Error),
        ],
        guard: Always,
        to: At(Error),
    },
    Rule {
        name: "Rebooting for reclaim reclaiming host",
        event: HostEvent::RebootingForReclaim,
        from: &[At(Reclaiming)],
        guard: Always,
        to: At(ReclaimingRebooting),
    },
    Rule {
        name: "Reclaim successful host",
        event: HostEvent::ReclaimHost,
        from: &[At(Installed), At(AddedToExistingCluster)],
        guard: Always,
        to: At(Reclaiming),
    },
    Rule {
        name: "Reclaim pre-installation",
        event: HostEvent::ReclaimHost,
        from: &[At(Known), At(Discovering), At(Disconnected), At(Insufficient), At(PendingForInput)],
        guard: Always,
        to: At(Unbinding),
    },
    Rule {
        name: "Reclaim failed host",
        event: HostEvent::ReclaimHost,
        from: &[At(Error), At(Cancelled)],
        guard: Always,
        to: At(UnbindingPendingUserAction),
    },
    Rule {
        name: "Reclaim failure for reclaiming host",
        event: HostEvent::ReclaimHostFailed,
        from: &[At(Reclaiming), At(ReclaimingRebooting)],
        guard: Always,
        to: At(UnbindingPendingUserAction),
    },
    Rule {
        name: "Refresh reclaiming host",
        event: HostEvent::RefreshHost,
        from: &[At(Reclaiming), At(ReclaimingRebooting)],
        guard: Is(ReclaimTimedOut),
        to: At(UnbindingPendingUserAction),
    },
    Rule {
        name: "Refresh known host in preparing cluster",
        event: HostEvent::RefreshHost,
        from: &[At(Known)],
        guard: All(&[Is(RoleCanInstall), Is(Connected), Is(MediaConnected), Is(ClusterPreparing)]),
        to: At(PreparingForInstallation),
    },
    Rule {
        name: "Refresh successfully preparing host",
        event: HostEvent::RefreshHost,
        from: &[At(PreparingForInstallation)],
        guard: All(&[
            Is(Connected),
            Is(MediaConnected),
            Is(DiskSpeedChecked),
            Is(ImagesAvailable),
            Is(ClusterPreparing),
        ]),
        to: At(PreparingSuccessful),
    },
    Rule {
        name: "Stay in preparing successful",
        event: HostEvent::RefreshHost,
        from: &[At(PreparingSuccessful)],
        guard: All(&[Is(Connected), Is(MediaConnected), Is(ClusterPreparing)]),
        to: At(PreparingSuccessful),
    },
    Rule {
        name: "Move successfully prepared host to installing",
        event: HostEvent::RefreshHost,
        from: &[At(PreparingSuccessful)],
        guard: All(&[Is(Connected), Is(MediaConnected), Is(ClusterInstalling)]),
        to: At(Installing),
    },
    Rule {
        name: "Move preparing host to known when cluster stops preparing",
        event: HostEvent::RefreshHost,
        from: &[At(PreparingForInstallation)],
        guard: All(&[
            Is(Connected),
            Is(MediaConnected),
            Not(&Is(DiskSpeedFailed)),
            Not(&Is(ImagesFailed)),
            Not(&Is(ClusterPreparing)),
        ]),
        to: At(Known),
    },
    Rule {
        name: "Preparing failed disk speed host move to insufficient",
        event: HostEvent::RefreshHost,
        from: &[At(PreparingForInstallation), At(PreparingFailed), At(Known)],
        guard: All(&[Is(Connected), Is(MediaConnected), Is(DiskSpeedFailed)]),
        to: At(Insufficient),
    },
    Rule {
        name: "Preparing timed out host move to known",
        event: HostEvent::RefreshHost,
        from: &[At(PreparingForInstallation)],
        guard: All(&[
            Is(Connected),
            Is(MediaConnected),
            Is(PreparationTimedOut),
            Any(&[Is(DiskSpeedUnknown), Is(ImagesUnknown)]),
        ]),
        to: At(PreparingFailed),
    },
    Rule {
        name: "Preparing failed image pull host move to preparing failed",
        event: HostEvent::RefreshHost,
        from: &[At(PreparingForInstallation)],
        guard: All(&[Is(Connected), Is(MediaConnected), Is(ImagesFailed)]),
        to: At(PreparingFailed),
    },
    Rule {
        name: "Stay in preparing for installation",
        event: HostEvent::RefreshHost,
        from: &[At(PreparingForInstallation)],
        guard: All(&[
            Is(Connected),
            Is(MediaConnected),
            Any(&[Is(DiskSpeedUnknown), Is(ImagesUnknown)]),
            Is(ClusterPreparing),
        ]),
        to: At(PreparingForInstallation),
    },
    Rule {
        name: "Failed preparing to known when cluster is no longer preparing",
        event: HostEvent::RefreshHost,
        from: &[At(PreparingFailed)],
        guard: All(&[Is(Connected), Is(MediaConnected), Not(&Is(ClusterPreparing))]),
        to: At(Known),
    },
    Rule {
        name: "Successful preparing to known when cluster is no longer preparing",
        event: HostEvent::RefreshHost,
        from: &[At(PreparingSuccessful)],
        guard: All(&[Is(Connected), Is(MediaConnected), Not(&Is(ClusterPreparing)), Not(&Is(ClusterInstalling))]),
        to: At(Known),
    },
    Rule {
        name: "Move host to disconnected when connected times out",
        event: HostEvent::RefreshHost,
        from: &[
            At(Discovering),
            At(Insufficient),
            At(Known),
            At(PendingForInput),
            At(Disconnected),
            At(PreparingFailed),
        ],
        guard: Any(&[Not(&Is(Connected)), Not(&Is(MediaConnected))]),
        to: At(Disconnected),
    },
    Rule {
        name: "Move host to error when cluster is in error",
        event: HostEvent::RefreshHost,
        from: &[
            At(Installing),
            At(InstallingInProgress),
            At(Installed),
            At(ResettingPendingUserAction),
            At(InstallingPendingUserAction),
        ],
        guard: All(&[Is(ClusterInError), Not(&Is(Day2Host))]),
        to: At(Error),
    },
    Rule {
        name: "Move host to error when installation times out",
        event: HostEvent::RefreshHost,
        from: &[At(Installing)],
        guard: Is(InstallingTimedOut),
        to: At(Error),
    },
    Rule {
        name: "Move preparing host to disconnected when connection times out",
        event: HostEvent::RefreshHost,
        from: &[At(PreparingForInstallation), At(PreparingSuccessful)],
        guard: Any(&[Not(&Is(Connected)), Not(&Is(MediaConnected))]),
        to: At(Disconnected),
    },
    Rule {
        name: "Move installing host to error when connection times out",
        event: HostEvent::RefreshHost,
        from: &[At(Installing), At(InstallingInProgress)],
        guard: All(&[Not(&Is(Connected)), Not(&Is(SoftTimeouts))]),
        to: At(Error),
    },
    Rule {
        name: "Keep installing host when connection times out",
        event: HostEvent::RefreshHost,
        from: &[At(Installing)],
        guard: All(&[Is(SoftTimeouts), Not(&Is(Connected)), Not(&Is(ConnectionTimeoutNoted))]),
        to: At(Installing),
    },
    Rule {
        name: "Keep installing host when host recovers from disconnection",
        event: HostEvent::RefreshHost,
        from: &[At(Installing)],
        guard: All(&[Is(SoftTimeouts), Is(Connected), Is(ConnectionTimeoutNoted)]),
        to: At(Installing),
    },
    Rule {
        name: "Keep installing host when connection times out",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingInProgress)],
        guard: All(&[Is(SoftTimeouts), Not(&Is(Connected)), Not(&Is(ConnectionTimeoutNoted))]),
        to: At(InstallingInProgress),
    },
    Rule {
        name: "Keep installing host when host recovers from disconnection",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingInProgress)],
        guard: All(&[Is(SoftTimeouts), Is(Connected), Is(ConnectionTimeoutNoted)]),
        to: At(InstallingInProgress),
    },
    Rule {
        name: "Ignore timeout if host is in particular installation in progress stages",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingInProgress)],
        guard: All(&[Is(StageMayWaitForUser), Is(ClusterPendingUserAction)]),
        to: At(InstallingInProgress),
    },
    Rule {
        name: "Move to error on timeout if host is in particular installation in progress stages other than [writing-image-to-disk, copying-registry-data-to-disk, rebooting]",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingInProgress)],
        guard: All(&[
            Not(&Is(SoftTimeouts)),
            Is(StageTimedOut),
            Not(&Any(&[Is(StageIsWritingImage), Is(StageIsCopyingRegistryData), Is(StageIsRebooting)])),
            Not(&All(&[Is(StageMayWaitForUser), Is(ClusterPendingUserAction)])),
        ]),
        to: At(Error),
    },
    Rule {
        name: "Move to error on timeout if host is in particular installation in progress stage writing-image-to-disk",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingInProgress)],
        guard: All(&[Not(&Is(SoftTimeouts)), Is(StageTimedOut), Is(StageIsWritingImage)]),
        to: At(Error),
    },
    Rule {
        name: "Move to error on timeout if host is in particular installation in progress stage copying-registry-data-to-disk",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingInProgress)],
        guard: All(&[Not(&Is(SoftTimeouts)), Is(StageTimedOut), Is(StageIsCopyingRegistryData)]),
        to: At(Error),
    },
    Rule {
        name: "Indicate that timeout occurred and continue installation in particular installation in progress stages other than [writing-image-to-disk, copying-registry-data-to-disk, rebooting]",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingInProgress)],
        guard: All(&[
            Is(SoftTimeouts),
            Is(StageTimedOut),
            Not(&Is(StageTimeoutNoted)),
            Not(&Any(&[Is(StageIsWritingImage), Is(StageIsCopyingRegistryData), Is(StageIsRebooting)])),
        ]),
        to: At(InstallingInProgress),
    },
    Rule {
        name: "Indicate that timeout occurred and continue installation in particular installation in progress stage writing-image-to-disk",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingInProgress)],
        guard: All(&[Is(SoftTimeouts), Is(StageTimedOut), Not(&Is(StageTimeoutNoted)), Is(StageIsWritingImage)]),
        to: At(InstallingInProgress),
    },
    Rule {
        name: "Indicate that timeout occurred and continue installation in particular installation in progress stage copying-registry-data-to-disk",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingInProgress)],
        guard: All(&[Is(SoftTimeouts), Is(StageTimedOut), Not(&Is(StageTimeoutNoted)), Is(StageIsCopyingRegistryData)]),
        to: At(InstallingInProgress),
    },
    Rule {
        name: "Tell user about boot order wen reboot takes too long",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingInProgress)],
        guard: All(&[Is(StageIsRebooting), Is(StageTimedOut)]),
        to: At(InstallingPendingUserAction),
    },
    Rule {
        name: "Host pending user action timeout with cluster viability check (day1 only)",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingPendingUserAction)],
        guard: All(&[
            Not(&Is(Day2Host)),
            Is(PendingUserActionTimedOut),
            Not(&Is(ClusterInstalledOrAddingHosts)),
            Is(QuorumWithoutHost),
        ]),
        to: At(Error),
    },
    Rule {
        name: "Refresh during installing state without cluster error should stay in installing state",
        event: HostEvent::RefreshHost,
        from: &[At(Installing)],
        guard: Not(&Is(ClusterInError)),
        to: At(Installing),
    },
    Rule {
        name: "Refresh during installing-in-progress state without cluster error should stay in installing-in-progress state",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingInProgress)],
        guard: Not(&Is(ClusterInError)),
        to: At(InstallingInProgress),
    },
    Rule {
        name: "Refresh during installed state without cluster error should stay in installed state",
        event: HostEvent::RefreshHost,
        from: &[At(Installed)],
        guard: Not(&Is(ClusterInError)),
        to: At(Installed),
    },
    Rule {
        name: "Refresh during installing-pending-user-action state without cluster error should stay in installing-pending-user-action state",
        event: HostEvent::RefreshHost,
        from: &[At(InstallingPendingUserAction)],
        guard: Not(&Is(ClusterInError)),
        to: At(InstallingPendingUserAction),
    },
    Rule {
        name: "Refresh during resetting-pending-user-action state without cluster error should stay in resetting-pending-user-action state",
        event: HostEvent::RefreshHost,
        from: &[At(ResettingPendingUserAction)],
        guard: Not(&Is(ClusterInError)),
        to: At(ResettingPendingUserAction),
    },
    Rule {
        name: "Host reconnected without inventory",
        event: HostEvent::RefreshHost,
        from: &[At(Disconnected), At(Discovering)],
        guard: All(&[Is(Connected), Is(MediaConnected), Not(&Is(HasInventory))]),
        to: At(Discovering),
    },
    Rule {
        name: "Host has insufficient hardware",
        event: HostEvent::RefreshHost,
        from: &[At(Disconnected), At(Discovering), At(Insufficient), At(Known), At(PendingForInput)],
        guard: All(&[Is(Connected), Is(MediaConnected), Is(HasInventory), Not(&Is(MinimumHardware))]),
        to: At(Insufficient),
    },
    Rule {
        name: "Host pending input",
        event: HostEvent::RefreshHost,
        from: &[At(Disconnected), At(Discovering), At(Insufficient), At(Known), At(PendingForInput)],
        guard: All(&[Is(Connected), Is(MediaConnected), Is(HasInventory), Is(MinimumHardware), Not(&Is(InputsGiven))]),
        to: At(PendingForInput),
    },
    Rule {
        name: "Host not ready",
        event: HostEvent::RefreshHost,
        from: &[At(Disconnected), At(Insufficient), At(PendingForInput), At(Discovering), At(Known)],
        guard: All(&[
            Is(Connected),
            Is(MediaConnected),
            Is(HasInventory),
            Is(MinimumHardware),
            Is(InputsGiven),
            Not(&Is(SufficientForInstall)),
        ]),
        to: At(Insufficient),
    },
    Rule {
        name: "Host ready",
        event: HostEvent::RefreshHost,
        from: &[At(Disconnected), At(Insufficient), At(PendingForInput), At(Discovering)],
        guard: All(&[
            Is(Connected),
            Is(MediaConnected),
            Is(HasInventory),
            Is(MinimumHardware),
            Is(InputsGiven),
            Is(SufficientForInstall),
        ]),
        to: At(Known),
    },
    Rule {
        name: "Host stay ready",
        event: HostEvent::RefreshHost,
        from: &[At(Known)],
        guard: All(&[
            Is(Connected),
            Is(MediaConnected),
            Is(HasInventory),
            Is(MinimumHardware),
            Is(InputsGiven),
            Is(SufficientForInstall),
            Not(&All(&[Is(ClusterPreparing), Is(RoleCanInstall)])),
        ]),
        to: At(Known),
    },
    Rule {
        name: "Log collection timed out during error should stay in error",
        event: HostEvent::RefreshHost,
        from: &[At(Error)],
        guard: Is(LogsTimedOut),
        to: At(Error),
    },
    Rule {
        name: "Log collection timed out during cancelled should stay in cancelled",
        event: HostEvent::RefreshHost,
        from: &[At(Cancelled)],
        guard: Is(LogsTimedOut),
        to: At(Cancelled),
    },
    Rule {
        name: "Refresh during error should stay in error",
        event: HostEvent::RefreshHost,
        from: &[At(Error)],
        guard: Always,
        to: At(Error),
    },
    Rule {
        name: "Refresh during cancelled should stay in cancelled",
        event: HostEvent::RefreshHost,
        from: &[At(Cancelled)],
        guard: Always,
        to: At(Cancelled),
    },
    Rule {
        name: "Refresh during resetting should stay in resetting",
        event: HostEvent::RefreshHost,
        from: &[At(Resetting)],
        guard: Always,
        to: At(Resetting),
    },
    Rule {
        name: "Day 2 hosts should stay in added state",
        event: HostEvent::RefreshHost,
        from: &[At(AddedToExistingCluster)],
        guard: Always,
        to: At(AddedToExistingCluster),
    },
    Rule {
        name: "Refresh without timeout during reclaiming should stay in reclaiming",
        event: HostEvent::RefreshHost,
        from: &[At(Reclaiming)],
        guard: Always,
        to: At(Reclaiming),
    },
    Rule {
        name: "Refresh without timeout during reclaiming-rebooting should stay in reclaiming-rebooting",
        event: HostEvent::RefreshHost,
        from: &[At(ReclaimingRebooting)],
        guard: Always,
        to: At(ReclaimingRebooting),
    },
    Rule {
        name: "Initial registration",
        event: HostEvent::RegisterHost,
        from: &[Initial],
        guard: Always,
        to: At(Discovering),
    },
    Rule {
        name: "Re-registration during preparation",
        event: HostEvent::RegisterHost,
        from: &[At(PreparingForInstallation), At(PreparingSuccessful)],
        guard: Always,
        to: At(Known),
    },
    Rule {
        name: "Re-registration",
        event: HostEvent::RegisterHost,
        from: &[
            At(Discovering),
            At(Known),
            At(Disconnected),
            At(Insufficient),
            At(ResettingPendingUserAction),
            At(Binding),
            At(PendingForInput),
        ],
        guard: Always,
        to: At(Discovering),
    },
    Rule {
        name: "Ignore register while rebooting host in resetting",
        event: HostEvent::RegisterHost,
        from: &[At(Resetting)],
        guard: Is(StageIsRebooting),
        to: At(Resetting),
    },
    Rule {
        name: "Register non-rebooting host in resetting",
        event: HostEvent::RegisterHost,
        from: &[At(Resetting)],
        guard: Not(&Is(StageIsRebooting)),
        to: At(Discovering),
    },
    Rule {
        name: "Wrong boot order detection",
        event: HostEvent::RegisterHost,
        from: &[At(InstallingInProgress), At(InstallingPendingUserAction), At(AddedToExistingCluster)],
        guard: Any(&[Is(StageIsRebooting), All(&[Is(Day2Host), Is(StageIsDone)])]),
        to: At(InstallingPendingUserAction),
    },
    Rule {
        name: "Register during installation",
        event: HostEvent::RegisterHost,
        from: &[At(Installing), At(InstallingInProgress)],
        guard: Always,
        to: At(Error),
    },
    Rule {
        name: "Register during error",
        event: HostEvent::RegisterHost,
        from: &[At(Error)],
        guard: Always,
        to: At(Error),
    },
    Rule {
        name: "Register post-installation",
        event: HostEvent::RegisterHost,
        from: &[At(Installed)],
        guard: Always,
        to: At(Installed),
    },
    Rule {
        name: "Reset pending user action all states",
        event: HostEvent::ResettingPendingUserAction,
        from: &[
            At(Resetting),
            At(Discovering),
            At(Known),
            At(InstallingPendingUserAction),
            At(Installing),
            At(PreparingForInstallation),
            At(PreparingSuccessful),
            At(PreparingFailed),
            At(PendingForInput),
            At(ResettingPendingUserAction),
            At(InstallingInProgress),
            At(Installed),
            At(Error),
            At(Cancelled),
            At(AddedToExistingCluster),
        ],
        guard: Always,
        to: At(ResettingPendingUserAction),
    },
    Rule {
        name: "Unbind pre-installation",
        event: HostEvent::UnbindHost,
        from: &[At(Known), At(Discovering), At(Disconnected), At(Insufficient), At(PendingForInput)],
        guard: Always,
        to: At(Unbinding),
    },
    Rule {
        name: "Unbind during or after installation",
        event: HostEvent::UnbindHost,
        from: &[
            At(PreparingForInstallation),
            At(PreparingSuccessful),
            At(PreparingFailed),
            At(Installing),
            At(InstallingInProgress),
            At(InstallingPendingUserAction),
            At(Installed),
            At(AddedToExistingCluster),
            At(Error),
            At(Cancelled),
        ],
        guard: Always,
        to: At(UnbindingPendingUserAction),
    },
];

/// The machine of hosts that are not bound to a cluster.
pub static POOL_RULES: &[HostRule] = &[
    Rule { name: "Bind host", event: HostEvent::BindHost, from: &[At(KnownUnbound)], guard: Always, to: At(Binding) },
    Rule {
        name: "Move to disconnected when virtual media disconnects pre-installation",
        event: HostEvent::MediaDisconnect,
        from: &[
            At(DiscoveringUnbound),
            At(InsufficientUnbound),
            At(KnownUnbound),
            At(DisconnectedUnbound),
            At(Unbinding),
        ],
        guard: Always,
        to: At(DisconnectedUnbound),
    },
    Rule {
        name: "Move host to disconnected when connected times out",
        event: HostEvent::RefreshHost,
        from: &[
            At(DiscoveringUnbound),
            At(InsufficientUnbound),
            At(KnownUnbound),
            At(DisconnectedUnbound),
            At(Unbinding),
        ],
        guard: Any(&[Not(&Is(Connected)), Not(&Is(MediaConnected))]),
        to: At(DisconnectedUnbound),
    },
    Rule {
        name: "Host reconnected without inventory",
        event: HostEvent::RefreshHost,
        from: &[At(DisconnectedUnbound), At(DiscoveringUnbound)],
        guard: All(&[Is(Connected), Is(MediaConnected), Not(&Is(HasInventory))]),
        to: At(DiscoveringUnbound),
    },
    Rule {
        name: "Host has insufficient hardware",
        event: HostEvent::RefreshHost,
        from: &[At(DisconnectedUnbound), At(DiscoveringUnbound), At(InsufficientUnbound), At(KnownUnbound)],
        guard: All(&[Is(Connected), Is(MediaConnected), Not(&Is(PoolMinimum))]),
        to: At(InsufficientUnbound),
    },
    Rule {
        name: "Refresh during binding should stay in binding",
        event: HostEvent::RefreshHost,
        from: &[At(Binding)],
        guard: Always,
        to: At(Binding),
    },
    Rule {
        name: "Refresh during unbinding should stay in unbinding",
        event: HostEvent::RefreshHost,
        from: &[At(Unbinding)],
        guard: Always,
        to: At(Unbinding),
    },
    Rule {
        name: "Host ready",
        event: HostEvent::RefreshHost,
        from: &[At(DisconnectedUnbound), At(DiscoveringUnbound), At(InsufficientUnbound), At(KnownUnbound)],
        guard: All(&[Is(Connected), Is(MediaConnected), Is(PoolMinimum)]),
        to: At(KnownUnbound),
    },
    Rule {
        name: "Initial registration",
        event: HostEvent::RegisterHost,
        from: &[Initial],
        guard: Always,
        to: At(DiscoveringUnbound),
    },
    Rule {
        name: "Initial registration",
        event: HostEvent::RegisterHost,
        from: &[
            At(DiscoveringUnbound),
            At(DisconnectedUnbound),
            At(InsufficientUnbound),
            At(KnownUnbound),
            At(Unbinding),
            At(UnbindingPendingUserAction),
            At(ReclaimingRebooting),
        ],
        guard: Always,
        to: At(DiscoveringUnbound),
    },
];

/// Changes of a host's status that the real service makes outside of its machine.
/// * A report of stage `Failed` leads to `error` ([`installation_failed`]).
pub const OUTSIDE_THE_MACHINE: &[(HostStatus, HostStatus, &str)] = &[
    (Installing, Error, "stage Failed was reported"),
    (InstallingInProgress, Error, "stage Failed was reported"),
    (InstallingPendingUserAction, Error, "stage Failed was reported"),
];

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
}

/// What else a transition does to the host, beside its status. The service carries them out in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostEffect {
    /// Forget inventory and being the bootstrap; progress, images, time sources and logs as [`HostEffect::ForgetProgress`].
    /// What the user chose (role, name) stays.
    ForgetDiscovery,
    /// Forget progress, images, time sources and logs.
    ForgetProgress,
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
    pub validations: Option<HostValidations>,
    /// New value of `connection_timed_out`; `None`: stays.
    pub connection_timed_out: Option<bool>,
    /// `progress.stage_timed_out` becomes true, and that is told once.
    pub stage_timed_out: bool,
    /// `logs_info` becomes `timeout`.
    pub logs_timed_out: bool,
    /// `progress.stage_updated_at` becomes now.
    pub touch_stage_timer: bool,
    /// All of these and the rest, in order.
    pub effects: &'static [HostEffect],
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

/// The machine of that host.
pub fn machine_of(subject: &HostView, scope: &Scope<'_>) -> &'static [HostRule] {
    if subject.is_unbound() && scope.cluster.is_none() { POOL_RULES } else { RULES }
}

/// What was found about a host at an instant: answers the guards' questions.
struct Facts<'a> {
    subject: &'a HostView,
    scope: &'a Scope<'a>,
    settings: &'a Settings,
    now: Timestamp,
    args: &'a EventArgs<'a>,
    /// Evaluated for refreshes only; no other event's guards ask for it.
    validations: Option<&'a HostValidations>,
}

impl Facts<'_> {
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
        let constants = &self.settings.constants;
        let stage = subject.stage();
        match condition {
            Connected => self.satisfied(&[HostValidationId::Connected]),
            MediaConnected => self.satisfied(&[HostValidationId::MediaConnected]),
            HasInventory => self.gate(HostGate::Inventory),
            MinimumHardware => self.gate(HostGate::MinimumHardware),
            InputsGiven => self.gate(HostGate::PendingInput),
            SufficientForInstall => self.gate(HostGate::Sufficient),
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
                let others = self.scope.hosts.iter().map(|h| {
                    // Whatever fails with this host counts as failed; the others as they are.
                    let status = if h.host.id == host.id { HostStatus::Error } else { h.host.status };
                    (h.effective_role(), status)
                });
                cluster::quorum(c, self.scope.hosts, others, cluster::IN_INSTALLATION)
            }),
            DiskSpeedChecked => disk_speed(subject) == Check::Passed,
            DiskSpeedFailed => disk_speed(subject) == Check::Failed,
            DiskSpeedUnknown => disk_speed(subject) == Check::Unknown,
            ImagesAvailable => images(subject) == Check::Passed,
            ImagesFailed => images(subject) == Check::Failed,
            ImagesUnknown => images(subject) == Check::Unknown,
            PreparationTimedOut => self.over(host.status_updated_at, self.settings.host_prepare_timeout()),
            InstallingTimedOut => self.over(host.status_updated_at, constants.installing_without_progress),
            ReclaimTimedOut => self.over(host.status_updated_at, constants.reclaim_timeout),
            PendingUserActionTimedOut => {
                self.over(host.status_updated_at, self.settings.host_installing_pending_user_action_timeout)
            }
            StageTimedOut => stage.is_some_and(|s| self.over(stage_updated_at(subject), self.stage_timeout(s))),
            StageTimeoutNoted => host.progress.as_ref().and_then(|p| p.stage_timed_out) == Some(true),
            ConnectionTimeoutNoted => host.connection_timed_out == Some(true),
            SoftTimeouts => self.scope.cluster.is_some_and(|c| soft_timeouts(self.settings, c)),
            StageMayWaitForUser => stage.is_some_and(|s| MAY_WAIT_FOR_USER.contains(&s)),
            StageIsWritingImage => stage == Some(HostStage::WritingImageToDisk),
            StageIsCopyingRegistryData => stage == Some(HostStage::CopyingRegistryDataToDisk),
            StageIsRebooting => stage == Some(HostStage::Rebooting),
            StageIsDone => stage == Some(HostStage::Done),
            LogsTimedOut => {
                logs_timer(subject, self.settings).is_some_and(|(begin, limit)| self.over(Some(begin), limit))
            }
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
enum Check {
    Passed,
    Failed,
    Unknown,
}

/// The disk's speed need not be measured where the system runs from its disk, or where partitions are kept.
fn disk_speed(subject: &HostView) -> Check {
    let persistent = subject.inventory.as_ref().and_then(|i| i.boot.as_ref()).and_then(|b| b.device_type.as_deref())
        == Some("persistent");
    let keeps_partitions = subject.host.installer_args.as_deref().is_some_and(|args| args.contains("--save-part"));
    if persistent || keeps_partitions {
        return Check::Passed;
    }
    let measured = subject
        .installation_disk()
        .and_then(|disk| subject.disks_info.get(disks::identifier(disk)))
        .or_else(|| subject.host.installation_disk_id.as_ref().and_then(|id| subject.disks_info.get(id)))
        .and_then(|info| info.disk_speed.as_ref());
    match measured {
        Some(speed) if speed.tested == Some(true) && speed.exit_code.unwrap_or(0) == 0 => Check::Passed,
        Some(speed) if speed.tested == Some(true) => Check::Failed,
        _ => Check::Unknown,
    }
}

/// Images count as pulled when there is an answer for at least one and none failed or crawled.
fn images(subject: &HostView) -> Check {
    // The service's threshold, in MB/s.
    const TOO_SLOW: f64 = 0.001;
    let failed = subject.images_status.values().any(|image| {
        image.result.as_deref() == Some("failure")
            || (image.size_bytes.unwrap_or(0.0) > 0.0 && image.download_rate.unwrap_or(0.0) < TOO_SLOW)
    });
    match (subject.images_status.is_empty(), failed) {
        (true, _) => Check::Unknown,
        (false, true) => Check::Failed,
        (false, false) => Check::Passed,
    }
}

fn stage_updated_at(subject: &HostView) -> Option<Timestamp> {
    subject.host.progress.as_ref().and_then(|p| p.stage_updated_at).or(subject.host.stage_updated_at)
}

/// Which timer of the host's logs runs: since when and for how long.
fn logs_timer(subject: &HostView, settings: &Settings) -> Option<(Timestamp, Duration)> {
    let host = &subject.host;
    match host.logs_info.unwrap_or(LogsState::Empty) {
        LogsState::Completed | LogsState::Timeout => None,
        LogsState::Requested | LogsState::Collecting => {
            Some((host.logs_started_at.filter(|t| t.is_set())?, settings.host_log_collection_timeout))
        }
        LogsState::Empty => Some((host.status_updated_at.filter(|t| t.is_set())?, settings.host_log_pending_timeout)),
    }
}

/// What the monitor makes of a host: evaluates its validations, then its machine.
pub fn refresh(subject: &HostView, scope: &Scope<'_>, settings: &Settings, now: Timestamp) -> HostDecision {
    refresh_with(subject, scope, settings, now, evaluate_host(subject, scope, settings, now))
}

/// The same, with validations that were evaluated before.
pub fn refresh_with(
    subject: &HostView,
    scope: &Scope<'_>,
    settings: &Settings,
    now: Timestamp,
    validations: HostValidations,
) -> HostDecision {
    let args = EventArgs::default();
    let facts = Facts { subject, scope, settings, now, args: &args, validations: Some(&validations) };
    let state = At(subject.host.status);
    let rule = fire(machine_of(subject, scope), HostEvent::RefreshHost, state, &|c| facts.holds(c));
    let mut decision = decide(rule, &facts);
    decision.validations = Some(validations);
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
    let facts = Facts { subject, scope, settings, now, args, validations: None };
    let rule = fire(machine_of(subject, scope), event, state, &|c| facts.holds(c));
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
        status_info: format!("Failed - {progress_info}"),
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
        effects: &[],
        refused: None,
    }
}

fn decide(rule: Option<&'static HostRule>, facts: &Facts<'_>) -> HostDecision {
    let subject = facts.subject;
    let Some(rule) = rule else { return unchanged(subject) };
    let At(to) = rule.to else { return unchanged(subject) };
    let mut effects = effects_of(rule);
    if effects.contains(&HostEffect::RestartStageTimer)
        && !facts.over(stage_updated_at(subject), facts.settings.constants.stage_timer_refresh)
    {
        effects = &[];
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
    let status_info = words(rule, facts).unwrap_or_else(|| subject.host.status_info.clone());
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
        effects: if refused.is_some() { &[] } else { effects },
        refused,
    }
}

/// What a row does beside the status.
pub fn effects_of(rule: &HostRule) -> &'static [HostEffect] {
    use HostEffect::*;
    match (rule.event, rule.to) {
        (HostEvent::RegisterHost, At(Known)) => &[ForgetProgress, RestartClusterPreparation],
        (HostEvent::RegisterHost, At(Discovering | DiscoveringUnbound)) if rule.from != [Initial] => &[ForgetDiscovery],
        (HostEvent::BindHost, _) => &[ForgetDiscovery],
        (HostEvent::UnbindHost, _) => &[ForgetDiscovery, LeaveCluster],
        (HostEvent::ReclaimHost, At(Unbinding | UnbindingPendingUserAction)) => &[ForgetDiscovery, LeaveCluster],
        (HostEvent::ReclaimHostFailed, _) => &[ForgetDiscovery, LeaveCluster],
        (HostEvent::RefreshHost, At(UnbindingPendingUserAction)) => &[ForgetDiscovery, LeaveCluster],
        (HostEvent::ResettingPendingUserAction, _) => &[ForgetInstallation],
        (HostEvent::MediaDisconnect, _) => &[MediaGone],
        (HostEvent::RefreshHost, to) if rule.from == [to] => {
            if asks(&rule.guard, LogsTimedOut) {
                &[NoteLogsTimeout]
            } else if asks(&rule.guard, StageMayWaitForUser) {
                &[RestartStageTimer]
            } else if asks(&rule.guard, StageTimedOut) {
                &[NoteStageTimeout]
            } else if asks(&rule.guard, ConnectionTimeoutNoted) {
                // Two rows ask it: the one that does not hold while the host answers notes it, the other one forgets it.
                if wants_connected(&rule.guard) { &[ForgetConnectionTimeout] } else { &[NoteConnectionTimeout] }
            } else {
                &[]
            }
        }
        _ => &[],
    }
}

/// Does the guard ask for that condition anywhere?
fn asks(guard: &Guard<HostCond>, condition: HostCond) -> bool {
    match guard {
        Always => false,
        Is(c) => *c == condition,
        Not(inner) => asks(inner, condition),
        All(all) | Any(all) => all.iter().any(|g| asks(g, condition)),
    }
}

fn wants_connected(guard: &Guard<HostCond>) -> bool {
    matches!(guard, All(all) if all.iter().any(|g| matches!(g, Is(Connected))))
}

/// The words that go with a row; `None`: those that the host has stay.
fn words(rule: &HostRule, facts: &Facts<'_>) -> Option<String> {
    let subject = facts.subject;
    let given = |default: &str| {
        let reason = facts.args.reason;
        Some(if reason.is_empty() { default.to_owned() } else { reason.to_owned() })
    };
    let some = |text: &str| Some(text.to_owned());
    let stage = subject.stage().map_or("an unknown stage", HostStage::as_str);
    match (rule.event, rule.to) {
        (HostEvent::CancelInstallation, _) => given("The installation was cancelled by the user"),
        (HostEvent::HostInstallationFailed, _) => given("The installation could not be started on the host"),
        (HostEvent::HostProgressChanged, At(to)) if rule.from == [At(to)] => None,
        (HostEvent::HostProgressChanged, At(InstallingInProgress)) => {
            Some(facts.args.stage.map_or("", HostStage::as_str).to_owned())
        }
        (HostEvent::HostProgressChanged, _) => some("Done"),
        (HostEvent::InstallHost, _) => some("The installation begins"),
        (HostEvent::MediaDisconnect, _) => {
            some("The host cannot read its boot medium; check that it is still connected and boot again")
        }
        (HostEvent::RebootingForReclaim, _) => some("The host reboots into discovery"),
        (HostEvent::ReclaimHost, At(Reclaiming)) => some("The host is sent back to its infra-env"),
        (HostEvent::ReclaimHost | HostEvent::UnbindHost, At(Unbinding)) => some("The host waits to be unbound"),
        (HostEvent::BindHost, _) => some("The host waits to be bound"),
        (_, At(UnbindingPendingUserAction)) => some("The host must be booted from its discovery image to be unbound"),
        (HostEvent::RegisterHost, At(Discovering | DiscoveringUnbound)) => {
            some("Waiting for the host to send its inventory")
        }
        (HostEvent::RegisterHost, At(Known)) => some("The host registered again while it was prepared"),
        (HostEvent::RegisterHost, At(InstallingPendingUserAction)) => Some(format!(
            "The host should boot from {} and booted from its discovery image instead; correct the boot order and reboot it",
            subject.host.installation_disk_path.as_deref().unwrap_or("its installation disk"),
        )),
        (HostEvent::RegisterHost, At(Error)) if rule.from != [At(Error)] => {
            some("The host was restarted during the installation")
        }
        (HostEvent::RegisterHost, _) => None,
        (HostEvent::ResettingPendingUserAction, _) => {
            some("The host must be booted from its discovery image to finish the reset")
        }
        (HostEvent::RefreshHost, to) if rule.from == [to] => match to {
            At(PreparingForInstallation) => some("The host is prepared for the installation"),
            _ => None,
        },
        (HostEvent::RefreshHost, At(to)) => match to {
            PreparingForInstallation => some("The host is prepared for the installation"),
            PreparingSuccessful => some("The host is prepared and waits for the cluster"),
            PreparingFailed if asks(&rule.guard, PreparationTimedOut) => some("Preparing the host took too long"),
            PreparingFailed => some("The host cannot pull all images that the installation needs"),
            Installing => some("The installation begins"),
            Disconnected | DisconnectedUnbound => some("The host has stopped asking the service for instructions"),
            Discovering | DiscoveringUnbound => some("Waiting for the host to send its inventory"),
            Known if rule.from == [At(Known)] => None,
            Known | KnownUnbound => some("The host is ready to be installed"),
            Insufficient if asks(&rule.guard, DiskSpeedFailed) => {
                some("The speed of the installation disk could not be measured")
            }
            Insufficient | InsufficientUnbound => Some(unmet("The host does not meet what is required of it", facts)),
            PendingForInput => Some(unmet("The user must give more", facts)),
            InstallingPendingUserAction => Some(format!(
                "The host did not come back from its reboot within {}; check that it boots from {}",
                format_duration(facts.stage_timeout(HostStage::Rebooting)),
                subject.host.installation_disk_path.as_deref().unwrap_or("its installation disk"),
            )),
            Error if asks(&rule.guard, ClusterInError) => some("The host is part of a cluster that has failed"),
            Error if asks(&rule.guard, InstallingTimedOut) => some("The host did not begin its installation in time"),
            Error if asks(&rule.guard, PendingUserActionTimedOut) => {
                some("The user did not bring the host back in time; the cluster goes on without it")
            }
            Error if asks(&rule.guard, StageTimedOut) => Some(format!("The host was in stage {stage} for too long")),
            Error => some("The host stopped asking the service for instructions during its installation"),
            _ => None,
        },
        (_, _) => None,
    }
}

/// `beginning`, and what the first unmet validations say.
fn unmet(beginning: &str, facts: &Facts<'_>) -> String {
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
    match host.status {
        Reclaiming | ReclaimingRebooting => consider(host.status_updated_at, constants.reclaim_timeout),
        PreparingForInstallation => consider(host.status_updated_at, settings.host_prepare_timeout()),
        Installing => consider(host.status_updated_at, constants.installing_without_progress),
        InstallingInProgress => {
            if let Some(stage) = subject.stage() {
                let sno = scope.cluster.is_some_and(ClusterView::is_sno);
                consider(stage_updated_at(subject), settings.stage_timeout(stage, sno));
                if MAY_WAIT_FOR_USER.contains(&stage) {
                    consider(stage_updated_at(subject), constants.stage_timer_refresh);
                }
            }
        }
        InstallingPendingUserAction => {
            consider(host.status_updated_at, settings.host_installing_pending_user_action_timeout);
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
    use crate::validation::{HOST, HostValidationSpec, Validation, ValidationStatus};
    use proptest::prelude::*;
    use rstest::rstest;
    use std::collections::{BTreeMap, BTreeSet};
    use uuid::Uuid;
    use vlab_api::types::{
        ContainerImageAvailability, DiskInfo, DiskSpeed, Host, HostProgressInfo, InfraEnv, Inventory,
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000_000);

    /// Rows that no host can fire, and why.
    const UNREACHABLE: &[(&str, &str)] = &[(
        "Host progress change during installing-pending-user-action state when host is not in state Done (or Rebooting in \
         day2) should stay in installing-pending-user-action state",
        "the default row for progress comes before it, has the same source and no condition, in the real service, too",
    )];

    #[derive(Clone, Debug, Default)]
    struct Bench {
        host: HostView,
        cluster: Option<ClusterView>,
        others: Vec<HostView>,
        settings: Settings,
        failing: Vec<HostValidationId>,
        initial: bool,
        stage: Option<HostStage>,
        kube_api: bool,
    }

    fn bench(status: HostStatus, cluster: ClusterStatus) -> Bench {
        let mut b = pool(status);
        b.host.host.cluster_id = Some(Uuid::from_u128(7));
        b.host.host.role = Some(HostRole::Worker);
        let mut c = ClusterView::default();
        c.cluster.status = cluster;
        c.cluster.control_plane_count = Some(3);
        b.cluster = Some(c);
        b.others = (2..=4)
            .map(|i| HostView {
                host: Host {
                    id: Uuid::from_u128(i),
                    role: Some(HostRole::Master),
                    status: InstallingInProgress,
                    ..Host::default()
                },
                ..HostView::default()
            })
            .collect();
        b
    }

    fn pool(status: HostStatus) -> Bench {
        let mut b = Bench::default();
        b.host.host.id = Uuid::from_u128(1);
        b.host.host.kind = "Host".to_owned();
        b.host.host.status = status;
        b.host.host.status_updated_at = ago(0);
        b.host.host.checked_in_at = ago(0);
        b.host.host.installation_disk_id = Some("disk".to_owned());
        b.host.inventory = Some(Inventory::default());
        b
    }

    fn ago(minutes: u64) -> Option<Timestamp> {
        Some(NOW - Duration::from_secs(minutes * 60 + 1))
    }

    impl Bench {
        fn with(mut self, change: impl FnOnce(&mut Bench)) -> Self {
            change(&mut self);
            self
        }
        fn failing(mut self, id: HostValidationId) -> Self {
            self.failing.push(id);
            self
        }
        fn silent(self) -> Self {
            self.failing(HostValidationId::Connected)
        }
        fn since(mut self, minutes: u64) -> Self {
            self.host.host.status_updated_at = ago(minutes);
            self
        }
        fn day2(mut self) -> Self {
            self.host.host.kind = "AddToExistingClusterHost".to_owned();
            self
        }
        fn in_stage(mut self, stage: HostStage, minutes: u64) -> Self {
            self.host.host.progress = Some(HostProgressInfo {
                current_stage: Some(stage),
                stage_updated_at: ago(minutes),
                ..HostProgressInfo::default()
            });
            self
        }
        fn reports(mut self, stage: HostStage) -> Self {
            self.stage = Some(stage);
            self
        }
        fn soft(mut self) -> Self {
            self.settings.enable_soft_timeouts = true;
            if let Some(c) = &mut self.cluster {
                c.cluster.org_soft_timeouts_enabled = Some(true);
            }
            self
        }
        fn disk(mut self, exit_code: i64) -> Self {
            let speed = DiskSpeed { tested: Some(true), exit_code: Some(exit_code), speed_ms: Some(1) };
            let info = DiskInfo { disk_speed: Some(speed), ..DiskInfo::default() };
            self.host.set_disks_info(BTreeMap::from([("disk".to_owned(), info)]));
            self
        }
        fn images(mut self, result: &str) -> Self {
            let image = ContainerImageAvailability {
                name: Some("image".to_owned()),
                size_bytes: Some(1e6),
                download_rate: Some(100.0),
                result: Some(result.to_owned()),
                ..ContainerImageAvailability::default()
            };
            self.host.set_images_status(BTreeMap::from([("image".to_owned(), image)]));
            self
        }
        fn checked(self) -> Self {
            self.disk(0).images("success")
        }
        fn in_scope<R>(&self, f: impl FnOnce(&Scope<'_>) -> R) -> R {
            let infra_env = InfraEnv::default();
            let hosts: Vec<&HostView> = std::iter::once(&self.host).chain(&self.others).collect();
            f(&Scope { infra_env: &infra_env, cluster: self.cluster.as_ref(), hosts: &hosts })
        }
        fn fire(&self, event: HostEvent) -> Result<HostDecision, NoTransition> {
            self.in_scope(|scope| {
                if event == HostEvent::RefreshHost {
                    let answer = |spec: &HostValidationSpec| Validation {
                        id: spec.id.as_str(),
                        category: spec.category,
                        status: if self.failing.contains(&spec.id) {
                            ValidationStatus::Failure
                        } else {
                            ValidationStatus::Success
                        },
                        message: spec.needs.into(),
                        hidden: false,
                        ignored: false,
                    };
                    let validations = HostValidations(HOST.iter().map(answer).collect());
                    return Ok(refresh_with(&self.host, scope, &self.settings, NOW, validations));
                }
                let args = EventArgs { initial: self.initial, stage: self.stage, reason: "", kube_api: self.kube_api };
                on_event(event, &self.host, scope, &self.settings, NOW, &args)
            })
        }
        /// With the real validations.
        fn refresh_at(&self, now: Timestamp) -> HostDecision {
            self.in_scope(|scope| refresh(&self.host, scope, &self.settings, now))
        }
    }

    type Situation = (HostEvent, Bench, &'static str, HostStatus);

    fn requests() -> Vec<Situation> {
        use HostEvent::*;
        let b = |status| bench(status, ClusterStatus::Installing);
        let initial = |b: &mut Bench| b.initial = true;
        vec![
            (CancelInstallation, b(Installed), "Installation canceled while host is installing", Cancelled),
            (CancelInstallation, b(PreparingSuccessful), "Cancel while preparing", Known),
            (CancelInstallation, b(Known), "Cancel while known", Known),
            (HostInstallationFailed, b(Installing), "Installation failed while host is installing", Error),
            (
                HostProgressChanged,
                b(Installing).day2().reports(HostStage::Rebooting).with(|b| b.kube_api = true),
                "host progress installing-in-progress on rebooting in kube-api mode",
                InstallingInProgress,
            ),
            (
                HostProgressChanged,
                b(InstallingInProgress).day2().reports(HostStage::Done),
                "host progress changed to added-to-existing-cluster for day2 host",
                AddedToExistingCluster,
            ),
            (
                HostProgressChanged,
                b(InstallingInProgress).reports(HostStage::Done),
                "host progress changed to installed",
                Installed,
            ),
            (
                HostProgressChanged,
                b(Installing).reports(HostStage::StartingInstallation),
                "default host progress changed",
                InstallingInProgress,
            ),
            // The real service's quirk: done, but in progress.
            (
                HostProgressChanged,
                b(InstallingPendingUserAction).reports(HostStage::Done),
                "default host progress changed",
                InstallingInProgress,
            ),
            (
                HostProgressChanged,
                b(Installed).reports(HostStage::Joined),
                "Host progress change during installed state when host is not in state Done (or Rebooting in day2) should stay in installed state",
                Installed,
            ),
            (
                HostProgressChanged,
                b(HostStatus::ResettingPendingUserAction).reports(HostStage::Joined),
                "Host progress change during resetting-pending-user-action state when host is not in state Done (or Rebooting in day2) should stay in resetting-pending-user-action state",
                HostStatus::ResettingPendingUserAction,
            ),
            (InstallHost, b(Known).day2(), "Install known host", Installing),
            (
                MediaDisconnect,
                b(Known),
                "Move to disconnected when virtual media disconnects pre-installation",
                Disconnected,
            ),
            (MediaDisconnect, b(Installing), "Move to error when virtual media disconnects post-installation", Error),
            (RebootingForReclaim, b(Reclaiming), "Rebooting for reclaim reclaiming host", ReclaimingRebooting),
            (ReclaimHost, b(Installed), "Reclaim successful host", Reclaiming),
            (ReclaimHost, b(Known), "Reclaim pre-installation", Unbinding),
            (ReclaimHost, b(Error), "Reclaim failed host", UnbindingPendingUserAction),
            (
                ReclaimHostFailed,
                b(ReclaimingRebooting),
                "Reclaim failure for reclaiming host",
                UnbindingPendingUserAction,
            ),
            (RegisterHost, b(Discovering).with(initial), "Initial registration", Discovering),
            (RegisterHost, b(PreparingSuccessful), "Re-registration during preparation", Known),
            (RegisterHost, b(Disconnected), "Re-registration", Discovering),
            (
                RegisterHost,
                b(Resetting).in_stage(HostStage::Rebooting, 0),
                "Ignore register while rebooting host in resetting",
                Resetting,
            ),
            (
                RegisterHost,
                b(Resetting).in_stage(HostStage::Installing, 0),
                "Register non-rebooting host in resetting",
                Discovering,
            ),
            (
                RegisterHost,
                b(InstallingInProgress).in_stage(HostStage::Rebooting, 0),
                "Wrong boot order detection",
                InstallingPendingUserAction,
            ),
            (
                RegisterHost,
                b(AddedToExistingCluster).day2().in_stage(HostStage::Done, 0),
                "Wrong boot order detection",
                InstallingPendingUserAction,
            ),
            (
                RegisterHost,
                b(InstallingInProgress).in_stage(HostStage::WritingImageToDisk, 0),
                "Register during installation",
                Error,
            ),
            (RegisterHost, b(Error), "Register during error", Error),
            (RegisterHost, b(Installed), "Register post-installation", Installed),
            (
                ResettingPendingUserAction,
                b(Cancelled),
                "Reset pending user action all states",
                HostStatus::ResettingPendingUserAction,
            ),
            (UnbindHost, b(Known), "Unbind pre-installation", Unbinding),
            (UnbindHost, b(Installed), "Unbind during or after installation", UnbindingPendingUserAction),
            (BindHost, pool(KnownUnbound), "Bind host", Binding),
            (
                MediaDisconnect,
                pool(KnownUnbound),
                "Move to disconnected when virtual media disconnects pre-installation",
                DisconnectedUnbound,
            ),
            (RegisterHost, pool(DiscoveringUnbound).with(initial), "Initial registration", DiscoveringUnbound),
            (RegisterHost, pool(Unbinding), "Initial registration", DiscoveringUnbound),
        ]
    }

    fn refreshes() -> Vec<(Bench, &'static str, HostStatus)> {
        use HostValidationId as V;
        let ready = |s| bench(s, ClusterStatus::Ready);
        let prep = |s| bench(s, ClusterStatus::PreparingForInstallation);
        let inst = |s| bench(s, ClusterStatus::Installing);
        let noted = |b: &mut Bench| b.host.host.connection_timed_out = Some(true);
        let writing = HostStage::WritingImageToDisk;
        let copying = HostStage::CopyingRegistryDataToDisk;
        vec![
            (inst(Reclaiming).since(61), "Refresh reclaiming host", UnbindingPendingUserAction),
            (prep(Known), "Refresh known host in preparing cluster", PreparingForInstallation),
            (prep(PreparingForInstallation).checked(), "Refresh successfully preparing host", PreparingSuccessful),
            (prep(PreparingSuccessful), "Stay in preparing successful", PreparingSuccessful),
            (inst(PreparingSuccessful), "Move successfully prepared host to installing", Installing),
            (ready(PreparingForInstallation), "Move preparing host to known when cluster stops preparing", Known),
            (
                prep(PreparingForInstallation).disk(1),
                "Preparing failed disk speed host move to insufficient",
                Insufficient,
            ),
            (
                prep(PreparingForInstallation).disk(0).since(18),
                "Preparing timed out host move to known",
                PreparingFailed,
            ),
            (
                prep(PreparingForInstallation).disk(0).images("failure"),
                "Preparing failed image pull host move to preparing failed",
                PreparingFailed,
            ),
            (prep(PreparingForInstallation).disk(0), "Stay in preparing for installation", PreparingForInstallation),
            // A silent one is not kept, whatever is still to be measured or has failed.
            (
                prep(PreparingForInstallation).disk(0).silent(),
                "Move preparing host to disconnected when connection times out",
                Disconnected,
            ),
            (
                prep(PreparingForInstallation).disk(0).images("failure").silent(),
                "Move preparing host to disconnected when connection times out",
                Disconnected,
            ),
            (
                prep(PreparingForInstallation).disk(0).since(18).silent(),
                "Move preparing host to disconnected when connection times out",
                Disconnected,
            ),
            (ready(PreparingFailed), "Failed preparing to known when cluster is no longer preparing", Known),
            (ready(PreparingSuccessful), "Successful preparing to known when cluster is no longer preparing", Known),
            (ready(Known).silent(), "Move host to disconnected when connected times out", Disconnected),
            (
                ready(Known).failing(V::MediaConnected),
                "Move host to disconnected when connected times out",
                Disconnected,
            ),
            (bench(Installed, ClusterStatus::Error), "Move host to error when cluster is in error", Error),
            (inst(Installing).since(21), "Move host to error when installation times out", Error),
            (
                prep(PreparingSuccessful).silent(),
                "Move preparing host to disconnected when connection times out",
                Disconnected,
            ),
            (
                inst(InstallingInProgress).in_stage(writing, 0).silent(),
                "Move installing host to error when connection times out",
                Error,
            ),
            (inst(Installing).soft().silent(), "Keep installing host when connection times out", Installing),
            (
                inst(Installing).soft().with(noted),
                "Keep installing host when host recovers from disconnection",
                Installing,
            ),
            (
                inst(InstallingInProgress).soft().silent(),
                "Keep installing host when connection times out",
                InstallingInProgress,
            ),
            (
                inst(InstallingInProgress).soft().with(noted),
                "Keep installing host when host recovers from disconnection",
                InstallingInProgress,
            ),
            (
                bench(InstallingInProgress, ClusterStatus::InstallingPendingUserAction)
                    .in_stage(HostStage::WaitingForControlPlane, 61),
                "Ignore timeout if host is in particular installation in progress stages",
                InstallingInProgress,
            ),
            (
                inst(InstallingInProgress).in_stage(HostStage::Joined, 61),
                "Move to error on timeout if host is in particular installation in progress stages other than [writing-image-to-disk, copying-registry-data-to-disk, rebooting]",
                Error,
            ),
            (
                inst(InstallingInProgress).in_stage(writing, 31),
                "Move to error on timeout if host is in particular installation in progress stage writing-image-to-disk",
                Error,
            ),
            (
                inst(InstallingInProgress).in_stage(copying, 91),
                "Move to error on timeout if host is in particular installation in progress stage copying-registry-data-to-disk",
                Error,
            ),
            (
                inst(InstallingInProgress).soft().in_stage(HostStage::Joined, 61),
                "Indicate that timeout occurred and continue installation in particular installation in progress stages other than [writing-image-to-disk, copying-registry-data-to-disk, rebooting]",
                InstallingInProgress,
            ),
            (
                inst(InstallingInProgress).soft().in_stage(writing, 31),
                "Indicate that timeout occurred and continue installation in particular installation in progress stage writing-image-to-disk",
                InstallingInProgress,
            ),
            (
                inst(InstallingInProgress).soft().in_stage(copying, 91),
                "Indicate that timeout occurred and continue installation in particular installation in progress stage copying-registry-data-to-disk",
                InstallingInProgress,
            ),
            (
                inst(InstallingInProgress).in_stage(HostStage::Rebooting, 41),
                "Tell user about boot order wen reboot takes too long",
                InstallingPendingUserAction,
            ),
            (
                inst(InstallingPendingUserAction).since(61),
                "Host pending user action timeout with cluster viability check (day1 only)",
                Error,
            ),
            (
                inst(Installing),
                "Refresh during installing state without cluster error should stay in installing state",
                Installing,
            ),
            (
                inst(InstallingInProgress).in_stage(writing, 29),
                "Refresh during installing-in-progress state without cluster error should stay in installing-in-progress state",
                InstallingInProgress,
            ),
            (
                inst(Installed),
                "Refresh during installed state without cluster error should stay in installed state",
                Installed,
            ),
            // The cluster could not do without a master.
            (
                inst(InstallingPendingUserAction).since(61).with(|b| b.host.host.role = Some(HostRole::Master)),
                "Refresh during installing-pending-user-action state without cluster error should stay in installing-pending-user-action state",
                InstallingPendingUserAction,
            ),
            (
                inst(ResettingPendingUserAction),
                "Refresh during resetting-pending-user-action state without cluster error should stay in resetting-pending-user-action state",
                ResettingPendingUserAction,
            ),
            (ready(Disconnected).failing(V::HasInventory), "Host reconnected without inventory", Discovering),
            (ready(Known).failing(V::HasMinMemory), "Host has insufficient hardware", Insufficient),
            (ready(Known).failing(V::MachineCidrDefined), "Host pending input", PendingForInput),
            (ready(Discovering).failing(V::HasCpuCoresForRole), "Host not ready", Insufficient),
            (ready(Insufficient), "Host ready", Known),
            // Nothing that only informs holds a host back.
            (ready(Insufficient).failing(V::NtpSynced), "Host ready", Known),
            (ready(Known), "Host stay ready", Known),
            (ready(Error).since(3), "Log collection timed out during error should stay in error", Error),
            (
                ready(Cancelled).since(3),
                "Log collection timed out during cancelled should stay in cancelled",
                Cancelled,
            ),
            (ready(Error), "Refresh during error should stay in error", Error),
            (ready(Cancelled), "Refresh during cancelled should stay in cancelled", Cancelled),
            (ready(Resetting), "Refresh during resetting should stay in resetting", Resetting),
            (
                bench(AddedToExistingCluster, ClusterStatus::AddingHosts).day2(),
                "Day 2 hosts should stay in added state",
                AddedToExistingCluster,
            ),
            (inst(Reclaiming), "Refresh without timeout during reclaiming should stay in reclaiming", Reclaiming),
            (
                inst(ReclaimingRebooting),
                "Refresh without timeout during reclaiming-rebooting should stay in reclaiming-rebooting",
                ReclaimingRebooting,
            ),
            (pool(KnownUnbound).silent(), "Move host to disconnected when connected times out", DisconnectedUnbound),
            (
                pool(DisconnectedUnbound).failing(V::HasInventory),
                "Host reconnected without inventory",
                DiscoveringUnbound,
            ),
            (pool(KnownUnbound).failing(V::HostnameValid), "Host has insufficient hardware", InsufficientUnbound),
            (pool(Binding), "Refresh during binding should stay in binding", Binding),
            (pool(Unbinding), "Refresh during unbinding should stay in unbinding", Unbinding),
            (pool(DiscoveringUnbound), "Host ready", KnownUnbound),
        ]
    }

    #[test]
    fn every_row_fires_in_its_situation() {
        let all: Vec<&HostRule> = RULES.iter().chain(POOL_RULES).collect();
        let mut fired = BTreeSet::new();
        let situations = requests()
            .into_iter()
            .chain(refreshes().into_iter().map(|(b, name, to)| (HostEvent::RefreshHost, b, name, to)));
        for (event, bench, name, to) in situations {
            let from = bench.host.host.status;
            let decision = bench.fire(event).unwrap_or_else(|e| panic!("{name}: {e}"));
            let rule = decision.rule.unwrap_or_else(|| panic!("{name}: no row fired from {from}"));
            assert_eq!((rule.name, decision.to), (name, to), "{} from {from}", event.as_str());
            fired.insert(all.iter().position(|r| *r == rule).unwrap());
        }
        let silent: Vec<&str> = (0..all.len()).filter(|i| !fired.contains(i)).map(|i| all[i].name).collect();
        assert_eq!(silent, UNREACHABLE.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }

    #[rstest]
    #[case(HostEvent::RegisterHost, Cancelled)]
    #[case(HostEvent::RegisterHost, PreparingFailed)]
    #[case(HostEvent::RegisterHost, Reclaiming)]
    #[case(HostEvent::ResettingPendingUserAction, Disconnected)]
    #[case(HostEvent::ResettingPendingUserAction, Insufficient)]
    #[case(HostEvent::UnbindHost, Binding)]
    #[case(HostEvent::CancelInstallation, Discovering)]
    #[case(HostEvent::InstallHost, Known)]
    #[case(HostEvent::BindHost, Known)]
    fn other_requests_are_refused(#[case] event: HostEvent, #[case] from: HostStatus) {
        let refused = bench(from, ClusterStatus::Installing).fire(event);
        assert_eq!(refused, Err(NoTransition { event, state: At(from) }));
    }

    #[rstest]
    #[case::installed(bench(Installed, ClusterStatus::Installing), Some(409))]
    #[case::told_before(bench(InstallingPendingUserAction, ClusterStatus::Installing).in_stage(HostStage::Rebooting, 0), Some(400))]
    #[case::first_time(bench(InstallingInProgress, ClusterStatus::Installing).in_stage(HostStage::Rebooting, 0), None)]
    #[case::failed(bench(Error, ClusterStatus::Installing), None)]
    fn registrations_that_a_row_accepts_may_still_be_refused(#[case] bench: Bench, #[case] refused: Option<u16>) {
        let decision = bench.fire(HostEvent::RegisterHost).unwrap();
        assert_eq!(decision.refused, refused);
        assert_eq!(decision.changes_status(&bench.host), refused.is_none() && bench.host.host.status != Error);
    }

    #[test]
    fn timers_are_noted_once() {
        let late = bench(InstallingInProgress, ClusterStatus::Installing).soft().in_stage(HostStage::Joined, 61);
        assert!(late.fire(HostEvent::RefreshHost).unwrap().stage_timed_out);
        let told = late.with(|b| b.host.host.progress.as_mut().unwrap().stage_timed_out = Some(true));
        assert!(!told.fire(HostEvent::RefreshHost).unwrap().stage_timed_out);

        let silent = bench(Installing, ClusterStatus::Installing).soft().silent();
        assert_eq!(silent.fire(HostEvent::RefreshHost).unwrap().connection_timed_out, Some(true));
        let told = silent.with(|b| b.host.host.connection_timed_out = Some(true));
        assert_eq!(told.fire(HostEvent::RefreshHost).unwrap().connection_timed_out, None);

        let logs = bench(Error, ClusterStatus::Ready).since(3);
        assert!(logs.fire(HostEvent::RefreshHost).unwrap().logs_timed_out);
        let told = logs.with(|b| b.host.host.logs_info = Some(LogsState::Timeout));
        assert!(!told.fire(HostEvent::RefreshHost).unwrap().logs_timed_out);
    }

    #[test]
    fn a_host_that_waits_while_the_user_is_needed_has_its_timer_restarted_once_a_minute() {
        let waits = |minutes| {
            bench(InstallingInProgress, ClusterStatus::InstallingPendingUserAction)
                .in_stage(HostStage::Rebooting, minutes)
                .fire(HostEvent::RefreshHost)
                .unwrap()
        };
        assert!(!waits(0).touch_stage_timer);
        assert!(waits(1).touch_stage_timer);
        assert_eq!(waits(41).to, InstallingInProgress);
    }

    #[rstest]
    #[case(Installing, true)]
    #[case(InstallingPendingUserAction, true)]
    #[case(Known, false)]
    #[case(Installed, false)]
    fn stage_failed_leads_to_error_from_the_installation_only(#[case] from: HostStatus, #[case] taken: bool) {
        let b = bench(from, ClusterStatus::Installing);
        let decision = installation_failed(&b.host, "disk is gone");
        assert_eq!(decision.is_some(), taken);
        if let Some(decision) = decision {
            assert_eq!((decision.to, decision.status_info.as_str()), (Error, "Failed - disk is gone"));
        }
    }

    #[test]
    fn what_is_unmet_is_told_within_the_limit_of_the_api() {
        let mut b = bench(Known, ClusterStatus::Ready);
        b.failing = HOST.iter().filter(|s| s.gate == HostGate::Sufficient).map(|s| s.id).collect();
        let decision = b.fire(HostEvent::RefreshHost).unwrap();
        assert!(decision.status_info.contains("memory of its role"), "{}", decision.status_info);
        assert!(decision.status_info.len() <= 2040);
    }

    fn any_bench() -> impl Strategy<Value = Bench> {
        let status = prop::sample::select(HostStatus::ALL);
        let cluster = prop::option::weighted(0.8, prop::sample::select(ClusterStatus::ALL));
        let stage = prop::option::of((prop::sample::select(HostStage::ALL), 0..120_u64));
        let times = (0..120_u64, 0..6_u64, prop::option::of(-80..80_i64), prop::option::of(0..15_u64));
        let flags = prop::collection::vec(any::<bool>(), 6);
        let role = prop::sample::select(HostRole::ALL);
        let logs = prop::sample::select(LogsState::ALL);
        (status, cluster, stage, times, flags, role, logs).prop_map(
            |(status, cluster, stage, (since, silent, clock, logs_since), flags, role, logs)| {
                let mut b = match cluster {
                    Some(cluster) => bench(status, cluster),
                    None => pool(status),
                };
                b = b.since(since);
                if let Some((stage, minutes)) = stage {
                    b = b.in_stage(stage, minutes);
                }
                if flags[0] {
                    b = b.soft();
                }
                if flags[1] {
                    b = b.day2();
                }
                if flags[2] {
                    b = b.checked();
                }
                if flags[3] {
                    b.host.host.bootstrap = Some(true);
                }
                if flags[4] {
                    b.host.host.connection_timed_out = Some(true);
                }
                if flags[5] {
                    b.host.inventory = None;
                }
                b.host.host.role = Some(role);
                b.host.host.checked_in_at = ago(silent);
                b.host.host.timestamp = clock.map(|minutes| NOW.as_secs() + minutes * 60);
                b.host.host.logs_info = Some(logs);
                b.host.host.logs_started_at = logs_since.and_then(ago);
                b
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn no_decision_leaves_the_table(mut bench in any_bench(), stage in prop::sample::select(HostStage::ALL)) {
            bench.stage = Some(stage);
            let from = bench.host.host.status;
            let table = bench.in_scope(|scope| machine_of(&bench.host, scope));
            for event in HostEvent::ALL {
                let decision = if *event == HostEvent::RefreshHost {
                    bench.refresh_at(NOW)
                } else {
                    match bench.fire(*event) {
                        Ok(decision) => decision,
                        Err(e) => {
                            prop_assert_eq!(e, NoTransition { event: *event, state: At(from) });
                            continue;
                        }
                    }
                };
                match decision.rule {
                    Some(rule) => prop_assert!(
                        table.contains(rule)
                            && rule.event == *event
                            && rule.from.contains(&At(from))
                            && rule.to == At(decision.to)
                    ),
                    None => prop_assert_eq!((decision.to, *event), (from, HostEvent::RefreshHost)),
                }
            }
        }

        #[test]
        fn nothing_happens_before_the_deadline(bench in any_bench(), part in 0.0..1.0_f64) {
            let decision = bench.refresh_at(NOW);
            let deadline = bench.in_scope(|scope| next_deadline(&bench.host, scope, &bench.settings, NOW));
            prop_assert!(deadline.is_none_or(|d| d > NOW));
            let gap = deadline.map_or(Duration::from_secs(1 << 30), |d| d.since(NOW)) - Duration::from_micros(1);
            prop_assert_eq!(&bench.refresh_at(NOW + gap.mul_f64(part)), &decision);
            prop_assert_eq!(&bench.refresh_at(NOW + gap), &decision);
        }
    }
}
