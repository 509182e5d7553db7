//! The tape: every choice of an exploration, in order. What is drawn from the same tape is the same. 0 is the plainest value of
//! each choice, so an empty tape is the plainest thing that can be drawn, and a tape with smaller numbers is a simpler thing.

use std::fmt::Write as _;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Version of a tape's file. Raised when its form changes; a file of another version is refused by name.
pub const TAPE_VERSION: u32 = 1;

/// A choice that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What was chosen; for people.
    pub label: &'static str,
    /// The number that was chosen.
    pub value: u64,
}

/// Choices that belong together: what one fault is made of, for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// What they make; for people.
    pub label: &'static str,
    /// The first of them.
    pub begin: usize,
    /// The first that is none of them.
    pub end: usize,
}

/// All that was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The choices, in order.
    pub choices: Vec<Choice>,
    /// Which of them belong together.
    pub stretches: Vec<Stretch>,
}

impl Trace {
    /// Bare numbers, of which nobody knows yet what they choose.
    pub fn of_numbers(numbers: &[u64]) -> Self {
        let choices = numbers.iter().map(|value| Choice { label: "not tried yet", value: *value }).collect();
        Self { choices, stretches: Vec::new() }
    }

    /// The bare numbers, without the zeros at the end: these are what is chosen anyway.
    pub fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.choices.iter().map(|choice| choice.value).collect();
        let used = numbers.iter().rposition(|n| *n != 0).map_or(0, |last| last + 1);
        numbers.truncate(used);
        numbers
    }
}

/// Which values of some choices a draw leaves out: few kinds of things at a time find more than all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swarm {
    /// Decides which.
    pub seed: u64,
    /// So many of a hundred values are kept.
    pub keep: u64,
}

impl Swarm {
    fn keeps(self, label: &str, value: u64) -> bool {
        let start = self.seed ^ 0xcbf2_9ce4_8422_2325;
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = label.bytes().chain(value.to_le_bytes()).fold(start, mix);
        (hash ^ hash >> 29) % 100 < self.keep
    }
}

/// Draws from a tape. Behind its end it draws zeros, or what dice say.
#[derive(Debug)]
pub struct Draw<'a> {
    given: &'a [u64],
    dice: Option<ChaCha8Rng>,
    swarm: Option<Swarm>,
    trace: Trace,
}

/// What is there in a list.
fn at<T: Copy>(list: &[T], index: u64) -> Option<T> {
    usize::try_from(index).ok().and_then(|index| list.get(index)).copied()
}

impl<'a> Draw<'a> {
    /// Draws what the tape says, and zeros behind its end.
    pub fn replay(given: &'a [u64]) -> Self {
        Self { given, dice: None, swarm: None, trace: Trace::default() }
    }

    /// Draws what the tape says, and behind its end what the dice of that seed say.
    pub fn go_on(given: &'a [u64], seed: u64, swarm: Option<Swarm>) -> Self {
        Self { given, dice: Some(ChaCha8Rng::seed_from_u64(seed)), swarm, trace: Trace::default() }
    }

    /// What was chosen.
    pub fn finish(self) -> Trace {
        self.trace
    }

    fn take(&mut self, label: &'static str, fresh: impl FnOnce(&mut ChaCha8Rng) -> u64, of: u64) -> u64 {
        let of = of.max(1);
        let value = match (self.given.get(self.trace.choices.len()), &mut self.dice) {
            // A value of another tape may be too large.
            (Some(value), _) => value % of,
            (None, Some(dice)) => fresh(dice) % of,
            (None, None) => 0,
        };
        self.trace.choices.push(Choice { label, value });
        value
    }

    /// One of so many, from 0.
    pub fn choose(&mut self, label: &'static str, of: u64) -> u64 {
        self.take(label, |dice| dice.next_u64(), of)
    }

    /// One of so many kinds, of which a swarm leaves some out.
    pub fn kind(&mut self, label: &'static str, of: u64) -> u64 {
        let swarm = self.swarm;
        let fresh = |dice: &mut ChaCha8Rng| {
            let mut value = dice.next_u64() % of.max(1);
            // A swarm may leave all of them out.
            for _ in 0..50 {
                if swarm.is_none_or(|swarm| swarm.keeps(label, value)) {
                    break;
                }
                value = dice.next_u64() % of.max(1);
            }
            value
        };
        self.take(label, fresh, of)
    }

    /// Yes in so many of a hundred cases; no is the plain answer.
    pub fn chance(&mut self, label: &'static str, percent: u64) -> bool {
        self.take(label, |dice| u64::from(dice.next_u64() % 100 < percent), 2) == 1
    }

    /// One of a list, of which the first is the plainest, and those that come first are drawn more often.
    pub fn early<T: Copy>(&mut self, label: &'static str, list: &[T]) -> Option<T> {
        let of = list.len().max(1) as u64;
        let index = self.take(label, |dice| (dice.next_u64() % of).min(dice.next_u64() % of), of);
        at(list, index)
    }

    /// One of a list, of which the first is the plainest.
    pub fn pick<T: Copy>(&mut self, label: &'static str, list: &[T]) -> Option<T> {
        let index = self.choose(label, list.len() as u64);
        at(list, index)
    }

    /// One of a list of kinds, of which a swarm leaves some out.
    pub fn pick_kind<T: Copy>(&mut self, label: &'static str, list: &[T]) -> Option<T> {
        let index = self.kind(label, list.len() as u64);
        at(list, index)
    }

    /// Choices that belong together.
    pub fn stretch<R>(&mut self, label: &'static str, draw: impl FnOnce(&mut Self) -> R) -> R {
        let begin = self.trace.choices.len();
        let result = draw(self);
        self.trace.stretches.push(Stretch { label, begin, end: self.trace.choices.len() });
        result
    }
}

/// A tape in its file, with what it must be drawn with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapeFile {
    /// The digest of the space that it is of: the same numbers make another thing elsewhere.
    pub space: String,
    /// The numbers.
    pub numbers: Vec<u64>,
}

/// Why a file is no tape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTape {
    /// Something else.
    #[error("this is no tape: it does not begin with `vlab tape {TAPE_VERSION}`")]
    NoTape,
    /// A tape of another version.
    #[error(
        "this is a tape of version {0}, and this program reads version {TAPE_VERSION}: explore again, or use the program that wrote it"
    )]
    Version(String),
    /// A line that cannot be read.
    #[error("line {line}: {text:?} is not a number and what it chooses")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
}

impl TapeFile {
    /// As it is written: one choice a line, with what it chooses for people.
    pub fn write(space: &str, trace: &Trace) -> String {
        let mut text = format!("vlab tape {TAPE_VERSION}\nspace {space}\n");
        for choice in trace.choices.iter().take(trace.numbers().len()) {
            let _ = writeln!(text, "{} {}", choice.value, choice.label);
        }
        text
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`BadTape`].
    pub fn read(text: &str) -> Result<Self, BadTape> {
        let mut lines = text.lines().enumerate();
        let first = lines.next().and_then(|(_, line)| line.strip_prefix("vlab tape ")).ok_or(BadTape::NoTape)?;
        if first.trim() != TAPE_VERSION.to_string() {
            return Err(BadTape::Version(first.trim().to_owned()));
        }
        let bad = |line: usize, text: &str| BadTape::Line { line: line + 1, text: text.to_owned() };
        let space = match lines.next() {
            Some((at, line)) => line.strip_prefix("space ").ok_or_else(|| bad(at, line))?.trim().to_owned(),
            None => return Err(bad(1, "")),
        };
        let number = |(at, line): (usize, &str)| {
            line.split(' ').next().and_then(|n| n.parse().ok()).ok_or_else(|| bad(at, line))
        };
        let numbers = lines.filter(|(_, line)| !line.trim().is_empty()).map(number).collect::<Result<_, _>>()?;
        Ok(Self { space, numbers })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some(draw: &mut Draw<'_>) -> Vec<u64> {
        let mut all = vec![draw.choose("a", 10), draw.kind("b", 7)];
        while draw.stretch("more", |draw| {
            let more = draw.chance("one more", 60);
            if more {
                all.push(draw.choose("c", 1000));
            }
            more
        }) {}
        all
    }

    proptest! {
        /// What was drawn is drawn again from its tape, from the numbers in memory and from the file.
        #[test]
        fn a_tape_says_it_all(seed: u64, swarm in proptest::option::of((any::<u64>(), 10_u64..100))) {
            let swarm = swarm.map(|(seed, keep)| Swarm { seed, keep });
            let mut draw = Draw::go_on(&[], seed, swarm);
            let drawn = some(&mut draw);
            let trace = draw.finish();
            let file = TapeFile::read(&TapeFile::write("x", &trace)).unwrap();
            prop_assert_eq!(&file.numbers, &trace.numbers());
            let mut again = Draw::replay(&file.numbers);
            prop_assert_eq!(some(&mut again), drawn);
            prop_assert_eq!(again.finish(), trace);
        }
    }

    #[test]
    fn an_empty_tape_is_the_plainest() {
        let mut draw = Draw::replay(&[]);
        assert_eq!(some(&mut draw), [0, 0]);
        assert_eq!(draw.finish().numbers(), [0_u64; 0]);
    }

    #[test]
    fn a_swarm_leaves_kinds_out() {
        let kinds = |seed| {
            let mut draw = Draw::go_on(&[], 5, Some(Swarm { seed, keep: 30 }));
            (0..500).map(|_| draw.kind("kind", 40)).collect::<std::collections::BTreeSet<_>>()
        };
        assert!((3..30).contains(&kinds(1).len()), "{:?}", kinds(1));
        assert_ne!(kinds(1), kinds(2));
    }

    #[rstest::rstest]
    #[case("version: 1\n", "this is no tape")]
    #[case("vlab tape 0\nspace x\n", "a tape of version 0")]
    #[case("vlab tape 1\nspace x\n3 kind\nkind\n", "line 4")]
    fn what_is_no_tape_is_refused(#[case] text: &str, #[case] why: &str) {
        let error = TapeFile::read(text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
