//! What the validations of a host or of a cluster came to last: copied with each change of it, so there are no names in it.

use std::collections::BTreeSet;

use vlab_api::types::{ClusterValidationId, HostValidationId};
use vlab_model::validation::ValidationStatus;

/// Validations by the numbers of their ids.
#[derive(Clone, Debug)]
pub(super) struct Answers<const N: usize> {
    of: [Option<ValidationStatus>; N],
    /// Those that the API does not have.
    others: BTreeSet<String>,
}

/// Of a host.
pub(super) type HostAnswers = Answers<{ HostValidationId::ALL.len() }>;
/// Of a cluster.
pub(super) type ClusterAnswers = Answers<{ ClusterValidationId::ALL.len() }>;

impl<const N: usize> Default for Answers<N> {
    fn default() -> Self {
        Self { of: [None; N], others: BTreeSet::new() }
    }
}

impl<const N: usize> Answers<N> {
    /// Was nothing evaluated?
    pub(super) fn is_empty(&self) -> bool {
        self.others.is_empty() && self.of.iter().all(Option::is_none)
    }

    fn at(&self, number: usize) -> Option<ValidationStatus> {
        self.of.get(number).copied().flatten()
    }

    fn put(&mut self, number: Option<usize>, id: &str, to: Option<ValidationStatus>) {
        match (number.and_then(|number| self.of.get_mut(number)), to) {
            (Some(place), to) => *place = to,
            (None, Some(_)) => {
                self.others.insert(id.to_owned());
            }
            (None, None) => {
                self.others.remove(id);
            }
        }
    }
}

impl HostAnswers {
    /// Its status; `None`: it is not shown.
    pub(super) fn get(&self, id: HostValidationId) -> Option<ValidationStatus> {
        self.at(id as usize)
    }

    /// It came to that; `None`: it is not shown any more.
    pub(super) fn set(&mut self, id: &str, to: Option<ValidationStatus>) {
        self.put(id.parse::<HostValidationId>().ok().map(|id| id as usize), id, to);
    }
}

impl ClusterAnswers {
    /// Its status; `None`: it is not shown.
    pub(super) fn get(&self, id: ClusterValidationId) -> Option<ValidationStatus> {
        self.at(id as usize)
    }

    /// It came to that; `None`: it is not shown any more.
    pub(super) fn set(&mut self, id: &str, to: Option<ValidationStatus>) {
        self.put(id.parse::<ClusterValidationId>().ok().map(|id| id as usize), id, to);
    }
}
