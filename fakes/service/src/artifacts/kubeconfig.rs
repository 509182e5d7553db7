//! The admin's kubeconfig: without the ingress certificate at first, with it once the cluster has told its own.

use super::ArtifactError;

/// Checks that `pem` holds at least one X.509 certificate, and nothing that is not one.
///
/// # Errors
/// [`ArtifactError::Certificate`]
pub fn parse_ca(pem: &str) -> Result<(), ArtifactError> {
    let _ = pem;
    unimplemented!("artifacts::parse_ca")
}

/// The kubeconfig with the ingress CA (`pem`, one certificate or a bundle) appended to the CA data of its clusters.
///
/// # Errors
/// [`ArtifactError::Kubeconfig`] and [`ArtifactError::Certificate`]
pub fn merge_ingress_cert(kubeconfig: &[u8], pem: &str) -> Result<Vec<u8>, ArtifactError> {
    let _ = (kubeconfig, pem);
    unimplemented!("artifacts::merge_ingress_cert")
}
