//! What is wrong with the lab, which is never the product's fault.

use std::fmt::Display;

/// The lab cannot be had, or something in it broke.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}")]
pub struct LabError {
    /// Which part of it; the name of the check that fails.
    pub what: &'static str,
    /// What is wrong. The first line says it, lines after it are details.
    pub error: String,
    /// The end of that part's log, when it has one.
    pub log: Vec<String>,
}

impl LabError {
    /// Something is wrong with that part.
    pub fn new(what: &'static str, error: impl Into<String>) -> Self {
        Self { what, error: error.into(), log: Vec::new() }
    }

    /// The user wants an end while the lab is being set up.
    pub(crate) fn interrupted() -> Self {
        Self::new("set-up", "interrupted")
    }

    /// With the end of a log.
    #[must_use]
    pub(crate) fn with_log(self, log: Vec<String>) -> Self {
        Self { log, ..self }
    }
}

/// Makes errors of that part of the lab: `.map_err(lab("postgresql"))`.
pub(crate) fn lab<E: Display>(what: &'static str) -> impl Fn(E) -> LabError {
    move |error| LabError::new(what, error.to_string())
}
