//! As much of Markdown as the pages use: headings, links, fenced blocks, tables, and the comments before blocks.

use std::path::{Path, PathBuf};

/// A page and what is checked in it.
pub(crate) struct Page {
    /// Its path below the root of the repository.
    pub(crate) path: PathBuf,
    /// Targets of its links, with their lines.
    pub(crate) links: Vec<(usize, String)>,
    /// Anchors of its headings, as GitHub names them.
    pub(crate) anchors: Vec<String>,
    /// Code within lines, with its line.
    pub(crate) code: Vec<(usize, String)>,
    /// Fenced blocks.
    pub(crate) blocks: Vec<Block>,
}

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Line of its fence.
    pub(crate) line: usize,
    pub(crate) language: String,
    pub(crate) lines: Vec<String>,
    pub(crate) notes: Vec<Note>,
}

/// What a comment says about the block that follows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Note {
    NotRun(String),
    RunIn(String),
    NotChecked(String),
    Exit(i32),
    Before(String),
    File(String),
    In(String),
}

impl Note {
    /// Reads `<!-- WORD: TEXT -->`.
    fn read(line: &str) -> Result<Self, String> {
        let inner = line.strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
        let Some((word, text)) = inner.and_then(|inner| inner.split_once(':')) else {
            return Err(format!("not a note about a block: {line}"));
        };
        let text = text.trim().to_owned();
        if text.is_empty() {
            return Err(format!("this note says nothing: {line}"));
        }
        Ok(match word.trim() {
            "not run" => Self::NotRun(text),
            "run in" => Self::RunIn(text),
            "not checked" => Self::NotChecked(text),
            "exit" => Self::Exit(text.parse().map_err(|_| format!("not an exit code: {line}"))?),
            "before" => Self::Before(text),
            "file" => Self::File(text),
            "in" => Self::In(text),
            _ => return Err(format!("an unknown note: {line}")),
        })
    }
}

impl Page {
    /// Reads a page. An unfinished block and a wrong note are errors, with their lines.
    pub(crate) fn read(path: &Path, text: &str) -> Result<Self, String> {
        let mut page = Self {
            path: path.to_owned(),
            links: Vec::new(),
            anchors: Vec::new(),
            code: Vec::new(),
            blocks: Vec::new(),
        };
        let mut comments: Vec<(usize, &str)> = Vec::new();
        let mut lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
        while let Some((number, line)) = lines.next() {
            let trimmed = line.trim();
            if let Some(language) = trimmed.strip_prefix("```") {
                let indent = line.len() - line.trim_start().len();
                let mut inside = Vec::new();
                loop {
                    let Some((_, line)) = lines.next() else {
                        return Err(format!("{}:{number}: this block has no end", path.display()));
                    };
                    if line.trim() == "```" {
                        break;
                    }
                    inside.push(line.get(indent..).unwrap_or_default().to_owned());
                }
                let notes = comments.drain(..).map(|(number, comment)| {
                    Note::read(comment).map_err(|problem| format!("{}:{number}: {problem}", path.display()))
                });
                let notes = notes.collect::<Result<_, _>>()?;
                page.blocks.push(Block { line: number, language: language.trim().to_owned(), lines: inside, notes });
                continue;
            }
            if trimmed.starts_with("<!--") && trimmed.ends_with("-->") {
                comments.push((number, trimmed));
                continue;
            }
            if !trimmed.is_empty() {
                comments.clear();
            }
            if let Some(title) = heading(line) {
                page.anchors.push(anchor(title, &page.anchors));
            }
            let (plain, code) = without_code(line);
            page.code.extend(code.into_iter().map(|code| (number, code)));
            page.links.extend(links(&plain).into_iter().map(|link| (number, link)));
        }
        Ok(page)
    }
}

/// The text of a heading.
fn heading(line: &str) -> Option<&str> {
    let title = line.trim_start_matches('#');
    let depth = line.len() - title.len();
    (1..=6).contains(&depth).then(|| title.strip_prefix(' ')).flatten()
}

/// The anchor that GitHub gives a heading.
fn anchor(title: &str, earlier: &[String]) -> String {
    // Of a link only its text counts.
    let mut text = String::new();
    let mut rest = title;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    let slug: String = text
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect();
    let numbered = (1..).map(|n| format!("{slug}-{n}"));
    std::iter::once(slug.clone()).chain(numbered).find(|name| !earlier.contains(name)).unwrap()
}

/// A line with its code blanked out, and the code.
fn without_code(line: &str) -> (String, Vec<String>) {
    let (mut plain, mut code) = (String::new(), Vec::new());
    for (place, part) in line.split('`').enumerate() {
        if place % 2 == 0 {
            plain.push_str(part);
        } else {
            code.push(part.to_owned());
        }
    }
    (plain, code)
}

/// The targets of the links in a line.
fn links(line: &str) -> Vec<String> {
    let after = line.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The cells of the rows of the first table after a heading, without its head.
pub(crate) fn table_after(text: &str, title: &str) -> Vec<Vec<String>> {
    let after = text.lines().skip_while(|line| heading(line) != Some(title)).skip(1);
    let section = after.take_while(|line| heading(line).is_none());
    let rows = section.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    rows.skip(2).map(cells).collect()
}

/// The code in a piece of text.
pub(crate) fn code_in(text: &str) -> Vec<String> {
    without_code(text).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page::read(Path::new("x.md"), text).unwrap()
    }

    fn problem(text: &str) -> String {
        Page::read(Path::new("x.md"), text).err().unwrap()
    }

    #[test]
    fn links_headings_and_code_are_found_outside_of_blocks() {
        let page = page(
            "# A `b` [c](d.md), e!\n\nsee [`x`](x.md#y) and `[no](no.md)`\n```text\n# no\n[no](no.md)\n```\n## A b c e\n",
        );
        assert_eq!(page.links, [(1, "d.md".to_owned()), (3, "x.md#y".to_owned())]);
        assert_eq!(page.anchors, ["a-b-c-e", "a-b-c-e-1"]);
        assert_eq!(page.code[1..], [(3, "x".to_owned()), (3, "[no](no.md)".to_owned())]);
    }

    #[test]
    fn a_block_has_the_notes_right_before_it() {
        let page = page(
            "<!-- exit: 3 -->\ntext\n<!-- not run: no engine -->\n\n  ```console\n  $ a\n    b\n  ```\n<!-- a comment -->\n",
        );
        let expected = Block {
            line: 5,
            language: "console".to_owned(),
            lines: vec!["$ a".to_owned(), "  b".to_owned()],
            notes: vec![Note::NotRun("no engine".to_owned())],
        };
        assert_eq!(page.blocks, [expected]);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_with_its_line() {
        assert_eq!(problem("a\n```console\n$ a\n"), "x.md:2: this block has no end");
        assert!(problem("<!-- not runn: a -->\n```\n```\n").starts_with("x.md:1: an unknown note"));
        assert!(problem("<!-- not run: -->\n```\n```\n").starts_with("x.md:1: this note says nothing"));
        assert!(problem("<!-- exit: two -->\n```\n```\n").starts_with("x.md:1: not an exit code"));
        assert!(problem("<!-- hello -->\n```\n```\n").starts_with("x.md:1: not a note"));
    }

    #[test]
    fn a_table_is_that_of_its_section() {
        let text =
            "# A\n\n| no |\n| --- |\n| no |\n\n# B\ntext\n\n| a | b |\n| --- | --- |\n| `c` | d |\n| e | |\n\n| no |\n";
        assert_eq!(table_after(text, "B"), [["`c`", "d"], ["e", ""]]);
        assert!(table_after(text, "C").is_empty());
        assert_eq!(code_in("`a`, `b/c.rs` d"), ["a", "b/c.rs"]);
    }
}
