//! Differences that are decided, and why: a table that the program reads and the documentation shows.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Comparison, Difference, Kind};

/// The table of this project.
const TABLE: &str = include_str!("../../explained.yaml");

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explanation {
    /// Scenarios in which it is met.
    pub scenarios: Vec<String>,
    /// Of hosts or of clusters.
    pub of: Kind,
    /// Strands (`event host_role_updated`); `*` stands for anything.
    pub strand: String,
    /// How the simulated service goes on where the two part, words joined by `, `; `*` stands for anything.
    pub simulated: String,
    /// How the real service goes on.
    pub real: String,
    /// It depends on the moment: a run without it does not make it stale.
    #[serde(default)]
    pub sometimes: bool,
    /// Why it is as it is.
    pub why: String,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanations {
    rows: Vec<Explanation>,
}

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ExplanationsError {
    /// No YAML, or not of this form.
    #[error("the table of explained differences: {0}")]
    Form(#[from] serde_yaml::Error),
    /// A row that says too little.
    #[error("the table of explained differences, row {row}: {problem}")]
    Row {
        /// From 1.
        row: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
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
        let rows: Vec<Explanation> = serde_yaml::from_str::<Option<Vec<Explanation>>>(text)?.unwrap_or_default();
        for (index, row) in rows.iter().enumerate() {
            let problem = if row.scenarios.is_empty() {
                "it names no scenario"
            } else if row.why.trim().is_empty() {
                "it does not say why"
            } else if row.strand.chars().all(|c| c == '*') {
                "it would explain every strand"
            } else {
                continue;
            };
            return Err(ExplanationsError::Row { row: index + 1, problem });
        }
        Ok(Self { rows })
    }

    /// Its rows.
    pub fn rows(&self) -> &[Explanation] {
        &self.rows
    }

    /// The row that explains a difference, and its reason.
    pub(super) fn find(&self, scenario: &str, difference: &Difference, simulated_is_a: bool) -> Option<(usize, &str)> {
        let (simulated, real) = match simulated_is_a {
            true => (&difference.a, &difference.b),
            false => (&difference.b, &difference.a),
        };
        let strand = difference.strand.to_string();
        let position = self.rows.iter().position(|row| {
            row.scenarios.iter().any(|s| s == scenario)
                && row.of == difference.kind
                && like(&row.strand, &strand)
                && like(&row.simulated, &simulated.join(", "))
                && like(&row.real, &real.join(", "))
        })?;
        Some((position, &self.rows[position].why))
    }

    /// Rows that explain nothing in these comparisons although their scenario is among them: the table has gone stale.
    pub fn stale(&self, comparisons: &[Comparison]) -> Vec<&Explanation> {
        let used: BTreeSet<usize> =
            comparisons.iter().flat_map(|c| c.explained.iter().map(|e| e.explanation)).collect();
        let compared: BTreeSet<&str> = comparisons.iter().map(|c| c.a.scenario.as_str()).collect();
        self.rows
            .iter()
            .enumerate()
            .filter(|(index, row)| {
                !row.sometimes && !used.contains(index) && row.scenarios.iter().any(|s| compared.contains(s.as_str()))
            })
            .map(|(_, row)| row)
            .collect()
    }

    /// The table for people, in Markdown.
    pub fn to_markdown(&self) -> String {
        let mut text = String::from("| Scenarios | Of | What | Simulated | Real | Why |\n|---|---|---|---|---|---|\n");
        let cell =
            |s: &str| if s.is_empty() { "nothing more".to_owned() } else { s.replace('*', "…").replace('|', "\\|") };
        for row in &self.rows {
            text.push_str(&format!(
                "| {} | {} | {}{} | {} | {} | {} |\n",
                row.scenarios.join(", "),
                row.of.as_str(),
                row.strand.replace('*', "…"),
                if row.sometimes { " (sometimes)" } else { "" },
                cell(&row.simulated),
                cell(&row.real),
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

    #[rstest]
    #[case(
        "[{scenarios: [], of: host, strand: status, simulated: '', real: '', why: x}]",
        "row 1: it names no scenario"
    )]
    #[case(
        "[{scenarios: [a], of: host, strand: status, simulated: '', real: '', why: ' '}]",
        "row 1: it does not say why"
    )]
    #[case(
        "[{scenarios: [a], of: host, strand: '**', simulated: '', real: '', why: x}]",
        "row 1: it would explain every strand"
    )]
    #[case("[{scenarios: [a], of: host, strand: status, simulated: '', why: x}]", "missing field `real`")]
    #[case("[{scenarios: [a], of: host, strands: status, simulated: '', real: '', why: x}]", "unknown field `strands`")]
    fn a_row_that_says_too_little_is_refused(#[case] text: &str, #[case] expected: &str) {
        let error = Explanations::read(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
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
