//! The form of a state machine: a table with one row per rule.
//!
//! For one event the rows are scanned in order; the first whose sources contain the current state and whose guard holds
//! decides. The checker, the simulated service, the coverage report and the diagrams read the same table.

/// A boolean expression over named conditions.
#[derive(Clone, Copy, Debug)]
pub enum Guard<C: 'static> {
    /// Holds.
    Always,
    /// Holds when the condition does.
    Is(C),
    /// Holds when the inner one does not.
    Not(&'static Guard<C>),
    /// Holds when all do.
    All(&'static [Guard<C>]),
    /// Holds when one does.
    Any(&'static [Guard<C>]),
}

impl<C: Copy> Guard<C> {
    /// Does the expression hold, given which conditions do?
    pub fn holds(&self, condition: &dyn Fn(C) -> bool) -> bool {
        match self {
            Guard::Always => true,
            Guard::Is(c) => condition(*c),
            Guard::Not(inner) => !inner.holds(condition),
            Guard::All(all) => all.iter().all(|g| g.holds(condition)),
            Guard::Any(any) => any.iter().any(|g| g.holds(condition)),
        }
    }

    /// Tells each condition that it asks for.
    pub fn each(&self, tell: &mut dyn FnMut(C)) {
        match self {
            Guard::Always => {}
            Guard::Is(c) => tell(*c),
            Guard::Not(inner) => inner.each(tell),
            Guard::All(all) | Guard::Any(all) => all.iter().for_each(|g| g.each(tell)),
        }
    }

    /// Does it ask for that condition anywhere?
    pub fn asks(&self, condition: C) -> bool
    where
        C: PartialEq,
    {
        let mut found = false;
        self.each(&mut |c| found |= c == condition);
        found
    }
}

/// A row of the table: on `event`, in one of the states `from`, when `guard` holds, go to `to`.
#[derive(Debug)]
pub struct Rule<E: 'static, S: 'static, C: 'static, W: 'static, F: 'static> {
    /// Name of the rule in the real service's own dump of its machine.
    pub name: &'static str,
    /// What happened.
    pub event: E,
    /// Where it can fire.
    pub from: &'static [S],
    /// When it fires.
    pub guard: Guard<C>,
    /// Where it leads.
    pub to: S,
    /// What the service says of it.
    pub words: W,
    /// What it does beside that, in this order.
    pub effects: &'static [F],
}

/// Rows are static: the same row is the same place.
impl<E, S, C, W, F> PartialEq for Rule<E, S, C, W, F> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// What is wrong with a machine on purpose: who reads its histories must notice. Nothing that a scenario can say leads here.
#[derive(Debug, PartialEq)]
pub enum Wrong<E: 'static, S: 'static, C: 'static, W: 'static, F: 'static> {
    /// The table has not got that row.
    Without(&'static Rule<E, S, C, W, F>),
    /// That row does not fire in that state, one of several.
    NotFrom(&'static Rule<E, S, C, W, F>, S),
    /// That row leads elsewhere.
    LeadsTo(&'static Rule<E, S, C, W, F>, S),
    /// That row does not do this.
    Omits(&'static Rule<E, S, C, W, F>, F),
    /// That row says something else.
    Misspeaks(&'static Rule<E, S, C, W, F>),
    /// Every guard takes that condition for true, or for false.
    Believes(C, bool),
}

impl<E, S: Copy, C: Copy, W, F: Copy> Clone for Wrong<E, S, C, W, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E, S: Copy, C: Copy, W, F: Copy> Copy for Wrong<E, S, C, W, F> {}

/// What a row says that [misspeaks](Wrong::Misspeaks).
pub const WRONG_WORDS: &str = "The service has lost its words";

impl<E, S: Copy, C, W, F: Copy + PartialEq> Rule<E, S, C, W, F> {
    /// Where it leads.
    pub(crate) fn leads_to(&'static self, wrong: Option<&Wrong<E, S, C, W, F>>) -> S {
        match wrong {
            Some(Wrong::LeadsTo(rule, to)) if *rule == self => *to,
            _ => self.to,
        }
    }

    /// What it does beside that.
    pub(crate) fn does(&'static self, wrong: Option<&Wrong<E, S, C, W, F>>) -> Vec<F> {
        match wrong {
            Some(Wrong::Omits(rule, effect)) if *rule == self => {
                self.effects.iter().copied().filter(|e| e != effect).collect()
            }
            _ => self.effects.to_vec(),
        }
    }

    /// Does it say something else?
    pub(crate) fn misspeaks(&'static self, wrong: Option<&Wrong<E, S, C, W, F>>) -> bool {
        matches!(wrong, Some(Wrong::Misspeaks(rule)) if *rule == self)
    }
}

/// The first row that fires, if any.
pub fn fire<E: Copy + PartialEq, S: Copy + PartialEq, C: Copy + PartialEq, W, F>(
    table: &'static [Rule<E, S, C, W, F>],
    wrong: Option<&Wrong<E, S, C, W, F>>,
    (event, state): (E, S),
    condition: &dyn Fn(C) -> bool,
) -> Option<&'static Rule<E, S, C, W, F>> {
    let is_there = |rule: &Rule<E, S, C, W, F>| match wrong {
        Some(Wrong::Without(gone)) => *gone != rule,
        Some(Wrong::NotFrom(gone, from)) => *gone != rule || *from != state,
        _ => true,
    };
    let believed = |asked: C| match wrong {
        Some(Wrong::Believes(of, value)) if *of == asked => *value,
        _ => condition(asked),
    };
    table.iter().find(|r| r.event == event && r.from.contains(&state) && is_there(r) && r.guard.holds(&believed))
}
