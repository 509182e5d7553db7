//! Disks: which can be installed to, which of them is chosen, which are wiped first.

use vlab_api::types::{Disk, DiskInstallationEligibility, DriveType, Host, Inventory};

use crate::view::{HostView, filled};

/// What the service calls the disk by: its id, else what names it best. Empty when nothing does.
pub fn identifier(disk: &Disk) -> &str {
    let names = [&disk.id, &disk.by_id, &disk.by_path, &disk.path, &disk.name];
    names.into_iter().find_map(filled).unwrap_or("")
}

/// The device by its kernel's name, whatever path the agent gives for it.
pub fn full_name(disk: &Disk) -> String {
    format!("/dev/{}", disk.name.as_deref().unwrap_or(""))
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
const MEMBER: &str = "Disk is a path of a multipath device";
const MIXED_MULTIPATH: &str = "Multipath device has paths of different types";

/// Problems of a disk that the service sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Small,
    Type,
    Multipath,
    MixedMultipath,
    Member,
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

/// A multipath device is as good as its paths (disks that name it as their holder): they must be FC or iSCSI, and all of them the same.
fn bad_paths(disk: &Disk, all: &[Disk]) -> Option<Problem> {
    let name = filled(&disk.name);
    let holds =
        |d: &&Disk| name.is_some_and(|n| filled(&d.holders).is_some_and(|h| h.split(',').any(|one| one.trim() == n)));
    let paths = || all.iter().filter(holds).map(|d| d.drive_type.unwrap_or_default());
    let good = paths().find(|drive| matches!(drive, DriveType::FC | DriveType::ISCSI));
    match good {
        None => Some(Problem::Multipath),
        Some(good) => paths().any(|drive| drive != good).then_some(Problem::MixedMultipath),
    }
}

/// Is it a path of a multipath device? Then that is what can be installed to.
fn is_member(disk: &Disk, all: &[Disk]) -> bool {
    let is_multipath =
        |name: &str| all.iter().any(|d| d.drive_type == Some(DriveType::Multipath) && d.name.as_deref() == Some(name));
    matches!(disk.drive_type, Some(DriveType::FC | DriveType::ISCSI))
        && filled(&disk.holders).is_some_and(|holders| holders.split(',').any(|holder| is_multipath(holder.trim())))
}

fn problems(disk: &Disk, all: &[Disk], need: &Need<'_>) -> impl Iterator<Item = Problem> {
    let drive = disk.drive_type.unwrap_or_default();
    let small = i128::from(disk.size_bytes.unwrap_or(0)) < i128::from(need.size_gb) * 1_000_000_000;
    let bad_type = !type_allowed(drive, need);
    let bad_paths = if drive == DriveType::Multipath { bad_paths(disk, all) } else { None };
    [(small, Problem::Small), (bad_type, Problem::Type), (is_member(disk, all), Problem::Member)]
        .into_iter()
        .filter_map(|(bad, problem)| bad.then_some(problem))
        .chain(bad_paths)
}

/// Reasons that the agent gave (the service's own of an earlier look are left out).
fn agent_reasons(disk: &Disk) -> impl Iterator<Item = &String> {
    let reasons = disk.installation_eligibility.iter().flat_map(|e| e.not_eligible_reasons.iter().flatten());
    reasons
        .filter(|r| ![TOO_SMALL, BAD_TYPE, BAD_MULTIPATH, MIXED_MULTIPATH, MEMBER].iter().any(|own| r.starts_with(own)))
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
        Problem::Member => format!("{MEMBER}; use that device instead"),
        Problem::MixedMultipath => format!("{MIXED_MULTIPATH}; they must all be of one"),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const NEED: Need<'static> = Need { size_gb: 100, version: "4.16.68", architecture: "x86_64" };

    fn disk(name: &str, drive_type: DriveType, gb: i64) -> Disk {
        Disk {
            id: Some(format!("/dev/{name}")),
            name: Some(name.to_owned()),
            drive_type: Some(drive_type),
            size_bytes: Some(gb * 1_000_000_000),
            ..Default::default()
        }
    }

    #[rstest]
    #[case::ssd(DriveType::SSD, "4.10", "x86_64", true)]
    #[case::optical(DriveType::ODD, "4.16", "x86_64", false)]
    #[case::raid(DriveType::RAID, "4.14", "x86_64", true)]
    #[case::raid_before(DriveType::RAID, "4.13.9", "x86_64", false)]
    #[case::iscsi(DriveType::ISCSI, "4.15.0-rc.1", "x86_64", true)]
    #[case::iscsi_before(DriveType::ISCSI, "4.14", "x86_64", false)]
    #[case::fc(DriveType::FC, "4.16", "s390x", true)]
    #[case::fc_elsewhere(DriveType::FC, "4.16", "aarch64", false)]
    #[case::dasd(DriveType::ECKDESE, "4.16", "s390x", true)]
    #[case::dasd_elsewhere(DriveType::FBA, "4.16", "x86_64", false)]
    #[case::paths_of_no_kind(DriveType::Multipath, "4.16", "x86_64", false)]
    fn types(#[case] drive: DriveType, #[case] version: &str, #[case] architecture: &str, #[case] eligible: bool) {
        let need = Need { size_gb: 100, version, architecture };
        let disk = disk("sda", drive, 200);
        let answer = eligibility(&disk, std::slice::from_ref(&disk), &need);
        assert_eq!(answer.eligible, Some(eligible), "{answer:?}");
        assert_eq!(is_eligible(&disk, std::slice::from_ref(&disk), &need), eligible);
        assert_eq!(answer.not_eligible_reasons.is_none(), eligible);
    }

    #[test]
    fn a_multipath_device_is_as_good_as_its_paths() {
        let mut path = disk("sda", DriveType::FC, 200);
        path.holders = Some("dm-0".to_owned());
        let all = [disk("dm-0", DriveType::Multipath, 200), path.clone()];
        assert!(is_eligible(&all[0], &all, &NEED));
        assert!(!is_eligible(&all[1], &all, &NEED), "the device is installed to, and not one of its paths");
        let other = Disk { drive_type: Some(DriveType::ISCSI), ..path.clone() };
        let all = [disk("dm-0", DriveType::Multipath, 200), path, other];
        let said = eligibility(&all[0], &all, &NEED).not_eligible_reasons.unwrap();
        assert!(said[0].contains("of different types"), "{said:?}");
    }

    #[test]
    fn reasons_of_the_agent_stay_and_those_of_the_service_do_not_pile_up() {
        let mut disk = disk("sda", DriveType::SSD, 99);
        let agent = "Disk is removable".to_owned();
        disk.installation_eligibility = Some(DiskInstallationEligibility {
            eligible: Some(false),
            not_eligible_reasons: Some(vec![agent.clone()]),
        });
        for _ in 0..2 {
            let marked = eligibility(&disk, std::slice::from_ref(&disk), &NEED);
            let expected =
                [agent.clone(), "Disk is too small (disk only has 99 GB, but 100 GB are required)".to_owned()];
            assert_eq!(marked.not_eligible_reasons.as_deref(), Some(&expected[..]));
            disk.installation_eligibility = Some(marked);
        }
        let smaller = Need { size_gb: 50, ..NEED };
        let marked = eligibility(&disk, std::slice::from_ref(&disk), &smaller);
        assert_eq!(marked.not_eligible_reasons, Some(vec![agent]));
    }

    #[test]
    fn order_of_choice() {
        let bootable = Disk { bootable: Some(true), ..disk("sdz", DriveType::SSD, 900) };
        let all = [
            disk("nvme0n1", DriveType::SSD, 100),
            disk("sdc", DriveType::SSD, 100),
            disk("sdb", DriveType::HDD, 300),
            disk("sda", DriveType::HDD, 200),
            disk("sdx", DriveType::HDD, 99),
            bootable,
        ];
        let names: Vec<_> =
            installation_candidates(&all, &NEED).into_iter().filter_map(|d| d.name.as_deref()).collect();
        assert_eq!(names, ["sdz", "sda", "sdb", "sdc", "nvme0n1"]);
        let inventory = Inventory { disks: Some(all.to_vec()), ..Default::default() };
        let mut host = Host { installation_disk_id: Some("/dev/sdc".to_owned()), ..Default::default() };
        let chosen = |host: &Host| choose_installation_disk(host, &inventory, &NEED).map(identifier).map(str::to_owned);
        assert_eq!(chosen(&host).as_deref(), Some("/dev/sdc"), "what was chosen before stays");
        host.installation_disk_id = Some("/dev/sdx".to_owned());
        assert_eq!(chosen(&host).as_deref(), Some("/dev/sdz"), "unless it is not eligible");
    }

    #[test]
    fn what_is_wiped() {
        let bootable = |d: Disk| Disk { bootable: Some(true), ..d };
        let disks = vec![
            bootable(disk("sda", DriveType::SSD, 100)),
            disk("sdb", DriveType::SSD, 100),
            bootable(disk("sdc", DriveType::ISCSI, 100)),
            bootable(disk("mmcblk0", DriveType::SSD, 100)),
            Disk { is_installation_media: Some(true), ..bootable(disk("sdd", DriveType::HDD, 100)) },
            Disk { removable: Some(true), ..bootable(disk("sde", DriveType::HDD, 100)) },
            bootable(disk("sdf", DriveType::HDD, 100)),
        ];
        let mut host = HostView::default();
        host.set_inventory(Inventory { disks: Some(disks), ..Default::default() });
        assert_eq!(disks_to_format(&host), ["/dev/sda", "/dev/sdf"]);
        host.host.skip_formatting_disks = Some("/dev/sdf".to_owned());
        assert_eq!(disks_to_format(&host), ["/dev/sda"]);
    }

    proptest! {
        /// A larger disk is never worse.
        #[test]
        fn eligibility_grows_with_size(size in any::<i64>(), more in 0i64..i64::MAX, need in 0i64..10_000, kind in 0..DriveType::ALL.len()) {
            let need = Need { size_gb: need, ..NEED };
            let with = |size| Disk { size_bytes: Some(size), ..disk("sda", DriveType::ALL[kind], 0) };
            let eligible = |size| { let d = with(size); is_eligible(&d, std::slice::from_ref(&d), &need) };
            prop_assert!(!eligible(size) || eligible(size.saturating_add(more)));
            prop_assert_eq!(eligibility(&with(size), &[], &need).eligible, Some(eligible(size)));
        }
    }
}
