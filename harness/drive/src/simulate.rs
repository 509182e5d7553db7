//! The same service core, the same hosts, the same user and the same checks over an in-memory transport, with a clock that
//! jumps from one thing that happens to the next. Same seed, same history, byte for byte.
//!
//! Faults of the service and of the way there have their form here: a service that is down refuses connections and is read again
//! from what it had stored, one that stands still lets requests wait, and the gateway's rules are those of real time. There is
//! no database here, and so no fault of one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::actor::{Connection, Reply, Send};
use vlab_api::http::{Method, Response, TransportError, is_for_hub};
use vlab_history::Recorder;
use vlab_history::facts::{ClusterFacts, HostFacts, OperatorFacts, diff_cluster, diff_host, diff_operator};
use vlab_history::rules::RuleId;
use vlab_history::times::{odd_times_of_cluster, odd_times_of_host, odd_times_of_operator};
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, RESULT_VERSION, RunResult};
use vlab_judge::verdict;
use vlab_model::history::{ActionKind, Interleaved, Observation, RunEnd, RunInfo, Source, What};
use vlab_service::kube::{Ask, Command};
use vlab_service::{Core, CoreConfig, Snapshot, Write};

use crate::conductor::{Conductor, ConductorConfig, Ending, Task};
use crate::fault::effect::{Program, ServiceFault};
use crate::hub::{Hub, HubEnd, by_controllers};
use crate::interleave::{DOWN, Dice, Killed, Way};
use crate::prepare::{Prepared, VERSION};
use crate::requests::{LostAt, RequestFacts, RequestFault, Rules, Side};
use crate::requests::{answer, words};

/// When virtual time begins.
pub const BEGINNING: Timestamp = Timestamp::from_secs(1_767_225_600);

/// How long a request or an answer is on its way. Not zero, so that cause and effect have an order in the history.
pub const ONE_WAY: Duration = Duration::from_micros(500);

enum Event {
    Request(Send),
    Answer(Reply),
    /// The service that this fault stopped is started again.
    Start(Arc<str>),
    /// Something between the service's controllers and the API server, of the controllers of that start.
    Hub(u64, ForHub),
}

/// What is on its way between the service's controllers and the API server.
enum ForHub {
    Ask(Ask),
    Answer(u64, Result<Response, String>),
    News(u64, Vec<(String, Arc<serde_json::Value>)>, bool),
}

/// The service as it runs.
#[derive(Debug, PartialEq)]
enum Running {
    Up,
    /// Stopped; who asks finds nobody.
    Down,
    /// Standing still, by this fault.
    Paused(Arc<str>),
}

/// What a user over REST would have done.
fn kind_of(command: Command) -> ActionKind {
    match command {
        Command::Install => ActionKind::Install,
        Command::Cancel => ActionKind::Cancel,
        Command::AllowAddHosts => ActionKind::AllowAddHosts,
        Command::InstallHost => ActionKind::InstallHost,
        Command::Bind => ActionKind::Bind,
        Command::Unbind => ActionKind::Unbind,
        Command::DeleteHost => ActionKind::DeleteHost,
    }
}

/// Who starts a service again that has lost its lease: no fault has this name.
const OF_LEASE: &str = "the lease";

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
    /// How many things happened, one after the other.
    pub steps: u64,
    /// Which rule of a host's machine fired right after which other one.
    pub pairs: BTreeSet<(RuleId, RuleId)>,
    /// What was asked for, and how that was answered: operation and status.
    pub answers: BTreeSet<(&'static str, u16)>,
    /// The hub, where the service was asked over Kubernetes.
    pub hub: Option<HubEnd>,
}

/// Runs a scenario in virtual time.
pub fn simulate(score: ConductorConfig, core: CoreConfig, recorder: Recorder) -> Simulated {
    simulate_at_most(score, core, recorder, u64::MAX)
}

/// The same, given up after so many things that happened. What is wrong on purpose may never come to an end.
pub fn simulate_at_most(score: ConductorConfig, core: CoreConfig, recorder: Recorder, most: u64) -> Simulated {
    let seed = score.info.seed;
    let dice = Dice::new(&score.scenario.interleaving, score.clock_scale);
    let bare_metal = score.scenario.baremetal_operator.clone();
    let hub = score.kube.as_ref().map(|_| Hub::new(seed, score.clock_scale, BEGINNING, bare_metal.as_deref()));
    let (hub, no_hub) = match hub {
        Some(Err(why)) => (None, Some(why)),
        Some(Ok(hub)) => (Some(hub), None),
        None => (None, None),
    };
    let mut world = World {
        core: new_core(&core, Snapshot::default(), &dice, hub.is_some()),
        hub,
        over: false,
        starts: 0,
        dice,
        pairs: BTreeSet::new(),
        answers: BTreeSet::new(),
        config: core,
        conductor: Conductor::new(score, recorder),
        queue: BinaryHeap::new(),
        events: BTreeMap::new(),
        next_event: 0,
        hosts: BTreeMap::new(),
        clusters: BTreeMap::new(),
        operators: BTreeMap::new(),
        requests: 0,
        running: Running::Up,
        held: Vec::new(),
        unheard: Vec::new(),
        later: VecDeque::new(),
        rules: Rules::new(seed),
        open: BTreeSet::new(),
        fired: BTreeSet::new(),
    };
    let mut now = BEGINNING;
    world.core.wake(now);
    world.store(now);
    world.conductor.start(now);
    world.collect(now);
    let mut steps = 0;
    let ending = loop {
        if let Some(why) = no_hub {
            break Ending::Dead(why);
        }
        if let Some(ending) = world.conductor.ending(now) {
            break ending;
        }
        if steps >= most {
            break Ending::Dead(format!("the run had not ended after {steps} events"));
        }
        steps += 1;
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
    world.note_fired();
    world.settle_hub(now);
    let World { conductor, requests, fired, pairs, answers, hub, .. } = world;
    let hub = hub.map(Hub::end);
    Simulated { ending, conductor, ended_at, now, requests, fired, steps, pairs, answers, hub }
}

/// A core over what was stored, with the monitors' phases of the interleaving.
fn new_core(config: &CoreConfig, snapshot: Snapshot, dice: &Dice, has_controllers: bool) -> Core {
    let mut core = Core::new(config.clone(), snapshot);
    if has_controllers {
        core = core.with_controllers();
    }
    let [hosts, clusters] = dice.phases;
    core.shift_monitors(hosts, clusters);
    core
}

/// A whole run in virtual time, without a folder: its result and its history.
pub fn run(prepared: &Prepared) -> (RunResult, Vec<Observation>) {
    let Whole { result, history, .. } = run_whole(prepared, u64::MAX);
    (result, history)
}

/// What a whole run in virtual time gives.
#[derive(Debug)]
pub struct Whole {
    /// Its result.
    pub result: RunResult,
    /// Its history.
    pub history: Vec<Observation>,
    /// The rules of the service's machines that fired.
    pub fired: BTreeSet<RuleId>,
    /// How many things happened, one after the other.
    pub steps: u64,
    /// Which rule of a host's machine fired right after which other one.
    pub pairs: BTreeSet<(RuleId, RuleId)>,
    /// What was asked for, and how that was answered: operation and status.
    pub answers: BTreeSet<(&'static str, u16)>,
    /// How the run ended.
    pub ending: Ending,
    /// The hub, where the service was asked over Kubernetes.
    pub hub: Option<HubEnd>,
}

/// A whole run in virtual time, given up after so many things that happened.
pub fn run_whole(prepared: &Prepared, most: u64) -> Whole {
    Played::new(prepared, most).judged(prepared)
}

/// The same, and nothing is judged where the history is known already: its verdict is, too.
pub(crate) fn run_unless(prepared: &Prepared, most: u64, known: impl Fn(&[Observation]) -> bool) -> Option<Whole> {
    let played = Played::new(prepared, most);
    (!known(&played.history)).then(|| played.judged(prepared))
}

/// A run that is over and not judged yet.
struct Played {
    info: RunInfo,
    history: Vec<Observation>,
    ending: Ending,
    now: Timestamp,
    fired: BTreeSet<RuleId>,
    steps: u64,
    pairs: BTreeSet<(RuleId, RuleId)>,
    answers: BTreeSet<(&'static str, u16)>,
    hub: Option<HubEnd>,
}

impl Played {
    fn new(prepared: &Prepared, most: u64) -> Self {
        let run_id = format!("simulated-{}-{}", prepared.scenario.name, prepared.seed);
        let versions = BTreeMap::from([("service".to_owned(), format!("simulated {VERSION}"))]);
        let info = prepared.info(&run_id, true, versions);
        let score = prepared.conductor_config(info.clone(), vlab_agents::ingress::LAB_INGRESS_PEM.to_owned());
        let core = prepared.core_config("http://127.0.0.1:8090");
        let Simulated { ending, conductor, now, fired, steps, pairs, answers, hub, .. } =
            simulate_at_most(score, core, Recorder::new(None), most);
        let how = if ending == Ending::Complete { RunEnd::Ended } else { RunEnd::CutShort };
        Self { info, history: conductor.finish(now, how), ending, now, fired, steps, pairs, answers, hub }
    }

    fn judged(self, prepared: &Prepared) -> Whole {
        let Self { info, history, ending, now, fired, steps, pairs, answers, hub } = self;
        let mut result = RunResult {
            version: RESULT_VERSION,
            run: info,
            started_at: BEGINNING,
            finished_at: now,
            how_to_repeat: prepared.how_to_repeat("simulate"),
            ..RunResult::default()
        };
        ending_check(&mut result, &ending);
        verdict::put_together(&mut result, &prepared.scenario, prepared.clock_scale, &history);
        Whole { result, history, fired, steps, pairs, answers, ending, hub }
    }
}

/// A whole run in virtual time, without a folder: how it ended, its history, and the rules that fired.
pub fn rehearse(prepared: &Prepared) -> (Ending, Vec<Observation>, BTreeSet<RuleId>) {
    let info = prepared.info("virtual", true, BTreeMap::new());
    let score = prepared.conductor_config(info, vlab_agents::ingress::LAB_INGRESS_PEM.to_owned());
    let simulated = simulate(score, prepared.core_config("http://127.0.0.1:8090"), Recorder::new(None));
    let ending = simulated.ending.clone();
    (ending, simulated.conductor.finish(simulated.now, RunEnd::Ended), simulated.fired)
}

struct World {
    core: Core,
    /// The API server and the controllers, where the service is asked over Kubernetes.
    hub: Option<Hub>,
    /// The run is over: nothing is written into the history any more.
    over: bool,
    /// How often the service, and its controllers with it, was started again.
    starts: u64,
    /// What the core is made with.
    config: CoreConfig,
    conductor: Conductor,
    /// Things on their way, by the time at which they arrive and then in the order in which they were sent.
    queue: BinaryHeap<Reverse<(Timestamp, u32, u64)>>,
    events: BTreeMap<u64, Event>,
    next_event: u64,
    hosts: BTreeMap<Uuid, HostFacts>,
    clusters: BTreeMap<Uuid, ClusterFacts>,
    operators: BTreeMap<(Uuid, String), OperatorFacts>,
    requests: u64,
    running: Running,
    /// Requests that wait for a service that stands still.
    held: Vec<Send>,
    /// What controllers will hear once the service goes on, by which start of it.
    unheard: Vec<(u64, ForHub)>,
    /// What is to be done to the service once another fault has let it run again.
    later: VecDeque<Task>,
    /// What is wrong with the way to the service.
    rules: Rules,
    /// Connections that were used and are still open.
    open: BTreeSet<Connection>,
    /// Rules that fired in cores that are no more, and at the end in the last one.
    fired: BTreeSet<RuleId>,
    /// Pairs of rules, and answers, of all cores.
    pairs: BTreeSet<(RuleId, RuleId)>,
    answers: BTreeSet<(&'static str, u16)>,
    /// The interleaving.
    dice: Dice,
}

/// What can be the next thing to happen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Service,
    Hub,
    Arrival,
    Actors,
}

impl World {
    /// Does the next thing; when that was. `None`: nothing is left to do.
    fn step(&mut self, now: Timestamp) -> Option<Timestamp> {
        let arrives = self.queue.peek().map(|Reverse((at, ..))| *at);
        let service = self.core.next_wake().filter(|_| self.running == Running::Up);
        let actors = self.conductor.next_wake();
        let hub = self.hub.as_ref().and_then(|hub| hub.next_wake(self.running == Running::Up));
        let then = [arrives, service, actors, hub].into_iter().flatten().min()?.max(now);
        // At one instant the service's own clockwork comes first, then its controllers', then what arrives, then the actors' timers.
        let all = [(service, Next::Service), (hub, Next::Hub), (arrives, Next::Arrival), (actors, Next::Actors)];
        let mut due = all.into_iter().filter(|(at, _)| at.is_some_and(|at| at <= then)).map(|(_, next)| next);
        let first = self.dice.first_of(due.clone().count());
        match due.nth(first)? {
            Next::Service => {
                self.core.wake(service_clock(then));
                self.store(then);
            }
            Next::Hub => {
                let core = (self.running == Running::Up).then_some(&mut self.core);
                if let Some(hub) = &mut self.hub {
                    hub.wake(core, then);
                }
                self.hub_moved(then);
            }
            Next::Arrival => {
                let Some(Reverse((.., key))) = self.queue.pop() else { return Some(then) };
                match self.events.remove(&key) {
                    Some(Event::Request(send)) => self.arrived(then, send),
                    Some(Event::Start(fault)) => self.start(then, &fault),
                    Some(Event::Hub(start, what)) => self.at_hub(then, start, what),
                    Some(Event::Answer(reply)) => {
                        self.conductor.deliver(then, reply);
                        self.collect(then);
                    }
                    None => {}
                }
            }
            Next::Actors => {
                self.conductor.wake(then);
                self.collect(then);
            }
        }
        Some(then)
    }

    /// A request is where the gateway would be.
    fn arrived(&mut self, now: Timestamp, send: Send) {
        self.requests += 1;
        if let Some(hub) = self.hub.as_mut().filter(|_| is_for_hub(&send.request.path)) {
            let (response, late) = hub.ask(now, &send.request);
            self.hub_moved(now);
            let reply = Reply { connection: send.connection, tag: send.tag, result: Ok(response) };
            return self.push(now + ONE_WAY + late, Event::Answer(reply));
        }
        let mut again = false;
        loop {
            let first_on_connection = again || !self.open.contains(&send.connection);
            let side = if Conductor::is_user(send.connection) { Side::User } else { Side::Hosts };
            let (method, path) = (send.request.method, send.request.path.as_str());
            let facts = RequestFacts { side, method, path, first_on_connection };
            let applied = self.rules.apply(&facts);
            let way = if side == Side::Hosts && !again { self.dice.way() } else { Way::Through };
            let lost = TransportError::Lost("the connection was closed before the answer".to_owned());
            let (result, late) = match applied {
                None if matches!(self.running, Running::Paused(_)) => return self.held.push(send),
                None => {
                    if let Some(what) = way.told(method, path) {
                        self.conductor.observe(now, Source::Harness, None, what);
                    }
                    let result = match way {
                        Way::Through => self.ask(now, &send),
                        Way::RequestLost => Err(lost),
                        Way::AnswerLost => self.ask(now, &send).and(Err(lost)),
                        Way::Twice => self.ask(now, &send).and_then(|_| self.ask(now, &send)),
                    };
                    (result, Duration::ZERO)
                }
                Some(applied) => {
                    if applied.first {
                        let what = words(&applied.wrong, method, path);
                        self.conductor.task_effect(now, &applied.fault, facts.host(), what);
                        self.collect(now);
                    }
                    match applied.wrong {
                        RequestFault::Status { status, retry_after } => {
                            (Ok(answer(status, retry_after)), Duration::ZERO)
                        }
                        RequestFault::Late(by) => (self.ask(now, &send), by),
                        RequestFault::Dropped(LostAt::Answer) | RequestFault::Reset(LostAt::Answer) => {
                            (self.ask(now, &send).and(Err(lost)), Duration::ZERO)
                        }
                        RequestFault::Dropped(LostAt::Request)
                        | RequestFault::Reset(LostAt::Request)
                        | RequestFault::StaleKeepAlive => (Err(lost), Duration::ZERO),
                    }
                }
            };
            match &result {
                Ok(_) => self.open.insert(send.connection),
                Err(_) => self.open.remove(&send.connection),
            };
            // As every HTTP client does with a GET that a kept-alive connection lost.
            if result.is_err() && !first_on_connection && method == Method::Get {
                again = true;
                continue;
            }
            let reply = Reply { connection: send.connection, tag: send.tag, result };
            let latency = self.dice.latency();
            return self.push(now + late + ONE_WAY + latency, Event::Answer(reply));
        }
    }

    /// A request reaches the service, if there is one.
    fn ask(&mut self, now: Timestamp, send: &Send) -> Result<Response, TransportError> {
        if self.running == Running::Down {
            return Err(TransportError::Connect("connection refused".to_owned()));
        }
        let response = self.core.handle(service_clock(now), &send.request);
        match self.store(now) {
            true => Ok(response),
            false => Err(TransportError::Lost("the service ended".to_owned())),
        }
    }

    /// Something of the controllers, or for them, has arrived.
    fn at_hub(&mut self, now: Timestamp, start: u64, what: ForHub) {
        let Some(hub) = self.hub.as_mut().filter(|_| start == self.starts) else { return };
        if self.running != Running::Up && !matches!(what, ForHub::Ask(_)) {
            // The service stands still: it hears later.
            return self.unheard.push((start, what));
        }
        match what {
            ForHub::Ask(ask) => {
                if let Some((answer, late)) = hub.ask_for_door(now, &ask) {
                    self.push(now + ONE_WAY + late, Event::Hub(start, ForHub::Answer(ask.tag, answer)));
                }
            }
            ForHub::Answer(tag, response) => hub.answered(&mut self.core, now, tag, response),
            ForHub::News(tag, events, over) => hub.door().told(&mut self.core, now, tag, events, over),
        }
        self.hub_moved(now);
    }

    /// After anything at the hub: the service's rows may have changed, controllers may ask, watches have something to tell.
    fn hub_moved(&mut self, now: Timestamp) {
        self.store(now);
        let Some(hub) = &mut self.hub else { return };
        let asks = hub.take_asks();
        let (news, lines) = hub.news(now);
        let effects = hub.effects();
        for ask in asks {
            self.push(now + ONE_WAY, Event::Hub(self.starts, ForHub::Ask(ask)));
        }
        for (tag, events, over) in news {
            self.push(now + ONE_WAY, Event::Hub(self.starts, ForHub::News(tag, events, over)));
        }
        if self.over {
            return;
        }
        for what in lines {
            self.conductor.observe(now, Source::Harness, None, what);
        }
        for (fault, what) in effects {
            self.conductor.task_effect(now, &fault, None, what);
        }
        if let Some(down) = self.hub.as_ref().and_then(Hub::has_lost_lease) {
            self.end_service();
            let text = verdict::LEASE_LOST.to_owned();
            self.conductor.observe(now, Source::Harness, None, What::Note { text });
            self.push(now + down, Event::Start(OF_LEASE.into()));
        }
        self.collect(now);
    }

    /// Lets the controllers come to rest after the run: what resources say at the end is compared with what rows say.
    fn settle_hub(&mut self, now: Timestamp) {
        self.over = true;
        let end = now + Duration::from_secs(60);
        while self.running == Running::Up {
            let Some(due) = self.hub.as_ref().and_then(|hub| hub.next_wake(true)) else { break };
            let arrives = self.queue.peek().map(|Reverse((at, ..))| *at);
            let then = arrives.map_or(due, |at| at.min(due)).max(now);
            if then > end {
                break;
            }
            if due <= then {
                if let Some(hub) = &mut self.hub {
                    hub.wake(Some(&mut self.core), then);
                }
                self.hub_moved(then);
            } else if let Some(Reverse((.., key))) = self.queue.pop()
                && let Some(Event::Hub(start, what)) = self.events.remove(&key)
            {
                self.at_hub(then, start, what);
            }
        }
    }

    /// Does what faults want.
    fn carry_out(&mut self, now: Timestamp, task: Task) {
        match task {
            Task::Do(_, ServiceFault::Requests(rule)) => self.rules.inject(rule),
            Task::Do(fault, ServiceFault::Hub(order)) => {
                if let Some(hub) = &mut self.hub {
                    hub.order(now, fault, order);
                    self.hub_moved(now);
                }
            }
            Task::Do(..) if self.running == Running::Down => self.later.push_back(task),
            Task::Do(fault, ServiceFault::Restart { who: Program::Service, kill, down, .. }) => {
                self.end_service();
                for Send { connection, tag, .. } in std::mem::take(&mut self.held) {
                    let result = Err(TransportError::Lost("the service ended".to_owned()));
                    self.push(now, Event::Answer(Reply { connection, tag, result }));
                }
                self.push(now + down, Event::Start(fault.clone()));
                let how = if kill { "the service was killed" } else { "the service was stopped" };
                self.conductor.task_effect(now, &fault, None, how);
            }
            Task::Do(fault, ServiceFault::Pause(Program::Service, _)) => {
                self.running = Running::Paused(fault.clone());
                self.conductor.task_effect(now, &fault, None, "the service was paused");
            }
            Task::Do(
                fault,
                ServiceFault::Restart { .. }
                | ServiceFault::Pause(..)
                | ServiceFault::SlowQueries(_)
                | ServiceFault::Lock(_),
            ) => {
                let text = format!("the fault {fault} cannot be injected: virtual time has no database");
                self.conductor.observe(now, Source::Harness, None, What::Note { text });
            }
            Task::Undo(fault) => {
                self.rules.clear(&fault);
                if let Some(hub) = &mut self.hub {
                    hub.cancel(&fault);
                }
                if self.running == Running::Paused(fault) {
                    self.running = Running::Up;
                    for send in std::mem::take(&mut self.held) {
                        self.push(now, Event::Request(send));
                    }
                    self.hear(now);
                }
            }
        }
    }

    /// The service goes on: its controllers hear what came meanwhile.
    fn hear(&mut self, now: Timestamp) {
        for (start, what) in std::mem::take(&mut self.unheard) {
            self.push(now, Event::Hub(start, what));
        }
    }

    /// Keeps which rules the core has used: a new one begins without.
    fn note_fired(&mut self) {
        self.answers.extend(self.core.answered().iter().filter(|(operation, _)| !operation.is_empty()));
        let of = RuleId::of_host_rule;
        self.pairs.extend(self.core.pairs().iter().filter_map(|(a, b)| Some((of(a)?, of(b)?))));
        let (hosts, clusters) = self.core.fired();
        self.fired.extend(hosts.iter().filter_map(|rule| RuleId::of_host_rule(rule)));
        self.fired.extend(clusters.iter().filter_map(|rule| RuleId::of_cluster_rule(rule)));
    }

    /// The service is there again, with what it had stored.
    fn start(&mut self, now: Timestamp, fault: &str) {
        self.note_fired();
        self.core = new_core(&self.config, self.core.snapshot(), &self.dice, self.hub.is_some());
        self.running = Running::Up;
        self.hear(now);
        self.core.wake(service_clock(now));
        self.store(now);
        if fault == OF_LEASE {
            let text = verdict::SERVICE_UP_AGAIN.to_owned();
            self.conductor.observe(now, Source::Harness, None, What::Note { text });
        }
        self.conductor.task_done(now, fault, "the service is up again");
        if let Some(task) = self.later.pop_front() {
            self.carry_out(now, task);
        }
        self.collect(now);
    }

    fn push(&mut self, at: Timestamp, event: Event) {
        let place = self.dice.place();
        self.queue.push(Reverse((at, place, self.next_event)));
        self.events.insert(self.next_event, event);
        self.next_event += 1;
    }

    fn collect(&mut self, now: Timestamp) {
        // What is done tells the conductor something, which may want something more.
        loop {
            let tasks = self.conductor.take_tasks();
            if tasks.is_empty() {
                break;
            }
            tasks.into_iter().for_each(|task| self.carry_out(now, task));
        }
        for send in self.conductor.take_sends() {
            let latency = self.dice.latency();
            self.push(now + ONE_WAY + latency, Event::Request(send));
        }
    }

    /// The store of virtual time: the core's writes are taken as done, and what changed is observed. Does the service still run
    /// then?
    fn store(&mut self, now: Timestamp) -> bool {
        let writes = self.core.take_writes();
        if writes.is_empty() {
            return true;
        }
        let killed = if self.over { None } else { self.dice.write() };
        if killed == Some(Killed::Before) {
            self.core.rollback();
            if self.core.stores_events_first() {
                // The first of two steps is stored.
                let mut stored = self.core.snapshot();
                writes
                    .iter()
                    .filter(|write| matches!(write, Write::AppendEvent(_)))
                    .for_each(|event| stored.apply(event));
                self.core = new_core(&self.config, stored, &self.dice, self.hub.is_some());
            }
            self.kill(now, "before it stored");
            return false;
        }
        self.core.confirm();
        if let Some(hub) = &mut self.hub {
            hub.rows_changed(now, &writes);
        }
        if self.over {
            return true;
        }
        for write in writes {
            for what in self.changes(write) {
                self.conductor.observe(now, Source::Database, Some(service_clock(now)), what);
            }
        }
        // Before what the rows set off: that may end the service, and its controllers take what they did with them.
        let commands = self.hub.as_mut().map(|hub| hub.door().take_commands()).unwrap_or_default();
        for (command, subject) in commands {
            self.conductor.observe(now, Source::Harness, None, by_controllers(kind_of(command), subject));
        }
        if killed == Some(Killed::After) {
            self.kill(now, "after it had stored");
        }
        self.collect(now);
        killed.is_none()
    }

    /// The service is gone, and its controllers with it.
    fn end_service(&mut self) {
        self.running = Running::Down;
        self.starts += 1;
        if let Some(hub) = &mut self.hub {
            hub.door_ended();
        }
        self.open.clear();
    }

    /// The interleaving kills the service.
    fn kill(&mut self, now: Timestamp, when: &str) {
        self.end_service();
        let detail = format!("{when} write {}", self.dice.writes());
        self.conductor.observe(now, Source::Harness, None, What::Interleaved { did: Interleaved::Killed, detail });
        self.push(now + DOWN, Event::Start("interleaving".into()));
    }

    fn changes(&mut self, write: Write) -> Vec<What> {
        match write {
            Write::PutHost(row) => {
                let host = row.host();
                let facts = HostFacts::from(&row.view);
                let old = self.hosts.get(&host.id);
                let mut changes = diff_host(host.id, old, &facts);
                changes.extend(odd_times_of_host(host.id, old, &facts));
                self.hosts.insert(host.id, facts);
                changes
            }
            Write::DeleteHost { host_id, .. } => {
                self.hosts.remove(&host_id);
                vec![What::HostDeleted { host: host_id }]
            }
            Write::PutCluster(row) => {
                let cluster = &row.view.cluster;
                let facts = ClusterFacts::from(&row.view);
                let old = self.clusters.get(&cluster.id);
                let mut changes = diff_cluster(cluster.id, old, &facts);
                changes.extend(odd_times_of_cluster(cluster.id, old, &facts));
                self.clusters.insert(cluster.id, facts);
                for operator in cluster.monitored_operators.iter().flatten().map(OperatorFacts::from) {
                    let key = (cluster.id, operator.name.clone());
                    let old = self.operators.get(&key);
                    changes.extend(diff_operator(cluster.id, old, &operator));
                    changes.extend(odd_times_of_operator(cluster.id, old, &operator));
                    self.operators.insert(key, operator);
                }
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
            CheckKind::Expectation,
            verdict::COMES_TO_ITS_END,
            format!("the total budget is spent; still waiting for {}", some(waiting_for)),
        ),
        Ending::Dead(reason) => (CheckKind::Invariant, verdict::COMES_TO_ITS_END, reason.clone()),
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
