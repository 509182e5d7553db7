//! What a scenario says that the place of the run must offer. Where it does not, the run is skipped: loudly, with the reason,
//! and never as a pass.

use std::path::Path;

use vlab_lab::doctor::{Context, FindingState, examine_one};
use vlab_lab::machines::domain::Accel;
use vlab_lab::machines::probe;
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

/// Why this place does not offer it; `None` when it does.
pub(crate) async fn lacking(need: &Need, runs: &Path) -> Option<String> {
    let name = match need {
        // The run itself starts a server and says what is wrong with it; here only whether there is one to start.
        Need::Postgres => {
            let options = PgOptions::from_env();
            return match (&options.database_url, Binaries::find(options.bin_dir.as_deref())) {
                (Some(_), _) | (None, Ok(_)) => None,
                (None, Err(error)) => Some(error.to_string()),
            };
        }
        Need::Root => return (!nix::unistd::geteuid().is_root()).then(|| "vlab is not running as root".to_owned()),
        Need::Image(name) => return no_image(name).await,
        // Here it is; `vlab simulate` has another one.
        Need::RealTime => return None,
        // Whoever prepares a run with the other door refuses it.
        Need::Rest | Need::Kube => return None,
        // The run asks its target before it asks this place.
        Need::SimulatedService => {
            let why = "no other service can pass it: others have time limits compiled in that it waits for, or ask the API of the \
                       installed cluster, which simulated hosts do not have";
            return Some(why.to_owned());
        }
        Need::Kvm => return no_kvm().await,
        Need::Qemu => "acceleration",
        Need::Libvirt => "libvirt",
        Need::Docker => "container engine",
        Need::Netns => "lab network",
        Need::Browser => "chromium",
    };
    // A need that nobody can examine is not met.
    let Some(finding) = examine_one(name, Context { hosts: 0, run_dir: runs.to_owned() }).await else {
        return Some(format!("vlab cannot tell whether there is {name}"));
    };
    match finding.state {
        FindingState::Found => None,
        FindingState::Missing | FindingState::Unusable => {
            let fix = finding.fix.map(|fix| format!("; {fix}")).unwrap_or_default();
            Some(format!("{}{fix}", finding.detail))
        }
    }
}

/// Machines also run without KVM, so that the check of `vlab doctor` is content where this need is not.
async fn no_kvm() -> Option<String> {
    match tokio::task::spawn_blocking(probe::probe).await {
        Ok(Ok(found)) => (found.accel != Accel::Kvm).then_some(found.why),
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(panic.to_string()),
    }
}

/// Only what is on the machine counts: a need is a question about the place, not an order to fetch something.
async fn no_image(name: &str) -> Option<String> {
    let asked = name.to_owned();
    let looked = tokio::task::spawn_blocking(move || match vlab_container_engine::find() {
        Err(none) => Some(none.to_string()),
        Ok(engine) => match engine.image(&asked) {
            Ok(Some(_)) => None,
            Ok(None) => Some(format!("there is no such image on {engine}")),
            Err(error) => Some(error.to_string()),
        },
    });
    looked.await.unwrap_or_else(|panic| Some(panic.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_need_of_the_language_can_be_examined() {
        let context = || Context { hosts: 0, run_dir: std::env::temp_dir() };
        for name in ["acceleration", "libvirt", "container engine", "lab network", "chromium"] {
            assert!(examine_one(name, context()).await.is_some(), "doctor has no {name}");
        }
        assert!(examine_one("no such thing", context()).await.is_none());
    }

    #[tokio::test]
    async fn what_cannot_be_had_is_told_with_its_reason() {
        let reason = unmet(&[Need::Image("no-such-image".into())], Path::new("/tmp")).await.unwrap();
        // With an engine it is not there; without one the engine is what is missing.
        let known = ["there is no such image", "container engine"].iter().any(|part| reason.contains(part));
        assert!(reason.starts_with("the scenario needs image:no-such-image: ") && known, "{reason}");
        assert_eq!(unmet(&[], Path::new("/tmp")).await, None);
    }
}
