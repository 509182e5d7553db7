//! `report.html`: one self-contained page that draws a history and tells the verdict; and the page of a coverage.
//!
//! Pages are templates of `maud`, which escapes every text that it puts into them. The drawing is SVG made here, so the page
//! can be read and printed without its script; the script adds zoom, labels that fit and tables that can be filtered. Nothing
//! is fetched: a policy in the page forbids it. Only the pages of `vlab ui` ([`live`]) ask the server that sent them.

pub mod beside;
mod checks;
mod colours;
pub mod coverage;
mod drawing;
mod fleet;
mod header;
pub mod live;
mod measured;
mod moments;
mod pivot;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use vlab_judge::result::RunResult;
use vlab_model::history::Observation;

use crate::logs::LogLine;
use crate::moments::Moments;
use crate::redact::Redactor;
use crate::text::{shorten, thousands};
use crate::timeline::Lanes;

/// The page is never longer than this, in bytes; what does not fit is left out and the page says so.
pub const LARGEST_PAGE: usize = 5 * 1024 * 1024;
/// Characters of a name.
const NAME: usize = 60;

/// How much of each thing goes into the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    /// Hosts with a lane of their own; with more hosts, only those that stand out.
    lanes: usize,
    /// Spans, or marks, of a lane.
    spans: usize,
    /// Rows of the transition table, and of the events table.
    rows: usize,
    /// Checks told in full.
    checks: usize,
    /// Characters of a text that the run's user or service wrote.
    text: usize,
    /// Bytes of what the time machine reads.
    moments: usize,
}

impl Limits {
    const MOST: Self = Self { lanes: 48, spans: 300, rows: 6000, checks: 1000, text: 1200, moments: 2_600_000 };

    /// Half of everything, but not so little that the page says nothing.
    fn halved(self) -> Self {
        Self {
            lanes: self.lanes / 2,
            spans: (self.spans / 2).max(8),
            rows: self.rows / 2,
            checks: self.checks / 2,
            text: (self.text / 2).max(60),
            moments: if self.moments > 8192 { self.moments / 2 } else { 0 },
        }
    }
}

/// The page, without secrets. Never longer than [`LARGEST_PAGE`].
pub fn render(result: &RunResult, history: &[Observation], redactor: &Redactor) -> String {
    render_with_logs(result, history, &[], redactor)
}

/// The same with what the programs of the run logged.
pub fn render_with_logs(result: &RunResult, history: &[Observation], logs: &[LogLine], redactor: &Redactor) -> String {
    let timeline = Lanes::read(history);
    let moments = Moments::read(history, &timeline, logs);
    let mut limits = Limits::MOST;
    let axis = Axis::of(&timeline);
    loop {
        let observations = history.len();
        let page =
            Page { result, timeline: &timeline, moments: &moments, axis, limits, observations, redactor }.render();
        let fewer = limits.halved();
        if page.len() <= LARGEST_PAGE || fewer == limits {
            return page;
        }
        limits = fewer;
    }
}

/// `text` as it stands in a page, in an element or in a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    finished(html! { (text) })
}

/// The text of a page. Characters that a page may not hold, a terminal's colours among them, become U+FFFD.
fn finished(page: Markup) -> String {
    let forbidden = |c| matches!(c, '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}');
    let text = page.into_string();
    if text.contains(forbidden) { text.replace(forbidden, "\u{fffd}") } else { text }
}

/// The axis of time that a drawing stands on, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    /// Where the first observation of the run stands.
    shift: i64,
    /// What is called zero.
    origin: i64,
    length: i64,
}

impl Axis {
    /// That of one run.
    fn of(timeline: &Lanes<'_>) -> Self {
        Self { shift: 0, origin: 0, length: timeline.length }
    }
}

/// What the templates of `report.html` read.
struct Page<'a> {
    result: &'a RunResult,
    timeline: &'a Lanes<'a>,
    moments: &'a Moments<'a>,
    axis: Axis,
    limits: Limits,
    observations: usize,
    redactor: &'a Redactor,
}

impl Page<'_> {
    fn render(&self) -> String {
        let verdict = self.result.verdict.as_str();
        let page = html! {
            (DOCTYPE)
            html lang="en" class={ "v-" (verdict) } {
                (head(&format!("{} · {verdict}", self.text(&self.result.run.scenario))))
                body {
                    (self.header())
                    main {
                        (self.failures())
                        (self.timeline())
                        (self.moments())
                        (self.pivots())
                        (self.durations())
                        (self.checks())
                        (self.measured())
                        (self.tables())
                        (self.about())
                    }
                    (scripts())
                }
            }
            "\n"
        };
        finished(page)
    }

    /// The beginning of a text. What is secret goes first, for the cut could go through the middle of it.
    fn short(&self, text: &str, most: usize) -> String {
        shorten(&self.redactor.redact(text), most)
    }

    /// A text that the run's user or service wrote.
    fn text(&self, text: &str) -> String {
        self.short(text, self.limits.text)
    }

    /// Per cent of the width at which a moment stands. A little room is left at the right for what happens last.
    fn x(&self, at: i64) -> f64 {
        ((at + self.axis.shift).max(0) as f64 / (self.axis.length as f64 * 1.012) * 100.0).min(100.0)
    }

    fn about(&self) -> Markup {
        let r = self.result;
        let mut pairs = vec![
            ("scenario".to_owned(), self.text(&r.run.scenario_path)),
            ("started".to_owned(), r.started_at.to_string()),
            ("finished".to_owned(), r.finished_at.to_string()),
            ("observations".to_owned(), thousands(self.observations as u64)),
        ];
        pairs.extend(r.environment.iter().take(40).map(|(name, value)| (self.short(name, NAME), self.text(value))));
        html! {
            section #about {
                h2 { "About this run" }
                div.cols {
                    dl.pairs {
                        @for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
                            dt { (name) }
                            dd { (value) }
                        }
                    }
                    @if !r.files.is_empty() {
                        dl.pairs {
                            @for file in r.files.iter().take(200) {
                                @let path = self.text(&file.path);
                                dt { a href=(path) { code { (path) } } }
                                dd { (self.text(&file.what)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The head of a page. Its policy lets it fetch nothing.
fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            link rel="icon" href="data:,";
            title { (title) }
            style { (PreEscaped(include_str!("report.css"))) (PreEscaped(include_str!("moments.css"))) }
        }
    }
}

/// The scripts of a page, at its end.
fn scripts() -> Markup {
    html! {
        script { (PreEscaped(include_str!("report.js"))) }
        script { (PreEscaped(include_str!("moments.js"))) }
    }
}

/// A number with its name.
fn tile(value: impl maud::Render, name: &str, class: Option<&str>) -> Markup {
    html! {
        li class=[class] { b { (value) } span { (name) } }
    }
}

/// Per cent, as lengths of SVG are written.
fn percent(of_all: f64) -> String {
    format!("{of_all:.3}%")
}

#[cfg(test)]
mod tests {
    use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict};

    use super::*;

    #[test]
    fn a_page_with_little_room_says_how_much_it_leaves_out() {
        let failed = || CheckResult::new(CheckKind::Expectation, "installs", CheckVerdict::Failed);
        let result = RunResult { checks: (0..40).map(|_| failed()).collect(), ..RunResult::default() };
        let (timeline, redactor) = (Lanes::default(), Redactor::default());
        let limits = Limits { checks: 25, ..Limits::MOST };
        let (moments, axis) = (Moments::default(), Axis::of(&timeline));
        let page = Page {
            result: &result,
            timeline: &timeline,
            moments: &moments,
            axis,
            limits,
            observations: 0,
            redactor: &redactor,
        };
        assert!(page.render().contains("15 more are in <code>result.json</code>."));
    }

    #[test]
    fn limits_shrink_to_an_end() {
        let all: Vec<Limits> =
            std::iter::successors(Some(Limits::MOST), |limits| Some(limits.halved()).filter(|fewer| fewer != limits))
                .collect();
        assert!(all.len() < 30, "{all:?}");
        assert_eq!(all.last(), Some(&Limits { lanes: 0, spans: 8, rows: 0, checks: 0, text: 60, moments: 0 }));
    }

    #[test]
    fn what_a_page_may_not_hold_is_replaced() {
        assert_eq!(escape("<a b=\"c\">\u{1b}[31m&'\t\n"), "&lt;a b=&quot;c&quot;&gt;\u{fffd}[31m&amp;'\t\n");
    }
}
