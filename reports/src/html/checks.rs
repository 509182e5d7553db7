//! What was checked: failures in full, then everything in a table, and durations against their budgets.

use maud::{Markup, html};
use vlab_judge::cause::Cause;
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, DurationResult};

use super::{NAME, Page};
use crate::text::{human, human_ms};

/// Failures told in full, and durations, at most.
const CARDS: usize = 50;
const BARS: usize = 200;

impl Page<'_> {
    /// What went wrong, in full, before anything else: what was first, what follows from it folded, and what else there is.
    pub(super) fn failures(&self) -> Markup {
        let follow = self.result.followers();
        let stands = |c: &&CheckResult| c.verdict.urgency() < 2 && !(c.follows && self.result.cause.is_some());
        let own: Vec<&CheckResult> = self.result.by_urgency().into_iter().filter(stands).collect();
        html! {
            @if !own.is_empty() || self.result.cause.is_some() {
                section #failures {
                    h2 { "What went wrong" }
                    @if let Some(cause) = &self.result.cause { (self.cause(cause)) }
                    @if !follow.is_empty() {
                        details #follow {
                            summary {
                                @if follow.len() == 1 { "1 check that follows from it" }
                                @else { (follow.len()) " checks that follow from it" }
                            }
                            (self.cards(&follow))
                        }
                    }
                    (self.cards(&own))
                }
            }
        }
    }

    fn cards(&self, checks: &[&CheckResult]) -> Markup {
        let told = checks.len().min(self.limits.checks).min(CARDS);
        html! {
            @for check in &checks[..told] { (self.card(check)) }
            @if told < checks.len() {
                p.note { (checks.len() - told) " more are in " code { "result.json" } "." }
            }
        }
    }

    /// What went wrong first, and the lines around it.
    fn cause(&self, cause: &Cause) -> Markup {
        let at = cause.at.map(|at| html! { "at " (human(self.timeline.offset(at))) });
        let seq = cause.seq.map(|seq| html! { "observation " (seq) });
        let subject = cause.subject.as_ref().map(|subject| html! { b { (self.text(subject)) } });
        html! {
            article #cause .card.failed data-at=[cause.at.map(|at| self.timeline.offset(at).max(0))]
                data-of=[cause.subject.as_ref().map(|subject| self.short(subject, NAME))] {
                h3 { span.tag.failed { "first" } " " (self.text(&cause.title)) }
                (places([subject, at, seq]))
                @if !cause.words.is_empty() { pre.words { (self.text(&cause.words)) } }
                @if !cause.expected.is_empty() { p { "Expected: " (self.text(&cause.expected)) } }
                @for (title, lines) in [("Around it", &cause.around), ("Its console", &cause.console)] {
                    @if !lines.is_empty() {
                        h4 { (title) }
                        ol.last.context { @for line in lines { li { (self.text(line)) } } }
                    }
                }
            }
        }
    }

    fn card(&self, check: &CheckResult) -> Markup {
        let class = check.verdict.as_str();
        let said = [check.message.as_str(), check.verdict.reason().unwrap_or_default()];
        let last_things = &check.last_things[check.last_things.len().saturating_sub(10)..];
        html! {
            article.card.(class) data-at=[self.went_wrong(check)] data-of=[check.subject.as_ref().map(|subject| self.short(subject, NAME))] {
                h3 {
                    span.tag.(class) { (class) } " " (self.text(&check.name)) " "
                    span.kind { (check.kind.as_str()) }
                }
                (self.place(check))
                @for text in said.into_iter().filter(|text| !text.is_empty()) { p { (self.text(text)) } }
                @if !check.expected.is_empty() || !check.seen.is_empty() {
                    dl.versus {
                        div { dt { "Expected" } dd { (self.text(&check.expected)) } }
                        div { dt { "Seen" } dd { (self.text(&check.seen)) } }
                    }
                }
                @if !last_things.is_empty() {
                    h4 { "The last things it did" }
                    ol.last { @for thing in last_things { li { (self.text(thing)) } } }
                }
            }
        }
    }

    /// When a check went wrong, in microseconds: the time machine goes there.
    fn went_wrong(&self, check: &CheckResult) -> Option<i64> {
        check.at.map(|at| self.timeline.offset(at).max(0))
    }

    /// On what a check went wrong, and when.
    fn place(&self, check: &CheckResult) -> Markup {
        let subject = check.subject.as_ref().map(|subject| html! { b { (self.text(subject)) } });
        let at = check.at.map(|at| html! { "at " (human(self.timeline.offset(at))) });
        let seq = check.seq.map(|seq| html! { "observation " (seq) });
        places([subject, at, seq])
    }

    pub(super) fn durations(&self) -> Markup {
        let mut sorted: Vec<&DurationResult> = self.result.durations.iter().collect();
        sorted.sort_by_key(|d| d.met() != Some(false));
        let told = sorted.len().min(self.limits.checks).min(BARS);
        html! {
            @if !sorted.is_empty() {
                section #durations {
                    h2 { "Durations and budgets" }
                    table.bars { tbody { @for duration in &sorted[..told] { (self.duration(duration)) } } }
                    @if told < sorted.len() { (all_in_result(sorted.len())) }
                }
            }
        }
    }

    fn duration(&self, d: &DurationResult) -> Markup {
        let took = d.took_ms.unwrap_or(0.0).max(0.0);
        let whole = took.max(d.budget_ms.unwrap_or(0.0)).max(f64::MIN_POSITIVE) * 1.08;
        let class = match d.met() {
            Some(true) => "ok",
            Some(false) => "bad",
            None => "none",
        };
        let filled = if d.took_ms.is_none() { 100.0 } else { took / whole * 100.0 };
        html! {
            tr class=(class) {
                th scope="row" { (self.named(&d.name, d.subject.as_deref())) }
                td.bar {
                    div {
                        span.fill style={ "width:" (format_args!("{filled:.2}")) "%" } {}
                        @if let Some(budget) = d.budget_ms {
                            span.limit style={ "left:" (format_args!("{:.2}", budget / whole * 100.0)) "%" } {}
                        }
                    }
                }
                td {
                    @match (d.took_ms, d.budget_ms) {
                        (Some(took), Some(budget)) => {
                            b { (human_ms(took)) } " of " (human_ms(budget)) " "
                            i { (self.text(d.budget_source.as_deref().unwrap_or_default())) }
                        }
                        (Some(took), None) => { b { (human_ms(took)) } }
                        (None, Some(budget)) => { b { "never" } ", allowed: " (human_ms(budget)) }
                        (None, None) => { b { "never" } }
                    }
                }
            }
        }
    }

    pub(super) fn checks(&self) -> Markup {
        let checks = self.result.by_urgency();
        let told = checks.len().min(self.limits.checks);
        html! {
            @if !checks.is_empty() {
                section #checks {
                    h2 { "All checks" }
                    table.checks { tbody { @for check in &checks[..told] { (self.check(check)) } } }
                    @if told < checks.len() { (all_in_result(checks.len())) }
                }
            }
        }
    }

    fn check(&self, check: &CheckResult) -> Markup {
        let class = check.verdict.as_str();
        let sign = match check.verdict {
            CheckVerdict::Passed => "✓",
            CheckVerdict::Failed => "✗",
            CheckVerdict::Skipped { .. } => "–",
            CheckVerdict::Inconclusive { .. } => "?",
        };
        let kind = match check.kind {
            CheckKind::Leak => "leaks",
            kind => kind.as_str(),
        };
        let more = [("expected", &check.expected), ("seen", &check.seen)];
        let more = more.into_iter().filter(|(_, text)| !text.is_empty() && check.verdict != CheckVerdict::Passed);
        html! {
            tr class=(class) data-at=[self.went_wrong(check).filter(|_| check.verdict.urgency() < 2)] data-of=[check.subject.as_ref().map(|subject| self.short(subject, NAME))] {
                td.sign title=(class) { (sign) }
                td.kind { (kind) }
                th scope="row" { (self.named(&check.name, check.subject.as_deref())) }
                td {
                    (self.text(check.verdict.reason().unwrap_or(&check.message)))
                    @for (name, text) in more { br; small { (name) ": " (self.text(text)) } }
                }
            }
        }
    }

    /// The name of something, and the host or cluster that it is about.
    pub(super) fn named(&self, name: &str, subject: Option<&str>) -> Markup {
        html! {
            (self.text(name))
            @if let Some(subject) = subject { i { (self.text(subject)) } }
        }
    }
}

/// Who, when and where, as far as it is known.
fn places(parts: [Option<Markup>; 3]) -> Markup {
    let parts: Vec<Markup> = parts.into_iter().flatten().collect();
    html! {
        @if !parts.is_empty() {
            p.place {
                @for (i, part) in parts.iter().enumerate() { @if i > 0 { " · " } (part) }
            }
        }
    }
}

/// The page shows only the first ones.
pub(super) fn all_in_result(all: usize) -> Markup {
    html! { p.note { "All " (all) " are in " code { "result.json" } "." } }
}
