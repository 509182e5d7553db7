//! Stretches of sequences that have a name of their own: what may happen there is the service's business and the same in every
//! scenario, so it is written once.

use crate::follow::{SequenceStep, Times};

/// A stretch as data. It begins with `first`, goes through any of `among` in any order and as often as it likes, and ends with
/// `last`.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Its name, a word where a step is written.
    pub word: &'static str,
    /// Is it a cluster's (else it is a host's)?
    pub of_cluster: bool,
    /// Status that it begins with.
    pub first: &'static str,
    /// Statuses that it may go through.
    pub among: &'static [&'static str],
    /// Status that it ends with.
    pub last: &'static str,
    /// Why it may.
    pub why: &'static str,
}

impl Stretch {
    /// It as plain steps.
    pub fn steps(&self) -> [SequenceStep<&'static str>; 3] {
        [
            SequenceStep::once(self.first),
            SequenceStep { any_of: self.among.to_vec(), times: Times::Any },
            SequenceStep::once(self.last),
        ]
    }
}

/// The stretches. Before an installation a status follows the validations, and these follow what hosts report about themselves and
/// each other: one report more, and a host belongs to no majority for a moment.
pub static STRETCHES: &[Stretch] = &[
    Stretch {
        word: "until-ready",
        of_cluster: true,
        first: "insufficient",
        among: &["pending-for-input", "insufficient", "ready"],
        last: "ready",
        why: "a cluster is ready as often as all its hosts are known, and not while one of them is not",
    },
    Stretch {
        word: "until-known",
        of_cluster: false,
        first: "discovering",
        among: &["pending-for-input", "insufficient", "known"],
        last: "known",
        why: "a host is known while its validations hold, and these change with every report about its network",
    },
    Stretch {
        word: "until-known-unbound",
        of_cluster: false,
        first: "discovering-unbound",
        among: &["insufficient-unbound", "known-unbound"],
        last: "known-unbound",
        why: "a host of the pool is known while its validations hold",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::{cluster_edge, host_edge};

    /// Each status that it may go through can be come to from another one of the stretch, and the end from one of them.
    #[test]
    fn stretches_follow_the_machines() {
        for stretch in STRETCHES {
            let edge = if stretch.of_cluster { cluster_edge } else { host_edge };
            let all: Vec<&str> = std::iter::once(stretch.first).chain(stretch.among.iter().copied()).collect();
            for to in stretch.among.iter().chain([&stretch.last]) {
                assert!(all.iter().any(|from| from != to && edge(from, to)), "{}: {to}", stretch.word);
            }
        }
    }
}
