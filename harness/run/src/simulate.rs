//! The same service core, the same hosts, the same user and the same checks over an in-memory transport, with a clock that
//! jumps from one thing that happens to the next. Same seed, same history, byte for byte.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::actor::{Reply, Send};
use vlab_history::Recorder;
use vlab_history::facts::{ClusterFacts, HostFacts, diff_cluster, diff_host};
use vlab_history::rules::RuleId;
use vlab_model::history::{Observation, Source, What};
use vlab_reports::result::{CheckKind, CheckResult, CheckVerdict, RunResult};
use vlab_service::core::{Core, CoreConfig, Snapshot, Write};

use crate::conductor::{Conductor, Ending, Score};
use crate::prepare::Prepared;
use crate::verdict;

/// When virtual time begins.
pub const BEGINNING: Timestamp = Timestamp::from_secs(1_767_225_600);

/// How long a request or an answer is on its way. Not zero, so that cause and effect have an order in the history.
const ONE_WAY: Duration = Duration::from_micros(500);

enum Event {
    Request(Send),
    Answer(Reply),
}

/// The service's clock: whole milliseconds, as the real-time shell gives them to the core, since neither the wire nor the
/// rows keep more.
fn service_clock(now: Timestamp) -> Timestamp {
    Timestamp::from_micros(now.as_micros().div_euclid(1000) * 1000)
}

/// What a simulated run gives.
pub struct Simulated {
    /// How it ended.
    pub ending: Ending,
    /// The history, without its last line.
    pub conductor: Conductor,
    /// Virtual time when the run had come to its end.
    pub ended_at: Timestamp,
    /// Virtual time after the last look.
    pub now: Timestamp,
    /// How many requests were answered.
    pub requests: u64,
    /// The rules of the service's machines that fired.
    pub fired: BTreeSet<RuleId>,
}

/// Runs a scenario in virtual time.
pub fn simulate(score: Score, core: CoreConfig, recorder: Recorder) -> Simulated {
    let mut world = World {
        core: Core::new(core, Snapshot::default()),
        conductor: Conductor::new(score, recorder),
        queue: BinaryHeap::new(),
        events: BTreeMap::new(),
        next_event: 0,
        hosts: BTreeMap::new(),
        clusters: BTreeMap::new(),
        requests: 0,
    };
    let mut now = BEGINNING;
    world.core.wake(now);
    world.store(now);
    world.conductor.start(now);
    world.collect(now);
    let ending = loop {
        if let Some(ending) = world.conductor.ending(now) {
            break ending;
        }
        match world.step(now) {
            Some(then) => now = then,
            None => break Ending::OutOfTime { waiting_for: vec!["nothing will ever happen again".to_owned()] },
        }
    };
    let ended_at = now;
    world.conductor.look_once_more(now);
    world.collect(now);
    // The last look is two answers per cluster; the hosts go on meanwhile.
    while !world.conductor.has_looked() {
        match world.step(now) {
            Some(then) => now = then,
            None => break,
        }
    }
    let (hosts, clusters) = world.core.fired();
    let fired = hosts.iter().filter_map(|rule| RuleId::of_host_rule(rule));
    let fired = fired.chain(clusters.iter().filter_map(|rule| RuleId::of_cluster_rule(rule))).collect();
    Simulated { ending, conductor: world.conductor, ended_at, now, requests: world.requests, fired }
}

/// A whole run in virtual time, without a folder: how it ended, its history, and the rules that fired.
pub fn rehearse(prepared: &Prepared) -> (Ending, Vec<Observation>, BTreeSet<RuleId>) {
    let info = prepared.info("virtual", true, BTreeMap::new());
    let score = prepared.score(info, vlab_agents::ingress::LAB_INGRESS_PEM.to_owned());
    let simulated = simulate(score, prepared.core_config("http://127.0.0.1:8090"), Recorder::new(None));
    let ending = simulated.ending.clone();
    (ending, simulated.conductor.finish(simulated.now, "ended"), simulated.fired)
}

struct World {
    core: Core,
    conductor: Conductor,
    /// Things on their way, by the time at which they arrive and then in the order in which they were sent.
    queue: BinaryHeap<Reverse<(Timestamp, u64)>>,
    events: BTreeMap<u64, Event>,
    next_event: u64,
    hosts: BTreeMap<Uuid, HostFacts>,
    clusters: BTreeMap<Uuid, ClusterFacts>,
    requests: u64,
}

impl World {
    /// Does the next thing; when that was. `None`: nothing is left to do.
    fn step(&mut self, now: Timestamp) -> Option<Timestamp> {
        let arrives = self.queue.peek().map(|Reverse((at, _))| *at);
        let service = self.core.next_wake();
        let actors = self.conductor.next_wake();
        let then = [arrives, service, actors].into_iter().flatten().min()?.max(now);
        // At one instant the service's own clockwork comes first, then what arrives, then the actors' timers.
        if service.is_some_and(|at| at <= then) {
            self.core.wake(service_clock(then));
            self.store(then);
        } else if arrives.is_some_and(|at| at <= then) {
            let Some(Reverse((_, key))) = self.queue.pop() else { return Some(then) };
            match self.events.remove(&key) {
                Some(Event::Request(send)) => {
                    self.requests += 1;
                    let response = self.core.handle(service_clock(then), &send.request);
                    self.store(then);
                    let reply = Reply { connection: send.connection, tag: send.tag, result: Ok(response) };
                    self.push(then + ONE_WAY, Event::Answer(reply));
                }
                Some(Event::Answer(reply)) => {
                    self.conductor.deliver(then, reply);
                    self.collect(then);
                }
                None => {}
            }
        } else {
            self.conductor.wake(then);
            self.collect(then);
        }
        Some(then)
    }

    fn push(&mut self, at: Timestamp, event: Event) {
        self.queue.push(Reverse((at, self.next_event)));
        self.events.insert(self.next_event, event);
        self.next_event += 1;
    }

    fn collect(&mut self, now: Timestamp) {
        for send in self.conductor.take_sends() {
            self.push(now + ONE_WAY, Event::Request(send));
        }
    }

    /// The store of virtual time: the core's writes are taken as done, and what changed is observed.
    fn store(&mut self, now: Timestamp) {
        let writes = self.core.take_writes();
        if writes.is_empty() {
            return;
        }
        self.core.confirm();
        for write in writes {
            for what in self.changes(write) {
                self.conductor.observe(now, Source::Database, Some(service_clock(now)), what);
            }
        }
        self.collect(now);
    }

    fn changes(&mut self, write: Write) -> Vec<What> {
        match write {
            Write::PutHost(row) => {
                let host = row.host();
                let facts = HostFacts::from(host);
                let changes = diff_host(host.id, self.hosts.get(&host.id), &facts);
                self.hosts.insert(host.id, facts);
                changes
            }
            Write::DeleteHost { host_id, .. } => {
                self.hosts.remove(&host_id);
                vec![What::HostDeleted { host: host_id }]
            }
            Write::PutCluster(row) => {
                let cluster = &row.view.cluster;
                let facts = ClusterFacts::from(cluster);
                let changes = diff_cluster(cluster.id, self.clusters.get(&cluster.id), &facts);
                self.clusters.insert(cluster.id, facts);
                changes
            }
            _ => Vec::new(),
        }
    }
}

/// A history as it would be written, one line per observation; for comparisons.
pub fn as_lines(history: &[Observation]) -> String {
    let mut text = String::new();
    for observation in history {
        text.push_str(&serde_json::to_string(observation).unwrap_or_default());
        text.push('\n');
    }
    text
}

/// Puts an ending that is not complete into the result: a run that did not get where it was to go has failed.
pub fn ending_check(result: &mut RunResult, ending: &Ending) {
    let (kind, name, message) = match ending {
        Ending::Complete => return,
        Ending::OutOfTime { waiting_for } => (
            CheckKind::Budget,
            verdict::COMES_TO_ITS_END,
            format!("the total budget is spent; still waiting for {}", some(waiting_for)),
        ),
        Ending::Stuck(reason) => (CheckKind::Expectation, verdict::CAN_GO_ON, reason.clone()),
    };
    let mut check = CheckResult::new(kind, name, CheckVerdict::Failed);
    check.expected = "what `until` waits for is seen within the total budget".to_owned();
    check.seen = message.clone();
    check.message = message;
    result.checks.push(check);
}

fn some(names: &[String]) -> String {
    match names {
        [] => "nothing in particular".to_owned(),
        few if few.len() <= 5 => few.join(", "),
        many => format!("{} and {} more", many[..5].join(", "), many.len() - 5),
    }
}
