//! The time machine: the run as it was at any moment. The columns of [`crate::moments`] stand in the page, and its script makes
//! the state at a moment out of them; without the script there is nothing to see.

use maud::{Markup, PreEscaped, html};

use super::Page;
use crate::moments::columns::Columns;

impl Page<'_> {
    /// The dial, and below it what was at the moment that it shows.
    pub(super) fn moments(&self) -> Markup {
        let columns = self.columns();
        time_machine("The run at a moment", None, &html! { (self.side(&columns, None)) })
    }

    /// The columns, as many as there is room for.
    pub(super) fn columns(&self) -> Columns {
        self.moments.columns(self.limits.moments, self.timeline.length, self.redactor)
    }

    /// One run of the time machine. Its data stand in the page as JSON without `<`: nothing in it can end the script.
    pub(super) fn side(&self, columns: &Columns, name: Option<&str>) -> Markup {
        html! {
            div.side data-shift=(self.axis.shift) {
                @if let Some(name) = name { h3 { (name) } }
                p.counts {}
                div.states {}
                p.note.pages {}
                h4 { "Around this moment" }
                ol.around {}
                @if !columns.left_out.is_empty() {
                    p.note.left-out {
                        "This run is too large for a page. Left out here: " (columns.left_out.join(", "))
                        ". All of it is in the run's folder, in " code { "history.jsonl" } " and the logs."
                    }
                }
                script.columns type="application/json" { (PreEscaped(&columns.json)) }
            }
        }
    }
}

/// The section with the dial. `zero` says what the times count from, where that is not the first observation.
pub(super) fn time_machine(title: &str, zero: Option<&str>, sides: &Markup) -> Markup {
    html! {
        section #moment hidden {
            h2 { (title) }
            div.dial {
                div.steps {
                    button #mb type="button" aria-label="the observation before" { "‹" }
                    output #mt for="mr" {}
                    button #mf type="button" aria-label="the next observation" { "›" }
                }
                input #mr type="range" min="0" value="0" step="1" aria-label="moment of the run";
                input #mh type="search" placeholder="hosts: all of these words" aria-label="hosts that are shown";
            }
            fieldset #mk hidden { legend { "Shown around the moment" } }
            p.note {
                @if let Some(zero) = zero { (zero) " " }
                "Drag the time, click in the timeline, or use the arrow keys (with Shift a millisecond), Page Up, Page Down, Home "
                "and End. The address of this page keeps the time."
            }
            div.sides { (sides) }
        }
    }
}
