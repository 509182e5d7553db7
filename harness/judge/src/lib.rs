//! Judges histories: a function of a history and its scenario, without I/O.
//!
//! * [`moment`] follows a growing history and knows when a moment of a scenario has come.
//! * [`verdict`] judges a history, [`pivot`] measures and judges the bootstrap's pivot in it; [`invariants`] is what must hold
//!   in every history.
//! * [`lives`] is what a history says about the faults of its run.
//! * [`coverage`] is what of a list of things runs have reached.
//! * [`cause`] is what went wrong first, and what follows from it.
//! * [`result`] is the verdict of a run in full; it is `result.json`.

pub mod cause;
pub mod coverage;
pub mod invariants;
pub mod lives;
pub mod moment;
pub mod pivot;
pub mod result;
pub mod verdict;

pub use result::RunResult;
