//! Facts about the real service that tests compare with, so that fidelity is checked wherever the tests run: names, codes, rules,
//! limits and orders of events in tables that people can read (`tables/*.yaml`).
//!
//! The tables are reduced from two sources that are not in this repository: the real service's own dumps and API schema, and
//! requests and answers that were recorded against it. `VLAB_REFERENCE` names a folder with them. Where it is set, tests
//! reduce the sources once more and compare the result with the tables ([`agrees`]); `VLAB_UPDATE_FACTS=1` writes the tables
//! instead.

pub mod recording;

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The environment variable that names the folder of the sources.
pub const REFERENCE: &str = "VLAB_REFERENCE";

fn path_of(table: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tables").join(table)
}

/// Reads a table.
///
/// # Panics
/// When it is not there, or no YAML.
pub fn table(name: &str) -> Value {
    let path = path_of(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_yaml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The text of a file of the sources; `None`, and a record of the skip, where there are none.
///
/// # Panics
/// When the folder is there and lacks the file.
pub fn source(file: &str) -> Option<String> {
    let Some(folder) = std::env::var_os(REFERENCE) else {
        vlab_skip::skip!("{REFERENCE} is not set: the sources of the tables of facts are not in this repository");
        return None;
    };
    let path = Path::new(&folder).join(file);
    Some(std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// The same of a file that not every folder of sources has.
///
/// # Panics
/// When it is there and cannot be read.
pub fn source_if_there(file: &str) -> Option<String> {
    let path = std::env::var_os(REFERENCE).map(|folder| Path::new(&folder).join(file)).filter(|path| path.exists());
    let Some(path) = path else {
        vlab_skip::skip!(
            "{file} of the real service is not in this repository; {REFERENCE} names a folder that may have it"
        );
        return None;
    };
    Some(std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// Compares a table with what its source says now, or writes it.
///
/// # Panics
/// When they differ.
pub fn agrees(name: &str, heading: &str, found: &Value) {
    if std::env::var_os("VLAB_UPDATE_FACTS").is_some() {
        let path = path_of(name);
        std::fs::write(&path, text_of(heading, found)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let ours = table(name);
    if ours == *found {
        return;
    }
    let (ours, theirs) = (text_of("", &ours), text_of("", found));
    let lines = |a: &str, b: &str| -> Vec<String> {
        let b: std::collections::BTreeSet<&str> = b.lines().collect();
        a.lines().filter(|line| !b.contains(line)).take(20).map(str::to_owned).collect()
    };
    panic!(
        "tables/{name} is not what its source says (VLAB_UPDATE_FACTS=1 writes it):\nonly in the table:\n{}\nonly in the source:\n{}",
        lines(&ours, &theirs).join("\n"),
        lines(&theirs, &ours).join("\n"),
    );
}

/// A table as YAML: a list or a map of each section, a row a line.
fn text_of(heading: &str, table: &Value) -> String {
    let mut text: String = heading.lines().map(|line| format!("# {line}\n")).collect();
    for (section, rows) in table.as_object().into_iter().flatten() {
        match rows {
            Value::Array(rows) if !rows.is_empty() => {
                text.push_str(&format!("{}:\n", key(section)));
                for row in rows {
                    text.push_str(&format!("  - {}\n", flow(row)));
                }
            }
            Value::Object(rows) if !rows.is_empty() => {
                text.push_str(&format!("{}:\n", key(section)));
                for (name, row) in rows {
                    text.push_str(&format!("  {}: {}\n", key(name), flow(row)));
                }
            }
            other => text.push_str(&format!("{}: {}\n", key(section), flow(other))),
        }
    }
    text
}

/// A value in one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members: Vec<String> = members.iter().map(|(name, v)| format!("{}: {}", key(name), flow(v))).collect();
            format!("{{{}}}", members.join(", "))
        }
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

fn key(name: &str) -> String {
    if is_plain(name) { name.to_owned() } else { Value::from(name).to_string() }
}

/// Does YAML read these characters as the same text when they stand without quotes?
fn is_plain(text: &str) -> bool {
    let mut letters = text.chars();
    let word = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || "-_ ./".contains(c))
        && !text.ends_with(' ');
    let other = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    word && !other.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table = json!({
            "rows": [{"on": "A b", "n": 1.5, "no": "no", "at": "12:30", "none": null}, "x", ["a-b", "c: d", "", "1"]],
            "map": {"a b": {"c": [true, "true"]}, "0": "é\n\"quoted\""},
            "empty": [],
        });
        let read: Value = serde_yaml::from_str(&text_of("What it is.\nAnd why.", &table)).unwrap();
        assert_eq!(read, table);
    }
}
