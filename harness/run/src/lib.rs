//! From a scenario to a verdict.
//!
//! * [`moment`] follows a growing history; [`user`] plays the user's part through the API.
//! * [`fault`] knows when something goes wrong on purpose, and what that does to simulated hosts.
//! * [`conductor`] brings user, simulated hosts and history together, without I/O: both ways to run use it.
//! * [`simulate`] runs it all in virtual time over an in-memory transport; [`real`] over HTTP, PostgreSQL and processes;
//!   [`target`] is the service that it runs against.
//! * [`vm`] is what a real run does with virtual machines.
//! * [`verdict`] judges a history, [`pivot`] measures and judges the bootstrap's pivot in it; [`rundir`] is the folder of a run.
//! * [`coverage`] is what the runs of a catalogue have exercised of the service's machines.

pub mod conductor;
pub mod container;
pub mod coverage;
pub mod fault;
pub mod live;
pub mod moment;
pub mod needs;
pub mod pivot;
pub mod prepare;
pub mod real;
pub mod rundir;
pub mod service;
pub mod simulate;
pub mod target;
pub mod traffic;
pub mod user;
pub mod verdict;
pub mod vm;
