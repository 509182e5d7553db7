//! The verb `explore`: looks for defects in virtual time, keeps what is worth it in a folder, and writes the shortest scenario that
//! shows each defect. [`crate::against`] takes what was drawn to another service.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_drive::alterations::{self, Alteration};
use vlab_drive::explore::exhaustive::exhaust;
use vlab_drive::explore::reach::{Kind, possible_pairs, possible_rules};
use vlab_drive::explore::record::RECORD;
use vlab_drive::explore::shrink::name_of;
use vlab_drive::explore::{
    Base, Record, Search, SearchSpace, Shows, Space, TapeFile, Trace, Violation, attempt, finding, shrink,
};
use vlab_drive::prepare::{Prepared, VERSION};
use vlab_drive::target::Target;
use vlab_judge::result::exit;
use vlab_scenario::Catalogue;
use vlab_service::alteration::{Alteration as Service, Planted};

use crate::against;
use crate::args::LabArgs;
use crate::branches;
use crate::error::{CliError, ExitResult, OrExit as _};
use crate::findings::known_in;
use crate::stop::stopped;
use crate::tools::{catalogue, print, tell};

#[derive(clap::Args)]
pub(crate) struct ExploreArgs {
    /// Scenarios to build on: names of the catalogue, or paths. Without any, a grammar draws them, too.
    scenarios: Vec<String>,
    /// Stop after so many minutes.
    #[arg(long, value_name = "N")]
    pub(crate) minutes: Option<f64>,
    /// Stop after so many runs. Without this and without `--minutes`: one minute, with `--from` ten.
    #[arg(long, value_name = "N")]
    pub(crate) runs: Option<u64>,
    /// So many runs at a time. Only with one is the same seed the same search.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) jobs: usize,
    /// Seed of the search.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Folder in which tapes are kept that reach something new; the next search goes on from there.
    #[arg(long, value_name = "DIR", default_value = "explorations")]
    pub(crate) corpus: PathBuf,
    /// Folder of what is found: a scenario for each.
    #[arg(long, value_name = "DIR", default_value = "findings")]
    pub(crate) findings: PathBuf,
    /// Folder of findings that people have looked at (`vlab findings`): what is classed there as `defect` or `by-design` is counted, and
    /// is not written again and nothing to fail for.
    #[arg(long, value_name = "DIR")]
    known: Option<PathBuf>,
    /// Draw no interleavings: latency, order, lost requests and kills stay plain.
    #[arg(long)]
    plain: bool,
    /// Instead of a search: all of the small world of one scenario. At every state that is reached, everything that can be done
    /// at once is done.
    #[arg(long, conflicts_with = "against")]
    exhaustive: bool,
    /// With `--exhaustive`: so many interventions one after the other.
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: usize,
    /// Let this be wrong with the simulated service or hosts, by its name in `vlab mutation --list`, or `planted/` and one of
    /// `events-first`, `no-lock`, `timer-survives`, `stale-steps`: what does a search make of it?
    #[arg(long, value_name = "NAME", hide = true)]
    alteration: Option<String>,
    /// Shrink each finding with at most so many runs. Without it: 1500 (and no longer than a minute), 25 with `--against`, 10 with `--from`.
    #[arg(long, value_name = "N")]
    pub(crate) shrink_runs: Option<u64>,
    /// Explore this service, in real time: `process:<program>`, `container:<image>`, `remote:<url>` or `simulated`. It begins with the
    /// tapes of the corpus.
    #[arg(long, value_name = "TARGET", group = "real_time")]
    against: Option<Target>,
    /// With `--against`: time profile of the runs.
    #[arg(long, value_name = "NAME", default_value = "rapid", requires = "against")]
    pub(crate) time_profile: String,
    /// With `--against` and `--from`: run what was found so often again, to tell how often it shows.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "real_time")]
    pub(crate) again: u32,
    /// With `--against`: ask tapes, too, that this build of the service has been asked before under this time profile.
    #[arg(long, requires = "against")]
    pub(crate) anew: bool,
    /// With `--against`: leave out what takes longer than so many seconds on the simulated service, under the same time profile. With `--from`: a
    /// run ends after so many seconds, and what is drawn for a time begins in the first half of them.
    #[arg(long, value_name = "SECONDS", default_value_t = 90, requires = "real_time")]
    pub(crate) longest: u64,
    /// Go on from a snapshot (`scenario --snapshot-at`), in real time: faults and actions are drawn for the moments after it, for machines, too.
    /// The scenario is the one that was frozen.
    #[arg(long, value_name = "SNAPSHOT", group = "real_time", conflicts_with_all = ["exhaustive", "scenarios"])]
    from: Option<String>,
    #[command(flatten)]
    pub(crate) lab: LabArgs,
}

/// So many runs make a finding small in virtual time, when nothing else is said.
const SHRINK_RUNS: u64 = 1500;

/// And no longer than this: a search has other things to find.
const SHRINK_TIME: Duration = Duration::from_secs(60);

/// The panics of runs are findings, and told as such.
pub(crate) fn quiet_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// What all threads share.
struct Shared<'a> {
    space: Space,
    catalogue: &'a Catalogue,
    search: Mutex<Search>,
    /// The written findings, by file name, with what they say.
    written: Mutex<BTreeMap<String, String>>,
    began: Instant,
    args: &'a ExploreArgs,
    /// Signatures that are known, with the finding.
    known: BTreeMap<String, String>,
    alteration: Option<Alteration>,
    /// Is cancelled by Ctrl-C and by SIGTERM.
    stop: CancellationToken,
}

/// The alteration of that name.
pub(crate) fn alteration(name: &str) -> Result<Alteration, CliError> {
    let planted = Planted::ALL.iter().map(|planted| Alteration::Service(Service::Planted(*planted)));
    let mut all = planted.chain(alterations::all());
    all.find(|alteration| alteration.name() == name)
        .ok_or_else(|| CliError::usage(format!("there is no alteration {name:?}; `vlab mutation --list` shows them")))
}

pub(crate) async fn explore(args: &ExploreArgs) -> ExitResult {
    let catalogue = catalogue()?;
    if let Some(name) = &args.from {
        let known = known_in(args.known.as_deref())?;
        let altered = args.alteration.as_deref().map(alteration).transpose()?;
        return Box::pin(branches::explore(args, name, catalogue, (known, altered))).await;
    }
    let mut bases = Vec::new();
    for name in &args.scenarios {
        let source = catalogue.find(name).or_usage()?;
        let base = Base::new(&source, &catalogue);
        let base = base.map_err(|why| CliError::usage(format!("{name} cannot be built on: {why}")))?;
        if args.against.is_none() && base.real_time {
            return Err(CliError::inconclusive(format!(
                "skipped: {name} needs real time, and this search goes on in virtual time; `--against simulated` searches in real time"
            )));
        }
        bases.push(base);
    }
    if args.exhaustive {
        let [base] = bases.as_slice() else {
            return Err(CliError::usage("`--exhaustive` goes through the world of one scenario: name one"));
        };
        return exhaustive(args, base, &catalogue);
    }
    let grammar = bases.is_empty();
    let space = Space::new(bases, grammar, !args.plain);
    // Interleavings are drawn last, so that a tape draws the same with and without.
    let spaces = [true, false].map(|interleavings| Space::new(space.bases.clone(), grammar, interleavings).digest());
    let known = if args.against.is_some() { &spaces[..] } else { &spaces[usize::from(args.plain)..][..1] };
    let (given, left_out) = read_corpus(&args.corpus, known)?;
    if left_out > 0 {
        tell(&format!(
            "{left_out} tapes in {} are of another space (other scenarios, kinds of faults or options) and are tried as they are\n",
            args.corpus.display()
        ));
    }
    std::fs::create_dir_all(&args.findings)
        .map_err(|e| CliError::usage(format!("{}: {e}", args.findings.display())))?;
    let known_findings = known_in(args.known.as_deref())?;
    let altered = args.alteration.as_deref().map(alteration).transpose()?;
    if let Some(target) = args.against.clone() {
        catalogue
            .time_profile(&args.time_profile)
            .map_err(|e| CliError::usage(format!("time profile {:?}: {}", args.time_profile, e.to_string().trim())))?;
        // What real time does not have is not drawn.
        let space = Space::new(space.bases, grammar, false);
        let order =
            against::Order { space, tapes: given, catalogue, target, alteration: altered, known: known_findings };
        return Box::pin(against::explore(args, order)).await;
    }
    search(args, space, given, &catalogue, (known_findings, altered))
}

/// The search in virtual time.
fn search(
    args: &ExploreArgs,
    space: Space,
    given: Vec<Vec<u64>>,
    catalogue: &Catalogue,
    (known, alteration): (BTreeMap<String, String>, Option<Alteration>),
) -> ExitResult {
    let search = Search::new(args.seed, space.bases.len() + usize::from(space.grammar), given);
    quiet_panics();
    let shared = Shared {
        space,
        catalogue,
        search: Mutex::new(search),
        written: Mutex::default(),
        began: Instant::now(),
        args,
        known,
        alteration,
        stop: stopped(),
    };
    let failed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs.max(1))
            .map(|nth| {
                scope.spawn({
                    let shared = &shared;
                    move || work(shared, nth == 0)
                })
            })
            .collect();
        workers.into_iter().find_map(|worker| worker.join().unwrap_or_else(|_| Some("a thread ended".to_owned())))
    });
    let _ = std::panic::take_hook();
    if let Some(why) = failed {
        return Err(CliError::internal(why));
    }
    let search = shared.search.into_inner().unwrap_or_else(PoisonError::into_inner);
    write_corpus(&args.corpus, &shared.space.digest(), &search)?;
    let written = shared.written.into_inner().unwrap_or_else(PoisonError::into_inner);
    print(&summary(&search, &shared.known, shared.began.elapsed()));
    for (file, about) in &written {
        print(&format!("{}: {about}\n", args.findings.join(file).display()));
    }
    Ok(if search.found().keys().all(|what| shared.known.contains_key(what)) { exit::PASSED } else { exit::FAILED })
}

impl Shared<'_> {
    /// Makes something wrong, where that is wanted.
    fn alter(&self, prepared: &mut Prepared) {
        prepared.alteration = self.alteration;
    }

    fn search(&self) -> std::sync::MutexGuard<'_, Search> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ctrl-C ends a search as its time does: what it has is kept.
    fn is_over(&self, runs: u64) -> bool {
        let minutes = self.args.minutes.or(self.args.runs.is_none().then_some(1.0));
        self.stop.is_cancelled()
            || self.args.runs.is_some_and(|most| runs >= most)
            || minutes.is_some_and(|minutes| self.began.elapsed().as_secs_f64() >= minutes * 60.0)
    }
}

/// Tries one tape after the other. What it says went wrong with the search itself.
fn work(shared: &Shared<'_>, shows: bool) -> Option<String> {
    let mut shown = Instant::now();
    loop {
        let proposal = {
            let mut search = shared.search();
            if shared.is_over(search.runs()) {
                return None;
            }
            search.propose()
        };
        let tried = match attempt(&shared.space, shared.catalogue, &proposal, &|prepared| shared.alter(prepared)) {
            Ok(tried) => tried,
            Err(why) => return Some(format!("what was drawn cannot be run: {why}")),
        };
        let new = shared.search().accept(&tried);
        for violation in new.into_iter().filter(|violation| !shared.known.contains_key(&violation.signature)) {
            if let Err(why) = found(shared, &tried.drawn.trace.numbers(), &violation) {
                return Some(why);
            }
        }
        if shows && shown.elapsed() >= Duration::from_secs(2) {
            shown = Instant::now();
            let line = one_line(&shared.search(), shared.began.elapsed());
            match std::io::stderr().is_terminal() {
                true => tell(&format!("\r\x1b[2K{line}")),
                false => tell(&format!("{line}\n")),
            }
        }
    }
}

/// Makes a finding small, and writes it.
fn found(shared: &Shared<'_>, numbers: &[u64], violation: &Violation) -> Result<(), String> {
    let began = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    let begin = if terminal { "\r\x1b[2K" } else { "" };
    tell(&format!("{begin}found: {}\n", violation.signature));
    let mut shown = Instant::now();
    let mut progress = |runs: u64, lines: usize| {
        if shown.elapsed() >= Duration::from_secs(2) {
            shown = Instant::now();
            tell(&format!("{begin}  shrinking: {runs} runs, {lines} lines{}", if terminal { "" } else { "\n" }));
        }
        began.elapsed() < SHRINK_TIME && !shared.stop.is_cancelled()
    };
    let all: SearchSpace<'_> = (&shared.space, shared.catalogue, &|prepared| shared.alter(prepared));
    let shrunk =
        shrink(all, numbers, &violation.signature, shared.args.shrink_runs.unwrap_or(SHRINK_RUNS), &mut progress);
    let Some(shrunk) = shrunk else {
        // Two runs that differ, for example.
        tell(&format!("{begin}  it does not show again from its tape alone\n"));
        return Ok(());
    };
    let (name, source) = finding(&shrunk);
    let file = format!("{name}.yaml");
    let write =
        |path: PathBuf, bytes: &[u8]| std::fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()));
    let tape = TapeFile::write(&shared.space.digest(), &shrunk.tried.drawn.trace);
    write(shared.args.findings.join(format!("{name}.tape")), tape.as_bytes())?;
    let added = &shrunk.tried.drawn.added;
    let record = Record::new(
        &shrunk.violation,
        in_virtual_time(added.seed, shared.alteration),
        added,
        shrunk.is_minimal,
        Timestamp::now(),
    );
    write_finding(&shared.args.findings, &name, &source.bytes, &record)?;
    let about = format!(
        "{} lines, {} faults, {} actions; shrunk with {} runs in {:.1} s{}",
        shrunk.tried.drawn.added.lines(),
        shrunk.tried.drawn.added.faults.len(),
        shrunk.tried.drawn.added.actions.len(),
        shrunk.runs,
        began.elapsed().as_secs_f64(),
        if shrunk.is_minimal { "" } else { ", and not to the end" }
    );
    tell(&format!("{begin}  {file}: {about}\n"));
    shared.written.lock().unwrap_or_else(PoisonError::into_inner).insert(file, about);
    Ok(())
}

/// Where something showed that was found in virtual time.
fn in_virtual_time(seed: u64, alteration: Option<Alteration>) -> Shows {
    let wrong = alteration.map(|wrong| format!(" with {}", wrong.name())).unwrap_or_default();
    Shows::in_virtual_time(&format!("simulated {VERSION}{wrong}"), "real", seed)
}

/// Writes a finding: its scenario, and beside it what is known about it. Where the scenario is.
pub(crate) fn write_finding(folder: &Path, name: &str, scenario: &[u8], record: &Record) -> Result<PathBuf, String> {
    let write = |file: String, bytes: &[u8]| {
        let path = folder.join(file);
        std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    };
    write(format!("{name}.{RECORD}"), record.write().as_bytes())?;
    write(format!("{name}.yaml"), scenario)
}

/// All of a small world.
fn exhaustive(args: &ExploreArgs, base: &Base, catalogue: &Catalogue) -> ExitResult {
    let altered = args.alteration.as_deref().map(alteration).transpose()?;
    let (began, mut shown) = (Instant::now(), Instant::now());
    let mut progress = |runs: u64, states: usize| {
        if shown.elapsed() >= Duration::from_secs(2) {
            shown = Instant::now();
            tell(&format!("{runs} runs, {states} states\n"));
        }
    };
    let alter = |prepared: &mut Prepared| prepared.alteration = altered;
    let limits = (args.depth, args.runs.unwrap_or(u64::MAX));
    let seen = exhaust(base, catalogue, &alter, limits, &mut progress).map_err(CliError::usage)?;
    let whole = if seen.is_whole {
        "every state was gone on from"
    } else {
        "the runs were used up before every state was gone on from"
    };
    print(&format!(
        "{}: {} states, {} runs in {:.1} s, depth {}; {whole}; {} interventions are no scenario there\n",
        base.name,
        seen.states,
        seen.runs,
        began.elapsed().as_secs_f64(),
        args.depth,
        seen.refused
    ));
    std::fs::create_dir_all(&args.findings)
        .map_err(|e| CliError::usage(format!("{}: {e}", args.findings.display())))?;
    for (violation, added, text) in &seen.violations {
        let name = name_of(violation);
        let shows = in_virtual_time(added.seed, altered);
        let record = Record::new(violation, shows, added, false, Timestamp::now());
        let file = write_finding(&args.findings, &name, text.as_ref(), &record).map_err(CliError::inconclusive)?;
        print(&format!("{}: {}\n", file.display(), violation.signature));
    }
    match (seen.violations.is_empty(), seen.is_whole) {
        (false, _) => Ok(exit::FAILED),
        (true, true) => Ok(exit::PASSED),
        (true, false) => Ok(exit::INCONCLUSIVE),
    }
}

fn one_line(search: &Search, took: Duration) -> String {
    let counts = search.counts();
    let of = |kind: Kind| counts.get(&kind).copied().unwrap_or_default();
    format!(
        "{} runs, {:.0} a minute; {} of {} rules, {} pairs, {} events, {} refusals; {} tapes kept; {} found",
        search.runs(),
        search.runs() as f64 * 60.0 / took.as_secs_f64().max(0.001),
        of(Kind::Rule),
        possible_rules(),
        of(Kind::Pair),
        of(Kind::Event),
        of(Kind::Answer),
        search.kept_tapes(),
        search.found().len()
    )
}

/// How many things are wrong, and each with its times; what is known with its finding.
pub(crate) fn wrong<'a>(found: impl Iterator<Item = (&'a str, String)>, known: &BTreeMap<String, String>) -> String {
    let (old, new): (Vec<_>, Vec<_>) = found.partition(|(signature, _)| known.contains_key(*signature));
    let mut text = format!("{} different things are wrong\n", new.len());
    new.iter().for_each(|(signature, times)| text.push_str(&format!("  {signature} ({times})\n")));
    if !old.is_empty() {
        text.push_str(&format!("{} are known\n", old.len()));
        let name = |signature: &str| known.get(signature).map_or("", String::as_str);
        old.iter().for_each(|(s, times)| text.push_str(&format!("  {s} ({times}; {})\n", name(s))));
    }
    text
}

fn summary(search: &Search, known: &BTreeMap<String, String>, took: Duration) -> String {
    let mut text = format!(
        "{} runs in {:.1} s ({:.0} a minute), {} things happened; {} of the things drawn were left out because the language refuses them\n",
        search.runs(),
        took.as_secs_f64(),
        search.runs() as f64 * 60.0 / took.as_secs_f64().max(0.001),
        search.steps(),
        search.refused()
    );
    for (kind, count) in search.counts() {
        let most = match kind {
            Kind::Rule => format!(" of {}", possible_rules()),
            Kind::Pair => format!(" of {} that follow one another by the tables", possible_pairs()),
            _ => String::new(),
        };
        text.push_str(&format!("  {}: {count}{most}\n", kind.words()));
    }
    let found = search.found().values().map(|found| {
        let times = format!("{} of {} runs, first in run {}", found.times, search.runs(), found.run);
        (found.violation.signature.as_str(), times)
    });
    text.push_str(&wrong(found, known));
    text
}

/// Ending of a tape's file.
const TAPE: &str = "tape";

/// The tapes of a corpus, and how many of them are of another space.
pub(crate) fn read_corpus(folder: &Path, spaces: &[String]) -> Result<(Vec<Vec<u64>>, usize), CliError> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok((Vec::new(), 0)) };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == TAPE));
    paths.sort();
    let (mut tapes, mut other) = (Vec::new(), 0);
    for path in paths {
        let wrong = |why: String| CliError::usage(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let tape = TapeFile::read(&text).map_err(|error| wrong(error.to_string()))?;
        other += usize::from(!spaces.contains(&tape.space));
        tapes.push(tape.numbers);
    }
    Ok((tapes, other))
}

/// Writes the fewest tapes that reach all that was reached, and those that were not tried yet, in the place of what was there.
fn write_corpus(folder: &Path, space: &str, search: &Search) -> Result<(), CliError> {
    let wrong = |error: std::io::Error| CliError::inconclusive(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(wrong)?;
    for entry in std::fs::read_dir(folder).map_err(wrong)?.flatten() {
        if entry.path().extension().is_some_and(|ext| ext == TAPE) {
            std::fs::remove_file(entry.path()).map_err(wrong)?;
        }
    }
    let untried = search.untried().iter().map(|numbers| Trace::of_numbers(numbers));
    let all: Vec<Trace> = search.smallest_corpus().iter().map(|kept| kept.trace.clone()).chain(untried).collect();
    for (nth, trace) in all.iter().enumerate() {
        let text = TapeFile::write(space, trace);
        std::fs::write(folder.join(format!("{nth:04}.{TAPE}")), text).map_err(wrong)?;
    }
    Ok(())
}
