//! The bootstrap's pivot in one line, for the terminal.

use std::fmt::Write as _;

use crate::text::human_ms;
use vlab_judge::result::PivotResult;

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

/// How long it took, and how long it may.
pub(crate) fn took(took_ms: Option<f64>, budget_ms: Option<f64>) -> String {
    match (took_ms, budget_ms) {
        (Some(took), Some(budget)) => format!("{} of {}", human_ms(took), human_ms(budget)),
        (Some(took), None) => human_ms(took),
        (None, _) => "not finished".to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use vlab_api::Timestamp;
    use vlab_judge::result::PivotMomentResult;

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

    /// A pivot with a stage of each kind: late, early and missing.
    pub(crate) fn pivot() -> PivotResult {
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
            "pivot of a<b (master-0): not finished; bootkube-done 10.00 s of 5.00 s, bootstrap-reboot −5.00 s, rejoined never"
        );
    }
}
