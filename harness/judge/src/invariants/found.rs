//! What a check that reads a whole history for itself finds.

use super::reader::KEPT_DETAILS;
use super::{InvariantResult, InvariantVerdict, Named};

/// Checks that were made, and those that did not hold.
#[derive(Default)]
pub(super) struct Found {
    checked: usize,
    problems: Vec<(u64, String)>,
}

impl Found {
    pub(super) fn check(&mut self, seq: u64, holds: bool, text: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.problems.push((seq, text()));
        }
    }

    /// So many were checked and are right.
    pub(super) fn right(&mut self, count: usize) {
        self.checked += count;
    }

    /// The result; `reason` says why nothing was checked, if so.
    pub(super) fn result(self, of: Named, reason: impl FnOnce() -> String) -> InvariantResult {
        let Self { checked, problems } = self;
        let verdict = match problems.iter().map(|(seq, _)| *seq).min() {
            None if checked == 0 => InvariantVerdict::NotApplicable { reason: reason() },
            None => InvariantVerdict::Held,
            Some(first_seq) => {
                let count = problems.len();
                let mut details: Vec<String> = problems.into_iter().take(KEPT_DETAILS).map(|(_, text)| text).collect();
                if count > details.len() {
                    details.push(format!("and {} more", count - details.len()));
                }
                InvariantVerdict::Violated { details, first_seq }
            }
        };
        InvariantResult { id: of.id, title: of.title, verdict, checked }
    }
}
