//! Simulated hosts: machines that boot a discovery image, register, poll, answer what they are asked, install themselves,
//! reboot and come back as nodes of a cluster; and the controller inside that cluster. Nothing here does I/O, reads a clock or
//! rolls dice other than the run's own: a shell ([`vlab_api::actor`]) gives the time and carries the requests.
//!
//! * [`profile`] is what machines are made of. [`plan`] is what a fleet is told.
//! * [`fleet`] is many hosts as one actor.
//! * [`ingress`] makes the certificate that a cluster's controller uploads. [`rng`] is where random choices come from.

pub mod fleet;
pub mod ingress;
pub mod plan;
pub mod profile;
pub mod rng;
pub mod timing;

pub use fleet::Fleet;
pub use plan::{ClusterPlan, DnsView, FleetConfig, HostOverrides, HostPlan};
pub use profile::{HardwareProfile, HostAddresses};
