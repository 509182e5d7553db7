//! What a run made on a hub that is somebody's: found by a label, removed by `kubectl` when the harness could not.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::wait;

/// The label of everything that a run makes on a hub that is not its own. Its value is the run's id.
pub const LABEL: &str = "vlab.run";

/// The longest value of a label.
const LONGEST: usize = 63;

/// The id of a run as the value of a label: its end, where it is too long.
#[must_use]
pub fn label_value(run_id: &str) -> String {
    let from = run_id.len().saturating_sub(LONGEST);
    run_id.get(from..).unwrap_or_default().trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// Deletes what bears the label. Kubernetes finishes it: nothing is waited for but the orders.
pub(crate) fn remove(kubeconfig: &Path, label: &str, end: Instant) -> Result<Option<String>, String> {
    let kubectl = std::env::var_os("VLAB_KUBECTL").filter(|path| !path.is_empty()).unwrap_or_else(|| "kubectl".into());
    let by_hand = || {
        format!(
            "`kubectl --kubeconfig {} delete namespaces,clusterimagesets -l {LABEL}={label}` removes it",
            kubeconfig.display()
        )
    };
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
    fn a_run_id_is_made_the_value_of_a_label() {
        assert_eq!(label_value("20261127030000-sno-17"), "20261127030000-sno-17");
        let long = format!("20261127030000-{}-17", "a-very-long-name-".repeat(5));
        let value = label_value(&long);
        assert!(value.len() <= LONGEST && long.ends_with(&value), "{value}");
        assert!(value.starts_with(|c: char| c.is_ascii_alphanumeric()), "{value}");
    }
}
