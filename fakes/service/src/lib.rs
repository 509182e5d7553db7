//! The simulated assisted-service: REST, monitors, ignition.
//!
//! * [`artifacts`] makes the files of an installation: ignition configs, kubeconfig, certificates.

pub mod artifacts;
