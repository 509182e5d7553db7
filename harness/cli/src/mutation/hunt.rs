//! `vlab mutation --by-search`: how many alterations a search finds that knows none of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use vlab_drive::alterations::Alteration;
use vlab_drive::alterations::hunt::{Hunt, Hunted};
use vlab_drive::explore::end::ENDS_ALIKE;
use vlab_drive::explore::{Base, Space};
use vlab_judge::result::exit;

use super::{Lines, read};
use crate::error::{CliError, ExitResult};
use crate::explore::{quiet_panics, read_corpus};
use crate::say;
use crate::tools::{catalogue, print};

#[derive(clap::Args)]
pub(crate) struct HuntArgs {
    /// Instead of the catalogue and the conformance suite: a search, with so many seconds of processor time for each alteration. What came
    /// of each is a line of the file of results.
    #[arg(long, value_name = "SECONDS")]
    by_search: Option<u64>,
    /// With `--by-search`: tapes to begin with, as `vlab explore --corpus` keeps them.
    #[arg(long, value_name = "DIR", requires = "by_search")]
    corpus: Option<PathBuf>,
    /// With `--by-search`: a scenario to build on; the option may be given several times. Without it the grammar draws them, as `vlab explore` does.
    #[arg(long, value_name = "SCENARIO", requires = "by_search")]
    build_on: Vec<String>,
}

/// A line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    name: String,
    /// What was found; nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
    runs: u64,
    /// Processor time.
    seconds: f64,
    /// How many of the tapes to begin with use what is altered.
    #[serde(default)]
    touched: usize,
}

impl super::Named for Row {
    fn name(&self) -> &str {
        &self.name
    }
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

impl HuntArgs {
    /// For how long is each alteration looked for, if that is wanted?
    pub(super) fn most(&self) -> Option<Duration> {
        self.by_search.map(Duration::from_secs)
    }

    /// Looks for all of them that are not in the file yet.
    pub(super) fn hunt(&self, selected: &[Alteration], lines: &Lines<'_>) -> ExitResult {
        let most = self.most().unwrap_or_default();
        let catalogue = catalogue()?;
        let mut bases = Vec::new();
        for name in &self.build_on {
            let source = catalogue.find(name).map_err(CliError::usage)?;
            let base = Base::new(&source, &catalogue);
            bases.push(base.map_err(|why| CliError::usage(format!("{name} cannot be built on: {why}")))?);
        }
        let space = Space::new(bases, self.build_on.is_empty(), true);
        // Nothing of a scenario that is asked over REST can show what is wrong with controllers.
        let over_kube = space.grammar || space.bases.iter().any(|base| base.kube);
        let (selected, left_out): (Vec<Alteration>, Vec<Alteration>) =
            selected.iter().partition(|a| over_kube || !a.is_of_controllers());
        if !left_out.is_empty() {
            say(&format!(
                "{} alterations of controllers are left out: build on scenarios over Kubernetes, too",
                left_out.len()
            ));
        }
        let tapes = match &self.corpus {
            Some(folder) => {
                let (tapes, others) = read_corpus(folder, &[space.digest()])?;
                if tapes.is_empty() || others > 0 {
                    let why = format!(
                        "{} has {} tapes, {others} of them of another space: make them with `vlab {} --corpus DIR`",
                        folder.display(),
                        tapes.len(),
                        ["explore"]
                            .into_iter()
                            .chain(self.build_on.iter().map(String::as_str))
                            .collect::<Vec<_>>()
                            .join(" ")
                    );
                    return Err(CliError::usage(why));
                }
                tapes
            }
            None => Vec::new(),
        };
        let mut rows: BTreeMap<String, Row> = read(lines.path)?;
        let open: Vec<Alteration> = selected.iter().copied().filter(|a| !rows.contains_key(&a.name())).collect();
        if !open.is_empty() {
            quiet_panics();
            let began = Instant::now();
            let hunt = Hunt::new(space, catalogue, 1, &tapes).map_err(CliError::internal)?;
            say(&format!("{} tapes of the service as it is ({:.0?})", hunt.tapes(), began.elapsed()));
            let found = hunt_all(&hunt, &open, most, lines);
            let _ = std::panic::take_hook();
            rows.extend(found?);
        }
        let of_selected: Vec<&Row> = selected.iter().filter_map(|a| rows.get(&a.name())).collect();
        print(&summary(&of_selected, most));
        Ok(if of_selected.iter().all(|row| row.signature.is_some()) { exit::PASSED } else { exit::FAILED })
    }
}

fn hunt_all(
    hunt: &Hunt,
    open: &[Alteration],
    most: Duration,
    lines: &Lines<'_>,
) -> Result<Vec<(String, Row)>, CliError> {
    let file = lines.open()?;
    let (next, rows, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..lines.jobs.max(1) {
            scope.spawn(|| {
                while let Some(alteration) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let hunted = match hunt.look_for(*alteration, most, &processor_time) {
                        Ok(hunted) => hunted,
                        Err(why) => {
                            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                            return;
                        }
                    };
                    let row = row(alteration.name(), hunted);
                    let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
                    tell(rows.len() + 1, open.len(), &row);
                    file.add(&row);
                    rows.push((row.name.clone(), row));
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(why) => Err(CliError::internal(why)),
        None => Ok(rows.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

fn row(name: String, hunted: Hunted) -> Row {
    let signature = hunted.found.map(|violation| violation.signature);
    let seconds = (hunted.took.as_secs_f64() * 100.0).round() / 100.0;
    Row { name, signature, runs: hunted.runs, seconds, touched: hunted.touched }
}

fn tell(number: usize, of: usize, row: &Row) {
    let what = row.signature.as_deref().unwrap_or("NOT FOUND");
    say(&format!("{number}/{of} {}: {what} ({} runs, {:.1} s)", row.name, row.runs, row.seconds));
}

/// How many were found, and by what; each family apart.
fn summary(rows: &[&Row], most: Duration) -> String {
    let is_compared = |row: &&&Row| {
        let id = ENDS_ALIKE.split(':').next().unwrap_or_default();
        row.signature.as_deref().is_some_and(|signature| signature.starts_with(id))
    };
    let line = |rows: &[&Row]| {
        let found: Vec<&&Row> = rows.iter().filter(|row| row.signature.is_some()).collect();
        let compared = found.iter().filter(|row| is_compared(row)).count();
        let mut seconds: Vec<f64> = found.iter().map(|row| row.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
        let percent = found.len() as f64 * 100.0 / rows.len().max(1) as f64;
        let must = found.len() - compared;
        format!("{} | {} ({percent:.1} %) | {must} | {compared} | {median:.1} s |", rows.len(), found.len())
    };
    let mut families: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        families.entry(row.name.split('/').next().unwrap_or_default()).or_default().push(row);
    }
    let mut text = String::new();
    for row in rows.iter().filter(|row| row.signature.is_none()) {
        let _ = writeln!(text, "not found: {} ({} runs; {} tapes use it)", row.name, row.runs, row.touched);
    }
    let _ = writeln!(
        text,
        "\n| what is altered | looked for | found within {} s | what must always hold | the end, compared | median of those found |",
        most.as_secs()
    );
    let _ = writeln!(text, "| --- | ---: | ---: | ---: | ---: | ---: |");
    for (family, rows) in &families {
        let _ = writeln!(text, "| {family} | {}", line(rows));
    }
    let _ = writeln!(text, "| all | {}", line(rows));
    text
}
