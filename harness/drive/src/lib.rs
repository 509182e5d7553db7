//! Drives a run, without I/O: what the user, the simulated hosts and the faults do, as a function of what was seen.
//!
//! * [`target`] is which service is tested; [`prepare`] brings together what a run needs to know.
//! * [`user`] plays the user's part through the API; [`fault`] knows when something goes wrong on purpose, and what that does
//!   to whom; [`requests`] which requests to the service go wrong.
//! * [`addresses`] are those that a scenario's hosts have.
//! * [`conductor`] brings user, simulated hosts and history together: real time and virtual time both use it.
//! * [`journal`] is what a conductor was told, so that a frozen run can be continued.
//! * [`simulate`] runs it all in virtual time over an in-memory transport.
//! * [`hub`] is the Kubernetes API server of a run that asks over Kubernetes, with the service's controllers.
//! * [`alterations`] are what can be wrong with service and hosts on purpose, to see what the judge notices.
//! * [`explore`] looks for defects by itself.
//! * [`coverage`] is what the runs of a catalogue have exercised of the service's machines.

pub mod addresses;
pub mod alterations;
mod asked;
pub mod conductor;
mod contacts;
pub mod coverage;
pub mod explore;
pub mod fault;
pub mod hub;
pub mod interleave;
pub mod journal;
mod members;
pub mod prepare;
pub mod requests;
mod rest;
pub mod simulate;
pub mod target;
pub mod user;
