//! The pivot of each bootstrap: a bar for each stage, from the moment before it to its own, and its budget as a mark.

use maud::{Markup, html};
use vlab_api::Timestamp;
use vlab_judge::result::{PivotMomentResult, PivotResult};

use super::Page;
use super::checks::all_in_result;
use crate::pivot::took;
use crate::text::human_ms;

impl Page<'_> {
    pub(super) fn pivots(&self) -> Markup {
        let pivots = &self.result.pivots;
        let told = pivots.len().min(self.limits.checks);
        html! {
            @if !pivots.is_empty() {
                section #pivot {
                    h2 { "Pivot" }
                    p.note {
                        "Each bar is a stage, from the previous moment to the one it is named after. The mark is its budget."
                    }
                    @for pivot in &pivots[..told] { (self.pivot(pivot)) }
                    @if told < pivots.len() { (all_in_result(pivots.len())) }
                }
            }
        }
    }

    fn pivot(&self, pivot: &PivotResult) -> Markup {
        let Some(start) = pivot.moments.iter().filter_map(|m| m.at).min() else { return html! {} };
        let scale = Scale::of(pivot, start);
        let cluster = self.text(&pivot.cluster);
        html! {
            table.bars.pivot data-cluster=(cluster) {
                thead {
                    tr {
                        th scope="col" {
                            (cluster) " "
                            @if let Some(bootstrap) = &pivot.bootstrap { i { "bootstrap " (self.text(bootstrap)) } }
                        }
                        th {}
                        th { (took(pivot.took_ms, pivot.budget_ms)) }
                    }
                }
                tbody { @for moment in &pivot.moments { (self.moment(moment, &scale)) } }
            }
        }
    }

    fn moment(&self, moment: &PivotMomentResult, scale: &Scale) -> Markup {
        let class = match (moment.is_bad(), moment.budget_ms) {
            (true, _) => "bad",
            (false, Some(_)) => "ok",
            (false, None) => "none",
        };
        html! {
            tr class=(class) {
                th scope="row" { (self.named(&moment.name, moment.host.as_deref())) }
                td.bar { div { (bar(moment, scale)) } }
                td {
                    @match (moment.at, moment.took_ms, moment.budget_ms) {
                        (None, _, _) => { b { "never" } }
                        (Some(_), None, _) => { "start" }
                        (Some(_), Some(ms), _) if ms < 0.0 => { b { "too early" } ", by " (human_ms(-ms)) }
                        (Some(_), Some(ms), Some(budget)) => { b { (human_ms(ms)) } " of " (human_ms(budget)) }
                        (Some(_), Some(ms), None) => { b { (human_ms(ms)) } }
                    }
                }
            }
        }
    }
}

fn bar(moment: &PivotMomentResult, scale: &Scale) -> Markup {
    let began = moment.began_at.map(|began| scale.ms(began));
    let percent = |ms: f64| format!("{:.2}%", scale.percent(ms));
    html! {
        @if let Some(at) = moment.at.map(|at| scale.ms(at)) {
            @let (from, to) = (began.unwrap_or(at).min(at), began.unwrap_or(at).max(at));
            span.fill style={ "left:" (percent(from)) ";right:auto;width:" (percent(to - from)) } {}
        }
        @if let Some((began, budget)) = began.zip(moment.budget_ms) {
            span.limit style={ "left:" (percent(began + budget)) } {}
        }
    }
}

/// Milliseconds from the first moment of a pivot to the end of its last bar or budget.
struct Scale {
    start: Timestamp,
    whole: f64,
}

impl Scale {
    fn of(pivot: &PivotResult, start: Timestamp) -> Self {
        let scale = Self { start, whole: 0.0 };
        let end = |m: &PivotMomentResult| {
            let began = m.began_at.map_or(0.0, |began| scale.ms(began));
            m.at.map_or(began, |at| scale.ms(at)).max(began + m.budget_ms.unwrap_or(0.0))
        };
        let whole = pivot.moments.iter().map(end).fold(1.0, f64::max) * 1.01;
        Self { whole, ..scale }
    }

    fn ms(&self, at: Timestamp) -> f64 {
        if at < self.start { 0.0 } else { at.since(self.start).as_secs_f64() * 1e3 }
    }

    fn percent(&self, ms: f64) -> f64 {
        (ms / self.whole * 100.0).clamp(0.0, 100.0)
    }
}

#[cfg(test)]
mod tests {
    use vlab_judge::result::RunResult;

    use super::*;
    use crate::pivot::tests::pivot;

    fn page(pivots: Vec<PivotResult>) -> String {
        crate::html::render(&RunResult { pivots, ..RunResult::default() }, &[], &crate::Redactor::default())
    }

    #[test]
    fn the_gantt_shows_what_is_late_early_and_missing() {
        let page_of_one = page(vec![pivot()]);
        assert!(page_of_one.contains("data-cluster=\"a&lt;b\""));
        assert!(
            page_of_one.contains("<tr class=\"bad\"><th scope=\"row\">bootkube-done<i>master-0</i></th>"),
            "{page_of_one}"
        );
        assert!(page_of_one.contains("<b>too early</b>, by 5.00 s"));
        assert!(page_of_one.contains("<b>never</b>"));
        // 70 s in all: the budget of the last stage ends at the right.
        assert!(page_of_one.contains("class=\"limit\" style=\"left:99.01%\""), "{page_of_one}");
        assert!(!page(Vec::new()).contains("id=\"pivot\""));
    }
}
