//! The simulated assisted-service: REST, monitors, ignition, images.
//!
//! * [`artifacts`] makes the files of an installation: ignition configs, kubeconfig, certificates.
//! * [`core`] is the service itself, without I/O: requests in, answers and writes out.
//! * [`image`] is the image service: discovery images, put together while they are sent.
//! * [`server`] runs it in real time: HTTP, the clock, one transaction per batch of requests. [`serve`] is the way in.
//! * [`store`] keeps what the core writes: in memory, or in PostgreSQL ([`pg`]).
//! * [`openshift_install`] is what a real service starts in the place of the program of that name.
//! * [`program`]: what `vlab service` and the program of the container image share.

pub mod artifacts;
pub mod core;
pub mod image;
pub mod openshift_install;
pub mod pg;
pub mod program;
pub mod server;
pub mod store;

pub use server::{Limits, Listen, ServeError, ServeOptions, serve};
