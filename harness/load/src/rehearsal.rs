//! A plan in virtual time: all of its installations, against one simulated service in memory, with a clock that jumps from one thing that
//! happens to the next. It needs no hardware for the fleet, and says what the real service's intervals and batches do to it: how long its
//! monitors' passes take when each look takes so long, what that does to installations, and how many requests a second come.
//!
//! Requests are answered in no time: what a service can answer is measured (see [`crate::generate`]), not rehearsed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use vlab_agents::ingress::LAB_INGRESS_PEM;
use vlab_api::Timestamp;
use vlab_api::actor::{Reply, Send};
use vlab_api::ops::operation_of;
use vlab_drive::conductor::{Conductor, Ending};
use vlab_drive::prepare::Prepared;
use vlab_drive::simulate::{BEGINNING, ONE_WAY};
use vlab_scenario::{Catalogue, LoadMode, LoadPlan};
use vlab_service::{Core, CoreConfig, Monitor, Pace, Pass, Snapshot, Write};

use crate::generate::{LoadError, Tell};
use crate::installs::{Outcome, conductor, ready, seed_of};
use crate::record::{histogram_of_spans, micros_of_span};
use crate::result::{Check, Installs, Values};
use crate::schedule::{Part, beginnings};

/// Where the service would be.
const SERVICE: &str = "http://127.0.0.1:8090";
/// Wall time between two lines that say how far it is.
const LIVE: Duration = Duration::from_secs(2);
/// The version of the form.
const VERSION: u32 = 1;

/// What is decided beside the plan.
pub struct Options {
    /// How long the monitors' looks take.
    pub pace: Pace,
    /// Ends it.
    pub stop: CancellationToken,
    /// Hears how far it is.
    pub live: Option<Tell>,
}

/// What came of a plan in virtual time. Times are the service's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rehearsal {
    /// Version of the form.
    pub version: u32,
    /// Name of the plan.
    pub plan: String,
    /// The time profile.
    pub time_profile: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// Hosts of the plan.
    pub hosts: u32,
    /// What came of the installations.
    pub installs: Installs,
    /// Requests by operation.
    pub requests: BTreeMap<String, Asked>,
    /// Requests in each second.
    pub per_second: Vec<u32>,
    /// Rows and events that were written.
    pub written: u64,
    /// The passes of the monitor of hosts.
    pub host_monitor: Passes,
    /// Those of the monitor of clusters.
    pub cluster_monitor: Passes,
    /// How much of the service's time it was, in seconds.
    pub took_s: f64,
    /// How long it took here, in seconds of the wall clock.
    pub wall_s: f64,
    /// Why it ended before its time; empty: it did not.
    pub cut_short: String,
    /// The plan's thresholds that can be judged.
    pub checks: Vec<Check>,
    /// Those that cannot, and why.
    pub not_judged: Vec<String>,
}

/// How often an operation was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// In all.
    pub requests: u64,
    /// Of these with an answer of 400 or above, by status.
    pub refused: BTreeMap<u16, u64>,
}

/// The passes of a monitor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Passes {
    /// Between the beginnings of two, if one does not take longer, in seconds.
    pub interval_s: f64,
    /// How long a look takes, in milliseconds.
    pub look_ms: f64,
    /// How many there were.
    pub count: u64,
    /// How many took longer than the interval.
    pub overdue: u64,
    /// How many ended before they had seen everything, because their time was over.
    pub cut_short: u64,
    /// How long they took, in microseconds.
    pub took: Values,
    /// What the largest one looked at.
    pub looked_at_most: u64,
}

impl Passes {
    fn new(interval: Duration, look: Duration) -> Self {
        Self { interval_s: interval.as_secs_f64(), look_ms: look.as_secs_f64() * 1000.0, ..Self::default() }
    }
}

/// Something that is due.
enum Due {
    Begin,
    Request(Send),
    Answer(Reply),
}

/// What the heap has of it: when, in which order, of which installation, and whether it is more than a wake-up.
type Entry = Reverse<(Timestamp, u64, usize)>;

/// One installation that goes on.
struct Going {
    conductor: Conductor,
    begins: Timestamp,
    /// The wake-up that is in the heap.
    wakes: Option<(Timestamp, u64)>,
}

struct World<'a> {
    plan: &'a LoadPlan,
    kinds: Vec<Prepared>,
    /// Which kind each slot is of.
    kind_of: Vec<(usize, u32)>,
    core: Core,
    going: Vec<Option<Going>>,
    rounds: Vec<u64>,
    heap: BinaryHeap<Entry>,
    due: BTreeMap<u64, Due>,
    next: u64,
    installs: Installs,
    took: hdrhistogram::Histogram<u64>,
    begun_and_not_ended: u64,
    requests: BTreeMap<&'static str, Asked>,
    per_second: Vec<u32>,
    written: u64,
    passes: BTreeMap<Monitor, (Passes, hdrhistogram::Histogram<u64>)>,
}

/// Plays the plan.
///
/// # Errors
/// [`LoadError::Scenario`] for a scenario that cannot be played so; [`LoadError::NotVirtual`] for a plan without installations.
pub fn rehearse(plan: &LoadPlan, catalogue: &Catalogue, options: Options) -> Result<Rehearsal, LoadError> {
    let begun = Instant::now();
    let unfit = || LoadError::NotVirtual { plan: plan.name.clone(), mode: plan.mode.as_str() };
    if plan.mode != LoadMode::Installs {
        return Err(unfit());
    }
    let ready = ready(plan, catalogue, SERVICE)?;
    let config = ready.kinds.first().map(|kind| kind.core_config(SERVICE)).ok_or_else(unfit)?;
    let mut world = World::new(plan, ready.kinds, config, options.pace);
    let mut now = BEGINNING;
    let over = BEGINNING + plan.takes();
    world.core.wake(now);
    world.stored();
    let mut told = Instant::now();
    let mut steps = 0_u32;
    let cut_short = loop {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(1024) {
            if options.stop.is_cancelled() {
                break "it was interrupted".to_owned();
            }
            if told.elapsed() >= LIVE
                && let Some(live) = &options.live
            {
                told = Instant::now();
                live(&world.how_far(now));
            }
        }
        match world.step(now) {
            Some(then) if then <= over => now = then,
            _ => break String::new(),
        }
    };
    Ok(world.end(now, cut_short, begun))
}

impl<'a> World<'a> {
    fn new(plan: &'a LoadPlan, kinds: Vec<Prepared>, config: CoreConfig, pace: Pace) -> Self {
        let settings = &config.settings;
        let of = |interval, look| (Passes::new(interval, look), histogram_of_spans());
        let passes = BTreeMap::from([
            (Monitor::Hosts, of(settings.host_monitor_interval, pace.host)),
            (Monitor::Clusters, of(settings.cluster_monitor_interval, pace.cluster)),
        ]);
        let mut world = Self {
            plan,
            kinds,
            kind_of: Vec::new(),
            core: Core::new(config, Snapshot::default()).with_pace(pace),
            going: Vec::new(),
            rounds: Vec::new(),
            heap: BinaryHeap::new(),
            due: BTreeMap::new(),
            next: 0,
            installs: Installs::default(),
            took: histogram_of_spans(),
            begun_and_not_ended: 0,
            requests: BTreeMap::new(),
            per_second: Vec::new(),
            written: 0,
            passes,
        };
        for beginning in beginnings(plan, Part::WHOLE) {
            world.kind_of.push((beginning.kind, beginning.slot));
            world.going.push(None);
            world.rounds.push(0);
            world.push(BEGINNING + beginning.at, world.kind_of.len() - 1, Due::Begin);
        }
        world
    }

    fn push(&mut self, at: Timestamp, slot: usize, due: Due) {
        self.heap.push(Reverse((at, self.next, slot)));
        self.due.insert(self.next, due);
        self.next += 1;
    }

    /// Does the next thing; when that was. `None`: nothing is left to do.
    fn step(&mut self, now: Timestamp) -> Option<Timestamp> {
        // Nobody is there any more, and none will come: the service by itself would look for ever.
        if self.begun_and_not_ended == 0 && self.due.is_empty() {
            return None;
        }
        let arrives = self.heap.peek().map(|Reverse((at, ..))| *at)?;
        // At one instant the service's own clockwork comes first.
        if let Some(at) = self.core.next_wake().filter(|at| *at <= arrives) {
            let then = at.max(now);
            self.core.wake(then);
            self.stored();
            for pass in self.core.take_passes() {
                self.note(pass);
            }
            return Some(then);
        }
        let Reverse((at, number, slot)) = self.heap.pop()?;
        let then = at.max(now);
        match self.due.remove(&number) {
            Some(Due::Begin) => self.begin(then, slot),
            Some(Due::Request(send)) => self.ask(then, slot, send),
            Some(Due::Answer(reply)) => {
                if let Some(going) = &mut self.going[slot] {
                    going.conductor.deliver(then, reply);
                }
                self.settle(then, slot);
            }
            // A wake-up, if it is still wanted.
            None => {
                let going = self.going[slot].as_mut().filter(|going| going.wakes == Some((at, number)));
                if let Some(going) = going {
                    going.wakes = None;
                    going.conductor.wake(then);
                    self.settle(then, slot);
                }
            }
        }
        Some(then)
    }

    fn begin(&mut self, now: Timestamp, slot: usize) {
        let (kind, number) = self.kind_of[slot];
        let kind = &self.kinds[kind];
        let seed = seed_of(self.plan.seed, number, self.rounds[slot]);
        let mut conductor = conductor(self.plan, kind, seed, true, LAB_INGRESS_PEM.to_owned());
        conductor.start(now);
        self.going[slot] = Some(Going { conductor, begins: now, wakes: None });
        self.installs.begun += 1;
        self.begun_and_not_ended += 1;
        self.settle(now, slot);
    }

    /// A request reaches the service.
    fn ask(&mut self, now: Timestamp, slot: usize, send: Send) {
        let second = usize::try_from(now.since(BEGINNING).as_secs()).unwrap_or(usize::MAX);
        if self.per_second.len() <= second {
            self.per_second.resize(second + 1, 0);
        }
        self.per_second[second] += 1;
        let operation = operation_of(send.request.method, &send.request.path).unwrap_or("other");
        let response = self.core.handle(now, &send.request);
        let asked = self.requests.entry(operation).or_default();
        asked.requests += 1;
        if response.status >= 400 {
            *asked.refused.entry(response.status).or_default() += 1;
        }
        self.stored();
        let reply = Reply { connection: send.connection, tag: send.tag, result: Ok(response) };
        self.push(now + ONE_WAY, slot, Due::Answer(reply));
    }

    /// What the service changed is stored.
    fn stored(&mut self) {
        let kept = |write: &&Write| !matches!(write, Write::PutFile(_));
        self.written += self.core.take_writes().iter().filter(kept).count() as u64;
        self.core.confirm();
    }

    /// After an installation did something: it may want to ask, to be woken, or be over.
    fn settle(&mut self, now: Timestamp, slot: usize) {
        let Some(going) = &mut self.going[slot] else { return };
        let sends = going.conductor.take_sends();
        let ending = going.conductor.ending(now);
        for send in sends {
            self.push(now + ONE_WAY, slot, Due::Request(send));
        }
        if let Some(ending) = ending {
            return self.ended(now, slot, ending);
        }
        let Some(going) = &mut self.going[slot] else { return };
        let wakes = going.conductor.next_wake().map(|at| at.max(now));
        if wakes != going.wakes.map(|(at, _)| at) {
            going.wakes = wakes.map(|at| (at, self.next));
            if let Some(at) = wakes {
                self.heap.push(Reverse((at, self.next, slot)));
                self.next += 1;
            }
        }
    }

    fn ended(&mut self, now: Timestamp, slot: usize, ending: Ending) {
        let Some(mut going) = self.going[slot].take() else { return };
        self.begun_and_not_ended -= 1;
        match Outcome::of(ending, going.conductor.recorder().observations(), going.begins) {
            Outcome::Installed(after) => {
                self.installs.installed += 1;
                self.took.saturating_record(micros_of_span(after));
            }
            Outcome::Otherwise(how) => self.installs.ended_as(&how),
        }
        if self.plan.back_to_back {
            self.rounds[slot] += 1;
            self.push(now, slot, Due::Begin);
        }
    }

    fn note(&mut self, pass: Pass) {
        let Some((passes, took)) = self.passes.get_mut(&pass.monitor) else { return };
        passes.count += 1;
        passes.overdue += u64::from(pass.took.as_secs_f64() > passes.interval_s);
        passes.cut_short += u64::from(pass.cut_short);
        passes.looked_at_most = passes.looked_at_most.max(pass.looked);
        took.saturating_record(micros_of_span(pass.took));
    }

    fn how_far(&self, now: Timestamp) -> String {
        let at = now.since(BEGINNING).as_secs();
        let Installs { begun, installed, .. } = self.installs;
        let requests: u64 = self.requests.values().map(|asked| asked.requests).sum();
        format!(
            "{} of {}: {begun} begun, {installed} installed, {} under way; {requests} requests",
            span(at as f64),
            span(self.plan.takes().as_secs_f64()),
            self.begun_and_not_ended
        )
    }

    fn end(mut self, now: Timestamp, cut_short: String, begun: Instant) -> Rehearsal {
        if self.begun_and_not_ended > 0 {
            let left = self.begun_and_not_ended;
            self.installs.ended_otherwise.insert("under way when the plan was over".to_owned(), left);
        }
        self.installs.took = Values::from(self.took);
        let mut passes = self.passes.into_values().map(|(passes, took)| Passes { took: Values::from(took), ..passes });
        let (host_monitor, cluster_monitor) = (passes.next().unwrap_or_default(), passes.next().unwrap_or_default());
        let mut rehearsal = Rehearsal {
            version: VERSION,
            plan: self.plan.name.clone(),
            time_profile: self.kinds.first().map(|kind| kind.time_profile.clone()).unwrap_or_default(),
            seed: self.plan.seed,
            hosts: self.plan.hosts,
            installs: self.installs,
            requests: self.requests.into_iter().map(|(name, asked)| (name.to_owned(), asked)).collect(),
            per_second: self.per_second,
            written: self.written,
            host_monitor,
            cluster_monitor,
            took_s: now.since(BEGINNING).as_secs_f64(),
            wall_s: begun.elapsed().as_secs_f64(),
            cut_short,
            checks: Vec::new(),
            not_judged: Vec::new(),
        };
        rehearsal.judge(self.plan, self.kind_of.len() as u64);
        rehearsal
    }
}

impl Rehearsal {
    /// Which thresholds hold.
    fn judge(&mut self, plan: &LoadPlan, wanted: u64) {
        let of = &plan.thresholds;
        let (all, refused) = (self.asked(), self.refused());
        let mut check = |name: &str, holds: bool, seen: String| {
            self.checks.push(Check { name: name.to_owned(), holds, seen });
        };
        if let Some(percent) = of.installed_percent {
            let seen = 100.0 * self.installs.installed as f64 / wanted.max(1) as f64;
            check("installed_percent", seen >= percent, format!("{seen:.1} % of {wanted}, wanted {percent} %"));
        }
        if let Some(most) = of.installed_p99 {
            let seen = self.installs.took.quantile_ms(0.99) / 1000.0;
            let holds = self.installs.installed > 0 && seen <= most.as_secs_f64();
            check("installed_p99", holds, format!("{}, at most {}", span(seen), span(most.as_secs_f64())));
        }
        if let Some(percent) = of.errors_percent {
            let seen = 100.0 * refused as f64 / all.max(1) as f64;
            check("errors_percent", seen <= percent, format!("{seen:.2} % of {all}, at most {percent} %"));
        }
        let others = [
            ("latency_p99", of.latency_p99.is_some(), "requests take no time here"),
            ("achieved_percent", of.achieved_percent.is_some(), "every request is answered here"),
            (
                "memory_growth_percent",
                of.memory_growth_percent.is_some(),
                "there is one process, and it keeps everything",
            ),
        ];
        let others = others.into_iter().filter(|(_, asked, _)| *asked);
        self.not_judged = others.map(|(name, _, why)| format!("{name}: {why}")).collect();
    }

    /// Requests in all.
    pub fn asked(&self) -> u64 {
        self.requests.values().map(|asked| asked.requests).sum()
    }

    /// Of these with an answer of 400 or above.
    pub fn refused(&self) -> u64 {
        self.requests.values().flat_map(|asked| asked.refused.values()).sum()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let Installs { begun, installed, ended_otherwise, took } = &self.installs;
        let _ = writeln!(
            text,
            "{} in virtual time (profile {}, seed {}): {begun} installations begun, {} hosts in the plan; {} of the service's time in {} here",
            self.plan,
            self.time_profile,
            self.seed,
            self.hosts,
            span(self.took_s),
            span(self.wall_s)
        );
        if !self.cut_short.is_empty() {
            let _ = writeln!(text, "cut short: {}", self.cut_short);
        }
        let at = |quantile| span(took.quantile_ms(quantile) / 1000.0);
        let _ = match installed {
            0 => writeln!(text, "installed 0"),
            _ => writeln!(
                text,
                "installed {installed}: half within {}, 99 of 100 within {}, the longest {}",
                at(0.5),
                at(0.99),
                at(1.0)
            ),
        };
        for (how, count) in ended_otherwise {
            let _ = writeln!(text, "  {count}: {how}");
        }
        for (name, unit, passes) in
            [("hosts", "host", &self.host_monitor), ("clusters", "cluster", &self.cluster_monitor)]
        {
            let at = |quantile| span(passes.took.quantile_ms(quantile) / 1000.0);
            let _ = writeln!(
                text,
                "monitor of {name}: {} passes, each {} if it can, a look at a {unit} takes {} ms: half took {} or less, 99 of 100 {}, the \
                 longest {}; at most {} {name} in one; {} took longer than the interval, {} did not see everything",
                passes.count,
                span(passes.interval_s),
                passes.look_ms,
                at(0.5),
                at(0.99),
                at(1.0),
                passes.looked_at_most,
                passes.overdue,
                passes.cut_short
            );
        }
        let all = self.asked();
        let peak = self.per_second.iter().max().copied().unwrap_or_default();
        let minute = self.per_second.chunks(60).map(|minute| minute.iter().map(|n| u64::from(*n)).sum::<u64>()).max();
        let _ = writeln!(
            text,
            "requests: {all}, {} refused; {:.0} a second on average, {:.0} in the busiest minute, {peak} in the busiest second; \
             {} rows and events written",
            self.refused(),
            all as f64 / self.took_s.max(1.0),
            minute.unwrap_or_default() as f64 / 60.0,
            self.written
        );
        let mut most: Vec<(&String, &Asked)> = self.requests.iter().collect();
        most.sort_by_key(|(_, asked)| Reverse(asked.requests));
        for (name, asked) in most.iter().take(6) {
            let _ = writeln!(text, "  {:>10} {name}", asked.requests);
        }
        for check in &self.checks {
            let _ = writeln!(text, "{} {}: {}", if check.holds { "ok    " } else { "FAILED" }, check.name, check.seen);
        }
        for why in &self.not_judged {
            let _ = writeln!(text, "not judged: {why}");
        }
        text
    }
}

/// A time of so many seconds, for people.
fn span(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} m {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} m", whole / 3600, whole % 3600 / 60),
    }
}
