//! The run itself: everything is wired together around the conductor, goes on until there is an end, leaves what was seen at
//! that end, and is taken down.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use vlab_api::{Timestamp, actor};
use vlab_drive::conductor::{Conductor, ConductorConfig, Ending};
use vlab_drive::fault::effect::Program;
use vlab_drive::hub::{by_controllers, command_behind};
use vlab_drive::interleave::Dice;
use vlab_drive::simulate::ending_check;
use vlab_gateway::Answered;
use vlab_history::Recorder;
use vlab_judge::result::{CheckVerdict, RunResult, Verdict};
use vlab_judge::verdict;
use vlab_lab::hub::{LABEL, label_value};
use vlab_model::history::{HistoryPart, Observation, RunEnd, Source, What};
use vlab_model::lease::Times;

use super::hub::{Following, Told};
use super::lab::{Lab, SERVICE};
use super::look::LAST_LOOK;
use super::measure::{Memory, Span, waited_for_a_processor};
use super::outside::{Outside, Report};
use super::starved::Starvation;
use super::{API_SERVER, RealRun, Surprise, TOLD_WITHIN, lab_check, surprise};
use crate::error::LabError;
use crate::hosts::{News, RunningHosts};
use crate::live::Live;
use crate::rundir;
use crate::service::watch;
use crate::service::{ProgramEnd, RunningService};
use crate::traffic::{TimedReply, Traffic};

/// How often buffers are written out, memory is looked at and the terminal is drawn.
const HOUSEKEEPING: Duration = Duration::from_millis(250);
/// A wall clock that moves by more than this against the monotonic one has jumped.
const CLOCK_JUMP: Duration = Duration::from_secs(2);
/// So many answers that have arrived already need no further turn of the loop.
const AT_ONCE: usize = 256;

/// Changes in the service's tables.
pub(super) struct Watch {
    pub(super) news: mpsc::UnboundedReceiver<watch::TableNews>,
    /// Where the database is not ours nobody sends any; then this keeps the channel open.
    idle: Option<mpsc::UnboundedSender<watch::TableNews>>,
    watcher: Option<Watcher>,
}

/// What watches.
struct Watcher {
    task: JoinHandle<Result<(), String>>,
    /// Tells it that it is over, and when it must be done.
    over: oneshot::Sender<Instant>,
}

/// A run under way.
pub(super) struct UnderWay<'a> {
    pub(super) run: &'a RealRun<'a>,
    pub(super) service: Arc<dyn RunningService>,
    pub(super) hosts: Box<dyn RunningHosts>,
    pub(super) conductor: Conductor,
    pub(super) outside: Outside,
    pub(super) traffic: Traffic,
    pub(super) answers: mpsc::UnboundedReceiver<TimedReply>,
    pub(super) watch: Watch,
    /// The resources, where the run asks over Kubernetes.
    pub(super) hub: Option<Following>,
    /// Tells when this computer is too busy.
    pub(super) starved: Starvation,
    pub(super) live: Live,
    memory: Memory,
    pub(super) begun: Timestamp,
    /// How long the machine's programs had waited for a processor then.
    waited: Option<Duration>,
    /// When the hosts had nothing to do any more but to be there.
    idle_since: Option<Timestamp>,
}

/// How it came to its end: as the scenario says, by what is wrong with the lab, or else (both are `None`) because the user wants it
/// or the product is wrong.
#[derive(Debug, Default)]
struct End {
    ending: Option<Ending>,
    problem: Option<LabError>,
    /// It is to be frozen.
    freeze: bool,
}

impl End {
    fn wrong(problem: LabError) -> Self {
        Self { problem: Some(problem), ..Self::default() }
    }
}

/// What became of a run.
#[derive(Debug, Default)]
pub(super) struct Performed {
    pub(super) history: Vec<Observation>,
    /// How to get into the lab, when that stays.
    pub(super) kept: Vec<String>,
    /// So long after its start it was frozen.
    pub(super) frozen: Option<Duration>,
}

/// What happens next.
enum Event {
    Interrupted,
    Answer(TimedReply),
    Report(Report),
    Watched(watch::TableNews),
    Hub(Told),
    News(News),
    Ended(ProgramEnd),
    Starved(What),
    Wake,
    Housekeeping,
}

impl RealRun<'_> {
    /// The run itself.
    pub(super) async fn perform(&self, lab: Lab, result: &mut RunResult, set_up: Duration) -> Performed {
        let outside = match Outside::new(self.prepared, &lab.service) {
            Ok(outside) => outside,
            Err(error) => {
                lab_check(result, error);
                lab.take_down(result).await;
                return Performed::default();
            }
        };
        let mut under_way = self.wire(lab, outside, result).await;
        let begun = self.begin(&mut under_way).and_then(|left| under_way.connect().map(|()| left));
        let begun = match begun {
            Ok(left) => under_way.take_up(left).await,
            Err(problem) => Err(problem),
        };
        let end = match begun {
            Ok(()) => under_way.go_on(result).await,
            Err(problem) => End::wrong(problem),
        };
        if let (true, Some(wanted)) = (end.freeze, &self.options.freeze) {
            let frozen = under_way.freeze(wanted, result).await;
            return Performed { frozen, ..Box::pin(under_way.take_down(None, result)).await };
        }
        if let Some(what) = under_way.starved.last() {
            under_way.conductor.observe(self.clock.now(), Source::Harness, None, what);
        }
        let ending = under_way.gather(end, result, set_up).await;
        Box::pin(under_way.take_down(ending.as_ref(), result)).await
    }

    /// Everything around the conductor, which begins.
    async fn wire(&self, lab: Lab, outside: Outside, result: &mut RunResult) -> UnderWay<'_> {
        let Lab { service, hosts } = lab;
        let watch = watch_database(&*service, result).await;
        let sink = match self.dir.redacted_file(rundir::HISTORY, &self.redactor) {
            Ok(file) => Some(Box::new(file) as Box<dyn std::io::Write + Send>),
            Err(error) => {
                lab_check(result, LabError::new("history", error.to_string()));
                None
            }
        };
        let ingress_pem = match vlab_agents::ingress::make_ingress_pem() {
            Ok(pem) => pem,
            Err(error) => {
                lab_check(result, LabError::new("certificates", error.to_string()));
                vlab_agents::ingress::LAB_INGRESS_PEM.to_owned()
            }
        };
        let mut config = ConductorConfig {
            ssh_key: hosts.ssh_key().map(str::to_owned),
            ..self.prepared.conductor_config(result.run.clone(), ingress_pem)
        };
        let shared = self.prepared.hub.existing().is_some();
        if let Some(kube) = config.kube.as_mut().filter(|_| shared) {
            kube.label = Some((LABEL.to_owned(), label_value(&result.run.run_id)));
        }
        config.freeze_at = self.options.freeze.as_ref().map(|wanted| wanted.moment.clone());
        let conductor = Conductor::new(config, Recorder::new(sink));
        let endpoint = service.about().hub.as_ref().map(|(endpoint, _)| endpoint.clone());
        let only = shared.then(|| self.prepared.namespaces());
        let hub = endpoint.as_ref().filter(|_| self.prepared.kube).map(|hub| Following::start(hub, only));
        let (traffic, answers) = Traffic::new(
            outside.user.clone(),
            outside.hosts.clone(),
            endpoint,
            Dice::new(&self.prepared.scenario.interleaving, self.prepared.clock_scale),
        );
        let live = Live::new(&self.options.live, &self.prepared.scenario, self.prepared.target.state_source());
        let (begun, waited) = (self.clock.now(), waited_for_a_processor());
        let memory = Memory::default();
        let idle_since = None;
        UnderWay {
            starved: Starvation::watch(),
            run: self,
            service,
            hosts,
            conductor,
            outside,
            traffic,
            answers,
            watch,
            hub,
            live,
            memory,
            begun,
            waited,
            idle_since,
        }
    }

    /// Did everything go well so far?
    fn holds(&self, ending: Option<&Ending>, history: &[Observation]) -> bool {
        let judgement = verdict::judge(&self.prepared.scenario, self.prepared.clock_scale, history);
        ending == Some(&Ending::Complete) && judgement.checks.iter().all(|c| c.verdict != CheckVerdict::Failed)
    }
}

/// Follows the tables of a service, where its database is ours; else the user's looks are all that is seen.
async fn watch_database(service: &dyn RunningService, result: &mut RunResult) -> Watch {
    let (tell, news) = mpsc::unbounded_channel();
    let Some(conninfo) = service.about().conninfo.clone() else {
        return Watch { news, idle: Some(tell), watcher: None };
    };
    let installed = async {
        let client = watch::connect(&conninfo).await.map_err(|error| error.to_string())?;
        watch::install(&client).await.map_err(|error| error.to_string())
    };
    if let Err(error) = installed.await {
        lab_check(result, LabError::new("history", error));
    }
    let (over, until) = oneshot::channel();
    let task = tokio::spawn(watch::watch(conninfo, tell, until));
    Watch { news, idle: None, watcher: Some(Watcher { task, over }) }
}

/// Takes in what is told of the database; what is wrong with the lab, if that is it.
pub(super) fn observe(conductor: &mut Conductor, news: watch::TableNews) -> Option<LabError> {
    match news {
        watch::TableNews::Changes(at, changes) => {
            for change in changes {
                if let Some(name) = change.writer {
                    conductor.observe(at, Source::Database, Some(change.at), What::Writer { name });
                }
                // Over Kubernetes it is the service's controllers that give commands.
                let command = if conductor.asks_over_kube() { command_behind(&change.what) } else { None };
                conductor.observe(at, Source::Database, Some(change.at), change.what);
                if let Some((kind, subject)) = command {
                    conductor.observe(at, Source::Harness, None, by_controllers(kind, subject));
                }
            }
            None
        }
        watch::TableNews::Away { lasted, why } => {
            let for_ms = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX);
            conductor.observe(Timestamp::now(), Source::Harness, None, What::DatabaseAway { for_ms, why });
            None
        }
        watch::TableNews::Refused(why) => {
            Some(LabError::new("history", format!("the changes in the service's tables can no longer be read: {why}")))
        }
    }
}

/// The next event of resources, where there are some. May be given up and asked again.
async fn next_of(hub: &mut Option<Following>) -> Told {
    match hub {
        Some(hub) => hub.next().await,
        None => std::future::pending().await,
    }
}

/// What is wrong with a program of the lab that has just ended: whoever asks it may see that before the system tells.
async fn ended_behind(service: &dyn RunningService) -> Option<LabError> {
    match surprise(service, tokio::time::timeout(TOLD_WITHIN, service.ended()).await.ok()?) {
        Surprise::Lab(error) => Some(error),
        Surprise::Product(_) => None,
    }
}

impl UnderWay<'_> {
    /// Hosts that the conductor does not play reach the service as those that it plays do: through the gateway, where a fault
    /// needs one.
    fn connect(&mut self) -> Result<(), LabError> {
        self.hosts.connect(self.outside.hosts.address(), &self.service.about().endpoint)
    }

    /// Goes on until there is an end.
    async fn go_on(&mut self, result: &mut RunResult) -> End {
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Some(ending) = self.turn().await {
                return End { ending: Some(ending), ..End::default() };
            }
            if self.is_to_freeze() {
                return End { freeze: true, ..End::default() };
            }
            let event = self.next(&mut housekeeping).await;
            if let Some(end) = self.take_event(event, &mut housekeeping, result).await {
                return end;
            }
        }
    }

    /// Does what the conductor wants; is that its end?
    async fn turn(&mut self) -> Option<Ending> {
        for send in self.conductor.take_sends() {
            self.send(send);
        }
        // Before the end is looked for: a fault that begins with the last thing that is waited for happens, too.
        self.outside.catch_up();
        for task in self.conductor.take_tasks() {
            self.outside.carry_out(task).await;
        }
        let now = self.run.clock.now();
        if let Some(ending) = self.conductor.ending(now) {
            return Some(ending);
        }
        if self.idle_since.is_none() && self.conductor.lingering_since().is_some() {
            // A load report is about the idle fleet, not about the storm of its registration.
            self.idle_since = Some(now);
            self.traffic.restart_count();
            self.memory.settle();
        }
        for order in self.conductor.take_machine_orders() {
            self.hosts.carry_out(order, now);
        }
        None
    }

    /// Sends a request; what the interleaving does with it is noted.
    pub(super) fn send(&mut self, send: actor::Send) {
        if let Some(what) = self.traffic.send(send) {
            self.conductor.observe(self.run.clock.now(), Source::Harness, None, what);
        }
    }

    async fn next(&mut self, housekeeping: &mut Interval) -> Event {
        let now = self.run.clock.now();
        let pause = self.conductor.next_wake().map(|at| at.since(now)).unwrap_or(Duration::from_secs(3600));
        tokio::select! {
            biased;
            () = self.run.options.interrupted.cancelled() => Event::Interrupted,
            Some(answer) = self.answers.recv() => Event::Answer(answer),
            report = self.outside.next() => Event::Report(report),
            Some(news) = self.watch.news.recv() => Event::Watched(news),
            told = next_of(&mut self.hub) => Event::Hub(told),
            news = self.hosts.news() => Event::News(news),
            ended = self.service.ended() => Event::Ended(ended),
            what = self.starved.next() => Event::Starved(what),
            () = tokio::time::sleep(pause) => Event::Wake,
            _ = housekeeping.tick() => Event::Housekeeping,
        }
    }

    /// Takes in what happened; is that the end?
    async fn take_event(&mut self, event: Event, housekeeping: &mut Interval, result: &mut RunResult) -> Option<End> {
        let problem = match event {
            Event::Interrupted => return Some(End::default()),
            Event::Answer(answer) => match self.take_answers(answer) {
                None if housekeeping_due(housekeeping).await => self.keep_house(),
                problem => problem,
            },
            Event::Report(report) => self.take_report(report),
            Event::Watched(news) => observe(&mut self.conductor, news),
            Event::Hub(told) => {
                self.take_told(Some(told));
                None
            }
            Event::News(news) => self.take_news(news),
            Event::Ended(ProgramEnd::Of { which: Program::Service, .. }) if self.service.has_lost_lease() => {
                let text = verdict::LEASE_LOST.to_owned();
                self.conductor.observe(self.run.clock.now(), Source::Harness, None, What::Note { text });
                self.outside.start_again(Times::at(self.run.prepared.clock_scale).down);
                None
            }
            Event::Ended(ended) => match surprise(&*self.service, ended) {
                Surprise::Lab(error) => return Some(End::wrong(self.dated(error))),
                Surprise::Product(check) => {
                    let text = check.message.clone();
                    self.conductor.observe(self.run.clock.now(), Source::Harness, None, What::Note { text });
                    result.checks.push(*check);
                    return Some(End::default());
                }
            },
            Event::Starved(what) => {
                self.conductor.observe(self.run.clock.now(), Source::Harness, None, what);
                None
            }
            Event::Wake => {
                self.conductor.wake(self.run.clock.now());
                None
            }
            Event::Housekeeping => self.keep_house(),
        };
        let problem = match problem {
            Some(problem) if problem.what == API_SERVER => {
                let service = Arc::clone(&self.service);
                let behind = ended_behind(&*service).await;
                Some(behind.map_or(problem, |error| self.dated(error)))
            }
            other => other,
        };
        problem.map(End::wrong)
    }

    /// What is wrong, with when that was.
    fn dated(&self, error: LabError) -> LabError {
        let after = self.run.clock.now().since(self.begun).as_secs_f64();
        LabError { error: format!("{}, {after:.1} s after the start of the run", error.error), ..error }
    }

    /// Takes in answers and what was seen meanwhile; what is wrong with the lab, if that shows.
    fn take_answers(&mut self, first: TimedReply) -> Option<LabError> {
        let clock = self.run.clock;
        let reply = self.traffic.count(first);
        self.conductor.deliver(clock.now(), reply);
        for _ in 0..AT_ONCE {
            let Ok(answer) = self.answers.try_recv() else { break };
            let reply = self.traffic.count(answer);
            self.conductor.deliver(clock.now(), reply);
        }
        if self.conductor.next_wake().is_some_and(|at| at <= clock.now()) {
            self.conductor.wake(clock.now());
        }
        let mut problem = None;
        while let Ok(news) = self.watch.news.try_recv() {
            problem = problem.or(observe(&mut self.conductor, news));
        }
        self.take_told(None);
        problem
    }

    /// Takes in what became of resources, this and all that waits.
    fn take_told(&mut self, first: Option<Told>) {
        let Some(hub) = &mut self.hub else { return };
        let mut next = first.or_else(|| hub.waiting());
        while let Some(told) = next {
            if let Some(what) = hub.line(&told) {
                self.conductor.observe(self.run.clock.now(), Source::Harness, None, what);
            }
            next = hub.waiting();
        }
    }

    /// Takes in what happened to the programs of the run; what is wrong with the lab, if that is it.
    fn take_report(&mut self, report: Report) -> Option<LabError> {
        let now = self.run.clock.now();
        match report {
            Report::Effect { fault, host, what } => self.conductor.task_effect(now, &fault, host, what),
            Report::Done { fault, who } => {
                self.conductor.task_done(now, &fault, &format!("{} is up again", who.words()));
            }
            Report::Up => {
                let text = verdict::SERVICE_UP_AGAIN.to_owned();
                self.conductor.observe(now, Source::Harness, None, What::Note { text });
            }
            Report::Killed(program, detail) => {
                let what = What::Killed { program: program.words().to_owned(), detail };
                self.conductor.observe(now, Source::Harness, None, what);
            }
            Report::Answered(answered) => {
                let Answered { host, request, status, bad, took } = answered;
                self.conductor.machine_was_answered(now, host, (request, status, took), bad);
            }
            Report::Note(text) => self.conductor.observe(now, Source::Harness, None, What::Note { text }),
            Report::Broken(error) => return Some(error),
        }
        None
    }

    fn take_news(&mut self, news: News) -> Option<LabError> {
        let now = self.run.clock.now();
        match news {
            News::Seen(source, what) => {
                self.conductor.observe(now, source, None, what);
                None
            }
            News::Lost { machine, how, advice } => {
                let after = now.since(self.begun).as_secs_f64();
                let end = if advice.is_empty() { String::new() } else { format!("; {advice}") };
                let when = format!("{after:.1} s after the start of the run");
                Some(LabError::new("machines", format!("{machine}: {how}, {when}{end}")))
            }
            News::Broken(error) => Some(error),
        }
    }

    /// Writes out, measures, draws; what is wrong with the lab, if that shows.
    fn keep_house(&mut self) -> Option<LabError> {
        // The service waits for it and every host with it: without this the run would go on to its total budget.
        if let Some(ended) = self.service.lost()
            && let Surprise::Lab(error) = surprise(&*self.service, ended)
        {
            return Some(self.dated(error));
        }
        let recorder = self.conductor.recorder();
        recorder.flush();
        self.memory.look(&*self.service, recorder.observations());
        self.live.draw(recorder.observations());
        let jump = self.run.clock.jump();
        if jump > CLOCK_JUMP {
            return Some(LabError::new("clock", format!("the machine's clock jumped by {jump:?} during the run")));
        }
        broken_history(self.run, &mut self.conductor)
    }

    /// Whatever the end was: faults are undone, evidence is taken, and everything is looked at once more.
    async fn gather(&mut self, end: End, result: &mut RunResult, set_up: Duration) -> Option<Ending> {
        let ended = self.run.clock.now();
        let End { ending, mut problem, .. } = end;
        self.live.finish();
        // Nothing stands still and nothing is broken when the last look is taken.
        for report in self.outside.finish().await {
            if let Some(found) = self.take_report(report) {
                problem.get_or_insert(found);
            }
        }
        if let Some(ending) = &ending {
            ending_check(result, ending);
        }
        let broken = problem.is_some();
        if let Some(problem) = problem {
            lab_check(result, problem);
        }
        if broken || !self.run.holds(ending.as_ref(), self.conductor.recorder().observations()) {
            self.hosts.evidence(self.run.dir.path()).await;
        }
        if !broken {
            self.last_look().await;
        }
        self.stop_watching(broken).await;
        if self.run.prepared.scenario.load.as_ref().is_some_and(|load| load.measure) {
            let since = self.idle_since.unwrap_or(self.begun);
            self.run.load(result, &self.traffic, &self.memory, ended.since(since));
        }
        let span = Span { begun: self.begun, ended, set_up, waited: self.waited, ending: ending.as_ref() };
        // Virtual time goes through all of it.
        if self.run.from.is_none() {
            self.run.overhead(result, self.conductor.recorder().observations(), &span);
        }
        ending
    }

    /// What the last look has shown was in the database before, so that is read to its end. Of a lab that is broken only what
    /// can be had: the run proves nothing, and why is known.
    pub(super) async fn stop_watching(&mut self, broken: bool) {
        self.take_told(None);
        self.watch.idle = None;
        let Some(Watcher { mut task, over }) = self.watch.watcher.take() else { return };
        let deadline = Instant::now() + if broken { LAST_LOOK / 20 } else { LAST_LOOK };
        let _ = over.send(deadline);
        // It ends by itself then, and a little later than it must.
        let latest = deadline + LAST_LOOK / 2;
        while let Ok(Some(news)) = tokio::time::timeout_at(latest, self.watch.news.recv()).await {
            observe(&mut self.conductor, news);
        }
        let ended = tokio::time::timeout_at(latest, &mut task).await;
        task.abort();
        let why = match ended {
            Ok(Ok(Ok(()))) => return,
            Ok(Ok(Err(why))) => why,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the database does not answer".to_owned(),
        };
        if !broken {
            let what = What::Incomplete { part: HistoryPart::Database, machine: None, why };
            self.conductor.observe(self.run.clock.now(), Source::Harness, None, what);
        }
    }

    /// Stops everything, unless it is to stay; the history, and how to get into what stays.
    async fn take_down(mut self, ending: Option<&Ending>, result: &mut RunResult) -> Performed {
        if self.run.options.pause_on_failure {
            self.pause(result).await;
        }
        let kept = if self.run.options.keep { self.run.entrance(&*self.service) } else { Vec::new() };
        let Self { run, service, hosts, mut conductor, outside, traffic, answers, .. } = self;
        // The order matters: nobody may write to what is already gone.
        let (problems, said) = hosts.stop().await;
        problems.into_iter().for_each(|problem| lab_check(result, problem));
        for (source, what) in said {
            conductor.observe(run.clock.now(), source, None, what);
        }
        drop(traffic);
        drop(answers);
        drop(outside);
        if kept.is_empty() {
            let down = service.stop().await;
            down.problems.into_iter().for_each(|problem| lab_check(result, problem));
            if let Some(detail) = down.killed {
                let what = What::Killed { program: SERVICE.to_owned(), detail };
                conductor.observe(run.clock.now(), Source::Harness, None, what);
            }
        }
        if let Some(problem) = broken_history(run, &mut conductor) {
            lab_check(result, problem);
        }
        let how = if ending.is_some() { RunEnd::Ended } else { RunEnd::CutShort };
        Performed { history: conductor.finish(run.clock.now(), how), kept, frozen: None }
    }

    /// Waits for the Enter key when the run has not passed so far. Hosts and user rest meanwhile; service and database go on.
    async fn pause(&mut self, result: &RunResult) {
        let run = self.run;
        let mut so_far = result.clone();
        let history = self.conductor.recorder().observations();
        so_far.finished_at = run.clock.now();
        verdict::put_together(&mut so_far, &run.prepared.scenario, run.prepared.clock_scale, history);
        if so_far.verdict == Verdict::Passed || run.options.interrupted.is_cancelled() {
            return;
        }
        let reason = so_far.reason.as_deref().unwrap_or("no reason was given");
        eprintln!("{} {}: {reason}", run.prepared.scenario.name, so_far.verdict);
        for line in run.entrance(&*self.service).into_iter().chain(self.hosts.entrance()) {
            eprintln!("  {line}");
        }
        eprintln!("The hosts are at rest; the service and its database are up. Press Enter to take the lab down.");
        let enter = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        tokio::select! {
            _ = enter => {}
            () = run.options.interrupted.cancelled() => {}
        }
    }
}

fn broken_history(run: &RealRun<'_>, conductor: &mut Conductor) -> Option<LabError> {
    let error = conductor.recorder().broken()?;
    let path = run.dir.file(rundir::HISTORY);
    Some(LabError::new("history", format!("cannot write {}: {error}", path.display())))
}

/// Is the interval's tick due now? A loop that is always busy with answers would otherwise starve it.
async fn housekeeping_due(interval: &mut Interval) -> bool {
    tokio::time::timeout(Duration::ZERO, interval.tick()).await.is_ok()
}
