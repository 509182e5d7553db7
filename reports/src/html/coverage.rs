//! The page of a coverage, which needs nothing else.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::finished;
use vlab_judge::coverage::{Coverage, Item, Reached, Section};

use crate::coverage::{cell, read};

/// A page that needs nothing else.
pub fn page(coverage: &Coverage) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "Coverage" }
                style { (PreEscaped(include_str!("coverage.css"))) }
            }
            body {
                h1 { "Coverage" }
                p { (read(coverage)) }
                table {
                    tr { th {} th { "built-in service" } th { "another service" } th { "cannot be reached" } }
                    @for section in &coverage.sections {
                        tr {
                            th { a href={ "#" (section.id) } { (section.title) } }
                            td { (cell(section.count(false))) }
                            td { (cell(section.count(true))) }
                            td { (section.count(false).unreachable) }
                        }
                    }
                }
                @for section in &coverage.sections { (details(section)) }
            }
        }
        "\n"
    };
    finished(page)
}

fn details(section: &Section) -> Markup {
    html! {
        details id=(section.id) open {
            summary { (section.title) }
            table {
                tr { th {} th {} th { "built-in service" } th { "another service" } th { "first reached by, or why not" } }
                @for item in &section.items {
                    @let first = item.simulated.first.as_ref().or(item.real.first.as_ref());
                    tr {
                        td { (item.id) }
                        td { (item.about) }
                        td class=(class(item, &item.simulated)) { (runs(&item.simulated)) }
                        td class=(class(item, &item.real)) { (runs(&item.real)) }
                        td { (first.or(item.reason.as_ref()).map_or("", String::as_str)) }
                    }
                }
            }
        }
    }
}

fn class(item: &Item, reached: &Reached) -> &'static str {
    match (reached.runs, reached.possible, &item.reason) {
        (1.., ..) => "yes",
        (0, true, _) => "maybe",
        (0, false, Some(_)) => "never",
        (0, false, None) => "no",
    }
}

fn runs(reached: &Reached) -> String {
    match (reached.runs, reached.possible) {
        (0, true) => "?".to_owned(),
        (0, false) => "–".to_owned(),
        (runs, _) => runs.to_string(),
    }
}
