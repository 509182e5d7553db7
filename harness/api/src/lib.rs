//! The wire: every request and response that a harness, a host or a user exchanges with an assisted-service.
//!
//! * [`types`] are the objects of the API, [`registry`] lists them; [`spec`] is how a type knows its own schema (used to check request bodies the
//!   way the real service does, and to compare the types with `swagger.yaml`).
//! * [`http`] is a request and a response as plain data. [`ops`] are the operations: typed in, typed out; [`requests`] are those of a user as data.
//! * [`labels`] is how resources select others by their labels.
//! * [`actor`] is the contract of everything that *makes* requests without doing I/O: the simulated hosts, the
//!   in-cluster controller, the user. A shell runs an actor over sockets (`vlab-client`) or in virtual time.

pub mod actor;
mod body;
pub mod http;
pub mod labels;
pub mod ops;
pub mod registry;
pub mod requests;
pub mod spec;
pub mod time;
pub mod types;

pub use time::Timestamp;

/// Path under which every operation of the API lives.
pub const BASE_PATH: &str = "/api/assisted-install/v2";
