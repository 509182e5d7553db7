//! The service that a run runs against.
//!
//! * [`watch`] follows the tables of a service through a trigger.

pub mod watch;
