//! Faults of a host: what they do to simulated hosts and to machines.

use vlab_agents::{Garble, HostFault};
use vlab_api::types::ImageType;
use vlab_model::disturbance::Frames;
use vlab_scenario::{HostInjection, InventoryDefect, Scenario, Skew};

use super::effect::{Effect, Lookup};
use super::machine::{InsideFault, MachineFault};

/// What it does to each simulated host.
pub(super) fn effect(injection: &HostInjection, who: &dyn Lookup) -> Result<Effect, String> {
    Ok(Effect::Host(match injection {
        HostInjection::Crash => HostFault::NoPower,
        HostInjection::Reboot => return Ok(Effect::Reboot),
        HostInjection::AgentRestart => return Ok(Effect::RestartAgent),
        HostInjection::SlowPolls { every } => HostFault::SlowPolls(who.span(*every)),
        HostInjection::SilentAgent => HostFault::SilentAgent,
        HostInjection::Disconnect => HostFault::Offline,
        HostInjection::DuplicateId { of } => {
            HostFault::IdOf(who.id(of).ok_or_else(|| format!("there is no host {}", of.0))?)
        }
        HostInjection::ClockSkew { seconds, direction } => HostFault::Clock(skew(*seconds, *direction)),
        HostInjection::NtpUnreachable => HostFault::NoNtp,
        HostInjection::FewCores { cores } => HostFault::Cores(*cores),
        HostInjection::LittleMemory { mib } => HostFault::MemoryBytes(u64::from(*mib) << 20),
        HostInjection::SmallDisks { gb } => HostFault::DiskBytes(u64::from(*gb) * 1_000_000_000),
        HostInjection::SlowDisk { fsync_ms } => HostFault::FsyncMs(*fsync_ms),
        HostInjection::DiskFails { percent } => HostFault::DiskFailsAt(*percent),
        HostInjection::ImageUnavailable { image } => HostFault::NoImage(image.clone()),
        HostInjection::WrongHostname { name } => HostFault::Hostname(name.clone()),
        HostInjection::WrongBootOrder => HostFault::BootsDiscovery,
        HostInjection::StuckStage { stage } => HostFault::StuckAt(*stage),
        HostInjection::InstallerFails { stage, text } => HostFault::FailsAt(*stage, text.clone()),
        HostInjection::LogsLost => HostFault::NoLogs,
        HostInjection::BadInventory { form, mib } => HostFault::Inventory(match form {
            InventoryDefect::Malformed => Garble::Malformed,
            InventoryDefect::Truncated => Garble::Truncated,
            InventoryDefect::Huge => Garble::Huge((*mib as usize) << 20),
        }),
        HostInjection::MediaLost => HostFault::NoMedia,
    }))
}

fn skew(seconds: u32, direction: Skew) -> i64 {
    match direction {
        Skew::Ahead => i64::from(seconds),
        Skew::Behind => -i64::from(seconds),
    }
}

/// A word that the kernel takes as a name, and a shell as a word.
fn is_a_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('-')
}

/// What it does to each machine; `None`: machines cannot have it.
pub(super) fn on_machines(injection: &HostInjection, scenario: &Scenario) -> Result<Option<MachineFault>, String> {
    /// A whole number of writes a second, and at least one.
    const SLOWEST_MS: u32 = 1000;
    Ok(Some(match injection {
        HostInjection::Crash => MachineFault::PowerCut,
        HostInjection::Reboot => MachineFault::Reset,
        HostInjection::Disconnect => MachineFault::GatewayCut,
        HostInjection::NtpUnreachable => MachineFault::Unheard(Frames::Ntp),
        HostInjection::DiskFails { percent } => MachineFault::DiskFails { percent: *percent },
        HostInjection::SlowDisk { fsync_ms } if *fsync_ms > SLOWEST_MS => {
            return Err(format!(
                "a machine's disk can be slowed down to {SLOWEST_MS} ms per write, not to {fsync_ms} ms"
            ));
        }
        HostInjection::SlowDisk { fsync_ms } => MachineFault::SlowDisk { writes: 1000 / (*fsync_ms).max(1) },
        HostInjection::MediaLost => {
            let full = scenario.infra_env.image_type == ImageType::FullIso || scenario.infra_env.iso.is_some();
            if !full {
                let why =
                    "a machine no longer reads a minimal ISO once it is up; write `infra_env: {image_type: full-iso}`";
                return Err(why.to_owned());
            }
            MachineFault::Eject
        }
        HostInjection::WrongBootOrder => {
            return Err("write `vm: {boot_order: cd-first}` in the group of hosts instead".to_owned());
        }
        HostInjection::AgentRestart => MachineFault::Inside(InsideFault::AgentRestarts),
        HostInjection::SilentAgent => MachineFault::Inside(InsideFault::AgentStands),
        HostInjection::ClockSkew { seconds, direction } => {
            MachineFault::Inside(InsideFault::Clock { seconds: skew(*seconds, *direction) })
        }
        HostInjection::WrongHostname { name } => match is_a_name(name) {
            true => MachineFault::Inside(InsideFault::Hostname(name.clone())),
            false => {
                let why = format!("a machine can be called by letters, digits, `-`, `.` and `_`, and not `{name}`");
                return Err(why);
            }
        },
        HostInjection::StuckStage { stage } => MachineFault::Inside(InsideFault::InstallerStands(*stage)),
        HostInjection::InstallerFails { stage, .. } => MachineFault::Inside(InsideFault::InstallerEnds(*stage)),
        HostInjection::SlowPolls { .. }
        | HostInjection::DuplicateId { .. }
        | HostInjection::FewCores { .. }
        | HostInjection::LittleMemory { .. }
        | HostInjection::SmallDisks { .. }
        | HostInjection::ImageUnavailable { .. }
        | HostInjection::LogsLost
        | HostInjection::BadInventory { .. } => return Ok(None),
    }))
}
