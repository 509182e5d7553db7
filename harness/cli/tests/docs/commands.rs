//! Commands that are shown run, end as they should and print what is shown; of those that cannot be run here, verbs and options
//! exist.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rstest::rstest;

use crate::markdown::{Block, Note, Page};
use crate::place::{Place, pages, root, text_of, xtask_verbs};

/// A command of a block, and the lines that are shown after it.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    command: String,
    output: Vec<String>,
}

/// The commands of a block.
fn commands(block: &Block) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for line in &block.lines {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push(Shown { command: command.to_owned(), output: Vec::new() }),
            (None, Some(last)) => last.output.push(line.clone()),
            (None, None) => panic!("line {}: a block of commands begins with `$ `", block.line),
        }
    }
    all
}

/// A line without what differs from run to run: durations.
fn steady(line: &str) -> String {
    let is_number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
    };
    let unit = |word: &str| {
        let end = word.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(word.len());
        ["ms", "s", "m", "h", "d"].contains(&&word[..end]).then(|| word[end..].to_owned())
    };
    let words: Vec<&str> = line.split(' ').collect();
    let (mut steady, mut place): (Vec<String>, usize) = (Vec::new(), 0);
    while place < words.len() {
        match (is_number(words[place]), words.get(place + 1).and_then(|next| unit(next))) {
            (true, Some(rest)) => {
                // Hours and minutes are one duration.
                if steady.last().is_some_and(|last| last == "<time>") {
                    steady.pop();
                }
                steady.push(format!("<time>{rest}"));
                place += 2;
            }
            _ => {
                steady.push(words[place].to_owned());
                place += 1;
            }
        }
    }
    steady.join(" ").trim_end().to_owned()
}

/// Is a line the one that is shown? `…` in it stands for anything.
fn is_line(shown: &str, line: &str) -> bool {
    let (shown, line) = (steady(shown), steady(line));
    let parts: Vec<&str> = shown.split('…').collect();
    let [first, middle @ .., last] = &*parts else { return shown == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Are these lines what is shown? A line `…` stands for any number of lines.
fn is_output(shown: &[String], lines: &[&str]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "…" => (0..=lines.len()).any(|skipped| is_output(rest, &lines[skipped..])),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, lines)| is_line(first, line) && is_output(rest, lines))
        }
    }
}

fn not_run(block: &Block) -> bool {
    block.notes.iter().any(|note| matches!(note, Note::NotRun(_) | Note::RunIn(_)))
}

/// A command without its comment.
fn bare(shown: &Shown) -> &str {
    shown.command.split(" #").next().unwrap_or_default().trim_end()
}

/// Commands that are said to be run in another page and are not.
fn run_nowhere(pages: &[Page]) -> Vec<String> {
    let mut wrong = Vec::new();
    for page in pages {
        for block in &page.blocks {
            let elsewhere = block.notes.iter().find_map(|note| match note {
                Note::RunIn(page) => Some(page),
                _ => None,
            });
            let Some(elsewhere) = elsewhere else { continue };
            let other = pages.iter().find(|page| page.path == Path::new(elsewhere));
            let blocks = other.map_or(&[][..], |page| &page.blocks);
            let run = blocks.iter().filter(|block| block.language == "console" && !not_run(block));
            let run: Vec<Shown> = run.flat_map(commands).collect();
            let is_run = |shown: &Shown| run.iter().any(|o| bare(o) == bare(shown) && o.output == shown.output);
            let missing = commands(block).into_iter().filter(|shown| !is_run(shown));
            let at = |shown: Shown| format!("{}:{}: $ {}", page.path.display(), block.line, shown.command);
            wrong.extend(missing.map(at));
        }
    }
    wrong
}

#[test]
fn what_is_run_in_another_page_is_in_it() {
    let wrong = run_nowhere(&pages());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_that_no_page_runs_is_noticed() {
    let page = |path: &str, text: &str| Page::read(Path::new(path), text).unwrap();
    let a = page("a.md", "```console\n$ x # why\n1\n```\n<!-- not run: no -->\n```console\n$ y\n```\n");
    let b =
        "<!-- run in: a.md -->\n```console\n$ x\n1\n$ x\n2\n$ y\n```\n<!-- run in: c.md -->\n```console\n$ x\n1\n```\n";
    assert_eq!(run_nowhere(&[a, page("b.md", b)]), ["b.md:2: $ x", "b.md:2: $ y", "b.md:10: $ x"]);
}

/// Runs the blocks of a page in their order, in one folder.
fn run(page: &Page) -> Vec<String> {
    let place = Place::new();
    let mut wrong = Vec::new();
    for block in &page.blocks {
        for note in &block.notes {
            match note {
                Note::File(name) => place.write(name, &(block.lines.join("\n") + "\n")),
                Note::Before(command) => {
                    let (code, said) = place.run(command);
                    assert_eq!(code, Some(0), "{}:{}: {command}: {said}", page.path.display(), block.line);
                }
                _ => {}
            }
        }
        if block.language != "console" || not_run(block) {
            continue;
        }
        let expected = block.notes.iter().find_map(|note| match note {
            Note::Exit(code) => Some(*code),
            _ => None,
        });
        for shown in commands(block) {
            let (mut code, mut said) = place.run(&shown.command);
            // A run that says so is no verdict, and no error of the page.
            for _ in 0..2 {
                let unfolded = said.split_whitespace().collect::<Vec<_>>().join(" ");
                if code == Some(3) && unfolded.contains("this computer is too busy for the time profile") {
                    eprintln!("once more: {said}");
                    (code, said) = place.run(&shown.command);
                }
            }
            let lines: Vec<&str> = said.trim_end().lines().collect();
            let right =
                code == Some(expected.unwrap_or(0)) && (shown.output.is_empty() || is_output(&shown.output, &lines));
            if !right {
                let (page, output) = (page.path.display(), shown.output.join("\n"));
                wrong.push(format!(
                    "{page}:{}: $ {}\nshown:\n{output}\nprinted (code {code:?}):\n{said}",
                    block.line, shown.command
                ));
            }
        }
    }
    wrong
}

#[rstest]
fn e2e_commands_run(
    #[files("../../README.md")]
    #[files("../../docs/*.md")]
    #[files("../../images/README.md")]
    #[files("../../ci/README.md")]
    path: PathBuf,
) {
    let path = path.canonicalize().unwrap().strip_prefix(root()).unwrap().to_owned();
    let page = Page::read(&path, &text_of(path.to_str().unwrap())).unwrap();
    let wrong = run(&page);
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The verb and the long options of a command line of ours; none when it is another program's. A placeholder is no verb.
fn parts(line: &str) -> Option<(bool, String, Vec<String>)> {
    let line = line.split(" #").next().unwrap_or_default();
    let mut words = line.split_whitespace().peekable();
    let xtask = match words.next()? {
        "vlab" => false,
        "cargo" if words.next_if_eq(&"xtask").is_some() => words.next_if_eq(&"vlab").is_none(),
        _ => return None,
    };
    let verb = words.next()?;
    // Help is no verb of its own.
    if verb == "help" || !verb.starts_with(|c: char| c.is_ascii_lowercase()) {
        return None;
    }
    // What follows the host of `ssh` is a command of its own.
    let options = words.filter(|word| word.starts_with("--") && word.len() > 2);
    let options = options.map(|word| word.split('=').next().unwrap_or(word).trim_end_matches(',').to_owned());
    Some((xtask, verb.to_owned(), options.collect()))
}

/// Verbs of `cargo xtask` that are not those of `vlab`, with their options.
const OF_XTASK: &[(&str, &[&str])] = &[
    ("test", &["--no-setup"]),
    ("setup", &["--no-setup", "--containers"]),
    ("images", &["--no-load", "--update", "--overlay", "--list"]),
    ("dist", &[]),
    ("sbom", &[]),
    ("fresh-machine", &["--as", "--only", "--kept-crates", "--keep"]),
];

/// The help of a verb and of the verbs under it; empty when there is no such verb.
fn help_of(place: &Place, verb: &str) -> String {
    let (Some(0), mut text) = place.run(&format!("vlab {verb} --help")) else { return String::new() };
    let under = text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let under: Vec<&str> =
        under.filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "help").collect();
    let more: String = under.iter().map(|word| place.run(&format!("vlab {verb} {word} --help")).1).collect();
    text.push_str(&more);
    text
}

/// Also in sentences, and in blocks that cannot be run here.
#[test]
fn verbs_and_options_exist() {
    let (place, of_xtask) = (Place::new(), xtask_verbs());
    assert!(of_xtask.len() > 10, "{of_xtask:?}");
    let mut help: BTreeMap<String, String> = BTreeMap::new();
    let mut wrong = Vec::new();
    for page in pages() {
        let shown = page.blocks.iter().filter(|block| block.language == "console").flat_map(|block| {
            let lines = block.lines.iter().filter_map(|line| line.strip_prefix("$ "));
            lines.map(|line| (block.line, line.to_owned()))
        });
        for (number, line) in shown.chain(page.code.iter().cloned()) {
            let Some((xtask, verb, options)) = parts(&line) else { continue };
            let at = format!("{}:{number}: {line}", page.path.display());
            if xtask && !of_xtask.contains(&verb) {
                wrong.push(format!("{at}: no such verb of cargo xtask"));
            }
            if xtask && let Some((_, known)) = OF_XTASK.iter().find(|(name, _)| *name == verb) {
                wrong.extend(options.iter().filter(|o| !known.contains(&o.as_str())).map(|o| format!("{at}: no {o}")));
                continue;
            }
            let help = help.entry(verb.clone()).or_insert_with(|| help_of(&place, &verb));
            if help.is_empty() {
                wrong.push(format!("{at}: no such verb"));
            }
            let known = |option: &&String| {
                help.split(|c: char| !(c.is_alphanumeric() || c == '-')).any(|word| word == **option)
            };
            wrong.extend(options.iter().filter(|o| !known(o)).map(|o| format!("{at}: no {o}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn durations_differ_and_counts_do_not() {
    assert!(is_line("a passed in 47 m 10 s (b 3/3)", "a passed in 51 m 9.25 s (b 3/3)"));
    assert!(is_line("a passed in 9.07 s (b 3/3)", "a passed in 1 m 10 s (b 3/3)"));
    assert!(is_line("5 of 6 in 14.3 s, 0 failed", "5 of 6 in 840 ms, 0 failed"));
    assert!(!is_line("a passed in 9.07 s (b 3/3)", "a passed in 9.07 s (b 2/3)"));
    assert!(!is_line("a passed in 9.07 s", "a failed in 9.07 s"));
    assert!(is_line("report: …/report.html", "report: /tmp/x/report.html"));
    assert!(!is_line("report: …/report.html", "report: /tmp/x/report.xml"));
    assert!(is_line("a … c … e", "a b c d e") && !is_line("a … c … e", "a b d e"));
    assert!(is_line("no unit 7 seconds", "no unit 7 seconds") && !is_line("7 checks", "8 checks"));
}

#[test]
fn an_ellipsis_stands_for_any_lines_and_nothing_else_does() {
    let shown = lines("a\n…\nb\n…");
    assert!(is_output(&shown, &["a", "b"]) && is_output(&shown, &["a", "x", "y", "b", "z"]));
    assert!(!is_output(&shown, &["x", "a", "b"]) && !is_output(&shown, &["a", "x"]));
    assert!(is_output(&lines("a"), &["a"]) && !is_output(&lines("a"), &["a", "b"]) && !is_output(&lines("a"), &[]));
}

#[test]
fn a_page_with_a_wrong_command_is_noticed() {
    let page = |text: &str| Page::read(Path::new("x.md"), text).unwrap();
    let good = "<!-- file: a.txt -->\n```text\nhello\n```\n<!-- before: echo world >> a.txt -->\n```console\n$ cat a.txt   # both\nhello\nworld\n$ true\n```\n\
                <!-- exit: 2 -->\n```console\n$ cargo xtask validate no-such.yaml\n…\n```\n<!-- not run: it would fail -->\n```console\n$ false\n```\n";
    assert_eq!(run(&page(good)), Vec::<String>::new());
    for bad in [
        "```console\n$ false\n```\n",
        "<!-- exit: 2 -->\n```console\n$ true\n```\n",
        "```console\n$ echo a\nb\n```\n",
        "```console\n$ echo a; echo b\na\n```\n",
        "```console\n$ cargo build\n```\n",
        "```console\n$ cargo xtask test\n```\n",
        "```console\n$ cargo xtask machines\n```\n",
        "```console\n$ cargo xtask simulate no-such-scenario\n```\n",
    ] {
        assert_eq!(run(&page(bad)).len(), 1, "{bad}");
    }
}

#[test]
fn a_command_line_has_a_verb_and_options() {
    let found = |line: &str| parts(line).map(|(xtask, verb, options)| format!("{xtask} {verb} {}", options.join(" ")));
    assert_eq!(
        found("vlab scenario sno --hosts sim --seed=7 # why --not"),
        Some("false scenario --hosts --seed".to_owned())
    );
    assert_eq!(found("cargo xtask images --update"), Some("true images --update".to_owned()));
    assert_eq!(found("cargo xtask vlab test -j 2"), Some("false test ".to_owned()));
    for other in [
        "cargo xtask <verb>",
        "cargo xtask help",
        "cargo build --profile lab",
        "vlab",
        "curl --fail x",
        "vlab <verb> --help",
    ] {
        assert_eq!(found(other), None, "{other}");
    }
}
