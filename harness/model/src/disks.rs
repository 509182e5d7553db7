//! Disks: which can be installed to, which of them is chosen, which are wiped first.

use vlab_api::types::{Disk, DiskInstallationEligibility, DriveType, Host, Inventory};

use crate::view::{HostView, filled};

/// What the service calls the disk by: its id, else what names it best. Empty when nothing does.
pub fn identifier(disk: &Disk) -> &str {
    let names = [&disk.id, &disk.by_id, &disk.by_path, &disk.path, &disk.name];
    names.into_iter().find_map(filled).unwrap_or("")
}

/// The device as the installer is given it: the most stable of its names.
pub fn boot_device(disk: &Disk) -> &str {
    let names = [&disk.by_id, &disk.by_path, &disk.path, &disk.id];
    names.into_iter().find_map(filled).unwrap_or("")
}

/// What a disk must be for an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need<'a> {
    /// Least size in units of 10^9 bytes.
    pub size_gb: i64,
    /// OpenShift version; empty when none is known, which no limit applies to.
    pub version: &'a str,
    /// CPU architecture of the host; empty counts as x86_64.
    pub architecture: &'a str,
}

impl<'a> Need<'a> {
    /// The need of a host with that inventory.
    pub fn new(size_gb: i64, version: &'a str, inventory: &'a Inventory) -> Self {
        let architecture = inventory.cpu.as_ref().and_then(|c| c.architecture.as_deref()).unwrap_or("");
        Self { size_gb, version, architecture }
    }
}

/// Is `version` (`4.16.68`, `4.16`, `4.16.0-rc.1`) at least `major.minor`? An unknown one is.
pub fn version_at_least(version: &str, major: u32, minor: u32) -> bool {
    let mut parts = version.split(['.', '-']).map(|p| p.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(ma), Some(mi)) => (ma, mi) >= (major, minor),
        _ => true,
    }
}

/// Beginnings of the service's own reasons; what else an inventory holds comes from the agent.
const TOO_SMALL: &str = "Disk is too small";
const BAD_TYPE: &str = "Drive type is ";
const BAD_MULTIPATH: &str = "Multipath device has no path of a supported type";

/// Problems of a disk that the service sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Small,
    Type,
    Multipath,
}

fn type_allowed(drive: DriveType, need: &Need<'_>) -> bool {
    let s390x = need.architecture == "s390x";
    match drive {
        DriveType::HDD | DriveType::SSD | DriveType::Multipath => true,
        DriveType::RAID => version_at_least(need.version, 4, 14),
        DriveType::ISCSI => version_at_least(need.version, 4, 15),
        DriveType::FC => matches!(need.architecture, "" | "x86_64" | "s390x"),
        DriveType::ECKD | DriveType::ECKDESE | DriveType::FBA => s390x,
        DriveType::Unknown | DriveType::FDD | DriveType::ODD | DriveType::Virtual | DriveType::LVM => false,
    }
}

/// A multipath device is as good as its paths: disks that name it as their holder.
fn paths_allowed(disk: &Disk, all: &[Disk]) -> bool {
    let name = filled(&disk.name);
    let holds =
        |d: &&Disk| name.is_some_and(|n| filled(&d.holders).is_some_and(|h| h.split(',').any(|one| one.trim() == n)));
    all.iter().filter(holds).any(|d| matches!(d.drive_type, Some(DriveType::FC | DriveType::ISCSI)))
}

fn problems(disk: &Disk, all: &[Disk], need: &Need<'_>) -> impl Iterator<Item = Problem> {
    let drive = disk.drive_type.unwrap_or_default();
    let small = i128::from(disk.size_bytes.unwrap_or(0)) < i128::from(need.size_gb) * 1_000_000_000;
    let bad_type = !type_allowed(drive, need);
    let bad_paths = drive == DriveType::Multipath && !paths_allowed(disk, all);
    [(small, Problem::Small), (bad_type, Problem::Type), (bad_paths, Problem::Multipath)]
        .into_iter()
        .filter_map(|(bad, problem)| bad.then_some(problem))
}

/// Reasons that the agent gave (the service's own of an earlier look are left out).
fn agent_reasons(disk: &Disk) -> impl Iterator<Item = &String> {
    let reasons = disk.installation_eligibility.iter().flat_map(|e| e.not_eligible_reasons.iter().flatten());
    reasons.filter(|r| ![TOO_SMALL, BAD_TYPE, BAD_MULTIPATH].iter().any(|own| r.starts_with(own)))
}

/// Can the system be installed to the disk? `all` are the disks of the host.
pub fn is_eligible(disk: &Disk, all: &[Disk], need: &Need<'_>) -> bool {
    agent_reasons(disk).next().is_none() && problems(disk, all, need).next().is_none()
}

fn gb(bytes: i64) -> String {
    format!("{:.0} GB", bytes as f64 / 1e9)
}

/// Can the system be installed to the disk, and why not? As the service writes it into the inventory.
pub fn eligibility(disk: &Disk, all: &[Disk], need: &Need<'_>) -> DiskInstallationEligibility {
    let mut reasons: Vec<String> = agent_reasons(disk).cloned().collect();
    reasons.extend(problems(disk, all, need).map(|problem| match problem {
        Problem::Small => {
            let has = gb(disk.size_bytes.unwrap_or(0));
            format!("{TOO_SMALL} (disk only has {has}, but {} GB are required)", need.size_gb)
        }
        Problem::Type => {
            let drive = disk.drive_type.unwrap_or_default();
            let known = DriveType::ALL.iter().filter(|d| type_allowed(**d, need)).map(|d| d.as_str());
            format!("{BAD_TYPE}{drive}, it must be one of {}.", known.collect::<Vec<_>>().join(", "))
        }
        Problem::Multipath => format!("{BAD_MULTIPATH}; it must be FC or iSCSI"),
    }));
    DiskInstallationEligibility {
        eligible: Some(reasons.is_empty()),
        not_eligible_reasons: (!reasons.is_empty()).then_some(reasons),
    }
}

/// Writes the eligibility of each disk into the inventory.
pub fn mark_eligibility(inventory: &mut Inventory, need_gb: i64, version: &str) {
    let need = Need::new(need_gb, version, inventory);
    let disks = inventory.disks.as_deref().unwrap_or(&[]);
    let marks: Vec<_> = disks.iter().map(|d| eligibility(d, disks, &need)).collect();
    for (disk, mark) in inventory.disks.iter_mut().flatten().zip(marks) {
        disk.installation_eligibility = Some(mark);
    }
}

/// Disks that can be installed to, best first: bootable ones, then what is not NVMe, then by the text of the drive type (HDD
/// before SSD), then the smaller one, then by bus address.
pub fn installation_candidates<'a>(disks: &'a [Disk], need: &Need<'_>) -> Vec<&'a Disk> {
    let mut eligible: Vec<&Disk> = disks.iter().filter(|d| is_eligible(d, disks, need)).collect();
    eligible.sort_by_cached_key(|d| {
        let nvme = filled(&d.name).is_some_and(|n| n.starts_with("nvme"));
        let drive = d.drive_type.unwrap_or_default().as_str();
        (d.bootable != Some(true), nvme, drive, d.size_bytes.unwrap_or(0), d.hctl.clone().unwrap_or_default())
    });
    eligible
}

/// The disk to install to: the one chosen before while it is still eligible, else the best.
pub fn choose_installation_disk<'a>(host: &Host, inventory: &'a Inventory, need: &Need<'_>) -> Option<&'a Disk> {
    let disks = inventory.disks.as_deref().unwrap_or(&[]);
    let before = filled(&host.installation_disk_id)
        .and_then(|id| disks.iter().find(|d| identifier(d) == id))
        .filter(|d| is_eligible(d, disks, need));
    before.or_else(|| installation_candidates(disks, need).into_iter().next())
}

/// Could the machine boot from the disk, so that it must be wiped before the installation, and may that be done? Removable
/// disks, installation media and disks that other machines may use are left alone.
fn wipeable(disk: &Disk) -> bool {
    let removable = disk.removable == Some(true) || filled(&disk.name).is_some_and(|n| n.starts_with("mmcblk"));
    let shared =
        matches!(disk.drive_type, Some(DriveType::FC | DriveType::ISCSI | DriveType::LVM | DriveType::Multipath));
    disk.bootable == Some(true) && !removable && !shared && disk.is_installation_media != Some(true)
}

/// Ids of the disks that are wiped before the installation, in the order of the inventory; those that the user wants kept
/// are left out.
pub fn disks_to_format(host: &HostView) -> Vec<&str> {
    let kept: Vec<&str> = host.skip_formatting().collect();
    host.disks().iter().filter(|d| wipeable(d)).map(identifier).filter(|id| !kept.contains(id)).collect()
}
