//! The rules of the field as data and pure functions: state machines, installation stages, validations.
//! Nothing here does I/O, reads a clock or rolls dice: everything is a function of what it is given.
//!
//! * [`view`] is what the rules look at: API objects with the JSON texts in them parsed once.
//! * [`settings`] are the service's tunables under their own names.
//! * [`machine`] is the form of a state machine; [`host`] and [`cluster`] are the tables and their conditions.
//! * [`stages`] are the installation stages of each role in their legal order.
//! * [`validation`] are all validations as data, with evaluators; [`network`], [`disks`], [`roles`] and [`progress`] are what
//!   the service works out from hosts.
//! * [`disturbance`] is what a fault can pick out on the network of hosts.
//! * [`history`] is what a run observes; [`pivot`] reads the bootstrap's pivot from it.

pub mod cluster;
pub mod console;
pub mod disks;
pub mod disturbance;
pub mod event;
pub mod history;
pub mod host;
pub mod lease;
pub mod mac;
pub mod machine;
pub mod network;
pub mod pivot;
pub mod progress;
pub mod roles;
pub mod settings;
pub mod stages;
pub mod validation;
pub mod view;
