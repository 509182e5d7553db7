//! What the run gives this machine in the place of the lab's own: programs of the product, and the folder of manifests that lies
//! beside the installer in its image. Each is fetched when it is wanted for the first time, and kept.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::machine::NodeConfig;
use crate::say;

/// Where what was fetched is kept. `VLAB_NODE_GIVEN` names another place.
const KEPT: &str = "/var/lib/vlab";

fn kept() -> PathBuf {
    std::env::var_os("VLAB_NODE_GIVEN").map_or_else(|| KEPT.into(), PathBuf::from)
}

/// A program that a run can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// The agent, with all names of its image.
    Agent,
    /// The installer.
    Installer,
    /// The controller in the cluster.
    Controller,
}

impl Given {
    /// Its word in messages, and the name under which it is kept.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Installer => "installer",
            Self::Controller => "controller",
        }
    }

    fn url(self, config: &NodeConfig) -> Option<&str> {
        match self {
            Self::Agent => config.agent.as_deref(),
            Self::Installer => config.installer.as_deref(),
            Self::Controller => config.controller.as_deref(),
        }
    }
}

/// A program that the run gives this machine, fetched when it is not here yet; `None`: the run gives none.
///
/// # Errors
/// It cannot be had: what, from where and why, in the form of podman's errors.
pub fn program(config: &NodeConfig, which: Given) -> Result<Option<PathBuf>, String> {
    program_in(&kept(), config, which)
}

fn program_in(folder: &Path, config: &NodeConfig, which: Given) -> Result<Option<PathBuf>, String> {
    let Some(url) = which.url(config) else { return Ok(None) };
    let place = folder.join(which.word());
    if place.is_file() {
        return Ok(Some(place));
    }
    let wrong = |why: &str| format!("Error: the {} of the run, {url}: {why}", which.word());
    let io = |e: std::io::Error| wrong(&e.to_string());
    // Whole or not at all: others may call it meanwhile.
    let beside = fetched(folder, config, url, which.word()).map_err(|why| wrong(&why))?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).map_err(io)?;
    fs::rename(&beside, &place).map_err(io)?;
    say::note("podman", &format!("the {} is {url}", which.word()));
    Ok(Some(place))
}

/// Lays out the manifests that lie beside the given installer in its image; `false`: the run gives none. What is there already is
/// left as it is.
///
/// # Errors
/// They cannot be had: from where and why, in the form of podman's errors.
pub fn deploy(config: &NodeConfig, place: &Path) -> Result<bool, String> {
    deploy_in(&kept(), config, place)
}

fn deploy_in(folder: &Path, config: &NodeConfig, place: &Path) -> Result<bool, String> {
    let Some(url) = &config.deploy else { return Ok(false) };
    if place.is_dir() {
        return Ok(true);
    }
    let wrong = |why: &str| format!("Error: the manifests of the run's installer, {url}: {why}");
    let io = |e: std::io::Error| wrong(&e.to_string());
    let above = place.parent().ok_or_else(|| wrong("they are to be laid out nowhere"))?;
    fs::create_dir_all(above).map_err(io)?;
    let archive = fetched(folder, config, url, "deploy").map_err(|why| wrong(&why))?;
    let beside = above.join(format!(".deploy.{}", std::process::id()));
    fs::create_dir_all(&beside).map_err(io)?;
    let mut unpack = Command::new(config.program("tar"));
    unpack.arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(&beside);
    let unpacked = succeeds(&mut unpack);
    let _ = fs::remove_file(&archive);
    unpacked.map_err(|why| wrong(&why))?;
    fs::rename(&beside, place).map_err(io)?;
    say::note("podman", &format!("{} is from {url}", place.display()));
    Ok(true)
}

/// Fetches a file into a folder, under a name of this process's own.
fn fetched(folder: &Path, config: &NodeConfig, url: &str, name: &str) -> Result<PathBuf, String> {
    fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    let place = folder.join(format!(".{name}.{}", std::process::id()));
    let mut curl = Command::new(config.program("curl"));
    curl.args(["--fail", "--silent", "--show-error", "--retry", "3", "--output"]).arg(&place).arg(url);
    succeeds(&mut curl)?;
    Ok(place)
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// A machine whose curl copies files, and counts.
    struct Machine {
        folder: tempfile::TempDir,
        config: NodeConfig,
    }

    fn machine() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let (curl, calls) = (folder.path().join("curl"), folder.path().join("calls"));
        let script = format!(
            "#!/bin/sh\necho x >> {}\nfor last; do :; done\n\
             while [ \"$1\" != --output ]; do shift; done\nexec cp \"${{last#file://}}\" \"$2\"\n",
            calls.display()
        );
        fs::write(&curl, script).unwrap();
        fs::set_permissions(&curl, fs::Permissions::from_mode(0o755)).unwrap();
        let mut config = NodeConfig::default();
        config.programs.insert("curl".into(), curl);
        Machine { folder, config }
    }

    impl Machine {
        fn url(&self, name: &str, content: &[u8]) -> Option<String> {
            let file = self.folder.path().join(name);
            fs::write(&file, content).unwrap();
            Some(format!("file://{}", file.display()))
        }

        fn calls(&self) -> usize {
            fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default().lines().count()
        }
    }

    #[rstest]
    #[case(Given::Agent)]
    #[case(Given::Installer)]
    #[case(Given::Controller)]
    fn a_given_program_is_fetched_once(#[case] which: Given) {
        let mut machine = machine();
        let kept = machine.folder.path().join("kept");
        assert_eq!(program_in(&kept, &machine.config, which), Ok(None));
        let url = machine.url("program", b"one");
        match which {
            Given::Agent => machine.config.agent = url,
            Given::Installer => machine.config.installer = url,
            Given::Controller => machine.config.controller = url,
        }
        for _ in 0..2 {
            let place = program_in(&kept, &machine.config, which).unwrap().unwrap();
            assert_eq!(place, kept.join(which.word()));
            assert_eq!(fs::read(&place).unwrap(), b"one");
            assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o755);
        }
        assert_eq!(machine.calls(), 1);
        let names: Vec<_> = fs::read_dir(&kept).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [which.word()], "nothing half is left");
    }

    #[test]
    fn a_program_that_cannot_be_had_is_named() {
        let mut machine = machine();
        machine.config.installer = Some("file:///nowhere/installer".into());
        let error = program_in(&machine.folder.path().join("kept"), &machine.config, Given::Installer).unwrap_err();
        assert!(
            error.starts_with("Error: the installer of the run, file:///nowhere/installer: exit status: 1"),
            "{error}"
        );
    }

    #[test]
    fn the_installer_s_manifests_are_laid_out_once() {
        let mut machine = machine();
        let (kept, place) = (machine.folder.path().join("kept"), machine.folder.path().join("image/deploy"));
        assert_eq!(deploy_in(&kept, &machine.config, &place), Ok(false));
        let tar = vlab_agents::archive::tar_gz(&[("a.yaml", "kind: A\n"), ("b/c.template", "{{.C}}\n")]);
        machine.config.deploy = machine.url("deploy.tar", &tar);
        for _ in 0..2 {
            assert_eq!(deploy_in(&kept, &machine.config, &place), Ok(true));
        }
        assert_eq!(machine.calls(), 1);
        assert_eq!(fs::read_to_string(place.join("a.yaml")).unwrap(), "kind: A\n");
        assert_eq!(fs::read_to_string(place.join("b/c.template")).unwrap(), "{{.C}}\n");
        machine.config.deploy = machine.url("none.tar", b"nonsense");
        let error = deploy_in(&kept, &machine.config, &machine.folder.path().join("other/deploy")).unwrap_err();
        assert!(error.contains("none.tar: exit status"), "{error}");
        assert!(!machine.folder.path().join("other/deploy").exists(), "whole or not at all");
    }
}
