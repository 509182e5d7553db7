//! The live medium: rootfs.img, the live part of the initrd, and ISO files, laid out as those of CoreOS, so that
//! coreos-installer and the assisted-image-service take them.
//!
//! Facts that others rely on: `root.squashfs` is the first member of rootfs.img, its bytes begin at 124; the ignition area is
//! a file of 256 KiB of zeros; areas for kernel arguments are the same text in both boot loaders' files, end with a newline
//! and `#`s and are followed by a marker; plain ISO 9660 names are 8.3 and upper case (level 1), real names are Rock Ridge's.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::VOLUME;
use crate::cache::hex;
use crate::rootfs::Rootfs;
use crate::{ImageError, cpio, tools};

/// Name of the file system in rootfs.img.
const SQUASHFS: &str = "root.squashfs";

/// Checksums of rootfs.img are those of blocks of this size.
const BLOCK: usize = 2 << 20;

/// Size of the area for kernel arguments; coreos-installer allows 2048.
const KARGS_SIZE: usize = 1139;
const KARGS_MARKER: &str = "# COREOS_KARG_EMBED_AREA\n";

/// Size of the area for the ignition configuration.
const IGNITION_SIZE: u64 = 256 << 10;

/// Size of the place for the service's static networks in a minimal ISO.
const CUSTOM_SIZE: u64 = 1 << 20;

/// Size of the image with the EFI boot loaders.
const EFI_SIZE: u64 = 5632 << 10;

/// What the boot of every machine of the lab has:
/// - both consoles (the serial one is the system's), and nothing of the kernel's talk but errors;
/// - names of network devices that are the same in the initrd, which has no udev;
/// - no `cmpxchg16b`: a kernel died there of a double fault under QEMU 7.2's TCG, with bits of a pointer in its flags. Seen once,
///   on a busy machine; that the translation of the instruction is the cause is inferred from the registers;
/// - libraries at the same address in every process: TCG keeps what it has translated by address, and translates them again for
///   each program otherwise. A quarter fewer blocks were translated with it, and the agent was there 9 to 18 % sooner;
/// - no self-tests of the kernel's cryptography: two of them alone, of what nothing here uses, are 0.7 s of every emulated boot;
/// - no types of modules for BPF programs (`btf_module_init`), of which there are none: reading them is as long again. They cannot be
///   taken out of the modules, whose signatures are for all of their bytes;
/// - no test of the timer's interrupt: the kernel counts it for some milliseconds of its own time, and panics ("IO-APIC + timer doesn't work!") where
///   the processor that emulates it was busy with something else meanwhile. Seen on one processor beside a compiler;
/// - nice values that count between sessions, which services are: what can wait is to wait.
pub(super) const KARGS: &str = "console=tty0 console=ttyS0,115200n8 net.ifnames=0 clearcpuid=cx16 norandmaps no_timer_check \
                                initcall_blacklist=jent_mod_init,crypto_kdf108_init,btf_module_init \
                                cryptomgr.notests noautogroup quiet";
const KARGS_IGNITION: &str = "ignition.firstboot ignition.platform.id=metal";

/// What coreos-installer may put into the live system.
const DIRECTIVES: &[&str] = &[
    "append-karg",
    "append-platform-karg",
    "architecture",
    "console",
    "copy-network",
    "delete-karg",
    "dest-device",
    "fetch-retries",
    "firstboot-args",
    "ignition-file",
    "ignition-hash",
    "ignition-url",
    "image-file",
    "image-url",
    "insecure",
    "insecure-ignition",
    "network-dir",
    "offline",
    "platform",
    "preserve-on-error",
    "save-partindex",
    "save-partlabel",
    "secure-ipl",
    "stream",
];

/// What GRUB runs first, wherever it was started from: the signed one has a name for that file and the folder in it. On a CD the folder is
/// the ISO's, on a stick that of the file system with the boot loader.
const GRUB_STUB: &str =
    "search --no-floppy --set=root --label rhcos-vlab-1\nset prefix=($root)/EFI/redhat\nconfigfile $prefix/grub.cfg\n";

/// `coreos/features.json` and the same in the initrd.
fn features() -> Result<String, ImageError> {
    let directives: serde_json::Map<String, serde_json::Value> =
        DIRECTIVES.iter().map(|name| ((*name).to_owned(), true.into())).collect();
    json(&serde_json::json!({
        "installer-config": true,
        "installer-config-directives": directives,
        "live-initrd-network": true,
    }))
}

fn json(value: &serde_json::Value) -> Result<String, ImageError> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| ImageError::Tree(error.to_string()))
}

/// rootfs.img: the squashfs, and behind it the disk image for coreos-installer.
pub(super) fn rootfs(squashfs: &Path, osmet: &Path, into: &Path) -> Result<(), ImageError> {
    let failed = |error| ImageError::Io { path: into.to_owned(), error };
    let mut writer = cpio::Writer::new(BufWriter::new(File::create(into).map_err(failed)?));
    for (name, path) in [(SQUASHFS, squashfs), ("vlab-metal.x86_64.osmet", osmet)] {
        let file = File::open(path).map_err(ImageError::io(path))?;
        let size = file.metadata().map_err(ImageError::io(path))?.len();
        writer.entry(name, 0o100_644, size, BufReader::with_capacity(1 << 20, file)).map_err(failed)?;
    }
    writer.entry("etc", 0o040_755, 0, std::io::empty()).map_err(failed)?;
    let id = format!("{VOLUME}\n");
    writer.entry("etc/coreos-live-rootfs", 0o100_644, id.len() as u64, id.as_bytes()).map_err(failed)?;
    writer.finish().map(|_| ()).map_err(failed)
}

/// What the live initrd has beyond the one on disk: proof that it is one, and which rootfs.img belongs to it.
pub(super) fn initrd_part(rootfs: &Path, squashfs: &Path, osmet: &Path, tree: &mut Rootfs) -> Result<(), ImageError> {
    let mut want = format!("stream-hash sha256 {BLOCK}\n");
    let mut file = File::open(rootfs).map_err(ImageError::io(rootfs))?;
    let mut block = Vec::with_capacity(BLOCK);
    loop {
        block.clear();
        (&mut file).take(BLOCK as u64).read_to_end(&mut block).map_err(ImageError::io(rootfs))?;
        if block.is_empty() {
            break;
        }
        want += &format!("{}\n", hex(&Sha256::digest(&block)));
    }
    let size = |path: &Path| fs::metadata(path).map(|meta| meta.len()).map_err(ImageError::io(path));
    let begin = cpio::first_content(SQUASHFS);
    let (squashfs_size, osmet_size) = (size(squashfs)?, size(osmet)?);
    // The second member: its header and name come between.
    let osmet_begin = cpio::round(begin + squashfs_size) + cpio::first_content("vlab-metal.x86_64.osmet");
    tree.file("etc/coreos-live-initramfs", 0o644, format!("{VOLUME}\n"));
    tree.file("etc/coreos/features.json", 0o644, features()?);
    tree.file("etc/coreos-live-want-rootfs", 0o644, want);
    let object = hex(&super::object(squashfs)?);
    tree.file("etc/vlab-rootfs", 0o644, format!("{begin} {squashfs_size} {osmet_begin} {osmet_size} {object}\n"));
    Ok(())
}

/// Kinds of ISO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Iso<'a> {
    /// With this rootfs.img on it.
    Full(&'a Path),
    /// Without: the initrd fetches it from `coreos.live.rootfs_url`, which is to be added to the kernel arguments.
    Minimal,
}

impl Iso<'_> {
    /// The default kernel arguments.
    fn kargs(self) -> String {
        match self {
            Self::Full(_) => format!("{KARGS} coreos.liveiso={VOLUME} {KARGS_IGNITION}"),
            Self::Minimal => format!("{KARGS} {KARGS_IGNITION}"),
        }
    }

    /// Images that the boot loaders load.
    fn initrds(self) -> Vec<&'static str> {
        let mut all = vec!["/images/pxeboot/initrd.img", "/images/ignition.img"];
        if self == Self::Minimal {
            all.push("/images/assisted_installer_custom.img");
        }
        all
    }

    /// Text of a boot loader's file up to the area, and the file.
    fn boot_file(self, before: &str, after: &str) -> (usize, String) {
        let area = format!("{:#<KARGS_SIZE$}", format!("{}\n", self.kargs()));
        (before.len(), format!("{before}{area}{KARGS_MARKER}{after}"))
    }
}

/// Files of the boot loaders of BIOS machines, from their packages.
#[derive(Debug)]
pub(super) struct Bios {
    /// isolinux.bin
    pub(super) isolinux: Vec<u8>,
    /// ldlinux.c32
    pub(super) ldlinux: Vec<u8>,
    /// isohdpfx.bin: the boot sector with which an ISO boots as a disk.
    pub(super) boot_sector: Vec<u8>,
}

/// Writes an ISO.
pub(super) fn iso(
    kind: Iso<'_>,
    kernel: &[u8],
    initrd: &Path,
    bios: &Bios,
    efi: &super::Efi,
    into: &Path,
) -> Result<(), ImageError> {
    let folder = tempfile::tempdir().map_err(ImageError::io("temporary folder"))?;
    let root = folder.path().join("iso");
    let put = |name: &str, bytes: &[u8]| {
        let path = root.join(name);
        let parent = path.parent().unwrap_or(&root).to_owned();
        fs::create_dir_all(&parent).map_err(ImageError::io(parent))?;
        fs::write(&path, bytes).map_err(ImageError::io(path))
    };
    let zeros = |name: &str, size: u64| {
        put(name, &[])?;
        let path = root.join(name);
        File::options().write(true).open(&path).and_then(|file| file.set_len(size)).map_err(ImageError::io(path))
    };
    let initrds = kind.initrds();
    let (isolinux_at, isolinux) = kind.boot_file(
        &format!(
            "serial 0 115200\ndefault linux\nprompt 0\ntimeout 1\nlabel linux\n  kernel /images/pxeboot/vmlinuz\n  append \
             initrd={} ",
            initrds.join(",")
        ),
        "",
    );
    let (grub_at, grub_cfg) = kind.boot_file(
        "set timeout=0\nset default=0\nmenuentry 'vlab lab OS (Live)' {\n  linux /images/pxeboot/vmlinuz ",
        &format!("  initrd {}\n}}\n", initrds.join(" ")),
    );
    put("isolinux/isolinux.cfg", isolinux.as_bytes())?;
    put("EFI/redhat/grub.cfg", grub_cfg.as_bytes())?;
    put("coreos/features.json", features()?.as_bytes())?;
    put("coreos/igninfo.json", json(&serde_json::json!({"file": "images/ignition.img"}))?.as_bytes())?;
    let area = |path: &str, offset: usize| serde_json::json!({"end": "\n", "offset": offset, "pad": "#", "path": path});
    let kargs = serde_json::json!({
        "default": kind.kargs(),
        "files": [area("EFI/redhat/grub.cfg", grub_at), area("isolinux/isolinux.cfg", isolinux_at)],
        "size": KARGS_SIZE,
    });
    put("coreos/kargs.json", json(&kargs)?.as_bytes())?;
    put("isolinux/isolinux.bin", &bios.isolinux)?;
    put("isolinux/ldlinux.c32", &bios.ldlinux)?;
    put("images/pxeboot/vmlinuz", kernel)?;
    zeros("images/ignition.img", IGNITION_SIZE)?;
    link(initrd, &root.join("images/pxeboot/initrd.img"))?;
    match kind {
        Iso::Full(rootfs) => link(rootfs, &root.join("images/pxeboot/rootfs.img"))?,
        Iso::Minimal => zeros("images/assisted_installer_custom.img", CUSTOM_SIZE)?,
    }
    put(super::GRUB_FIRST, GRUB_STUB.as_bytes())?;
    let files = [
        ("EFI/BOOT/BOOTX64.EFI", &efi.shim[..]),
        ("EFI/BOOT/grubx64.efi", &efi.grub),
        (super::GRUB_FIRST, GRUB_STUB.as_bytes()),
    ];
    fat(&root.join("images/efiboot.img"), EFI_SIZE, "EFI", &files)?;
    let boot_sector = folder.path().join("boot_sector");
    fs::write(&boot_sector, &bios.boot_sector).map_err(ImageError::io(&boot_sector))?;

    let mut command = tools::command("xorriso")?;
    command
        .args(["-as", "mkisofs", "-quiet", "-iso-level", "1", "-r", "-V", VOLUME])
        .args(["-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat", "-no-emul-boot", "-boot-load-size", "4"])
        .args(["-boot-info-table", "-eltorito-alt-boot", "-e", "images/efiboot.img", "-no-emul-boot"])
        .arg("-isohybrid-mbr")
        .arg(&boot_sector)
        .args(["-isohybrid-gpt-basdat", "--gpt_disk_guid", "766c6162-0000-4000-8000-000000000001"])
        .args(["--set_all_file_dates", super::DATE, &format!("--modification-date={}", super::DATE)])
        .arg("-o")
        .arg(into)
        .arg(&root);
    // It appends to a file that is there.
    let _ = fs::remove_file(into);
    tools::run(command).map(|_| ())
}

/// A file of the cache at a place in a folder that is made into something: no copy where the file system can do without.
fn link(from: &Path, to: &Path) -> Result<(), ImageError> {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(|_| ())).map_err(ImageError::io(to))
}

/// A FAT file system with these files.
pub(super) fn fat(into: &Path, size: u64, label: &str, files: &[(&str, &[u8])]) -> Result<(), ImageError> {
    let failed = |error| ImageError::Io { path: into.to_owned(), error };
    File::create(into).and_then(|file| file.set_len(size)).map_err(failed)?;
    let mut command = tools::command("mkfs.vfat")?;
    command.args(["--invariant", "-i", "766c6162", "-n", label]).arg(into);
    tools::run(command)?;
    let mut folders: Vec<String> = Vec::new();
    let source = tempfile::tempdir().map_err(ImageError::io("temporary folder"))?;
    for (name, bytes) in files {
        for (at, _) in name.match_indices('/') {
            let folder = format!("::{}", &name[..at]);
            if !folders.contains(&folder) {
                let mut command = tools::command("mmd")?;
                command.arg("-i").arg(into).arg(&folder);
                tools::run(command)?;
                folders.push(folder);
            }
        }
        let file = source.path().join("file");
        fs::write(&file, bytes).map_err(ImageError::io(&file))?;
        let mut command = tools::command("mcopy")?;
        command.arg("-i").arg(into).arg(&file).arg(format!("::{name}"));
        tools::run(command)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_areas_of_both_boot_loaders_are_alike() {
        for kind in [Iso::Full(Path::new("x")), Iso::Minimal] {
            for before in ["a ", "something longer "] {
                let (at, text) = kind.boot_file(before, "after\n");
                assert!(text.starts_with(before) && text.ends_with("after\n"));
                let area = &text[at..at + KARGS_SIZE];
                assert_eq!(area.trim_end_matches('#'), format!("{}\n", kind.kargs()));
                assert!(text[at + KARGS_SIZE..].starts_with(KARGS_MARKER));
            }
            assert!(kind.kargs().len() < KARGS_SIZE);
        }
        assert!(!Iso::Minimal.kargs().contains("liveiso"), "it would look for a file that is not there");
    }

    #[test]
    fn the_volume_is_one_that_the_image_service_takes() {
        assert!(VOLUME.starts_with("rhcos-") && VOLUME.len() <= 32);
    }
}
