//! The agent on a host: it registers, asks for steps and answers them.

use super::*;
use crate::alteration::{Alteration, Conduct, WrongStep};
use crate::registration::Registered;
use vlab_model::history::HostMoment;

/// Factor between two waits of the back-off.
pub const BACKOFF_FACTOR: f64 = 1.5;

impl Host {
    // --- registration ------------------------------------------------------------------------------------------------

    pub(super) fn register(&mut self, now: Timestamp, w: &mut World) {
        if self.calls.any(|p| matches!(p, Purpose::Register)) {
            return;
        }
        self.agent = Agent::Registering;
        self.runner = None;
        self.is_active(now, w, |fault| matches!(fault, HostFault::IdOf(_)), "it registered under the other host's id");
        let params =
            HostCreateParams { host_id: self.plan.host_id, discovery_agent_version: Some(self.version.to_string()) };
        let request = ops::register_host(self.plan.infra_env_id, &params).request;
        self.call(now, w, Purpose::Register, request, &AGENT);
    }

    pub(super) fn registered(&mut self, now: Timestamp, w: &mut World, outcome: HttpResult) {
        let response = match outcome {
            Ok(response) if response.status == 201 => response,
            Ok(response) if REGISTRATION_FREEZES.contains(&response.status) => {
                w.host_did(now, self.own_id, HostMoment::RegistrationRefused(response.status));
                return self.freeze(now, w);
            }
            _ => {
                let at = now + w.config.timing.registration_retry;
                return w.at(at, self.me(), self.epoch, Timer::Register);
            }
        };
        let registered = w.read::<Registered>(now, self.own_id, "v2RegisterHost", response);
        let Some(wanted) = registered.and_then(|registered| registered.runner()) else {
            w.host_did(now, self.own_id, HostMoment::RegisteredWithoutCommand);
            let at = now + w.config.timing.runner_failure_wait;
            return w.at(at, self.me(), self.epoch, Timer::Register);
        };
        if let Some(version) = wanted.agent_version.filter(|v| **v != *self.version) {
            self.version = version.into();
        }
        let retry = match wanted.retry_seconds {
            0 => w.config.timing.runner_failure_wait,
            s => Duration::from_secs(s).div_f64(w.config.timing.retry_divisor),
        };
        self.run(w, wanted.infra_env_id, wanted.host_id, retry);
        w.host_did(now, self.own_id, HostMoment::Registered);
        self.poll(now, w);
    }

    fn run(&mut self, w: &World, infra_env: Uuid, host: Uuid, retry: Duration) {
        let backoff = w.config.timing.backoff_initial;
        self.runner = Some(Box::new(Runner { infra_env, host, retry, failing_since: None, backoff }));
        self.agent = Agent::Running;
        self.cache = Vec::new();
    }

    /// Its cluster starts an agent on it, to give it back.
    pub(crate) fn reclaim(&mut self, now: Timestamp, w: &mut World) {
        if self.agent != Agent::Node {
            return;
        }
        let retry = w.config.timing.runner_failure_wait;
        self.run(w, self.plan.infra_env_id, self.plan.host_id, retry);
        self.reclaims = true;
        w.host_did(now, self.own_id, HostMoment::ReclaimBegun);
        self.after(now, w, |t| t.agent_restart, Timer::Poll);
    }

    pub(super) fn freeze(&mut self, now: Timestamp, w: &mut World) {
        self.agent = Agent::Frozen;
        self.runner = None;
        w.host_did(now, self.own_id, HostMoment::Frozen);
    }

    /// The runner ended; the agent registers again after that time.
    pub(super) fn runner_ended(&mut self, now: Timestamp, w: &mut World, wait: Duration) {
        if self.reclaims {
            return w.at(now + wait, self.me(), self.epoch, Timer::Poll);
        }
        self.agent = Agent::Registering;
        self.runner = None;
        w.at(now + wait, self.me(), self.epoch, Timer::Register);
    }

    // --- polling -----------------------------------------------------------------------------------------------------

    pub(super) fn poll(&mut self, now: Timestamp, w: &mut World) {
        let Some(runner) = self.runner.as_ref().filter(|_| self.agent == Agent::Running) else { return };
        if self.calls.any(|p| matches!(p, Purpose::Poll)) {
            return;
        }
        let (infra_env, host) = (runner.infra_env, runner.host);
        if self.is_active(now, w, |fault| *fault == HostFault::SilentAgent, "it did not ask for instructions") {
            return;
        }
        let skew = |fault: &HostFault| if let HostFault::Clock(by) = fault { Some(*by) } else { None };
        let clock = now.as_secs() + self.active(now, w, skew, "it reported the wrong time").unwrap_or(0);
        let request = ops::get_next_steps(infra_env, host, clock).request;
        self.call(now, w, Purpose::Poll, request, &AGENT);
    }

    pub(super) fn polled(&mut self, now: Timestamp, w: &mut World, outcome: HttpResult) {
        let Some(runner) = self.runner.as_mut().filter(|_| self.agent == Agent::Running) else { return };
        let steps = match outcome {
            Ok(response) if response.status == 404 => return self.freeze(now, w),
            Ok(response) if response.is_success() => w.read::<Steps>(now, self.own_id, "v2GetNextSteps", response),
            _ => None,
        };
        let Some(steps) = steps else {
            self.cache = Vec::new();
            let t = &w.config.timing;
            let since = *runner.failing_since.get_or_insert(now);
            if now.since(since) >= t.backoff_give_up {
                let wait = runner.retry;
                w.host_did(now, self.own_id, HostMoment::GaveUpPolling);
                return self.runner_ended(now, w, wait);
            }
            let wait = runner.backoff.min(t.backoff_max);
            runner.backoff = wait.mul_f64(BACKOFF_FACTOR).min(t.backoff_max);
            return w.at(now + wait, self.me(), self.epoch, Timer::Poll);
        };
        runner.failing_since = None;
        runner.backoff = w.config.timing.backoff_initial;
        let wait = w.config.timing.next_instruction(steps.next_instruction_seconds.unwrap_or(0)).max(SHORTEST_POLL);
        for step in steps.instructions.into_iter().flatten() {
            self.step_given(now, w, step);
        }
        if steps.post_step_action.as_deref() == Some("exit") && !w.does(Conduct::IgnoresExit) {
            w.host_did(now, self.own_id, HostMoment::AgentExited);
            let restart = w.config.timing.agent_restart.at(self.durations.unit());
            return self.runner_ended(now, w, restart);
        }
        let slow = |fault: &HostFault| {
            if let HostFault::SlowPolls(every) = fault { Some(*every).filter(|e| *e > wait) } else { None }
        };
        let wait = self.active(now, w, slow, "it waited longer before it asked again").unwrap_or(wait);
        let wait = if w.does(Conduct::PollsRarely) { wait * 10 } else { wait };
        w.at(now + wait, self.me(), self.epoch, Timer::Poll);
    }

    // --- steps -------------------------------------------------------------------------------------------------------

    pub(super) fn saw_step(
        &self,
        now: Timestamp,
        w: &mut World,
        step: (&str, &str),
        answered: Option<i64>,
        cached: bool,
    ) {
        if w.config.observe_steps {
            let (step_type, step_id) = (step.0.to_owned(), step.1.to_owned());
            w.saw(now, What::Step { host: self.own_id, step_type, step_id, answered, cached });
        }
    }

    pub(super) fn step_given(&mut self, now: Timestamp, w: &mut World, step: Step) {
        let step_type = step.step_type.unwrap_or_default();
        let step_id = step.step_id.unwrap_or_default();
        self.saw_step(now, w, (&step_type, &step_id), None, false);
        let kind = steps::find(&step_type);
        self.next_step = self.next_step.wrapping_add(1);
        let serial = self.next_step;
        let takes: fn(&HostTiming) -> Span = match kind {
            Some(kind) => STEPS[kind].takes,
            None => |t| t.step_unknown,
        };
        let running = Running {
            serial,
            kind,
            step_type: step_type.into(),
            step_id: step_id.into(),
            args: step.args.unwrap_or_default(),
        };
        let gathers = kind.is_some_and(|k| STEPS[k].effect == Effect::GatherLogs);
        if gathers && logs_cluster(&running).is_some() {
            self.logs_progress(now, w, LogsStage::Requested, LogsFor::Step(serial));
        }
        if w.has_real_hands() {
            let (step_type, args) = (running.step_type.to_string(), running.args.clone());
            self.steps.push(running);
            return self.work(w, Work::Step { serial, step_type, args });
        }
        self.steps.push(running);
        let at = now + takes(&w.config.timing).at(self.durations.unit());
        w.at(at, self.me(), self.epoch, Timer::StepDone(serial));
    }

    /// What it answers to a step of that kind at once, whether or not its agent runs.
    pub(crate) fn answer_at_once(&self, now: Timestamp, w: &mut World, kind: usize, args: Vec<String>) -> StepAnswer {
        let step_type = STEPS[kind].step_type.into();
        self.answer_of(now, w, &Running { serial: 0, kind: Some(kind), step_type, step_id: Box::default(), args })
    }

    pub(super) fn answer_of(&self, now: Timestamp, w: &mut World, running: &Running) -> StepAnswer {
        if self.is_active(now, w, |fault| *fault == HostFault::NoMedia, "it cannot read the discovery medium") {
            return steps::media_disconnected();
        }
        let Some(kind) = running.kind else { return steps::unknown(&running.step_type) };
        match w.config.alteration {
            Some(Alteration::Step(of, WrongStep::Fails)) if of == kind => {
                return steps::unknown(&running.step_type);
            }
            Some(Alteration::Step(of, WrongStep::Stale)) if of == kind => {
                if let Some(first) = w.first_answers.get(&(self.position, kind)) {
                    return first.clone();
                }
            }
            _ => {}
        }
        let World { network, clusters, open_dns, config, .. } = w;
        let of = self.plan.cluster.and_then(|c| clusters.get(c));
        let dns = self.plan.names(of.map_or(&*open_dns, |c| &c.plan.dns));
        let healthy = ActiveFaults::default();
        let api_answers = |address| {
            let site = clusters.iter().find(|c| c.plan.api_vips.contains(&address));
            site.map(|c| c.plane.api_is_up())
        };
        let mut site = Site {
            seed: config.seed,
            position: self.position as usize,
            plan: &self.plan,
            dns: &dns,
            faults: &self.faults,
            dns_faults: of.map_or(&healthy, |c| &c.faults),
            effects: RefCell::default(),
            network,
            api_answers: &api_answers,
        };
        let mut answer = (STEPS[kind].answer)(&mut site, &running.args);
        if STEPS[kind].step_type == "inventory" {
            garble(&site, &mut answer);
        }
        for (fault, detail) in site.effects.into_inner() {
            w.note_effect(now, &fault, Some(self.own_id), None, detail);
        }
        if w.config.alteration == Some(Alteration::Step(kind, WrongStep::Stale)) {
            w.first_answers.insert((self.position, kind), answer.clone());
        }
        answer
    }

    pub(super) fn step_done(&mut self, now: Timestamp, w: &mut World, serial: u32) {
        let Some(at) = self.steps.iter().position(|s| s.serial == serial) else { return };
        if let (Some(Alteration::Step(of, WrongStep::Ignored)), Some(kind)) = (w.config.alteration, self.steps[at].kind)
            && of == kind
        {
            let _ = self.take_step(at);
            return;
        }
        let answer = self.answer_of(now, w, &self.steps[at]);
        let effect = self.steps[at].kind.map_or(Effect::None, |k| STEPS[k].effect);
        if effect == Effect::GatherLogs
            && answer.exit_code == 0
            && let Some(cluster) = logs_cluster(&self.steps[at])
        {
            // The step ends when the logs are there.
            return self.upload_logs(now, w, cluster, LogsFor::Step(serial));
        }
        let running = self.take_step(at);
        self.finish_step(now, w, running, answer, effect);
    }

    pub(super) fn take_step(&mut self, at: usize) -> Running {
        let running = self.steps.remove(at);
        if self.steps.is_empty() {
            self.steps = Vec::new();
        }
        running
    }

    pub(super) fn finish_step(
        &mut self,
        now: Timestamp,
        w: &mut World,
        running: Running,
        mut answer: StepAnswer,
        effect: Effect,
    ) {
        let succeeded = answer.exit_code == 0;
        let may_start = self.installer.is_none() || w.does(Conduct::SecondInstaller);
        // With real hands the installer is a program of its own, and whoever ran the step started it.
        if effect == Effect::StartInstaller && succeeded && may_start && !w.has_real_hands() {
            match self.prepare_installer(w, &running) {
                Ok(installer) => self.take_up(installer),
                Err(problem) => {
                    answer = StepAnswer { exit_code: steps::AGENT_FAILURE, output: String::new(), error: problem }
                }
            }
            if let Some(installer) = &self.installer {
                let serial = self.plan.disk(&installer.boot_device).and_then(|disk| disk.serial_of(self.plan.index));
                w.host_did(now, self.own_id, HostMoment::InstallerStarted);
                if let Some(serial) = serial {
                    w.host_did(now, self.own_id, HostMoment::InstallingTo(serial));
                }
                let token = self.installer_token();
                w.at(now, self.me(), self.epoch, Timer::Installer(token));
            }
        }
        let stops = effect == Effect::StopInstaller && succeeded && !w.does(Conduct::InstallerGoesOn);
        if stops && self.installer.take().is_some() {
            self.calls.forget(|p| matches!(p, Purpose::Installer(_) | Purpose::Logs(_, LogsFor::Installer)));
            w.host_did(now, self.own_id, HostMoment::InstallerStopped);
        }
        let then_reboot = effect == Effect::RebootDiscovery && succeeded;
        let step = (&*running.step_type, &*running.step_id);
        let hash = hash_of(&answer.output);
        let known = succeeded
            && w.config.reply_cache
            && self.cache.iter().any(|c| Some(c.kind) == running.kind && c.hash == hash && c.until > now);
        self.saw_step(now, w, step, Some(answer.exit_code), known);
        let upgraded =
            (effect == Effect::RestartUpgraded && succeeded).then(|| steps::upgraded_to(&answer.output)).flatten();
        if known {
            if then_reboot {
                self.reboot_into_discovery(now, w);
            }
        } else if let Some(runner) = &self.runner {
            // As in the real agent's JSON, a zero and an empty text are left out.
            let reply = StepReply {
                step_type: Some(running.step_type.into()),
                step_id: Some(running.step_id.into()),
                exit_code: Some(answer.exit_code).filter(|c| *c != 0),
                output: Some(answer.output),
                error: Some(answer.error).filter(|e| !e.is_empty()),
            };
            let request = ops::post_step_reply(runner.infra_env, runner.host, &reply).request;
            let purpose = Purpose::Answer { kind: running.kind, hash, exit_code: answer.exit_code, then_reboot };
            self.call(now, w, purpose, request, &AGENT);
        } else if then_reboot {
            // The poll that brought this step told the agent to exit: nobody is left to answer.
            self.reboot_into_discovery(now, w);
        }
        if let Some(image) = upgraded {
            self.version = image.into();
            w.host_did(now, self.own_id, HostMoment::AgentUpgraded);
            self.calls.forget(|p| matches!(p, Purpose::Poll));
            let restart = w.config.timing.agent_upgrade.at(self.durations.unit());
            self.runner_ended(now, w, restart);
        }
    }

    pub(super) fn remember(&mut self, now: Timestamp, w: &World, kind: usize, hash: u64) {
        let until = now + w.config.timing.reply_cache_life;
        self.cache.retain(|c| c.kind != kind);
        if self.agent == Agent::Running && w.config.reply_cache {
            self.cache.push(Cached { kind, hash, until });
        }
    }

    pub(super) fn reboot_into_discovery(&mut self, now: Timestamp, w: &mut World) {
        self.disk_boots = false;
        self.reboot(now, w);
    }
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// What is wrong with the way in which a host tells its inventory.
fn garble(site: &Site<'_>, answer: &mut StepAnswer) {
    let garbled = site.active(
        |fault| if let HostFault::Inventory(how) = fault { Some(*how) } else { None },
        "it sent a wrong inventory",
    );
    match garbled {
        None => {}
        Some(Garble::Malformed) => answer.output = "inventory of the machine: not available".to_owned(),
        Some(Garble::Truncated) => {
            // Everything in it is ASCII; a cut inside of a character would be no text at all.
            let mut half = answer.output.len() / 2;
            while !answer.output.is_char_boundary(half) {
                half -= 1;
            }
            answer.output.truncate(half);
        }
        Some(Garble::Huge(bytes)) => {
            let Ok(mut inventory) = serde_json::from_str::<Inventory>(&answer.output) else { return };
            let missing = bytes.saturating_sub(answer.output.len());
            if let Some(cpu) = inventory.cpu.as_mut() {
                cpu.flags.get_or_insert_default().push("x".repeat(missing));
            }
            answer.output = serde_json::to_string(&inventory).unwrap_or_default();
        }
    }
}
