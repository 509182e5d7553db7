//! Two runs in one page: two drawings over one axis, aligned where the installation starts, and one dial for both.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use vlab_judge::result::RunResult;
use vlab_model::history::Observation;

use super::drawing::heading;
use super::moments::time_machine;
use super::{Axis, LARGEST_PAGE, Limits, Page, finished, head, scripts};
use crate::logs::LogLine;
use crate::moments::Moments;
use crate::redact::Redactor;
use crate::text::human;
use crate::timeline::Lanes;

/// A run to be drawn beside another one.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What it came to.
    pub result: &'a RunResult,
    /// What was observed.
    pub history: &'a [Observation],
    /// What its programs logged.
    pub logs: &'a [LogLine],
    /// Knows its secrets.
    pub redactor: &'a Redactor,
}

/// The page of two runs, without their secrets. Never longer than [`LARGEST_PAGE`].
pub fn render(runs: [Run<'_>; 2]) -> String {
    let timelines = runs.map(|run| Lanes::read(run.history));
    let [first, second] = &timelines;
    let moments =
        [Moments::read(runs[0].history, first, runs[0].logs), Moments::read(runs[1].history, second, runs[1].logs)];
    let (axes, aligned) = aligned(first, second);
    // Each has half of the room.
    let mut limits = Limits::MOST.halved();
    loop {
        let page = |n: usize| Page {
            result: runs[n].result,
            timeline: &timelines[n],
            moments: &moments[n],
            axis: axes[n],
            limits,
            observations: runs[n].history.len(),
            redactor: runs[n].redactor,
        };
        let text = both([&page(0), &page(1)], aligned);
        // What is secret in one run may be plain in the other.
        let text = runs[0].redactor.redact(&runs[1].redactor.redact(&text)).into_owned();
        let fewer = limits.halved();
        if text.len() <= LARGEST_PAGE || fewer == limits {
            return text;
        }
        limits = fewer;
    }
}

/// The axes of both: one length, one zero. Where both installed, that is where they started to.
fn aligned(a: &Lanes<'_>, b: &Lanes<'_>) -> ([Axis; 2], bool) {
    let starts = a.installation().zip(b.installation());
    let (of_a, of_b) = starts.unwrap_or((0, 0));
    let origin = of_a.max(of_b);
    let shifts = [origin - of_a, origin - of_b];
    let length = (shifts[0] + a.length).max(shifts[1] + b.length);
    (shifts.map(|shift| Axis { shift, origin, length }), starts.is_some())
}

fn both(pages: [&Page<'_>; 2], aligned: bool) -> String {
    let zero = if aligned {
        "Time counts from the start of the installation of each run."
    } else {
        "One of the runs has no installation: time counts from the first observation of each."
    };
    let names: Vec<String> = pages
        .iter()
        .zip(["A", "B"])
        .map(|(page, letter)| format!("{letter} · {}", page.text(&page.result.run.run_id)))
        .collect();
    let title = format!("{} beside {}", names[0], names[1]);
    let sides = html! {
        @for (page, name) in pages.iter().zip(&names) { (page.side(&page.columns(), Some(name))) }
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" class="beside" {
            (head(&title))
            body {
                header {
                    div.top { h1 { "Two runs" } }
                    @for (page, name) in pages.iter().zip(&names) { (summary(page, name)) }
                }
                main {
                    section #timeline {
                        (heading("Timelines"))
                        @for (page, name) in pages.iter().zip(&names) {
                            h3 { (name) }
                            (page.drawing(zero))
                        }
                    }
                    (time_machine("Both runs at a moment", Some(zero), &sides))
                    noscript { (PreEscaped("<p class=\"note\">Without JavaScript there are only the drawings.</p>")) }
                }
                (scripts())
            }
        }
        "\n"
    };
    finished(page)
}

/// A run in a line: its verdict, its scenario, what it took.
fn summary(page: &Page<'_>, name: &str) -> Markup {
    let r = page.result;
    html! {
        p.reason.summary.{ "v-" (r.verdict.as_str()) } {
            span.badge { (r.verdict.as_str()) } " " b { (name) } " "
            (page.text(&r.run.scenario)) ", seed " (r.run.seed) ", " (human(page.timeline.length))
            @if let Some(reason) = &r.reason { br; (page.text(reason)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_without_an_installation_are_aligned_at_their_beginning() {
        let timeline = |length| {
            let mut timeline = Lanes::default();
            timeline.length = length;
            timeline
        };
        let (a, b) = (timeline(10), timeline(30));
        let axis = Axis { shift: 0, origin: 0, length: 30 };
        assert_eq!(aligned(&a, &b), ([axis, axis], false));
    }
}
