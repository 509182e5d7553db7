//! Does what was seen follow the steps of a sequence?

use std::collections::BTreeSet;

use crate::words::SequenceMode;

/// Where what was seen leaves the steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// Position in what was seen of the first thing that does not fit; its length when something is missing at the end.
    pub seen: usize,
    /// Positions of the steps that would have fitted there, in order. Empty: nothing more was to come.
    pub expected: Vec<usize>,
}

/// Compares what was seen, in order, with steps, of which those at `optional` may be missing.
///
/// `Exact`: from the first to the last, nothing else. `Partial`: the steps come in this order, with anything before, between and
/// after them.
pub fn follow<T: PartialEq>(
    steps: &[T],
    optional: &BTreeSet<usize>,
    mode: SequenceMode,
    seen: &[T],
) -> Result<(), Deviation> {
    // The steps that can come next when `i` of them are done.
    let next = |i: usize| {
        let last = (i..steps.len()).find(|j| !optional.contains(j)).map_or(steps.len(), |j| j + 1);
        i..last
    };
    let finished = |i: usize| (i..steps.len()).all(|j| optional.contains(&j));
    let mut done: BTreeSet<usize> = BTreeSet::from([0]);
    for (at, thing) in seen.iter().enumerate() {
        let mut after: BTreeSet<usize> =
            done.iter().flat_map(|i| next(*i)).filter(|j| steps[*j] == *thing).map(|j| j + 1).collect();
        if mode == SequenceMode::Partial {
            after.extend(&done);
        } else if after.is_empty() {
            let expected: BTreeSet<usize> = done.iter().flat_map(|i| next(*i)).collect();
            return Err(Deviation { seen: at, expected: expected.into_iter().collect() });
        }
        done = after;
    }
    if done.iter().any(|i| finished(*i)) {
        return Ok(());
    }
    // The furthest that was reached tells most.
    let reached = done.last().copied().unwrap_or(0);
    Err(Deviation { seen: seen.len(), expected: next(reached).collect() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn run(steps: &str, mode: SequenceMode, seen: &str) -> Result<(), Deviation> {
        let mut plain: Vec<char> = vec![];
        let mut optional = BTreeSet::new();
        for c in steps.chars() {
            if c == '?' {
                optional.insert(plain.len() - 1);
            } else {
                plain.push(c);
            }
        }
        follow(&plain, &optional, mode, &seen.chars().collect::<Vec<_>>())
    }

    #[rstest]
    #[case::same("abc", "abc", None)]
    #[case::other("abc", "axc", Some((1, vec![1])))]
    #[case::missing_end("abc", "ab", Some((2, vec![2])))]
    #[case::one_more("abc", "abcd", Some((3, vec![])))]
    #[case::nothing("abc", "", Some((0, vec![0])))]
    #[case::optional_there("ab?c", "abc", None)]
    #[case::optional_missing("ab?c", "ac", None)]
    #[case::optional_twice("ab?c", "abbc", Some((2, vec![2])))]
    #[case::two_optional("ab?c?d", "acd", None)]
    #[case::two_optional_order("ab?c?d", "acbd", Some((2, vec![3])))]
    #[case::ambiguous_short("ab?ab", "ab", Some((2, vec![2])))]
    #[case::ambiguous_long("ab?ab", "aab", None)]
    #[case::optional_end("ab?", "a", None)]
    fn exact(#[case] steps: &str, #[case] seen: &str, #[case] deviation: Option<(usize, Vec<usize>)>) {
        let expected = deviation.map_or(Ok(()), |(seen, expected)| Err(Deviation { seen, expected }));
        assert_eq!(run(steps, SequenceMode::Exact, seen), expected);
    }

    #[rstest]
    #[case("ac", "abcd", true)]
    #[case("ac", "ca", false)]
    #[case("ac", "cac", true)]
    #[case("ab?c", "xaxcx", true)]
    #[case("abc", "ab", false)]
    fn partial(#[case] steps: &str, #[case] seen: &str, #[case] fits: bool) {
        assert_eq!(run(steps, SequenceMode::Partial, seen).is_ok(), fits);
    }

    proptest! {
        /// What fits exactly fits partially too, also with anything put between.
        #[test]
        fn exact_is_the_stricter(steps in "[ab]{1,5}", seen in "[ab]{0,6}", at in 0usize..7) {
            if run(&steps, SequenceMode::Exact, &seen).is_ok() {
                let mut more = seen.clone();
                more.insert(at.min(seen.len()), 'x');
                prop_assert!(run(&steps, SequenceMode::Partial, &more).is_ok());
                prop_assert_eq!(&steps, &seen);
            }
        }
    }
}
