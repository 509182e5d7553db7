//! The page about the invariants is made from their table.

use std::fmt::Write as _;

use vlab_judge::invariant::{INVARIANTS, Invariant};

use crate::place::{root, text_of};

const PAGE: &str = "docs/reference/invariants.md";

const TOP: &str = "\
# Invariants

Rules that hold for every installation, whatever a scenario expects, generated from their table in the code. Every run is checked against
them. An invariant is skipped, with the reason, when the history does not contain what the last column says; a skipped invariant never counts
as passed.

| name | what always holds | what a history must contain to check it |
| --- | --- | --- |
";

fn page(invariants: &[Invariant]) -> String {
    let mut page = TOP.to_owned();
    for row in invariants {
        let _ = writeln!(page, "| `{}` | {} | {} |", row.id, row.title, row.needs);
    }
    page
}

/// `VLAB_UPDATE_DOCS=1` writes it.
#[test]
fn the_page_about_invariants_is_their_table() {
    let page = page(INVARIANTS);
    if std::env::var_os("VLAB_UPDATE_DOCS").is_some() {
        std::fs::write(root().join(PAGE), page).unwrap();
        return;
    }
    assert!(
        text_of(PAGE) == page,
        "{PAGE} is old: VLAB_UPDATE_DOCS=1 cargo nextest run -p vlab-cli -E 'binary(docs) & test(invariants)'"
    );
}
