//! What must hold in every history, whatever the scenario: the invariants I1 to I15 and their checkers.

use crate::history::Observation;

/// What an invariant speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InvariantScope {
    /// Hosts and clusters alike.
    All,
    /// Each host.
    Host,
    /// Each cluster.
    Cluster,
    /// The bootstrap's pivot, and what waits for it.
    Pivot,
    /// The events API.
    Events,
    /// The steps that hosts are given.
    Steps,
    /// The same thing seen in several ways.
    Views,
    /// Several services on one database.
    HighAvailability,
    /// Hosts that are bound late.
    LateBinding,
}

/// An invariant as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invariant {
    /// `I1` ... `I15`.
    pub id: &'static str,
    /// The invariant in one sentence.
    pub title: &'static str,
    /// What it speaks of.
    pub scope: InvariantScope,
    /// What a history must hold so that it can be judged.
    pub needs: &'static str,
}

/// What a checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvariantVerdict {
    /// It was checked and held each time.
    Held,
    /// It did not hold.
    Violated {
        /// Each violation in one line, in order.
        details: Vec<String>,
        /// Observation that shows the first one.
        first_seq: u64,
    },
    /// The history does not hold what the check needs.
    NotApplicable {
        /// What is missing.
        reason: String,
    },
}

/// Result of one invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvariantResult {
    /// `I1` ... `I15`.
    pub id: &'static str,
    /// The invariant in one sentence.
    pub title: &'static str,
    /// What was found.
    pub verdict: InvariantVerdict,
    /// How many times something was checked; above 0 unless not applicable.
    pub checked: usize,
}

/// Checks all invariants over a history, in the order of their ids.
pub fn check_all(_history: &[Observation]) -> Vec<InvariantResult> {
    unimplemented!("checkers of the invariants")
}
