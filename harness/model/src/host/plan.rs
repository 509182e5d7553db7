//! What each status asks of a host: the steps that the answer to its poll has, when it is to ask again, and whether its agent
//! starts over.

use vlab_api::types::{HostStatus, StepType};

use crate::settings::Constants;

use StepType::*;

/// What a status asks of a host: steps in their order, how long until the next poll, and whether the agent starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Those that have a place at the time; [`is_always_asked`] says of which that is always so.
    pub steps: &'static [StepType],
    /// When the host is to ask again.
    pub pace: Pace,
    /// Is the agent to start over?
    pub exit: bool,
}

/// Time until the next poll, on hosts at real speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// After a minute.
    Normal,
    /// After two.
    BackedOff,
    /// At once; the agent registers again.
    Zero,
}

impl Pace {
    /// The seconds that the answer says.
    pub fn seconds(self, constants: &Constants) -> i64 {
        match self {
            Self::Normal => constants.next_instruction_seconds,
            Self::BackedOff => constants.next_instruction_seconds_backed_off,
            Self::Zero => 0,
        }
    }
}

const fn normal(steps: &'static [StepType]) -> Plan {
    Plan { steps, pace: Pace::Normal, exit: false }
}

const fn slow(steps: &'static [StepType]) -> Plan {
    Plan { steps, pace: Pace::BackedOff, exit: false }
}

const LEAVE: Plan = Plan { steps: &[], pace: Pace::Zero, exit: true };

/// What a host of that status is asked for. `is_day2`: it is added to a cluster that is installed.
pub fn plan(status: HostStatus, is_day2: bool) -> Plan {
    if is_day2 { day2(status) } else { day1(status) }
}

/// Has the table of day 2 a row of its own for that status?
pub fn is_own(status: HostStatus, is_day2: bool) -> bool {
    is_day2 && !std::ptr::eq(day2(status).steps, day1(status).steps)
}

/// Has the step a place at any time, whatever the host has and knows?
pub fn is_always_asked(step: StepType) -> bool {
    matches!(step, Inventory | NtpSynchronizer | StopInstallation | Install | DownloadBootArtifacts | RebootForReclaim)
}

/// The table of day-1 hosts and of the pool.
fn day1(status: HostStatus) -> Plan {
    use HostStatus as S;
    match status {
        S::Discovering => normal(&[Inventory]),
        S::Insufficient | S::PendingForInput => normal(&[
            Inventory,
            ConnectivityCheck,
            TangConnectivityCheck,
            FreeNetworkAddresses,
            DhcpLeaseAllocate,
            NtpSynchronizer,
            DomainResolution,
            VerifyVips,
        ]),
        S::Known => normal(&[
            ConnectivityCheck,
            TangConnectivityCheck,
            FreeNetworkAddresses,
            DhcpLeaseAllocate,
            Inventory,
            NtpSynchronizer,
            DomainResolution,
            VerifyVips,
        ]),
        S::Disconnected => slow(&[Inventory]),
        S::PreparingForInstallation => {
            normal(&[DhcpLeaseAllocate, InstallationDiskSpeedCheck, ContainerImageAvailability])
        }
        S::Installing => normal(&[Install, DhcpLeaseAllocate]),
        S::InstallingInProgress => normal(&[DhcpLeaseAllocate]),
        S::Error | S::Cancelled => slow(&[LogsGather, StopInstallation]),
        S::Disabled | S::Resetting => slow(&[]),
        S::Binding | S::Unbinding | S::UnbindingPendingUserAction => LEAVE,
        S::DiscoveringUnbound | S::InsufficientUnbound | S::KnownUnbound => normal(&[Inventory, NtpSynchronizer]),
        S::DisconnectedUnbound => slow(&[Inventory]),
        S::Reclaiming => normal(&[DownloadBootArtifacts]),
        S::ReclaimingRebooting => Plan { steps: &[RebootForReclaim], pace: Pace::BackedOff, exit: true },
        _ => normal(&[]),
    }
}

/// The table of hosts of an adding-hosts cluster; where it is silent, day 1 holds.
fn day2(status: HostStatus) -> Plan {
    use HostStatus as S;
    match status {
        S::Discovering => normal(&[Inventory, NtpSynchronizer, DomainResolution]),
        S::Insufficient => normal(&[
            Inventory,
            ConnectivityCheck,
            ApiVipConnectivityCheck,
            TangConnectivityCheck,
            NtpSynchronizer,
            DomainResolution,
        ]),
        S::Known => normal(&[
            ConnectivityCheck,
            ApiVipConnectivityCheck,
            TangConnectivityCheck,
            Inventory,
            NtpSynchronizer,
            DomainResolution,
        ]),
        S::PendingForInput => normal(&[Inventory, ConnectivityCheck, ApiVipConnectivityCheck, TangConnectivityCheck]),
        S::Installing => normal(&[Install]),
        S::InstallingInProgress | S::PreparingForInstallation => normal(&[]),
        other => day1(other),
    }
}

/// What each status asks of a host that is not of day 2, and of one that is where that is something else: the flag, the status, the
/// steps.
pub fn plans() -> impl Iterator<Item = (bool, HostStatus, &'static [StepType])> {
    let of = |is_day2: bool, plan: fn(HostStatus) -> Plan| {
        HostStatus::ALL.iter().map(move |status| (is_day2, *status, plan(*status).steps))
    };
    // Where the second table is silent, it has the steps of the first one.
    let own = of(true, day2).filter(|(_, status, _)| is_own(*status, true));
    of(false, day1).chain(own)
}

/// Statuses in which an agent of another version is told to upgrade before anything else.
pub const UPGRADES: &[HostStatus] = &[
    HostStatus::Binding,
    HostStatus::Discovering,
    HostStatus::Insufficient,
    HostStatus::Known,
    HostStatus::PendingForInput,
    HostStatus::DiscoveringUnbound,
    HostStatus::InsufficientUnbound,
    HostStatus::KnownUnbound,
];
