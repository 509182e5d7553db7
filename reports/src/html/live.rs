//! What `vlab ui` shows in a browser: the list of runs, and a run that goes on. Both are a page that is sent once and a part of
//! it, the fragment, that its script fetches again and again.

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use vlab_api::Timestamp;
use vlab_judge::result::{RunResult, Verdict};
use vlab_model::history::{Observation, What};

use super::{Axis, Limits, Page, finished, tile};
use crate::moments::Moments;
use crate::record::Statistics;
use crate::redact::Redactor;
use crate::text::{human, human_ms, shorten, thousands};
use crate::timeline::{Lane, Lanes, Row};

/// The script of both pages, which the server sends at the path [`SCRIPT_PATH`].
pub const SCRIPT: &str = include_str!("live.js");
/// Where the pages look for their script.
pub const SCRIPT_PATH: &str = "/live.js";
/// What the pages may load: nothing that is not of this server.
pub const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src data:; \
base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Hosts that have a row.
const HOSTS: usize = 200;
/// Lines of what happened last.
const LINES: usize = 40;
/// Characters of a text that the run's user or service wrote.
const TEXT: usize = 240;

/// How a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It goes on.
    Running,
    /// It has a result.
    Ended(Verdict),
    /// It has no result, and the process that ran it is gone.
    Killed,
}

impl Standing {
    fn word(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended(verdict) => verdict.as_str(),
            Self::Killed => "killed",
        }
    }

    /// Class of the sign in front of it, with the sign.
    fn sign(&self) -> (&'static str, &'static str) {
        match self {
            Self::Running => ("running", "▶"),
            Self::Ended(Verdict::Passed) => ("passed", "✓"),
            Self::Ended(Verdict::Failed) => ("failed", "✗"),
            Self::Ended(Verdict::Inconclusive) => ("inconclusive", "?"),
            Self::Killed => ("inconclusive", "–"),
        }
    }
}

/// A run in the list.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its id, the name of its folder.
    pub run_id: String,
    /// Its scenario.
    pub scenario: String,
    /// How it stands.
    pub standing: Standing,
    /// When it began.
    pub started_at: Timestamp,
    /// Wall time in milliseconds, of a run that goes on until now; `None`: not known.
    pub took_ms: Option<f64>,
    /// The service under test, as in the start marker; empty: the scenario's own.
    pub service: String,
    /// Kind of its hosts.
    pub hosts: String,
    /// Seed.
    pub seed: u64,
    /// Is there a history, and the scenario's text? A load has neither.
    pub history: bool,
    /// Of a run that did not pass: what went wrong first, or what decided.
    pub why: String,
}

/// The page with all runs of a folder. Its fragment is [`runs`].
pub fn list(folder: &str, fragment: &str) -> String {
    let header = html! {
        header {
            div.top { h1 { "Runs" } span.run { (folder) } }
            p.note { "This page follows the runs in that folder by itself." }
        }
    };
    page("vlab: runs", header, fragment)
}

/// The list itself. `left_out`: older runs that are not in it.
pub fn runs(entries: &[Entry], left_out: usize, statistics: &[Statistics]) -> String {
    let running = entries.iter().filter(|entry| entry.standing == Standing::Running).count();
    finished(html! {
        section #runs {
            h2 {
                "Newest first"
                span.count { (thousands(entries.len() as u64)) @if running > 0 { ", " (running) " running" } }
            }
            @if entries.is_empty() {
                p.note { "There is no run in this folder yet. Start one, for example with " code { "vlab scenario sno" } "." }
            } @else {
                div.rows.open {
                    table.log {
                        thead { tr { th {} th { "scenario" } th { "verdict" } th { "started" } th { "took" } th { "service" } th { "hosts" } th { "seed" } th { "why" } } }
                        tbody { @for entry in entries { (row_of(entry)) } }
                    }
                }
            }
            @if left_out > 0 { p.note { (thousands(left_out as u64)) " older runs are not shown." } }
        }
        @if !statistics.is_empty() {
            section #scenarios {
                h2 { "Scenarios" span.count { "those that pass least often first" } }
                div.rows.open {
                    table.log {
                        thead { tr { th { "scenario" } th { "service" } th { "hosts" } th { "runs" } th { "passed" } th { "last ten" } th { "median" } th { "fails of" } } }
                        tbody { @for s in statistics { (row_of_scenario(s)) } }
                    }
                }
            }
        }
    })
}

fn row_of(entry: &Entry) -> Markup {
    let (class, sign) = entry.standing.sign();
    html! {
        tr.(class) {
            td.sign aria-hidden="true" { (sign) }
            td { a href={ "/runs/" (entry.run_id) "/" } { (entry.scenario) } }
            td { (entry.standing.word()) }
            td { (entry.started_at) }
            td { @if let Some(took) = entry.took_ms { (human_ms(took)) } }
            td { (entry.service) }
            td { (entry.hosts) }
            td { code { (entry.seed) } }
            td { (shorten(&entry.why, TEXT)) }
        }
    }
}

fn row_of_scenario(s: &Statistics) -> Markup {
    html! {
        tr {
            td { (s.scenario) }
            td { (s.service) }
            td { (s.hosts) }
            td { (s.runs) }
            td { (format!("{:.0} %", s.pass_rate() * 100.0)) }
            td { code { (s.last) } }
            td { @if s.passed > 0 { (human_ms(s.median_ms)) } @else { "–" } }
            td { @if let Some((what, count, run)) = s.heaps.first() { (count) " × " (shorten(what, TEXT)) " (" a href={ "/runs/" (run) "/" } { "newest" } ")" } }
        }
    }
}

/// The page of a run that goes on. Its fragment is [`now`].
pub fn run(entry: &Entry, fragment: &str) -> String {
    let header = html! {
        header {
            div.top {
                span.badge { b aria-hidden="true" { (entry.standing.sign().1) } (entry.standing.word()) }
                h1 { (entry.scenario) }
                span.run { (entry.run_id) }
            }
            p.reason {
                @match entry.standing {
                    Standing::Killed => "The program that ran it is gone, and it has no result. " ,
                    _ => "Its report takes the place of this page when it has ended. ",
                }
                a href="/" { "All runs" }
                @if entry.history { " · " a href="history.jsonl" { "history" } " · " a href="scenario.yaml" { "scenario" } }
            }
            dl.facts {
                div { dt { "seed" } dd { code { (entry.seed) } } }
                div { dt { "started" } dd { (entry.started_at) } }
                @if !entry.service.is_empty() { div { dt { "service" } dd { (entry.service) } } }
                @if !entry.hosts.is_empty() { div { dt { "hosts" } dd { (entry.hosts) } } }
            }
        }
    };
    page(&format!("{} · {}", entry.scenario, entry.standing.word()), header, fragment)
}

/// A run as its history shows it until now: how many hosts are where, every host and cluster, the drawing of the report, and
/// what happened last. Without secrets that `redactor` knows.
pub fn now(history: &[Observation], redactor: &Redactor) -> String {
    let timeline = Lanes::read(history);
    let mut result = RunResult::default();
    if let Some(What::RunStarted(info)) = history.first().map(|o| &o.what) {
        result.run = info.clone();
    }
    let (moments, axis) = (Moments::default(), Axis::of(&timeline));
    let page = Page {
        result: &result,
        timeline: &timeline,
        moments: &moments,
        axis,
        limits: Limits::MOST,
        observations: history.len(),
        redactor,
    };
    finished(html! {
        (page.standing())
        section #timeline { h2 { "Timeline" } (page.drawing("Time starts with the first observation.")) }
        (page.last_lines())
    })
}

impl Page<'_> {
    fn standing(&self) -> Markup {
        let t = self.timeline;
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for host in &t.hosts {
            *counts.entry(host.last_status()).or_default() += 1;
        }
        html! {
            section #standing {
                ul.tiles {
                    (tile(human(t.length), "since the first observation", None))
                    (tile(thousands(self.observations as u64), "observations", None))
                    @for (status, count) in &counts { (tile(thousands(*count as u64), status, bad(status).then_some("bad"))) }
                }
                @if !t.clusters.is_empty() || !t.hosts.is_empty() {
                    table.log.lanes {
                        thead { tr { th { "name" } th { "role" } th { "status" } th { "stage" } th { "in words" } } }
                        tbody {
                            @for lane in t.clusters.iter().take(HOSTS) { (self.lane_now(lane)) }
                            @for lane in t.hosts.iter().take(HOSTS) { (self.lane_now(lane)) }
                        }
                    }
                    @if t.hosts.len() > HOSTS { p.note { (thousands((t.hosts.len() - HOSTS) as u64)) " more hosts are in the drawing only." } }
                }
            }
        }
    }

    fn lane_now(&self, lane: &Lane<'_>) -> Markup {
        let role = match (lane.is_cluster, lane.role) {
            (true, _) => "cluster",
            (false, Some(role)) => role.as_str(),
            (false, None) => "host",
        };
        let stage = lane.stages.last();
        let words = stage.map(|s| s.info).filter(|info| !info.is_empty());
        let words = words.or_else(|| lane.statuses.last().map(|s| s.info)).unwrap_or_default();
        html! {
            tr.failed[bad(lane.last_status())] {
                td { b { (self.short(&lane.name, TEXT)) } }
                td { (role) @if lane.bootstrap { ", bootstrap" } }
                td { (lane.last_status()) }
                td { (stage.map_or("", |s| s.value)) }
                td { (self.short(words, TEXT)) }
            }
        }
    }

    fn last_lines(&self) -> Markup {
        let rows = self.timeline.rows.iter().rev().take(LINES);
        html! {
            section #last {
                h2 { "What happened last" span.count { "newest first" } }
                div.rows.open {
                    table.log { tbody { @for row in rows { (self.line(row)) } } }
                }
            }
        }
    }

    fn line(&self, row: &Row<'_>) -> Markup {
        html! {
            tr.failed[matches!(row.severity, "error" | "critical")] {
                td { (human(row.at)) }
                td { (row.kind) }
                td { @if let Some(id) = row.subject { (self.short(&self.timeline.name(id), TEXT)) } }
                td { (self.short(&row.name, TEXT)) }
                td { (self.short(&row.text, TEXT)) }
            }
        }
    }
}

/// A status in which something has gone wrong.
fn bad(status: &str) -> bool {
    matches!(status, "error" | "disconnected" | "cancelled")
}

/// A page whose fragment is fetched again by its script.
fn page(title: &str, header: Markup, fragment: &str) -> String {
    finished(html! {
        (DOCTYPE)
        html lang="en" class="v-live" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(include_str!("report.css"))) (PreEscaped(include_str!("live.css"))) }
            }
            body {
                (header)
                main {
                    p.follow { button #hold type="button" aria-pressed="false" { "Pause" } span #state role="status" {} }
                    div #live { (PreEscaped(fragment)) }
                    noscript { p.note { "Without its script this page does not follow; reload it." } }
                }
                script src=(SCRIPT_PATH) {}
            }
        }
        "\n"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(standing: Standing) -> Entry {
        Entry {
            run_id: "20260101000000-sno-7".to_owned(),
            scenario: "<sno>".to_owned(),
            standing,
            started_at: Timestamp::from_secs(0),
            took_ms: Some(1500.0),
            service: "simulated".to_owned(),
            hosts: "simulated".to_owned(),
            seed: 7,
            history: true,
            why: "step 7 is error".to_owned(),
        }
    }

    #[test]
    fn the_list_says_how_each_run_stands_and_names_are_only_text() {
        let all = [Standing::Running, Standing::Killed, Standing::Ended(Verdict::Failed)].map(entry);
        let text = list("runs", &runs(&all, 3, &[]));
        for expected in
            ["1 running", ">killed<", ">failed<", "3 older runs", "&lt;sno&gt;", "/runs/20260101000000-sno-7/"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("<sno>"));
    }

    #[test]
    fn an_empty_folder_says_how_to_start() {
        assert!(list("runs", &runs(&[], 0, &[])).contains("vlab scenario sno"));
    }

    #[test]
    fn a_history_that_has_only_begun_is_a_page_all_the_same() {
        let text = run(&entry(Standing::Running), &now(&[], &Redactor::default()));
        assert!(text.contains("0</b><span>observations") && text.contains("What happened last"), "{text}");
    }
}
