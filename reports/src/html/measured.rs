//! What a run measured: load, memory, latencies, and what the harness itself cost.

use maud::{Markup, html};
use vlab_judge::result::{LoadReport, Overhead, Quantiles};

use super::{Page, tile};
use crate::text::{human_ms, thousands};

impl Page<'_> {
    pub(super) fn measured(&self) -> Markup {
        let r = self.result;
        let errors = r.load.iter().flat_map(|l| &l.errors).filter(|(_, n)| **n > 0);
        let errors: Vec<(&String, &u64)> = errors.take(50).collect();
        html! {
            @if r.load.is_some() || r.detection_latency_ms.is_some() || r.overhead.is_some() {
                section #load {
                    h2 { "Measured" }
                    ul.tiles {
                        @if let Some(load) = &r.load { (load_tiles(load)) }
                        @if let Some(overhead) = &r.overhead { (overhead_tiles(overhead)) }
                    }
                    (self.latencies())
                    @if !errors.is_empty() {
                        h3 { "Errors" }
                        ul.errors {
                            @for (kind, n) in errors { li { b { (thousands(*n)) } " " (self.text(kind)) } }
                        }
                    }
                }
            }
        }
    }

    fn latencies(&self) -> Markup {
        let r = self.result;
        let mut rows: Vec<(&str, &Quantiles)> = Vec::new();
        rows.extend(r.detection_latency_ms.as_ref().map(|q| ("detecting a transition", q)));
        rows.extend(r.load.iter().flat_map(|l| &l.latency).map(|l| (l.operation.as_str(), &l.latency_ms)).take(100));
        html! {
            @if !rows.is_empty() {
                table.numbers {
                    thead {
                        tr {
                            @for head in ["latency", "count", "median", "90%", "99%", "99.9%", "maximum"] {
                                th scope="col" { (head) }
                            }
                        }
                    }
                    tbody {
                        @for (name, q) in rows {
                            tr {
                                th scope="row" { (self.text(name)) }
                                td { (thousands(q.count)) }
                                @for ms in [q.p50, q.p90, q.p99, q.p999, q.max] { td { (human_ms(ms)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn load_tiles(load: &LoadReport) -> Markup {
    let rates = html! {
        (format_args!("{:.1}", load.achieved_rps)) small { (format_args!(" of {:.1}", load.offered_rps)) }
    };
    let resident = [
        (load.agents_rss_kib, "resident memory, hosts"),
        (load.service_rss_kib, "resident memory, service"),
        (load.postgres_rss_kib, "resident memory, PostgreSQL"),
    ];
    html! {
        (tile(thousands(load.hosts), "hosts", None))
        (tile(rates, "requests per second, achieved of offered", None))
        (tile(thousands(load.requests), "requests", None))
        (tile(thousands(load.errors.values().sum()), "errors", None))
        @if let Some(kib) = load.per_host_kib_slope {
            (tile(format!("{kib:.1} KiB"), "memory per additional idle host", None))
        }
        @for (kib, name) in resident {
            @if let Some(kib) = kib { (tile(memory(kib), name, None)) }
        }
    }
}

fn overhead_tiles(overhead: &Overhead) -> Markup {
    let of_limit = html! {
        (human_ms(overhead.overhead_ms))
        @if let Some(limit) = overhead.limit_ms { small { " of " (human_ms(limit)) } }
    };
    html! {
        (tile(human_ms(overhead.wall_ms), "wall time", None))
        (tile(human_ms(overhead.forced_ms), "spent waiting for the service’s intervals", None))
        (tile(of_limit, "harness overhead", None))
        @if let Some(ms) = overhead.first_host_ms { (tile(human_ms(ms), "until the first registration", None)) }
    }
}

fn memory(kib: u64) -> String {
    match kib {
        0..10_240 => format!("{} KiB", thousands(kib)),
        _ => format!("{} MiB", thousands(kib / 1024)),
    }
}
