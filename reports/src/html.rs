//! `report.html`: one self-contained page that draws a history and tells the verdict.
//!
//! The drawing is SVG made here, so the page can be read and printed without its script; the script adds zoom, labels that fit
//! and tables that can be filtered. Nothing is fetched: a policy in the page forbids it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;
use vlab_api::types::{HostStage, HostStatus};
use vlab_model::history::Observation;

use crate::redact::Redactor;
use crate::timeline::{Lane, Mark, Span, Timeline, natural, source_names};
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, DurationResult, Quantiles, RunResult, Verdict};

/// The page is never longer than this, in bytes; what does not fit is left out and the page says so.
pub const LARGEST_PAGE: usize = 5 * 1024 * 1024;

/// How much of each thing goes into the page.
#[derive(Clone, Copy, Debug)]
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
}

/// The page, without secrets. Never longer than [`LARGEST_PAGE`].
pub fn render(result: &RunResult, history: &[Observation], redactor: &Redactor) -> String {
    let timeline = Timeline::read(history);
    let mut limits = Limits { lanes: 48, spans: 300, rows: 6000, checks: 1000, text: 1200 };
    loop {
        let page = Page { result, timeline: &timeline, limits, observations: history.len(), redactor }.render();
        if page.len() <= LARGEST_PAGE {
            return page;
        }
        limits.lanes /= 2;
        limits.spans = (limits.spans / 2).max(8);
        limits.rows /= 2;
        limits.checks /= 2;
        limits.text = (limits.text / 2).max(60);
    }
}

/// Appends `text` so that it is nothing but text in HTML, in an element or in a quoted attribute.
pub fn escape_into(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in a page; a terminal's colours among them.
            '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// Words of one colour; what several begin with ("Waiting for") is said once.
fn listed(words: &[String]) -> String {
    const WAITING: &str = "Waiting for ";
    let (waiting, others): (Vec<&String>, Vec<&String>) = words.iter().partition(|w| w.starts_with(WAITING));
    let waiting: Vec<&str> = waiting.iter().map(|w| w.trim_start_matches(WAITING)).collect();
    let mut parts: Vec<String> = others.into_iter().cloned().collect();
    if !waiting.is_empty() {
        parts.push(format!("{WAITING}{}", waiting.join(" / ")));
    }
    parts.join(", ")
}

fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape_into(&mut out, text);
    out
}

fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((i, _)) => format!("{}…", &text[..i]),
        None => text.to_owned(),
    }
}

/// A duration for people; `micros` may be negative.
pub(crate) fn human(micros: i64) -> String {
    let sign = if micros < 0 { "−" } else { "" };
    let us = micros.unsigned_abs();
    let seconds = us / 1_000_000;
    match us {
        0..1_000 => format!("{sign}{us} µs"),
        1_000..10_000 => format!("{sign}{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{sign}{} ms", us / 1_000),
        1_000_000..60_000_000 => format!("{sign}{:.2} s", us as f64 / 1e6),
        60_000_000..3_600_000_000 => format!("{sign}{} m {:02} s", seconds / 60, seconds % 60),
        _ => format!("{sign}{} h {:02} m {:02} s", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

pub(crate) fn human_ms(ms: f64) -> String {
    human((ms * 1000.0) as i64)
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Colour of a status. The colours tell apart for all common kinds of colour blindness, and the words stand in the spans.
fn status_class(status: &str) -> &'static str {
    match status {
        "discovering" | "discovering-unbound" | "unmonitored" => "k-wait",
        "known" | "known-unbound" | "ready" => "k-ready",
        "insufficient" | "insufficient-unbound" | "pending-for-input" => "k-need",
        "preparing-for-installation" | "preparing-successful" => "k-prep",
        "installing" | "installing-in-progress" => "k-inst",
        "finalizing" => "k-fin",
        "installing-pending-user-action" | "resetting-pending-user-action" | "unbinding-pending-user-action" => {
            "k-user"
        }
        "installed" | "added-to-existing-cluster" | "adding-hosts" => "k-done",
        "error" | "preparing-failed" => "k-err",
        "disconnected" | "disconnected-unbound" | "disabled" | "disabled-unbound" => "k-gone",
        _ => "k-other",
    }
}

fn stage_class(stage: &str) -> &'static str {
    match stage {
        "Starting installation" => "g-1",
        "Installing" => "g-2",
        "Writing image to disk" | "Copying registry data to disk" => "g-3",
        "Rebooting" => "g-5",
        "Configuring" => "g-6",
        "Joined" => "g-7",
        "Done" => "g-8",
        "Failed" => "k-err",
        // The waits, and the finalizing stages.
        stage if stage.starts_with("Waiting") => "g-4",
        _ => "g-6",
    }
}

/// Statuses in which a host stands out from a fleet.
fn stands_out(lane: &Lane<'_>) -> bool {
    matches!(status_class(lane.last_status()), "k-err" | "k-gone" | "k-user")
        || lane.stages.last().is_some_and(|s| s.value == "Failed")
        || lane.marks.iter().any(|m| m.bad)
}

/// Colours in the order of the legend: the way of a host, then what can go wrong, then the stages.
const LEGEND: [&str; 19] = [
    "k-wait", "k-need", "k-ready", "k-prep", "k-inst", "k-fin", "k-done", "k-user", "k-err", "k-gone", "k-other",
    "g-1", "g-2", "g-3", "g-4", "g-5", "g-6", "g-7", "g-8",
];

const AXIS: u32 = 30;
const MARKS: u32 = 26;
const CLUSTER: u32 = 64;
const HOST: u32 = 44;
const GROUP: u32 = 86;
const GROUP_STAGES: u32 = 36;

struct Page<'a> {
    result: &'a RunResult,
    timeline: &'a Timeline<'a>,
    limits: Limits,
    observations: usize,
    redactor: &'a Redactor,
}

/// The drawing in the making: labels at the left, SVG at the right, and how far down it reaches.
#[derive(Default)]
struct Drawing {
    labels: String,
    svg: String,
    y: u32,
    lanes: usize,
    /// Status and stage classes that occur, with the words that wear them.
    legend: BTreeMap<&'static str, Vec<String>>,
}

impl Page<'_> {
    fn render(&self) -> String {
        let mut out = String::with_capacity(256 * 1024);
        let r = self.result;
        let title = format!("{} · {}", r.run.scenario, r.verdict);
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\" class=\"v-{verdict}\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src \
             'unsafe-inline'; img-src data:\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n\
             <style>\n{css}</style>\n</head>\n<body>\n",
            verdict = r.verdict,
            title = esc(&title),
            css = include_str!("report.css"),
        );
        self.header(&mut out);
        out.push_str("<main>\n");
        self.failures(&mut out);
        self.drawing(&mut out);
        crate::pivot::draw(&mut out, &r.pivots, |text| self.text(text));
        self.durations(&mut out);
        self.checks(&mut out);
        self.load(&mut out);
        self.tables(&mut out);
        self.about(&mut out);
        out.push_str("</main>\n");
        let _ = write!(out, "<script>\n{}</script>\n</body>\n</html>\n", include_str!("report.js"));
        out
    }

    /// The beginning of a text. What is secret goes first, for the cut could go through the middle of it.
    fn short(&self, text: &str, most: usize) -> String {
        shorten(&self.redactor.redact(text), most)
    }

    fn text(&self, text: &str) -> String {
        esc(&self.short(text, self.limits.text))
    }

    fn header(&self, out: &mut String) {
        let (r, t) = (self.result, self.timeline);
        let (sign, word) = match r.verdict {
            Verdict::Passed => ("✓", "Passed"),
            Verdict::Failed => ("✗", "Failed"),
            Verdict::Inconclusive => ("?", "Inconclusive"),
        };
        let reason = match (&r.reason, r.verdict) {
            (Some(reason), _) => self.text(reason),
            (None, Verdict::Passed) => "Everything that this run checked holds.".to_owned(),
            (None, _) => "No reason was given.".to_owned(),
        };
        let _ = write!(
            out,
            "<header>\n<div class=\"top\"><span class=\"badge\"><b aria-hidden=\"true\">{sign}</b>{word}</span>\
             <h1>{}</h1><span class=\"run\">{}</span></div>\n<p class=\"reason\">{reason}</p>\n<ul class=\"tiles\">",
            self.text(&r.run.scenario),
            self.text(&r.run.run_id),
        );
        let mut tile = |value: String, name: &str, class: &str| {
            let _ = write!(out, "<li class=\"{class}\"><b>{value}</b><span>{name}</span></li>");
        };
        let count = |v: u8| r.checks.iter().filter(|c| c.verdict.urgency() == v).count();
        let (failed, open, skipped, passed) = (count(0), count(1), count(2), count(3));
        tile(format!("{passed}<small> / {}</small>", r.checks.len()), "checks hold", "");
        if failed > 0 {
            tile(failed.to_string(), "failed", "bad");
        }
        if open > 0 {
            tile(open.to_string(), "inconclusive", "warn");
        }
        if skipped > 0 {
            tile(skipped.to_string(), "skipped", "");
        }
        tile(thousands(t.hosts.len() as u64), if t.hosts.len() == 1 { "host" } else { "hosts" }, "");
        tile(thousands(t.transitions.len() as u64), "transitions", "");
        let kind = if r.run.virtual_time { "virtual time" } else { "on the clock" };
        tile(human(t.length), kind, "");
        if let Some(q) = &r.detection_latency_ms {
            tile(human_ms(q.p99), "detection, 99th percentile", "");
        }
        if let Some(o) = &r.overhead {
            let over = o.limit_ms.is_some_and(|limit| o.overhead_ms > limit);
            tile(human_ms(o.overhead_ms), "harness overhead", if over { "bad" } else { "" });
        }
        out.push_str("</ul>\n<dl class=\"facts\">");
        let mut fact = |name: &str, value: String| {
            if !value.is_empty() {
                let _ = write!(out, "<div><dt>{}</dt><dd>{value}</dd></div>", esc(name));
            }
        };
        fact("seed", format!("<code>{}</code>", r.run.seed));
        fact("service", self.text(&r.run.service));
        let accel = r.accel.as_ref().map(|a| format!(" ({})", self.text(a))).unwrap_or_default();
        fact("hosts", self.text(&r.run.hosts) + &accel);
        fact("time profile", self.text(&r.run.time_profile));
        fact("started", r.started_at.to_string());
        fact("exit code", r.exit_code.to_string());
        fact("vlab", self.text(&r.run.vlab_version));
        for (part, version) in r.run.versions.iter().take(12) {
            fact(part, self.text(version));
        }
        out.push_str("</dl>\n");
        if !r.how_to_repeat.is_empty() {
            let _ = writeln!(
                out,
                "<p class=\"repeat\"><span>Repeat</span><code id=\"repeat\">{}</code><button type=\"button\" id=\"copy\" hidden>Copy</button></p>",
                self.text(&r.how_to_repeat)
            );
        }
        out.push_str("</header>\n");
    }

    /// What went wrong, in full, before anything else.
    fn failures(&self, out: &mut String) {
        let bad: Vec<&CheckResult> = self.result.by_urgency().into_iter().filter(|c| c.verdict.urgency() < 2).collect();
        if bad.is_empty() {
            return;
        }
        out.push_str("<section id=\"failures\"><h2>What went wrong</h2>\n");
        for check in bad.iter().take(self.limits.checks.min(50)) {
            self.card(out, check);
        }
        if bad.len() > self.limits.checks.min(50) {
            let _ = write!(out, "<p class=\"note\">{} more are in <code>result.json</code>.</p>", bad.len() - 50);
        }
        out.push_str("</section>\n");
    }

    fn card(&self, out: &mut String, check: &CheckResult) {
        let class = check.verdict.as_str();
        let _ = write!(
            out,
            "<article class=\"card {class}\"><h3><span class=\"tag {class}\">{class}</span> {} <span class=\"kind\">{}</span></h3>",
            self.text(&check.name),
            check.kind.as_str()
        );
        let mut place = Vec::new();
        if let Some(subject) = &check.subject {
            place.push(format!("<b>{}</b>", self.text(subject)));
        }
        if let Some(at) = check.at {
            place.push(format!("at {}", human(self.timeline.offset(at))));
        }
        if let Some(seq) = check.seq {
            place.push(format!("observation {seq}"));
        }
        if !place.is_empty() {
            let _ = write!(out, "<p class=\"place\">{}</p>", place.join(" · "));
        }
        for text in [check.message.as_str(), check.verdict.reason().unwrap_or_default()] {
            if !text.is_empty() {
                let _ = write!(out, "<p>{}</p>", self.text(text));
            }
        }
        if !check.expected.is_empty() || !check.seen.is_empty() {
            let _ = write!(
                out,
                "<dl class=\"versus\"><div><dt>Expected</dt><dd>{}</dd></div><div><dt>Seen</dt><dd>{}</dd></div></dl>",
                self.text(&check.expected),
                self.text(&check.seen)
            );
        }
        if !check.last_things.is_empty() {
            let _ = write!(out, "<h4>The last things it did</h4><ol class=\"last\">");
            for thing in check.last_things.iter().rev().take(10).rev() {
                let _ = write!(out, "<li>{}</li>", self.text(thing));
            }
            out.push_str("</ol>");
        }
        out.push_str("</article>\n");
    }

    /// Per cent of the width at which a moment stands. A little room is left at the right for what happens last.
    fn x(&self, at: i64) -> f64 {
        (at.max(0) as f64 / (self.timeline.length as f64 * 1.012) * 100.0).min(100.0)
    }

    fn span_box(&self, d: &mut Drawing, span: &Span<'_>, class: &'static str, y: u32, height: u32) {
        let x = self.x(span.from);
        let width = (self.x(span.to) - x).max(0.08);
        let words = d.legend.entry(class).or_default();
        if !words.iter().any(|w| w == span.value) {
            words.push(span.value.to_owned());
        }
        let mut title =
            format!("{}\n{} → {} ({})", span.value, human(span.from), human(span.to), human(span.to - span.from));
        if !span.info.is_empty() {
            let _ = write!(title, "\n{}", self.short(span.info, self.limits.text.min(300)));
        }
        // A second way to tell what went wrong, for those who see no colours.
        let hatch = match class {
            "k-err" | "k-gone" | "k-user" | "k-fault" => "<rect class=\"h\" width=\"100%\" height=\"100%\"/>",
            _ => "",
        };
        let _ = write!(
            d.svg,
            "<svg class=\"s {class}\" x=\"{x:.3}%\" y=\"{y}\" width=\"{width:.3}%\" height=\"{height}\"><title>{}</title>\
             <rect width=\"100%\" height=\"100%\"/>{hatch}<text x=\"5\" y=\"{}\">{}</text></svg>",
            esc(&title),
            height / 2 + 4,
            esc(span.value)
        );
    }

    fn spans(&self, d: &mut Drawing, spans: &[Span<'_>], class: fn(&str) -> &'static str, y: u32, height: u32) {
        // The first and the last ones say most.
        let (head, tail) = match spans.len().checked_sub(self.limits.spans) {
            Some(over) if over > 0 => {
                let head = self.limits.spans / 2;
                let left_out = &spans[head..head + over];
                let (from, to) = (left_out[0].from, left_out[over - 1].to);
                let value = format!("{over} more");
                let span = Span { from, to, value: &value, info: "left out here; they are in history.jsonl" };
                self.span_box(d, &span, "k-other", y, height);
                (&spans[..head], &spans[head + over..])
            }
            _ => (spans, &spans[..0]),
        };
        for span in head.iter().chain(tail) {
            self.span_box(d, span, class(span.value), y, height);
        }
    }

    fn marks(&self, d: &mut Drawing, marks: &[Mark<'_>], kind: &str, y: u32) {
        for mark in marks.iter().take(self.limits.spans) {
            let bad = if mark.bad { " bad" } else { "" };
            let text = self.short(&mark.text, 120);
            let _ = write!(
                d.svg,
                "<svg class=\"m {kind}{bad}\" x=\"{:.3}%\" y=\"{y}\" overflow=\"visible\"><title>{}\n{}</title>\
                 <path d=\"M0-5L5 0L0 5L-5 0z\"/><text x=\"9\" y=\"4\">{}</text></svg>",
                self.x(mark.at),
                esc(&text),
                human(mark.at),
                esc(&self.short(&mark.text, 40)),
            );
        }
    }

    fn lane(&self, d: &mut Drawing, height: u32, class: &str, name: &str, more: &str) -> u32 {
        let y = d.y;
        let _ = write!(
            d.labels,
            "<div class=\"l {class}\" style=\"height:{height}px\"><b title=\"{0}\">{0}</b>{more}</div>",
            esc(&self.short(name, 60))
        );
        let _ = write!(d.svg, "<rect class=\"lane {class}\" x=\"0\" y=\"{y}\" width=\"100%\" height=\"{height}\"/>");
        d.y += height;
        d.lanes += 1;
        y
    }

    fn axis(&self, d: &mut Drawing, height: u32) {
        const STEPS: [i64; 27] = [
            1,
            2,
            5,
            10,
            20,
            50,
            100,
            200,
            500,
            1_000,
            2_000,
            5_000,
            10_000,
            15_000,
            30_000,
            60_000,
            120_000,
            300_000,
            600_000,
            900_000,
            1_800_000,
            3_600_000,
            7_200_000,
            21_600_000,
            43_200_000,
            86_400_000,
            604_800_000,
        ];
        let length = self.timeline.length;
        let step = STEPS.iter().map(|ms| ms * 1000).find(|us| length / us <= 12).unwrap_or(length);
        let mut at = 0;
        while at <= length {
            let x = self.x(at);
            let label = match (step, at) {
                (_, 0) => "0".to_owned(),
                (..1_000_000, _) if length < 1_000_000 => format!("{} ms", at / 1000),
                (..1_000_000, _) => format!("{:.1} s", at as f64 / 1e6),
                (_, ..60_000_000) => format!("{} s", at / 1_000_000),
                (_, ..3_600_000_000) => format!("{}:{:02}", at / 60_000_000, at / 1_000_000 % 60),
                _ => format!("{}:{:02}:{:02}", at / 3_600_000_000, at / 60_000_000 % 60, at / 1_000_000 % 60),
            };
            let _ = write!(
                d.svg,
                "<line class=\"grid\" x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1=\"20\" y2=\"{height}\"/><text class=\"tick\" x=\"{x:.3}%\" \
                 dx=\"3\" y=\"15\">{label}</text>"
            );
            at += step;
        }
    }

    fn drawing(&self, out: &mut String) {
        let t = self.timeline;
        let mut d = Drawing { y: AXIS, ..Drawing::default() };
        d.labels.push_str(&format!("<div class=\"l axis\" style=\"height:{AXIS}px\"></div>"));
        if !t.user.is_empty() {
            let y = self.lane(&mut d, MARKS, "user", "user", "");
            self.marks(&mut d, &t.user, "mu", y + MARKS / 2);
        }
        let mut bands = String::new();
        for fault in t.faults.iter().take(24) {
            let y = self.lane(&mut d, MARKS, "fault", fault.name, "<i>fault</i>");
            let to = fault.to.unwrap_or(t.length);
            let info = if fault.effects.is_empty() { "no effect was seen" } else { "" };
            let span = Span { from: fault.from, to, value: fault.name, info };
            self.span_box(&mut d, &span, "k-fault", y + 5, MARKS - 10);
            for at in fault.effects.iter().take(self.limits.spans) {
                let x = self.x(*at);
                let _ = write!(
                    d.svg,
                    "<line class=\"effect\" x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1=\"{}\" y2=\"{}\"/>",
                    y + 2,
                    y + MARKS - 2
                );
            }
            let (x, width) = (self.x(fault.from), (self.x(to) - self.x(fault.from)).max(0.15));
            let _ =
                write!(bands, "<rect class=\"band\" x=\"{x:.3}%\" width=\"{width:.3}%\" y=\"{AXIS}\" height=\"@H\"/>");
        }
        for cluster in t.clusters.iter().take(self.limits.lanes.max(4)) {
            let status = esc(cluster.last_status());
            let y =
                self.lane(&mut d, CLUSTER, "cluster", &cluster.name, &format!("<span>{status}</span><i>cluster</i>"));
            self.spans(&mut d, &cluster.statuses, status_class, y + 5, 20);
            self.spans(&mut d, &cluster.stages, stage_class, y + 26, 13);
            self.marks(&mut d, &cluster.marks, "mc", y + 51);
        }
        let named: Vec<&str> = self
            .result
            .checks
            .iter()
            .filter(|c| c.verdict.urgency() < 2)
            .filter_map(|c| c.subject.as_deref())
            .collect();
        let crowd = t.hosts.len() > self.limits.lanes;
        if crowd {
            self.groups(&mut d);
        }
        let alone = t.hosts.iter().filter(|h| !crowd || named.contains(&&*h.name) || stands_out(h));
        let mut shown = 0;
        for host in alone.take(if crowd { self.limits.lanes / 2 } else { self.limits.lanes }) {
            shown += 1;
            let role = match (host.role, host.bootstrap) {
                (Some(role), true) => format!("<i>{role}, bootstrap</i>"),
                (Some(role), false) => format!("<i>{role}</i>"),
                (None, _) => "<i>host</i>".to_owned(),
            };
            let class = if named.contains(&&*host.name) { "host named" } else { "host" };
            let status = esc(host.last_status());
            let y = self.lane(&mut d, HOST, class, &host.name, &format!("<span>{status}</span>{role}"));
            self.spans(&mut d, &host.statuses, status_class, y + 5, 19);
            self.spans(&mut d, &host.stages, stage_class, y + 25, 13);
            self.marks(&mut d, &host.marks, "mh", y + 39);
        }
        let height = d.y + 4;
        let mut frame = Drawing::default();
        self.axis(&mut frame, height);
        let mut failures = String::new();
        let first =
            self.result.by_urgency().into_iter().filter(|c| c.verdict == CheckVerdict::Failed).find(|c| c.at.is_some());
        if let Some((check, at)) = first.and_then(|c| c.at.map(|at| (c, at))) {
            let x = self.x(self.timeline.offset(at));
            let (anchor, dx) = if x > 70.0 { ("end", -5) } else { ("start", 5) };
            let _ = write!(
                failures,
                "<line class=\"failed\" x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1=\"18\" y2=\"{height}\"/><text class=\"failed\" x=\"{x:.3}%\" \
                 dx=\"{dx}\" y=\"27\" text-anchor=\"{anchor}\">✗ {}</text>",
                esc(&self.short(&check.name, 60))
            );
        }
        let note = if crowd {
            format!(
                "{} hosts are drawn together, as how many of them had each status; {shown} that stand out have lanes of their own.",
                thousands(t.hosts.len() as u64)
            )
        } else {
            String::new()
        };
        let _ = write!(
            out,
            "<section id=\"timeline\"><h2>Timeline<span class=\"tools\" hidden><button type=\"button\" id=\"zo\" aria-label=\"zoom out\">−</button>\
             <button type=\"button\" id=\"zf\">fit</button><button type=\"button\" id=\"zi\" aria-label=\"zoom in\">+</button></span></h2>\n\
             <p class=\"note\">{note} Time runs from the first observation; upper bars are statuses, lower bars installation stages. \
             Point at anything for its times and the service’s words.</p>\n\
             <div class=\"tl\" data-lanes=\"{lanes}\" data-length=\"{length}\"><div class=\"labels\">{labels}</div>\
             <div class=\"scroll\" tabindex=\"0\" aria-label=\"timeline\"><div class=\"wide\"><svg id=\"svg\" width=\"100%\" height=\"{height}\" role=\"img\" aria-label=\"timeline of the run\">\
             <defs><pattern id=\"hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
             <line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\" stroke=\"#fff\" stroke-opacity=\".38\" stroke-width=\"4\"/></pattern></defs>\
             {svg}{grid}{bands}{failures}</svg><div id=\"hair\" hidden><span></span></div></div></div></div>\n",
            lanes = d.lanes,
            length = t.length,
            labels = d.labels,
            svg = d.svg,
            grid = frame.svg,
            bands = bands.replace("@H", &(height - AXIS).to_string()),
        );
        out.push_str("<ul class=\"legend\">");
        for class in LEGEND {
            if let Some(words) = d.legend.get(class) {
                let _ = write!(
                    out,
                    "<li><span class=\"chip {class}\"></span>{}</li>",
                    esc(&self.short(&listed(words), 240))
                );
            }
        }
        out.push_str("</ul></section>\n");
    }

    /// Hosts of one kind together: how many had each status, and each stage, over time.
    fn groups(&self, d: &mut Drawing) {
        let mut groups: BTreeMap<&str, Vec<&Lane<'_>>> = BTreeMap::new();
        for host in &self.timeline.hosts {
            let stem = natural(&host.name).0.trim_end_matches('-');
            groups.entry(stem).or_default().push(host);
        }
        if groups.len() > 12 {
            groups = BTreeMap::from([("hosts", self.timeline.hosts.iter().collect())]);
        }
        for (stem, hosts) in groups {
            let name = format!("{} hosts", thousands(hosts.len() as u64));
            let staged = hosts.iter().any(|h| !h.stages.is_empty());
            let height = GROUP + if staged { GROUP_STAGES } else { 0 };
            let y = self.lane(d, height, "group", &name, &format!("<i>{}</i>", esc(&self.short(stem, 40))));
            let statuses: Vec<&str> = HostStatus::NAMES.to_vec();
            self.area(d, &hosts, |h| &h.statuses, &statuses, status_class, (y + 6, 74));
            let stages: Vec<&str> = HostStage::NAMES.to_vec();
            self.area(d, &hosts, |h| &h.stages, &stages, stage_class, (y + 84, 28));
        }
    }

    /// Stacked areas: how many of `hosts` had each of `values` at each moment.
    fn area<'l, 'h: 'l>(
        &self,
        d: &mut Drawing,
        hosts: &[&'l Lane<'h>],
        spans: fn(&'l Lane<'h>) -> &'l [Span<'h>],
        values: &[&str],
        class: fn(&str) -> &'static str,
        (y, height): (u32, u32),
    ) {
        const COLUMNS: usize = 400;
        let step = self.timeline.length as f64 * 1.012 / COLUMNS as f64;
        // Where a moment falls among the middles of the columns.
        let column = |at: i64| ((at as f64 / step - 0.5).ceil().max(0.0) as usize).min(COLUMNS);
        let mut counts: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for span in hosts.iter().flat_map(|h| spans(h)) {
            let changes = counts.entry(span.value).or_insert_with(|| vec![0; COLUMNS + 1]);
            changes[column(span.from)] += 1;
            changes[column(span.to)] -= 1;
        }
        let mut below = vec![0_i64; COLUMNS];
        let total = hosts.len().max(1) as f64;
        let _ = write!(
            d.svg,
            "<svg class=\"area\" y=\"{y}\" width=\"100%\" height=\"{height}\" viewBox=\"0 0 {COLUMNS} 1000\" preserveAspectRatio=\"none\">"
        );
        for value in values {
            let Some(changes) = counts.get(value) else { continue };
            let mut now = 0;
            let mut most = 0;
            let (mut upper, mut lower) = (String::new(), Vec::new());
            for (i, change) in changes.iter().take(COLUMNS).enumerate() {
                now += change;
                most = most.max(now);
                let edge = |count: i64| (1000.0 - count as f64 / total * 1000.0).round() as i64;
                let (low, high) = (edge(below[i]), edge(below[i] + now));
                // Only where something changes.
                let last = lower.last().map(|(_, l, h)| (*l, *h));
                if last != Some((low, high)) {
                    lower.push((i, low, high));
                }
                below[i] += now;
            }
            if most == 0 {
                continue;
            }
            let end = COLUMNS;
            for (n, (i, _, high)) in lower.iter().enumerate() {
                let next = lower.get(n + 1).map_or(end, |l| l.0);
                let _ = write!(upper, "{}{i},{high}H{next}", if n == 0 { "M" } else { "L" });
            }
            for (n, (i, low, _)) in lower.iter().enumerate().rev() {
                let next = lower.get(n + 1).map_or(end, |l| l.0);
                let _ = write!(upper, "L{next},{low}H{i}");
            }
            let class = class(value);
            let words = d.legend.entry(class).or_default();
            if !words.iter().any(|w| w == value) {
                words.push((*value).to_owned());
            }
            let _ = write!(
                d.svg,
                "<path class=\"{class}\" d=\"{upper}z\"><title>{}: at most {} of {}</title></path>",
                esc(value),
                thousands(most.unsigned_abs()),
                thousands(hosts.len() as u64)
            );
        }
        d.svg.push_str("</svg>");
    }

    fn durations(&self, out: &mut String) {
        let durations = &self.result.durations;
        if durations.is_empty() {
            return;
        }
        out.push_str("<section id=\"durations\"><h2>Durations against budgets</h2>\n<table class=\"bars\"><tbody>\n");
        let mut sorted: Vec<&DurationResult> = durations.iter().collect();
        sorted.sort_by_key(|d| d.met() != Some(false));
        for duration in sorted.iter().take(self.limits.checks.min(200)) {
            self.duration(out, duration);
        }
        out.push_str("</tbody></table>\n");
        if sorted.len() > self.limits.checks.min(200) {
            let _ = write!(out, "<p class=\"note\">All {} are in <code>result.json</code>.</p>", sorted.len());
        }
        out.push_str("</section>\n");
    }

    fn duration(&self, out: &mut String, d: &DurationResult) {
        let took = d.took_ms.unwrap_or(0.0).max(0.0);
        let whole = took.max(d.budget_ms.unwrap_or(0.0)).max(f64::MIN_POSITIVE) * 1.08;
        let class = match d.met() {
            Some(true) => "ok",
            Some(false) => "bad",
            None => "none",
        };
        let subject = d.subject.as_ref().map(|s| format!("<i>{}</i>", self.text(s))).unwrap_or_default();
        let said = match (d.took_ms, d.budget_ms) {
            (Some(took), Some(budget)) => format!(
                "<b>{}</b> of {} <i>{}</i>",
                human_ms(took),
                human_ms(budget),
                d.budget_source.as_deref().map(|s| self.text(s)).unwrap_or_default()
            ),
            (Some(took), None) => format!("<b>{}</b>", human_ms(took)),
            (None, Some(budget)) => format!("<b>never</b>, {} allowed", human_ms(budget)),
            (None, None) => "<b>never</b>".to_owned(),
        };
        let filled = if d.took_ms.is_none() { 100.0 } else { took / whole * 100.0 };
        let limit = d
            .budget_ms
            .map(|b| format!("<span class=\"limit\" style=\"left:{:.2}%\"></span>", b / whole * 100.0))
            .unwrap_or_default();
        let _ = writeln!(
            out,
            "<tr class=\"{class}\"><th scope=\"row\">{}{subject}</th><td class=\"bar\"><div><span class=\"fill\" style=\"width:{filled:.2}%\"></span>{limit}</div></td><td>{said}</td></tr>",
            self.text(&d.name)
        );
    }

    fn checks(&self, out: &mut String) {
        let checks = self.result.by_urgency();
        if checks.is_empty() {
            return;
        }
        out.push_str("<section id=\"checks\"><h2>Everything that was checked</h2>\n<table class=\"checks\"><tbody>\n");
        for check in checks.iter().take(self.limits.checks) {
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
            let said = check.verdict.reason().unwrap_or(&check.message);
            let subject = check.subject.as_ref().map(|s| format!("<i>{}</i>", self.text(s))).unwrap_or_default();
            let mut more = String::new();
            for (name, text) in [("expected", &check.expected), ("seen", &check.seen)] {
                if !text.is_empty() && check.verdict != CheckVerdict::Passed {
                    let _ = write!(more, "<br><small>{name}: {}</small>", self.text(text));
                }
            }
            let _ = writeln!(
                out,
                "<tr class=\"{class}\"><td class=\"sign\" title=\"{class}\">{sign}</td><td class=\"kind\">{kind}</td><th scope=\"row\">{}{subject}</th><td>{}{more}</td></tr>",
                self.text(&check.name),
                self.text(said)
            );
        }
        out.push_str("</tbody></table>\n");
        if checks.len() > self.limits.checks {
            let _ = write!(out, "<p class=\"note\">All {} are in <code>result.json</code>.</p>", checks.len());
        }
        out.push_str("</section>\n");
    }

    fn load(&self, out: &mut String) {
        let r = self.result;
        if r.load.is_none() && r.detection_latency_ms.is_none() && r.overhead.is_none() {
            return;
        }
        out.push_str("<section id=\"load\"><h2>Measured</h2>\n<ul class=\"tiles\">");
        let mut tile = |value: String, name: &str| {
            let _ = write!(out, "<li><b>{value}</b><span>{name}</span></li>");
        };
        let memory = |kib: u64| match kib {
            0..10_240 => format!("{} KiB", thousands(kib)),
            _ => format!("{} MiB", thousands(kib / 1024)),
        };
        if let Some(load) = &r.load {
            tile(thousands(load.hosts), "hosts");
            tile(
                format!("{:.1}<small> of {:.1}</small>", load.achieved_rps, load.offered_rps),
                "requests a second, achieved of offered",
            );
            tile(thousands(load.requests), "requests");
            tile(thousands(load.errors.values().sum()), "errors");
            if let Some(kib) = load.per_host_kib_slope {
                tile(format!("{kib:.1} KiB"), "memory of one more idle host");
            }
            for (kib, name) in [
                (load.agents_rss_kib, "hosts’ process"),
                (load.service_rss_kib, "service"),
                (load.postgres_rss_kib, "PostgreSQL"),
            ] {
                if let Some(kib) = kib {
                    tile(memory(kib), &format!("resident memory, {name}"));
                }
            }
        }
        if let Some(o) = &r.overhead {
            tile(human_ms(o.wall_ms), "wall time");
            tile(human_ms(o.forced_ms), "forced by the service’s intervals");
            let limit = o.limit_ms.map(|l| format!("<small> of {}</small>", human_ms(l))).unwrap_or_default();
            tile(human_ms(o.overhead_ms) + &limit, "harness overhead");
            if let Some(ms) = o.first_host_ms {
                tile(human_ms(ms), "to the first registration");
            }
        }
        out.push_str("</ul>\n");
        let mut rows: Vec<(&str, &Quantiles)> = Vec::new();
        if let Some(q) = &r.detection_latency_ms {
            rows.push(("detection of a transition", q));
        }
        rows.extend(r.load.iter().flat_map(|l| &l.latency).map(|l| (l.operation.as_str(), &l.latency_ms)).take(100));
        if !rows.is_empty() {
            out.push_str(
                "<table class=\"numbers\"><thead><tr><th scope=\"col\">latency</th><th scope=\"col\">count</th><th scope=\"col\">median</th>\
                 <th scope=\"col\">90 %</th><th scope=\"col\">99 %</th><th scope=\"col\">99.9 %</th><th scope=\"col\">longest</th></tr></thead><tbody>\n",
            );
            for (name, q) in rows {
                let _ = write!(out, "<tr><th scope=\"row\">{}</th><td>{}</td>", self.text(name), thousands(q.count));
                for ms in [q.p50, q.p90, q.p99, q.p999, q.max] {
                    let _ = write!(out, "<td>{}</td>", human_ms(ms));
                }
                out.push_str("</tr>\n");
            }
            out.push_str("</tbody></table>\n");
        }
        let errors = r.load.iter().flat_map(|l| &l.errors).filter(|(_, n)| **n > 0);
        let errors: Vec<String> =
            errors.take(50).map(|(kind, n)| format!("<li><b>{}</b> {}</li>", thousands(*n), self.text(kind))).collect();
        if !errors.is_empty() {
            let _ = write!(out, "<h3>Errors</h3><ul class=\"errors\">{}</ul>", errors.concat());
        }
        out.push_str("</section>\n");
    }

    /// The rows of a table that go into the page: all, or the first and last ones.
    fn kept<T>(&self, all: usize, row: impl Fn(usize) -> T) -> Vec<T> {
        match all.checked_sub(self.limits.rows) {
            Some(over) if over > 0 => {
                let head = self.limits.rows * 2 / 3;
                (0..head).chain(head + over..all).map(row).collect()
            }
            _ => (0..all).map(row).collect(),
        }
    }

    fn tables(&self, out: &mut String) {
        let t = self.timeline;
        let text = |text: &str| self.short(text, self.limits.text.min(400));
        let transitions = self.kept(t.transitions.len(), |i| {
            let row = &t.transitions[i];
            let kind = if row.which.is_empty() { row.kind.to_owned() } else { format!("{} {}", row.kind, row.which) };
            [
                human(row.at),
                text(&t.name(row.subject)),
                kind,
                row.from.to_owned(),
                row.to.to_owned(),
                text(row.info),
                source_names(row.sources),
            ]
        });
        let events = self.kept(t.rows.len(), |i| {
            let row = &t.rows[i];
            let subject = row.subject.map(|s| text(&t.name(s))).unwrap_or_default();
            [human(row.at), row.kind.to_owned(), row.severity.to_owned(), subject, text(row.name), text(&row.text)]
        });
        self.table(
            out,
            "transitions",
            "Transitions",
            &["time", "subject", "what", "from", "to", "the service’s words", "seen by"],
            &transitions,
            t.transitions.len(),
        );
        self.table(
            out,
            "events",
            "Events",
            &["time", "kind", "severity", "subject", "name", "text"],
            &events,
            t.rows.len(),
        );

        // Strings once, rows as their numbers.
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut strings: Vec<&str> = Vec::new();
        for cell in transitions.iter().flatten().chain(events.iter().flatten()) {
            numbers.entry(cell.as_str()).or_insert_with(|| {
                strings.push(cell.as_str());
                strings.len() - 1
            });
        }
        let rows = |cells: &[&str]| -> Vec<usize> { cells.iter().map(|c| numbers[c]).collect() };
        let data = json!({
            "strings": strings,
            "transitions": transitions.iter().map(|r| rows(&r.each_ref().map(String::as_str))).collect::<Vec<_>>(),
            "events": events.iter().map(|r| rows(&r.each_ref().map(String::as_str))).collect::<Vec<_>>(),
        });
        // `<` by its number: nothing in the data can end the script or begin a comment.
        let _ = writeln!(
            out,
            "<script type=\"application/json\" id=\"data\">{}</script>",
            data.to_string().replace('<', "\\u003c")
        );
    }

    fn table<const N: usize>(
        &self,
        out: &mut String,
        id: &str,
        name: &str,
        heads: &[&str; N],
        rows: &[[String; N]],
        all: usize,
    ) {
        const STATIC: usize = 60;
        let _ = write!(
            out,
            "<section id=\"{id}\"><h2>{name} <span class=\"count\">{}</span></h2>\n\
             <p class=\"filter\" hidden><input type=\"search\" placeholder=\"filter: all words must occur\" aria-label=\"filter {id}\"> <span></span></p>\n",
            thousands(all as u64)
        );
        if rows.len() < all {
            let _ = writeln!(
                out,
                "<p class=\"note\">The page holds {} of {} rows, the first and the last ones; all are in <code>history.jsonl</code>.</p>",
                thousands(rows.len() as u64),
                thousands(all as u64)
            );
        }
        if rows.is_empty() {
            out.push_str("<p class=\"note\">None.</p></section>\n");
            return;
        }
        let _ = write!(out, "<div class=\"rows\"><table class=\"log\" data-table=\"{id}\"><thead><tr>");
        for head in heads {
            let _ = write!(out, "<th scope=\"col\">{head}</th>");
        }
        out.push_str("</tr></thead><tbody>\n");
        for row in rows.iter().take(STATIC) {
            out.push_str("<tr>");
            for cell in row {
                let _ = write!(out, "<td>{}</td>", esc(cell));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>");
        if rows.len() > STATIC {
            let _ = write!(
                out,
                "<noscript><p class=\"note\">Only the first {STATIC} rows are shown without scripts.</p></noscript>"
            );
        }
        out.push_str("</section>\n");
    }

    fn about(&self, out: &mut String) {
        let r = self.result;
        out.push_str("<section id=\"about\"><h2>About this run</h2>\n<div class=\"cols\"><dl class=\"pairs\">");
        let mut pair = |name: &str, value: String| {
            if !value.is_empty() {
                let _ = write!(out, "<dt>{}</dt><dd>{value}</dd>", esc(name));
            }
        };
        pair("scenario", self.text(&r.run.scenario_path));
        pair("started", r.started_at.to_string());
        pair("finished", r.finished_at.to_string());
        pair("observations", thousands(self.observations as u64));
        for (name, value) in r.environment.iter().take(40) {
            pair(name, self.text(value));
        }
        out.push_str("</dl>");
        if !r.files.is_empty() {
            out.push_str("<dl class=\"pairs\">");
            for file in r.files.iter().take(200) {
                let (path, what) = (self.text(&file.path), self.text(&file.what));
                let _ = write!(out, "<dt><a href=\"{path}\"><code>{path}</code></a></dt><dd>{what}</dd>");
            }
            out.push_str("</dl>");
        }
        out.push_str("</div></section>\n");
    }
}

#[cfg(test)]
mod tests {
    use vlab_api::types::{ClusterStatus, FinalizingStage};

    use super::*;

    #[test]
    fn every_status_and_stage_has_its_colour() {
        let others: Vec<&str> = HostStatus::NAMES
            .iter()
            .chain(ClusterStatus::NAMES)
            .copied()
            .filter(|s| status_class(s) == "k-other")
            .collect();
        assert_eq!(
            others,
            ["resetting", "cancelled", "binding", "unbinding", "reclaiming", "reclaiming-rebooting", "cancelled"]
        );
        assert!(HostStage::NAMES.iter().all(|s| stage_class(s) != "k-other"));
        assert!(FinalizingStage::NAMES.iter().all(|s| stage_class(s) != "k-other"));
    }

    #[test]
    fn the_legend_says_waiting_once() {
        let words = ["Waiting for control plane", "Rebooting", "Waiting for bootkube"].map(str::to_owned);
        assert_eq!(listed(&words), "Rebooting, Waiting for control plane / bootkube");
        assert_eq!(listed(&words[1..2]), "Rebooting");
        assert_eq!(listed(&[]), "");
    }

    #[test]
    fn durations_for_people() {
        let all = [0, 999, 1_500, 345_678, 12_345_678, 185_000_000, 3_725_000_000, -2_000_000].map(human);
        assert_eq!(all, ["0 µs", "999 µs", "1.5 ms", "345 ms", "12.35 s", "3 m 05 s", "1 h 02 m 05 s", "−2.00 s"]);
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
