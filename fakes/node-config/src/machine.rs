//! The machine that a program of the lab runs on: its files below a root directory (so that tests have machines made of files),
//! and what the lab put on it as configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vlab_model::settings::HostTiming;

/// Where the lab's configuration of a machine is. The environment variable `VLAB_NODE_CONFIG` names another place.
pub const CONFIG_FILE: &str = "/etc/vlab/node.json";

/// The file system of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self("/".into())
    }
}

impl Root {
    /// The machine that this program runs on. The environment variable `VLAB_NODE_ROOT` names a folder that takes its place:
    /// a machine of a test whose network is real and whose hardware is made of files.
    pub fn of_this_machine() -> Self {
        std::env::var_os("VLAB_NODE_ROOT").map_or_else(Self::default, Self::at)
    }

    /// The machine whose root directory is there.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where an absolute path of the machine is found.
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// The text of a file, without blanks around it; `None` when it cannot be read. Files of `/sys` say "not available" by
    /// failing, so why does not matter.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = std::fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\n', '\t']).to_owned())
    }

    /// The text of a file that must have some.
    pub fn some_text(&self, path: &str) -> Option<String> {
        self.text(path).filter(|t| !t.is_empty())
    }

    /// A number in a file.
    pub fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Is it there?
    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Names in a directory, sorted; none when it is not there.
    pub fn names(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path(path))
            .into_iter()
            .flatten()
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Last component of what a symbolic link points to.
    pub fn link_name(&self, path: &str) -> Option<String> {
        std::fs::read_link(self.path(path)).ok()?.file_name()?.to_str().map(str::to_owned)
    }

    /// Mounted devices, in the order of mounting: name of the device, and where.
    pub fn mounts(&self) -> Vec<(String, String)> {
        let text = self.text("/proc/1/mounts").or_else(|| self.text("/proc/mounts")).unwrap_or_default();
        let words = |l: &str| {
            let mut words = l.split(' ').map(|w| w.replace("\\040", " "));
            Some((words.next()?.strip_prefix("/dev/")?.to_owned(), words.next()?))
        };
        text.lines().filter_map(words).collect()
    }
}

/// What the lab put on the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeConfig {
    /// Times of the run: how much faster polls are. The work itself takes as long as it takes.
    pub timing: HostTiming,
    /// Hardware that the scenario declares and the machine does not have.
    pub overlay: Overlay,
    /// Programs that take the place of the lab's own or of those found in `PATH`: name (`agent`, `installer`, `controller`,
    /// `coreos-installer`, `etcd`, `reboot`, ...) and path.
    pub programs: BTreeMap<String, PathBuf>,
    /// Where the agent is that takes the place of the lab's, for all programs of its image: an `http` URL.
    pub agent: Option<String>,
    /// Likewise the installer.
    pub installer: Option<String>,
    /// Likewise the controller in the cluster.
    pub controller: Option<String>,
    /// Where the manifests are that lie beside the given installer in its image: a tar archive.
    pub deploy: Option<String>,
    /// Seed of the run.
    pub seed: u64,
    /// Image that coreos-installer writes: a path or an `http` URL. Without it coreos-installer takes what the live system
    /// offers.
    pub os_image: Option<String>,
    /// Further arguments for coreos-installer, before those of the service.
    pub coreos_installer_args: Vec<String>,
}

/// Hardware that is declared and not there. It goes into the inventory, and every change is said in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overlay {
    /// Number of processor cores that are declared.
    pub cpus: Option<i64>,
    /// Memory in MiB.
    pub memory_mib: Option<i64>,
    /// Every disk that is smaller is shown with so many 10⁹ bytes. Discovery media, removable ones, stay what they are.
    pub disk_gb: Option<i64>,
    /// Interfaces that are shown as physical ones, whatever they are.
    pub physical_nics: Vec<String>,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ConfigError {
    path: String,
    reason: String,
}

impl NodeConfig {
    /// The configuration of this machine; the default one when there is no file.
    ///
    /// # Errors
    /// When there is a file and it is no configuration.
    pub fn load() -> Result<Self, ConfigError> {
        let path = config_path();
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|e| ConfigError { path: path.display().to_string(), reason: e.to_string() }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(ConfigError { path: path.display().to_string(), reason: e.to_string() }),
        }
    }

    /// What to call when `name` is wanted: the configured path, else the name itself.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.get(name).cloned().unwrap_or_else(|| name.into())
    }
}

/// Where the configuration of this machine is.
pub fn config_path() -> PathBuf {
    std::env::var_os("VLAB_NODE_CONFIG").map_or_else(|| Path::new(CONFIG_FILE).to_owned(), PathBuf::from)
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}
