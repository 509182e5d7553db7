//! The initrd: busybox, modules that reach the root file system, and the shell programs of `images/os/initrd`. Everything
//! else that it needs (Ignition, tools for disks) is in the root file system, so it is small and quick to unpack.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::files;
use super::kernel::{Kernel, Place};
use crate::cache::Cache;
use crate::manifest::Manifest;
use crate::rootfs::{FileKind, Rootfs};
use crate::{ImageError, cpio, packages};

/// Commands of busybox that the programs of the initrd use.
const BUSYBOX: &[&str] = &[
    "[",
    "awk",
    "cat",
    "chmod",
    "chroot",
    "cp",
    "cttyhack",
    "cut",
    "dd",
    "echo",
    "env",
    "find",
    "findfs",
    "grep",
    "ip",
    "ipcalc",
    "ln",
    "losetup",
    "ls",
    "mkdir",
    "mktemp",
    "modprobe",
    "mount",
    "mv",
    "poweroff",
    "printf",
    "readlink",
    "rm",
    "sed",
    "seq",
    "setsid",
    "sh",
    "sha256sum",
    "sleep",
    "sort",
    "switch_root",
    "tail",
    "touch",
    "tr",
    "true",
    "udhcpc",
    "umount",
    "usleep",
    "wc",
    "wget",
    "basename",
    "dirname",
    "head",
    "sync",
    "test",
    "timeout",
    "uniq",
    "xargs",
    "ps",
    "dmesg",
];

/// Programs that Ignition calls by name and that the root file system has, or that do nothing here (see `in-root`).
const IN_ROOT: &[&str] = &[
    "blkid",
    "groupadd",
    "groupdel",
    "mkfs.ext4",
    "mkfs.vfat",
    "mkswap",
    "partx",
    "setfiles",
    "sgdisk",
    "udevadm",
    "useradd",
    "userdel",
    "usermod",
    "wipefs",
];

/// Lists of the kernel that busybox's `modprobe` does not read.
const NOT_READ: &[&str] = &[".bin", "modules.symbols", "modules.order", "modules.devname", "modules.builtin.modinfo"];

/// What is in it. The live one has bash, too: the service's program for static networks is written for it.
pub(super) fn tree(cache: &Cache, manifest: &Manifest, kernel: &Kernel) -> Result<Rootfs, ImageError> {
    let mut packages_of_it = Rootfs::merged_usr();
    for package in manifest.packages("os-initrd")? {
        packages_of_it.add_tar(&packages::contents(cache, manifest, package)?)?;
    }
    let mut tree = Rootfs::new();
    match packages_of_it.find("bin/busybox").map(|node| &node.kind) {
        Some(FileKind::File(busybox)) => tree.file("bin/busybox", 0o755, busybox.bytes()?),
        _ => return Err(ImageError::Tree("the package busybox-static has no bin/busybox".to_owned())),
    }
    for name in BUSYBOX {
        tree.symlink(&format!("bin/{name}"), "busybox");
    }
    for name in IN_ROOT {
        tree.symlink(&format!("sbin/{name}"), "../bin/in-root");
    }
    for (name, mode, text) in files::INITRD {
        let path = match *name {
            "init" => "init".to_owned(),
            "in-root" => "bin/in-root".to_owned(),
            name => format!("lib/{name}"),
        };
        tree.file(&path, *mode, *text);
    }
    for folder in ["dev", "etc", "mnt", "proc", "run", "sys", "sysroot", "tmp"] {
        tree.directory(folder, 0o755);
    }
    for (path, bytes) in kernel.modules(Place::Initrd)? {
        if !NOT_READ.iter().any(|end| path.ends_with(end)) {
            tree.file(&path, 0o644, bytes);
        }
    }
    Ok(tree)
}

/// Bash, for the live initrd.
pub(super) fn bash(cache: &Cache, manifest: &Manifest, tree: &mut Rootfs) -> Result<(), ImageError> {
    for package in manifest.packages("os-initrd")? {
        let mut found = Rootfs::merged_usr();
        found.add_tar(&packages::contents(cache, manifest, package)?)?;
        if let Some(FileKind::File(bash)) = found.find("bin/bash-static").map(|node| &node.kind) {
            tree.file("bin/bash", 0o755, bash.bytes()?);
            return Ok(());
        }
    }
    Err(ImageError::Tree("the package bash-static has no bin/bash-static".to_owned()))
}

/// A tree as a part of an initrd: compressed, padded so that another archive can follow. Not lz4: the kernel takes nothing
/// behind an archive of that kind.
pub(super) fn packed(tree: &Rootfs) -> Result<Vec<u8>, ImageError> {
    let mut archive = Vec::new();
    cpio::write(tree, &mut archive)?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let failed = |error| ImageError::Io { path: "initrd".into(), error };
    gzip.write_all(&archive).map_err(failed)?;
    let mut bytes = gzip.finish().map_err(failed)?;
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rstest::rstest;

    use super::*;

    /// What `preset.awk` says of a unit that Ignition enables.
    #[rstest]
    #[case::one(
        "[Unit]\nAfter=a\n\n[Service]\nExecStart=/b\n\n[Install]\nWantedBy=multi-user.target\n",
        "link multi-user.target.wants a.service\n"
    )]
    #[case::several(
        "[Install]\n# why\nWantedBy = a.target  b.target\nRequiredBy=c.target",
        "link a.target.wants a.service\nlink b.target.wants a.service\nlink c.target.requires a.service\n"
    )]
    #[case::a_line_that_goes_on(
        "[Service]\nExecStart=/b \\\n[Install] \\\nWantedBy=no.target\n[Install]\nWantedBy=a.target\n",
        "link a.target.wants a.service\n"
    )]
    #[case::names_that_go_on("[Install]\nWantedBy=a.target \\\nb.target\n", "ask a.service\n")]
    #[case::another_key("[Install]\nWantedBy=a.target\nAlso=b.service\n", "ask a.service\n")]
    #[case::a_specifier("[Install]\nWantedBy=%i.target\n", "ask a.service\n")]
    #[case::nobody("[Service]\nExecStart=/b\nWantedBy=a.target\n", "ask a.service\n")]
    fn who_wants_a_unit(#[case] unit: &str, #[case] says: &str) {
        assert_eq!(presets("enable a.service\n", unit, ""), says);
    }

    #[rstest]
    #[case::who_wants_it("[Service]\nNice=1\n [Install]\nWantedBy=b.target\n", "ask a.service\n")]
    #[case::something_else("[Service]\nNice=1\n", "link a.target.wants a.service\n")]
    fn a_drop_in_may_say_more_of_it(#[case] drop_in: &str, #[case] says: &str) {
        assert_eq!(presets("enable a.service\n", "[Install]\nWantedBy=a.target\n", drop_in), says);
    }

    #[test]
    fn other_presets_are_for_systemctl() {
        let unit = "[Install]\nWantedBy=a.target\n";
        let asked = presets("# why\nenable b.service\ndisable a.service\nenable a@b.service\n", unit, "");
        assert_eq!(asked, "ask b.service\nask a.service\nask a@b.service\n");
    }

    /// What `preset.awk` says of these presets, where there is one unit `a.service`, with a file beside it.
    fn presets(presets: &str, unit: &str, drop_in: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a.service.d")).unwrap();
        let at = |name: &str| folder.path().join(name);
        let (_, _, program) = files::INITRD.iter().find(|(name, _, _)| *name == "preset.awk").unwrap();
        const DROP_IN: &str = "a.service.d/10.conf";
        for (name, text) in
            [("20-ignition.preset", presets), ("a.service", unit), (DROP_IN, drop_in), ("preset.awk", program)]
        {
            std::fs::write(at(name), text).unwrap();
        }
        let units = format!("units={}", folder.path().display());
        let dropins = format!("dropins=nothing.d/*.conf {}", at(DROP_IN).display());
        let mut awk = Command::new("awk");
        awk.args(["-v", &units, "-v", &dropins, "-f"]).arg(at("preset.awk")).arg(at("20-ignition.preset"));
        let out = awk.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    #[test]
    fn parts_of_an_initrd_can_follow_each_other() {
        let mut tree = Rootfs::new();
        tree.file("etc/a", 0o644, "a");
        let part = packed(&tree).unwrap();
        assert_eq!(part.len() % 4, 0);
        assert_eq!(&part[..2], b"\x1f\x8b");
        assert_eq!(part, packed(&tree).unwrap(), "no time in it");
    }
}
