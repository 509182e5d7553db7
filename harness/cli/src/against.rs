//! `vlab explore --against`: what was drawn is run in real time on another service, several at once; what is wrong there is run
//! again, made small and written, with how often it shows and whether the simulated service does the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_drive::alterations::Alteration;
use vlab_drive::explore::against::{
    Judged, Lessen, Ours, There, judged, name_of_target, prepared_for, there, tries, version_of,
};
use vlab_drive::explore::base::{Added, Base};
use vlab_drive::explore::end::{End, differs, end_of};
use vlab_drive::explore::oracle::refusals;
use vlab_drive::explore::scenario::draw;
use vlab_drive::explore::{Draw, Record, Search, Shows, Space, Violation, attempt, scenario_of};
use vlab_drive::prepare::{Choices, HubChoice};
use vlab_drive::target::Target;
use vlab_judge::result::exit;
use vlab_run::live::Show;
use vlab_run::{real, rundir};
use vlab_scenario::Catalogue;

use crate::args::{LabArgs, interrupted};
use crate::error::{CliError, ExitResult};
use crate::explore::{ExploreArgs, write_finding, wrong};
use crate::remembered::Remembered;
use crate::tools::{Setup, ensure_set_up, print, tell};

/// So many runs in virtual time make tapes when there are none left.
const TAPES_FROM: u64 = 60;
/// A candidate is tried at most so often where a finding shows only sometimes.
const MOST_TRIES: u32 = 4;
/// So many runs make a finding small, when nothing else is said.
const SHRINK_RUNS: u64 = 25;
/// Folder of the runs below that of all runs: `latest` stays what it was.
const RUNS: &str = "explored";

/// What is explored, and how.
pub(crate) struct Order {
    pub(crate) space: Space,
    /// Tapes to begin with, the most telling first.
    pub(crate) tapes: Vec<Vec<u64>>,
    pub(crate) catalogue: Catalogue,
    pub(crate) target: Target,
    pub(crate) alteration: Option<Alteration>,
    /// Signatures that are known, with the finding.
    pub(crate) known: BTreeMap<String, String>,
}

/// Which tape is next.
struct Tapes {
    left: VecDeque<Vec<u64>>,
    tried: BTreeSet<Vec<u64>>,
    /// Makes new ones.
    search: Search,
}

impl Tapes {
    /// The next one. When all are used up, a short search in virtual time makes some.
    fn next(&mut self, space: &Space, catalogue: &Catalogue) -> Result<Vec<u64>, String> {
        loop {
            while let Some(tape) = self.left.pop_front() {
                if self.tried.insert(tape.clone()) {
                    return Ok(tape);
                }
            }
            let mut last = Vec::new();
            for _ in 0..TAPES_FROM {
                let tried = attempt(space, catalogue, &self.search.propose(), &|_| {})?;
                self.search.accept(&tried);
                last = tried.drawn.trace.numbers();
            }
            self.left.extend(self.search.smallest_corpus().iter().map(|kept| kept.trace.numbers()));
            // Nothing new was reached: what was tried last is another thing all the same.
            self.left.push_back(last);
        }
    }
}

/// What has come of it so far.
#[derive(Default)]
struct Tally {
    /// Tapes that were run to a verdict.
    tapes: u64,
    /// All runs.
    runs: u64,
    going_on: u64,
    /// Runs that said nothing, by the reason.
    inconclusive: BTreeMap<String, u64>,
    /// Faults that were left out, by the reason.
    left_out: BTreeMap<String, u64>,
    /// Tapes that cannot be run there at all, by the reason.
    not_there: BTreeMap<String, u64>,
    /// Tapes of whose interleaving something was left out.
    made_plain: u64,
    /// In how many tapes each showed, by signature.
    found: BTreeMap<String, u64>,
    /// What was written, by file name, with a line about it.
    written: BTreeMap<String, String>,
}

/// What all workers share.
struct Shared {
    order: Order,
    time_profile: String,
    lab: LabArgs,
    hub: HubChoice,
    findings: PathBuf,
    again: u32,
    /// What takes longer on the simulated service is not run.
    longest: Duration,
    shrink_runs: u64,
    /// When to begin nothing more: so many tapes, so long.
    limits: (Option<u64>, Option<Duration>),
    begun_tapes: Mutex<u64>,
    interrupted: CancellationToken,
    began: Instant,
    tapes: Mutex<Tapes>,
    remembered: Remembered,
    tally: Mutex<Tally>,
}

/// A run that says something.
struct Seen {
    violations: Vec<Violation>,
    refused: Vec<(usize, u16)>,
    version: String,
    folder: PathBuf,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Explores another service.
pub(crate) async fn explore(args: &ExploreArgs, order: Order) -> ExitResult {
    if args.jobs > 1 && args.lab.definitions.is_some() {
        let why =
            "with --definitions one run at a time: the service's controllers always take port 8080. Leave --jobs out";
        return Err(CliError::usage(why));
    }
    if order.target.needs_postgres_here() {
        ensure_set_up(Setup::Run, !args.lab.no_setup)?;
    }
    let _ = vlab_lab::doctor::raise_open_files();
    let bases = order.space.bases.len() + usize::from(order.space.grammar);
    let minutes = args.minutes.or(args.runs.is_none().then_some(1.0));
    let (remembered, asked) = Remembered::open(&args.corpus, (&order.target, order.alteration), &args.time_profile)?;
    let tried = if args.anew { BTreeSet::new() } else { asked };
    if !tried.is_empty() {
        tell(&format!("{} tapes were asked before and are left out (`--anew` asks them again)\n", tried.len()));
    }
    let shared = Arc::new(Shared {
        time_profile: args.time_profile.clone(),
        lab: args.lab.clone(),
        hub: args.lab.hub_of_the_run()?,
        findings: args.findings.clone(),
        again: args.again,
        longest: Duration::from_secs(args.longest),
        shrink_runs: args.shrink_runs.unwrap_or(SHRINK_RUNS),
        limits: (args.runs, minutes.map(|minutes| Duration::from_secs_f64(minutes.max(0.0) * 60.0))),
        begun_tapes: Mutex::new(0),
        interrupted: interrupted(),
        began: Instant::now(),
        tapes: Mutex::new(Tapes {
            left: order.tapes.clone().into(),
            tried,
            search: Search::new(args.seed, bases, Vec::new()),
        }),
        remembered,
        tally: Mutex::default(),
        order,
    });
    let showing = tokio::spawn(show(Arc::clone(&shared)));
    let workers: Vec<_> = (0..args.jobs.max(1)).map(|_| tokio::spawn(work(Arc::clone(&shared)))).collect();
    let mut failed = None;
    for worker in workers {
        match worker.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => failed = Some(why),
            Err(error) => failed = Some(error.to_string()),
        }
    }
    showing.abort();
    let tally = lock(&shared.tally);
    print(&summary(&tally, &shared));
    for (file, about) in &tally.written {
        print(&format!("{}: {about}\n", args.findings.join(file).display()));
    }
    let nothing_new = tally.found.keys().all(|what| shared.order.known.contains_key(what));
    match (failed, nothing_new, tally.tapes) {
        (Some(why), ..) => Err(CliError::internal(why)),
        (None, false, _) => Ok(exit::FAILED),
        (None, true, 0) => Ok(exit::INCONCLUSIVE),
        (None, true, _) => Ok(exit::PASSED),
    }
}

/// Says every two seconds how far it is.
async fn show(shared: Arc<Shared>) {
    let terminal = std::io::stderr().is_terminal();
    let mut ticks = tokio::time::interval(Duration::from_secs(2));
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let line = one_line(&lock(&shared.tally), shared.began.elapsed());
        tell(&if terminal { format!("\r\x1b[2K{line}") } else { format!("{line}\n") });
    }
}

fn total(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().sum()
}

/// How often that was, and for which reasons; nothing, when it never was.
pub(crate) fn counted(what: &str, reasons: &BTreeMap<String, u64>) -> String {
    if reasons.is_empty() {
        return String::new();
    }
    let each: String = reasons.iter().map(|(why, count)| format!("  {count}: {why}\n")).collect();
    format!("{} {what}:\n{each}", total(reasons))
}

fn one_line(tally: &Tally, took: Duration) -> String {
    format!(
        "{} tapes, {} runs ({:.1} a minute, {} go on); {} inconclusive; {} faults left out; {} found",
        tally.tapes,
        tally.runs,
        tally.runs as f64 * 60.0 / took.as_secs_f64().max(0.001),
        tally.going_on,
        total(&tally.inconclusive),
        total(&tally.left_out),
        tally.found.len()
    )
}

fn summary(tally: &Tally, shared: &Shared) -> String {
    let took = shared.began.elapsed();
    let mut text = format!(
        "{} tapes, {} runs on {} in {:.1} s ({:.1} a minute)\n",
        tally.tapes,
        tally.runs,
        shared.order.target,
        took.as_secs_f64(),
        tally.runs as f64 * 60.0 / took.as_secs_f64().max(0.001)
    );
    if shared.interrupted.is_cancelled() {
        text.push_str("ended by the user\n");
    }
    text += &counted("runs were inconclusive", &tally.inconclusive);
    text += &counted("faults were left out because that service cannot have them", &tally.left_out);
    text += &counted("tapes were not run there", &tally.not_there);
    if tally.made_plain > 0 {
        text.push_str(&format!(
            "{} interleavings had what only virtual time has (an order, phases of monitors, kills around a write): it was left out\n",
            tally.made_plain
        ));
    }
    let found =
        tally.found.iter().map(|(signature, times)| (signature.as_str(), format!("{times} of {} tapes", tally.tapes)));
    text.push_str(&wrong(found, &shared.order.known));
    text
}

/// Runs one tape after the other. The error is one of the search itself.
async fn work(shared: Arc<Shared>) -> Result<(), String> {
    while shared.begins_one() {
        let of = Arc::clone(&shared);
        let drawn = tokio::task::spawn_blocking(move || of.drawn());
        let Some((numbers, there)) = drawn.await.map_err(|error| error.to_string())?? else { continue };
        let Some(mut ours) = shared.ours(&there).await? else { continue };
        let Some(seen) = shared.run(&there, &mut ours).await? else { continue };
        // The search is worth more than its notes.
        if let Err(why) = shared.remembered.add(&numbers) {
            shared.tell(&format!("what was asked is not remembered: {why}"));
        }
        let mut new = Vec::new();
        {
            let mut tally = lock(&shared.tally);
            tally.tapes += 1;
            for violation in &seen.violations {
                let times = tally.found.entry(violation.signature.clone()).or_default();
                *times += 1;
                if *times == 1 && !shared.order.known.contains_key(&violation.signature) {
                    new.push(violation.clone());
                }
            }
        }
        match new.is_empty() {
            true => _ = std::fs::remove_dir_all(&seen.folder),
            false => Box::pin(shared.found(&there, ours, &seen, new)).await?,
        }
    }
    Ok(())
}

impl Shared {
    fn tell(&self, line: &str) {
        let begin = if std::io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
        tell(&format!("{begin}{line}\n"));
    }

    /// Is the time up, or has the user ended it?
    fn is_over(&self) -> bool {
        self.interrupted.is_cancelled() || self.limits.1.is_some_and(|most| self.began.elapsed() >= most)
    }

    /// May one more tape begin?
    fn begins_one(&self) -> bool {
        let mut begun = lock(&self.begun_tapes);
        let goes_on = !self.is_over() && self.limits.0.is_none_or(|most| *begun < most);
        *begun += u64::from(goes_on);
        goes_on
    }

    /// Draws the next tape, as that service can run it; `None`: it cannot, and that is counted.
    fn drawn(&self) -> Result<Option<(Vec<u64>, There)>, String> {
        let Order { space, catalogue, .. } = &self.order;
        let numbers = lock(&self.tapes).next(space, catalogue)?;
        let drawn = draw(space, catalogue, Draw::replay(&numbers))?;
        Ok(self.there(&drawn.base, &drawn.added).map_or_else(
            |why| {
                self.not_there(&why);
                None
            },
            |there| {
                let mut tally = lock(&self.tally);
                for left_out in &there.left_out {
                    let why = left_out.rsplit_once(": ").map_or(left_out.as_str(), |(_, why)| why);
                    *tally.left_out.entry(why.to_owned()).or_default() += 1;
                }
                tally.made_plain += u64::from(there.made_plain);
                Some((numbers, there))
            },
        ))
    }

    fn there(&self, base: &Base, added: &Added) -> Result<There, String> {
        there(base, added, &self.order.target, &self.order.catalogue)
    }

    /// Counts a tape that cannot be run there.
    fn not_there(&self, why: &str) {
        *lock(&self.tally).not_there.entry(why.to_owned()).or_default() += 1;
    }

    /// Asks the simulated service in virtual time once more; is there an answer?
    async fn ask(self: &Arc<Self>, there: &There, ours: &mut Ours) -> Result<bool, String> {
        if self.interrupted.is_cancelled() {
            return Ok(false);
        }
        let (of, there, mut asked) = (Arc::clone(self), there.clone(), std::mem::take(ours));
        let asking = tokio::task::spawn_blocking(move || {
            let answer = asked.ask(&there, &of.order.catalogue, &of.time_profile, of.longest);
            (asked, answer)
        });
        let (asked, answer) = asking.await.map_err(|error| error.to_string())?;
        *ours = asked;
        Ok(answer.unwrap_or_else(|why| {
            self.not_there(&why);
            false
        }))
    }

    /// What the simulated service makes of it; `None`: it cannot run it, or it takes too long, and that is counted.
    async fn ours(self: &Arc<Self>, there: &There) -> Result<Option<Ours>, String> {
        let mut ours = Ours::default();
        if !self.ask(there, &mut ours).await? {
            return Ok(None);
        }
        if ours.took.is_none() {
            self.not_there(&format!("it takes longer than {} s (`--longest`)", self.longest.as_secs()));
            return Ok(None);
        }
        Ok(Some(ours))
    }

    /// How the end of a run differs from that on the simulated service, in whichever order that is asked.
    async fn differences(
        self: &Arc<Self>,
        there: &There,
        ours: &mut Ours,
        end: &End,
    ) -> Result<Vec<Violation>, String> {
        loop {
            let differences = differs(&there.scenario, end, &ours.ends);
            if differences.is_empty() || !self.ask(there, ours).await? {
                return Ok(differences);
            }
        }
    }

    /// Runs it once; `None`: the run says nothing, and that is counted.
    async fn run(self: &Arc<Self>, there: &There, ours: &mut Ours) -> Result<Option<Seen>, String> {
        let choices = Choices {
            postgres_image: self.lab.postgres_image(),
            real_tools: self.lab.real_tools,
            hub: self.hub.clone(),
            ..Choices::default()
        };
        let Order { catalogue, target, .. } = &self.order;
        let mut prepared = match prepared_for(&there.scenario, catalogue, target, &self.time_profile, &choices) {
            Ok(prepared) => prepared,
            Err(why) => {
                self.not_there(&why);
                return Ok(None);
            }
        };
        prepared.alteration = self.order.alteration;
        let mut options = self.lab.options(there.source.bytes.clone(), self.interrupted.clone(), Show::Nothing);
        options.runs = self.lab.runs().join(RUNS);
        lock(&self.tally).going_on += 1;
        let outcome = Box::pin(real::run(&prepared, options)).await;
        {
            let mut tally = lock(&self.tally);
            tally.going_on -= 1;
            tally.runs += 1;
        }
        if self.interrupted.is_cancelled() {
            return Ok(None);
        }
        let result = &outcome.result;
        let inconclusive = |why: &str| {
            let why = why.lines().next().unwrap_or_default().to_owned();
            *lock(&self.tally).inconclusive.entry(why).or_default() += 1;
            Ok(None)
        };
        let Some(folder) = outcome.dir.clone() else { return inconclusive("no folder for the run") };
        let mut violations = match judged(&there.scenario, result) {
            Judged::Wrong(violations) => violations,
            Judged::Inconclusive(why) => return inconclusive(&why),
        };
        let history = match vlab_history::read(&folder.join(rundir::HISTORY)) {
            Ok(history) => history,
            Err(error) => return inconclusive(&error.to_string()),
        };
        let end = end_of(&there.scenario, &history);
        violations.extend(self.differences(there, ours, &end).await?);
        let version = result.run.versions.get("service").cloned().unwrap_or_default();
        Ok(Some(Seen { violations, refused: refusals(&history), version, folder }))
    }

    /// Runs it so often again: in how many of how many runs that said something each of these showed.
    async fn again(
        self: &Arc<Self>,
        there: &There,
        ours: &mut Ours,
        of: &[Violation],
    ) -> Result<(Vec<u32>, u32), String> {
        let (mut shown, mut runs) = (vec![0; of.len()], 0);
        for _ in 0..self.again {
            if self.interrupted.is_cancelled() {
                break;
            }
            let Some(seen) = self.run(there, ours).await? else { continue };
            runs += 1;
            for (times, violation) in shown.iter_mut().zip(of) {
                *times += u32::from(seen.violations.iter().any(|v| v.signature == violation.signature));
            }
            let _ = std::fs::remove_dir_all(&seen.folder);
        }
        Ok((shown, runs))
    }

    /// Runs what was found again, makes it small, and writes it.
    async fn found(
        self: &Arc<Self>,
        there: &There,
        mut ours: Ours,
        seen: &Seen,
        new: Vec<Violation>,
    ) -> Result<(), String> {
        for violation in &new {
            self.tell(&format!("found: {}", violation.signature));
        }
        // Is any of it ours in some order?
        while new.iter().any(|violation| !ours.shows(&violation.signature)) && self.ask(there, &mut ours).await? {}
        let (shown, runs) = self.again(there, &mut ours, &new).await?;
        for (violation, times) in new.into_iter().zip(shown) {
            let first = Small {
                there: there.clone(),
                violation,
                refused: seen.refused.clone(),
                often: (times, runs),
                is_minimal: false,
            };
            let small = Box::pin(self.lessened(first)).await?;
            self.write(&small, &ours, seen)?;
        }
        Ok(())
    }

    /// Makes a finding small, by running it without one thing after the other.
    async fn lessened(self: &Arc<Self>, found: Small) -> Result<Small, String> {
        let (k, n) = found.often;
        let mut lessen = Lessen::new(found.there.added.clone(), tries(k, n, MOST_TRIES), self.shrink_runs);
        let mut best = found.clone();
        // What has not shown again would not show either when less is done.
        while (k > 0 || n == 0) && !self.is_over() {
            let Some(candidate) = lessen.propose() else { break };
            let Ok(there) = self.there(&found.there.base, &candidate) else {
                lessen.refuse();
                continue;
            };
            let Some(mut of_it) = self.ours(&there).await? else {
                lessen.refuse();
                continue;
            };
            let seen = self.run(&there, &mut of_it).await?;
            let shows = seen.as_ref().and_then(|seen| {
                seen.violations.iter().find(|violation| violation.signature == found.violation.signature).cloned()
            });
            lessen.tell(candidate, shows.is_some());
            self.tell(&format!("  {} runs, {} lines", lessen.runs(), lessen.best().lines()));
            if let Some(seen) = seen {
                if let Some(violation) = shows {
                    best = Small { there, violation, refused: seen.refused, ..found.clone() };
                }
                let _ = std::fs::remove_dir_all(&seen.folder);
            }
        }
        let _ = lessen.propose();
        best.is_minimal = lessen.is_minimal();
        if best.there.added != found.there.added {
            let of = [best.violation.clone()];
            if let Some(mut ours) = self.ours(&best.there).await? {
                let (shown, runs) = self.again(&best.there, &mut ours, &of).await?;
                best.often = (shown[0], runs);
            }
        }
        Ok(best)
    }

    /// Writes a finding: its scenario, and its record.
    fn write(&self, small: &Small, ours: &Ours, seen: &Seen) -> Result<(), String> {
        let Small { there, violation, refused, often: (k, n), is_minimal } = small;
        let same = ours.shows(&violation.signature);
        let shows = Shows {
            target: name_of_target(&self.order.target),
            service_version: version_of(&self.order.target, &seen.version),
            time_profile: self.time_profile.clone(),
            seed: there.added.seed,
            k: *k,
            n: *n,
            same_on_simulated: same,
            from: None,
        };
        let head = [
            format!(
                "Against {} ({}), time profile {}: it showed {}.",
                shows.target,
                shows.service_version,
                shows.time_profile,
                shows.words()
            ),
            format!(
                "The simulated service {} in virtual time.",
                if same { "shows the same" } else { "does not show it" }
            ),
        ];
        let (name, source) = scenario_of(violation, &there.base, &there.added, refused, &head);
        let file = format!("{name}.yaml");
        let words = shows.words();
        let record = Record::new(violation, shows, &there.added, *is_minimal, Timestamp::now());
        write_finding(&self.findings, &name, &source.bytes, &record)?;
        let about = format!(
            "{words}; {}; the simulated service {}; run: {}",
            record.size(),
            if same { "does the same" } else { "does not" },
            seen.folder.display()
        );
        self.tell(&format!("  {file}: {about}"));
        lock(&self.tally).written.insert(file, about);
        Ok(())
    }
}

/// A finding while it is made small.
#[derive(Clone)]
struct Small {
    there: There,
    violation: Violation,
    refused: Vec<(usize, u16)>,
    /// In how many of how many runs it showed.
    often: (u32, u32),
    is_minimal: bool,
}
