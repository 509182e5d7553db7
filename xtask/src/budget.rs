//! Tests within a budget of time. A pipeline waits so long and no longer (`VLAB_TEST_WITHIN`, in minutes): on a computer on which all
//! tests would take longer, those are left out that cost most for what they show beside the others, and they are named. How quick a
//! computer is, it has just shown when it built everything.

use std::fmt::Write as _;
use std::time::Duration;

/// The environment variable: minutes, from the start to the end.
const WITHIN: &str = "VLAB_TEST_WITHIN";

/// All tests take so many times as long as it takes to build everything: 23 min 13 s and 11 min 34 s (two cores, 30 November 2026).
const TIMES_THE_BUILD: f64 = 2.0;

/// What takes less was not built from nothing, and says nothing about the computer: on a quick one everything takes longer.
const WHOLE_BUILD: Duration = Duration::from_secs(5 * 60);

/// From the end of the tests to the end of everything: documentation tests, and what was skipped.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// Tests that can be left out.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    /// For people.
    what: &'static str,
    /// Their names, or their modules', begin with one of these.
    names: &'static [&'static str],
    /// Their share of the time of all tests, in per cent (processor time, test by test, 30 November 2026).
    share: u32,
}

/// The first one is left out first: what costs most for what it shows beside the others.
const GROUPS: &[Group] = &[
    Group { what: "a cluster of machines, frozen in its pivot", names: &["vm_a_cluster_"], share: 22 },
    Group { what: "further installations on machines", names: &["vm_installs_", "vm_slow_"], share: 20 },
    Group {
        what: "the catalogue over Kubernetes in virtual time",
        names: &["every_scenario_passes_over_kubernetes"],
        share: 6,
    },
    Group { what: "reports in a browser", names: &["browser::", "hands::"], share: 7 },
    Group {
        what: "planted defects, and the catalogue without its faults and for its coverage",
        names: &[
            "the_first_line_names_what_was_planted",
            "what_is_planted_is_found_and_reduced",
            "without_its_faults_no_scenario_passes",
            "the_catalogue_exercises_the_machines",
        ],
        share: 6,
    },
    Group {
        what: "both conformance suites against a program",
        names: &["the_simulated_service_passes_the_whole_suite", "the_simulated_controllers_pass_the_whole_suite"],
        share: 4,
    },
    Group {
        what: "the steps of a pipeline in a fresh clone",
        names: &["e2e_the_steps_of_a_pipeline_pass_in_a_fresh_clone"],
        share: 3,
    },
];

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
    groups: Vec<&'static Group>,
    /// How long everything would take, as this computer has shown.
    whole: Duration,
}

/// Chooses what is left out, if everything may take so long, so much time has passed, and the build took so long.
pub(crate) fn choose(within: Duration, passed: Duration, build: Duration) -> LeftOut {
    let takes = |share: u32| passed + build.mul_f64(TIMES_THE_BUILD * f64::from(share) / 100.0) + AFTERWARDS;
    let mut chosen = LeftOut { groups: Vec::new(), whole: takes(100) };
    let mut left = 100;
    for group in GROUPS.iter().filter(|_| build >= WHOLE_BUILD) {
        if takes(left) <= within {
            break;
        }
        left -= group.share;
        chosen.groups.push(group);
    }
    chosen
}

impl LeftOut {
    /// What nextest is told.
    pub(crate) fn args(&self) -> Vec<String> {
        let names = self.groups.iter().flat_map(|group| group.names);
        let tests: Vec<String> = names.map(|name| format!("test(/(^|::){name}/)")).collect();
        if tests.is_empty() { Vec::new() } else { vec!["-E".to_owned(), format!("not ({})", tests.join(" | "))] }
    }

    /// For people; nothing where nothing is left out.
    pub(crate) fn words(&self) -> Option<String> {
        let minutes = self.whole.as_secs().div_ceil(60);
        let mut text = format!("left out, because everything would take about {minutes} minutes on this computer:\n");
        for group in &self.groups {
            let _ = writeln!(text, "  {}", group.what);
        }
        let _ = write!(text, "With {WITHIN}= (empty) all tests run.");
        (!self.groups.is_empty()).then_some(text)
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
        assert!(choose(min(40), min(39), min(4)).groups.is_empty());
    }

    #[test]
    fn on_half_a_computer_as_much_is_left_out_as_is_needed() {
        let (within, build) = (min(40), min(22));
        let left_out = choose(within, build + min(1), build);
        let left: u32 = 100 - left_out.groups.iter().map(|group| group.share).sum::<u32>();
        let whole = |left: u32| min(23) + build.mul_f64(TIMES_THE_BUILD * f64::from(left) / 100.0) + AFTERWARDS;
        assert!(whole(left) <= within, "{:?}", whole(left));
        let last = left_out.groups.last().unwrap().share;
        assert!(whole(left + last) > within, "the last one need not have been left out");
        let args = left_out.args();
        assert!(args[1].starts_with("not (test(/(^|::)vm_a_cluster_/) | test(/(^|::)vm_installs_/) | "), "{args:?}");
        let words = left_out.words().unwrap();
        assert!(words.contains("about 68 minutes") && words.contains("a cluster of machines"), "{words}");
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
                    sources += &std::fs::read_to_string(&path).unwrap();
                }
            }
        }
        for name in GROUPS.iter().flat_map(|group| group.names) {
            let declared = match name.strip_suffix("::") {
                Some(module) => format!("\nmod {module};"),
                None => format!("fn {name}"),
            };
            assert!(sources.contains(&declared), "no test or module begins with {name}");
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
