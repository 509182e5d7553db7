//! A folder of findings: scenarios, a record beside each, and what people say of them; and the page that is made of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use super::record::{RECORD, Record, VIRTUAL};

/// Name of the file with what people say of the findings of a folder.
pub const CLASSES: &str = "classes.yaml";

/// What a finding is, when somebody has looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The service is wrong.
    Defect,
    /// The lab is wrong: its hosts, its simulated service, or what it takes for wrong.
    Ours,
    /// So it is meant to be.
    ByDesign,
}

impl Class {
    /// The word in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Class::Defect => "defect",
            Class::Ours => "ours",
            Class::ByDesign => "by-design",
        }
    }
}

/// What somebody says of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classed {
    /// Its signature, or the name of its file.
    pub finding: String,
    /// What it is.
    pub class: Class,
    /// Since when it is known: a date or a version.
    #[serde(default)]
    pub since: String,
    /// Why it is that.
    pub note: String,
}

/// A finding, and what somebody says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of its files, without the ending.
    pub name: String,
    /// What is known of it.
    pub record: Record,
    /// What somebody says.
    pub classed: Option<Classed>,
}

/// A folder that cannot be read as one of findings: a file of it and what is wrong there, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct BadFolder {
    /// Name of the file, with the line where one is known.
    pub file: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

/// Reads a folder, of which the texts are given by their file names. The findings come in the order in which people want to read:
/// defects, what nobody has looked at, mistakes of the lab, what is meant to be.
///
/// # Errors
/// [`BadFolder`].
pub fn read(files: &BTreeMap<String, String>) -> Result<Vec<Finding>, BadFolder> {
    let bad = |file: &str, problem: String| BadFolder { file: file.to_owned(), problem };
    let mut findings = Vec::new();
    for (file, text) in files {
        let Some(name) = file.strip_suffix(&format!(".{RECORD}")) else { continue };
        let record = Record::read(text).map_err(|error| bad(file, error.to_string()))?;
        if !files.contains_key(&format!("{name}.yaml")) {
            return Err(bad(file, format!("its scenario {name}.yaml is not beside it: add it, or remove the record")));
        }
        findings.push(Finding { name: name.to_owned(), record, classed: None });
    }
    for file in files.keys().filter(|file| file.as_str() != CLASSES) {
        if let Some(name) = file.strip_suffix(".yaml")
            && !files.contains_key(&format!("{name}.{RECORD}"))
        {
            let why = format!("its record {name}.{RECORD} is not beside it: explore again, or remove the scenario");
            return Err(bad(file, why));
        }
    }
    if let Some(text) = files.get(CLASSES) {
        class(&mut findings, text)?;
    }
    let order = |finding: &Finding| match finding.classed.as_ref().map(|classed| classed.class) {
        Some(Class::Defect) => 0,
        None => 1,
        Some(Class::Ours) => 2,
        Some(Class::ByDesign) => 3,
    };
    findings.sort_by(|a, b| (order(a), &a.name).cmp(&(order(b), &b.name)));
    Ok(findings)
}

/// What need not be found again, by its signature, with the name of the finding and its class: somebody has looked at it and says that the
/// service is wrong there or means it so. What the lab does wrong is no excuse for the lab.
pub fn known(findings: &[Finding]) -> BTreeMap<String, String> {
    let of = |finding: &Finding| {
        let class = finding.classed.as_ref().map(|classed| classed.class).filter(|class| *class != Class::Ours)?;
        Some((finding.record.signature.clone(), format!("{}, {}", finding.name, class.as_str())))
    };
    findings.iter().filter_map(of).collect()
}

/// Takes in what people say.
fn class(findings: &mut [Finding], text: &str) -> Result<(), BadFolder> {
    let at = |line: Option<usize>, problem: String| {
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        BadFolder { file: format!("{CLASSES}{line}"), problem }
    };
    let form = "write a list of `{finding: NAME, class: defect|by-design|ours, since: DATE, note: WHY}`";
    let all: Vec<Classed> = serde_yaml::from_str::<Option<_>>(text)
        .map_err(|error| at(error.location().map(|l| l.line()), format!("{error}; {form}")))?
        .unwrap_or_default();
    // Where each begins; when a list is written in another way, its lines are not known.
    let begins: Vec<usize> =
        text.lines().enumerate().filter(|(_, line)| line.starts_with("- ")).map(|(line, _)| line + 1).collect();
    for (nth, classed) in all.iter().enumerate() {
        let line = begins.get(nth).filter(|_| begins.len() == all.len()).copied();
        if classed.note.trim().is_empty() {
            return Err(at(line, format!("{:?}: its note is empty: say why it is that", classed.finding)));
        }
        let is = |f: &&mut Finding| f.name == classed.finding || f.record.signature == classed.finding;
        let Some(finding) = findings.iter_mut().find(is) else {
            let why = format!(
                "{:?} is neither the name nor the signature of a finding in this folder: correct it, or remove it",
                classed.finding
            );
            return Err(at(line, why));
        };
        if finding.classed.is_some() {
            return Err(at(line, format!("{:?} is classed twice: remove one of them", classed.finding)));
        }
        finding.classed = Some(classed.clone());
    }
    Ok(())
}

/// A word for what a finding is.
fn class_of(finding: &Finding) -> &'static str {
    finding.classed.as_ref().map_or("not classed", |classed| classed.class.as_str())
}

/// How many findings are of which class, and of what.
fn counts(findings: &[Finding]) -> String {
    let of = |word: &str| findings.iter().filter(|finding| class_of(finding) == word).count();
    let mut text = format!("{} findings", findings.len());
    let words = ["defect", "not classed", "ours", "by-design"].map(|word| (word, of(word)));
    for (nth, (word, count)) in words.iter().filter(|(_, count)| *count > 0).enumerate() {
        let _ = write!(text, "{}{count} {word}", if nth == 0 { ": " } else { ", " });
    }
    text
}

/// The table for a terminal.
pub fn table(findings: &[Finding]) -> String {
    let head = ["finding", "class", "service", "shows", "simulated", "lines", "does not hold"].map(str::to_owned);
    let mut rows = vec![head];
    for finding in findings {
        let Record { shows, lines, check, .. } = &finding.record;
        let often = if shows.target == VIRTUAL { "always".to_owned() } else { format!("{} of {}", shows.k, shows.n) };
        let same = if shows.same_on_simulated { "shows it" } else { "does not" };
        let check = check.split(": ").nth(1).unwrap_or(check);
        rows.push([
            finding.name.clone(),
            class_of(finding).to_owned(),
            shows.target.clone(),
            often,
            same.to_owned(),
            lines.to_string(),
            check.to_owned(),
        ]);
    }
    let widths: Vec<usize> =
        (0..6).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", row[6]);
    }
    let _ = writeln!(text, "{}", counts(findings));
    let open: Vec<&str> = findings.iter().filter(|f| f.classed.is_none()).map(|f| f.name.as_str()).collect();
    if !open.is_empty() {
        let _ = writeln!(text, "nobody has said in {CLASSES} what these are: {}", open.join(", "));
    }
    text
}

/// A text as a cell or line of Markdown.
fn plain(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut plain = String::new();
    for c in one_line.chars() {
        match c {
            '<' => plain.push_str("&lt;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '#' | '\\' => {
                plain.push('\\');
                plain.push(c);
            }
            c => plain.push(c),
        }
    }
    plain
}

/// The page. `folder` is where the scenarios are, seen from the page, and `given` the same as on the command line.
pub fn page(findings: &[Finding], folder: &str, given: &str) -> String {
    let mut services: Vec<String> = Vec::new();
    for Record { shows, .. } in findings.iter().map(|finding| &finding.record) {
        let service = match shows.target.as_str() {
            VIRTUAL => "the simulated service in virtual time".to_owned(),
            target => format!("`{target}` ({})", plain(&shows.service_version)),
        };
        if !services.contains(&service) {
            services.push(service);
        }
    }
    let mut text = format!(
        "# Findings\n\nWhat `vlab explore` has found and people have looked at, made by `vlab findings` from the folder \
         [{folder}]({folder}): a scenario for each,\na record beside it, and `{CLASSES}`. {}, in {}.\n",
        counts(findings),
        if services.is_empty() { "no service".to_owned() } else { services.join(", ") }
    );
    if findings.iter().all(|f| [VIRTUAL, "simulated"].contains(&f.record.shows.target.as_str())) {
        text.push_str("None of them is of the real service: nobody has searched there for this page.\n");
    }
    text.push_str("\n| finding | class | shows | the simulated service | lines, faults, actions |\n| --- | --- | --- | --- | --- |\n");
    for finding in findings {
        let Finding { name, record, .. } = finding;
        let _ = writeln!(
            text,
            "| [{name}](#{name}) | {} | {} | {} | {}, {}, {} |",
            class_of(finding),
            record.shows.words(),
            if record.shows.same_on_simulated { "shows it, too" } else { "does not show it" },
            record.lines,
            record.faults,
            record.actions
        );
    }
    for Finding { name, record, classed } in findings {
        let Record { shows, check, message, .. } = record;
        let file = format!("{folder}/{name}.yaml");
        let _ = writeln!(text, "\n## {name}\n");
        match classed {
            Some(Classed { class, since, note, .. }) => {
                let since = if since.is_empty() { String::new() } else { format!(", known since {}", plain(since)) };
                let _ = writeln!(text, "**{}**{since}. {}\n", class.as_str(), note.trim().replace('\n', " "));
            }
            None => {
                let _ = writeln!(text, "**Not classed**: nobody has looked at it yet.\n");
            }
        }
        let _ = writeln!(text, "* Does not hold: {}", plain(check));
        let _ = writeln!(text, "* Said: {}", plain(&message.chars().take(600).collect::<String>()));
        let service = if shows.target == VIRTUAL { "simulated".to_owned() } else { shows.target.clone() };
        let _ = writeln!(
            text,
            "* Service: `{service}`, {}, seed {}; found {}",
            plain(&shows.service_version),
            shows.seed,
            record.found_at.to_string().split('T').next().unwrap_or_default()
        );
        let _ = writeln!(
            text,
            "* Scenario: [{name}.yaml]({file}); again with `{}`",
            record.command(&format!("{given}/{name}.yaml"))
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explore::record::tests::some;

    fn folder(classes: Option<&str>) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for (name, target, k) in [("a-1", "process:x", 2), ("b-2", VIRTUAL, 1)] {
            let signature = format!("{}: it is so", &name[..1]);
            files.insert(format!("{name}.json"), some(&signature, target, k).write());
            files.insert(format!("{name}.yaml"), "version: 1\n".to_owned());
            files.insert(format!("{name}.tape"), String::new());
        }
        files.extend(classes.map(|text| (CLASSES.to_owned(), text.to_owned())));
        files
    }

    #[test]
    fn what_people_say_is_taken_by_name_and_by_signature() {
        let classes = "- finding: 'b: it is so'\n  class: by-design\n  note: so it is\n- {finding: a-1, class: defect, since: '2.3', note: a lock}\n";
        let findings = read(&folder(Some(classes))).unwrap();
        let seen: Vec<_> = findings.iter().map(|f| (f.name.as_str(), class_of(f))).collect();
        assert_eq!(seen, [("a-1", "defect"), ("b-2", "by-design")]);
        assert_eq!(known(&findings)["a: it is so"], "a-1, defect");
        let table = table(&findings);
        assert!(table.contains("2 of 3") && table.contains("2 findings: 1 defect, 1 by-design"), "{table}");
        assert!(!table.contains("nobody has said"), "{table}");
        let page = page(&findings, "findings", "docs/findings");
        assert!(page.contains("**defect**, known since 2.3. a lock"), "{page}");
        assert!(page.contains("did \\| what it must not") && !page.contains("None of them"), "{page}");
    }

    #[test]
    fn what_nobody_has_looked_at_is_told() {
        let findings = read(&folder(None)).unwrap();
        assert!(known(&findings).is_empty());
        assert!(table(&findings).contains("what these are: a-1, b-2"), "{}", table(&findings));
        assert!(page(&findings, "f", "f").contains("**Not classed**"));
        assert!(page(&findings[1..], "f", "f").contains("None of them is of the real service"));
    }

    #[test]
    fn what_the_lab_does_wrong_is_not_known_as_well() {
        let findings = read(&folder(Some("- {finding: a-1, class: ours, note: x}\n"))).unwrap();
        assert!(known(&findings).is_empty());
    }

    #[rstest::rstest]
    #[case::unknown(
        "- {finding: a-1, class: ours, note: x}\n- finding: c-3\n  class: ours\n  note: x\n",
        "classes.yaml:2",
        "neither the name"
    )]
    #[case::twice(
        "- {finding: a-1, class: ours, note: x}\n# why\n- {finding: 'a: it is so', class: ours, note: x}\n",
        "classes.yaml:3",
        "classed twice"
    )]
    #[case::word("- finding: a-1\n  class: bug\n  note: x\n", "classes.yaml:", "unknown variant")]
    #[case::reason("- {finding: a-1, class: ours, note: ' '}\n", "classes.yaml:1", "its note is empty")]
    #[case::form("finding: a-1\n", "classes.yaml:1", "write a list of")]
    fn bad_classes_are_refused_with_their_line(#[case] classes: &str, #[case] file: &str, #[case] why: &str) {
        let error = read(&folder(Some(classes))).unwrap_err();
        assert!(error.file.starts_with(file) && error.problem.contains(why), "{error}");
    }

    #[rstest::rstest]
    #[case("a-1.yaml", "a-1.json: its scenario a-1.yaml is not beside it")]
    #[case("a-1.json", "a-1.yaml: its record a-1.json is not beside it")]
    fn a_file_without_its_other_half_is_refused(#[case] file: &str, #[case] why: &str) {
        let mut files = folder(None);
        files.remove(file);
        let error = read(&files).unwrap_err().to_string();
        assert!(error.starts_with(why), "{error}");
    }
}
