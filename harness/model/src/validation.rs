//! All validations as data, with evaluators.

use serde::{Deserialize, Serialize};

/// Result of a validation, as the API spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValidationStatus {
    /// Holds.
    Success,
    /// Does not hold.
    Failure,
    /// Cannot be decided yet.
    Pending,
    /// Cannot be decided because of broken input.
    Error,
    /// Switched off.
    Disabled,
}
