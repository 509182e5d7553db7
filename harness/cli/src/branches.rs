//! `vlab explore --from`: faults and actions are drawn for the moments after a snapshot, and each drawn scenario goes on from it, in real
//! time and on machines, where the way there takes minutes and nobody would go it for each. What is wrong is run again, made small and
//! written; its scenario goes on from the same snapshot.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_drive::alterations::Alteration;
use vlab_drive::explore::against::{Judged, Lessen, judged, name_of_target, takes_longer, tries, version_of};
use vlab_drive::explore::base::{Added, Base};
use vlab_drive::explore::frozen::Window;
use vlab_drive::explore::oracle::refusals;
use vlab_drive::explore::search::drawn;
use vlab_drive::explore::{Record, Search, Shows, Space, Violation, scenario_of};
use vlab_drive::prepare::{Choices, Prepared};
use vlab_drive::target::Target;
use vlab_judge::result::exit;
use vlab_judge::verdict::COMES_TO_ITS_END;
use vlab_run::hosts::vm::Ability;
use vlab_run::live::Show;
use vlab_run::snapshot::{self, Snapshot};
use vlab_run::{real, rundir};
use vlab_scenario::{Catalogue, Scenario, SourceFile, Span};

use crate::against::counted;
use crate::args::interrupted;
use crate::error::{CliError, ExitResult, OrExit as _};
use crate::explore::{ExploreArgs, write_finding, wrong};
use crate::frozen::as_it_was;
use crate::scenario::{machines, prepare_hosts};
use crate::tools::{Setup, ensure_set_up, print, tell};

/// A candidate is tried at most so often where a finding shows only sometimes.
const MOST_TRIES: u32 = 3;
/// So many runs make a finding small, when nothing else is said: each takes a minute or two on machines.
const SHRINK_RUNS: u64 = 10;
/// So many tapes that cannot go on one after the other: then there is nothing to draw.
const MOST_IN_VAIN: u32 = 2000;
/// Why a scenario cannot go on that does something before the moment of the snapshot.
const BEFORE: &str = "it does otherwise before the snapshot";
/// Until a lab goes on it takes a moment, in which nothing can begin.
const THAWS: Duration = Duration::from_secs(2);
/// Folder of the runs below that of all runs: `latest` stays what it was.
const RUNS: &str = "explored";

/// Something that goes on from the snapshot.
struct Branch {
    added: Added,
    source: SourceFile,
    scenario: Scenario,
    prepared: Prepared,
}

/// What one run of it has shown.
struct Seen {
    violations: Vec<Violation>,
    refused: Vec<(usize, u16)>,
    version: String,
    folder: PathBuf,
}

struct Exploration<'a> {
    args: &'a ExploreArgs,
    snapshot: Arc<Snapshot>,
    base: Base,
    window: Window,
    catalogue: Catalogue,
    choices: Choices,
    ability: Option<Ability>,
    interrupted: CancellationToken,
    began: Instant,
    /// Runs that came to a verdict, and all of them.
    runs: (u64, u64),
    /// What was not run, or said nothing, by the reason.
    not_run: BTreeMap<String, u64>,
    inconclusive: BTreeMap<String, u64>,
    found: BTreeMap<String, u64>,
    known: BTreeMap<String, String>,
    written: Vec<String>,
    /// What is wrong with service or hosts on purpose.
    alteration: Option<Alteration>,
}

pub(crate) async fn explore(
    args: &ExploreArgs,
    name: &str,
    catalogue: Catalogue,
    (known, alteration): (BTreeMap<String, String>, Option<Alteration>),
) -> ExitResult {
    let complain = |why: String| CliError::usage(format!("--from: {why}"));
    let snapshot = Arc::new(Snapshot::open(&snapshot::find(&args.lab.runs(), name)).map_err(complain)?);
    let source = catalogue.find(&snapshot.manifest.called).or_usage()?;
    let mut choices = Choices { real_tools: args.lab.real_tools, ..Choices::default() };
    as_it_was(&mut choices, &snapshot)?;
    let scale = catalogue
        .time_profile(&snapshot.manifest.time_profile)
        .map_err(|error| complain(error.to_string()))?
        .clock_scale;
    let longest = Duration::from_secs(args.longest).mul_f64(scale);
    let window = Window { from: (snapshot.after() + THAWS).mul_f64(scale), long: longest / 2 };
    // Rounded: a person reads it.
    let total = Span::Service(Duration::from_secs((window.from + longest).as_secs() + 1));
    let base = Base::going_on(&source, &catalogue, total)
        .map_err(|why| CliError::usage(format!("{} cannot be built on: {why}", snapshot.manifest.called)))?;
    std::fs::create_dir_all(&args.findings)
        .map_err(|e| CliError::usage(format!("{}: {e}", args.findings.display())))?;
    let interrupted = interrupted();
    let scenario = vlab_scenario::load(&source, &catalogue).map_err(|error| complain(error.to_string()))?;
    let loaded = [(scenario, source.bytes.clone())];
    let (ability, auto) = machines(&loaded, &choices, &args.lab, &interrupted).await?;
    choices.auto = auto;
    ensure_set_up(Setup::Run, !args.lab.no_setup)?;
    let space = Space::new(vec![base.clone()], false, false);
    let mut exploration = Exploration {
        args,
        snapshot,
        base,
        window,
        catalogue,
        choices,
        ability,
        interrupted,
        began: Instant::now(),
        runs: (0, 0),
        not_run: BTreeMap::new(),
        inconclusive: BTreeMap::new(),
        found: BTreeMap::new(),
        known,
        written: Vec::new(),
        alteration,
    };
    Box::pin(exploration.search(&space)).await.map_err(CliError::internal)?;
    print(&exploration.summary());
    exploration.written.iter().for_each(|line| print(line));
    let nothing_new = exploration.found.keys().all(|what| exploration.known.contains_key(what));
    Ok(match (nothing_new, exploration.runs.0) {
        (false, _) => exit::FAILED,
        (true, 0) => exit::INCONCLUSIVE,
        (true, _) => exit::PASSED,
    })
}

impl Exploration<'_> {
    async fn search(&mut self, space: &Space) -> Result<(), String> {
        let mut search = Search::new(self.args.seed, 1, Vec::new());
        let mut in_vain = 0;
        while !self.is_over() && in_vain < MOST_IN_VAIN {
            in_vain += 1;
            let drawn = drawn(space, &self.catalogue, &search.propose())?;
            let mut added = drawn.added;
            self.window.moved(&mut added);
            // The same as the run that was frozen.
            added.seed = self.snapshot.manifest.seed;
            let mut branch = self.branch(added.clone());
            if branch.as_ref().is_err_and(|why| why == BEFORE) {
                self.window.timed(&mut added);
                branch = self.branch(added);
            }
            let branch = match branch {
                Ok(Branch { added, .. }) if added.faults.is_empty() && added.actions.is_empty() => {
                    *self
                        .not_run
                        .entry("nothing is left of it that hosts and service can have".to_owned())
                        .or_default() += 1;
                    continue;
                }
                Ok(branch) => branch,
                Err(why) => {
                    *self.not_run.entry(why).or_default() += 1;
                    continue;
                }
            };
            in_vain = 0;
            self.tell(&format!("{} {}", branch.added.faults.join(" "), branch.added.actions.join(" ")));
            if let Some(seen) = self.run(&branch).await? {
                Box::pin(self.take_in(branch, seen)).await?;
            }
        }
        Ok(())
    }

    fn tell(&self, line: &str) {
        tell(&format!(
            "{:>4} s, {} runs, {} found: {line}\n",
            self.began.elapsed().as_secs(),
            self.runs.1,
            self.found.len()
        ));
    }

    fn is_over(&self) -> bool {
        let minutes = self.args.minutes.or(self.args.runs.is_none().then_some(10.0));
        self.interrupted.is_cancelled()
            || self.args.runs.is_some_and(|most| self.runs.1 >= most)
            || minutes.is_some_and(|minutes| self.began.elapsed().as_secs_f64() >= minutes * 60.0)
    }

    /// The scenario with what was drawn, ready to go on; why it cannot. Faults that machines or this service cannot have are left out.
    fn branch(&self, added: Added) -> Result<Branch, String> {
        let ready = |added: &Added| {
            let source = self.base.with("", "", added);
            let scenario = vlab_scenario::load(&source, &self.catalogue).ok()?;
            let mut prepared = prepare_hosts(scenario.clone(), &self.catalogue, &self.choices).ok()?;
            prepared.alteration = self.alteration;
            Some(Branch { added: added.clone(), source, scenario, prepared })
        };
        let branch = ready(&added).or_else(|| {
            let mut kept = Added { faults: Vec::new(), ..added.clone() };
            for fault in &added.faults {
                kept.faults.push(fault.clone());
                if ready(&kept).is_none() {
                    kept.faults.pop();
                }
            }
            ready(&kept)
        });
        let branch = branch.ok_or("its hosts cannot have it")?;
        self.snapshot.try_out(&branch.prepared).map_err(|_| BEFORE.to_owned())?;
        Ok(branch)
    }

    /// Runs it once; `None`: the run says nothing, and that is counted.
    async fn run(&mut self, branch: &Branch) -> Result<Option<Seen>, String> {
        let mut options = self.args.lab.options(branch.source.bytes.clone(), self.interrupted.clone(), Show::Nothing);
        options.runs = self.args.lab.runs().join(RUNS);
        options.tell = |_| {};
        options.ability.clone_from(&self.ability);
        options.from = Some(Arc::clone(&self.snapshot));
        let outcome = Box::pin(real::run(&branch.prepared, options)).await;
        if self.interrupted.is_cancelled() {
            return Ok(None);
        }
        self.runs.1 += 1;
        let result = &outcome.result;
        let found = match (outcome.dir.clone(), judged(&branch.scenario, result)) {
            (Some(folder), Judged::Wrong(violations)) => Ok((folder, violations)),
            (_, Judged::Inconclusive(why)) => Err(why),
            (None, _) => Err("no folder for the run".to_owned()),
        };
        let (folder, mut violations) = match found {
            Ok(found) => found,
            Err(why) => {
                let why = why.lines().next().unwrap_or_default().to_owned();
                self.tell(&format!("inconclusive: {why}"));
                *self.inconclusive.entry(why).or_default() += 1;
                return Ok(None);
            }
        };
        if takes_longer(result) {
            violations.retain(|violation| violation.check != COMES_TO_ITS_END);
        }
        self.runs.0 += 1;
        let history = vlab_history::read(&folder.join(rundir::HISTORY)).map_err(|error| error.to_string())?;
        let version = result.run.versions.get("service").cloned().unwrap_or_default();
        Ok(Some(Seen { violations, refused: refusals(&history), version, folder }))
    }

    /// What is new in a run is run again, made small, and written.
    async fn take_in(&mut self, branch: Branch, seen: Seen) -> Result<(), String> {
        let mut new = Vec::new();
        for violation in &seen.violations {
            let times = self.found.entry(violation.signature.clone()).or_default();
            *times += 1;
            if *times == 1 && !self.known.contains_key(&violation.signature) {
                new.push(violation.clone());
            }
        }
        if new.is_empty() {
            let _ = std::fs::remove_dir_all(&seen.folder);
            return Ok(());
        }
        for violation in new {
            self.tell(&format!("found: {}", violation.signature));
            let often = self.again(&branch, &violation).await?;
            let (added, often, is_minimal) = self.lessened(&branch, &violation, often).await?;
            self.write(&added, &violation, &seen, often, is_minimal)?;
        }
        Ok(())
    }

    /// In how many of how many further runs it shows.
    async fn again(&mut self, branch: &Branch, violation: &Violation) -> Result<(u32, u32), String> {
        let (mut shown, mut runs) = (0, 0);
        for _ in 0..self.args.again {
            let Some(seen) = self.run(branch).await? else { continue };
            runs += 1;
            shown += u32::from(seen.violations.iter().any(|v| v.signature == violation.signature));
            let _ = std::fs::remove_dir_all(&seen.folder);
        }
        Ok((shown, runs))
    }

    async fn lessened(
        &mut self,
        branch: &Branch,
        violation: &Violation,
        (k, n): (u32, u32),
    ) -> Result<(Added, (u32, u32), bool), String> {
        let most = self.args.shrink_runs.unwrap_or(SHRINK_RUNS);
        let mut lessen = Lessen::new(branch.added.clone(), tries(k, n, MOST_TRIES), most);
        while k > 0 && !self.interrupted.is_cancelled() {
            let Some(candidate) = lessen.propose() else { break };
            let Ok(smaller) = self.branch(candidate.clone()) else {
                lessen.refuse();
                continue;
            };
            let seen = self.run(&smaller).await?;
            let shows =
                seen.as_ref().is_some_and(|seen| seen.violations.iter().any(|v| v.signature == violation.signature));
            lessen.tell(candidate, shows);
            if let Some(seen) = seen {
                let _ = std::fs::remove_dir_all(&seen.folder);
            }
            self.tell(&format!("  {} runs, {} lines", lessen.runs(), lessen.best().lines()));
        }
        let _ = lessen.propose();
        let mut often = (k, n);
        if lessen.best() != &branch.added
            && let Ok(smallest) = self.branch(lessen.best().clone())
        {
            often = self.again(&smallest, violation).await?;
        }
        Ok((lessen.best().clone(), often, lessen.is_minimal()))
    }

    fn write(
        &mut self,
        added: &Added,
        violation: &Violation,
        seen: &Seen,
        (k, n): (u32, u32),
        is_minimal: bool,
    ) -> Result<(), String> {
        let target = self.choices.service.clone().unwrap_or_default();
        let manifest = &self.snapshot.manifest;
        let shows = Shows {
            target: name_of_target(&target),
            service_version: version_of(&target, &seen.version),
            time_profile: manifest.time_profile.clone(),
            seed: added.seed,
            k,
            n,
            // Another one was not asked.
            same_on_simulated: target == Target::Simulated,
            from: self.snapshot.folder().file_name().map(|name| name.to_string_lossy().into_owned()),
        };
        let head = [
            format!(
                "It goes on from a snapshot: vlab scenario {} --hosts {} --snapshot-at '{}', then this file with --from.",
                manifest.called,
                if manifest.hosts == "vm" { "vm" } else { "sim" },
                manifest.at
            ),
            format!(
                "Against {} ({}), time profile {}: it showed {}.",
                shows.target,
                shows.service_version,
                shows.time_profile,
                shows.words()
            ),
        ];
        let (name, source) = scenario_of(violation, &self.base, added, &seen.refused, &head);
        let words = shows.words();
        let record = Record::new(violation, shows, added, is_minimal, Timestamp::now());
        let path = write_finding(&self.args.findings, &name, &source.bytes, &record)?;
        self.written.push(format!("{}: {words}; {}; run: {}\n", path.display(), record.size(), seen.folder.display()));
        Ok(())
    }

    fn summary(&self) -> String {
        let (said, all) = self.runs;
        let mut text = format!(
            "{all} runs from {} in {:.1} s, {said} of them with a verdict\n",
            self.snapshot.folder().display(),
            self.began.elapsed().as_secs_f64()
        );
        if self.interrupted.is_cancelled() {
            text.push_str("ended by the user\n");
        }
        text += &counted("runs were inconclusive", &self.inconclusive);
        text += &counted("scenarios were drawn and not run", &self.not_run);
        let found = self.found.iter().map(|(signature, times)| (signature.as_str(), format!("{times} of {said} runs")));
        text.push_str(&wrong(found, &self.known));
        text
    }
}
