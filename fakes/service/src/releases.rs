//! The releases of OpenShift that the service knows.

use vlab_api::types::ReleaseImage;

use crate::Core;
use crate::refusal::Refusal;

impl Core {
    /// The newest release of that version (`4.16` or `4.16.68`) for that architecture.
    pub(crate) fn release(&self, version: &str, arch: &str) -> Option<&ReleaseImage> {
        let fits = |r: &&ReleaseImage| {
            let bare = version.trim_end_matches("-multi");
            runs_on(r, arch)
                && (r.version == bare || r.openshift_version == bare || r.version.starts_with(&format!("{bare}.")))
        };
        self.config
            .settings
            .release_images
            .iter()
            .filter(fits)
            .max_by_key(|r| r.version.split(['.', '-']).map(|p| p.parse::<u64>().unwrap_or(0)).collect::<Vec<_>>())
    }

    /// The release of exactly that version (`4.16.68`), or the newest of that line (`4.16`; those of several architectures have
    /// a line of their own, `4.16-multi`). A version that the service does not know is refused.
    pub(crate) fn supported(&self, version: &str, arch: &str) -> Result<ReleaseImage, Refusal> {
        let refused = |why: String| {
            Refusal::invalid(format!("Openshift version {version} for CPU architecture {arch} is not supported: {why}"))
        };
        let arch = if arch == "aarch64" { "arm64" } else { arch };
        let is_exact = match parts(version).as_deref() {
            Some([_, _]) => false,
            Some([_, _, _]) => true,
            _ => {
                return Err(refused(format!(
                    "invalid openshiftVersion '{version}'. Expected format: 'major.minor' or 'major.minor.patch', optionally followed by a prerelease identifier"
                )));
            }
        };
        let fits =
            |r: &&ReleaseImage| runs_on(r, arch) && version == if is_exact { &r.version } else { &r.openshift_version };
        let releases = self.config.settings.release_images.iter();
        // The newest, but none before its time while there is another.
        let rank = |r: &&ReleaseImage| (r.support_level.as_deref() != Some("beta"), parts(&r.version));
        releases.filter(fits).max_by_key(rank).cloned().ok_or_else(|| {
            refused(format!("no release image found for openshiftVersion: '{version}' and CPU architecture '{arch}'"))
        })
    }

    /// An architecture other than the usual one must be among those of which there are images of that version.
    pub(crate) fn check_architecture(&self, version: &str, arch: &str) -> Result<(), Refusal> {
        if matches!(arch, "x86_64" | "multi") {
            return Ok(());
        }
        let minor = |version: &str| parts(version).map(|parts| parts.into_iter().take(2).collect::<Vec<_>>());
        let wanted = minor(version);
        let name = if arch == "aarch64" { "arm64" } else { arch };
        let mut releases = self.config.settings.release_images.iter();
        match wanted.is_some() && releases.any(|r| minor(&r.openshift_version) == wanted && runs_on(r, name)) {
            true => Ok(()),
            false => Err(Refusal::invalid(format!("Requested CPU architecture {arch} is not available"))),
        }
    }
}

fn runs_on(release: &ReleaseImage, arch: &str) -> bool {
    release.cpu_architecture == arch || release.cpu_architectures.iter().flatten().any(|a| a == arch)
}

/// The numbers of a version; `None` for what is no version.
fn parts(version: &str) -> Option<Vec<u64>> {
    version.split('-').next()?.split('.').map(|part| part.parse().ok()).collect()
}
