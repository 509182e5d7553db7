//! Simulated hosts: machines that boot a discovery image, register, poll, answer what they are asked, install themselves,
//! reboot and come back as nodes of a cluster; and the controller inside that cluster. Nothing here does I/O, reads a clock or
//! rolls dice other than the run's own: a shell ([`vlab_api::actor`]) gives the time and carries the requests.
//!
//! * [`profile`] is what machines are made of. [`plan`] is what a fleet is told. [`boot`] is what a discovery image with static
//!   networks makes of a machine's interfaces and addresses.
//! * [`fleet`] is many hosts as one actor; [`host`] one of them; [`steps`] what an agent answers.
//! * [`installer`] holds the scripts of the roles; [`cluster`] is the inside of a cluster; [`controller`] runs in it.
//! * [`hands`] is how the same hosts do their work on real machines. [`archive`] packs logs.
//! * [`registration`] is what a service answers to a registration. [`calls`] says which requests are tried again. [`network`] is who reaches whom.
//! * [`fault`] is what can be wrong with hosts, with the network between them and with the inside of a cluster.
//! * [`alteration`] is what can be wrong on purpose, so that the checks can be tested.
//! * [`ingress`] makes the certificate that a cluster's controller uploads. [`rng`] is where random choices come from.

pub mod alteration;
pub mod archive;
pub mod boot;
pub mod calls;
pub mod cluster;
pub mod controller;
pub mod fault;
pub mod fleet;
pub mod hands;
pub mod host;
pub mod ingress;
pub mod installer;
pub mod network;
pub mod plan;
pub mod profile;
pub mod registration;
pub mod rng;
pub mod steps;
mod world;

pub use alteration::Alteration;
pub use boot::{Boot, DiscoveryImage};
pub use fault::{ClusterFault, Garble, HostFault};
pub use fleet::{ConnectionUse, Fleet};
pub use hands::{Hands, Observed, ObservedNode, Ran, Work};
pub use host::Agent;
pub use network::Reachability;
pub use plan::{ClusterPlan, DnsView, FleetConfig, HostPlan};
pub use profile::{HardwareProfile, HostAddresses};
