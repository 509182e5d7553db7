//! Random choices: one stream for each (run seed, host index, purpose), so that a host's dice do not depend on how many
//! other hosts there are or on the order in which they act.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What a stream is for. Different purposes never share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Dice {
    /// Delays of retries and back-offs.
    Delays = 1,
    /// How long steps and stages take on this machine.
    Durations = 2,
    /// What is measured: round-trip times, download rates.
    Measurements = 3,
    /// The in-cluster controller of a cluster; the index is the cluster's.
    Controller = 4,
    /// What happens inside a cluster; the index is the cluster's.
    Cluster = 5,
}

/// A stream of random numbers. 16 bytes: the cipher's state is rebuilt for each number, which idle hosts never ask for.
#[derive(Clone, Debug)]
pub struct Stream {
    seed: u64,
    index: u32,
    purpose: Dice,
    used: u16,
}

impl Stream {
    /// The stream of that purpose for that host (or cluster).
    pub fn new(seed: u64, index: u32, purpose: Dice) -> Self {
        Self { seed, index, purpose, used: 0 }
    }

    /// Next number, 0 to `u64::MAX`.
    pub fn next_u64(&mut self) -> u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream((u64::from(self.index) << 8) | self.purpose as u64);
        rng.set_word_pos(u128::from(self.used) * 2);
        self.used = self.used.wrapping_add(1);
        rng.next_u64()
    }

    /// Next number from 0 (inclusive) to 1 (exclusive).
    pub fn unit(&mut self) -> f64 {
        // 53 bits are what a double holds exactly.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Next number between two bounds.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
}

/// A number that always belongs to the same thing, for measurements that must not change from one poll to the next.
pub fn fixed(seed: u64, index: u32, salt: u64) -> f64 {
    let mixed = seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Stream::new(mixed, index, Dice::Measurements).unit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_do_not_mix() {
        let take = |seed, index, purpose| {
            let mut s = Stream::new(seed, index, purpose);
            [s.next_u64(), s.next_u64(), s.next_u64()]
        };
        let a = take(1, 0, Dice::Delays);
        assert_eq!(a, take(1, 0, Dice::Delays));
        assert_ne!(a[0], a[1]);
        for other in [take(2, 0, Dice::Delays), take(1, 1, Dice::Delays), take(1, 0, Dice::Durations)] {
            assert_ne!(a, other);
        }
    }

    #[test]
    fn between_stays_between() {
        let mut s = Stream::new(7, 3, Dice::Measurements);
        for _ in 0..1000 {
            let x = s.between(2.0, 10.0);
            assert!((2.0..10.0).contains(&x), "{x}");
        }
    }
}
