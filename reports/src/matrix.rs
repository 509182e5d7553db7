//! One session as a table of what was varied: a row for each topology, address family, firmware and target, a column for each version.

use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, html};

use crate::ci::cell as markdown;
use crate::session::{ItemOutcome, Session, SessionItem};
use crate::text::human_ms;

/// What of a cell is the same in a whole row, and its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The row, in words.
    pub row: String,
    /// The column, in words.
    pub column: String,
    /// What was run for it; or why nothing can be.
    pub what: What,
}

/// What a cell stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The item of the session with this scenario and this target.
    Run {
        /// Name of the scenario.
        scenario: String,
        /// The service under test, as on the command line.
        service: String,
    },
    /// There is no such cluster, and why.
    Nothing(String),
}

/// The table.
#[derive(Debug)]
pub struct Matrix<'a> {
    session: &'a Session,
    cells: &'a [Cell],
    rows: Vec<&'a str>,
    columns: Vec<&'a str>,
}

fn in_order<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    for word in words {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    all
}

impl<'a> Matrix<'a> {
    /// The table of a session and its cells.
    pub fn new(session: &'a Session, cells: &'a [Cell]) -> Self {
        let rows = in_order(cells.iter().map(|cell| cell.row.as_str()));
        let columns = in_order(cells.iter().map(|cell| cell.column.as_str()));
        Self { session, cells, rows, columns }
    }

    fn at(&self, row: &str, column: &str) -> Option<&'a Cell> {
        self.cells.iter().find(|cell| cell.row == row && cell.column == column)
    }

    fn item(&self, cell: &Cell) -> Option<&'a SessionItem> {
        let What::Run { scenario, service } = &cell.what else { return None };
        self.session.items.iter().find(|item| item.scenario == *scenario && item.service == *service)
    }

    /// ItemOutcome and time, in words.
    fn words(&self, row: &str, column: &str) -> (Option<ItemOutcome>, String) {
        let Some(cell) = self.at(row, column) else { return (None, String::new()) };
        match self.item(cell) {
            None => (None, if matches!(cell.what, What::Nothing(_)) { "–" } else { "not run" }.to_owned()),
            Some(item) => {
                let took: f64 = item.attempts.iter().map(|attempt| attempt.took_ms).sum();
                let outcome = item.outcome();
                (Some(outcome), format!("{} {}", outcome.as_str(), human_ms(took)))
            }
        }
    }

    /// What has to be said below the table: what did not pass and why, and which cells there cannot be.
    fn notes(&self) -> Vec<(String, String, Option<String>)> {
        let mut notes = Vec::new();
        for cell in self.cells {
            let title = format!("{}, {}", cell.row, cell.column);
            match (&cell.what, self.item(cell)) {
                (What::Nothing(why), _) => notes.push((title, why.clone(), None)),
                (_, Some(item)) => {
                    let bad = item.attempts.iter().rfind(|a| a.verdict != vlab_judge::result::Verdict::Passed);
                    if let Some(attempt) = bad {
                        let why = attempt.reason.clone().unwrap_or_else(|| "no reason was given".to_owned());
                        notes.push((title, why, Some(attempt.how_to_repeat.clone())));
                    }
                }
                (_, None) => {}
            }
        }
        notes
    }

    /// For the terminal.
    pub fn text(&self) -> String {
        let first = self.rows.iter().map(|row| row.chars().count()).max().unwrap_or(0);
        let body: Vec<Vec<String>> =
            self.rows.iter().map(|row| self.columns.iter().map(|column| self.words(row, column).1).collect()).collect();
        let width = |index: usize| {
            let longest = body.iter().map(|cells| cells[index].chars().count()).max().unwrap_or(0);
            longest.max(self.columns[index].chars().count())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = format!("{:first$}", "");
        for (column, width) in self.columns.iter().zip(&widths) {
            let _ = write!(text, "  {column:<width$}");
        }
        let mut text = text.trim_end().to_owned() + "\n";
        for (row, cells) in self.rows.iter().zip(&body) {
            let mut line = format!("{row:<first$}");
            for (cell, width) in cells.iter().zip(&widths) {
                let _ = write!(line, "  {cell:<width$}");
            }
            text += line.trim_end();
            text.push('\n');
        }
        for (title, why, repeat) in self.notes() {
            let _ = writeln!(text, "{title}: {why}");
            if let Some(repeat) = repeat.filter(|repeat| !repeat.is_empty()) {
                let _ = writeln!(text, "  repeat: {repeat}");
            }
        }
        text
    }

    /// For a comment, a wiki, the summary of a job.
    pub fn markdown(&self) -> String {
        let mut text = String::from("|");
        for column in std::iter::once(&"").chain(&self.columns) {
            let _ = write!(text, " {} |", markdown(column));
        }
        text.push_str("\n|");
        text.push_str(&" --- |".repeat(self.columns.len() + 1));
        text.push('\n');
        for row in &self.rows {
            let _ = write!(text, "| {} |", markdown(row));
            for column in &self.columns {
                let _ = write!(text, " {} |", markdown(&self.words(row, column).1));
            }
            text.push('\n');
        }
        let notes = self.notes();
        if !notes.is_empty() {
            text.push('\n');
        }
        for (title, why, _) in notes {
            let _ = writeln!(text, "- {}: {}", markdown(&title), markdown(&why));
        }
        text
    }

    /// As a page. `report`: the address of the report of a run, relative to the page.
    pub fn html(&self, report: impl Fn(&str) -> String) -> String {
        let css = "body{font:16px/1.4 system-ui,sans-serif;margin:2rem;color-scheme:light dark}table{border-collapse:collapse}\
                   th,td{border:1px solid #8888;padding:.4rem .7rem;text-align:left}.passed{background:#2a23}.failed{background:#d228}\
                   .inconclusive,.flaky,.not{background:#da28}";
        let class =
            |outcome: Option<ItemOutcome>| outcome.map_or("", |o| o.as_str().split(' ').next().unwrap_or_default());
        let cell = |row: &str, column: &str| -> Markup {
            let (outcome, words) = self.words(row, column);
            let run = self.at(row, column).and_then(|cell| self.item(cell)).and_then(|item| item.attempts.last());
            html! {
                td class=(class(outcome)) {
                    @match run.filter(|run| !run.run_id.is_empty()) {
                        Some(run) => a href=(report(&run.run_id)) { (words) },
                        None => (words),
                    }
                }
            }
        };
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { "vlab matrix " (self.session.id) }
                    style { (maud::PreEscaped(css)) }
                }
                body {
                    h1 { "Matrix" }
                    p { (self.session.id) ", begun " (self.session.started_at) }
                    table {
                        tr { th {} @for column in &self.columns { th scope="col" { (column) } } }
                        @for row in &self.rows {
                            tr { th scope="row" { (row) } @for column in &self.columns { (cell(row, column)) } }
                        }
                    }
                    @let notes = self.notes();
                    @if !notes.is_empty() {
                        ul {
                            @for (title, why, repeat) in notes {
                                li {
                                    b { (title) } ": " (why)
                                    @if let Some(repeat) = repeat { br; code { (repeat) } }
                                }
                            }
                        }
                    }
                }
            }
        }
        .into_string()
    }
}

#[cfg(test)]
mod tests {
    use vlab_judge::result::Verdict;

    use super::*;
    use crate::session::Attempt;

    fn session() -> Session {
        let item = |scenario: &str, verdict| SessionItem {
            scenario: scenario.to_owned(),
            service: "simulated".to_owned(),
            attempts: vec![Attempt {
                run_id: format!("run-{scenario}"),
                verdict,
                reason: (verdict != Verdict::Passed).then(|| "it <ended> in error".to_owned()),
                took_ms: 2500.0,
                how_to_repeat: "vlab scenario x --seed 7".to_owned(),
                ..Attempt::default()
            }],
            ..SessionItem::default()
        };
        Session { items: vec![item("a", Verdict::Passed), item("b", Verdict::Failed)], ..Session::default() }
    }

    fn cells() -> Vec<Cell> {
        let run = |row: &str, column: &str, scenario: &str| Cell {
            row: row.to_owned(),
            column: column.to_owned(),
            what: What::Run { scenario: scenario.to_owned(), service: "simulated".to_owned() },
        };
        let nothing =
            Cell { row: "arbiter".to_owned(), column: "4.18".to_owned(), what: What::Nothing("needs 4.19".to_owned()) };
        vec![run("sno", "4.18", "a"), run("sno", "4.22", "b"), nothing, run("arbiter", "4.22", "c")]
    }

    #[test]
    fn a_matrix_for_the_terminal() {
        let (session, cells) = (session(), cells());
        assert_eq!(
            Matrix::new(&session, &cells).text(),
            "         4.18           4.22\n\
             sno      passed 2.50 s  failed 2.50 s\n\
             arbiter  –              not run\n\
             sno, 4.22: it <ended> in error\n  repeat: vlab scenario x --seed 7\n\
             arbiter, 4.18: needs 4.19\n"
        );
    }

    #[test]
    fn a_matrix_in_markdown() {
        let (session, cells) = (session(), cells());
        assert_eq!(
            Matrix::new(&session, &cells).markdown(),
            "|  | 4.18 | 4.22 |\n| --- | --- | --- |\n| sno | passed 2.50 s | failed 2.50 s |\n| arbiter | – | not run |\n\n\
             - sno, 4.22: it &lt;ended> in error\n- arbiter, 4.18: needs 4.19\n"
        );
    }

    #[test]
    fn a_matrix_as_a_page_leads_to_each_report() {
        let (session, cells) = (session(), cells());
        let page = Matrix::new(&session, &cells).html(|run| format!("../../{run}/report.html"));
        assert!(
            page.contains("<td class=\"passed\"><a href=\"../../run-a/report.html\">passed 2.50 s</a></td>"),
            "{page}"
        );
        assert!(page.contains("it &lt;ended&gt; in error") && page.contains("needs 4.19"), "{page}");
        assert!(!page.contains("<script") && !page.contains("http"), "nothing is fetched: {page}");
    }
}
