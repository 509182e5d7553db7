//! The installer on a host: it goes through the script of its role, and writes the image.

use super::*;
use crate::alteration::Conduct;
use vlab_model::history::HostMoment;

impl Host {
    // --- the installer -----------------------------------------------------------------------------------------------

    pub(super) fn prepare_installer(&self, w: &World, running: &Running) -> Result<Box<Installer>, String> {
        let text = running.args.first().map_or("", String::as_str);
        let request: InstallCmdRequest = serde_json::from_str(text).map_err(|e| format!("install: {e}"))?;
        self.installer_for(w, &request)
    }

    pub(super) fn installer_for(&self, w: &World, request: &InstallCmdRequest) -> Result<Box<Installer>, String> {
        let cluster = w
            .cluster(request.cluster_id)
            .ok_or_else(|| format!("install: this lab has no cluster {}", request.cluster_id))?;
        let count = w.clusters[cluster].plan.control_plane_count;
        Ok(Box::new(Installer::new(cluster, count, self.plan.registry_on_medium, request, w.config.alteration)))
    }

    pub(super) fn take_up(&mut self, installer: Box<Installer>) {
        self.network_copied = installer.copies_network;
        self.installer = Some(installer);
    }

    /// A new token: timers set before are void.
    pub(super) fn installer_token(&mut self) -> u32 {
        self.installer.as_mut().map_or(0, |i| {
            i.token += 1;
            i.token
        })
    }

    pub(super) fn installer_next_line(&mut self, now: Timestamp, w: &mut World) {
        if let Some(installer) = self.installer.as_mut().filter(|i| !i.dead) {
            installer.line += 1;
            self.installer_goes_on(now, w);
        }
    }

    pub(super) fn ask(&mut self, now: Timestamp, w: &mut World, asked: Asked, request: Request) {
        self.call(now, w, Purpose::Installer(asked), request, &INSTALLER);
    }

    pub(super) fn tell_stage(&mut self, now: Timestamp, w: &mut World, asked: Asked, stage: HostStage, info: &str) {
        let progress = HostProgress { current_stage: Some(stage), progress_info: Some(info.to_owned()) };
        let request = ops::update_host_progress(self.plan.infra_env_id, self.plan.host_id, &progress).request;
        self.ask(now, w, asked, request);
    }

    /// Does the present line, and the following ones until one has to wait.
    pub(super) fn installer_goes_on(&mut self, now: Timestamp, w: &mut World) {
        loop {
            let Some(installer) = self.installer.as_ref().filter(|i| !i.dead) else { return };
            let (cluster, cluster_id) = (installer.cluster, installer.cluster_id);
            let Some(task) = installer.script.get(installer.line) else { return };
            match *task {
                Task::Report(stage, info) => {
                    let info = installer.info(info);
                    if stage == HostStage::StartingInstallation {
                        self.member_of = Some((cluster, NodeRole::from(installer.role)));
                        self.plan.cluster = Some(cluster);
                    }
                    return self.tell_stage(now, w, Asked::Step, stage, info);
                }
                Task::Work(job, span) => {
                    if let Some(i) = self.installer.as_mut() {
                        i.line += 1;
                    }
                    if w.has_real_hands() {
                        return self.give_job(w, job);
                    }
                    let token = self.installer_token();
                    return self.after(now, w, span, Timer::Installer(token));
                }
                Task::Download(file) => {
                    let request = match file {
                        File::BootstrapIgnition => ops::download_cluster_file(cluster_id, "bootstrap.ign").request,
                        File::HostIgnition => {
                            ops::download_host_ignition(self.plan.infra_env_id, self.plan.host_id).request
                        }
                    };
                    return self.ask(now, w, Asked::Needed(file), request);
                }
                Task::StartBootkube if w.has_real_hands() => {
                    if !w.clusters[cluster].plane.is_single_node() {
                        w.at(now + w.config.timing.mcs_log_poll, self.me(), self.epoch, Timer::Nodes);
                    }
                    if let Some(i) = self.installer.as_mut() {
                        i.line += 1;
                    }
                    return self.give_job(w, Job::StartBootkube);
                }
                Task::StartBootkube => {
                    let position = self.position as usize;
                    w.plane(now, cluster, |p| p.start_bootkube(now, position));
                    if !w.clusters[cluster].plane.is_single_node() {
                        w.at(now + w.config.timing.mcs_log_poll, self.me(), self.epoch, Timer::Nodes);
                    }
                }
                Task::WriteImage => return self.start_writing(now, w),
                Task::CopyRegistry => {
                    let takes = w.config.timing.copy_registry.at(self.durations.unit());
                    return self.start_telling(now, w, HostStage::CopyingRegistryDataToDisk, takes);
                }
                Task::WaitFor(condition) => {
                    if !self.holds(now, w, cluster, condition) {
                        return;
                    }
                }
                Task::RequestClusterLogs => {
                    let params = LogsProgressParams { logs_state: LogsState::Requested };
                    let request = ops::update_cluster_logs_progress(cluster_id, &params).request;
                    return self.ask(now, w, Asked::Step, request);
                }
                Task::SendLogs => return self.logs_progress(now, w, LogsStage::Requested, LogsFor::Installer),
                Task::Shutdown { delayed } => {
                    self.agent = Agent::Leaving;
                    self.runner = None;
                    self.calls.forget(|p| matches!(p, Purpose::Poll));
                    return match delayed {
                        true => self.after(now, w, |t| t.reboot_delay, Timer::Reboot),
                        false => w.at(now, self.me(), self.epoch, Timer::Reboot),
                    };
                }
            }
            if let Some(i) = self.installer.as_mut() {
                i.line += 1;
            }
        }
    }

    /// Is it so? If not, the question is asked again later.
    pub(super) fn holds(&mut self, now: Timestamp, w: &mut World, cluster: usize, condition: Condition) -> bool {
        let plane = &w.clusters[cluster].plane;
        let holds = match condition {
            Condition::MastersDone => {
                self.ask_for_masters(now, w);
                return false;
            }
            _ if plane.leaves_too_early() => true,
            Condition::MastersReady => {
                let ready = plane.enough_joined();
                self.report_nodes(now, w);
                ready
            }
            Condition::Bootkube => plane.bootkube_is_done(),
            Condition::EtcdBootstrap => plane.etcd_bootstrap_is_done(),
            Condition::Controller => plane.controller_ready(),
        };
        if !holds {
            self.look_again(now, w);
        }
        holds
    }

    pub(super) fn look_again(&mut self, now: Timestamp, w: &mut World) {
        let token = self.installer_token();
        w.at(now + w.config.timing.installer_poll, self.me(), self.epoch, Timer::Installer(token));
    }

    pub(super) fn ask_for_masters(&mut self, now: Timestamp, w: &mut World) {
        let Some(installer) = &self.installer else { return };
        let (id, day2) = (installer.cluster_id, installer.day2);
        match day2 {
            None => self.ask(now, w, Asked::IsDay2, ops::get_cluster_without_hosts(id).request),
            Some(_) => {
                let mut request = ops::list_cluster_hosts(id).request;
                request.path.push_str("?role=master");
                self.ask(now, w, Asked::Masters, request);
            }
        }
    }

    pub(super) fn installer_heard(&mut self, now: Timestamp, w: &mut World, asked: Asked, outcome: HttpResult) {
        let Some(installer) = self.installer.as_mut().filter(|i| !i.dead) else { return };
        match asked {
            Asked::Told | Asked::Percentage => {
                if installer.writing.is_some_and(|writing| writing.done) && !self.percentage_is_out() {
                    self.finish_writing(now, w);
                }
            }
            Asked::Step => {
                // A report that was refused is noted and forgotten: the real installer goes on, too.
                if let Ok(response) = &outcome
                    && !response.is_success()
                {
                    w.host_did(now, self.own_id, HostMoment::ReportRefused(response.status));
                }
                let reported = match installer.script.get(installer.line) {
                    Some(Task::Report(stage, _)) => Some(*stage),
                    _ => None,
                };
                let fails = |fault: &HostFault| match fault {
                    HostFault::FailsAt(at, text) if Some(*at) == reported => Some(text.clone()),
                    _ => None,
                };
                if let Some(text) = self.active(now, w, fails, "its installer failed") {
                    return self.fail(now, w, &text);
                }
                let hangs = |fault: &HostFault| matches!(fault, HostFault::StuckAt(at) if Some(*at) == reported);
                if self.is_active(now, w, hangs, "its installer hangs") {
                    self.stuck = self.installer.as_ref().map(|i| i.token);
                    return;
                }
                self.installer_next_line(now, w);
            }
            Asked::Needed(file) => match outcome {
                Ok(response) if response.is_success() => {
                    w.host_did(now, self.own_id, file.moment());
                    if w.has_real_hands() {
                        self.work(w, Work::Got(file, response.body.into_vec()));
                    }
                    self.installer_next_line(now, w);
                }
                other => {
                    let why = match other {
                        Ok(response) => format!("the service answered {}", response.status),
                        Err(error) => error.to_string(),
                    };
                    self.fail(now, w, &format!("cannot download {file:?}: {why}"));
                }
            },
            Asked::IsDay2 => {
                let answer = outcome.ok();
                if let Some(cluster) = answer.and_then(|r| w.brief(now, self.own_id, r)) {
                    let day2 = cluster.kind == "AddHostsCluster" || cluster.status == "adding-hosts";
                    installer.day2 = Some(day2);
                    match day2 {
                        true => self.installer_next_line(now, w),
                        false => self.ask_for_masters(now, w),
                    }
                } else {
                    self.look_again(now, w);
                }
            }
            Asked::Masters => {
                let hosts = outcome.ok().and_then(|r| w.host_briefs(now, self.own_id, r));
                let done = hosts.unwrap_or_default().into_iter().filter(|h| {
                    matches!(h.role.as_deref(), Some("master" | "arbiter")) && h.stage() == Some(HostStage::Done)
                });
                let needed = w.clusters[installer.cluster].plan.control_plane_count.min(2) as usize;
                match done.count() >= needed {
                    true => self.installer_next_line(now, w),
                    false => self.look_again(now, w),
                }
            }
            Asked::Nodes => {
                let hosts = outcome.ok().and_then(|r| w.host_briefs(now, self.own_id, r));
                self.tell_nodes(now, w, &hosts.unwrap_or_default());
            }
        }
        if matches!(asked, Asked::Nodes | Asked::Told) {
            self.nodes_were_told(w, false);
        }
    }

    /// Somebody ends it; nothing happens where there is none, or where it has failed already.
    pub(crate) fn installer_ends(&mut self, now: Timestamp, w: &mut World, why: &str) {
        if self.installer.as_ref().is_some_and(|installer| !installer.dead) {
            self.fail(now, w, why);
        }
    }

    pub(super) fn fail(&mut self, now: Timestamp, w: &mut World, text: &str) {
        if let Some(installer) = self.installer.as_mut() {
            installer.dead = true;
            installer.token += 1;
        }
        w.host_did(now, self.own_id, HostMoment::InstallerFailed);
        if w.has_real_hands() {
            self.work(w, Work::Failed(text.to_owned()));
        }
        self.tell_stage(now, w, Asked::Told, HostStage::Failed, text);
    }

    // --- writing the image -------------------------------------------------------------------------------------------

    pub(super) fn start_writing(&mut self, now: Timestamp, w: &mut World) {
        self.disk_boots = false;
        if w.has_real_hands() {
            if let Some(i) = self.installer.as_mut() {
                let stage = HostStage::WritingImageToDisk;
                i.writing = Some(Writing { stage, began: now, takes: Duration::ZERO, done: false });
            }
            return self.give_job(w, Job::WriteImage);
        }
        if let Some((cluster, _)) = self.member_of {
            let position = self.position as usize;
            w.plane(now, cluster, |p| {
                p.forget(position);
                Vec::new()
            });
        }
        let takes = w.config.timing.write_image.at(self.durations.unit());
        self.start_telling(now, w, HostStage::WritingImageToDisk, takes);
    }

    /// Something is written to the disk for so long; its percentages are told.
    pub(super) fn start_telling(&mut self, now: Timestamp, w: &mut World, stage: HostStage, takes: Duration) {
        if let Some(installer) = self.installer.as_mut() {
            installer.writing = Some(Writing { stage, began: now, takes, done: false });
        }
        self.next_percentage(now, w, 0);
    }

    /// Sets the timer of the next percentage after `percent`.
    pub(super) fn next_percentage(&mut self, now: Timestamp, w: &mut World, percent: u32) {
        let step = u32::try_from(w.config.timing.write_image_report_step).unwrap_or(5).clamp(1, 100);
        let next = (percent + step).min(100);
        let Some(writing) = self.installer.as_ref().and_then(|i| i.writing) else { return };
        let at = writing.began + writing.takes * next / 100;
        w.at(at.max(now), self.me(), self.epoch, Timer::Written(next));
    }

    pub(super) fn percentage_is_out(&self) -> bool {
        self.calls.any(|p| matches!(p, Purpose::Installer(Asked::Percentage)))
    }

    pub(super) fn written(&mut self, now: Timestamp, w: &mut World, percent: u32) {
        let Some(Writing { stage, .. }) = self.installer.as_ref().filter(|i| !i.dead).and_then(|i| i.writing) else {
            return;
        };
        let broken = |fault: &HostFault| matches!(fault, HostFault::DiskFailsAt(at) if percent >= *at);
        if self.is_active(now, w, broken, "its disk failed") {
            let what = if stage == HostStage::WritingImageToDisk { "write image" } else { "copy registry data" };
            let text = format!("failed to {what} to disk: write error after {percent}%: Input/output error");
            return self.fail(now, w, &text);
        }
        if percent < 100 {
            // One report at a time: while one is on its way the writing goes on and the next one says more.
            if !self.percentage_is_out() && !w.does(Conduct::NoPercentages) {
                self.tell_stage(now, w, Asked::Percentage, stage, &format!("{percent}%"));
            }
            return self.next_percentage(now, w, percent);
        }
        if let Some(writing) = self.installer.as_mut().and_then(|i| i.writing.as_mut()) {
            writing.done = true;
        }
        self.disk_boots = true;
        if !self.percentage_is_out() {
            self.finish_writing(now, w);
        }
    }

    /// The last report; the next line is done when it is answered.
    pub(super) fn finish_writing(&mut self, now: Timestamp, w: &mut World) {
        let Some(Writing { stage, .. }) = self.installer.as_mut().and_then(|i| i.writing.take()) else { return };
        let stage = if w.does(Conduct::ReportsBackwards) { HostStage::StartingInstallation } else { stage };
        self.tell_stage(now, w, Asked::Step, stage, "100%");
    }
}
