//! Does a process need more and more memory? What it has within the longest hold of a plan, in fifths: in the first it settles (hosts
//! ask for the first time, allocators and buffers take what they will need), the second is the beginning, the last is the end.

use std::fmt;
use std::time::Duration;

use vlab_scenario::{LoadPhase, PhaseKind, SHORTEST_SOAK};

use crate::result::{LoadResult, Second};

/// What a process had at the beginning and at the end, in the middle of the seconds of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Resident memory at the beginning, in KiB.
    pub before_kib: u64,
    /// And at the end.
    pub after_kib: u64,
    /// From the middle of the one to the middle of the other.
    pub within: Duration,
}

impl Growth {
    /// How much more it is, in percent; less is below zero.
    pub fn percent(&self) -> f64 {
        let before = self.before_kib.max(1) as f64;
        (self.after_kib as f64 - before) * 100.0 / before
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = (self.before_kib as f64 / 1024.0, self.after_kib as f64 / 1024.0);
        let within = self.within.as_secs();
        // Nobody wants to read of minus nothing.
        let percent = if self.before_kib == self.after_kib { 0.0 } else { self.percent() };
        write!(f, "{percent:+.1} %: {before:.1} MiB, {within} s later {after:.1} MiB")
    }
}

/// The memory of both sides; `None`: it was not seen long enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Of the generators together.
    pub generator: Option<Growth>,
    /// Of the watched process.
    pub service: Option<Growth>,
}

/// What of the memory was seen within the longest hold; nothing, if that is too short to tell.
pub fn of(result: &LoadResult) -> Memory {
    let long_enough = longest_hold(&result.phases).filter(|(_, takes)| *takes >= SHORTEST_SOAK);
    let Some((begin, hold)) = long_enough else { return Memory::default() };
    let of = |kib: fn(&Second) -> Option<u64>| {
        let fifth = |n: u32| within(&result.seconds, begin + hold * n / 5, begin + hold * (n + 1) / 5, kib);
        Some(Growth { before_kib: fifth(1)?, after_kib: fifth(4)?, within: hold * 3 / 5 })
    };
    Memory { generator: of(|second| Some(second.generator_kib)), service: of(|second| second.service_kib) }
}

/// When it begins, and how long it takes.
fn longest_hold(phases: &[LoadPhase]) -> Option<(Duration, Duration)> {
    let mut begin = Duration::ZERO;
    let holds = phases.iter().filter_map(|phase| {
        let at = begin;
        begin += phase.takes;
        (phase.kind == PhaseKind::Hold).then_some((at, phase.takes))
    });
    holds.max_by_key(|(_, takes)| *takes)
}

/// The median of the seconds between both; `None`: most of them were not seen.
fn within(seconds: &[Second], from: Duration, to: Duration, kib: fn(&Second) -> Option<u64>) -> Option<u64> {
    let between = |second: &&Second| (from.as_secs()..to.as_secs()).contains(&second.at);
    let mut all: Vec<u64> = seconds.iter().filter(between).filter_map(kib).filter(|kib| *kib > 0).collect();
    all.sort_unstable();
    let wanted = usize::try_from(to.as_secs().saturating_sub(from.as_secs())).ok()?;
    if all.is_empty() || all.len() * 2 < wanted {
        return None;
    }
    all.get(all.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn phase(kind: PhaseKind, seconds: u64) -> LoadPhase {
        LoadPhase { kind, takes: Duration::from_secs(seconds) }
    }

    #[test]
    fn the_longest_hold_counts_from_where_it_begins() {
        let phases = [phase(PhaseKind::Ramp, 10), phase(PhaseKind::Hold, 5), phase(PhaseKind::Storm, 1)];
        let longer = phase(PhaseKind::Hold, 300);
        let of = |phases: &[LoadPhase]| longest_hold(phases).map(|(at, takes)| (at.as_secs(), takes.as_secs()));
        assert_eq!(of(&phases), Some((10, 5)));
        assert_eq!(of(&[&phases[..], &[longer]].concat()), Some((16, 300)));
        assert_eq!(of(&phases[..1]), None);
    }

    #[test]
    fn what_settles_at_first_and_what_is_less_at_the_end_is_no_growth() {
        // It takes 40 MiB within the first minute, and gives a little back.
        let kib = |at: u64| if at < 60 { 10_000 + 700 * at } else { 52_000 - at };
        let seconds = (0..300).map(|at| Second { at, generator_kib: kib(at), ..Second::default() }).collect();
        let result = LoadResult { phases: vec![phase(PhaseKind::Hold, 300)], seconds, ..LoadResult::default() };
        let memory = of(&result);
        let growth = memory.generator.unwrap();
        assert_eq!((growth.before_kib, growth.after_kib, growth.within.as_secs()), (51_911, 51_731, 180));
        assert!(growth.percent() < 0.0 && growth.to_string().starts_with("-0.3 %: 50.7 MiB"), "{growth}");
        assert_eq!(memory.service, None);
        let too_short = LoadResult { phases: vec![phase(PhaseKind::Hold, 299)], ..result };
        assert_eq!(of(&too_short), Memory::default());
    }
}
