//! What a run made on a hub that is somebody's: found by a label, removed by `kubectl` when the harness could not.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::wait;

/// The label of everything that a run makes on a hub that is not its own. Its value is the run's id.
pub const LABEL: &str = "vlab.run";

/// The longest value of a label.
const LONGEST: usize = 63;

/// Name of the program through which a hub is asked.
const KUBECTL: &str = "kubectl";
/// Names another kubectl than the one in `PATH`.
const NAMED: &str = "VLAB_KUBECTL";

/// The kubectl of a folder; of `VLAB_KUBECTL`, or of `PATH`, where that has none.
///
/// # Errors
/// There is none: what to do.
pub fn kubectl(folder: Option<&Path>) -> Result<PathBuf, String> {
    let beside = folder.map(|folder| folder.join(KUBECTL));
    let named = env::var_os(NAMED).filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join(KUBECTL));
    let mut all = beside.into_iter().chain(named).chain(in_path);
    all.find(|program| program.is_file()).ok_or_else(|| {
        let folder = folder.map(|folder| format!("put it into {}, or ", folder.display())).unwrap_or_default();
        format!("there is no kubectl, through which the API server is asked: {folder}install it (in PATH, or named by {NAMED})")
    })
}

/// The id of a run as the value of a label: its end, where it is too long.
#[must_use]
pub fn label_value(run_id: &str) -> String {
    let from = run_id.len().saturating_sub(LONGEST);
    run_id.get(from..).unwrap_or_default().trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// Deletes what bears the label. Kubernetes finishes it: nothing is waited for but the orders.
pub(crate) fn remove(kubeconfig: &Path, label: &str, end: Instant) -> Result<Option<String>, String> {
    let by_hand = || {
        format!(
            "`kubectl --kubeconfig {} delete namespaces,clusterimagesets -l {LABEL}={label}` removes it",
            kubeconfig.display()
        )
    };
    let kubectl = kubectl(None).map_err(|why| format!("{why}; {}", by_hand()))?;
    let mut deleting = Command::new(&kubectl)
        .args(["--kubeconfig".as_ref(), kubeconfig.as_os_str()])
        .args(["delete", "namespaces,clusterimagesets", "--wait=false", "--request-timeout=10s", "-o", "name", "-l"])
        .arg(format!("{LABEL}={label}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}; {}", kubectl.display(), by_hand()))?;
    let ended = wait::until_blocking(end, || !matches!(deleting.try_wait(), Ok(None)));
    if !ended {
        let _ = deleting.kill();
    }
    let output = deleting.wait_with_output().map_err(|error| error.to_string())?;
    if !ended || !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("kubectl: {}; {}", said.lines().last().unwrap_or("no answer in time"), by_hand()));
    }
    let names = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> = names.split_whitespace().collect();
    if names.is_empty() { Ok(None) } else { Ok(Some(format!("deleted {}", names.join(", ")))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_comes_before_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(KUBECTL);
        std::fs::write(&program, "").unwrap();
        assert_eq!(kubectl(Some(folder.path())), Ok(program));
    }

    #[test]
    fn a_run_id_is_made_the_value_of_a_label() {
        assert_eq!(label_value("20261127030000-sno-17"), "20261127030000-sno-17");
        let long = format!("20261127030000-{}-17", "a-very-long-name-".repeat(5));
        let value = label_value(&long);
        assert!(value.len() <= LONGEST && long.ends_with(&value), "{value}");
        assert!(value.starts_with(|c: char| c.is_ascii_alphanumeric()), "{value}");
    }
}
