//! Exploration: the lab looks for defects by itself. From a tape of choices a scenario is drawn, run in virtual time and judged by
//! what must hold in every run; what is new about it guides what is tried next, and what is wrong is made as small as it can be.
//!
//! * [`tape`] is the tape, [`scenario`] draws from it, on what [`base`] takes apart or its grammar makes.
//! * [`oracle`] says what is wrong in a run, [`reach`] what it has reached.
//! * [`search`] chooses what is tried, keeps what is worth it, and knows what was found; [`shrink`] makes it small. [`reduce`] does that to
//!   any scenario that fails, over its file.
//!
//! * [`frozen`] moves what is drawn behind the moment of a snapshot.
//! * [`exhaustive`] goes through all of a small world.
//! * [`against`] takes what was drawn to another service, [`end`] compares how a run ended there, [`closely`] more of it where words and clock are the same; [`record`] is what is known of a finding, [`findings`] a folder of them.
//!
//! All of it is pure: who has threads, clocks and folders is a shell around it.

pub mod against;
mod asking;
mod asking_hub;
pub mod base;
pub mod closely;
pub mod end;
pub mod exhaustive;
pub mod findings;
pub mod frozen;
mod grammar;
pub mod oracle;
pub mod reach;
pub mod record;
pub mod reduce;
pub mod scenario;
pub mod search;
pub mod shrink;
pub mod tape;
#[cfg(test)]
mod tests;

pub use base::Base;
pub use oracle::{Outcome, Violation};
pub use record::{Record, Shows};
pub use scenario::{Drawn, Space};
pub use search::{Proposal, Search, SearchSpace, Tried, attempt};
pub use shrink::{Shrunk, finding, scenario_of, shrink};
pub use tape::{Draw, TapeFile, Trace};
