//! Differences that are decided, and why: a table that the program reads and the documentation shows.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Comparison, Difference, EntityKind};

/// The table of this project.
const TABLE: &str = include_str!("../../explained.yaml");

/// How the two go on where they part.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// The simulated service, words joined by `, `; `*` stands for anything beside other words.
    pub simulated: String,
    /// The real service.
    pub real: String,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explanation {
    /// Scenarios in which it is met.
    pub scenarios: Vec<String>,
    /// Of hosts or of clusters.
    pub of: EntityKind,
    /// Strands (`event host_role_updated`); `*` stands for anything.
    pub strand: String,
    /// One of these is met.
    pub either: Vec<Alternative>,
    /// It explains no more differences than these in one comparison.
    pub at_most: usize,
    /// It depends on the moment: the last recorded session in which it explained something. Without: it is met each time.
    #[serde(default)]
    pub seen: Option<u32>,
    /// Why it is as it is.
    pub why: String,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explanations {
    /// How many sessions were recorded: calls of `vlab differential --record` that compared every scenario of the table.
    #[serde(default)]
    sessions: u32,
    /// A row that depends on the moment must have explained something within so many sessions.
    #[serde(default)]
    within: u32,
    #[serde(default)]
    rows: Vec<Explanation>,
}

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ExplanationsError {
    /// No YAML, or not of this form.
    #[error("the table of explained differences: {0}")]
    Form(#[from] serde_yaml::Error),
    /// A row that says too little, or explains too much.
    #[error("the table of explained differences, row {row}: {problem}")]
    Row {
        /// From 1.
        row: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A session that cannot be recorded.
    #[error("a recorded session compares every scenario of the table; not compared: {0}")]
    Session(String),
}

impl Explanations {
    /// The table of this project.
    ///
    /// # Errors
    /// [`ExplanationsError`]; a test reads it, so that a program that was tested has a good one.
    pub fn built_in() -> Result<Self, ExplanationsError> {
        Self::read(TABLE)
    }

    /// Reads a table.
    ///
    /// # Errors
    /// [`ExplanationsError`] names the row.
    pub fn read(text: &str) -> Result<Self, ExplanationsError> {
        // A file with nothing but comments is an empty table.
        let table = serde_yaml::from_str::<Option<Self>>(text)?.unwrap_or_default();
        for (index, row) in table.rows.iter().enumerate() {
            if let Some(problem) = table.problem(row) {
                return Err(ExplanationsError::Row { row: index + 1, problem });
            }
        }
        Ok(table)
    }

    fn problem(&self, row: &Explanation) -> Option<&'static str> {
        let anything = |text: &str| !text.is_empty() && text.chars().all(|c| matches!(c, '*' | ',' | ' '));
        if row.scenarios.is_empty() {
            Some("it names no scenario")
        } else if row.why.trim().is_empty() {
            Some("it does not say why")
        } else if row.strand.chars().all(|c| c == '*') {
            Some("it would explain every strand")
        } else if row.either.is_empty() || row.at_most == 0 {
            Some("it explains nothing")
        } else if row.either.iter().any(|e| anything(&e.simulated) || anything(&e.real)) {
            Some("it would explain whatever one side says: name what it says")
        } else if row.either.iter().any(|e| e.simulated == e.real) {
            Some("both sides say the same")
        } else if row.seen.is_some_and(|seen| seen > self.sessions) {
            Some("it was seen in a session that was not recorded")
        } else if row.seen.is_some_and(|seen| seen + self.within < self.sessions) {
            Some("it has explained nothing for too many sessions: take it out")
        } else {
            None
        }
    }

    /// Its rows.
    pub fn rows(&self) -> &[Explanation] {
        &self.rows
    }

    /// The row that explains a difference, and its reason. `used`: how much each row has explained already.
    pub(super) fn find(
        &self,
        scenario: &str,
        difference: &Difference,
        simulated_is_a: bool,
        used: &BTreeMap<usize, usize>,
    ) -> Option<(usize, &str)> {
        let (simulated, real) = match simulated_is_a {
            true => (&difference.a, &difference.b),
            false => (&difference.b, &difference.a),
        };
        let (simulated, real) = (simulated.join(", "), real.join(", "));
        let strand = difference.strand.to_string();
        let (position, row) = self.rows.iter().enumerate().find(|(position, row)| {
            row.scenarios.iter().any(|s| s == scenario)
                && row.of == difference.kind
                && like(&row.strand, &strand)
                && row.either.iter().any(|e| like(&e.simulated, &simulated) && like(&e.real, &real))
                && used.get(position).is_none_or(|n| *n < row.at_most)
        })?;
        Some((position, &row.why))
    }

    fn used(comparisons: &[Comparison]) -> BTreeSet<usize> {
        comparisons.iter().flat_map(|c| c.explained.iter().map(|e| e.explanation)).collect()
    }

    /// Rows that explain nothing in these comparisons although their scenario is among them: the table has gone stale. Those that
    /// depend on the moment have more time ([`Explanations::recorded`]).
    pub fn stale(&self, comparisons: &[Comparison]) -> Vec<&Explanation> {
        let used = Self::used(comparisons);
        let compared: BTreeSet<&str> = comparisons.iter().map(|c| c.a.scenario.as_str()).collect();
        self.rows
            .iter()
            .enumerate()
            .filter(|(index, row)| {
                row.seen.is_none()
                    && !used.contains(index)
                    && row.scenarios.iter().any(|s| compared.contains(s.as_str()))
            })
            .map(|(_, row)| row)
            .collect()
    }

    /// The text of a table with one more session: these comparisons. Only its numbers change.
    ///
    /// # Errors
    /// A table that cannot be read, and a session that did not compare every scenario of the table.
    pub fn recorded(text: &str, comparisons: &[Comparison]) -> Result<String, ExplanationsError> {
        let table = Self::read(text)?;
        let compared: BTreeSet<&str> = comparisons.iter().map(|c| c.a.scenario.as_str()).collect();
        let wanted: BTreeSet<&str> = table.rows.iter().flat_map(|r| r.scenarios.iter().map(String::as_str)).collect();
        let missing: Vec<&str> = wanted.difference(&compared).copied().collect();
        if !missing.is_empty() {
            return Err(ExplanationsError::Session(missing.join(", ")));
        }
        let (used, session) = (Self::used(comparisons), table.sessions + 1);
        // The n-th line `seen:` belongs to the n-th row that has one.
        let mut rows = table.rows.iter().enumerate().filter(|(_, row)| row.seen.is_some()).map(|(index, _)| index);
        let mut lines = Vec::new();
        for line in text.lines() {
            let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
            lines.push(match rest.split_once(':').map(|(key, _)| key) {
                Some("sessions") => format!("{indent}sessions: {session}"),
                Some("seen") => match rows.next().filter(|row| used.contains(row)) {
                    Some(_) => format!("{indent}seen: {session}"),
                    None => line.to_owned(),
                },
                _ => line.to_owned(),
            });
        }
        lines.push(String::new());
        Ok(lines.join("\n"))
    }

    /// The table for people, in Markdown.
    pub fn to_markdown(&self) -> String {
        let mut text = String::from("| Scenarios | Of | What | Simulated ↔ real | Why |\n|---|---|---|---|---|\n");
        let cell = |s: &str| match s {
            "" => "nothing more".to_owned(),
            s => s.replace('*', "…").replace('|', "\\|"),
        };
        for row in &self.rows {
            let either: Vec<String> =
                row.either.iter().map(|e| format!("{} ↔ {}", cell(&e.simulated), cell(&e.real))).collect();
            text.push_str(&format!(
                "| {} | {} | {}{}, at most {} in a run | {} | {} |\n",
                row.scenarios.join(", "),
                row.of.as_str(),
                row.strand.replace('*', "…"),
                if row.seen.is_some() { " (sometimes)" } else { "" },
                row.at_most,
                either.join("; or "),
                row.why.split_whitespace().collect::<Vec<_>>().join(" "),
            ));
        }
        text
    }
}

/// Does the text look like the pattern, in which `*` stands for anything?
fn like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => {
            let Some(text) = text.strip_prefix(head) else { return false };
            (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| like(rest, &text[at..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a", "a", true)]
    #[case("a", "ab", false)]
    #[case("*", "", true)]
    #[case("a*c", "abbc", true)]
    #[case("a*c", "abbd", false)]
    #[case("*é*", "xéy", true)]
    #[case("", "", true)]
    #[case("", "a", false)]
    fn patterns(#[case] pattern: &str, #[case] text: &str, #[case] expected: bool) {
        assert_eq!(like(pattern, text), expected);
    }

    fn row(change: &str) -> String {
        let good =
            "scenarios: [a], of: host, strand: status, either: [{simulated: '', real: x}], at_most: 1, seen: 1, why: x";
        let key = change.split(':').next().unwrap();
        let at = good.find(&format!("{key}:")).unwrap_or_else(|| panic!("{key}"));
        let end = match key {
            "either" => good.find("}]").unwrap() + 2,
            _ => good[at..].find(", ").map_or(good.len(), |n| at + n),
        };
        format!("{{sessions: 4, within: 2, rows: [{{{}{change}{}}}]}}", &good[..at], &good[end..])
    }

    #[rstest]
    #[case("scenarios: []", "row 1: it names no scenario")]
    #[case("why: ' '", "row 1: it does not say why")]
    #[case("strand: '**'", "row 1: it would explain every strand")]
    #[case("either: []", "row 1: it explains nothing")]
    #[case("at_most: 0", "row 1: it explains nothing")]
    #[case("either: [{simulated: '*', real: '*'}]", "row 1: it would explain whatever one side says")]
    #[case("either: [{simulated: a, real: '*, *'}]", "row 1: it would explain whatever one side says")]
    #[case("either: [{simulated: a, real: a}]", "row 1: both sides say the same")]
    #[case("seen: 5", "row 1: it was seen in a session that was not recorded")]
    #[case("seen: 1", "row 1: it has explained nothing for too many sessions")]
    #[case("either: [{simulated: a}]", "missing field `real`")]
    #[case("at_most: 1, strands: x", "unknown field `strands`")]
    fn a_row_that_says_too_little_or_explains_too_much_is_refused(#[case] change: &str, #[case] expected: &str) {
        let text = row(change);
        let error = Explanations::read(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_row_that_was_used_lately_stays() {
        Explanations::read(&row("seen: 2")).unwrap();
    }

    #[test]
    fn the_table_of_the_project_is_a_table() {
        Explanations::built_in().unwrap();
        assert_eq!(Explanations::read("# nothing\n").unwrap(), Explanations::default());
    }

    /// What the program believes is what people read. `VLAB_UPDATE_DOCS=1` writes the table into the page.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test may be told to write what it compares with")]
    fn the_page_shows_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fidelity.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (begin, end) = ("<!-- explained.yaml -->\n", "<!-- end of explained.yaml -->");
        let (head, rest) = page.split_once(begin).expect("a place for the table");
        let (shown, tail) = rest.split_once(end).expect("an end of the table");
        let table = Explanations::built_in().unwrap().to_markdown();
        if std::env::var_os("VLAB_UPDATE_DOCS").is_some() {
            std::fs::write(path, format!("{head}{begin}{table}{end}{tail}")).unwrap();
            return;
        }
        assert_eq!(shown, table, "renew it with VLAB_UPDATE_DOCS=1");
    }
}
