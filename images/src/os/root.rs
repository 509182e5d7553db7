//! The root file system of the lab OS: packages, less what no machine of the lab reads, files of ours, and what scripts of
//! packages would do if they ran.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::files;
use super::kernel::{Kernel, Place};
use crate::cache::{Cache, sha256_file};
use crate::manifest::Manifest;
use crate::rootfs::{FileKind, Node, Rootfs};
use crate::{ImageError, archive, cpio, packages, tools};

/// Folders that no package brings; mode, owner and group.
const FOLDERS: &[(&str, u32, u64, u64)] = &[
    ("boot", 0o755, 0, 0),
    ("dev", 0o755, 0, 0),
    ("etc/NetworkManager/system-connections", 0o700, 0, 0),
    ("etc/pki/ca-trust/source/anchors", 0o755, 0, 0),
    ("home/core", 0o700, 1000, 1000),
    ("mnt", 0o755, 0, 0),
    ("opt", 0o755, 0, 0),
    ("proc", 0o555, 0, 0),
    ("root", 0o700, 0, 0),
    ("run", 0o755, 0, 0),
    ("srv", 0o755, 0, 0),
    ("sys", 0o555, 0, 0),
    ("sysroot", 0o755, 0, 0),
    ("tmp", 0o1777, 0, 0),
    ("usr/local/bin", 0o755, 0, 0),
    ("usr/local/sbin", 0o755, 0, 0),
    ("var/cache", 0o755, 0, 0),
    ("var/lib/chrony", 0o750, 102, 102),
    ("var/lib/etcd", 0o700, 105, 105),
    ("var/lib/haproxy", 0o755, 104, 104),
    ("var/log", 0o755, 0, 0),
    ("var/log/chrony", 0o755, 102, 102),
    ("var/spool", 0o755, 0, 0),
    ("var/tmp", 0o1777, 0, 0),
];

/// Certificates of authorities: one file for programs of Debian, the same under the name that Red Hat's have.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// Programs that no package brings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Programs<'a> {
    /// coreos-installer.
    pub(super) installer: &'a Path,
    /// `vlab-node`; the names under which it is called are in `links.txt`.
    pub(super) node: &'a Path,
}

/// The tree.
pub(super) fn tree(
    cache: &Cache,
    manifest: &Manifest,
    kernel: &Kernel,
    programs: Programs<'_>,
    overlays: &[PathBuf],
) -> Result<Rootfs, ImageError> {
    let mut tree = Rootfs::merged_usr();
    for package in manifest.packages("os")? {
        tree.add_tar(&packages::contents(cache, manifest, package)?)?;
    }
    authorities(&mut tree)?;
    prune(&mut tree);
    for (path, bytes) in kernel.modules(Place::Root)? {
        tree.file(&path, 0o644, bytes);
    }
    for (path, mode, uid, gid) in FOLDERS {
        tree.put(path, Node { mode: *mode, uid: *uid, gid: *gid, kind: FileKind::Directory });
    }
    tree.symlink("var/run", "/run");
    tree.symlink("var/lock", "/run/lock");
    for (path, mode, text) in files::ROOT {
        tree.file(path, *mode, *text);
    }
    for path in ["etc/shadow", "etc/gshadow"] {
        tree.chown(path, 0, 42)?;
    }
    // Empty: the initrd gives each machine its own.
    tree.file("etc/machine-id", 0o644, "");
    tree.file_from("usr/bin/coreos-installer", 0o755, programs.installer)?;
    tree.file_from("usr/lib/vlab/vlab-node", 0o755, programs.node)?;
    tree.file("usr/lib/vlab/network-initrd.img", 0o644, network_initrd()?);
    for unit in files::lines(files::MASK) {
        tree.symlink(&format!("etc/systemd/system/{unit}"), "/dev/null");
        // Who wants it would have systemd look at it at every boot.
        let wanted: Vec<String> = tree
            .iter()
            .map(|(path, _)| path)
            .filter(|path| path.starts_with("usr/lib/systemd/system/") && path.ends_with(&format!(".wants/{unit}")))
            .map(str::to_owned)
            .collect();
        for path in wanted {
            tree.remove(&path);
        }
    }
    let generators: Vec<String> = tree
        .iter()
        .filter_map(|(path, _)| path.strip_prefix("usr/lib/systemd/system-generators/"))
        .map(str::to_owned)
        .collect();
    for generator in generators {
        tree.symlink(&format!("etc/systemd/system-generators/{generator}"), "/dev/null");
    }
    for line in files::lines(files::LINKS) {
        let (link, to) = line
            .split_once(' ')
            .ok_or_else(|| ImageError::Tree(format!("links.txt: not a link and what it points to: {line}")))?;
        tree.symlink(link, to);
        if tree.find(link).is_none() {
            return Err(ImageError::Tree(format!("links.txt: {link} points to {to}, which is not in the lab OS")));
        }
    }
    for overlay in overlays {
        lay_over(&mut tree, overlay, overlay)?;
    }
    drop_ins(&tree)?;
    libraries(&tree)?;
    Ok(tree)
}

/// Sees that the services exist for which there are drop-ins: systemd says nothing about those of no unit.
fn drop_ins(tree: &Rootfs) -> Result<(), ImageError> {
    for (path, _) in tree.iter() {
        let unit =
            path.strip_prefix("etc/systemd/system/").and_then(|path| path.split_once(".d/")).map(|(unit, _)| unit);
        let Some(unit) = unit.filter(|unit| unit.ends_with(".service")) else { continue };
        if ["etc", "usr/lib"].iter().all(|place| tree.find(&format!("{place}/systemd/system/{unit}")).is_none()) {
            return Err(ImageError::Tree(format!("{path}: there is no unit {unit} in the lab OS")));
        }
    }
    Ok(())
}

/// What `update-ca-certificates` does.
fn authorities(tree: &mut Rootfs) -> Result<(), ImageError> {
    let mut all = Vec::new();
    for (path, node) in tree.iter() {
        if let FileKind::File(content) = &node.kind
            && path.starts_with("usr/share/ca-certificates/")
            && path.ends_with(".crt")
        {
            all.extend(content.bytes()?);
        }
    }
    if all.is_empty() {
        return Err(ImageError::Tree("the packages bring no certificates of authorities".to_owned()));
    }
    tree.remove("usr/share/ca-certificates");
    tree.file(AUTHORITIES, 0o644, all);
    tree.symlink("etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", &format!("/{AUTHORITIES}"));
    Ok(())
}

/// Removes what [`files::PRUNE`] names.
fn prune(tree: &mut Rootfs) {
    let patterns: Vec<&str> = files::lines(files::PRUNE).collect();
    let gone: Vec<String> = tree
        .iter()
        .filter(|(path, _)| patterns.iter().any(|pattern| matches(pattern, path)))
        .map(|(path, _)| path.to_owned())
        .collect();
    for path in gone {
        tree.remove(&path);
    }
}

/// Is it this path? A `*` in the last part of a pattern stands for any text.
fn matches(pattern: &str, path: &str) -> bool {
    let mut patterns = pattern.split('/');
    let mut parts = path.split('/');
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(part)) => {
                let fits = match pattern.split_once('*') {
                    None => pattern == part,
                    Some((start, end)) => {
                        part.len() >= start.len() + end.len() && part.starts_with(start) && part.ends_with(end)
                    }
                };
                if !fits {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

/// Puts the files of a folder over the tree: all belong to root, what can be run can be run.
fn lay_over(tree: &mut Rootfs, root: &Path, folder: &Path) -> Result<(), ImageError> {
    for (path, source) in listed(root, folder)? {
        let meta = fs::symlink_metadata(&source).map_err(ImageError::io(&source))?;
        if meta.is_symlink() {
            let to = fs::read_link(&source).map_err(ImageError::io(&source))?;
            tree.symlink(&path, &to.to_string_lossy());
        } else {
            tree.file_from(&path, if executable(&meta) { 0o755 } else { 0o644 }, &source)?;
        }
    }
    Ok(())
}

fn executable(meta: &fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o100 != 0
}

/// Files and links below a folder: path from `root`, and where it is; in the order of their paths.
fn listed(root: &Path, folder: &Path) -> Result<Vec<(String, PathBuf)>, ImageError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(ImageError::io(folder))? {
        let path = entry.map_err(ImageError::io(folder))?.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(listed(root, &path)?);
        } else {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            found.push((name, path));
        }
    }
    found.sort();
    Ok(found)
}

/// What an overlay is, for checksums.
pub(super) fn overlay_content(overlay: &Path) -> Result<String, ImageError> {
    let mut all = String::new();
    for (path, source) in listed(overlay, overlay)? {
        let meta = fs::symlink_metadata(&source).map_err(ImageError::io(&source))?;
        let what = if meta.is_symlink() {
            format!("-> {}", fs::read_link(&source).map_err(ImageError::io(&source))?.display())
        } else {
            format!("{} {}", executable(&meta), sha256_file(&source)?)
        };
        all += &format!("{path} {what}\n");
    }
    Ok(all)
}

/// Sees that every program of the tree finds its libraries in the tree: packages that were left out are found here, and not
/// on a machine that does not boot.
fn libraries(tree: &Rootfs) -> Result<(), ImageError> {
    let there: std::collections::BTreeSet<&str> =
        tree.iter().filter_map(|(path, _)| path.strip_prefix("usr/lib").and(path.rsplit('/').next())).collect();
    let mut missing = Vec::new();
    for (path, node) in tree.iter() {
        let FileKind::File(content) = &node.kind else { continue };
        if node.mode & 0o111 == 0 && !path.contains(".so") {
            continue;
        }
        for library in super::elf::needed(&content.bytes()?) {
            if !there.contains(library.as_str()) {
                missing.push(format!("{path} needs {library}"));
            }
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(ImageError::Tree(format!(
            "libraries that are not in the lab OS (take their packages into images.yaml, or the programs out in \
             images/os/prune.txt):\n  {}",
            missing.join("\n  ")
        ))),
    }
}

/// The tree as a squashfs.
pub(super) fn squashfs(tree: &Rootfs, into: &Path) -> Result<(), ImageError> {
    let mut command = tools::command("mksquashfs")?;
    // The program would add to a file that is there.
    let _ = fs::remove_file(into);
    // Level 9: a quarter of the time of its default (15), and 3 % larger. Without fragments (blocks that several small files share):
    // which files are found to be alike in those depends on how fast its threads are, so that the same tree gives other bytes now
    // and then (mksquashfs 4.5.1, with one processor too).
    command
        .arg("-")
        .arg(into)
        .args([
            "-tar",
            "-comp",
            "zstd",
            "-Xcompression-level",
            "9",
            "-b",
            "256K",
            "-no-xattrs",
            "-no-fragments",
            "-quiet",
            "-no-progress",
        ])
        .args(["-root-mode", "755", "-root-uid", "0", "-root-gid", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let failed = |error| ImageError::Io { path: into.to_owned(), error };
    let mut child = command.spawn().map_err(failed)?;
    let written = match child.stdin.take() {
        Some(stdin) => archive::write(tree, std::io::BufWriter::with_capacity(1 << 20, stdin)),
        None => Ok(()),
    };
    let out = child.wait_with_output().map_err(failed)?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        return Err(ImageError::Program {
            program: "mksquashfs".to_owned(),
            problem: format!("{}: {said}", out.status),
        });
    }
    written
}

/// The smallest initrd in which coreos-installer puts network files: the nodes' `nmstatectl` has it make them of a state.
pub fn network_initrd() -> Result<Vec<u8>, ImageError> {
    let mut tree = Rootfs::new();
    tree.file("etc/coreos-live-initramfs", 0o644, "");
    tree.file("etc/coreos/features.json", 0o644, r#"{"live-initrd-network": true}"#);
    let mut bytes = Vec::new();
    cpio::write(&tree, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("usr/share/doc", "usr/share/doc", true)]
    #[case("usr/share/doc", "usr/share/doc-base", false)]
    #[case("usr/share/doc", "usr/share", false)]
    #[case("usr/lib/x86_64-linux-gnu/perl*", "usr/lib/x86_64-linux-gnu/perl-base", true)]
    #[case("etc/rc*.d", "etc/rc3.d", true)]
    #[case("etc/rc*.d", "etc/rc.local", false)]
    #[case("etc/rc*.d", "etc/x/rc3.d", false)]
    fn patterns(#[case] pattern: &str, #[case] path: &str, #[case] is: bool) {
        assert_eq!(matches(pattern, path), is);
    }

    #[test]
    fn an_overlay_belongs_to_root_and_has_a_checksum() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("usr/lib/vlab/images/agent/usr/bin/agent");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, "agent").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("agent", program.with_file_name("link")).unwrap();
        let mut tree = Rootfs::merged_usr();
        lay_over(&mut tree, folder.path(), folder.path()).unwrap();
        let node = tree.find("usr/lib/vlab/images/agent/usr/bin/link").unwrap();
        assert_eq!((node.mode, node.uid, node.gid), (0o755, 0, 0));
        let before = overlay_content(folder.path()).unwrap();
        fs::write(&program, "other").unwrap();
        assert_ne!(overlay_content(folder.path()).unwrap(), before);
        assert!(overlay_content(&folder.path().join("nowhere")).is_err());
    }

    #[test]
    fn a_drop_in_without_its_service_is_found() {
        let mut tree = Rootfs::merged_usr();
        tree.file("etc/systemd/system/ssh.service.d/vlab.conf", 0o644, "");
        // Mounts come and go while the system runs.
        tree.file("etc/systemd/system/run-media-iso.mount.d/vlab.conf", 0o644, "");
        assert!(drop_ins(&tree).unwrap_err().to_string().contains("there is no unit ssh.service"));
        tree.file("usr/lib/systemd/system/ssh.service", 0o644, "");
        drop_ins(&tree).unwrap();
    }

    #[test]
    fn a_program_without_its_library_is_found() {
        let Ok(program) = fs::read("/proc/self/exe") else { return };
        let mut tree = Rootfs::merged_usr();
        tree.file("usr/bin/test", 0o755, program);
        let error = libraries(&tree).unwrap_err().to_string();
        assert!(error.contains("usr/bin/test needs libc.so.6"), "{error}");
        for name in super::super::elf::needed(&fs::read("/proc/self/exe").unwrap()) {
            tree.file(&format!("usr/lib/x86_64-linux-gnu/{name}"), 0o644, "not a library");
        }
        libraries(&tree).unwrap();
    }
}
