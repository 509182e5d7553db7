//! The scenario language: one YAML file says what is built, what happens and what must be true.
//!
//! * [`load`] reads, checks and resolves a file into a [`Scenario`]; what is wrong comes as a [`LoadError`] that shows every
//!   mistake with file, line, column and excerpt.
//! * [`Catalogue`] finds scenarios, hardware profiles and time profiles: in a folder, or in the copy inside the program.
//! * [`schema`] is the JSON Schema for editors.
//! * [`fault_rows`] is the table of the kinds of faults; [`Injection`] is one of them with its parameters.
//! * [`reference_keys`] and [`reference_faults`] are the pages of the reference.
//! * [`time`] holds the one rule about durations.

mod catalogue;
mod check;
mod describe;
mod diagnostic;
mod events;
mod faults;
mod file;
mod follow;
mod interleaving;
mod moment;
mod parse;
mod paths;
mod plan;
mod quarantine;
mod reference;
mod resources;
mod spanned;
mod stretch;
pub mod time;
mod types;
mod words;

pub use catalogue::{Catalogue, CatalogueEntry, CatalogueError, NotFound};
pub use check::api::params_of_a_cluster;
pub use describe::{moment_words, never_words, seen_words, subject_words};
pub use diagnostic::{LoadError, MAX_BYTES, Problem, SourceFile, suggestion};
pub use events::EVENT_NAMES;
pub use faults::*;
pub use follow::{Deviation, SequenceStep, Times, follow};
pub use interleaving::Interleaving;
pub use moment::named_moment;
pub use plan::{
    LoadPhase, LoadPlan, PhaseKind, PlannedClusters, SHORTEST_SOAK, StopWhen, Thresholds, load_plan, plan_schema_text,
};
pub use quarantine::{QUARANTINE, Quarantined};
pub use reference::{Examples, reference_faults, reference_keys};
pub use resources::{ResourceOf, condition_types};
pub use stretch::{STRETCHES, Stretch};
pub use time::Span;
pub use types::*;
pub use words::*;

/// Reads, checks and resolves a scenario.
///
/// Nothing is started and nothing but the catalogue's profiles is read. A file that is no YAML, or not of the language's form,
/// gives the first mistake; every other kind of mistake is found together with all others.
pub fn load(source: &SourceFile, catalogue: &Catalogue) -> Result<Scenario, LoadError> {
    let (file, text) = parse::parse::<file::ScenarioFile>(source)?;
    check::check(&file, source, &text, catalogue).map_err(|problems| LoadError::new(&source.name, text, problems))
}

/// A file as bare values, without a look at what they mean: for who changes scenarios.
///
/// # Errors
/// It is no YAML.
pub fn read_value(source: &SourceFile) -> Result<serde_json::Value, LoadError> {
    parse::parse::<serde_json::Value>(source).map(|(value, _)| value)
}

/// The JSON Schema (2020-12) of the language, for editors. It is made from the same types that read the file.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(file::ScenarioFile);
    schema.insert("title".to_owned(), "vlab scenario".into());
    schema.to_value()
}

/// [`schema`] as the committed file has it.
pub fn schema_text() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
    text.push('\n');
    text
}
