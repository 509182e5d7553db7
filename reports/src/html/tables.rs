//! The tables of transitions and events. The first rows stand in the page; all of them are data, from which the script makes
//! the others.

use std::collections::BTreeMap;

use maud::{Markup, PreEscaped, html};
use serde_json::json;

use super::Page;
use crate::text::{human, thousands};

/// Rows that can be read without the script.
const STATIC: usize = 60;

/// A table of the page.
struct Table<'a, const N: usize> {
    id: &'a str,
    name: &'a str,
    heads: [&'a str; N],
    rows: Vec<[String; N]>,
    /// How many rows there are, with those that are left out.
    all: usize,
}

impl Page<'_> {
    pub(super) fn tables(&self) -> Markup {
        let transitions = Table {
            id: "transitions",
            name: "Transitions",
            heads: ["time", "subject", "what", "from", "to", "message of the service", "seen by"],
            rows: self.transitions(),
            all: self.timeline.transitions.len(),
        };
        let events = Table {
            id: "events",
            name: "Events",
            heads: ["time", "kind", "severity", "subject", "name", "text"],
            rows: self.events(),
            all: self.timeline.rows.len(),
        };
        html! {
            (transitions.render())
            (events.render())
            script #data type="application/json" { (PreEscaped(data(&transitions.rows, &events.rows))) }
        }
    }

    fn transitions(&self) -> Vec<[String; 7]> {
        let t = self.timeline;
        self.kept(t.transitions.len(), |i| {
            let row = &t.transitions[i];
            let kind = if row.which.is_empty() { row.kind.to_owned() } else { format!("{} {}", row.kind, row.which) };
            [
                human(row.at),
                self.cell(&t.name(row.subject)),
                self.cell(&kind),
                row.from.to_owned(),
                row.to.to_owned(),
                self.cell(row.info),
                row.sources.to_string(),
            ]
        })
    }

    fn events(&self) -> Vec<[String; 6]> {
        let t = self.timeline;
        self.kept(t.rows.len(), |i| {
            let row = &t.rows[i];
            let subject = row.subject.map(|s| self.cell(&t.name(s))).unwrap_or_default();
            let (name, text) = (self.cell(&row.name), self.cell(&row.text));
            [human(row.at), row.kind.to_owned(), row.severity.to_owned(), subject, name, text]
        })
    }

    fn cell(&self, text: &str) -> String {
        self.short(text, self.limits.text.min(400))
    }

    /// The rows of a table that go into the page: all, or the first and last ones.
    fn kept<T>(&self, all: usize, row: impl Fn(usize) -> T) -> Vec<T> {
        match all.checked_sub(self.limits.rows) {
            Some(over) if over > 0 => {
                let head = self.limits.rows * 2 / 3;
                (0..head).chain(head + over..all).map(row).collect()
            }
            _ => (0..all).map(row).collect(),
        }
    }
}

impl<const N: usize> Table<'_, N> {
    fn render(&self) -> Markup {
        let Self { id, name, heads, rows, all } = self;
        html! {
            section id=(id) {
                h2 { (name) " " span.count { (thousands(*all as u64)) } }
                p.filter hidden {
                    input type="search" placeholder="filter: rows with all of these words" aria-label={ "filter " (id) };
                    " "
                    span {}
                }
                @if rows.len() < *all {
                    p.note {
                        "This page shows " (thousands(rows.len() as u64)) " of " (thousands(*all as u64))
                        " rows, the first and the last; all of them are in " code { "history.jsonl" } "."
                    }
                }
                @if rows.is_empty() {
                    p.note { "None." }
                } @else {
                    div.rows {
                        table.log data-table=(id) {
                            thead { tr { @for head in heads { th scope="col" { (head) } } } }
                            tbody {
                                @for row in rows.iter().take(STATIC) {
                                    tr { @for cell in row { td { (cell) } } }
                                }
                            }
                        }
                    }
                    @if rows.len() > STATIC {
                        noscript { p.note { "Without JavaScript only the first " (STATIC) " rows are shown." } }
                    }
                }
            }
        }
    }
}

/// Both tables as JSON: strings once, rows as their numbers. `<` by its number: nothing in it can end the script or begin a
/// comment.
fn data<const N: usize, const M: usize>(transitions: &[[String; N]], events: &[[String; M]]) -> String {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut strings: Vec<&str> = Vec::new();
    for cell in transitions.iter().flatten().chain(events.iter().flatten()) {
        numbers.entry(cell.as_str()).or_insert_with(|| {
            strings.push(cell.as_str());
            strings.len() - 1
        });
    }
    let row = |cells: &[String]| -> Vec<usize> { cells.iter().map(|cell| numbers[cell.as_str()]).collect() };
    let data = json!({
        "strings": strings,
        "transitions": transitions.iter().map(|cells| row(cells)).collect::<Vec<_>>(),
        "events": events.iter().map(|cells| row(cells)).collect::<Vec<_>>(),
    });
    data.to_string().replace('<', "\\u003c")
}
