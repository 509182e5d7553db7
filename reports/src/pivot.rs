//! The bootstrap's pivot for people: its Gantt in the page, and one line on the terminal.

use std::fmt::Write as _;

use vlab_api::Timestamp;

use crate::html::human_ms;
use vlab_judge::result::{PivotMomentResult, PivotResult};

/// The pivot in one line: how long it took, and each of its stages.
pub(crate) fn line(pivot: &PivotResult) -> String {
    let bootstrap = pivot.bootstrap.as_deref().map(|b| format!(" ({b})")).unwrap_or_default();
    let mut text = format!("pivot of {}{bootstrap}: {}", pivot.cluster, took(pivot.took_ms, pivot.budget_ms));
    for (i, moment) in pivot.moments.iter().skip(1).enumerate() {
        let took = if moment.at.is_none() { "never".to_owned() } else { took(moment.took_ms, moment.budget_ms) };
        let _ = write!(text, "{} {} {took}", if i == 0 { ";" } else { "," }, moment.name);
    }
    text
}

fn took(took_ms: Option<f64>, budget_ms: Option<f64>) -> String {
    match (took_ms, budget_ms) {
        (Some(took), Some(budget)) => format!("{} of {}", human_ms(took), human_ms(budget)),
        (Some(took), None) => human_ms(took),
        (None, _) => "not to its end".to_owned(),
    }
}

/// Milliseconds from `start` to `at`.
fn offset(start: Timestamp, at: Timestamp) -> f64 {
    if at < start { 0.0 } else { at.since(start).as_secs_f64() * 1e3 }
}

/// A section with a Gantt for each pivot: a bar for each stage, from the moment before it to its own, and its budget as a mark.
pub(crate) fn draw(out: &mut String, pivots: &[PivotResult], text: impl Fn(&str) -> String) {
    if pivots.is_empty() {
        return;
    }
    out.push_str(
        "<section id=\"pivot\"><h2>Pivot</h2>\n<p class=\"note\">Each bar is a stage: from the moment before it to the one that it \
         is named after. The mark is its budget.</p>\n",
    );
    for pivot in pivots {
        let bootstrap = pivot.bootstrap.as_deref().map(|b| format!("<i>bootstrap {}</i>", text(b))).unwrap_or_default();
        let Some(start) = pivot.moments.iter().filter_map(|m| m.at).min() else { continue };
        let _ = writeln!(
            out,
            "<table class=\"bars pivot\" data-cluster=\"{0}\"><thead><tr><th scope=\"col\">{0} {bootstrap}</th><th></th>\
             <th>{1}</th></tr></thead><tbody>",
            text(&pivot.cluster),
            took(pivot.took_ms, pivot.budget_ms)
        );
        let end = |m: &PivotMomentResult| {
            let began = m.began_at.map_or(0.0, |b| offset(start, b));
            m.at.map_or(began, |at| offset(start, at)).max(began + m.budget_ms.unwrap_or(0.0))
        };
        let whole = pivot.moments.iter().map(end).fold(1.0, f64::max) * 1.01;
        for moment in &pivot.moments {
            row(out, moment, start, whole, &text);
        }
        out.push_str("</tbody></table>\n");
    }
    out.push_str("</section>\n");
}

fn row(out: &mut String, moment: &PivotMomentResult, start: Timestamp, whole: f64, text: impl Fn(&str) -> String) {
    let class = match (moment.is_bad(), moment.budget_ms) {
        (true, _) => "bad",
        (false, Some(_)) => "ok",
        (false, None) => "none",
    };
    let began = moment.began_at.map(|b| offset(start, b));
    let percent = |ms: f64| (ms / whole * 100.0).clamp(0.0, 100.0);
    let mut bar = String::new();
    if let Some(at) = moment.at.map(|at| offset(start, at)) {
        let from = began.unwrap_or(at).min(at);
        let to = began.unwrap_or(at).max(at);
        let _ = write!(
            bar,
            "<span class=\"fill\" style=\"left:{:.2}%;right:auto;width:{:.2}%\"></span>",
            percent(from),
            percent(to - from)
        );
    }
    if let (Some(began), Some(budget)) = (began, moment.budget_ms) {
        let _ = write!(bar, "<span class=\"limit\" style=\"left:{:.2}%\"></span>", percent(began + budget));
    }
    let host = moment.host.as_deref().map(|h| format!("<i>{}</i>", text(h))).unwrap_or_default();
    let said = match (moment.at, moment.took_ms, moment.budget_ms) {
        (None, _, _) => "<b>never</b>".to_owned(),
        (Some(_), None, _) => "begins".to_owned(),
        (Some(_), Some(ms), _) if ms < 0.0 => format!("<b>too early</b>, by {}", human_ms(-ms)),
        (Some(_), Some(ms), Some(budget)) => format!("<b>{}</b> of {}", human_ms(ms), human_ms(budget)),
        (Some(_), Some(ms), None) => format!("<b>{}</b>", human_ms(ms)),
    };
    let _ = writeln!(
        out,
        "<tr class=\"{class}\"><th scope=\"row\">{}{host}</th><td class=\"bar\"><div>{bar}</div></td><td>{said}</td></tr>",
        text(&moment.name)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(name: &str, from: Option<i64>, at: Option<i64>, budget_ms: Option<f64>) -> PivotMomentResult {
        PivotMomentResult {
            name: name.to_owned(),
            at: at.map(Timestamp::from_secs),
            host: Some("master-0".to_owned()),
            began_at: from.map(Timestamp::from_secs),
            took_ms: from.zip(at).map(|(f, a)| (a - f) as f64 * 1e3),
            budget_ms,
        }
    }

    fn pivot() -> PivotResult {
        PivotResult {
            cluster: "a<b".to_owned(),
            bootstrap: Some("master-0".to_owned()),
            moments: vec![
                moment("bootkube-started", None, Some(100), None),
                moment("bootkube-done", Some(100), Some(110), Some(5_000.0)),
                moment("bootstrap-reboot", Some(110), Some(105), None),
                moment("rejoined", Some(110), None, Some(60_000.0)),
            ],
            took_ms: None,
            budget_ms: None,
        }
    }

    #[test]
    fn the_line_names_every_stage() {
        assert_eq!(
            line(&pivot()),
            "pivot of a<b (master-0): not to its end; bootkube-done 10.00 s of 5.00 s, bootstrap-reboot −5.00 s, rejoined never"
        );
    }

    #[test]
    fn the_gantt_shows_what_is_late_early_and_missing() {
        let mut page = String::new();
        draw(&mut page, &[pivot()], |t| t.replace('<', "&lt;"));
        assert!(page.contains("data-cluster=\"a&lt;b\""));
        assert!(page.contains("<tr class=\"bad\"><th scope=\"row\">bootkube-done<i>master-0</i></th>"), "{page}");
        assert!(page.contains("<b>too early</b>, by 5.00 s"));
        assert!(page.contains("<b>never</b>"));
        // 70 s in all: the budget of the last stage ends at the right.
        assert!(page.contains("class=\"limit\" style=\"left:99.01%\""), "{page}");
        draw(&mut page, &[], str::to_owned);
        assert_eq!(page.matches("id=\"pivot\"").count(), 1);
    }
}
