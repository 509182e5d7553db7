//! Several runs of one command: what was to be run, with which seed, what came of each attempt, and what they say together.
//!
//! `session.json` is written before the first run begins and after each attempt. A session that was killed therefore has a
//! list of what it was about to do, from which the rest can be run.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestRerun, TestSuite};
use serde::{Deserialize, Serialize};
use vlab_api::Timestamp;

use crate::text::human_ms;
use vlab_judge::result::{RunResult, Verdict, exit};

/// Version of `session.json`. Raised when the meaning of a member changes; new optional members do not raise it.
pub const SESSION_VERSION: u32 = 1;
/// Name of the file.
pub const SESSION: &str = "session.json";
/// Name of the JUnit file of a session.
pub const JUNIT: &str = "junit.xml";

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// [`SESSION_VERSION`] of the writer.
    pub version: u32,
    /// Its id, the name of its folder.
    pub id: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; `None`: it goes on, or it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The user stopped it.
    #[serde(default)]
    pub interrupted: bool,
    /// Does a scenario that passes only at a retry make the session pass?
    #[serde(default)]
    pub flaky_passes: bool,
    /// How many runs went on at once.
    pub jobs: usize,
    /// What was to be run, in order.
    pub items: Vec<SessionItem>,
}

/// One scenario of a session, with one seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionItem {
    /// Name of the scenario.
    pub scenario: String,
    /// What to call it to run it again: its name, or the path of its file.
    pub called: String,
    /// Which repetition, from 1.
    pub repetition: u32,
    /// Seed of all its attempts.
    pub seed: u64,
    /// Time profile.
    pub time_profile: String,
    /// Service under test, as on the command line.
    pub service: String,
    /// Folder with the product's own programs for its machines, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_node: Option<PathBuf>,
    /// What its hosts are, where that was chosen beside the scenario: `simulated` or `vm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// How the service is asked, where that is another way than the scenario's: `rest` or `kube`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The snapshot that it goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// Its failures do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// What was tried, in order. Empty: it was not run.
    pub attempts: Vec<Attempt>,
}

/// Why a scenario's failures do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// Why it fails, as the quarantine says.
    pub reason: String,
    /// Where that is followed.
    pub link: String,
    /// Last day on which it counts.
    pub until: String,
}

/// A run of an item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Id of the run; empty when not even its folder could be made.
    pub run_id: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// Its exit code.
    pub exit_code: u8,
    /// Why it did not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Wall time in milliseconds.
    pub took_ms: f64,
    /// Command that repeats it.
    pub how_to_repeat: String,
}

impl From<&RunResult> for Attempt {
    fn from(result: &RunResult) -> Self {
        Self {
            run_id: result.run.run_id.clone(),
            verdict: result.verdict,
            exit_code: result.exit_code,
            reason: result.reason.clone(),
            took_ms: result.finished_at.since(result.started_at).as_secs_f64() * 1e3,
            how_to_repeat: result.how_to_repeat.clone(),
        }
    }
}

/// What an item came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemOutcome {
    /// It failed, at every attempt.
    Failed,
    /// Nothing is known: the lab was wrong.
    Inconclusive,
    /// It was not run, or not to its end.
    NotRun,
    /// It failed first and passed at a retry.
    Flaky,
    /// It failed, and that is known.
    Quarantined,
    /// It passed at once.
    Passed,
}

impl ItemOutcome {
    /// All, in the order in which people want to read.
    pub const ALL: [ItemOutcome; 6] = [
        ItemOutcome::Failed,
        ItemOutcome::Inconclusive,
        ItemOutcome::NotRun,
        ItemOutcome::Flaky,
        ItemOutcome::Quarantined,
        ItemOutcome::Passed,
    ];

    /// The word for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            ItemOutcome::Failed => "failed",
            ItemOutcome::Inconclusive => "inconclusive",
            ItemOutcome::NotRun => "not run",
            ItemOutcome::Flaky => "flaky",
            ItemOutcome::Quarantined => "quarantined",
            ItemOutcome::Passed => "passed",
        }
    }
}

impl SessionItem {
    /// What it came to.
    pub fn outcome(&self) -> ItemOutcome {
        let outcome = match self.attempts.last().map(|a| a.verdict) {
            None => return ItemOutcome::NotRun,
            Some(Verdict::Passed) if self.attempts.len() > 1 => ItemOutcome::Flaky,
            Some(Verdict::Passed) => return ItemOutcome::Passed,
            Some(Verdict::Failed) => ItemOutcome::Failed,
            Some(Verdict::Inconclusive) => ItemOutcome::Inconclusive,
        };
        if self.quarantine.is_some() { ItemOutcome::Quarantined } else { outcome }
    }

    /// Its name, with the number of the repetition where there are several.
    pub fn title(&self, of: &Session) -> String {
        let several = of.items.iter().any(|i| i.repetition > 1 && i.scenario == self.scenario);
        if several { format!("{} #{}", self.scenario, self.repetition) } else { self.scenario.clone() }
    }

    fn took_ms(&self) -> f64 {
        self.attempts.iter().map(|a| a.took_ms).sum()
    }
}

impl Session {
    /// How many items came to that.
    pub fn count(&self, outcome: ItemOutcome) -> usize {
        self.items.iter().filter(|i| i.outcome() == outcome).count()
    }

    /// The [most telling](exit::most_telling) exit code of all. What is in quarantine does not count.
    pub fn exit_code(&self) -> u8 {
        let mut codes: Vec<u8> = Vec::new();
        for item in &self.items {
            codes.push(match (item.outcome(), item.attempts.last()) {
                (ItemOutcome::Passed | ItemOutcome::Quarantined, _) => exit::PASSED,
                (ItemOutcome::Flaky, _) if self.flaky_passes => exit::PASSED,
                (ItemOutcome::Flaky, _) => exit::FLAKY,
                (_, Some(last)) => last.exit_code,
                (_, None) => exit::INCONCLUSIVE,
            });
        }
        exit::most_telling(&codes)
    }

    /// The items that have not passed: what to run again.
    pub fn not_passed(&self) -> impl Iterator<Item = &SessionItem> {
        self.items.iter().filter(|i| !matches!(i.outcome(), ItemOutcome::Passed | ItemOutcome::Flaky))
    }

    /// Wall time.
    fn took(&self) -> Duration {
        let last = self.finished_at.unwrap_or_else(Timestamp::now);
        last.since(self.started_at)
    }

    /// Writes `session.json` and `junit.xml` into the session's folder.
    ///
    /// # Errors
    /// Those of the file system, with the path in their text.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot create {}: {e}", folder.display())))?;
        let mut json = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        json.push('\n');
        crate::write::write_whole(&folder.join(JUNIT), &self.junit())?;
        crate::write::write_whole(&folder.join(SESSION), &json)
    }

    /// Reads it back.
    ///
    /// # Errors
    /// There is none, or it cannot be understood; with the path in the text.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let path: PathBuf = folder.join(SESSION);
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let bytes = std::fs::read(&path).map_err(named)?;
        let session: Self = serde_json::from_slice(&bytes).map_err(|e| named(e.into()))?;
        if session.version != SESSION_VERSION {
            let text = format!("unknown version {}", session.version);
            return Err(named(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        Ok(session)
    }

    /// One test case for each item. Attempts that failed before one passed are `flakyFailure`, those of an item that failed in
    /// the end `rerunFailure`.
    pub fn junit(&self) -> String {
        let mut suite = TestSuite::new("vlab");
        for item in &self.items {
            let message = |attempt: &Attempt| match (&attempt.reason, attempt.verdict) {
                (Some(reason), Verdict::Inconclusive) => format!("inconclusive: {reason}"),
                (Some(reason), _) => reason.clone(),
                (None, verdict) => verdict.as_str().to_owned(),
            };
            let told = |attempt: &Attempt| format!("run: {}\nrepeat: {}", attempt.run_id, attempt.how_to_repeat);
            let mut status = match item.outcome() {
                ItemOutcome::Passed | ItemOutcome::Flaky => TestCaseStatus::success(),
                ItemOutcome::Failed => TestCaseStatus::non_success(NonSuccessKind::Failure),
                ItemOutcome::Inconclusive => TestCaseStatus::non_success(NonSuccessKind::Error),
                ItemOutcome::NotRun | ItemOutcome::Quarantined => TestCaseStatus::skipped(),
            };
            match (item.outcome(), item.attempts.last(), &item.quarantine) {
                (ItemOutcome::NotRun, ..) => {
                    status.set_message("not run: the session ended first");
                }
                (ItemOutcome::Quarantined, Some(last), Some(quarantine)) => {
                    let Quarantine { reason, link, until } = quarantine;
                    status.set_message(format!("quarantined until {until}: {reason} ({link}); {}", message(last)));
                }
                (ItemOutcome::Failed | ItemOutcome::Inconclusive, Some(last), _) => {
                    status.set_message(message(last));
                    status.set_description(told(last));
                }
                _ => {}
            }
            let before = item.attempts.len().saturating_sub(1);
            for attempt in &item.attempts[..before] {
                let mut rerun = TestRerun::new(match attempt.verdict {
                    Verdict::Inconclusive => NonSuccessKind::Error,
                    _ => NonSuccessKind::Failure,
                });
                rerun.set_message(message(attempt));
                rerun.set_description(told(attempt));
                rerun.set_time(milliseconds(attempt.took_ms));
                status.add_rerun(rerun);
            }
            let mut case = TestCase::new(item.title(self), status);
            case.set_classname("vlab.scenario");
            case.set_time(milliseconds(item.attempts.last().map_or(0.0, |a| a.took_ms)));
            case.add_property(("seed", item.seed.to_string().as_str()));
            for attempt in &item.attempts {
                case.add_property(("run", attempt.run_id.as_str()));
            }
            suite.add_test_case(case);
        }
        suite.set_time(self.took());
        let mut report = Report::new("vlab");
        report.set_time(self.took());
        report.add_test_suite(suite);
        report.to_string().unwrap_or_else(|e| unreachable!("writing to a string does not fail: {e}"))
    }

    /// The session for the terminal: a line for each item, those that did not pass last, where people look first.
    pub fn table(&self, color: bool) -> String {
        let mut text = String::new();
        let mut items: Vec<&SessionItem> = self.items.iter().collect();
        items.sort_by_key(|i| std::cmp::Reverse(i.outcome()));
        let width = items.iter().map(|i| i.title(self).len()).max().unwrap_or(0);
        for item in items {
            let outcome = item.outcome();
            let (on, off) =
                if color { (format!("\x1b[{}m", colour_of(outcome)), "\x1b[0m") } else { (String::new(), "") };
            let took = if item.attempts.is_empty() { "–".to_owned() } else { human_ms(item.took_ms()) };
            let tries = match item.attempts.len() {
                0 | 1 => String::new(),
                n => format!("  {n} attempts"),
            };
            let _ = write!(text, "  {on}{:<12}{off} {:<width$}  {took:>10}{tries}", outcome.as_str(), item.title(self));
            if let Some(quarantine) = item.quarantine.as_ref().filter(|_| outcome == ItemOutcome::Quarantined) {
                let _ = write!(text, "  until {}: {} ({})", quarantine.until, quarantine.reason, quarantine.link);
            }
            text.push('\n');
            if let Some(attempt) = item.attempts.iter().rfind(|a| a.verdict != Verdict::Passed) {
                let _ = writeln!(text, "{:15}{}", "", attempt.reason.as_deref().unwrap_or("no reason was given"));
                let _ = writeln!(text, "{:15}repeat: {}", "", attempt.how_to_repeat);
            }
        }
        let counts: Vec<String> = ItemOutcome::ALL
            .into_iter()
            .rev()
            .map(|outcome| (self.count(outcome), outcome))
            .filter(|(n, outcome)| *n > 0 || *outcome == ItemOutcome::Passed)
            .map(|(n, outcome)| format!("{n} {}", outcome.as_str()))
            .collect();
        let took = human_ms(self.took().as_secs_f64() * 1e3);
        let runs = if self.items.len() == 1 { "run" } else { "runs" };
        let _ = writeln!(text, "{} {runs} in {took}: {}", self.items.len(), counts.join(", "));
        text
    }
}

fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(0.0) / 1e3).unwrap_or_default()
}

const fn colour_of(outcome: ItemOutcome) -> &'static str {
    match outcome {
        ItemOutcome::Failed => "1;31",
        ItemOutcome::Inconclusive | ItemOutcome::NotRun | ItemOutcome::Flaky => "1;33",
        ItemOutcome::Quarantined => "33",
        ItemOutcome::Passed => "32",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use Verdict::{Failed, Inconclusive, Passed};

    fn attempt(verdict: Verdict) -> Attempt {
        let (exit_code, reason) = match verdict {
            Passed => (0, None),
            Failed => (1, Some("installs: it ended in error".to_owned())),
            Inconclusive => (3, Some("postgresql: it ended".to_owned())),
        };
        Attempt {
            run_id: format!("run-{}", verdict.as_str()),
            verdict,
            exit_code,
            reason,
            took_ms: 1500.0,
            how_to_repeat: "vlab scenario x --seed 7".into(),
        }
    }

    fn item(scenario: &str, verdicts: &[Verdict], quarantined: bool) -> SessionItem {
        SessionItem {
            scenario: scenario.into(),
            called: scenario.into(),
            repetition: 1,
            seed: 7,
            quarantine: quarantined.then(|| Quarantine {
                reason: "slow disk".into(),
                link: "https://x/1".into(),
                until: "2026-12-31".into(),
            }),
            attempts: verdicts.iter().map(|v| attempt(*v)).collect(),
            ..SessionItem::default()
        }
    }

    fn session(items: Vec<SessionItem>) -> Session {
        Session {
            version: SESSION_VERSION,
            id: "s".into(),
            finished_at: Some(Timestamp::from_secs(100)),
            started_at: Timestamp::from_secs(40),
            jobs: 2,
            items,
            ..Session::default()
        }
    }

    #[rstest]
    #[case(&[], false, ItemOutcome::NotRun, 3)]
    #[case(&[Passed], false, ItemOutcome::Passed, 0)]
    #[case(&[Passed], true, ItemOutcome::Passed, 0)]
    #[case(&[Failed], false, ItemOutcome::Failed, 1)]
    #[case(&[Failed, Failed], false, ItemOutcome::Failed, 1)]
    #[case(&[Failed, Passed], false, ItemOutcome::Flaky, 7)]
    #[case(&[Inconclusive, Passed], false, ItemOutcome::Flaky, 7)]
    #[case(&[Failed, Inconclusive], false, ItemOutcome::Inconclusive, 3)]
    #[case(&[Failed], true, ItemOutcome::Quarantined, 0)]
    #[case(&[Failed, Passed], true, ItemOutcome::Quarantined, 0)]
    #[case(&[], true, ItemOutcome::NotRun, 3)]
    fn what_an_item_came_to(
        #[case] verdicts: &[Verdict],
        #[case] quarantined: bool,
        #[case] outcome: ItemOutcome,
        #[case] code: u8,
    ) {
        let session = session(vec![item("sno", verdicts, quarantined), item("ok", &[Passed], false)]);
        assert_eq!((session.items[0].outcome(), session.exit_code()), (outcome, code));
    }

    #[test]
    fn the_most_telling_code_wins() {
        let all = |verdicts: &[&[Verdict]]| session(verdicts.iter().map(|v| item("x", v, false)).collect()).exit_code();
        assert_eq!(all(&[&[Passed], &[Inconclusive], &[Failed]]), 1);
        assert_eq!(all(&[&[Failed, Passed], &[Inconclusive]]), 3);
        assert_eq!(all(&[]), 0);
        let mut flaky = session(vec![item("x", &[Failed, Passed], false)]);
        flaky.flaky_passes = true;
        assert_eq!(flaky.exit_code(), 0);
    }

    #[test]
    fn a_session_is_shown_and_read_back() {
        let session = session(vec![
            item("sno", &[Passed], false),
            item("flaky", &[Failed, Passed], false),
            item("bad", &[Failed, Failed], false),
            item("known", &[Failed], true),
            item("late", &[], false),
        ]);
        let table = session.table(false);
        for line in
            ["flaky        flaky", "2 attempts", "until 2026-12-31: slow disk (https://x/1)", "not run      late"]
        {
            assert!(table.contains(line), "{line:?} is missing in\n{table}");
        }
        assert!(
            table.contains("5 runs in ") && table.contains(": 1 passed, 1 quarantined, 1 flaky, 1 not run, 1 failed"),
            "{table}"
        );
        let (bad, good) = (table.find("failed       bad"), table.find("passed       sno"));
        assert!(bad > good && good.is_some(), "what failed is at the end, where people look first:\n{table}");
        let junit = session.junit();
        for part in ["flakyFailure", "rerunFailure", "quarantined until 2026-12-31", "not run: the session ended"] {
            assert!(junit.contains(part), "{part:?} is missing in\n{junit}");
        }
        let dir = tempfile::tempdir().unwrap();
        session.write(dir.path()).unwrap();
        assert_eq!(Session::read(dir.path()).unwrap(), session);
        let again: Vec<&str> = session.not_passed().map(|i| i.scenario.as_str()).collect();
        assert_eq!(again, ["bad", "known", "late"]);
    }
}
