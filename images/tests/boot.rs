//! The media for real: the real coreos-installer reads and changes the ISO; QEMU boots it, BIOS and UEFI, full and minimal; what
//! runs there installs itself on a disk with coreos-installer, and the machine comes up from that disk.
//!
//! These tests build the media (from Debian packages, the first time from the network) and take minutes, so they run only when
//! they are asked for, one after the other:
//!
//! ```console
//! $ cargo nextest run -p vlab-images --run-ignored only
//! ```
//!
//! They need what `cargo xtask setup` installs for images, `qemu-system-x86` and `ovmf`. The machines' network ends at QEMU.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vlab_images::cache::{Cache, sha256_file};
use vlab_images::manifest::Manifest;
use vlab_images::os::{ARTEFACTS, Builder, Made};

/// Budgets are for a machine of two busy cores without KVM; a quiet one needs a quarter of it.
const BOOT: Duration = Duration::from_secs(240);

/// `VLAB_COREOS_INSTALLER` names one that is built already.
fn named_installer() -> Option<PathBuf> {
    std::env::var_os("VLAB_COREOS_INSTALLER").map(PathBuf::from)
}

fn make_in(cache: &Cache, name: &str) -> Made {
    let manifest = Manifest::built_in().unwrap();
    let say = |what: &str| eprintln!("building {what}");
    let builder =
        Builder { cache, manifest: &manifest, overlays: Vec::new(), coreos_installer: named_installer(), say: &say };
    builder.make(name).unwrap()
}

fn make(name: &str) -> Made {
    make_in(&Cache::of_this_user(), name)
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

/// A machine.
struct Machine {
    child: Child,
    serial: PathBuf,
    begun: Instant,
}

impl Machine {
    fn start(folder: &Path, firmware: &str, iso: &Path, disk: &Path, net: &str) -> Self {
        let serial = folder.join("serial");
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-machine", "q35", "-accel", "tcg,tb-size=64", "-cpu", "max", "-m", "1024", "-nodefaults"])
            .args(["-display", "none", "-device", "virtio-rng-pci"])
            .arg("-serial")
            .arg(format!("file:{}", serial.display()))
            .arg("-drive")
            .arg(format!("if=none,id=disk,format=raw,cache=unsafe,file={}", disk.display()))
            .args(["-device", "virtio-blk-pci,drive=disk,bootindex=1"])
            .arg("-drive")
            .arg(format!("if=none,id=cd,media=cdrom,readonly=on,file={}", iso.display()))
            // An empty disk falls through to the disc.
            .args(["-device", "ide-cd,drive=cd,bootindex=2"])
            .args(["-netdev", net, "-device", "virtio-net-pci,netdev=n,romfile="])
            .stdin(Stdio::null());
        if firmware == "uefi" {
            let variables = folder.join("variables");
            fs::copy("/usr/share/OVMF/OVMF_VARS_4M.fd", &variables).expect("package ovmf");
            command
                .args(["-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd"])
                .arg("-drive")
                .arg(format!("if=pflash,format=raw,file={}", variables.display()));
        }
        Self { child: command.spawn().expect("package qemu-system-x86"), serial, begun: Instant::now() }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.serial).unwrap_or_default()).replace('\r', "")
    }

    /// Waits for a line of the console; ends with what was said when the machine gives up, or the time is over.
    fn wait_for(&mut self, line: &str) -> String {
        let begun = Instant::now();
        loop {
            let said = self.said();
            if let Some(found) = said.lines().find(|other| other.contains(line)) {
                eprintln!("{:6.1} s: {found}", self.begun.elapsed().as_secs_f64());
                return found.to_owned();
            }
            let tail: Vec<&str> = said.lines().rev().take(40).collect();
            let tail: String = tail.into_iter().rev().flat_map(|line| [line, "\n"]).collect();
            for bad in ["FAILED", "Kernel panic", "emergency"] {
                assert!(!tail.contains(bad), "{bad} before {line}:\n{tail}");
            }
            assert!(self.child.try_wait().unwrap().is_none(), "the machine is off before {line}:\n{tail}");
            assert!(begun.elapsed() < BOOT, "no {line} after {BOOT:?}:\n{tail}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves one file over HTTP on loopback; returns the port.
fn serve(file: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let bytes = fs::read(&file).unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", bytes.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes));
        }
    });
    port
}

/// The kernel's log is on the console for errors (3) only.
const ON_DISK: &str = "#!/bin/bash
echo \"<3>VLAB-DISK first=$(grep -c ignition.firstboot /proc/cmdline) appended=$(grep -c vlab.appended=1 /proc/cmdline) \\
quiet=$(grep -cw quiet /proc/cmdline) size=$(df --output=size -BM / | tail -1 | tr -d ' ') \\
file=$(cat /opt/file) keyfile=$(ls /etc/NetworkManager/system-connections) \\
left=$(ls /boot/ignition /boot/ignition.firstboot 2>/dev/null | wc -l) key=$(grep -rc AAAA /home/core/.ssh | head -1) \\
failed=$(systemctl --failed --no-legend | wc -l)\" > /dev/kmsg
";

/// From the medium to a disk and up again.
fn install(firmware: &str, minimal: bool) {
    let folder = tempfile::tempdir().unwrap();
    let iso = folder.path().join("iso");
    fs::copy(make(if minimal { "lab-minimal-iso" } else { "lab-iso" }).path, &iso).unwrap();
    let on_disk = config(ON_DISK, &[("/opt/file", "written")]);
    let live = "#!/bin/bash
echo \"<3>VLAB-LIVE addresses=$(ip -o -4 addr show scope global | wc -l) failed=$(systemctl --failed --no-legend | wc -l)\" > /dev/kmsg
until [ -s /run/coreos-installer/osmet/vlab-metal.x86_64.osmet ]; do sleep 0.2; done
printf '[connection]\\nid=lab\\ntype=ethernet\\n\\n[ipv4]\\nmethod=auto\\n' \\
    > /etc/NetworkManager/system-connections/lab.nmconnection
chmod 600 /etc/NetworkManager/system-connections/lab.nmconnection
coreos-installer install /dev/vda --offline --ignition-file /opt/disk.ign --append-karg vlab.appended=1 --delete-karg quiet \\
    --copy-network > /tmp/log 2>&1 || { tail -5 /tmp/log | sed 's/^/<3>VLAB install FAILED: /' > /dev/kmsg; exit 1; }
echo '<3>VLAB-WRITTEN' > /dev/kmsg
systemctl --no-block reboot
";
    let config_file = folder.path().join("config.ign");
    fs::write(&config_file, config(live, &[("/opt/disk.ign", &on_disk)])).unwrap();
    must(&["iso", "ignition", "embed", "-f", "-i", config_file.to_str().unwrap()], &iso);
    let mut net = "user,id=n,restrict=on".to_owned();
    if minimal {
        let port = serve(make("lab-rootfs").path);
        net += &format!(",guestfwd=tcp:10.0.2.100:80-tcp:127.0.0.1:{port}");
        must(&["iso", "kargs", "modify", "-a", "coreos.live.rootfs_url=http://10.0.2.100/rootfs.img"], &iso);
    }
    let disk = folder.path().join("disk");
    fs::File::create(&disk).unwrap().set_len(4 << 30).unwrap();
    let mut machine = Machine::start(folder.path(), firmware, &iso, &disk, &net);
    let live = machine.wait_for("VLAB-LIVE");
    assert!(live.contains("addresses=1 failed=0"), "{live}");
    machine.wait_for("VLAB-WRITTEN");
    let up = machine.wait_for("VLAB-DISK");
    for fact in ["first=1", "appended=1", "quiet=0", "file=written", "keyfile=lab.nmconnection", "left=0", "failed=0"] {
        assert!(up.contains(fact), "{fact}: {up}");
    }
    let size: u64 = up.split("size=").nth(1).unwrap().split('M').next().unwrap().parse().unwrap();
    assert!(size > 3000, "the root file system has grown with the disk: {up}");
}

#[test]
#[ignore = "boots a machine: minutes"]
fn full_iso_on_bios_installs_a_disk_that_boots() {
    install("bios", false);
}

#[test]
#[ignore = "boots a machine: minutes"]
fn minimal_iso_on_uefi_installs_a_disk_that_boots() {
    install("uefi", true);
}

#[test]
#[ignore = "builds the media: minutes"]
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
#[ignore = "builds the media twice: minutes"]
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

#[test]
#[ignore = "builds the media: minutes"]
fn the_media_are_small() {
    let size = |name: &str| make(name).size;
    assert!(size("lab-iso") <= 120_000_000, "{}", size("lab-iso"));
    assert!(size("lab-minimal-iso") <= 20_000_000, "{}", size("lab-minimal-iso"));
    // The root file system, and the rest of the disk image behind it.
    assert!(size("lab-rootfs") <= 100_000_000, "{}", size("lab-rootfs"));
}
