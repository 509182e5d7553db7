//! Tests that were skipped: collected after the tests, printed, and in CI allowed by `ci/skips.txt` or a failure.
//!
//! Tests write a record with `vlab_skip::skip!` into the folder that [`FOLDER`] names.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable of `vlab-skip`, which this program does not depend on.
const FOLDER: &str = "VLAB_SKIPS";
/// The tests that may be skipped in CI.
const ALLOWED: &str = "ci/skips.txt";

/// A skipped test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Skip {
    /// Binary and test, as nextest prints them.
    test: String,
    reason: String,
}

/// A test, or all whose names begin alike, that may be skipped in CI.
#[derive(Debug, PartialEq, Eq)]
struct Allowed {
    test: String,
    /// What the test needs that CI may lack.
    why: String,
}

impl Allowed {
    fn is_about(&self, test: &str) -> bool {
        match self.test.strip_suffix('*') {
            Some(beginning) => test.starts_with(beginning),
            None => self.test == test,
        }
    }
}

/// The folder in which the tests of one call leave their records.
pub(crate) struct Skips {
    folder: PathBuf,
}

impl Skips {
    /// An empty folder below `target`.
    pub(crate) fn collect(target: &Path) -> Result<Self, String> {
        let folder = target.join("vlab/skips");
        let made = fs::remove_dir_all(&folder).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        made.and_then(|()| fs::create_dir_all(&folder)).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder })
    }

    /// Tests that `command` runs leave their records in the folder.
    pub(crate) fn of(&self, command: &mut Command) {
        command.env(FOLDER, &self.folder);
    }

    /// What was skipped, for people; an error in CI when the list in the workspace at `root` does not allow all of it.
    pub(crate) fn judge(&self, root: &Path, ci: bool) -> Result<String, String> {
        let list = root.join(ALLOWED);
        let text = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
        judge(&read(&self.folder)?, &parse(&text)?, ci)
    }
}

/// The records of a folder. A test that was tried again counts once.
fn read(folder: &Path) -> Result<BTreeSet<Skip>, String> {
    let of = |path: &Path| -> Result<Skip, String> {
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        let (test, reason) = text.split_once('\n').ok_or("it is cut off")?;
        Ok(Skip { test: test.to_owned(), reason: reason.trim_end().replace('\n', " ") })
    };
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    paths.map(|path| of(&path).map_err(|error| format!("the record {}: {error}", path.display()))).collect()
}

/// The list: `binary test because reason` in each line, but for empty ones and comments.
fn parse(text: &str) -> Result<Vec<Allowed>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(i, line)| {
            let (test, why) = line.split_once(" because ").unwrap_or((line, ""));
            let (test, why) = (test.trim(), why.trim());
            let named = test.split_once(' ').is_some_and(|(_, test)| !test.trim_end_matches('*').is_empty());
            if why.is_empty() || !named {
                return Err(format!("{ALLOWED}:{}: a line is `binary test because reason`", i + 1));
            }
            Ok(Allowed { test: test.to_owned(), why: why.to_owned() })
        })
        .collect()
}

/// A line for each skip after one with their number. An error in CI when one is not allowed.
fn judge(skips: &BTreeSet<Skip>, allowed: &[Allowed], ci: bool) -> Result<String, String> {
    let tests: BTreeSet<&str> = skips.iter().map(|skip| skip.test.as_str()).collect();
    let mut lines = vec![match tests.len() {
        0 => "no test was skipped".to_owned(),
        1 => "1 test was skipped:".to_owned(),
        n => format!("{n} tests were skipped:"),
    }];
    let mut forbidden = 0;
    for Skip { test, reason } in skips {
        let note = match allowed.iter().find(|allowed| allowed.is_about(test)) {
            _ if !ci => String::new(),
            Some(Allowed { why, .. }) => format!(" (allowed: {why})"),
            None => {
                forbidden += 1;
                " (NOT ALLOWED)".to_owned()
            }
        };
        lines.push(format!("  {test}: {reason}{note}"));
    }
    if forbidden == 0 {
        return Ok(lines.join("\n"));
    }
    lines.push(format!(
        "In CI a skipped test fails unless {ALLOWED} names it. Install what it needs, or name it there."
    ));
    Err(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const LIST: &str = "# Comment.\n\nvlab-api::transcripts replies* because the transcripts are not in the repository\n\
                        vlab-lab::lab one because it needs a processor with KVM\n";

    fn skips(tests: &[&str]) -> BTreeSet<Skip> {
        let of = |test: &&str| Skip { test: (*test).to_owned(), reason: "there is no QEMU".to_owned() };
        tests.iter().map(of).collect()
    }

    fn judged(tests: &[&str], ci: bool) -> Result<String, String> {
        judge(&skips(tests), &parse(LIST).unwrap(), ci)
    }

    #[test]
    fn a_skip_in_ci_must_be_allowed() {
        let text = judged(&["vlab-lab::lab one", "vlab-api::transcripts replies_of_steps"], true).unwrap();
        assert_eq!(
            text,
            "2 tests were skipped:\n  \
             vlab-api::transcripts replies_of_steps: there is no QEMU (allowed: the transcripts are not in the repository)\n  \
             vlab-lab::lab one: there is no QEMU (allowed: it needs a processor with KVM)"
        );
        let text = judged(&["vlab-lab::lab one", "vlab-lab::lab one_more"], true).unwrap_err();
        assert!(text.contains("vlab-lab::lab one_more: there is no QEMU (NOT ALLOWED)"), "{text}");
        assert!(text.ends_with("or name it there."), "{text}");
        assert!(judged(&["vlab-api::swagger x"], true).is_err());
    }

    #[test]
    fn elsewhere_skips_are_only_told() {
        assert_eq!(judged(&["x y"], false).unwrap(), "1 test was skipped:\n  x y: there is no QEMU");
        assert_eq!(judged(&[], true).unwrap(), "no test was skipped");
    }

    #[test]
    fn a_line_without_a_reason_is_refused() {
        for list in ["a b", "a b because ", "a because c", "a * because c", "# x\na b: c"] {
            let error = parse(list).unwrap_err();
            assert!(error.starts_with("ci/skips.txt:"), "{list}: {error}");
        }
        assert!(parse("# x\na b: c").unwrap_err().starts_with("ci/skips.txt:2: "));
    }

    #[test]
    fn records_are_read_once_each_and_old_ones_are_gone() {
        let target = std::env::temp_dir().join(format!("vlab-skips-{}", std::process::id()));
        let write = |name: &str, text: &str| fs::write(target.join("vlab/skips").join(name), text).unwrap();
        Skips::collect(&target).unwrap();
        write("1-0", "of an earlier call\nx\n");
        let collected = Skips::collect(&target).unwrap();
        write("1-0", "a::b c\nthere is no QEMU\n");
        write("2-0", "a::b c\nthere is no QEMU\n");
        write("2-1", "a::b d\ntwo\nlines\n");
        let told = collected.judge(&crate::root(), false).unwrap();
        assert_eq!(told, "2 tests were skipped:\n  a::b c: there is no QEMU\n  a::b d: two lines");
        assert!(collected.judge(&crate::root(), true).is_err());
        write("3-0", "cut off");
        assert!(collected.judge(&crate::root(), false).unwrap_err().ends_with("3-0: it is cut off"));
        fs::remove_dir_all(&target).unwrap();
    }

    /// The sources of each package of the workspace, by its name.
    fn sources() -> BTreeMap<String, String> {
        fn below(folder: &Path, package: Option<&str>, all: &mut BTreeMap<String, String>) {
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
            let named = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
            let package = named.or(package);
            for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
                let is_source = path.extension().is_some_and(|extension| extension == "rs");
                if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
                    below(&path, package, all);
                } else if let Some(package) = package.filter(|_| is_source) {
                    let text = all.entry(package.to_owned()).or_default();
                    text.push_str(&fs::read_to_string(&path).unwrap_or_default());
                }
            }
        }
        let mut all = BTreeMap::new();
        below(&crate::root(), None, &mut all);
        all
    }

    /// A test that is gone, or that is never skipped any more, leaves no permission behind.
    #[test]
    fn the_list_names_tests_that_are_skipped_at_times() {
        let sources = sources();
        for Allowed { test, .. } in parse(&fs::read_to_string(crate::root().join(ALLOWED)).unwrap()).unwrap() {
            let package = test.split([' ', ':']).next().unwrap_or_default();
            let text = sources.get(package).unwrap_or_else(|| panic!("{ALLOWED}: there is no package {package}"));
            let name = test.trim_end_matches(['*', ':']).rsplit([' ', ':']).next().unwrap_or_default();
            // A case of a test has its number in its name.
            let case = name.strip_prefix("case_").and_then(|rest| rest.split_once('_'));
            let wanted = case.map_or_else(|| format!("fn {name}"), |(_, case)| format!("#[case::{case}("));
            assert!(text.contains(&wanted), "{ALLOWED}: {package} has no test {name}");
            // `vlab_facts` skips for the tests that ask it for the sources of its tables.
            let skips = ["skip!(", "vlab_facts::"].iter().any(|word| text.contains(word));
            assert!(skips, "{ALLOWED}: no test of {package} is ever skipped");
        }
    }
}
