//! The result of a plan as one page without scripts: what must hold, figures, and what happened second by second.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use std::time::Duration;

use vlab_scenario::LoadPlan;

use crate::database::DatabaseSecond;
use crate::generate::phase_at;
use crate::result::{LoadResult, Second};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24;background:#fff}\
table{border-collapse:collapse;width:100%}th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #d5d9de}\
th:first-child,td:first-child{text-align:left}svg{width:100%;height:9rem;background:#f6f8fa}.warn{background:#fff3cd;padding:.4rem .8rem}\
.bad{color:#b42318}.good{color:#18794e}figure{margin:1rem 0}figcaption{color:#57606a}\
@media(prefers-color-scheme:dark){body{color:#e6e8eb;background:#16191d}svg{background:#20252b}.warn{background:#4a3b00}th,td{border-color:#363c44}}";

/// Most points of a line: more than a screen has columns show nothing.
const POINTS: usize = 600;

/// A line of a chart: its name, its colour, and its value in a second.
type Curve = (&'static str, &'static str, fn(&Second) -> f64);

/// The page.
pub fn page(result: &LoadResult) -> String {
    let total = result.total();
    let rate = |n: u64| n as f64 / result.took_s.max(0.001);
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "load: " (result.plan) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Load: " (result.plan) }
                p {
                    (result.hosts) " hosts against the " strong { (result.target.as_str()) } " at " (result.url) "; seed " (result.seed)
                    "; " (format!("{:.1}", result.took_s)) " s; " (result.connections_opened) " connections opened"
                }
                @for warning in &result.warnings { p.warn { (warning) } }
                (checks(result))
                p {
                    "Offered " (format!("{:.1}", rate(total.offered))) " requests a second, answered "
                    (format!("{:.1}", rate(total.answered))) "; " (total.failed()) " failed, " (total.unanswered()) " unanswered."
                }
                (installations(result))
                (operations(result))
                (errors(result))
                (charts(&result.seconds))
                (statements(result))
                (metrics(result))
            }
        }
    };
    markup.into_string()
}

/// How it goes, `now` after the start, as a piece of a page: which phase it is, who is there, and the charts until now.
pub fn so_far(plan: &LoadPlan, now: Duration, who: &str, seconds: &[Second]) -> String {
    let sum = |of: fn(&Second) -> u64| seconds.iter().map(of).sum::<u64>();
    let phase = plan.phases.get(phase_at(plan, now)).map_or("", |phase| phase.kind.as_str());
    let markup = html! {
        section #standing {
            p {
                strong { (phase) } ", " (now.as_secs()) " s of " (plan.takes().as_secs()) " s; " (who) "; "
                (sum(|s| s.offered)) " requests offered, " (sum(|s| s.answered)) " answered, " (sum(|s| s.failed)) " failed."
            }
            (charts(seconds))
        }
    };
    markup.into_string()
}

/// What happened second by second.
fn charts(seconds: &[Second]) -> Markup {
    html! {
        (chart("requests a second", seconds, &[
            ("offered", "#6b7480", |s| s.offered as f64),
            ("answered", "#18794e", |s| s.answered as f64),
            ("failed", "#c2362a", |s| s.failed as f64),
        ]))
        (chart("latency from the intended moment, ms", seconds, &[
            ("p50", "#0969da", |s| s.p50_us as f64 / 1000.0),
            ("p99", "#8250df", |s| s.p99_us as f64 / 1000.0),
            ("the generator was late by", "#b08800", |s| s.late_us as f64 / 1000.0),
        ]))
        (chart("processor time, ms in a second", seconds, &[
            ("generator", "#6b7480", |s| s.generator_cpu_ms as f64),
            ("service", "#bc4c00", |s| s.service_cpu_ms.unwrap_or(0) as f64),
        ]))
        (chart("resident memory, MiB", seconds, &[
            ("generator", "#6b7480", |s| s.generator_kib as f64 / 1024.0),
            ("service", "#bc4c00", |s| s.service_kib.unwrap_or(0) as f64 / 1024.0),
        ]))
        @if seconds.iter().any(|second| second.database.is_some()) {
            (chart("the database: connections", seconds, &[
                ("all", "#6b7480", |s| database(s, |d| d.connections)),
                ("active", "#0969da", |s| database(s, |d| d.active)),
                ("waiting for a lock", "#c2362a", |s| database(s, |d| d.waiting)),
            ]))
            (chart("the database: in a second", seconds, &[
                ("transactions", "#0969da", |s| database(s, |d| d.transactions)),
                ("rows written", "#bc4c00", |s| database(s, |d| d.written)),
                ("blocks read from outside of its memory", "#6b7480", |s| database(s, |d| d.blocks_read)),
            ]))
        }
    }
}

/// A figure of the database in a second; 0 when it said nothing.
fn database(second: &Second, of: fn(&DatabaseSecond) -> u64) -> f64 {
    second.database.as_ref().map_or(0.0, |figures| of(figures) as f64)
}

fn statements(result: &LoadResult) -> Markup {
    html! {
        @if !result.statements.is_empty() {
            h2 { "What the database spent most time on" }
            table {
                tr { th { "statement" } th { "calls" } th { "rows" } th { "all together, ms" } th { "one, ms" } }
                @for one in &result.statements {
                    tr {
                        td { (one.text) }
                        td { (one.calls) }
                        td { (one.rows) }
                        td { (format!("{:.1}", one.took_ms)) }
                        td { (format!("{:.3}", one.took_ms / one.calls.max(1) as f64)) }
                    }
                }
            }
        }
    }
}

fn checks(result: &LoadResult) -> Markup {
    html! {
        @if !result.checks.is_empty() {
            h2 { "What must hold" }
            table {
                @for check in &result.checks {
                    tr {
                        td { (check.name) }
                        td.good[check.holds].bad[!check.holds] { (if check.holds { "holds" } else { "does not hold" }) }
                        td { (check.seen) }
                    }
                }
            }
        }
    }
}

fn installations(result: &LoadResult) -> Markup {
    let Some(installs) = &result.installs else { return Markup::default() };
    html! {
        h2 { "Installations" }
        table {
            tr { td { "begun" } td { (installs.begun) } }
            tr { td { "installed" } td { (installs.installed) } }
            @for (how, count) in &installs.ended_otherwise { tr { td { "ended otherwise: " (how) } td { (count) } } }
            @for (name, quantile) in [("half took no longer than", 0.5), ("99 of 100 took no longer than", 0.99), ("the longest took", 1.0)] {
                tr { td { (name) } td { (format!("{:.1} s", installs.took.quantile_ms(quantile) / 1000.0)) } }
            }
        }
    }
}

fn operations(result: &LoadResult) -> Markup {
    html! {
        h2 { "Operations" }
        table {
            tr { th { "operation" } th { "phase" } th { "offered" } th { "answered" } th { "failed" } th { "unanswered" } th { "p50 ms" } th { "p90 ms" } th { "p99 ms" } th { "p99.9 ms" } th { "longest ms" } }
            @for line in &result.lines {
                @let histogram = line.counted.latency.histogram();
                tr {
                    td { (line.operation) }
                    td { (line.phase + 1) " " (result.phases.get(line.phase).map_or("", |phase| phase.kind.as_str())) }
                    td { (line.counted.offered) }
                    td { (line.counted.answered) }
                    td { (line.counted.failed()) }
                    td { (line.counted.unanswered()) }
                    @for quantile in [0.5, 0.9, 0.99, 0.999, 1.0] {
                        td { (format!("{:.2}", histogram.value_at_quantile(quantile) as f64 / 1000.0)) }
                    }
                }
            }
        }
    }
}

fn errors(result: &LoadResult) -> Markup {
    let total = result.total();
    html! {
        @if !total.errors.is_empty() {
            h2 { "Errors" }
            table { @for (kind, count) in &total.errors { tr { td { (kind) } td { (count) } } } }
            @if !total.said.is_empty() {
                h2 { "What the service said about what it refused" }
                table {
                    @for (operation, counted) in result.operations() {
                        @for (words, count) in &counted.said { tr { td { (operation) } td { (words) } td { (count) } } }
                    }
                }
            }
        }
    }
}

fn metrics(result: &LoadResult) -> Markup {
    html! {
        @if !result.service_metrics.is_empty() {
            h2 { "The service's own figures: what changed" }
            table { @for (name, change) in &result.service_metrics { tr { td { (name) } td { (format!("{change:.3}")) } } } }
        }
    }
}

fn chart(title: &str, seconds: &[Second], curves: &[Curve]) -> Markup {
    let top = seconds.iter().flat_map(|s| curves.iter().map(move |(.., of)| of(s))).fold(0.0, f64::max);
    let step = seconds.len().div_ceil(POINTS).max(1);
    // Of the seconds that share a point the worst is shown.
    let points = |of: fn(&Second) -> f64| -> String {
        let chunks: Vec<f64> = seconds.chunks(step).map(|chunk| chunk.iter().map(of).fold(0.0, f64::max)).collect();
        let width = 1000.0 / (chunks.len().max(2) - 1) as f64;
        let point =
            |(n, value): (usize, &f64)| format!("{:.1},{:.1}", n as f64 * width, 100.0 - value * 96.0 / top.max(1e-9));
        chunks.iter().enumerate().map(point).collect::<Vec<_>>().join(" ")
    };
    html! {
        figure {
            figcaption {
                (title) ", at most " (format!("{top:.1}")) ": "
                @for (name, colour, _) in curves { span style=(format!("color:{colour}")) aria-hidden="true" { "■ " } (name) " " }
            }
            svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label=(title) {
                @for (_, colour, of) in curves {
                    polyline points=(points(*of)) fill="none" stroke=(colour) stroke-width="1.5" vector-effect="non-scaling-stroke" {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Check, Installs};

    #[test]
    fn the_page_says_what_must_hold_and_shows_names_as_text() {
        let check = Check { name: "the <p99>".into(), holds: false, seen: "9 ms".into() };
        let seconds = (0..5000).map(|at| Second { at, offered: at, ..Second::default() }).collect();
        let installs = Installs { begun: 3, installed: 2, ..Installs::default() };
        let installs = Some(installs);
        let result = LoadResult { plan: "a".into(), checks: vec![check], seconds, installs, ..LoadResult::default() };
        let page = page(&result);
        assert!(page.contains("Installations"));
        assert!(page.contains("the &lt;p99&gt;") && page.contains("does not hold") && page.contains("real service"));
        assert!(page.len() < 100_000, "{}", page.len());
    }
}
