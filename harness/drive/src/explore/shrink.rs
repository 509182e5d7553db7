//! Makes a finding as small as it can be, over the tape: stretches are left out, values become plainer, until nothing can go
//! without the finding going, too.

use vlab_scenario::{Catalogue, SourceFile};

use super::base::{Added, Base};
use super::oracle::Violation;
use super::scenario::Space;
use super::search::{Proposal, SearchSpace, Tried, attempt};
use super::tape::Trace;
use crate::prepare::Prepared;

/// What a finding was made into.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest that was found.
    pub tried: Tried,
    /// What is wrong in it.
    pub violation: Violation,
    /// How many runs it took.
    pub runs: u64,
    /// Nothing more could be left out; otherwise the runs were used up.
    pub is_minimal: bool,
}

/// How plain a tape is: what is smaller in this order is better.
fn size(trace: &Trace) -> (usize, u64, Vec<u64>) {
    let numbers = trace.numbers();
    (numbers.len(), numbers.iter().copied().fold(0, u64::saturating_add), numbers)
}

struct Shrinker<'a> {
    space: &'a Space,
    catalogue: &'a Catalogue,
    alter: &'a dyn Fn(&mut Prepared),
    signature: &'a str,
    best: Shrunk,
    most: u64,
    tell: &'a mut dyn FnMut(u64, usize) -> bool,
}

/// Shrinks a tape that shows what that signature says. `most`: at most so many runs; `tell` is told after each how many there
/// were, and how many lines are left, and says whether to go on. `None`: the tape does not show it.
pub fn shrink(
    (space, catalogue, alter): SearchSpace<'_>,
    numbers: &[u64],
    signature: &str,
    most: u64,
    tell: &mut dyn FnMut(u64, usize) -> bool,
) -> Option<Shrunk> {
    let tried = try_numbers((space, catalogue, alter), numbers)?;
    let violation = tried.outcome.violations.iter().find(|v| v.signature == signature)?.clone();
    let best = Shrunk { tried, violation, runs: 1, is_minimal: false };
    let mut shrinker = Shrinker { space, catalogue, alter, signature, best, most, tell };
    shrinker.run();
    Some(shrinker.best)
}

fn try_numbers((space, catalogue, alter): SearchSpace<'_>, numbers: &[u64]) -> Option<Tried> {
    let proposal = Proposal { numbers: numbers.to_vec(), dice: None, swarm: None, twice: false };
    attempt(space, catalogue, &proposal, alter).ok()
}

impl Shrinker<'_> {
    fn is_spent(&self) -> bool {
        self.best.runs >= self.most
    }

    fn trace(&self) -> &Trace {
        &self.best.tried.drawn.trace
    }

    /// Is that still it, and plainer? Then it is the best.
    fn take(&mut self, numbers: &[u64]) -> bool {
        if self.is_spent() || numbers == self.trace().numbers() {
            return false;
        }
        self.best.runs += 1;
        let tried = try_numbers((self.space, self.catalogue, self.alter), numbers);
        if !(self.tell)(self.best.runs, self.best.tried.drawn.added.lines()) {
            self.most = self.best.runs;
        }
        let Some(tried) = tried else { return false };
        let Some(violation) = tried.outcome.violations.iter().find(|v| v.signature == self.signature) else {
            return false;
        };
        if size(&tried.drawn.trace) >= size(self.trace()) {
            return false;
        }
        self.best.violation = violation.clone();
        self.best.tried = tried;
        true
    }

    fn run(&mut self) {
        loop {
            let before = size(self.trace());
            self.leave_out();
            self.cut();
            self.zero();
            self.lower();
            if self.is_spent() {
                return;
            }
            if size(self.trace()) == before {
                self.best.is_minimal = true;
                return;
            }
        }
    }

    /// Leaves stretches out, the longest first.
    fn leave_out(&mut self) {
        let mut at = 0;
        loop {
            let mut stretches = self.trace().stretches.clone();
            stretches.sort_by_key(|s| std::cmp::Reverse(s.end - s.begin));
            let Some(stretch) = stretches.get(at) else { return };
            let mut numbers: Vec<u64> = self.trace().choices.iter().map(|choice| choice.value).collect();
            let end = stretch.end.min(numbers.len());
            numbers.drain(stretch.begin..end);
            if self.is_spent() {
                return;
            }
            if !self.take(&numbers) {
                at += 1;
            }
        }
    }

    /// Cuts the end off.
    fn cut(&mut self) {
        let mut len = self.trace().numbers().len() / 2;
        while len > 0 {
            let numbers = self.trace().numbers();
            let keep = numbers.len().saturating_sub(len);
            if !self.take(&numbers[..keep]) {
                len /= 2;
            }
        }
    }

    /// Makes stretches and single values plain.
    fn zero(&mut self) {
        let mut at = 0;
        while let Some(stretch) = self.trace().stretches.get(at).copied() {
            let mut numbers: Vec<u64> = self.trace().choices.iter().map(|choice| choice.value).collect();
            // The first says that there is one.
            numbers.iter_mut().take(stretch.end).skip(stretch.begin + 1).for_each(|n| *n = 0);
            self.take(&numbers);
            at += 1;
        }
        let mut at = 0;
        while at < self.trace().numbers().len() {
            let mut numbers = self.trace().numbers();
            if numbers[at] != 0 {
                numbers[at] = 0;
                self.take(&numbers);
            }
            at += 1;
        }
    }

    /// Lowers single values, by halves and then by one.
    fn lower(&mut self) {
        let mut at = 0;
        while at < self.trace().numbers().len() {
            let mut step = self.trace().numbers()[at] / 2;
            while step > 0 && at < self.trace().numbers().len() {
                let mut numbers = self.trace().numbers();
                numbers[at] = numbers[at].saturating_sub(step);
                if self.is_spent() {
                    return;
                }
                if !self.take(&numbers) {
                    step /= 2;
                }
            }
            at += 1;
        }
    }
}

/// Name of the file of a finding: what is wrong in a few words.
pub fn name_of(violation: &Violation) -> String {
    let id = violation.signature.split(':').next().unwrap_or_default();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in violation.signature.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut name: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(40).collect();
    while name.ends_with('-') {
        name.pop();
    }
    format!("{name}-{:06x}", hash & 0xff_ffff)
}

/// The scenario of a finding, for people: what is wrong stands on top, and what the user does and is refused says so.
pub fn finding(shrunk: &Shrunk) -> (String, SourceFile) {
    let Tried { drawn, outcome } = &shrunk.tried;
    scenario_of(&shrunk.violation, &drawn.base, &drawn.added, &outcome.refused, &[])
}

/// The same for what is added to a base. `refused`: position and status of each action that was refused; `more`: what else is said
/// on top.
pub fn scenario_of(
    violation: &Violation,
    base: &Base,
    added: &Added,
    refused: &[(usize, u16)],
    more: &[String],
) -> (String, SourceFile) {
    let name = name_of(violation);
    let mut added = added.clone();
    let own = base.own_actions();
    for (index, status) in refused {
        if let Some(action) = index.checked_sub(own).and_then(|at| added.actions.get_mut(at))
            && !action.contains("refused:")
            && action.ends_with('}')
        {
            action.truncate(action.len() - 1);
            action.push_str(&format!(", refused: {status}}}"));
        }
    }
    let mut head = format!("# Found by exploring, {} lines beyond its base ({}).\n", added.lines(), base.name);
    for line in more.iter().flat_map(|line| wrapped(line, 118)) {
        head.push_str(&format!("# {line}\n"));
    }
    head.push_str(&format!("# Does not hold: {}\n", violation.check));
    for line in wrapped(&violation.message, 118).iter().take(8) {
        head.push_str(&format!("#   {line}\n"));
    }
    let source = base.with(&name, &head, &added);
    (name, source)
}

/// A text in lines that are not longer.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
