//! What is done to disks around an installation: the installation disk is cleaned of what others left on it, the firmware is told
//! to boot from it, and the installed system says whether it did.
//!
//! Cleaning calls the same programs in the same order as the real installer. Nothing of it ends an installation. One rule is
//! stricter here: a device belongs to a disk if it is that disk or one of its partitions, not if its name begins like the disk's.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::inventory;
use crate::machine::{NodeConfig, Root};
use crate::say;

/// On the installed system: which disk the installer was told to write, as [`inventory::identity`] has it.
pub(super) const INSTALLED_TO: &str = "/etc/vlab/installed-to";

/// Where the installed system's root partition is mounted.
const ROOT_PARTITION: &str = "/run/vlab/disk";

/// What was found on a disk and removed, and what could not be.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cleaned {
    /// Volume groups of LVM.
    pub groups: Vec<String>,
    /// Physical volumes of LVM.
    pub volumes: Vec<String>,
    /// Other devices of the device mapper.
    pub mapped: Vec<String>,
    /// Arrays of md.
    pub arrays: Vec<String>,
    /// What could not be done, in the words of the programs.
    pub problems: Vec<String>,
}

/// Programs of the machine: what one of them prints, or why it failed.
pub(super) trait Programs {
    fn run(&self, program: &str, args: &[&str]) -> Result<String, String>;
}

impl Programs for NodeConfig {
    fn run(&self, program: &str, args: &[&str]) -> Result<String, String> {
        let path = self.program(program);
        let line = || format!("{program} {}", args.join(" "));
        let out = Command::new(&path).args(args).stdin(Stdio::null()).output();
        let out = out.map_err(|e| format!("{}: {e}", line()))?;
        if out.status.success() {
            return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&out.stderr);
        Err(format!("{}: {}: {}", line(), out.status, said.trim().replace('\n', "; ")))
    }
}

/// Is that device the disk, or one of its partitions?
fn is_of(disk: &str, device: &str) -> bool {
    let Some(rest) = device.strip_prefix(disk) else { return false };
    // Partitions of a disk whose name ends with a digit have a `p` before theirs.
    let number = match disk.ends_with(|c: char| c.is_ascii_digit()) {
        true => rest.strip_prefix('p'),
        false => Some(rest),
    };
    rest.is_empty() || number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Removes from a disk (`/dev/sda`) what others left on it.
pub(super) fn clean(programs: &impl Programs, disk: &str) -> Cleaned {
    let mut done = Cleaned::default();
    done.device(programs, disk);
    for (array, members) in arrays(programs, &mut done.problems) {
        let mine: Vec<&String> = members.iter().filter(|member| is_of(disk, member)).collect();
        if mine.is_empty() {
            continue;
        }
        done.device(programs, &array);
        // While it runs its members cannot be cleared.
        if done.did(programs.run("mdadm", &["--stop", &array])) {
            for member in mine {
                done.did(programs.run("mdadm", &["--zero-superblock", member]));
            }
        }
        done.arrays.push(array);
    }
    if programs.run("wipefs", &["--all", "--force", disk]).is_err() {
        done.did(programs.run("wipefs", &["--all", disk]));
    }
    done
}

impl Cleaned {
    /// Did it work? Why not goes into the list.
    fn did(&mut self, result: Result<String, String>) -> bool {
        result.map_err(|problem| self.problems.push(problem)).is_ok()
    }

    fn listed(&mut self, result: Result<String, String>) -> String {
        result.map_err(|problem| self.problems.push(problem)).unwrap_or_default()
    }

    /// What lies directly on a disk or an array: groups, then volumes, then what else is mapped.
    fn device(&mut self, programs: &impl Programs, device: &str) {
        let all = self.listed(programs.run("vgs", &["--noheadings", "-o", "vg_name,pv_name"]));
        for line in all.lines() {
            if let [group, volume] = line.split_whitespace().collect::<Vec<_>>()[..]
                && is_of(device, volume)
                && !self.groups.iter().any(|known| known == group)
            {
                self.did(programs.run("vgremove", &[group, "-y"]));
                self.groups.push(group.to_owned());
            }
        }
        let all = self.listed(programs.run("pvs", &["--noheadings", "-o", "pv_name"]));
        for volume in all.lines().map(str::trim).filter(|volume| is_of(device, volume)) {
            self.did(programs.run("pvremove", &[volume, "-y", "-ff"]));
            self.volumes.push(volume.to_owned());
        }
        let all = self.listed(programs.run("dmsetup", &["ls"]));
        for mapped in all.lines().filter_map(|line| line.split_once('\t')).map(|(name, _)| name) {
            let on = self.listed(programs.run("dmsetup", &["deps", "-o", "devname", mapped]));
            let below = on.split(['(', ')']).skip(1).step_by(2);
            if below.into_iter().any(|name| is_of(device, &format!("/dev/{name}"))) {
                self.did(programs.run("dmsetup", &["remove", "--retry", mapped]));
                self.mapped.push(mapped.to_owned());
            }
        }
    }
}

/// The arrays that run, with their members.
fn arrays(programs: &impl Programs, problems: &mut Vec<String>) -> Vec<(String, Vec<String>)> {
    let all = match programs.run("mdadm", &["-v", "--query", "--detail", "--scan"]) {
        Ok(all) => all,
        Err(problem) => {
            problems.push(problem);
            return Vec::new();
        }
    };
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for line in all.lines() {
        if let Some(rest) = line.strip_prefix("ARRAY ") {
            let name = rest.split_whitespace().next().unwrap_or_default();
            let device = fs::canonicalize(name).map_or_else(|_| name.to_owned(), |path| path.display().to_string());
            found.push((device, Vec::new()));
        } else if let (Some(members), Some((_, known))) = (line.trim().strip_prefix("devices="), found.last_mut()) {
            known.extend(members.split(',').map(str::to_owned));
        }
    }
    found
}

/// The first 512 bytes of a disk are zeroed.
pub(super) fn format(path: &Path) -> std::io::Result<()> {
    fs::OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(&[0; 512]))
}

// --- the firmware ----------------------------------------------------------------------------------------------------------

/// Name of the installed system in the firmware.
const LABEL: &str = "Red Hat Enterprise Linux";
const LOADER: &str = "\\EFI\\redhat\\shimx64.efi";
/// Number of the EFI system partition in every image of the lab OS.
const EFI_PARTITION: &str = "2";

/// Lets the firmware boot from the disk from now on: an entry that comes first, in the place of those of an earlier installation.
/// What the firmware shows then; `None` where there is no UEFI.
pub(super) fn boot_from(programs: &impl Programs, root: &Root, disk: &str) -> Option<Result<String, String>> {
    if !root.has("/sys/firmware/efi") {
        return None;
    }
    let set = || {
        let created =
            programs.run("efibootmgr", &["-v", "-d", disk, "-p", EFI_PARTITION, "-c", "-L", LABEL, "-l", LOADER])?;
        for old in same_label(&created) {
            programs.run("efibootmgr", &["-v", "--delete-bootnum", "--bootnum", &old])?;
        }
        programs.run("efibootmgr", &[])
    };
    Some(set())
}

/// Numbers of entries that have the label of the newest one, which comes first in the order.
fn same_label(entries: &str) -> Vec<String> {
    let order = entries.lines().find_map(|line| line.strip_prefix("BootOrder: "));
    let newest = order.and_then(|order| order.split(',').next()).unwrap_or_default();
    let numbered =
        entries.lines().filter_map(|line| line.strip_prefix("Boot")).filter_map(|line| line.split_at_checked(4));
    let old = numbered.filter(|(number, rest)| {
        let name = rest.trim_start_matches('*').trim_start().split('\t').next().unwrap_or_default();
        name == LABEL && number != &newest && number.bytes().all(|b| b.is_ascii_hexdigit())
    });
    old.map(|(number, _)| number.to_owned()).collect()
}

// --- the installed system --------------------------------------------------------------------------------------------------

/// Says from which disk this system booted, if an installer of the lab wrote it: it must be the one that the service chose, and
/// nobody else may use it.
pub fn say_where_this_is(root: &Root) {
    let Some(chosen) = root.some_text(INSTALLED_TO) else { return };
    let (word, details) = where_this_is(root, &chosen);
    say::moment("node", word, &details);
}

fn where_this_is(root: &Root, chosen: &str) -> (&'static str, serde_json::Value) {
    let mounts = root.mounts();
    let partition = mounts.iter().find(|(_, place)| place == ROOT_PARTITION).map(|(device, _)| device.as_str());
    let disks = root.names("/sys/block");
    let disk = disks.iter().find(|disk| partition.is_some_and(|partition| is_of(disk, partition)));
    let own = disk.and_then(|disk| inventory::identity(root, disk));
    let holders = disk.map(|disk| inventory::holders(root, disk)).unwrap_or_default();
    let secure_boot = inventory::secure_boot(root);
    let details = json!({
        "disk": disk, "identity": own, "chosen": chosen, "used by": holders, "secure_boot": secure_boot
    });
    match own.as_deref() == Some(chosen) && holders.is_empty() {
        true => ("booted-installed-os", details),
        false => ("booted-another-disk", details),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use rstest::rstest;

    use super::*;

    /// Programs that answer from a table, and remember what they were asked.
    struct Table(Vec<(&'static str, Result<&'static str, &'static str>)>, RefCell<Vec<String>>);

    impl Programs for Table {
        fn run(&self, program: &str, args: &[&str]) -> Result<String, String> {
            let line = format!("{program} {}", args.join(" "));
            self.1.borrow_mut().push(line.clone());
            let known = self.0.iter().find(|(asked, _)| line == *asked);
            known.map_or(Ok(String::new()), |(_, said)| said.map(str::to_owned).map_err(str::to_owned))
        }
    }

    fn table(rows: &[(&'static str, Result<&'static str, &'static str>)]) -> Table {
        Table(rows.to_vec(), RefCell::default())
    }

    const VGS: &str = "vgs --noheadings -o vg_name,pv_name";
    const PVS: &str = "pvs --noheadings -o pv_name";
    const SCAN: &str = "mdadm -v --query --detail --scan";

    #[test]
    fn an_empty_disk_is_only_wiped() {
        let programs = table(&[]);
        assert_eq!(clean(&programs, "/dev/sda"), Cleaned::default());
        assert_eq!(*programs.1.borrow(), [VGS, PVS, "dmsetup ls", SCAN, "wipefs --all --force /dev/sda"]);
    }

    #[test]
    fn what_is_on_the_disk_goes_and_what_is_on_others_stays() {
        let programs = table(&[
            (VGS, Ok("  old /dev/sda3\n  old /dev/sda4\n  data /dev/sdaa\n  kept /dev/sdb\n")),
            (PVS, Ok("  /dev/sda3\n  /dev/sdaa\n  /dev/sdb\n")),
            ("dmsetup ls", Ok("crypt\t(254:1)\nkept-data\t(254:0)\n")),
            ("dmsetup deps -o devname crypt", Ok("1 dependencies  : (sda2)\n")),
            ("dmsetup deps -o devname kept-data", Ok("1 dependencies  : (sdb)\n")),
            (
                SCAN,
                Ok(
                    "ARRAY /dev/md127 level=raid1 num-devices=2 metadata=1.2 name=former:0 UUID=1\n   devices=/dev/sda1,/dev/sdb1\n\
                    ARRAY /dev/md126 level=raid1 num-devices=1\n   devices=/dev/sdaa\n",
                ),
            ),
        ]);
        let done = clean(&programs, "/dev/sda");
        assert_eq!(
            (done.groups, done.volumes, done.mapped, done.arrays),
            (vec!["old".into()], vec!["/dev/sda3".into()], vec!["crypt".into()], vec!["/dev/md127".into()])
        );
        assert_eq!(done.problems, [""; 0]);
        let asked = programs.1.borrow();
        let did: Vec<&str> = asked
            .iter()
            .map(String::as_str)
            .filter(|l| ![VGS, PVS, SCAN].contains(l) && !l.starts_with("dmsetup ls") && !l.starts_with("dmsetup deps"))
            .collect();
        let expected = [
            "vgremove old -y",
            "pvremove /dev/sda3 -y -ff",
            "dmsetup remove --retry crypt",
            "mdadm --stop /dev/md127",
            "mdadm --zero-superblock /dev/sda1",
            "wipefs --all --force /dev/sda",
        ];
        assert_eq!(did, expected);
    }

    #[test]
    fn what_cannot_be_removed_is_said_and_the_rest_is_done() {
        let programs = table(&[
            (VGS, Err("vgs: not found")),
            (SCAN, Ok("ARRAY /dev/md0 level=raid1\n   devices=/dev/nvme0n1p2\n")),
            ("mdadm --stop /dev/md0", Err("mdadm: busy")),
            ("wipefs --all --force /dev/nvme0n1", Err("wipefs: busy")),
            ("wipefs --all /dev/nvme0n1", Err("wipefs: still busy")),
        ]);
        let done = clean(&programs, "/dev/nvme0n1");
        assert_eq!(done.problems, ["vgs: not found", "vgs: not found", "mdadm: busy", "wipefs: still busy"]);
        assert!(!programs.1.borrow().iter().any(|line| line.contains("zero-superblock")));
    }

    #[rstest]
    #[case("/dev/sda", "/dev/sda", true)]
    #[case("/dev/sda", "/dev/sda12", true)]
    #[case("/dev/sda", "/dev/sdaa", false)]
    #[case("/dev/sda", "/dev/sdaa1", false)]
    #[case("/dev/nvme0n1", "/dev/nvme0n1p3", true)]
    #[case("/dev/nvme0n1", "/dev/nvme0n12", false)]
    #[case("/dev/md127", "/dev/md127p1", true)]
    fn partitions_of_a_disk(#[case] disk: &str, #[case] device: &str, #[case] expected: bool) {
        assert_eq!(is_of(disk, device), expected);
    }

    const ENTRIES: &str = "BootCurrent: 0001\nTimeout: 0 seconds\nBootOrder: 0003,0001,0002\n\
                           Boot0001* UEFI QEMU DVD-ROM\tPciRoot(0x0)\n\
                           Boot0002* Red Hat Enterprise Linux\tHD(2,GPT,1)\nBoot0003* Red Hat Enterprise Linux\tHD(2,GPT,2)\n";

    #[test]
    fn entries_of_earlier_installations_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let create = "efibootmgr -v -d /dev/sda -p 2 -c -L Red Hat Enterprise Linux -l \\EFI\\redhat\\shimx64.efi";
        let programs = table(&[(create, Ok(ENTRIES)), ("efibootmgr ", Ok("BootOrder: 0003,0001"))]);
        assert_eq!(boot_from(&programs, &root, "/dev/sda"), None, "no UEFI");
        fs::create_dir_all(folder.path().join("sys/firmware/efi")).unwrap();
        assert_eq!(boot_from(&programs, &root, "/dev/sda"), Some(Ok("BootOrder: 0003,0001".into())));
        assert_eq!(programs.1.borrow()[1], "efibootmgr -v --delete-bootnum --bootnum 0002");
        let full = table(&[(create, Err("efibootmgr: no space left"))]);
        assert_eq!(boot_from(&full, &root, "/dev/sda"), Some(Err("efibootmgr: no space left".into())));
    }

    #[rstest]
    #[case::chosen("SYSTEM", "sdb4", &[], "booted-installed-os")]
    #[case::another("STICK", "sdb4", &[], "booted-another-disk")]
    #[case::in_use("SYSTEM", "sdb4", &["dm-0"], "booted-another-disk")]
    #[case::nowhere("SYSTEM", "sdc4", &[], "booted-another-disk")]
    fn the_installed_system_knows_its_disk(
        #[case] chosen: &str,
        #[case] partition: &str,
        #[case] holders: &[&str],
        #[case] word: &str,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/block/sda/serial", "STICK");
        write("sys/block/sdb/serial", "SYSTEM");
        for holder in holders {
            write(&format!("sys/block/sdb/sdb3/holders/{holder}"), "");
        }
        write("proc/1/mounts", &format!("/dev/{partition} /run/vlab/disk ext4 rw 0 0\n"));
        let (said, details) = where_this_is(&Root::at(folder.path()), chosen);
        assert_eq!(said, word, "{details}");
    }
}
