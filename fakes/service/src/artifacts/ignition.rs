//! Ignition configs: small builders over the `ignition-config` types, and the merge of overrides.

use super::ArtifactError;

/// Merges an override into a config the way Ignition merges a child into its parent: files and links by path, users, units and
/// drop-ins by name, other lists appended, single values replaced. The result has the higher of the two versions.
/// `what` names the override in errors.
///
/// # Errors
/// When either is not a valid Ignition config.
pub fn merge_override(base: &[u8], overrides: &str, what: &str) -> Result<Vec<u8>, ArtifactError> {
    let _ = (base, overrides, what);
    unimplemented!("artifacts::merge_override")
}
