//! The releases of OpenShift that the service knows.

use vlab_api::types::ReleaseImage;

use crate::Core;
use crate::refusal::Refusal;

impl Core {
    /// The newest release of that version (`4.16` or `4.16.68`) for that architecture.
    pub(crate) fn release(&self, version: &str, arch: &str) -> Option<&ReleaseImage> {
        let fits = |r: &&ReleaseImage| {
            let by_arch = r.cpu_architecture == arch || r.cpu_architectures.iter().flatten().any(|a| a == arch);
            let bare = version.trim_end_matches("-multi");
            by_arch && (r.version == bare || r.openshift_version == bare || r.version.starts_with(&format!("{bare}.")))
        };
        self.config
            .settings
            .release_images
            .iter()
            .filter(fits)
            .max_by_key(|r| r.version.split(['.', '-']).map(|p| p.parse::<u64>().unwrap_or(0)).collect::<Vec<_>>())
    }

    /// The same; a version that the service does not know is refused.
    pub(crate) fn supported(&self, version: &str, arch: &str) -> Result<ReleaseImage, Refusal> {
        self.release(version, arch).cloned().ok_or_else(|| {
            Refusal::invalid(format!(
                "Openshift version {version} for CPU architecture {arch} is not supported: no release image found for openshiftVersion: '{version}' and CPU architecture '{arch}'"
            ))
        })
    }
}
