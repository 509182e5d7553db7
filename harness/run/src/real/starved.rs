//! Is this computer too busy for the run? A thread of its own looks how long the programs of the run (this one, and all that it
//! started) waited for a processor although they could have worked, and tells when that was long. Under a fast time profile half a
//! second is minutes of the service's clock: what the scenario then expects in vain is no failure of the product.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use vlab_lab::proc;
use vlab_model::history::What;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// Looks that are compared: the first and the last of them.
const LOOKS: usize = 21;
/// So much of it is worth telling.
const TOLD_FROM: Duration = Duration::from_millis(250);
/// A program that starves on is told of again when it has waited so much more, or after [`LOOKS`].
const MORE: f64 = 1.5;

/// Watches until it is dropped.
#[derive(Debug)]
pub(super) struct Starvation {
    over: Arc<AtomicBool>,
    waits: Arc<Mutex<Waits>>,
    told: mpsc::UnboundedReceiver<What>,
}

impl Starvation {
    pub(super) fn watch() -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let over = Arc::new(AtomicBool::new(false));
        let waits = Arc::<Mutex<Waits>>::default();
        let (until, of_thread) = (Arc::clone(&over), Arc::clone(&waits));
        let watching = std::thread::Builder::new().name("vlab-starved".to_owned()).spawn(move || {
            while !until.load(Ordering::Relaxed) {
                if let Some(what) = look(&of_thread)
                    && tell.send(what).is_err()
                {
                    return;
                }
                std::thread::park_timeout(LOOK);
            }
        });
        if let Err(error) = watching {
            tracing::warn!(%error, "nobody looks whether this computer is too busy");
        }
        Self { over, waits, told }
    }

    /// What there is to tell at the end: whoever watches may have had no processor either.
    pub(super) fn last(&self) -> Option<What> {
        self.over.store(true, Ordering::Relaxed);
        look(&self.waits)
    }

    /// The next time that one has starved; never, when none does.
    pub(super) async fn next(&mut self) -> What {
        match self.told.recv().await {
            Some(what) => what,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Starvation {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn look(waits: &Mutex<Waits>) -> Option<What> {
    let readings = readings();
    waits.lock().unwrap_or_else(PoisonError::into_inner).look(Instant::now(), readings)
}

/// Threads of the run's programs, and how long each has waited since it is there. Machines are no part of it: they always wait for
/// each other, and their time profile reckons with it.
fn readings() -> Vec<(u32, String, Duration)> {
    // The lab's own service and API server are started as `/proc/self/exe`.
    let called = |name: String| if name == "exe" { "vlab".to_owned() } else { name };
    let named = |pid: u32| Some((pid, called(proc::Stat::read(pid)?.comm)));
    let programs = proc::with_descendants(std::process::id()).into_iter().filter_map(named);
    let watched = programs.filter(|(_, name)| !name.starts_with("qemu"));
    let of = |(pid, name): (u32, String)| {
        proc::run_queue_waits(pid).into_iter().map(move |(thread, waited)| (thread, name.clone(), waited))
    };
    watched.flat_map(of).collect()
}

/// What was seen of threads, by their numbers.
#[derive(Debug, Default)]
struct Waits {
    seen: BTreeMap<u32, VecDeque<(Instant, Duration)>>,
    looks: usize,
    /// What was told last, and at which look.
    told: Option<(Duration, usize)>,
}

impl Waits {
    /// Thread, program, and how long it has waited since it is there.
    fn look(&mut self, now: Instant, readings: Vec<(u32, String, Duration)>) -> Option<What> {
        self.looks += 1;
        let mut seen = std::mem::take(&mut self.seen);
        let mut worst: Option<(Duration, Duration, String)> = None;
        for (thread, program, waited) in readings {
            let mut before = seen.remove(&thread).unwrap_or_default();
            // A number that another thread has now.
            if before.back().is_some_and(|(_, last)| *last > waited) {
                before.clear();
            }
            before.push_back((now, waited));
            if before.len() > LOOKS {
                before.pop_front();
            }
            let (since, already) = before.front().copied().unwrap_or((now, waited));
            let more = waited.saturating_sub(already);
            if worst.as_ref().is_none_or(|(most, ..)| more > *most) {
                worst = Some((more, now.saturating_duration_since(since), program));
            }
            self.seen.insert(thread, before);
        }
        let (waited, within, program) = worst.filter(|(waited, ..)| *waited >= TOLD_FROM)?;
        let is_news = self.told.is_none_or(|(most, at)| waited >= most.mul_f64(MORE) || self.looks - at >= LOOKS);
        is_news.then(|| {
            self.told = Some((waited, self.looks));
            What::Starved { program, waited_ms: millis(waited), within_ms: millis(within) }
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(waits: &mut Waits, readings: &[(u32, u64)]) -> Option<u64> {
        let of = |(thread, ms): &(u32, u64)| (*thread, format!("p{thread}"), Duration::from_millis(*ms));
        match waits.look(Instant::now(), readings.iter().map(of).collect()) {
            Some(What::Starved { waited_ms, .. }) => Some(waited_ms),
            _ => None,
        }
    }

    #[test]
    fn who_waits_long_is_told_and_not_again_and_again() {
        let mut waits = Waits::default();
        assert_eq!(look(&mut waits, &[(1, 9_000), (2, 0)]), None, "what was before the run");
        assert_eq!(look(&mut waits, &[(1, 9_000), (2, 200)]), None);
        assert_eq!(look(&mut waits, &[(1, 9_100), (2, 400)]), Some(400));
        assert_eq!(look(&mut waits, &[(1, 9_100), (2, 500)]), None);
        assert_eq!(look(&mut waits, &[(1, 9_100), (2, 600)]), Some(600), "half as much again");
        let told = (0..LOOKS as u64 + 2).filter_map(|i| look(&mut waits, &[(2, 600 + 50 * i)])).count();
        assert_eq!(told, 2, "it goes on: once when it was half as much again, and once when the time was over");
    }

    #[test]
    fn a_number_that_is_given_again_is_another_thread() {
        let mut waits = Waits::default();
        assert_eq!(look(&mut waits, &[(7, 5_000)]), None);
        assert_eq!(look(&mut waits, &[(7, 10)]), None);
        assert_eq!(look(&mut waits, &[(7, 300)]), Some(290));
    }

    /// Threads that do nothing but wait for each other's processor are seen.
    #[test]
    fn a_busy_computer_is_seen() {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = 4 * std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let busy: Vec<_> = (0..threads)
            .map(|_| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
            })
            .collect();
        let mut starvation = Starvation::watch();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let seen = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), starvation.next()).await });
        stop.store(true, Ordering::Relaxed);
        busy.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(matches!(seen.unwrap(), What::Starved { waited_ms: 250.., .. }));
    }
}
