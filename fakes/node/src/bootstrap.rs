//! The bootstrap's files on the live system: what the lab adds to an ignition config that no release made, and the stand-in for
//! the machine-config daemon, which the product's installer has lay such a config out.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::ignition::{self, File, Layout, Unit};
use crate::install::ASSETS;
use crate::machine::{NodeConfig, Root};
use crate::{say, tools};

/// Units of a bootstrap that the lab has where a config has none, and what they say. None of them blocks who starts it: the
/// installer starts them one after the other and writes the bootstrap's disk meanwhile.
const UNITS: &[(&str, &str)] = &[
    ("bootkube.service", BOOTKUBE_UNIT),
    (
        "approve-csr.service",
        "\
[Unit]
Description=Approve what new nodes ask for, until the temporary control plane is done
Wants=bootkube.service
After=bootkube.service

[Service]
Type=simple
ExecStart=/usr/local/bin/vlab-node approve-csr
Restart=on-failure
RestartSec=5s

[Install]
WantedBy=multi-user.target
",
    ),
    (
        "progress.service",
        "\
[Unit]
Description=Wait until the control plane stands without the bootstrap
Wants=bootkube.service
After=bootkube.service

[Service]
Type=simple
ExecStart=/usr/local/bin/vlab-node progress
Restart=on-failure
RestartSec=5s

[Install]
WantedBy=multi-user.target
",
    ),
];

const BOOTKUBE_UNIT: &str = "\
[Unit]
Description=Bring up the temporary control plane
Wants=network-online.target
After=network-online.target

[Service]
Type=simple
ExecStart=/usr/local/bin/vlab-bootstrap --assets /opt/openshift
Restart=on-failure
RestartSec=5s

[Install]
WantedBy=multi-user.target
";

/// The manifest of the release by which a cluster knows who installed it. It is the one that is there on every platform; the
/// installer puts its own beside it and makes no folder.
const INSTALLED_BY: &str = "\
# From the lab: the bootstrap's config brought nothing for this folder.
apiVersion: v1
kind: ConfigMap
metadata:
  name: openshift-install-manifests
  namespace: openshift-config
data:
  invoker: assisted-service
";

/// Adds what a bootstrap of the lab needs and the config does not have: a service without openshift-install leaves it out. Names
/// of what was added.
pub fn complete(layout: &mut Layout) -> Vec<&'static str> {
    let mut added = Vec::new();
    for (name, contents) in UNITS {
        if !layout.units.iter().any(|unit| unit.name == *name) {
            let contents = Some((*contents).to_owned());
            layout.units.push(Unit { name: (*name).into(), contents, dropins: Vec::new(), enabled: true });
            added.push(*name);
        }
    }
    let folder = format!("{ASSETS}/openshift/");
    if !layout.files.iter().any(|file| file.path.starts_with(&folder)) {
        let path = format!("{folder}openshift-install-manifests.yaml");
        layout.files.push(File { path, mode: 0o644, bytes: INSTALLED_BY.into(), append: false });
        added.push("openshift-install-manifests.yaml");
    }
    added
}

/// Lays out a bootstrap's config with what the lab adds to it; names of the units that are to be enabled.
///
/// # Errors
/// What cannot be read or written.
pub fn lay_out(config: &[u8], root: &Root) -> Result<Vec<String>, String> {
    let mut layout = ignition::layout(config)?;
    let added = complete(&mut layout);
    if !added.is_empty() {
        say::note("installer", &format!("the bootstrap's config lacks {}: the lab's own", added.join(", ")));
    }
    ignition::lay_out(&layout, root).map_err(|e| e.to_string())
}

/// Options of the daemon that take a value.
const VALUED: &[&str] = &["node-name", "root-mount", "once-from"];

/// Stands in for the machine-config daemon: `start --once-from FILE` writes files and units of an ignition config and enables the
/// units. As the real one, it applies no users.
///
/// # Errors
/// What it was asked for is not known, or cannot be done.
pub fn machine_config_daemon(words: &[String]) -> Result<String, String> {
    let refused = |what: &str| format!("machine-config-daemon: the lab's stand-in does not know {what}");
    let (options, plain) = tools::options(words, VALUED);
    if plain != ["start"] {
        return Err(refused(&plain.join(" ")));
    }
    let known = |name: &&&str| VALUED.contains(*name) || **name == "skip-reboot";
    if let Some(other) = options.keys().find(|name| !known(name)) {
        return Err(refused(&format!("--{other}")));
    }
    // It would reboot the machine, and nobody in the lab wants that.
    if !options.contains_key("skip-reboot") {
        return Err(refused("start without --skip-reboot"));
    }
    let from = options.get("once-from").ok_or_else(|| refused("start without --once-from"))?;
    let root = Root::at(options.get("root-mount").copied().unwrap_or("/"));
    let config = NodeConfig::load().map_err(|e| e.to_string())?;
    once_from(Path::new(from), &root, &config).map_err(|why| format!("machine-config-daemon: {from}: {why}"))
}

fn once_from(from: &Path, root: &Root, config: &NodeConfig) -> Result<String, String> {
    let ignition = std::fs::read(from).map_err(|e| e.to_string())?;
    let units = lay_out(&ignition, root)?;
    let said = format!("laid out, by the lab's stand-in; units to be enabled: {}\n", units.join(" "));
    if units.is_empty() {
        return Ok(said);
    }
    let systemctl = config.program("systemctl");
    let enabled = Command::new(&systemctl).arg("enable").args(&units).stdin(Stdio::null()).output();
    let enabled = enabled.map_err(|e| format!("{}: {e}", systemctl.display()))?;
    if !enabled.status.success() {
        let words = String::from_utf8_lossy(&enabled.stderr);
        return Err(format!("systemctl enable: {}: {}", enabled.status, words.trim()));
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const EMPTY: &[u8] = br#"{"ignition":{"version":"3.2.0"}}"#;

    #[test]
    fn a_config_without_a_release_gets_what_the_lab_has() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let units = lay_out(EMPTY, &root).unwrap();
        assert_eq!(units, ["bootkube.service", "approve-csr.service", "progress.service"]);
        for (unit, verb) in [
            ("bootkube", "/usr/local/bin/vlab-bootstrap --assets /opt/openshift"),
            ("approve-csr", "/usr/local/bin/vlab-node approve-csr"),
            ("progress", "/usr/local/bin/vlab-node progress"),
        ] {
            let text = root.text(&format!("/etc/systemd/system/{unit}.service")).unwrap();
            assert!(text.contains(&format!("\nExecStart={verb}\n")), "{text}");
            assert!(text.contains("\nType=simple\n"), "who starts {unit} must not wait for its end: {text}");
        }
        let manifest = root.text("/opt/openshift/openshift/openshift-install-manifests.yaml").unwrap();
        let manifest: serde_json::Value = serde_yaml::from_str(&manifest).unwrap();
        assert_eq!(manifest["data"]["invoker"], "assisted-service");
    }

    #[test]
    fn what_a_release_brings_is_left_as_it_is() {
        let units: Vec<_> =
            UNITS.iter().map(|(name, _)| ignition::unit(name, "[Service]\nExecStart=/release\n")).collect();
        let file = ignition::file("/opt/openshift/openshift/99_a.yaml", 0o644, b"kind: A\n");
        let config = ignition::put(EMPTY, vec![file], units).unwrap();
        let mut layout = ignition::layout(&config).unwrap();
        let before = layout.clone();
        assert_eq!(complete(&mut layout), [""; 0]);
        assert_eq!(layout, before);
    }

    #[rstest]
    #[case("pivot", "pivot")]
    #[case("start --once-from /x --skip-reboot --kubeconfig=/k", "--kubeconfig")]
    #[case("start --once-from /x", "start without --skip-reboot")]
    #[case("start --skip-reboot", "start without --once-from")]
    fn what_the_daemon_s_stand_in_cannot_is_refused(#[case] line: &str, #[case] why: &str) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let error = machine_config_daemon(&words).unwrap_err();
        assert_eq!(error, format!("machine-config-daemon: the lab's stand-in does not know {why}"));
    }

    #[test]
    fn the_daemon_writes_files_and_enables_units() {
        let folder = tempfile::tempdir().unwrap();
        let (root, from) = (Root::at(folder.path()), folder.path().join("bootstrap.ign"));
        let mut config = NodeConfig::default();
        let (systemctl, calls) = (folder.path().join("systemctl"), folder.path().join("calls"));
        fs::write(&systemctl, format!("#!/bin/sh\necho $@ >> {}\n", calls.display())).unwrap();
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
        config.programs.insert("systemctl".into(), systemctl.clone());
        let error = once_from(&from, &root, &config).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
        let more = json!({ "name": "off.service", "enabled": false, "contents": "[Service]\n" });
        let file = ignition::file("/opt/openshift/auth/kubeconfig", 0o600, b"kubeconfig");
        fs::write(&from, ignition::put(EMPTY, vec![file], vec![more]).unwrap()).unwrap();
        once_from(&from, &root, &config).unwrap();
        assert_eq!(root.text("/opt/openshift/auth/kubeconfig").as_deref(), Some("kubeconfig"));
        assert!(root.has("/etc/systemd/system/off.service"));
        let called = fs::read_to_string(&calls).unwrap();
        assert_eq!(called, "enable bootkube.service approve-csr.service progress.service\n");
        fs::write(&systemctl, "#!/bin/sh\necho no such unit >&2\nexit 1\n").unwrap();
        let error = once_from(&from, &root, &config).unwrap_err();
        assert_eq!(error, "systemctl enable: exit status: 1: no such unit");
    }
}
