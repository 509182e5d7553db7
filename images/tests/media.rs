//! The media for real: the real coreos-installer reads and changes them, they are as small as they should be, and the same
//! inputs give the same bytes. That machines boot from them, BIOS and UEFI, install themselves and come up from their disks, is
//! what the scenarios on virtual machines show.
//!
//! `cargo xtask test` builds the media before the tests. Without it the first of these tests does, from Debian packages and crates, for
//! minutes: `cargo xtask images lab` shows how far it is.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use vlab_images::cache::{Cache, sha256_file};
use vlab_images::manifest::Manifest;
use vlab_images::os::{ARTEFACTS, Builder, Made, current, named_installer, network_initrd};

fn say(what: &str) {
    eprintln!("building {what}");
}

fn make_in(cache: &Cache, name: &str) -> Made {
    let manifest = Manifest::built_in().unwrap();
    let builder = Builder {
        cache,
        manifest: &manifest,
        node: None,
        overlays: Vec::new(),
        coreos_installer: named_installer(),
        say: &say,
    };
    builder.make(name).unwrap()
}

fn make(name: &str) -> Made {
    current(name, &say).unwrap()
}

/// The coreos-installer that is on the ISO, run here.
fn installer() -> PathBuf {
    if let Some(named) = named_installer() {
        return named;
    }
    make("lab-disk");
    let programs = Cache::of_this_user().place("programs", "").unwrap();
    let mut found: Vec<PathBuf> = fs::read_dir(programs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("coreos-installer-"))
        .collect();
    found.sort();
    let program = found.pop().expect("the build left coreos-installer in the cache");
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

fn coreos(args: &[&str], iso: &Path) -> (bool, Vec<u8>) {
    let out = Command::new(installer()).args(args).arg(iso).stdin(Stdio::null()).output().unwrap();
    (out.status.success(), out.stdout)
}

fn must(args: &[&str], iso: &Path) -> String {
    let (ok, out) = coreos(args, iso);
    assert!(ok, "{args:?}");
    String::from_utf8(out).unwrap()
}

/// A configuration whose unit runs this program on the console, after the network is there.
fn config(program: &str, files: &[(&str, &str)]) -> String {
    let file = |path: &str, text: &str| {
        let hex: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        serde_json::json!({"path": path, "mode": 0o755, "overwrite": true, "contents": {"source": format!("data:,{hex}")}})
    };
    let mut all: Vec<serde_json::Value> = files.iter().map(|(path, text)| file(path, text)).collect();
    all.push(file("/opt/program", program));
    let unit = "[Unit]\nWants=network-online.target\nAfter=network-online.target\n[Service]\nType=oneshot\n\
                ExecStart=/opt/program\nStandardOutput=journal+console\nStandardError=journal+console\n\
                [Install]\nWantedBy=multi-user.target\n";
    serde_json::json!({
        "ignition": {"version": "3.1.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA test"]}]},
        "storage": {"files": all},
        "systemd": {"units": [{"name": "program.service", "enabled": true, "contents": unit}]},
    })
    .to_string()
}

#[test]
fn the_real_coreos_installer_takes_the_iso() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["lab-iso", "lab-minimal-iso"] {
        let iso = folder.path().join(name);
        let made = make(name);
        fs::copy(&made.path, &iso).unwrap();
        let default = must(&["iso", "kargs", "show"], &iso);
        assert!(default.contains("ignition.platform.id=metal"), "{default}");
        assert!(!coreos(&["iso", "ignition", "show"], &iso).0, "nothing is in it");
        let text = config("#!/bin/sh\n", &[]);
        let file = folder.path().join("config.ign");
        fs::write(&file, &text).unwrap();
        must(&["iso", "ignition", "embed", "-i", file.to_str().unwrap()], &iso);
        assert_eq!(must(&["iso", "ignition", "show"], &iso), text);
        must(&["iso", "kargs", "modify", "-a", "one=1", "-d", "quiet"], &iso);
        let changed = must(&["iso", "kargs", "show"], &iso);
        assert!(changed.contains("one=1") && !changed.contains("quiet"), "{changed}");
        must(&["iso", "kargs", "reset"], &iso);
        must(&["iso", "ignition", "remove"], &iso);
        assert_eq!(sha256_file(&iso).unwrap(), made.sha256, "as it was");
        let keyfile = folder.path().join("lab.nmconnection");
        fs::write(&keyfile, "[connection]\nid=lab\ntype=ethernet\n\n[ipv4]\nmethod=auto\n").unwrap();
        must(&["iso", "network", "embed", "-k", keyfile.to_str().unwrap()], &iso);
        assert!(must(&["iso", "network", "extract"], &iso).contains("id=lab"));
        must(&["iso", "reset"], &iso);
        assert_eq!(sha256_file(&iso).unwrap(), made.sha256, "as it was");
    }
    let initrd = make("lab-initrd").path;
    let file = folder.path().join("config.ign");
    let out = folder.path().join("initrd");
    must(&["pxe", "customize", "--live-ignition", file.to_str().unwrap(), "-o", out.to_str().unwrap()], &initrd);
    assert!(fs::metadata(&out).unwrap().len() > fs::metadata(&initrd).unwrap().len());
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let mine = Cache::of_this_user();
    let one: Vec<Made> = ARTEFACTS.iter().map(|artefact| make_in(&mine, artefact.name)).collect();
    for made in &one {
        let again = make_in(&mine, &made.name);
        assert!(again.cached && again.took < Duration::from_secs(1), "{}: {:?}", made.name, again.took);
        assert_eq!(sha256_file(&made.path).unwrap(), made.sha256);
    }
    // Elsewhere, with the same packages.
    let folder = tempfile::tempdir().unwrap();
    let other = Cache::at(folder.path());
    for part in ["packages", "contents", "programs"] {
        std::os::unix::fs::symlink(mine.root().join(part), folder.path().join(part)).unwrap();
    }
    for made in &one {
        let again = make_in(&other, &made.name);
        assert_ne!(again.path, made.path);
        assert_eq!(again.sha256, made.sha256, "{}", made.name);
    }
}

/// What `nmstatectl` in the nodes has coreos-installer do.
#[test]
fn coreos_installer_makes_network_files_of_a_state() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::write(at("base"), network_initrd().unwrap()).unwrap();
    let state = serde_json::json!({"interfaces": [{
        "name": "eth0", "type": "ethernet", "state": "up",
        "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "192.0.2.30", "prefix-length": 24}]},
    }]});
    fs::write(at("state.yml"), state.to_string()).unwrap();
    let (state, made, files) = (at("state.yml"), at("made"), at("files"));
    let [state, made, files] = [&state, &made, &files].map(|path| path.to_str().unwrap());
    must(&["pxe", "customize", "--network-nmstate", state, "-o", made], &at("base"));
    must(&["pxe", "network", "unwrap", "-C", files], &at("made"));
    let connection = fs::read_to_string(at("files").join("eth0.nmconnection")).unwrap();
    assert!(connection.contains("interface-name=eth0") && connection.contains("192.0.2.30/24"), "{connection}");
    assert!(connection.contains("\nuuid="), "{connection}");
}

#[test]
fn the_media_are_small() {
    let size = |name: &str| make(name).size;
    // A program of machines that is not optimised is larger.
    let more = if std::env::var_os("VLAB_BUILT").is_some() { 3_000_000 } else { 0 };
    // Of both, 5 MB are the signed boot loaders of UEFI.
    assert!(size("lab-iso") <= 124_000_000 + more, "{}", size("lab-iso"));
    assert!(size("lab-minimal-iso") <= 25_000_000, "{}", size("lab-minimal-iso"));
    // The root file system, and the rest of the disk image behind it.
    assert!(size("lab-rootfs") <= 101_500_000 + more, "{}", size("lab-rootfs"));
}
