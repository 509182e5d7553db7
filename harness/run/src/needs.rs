//! What a scenario says that the place of the run must offer. Where it does not, the run is skipped: loudly, with the reason,
//! and never as a pass.

use std::path::Path;

use vlab_lab::doctor::{Context, State, examine_one};
use vlab_lab::postgres::{Binaries, PgOptions};
use vlab_scenario::Need;

/// Why this place cannot run a scenario with these needs; `None` when it can. The checks are those of `vlab doctor`.
pub async fn unmet(needs: &[Need], runs: &Path) -> Option<String> {
    for need in needs {
        if let Some(reason) = lacking(need, runs).await {
            return Some(format!("the scenario needs {need}: {reason}"));
        }
    }
    None
}

async fn lacking(need: &Need, runs: &Path) -> Option<String> {
    let name = match need {
        // The run itself starts a server and says what is wrong with it; here only whether there is one to start.
        Need::Postgres => {
            let options = PgOptions::from_env();
            return match (&options.database_url, Binaries::find(options.bin_dir.as_deref())) {
                (Some(_), _) | (None, Ok(_)) => None,
                (None, Err(error)) => Some(error.to_string()),
            };
        }
        Need::Root => return (!nix::unistd::geteuid().is_root()).then(|| "this is no root shell".to_owned()),
        Need::Image(_) => return Some("container images are not built yet".to_owned()),
        // Whether QEMU is there is what the check for KVM looks at first.
        Need::Kvm | Need::Qemu => "kvm",
        Need::Libvirt => "libvirt",
        Need::Docker => "docker",
        Need::Netns => "user namespaces",
        Need::Browser => "chromium",
    };
    let finding = examine_one(name, Context { hosts: 0, run_dir: runs.to_owned() }).await?;
    match finding.state {
        State::Found => None,
        State::Missing | State::Unusable => {
            let fix = finding.fix.map(|fix| format!("; {fix}")).unwrap_or_default();
            Some(format!("{}{fix}", finding.detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_need_of_the_language_can_be_examined() {
        let context = || Context { hosts: 0, run_dir: std::env::temp_dir() };
        for name in ["kvm", "libvirt", "docker", "user namespaces", "chromium"] {
            assert!(examine_one(name, context()).await.is_some(), "doctor has no {name}");
        }
        assert!(examine_one("no such thing", context()).await.is_none());
    }

    #[tokio::test]
    async fn what_cannot_be_had_is_told_with_its_reason() {
        let reason = unmet(&[Need::Image("x".into())], Path::new("/tmp")).await.unwrap();
        assert_eq!(reason, "the scenario needs image:x: container images are not built yet");
        assert_eq!(unmet(&[], Path::new("/tmp")).await, None);
    }
}
