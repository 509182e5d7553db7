//! The scenario language: one YAML file says what is built, what happens and what must be true.
//!
//! * [`load`] reads, checks and resolves a file into a [`Scenario`]; what is wrong comes as a [`LoadError`] that shows every
//!   mistake with file, line, column and excerpt.
//! * [`Catalogue`] finds scenarios, hardware profiles and time profiles: in a folder, or in the copy inside the program.
//! * [`schema`] is the JSON Schema for editors.
//! * [`time`] holds the one rule about durations.

mod catalogue;
mod diagnostic;
pub mod time;
mod types;
mod words;

pub use catalogue::{Catalogue, CatalogueError, Entry, NotFound};
pub use diagnostic::{LoadError, SourceFile};
pub use time::Span;
pub use types::*;
pub use words::*;

/// Reads, checks and resolves a scenario. All mistakes that can be found are in the error, not only the first.
pub fn load(source: &SourceFile, catalogue: &Catalogue) -> Result<Scenario, LoadError> {
    let _ = (source, catalogue);
    unimplemented!("reading scenarios")
}

/// The JSON Schema of the language.
pub fn schema() -> serde_json::Value {
    unimplemented!("the schema of the language")
}
