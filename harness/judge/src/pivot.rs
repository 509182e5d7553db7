//! Measures the bootstrap's pivot in a history, and judges it where the scenario says what must be true of it.

use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_history::Timeline;
use vlab_model::history::Observation;
use vlab_model::pivot::{self, Came, Pivot, PivotMoment};
use vlab_scenario::{PivotOrder, Scenario, Span};

use crate::result::{CheckKind, CheckResult, CheckVerdict, PivotMomentResult, PivotResult};

/// How many of a host's last doings are shown with a failure.
const LAST_THINGS: usize = 10;

/// What a history says about the pivots of its clusters.
#[derive(Debug, Default)]
pub struct Measured {
    /// What was measured, of each cluster whose bootstrap began.
    pub pivots: Vec<PivotResult>,
    /// Expectations and budgets of the scenario's `pivot`.
    pub checks: Vec<CheckResult>,
}

/// Measures and judges the pivots of a history.
pub fn measure(scenario: &Scenario, clock_scale: f64, history: &[Observation], timeline: &Timeline<'_>) -> Measured {
    let pivots = pivot::pivots(history);
    let mut measured = Measured::default();
    for cluster in &scenario.clusters {
        let found = timeline.directory.clusters.get(&cluster.name).and_then(|id| pivots.get(id));
        let view = View {
            cluster: &cluster.name,
            order: PivotMoment::of(cluster.control_plane_count == 1),
            wanted: scenario.pivot.as_ref().filter(|_| cluster.is_installed_by(&scenario.actions)),
            found,
            clock_scale,
            timeline,
        };
        if found.is_some() {
            measured.pivots.push(view.result());
        }
        measured.checks.extend(view.checks());
    }
    measured
}

/// One cluster's pivot, and what it is compared with.
struct View<'a> {
    cluster: &'a str,
    order: &'static [PivotMoment],
    wanted: Option<&'a vlab_scenario::Pivot>,
    found: Option<&'a Pivot>,
    clock_scale: f64,
    timeline: &'a Timeline<'a>,
}

impl View<'_> {
    fn came(&self, moment: PivotMoment) -> Option<Came> {
        self.found?.came.get(&moment).copied()
    }

    /// When the stage began, and how long it took; negative when the moment came before one that it must follow.
    fn stage(&self, moment: PivotMoment) -> (Option<Timestamp>, Option<f64>) {
        let began = self.found.and_then(|p| p.began(self.order, moment)).map(|c| c.at);
        let took = began.zip(self.came(moment)).map(|(from, came)| signed_millis(from, came.at));
        (began, took)
    }

    /// From the first moment to the last.
    fn whole(&self) -> Option<Duration> {
        let (first, last) = (self.order.first()?, self.order.last()?);
        Some(self.came(*last)?.at.since(self.came(*first)?.at))
    }

    fn under(&self, span: Span) -> Duration {
        span.under(self.clock_scale)
    }

    fn result(&self) -> PivotResult {
        let name = |id: Option<Uuid>| id.map(|id| self.timeline.directory.name(id));
        PivotResult {
            cluster: self.cluster.to_owned(),
            bootstrap: name(self.found.and_then(|p| p.bootstrap)),
            moments: self
                .order
                .iter()
                .map(|moment| {
                    let (began_at, took_ms) = self.stage(*moment);
                    let came = self.came(*moment);
                    let budget = self.wanted.and_then(|w| w.stages.get(moment));
                    PivotMomentResult {
                        name: moment.to_string(),
                        at: came.map(|c| c.at),
                        host: name(came.and_then(|c| c.host)),
                        began_at,
                        took_ms,
                        budget_ms: budget.map(|b| millis(self.under(*b))),
                    }
                })
                .collect(),
            took_ms: self.whole().map(millis),
            budget_ms: self.wanted.and_then(|w| w.within).map(|w| millis(self.under(w))),
        }
    }

    fn checks(&self) -> Vec<CheckResult> {
        let Some(wanted) = self.wanted else { return Vec::new() };
        let mut checks: Vec<CheckResult> = self.order.iter().map(|m| self.moment(*m, wanted.order)).collect();
        if wanted.order == PivotOrder::Strict {
            checks.push(self.quorum());
        }
        for (moment, budget) in wanted.stages.iter().filter(|(m, _)| self.order.contains(m)) {
            let took = self.stage(*moment).1.map(|ms| Duration::from_secs_f64(ms.max(0.0) / 1e3));
            checks.push(self.budget(&format!("pivot {moment}"), *budget, took, self.came(*moment)));
        }
        if let Some(budget) = wanted.within {
            let last = self.order.last().and_then(|m| self.came(*m));
            checks.push(self.budget("pivot", budget, self.whole(), last));
        }
        checks
    }

    /// The moment came, and not before one that it must follow.
    fn moment(&self, moment: PivotMoment, order: PivotOrder) -> CheckResult {
        let before: Vec<PivotMoment> = self.order.iter().copied().take_while(|m| *m != moment).collect();
        let name = format!("pivot of {}: {moment}", self.cluster);
        let mut check = CheckResult::new(CheckKind::Expectation, name, CheckVerdict::Passed);
        check.expected = match before.last() {
            Some(last) if order == PivotOrder::Strict => format!("{moment} comes, after {last}"),
            _ => format!("{moment} comes"),
        };
        let Some(came) = self.came(moment) else {
            let rest = self.order.iter().copied().skip(before.len() + 1);
            let next = rest.filter_map(|m| self.came(m).map(|c| (c.seq, m, c))).min_by_key(|(seq, ..)| *seq);
            let last = before.iter().rev().find_map(|m| self.came(*m).map(|c| (*m, c)));
            let text = match (next, last) {
                (Some((_, m, c)), _) => format!("it was never seen, and {} all the same", self.text(m, c)),
                (None, Some((m, c))) => {
                    format!("it was never seen; the last moment of the pivot was {}", self.text(m, c))
                }
                (None, None) => "it was never seen, nor any other moment of the pivot".to_owned(),
            };
            return self.failed(check, text, next.map(|(_, _, c)| c).or(last.map(|(_, c)| c)));
        };
        check.seen = self.text(moment, came);
        let late = before.iter().filter_map(|m| self.came(*m).map(|c| (*m, c))).find(|(_, c)| came.at < c.at);
        match late {
            Some((m, c)) if order == PivotOrder::Strict => {
                let text = format!("{}, before {}", self.text(moment, came), self.text(m, c));
                self.failed(check, text, Some(came))
            }
            _ => check,
        }
    }

    fn quorum(&self) -> CheckResult {
        let name = format!("pivot of {}: etcd keeps its quorum", self.cluster);
        let mut check = CheckResult::new(CheckKind::Expectation, name, CheckVerdict::Passed);
        check.expected = "from etcd-quorum to the end of the pivot etcd has its quorum".to_owned();
        match (self.found.and_then(|p| p.quorum_lost.first()), self.came(PivotMoment::EtcdQuorum)) {
            (Some(lost), _) => {
                let missing =
                    lost.host.map(|h| format!(" without {}", self.timeline.directory.name(h))).unwrap_or_default();
                let text = format!("it had none after {}{missing}", self.since_start(lost.at));
                self.failed(check, text, Some(*lost))
            }
            (None, Some(_)) => {
                check.seen = "it had it".to_owned();
                check
            }
            (None, None) => {
                let reason = "etcd never left the bootstrap".to_owned();
                check.verdict = CheckVerdict::Skipped { reason };
                check
            }
        }
    }

    fn budget(&self, what: &str, budget: Span, took: Option<Duration>, came: Option<Came>) -> CheckResult {
        let name = format!("budget: {what} ({})", self.cluster);
        let mut check = CheckResult::new(CheckKind::Budget, name, CheckVerdict::Passed);
        let limit = self.under(budget);
        check.subject = Some(self.cluster.to_owned());
        check.expected = match limit == budget.as_written() {
            true => format!("at most {budget}"),
            false => format!("at most {budget} ({:.3} s here)", limit.as_secs_f64()),
        };
        match took {
            Some(took) if took <= limit => {
                check.seen = format!("{:.3} s", took.as_secs_f64());
                check
            }
            Some(took) => {
                let host = came
                    .and_then(|c| c.host)
                    .map(|h| format!(" on {}", self.timeline.directory.name(h)))
                    .unwrap_or_default();
                let text = format!("it took {:.3} s{host}, {}", took.as_secs_f64(), check.expected);
                self.failed(check, text, came)
            }
            None => self.failed(check, "it never ended".to_owned(), None),
        }
    }

    fn failed(&self, mut check: CheckResult, text: String, came: Option<Came>) -> CheckResult {
        check.verdict = CheckVerdict::Failed;
        check.message.clone_from(&text);
        check.seen = text;
        check.at = came.map(|c| c.at);
        check.seq = came.map(|c| c.seq);
        if let Some(host) = came.and_then(|c| c.host).or(self.found.and_then(|p| p.bootstrap)) {
            check.subject = Some(self.timeline.directory.name(host));
            check.last_things = self.timeline.last_things(host, LAST_THINGS, check.seq);
        }
        check
    }

    fn since_start(&self, at: Timestamp) -> String {
        format!("{:.3} s", at.since(self.timeline.start().unwrap_or_default()).as_secs_f64())
    }

    fn text(&self, moment: PivotMoment, came: Came) -> String {
        let host = came.host.map(|h| format!(" ({})", self.timeline.directory.name(h))).unwrap_or_default();
        format!("{moment}{host} came after {}", self.since_start(came.at))
    }
}

fn millis(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() / 1e3
}

fn signed_millis(from: Timestamp, to: Timestamp) -> f64 {
    if to < from { -millis(from.since(to)) } else { millis(to.since(from)) }
}
