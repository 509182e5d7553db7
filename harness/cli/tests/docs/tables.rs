//! Pages that are made from tables of the code (the invariants, and the checks of consoles), and the one that is made from the folder
//! of findings.

use std::fmt::Write as _;

use vlab_judge::invariants::INVARIANTS;
use vlab_model::console::{Blame, CHECKS};

use crate::place::{Place, root, text_of};

const INVARIANTS_TOP: &str = "\
# Invariants

Rules that hold for every installation, whatever a scenario expects, generated from their table in the code. Every run is checked against
them. An invariant is skipped, with the reason, when the history does not contain what the last column says; a skipped invariant never counts
as passed. Results of earlier versions name them by the number in the last column.

| name | what always holds | what a history must contain to check it | number |
| --- | --- | --- | --- |
";

const CONSOLE_TOP: &str = "\
# Console checks

What the serial console of a virtual machine should not say, generated from the table of checks in the code. The first check that matches a
line names it. A scenario leaves checks out with `vm: {ignore_console: [CHECK, ...]}`.

| check | what a matching line means | the machine | the run is then |
| --- | --- | --- | --- |
";

fn invariants() -> String {
    let mut page = INVARIANTS_TOP.to_owned();
    for row in INVARIANTS {
        let _ = writeln!(page, "| `{}` | {} | {} | {} |", row.id, row.title, row.needs, row.number);
    }
    page
}

fn console_checks() -> String {
    let mut page = CONSOLE_TOP.to_owned();
    for row in CHECKS {
        let machine = if row.ends { "does nothing more" } else { "goes on" };
        let run = match row.blames {
            Blame::Product => "failed",
            Blame::Lab => "inconclusive",
        };
        let _ = writeln!(page, "| `{}` | {} | {machine} | {run} |", row.id, row.description);
    }
    page
}

/// `VLAB_UPDATE_DOCS=1` writes them.
#[test]
fn the_pages_are_the_tables() {
    for (path, page) in
        [("docs/reference/invariants.md", invariants()), ("docs/reference/console-checks.md", console_checks())]
    {
        if std::env::var_os("VLAB_UPDATE_DOCS").is_some() {
            std::fs::write(root().join(path), page).unwrap();
            continue;
        }
        let renew =
            "VLAB_UPDATE_DOCS=1 cargo nextest run -p vlab-cli -E 'binary(docs) & test(the_pages_are_the_tables)'";
        assert!(text_of(path) == page, "{path} is old; renew it: {renew}");
    }
}

/// The page is what the verb makes of the folder, everything in it is classed, and each scenario is one. `VLAB_UPDATE_DOCS=1` writes it.
#[test]
fn the_page_of_findings_is_its_folder() {
    let (place, path) = (Place::new(), "docs/findings.md");
    let folder = root().join("docs/findings");
    let copied = place.run(&format!("mkdir docs && cp -r {} docs/", folder.display()));
    assert_eq!(copied.0, Some(0), "{}", copied.1);
    let (code, said) = place.run(&format!("vlab findings docs/findings --markdown {path}"));
    assert!(code == Some(0) && !said.contains("nobody has said"), "{said}");
    let page = std::fs::read_to_string(place.work().join(path)).unwrap();
    if std::env::var_os("VLAB_UPDATE_DOCS").is_some() {
        std::fs::write(root().join(path), &page).unwrap();
    }
    let renew = "VLAB_UPDATE_DOCS=1 cargo nextest run -p vlab-cli -E 'binary(docs) & test(the_page_of_findings)'";
    assert!(text_of(path) == page, "{path} is old; renew it: {renew}");
    let scenarios = "ls docs/findings/*.yaml | grep -v classes.yaml";
    let (code, said) = place.run(&format!("vlab validate $({scenarios})"));
    let (_, count) = place.run(&format!("{scenarios} | wc -l"));
    assert!(code == Some(0) && said.matches(": valid").count().to_string() == count.trim(), "{count}{said}");
}
