//! The fault engine: knows from the growing history when a fault begins and ends, and says what is to be done then. No I/O and
//! no clock: in virtual time and in real time the same engine gives the same orders, and the same seed hits the same hosts.
//!
//! Each family of faults has a file here ([`vlab_scenario::Injection`]), which says what its kinds do to simulated hosts and the
//! inside of their clusters ([`effect`]), and what they do to virtual machines ([`machine`]).

mod control_plane;
pub mod effect;
mod host;
mod kube;
pub mod machine;
mod network;
mod service;

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vlab_api::Timestamp;
use vlab_history::Directory;
use vlab_judge::moment::{Tracker, hosts_of};
use vlab_model::history::{Observation, What};
use vlab_scenario::{ActionTime, Fault, FaultPhase, FaultTarget, Subject, WantedHosts};

/// What a fault hits, now that it begins: hosts by their names, in order.
pub type ResolvedTarget = FaultTarget<Vec<String>>;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultOrder {
    /// Put the fault on.
    Inject(Fault, ResolvedTarget),
    /// Take it off.
    Undo(Fault, ResolvedTarget),
}

/// What is there to be hit: hosts that are switched on or will be, and clusters that exist. By name.
#[derive(Clone, Debug, Default)]
pub struct Present {
    /// Names of hosts.
    pub hosts: BTreeSet<String>,
    /// Names of clusters.
    pub clusters: BTreeSet<String>,
}

#[derive(Debug)]
enum FaultState {
    /// It waits for its time, or for what it hits to be there.
    Waiting { tracker: Option<Tracker>, due: Option<Timestamp> },
    /// It is on.
    On { hit: ResolvedTarget, ends: Option<Timestamp>, until: Option<Tracker> },
    /// It was.
    Over,
}

#[derive(Debug)]
struct Live {
    fault: Fault,
    state: FaultState,
    /// Its own dice: which hosts, if it chooses some.
    stream: u64,
}

/// The faults of a run.
#[derive(Debug)]
pub struct Engine {
    faults: Vec<Live>,
    seed: u64,
    clock_scale: f64,
    orders: Vec<FaultOrder>,
    notes: Vec<What>,
    /// Time as it was told last.
    now: Timestamp,
}

impl Engine {
    /// The faults of a scenario, none of them on.
    pub fn new(faults: &[Fault], seed: u64, clock_scale: f64) -> Self {
        let live = |(i, fault): (usize, &Fault)| Live {
            state: FaultState::Waiting {
                tracker: match &fault.when {
                    ActionTime::At(_) => None,
                    ActionTime::After { moment, .. } => Some(Tracker::new(moment.clone())),
                },
                due: None,
            },
            fault: fault.clone(),
            // Hosts have the streams below 2^61, see `conductor`.
            stream: 1 << 60 | i as u64,
        };
        Self {
            faults: faults.iter().enumerate().map(live).collect(),
            seed,
            clock_scale,
            orders: vec![],
            notes: vec![],
            now: Timestamp::UNSET,
        }
    }

    /// The run begins.
    pub fn start(&mut self, now: Timestamp) {
        for live in &mut self.faults {
            if let (FaultState::Waiting { due, .. }, ActionTime::At(span)) = (&mut live.state, &live.fault.when) {
                *due = Some(now + span.under(self.clock_scale));
            }
        }
    }

    /// Something was seen. The directory must have taken it in.
    pub fn observe(&mut self, directory: &Directory, observation: &Observation) {
        for live in &mut self.faults {
            match &mut live.state {
                FaultState::Waiting { tracker: Some(tracker), .. } | FaultState::On { until: Some(tracker), .. } => {
                    tracker.observe(directory, observation);
                }
                _ => {}
            }
        }
    }

    /// Time has come to `now`, and all that was seen until then was told: begins and ends what is due.
    pub fn wake(&mut self, now: Timestamp, directory: &Directory, present: &Present) {
        self.now = now;
        for i in 0..self.faults.len() {
            let live = &mut self.faults[i];
            match &mut live.state {
                FaultState::Waiting { tracker, due } => {
                    if let (None, Some(tracker), ActionTime::After { then, .. }) = (&due, &tracker, &live.fault.when) {
                        // From when it was noticed: what a database tells comes a little later than it happened.
                        *due = tracker.complete(directory).map(|_| now + then.under(self.clock_scale));
                    }
                    if due.is_some_and(|due| due <= now)
                        && let Some(hit) = resolve(&live.fault, directory, present, self.seed, live.stream)
                    {
                        self.begin(i, now, directory, hit);
                    }
                }
                FaultState::On { ends, until, .. } => {
                    let over = match (ends, until) {
                        (Some(at), _) if *at <= now => Some("its time is up"),
                        (_, Some(tracker)) if tracker.complete(directory).is_some() => {
                            Some("the moment that ends it was seen")
                        }
                        _ => None,
                    };
                    if let Some(why) = over {
                        self.end(i, directory, why);
                    }
                }
                FaultState::Over => {}
            }
        }
    }

    fn begin(&mut self, i: usize, now: Timestamp, directory: &Directory, hit: ResolvedTarget) {
        let live = &mut self.faults[i];
        let fault = live.fault.clone();
        self.notes.extend(began(&fault, directory, &hit));
        self.orders.push(FaultOrder::Inject(fault.clone(), hit.clone()));
        let ends = fault.lasts.map(|span| now + span.under(self.clock_scale));
        live.state = FaultState::On { hit, ends, until: fault.until.clone().map(Tracker::new) };
        // What happens to a program takes its time: whoever does it says when it is done.
        let elsewhere = matches!(
            live.state,
            FaultState::On {
                hit: ResolvedTarget::Service
                    | ResolvedTarget::Postgres
                    | ResolvedTarget::Gateway
                    | ResolvedTarget::Kube,
                ..
            }
        );
        if fault.is_momentary() && !elsewhere {
            self.end(i, directory, "it was over at once");
        }
    }

    /// What that fault does in a moment, and that takes its time, is done.
    pub fn done(&mut self, name: &str, directory: &Directory, how: &str) {
        if let Some(i) = self.faults.iter().position(|live| live.fault.name == name)
            && self.faults[i].fault.is_momentary()
        {
            self.end(i, directory, how);
        }
    }

    fn end(&mut self, i: usize, _: &Directory, why: &str) {
        let live = &mut self.faults[i];
        if let FaultState::On { hit, .. } = std::mem::replace(&mut live.state, FaultState::Over) {
            self.notes.push(note(&live.fault.name, FaultPhase::End, why));
            // What happens in a moment has nothing to be taken off.
            if !live.fault.is_momentary() {
                self.orders.push(FaultOrder::Undo(live.fault.clone(), hit));
            }
        }
    }

    /// The run ends: everything is taken off, and nothing begins any more.
    pub fn finish(&mut self, directory: &Directory) {
        for i in 0..self.faults.len() {
            self.end(i, directory, "the run ended");
            self.faults[i].state = FaultState::Over;
        }
    }

    /// What is to be noted in the history, and what is to be done then, in this order.
    pub fn take(&mut self) -> (Vec<What>, Vec<FaultOrder>) {
        (std::mem::take(&mut self.notes), std::mem::take(&mut self.orders))
    }

    /// Those that have begun and are not over.
    pub fn under_way(&self) -> Vec<String> {
        let on = self.faults.iter().filter(|live| matches!(live.state, FaultState::On { .. }));
        on.map(|live| live.fault.name.clone()).collect()
    }

    /// Has a fault still to begin or to end at a time that is known?
    pub fn has_plans(&self) -> bool {
        self.faults.iter().any(|live| match &live.state {
            FaultState::Waiting { due, .. } => due.is_some_and(|due| due > self.now),
            FaultState::On { ends, .. } => ends.is_some() || live.fault.is_momentary(),
            FaultState::Over => false,
        })
    }

    /// When a fault begins or ends next by the clock alone.
    pub fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        let due = |live: &Live| match &live.state {
            FaultState::Waiting { due, .. } => *due,
            FaultState::On { ends, .. } => *ends,
            FaultState::Over => None,
        };
        // What was due and did not begin waits for what it hits.
        self.faults.iter().filter_map(due).filter(|at| *at > now).min()
    }
}

/// What the fault hits; `None` while that is not there.
fn resolve(fault: &Fault, directory: &Directory, present: &Present, seed: u64, stream: u64) -> Option<ResolvedTarget> {
    let there = |names: &[String]| names.iter().all(|n| present.hosts.contains(n));
    match &fault.target {
        FaultTarget::Hosts(WantedHosts { of, choose }) => {
            let mut names: Vec<String> = match of {
                Subject::Hosts(names) => names.clone(),
                subject => {
                    let mut names: Vec<String> =
                        hosts_of(directory, subject).into_iter().map(|id| directory.name(id)).collect();
                    names.sort();
                    names
                }
            };
            let wanted = choose.map_or(1, |n| n as usize);
            if names.len() < wanted.max(1) || !there(&names) {
                return None;
            }
            if choose.is_some() {
                let mut dice = ChaCha8Rng::seed_from_u64(seed);
                dice.set_stream(stream);
                for i in 0..wanted {
                    let left = (names.len() - i) as u64;
                    names.swap(i, i + usize::try_from(dice.next_u64() % left).unwrap_or(0));
                }
                names.truncate(wanted);
                names.sort();
            }
            Some(ResolvedTarget::Hosts(names))
        }
        FaultTarget::Link { from, to } => {
            (there(from) && there(to)).then(|| ResolvedTarget::Link { from: from.clone(), to: to.clone() })
        }
        FaultTarget::Cluster(name) => present.clusters.contains(name).then(|| ResolvedTarget::Cluster(name.clone())),
        FaultTarget::Service => Some(ResolvedTarget::Service),
        FaultTarget::Postgres => Some(ResolvedTarget::Postgres),
        FaultTarget::Gateway => Some(ResolvedTarget::Gateway),
        FaultTarget::Kube => Some(ResolvedTarget::Kube),
    }
}

fn note(name: &str, phase: FaultPhase, detail: impl Into<String>) -> What {
    What::Fault {
        name: name.to_owned(),
        phase,
        inject: String::new(),
        host: None,
        cluster: None,
        detail: detail.into(),
    }
}

/// One line for each host that is hit, else one.
fn began(fault: &Fault, directory: &Directory, hit: &ResolvedTarget) -> Vec<What> {
    let line = |on: Option<&String>, in_cluster: Option<&String>, text: String| What::Fault {
        name: fault.name.clone(),
        phase: FaultPhase::Begin,
        inject: fault.word().to_owned(),
        host: on.and_then(|n| directory.hosts.get(n)).copied(),
        cluster: in_cluster.and_then(|n| directory.clusters.get(n)).copied(),
        detail: text,
    };
    match hit {
        ResolvedTarget::Hosts(names) => {
            names.iter().map(|n| line(Some(n), None, format!("{} of {n}", fault.word()))).collect()
        }
        ResolvedTarget::Link { from, to } => {
            let text = format!("{} between {} and {}", fault.word(), from.join(", "), to.join(", "));
            vec![line(None, None, text)]
        }
        ResolvedTarget::Cluster(name) => vec![line(None, Some(name), format!("{} of cluster {name}", fault.word()))],
        ResolvedTarget::Service | ResolvedTarget::Postgres | ResolvedTarget::Gateway | ResolvedTarget::Kube => {
            vec![line(None, None, fault.word().to_owned())]
        }
    }
}

#[cfg(test)]
mod tests;
