//! In which order and how late things come: what a scenario says under `interleaving`, with the dice for it. In virtual time all of it;
//! in real time what can be done to requests on their way, the rest comes as it comes.
//!
//! Each kind has dice of its own, so that one kind can be made plain without changing what the others do. The plain interleaving
//! rolls no dice at all.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vlab_api::http::Method;
use vlab_model::history::{Interleaved, What};
use vlab_scenario::Interleaving;

/// What becomes of a request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It arrives.
    Through,
    /// The service never sees it.
    RequestLost,
    /// The service does what was asked, and its answer is lost.
    AnswerLost,
    /// The service sees it twice; the second answer is the one that arrives.
    Twice,
}

impl Way {
    /// What of it is told in the history. A request that only reads may be lost or come twice without a word.
    pub fn told(self, method: Method, path: &str) -> Option<What> {
        let did = match self {
            Self::Through => return None,
            Self::RequestLost | Self::AnswerLost => Interleaved::Lost,
            Self::Twice => Interleaved::Twice,
        };
        (method != Method::Get).then(|| What::Interleaved { did, detail: format!("{method} {path}") })
    }
}

/// Where the service is killed around a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Killed {
    /// What was to be written is not.
    Before,
    /// It is written, and whoever asked gets no answer.
    After,
}

/// So long does it take until a service that an interleaving killed is started again.
pub(crate) const DOWN: Duration = Duration::from_secs(5);

/// The dice of an interleaving, and what they have come to.
#[derive(Debug)]
pub struct Dice {
    how: Interleaving,
    latency: ChaCha8Rng,
    order: ChaCha8Rng,
    ways: ChaCha8Rng,
    most_latency: u64,
    writes: u64,
    /// The monitors' phases, of hosts and of clusters.
    pub(crate) phases: [Duration; 2],
}

impl Dice {
    /// The dice of that interleaving, in a run whose clock goes so much faster than `real`.
    pub fn new(how: &Interleaving, clock_scale: f64) -> Self {
        let stream = |n| {
            let mut dice = ChaCha8Rng::seed_from_u64(how.seed);
            dice.set_stream(n);
            dice
        };
        Self {
            latency: stream(1),
            order: stream(2),
            ways: stream(3),
            most_latency: u64::try_from(how.latency.under(clock_scale).as_micros()).unwrap_or(u64::MAX),
            writes: 0,
            phases: [how.host_monitor.under(clock_scale), how.cluster_monitor.under(clock_scale)],
            how: how.clone(),
        }
    }

    /// How much longer a message takes than it must.
    pub fn latency(&mut self) -> Duration {
        match self.most_latency {
            0 => Duration::ZERO,
            most => Duration::from_micros(self.latency.next_u64() % most.saturating_add(1)),
        }
    }

    /// Where something stands among what is due at the same instant; the same for all in the plain order.
    pub(crate) fn place(&mut self) -> u32 {
        if self.how.any_order { self.order.next_u32() } else { 0 }
    }

    /// Which of so many that are due at the same instant comes first.
    pub(crate) fn first_of(&mut self, count: usize) -> usize {
        if self.how.any_order && count > 1 { self.order.next_u32() as usize % count } else { 0 }
    }

    /// What becomes of a request of a host.
    pub fn way(&mut self) -> Way {
        if self.how.lost == 0 && self.how.twice == 0 {
            return Way::Through;
        }
        let (n, half) = (self.ways.next_u32() % 1000, self.ways.next_u32());
        if n < self.how.lost {
            if half % 2 == 0 { Way::RequestLost } else { Way::AnswerLost }
        } else if n >= 1000 - self.how.twice.min(1000) {
            Way::Twice
        } else {
            Way::Through
        }
    }

    /// The service is about to write; is it killed, and when?
    pub(crate) fn write(&mut self) -> Option<Killed> {
        self.writes += 1;
        if self.how.killed_before_writes.contains(&self.writes) {
            Some(Killed::Before)
        } else if self.how.killed_after_writes.contains(&self.writes) {
            Some(Killed::After)
        } else {
            None
        }
    }

    /// Number of the last write.
    pub(crate) const fn writes(&self) -> u64 {
        self.writes
    }
}

#[cfg(test)]
mod tests {
    use vlab_scenario::Span;

    use super::*;

    #[test]
    fn the_plain_interleaving_changes_nothing() {
        let mut dice = Dice::new(&Interleaving { seed: 7, ..Interleaving::default() }, 1.0);
        for _ in 0..100 {
            assert_eq!((dice.latency(), dice.place(), dice.first_of(3)), (Duration::ZERO, 0, 0));
            assert_eq!((dice.way(), dice.write()), (Way::Through, None));
        }
    }

    #[test]
    fn each_kind_has_its_own_dice() {
        let late = Interleaving { seed: 3, latency: Span::Service(Duration::from_secs(2)), ..Interleaving::default() };
        let both = Interleaving { any_order: true, lost: 100, ..late.clone() };
        let (mut late, mut both) = (Dice::new(&late, 1.0), Dice::new(&both, 1.0));
        let mut lost = 0;
        for _ in 0..1000 {
            both.place();
            lost += usize::from(both.way() != Way::Through);
            let (a, b) = (late.latency(), both.latency());
            assert!(a == b && a <= Duration::from_secs(2));
        }
        assert!((60..140).contains(&lost), "{lost} of 1000 lost");
    }

    #[test]
    fn the_service_is_killed_around_the_writes_that_are_named() {
        let how =
            Interleaving { killed_before_writes: vec![2], killed_after_writes: vec![2, 3], ..Interleaving::default() };
        let mut dice = Dice::new(&how, 1.0);
        let killed: Vec<_> = (0..4).map(|_| dice.write()).collect();
        assert_eq!(killed, [None, Some(Killed::Before), Some(Killed::After), None]);
    }
}
