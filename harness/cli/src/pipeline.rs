//! What is said to a system that runs pipelines, where `vlab` finds itself in one: annotations and the summary of a job of GitHub Actions.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use vlab_judge::result::{CheckKind, CheckResult, RunResult};
use vlab_reports::ci;
use vlab_reports::session::Session;
use vlab_scenario::Scenario;

use crate::say;

/// Annotations of a run, each on the line of the scenario that it is about; nothing outside of GitHub Actions.
pub(crate) fn annotations(scenario: &Scenario, result: &RunResult) -> String {
    if std::env::var_os("GITHUB_ACTIONS").is_none_or(|value| value != "true") {
        return String::new();
    }
    let workspace = std::env::var_os("GITHUB_WORKSPACE").map(PathBuf::from).or_else(|| std::env::current_dir().ok());
    let file = relative(&scenario.path, workspace.as_deref());
    ci::annotations(result, &file, |check| line_of(scenario, check))
}

/// The line of a scenario that a check is about.
fn line_of(scenario: &Scenario, check: &CheckResult) -> Option<usize> {
    match check.kind {
        CheckKind::Expectation => scenario.expect.iter().find(|e| e.name == check.name).map(|e| e.line),
        CheckKind::Fault => scenario.faults.iter().find(|fault| fault.name == check.name).map(|fault| fault.line),
        CheckKind::Invariant | CheckKind::Leak | CheckKind::Budget | CheckKind::Lab => None,
    }
}

/// The path as the repository knows it.
fn relative(path: &str, workspace: Option<&Path>) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let within = workspace.and_then(|workspace| absolute.strip_prefix(workspace).ok());
    within.map_or_else(|| path.to_owned(), |within| within.display().to_string())
}

/// Appends the session to the summary of the job, where there is one.
pub(crate) fn summary(session: &Session) {
    let Some(file) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|file| !file.is_empty()) else { return };
    let text = ci::summary(session);
    let written =
        OpenOptions::new().append(true).create(true).open(&file).and_then(|mut f| f.write_all(text.as_bytes()));
    if let Err(error) = written {
        say(&format!("the summary of the job, {}: {error}", Path::new(&file).display()));
    }
}

#[cfg(test)]
mod tests {
    use vlab_judge::result::CheckVerdict;
    use vlab_scenario::{Catalogue, SourceFile};

    use super::*;

    #[test]
    fn a_check_is_on_the_line_of_its_expectation() {
        let text = "version: 1\nname: x\nservice: {kind: simulated}\ncluster: {topology: sno}\nhosts: [{name: a}]\nexpect:\n\
                    \x20 - name: it is installed\n    eventually: {hosts: all, status: installed}\n";
        let source = SourceFile::new("x.yaml", text.as_bytes());
        let scenario = vlab_scenario::load(&source, &Catalogue::embedded()).map_err(|e| e.render(false)).unwrap();
        let check = |kind, name: &str| CheckResult::new(kind, name, CheckVerdict::Failed);
        assert_eq!(line_of(&scenario, &check(CheckKind::Expectation, "it is installed")), Some(7));
        assert_eq!(line_of(&scenario, &check(CheckKind::Invariant, "it is installed")), None);
    }

    #[test]
    fn a_path_is_that_of_the_repository() {
        assert_eq!(relative("/r/scenarios/x.yaml", Some(Path::new("/r"))), "scenarios/x.yaml");
        assert_eq!(relative("/elsewhere/x.yaml", Some(Path::new("/r"))), "/elsewhere/x.yaml");
        assert_eq!(relative("scenarios/x.yaml", std::env::current_dir().ok().as_deref()), "scenarios/x.yaml");
    }
}
