//! What of the steps needs no network.

use rstest::rstest;
use uuid::Uuid;

use super::*;

fn site(root: &std::path::Path) -> (tokio::runtime::Runtime, Site) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let site = Site {
        root: Root::at(root),
        config: NodeConfig::default(),
        service: "http://192.0.2.1:8090".into(),
        agent_version: "agent:1".into(),
        runtime: runtime.handle().clone(),
    };
    (runtime, site)
}

#[test]
fn every_step_of_the_simulated_hosts_is_here() {
    let ours: Vec<_> = ROWS.iter().map(|r| r.step).collect();
    let theirs: Vec<_> = vlab_agents::steps::STEPS.iter().map(|s| s.step_type).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn a_step_that_nobody_knows_and_one_without_its_argument() {
    let folder = tempfile::tempdir().unwrap();
    let (_runtime, site) = site(folder.path());
    let ran = run(&site, "dance", &[]);
    assert_eq!((ran.answer.exit_code, ran.answer.error.as_str()), (-1, "failed to find action for step type dance"));
    let ran = run(&site, "domain-resolution", &[]);
    assert_eq!(ran.answer.exit_code, -1);
    assert_eq!(ran.answer.error, "domain-resolution: an argument is missing");
}

#[test]
fn the_disk_s_content_survives_the_measurement() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("dev/vda");
    std::fs::create_dir(folder.path().join("dev")).unwrap();
    let content: Vec<u8> = (0..4u32 << 20).map(|i| (i * 7 / 3) as u8).collect();
    std::fs::write(&disk, &content).unwrap();
    let (_runtime, site) = site(folder.path());
    let ran = run(&site, "installation-disk-speed-check", &[r#"{"path":"/dev/vda"}"#.into(), "480.00".into()]);
    assert_eq!(ran.answer.exit_code, 0, "{}", ran.answer.error);
    let answer: DiskSpeedCheckResponse = serde_json::from_str(&ran.answer.output).unwrap();
    assert!(answer.io_sync_duration.unwrap() >= 1);
    assert_eq!(answer.path.as_deref(), Some("/dev/vda"));
    assert_eq!(std::fs::read(&disk).unwrap(), content);
}

#[test]
fn a_missing_disk_is_a_failure_that_the_service_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let (_runtime, site) = site(folder.path());
    let ran = run(&site, "installation-disk-speed-check", &[r#"{"path":"/dev/vdz"}"#.into()]);
    assert_eq!(ran.answer.exit_code, 1);
    assert_eq!(ran.answer.output, r#"{"io_sync_duration":0,"path":"/dev/vdz"}"#);
    assert!(ran.answer.error.starts_with("cannot measure /dev/vdz: "), "{}", ran.answer.error);
}

fn request() -> InstallCmdRequest {
    serde_json::from_value(serde_json::json!({
        "cluster_id": Uuid::from_u128(1), "infra_env_id": Uuid::from_u128(2), "host_id": Uuid::from_u128(3),
        "role": "bootstrap", "boot_device": "/dev/vda", "controller_image": "c:1", "installer_image": "i:1",
        "control_plane_count": 3, "disks_to_format": ["/dev/vdb"], "openshift_version": "4.16.1",
        "installer_args": "[\"--append-karg\",\"a=b\"]", "check_cvo": true, "mco_image": "",
    }))
    .unwrap()
}

#[test]
fn the_installer_s_command_line() {
    let args = installer_args(&request(), "http://192.0.2.1:8090", "agent:1").join(" ");
    assert_eq!(
        args,
        "--role bootstrap --infra-env-id 00000000-0000-0000-0000-000000000002 \
         --cluster-id 00000000-0000-0000-0000-000000000001 --host-id 00000000-0000-0000-0000-000000000003 \
         --boot-device /dev/vda --url http://192.0.2.1:8090 --controller-image c:1 --agent-image agent:1 \
         --control-plane-count 3 --openshift-version 4.16.1 --installer-args [\"--append-karg\",\"a=b\"] \
         --format-disk /dev/vdb --check-cluster-version"
    );
}

#[test]
fn nothing_is_installed_on_a_disk_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let (_runtime, site) = site(folder.path());
    let ran = run(&site, "install", &[serde_json::to_string(&request()).unwrap()]);
    assert_eq!((ran.answer.exit_code, ran.answer.error.as_str()), (-1, "install: there is no disk /dev/vda"));
}

#[rstest]
#[case(
    "dhcp-lease-allocate",
    r#"{"interface":"eth0","api_vip_mac":"","ingress_vip_mac":"","api_vip_lease":"","ingress_vip_lease":""}"#
)]
#[case(
    "download-boot-artifacts",
    r#"{"kernel_url":"k","rootfs_url":"r","initrd_url":"i","host_fs_mount_dir":"/host"}"#
)]
fn what_is_not_built_says_so(#[case] step: &str, #[case] arg: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (_runtime, site) = site(folder.path());
    let ran = run(&site, step, &[arg.into()]);
    assert_eq!(ran.answer.exit_code, -1);
    assert!(ran.answer.error.contains(" yet"), "{}", ran.answer.error);
}

#[test]
fn logs_hold_the_inventory_and_what_background_programs_wrote() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("var/log/vlab")).unwrap();
    std::fs::write(folder.path().join("var/log/vlab/assisted-installer.log"), "a line\n").unwrap();
    let (_runtime, site) = site(folder.path());
    let archive = collect_logs(&site);
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(&archive[..]).read_to_end(&mut tar).unwrap();
    let text = String::from_utf8_lossy(&tar);
    for name in ["inventory.json", "journal.log", "vlab/assisted-installer.log", "a line"] {
        assert!(text.contains(name), "{name} is missing");
    }
}

/// The service must learn from the answer when the product's installer ends, as it does from a real agent's.
#[rstest]
#[case::our_own(None, "run --detach --privileged")]
#[case::given(Some("http://192.0.2.1/installer"), "run --privileged")]
fn a_given_installer_is_waited_for(#[case] installer: Option<&str>, #[case] begins: &str) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("dev")).unwrap();
    for disk in ["dev/vda", "dev/vdb"] {
        std::fs::write(folder.path().join(disk), "").unwrap();
    }
    let podman = folder.path().join("podman");
    std::fs::write(&podman, "#!/bin/sh\necho $@ >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&podman, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (_runtime, mut site) = site(folder.path());
    site.config.programs.insert("podman".into(), podman);
    site.config.installer = installer.map(str::to_owned);
    let ran = run(&site, "install", &[serde_json::to_string(&request()).unwrap()]);
    let (code, error) = (ran.answer.exit_code, ran.answer.error);
    assert!(code == 3 && error.starts_with(&format!("install: {begins} --pid=host --net=host")), "{code} {error}");
}
