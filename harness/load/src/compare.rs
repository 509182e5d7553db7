//! Is one version of a service slower than another? Medians of several runs each, with what runs of the same version differ by.

use std::collections::BTreeSet;

use crate::result::{LoadResult, Target};

/// A difference smaller than this is never told, in percent: no computer is that steady.
const FLOOR: f64 = 3.0;

/// A figure of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// What it is.
    pub name: String,
    /// Median of the first.
    pub a: f64,
    /// Median of the second.
    pub b: f64,
    /// By how much the second is more, in percent of the first.
    pub change: f64,
    /// What runs of one side differ by, and at least what no computer is better than; in percent.
    pub noise: f64,
    /// The change is more than that, and for the worse.
    pub worse: bool,
    /// The change is more than that, and for the better.
    pub better: bool,
}

/// Why two cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// One side has nothing.
    #[error("each side needs at least one result")]
    Nothing,
    /// They were measured against different things.
    #[error("a {} and a {} cannot be compared: figures against a stub, the simulated service and a real one are different things", .0.as_str(), .1.as_str())]
    Targets(Target, Target),
    /// They are of different plans.
    #[error("these are results of different plans: {0} and {1}")]
    Plans(String, String),
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Half of the runs are no further from their median than this, in percent of it.
fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    let away: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    if middle == 0.0 { 0.0 } else { median(&away) * 100.0 / middle }
}

/// A figure of a result, and whether more of it is worse.
type Figure = (String, fn(&LoadResult, &str) -> f64, String, bool);

fn figures(operations: &BTreeSet<String>) -> Vec<Figure> {
    let mut all: Vec<Figure> = Vec::new();
    for operation in operations {
        all.push((format!("p50 of {operation}, ms"), |r, o| quantile(r, o, 0.5), operation.clone(), true));
        all.push((format!("p99 of {operation}, ms"), |r, o| quantile(r, o, 0.99), operation.clone(), true));
    }
    all.push((
        "answered requests a second".to_owned(),
        |r, _| r.total().answered as f64 / r.took_s.max(0.001),
        String::new(),
        false,
    ));
    all.push(("p50 of an installation, s".to_owned(), |r, _| install(r, 0.5), String::new(), true));
    all.push(("p99 of an installation, s".to_owned(), |r, _| install(r, 0.99), String::new(), true));
    all.push(("failed requests".to_owned(), |r, _| r.total().failed() as f64, String::new(), true));
    let cpu = |r: &LoadResult, _: &str| {
        let used: u64 = r.seconds.iter().filter_map(|s| s.service_cpu_ms).sum();
        used as f64 * 1000.0 / r.total().answered.max(1) as f64
    };
    all.push(("processor time of the service for a request, µs".to_owned(), cpu, String::new(), true));
    all
}

fn quantile(result: &LoadResult, operation: &str, at: f64) -> f64 {
    result.operations().get(operation).map_or(0.0, |counted| counted.latency.quantile_ms(at))
}

fn install(result: &LoadResult, at: f64) -> f64 {
    result.installs.as_ref().map_or(0.0, |installs| installs.took.quantile_ms(at) / 1000.0)
}

/// Compares two sides.
///
/// # Errors
/// [`CompareError`] where there is nothing to compare.
pub fn compare(a: &[LoadResult], b: &[LoadResult]) -> Result<Vec<Compared>, CompareError> {
    let (Some(first), Some(_)) = (a.first(), b.first()) else { return Err(CompareError::Nothing) };
    for other in a.iter().chain(b) {
        if other.target != first.target {
            return Err(CompareError::Targets(first.target, other.target));
        }
        if (&other.plan, other.hosts, &other.phases) != (&first.plan, first.hosts, &first.phases) {
            return Err(CompareError::Plans(first.plan.clone(), other.plan.clone()));
        }
    }
    let operations: BTreeSet<String> =
        a.iter().chain(b).flat_map(|r| r.lines.iter().map(|line| line.operation.clone())).collect();
    let mut all = Vec::new();
    for (name, of, operation, more_is_worse) in figures(&operations) {
        let values = |side: &[LoadResult]| side.iter().map(|r| of(r, &operation)).collect::<Vec<f64>>();
        let (of_a, of_b) = (values(a), values(b));
        let (middle_a, middle_b) = (median(&of_a), median(&of_b));
        if middle_a == 0.0 && middle_b == 0.0 {
            continue;
        }
        let change = if middle_a == 0.0 { 100.0 } else { (middle_b - middle_a) * 100.0 / middle_a };
        // Three times the spread is what one in some hundred medians of equal runs differs by.
        let noise = (3.0 * spread(&of_a).max(spread(&of_b))).max(FLOOR);
        let beyond = change.abs() > noise && a.len() >= 3 && b.len() >= 3;
        let worse = beyond && (change > 0.0) == more_is_worse;
        all.push(Compared { name, a: middle_a, b: middle_b, change, noise, worse, better: beyond && !worse });
    }
    Ok(all)
}

/// The table for the terminal.
pub fn table(all: &[Compared], runs: (usize, usize)) -> String {
    let mut text = format!("medians of {} and {} runs\n", runs.0, runs.1);
    if runs.0 < 3 || runs.1 < 3 {
        text.push_str(
            "with fewer than three runs a side nothing can be said: what equal runs differ by is not known\n",
        );
    }
    for c in all {
        let word = if c.worse {
            "worse"
        } else if c.better {
            "better"
        } else {
            "same"
        };
        text.push_str(&format!(
            "{:<52} {:>12.3} {:>12.3} {:>+8.1} %  noise {:>5.1} %  {word}\n",
            c.name, c.a, c.b, c.change, c.noise
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Counted, Line, Values};

    fn run(us: u64) -> LoadResult {
        let counted = Counted { offered: 100, answered: 100, latency: Values(vec![(us, 100)]), ..Counted::default() };
        LoadResult {
            took_s: 10.0,
            lines: vec![Line { phase: 0, operation: "v2GetNextSteps".into(), counted }],
            ..LoadResult::default()
        }
    }

    fn side(of: &[u64]) -> Vec<LoadResult> {
        of.iter().map(|us| run(*us)).collect()
    }

    #[test]
    fn ten_percent_are_seen_and_noise_is_not() {
        let before = side(&[1000, 1010, 990, 1005, 995]);
        let worse = |b: &[u64]| compare(&before, &side(b)).unwrap().iter().filter(|c| c.worse).count();
        assert_eq!(worse(&[1100, 1110, 1090, 1105, 1095]), 2, "p50 and p99");
        assert_eq!(worse(&[1002, 1012, 992, 1000, 998]), 0);
        assert_eq!(worse(&[2000]), 0, "one run says nothing");
        assert!(compare(&before, &side(&[800; 3])).unwrap().iter().any(|c| c.better));
    }

    #[test]
    fn different_things_are_not_compared() {
        let stub = vec![LoadResult { target: Target::Stub, ..run(1) }];
        assert_eq!(compare(&side(&[1]), &stub), Err(CompareError::Targets(Target::Real, Target::Stub)));
        assert_eq!(compare(&[], &stub), Err(CompareError::Nothing));
    }
}
