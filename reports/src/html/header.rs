//! The top of the page: the verdict, the figures of the run, what was run and how to repeat it.

use maud::{Markup, html};
use vlab_judge::result::Verdict;

use super::{NAME, Page, tile};
use crate::text::{human, human_ms, thousands};

impl Page<'_> {
    pub(super) fn header(&self) -> Markup {
        let r = self.result;
        let (sign, word) = match r.verdict {
            Verdict::Passed => ("✓", "Passed"),
            Verdict::Failed => ("✗", "Failed"),
            Verdict::Inconclusive => ("?", "Inconclusive"),
        };
        let reason = match (&r.reason, r.verdict) {
            (Some(reason), _) => self.text(reason),
            (None, Verdict::Passed) => "No check of this run failed.".to_owned(),
            (None, _) => "No reason was given.".to_owned(),
        };
        html! {
            header {
                div.top {
                    span.badge { b aria-hidden="true" { (sign) } (word) }
                    h1 { (self.text(&r.run.scenario)) }
                    span.run { (self.text(&r.run.run_id)) }
                }
                p.reason { (reason) }
                ul.tiles { (self.tiles()) }
                dl.facts {
                    div { dt { "seed" } dd { code { (r.run.seed) } } }
                    @for (name, value) in self.facts().iter().filter(|(_, value)| !value.is_empty()) {
                        div { dt { (name) } dd { (value) } }
                    }
                }
                @if !r.how_to_repeat.is_empty() {
                    p.repeat {
                        span { "Repeat" }
                        code #repeat { (self.text(&r.how_to_repeat)) }
                        button #copy type="button" hidden { "Copy" }
                    }
                }
            }
        }
    }

    fn tiles(&self) -> Markup {
        let (r, t) = (self.result, self.timeline);
        let count = |urgency: u8| r.checks.iter().filter(|c| c.verdict.urgency() == urgency).count();
        let (failed, open, skipped, passed) = (count(0), count(1), count(2), count(3));
        html! {
            (tile(html! { (passed) small { " / " (r.checks.len()) } }, "checks passed", None))
            @if failed > 0 { (tile(failed, "failed", Some("bad"))) }
            @if open > 0 { (tile(open, "inconclusive", Some("warn"))) }
            @if skipped > 0 { (tile(skipped, "skipped", None)) }
            (tile(thousands(t.hosts.len() as u64), if t.hosts.len() == 1 { "host" } else { "hosts" }, None))
            (tile(thousands(t.transitions.len() as u64), "transitions", None))
            (tile(human(t.length), if r.run.virtual_time { "virtual time" } else { "real time" }, None))
            @if let Some(q) = &r.detection_latency_ms {
                (tile(human_ms(q.p99), "detection latency, 99th percentile", None))
            }
            @if let Some(o) = &r.overhead {
                @let over = o.limit_ms.is_some_and(|limit| o.overhead_ms > limit);
                (tile(human_ms(o.overhead_ms), "harness overhead", over.then_some("bad")))
            }
        }
    }

    /// What was run, beside the seed.
    fn facts(&self) -> Vec<(String, String)> {
        let r = self.result;
        let accel = r.accel.as_ref().map(|a| format!(" ({})", self.text(a))).unwrap_or_default();
        let mut facts: Vec<(String, String)> = [
            ("service", self.text(&r.run.service.word())),
            ("hosts", self.text(&r.run.hosts.word()) + &accel),
            ("time profile", self.text(&r.run.time_profile)),
            ("started", r.started_at.to_string()),
            ("exit code", r.exit_code.to_string()),
            ("vlab", self.text(&r.run.vlab_version)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let versions = r.run.versions.iter().take(12);
        facts.extend(versions.map(|(part, version)| (self.short(part, NAME), self.text(version))));
        facts
    }
}
