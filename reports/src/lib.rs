//! Reports: a history and a verdict in, `result.json`, `junit_*.xml`, `report.html` and a few lines for the terminal out.
//!
//! Everything here is a function of what it is given; nothing knows how a run is made, so the reports of an old run can be
//! written again from its folder alone.
//!
//! * [`timeline`] reads a history once: lanes, spans, transitions, rows. [`html`] draws it, [`console`] says it in a few
//!   lines, [`junit`] lists the checks for CI.
//! * [`moments`] is the same history as columns, from which the page makes the state at any moment.
//! * [`logs`] reads what the programs of a run logged, for the page.
//! * [`export`] writes a run for other programs: Perfetto, and what reads OTLP.
//! * [`spread`] puts what several runs took side by side.
//! * [`session`] is what several runs gave together: table, JUnit, `session.json`.
//! * [`record`] is what all runs of a folder came to, one line each; [`matrix`] is one session as a table of what was varied.
//! * [`ci`] is what systems that run pipelines want to be told in their own words.
//! * [`coverage`] is what of a list of things runs have reached.
//! * [`redact`] takes secrets out of everything that is written.

pub mod ci;
pub mod console;
pub mod coverage;
pub mod export;
pub mod html;
pub mod junit;
pub mod logs;
pub mod matrix;
pub mod moments;
pub mod record;
pub mod redact;
pub mod session;
pub mod spread;
pub mod timeline;

mod pivot;
mod text;
mod write;

pub use redact::{RedactingWriter, Redactor};
pub use write::{Written, write_all, write_whole};
