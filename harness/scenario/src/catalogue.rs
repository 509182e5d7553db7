//! Where scenarios, hardware profiles and time profiles come from.

use std::path::PathBuf;

use crate::diagnostic::{LoadError, SourceFile};

/// A scenario of the catalogue, without its body.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Entry {
    /// Its name, to run it by.
    pub name: String,
    /// What it proves, first paragraph.
    pub description: String,
    /// Tags.
    pub tags: Vec<String>,
    /// File, or its name inside the program.
    pub path: String,
    /// Why it cannot be read, if it cannot.
    pub broken: Option<String>,
}

/// No scenario of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no scenario named {name:?}")]
pub struct NotFound {
    /// What was asked for.
    pub name: String,
    /// Names that are near to it.
    pub nearest: Vec<String>,
    /// Where it was looked for.
    pub searched: String,
}

/// Why the catalogue did not give what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// Nothing of that name.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// It is there and cannot be read.
    #[error(transparent)]
    Unreadable(#[from] LoadError),
}

/// A folder of scenarios and profiles, or the copy inside the program.
#[derive(Clone, Debug)]
pub struct Catalogue {
    _root: Option<PathBuf>,
}

impl Catalogue {
    /// `VLAB_SCENARIOS`, else `scenarios` in the working directory or above it, else the copy inside the program.
    pub fn discover() -> Result<Self, LoadError> {
        unimplemented!("the catalogue")
    }

    /// The copy inside the program.
    pub fn embedded() -> Self {
        unimplemented!("the catalogue")
    }

    /// A scenario by its name or by the path of its file.
    pub fn find(&self, name: &str) -> Result<SourceFile, CatalogueError> {
        let _ = name;
        unimplemented!("the catalogue")
    }

    /// All scenarios, by name.
    pub fn list(&self) -> Vec<Entry> {
        unimplemented!("the catalogue")
    }

    /// Text of a hardware profile.
    pub fn hardware_profile(&self, name: &str) -> Option<String> {
        let _ = name;
        unimplemented!("the catalogue")
    }

    /// Names of the hardware profiles.
    pub fn hardware_profiles(&self) -> Vec<String> {
        unimplemented!("the catalogue")
    }
}
