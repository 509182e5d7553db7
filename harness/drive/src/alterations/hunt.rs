//! Would a search find it? Alterations, and no scenario that somebody wrote for them: first the tapes that a search of the service as it
//! is has kept, those that show most for what they cost first, then new ones, which the search draws from them.
//!
//! Found is what [exploration](crate::explore) calls wrong and what the same tape does not show when nothing is altered: something that
//! must always hold does not, or the run ends otherwise than in each order of things on the service as it is.

use std::collections::BTreeSet;
use std::time::Duration;

use vlab_scenario::Catalogue;

use super::Alteration;
use super::bench::{Rehearsed, most_telling_first};
use super::hits::Hits;
use crate::explore::against::{Ours, There};
use crate::explore::end::{End, differs, end_closely};
use crate::explore::oracle::{Violation, look, of_result, without_panic};
use crate::explore::reach::reached;
use crate::explore::scenario::{Drawn, draw};
use crate::explore::search::prepared;
use crate::explore::{Draw, Outcome, Search, Space, Tried, attempt};
use crate::simulate::run_whole;

/// A tape of the corpus, and what it shows when nothing is wrong.
#[derive(Debug)]
struct Tape {
    drawn: Drawn,
    rehearsed: Rehearsed,
    /// What is wrong in it all the same.
    wrong: BTreeSet<String>,
    end: End,
}

/// What a search has to begin with.
#[derive(Debug)]
pub struct Hunt {
    space: Space,
    catalogue: Catalogue,
    tapes: Vec<Tape>,
    /// It has seen all tapes.
    search: Search,
    hits: Hits,
}

/// What came of an alteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunted {
    /// What was found; nothing.
    pub found: Option<Violation>,
    /// How many runs it took, those of the service as it is included.
    pub runs: u64,
    /// How much of the time it took.
    pub took: Duration,
    /// So many of the tapes use what is altered.
    pub touched: usize,
}

/// How long a run on the service as it is may take, in its own time: as long as anything that is drawn.
const LONGEST: Duration = Duration::from_secs(60 * 3600);
/// More things do not happen in a run of the service as it is.
const MOST_STEPS: u64 = 1_000_000;

impl Hunt {
    /// Runs the tapes of a corpus on the service as it is.
    ///
    /// # Errors
    /// A tape from which nothing can be drawn: a mistake in what draws.
    pub fn new(space: Space, catalogue: Catalogue, seed: u64, corpus: &[Vec<u64>]) -> Result<Self, String> {
        let bases = space.bases.len() + usize::from(space.grammar);
        let mut search = Search::new(seed, bases, Vec::new());
        let mut tapes = Vec::new();
        for numbers in corpus {
            let drawn = draw(&space, &catalogue, Draw::replay(numbers))?;
            let prepared = prepared(&drawn, &catalogue)?;
            let Ok(whole) = without_panic(&drawn.scenario, || run_whole(&prepared, MOST_STEPS)) else { continue };
            let violations = of_result(&drawn.scenario, &whole.result, &whole.ending);
            let end = end_closely(&drawn.scenario, &whole.history);
            let outcome =
                Outcome { reached: reached(&drawn.scenario, &whole), steps: whole.steps, ..Outcome::default() };
            search.accept(&Tried { drawn: drawn.clone(), outcome });
            let wrong = violations.into_iter().map(|violation| violation.signature).collect();
            tapes.push(Tape { drawn, rehearsed: Rehearsed::new(prepared, whole), wrong, end });
        }
        let tapes = most_telling_first(tapes, |tape| &tape.rehearsed);
        Ok(Self { space, catalogue, tapes, search, hits: Hits::default() })
    }

    /// How many tapes it begins with.
    pub const fn tapes(&self) -> usize {
        self.tapes.len()
    }

    /// Looks for an alteration until so much time has passed by that clock, which says how much has.
    ///
    /// # Errors
    /// Something drawn cannot be run: a mistake in what draws.
    pub fn look_for(
        &self,
        alteration: Alteration,
        most: Duration,
        clock: &dyn Fn() -> Duration,
    ) -> Result<Hunted, String> {
        let name = alteration.name();
        let (began, mut runs) = (clock(), 0);
        let took = || clock().saturating_sub(began);
        let mut order: Vec<(usize, &Tape)> = self.tapes.iter().enumerate().collect();
        order.retain(|(_, tape)| tape.rehearsed.is_touched(&alteration));
        let hits = self.hits.of(&name);
        // Over Kubernetes a run takes twenty times as long, and shows little else of the service.
        let dear = |tape: &Tape| tape.rehearsed.is_over_kube() && !alteration.is_of_controllers();
        order.sort_by_key(|(place, tape)| (dear(tape), std::cmp::Reverse(hits(*place))));
        let touched = order.len();
        // Where all use it, as far as is known, none is nearer than another.
        let near = if touched == self.tapes.len() { &[][..] } else { &order };
        let near = near.iter().filter(|(_, tape)| !dear(tape)).map(|(_, tape)| tape.drawn.trace.clone()).collect();
        for (place, tape) in order {
            if took() >= most {
                return Ok(Hunted { found: None, runs, took: took(), touched });
            }
            if let Some(found) = self.in_tape(tape, alteration, &mut runs)? {
                self.hits.add(&name, place);
                return Ok(Hunted { found: Some(found), runs, took: took(), touched });
            }
        }
        let mut search = self.search.clone();
        search.look_near(near);
        while took() < most {
            let tried = attempt(&self.space, &self.catalogue, &search.propose(), &|prepared| {
                prepared.alteration = Some(alteration);
            })?;
            search.accept(&tried);
            runs += 1;
            if let Some(found) = self.in_new(&tried, &mut runs)? {
                return Ok(Hunted { found: Some(found), runs, took: took(), touched });
            }
        }
        Ok(Hunted { found: None, runs, took: took(), touched })
    }

    /// What is wrong in a run of a tape, and is not when nothing is altered.
    fn in_tape(&self, tape: &Tape, alteration: Alteration, runs: &mut u64) -> Result<Option<Violation>, String> {
        *runs += 1;
        let scenario = &tape.drawn.scenario;
        let whole = match without_panic(scenario, || tape.rehearsed.altered(alteration)) {
            Ok(Some(whole)) => whole,
            Ok(None) => return Ok(None),
            Err(panics) => return Ok(Some(panics)),
        };
        let wrong = of_result(scenario, &whole.result, &whole.ending);
        if let Some(found) = wrong.into_iter().find(|violation| !tape.wrong.contains(&violation.signature)) {
            return Ok(Some(found));
        }
        self.ends_otherwise(&tape.drawn, (&end_closely(scenario, &whole.history), &tape.end), runs)
    }

    /// The same for a tape that the service as it is has not run yet.
    fn in_new(&self, tried: &Tried, runs: &mut u64) -> Result<Option<Violation>, String> {
        *runs += 1;
        let plain = look(&prepared(&tried.drawn, &self.catalogue)?, false);
        let is_new = |violation: &&Violation| plain.violations.iter().all(|v| v.signature != violation.signature);
        if let Some(found) = tried.outcome.violations.iter().find(is_new) {
            return Ok(Some(found.clone()));
        }
        let [altered, plain] = [&tried.outcome, &plain].map(|of| end_closely(&tried.drawn.scenario, &of.history));
        self.ends_otherwise(&tried.drawn, (&altered, &plain), runs)
    }

    /// Does it end otherwise than the service as it is, in whichever order that is asked?
    fn ends_otherwise(
        &self,
        drawn: &Drawn,
        (altered, plain): (&End, &End),
        runs: &mut u64,
    ) -> Result<Option<Violation>, String> {
        if differs(&drawn.scenario, altered, std::slice::from_ref(plain)).is_empty() {
            return Ok(None);
        }
        let there = There {
            base: drawn.base.clone(),
            added: drawn.added.clone(),
            source: drawn.source.clone(),
            scenario: drawn.scenario.clone(),
            left_out: Vec::new(),
            made_plain: false,
        };
        let mut ours = Ours::beginning_with(plain.clone());
        loop {
            let found = differs(&drawn.scenario, altered, &ours.ends);
            if found.is_empty() {
                return Ok(None);
            }
            *runs += 1;
            if !ours.ask(&there, &self.catalogue, "real", LONGEST)? {
                return Ok(found.into_iter().next());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn hunt(corpus: &[Vec<u64>]) -> Hunt {
        let catalogue = Catalogue::embedded();
        let base = crate::explore::Base::new(&catalogue.find("sno").unwrap(), &catalogue).unwrap();
        Hunt::new(Space::new(vec![base], false, true), catalogue, 1, corpus).unwrap()
    }

    /// A clock that goes on by a second whenever it is looked at.
    fn clock() -> impl Fn() -> Duration {
        let looks = Cell::new(0);
        move || {
            looks.set(looks.get() + 1);
            Duration::from_secs(looks.get())
        }
    }

    #[test]
    fn what_breaks_an_invariant_is_found_in_a_tape() {
        let alteration = super::super::find("event/host_registration_succeeded/twice").unwrap();
        let hunted = hunt(&[vec![]]).look_for(alteration, Duration::from_secs(30), &clock()).unwrap();
        assert_eq!(hunted.runs, 1);
        let signature = hunted.found.unwrap().signature;
        assert!(signature.contains("host_registration_succeeded is told twice"), "{signature}");
    }

    /// Nothing that must always hold is broken by a validation that has another value; the end of the run shows it.
    #[test]
    fn what_ends_otherwise_is_found_in_a_tape_and_in_what_is_drawn() {
        let all = super::super::all();
        let wrong = |a: &&Alteration| a.name() == "host-validation/ntp-synced/failure";
        let alteration = *all.iter().find(wrong).unwrap();
        for corpus in [&[vec![]][..], &[]] {
            let hunted = hunt(corpus).look_for(alteration, Duration::from_secs(30), &clock()).unwrap();
            assert!(hunted.found.is_some(), "{hunted:?}");
        }
    }

    /// A host that is asked for other images installs all the same: only words show it.
    #[test]
    fn what_is_told_in_other_words_is_found() {
        let alteration = super::super::find("argument/container-image-availability/images/other").unwrap();
        let hunted = hunt(&[vec![]]).look_for(alteration, Duration::from_secs(30), &clock()).unwrap();
        let signature = hunted.found.unwrap().signature;
        assert!(signature.starts_with("ends-alike: the event image_status_updated in words of a host"), "{signature}");
    }

    #[test]
    fn the_time_is_kept() {
        let alteration = super::super::find("event/host_registration_succeeded/twice").unwrap();
        let hunted = hunt(&[vec![]]).look_for(alteration, Duration::ZERO, &clock()).unwrap();
        assert_eq!((hunted.found, hunted.runs), (None, 0));
    }

    /// What the service as it is shows on the same tape is not the alteration's doing.
    #[test]
    fn a_service_that_is_as_it_is_ends_like_itself() {
        let hunt = hunt(&[]);
        let tried = |numbers: Vec<u64>| {
            let proposal = crate::explore::Proposal { numbers, dice: Some(5), swarm: None, twice: false };
            attempt(&hunt.space, &hunt.catalogue, &proposal, &|_| {}).unwrap()
        };
        for numbers in [vec![], vec![0, 3], vec![0, 7, 1]] {
            assert_eq!(hunt.in_new(&tried(numbers), &mut 0).unwrap(), None);
        }
    }
}
