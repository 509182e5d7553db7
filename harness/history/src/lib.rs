//! One ordered timeline out of many sources: the service's tables, its events API, what its API shows, and what the
//! harness, the user and the simulated hosts did.
//!
//! * [`facts`] turns two looks at a host or cluster into what changed between them. Every source that sees states (tables,
//!   polls, the simulator's store) uses the same function, so they cannot disagree about what a change is.
//! * [`merge`] puts looks and events together where states come from the API alone.
//! * [`recorder`] gives each observation its place and writes `history.jsonl`; [`read`] reads such a file back.
//! * [`compare`] finds where two histories part.
//! * [`directory`] knows who is who, as far as a history has been read.
//! * [`rules`] reads out of a history which rules of the state machines fired.
//! * [`times`] tells which times of a row did not move with what they time.
//! * [`timeline`] answers questions about a history; verdicts and budgets are made of it.

pub mod compare;
pub mod directory;
pub mod facts;
pub mod merge;
pub mod recorder;
pub mod rules;
pub mod timeline;
pub mod times;

pub use directory::Directory;
pub use recorder::{HistoryError, Recorder, read};
pub use timeline::{Timeline, watched_until};
