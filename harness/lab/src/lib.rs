//! The world of a run: what exists on this machine because a run needs it, and what makes it go away again.
//!
//! PostgreSQL, programs, containers, directories and sockets are made here and nowhere else; each of them is in the [`ledger`]
//! before it exists, so that the [`supervisor`] removes it even when the harness was killed with `-9`, and [`gc`] finds
//! what is left when both died.

pub mod cleanup;
pub mod containers;
pub mod doctor;
pub mod gc;
mod helper;
pub mod hub;
pub mod iscsi;
pub mod leaks;
pub mod ledger;
pub mod machines;
pub mod network;
pub mod pod;
pub mod postgres;
pub mod proc;
pub mod process;
mod spawn;
pub mod ssh;
pub mod supervisor;
pub mod tree;
mod try_out;
pub mod wait;
