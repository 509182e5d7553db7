//! Every key of the language stands in a scenario that a test runs, or at least validates, and the reference leads there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vlab_scenario::{Examples, reference_keys};

use crate::markdown::Note;
use crate::place::{Place, pages, root, text_of};
use crate::scenarios::whole;

/// The page with scenarios that show what those of the catalogue do not.
const PAGE: &str = "docs/reference/scenario-examples.md";

/// Notes the keys of a value and of everything in it, where they have no example yet. `schema` is what describes the value, as a
/// part of `all`; `section` is the definition to which its keys belong.
fn note(all: &Value, schema: &Value, section: &str, value: &Value, link: &str, examples: &mut Examples) {
    if let Some(name) = schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
        return note(all, &all["$defs"][name], name, value, link, examples);
    }
    for form in ["anyOf", "oneOf"].iter().filter_map(|form| schema[form].as_array()).flatten() {
        note(all, form, section, value, link, examples);
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| note(all, &schema["items"], section, item, link, examples)),
        Value::Object(members) => {
            let Some(keys) = schema["properties"].as_object() else { return };
            // Of several forms it is the one that knows all its keys.
            if members.keys().any(|key| !keys.contains_key(key)) {
                return;
            }
            for (key, value) in members {
                examples.entry((section.to_owned(), key.clone())).or_insert_with(|| link.to_owned());
                note(all, &keys[key], &format!("{section}.{key}"), value, link, examples);
            }
        }
        _ => {}
    }
}

/// All scenarios of the catalogue, those that run everywhere first.
fn catalogue() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("scenarios")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            // Those folders have files of other kinds.
            match path.is_dir() {
                true if !path.ends_with("profiles") && !path.ends_with("load") => folders.push(path),
                false if path.extension().is_some_and(|e| e == "yaml") => found.push(path),
                _ => {}
            }
        }
    }
    found.sort_by_key(|path| (path.parent().unwrap().ends_with("machines"), path.clone()));
    found
}

fn value_of(text: &str, name: &Path) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{}: {e}", name.display()))
}

fn examples() -> Examples {
    let (schema, mut examples) = (vlab_scenario::schema(), Examples::new());
    for path in catalogue() {
        let value = value_of(&std::fs::read_to_string(&path).unwrap(), &path);
        let below = path.strip_prefix(root()).unwrap().display();
        let link = format!("[{}](../../{below})", path.file_stem().unwrap().to_str().unwrap());
        note(&schema, &schema, "Scenario", &value, &link, &mut examples);
    }
    for page in pages() {
        let file = page.path.strip_prefix("docs").map_or_else(
            |_| format!("../../{}", page.path.display()),
            |below| {
                below
                    .strip_prefix("reference")
                    .map_or_else(|_| format!("../{}", below.display()), |b| b.display().to_string())
            },
        );
        let link = format!("[{}]({file})", page.path.file_stem().unwrap().to_str().unwrap());
        for block in page.blocks.iter().filter(|block| block.language == "yaml") {
            let is_scenario =
                !block.notes.iter().any(|n| matches!(n, Note::NotChecked(why) if why.contains("not a scenario")));
            if is_scenario {
                note(
                    &schema,
                    &schema,
                    "Scenario",
                    &value_of(&block.lines.join("\n"), &page.path),
                    &link,
                    &mut examples,
                );
            }
        }
    }
    examples
}

/// `VLAB_UPDATE_DOCS=1` writes the page again.
#[test]
fn the_page_of_keys_is_generated_and_every_key_has_an_example() {
    let (path, examples) = ("docs/reference/scenario-keys.md", examples());
    let page = reference_keys(&examples);
    if std::env::var_os("VLAB_UPDATE_DOCS").is_some_and(|value| !value.is_empty()) {
        std::fs::write(root().join(path), &page).unwrap();
    }
    let schema = vlab_scenario::schema();
    let sections = schema["$defs"].as_object().unwrap().iter().map(|(name, definition)| (name.as_str(), definition));
    let keys: BTreeSet<(String, String)> = std::iter::once(("Scenario", &schema))
        .chain(sections)
        .flat_map(|(name, of)| {
            of["properties"].as_object().into_iter().flatten().map(move |(key, _)| (name.to_owned(), key.clone()))
        })
        .collect();
    let without: Vec<&(String, String)> = keys.iter().filter(|key| !examples.contains_key(*key)).collect();
    assert!(without.is_empty(), "no scenario and no page has these keys; write one into {PAGE}: {without:?}");
    assert!(keys.len() > 200, "{} keys", keys.len());
    assert!(text_of(path) == page, "{path} is out of date: VLAB_UPDATE_DOCS=1 writes it again");
}

#[test]
fn whole_examples_pass_in_virtual_time() {
    let place = Place::new();
    let page = pages().into_iter().find(|page| page.path == Path::new(PAGE)).unwrap();
    let mut ran = 0;
    for block in page.blocks.iter().filter(|block| block.lines.iter().any(|line| line.starts_with("version:"))) {
        place.write("example.yaml", &whole(block));
        for profile in ["real", "fast"] {
            let (code, said) = place.run(&format!("vlab simulate example.yaml --repeat 5 --time-profile {profile}"));
            assert_eq!(code, Some(0), "{PAGE}:{}: {said}", block.line);
        }
        ran += 1;
    }
    assert!(ran >= 2, "{ran} whole scenarios are left in {PAGE}");
}
