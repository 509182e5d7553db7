//! What is wrong with a file, shown so that the reader can mend it: file, line, column, excerpt, what was expected, what to do.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, SourceCode,
    SourceSpan, SpanContents,
};

/// No scenario is longer than this. It is far more than anybody writes and little enough to be read without a thought.
pub const MAX_BYTES: usize = 1024 * 1024;

/// So many problems are shown; a file with more is broken in one way that repeats.
const MAX_SHOWN: usize = 30;

/// A file's name and its bytes, which may be anything.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// As messages should name it.
    pub name: String,
    /// Where it is on the disk, if it is.
    pub path: Option<PathBuf>,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// Texts of files that it names, by the path that it has for them. Of a copy, from whose place they are not to be found;
    /// what is not here is read from where the path leads.
    pub resources: BTreeMap<String, String>,
}

impl SourceFile {
    /// A file that is in memory.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), path: None, bytes: bytes.into(), resources: BTreeMap::new() }
    }

    /// Reads a file. A file that cannot be read, or that is longer than [`MAX_BYTES`], is an error that says so; no more than
    /// that is ever read.
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        let unreadable = |e: &std::io::Error| {
            LoadError::about_file(&name, format!("cannot read it: {e}"), "check the path and the rights of the file")
        };
        if path.is_dir() {
            return Err(LoadError::about_file(
                &name,
                "it is a folder",
                "name a scenario's file, or a scenario of the catalogue",
            ));
        }
        let file = std::fs::File::open(path).map_err(|e| unreadable(&e))?;
        let mut bytes = Vec::new();
        // One byte more than allowed tells "too long" from "just fits".
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|e| unreadable(&e))?;
        if bytes.len() > MAX_BYTES {
            return Err(LoadError::too_long(&name));
        }
        Ok(Self { path: Some(path.to_owned()), ..Self::new(name, bytes) })
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, as a sentence without its full stop.
    pub message: String,
    /// Where, in bytes of the text; `None` when it is the file as a whole.
    pub span: Option<Range<usize>>,
    /// What is at that place.
    pub label: String,
    /// Other places that matter, with what is there.
    pub also: Vec<(Range<usize>, String)>,
    /// What to do.
    pub help: Option<String>,
}

/// All that is wrong with a file. `Display` renders every problem without colours; [`LoadError::render`] has the choice.
#[derive(Clone, Debug)]
pub struct LoadError {
    name: String,
    text: Arc<str>,
    problems: Vec<Problem>,
}

impl LoadError {
    pub(crate) fn new(name: &str, text: Arc<str>, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|p| p.span.as_ref().map_or(0, |s| s.start));
        problems.dedup();
        Self { name: name.to_owned(), text, problems }
    }

    pub(crate) fn about_file(name: &str, message: impl Into<String>, help: &str) -> Self {
        let problem = Problem {
            message: message.into(),
            span: None,
            label: String::new(),
            also: vec![],
            help: Some(help.to_owned()),
        };
        Self { name: name.to_owned(), text: "".into(), problems: vec![problem] }
    }

    pub(crate) fn too_long(name: &str) -> Self {
        Self::about_file(
            name,
            format!("it is longer than {} KiB; no scenario is that long", MAX_BYTES / 1024),
            "name a scenario's file; a scenario of thousands of hosts needs one group with a `count`",
        )
    }

    /// What is wrong, in the order of the file.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Name of the file.
    pub fn file(&self) -> &str {
        &self.name
    }

    /// Line and column of a problem, from 1. Columns count characters.
    pub fn line_column(&self, problem: &Problem) -> Option<(usize, usize)> {
        problem.span.as_ref().map(|s| line_column(&self.text, s.start))
    }

    /// All problems for the terminal.
    pub fn render(&self, colour: bool) -> String {
        let mut out = String::new();
        for problem in self.problems.iter().take(MAX_SHOWN) {
            out.push_str(&render_problem(&self.name, &self.text, problem, colour));
        }
        if self.problems.len() > MAX_SHOWN {
            out.push_str(&format!("... and {} more problems in {}\n", self.problems.len() - MAX_SHOWN, self.name));
        }
        out
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for LoadError {}

pub(crate) fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let offset = floor_boundary(text, offset);
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// Keeps a span inside the text and on its first line: what is wrong with a block is shown at its beginning.
fn first_line(text: &str, span: &Range<usize>) -> Range<usize> {
    let start = floor_boundary(text, span.start);
    let mut end = floor_boundary(text, span.end.max(start));
    if let Some(newline) = text[start..end].find('\n') {
        end = start + newline;
    }
    let end = start + text[start..end].trim_end().len();
    // A mark longer than a line of the terminal shows nothing.
    let end = end.min(floor_boundary(text, start + 100));
    if end > start {
        return start..end;
    }
    // An empty place: mark the character that is there, if it is one that can be seen.
    match text[start..].chars().next() {
        Some(c) if c != '\n' && c != '\r' => start..start + c.len_utf8(),
        _ => start..start,
    }
}

pub(crate) fn render_problem(name: &str, text: &str, problem: &Problem, colour: bool) -> String {
    let shown = Shown {
        message: match &problem.span {
            Some(_) => problem.message.clone(),
            None => format!("{name}: {}", problem.message),
        },
        help: problem.help.clone(),
        labels: problem
            .span
            .iter()
            .map(|s| (s, &problem.label, true))
            .chain(problem.also.iter().map(|(s, l)| (s, l, false)))
            .map(|(span, label, primary)| {
                let label = Some(label.clone()).filter(|l| !l.is_empty());
                let span = first_line(text, span);
                if primary {
                    LabeledSpan::new_primary_with_span(label, span)
                } else {
                    LabeledSpan::new_with_span(label, span)
                }
            })
            .collect(),
        source: Excerpt { name: name.to_owned(), text: without_controls(text) },
    };
    let theme = if colour { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let mut out = String::new();
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(120)
        .with_context_lines(1)
        .without_cause_chain()
        .with_links(false)
        .without_syntax_highlighting();
    if handler.render_report(&mut out, &shown).is_err() {
        // The renderer gave up: say it plainly rather than not at all.
        let (line, column) = problem.span.as_ref().map_or((0, 0), |s| line_column(text, s.start));
        out = format!("{name}:{line}:{column}: {}\n{}\n", problem.message, problem.help.as_deref().unwrap_or_default());
    }
    out
}

/// A file may hold bytes that would command the terminal. Each becomes a `?` of the same length, so that places stay.
fn without_controls(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let control = c.is_control() && c != '\n' && c != '\t';
            let n = if control { c.len_utf8() } else { 1 };
            std::iter::repeat_n(if control { '?' } else { c }, n)
        })
        .collect()
}

#[derive(Debug)]
struct Shown {
    message: String,
    help: Option<String>,
    labels: Vec<LabeledSpan>,
    source: Excerpt,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Shown {}

impl Diagnostic for Shown {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|h| Box::new(h) as Box<dyn fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn SourceCode> {
        (!self.labels.is_empty()).then_some(&self.source as &dyn SourceCode)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        (!self.labels.is_empty())
            .then(|| Box::new(self.labels.iter().cloned()) as Box<dyn Iterator<Item = LabeledSpan>>)
    }
}

/// The text with its name. Of lines that are longer than a screen only the part around the place is given out.
#[derive(Debug)]
struct Excerpt {
    name: String,
    text: String,
}

/// An excerpt longer than this is of lines that nobody wrote by hand.
const LONG_EXCERPT: usize = 2000;

impl SourceCode for Excerpt {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let contents = self.text.read_span(span, before, after)?;
        if contents.data().len() <= LONG_EXCERPT {
            return Ok(Box::new(MietteSpanContents::new_named(
                self.name.clone(),
                contents.data(),
                *contents.span(),
                contents.line(),
                contents.column(),
                contents.line_count(),
            )));
        }
        let start = floor_boundary(&self.text, span.offset().saturating_sub(60));
        let start = self.text[..floor_boundary(&self.text, span.offset())]
            .rfind('\n')
            .map_or(start, |newline| start.max(newline + 1));
        let end = floor_boundary(&self.text, (span.offset() + span.len().min(120)).saturating_add(60));
        let end = self.text
            [floor_boundary(&self.text, span.offset())..end.max(floor_boundary(&self.text, span.offset()))]
            .find('\n')
            .map_or(end, |newline| floor_boundary(&self.text, span.offset()) + newline);
        let (line, column) = line_column(&self.text, start);
        Ok(Box::new(MietteSpanContents::new_named(
            self.name.clone(),
            &self.text.as_bytes()[start..end],
            (start, end - start).into(),
            line - 1,
            column - 1,
            1,
        )))
    }
}

/// The words nearest to `word`, best first, at most three. Nothing when nothing is near.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // Words of that length are no slips of the pen, and the comparison takes quadratic time.
    if word.len() > 200 {
        return vec![];
    }
    let normal = |w: &str| w.trim().to_lowercase().replace(['_', ' '], "-");
    let wanted = normal(word);
    // A third of the letters may be wrong; short words have one slip.
    let slips = (wanted.chars().count() / 3).max(1);
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .filter_map(|k| {
            let other = normal(k);
            let score =
                strsim::jaro_winkler(&wanted, &other).max(strsim::normalized_damerau_levenshtein(&wanted, &other));
            let near = score >= 0.75 || wanted.len() > 2 && strsim::damerau_levenshtein(&wanted, &other) <= slips;
            near.then_some((score, k))
        })
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.truncate(3);
    scored.into_iter().map(|(_, k)| k).collect()
}

/// `did you mean a, b or c?`, or the whole list when nothing is near and the list is short.
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = nearest(word, known.iter().copied());
    match near.as_slice() {
        [] if known.is_empty() => "there are none".to_owned(),
        [] if known.len() <= 40 => format!("possible: {}", quoted(&known, "and")),
        [] => "nothing similar is known; `vlab schema` lists all words".to_owned(),
        near => format!("did you mean {}?", quoted(near, "or")),
    }
}

pub(crate) fn quoted(words: &[&str], joiner: &str) -> String {
    let all: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {joiner} {last}", rest.join(", ")),
        _ => all.join(""),
    }
}
