//! YAML that is shown is valid.

use std::collections::BTreeSet;

use crate::markdown::{Block, Note};
use crate::place::{Place, pages, root};

/// The text of a YAML mapping as its top-level keys with their lines. Lines before the first key belong to it.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut sections: Vec<(String, String)> = Vec::new();
    let mut waiting = String::new();
    for line in text.lines() {
        let key =
            line.split_once(':').map(|(key, _)| key).filter(|key| key.starts_with(|c: char| c.is_ascii_lowercase()));
        match (key, sections.last_mut()) {
            (Some(key), _) => sections.push((key.to_owned(), format!("{}{line}\n", std::mem::take(&mut waiting)))),
            (None, None) => waiting += &format!("{line}\n"),
            (None, Some((_, text))) => *text += &format!("{line}\n"),
        }
    }
    sections
}

/// A scenario with some of its keys replaced.
fn replaced(scenario: &str, piece: &str) -> String {
    let new = sections(piece);
    let names: BTreeSet<&str> = new.iter().map(|(name, _)| name.as_str()).collect();
    let old = sections(scenario).into_iter().filter(|(name, _)| !names.contains(name.as_str()));
    old.chain(new.iter().cloned()).map(|(_, text)| text).collect()
}

/// The text of a scenario of the catalogue.
fn catalogue(name: &str) -> String {
    let mut folders = vec![root().join("scenarios")];
    while let Some(folder) = folders.pop() {
        let file = folder.join(format!("{name}.yaml"));
        if let Ok(text) = std::fs::read_to_string(file) {
            return text;
        }
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        folders.extend(entries.filter(|path| path.is_dir()));
    }
    panic!("there is no scenario {name}");
}

/// The scenario that a block stands for.
pub(crate) fn whole(block: &Block) -> String {
    let text = block.lines.join("\n") + "\n";
    let base = block.notes.iter().find_map(|note| match note {
        Note::In(name) => Some(name.as_str()),
        _ => None,
    });
    let is_whole = sections(&text).iter().any(|(name, _)| name == "version");
    match (is_whole, base) {
        (true, None) => text,
        (true, Some(_)) => panic!("a whole scenario is not part of another one"),
        (false, base) => replaced(&catalogue(base.unwrap_or("sno")), &text),
    }
}

#[test]
fn every_scenario_that_is_shown_is_valid() {
    let place = Place::new();
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.language == "yaml") {
            if block.notes.iter().any(|note| matches!(note, Note::NotChecked(_))) {
                continue;
            }
            place.write("shown.yaml", &whole(block));
            let (code, said) = place.run("vlab validate shown.yaml");
            checked += 1;
            if code != Some(0) {
                wrong.push(format!("{}:{}:\n{said}", page.path.display(), block.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= 5, "only {checked} blocks of YAML are left in the pages");
}

#[test]
fn keys_of_a_scenario_are_replaced() {
    let scenario = "# head\nversion: 1\nname: a\nhosts:\n  - name: x\n    role: y\n# tail\nexpect: []\n";
    assert_eq!(
        replaced(scenario, "# why\nhosts: [z]\nfaults:\n- b: c\n"),
        "# head\nversion: 1\nname: a\nexpect: []\n# why\nhosts: [z]\nfaults:\n- b: c\n"
    );
    assert_eq!(replaced(scenario, "# only a comment\n"), scenario);
    // What is wrong in a block is wrong in the whole.
    let place = Place::new();
    place.write("bad.yaml", &replaced(&catalogue("sno"), "hosts:\n  - {name: node, rolle: auto}\n"));
    let (code, said) = place.run("vlab validate bad.yaml");
    assert!(code == Some(2) && said.contains("rolle"), "{code:?} {said}");
}
