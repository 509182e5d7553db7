//! From bytes to the form of a file. This is the only place that knows the YAML library.

use std::ops::Range;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::MergeKeyPolicy;
use serde_saphyr::{DuplicateKeyPolicy, Error, Location};

use crate::diagnostic::{LoadError, MAX_BYTES, Problem, SourceFile, suggestion};
use crate::spanned::byte_range;

/// Reads the bytes of a file as text and the text as `T`.
pub(crate) fn parse<T: DeserializeOwned>(source: &SourceFile) -> Result<(T, Arc<str>), LoadError> {
    let text = text_of(source)?;
    // `DuplicateKeyPolicy::Error` and merging are the library's defaults; they are here because the language depends on them.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            flow_nesting_limit: 64,
            max_nodes: 200_000,
            max_events: 500_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_documents: 2,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
            max_replay_stack_depth: 16,
            max_alias_expansions_per_anchor: 1_000,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Merge,
        strict_booleans: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<T>(&text, options) {
        Ok(value) => Ok((value, text)),
        Err(error) => {
            let problem = explain(&error, &text);
            Err(LoadError::new(&source.name, text, vec![problem]))
        }
    }
}

fn text_of(source: &SourceFile) -> Result<Arc<str>, LoadError> {
    if source.bytes.len() > MAX_BYTES {
        return Err(LoadError::too_long(&source.name));
    }
    let text = match std::str::from_utf8(&source.bytes) {
        // A byte order mark is no part of the text; places count from behind it.
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let good = &source.bytes[..error.valid_up_to()];
            let lossy = String::from_utf8_lossy(&source.bytes).into_owned();
            let span = good.len()..good.len() + '\u{fffd}'.len_utf8();
            let problem = Problem {
                message: format!("the file is not UTF-8: byte 0x{:02x} cannot be read", source.bytes[good.len()]),
                span: Some(span),
                label: "here".to_owned(),
                also: vec![],
                help: Some("save the file as UTF-8".to_owned()),
            };
            return Err(LoadError::new(&source.name, lossy.into(), vec![problem]));
        }
    };
    let nothing = text.lines().all(|l| {
        let l = l.trim();
        l.is_empty() || l.starts_with('#') || l == "---" || l == "..."
    });
    if nothing {
        return Err(LoadError::about_file(
            &source.name,
            "the file is empty",
            "a scenario begins with `version: 1` and has a `name` and `hosts`; `scenarios/sno.yaml` is a good one to copy",
        ));
    }
    Ok(text.into())
}

fn place(error: &Error, text: &str) -> Range<usize> {
    match error.location() {
        Some(location) if location != Location::UNKNOWN => {
            let range = byte_range(&location);
            if range.start == 0 && location.line() > 1 {
                return by_line(text, location.line(), location.column());
            }
            if range.is_empty() { word_at(text, range.start) } else { range }
        }
        _ => 0..0,
    }
}

/// The place of a line and a column, for errors that carry no bytes.
fn by_line(text: &str, line: u64, column: u64) -> Range<usize> {
    let line = usize::try_from(line).unwrap_or(1).max(1);
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let within = text.get(start..).unwrap_or_default();
    let column = usize::try_from(column).unwrap_or(1).max(1);
    let offset = within.char_indices().nth(column - 1).map_or(within.len(), |(i, _)| i);
    word_at(text, start + offset)
}

/// The word that begins there.
fn word_at(text: &str, start: usize) -> Range<usize> {
    let rest = text.get(start..).unwrap_or_default();
    let len = rest.find(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | ']' | '}')).unwrap_or(rest.len());
    start..start + len
}

/// Message, label and help of a problem. An empty help is none.
type Words = (String, String, String);

fn words(message: impl Into<String>, label: impl Into<String>, help: impl Into<String>) -> Words {
    (message.into(), label.into(), help.into())
}

/// The library's error in our words, with what to do about it.
fn explain(error: &Error, text: &str) -> Problem {
    let span = Some(place(error, text));
    if let Error::AliasError { error: inner, .. } = error.without_snippet() {
        let mut problem = explain(inner, text);
        problem.span = span.filter(|s| !s.is_empty()).or(problem.span);
        return problem;
    }
    let (message, label, help) = in_words(error.without_snippet());
    Problem { message, span, label, also: vec![], help: Some(help).filter(|help| !help.is_empty()) }
}

fn in_words(error: &Error) -> Words {
    const STOPPED: &str = "reading stopped here";
    const GROUPS: &str = "write the values out; a group of hosts has a `count`";
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            words(format!("unknown key `{field}`"), "no such key here", suggestion(field, expected.iter().copied()))
        }
        Error::SerdeMissingField { field, .. } => words(
            format!("the key `{field}` is missing"),
            "in the part that begins here",
            format!("add `{field}: ...`"),
        ),
        Error::DuplicateMappingKey { key, .. } => {
            let message =
                key.as_ref().map_or("a key appears twice".to_owned(), |key| format!("the key `{key}` appears twice"));
            words(message, "the second one", "remove one of them; a list has one `- ` line for each item")
        }
        Error::SerdeInvalidType { unexpected, expected, .. } => words(
            format!("wrong type: found {unexpected}, expected {}", plain(expected)),
            format!("expected {}", plain(expected)),
            type_help(expected),
        ),
        Error::SerdeInvalidValue { unexpected, expected, .. } => words(
            format!("wrong value: found {unexpected}, expected {}", plain(expected)),
            format!("expected {}", plain(expected)),
            "",
        ),
        Error::InvalidScalar { ty, .. } => {
            words(format!("wrong type: expected {}", type_name(ty)), format!("expected {}", type_name(ty)), "")
        }
        Error::InvalidBooleanStrict { .. } => {
            words("wrong type: expected true or false", "neither `true` nor `false`", "write `true` or `false`")
        }
        Error::Unexpected { expected, .. } => words(
            format!("wrong type: expected {}", type_name(expected)),
            format!("expected {}", type_name(expected)),
            type_help(expected),
        ),
        Error::NullIntoString { .. } => words("a value is missing", "nothing here", "write a value, or remove the key"),
        Error::MultipleDocuments { .. } => words(
            "the file contains more than one document",
            "the second begins here",
            "one file is one scenario: remove everything after the line `---`",
        ),
        Error::Budget { breach, .. } => {
            let (message, help) = too_much(breach);
            words(message, STOPPED, help)
        }
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            words("the file's aliases expand to too much", STOPPED, GROUPS)
        }
        Error::UnknownAnchor { .. } => words(
            "this alias has no anchor",
            "no `&` with that name before it",
            "put text that begins with `*` in quotes",
        ),
        Error::Eof { .. } => words("the file ends too early", "", ""),
        other => not_yaml(other),
    }
}

/// The file is more than a scenario can be.
fn too_much(breach: &BudgetBreach) -> (&'static str, &'static str) {
    match breach {
        BudgetBreach::Depth { .. } => (
            "the file is nested too deeply (more than 32 levels)",
            "no part of a scenario is nested deeper than 8 levels",
        ),
        BudgetBreach::Aliases { .. }
        | BudgetBreach::Anchors { .. }
        | BudgetBreach::AliasAnchorRatio { .. }
        | BudgetBreach::MergeKeys { .. } => {
            ("the file has too many anchors and aliases", "write the values out; a group of hosts has a `count`")
        }
        _ => ("the file is too big", "no scenario has that many parts; a group of hosts has a `count`"),
    }
}

/// The library's own words for what it says about the form of a file.
fn not_yaml(error: &Error) -> Words {
    let said = error.render_with_options(serde_saphyr::render_options! { snippets: serde_saphyr::SnippetMode::Off });
    if said.contains("nest") && said.contains("limit") || said.contains("recursion") {
        let help = "no part of a scenario is nested deeper than 8 levels";
        return words("the file is nested too deeply", "reading stopped here", help);
    }
    words(
        format!("this is not YAML: {}", without_place(&said)),
        "here",
        "look at this line and the one above: indentation (spaces, not tabs), `key: value` with a space after the colon, \
         and quotes around text that begins with a special character",
    )
}

/// The place is shown by the excerpt; the library says it in its text as well.
fn without_place(said: &str) -> String {
    let said = said.lines().next().unwrap_or_default();
    let cut = said.find(" at line ").or_else(|| said.find(" at byte ")).unwrap_or(said.len());
    said[..cut].trim_end_matches(['.', ',', ':']).trim_start_matches("error: ").to_owned()
}

/// Types as people call them.
fn type_name(ty: &str) -> String {
    match ty {
        "i64" | "i32" | "i128" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number".to_owned(),
        "f64" | "f32" => "a number".to_owned(),
        "bool" | "boolean" => "true or false".to_owned(),
        "String" | "str" | "string" | "string scalar" => "text".to_owned(),
        "sequence start" | "sequence" => "a list".to_owned(),
        "mapping start" | "mapping" | "map" => "a mapping (`key: value` lines)".to_owned(),
        other => other.to_owned(),
    }
}

/// The names of our own Rust types are nothing to show.
fn plain(expected: &str) -> String {
    if let Some(name) = expected.strip_prefix("struct ") {
        return format!("a mapping for a {}", name.trim_end_matches("File").to_lowercase());
    }
    if expected.contains("sequence") {
        return "a list".to_owned();
    }
    type_name(expected)
}

fn type_help(expected: &str) -> String {
    if expected.contains("sequence") {
        "write a list: one `- ` line for each item, or `[a, b]`".to_owned()
    } else if expected.contains("map") || expected.contains("struct") {
        "write `key: value` lines, indented under it".to_owned()
    } else {
        format!("write {}", type_name(expected))
    }
}
