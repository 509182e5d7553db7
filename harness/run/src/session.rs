//! Several runs: how many at once, again when they do not pass, and what they say together.
//!
//! What it looks like on a terminal is not decided here: a [`Front`] is told what happens, and how a run is to be shown.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_drive::prepare::Prepared;
use vlab_judge::result::{RunResult, Verdict};
use vlab_reports::record;
use vlab_reports::session::{Attempt, ItemOutcome, Quarantine, SESSION, SESSION_VERSION, Session, SessionItem};
use vlab_scenario::Quarantined;

use crate::real::{self, RealOptions};
use crate::rundir::session_id;
use crate::snapshot::Snapshot;

/// Folder of the sessions below the folder of the runs.
pub const SESSIONS: &str = "sessions";
/// Name of the link to the newest session.
pub const LATEST: &str = "latest";

/// The folder of a session, as people name it: its folder, its id, or [`LATEST`].
pub fn find_session(runs: &Path, name: &str) -> PathBuf {
    let direct = PathBuf::from(name);
    if direct.join(SESSION).exists() { direct } else { runs.join(SESSIONS).join(name) }
}

/// A part of the selected scenarios, for machines that share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    number: u64,
    of: u64,
}

impl std::str::FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a part: write 1/3 for the first of three");
        let (number, of) = text.split_once('/').ok_or_else(wrong)?;
        let (number, of) = (number.parse().map_err(|_| wrong())?, of.parse().map_err(|_| wrong())?);
        if (1..=of).contains(&number) { Ok(Self { number, of }) } else { Err(wrong()) }
    }
}

impl Partition {
    /// Is the scenario of that name in it? By the name alone: a new scenario moves no other one.
    pub fn has(self, name: &str) -> bool {
        // FNV-1a: the same on every machine and in every version.
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        hash % self.of == self.number - 1
    }
}

/// Something to run.
#[derive(Debug)]
pub struct RunOrder {
    /// What is run.
    pub prepared: Prepared,
    /// The scenario's text.
    pub text: Vec<u8>,
    /// Which repetition, from 1.
    pub repetition: u32,
    /// What it goes on from.
    pub from: Option<Arc<Snapshot>>,
}

impl RunOrder {
    /// Does it need all of this computer? Who measures load measures the others as well, when they run beside it; virtual
    /// machines want all of it, too.
    fn runs_alone(&self) -> bool {
        self.prepared.scenario.load.is_some() || self.prepared.has_machines()
    }

    fn item(&self, quarantine: &[Quarantined]) -> SessionItem {
        let prepared = &self.prepared;
        let known = quarantine.iter().find(|q| q.scenario == prepared.scenario.name);
        SessionItem {
            scenario: prepared.scenario.name.clone(),
            called: prepared.called.clone(),
            repetition: self.repetition,
            seed: prepared.seed,
            time_profile: prepared.time_profile.clone(),
            service: prepared.target.to_string(),
            real_node: prepared.real_node.clone(),
            hosts: prepared.hosts_chosen.then(|| prepared.hosts_kind().to_string()),
            api: prepared.other_door().map(|door| door.to_string()),
            from: self.from.as_ref().map(|from| from.folder().to_owned()),
            quarantine: known.map(|q| Quarantine {
                reason: q.reason.clone(),
                link: q.link.clone(),
                until: q.until.clone(),
            }),
            attempts: Vec::new(),
        }
    }
}

/// What is to be run, and how.
#[derive(Debug)]
pub struct SessionPlan {
    /// The runs, in the order in which they begin.
    pub orders: Vec<RunOrder>,
    /// Scenarios whose failures do not count.
    pub quarantine: Vec<Quarantined>,
    /// Folder of all runs.
    pub runs: PathBuf,
    /// Runs at once.
    pub jobs: u16,
    /// How often one that does not pass is tried again.
    pub retries: u16,
    /// One that passes only on a retry counts as passed.
    pub flaky_passes: bool,
    /// Cancelled when the user presses Ctrl-C.
    pub interrupted: CancellationToken,
}

/// Who shows a session while it goes on.
pub trait Front: Send + Sync + 'static {
    /// How a run is carried out and shown.
    fn options(&self, order: &RunOrder) -> RealOptions;
    /// A run begins.
    fn begins(&self, order: &RunOrder);
    /// A run was tried.
    fn tried(&self, order: &RunOrder, attempt: &Tried<'_>);
    /// Something went wrong with the session itself.
    fn warn(&self, problem: &str);
}

/// One attempt, and what its run has come to by it.
#[derive(Debug)]
pub struct Tried<'a> {
    /// What came of it.
    pub outcome: &'a real::RunOutcome,
    /// It is the last one; otherwise the run is tried again.
    pub last: bool,
    /// What the run has come to.
    pub came_to: ItemOutcome,
    /// How many runs of the session are through.
    pub through: usize,
}

/// What a session has come to.
#[derive(Debug)]
pub struct SessionEnd {
    /// The session.
    pub session: Session,
    /// Its folder.
    pub folder: PathBuf,
    /// What each run took: the last attempt of each, without its checks.
    pub results: Vec<RunResult>,
}

/// Runs all of a plan.
///
/// # Errors
/// The session's folder cannot be written.
pub async fn run(plan: SessionPlan, front: Arc<dyn Front>) -> std::io::Result<SessionEnd> {
    let SessionPlan { orders, quarantine, runs, jobs, retries, flaky_passes, interrupted } = plan;
    let begun = Timestamp::now();
    let session = Session {
        version: SESSION_VERSION,
        id: session_id(begun),
        started_at: begun,
        finished_at: None,
        interrupted: false,
        flaky_passes,
        jobs: usize::from(jobs),
        items: orders.iter().map(|order| order.item(&quarantine)).collect(),
    };
    let folder = runs.join(SESSIONS).join(&session.id);
    let results = Mutex::new(vec![None; session.items.len()]);
    let book = Arc::new(Book { folder, session: Mutex::new(session), results });
    book.write()?;
    if let Err(error) = point_latest(&book.folder) {
        front.warn(&format!("cannot point {} at this session: {error}", runs.join(SESSIONS).join(LATEST).display()));
    }
    let slots = Arc::new(Semaphore::new(usize::from(jobs)));
    let mut tasks = JoinSet::new();
    // A run that broke has no attempt in the book: it counts as not run. That it broke is said.
    let told = |joined: Result<(), tokio::task::JoinError>| {
        if let Err(error) = joined {
            front.warn(&format!("a run crashed: {error}"));
        }
    };
    for (index, order) in orders.into_iter().enumerate() {
        let weight = if order.runs_alone() { u32::from(jobs) } else { 1 };
        let permit = tokio::select! {
            permit = slots.clone().acquire_many_owned(weight) => permit,
            () = interrupted.cancelled() => break,
        };
        let task = Task {
            order,
            index,
            retries,
            book: Arc::clone(&book),
            front: Arc::clone(&front),
            interrupted: interrupted.clone(),
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
    book.write()?;
    let results = std::mem::take(&mut *lock(&book.results)).into_iter().flatten().collect();
    Ok(SessionEnd { session, folder: book.folder.clone(), results })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        lock(&self.session).write(&self.folder)
    }

    /// Takes in what came of an attempt; what the item has come to, and how many items are through.
    fn enter(&self, index: usize, result: &RunResult) -> (ItemOutcome, usize, std::io::Result<()>) {
        let took = RunResult {
            run: result.run.clone(),
            pivots: result.pivots.clone(),
            durations: result.durations.clone(),
            load: result.load.clone(),
            ..RunResult::default()
        };
        lock(&self.results)[index] = Some(took);
        let mut session = lock(&self.session);
        session.items[index].attempts.push(Attempt::from(result));
        let written = session.write(&self.folder);
        let through = session.items.iter().filter(|item| !item.attempts.is_empty()).count();
        (session.items[index].outcome(), through, written)
    }

    /// The line of an attempt in the list of all runs of the folder.
    fn record(&self, result: &RunResult) -> std::io::Result<()> {
        let line = record::RunRecord::of(result, &lock(&self.session).id);
        // The folder of the session is two below that of the runs.
        let runs = self.folder.parent().and_then(Path::parent).unwrap_or(Path::new("."));
        record::append(runs, &line)
    }

    fn close(&self, interrupted: bool) -> Session {
        let mut session = lock(&self.session);
        session.finished_at = Some(Timestamp::now());
        session.interrupted = interrupted;
        session.clone()
    }
}

/// The link is made beside and renamed, so that it is never missing. Without it only the word `latest` does not work.
fn point_latest(folder: &Path) -> std::io::Result<()> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { return Ok(()) };
    let beside = parent.join(format!(".{LATEST}-{}", std::process::id()));
    let _ = std::fs::remove_file(&beside);
    std::os::unix::fs::symlink(name, &beside).and_then(|()| std::fs::rename(&beside, parent.join(LATEST)))
}

/// One run of a session on its way.
struct Task {
    order: RunOrder,
    index: usize,
    retries: u16,
    book: Arc<Book>,
    front: Arc<dyn Front>,
    interrupted: CancellationToken,
}

impl Task {
    async fn run(&self) {
        self.front.begins(&self.order);
        for attempt in 0..=self.retries {
            let options = self.front.options(&self.order);
            let outcome = Box::pin(real::run(&self.order.prepared, options)).await;
            let result = &outcome.result;
            let last = attempt == self.retries
                || result.verdict == Verdict::Passed
                // What the place does not offer it will not offer the next time.
                || result.reason.as_deref().is_some_and(|reason| reason.starts_with("skipped: "))
                || self.interrupted.is_cancelled();
            let (came_to, through, written) = self.book.enter(self.index, result);
            for error in [written, self.book.record(result)].into_iter().filter_map(Result::err) {
                self.front.warn(&error.to_string());
            }
            self.front.tried(&self.order, &Tried { outcome: &outcome, last, came_to, through });
            if last {
                return;
            }
        }
    }
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
        assert!(text.parse::<Partition>().unwrap_err().contains("is not a part"));
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
