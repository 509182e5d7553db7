//! The simulated assisted-service in real time: HTTP, the clock and stores around the core of `vlab-service`, and the image service on the
//! same address or beside a real service.
//!
//! * [`serve`] is the way in. Connections hand requests to one task, the engine, which owns the core and the store.
//! * [`store`] keeps what the core writes: in memory, or in PostgreSQL ([`pg`]).
//! * [`serve_replica`] is one of several services on one database.
//! * [`serve_images`] is the image service by itself.
//! * [`hub`] carries what the service's controllers and a Kubernetes API server say to each other.
//! * [`program`]: what `vlab service` and the program of the container image share.

mod body;
mod connection;
mod engine;
pub mod hub;
mod images;
mod metrics;
pub mod pg;
mod port;
pub mod program;
mod replica;
mod serve;
pub mod store;

pub use images::serve_images;
pub use replica::{Replica, serve_replica};
pub use serve::{Holder, Limits, Listen, ServeError, ServeOptions, serve};
