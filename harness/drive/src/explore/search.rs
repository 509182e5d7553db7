//! The search: which tape is tried next, what is kept of what was tried, and what was found.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vlab_scenario::{Catalogue, HostKind, Scenario};

use super::oracle::{Outcome, Violation, look};
use super::reach::{Kind, Reached};
use super::scenario::{Drawn, Space, draw};
use super::tape::{Draw, Swarm, Trace};
use crate::prepare::{Choices, Nowhere, Prepared, prepare};
use crate::target::Target;

/// A tape to try.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// It begins like that.
    pub numbers: Vec<u64>,
    /// What follows is rolled with this seed; `None`: zeros.
    pub dice: Option<u64>,
    /// Kinds that are left out.
    pub swarm: Option<Swarm>,
    /// Run it twice, and compare.
    pub twice: bool,
}

/// What came of a tape.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What was drawn.
    pub drawn: Drawn,
    /// What came of it.
    pub outcome: Outcome,
}

/// Prepares a drawn scenario for virtual time.
///
/// # Errors
/// It cannot be prepared, with the reason for people.
pub fn prepared(drawn: &Drawn, catalogue: &Catalogue) -> Result<Prepared, String> {
    prepared_of(&drawn.scenario, catalogue)
}

/// The same of any scenario.
pub(super) fn prepared_of(scenario: &Scenario, catalogue: &Catalogue) -> Result<Prepared, String> {
    let choices = Choices {
        time_profile: Some("real".to_owned()),
        service: Some(Target::Simulated),
        hosts: Some(HostKind::Simulated),
        ..Choices::default()
    };
    prepare(scenario.clone(), catalogue, &choices, &Nowhere).map_err(|error| error.to_string())
}

/// Draws what a proposal says.
///
/// # Errors
/// It cannot be drawn: a mistake in what draws.
pub fn drawn(space: &Space, catalogue: &Catalogue, proposal: &Proposal) -> Result<Drawn, String> {
    let from = match proposal.dice {
        Some(seed) => Draw::go_on(&proposal.numbers, seed, proposal.swarm),
        None => Draw::replay(&proposal.numbers),
    };
    draw(space, catalogue, from)
}

/// Draws what a proposal says, and runs it. `alter` can make something wrong with the service first, for tests.
///
/// # Errors
/// It cannot be drawn or prepared: a mistake in what draws.
pub fn attempt(
    space: &Space,
    catalogue: &Catalogue,
    proposal: &Proposal,
    alter: &dyn Fn(&mut Prepared),
) -> Result<Tried, String> {
    let drawn = drawn(space, catalogue, proposal)?;
    let mut prepared = prepared(&drawn, catalogue)?;
    alter(&mut prepared);
    let outcome = look(&prepared, proposal.twice);
    Ok(Tried { drawn, outcome })
}

/// A tape that is kept because it reached something first.
#[derive(Clone, Debug)]
pub struct Kept {
    /// What was chosen.
    pub trace: Trace,
    /// What it reached.
    pub reached: Reached,
    /// What it costs.
    pub steps: u64,
}

/// Something that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// What is wrong.
    pub violation: Violation,
    /// The tape that showed it first.
    pub numbers: Vec<u64>,
    /// In which run, from 1.
    pub run: u64,
    /// In how many runs it showed.
    pub times: u64,
}

/// The state of a search.
#[derive(Clone, Debug)]
pub struct Search {
    dice: ChaCha8Rng,
    plain: Vec<Vec<u64>>,
    corpus: Vec<Kept>,
    /// Tapes that come near to what is looked for.
    near: Vec<Trace>,
    reached: Reached,
    found: BTreeMap<String, Found>,
    runs: u64,
    steps: u64,
    refused: u64,
}

/// One run in so many is made twice.
const TWICE_EVERY: u64 = 50;

impl Search {
    /// A search that has tried nothing. First it tries the plainest thing on each of so many bases, and the tapes that are given.
    pub fn new(seed: u64, bases: usize, given: Vec<Vec<u64>>) -> Self {
        let mut plain = given;
        plain.extend((0..bases as u64).rev().map(|base| vec![base]));
        Self {
            dice: ChaCha8Rng::seed_from_u64(seed),
            plain,
            corpus: Vec::new(),
            near: Vec::new(),
            reached: Reached::new(),
            found: BTreeMap::new(),
            runs: 0,
            steps: 0,
            refused: 0,
        }
    }

    /// What is looked for is near to these tapes: most of what is tried from now on is made of them.
    pub fn look_near(&mut self, tapes: Vec<Trace>) {
        self.near = tapes;
    }

    /// The next thing to try.
    pub fn propose(&mut self) -> Proposal {
        let twice = self.dice.next_u64().is_multiple_of(TWICE_EVERY);
        if let Some(numbers) = self.plain.pop() {
            return Proposal { numbers, dice: None, swarm: None, twice };
        }
        let swarm =
            (!self.one_in(4)).then(|| Swarm { seed: self.dice.next_u64(), keep: 5 + self.dice.next_u64() % 40 });
        let dice = Some(self.dice.next_u64());
        let numbers = if self.corpus.is_empty() || self.one_in(4) { Vec::new() } else { self.mutated() };
        Proposal { numbers, dice, swarm, twice }
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.dice.next_u64().is_multiple_of(n)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.dice.next_u64() % (n.max(1) as u64)).unwrap_or(0)
    }

    /// A tape of the corpus; those that were kept last more often.
    fn kept(&mut self) -> usize {
        let (a, b) = (self.below(self.corpus.len()), self.below(self.corpus.len()));
        a.max(b)
    }

    /// The tape that is changed.
    fn parent(&mut self) -> Trace {
        if self.near.is_empty() || self.one_in(4) {
            let at = self.kept();
            return self.corpus[at].trace.clone();
        }
        let at = self.below(self.near.len());
        self.near[at].clone()
    }

    /// A kept tape with a change or some.
    fn mutated(&mut self) -> Vec<u64> {
        let Trace { choices, stretches } = self.parent();
        let mut numbers: Vec<u64> = choices.iter().map(|choice| choice.value).collect();
        for _ in 0..=self.below(3) {
            let inner: Vec<_> =
                stretches.iter().filter(|s| s.end > s.begin && s.end <= numbers.len()).copied().collect();
            let place = self.below(numbers.len());
            match self.below(6) {
                0 => numbers.truncate(place),
                1 if !inner.is_empty() => {
                    let stretch = inner[self.below(inner.len())];
                    numbers.drain(stretch.begin..stretch.end);
                }
                2 if !inner.is_empty() => {
                    let stretch = inner[self.below(inner.len())];
                    let again = numbers[stretch.begin..stretch.end].to_vec();
                    numbers.splice(stretch.begin..stretch.begin, again);
                }
                3 if !inner.is_empty() => {
                    let stretch = inner[self.below(inner.len())];
                    let other = self.kept();
                    let trace = &self.corpus[other].trace;
                    let alike: Vec<_> = trace.stretches.iter().filter(|s| s.label == stretch.label).copied().collect();
                    let values: Vec<u64> = trace.choices.iter().map(|choice| choice.value).collect();
                    if !alike.is_empty() {
                        let with = alike[self.below(alike.len())];
                        numbers.splice(stretch.begin..stretch.end, values[with.begin..with.end].iter().copied());
                    }
                }
                4 if !numbers.is_empty() => {
                    let up = self.one_in(2);
                    let number = &mut numbers[place];
                    *number = if up { number.saturating_add(1) } else { number.saturating_sub(1) };
                }
                _ if !numbers.is_empty() => numbers[place] = self.dice.next_u64() >> 16,
                _ => {}
            }
        }
        numbers
    }

    /// Takes in what came of something that was tried; what is wrong that was not known.
    pub fn accept(&mut self, tried: &Tried) -> Vec<Violation> {
        self.runs += 1;
        self.steps += tried.outcome.steps;
        self.refused += tried.drawn.refused as u64;
        let mut new = Vec::new();
        for violation in &tried.outcome.violations {
            let run = self.runs;
            let found = self.found.entry(violation.signature.clone()).or_insert_with(|| {
                new.push(violation.clone());
                Found { violation: violation.clone(), numbers: tried.drawn.trace.numbers(), run, times: 0 }
            });
            found.times += 1;
        }
        if !tried.outcome.reached.is_subset(&self.reached) {
            self.reached.extend(tried.outcome.reached.iter().cloned());
            self.corpus.push(Kept {
                trace: tried.drawn.trace.clone(),
                reached: tried.outcome.reached.clone(),
                steps: tried.outcome.steps,
            });
        }
        new
    }

    /// How many runs there were.
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// How many things happened in them.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// How many things that were drawn were left out because the language refuses them there.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// What was found, by signature.
    pub const fn found(&self) -> &BTreeMap<String, Found> {
        &self.found
    }

    /// How many of each kind were reached.
    pub fn counts(&self) -> BTreeMap<Kind, usize> {
        let mut counts: BTreeMap<Kind, usize> = Kind::ALL.into_iter().map(|kind| (kind, 0)).collect();
        for (kind, _) in &self.reached {
            *counts.entry(*kind).or_default() += 1;
        }
        counts
    }

    /// Tapes that were given and not tried yet.
    pub fn untried(&self) -> &[Vec<u64>] {
        &self.plain
    }

    /// How many tapes are kept.
    pub fn kept_tapes(&self) -> usize {
        self.corpus.len()
    }

    /// The fewest tapes that reach all that was reached, as far as a greedy choice finds them: those that reach most that is
    /// rare first, and of several the cheapest.
    pub fn smallest_corpus(&self) -> Vec<&Kept> {
        let mut left: BTreeSet<&(Kind, String)> = self.reached.iter().collect();
        let mut pool: Vec<&Kept> = self.corpus.iter().collect();
        let mut chosen = Vec::new();
        while !left.is_empty() && !pool.is_empty() {
            let gain = |kept: &Kept| kept.reached.iter().filter(|one| left.contains(one)).count();
            let best = (0..pool.len()).max_by_key(|at| (gain(pool[*at]), std::cmp::Reverse(pool[*at].steps)));
            let Some(best) = best else { break };
            let kept = pool.swap_remove(best);
            if gain(kept) == 0 {
                break;
            }
            left.retain(|one| !kept.reached.contains(*one));
            chosen.push(kept);
        }
        chosen
    }
}

/// Where a tape is tried: the space, the catalogue, and what is altered in each run.
pub type SearchSpace<'a> = (&'a Space, &'a Catalogue, &'a dyn Fn(&mut Prepared));
