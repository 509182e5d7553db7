//! Tests within a budget of time. A pipeline waits so long and no longer (`VLAB_TEST_WITHIN`, in minutes): on a computer on which all
//! tests would take longer, those are left out that cost most for what they show beside the others, and they are named. How quick a
//! computer is, it has just shown when it built everything.

use std::fmt::Write as _;
use std::time::Duration;

/// The environment variable: minutes, from the start to the end.
const WITHIN: &str = "VLAB_TEST_WITHIN";

/// All tests take so many times as long as it takes to build everything: on two cores 20 and 11 minutes.
const TIMES_THE_BUILD: f64 = 1.9;

/// A build that took less was none of everything, and says nothing. A quick computer takes longer.
const WHOLE_BUILD: Duration = Duration::from_secs(5 * 60);

/// Between the end of the tests and the end of everything: documentation tests, and what was skipped.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// What is left out, the first one first: for people, which tests (in nextest's words), and how many per cent of the time of all tests they
/// take.
const DEAREST: &[(&str, &str, u32)] = &[
    ("a cluster of machines, frozen in its pivot", "test(/(^|::)vm_a_cluster_/)", 22),
    ("further installations on machines", "test(/(^|::)vm_(installs|slow)_/)", 20),
    ("the catalogue over Kubernetes in virtual time", "test(/(^|::)every_scenario_passes_over_kubernetes/)", 6),
    ("reports in a browser", "package(vlab-reports) & test(/(^|::)(browser|hands)::/)", 7),
    ("what is planted, the coverage and the catalogue without its faults", PLANTED, 6),
    ("both conformance suites against a service process", "test(/pass(es)?_the_whole_suite$/)", 4),
    ("the steps of a pipeline in a fresh clone", "test(/e2e_the_steps_of_a_pipeline_pass/)", 3),
];

const PLANTED: &str =
    "package(vlab-drive) & (binary(causes) | binary(coverage) | test(/without_its_faults|what_is_planted/))";

/// Minutes that everything may take.
///
/// # Errors
/// It is no number of minutes.
pub(crate) fn within() -> Result<Option<Duration>, String> {
    match std::env::var(WITHIN) {
        Ok(text) => minutes(&text),
        Err(_) => Ok(None),
    }
}

fn minutes(text: &str) -> Result<Option<Duration>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<u32>() {
        Ok(minutes) if minutes > 0 => Ok(Some(Duration::from_secs(u64::from(minutes) * 60))),
        _ => Err(format!("{WITHIN}={text}: expected a whole number of minutes, as in {WITHIN}=40")),
    }
}

/// What is left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    rows: Vec<&'static (&'static str, &'static str, u32)>,
    /// How long everything would take, as this computer has shown.
    whole: Duration,
}

/// Chooses what is left out, if everything may take so long, so much time has passed, and the build took so long.
pub(crate) fn choose(within: Duration, passed: Duration, build: Duration) -> LeftOut {
    let all = build.mul_f64(TIMES_THE_BUILD);
    let mut chosen = LeftOut { rows: Vec::new(), whole: passed + all + AFTERWARDS };
    if build < WHOLE_BUILD {
        return chosen;
    }
    let mut left = 100;
    for row in DEAREST {
        if passed + all.mul_f64(f64::from(left) / 100.0) + AFTERWARDS <= within {
            break;
        }
        left -= row.2;
        chosen.rows.push(row);
    }
    chosen
}

impl LeftOut {
    /// What nextest is told.
    pub(crate) fn args(&self) -> Vec<String> {
        match self.rows.is_empty() {
            true => Vec::new(),
            false => {
                let tests: Vec<String> = self.rows.iter().map(|row| format!("({})", row.1)).collect();
                vec!["-E".to_owned(), format!("not ({})", tests.join(" | "))]
            }
        }
    }

    /// For people; nothing where nothing is left out.
    pub(crate) fn words(&self) -> Option<String> {
        let minutes = self.whole.as_secs().div_ceil(60);
        let mut text = format!("left out, because everything would take about {minutes} minutes on this computer:\n");
        for row in &self.rows {
            let _ = writeln!(text, "  {}", row.0);
        }
        let _ = write!(text, "Without {WITHIN} all tests run.");
        (!self.rows.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn min(minutes: u64) -> Duration {
        Duration::from_secs(minutes * 60)
    }

    #[test]
    fn on_a_quick_computer_nothing_is_left_out() {
        for build in [min(2), min(11), min(12)] {
            let left_out = choose(min(40), build + min(1), build);
            assert_eq!((left_out.args(), left_out.words()), (Vec::new(), None), "{build:?}");
        }
    }

    /// What was built before says nothing of a computer.
    #[test]
    fn a_build_of_nothing_leaves_nothing_out() {
        assert!(choose(min(40), min(39), min(4)).rows.is_empty());
    }

    #[test]
    fn on_half_a_computer_as_much_is_left_out_as_is_needed() {
        let (within, build) = (min(40), min(22));
        let left_out = choose(within, build + min(1), build);
        let left: u32 = 100 - left_out.rows.iter().map(|row| row.2).sum::<u32>();
        let whole = |left: u32| min(23) + build.mul_f64(TIMES_THE_BUILD * f64::from(left) / 100.0) + AFTERWARDS;
        assert!(whole(left) <= within, "{:?}", whole(left));
        let last = left_out.rows.last().unwrap().2;
        assert!(whole(left + last) > within, "the last one need not have been left out");
        assert!(left_out.args()[1].starts_with("not ((test(/(^|::)vm_a_cluster_/)) | (test("), "{:?}", left_out.args());
        let words = left_out.words().unwrap();
        assert!(words.contains("about 66 minutes") && words.contains("a cluster of machines"), "{words}");
    }

    /// A test that has another name now would no longer be left out, and nobody would see it.
    #[test]
    fn what_is_left_out_is_there() {
        let mut sources = String::new();
        let mut folders = vec![crate::root()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                if path.is_dir() && name != "target" && !name.starts_with('.') {
                    folders.push(path);
                } else if name.ends_with(".rs") && name != "budget.rs" {
                    let _ = write!(sources, "{}\n{}", path.display(), std::fs::read_to_string(&path).unwrap());
                }
            }
        }
        for (what, tests, _) in DEAREST {
            let names = tests.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
            let names: Vec<&str> = names.map(|name| name.trim_matches('_')).filter(|name| name.len() > 5).collect();
            let of_nextest = ["package", "binary"];
            for name in names.iter().filter(|name| !of_nextest.contains(name)) {
                let (test, module, file) = (format!("fn {name}"), format!("mod {name}"), format!("/{name}.rs"));
                let somewhere = |text: &str| sources.contains(text);
                assert!(
                    somewhere(&test) || somewhere(&module) || somewhere(&file) || somewhere(&format!("_{name}(")),
                    "{what}: no test has `{name}` in its name"
                );
            }
            assert!(!names.is_empty(), "{what}");
        }
    }

    #[test]
    fn a_budget_is_minutes() {
        assert_eq!(minutes("40"), Ok(Some(min(40))));
        assert_eq!(minutes(""), Ok(None));
        for text in ["0", "-1", "1h", "2.5"] {
            assert!(minutes(text).unwrap_err().contains("expected a whole number of minutes"), "{text}");
        }
    }
}
