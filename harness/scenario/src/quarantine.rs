//! Scenarios that are known to fail: `quarantine.yaml` of the catalogue says which, why, where that is followed and until when.
//!
//! An entry buys time and nothing else. One whose day is over, or whose scenario is not there, is an error: a list that nobody
//! tends would hide what it was made to show.

use serde::{Deserialize, Serialize};
use vlab_api::Timestamp;

use crate::diagnostic::{LoadError, Problem, SourceFile, suggestion};

/// Name of the file in the catalogue's folder.
pub const QUARANTINE: &str = "quarantine.yaml";

/// A scenario whose failures are shown and do not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quarantined {
    /// Name of the scenario.
    pub scenario: String,
    /// Why it fails.
    pub reason: String,
    /// Where the failure is followed.
    pub link: String,
    /// Last day on which the entry counts, `YYYY-MM-DD` in UTC.
    pub until: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(default)]
    quarantine: Vec<Quarantined>,
}

/// Reads the list. `known`: names of all scenarios; `now`: today.
///
/// # Errors
/// The file is none, or one of its entries names no scenario, has no reason or link, or is over.
pub(crate) fn read(source: &SourceFile, known: &[String], now: Timestamp) -> Result<Vec<Quarantined>, LoadError> {
    let (file, text) = crate::parse::parse::<File>(source)?;
    let mut problems = Vec::new();
    let mut problem = |word: &str, message: String, label: &str, help: Option<String>| {
        let span = text.find(word).filter(|_| !word.is_empty()).map(|start| start..start + word.len());
        problems.push(Problem { message, span, label: label.to_owned(), also: vec![], help });
    };
    if file.version != 1 {
        problem(
            "version",
            format!("version {} is not known", file.version),
            "here",
            Some("write `version: 1`".to_owned()),
        );
    }
    // Days in this form are ordered as texts are.
    let today: String = now.to_string().chars().take(10).collect();
    for entry in &file.quarantine {
        let name = &entry.scenario;
        if !known.contains(name) {
            let help = suggestion(name, known.iter().map(String::as_str));
            problem(name, format!("there is no scenario `{name}`"), "not in the catalogue", Some(help));
        }
        if entry.reason.trim().is_empty() || entry.link.trim().is_empty() {
            let help = "say why it fails and where that is tracked, or remove the entry";
            problem(
                name,
                format!("the entry of `{name}` has no reason or no link"),
                "this entry",
                Some(help.to_owned()),
            );
        }
        if !is_day(&entry.until) {
            let help = "write a date such as 2026-01-31";
            problem(&entry.until, format!("`{}` is not a date", entry.until), "here", Some(help.to_owned()));
        } else if entry.until < today {
            let help = "fix the scenario or what it tests and remove the entry; or review it and set a new date";
            let message = format!("the quarantine of `{name}` ended on {} ({})", entry.until, entry.link);
            problem(&entry.until, message, "expired", Some(help.to_owned()));
        }
    }
    let mut names: Vec<&String> = file.quarantine.iter().map(|e| &e.scenario).collect();
    names.sort();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        problem(twice[0], format!("`{}` appears twice", twice[0]), "once is enough", None);
    }
    if problems.is_empty() { Ok(file.quarantine) } else { Err(LoadError::new(&source.name, text, problems)) }
}

/// `YYYY-MM-DD`, with a month and a day that exist somewhere.
fn is_day(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let number = |text: &str, len: usize| text.parse::<u32>().ok().filter(|_| text.len() == len);
    number(year, 4).is_some()
        && number(month, 2).is_some_and(|m| (1..=12).contains(&m))
        && number(day, 2).is_some_and(|d| (1..=31).contains(&d))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// 15 June 2026.
    const TODAY: Timestamp = Timestamp::from_secs(1_781_481_600);

    fn entry(scenario: &str, reason: &str, until: &str) -> String {
        format!(
            "version: 1\nquarantine:\n  - scenario: {scenario}\n    reason: {reason}\n    link: https://x/1\n    until: {until}\n"
        )
    }

    fn read_text(text: &str) -> Result<Vec<Quarantined>, String> {
        let known = ["sno".to_owned(), "cancel".to_owned()];
        read(&SourceFile::new("quarantine.yaml", text), &known, TODAY).map_err(|e| e.to_string())
    }

    #[test]
    fn an_entry_counts_up_to_its_last_day() {
        for until in ["2026-06-15", "2026-12-31"] {
            let read = read_text(&entry("sno", "slow", until)).unwrap();
            assert_eq!((read.len(), read[0].scenario.as_str(), read[0].until.as_str()), (1, "sno", until));
        }
        assert_eq!(read_text("version: 1\nquarantine: []\n").unwrap(), vec![]);
    }

    #[rstest]
    #[case(&entry("sno", "slow", "2026-06-14"), "the quarantine of `sno` ended on 2026-06-14")]
    #[case(&entry("sn", "slow", "2026-07-01"), "there is no scenario `sn`")]
    #[case(&entry("sno", "\"\"", "2026-07-01"), "no reason or no link")]
    #[case(&entry("sno", "slow", "soon"), "`soon` is not a date")]
    #[case(&entry("sno", "slow", "2026-13-01"), "is not a date")]
    #[case("version: 2\n", "version 2 is not known")]
    #[case("version: 1\nquarantine:\n  - scenario: sno\n", "reason")]
    #[case(&format!("{}{}", entry("sno", "a", "2026-07-01"),
        "  - {scenario: sno, reason: b, link: l, until: 2026-07-01}\n"), "appears twice")]
    fn what_is_wrong_with_an_entry_is_said(#[case] text: &str, #[case] expected: &str) {
        let error = read_text(text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
