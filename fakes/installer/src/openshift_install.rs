//! [`Installer`] behind the command line of `openshift-install`, for a real assisted-service without a release image: it starts
//! such a program twice for each cluster, changes what the first call has written, and reads what the second one writes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vlab_api::Timestamp;

use crate::{Artifact, ArtifactError, Installer, seed_of};

/// What the second call must know of the first; the real program has a file of that name, too.
const STATE: &str = ".openshift_install_state.json";
/// The cluster, in the assisted-service's words.
const INSTALL_CONFIG: &str = "install-config.yaml";
/// Folders of manifests.
const MANIFESTS: [&str; 2] = ["manifests", "openshift"];

/// What can be asked for with `create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asset {
    /// The manifests of the cluster, out of `install-config.yaml`, which is taken away.
    Manifests,
    /// The ignition configs, out of the manifests, which are taken away.
    IgnitionConfigs,
    /// Those of a cluster that is one node.
    SingleNodeIgnitionConfig,
}

/// Why nothing was made.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file cannot be read or written.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The state cannot be understood.
    #[error("{}: {error}", .path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What the reader of JSON says.
        error: serde_json::Error,
    },
    /// The cluster cannot be made.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The cluster has the other form.
    #[error("{0}")]
    Form(&'static str),
}

#[derive(Deserialize, Serialize)]
struct InstallState {
    install_config: String,
    release_image: String,
    seed: [u8; 32],
    created: Timestamp,
}

impl InstallState {
    fn installer(&self) -> Result<Installer, ArtifactError> {
        Installer::read(&self.install_config, version_of(&self.release_image), self.seed, self.created)
    }
}

/// The version in the tag of a release image; empty where it has none, or a digest.
fn version_of(image: &str) -> &str {
    let name = image.rsplit('/').next().unwrap_or(image);
    let Some((_, tag)) = name.split_once(':').filter(|(name, _)| !name.contains('@')) else { return "" };
    ["-x86_64", "-aarch64", "-arm64", "-ppc64le", "-s390x", "-multi"]
        .iter()
        .find_map(|architecture| tag.strip_suffix(architecture))
        .unwrap_or(tag)
}

/// Makes an asset in a folder. Equal seeds, images and install configs give equal keys.
///
/// # Errors
/// [`InstallError`]; what was there is still there then.
pub fn create(asset: Asset, folder: &Path, release_image: &str, seed: u64, now: Timestamp) -> Result<(), InstallError> {
    match asset {
        Asset::Manifests => {
            let path = folder.join(INSTALL_CONFIG);
            let install_config = fs::read_to_string(&path).map_err(|error| InstallError::File { path, error })?;
            let state = InstallState {
                seed: seed_of(seed, &install_config),
                install_config,
                release_image: release_image.to_owned(),
                created: now,
            };
            let made = state.installer()?.manifests();
            // Both are always there: the service adds its own manifests.
            for name in MANIFESTS {
                let path = folder.join(name);
                fs::create_dir_all(&path).map_err(|error| InstallError::File { path, error })?;
            }
            write_all(folder, &made)?;
            // Plain structs with string keys: this cannot fail.
            let bytes = serde_json::to_vec(&state).unwrap_or_default();
            write_all(folder, &[Artifact { name: STATE.to_owned(), bytes }])?;
            remove(&folder.join(INSTALL_CONFIG), |path| fs::remove_file(path))
        }
        Asset::IgnitionConfigs | Asset::SingleNodeIgnitionConfig => {
            let path = folder.join(STATE);
            let bytes = fs::read(&path).map_err(|error| InstallError::File { path: path.clone(), error })?;
            let state: InstallState =
                serde_json::from_slice(&bytes).map_err(|error| InstallError::State { path, error })?;
            let installer = state.installer()?;
            match (asset, installer.single_node()) {
                (Asset::SingleNodeIgnitionConfig, false) => {
                    return Err(InstallError::Form(
                        "the install config has no bootstrapInPlace: it is not for a single node",
                    ));
                }
                (Asset::IgnitionConfigs, true) => {
                    return Err(InstallError::Form(
                        "the install config has bootstrapInPlace: a single node needs single-node-ignition-config",
                    ));
                }
                _ => {}
            }
            write_all(folder, &installer.ignition_configs(&manifests(folder)?)?)?;
            MANIFESTS.iter().try_for_each(|name| remove(&folder.join(name), |path| fs::remove_dir_all(path)))
        }
    }
}

/// The files below both folders, by name.
fn manifests(folder: &Path) -> Result<Vec<Artifact>, InstallError> {
    let mut found = Vec::new();
    for below in MANIFESTS {
        let path = folder.join(below);
        let list = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let list = match list {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|error| InstallError::File { path, error })?,
        };
        let names: BTreeSet<PathBuf> =
            list.into_iter().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        for path in names {
            let name = format!("{below}/{}", path.file_name().unwrap_or_default().to_string_lossy());
            let bytes = fs::read(&path).map_err(|error| InstallError::File { path, error })?;
            found.push(Artifact { name, bytes });
        }
    }
    Ok(found)
}

fn remove(path: &Path, how: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), InstallError> {
    match how(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(InstallError::File { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

/// Some of them are secrets, so all are for the owner only, as the real program's are.
fn write_all(folder: &Path, files: &[Artifact]) -> Result<(), InstallError> {
    use std::io::Write as _;
    for file in files {
        let path = folder.join(&file.name);
        let written = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path))
            .and_then(|mut open| open.write_all(&file.bytes));
        written.map_err(|error| InstallError::File { path, error })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    const IMAGE: &str = "quay.example.org/ocp-release:4.20.1-x86_64";
    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const HA: &str = "baseDomain: example.org\nmetadata: {name: lab}\npullSecret: '{}'\nsshKey: ssh-ed25519 AAAA lab\n\
        compute: [{name: worker, replicas: 1}]\ncontrolPlane: {name: master, replicas: 3}\n\
        platform: {baremetal: {apiVIPs: [192.0.2.5], ingressVIPs: [192.0.2.6], hosts: [{name: m0, bootMACAddress: '52:54:00:00:00:01'}]}}\n";
    const SNO: &str = "baseDomain: example.org\nmetadata: {name: lab}\npullSecret: '{}'\nplatform: {none: {}}\n\
        bootstrapInPlace: {installationDisk: /dev/vda}\n";

    fn folder(config: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(INSTALL_CONFIG), config).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[rstest]
    #[case("quay.io/openshift-release-dev/ocp-release:4.20.1-x86_64", "4.20.1")]
    #[case("registry.example.org:5000/release:4.19.0-rc.1-multi", "4.19.0-rc.1")]
    #[case("registry.example.org:5000/release", "")]
    #[case("quay.io/x/y@sha256:0123", "")]
    fn the_version_is_the_tags(#[case] image: &str, #[case] version: &str) {
        assert_eq!(version_of(image), version);
    }

    #[test]
    fn what_is_changed_between_the_two_calls_reaches_the_bootstrap() {
        let folder = folder(HA);
        create(Asset::Manifests, folder.path(), IMAGE, 1, NOW).unwrap();
        assert_eq!(names(folder.path()), [STATE, "manifests", "openshift"]);
        let changed = folder.path().join("manifests/cluster-scheduler-02-config.yml");
        assert!(fs::read_to_string(&changed).unwrap().contains("mastersSchedulable: false"));
        fs::write(&changed, "changed: true\n").unwrap();
        create(Asset::IgnitionConfigs, folder.path(), IMAGE, 1, NOW).unwrap();
        assert_eq!(names(folder.path()), [STATE, "auth", "bootstrap.ign", "master.ign", "metadata.json", "worker.ign"]);
        assert_eq!(names(&folder.path().join("auth")), ["kubeadmin-password", "kubeconfig"]);
        let bootstrap: Value = serde_json::from_slice(&fs::read(folder.path().join("bootstrap.ign")).unwrap()).unwrap();
        let files = bootstrap["storage"]["files"].as_array().unwrap();
        let file =
            files.iter().find(|f| f["path"] == "/opt/openshift/manifests/cluster-scheduler-02-config.yml").unwrap();
        assert_eq!(
            file["contents"]["source"], "data:text/plain;charset=utf-8;base64,Y2hhbmdlZDogdHJ1ZQo=",
            "the changed one"
        );
        assert!(files.iter().any(|f| f["path"] == "/opt/openshift/openshift/99_openshift-cluster-api_hosts-0.yaml"));
    }

    #[test]
    fn a_single_node_is_its_own_bootstrap() {
        let folder = folder(SNO);
        create(Asset::Manifests, folder.path(), IMAGE, 1, NOW).unwrap();
        let error = create(Asset::IgnitionConfigs, folder.path(), IMAGE, 1, NOW).unwrap_err().to_string();
        assert_eq!(error, "the install config has bootstrapInPlace: a single node needs single-node-ignition-config");
        assert!(folder.path().join("openshift").is_dir(), "the service puts its own there");
        create(Asset::SingleNodeIgnitionConfig, folder.path(), IMAGE, 1, NOW).unwrap();
        assert!(names(folder.path()).contains(&"bootstrap-in-place-for-live-iso.ign".to_owned()));
    }

    #[test]
    fn what_cannot_be_made_is_said_and_nothing_is_lost() {
        let broken = folder("baseDomain: ''\nmetadata: {name: lab}\npullSecret: ''\n");
        let error = create(Asset::Manifests, broken.path(), IMAGE, 1, NOW).unwrap_err().to_string();
        assert_eq!(error, "install-config.yaml: baseDomain is empty");
        assert_eq!(names(broken.path()), [INSTALL_CONFIG]);
        let error = create(Asset::IgnitionConfigs, broken.path(), IMAGE, 1, NOW).unwrap_err().to_string();
        assert!(error.contains(STATE), "{error}");
        let several = folder(HA);
        create(Asset::Manifests, several.path(), IMAGE, 1, NOW).unwrap();
        let error = create(Asset::SingleNodeIgnitionConfig, several.path(), IMAGE, 1, NOW).unwrap_err().to_string();
        assert!(error.contains("not for a single node"), "{error}");
        assert!(names(several.path()).contains(&"manifests".to_owned()));
    }

    #[test]
    fn equal_seeds_give_equal_keys() {
        let made = |seed| {
            let folder = folder(HA);
            create(Asset::Manifests, folder.path(), IMAGE, seed, NOW).unwrap();
            create(Asset::IgnitionConfigs, folder.path(), IMAGE, seed, NOW).unwrap();
            fs::read(folder.path().join("bootstrap.ign")).unwrap()
        };
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
    }
}
