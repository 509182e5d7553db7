//! The verdict for the terminal: what failed, where, what was seen instead and the last things that the host did; what
//! passed is one line.

use std::fmt::Write as _;

use crate::text::human_ms;
use vlab_api::Timestamp;
use vlab_judge::cause::Cause;
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, RunResult, Verdict};

/// How the terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns to use; less than 40 counts as 40.
    pub width: usize,
    /// Use colours?
    pub color: bool,
}

impl Style {
    /// The style for an output, from the values of the environment variables `NO_COLOR` and `COLUMNS` and whether it is a
    /// terminal (`terminal_width` is what the terminal itself says). Not a terminal: 100 columns and no colours.
    pub fn of(no_color: Option<&str>, columns: Option<&str>, is_terminal: bool, terminal_width: Option<usize>) -> Self {
        let width = columns.and_then(|c| c.parse().ok()).filter(|w| *w > 0);
        Self {
            width: width.or(terminal_width.filter(|_| is_terminal)).unwrap_or(100),
            color: is_terminal && no_color.is_none_or(str::is_empty),
        }
    }
}

/// So many lines are shown of what went wrong in the lab: the end of a log that a program left.
const LAB_LINES: usize = 60;
/// Failures told in full; the others are counted.
const TOLD: usize = 5;
/// Likewise pivots.
const SHOWN_PIVOTS: usize = 5;
/// Kinds in the order of the closing lines.
const KINDS: [(CheckKind, &str); 6] = [
    (CheckKind::Expectation, "expectations"),
    (CheckKind::Fault, "faults"),
    (CheckKind::Invariant, "invariants"),
    (CheckKind::Leak, "leaks"),
    (CheckKind::Budget, "budgets"),
    (CheckKind::Lab, "lab"),
];

/// The verdict in a few lines, ending in a newline: what went wrong first, what else did, and how many checks follow from it.
pub fn render(result: &RunResult, style: Style) -> String {
    verdict(result, style, false)
}

/// The same, with each check that follows from what went wrong first.
pub fn render_all(result: &RunResult, style: Style) -> String {
    verdict(result, style, true)
}

fn verdict(result: &RunResult, style: Style, every: bool) -> String {
    let mut out = Out { text: String::new(), width: style.width.max(40), color: style.color };
    let checks = result.by_urgency();
    let own = |c: &&CheckResult| c.verdict.urgency() < 2 && !(c.follows && result.cause.is_some());
    let (lab, others): (Vec<&CheckResult>, Vec<&CheckResult>) =
        checks.iter().copied().filter(own).partition(|c| c.kind == CheckKind::Lab);
    // In a lab that was not as it should be, what else was seen proves nothing: it is not what a person has to read.
    let (bad, moot) = if lab.is_empty() || every { ([lab, others].concat(), Vec::new()) } else { (lab, others) };
    if let Some(cause) = &result.cause {
        out.cause(result, cause, every);
    }
    let told = if every { bad.len() } else { TOLD.min(bad.len()) };
    for check in bad.iter().take(told) {
        out.check(result, check);
    }
    if bad.len() > told {
        out.line(2, "", &format!("… and {} more, see report.html", bad.len() - told));
    }
    if !moot.is_empty() {
        let what = if moot.len() == 1 { "1 check was" } else { &format!("{} checks were", moot.len()) };
        out.line(
            2,
            "33",
            &format!("{what} not met, which proves nothing in such a lab (`vlab check RUN --all` shows them)"),
        );
    }
    // An invariant that a history cannot show is nothing to act on: one line for all of them.
    let skipped = |kind: bool| {
        checks.iter().filter(move |c| c.verdict.urgency() == 2 && (c.kind == CheckKind::Invariant) == kind)
    };
    for check in skipped(false) {
        out.line(2, "33", &format!("– {} skipped: {}", check.name, check.verdict.reason().unwrap_or_default()));
    }
    let ids: Vec<&str> = skipped(true).filter_map(|c| c.name.split([':', ' ']).next()).collect();
    if !ids.is_empty() {
        out.line(2, "2", &format!("invariants with nothing to check in this run: {}", ids.join(", ")));
    }
    if let Some(startup) = &result.startup {
        let postgres = startup.postgres_ready_ms.map(|ms| format!(" (PostgreSQL after {})", human_ms(ms)));
        let service = human_ms(startup.service_ready_ms);
        out.line(2, "2", &format!("service ready after {service}{}", postgres.unwrap_or_default()));
    }
    for pivot in result.pivots.iter().take(SHOWN_PIVOTS) {
        let color = if pivot.moments.iter().any(|m| m.is_bad()) { "33" } else { "2" };
        out.line(2, color, &crate::pivot::line(pivot));
    }
    if let Some(more) = result.pivots.len().checked_sub(SHOWN_PIVOTS).filter(|more| *more > 0) {
        out.line(2, "2", &format!("and the pivots of {more} more clusters, which are in the report"));
    }
    out.verdict(result);
    out.text
}

/// The verdict in one line and, where it did not pass, why.
pub fn closing_line(result: &RunResult, style: Style) -> String {
    let mut out = Out { text: String::new(), width: style.width.max(40), color: style.color };
    out.verdict(result);
    out.text
}

/// How long after the start of the run.
fn since(result: &RunResult, at: Timestamp) -> String {
    human_ms(at.since(result.started_at).as_secs_f64() * 1000.0)
}

struct Out {
    text: String,
    width: usize,
    color: bool,
}

impl Out {
    /// One line or, when it is too long for the terminal, several that are indented below it.
    fn line(&mut self, indent: usize, color: &str, text: &str) {
        let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let (mut lines, mut line): (Vec<String>, String) = (Vec::new(), String::new());
        let mut column = 0;
        let width = self.width;
        let room = |lines: &[String]| width - if lines.is_empty() { indent } else { indent + 2 };
        for word in clean.split_whitespace() {
            if column > 0 && column + 1 + word.chars().count() > room(&lines) {
                lines.push(std::mem::take(&mut line));
                column = 0;
            }
            if column > 0 {
                line.push(' ');
                column += 1;
            }
            for c in word.chars() {
                // A word that is longer than a line is cut.
                if column >= room(&lines) {
                    lines.push(std::mem::take(&mut line));
                    column = 0;
                }
                line.push(c);
                column += 1;
            }
        }
        lines.push(line);
        for (i, line) in lines.iter().enumerate() {
            let pad = if i == 0 { indent } else { indent + 2 };
            if self.color && !color.is_empty() {
                let _ = writeln!(self.text, "{:pad$}\x1b[{color}m{line}\x1b[0m", "");
            } else {
                let _ = writeln!(self.text, "{:pad$}{line}", "");
            }
        }
    }

    /// What went wrong first, what happened around it, and how much follows from it.
    fn cause(&mut self, result: &RunResult, cause: &Cause, every: bool) {
        let after = cause.at.map(|at| format!(" ({} after the start)", since(result, at))).unwrap_or_default();
        self.line(0, "1;31", &format!("✗ {}{after}", cause.line()));
        if !cause.expected.is_empty() {
            self.line(4, "", &format!("expected: {}", cause.expected));
        }
        let on = cause.subject.as_deref().unwrap_or("the run");
        for (title, lines) in [("around it:".to_owned(), &cause.around), (format!("console of {on}:"), &cause.console)]
        {
            if !lines.is_empty() {
                self.line(4, "2", &title);
                lines.iter().for_each(|line| self.line(6, "", line));
            }
        }
        let followers = result.followers();
        let hint = if every { "" } else { " (`vlab check RUN --all` shows them)" };
        match followers.len() {
            0 => {}
            1 => self.line(2, "33", &format!("and 1 check that follows from it{hint}")),
            n => self.line(2, "33", &format!("and {n} checks that follow from it{hint}")),
        }
        if every {
            followers.into_iter().for_each(|check| self.check(result, check));
        }
    }

    fn check(&mut self, result: &RunResult, check: &CheckResult) {
        let (sign, color) = match check.verdict {
            CheckVerdict::Failed => ("✗", "1;31"),
            _ => ("?", "1;33"),
        };
        let subject = check.subject.as_deref().map(|s| format!(" on {s}")).unwrap_or_default();
        let at = check.at.map(|at| format!(", {} after the start", since(result, at))).unwrap_or_default();
        self.line(0, color, &format!("{sign} {} {}{subject}{at}", check.kind.as_str(), check.name));
        for text in [check.message.as_str(), check.verdict.reason().unwrap_or_default()] {
            if !text.is_empty() && text != check.seen {
                self.line(4, "", text);
            }
        }
        if !check.expected.is_empty() {
            self.line(4, "", &format!("expected: {}", check.expected));
        }
        if !check.seen.is_empty() {
            self.line(4, "", &format!("seen:     {}", check.seen));
        }
        if !check.last_things.is_empty() {
            // Of the lab it is what the person at the keyboard must read to help it; of a host it is one hint of many.
            let lab = check.kind == CheckKind::Lab;
            if !lab {
                self.line(4, "2", "the last things it did:");
            }
            for thing in check.last_things.iter().rev().take(if lab { LAB_LINES } else { 10 }).rev() {
                self.line(6, "", thing);
            }
        }
    }

    fn verdict(&mut self, result: &RunResult) {
        let color = match result.verdict {
            Verdict::Passed => "1;32",
            Verdict::Failed => "1;31",
            Verdict::Inconclusive => "1;33",
        };
        let mut parts = Vec::new();
        for (kind, name) in KINDS {
            let of: Vec<&CheckResult> = result.checks.iter().filter(|c| c.kind == kind).collect();
            if !of.is_empty() {
                let passed = of.iter().filter(|c| c.verdict == CheckVerdict::Passed).count();
                parts.push(format!("{name} {passed}/{}", of.len()));
            }
        }
        let took = human_ms(result.finished_at.since(result.started_at).as_secs_f64() * 1000.0);
        let mut text = format!("{} {} in {took}", result.run.scenario, result.verdict);
        if !parts.is_empty() {
            let _ = write!(text, " ({})", parts.join(", "));
        }
        self.line(0, color, &text);
        if let Some(reason) = &result.reason {
            self.line(2, "", reason);
        }
        if result.verdict != Verdict::Passed && !result.how_to_repeat.is_empty() {
            self.line(2, "2", &format!("repeat: {}", result.how_to_repeat));
        }
    }
}
