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
}

/// A row of the table: on `event`, in one of the states `from`, when `guard` holds, go to `to`.
#[derive(Debug)]
pub struct Rule<E: 'static, S: 'static, C: 'static> {
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
}

/// Rows are static: the same row is the same place.
impl<E, S, C> PartialEq for Rule<E, S, C> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// The first row that fires, if any.
pub fn fire<E: Copy + PartialEq, S: Copy + PartialEq, C: Copy>(
    table: &'static [Rule<E, S, C>],
    event: E,
    state: S,
    condition: &dyn Fn(C) -> bool,
) -> Option<&'static Rule<E, S, C>> {
    table.iter().find(|r| r.event == event && r.from.contains(&state) && r.guard.holds(condition))
}
