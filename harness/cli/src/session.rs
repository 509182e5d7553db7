//! Several runs of one command: which, how many at once, again when they fail, and what they say together. And `rerun`, which
//! takes up what a session has left.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_drive::prepare::{Choices, Prepared};
use vlab_drive::target::Target;
use vlab_judge::result::{RunResult, Verdict};
use vlab_reports::console::{self, Style};
use vlab_reports::session::{Attempt, Item, Outcome, Quarantine, SESSION_VERSION, Session};
use vlab_run::live::{Screen, Show};
use vlab_run::real::{self, RealOptions};
use vlab_run::rundir::session_id;
use vlab_run::vm::Ability;
use vlab_scenario::{Catalogue, HostKind};

use crate::args::{Options, SeriesArgs, interrupted};
use crate::error::{CliError, Ended as Exit};
use crate::say;
use crate::scenario::{machines, prepare_hosts};
use crate::tools::{Setup, catalogue, ensure_set_up, load, print};

/// Folder of the sessions below the folder of the runs.
pub(crate) const SESSIONS: &str = "sessions";
/// Name of the link to the newest session.
const LATEST: &str = "latest";

/// How the runs of a command are carried out.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct How {
    /// Runs at once. Scenarios that measure load run alone.
    #[arg(long, short, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Try a scenario that does not pass up to so many times again, with the same seed. One that passes then is `flaky`.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=20))]
    retries: u16,
    /// What a scenario makes of the exit code that passes only at a retry: `fail` (code 7) or `pass`.
    #[arg(long, value_enum, default_value_t = FlakyResult::Fail, value_name = "RESULT")]
    flaky_result: FlakyResult,
    /// Leave the lab of each run as it is at its end; `vlab gc` removes it.
    #[arg(long)]
    keep: bool,
    /// When a run does not pass, wait for the Enter key before its lab is taken down. Needs a terminal, and one run at a time.
    #[arg(long)]
    pause_on_failure: bool,
}

/// What flaky is.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FlakyResult {
    /// Exit code 7.
    #[default]
    Fail,
    /// Exit code 0.
    Pass,
}

/// A part of the selected scenarios, for machines that share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    number: u64,
    of: u64,
}

impl std::str::FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no part: write 1/3 for the first of three");
        let (number, of) = text.split_once('/').ok_or_else(wrong)?;
        let (number, of) = (number.parse().map_err(|_| wrong())?, of.parse().map_err(|_| wrong())?);
        if (1..=of).contains(&number) { Ok(Self { number, of }) } else { Err(wrong()) }
    }
}

impl Partition {
    /// Is the scenario of that name in it? By the name alone: a new scenario moves no other one.
    pub(crate) fn has(self, name: &str) -> bool {
        // FNV-1a: the same on every machine and in every version.
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        hash % self.of == self.number - 1
    }
}

/// Something to run.
pub(crate) struct Order {
    /// What is run.
    pub(crate) prepared: Prepared,
    /// The scenario's text.
    pub(crate) text: Vec<u8>,
    /// Which repetition, from 1.
    pub(crate) repetition: u32,
}

/// What the runs of a command have come to.
pub(crate) struct Ended {
    /// Exit code.
    pub(crate) code: u8,
    /// What each run took: the last attempt of each, without its checks.
    pub(crate) results: Vec<RunResult>,
}

/// Runs all of them, as `how` says.
pub(crate) async fn run_orders(
    catalogue: &Catalogue,
    orders: Vec<Order>,
    options: &Options,
    how: &How,
    ability: Option<Ability>,
    interrupted: CancellationToken,
) -> Result<Ended, CliError> {
    let quarantine = catalogue.quarantine(Timestamp::now()).map_err(CliError::rendered)?;
    if how.pause_on_failure {
        let (stdin, stderr) = (std::io::stdin().is_terminal(), std::io::stderr().is_terminal());
        if !stdin || !stderr {
            return Err(CliError::usage(
                "--pause-on-failure waits for the Enter key, and there is no terminal; `--keep` leaves the lab as it is",
            ));
        }
        if how.jobs > 1 {
            return Err(CliError::usage("--pause-on-failure needs --jobs 1: two runs cannot wait for one keyboard"));
        }
    }
    if orders.iter().any(|order| order.prepared.target.needs_postgres_here()) {
        ensure_set_up(Setup::Run, !options.lab.no_setup)?;
    }
    let _ = vlab_lab::doctor::raise_open_files();
    let runs = options.lab.runs();
    let begun = Timestamp::now();
    let session = Session {
        version: SESSION_VERSION,
        id: session_id(begun),
        started_at: begun,
        finished_at: None,
        interrupted: false,
        flaky_passes: how.flaky_result == FlakyResult::Pass,
        jobs: usize::from(how.jobs),
        items: orders.iter().map(|order| item(order, &quarantine)).collect(),
    };
    let folder = runs.join(SESSIONS).join(&session.id);
    let all = session.items.len();
    let results = Mutex::new(vec![None; all]);
    let book = Arc::new(Book { folder, session: Mutex::new(session), results });
    let unwritten = |error| CliError::inconclusive(format!("inconclusive: the session's folder: {error}"));
    book.write().map_err(unwritten)?;
    point_latest(&book.folder);
    let screen = Screen::default();
    let slots = Arc::new(Semaphore::new(usize::from(how.jobs)));
    let mut tasks = JoinSet::new();
    for (index, order) in orders.into_iter().enumerate() {
        // Who measures load measures the others as well, when they run beside it.
        // Virtual machines want all of the machine, too.
        let alone = order.prepared.scenario.load.is_some() || order.prepared.has(HostKind::Vm);
        let weight = if alone { u32::from(how.jobs) } else { 1 };
        let permit = tokio::select! {
            permit = slots.clone().acquire_many_owned(weight) => permit,
            () = interrupted.cancelled() => break,
        };
        let task = Task {
            order: Arc::new(order),
            index,
            all,
            book: book.clone(),
            screen: screen.clone(),
            interrupted: interrupted.clone(),
            options: options.clone(),
            how: how.clone(),
            ability: ability.clone(),
        };
        tasks.spawn(async move {
            let _permit = permit;
            task.run().await;
        });
        while let Some(joined) = tasks.try_join_next() {
            told(joined);
        }
    }
    while let Some(joined) = tasks.join_next().await {
        told(joined);
    }
    let session = book.close(interrupted.is_cancelled());
    if all > 1 {
        let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        print(&format!("\n{}session: {}\n", session.table(color), book.folder.display()));
    }
    book.write().map_err(unwritten)?;
    let results = std::mem::take(&mut *book.results.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Ended { code: session.exit_code(), results: results.into_iter().flatten().collect() })
}

/// A run that broke has no attempt in the book: it counts as not run. That it broke is said.
fn told(joined: Result<(), tokio::task::JoinError>) {
    if let Err(error) = joined {
        say(&format!("a run broke: {error}"));
    }
}

fn item(order: &Order, quarantine: &[vlab_scenario::Quarantined]) -> Item {
    let prepared = &order.prepared;
    let known = quarantine.iter().find(|q| q.scenario == prepared.scenario.name);
    Item {
        scenario: prepared.scenario.name.clone(),
        called: prepared.called.clone(),
        repetition: order.repetition,
        seed: prepared.seed,
        time_profile: prepared.time_profile.clone(),
        service: prepared.target.to_string(),
        quarantine: known.map(|q| Quarantine {
            reason: q.reason.clone(),
            link: q.link.clone(),
            until: q.until.clone(),
        }),
        attempts: Vec::new(),
    }
}

/// The session, and where it is written.
struct Book {
    folder: PathBuf,
    session: Mutex<Session>,
    /// What the last attempt of each item took.
    results: Mutex<Vec<Option<RunResult>>>,
}

impl Book {
    fn write(&self) -> std::io::Result<()> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).write(&self.folder)
    }

    /// Takes in what came of an attempt; what the item has come to, and how many items are through.
    fn enter(&self, index: usize, result: &RunResult, last: bool) -> (Outcome, usize) {
        let took = RunResult {
            run: result.run.clone(),
            pivots: result.pivots.clone(),
            durations: result.durations.clone(),
            ..RunResult::default()
        };
        self.results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(took);
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.items[index].attempts.push(Attempt::from(result));
        if let Err(error) = session.write(&self.folder) {
            say(&error.to_string());
        }
        let through = session.items.iter().filter(|i| !i.attempts.is_empty()).count();
        let outcome = session.items[index].outcome();
        (outcome, if last { through } else { 0 })
    }

    fn close(&self, interrupted: bool) -> Session {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.finished_at = Some(Timestamp::now());
        session.interrupted = interrupted;
        session.clone()
    }
}

/// The link is made beside and renamed, so that it is never missing. Without it only the word `latest` does not work.
fn point_latest(folder: &Path) {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { return };
    let beside = parent.join(format!(".{LATEST}-{}", std::process::id()));
    let _ = std::fs::remove_file(&beside);
    let done = std::os::unix::fs::symlink(name, &beside).and_then(|()| std::fs::rename(&beside, parent.join(LATEST)));
    if let Err(error) = done {
        say(&format!("cannot point {} at this session: {error}", parent.join(LATEST).display()));
    }
}

/// One item of a session on its way.
struct Task {
    order: Arc<Order>,
    index: usize,
    all: usize,
    book: Arc<Book>,
    screen: Screen,
    interrupted: CancellationToken,
    options: Options,
    how: How,
    ability: Option<Ability>,
}

impl Task {
    async fn run(&self) {
        let name = &self.order.prepared.scenario.name;
        let looked_at = !self.options.quiet && std::io::stderr().is_terminal();
        if self.all > 1 && !looked_at && !self.options.quiet {
            eprintln!("{name} begins");
        }
        if let Some(why) = &self.order.prepared.hosts_why {
            let hosts = if self.order.prepared.has(HostKind::Vm) { "virtual machines" } else { "SIMULATED" };
            self.screen.suspend(|| say(&format!("{name}: its hosts are {hosts}: {why}")));
        }
        for attempt in 0..=self.how.retries {
            let outcome = Box::pin(real::run(&self.order.prepared, self.real_options(looked_at))).await;
            let result = &outcome.result;
            let last = attempt == self.how.retries
                || result.verdict == Verdict::Passed
                // What the place does not offer it will not offer the next time.
                || result.reason.as_deref().is_some_and(|reason| reason.starts_with("skipped: "))
                || self.interrupted.is_cancelled();
            let (came_to, through) = self.book.enter(self.index, result, last);
            let mut text = match (self.all, result.verdict) {
                (1, _) | (_, Verdict::Failed | Verdict::Inconclusive) => console::render(result, style()),
                (_, Verdict::Passed) => console::closing_line(result, style()),
            };
            if !last {
                text.push_str("it is tried again\n");
            } else if matches!(came_to, Outcome::Flaky | Outcome::Quarantined) {
                text.push_str(&format!("{name} is {}\n", came_to.as_str()));
            }
            if let Some(dir) = outcome.dir.as_deref().filter(|_| self.all == 1 || result.verdict != Verdict::Passed) {
                text.push_str(&format!("report: {}\n", dir.join("report.html").display()));
            }
            if !outcome.kept.is_empty() {
                text.push_str("the lab is kept; `vlab gc` removes it:\n");
                outcome.kept.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
            }
            if last && self.all > 1 {
                text = format!("[{through}/{}] {text}", self.all);
            }
            self.screen.suspend(|| print(&text));
            if last {
                return;
            }
        }
    }

    fn real_options(&self, looked_at: bool) -> RealOptions {
        let live = match (looked_at, self.how.jobs) {
            (false, _) => Show::Nothing,
            (true, 1) => Show::Hosts(self.screen.clone()),
            (true, _) => Show::Line(self.screen.clone()),
        };
        let mut options = self.options.lab.options(self.order.text.clone(), self.interrupted.clone(), live);
        options.ability.clone_from(&self.ability);
        options.keep = self.how.keep;
        options.pause_on_failure = self.how.pause_on_failure;
        options
    }
}

/// How this terminal is.
pub(crate) fn style() -> Style {
    let variable = |name: &str| std::env::var(name).ok();
    Style::of(variable("NO_COLOR").as_deref(), variable("COLUMNS").as_deref(), std::io::stdout().is_terminal(), None)
}

#[derive(clap::Args)]
pub(crate) struct RerunArgs {
    /// A session: its folder, its id, or `latest`.
    #[arg(default_value = LATEST)]
    session: String,
    /// Those that failed, were inconclusive or were not run, with the seeds that they had. This is what happens without an option.
    #[arg(long, conflicts_with = "all")]
    failed: bool,
    /// All of them.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    options: Options,
}

/// The folder of a session, as people give it.
pub(crate) fn find_session(runs: &Path, name: &str) -> PathBuf {
    let direct = PathBuf::from(name);
    if direct.join(vlab_reports::session::SESSION).exists() { direct } else { runs.join(SESSIONS).join(name) }
}

pub(crate) async fn rerun(args: RerunArgs) -> Exit {
    let catalogue = catalogue()?;
    let runs = args.options.lab.runs();
    let session = Session::read(&find_session(&runs, &args.session)).map_err(|error| {
        CliError::usage(format!("{error}; `vlab scenario` with several scenarios or `--repeat` leaves a session"))
    })?;
    let items: Vec<&Item> = if args.all { session.items.iter().collect() } else { session.not_passed().collect() };
    if items.is_empty() {
        let why = format!("all {} runs of {} passed; `--all` repeats them", session.items.len(), session.id);
        return Err(CliError::nothing_selected(why));
    }
    let interrupted = interrupted();
    let mut loaded = Vec::new();
    for item in items {
        let scenario = load(&catalogue, &item.called)?;
        let service: Target =
            item.service.parse().map_err(|error| CliError::usage(format!("{}: {error}", session.id)))?;
        loaded.push((item, scenario, service));
    }
    let scenarios: Vec<_> = loaded.iter().map(|(_, scenario, _)| scenario.clone()).collect();
    // A session has one service for all.
    let service = loaded.first().map(|(_, _, service)| service.clone());
    let asked = Choices { service, ..Choices::default() };
    let (ability, auto) = machines(&scenarios, &asked, &args.options.lab, &interrupted).await?;
    let mut orders = Vec::new();
    for (item, (scenario, text), service) in loaded {
        let choices = Choices {
            seed: Some(item.seed),
            time_profile: Some(item.time_profile.clone()),
            service: Some(service),
            auto: auto.clone(),
            real_tools: args.options.lab.real_tools,
            ..Choices::default()
        };
        let prepared = prepare_hosts(scenario, &catalogue, &choices).map_err(CliError::rendered)?;
        orders.push(Order { prepared, text, repetition: item.repetition });
    }
    let ended = run_orders(&catalogue, orders, &args.options, &args.how, ability, interrupted).await?;
    SeriesArgs::default().show_each(&ended.results, None)?;
    Ok(ended.code)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0/3")]
    #[case("4/3")]
    #[case("1")]
    #[case("a/b")]
    #[case("1/0")]
    fn no_part(#[case] text: &str) {
        assert!(text.parse::<Partition>().unwrap_err().contains("is no part"));
    }

    #[test]
    fn parts_are_disjoint_complete_and_known_forever() {
        let names: Vec<String> = (0..200).map(|n| format!("scenario-{n}")).collect();
        let mut sizes = [0; 3];
        for name in &names {
            let parts: Vec<usize> =
                (1..=3).filter(|n| format!("{n}/3").parse::<Partition>().unwrap().has(name)).collect();
            assert_eq!(parts.len(), 1, "{name}");
            sizes[parts[0] - 1] += 1;
        }
        assert!(sizes.iter().all(|size| *size > 40), "{sizes:?}");
        assert!(names.iter().all(|name| "1/1".parse::<Partition>().unwrap().has(name)));
        // A constant of the tool: who changes it moves scenarios between the machines of everybody.
        assert!(
            "2/4".parse::<Partition>().unwrap().has("sno"),
            "{:?}",
            (1..=4).find(|n| format!("{n}/4").parse::<Partition>().unwrap().has("sno"))
        );
    }
}
