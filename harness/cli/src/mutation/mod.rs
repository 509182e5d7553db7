//! The verb `mutation`: judges the judge. Each alteration of the simulated service and its hosts is tried on the catalogue in virtual
//! time until a check notices it, and on the conformance suite. What came of each is a line of a file, so that a run that was stopped
//! goes on where it was.

mod hunt;
mod page;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::builder::ArgPredicate;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vlab_conformance::memory::Services;
use vlab_conformance::{ConformanceCheck, ConformanceVerdict, memory, suite, table};
use vlab_drive::alterations::bench::{Bench, Noticed, Tried};
use vlab_drive::alterations::hits::Hits;
use vlab_drive::alterations::{self, Alteration};
use vlab_judge::result::exit;

use crate::error::{CliError, ExitResult, OrExit as _};
use crate::say;
use crate::tools::{catalogue, print};

#[derive(clap::Args)]
pub(crate) struct MutationArgs {
    /// Only alterations with this in their name (any of several).
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Only every n-th alteration, beginning with the i-th: `2/10`.
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<(usize, usize)>,
    /// So many at a time; without it, one for each processor.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// File of what was found: what is in it is not tried again, nor what is on the page of before.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "target/vlab/mutations.jsonl",
        default_value_if("by_search", ArgPredicate::IsPresent, "target/vlab/searches.jsonl")
    )]
    results: PathBuf,
    /// Try again what is in the file or on the page: all that is selected, with `unnoticed` only what nobody had noticed, with
    /// `first-known` only that of which nothing but the first check that noticed it is known.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, default_missing_value = "all")]
    again: Option<Again>,
    /// A page of before: it counts for what the file of results does not have.
    #[arg(long, value_name = "FILE", default_value = "docs/mutations.md")]
    known: PathBuf,
    /// Try each in at most so many scenarios, the most telling ones.
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    scenarios: usize,
    /// Do not ask the conformance suite.
    #[arg(long)]
    no_conformance: bool,
    /// Only list the alterations.
    #[arg(long)]
    list: bool,
    /// Write the page with all results to this file.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    #[command(flatten)]
    hunt: hunt::HuntArgs,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    All,
    Unnoticed,
    FirstKnown,
}

fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parts {
        Some((i, n)) if (1..=n).contains(&i) => Ok((i, n)),
        _ => Err("expected two numbers as in `2/10`, the first not above the second".to_owned()),
    }
}

/// A line of a file.
trait Named {
    /// The alteration that it is about.
    fn name(&self) -> &str;
}

impl Named for Record {
    fn name(&self) -> &str {
        &self.name
    }
}

/// What came of an alteration: a line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    name: String,
    /// The first check that noticed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<String>,
    /// All that failed in that run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    all: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    scenario: String,
    /// In how many scenarios it was tried.
    scenarios: usize,
    /// The first check of the conformance suite that noticed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conformance: Option<String>,
    /// It ended in a panic of the altered program, with these words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    panic: Option<String>,
}

impl Record {
    fn is_noticed(&self) -> bool {
        self.check.is_some() || self.conformance.is_some()
    }
}

/// Families that the conformance suite is asked about before any scenario, as about the controllers: it says in a second what the
/// catalogue says in minutes.
const SUITE_FIRST: &[&str] = &[
    "host-validation",
    "cluster-validation",
    "requirement",
    "steps",
    "argument",
    "event",
    "host-member",
    "cluster-member",
    "answer",
    "amount",
];

/// The conformance suites in memory.
struct Suite {
    checks: Vec<ConformanceCheck>,
    /// What each check says, in one text: whatever it is about is named there.
    texts: Vec<String>,
    services: Services,
    hits: Hits,
}

impl Suite {
    async fn new() -> Result<Self, CliError> {
        let settings = memory::settings("1s").map_err(CliError::internal)?;
        let patterns = [memory::OF_THE_SHELL.to_owned()];
        let mut checks = table::built_in().map_err(CliError::internal)?;
        checks.retain(|check| suite::selected(&check.id, &patterns));
        // What is quick comes first; those over Kubernetes have an API server and controllers each.
        checks.extend(table::over_kubernetes().map_err(CliError::internal)?);
        checks.sort_by_key(|check| (check.over_kube, check.world.at, check.world.hosts, check.steps.len()));
        let services = Services::new(settings).await.map_err(CliError::internal)?;
        let mut passing = Vec::new();
        for check in checks {
            // One that fails with nothing wrong proves nothing.
            match services.perform(&check, None).await.map(|outcome| outcome.verdict) {
                Some(ConformanceVerdict::Passed) => passing.push(check),
                other => say(&format!("conformance {} is left out: {other:?}", check.id)),
            }
        }
        let texts = passing.iter().map(|check| format!("{check:?}")).collect();
        Ok(Self { checks: passing, texts, services, hits: Hits::default() })
    }

    /// The first check that notices it: first the one that has noticed it before, then those that name what is altered, then those that
    /// noticed what is most like it.
    fn attempt(&self, alteration: Alteration, before: Option<&str>) -> Option<String> {
        let name = alteration.name();
        let controllers = alteration.is_of_controllers();
        let Alteration::Service(alteration) = alteration else { return None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().ok()?;
        let words: Vec<&str> = name.split('/').skip(1).filter(|word| word.len() > 4).collect();
        let mut order: Vec<usize> =
            (0..self.checks.len()).filter(|at| !controllers || self.checks[*at].over_kube).collect();
        {
            let hit = self.hits.of(&name);
            let named = |at: usize| words.iter().filter(|word| self.texts[at].contains(**word)).count();
            let known = |at: usize| before == Some(self.checks[at].id.as_str());
            order.sort_by_cached_key(|at| std::cmp::Reverse((known(*at), named(*at), hit(*at))));
        }
        let noticed = |at: &usize| runtime.block_on(self.services.fails(&self.checks[*at], alteration));
        let at = order.into_iter().find(noticed)?;
        self.hits.add(&name, at);
        Some(self.checks[at].id.clone())
    }
}

pub(crate) async fn mutation(args: MutationArgs) -> ExitResult {
    let all = alterations::all();
    let selected = selected(&all, &args);
    if selected.is_empty() {
        return Err(CliError::nothing_selected("no alteration is selected"));
    }
    if args.list {
        let lines = selected.iter().map(|a| format!("{:60} {}\n", a.name(), a.about()));
        print(&lines.collect::<String>());
        return Ok(exit::PASSED);
    }
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let lines = Lines { jobs, path: &args.results };
    if args.hunt.most().is_some() {
        return tokio::task::block_in_place(|| args.hunt.hunt(&selected, &lines));
    }
    let mut records = page::rows(&std::fs::read_to_string(&args.known).unwrap_or_default());
    records.extend(read(&args.results)?);
    records.retain(|name, _| all.iter().any(|alteration| alteration.name() == *name));
    let open: Vec<Alteration> = selected
        .iter()
        .copied()
        .filter(|alteration| match (records.get(&alteration.name()), args.again) {
            (None, _) | (_, Some(Again::All)) => true,
            (Some(record), Some(Again::Unnoticed)) => !record.is_noticed(),
            (Some(record), Some(Again::FirstKnown)) => record.check.is_some() && record.all.is_empty(),
            (Some(_), None) => false,
        })
        .collect();
    if !open.is_empty() {
        let suite = if args.no_conformance { None } else { Some(Suite::new().await?) };
        let how = How { lines, most: args.scenarios, before: &records };
        let found = tokio::task::block_in_place(|| attempt_all(&open, suite, how))?;
        records.extend(found);
    }
    if let Some(path) = &args.page {
        std::fs::write(path, page::page(&all, &records)).or_inconclusive()?;
    }
    conclude(&selected, &records)
}

fn selected(all: &[Alteration], args: &MutationArgs) -> Vec<Alteration> {
    let named = |a: &&Alteration| args.filter.is_empty() || args.filter.iter().any(|text| a.name().contains(text));
    let of_shard = |place: usize| args.shard.is_none_or(|(i, n)| place % n == i - 1);
    all.iter().filter(named).enumerate().filter(|(place, _)| of_shard(*place)).map(|(_, a)| *a).collect()
}

/// Lines of the file, by the alteration.
fn read<R: DeserializeOwned + Named>(path: &Path) -> Result<BTreeMap<String, R>, CliError> {
    let Ok(file) = File::open(path) else { return Ok(BTreeMap::new()) };
    let mut records = BTreeMap::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.or_inconclusive()?;
        let record: R = serde_json::from_str(&line).map_err(|error| {
            CliError::inconclusive(format!("{}:{}: {error}; remove the file to start over", path.display(), number + 1))
        })?;
        records.insert(record.name().to_owned(), record);
    }
    Ok(records)
}

/// Who works, and where what comes of it is written down.
#[derive(Clone, Copy)]
struct Lines<'a> {
    /// So many at a time.
    jobs: usize,
    /// The file.
    path: &'a Path,
}

/// The file, to write at its end.
struct LineFile<'a> {
    path: &'a Path,
    file: Mutex<File>,
}

impl<'a> Lines<'a> {
    fn open(&self) -> Result<LineFile<'a>, CliError> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder).or_inconclusive()?;
        }
        let file = OpenOptions::new().create(true).append(true).open(self.path).or_inconclusive()?;
        Ok(LineFile { path: self.path, file: Mutex::new(file) })
    }
}

impl LineFile<'_> {
    /// Adds a line at once: who is stopped goes on after it.
    fn add<R: Serialize>(&self, record: &R) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = writeln!(file, "{}", serde_json::to_string(record).unwrap_or_default()) {
            say(&format!("{}: {error}", self.path.display()));
        }
    }
}

/// How alterations are tried.
struct How<'a> {
    lines: Lines<'a>,
    /// In at most so many scenarios.
    most: usize,
    /// What came of them before: who noticed one then is asked first.
    before: &'a BTreeMap<String, Record>,
}

/// Tries alterations, some at a time, and writes down what comes of each.
fn attempt_all(open: &[Alteration], suite: Option<Suite>, how: How<'_>) -> Result<Vec<(String, Record)>, CliError> {
    let begun = Instant::now();
    let bench = Bench::new(&catalogue()?).map_err(CliError::rendered)?;
    say(&format!("{} scenarios pass with nothing wrong ({:.0?})", bench.scenarios.len(), begun.elapsed()));
    for (scenario, check) in &bench.wrong {
        say(&format!("{scenario} is left out, because it fails with nothing wrong: {check}"));
    }
    let file = how.lines.open()?;
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..how.lines.jobs.max(1) {
            scope.spawn(|| {
                while let Some(alteration) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let record = attempt(&bench, suite.as_ref(), *alteration, &how);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    tell(found.len() + 1, open.len(), &record);
                    file.add(&record);
                    found.push((record.name.clone(), record));
                }
            });
        }
    });
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn attempt(bench: &Bench, suite: Option<&Suite>, alteration: Alteration, how: &How<'_>) -> Record {
    let name = alteration.name();
    let before = how.before.get(&name);
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let ask = |suite: &Suite| suite.attempt(alteration, before.and_then(|b| b.conformance.as_deref()));
        let by_catalogue = before.is_some_and(|b| b.check.is_some());
        let quick = alteration.is_of_controllers() || SUITE_FIRST.contains(&alteration.family().as_str());
        let suite_first = quick && !by_catalogue;
        if let Some(id) = suite.filter(|_| suite_first).and_then(ask) {
            return (Tried { noticed: None, scenarios: 0 }, Some(id));
        }
        let tried = bench.attempt(alteration, how.most, before.map(|b| b.scenario.as_str()));
        // The suite takes long to pass: it is asked where no scenario notices.
        let suite = suite.filter(|_| tried.noticed.is_none() && !suite_first);
        (tried, suite.and_then(ask))
    }));
    let none = Record {
        name,
        check: None,
        all: Vec::new(),
        scenario: String::new(),
        scenarios: 0,
        conformance: None,
        panic: None,
    };
    match tried {
        Ok((Tried { noticed: Some(Noticed { check, all, scenario }), scenarios }, conformance)) => {
            Record { check: Some(check), all, scenario, scenarios, conformance, ..none }
        }
        Ok((Tried { noticed: None, scenarios }, conformance)) => Record { scenarios, conformance, ..none },
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
            Record { panic: Some(text.unwrap_or_default()), ..none }
        }
    }
}

fn tell(number: usize, of: usize, record: &Record) {
    let what = match (&record.check, &record.conformance, &record.panic) {
        (_, _, Some(panic)) => format!("PANIC {panic}"),
        (Some(check), ..) => format!("{} in {} ({})", check, record.scenario, record.scenarios),
        (None, Some(check), _) => format!("conformance {check} (not in {} scenarios)", record.scenarios),
        (None, None, _) => format!("NOT NOTICED in {} scenarios", record.scenarios),
    };
    say(&format!("{number}/{of} {}: {what}", record.name));
}

/// The score of what is selected.
fn conclude(selected: &[Alteration], records: &BTreeMap<String, Record>) -> ExitResult {
    let score = page::Score::of(selected, records);
    print(&score.text());
    Ok(if score.suffices() { exit::PASSED } else { exit::FAILED })
}
