//! `junit_<scenario>.xml` for CI.

use crate::result::RunResult;

/// Name of the file: `junit_<scenario>.xml`, with only letters, digits, `-`, `_` and `.` of the scenario's name.
pub fn file_name(scenario: &str) -> String {
    let word: String = scenario
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .take(120)
        .collect();
    format!("junit_{}.xml", if word.is_empty() { "scenario" } else { &word })
}

/// The file's text.
pub fn render(result: &RunResult) -> String {
    let _ = result;
    unimplemented!("JUnit is not built yet")
}
