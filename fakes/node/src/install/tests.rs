//! The installer's hands, with programs that stand in for coreos-installer and systemctl.

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex as StdMutex;

use rstest::rstest;

use super::*;

#[test]
fn percentages_of_coreos_installer() {
    let mut progress = Progress::new(5);
    let output = "Downloading\r> Read disk 1.0 MiB/119.0 MiB (0%)   \r> Read disk 7.0 MiB/119.0 MiB (6%)   \r> Read disk 8.0 MiB/119.0 MiB (7%)   \r> Read di";
    assert_eq!(progress.read(output), [6]);
    assert_eq!(
        progress
            .read("sk 60.0 MiB/119.0 MiB (50%)\r> Read disk 119.0 MiB/119.0 MiB (100%)\r\nWriting Ignition config\n"),
        [50, 100]
    );
    assert_eq!(progress.last_words(), "Downloading; Writing Ignition config");
}

#[rstest]
#[case("(42%)", Some(42))]
#[case("> Read disk 7.0 MiB/119.0 MiB (101%)", None)]
#[case("100%", None)]
fn percentages(#[case] line: &str, #[case] expected: Option<u32>) {
    assert_eq!(percentage(line), expected);
}

struct Machine {
    folder: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
    hand: Hand,
}

fn machine(role: HostRole, control_plane_count: i64) -> Machine {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let request: InstallCmdRequest = serde_json::from_value(json!({
        "cluster_id": Uuid::from_u128(1), "infra_env_id": Uuid::from_u128(2), "host_id": Uuid::from_u128(3), "role": role,
        "boot_device": "/dev/vda", "controller_image": "", "installer_image": "", "control_plane_count": control_plane_count,
        "disks_to_format": ["/dev/vdb", "/dev/gone"], "installer_args": "[\"--append-karg\", \"a=b\"]",
    }))
    .unwrap();
    fs::create_dir(folder.path().join("dev")).unwrap();
    fs::write(folder.path().join("dev/vda"), [1u8; 1024]).unwrap();
    fs::write(folder.path().join("dev/vdb"), [1u8; 1024]).unwrap();
    let hand = Hand {
        root: Root::at(folder.path()),
        config: NodeConfig { os_image: Some("/images/os.img".into()), ..NodeConfig::default() },
        request,
        url: "http://192.0.2.1".into(),
        domain: "net.lab.test".into(),
        api_vips: vec!["192.0.2.100".into()],
        ingress_vips: vec![],
        files: Mutex::default(),
        runtime: runtime.handle().clone(),
    };
    Machine { folder, _runtime: runtime, hand }
}

impl Machine {
    fn got(&self, name: &'static str, bytes: &[u8]) {
        self.hand.files.lock().unwrap().insert(name, bytes.to_vec());
    }

    fn program(&mut self, name: &str, script: &str) {
        let path = self.folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self.hand.config.programs.insert(name.into(), path);
    }

    fn job(&self, job: Job) -> Result<Vec<u8>, String> {
        self.hand.job(job, &|_| {})
    }
}

const EMPTY: &[u8] = br#"{"ignition":{"version":"3.2.0"}}"#;

#[test]
fn only_the_beginning_of_a_disk_is_cleared_and_a_missing_one_is_no_failure() {
    let machine = machine(HostRole::Master, 3);
    machine.job(Job::CleanDisks).unwrap();
    let disk = fs::read(machine.folder.path().join("dev/vdb")).unwrap();
    assert_eq!((&disk[..512], &disk[512..]), (&[0u8; 512][..], &[1u8; 512][..]));
}

#[test]
fn the_bootstrap_is_laid_out_and_bootkube_started() {
    let mut machine = machine(HostRole::Bootstrap, 3);
    assert_eq!(machine.job(Job::PrepareBootstrap).unwrap_err(), "bootstrap.ign was not downloaded");
    machine.got("bootstrap.ign", b"data");
    assert!(
        machine.job(Job::PrepareBootstrap).unwrap_err().starts_with("bootstrap.ign: this is not an Ignition config")
    );
    let users = r#""passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}"#;
    machine.got("bootstrap.ign", format!(r#"{{"ignition":{{"version":"3.2.0"}},{users}}}"#).as_bytes());
    machine.job(Job::PrepareBootstrap).unwrap();
    let root = Root::at(machine.folder.path());
    assert!(root.text("/etc/systemd/system/bootkube.service").unwrap().contains("vlab-bootstrap"), "the lab's own");
    let facts = crate::cluster::facts::ClusterFacts::read(&root.path(SERVICE_FILE)).unwrap();
    assert_eq!((facts.domain.as_str(), facts.control_plane_count, facts.api_vips.len()), ("net.lab.test", 3, 1));
    assert_eq!(
        facts.users[0]["sshAuthorizedKeys"][0], "ssh-ed25519 AAAA",
        "every node lets in whom the cluster lets in"
    );
    let calls = machine.folder.path().join("calls");
    machine.program("systemctl", &format!("echo $@ >> {}", calls.display()));
    machine.job(Job::StartBootkube).unwrap();
    assert_eq!(fs::read_to_string(calls).unwrap(), "daemon-reload\nstart --no-block bootkube.service\n");
    machine.program("systemctl", "exit 3");
    assert!(machine.job(Job::StartBootkube).unwrap_err().contains("exit status: 3"));
}

#[test]
fn a_single_node_s_ignition_is_that_of_its_bootstrap_too() {
    let machine = machine(HostRole::Bootstrap, 1);
    machine.got("host.ign", b"data");
    assert!(machine.job(Job::PrepareIgnition).unwrap_err().starts_with("/opt/openshift/master.ign: "));
    fs::create_dir_all(machine.folder.path().join("opt/openshift")).unwrap();
    let own = ignition::put(EMPTY, vec![ignition::file("/etc/a", 0o644, b"a")], vec![]).unwrap();
    fs::write(machine.folder.path().join("opt/openshift/master.ign"), &own).unwrap();
    machine.job(Job::PrepareIgnition).unwrap();
    machine.got("host.ign", &ignition::put(EMPTY, vec![ignition::file("/etc/hostname", 0o644, b"n")], vec![]).unwrap());
    machine.job(Job::PrepareIgnition).unwrap();
    let written = fs::read(machine.hand.root.path(&machine.hand.host_ignition_path())).unwrap();
    let paths: Vec<_> = ignition::layout(&written).unwrap().files.into_iter().map(|f| f.path).collect();
    // The last one tells the installed system that it was the bootstrap.
    assert_eq!(paths, ["/etc/hostname", "/etc/a", "/etc/vlab/was-bootstrap"]);
    assert!(machine.hand.host_ignition_path().ends_with("/master-00000000-0000-0000-0000-000000000003.ign"));
}

/// It has no bootstrap of its own, and nothing lies there.
#[test]
fn a_worker_of_a_single_node_s_cluster_has_the_service_s_ignition_alone() {
    let machine = machine(HostRole::Worker, 1);
    machine.got("host.ign", EMPTY);
    machine.job(Job::PrepareIgnition).unwrap();
    let written = fs::read(machine.hand.root.path(&machine.hand.host_ignition_path())).unwrap();
    assert!(ignition::layout(&written).unwrap().files.is_empty());
}

#[test]
fn a_host_ignition_that_is_none_is_not_written_to_a_disk() {
    let machine = machine(HostRole::Worker, 3);
    machine.got("host.ign", b"data");
    assert!(
        machine
            .job(Job::PrepareIgnition)
            .unwrap_err()
            .starts_with("the host's ignition: this is not an Ignition config")
    );
}

#[test]
fn the_disk_is_written_by_coreos_installer_and_its_progress_told() {
    let mut machine = machine(HostRole::Master, 3);
    machine.got("host.ign", EMPTY);
    machine.job(Job::PrepareIgnition).unwrap();
    let calls = machine.folder.path().join("calls");
    let script = format!("echo $@ > {}\nprintf '> Read disk (10%%)\\r> Read disk (100%%)\\r\\n' >&2", calls.display());
    machine.program("coreos-installer", &script);
    let told = StdMutex::new(Vec::new());
    machine.hand.job(Job::WriteImage, &|p| told.lock().unwrap().push(p)).unwrap();
    assert_eq!(*told.lock().unwrap(), [10, 100]);
    let root = machine.folder.path().display();
    let ign = format!("{root}/opt/install-dir/master-00000000-0000-0000-0000-000000000003.ign");
    let expected =
        format!("install --insecure -i {ign} --image-file /images/os.img --append-karg a=b {root}/dev/vda\n");
    assert_eq!(fs::read_to_string(calls).unwrap(), expected);
}

/// A machine without an image of its own: coreos-installer takes what the live system offers, and never asks the internet.
#[test]
fn an_installation_that_comes_before_the_image_is_offered_waits() {
    let mut machine = machine(HostRole::Master, 3);
    machine.hand.config.os_image = None;
    machine.got("host.ign", EMPTY);
    machine.job(Job::PrepareIgnition).unwrap();
    let root = machine.folder.path().to_owned();
    fs::create_dir_all(root.join("run/vlab")).unwrap();
    fs::write(root.join("run/vlab/rootfs.img"), "").unwrap();
    let (calls, osmet) = (root.join("calls"), root.join("run/coreos-installer/osmet"));
    // It says whether the image was there when it was called.
    machine.program("coreos-installer", &format!("echo $@ > {}; ls {} >> {0}", calls.display(), osmet.display()));
    let written = std::thread::scope(|scope| {
        let offering = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            assert!(!calls.exists(), "it was called before the image was there");
            fs::create_dir_all(&osmet).unwrap();
            fs::write(root.join("run/coreos-installer/part"), "image").unwrap();
            fs::rename(root.join("run/coreos-installer/part"), osmet.join("vlab-metal.x86_64.osmet")).unwrap();
        });
        let written = machine.job(Job::WriteImage);
        offering.join().unwrap();
        written
    });
    written.unwrap();
    let said = fs::read_to_string(&calls).unwrap();
    let (words, there) = said.split_once('\n').unwrap();
    assert!(words.contains(" --offline "), "{words}");
    assert_eq!(there, "vlab-metal.x86_64.osmet\n");
}

#[test]
fn an_image_that_is_never_offered_is_the_lab_s_fault() {
    let mut machine = machine(HostRole::Master, 3);
    machine.hand.config.os_image = None;
    machine.got("host.ign", EMPTY);
    machine.job(Job::PrepareIgnition).unwrap();
    machine.program("coreos-installer", "exit 1");
    machine.program("systemctl", "printf 'ActiveState=activating\\nSubState=start\\n'");
    assert_eq!(
        machine.job(Job::WriteImage).unwrap_err(),
        "the lab was not ready: the live system offers no disk image: there is no /run/vlab/rootfs.img, which would have it"
    );
    fs::create_dir_all(machine.folder.path().join("run/vlab")).unwrap();
    fs::write(machine.folder.path().join("run/vlab/rootfs.img"), "").unwrap();
    machine.hand.config.timing.disk_image_wait = Duration::from_millis(30);
    assert_eq!(
        machine.job(Job::WriteImage).unwrap_err(),
        "the lab was not ready: the live system did not offer its disk image within 30ms; last seen: nothing of it \
         was copied; coreos-osmet.service: ActiveState=activating, SubState=start"
    );
}

#[test]
fn three_tries_and_the_writer_s_last_words() {
    let mut machine = machine(HostRole::Master, 3);
    machine.got("host.ign", EMPTY);
    machine.job(Job::PrepareIgnition).unwrap();
    let calls = machine.folder.path().join("calls");
    machine.program(
        "coreos-installer",
        &format!("echo x >> {}\necho 'Error: no space left' >&2\nexit 1", calls.display()),
    );
    let error = machine.job(Job::WriteImage).unwrap_err();
    assert_eq!(error, "failed to write the image to /dev/vda: coreos-installer: exit status: 1: Error: no space left");
    assert_eq!(fs::read_to_string(calls).unwrap(), "x\nx\nx\n");
}
