//! What systems that run pipelines want to be told in their own words: annotations on lines of scenarios, and a summary of a session.
//!
//! The words are those of GitHub Actions (workflow commands, a summary in Markdown). GitLab and Prow read JUnit, which is written in any
//! case.

use std::fmt::Write as _;

use vlab_judge::result::{CheckResult, CheckVerdict, RunResult, Verdict};

use crate::session::{ItemOutcome, Session};
use crate::text::{human_ms, shorten};

/// GitHub shows ten annotations of a step and drops the rest.
const MOST: usize = 10;
/// Characters of a message.
const MESSAGE: usize = 1000;

/// What went wrong first, then one line for each check that did not hold and does not follow from it: an error where the product is wrong, a warning where
/// nothing is known about it. `file`: the scenario, relative to the repository; `line_of`: the line of a check in it.
pub fn annotations(result: &RunResult, file: &str, line_of: impl Fn(&CheckResult) -> Option<usize>) -> String {
    let mut text = String::new();
    if result.verdict == Verdict::Passed {
        return text;
    }
    let command = if result.verdict == Verdict::Failed { "error" } else { "warning" };
    let scenario = &result.run.scenario;
    if let Some(cause) = &result.cause {
        let of_it = || result.checks.iter().filter(|check| check.follows);
        let shows = of_it().find(|check| cause.check.as_ref() == Some(&check.name));
        let line_of_it = shows.into_iter().chain(of_it()).find_map(&line_of);
        let message = match result.followers().len() {
            0 => cause.line(),
            1 => format!("{}\nand 1 check that follows from it", cause.line()),
            n => format!("{}\nand {n} checks that follow from it", cause.line()),
        };
        let title = format!("{scenario}: what went wrong first");
        line(&mut text, (command, file, line_of_it), &title, &message);
    }
    let told = usize::from(result.cause.is_some());
    let decisive = result.decisive().filter(|check| !check.follows);
    let others = result.by_urgency().into_iter().filter(|check| !decisive.is_some_and(|d| std::ptr::eq(*check, d)));
    let bad = others.filter(|check| !check.follows).filter(|check| match check.verdict {
        CheckVerdict::Failed => true,
        CheckVerdict::Inconclusive { .. } => result.verdict == Verdict::Inconclusive,
        CheckVerdict::Passed | CheckVerdict::Skipped { .. } => false,
    });
    for check in decisive.into_iter().chain(bad).take(MOST - told) {
        let said = check.verdict.reason().unwrap_or(&check.message);
        let on = check.subject.as_ref().map(|subject| format!("{subject}: ")).unwrap_or_default();
        let message = if said.is_empty() { format!("{on}{}", check.name) } else { format!("{on}{said}") };
        let title = format!("{scenario}: {}", check.name);
        line(&mut text, (command, file, line_of(check)), &title, &message);
    }
    if decisive.is_none() && result.cause.is_none() {
        let message = result.reason.as_deref().unwrap_or("no reason was given");
        line(&mut text, (command, file, None), scenario, message);
    }
    text
}

fn line(text: &mut String, (command, file, line): (&str, &str, Option<usize>), title: &str, message: &str) {
    let (file, title) = (property(file), property(title));
    let message = data(&shorten(message, MESSAGE));
    let _ = writeln!(text, "::{command} file={file},line={},title={title}::{message}", line.unwrap_or(1));
}

/// A text behind the two colons. Whatever it is, it cannot end the command and begin another one.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// A session in Markdown: what did not pass first, each with its reason and the command that repeats it.
pub fn summary(session: &Session) -> String {
    let bad = session.items.len() - session.count(ItemOutcome::Passed);
    let runs = if session.items.len() == 1 { "run" } else { "runs" };
    let mut text = format!("### vlab: {} {runs}, {bad} not passed\n\n", session.items.len());
    text.push_str("| | scenario | time | |\n| --- | --- | --- | --- |\n");
    let mut items: Vec<_> = session.items.iter().collect();
    items.sort_by_key(|item| item.outcome());
    for item in items {
        let outcome = item.outcome();
        let last = item.attempts.iter().rfind(|attempt| attempt.verdict != Verdict::Passed);
        let why = last.map_or_else(String::new, |attempt| {
            let reason = cell(attempt.reason.as_deref().unwrap_or("no reason was given"));
            if attempt.how_to_repeat.is_empty() {
                reason
            } else {
                format!("{reason}<br>`{}`", cell(&attempt.how_to_repeat.replace('`', "'")))
            }
        });
        let took: f64 = item.attempts.iter().map(|attempt| attempt.took_ms).sum();
        let took = if item.attempts.is_empty() { "–".to_owned() } else { human_ms(took) };
        let (mark, word) = (mark(outcome), outcome.as_str());
        let _ = writeln!(text, "| {mark} {word} | {} | {took} | {why} |", cell(&item.title(session)));
    }
    text
}

const fn mark(outcome: ItemOutcome) -> &'static str {
    match outcome {
        ItemOutcome::Passed => "✅",
        ItemOutcome::Failed => "❌",
        ItemOutcome::Inconclusive | ItemOutcome::NotRun => "❔",
        ItemOutcome::Flaky | ItemOutcome::Quarantined => "⚠️",
    }
}

/// A text in a cell of a table of Markdown.
pub(crate) fn cell(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('|', "\\|");
    shorten(&text.split_whitespace().collect::<Vec<_>>().join(" "), MESSAGE)
}

#[cfg(test)]
mod tests {
    use vlab_judge::cause::Cause;
    use vlab_judge::result::CheckKind;

    use super::*;
    use crate::session::{Attempt, SessionItem};

    fn failed(name: &str, message: &str) -> CheckResult {
        let mut check = CheckResult::new(CheckKind::Expectation, name, CheckVerdict::Failed);
        message.clone_into(&mut check.message);
        check
    }

    fn result(checks: Vec<CheckResult>) -> RunResult {
        let mut result = RunResult { checks, ..RunResult::default() };
        result.run.scenario = "sno".to_owned();
        result.conclude();
        result
    }

    #[test]
    fn a_failed_expectation_is_an_error_on_its_line() {
        let mut second = failed("b: second, really", "50% of\nthem");
        second.subject = Some("node-0".to_owned());
        let passed = CheckResult::new(CheckKind::Invariant, "fine", CheckVerdict::Passed);
        let result = result(vec![failed("first", ""), passed, second]);
        let text = annotations(&result, "scenarios/sno.yaml", |check| (check.name == "first").then_some(42));
        assert_eq!(
            text,
            "::error file=scenarios/sno.yaml,line=42,title=sno%3A first::first\n\
             ::error file=scenarios/sno.yaml,line=1,title=sno%3A b%3A second%2C really::node-0: 50%25 of%0Athem\n"
        );
    }

    #[test]
    fn what_follows_from_the_cause_has_no_annotation_of_its_own() {
        let mut checks = vec![failed("first", "late"), failed("other", "of another host"), failed("third", "")];
        (checks[0].follows, checks[2].follows) = (true, true);
        let (title, words) = ("the installer on m-1 gave up".to_owned(), "write: input/output error".to_owned());
        let cause = Some(Cause { title, words, ..Cause::default() });
        let result = RunResult { cause, ..result(checks) };
        let text = annotations(&result, "x.yaml", |check| (check.name == "third").then_some(9));
        assert_eq!(
            text,
            "::error file=x.yaml,line=9,title=sno%3A what went wrong first::the installer on m-1 gave up: \
             write: input/output error%0Aand 2 checks that follow from it\n\
             ::error file=x.yaml,line=1,title=sno%3A other::of another host\n"
        );
    }

    #[test]
    fn what_says_nothing_about_the_product_is_a_warning_and_a_pass_is_silent() {
        let mut lab = CheckResult::new(CheckKind::Lab, "memory", CheckVerdict::Failed);
        lab.message = "full".to_owned();
        let text = annotations(&result(vec![lab]), "x.yaml", |_| None);
        assert_eq!(text, "::warning file=x.yaml,line=1,title=sno%3A memory::full\n");
        let passed = CheckResult::new(CheckKind::Invariant, "fine", CheckVerdict::Passed);
        assert_eq!(annotations(&result(vec![passed]), "x.yaml", |_| None), "");
        let cut = annotations(&RunResult { reason: Some("Ctrl-C".into()), ..RunResult::default() }, "x.yaml", |_| None);
        assert!(cut.starts_with("::warning ") && cut.ends_with("::Ctrl-C\n"), "{cut}");
        let many = (0..30).map(|n| failed(&n.to_string(), "")).collect();
        assert_eq!(annotations(&result(many), "x.yaml", |_| None).lines().count(), MOST);
    }

    #[test]
    fn a_text_of_the_service_cannot_become_a_command() {
        let text = annotations(&result(vec![failed("x", "a\n::set-env name=A::b\r\n::stop")]), "x.yaml", |_| None);
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn a_summary_has_what_did_not_pass_first() {
        let attempt = |verdict| Attempt {
            verdict,
            reason: (verdict != Verdict::Passed).then(|| "a | b\n<c>".to_owned()),
            took_ms: 1500.0,
            how_to_repeat: "vlab scenario x --seed 7".to_owned(),
            ..Attempt::default()
        };
        let item = |name: &str, verdict| SessionItem {
            scenario: name.to_owned(),
            repetition: 1,
            attempts: vec![attempt(verdict)],
            ..SessionItem::default()
        };
        let items = vec![item("good", Verdict::Passed), item("bad", Verdict::Failed)];
        let text = summary(&Session { items, ..Session::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "### vlab: 2 runs, 1 not passed");
        assert_eq!(lines[4], "| ❌ failed | bad | 1.50 s | a \\| b &lt;c><br>`vlab scenario x --seed 7` |");
        assert_eq!(lines[5], "| ✅ passed | good | 1.50 s |  |");
    }
}
