//! Judges histories: a function of a history and its scenario, without I/O.
//!
//! * [`invariant`] is what must hold in every history.
//! * [`result`] is the verdict of a run in full; it is `result.json`.

pub mod invariant;
pub mod result;

pub use result::RunResult;
