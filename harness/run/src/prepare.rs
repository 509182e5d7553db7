//! Preparing a run on this computer: the clock gives the seed, and files that the scenario names are looked at.

use std::path::Path;

use vlab_api::Timestamp;
use vlab_drive::prepare::{Choices, Place, PrepareError, Prepared};
use vlab_scenario::{Catalogue, Scenario};

use crate::hosts::vm;

/// This computer.
struct Here;

impl Place for Here {
    fn new_seed(&self) -> u64 {
        Timestamp::now().as_micros().unsigned_abs() % 1_000_000_007
    }

    fn check_live_iso(&self, path: &Path) -> Result<(), String> {
        vm::whole(path)
    }

    fn check_program(&self, path: &Path) -> Result<(), String> {
        vm::programs::runs(path)
    }

    fn check_deploy(&self, installer: &Path) -> Result<(), String> {
        vm::programs::deploy_folder(installer).map(drop)
    }
}

/// Brings together what a run needs to know.
///
/// # Errors
/// [`PrepareError`]; nothing was started.
pub fn prepare(scenario: Scenario, catalogue: &Catalogue, choices: &Choices) -> Result<Prepared, PrepareError> {
    vlab_drive::prepare::prepare(scenario, catalogue, choices, &Here)
}

#[cfg(test)]
mod tests {
    use vlab_scenario::HostKind;

    use super::*;

    /// Hosts that are simulated boot nothing, so nobody looks at what they would boot.
    #[test]
    fn a_live_image_that_is_none_is_refused_before_anything_starts() {
        let folder = tempfile::tempdir().unwrap();
        let iso = folder.path().join("rhcos.iso");
        std::fs::write(&iso, "half of an answer").unwrap();
        let text = format!(
            "version: 1\nname: t\ncluster: {{topology: sno}}\ninfra_env: {{iso: {}}}\nhosts: [{{name: n}}]\n",
            iso.display()
        );
        let catalogue = Catalogue::embedded();
        let scenario = vlab_scenario::load(&vlab_scenario::SourceFile::new("t.yaml", text), &catalogue).unwrap();
        let with = |hosts| {
            let choices = Choices { hosts: Some(hosts), ..Choices::default() };
            prepare(scenario.clone(), &catalogue, &choices).map(drop).map_err(|e| e.to_string())
        };
        let refused = with(HostKind::Vm).unwrap_err();
        assert!(
            refused.starts_with("infra_env.iso: ") && refused.contains("rhcos.iso is not an ISO 9660 image"),
            "{refused}"
        );
        assert_eq!(with(HostKind::Simulated), Ok(()));
    }
}
