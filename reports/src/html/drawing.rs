//! The timeline: a lane for the user, for each fault, each cluster and each host (or group of hosts), over one axis of time.

use maud::{Markup, html};
use vlab_judge::result::CheckVerdict;

use super::colours::{Bar, Legend, stands_out};
use super::{NAME, Page, percent};
use crate::text::{human, thousands};
use crate::timeline::{FaultSpan, Lane, Mark, Span};

/// Heights in pixels.
const AXIS: u32 = 30;
const MARKS: u32 = 26;
const CLUSTER: u32 = 64;
const HOST: u32 = 44;

/// The lanes so far, and what their colours mean.
pub(super) struct Drawing {
    rows: Vec<Row>,
    /// Where the next lane begins.
    y: u32,
    pub(super) legend: Legend,
}

/// A lane: its label at the left, what is drawn at the right.
struct Row {
    class: &'static str,
    y: u32,
    height: u32,
    name: String,
    /// What the label says below or beside the name.
    more: Markup,
    drawn: Markup,
}

impl Drawing {
    /// One more lane, below the others. `drawn` is given where it begins.
    pub(super) fn lane(
        &mut self,
        class: &'static str,
        height: u32,
        (name, more): (String, Markup),
        drawn: impl FnOnce(&mut Legend, u32) -> Markup,
    ) {
        let y = self.y;
        let drawn = drawn(&mut self.legend, y);
        self.rows.push(Row { class, y, height, name, more, drawn });
        self.y += height;
    }
}

impl Row {
    fn label(&self) -> Markup {
        html! {
            div.l.(self.class) style={ "height:" (self.height) "px" } {
                b title=(self.name) { (self.name) }
                (self.more)
            }
        }
    }

    fn picture(&self) -> Markup {
        html! {
            rect.lane.(self.class) x="0" y=(self.y) width="100%" height=(self.height) {}
            (self.drawn)
        }
    }
}

impl Page<'_> {
    /// The section with the drawing of this run alone.
    pub(super) fn timeline(&self) -> Markup {
        html! {
            section #timeline {
                (heading("Timeline"))
                (self.drawing("Time starts with the first observation."))
            }
        }
    }

    /// The lanes over their axis, and what their colours mean. `zero` says what the times count from.
    pub(super) fn drawing(&self, zero: &str) -> Markup {
        let mut d = Drawing { rows: Vec::new(), y: AXIS, legend: Legend::default() };
        self.user_lane(&mut d);
        for fault in self.faults() {
            self.fault_lane(&mut d, fault);
        }
        for cluster in self.timeline.clusters.iter().take(self.limits.lanes.max(4)) {
            self.cluster_lane(&mut d, cluster);
        }
        let note = self.host_lanes(&mut d);
        let height = d.y + 4;
        html! {
            p.note {
                (note)
                " " (zero) " Upper bars are statuses, lower bars are installation stages. "
                "Hover over anything for its times and the service’s message."
            }
            div.tl data-lanes=(d.rows.len()) data-length=(self.axis.length) data-origin=(self.axis.origin) {
                div.labels {
                    div.l.axis style={ "height:" (AXIS) "px" } {}
                    @for row in &d.rows { (row.label()) }
                }
                div.scroll tabindex="0" aria-label="timeline" {
                    div.wide {
                        svg.lanes width="100%" height=(height) role="img" aria-label="timeline of the run" {
                            (hatch())
                            @for row in &d.rows { (row.picture()) }
                            (self.axis(height))
                            @for fault in self.faults() { (self.band(fault, height)) }
                            (self.first_failure(height))
                        }
                        div.hair hidden { span {} }
                    }
                }
            }
            (d.legend.render(self))
        }
    }

    fn faults(&self) -> impl Iterator<Item = &FaultSpan<'_>> {
        self.timeline.faults.iter().take(24)
    }

    fn user_lane(&self, d: &mut Drawing) {
        let marks = &self.timeline.user;
        if !marks.is_empty() {
            d.lane("user", MARKS, ("user".to_owned(), html! {}), |_, y| self.marks(marks, "mu", y + MARKS / 2));
        }
    }

    fn fault_lane(&self, d: &mut Drawing, fault: &FaultSpan<'_>) {
        let name = self.short(fault.name, NAME);
        let info = if fault.effects.is_empty() { "no effect was seen" } else { "" };
        let to = fault.to.unwrap_or(self.timeline.length);
        d.lane("fault", MARKS, (name.clone(), html! { i { "fault" } }), |legend, y| {
            let span = Span { from: fault.from, to, value: &name, info };
            html! {
                (self.span(legend, &span, "k-fault", y + 5, MARKS - 10))
                @for at in fault.effects.iter().take(self.limits.spans) {
                    @let x = percent(self.x(*at));
                    line.effect x1=(x) x2=(x) y1=(y + 2) y2=(y + MARKS - 2) {}
                }
            }
        });
    }

    /// The time of a fault, over all lanes.
    fn band(&self, fault: &FaultSpan<'_>, height: u32) -> Markup {
        let (from, to) = (self.x(fault.from), self.x(fault.to.unwrap_or(self.timeline.length)));
        html! {
            rect.band x=(percent(from)) width=(percent((to - from).max(0.15))) y=(AXIS) height=(height - AXIS) {}
        }
    }

    fn cluster_lane(&self, d: &mut Drawing, cluster: &Lane<'_>) {
        let more = html! { span { (cluster.last_status()) } i { "cluster" } };
        d.lane("cluster", CLUSTER, (self.short(&cluster.name, NAME), more), |legend, y| {
            html! {
                (self.bar(legend, cluster, Bar::Statuses, y + 5, 20))
                (self.bar(legend, cluster, Bar::Stages, y + 26, 13))
                (self.marks(&cluster.marks, "mc", y + 51))
            }
        });
    }

    /// Hosts, a lane each. With too many, they are drawn together, those that stand out also alone, and the note says so.
    fn host_lanes(&self, d: &mut Drawing) -> String {
        let hosts = &self.timeline.hosts;
        let bad = self.result.checks.iter().filter(|c| c.verdict.urgency() < 2);
        let named: Vec<&str> = bad.filter_map(|c| c.subject.as_deref()).collect();
        let crowd = hosts.len() > self.limits.lanes;
        if crowd {
            self.groups(d);
        }
        let most = if crowd { self.limits.lanes / 2 } else { self.limits.lanes };
        let alone: Vec<&Lane<'_>> =
            hosts.iter().filter(|host| !crowd || named.contains(&&*host.name) || stands_out(host)).take(most).collect();
        for host in &alone {
            self.host_lane(d, host, named.contains(&&*host.name));
        }
        if !crowd {
            return String::new();
        }
        let all = thousands(hosts.len() as u64);
        let note = format!("The {all} hosts are drawn together: how many of them had each status at any time.");
        match alone.len() {
            0 => note,
            1 => format!("{note} One host that stands out has a lane of its own."),
            n => format!("{note} {n} hosts that stand out have lanes of their own."),
        }
    }

    fn host_lane(&self, d: &mut Drawing, host: &Lane<'_>, named: bool) {
        let more = html! {
            span { (host.last_status()) }
            i {
                (host.role.map_or("host", |role| role.as_str()))
                @if host.role.is_some() && host.bootstrap { ", bootstrap" }
            }
        };
        let class = if named { "host named" } else { "host" };
        d.lane(class, HOST, (self.short(&host.name, NAME), more), |legend, y| {
            html! {
                (self.bar(legend, host, Bar::Statuses, y + 5, 19))
                (self.bar(legend, host, Bar::Stages, y + 25, 13))
                (self.marks(&host.marks, "mh", y + 39))
            }
        });
    }

    /// The spans of a bar; of too many the first and the last ones, which say most.
    fn bar(&self, legend: &mut Legend, lane: &Lane<'_>, bar: Bar, y: u32, height: u32) -> Markup {
        let spans = bar.of(lane);
        let over = spans.len().saturating_sub(self.limits.spans);
        let head = if over > 0 { self.limits.spans / 2 } else { spans.len() };
        let (first, rest) = spans.split_at(head);
        let (left_out, last) = rest.split_at(over);
        let value = format!("{over} more");
        let gap = left_out.first().zip(left_out.last()).map(|(a, b)| Span {
            from: a.from,
            to: b.to,
            value: &value,
            info: "left out here, see history.jsonl",
        });
        html! {
            @if let Some(gap) = gap { (self.span(legend, &gap, "k-other", y, height)) }
            @for span in first.iter().chain(last) {
                (self.span(legend, span, bar.colour(span.value), y, height))
            }
        }
    }

    fn span(&self, legend: &mut Legend, span: &Span<'_>, colour: &'static str, y: u32, height: u32) -> Markup {
        legend.note(colour, span.value);
        let x = self.x(span.from);
        let width = (self.x(span.to) - x).max(0.08);
        html! {
            svg.s.(colour) x=(percent(x)) y=(y) width=(percent(width)) height=(height) {
                title {
                    (span.value) "\n" (human(span.from)) " → " (human(span.to)) " (" (human(span.to - span.from)) ")"
                    @if !span.info.is_empty() { "\n" (self.short(span.info, self.limits.text.min(300))) }
                }
                rect width="100%" height="100%" {}
                // A second way to tell what went wrong, for those who see no colours.
                @if matches!(colour, "k-err" | "k-gone" | "k-user" | "k-fault") {
                    rect.h width="100%" height="100%" {}
                }
                text x="5" y=(height / 2 + 4) { (span.value) }
            }
        }
    }

    fn marks(&self, marks: &[Mark<'_>], kind: &str, y: u32) -> Markup {
        html! {
            @for mark in marks.iter().take(self.limits.spans) {
                svg.m.(kind).bad[mark.bad] x=(percent(self.x(mark.at))) y=(y) overflow="visible" {
                    title { (self.short(&mark.text, 120)) "\n" (human(mark.at)) }
                    path d="M0-5L5 0L0 5L-5 0z" {}
                    text x="9" y="4" { (self.short(&mark.text, 40)) }
                }
            }
        }
    }

    fn axis(&self, height: u32) -> Markup {
        html! {
            @for (at, label) in ticks(self.axis.length, self.axis.origin) {
                @let x = percent(self.x(at - self.axis.shift));
                line.grid x1=(x) x2=(x) y1="20" y2=(height) {}
                text.tick x=(x) dx="3" y="15" { (label) }
            }
        }
    }

    /// Where the first failure of the product was seen.
    fn first_failure(&self, height: u32) -> Markup {
        let failed = self.result.by_urgency().into_iter().filter(|c| c.verdict == CheckVerdict::Failed);
        let first = failed.filter_map(|check| check.at.map(|at| (check, at))).next();
        html! {
            @if let Some((check, at)) = first {
                @let moment = self.x(self.timeline.offset(at));
                @let (anchor, dx) = if moment > 70.0 { ("end", "-5") } else { ("start", "5") };
                @let x = percent(moment);
                line.failed x1=(x) x2=(x) y1="18" y2=(height) {}
                text.failed x=(x) dx=(dx) y="27" text-anchor=(anchor) { "✗ " (self.short(&check.name, NAME)) }
            }
        }
    }
}

/// The hatching of what went wrong.
fn hatch() -> Markup {
    html! {
        defs {
            pattern #hatch width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                line x1="0" y1="0" x2="0" y2="7" stroke="#fff" stroke-opacity=".38" stroke-width="4" {}
            }
        }
    }
}

/// The heading of drawings, with what zooms them.
pub(super) fn heading(title: &str) -> Markup {
    html! {
        h2 {
            (title)
            span.tools hidden {
                button #zo type="button" aria-label="zoom out" { "−" }
                button #zf type="button" { "fit" }
                button #zi type="button" aria-label="zoom in" { "+" }
            }
        }
    }
}

/// Where the axis has its ticks, in microseconds, and what they say: at most a dozen, at round times before and after
/// `origin`.
fn ticks(length: i64, origin: i64) -> Vec<(i64, String)> {
    const STEPS_MS: [i64; 27] = [
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
    let step = STEPS_MS.iter().map(|ms| ms * 1000).find(|us| length / us <= 12).unwrap_or(length);
    let label = |at: i64| match (step, at) {
        (_, 0) => "0".to_owned(),
        (..1_000_000, _) if length < 1_000_000 => format!("{} ms", at / 1000),
        (..1_000_000, _) => format!("{:.1} s", at as f64 / 1e6),
        (_, ..60_000_000) => format!("{} s", at / 1_000_000),
        (_, ..3_600_000_000) => format!("{}:{:02}", at / 60_000_000, at / 1_000_000 % 60),
        _ => format!("{}:{:02}:{:02}", at / 3_600_000_000, at / 60_000_000 % 60, at / 1_000_000 % 60),
    };
    let before = (1..=origin / step).rev().map(|n| (origin - n * step, format!("−{}", label(n * step))));
    let after = (0..).map(|n| n * step).take_while(|at| *at <= length - origin);
    before.chain(after.map(|at| (origin + at, label(at)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        let labels = |length: i64| ticks(length, 0).into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(" ");
        assert_eq!(labels(1), "0");
        assert_eq!(labels(450_000), "0 50 ms 100 ms 150 ms 200 ms 250 ms 300 ms 350 ms 400 ms 450 ms");
        assert_eq!(labels(4_000_000), "0 0.5 s 1.0 s 1.5 s 2.0 s 2.5 s 3.0 s 3.5 s 4.0 s");
        assert_eq!(labels(700_000_000), "0 1:00 2:00 3:00 4:00 5:00 6:00 7:00 8:00 9:00 10:00 11:00");
        assert_eq!(labels(8_000_000_000), "0 15:00 30:00 45:00 1:00:00 1:15:00 1:30:00 1:45:00 2:00:00");
        let around: Vec<(i64, String)> = ticks(4_000_000, 1_200_000);
        assert_eq!(around[0], (200_000, "−1.0 s".to_owned()));
        assert_eq!(around[2], (1_200_000, "0".to_owned()));
        assert_eq!(around.last(), Some(&(3_700_000, "2.5 s".to_owned())));
        assert_eq!(ticks(i64::MAX / 1000, 0).len(), 2, "longer than any step");
    }
}
