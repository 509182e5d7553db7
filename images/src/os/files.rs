//! The files of ours that go into the lab OS: `images/os/root` is the root of it, `images/os/initrd` has the programs of the
//! initrd. They are part of the program, so that it builds without the sources.

/// A file: where it goes, its mode, what is in it.
pub(super) type Row = (&'static str, u32, &'static str);

macro_rules! rows {
    ($folder:literal: $($path:literal $mode:literal,)*) => {
        &[$(($path, $mode, include_str!(concat!("../../os/", $folder, "/", $path))),)*]
    };
}

/// Below `/`.
pub(super) const ROOT: &[Row] = rows![ "root":
    "etc/NetworkManager/NetworkManager.conf" 0o644,
    "etc/chrony.conf" 0o644,
    "etc/fstab" 0o644,
    "etc/group" 0o644,
    "etc/gshadow" 0o640,
    "etc/hosts" 0o644,
    "etc/issue" 0o644,
    "etc/nsswitch.conf" 0o644,
    "etc/os-release" 0o644,
    "etc/pam.d/common-account" 0o644,
    "etc/pam.d/common-auth" 0o644,
    "etc/pam.d/common-password" 0o644,
    "etc/pam.d/common-session" 0o644,
    "etc/pam.d/common-session-noninteractive" 0o644,
    "etc/pam.d/login" 0o644,
    "etc/pam.d/other" 0o644,
    "etc/pam.d/sshd" 0o644,
    "etc/pam.d/su" 0o644,
    "etc/pam.d/sudo" 0o644,
    "etc/passwd" 0o644,
    "etc/profile" 0o644,
    "etc/selinux/config" 0o644,
    "etc/shadow" 0o640,
    "etc/shells" 0o644,
    "etc/ssh/sshd_config" 0o644,
    "etc/sudoers.d/core" 0o440,
    "etc/systemd/journald.conf.d/vlab.conf" 0o644,
    "etc/systemd/system.conf.d/vlab.conf" 0o644,
    "etc/systemd/system/NetworkManager-wait-online.service.d/vlab.conf" 0o644,
    "etc/systemd/system/NetworkManager.service.d/vlab.conf" 0o644,
    "etc/systemd/system/chronyd.service" 0o644,
    "etc/systemd/system/multipathd.service.d/vlab.conf" 0o644,
    "etc/systemd/system/run-media-iso.mount.d/vlab.conf" 0o644,
    "etc/systemd/system/serial-getty@.service.d/vlab.conf" 0o644,
    "etc/systemd/system/ssh.service.d/vlab.conf" 0o644,
    "etc/systemd/system/systemd-journald.service.d/vlab.conf" 0o644,
    "etc/systemd/system/systemd-tmpfiles-setup.service.d/vlab.conf" 0o644,
    "etc/systemd/system/systemd-udev-trigger.service.d/vlab.conf" 0o644,
    "etc/systemd/system/systemd-udevd.service.d/vlab.conf" 0o644,
    "etc/udev/rules.d/99-vlab-medium.rules" 0o644,
    "usr/lib/systemd/system-preset/99-default.preset" 0o644,
    "usr/lib/systemd/system/coreos-osmet.service" 0o644,
    "usr/lib/systemd/system/multipathd.service" 0o644,
    "usr/lib/systemd/system/vlab-ibft.service" 0o644,
    "usr/lib/systemd/system/vlab-modules.service" 0o644,
    "usr/lib/systemd/system/vlab-ssh-key.service" 0o644,
    "usr/libexec/vlab/no-selinux" 0o755,
    "usr/libexec/vlab/offer-disk-image" 0o755,
];

/// Of the initrd; where they go there is said in `initrd.rs`.
pub(super) const INITRD: &[Row] = rows![ "initrd":
    "dhcp-event" 0o755,
    "grow.sh" 0o644,
    "ignition.sh" 0o644,
    "in-root" 0o755,
    "init" 0o755,
    "network.sh" 0o644,
    "preset.awk" 0o644,
];

/// Lists: a word, or several, a line; `#` begins a comment line.
pub(super) const LINKS: &str = include_str!("../../os/links.txt");
pub(super) const MASK: &str = include_str!("../../os/mask.txt");
pub(super) const MODULES: &str = include_str!("../../os/modules.txt");
pub(super) const PRUNE: &str = include_str!("../../os/prune.txt");

/// The lines of a list.
pub(super) fn lines(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Files and lists as one text, for checksums.
pub(super) fn content(rows: &[Row], lists: &[&str]) -> String {
    let mut all = String::new();
    for (path, mode, text) in rows {
        all += &format!("{path} {mode:o} {}\n", crate::cache::sha256(text.as_bytes()));
    }
    for list in lists {
        all += &format!("{}\n", crate::cache::sha256(list.as_bytes()));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;

    fn on_disk(folder: &Path, below: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                on_disk(&path, below, found);
            } else {
                found.insert(path.strip_prefix(below).unwrap().display().to_string());
            }
        }
    }

    #[test]
    fn every_file_of_the_folders_is_in_the_tables() {
        let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("os");
        for (name, rows) in [("root", ROOT), ("initrd", INITRD)] {
            let mut found = BTreeSet::new();
            on_disk(&sources.join(name), &sources.join(name), &mut found);
            let listed: BTreeSet<String> = rows.iter().map(|(path, ..)| (*path).to_owned()).collect();
            assert_eq!(listed, found, "{name}");
            for (path, mode, _) in rows {
                let is = std::fs::metadata(sources.join(name).join(path)).unwrap().permissions().mode();
                assert_eq!(is & 0o111 != 0, mode & 0o111 != 0, "{path}: can it be run?");
            }
        }
    }

    #[test]
    fn shell_programs_are_shell() {
        for (path, _, text) in ROOT.iter().chain(INITRD) {
            let shell = match text.lines().next() {
                Some("#!/bin/bash") => "bash",
                Some("#!/bin/sh") => "sh",
                _ if path.ends_with(".sh") => "sh",
                _ => continue,
            };
            let folder = if INITRD.iter().any(|(other, ..)| other == path) { "initrd" } else { "root" };
            let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("os").join(folder).join(path);
            let out = Command::new(shell).arg("-n").arg(file).output().unwrap();
            assert!(out.status.success(), "{path}: {}", String::from_utf8_lossy(&out.stderr));
        }
    }

    #[test]
    fn every_user_has_a_group_and_a_line_in_shadow() {
        let column = |path: &str, number: usize| -> Vec<&str> {
            let (.., text) = ROOT.iter().find(|(p, ..)| *p == path).unwrap();
            text.lines().map(|line| line.split(':').nth(number).unwrap()).collect()
        };
        assert_eq!(column("etc/passwd", 0), column("etc/shadow", 0));
        assert_eq!(column("etc/group", 0), column("etc/gshadow", 0));
        let groups = column("etc/group", 2);
        for gid in column("etc/passwd", 3) {
            assert!(groups.contains(&gid), "group {gid}");
        }
        for path in ["etc/passwd", "etc/group"] {
            let numbers = column(path, 2);
            assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len(), "{path}: a number twice");
        }
    }
}
