//! The disk image that coreos-installer writes: four partitions as on CoreOS (BIOS boot, EFI, boot, root), small, because it is
//! written whole; the last one grows at the first boot. Made as plain files, without loop devices and without root.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::live::{KARGS, fat};
use super::osmet::Part;
use crate::{ImageError, tools};

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;

/// The partition of GRUB's second part on BIOS machines.
const BIOS: u64 = MIB;
/// The EFI partition.
const EFI: u64 = 12 * MIB;

/// Identifiers of the disk and its partitions: fixed, the image is the same everywhere. (coreos-installer gives the disk
/// new ones when Ignition is told to; nothing in the lab looks.)
const GUID: &str = "766c6162-0000-4000-8000-00000000001";

/// Modules of GRUB for BIOS on the disk, beside the one that loads Linux.
const GRUB: &[&str] = &[
    "ext2",
    "part_gpt",
    "normal",
    "search",
    "search_label",
    "configfile",
    "echo",
    "test",
    "boot",
    "serial",
    "terminal",
    "true",
];

/// GRUB finds the boot partition by its label.
const GRUB_STUB: &str =
    "search --no-floppy --set=root --label boot\nset prefix=($root)/grub2\nconfigfile $prefix/grub.cfg\n";

/// GRUB's file. The one entry of the boot menu is at the same time a Boot Loader Specification entry, which coreos-installer
/// edits, and a program of GRUB, which reads it here: its keys are functions and commands.
///
/// On a BIOS machine Linux is started by its 16-bit protocol. By the other one GRUB first moves all the memory that the kernel will
/// unpack itself into, sixty megabytes byte by byte: three seconds and more on an emulated processor. A command comes before a
/// function of its name: for UEFI the module `linux` is there, and the entry itself loads the kernel; for BIOS it is loaded after the
/// entry was read, because `linux16` needs it.
const GRUB_CFG: &str = "\
set timeout=0
set default=0
if [ \"$grub_platform\" = pc ]; then
  serial --unit=0 --speed=115200
  terminal_output serial
fi
# CONSOLE-SETTINGS-START
# CONSOLE-SETTINGS-END
set ignition_firstboot=\"\"
if [ -f /ignition.firstboot ]; then
  set ignition_network_kcmdline=''
  source /ignition.firstboot
  set ignition_firstboot=\"ignition.firstboot $ignition_network_kcmdline\"
fi
function linux { set kernel=\"$*\"; export kernel; }
function initrd { set initrds=\"$*\"; export initrds; }
function title { true; }
function version { true; }
function options { set bls_options=\"$*\"; export bls_options; }
source /loader/entries/ostree-1-vlab.conf
if [ \"$grub_platform\" = pc ]; then
  insmod linux16
  linux16 $kernel
  initrd16 $initrds
fi
boot
";

/// That entry.
fn entry() -> String {
    format!(
        "title vlab lab OS 1 (ostree:0)\nversion 1\noptions {KARGS} ignition.platform.id=metal $ignition_firstboot\nlinux \
         /vmlinuz $bls_options\ninitrd /initrd.img\n"
    )
}

/// What goes into the image.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    /// The kernel.
    pub(super) kernel: &'a Path,
    /// The initrd.
    pub(super) initrd: &'a Path,
    /// The root file system.
    pub(super) squashfs: &'a Path,
    /// What UEFI machines boot.
    pub(super) efi: &'a super::Efi,
    /// Folder of GRUB's modules for BIOS.
    pub(super) grub_bios: &'a Path,
}

/// Where the root partition begins and ends, and which parts of it are the squashfs.
#[derive(Debug)]
pub(super) struct RootPartition {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) parts: Vec<Part>,
}

impl Parts<'_> {
    /// Sizes of the boot and the root partition.
    fn sizes(&self) -> Result<(u64, u64), ImageError> {
        let size = |path: &Path| fs::metadata(path).map(|meta| meta.len()).map_err(ImageError::io(path));
        let (kernel, initrd) = (size(self.kernel)?, size(self.initrd)?);
        // `--copy-network` writes a second initrd beside the first one.
        let boot = (kernel + 2 * initrd + 8 * MIB).next_multiple_of(MIB);
        let squashfs = size(self.squashfs)?;
        // The file system's own tables and journal.
        let root = (squashfs + squashfs / 32 + 8 * MIB).next_multiple_of(MIB);
        Ok((boot, root))
    }

    /// Where the root partition is in an image of these parts.
    pub(super) fn root_partition(&self, image: &Path) -> Result<RootPartition, ImageError> {
        let (boot, root) = self.sizes()?;
        let start = MIB + BIOS + EFI + boot;
        let folder = tempfile::tempdir().map_err(ImageError::io("temporary folder"))?;
        let part = folder.path().join("root");
        let mut from = File::open(image).map_err(ImageError::io(image))?;
        from.seek(SeekFrom::Start(start)).map_err(ImageError::io(image))?;
        let mut to = File::create(&part).map_err(ImageError::io(&part))?;
        io::copy(&mut from.take(root), &mut to).map_err(ImageError::io(&part))?;
        let mut command = tools::command("debugfs")?;
        command.args(["-R", "dump_extents -l /root.squashfs"]).arg(&part);
        let said = String::from_utf8_lossy(&tools::run(command)?).into_owned();
        let size = fs::metadata(self.squashfs).map_err(ImageError::io(self.squashfs))?.len();
        Ok(RootPartition { start, end: start + root, parts: extents(&said, size)? })
    }

    /// Writes the image.
    pub(super) fn write(&self, into: &Path) -> Result<(), ImageError> {
        let folder = tempfile::tempdir().map_err(ImageError::io("temporary folder"))?;
        let at = |name: &str| folder.path().join(name);
        let (boot, root) = self.sizes()?;
        let texts = [("grub.cfg", GRUB_CFG.to_owned()), ("entry", entry()), ("empty", String::new())];
        for (name, text) in &texts {
            fs::write(at(name), text).map_err(ImageError::io(at(name)))?;
        }
        let mut files = vec![
            ("vmlinuz".to_owned(), self.kernel.to_owned()),
            ("initrd.img".to_owned(), self.initrd.to_owned()),
            ("ignition.firstboot".to_owned(), at("empty")),
            ("grub2/grub.cfg".to_owned(), at("grub.cfg")),
            ("loader/entries/ostree-1-vlab.conf".to_owned(), at("entry")),
        ];
        for name in LATER.iter().map(|module| format!("{module}.mod")) {
            files.push((format!("grub2/i386-pc/{name}"), self.grub_bios.join(name)));
        }
        // GRUB does not read checksums of metadata; a journal would only be written to the disk, too.
        ext4(
            &at("boot"),
            boot,
            "boot",
            "^metadata_csum,^64bit,^has_journal,^resize_inode",
            &["grub2", "grub2/i386-pc", "loader", "loader/entries"],
            &files.iter().map(|(name, path)| (name.as_str(), path.as_path())).collect::<Vec<_>>(),
        )?;
        ext4(&at("root"), root, "root", "^resize_inode,meta_bg", &[], &[("root.squashfs", self.squashfs)])?;
        // The second folder is where installers look for a boot loader that they register with the firmware. Each shim looks beside itself.
        let files = [
            ("EFI/BOOT/BOOTX64.EFI", &self.efi.shim[..]),
            ("EFI/BOOT/grubx64.efi", &self.efi.grub),
            ("EFI/redhat/shimx64.efi", &self.efi.shim),
            ("EFI/redhat/grubx64.efi", &self.efi.grub),
            (super::GRUB_FIRST, GRUB_STUB.as_bytes()),
        ];
        fat(&at("efi"), EFI, "EFI-SYSTEM", &files)?;

        let failed = |error| ImageError::Io { path: into.to_owned(), error };
        let whole = MIB + BIOS + EFI + boot + root + MIB;
        let _ = fs::remove_file(into);
        File::create(into).and_then(|file| file.set_len(whole)).map_err(failed)?;
        let mut command = tools::command("sgdisk")?;
        command.args(["-a", "2048", "-U", &format!("{GUID}0")]);
        let mut start = MIB;
        let partitions =
            [(BIOS, "EF02", "BIOS-BOOT"), (EFI, "EF00", "EFI-SYSTEM"), (boot, "8300", "boot"), (root, "8304", "root")];
        let mut starts = Vec::new();
        for (number, (size, kind, name)) in (1..).zip(partitions) {
            starts.push(start);
            let (first, last) = (start / SECTOR, (start + size) / SECTOR - 1);
            command.args(["-n", &format!("{number}:{first}:{last}"), "-t", &format!("{number}:{kind}")]).args([
                "-c",
                &format!("{number}:{name}"),
                "-u",
                &format!("{number}:{GUID}{number}"),
            ]);
            start += size;
        }
        command.arg(into);
        tools::run(command)?;
        let mut image = File::options().read(true).write(true).open(into).map_err(failed)?;
        for (start, name) in starts[1..].iter().zip(["efi", "boot", "root"]) {
            sparse_copy(&at(name), &mut image, *start)?;
        }
        self.grub_bios(&mut image, starts[0]).map_err(failed)
    }

    /// What `grub-install` does for a BIOS machine: the first part of GRUB into the first sector, told where the second one is;
    /// the second one into its partition, told where its own rest is.
    fn grub_bios(&self, image: &mut File, at: u64) -> io::Result<()> {
        let mut boot = fs::read(self.grub_bios.join("boot.img"))?;
        let mut core =
            super::grub_image(self.grub_bios, GRUB_STUB, "(,gpt3)/grub2", &bios_modules()).map_err(io::Error::other)?;
        let strange = || io::Error::other("GRUB's boot.img does not have the expected form");
        let sector = at / SECTOR;
        boot.get_mut(0x5c..0x64).ok_or_else(strange)?.copy_from_slice(&sector.to_le_bytes());
        // From the drive that the BIOS has booted, without the detour for broken ones.
        *boot.get_mut(0x64).ok_or_else(strange)? = 0xff;
        boot.get_mut(0x66..0x68).ok_or_else(strange)?.copy_from_slice(&[0x90, 0x90]);
        let rest = u16::try_from((core.len() as u64 - SECTOR).div_ceil(SECTOR)).map_err(io::Error::other)?;
        if core.len() as u64 > BIOS {
            return Err(io::Error::other("GRUB's second part is larger than its partition"));
        }
        let list = core.get_mut(500..512).ok_or_else(strange)?;
        list[..8].copy_from_slice(&(sector + 1).to_le_bytes());
        list[8..10].copy_from_slice(&rest.to_le_bytes());
        list[10..].copy_from_slice(&0x820u16.to_le_bytes());
        image.seek(SeekFrom::Start(0))?;
        // The partition table that protects the real one begins there.
        image.write_all(boot.get(..440).ok_or_else(strange)?)?;
        image.seek(SeekFrom::Start(at))?;
        image.write_all(&core)
    }
}

fn bios_modules() -> Vec<&'static str> {
    // The last ones are what those of LATER need.
    let mut all = vec!["biosdisk", "relocator", "verifiers", "mmap", "video", "vbe"];
    all.extend(GRUB);
    all
}

/// Modules of GRUB for BIOS that lie on the boot partition as files: see [`GRUB_CFG`].
const LATER: &[&str] = &["linux", "linux16"];

/// An ext4 file system with these folders and files, all of root. Through debugfs and not `mke2fs -d`: that one takes owners
/// and times from the files of this machine.
fn ext4(
    into: &Path,
    size: u64,
    label: &str,
    features: &str,
    folders: &[&str],
    files: &[(&str, &Path)],
) -> Result<(), ImageError> {
    File::create(into).and_then(|file| file.set_len(size)).map_err(ImageError::io(into))?;
    let id = format!("766c6162-0000-4000-8000-{:0>12}", if label == "boot" { 3 } else { 4 });
    let mut command = tools::command("mke2fs")?;
    command
        .args([
            "-q", "-F", "-t", "ext4", "-b", "4096", "-L", label, "-O", features, "-U", &id, "-m", "0", "-i", "65536",
            "-E",
        ])
        .arg(format!("hash_seed={id},root_owner=0:0,lazy_itable_init=1,lazy_journal_init=1,nodiscard"))
        .arg(into);
    tools::run(command)?;
    let mut script = String::new();
    for folder in folders {
        script += &format!("mkdir /{folder}\n");
    }
    for (name, from) in files {
        script += &format!("write {} /{name}\n", from.display());
        script += &format!("set_inode_field /{name} mode 0100644\n");
    }
    for name in folders.iter().copied().chain(files.iter().map(|(name, _)| *name)).chain([""]) {
        for field in ["uid", "gid"] {
            script += &format!("set_inode_field /{name} {field} 0\n");
        }
        for field in ["atime", "ctime", "mtime", "crtime"] {
            script += &format!("set_inode_field /{name} {field} @{}\n", crate::archive::TIME);
            script += &format!("set_inode_field /{name} {field}_extra 0\n");
        }
    }
    let commands = into.with_extension("commands");
    fs::write(&commands, script).map_err(ImageError::io(&commands))?;
    let mut command = tools::command("debugfs")?;
    command.arg("-w").arg("-f").arg(&commands).arg(into);
    tools::run(command)?;
    // It says what went wrong and ends well all the same: look.
    for (name, from) in files {
        let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
        let size = fs::metadata(from).map_err(ImageError::io(*from))?.len();
        let mut command = tools::command("debugfs")?;
        command.arg("-R").arg(format!("ls -p /{folder}")).arg(into);
        let listed = String::from_utf8_lossy(&tools::run(command)?).into_owned();
        // /inode/mode/owner/group/name/size/
        if !listed.lines().any(|line| line.ends_with(&format!("/100644/0/0/{last}/{size}/"))) {
            return Err(ImageError::Tree(format!(
                "debugfs did not write {name} into the file system {label}: {listed}"
            )));
        }
        let mut command = tools::command("debugfs")?;
        command.arg("-R").arg(format!("dump_extents -l /{name}")).arg(into);
        extents(&String::from_utf8_lossy(&tools::run(command)?), size)
            .map_err(|error| ImageError::Tree(format!("{name} in the file system {label}: {error}")))?;
    }
    Ok(())
}

/// Copies a file to a place in another one; zeros stay holes.
fn sparse_copy(from: &Path, into: &mut File, at: u64) -> Result<(), ImageError> {
    let failed = |error| ImageError::Io { path: from.to_owned(), error };
    let mut file = File::open(from).map_err(failed)?;
    let mut buffer = vec![0; 1 << 16];
    let mut position = at;
    loop {
        let count = file.read(&mut buffer).map_err(failed)?;
        if count == 0 {
            return Ok(());
        }
        if buffer[..count].iter().any(|byte| *byte != 0) {
            into.seek(SeekFrom::Start(position)).and_then(|_| into.write_all(&buffer[..count])).map_err(failed)?;
        }
        position += count as u64;
    }
}

/// debugfs' list of a file's extents: `level/depth entry/entries first - last physical-first - last length flags`.
fn extents(said: &str, size: u64) -> Result<Vec<Part>, ImageError> {
    const BLOCK: u64 = 4096;
    let mut parts = Vec::new();
    let mut covered = 0;
    for line in said.lines() {
        let numbers: Vec<u64> = line
            .split(|c: char| !c.is_ascii_digit())
            .filter(|word| !word.is_empty())
            .filter_map(|word| word.parse().ok())
            .collect();
        let [_, _, _, _, first, last, physical, _, ..] = numbers[..] else { continue };
        let (begin, end) = (first * BLOCK, ((last + 1) * BLOCK).min(size));
        if begin != covered {
            return Err(ImageError::Tree(format!("extents with a hole: {line}")));
        }
        covered = end;
        parts.push(Part { in_file: begin, in_partition: physical * BLOCK, length: end - begin });
    }
    match covered == size {
        true => Ok(parts),
        false => Err(ImageError::Tree(format!("debugfs tells of {covered} bytes of a file that has {size}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_read() {
        let said = "Level Entries       Logical      Physical Length Flags\n \
                    0/ 0   1/  2     0 -   9   100 - 109     10 \n 0/ 0   2/  2    10 -  11   200 - 201      2 \n";
        let parts = extents(said, 11 * 4096 + 5).unwrap();
        assert_eq!(
            parts,
            [
                Part { in_file: 0, in_partition: 100 * 4096, length: 10 * 4096 },
                Part { in_file: 10 * 4096, in_partition: 200 * 4096, length: 4096 + 5 },
            ]
        );
        assert!(extents(said, 13 * 4096).is_err(), "not the whole file");
        assert!(extents("", 1).is_err());
        assert!(extents("", 0).unwrap().is_empty());
    }

    #[test]
    fn the_entry_is_one_that_coreos_installer_edits() {
        let entry = entry();
        for key in ["options ", "linux ", "initrd "] {
            assert_eq!(entry.lines().filter(|line| line.starts_with(key)).count(), 1, "{key}");
        }
        assert!(entry.contains("ignition.platform.id=metal") && entry.contains("$ignition_firstboot"));
    }
}
