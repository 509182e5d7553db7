//! `vlab` as people use it: the program, its exit codes, what it prints and what it leaves on the machine.
//!
//! One program for all of it, so that it is linked once. What runs whole scenarios is in modules whose names begin with
//! `e2e`: nextest runs those one at a time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod bench;
mod e2e_clients;
mod e2e_conformance;
mod e2e_containers;
mod e2e_death;
mod e2e_diff;
mod e2e_disturbed;
mod e2e_explore;
mod e2e_faults;
mod e2e_hub;
mod e2e_lab;
mod e2e_load;
mod e2e_machines;
mod e2e_places;
mod e2e_runs;
mod e2e_sessions;
mod e2e_snapshots;
mod e2e_ui;
mod ssh;
mod verbs;
mod vm_installs;
mod vm_slow;
