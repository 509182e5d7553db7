//! The reference pages of the language, in Markdown: every key, made from the same types as the JSON Schema, and every kind of fault,
//! made from their table.

use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use crate::faults::{FaultHosts, FaultRow, ParamDefault, ParamForm, ParamRow, TargetForm, fault_rows};
use crate::spanned::{Scalar, Version};
use crate::stretch::STRETCHES;
use crate::time::Span;
use crate::words::{ActionKind, FaultPlace, Need};

/// A list of words that is longer than this is not written into a table.
const SHORT: usize = 12;

/// Where a key stands in use, as a link in Markdown: by its section, which is the name of its definition in the JSON Schema or
/// `Scenario`, and itself.
pub type Examples = std::collections::BTreeMap<(String, String), String>;

/// Every key of a scenario's file: its type, its default, its meaning.
pub fn reference_keys(examples: &Examples) -> String {
    let schema = crate::schema();
    let mut page = Page { text: String::new(), lists: vec![], examples };
    page.text.push_str(
        "# Keys of a scenario\n\nEvery key of the scenario language, generated from the definitions that the checker and the JSON \
         Schema\n(`scenarios/schema.json`) are made of. [Scenarios](../scenarios.md) explains the language;\n\
         [Kinds of faults](faults.md) lists what can be injected. The last column has a scenario in which the key stands.\n\nKeys without a default may be left out unless they are \
         marked as required. A duration is written like `90s`, `5m` or `1h30m`;\n`10s wall` is 10 seconds of the wall clock under \
         every time profile.\n",
    );
    page.section("Scenario", &schema);
    for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
        page.section(name, definition);
    }
    page.text.push_str("\n## Actions of the user\n\n| `do` | what happens |\n| --- | --- |\n");
    for word in ActionKind::NAMES {
        let meaning = ActionKind::from_word(word).map_or("", ActionKind::meaning);
        let _ = writeln!(page.text, "| `{word}` | {meaning} |");
    }
    page.text.push_str(
        "\n## Stretches of sequences\n\nNames that stand for several `statuses` of a sequence: what may happen there in any run.\n\n\
         | name | of | stands for | why |\n| --- | --- | --- | --- |\n",
    );
    for stretch in STRETCHES {
        let of = if stretch.of_cluster { "a cluster" } else { "a host" };
        let among: Vec<String> = stretch.among.iter().map(|s| format!("`{s}`")).collect();
        let _ = writeln!(
            page.text,
            "| `{}` | {of} | `{}`, then any of {} as often as they come, at last `{}` | {} |",
            stretch.word,
            stretch.first,
            among.join(", "),
            stretch.last,
            stretch.why
        );
    }
    let lists = std::mem::take(&mut page.lists);
    if !lists.is_empty() {
        page.text.push_str("\n## Lists of words\n");
    }
    for (name, words) in lists {
        let words: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
        let _ = write!(page.text, "\n### {name}\n\n{}\n", words.join(", "));
    }
    page.text
}

struct Page<'a> {
    text: String,
    examples: &'a Examples,
    /// Long lists of words, by the key that takes them.
    lists: Vec<(String, Vec<String>)>,
}

impl Page<'_> {
    fn section(&mut self, name: &str, object: &Value) {
        let Some(properties) = object["properties"].as_object() else { return };
        let _ = write!(self.text, "\n## {name}\n\n");
        if let Some(description) = object["description"].as_str() {
            let _ = write!(self.text, "{description}\n\n");
        }
        self.text.push_str("| key | type | default | meaning | example |\n| --- | --- | --- | --- | --- |\n");
        let required: Vec<&str> =
            object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (key, form) in properties {
            let ty = self.type_of(name, key, form);
            let default = match &form["default"] {
                _ if required.contains(&key.as_str()) => "required".to_owned(),
                Value::Null => String::new(),
                Value::Array(items) if items.is_empty() => String::new(),
                Value::Object(map) if map.is_empty() => String::new(),
                Value::String(text) => format!("`{text}`"),
                other => format!("`{other}`"),
            };
            let meaning =
                form["description"].as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
            let example = self.examples.get(&(name.to_owned(), key.clone())).map_or("", String::as_str);
            let meaning = meaning.replace('|', "\\|");
            let _ = writeln!(self.text, "| `{key}` | {ty} | {default} | {meaning} | {example} |");
        }
    }

    /// The type of a key, in words.
    fn type_of(&mut self, section: &str, key: &str, form: &Value) -> String {
        if let Some(name) = form["$ref"].as_str().and_then(|r| r.rsplit('/').next()) {
            return format!("[{name}](#{})", name.to_lowercase());
        }
        if let Some(options) = form["anyOf"].as_array() {
            let options: Vec<&Value> = options.iter().filter(|o| o["type"] != "null").collect();
            let words: Vec<String> = options.into_iter().map(|o| self.type_of(section, key, o)).collect();
            return words.join(" or ");
        }
        if let Some(words) = form["enum"].as_array() {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            return self.words(section, key, &words);
        }
        if let Some(pattern) = form["pattern"].as_str() {
            return pattern_name(pattern).to_owned();
        }
        let types = match &form["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).filter(|t| *t != "null").collect(),
            Value::String(ty) => vec![ty.as_str()],
            _ => vec![],
        };
        match types.as_slice() {
            ["array"] => format!("list: {}", self.type_of(section, key, &form["items"])),
            ["object"] => "mapping".to_owned(),
            ["integer"] => match (form["minimum"].as_i64(), form["maximum"].as_i64()) {
                (Some(least), Some(most)) if least < most => format!("whole number, {least} to {most}"),
                _ => "whole number".to_owned(),
            },
            ["number"] => "number".to_owned(),
            ["boolean"] => "`true` or `false`".to_owned(),
            ["string"] => "text".to_owned(),
            _ => "any value".to_owned(),
        }
    }

    fn words(&mut self, section: &str, key: &str, words: &[&str]) -> String {
        if words.len() <= SHORT {
            return words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", ");
        }
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let name = match self.lists.iter().find(|(_, known)| *known == words) {
            Some((name, _)) => name.clone(),
            None => {
                let name = format!("{section} {key}");
                self.lists.push((name.clone(), words));
                name
            }
        };
        format!("[one of a list](#{})", name.to_lowercase().replace(' ', "-"))
    }
}

/// What texts of that pattern are.
fn pattern_name(pattern: &str) -> &'static str {
    let is = |schema: schemars::Schema| schema.get("pattern").and_then(Value::as_str) == Some(pattern);
    match () {
        () if is(<Span as Scalar>::schema()) => "duration",
        () if is(<IpAddr as Scalar>::schema()) => "IP address",
        () if is(<IpNet as Scalar>::schema()) => "network, such as `192.168.126.0/24`",
        () if is(<Version as Scalar>::schema()) => "version, such as `4.18`",
        () if is(<Need as Scalar>::schema()) => "capability",
        () if pattern.ends_with("[?*]?$") => "several of them",
        () => "text",
    }
}

/// Every kind of fault: what it hits, how long it lasts, its parameters.
pub fn reference_faults() -> String {
    let mut page = String::from(
        "# Kinds of faults\n\nEvery kind of fault, generated from the table of faults in the code. [Faults](../faults.md) explains how a \
         scenario declares one;\nthe folder `scenarios/faults` has an example of each. A fault whose hosts are `simulated` cannot be injected into virtual machines yet;\none whose hosts are `any` can.\n",
    );
    for place in FaultPlace::NAMES {
        let _ = write!(
            page,
            "\n## {place}\n\n| inject | hits | lasts | with | hosts | what happens |\n| --- | --- | --- | --- | --- | --- |\n"
        );
        for row in fault_rows().filter(|row| row.place.as_str() == *place) {
            let _ = writeln!(page, "{}", fault_line(row));
        }
    }
    page.push_str("\nWhich requests a fault of the `gateway` is about is also said under `with`; everything that is written must hold:\n\n");
    for param in
        fault_rows().find(|row| row.targets.contains(&TargetForm::Gateway)).into_iter().flat_map(|row| row.requests)
    {
        let _ = writeln!(page, "* {}", parameter(param));
    }
    page.push_str("\nWhich requests and changes a fault of `kube` is about, likewise:\n\n");
    for param in fault_rows().find(|row| row.needs_hub()).into_iter().flat_map(|row| row.requests) {
        let _ = writeln!(page, "* {}", parameter(param));
    }
    page
}

fn fault_line(row: &FaultRow) -> String {
    let targets: Vec<&str> = row.targets.iter().map(|t| t.words()).collect();
    let mut with: Vec<String> = row.params.iter().map(parameter).collect();
    with.extend((!row.requests.is_empty()).then(|| "which requests, see below".to_owned()));
    let purpose = match row.needs_real_time() {
        true => format!("{}; needs `real-time`", row.purpose),
        false => row.purpose.to_owned(),
    };
    let hosts = match row.hosts {
        FaultHosts::Simulated => "simulated",
        FaultHosts::Any => "any",
    };
    let (word, lasts, targets, with) = (row.word, row.lasts, targets.join(", "), with.join("; "));
    format!("| `{word}` | {targets} | {lasts} | {with} | {hosts} | {purpose} |")
}

fn parameter(param: &ParamRow) -> String {
    let form = match param.form {
        ParamForm::Span => "duration".to_owned(),
        ParamForm::Number(least, most) => format!("{least} to {most}"),
        ParamForm::Text => "text".to_owned(),
        ParamForm::Words(words) => words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", "),
        ParamForm::Address => "IP address".to_owned(),
        ParamForm::Host => "name of a host".to_owned(),
        ParamForm::Stage => "installation stage that the host reports itself".to_owned(),
        ParamForm::FinalizingStage => "stage of finalizing".to_owned(),
        ParamForm::Operation => "id of an operation of the API".to_owned(),
    };
    let default = match param.default {
        ParamDefault::Needed => ", required".to_owned(),
        ParamDefault::Nothing => String::new(),
        ParamDefault::Is(default) => format!(", default `{default}`"),
    };
    format!("`{}` ({form}{default}): {}", param.name, param.purpose)
}
