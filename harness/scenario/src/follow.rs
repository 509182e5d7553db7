//! The steps of a sequence, and whether what was seen follows them.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::words::SequenceMode;

/// How often a step may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    /// It must come.
    Once,
    /// It may be missing.
    AtMostOnce,
    /// It may be missing, and come again and again.
    Any,
}

/// A step of a sequence: what may come there, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SequenceStep<T> {
    /// Each of these is right. Never empty.
    pub any_of: Vec<T>,
    /// How often.
    pub times: Times,
}

impl<T> SequenceStep<T> {
    /// One that must come.
    pub fn once(what: T) -> Self {
        Self { any_of: vec![what], times: Times::Once }
    }

    /// May it be missing?
    pub fn may_be_missing(&self) -> bool {
        self.times != Times::Once
    }
}

/// As in a scenario; what may be missing is in brackets, and what may come again has a star.
impl<T: std::fmt::Display> std::fmt::Display for SequenceStep<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<String> = self.any_of.iter().map(ToString::to_string).collect();
        let words = words.join("|");
        match self.times {
            Times::Once => f.write_str(&words),
            Times::AtMostOnce => write!(f, "[{words}]"),
            Times::Any => write!(f, "[{words}]*"),
        }
    }
}

/// Where what was seen leaves the steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// Position in what was seen of the first thing that does not fit; its length when something is missing at the end.
    pub seen: usize,
    /// Positions of the steps that would have fitted there, in order. Empty: nothing more was to come.
    pub expected: Vec<usize>,
}

/// Compares what was seen, in order, with steps.
///
/// `Exact`: from the first to the last, nothing else. `Partial`: the steps come in this order, with anything before, between and
/// after them.
///
/// # Errors
/// Where the two part.
pub fn follow<T: PartialEq>(steps: &[SequenceStep<T>], mode: SequenceMode, seen: &[T]) -> Result<(), Deviation> {
    // The steps that can come next when those before `i` are done.
    let next = |i: usize| {
        let last = (i..steps.len()).find(|j| !steps[*j].may_be_missing()).map_or(steps.len(), |j| j + 1);
        i..last
    };
    let after = |j: usize| if steps[j].times == Times::Any { j } else { j + 1 };
    let finished = |i: usize| steps[i..].iter().all(SequenceStep::may_be_missing);
    let mut done: BTreeSet<usize> = BTreeSet::from([0]);
    for (at, thing) in seen.iter().enumerate() {
        let fits = |j: &usize| steps[*j].any_of.contains(thing);
        let mut then: BTreeSet<usize> = done.iter().flat_map(|i| next(*i)).filter(fits).map(after).collect();
        if mode == SequenceMode::Partial {
            then.extend(&done);
        } else if then.is_empty() {
            let expected: BTreeSet<usize> = done.iter().flat_map(|i| next(*i)).collect();
            return Err(Deviation { seen: at, expected: expected.into_iter().collect() });
        }
        done = then;
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
        let mut list: Vec<SequenceStep<char>> = vec![];
        let mut or = false;
        for c in steps.chars() {
            match (c, list.last_mut()) {
                ('?', Some(last)) => last.times = Times::AtMostOnce,
                ('*', Some(last)) => last.times = Times::Any,
                ('|', _) => or = true,
                (c, Some(last)) if std::mem::take(&mut or) => last.any_of.push(c),
                (c, _) => list.push(SequenceStep::once(c)),
            }
        }
        follow(&list, mode, &seen.chars().collect::<Vec<_>>())
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
    #[case::one_of_two("a|bc", "bc", None)]
    #[case::neither("a|bc", "c", Some((0, vec![0])))]
    #[case::any_times("ab*c", "abbbc", None)]
    #[case::no_times("ab*c", "ac", None)]
    #[case::back_and_forth("ab|c*cd", "abcbcd", None)]
    #[case::straight("ab|c*cd", "acd", None)]
    #[case::ends_elsewhere("ab|c*cd", "abcbd", Some((4, vec![1, 2])))]
    #[case::something_else("ab|c*cd", "abxcd", Some((2, vec![1, 2])))]
    #[case::never_there("ab|c*cd", "ab", Some((2, vec![1, 2])))]
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
